//! The target of a layout: device, precision, basis of the vectors and memory limit.

use serde::{Deserialize, Serialize};

use crate::device::Device;
use crate::error::{Error, Result};
use crate::refusal::Refusal;
use crate::scalar::Precision;

/// The basis of a product's vectors.
///
/// ```
/// use ellect::format::Basis;
///
/// # fn main() -> ellect::Result<()> {
/// assert_eq!("permuted".parse::<Basis>()?, Basis::Permuted);
/// assert_eq!(Basis::default(), Basis::Original);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// The matrix's own basis: y = alpha A x + beta y.
    #[default]
    Original,
    /// A permuted basis: the format may permute rows and columns alike (P A P^T) and leave the
    /// vectors permuted. Krylov solvers permute once before and once after, and save the scatter in
    /// every product.
    Permuted,
}

impl Basis {
    /// Returns `"original"` or `"permuted"`.
    pub const fn name(self) -> &'static str {
        match self {
            Basis::Original => "original",
            Basis::Permuted => "permuted",
        }
    }
}

impl std::fmt::Display for Basis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Basis {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let all = [Basis::Original, Basis::Permuted];
        all.into_iter().find(|basis| basis.name() == text).ok_or_else(|| {
            Error::argument(format!("basis is '{text}'; it must be original or permuted"))
        })
    }
}

/// The target of a layout.
///
/// ```
/// use ellect::{Precision, Workload, device};
///
/// # fn main() -> ellect::Result<()> {
/// let cpu = device::find("cpu")?;
/// let target = Workload { memory_limit: Some(1000), ..Workload::default() };
/// let target = target.target(&cpu, Precision::F32);
/// assert!(target.check_bytes(1000).is_ok() && target.check_bytes(1001).is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The device whose limits shape the layout.
    pub device: &'a Device,
    /// Precision of the values.
    pub precision: Precision,
    /// Basis of the vectors.
    pub basis: Basis,
    /// Maximum number of bytes of the layout.
    pub memory_limit: u64,
}

impl Target<'_> {
    /// Refuses a layout that exceeds the memory limit.
    ///
    /// # Errors
    /// [`Refusal`] with the needed and the allowed number of bytes.
    pub fn check_bytes(&self, needed: u64) -> std::result::Result<(), Refusal> {
        if needed <= self.memory_limit {
            return Ok(());
        }
        Err(Refusal::new(format!(
            "the layout takes {needed} bytes; {} are allowed",
            self.memory_limit
        )))
    }
}
