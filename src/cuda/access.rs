//! Access of GPUs to each other's memory.

use std::sync::Arc;

use cust::sys as cuda;

use super::{Gpu, check, handle};
use crate::error::{DeviceFault, Error, Result};

/// Opens the memory pool of each GPU to all others.
///
/// # Errors
/// [`Error::Device`] with the pair of GPUs of which one cannot reach the other's memory.
pub(super) fn open_memory(gpus: &[Arc<Gpu>]) -> Result<()> {
    for gpu in gpus {
        for other in gpus.iter().filter(|other| other.index != gpu.index) {
            let [own, peer] = [gpu, other].map(|gpu| device(gpu.index));
            let (own, peer) = (own?, peer?);
            if !can_reach(own, peer)? {
                let [own, peer] = [gpu.index, other.index].map(handle);
                let what = format!(
                    "{own} cannot reach the memory of {peer}: use GPUs that NVLink or one PCIe \
                     switch connects; a rank for each GPU, whose transport may be NCCL \
                     (sharded::Rank, sharded::Threads in one process); or apply_sharded, which \
                     copies through the host"
                );
                return Err(Error::device(DeviceFault::Unsupported, what));
            }
            give_access(peer, own)?;
        }
    }
    Ok(())
}

/// Tells whether a device reaches the memory of another one, or is that one.
///
/// # Errors
/// [`Error::Device`] from the driver.
pub(super) fn can_reach(own: cuda::CUdevice, other: cuda::CUdevice) -> Result<bool> {
    let mut can = 0;
    // SAFETY: the driver writes one number; both devices exist.
    let code = unsafe { cuda::cuDeviceCanAccessPeer(&mut can, own, other) };
    check(code, "asking for access between GPUs")?;
    Ok(can != 0 || own == other)
}

pub(super) fn device(index: u32) -> Result<cuda::CUdevice> {
    let mut device = 0;
    // SAFETY: the driver is initialised and writes one number.
    check(unsafe { cuda::cuDeviceGet(&mut device, index as i32) }, "finding a device")?;
    Ok(device)
}

/// Lets `user` read and write memory of `owner`'s pool, which all vectors are taken from.
fn give_access(owner: cuda::CUdevice, user: cuda::CUdevice) -> Result<()> {
    let mut pool = std::ptr::null_mut();
    let access = cuda::CUmemAccessDesc {
        location: cuda::CUmemLocation {
            type_: cuda::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
            id: user,
        },
        flags: cuda::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    // SAFETY: the driver writes a pool and reads one description.
    unsafe {
        check(cuda::cuDeviceGetDefaultMemPool(&mut pool, owner), "finding a memory pool")?;
        check(cuda::cuMemPoolSetAccess(pool, &access, 1), "opening a GPU's memory to another")
    }
}
