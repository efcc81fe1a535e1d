//! Matrices and vectors in the memory of a GPU, by their addresses.
#![allow(unsafe_code, reason = "arrays of other libraries are reached by their addresses")]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cust::sys as cuda;
use ellect::cuda::{DeviceCsr, Gpu, GpuOperator};
use ellect::dots::Fused;
use ellect::error::DeviceFault;
use ellect::format::Matrix;
use ellect::{Error, Precision, PreparedOperator, Result, Scalar, Tuner, Workload};

use crate::operator::{Prepared, each};

/// A CSR matrix on a GPU: addresses of row pointers, columns and values; numbers of rows, columns
/// and entries; and the stream that writes the arrays.
pub struct Arrays {
    pub addresses: [u64; 3],
    pub size: [usize; 3],
    pub wide: bool,
    pub precision: Precision,
    pub stream: u64,
}

/// Prepares a matrix on the tuner's GPU. The caller has checked the matrix, and keeps its arrays
/// unchanged as long as the operator exists.
///
/// # Errors
/// As [`Tuner::prepare_on_gpu`].
pub fn prepare(tuner: &Tuner, matrix: &Arrays, workload: &Workload) -> Result<Prepared> {
    match matrix.precision {
        Precision::F32 => prepare_as::<f32>(tuner, matrix, workload).map(Prepared::F32),
        Precision::F64 => prepare_as::<f64>(tuner, matrix, workload).map(Prepared::F64),
    }
}

fn prepare_as<T: Scalar>(
    tuner: &Tuner,
    arrays: &Arrays,
    workload: &Workload,
) -> Result<PreparedOperator<T>> {
    let gpu = tuner.backend().gpu()?;
    gpu.make_current()?;
    finish(arrays.stream)?;
    let [nrows, ncols, nnz] = arrays.size;
    let matrix = Matrix { nrows, ncols, nnz, wide: arrays.wide };
    // SAFETY: the stream has finished writing the arrays; the Python package has checked that they
    // are a valid matrix on this GPU, and keeps them as long as the operator.
    let csr = unsafe { DeviceCsr::<T>::from_raw(matrix, arrays.addresses) };
    tuner.prepare_on_gpu(&Arc::new(csr), workload)
}

/// A matrix on a GPU, of either precision.
pub enum Turned {
    F32(DeviceCsr<f32>),
    F64(DeviceCsr<f64>),
}

impl Turned {
    /// Makes the transpose of an operator's newest matrix on its GPU, and tells whether it is the matrix
    /// itself. `None` if the GPU does not hold the matrix.
    ///
    /// # Errors
    /// As [`GpuOperator::transpose`].
    pub fn of(prepared: &Prepared) -> Result<Option<(Self, bool)>> {
        let made = match prepared {
            Prepared::F32(operator) => {
                turn(operator)?.map(|(csr, is_same)| (Turned::F32(csr), is_same))
            }
            Prepared::F64(operator) => {
                turn(operator)?.map(|(csr, is_same)| (Turned::F64(csr), is_same))
            }
        };
        Ok(made)
    }

    /// Gives the values to an operator of a matrix with the same pattern.
    ///
    /// # Errors
    /// As [`update`].
    pub fn update(&self, old: &mut Prepared) -> Result<()> {
        let [_, _, values] = match self {
            Turned::F32(csr) => csr.addresses(),
            Turned::F64(csr) => csr.addresses(),
        };
        // No work on the default stream writes the values.
        update(old, values, 0)
    }

    /// Prepares the matrix.
    ///
    /// # Errors
    /// As [`Tuner::prepare_on_gpu`].
    pub fn prepare(self, tuner: &Tuner, workload: &Workload) -> Result<Prepared> {
        Ok(match self {
            Turned::F32(csr) => tuner.prepare_on_gpu(&Arc::new(csr), workload)?.into(),
            Turned::F64(csr) => tuner.prepare_on_gpu(&Arc::new(csr), workload)?.into(),
        })
    }
}

fn turn<T: Scalar>(operator: &PreparedOperator<T>) -> Result<Option<(DeviceCsr<T>, bool)>> {
    operator.on_device().map_or(Ok(None), GpuOperator::transpose)
}

/// Waits for the work on a stream.
fn finish(stream: u64) -> Result<()> {
    // SAFETY: callers pass a stream of the current context; 0, 1 and 2 are the default streams.
    check(unsafe { cuda::cuStreamSynchronize(stream as cuda::CUstream) }, "waiting for a stream")
}

fn check(code: cuda::CUresult, what: &str) -> Result<()> {
    match code {
        cuda::CUresult::CUDA_SUCCESS => Ok(()),
        code => {
            let what = format!("{what}: CUDA error {}", code as u32);
            Err(Error::device(DeviceFault::Failed, what))
        }
    }
}

/// Returns the index of the operator's GPU, if it is on one.
pub fn index(prepared: &Prepared) -> Option<u32> {
    let gpu = each!(prepared, operator => operator.on_device().map(GpuOperator::gpu))?;
    gpu.make_current().ok()?;
    let mut device = 0;
    // SAFETY: the driver writes one number, the ordinal of the current context's device.
    let code = unsafe { cuda::cuCtxGetDevice(&mut device) };
    (code == cuda::CUresult::CUDA_SUCCESS).then(|| u32::try_from(device).ok()).flatten()
}

/// Keeps products of one operator in order: they share its scratch memory.
///
/// Products on one stream follow each other. When the stream changes, the host waits once for the
/// products on the other one, unless the new stream is being captured in a graph.
#[derive(Default)]
pub struct Order(Mutex<Option<u64>>);

impl Order {
    /// Queues `columns` products on `stream`, for vectors that follow each other; `x` and `y` are
    /// addresses with the factors alpha and beta.
    ///
    /// # Errors
    /// [`Error::Device`] if a launch fails.
    pub fn queue(
        &self,
        prepared: &Prepared,
        x: (u64, f64),
        y: (u64, f64),
        stream: u64,
        columns: u64,
    ) -> Result<()> {
        each!(prepared, operator => {
            let placed = operator.on_device().ok_or_else(on_host)?;
            let _turn = self.turn(placed.gpu(), stream)?;
            launch(placed, x, y, stream, columns)
        })
    }

    /// Queues a product on `stream`, and what is computed of its result; vectors are addresses.
    ///
    /// # Errors
    /// [`Error::Argument`] for dot products that cannot be computed; [`Error::Device`] if a launch fails.
    pub fn queue_fused(
        &self,
        prepared: &Prepared,
        x: (u64, f64),
        y: (u64, f64),
        fused: Fused<'_, f64, u64, u64>,
        stream: u64,
    ) -> Result<()> {
        each!(prepared, operator => {
            let placed = operator.on_device().ok_or_else(on_host)?;
            let _turn = self.turn(placed.gpu(), stream)?;
            launch_fused(placed, x, y, fused, stream)
        })
    }

    /// Waits until a product may be queued on `stream`; others are not while the guard lives.
    fn turn(&self, gpu: &Gpu, stream: u64) -> Result<MutexGuard<'_, Option<u64>>> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gpu.make_current()?;
        if last.is_some_and(|last| last != stream) && !is_captured(stream)? {
            wait_for_all()?;
        }
        *last = Some(stream);
        Ok(last)
    }

    /// Waits for all queued products.
    ///
    /// # Errors
    /// [`Error::Device`] if one of them failed.
    pub fn settle(&self, prepared: &Prepared) -> Result<()> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.take().is_none() {
            return Ok(());
        }
        let gpu = each!(prepared, operator => operator.on_device().map(GpuOperator::gpu));
        gpu.map_or(Ok(()), |gpu: &Arc<Gpu>| gpu.make_current().and_then(|()| wait_for_all()))
    }
}

fn launch<T: Scalar>(
    placed: &GpuOperator<T>,
    (x, alpha): (u64, f64),
    (y, beta): (u64, f64),
    stream: u64,
    columns: u64,
) -> Result<()> {
    let (alpha, beta) = (T::from_f64(alpha), T::from_f64(beta));
    let (count, queue) = (columns as usize, stream as cuda::CUstream);
    if count > 1 && !is_captured(stream)? {
        placed.ready_many(count)?;
    }
    // SAFETY: the Python package has checked type, length, GPU and contiguity of the vectors, and that
    // they do not overlap; their owners free memory in the order of the stream. The caller holds
    // `Order`, which keeps products in order.
    unsafe { placed.apply_many_raw(count, alpha, x, beta, y, queue) }
}

fn launch_fused<T: Scalar>(
    placed: &GpuOperator<T>,
    (x, alpha): (u64, f64),
    (y, beta): (u64, f64),
    Fused { with, results, add }: Fused<'_, f64, u64, u64>,
    stream: u64,
) -> Result<()> {
    let (alpha, beta) = (T::from_f64(alpha), T::from_f64(beta));
    let add = add.map(|(gamma, w)| (T::from_f64(gamma), w));
    if !is_captured(stream)? {
        placed.ready_dots()?;
    }
    let fused = Fused { with, results, add };
    // SAFETY: as for `launch`.
    unsafe { placed.apply_fused_raw(alpha, x, beta, y, fused, stream as cuda::CUstream) }
}

/// Tells whether a graph captures the work on a stream.
fn is_captured(stream: u64) -> Result<bool> {
    let mut status = cuda::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: the driver writes one number; the stream belongs to the current context.
    let code = unsafe { cuda::cuStreamIsCapturing(stream as cuda::CUstream, &mut status) };
    check(code, "asking for the capture of a stream")?;
    Ok(status != cuda::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
}

fn wait_for_all() -> Result<()> {
    // SAFETY: the call has no arguments.
    check(unsafe { cuda::cuCtxSynchronize() }, "waiting for the GPU")
}

fn on_host() -> Error {
    Error::argument("the operator is on the host; prepare the matrix with device='cuda:0'")
}

/// Takes values at an address on the operator's GPU.
///
/// # Errors
/// As [`GpuOperator::set_device_values`].
pub fn update(prepared: &mut Prepared, values: u64, stream: u64) -> Result<()> {
    each!(prepared, operator => {
        let placed = operator.on_device_mut().ok_or_else(on_host)?;
        placed.gpu().make_current()?;
        finish(stream)?;
        // SAFETY: the Python package has checked type, length and GPU of the values, and the stream
        // has finished writing them.
        unsafe { placed.set_device_values(values) }
    })
}
