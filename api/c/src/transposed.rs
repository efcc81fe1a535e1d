//! Products with the transpose of a matrix.
#![allow(unsafe_code, reason = "callers pass addresses")]

use std::ffi::c_void;

use crate::input::object;
use crate::many;
use crate::operator::{EllectOperator, each, multiply};
use crate::status::{Status, boundary};

/// Computes y = alpha A^T x + beta y for vectors in host memory, as `ellect_apply` does for A: `x` has
/// `x_len` = number of rows of A, `y` has `y_len` = number of its columns.
///
/// The operator was prepared with `transposed` of `ellect_workload` over 0.
///
/// The vectors stay the caller's. Thread safety: on the host, any number of threads at a time.
///
/// Fails as `ellect_apply`, and with `ELLECT_INVALID_ARGUMENT` for an operator without transpose.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ellect_apply_transposed(
    op: *const EllectOperator,
    alpha: f64,
    x: *const c_void,
    x_len: i64,
    beta: f64,
    y: *mut c_void,
    y_len: i64,
) -> Status {
    boundary(|| {
        // SAFETY: the caller passes an operator.
        let operator = unsafe { object(op, "operator")? };
        let prepared = operator.read();
        let _turn = operator.on_gpu.alone(&prepared)?;
        let (x, y) = ((alpha, x, x_len), (beta, y, y_len));
        // SAFETY: the caller passes vectors of the operator's value type and of these lengths.
        each!(&*prepared, operator => unsafe { multiply(operator.direction(true)?, x, y) })
    })
}

/// Computes Y = alpha A^T X + beta Y for `vectors` vectors in host memory, as `ellect_apply_many` does
/// for A: X has the number of rows of A as rows, Y the number of its columns.
///
/// The operator was prepared with `transposed` of `ellect_workload` over 0.
///
/// The vectors stay the caller's. Thread safety: on the host, any number of threads at a time.
///
/// Fails as `ellect_apply_many`, and with `ELLECT_INVALID_ARGUMENT` for an operator without transpose.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ellect_apply_many_transposed(
    op: *const EllectOperator,
    vectors: i64,
    alpha: f64,
    x: *const c_void,
    x_leading: i64,
    x_order: i32,
    beta: f64,
    y: *mut c_void,
    y_leading: i64,
    y_order: i32,
) -> Status {
    boundary(|| {
        // SAFETY: the caller passes an operator.
        let operator = unsafe { object(op, "operator")? };
        let prepared = operator.read();
        let _turn = operator.on_gpu.alone(&prepared)?;
        let (x, y) = ((alpha, x, x_leading, x_order), (beta, y, y_leading, y_order));
        // SAFETY: the caller passes vectors of the operator's value type and of these sizes.
        each!(&*prepared, operator => unsafe {
            many::multiply(operator.direction(true)?, vectors, x, y)
        })
    })
}

/// Queues y = alpha A^T x + beta y on a stream, as `ellect_apply_device` does for A: `x` has `x_len` =
/// number of rows of A, `y` has `y_len` = number of its columns.
///
/// The operator was prepared with `transposed` of `ellect_workload` over 0. Streams and threads: products
/// with A and with its transpose count as products of one operator.
///
/// The vectors stay the caller's, valid until the product has ended.
///
/// Fails as `ellect_apply_device`, and with `ELLECT_INVALID_ARGUMENT` for an operator without transpose.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ellect_apply_transposed_device(
    op: *const EllectOperator,
    alpha: f64,
    x: *const c_void,
    x_len: i64,
    beta: f64,
    y: *mut c_void,
    y_len: i64,
    stream: *mut c_void,
) -> Status {
    boundary(|| {
        // SAFETY: the caller passes an operator.
        let operator = unsafe { object(op, "operator")? };
        let (x, y) = ((alpha, x, x_len), (beta, y, y_len));
        // SAFETY: the caller passes vectors and a stream of the operator's GPU.
        unsafe { operator.on_gpu.queue(&operator.read(), true, x, y, stream) }
    })
}
