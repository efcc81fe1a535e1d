//! Device memory allocated in stream order: allocating and freeing need no synchronisation, and the
//! driver keeps freed memory for the next conversion.

use std::ops::Deref;
use std::sync::Arc;

use cust::context::{Context, CurrentContext};
use cust::stream::Stream;
use cust::sys as cuda;

use super::{check, failed};
use crate::error::{DeviceFault, Error, Result};

/// A GPU's stream and context, which live as long as any object created in them.
pub(super) struct Queue {
    stream: Stream,
    context: Context,
    /// Index of the GPU.
    index: u32,
}

impl Queue {
    /// Wraps a stream that was created in this context of the GPU `index`.
    pub fn new(stream: Stream, context: Context, index: u32) -> Self {
        Queue { stream, context, index }
    }

    /// Returns the index of the GPU.
    pub fn index(&self) -> u32 {
        self.index
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

/// A block of device memory: an allocation, or a part of one, which is freed with its last part.
///
/// By then, all work that uses it must have ended or be queued on the stream on which it is freed,
/// which is the same for all parts.
pub(super) struct Memory {
    address: cuda::CUdeviceptr,
    bytes: usize,
    /// Address of the whole allocation, shared by its parts; taken when this is dropped.
    whole: Option<Arc<cuda::CUdeviceptr>>,
    queue: Arc<Queue>,
}

/// Alignment of the parts of an allocation, in bytes.
pub(super) const ALIGNMENT: u64 = 256;

impl Memory {
    /// Allocates memory with undefined contents.
    ///
    /// # Errors
    /// [`Error::Device`] if memory runs out.
    pub fn new(bytes: u64, queue: &Arc<Queue>) -> Result<Self> {
        queue.make_current()?;
        let bytes = usize::try_from(bytes).map_err(|_| {
            let what = format!("cannot allocate {bytes} bytes: no device has that much memory");
            Error::device(DeviceFault::OutOfMemory, what)
        })?;
        let mut address = 0;
        // SAFETY: the driver writes one address. At least 16 bytes are allocated, because kernels
        // take a null pointer for an absent array, so an empty array must not be null.
        let code = unsafe { cuda::cuMemAllocAsync(&mut address, bytes.max(16), queue.as_inner()) };
        check(code, &format!("taking {bytes} bytes of device memory"))?;
        Ok(Memory { address, bytes, whole: Some(Arc::new(address)), queue: Arc::clone(queue) })
    }

    /// Allocates several blocks at once, with undefined contents.
    ///
    /// # Errors
    /// As [`Memory::new`].
    pub fn parts(bytes: &[u64], queue: &Arc<Queue>) -> Result<Vec<Self>> {
        let mut end = 0u64;
        let mut starts = Vec::with_capacity(bytes.len());
        for &bytes in bytes {
            starts.push(end);
            end = end.saturating_add(bytes.max(1)).next_multiple_of(ALIGNMENT);
        }
        let whole = Memory::new(end, queue)?;
        let part = |(start, &bytes): (u64, &u64)| Memory {
            address: whole.address + start,
            bytes: bytes as usize,
            whole: whole.whole.clone(),
            queue: Arc::clone(queue),
        };
        Ok(starts.into_iter().zip(bytes).map(part).collect())
    }

    /// Allocates memory filled with zeros.
    ///
    /// # Errors
    /// As [`Memory::new`].
    pub fn zeros(bytes: u64, queue: &Arc<Queue>) -> Result<Self> {
        let memory = Memory::new(bytes, queue)?;
        memory.clear(memory.bytes)?;
        Ok(memory)
    }

    /// Queues clearing the first `bytes` bytes to zero.
    ///
    /// # Errors
    /// [`Error::Device`] from the driver.
    ///
    /// # Panics
    /// If the memory is smaller.
    pub fn clear(&self, bytes: usize) -> Result<()> {
        self.clear_on(bytes, self.queue.as_inner())
    }

    /// Like [`Memory::clear`], but on `stream`, which does not wait for work on the GPU's own
    /// stream.
    ///
    /// # Errors
    /// As [`Memory::clear`].
    ///
    /// # Panics
    /// As [`Memory::clear`].
    pub fn clear_on(&self, bytes: usize, stream: cuda::CUstream) -> Result<()> {
        assert!(bytes <= self.bytes, "{bytes} bytes of {}", self.bytes);
        self.queue.make_current()?;
        // SAFETY: the memory has at least this many bytes.
        let code = unsafe { cuda::cuMemsetD8Async(self.address, 0, bytes, stream) };
        check(code, "clearing device memory")
    }

    /// Allocates memory and fills it with the bytes of `host`.
    ///
    /// # Errors
    /// As [`Memory::new`].
    pub fn of(host: &[u8], queue: &Arc<Queue>) -> Result<Self> {
        let memory = Memory::new(host.len() as u64, queue)?;
        memory.write(host)?;
        Ok(memory)
    }

    /// Copies `host` to the start of the memory and waits for the copy.
    ///
    /// # Errors
    /// [`Error::Device`] if the copy fails.
    ///
    /// # Panics
    /// If the memory is smaller than `host`.
    pub fn write(&self, host: &[u8]) -> Result<()> {
        assert!(host.len() <= self.bytes, "{} bytes into {}", host.len(), self.bytes);
        write(self.address, host, &self.queue)
    }

    /// Fills `host` from the start of the memory, after all work queued on the stream; waits.
    ///
    /// # Errors
    /// [`Error::Device`] if the copy fails or a kernel faulted.
    ///
    /// # Panics
    /// If the memory is smaller than `host`.
    pub fn read(&self, host: &mut [u8]) -> Result<()> {
        assert!(host.len() <= self.bytes, "{} bytes of {}", host.len(), self.bytes);
        read(self.address, host, &self.queue)
    }

    /// Lets the memory be used and freed in the order of another stream of the same GPU.
    ///
    /// All work that uses it on the former stream must have ended.
    pub fn move_to(&mut self, queue: &Arc<Queue>) {
        self.queue = Arc::clone(queue);
    }

    /// Returns the stream on which the memory is freed.
    pub fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// Returns the address of the memory.
    pub fn address(&self) -> cuda::CUdeviceptr {
        self.address
    }

    /// Reduces the size to the first `bytes` bytes; the rest stays allocated but is not counted.
    ///
    /// # Panics
    /// If the memory is smaller.
    pub fn trim(&mut self, bytes: u64) {
        assert!(bytes <= self.bytes(), "{bytes} bytes of {}", self.bytes);
        self.bytes = bytes as usize;
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }
}

/// Copies `host` to a device address and waits for the copy.
pub(super) fn write(address: cuda::CUdeviceptr, host: &[u8], queue: &Queue) -> Result<()> {
    queue.make_current()?;
    let stream = queue.as_inner();
    // SAFETY: callers own this many bytes at the address; the host's bytes live until the stream is
    // synchronised.
    unsafe {
        let code = cuda::cuMemcpyHtoDAsync_v2(address, host.as_ptr().cast(), host.len(), stream);
        check(code, "copying to the device")?;
        check(cuda::cuStreamSynchronize(stream), "copying to the device")
    }
}

/// Fills `host` from a device address, after all work queued on the stream; waits.
pub(super) fn read(address: cuda::CUdeviceptr, host: &mut [u8], queue: &Queue) -> Result<()> {
    queue.make_current()?;
    let stream = queue.as_inner();
    // SAFETY: callers own this many bytes at the address; the host's bytes live until the stream is
    // synchronised.
    unsafe {
        let code =
            cuda::cuMemcpyDtoHAsync_v2(host.as_mut_ptr().cast(), address, host.len(), stream);
        check(code, "copying from the device")?;
        check(cuda::cuStreamSynchronize(stream), "a kernel")
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // If the context cannot be made current, it and its memory no longer exist.
        let last = self.whole.take().and_then(Arc::into_inner);
        if let Some(address) = last
            && self.queue.make_current().is_ok()
        {
            // SAFETY: the memory was allocated once and is freed once, by its last part, in order
            // after the work on the stream, which `self` keeps alive.
            unsafe { cuda::cuMemFreeAsync(address, self.queue.as_inner()) };
        }
    }
}
