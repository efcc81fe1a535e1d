//! Matrices whose rows GPUs hold: their parts have the halos that the host finds, and their products are
//! those of the whole matrix.

use std::sync::Arc;

use ellect::cuda::{DeviceCsr, DeviceSlice, Gpu};
use ellect::sharded::{Mode, ShardedOperator, Split, Tuners};
use ellect::{Csr, Error, Scalar, Tuner, Workload, check};

use super::sharded::{exact, matrix, tuners};
use super::{alone, gpu};

fn workload() -> Workload {
    Workload { spmvs: 1_000_000, ..Workload::default() }
}

/// The matrix on the GPU of the first part.
fn uploaded<T: Scalar>(csr: &Csr<T>) -> (Gpu, DeviceCsr<T>) {
    let gpu = Gpu::open(0).expect("there is a GPU");
    let there = DeviceCsr::upload(&gpu, csr).expect("memory suffices");
    (gpu, there)
}

/// Compares y = 2 A x - 3 y of vectors in host memory.
fn multiplied<T: Scalar>(a: &ShardedOperator<T>, csr: &Csr<T>, what: &str) {
    let x = check::whole_numbers::<T>(csr.ncols(), 3);
    let mut y = check::whole_numbers::<T>(csr.nrows(), 4);
    let (alpha, beta) = (T::from_f64(2.0), T::from_f64(-3.0));
    let wanted = exact(csr, alpha, &x, beta, &y);
    a.apply(alpha, &x, beta, &mut y).expect("it fits");
    assert!(y == wanted, "{what}");
}

/// Prepares a matrix from a GPU and from the host, and compares halos and products.
fn prepared<T: Scalar>(tuners: &Tuners, csr: &Csr<T>, split: Split<'_>, what: &str) {
    let (gpu, there) = uploaded(csr);
    let mut a =
        tuners.prepare_sharded_on_gpu(&gpu, &there, &workload(), split).expect("it applies");
    let wanted = tuners.prepare_sharded(csr, &workload(), split).expect("it applies");
    for (part, (own, of_host)) in a.parts().iter().zip(wanted.parts()).enumerate() {
        let what = format!("part {part} of {what}");
        assert_eq!([own.rows(), own.nnz()], [of_host.rows(), of_host.nnz()], "{what}");
        assert_eq!(own.halo(), of_host.halo(), "{what}");
        assert!(own.neighbours().eq(of_host.neighbours()), "{what}");
        assert!(a.rows_of(part).windows(2).all(|rows| rows[1] == rows[0] + 1), "{what}");
    }
    multiplied(&a, csr, what);

    let changed = csr.map_values(|value| value + T::ONE);
    let vectors: Vec<_> = (0..a.parts().len())
        .map(|part| {
            let rows = a.rows_of(part);
            let values = rows.iter().flat_map(|&row| changed.row(row as usize).1.iter().copied());
            values.collect::<Vec<T>>()
        })
        .collect();
    let parts = a.parts().iter().zip(&vectors).map(|(part, values)| {
        let (_, operator) = part.operators().next().expect("a part has an operator");
        let gpu = Arc::clone(operator.on_device().expect("it is on a GPU").gpu());
        let there = gpu.vector(values).expect("memory suffices");
        (gpu, there)
    });
    let parts: Vec<_> = parts.collect();
    let slices: Vec<DeviceSlice<'_, T>> = parts.iter().map(|(_, there)| there.into()).collect();
    a.update_values_on_gpus(&slices).expect("as many values");
    multiplied(&a, &changed, &format!("{what}, new values"));
    a.update(csr).expect("the pattern is the same");
    multiplied(&a, csr, &format!("{what}, old values"));
}

/// Matrices with regular rows, with halos of nearly everything, with a dense row and a dense column, with
/// empty parts, with more columns than rows, and without entries.
fn matrices() -> Vec<(&'static str, Csr<f64>)> {
    let mut all: Vec<(&str, Csr<f64>)> =
        ["stencil7:30000", "elasticity:6000", "power_law:9000", "circuit:9000", "heat:3"]
            .map(|spec| (spec, matrix(spec)))
            .into();
    let dense = (0..400).flat_map(|k| [(k, 0, 1.0), (0, k, 2.0), (k, 399, 3.0), (399, k, 4.0)]);
    all.push(("dense rows", Csr::from_triplets(400, 400, dense).expect("in range")));
    let below = (0..300).map(|k| (299, k, 1.0 + (k % 3) as f64));
    all.push(("empty parts", Csr::from_triplets(300, 300, below).expect("in range")));
    let wide = (0..900).map(|j| (j % 30, j, 1.0));
    all.push(("a wide one", Csr::from_triplets(30, 900, wide).expect("in range")));
    let none = std::iter::empty::<(usize, usize, f64)>();
    all.push(("no entry", Csr::from_triplets(7, 7, none).expect("in range")));
    all
}

#[test]
fn rows_on_one_gpu_are_divided_as_on_the_host() {
    if gpu().is_none() {
        return;
    }
    let _turn = alone();
    for parts in [1, 2, 3, 7] {
        let of_gpu = Tuner::open_all(&vec!["cuda:0"; parts]).expect("there is a GPU");
        for mode in [Mode::Auto, Mode::Overlap, Mode::Vector, Mode::PcsrI, Mode::PcsrII] {
            let of_gpu = of_gpu.clone().with_mode(mode);
            for (name, csr) in matrices() {
                let split = mode.split().unwrap_or(Split::EqualNonzeros);
                prepared(&of_gpu, &csr, split, &format!("{name} in {parts} parts, {mode}"));
            }
        }
        prepared(&of_gpu, &matrix::<f32>("heat:3000"), Split::EqualRows, "heat in f32");
    }
}

#[test]
fn rows_on_several_gpus_multiply_there() {
    let Some((tuners, _turn)) = tuners() else { return };
    for mode in [Mode::Auto, Mode::Overlap, Mode::Vector, Mode::PcsrII] {
        let tuners = tuners.clone().with_mode(mode);
        for (name, csr) in matrices() {
            let (gpu, there) = uploaded(&csr);
            let split = mode.split().unwrap_or(Split::EqualNonzeros);
            let a = tuners.prepare_sharded_on_gpu(&gpu, &there, &workload(), split);
            let a = a.expect("it applies");
            drop(there);
            let gpus = a.on_gpus().expect("GPUs reach each other");
            let x = check::whole_numbers::<f64>(csr.ncols(), 3);
            let wanted = exact(&csr, 2.0, &x, 0.0, &vec![0.0; csr.nrows()]);
            let x = gpus.scatter_x(&x).expect("memory suffices");
            let mut y = gpus.zeros_y().expect("memory suffices");
            for _ in 0..20 {
                gpus.apply(2.0, &x, 0.0, &mut y).expect("it fits");
            }
            let mut got = vec![0.0; csr.nrows()];
            gpus.gather_y(&y, &mut got).expect("it fits");
            assert!(got == wanted, "{name}, {mode}");
        }
    }
}

#[test]
fn rows_that_do_not_suit_are_refused() {
    if gpu().is_none() {
        return;
    }
    let _turn = alone();
    let csr = matrix::<f64>("stencil7:1000");
    let (gpu, there) = uploaded(&csr);
    let two = Tuner::open_all(&["cuda:0", "cuda:0"]).expect("there is a GPU");
    let error = |result: ellect::Result<ShardedOperator<f64>>| match result {
        Err(error @ Error::Argument(_)) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let cuts = error(two.prepare_sharded_on_gpu(&gpu, &there, &workload(), Split::FewCuts));
    assert!(cuts.starts_with("Split::FewCuts needs the matrix on the host"), "{cuts}");
    let naive = two.clone().with_mode(Mode::Naive);
    let naive = error(naive.prepare_sharded_on_gpu(&gpu, &there, &workload(), Split::EqualRows));
    assert!(naive.contains("call prepare_sharded, or choose another mode"), "{naive}");
    let half = Arc::new(there.copy_rows(&gpu, 0..500, &gpu).expect("it has these rows"));
    let one = error(two.prepare_rows_on_gpus(&[Arc::clone(&half)], &workload()));
    assert!(one.starts_with("the rows of 1 parts were given for 2 devices"), "{one}");
    let narrow = Csr::from_triplets(2, 3, [(0, 0, 1.0)]).expect("in range");
    let narrow = Arc::new(DeviceCsr::upload(&gpu, &narrow).expect("memory suffices"));
    let other = error(two.prepare_rows_on_gpus(&[half, narrow], &workload()));
    assert!(other.contains("the rows of part 1 have 3 columns, those of part 0 have"), "{other}");
    let beyond = there.copy_rows(&gpu, 0..csr.nrows() + 1, &gpu).map(|_| ());
    assert!(matches!(beyond, Err(Error::Argument(_))), "{beyond:?}");

    let mut of_host = two.prepare_sharded(&csr, &workload(), Split::EqualRows).expect("it applies");
    let values = of_host.update_values_on_gpus(&[]).expect_err("the host divided it");
    assert!(values.to_string().contains("call update"), "{values}");
    let mut of_gpu = two
        .prepare_sharded_on_gpu(&gpu, &there, &workload(), Split::EqualRows)
        .expect("it applies");
    let few = of_gpu.update_values_on_gpus(&[]).expect_err("two parts");
    assert!(few.to_string().contains("0 vectors were given for 2 parts"), "{few}");
}
