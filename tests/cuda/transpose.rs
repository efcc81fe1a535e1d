//! Transposes that a GPU makes of matrices that it holds.

use std::sync::Arc;

use ellect::cuda::{DeviceCsr, Gpu};
use ellect::{Csr, Scalar, Tuner, Workload, generate};

use super::corpus;
use super::turns::gpu;

fn check<T: Scalar>(gpu: &Gpu, what: &str, csr: &Csr<T>) {
    let there = DeviceCsr::upload(gpu, csr).expect("memory suffices");
    let transpose = there.transpose(gpu).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(transpose.to_csr(gpu).expect("a valid matrix"), csr.transpose(), "{what}");
}

#[test]
fn transposes_on_the_gpu_are_those_of_the_host() {
    let Some(gpu) = gpu() else { return };
    let large = generate::by_name("power_law", 300_000, 1).expect("a class");
    let all = corpus::small().into_iter().chain(corpus::generated());
    for (name, csr) in all.chain([("power_law".to_string(), large)]) {
        check(&gpu, &name, &csr);
        check(&gpu, &name, &csr.cast::<f32>());
    }
}

#[test]
fn operators_of_transposes_are_prepared_on_the_gpu() {
    if gpu().is_none() {
        return;
    }
    let tuner = Tuner::open("cuda:0").expect("a GPU");
    let gpu = tuner.backend().gpu().expect("opened");
    let csr: Csr<f64> = generate::by_name("rmat", 20_000, 1).expect("a class");
    let there = Arc::new(DeviceCsr::upload(gpu, &csr).expect("memory suffices"));
    let workload = Workload { spmvs: 1000, ..Workload::default() };
    let operator = tuner.prepare_transposed_on_gpu(&there, &workload).expect("it applies");
    operator.verify(&csr.transpose(), 1).expect("right");

    // The transpose of an operator's matrix has the newest values.
    let mut operator = tuner.prepare_on_gpu(&there, &workload).expect("it applies");
    let newer = csr.map_values(|value| 2.0 * value + 1.0);
    operator.update_values(newer.values()).expect("as many");
    let placed = operator.on_device().expect("on the GPU");
    let (transpose, is_symmetric) = placed.transpose().expect("made").expect("it has the matrix");
    assert!(!is_symmetric);
    assert_eq!(transpose.to_csr(gpu).expect("valid"), newer.transpose());
}

#[test]
fn symmetric_matrices_are_recognised_on_the_gpu() {
    if gpu().is_none() {
        return;
    }
    let tuner = Tuner::open("cuda:0").expect("a GPU");
    let gpu = tuner.backend().gpu().expect("opened");
    let symmetric: Csr<f64> = generate::by_name("stencil7", 30_000, 1).expect("a class");
    let symmetric = symmetric.map_values(|_| 1.5);
    assert_eq!(symmetric.transpose(), symmetric);
    let mut other = symmetric.clone();
    other.values_mut()[1] = 2.0;
    for (csr, expected) in [(&symmetric, true), (&other, false)] {
        let there = Arc::new(DeviceCsr::upload(gpu, csr).expect("memory suffices"));
        let operator = tuner.prepare_on_gpu(&there, &Workload::default()).expect("it applies");
        let placed = operator.on_device().expect("on the GPU");
        let (_, is_symmetric) = placed.transpose().expect("made").expect("it has the matrix");
        assert_eq!(is_symmetric, expected);
    }
}
