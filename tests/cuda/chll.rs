//! Complex matrices on a GPU, as real ones of twice the size: conversion there, products with vectors
//! of any alignment, and updates.

use std::sync::Arc;

use ellect::analysis::Analysis;
use ellect::csr::{Complex, ComplexCsr};
use ellect::cuda::{DeviceCsr, Gpu};
use ellect::device::Kind;
use ellect::format::{Basis, Candidate, Target, candidates};
use ellect::{Csr, PreparedOperator, Scalar, Tuner, Workload, check, generate};

use super::corpus;
use super::product::exact_products;
use super::turns::gpu;

fn own() -> Vec<Candidate> {
    let mut all = candidates(Kind::Gpu);
    all.retain(|candidate| candidate.format.figures_of.is_some());
    assert!(all.len() > 1);
    all
}

fn target<T: Scalar>(gpu: &Gpu, basis: Basis) -> Target<'_> {
    Workload { basis, ..Workload::default() }.target(gpu.profile(), T::PRECISION)
}

fn check_matrix<T: Scalar>(gpu: &Arc<Gpu>, name: &str, csr: &Csr<T>) -> usize {
    let (analysis, mut count) = (Analysis::of(csr), 0);
    let whole = csr.map_values(|value| T::from_f64((value.to_f64() * 3.0).round() % 8.0));
    let there = Arc::new(DeviceCsr::upload(gpu, csr).expect("memory suffices"));
    let last = (0..csr.nrows()).rfind(|i| !csr.row(*i).0.is_empty()).expect("entries");
    for basis in [Basis::Original, Basis::Permuted] {
        let target = target::<T>(gpu, basis);
        for candidate in own() {
            if candidate.work(&analysis, &target).is_err() {
                continue;
            }
            count += 1;
            let what = format!("{candidate} on {name}, {}, {basis:?}", T::PRECISION);
            let mut operator =
                PreparedOperator::on_gpu(gpu, &there, csr, &analysis, &candidate, &target)
                    .unwrap_or_else(|error| panic!("{what}: {error}"));
            let is_built = operator.on_device().is_some_and(|placed| placed.is_built());
            assert_eq!(is_built, operator.permutation().is_none(), "{what}: converted there");
            operator.verify(csr, 3).unwrap_or_else(|error| panic!("{what}: {error}"));
            operator.verify_many(csr, 3, 4).unwrap_or_else(|error| panic!("{what}: {error}"));
            operator
                .update_values(whole.values())
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            let products = exact_products(&whole);
            products.iter().for_each(|product| product.check_exact(&what, &operator));
            let mut values = whole.values().to_vec();
            *values.last_mut().expect("entries") += T::ONE;
            let refused = operator.update_values(&values).expect_err("no block").to_string();
            let stated = format!("row {} and the next one are not 2 x 2 blocks", last - 1);
            assert!(refused.contains(&stated), "{what}: {refused}");
            products.iter().for_each(|product| product.check_exact(&what, &operator));
            assert_eq!(operator.to_csr().expect("copied"), whole, "{what}");
        }
    }
    count
}

#[test]
fn chll_multiplies_complex_matrices_right_on_the_gpu() {
    let Some(gpu) = gpu() else { return };
    let mut count = 0;
    for (name, csr) in corpus::complex() {
        count += check_matrix(&gpu, &name, &csr);
        count += check_matrix(&gpu, &name, &csr.cast::<f32>());
    }
    let large: Csr<f64> = generate::by_name("p2", 300_000, 1).expect("a class");
    count += check_matrix(&gpu, "p2", &corpus::to_blocks(&large));
    assert!(count > 40, "{count}");
}

#[test]
fn chll_reads_x_at_any_address() {
    let Some(gpu) = gpu() else { return };
    fn check<T: Scalar>(gpu: &Arc<Gpu>) {
        let real: Csr<f64> = generate::by_name("p2", 3000, 1).expect("a class");
        let csr = corpus::to_blocks(&real).cast::<T>();
        let there = Arc::new(DeviceCsr::upload(gpu, &csr).expect("memory suffices"));
        let n = csr.nrows();
        let x = check::vector::<T>(n + 1, 3);
        for candidate in own() {
            let target = target::<T>(gpu, Basis::Original);
            let made = PreparedOperator::built(gpu, &there, &candidate, &target);
            let Some(operator) = made.expect("it applies") else { panic!("converted there") };
            let placed = operator.on_device().expect("on the GPU");
            let there = gpu.vector(&x).expect("memory suffices");
            for first in [0, 1] {
                let mut out = gpu.vector(&vec![T::ZERO; n + 1]).expect("memory suffices");
                placed
                    .apply(
                        T::ONE,
                        there.slice(first..first + n).expect("within"),
                        T::ZERO,
                        out.slice_mut(first..first + n).expect("within"),
                    )
                    .expect("lengths fit");
                let mut got = vec![T::ZERO; n + 1];
                out.read(&mut got).expect("copied");
                let x = &x[first..first + n];
                let want = check::reference(&csr, T::ONE, x, T::ZERO, &vec![T::ZERO; n]);
                check::compare(&candidate.to_string(), &want, &got[first..first + n])
                    .unwrap_or_else(|error| panic!("from {first}: {error}"));
                assert_eq!(got[if first == 0 { n } else { 0 }], T::ZERO, "nothing else is written");
            }
        }
    }
    check::<f64>(&gpu);
    check::<f32>(&gpu);
}

#[test]
fn chll_refuses_other_matrices_on_the_gpu() {
    let Some(gpu) = gpu() else { return };
    let heat: Csr<f64> = generate::by_name("heat", 5000, 1).expect("a class");
    let mut one = corpus::to_blocks(&heat);
    let row = 2 * (one.nrows() / 4);
    let at = one.row_ptr()[row];
    one.values_mut()[at] += 1.0;
    let full = Csr::from_triplets(4, 4, (0..16).map(|k| (k / 4, k % 4, k as f64)));
    for (csr, stated) in [
        (&one, format!("row {row} and the next one do not consist of 2 x 2 blocks")),
        (&full.expect("in range"), "row 0 and the next one".to_string()),
    ] {
        let there = Arc::new(DeviceCsr::upload(&gpu, csr).expect("memory suffices"));
        for candidate in own() {
            let target = target::<f64>(&gpu, Basis::Original);
            let refused = PreparedOperator::built(&gpu, &there, &candidate, &target);
            let refused = refused.expect_err("no blocks").to_string();
            assert!(refused.contains(&stated), "{candidate}: {refused}");
        }
    }
}

#[test]
fn chll_serves_complex_operators_on_the_gpu() {
    if gpu().is_none() {
        return;
    }
    let real: Csr<f64> = generate::by_name("p2", 20_000, 1).expect("a class");
    let csr = ComplexCsr::from_blocks(&corpus::to_blocks(&real)).expect("blocks");
    let tuner = Tuner::open("cuda:0").expect("a GPU");
    let workload = Workload { spmvs: 1_000_000, transposed: 1000, ..Workload::default() };
    let mut operator = tuner.prepare_complex(&csr, &workload).expect("it applies");
    operator.verify(&csr, 3).expect("right");
    let c = |re: f64, im: f64| Complex { re, im };
    let x = vec![c(1.0, -1.0); csr.ncols()];
    let [mut y, mut z] = [0, 1].map(|_| vec![c(0.0, 0.0); csr.nrows()]);
    operator.apply(c(0.0, 2.0), &x, c(0.0, 0.0), &mut y).expect("lengths fit");
    operator.apply(c(1.0, 0.0), &x, c(0.0, 0.0), &mut z).expect("lengths fit");
    assert!(
        y.iter()
            .zip(&z)
            .all(|(y, z)| (y - z * c(0.0, 2.0)).l1_norm() <= 1e-9 * (1.0 + z.l1_norm()))
    );
    operator.apply_adjoint(c(1.0, 0.0), &y, c(0.0, 0.0), &mut z).expect("lengths fit");
    let values: Vec<_> = csr.values().iter().map(|value| value * c(0.0, 1.0)).collect();
    operator.update_values(&values).expect("as many");
    let mut updated = csr.clone();
    updated.values_mut().copy_from_slice(&values);
    operator.verify(&updated, 5).expect("right");
    let operator = tuner.prepare(&real, &Workload::default()).expect("it applies");
    let mut y = vec![c(0.0, 0.0); real.nrows()];
    operator.apply_complex(c(1.0, 0.0), &x, c(0.0, 0.0), &mut y).expect("lengths fit");
    assert!(y.iter().all(|y| (y.re + y.im).abs() <= 1e-9 * (1.0 + y.re.abs())));
}
