//! Replaces `cuda/halo.rs` in builds without the feature `cuda`.

use std::ops::Range;
use std::sync::Arc;

use super::{DeviceCsr, DeviceSlice, Gpu};
use crate::csr::Csr;
use crate::error::Result;
use crate::scalar::Scalar;

/// Columns that rows need beside a range of own ones; never found in this build.
#[derive(Debug)]
pub(crate) struct NeededColumns {
    pub foreign: Vec<u32>,
    pub rows: Vec<u32>,
    pub inner: usize,
    pub own: usize,
}

impl<T: Scalar> DeviceCsr<T> {
    /// Finds the columns outside `own` that the rows have.
    ///
    /// # Errors
    /// Never called.
    pub(crate) fn needed(&self, _gpu: &Gpu, _own: Range<usize>) -> Result<NeededColumns> {
        match self.never {}
    }

    /// Returns these rows with local columns.
    ///
    /// # Errors
    /// Never called.
    pub(crate) fn local(
        self: &Arc<Self>,
        _gpu: &Gpu,
        _needed: &NeededColumns,
        _rows: Range<usize>,
    ) -> Result<Self> {
        match self.never {}
    }

    /// Copies rows of the matrix to another GPU.
    ///
    /// # Errors
    /// Never called.
    pub fn copy_rows(&self, _gpu: &Gpu, _rows: Range<usize>, _to: &Gpu) -> Result<Self> {
        match self.never {}
    }

    /// Returns the number of entries before a row.
    ///
    /// # Errors
    /// Never called.
    pub(crate) fn row_start(&self, _gpu: &Gpu, _row: usize) -> Result<usize> {
        match self.never {}
    }

    /// Copies the pattern of rows to the host.
    ///
    /// # Errors
    /// Never called.
    pub(crate) fn rows_to_host(&self, _gpu: &Gpu, _rows: Range<usize>) -> Result<Csr<f32>> {
        match self.never {}
    }
}

impl<T: Scalar> DeviceSlice<'_, T> {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        match self.never {}
    }

    /// Returns a part of the slice.
    ///
    /// # Errors
    /// Never called.
    pub fn slice(self, _range: Range<usize>) -> Result<Self> {
        match self.never {}
    }
}
