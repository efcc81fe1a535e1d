//! Launches whose start overlaps with the end of what is ahead in the stream (programmatic
//! dependent launch, CUDA programming guide): the kernel's blocks take their places while the last
//! ones ahead are still at work, and wait there (`await_previous` of common.cuh). It saves a
//! quarter of a microsecond a product, in a stream and in a graph.

use std::ffi::c_void;

use cust::device::DeviceAttribute;
use cust::sys as cuda;

/// The first compute capability that can do it.
const CAPABILITY: i32 = 9;

/// The first driver that captures such launches in a graph: CUDA 12.3.
const DRIVER: i32 = 12_030;

/// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`.
const PROGRAMMATIC_STREAM_SERIALIZATION: u32 = 6;

/// `CUlaunchAttribute`.
#[repr(C)]
struct Attribute {
    id: u32,
    padding: u32,
    /// The union's first word, and what is left of its 64 bytes.
    value: [u32; 16],
}

/// `CUlaunchConfig`.
#[repr(C)]
struct Config {
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    stream: cuda::CUstream,
    attributes: *const Attribute,
    count: u32,
}

type LaunchKernelEx = unsafe extern "C" fn(
    *const Config,
    cuda::CUfunction,
    *mut *mut c_void,
    *mut *mut c_void,
) -> cuda::CUresult;

/// The driver's function for such launches.
#[derive(Clone, Copy)]
pub(super) struct Overlap(LaunchKernelEx);

impl Overlap {
    /// `None` where the GPU or the driver cannot do it.
    pub fn find(device: cust::device::Device) -> Option<Self> {
        let capability = device.get_attribute(DeviceAttribute::ComputeCapabilityMajor).ok()?;
        let mut driver = 0;
        // SAFETY: the driver writes one number.
        let asked = unsafe { cuda::cuDriverGetVersion(&mut driver) };
        if asked != cuda::CUresult::CUDA_SUCCESS || capability < CAPABILITY || driver < DRIVER {
            return None;
        }
        let function = ellect_kernels::driver::find("cuLaunchKernelEx")?;
        // SAFETY: this is the function's signature in cuda.h.
        Some(Overlap(unsafe {
            std::mem::transmute::<extern "C" fn() -> i32, LaunchKernelEx>(function)
        }))
    }

    /// Queues a kernel.
    ///
    /// # Safety
    /// As for `cuLaunchKernel`; the kernel waits before it touches what work ahead of it in the
    /// stream reads or writes.
    pub unsafe fn launch(
        self,
        function: cuda::CUfunction,
        [grid, block, shared_bytes]: [u32; 3],
        stream: cuda::CUstream,
        parameters: *mut *mut c_void,
    ) -> cuda::CUresult {
        let mut value = [0; 16];
        value[0] = 1;
        let attribute = Attribute { id: PROGRAMMATIC_STREAM_SERIALIZATION, padding: 0, value };
        let config = Config {
            grid: [grid, 1, 1],
            block: [block, 1, 1],
            shared_bytes,
            stream,
            attributes: &attribute,
            count: 1,
        };
        // SAFETY: by this function's own contract; the configuration outlives the call.
        unsafe { (self.0)(&config, function, parameters, std::ptr::null_mut()) }
    }
}
