//! A matrix and its transpose, prepared together: for solvers that multiply by both, as LSQR, CGLS,
//! BiCG and PDHG do.
//!
//! The transpose is a matrix of its own, with its own fingerprint, timings and choice: a matrix with
//! short rows and a few long columns has a transpose with a few long rows. A symmetric matrix has
//! one layout for both directions.

use std::sync::Arc;

use crate::analysis::Analysis;
use crate::choose::{Choice, TransposedChoice, Workload};
use crate::csr::{Csr, CsrRef, EntryOrder, equal};
use crate::dense::{DenseMut, DenseRef};
use crate::error::{Error, Result};
use crate::format::{Basis, CSR, Candidate};
use crate::measure::Backend;
use crate::operator::PreparedOperator;
use crate::scalar::Scalar;

/// A matrix A and its transpose, prepared for repeated products with both;
/// [`Tuner::prepare_both`](crate::Tuner::prepare_both) makes it.
///
/// If A is symmetric, both directions share one layout. Otherwise each has its own, in the original
/// basis. New values reach both.
///
/// ```
/// use ellect::{Csr, Tuner, Workload};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = Csr::from_triplets(2, 3, [(0, 0, 4.0), (0, 2, 1.0), (1, 1, 5.0)])?;
/// let workload = Workload { spmvs: 500, transposed: 500, ..Workload::default() };
/// let mut a = Tuner::open("cpu")?.prepare_both(&csr, &workload)?;
///
/// let (mut y, mut z) = ([0.0; 2], [0.0; 3]);
/// a.apply(1.0, &[1.0, 2.0, 3.0], 0.0, &mut y)?;
/// a.apply_transposed(1.0, &[1.0, 1.0], 0.0, &mut z)?;
/// assert_eq!((y, z), ([7.0, 10.0], [4.0, 5.0, 1.0]));
/// assert!(!a.is_shared());
///
/// a.update_values(&[1.0, 1.0, 2.0])?;
/// a.apply_transposed(1.0, &[1.0, 1.0], 0.0, &mut z)?;
/// assert_eq!(z, [1.0, 2.0, 1.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct PreparedPair<T: Scalar> {
    forward: PreparedOperator<T>,
    /// `None` if A is symmetric.
    transposed: Option<PreparedOperator<T>>,
    /// Places of A's values in the order of the transpose; made when values are first replaced,
    /// unless the workload announced that.
    order: Option<EntryOrder>,
    backend: Arc<Backend>,
    /// Basis of a layout that new values may need, and the memory for all layouts.
    basis: Basis,
    memory_limit: u64,
}

impl<T: Scalar> PreparedPair<T> {
    pub(crate) fn new(
        forward: PreparedOperator<T>,
        transposed: Option<PreparedOperator<T>>,
        order: Option<EntryOrder>,
        backend: Arc<Backend>,
        (basis, memory_limit): (Basis, u64),
    ) -> Self {
        PreparedPair { forward, transposed, order, backend, basis, memory_limit }
    }

    /// Computes y = alpha A x + beta y; see [`PreparedOperator::apply`].
    ///
    /// # Errors
    /// As [`PreparedOperator::apply`].
    pub fn apply(&self, alpha: T, x: &[T], beta: T, y: &mut [T]) -> Result<()> {
        self.forward.apply(alpha, x, beta, y)
    }

    /// Computes y = alpha A^T x + beta y: `x` has as many elements as A has rows, `y` as many as A
    /// has columns. With `beta = 0`, y is written and never read.
    ///
    /// # Errors
    /// As [`PreparedOperator::apply`].
    pub fn apply_transposed(&self, alpha: T, x: &[T], beta: T, y: &mut [T]) -> Result<()> {
        self.transposed().apply(alpha, x, beta, y)
    }

    /// Computes Y = alpha A X + beta Y; see [`PreparedOperator::apply_many`].
    ///
    /// # Errors
    /// As [`PreparedOperator::apply_many`].
    pub fn apply_many(
        &self,
        alpha: T,
        x: DenseRef<'_, T>,
        beta: T,
        y: DenseMut<'_, T>,
    ) -> Result<()> {
        self.forward.apply_many(alpha, x, beta, y)
    }

    /// Computes Y = alpha A^T X + beta Y, as [`PreparedOperator::apply_many`] does for A.
    ///
    /// # Errors
    /// As [`PreparedOperator::apply_many`].
    pub fn apply_many_transposed(
        &self,
        alpha: T,
        x: DenseRef<'_, T>,
        beta: T,
        y: DenseMut<'_, T>,
    ) -> Result<()> {
        self.transposed().apply_many(alpha, x, beta, y)
    }

    /// Returns the operator of A: its choice, its bytes, and on a GPU its products there.
    pub fn forward(&self) -> &PreparedOperator<T> {
        &self.forward
    }

    /// Returns the operator of the transpose; that of A if they share one layout.
    pub fn transposed(&self) -> &PreparedOperator<T> {
        self.transposed.as_ref().unwrap_or(&self.forward)
    }

    /// Returns the choice for A, which holds that for the transpose; `None` if a candidate was named.
    pub fn choice(&self) -> Option<Choice> {
        let transposed = match &self.transposed {
            None => Some(TransposedChoice::Shared),
            Some(own) => own.choice().cloned().map(Box::new).map(TransposedChoice::Own),
        };
        self.forward.choice().cloned().map(|choice| Choice { transposed, ..choice })
    }

    /// Returns both operators, for callers that keep them apart; `None` for the transpose if A is
    /// symmetric.
    pub fn into_parts(self) -> (PreparedOperator<T>, Option<PreparedOperator<T>>) {
        (self.forward, self.transposed)
    }

    /// Returns true if one layout serves both directions, because A is symmetric.
    pub fn is_shared(&self) -> bool {
        self.transposed.is_none()
    }

    /// Returns the size in bytes of all layouts, and of the order that updates of values need.
    pub fn bytes(&self) -> u64 {
        let transposed = self.transposed.as_ref().map_or(0, PreparedOperator::bytes);
        let order = self.order.as_ref().map_or(0, EntryOrder::bytes);
        self.forward.bytes() + transposed + order
    }

    /// Replaces the values of A by those of a matrix with the same pattern, in the order of the CSR
    /// arrays. The transpose takes them in one pass.
    ///
    /// The first update finds out the order of the values in the transpose, unless
    /// [`Workload::values`] announced updates. If a shared layout gets values that are not
    /// symmetric, the transpose gets a layout of its own from then on, in the format of A's.
    ///
    /// # Errors
    /// As [`PreparedOperator::update_values`]; then both directions keep their values. An error of
    /// a GPU ([`Error::Device`]) may leave one of them updated.
    pub fn update_values(&mut self, values: &[T]) -> Result<()> {
        self.forward.check_values(values)?;
        let order = match self.order.take() {
            Some(order) => order,
            None => EntryOrder::of(self.forward.to_csr()?.pattern()),
        };
        let turned = order.take(values);
        self.order = Some(order);
        match &mut self.transposed {
            Some(transposed) => {
                transposed.check_values(&turned)?;
                self.forward.set_values(values)?;
                transposed.set_values(&turned)
            }
            None if equal(values, &turned) => self.forward.set_values(values),
            None => {
                let transposed = self.own_layout(&turned)?;
                self.forward.set_values(values)?;
                self.transposed = Some(transposed);
                Ok(())
            }
        }
    }

    /// Replaces the values by those of `csr`, after checking that its pattern is the prepared one.
    ///
    /// # Errors
    /// As [`PreparedOperator::update`] and [`PreparedPair::update_values`].
    pub fn update<'a>(&mut self, csr: impl Into<CsrRef<'a, T>>) -> Result<()> {
        let csr = csr.into();
        self.forward.check_pattern(csr)?;
        self.update_values(csr.values())
    }

    /// Compares one product in each direction with the CSR reference of `csr`, for vectors generated
    /// from `seed`; makes the transpose of `csr` for it.
    ///
    /// # Errors
    /// As [`PreparedOperator::verify`].
    pub fn verify<'a>(&self, csr: impl Into<CsrRef<'a, T>>, seed: u64) -> Result<()> {
        let csr = csr.into();
        self.forward.verify(csr, seed)?;
        self.transposed().verify(&csr.transpose(), seed)
    }

    /// Converts the transpose of a matrix with symmetric pattern, from its values.
    fn own_layout(&self, turned: &[T]) -> Result<PreparedOperator<T>> {
        let mut csr: Csr<T> = self.forward.to_csr()?;
        csr.values_mut().copy_from_slice(turned);
        let memory_limit = Some(self.memory_limit.saturating_sub(self.forward.bytes()));
        let workload = Workload { basis: self.basis, memory_limit, ..Workload::default() };
        let target = workload.target(self.backend.device(), T::PRECISION);
        let analysis = Analysis::of(csr.as_ref()).with_partitioning();
        let converted = |candidate: &Candidate| {
            self.backend.prepare(&csr, &analysis, candidate, &candidate.target(&target))
        };
        let own = self.forward.candidate();
        let made = match converted(own) {
            Err(Error::Refused { .. }) => converted(&CSR.parse()?)?,
            made => made?,
        };
        if made.permutation() != self.forward.permutation() {
            return Err(Error::Refused {
                candidate: own.to_string(),
                reason:
                    "the new values are not symmetric, and the transpose has no layout in this \
                         permuted basis; prepare both again, in the original basis"
                        .into(),
            });
        }
        let candidate = made.candidate().clone();
        Ok(match self.forward.choice().cloned() {
            Some(mut choice) => {
                choice.choose(&candidate);
                choice.explanation.push(format!(
                    "New values of the matrix are not symmetric, so its transpose got a layout of its \
                     own: {candidate}."
                ));
                made.with_choice(choice)
            }
            None => made,
        })
    }
}
