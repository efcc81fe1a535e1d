//! Work of a solver on several GPUs that is recorded once and launched many times.

use super::gpu::OnGpus;
use crate::cuda::PeerGraphs;
use crate::error::Result;
use crate::scalar::Scalar;

/// Work on the GPUs of an [`OnGpus`], recorded by [`OnGpus::record`] as one CUDA graph for each GPU.
///
/// ```no_run
/// # use ellect::sharded::Split;
/// # use ellect::{Tuner, Workload, generate};
/// # fn main() -> ellect::Result<()> {
/// # let csr = generate::by_name("stencil7", 1_000_000, 1)?;
/// # let tuners = Tuner::open_all(&["cuda:0", "cuda:1"])?;
/// # let a = tuners.prepare_sharded(&csr, &Workload::default(), Split::EqualRows)?;
/// let gpus = a.on_gpus()?;
/// let (mut x, mut y) = (gpus.zeros_x()?, gpus.zeros_x()?);
/// // y = A x; x = x - 0.1 y
/// let step = gpus.record(|gpus| {
///     gpus.apply(1.0, &x, 0.0, &mut y)?;
///     gpus.axpby(-0.1, &y, 1.0, &mut x)
/// })?;
/// for _ in 0..100 {
///     step.launch()?;
/// }
/// # Ok(())
/// # }
/// ```
pub struct RecordedWork<'a, T: Scalar>(PeerGraphs<'a, T>);

impl<T: Scalar> std::fmt::Debug for RecordedWork<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RecordedWork")
    }
}

impl<T: Scalar> OnGpus<'_, T> {
    /// Records the products, dot products and updates that `work` queues, without running them. A launch
    /// of all of them costs the host one call for each GPU.
    ///
    /// Parts exchange first and then multiply in recorded work, which is quickest if the matrix is prepared
    /// with [`Mode::Vector`](super::Mode::Vector).
    ///
    /// The recorded work keeps the memory of its vectors and numbers. It uses what they hold when it is
    /// launched; numbers that are swapped between iterations of a solver take two iterations in one
    /// record. `work` must not wait, read numbers, or make vectors, and other threads must not queue
    /// anything on these GPUs meanwhile.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) if `work` records something itself; errors of `work`;
    /// [`Error::Device`](crate::Error::Device) if it waits, reads or makes vectors.
    pub fn record(&self, work: impl FnOnce(&Self) -> Result<()>) -> Result<RecordedWork<'_, T>> {
        let products = self.operator.on_each_gpu()?;
        self.peers.record(&products, || work(self)).map(RecordedWork)
    }
}

impl<T: Scalar> RecordedWork<'_, T> {
    /// Queues the recorded work on all GPUs and returns without waiting.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if a launch fails. A fault of a kernel shows when the GPUs
    /// are waited for.
    pub fn launch(&self) -> Result<()> {
        self.0.launch()
    }
}
