//! The workload and effort of a recommendation, with the same names on the command line and in a
//! query.

use std::path::Path;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, ValueEnum};
use ellect::choose::{Choice, Effort, TransposedChoice, ValuesUse, Workload};
use ellect::device::Device;
use ellect::error::At;
use ellect::format::{Basis, StoredValues, Target};
use ellect::generate::Spec;
use ellect::measure::{Backend, Worker};
use ellect::read::{self, Complex, Limits};
use ellect::tuner::Progress;
use ellect::units::count;
use ellect::unstable::choose::Mode;
use ellect::{Csr, CsrRef, Error, Precision, Result, Scalar, Tuner};
use serde_json::Value;

use crate::query::parsed;
use crate::started;

/// The device, precision, basis and memory limit of a product.
#[derive(Clone, Debug, Args)]
pub struct Product {
    /// Device that multiplies; `ellect devices` lists them, cuda:0 is this machine's first GPU
    #[arg(long, default_value = "cpu", value_name = "NAME")]
    pub device: String,
    /// Precision of the values: f64 or f32
    #[arg(long, default_value_t = Precision::F64)]
    pub precision: Precision,
    /// Vectors of each product: 1, or more for several right-hand sides at a time
    #[arg(long, default_value_t = 1, value_name = "K", value_parser = vectors)]
    pub vectors: usize,
    /// Basis of x and y: original, or permuted for Krylov solvers
    #[arg(long, default_value_t = Basis::Original)]
    pub basis: Basis,
    /// Storage of the values: exact, or a type to which formats may round them: f32 for a matrix of f64,
    /// f16 or bf16 for one of f32; x, y and sums keep their precision, and row i errs by at most r *
    /// sum_j |a_ij| |x_j| with r = 2^-24 (f32), 2^-11 (f16) or 2^-8 (bf16)
    #[arg(id = "values", long = "values", default_value_t = StoredValues::Exact, value_name = "FORM")]
    pub stored: StoredValues,
    /// Maximum number of bytes of a layout other than CSR's, 64G for instance [default: the device's
    /// memory]
    #[arg(long, value_name = "BYTES", value_parser = count)]
    pub memory_limit: Option<u64>,
}

/// Parses a number of vectors.
pub fn vectors(text: &str) -> std::result::Result<usize, String> {
    let vectors = count(text)?;
    let workload =
        Workload { vectors: vectors.try_into().unwrap_or(usize::MAX), ..Workload::default() };
    workload.check(Precision::F64).map_err(|error| error.to_string())?;
    Ok(workload.vectors)
}

/// Tells whether a name is of a GPU of this machine, as `cuda:0` is.
pub fn is_gpu_here(device: &str) -> bool {
    device.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("cuda:"))
}

/// Opens a backend that times on a device of this machine, in a separate process.
///
/// For a device that is known only by its profile, the backend cannot time.
///
/// # Errors
/// If there is no such device, or the process does not start.
pub fn timing_backend(device: &str, data: &Path) -> Result<Backend> {
    if !is_gpu_here(device) {
        let backend = Backend::open(device, data)?;
        if backend.check().is_err() {
            return Ok(backend);
        }
    }
    let unknown = |source| Error::Io { what: "looking for this program".into(), source };
    let (program, mut arguments) = started::again().map_err(unknown)?;
    arguments.extend([
        "--data".into(),
        data.into(),
        "worker".into(),
        "--device".into(),
        device.into(),
    ]);
    Ok(Backend::through(Worker::start(program, arguments)?))
}

impl Product {
    /// Opens the device with this name, with its profile from `data` if there is one.
    ///
    /// # Errors
    /// If there is no such device.
    pub fn backend(&self, data: &Path) -> Result<Backend> {
        Backend::open(&self.device, data)
    }

    /// Returns the target of layouts on this device that these options describe.
    pub fn target<'a>(&self, device: &'a Device) -> Target<'a> {
        self.workload().target(device, self.precision)
    }

    /// Returns the workload that these options describe; everything else has its default.
    pub fn workload(&self) -> Workload {
        let Product { basis, vectors, memory_limit, stored, .. } = *self;
        Workload { basis, vectors, memory_limit, stored, ..Workload::default() }
    }
}

/// Options of a recommendation.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// The device, precision, basis and memory limit of a product.
    #[command(flatten)]
    pub product: Product,
    /// Products expected with this pattern, 1e6 or 1.5M for instance
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = count)]
    pub spmvs: u64,
    /// Products expected with the transposed matrix, which then has a choice of its own
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = count)]
    pub transposed: u64,
    /// Number of times that the values change while the pattern stays the same
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = count)]
    pub updates: u64,
    /// Effort of the choice: estimate, predict, measure or exhaustive
    #[arg(long, default_value_t = Effort::default())]
    pub effort: Effort,
    /// Answer to show: rank ranks every candidate, prepare shows the choice of a program that
    /// prepares the matrix, where the time of the decision counts
    #[arg(long, default_value_t = Mode::default())]
    pub mode: Mode,
    /// Time limit of all measurements, 90s or 2m for instance
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub budget: Option<Duration>,
    /// Choose for a generated matrix instead of a file or body: CLASS:ROWS, elasticity:600000 for
    /// instance; `ellect generate --list` names the classes
    #[arg(long, value_name = "CLASS:ROWS")]
    pub generate: Option<Spec>,
    /// Number of candidates to list, and of refused ones; 0 for all
    #[arg(long, default_value_t = 0, value_name = "K")]
    pub top: usize,
    /// Keys of the JSON answer to keep, choice,speedup for instance [default: all]
    #[arg(long, value_delimiter = ',', value_name = "KEY", value_parser = field)]
    pub fields: Vec<String>,
}

/// Keys of an answer in JSON.
const FIELDS: [&str; 15] = [
    "choice",
    "baseline",
    "speedup",
    "confidence",
    "model",
    "ranking",
    "refused",
    "features",
    "device",
    "precision",
    "spmvs",
    "vectors",
    "transposed",
    "fingerprint",
    "explanation",
];

/// Parses a key of an answer.
fn field(text: &str) -> std::result::Result<String, String> {
    match FIELDS.contains(&text) {
        true => Ok(text.to_string()),
        false => Err(format!("the keys of an answer are: {}", FIELDS.join(", "))),
    }
}

/// Milliseconds that a request waits for a measurement unless it says otherwise: less than the usual
/// time limits of clients and proxies.
const WAIT_MS: u64 = 30_000;

/// Options of a request about its body, and about waiting for its answer.
#[derive(Clone, Debug, Args)]
pub struct BodyOptions {
    /// Read a complex or hermitian matrix whose imaginary parts are all zero: true or false
    #[arg(long, default_value_t = false, action = ArgAction::Set, value_name = "BOOL")]
    pub real_part: bool,
    /// Read a complex matrix: blocks, as the real matrix of twice as many rows and columns in which
    /// each entry a + bi is the block [[a, -b], [b, a]]
    #[arg(long, value_name = "HOW")]
    pub complex: Option<ComplexAs>,
    /// File of an archive, or variable of a MATLAB file, that is the matrix
    #[arg(long, value_name = "NAME")]
    pub member: Option<String>,
    /// Milliseconds to wait for an answer that measures, at most 600000; then the answer is status
    /// 202 with the path of a job, which goes on
    #[arg(long, default_value_t = WAIT_MS, value_name = "MS", value_parser = count)]
    pub wait_ms: u64,
}

impl BodyOptions {
    /// Returns the options of reading within these limits.
    pub fn reading(self, limits: Limits) -> read::Options {
        let complex = reading_of(self.complex, self.real_part);
        read::Options { limits, complex, member: self.member }
    }
}

/// Ways to read a complex matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ComplexAs {
    /// As the real matrix of twice as many rows and columns in which each entry a + bi is the block
    /// [[a, -b], [b, a]]
    Blocks,
}

/// Returns the treatment of complex values; blocks hold those without imaginary parts, too.
pub fn reading_of(complex: Option<ComplexAs>, real_part: bool) -> Complex {
    match (complex, real_part) {
        (Some(ComplexAs::Blocks), _) => Complex::Blocks,
        (None, true) => Complex::RealPart,
        (None, false) => Complex::Refuse,
    }
}

/// The options alone, as a query contains them.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
pub struct Query {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    body: BodyOptions,
}

impl Options {
    /// Parses the pairs of a query. Some of them are about the body.
    ///
    /// # Errors
    /// As [`parsed`].
    pub fn from_query(pairs: &[(String, String)]) -> Result<(Options, BodyOptions)> {
        let query: Query = parsed(pairs)?;
        Ok((query.options, query.body))
    }

    /// Returns whether the choice uses a model of the device.
    pub fn predicts(&self) -> bool {
        self.effort >= Effort::Predict
    }

    /// Returns whether candidates are timed.
    pub fn measures(&self) -> bool {
        self.effort >= Effort::Measure
    }

    /// Opens the device's backend, in a separate process if candidates are timed.
    ///
    /// # Errors
    /// If there is no such device, or the process does not start.
    pub fn backend(&self, data: &Path) -> Result<Backend> {
        match self.measures() {
            true => timing_backend(&self.product.device, data),
            false => self.product.backend(data),
        }
    }

    /// Returns the workload that the options describe.
    pub fn workload(&self) -> Workload {
        Workload {
            spmvs: self.spmvs,
            transposed: self.transposed,
            values: match self.updates {
                0 => ValuesUse::Fixed,
                updates => ValuesUse::Change(updates),
            },
            effort: self.effort,
            budget_s: self.budget.map(|budget| budget.as_secs_f64()),
            ..self.product.workload()
        }
    }

    /// Returns the generated matrix that the options name, if any.
    ///
    /// `bytes` is the name of the setting that limits its size in bytes.
    ///
    /// # Errors
    /// [`Error::Limit`] if it has more nonzeros, or takes more bytes in CSR, than the limits allow.
    pub fn generated<T: Scalar>(
        &self,
        limits: &Limits,
        bytes: &'static str,
    ) -> Result<Option<Csr<T>>> {
        let Some(spec) = self.generate else { return Ok(None) };
        let at_most = |what, got: usize, limit, remedy| match got as u64 {
            got if got > limit => Err(Error::Limit { at: At::Whole, what, got, limit, remedy }),
            _ => Ok(()),
        };
        let within = |nnz: usize| {
            let what = "the number of nonzeros of the generated matrix";
            at_most(what, nnz, limits.nonzeros, "nonzeros")?;
            // Generators compute values in f64, so an entry takes 12 bytes.
            at_most("bytes of the generated matrix", 12 * nnz, limits.bytes, bytes)
        };
        // The estimate avoids generating a matrix over the limit; the exact size is known only
        // afterwards.
        within(spec.nnz_estimate())?;
        let csr = spec.make();
        within(csr.nnz())?;
        let (nrows, ncols) = (csr.nrows(), csr.ncols());
        let (row_ptr, col_idx, values) = csr.into_arrays();
        let values = values.into_iter().map(T::from_f64).collect();
        Csr::new(nrows, ncols, row_ptr, col_idx, values).map(Some)
    }

    /// Returns the choice for a matrix in this mode, with at most `top` candidates listed (0 for
    /// all).
    ///
    /// # Errors
    /// As [`Tuner::decide`].
    pub fn recommend<'a, T: Scalar>(
        &self,
        csr: impl Into<CsrRef<'a, T>>,
        tuner: Tuner,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Choice> {
        let workload = self.workload();
        let choice = match self.mode {
            Mode::Rank => tuner.recommend_with(csr, &workload, progress)?,
            Mode::Prepare => tuner.decide_with(csr, &workload, progress)?,
        };
        Ok(self.cut(choice))
    }

    /// Keeps as many candidates, and as many refused ones, as the options ask for.
    pub fn cut(&self, mut choice: Choice) -> Choice {
        if self.top > 0 {
            choice.ranking.truncate(self.top);
            choice.refused.truncate(self.top);
        }
        if let Some(TransposedChoice::Own(own)) = choice.transposed {
            choice.transposed = Some(TransposedChoice::Own(Box::new(self.cut(*own))));
        }
        choice
    }

    /// Returns the JSON object of a choice, with the keys that the options ask for.
    ///
    /// # Errors
    /// [`Error::Io`] if the choice cannot be written as JSON.
    pub fn answer(&self, choice: &Choice) -> Result<Value> {
        let mut answer = serde_json::to_value(choice)
            .map_err(|source| Error::Io { what: "writing JSON".into(), source: source.into() })?;
        if let Some(object) = answer.as_object_mut().filter(|_| !self.fields.is_empty()) {
            object.retain(|key, _| self.fields.iter().any(|field| field == key));
        }
        Ok(answer)
    }
}

/// Parses a number of things that memory can hold, as [`count`] does.
pub fn size(text: &str) -> std::result::Result<usize, String> {
    count(text)?.try_into().map_err(|_| format!("it is '{text}', more than memory can hold"))
}

/// Parses a duration: a number of seconds, or a number followed by s, m or h.
pub fn duration(text: &str) -> std::result::Result<Duration, String> {
    let wrong = || format!("time is '{text}'; it must be over 0, as 90, 90s, 20m or 2h are");
    let (number, unit_s) = match text.chars().last() {
        Some('s') => (&text[..text.len() - 1], 1.0),
        Some('m') => (&text[..text.len() - 1], 60.0),
        Some('h') => (&text[..text.len() - 1], 3600.0),
        _ => (text, 1.0),
    };
    let seconds = number.parse::<f64>().map_err(|_| wrong())?;
    let time = Duration::try_from_secs_f64(seconds * unit_s).map_err(|_| wrong())?;
    if time.is_zero() { Err(wrong()) } else { Ok(time) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::parameters;

    #[test]
    fn times_have_units_or_are_seconds() {
        assert_eq!(duration("90"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("2h"), Ok(Duration::from_secs(7200)));
        for wrong in ["", "0", "m", "-1s", "5 parsecs", "1e400s", "nan"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    fn query(pairs: &[(&str, &str)]) -> Result<Options> {
        let own = |&(name, value): &(&str, &str)| (name.to_string(), value.to_string());
        let pairs: Vec<_> = pairs.iter().map(own).collect();
        Options::from_query(&pairs).map(|(options, _)| options)
    }

    #[test]
    fn a_query_says_what_the_command_line_says() {
        let options = query(&[("device", "h200"), ("memory_limit", "1000"), ("effort", "measure")])
            .expect("legal");
        assert_eq!((options.product.device.as_str(), options.top), ("h200", 0));
        assert_eq!(options.workload().memory_limit, Some(1000));
        assert!(options.measures() && options.predicts());
        let options = query(&[("spmvs", "1e6"), ("memory_limit", "64G"), ("updates", "1.5M")]);
        let workload = options.expect("legal").workload();
        assert_eq!((workload.spmvs, workload.memory_limit), (1_000_000, Some(64_000_000_000)));
        assert_eq!(workload.values, ValuesUse::Change(1_500_000));
        let options = query(&[]).expect("legal");
        assert_eq!(options.workload(), Workload::default());
        assert!(options.predicts() && !options.measures());
    }

    #[test]
    fn a_generated_matrix_is_bounded_by_the_limits() {
        let options = query(&[("generate", "stencil5:2500")]).expect("legal");
        let limits = |nonzeros| Limits { nonzeros, ..Limits::default() };
        let made = options.generated::<f64>(&limits(1 << 20), "bytes").expect("small");
        let made = made.expect("it is named");
        assert_eq!(made, options.generate.expect("named").make());
        assert!(made.nnz() < 12_500, "borders have fewer than 5 entries a row");
        let f32 = options.generated::<f32>(&limits(12_500), "bytes").expect("at the limit");
        assert_eq!(f32, Some(made.cast()));
        let stated =
            options.generated::<f64>(&limits(12_499), "bytes").expect_err("over the limit");
        let stated = stated.to_string();
        assert!(stated.contains("generated matrix is 12500, over the limit of 12499"), "{stated}");
        assert!(stated.contains("--max-nonzeros"), "{stated}");
        let small = Limits { bytes: 149_999, ..Limits::default() };
        let stated = options.generated::<f64>(&small, "body").expect_err("over the limit");
        assert!(stated.to_string().contains("--max-body"), "{stated}");
        let none = query(&[]).expect("legal").generated::<f64>(&limits(0), "bytes");
        let none = none.expect("nothing is made");
        assert!(none.is_none());
    }

    #[test]
    fn wrong_queries_have_distinct_errors() {
        let message = |pairs: &[(&str, &str)]| query(pairs).expect_err("wrong").to_string();
        assert!(message(&[("nosuch", "1")]).contains("there are: device, precision"));
        assert!(message(&[("precision", "f16")]).contains("must be f32 or f64"));
        assert!(message(&[("spmvs", "-1")]).contains("-1"));
        let half = message(&[("memory_limit", "1.5")]);
        assert!(half.contains("'memory_limit=': it is '1.5'; it must be a whole"), "{half}");
        for name in parameters::<Query>().into_iter().map(|parameter| parameter.name) {
            let stated = message(&[(&name, "x y"), (&name, "x y")]);
            assert!(stated.contains(&name) && !stated.contains("--"), "{stated}");
        }
        assert!(message(&[("generate", "nosuch:5")]).contains("there are: stencil5"));
        assert!(message(&[("spmvs", "1"), ("spmvs", "2")]).contains("multiple times"));
        for odd in ["", "=", "-", "--", "device=", "\0", "help"] {
            assert!(message(&[(odd, odd)]).contains("no option is named"));
        }
    }

    #[test]
    fn an_answer_has_the_fields_that_were_asked_for() {
        let csr = ellect::generate::by_name("heat", 500, 1).expect("a class");
        let device = ellect::device::find("h200").expect("it ships");
        let choice = Tuner::without_models(device).recommend(&csr, &Workload::default());
        let choice = choice.expect("an estimate");
        let answer = |fields: &str| query(&[("fields", fields)]).expect("legal").answer(&choice);
        let two = answer("choice,speedup").expect("both are there");
        let keys: Vec<&String> = two.as_object().expect("an object").keys().collect();
        assert_eq!(keys, ["choice", "speedup"]);
        let wrong = query(&[("fields", "nosuch")]).expect_err("no such key").to_string();
        assert!(wrong.contains("'nosuch'") && wrong.contains("ranking"), "{wrong}");
        let all = answer(&FIELDS.join(",")).expect("plain data");
        assert_eq!(all, serde_json::to_value(&choice).expect("plain data"), "every key is known");
    }
}
