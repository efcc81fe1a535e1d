//! Numbers that all GPUs of a divided matrix know, and operations on divided vectors with them: the
//! work of a solver between products, without waiting.

use super::gpu::{GpuShards, OnGpus, lengths};
use crate::cuda::{PeerFactor, PeerVector};
use crate::dots::{DotWith, MOST};
use crate::error::{Error, Result};
use crate::scalar::Scalar;

/// A number that each GPU of an [`OnGpus`] has in its memory: the result of a dot product.
///
/// ```no_run
/// # use ellect::sharded::Split;
/// # use ellect::{Tuner, Workload, generate};
/// # fn main() -> ellect::Result<()> {
/// # let csr = generate::by_name("stencil7", 1_000_000, 1)?;
/// # let tuners = Tuner::open_all(&["cuda:0", "cuda:1"])?;
/// # let a = tuners.prepare_sharded(&csr, &Workload::default(), Split::EqualRows)?;
/// let on_gpus = a.on_gpus()?;
/// let x = on_gpus.scatter_x(&vec![2.0; csr.ncols()])?;
/// let mut square = on_gpus.number()?;
/// on_gpus.dot_into(&x, &x, &mut square)?;
/// assert_eq!(on_gpus.read(&square)?, 4.0 * csr.ncols() as f64);
/// # Ok(())
/// # }
/// ```
pub struct GpuNumber<T: Scalar>(pub(super) PeerVector<T>);

impl<T: Scalar> std::fmt::Debug for GpuNumber<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GpuNumber")
    }
}

/// A factor of a divided vector: a number, which may be multiplied by a quotient of two numbers that
/// only the GPUs know.
///
/// ```no_run
/// # use ellect::sharded::{GpuFactor, Split};
/// # use ellect::{Tuner, Workload, generate};
/// # fn main() -> ellect::Result<()> {
/// # let csr = generate::by_name("stencil7", 1_000_000, 1)?;
/// # let tuners = Tuner::open_all(&["cuda:0", "cuda:1"])?;
/// # let a = tuners.prepare_sharded(&csr, &Workload::default(), Split::EqualRows)?;
/// # let on_gpus = a.on_gpus()?;
/// # let (mut x, r, p, q) = (on_gpus.zeros_x()?, on_gpus.zeros_x()?, on_gpus.zeros_x()?, on_gpus.zeros_x()?);
/// let (mut rr, mut pq) = (on_gpus.number()?, on_gpus.number()?);
/// on_gpus.dot_into(&r, &r, &mut rr)?;
/// on_gpus.dot_into(&p, &q, &mut pq)?;
/// // x = x + (r.r / p.q) p
/// on_gpus.axpby(GpuFactor::quotient(1.0, &rr, &pq), &p, 1.0, &mut x)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct GpuFactor<'a, T: Scalar> {
    scale: T,
    quotient: Option<[&'a GpuNumber<T>; 2]>,
}

impl<T: Scalar> From<T> for GpuFactor<'_, T> {
    fn from(scale: T) -> Self {
        GpuFactor { scale, quotient: None }
    }
}

impl<'a, T: Scalar> GpuFactor<'a, T> {
    /// Creates the factor `scale * over / under`, whose numbers are read when the operation runs. If
    /// `under` is 0 then, the factor is 0: a solver that has found the exact solution stays there.
    pub fn quotient(scale: T, over: &'a GpuNumber<T>, under: &'a GpuNumber<T>) -> Self {
        GpuFactor { scale, quotient: Some([over, under]) }
    }

    fn of_parts(self) -> PeerFactor<'a, T> {
        (self.scale, self.quotient.map(|numbers| numbers.map(|number| &number.0)))
    }
}

impl<T: Scalar> OnGpus<'_, T> {
    /// Returns the number zero.
    ///
    /// # Errors
    /// [`Error::Device`] if memory runs out.
    pub fn number(&self) -> Result<GpuNumber<T>> {
        let parts = self.operator.parts().len();
        self.peers.zeros(&vec![(0..1, 1); parts]).map(GpuNumber)
    }

    /// Copies a number to the host, after all queued work.
    ///
    /// # Errors
    /// Errors of [`OnGpus::synchronize`].
    pub fn read(&self, number: &GpuNumber<T>) -> Result<T> {
        self.synchronize()?;
        let mut host = [T::ZERO];
        number.0.read(0, &mut host)?;
        Ok(host[0])
    }

    /// Queues the dot product of two vectors that are divided alike; returns without waiting.
    ///
    /// Each GPU sends the product of its elements to all others and adds those of all parts in their
    /// order, so that the GPUs have equal bits and equal vectors give equal bits.
    ///
    /// # Errors
    /// [`Error::Argument`] if the vectors are divided in different ways;
    /// [`Error::Device`] if a launch fails.
    pub fn dot_into(
        &self,
        x: &GpuShards<T>,
        y: &GpuShards<T>,
        result: &mut GpuNumber<T>,
    ) -> Result<()> {
        self.check_alike(x, y)?;
        self.peers.dot(&x.0, &y.0, &mut result.0)
    }

    /// Returns the dot product of two vectors that are divided alike; see [`OnGpus::dot_into`].
    /// Waits.
    ///
    /// # Errors
    /// As [`OnGpus::dot_into`] and [`OnGpus::synchronize`].
    pub fn dot(&self, x: &GpuShards<T>, y: &GpuShards<T>) -> Result<T> {
        let mut result = self.number()?;
        self.dot_into(x, y, &mut result)?;
        self.read(&result)
    }

    /// Queues y = alpha x + beta y for two vectors that are divided alike; with `beta = 0`, y is
    /// written and never read. Returns without waiting.
    ///
    /// # Errors
    /// As [`OnGpus::dot_into`].
    pub fn axpby<'b>(
        &self,
        alpha: impl Into<GpuFactor<'b, T>>,
        x: &GpuShards<T>,
        beta: impl Into<GpuFactor<'b, T>>,
        y: &mut GpuShards<T>,
    ) -> Result<()>
    where
        T: 'b,
    {
        self.check_alike(x, y)?;
        self.peers.axpby(alpha.into().of_parts(), &x.0, beta.into().of_parts(), &mut y.0)
    }

    /// Queues y = alpha A x + beta y for a square matrix, and dot products of the new y over all GPUs,
    /// in the order of `with`; with `beta = 0`, y is written and never read. Returns without waiting.
    ///
    /// Formats that can compute both in one pass over the matrix, and one sum over the GPUs serves all
    /// dot products; see [`OnGpus::dot_into`] for its order.
    ///
    /// ```no_run
    /// # use ellect::dots::DotWith;
    /// # use ellect::sharded::{GpuFactor, Split};
    /// # use ellect::{Tuner, Workload, generate};
    /// # fn main() -> ellect::Result<()> {
    /// # let csr = generate::by_name("stencil7", 1_000_000, 1)?;
    /// # let tuners = Tuner::open_all(&["cuda:0", "cuda:1"])?;
    /// # let a = tuners.prepare_sharded(&csr, &Workload::default(), Split::EqualRows)?;
    /// let gpus = a.on_gpus()?;
    /// let mut p = gpus.scatter_x(&vec![1.0; csr.ncols()])?;
    /// let (mut x, mut r, mut q) = (gpus.zeros_x()?, gpus.zeros_x()?, gpus.zeros_x()?);
    /// gpus.axpby(1.0, &p, 0.0, &mut r)?;
    /// let (mut rr, mut next, mut pq) = (gpus.number()?, gpus.number()?, gpus.number()?);
    /// gpus.dot_into(&r, &r, &mut rr)?;
    /// for _ in 0..100 {
    ///     // An iteration of conjugate gradients.
    ///     gpus.apply_dot(1.0, &p, 0.0, &mut q, &[DotWith::X], &mut [&mut pq])?;
    ///     gpus.axpby_dot(GpuFactor::quotient(-1.0, &rr, &pq), &q, 1.0, &mut r, &mut next)?;
    ///     let (alpha, beta) = (GpuFactor::quotient(1.0, &rr, &pq), GpuFactor::quotient(1.0, &next, &rr));
    ///     gpus.advance(alpha, &mut p, &mut x, beta, &r)?;
    ///     std::mem::swap(&mut rr, &mut next);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`OnGpus::apply`]; [`Error::Argument`] for more than [`MOST`] dot products, for several with x
    /// or another vector, for vectors that are divided in different ways, and unless `results` has a
    /// number for each of `with`.
    pub fn apply_dot(
        &self,
        alpha: T,
        x: &GpuShards<T>,
        beta: T,
        y: &mut GpuShards<T>,
        with: &[DotWith<&GpuShards<T>>],
        results: &mut [&mut GpuNumber<T>],
    ) -> Result<()> {
        self.check_product(x, y)?;
        let others = with.iter().filter(|one| !matches!(one, DotWith::Y)).count();
        if with.len() > MOST || others > 1 || with.len() != results.len() {
            return Err(Error::argument(format!(
                "{} dot products were asked for, {others} of them with x or another vector, and {} \
                 numbers given for them; one product computes {MOST} at most, one with x or another \
                 vector, and needs a number for each: compute the others with dot_into",
                with.len(),
                results.len()
            )));
        }
        for one in with {
            match one {
                DotWith::X => self.check_alike(x, y)?,
                DotWith::Y => {}
                DotWith::Z(z) => self.check_alike(z, y)?,
            }
        }
        let with: Vec<_> = with.iter().map(|one| one.map(|z| &z.0)).collect();
        let mut to: Vec<_> = results.iter_mut().map(|result| &mut result.0).collect();
        let products = self.operator.on_each_gpu()?;
        self.peers.apply_dot(&products, (alpha, &x.0), (beta, &mut y.0), (&with, &mut to))
    }

    /// Queues y = alpha x + beta y for two vectors that are divided alike, and (y, y) of the new y over
    /// all GPUs, in one pass; with `beta = 0`, y is written and never read. Returns without waiting.
    ///
    /// # Errors
    /// As [`OnGpus::dot_into`].
    pub fn axpby_dot<'b>(
        &self,
        alpha: impl Into<GpuFactor<'b, T>>,
        x: &GpuShards<T>,
        beta: impl Into<GpuFactor<'b, T>>,
        y: &mut GpuShards<T>,
        result: &mut GpuNumber<T>,
    ) -> Result<()>
    where
        T: 'b,
    {
        self.check_alike(x, y)?;
        let (alpha, beta) = (alpha.into().of_parts(), beta.into().of_parts());
        self.peers.axpby_dot(alpha, &x.0, beta, &mut y.0, &mut result.0)
    }

    /// Queues x = x + alpha p, followed by p = r + beta p, for vectors that are divided alike, in one
    /// pass: the step of conjugate gradients along p, and the next direction. Returns without waiting.
    ///
    /// # Errors
    /// As [`OnGpus::dot_into`].
    pub fn advance<'b>(
        &self,
        alpha: impl Into<GpuFactor<'b, T>>,
        p: &mut GpuShards<T>,
        x: &mut GpuShards<T>,
        beta: impl Into<GpuFactor<'b, T>>,
        r: &GpuShards<T>,
    ) -> Result<()>
    where
        T: 'b,
    {
        self.check_alike(p, x)?;
        self.check_alike(p, r)?;
        let (alpha, beta) = (alpha.into().of_parts(), beta.into().of_parts());
        self.peers.advance(alpha, &mut p.0, &mut x.0, beta, &r.0)
    }

    fn check_alike(&self, x: &GpuShards<T>, y: &GpuShards<T>) -> Result<()> {
        let alike = lengths(x).eq(lengths(y));
        self.operator.check(alike, "one of the two vectors", "zeros_x or zeros_y")
    }
}
