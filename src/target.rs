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

/// Storage of the values of a matrix: exact, or rounded to a type with fewer bits.
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
    /// Formats may round values of f64 to f32, while vectors and sums stay in f64. Row i of a product
    /// then differs from that of the exact values by at most `2^-24 * sum_j |a_ij| |x_j|`, beside the
    /// rounding of f64.
    F32,
    /// Formats may round values of f32 to f16 (IEEE binary16, sizes from 6.2e-5 to 65,504), while vectors
    /// and sums stay in f32. The bound is `2^-11 * sum_j |a_ij| |x_j|`, beside the rounding of f32.
    F16,
    /// Formats may round values of f32 to bf16 (bfloat16, the range of f32), while vectors and sums stay
    /// in f32. The bound is `2^-8 * sum_j |a_ij| |x_j|`, beside the rounding of f32.
    BF16,
}

impl StoredValues {
    /// All ways to store values.
    pub const ALL: [StoredValues; 4] =
        [StoredValues::Exact, StoredValues::F32, StoredValues::F16, StoredValues::BF16];

    /// Returns `"exact"`, `"f32"`, `"f16"` or `"bf16"`.
    pub const fn name(self) -> &'static str {
        match self {
            StoredValues::Exact => "exact",
            StoredValues::F32 => "f32",
            StoredValues::F16 => "f16",
            StoredValues::BF16 => "bf16",
        }
    }

    /// Returns the precision of the matrices whose values are rounded; `None` where none are.
    pub const fn rounds(self) -> Option<Precision> {
        match self {
            StoredValues::Exact => None,
            StoredValues::F32 => Some(Precision::F64),
            StoredValues::F16 | StoredValues::BF16 => Some(Precision::F32),
        }
    }

    /// Returns the binary logarithm of the largest error of a rounded value, as a share of the value.
    pub(crate) const fn rounding_log2(self) -> i32 {
        match self {
            StoredValues::Exact => i32::MIN,
            StoredValues::F32 => -24,
            StoredValues::F16 => -11,
            StoredValues::BF16 => -8,
        }
    }

    /// Checks that the values of a matrix of this precision can be rounded in this way; f32 holds the
    /// values of a matrix of f32 as they are.
    ///
    /// # Errors
    /// [`Error::Argument`] for f16 and bf16 with a matrix of f64.
    pub fn check(self, precision: Precision) -> Result<()> {
        match (self, precision) {
            (StoredValues::F16 | StoredValues::BF16, Precision::F64) => {
                Err(Error::argument(format!(
                    "values={self} rounds the values of a matrix of f32, whose vectors are in f32; \
                     this matrix is of f64: choose precision f32, or values=f32"
                )))
            }
            _ => Ok(()),
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
        StoredValues::ALL.into_iter().find(|stored| stored.name() == text).ok_or_else(|| {
            Error::argument(format!("values is '{text}'; it must be exact, f32, f16 or bf16"))
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
    /// Storage of values: exact, or rounded.
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
