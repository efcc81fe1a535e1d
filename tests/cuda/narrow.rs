//! Values in fewer bits than vectors on a GPU: exact where the type holds them, rounded by consent.

use std::sync::Arc;

use ellect::analysis::Analysis;
use ellect::cuda::{DeviceCsr, Gpu};
use ellect::device::Kind;
use ellect::format::{StoredValues, candidates};
use ellect::{Csr, Error, PreparedOperator, Scalar, Tuner, Workload, generate};

use super::turns::gpu;

#[test]
fn rounded_values_multiply_within_their_bound_and_are_updated_there() {
    let Some(gpu) = gpu() else { return };
    check_rounded::<f64>(&gpu, StoredValues::F32, f64::MAX);
    check_rounded::<f32>(&gpu, StoredValues::F16, f32::MAX);
    check_rounded::<f32>(&gpu, StoredValues::BF16, f32::MAX);
}

/// Checks the candidates that store the values of a matrix of `T` in this type, which cannot hold values
/// of the size `beyond`.
fn check_rounded<T: Scalar>(gpu: &Arc<Gpu>, stores: StoredValues, beyond: T) {
    let mut all = candidates(Kind::Gpu);
    all.retain(|candidate| candidate.format.narrows.is_some());
    all.retain(|candidate| candidate.format.stores == stores);
    assert!(all.len() > 1);
    for nrows in [600, 60_000] {
        let csr: Csr<f64> = generate::by_name("elasticity", nrows, 1).expect("a class");
        let csr = csr.map_values(|value| value.abs() * 1.1 + 0.1).cast::<T>();
        let scaled = csr.map_values(|value| T::from_f64(0.3 * value.to_f64()));
        let analysis = Analysis::of(&csr);
        let there = Arc::new(DeviceCsr::upload(gpu, &csr).expect("memory suffices"));
        let target =
            |stored| Workload { stored, ..Workload::default() }.target(gpu.profile(), T::PRECISION);
        let [exact, allowed] = [StoredValues::Exact, stores].map(target);
        for candidate in &all {
            let Err(refused) = gpu.convert(&there, candidate, &exact) else {
                panic!("{candidate} holds values that are no {stores}")
            };
            assert!(refused.to_string().contains("row 0 has a value"), "{candidate}: {refused}");
            let Ok(_) = candidate.work(&analysis, &allowed) else { continue };
            let mut operator =
                PreparedOperator::on_gpu(gpu, &there, &csr, &analysis, candidate, &allowed)
                    .unwrap_or_else(|error| panic!("{candidate}: {error}"));
            operator.verify(&csr, 3).unwrap_or_else(|error| panic!("{error}"));
            operator.update_values(scaled.values()).expect("may be rounded");
            operator.verify(&scaled, 4).unwrap_or_else(|error| panic!("updated: {error}"));
            let mut values = csr.values().to_vec();
            *values.last_mut().expect("entries") = beyond;
            let refused = operator.update_values(&values).expect_err("beyond the range");
            let row = csr.nrows() - 1;
            let last = format!("row {row} has a value beyond the range of {stores}");
            assert!(refused.to_string().contains(&last), "{candidate}: {refused}");
            operator.verify(&scaled, 5).unwrap_or_else(|error| panic!("kept: {error}"));
        }
    }
}

#[test]
fn a_tuner_prepares_rounded_values_where_they_are_allowed() {
    if gpu().is_none() {
        return;
    }
    check_prepared::<f64>(StoredValues::F32);
    check_prepared::<f32>(StoredValues::F16);
    check_prepared::<f32>(StoredValues::BF16);
}

fn check_prepared<T: Scalar>(stores: StoredValues) {
    let csr: Csr<f64> = generate::by_name("elasticity", 60_000, 1).expect("a class");
    let csr = csr.map_values(|value| value.abs() * 1.1 + 0.1).cast::<T>();
    let tuner = Tuner::open("cuda:0").expect("a GPU");
    let prepare = |stored| -> Result<PreparedOperator<T>, Error> {
        tuner.prepare(&csr, &Workload { spmvs: 3000, stored, ..Workload::default() })
    };
    let exact = prepare(StoredValues::Exact).expect("prepared");
    assert!(exact.candidate().format.narrows.is_none(), "{}", exact.candidate());
    exact.verify(&csr, 1).expect("right");
    let rounded = prepare(stores).expect("prepared");
    assert!(rounded.rounding() > 0.0, "{}", rounded.candidate());
    assert_eq!(rounded.candidate().format.stores, stores);
    rounded.verify(&csr, 1).expect("within the bound");
}
