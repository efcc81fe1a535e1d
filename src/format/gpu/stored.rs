//! Names, types and meanings of the arrays and numbers that a layout stores.

use std::borrow::Cow;

use crate::format::narrow::StoredValue;
use crate::scalar::{Precision, Scalar};

/// The type of the elements of an array.
///
/// ```
/// use ellect::unstable::format::ElementType;
///
/// assert_eq!((ElementType::U16.numpy(), ElementType::U16.bytes()), ("<u2", 2));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementType {
    /// Unsigned, 8 bits.
    U8,
    /// Unsigned, 16 bits.
    U16,
    /// Unsigned, 32 bits.
    U32,
    /// Unsigned, 64 bits.
    U64,
    /// Signed, 32 bits.
    I32,
    /// IEEE binary16.
    F16,
    /// bfloat16: the upper half of a number in IEEE binary32.
    BF16,
    /// IEEE binary32.
    F32,
    /// IEEE binary64.
    F64,
}

impl ElementType {
    /// Returns NumPy's name of the type, little endian.
    pub fn numpy(self) -> &'static str {
        match self {
            ElementType::U8 => "|u1",
            ElementType::U16 => "<u2",
            ElementType::U32 => "<u4",
            ElementType::U64 => "<u8",
            ElementType::I32 => "<i4",
            ElementType::F16 => "<f2",
            // NumPy has no such type; its bits are stored.
            ElementType::BF16 => "<u2",
            ElementType::F32 => "<f4",
            ElementType::F64 => "<f8",
        }
    }

    /// Returns the bytes of one element.
    pub fn bytes(self) -> usize {
        match self {
            ElementType::U8 => 1,
            ElementType::U16 | ElementType::F16 | ElementType::BF16 => 2,
            ElementType::U32 | ElementType::I32 | ElementType::F32 => 4,
            ElementType::U64 | ElementType::F64 => 8,
        }
    }

    /// Returns the type of values of this precision.
    pub const fn of(precision: Precision) -> Self {
        match precision {
            Precision::F32 => ElementType::F32,
            Precision::F64 => ElementType::F64,
        }
    }
}

/// An element of an array of indices, or several that belong together.
///
/// ```
/// use ellect::unstable::format::{Element, ElementType};
///
/// assert_eq!((<[u32; 4]>::TYPE, <[u32; 4]>::WIDTH), (ElementType::U32, 4));
/// ```
pub trait Element: bytemuck::Pod {
    /// The type of a number.
    const TYPE: ElementType;
    /// Numbers that belong together.
    const WIDTH: usize = 1;
}

impl Element for u8 {
    const TYPE: ElementType = ElementType::U8;
}

impl Element for u16 {
    const TYPE: ElementType = ElementType::U16;
}

impl Element for u32 {
    const TYPE: ElementType = ElementType::U32;
}

impl Element for u64 {
    const TYPE: ElementType = ElementType::U64;
}

impl Element for i32 {
    const TYPE: ElementType = ElementType::I32;
}

impl<E: Element, const N: usize> Element for [E; N]
where
    [E; N]: bytemuck::Pod,
{
    const TYPE: ElementType = E::TYPE;
    const WIDTH: usize = N;
}

/// An array that a layout stores.
///
/// ```
/// use ellect::unstable::format::StoredArray;
///
/// let columns = [0u32, 2, 1];
/// let array = StoredArray::of("col_idx", "column of each entry", &columns);
/// assert_eq!((array.bytes.len(), array.shape()), (12, vec![3]));
/// ```
#[derive(Clone, Debug)]
pub struct StoredArray<'a> {
    /// Name, which no other array of the layout has.
    pub name: Cow<'static, str>,
    /// Meaning of an element.
    pub meaning: &'static str,
    /// Type of a number.
    pub element: ElementType,
    /// Numbers that belong together: the length of the second dimension, 1 for a list of numbers.
    pub width: usize,
    /// The numbers, little endian, in the order of rows.
    pub bytes: &'a [u8],
}

impl<'a> StoredArray<'a> {
    /// Describes an array of indices.
    pub fn of<E: Element>(name: &'static str, meaning: &'static str, array: &'a [E]) -> Self {
        let bytes = bytemuck::cast_slice(array);
        let (element, width) = (E::TYPE, E::WIDTH);
        StoredArray { name: Cow::Borrowed(name), meaning, element, width, bytes }
    }

    /// Describes an array of values of the matrix.
    pub fn of_values<T: Scalar>(name: &'static str, meaning: &'static str, array: &'a [T]) -> Self {
        StoredArray::of_stored(name, meaning, array)
    }

    /// Describes an array of values of the matrix, in the type in which the layout stores them.
    pub(in crate::format) fn of_stored<V: StoredValue>(
        name: &'static str,
        meaning: &'static str,
        array: &'a [V],
    ) -> Self {
        let bytes = bytemuck::cast_slice(array);
        StoredArray { name: Cow::Borrowed(name), meaning, element: V::TYPE, width: 1, bytes }
    }

    /// Returns the length of each dimension.
    pub fn shape(&self) -> Vec<usize> {
        let rows = self.bytes.len() / (self.element.bytes() * self.width);
        if self.width == 1 { vec![rows] } else { vec![rows, self.width] }
    }
}

/// A number that a layout stores beside its arrays.
///
/// ```
/// use ellect::unstable::format::StoredNumber;
///
/// let number = StoredNumber { name: "hack".into(), meaning: "rows of a hack", value: 32 };
/// assert_eq!(number.name, "hack");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredNumber {
    /// Name, which no other number of the layout has.
    pub name: Cow<'static, str>,
    /// Meaning of the number.
    pub meaning: &'static str,
    /// The number.
    pub value: u64,
}
