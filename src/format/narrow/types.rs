//! Types in which layouts store values.

use half::{bf16, f16};

use crate::format::StoredValues;
use crate::format::gpu::stored::ElementType;
use crate::scalar::{Precision, Scalar};

/// A type of which the values of a layout can be.
pub trait StoredValue: bytemuck::Pod + Send + Sync + std::fmt::Debug {
    /// The number 0.
    const ZERO: Self;
    /// The type in files.
    const TYPE: ElementType;

    /// Tells whether this is -0.0, which marks fill.
    fn is_negative_zero(self) -> bool;
}

impl<T: Scalar> StoredValue for T {
    const ZERO: Self = <T as Scalar>::ZERO;
    const TYPE: ElementType = ElementType::of(T::PRECISION);

    #[inline(always)]
    fn is_negative_zero(self) -> bool {
        Scalar::is_negative_zero(self)
    }
}

impl StoredValue for f16 {
    const ZERO: Self = f16::ZERO;
    const TYPE: ElementType = ElementType::F16;

    #[inline(always)]
    fn is_negative_zero(self) -> bool {
        self.to_bits() == f16::NEG_ZERO.to_bits()
    }
}

impl StoredValue for bf16 {
    const ZERO: Self = bf16::ZERO;
    const TYPE: ElementType = ElementType::BF16;

    #[inline(always)]
    fn is_negative_zero(self) -> bool {
        self.to_bits() == bf16::NEG_ZERO.to_bits()
    }
}

/// A type that stores values of a wider one.
pub trait Narrow: StoredValue {
    /// The storage that this type is.
    const STORES: StoredValues;
    /// Precision of the matrices whose values it stores.
    const OF: Precision;
    /// The smallest and the largest normal number.
    const NORMAL: [f64; 2];

    /// The nearest value of this type.
    fn round(value: f64) -> Self;

    /// The value that is stored.
    fn widen(self) -> f64;
}

impl Narrow for f32 {
    const STORES: StoredValues = StoredValues::F32;
    const OF: Precision = Precision::F64;
    const NORMAL: [f64; 2] = [f32::MIN_POSITIVE as f64, f32::MAX as f64];

    #[inline(always)]
    fn round(value: f64) -> f32 {
        value as f32
    }

    #[inline(always)]
    fn widen(self) -> f64 {
        f64::from(self)
    }
}

impl Narrow for f16 {
    const STORES: StoredValues = StoredValues::F16;
    const OF: Precision = Precision::F32;
    const NORMAL: [f64; 2] = [f16::MIN_POSITIVE.to_f64_const(), f16::MAX.to_f64_const()];

    #[inline(always)]
    fn round(value: f64) -> f16 {
        f16::from_f32(value as f32)
    }

    #[inline(always)]
    fn widen(self) -> f64 {
        f64::from(self.to_f32())
    }
}

impl Narrow for bf16 {
    const STORES: StoredValues = StoredValues::BF16;
    const OF: Precision = Precision::F32;
    const NORMAL: [f64; 2] = [bf16::MIN_POSITIVE.to_f64_const(), bf16::MAX.to_f64_const()];

    #[inline(always)]
    fn round(value: f64) -> bf16 {
        bf16::from_f32(value as f32)
    }

    #[inline(always)]
    fn widen(self) -> f64 {
        f64::from(self.to_f32())
    }
}
