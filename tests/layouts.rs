//! Layouts and their versions: host records are identified by `Storage::HOST_VERSION`, so a layout
//! must not change while its version stays.
//!
//! `tests/data/layouts.txt` has one line per candidate: its name, the version of its format, and a
//! hash of all arrays that it produces from the corpus. After a change, raise the version in the
//! module of the format, then rewrite the file:
//!
//! ```text
//! ELLECT_REWRITE_LAYOUTS=1 cargo test -p ellect --test layouts
//! ```

mod corpus;

use std::collections::BTreeMap;
use std::path::PathBuf;

use ellect::analysis::Analysis;
use ellect::device::{Device, Kind};
use ellect::format::{Basis, Candidate, Target, candidates};
use ellect::read::{self, Limits};
use ellect::{Csr, Scalar};
use rayon::prelude::*;
use xxhash_rust::xxh3::Xxh3;

/// If this variable is set, the test rewrites the file.
const REWRITE: &str = "ELLECT_REWRITE_LAYOUTS";

/// Generators without power, logarithm or cosine, which yield identical matrices on every machine.
const PLAIN: [&str; 9] = [
    "convection_diffusion",
    "stencil9",
    "stencil27",
    "elasticity",
    "heat",
    "circuit of 1500",
    "banded",
    "p2",
    "blocks5",
];

#[test]
fn a_layout_changes_only_with_its_version() {
    let now = layouts();
    let path = data("layouts.txt");
    let stored = stored(&path);
    for (candidate, (version, digest)) in &now {
        let Some((stored_version, stored_digest)) = stored.get(candidate) else { continue };
        assert!(
            digest == stored_digest || version != stored_version,
            "the arrays of {candidate} changed, its version did not: raise HOST_VERSION of its format \
             to {}, so that timings of the old layout are stale; then run {REWRITE}=1 cargo test -p \
             ellect --test layouts",
            version + 1
        );
    }
    if std::env::var_os(REWRITE).is_some() {
        let line = |(candidate, (version, digest)): (&String, &(u32, u64))| {
            format!("{candidate} {version} {digest:016x}\n")
        };
        std::fs::write(&path, now.iter().map(line).collect::<String>()).expect("writable");
        return;
    }
    assert!(
        now == stored,
        "{} is of other candidates or versions: run {REWRITE}=1 cargo test -p ellect --test layouts",
        path.display()
    );
}

fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// Reads the file, keyed by the candidate's current name; skips candidates that no longer exist.
fn stored(path: &std::path::Path) -> BTreeMap<String, (u32, u64)> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let line = |line: &str| {
        let mut words = line.split(' ');
        let candidate: Candidate = words.next()?.parse().ok()?;
        let version = words.next()?.parse().expect("a version");
        let digest = u64::from_str_radix(words.next()?, 16).expect("a digest");
        Some((candidate.to_string(), (version, digest)))
    };
    text.lines().filter_map(line).collect()
}

/// Computes version and digest of every candidate.
fn layouts() -> BTreeMap<String, (u32, u64)> {
    let mut all = candidates(Kind::Gpu);
    all.extend(candidates(Kind::Host));
    let mut digests: BTreeMap<String, (Candidate, Xxh3)> =
        all.into_iter().map(|c| (c.to_string(), (c, Xxh3::new()))).collect();
    for (_, csr) in matrices() {
        let (wide, narrow) = (Analysis::of(&csr), csr.cast::<f32>());
        let narrow_analysis = Analysis::of(&narrow);
        digests.par_iter_mut().for_each(|(_, (candidate, digest))| {
            add(digest, candidate, &csr, &wide);
            add(digest, candidate, &narrow, &narrow_analysis);
        });
    }
    for (_, csr) in corpus::complex() {
        let (seen, narrow) = (Analysis::of(&csr), csr.cast::<f32>());
        let narrow_seen = Analysis::of(&narrow);
        // Other formats have digests from before there were these matrices.
        let own = digests.values_mut().filter(|(one, _)| one.format.figures_of.is_some());
        for (candidate, digest) in own {
            add(digest, candidate, &csr, &seen);
            add(digest, candidate, &narrow, &narrow_seen);
        }
    }
    let version = |candidate: &Candidate| candidate.format.host_version;
    digests.into_iter().map(|(name, (c, digest))| (name, (version(&c), digest.digest()))).collect()
}

fn matrices() -> Vec<(String, Csr<f64>)> {
    let mut all = corpus::small();
    let generated = corpus::generated().into_iter();
    all.extend(generated.filter(|(name, _)| PLAIN.iter().any(|plain| name.starts_with(plain))));
    for name in ["circuit.mtx", "convection_diffusion.mtx", "elasticity.mtx"] {
        let csr = read::file(data(name), &Limits::default()).expect("a matrix");
        all.push((name.to_string(), csr));
    }
    all
}

/// Hashes the layouts of a matrix for every shipped device and both bases.
fn add<T: Scalar>(digest: &mut Xxh3, candidate: &Candidate, csr: &Csr<T>, seen: &Analysis<'_>) {
    for device in &Device::shipped() {
        for basis in [Basis::Original, Basis::Permuted] {
            let memory_limit = u64::MAX;
            let target = Target {
                device,
                precision: T::PRECISION,
                basis,
                memory_limit,
                stored: Default::default(),
            };
            let suits = candidate.work(seen, &target).is_ok();
            let layout = suits.then(|| candidate.convert(csr, seen, &target).ok()).flatten();
            let Some(layout) = layout else {
                digest.update(b"refused");
                continue;
            };
            digest.update(&layout.bytes().to_le_bytes());
            let order = layout.order().unwrap_or_default();
            let described = layout.on_device().expect("every layout describes its arrays");
            let arrays = described.arrays.iter().map(|array| array.bytes);
            for array in arrays.chain([bytemuck::cast_slice(order)]) {
                digest.update(&(array.len() as u64).to_le_bytes());
                digest.update(array);
            }
        }
    }
}
