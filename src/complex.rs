//! Complex matrices prepared for repeated products, as real ones of twice the size.

use bytemuck::cast_slice;

use crate::choose::Choice;
use crate::csr::{Complex, ComplexCsr};
use crate::device::Kind;
use crate::error::{Error, Result};
use crate::format::Candidate;
use crate::operator::PreparedOperator;
use crate::operator::complex::{check_lengths, with_factors};
use crate::pair::PreparedPair;
use crate::par::Scratch;
use crate::scalar::Scalar;

/// A complex matrix prepared for repeated products, and also its adjoint if the workload has products
/// with the transpose; [`Tuner::prepare_complex`](crate::Tuner::prepare_complex) makes it.
///
/// It multiplies by the real matrix of twice the size ([`ComplexCsr::to_real`]), in a format that
/// was chosen among all formats. Vectors are in the original basis.
///
/// ```
/// use ellect::csr::{Complex, ComplexCsr};
/// use ellect::{Tuner, Workload};
///
/// # fn main() -> ellect::Result<()> {
/// let c = Complex::new;
/// let csr = ComplexCsr::from_triplets(2, 2, [(0, 0, c(0.0, 1.0)), (1, 0, c(2.0, -1.0))])?;
/// let workload = Workload { spmvs: 500, transposed: 500, ..Workload::default() };
/// let mut a = Tuner::open("cpu")?.prepare_complex(&csr, &workload)?;
///
/// let (one, zero, mut y) = (c(1.0, 0.0), c(0.0, 0.0), [c(0.0, 0.0); 2]);
/// a.apply(one, &[c(1.0, 1.0), c(5.0, 0.0)], zero, &mut y)?;
/// assert_eq!(y, [c(-1.0, 1.0), c(3.0, 1.0)]);
/// a.apply_adjoint(one, &[c(1.0, 0.0), c(0.0, 1.0)], zero, &mut y)?;
/// assert_eq!(y, [c(-1.0, 1.0), c(0.0, 0.0)]);
///
/// a.update_values(&[c(3.0, 0.0), c(0.0, 0.0)])?;
/// a.apply(c(0.0, 1.0), &[one, one], zero, &mut y)?;
/// assert_eq!(y, [c(0.0, 3.0), zero]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ComplexOperator<T: Scalar> {
    /// First entry of each complex row, and the end.
    row_ptr: Vec<usize>,
    ncols: usize,
    operator: Directions<T>,
    scratch: Scratch<T>,
}

/// The directions that are prepared.
#[derive(Debug)]
enum Directions<T: Scalar> {
    Forward(PreparedOperator<T>),
    Both(Box<PreparedPair<T>>),
}

impl<T: Scalar> ComplexOperator<T> {
    /// Wraps the operator of the real matrix.
    pub(crate) fn forward(csr: &ComplexCsr<T>, operator: PreparedOperator<T>) -> Self {
        ComplexOperator::of(csr, Directions::Forward(operator))
    }

    /// Wraps the operators of the real matrix and its transpose.
    pub(crate) fn both(csr: &ComplexCsr<T>, pair: PreparedPair<T>) -> Self {
        ComplexOperator::of(csr, Directions::Both(Box::new(pair)))
    }

    fn of(csr: &ComplexCsr<T>, operator: Directions<T>) -> Self {
        let (row_ptr, ncols) = (csr.row_ptr().to_vec(), csr.ncols());
        ComplexOperator { row_ptr, ncols, operator, scratch: Scratch::default() }
    }

    /// Computes y = alpha A x + beta y; with `beta = 0`, y is written and never read. With a factor
    /// that is not real, the product goes to a buffer that the operator keeps.
    ///
    /// # Errors
    /// [`Error::Shape`] unless `x` has `ncols` and `y` has `nrows` elements; [`Error::Device`] from a
    /// GPU.
    pub fn apply(
        &self,
        alpha: Complex<T>,
        x: &[Complex<T>],
        beta: Complex<T>,
        y: &mut [Complex<T>],
    ) -> Result<()> {
        check_lengths([self.nrows(), self.ncols], x, y)?;
        with_factors(&self.scratch, alpha, beta, y, |alpha, beta, y| {
            self.real().apply(alpha, cast_slice(x), beta, y)
        })
    }

    /// Computes y = alpha A^H x + beta y with the adjoint (conjugate transpose): `x` has as many
    /// elements as A has rows, `y` as many as A has columns.
    ///
    /// # Errors
    /// [`Error::Argument`] if the workload had no products with the transpose; otherwise as
    /// [`ComplexOperator::apply`].
    pub fn apply_adjoint(
        &self,
        alpha: Complex<T>,
        x: &[Complex<T>],
        beta: Complex<T>,
        y: &mut [Complex<T>],
    ) -> Result<()> {
        // The transpose of the real matrix stands for the adjoint of the complex one.
        let Directions::Both(pair) = &self.operator else {
            return Err(Error::argument(
                "the adjoint is not prepared; set the workload's 'transposed' to the number of products \
                 with it",
            ));
        };
        check_lengths([self.ncols, self.nrows()], x, y)?;
        with_factors(&self.scratch, alpha, beta, y, |alpha, beta, y| {
            pair.apply_transposed(alpha, cast_slice(x), beta, y)
        })
    }

    /// Replaces the values, given in the order of the complex CSR arrays.
    ///
    /// # Errors
    /// [`Error::PatternChanged`] unless there are `nnz` values; otherwise as
    /// [`PreparedOperator::update_values`].
    pub fn update_values(&mut self, values: &[Complex<T>]) -> Result<()> {
        if values.len() != self.nnz() {
            return Err(Error::PatternChanged {
                what: format!("{} values for {} entries", values.len(), self.nnz()),
            });
        }
        let values =
            crate::csr::complex::block_values(&self.row_ptr, |k| [values[k].re, values[k].im]);
        match &mut self.operator {
            Directions::Forward(operator) => operator.update_values(&values),
            Directions::Both(pair) => pair.update_values(&values),
        }
    }

    /// Compares one product in each prepared direction with the CSR reference of `csr`, for vectors
    /// generated from `seed`.
    ///
    /// # Errors
    /// As [`PreparedOperator::verify`].
    pub fn verify(&self, csr: &ComplexCsr<T>, seed: u64) -> Result<()> {
        match &self.operator {
            Directions::Forward(operator) => operator.verify(&csr.to_real(), seed),
            Directions::Both(pair) => pair.verify(&csr.to_real(), seed),
        }
    }

    /// Returns the operator of the real matrix of twice the size, for vectors of real and imaginary
    /// parts in turn: for products with several vectors, or with vectors on a GPU.
    pub fn real(&self) -> &PreparedOperator<T> {
        match &self.operator {
            Directions::Forward(operator) => operator,
            Directions::Both(pair) => pair.forward(),
        }
    }

    /// Returns the operator of the transpose of the real matrix, which stands for the adjoint; `None`
    /// if the workload had no products with the transpose.
    pub fn real_adjoint(&self) -> Option<&PreparedOperator<T>> {
        match &self.operator {
            Directions::Forward(_) => None,
            Directions::Both(pair) => Some(pair.transposed()),
        }
    }

    /// Returns the choice for the real matrix.
    pub fn choice(&self) -> Option<&Choice> {
        self.real().choice()
    }

    /// Returns the candidate that was prepared.
    pub fn candidate(&self) -> &Candidate {
        self.real().candidate()
    }

    /// Returns the size of all layouts, in bytes.
    pub fn bytes(&self) -> u64 {
        match &self.operator {
            Directions::Forward(operator) => operator.bytes(),
            Directions::Both(pair) => pair.bytes(),
        }
    }

    /// Returns where the operator multiplies: on a GPU, or on this host.
    pub fn runs_on(&self) -> Kind {
        self.real().runs_on()
    }

    /// Returns the number of complex rows.
    pub fn nrows(&self) -> usize {
        self.row_ptr.len() - 1
    }

    /// Returns the number of complex columns.
    pub fn ncols(&self) -> usize {
        self.ncols
    }

    /// Returns the number of complex entries.
    pub fn nnz(&self) -> usize {
        self.row_ptr[self.nrows()]
    }
}
