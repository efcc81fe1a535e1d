//! Matrices that a candidate does not suit are refused for one reason, on the host and on a GPU.

use std::sync::Arc;

use ellect::analysis::Analysis;
use ellect::cuda::{DeviceCsr, Gpu};
use ellect::device::Kind;
use ellect::format::{Candidate, candidates};
use ellect::{Csr, Scalar};

use super::corpus::{self, edges};
use super::turns::gpu;
use super::{original, part};

/// Formats that check on the GPU whether they apply, with the same reasons as on the host. Others
/// state other figures: bhll samples on the host, hdia counts slots of the smallest hack there.
const REFUSING: [&str; 11] = [
    "hub_ell",
    "cdia",
    "st_csr_vi",
    "hll_vi",
    "hll_f32",
    "hll_f16",
    "hll_bf16",
    "st_csr_f32",
    "st_csr_bf16",
    "csr_f32",
    "csr_f16",
];

#[test]
fn refusals_of_the_gpu_are_those_of_the_host() {
    let Some(gpu) = gpu() else { return };
    let mut all = candidates(Kind::Gpu);
    all.retain(|candidate| REFUSING.contains(&candidate.format.name));
    let mut refused = 0;
    let matrices = corpus::small().into_iter().chain(corpus::generated());
    for (turn, (name, csr)) in matrices.chain(edges::conversions()).enumerate() {
        refused += check_refusals(&gpu, &name, &csr, &part(&all, 2 * turn));
        refused += check_refusals(&gpu, &name, &csr.cast::<f32>(), &part(&all, 2 * turn + 1));
    }
    assert!(refused > 0);
}

/// Returns how many of these candidates the GPU and the host refuse for the same reason.
pub fn check_refusals<T: Scalar>(
    gpu: &Arc<Gpu>,
    name: &str,
    csr: &Csr<T>,
    all: &[Candidate],
) -> usize {
    let analysis = Analysis::of(csr);
    let there = Arc::new(DeviceCsr::upload(gpu, csr).expect("memory suffices"));
    let target = original::<T>(gpu.profile());
    let alike = |candidate: &&Candidate| {
        let what = format!("{candidate} on {name}, {}", T::PRECISION);
        match (candidate.work(&analysis, &target), gpu.convert(&there, candidate, &target)) {
            (Ok(_), Ok(Some(_))) => false,
            (_, Ok(None)) => {
                let is_left = candidate.format.name == "cdia" || what.contains("sort=rcm");
                assert!(is_left, "{what}: left to the host");
                false
            }
            (Err(reason), Err(error)) => {
                assert_eq!(error.to_string(), candidate.refused(&reason).to_string(), "{what}");
                true
            }
            (host, there) => panic!("{what}: host {host:?}, GPU {there:?}"),
        }
    };
    all.iter().filter(alike).count()
}
