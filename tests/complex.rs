//! Complex matrices: how they are read, the format for them, and operators of complex vectors.

mod corpus;
mod forms;
mod input;

use ellect::analysis::Analysis;
use ellect::choose::ValuesUse;
use ellect::csr::{Complex, ComplexCsr};
use ellect::dense::{DenseMut, DenseRef, Order};
use ellect::device::{self, Device, Kind};
use ellect::format::{Candidate, Target, candidates};
use ellect::read::{self, Limits, Options};
use ellect::{Csr, Precision, PreparedOperator, Tuner, Workload, check, generate};
use forms::matlab73::Matlab73;
use forms::*;

type C = Complex<f64>;

fn c(re: f64, im: f64) -> C {
    Complex { re, im }
}

fn target(device: &Device) -> Target<'_> {
    Workload::default().target(device, Precision::F64)
}

/// Returns the candidates that apply to complex matrices alone.
fn own() -> Vec<Candidate> {
    let mut all = candidates(Kind::Gpu);
    all.retain(|candidate| candidate.format.figures_of.is_some());
    assert_eq!(all.len(), 4);
    all
}

/// A complex matrix with rows of several lengths.
fn complex(nrows: usize) -> ComplexCsr<f64> {
    let real: Csr<f64> = generate::by_name("p2", nrows, 1).expect("a class");
    let imaginary = real.map_values(|value| (value * 7.0).sin());
    ComplexCsr::from_parts(&real, &imaginary).expect("equal sizes")
}

fn vector(len: usize, seed: u64) -> Vec<C> {
    let [re, im] = [0, 1].map(|part| check::vector::<f64>(len, 2 * seed + part));
    re.into_iter().zip(im).map(|(re, im)| c(re, im)).collect()
}

/// Computes alpha op(A) x + beta y from the entries.
fn product(
    (rows, entries): (usize, impl Iterator<Item = (usize, usize, C)>),
    (alpha, beta): (C, C),
    x: &[C],
    y: &[C],
) -> Vec<C> {
    let mut sums = vec![c(0.0, 0.0); rows];
    entries.for_each(|(row, column, value)| sums[row] += value * x[column]);
    sums.iter().zip(y).map(|(sum, y)| alpha * sum + beta * y).collect()
}

fn entries(csr: &ComplexCsr<f64>) -> impl Iterator<Item = (usize, usize, C)> + '_ {
    let row = |row: usize| (csr.row_ptr()[row]..csr.row_ptr()[row + 1]).map(move |k| (row, k));
    (0..csr.nrows()).flat_map(row).map(|(row, k)| (row, csr.col_idx()[k] as usize, csr.values()[k]))
}

#[track_caller]
fn near(got: &[C], want: &[C]) {
    assert_eq!(got.len(), want.len());
    for (row, (got, want)) in got.iter().zip(want).enumerate() {
        assert!(
            (got - want).l1_norm() <= 1e-11 * (1.0 + want.l1_norm()),
            "row {row}: {got} {want}"
        );
    }
}

/// Reads a file as a complex matrix; returns size and entries, counted from 1, or the message.
fn outcome(content: &[u8]) -> String {
    let options = Options { complex: read::Complex::Blocks, ..Options::default() };
    let read = options.bytes::<f64>(content).and_then(|found| found.into_complex());
    let csr = match read {
        Ok(csr) => csr,
        Err(error) => return error.to_string(),
    };
    let text = |(i, j, v): (usize, usize, C)| format!(" {},{}={}|{}", i + 1, j + 1, v.re, v.im);
    format!("{}x{}{}", csr.nrows(), csr.ncols(), entries(&csr).map(text).collect::<String>())
}

#[track_caller]
fn reads(banner: &str, rest: &str, expected: &str) {
    let text = format!("%%MatrixMarket matrix {banner}\n{rest}");
    assert_eq!(outcome(text.as_bytes()), expected, "{banner}");
}

#[test]
fn matrix_market_lists_complex_values() {
    reads(
        "coordinate complex general",
        "2 3 3\n2 3 1 -2\n1 1 0 1.0D0\n2 3 0.5 1\n",
        "2x3 1,1=0|1 2,3=1.5|-1",
    );
    reads(
        "coordinate complex symmetric",
        "2 2 2\n1 1 1 2\n2 1 3 4\n",
        "2x2 1,1=1|2 1,2=3|4 2,1=3|4",
    );
    reads("coordinate complex skew-symmetric", "2 2 1\n2 1 3 4\n", "2x2 1,2=-3|-4 2,1=3|4");
    reads(
        "coordinate complex hermitian",
        "2 2 2\n1 1 1 0\n2 1 3 4\n",
        "2x2 1,1=1|0 1,2=3|-4 2,1=3|4",
    );
    reads("array complex general", "2 1\n0 2\n0 0\n", "2x1 1,1=0|2");
    reads(
        "array complex hermitian",
        "2 2\n1 0\n2 3\n4 0\n",
        "2x2 1,1=1|0 1,2=2|-3 2,1=2|3 2,2=4|0",
    );
    reads("array complex skew-symmetric", "2 2\n2 3\n", "2x2 1,2=-2|-3 2,1=2|3");
    // Real matrices have no imaginary parts.
    reads("coordinate real hermitian", "2 2 1\n2 1 3\n", "2x2 1,2=3|0 2,1=3|0");
    reads("coordinate pattern general", "1 2 1\n1 2\n", "1x2 1,2=1|0");
}

#[test]
fn faults_of_complex_values_are_stated() {
    for (banner, rest, expected) in [
        ("general", "1 1 1\n1 1 4\n", "line 3: the imaginary part is missing"),
        ("general", "1 1 1\n1 1 4 x\n", "line 3: the value is 'x'; it must be a number"),
        (
            "general",
            "1 1 1\n1 1 4 1e999\n",
            "line 3: the value is '1e999'; it must be finite in f64",
        ),
        (
            "skew-symmetric",
            "1 1 1\n1 1 0 1\n",
            "line 3: the diagonal entry is '1'; a skew-symmetric matrix has a zero diagonal",
        ),
        (
            "hermitian",
            "2 2 1\n2 2 1 3\n",
            "the diagonal entry of row 2 has the imaginary part 3; the diagonal of a hermitian matrix is \
             real",
        ),
        (
            "general",
            "1 2 2\n1 2 1 1e308\n1 2 1 1e308\n",
            "the entries of row 1, column 2 sum to -inf; the sum must be finite in f64",
        ),
    ] {
        reads(&format!("coordinate complex {banner}"), rest, expected);
    }
}

#[test]
fn scipy_and_matlab_store_complex_values() {
    let expected = "3x3 1,1=4|4.5 1,3=1|1.5 2,2=5|5.5 3,1=2|2.5 3,3=6|6.5";
    let pairs = BY_ROWS.iter().flat_map(|&real| [real, real + 0.5]);
    let double: Vec<u8> = pairs.clone().flat_map(f64::to_le_bytes).collect();
    let single: Vec<u8> = pairs.flat_map(|part| (part as f32).to_le_bytes()).collect();
    assert_eq!(outcome(&csr_npz("<c16", &double).stored()), expected);
    assert_eq!(outcome(&csr_npz("<c8", &single).stored()), expected);

    let m = Matlab { big: false };
    let imaginary: Vec<f64> = BY_COLUMNS.iter().map(|real| real + 0.5).collect();
    let parts = [m.ints(&ROWS), m.ints(&POINTERS), m.doubles(&BY_COLUMNS), m.doubles(&imaginary)];
    assert_eq!(outcome(&m.file(&[m.matrix(5 | 0x800, "A", [3, 3], &parts)])), expected);
    // A real matrix beside a complex vector is a real one.
    let vector = [m.ints(&[1]), m.ints(&[0, 1]), m.doubles(&[1.0]), m.doubles(&[2.0])];
    let both = m.file(&[m.sparse("A"), m.matrix(5 | 0x800, "b", [3, 1], &vector)]);
    assert_eq!(outcome(&both), "3x3 1,1=4|0 1,3=1|0 2,2=5|0 3,1=2|0 3,3=6|0");

    let m = Matlab73::default();
    let expected = "3x3 1,1=4|0.5 1,3=1|0.5 2,2=5|0.5 3,1=2|0.5 3,3=6|0.5";
    assert_eq!(outcome(&m.file(vec![m.complex("A", 0.5)])), expected);
}

#[test]
fn the_limit_of_nonzeros_counts_those_of_the_real_matrix() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.mtx");
    let text = "%%MatrixMarket matrix coordinate complex general\n2 2 2\n1 1 1 2\n2 1 3 4\n";
    std::fs::write(&path, text).expect("writable");
    let limits = |nonzeros| Limits { nonzeros, ..Limits::default() };
    assert_eq!(read::complex_file::<f64>(&path, &limits(8)).expect("within").nnz(), 2);
    let error = read::complex_file::<f64>(&path, &limits(7)).expect_err("4 for each entry");
    assert!(error.to_string().contains('8'), "{error}");
}

#[test]
fn the_format_stores_two_numbers_a_block_and_refuses_other_values() {
    let (csr, device) = (complex(3000), device::find("h200").expect("shipped"));
    let real = csr.to_real();
    let blocks: Candidate = "bhll:b=2".parse().expect("a candidate");
    let blocks = PreparedOperator::new(&real, &blocks, &target(&device)).expect("it applies");
    for candidate in own() {
        let made = PreparedOperator::new(&real, &candidate, &target(&device));
        let Ok(mut operator) = made else {
            assert!(candidate.to_string().contains("col=16"), "{candidate}");
            continue;
        };
        assert!(5 * operator.bytes() < 3 * blocks.bytes(), "{candidate}: {}", operator.bytes());
        operator.verify_many(&real, 5, 3).expect("right");
        let doubled = real.map_values(|value| 2.0 * value);
        operator.update_values(doubled.values()).expect("complex values");
        let mut values = real.values().to_vec();
        *values.last_mut().expect("entries") += 1.0;
        let refused = operator.update_values(&values).expect_err("no blocks").to_string();
        let row = real.nrows() - 2;
        let stated = format!("the new values of row {row} and the next one are not 2 x 2 blocks");
        assert!(
            refused.contains(&stated) && refused.contains("prepare a new operator"),
            "{refused}"
        );
        assert_eq!(operator.to_csr().expect("on the host"), doubled, "{candidate}");
    }
}

#[test]
fn a_column_does_not_depend_on_the_others() {
    let real = complex(2000).to_real();
    let device = device::find("cpu").expect("shipped");
    let candidate = own().remove(0);
    let operator = PreparedOperator::new(&real, &candidate, &target(&device)).expect("it applies");
    let n = real.nrows();
    let x = check::vector::<f64>(5 * n, 1);
    for order in Order::ALL {
        let at = |row: usize, column: usize| match order {
            Order::ColumnMajor => column * n + row,
            Order::RowMajor => row * 5 + column,
        };
        let leading = if order == Order::RowMajor { 5 } else { n };
        let mut y = vec![0.0; 5 * n];
        let all = DenseRef::new(order, [n, 5], leading, &x).expect("it fits");
        let out = DenseMut::new(order, [n, 5], leading, &mut y).expect("it fits");
        operator.apply_many(1.5, all, 0.0, out).expect("lengths fit");
        for column in 0..5 {
            let own: Vec<f64> = (0..n).map(|row| x[at(row, column)]).collect();
            let mut one = vec![0.0; n];
            operator.apply(1.5, &own, 0.0, &mut one).expect("lengths fit");
            assert!((0..n).all(|row| one[row] == y[at(row, column)]), "{order:?} {column}");
        }
    }
}

#[test]
fn other_matrices_are_refused_with_the_first_rows_that_differ() {
    let heat: Csr<f64> = generate::by_name("heat", 500, 1).expect("a class");
    let device = device::find("h200").expect("shipped");
    for candidate in own() {
        let refused = candidate.work(&Analysis::of(&heat), &target(&device)).expect_err("real");
        let refused = refused.to_string();
        assert!(refused.contains("complex matrices that are given as such blocks"), "{refused}");
    }
}

#[test]
fn models_choose_the_format_for_many_products_of_a_complex_matrix() {
    let real: Csr<f64> = generate::by_name("stencil27", 30_000, 1).expect("a class");
    let real = corpus::to_blocks(&real);
    let data = tempfile::tempdir().expect("a folder");
    let tuner = Tuner::open_in("h200", data.path()).expect("shipped");
    let workload = Workload { spmvs: 1_000_000, ..Workload::default() };
    let choice = tuner.recommend(&real, &workload).expect("an answer");
    assert!(own().contains(&choice.candidate), "{}: {:?}", choice.candidate, choice.explanation);
    // Values that are to change may be of any structure.
    let values = ValuesUse::Change(10);
    let choice = tuner.recommend(&real, &Workload { values, ..workload }).expect("an answer");
    assert!(choice.ranking.iter().all(|ranked| !own().contains(&ranked.candidate)));
}

#[test]
fn complex_operators_multiply_with_every_kind_of_factor() {
    let csr = complex(700);
    let tuner = Tuner::open("cpu").expect("this host");
    let workload = Workload { spmvs: 1000, transposed: 1000, ..Workload::default() };
    let mut operator = tuner.prepare_complex(&csr, &workload).expect("it applies");
    operator.verify(&csr, 3).expect("right");
    let n = csr.nrows();
    assert_eq!((operator.nrows(), operator.ncols(), operator.nnz()), (n, n, csr.nnz()));
    let (x, y) = (vector(n, 1), vector(n, 2));
    let changed = csr.values().iter().map(|value| value * c(0.5, 2.0)).collect::<Vec<_>>();
    for updated in [false, true] {
        let mut csr = csr.clone();
        if updated {
            operator.update_values(&changed).expect("as many");
            csr.values_mut().copy_from_slice(&changed);
        }
        for factors in [
            (c(1.0, 0.0), c(0.0, 0.0)),
            (c(2.0, 0.0), c(-0.5, 0.0)),
            (c(0.0, 1.0), c(0.0, 0.0)),
            (c(0.5, -1.0), c(2.0, 0.25)),
            (c(1.0, 0.0), c(0.0, 1.0)),
        ] {
            let mut got = y.clone();
            operator.apply(factors.0, &x, factors.1, &mut got).expect("lengths fit");
            near(&got, &product((n, entries(&csr)), factors, &x, &y));
            let mut got = y.clone();
            operator.apply_adjoint(factors.0, &x, factors.1, &mut got).expect("lengths fit");
            let adjoint = entries(&csr).map(|(row, column, value)| (column, row, value.conj()));
            near(&got, &product((n, adjoint), factors, &x, &y));
        }
    }
    // With a factor of 0, y is written and never read.
    let mut got = vec![c(f64::NAN, f64::NAN); n];
    operator.apply(c(0.0, 1.0), &x, c(0.0, 0.0), &mut got).expect("lengths fit");
    assert!(got.iter().all(|value| value.re.is_finite() && value.im.is_finite()));
}

#[test]
fn hermitian_matrices_share_one_layout_with_their_adjoint() {
    let lower = [(0, 0, c(2.0, 0.0)), (1, 0, c(0.0, 1.0)), (2, 1, c(3.0, -1.0))];
    let upper = lower[1..].iter().map(|&(row, column, value)| (column, row, value.conj()));
    let csr = ComplexCsr::from_triplets(3, 3, lower.into_iter().chain(upper)).expect("in range");
    let tuner = Tuner::open("cpu").expect("this host");
    let both = Workload { spmvs: 100, transposed: 100, ..Workload::default() };
    let operator = tuner.prepare_complex(&csr, &both).expect("it applies");
    let adjoint = operator.real_adjoint().expect("prepared");
    assert!(std::ptr::eq(operator.real(), adjoint), "one layout");
    let one = tuner.prepare_complex(&csr, &Workload::default()).expect("it applies");
    let mut y = [c(0.0, 0.0); 3];
    let stated = one.apply_adjoint(c(1.0, 0.0), &y.clone(), c(0.0, 0.0), &mut y);
    assert!(stated.expect_err("not prepared").to_string().contains("'transposed'"));
    let short = one.apply(c(1.0, 0.0), &[c(1.0, 0.0); 2], c(0.0, 0.0), &mut y).expect_err("short");
    assert!(short.to_string().contains("x has 2") || short.to_string().contains('3'), "{short}");
    let mut one = one;
    let few = one.update_values(&[c(1.0, 0.0)]).expect_err("5 entries").to_string();
    assert!(few.contains("1 values for 5 entries"), "{few}");
}

#[test]
fn a_real_operator_multiplies_complex_vectors() {
    let csr: Csr<f64> = generate::by_name("circuit", 900, 2).expect("a class");
    let (x, y) = (vector(csr.ncols(), 1), vector(csr.nrows(), 2));
    let of_csr = || csr.iter().map(|(row, column, value)| (row, column, c(value, 0.0)));
    let device = device::find("cpu").expect("shipped");
    for name in ["csr", "hll", "hll:sort=all", "st_csr", "dia", "coo"] {
        let candidate: Candidate = name.parse().expect("a candidate");
        let Ok(operator) = PreparedOperator::new(&csr, &candidate, &target(&device)) else {
            continue;
        };
        for factors in [(c(1.5, 0.0), c(-1.0, 0.0)), (c(0.5, 1.0), c(0.0, -2.0))] {
            let mut got = y.clone();
            operator.apply_complex(factors.0, &x, factors.1, &mut got).expect("lengths fit");
            near(&got, &product((csr.nrows(), of_csr()), factors, &x, &y));
        }
        let mut short = y[1..].to_vec();
        assert!(operator.apply_complex(c(1.0, 0.0), &x, c(0.0, 0.0), &mut short).is_err());
    }
}
