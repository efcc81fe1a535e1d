//! Values in f32 with vectors in f64 on a GPU: exact where f32 holds them, rounded by consent.

use std::sync::Arc;

use ellect::analysis::Analysis;
use ellect::cuda::DeviceCsr;
use ellect::device::Kind;
use ellect::format::{StoredValues, candidates};
use ellect::{Csr, Error, Precision, PreparedOperator, Tuner, Workload, generate};

use super::turns::gpu;

#[test]
fn rounded_values_multiply_within_their_bound_and_are_updated_there() {
    let Some(gpu) = gpu() else { return };
    let mut all = candidates(Kind::Gpu);
    all.retain(|candidate| candidate.format.narrows.is_some());
    assert!(all.len() > 1);
    for nrows in [600, 60_000] {
        let csr: Csr<f64> = generate::by_name("elasticity", nrows, 1).expect("a class");
        let csr = csr.map_values(|value| value * 1.1 + 0.1);
        let (analysis, scaled) = (Analysis::of(&csr), csr.map_values(|value| value * 0.3));
        let there = Arc::new(DeviceCsr::upload(&gpu, &csr).expect("memory suffices"));
        let target = |stored| {
            Workload { stored, ..Workload::default() }.target(gpu.profile(), Precision::F64)
        };
        let [exact, allowed] = [StoredValues::Exact, StoredValues::F32].map(target);
        for candidate in &all {
            let Err(refused) = gpu.convert(&there, candidate, &exact) else {
                panic!("{candidate} holds values that are no f32")
            };
            assert!(refused.to_string().contains("row 0 has a value"), "{candidate}: {refused}");
            let Ok(_) = candidate.work(&analysis, &allowed) else { continue };
            let mut operator =
                PreparedOperator::on_gpu(&gpu, &there, &csr, &analysis, candidate, &allowed)
                    .unwrap_or_else(|error| panic!("{candidate}: {error}"));
            operator.verify(&csr, 3).unwrap_or_else(|error| panic!("{error}"));
            operator.update_values(scaled.values()).expect("may be rounded");
            operator.verify(&scaled, 4).unwrap_or_else(|error| panic!("updated: {error}"));
            let mut values = csr.values().to_vec();
            *values.last_mut().expect("entries") = f64::MAX;
            let refused = operator.update_values(&values).expect_err("beyond f32");
            let last = format!("row {} has a value beyond the range of f32", csr.nrows() - 1);
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
    let csr: Csr<f64> = generate::by_name("elasticity", 60_000, 1).expect("a class");
    let csr = csr.map_values(|value| value * 1.1 + 0.1);
    let tuner = Tuner::open("cuda:0").expect("a GPU");
    let prepare = |stored| -> Result<PreparedOperator<f64>, Error> {
        tuner.prepare(&csr, &Workload { spmvs: 3000, stored, ..Workload::default() })
    };
    let exact = prepare(StoredValues::Exact).expect("prepared");
    assert!(exact.candidate().format.narrows.is_none(), "{}", exact.candidate());
    exact.verify(&csr, 1).expect("right");
    let rounded = prepare(StoredValues::F32).expect("prepared");
    assert!(rounded.rounding() > 0.0, "{}", rounded.candidate());
    rounded.verify(&csr, 1).expect("within the bound");
}
