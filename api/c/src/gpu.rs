//! Matrices and vectors in the memory of a GPU, by their addresses.
#![allow(unsafe_code, reason = "arrays of other libraries are reached by their addresses")]

use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cust::sys as cuda;
use ellect::cuda::{DeviceCsr, GpuOperator};
use ellect::dots::Fused;
use ellect::error::DeviceFault;
use ellect::format::Matrix;
use ellect::{Csr, Error, PreparedOperator, Scalar, Tuner, Workload};

use crate::csr::{ELLECT_TRUST, EllectCsr, Form};
use crate::fused::{EllectFused, Named, check_apart};
use crate::input::count;
use crate::matrix::EllectMatrix;
use crate::operator::{Prepared, each};
use crate::status::{Failure, Outcome};

/// A CSR matrix on a GPU.
pub struct Arrays {
    matrix: Matrix,
    /// Row pointers, columns and values.
    addresses: [u64; 3],
    trusted: bool,
    stream: cuda::CUstream,
    /// The copies that the addresses point to; empty if the arrays are the caller's.
    owned: Arc<[Copied; 3]>,
}

// SAFETY: the driver's streams and addresses may be used from any thread.
unsafe impl Send for Arrays {}
// SAFETY: as above.
unsafe impl Sync for Arrays {}

/// Memory that holds the copy of an array, in its context.
#[derive(Default)]
struct Copied(Option<(cuda::CUdeviceptr, usize)>);

impl Copied {
    /// Copies an array on the current GPU.
    fn of(address: u64, bytes: usize, stream: cuda::CUstream) -> Outcome<Self> {
        if bytes == 0 {
            return Ok(Copied(None));
        }
        let (mut context, mut copy) = (std::ptr::null_mut(), 0);
        // SAFETY: the driver writes one handle, which is NULL without a context.
        check(unsafe { cuda::cuCtxGetCurrent(&mut context) }, "asking for the current GPU")?;
        if context.is_null() {
            return Err(Failure::argument(
                "no GPU is current on this thread; call cudaSetDevice, and open a tuner of the GPU",
            ));
        }
        // SAFETY: the driver writes one address.
        check(unsafe { cuda::cuMemAlloc_v2(&mut copy, bytes) }, "allocating a copy of an array")?;
        let copied = Copied(Some((copy, context.addr())));
        // SAFETY: the caller of the interface guarantees the array's length; the copy has it too.
        let code = unsafe { cuda::cuMemcpyDtoDAsync_v2(copy, address, bytes, stream) };
        check(code, "copying an array")?;
        Ok(copied)
    }

    fn address(&self) -> u64 {
        self.0.map_or(0, |(address, _)| address)
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        let Some((address, context)) = self.0 else { return };
        let (context, mut before) = (context as cuda::CUcontext, std::ptr::null_mut());
        // SAFETY: the primary context outlives the process's use of the GPU; a failed call frees
        // nothing. Freeing waits for the work that uses the memory.
        unsafe {
            let _ = cuda::cuCtxPushCurrent_v2(context);
            let _ = cuda::cuMemFree_v2(address);
            let _ = cuda::cuCtxPopCurrent_v2(&mut before);
        }
    }
}

impl Arrays {
    /// Takes the arrays of a caller, or copies them.
    ///
    /// # Safety
    /// The addresses are on one GPU and have the lengths that the descriptor says; borrowed arrays
    /// stay valid and unchanged as long as this and its operators exist.
    pub unsafe fn new(csr: &EllectCsr, form: &Form) -> Outcome<Self> {
        if form.wide_columns {
            return Err(Failure::argument(
                "col_idx_type is ELLECT_I64; on a GPU it must be ELLECT_I32: convert the columns",
            ));
        }
        let nnz = count(csr.nnz, "nnz")?;
        let stream: cuda::CUstream = csr.stream.cast();
        let addresses = [csr.row_ptr, csr.col_idx, csr.values].map(|at| at.addr() as u64);
        let offset_bytes = if form.wide_offsets { 8 } else { 4 };
        let counts = [form.nrows.saturating_add(1), nnz, nnz];
        let widths = [offset_bytes, 4, form.precision.bytes()];
        let names = ["row_ptr", "col_idx", "values"];
        let mut owned = <[Copied; 3]>::default();
        for i in 0..3 {
            if addresses[i] == 0 && counts[i] > 0 {
                return Err(Failure::null(names[i]));
            }
            if form.copy {
                owned[i] = Copied::of(addresses[i], counts[i].saturating_mul(widths[i]), stream)?;
            }
        }
        let copies = [0, 1, 2].map(|i: usize| owned[i].address());
        if form.copy {
            finish(stream)?;
        }
        Ok(Arrays {
            matrix: Matrix { nrows: form.nrows, ncols: form.ncols, nnz, wide: form.wide_offsets },
            addresses: if form.copy { copies } else { addresses },
            trusted: csr.check == ELLECT_TRUST,
            stream,
            owned: Arc::new(owned),
        })
    }

    /// Returns the arrays for the tuner's GPU, once they are written.
    fn there<T: Scalar>(&self, tuner: &Tuner) -> Outcome<DeviceCsr<T>> {
        let gpu = tuner.backend().gpu()?;
        gpu.make_current()?;
        finish(self.stream)?;
        // SAFETY: the stream has finished writing the arrays. The caller of the interface guarantees
        // that they have these lengths and stay as they are, and that they are a valid matrix unless
        // it is checked.
        Ok(unsafe { DeviceCsr::from_raw(self.matrix, self.addresses) })
    }

    /// Copies the matrix to the host and checks it.
    pub fn download<T: Scalar>(&self, tuner: &Tuner) -> Outcome<Csr<T>> {
        Ok(self.there(tuner)?.to_csr(tuner.backend().gpu()?)?)
    }

    /// Prepares the matrix on the tuner's GPU.
    pub fn prepare<T: Scalar>(
        &self,
        tuner: &Tuner,
        workload: &Workload,
    ) -> Outcome<PreparedOperator<T>> {
        if !self.trusted {
            self.download::<T>(tuner)?;
        }
        Ok(tuner.prepare_on_gpu(&Arc::new(self.there(tuner)?), workload)?)
    }
}

/// Waits for the work on a stream.
fn finish(stream: cuda::CUstream) -> Outcome<()> {
    // SAFETY: callers pass a stream of the current context; NULL is the legacy default stream.
    check(unsafe { cuda::cuStreamSynchronize(stream) }, "waiting for a stream")
}

fn check(code: cuda::CUresult, what: &str) -> Outcome<()> {
    let fault = match code {
        cuda::CUresult::CUDA_SUCCESS => return Ok(()),
        cuda::CUresult::CUDA_ERROR_OUT_OF_MEMORY => DeviceFault::OutOfMemory,
        _ => DeviceFault::Failed,
    };
    Err(Error::device(fault, format!("{what}: CUDA error {}", code as u32)).into())
}

/// Keeps the launches of one product together, and the copied arrays of its matrix alive.
pub struct Turn {
    queueing: Mutex<()>,
    _owned: Option<Arc<[Copied; 3]>>,
}

impl Turn {
    pub fn of(matrix: &EllectMatrix) -> Self {
        let owned = matrix.on_gpu().map(|arrays| Arc::clone(&arrays.owned));
        Turn { queueing: Mutex::new(()), _owned: owned }
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.queueing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the products that were queued, and lets none be queued while the guard lives; `None`
    /// for an operator on the host.
    pub fn alone(&self, prepared: &Prepared) -> Outcome<Option<MutexGuard<'_, ()>>> {
        if each!(prepared, operator => operator.on_device().is_none()) {
            return Ok(None);
        }
        let turn = self.lock();
        self.settle(prepared)?;
        Ok(Some(turn))
    }

    /// Waits for the products that were queued.
    pub fn settle(&self, prepared: &Prepared) -> Outcome<()> {
        let gpu = each!(prepared, operator => operator.on_device().map(GpuOperator::gpu));
        let Some(gpu) = gpu else { return Ok(()) };
        gpu.make_current()?;
        // SAFETY: the call has no arguments.
        check(unsafe { cuda::cuCtxSynchronize() }, "waiting for the GPU")
    }

    /// Queues a product with the matrix or its transpose.
    ///
    /// # Safety
    /// As `ellect_apply_device`.
    pub unsafe fn queue(
        &self,
        prepared: &Prepared,
        transposed: bool,
        x: (f64, *const c_void, i64),
        y: (f64, *mut c_void, i64),
        stream: *mut c_void,
    ) -> Outcome<()> {
        let _turn = self.lock();
        // SAFETY: by this function's own contract; the lock keeps the launches together.
        each!(prepared, operator => unsafe {
            launch(operator.direction(transposed)?, x, y, stream.cast())
        })
    }

    /// Queues a product, and what is computed of its result.
    ///
    /// # Safety
    /// As `ellect_apply_fused_device`.
    pub unsafe fn queue_fused(
        &self,
        prepared: &Prepared,
        x: (f64, *const c_void, i64),
        y: (f64, *mut c_void, i64),
        fused: &EllectFused,
        stream: *mut c_void,
    ) -> Outcome<()> {
        let _turn = self.lock();
        // SAFETY: by this function's own contract; the lock keeps the launches together.
        each!(prepared, operator => unsafe {
            launch_fused(operator.direction(fused.transposed != 0)?, x, y, fused, stream.cast())
        })
    }
}

/// # Safety
/// As `ellect_apply_device`; one thread at a time.
unsafe fn launch<T: Scalar>(
    operator: &PreparedOperator<T>,
    (alpha, x, x_len): (f64, *const c_void, i64),
    (beta, y, y_len): (f64, *mut c_void, i64),
    stream: cuda::CUstream,
) -> Outcome<()> {
    let placed = operator.on_device().ok_or_else(on_host)?;
    check_vectors(operator, &[("x", x.addr(), x_len), ("y", y.addr(), y_len)])?;
    placed.gpu().make_current()?;
    let (alpha, beta) = (T::from_f64(alpha), T::from_f64(beta));
    // SAFETY: lengths were checked; the rest by this function's own contract.
    unsafe {
        placed.operator().apply_raw(alpha, x.addr() as u64, beta, y.addr() as u64, stream)?;
    }
    Ok(())
}

/// # Safety
/// As `ellect_apply_fused_device`; one thread at a time.
unsafe fn launch_fused<T: Scalar>(
    operator: &PreparedOperator<T>,
    (alpha, x, x_len): (f64, *const c_void, i64),
    (beta, y, y_len): (f64, *mut c_void, i64),
    fused: &EllectFused,
    stream: cuda::CUstream,
) -> Outcome<()> {
    let placed = operator.on_device().ok_or_else(on_host)?;
    let address = |at: usize| at as u64;
    let (alpha, beta, gamma) = (T::from_f64(alpha), T::from_f64(beta), T::from_f64(fused.gamma));
    // SAFETY: lengths are checked; the rest by this function's own contract.
    unsafe {
        check_vectors(operator, &fused.vectors((x.addr(), x_len), (y.addr(), y_len))?)?;
        let with = fused.list(address(fused.z.addr()))?;
        let results = Some(address(fused.results.addr()));
        let add = (!fused.w.is_null()).then(|| (gamma, address(fused.w.addr())));
        placed.ready_dots()?;
        let (x, y) = (address(x.addr()), address(y.addr()));
        Ok(placed.apply_fused_raw(
            alpha,
            x,
            beta,
            y,
            Fused { with: &with, results, add },
            stream,
        )?)
    }
}

/// Checks names, addresses and lengths of vectors on a GPU.
fn check_vectors<T: Scalar>(operator: &PreparedOperator<T>, vectors: &[Named]) -> Outcome<()> {
    for &(what, at, len) in vectors {
        let got = count(len, format_args!("the length of {what}"))?;
        let needed = match what {
            "x" => operator.ncols(),
            "results" => got,
            _ => operator.nrows(),
        };
        if got != needed {
            return Err(Error::Shape { what, got, needed }.into());
        }
        if at == 0 && needed > 0 {
            return Err(Failure::null(what));
        }
        if !at.is_multiple_of(align_of::<T>()) {
            let text = "its address must be a multiple of the size of a value";
            return Err(Failure::argument(format!("{what} is at {at:#x}; {text}")));
        }
    }
    check_apart(vectors, size_of::<T>())
}

fn on_host() -> Failure {
    Failure::argument(
        "the operator is on the host; call ellect_apply, or prepare with a tuner of \"cuda:0\"",
    )
}

/// Takes values at an address on the operator's GPU.
///
/// # Safety
/// As `ellect_update_values_device`.
pub unsafe fn update(
    prepared: &mut Prepared,
    values: *const c_void,
    len: i64,
    stream: *mut c_void,
) -> Outcome<()> {
    let got = count(len, "count")?;
    each!(prepared, operator => {
        let needed = operator.nnz();
        let placed = operator.on_device_mut().ok_or_else(on_host)?;
        if got != needed {
            let what = format!("{got} values for {needed} entries");
            return Err(Error::PatternChanged { what }.into());
        }
        if values.is_null() && needed > 0 {
            return Err(Failure::null("values"));
        }
        placed.gpu().make_current()?;
        finish(stream.cast())?;
        // SAFETY: by this function's own contract; the stream has finished writing the values.
        Ok(unsafe { placed.set_device_values(values.addr() as u64) }?)
    })
}
