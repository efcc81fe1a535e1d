//! A prepared matrix on a GPU: the operator, and what products with host vectors and updates of
//! values need besides.

use std::sync::{Arc, Mutex, PoisonError};

use cust::sys as cuda;
use rayon::prelude::*;

use super::memory::{Memory, read};
use super::operator::{Step, plain};
use super::{CudaOperator, DeviceCsr, Gpu, Vector, cusparse};
use crate::csr::{Csr, CsrRef};
use crate::error::{Error, Result};
use crate::format::{Arg, Candidate, Launch, Layout, Refusal, Target};
use crate::scalar::{Precision, Scalar};
use crate::structure::Structure;

/// A matrix in a candidate's layout on a GPU.
pub struct Placed<T: Scalar> {
    gpu: Arc<Gpu>,
    operator: CudaOperator<T>,
    /// The layout, where the host made it.
    host: Option<Box<dyn Layout<T>>>,
    order: Option<Vec<u32>>,
    nnz: usize,
    /// Which value of the CSR matrix goes to each slot of a layout that the host made.
    sources: Option<Vec<Memory>>,
    staging: Mutex<Option<(Vector<T>, Vector<T>)>>,
}

impl<T: Scalar> Placed<T> {
    /// Converts on the GPU where the format can, else on the host, and uploads.
    ///
    /// # Errors
    /// [`Error::Refused`] where the candidate does not suit the matrix,
    /// [`Error::Device`] by the device.
    pub fn new(
        gpu: &Arc<Gpu>,
        device_csr: &Arc<DeviceCsr<T>>,
        csr: CsrRef<'_, T>,
        structure: &Structure<'_>,
        candidate: &Candidate,
        target: &Target<'_>,
    ) -> Result<Self> {
        if let Some(built) = Placed::built(gpu, device_csr, candidate, target)? {
            return Ok(built);
        }
        let layout = candidate.convert(csr, structure, target)?;
        let vendor = layout.on_device().and_then(|described| described.vendor);
        cusparse::check_vendor(candidate, vendor.as_ref())?;
        let operator = gpu.upload(layout.as_ref())?;
        let order = layout.order().map(<[u32]>::to_vec);
        Ok(Placed { host: Some(layout), ..Placed::of(gpu, operator, order, csr.nnz()) })
    }

    /// Converts on the GPU; `None` where the format is made on the host.
    ///
    /// # Errors
    /// As [`Placed::new`].
    pub fn built(
        gpu: &Arc<Gpu>,
        device_csr: &Arc<DeviceCsr<T>>,
        candidate: &Candidate,
        target: &Target<'_>,
    ) -> Result<Option<Self>> {
        let Some(operator) = gpu.convert(device_csr, candidate, target)? else { return Ok(None) };
        let order = operator.order()?;
        Ok(Some(Placed::of(gpu, operator, order, device_csr.matrix().nnz)))
    }

    fn of(gpu: &Arc<Gpu>, operator: CudaOperator<T>, order: Option<Vec<u32>>, nnz: usize) -> Self {
        Placed {
            gpu: Arc::clone(gpu),
            operator,
            host: None,
            order,
            nnz,
            sources: None,
            staging: Mutex::new(None),
        }
    }

    /// The GPU.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// What multiplies.
    pub fn operator(&self) -> &CudaOperator<T> {
        &self.operator
    }

    /// [`CudaOperator::images`].
    pub fn images(&self) -> impl Iterator<Item = &'static str> {
        self.operator.images()
    }

    /// Whether the conversion was made on the GPU.
    pub fn is_built(&self) -> bool {
        self.host.is_none()
    }

    /// See [`Layout::order`].
    pub fn order(&self) -> Option<&[u32]> {
        self.order.as_deref()
    }

    /// One product with host vectors of the matrix's lengths: copies x and y over, multiplies, copies
    /// y back.
    ///
    /// # Errors
    /// [`Error::Device`] from any step.
    pub(crate) fn apply(&self, alpha: T, x: &[T], beta: T, y: &mut [T]) -> Result<()> {
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
        let (at_x, at_y) = (device_x.address(), device_y.address());
        // SAFETY: both vectors live until the copy below has waited for the stream; the caller has
        // checked their lengths against the matrix.
        unsafe { self.operator.apply_raw(alpha, at_x, beta, at_y, self.gpu.queue.as_inner())? };
        device_y.read(y)
    }

    /// Why the layout cannot hold these values, `nnz` of them: see [`Layout::check_values`].
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
        // SAFETY: the vector holds as many values as the matrix has entries, and lives meanwhile.
        unsafe { self.operator.check_values(&self.gpu, values.address()) }
    }

    /// Puts in new values from the host, `nnz` of them in the order of the CSR matrix.
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
        // SAFETY: the vector is dropped behind this work on the same stream.
        unsafe { self.operator.take_values(&self.gpu, values.address())? };
        // Products on other streams find them.
        self.gpu.synchronize()
    }

    /// Lets products read values of this operator's own, not those of the CSR matrix that it was made
    /// of, and waits. Formats that convert nothing (`csr`, fused `pcsr`, cuSPARSE's CSR) otherwise do
    /// so from the first update of values on, and a product that was captured in a CUDA graph before
    /// does not see it. Takes `nnz` values of memory; where products read own values, nothing changes.
    ///
    /// # Errors
    /// [`Error::Device`] where the memory does not suffice.
    pub fn own_values(&mut self) -> Result<()> {
        self.gpu.make_current()?;
        self.operator.own_values(&self.gpu)?;
        self.gpu.synchronize()
    }

    /// Puts in new values that are on the device, in the order of the CSR matrix, and waits.
    ///
    /// # Errors
    /// [`Error::Device`] from any step,
    /// [`Error::Argument`] by a layout that was made for values that are
    /// alike.
    ///
    /// # Safety
    /// `values` is the address of `nnz` values on this GPU, written by now.
    pub unsafe fn set_device_values(&mut self, values: cuda::CUdeviceptr) -> Result<()> {
        self.gpu.make_current()?;
        // Numbers of 32 bits tell where each value went.
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

    /// Scatters values to the slots of a layout that the host made.
    fn take_by_source(&mut self, values: cuda::CUdeviceptr) -> Result<()> {
        if self.sources.is_none() {
            self.sources = Some(self.find_sources()?);
        }
        let sources = self.sources.as_deref().unwrap_or(&[]);
        for (array, source) in self.operator.value_arrays().zip(sources) {
            let slots = source.bytes() / 4;
            let addresses = [source.address(), values, array.address()];
            let launch = take_values(T::PRECISION, slots, addresses);
            let step = Step::new(&self.gpu, &launch, plain)?;
            if let Some(step) = step {
                // SAFETY: the arrays have so many slots and live as long as `self`, the values by
                // the caller's contract until the stream is waited for.
                unsafe { step.launch([0; 3], T::ZERO, T::ZERO, self.gpu.queue.as_inner())? };
            }
        }
        Ok(())
    }

    /// Lets the layout place numbers in place of values, and reads where they went. From then on
    /// the host's layout tells where values lie, and the device's arrays what they are.
    fn find_sources(&mut self) -> Result<Vec<Memory>> {
        let Some(layout) = &mut self.host else { return Ok(Vec::new()) };
        // The memory first: without it, the layout keeps its values.
        let bytes_of = |array: &Memory| array.bytes() / size_of::<T>() as u64 * 4;
        let places = self.operator.value_arrays().map(bytes_of);
        let places: Vec<Memory> =
            places.map(|bytes| Memory::new(bytes, &self.gpu.queue)).collect::<Result<_>>()?;
        for (place, array) in places.iter().zip(sources(layout.as_mut(), self.nnz)) {
            place.write(bytemuck::cast_slice(&array))?;
        }
        Ok(places)
    }

    /// The matrix, converted back.
    ///
    /// # Errors
    /// [`Error::Device`] where the copy from the device fails.
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

    /// This matrix with the values that the device's arrays hold.
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

/// For each array of values of a layout, the CSR entry that each slot takes its value from, or
/// 2^32 - 1. The layout's values are lost.
fn sources<T: Scalar>(layout: &mut dyn Layout<T>, nnz: usize) -> Vec<Vec<u32>> {
    // Numbers from 1 on: at once where the precision holds them all, else 20 bits at a time.
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
            let slots = bytemuck::cast_slice::<u8, T>(described.arrays[i]);
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

/// A launch that puts new values into the slots of an array: the addresses of the entry of each
/// slot, of the values in the order of the CSR matrix, and of the array.
pub(super) fn take_values(precision: Precision, slots: u64, addresses: [u64; 3]) -> Launch {
    let args = [slots].into_iter().chain(addresses).map(Arg::U64).collect();
    Launch::over("convert", format!("take_values_{precision}"), slots, 256, args)
}

fn low_bits(bits: u32) -> u32 {
    u32::MAX >> (32 - bits)
}
