//! Checks of every format and of features on a GPU. Without a GPU the tests say so, and fail if
//! `REQUIRE_GPU=1`. `ELLECT_TEST_ONLY="pjds hll:hack=32"` selects the candidates whose names start
//! with one of these words. With `ELLECT_TEST_ONCE=1`, each candidate converts, multiplies and
//! updates once per matrix, for tools that check every memory access. `ELLECT_TEST_PART=3/16`
//! selects every 16th candidate, starting with the third (rotating from matrix to matrix), so that
//! several processes share the candidates (tests/sanitize.sh).
#![cfg(feature = "cuda")]
#![allow(clippy::print_stdout, reason = "says what ran where")]
#![allow(unsafe_code, reason = "hands values over by their address")]

#[path = "cuda/bitmap.rs"]
mod bitmap;
#[path = "cuda/chll.rs"]
mod chll;
mod corpus;
#[path = "cuda/dots.rs"]
mod dots;
#[path = "cuda/lazy.rs"]
mod lazy;
#[path = "cuda/lives.rs"]
mod lives;
#[path = "cuda/long_rows.rs"]
mod long_rows;
#[path = "cuda/narrow.rs"]
mod narrow;
#[path = "cuda/product.rs"]
mod product;
#[path = "cuda/ranks.rs"]
mod ranks;
#[path = "cuda/refusals.rs"]
mod refusals;
#[path = "cuda/several.rs"]
mod several;
#[path = "cuda/sharded.rs"]
mod sharded;
#[path = "cuda/sharded_rows.rs"]
mod sharded_rows;
#[path = "cuda/sharded_steps.rs"]
mod sharded_steps;
#[path = "../examples/solvers/methods/mod.rs"]
mod solvers;
mod toy;
#[path = "cuda/transpose.rs"]
mod transpose;
#[path = "cuda/turns.rs"]
mod turns;
#[path = "cuda/vectors.rs"]
mod vectors;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use corpus::edges;
use ellect::analysis::Analysis;
use ellect::choose::{Choice, Effort, Verify, Workload};
use ellect::cuda::{DeviceCsr, Gpu};
use ellect::device::{Device, Kind};
use ellect::features::Features;
use ellect::format::{Basis, Candidate, Matrix, Role, Target, candidates};
use ellect::generate::Spec;
use ellect::measure::Backend;
use ellect::{Csr, Error, PreparedOperator, Scalar, Tuner, check};
use product::{Product, exact_products};
use turns::{alone, gpu};

#[test]
fn every_candidate_multiplies_right_on_the_gpu() {
    let Some(gpu) = gpu() else { return };
    let (all, mut run) = (wanted(), BTreeMap::new());
    for (turn, (name, csr)) in corpus::small().into_iter().enumerate() {
        check_matrix(&gpu, &name, &csr, &part(&all, 2 * turn), &mut run);
        check_matrix(&gpu, &name, &csr.cast::<f32>(), &part(&all, 2 * turn + 1), &mut run);
    }
    // Other formats are checked on other matrices.
    let complex: Vec<Candidate> =
        all.into_iter().filter(|candidate| candidate.format.figures_of.is_some()).collect();
    for (turn, (name, csr)) in corpus::complex().into_iter().enumerate() {
        check_matrix(&gpu, &name, &csr, &part(&complex, 2 * turn), &mut run);
        check_matrix(&gpu, &name, &csr.cast::<f32>(), &part(&complex, 2 * turn + 1), &mut run);
    }
    println!("on {}, converted there or on the host:", gpu.profile().title);
    for (candidate, built) in &run {
        println!("{candidate}: {}", if *built { "there" } else { "on the host" });
    }
    assert!(!run.is_empty());
}

#[test]
fn conversions_on_the_gpu_hold_past_a_block() {
    let Some(gpu) = gpu() else { return };
    let converted = converted(&gpu, wanted());
    let mut run = BTreeMap::new();
    for (turn, (name, csr)) in edges::conversions().into_iter().enumerate() {
        let [double, single] = [2 * turn, 2 * turn + 1].map(|turn| part(&converted, turn));
        check_matrix(&gpu, &name, &csr, &double, &mut run);
        check_matrix(&gpu, &name, &csr.cast::<f32>(), &single, &mut run);
        check_wide(&gpu, &name, &csr, &double);
        check_wide(&gpu, &name, &csr.cast::<f32>(), &single);
    }
}

#[test]
fn every_candidate_multiplies_real_matrices_right_on_the_gpu() {
    let Some(gpu) = gpu() else { return };
    let (all, mut run) = (wanted(), BTreeMap::new());
    for (turn, (name, csr)) in corpus::real(MOST_REAL).into_iter().enumerate() {
        let start = std::time::Instant::now();
        check_matrix(&gpu, &name, &csr, &part(&all, 2 * turn), &mut run);
        check_matrix(&gpu, &name, &csr.cast::<f32>(), &part(&all, 2 * turn + 1), &mut run);
        println!("{name}: right, {:.1} s", start.elapsed().as_secs_f64());
    }
}

/// Maximum number of entries of the real matrices, unless a folder of them is named.
const MOST_REAL: usize = 60_000;

/// Returns the candidates to check.
fn wanted() -> Vec<Candidate> {
    let mut all = candidates(Kind::Gpu);
    if let Ok(only) = std::env::var("ELLECT_TEST_ONLY") {
        let begins = |candidate: &Candidate, start: &str| {
            let text = candidate.to_string();
            let rest = text.strip_prefix(start);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([':', ',']))
        };
        all.retain(|candidate| only.split_whitespace().any(|start| begins(candidate, start)));
        assert!(!all.is_empty(), "ELLECT_TEST_ONLY={only}: no such candidate");
    }
    all
}

/// Selects the candidates that this process checks for this matrix.
fn part(all: &[Candidate], turn: usize) -> Vec<Candidate> {
    let Ok(part) = std::env::var("ELLECT_TEST_PART") else { return all.to_vec() };
    let part_of =
        part.split_once('/').and_then(|(at, of)| Some((at.parse().ok()?, of.parse().ok()?)));
    let (at, of): (usize, usize) = part_of.expect("ELLECT_TEST_PART=3/16 or so");
    assert!((1..=of).contains(&at), "ELLECT_TEST_PART={part}: parts count from 1");
    all.iter().skip((at + turn) % of).step_by(of).cloned().collect()
}

/// Selects the candidates of formats with GPU conversion kernels of their own.
fn converted(gpu: &Arc<Gpu>, mut all: Vec<Candidate>) -> Vec<Candidate> {
    let mut on_host: BTreeSet<&str> = all.iter().map(|candidate| candidate.format.name).collect();
    for (name, csr) in corpus::small() {
        let analysis = Analysis::of(&csr);
        let there = Arc::new(DeviceCsr::upload(gpu, &csr).expect("memory suffices"));
        for candidate in &all {
            if !on_host.contains(candidate.format.name) {
                continue;
            }
            let device = device_for(gpu, candidate, &csr, &analysis);
            match gpu.convert(&there, candidate, &original::<f64>(&device)) {
                Ok(None) => {}
                Ok(Some(_)) | Err(Error::Refused { .. }) => {
                    on_host.remove(candidate.format.name);
                }
                Err(error) => panic!("{candidate} on {name}: {error}"),
            }
        }
    }
    all.retain(|candidate| {
        candidate.format.role == Role::Converted && !on_host.contains(candidate.format.name)
    });
    all
}

/// Returns the target of products in the matrix's own order.
fn original<T: Scalar>(device: &Device) -> Target<'_> {
    let (precision, basis) = (T::PRECISION, Basis::Original);
    Target { device, precision, basis, memory_limit: u64::MAX, stored: Default::default() }
}

/// Returns the target device of a conversion: the GPU or, for a candidate that is refused there, a
/// GPU with a cache so small that a format which divides x into pieces that fit has nearly as many
/// pieces as entries per row, if rows have more than three.
fn device_for<T: Scalar>(
    gpu: &Gpu,
    candidate: &Candidate,
    csr: &Csr<T>,
    analysis: &Analysis<'_>,
) -> Device {
    let own = gpu.profile().clone();
    if candidate.work(analysis, &original::<T>(&own)).is_ok() {
        return own;
    }
    let x_bytes = (csr.ncols() * T::PRECISION.bytes()) as u64;
    let pieces = (csr.nnz() / csr.nrows().max(1)).saturating_sub(1).clamp(3, 50) as u64;
    Device { cache_bytes: (2 * x_bytes / pieces).max(1), ..own }
}

/// Checks products of layouts converted from 64-bit row pointers, with vectors that are the tails
/// of longer ones, so that they are aligned to one value only.
fn check_wide<T: Scalar>(gpu: &Arc<Gpu>, name: &str, csr: &Csr<T>, all: &[Candidate]) {
    let analysis = Analysis::of(csr);
    let whole = csr.map_values(|value| T::from_f64(value.to_f64().round()));
    // Uploaded as floating-point numbers with the same bits.
    let row_ptr: Vec<f64> = csr.row_ptr().iter().map(|&at| f64::from_bits(at as u64)).collect();
    let col_idx: Vec<f32> = csr.col_idx().iter().map(|&column| f32::from_bits(column)).collect();
    let row_ptr = gpu.vector(&row_ptr).expect("memory suffices");
    let col_idx = gpu.vector(&col_idx).expect("memory suffices");
    let values = gpu.vector(whole.values()).expect("memory suffices");
    let (nrows, ncols, nnz) = (csr.nrows(), csr.ncols(), csr.nnz());
    let matrix = Matrix { nrows, ncols, nnz, wide: true };
    let addresses = [row_ptr.address(), col_idx.address(), values.address()];
    // SAFETY: the vectors hold a valid matrix and outlive the operator that is made from them.
    let there = Arc::new(unsafe { DeviceCsr::<T>::from_raw(matrix, addresses) });
    let x = check::whole_numbers::<T>(ncols, 1);
    let want = check::reference(&whole, T::ONE, &x, T::ZERO, &vec![T::ZERO; nrows]);
    let x = gpu.vector(&[&[T::ZERO], x.as_slice()].concat()).expect("memory suffices");
    let second = T::PRECISION.bytes() as u64;
    for candidate in all {
        let device = device_for(gpu, candidate, csr, &analysis);
        let target = original::<T>(&device);
        if candidate.work(&analysis, &target).is_err() {
            continue;
        }
        let what = format!("{candidate} on {name}, {}, 64-bit row pointers", T::PRECISION);
        let made = gpu.convert(&there, candidate, &target);
        let Some(operator) = made.unwrap_or_else(|error| panic!("{what}: {error}")) else {
            continue;
        };
        let y = gpu.vector(&vec![T::from_f64(f64::NAN); nrows + 1]).expect("memory suffices");
        let stream = gpu.stream().as_inner();
        let [x_at, y_at] = [x.address() + second, y.address() + second];
        // SAFETY: the vectors have the matrix's lengths and live until the copy below has
        // synchronised.
        unsafe { operator.apply_raw(T::ONE, x_at, T::ZERO, y_at, stream) }
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        let mut got = vec![T::ZERO; nrows + 1];
        y.read(&mut got).unwrap_or_else(|error| panic!("{what}: {error}"));
        for (row, (got, want)) in got[1..].iter().zip(&want).enumerate() {
            assert_eq!(got.to_f64(), want.value, "{what}: row {row}, exact");
        }
    }
}

#[test]
fn a_matrix_on_the_gpu_is_prepared_from_there() {
    let Some(gpu) = gpu() else { return };
    let data = std::env::temp_dir().join(format!("ellect-on-gpu-{}", std::process::id()));
    let backend = Backend::open("cuda:0", &data).expect("there is a GPU");
    let tuner =
        Tuner::without_models(backend).with_models(&data).expect("shipped models are sound");
    for (spec, other) in [("heat:60000", "heat:50000"), ("stencil27:150000", "stencil27:140000")] {
        prepared_from_there(&gpu, &tuner, spec, other);
    }
    time_of_preparing(&tuner);
    UNEVEN.iter().for_each(|spec| checked_from_there(&tuner, spec));
    let csr: Csr<f64> = "heat:500".parse::<Spec>().expect("a class and rows").make();
    let own = tuner.backend().gpu().expect("it was opened");
    let there = Arc::new(DeviceCsr::upload(own, &csr).expect("memory suffices"));
    let host = Tuner::open_in("cpu", &data).expect("this machine");
    let refused = host.prepare_on_gpu(&there, &Workload::default()).expect_err("no GPU is open");
    assert!(refused.to_string().contains("cuda:0"), "{refused}");
}

/// Classes for which many formats are refused or need more memory than CSR.
const UNEVEN: [&str; 12] = [
    "stencil7:60000",
    "constant7:60000",
    "rmat:60000",
    "web:40000",
    "circuit:90000",
    "kkt:30000",
    "linear_program:20000",
    "least_squares:30000",
    "blocks5:4000",
    "uniform:40000",
    "road:90000:random",
    "banded_outliers:40000:random",
];

/// The candidate chosen on the GPU applies to the matrix, and its products are right.
fn checked_from_there(tuner: &Tuner, spec: &str) {
    let csr: Csr<f64> = spec.parse::<Spec>().expect("a class and rows").make();
    let own = tuner.backend().gpu().expect("it was opened");
    let there = Arc::new(DeviceCsr::upload(own, &csr).expect("memory suffices"));
    for spmvs in [1_000, 20_000] {
        let (effort, verify) = (Effort::Predict, Verify::OnPrepare);
        let workload = Workload { spmvs, effort, verify, ..Workload::default() };
        let operator = tuner.prepare_on_gpu(&there, &workload);
        let operator = operator.unwrap_or_else(|error| panic!("{spec}: {error}"));
        let choice = operator.choice().expect("a choice was made");
        println!("{spec}: {} for {spmvs} products: {:?}", choice.candidate, choice.explanation);
        assert_eq!(operator.to_csr().expect("it was copied"), csr, "{spec}");

        // For a matrix on the host the choice is the same, except that no features are counted.
        let of_host = tuner.prepare(&csr, &workload);
        let of_host = of_host.unwrap_or_else(|error| panic!("{spec}: {error}"));
        assert!(of_host.on_device().is_some(), "{spec}");
        assert_eq!(of_host.to_csr().expect("it was copied"), csr, "{spec}");
        let choice_of_host = of_host.choice().expect("a choice was made");
        let counted = |choice: &Choice| choice.explanation[0].contains("chosen from features");
        assert_eq!(counted(choice_of_host), counted(choice), "{spec}: {choice_of_host:?}");
        if counted(choice) {
            assert_eq!(choice_of_host, choice, "{spec}");
        }
    }
}

/// Prints the least time of preparing small matrices for 100 products.
fn time_of_preparing(tuner: &Tuner) {
    let gpu = tuner.backend().gpu().expect("it was opened");
    for spec in ["stencil7:1000", "circuit:3000", "elasticity:3000", "heat:30000"] {
        let csr: Csr<f64> = spec.parse::<Spec>().expect("a class and rows").make();
        let there = Arc::new(DeviceCsr::upload(gpu, &csr).expect("memory suffices"));
        let workload = Workload { spmvs: 100, ..Workload::default() };
        let prepare = || {
            let start = Instant::now();
            let operator = tuner.prepare_on_gpu(&there, &workload).expect("something suits");
            (start.elapsed(), operator)
        };
        let (_, operator) = prepare();
        let least = (0..100).map(|_| prepare().0).min().unwrap_or_default();
        let choice = operator.choice().expect("a choice was made");
        println!("{spec}: {} for 100 products in {least:?} at best", choice.candidate);
    }
}

fn prepared_from_there(gpu: &Gpu, tuner: &Tuner, spec: &str, other: &str) {
    let csr: Csr<f64> = spec.parse::<Spec>().expect("a class and rows").make();
    let csr = csr.map_values(|value| (value * 3.0).round() % 8.0);
    let own = tuner.backend().gpu().expect("it was opened");
    let there = Arc::new(DeviceCsr::upload(own, &csr).expect("memory suffices"));
    for spmvs in [1, 10_000, 10_000_000] {
        let workload = Workload {
            spmvs,
            effort: Effort::Predict,
            verify: Verify::OnPrepare,
            ..Workload::default()
        };
        let mut operator = tuner.prepare_on_gpu(&there, &workload).expect("something suits");
        // Everything that the candidate needs is loaded now.
        let unverified = Workload { verify: Verify::No, ..workload };
        let start = Instant::now();
        tuner.prepare_on_gpu(&there, &unverified).expect("something suits");
        let took = start.elapsed();
        let choice = operator.choice().expect("a choice was made");
        let what = format!("{spec}: {} for {spmvs} products", choice.candidate);
        println!("{what} in {took:?}");
        let in_csr = choice.candidate.is_baseline();
        assert!(spmvs == 10_000 || in_csr == (spmvs == 1), "{what}");
        // The H200 has models: one product does not justify counting features, thousands do, and
        // only millions justify an analysis on the host.
        if gpu.profile().name == "h200" {
            let analysis = Analysis::sampled(&csr);
            let expected = match spmvs {
                1 => Features::of_size(&analysis),
                _ => Features::of(&analysis),
            };
            assert_eq!(choice.features, expected, "{what}");
            assert_eq!(choice.fingerprint.is_some(), spmvs > 10_000, "{what}: who looked");
            let alone = choice.explanation[0].contains("chosen from features");
            assert_eq!(alone, spmvs == 10_000, "{what}: {choice:?}");
        }
        exact_products(&csr).iter().for_each(|product| product.check_exact(&what, &operator));
        assert_eq!(operator.to_csr().expect("it was copied"), csr, "{what}");
        operator.update(&csr).expect("the pattern is the same");
        let other: Csr<f64> = other.parse::<Spec>().expect("a class and rows").make();
        let refused = operator.update(&other).expect_err("the pattern is another").to_string();
        assert!(refused.contains("fingerprint"), "{what}: {refused}");
    }
}

#[test]
fn features_from_the_gpu_are_those_of_the_host() {
    let Some(gpu) = gpu() else { return };
    let specs = ["stencil27:40000", "rmat:65536", "uniform:50000", "heat:50000", "circuit:100000"];
    // Too many rows for a counter per key.
    let large = ["circuit:600000", "stencil7:500000"];
    let specs = specs.into_iter().chain(large).map(|spec| {
        let made = spec.parse::<Spec>().expect("a class and rows").make();
        (spec.to_string(), made)
    });
    let matrices = corpus::small().into_iter().chain(corpus::generated());
    let matrices = matrices.chain(edges::conversions()).chain(edges::features());
    for (name, csr) in matrices.chain(specs) {
        check_features(&gpu, &name, &csr);
        check_features(&gpu, &name, &csr.cast::<f32>());
    }
}

fn check_features<T: Scalar>(gpu: &Arc<Gpu>, name: &str, csr: &Csr<T>) {
    let analysis = Analysis::sampled(csr);
    let (sampled, counted) = (Features::sampled(&analysis), Features::of(&analysis));
    let same = |what: &str, there: &DeviceCsr<T>| {
        for (found, expected) in
            [(gpu.sample_features(there), &sampled), (gpu.features(there), &counted)]
        {
            let found = found.unwrap_or_else(|error| panic!("{what} of {name}: {error}"));
            for ((feature, found), (_, expected)) in found.iter().zip(expected.iter()) {
                let feature = feature.name;
                assert_eq!(found, expected, "{feature} of {name}, {}, {what}", T::PRECISION);
            }
            assert_eq!(found.iter().count(), expected.iter().count());
        }
    };
    let there = DeviceCsr::upload(gpu, csr).expect("memory suffices");
    same("narrow", &there);
    // Row pointers of 64 bits, which otherwise only much larger matrices have.
    let row_ptr: Vec<f64> = csr.row_ptr().iter().map(|&at| f64::from_bits(at as u64)).collect();
    let row_ptr = gpu.vector(&row_ptr).expect("memory suffices");
    let [_, col_idx, values] = there.addresses();
    let matrix = Matrix { wide: true, ..there.matrix() };
    // SAFETY: the arrays are those of a valid matrix and live until the end of this function.
    same("wide", &unsafe { DeviceCsr::from_raw(matrix, [row_ptr.address(), col_idx, values]) });
}

fn check_matrix<T: Scalar>(
    gpu: &Arc<Gpu>,
    name: &str,
    csr: &Csr<T>,
    all: &[Candidate],
    run: &mut BTreeMap<String, bool>,
) {
    let analysis = Analysis::of(csr).with_partitioning();
    let whole = csr.map_values(|value| T::from_f64((value.to_f64() * 3.0).round() % 8.0));
    let twice = whole.map_values(|value| value + value);
    let upload = |csr: &Csr<T>| Arc::new(DeviceCsr::upload(gpu, csr).expect("memory suffices"));
    let (csr_there, whole_there) = (upload(csr), upload(&whole));
    let twice_there = gpu.vector(twice.values()).expect("memory suffices");
    let (of_whole, of_twice) = (exact_products(&whole), exact_products(&twice));
    let with_bad = [0.5, f64::INFINITY, f64::NAN].map(|bad| {
        let mut x = check::vector::<T>(csr.ncols(), 5);
        x.iter_mut().step_by(7).for_each(|x| *x = T::from_f64(bad));
        Product::of(csr, T::ONE, x, T::ZERO, vec![T::from_f64(f64::NAN); csr.nrows()])
    });
    for basis in [Basis::Original, Basis::Permuted] {
        for candidate in all {
            let target = Target {
                device: &device_for(gpu, candidate, csr, &analysis),
                precision: T::PRECISION,
                basis,
                memory_limit: u64::MAX,
                stored: Default::default(),
            };
            if candidate.work(&analysis, &target).is_err() {
                continue;
            }
            let what = format!("{candidate} on {name}, {}, {basis:?}", T::PRECISION);
            let on_gpu = |there: &Arc<DeviceCsr<T>>, csr: &Csr<T>| {
                PreparedOperator::on_gpu(gpu, there, csr, &analysis, candidate, &target)
                    .unwrap_or_else(|error| panic!("{what}: {error}"))
            };
            let mut exact = on_gpu(&whole_there, &whole);
            let built = exact.on_device().is_some_and(|placed| placed.is_built());
            run.insert(candidate.to_string(), built);
            if std::env::var_os("ELLECT_TEST_ONCE").is_some() {
                of_whole[1].check_exact(&what, &exact);
                let there = exact.on_device_mut().expect("made on a GPU");
                // SAFETY: the vector holds as many values as the matrix has entries.
                unsafe { there.set_device_values(twice_there.address()) }
                    .unwrap_or_else(|error| panic!("{what}: {error}"));
                continue;
            }
            of_whole.iter().for_each(|product| product.check_exact(&what, &exact));
            exact.update_values(twice.values()).unwrap_or_else(|error| panic!("{what}: {error}"));
            let updated = format!("{what}, updated");
            of_twice.iter().for_each(|product| product.check_exact(&updated, &exact));
            let read_back = exact.to_csr().unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(read_back, twice, "{what}: read back");

            let mut exact = on_gpu(&whole_there, &whole);
            let there = exact.on_device_mut().expect("made on a GPU");
            // SAFETY: the vector holds as many values as the matrix has entries.
            unsafe { there.set_device_values(twice_there.address()) }
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            let updated = format!("{what}, updated on the device");
            of_twice.iter().for_each(|product| product.check_exact(&updated, &exact));
            let read_back = exact.to_csr().unwrap_or_else(|error| panic!("{updated}: {error}"));
            assert_eq!(read_back, twice, "{updated}: read back");

            let operator = on_gpu(&csr_there, csr);
            for product in &with_bad {
                check::compare(&what, &product.want, &product.by(&what, &operator))
                    .unwrap_or_else(|error| panic!("x[0] = {:?}: {error}", product.x.first()));
            }
        }
    }
}
