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

/// Storage of the values of a matrix of f64.
///
/// ```
/// use ellect::format::StoredValues;
///
/// # fn main() -> ellect::Result<()> {
/// assert_eq!("f32".parse::<StoredValues>()?, StoredValues::F32);
/// assert_eq!(StoredValues::default(), StoredValues::Exact);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StoredValues {
    /// Every value is stored exactly. Formats that store values in f32 apply only if all values
    /// are f32 numbers.
    #[default]
    Exact,
    /// Formats may round values to f32, while vectors and sums stay in f64. Row i of a product then
    /// differs from that of the exact values by at most `2^-24 * sum_j |a_ij| |x_j|`, beside the
    /// rounding of f64.
    F32,
}

impl StoredValues {
    /// Returns `"exact"` or `"f32"`.
    pub const fn name(self) -> &'static str {
        match self {
            StoredValues::Exact => "exact",
            StoredValues::F32 => "f32",
        }
    }

    /// Tells whether values are stored exactly.
    pub(crate) fn is_exact(&self) -> bool {
        *self == StoredValues::Exact
    }
}

impl std::fmt::Display for StoredValues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for StoredValues {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let all = [StoredValues::Exact, StoredValues::F32];
        all.into_iter()
            .find(|stored| stored.name() == text)
            .ok_or_else(|| Error::argument(format!("values is '{text}'; it must be exact or f32")))
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
    /// Storage of values: exact, or rounded to f32.
    pub stored: StoredValues,
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
