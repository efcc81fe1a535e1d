//! `ellect features` shows the features of a matrix.

use std::path::Path;

use anyhow::{Result, anyhow};
use ellect::analysis::Analysis;
use ellect::features::Feature;
use ellect::measure::Backend;

use super::{Answer, read_matrix};
use crate::arguments::{Form, Input};
use crate::output::{print, print_json, table};

/// Prints the features of a matrix, computed on `device`, and the requested costly features, which
/// this host computes.
pub fn run(
    input: &Input,
    costly: &[&'static Feature],
    device: &str,
    form: Form,
    data: &Path,
) -> Result<Answer> {
    let backend = Backend::open(device, data)?;
    let csr = read_matrix::<f64>(&input.file, &input.limits.options())?;
    let (mut features, took) = backend.features(&csr, 1)?;
    let analysis = Analysis::new(csr.pattern());
    for feature in costly {
        let refused = |reason| anyhow!("{}: {reason}", feature.name);
        features = features.with(feature, &analysis).map_err(refused)?;
    }
    if form.json {
        print_json(&features)?;
        return Ok(Answer::Yes);
    }
    let rows = features.iter().map(|(feature, value)| {
        let value = match value {
            v if v.fract() == 0.0 && v.abs() < 1e15 => format!("{v}"),
            v if v.abs() < 0.01 => format!("{v:.3e}"),
            v => format!("{v:.4}"),
        };
        vec![feature.name.to_string(), value, feature.unit.to_string(), feature.doc.to_string()]
    });
    let rows: Vec<_> = rows.collect();
    print(&table(&["feature", "value", "unit", "meaning"], rows, &[0, 2, 3]))?;
    print(&format!("Without those that cost more: {:.1} us on {device}.\n", took.min_s * 1e6))?;
    Ok(Answer::Yes)
}
