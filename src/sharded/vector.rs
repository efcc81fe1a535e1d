//! Vectors divided among parts.

use std::ops::Range;

use super::halo::Shape;
use crate::error::{Error, Result};
use crate::par;
use crate::scalar::Scalar;

/// A vector divided among the parts of a [`ShardedOperator`](super::ShardedOperator).
///
/// Each part holds its own elements and its halo: room for the elements of other parts that its rows
/// need. Products fill the halos; only own elements are ever read or set by the caller.
///
/// ```
/// use ellect::sharded::Split;
/// use ellect::{Tuner, Workload, generate};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = generate::by_name("heat", 900, 1)?;
/// let tuners = Tuner::open_all(&["cpu"; 2])?;
/// let a = tuners.prepare_sharded(&csr, &Workload::default(), Split::EqualRows)?;
///
/// let mut x = a.zeros_x();
/// (0..2).for_each(|part| x.own_mut(part).fill(2.0));
/// assert_eq!(x.dot(&x)?, 4.0 * csr.ncols() as f64);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ShardedVector<T> {
    parts: Vec<Vec<T>>,
    /// Places of the own elements of each part.
    own: Vec<Range<usize>>,
}

impl<T: Scalar> ShardedVector<T> {
    /// Creates zeros with parts of these shapes.
    pub(super) fn zeros(shapes: impl Iterator<Item = Shape>) -> Self {
        let zeros = |shape: Shape| (shape.own, vec![T::default(); shape.len]);
        let (own, parts) = shapes.map(zeros).unzip();
        ShardedVector { parts, own }
    }

    /// Returns the number of elements, over all parts.
    pub fn len(&self) -> usize {
        self.own.iter().map(ExactSizeIterator::len).sum()
    }

    /// Tells whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the elements of a part.
    ///
    /// # Panics
    /// If there is no such part.
    pub fn own(&self, part: usize) -> &[T] {
        &self.parts[part][self.own[part].clone()]
    }

    /// Returns the elements of a part, to be changed.
    ///
    /// # Panics
    /// If there is no such part.
    pub fn own_mut(&mut self, part: usize) -> &mut [T] {
        &mut self.parts[part][self.own[part].clone()]
    }

    /// Computes the dot product: each part's in order, then their sum in the order of the parts, so
    /// that the result does not depend on threads.
    ///
    /// # Errors
    /// [`Error::Shape`] if the vectors are divided in different ways.
    pub fn dot(&self, other: &Self) -> Result<T> {
        if !self.own.iter().map(|own| own.len()).eq(other.own.iter().map(|own| own.len())) {
            let (got, needed) = (other.len(), self.len());
            return Err(Error::Shape { what: "the other vector", got, needed });
        }
        let of_part = |part: usize| dot(self.own(part), other.own(part));
        let sums = par::map(self.parts.len(), 1, of_part);
        Ok(sums.into_iter().fold(T::ZERO, |sum, part| sum + part))
    }

    /// Returns own and foreign elements of each part.
    pub(super) fn parts(&self) -> &[Vec<T>] {
        &self.parts
    }

    /// Returns the own elements of all parts, to be changed.
    pub(super) fn all_own_mut(&mut self) -> Vec<&mut [T]> {
        let parts = self.parts.iter_mut().zip(&self.own);
        parts.map(|(part, own)| &mut part[own.clone()]).collect()
    }

    /// Returns the own elements of all parts, and the halos before and behind them.
    pub(super) fn split(&mut self) -> (Vec<&[T]>, Vec<[&mut [T]; 2]>) {
        let parts = self.parts.iter_mut().zip(&self.own);
        let parts = parts.map(|(part, own)| {
            let (before, rest) = part.split_at_mut(own.start);
            let (own, behind) = rest.split_at_mut(own.len());
            (&*own, [before, behind])
        });
        parts.unzip()
    }

    /// Tells whether the parts have these shapes.
    pub(super) fn has(&self, shapes: impl Iterator<Item = Shape>) -> bool {
        let found = self.own.iter().zip(&self.parts);
        found.map(|(own, part)| Shape { own: own.clone(), len: part.len() }).eq(shapes)
    }
}

/// Returns the dot product of two vectors of one length, summed in their order.
pub(super) fn dot<T: Scalar>(x: &[T], y: &[T]) -> T {
    x.iter().zip(y).fold(T::ZERO, |sum, (&a, &b)| sum + a * b)
}
