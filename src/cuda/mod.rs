//! The CUDA backend: uploads layouts and launches their kernels.
//!
//! It knows no format: a layout says what a GPU holds of it and launches
//! ([`OnDevice`](crate::format::OnDevice)), a format which steps convert a matrix on the GPU
//! ([`Builder`](crate::format::Builder)); this module does it. The driver is opened at run time, so the
//! program starts on machines without one.
//!
//! Nearly all `unsafe` code of the library is here, the rest where a GPU is measured
//! (`measure/gpu.rs`): each block says why it is sound.
#![allow(unsafe_code, reason = "the CUDA driver is a C library")]

mod convert;
mod csr;
mod cusparse;
mod features;
mod graph;
mod memory;
mod nvml;
mod operator;
mod overlap;
mod placed;
mod signatures;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cust::context::Context;
use cust::device::DeviceAttribute;
use cust::event::{Event, EventFlags};
use cust::memory::LockedBuffer;
use cust::module::Module;
use cust::stream::{Stream, StreamFlags};
use cust::sys as cuda;

pub use csr::DeviceCsr;
pub use cusparse::version as cusparse_version;
pub use graph::Graph;
pub use memory::Vector;
pub use operator::CudaOperator;
pub use placed::Placed;

use memory::Queue;

use crate::device::gpu::{self, DriverInfo};
use crate::device::{self, Device, State};
use crate::error::{DeviceFault, Error, Result};
use crate::format::{Arg, Launch, Layout};
use crate::scalar::Scalar;

/// One opened GPU: its primary context, a stream, and the modules loaded so far.
pub struct Gpu {
    index: u32,
    profile: Device,
    driver: String,
    monitor: Option<nvml::Monitor>,
    modules: Mutex<HashMap<&'static str, Arc<Kernels>>>,
    /// Where a kernel writes the numbers of a conversion for the host: page-locked.
    numbers: Mutex<LockedBuffer<u32>>,
    /// Memory for small temporaries of the next conversion.
    workspace: Mutex<Option<convert::Workspace>>,
    kept: Mutex<features::Kept>,
    overlap: Option<overlap::Overlap>,
    timing: Mutex<()>,
    queue: Arc<Queue>,
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // For what is given back after this: page-locked memory.
        let _ = self.make_current();
    }
}

/// The kernels of an image, loaded; unloaded in their own context.
struct Kernels {
    module: Module,
    queue: Arc<Queue>,
}

impl Drop for Kernels {
    fn drop(&mut self) {
        let _ = self.queue.make_current();
    }
}

impl std::fmt::Debug for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gpu").field("index", &self.index).finish_non_exhaustive()
    }
}

fn failed(what: &str) -> impl Fn(cust::error::CudaError) -> Error + '_ {
    // `Display` of this error asks the driver for a text and fails without one.
    move |error| {
        let fault = match error {
            cust::error::CudaError::OutOfMemory => DeviceFault::OutOfMemory,
            _ => DeviceFault::Failed,
        };
        Error::device(fault, format!("{what}: CUDA error {error:?}"))
    }
}

/// The launch of [`Gpu::fault`]: it scales a vector, whose address is that of no memory.
fn faulty() -> Launch {
    let args = vec![Arg::U32(256), Arg::Y, Arg::Beta];
    Launch::over("coo", "coo_scale_f64", 256, 256, args)
}

/// Opens the driver; tells why where there is none, or no GPU for it.
fn start() -> Result<std::result::Result<(), String>> {
    if let Err(why) = ellect_kernels::driver::load() {
        return Ok(Err(why.to_string()));
    }
    match cust::init(cust::CudaFlags::empty()) {
        Err(cust::error::CudaError::NoDevice) => Ok(Err("its driver finds no GPU".into())),
        started => started.map(Ok).map_err(failed("starting the CUDA driver")),
    }
}

/// The GPUs of this machine; none where there is no driver.
pub(crate) fn count() -> u32 {
    start()
        .ok()
        .and_then(std::result::Result::ok)
        .and_then(|()| cust::device::Device::num_devices().ok())
        .unwrap_or(0)
}

/// What a GPU is opened by.
pub(crate) fn handle(index: u32) -> String {
    format!("cuda:{index}")
}

/// The GPUs of this machine, as `cuda:N`, and their profiles.
pub(crate) fn all() -> Result<Vec<(String, Device)>> {
    let one = |index| {
        let handle = handle(index);
        let device = cust::device::Device::get_device(index);
        let device = device.map_err(failed(&format!("asking for {handle}")))?;
        Ok((handle, profile(device)?))
    };
    (0..count()).map(one).collect()
}

impl Gpu {
    /// Opens GPU `index` (`cuda:<index>`).
    ///
    /// # Errors
    /// [`Error::UnknownDevice`] where there is no driver or no such GPU; [`Error::Device`] by the
    /// driver.
    pub fn open(index: u32) -> Result<Self> {
        let known = || {
            let all = device::shipped_names().into_iter().chain((0..count()).map(handle));
            all.collect::<Vec<_>>()
        };
        start()?.map_err(|why| device::unknown(&handle(index), known(), why))?;
        if index >= count() {
            return Err(device::unknown(&handle(index), known(), ""));
        }
        let device = cust::device::Device::get_device(index)
            .map_err(failed(&format!("opening {}", handle(index))))?;
        let context = Context::new(device).map_err(failed("making a context"))?;
        let stream =
            Stream::new(StreamFlags::NON_BLOCKING, None).map_err(failed("making a stream"))?;
        keep_memory(index)?;
        let numbers =
            LockedBuffer::new(&0, convert::NUMBERS).map_err(failed("taking page-locked memory"))?;
        let version = cust::CudaApiVersion::get().map_err(failed("asking for the version"))?;
        Ok(Gpu {
            index,
            profile: profile(device)?,
            driver: format!("{}.{}", version.major(), version.minor()),
            monitor: nvml::Monitor::open(device),
            modules: Mutex::default(),
            numbers: Mutex::new(numbers),
            workspace: Mutex::default(),
            kept: Mutex::new(features::Kept::new()?),
            overlap: overlap::Overlap::find(device),
            timing: Mutex::default(),
            queue: Arc::new(Queue::new(stream, context)),
        })
    }

    /// The GPU's profile: shipped figures where the GPU is a known one, otherwise limits read off
    /// the driver.
    pub fn profile(&self) -> &Device {
        &self.profile
    }

    /// The newest CUDA version that the driver supports, `major.minor`.
    pub fn driver(&self) -> &str {
        &self.driver
    }

    /// The driver, as records of measurements name it.
    pub fn driver_key(&self) -> String {
        format!("CUDA {}", self.driver)
    }

    /// What NVML tells of the GPU now; nothing where its library is absent.
    pub fn state(&self) -> State {
        self.monitor.as_ref().map_or_else(State::default, nvml::Monitor::state)
    }

    /// The stream that this backend's own work runs on.
    pub fn stream(&self) -> &Stream {
        &self.queue
    }

    /// Makes this GPU's context the calling thread's current one.
    ///
    /// # Errors
    /// [`Error::Device`] from the driver.
    pub fn make_current(&self) -> Result<()> {
        self.queue.make_current()
    }

    /// Copies a vector to the device.
    ///
    /// # Errors
    /// [`Error::Device`] where the memory does not suffice.
    pub fn vector<T: Scalar>(&self, host: &[T]) -> Result<Vector<T>> {
        self.make_current()?;
        Vector::of(host, &self.queue)
    }

    /// A vector of zeros on the device.
    ///
    /// # Errors
    /// [`Error::Device`] where the memory does not suffice.
    pub fn zeros<T: Scalar>(&self, len: usize) -> Result<Vector<T>> {
        self.make_current()?;
        Vector::zeros(len, &self.queue)
    }

    /// Uploads a layout that the host made and finds its kernels.
    ///
    /// # Errors
    /// [`Error::Device`] where the format has no kernel, or the device no memory.
    pub fn upload<T: Scalar>(&self, layout: &dyn Layout<T>) -> Result<CudaOperator<T>> {
        self.make_current()?;
        CudaOperator::uploaded(self, layout)
    }

    fn module(&self, image: &'static str) -> Result<Arc<Kernels>> {
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(module) = modules.get(image) {
            return Ok(Arc::clone(module));
        }
        let found = ellect_kernels::find(image).ok_or_else(|| {
            let what = format!("no kernels were compiled for {image}");
            Error::device(DeviceFault::Unsupported, what)
        })?;
        let module = Module::from_fatbin(found.fatbin, &[])
            .map_err(failed(&format!("loading the kernels of {image}")))?;
        let kernels = Arc::new(Kernels { module, queue: Arc::clone(&self.queue) });
        Ok(Arc::clone(modules.entry(image).or_insert(kernels)))
    }

    /// Lets a kernel have all the shared memory that a block can, where these bytes and its own are
    /// more than any kernel has: other operators launch it too, with more or less of it than this one.
    ///
    /// # Errors
    /// [`Error::Device`] from the driver.
    fn allow_shared(&self, function: cuda::CUfunction, bytes: u32) -> Result<()> {
        use cuda::CUfunction_attribute as Attribute;
        let device = cust::device::Device::get_device(self.index)
            .map_err(failed(&format!("asking for {}", handle(self.index))))?;
        let mut own = 0;
        let of_own = Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES;
        // SAFETY: the driver writes one number; the function belongs to a loaded module.
        let code = unsafe { cuda::cuFuncGetAttribute(&mut own, of_own, function) };
        check(code, "asking for the shared memory of a kernel")?;
        if i64::from(own) + i64::from(bytes) <= PLAIN_SHARED_BYTES {
            return Ok(());
        }
        let room =
            i32::try_from(most_shared_bytes(device)?).unwrap_or(i32::MAX).saturating_sub(own);
        let most = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: as above.
        let code = unsafe { cuda::cuFuncSetAttribute(function, most, room) };
        check(code, "asking for shared memory")
    }

    /// Whether all blocks of a launch of this kernel are at work at once.
    fn holds(&self, function: cuda::CUfunction, launch: &Launch) -> bool {
        let mut blocks = 0;
        let shared = launch.shared_bytes as usize;
        // SAFETY: the driver writes one number; the function belongs to a loaded module.
        let code = unsafe {
            cuda::cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &mut blocks,
                function,
                launch.block as i32,
                shared,
            )
        };
        code == cuda::CUresult::CUDA_SUCCESS
            && launch.grid <= blocks.max(0) as u64 * u64::from(self.profile.processors)
    }

    /// Seconds that the work queued by `work` took on the stream, by events.
    ///
    /// # Errors
    /// [`Error::Device`] where a launch fails or a kernel faults.
    pub fn time(&self, work: impl FnOnce() -> Result<()>) -> Result<f64> {
        let event = || Event::new(EventFlags::DEFAULT).map_err(failed("making an event"));
        let (start, stop) = (event()?, event()?);
        start.record(&self.queue).map_err(failed("recording an event"))?;
        work()?;
        stop.record(&self.queue).map_err(failed("recording an event"))?;
        stop.synchronize().map_err(failed("a kernel"))?;
        let ms = stop.elapsed_time_f32(&start).map_err(failed("reading an event"))?;
        Ok(f64::from(ms) / 1e3)
    }

    /// Queues a kernel that writes where no memory is: whatever follows on this GPU fails, until
    /// the process ends.
    ///
    /// # Errors
    /// [`Error::Device`] where the launch fails.
    pub(crate) fn fault(&self) -> Result<()> {
        self.make_current()?;
        let step = operator::Step::new(self, &faulty(), operator::plain)?;
        // SAFETY: none of the process's memory is at the address that the kernel writes to, so it
        // changes none; the driver stops it.
        step.map_or(Ok(()), |step| unsafe { step.launch(NOWHERE, 1.0, 0.0, self.queue.as_inner()) })
    }

    /// Held while something is timed: what several threads time takes turns.
    pub(crate) fn alone(&self) -> MutexGuard<'_, ()> {
        self.timing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the stream.
    ///
    /// # Errors
    /// [`Error::Device`] where a kernel faulted.
    pub fn synchronize(&self) -> Result<()> {
        self.queue.synchronize().map_err(failed("a kernel"))
    }
}

/// Addresses of x, y and values at which there is never any memory.
const NOWHERE: [cuda::CUdeviceptr; 3] = [8; 3];

/// Shared memory that a block of any kernel may have, in bytes.
const PLAIN_SHARED_BYTES: i64 = 48 * 1024;

/// Makes the driver keep the memory that is given back, for the next conversion.
fn keep_memory(index: u32) -> Result<()> {
    let (mut device, mut pool, mut most) = (0, std::ptr::null_mut(), u64::MAX);
    // SAFETY: the driver is started; it writes a device and a pool, and reads one number.
    unsafe {
        check(cuda::cuDeviceGet(&mut device, index as i32), "finding the device")?;
        check(cuda::cuDeviceGetDefaultMemPool(&mut pool, device), "finding its memory pool")?;
        let attribute = cuda::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        let most = std::ptr::from_mut(&mut most).cast();
        check(cuda::cuMemPoolSetAttribute(pool, attribute, most), "setting up its memory pool")
    }
}

fn check(code: cuda::CUresult, what: &str) -> Result<()> {
    let fault = match code {
        cuda::CUresult::CUDA_SUCCESS => return Ok(()),
        cuda::CUresult::CUDA_ERROR_OUT_OF_MEMORY => DeviceFault::OutOfMemory,
        _ => DeviceFault::Failed,
    };
    Err(Error::device(fault, format!("{what}: CUDA error {}", code as u32)))
}

/// The profile of a GPU.
fn profile(device: cust::device::Device) -> Result<Device> {
    let attribute = |which| {
        device
            .get_attribute(which)
            .map(|value| f64::from(value.max(0)))
            .map_err(failed("asking for an attribute"))
    };
    let [major, minor] = [
        attribute(DeviceAttribute::ComputeCapabilityMajor)?,
        attribute(DeviceAttribute::ComputeCapabilityMinor)?,
    ];
    gpu::profile(&DriverInfo {
        title: device.name().map_err(failed("asking for the GPU's name"))?,
        capability: format!("{major}.{minor}"),
        processors: attribute(DeviceAttribute::MultiprocessorCount)? as u32,
        threads_per_processor: attribute(DeviceAttribute::MaxThreadsPerMultiprocessor)? as u32,
        clock_ghz: attribute(DeviceAttribute::ClockRate)? / 1e6,
        // Kilohertz times bus bytes, twice a clock.
        sheet_gbps: attribute(DeviceAttribute::MemoryClockRate)? / 1e6
            * attribute(DeviceAttribute::GlobalMemoryBusWidth)?
            / 8.0
            * 2.0,
        cache_bytes: attribute(DeviceAttribute::L2CacheSize)? as u64,
        shared_bytes: most_shared_bytes(device)?,
        memory_bytes: device.total_memory().map_err(failed("asking for the memory size"))? as u64,
    })
}

/// Shared memory that one block may use, in bytes.
fn most_shared_bytes(device: cust::device::Device) -> Result<u64> {
    let attribute = cuda::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
    let mut bytes = 0;
    // SAFETY: the number lives through the call, and the device was found.
    let code = unsafe { cuda::cuDeviceGetAttribute(&mut bytes, attribute, device.as_raw()) };
    check(code, "asking for its shared memory")?;
    Ok(u64::try_from(bytes).unwrap_or(0))
}
