//! Vectors divided among parts.

use crate::error::{Error, Result};
use crate::par;
use crate::scalar::Scalar;

/// A vector divided among the parts of a [`ShardedOperator`](super::ShardedOperator).
///
/// Each part holds its own elements, then its halo: room for the elements of other parts that its
/// rows need. Products fill the halos; only own elements are ever read or set by the caller.
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
    /// Number of own elements of each part.
    own: Vec<usize>,
}

impl<T: Scalar> ShardedVector<T> {
    /// Creates zeros with these numbers of own and of foreign elements in each part.
    pub(super) fn zeros(sizes: impl Iterator<Item = (usize, usize)>) -> Self {
        let (own, parts) = sizes.map(|(own, halo)| (own, vec![T::default(); own + halo])).unzip();
        ShardedVector { parts, own }
    }

    /// Returns the number of elements, over all parts.
    pub fn len(&self) -> usize {
        self.own.iter().sum()
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
        &self.parts[part][..self.own[part]]
    }

    /// Returns the elements of a part, to be changed.
    ///
    /// # Panics
    /// If there is no such part.
    pub fn own_mut(&mut self, part: usize) -> &mut [T] {
        &mut self.parts[part][..self.own[part]]
    }

    /// Computes the dot product: each part's in order, then their sum in the order of the parts, so
    /// that the result does not depend on threads.
    ///
    /// # Errors
    /// [`Error::Shape`] if the vectors are divided in different ways.
    pub fn dot(&self, other: &Self) -> Result<T> {
        if self.own != other.own {
            let (got, needed) = (other.len(), self.len());
            return Err(Error::Shape { what: "the other vector", got, needed });
        }
        let of_part = |part: usize| {
            let pairs = self.own(part).iter().zip(other.own(part));
            pairs.fold(T::ZERO, |sum, (&a, &b)| sum + a * b)
        };
        let sums = par::map(self.parts.len(), 1, of_part);
        Ok(sums.into_iter().fold(T::ZERO, |sum, part| sum + part))
    }

    /// Returns own and foreign elements of each part.
    pub(super) fn parts(&self) -> &[Vec<T>] {
        &self.parts
    }

    /// Returns own and foreign elements of each part, to be changed.
    pub(super) fn parts_mut(&mut self) -> &mut [Vec<T>] {
        &mut self.parts
    }

    /// Returns the own elements of all parts, and their halos to be filled.
    pub(super) fn split(&mut self) -> (Vec<&[T]>, Vec<&mut [T]>) {
        let parts = self.parts.iter_mut().zip(&self.own);
        let parts = parts.map(|(part, &own)| {
            let (own, halo) = part.split_at_mut(own);
            (&*own, halo)
        });
        parts.unzip()
    }

    /// Tells whether each part has these numbers of own and of foreign elements.
    pub(super) fn has(&self, sizes: impl Iterator<Item = (usize, usize)>) -> bool {
        let found = self.own.iter().zip(&self.parts);
        found.map(|(&own, part)| (own, part.len() - own)).eq(sizes)
    }
}
