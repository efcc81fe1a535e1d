//! Matrices: arrays of a caller or copies of them, and files.
#![allow(unsafe_code, reason = "callers pass addresses")]

use std::ffi::{c_char, c_void};

use ellect::csr::CsrRef;
use ellect::read::{self, Limits};
use ellect::{Csr, Precision, Tuner};

use crate::arrays::{Columns, HostArrays, Offsets, Value, Values};
use crate::csr::{ELLECT_BORROW, ELLECT_CHECK, ELLECT_HOST, ELLECT_I32, ELLECT_I64, EllectCsr};
use crate::gpu::Arrays;
use crate::input::{ELLECT_F32, ELLECT_F64, descriptor, object, place, precision, text};
use crate::status::{ELLECT_UNSUPPORTED, Failure, Outcome, Status, boundary, dispose};

enum Storage {
    Host(HostArrays),
    Gpu(Arrays),
}

/// A matrix, made by `ellect_matrix_create` or `ellect_matrix_read`.
///
/// Thread safety: any number of threads may use one matrix at a time; none while it is destroyed.
pub struct EllectMatrix {
    precision: Precision,
    /// True if rows were sorted or entries summed, so that values have another order.
    repaired: bool,
    storage: Storage,
}

impl EllectMatrix {
    fn of<T: Value>(csr: Csr<T>) -> Self {
        let storage = Storage::Host(HostArrays::of(csr));
        EllectMatrix { precision: T::PRECISION, repaired: false, storage }
    }

    fn on_host(&self) -> Option<&HostArrays> {
        match &self.storage {
            Storage::Host(host) => Some(host),
            Storage::Gpu(_) => None,
        }
    }

    /// Returns the arrays in host memory.
    pub fn host_arrays(&self) -> Outcome<&HostArrays> {
        self.on_host().ok_or_else(|| {
            let what = "the matrix is on a GPU; use the arrays that you made it from";
            Failure::new(ELLECT_UNSUPPORTED, what)
        })
    }

    /// Returns the arrays on a GPU.
    pub fn on_gpu(&self) -> Option<&Arrays> {
        match &self.storage {
            Storage::Host(_) => None,
            Storage::Gpu(arrays) => Some(arrays),
        }
    }

    pub fn precision(&self) -> Precision {
        self.precision
    }

    pub fn is_repaired(&self) -> bool {
        self.repaired
    }

    /// Calls `work` with the matrix, which is checked before. A matrix on a GPU is copied to the
    /// host; `tuner` opened that GPU.
    pub fn with<T: Value, R>(
        &self,
        tuner: &Tuner,
        work: impl FnOnce(CsrRef<'_, T>) -> Outcome<R>,
    ) -> Outcome<R> {
        match &self.storage {
            Storage::Host(host) => host.with(work),
            Storage::Gpu(arrays) => work((&arrays.download(tuner)?).into()),
        }
    }
}

/// # Safety
/// As `ellect_matrix_create`.
unsafe fn create(csr: &EllectCsr) -> Outcome<EllectMatrix> {
    let form = csr.form()?;
    if form.on_device {
        // SAFETY: by this function's own contract.
        let storage = Storage::Gpu(unsafe { Arrays::new(csr, &form)? });
        return Ok(EllectMatrix { precision: form.precision, repaired: false, storage });
    }
    // SAFETY: by this function's own contract.
    let given = unsafe { HostArrays::borrow(csr, &form)? };
    let (arrays, repaired) = match (form.copy, form.precision) {
        (true, Precision::F32) => given.copied::<f32>()?,
        (true, Precision::F64) => given.copied::<f64>()?,
        (false, Precision::F32) => {
            (given.with(|_: CsrRef<'_, f32>| Ok(())).map(|()| given)?, false)
        }
        (false, Precision::F64) => {
            (given.with(|_: CsrRef<'_, f64>| Ok(())).map(|()| given)?, false)
        }
    };
    let storage = Storage::Host(arrays);
    Ok(EllectMatrix { precision: form.precision, repaired, storage })
}

/// Makes a matrix from the arrays that `csr` describes, and checks arrays in host memory: one pass
/// over the pattern. For arrays on a GPU that are copied, that GPU is current on this thread and a
/// tuner of it was opened before.
///
/// On success, `*matrix` belongs to the caller, who frees it with `ellect_matrix_destroy`; else it
/// is NULL. Thread safety: any thread.
///
/// Fails with `ELLECT_NULL_POINTER`, `ELLECT_INVALID_ARGUMENT`, `ELLECT_SHAPE`,
/// `ELLECT_INVALID_MATRIX`; on a GPU also `ELLECT_UNSUPPORTED`, `ELLECT_OUT_OF_MEMORY`,
/// `ELLECT_DEVICE_FAILED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ellect_matrix_create(
    csr: *const EllectCsr,
    matrix: *mut *mut EllectMatrix,
) -> Status {
    boundary(|| {
        // SAFETY: the caller passes addresses of these types, and arrays as the descriptor says.
        unsafe {
            let to = place(matrix, "matrix")?;
            *to = Box::into_raw(Box::new(create(&descriptor(csr)?)?));
        }
        Ok(())
    })
}

/// Reads a matrix from a file: Matrix Market, SciPy `.npz`, Rutherford-Boeing, PETSc binary, MATLAB or
/// JSON, plain or compressed, with values of type `value_type`. Rows are sorted and repeated entries
/// are summed; `ellect_matrix_csr` returns the arrays.
///
/// On success, `*matrix` belongs to the caller, who frees it with `ellect_matrix_destroy`; else it
/// is NULL. Thread safety: any thread.
///
/// Fails with `ELLECT_NULL_POINTER`, `ELLECT_INVALID_ARGUMENT`, `ELLECT_IO`, `ELLECT_INVALID_MATRIX`,
/// `ELLECT_LIMIT`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ellect_matrix_read(
    path: *const c_char,
    value_type: i32,
    matrix: *mut *mut EllectMatrix,
) -> Status {
    boundary(|| {
        // SAFETY: the caller passes addresses of these types.
        let (to, path) = unsafe { (place(matrix, "matrix")?, text(path, "path")?) };
        let read = match precision(value_type)? {
            Precision::F32 => EllectMatrix::of::<f32>(read::file(path, &Limits::default())?),
            Precision::F64 => EllectMatrix::of::<f64>(read::file(path, &Limits::default())?),
        };
        *to = Box::into_raw(Box::new(read));
        Ok(())
    })
}

/// Describes the arrays of a matrix in host memory, as the matrix uses them now. Set
/// `csr->struct_size` before.
///
/// The arrays belong to the matrix, or to the caller if they were borrowed; the caller must not change
/// them. Columns of a copy have type `ELLECT_I32` and its offsets `ELLECT_I64`. Thread safety: any
/// thread.
///
/// Fails with `ELLECT_NULL_POINTER`, `ELLECT_INVALID_ARGUMENT`, and `ELLECT_UNSUPPORTED` for a matrix
/// on a GPU or with more than 2^31 - 1 columns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ellect_matrix_csr(
    matrix: *const EllectMatrix,
    csr: *mut EllectCsr,
) -> Status {
    boundary(|| {
        // SAFETY: the caller passes a matrix and the address of a descriptor.
        let (matrix, given) = unsafe { (object(matrix, "matrix")?, descriptor(csr)?) };
        let described = matrix.described(given)?;
        // SAFETY: the descriptor was read above, so it has at least these bytes.
        unsafe { csr.write(described) };
        Ok(())
    })
}

impl EllectMatrix {
    fn described(&self, given: EllectCsr) -> Outcome<EllectCsr> {
        let host = self.host_arrays()?;
        let (row_ptr, row_ptr_type) = match &host.offsets {
            Offsets::Narrow(offsets) => (start(offsets.as_slice()), ELLECT_I32),
            Offsets::Wide(offsets) => (start(offsets.as_slice()), ELLECT_I64),
            Offsets::Owned(offsets) => (start(offsets), ELLECT_I64),
        };
        let col_idx = match &host.columns {
            Columns::Borrowed(columns) => start(columns.as_slice()),
            Columns::Owned(columns) => start(columns),
        };
        if i32::try_from(host.ncols).is_err() {
            let what =
                "the matrix has more than 2^31 - 1 columns; use the arrays that you made it from";
            return Err(Failure::new(ELLECT_UNSUPPORTED, what));
        }
        let (values, value_type, nnz) = match &host.values {
            Values::F32(values) => (start(values.as_slice()), ELLECT_F32, values.as_slice().len()),
            Values::F64(values) => (start(values.as_slice()), ELLECT_F64, values.as_slice().len()),
        };
        Ok(EllectCsr {
            struct_size: given.struct_size,
            nrows: host.nrows as i64,
            ncols: host.ncols as i64,
            nnz: nnz as i64,
            row_ptr,
            col_idx,
            values,
            row_ptr_type,
            col_idx_type: ELLECT_I32,
            value_type,
            memory: ELLECT_HOST,
            ownership: ELLECT_BORROW,
            check: ELLECT_CHECK,
            stream: std::ptr::null_mut(),
        })
    }
}

/// Returns the address of an array.
fn start<T>(array: &[T]) -> *const c_void {
    array.as_ptr().cast()
}

/// Frees a matrix; NULL is ignored. Operators that were prepared from it stay valid. Thread safety: no
/// other thread uses the matrix.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ellect_matrix_destroy(matrix: *mut EllectMatrix) {
    if !matrix.is_null() {
        // SAFETY: the caller passes a live matrix, which `Box` made, and never uses it again.
        dispose(|| drop(unsafe { Box::from_raw(matrix) }));
    }
}
