//! The check of every format, on a GPU. Without a GPU it says so, and fails if `REQUIRE_GPU=1`.
#![cfg(feature = "cuda")]
#![allow(clippy::print_stdout, reason = "says what ran where")]
#![allow(unsafe_code, reason = "hands values over by their address")]

mod corpus;

use std::collections::BTreeMap;
use std::sync::Arc;

use ellect::device::Kind;
use ellect::device::cuda::{DeviceCsr, Gpu};
use ellect::format::{Basis, Candidate, Target, candidates};
use ellect::operator::{permute, permute_back};
use ellect::structure::Structure;
use ellect::{Csr, PreparedOperator, Scalar, check};

#[test]
fn every_candidate_multiplies_right_on_the_gpu() {
    let gpu = match Gpu::open(0) {
        Ok(gpu) => Arc::new(gpu),
        Err(error) => {
            assert!(std::env::var_os("REQUIRE_GPU").is_none(), "no GPU: {error}");
            println!("not run: {error}");
            return;
        }
    };
    let all = candidates(Kind::Gpu);
    let mut run = BTreeMap::new();
    for (name, csr) in corpus::small() {
        check_matrix(&gpu, &name, &csr, &all, &mut run);
        check_matrix(&gpu, &name, &csr.cast::<f32>(), &all, &mut run);
    }
    println!("on {}, converted there or on the host:", gpu.profile().title);
    for (candidate, built) in &run {
        println!("{candidate}: {}", if *built { "there" } else { "on the host" });
    }
    assert!(!run.is_empty());
}

fn check_matrix<T: Scalar>(
    gpu: &Arc<Gpu>,
    name: &str,
    csr: &Csr<T>,
    all: &[Candidate],
    run: &mut BTreeMap<String, bool>,
) {
    let structure = Structure::of(csr);
    let whole = csr.map_values(|value| T::from_f64((value.to_f64() * 3.0).round() % 8.0));
    let twice = whole.map_values(|value| value + value);
    let upload = |csr: &Csr<T>| Arc::new(DeviceCsr::upload(gpu, csr).expect("memory suffices"));
    let (csr_there, whole_there) = (upload(csr), upload(&whole));
    let twice_there = gpu.vector(twice.values()).expect("memory suffices");
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
            let on_gpu = |there: &Arc<DeviceCsr<T>>, csr: &Csr<T>| {
                PreparedOperator::on_gpu(gpu, there, csr, &structure, candidate, &target)
                    .unwrap_or_else(|error| panic!("{what}: {error}"))
            };
            let mut exact = on_gpu(&whole_there, &whole);
            let built = exact.on_device().is_some_and(|placed| placed.is_built());
            run.insert(candidate.to_string(), built);
            check_exact(&what, &exact, &whole);
            exact.update_values(twice.values()).unwrap_or_else(|error| panic!("{what}: {error}"));
            check_exact(&format!("{what}, updated"), &exact, &twice);
            let read_back = exact.to_csr().unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(read_back, twice, "{what}: read back");

            let mut exact = on_gpu(&whole_there, &whole);
            let there = exact.on_device_mut().expect("made on a GPU");
            // SAFETY: the vector holds as many values as the matrix has entries.
            unsafe { there.set_device_values(twice_there.address()) }
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            check_exact(&format!("{what}, updated on the device"), &exact, &twice);

            let operator = on_gpu(&csr_there, csr);
            let y = vec![T::from_f64(f64::NAN); csr.nrows()];
            for bad in [0.5, f64::INFINITY, f64::NAN] {
                let mut x = check::vector::<T>(csr.ncols(), 5);
                for column in (0..x.len()).step_by(7) {
                    x[column] = T::from_f64(bad);
                }
                let got = apply(&what, &operator, T::ONE, &x, T::ZERO, &y);
                check::compare(&what, &check::reference(csr, T::ONE, &x, T::ZERO, &y), &got)
                    .unwrap_or_else(|error| panic!("{bad} in x: {error}"));
            }
        }
    }
}

fn check_exact<T: Scalar>(what: &str, operator: &PreparedOperator<T>, csr: &Csr<T>) {
    let x = check::whole_numbers::<T>(csr.ncols(), 1);
    let y = check::whole_numbers::<T>(csr.nrows(), 2);
    for (alpha, beta) in [(1.0, 0.0), (2.0, -1.0), (0.0, 2.0)] {
        let (alpha, beta) = (T::from_f64(alpha), T::from_f64(beta));
        let got = apply(what, operator, alpha, &x, beta, &y);
        let want = check::reference(csr, alpha, &x, beta, &y);
        for (row, (got, want)) in got.iter().zip(&want).enumerate() {
            assert_eq!(got.to_f64(), want.value, "{what}: row {row}, exact");
        }
    }
}

fn apply<T: Scalar>(
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
    operator.apply(alpha, &x, beta, &mut y).unwrap_or_else(|error| panic!("{what}: {error}"));
    order.map_or_else(|| y.clone(), |order| permute_back(&y, order))
}
