//! Arguments shared by several commands: the matrix, the limits of reading, and the output format.

use std::path::PathBuf;

use clap::Args;
use ellect::read::{self, Limits};
use ellect::units::count;

use crate::options::{ComplexAs, reading_of};

/// A matrix file and the limits of reading it.
#[derive(Debug, Args)]
pub struct Input {
    /// Matrix Market, SciPy .npz, Rutherford-Boeing, PETSc, MATLAB or JSON; plain, .gz, .zst, .bz2 or
    /// .xz, or in a .tar or .zip (ARCHIVE:NAME picks a file of it); - for standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The limits of reading.
    #[command(flatten)]
    pub limits: ReadLimits,
}

/// A matrix file, or none if the matrix is generated.
#[derive(Debug, Args)]
pub struct OptionalInput {
    /// Matrix Market, SciPy .npz, Rutherford-Boeing, PETSc, MATLAB or JSON; plain, .gz, .zst, .bz2 or
    /// .xz, or in a .tar or .zip (ARCHIVE:NAME picks a file of it); - for standard input
    #[arg(value_name = "FILE", required_unless_present = "generate", conflicts_with = "generate")]
    pub file: Option<PathBuf>,
    /// The limits of reading and of generating.
    #[command(flatten)]
    pub limits: ReadLimits,
}

const READING: &str = "Limits of reading";

/// Limits on the size of a matrix that is read; the defaults come from [`Limits`].
#[derive(Debug, Args)]
pub struct ReadLimits {
    /// Maximum number of nonzeros to read
    #[arg(long, help_heading = READING, default_value_t = Limits::default().nonzeros, value_name = "N", value_parser = count)]
    pub max_nonzeros: u64,
    /// Maximum number of bytes to read, before and after decompression
    #[arg(long, help_heading = READING, default_value_t = Limits::default().bytes, value_name = "BYTES", value_parser = count)]
    pub max_bytes: u64,
    /// Maximum number of rows, and likewise of columns, in addition to the number of nonzeros
    #[arg(long, help_heading = READING, default_value_t = Limits::default().empty_rows, value_name = "N", value_parser = count)]
    pub max_empty_rows: u64,
    /// Read complex and hermitian matrices whose imaginary parts are all zero
    #[arg(long, help_heading = READING)]
    pub real_part: bool,
    /// Read a complex matrix: blocks, as the real matrix of twice as many rows and columns in which
    /// each entry a + bi is the block [[a, -b], [b, a]]
    #[arg(long, help_heading = READING, value_name = "HOW", conflicts_with = "real_part")]
    pub complex: Option<ComplexAs>,
}

impl ReadLimits {
    /// Returns the limits in the type that the readers expect.
    pub fn limits(&self) -> Limits {
        Limits {
            nonzeros: self.max_nonzeros,
            bytes: self.max_bytes,
            empty_rows: self.max_empty_rows,
            ..Limits::default()
        }
    }

    /// Returns the options of reading in the type that the readers expect.
    pub fn options(&self) -> read::Options {
        let complex = reading_of(self.complex, self.real_part);
        read::Options { limits: self.limits(), complex, ..read::Options::default() }
    }
}

/// The output format.
#[derive(Clone, Copy, Debug, Args)]
pub struct Form {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
