//! Arguments of the command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use ellect::Precision;

use crate::options::Options;

/// Chooses the fastest storage format for sparse matrix-vector products.
#[derive(Debug, Parser)]
#[command(name = "ellect", version, after_help = "Exit codes: 0 yes, 1 no, 2 an error.")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Where this user's measurements and device profiles are [default: $ELLECT_DATA, or ellect
    /// in the XDG data home]
    #[arg(long, global = true, value_name = "DIR")]
    pub data: Option<PathBuf>,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Rank every storage format for a matrix, and say why
    Recommend {
        /// The matrix.
        #[command(flatten)]
        input: Input,
        /// What it is for.
        #[command(flatten)]
        options: Options,
        /// The form of the answer.
        #[command(flatten)]
        form: Form,
    },
    /// Show what the choice sees of a matrix
    Features {
        /// The matrix.
        #[command(flatten)]
        input: Input,
        /// The form of the answer.
        #[command(flatten)]
        form: Form,
    },
    /// List the storage formats and their parameters
    Formats {
        /// The form of the answer.
        #[command(flatten)]
        form: Form,
    },
    /// Compare the product of every candidate with the reference; exit code 1 where one is wrong
    Verify {
        /// The matrix.
        #[command(flatten)]
        input: Input,
        /// What it is for.
        #[command(flatten)]
        options: Options,
    },
    /// Time every candidate on a device of this machine, each after its product was checked
    Measure {
        /// The matrix.
        #[command(flatten)]
        input: Input,
        /// What it is for.
        #[command(flatten)]
        options: Options,
        /// Only candidates whose text begins so, `hll:hack=32` for instance; may be repeated
        #[arg(long, value_name = "TEXT")]
        only: Vec<String>,
        /// Print one JSON record a line, with all samples
        #[arg(long)]
        json: bool,
    },
    /// Time candidates over many matrices, and print the table of results
    Bench(crate::commands::bench::Bench),
    /// List the devices that choices can be made for
    Devices {
        /// Measure this machine and save its profile as the device cpu
        #[arg(long)]
        probe: bool,
        /// The form of the answer.
        #[command(flatten)]
        form: Form,
    },
    /// Write a generated matrix as Matrix Market text
    Generate {
        /// The class; a wrong one lists them all
        #[arg(value_name = "CLASS")]
        class: String,
        /// About so many rows
        #[arg(long, default_value_t = 1000, value_name = "N")]
        rows: usize,
        /// The same seed makes the same matrix
        #[arg(long, default_value_t = 1, value_name = "N")]
        seed: u64,
        /// Precision that values are rounded to: f64 or f32
        #[arg(long, default_value_t = Precision::F64)]
        precision: Precision,
        /// The file to write [default: standard output]
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Answer POST /recommend over HTTP
    Serve {
        /// Where to listen
        #[arg(long, default_value = "127.0.0.1:7272", value_name = "ADDRESS")]
        listen: SocketAddr,
        /// The most bytes of a request's body
        #[arg(long, default_value_t = 2 << 30, value_name = "BYTES")]
        max_body: u64,
        /// The most nonzeros of a matrix
        #[arg(long, default_value_t = 1 << 30, value_name = "N")]
        max_nonzeros: u64,
    },
}

/// A matrix file.
#[derive(Debug, Args)]
pub struct Input {
    /// Matrix Market text, SciPy .npz or JSON CSR, plain, .gz or .zst; - for standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The most nonzeros to read
    #[arg(long, default_value_t = 1 << 36, value_name = "N")]
    pub max_nonzeros: u64,
}

/// The form of the answer.
#[derive(Clone, Copy, Debug, Args)]
pub struct Form {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
