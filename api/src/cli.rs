//! Command line arguments.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Parser, Subcommand};
use ellect::Precision;
use ellect::features::{COSTLY, Feature, find_costly};
use ellect::generate::Spec;

use crate::arguments::{Form, Input, OptionalInput};
use crate::options::{Options, Product};
use crate::shared::Address;

/// Chooses the fastest storage format for sparse matrix-vector products.
#[derive(Debug, Parser)]
#[command(
    name = "ellect",
    version,
    after_help = "Exit codes: 0 done, 1 a product is wrong (verify), records are bad (wisdom verify,\nimport) or a figure fell (evaluate), 2 an error."
)]
pub struct Cli {
    /// The subcommand to run.
    #[command(subcommand)]
    pub command: Command,
    /// Folder of this user's measurements and device profiles [default: $ELLECT_DATA, or ellect in
    /// the XDG data home]
    #[arg(long, global = true, value_name = "DIR", display_order = 900)]
    pub data: Option<PathBuf>,
    /// Use no stored measurements, and store none
    #[arg(long, global = true, display_order = 901)]
    pub no_wisdom: bool,
    /// Database of measurements that several hosts share, postgres://USER@HOST/DATABASE, between this
    /// user's and those that ship; api/OPERATING.md tells how to make one [default:
    /// $ELLECT_SHARED_WISDOM]
    #[arg(
        long,
        global = true,
        env = "ELLECT_SHARED_WISDOM",
        hide_env = true,
        hide_default_value = true,
        value_name = "URL",
        display_order = 902
    )]
    pub shared_wisdom: Option<Address>,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Rank every storage format for a matrix, and explain the choice
    #[command(after_help = RECOMMEND_JSON)]
    Recommend {
        /// The matrix, unless it is generated.
        #[command(flatten)]
        input: OptionalInput,
        /// The workload and the effort of the choice.
        #[command(flatten)]
        options: Options,
        /// Say why: what limits the candidates, what comes next, and rules of thumb
        #[arg(long)]
        why: bool,
        /// The output format.
        #[command(flatten)]
        form: Form,
    },
    /// Write a matrix in the arrays of a format, and a CUDA program that multiplies by them
    #[command(after_help = CONVERT_FILES, mut_arg("top", hidden), mut_arg("fields", hidden))]
    Convert {
        /// The matrix, unless it is generated.
        #[command(flatten)]
        input: OptionalInput,
        /// The format and the files.
        #[command(flatten)]
        convert: crate::commands::convert::Files,
        /// The device, and the workload and effort of the choice for `--to best`.
        #[command(flatten)]
        options: Options,
        /// The output format.
        #[command(flatten)]
        form: Form,
    },
    /// Show the features of a matrix that the choice uses
    #[command(after_help = FEATURES_JSON)]
    Features {
        /// The matrix.
        #[command(flatten)]
        input: Input,
        /// Add a feature that costs more than the others; several with commas
        #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = costly())]
        with: Vec<&'static Feature>,
        /// Device of this machine that computes the features: cpu, or cuda:0 with the feature cuda
        #[arg(long, default_value = "cpu", value_name = "NAME")]
        device: String,
        /// The output format.
        #[command(flatten)]
        form: Form,
    },
    /// List the storage formats and their parameters
    #[command(after_help = FORMATS_JSON)]
    Formats {
        /// The output format.
        #[command(flatten)]
        form: Form,
    },
    /// Compare the product of every candidate with the reference; exit code 1 if one is wrong
    Verify {
        /// The matrix.
        #[command(flatten)]
        input: Input,
        /// The device, precision and basis of the product.
        #[command(flatten)]
        product: Product,
    },
    /// Time every candidate on a device of this machine, after checking its product
    #[command(after_help = MEASURE_JSON)]
    Measure {
        /// The matrix.
        #[command(flatten)]
        input: Input,
        /// The candidates to time, and how.
        #[command(flatten)]
        measure: crate::commands::measure::Measure,
    },
    /// List, export, import, verify or prune stored measurements
    #[command(after_help = WISDOM_JSON)]
    Wisdom {
        /// The operation on the stored measurements.
        #[command(subcommand)]
        command: crate::commands::wisdom::WisdomCommand,
    },
    /// Time candidates on many matrices, and print a table of results
    #[command(after_help = BENCH_JSON)]
    Bench(crate::commands::bench::Bench),
    /// List the devices that ellect can choose for
    #[command(after_help = DEVICES_JSON)]
    Devices {
        /// Measure this machine and save its profile as the device cpu
        #[arg(long)]
        probe: bool,
        /// The output format.
        #[command(flatten)]
        form: Form,
    },
    /// List the models that predict, and undo the installation of one
    Models {
        /// The operation on the models.
        #[command(subcommand)]
        command: crate::commands::models::ModelsCommand,
    },
    /// Write a generated matrix as uncompressed Matrix Market text, whatever the file's extension
    Generate {
        /// Matrix to generate: CLASS:ROWS for about ROWS rows, then :rcm or :random for another
        /// order, then :seed=N for another matrix of the class
        #[arg(value_name = "CLASS:ROWS", required_unless_present = "list")]
        spec: Option<Spec>,
        /// List the classes instead
        #[arg(long, conflicts_with = "spec")]
        list: bool,
        /// Precision to round the values to: f64 or f32
        #[arg(long, default_value_t = Precision::F64)]
        precision: Precision,
        /// The file to write [default: standard output]
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Time candidates that the parent process requests; other commands start this process
    #[command(hide = true)]
    Worker {
        /// Device of this machine
        #[arg(long, value_name = "NAME")]
        device: String,
    },
    /// Measure a corpus on a device of this machine, then train and evaluate models from it
    Tune(crate::commands::tune::Tune),
    /// Train models on records of measurements
    Train(crate::commands::train::Train),
    /// Fit the kernel performance figures in a device's profile to records of measurements
    Fit(crate::commands::train::Profile),
    /// Evaluate how well models choose, from records of measurements; times nothing
    #[command(after_help = EVALUATE_JSON)]
    Evaluate(crate::commands::evaluate::Evaluate),
    /// Answer POST /recommend over HTTP
    Serve(crate::commands::serve::Serve),
}

/// Hides an option that a command shares with others and does not use.
fn hidden(option: clap::Arg) -> clap::Arg {
    option.hide(true)
}

/// Parses the name of a costly feature, one that is computed only on request.
fn costly() -> impl TypedValueParser<Value = &'static Feature> {
    let names = PossibleValuesParser::new(COSTLY.iter().map(|feature| feature.name));
    names.try_map(|name| find_costly(&name))
}

const RECOMMEND_JSON: &str = "\
--json prints one object, the answer of POST /recommend:
  choice             the candidate to take: format:parameter=value,...
  baseline           what it is compared with: candidate, spmv_us, setup_us (its own preparation)
  speedup            of one product over the baseline: value, and low and high, which hold it in 9 of
                     10 cases
  confidence         of the model, 0 to 1: how similar its matrices are; null without a model
  model              that predicted: id, device, trained_at (seconds since 1970, or null), matrices
  ranking            the candidates that suit, the choice first, then by total_us:
    candidate, format, parameters (an object)
    spmv_us          time of one product
    spmv_error       share that 9 of 10 errors of spmv_us stay under; 0 where it is not known
    convert_us       time of the conversion from CSR
    total_us         conversion, updates of values and all products
    bytes            of the layout
    source           measured, predicted or estimated
    break_even_spmvs products from which on it beats the baseline with its set-up; null where it never
                     does
  refused            the candidates that do not suit: candidate, reason
  features           an object of numbers, as `ellect features --json` prints it
  device, precision, spmvs
  vectors            of each product; not there if it is 1
  transposed         with --transposed: the answer for products with the transpose, an object with these
                     keys; null where the matrix is symmetric, whose choice is for all products
  fingerprint        of the pattern, 32 hexadecimal digits; null where --mode prepare chooses
                     without an analysis of the matrix
  explanation        a list of sentences";

const CONVERT_FILES: &str = "\
--to best is the choice of `ellect recommend` with the same options.

The .npz file is not compressed. numpy.load reads from it
  NAME               each array of the layout; the table that this command prints has their types,
                     shapes and meanings, api/LAYOUTS.md those of all formats
  basis_order        with --basis permuted, where rows were reordered: row and column of the matrix that
                     each one of the permuted basis is
  layout.json        as bytes, one JSON object: schema, candidate, format, version, parameters,
                     precision, basis, device, nrows, ncols, nnz, numbers (an object: rows of a slice,
                     for instance), arrays (a list of name, dtype, shape, meaning)

--emit cuda writes two more files: one self-contained program, which `nvcc FILE.cu` builds, with the
kernels of the product, their launches for this matrix, a check against CSR on the host (exit code 1
if a product is wrong) and a timing; and beside it FILE.bin, the arrays and the matrix, which it reads.

--json prints layout.json.

  ellect convert a.mtx --to hll:col=16 --device h200 -o a.npz
  ellect convert a.mtx --to best --spmvs 1e6 --device h200 -o a.npz --emit cuda
  nvcc -O3 -arch=native a.cu -o product && ./product";

const FEATURES_JSON: &str = "\
--json prints one flat object of numbers: the names of the table, with their values";

const FORMATS_JSON: &str = "\
--json prints a list: name, title, suits, source, and parameters, a list of name, doc, values, \
default, gpu and host (the values tried there)";

const WISDOM_JSON: &str = "\
Records are kept in DIR/wisdom, one process at a time; a service that runs has them open.
With --shared-wisdom, the records of other hosts are read below these and above those that ship, and
all of these are sent to the shared database; while it is away, they wait in DIR (the outbox).
export writes, and import reads, one JSON object a line:
  kind               structure: fingerprint, source, family, nrows, ncols, nnz, features
                     measurement: as `ellect measure --json` prints it
--json prints, of
  list               a list: source, fingerprint, nrows, nnz, device, precision, basis, measurements,
                     timed, best (a candidate), spmv_us
  import             taken, known, skipped
  verify             structures, measurements, bad
  prune              removed
  shared             server, state, schema, reads_only, records, contributors, outbox";

const MEASURE_JSON: &str = "\
--json prints one record a line, first that of the matrix (kind is structure), then (kind is
measurement) fingerprint, candidate, device, threads, precision, basis, protocol (with vectors, if a product has
several), and
  driver, kernels    what it ran on, and the names and hashes of what ran
  taken_at           seconds since 1970
  state              what the device tells of itself: clock_mhz, memory_mhz, ecc, throttle, ...
  outcome            timed, refused, wrong or failed
  reason             where it is not timed
  spmv, convert      raw_s (every sample), min_s, median_s, spread
  reruns             spmv of later runs, a list, where `tune --rerun` made some
  products_per_sample, update_s, bytes, copies";

const BENCH_JSON: &str = "\
--json prints one record a line: matrix, nrows, ncols, nnz, then what a measurement of
`ellect measure --json` holds, without kind. Tables give medians of samples.";

const EVALUATE_JSON: &str = "\
--json prints a list, an object for each precision:
  device, precision, cases (matrices), large (of at least 1e6 nonzeros), families, trials (candidates
  timed), plan (learner), profile_too (whether the profile left families out too), as_is
  figures            name, key, value, bound (at_least or at_most), reached (by what it is compared with)
  rows               of each rule that chooses: all and large, each with cases, best_over_chosen
                     (geometric mean), rms_regret, worst, worst_source, speedup (over the baseline),
                     losses (share slower than it by over 2 %)
  totals, there      of matrices on the host, and on the device, for each number of products: spmvs,
                     speedup, best (of the least totals), fixed (the best choice for all matrices) and
                     fixed_speedup, losses; shares chosen by_size, sampled, counted and analysed
  small, large_totals   totals and there of matrices below 1e6 nonzeros, and of the others
  median_error       of predicted times of candidates within twice the best
  again              how what was fastest in one run of timings does in the next: cases,
                     best_over_chosen, worst, worst_source; null where nothing ran twice
  classes            class, cases, best_over_chosen, speedup, confidence; left_out and
                     left_out_confidence where none of the class was seen";

const DEVICES_JSON: &str = "\
--json prints a list of profiles, as they are kept in DIR/devices/NAME.json:
  schema, name, kind, title, source (of the figures), capability (of a GPU), fitted, kernels (what
  formats and candidates reach, found by `ellect fit`)
  read_gbps, far_gbps, cache_gbps, gather_gbps   from memory: a stream, scattered 32-byte sectors; from
                     the last-level cache, likewise; 1e9 bytes a second
  cache_bytes, near_bytes   of the last-level cache, of the one next to a processor
  lookup_gps         sectors looked up in the nearest caches, 1e9 a second
  processors, threads_per_processor, clock_ghz, shared_bytes (of a block), memory_bytes
  step_ns, launch_s  of an entry of a row after another, of a launch
  link_gbps          to the host
  convert_gbps, convert_s, sort_ns, partition_ns   of conversions: bytes a second, the time besides, a
                     key to sort, an edge to partition
  margin             by which share CSR must take longer than what was not timed";

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn arguments_do_not_contradict_each_other() {
        super::Cli::command().debug_assert();
    }
}
