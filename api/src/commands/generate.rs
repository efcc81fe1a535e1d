//! `ellect generate`.

use std::fs::File;
use std::io;
use std::path::Path;

use anyhow::{Context, Result};
use ellect::{Precision, generate, write};

use super::Answer;

/// Writes a generated matrix as Matrix Market text.
pub fn run(
    class: &str,
    rows: usize,
    seed: u64,
    precision: Precision,
    to: Option<&Path>,
) -> Result<Answer> {
    let csr = generate::by_name(class, rows, seed)?;
    let sink: Box<dyn io::Write> = match to {
        Some(path) => {
            Box::new(File::create(path).with_context(|| format!("making {}", path.display()))?)
        }
        None => Box::new(io::stdout().lock()),
    };
    match precision {
        Precision::F32 => write::matrix_market(&csr.cast::<f32>(), sink)?,
        Precision::F64 => write::matrix_market(&csr, sink)?,
    }
    Ok(Answer::Yes)
}
