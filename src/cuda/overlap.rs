//! Programmatic dependent launch (CUDA programming guide): the start of a kernel overlaps with the
//! end of the previous work in the stream. The kernel's blocks become resident while the last
//! previous blocks still run, and wait for them (`await_previous` in common.cuh). This saves 0.25
//! us for each product, in a stream and in a graph.

use std::ffi::c_void;

use cust::device::DeviceAttribute;
use cust::sys as cuda;

/// Lowest major compute capability that supports it.
const CAPABILITY: i32 = 9;

/// Lowest driver version that captures such launches in a graph: CUDA 12.3.
const DRIVER: i32 = 12_030;

/// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`.
const PROGRAMMATIC_STREAM_SERIALIZATION: u32 = 6;

/// `CUlaunchAttribute`.
#[repr(C)]
struct Attribute {
    id: u32,
    padding: u32,
    /// The union: 64 bytes, of which only the first word is used.
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

/// The driver's function for launches with attributes.
#[derive(Clone, Copy)]
pub(super) struct ProgrammaticLaunch(LaunchKernelEx);

impl ProgrammaticLaunch {
    /// Finds the function; `None` if the GPU or the driver does not support such launches.
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
        Some(ProgrammaticLaunch(unsafe {
            std::mem::transmute::<extern "C" fn() -> i32, LaunchKernelEx>(function)
        }))
    }

    /// Queues a kernel whose start may overlap with the previous work.
    ///
    /// # Safety
    /// As for `cuLaunchKernel`. In addition, the kernel must wait before it accesses anything that
    /// previous work in the stream reads or writes.
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
