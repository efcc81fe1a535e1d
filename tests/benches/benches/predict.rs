//! Prediction: time of a model for all candidates of a matrix, on one core.
//!
//! Run `cargo bench -p ellect-benches --bench predict`; allocations are counted.

use divan::{AllocProfiler, Bencher, black_box};
use ellect::analysis::Analysis;
use ellect::device::{Device, Kind};
use ellect::format::candidates;
use ellect::generate::Spec;
use ellect::model::{Model, Predictor};
use ellect::{Precision, Tuner, Workload, generate};

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

/// The shipped model.
fn predictor() -> Predictor {
    let h200 = ellect::device::find("h200").expect("it ships");
    let model = Model::shipped(&h200, Precision::F64).expect("it is valid");
    Predictor::new(model.expect("it ships"))
}

/// Loads the shipped model and prepares it: the first part of the first answer.
#[divan::bench]
fn load_the_model() -> Predictor {
    predictor()
}

/// Answers for matrices of 5,000 and 50,000 nonzeros with a loaded model, as the service does after
/// its first answer.
#[divan::bench(args = ["stencil5:1000", "circuit:9000"], sample_count = 50)]
fn later_answer(bencher: Bencher<'_, '_>, spec: &str) {
    let h200 = ellect::device::find("h200").expect("it ships");
    let tuner = Tuner::without_models(h200).with_model(predictor());
    let csr = spec.parse::<Spec>().expect("a class").make();
    bencher.bench_local(|| tuner.recommend(black_box(&csr), &Workload::default()));
}

/// Reads the inputs of the tree that decides whether analysing the matrix pays.
#[divan::bench(sample_count = 20)]
fn row_lengths(bencher: Bencher<'_, '_>) {
    let csr = generate::by_name("circuit", 1_000_000, 1).expect("a class");
    bencher.bench_local(|| Analysis::of(black_box(&csr)).row_lengths().max());
}

/// Reads the other quick inputs: a few entries of a matrix that no cache holds.
#[divan::bench(sample_count = 20)]
fn x_sectors_at_sight(bencher: Bencher<'_, '_>) {
    let csr = generate::by_name("stencil27", 1_000_000, 1).expect("a class");
    let mut other = vec![0u8; 1 << 28];
    let evicted = || other.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
    bencher
        .with_inputs(evicted)
        .bench_local_values(|()| Analysis::of(black_box(&csr)).x_sectors_at_sight(Precision::F64));
}

/// Predicts times of all candidates of a GPU, with the confidence: the hot path.
#[divan::bench]
fn all_candidates(bencher: Bencher<'_, '_>) {
    let predictor = predictor();
    let features: Vec<f64> =
        (0..predictor.model().features.len()).map(|i| (i % 5) as f64).collect();
    let terms = std::array::from_fn(|i| 1.0 + (i % 3) as f64);
    let all = candidates(Kind::Gpu);
    let mut inputs = predictor.inputs(&features);
    bencher.bench_local(|| {
        let spmv_s = all.iter().filter_map(|c| predictor.spmv_s(&mut inputs, c, &terms));
        spmv_s.sum::<f64>() + predictor.model().applicability.confidence(black_box(&features))
    });
}

/// Predicts with features and estimates of a matrix without any cached analysis: the full work of a
/// choice.
#[divan::bench(sample_count = 10)]
fn from_the_pattern(bencher: Bencher<'_, '_>) {
    let predictor = predictor();
    let csr = generate::by_name("stencil7", 1_000_000, 1).expect("a class");
    let devices = Device::shipped();
    let device = devices.iter().find(|device| device.kind == Kind::Gpu).expect("shipped");
    let target = Workload::default().target(device, Precision::F64);
    bencher.bench_local(|| predictor.predict(&Analysis::sampled(black_box(&csr)), &target));
}
