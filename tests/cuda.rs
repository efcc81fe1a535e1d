//! The check of every format, on a GPU. Without a GPU it says so, and fails if `REQUIRE_GPU=1`.
#![cfg(feature = "cuda")]
#![allow(clippy::print_stdout, reason = "says what ran where")]

mod corpus;

use std::collections::BTreeSet;

use ellect::device::Kind;
use ellect::device::cuda::Gpu;
use ellect::format::{Basis, Candidate, Target, candidates};
use ellect::operator::{permute, permute_back};
use ellect::structure::Structure;
use ellect::{Csr, PreparedOperator, Scalar, check};

#[test]
fn every_candidate_multiplies_right_on_the_gpu() {
    let gpu = match Gpu::open(0) {
        Ok(gpu) => gpu,
        Err(error) => {
            assert!(std::env::var_os("REQUIRE_GPU").is_none(), "no GPU: {error}");
            println!("not run: {error}");
            return;
        }
    };
    let all = candidates(Kind::Gpu);
    let mut run = BTreeSet::new();
    for (name, csr) in corpus::small() {
        check_matrix(&gpu, &name, &csr, &all, &mut run);
        check_matrix(&gpu, &name, &csr.cast::<f32>(), &all, &mut run);
    }
    println!("{} candidates ran on {}: {run:?}", run.len(), gpu.profile().title);
    assert!(!run.is_empty());
}

fn check_matrix<T: Scalar>(
    gpu: &Gpu,
    name: &str,
    csr: &Csr<T>,
    all: &[Candidate],
    run: &mut BTreeSet<String>,
) {
    let structure = Structure::new(csr.pattern());
    let whole = csr.map_values(|value| T::from_f64((value.to_f64() * 3.0).round() % 8.0));
    for basis in [Basis::Original, Basis::Permuted] {
        let target = Target {
            device: gpu.profile(),
            precision: T::PRECISION,
            basis,
            memory_limit: u64::MAX,
        };
        for candidate in all {
            if candidate.work(&structure, &target).is_err() {
                continue;
            }
            let what = format!("{candidate} on {name}, {}, {basis:?}", T::PRECISION);
            let exact = PreparedOperator::with_structure(&whole, &structure, candidate, &target)
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            if exact.layout().on_device().is_none() {
                continue;
            }
            run.insert(candidate.to_string());
            let x = check::whole_numbers::<T>(csr.ncols(), 1);
            let y = check::whole_numbers::<T>(csr.nrows(), 2);
            for (alpha, beta) in [(1.0, 0.0), (2.0, -1.0), (0.0, 2.0)] {
                let (alpha, beta) = (T::from_f64(alpha), T::from_f64(beta));
                let got = apply(gpu, &what, &exact, alpha, &x, beta, &y);
                let want = check::reference(&whole, alpha, &x, beta, &y);
                for (row, (got, want)) in got.iter().zip(&want).enumerate() {
                    assert_eq!(got.to_f64(), want.value, "{what}: row {row}, exact");
                }
            }

            let operator = PreparedOperator::with_structure(csr, &structure, candidate, &target)
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            let y = vec![T::from_f64(f64::NAN); csr.nrows()];
            for bad in [0.5, f64::INFINITY, f64::NAN] {
                let mut x = check::vector::<T>(csr.ncols(), 5);
                for column in (0..x.len()).step_by(7) {
                    x[column] = T::from_f64(bad);
                }
                let got = apply(gpu, &what, &operator, T::ONE, &x, T::ZERO, &y);
                check::compare(&what, &check::reference(csr, T::ONE, &x, T::ZERO, &y), &got)
                    .unwrap_or_else(|error| panic!("{bad} in x: {error}"));
            }
        }
    }
}

fn apply<T: Scalar>(
    gpu: &Gpu,
    what: &str,
    operator: &PreparedOperator<T>,
    alpha: T,
    x: &[T],
    beta: T,
    y: &[T],
) -> Vec<T> {
    let order = operator.permutation();
    let x = order.map_or_else(|| x.to_vec(), |order| permute(x, order));
    let mut y = order.map_or_else(|| y.to_vec(), |order| permute(y, order));
    gpu.upload(operator.layout())
        .and_then(|uploaded| gpu.apply(&uploaded, alpha, &x, beta, &mut y))
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    order.map_or_else(|| y.clone(), |order| permute_back(&y, order))
}
