//! The rows of one part of a divided matrix: their operators, and the elements of x that they need.

use std::ops::Range;

use super::halo::{self, Columns, Halo, Shape};
use crate::choose::{Choice, Workload};
use crate::csr::{Csr, CsrRef};
use crate::error::{Error, Result};
use crate::format::{Basis, Candidate};
use crate::operator::PreparedOperator;
use crate::partition::Group;
use crate::scalar::Scalar;
use crate::tuner::Tuner;

/// The rows of one device.
///
/// ```
/// use ellect::sharded::Split;
/// use ellect::{Csr, Tuner, Workload};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = Csr::from_triplets(2, 2, [(0, 0, 2.0), (0, 1, 1.0), (1, 1, 3.0)])?;
/// let tuners = Tuner::open_all(&["cpu"; 2])?;
/// let a = tuners.prepare_sharded(&csr, &Workload::default(), Split::EqualRows)?;
/// let first = &a.parts()[0];
/// assert_eq!((first.rows(), first.nnz(), first.halo()), (1, 2, 1));
/// assert_eq!(first.neighbours().collect::<Vec<_>>(), [1]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Part<T: Scalar> {
    pub(super) halo: Halo,
    /// The operator of each group of rows; there is at least one.
    pub(super) operators: Vec<(Group, PreparedOperator<T>)>,
}

impl<T: Scalar> Part<T> {
    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.operators.iter().map(|(group, _)| group.rows.end).max().unwrap_or(0)
    }

    /// Returns the number of entries.
    pub fn nnz(&self) -> usize {
        self.operators.iter().map(|(_, operator)| operator.nnz()).sum()
    }

    /// Returns the operators of the part, with the rows that each multiplies, counted from the
    /// part's first one; see [`Mode`](super::Mode). With [`Mode::Naive`](super::Mode::Naive) and
    /// [`Mode::Task`](super::Mode::Task), two operators have all rows.
    pub fn operators(&self) -> impl ExactSizeIterator<Item = (Range<usize>, &PreparedOperator<T>)> {
        self.operators.iter().map(|(group, operator)| (group.rows.clone(), operator))
    }

    /// Returns the operator of most entries.
    pub(super) fn largest(&self) -> &PreparedOperator<T> {
        let largest = self.operators.iter().max_by_key(|(_, operator)| operator.nnz());
        &largest.expect("a part has an operator").1
    }

    /// Returns the number of elements of x that come from other parts before each product.
    pub fn halo(&self) -> usize {
        self.halo.len()
    }

    /// Returns the parts that elements of x come from, rising.
    pub fn neighbours(&self) -> impl Iterator<Item = usize> + '_ {
        self.halo.runs.iter().map(|run| run.owner)
    }

    /// Returns the candidate that multiplies the rows; of several operators, that of most entries.
    pub fn candidate(&self) -> &Candidate {
        self.largest().candidate()
    }

    /// Returns the choice of [`Part::candidate`].
    pub fn choice(&self) -> Option<&Choice> {
        self.largest().choice()
    }

    /// Returns the predicted time of a product of all rows, as if one operator had them, in seconds.
    /// `launch_s` is the time of a launch. `None` if a candidate was not predicted.
    pub(super) fn predicted_s(&self, launch_s: f64) -> Option<f64> {
        let times = self.operators.iter().map(|(_, operator)| {
            let ranking = &operator.choice()?.ranking;
            let chosen = ranking.iter().find(|ranked| ranked.candidate == *operator.candidate());
            chosen.map(|chosen| (chosen.spmv_s - launch_s).max(0.0))
        });
        Some(launch_s + times.sum::<Option<f64>>()?)
    }

    /// Returns the places of x.
    pub(super) fn shape_x(&self) -> Shape {
        self.halo.shape()
    }

    /// Prepares each group of rows, in the format that the tuner chooses.
    ///
    /// # Errors
    /// As [`Tuner::prepare`].
    pub(super) fn of(
        tuner: &Tuner,
        halo: Halo,
        groups: Vec<Group>,
        matrices: &[Csr<T>],
        workload: &Workload,
    ) -> Result<Self> {
        let workload = of_part(workload);
        let operators = matrices.iter().map(|local| tuner.prepare(local, &workload));
        let operators = groups.into_iter().zip(operators);
        let operators = operators.map(|(group, operator)| Ok((group, operator?)));
        Ok(Part { halo, operators: operators.collect::<Result<_>>()? })
    }

    /// Computes y = alpha A x + beta y for the groups that `chosen` selects; x has its halo.
    ///
    /// # Errors
    /// As [`PreparedOperator::apply`].
    pub(super) fn multiply(
        &self,
        chosen: impl Fn(&Group) -> bool,
        (alpha, x): (T, &[T]),
        (beta, y): (T, &mut [T]),
    ) -> Result<()> {
        let operators = self.operators.iter().filter(|(group, _)| chosen(group));
        operators.into_iter().try_for_each(|(group, operator)| {
            let beta = if group.adds() { T::ONE } else { beta };
            operator.apply(alpha, x, beta, &mut y[group.rows.clone()])
        })
    }

    /// Replaces the values by those of these rows of a matrix with the same pattern. `number` is the
    /// part's own.
    ///
    /// # Errors
    /// [`Error::PatternChanged`] if the pattern differs, and as [`PreparedOperator::update`].
    pub(super) fn update(
        &mut self,
        csr: CsrRef<'_, T>,
        rows: &[u32],
        numbers: &Columns,
        number: usize,
    ) -> Result<()> {
        let groups: Vec<Group> = self.operators.iter().map(|(group, _)| group.clone()).collect();
        let (halo, matrices) = halo::local(csr, rows, &groups, numbers, number)?;
        if halo != self.halo {
            let what = format!("part {number} needs other elements of x");
            return Err(Error::PatternChanged { what });
        }
        let mut operators = self.operators.iter_mut().zip(&matrices);
        operators.try_for_each(|((_, operator), local)| operator.update(local))
    }
}

/// Returns the workload of a part: several vectors are multiplied one by one, and A alone.
pub(super) fn of_part(workload: &Workload) -> Workload {
    let spmvs = workload.spmvs.saturating_mul(workload.vectors as u64);
    Workload { basis: Basis::Original, spmvs, transposed: 0, vectors: 1, ..*workload }
}
