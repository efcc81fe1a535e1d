//! Layouts on a GPU and their launches.

use std::marker::PhantomData;
use std::sync::Arc;

use cust::sys as cuda;

use super::convert::word;
use super::launch::{ArgWord, PreparedLaunch, plain};
use super::memory::{Memory, Queue};
use super::scratch::ScratchMemory;
use super::several::Product;
use super::{DeviceCsr, Gpu, check, cusparse};
use crate::error::{DeviceFault, Error, Result};
use crate::format::{Arg, Check, GpuLayout, Launch, Layout, OnDevice, Refusal, Vendor};
use crate::scalar::Scalar;

/// Origin of an operator's values.
enum ValueOrigin<T> {
    /// The host converted the layout; the indices of the arrays that hold values.
    Host(Vec<usize>),
    /// The device converted the layout: the CSR matrix there, the launches that update values, the
    /// newest values after a first update, and the check of new values.
    Device {
        csr: Arc<DeviceCsr<T>>,
        update: Vec<PreparedLaunch>,
        newest: Option<Memory>,
        check: Option<ValueCheck>,
    },
}

/// A [`Check`] of new values, ready to launch.
struct ValueCheck {
    /// `None` if there are no values to check.
    step: Option<PreparedLaunch>,
    /// Index of the array that receives the row.
    row: usize,
    reason: fn(u32) -> Refusal,
}

/// A layout on a GPU. A product allocates nothing and can be captured in a CUDA graph.
///
/// ```no_run
/// use ellect::{Csr, Tuner, Workload};
///
/// # fn main() -> ellect::Result<()> {
/// let tuner = Tuner::open("cuda:0")?;
/// let csr = Csr::from_triplets(2, 2, [(0, 0, 4.0), (1, 1, 5.0)])?;
/// let operator = tuner.prepare(&csr, &Workload::default())?;
/// let a = operator.on_device().expect("prepared on a GPU");
/// let (x, y) = (a.gpu().vector(&[1.0, 2.0])?, a.gpu().zeros::<f64>(2)?);
/// let (x_at, y_at, stream) = (x.address(), y.address(), a.gpu().stream().as_inner());
/// // SAFETY: x and y have two elements on this GPU, and no other stream uses them.
/// unsafe { a.operator().apply_raw(1.0, x_at, 0.0, y_at, stream)? };
/// a.gpu().synchronize()?;
/// # Ok(())
/// # }
/// ```
pub struct CudaOperator<T> {
    steps: Vec<PreparedLaunch>,
    /// The steps that those for several vectors take the place of; where empty, these are `steps`.
    steps_of_several: Vec<PreparedLaunch>,
    vendor: Option<(Vendor, [u64; 3], cusparse::CusparseProduct)>,
    arrays: Vec<Memory>,
    scratch: Vec<Memory>,
    order: Option<usize>,
    values: ValueOrigin<T>,
    scalar: PhantomData<T>,
}

impl<T> std::fmt::Debug for CudaOperator<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CudaOperator").field("launches", &self.steps.len()).finish_non_exhaustive()
    }
}

impl<T: Scalar> CudaOperator<T> {
    /// Returns the kernel images of its launches, and `cusparse` if the library multiplies.
    pub fn images(&self) -> impl Iterator<Item = &'static str> {
        self.steps.iter().map(PreparedLaunch::image).chain(self.vendor.iter().map(|_| "cusparse"))
    }

    /// Uploads a layout that the host converted.
    ///
    /// # Errors
    /// [`Error::Device`] if the format has no kernel or memory runs out.
    pub(super) fn uploaded(gpu: &Gpu, layout: &dyn Layout<T>) -> Result<Self> {
        let described = layout.on_device().ok_or_else(|| {
            Error::device(DeviceFault::Unsupported, "this format has no kernel for a GPU")
        })?;
        let OnDevice { arrays, values, scratch, counters, launches, vendor, .. } = described;
        let arrays = arrays.iter().map(|array| Memory::of(array.bytes, &gpu.queue));
        let arrays = arrays.collect::<Result<Vec<_>>>()?;
        let vendor = vendor.map(|vendor| (vendor, [0, 1, 2].map(|i: usize| arrays[i].address())));
        let fixed = |arg: Arg| match arg {
            Arg::Array(i) => ArgWord::Fixed(arrays[i].address()),
            other => plain(other),
        };
        let scratch = ScratchMemory::new(gpu, &scratch, counters)?;
        let steps = scratch.product(gpu, &launches, fixed)?;
        CudaOperator {
            steps,
            steps_of_several: Vec::new(),
            vendor: None,
            arrays,
            scratch: scratch.all,
            order: None,
            values: ValueOrigin::Host(values),
            scalar: PhantomData,
        }
        .with_vendor(gpu, vendor, false)
    }

    /// Wraps a layout that the device converted, given its arrays, and the memory that its products
    /// share if that is allocated; `ended` means that all queued work has ended.
    ///
    /// # Errors
    /// [`Error::Device`] from the driver.
    pub(super) fn built(
        gpu: &Gpu,
        csr: &Arc<DeviceCsr<T>>,
        (arrays, shared): (Vec<Memory>, Option<ScratchMemory>),
        built: &GpuLayout,
        ended: bool,
    ) -> Result<Self> {
        let fixed = |arg: Arg| match arg {
            Arg::Array(i) => ArgWord::Fixed(arrays[i].address()),
            other => word(csr, other),
        };
        let GpuLayout { launches, several, scratch, counters, .. } = built;
        let shared = shared.filter(|shared| shared.suffices(scratch, *counters));
        // Memory allocated here is available to other streams only after this stream has reached
        // that point.
        let ended = ended && (shared.is_some() || scratch.is_empty() && *counters == 0);
        let scratch = match shared {
            Some(shared) => shared,
            None => ScratchMemory::new(gpu, scratch, *counters)?,
        };
        let steps = scratch.product(gpu, launches, fixed)?;
        let steps_of_several = scratch.product(gpu, several, fixed)?;
        let taking = |launch: &Launch| {
            PreparedLaunch::new(gpu, launch, |arg| match arg {
                Arg::Values => ArgWord::Values,
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
                    ArgWord::Fixed(address) => address,
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
            steps_of_several,
            vendor: None,
            arrays,
            scratch: scratch.all,
            order,
            values: ValueOrigin::Device { csr: Arc::clone(csr), update, newest: None, check },
            scalar: PhantomData,
        }
        .with_vendor(gpu, vendor, ended)
    }

    /// Adds cuSPARSE's part of the product, if any; `ended` means that all queued work has ended.
    fn with_vendor(
        mut self,
        gpu: &Gpu,
        vendor: Option<(Vendor, [u64; 3])>,
        ended: bool,
    ) -> Result<Self> {
        let ended = ended && vendor.is_none();
        if let Some((vendor, addresses)) = vendor {
            let product = cusparse::CusparseProduct::new::<T>(&vendor, addresses, &gpu.queue)?;
            self.vendor = Some((vendor, addresses, product));
        }
        // Preprocessing must have ended before the first product, which may be on another stream.
        if !ended {
            gpu.synchronize()?;
        }
        Ok(self)
    }

    /// Queues y = alpha A x + beta y on `stream`, for device addresses.
    ///
    /// # Errors
    /// [`Error::Device`] if a launch fails; a fault of a kernel shows at the next synchronisation.
    ///
    /// # Safety
    /// `x` and `y` are addresses on this operator's GPU of `ncols` and `nrows` values that do not
    /// overlap and stay valid until the stream has finished this product; until then the operator
    /// is neither dropped nor given new values. The GPU's context is current. Products with one
    /// operator follow each other, on one stream or synchronised, and one thread at a time queues
    /// them. A CUDA graph that contains a product sees later values only after
    /// [`GpuOperator::own_values`].
    ///
    /// [`GpuOperator::own_values`]: super::GpuOperator::own_values
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

    /// Queues the product with `count` vectors by cuSPARSE; false if it has no part in products, or
    /// none with several vectors.
    ///
    /// # Errors
    /// [`Error::Device`] if the library reports an error.
    ///
    /// # Safety
    /// As [`CudaOperator::apply_raw`], for all vectors.
    pub(super) unsafe fn apply_many_by_vendor(
        &self,
        count: u64,
        product: Product<T>,
    ) -> Result<bool> {
        let Some((vendor, addresses, own)) = &self.vendor else { return Ok(false) };
        // SAFETY: by this function's own contract.
        unsafe { own.apply_many(vendor, *addresses, count, product) }
    }

    /// Returns the launches of a product with one vector; `None` if cuSPARSE has a part in it.
    pub(super) fn steps(&self) -> Option<&[PreparedLaunch]> {
        self.vendor.is_none().then_some(&self.steps)
    }

    /// Returns the launches that those for several vectors take the place of, as
    /// [`CudaOperator::steps`].
    pub(super) fn steps_of_several(&self) -> Option<&[PreparedLaunch]> {
        match &self.steps_of_several[..] {
            [] => self.steps(),
            steps => Some(steps),
        }
    }

    /// Copies the values of `layout`, the uploaded layout after an update of its values.
    ///
    /// # Errors
    /// [`Error::Device`] if the copy fails; [`Error::Shape`] if it is another layout.
    pub(super) fn take_layout(&mut self, layout: &dyn Layout<T>) -> Result<()> {
        let ValueOrigin::Host(values) = &self.values else {
            let what = "this layout was converted on the device";
            return Err(Error::device(DeviceFault::Unsupported, what));
        };
        let described = layout.on_device();
        let host =
            |i: usize| described.as_ref().and_then(|d| d.arrays.get(i)).map(|array| array.bytes);
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

    /// Makes products read a copy of the values if they read those of the CSR matrix, so that later
    /// updates overwrite the copy. Queues the copy on the GPU's stream.
    ///
    /// # Errors
    /// [`Error::Device`] from the driver.
    pub(super) fn own_values(&mut self, gpu: &Gpu) -> Result<()> {
        match &self.values {
            ValueOrigin::Device { csr, update, newest: None, .. } if update.is_empty() => {
                let [_, _, values] = csr.addresses();
                // SAFETY: the matrix has this many values and lives as long as `self`.
                unsafe { self.take_values(gpu, values) }
            }
            _ => Ok(()),
        }
    }

    /// Copies `nnz` new values on the device, in the order of the CSR matrix, and queues the update
    /// on the GPU's stream. Only for layouts that the device converted.
    ///
    /// # Errors
    /// [`Error::Device`] from the driver.
    ///
    /// # Safety
    /// `values` is the address of `nnz` values that stay valid until the stream has finished this.
    pub(super) unsafe fn take_values(
        &mut self,
        gpu: &Gpu,
        values: cuda::CUdeviceptr,
    ) -> Result<()> {
        let stream = gpu.queue.as_inner();
        let ValueOrigin::Device { csr, update, newest, .. } = &mut self.values else {
            let what = "this layout was converted on the host";
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
        // Products that read the matrix's own values read the copy from the first update on.
        let moves = made.is_some() && update.is_empty();
        let moved = match &self.vendor {
            Some((vendor, addresses, _)) if moves => {
                let addresses = addresses.map(|address| if address == old { to } else { address });
                let product = cusparse::CusparseProduct::new::<T>(vendor, addresses, &gpu.queue)?;
                Some((*vendor, addresses, product))
            }
            _ => None,
        };
        // All allocations have succeeded before anything is changed.
        if let Some(made) = made {
            *newest = Some(made);
        }
        for step in update.iter() {
            // SAFETY: the operator's arrays live as long as `self`; the values were copied above.
            unsafe { step.launch([0, 0, to], T::ZERO, T::ZERO, stream)? };
        }
        if moved.is_some() {
            self.vendor = moved;
        }
        if moves {
            let steps = self.steps.iter_mut().chain(&mut self.steps_of_several);
            steps.for_each(|step| step.replace_address(old, to));
        }
        Ok(())
    }

    /// Moves all memory of the operator to another stream of its GPU; see [`Memory::move_to`].
    pub(super) fn move_to(&mut self, queue: &Arc<Queue>) {
        let newest = match &mut self.values {
            ValueOrigin::Host(_) => None,
            ValueOrigin::Device { newest, .. } => newest.as_mut(),
        };
        let all = self.arrays.iter_mut().chain(&mut self.scratch).chain(newest);
        all.for_each(|memory| memory.move_to(queue));
        if let Some((_, _, product)) = &mut self.vendor {
            product.move_to(queue);
        }
    }

    /// Tells whether [`CudaOperator::check_values`] may refuse new values.
    pub(super) fn limits_values(&self) -> bool {
        matches!(self.values, ValueOrigin::Device { check: Some(_), .. })
    }

    /// Returns why a layout that the device converted cannot hold these values on the device, in
    /// the order of the CSR matrix, if so; waits.
    ///
    /// # Errors
    /// [`Error::Device`] from the driver.
    ///
    /// # Safety
    /// `values` is the address of `nnz` values.
    pub(super) unsafe fn check_values(
        &self,
        gpu: &Gpu,
        values: cuda::CUdeviceptr,
    ) -> Result<Option<Refusal>> {
        let ValueOrigin::Device {
            check: Some(ValueCheck { step: Some(step), row, reason }), ..
        } = &self.values
        else {
            return Ok(None);
        };
        let array = &self.arrays[*row];
        let mut row = u32::MAX;
        array.write(bytemuck::bytes_of(&row))?;
        // SAFETY: the operator's arrays live as long as `self`; the values live, by this function's
        // own contract, until the copy below has synchronised.
        unsafe { step.launch([0, 0, values], T::ZERO, T::ZERO, gpu.queue.as_inner())? };
        array.read(bytemuck::bytes_of_mut(&mut row))?;
        Ok((row != u32::MAX).then(|| reason(row)))
    }

    /// Returns the matrix that the device converted, and the address of its newest values.
    pub(super) fn source(&self) -> Option<(&Arc<DeviceCsr<T>>, cuda::CUdeviceptr)> {
        match &self.values {
            ValueOrigin::Host(_) => None,
            ValueOrigin::Device { csr, newest, .. } => {
                let [_, _, own] = csr.addresses();
                Some((csr, newest.as_ref().map_or(own, Memory::address)))
            }
        }
    }

    /// Returns the order of the permuted basis, if the device computed one.
    pub(super) fn order(&self) -> Result<Option<Vec<u32>>> {
        let Some(array) = self.order.map(|i| &self.arrays[i]) else { return Ok(None) };
        let mut order = vec![0u32; array.bytes() as usize / 4];
        array.read(bytemuck::cast_slice_mut(&mut order))?;
        Ok(Some(order))
    }

    /// Returns the arrays of values of a layout that the host converted.
    pub(super) fn value_arrays(&self) -> impl Iterator<Item = &Memory> {
        let list: &[usize] = match &self.values {
            ValueOrigin::Host(list) => list,
            ValueOrigin::Device { .. } => &[],
        };
        list.iter().map(|&i| &self.arrays[i])
    }

    /// Returns the bytes on the device that products read: the layout's arrays, and the arrays of
    /// the CSR matrix that the product reads directly.
    pub fn bytes(&self) -> u64 {
        let own: u64 = self.arrays.iter().map(Memory::bytes).sum();
        let ValueOrigin::Device { csr, .. } = &self.values else { return own };
        let read = |address: u64| {
            self.steps.iter().any(|step| step.takes(address))
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
