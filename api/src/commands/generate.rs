//! `ellect generate` writes a generated matrix.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use ellect::generate::{CLASSES, Spec};
use ellect::{Precision, write};

use super::Answer;
use crate::output::{note, print};

/// Writes a generated matrix as Matrix Market text; for a file, it also reports the generation
/// time.
pub fn run(spec: &Spec, precision: Precision, to: Option<&Path>) -> Result<Answer> {
    let start = Instant::now();
    let csr = spec.make();
    let made_s = start.elapsed().as_secs_f64();
    let sink: Box<dyn io::Write> = match to {
        Some(path) => {
            Box::new(File::create(path).with_context(|| format!("making {}", path.display()))?)
        }
        None => Box::new(io::stdout().lock()),
    };
    if to.is_some() {
        let (nrows, nnz) = (csr.nrows(), csr.nnz());
        note(&format!("{spec}: {nrows} rows, {nnz} nonzeros, made in {made_s:.2} s"));
    }
    match precision {
        Precision::F32 => write::matrix_market(&csr.cast::<f32>(), sink)?,
        Precision::F64 => write::matrix_market(&csr, sink)?,
    }
    Ok(Answer::Yes)
}

/// Prints the description, entries per row and orders of each class of matrices.
pub fn list() -> Result<Answer> {
    let mut text = String::new();
    for class in CLASSES {
        let orders: Vec<_> = class.orders.iter().map(ToString::to_string).collect();
        text += &format!("{}  {}\n", class.name, class.doc);
        text += &format!("    about {} entries a row; {}\n", class.per_row, orders.join(", "));
    }
    print(&text)?;
    Ok(Answer::Yes)
}
