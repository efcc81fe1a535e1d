//! Features of a matrix on a GPU, counted there by the kernels of the image `features`.
//!
//! The kernels read the samples that the host would read ([`Detail`](crate::analysis::Detail)) and count whole numbers; the
//! host then computes features from the counts with one formula for both, so that they equal the
//! host's features to the last bit.

mod counts;
mod plan;
pub(super) mod sample;

use std::sync::PoisonError;

use cust::memory::LockedBuffer;
use cust::sys::CUstream;

use super::convert::word;
use super::launch::PreparedLaunch;
use super::memory::Memory;
use super::{DeviceCsr, Gpu, Graph, failed};
use crate::analysis::Analysis;
use crate::csr::Pattern;
use crate::error::Result;
use crate::features::{FeatureCounts, Features};
use crate::scalar::Scalar;
use plan::ArrayOffsets;
pub(super) use plan::CountPlan;

/// Maximum size of the memory kept for the next matrix, in bytes.
const MOST_KEPT: u64 = 64 << 20;

impl Gpu {
    /// Computes the cheap features of a matrix on this GPU: all of
    /// [`FEATURES`](crate::features::FEATURES), equal to the host's features of
    /// [`Analysis::sampled`].
    ///
    /// One launch counts on the GPU, and a copy of about 50 kB returns the counts.
    ///
    /// Reads the row pointers once and, of a large matrix, a bounded number of entries. In two
    /// cases the pattern is copied to the host and analysed there: if the matrix has more than 16
    /// rows and columns for each entry, or if its samples hold far more entries than the mean row
    /// length suggests.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if the device cannot allocate 4 bytes for each
    /// column, or fails.
    pub fn features<T: Scalar>(&self, csr: &DeviceCsr<T>) -> Result<Features> {
        csr.check(self)?;
        self.make_current()?;
        let matrix = csr.matrix();
        let summary = CountPlan::of(matrix).map_or(Ok(None), |plan| self.count(csr, &plan))?;
        if let Some(summary) = summary {
            csr.note_longest_row(summary.rows.max() as usize);
            return Ok(Features::from(&summary));
        }
        let (row_ptr, col_idx) = csr.download_pattern(self)?;
        let pattern = Pattern::of(matrix.nrows, matrix.ncols, &row_ptr, &col_idx);
        Ok(Features::of(&Analysis::sampled_pattern(pattern)))
    }

    /// Samples the features of a matrix on this GPU: those of
    /// [`Features::sampled`], equal to the host's but for the order of floating-point sums.
    ///
    /// One launch, which reads the row pointers once, writes to memory of the host; waits for it.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if the device fails.
    pub fn sample_features<T: Scalar>(&self, csr: &DeviceCsr<T>) -> Result<Features> {
        csr.check(self)?;
        self.make_current()?;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let memory = match kept.sample.take() {
            Some(memory) => memory,
            None => Memory::zeros(8 * sample::COUNTS as u64, &self.queue)?,
        };
        let out = kept.buffer.as_mut_ptr();
        let launch = sample::launch(csr.matrix(), memory.address(), out as u64);
        if let Some(step) = PreparedLaunch::new(self, &launch, |arg| word(csr, arg))? {
            // SAFETY: the kernel accesses the matrix's own arrays, `memory` and the buffer, which
            // the lock keeps from others until the kernel has ended.
            unsafe { step.launch([0; 3], T::ZERO, T::ZERO, self.queue.as_inner())? };
        }
        self.queue.synchronize().map_err(failed("sampling features"))?;
        let mut found = [0; sample::COUNTS];
        found.copy_from_slice(&kept.buffer[..sample::COUNTS]);
        // After a failure the counts may not be zeros, so they are kept only here.
        kept.sample = Some(memory);
        let counts = sample::counts(csr.matrix(), &found);
        csr.note_longest_row(counts.rows.longest as usize);
        Ok(Features::from(&counts))
    }

    /// Counts on the GPU; `None` if an array was too small.
    fn count<T: Scalar>(
        &self,
        csr: &DeviceCsr<T>,
        plan: &CountPlan,
    ) -> Result<Option<FeatureCounts>> {
        let places = &plan.places;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let memory = match kept.memory.take() {
            Some(memory) if memory.bytes() >= places.bytes => memory,
            _ => Memory::zeros(places.bytes, &self.queue)?,
        };
        self.queue_counting(csr, plan, &memory, self.queue.as_inner())?;
        let mut found = kept.read(&memory, places.some)?;
        if CountPlan::has_more(found) {
            found = kept.read(&memory, places.read)?;
        }
        // Restores the zeros for the next matrix.
        memory.clear(places.zeros as usize)?;
        let summary = plan.summary(found);
        let keep = summary.is_some() && memory.bytes() <= MOST_KEPT;
        kept.memory = keep.then_some(memory);
        Ok(summary)
    }

    /// Queues the counting kernel; `memory` must hold zeros.
    fn queue_counting<T: Scalar>(
        &self,
        csr: &DeviceCsr<T>,
        plan: &CountPlan,
        memory: &Memory,
        stream: CUstream,
    ) -> Result<()> {
        let launch = plan.launch(memory.address(), self.profile.processors);
        match PreparedLaunch::new(self, &launch, |arg| word(csr, arg))? {
            // SAFETY: the kernel accesses the matrix's own arrays and `memory`, which is freed
            // after it in stream order.
            Some(step) => unsafe { step.launch([0; 3], T::ZERO, T::ZERO, stream) },
            None => Ok(()),
        }
    }

    /// Times the GPU's work for [`Gpu::features`], in seconds: the mean over matrices of one
    /// pattern that take turns in one launch of a graph. `None` if the host computes the features
    /// of this pattern.
    ///
    /// # Errors
    /// As [`Gpu::features`].
    pub fn time_features<T: Scalar>(&self, copies: &[DeviceCsr<T>]) -> Result<Option<f64>> {
        self.make_current()?;
        let Some(plan) = copies.first().and_then(|csr| CountPlan::of(csr.matrix())) else {
            return Ok(None);
        };
        let ArrayOffsets { bytes, zeros, .. } = plan.places;
        let memory = Memory::zeros(bytes, &self.queue)?;
        // Synchronises, because the zeros were written on the GPU's own stream and the capture uses
        // another.
        self.synchronize()?;
        let turn = |csr: &DeviceCsr<T>, stream| {
            self.queue_counting(csr, &plan, &memory, stream)?;
            memory.clear_on(zeros as usize, stream)
        };
        let graph =
            Graph::capture(self, |stream| copies.iter().try_for_each(|csr| turn(csr, stream)))?;
        let _alone = self.alone();
        // SAFETY: the matrices and the memory outlive the launch, which `Gpu::time` waits for.
        let time = || self.time(|| unsafe { graph.launch(self) });
        time()?;
        Ok(Some(time()? / copies.len() as f64))
    }
}

/// Length of the page-locked buffer, in 64-bit numbers; sufficient for most matrices.
const USUAL: usize = 1 << 13;

/// Buffers for counting features, kept for the next matrix.
pub(super) struct CountBuffers {
    /// Device memory filled with zeros.
    memory: Option<Memory>,
    /// Device memory filled with zeros for [`Gpu::sample_features`].
    sample: Option<Memory>,
    /// Page-locked buffer for the counts, so that copies start at once.
    buffer: LockedBuffer<u64>,
}

impl CountBuffers {
    /// Allocates page-locked memory in the current context.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) from the driver.
    pub fn new() -> Result<Self> {
        Ok(CountBuffers { memory: None, sample: None, buffer: page_locked(USUAL)? })
    }

    /// Reads the first `bytes` bytes of `memory`.
    fn read(&mut self, memory: &Memory, bytes: u64) -> Result<&[u64]> {
        let len = bytes as usize / 8;
        if self.buffer.len() < len {
            self.buffer = page_locked(len)?;
        }
        memory.read(bytemuck::cast_slice_mut(&mut self.buffer[..len]))?;
        Ok(&self.buffer[..len])
    }
}

fn page_locked(len: usize) -> Result<LockedBuffer<u64>> {
    LockedBuffer::new(&0, len).map_err(failed("taking page-locked memory"))
}
