//! Matrices divided among GPUs whose vectors stay there: products are those of the whole matrix, for
//! vectors that change between products too. No other test uses the GPUs meanwhile: a driver's call that
//! waits for a whole GPU would keep one part from being queued, for which the other waits. With one GPU,
//! its two parts have a stream each.

use std::sync::{Arc, RwLockWriteGuard};

use ellect::cuda::Gpu;
use ellect::generate::Spec;
use ellect::measure::Backend;
use ellect::sharded::{Mode, OnGpus, Split, Tuners};
use ellect::{Csr, Error, Scalar, Tuner, Workload, check};

use super::{alone, gpu};

/// Products of a captured product, each with another x.
const REPLAYS: u32 = 10_000;

/// A tuner for each GPU, or two of the only one, which no other test uses until the guard is dropped;
/// `None` without a GPU.
pub fn tuners() -> Option<(Tuners, RwLockWriteGuard<'static, ()>)> {
    gpu()?;
    let gpus = (0..4).take_while(|&index| Gpu::open(index).is_ok()).count();
    let turn = alone();
    let names = if gpus == 1 { vec![0, 0] } else { (0..gpus).collect() };
    println!("parts on {names:?} of {gpus} GPUs");
    let data = std::env::temp_dir().join(format!("ellect-sharded-{}", std::process::id()));
    let open = |index| {
        let backend = Backend::open(&format!("cuda:{index}"), &data).expect("there is a GPU");
        let tuner = Tuner::without_models(backend).with_models(&data);
        Arc::new(tuner.expect("shipped models are sound"))
    };
    let tuners = Tuners::of(names.into_iter().map(open).collect()).expect("two or more");
    Some((tuners, turn))
}

pub fn matrix<T: Scalar>(spec: &str) -> Csr<T> {
    let csr: Csr<f64> = spec.parse::<Spec>().expect("a class and rows").make();
    // Products of small whole numbers are exact in any order of the sums.
    csr.map_values(|value| T::from_f64((value * 5.0).round() % 8.0 + 1.0))
}

pub fn exact<T: Scalar>(csr: &Csr<T>, alpha: T, x: &[T], beta: T, y: &[T]) -> Vec<T> {
    let rows = check::reference(csr, alpha, x, beta, y);
    rows.iter().map(|row| T::from_f64(row.value)).collect()
}

fn products<T: Scalar>(tuners: &Tuners, csr: &Csr<T>, split: Split<'_>) {
    let workload = Workload { spmvs: 1_000_000, ..Workload::default() };
    let a = tuners.prepare_sharded(csr, &workload, split).expect("it applies");
    let on_gpus = a.on_gpus().expect("GPUs reach each other");
    let x = check::whole_numbers::<T>(csr.ncols(), 3);
    let before = check::whole_numbers::<T>(csr.nrows(), 4);
    let (alpha, beta) = (T::from_f64(2.0), T::from_f64(-3.0));
    let wanted = exact(csr, alpha, &x, beta, &before);
    let there = on_gpus.scatter_x(&x).expect("memory suffices");
    let mut got = vec![T::ZERO; csr.nrows()];
    // Many products in a row, so that GPUs run ahead of each other.
    for round in 0..50 {
        let mut y = on_gpus.scatter_y(&before).expect("memory suffices");
        for _ in 0..round {
            on_gpus.apply(T::ONE, &there, T::ZERO, &mut y).expect("it fits");
        }
        let mut y = on_gpus.scatter_y(&before).expect("memory suffices");
        on_gpus.apply(alpha, &there, beta, &mut y).expect("it fits");
        on_gpus.gather_y(&y, &mut got).expect("it fits");
        assert!(got == wanted, "{split:?}, round {round}");
    }
    let mut back = vec![T::ZERO; csr.ncols()];
    on_gpus.gather_x(&there, &mut back).expect("it fits");
    assert_eq!(back, x, "x is unchanged");
    let squares = x.iter().fold(0.0, |sum, x| sum + x.to_f64() * x.to_f64());
    assert_eq!(on_gpus.dot(&there, &there).expect("they fit").to_f64(), squares);
}

#[test]
fn products_of_matrices_divided_among_gpus_are_right() {
    let Some((tuners, _turn)) = tuners() else { return };
    let overlapping = tuners.clone().with_mode(Mode::Overlap);
    for spec in ["stencil7:50000", "elasticity:30000", "power_law:20000", "circuit:20000", "heat:3"]
    {
        for split in [Split::EqualRows, Split::EqualNonzeros, Split::FewCuts] {
            products::<f64>(&tuners, &matrix(spec), split);
            products::<f64>(&overlapping, &matrix(spec), split);
        }
        products::<f32>(&tuners, &matrix(spec), Split::EqualNonzeros);
    }
    // One row and one column of each part are dense; and there is no entry at all.
    let dense = (0..400).flat_map(|k| [(k, 0, 1.0), (0, k, 2.0), (k, 399, 3.0), (399, k, 4.0)]);
    let dense = Csr::from_triplets(400, 400, dense).expect("in range");
    products::<f64>(&tuners, &dense, Split::EqualRows);
    products::<f64>(&overlapping, &dense, Split::EqualRows);
    let wide = Csr::from_triplets(30, 900, (0..900).map(|j| (j % 30, j, 1.0))).expect("in range");
    products::<f64>(&tuners, &wide, Split::EqualRows);
    let none = Csr::from_triplets(7, 7, std::iter::empty::<(usize, usize, f64)>());
    products::<f64>(&tuners, &none.expect("in range"), Split::EqualRows);
}

/// Adds 1 to each element of x before each product.
fn replayed(on_gpus: &OnGpus<'_, f64>, csr: &Csr<f64>, gpus: &[Arc<Gpu>]) {
    let (n, ones) = (csr.nrows(), vec![1.0; csr.ncols()]);
    let one = on_gpus.scatter_x(&ones).expect("memory suffices");
    let step = exact(csr, 1.0, &ones, 0.0, &vec![0.0; n]);
    let x = on_gpus.zeros_x().expect("memory suffices");
    let y = on_gpus.zeros_y().expect("memory suffices");
    let mut product = on_gpus.capture(1.0, x, 0.0, y).expect("it can be captured");
    for replay in 1..=REPLAYS {
        for (part, gpu) in gpus.iter().enumerate() {
            let one = one.own(part).expect("a part");
            let x = product.x_mut(part).expect("a part");
            gpu.axpby(1.0, one, 1.0, x).expect("it fits");
        }
        product.launch().expect("it was captured");
        if replay.wrapping_mul(2_654_435_761) % 500 == 0 || replay == REPLAYS {
            for part in 0..gpus.len() {
                let y = product.y_mut(part).expect("a part");
                let mut got = vec![0.0; y.len()];
                y.as_slice().read(&mut got).expect("it ran");
                let wanted = step.iter().map(|row| row * f64::from(replay));
                let first = (0..part).map(|p| one.own(p).map_or(0, |own| own.len())).sum();
                assert!(got.iter().copied().eq(wanted.skip(first).take(got.len())), "{replay}");
            }
        }
    }
    let y = product.into_y().expect("it ran");
    let mut got = vec![0.0; n];
    on_gpus.gather_y(&y, &mut got).expect("it fits");
    assert!(got.iter().zip(&step).all(|(got, row)| *got == row * f64::from(REPLAYS)));
}

/// Compares products of a mode that are queued, captured, and captured with filled halos.
fn products_in(tuners: &Tuners, mode: Mode, csr: &Csr<f64>) {
    let workload = Workload { spmvs: 1_000_000, ..Workload::default() };
    let tuners = tuners.clone().with_mode(mode);
    let split = mode.split().unwrap_or(Split::EqualNonzeros);
    products::<f64>(&tuners, csr, split);
    let a = tuners.prepare_sharded(csr, &workload, split).expect("it applies");
    assert!(a.choice().mode == mode && a.choice().expected().is_some(), "{}", a.choice().why);
    let on_gpus = a.on_gpus().expect("GPUs reach each other");
    let x = check::whole_numbers::<f64>(csr.ncols(), 8);
    let before = check::whole_numbers::<f64>(csr.nrows(), 9);
    let mut got = vec![0.0; csr.nrows()];
    // y = A x + y, 100 times.
    let there = || on_gpus.scatter_x(&x).expect("memory suffices");
    let y = on_gpus.scatter_y(&before).expect("memory suffices");
    let product = on_gpus.capture(1.0, there(), 1.0, y).expect("it can be captured");
    (0..100).try_for_each(|_| product.launch()).expect("it was captured");
    on_gpus.gather_y(&product.into_y().expect("it ran"), &mut got).expect("it fits");
    assert!(got == exact(csr, 100.0, &x, 1.0, &before), "{mode} as a graph");

    let (filled, mut y) = (there(), on_gpus.zeros_y().expect("memory suffices"));
    on_gpus.apply(1.0, &filled, 0.0, &mut y).expect("it fits");
    let y = on_gpus.scatter_y(&before).expect("memory suffices");
    let product = on_gpus.capture_filled(2.0, filled, -3.0, y).expect("it can be captured");
    product.launch().expect("it was captured");
    on_gpus.gather_y(&product.into_y().expect("it ran"), &mut got).expect("it fits");
    assert!(got == exact(csr, 2.0, &x, -3.0, &before), "{mode} with filled halos");
}

#[test]
fn modes_of_the_papers_multiply_on_gpus() {
    let Some((tuners, _turn)) = tuners() else { return };
    for spec in ["stencil7:50000", "elasticity:30000", "power_law:20000", "heat:3"] {
        for mode in [Mode::Naive, Mode::Task, Mode::PcsrI, Mode::PcsrII] {
            products_in(&tuners, mode, &matrix(spec));
        }
    }
}

#[test]
fn captured_products_of_divided_matrices_see_x_change() {
    let Some((tuners, _turn)) = tuners() else { return };
    let csr = matrix::<f64>("stencil7:30000");
    let workload = Workload { spmvs: 1_000_000, ..Workload::default() };
    for mode in [Mode::Vector, Mode::Overlap, Mode::Naive, Mode::Task, Mode::PcsrI] {
        let tuners = tuners.clone().with_mode(mode);
        let a = tuners.prepare_sharded(&csr, &workload, Split::EqualRows).expect("it applies");
        let on_gpus = a.on_gpus().expect("GPUs reach each other");
        replayed(&on_gpus, &csr, &on_gpus.gpus().cloned().collect::<Vec<_>>());
    }
}

#[test]
fn parts_that_cannot_exchange_are_refused() {
    if gpu().is_none() {
        return;
    }
    let csr = matrix::<f64>("stencil7:1000");
    let refused = |names: &[&str]| {
        let tuners = Tuner::open_all(names).expect("they are there");
        let a = tuners.prepare_sharded(&csr, &Workload::default(), Split::EqualRows);
        a.expect("it applies").on_gpus().map(|_| ()).expect_err("they cannot")
    };
    let twice = refused(&["cuda:0", "cuda:0"]);
    assert!(matches!(&twice, Error::Argument(_)), "{twice}");
    assert!(twice.to_string().contains("name each GPU once"), "{twice}");
    let host = refused(&["cuda:0", "cpu"]);
    assert!(host.to_string().contains("part 1 is on a host"), "{host}");
}
