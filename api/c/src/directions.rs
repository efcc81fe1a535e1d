//! Operators of one or both directions of a matrix.

use std::ops::Deref;

use ellect::choose::Choice;
use ellect::csr::CsrRef;
use ellect::{PreparedOperator, PreparedPair, Scalar};

use crate::status::{Failure, Outcome};

/// An operator of a matrix alone, or of a matrix and its transpose; dereferences to that of the matrix.
pub enum Directions<T: Scalar> {
    One(PreparedOperator<T>),
    Both(PreparedPair<T>),
}

impl<T: Scalar> Deref for Directions<T> {
    type Target = PreparedOperator<T>;

    fn deref(&self) -> &PreparedOperator<T> {
        match self {
            Directions::One(operator) => operator,
            Directions::Both(pair) => pair.forward(),
        }
    }
}

impl<T: Scalar> Directions<T> {
    /// Returns the operator of the matrix, or that of its transpose.
    pub fn direction(&self, transposed: bool) -> Outcome<&PreparedOperator<T>> {
        match self {
            Directions::Both(pair) if transposed => Ok(pair.transposed()),
            Directions::One(_) if transposed => Err(Failure::argument(
                "the operator has no transpose; prepare it with `transposed` of ellect_workload set to \
                 the expected number of products with the transpose",
            )),
            _ => Ok(self),
        }
    }

    /// Returns the choice for the matrix, which holds that for the transpose.
    pub fn choice(&self) -> Option<Choice> {
        match self {
            Directions::One(operator) => operator.choice().cloned(),
            Directions::Both(pair) => pair.choice(),
        }
    }

    /// Returns the size of all arrays in bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            Directions::One(operator) => operator.bytes(),
            Directions::Both(pair) => pair.bytes(),
        }
    }

    /// Replaces the values of the matrix.
    pub fn update_values(&mut self, values: &[T]) -> ellect::Result<()> {
        match self {
            Directions::One(operator) => operator.update_values(values),
            Directions::Both(pair) => pair.update_values(values),
        }
    }

    /// Replaces the values by those of a matrix with the same pattern.
    pub fn update(&mut self, csr: CsrRef<'_, T>) -> ellect::Result<()> {
        match self {
            Directions::One(operator) => operator.update(csr),
            Directions::Both(pair) => pair.update(csr),
        }
    }

    /// Returns the operator on its GPU, for values there; `None` on a host, and with a transpose,
    /// which values on a GPU do not reach.
    #[cfg(feature = "cuda")]
    pub fn on_device_mut(&mut self) -> Option<&mut ellect::cuda::GpuOperator<T>> {
        match self {
            Directions::One(operator) => operator.on_device_mut(),
            Directions::Both(_) => None,
        }
    }

    /// Checks that values in the memory of a GPU reach the whole operator.
    pub fn check_device_values(&self) -> Outcome<()> {
        match self {
            Directions::One(_) => Ok(()),
            Directions::Both(_) => Err(Failure::argument(
                "the operator has a transpose, whose values are made on the host; copy the values to \
                 the host and pass them to ellect_update_values",
            )),
        }
    }
}
