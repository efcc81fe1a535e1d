//! CSR matrices in the memory of a GPU.

use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use cust::sys as cuda;

use super::memory::{Memory, read};
use super::{Gpu, handle};
use crate::csr::{Csr, CsrRef};
use crate::error::{Error, Result};
use crate::format::{Matrix, Offsets};
use crate::scalar::Scalar;

/// A CSR matrix on a GPU: row pointers of 32 or 64 bits, 32-bit column indices that rise in each
/// row, and values.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use ellect::cuda::DeviceCsr;
/// use ellect::{Csr, Tuner, Workload};
///
/// # fn main() -> ellect::Result<()> {
/// let tuner = Tuner::open("cuda:0")?;
/// let csr = Csr::from_triplets(2, 2, [(0, 0, 4.0), (1, 1, 5.0)])?;
/// let there = Arc::new(DeviceCsr::upload(tuner.backend().gpu()?, &csr)?);
/// let operator = tuner.prepare_on_gpu(&there, &Workload::default())?;
/// # Ok(())
/// # }
/// ```
pub struct DeviceCsr<T> {
    matrix: Matrix,
    /// Index of the GPU that holds the matrix, if known.
    index: Option<u32>,
    /// Addresses of row pointers, column indices and values.
    addresses: [cuda::CUdeviceptr; 3],
    _owned: Vec<Memory>,
    /// A matrix to which other arrays belong.
    _shared: Option<Arc<DeviceCsr<T>>>,
    /// Number of entries of the longest row, once it is known.
    longest: OnceLock<usize>,
    scalar: PhantomData<T>,
}

impl<T> std::fmt::Debug for DeviceCsr<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceCsr").field("matrix", &self.matrix).finish_non_exhaustive()
    }
}

impl<T: Scalar> DeviceCsr<T> {
    /// Copies a matrix to the GPU.
    ///
    /// # Errors
    /// [`Error::Device`] if memory runs out.
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
        let (nrows, ncols, nnz) = (csr.nrows(), csr.ncols(), csr.nnz());
        let lengths = csr.row_ptr().windows(2).map(|ends| ends[1] - ends[0]);
        let longest = OnceLock::from(lengths.max().unwrap_or(0));
        Ok(DeviceCsr::owning(Matrix { nrows, ncols, nnz, wide }, gpu, owned, longest))
    }

    /// Wraps row pointers, columns and values.
    pub(super) fn owning(
        matrix: Matrix,
        gpu: &Gpu,
        arrays: Vec<Memory>,
        longest: OnceLock<usize>,
    ) -> Self {
        let addresses = [0, 1, 2].map(|i: usize| arrays[i].address());
        let index = Some(gpu.index);
        DeviceCsr {
            matrix,
            index,
            addresses,
            _owned: arrays,
            _shared: None,
            longest,
            scalar: PhantomData,
        }
    }

    /// Returns a matrix with the row pointers and values of another one, and columns of its own.
    pub(super) fn sharing(other: &Arc<Self>, matrix: Matrix, gpu: &Gpu, columns: Memory) -> Self {
        let [row_ptr, _, values] = other.addresses;
        DeviceCsr {
            matrix,
            index: Some(gpu.index),
            addresses: [row_ptr, columns.address(), values],
            _owned: vec![columns],
            _shared: Some(Arc::clone(other)),
            longest: other.longest.clone(),
            scalar: PhantomData,
        }
    }

    /// Wraps a matrix that is already on the GPU.
    ///
    /// `addresses` point to `nrows + 1` row pointers, `nnz` 32-bit column indices and `nnz` values.
    /// Row pointers have 64 bits if `matrix.wide`, which is required from 2^32 - 4096 entries on,
    /// otherwise 32 bits.
    ///
    /// # Safety
    /// The arrays are on the GPU that this is used with and form a valid CSR matrix: row pointers
    /// start at 0, never decrease and end at `nnz`; column indices are below `ncols` and rise in
    /// each row. Nothing changes or frees them while this, or an operator made from it, is alive.
    pub unsafe fn from_raw(matrix: Matrix, addresses: [cuda::CUdeviceptr; 3]) -> Self {
        DeviceCsr {
            matrix,
            index: None,
            addresses,
            _owned: Vec::new(),
            _shared: None,
            longest: OnceLock::new(),
            scalar: PhantomData,
        }
    }

    /// Checks that `gpu` holds the matrix and that the row pointers are wide enough.
    ///
    /// # Errors
    /// [`Error::Argument`] if not.
    pub(super) fn check(&self, gpu: &Gpu) -> Result<()> {
        if let Some(index) = self.index.filter(|&index| index != gpu.index) {
            let [own, other] = [index, gpu.index].map(handle);
            return Err(Error::argument(format!(
                "the matrix is on {own} and cannot be used on {other}: upload it to {other}"
            )));
        }
        let nnz = self.matrix.nnz;
        if !self.matrix.wide && Offsets::width(nnz) > 4 {
            return Err(Error::argument(format!(
                "{nnz} entries need 64-bit row pointers, but these have 32 bits"
            )));
        }
        Ok(())
    }

    /// Returns the number of entries of the longest row, if it is known.
    pub(super) fn longest_row(&self) -> Option<usize> {
        self.longest.get().copied()
    }

    /// Notes the number of entries of the longest row.
    pub(super) fn note_longest_row(&self, longest: usize) {
        // All ways to find it out agree.
        self.longest.set(longest).ok();
    }

    /// Returns the shape of the matrix.
    pub fn matrix(&self) -> Matrix {
        self.matrix
    }

    /// Returns the addresses of row pointers, column indices and values.
    pub fn addresses(&self) -> [cuda::CUdeviceptr; 3] {
        self.addresses
    }

    /// Returns the sizes of the three arrays, in bytes.
    pub fn bytes(&self) -> [u64; 3] {
        let width = if self.matrix.wide { 8 } else { 4 };
        let (nrows, nnz) = (self.matrix.nrows as u64, self.matrix.nnz as u64);
        [(nrows + 1) * width, 4 * nnz, nnz * size_of::<T>() as u64]
    }

    /// Copies the matrix to the host.
    ///
    /// # Errors
    /// [`Error::Device`] if the copy fails; [`Error::Argument`] if another GPU holds the matrix;
    /// and as [`Csr::new`] if the arrays are not a valid matrix.
    pub fn to_csr(&self, gpu: &Gpu) -> Result<Csr<T>> {
        self.check(gpu)?;
        gpu.make_current()?;
        let [_, _, values] = self.addresses;
        self.download(gpu, values)
    }

    /// Copies the matrix to the host, with the values at the address `values` instead of its own.
    pub(super) fn download(&self, gpu: &Gpu, values: cuda::CUdeviceptr) -> Result<Csr<T>> {
        let Matrix { nrows, ncols, nnz, .. } = self.matrix;
        let (row_ptr, columns) = self.download_pattern(gpu)?;
        let mut entries = vec![T::ZERO; nnz];
        read(values, bytemuck::cast_slice_mut(&mut entries), &gpu.queue)?;
        Csr::new(nrows, ncols, row_ptr, columns, entries)
    }

    /// Copies row pointers and column indices to the host.
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
