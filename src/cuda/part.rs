//! The product of one part of a divided matrix: rows that need a halo, after the exchange, and rows
//! that need none, at the same time.

use cust::sys as cuda;

use super::fork::Fork;
use super::{Gpu, GpuOperator, Graph};
use crate::error::Result;
use crate::partition::Group;
use crate::scalar::Scalar;

/// The operators of a part, and their rows.
pub(crate) type Products<'a, T> = Vec<(&'a Group, &'a GpuOperator<T>)>;

/// Tells whether the part has rows that are multiplied without a halo.
pub(super) fn has_inner<T: Scalar>(operators: &Products<'_, T>) -> bool {
    operators.iter().any(|(group, _)| !group.needs_halo)
}

/// Queues y = alpha A x + beta y for the rows that need a halo, or for the others; x and y are given by
/// their addresses.
///
/// # Errors
/// [`Error::Device`](crate::Error::Device) if a launch fails.
///
/// # Safety
/// The vectors have the lengths that the operators need and live, like these, until the stream has
/// finished. The context of the part's GPU is current.
pub(super) unsafe fn multiply<T: Scalar>(
    operators: &Products<'_, T>,
    needs_halo: bool,
    (alpha, x_at): (T, u64),
    (beta, y_at): (T, u64),
    stream: cuda::CUstream,
) -> Result<()> {
    let mut wanted = operators.iter().filter(|(group, _)| group.needs_halo == needs_halo);
    wanted.try_for_each(|(group, a)| {
        let y_at = y_at + (group.rows.start * size_of::<T>()) as u64;
        // SAFETY: by this function's own contract.
        unsafe { a.operator().apply_raw(alpha, x_at, beta, y_at, stream) }
    })
}

/// Queues the two halves of a product: at the same time if they overlap, else after each other.
///
/// # Errors
/// Errors of the halves; [`Error::Device`](crate::Error::Device) from the driver.
pub(super) fn queue(
    fork: Option<&Fork>,
    stream: cuda::CUstream,
    with_halo: impl FnOnce(cuda::CUstream) -> Result<()>,
    inner: impl FnOnce(cuda::CUstream) -> Result<()>,
) -> Result<()> {
    match fork {
        Some(fork) => fork.run(stream, with_halo, inner),
        None => with_halo(stream).and_then(|()| inner(stream)),
    }
}

/// The graphs of a product on one GPU.
pub(super) struct Graphs {
    main: Graph,
    /// The exchange and the rows that need a halo, on the second stream. Two graphs without branches
    /// follow each other closer than one with two branches.
    beside: Option<Graph>,
}

impl Graphs {
    /// Captures the two halves of a product, which overlap if there is a second stream.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if the work cannot be captured.
    pub fn capture(
        gpu: &Gpu,
        fork: Option<&Fork>,
        with_halo: impl FnOnce(cuda::CUstream) -> Result<()>,
        inner: impl FnOnce(cuda::CUstream) -> Result<()>,
    ) -> Result<Self> {
        gpu.make_current()?;
        Ok(match fork {
            Some(fork) => Graphs {
                beside: Some(Graph::capture_from(gpu, fork.side(), with_halo)?),
                main: Graph::capture(gpu, inner)?,
            },
            None => Graphs {
                beside: None,
                main: Graph::capture(gpu, |stream| with_halo(stream).and_then(|()| inner(stream)))?,
            },
        })
    }

    /// Queues the product on the GPU's streams.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if a launch fails.
    ///
    /// # Safety
    /// As for [`Graph::launch`]; `fork` is the second stream of the GPU.
    pub unsafe fn launch(&self, gpu: &Gpu, fork: &Fork) -> Result<()> {
        gpu.make_current()?;
        let stream = gpu.queue.as_inner();
        // SAFETY: by this function's own contract.
        let launch = |graph: &Graph, stream| unsafe { graph.launch_on(stream) };
        match &self.beside {
            None => launch(&self.main, stream),
            Some(beside) => {
                fork.run(stream, |side| launch(beside, side), |stream| launch(&self.main, stream))
            }
        }
    }
}
