//! Sliced ELLPACK with slices of 32 rows, each as wide as its longest row and stored column by column:
//! the parts of ehyb and of hub_ell.

use super::row_order::WARP;
use super::{Offsets, bytes_of};
use crate::scalar::Scalar;

/// Slots of a part.
#[derive(Debug)]
pub struct PartSlices<T, C> {
    /// First slot of each slice, and the end.
    pub(super) ptr: Offsets,
    pub(super) columns: Vec<C>,
    pub(super) values: Vec<T>,
}

impl<T: Scalar, C: Copy> PartSlices<T, C> {
    /// Creates slots without entries: with the column `padding` and value 0.
    pub(super) fn new(ptr: &[usize], padding: C) -> Self {
        let slots = ptr.last().copied().unwrap_or(0);
        let (columns, values) = (vec![padding; slots], vec![T::ZERO; slots]);
        PartSlices { ptr: Offsets::new(ptr), columns, values }
    }

    /// The slot of entry `k` of row `row`.
    pub(super) fn slot(&self, row: usize, k: usize) -> usize {
        self.ptr.get(row / WARP) + k * WARP + row % WARP
    }

    /// Bytes of all arrays.
    pub(super) fn bytes(&self) -> u64 {
        self.ptr.bytes() + bytes_of(&self.columns) + bytes_of(&self.values)
    }
}
