//! Operators: preparation, products, new values, and what is known of them.
#![allow(unsafe_code, reason = "callers pass addresses")]

use std::ffi::{CString, c_char, c_void};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use ellect::csr::CsrRef;
use ellect::{Precision, PreparedOperator, Scalar, Workload};

use crate::arrays::{Value, other_type};
use crate::csr::{ELLECT_DEVICE, ELLECT_HOST};
use crate::directions::Directions;
use crate::gpu::{self, Turn};
use crate::input::{
    Descriptor, ELLECT_F32, ELLECT_F64, apart, descriptor, give, object, place, slice, slice_mut,
};
use crate::matrix::EllectMatrix;
use crate::status::{Failure, Outcome, Status, boundary, dispose};
use crate::tuner::{EllectTuner, EllectWorkload, json, workload};

/// A value of type `A` for a matrix of single precision, of type `B` for one of double precision.
pub enum OfPrecision<A, B> {
    F32(A),
    F64(B),
}

impl<A, B> OfPrecision<A, B> {
    /// Returns the type of values and vectors: `ELLECT_F32` or `ELLECT_F64`.
    pub(crate) fn value_type(&self) -> i32 {
        match self {
            OfPrecision::F32(_) => ELLECT_F32,
            OfPrecision::F64(_) => ELLECT_F64,
        }
    }
}

/// An operator of either precision.
pub type Prepared = OfPrecision<Directions<f32>, Directions<f64>>;

/// Evaluates `$body` for the operator of either precision.
macro_rules! each {
    ($prepared:expr, $operator:ident => $body:expr) => {
        match $prepared {
            $crate::operator::OfPrecision::F32($operator) => $body,
            $crate::operator::OfPrecision::F64($operator) => $body,
        }
    };
}
pub(crate) use each;

/// A matrix prepared for repeated products, made by `ellect_prepare`.
///
/// Thread safety: on the host, any number of threads may use one operator at a time; updates wait for
/// products. On a GPU, one thread at a time queues products, on one stream at a time. No thread uses
/// an operator while it is destroyed.
pub struct EllectOperator {
    prepared: RwLock<Prepared>,
    candidate: CString,
    /// True if values must come in a matrix, because those of the caller have another order.
    repaired: bool,
    pub(crate) on_gpu: Turn,
}

impl EllectOperator {
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Prepared> {
        self.prepared.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Prepared> {
        self.prepared.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn replace(&self, take: impl FnOnce(&mut Prepared) -> Outcome<()>) -> Outcome<()> {
        if self.repaired {
            return Err(Failure::argument(
                "the matrix was copied with its rows sorted or its entries summed, so its values have \
                 another order than yours; make a matrix of the new values and pass it to \
                 ellect_update_matrix",
            ));
        }
        let mut prepared = self.write();
        self.on_gpu.settle(&prepared)?;
        take(&mut prepared)
    }
}

impl Drop for EllectOperator {
    fn drop(&mut self) {
        // The layout is freed on another stream than the one that runs its products.
        let prepared = self.prepared.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = self.on_gpu.settle(prepared);
    }
}

fn prepare<T: Value>(
    tuner: &EllectTuner,
    matrix: &EllectMatrix,
    workload: &Workload,
) -> Outcome<Directions<T>> {
    if workload.transposed > 0 {
        let both = |csr: CsrRef<'_, T>| Ok(tuner.0.prepare_both(csr, workload)?);
        return matrix.with(&tuner.0, both).map(Directions::Both);
    }
    if let Some(arrays) = matrix.on_gpu() {
        return arrays.prepare(&tuner.0, workload).map(Directions::One);
    }
    let one = |csr: CsrRef<'_, T>| Ok(tuner.0.prepare(csr, workload)?);
    matrix.with(&tuner.0, one).map(Directions::One)
}

/// Chooses a storage format for a matrix and converts the matrix. `workload` may be NULL.
///
/// The operator owns its layout. A matrix in host memory is no longer needed after the call. Borrowed
/// arrays on a GPU stay valid and unchanged as long as the operator exists. If `transposed` of the
/// workload is over 0, the operator also multiplies by the transpose, which has a layout of its own
/// unless the matrix is symmetric; a matrix on a GPU is copied to the host for this.
///
/// On success, `*op` belongs to the caller, who frees it with `ellect_operator_destroy`; else it
/// is NULL. Thread safety: any thread; the call may take seconds for a large matrix.
///
/// Fails with `ELLECT_NULL_POINTER`, `ELLECT_INVALID_ARGUMENT`, `ELLECT_INVALID_MATRIX` if borrowed
/// arrays have changed, `ELLECT_WRONG_PRODUCT` if `verify` finds one, `ELLECT_OUT_OF_MEMORY` and other
/// failures of the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ellect_prepare(
    tuner: *const EllectTuner,
    matrix: *const EllectMatrix,
    workload: *const EllectWorkload,
    op: *mut *mut EllectOperator,
) -> Status {
    boundary(|| {
        // SAFETY: the caller passes handles and addresses of these types.
        let (to, tuner, matrix, workload) = unsafe {
            (
                place(op, "operator")?,
                object(tuner, "tuner")?,
                object(matrix, "matrix")?,
                self::workload(workload)?,
            )
        };
        let prepared = match matrix.precision() {
            Precision::F32 => Prepared::F32(prepare(tuner, matrix, &workload)?),
            Precision::F64 => Prepared::F64(prepare(tuner, matrix, &workload)?),
        };
        let candidate = each!(&prepared, operator => operator.candidate().to_string());
        *to = Box::into_raw(Box::new(EllectOperator {
            prepared: RwLock::new(prepared),
            candidate: CString::new(candidate).unwrap_or_default(),
            repaired: matrix.is_repaired(),
            on_gpu: Turn::of(matrix),
        }));
        Ok(())
    })
}

/// Multiplies vectors in host memory.
///
/// # Safety
/// As `ellect_apply`.
pub unsafe fn multiply<T: Scalar>(
    operator: &PreparedOperator<T>,
    (alpha, x, x_len): (f64, *const c_void, i64),
    (beta, y, y_len): (f64, *mut c_void, i64),
) -> Outcome<()> {
    apart((x.addr(), x_len.max(0) as usize), (y.addr(), y_len.max(0) as usize), size_of::<T>())?;
    // SAFETY: by this function's own contract; the vectors do not overlap.
    let (x, y) = unsafe { (slice(x, x_len, "x")?, slice_mut(y, y_len, "y")?) };
    Ok(operator.apply(T::from_f64(alpha), x, T::from_f64(beta), y)?)
}

/// Computes y = alpha A x + beta y for vectors in host memory, of the operator's value type.
///
/// `x` has `x_len` = number of columns, `y` has `y_len` = number of rows; they do not overlap. With
/// `beta` 0, y is written and never read. In an operator's permuted basis, x and y are permuted. On a
/// GPU, the call copies x and y there and y back, and waits: solvers use `ellect_apply_device`.
///
/// The vectors stay the caller's. Thread safety: on the host, any number of threads at a time.
///
/// Fails with `ELLECT_NULL_POINTER`, `ELLECT_INVALID_ARGUMENT`, `ELLECT_SHAPE`; on a GPU also with
/// failures of the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ellect_apply(
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
        each!(&*prepared, operator => unsafe { multiply(operator, x, y) })
    })
}

/// Queues y = alpha A x + beta y on a stream, for vectors in the memory of the operator's GPU, of the
/// operator's value type.
///
/// `x` has `x_len` = number of columns, `y` has `y_len` = number of rows; they do not overlap. With
/// `beta` 0, y is written and never read. `stream` is a `cudaStream_t` or `CUstream` of that GPU; NULL
/// is the legacy default stream. The call neither waits nor allocates, and a CUDA graph may capture
/// it. Failures of a kernel show when the stream is next waited for.
///
/// The vectors stay the caller's, valid until the product has ended; until then the operator is not
/// destroyed. Thread safety: one thread at a time; before products move to another stream, those on the
/// first one have ended.
///
/// Fails with `ELLECT_NULL_POINTER`, `ELLECT_INVALID_ARGUMENT` for an operator on the host,
/// `ELLECT_SHAPE`, `ELLECT_UNSUPPORTED` in a build without CUDA, `ELLECT_DEVICE_FAILED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ellect_apply_device(
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
        unsafe { operator.on_gpu.queue(&operator.read(), false, x, y, stream) }
    })
}

/// Replaces the values by `count` values in host memory, of the operator's value type and in the order
/// of the matrix's arrays. Waits for products that were queued on a GPU.
///
/// The values are copied. Thread safety: any thread; waits for products of other threads.
///
/// Fails with `ELLECT_NULL_POINTER`, `ELLECT_INVALID_ARGUMENT` if rows were sorted when the matrix was
/// copied, `ELLECT_PATTERN_CHANGED` for another count, and `ELLECT_REFUSED` if the layout relies on a
/// property of the values, such as few distinct ones, that these values lack; the operator then keeps
/// its old values. On a GPU also with failures of the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ellect_update_values(
    op: *mut EllectOperator,
    values: *const c_void,
    count: i64,
) -> Status {
    boundary(|| {
        // SAFETY: the caller passes an operator.
        let operator = unsafe { object(op, "operator")? };
        operator.replace(|prepared| {
            each!(prepared, operator => {
                // SAFETY: the caller passes values of the operator's type and of this number.
                let values = unsafe { slice(values, count, "values")? };
                Ok(operator.update_values(values)?)
            })
        })
    })
}

/// Replaces the values by `count` values in the memory of the operator's GPU, of the operator's value
/// type and in the order of the matrix's arrays. Waits for the work that `stream` has queued, which
/// writes the values, and for products.
///
/// The values are copied. Thread safety: any thread; waits for products of other threads.
///
/// Fails as `ellect_update_values`, with `ELLECT_INVALID_ARGUMENT` for an operator with a transpose, and
/// with `ELLECT_UNSUPPORTED` in a build without CUDA.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ellect_update_values_device(
    op: *mut EllectOperator,
    values: *const c_void,
    count: i64,
    stream: *mut c_void,
) -> Status {
    boundary(|| {
        // SAFETY: the caller passes an operator.
        let operator = unsafe { object(op, "operator")? };
        operator.replace(|prepared| {
            each!(&*prepared, operator => operator.check_device_values()?);
            // SAFETY: the caller passes values of the operator's type and of this number on its GPU.
            unsafe { gpu::update(prepared, values, count, stream) }
        })
    })
}

/// Replaces the values by those of a matrix in host memory, after checking that its pattern is the
/// prepared one: one pass over the pattern.
///
/// The values are copied. Thread safety: any thread; waits for products of other threads.
///
/// Fails with `ELLECT_NULL_POINTER`, `ELLECT_INVALID_ARGUMENT` for values of another type,
/// `ELLECT_PATTERN_CHANGED`, `ELLECT_REFUSED` as `ellect_update_values`, `ELLECT_UNSUPPORTED` for a
/// matrix on a GPU, and failures of the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ellect_update_matrix(
    op: *mut EllectOperator,
    matrix: *const EllectMatrix,
) -> Status {
    boundary(|| {
        // SAFETY: the caller passes handles of these types.
        let (operator, matrix) = unsafe { (object(op, "operator")?, object(matrix, "matrix")?) };
        let host = matrix.host_arrays()?;
        let mut prepared = operator.write();
        operator.on_gpu.settle(&prepared)?;
        match (&mut *prepared, matrix.precision()) {
            (Prepared::F32(operator), Precision::F32) => host.with(|csr| Ok(operator.update(csr)?)),
            (Prepared::F64(operator), Precision::F64) => host.with(|csr| Ok(operator.update(csr)?)),
            _ => Err(other_type()),
        }
    })
}

/// Returns the order of the permuted basis: `order[new] = old`, `*len` numbers. In the original basis,
/// `*order` is NULL and `*len` is 0.
///
/// A solver permutes its right-hand side once, b_new[i] = b[order[i]], and the solution back once,
/// x[order[i]] = x_new[i]. The numbers belong to the operator and live as long as it does. Thread
/// safety: any thread.
///
/// Fails with `ELLECT_NULL_POINTER`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ellect_permutation(
    op: *const EllectOperator,
    order: *mut *const u32,
    len: *mut i64,
) -> Status {
    boundary(|| {
        // SAFETY: the caller passes an operator.
        let operator = unsafe { object(op, "operator")? };
        if order.is_null() || len.is_null() {
            return Err(Failure::null(if len.is_null() { "len" } else { "order" }));
        }
        let prepared = operator.read();
        let found = each!(&*prepared, operator => operator.permutation());
        // SAFETY: the caller passes addresses of a pointer and of a number; both were checked.
        unsafe {
            order.write(found.map_or(std::ptr::null(), <[u32]>::as_ptr));
            len.write(found.map_or(0, |order| order.len() as i64));
        }
        Ok(())
    })
}

/// Returns the choice that led to the operator as JSON, in the form of `ellect_recommend_json`. It ranks
/// only the candidates that preparation looked at.
///
/// On success, `*json` belongs to the caller, who frees it with `ellect_string_destroy`; else it is
/// NULL. Thread safety: any thread.
///
/// Fails with `ELLECT_NULL_POINTER`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ellect_choice_json(
    op: *const EllectOperator,
    json: *mut *mut c_char,
) -> Status {
    boundary(|| {
        // SAFETY: the caller passes an operator and the address of a pointer.
        let (to, operator) = unsafe { (place(json, "json")?, object(op, "operator")?) };
        let prepared = operator.read();
        give(each!(&*prepared, operator => self::json(&operator.choice()))?, to)
    })
}

/// Figures of an operator: set `struct_size` to `sizeof(ellect_operator_info)`; the library writes the
/// other fields.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EllectOperatorInfo {
    /// `sizeof(ellect_operator_info)`.
    pub struct_size: usize,
    /// Number of rows.
    pub nrows: i64,
    /// Number of columns.
    pub ncols: i64,
    /// Number of entries.
    pub nnz: i64,
    /// Size of the arrays in bytes, with those of the transpose.
    pub bytes: i64,
    /// The chosen format with its parameters, for instance `"hll:hack=32"`. Belongs to the operator and
    /// lives as long as it does.
    pub candidate: *const c_char,
    /// Type of values and vectors: `ELLECT_F32` or `ELLECT_F64`.
    pub value_type: i32,
    /// Memory of the layout: `ELLECT_HOST` or `ELLECT_DEVICE`.
    pub memory: i32,
}

// SAFETY: `repr(C)`, begins with its size; integers and raw pointers are valid for all bytes.
unsafe impl Descriptor for EllectOperatorInfo {
    const NAME: &'static str = "ellect_operator_info";
}

/// Fills in the figures of an operator. Set `info->struct_size` before, and the other fields to 0.
///
/// Thread safety: any thread.
///
/// Fails with `ELLECT_NULL_POINTER`, `ELLECT_INVALID_ARGUMENT`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ellect_operator_describe(
    op: *const EllectOperator,
    info: *mut EllectOperatorInfo,
) -> Status {
    boundary(|| {
        // SAFETY: the caller passes an operator and the address of a structure.
        let (operator, given) = unsafe { (object(op, "operator")?, descriptor(info)?) };
        let prepared = operator.read();
        let value_type = prepared.value_type();
        let described = each!(&*prepared, prepared => EllectOperatorInfo {
            struct_size: given.struct_size,
            nrows: prepared.nrows() as i64,
            ncols: prepared.ncols() as i64,
            nnz: prepared.nnz() as i64,
            bytes: prepared.bytes() as i64,
            candidate: operator.candidate.as_ptr(),
            value_type,
            memory: prepared.on_device().map_or(ELLECT_HOST, |_| ELLECT_DEVICE),
        });
        // SAFETY: the structure was read above, so it has at least these bytes.
        unsafe { info.write(described) };
        Ok(())
    })
}

/// Frees an operator, once products that were queued on a GPU have ended; NULL is ignored. Thread
/// safety: no other thread uses the operator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ellect_operator_destroy(op: *mut EllectOperator) {
    if !op.is_null() {
        // SAFETY: the caller passes a live operator, which `Box` made, and never uses it again.
        dispose(|| drop(unsafe { Box::from_raw(op) }));
    }
}
