//! `ellect` chooses, prepares and serves the fastest sparse matrix-vector product.

pub mod assemble;
pub mod check;
pub mod choose;
pub mod cost;
pub mod csr;
pub mod device;
pub mod error;
pub mod features;
pub mod fingerprint;
pub mod format;
pub mod generate;
pub mod measure;
pub mod operator;
pub mod par;
pub mod partition;
pub mod read;
pub mod reorder;
pub mod scalar;
pub mod structure;
pub mod tuner;
pub mod write;

pub use csr::{Csr, Pattern};
pub use error::{Error, Result};
pub use fingerprint::Fingerprint;
pub use operator::PreparedOperator;
pub use scalar::{Precision, Scalar};
pub use tuner::Tuner;
