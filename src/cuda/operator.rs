//! A layout on a GPU, and what it launches.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::sync::Arc;

use cust::sys as cuda;

use super::convert::word;
use super::memory::{Memory, Queue};
use super::overlap::Overlap;
use super::{DeviceCsr, Gpu, Kernels, check, cusparse, failed, signatures};
use crate::error::{DeviceFault, Error, Result};
use crate::format::{Arg, Built, Check, Launch, Layout, OnDevice, Refusal, Vendor};
use crate::scalar::Scalar;

/// The most arguments of a kernel.
const MAX_ARGS: usize = 28;

/// One argument of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Word {
    Fixed(u64),
    X,
    Y,
    /// New values, where an operator takes them over.
    Values,
    Alpha,
    Beta,
    One,
}

/// What stands for an argument that is no array of the operator or of a matrix.
///
/// # Panics
/// If it is one: those are found before.
pub(super) fn plain(arg: Arg) -> Word {
    match arg {
        Arg::U32(n) => Word::Fixed(u64::from(n)),
        Arg::U64(n) => Word::Fixed(n),
        Arg::X => Word::X,
        Arg::Y => Word::Y,
        Arg::Alpha => Word::Alpha,
        Arg::Beta => Word::Beta,
        Arg::One => Word::One,
        Arg::Array(_)
        | Arg::Temporary(_)
        | Arg::Scratch(_)
        | Arg::RowPtr
        | Arg::ColIdx
        | Arg::Values => unreachable!("{arg:?} has an address of its own"),
    }
}

/// A kernel, ready to launch.
pub(super) struct Step {
    function: cuda::CUfunction,
    grid: u32,
    block: u32,
    shared_bytes: u32,
    args: Vec<Word>,
    image: &'static str,
    /// Where its start overlaps with the end of what is ahead in the stream.
    overlap: Option<Overlap>,
    _kernels: Arc<Kernels>,
    /// What the module lives in.
    _queue: Arc<Queue>,
}

// SAFETY: a kernel belongs to its module, and may be launched by any thread.
unsafe impl Send for Step {}
// SAFETY: the same; nothing in it changes.
unsafe impl Sync for Step {}

impl Step {
    /// Finds the kernel of a launch; `None` where it has no blocks.
    ///
    /// # Errors
    /// [`Error::Device`] where there is no such kernel, or it asks for more than the device has.
    pub fn new(gpu: &Gpu, launch: &Launch, word: impl Fn(Arg) -> Word) -> Result<Option<Self>> {
        if launch.grid == 0 {
            return Ok(None);
        }
        debug_assert_eq!(signatures::check(launch, None), Ok(()));
        let grid = u32::try_from(launch.grid).map_err(|_| {
            let what = format!("{} blocks exceed a grid", launch.grid);
            Error::device(DeviceFault::Unsupported, what)
        })?;
        let kernels = gpu.module(launch.image)?;
        let find = |kernel: &str| {
            let function = kernels.module.get_function(kernel);
            let function = function.map_err(failed(&format!("finding kernel {kernel}")))?;
            Ok(function.to_raw())
        };
        let mut function = find(&launch.kernel)?;
        let image = ellect_kernels::find(launch.image);
        if image.is_some_and(|image| image.resident.contains(&launch.kernel.as_str())) {
            let resident = find(&format!("{}_resident", launch.kernel))?;
            function = if gpu.holds(resident, launch) { resident } else { function };
        }
        if launch.shared_bytes > 0 {
            gpu.allow_shared(function, launch.shared_bytes)?;
        }
        let given = launch.args.len();
        assert!(given <= MAX_ARGS, "{} has {given} arguments, over {MAX_ARGS}", launch.kernel);
        let args = launch.args.iter().map(|&arg| word(arg)).collect();
        let Launch { block, shared_bytes, .. } = *launch;
        Ok(Some(Step {
            function,
            grid,
            block,
            shared_bytes,
            args,
            image: launch.image,
            overlap: None,
            _kernels: kernels,
            _queue: Arc::clone(&gpu.queue),
        }))
    }

    /// The same, for a kernel that waits for what is ahead in the stream before it touches vectors,
    /// values or scratch memory.
    fn overlapping(self, gpu: &Gpu) -> Self {
        Step { overlap: gpu.overlap, ..self }
    }

    /// Queues it; `vectors` are the addresses of x, y and new values.
    ///
    /// # Errors
    /// [`Error::Device`] where the launch fails.
    ///
    /// # Safety
    /// The addresses hold what the kernel reads and writes of them, until the stream has passed it;
    /// the GPU's context is current.
    pub unsafe fn launch<T: Scalar>(
        &self,
        vectors: [cuda::CUdeviceptr; 3],
        alpha: T,
        beta: T,
        stream: cuda::CUstream,
    ) -> Result<()> {
        let [x, y, values] = vectors;
        let mut words = [0u64; MAX_ARGS];
        let mut addresses = [std::ptr::null_mut::<c_void>(); MAX_ARGS];
        for ((word, address), arg) in words.iter_mut().zip(&mut addresses).zip(&self.args) {
            *word = match *arg {
                Word::Fixed(value) => value,
                Word::X => x,
                Word::Y => y,
                Word::Values => values,
                Word::Alpha => bits(alpha),
                Word::Beta => bits(beta),
                Word::One => bits(T::ONE),
            };
            *address = std::ptr::from_mut(word).cast();
        }
        let parameters = addresses.as_mut_ptr();
        let (function, grid, block) = (self.function, self.grid, self.block);
        // SAFETY: each address points at a word that outlives the call; the words are what a layout
        // described for this kernel, and valid by this function's own contract.
        let code = unsafe {
            match self.overlap {
                Some(overlap) => {
                    overlap.launch(function, [grid, block, self.shared_bytes], stream, parameters)
                }
                None => cuda::cuLaunchKernel(
                    function,
                    grid,
                    1,
                    1,
                    block,
                    1,
                    1,
                    self.shared_bytes,
                    stream,
                    parameters,
                    std::ptr::null_mut(),
                ),
            }
        };
        check(code, "launching a kernel")
    }
}

fn bits<T: Scalar>(value: T) -> u64 {
    let mut word = [0u8; 8];
    let bytes = bytemuck::bytes_of(&value);
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// Where the values of an operator come from.
enum Values<T> {
    /// A layout made on the host: which of the arrays hold values.
    Host(Vec<usize>),
    /// The CSR matrix on the device, what takes over new values, the newest values once there were
    /// any, and what looks at them before.
    Device {
        csr: Arc<DeviceCsr<T>>,
        update: Vec<Step>,
        newest: Option<Memory>,
        check: Option<ValueCheck>,
    },
}

/// [`Check`], ready to launch.
struct ValueCheck {
    /// None where there is nothing to look at.
    step: Option<Step>,
    /// The array that takes the row.
    row: usize,
    reason: fn(u32) -> Refusal,
}

/// A layout on a GPU. A product allocates nothing and can be captured in a CUDA graph.
pub struct CudaOperator<T> {
    steps: Vec<Step>,
    vendor: Option<(Vendor, [u64; 3], cusparse::Product)>,
    arrays: Vec<Memory>,
    _scratch: Vec<Memory>,
    order: Option<usize>,
    values: Values<T>,
    scalar: PhantomData<T>,
}

impl<T> std::fmt::Debug for CudaOperator<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CudaOperator").field("launches", &self.steps.len()).finish_non_exhaustive()
    }
}

impl<T: Scalar> CudaOperator<T> {
    /// The images that its launches name; `cusparse` where the library multiplies.
    pub fn images(&self) -> impl Iterator<Item = &'static str> {
        self.steps.iter().map(|step| step.image).chain(self.vendor.iter().map(|_| "cusparse"))
    }

    /// Uploads a layout that the host made.
    ///
    /// # Errors
    /// [`Error::Device`] where the format has no kernel, or the device no memory.
    pub(super) fn uploaded(gpu: &Gpu, layout: &dyn Layout<T>) -> Result<Self> {
        let described = layout.on_device().ok_or_else(|| {
            Error::device(DeviceFault::Unsupported, "this format has no kernel for a GPU")
        })?;
        let OnDevice { arrays, values, scratch, launches, vendor } = described;
        let arrays = arrays.iter().map(|bytes| Memory::of(bytes, &gpu.queue));
        let arrays = arrays.collect::<Result<Vec<_>>>()?;
        let vendor = vendor.map(|vendor| (vendor, [0, 1, 2].map(|i: usize| arrays[i].address())));
        let fixed = |arg: Arg| match arg {
            Arg::Array(i) => Word::Fixed(arrays[i].address()),
            other => plain(other),
        };
        let (steps, scratch) = product(gpu, &launches, &scratch, fixed)?;
        CudaOperator {
            steps,
            vendor: None,
            arrays,
            _scratch: scratch,
            order: None,
            values: Values::Host(values),
            scalar: PhantomData,
        }
        .with_vendor(gpu, vendor, false)
    }

    /// What a conversion on the device made; `ended` tells that all that it queued has.
    ///
    /// # Errors
    /// [`Error::Device`] by the device.
    pub(super) fn built(
        gpu: &Gpu,
        csr: &Arc<DeviceCsr<T>>,
        arrays: Vec<Memory>,
        built: &Built,
        ended: bool,
    ) -> Result<Self> {
        let fixed = |arg: Arg| match arg {
            Arg::Array(i) => Word::Fixed(arrays[i].address()),
            other => word(csr, other),
        };
        // Memory that is taken is there for other streams once this one has come that far.
        let ended = ended && built.scratch.is_empty();
        let (steps, scratch) = product(gpu, &built.launches, &built.scratch, fixed)?;
        let taking = |launch: &Launch| {
            Step::new(gpu, launch, |arg| match arg {
                Arg::Values => Word::Values,
                other => fixed(other),
            })
        };
        let update = built.update.iter().filter_map(|launch| taking(launch).transpose());
        let update = update.collect::<Result<Vec<_>>>()?;
        let check = built.check.as_ref().and_then(|Check { launch, row, reason }| match *row {
            Arg::Array(row) => {
                Some(taking(launch).map(|step| ValueCheck { step, row, reason: *reason }))
            }
            _ => None,
        });
        let check = check.transpose()?;
        let vendor = built.vendor.map(|(vendor, args)| {
            (
                vendor,
                args.map(|arg| match fixed(arg) {
                    Word::Fixed(address) => address,
                    _ => 0,
                }),
            )
        });
        let order = built.order.and_then(|arg| match arg {
            Arg::Array(i) => Some(i),
            _ => None,
        });
        CudaOperator {
            steps,
            vendor: None,
            arrays,
            _scratch: scratch,
            order,
            values: Values::Device { csr: Arc::clone(csr), update, newest: None, check },
            scalar: PhantomData,
        }
        .with_vendor(gpu, vendor, ended)
    }

    /// With cuSPARSE's part in it, if there is one; `ended` tells that all that was queued has.
    fn with_vendor(
        mut self,
        gpu: &Gpu,
        vendor: Option<(Vendor, [u64; 3])>,
        ended: bool,
    ) -> Result<Self> {
        let ended = ended && vendor.is_none();
        if let Some((vendor, addresses)) = vendor {
            let product = cusparse::Product::new::<T>(&vendor, addresses, &gpu.queue)?;
            self.vendor = Some((vendor, addresses, product));
        }
        // What was preprocessed has ended before the first product, on whatever stream that is.
        if !ended {
            gpu.synchronize()?;
        }
        Ok(self)
    }

    /// y = alpha A x + beta y on `stream`, for device addresses; returns when it is queued.
    ///
    /// # Errors
    /// [`Error::Device`] where a launch fails; a fault of a kernel shows at the next
    /// synchronisation.
    ///
    /// # Safety
    /// `x` and `y` are addresses on this operator's GPU of `ncols` and `nrows` values that do not
    /// overlap and stay valid until the stream has passed this product; until then the operator is
    /// neither dropped nor given new values. The GPU's context is current. Products with one operator
    /// follow each other, on one stream or synchronised, and are queued by one thread at a time. A
    /// CUDA graph that holds a product sees later values only after [`Placed::own_values`].
    ///
    /// [`Placed::own_values`]: super::Placed::own_values
    pub unsafe fn apply_raw(
        &self,
        alpha: T,
        x: cuda::CUdeviceptr,
        beta: T,
        y: cuda::CUdeviceptr,
        stream: cuda::CUstream,
    ) -> Result<()> {
        if let Some((_, _, product)) = &self.vendor {
            // SAFETY: by this function's own contract.
            unsafe { product.apply(alpha, x, beta, y, stream)? };
        }
        // SAFETY: the operator's arrays live as long as `self`, x and y by this function's own
        // contract; products read no new values.
        self.steps
            .iter()
            .try_for_each(|step| unsafe { step.launch([x, y, 0], alpha, beta, stream) })
    }

    /// Takes over the values of `layout`, which is the uploaded one after an update of its values.
    ///
    /// # Errors
    /// [`Error::Device`] where the copy fails; [`Error::Shape`] where it is another layout.
    pub(super) fn take_layout(&mut self, layout: &dyn Layout<T>) -> Result<()> {
        let Values::Host(values) = &self.values else {
            let what = "this layout was made on the device";
            return Err(Error::device(DeviceFault::Unsupported, what));
        };
        let described = layout.on_device();
        let host = |i: usize| described.as_ref().and_then(|d| d.arrays.get(i).copied());
        for &i in values {
            let (array, host) = (&self.arrays[i], host(i).unwrap_or(&[]));
            if array.bytes() != host.len() as u64 {
                return Err(Error::Shape {
                    what: "values",
                    got: host.len() / size_of::<T>(),
                    needed: array.bytes() as usize / size_of::<T>(),
                });
            }
            array.write(host)?;
        }
        Ok(())
    }

    /// Copies the values that products read where the CSR matrix has them, if they do, and queues
    /// that on the GPU's stream: what is put in later lies in their place.
    ///
    /// # Errors
    /// [`Error::Device`] by the device.
    pub(super) fn own_values(&mut self, gpu: &Gpu) -> Result<()> {
        match &self.values {
            Values::Device { csr, update, newest: None, .. } if update.is_empty() => {
                let [_, _, values] = csr.addresses();
                // SAFETY: the matrix has so many values and lives as long as `self`.
                unsafe { self.take_values(gpu, values) }
            }
            _ => Ok(()),
        }
    }

    /// Takes over `nnz` new values that are on the device, in the order of the CSR matrix: copies
    /// them and queues the work on the GPU's stream. Only for what was converted on the device.
    ///
    /// # Errors
    /// [`Error::Device`] by the device.
    ///
    /// # Safety
    /// `values` is the address of `nnz` values that stay until the stream has passed this.
    pub(super) unsafe fn take_values(
        &mut self,
        gpu: &Gpu,
        values: cuda::CUdeviceptr,
    ) -> Result<()> {
        let stream = gpu.queue.as_inner();
        let Values::Device { csr, update, newest, .. } = &mut self.values else {
            let what = "this layout was made on the host";
            return Err(Error::device(DeviceFault::Unsupported, what));
        };
        let ([_, _, old], [_, _, bytes]) = (csr.addresses(), csr.bytes());
        if bytes == 0 {
            return Ok(());
        }
        let made = match newest {
            Some(_) => None,
            None => Some(Memory::new(bytes, &gpu.queue)?),
        };
        let to = made.as_ref().or(newest.as_ref()).map_or(old, Memory::address);
        // SAFETY: both sides have `nnz` values.
        let code = unsafe { cuda::cuMemcpyDtoDAsync_v2(to, values, bytes as usize, stream) };
        check(code, "copying values")?;
        // Products that read the matrix's own values read the first copy from then on.
        let moves = made.is_some() && update.is_empty();
        let moved = match &self.vendor {
            Some((vendor, addresses, _)) if moves => {
                let addresses = addresses.map(|address| if address == old { to } else { address });
                let product = cusparse::Product::new::<T>(vendor, addresses, &gpu.queue)?;
                Some((*vendor, addresses, product))
            }
            _ => None,
        };
        // Nothing was changed before all that is to be made was made.
        if let Some(made) = made {
            *newest = Some(made);
        }
        for step in update.iter() {
            // SAFETY: the operator's arrays live as long as `self`, the values were copied above.
            unsafe { step.launch([0, 0, to], T::ZERO, T::ZERO, stream)? };
        }
        if moved.is_some() {
            self.vendor = moved;
        }
        if moves {
            for word in self.steps.iter_mut().flat_map(|step| &mut step.args) {
                if *word == Word::Fixed(old) {
                    *word = Word::Fixed(to);
                }
            }
        }
        Ok(())
    }

    /// Whether [`CudaOperator::check_values`] may refuse new values.
    pub(super) fn limits_values(&self) -> bool {
        matches!(self.values, Values::Device { check: Some(_), .. })
    }

    /// Why what was converted on the device cannot hold these values, which are there in the order
    /// of the CSR matrix; waits.
    ///
    /// # Errors
    /// [`Error::Device`] by the device.
    ///
    /// # Safety
    /// `values` is the address of `nnz` values.
    pub(super) unsafe fn check_values(
        &self,
        gpu: &Gpu,
        values: cuda::CUdeviceptr,
    ) -> Result<Option<Refusal>> {
        let Values::Device { check: Some(ValueCheck { step: Some(step), row, reason }), .. } =
            &self.values
        else {
            return Ok(None);
        };
        let array = &self.arrays[*row];
        let mut row = u32::MAX;
        array.write(bytemuck::bytes_of(&row))?;
        // SAFETY: the operator's arrays live as long as `self`, the values by this function's own
        // contract until the copy below has waited.
        unsafe { step.launch([0, 0, values], T::ZERO, T::ZERO, gpu.queue.as_inner())? };
        array.read(bytemuck::bytes_of_mut(&mut row))?;
        Ok((row != u32::MAX).then(|| reason(row)))
    }

    /// The matrix that was converted on the device, with its newest values.
    pub(super) fn source(&self) -> Option<(&Arc<DeviceCsr<T>>, cuda::CUdeviceptr)> {
        match &self.values {
            Values::Host(_) => None,
            Values::Device { csr, newest, .. } => {
                let [_, _, own] = csr.addresses();
                Some((csr, newest.as_ref().map_or(own, Memory::address)))
            }
        }
    }

    /// The order of the permuted basis, where the device made it.
    pub(super) fn order(&self) -> Result<Option<Vec<u32>>> {
        let Some(array) = self.order.map(|i| &self.arrays[i]) else { return Ok(None) };
        let mut order = vec![0u32; array.bytes() as usize / 4];
        array.read(bytemuck::cast_slice_mut(&mut order))?;
        Ok(Some(order))
    }

    /// The arrays of values of a layout that the host made.
    pub(super) fn value_arrays(&self) -> impl Iterator<Item = &Memory> {
        let list: &[usize] = match &self.values {
            Values::Host(list) => list,
            Values::Device { .. } => &[],
        };
        list.iter().map(|&i| &self.arrays[i])
    }

    /// Bytes on the device that products read: those of the layout, and the arrays of the CSR
    /// matrix where the product reads them.
    pub fn bytes(&self) -> u64 {
        let own: u64 = self.arrays.iter().map(Memory::bytes).sum();
        let Values::Device { csr, .. } = &self.values else { return own };
        let read = |address: u64| {
            let step = |step: &Step| step.args.contains(&Word::Fixed(address));
            self.steps.iter().any(step)
                || self
                    .vendor
                    .as_ref()
                    .is_some_and(|(_, addresses, _)| addresses.contains(&address))
        };
        let (mut addresses, bytes) = (csr.addresses(), csr.bytes());
        if let Some((_, newest)) = self.source() {
            addresses[2] = newest;
        }
        own + addresses.iter().zip(bytes).filter(|(at, _)| read(**at)).map(|(_, b)| b).sum::<u64>()
    }
}

/// The steps of a product and their scratch memory.
fn product(
    gpu: &Gpu,
    launches: &[Launch],
    scratch: &[u64],
    fixed: impl Fn(Arg) -> Word,
) -> Result<(Vec<Step>, Vec<Memory>)> {
    let scratch = scratch.iter().map(|&bytes| Memory::new(bytes, &gpu.queue));
    let scratch = scratch.collect::<Result<Vec<_>>>()?;
    let steps = launches.iter().filter_map(|launch| {
        let step = Step::new(gpu, launch, |arg| match arg {
            Arg::Scratch(i) => Word::Fixed(scratch[i].address()),
            other => fixed(other),
        });
        step.map(|step| step.map(|step| step.overlapping(gpu))).transpose()
    });
    Ok((steps.collect::<Result<Vec<_>>>()?, scratch))
}
