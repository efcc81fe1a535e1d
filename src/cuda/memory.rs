//! Device memory in the order of a stream: taking and giving back cost no synchronisation, and what
//! was given back is kept for the next conversion.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use cust::context::{Context, CurrentContext};
use cust::stream::Stream;
use cust::sys as cuda;

use super::{check, failed};
use crate::error::{DeviceFault, Error, Result};
use crate::scalar::Scalar;

/// A GPU's stream and its context, which live as long as what was made in them.
pub(super) struct Queue {
    stream: Stream,
    context: Context,
}

impl Queue {
    /// Of a stream that was made in this context.
    pub fn new(stream: Stream, context: Context) -> Self {
        Queue { stream, context }
    }

    /// Makes the context the calling thread's current one.
    ///
    /// # Errors
    /// [`Error::Device`] from the driver.
    pub fn make_current(&self) -> Result<()> {
        CurrentContext::set_current(&self.context).map_err(failed("making the context current"))
    }
}

impl Deref for Queue {
    type Target = Stream;

    fn deref(&self) -> &Stream {
        &self.stream
    }
}

/// Bytes of device memory, given back when this is dropped.
///
/// What works with it must have been queued on the GPU's own stream, or have ended, by then.
pub(super) struct Memory {
    address: cuda::CUdeviceptr,
    bytes: usize,
    queue: Arc<Queue>,
}

impl Memory {
    /// Takes memory; what it holds at first is unknown.
    ///
    /// # Errors
    /// [`Error::Device`] where there is not enough.
    pub fn new(bytes: u64, queue: &Arc<Queue>) -> Result<Self> {
        queue.make_current()?;
        let bytes = usize::try_from(bytes).map_err(|_| {
            let what = format!("{bytes} bytes are more than a device has");
            Error::device(DeviceFault::OutOfMemory, what)
        })?;
        let mut memory = Memory { address: 0, bytes, queue: Arc::clone(queue) };
        // SAFETY: the driver writes one address. Kernels take null of empty arrays for absent ones,
        // so that none is empty.
        let code =
            unsafe { cuda::cuMemAllocAsync(&mut memory.address, bytes.max(16), queue.as_inner()) };
        check(code, &format!("taking {bytes} bytes of device memory"))?;
        Ok(memory)
    }

    /// Takes memory that holds zeros.
    ///
    /// # Errors
    /// As [`Memory::new`].
    pub fn zeros(bytes: u64, queue: &Arc<Queue>) -> Result<Self> {
        let memory = Memory::new(bytes, queue)?;
        memory.clear(memory.bytes)?;
        Ok(memory)
    }

    /// Queues that its first bytes become zeros.
    ///
    /// # Errors
    /// [`Error::Device`] by the device.
    ///
    /// # Panics
    /// If they are more than it has.
    pub fn clear(&self, bytes: usize) -> Result<()> {
        self.clear_on(bytes, self.queue.as_inner())
    }

    /// The same on another stream, which does not take over before what is queued on the GPU's own.
    ///
    /// # Errors
    /// As [`Memory::clear`].
    ///
    /// # Panics
    /// As [`Memory::clear`].
    pub fn clear_on(&self, bytes: usize, stream: cuda::CUstream) -> Result<()> {
        assert!(bytes <= self.bytes, "{bytes} bytes of {}", self.bytes);
        self.queue.make_current()?;
        // SAFETY: the memory has so many bytes.
        let code = unsafe { cuda::cuMemsetD8Async(self.address, 0, bytes, stream) };
        check(code, "clearing device memory")
    }

    /// Takes memory that holds these bytes.
    ///
    /// # Errors
    /// As [`Memory::new`].
    pub fn of(host: &[u8], queue: &Arc<Queue>) -> Result<Self> {
        let memory = Memory::new(host.len() as u64, queue)?;
        memory.write(host)?;
        Ok(memory)
    }

    /// Copies these bytes to its start and waits for that.
    ///
    /// # Errors
    /// [`Error::Device`] where the copy fails.
    ///
    /// # Panics
    /// If they are more than it has.
    pub fn write(&self, host: &[u8]) -> Result<()> {
        assert!(host.len() <= self.bytes, "{} bytes into {}", host.len(), self.bytes);
        self.queue.make_current()?;
        let stream = self.queue.as_inner();
        // SAFETY: both sides have so many bytes, and the host's stay until the stream is waited for.
        unsafe {
            let code =
                cuda::cuMemcpyHtoDAsync_v2(self.address, host.as_ptr().cast(), host.len(), stream);
            check(code, "copying to the device")?;
            check(cuda::cuStreamSynchronize(stream), "copying to the device")
        }
    }

    /// Copies its start to the host, after what was queued before on the stream.
    ///
    /// # Errors
    /// [`Error::Device`] where the copy fails or a kernel faulted.
    ///
    /// # Panics
    /// If more bytes are wanted than it has.
    pub fn read(&self, host: &mut [u8]) -> Result<()> {
        assert!(host.len() <= self.bytes, "{} bytes of {}", host.len(), self.bytes);
        read(self.address, host, &self.queue)
    }

    /// Its address.
    pub fn address(&self) -> cuda::CUdeviceptr {
        self.address
    }

    /// Forgets all but its first bytes, which it goes on to take.
    ///
    /// # Panics
    /// If they are more than it has.
    pub fn trim(&mut self, bytes: u64) {
        assert!(bytes <= self.bytes(), "{bytes} bytes of {}", self.bytes);
        self.bytes = bytes as usize;
    }

    /// Its bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }
}

/// Copies bytes from a device address to the host, after what was queued before on the stream.
pub(super) fn read(address: cuda::CUdeviceptr, host: &mut [u8], queue: &Queue) -> Result<()> {
    queue.make_current()?;
    let stream = queue.as_inner();
    // SAFETY: callers own so many bytes at the address; the host's stay until the stream has been
    // waited for.
    unsafe {
        let code =
            cuda::cuMemcpyDtoHAsync_v2(host.as_mut_ptr().cast(), address, host.len(), stream);
        check(code, "copying from the device")?;
        check(cuda::cuStreamSynchronize(stream), "a kernel")
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // Where the context cannot be made current, it and its memory are gone.
        if self.address != 0 && self.queue.make_current().is_ok() {
            // SAFETY: it was taken once and is given back once, behind the work of the stream, which
            // this keeps alive.
            unsafe { cuda::cuMemFreeAsync(self.address, self.queue.as_inner()) };
        }
    }
}

/// A vector on a GPU.
pub struct Vector<T> {
    memory: Memory,
    len: usize,
    scalar: PhantomData<T>,
}

impl<T> std::fmt::Debug for Vector<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vector").field("len", &self.len).finish_non_exhaustive()
    }
}

impl<T: Scalar> Vector<T> {
    pub(super) fn of(host: &[T], queue: &Arc<Queue>) -> Result<Self> {
        let memory = Memory::of(bytemuck::cast_slice(host), queue)?;
        Ok(Vector { memory, len: host.len(), scalar: PhantomData })
    }

    pub(super) fn zeros(len: usize, queue: &Arc<Queue>) -> Result<Self> {
        let memory = Memory::zeros((len * size_of::<T>()) as u64, queue)?;
        // Other streams find it cleared.
        queue.synchronize().map_err(failed("clearing device memory"))?;
        Ok(Vector { memory, len, scalar: PhantomData })
    }

    /// Its address, for products that are queued and for other libraries.
    pub fn address(&self) -> cuda::CUdeviceptr {
        self.memory.address()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies new elements in.
    ///
    /// # Errors
    /// [`Error::Shape`] unless there are as many; [`Error::Device`] where the copy fails.
    pub fn write(&mut self, host: &[T]) -> Result<()> {
        self.check_len(host.len())?;
        self.memory.write(bytemuck::cast_slice(host))
    }

    /// Copies its elements out, after the work that was queued on the GPU's stream.
    ///
    /// # Errors
    /// As [`Vector::write`].
    pub fn read(&self, host: &mut [T]) -> Result<()> {
        self.check_len(host.len())?;
        self.memory.read(bytemuck::cast_slice_mut(host))
    }

    fn check_len(&self, got: usize) -> Result<()> {
        if got == self.len {
            return Ok(());
        }
        Err(Error::Shape { what: "a vector", got, needed: self.len })
    }
}
