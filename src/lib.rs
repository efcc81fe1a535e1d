//! `ellect` (ELL + elect) chooses, prepares and serves the fastest sparse matrix-vector product
//! y = alpha A x + beta y for a given matrix, device, precision and number of products.
//!
//! ```
//! use ellect::{Csr, Tuner, Workload};
//!
//! # fn main() -> ellect::Result<()> {
//! let csr = Csr::from_triplets(3, 3, [(0, 0, 2.0), (1, 1, 3.0), (2, 0, 1.0), (2, 2, 4.0)])?;
//! let tuner = Tuner::open("cpu")?;
//! let operator = tuner.prepare(&csr, &Workload { spmvs: 5000, ..Workload::default() })?;
//!
//! let mut y = [0.0; 3];
//! operator.apply(1.0, &[1.0, 10.0, 100.0], 0.0, &mut y)?;
//! assert_eq!(y, [2.0, 30.0, 401.0]);
//! if let Some(choice) = operator.choice() {
//!     println!("{}: {}", choice.candidate, choice.explanation[0]);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # The way of the data
//! ```text
//! file or body --read--> Csr --> Fingerprint                 key of stored measurements
//!                         |----> Analysis --> Features       inputs of models and gates
//!                         |          |
//!                         |     candidates: format + parameters, or a refusal with its figures
//!                         |          |  Work: bytes, steps, sectors of x
//!                         |        Cost: convert_s, spmv_s, bytes and their source
//!                         |          |
//!                         |       Choice: least convert_s + spmvs * spmv_s within the limits
//!                         '--------> Layout --> PreparedOperator --> apply
//!                                                     '--> Measurement --> Cost
//! ```
//! Each arrow is a plain function, and each noun is one type:
//! 1. [`read`] reads a matrix from a file or a request body and checks it; the result is a [`Csr`].
//! 2. [`analysis::Analysis`] holds what is known of the matrix; it computes each result once and
//!    keeps it.
//! 3. [`features`] derives the numbers that describe the matrix to models.
//! 4. [`mod@format`] lists the candidates and computes the work of each, or a refusal.
//! 5. [`cost`] and [`model`] turn work and features into times; [`wisdom`] adds stored
//!    measurements.
//! 6. [`choose`] ranks the candidates by total time and explains the choice.
//! 7. The format of the choice converts the matrix to a layout; [`PreparedOperator`] multiplies by
//!    it.
//!
//! [`Tuner`] performs all steps in one call. [`measure`] times products; measured costs replace
//! predictions and estimates.
//!
//! # Words
//! - *Analysis*: results that the host computed from one matrix, each once: features, and the work
//!   of all candidates.
//! - *Backend*: prepares, checks and times candidates on one device.
//! - *Baseline*: CSR arrays as the caller has them; cuSPARSE multiplies them on a GPU that has it,
//!   otherwise this program's kernel. Choices are compared with it.
//! - *Basis*: order of x and y: the matrix's own, or one in which a format permutes rows and
//!   columns alike; a Krylov solver permutes its vectors once before and once after.
//! - *Break-even*: number of products from which on a candidate is cheaper than CSR in total.
//! - *Candidate*: a format with parameters, written `hll:hack=32,sort=none,tpr=1,col=16`.
//! - *Choice*: the chosen candidate, with the ranking of all candidates and the reasons.
//! - *Confidence*: number from 0 to 1 that shows how similar a matrix is to the training set.
//! - *Cost*: time of the conversion, of an update of values and of one product, and bytes.
//! - *Device*: the GPU or host that multiplies; for the choice, the data of its profile.
//! - *Effort*: what a choice may use: estimates, predictions, a few timings, or all timings.
//! - *Estimate*: cost by closed formulas from the candidate's work and the device's profile.
//! - *Features*: named numbers that describe a pattern, for instance `row_nnz_max`.
//! - *Fingerprint*: 128-bit hash of a pattern, without values; key of stored measurements.
//! - *Format*: a storage scheme, for instance HLL; one module and one line in the table of formats.
//! - *Gate*: rules of a model that decide whether an analysis pays.
//! - *hack*, *hackSize*: rows that HLL and HDIA store together as one group, and their number.
//! - *Layout*: a matrix in a format's arrays.
//! - *Margin*: predicted speed-up over the baseline that an untimed candidate needs to be chosen.
//! - *Measurement*: times of a candidate under the protocol, or the reason for having none.
//! - *Model*: regressors, gates and rules that were trained on a device's measurements.
//! - *Operator*: a layout that is prepared on a device and multiplies.
//! - *Padding*: slots of a layout that hold no entry of the matrix.
//! - *Pattern*: rows and columns of the entries of a matrix, without their values.
//! - *Policy*: decides what to find out about a matrix before a candidate is chosen.
//! - *Prediction*: cost by a model, from features, the candidate's work and its parameters.
//! - *Profile*: limits and speeds of a device, in a data file, from which costs are computed.
//! - *Protocol*: versioned rules by which products are timed.
//! - *Proxy device*: shipped GPU of equal compute capability whose models predict for another GPU.
//! - *Quick model*: part of a model that predicts a few candidates in stages, for a matrix on a GPU.
//! - *Quick pick*: candidate that rules select for a matrix that is not analysed.
//! - *Rank*: one of several processes that share a matrix, each with one part; an *exchange* of the
//!   caller moves bytes between them.
//! - *Refusal*: answer of a format that does not apply to a matrix, with needed and allowed
//!   figures; not an error.
//! - *Regret*: time of the chosen candidate divided by that of the best one, less 1.
//! - *Sector*: 32 bytes of memory, the unit in which a GPU loads x.
//! - *Shard*, *part*: rows of a matrix that one of several devices multiplies; its *halo* are the
//!   elements of x that it needs from other parts.
//! - *Source*: origin of a cost: measured, predicted or estimated.
//! - *Stage*: what the quick model knows of a matrix: its size; also its row lengths and a few
//!   entries; all features.
//! - *Target*: what a layout is made for: device, precision, basis and memory limit.
//! - *Wisdom*: stored measurements, those that ship and the user's own.
//! - *Work*: bytes, steps and sectors of one conversion and one product; costs follow from it.
//! - *Vectors*: right-hand sides that one product multiplies; estimates alone know of several.
//! - *Workload*: the caller's use of a matrix: number of products and of vectors, updates,
//!   effort and limits.
//! - *br*, *ER part*, *K*, *N_iter*, *N_p*, *rIdx*, *VecSize*: terms of the papers that the formats
//!   come from; the module of each format defines its own.
//!
//! # Cargo features
//! All are on by default except `cuda`; `apply` needs none of them.
//! - `metis`: variants of EHYB with partitions by METIS, a C library; refused without it.
//! - `read-archives`: gzip, zstd, bzip2, xz, zip and SciPy's `.npz`; refused by [`read`] without it.
//!   The module `export` needs it.
//! - `shipped`: embeds the trained models and the measurements that ship (27 MB).
//! - `wisdom`: the user's own database of measurements; [`Wisdom::open`] fails without it.
//! - `zstd`: compressed model files; on with `read-archives` and `shipped`.
//! - `cuda`: measures and multiplies on NVIDIA GPUs.
//!
//! # What holds everywhere
//! Choosing is pure: it uses no clock, disk or GPU. CSR is always a candidate. Every number has a
//! unit and a source. No product is timed before it was checked. Padding is never multiplied if Inf
//! or NaN in x could reach a wrong row.

pub mod analysis;
mod assemble;
pub mod check;
pub mod choose;
mod complex;
#[cfg_attr(not(feature = "zstd"), path = "compress_none.rs")]
mod compress;
pub mod cost;
pub mod csr;
#[cfg_attr(not(feature = "cuda"), path = "cuda_none.rs")]
pub mod cuda;
pub mod dense;
pub mod density;
pub mod device;
pub mod dots;
pub mod error;
#[cfg(feature = "read-archives")]
pub mod export;
pub mod features;
mod fingerprint;
pub mod format;
pub mod generate;
pub mod lazy;
pub mod measure;
pub mod model;
pub mod operator;
mod pair;
mod par;
mod partition;
mod permutation;
mod protocol;
pub mod read;
mod refusal;
pub mod reorder;
mod scalar;
mod session;
pub mod sharded;
mod target;
pub mod tuner;
pub mod units;
pub mod unstable;
pub mod wisdom;
mod workload;
pub mod write;

pub use complex::ComplexOperator;
pub use csr::{Csr, CsrRef, Pattern};
pub use error::{Error, Result};
pub use fingerprint::Fingerprint;
pub use operator::PreparedOperator;
pub use pair::PreparedPair;
pub use scalar::{Precision, Scalar};
pub use tuner::Tuner;
pub use wisdom::Wisdom;
pub use workload::Workload;
