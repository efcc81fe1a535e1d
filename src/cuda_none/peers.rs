//! Replaces `cuda/peers.rs` in builds without the feature `cuda`.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use super::{DeviceSlice, DeviceSliceMut, GpuOperator};
use crate::dots::DotWith;
use crate::error::{Error, Result};
use crate::par::PartThreads;
use crate::partition::{Group, Sent};
use crate::scalar::Scalar;

/// A vector divided among GPUs; none exists in this build.
#[derive(Debug)]
pub(crate) struct PeerVector<T> {
    never: Infallible,
    values: PhantomData<T>,
}

/// A captured product; none exists in this build.
#[derive(Debug)]
pub(crate) struct PeerProduct<'a, T> {
    pub x: PeerVector<T>,
    pub y: PeerVector<T>,
    never: Infallible,
    values: PhantomData<&'a T>,
}

/// Recorded work; none exists in this build.
#[derive(Debug)]
pub(crate) struct PeerGraphs<'a, T> {
    never: Infallible,
    values: PhantomData<&'a T>,
}

/// The operators of a part; none exist in this build.
pub(crate) type Products<'a, T> = Vec<(&'a Group, &'a GpuOperator<T>)>;

/// A factor of a divided vector.
pub(crate) type PeerFactor<'a, T> = (T, Option<[&'a PeerVector<T>; 2]>);

/// Dot products of y, and the numbers to which they go.
pub(crate) type PeerDots<'a, T> =
    (&'a [DotWith<&'a PeerVector<T>>], &'a mut [&'a mut PeerVector<T>]);

/// The vectors and numbers of an iteration of conjugate gradients with one sum.
pub(crate) struct OneSum<'a, T> {
    pub vectors: [&'a PeerVector<T>; 5],
    pub known: [&'a PeerVector<T>; 4],
    pub pq: &'a PeerVector<T>,
}

/// GPUs that exchange halos; none exist in this build.
#[derive(Debug)]
pub(crate) struct Peers<T> {
    never: Infallible,
    values: PhantomData<T>,
}

impl<T: Scalar> PeerVector<T> {
    /// Returns the own elements of a part.
    ///
    /// # Errors
    /// Never called.
    pub fn own(&self, _part: usize) -> Result<DeviceSlice<'_, T>> {
        match self.never {}
    }

    /// Returns the own elements of a part, to be changed.
    ///
    /// # Errors
    /// Never called.
    pub fn own_mut(&mut self, _part: usize) -> Result<DeviceSliceMut<'_, T>> {
        match self.never {}
    }

    /// Overwrites the own elements of a part.
    ///
    /// # Errors
    /// Never called.
    pub fn write(&mut self, _part: usize, _host: &[T]) -> Result<()> {
        match self.never {}
    }

    /// Copies the own elements of a part to the host.
    ///
    /// # Errors
    /// Never called.
    pub fn read(&self, _part: usize, _host: &mut [T]) -> Result<()> {
        match self.never {}
    }

    /// Returns the places of own elements, and the number of all elements, of each part.
    pub fn shapes(&self) -> std::iter::Empty<(Range<usize>, usize)> {
        match self.never {}
    }
}

impl<T: Scalar> Peers<T> {
    /// Prepares the exchange of operators on GPUs, of which there are none.
    ///
    /// # Errors
    /// [`Error::Argument`] without operators.
    pub fn new(
        products: &[Products<'_, T>],
        sent: &[Sent<'_>],
        _threads: Option<Arc<PartThreads>>,
    ) -> Result<Self> {
        if let Some((_, operator)) = products.iter().flatten().next() {
            match operator.never {}
        }
        let elements: usize = sent
            .iter()
            .map(|s| s.elements.len() + s.place + s.from + s.to + s.first as usize)
            .sum();
        Err(Error::argument(format!("no GPU exchanges the {elements} elements")))
    }

    /// Allocates zeros.
    ///
    /// # Errors
    /// Never called.
    pub fn zeros(&self, _shapes: &[(Range<usize>, usize)]) -> Result<PeerVector<T>> {
        match self.never {}
    }

    /// Queues a product.
    ///
    /// # Errors
    /// Never called.
    pub fn apply(
        &self,
        _products: &[Products<'_, T>],
        _x: (T, &PeerVector<T>),
        _y: (T, &mut PeerVector<T>),
    ) -> Result<()> {
        match self.never {}
    }

    /// Records work.
    ///
    /// # Errors
    /// Never called.
    pub fn record(
        &self,
        _products: &[Products<'_, T>],
        _work: impl FnOnce() -> Result<()>,
    ) -> Result<PeerGraphs<'_, T>> {
        match self.never {}
    }

    /// Captures a product.
    ///
    /// # Errors
    /// Never called.
    pub fn capture<'a>(
        &'a self,
        _products: &[Products<'a, T>],
        _x: (T, PeerVector<T>),
        _y: (T, PeerVector<T>),
        _is_filled: bool,
    ) -> Result<PeerProduct<'a, T>> {
        match self.never {}
    }

    /// Queues a dot product.
    ///
    /// # Errors
    /// Never called.
    pub fn dot(
        &self,
        _x: &PeerVector<T>,
        _y: &PeerVector<T>,
        _result: &mut PeerVector<T>,
    ) -> Result<()> {
        match self.never {}
    }

    /// Queues y = alpha x + beta y.
    ///
    /// # Errors
    /// Never called.
    pub fn axpby(
        &self,
        _alpha: PeerFactor<'_, T>,
        _x: &PeerVector<T>,
        _beta: PeerFactor<'_, T>,
        _y: &mut PeerVector<T>,
    ) -> Result<()> {
        match self.never {}
    }

    /// Queues a product and dot products.
    ///
    /// # Errors
    /// Never called.
    pub fn apply_dot(
        &self,
        _products: &[Products<'_, T>],
        _x: (T, &PeerVector<T>),
        _y: (T, &mut PeerVector<T>),
        _dots: PeerDots<'_, T>,
    ) -> Result<()> {
        match self.never {}
    }

    /// Queues y = alpha x + beta y and (y, y).
    ///
    /// # Errors
    /// Never called.
    pub fn axpby_dot(
        &self,
        _alpha: PeerFactor<'_, T>,
        _x: &PeerVector<T>,
        _beta: PeerFactor<'_, T>,
        _y: &mut PeerVector<T>,
        _result: &mut PeerVector<T>,
    ) -> Result<()> {
        match self.never {}
    }

    /// Queues x = x + alpha p, followed by p = r + beta p.
    ///
    /// # Errors
    /// Never called.
    pub fn advance(
        &self,
        _alpha: PeerFactor<'_, T>,
        _p: &mut PeerVector<T>,
        _x: &mut PeerVector<T>,
        _beta: PeerFactor<'_, T>,
        _r: &PeerVector<T>,
    ) -> Result<()> {
        match self.never {}
    }

    /// Queues an iteration of conjugate gradients with one sum.
    ///
    /// # Errors
    /// Never called.
    pub fn one_sum(&self, _products: &[Products<'_, T>], state: &OneSum<'_, T>) -> Result<()> {
        let (vector, _, _) = (state.vectors[0], state.known, state.pq);
        match vector.never {}
    }

    /// Waits for all GPUs.
    ///
    /// # Errors
    /// Never called.
    pub fn synchronize(&self) -> Result<()> {
        match self.never {}
    }
}

impl<T> PeerProduct<'_, T> {
    /// Returns y.
    ///
    /// # Errors
    /// Never called.
    pub fn into_y(self) -> Result<PeerVector<T>> {
        match self.never {}
    }

    /// Queues the product.
    ///
    /// # Errors
    /// Never called.
    pub fn launch(&self) -> Result<()> {
        match self.never {}
    }
}

impl<T: Scalar> PeerGraphs<'_, T> {
    /// Queues the recorded work.
    ///
    /// # Errors
    /// Never called.
    pub fn launch(&self) -> Result<()> {
        match self.never {}
    }
}
