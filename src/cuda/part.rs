//! The product of one part of a divided matrix: rows that need a halo, after the exchange, and rows
//! that need none, at the same time.

use cust::sys as cuda;

use super::fork::Fork;
use super::{Gpu, GpuOperator, Graph};
use crate::dots::{DotWith, Fused, MOST};
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
        let beta = if group.adds() { T::ONE } else { beta };
        let y_at = y_at + (group.rows.start * size_of::<T>()) as u64;
        // SAFETY: by this function's own contract.
        unsafe { a.operator().apply_raw(alpha, x_at, beta, y_at, stream) }
    })
}

/// Queues y = alpha A x + beta y for the rows that need a halo, or for the others, and dot products of
/// these rows of y, which each operator writes to a list of [`MOST`] numbers of its own. Other vectors
/// are given by the addresses of the part's elements, as y is.
///
/// # Errors
/// [`Error::Argument`](crate::Error::Argument) for more dot products than a product computes;
/// [`Error::Device`](crate::Error::Device) if a launch fails.
///
/// # Safety
/// As [`multiply`]; `to` is the address of the lists, and the operators are ready for dot products.
pub(super) unsafe fn multiply_dots<T: Scalar>(
    operators: &Products<'_, T>,
    needs_halo: bool,
    (alpha, x_at): (T, u64),
    (beta, y_at): (T, u64),
    (with, to): (&[DotWith<u64>], u64),
    stream: cuda::CUstream,
) -> Result<()> {
    let each = size_of::<T>();
    for (list, (group, a)) in operators.iter().enumerate() {
        if group.needs_halo != needs_halo {
            continue;
        }
        let before = (group.rows.start * each) as u64;
        let with: Vec<_> = with.iter().map(|one| one.map(|z| z + before)).collect();
        let fused = Fused::new().dots(&with, to + (list * MOST * each) as u64);
        // SAFETY: by this function's own contract.
        unsafe { a.apply_fused_raw(alpha, x_at, beta, y_at + before, fused, stream)? };
    }
    Ok(())
}

/// The steps of a product on one GPU, each of which queues its work on the given stream.
pub(super) struct Steps<'a> {
    /// The exchange of halos.
    pub exchange: &'a dyn Fn(cuda::CUstream) -> Result<()>,
    /// The product of the groups that need a halo.
    pub boundary: &'a dyn Fn(cuda::CUstream) -> Result<()>,
    /// The product of the other groups.
    pub inner: &'a dyn Fn(cuda::CUstream) -> Result<()>,
    /// Set if the second product is added to the third one, and follows it.
    pub adds: bool,
}

/// Tells whether the products of groups that need a halo are added to those of the others.
pub(super) fn adds<T: Scalar>(operators: &Products<'_, T>) -> bool {
    operators.iter().any(|(group, _)| group.adds())
}

impl Steps<'_> {
    /// Queues the exchange, and the product that follows it at once if it needs no other one.
    fn beside(&self, stream: cuda::CUstream) -> Result<()> {
        (self.exchange)(stream)?;
        if self.adds { Ok(()) } else { (self.boundary)(stream) }
    }

    /// Queues all steps one after the other, or the inner product at the same time as the exchange if
    /// there is a second stream.
    ///
    /// # Errors
    /// Errors of the steps; [`Error::Device`](crate::Error::Device) from the driver.
    pub fn queue(&self, fork: Option<&Fork>, stream: cuda::CUstream) -> Result<()> {
        match fork {
            Some(fork) => {
                fork.run(stream, |side| self.beside(side), |stream| (self.inner)(stream))?;
                if self.adds { (self.boundary)(stream) } else { Ok(()) }
            }
            None => {
                (self.exchange)(stream)?;
                (self.inner)(stream)?;
                (self.boundary)(stream)
            }
        }
    }
}

/// The graphs of a product on one GPU.
pub(super) struct Graphs {
    main: Graph,
    /// The exchange and the rows that need a halo, on the second stream. Two graphs without branches
    /// follow each other closer than one with two branches.
    beside: Option<Graph>,
    /// The product that is added after both.
    after: Option<Graph>,
}

impl Graphs {
    /// Captures the steps of a product, of which some overlap if there is a second stream.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if the work cannot be captured.
    pub fn capture(gpu: &Gpu, fork: Option<&Fork>, steps: &Steps<'_>) -> Result<Self> {
        gpu.make_current()?;
        let Some(fork) = fork else {
            let main = Graph::capture(gpu, |stream| steps.queue(None, stream))?;
            return Ok(Graphs { main, beside: None, after: None });
        };
        let after = steps.adds.then(|| Graph::capture(gpu, |stream| (steps.boundary)(stream)));
        Ok(Graphs {
            beside: Some(Graph::capture_from(gpu, fork.side(), |side| steps.beside(side))?),
            main: Graph::capture(gpu, |stream| (steps.inner)(stream))?,
            after: after.transpose()?,
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
            None => launch(&self.main, stream)?,
            Some(beside) => {
                fork.run(stream, |side| launch(beside, side), |stream| launch(&self.main, stream))?
            }
        }
        self.after.as_ref().map_or(Ok(()), |after| launch(after, stream))
    }
}
