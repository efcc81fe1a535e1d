//! Cases that the tests of several modules share.

use std::collections::BTreeMap;

use ellect::Precision;
use ellect::analysis::Analysis;
use ellect::cost::{Cost, Source};
use ellect::device::Kind;
use ellect::features::Features;
use ellect::format::CSR;
use ellect::unstable::cost::TERMS;

use crate::case::{Case, Trial};

/// Returns a case of a generated matrix, without trials.
pub fn case(class: &str, rows: usize) -> Case {
    let csr = ellect::generate::by_name(class, rows, 1).expect("a class");
    let analysis = Analysis::of(&csr);
    let features = Features::of(&analysis);
    Case {
        vectors: 1,
        source: class.into(),
        family: class.into(),
        fingerprint: analysis.fingerprint(),
        device: "cpu".into(),
        kind: Kind::Host,
        margin: 0.0,
        precision: Precision::F64,
        nrows: csr.nrows() as u64,
        nnz: csr.nnz() as u64,
        baseline_estimate_s: 1e-3,
        analysis_s: 0.0,
        features: features.iter().map(|(f, value)| (f.name.to_string(), value)).collect(),
        trials: Vec::new(),
        untimed: BTreeMap::new(),
    }
}

/// Returns a trial with this time of one product, in microseconds.
pub fn trial(name: &str, spmv_us: f64) -> Trial {
    let spmv_s = spmv_us * 1e-6;
    let convert_s = if name == CSR { 0.0 } else { 1e-3 };
    let source = Source::Estimated;
    Trial {
        candidate: name.parse().expect("a candidate"),
        name: name.to_string(),
        terms: [1.0; TERMS.len()],
        estimate: Cost { convert_s, update_s: 0.0, spmv_s, bytes: 1, source },
        convert_s,
        spmv_s,
        conversion_is_known: false,
        runs_s: Vec::new(),
    }
}
