//! The two value types of matrices and vectors.

use std::fmt::{Debug, Display};
use std::ops::{Add, AddAssign, Mul, Sub};

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Precision of values; column indices and pointers are independent of it.
///
/// ```
/// use ellect::{Precision, Scalar};
///
/// # fn main() -> ellect::Result<()> {
/// assert_eq!(f32::PRECISION, Precision::F32);
/// assert_eq!("f64".parse::<Precision>()?.bytes(), 8);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// IEEE binary32.
    F32,
    /// IEEE binary64.
    F64,
}

impl Precision {
    /// Both precisions.
    pub const ALL: [Precision; 2] = [Precision::F32, Precision::F64];

    /// Bytes of one value.
    pub const fn bytes(self) -> usize {
        match self {
            Precision::F32 => 4,
            Precision::F64 => 8,
        }
    }

    /// Returns `"f32"` or `"f64"`.
    pub const fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::F64 => "f64",
        }
    }
}

impl Display for Precision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Precision {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Precision::ALL
            .into_iter()
            .find(|p| p.name() == text)
            .ok_or_else(|| Error::argument(format!("precision is '{text}'; it must be f32 or f64")))
    }
}

/// Values of either precision, for code that only tests them for equality.
#[derive(Clone, Copy, Debug)]
pub enum ValuesOf<'a> {
    /// Values of 4 bytes.
    F32(&'a [f32]),
    /// Values of 8 bytes.
    F64(&'a [f64]),
}

impl ValuesOf<'_> {
    /// Returns the bits of value `k`.
    ///
    /// # Panics
    /// If `k` is past the end.
    #[inline(always)]
    pub fn bits(&self, k: usize) -> u64 {
        match self {
            ValuesOf::F32(values) => u64::from(values[k].to_bits()),
            ValuesOf::F64(values) => values[k].to_bits(),
        }
    }

    /// Returns a mask with as many ones as a value has bits.
    pub(crate) fn ones(&self) -> u64 {
        match self {
            ValuesOf::F32(_) => u64::from(u32::MAX),
            ValuesOf::F64(_) => u64::MAX,
        }
    }
}

/// A value type of matrices and vectors: `f32` or `f64`.
///
/// ```
/// use ellect::Scalar;
///
/// fn twice<T: Scalar>(value: T) -> T {
///     value + value
/// }
/// assert_eq!((twice(1.5f32), twice(1.5f64)), (3.0, 3.0));
/// ```
pub trait Scalar:
    bytemuck::Pod
    + Send
    + Sync
    + Default
    + PartialEq
    + PartialOrd
    + Debug
    + Display
    + Add<Output = Self>
    + AddAssign
    + Sub<Output = Self>
    + Mul<Output = Self>
{
    /// This type's precision.
    const PRECISION: Precision;
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// Unit round-off times two (`EPSILON` of the type), as `f64`.
    const EPSILON: f64;

    /// Rounds `value` to this type.
    fn from_f64(value: f64) -> Self;
    /// Converts to `f64` without loss.
    fn to_f64(self) -> f64;
    /// Parses the decimal number at the start of `text`, correctly rounded; returns it and its
    /// length in bytes.
    ///
    /// Accepts `inf` and `nan`, rounds overflow to infinity and stops at the first byte that does
    /// not belong to the number. The caller checks what follows.
    fn parse_prefix(text: &[u8]) -> Option<(Self, usize)>;
    /// Returns the bits of this value.
    fn bits(self) -> u64;
    /// Wraps values for code that only tests them for equality.
    fn values_of(values: &[Self]) -> ValuesOf<'_>;
    /// Returns true if this is NaN.
    fn is_nan(self) -> bool;
    /// Returns true if this is -0.0, which layouts use to mark fill.
    fn is_negative_zero(self) -> bool;
    /// Returns the largest finite value.
    fn largest() -> f64;
    /// Returns the smallest positive normal value; sums of smaller terms lose digits.
    fn smallest() -> f64;
}

impl Scalar for f32 {
    const PRECISION: Precision = Precision::F32;
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
    const EPSILON: f64 = f32::EPSILON as f64;

    #[inline]
    fn from_f64(value: f64) -> Self {
        value as f32
    }

    #[inline]
    fn to_f64(self) -> f64 {
        f64::from(self)
    }

    #[inline(always)]
    fn bits(self) -> u64 {
        u64::from(self.to_bits())
    }

    fn values_of(values: &[Self]) -> ValuesOf<'_> {
        ValuesOf::F32(values)
    }

    #[inline(always)]
    fn is_nan(self) -> bool {
        self.is_nan()
    }

    #[inline(always)]
    fn is_negative_zero(self) -> bool {
        self.to_bits() == (-0.0f32).to_bits()
    }

    fn parse_prefix(text: &[u8]) -> Option<(Self, usize)> {
        fast_float2::parse_partial(text).ok()
    }

    fn largest() -> f64 {
        f64::from(f32::MAX)
    }

    fn smallest() -> f64 {
        f64::from(f32::MIN_POSITIVE)
    }
}

impl Scalar for f64 {
    const PRECISION: Precision = Precision::F64;
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
    const EPSILON: f64 = f64::EPSILON;

    #[inline]
    fn from_f64(value: f64) -> Self {
        value
    }

    #[inline]
    fn to_f64(self) -> f64 {
        self
    }

    #[inline(always)]
    fn bits(self) -> u64 {
        self.to_bits()
    }

    fn values_of(values: &[Self]) -> ValuesOf<'_> {
        ValuesOf::F64(values)
    }

    #[inline(always)]
    fn is_nan(self) -> bool {
        self.is_nan()
    }

    #[inline(always)]
    fn is_negative_zero(self) -> bool {
        self.to_bits() == (-0.0f64).to_bits()
    }

    fn parse_prefix(text: &[u8]) -> Option<(Self, usize)> {
        fast_float2::parse_partial(text).ok()
    }

    fn largest() -> f64 {
        f64::MAX
    }

    fn smallest() -> f64 {
        f64::MIN_POSITIVE
    }
}
