//! Replaces the folder `cuda` in builds without the feature `cuda`: no GPU can be opened.
//!
//! The types have no values, so that code for GPUs compiles and never runs.

#[path = "cuda_none/halo.rs"]
mod halo;
#[path = "cuda_none/peers.rs"]
mod peers;
#[path = "cuda_none/rank.rs"]
mod rank;

use std::convert::Infallible;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::analysis::Analysis;
use crate::csr::{Csr, CsrRef};
use crate::dense::{DenseMut, DenseRef};
use crate::device::{self, Device};
use crate::error::Result;
use crate::features::Features;
use crate::format::{Candidate, Matrix, Refusal, Target};
use crate::scalar::Scalar;

pub(crate) use halo::NeededColumns;
pub(crate) use peers::{OneSum, PeerFactor, PeerGraphs, PeerProduct, PeerVector, Peers, Products};
pub(crate) use rank::{Link, RankGpu, RankGraph, RankStore, identity, nccl_version, reach};

/// An open GPU; none exists in this build.
#[derive(Clone, Copy, Debug)]
pub enum Gpu {}

/// A CSR matrix on a GPU; none exists in this build.
#[derive(Debug)]
pub struct DeviceCsr<T> {
    never: Infallible,
    values: PhantomData<T>,
}

impl<T: Scalar> DeviceCsr<T> {
    /// Returns the transpose, on the same GPU.
    ///
    /// # Errors
    /// Never called.
    pub fn transpose(&self, _gpu: &Gpu) -> Result<Self> {
        match self.never {}
    }
}

/// A part of a vector on a GPU, for reading; none exists in this build.
#[derive(Clone, Copy, Debug)]
pub struct DeviceSlice<'a, T> {
    never: Infallible,
    values: PhantomData<&'a [T]>,
}

/// A part of a vector on a GPU, for writing; none exists in this build.
#[derive(Debug)]
pub struct DeviceSliceMut<'a, T> {
    never: Infallible,
    values: PhantomData<&'a mut [T]>,
}

/// A point in the work of a stream; none exists in this build.
#[derive(Debug)]
pub(crate) enum Mark {}

/// A matrix in a candidate's layout on a GPU; none exists in this build.
#[derive(Debug)]
pub struct GpuOperator<T> {
    never: Infallible,
    values: PhantomData<T>,
}

/// Returns the number of GPUs that this build can open: 0.
pub(crate) fn count() -> u32 {
    0
}

/// Returns the name by which a GPU is opened.
pub(crate) fn handle(index: u32) -> String {
    format!("cuda:{index}")
}

/// Lists the GPUs that this build can open: none.
///
/// # Errors
/// Never fails.
pub(crate) fn all() -> Result<Vec<(String, Device)>> {
    Ok(Vec::new())
}

/// Returns the version of cuSPARSE: `None`, because this build does not load it.
pub(crate) fn cusparse_version() -> Option<String> {
    None
}

impl Gpu {
    /// Fails, because this build cannot open GPUs.
    ///
    /// # Errors
    /// Always [`Error::UnknownDevice`](crate::Error::UnknownDevice), with the name of the feature.
    pub fn open(index: u32) -> Result<Self> {
        let why = "GPUs of this machine need a program built with the feature cuda";
        Err(device::unknown(&handle(index), device::shipped_names(), why))
    }

    /// Returns the GPU's profile.
    pub fn profile(&self) -> &Device {
        match *self {}
    }

    /// Returns the driver as named in records of measurements.
    pub fn driver_key(&self) -> String {
        match *self {}
    }

    /// Samples the features of a matrix on the GPU.
    ///
    /// # Errors
    /// Never called.
    pub fn sample_features<T: Scalar>(&self, _csr: &DeviceCsr<T>) -> Result<Features> {
        match *self {}
    }

    /// Counts the features of a matrix on the GPU.
    ///
    /// # Errors
    /// Never called.
    pub fn features<T: Scalar>(&self, _csr: &DeviceCsr<T>) -> Result<Features> {
        match *self {}
    }

    /// Times the GPU's work for the features of a matrix.
    ///
    /// # Errors
    /// Never called.
    pub fn time_features<T: Scalar>(&self, _copies: &[DeviceCsr<T>]) -> Result<Option<f64>> {
        match *self {}
    }

    /// Tells whether a matrix has few distinct values.
    ///
    /// # Errors
    /// Never called.
    pub(crate) fn has_few_values<T: Scalar>(&self, _csr: &Arc<DeviceCsr<T>>) -> Result<bool> {
        match *self {}
    }

    /// Tells whether a type with fewer bits holds the values of a matrix.
    ///
    /// # Errors
    /// Never called.
    pub(crate) fn holds_narrowed<T: Scalar>(
        &self,
        _csr: &DeviceCsr<T>,
        _target: &Target<'_>,
    ) -> Result<bool> {
        match *self {}
    }

    /// Returns the same GPU with a second stream.
    ///
    /// # Errors
    /// Never called.
    pub(crate) fn beside(&self) -> Result<Arc<Gpu>> {
        match *self {}
    }

    /// Marks the end of the queued work.
    ///
    /// # Errors
    /// Never called.
    pub(crate) fn mark(&self) -> Result<Mark> {
        match *self {}
    }

    /// Lets later work wait for a mark.
    ///
    /// # Errors
    /// Never called.
    pub(crate) fn wait_for(&self, _mark: Mark) -> Result<()> {
        match *self {}
    }

    /// Waits for all work on the stream.
    ///
    /// # Errors
    /// Never called.
    pub fn synchronize(&self) -> Result<()> {
        match *self {}
    }

    /// Makes the GPU fault.
    ///
    /// # Errors
    /// Never called.
    pub(crate) fn fault(&self) -> Result<()> {
        match *self {}
    }
}

impl<T: Scalar> DeviceSlice<'_, T> {
    /// Tells whether the slice has no elements.
    pub fn is_empty(&self) -> bool {
        match self.never {}
    }
}

impl<T: Scalar> DeviceSliceMut<'_, T> {
    /// Tells whether the slice has no elements.
    pub fn is_empty(&self) -> bool {
        match self.never {}
    }
}

impl<T: Scalar> DeviceCsr<T> {
    /// Copies a matrix to a GPU.
    ///
    /// # Errors
    /// Never called.
    pub fn upload<'a>(gpu: &Gpu, _csr: impl Into<CsrRef<'a, T>>) -> Result<Self> {
        match *gpu {}
    }

    /// Returns the dimensions of the matrix.
    pub fn matrix(&self) -> Matrix {
        match self.never {}
    }

    /// Returns the sizes of the three arrays, in bytes.
    pub fn bytes(&self) -> [u64; 3] {
        match self.never {}
    }

    /// Copies the matrix to the host.
    ///
    /// # Errors
    /// Never called.
    pub fn to_csr(&self, gpu: &Gpu) -> Result<Csr<T>> {
        match *gpu {}
    }
}

impl<T: Scalar> GpuOperator<T> {
    /// Converts a matrix for a GPU.
    ///
    /// # Errors
    /// Never called.
    pub fn new(
        gpu: &Arc<Gpu>,
        _on_gpu: &Arc<DeviceCsr<T>>,
        _csr: CsrRef<'_, T>,
        _analysis: &Analysis<'_>,
        _candidate: &Candidate,
        _target: &Target<'_>,
    ) -> Result<Self> {
        match **gpu {}
    }

    /// Converts a matrix on a GPU.
    ///
    /// # Errors
    /// Never called.
    pub fn built(
        gpu: &Arc<Gpu>,
        _on_gpu: &Arc<DeviceCsr<T>>,
        _candidate: &Candidate,
        _target: &Target<'_>,
    ) -> Result<Option<Self>> {
        match **gpu {}
    }

    /// Returns the GPU.
    pub fn gpu(&self) -> &Arc<Gpu> {
        match self.never {}
    }

    /// Hands the operator over to another stream.
    ///
    /// # Errors
    /// Never called.
    pub(crate) fn move_to(&mut self, _gpu: &Arc<Gpu>) -> Result<()> {
        match self.never {}
    }

    /// Takes over the values of another operator.
    ///
    /// # Errors
    /// Never called.
    pub(crate) fn take_values_of(&mut self, _other: &Self) -> Result<bool> {
        match self.never {}
    }

    /// Queues a product.
    ///
    /// # Errors
    /// Never called.
    pub fn apply<'x, 'y>(
        &self,
        _alpha: T,
        _x: impl Into<DeviceSlice<'x, T>>,
        _beta: T,
        _y: impl Into<DeviceSliceMut<'y, T>>,
    ) -> Result<()>
    where
        T: 'x + 'y,
    {
        match self.never {}
    }

    /// Replaces the values by those of a vector.
    ///
    /// # Errors
    /// Never called.
    pub fn update_values<'v>(&mut self, _values: impl Into<DeviceSlice<'v, T>>) -> Result<()>
    where
        T: 'v,
    {
        match self.never {}
    }

    /// Tells whether dot products and w = w + gamma y are computed in the pass of the product.
    pub fn fuses_dots(&self) -> bool {
        match self.never {}
    }

    /// Makes products with several vectors ready.
    ///
    /// # Errors
    /// Never called.
    pub fn ready_many(&self, _count: usize) -> Result<()> {
        match self.never {}
    }

    /// Multiplies several vectors in host memory.
    ///
    /// # Errors
    /// Never called.
    pub(crate) fn apply_many_on_host(
        &self,
        _alpha: T,
        _x: DenseRef<'_, T>,
        _beta: T,
        _y: DenseMut<'_, T>,
    ) -> Result<()> {
        match self.never {}
    }

    /// Multiplies a vector in host memory.
    ///
    /// # Errors
    /// Never called.
    pub(crate) fn apply_on_host(&self, _alpha: T, _x: &[T], _beta: T, _y: &mut [T]) -> Result<()> {
        match self.never {}
    }

    /// Returns why the layout cannot hold these values, if so.
    ///
    /// # Errors
    /// Never called.
    pub(crate) fn check_values(&self, _values: &[T]) -> Result<Option<Refusal>> {
        match self.never {}
    }

    /// Replaces the values.
    ///
    /// # Errors
    /// Never called.
    pub(crate) fn set_values(&mut self, _values: &[T]) -> Result<()> {
        match self.never {}
    }

    /// Returns the order of the permuted basis.
    pub fn order(&self) -> Option<&[u32]> {
        match self.never {}
    }

    /// Returns the number of bytes of the layout's arrays.
    pub fn bytes(&self) -> u64 {
        match self.never {}
    }

    /// Converts the matrix back to CSR.
    ///
    /// # Errors
    /// Never called.
    pub fn to_csr(&self) -> Result<Csr<T>> {
        match self.never {}
    }
}
