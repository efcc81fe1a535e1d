//! Features and conversions: nanoseconds per nonzero.
//!
//! Run `cargo bench -p ellect-benches --bench features`; the counter shows nonzeros per second.
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

use divan::Bencher;
use divan::counter::ItemsCount;
use ellect::analysis::Analysis;
use ellect::device::{Device, Kind};
use ellect::features::Features;
use ellect::format::{Basis, Candidate, FORMATS, Format, Params, Target};
use ellect::{Csr, Precision, PreparedOperator, generate};

fn main() {
    divan::main();
}

const MATRICES: [(&str, usize); 4] =
    [("stencil7", 600_000), ("elasticity", 100_000), ("circuit", 500_000), ("uniform", 250_000)];

/// Thread counts: one, and all.
const THREADS: [usize; 2] = [1, 0];

fn matrix((class, rows): (&str, usize)) -> Csr<f64> {
    generate::by_name(class, rows, 1).expect("the class exists")
}

/// Computes all cheap features of a pattern without any cached analysis.
#[divan::bench(args = MATRICES, consts = THREADS, sample_count = 10)]
fn features<const N: usize>(bencher: Bencher<'_, '_>, which: (&str, usize)) {
    let csr = matrix(which);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(N).build().expect("a pool of threads");
    bencher
        .counter(ItemsCount::new(csr.nnz()))
        .bench_local(|| pool.install(|| Features::of(&Analysis::new(csr.pattern()))));
}

fn defaults() -> Vec<Candidate> {
    let of =
        |format: &'static Format| Candidate { format, params: Params::defaults(format.params) };
    FORMATS.iter().map(of).collect()
}

/// Converts the elasticity matrix to each format with its defaults, on all threads.
#[divan::bench(args = defaults(), sample_count = 10)]
fn convert(bencher: Bencher<'_, '_>, candidate: &Candidate) {
    let csr = matrix(MATRICES[1]);
    let devices = Device::shipped();
    let device = devices.iter().find(|device| device.kind == Kind::Host).expect("shipped");
    let (precision, basis) = (Precision::F64, Basis::Original);
    let target =
        Target { device, precision, basis, memory_limit: u64::MAX, stored: Default::default() };
    if let Err(reason) = PreparedOperator::new(&csr, candidate, &target) {
        println!("{reason}");
        return;
    }
    bencher.counter(ItemsCount::new(csr.nnz())).bench_local(|| {
        PreparedOperator::new(&csr, candidate, &target).expect("it did not refuse before")
    });
}
