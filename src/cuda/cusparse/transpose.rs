//! Transposes by `cusparseCsr2cscEx2`.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use super::super::memory::{Memory, Queue};
use super::{check, library, value_type};
use crate::error::Result;
use crate::scalar::Scalar;

/// `CUSPARSE_ACTION_NUMERIC`: patterns and values are transposed.
const WITH_VALUES: c_int = 1;

/// `CUSPARSE_CSR2CSC_ALG1`: the result is the same in every run.
const ALGORITHM: c_int = 1;

/// Writes the transpose of a matrix with this number of rows, columns and entries; `from` and `to` are
/// the addresses of row pointers of 32 bits, columns and values. Waits for the GPU.
///
/// # Errors
/// [`Error::Device`](crate::Error::Device) if the library is missing or reports an error, or memory runs
/// out.
///
/// # Safety
/// The arrays have the lengths of a matrix of this shape and of its transpose, and `from` holds a valid
/// matrix by the time that earlier work of the queue has ended.
pub(in crate::cuda) unsafe fn transpose<T: Scalar>(
    [nrows, ncols, nnz]: [c_int; 3],
    from: [u64; 3],
    to: [u64; 3],
    queue: &Arc<Queue>,
) -> Result<()> {
    let library = library()?;
    let [row_ptr, columns, values] = from.map(|address| address as *const c_void);
    let [to_row_ptr, to_columns, to_values] = to.map(|address| address as *mut c_void);
    let (value, mut handle, mut bytes) = (value_type(T::PRECISION), null_mut(), 0);
    // SAFETY: the library writes one handle.
    check(unsafe { (library.create)(&mut handle) }, "starting")?;
    // Both steps take the same arguments but the last one.
    macro_rules! step {
        ($function:ident, $last:expr) => {
            (library.$function)(
                handle,
                nrows,
                ncols,
                nnz,
                values,
                row_ptr,
                columns,
                to_values,
                to_row_ptr,
                to_columns,
                value,
                WITH_VALUES,
                0,
                ALGORITHM,
                $last,
            )
        };
    }
    let mut run = || {
        // SAFETY: the arrays by the caller's contract; the buffer has the size that the library asked
        // for.
        unsafe {
            check((library.set_stream)(handle, queue.as_inner()), "setting the stream")?;
            check(step!(transpose_buffer_size, &mut bytes), "asking for a transposition's buffer")?;
            let buffer = Memory::new(bytes as u64, queue)?;
            check(step!(transpose, buffer.address() as *mut c_void), "transposing")
        }
    };
    let done = run();
    // The library does not say that destroying the handle waits.
    let waited = queue.synchronize().map_err(super::super::failed("waiting for a transposition"));
    // SAFETY: the library created the handle, and it is destroyed once.
    unsafe { (library.destroy)(handle) };
    done.and(waited)
}
