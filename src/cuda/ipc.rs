//! Memory of a GPU that other processes of the same host read and write (CUDA driver API,
//! inter-process communication). Only memory of `cuMemAlloc` can be shared so, not that of pools.

use std::sync::Arc;

use cust::sys as cuda;

use super::check;
use super::memory::{Queue, read, write};
use crate::error::{DeviceFault, Error, Result};

/// Bytes of a handle.
pub(super) const HANDLE: usize = 64;

/// Least size of an allocation. A handle opens all memory that the driver took for its allocation: 2
/// MiB, of which a smaller allocation may be a part that is shared with others.
const LEAST: u64 = 2 << 20;

/// Memory that other processes may open; filled with zeros at first.
///
/// Others must close it before it is freed.
pub(super) struct Exported {
    address: cuda::CUdeviceptr,
    queue: Arc<Queue>,
}

impl Exported {
    /// Allocates memory and waits until it is filled with zeros.
    ///
    /// # Errors
    /// [`Error::Device`] if memory runs out.
    pub fn zeros(bytes: u64, queue: &Arc<Queue>) -> Result<Self> {
        queue.make_current()?;
        let whole = bytes.max(1).checked_next_multiple_of(LEAST).unwrap_or(u64::MAX) as usize;
        let mut address = 0;
        // SAFETY: the driver writes one address.
        let code = unsafe { cuda::cuMemAlloc_v2(&mut address, whole) };
        check(code, &format!("taking {bytes} bytes of device memory for other processes"))?;
        let memory = Exported { address, queue: Arc::clone(queue) };
        memory.clear(bytes as usize)?;
        Ok(memory)
    }

    /// Fills the first `bytes` bytes with zeros, after all queued work; waits.
    ///
    /// # Errors
    /// [`Error::Device`] from the driver.
    pub fn clear(&self, bytes: usize) -> Result<()> {
        self.queue.make_current()?;
        let stream = self.queue.as_inner();
        // SAFETY: callers clear at most the bytes that they asked for.
        unsafe {
            check(cuda::cuMemsetD8Async(self.address, 0, bytes, stream), "clearing device memory")?;
            check(cuda::cuStreamSynchronize(stream), "clearing device memory")
        }
    }

    /// Returns the bytes by which another process opens the memory.
    ///
    /// # Errors
    /// [`Error::Device`] if this machine cannot share memory between processes.
    pub fn handle(&self) -> Result<[u8; HANDLE]> {
        self.queue.make_current()?;
        let mut handle = cuda::CUipcMemHandle_st { reserved: [0; HANDLE] };
        // SAFETY: the driver writes one handle of memory that it allocated.
        let code = unsafe { cuda::cuIpcGetMemHandle(&mut handle, self.address) };
        check(code, "asking for a handle of device memory for other processes")?;
        Ok(handle.reserved.map(|byte| byte as u8))
    }

    /// Returns the address of the memory.
    pub fn address(&self) -> cuda::CUdeviceptr {
        self.address
    }

    /// Copies bytes from `offset` to the host, after all queued work; waits.
    ///
    /// # Errors
    /// [`Error::Device`] from the driver.
    pub fn read(&self, offset: u64, host: &mut [u8]) -> Result<()> {
        read(self.address + offset, host, &self.queue)
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        if self.queue.make_current().is_ok() {
            // SAFETY: the memory was allocated once and is freed once.
            unsafe { cuda::cuMemFree_v2(self.address) };
        }
    }
}

/// Memory of another process, opened on this process's GPU; closed when dropped.
pub(super) struct Opened {
    address: cuda::CUdeviceptr,
    queue: Arc<Queue>,
}

impl Opened {
    /// Opens the memory of a handle that another process sent.
    ///
    /// # Errors
    /// [`Error::Device`] if the handle is not one of a process of this host, or if the GPUs cannot
    /// reach each other's memory.
    pub fn new(handle: &[u8], queue: &Arc<Queue>) -> Result<Self> {
        queue.make_current()?;
        let Ok(bytes) = <[u8; HANDLE]>::try_from(handle) else {
            let what =
                format!("a handle of device memory has {} bytes, not {HANDLE}", handle.len());
            return Err(Error::device(DeviceFault::Failed, what));
        };
        let handle = cuda::CUipcMemHandle_st { reserved: bytes.map(|byte| byte as _) };
        let flags = cuda::CUipcMem_flags_enum::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;
        let mut address = 0;
        // SAFETY: the driver checks the handle and writes one address.
        let code = unsafe { cuda::cuIpcOpenMemHandle_v2(&mut address, handle, flags) };
        check(code, "opening device memory of another process")?;
        Ok(Opened { address, queue: Arc::clone(queue) })
    }

    /// Returns the address of the memory in this process.
    pub fn address(&self) -> cuda::CUdeviceptr {
        self.address
    }

    /// Copies bytes to `offset`; waits.
    ///
    /// # Errors
    /// [`Error::Device`] from the driver.
    pub fn write(&self, offset: u64, host: &[u8]) -> Result<()> {
        write(self.address + offset, host, &self.queue)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if self.queue.make_current().is_ok() {
            // SAFETY: the memory was opened once and is closed once; work that used it has ended, as
            // owners wait for their stream before they drop it.
            unsafe { cuda::cuIpcCloseMemHandle(self.address) };
        }
    }
}
