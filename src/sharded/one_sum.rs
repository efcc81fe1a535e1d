//! Conjugate gradients on several GPUs with one sum over them in each iteration.

use super::gpu::{GpuShards, OnGpus};
use super::numbers::GpuNumber;
use crate::cuda::OneSum;
use crate::dots::DotWith;
use crate::error::Result;
use crate::scalar::Scalar;

/// Iterations of conjugate gradients with one sum over the GPUs each, in place of two: the method of A. T.
/// Chronopoulos, C. W. Gear, s-step iterative methods for symmetric linear systems, 1989, with s = 1.
///
/// An iteration multiplies by r in place of p, and keeps s = A p by a recurrence. It therefore reads and
/// writes one vector more than the usual iteration ([`OnGpus::apply_dot`] shows that), so that it pays where
/// a sum takes longer: small parts, many GPUs. Its residual departs from b - A x by more than that of the
/// usual iteration; compute it anew at the end.
///
/// ```no_run
/// # use ellect::sharded::Split;
/// # use ellect::{Tuner, Workload, generate};
/// # fn main() -> ellect::Result<()> {
/// # let csr = generate::by_name("stencil7", 100_000, 1)?;
/// # let tuners = Tuner::open_all(&["cuda:0", "cuda:1"])?;
/// # let a = tuners.prepare_sharded(&csr, &Workload::default(), Split::EqualRows)?;
/// let gpus = a.on_gpus()?;
/// let mut r = gpus.scatter_x(&vec![1.0; csr.ncols()])?;
/// let mut x = gpus.zeros_x()?;
/// let mut cg = gpus.one_sum_cg(&r)?;
/// let two = gpus.record(|gpus| (0..2).try_for_each(|_| gpus.iterate(&mut cg, &mut x, &mut r)))?;
/// for _ in 0..50 {
///     two.launch()?;
/// }
/// println!("(r, r) = {}", gpus.read(cg.residual())?);
/// # Ok(())
/// # }
/// ```
pub struct OneSumCg<T: Scalar> {
    w: GpuShards<T>,
    p: GpuShards<T>,
    s: GpuShards<T>,
    /// (r, r) and (p, s) of the newest iteration, and of the one before.
    rr: [GpuNumber<T>; 2],
    pq: [GpuNumber<T>; 2],
    rw: GpuNumber<T>,
}

impl<T: Scalar> std::fmt::Debug for OneSumCg<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OneSumCg")
    }
}

impl<T: Scalar> OneSumCg<T> {
    /// Returns (r, r) of the newest iteration.
    pub fn residual(&self) -> &GpuNumber<T> {
        &self.rr[0]
    }
}

impl<T: Scalar> OnGpus<'_, T> {
    /// Begins conjugate gradients with r = b - A x, for a square matrix. Queues a product and returns
    /// without waiting.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) if r is divided in another way than the matrix;
    /// [`Error::Device`](crate::Error::Device) if memory runs out or a launch fails.
    pub fn one_sum_cg(&self, r: &GpuShards<T>) -> Result<OneSumCg<T>> {
        let number = || self.number();
        let mut cg = OneSumCg {
            w: self.zeros_x()?,
            p: self.zeros_x()?,
            s: self.zeros_x()?,
            rr: [number()?, number()?],
            pq: [number()?, number()?],
            rw: number()?,
        };
        self.dot_into(r, r, &mut cg.rr[0])?;
        self.apply_dot(T::ONE, r, T::ZERO, &mut cg.w, &[DotWith::X], &mut [&mut cg.rw])?;
        Ok(cg)
    }

    /// Queues an iteration, which moves x along the next direction and updates r; returns without waiting.
    ///
    /// Numbers are in turn those of the newest iteration, so a record needs an even number of iterations
    /// ([`OnGpus::record`]).
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) if x or r is divided in another way than the matrix;
    /// [`Error::Device`](crate::Error::Device) if a launch fails.
    pub fn iterate(
        &self,
        cg: &mut OneSumCg<T>,
        x: &mut GpuShards<T>,
        r: &mut GpuShards<T>,
    ) -> Result<()> {
        self.check_product(x, r)?;
        self.check_product(r, &cg.w)?;
        let ([rr, rr_before], [pq_before, pq]) = (&cg.rr, &cg.pq);
        let state = OneSum {
            vectors: [&cg.w.0, &cg.p.0, &cg.s.0, &x.0, &r.0],
            known: [rr, rr_before, &cg.rw, pq_before].map(|number| &number.0),
            pq: &pq.0,
        };
        self.peers.one_sum(&self.operator.on_each_gpu()?, &state)?;
        cg.rr.swap(0, 1);
        cg.pq.swap(0, 1);
        Ok(())
    }
}
