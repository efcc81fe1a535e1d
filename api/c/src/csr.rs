//! The description of a caller's matrix.
#![allow(unsafe_code, reason = "the descriptor holds addresses of callers")]

use std::ffi::c_void;

use ellect::Precision;

use crate::input::{Descriptor, count, precision};
use crate::status::{Failure, Outcome};

/// Indices are `int32_t`.
pub const ELLECT_I32: i32 = 1;
/// Indices are `int64_t`.
pub const ELLECT_I64: i32 = 2;

/// Arrays are in the memory of the host.
pub const ELLECT_HOST: i32 = 0;
/// Arrays are in the memory of a GPU.
pub const ELLECT_DEVICE: i32 = 1;

/// The matrix uses the caller's arrays. They stay valid and unchanged as long as the matrix exists;
/// on a GPU, also as long as every operator that was prepared from it.
pub const ELLECT_BORROW: i32 = 0;
/// The matrix uses copies of the caller's arrays, which may be freed at once. On the host, unsorted
/// rows are sorted and repeated entries are summed; then new values need `ellect_update_matrix`.
pub const ELLECT_COPY: i32 = 1;

/// Arrays on a GPU are copied to the host once and checked before they are used.
pub const ELLECT_CHECK: i32 = 0;
/// The caller guarantees that arrays on a GPU are a valid matrix. Wrong arrays crash the program.
pub const ELLECT_TRUST: i32 = 1;

/// A matrix in compressed sparse rows: set `struct_size` to `sizeof(ellect_csr)`, all other fields
/// that you do not need to 0.
///
/// `row_ptr` has `nrows + 1` offsets from 0 to `nnz` that never fall; `col_idx` has `nnz` columns
/// from 0 to `ncols - 1` that strictly rise in each row; `values` has `nnz` numbers.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EllectCsr {
    /// `sizeof(ellect_csr)`.
    pub struct_size: usize,
    /// Number of rows, at most 2^32 - 1.
    pub nrows: i64,
    /// Number of columns, at most 2^32 - 1.
    pub ncols: i64,
    /// Number of entries.
    pub nnz: i64,
    /// Offsets of the rows.
    pub row_ptr: *const c_void,
    /// Columns of the entries; may be NULL if there are none.
    pub col_idx: *const c_void,
    /// Values of the entries; may be NULL if there are none.
    pub values: *const c_void,
    /// Type of `row_ptr`: `ELLECT_I32` or `ELLECT_I64`.
    pub row_ptr_type: i32,
    /// Type of `col_idx`: `ELLECT_I32`, on the host also `ELLECT_I64`, which is narrowed in a copy.
    pub col_idx_type: i32,
    /// Type of `values`: `ELLECT_F32` or `ELLECT_F64`.
    pub value_type: i32,
    /// Memory of the three arrays: `ELLECT_HOST` or `ELLECT_DEVICE`.
    pub memory: i32,
    /// `ELLECT_BORROW` or `ELLECT_COPY`.
    pub ownership: i32,
    /// For arrays on a GPU: `ELLECT_CHECK` or `ELLECT_TRUST`. Arrays on the host are always checked.
    pub check: i32,
    /// For arrays on a GPU: the `cudaStream_t` or `CUstream` whose queued work writes them. NULL is
    /// the legacy default stream.
    pub stream: *mut c_void,
}

// SAFETY: `repr(C)`, begins with its size; integers and raw pointers are valid for all bytes.
unsafe impl Descriptor for EllectCsr {
    const NAME: &'static str = "ellect_csr";
}

/// The checked numbers of a descriptor.
pub struct Form {
    pub nrows: usize,
    pub ncols: usize,
    pub wide_offsets: bool,
    pub wide_columns: bool,
    pub precision: Precision,
    pub on_device: bool,
    pub copy: bool,
}

impl EllectCsr {
    /// Checks every number of the descriptor, but no array.
    pub fn form(&self) -> Outcome<Form> {
        let widths = [(ELLECT_I32, "ELLECT_I32"), (ELLECT_I64, "ELLECT_I64")];
        let memories = [(ELLECT_HOST, "ELLECT_HOST"), (ELLECT_DEVICE, "ELLECT_DEVICE")];
        let owners = [(ELLECT_BORROW, "ELLECT_BORROW"), (ELLECT_COPY, "ELLECT_COPY")];
        let checks = [(ELLECT_CHECK, "ELLECT_CHECK"), (ELLECT_TRUST, "ELLECT_TRUST")];
        is_second("check", self.check, checks)?;
        let (nrows, ncols) = (count(self.nrows, "nrows")?, count(self.ncols, "ncols")?);
        ellect::csr::check_dimensions(nrows, ncols)?;
        Ok(Form {
            nrows,
            ncols,
            wide_offsets: is_second("row_ptr_type", self.row_ptr_type, widths)?,
            wide_columns: is_second("col_idx_type", self.col_idx_type, widths)?,
            precision: precision(self.value_type)?,
            on_device: is_second("memory", self.memory, memories)?,
            copy: is_second("ownership", self.ownership, owners)?,
        })
    }
}

/// Reads one of two numbers; true for the second.
pub fn is_second(field: &str, got: i32, allowed: [(i32, &str); 2]) -> Outcome<bool> {
    let [(first, first_name), (second, second_name)] = allowed;
    match got {
        got if got == first => Ok(false),
        got if got == second => Ok(true),
        got => Err(Failure::argument(format!(
            "{field} is {got}; it must be {first_name} ({first}) or {second_name} ({second})"
        ))),
    }
}
