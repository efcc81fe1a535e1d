//! Replaces `gpu.rs` in builds without the feature `cuda`: no array is on a GPU.
#![allow(unsafe_code, reason = "the functions have the signatures of `gpu.rs`")]

use std::convert::Infallible;
use std::ffi::c_void;

use ellect::{Csr, PreparedOperator, Scalar, Tuner, Workload};

use crate::csr::{EllectCsr, Form};
use crate::fused::EllectFused;
use crate::matrix::EllectMatrix;
use crate::operator::Prepared;
use crate::status::{ELLECT_UNSUPPORTED, Failure, Outcome};

fn not_built<T>() -> Outcome<T> {
    let what = "this build of ellect knows no memory of GPUs; build it with the feature cuda";
    Err(Failure::new(ELLECT_UNSUPPORTED, what))
}

/// A matrix on a GPU; none exists in this build.
pub enum Arrays {}

impl Arrays {
    /// Fails, because this build knows no memory of GPUs.
    ///
    /// # Safety
    /// Always safe.
    pub unsafe fn new(_csr: &EllectCsr, _form: &Form) -> Outcome<Self> {
        not_built()
    }

    pub fn download<T: Scalar>(&self, _tuner: &Tuner) -> Outcome<Csr<T>> {
        match *self {}
    }

    pub fn prepare<T: Scalar>(
        &self,
        _tuner: &Tuner,
        _workload: &Workload,
    ) -> Outcome<PreparedOperator<T>> {
        match *self {}
    }
}

/// The order of products on a GPU; there are none in this build.
pub struct Turn;

impl Turn {
    pub fn of(_matrix: &EllectMatrix) -> Self {
        Turn
    }

    pub fn alone(&self, _prepared: &Prepared) -> Outcome<Option<Infallible>> {
        Ok(None)
    }

    pub fn settle(&self, _prepared: &Prepared) -> Outcome<()> {
        Ok(())
    }

    /// Fails, because this build knows no memory of GPUs.
    ///
    /// # Safety
    /// Always safe.
    pub unsafe fn queue(
        &self,
        _prepared: &Prepared,
        _transposed: bool,
        _x: (f64, *const c_void, i64),
        _y: (f64, *mut c_void, i64),
        _stream: *mut c_void,
    ) -> Outcome<()> {
        not_built()
    }

    /// Fails, because this build knows no memory of GPUs.
    ///
    /// # Safety
    /// Always safe.
    pub unsafe fn queue_fused(
        &self,
        _prepared: &Prepared,
        _x: (f64, *const c_void, i64),
        _y: (f64, *mut c_void, i64),
        _fused: &EllectFused,
        _stream: *mut c_void,
    ) -> Outcome<()> {
        not_built()
    }
}

/// Fails, because this build knows no memory of GPUs.
///
/// # Safety
/// Always safe.
pub unsafe fn update(
    _prepared: &mut Prepared,
    _values: *const c_void,
    _count: i64,
    _stream: *mut c_void,
) -> Outcome<()> {
    not_built()
}
