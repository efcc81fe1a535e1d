//! `ellect` (ELL + elect) chooses, prepares and serves the fastest sparse matrix-vector product
//! y = alpha A x + beta y for a given matrix, device, precision and amount of work.
//!
//! ```
//! use ellect::{Csr, Tuner, Workload, device};
//!
//! # fn main() -> ellect::Result<()> {
//! let csr = Csr::from_triplets(3, 3, [(0, 0, 2.0), (1, 1, 3.0), (2, 0, 1.0), (2, 2, 4.0)])?;
//! let tuner = Tuner::new(device::find("cpu")?);
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
//! file or body --read--> Csr --> Fingerprint                 what the pattern is known by
//!                         |----> Structure --> Features      what the choice sees
//!                         |          |
//!                         |     candidates: format + parameters, or a refusal with its figures
//!                         |          |  Work: bytes, steps, sectors of x
//!                         |        Cost: convert_s, spmv_s, bytes, and where they come from
//!                         |          |
//!                         |       Choice = least convert_s + spmvs * spmv_s under the limits
//!                         '--------> Layout --> PreparedOperator --> apply
//!                                                     '--> Measurement --> Cost
//! ```
//! Each arrow is a plain function and each noun one type. Reading comes in through [`read`], the
//! checked matrix is [`Csr`], what is computed of its pattern once is a [`structure::Structure`];
//! [`features`], [`mod@format`], [`cost`] and [`choose`] follow in that order, [`Tuner`] is the call
//! that does it all, and [`measure`] times what [`choose`] would otherwise estimate.
//!
//! # Words
//! - A *format* is a storage scheme; a format with parameters is a *candidate*, written
//!   `hll:hack=32,sort=none,tpr=1,col=16`.
//! - A format that does not suit a matrix gives a *refusal* with needed and allowed figures, not an
//!   error.
//! - A *layout* is a matrix in a format's arrays; a *prepared operator* owns one and multiplies.
//! - A *cost* is a time of conversion, a time of one product, and bytes; its *source* is measured,
//!   predicted or estimated.
//! - A *basis* is the order of x and y: the matrix's own, or one that a format sorts rows into,
//!   which a Krylov solver enters once and leaves once.
//! - A *device* is data: the limits that costs are computed from. The host is a device too.
//! - The *baseline* is what a program has before any choice: its CSR arrays, multiplied by cuSPARSE on a
//!   GPU that has it, else by this program's kernel.
//! - The *policy* ([`choose::policy`]) decides what to find out about a matrix before it is prepared. A
//!   *gate* of the model says whether an *analysis* pays, which finds the work of every candidate; on a
//!   GPU, the *quick model* predicts from counted features alone.
//! - *hack*, *hackSize*, *rIdx*, *br*, *N_iter*, *N_p*, *ER part*, *VecSize*, *K* are the terms of
//!   the papers that the formats come from; each module names its own.
//!
//! # Cargo features
//! All are on by default but `cuda`; what `apply` needs is always there.
//! - `metis`: the variants of EHYB that METIS partitions, else refused; a C library.
//! - `read-archives`: gzip, zstd and SciPy's `.npz`, else refused by [`read`].
//! - `shipped`: embeds the trained models and the measurements that ship (26 MB).
//! - `wisdom`: the user's own database of measurements, else [`Wisdom::open`] is an error.
//! - `zstd`: compressed model files; on with `read-archives` and `shipped`.
//! - `cuda`: measures and multiplies on NVIDIA GPUs.
//!
//! # What holds everywhere
//! Choosing is pure: no clock, no disk, no GPU. CSR is always a candidate. Every number carries its
//! unit and its source. Nothing is timed before its product was checked. Padding is never
//! multiplied where Inf or NaN in x could reach a wrong row.

pub mod assemble;
pub mod check;
pub mod choose;
#[cfg_attr(not(feature = "zstd"), path = "compress_none.rs")]
mod compress;
pub mod cost;
pub mod csr;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod device;
pub mod error;
pub mod features;
pub mod fingerprint;
pub mod format;
pub mod generate;
pub mod lazy;
pub mod measure;
pub mod model;
pub mod operator;
pub mod par;
pub mod partition;
pub mod permutation;
pub mod protocol;
pub mod read;
pub mod refusal;
pub mod reorder;
pub mod scalar;
pub mod session;
pub mod structure;
pub mod target;
pub mod tuner;
pub mod units;
pub mod wisdom;
pub mod workload;
pub mod write;

pub use csr::{Csr, CsrRef, Pattern};
pub use error::{Error, Result};
pub use fingerprint::Fingerprint;
pub use operator::PreparedOperator;
pub use scalar::{Precision, Scalar};
pub use tuner::Tuner;
pub use wisdom::Wisdom;
pub use workload::Workload;
