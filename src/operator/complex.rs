//! Products of a real matrix with complex vectors, and complex factors of any product.

use bytemuck::{cast_slice, cast_slice_mut};

use super::PreparedOperator;
use crate::csr::Complex;
use crate::dense::{DenseMut, DenseRef, Order};
use crate::error::{Error, Result};
use crate::par::{self, Scratch};
use crate::scalar::Scalar;

impl<T: Scalar> PreparedOperator<T> {
    /// Computes y = alpha A x + beta y for complex vectors; with `beta = 0`, y is written and never
    /// read.
    ///
    /// Real and imaginary parts are two vectors that are multiplied together, as by
    /// [`PreparedOperator::apply_many`]. With a factor that is not real, the product goes to a buffer
    /// that the operator keeps. For a complex matrix, see
    /// [`ComplexOperator`](crate::ComplexOperator).
    ///
    /// ```
    /// use ellect::csr::Complex;
    /// use ellect::{Csr, Tuner, Workload};
    ///
    /// # fn main() -> ellect::Result<()> {
    /// let csr = Csr::from_triplets(1, 2, [(0, 0, 2.0), (0, 1, 3.0)])?;
    /// let operator = Tuner::open("cpu")?.prepare(&csr, &Workload::default())?;
    /// let c = Complex::new;
    /// let mut y = [c(1.0, 0.0)];
    /// operator.apply_complex(c(1.0, 0.0), &[c(1.0, 1.0), c(0.0, 4.0)], c(0.0, 1.0), &mut y)?;
    /// assert_eq!(y, [c(2.0, 15.0)]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`] unless `x` has `ncols` and `y` has `nrows` elements; [`Error::Device`] from a
    /// GPU.
    pub fn apply_complex(
        &self,
        alpha: Complex<T>,
        x: &[Complex<T>],
        beta: Complex<T>,
        y: &mut [Complex<T>],
    ) -> Result<()> {
        check_lengths([self.nrows, self.ncols], x, y)?;
        with_factors(&self.scratch, alpha, beta, y, |alpha, beta, y| {
            let x = DenseRef::new(Order::RowMajor, [self.ncols, 2], 2, cast_slice(x))?;
            let y = DenseMut::new(Order::RowMajor, [self.nrows, 2], 2, y)?;
            self.apply_many(alpha, x, beta, y)
        })
    }
}

/// Checks that complex vectors fit a product of `[nrows, ncols]`.
///
/// # Errors
/// [`Error::Shape`] if one does not.
pub(crate) fn check_lengths<T>(
    [nrows, ncols]: [usize; 2],
    x: &[Complex<T>],
    y: &[Complex<T>],
) -> Result<()> {
    if x.len() != ncols {
        return Err(Error::Shape { what: "x", got: x.len(), needed: ncols });
    }
    if y.len() != nrows {
        return Err(Error::Shape { what: "y", got: y.len(), needed: nrows });
    }
    Ok(())
}

/// Computes y = alpha p + beta y, where `product(a, b, y)` computes y = a p + b y for real factors.
///
/// # Errors
/// As `product`; y is unchanged if that leaves it so.
pub(crate) fn with_factors<T: Scalar>(
    scratch: &Scratch<T>,
    alpha: Complex<T>,
    beta: Complex<T>,
    y: &mut [Complex<T>],
    product: impl FnOnce(T, T, &mut [T]) -> Result<()>,
) -> Result<()> {
    if alpha.im == T::ZERO && beta.im == T::ZERO {
        return product(alpha.re, beta.re, cast_slice_mut(y));
    }
    let is_written = beta.re == T::ZERO && beta.im == T::ZERO;
    scratch.with(2 * y.len(), |sums| {
        product(T::ONE, T::ZERO, sums)?;
        let sums: &[Complex<T>] = cast_slice(sums);
        par::for_each(y, par::GRAIN, |i, y| {
            let sum = times(alpha, sums[i]);
            let old =
                if is_written { Complex { re: T::ZERO, im: T::ZERO } } else { times(beta, *y) };
            *y = Complex { re: sum.re + old.re, im: sum.im + old.im };
        });
        Ok(())
    })
}

fn times<T: Scalar>(a: Complex<T>, b: Complex<T>) -> Complex<T> {
    Complex { re: a.re * b.re - a.im * b.im, im: a.re * b.im + a.im * b.re }
}
