//! A CSR matrix that a GPU holds.

use std::marker::PhantomData;

use cust::sys as cuda;

use super::memory::{Memory, read};
use super::{Gpu, handle};
use crate::csr::{Csr, CsrRef};
use crate::error::{Error, Result};
use crate::format::{Matrix, Offsets};
use crate::scalar::Scalar;

/// A CSR matrix on a GPU: row pointers of 32 or 64 bits, columns of 32 bits that rise in each row,
/// and values.
pub struct DeviceCsr<T> {
    matrix: Matrix,
    /// The GPU that holds it, where that is known.
    index: Option<u32>,
    /// Row pointers, columns, values.
    addresses: [cuda::CUdeviceptr; 3],
    _owned: Vec<Memory>,
    scalar: PhantomData<T>,
}

impl<T> std::fmt::Debug for DeviceCsr<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceCsr").field("matrix", &self.matrix).finish_non_exhaustive()
    }
}

impl<T: Scalar> DeviceCsr<T> {
    /// Copies a matrix to the device.
    ///
    /// # Errors
    /// [`Error::Device`] where the memory does not suffice.
    pub fn upload<'a>(gpu: &Gpu, csr: impl Into<CsrRef<'a, T>>) -> Result<Self> {
        let csr = csr.into();
        let queue = &gpu.queue;
        let row_ptr = Offsets::new(csr.row_ptr());
        let (bytes, wide) = match &row_ptr {
            Offsets::Narrow(offsets) => (bytemuck::cast_slice(offsets), false),
            Offsets::Wide(offsets) => (bytemuck::cast_slice(offsets), true),
        };
        let owned = vec![
            Memory::of(bytes, queue)?,
            Memory::of(bytemuck::cast_slice(csr.col_idx()), queue)?,
            Memory::of(bytemuck::cast_slice(csr.values()), queue)?,
        ];
        let addresses = [0, 1, 2].map(|i: usize| owned[i].address());
        let (nrows, ncols, nnz) = (csr.nrows(), csr.ncols(), csr.nnz());
        let matrix = Matrix { nrows, ncols, nnz, wide };
        let index = Some(gpu.index);
        Ok(DeviceCsr { matrix, index, addresses, _owned: owned, scalar: PhantomData })
    }

    /// A matrix that is on the device already: the addresses of `nrows + 1` row pointers (32-bit,
    /// or 64-bit where `matrix.wide`, as from 2^32 - 4096 entries on), `nnz` 32-bit columns and
    /// `nnz` values.
    ///
    /// # Safety
    /// The arrays are on the GPU that this is used with and form a valid CSR matrix: row pointers
    /// start at 0, do not fall and end at `nnz`; columns are below `ncols` and rise in each row.
    /// They are not changed or freed while this or an operator made of it lives.
    pub unsafe fn from_raw(matrix: Matrix, addresses: [cuda::CUdeviceptr; 3]) -> Self {
        DeviceCsr { matrix, index: None, addresses, _owned: Vec::new(), scalar: PhantomData }
    }

    /// Refuses to work on a matrix with a GPU that does not hold it, or whose row pointers are too
    /// narrow.
    ///
    /// # Errors
    /// [`Error::Argument`].
    pub(super) fn check(&self, gpu: &Gpu) -> Result<()> {
        if let Some(index) = self.index.filter(|&index| index != gpu.index) {
            let [own, other] = [index, gpu.index].map(handle);
            return Err(Error::argument(format!(
                "{own} holds the matrix, it cannot be used on {other}: upload it there"
            )));
        }
        let nnz = self.matrix.nnz;
        if !self.matrix.wide && Offsets::width(nnz) > 4 {
            return Err(Error::argument(format!(
                "{nnz} entries need row pointers of 64 bits, these have 32"
            )));
        }
        Ok(())
    }

    /// Its shape.
    pub fn matrix(&self) -> Matrix {
        self.matrix
    }

    /// Addresses of row pointers, columns and values.
    pub fn addresses(&self) -> [cuda::CUdeviceptr; 3] {
        self.addresses
    }

    /// Bytes of its arrays.
    pub fn bytes(&self) -> [u64; 3] {
        let width = if self.matrix.wide { 8 } else { 4 };
        let (nrows, nnz) = (self.matrix.nrows as u64, self.matrix.nnz as u64);
        [(nrows + 1) * width, 4 * nnz, nnz * size_of::<T>() as u64]
    }

    /// Copies it to the host.
    ///
    /// # Errors
    /// [`Error::Device`] where the copy fails, [`Error::Argument`] where another GPU holds it, and as
    /// [`Csr::new`] where the arrays are no valid matrix.
    pub fn to_csr(&self, gpu: &Gpu) -> Result<Csr<T>> {
        self.check(gpu)?;
        gpu.make_current()?;
        let [_, _, values] = self.addresses;
        self.download(gpu, values)
    }

    /// Copies it to the host, with the values at `values`.
    pub(super) fn download(&self, gpu: &Gpu, values: cuda::CUdeviceptr) -> Result<Csr<T>> {
        let Matrix { nrows, ncols, nnz, .. } = self.matrix;
        let (row_ptr, columns) = self.download_pattern(gpu)?;
        let mut entries = vec![T::ZERO; nnz];
        read(values, bytemuck::cast_slice_mut(&mut entries), &gpu.queue)?;
        Csr::new(nrows, ncols, row_ptr, columns, entries)
    }

    /// Copies row pointers and columns to the host.
    pub(super) fn download_pattern(&self, gpu: &Gpu) -> Result<(Vec<usize>, Vec<u32>)> {
        let Matrix { nrows, nnz, wide, .. } = self.matrix;
        let [row_ptr, col_idx, _] = self.addresses;
        let offsets = if wide {
            let mut offsets = vec![0u64; nrows + 1];
            read(row_ptr, bytemuck::cast_slice_mut(&mut offsets), &gpu.queue)?;
            Offsets::Wide(offsets)
        } else {
            let mut offsets = vec![0u32; nrows + 1];
            read(row_ptr, bytemuck::cast_slice_mut(&mut offsets), &gpu.queue)?;
            Offsets::Narrow(offsets)
        };
        let mut columns = vec![0u32; nnz];
        read(col_idx, bytemuck::cast_slice_mut(&mut columns), &gpu.queue)?;
        Ok((offsets.to_vec(), columns))
    }
}
