//! Replaces `cuda/rank.rs` in builds without the feature `cuda`.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use super::{DeviceSlice, DeviceSliceMut, Gpu, Products};
use crate::error::{Error, Result};
use crate::partition::{Agreed, Routes, Tell};
use crate::scalar::Scalar;

/// A way to move elements between ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Link {
    /// Stores into the memory of other GPUs.
    Peer,
    /// NCCL.
    Nccl,
    /// The host.
    Host,
}

/// A rank's part on its GPU; none exists in this build.
#[derive(Debug)]
pub(crate) struct RankGpu<T: Scalar> {
    never: Infallible,
    values: PhantomData<T>,
}

/// A vector of a rank on its GPU; none exists in this build.
#[derive(Debug)]
pub(crate) struct RankStore<T: Scalar> {
    never: Infallible,
    values: PhantomData<T>,
}

/// A captured product; none exists in this build.
#[derive(Debug)]
pub(crate) struct RankGraph<'a, T: Scalar> {
    pub x: RankStore<T>,
    pub y: RankStore<T>,
    never: Infallible,
    values: PhantomData<&'a T>,
}

/// Returns the number by which all processes know a GPU.
///
/// # Errors
/// Never called.
pub(crate) fn identity(gpu: &Gpu) -> Result<[u8; 16]> {
    match *gpu {}
}

/// Tells whether a GPU reaches the memory of another one.
///
/// # Errors
/// Never called.
pub(crate) fn reach(gpu: &Gpu, _other: [u8; 16]) -> Result<bool> {
    match *gpu {}
}

/// Fails, because this build does not open NCCL.
///
/// # Errors
/// Always [`Error::Argument`].
pub(crate) fn nccl_version() -> Result<u32> {
    Err(Error::argument("NCCL needs a program built with the feature cuda"))
}

impl<T: Scalar> RankGpu<T> {
    /// Tells all ranks that this build has no GPU.
    ///
    /// # Errors
    /// Errors of `tell`.
    pub fn new(
        products: &Products<'_, T>,
        routes: Routes,
        (own, len): (Range<usize>, usize),
        link: Link,
        tell: Tell<'_>,
    ) -> Result<Agreed<Self>> {
        if let Some((_, operator)) = products.first() {
            match operator.never {}
        }
        let sums = Routes::of_sums(routes.rank, routes.size).waits_for().len();
        let sends = routes.elements().len() + routes.sent();
        let why = format!(
            "no GPU moves {sends} elements of {len}, {own:?} own ones, and {sums} sums by {link:?}"
        );
        Ok(tell(Err(why))?.and_then(|_| Err("this rank has failed".into())))
    }

    /// Returns the GPU.
    pub fn gpu(&self) -> &Arc<Gpu> {
        match self.never {}
    }

    /// Allocates zeros.
    ///
    /// # Errors
    /// Never called.
    pub fn zeros(
        &self,
        _shape: (Range<usize>, usize),
        _has_halo: bool,
        _tell: Tell<'_>,
    ) -> Result<RankStore<T>> {
        match self.never {}
    }

    /// Queues a product.
    ///
    /// # Errors
    /// Never called.
    pub fn apply(
        &self,
        _products: &Products<'_, T>,
        _x: (T, &RankStore<T>),
        _y: (T, &mut RankStore<T>),
    ) -> Result<()> {
        match self.never {}
    }

    /// Captures a product.
    ///
    /// # Errors
    /// Never called.
    pub fn capture<'a>(
        &'a self,
        _products: &Products<'a, T>,
        _x: (T, RankStore<T>),
        _y: (T, RankStore<T>),
    ) -> Result<RankGraph<'a, T>> {
        match self.never {}
    }

    /// Copies elements to the host.
    ///
    /// # Errors
    /// Never called.
    pub fn outgoing(&self, _x: &RankStore<T>, _host: &mut [T]) -> Result<()> {
        match self.never {}
    }

    /// Copies elements from the host.
    ///
    /// # Errors
    /// Never called.
    pub fn incoming(&self, _x: &RankStore<T>, _place: usize, _host: &[T]) -> Result<()> {
        match self.never {}
    }

    /// Queues a part of a product.
    ///
    /// # Errors
    /// Never called.
    pub fn multiply(
        &self,
        _products: &Products<'_, T>,
        _needs_halo: bool,
        _x: (T, &RankStore<T>),
        _y: (T, &mut RankStore<T>),
    ) -> Result<()> {
        match self.never {}
    }

    /// Queues a dot product.
    ///
    /// # Errors
    /// Never called.
    pub fn dot(
        &self,
        _x: DeviceSlice<'_, T>,
        _y: DeviceSlice<'_, T>,
        _result: DeviceSliceMut<'_, T>,
    ) -> Result<()> {
        match self.never {}
    }

    /// Queues a sum.
    ///
    /// # Errors
    /// Never called.
    pub fn sum(&self, _value: DeviceSliceMut<'_, T>) -> Result<()> {
        match self.never {}
    }

    /// Waits for the GPU.
    ///
    /// # Errors
    /// Never called.
    pub fn synchronize(&self) -> Result<()> {
        match self.never {}
    }
}

impl<T: Scalar> RankStore<T> {
    /// Returns the places of own elements, and the number of all elements.
    pub fn shape(&self) -> (Range<usize>, usize) {
        match self.never {}
    }

    /// Returns the own elements.
    ///
    /// # Errors
    /// Never called.
    pub fn own(&self) -> Result<DeviceSlice<'_, T>> {
        match self.never {}
    }

    /// Returns the own elements, to be changed.
    ///
    /// # Errors
    /// Never called.
    pub fn own_mut(&mut self) -> Result<DeviceSliceMut<'_, T>> {
        match self.never {}
    }

    /// Overwrites the own elements.
    ///
    /// # Errors
    /// Never called.
    pub fn write(&mut self, _host: &[T]) -> Result<()> {
        match self.never {}
    }

    /// Copies the own elements to the host.
    ///
    /// # Errors
    /// Never called.
    pub fn read(&self, _host: &mut [T]) -> Result<()> {
        match self.never {}
    }
}

impl<T: Scalar> RankGraph<'_, T> {
    /// Queues the product.
    ///
    /// # Errors
    /// Never called.
    pub fn launch(&self) -> Result<()> {
        match self.never {}
    }

    /// Returns y.
    ///
    /// # Errors
    /// Never called.
    pub fn into_y(self) -> Result<RankStore<T>> {
        match self.never {}
    }
}
