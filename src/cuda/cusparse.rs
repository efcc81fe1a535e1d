//! cuSPARSE, opened at run time: the few functions that a product needs.

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::{Arc, OnceLock};

use cust::sys as cuda;

use super::memory::{Memory, Queue};
use crate::error::{DeviceFault, Error, Result};
use crate::format::{Algorithm, Candidate, Refusal, Vendor};
use crate::scalar::{Precision, Scalar};

type Handle = *mut c_void;

/// Where the library may be; the first is found by the system's own search.
const NAMES: [&str; 4] = [
    "libcusparse.so.12",
    "libcusparse.so",
    "/usr/local/cuda/lib64/libcusparse.so.12",
    "/usr/local/cuda/lib64/libcusparse.so",
];

const INDEX_32I: c_int = 2;
const R_32F: c_int = 0;
const R_64F: c_int = 1;

type CreateVector = unsafe extern "C" fn(*mut Handle, i64, *mut c_void, c_int) -> c_int;
type CreateCsr = unsafe extern "C" fn(
    *mut Handle,
    i64,
    i64,
    i64,
    *mut c_void,
    *mut c_void,
    *mut c_void,
    c_int,
    c_int,
    c_int,
    c_int,
) -> c_int;
type CreateSell = unsafe extern "C" fn(
    *mut Handle,
    i64,
    i64,
    i64,
    i64,
    i64,
    *mut c_void,
    *mut c_void,
    *mut c_void,
    c_int,
    c_int,
    c_int,
    c_int,
) -> c_int;
type Size = unsafe extern "C" fn(
    Handle,
    c_int,
    *const c_void,
    Handle,
    Handle,
    *const c_void,
    Handle,
    c_int,
    c_int,
    *mut usize,
) -> c_int;
type Multiply = unsafe extern "C" fn(
    Handle,
    c_int,
    *const c_void,
    Handle,
    Handle,
    *const c_void,
    Handle,
    c_int,
    c_int,
    *mut c_void,
) -> c_int;

/// The library's functions.
struct Library {
    property: unsafe extern "C" fn(c_int, *mut c_int) -> c_int,
    create: unsafe extern "C" fn(*mut Handle) -> c_int,
    destroy: unsafe extern "C" fn(Handle) -> c_int,
    set_stream: unsafe extern "C" fn(Handle, cuda::CUstream) -> c_int,
    create_vector: CreateVector,
    set_vector: unsafe extern "C" fn(Handle, *mut c_void) -> c_int,
    destroy_vector: unsafe extern "C" fn(Handle) -> c_int,
    create_csr: CreateCsr,
    create_sell: CreateSell,
    destroy_matrix: unsafe extern "C" fn(Handle) -> c_int,
    buffer_size: Size,
    preprocess: Multiply,
    multiply: Multiply,
}

fn library() -> Result<&'static Library> {
    static LIBRARY: OnceLock<std::result::Result<Library, String>> = OnceLock::new();
    let found = LIBRARY.get_or_init(open);
    found.as_ref().map_err(|why| Error::device(DeviceFault::Unavailable, why.clone()))
}

/// Refuses a candidate that the library multiplies where it is not on this machine.
///
/// # Errors
/// [`Error::Refused`].
pub(super) fn check_vendor(candidate: &Candidate, vendor: Option<&Vendor>) -> Result<()> {
    match vendor.map(|_| library()) {
        Some(Err(why)) => Err(candidate.refused(&Refusal::new(why.to_string()))),
        Some(Ok(_)) | None => Ok(()),
    }
}

/// The library's version, `major.minor.patch`, where it is on this machine.
pub fn version() -> Option<String> {
    let library = library().ok()?;
    let part = |property: c_int| {
        let mut value = 0;
        // SAFETY: the library writes one number.
        let code = unsafe { (library.property)(property, &mut value) };
        (code == 0).then(|| value.to_string())
    };
    Some([part(0)?, part(1)?, part(2)?].join("."))
}

fn open() -> std::result::Result<Library, String> {
    let opened = NAMES.iter().find_map(|name| {
        // SAFETY: the library's initialisers are made to run in any process.
        unsafe { libloading::Library::new(name) }.ok()
    });
    let library = opened.ok_or("cuSPARSE is not on this machine (libcusparse.so.12)")?;
    macro_rules! get {
        ($name:literal) => {
            // SAFETY: the type of the field is the signature that NVIDIA documents.
            *unsafe { library.get(concat!($name, "\0").as_bytes()) }
                .map_err(|error| format!("cuSPARSE lacks {}: {error}", $name))?
        };
    }
    let functions = Library {
        property: get!("cusparseGetProperty"),
        create: get!("cusparseCreate"),
        destroy: get!("cusparseDestroy"),
        set_stream: get!("cusparseSetStream"),
        create_vector: get!("cusparseCreateDnVec"),
        set_vector: get!("cusparseDnVecSetValues"),
        destroy_vector: get!("cusparseDestroyDnVec"),
        create_csr: get!("cusparseCreateCsr"),
        create_sell: get!("cusparseCreateSlicedEll"),
        destroy_matrix: get!("cusparseDestroySpMat"),
        buffer_size: get!("cusparseSpMV_bufferSize"),
        preprocess: get!("cusparseSpMV_preprocess"),
        multiply: get!("cusparseSpMV"),
    };
    // The addresses stay in use until the process ends.
    std::mem::forget(library);
    Ok(functions)
}

fn check(code: c_int, what: &str) -> Result<()> {
    match code {
        0 => Ok(()),
        // CUSPARSE_STATUS_ALLOC_FAILED.
        2 => Err(Error::device(DeviceFault::OutOfMemory, format!("cuSPARSE: {what}: status 2"))),
        code => Err(Error::device(DeviceFault::Failed, format!("cuSPARSE: {what}: status {code}"))),
    }
}

/// One matrix that cuSPARSE multiplies; its arrays belong to the operator that holds this.
pub(super) struct Product {
    library: &'static Library,
    handle: Handle,
    matrix: Handle,
    x: Handle,
    y: Handle,
    precision: Precision,
    algorithm: c_int,
    buffer: Option<Memory>,
    queue: Arc<Queue>,
}

// SAFETY: a handle may be used by any thread, one at a time; products take `&self` on one stream
// after the other, as the contract of `CudaOperator::apply_raw` asks.
unsafe impl Send for Product {}
// SAFETY: the same.
unsafe impl Sync for Product {}

impl Drop for Product {
    fn drop(&mut self) {
        if self.queue.make_current().is_err() {
            return;
        }
        // SAFETY: each was made by the library and is destroyed once; null was never made.
        unsafe {
            for vector in [self.x, self.y].into_iter().filter(|v| !v.is_null()) {
                (self.library.destroy_vector)(vector);
            }
            if !self.matrix.is_null() {
                (self.library.destroy_matrix)(self.matrix);
            }
            (self.library.destroy)(self.handle);
        }
    }
}

impl Product {
    /// Describes the matrix and preprocesses it: `addresses` are those of offsets, columns and
    /// values.
    ///
    /// # Errors
    /// [`Error::Device`] where the library is missing or refuses.
    pub fn new<T: Scalar>(
        vendor: &Vendor,
        addresses: [u64; 3],
        queue: &Arc<Queue>,
    ) -> Result<Self> {
        let library = library()?;
        let mut handle = null_mut();
        // SAFETY: the library writes one handle.
        check(unsafe { (library.create)(&mut handle) }, "starting")?;
        let (kind, algorithm) = match vendor.algorithm {
            Algorithm::CsrAlg1 => (None, 2),
            Algorithm::CsrAlg2 => (None, 3),
            Algorithm::Sell => (Some(vendor.slots as i64), 5),
        };
        let mut product = Product {
            library,
            handle,
            matrix: null_mut(),
            x: null_mut(),
            y: null_mut(),
            precision: T::PRECISION,
            algorithm,
            buffer: None,
            queue: Arc::clone(queue),
        };
        let [rows, cols, nnz] = [vendor.nrows, vendor.ncols, vendor.nnz].map(|n| n as i64);
        let value = product.value_type();
        let index = INDEX_32I;
        // SAFETY: the arrays hold what the layout described, with 32-bit indices counted from 0,
        // and outlive this; vectors get their addresses before they are used.
        unsafe {
            check((library.set_stream)(handle, queue.as_inner()), "setting the stream")?;
            let matrix = &mut product.matrix;
            let [offsets, columns, values] = addresses.map(|address| address as *mut c_void);
            let code = match kind {
                None => (library.create_csr)(
                    matrix, rows, cols, nnz, offsets, columns, values, index, index, 0, value,
                ),
                Some(slots) => (library.create_sell)(
                    matrix, rows, cols, nnz, slots, 32, offsets, columns, values, index, index, 0,
                    value,
                ),
            };
            check(code, "describing the matrix")?;
            // Any address will do until the first product.
            check((library.create_vector)(&mut product.x, cols, values, value), "describing x")?;
            check((library.create_vector)(&mut product.y, rows, values, value), "describing y")?;
        }
        product.prepare::<T>(queue)?;
        Ok(product)
    }

    fn value_type(&self) -> c_int {
        match self.precision {
            Precision::F32 => R_32F,
            Precision::F64 => R_64F,
        }
    }

    fn prepare<T: Scalar>(&mut self, queue: &Arc<Queue>) -> Result<()> {
        let (one, zero) = (T::ONE, T::ZERO);
        let (one, zero) = (std::ptr::from_ref(&one).cast(), std::ptr::from_ref(&zero).cast());
        let value = self.value_type();
        let mut bytes = 0;
        // SAFETY: all handles were made above, the factors are of the value type, and the buffer is
        // as long as the library asked for.
        unsafe {
            let code = (self.library.buffer_size)(
                self.handle,
                0,
                one,
                self.matrix,
                self.x,
                zero,
                self.y,
                value,
                self.algorithm,
                &mut bytes,
            );
            check(code, "asking for its buffer")?;
            let buffer = Memory::zeros(bytes.max(8) as u64, queue)?;
            let at = self.buffer.insert(buffer).address() as *mut c_void;
            if self.algorithm != 5 {
                let code = (self.library.preprocess)(
                    self.handle,
                    0,
                    one,
                    self.matrix,
                    self.x,
                    zero,
                    self.y,
                    value,
                    self.algorithm,
                    at,
                );
                check(code, "preprocessing")?;
            }
        }
        Ok(())
    }

    /// y = alpha A x + beta y on `stream`.
    ///
    /// # Errors
    /// [`Error::Device`] where the library refuses.
    ///
    /// # Safety
    /// As `CudaOperator::apply_raw`.
    pub unsafe fn apply<T: Scalar>(
        &self,
        alpha: T,
        x: cuda::CUdeviceptr,
        beta: T,
        y: cuda::CUdeviceptr,
        stream: cuda::CUstream,
    ) -> Result<()> {
        let buffer =
            self.buffer.as_ref().map_or(null(), |buffer| buffer.address() as *const c_void);
        // SAFETY: the handles live as long as `self`; x and y by the caller's contract.
        unsafe {
            check((self.library.set_stream)(self.handle, stream), "setting the stream")?;
            check((self.library.set_vector)(self.x, x as *mut c_void), "setting x")?;
            check((self.library.set_vector)(self.y, y as *mut c_void), "setting y")?;
            let code = (self.library.multiply)(
                self.handle,
                0,
                std::ptr::from_ref(&alpha).cast(),
                self.matrix,
                self.x,
                std::ptr::from_ref(&beta).cast(),
                self.y,
                self.value_type(),
                self.algorithm,
                buffer.cast_mut(),
            );
            check(code, "multiplying")
        }
    }
}
