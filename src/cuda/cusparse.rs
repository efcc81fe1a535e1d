//! cuSPARSE, opened at run time: the functions that products need.

#[path = "cusparse/spmm.rs"]
mod spmm;
#[path = "cusparse/transpose.rs"]
mod transpose;

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::{Arc, Mutex, OnceLock};

use cust::sys as cuda;

use super::Gpu;
use super::memory::{Memory, Queue};
use crate::error::{DeviceFault, Error, Result};
use crate::format::{Algorithm, Candidate, Refusal, Vendor};
use crate::scalar::{Precision, Scalar};
pub(super) use transpose::transpose;

type Handle = *mut c_void;

/// Possible paths of the library; the system's search path resolves those without a folder.
const NAMES: [&str; 4] = [
    "libcusparse.so.12",
    "libcusparse.so",
    "/usr/local/cuda/lib64/libcusparse.so.12",
    "/usr/local/cuda/lib64/libcusparse.so",
];

const INDEX_32I: c_int = 2;
const R_32F: c_int = 0;
const R_64F: c_int = 1;

type CreateVectorFn = unsafe extern "C" fn(*mut Handle, i64, *mut c_void, c_int) -> c_int;
type CreateCsrFn = unsafe extern "C" fn(
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
type CreateSellFn = unsafe extern "C" fn(
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
/// A step of a product with one vector; `Last` is the address of its buffer, or of the size of that.
type SpmvFn<Last = *mut c_void> = unsafe extern "C" fn(
    Handle,
    c_int,
    *const c_void,
    Handle,
    Handle,
    *const c_void,
    Handle,
    c_int,
    c_int,
    Last,
) -> c_int;
/// A step of a product with several vectors, like [`SpmvFn`].
type SpmmFn<Last = *mut c_void> = unsafe extern "C" fn(
    Handle,
    c_int,
    c_int,
    *const c_void,
    Handle,
    Handle,
    *const c_void,
    Handle,
    c_int,
    c_int,
    Last,
) -> c_int;
type CreateDenseFn =
    unsafe extern "C" fn(*mut Handle, i64, i64, i64, *mut c_void, c_int, c_int) -> c_int;

/// A step of a transposition: numbers of rows, columns and entries; values, row pointers and columns of
/// the matrix; values, row pointers and columns of the transpose; type of the values, what is copied,
/// the first index and the algorithm.
type TransposeFn<Last = *mut c_void> = unsafe extern "C" fn(
    Handle,
    c_int,
    c_int,
    c_int,
    *const c_void,
    *const c_void,
    *const c_void,
    *mut c_void,
    *mut c_void,
    *mut c_void,
    c_int,
    c_int,
    c_int,
    c_int,
    Last,
) -> c_int;

/// Functions of the library.
struct Library {
    property: unsafe extern "C" fn(c_int, *mut c_int) -> c_int,
    create: unsafe extern "C" fn(*mut Handle) -> c_int,
    destroy: unsafe extern "C" fn(Handle) -> c_int,
    set_stream: unsafe extern "C" fn(Handle, cuda::CUstream) -> c_int,
    create_vector: CreateVectorFn,
    set_vector: unsafe extern "C" fn(Handle, *mut c_void) -> c_int,
    destroy_vector: unsafe extern "C" fn(Handle) -> c_int,
    create_csr: CreateCsrFn,
    create_sell: CreateSellFn,
    destroy_matrix: unsafe extern "C" fn(Handle) -> c_int,
    buffer_size: SpmvFn<*mut usize>,
    preprocess: SpmvFn,
    multiply: SpmvFn,
    create_dense: CreateDenseFn,
    set_dense: unsafe extern "C" fn(Handle, *mut c_void) -> c_int,
    destroy_dense: unsafe extern "C" fn(Handle) -> c_int,
    spmm_buffer_size: SpmmFn<*mut usize>,
    spmm_preprocess: SpmmFn,
    spmm: SpmmFn,
    transpose_buffer_size: TransposeFn<*mut usize>,
    transpose: TransposeFn,
}

fn library() -> Result<&'static Library> {
    static LIBRARY: OnceLock<std::result::Result<Library, String>> = OnceLock::new();
    let found = LIBRARY.get_or_init(open);
    found.as_ref().map_err(|why| Error::device(DeviceFault::Unavailable, why.clone()))
}

/// Refuses a candidate that needs the library if the library is not on this machine.
///
/// # Errors
/// [`Error::Refused`] if it is needed and missing.
pub(super) fn check_vendor(candidate: &Candidate, vendor: Option<&Vendor>) -> Result<()> {
    match vendor.map(|_| library()) {
        Some(Err(why)) => Err(candidate.refused(&Refusal::new(why.to_string()))),
        Some(Ok(_)) | None => Ok(()),
    }
}

/// Returns the library's version, `major.minor.patch`, if it is on this machine.
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
        // SAFETY: the library's initialisers may run in any process.
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
        create_dense: get!("cusparseCreateDnMat"),
        set_dense: get!("cusparseDnMatSetValues"),
        destroy_dense: get!("cusparseDestroyDnMat"),
        spmm_buffer_size: get!("cusparseSpMM_bufferSize"),
        spmm_preprocess: get!("cusparseSpMM_preprocess"),
        spmm: get!("cusparseSpMM"),
        transpose_buffer_size: get!("cusparseCsr2cscEx2_bufferSize"),
        transpose: get!("cusparseCsr2cscEx2"),
    };
    // The functions' addresses must stay valid until the process ends.
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

fn value_type(precision: Precision) -> c_int {
    match precision {
        Precision::F32 => R_32F,
        Precision::F64 => R_64F,
    }
}

/// A product prepared by cuSPARSE; the operator that holds this owns the arrays.
pub(crate) struct CusparseProduct {
    library: &'static Library,
    handle: Handle,
    matrix: Handle,
    x: Handle,
    y: Handle,
    precision: Precision,
    algorithm: c_int,
    /// 1 for products with the transpose.
    operation: c_int,
    buffer: Option<Memory>,
    queue: Arc<Queue>,
    rows: u64,
    /// The product with several vectors, for those of the last form.
    plan: Mutex<Option<spmm::Plan>>,
}

// SAFETY: any thread may use a handle, one thread at a time; products run one after another on one
// stream, as the contract of `CudaOperator::apply_raw` requires.
unsafe impl Send for CusparseProduct {}
// SAFETY: as above.
unsafe impl Sync for CusparseProduct {}

impl Drop for CusparseProduct {
    fn drop(&mut self) {
        // Products may still run, and the library does not say that it waits for them.
        if self.queue.make_current().is_err() {
            return;
        }
        let _ = self.queue.synchronize();
        self.plan = Mutex::default();
        // SAFETY: the library created each object, and each is destroyed once; null objects do not
        // exist.
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

impl CusparseProduct {
    /// As [`CusparseProduct::new`], on the stream of a GPU.
    ///
    /// # Errors
    /// As [`CusparseProduct::new`].
    pub fn on<T: Scalar>(gpu: &Gpu, vendor: &Vendor, addresses: [u64; 3]) -> Result<Self> {
        Self::new::<T>(vendor, addresses, &gpu.queue)
    }

    /// Describes and preprocesses the matrix; `addresses` are those of offsets, column indices and
    /// values.
    ///
    /// # Errors
    /// [`Error::Device`] if the library is missing or reports an error.
    pub(super) fn new<T: Scalar>(
        vendor: &Vendor,
        addresses: [u64; 3],
        queue: &Arc<Queue>,
    ) -> Result<Self> {
        let library = library()?;
        let mut handle = null_mut();
        // SAFETY: the library writes one handle.
        check(unsafe { (library.create)(&mut handle) }, "starting")?;
        let (kind, algorithm) = match vendor.algorithm {
            Algorithm::CsrAlg1 | Algorithm::CsrTransposed => (None, 2),
            Algorithm::CsrAlg2 => (None, 3),
            Algorithm::Sell => (Some(vendor.slots as i64), 5),
        };
        let mut product = CusparseProduct {
            library,
            handle,
            matrix: null_mut(),
            x: null_mut(),
            y: null_mut(),
            precision: T::PRECISION,
            algorithm,
            operation: c_int::from(vendor.algorithm == Algorithm::CsrTransposed),
            buffer: None,
            queue: Arc::clone(queue),
            rows: vendor.nrows,
            plan: Mutex::default(),
        };
        let [rows, cols, nnz] = [vendor.nrows, vendor.ncols, vendor.nnz].map(|n| n as i64);
        let value = product.value_type();
        let index = INDEX_32I;
        // SAFETY: the arrays hold what the layout described, with 32-bit indices counted from 0,
        // and outlive this object; vectors get their addresses before use.
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
            // The first product sets the vectors' addresses.
            let [of_x, of_y] = if product.operation == 0 { [cols, rows] } else { [rows, cols] };
            check((library.create_vector)(&mut product.x, of_x, values, value), "describing x")?;
            check((library.create_vector)(&mut product.y, of_y, values, value), "describing y")?;
        }
        product.prepare::<T>(queue)?;
        Ok(product)
    }

    fn value_type(&self) -> c_int {
        value_type(self.precision)
    }

    fn prepare<T: Scalar>(&mut self, queue: &Arc<Queue>) -> Result<()> {
        let (one, zero) = (T::ONE, T::ZERO);
        let (one, zero) = (std::ptr::from_ref(&one).cast(), std::ptr::from_ref(&zero).cast());
        let value = self.value_type();
        let mut bytes = 0;
        // SAFETY: all handles were created above, the factors have the value type, and the buffer
        // has the size that the library asked for.
        unsafe {
            let code = (self.library.buffer_size)(
                self.handle,
                self.operation,
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
                    self.operation,
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

    /// As [`Memory::move_to`], for the product's buffer.
    pub(super) fn move_to(&mut self, queue: &Arc<Queue>) {
        self.buffer.iter_mut().for_each(|buffer| buffer.move_to(queue));
        self.queue = Arc::clone(queue);
        // Its buffer belongs to the stream.
        self.plan = Mutex::default();
    }

    /// Computes y = alpha A x + beta y on `stream`.
    ///
    /// # Errors
    /// [`Error::Device`] if the library reports an error.
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
                self.operation,
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
