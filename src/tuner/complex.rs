//! Operators of complex matrices.

use super::Tuner;
use crate::choose::Workload;
use crate::complex::ComplexOperator;
use crate::csr::ComplexCsr;
use crate::error::Result;
use crate::format::Basis;
use crate::scalar::Scalar;

impl Tuner {
    /// Prepares a complex matrix as [`Tuner::prepare`] prepares the real matrix of twice the size that
    /// stands for it ([`ComplexCsr::to_real`]), in the original basis: all formats, timings and models
    /// apply to it. [`Tuner::recommend`] ranks the candidates for that matrix.
    ///
    /// If the workload has products with the transpose, the adjoint is prepared, too; a hermitian
    /// matrix has one layout for both. While the matrix is prepared, the real matrix is on the host.
    ///
    /// ```
    /// use ellect::csr::{Complex, ComplexCsr};
    /// use ellect::{Tuner, Workload};
    ///
    /// # fn main() -> ellect::Result<()> {
    /// let c = Complex::new;
    /// let csr = ComplexCsr::from_triplets(1, 2, [(0, 0, c(1.0, 2.0)), (0, 1, c(0.0, 1.0))])?;
    /// let operator = Tuner::open("cpu")?.prepare_complex(&csr, &Workload::default())?;
    /// let mut y = [c(0.0, 0.0)];
    /// operator.apply(c(1.0, 0.0), &[c(1.0, 0.0), c(3.0, 0.0)], c(0.0, 0.0), &mut y)?;
    /// assert_eq!(y, [c(1.0, 5.0)]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Tuner::prepare`].
    pub fn prepare_complex<T: Scalar>(
        &self,
        csr: &ComplexCsr<T>,
        workload: &Workload,
    ) -> Result<ComplexOperator<T>> {
        // A format may permute the rows of the real matrix apart from each other.
        let workload = Workload { basis: Basis::Original, ..*workload };
        let real = csr.to_real();
        match workload.transposed {
            0 => Ok(ComplexOperator::forward(csr, self.prepare(&real, &workload)?)),
            _ => Ok(ComplexOperator::both(csr, self.prepare_both(&real, &workload)?)),
        }
    }
}
