//! Products with dot products of their result, and with its multiple added to another vector.

use super::{Location, PreparedOperator};
use crate::dots::{self, DotWith, Fused, Wanted};
use crate::error::Result;
use crate::scalar::Scalar;

impl<T: Scalar> PreparedOperator<T> {
    /// Computes y = alpha A x + beta y and dot products of the new y, which are written to `results` in the
    /// order of `with`; with `beta = 0`, y is written and never read.
    ///
    /// The dot products are computed on this host after the product, in double precision and in an order
    /// that depends on the length alone: equal vectors give equal bits. For vectors on a GPU there is
    /// `GpuOperator::apply_dot`, which computes them there, in the pass of the product where the format
    /// can ([`PreparedOperator::fuses_dots`]).
    ///
    /// ```
    /// use ellect::dots::DotWith;
    /// use ellect::{Csr, Tuner, Workload};
    ///
    /// # fn main() -> ellect::Result<()> {
    /// let csr = Csr::from_triplets(2, 2, [(0, 0, 2.0), (0, 1, 1.0), (1, 1, 3.0)])?;
    /// let operator = Tuner::open("cpu")?.prepare(&csr, &Workload::default())?;
    /// let (x, mut y, mut dots) = ([1.0, 2.0], [1.0; 2], [0.0; 2]);
    /// operator.apply_dot(1.0, &x, -1.0, &mut y, &[DotWith::X, DotWith::Y], &mut dots)?;
    /// assert_eq!((y, dots), ([3.0, 5.0], [13.0, 34.0]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`PreparedOperator::apply`]; [`Error::Argument`](crate::Error::Argument) for more than
    /// [`dots::MOST`] dot products, several with other vectors, or one with x where the matrix is not
    /// square; [`Error::Shape`](crate::Error::Shape) unless there is a result for each of `with`, and z has
    /// as many elements as y. Nothing is written then.
    pub fn apply_dot(
        &self,
        alpha: T,
        x: &[T],
        beta: T,
        y: &mut [T],
        with: &[DotWith<&[T]>],
        results: &mut [T],
    ) -> Result<()> {
        self.apply_fused(alpha, x, beta, y, Fused::new().dots(with, results))
    }

    /// Computes y = alpha A x + beta y, and of the new y what `fused` asks for: dot products as
    /// [`PreparedOperator::apply_dot`] does, and w = w + gamma y.
    ///
    /// On a host, y is read once more for both together. For vectors on a GPU there is
    /// `GpuOperator::apply_fused`, which computes them there, in the pass of the product where the format
    /// can ([`PreparedOperator::fuses_dots`]). [`Fused`] has an example.
    ///
    /// # Errors
    /// As [`PreparedOperator::apply_dot`]; [`Error::Shape`](crate::Error::Shape) unless w has as many
    /// elements as y. Nothing is written then.
    pub fn apply_fused(
        &self,
        alpha: T,
        x: &[T],
        beta: T,
        y: &mut [T],
        fused: Fused<'_, T, &[T], &mut [T]>,
    ) -> Result<()> {
        let wanted = Wanted::of(&fused, [self.nrows, self.ncols])?;
        fused.check_lengths(self.nrows, |z| z.len(), |w| w.len())?;
        self.apply(alpha, x, beta, y)?;
        dots::compute(&wanted, fused, x, y);
        Ok(())
    }

    /// Tells whether dot products of vectors on a GPU, and w = w + gamma y, are computed in the pass of the
    /// product; false on a host.
    pub fn fuses_dots(&self) -> bool {
        match &self.location {
            Location::Host(_) => false,
            Location::Gpu(placed) => placed.fuses_dots(),
        }
    }
}
