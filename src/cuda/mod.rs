//! The CUDA backend: uploads layouts and launches their kernels.
//!
//! The backend knows no format. A layout describes its arrays and launches on a GPU
//! ([`OnDevice`](crate::format::OnDevice)), a format describes the steps of a conversion
//! ([`GpuConverter`](crate::format::GpuConverter)), and this module carries them out. The driver is opened at
//! run time, so the program also starts on machines without one.
//!
//! This module contains nearly all `unsafe` code of the library; the rest is in `measure/gpu.rs`.
//! Each block states why it is sound.
#![allow(unsafe_code, reason = "the CUDA driver is a C library")]

mod access;
mod convert;
mod csr;
mod cusparse;
mod dense;
mod dots;
mod exchange;
mod features;
mod fork;
mod graph;
mod halo;
mod ipc;
mod launch;
mod memory;
mod nccl;
mod nvml;
mod one_sum;
mod operator;
mod overlap;
mod part;
mod peer_steps;
mod peers;
mod placed;
mod rank;
mod record;
mod reduce;
mod scratch;
mod several;
mod side;
mod signatures;
mod transpose;
mod vector;
mod vector_ops;
mod workspace;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cust::context::Context;
use cust::device::DeviceAttribute;
use cust::event::{Event, EventFlags};
use cust::module::Module;
use cust::stream::{Stream, StreamFlags};
use cust::sys as cuda;
use ellect_kernels::Image;

pub use csr::DeviceCsr;
pub(crate) use cusparse::CusparseProduct;
pub use cusparse::version as cusparse_version;
pub use dense::{DeviceDense, DeviceDenseMut};
pub(crate) use exchange::PeerVector;
pub use graph::Graph;
pub(crate) use halo::NeededColumns;
pub(crate) use nccl::version as nccl_version;
pub(crate) use one_sum::OneSum;
pub use operator::CudaOperator;
pub(crate) use part::Products;
pub(crate) use peer_steps::PeerFactor;
pub(crate) use peers::{PeerProduct, Peers};
pub use placed::GpuOperator;
pub(crate) use rank::{Link, RankGpu, RankGraph, RankStore, identity, reach};
pub(crate) use record::PeerGraphs;
pub(crate) use side::Mark;
pub use signatures::check_launch;
pub use vector::{DeviceSlice, DeviceSliceMut, Vector};
pub use vector_ops::Factor;

use memory::Queue;

use crate::device::gpu::{self, DriverInfo};
use crate::device::{self, Device, State};
use crate::error::{DeviceFault, Error, Result};
use crate::format::{Arg, Launch, Layout};
use crate::scalar::Scalar;

/// An open GPU: its primary context, a stream, and the modules loaded so far.
///
/// ```no_run
/// use ellect::cuda::Gpu;
///
/// # fn main() -> ellect::Result<()> {
/// let gpu = Gpu::open(0)?;
/// println!("{} with {}", gpu.profile().title, gpu.driver_key());
/// let x = gpu.vector(&[1.0, 2.0])?;
/// let mut xx = gpu.zeros(1)?;
/// gpu.dot(&x, &x, &mut xx)?;
/// # Ok(())
/// # }
/// ```
pub struct Gpu {
    index: u32,
    profile: Device,
    driver: String,
    monitor: Option<nvml::Monitor>,
    shared: Arc<Shared>,
    /// Memory for small temporaries, kept for the next conversion.
    workspace: Mutex<Option<workspace::Workspace>>,
    kept: Mutex<features::CountBuffers>,
    partial_sums: vector_ops::PartialSums,
    programmatic: Option<overlap::ProgrammaticLaunch>,
    /// This GPU with a second stream, if one was needed.
    side: Mutex<Option<Arc<Gpu>>>,
    queue: Arc<Queue>,
}

/// State that all streams of a GPU share.
#[derive(Default)]
struct Shared {
    /// Images of formats outside this library.
    more_images: Mutex<Vec<&'static Image>>,
    modules: Mutex<HashMap<&'static str, Arc<Kernels>>>,
    timing: Mutex<()>,
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // Fields that are dropped after this, such as page-locked memory, need the context. Modules
        // must not be unloaded while products still run.
        let _ = self.make_current().and_then(|()| self.synchronize());
    }
}

/// The loaded kernels of an image; unloaded in their own context.
struct Kernels {
    image: &'static Image,
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
    // `Display` of this error asks the driver for a text and fails without a driver.
    move |error| {
        let fault = match error {
            cust::error::CudaError::OutOfMemory => DeviceFault::OutOfMemory,
            _ => DeviceFault::Failed,
        };
        Error::device(fault, format!("{what}: CUDA error {error:?}"))
    }
}

/// Describes the launch of [`Gpu::fault`]: it scales a vector at an unmapped address.
fn faulty() -> Launch {
    let args = vec![Arg::U32(256), Arg::Y, Arg::Beta];
    Launch::over("coo", "coo_scale_f64", 256, 256, args)
}

/// Opens the driver; the inner error says why no driver or no GPU is available.
fn start() -> Result<std::result::Result<(), String>> {
    if let Err(why) = ellect_kernels::driver::load() {
        return Ok(Err(why.to_string()));
    }
    match cust::init(cust::CudaFlags::empty()) {
        Err(cust::error::CudaError::NoDevice) => Ok(Err("its driver finds no GPU".into())),
        started => started.map(Ok).map_err(failed("starting the CUDA driver")),
    }
}

/// Returns the number of GPUs in this machine; 0 without a driver.
pub(crate) fn count() -> u32 {
    start()
        .ok()
        .and_then(std::result::Result::ok)
        .and_then(|()| cust::device::Device::num_devices().ok())
        .unwrap_or(0)
}

/// Returns the name by which a GPU is opened.
pub(crate) fn handle(index: u32) -> String {
    format!("cuda:{index}")
}

/// Lists the GPUs of this machine: the name `cuda:N` and the profile of each.
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
    /// [`Error::UnknownDevice`] if there is no driver or no such GPU; [`Error::Device`] from the
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
        let mut gpu = Gpu::with_stream(index, profile(device)?, Arc::default())?;
        keep_memory(index)?;
        gpu.monitor = nvml::Monitor::open(device);
        Ok(gpu)
    }

    /// Creates a stream in the primary context of GPU `index`.
    fn with_stream(index: u32, profile: Device, shared: Arc<Shared>) -> Result<Self> {
        let device = cust::device::Device::get_device(index)
            .map_err(failed(&format!("opening {}", handle(index))))?;
        let context = Context::new(device).map_err(failed("making a context"))?;
        let stream =
            Stream::new(StreamFlags::NON_BLOCKING, None).map_err(failed("making a stream"))?;
        let version = cust::CudaApiVersion::get().map_err(failed("asking for the version"))?;
        Ok(Gpu {
            index,
            profile,
            driver: format!("{}.{}", version.major(), version.minor()),
            monitor: None,
            shared,
            workspace: Mutex::default(),
            kept: Mutex::new(features::CountBuffers::new()?),
            partial_sums: Mutex::default(),
            programmatic: overlap::ProgrammaticLaunch::find(device),
            side: Mutex::default(),
            queue: Arc::new(Queue::new(stream, context, index)),
        })
    }

    /// Returns the GPU's profile: the shipped one if it describes this GPU, otherwise limits from
    /// the driver.
    pub fn profile(&self) -> &Device {
        &self.profile
    }

    /// Returns the highest CUDA version that the driver supports, `major.minor`.
    pub fn driver(&self) -> &str {
        &self.driver
    }

    /// Returns the driver as named in records of measurements.
    pub fn driver_key(&self) -> String {
        format!("CUDA {}", self.driver)
    }

    /// Reads the current state of the GPU from NVML; empty if NVML is not installed.
    pub fn state(&self) -> State {
        self.monitor.as_ref().map_or_else(State::default, nvml::Monitor::state)
    }

    /// Returns the stream of this backend's own work: conversions, products with typed vectors and
    /// operations on vectors run on it, in the order of the calls.
    pub fn stream(&self) -> &Stream {
        &self.queue
    }

    /// Makes this GPU's context current in the calling thread.
    ///
    /// # Errors
    /// [`Error::Device`] from the driver.
    pub fn make_current(&self) -> Result<()> {
        self.queue.make_current()
    }

    /// Copies a vector to the device.
    ///
    /// # Errors
    /// [`Error::Device`] if memory runs out.
    pub fn vector<T: Scalar>(&self, host: &[T]) -> Result<Vector<T>> {
        self.make_current()?;
        Vector::of(host, &self.queue)
    }

    /// Allocates a vector of zeros on the device.
    ///
    /// # Errors
    /// [`Error::Device`] if memory runs out.
    pub fn zeros<T: Scalar>(&self, len: usize) -> Result<Vector<T>> {
        self.make_current()?;
        Vector::zeros(len, &self.queue)
    }

    /// Uploads a layout that the host converted, and finds its kernels.
    ///
    /// # Errors
    /// [`Error::Device`] if the format has no kernel or memory runs out.
    pub fn upload<T: Scalar>(&self, layout: &dyn Layout<T>) -> Result<CudaOperator<T>> {
        self.make_current()?;
        CudaOperator::uploaded(self, layout)
    }

    /// Adds the kernels of a format outside this library: launches on this GPU find the image by
    /// its name, after those that ship.
    pub fn add_image(&self, image: &'static Image) {
        self.shared.more_images.lock().unwrap_or_else(PoisonError::into_inner).push(image);
    }

    fn image(&self, name: &str) -> Option<&'static Image> {
        ellect_kernels::find(name).or_else(|| {
            let more = self.shared.more_images.lock().unwrap_or_else(PoisonError::into_inner);
            more.iter().find(|image| image.name == name).copied()
        })
    }

    fn module(&self, name: &'static str) -> Result<Arc<Kernels>> {
        let modules = || self.shared.modules.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(module) = modules().get(name) {
            return Ok(Arc::clone(module));
        }
        let image = self.image(name).ok_or_else(|| {
            let what = format!("this build has no kernels of image {name}");
            Error::device(DeviceFault::Unsupported, what)
        })?;
        // Loads without the lock, so that threads that need other kernels do not wait.
        let module = Module::from_fatbin(image.fatbin, &[])
            .map_err(failed(&format!("loading the kernels of {name}")))?;
        let kernels = Arc::new(Kernels { image, module, queue: Arc::clone(&self.queue) });
        Ok(Arc::clone(modules().entry(name).or_insert(kernels)))
    }

    /// Allows a kernel the maximum dynamic shared memory of a block, if `bytes` and its static
    /// shared memory exceed the default limit.
    ///
    /// The maximum is set rather than `bytes`, because other operators launch the kernel with other
    /// amounts.
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

    /// Tells whether all blocks of a launch of this kernel can be resident at once.
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

    /// Returns the time that the work queued by `work` takes on the stream, in seconds, measured by
    /// events.
    ///
    /// # Errors
    /// [`Error::Device`] if a launch fails or a kernel faults.
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

    /// Queues a kernel that writes to an unmapped address; every later operation on this GPU fails
    /// until the process ends.
    ///
    /// # Errors
    /// [`Error::Device`] if the launch fails.
    pub(crate) fn fault(&self) -> Result<()> {
        self.make_current()?;
        let step = launch::PreparedLaunch::new(self, &faulty(), launch::plain)?;
        // SAFETY: the kernel writes to an address where the process has no memory, so it changes
        // none; the driver stops the kernel.
        step.map_or(Ok(()), |step| unsafe { step.launch(NOWHERE, 1.0, 0.0, self.queue.as_inner()) })
    }

    /// Locks the GPU for timing: threads that time on it take turns.
    pub(crate) fn alone(&self) -> MutexGuard<'_, ()> {
        self.shared.timing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for all work on the stream.
    ///
    /// # Errors
    /// [`Error::Device`] if a kernel faulted.
    pub fn synchronize(&self) -> Result<()> {
        self.queue.synchronize().map_err(failed("a kernel"))
    }
}

/// Addresses for x, y and values that are never mapped.
const NOWHERE: [cuda::CUdeviceptr; 3] = [8; 3];

/// Shared memory that any kernel may use without special permission, in bytes.
const PLAIN_SHARED_BYTES: i64 = 48 * 1024;

/// Makes the driver keep freed memory for the next conversion.
fn keep_memory(index: u32) -> Result<()> {
    let (mut device, mut pool, mut most) = (0, std::ptr::null_mut(), u64::MAX);
    // SAFETY: the driver is initialised; it writes a device and a pool, and reads one number.
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

/// Builds the profile of a GPU from the driver's attributes.
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
        // kHz / 1e6 times bytes of the bus, twice in each clock cycle.
        sheet_gbps: attribute(DeviceAttribute::MemoryClockRate)? / 1e6
            * attribute(DeviceAttribute::GlobalMemoryBusWidth)?
            / 8.0
            * 2.0,
        cache_bytes: attribute(DeviceAttribute::L2CacheSize)? as u64,
        shared_bytes: most_shared_bytes(device)?,
        memory_bytes: device.total_memory().map_err(failed("asking for the memory size"))? as u64,
    })
}

/// Returns the maximum shared memory of one block, in bytes.
fn most_shared_bytes(device: cust::device::Device) -> Result<u64> {
    let attribute = cuda::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
    let mut bytes = 0;
    // SAFETY: the number lives through the call, and the device exists.
    let code = unsafe { cuda::cuDeviceGetAttribute(&mut bytes, attribute, device.as_raw()) };
    check(code, "asking for its shared memory")?;
    Ok(u64::try_from(bytes).unwrap_or(0))
}
