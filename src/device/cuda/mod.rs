//! The CUDA backend: uploads layouts and launches their kernels.
//!
//! It knows no format: a layout says what a GPU holds of it and launches
//! ([`OnDevice`]), this module does it. The driver is opened at run time, so the
//! program starts on machines without one.
//!
//! All `unsafe` code of the library is here: each block says why it is sound.
#![allow(unsafe_code, reason = "the CUDA driver is a C library")]

mod cusparse;
mod graph;

use std::collections::HashMap;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use cust::context::Context;
use cust::device::DeviceAttribute;
use cust::event::{Event, EventFlags};
use cust::memory::{CopyDestination, DeviceBuffer};
use cust::module::Module;
use cust::stream::{Stream, StreamFlags};
use cust::sys as cuda;

pub use graph::Graph;

use super::{Device, Kind};
use crate::error::{Error, Result};
use crate::format::{Arg, Layout, OnDevice};
use crate::scalar::Scalar;

/// Shared memory that any kernel may use without asking for more, in bytes.
const PLAIN_SHARED_BYTES: u32 = 48 * 1024;

/// One opened GPU: its primary context, a stream, and the modules loaded so far.
pub struct Gpu {
    index: u32,
    profile: Device,
    driver: String,
    modules: Mutex<HashMap<&'static str, Arc<Module>>>,
    stream: Stream,
    context: Context,
}

impl std::fmt::Debug for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gpu").field("index", &self.index).finish_non_exhaustive()
    }
}

fn failed(what: &str) -> impl Fn(cust::error::CudaError) -> Error + '_ {
    // `Display` of this error asks the driver for a text and fails without one.
    move |error| Error::Device(format!("{what}: CUDA error {error:?}"))
}

impl Gpu {
    /// Opens GPU `index` (`cuda:<index>`).
    ///
    /// # Errors
    /// [`Error::Device`] where there is no driver or no such GPU.
    pub fn open(index: u32) -> Result<Self> {
        ellect_kernels::driver::load().map_err(|why| Error::Device(why.to_string()))?;
        cust::init(cust::CudaFlags::empty()).map_err(failed("starting the CUDA driver"))?;
        let device = cust::device::Device::get_device(index)
            .map_err(failed(&format!("opening cuda:{index}")))?;
        let context = Context::new(device).map_err(failed("making a context"))?;
        let stream =
            Stream::new(StreamFlags::NON_BLOCKING, None).map_err(failed("making a stream"))?;
        let version = cust::CudaApiVersion::get().map_err(failed("asking for the version"))?;
        Ok(Gpu {
            index,
            profile: profile(device, index)?,
            driver: format!("{}.{}", version.major(), version.minor()),
            modules: Mutex::default(),
            stream,
            context,
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

    /// The stream that this backend's own work runs on.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Makes this GPU's context the calling thread's current one.
    ///
    /// # Errors
    /// [`Error::Device`] from the driver.
    pub fn make_current(&self) -> Result<()> {
        cust::context::CurrentContext::set_current(&self.context)
            .map_err(failed("making the context current"))
    }

    /// Copies a vector to the device.
    ///
    /// # Errors
    /// [`Error::Device`] where the memory does not suffice.
    pub fn vector<T: Scalar>(&self, host: &[T]) -> Result<DeviceBuffer<T>> {
        DeviceBuffer::from_slice(host).map_err(failed("copying a vector to the device"))
    }

    /// Uploads a layout and finds its kernels.
    ///
    /// # Errors
    /// [`Error::Device`] where the format has no kernel, or the device no memory.
    pub fn upload<T: Scalar>(&self, layout: &dyn Layout<T>) -> Result<CudaOperator<T>> {
        let described = layout
            .on_device()
            .ok_or_else(|| Error::Device("this format has no kernel for a GPU".to_string()))?;
        let OnDevice { arrays, values, scratch, launches, vendor } = described;
        let arrays = arrays
            .iter()
            .map(|bytes| DeviceBuffer::from_slice(bytes).map_err(failed("uploading a layout")))
            .collect::<Result<Vec<_>>>()?;
        let scratch = scratch
            .iter()
            .map(|&bytes| {
                DeviceBuffer::zeroed(bytes as usize).map_err(failed("allocating scratch memory"))
            })
            .collect::<Result<Vec<_>>>()?;
        let steps = launches
            .into_iter()
            .filter(|launch| launch.grid > 0)
            .map(|launch| {
                let module = self.module(launch.image)?;
                let function = module
                    .get_function(&launch.kernel)
                    .map_err(failed(&format!("finding kernel {}", launch.kernel)))?
                    .to_raw();
                if launch.shared_bytes > PLAIN_SHARED_BYTES {
                    // SAFETY: `function` belongs to `module`, which is loaded.
                    let code = unsafe {
                        cuda::cuFuncSetAttribute(
                            function,
                            cuda::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                            launch.shared_bytes as i32,
                        )
                    };
                    check(code, "asking for shared memory")?;
                }
                let grid = u32::try_from(launch.grid).map_err(|_| {
                    Error::Device(format!("{} blocks exceed a grid", launch.grid))
                })?;
                Ok(Step {
                    function,
                    grid,
                    block: launch.block,
                    shared_bytes: launch.shared_bytes,
                    args: launch
                        .args
                        .iter()
                        .map(|&arg| match arg {
                            Arg::Array(i) => Word::Fixed(arrays[i].as_device_ptr().as_raw()),
                            Arg::Scratch(i) => Word::Fixed(scratch[i].as_device_ptr().as_raw()),
                            Arg::U32(n) => Word::Fixed(u64::from(n)),
                            Arg::U64(n) => Word::Fixed(n),
                            Arg::X => Word::X,
                            Arg::Y => Word::Y,
                            Arg::Alpha => Word::Alpha,
                            Arg::Beta => Word::Beta,
                        })
                        .collect(),
                    _module: module,
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let stream = self.stream.as_inner();
        let vendor =
            vendor.map(|v| cusparse::Product::new::<T>(&v, &arrays, stream)).transpose()?;
        // The preprocessing has ended before the first product, on whatever stream that is.
        self.synchronize()?;
        Ok(CudaOperator { steps, vendor, arrays, values, _scratch: scratch, scalar: PhantomData })
    }

    fn module(&self, image: &'static str) -> Result<Arc<Module>> {
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(module) = modules.get(image) {
            return Ok(Arc::clone(module));
        }
        let found = ellect_kernels::find(image)
            .ok_or_else(|| Error::Device(format!("no kernels were compiled for {image}")))?;
        let module = Module::from_fatbin(found.fatbin, &[])
            .map_err(failed(&format!("loading the kernels of {image}")))?;
        Ok(Arc::clone(modules.entry(image).or_insert_with(|| Arc::new(module))))
    }

    /// Seconds that the work queued by `work` took on the stream, by events.
    ///
    /// # Errors
    /// [`Error::Device`] where a launch fails or a kernel faults.
    pub fn time(&self, work: impl FnOnce() -> Result<()>) -> Result<f64> {
        let event = || Event::new(EventFlags::DEFAULT).map_err(failed("making an event"));
        let (start, stop) = (event()?, event()?);
        start.record(&self.stream).map_err(failed("recording an event"))?;
        work()?;
        stop.record(&self.stream).map_err(failed("recording an event"))?;
        stop.synchronize().map_err(failed("a kernel"))?;
        let ms = stop.elapsed_time_f32(&start).map_err(failed("reading an event"))?;
        Ok(f64::from(ms) / 1e3)
    }

    /// Waits for the stream.
    ///
    /// # Errors
    /// [`Error::Device`] where a kernel faulted.
    pub fn synchronize(&self) -> Result<()> {
        self.stream.synchronize().map_err(failed("a kernel"))
    }
}

fn check(code: cuda::CUresult, what: &str) -> Result<()> {
    if code == cuda::CUresult::CUDA_SUCCESS {
        Ok(())
    } else {
        Err(Error::Device(format!("{what}: CUDA error {}", code as u32)))
    }
}

/// One argument of a kernel.
#[derive(Clone, Copy)]
enum Word {
    Fixed(u64),
    X,
    Y,
    Alpha,
    Beta,
}

struct Step {
    function: cuda::CUfunction,
    grid: u32,
    block: u32,
    shared_bytes: u32,
    args: Vec<Word>,
    _module: Arc<Module>,
}

/// A layout on a GPU. `apply` allocates nothing and can be captured in a CUDA graph.
pub struct CudaOperator<T> {
    steps: Vec<Step>,
    vendor: Option<cusparse::Product>,
    arrays: Vec<DeviceBuffer<u8>>,
    values: Vec<usize>,
    _scratch: Vec<DeviceBuffer<u8>>,
    scalar: PhantomData<T>,
}

/// The most arguments of a kernel.
const MAX_ARGS: usize = 24;

impl<T: Scalar> CudaOperator<T> {
    /// y = alpha A x + beta y on `stream`, for device addresses; returns when it is queued.
    ///
    /// # Errors
    /// [`Error::Device`] where a launch fails; a fault of a kernel shows at the next
    /// synchronisation.
    ///
    /// # Safety
    /// `x` and `y` are addresses on this operator's GPU of `ncols` and `nrows` values that do not
    /// overlap and stay valid until the stream has passed this product. The GPU's context is
    /// current.
    pub unsafe fn apply_raw(
        &self,
        alpha: T,
        x: cuda::CUdeviceptr,
        beta: T,
        y: cuda::CUdeviceptr,
        stream: cuda::CUstream,
    ) -> Result<()> {
        if let Some(vendor) = &self.vendor {
            // SAFETY: by this function's own contract.
            unsafe { vendor.apply(alpha, x, beta, y, stream)? };
        }
        for step in &self.steps {
            let mut words = [0u64; MAX_ARGS];
            let mut addresses = [std::ptr::null_mut::<c_void>(); MAX_ARGS];
            for ((word, address), arg) in words.iter_mut().zip(&mut addresses).zip(&step.args) {
                *word = match *arg {
                    Word::Fixed(value) => value,
                    Word::X => x,
                    Word::Y => y,
                    Word::Alpha => bits(alpha),
                    Word::Beta => bits(beta),
                };
                *address = std::ptr::from_mut(word).cast();
            }
            // SAFETY: the arguments are those that the layout described for this kernel: each
            // address points at a word that outlives the call, the arrays live as long as `self`,
            // x and y by this function's own contract.
            let code = unsafe {
                cuda::cuLaunchKernel(
                    step.function,
                    step.grid,
                    1,
                    1,
                    step.block,
                    1,
                    1,
                    step.shared_bytes,
                    stream,
                    addresses.as_mut_ptr(),
                    std::ptr::null_mut(),
                )
            };
            check(code, "launching a kernel")?;
        }
        Ok(())
    }

    /// Takes over the values of `layout`, which is the uploaded one after an update of its values.
    ///
    /// # Errors
    /// [`Error::Device`] where the copy fails; [`Error::Shape`] where it is another layout.
    pub fn update_values(&mut self, layout: &dyn Layout<T>) -> Result<()> {
        let described = layout.on_device();
        let host = |i: usize| described.as_ref().and_then(|d| d.arrays.get(i).copied());
        for &i in &self.values {
            let (array, host) = (&mut self.arrays[i], host(i).unwrap_or(&[]));
            if array.len() != host.len() {
                return Err(Error::Shape {
                    what: "values",
                    got: host.len() / size_of::<T>(),
                    needed: array.len() / size_of::<T>(),
                });
            }
            array.copy_from(host).map_err(failed("copying values to the device"))?;
        }
        Ok(())
    }

    /// Bytes held on the device.
    pub fn bytes(&self) -> u64 {
        self.arrays.iter().map(|array| array.len() as u64).sum()
    }
}

fn bits<T: Scalar>(value: T) -> u64 {
    let mut word = [0u8; 8];
    let bytes = bytemuck::bytes_of(&value);
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// The shipped profile of a known GPU, or one made of what the driver tells.
fn profile(device: cust::device::Device, index: u32) -> Result<Device> {
    let title = device.name().map_err(failed("asking for the GPU's name"))?;
    let known = Device::shipped()
        .into_iter()
        .find(|known| known.kind == Kind::Gpu && title.to_lowercase().contains(&known.name));
    if let Some(known) = known {
        return Ok(known);
    }
    let attribute = |which| {
        device
            .get_attribute(which)
            .map(|value| f64::from(value.max(0)))
            .map_err(failed("asking for an attribute"))
    };
    // Kilohertz times bus bytes, twice a clock: the data sheet's figure; streams reach about 0.9.
    let sheet_gbps = attribute(DeviceAttribute::MemoryClockRate)? / 1e6
        * attribute(DeviceAttribute::GlobalMemoryBusWidth)?
        / 8.0
        * 2.0;
    let base = Device::shipped()
        .into_iter()
        .find(|known| known.kind == Kind::Gpu)
        .ok_or_else(|| Error::Device("no GPU profile ships".to_string()))?;
    Ok(Device {
        name: format!("cuda:{index}"),
        source: format!("{title}: limits from its driver, ratios from {}", base.name),
        title,
        read_gbps: 0.9 * sheet_gbps,
        gather_gbps: 0.9 * sheet_gbps * base.gather_gbps / base.read_gbps,
        cache_gbps: 0.9 * sheet_gbps * base.cache_gbps / base.read_gbps,
        cache_bytes: attribute(DeviceAttribute::L2CacheSize)? as u64,
        processors: attribute(DeviceAttribute::MultiprocessorCount)? as u32,
        threads_per_processor: attribute(DeviceAttribute::MaxThreadsPerMultiprocessor)? as u32,
        memory_bytes: device.total_memory().map_err(failed("asking for the memory size"))? as u64,
        ..base
    })
}

impl Gpu {
    /// One product with host vectors: copies x and y over, multiplies, copies y back.
    ///
    /// For checks; a solver keeps its vectors on the device.
    ///
    /// # Errors
    /// [`Error::Device`] from any step.
    pub fn apply<T: Scalar>(
        &self,
        operator: &CudaOperator<T>,
        alpha: T,
        x: &[T],
        beta: T,
        y: &mut [T],
    ) -> Result<()> {
        let (x, device_y) = (self.vector(x)?, self.vector(y)?);
        // SAFETY: both buffers live until the stream is synchronised below; the caller's layout
        // fits their lengths, as for the host product.
        unsafe {
            operator.apply_raw(
                alpha,
                x.as_device_ptr().as_raw(),
                beta,
                device_y.as_device_ptr().as_raw(),
                self.stream.as_inner(),
            )?;
        }
        self.synchronize()?;
        device_y.copy_to(y).map_err(failed("copying a vector from the device"))
    }
}
