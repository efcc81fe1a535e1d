//! Products with several vectors.
#![allow(unsafe_code, reason = "callers pass addresses")]

use std::ffi::c_void;

use ellect::dense::{DenseMut, DenseRef, Order};
use ellect::{PreparedOperator, Scalar};

use crate::input::{apart, object, slice, slice_mut};
use crate::operator::{EllectOperator, each};
use crate::status::{ELLECT_SHAPE, Failure, Outcome, Status, boundary};

/// Vectors lie one after the other, as in Fortran.
pub const ELLECT_COLUMN_MAJOR: i32 = 0;
/// The elements of all vectors for one row lie one after the other.
pub const ELLECT_ROW_MAJOR: i32 = 1;

/// Several vectors of a caller.
#[derive(Clone, Copy)]
struct Vectors {
    what: &'static str,
    shape: [usize; 2],
    leading: usize,
    order: Order,
    /// Number of elements from the first to the last one.
    len: i64,
}

impl Vectors {
    /// Checks the order and the leading dimension; 0 is the least one.
    fn new(
        what: &'static str,
        nrows: usize,
        vectors: i64,
        leading: i64,
        order: i32,
    ) -> Outcome<Self> {
        let order = match order {
            ELLECT_COLUMN_MAJOR => Order::ColumnMajor,
            ELLECT_ROW_MAJOR => Order::RowMajor,
            other => {
                return Err(Failure::argument(format!(
                    "the order of {what} is {other}; it must be ELLECT_COLUMN_MAJOR (0) or \
                     ELLECT_ROW_MAJOR (1)"
                )));
            }
        };
        let columns = usize::try_from(vectors).map_err(|_| {
            Failure::argument(format!("the number of vectors is {vectors}; it must be at least 0"))
        })?;
        let [lines, line] = match order {
            Order::ColumnMajor => [columns, nrows],
            Order::RowMajor => [nrows, columns],
        };
        let leading = match usize::try_from(leading) {
            Ok(0) => line,
            Ok(leading) if leading >= line => leading,
            _ => {
                return Err(Failure::argument(format!(
                    "the leading dimension of {what} is {leading}; it must be at least {line}, or 0 \
                     for vectors without gaps"
                )));
            }
        };
        let rest = lines.saturating_sub(1) as u128 * leading as u128;
        let len = if lines == 0 || line == 0 { 0 } else { rest + line as u128 };
        let len = i64::try_from(len).map_err(|_| {
            let message = format!("{what} has {len} elements, more than memory holds; correct it");
            Failure::new(ELLECT_SHAPE, message)
        })?;
        Ok(Vectors { what, shape: [nrows, columns], leading, order, len })
    }
}

/// Multiplies vectors in host memory.
///
/// # Safety
/// As `ellect_apply_many`.
pub unsafe fn multiply<T: Scalar>(
    operator: &PreparedOperator<T>,
    vectors: i64,
    (alpha, x, x_leading, x_order): (f64, *const c_void, i64, i32),
    (beta, y, y_leading, y_order): (f64, *mut c_void, i64, i32),
) -> Outcome<()> {
    let of_x = Vectors::new("x", operator.ncols(), vectors, x_leading, x_order)?;
    let of_y = Vectors::new("y", operator.nrows(), vectors, y_leading, y_order)?;
    apart((x.addr(), of_x.len as usize), (y.addr(), of_y.len as usize), size_of::<T>())?;
    // SAFETY: by this function's own contract; the vectors do not overlap.
    let (x, y) = unsafe { (slice(x, of_x.len, of_x.what)?, slice_mut(y, of_y.len, of_y.what)?) };
    let x = DenseRef::new(of_x.order, of_x.shape, of_x.leading, x)?;
    let y = DenseMut::new(of_y.order, of_y.shape, of_y.leading, y)?;
    Ok(operator.apply_many(T::from_f64(alpha), x, T::from_f64(beta), y)?)
}

/// Computes Y = alpha A X + beta Y for `vectors` vectors in host memory, of the operator's value type:
/// the columns of X, which has the matrix's number of columns as rows, and of Y, which has its number
/// of rows.
///
/// `x_order` and `y_order` are `ELLECT_COLUMN_MAJOR` or `ELLECT_ROW_MAJOR`. `x_leading` and
/// `y_leading` are the distances in elements between two vectors, or between two rows in row-major
/// order; 0 is no gap. Gaps are neither read nor written. X and Y do not overlap. With `beta` 0, Y is
/// written and never read. In an operator's permuted basis, each vector is permuted. On a host, several
/// formats read the matrix once for up to 8 vectors; on a GPU, `csr` and `hll` do, and the call copies
/// the vectors there and back.
///
/// The vectors stay the caller's. Thread safety: on the host, any number of threads at a time.
///
/// Fails with `ELLECT_NULL_POINTER`, `ELLECT_INVALID_ARGUMENT`, `ELLECT_SHAPE`; on a GPU also with
/// failures of the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ellect_apply_many(
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
        each!(&*prepared, operator => unsafe { multiply(operator, vectors, x, y) })
    })
}
