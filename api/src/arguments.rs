//! Arguments that several commands share: the matrix, the limits of reading, and the form of the answer.

use std::path::PathBuf;

use clap::Args;
use ellect::read::Limits;

/// A matrix file.
#[derive(Debug, Args)]
pub struct Input {
    /// Matrix Market text, SciPy .npz or JSON CSR, plain, .gz or .zst; - for standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The limits of reading.
    #[command(flatten)]
    pub limits: ReadLimits,
}

/// A matrix file, or none where the matrix is generated.
#[derive(Debug, Args)]
pub struct OptionalInput {
    /// Matrix Market text, SciPy .npz or JSON CSR, plain, .gz or .zst; - for standard input
    #[arg(value_name = "FILE", required_unless_present = "generate", conflicts_with = "generate")]
    pub file: Option<PathBuf>,
    /// The limits of reading, and of generating.
    #[command(flatten)]
    pub limits: ReadLimits,
}

const READING: &str = "Limits of reading";

/// What reading may take; the defaults are those of [`Limits`].
#[derive(Debug, Args)]
pub struct ReadLimits {
    /// The most nonzeros to read
    #[arg(long, help_heading = READING, default_value_t = Limits::default().nonzeros, value_name = "N")]
    pub max_nonzeros: u64,
    /// The most bytes to read, also after decompression
    #[arg(long, help_heading = READING, default_value_t = Limits::default().bytes, value_name = "BYTES")]
    pub max_bytes: u64,
    /// The most rows, and likewise columns, beyond the number of nonzeros
    #[arg(long, help_heading = READING, default_value_t = Limits::default().empty_rows, value_name = "N")]
    pub max_empty_rows: u64,
}

impl ReadLimits {
    /// The limits as the readers take them.
    pub fn limits(&self) -> Limits {
        Limits {
            nonzeros: self.max_nonzeros,
            bytes: self.max_bytes,
            empty_rows: self.max_empty_rows,
            ..Limits::default()
        }
    }
}

/// The form of the answer.
#[derive(Clone, Copy, Debug, Args)]
pub struct Form {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
