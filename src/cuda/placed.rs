//! Prepared matrices on a GPU: the operator, with the data for products with host vectors and for
//! updates of values.

use std::sync::{Arc, Mutex, PoisonError};

use cust::sys as cuda;
use rayon::prelude::*;

use super::dots::ReadyDots;
use super::launch::{PreparedLaunch, plain};
use super::memory::{Memory, read};
use super::several::SeveralVectors;
use super::{CudaOperator, DeviceCsr, DeviceSlice, DeviceSliceMut, Gpu, Vector, cusparse};
use crate::analysis::Analysis;
use crate::csr::{Csr, CsrRef};
use crate::error::{Error, Result};
use crate::format::{Arg, Candidate, Format, Launch, Layout, Matrix, Refusal, Target};
use crate::scalar::{Precision, Scalar};

/// A matrix in a candidate's layout on a GPU.
///
/// Products are queued on the GPU's stream and return without waiting, as operations on vectors do
/// ([`Gpu::axpby`], [`Gpu::dot`]); each one sees the results of all that were queued before.
/// [`Vector::read`] waits.
///
/// ```no_run
/// use ellect::{Csr, Tuner, Workload};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = Csr::from_triplets(2, 2, [(0, 0, 4.0), (0, 1, 1.0), (1, 1, 5.0)])?;
/// let operator = Tuner::open("cuda:0")?.prepare(&csr, &Workload::default())?;
/// let a = operator.on_device().expect("prepared on a GPU");
///
/// let x = a.gpu().vector(&[1.0, 2.0])?;
/// let mut y = a.gpu().zeros(2)?;
/// a.apply(1.0, &x, 0.0, &mut y)?;
///
/// let mut host = [0.0; 2];
/// y.read(&mut host)?;
/// assert_eq!(host, [6.0, 10.0]);
/// # Ok(())
/// # }
/// ```
pub struct GpuOperator<T: Scalar> {
    pub(super) gpu: Arc<Gpu>,
    pub(super) operator: CudaOperator<T>,
    /// The layout in host memory, if the host converted it.
    host: Option<Box<dyn Layout<T>>>,
    order: Option<Vec<u32>>,
    pub(super) nrows: usize,
    pub(super) ncols: usize,
    nnz: usize,
    /// For each slot of a layout converted on the host, the index of its value in the CSR matrix.
    sources: Option<Vec<Memory>>,
    staging: Mutex<Option<(Vector<T>, Vector<T>)>>,
    pub(super) format: &'static Format,
    pub(super) several: SeveralVectors,
    pub(super) dots: ReadyDots,
    /// Held while a product is queued: its launches follow each other on the stream.
    pub(super) queueing: Mutex<()>,
}

impl<T: Scalar> GpuOperator<T> {
    /// Converts on the GPU if the format can, otherwise on the host, followed by an upload.
    ///
    /// # Errors
    /// [`Error::Refused`] if the candidate does not apply to the matrix; [`Error::Device`] from the
    /// driver.
    pub fn new(
        gpu: &Arc<Gpu>,
        device_csr: &Arc<DeviceCsr<T>>,
        csr: CsrRef<'_, T>,
        analysis: &Analysis<'_>,
        candidate: &Candidate,
        target: &Target<'_>,
    ) -> Result<Self> {
        if let Some(built) = GpuOperator::built(gpu, device_csr, candidate, target)? {
            return Ok(built);
        }
        let layout = candidate.convert(csr, analysis, target)?;
        let vendor = layout.on_device().and_then(|described| described.vendor);
        cusparse::check_vendor(candidate, vendor.as_ref())?;
        let operator = gpu.upload(layout.as_ref())?;
        let order = layout.order().map(<[u32]>::to_vec);
        let matrix = device_csr.matrix();
        Ok(GpuOperator {
            host: Some(layout),
            ..GpuOperator::of(gpu, operator, order, matrix, candidate.format)
        })
    }

    /// Converts on the GPU; `None` if the format converts on the host.
    ///
    /// # Errors
    /// As [`GpuOperator::new`].
    pub fn built(
        gpu: &Arc<Gpu>,
        device_csr: &Arc<DeviceCsr<T>>,
        candidate: &Candidate,
        target: &Target<'_>,
    ) -> Result<Option<Self>> {
        let Some(operator) = gpu.convert(device_csr, candidate, target)? else { return Ok(None) };
        let order = operator.order()?;
        let matrix = device_csr.matrix();
        Ok(Some(GpuOperator::of(gpu, operator, order, matrix, candidate.format)))
    }

    fn of(
        gpu: &Arc<Gpu>,
        operator: CudaOperator<T>,
        order: Option<Vec<u32>>,
        matrix: Matrix,
        format: &'static Format,
    ) -> Self {
        let Matrix { nrows, ncols, nnz, .. } = matrix;
        GpuOperator {
            gpu: Arc::clone(gpu),
            operator,
            host: None,
            order,
            nrows,
            ncols,
            nnz,
            sources: None,
            staging: Mutex::new(None),
            format,
            several: SeveralVectors::default(),
            dots: ReadyDots::new(),
            queueing: Mutex::new(()),
        }
    }

    /// Returns the GPU.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// Waits for all work on the stream on which the operator was made, and hands the operator over
    /// to `gpu`, the same GPU with another stream.
    ///
    /// # Errors
    /// [`Error::Device`] if a kernel faulted.
    pub(crate) fn move_to(&mut self, gpu: &Arc<Gpu>) -> Result<()> {
        self.gpu.make_current()?;
        self.gpu.synchronize()?;
        self.operator.move_to(&gpu.queue);
        self.sources.iter_mut().flatten().for_each(|memory| memory.move_to(&gpu.queue));
        // Vectors belong to their stream.
        self.staging = Mutex::default();
        self.several.reset();
        self.dots = ReadyDots::new();
        self.gpu = Arc::clone(gpu);
        Ok(())
    }

    /// Queues an update with the newest values of `other`, an operator of the same matrix on the
    /// same stream. Returns false, and changes nothing, if that would have to wait or the layout
    /// limits its values.
    ///
    /// # Errors
    /// [`Error::Device`] from the driver.
    pub(crate) fn take_values_of(&mut self, other: &Self) -> Result<bool> {
        let newest = other.operator.source().map(|(_, newest)| newest);
        let waits = self.host.is_some() || self.operator.limits_values();
        let Some(newest) = newest.filter(|_| !waits) else { return Ok(false) };
        self.gpu.make_current()?;
        // SAFETY: the other operator has `nnz` values there, which are overwritten and freed in
        // order after this on the same stream.
        unsafe { self.operator.take_values(&self.gpu, newest)? };
        Ok(true)
    }

    /// Returns the operator, for products with vectors on the GPU.
    pub fn operator(&self) -> &CudaOperator<T> {
        &self.operator
    }

    /// Returns the number of bytes of the layout's arrays.
    pub fn bytes(&self) -> u64 {
        self.operator.bytes()
    }

    /// Returns the kernel images in use; see [`CudaOperator::images`].
    pub fn images(&self) -> impl Iterator<Item = &'static str> {
        self.operator.images()
    }

    /// Tells whether the GPU converted the matrix.
    pub fn is_built(&self) -> bool {
        self.host.is_none()
    }

    /// Returns the order of the permuted basis; see [`Layout::order`].
    pub fn order(&self) -> Option<&[u32]> {
        self.order.as_deref()
    }

    /// Queues y = alpha A x + beta y on the GPU's stream and returns without waiting; with
    /// `beta = 0`, y is written and never read.
    ///
    /// x and y are vectors or parts of vectors of this operator's [`Gpu`], in the operator's basis.
    /// Several threads may call this; their products run one after another. For a stream of one's
    /// own and for CUDA graphs there is [`CudaOperator::apply_raw`].
    ///
    /// # Errors
    /// [`Error::Shape`] unless `x` has `ncols` and `y` has `nrows` elements; [`Error::Argument`] if
    /// a vector is on another GPU; [`Error::Device`] if a launch fails. A fault of a kernel shows
    /// when a vector is read.
    pub fn apply<'x, 'y>(
        &self,
        alpha: T,
        x: impl Into<DeviceSlice<'x, T>>,
        beta: T,
        y: impl Into<DeviceSliceMut<'y, T>>,
    ) -> Result<()> {
        let (x, y) = (x.into(), y.into());
        self.check_vectors(&x, &y)?;
        self.queue_product(alpha, x.address(), beta, y.address())
    }

    /// Checks that x and y are on this GPU and fit the matrix.
    pub(super) fn check_vectors(
        &self,
        x: &DeviceSlice<'_, T>,
        y: &DeviceSliceMut<'_, T>,
    ) -> Result<()> {
        x.check(&self.gpu.queue, "x")?;
        y.check(&self.gpu.queue, "y")?;
        let lengths = [("x", x.len(), self.ncols), ("y", y.len(), self.nrows)];
        match lengths.into_iter().find(|(_, got, needed)| got != needed) {
            Some((what, got, needed)) => Err(Error::Shape { what, got, needed }),
            None => Ok(()),
        }
    }

    /// Queues a product with vectors of the matrix's dimensions on the GPU's stream.
    fn queue_product(
        &self,
        alpha: T,
        x: cuda::CUdeviceptr,
        beta: T,
        y: cuda::CUdeviceptr,
    ) -> Result<()> {
        self.gpu.make_current()?;
        let _turn = self.queueing.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: callers have checked the vectors. Memory of vectors and of this operator is freed
        // in order on the same stream, and the lock keeps the launches of a product together.
        unsafe { self.operator.apply_raw(alpha, x, beta, y, self.gpu.queue.as_inner()) }
    }

    /// Multiplies vectors in host memory, of the matrix's dimensions: copies x and y to the GPU,
    /// multiplies, and copies y back.
    ///
    /// # Errors
    /// [`Error::Device`] from any step.
    pub(crate) fn apply_on_host(&self, alpha: T, x: &[T], beta: T, y: &mut [T]) -> Result<()> {
        self.gpu.make_current()?;
        let mut staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        let (device_x, device_y) = match staging.as_mut() {
            Some((device_x, device_y)) => {
                device_x.write(x)?;
                device_y.write(y)?;
                (device_x, device_y)
            }
            None => {
                let made = staging.insert((self.gpu.vector(x)?, self.gpu.vector(y)?));
                (&mut made.0, &mut made.1)
            }
        };
        self.queue_product(alpha, device_x.address(), beta, device_y.address())?;
        device_y.read(y)
    }

    /// Returns why the layout cannot hold these `nnz` values, if so; see [`Layout::check_values`].
    ///
    /// # Errors
    /// [`Error::Device`] from any step.
    pub(crate) fn check_values(&self, values: &[T]) -> Result<Option<Refusal>> {
        if let Some(layout) = &self.host {
            return Ok(layout.check_values(values).err());
        }
        if !self.operator.limits_values() {
            return Ok(None);
        }
        self.gpu.make_current()?;
        let values = self.gpu.vector(values)?;
        // SAFETY: the vector holds as many values as the matrix has entries, and outlives the call.
        unsafe { self.operator.check_values(&self.gpu, values.address()) }
    }

    /// Replaces the values by `nnz` values in host memory, in the order of the CSR matrix.
    ///
    /// # Errors
    /// [`Error::Device`] from any step.
    pub(crate) fn set_values(&mut self, values: &[T]) -> Result<()> {
        self.gpu.make_current()?;
        if let Some(layout) = &mut self.host {
            layout.set_values(values);
            return self.operator.take_layout(layout.as_ref());
        }
        let values = self.gpu.vector(values)?;
        // SAFETY: freeing the vector is queued after this work on the same stream.
        unsafe { self.operator.take_values(&self.gpu, values.address())? };
        // Synchronises, so that products on other streams read the new values.
        self.gpu.synchronize()
    }

    /// Makes products read this operator's own copy of the values instead of those of its CSR
    /// matrix; waits.
    ///
    /// Formats without a conversion (`csr`, fused `pcsr`, cuSPARSE's CSR) otherwise switch to a
    /// copy at the first update of values, and a product captured in a CUDA graph before that does
    /// not see the update. The copy takes memory for `nnz` values; if products already read own
    /// values, nothing changes.
    ///
    /// # Errors
    /// [`Error::Device`] if memory runs out.
    pub fn own_values(&mut self) -> Result<()> {
        self.gpu.make_current()?;
        self.operator.own_values(&self.gpu)?;
        self.gpu.synchronize()
    }

    /// Replaces the values by those of a vector of this operator's [`Gpu`], in the order of the CSR
    /// matrix; waits.
    ///
    /// # Errors
    /// [`Error::Shape`] unless there are `nnz` values; [`Error::Argument`] if the vector is on
    /// another GPU; and as [`GpuOperator::set_device_values`].
    pub fn update_values<'v>(&mut self, values: impl Into<DeviceSlice<'v, T>>) -> Result<()> {
        let values = values.into();
        values.check(&self.gpu.queue, "the vector of values")?;
        if values.len() != self.nnz {
            return Err(Error::Shape { what: "values", got: values.len(), needed: self.nnz });
        }
        // SAFETY: the slice holds `nnz` values on this GPU, and work queued before has written them.
        unsafe { self.set_device_values(values.address()) }
    }

    /// Replaces the values by values on the device, in the order of the CSR matrix; waits.
    ///
    /// # Errors
    /// [`Error::Device`] from any step; [`Error::Argument`] if the layout relies on a property of
    /// the values, such as few distinct ones, that these values lack.
    ///
    /// # Safety
    /// `values` is the address of `nnz` values on this GPU, already written.
    pub unsafe fn set_device_values(&mut self, values: cuda::CUdeviceptr) -> Result<()> {
        self.gpu.make_current()?;
        // 32-bit numbers index the values.
        let numbered = u32::try_from(self.nnz).is_ok_and(|nnz| nnz < u32::MAX);
        if self.host.as_ref().is_some_and(|layout| layout.limits_values() || !numbered) {
            let mut host = vec![T::ZERO; self.nnz];
            read(values, bytemuck::cast_slice_mut(&mut host), &self.gpu.queue)?;
            if let Some(reason) = self.check_values(&host)? {
                return Err(Error::argument(reason.to_string()));
            }
            return self.set_values(&host);
        }
        if self.host.is_none() {
            // SAFETY: by this function's own contract.
            let refusal = unsafe { self.operator.check_values(&self.gpu, values)? };
            if let Some(reason) = refusal {
                return Err(Error::argument(reason.to_string()));
            }
            // SAFETY: by this function's own contract.
            unsafe { self.operator.take_values(&self.gpu, values)? };
        } else {
            self.take_by_source(values)?;
        }
        self.gpu.synchronize()
    }

    /// Scatters values to the slots of a layout that the host converted.
    fn take_by_source(&mut self, values: cuda::CUdeviceptr) -> Result<()> {
        if self.sources.is_none() {
            self.sources = Some(self.find_sources()?);
        }
        let sources = self.sources.as_deref().unwrap_or(&[]);
        for (array, source) in self.operator.value_arrays().zip(sources) {
            let slots = source.bytes() / 4;
            let addresses = [source.address(), values, array.address()];
            let launch = take_values(T::PRECISION, slots, addresses);
            let step = PreparedLaunch::new(&self.gpu, &launch, plain)?;
            if let Some(step) = step {
                // SAFETY: the arrays have this many slots and live as long as `self`; the values
                // live until the stream is synchronised, by the caller's contract.
                unsafe { step.launch([0; 3], T::ZERO, T::ZERO, self.gpu.queue.as_inner())? };
            }
        }
        Ok(())
    }

    /// Finds the source of each slot: puts numbers in place of the layout's values and reads where
    /// they went.
    ///
    /// Afterwards, the host's layout gives only the positions of values; the device's arrays hold
    /// the values.
    fn find_sources(&mut self) -> Result<Vec<Memory>> {
        let Some(layout) = &mut self.host else { return Ok(Vec::new()) };
        // Memory is allocated first, so that the layout keeps its values if that fails.
        let bytes_of = |array: &Memory| array.bytes() / size_of::<T>() as u64 * 4;
        let places = self.operator.value_arrays().map(bytes_of);
        let places: Vec<Memory> =
            places.map(|bytes| Memory::new(bytes, &self.gpu.queue)).collect::<Result<_>>()?;
        for (place, array) in places.iter().zip(sources(layout.as_mut(), self.nnz)) {
            place.write(bytemuck::cast_slice(&array))?;
        }
        Ok(places)
    }

    /// Converts the matrix back to CSR.
    ///
    /// # Errors
    /// [`Error::Device`] if the copy from the device fails.
    pub fn to_csr(&self) -> Result<Csr<T>> {
        match (&self.host, self.operator.source()) {
            (Some(layout), _) => match &self.sources {
                None => Ok(layout.to_csr()),
                Some(sources) => self.with_newest(layout.to_csr(), sources),
            },
            (None, Some((csr, values))) => csr.download(&self.gpu, values),
            (None, None) => unreachable!("an operator is made on the host or on the device"),
        }
    }

    /// Returns the transpose of the matrix with its newest values, on the same GPU, and whether it is the
    /// matrix itself; `None` if the host converted the matrix, whose CSR the GPU then does not hold.
    ///
    /// # Errors
    /// As [`DeviceCsr::transpose`].
    pub fn transpose(&self) -> Result<Option<(DeviceCsr<T>, bool)>> {
        let Some((csr, values)) = self.operator.source() else { return Ok(None) };
        let transpose = csr.transpose_of(&self.gpu, values)?;
        let is_symmetric = csr.equals(values, &transpose, &self.gpu)?;
        Ok(Some((transpose, is_symmetric)))
    }

    /// Replaces the values of `csr` by those in the device's arrays.
    fn with_newest(&self, mut csr: Csr<T>, sources: &[Memory]) -> Result<Csr<T>> {
        for (array, source) in self.operator.value_arrays().zip(sources) {
            let slots = source.bytes() as usize / 4;
            let (mut from, mut slot_values) = (vec![0u32; slots], vec![T::ZERO; slots]);
            source.read(bytemuck::cast_slice_mut(&mut from))?;
            array.read(bytemuck::cast_slice_mut(&mut slot_values))?;
            let values = csr.values_mut();
            for (&from, &value) in from.iter().zip(&slot_values) {
                if let Some(place) = values.get_mut(from as usize) {
                    *place = value;
                }
            }
        }
        Ok(csr)
    }
}

/// Returns, for each array of values of a layout, the CSR entry from which each slot takes its
/// value, or 2^32 - 1 for none. Overwrites the layout's values.
fn sources<T: Scalar>(layout: &mut dyn Layout<T>, nnz: usize) -> Vec<Vec<u32>> {
    // Numbers start at 1. They are written at once if the precision can hold all of them, otherwise
    // 20 bits at a time.
    let at_once = T::PRECISION == Precision::F64 || nnz < 1 << f32::MANTISSA_DIGITS;
    let (digits, digit_bits) = if at_once { (1, 32) } else { (2, 20) };
    let mut found: Vec<Vec<u32>> = Vec::new();
    for digit in 0..digits {
        let shift = digit * digit_bits;
        let number = |k: u32| T::from_f64(f64::from((k >> shift) & low_bits(digit_bits)) + 1.0);
        let numbers: Vec<T> = (0..nnz as u32).into_par_iter().map(number).collect();
        layout.set_values(&numbers);
        let Some(described) = layout.on_device() else { return Vec::new() };
        let arrays = described.values.iter().map(|&i| {
            let slots = bytemuck::cast_slice::<u8, T>(described.arrays[i].bytes);
            let read = |slot: &T| match slot.to_f64() {
                number if number >= 1.0 => (number as u32 - 1) << shift,
                _ => u32::MAX,
            };
            slots.par_iter().map(read).collect::<Vec<u32>>()
        });
        let arrays: Vec<Vec<u32>> = arrays.collect();
        match digit {
            0 => found = arrays,
            _ => found.iter_mut().zip(&arrays).for_each(|(low, high)| {
                low.par_iter_mut().zip(high).for_each(|(low, high)| *low |= high);
            }),
        }
    }
    found
}

/// Describes a launch that copies new values to the slots of an array; the addresses are those of
/// the slots' entries, of the values in the order of the CSR matrix, and of the array.
pub(super) fn take_values(precision: Precision, slots: u64, addresses: [u64; 3]) -> Launch {
    let args = [slots].into_iter().chain(addresses).map(Arg::U64).collect();
    Launch::over("convert", format!("take_values_{precision}"), slots, 256, args)
}

fn low_bits(bits: u32) -> u32 {
    u32::MAX >> (32 - bits)
}
