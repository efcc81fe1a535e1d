//! Replaces `gpu.rs` in builds without the feature `cuda`: no GPU can be opened, so nothing is
//! timed on one.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::sync::Arc;

use super::{Measurement, Protocol, Samples};
use crate::analysis::Analysis;
use crate::csr::CsrRef;
use crate::cuda::Gpu;
use crate::error::Result;
use crate::format::{Candidate, Target};
use crate::scalar::Scalar;

/// A matrix kept on a GPU; none exists in this build.
#[derive(Debug)]
pub struct ResidentMatrix<T> {
    never: Infallible,
    values: PhantomData<T>,
}

impl<T: Scalar> ResidentMatrix<T> {
    /// Uploads a matrix.
    ///
    /// # Errors
    /// Never called.
    pub fn new(gpu: &Gpu, _csr: CsrRef<'_, T>) -> Result<Self> {
        match *gpu {}
    }

    /// Tells whether this is the same matrix in the same memory of the host.
    pub fn is(&self, _csr: CsrRef<'_, T>) -> bool {
        match self.never {}
    }
}

/// Checks and times one candidate on a GPU.
pub fn on_gpu<T: Scalar>(
    gpu: &Arc<Gpu>,
    _resident: Option<&ResidentMatrix<T>>,
    _csr: CsrRef<'_, T>,
    _analysis: &Analysis<'_>,
    _candidate: &Candidate,
    _target: &Target<'_>,
    _protocol: &Protocol,
) -> Measurement {
    match **gpu {}
}

/// Times conversions on a GPU.
pub fn conversions_on_gpu<T: Scalar>(
    gpu: &Gpu,
    _csr: CsrRef<'_, T>,
    _resident: Option<&ResidentMatrix<T>>,
    _candidate: &Candidate,
    _target: &Target<'_>,
    _protocol: &Protocol,
) -> Result<Option<Samples>> {
    match *gpu {}
}

/// Checks and times cuSPARSE's product with a transpose.
pub fn vendor_transposed<T: Scalar>(
    gpu: &Arc<Gpu>,
    _csr: CsrRef<'_, T>,
    _analysis: &Analysis<'_>,
    _target: &Target<'_>,
    _protocol: &Protocol,
) -> Measurement {
    match **gpu {}
}
