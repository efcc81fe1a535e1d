//! Products with several vectors on a GPU.

use std::sync::Arc;

use ellect::analysis::Analysis;
use ellect::cuda::{DeviceCsr, DeviceDense, DeviceDenseMut, Gpu, GpuOperator};
use ellect::dense::{DenseMut, DenseRef, Order};
use ellect::format::{Candidate, Role};
use ellect::generate::Spec;
use ellect::{Csr, Error, Scalar, Tuner, Workload, check};

use super::{device_for, gpu, original, wanted};

/// Rows next to each other and far apart, none and long ones, more columns than rows, diagonals, and
/// blocks of each size; the last of them have an odd number of rows.
const MATRICES: [&str; 10] = [
    "elasticity:900",
    "stencil7:1331",
    "heat:3000",
    "circuit:2500",
    "rmat:1500",
    "linear_program:700",
    "blocks4:700",
    "blocks5:700",
    "blocks6:700",
    "pose_graph:999",
];

/// Numbers of vectors around the widths of the kernels.
const COUNTS: [usize; 7] = [1, 2, 3, 4, 7, 8, 21];

/// Exact results of a product with several vectors: of alpha = 2 and each beta of [`BETAS`].
struct Wanted<T> {
    x: Vec<Vec<T>>,
    y: Vec<Vec<T>>,
    results: [Vec<Vec<T>>; 2],
}

const BETAS: [f64; 2] = [0.0, -1.0];

impl<T: Scalar> Wanted<T> {
    fn of(csr: &Csr<T>) -> Self {
        let most = COUNTS[COUNTS.len() - 1];
        let whole = |n: usize, from: usize| -> Vec<Vec<T>> {
            (0..most).map(|v| check::whole_numbers::<T>(n, (from + v) as u64)).collect()
        };
        let (x, y) = (whole(csr.ncols(), 1), whole(csr.nrows(), 100));
        let results = BETAS.map(|beta| {
            let product = |(x, y): (&Vec<T>, &Vec<T>)| {
                let (two, beta) = (T::from_f64(2.0), T::from_f64(beta));
                let rows = check::reference(csr, two, x, beta, y);
                rows.iter().map(|row| T::from_f64(row.value)).collect()
            };
            x.iter().zip(&y).map(product).collect()
        });
        Wanted { x, y, results }
    }
}

/// Writes vectors as a dense matrix of a leading dimension that is `gap` too large, with `filler` in
/// between and after it; returns it with the leading dimension.
fn dense<T: Scalar>(vectors: &[Vec<T>], order: Order, gap: usize, filler: T) -> (Vec<T>, usize) {
    let n = vectors.first().map_or(0, Vec::len);
    let (lines, line) = match order {
        Order::ColumnMajor => (vectors.len(), n),
        Order::RowMajor => (n, vectors.len()),
    };
    let leading = line + gap;
    let mut data = vec![filler; lines * leading + 3];
    for (v, vector) in vectors.iter().enumerate() {
        for (r, &value) in vector.iter().enumerate() {
            let at = match order {
                Order::ColumnMajor => v * leading + r,
                Order::RowMajor => r * leading + v,
            };
            data[at] = value;
        }
    }
    (data, leading)
}

/// Compares products of all counts, orders and gaps with the exact results.
fn check_products<T: Scalar>(what: &str, a: &GpuOperator<T>, want: &Wanted<T>) {
    let (counts, gaps): (&[usize], &[usize]) =
        if once() { (&[7, 8], &[1]) } else { (&COUNTS, &[0, 1, 4]) };
    let shapes = |&count: &usize| {
        Order::ALL.into_iter().flat_map(move |x| {
            Order::ALL
                .into_iter()
                .flat_map(move |y| gaps.iter().map(move |&gap| (count, x, y, gap)))
        })
    };
    for (count, x_order, y_order, gap) in counts.iter().flat_map(shapes) {
        let (x, x_leading) = dense(&want.x[..count], x_order, gap, T::from_f64(f64::NAN));
        let x = a.gpu().vector(&x).expect("memory suffices");
        for (beta, results) in BETAS.into_iter().zip(&want.results) {
            let nothing: Vec<Vec<T>> =
                want.y[..count].iter().map(|y| vec![T::from_f64(f64::NAN); y.len()]).collect();
            let before = if beta == 0.0 { &nothing[..] } else { &want.y[..count] };
            let (y, y_leading) = dense(before, y_order, gap, T::from_f64(77.0));
            let mut on_gpu = a.gpu().vector(&y).expect("memory suffices");
            let [nrows, ncols] = [want.y[0].len(), want.x[0].len()];
            a.apply_many(
                T::from_f64(2.0),
                DeviceDense::new(x_order, [ncols, count], x_leading, &x).expect("it fits"),
                T::from_f64(beta),
                DeviceDenseMut::new(y_order, [nrows, count], y_leading, &mut on_gpu)
                    .expect("it fits"),
            )
            .unwrap_or_else(|error| panic!("{what}: {error}"));
            let mut got = vec![T::ZERO; y.len()];
            on_gpu.read(&mut got).unwrap_or_else(|error| panic!("{what}: {error}"));
            let (wanted, _) = dense(&results[..count], y_order, gap, T::from_f64(77.0));
            let wrong = got.iter().zip(&wanted).position(|(got, wanted)| got != wanted);
            assert_eq!(
                wrong, None,
                "{what}: {count} vectors, x {x_order}, y {y_order}, gap {gap}, beta {beta}"
            );
        }
    }
}

/// Tells whether each candidate runs only once, for tools that check every memory access.
pub fn once() -> bool {
    std::env::var("ELLECT_TEST_ONCE").is_ok_and(|once| once == "1")
}

fn made(spec: &str) -> Csr<f64> {
    spec.parse::<Spec>().expect("a class and rows").make()
}

/// Rows of `short` entries and two dense ones, which kernels of compressed sparse rows cut into pieces.
fn with_dense_rows(nrows: usize, short: usize) -> Csr<f64> {
    let ncols = 5000;
    let length = |i: usize| if i == 7 || i == nrows - 1 { ncols } else { short };
    let entries = (0..nrows).flat_map(|i| {
        (0..length(i)).map(move |k| (i, (i + 7 * k) % ncols, ((i + k) % 7 + 1) as f64))
    });
    Csr::from_triplets(nrows, ncols, entries).expect("in range")
}

/// Converts a matrix that is on the GPU, too; `None` if the candidate refuses it.
pub fn converted<T: Scalar>(
    gpu: &Arc<Gpu>,
    there: &Arc<DeviceCsr<T>>,
    (csr, analysis): (&Csr<T>, &Analysis<'_>),
    candidate: &Candidate,
    what: &str,
) -> Option<GpuOperator<T>> {
    let device = device_for(gpu, candidate, csr, analysis);
    let target = original::<T>(&device);
    candidate.work(analysis, &target).ok()?;
    match GpuOperator::new(gpu, there, csr.into(), analysis, candidate, &target) {
        Ok(a) => Some(a),
        Err(Error::Refused { .. }) => None,
        Err(error) => panic!("{what}: {error}"),
    }
}

/// Compares products with vectors that are not finite with the reference: fill may not turn a result
/// into NaN.
fn check_not_finite<T: Scalar>(what: &str, a: &GpuOperator<T>, csr: &Csr<T>) {
    let bad = [0.5, f64::INFINITY, f64::NAN, 1.0, f64::NEG_INFINITY];
    let bad_vector = |(v, &bad): (usize, &f64)| {
        let mut x = check::vector::<T>(csr.ncols(), v as u64);
        x.iter_mut().step_by(5 + v).for_each(|x| *x = T::from_f64(bad));
        x
    };
    let xs: Vec<Vec<T>> = bad.iter().enumerate().map(bad_vector).collect();
    let none = vec![T::from_f64(f64::NAN); csr.nrows()];
    for order in Order::ALL {
        let (x, leading) = dense(&xs, order, 0, T::ZERO);
        let (y, y_leading) = dense(&vec![none.clone(); xs.len()], Order::ColumnMajor, 0, T::ZERO);
        let x = a.gpu().vector(&x).expect("memory suffices");
        let mut on_gpu = a.gpu().vector(&y).expect("memory suffices");
        let shape = [csr.ncols(), xs.len()];
        let x = DeviceDense::new(order, shape, leading, &x).expect("it fits");
        let shape = [csr.nrows(), xs.len()];
        let y_there = DeviceDenseMut::new(Order::ColumnMajor, shape, y_leading, &mut on_gpu);
        a.apply_many(T::ONE, x, T::ZERO, y_there.expect("it fits")).expect("shapes agree");
        let mut got = vec![T::ZERO; y.len()];
        on_gpu.read(&mut got).unwrap_or_else(|error| panic!("{what}: {error}"));
        for (x, got) in xs.iter().zip(got.chunks(csr.nrows())) {
            let reference = check::reference(csr, T::ONE, x, T::ZERO, &none);
            check::compare(what, &reference, got)
                .unwrap_or_else(|error| panic!("not finite x, {order}: {error}"));
        }
    }
}

fn check_candidates<T: Scalar>(
    gpu: &Arc<Gpu>,
    (spec, csr): (&str, Csr<f64>),
    all: &[Candidate],
) -> usize {
    let csr = csr.map_values(|value| (value * 3.0).round() % 8.0).cast::<T>();
    let analysis = Analysis::of(&csr);
    let there = Arc::new(DeviceCsr::upload(gpu, &csr).expect("memory suffices"));
    let want = Wanted::of(&csr);
    let doubled = csr.map_values(|value| value + value);
    let want_doubled = Wanted::of(&doubled);
    let mut checked = 0;
    for candidate in all {
        let what = format!("{candidate} on {spec}, {}", T::PRECISION);
        let made = converted(gpu, &there, (&csr, &analysis), candidate, &what);
        let Some(mut a) = made else { continue };
        check_products(&what, &a, &want);
        // cuSPARSE's products of several vectors spread NaN to rows without such an entry.
        if candidate.format.role != Role::Vendor {
            check_not_finite(&what, &a, &csr);
        }
        a.ready_many(8).unwrap_or_else(|error| panic!("{what}: {error}"));
        check_products(&format!("{what}, made ready"), &a, &want);
        let values = gpu.vector(doubled.values()).expect("memory suffices");
        a.update_values(&values).unwrap_or_else(|error| panic!("{what}: {error}"));
        check_products(&format!("{what}, updated"), &a, &want_doubled);
        checked += 1;
    }
    checked
}

#[test]
fn several_vectors_are_multiplied_right_by_every_format() {
    let Some(gpu) = gpu() else { return };
    // All variants of formats with kernels for several vectors, and one of each other format.
    let mut all = wanted();
    let mut seen = std::collections::BTreeSet::new();
    all.retain(|candidate| {
        let first = seen.insert(candidate.format.name);
        candidate.format.vectors_at_once_on_gpu(&candidate.params) > 1 || first
    });
    // Hosts take longer than the GPU, so each matrix has a thread.
    let matrices = &MATRICES[..if once() { 2 } else { MATRICES.len() }];
    let check = |spec: &str| {
        check_candidates::<f64>(&gpu, (spec, made(spec)), &all)
            + check_candidates::<f32>(&gpu, (spec, made(spec)), &all)
    };
    let mut checked: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = matrices.iter().map(|spec| scope.spawn(|| check(spec))).collect();
        threads.into_iter().map(|thread| thread.join().expect("products are right")).sum()
    });
    // With few lanes for each row, and with many; one vector is multiplied by tiles of the last matrix.
    all.retain(|candidate| candidate.format.name == "csr");
    for (nrows, short) in [(600, 3), (600, 200), (7_000, 300)] {
        let name = format!("dense rows among {nrows} rows of {short} entries");
        checked += check_candidates::<f64>(&gpu, (&name, with_dense_rows(nrows, short)), &all);
        checked += check_candidates::<f32>(&gpu, (&name, with_dense_rows(nrows, short)), &all);
    }
    assert!(checked > 10, "{checked}");
    println!("{checked} operators");
    let vendor = all.iter().filter(|candidate| candidate.format.role == Role::Vendor).count();
    assert!(vendor <= 1);
}

#[test]
fn operators_multiply_several_vectors_of_the_host_and_refuse_wrong_shapes() {
    let Some(_) = gpu() else { return };
    let csr: Csr<f64> = "heat:9000".parse::<Spec>().expect("a class and rows").make();
    let csr = csr.map_values(|value| (value * 3.0).round() % 8.0);
    let data = std::env::temp_dir().join(format!("ellect-several-{}", std::process::id()));
    let tuner = Tuner::open_in("cuda:0", &data).expect("there is a GPU");
    let operator = tuner.prepare(&csr, &Workload::default()).expect("something applies");
    let want = Wanted::of(&csr);
    for order in Order::ALL {
        let (x, x_leading) = dense(&want.x[..5], order, 2, 0.0);
        let (mut y, y_leading) = dense(&want.y[..5], order, 1, 77.0);
        let shape = [csr.nrows(), 5];
        operator
            .apply_many(
                2.0,
                DenseRef::new(order, shape, x_leading, &x).expect("it fits"),
                -1.0,
                DenseMut::new(order, shape, y_leading, &mut y).expect("it fits"),
            )
            .expect("shapes agree");
        assert_eq!(y, dense(&want.results[1][..5], order, 1, 77.0).0);
    }

    let a = operator.on_device().expect("prepared on a GPU");
    let (x, mut y) = (a.gpu().zeros(4 * csr.ncols()), a.gpu().zeros(4 * csr.nrows()));
    let (x, y) = (x.expect("memory suffices"), y.as_mut().expect("memory suffices"));
    let order = Order::ColumnMajor;
    let mut error = |[rows, columns]: [usize; 2], of_y: [usize; 2]| {
        let x = DeviceDense::new(order, [rows, columns], rows, &x).expect("it fits");
        let y = DeviceDenseMut::new(order, of_y, of_y[0], &mut *y).expect("it fits");
        a.apply_many(1.0, x, 0.0, y).expect_err("it does not fit").to_string()
    };
    let n = csr.nrows();
    assert!(error([n - 1, 2], [n, 2]).contains("a column of x"));
    assert!(error([n, 2], [n - 1, 2]).contains("a column of y"));
    assert!(error([n, 2], [n, 3]).contains("2 columns and y has 3"));
    let error = DeviceDense::new(order, [n, 5], n, &x).expect_err("the vector is too short");
    assert!(error.to_string().contains("the slice has"), "{error}");
    assert!(a.ready_many(0).is_err());
}
