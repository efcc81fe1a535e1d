//! Transposes of matrices that a GPU holds.

use std::sync::OnceLock;

use cust::sys as cuda;

use super::launch::{PreparedLaunch, plain};
use super::memory::Memory;
use super::{DeviceCsr, Gpu, cusparse};
use crate::error::Result;
use crate::format::{Arg, Launch, Matrix};
use crate::scalar::Scalar;

impl<T: Scalar> DeviceCsr<T> {
    /// Returns the transpose, on the same GPU.
    ///
    /// cuSPARSE makes it (`cusparseCsr2cscEx2`, whose result is the same in every run). The host makes it
    /// if cuSPARSE is not on this machine, and for sizes that it does not take: 2^31 rows, columns or
    /// entries, row pointers of 64 bits, or no entries.
    ///
    /// ```no_run
    /// use ellect::cuda::{DeviceCsr, Gpu};
    /// use ellect::Csr;
    ///
    /// # fn main() -> ellect::Result<()> {
    /// let gpu = Gpu::open(0)?;
    /// let csr = Csr::from_triplets(2, 3, [(0, 2, 4.0), (1, 0, 5.0)])?;
    /// let transpose = DeviceCsr::upload(&gpu, &csr)?.transpose(&gpu)?;
    /// assert_eq!(transpose.to_csr(&gpu)?, csr.transpose());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) if another GPU holds the matrix;
    /// [`Error::Device`](crate::Error::Device) if memory runs out or the GPU fails.
    pub fn transpose(&self, gpu: &Gpu) -> Result<Self> {
        let [_, _, values] = self.addresses();
        self.transpose_of(gpu, values)
    }

    /// As [`DeviceCsr::transpose`], with the values at the address `values` instead of the matrix's own.
    ///
    /// # Errors
    /// As [`DeviceCsr::transpose`].
    pub(super) fn transpose_of(&self, gpu: &Gpu, values: cuda::CUdeviceptr) -> Result<Self> {
        self.check(gpu)?;
        gpu.make_current()?;
        let Matrix { nrows, ncols, nnz, wide } = self.matrix();
        let is_large = [nrows, ncols, nnz].into_iter().any(|size| i32::try_from(size).is_err());
        if wide || is_large || nnz == 0 || cusparse::version().is_none() {
            return DeviceCsr::upload(gpu, &self.download(gpu, values)?.transpose());
        }
        let of_values = (nnz * size_of::<T>()) as u64;
        let bytes = [4 * (ncols as u64 + 1), 4 * nnz as u64, of_values];
        let arrays = bytes.map(|bytes| Memory::new(bytes, &gpu.queue));
        let arrays = arrays.into_iter().collect::<Result<Vec<_>>>()?;
        let to = [0, 1, 2].map(|i: usize| arrays[i].address());
        let [row_ptr, col_idx, _] = self.addresses();
        let sizes = [nrows, ncols, nnz].map(|size| size as i32);
        // SAFETY: the arrays are those of this matrix, whose sizes fit 32 bits, and of its transpose.
        unsafe { cusparse::transpose::<T>(sizes, [row_ptr, col_idx, values], to, &gpu.queue)? };
        let matrix = Matrix { nrows: ncols, ncols: nrows, nnz, wide: false };
        Ok(DeviceCsr::owning(matrix, gpu, arrays, OnceLock::new()))
    }

    /// Tells whether both matrices have the same arrays, where this one has the values at `values`.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if the GPU fails.
    pub(super) fn equals(
        &self,
        values: cuda::CUdeviceptr,
        other: &Self,
        gpu: &Gpu,
    ) -> Result<bool> {
        if self.matrix() != other.matrix() {
            return Ok(false);
        }
        let [row_ptr, col_idx, _] = self.addresses();
        let found = Memory::zeros(4, &gpu.queue)?;
        let pairs = [row_ptr, col_idx, values].into_iter().zip(other.addresses());
        for ([own, others], bytes) in pairs.map(|(a, b)| [a, b]).zip(self.bytes()) {
            let launch = differ(bytes / 4, [own, others, found.address()]);
            let Some(step) = PreparedLaunch::new(gpu, &launch, plain)? else { continue };
            // SAFETY: both arrays have this number of words.
            unsafe { step.launch([0; 3], T::ZERO, T::ZERO, gpu.queue.as_inner())? };
        }
        let mut differ = 0u32;
        found.read(bytemuck::bytes_of_mut(&mut differ))?;
        Ok(differ == 0)
    }
}

/// Describes the comparison of two arrays of `words` words; the addresses are theirs, and that of the
/// result.
pub(super) fn differ(words: u64, addresses: [u64; 3]) -> Launch {
    let args = [words].into_iter().chain(addresses).map(Arg::U64).collect();
    Launch::over("compare", "differ".to_string(), words, 256, args)
}
