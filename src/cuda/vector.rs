//! Vectors in the memory of a GPU, and parts of them.
//!
//! All operations on vectors are queued on one stream, the GPU's own ([`Gpu::stream`]), in the order
//! of the calls. They return without waiting; only copies from and to the host wait. Memory is freed
//! on the same stream. So no operation needs synchronisation by the caller, and a vector may be
//! dropped while kernels use it.

use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use cust::sys as cuda;

use super::memory::{Memory, Queue, read, write};
use super::{Gpu, check, failed, handle};
use crate::error::{Error, Result};
use crate::scalar::Scalar;

/// A vector in the memory of a GPU.
///
/// [`Gpu::vector`] copies one to the GPU, and [`Gpu::zeros`] allocates one.
///
/// ```no_run
/// use ellect::cuda::Gpu;
///
/// # fn main() -> ellect::Result<()> {
/// let gpu = Gpu::open(0)?;
/// let x = gpu.vector(&[1.0, 2.0, 3.0, 4.0])?;
/// let mut y = gpu.zeros(2)?;
/// gpu.axpby(2.0, x.slice(1..3)?, 0.0, &mut y)?;
///
/// let mut host = [0.0; 2];
/// y.read(&mut host)?;
/// assert_eq!(host, [4.0, 6.0]);
/// # Ok(())
/// # }
/// ```
pub struct Vector<T> {
    memory: Memory,
    len: usize,
    scalar: PhantomData<T>,
}

/// A part of a vector on a GPU, for reading.
///
/// ```no_run
/// use ellect::cuda::Gpu;
///
/// # fn main() -> ellect::Result<()> {
/// let gpu = Gpu::open(0)?;
/// let x = gpu.vector(&[1.0, 2.0, 3.0])?;
/// let mut tail = [0.0; 2];
/// x.slice(1..)?.read(&mut tail)?;
/// assert_eq!(tail, [2.0, 3.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct DeviceSlice<'a, T> {
    address: cuda::CUdeviceptr,
    len: usize,
    queue: &'a Arc<Queue>,
    scalar: PhantomData<&'a [T]>,
}

/// A part of a vector on a GPU, for writing.
///
/// ```no_run
/// use ellect::cuda::Gpu;
///
/// # fn main() -> ellect::Result<()> {
/// let gpu = Gpu::open(0)?;
/// let mut x = gpu.zeros(4)?;
/// let (mut head, mut tail) = x.slice_mut(..)?.split_at(1)?;
/// head.write(&[1.0])?;
/// tail.write(&[2.0, 3.0, 4.0])?;
/// # Ok(())
/// # }
/// ```
pub struct DeviceSliceMut<'a, T> {
    /// A slice for reading of these entries.
    part: DeviceSlice<'a, T>,
    /// Marks the entries as borrowed by this slice alone.
    alone: PhantomData<&'a mut [T]>,
}

impl<T> std::fmt::Debug for Vector<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vector").field("len", &self.len).finish_non_exhaustive()
    }
}

impl<T> std::fmt::Debug for DeviceSlice<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceSlice").field("len", &self.len).finish_non_exhaustive()
    }
}

impl<T> std::fmt::Debug for DeviceSliceMut<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceSliceMut").field("len", &self.part.len).finish_non_exhaustive()
    }
}

impl<T: Scalar> Vector<T> {
    pub(super) fn of(host: &[T], queue: &Arc<Queue>) -> Result<Self> {
        let memory = Memory::of(bytemuck::cast_slice(host), queue)?;
        Ok(Vector { memory, len: host.len(), scalar: PhantomData })
    }

    pub(super) fn zeros(len: usize, queue: &Arc<Queue>) -> Result<Self> {
        let memory = Memory::zeros(bytes_of::<T>(len)?, queue)?;
        // Synchronises, so that other streams see the zeros.
        queue.synchronize().map_err(failed("clearing device memory"))?;
        Ok(Vector { memory, len, scalar: PhantomData })
    }

    /// Returns the device address, for raw products and for other libraries.
    pub fn address(&self) -> cuda::CUdeviceptr {
        self.memory.address()
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Tells whether the vector has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns a part of the vector.
    ///
    /// # Errors
    /// [`Error::Argument`] if the range is not within the vector.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<DeviceSlice<'_, T>> {
        DeviceSlice::from(self).slice(range)
    }

    /// Returns a part of the vector for writing; [`DeviceSliceMut::split_at`] yields several.
    ///
    /// # Errors
    /// As [`Vector::slice`].
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> Result<DeviceSliceMut<'_, T>> {
        DeviceSliceMut::from(self).slice(range)
    }

    /// Overwrites all elements and waits for the copy.
    ///
    /// # Errors
    /// [`Error::Shape`] unless `host` has the same length; [`Error::Device`] if the copy fails.
    pub fn write(&mut self, host: &[T]) -> Result<()> {
        DeviceSliceMut::from(self).write(host)
    }

    /// Copies all elements to `host`, after all work queued on the GPU's stream; waits.
    ///
    /// # Errors
    /// As [`Vector::write`]; [`Error::Device`] also if a kernel queued before has failed.
    pub fn read(&self, host: &mut [T]) -> Result<()> {
        DeviceSlice::from(self).read(host)
    }
}

impl<'a, T: Scalar> DeviceSlice<'a, T> {
    /// Wraps memory of this backend.
    ///
    /// # Safety
    /// As [`DeviceSlice::from_raw`], without its checks: the memory has `len` elements and outlives
    /// the slice and the work that is queued with it.
    pub(super) unsafe fn within(
        address: cuda::CUdeviceptr,
        len: usize,
        queue: &'a Arc<Queue>,
    ) -> Self {
        DeviceSlice { address, len, queue, scalar: PhantomData }
    }

    /// Wraps memory of this GPU that another library allocated, for instance a vector of CuPy or
    /// PETSc.
    ///
    /// Everything that the driver knows about the memory is checked: its kind, its GPU and context,
    /// and that one allocation holds all `len` elements. An empty slice needs no memory, so its
    /// address is not checked.
    ///
    /// # Errors
    /// [`Error::Argument`] with the reason if `address` is null, not aligned to an element, not
    /// device memory of this GPU, or the allocation ends before the last element.
    ///
    /// # Safety
    /// Until all work queued with the slice has finished, the memory stays allocated and nothing
    /// else writes to it. Work of other streams that fills it has finished, or this GPU's stream
    /// ([`Gpu::stream`]) waits for it.
    pub unsafe fn from_raw(gpu: &'a Gpu, address: cuda::CUdeviceptr, len: usize) -> Result<Self> {
        check_foreign::<T>(gpu, address, len)?;
        Ok(DeviceSlice { address, len, queue: &gpu.queue, scalar: PhantomData })
    }

    /// Returns the device address of the first element.
    pub fn address(&self) -> cuda::CUdeviceptr {
        self.address
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Tells whether the slice has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns a part of the slice.
    ///
    /// # Errors
    /// [`Error::Argument`] if the range is not within the slice.
    pub fn slice(self, range: impl RangeBounds<usize>) -> Result<Self> {
        let (start, len) = within(range, self.len)?;
        Ok(DeviceSlice { address: element::<T>(self.address, start), len, ..self })
    }

    /// Copies all elements to `host`, after all work queued on the GPU's stream; waits.
    ///
    /// # Errors
    /// As [`Vector::read`].
    pub fn read(&self, host: &mut [T]) -> Result<()> {
        check_len(host.len(), self.len)?;
        read(self.address, bytemuck::cast_slice_mut(host), self.queue)
    }

    /// Checks that the slice is on this GPU's stream; `name` names it in the error.
    pub(super) fn check(&self, queue: &Arc<Queue>, name: &str) -> Result<()> {
        same_queue(self.queue, queue, name)
    }
}

impl<'a, T: Scalar> DeviceSliceMut<'a, T> {
    fn of(part: DeviceSlice<'a, T>) -> Self {
        DeviceSliceMut { part, alone: PhantomData }
    }

    /// Wraps memory of this backend for writing.
    ///
    /// # Safety
    /// As [`DeviceSlice::within`]; moreover, nothing else uses the memory.
    pub(super) unsafe fn within(slice: DeviceSlice<'a, T>) -> Self {
        Self::of(slice)
    }

    /// Wraps memory of this GPU that another library allocated, for writing; see
    /// [`DeviceSlice::from_raw`].
    ///
    /// # Errors
    /// As [`DeviceSlice::from_raw`].
    ///
    /// # Safety
    /// As for [`DeviceSlice::from_raw`]; moreover, nothing else reads the memory until all work
    /// queued with the slice has finished ([`Gpu::synchronize`]).
    pub unsafe fn from_raw(gpu: &'a Gpu, address: cuda::CUdeviceptr, len: usize) -> Result<Self> {
        // SAFETY: the caller promises more than reading requires.
        unsafe { DeviceSlice::from_raw(gpu, address, len) }.map(Self::of)
    }

    /// Returns the device address of the first element.
    pub fn address(&self) -> cuda::CUdeviceptr {
        self.part.address()
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.part.len()
    }

    /// Tells whether the slice has no elements.
    pub fn is_empty(&self) -> bool {
        self.part.is_empty()
    }

    /// Returns a part of the slice.
    ///
    /// # Errors
    /// [`Error::Argument`] if the range is not within the slice.
    pub fn slice(self, range: impl RangeBounds<usize>) -> Result<Self> {
        self.part.slice(range).map(Self::of)
    }

    /// Splits the slice into its first `at` elements and the others.
    ///
    /// # Errors
    /// [`Error::Argument`] if the slice has fewer than `at` elements.
    pub fn split_at(self, at: usize) -> Result<(Self, Self)> {
        let tail = self.part.slice(at..)?;
        Ok((Self::of(self.part.slice(..at)?), Self::of(tail)))
    }

    /// Returns this slice for one use, after which it can be used again.
    pub fn reborrow(&mut self) -> DeviceSliceMut<'_, T> {
        DeviceSliceMut::of(self.part)
    }

    /// Returns this slice for reading.
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        self.part
    }

    /// Overwrites all elements and waits for the copy.
    ///
    /// # Errors
    /// As [`Vector::write`].
    pub fn write(&mut self, host: &[T]) -> Result<()> {
        check_len(host.len(), self.part.len)?;
        write(self.part.address, bytemuck::cast_slice(host), self.part.queue)
    }

    /// Checks that the slice is on this GPU's stream; `name` names it in the error.
    pub(super) fn check(&self, queue: &Arc<Queue>, name: &str) -> Result<()> {
        self.part.check(queue, name)
    }
}

impl<'a, T: Scalar> From<&'a Vector<T>> for DeviceSlice<'a, T> {
    fn from(vector: &'a Vector<T>) -> Self {
        let (address, queue) = (vector.memory.address(), vector.memory.queue());
        DeviceSlice { address, len: vector.len, queue, scalar: PhantomData }
    }
}

impl<'a, T: Scalar> From<&'a mut Vector<T>> for DeviceSliceMut<'a, T> {
    fn from(vector: &'a mut Vector<T>) -> Self {
        DeviceSliceMut::of(DeviceSlice::from(&*vector))
    }
}

impl<'a, T: Scalar> From<&'a mut DeviceSliceMut<'_, T>> for DeviceSliceMut<'a, T> {
    fn from(slice: &'a mut DeviceSliceMut<'_, T>) -> Self {
        slice.reborrow()
    }
}

impl<'a, T: Scalar> From<&'a DeviceSliceMut<'_, T>> for DeviceSlice<'a, T> {
    fn from(slice: &'a DeviceSliceMut<'_, T>) -> Self {
        slice.as_slice()
    }
}

/// Returns the address of element `at` of a vector at `address`, which has at least `at` elements.
fn element<T>(address: cuda::CUdeviceptr, at: usize) -> cuda::CUdeviceptr {
    address + (at * size_of::<T>()) as u64
}

/// Returns the size of `len` elements, in bytes.
fn bytes_of<T>(len: usize) -> Result<u64> {
    let bytes = (len as u64).checked_mul(size_of::<T>() as u64);
    bytes.ok_or_else(|| Error::argument(format!("a vector cannot have {len} elements")))
}

fn check_len(got: usize, needed: usize) -> Result<()> {
    match got == needed {
        true => Ok(()),
        false => Err(Error::Shape { what: "a vector", got, needed }),
    }
}

/// Returns the start and the length of a range within `len` elements.
fn within(range: impl RangeBounds<usize>, len: usize) -> Result<(usize, usize)> {
    let start = match range.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&last) => last.saturating_add(1),
        Bound::Excluded(&end) => end,
        Bound::Unbounded => len,
    };
    if start <= end && end <= len {
        return Ok((start, end - start));
    }
    Err(Error::argument(format!("elements {start}..{end} are not within a vector of {len}")))
}

/// Checks that a vector's stream is that of the GPU which is to use it.
fn same_queue(own: &Arc<Queue>, wanted: &Arc<Queue>, name: &str) -> Result<()> {
    if Arc::ptr_eq(own, wanted) {
        return Ok(());
    }
    let [is, other] = [own, wanted].map(|queue| handle(queue.index()));
    Err(Error::argument(match is == other {
        true => format!(
            "{name} was created by another `Gpu` of {is}, whose stream is not ordered with this \
             one: create vectors with the `Gpu` of the operator"
        ),
        false => format!("{name} is on {is} and cannot be used on {other}: copy it to {other}"),
    }))
}

/// Checks memory that another library allocated.
fn check_foreign<T>(gpu: &Gpu, address: cuda::CUdeviceptr, len: usize) -> Result<()> {
    let bytes = bytes_of::<T>(len)?;
    if bytes == 0 {
        return Ok(());
    }
    let own = handle(gpu.index);
    let wrong = |why: String| Error::argument(format!("the address {address:#x} {why}"));
    if address == 0 {
        return Err(Error::argument(format!("the address of {len} elements is null")));
    }
    if !address.is_multiple_of(size_of::<T>() as u64) {
        let width = size_of::<T>();
        return Err(wrong(format!("is not a multiple of {width}, the size of an element")));
    }
    gpu.make_current()?;
    use cuda::CUpointer_attribute as Attribute;
    let kind: Option<u32> = attribute(address, Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
    if kind != Some(cuda::CUmemorytype::CU_MEMORYTYPE_DEVICE as u32) {
        return Err(wrong(format!("is not memory of a GPU: copy the data to {own}")));
    }
    let index: Option<i32> = attribute(address, Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
    if let Some(index) = index.and_then(|index| u32::try_from(index).ok())
        && index != gpu.index
    {
        return Err(wrong(format!("is memory of {}: copy the data to {own}", handle(index))));
    }
    // Memory from a pool belongs to no context.
    let context: Option<u64> = attribute(address, Attribute::CU_POINTER_ATTRIBUTE_CONTEXT);
    if context.is_some_and(|context| context != 0 && context != current_context()) {
        return Err(wrong(format!(
            "belongs to another CUDA context; only memory of the primary context of {own} can be used"
        )));
    }
    let (mut start, mut size) = (0, 0);
    // SAFETY: the driver writes two numbers; it knows the address, as it answered above.
    let code = unsafe { cuda::cuMemGetAddressRange_v2(&mut start, &mut size, address) };
    check(code, &format!("asking for the allocation at {address:#x}"))?;
    let left = start.saturating_add(size as u64).saturating_sub(address);
    if bytes > left {
        return Err(wrong(format!(
            "is followed by {left} bytes of its allocation; {len} elements take {bytes}"
        )));
    }
    Ok(())
}

/// Asks the driver for an attribute of an address; `None` if it does not know the attribute, and
/// zero for an address that it does not know, which is no error for the driver.
fn attribute<A: bytemuck::Pod>(
    address: cuda::CUdeviceptr,
    mut which: cuda::CUpointer_attribute,
) -> Option<A> {
    let mut answer = A::zeroed();
    let mut to = std::ptr::from_mut(&mut answer).cast();
    // SAFETY: the driver reads one attribute and one pointer, and writes one answer; callers choose
    // a type of the attribute's size. It reads no memory at the address.
    let code = unsafe { cuda::cuPointerGetAttributes(1, &mut which, &mut to, address) };
    (code == cuda::CUresult::CUDA_SUCCESS).then_some(answer)
}

/// Returns the calling thread's current context as a number; 0 if there is none.
fn current_context() -> u64 {
    let mut context = std::ptr::null_mut();
    // SAFETY: the driver writes one pointer.
    let code = unsafe { cuda::cuCtxGetCurrent(&mut context) };
    if code == cuda::CUresult::CUDA_SUCCESS { context as u64 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_within_the_vector() {
        assert_eq!(within(.., 5).expect("all"), (0, 5));
        assert_eq!(within(1..3, 5).expect("a part"), (1, 2));
        assert_eq!(within(5.., 5).expect("nothing"), (5, 0));
        assert_eq!(within(..=4, 5).expect("all"), (0, 5));
        for (start, end) in [(0, 6), (6, 6), (3, 2), (1, usize::MAX)] {
            let error = within(start..end, 5).expect_err("outside").to_string();
            assert!(error.contains(&format!("{start}..{end}")), "{error}");
        }
        assert!(within(..=usize::MAX, 5).is_err());
    }

    #[test]
    fn sizes_that_overflow_are_errors() {
        assert_eq!(bytes_of::<f64>(3).expect("small"), 24);
        assert!(bytes_of::<f64>(usize::MAX / 4).is_err());
    }
}
