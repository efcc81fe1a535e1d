//! Matrices divided among parts: products are those of the whole matrix for every way to divide it.

#[path = "sharded/modes.rs"]
mod modes;
#[path = "sharded/ranks.rs"]
mod ranks;
#[path = "sharded/transports.rs"]
mod transports;

use ellect::choose::ValuesUse;
use ellect::generate::Spec;
use ellect::sharded::{Mode, ShardedOperator, Split};
use ellect::{Csr, Error, Scalar, Tuner, Workload, check};

fn matrix<T: Scalar>(spec: &str) -> Csr<T> {
    let csr: Csr<f64> = spec.parse::<Spec>().expect("a class and rows").make();
    // Products of small whole numbers are exact in any order of the sums.
    csr.map_values(|value| T::from_f64((value * 5.0).round() % 8.0 + 1.0))
}

/// Matrices of all shapes, with dense rows and columns, and with nothing in them.
fn matrices<T: Scalar>() -> Vec<Csr<T>> {
    let one = |nrows, ncols, entries: Vec<(usize, usize)>| {
        let entries = entries.into_iter().map(|(i, j)| (i, j, T::from_f64((i + 2 * j) as f64)));
        Csr::from_triplets(nrows, ncols, entries).expect("in range")
    };
    let mut arrow: Vec<_> = (0..200).flat_map(|i| [(0, i), (i, 0), (i, i)]).collect();
    arrow.sort_unstable();
    arrow.dedup();
    vec![
        matrix("stencil7:700"),
        matrix("power_law:300"),
        matrix("elasticity:300"),
        one(200, 200, arrow),
        one(120, 31, (0..120).map(|i| (i, i * 7 % 31)).collect()),
        one(31, 120, (0..120).map(|j| (j * 7 % 31, j)).collect()),
        one(40, 40, vec![(39, 0)]),
        one(5, 5, Vec::new()),
        one(0, 0, Vec::new()),
        one(0, 9, Vec::new()),
        one(9, 0, Vec::new()),
    ]
}

fn prepared<T: Scalar>(csr: &Csr<T>, parts: usize, split: Split<'_>) -> ShardedOperator<T> {
    prepared_in(csr, parts, split, Mode::Auto)
}

fn prepared_in<T: Scalar>(
    csr: &Csr<T>,
    parts: usize,
    split: Split<'_>,
    mode: Mode,
) -> ShardedOperator<T> {
    let tuners = Tuner::open_all(&vec!["cpu"; parts]).expect("a host").with_mode(mode);
    let workload = Workload { spmvs: 10_000, ..Workload::default() };
    let prepared = tuners.prepare_sharded(csr, &workload, split);
    prepared.unwrap_or_else(|error| panic!("{split:?} in {parts} parts: {error}"))
}

/// Compares the products of a divided matrix with those of the whole one.
#[track_caller]
fn check<T: Scalar>(a: &ShardedOperator<T>, csr: &Csr<T>) {
    let x = check::whole_numbers::<T>(csr.ncols(), 3);
    let before = check::whole_numbers::<T>(csr.nrows(), 4);
    let (alpha, beta) = (T::from_f64(2.0), T::from_f64(-3.0));
    let reference = check::reference(csr, alpha, &x, beta, &before);
    let wanted: Vec<T> = reference.iter().map(|row| T::from_f64(row.value)).collect();
    let mut y = before.clone();
    a.apply(alpha, &x, beta, &mut y).expect("it fits");
    assert_eq!(y, wanted, "{} parts", a.parts().len());

    let rows: usize = a.parts().iter().map(|part| part.rows()).sum();
    let nnz: usize = a.parts().iter().map(|part| part.nnz()).sum();
    assert_eq!((rows, nnz), (csr.nrows(), csr.nnz()), "each row is in one part");
}

fn every_split_multiplies<T: Scalar>(csr: &Csr<T>, parts: usize) {
    let owners: Vec<u32> = (0..csr.nrows()).map(|row| (row * 5 % parts) as u32).collect();
    for mode in [Mode::Vector, Mode::Overlap] {
        for split in
            [Split::EqualRows, Split::EqualNonzeros, Split::EqualTimes, Split::Owners(&owners)]
        {
            check(&prepared_in(csr, parts, split, mode), csr);
        }
        if cfg!(feature = "metis") && csr.nrows() == csr.ncols() {
            check(&prepared_in(csr, parts, Split::FewCuts, mode), csr);
        }
    }
}

#[test]
fn every_split_gives_the_products_of_the_whole_matrix() {
    for csr in matrices::<f64>() {
        for parts in [1, 2, 3, 7] {
            every_split_multiplies(&csr, parts);
        }
    }
    every_split_multiplies(&matrix::<f32>("stencil7:500"), 3);
}

#[test]
fn there_may_be_more_parts_than_rows() {
    every_split_multiplies(&matrix::<f64>("stencil7:500"), 64);
    let diagonal = (0..40).map(|i| (i, i, 2.0));
    every_split_multiplies(&Csr::from_triplets(40, 40, diagonal).expect("in range"), 64);
}

#[test]
fn a_part_gets_each_foreign_element_once() {
    // A square grid of 20 x 20 points in strips of 5 lines: each strip needs a line of 20 points
    // from each neighbour.
    let csr = matrix::<f64>("stencil5:400");
    let a = prepared(&csr, 4, Split::EqualRows);
    let halos: Vec<usize> = a.parts().iter().map(|part| part.halo()).collect();
    assert_eq!(halos, [20, 40, 40, 20]);
    let neighbours: Vec<Vec<usize>> =
        a.parts().iter().map(|part| part.neighbours().collect()).collect();
    assert_eq!(neighbours, [vec![1], vec![0, 2], vec![1, 3], vec![2]]);
    assert_eq!(a.rows_of(1), (100..200).collect::<Vec<u32>>());
}

#[test]
fn rows_that_need_no_halo_have_an_operator_of_their_own() {
    let csr = matrix::<f64>("stencil5:400");
    let a = prepared_in(&csr, 4, Split::EqualRows, Mode::Overlap);
    let rows = |part: usize| -> Vec<_> {
        a.parts()[part].operators().map(|(rows, operator)| (rows, operator.nnz())).collect()
    };
    // Lines of 20 points: a first or last line of a part needs one of a neighbour.
    assert_eq!(rows(0), [(0..80, 372), (80..100, 98)]);
    assert_eq!(rows(1), [(0..20, 98), (20..80, 294), (80..100, 98)]);
    assert_eq!(rows(3), [(0..20, 98), (20..100, 372)]);
    assert_eq!(a.rows_of(1), (100..200).collect::<Vec<u32>>(), "slabs keep their order");

    // A line of points is cut in two: the rows beside the cut come last, and products stay the same.
    let owners: Vec<u32> = (0..400).map(|row| u32::from(row % 20 >= 10)).collect();
    let a = prepared_in(&csr, 2, Split::Owners(&owners), Mode::Overlap);
    let needs: Vec<usize> = a.parts()[0].operators().map(|(rows, _)| rows.len()).collect();
    assert_eq!(needs, [180, 20]);
    assert!(a.rows_of(0)[180..].iter().all(|row| row % 20 == 9), "column 9 needs column 10");
    check(&a, &csr);
    let host = prepared_in(&csr, 4, Split::EqualRows, Mode::Auto);
    assert!(host.parts().iter().all(|part| part.operators().len() == 1), "nothing overlaps here");
}

#[test]
fn few_cuts_need_fewer_foreign_elements_than_strips() {
    if !cfg!(feature = "metis") {
        return;
    }
    let csr = matrix::<f64>("stencil5:10000");
    let halo = |a: &ShardedOperator<f64>| a.parts().iter().map(|part| part.halo()).sum::<usize>();
    let strips = halo(&prepared(&csr, 16, Split::EqualRows));
    let cut = halo(&prepared(&csr, 16, Split::FewCuts));
    assert!(cut * 2 < strips, "{cut} and {strips}");
}

#[test]
fn a_solver_keeps_its_vectors_divided() {
    let csr = matrix::<f64>("stencil7:2000");
    let a = prepared(&csr, 3, Split::EqualNonzeros);
    let x = check::whole_numbers::<f64>(csr.ncols(), 1);
    let mut divided = a.scatter_x(&x).expect("it fits");
    let mut y = a.zeros_y();
    // The product of a product: y becomes x, and its halo is filled anew each time.
    for _ in 0..3 {
        a.apply_sharded(1.0, &mut divided, 0.0, &mut y).expect("it fits");
        std::mem::swap(&mut divided, &mut y);
    }
    let mut wanted = x.clone();
    for _ in 0..3 {
        let zeros = vec![0.0; csr.nrows()];
        let rows = check::reference(&csr, 1.0, &wanted, 0.0, &zeros);
        wanted = rows.iter().map(|row| row.value).collect();
    }
    let mut got = vec![0.0; csr.nrows()];
    a.gather_y(&divided, &mut got).expect("it fits");
    assert_eq!(got, wanted);
    let (dot, ones) = (divided.dot(&divided).expect("alike"), a.scatter_x(&x).expect("it fits"));
    assert_eq!(dot, wanted.iter().map(|v| v * v).sum::<f64>());
    assert_eq!(ones.dot(&ones).expect("alike"), x.iter().map(|v| v * v).sum::<f64>());
}

#[test]
fn values_are_replaced_and_other_patterns_are_refused() {
    let csr = matrix::<f64>("stencil7:1000");
    let tuners = Tuner::open_all(&["cpu"; 3]).expect("a host").with_mode(Mode::Overlap);
    let workload = Workload { values: ValuesUse::Change(5), ..Workload::default() };
    let owners: Vec<u32> = (0..csr.nrows() as u32).map(|row| row / 200 % 3).collect();
    let mut a = tuners.prepare_sharded(&csr, &workload, Split::Owners(&owners)).expect("it fits");
    let doubled = csr.map_values(|value| 2.0 * value);
    a.update(&doubled).expect("the pattern stays");
    check(&a, &doubled);
    let other = Csr::from_triplets(csr.nrows(), csr.ncols(), [(0, 0, 1.0)]).expect("in range");
    assert!(matches!(a.update(&other), Err(Error::PatternChanged { .. })));
    check(&a, &doubled);
}

#[test]
fn wrong_vectors_and_splits_say_what_to_do() {
    let csr = matrix::<f64>("stencil5:400");
    let a = prepared(&csr, 2, Split::EqualRows);
    let b = prepared(&csr, 3, Split::EqualRows);
    let (mut x, mut y) = (b.zeros_x(), a.zeros_y());
    let error = a.apply_sharded(1.0, &mut x, 0.0, &mut y).expect_err("three parts for two");
    assert_eq!(
        error.to_string(),
        "x is divided in another way than the matrix; make it by this operator's zeros_x or \
         scatter_x"
    );
    assert!(matches!(a.scatter_x(&[1.0]), Err(Error::Shape { got: 1, needed: 400, .. })));
    assert!(x.dot(&y).is_err());
    let none: [&str; 0] = [];
    assert!(Tuner::open_all(&none).expect_err("no device").to_string().contains("at least one"));
    let wide = Csr::<f64>::from_triplets(4, 9, [(0, 0, 1.0)]).expect("in range");
    let tuners = Tuner::open_all(&["cpu"; 2]).expect("a host");
    let error = tuners.prepare_sharded(&wide, &Workload::default(), Split::FewCuts);
    assert!(error.expect_err("not square").to_string().ends_with("by equal nonzeros instead"));
}
