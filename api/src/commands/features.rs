//! `ellect features`.

use anyhow::Result;
use ellect::features::Features;
use ellect::structure::Structure;

use super::{Answer, read_matrix};
use crate::cli::{Form, Input};
use crate::output::{print, print_json, table};

/// Prints what the choice sees of a matrix.
pub fn run(input: &Input, form: Form) -> Result<Answer> {
    let csr = read_matrix::<f64>(input)?;
    let features = Features::of(&Structure::new(csr.pattern()));
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
    Ok(Answer::Yes)
}
