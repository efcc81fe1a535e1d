//! Products of a prepared matrix with several vectors at once.
//!
//! The vectors are multiplied in groups of 8, 4, 2 and 1, as the format's kernels for several vectors
//! take them; each group reads the matrix once. Kernels gather the elements that all vectors of a group
//! have in one row. They are fastest where these follow each other in memory (row-major), so the
//! vectors of a column-major group are copied to that form first, unless neighbouring rows of the
//! matrix read neighbouring elements, where the copy costs more than it saves
//! ([`GpuOperator::ready_many`] times both). A format without such kernels multiplies one vector after
//! the other.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use cust::sys as cuda;

use super::launch::{PreparedLaunch, Vectors, plain};
use super::memory::Memory;
use super::{DeviceDense, DeviceDenseMut, Gpu, GpuOperator};
use crate::dense::{self, DenseMut, DenseRef};
use crate::error::{Error, Result};
use crate::format::{Access, Arg, Launch, Several, WIDTHS};
use crate::scalar::{Precision, Scalar};

/// Several vectors on a GPU: element v of row r is at `address`, plus `r * row + v * vector` elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub address: cuda::CUdeviceptr,
    pub row: u64,
    pub vector: u64,
}

impl Block {
    /// Returns the vectors from `first` on.
    fn from<T>(self, first: u64) -> Self {
        let address = self.address + first * self.vector * size_of::<T>() as u64;
        Block { address, ..self }
    }

    /// Tells whether `vectors` of them are packed by rows, as kernels need it.
    fn is_packed<T>(self, vectors: u32) -> bool {
        let aligned = (u64::from(vectors) * size_of::<T>() as u64).min(16);
        let starts = [self.address, self.row * size_of::<T>() as u64];
        self.vector == 1 && starts.iter().all(|start| start.is_multiple_of(aligned))
    }
}

/// The kernels of an operator for several vectors, and the memory that they need.
#[derive(Default)]
pub(super) struct SeveralVectors {
    /// The launches for each of [`Several::ALL`], in the order of the operator's own; empty if there
    /// are none.
    kernels: [OnceLock<Vec<PreparedLaunch>>; Several::ALL.len()],
    /// Holds packed vectors, or one vector of X and one of Y.
    scratch: Mutex<Option<Memory>>,
    /// Set if column-major vectors are not packed.
    direct: AtomicBool,
    /// Vectors for which [`GpuOperator::ready_many`] was called: the largest group; with cuSPARSE, their
    /// number.
    ready: AtomicU32,
}

impl SeveralVectors {
    /// Forgets the memory, which belongs to a stream.
    pub fn reset(&mut self) {
        self.scratch = Mutex::default();
        self.ready = AtomicU32::default();
    }
}

/// The product of one call.
#[derive(Clone, Copy)]
pub(super) struct Product<T> {
    pub alpha: T,
    pub x: Block,
    pub beta: T,
    pub y: Block,
    pub stream: cuda::CUstream,
}

impl<T: Scalar> Product<T> {
    /// Returns the addresses and strides.
    fn vectors(&self) -> Vectors {
        let (x, y) = (self.x, self.y);
        Vectors {
            addresses: [x.address, y.address, 0],
            strides: [x.row, x.vector, y.row, y.vector],
            ..Vectors::default()
        }
    }
}

impl<T: Scalar> GpuOperator<T> {
    /// Queues Y = alpha A X + beta Y on `stream`, for several vectors at device addresses: vector v of
    /// X starts at `x + v * ncols` elements, that of Y at `y + v * nrows`.
    ///
    /// [`GpuOperator::ready_many`] must have been called for at least as many vectors.
    ///
    /// # Errors
    /// As [`CudaOperator::apply_raw`](super::CudaOperator::apply_raw).
    ///
    /// # Safety
    /// As [`CudaOperator::apply_raw`](super::CudaOperator::apply_raw), for `count` vectors.
    pub unsafe fn apply_many_raw(
        &self,
        count: usize,
        alpha: T,
        x: cuda::CUdeviceptr,
        beta: T,
        y: cuda::CUdeviceptr,
        stream: cuda::CUstream,
    ) -> Result<()> {
        let columns = |address, n: usize| Block { address, row: 1, vector: n as u64 };
        let (x, y) = (columns(x, self.ncols), columns(y, self.nrows));
        // SAFETY: by this function's own contract.
        unsafe { self.queue_many(count as u64, Product { alpha, x, beta, y, stream }) }
    }

    /// Queues Y = alpha A X + beta Y for several vectors, the columns of X and Y, on the GPU's stream
    /// and returns without waiting; with `beta = 0`, Y is written and never read.
    ///
    /// Formats with kernels for several vectors (`csr`, `hll`) read the matrix once for up to 8 of
    /// them; others multiply one vector after the other. [`GpuOperator::ready_many`] makes the first
    /// such product as fast as later ones.
    ///
    /// # Errors
    /// [`Error::Shape`] unless the columns of X have `ncols` and those of Y `nrows` elements;
    /// [`Error::Argument`] if X and Y differ in their number of columns, or are on another GPU;
    /// [`Error::Device`] if a launch fails. A fault of a kernel shows when a vector is read.
    pub fn apply_many(
        &self,
        alpha: T,
        x: DeviceDense<'_, T>,
        beta: T,
        y: DeviceDenseMut<'_, T>,
    ) -> Result<()> {
        x.data().check(&self.gpu.queue, "x")?;
        y.data().check(&self.gpu.queue, "y")?;
        let count = x.ncols();
        let shapes = [[x.nrows(), count], [y.nrows(), y.ncols()]];
        dense::check_shapes([self.nrows, self.ncols], shapes)?;
        let stream = self.gpu.queue.as_inner();
        let (x, y) = (x.block(), y.block());
        self.gpu.make_current()?;
        let _turn = self.queueing.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the shapes are checked. Memory of vectors and of this operator is freed in order on
        // the same stream, and the lock keeps the launches of a product together.
        unsafe { self.queue_many(count as u64, Product { alpha, x, beta, y, stream }) }
    }

    /// As [`GpuOperator::apply_many`], for vectors in host memory that fit the matrix: copies X, and Y
    /// if it is read, to the GPU, and Y back.
    ///
    /// # Errors
    /// [`Error::Device`] from any step.
    pub(crate) fn apply_many_on_host(
        &self,
        alpha: T,
        x: DenseRef<'_, T>,
        beta: T,
        mut y: DenseMut<'_, T>,
    ) -> Result<()> {
        self.gpu.make_current()?;
        let shapes = ([x.nrows(), x.ncols()], [y.nrows(), y.ncols()]);
        let orders = ((x.order(), x.leading()), (y.order(), y.leading()));
        let on_gpu = self.gpu.vector(x.data())?;
        // Elements between columns or rows keep their values.
        let mut result = self.gpu.vector(y.as_ref().data())?;
        self.apply_many(
            alpha,
            DeviceDense::new(orders.0.0, shapes.0, orders.0.1, &on_gpu)?,
            beta,
            DeviceDenseMut::new(orders.1.0, shapes.1, orders.1.1, &mut result)?,
        )?;
        result.read(y.data_mut())
    }

    /// Queues the product with `count` vectors.
    ///
    /// # Errors
    /// [`Error::Device`] if a launch fails or memory runs out.
    ///
    /// # Safety
    /// As [`CudaOperator::apply_raw`](super::CudaOperator::apply_raw), for all vectors. The stream is
    /// the GPU's own, or [`GpuOperator::ready_many`] was called for as many vectors.
    pub(super) unsafe fn queue_many(&self, count: u64, product: Product<T>) -> Result<()> {
        // SAFETY: by this function's own contract.
        if unsafe { self.operator.apply_many_by_vendor(count, product)? } {
            return Ok(());
        }
        let mut first = 0;
        while first < count {
            let (x, y) = (product.x.from::<T>(first), product.y.from::<T>(first));
            let width = self.group(count - first)?;
            // SAFETY: by this function's own contract.
            unsafe { self.queue_group(width, Product { x, y, ..product })? };
            first += u64::from(width);
        }
        Ok(())
    }

    /// Returns the number of vectors to multiply next, of `left`.
    fn group(&self, left: u64) -> Result<u32> {
        let fits = WIDTHS.into_iter().filter(|&width| u64::from(width) <= left);
        for width in fits {
            let packed = Several { vectors: width, access: Access::Packed };
            if width == 1 || !self.kernels_for(packed)?.is_empty() {
                return Ok(width);
            }
        }
        Ok(1)
    }

    /// Returns the launches for several vectors; none if a launch for one vector has no such form.
    fn kernels_for(&self, several: Several) -> Result<&[PreparedLaunch]> {
        let Some(place) = several.index() else { return Ok(&[]) };
        let place = &self.several.kernels[place];
        if let Some(found) = place.get() {
            return Ok(found);
        }
        let steps = self.operator.steps_of_several().unwrap_or(&[]);
        let wide = steps.iter().map(|step| step.several(&self.gpu, self.format, several));
        let wide = wide.collect::<Result<Option<Vec<_>>>>()?.unwrap_or_default();
        Ok(place.get_or_init(|| wide))
    }

    /// Queues the product with one group of vectors.
    ///
    /// # Safety
    /// As [`GpuOperator::queue_many`].
    unsafe fn queue_group(&self, width: u32, product: Product<T>) -> Result<()> {
        let Product { alpha, x, beta, y, stream } = product;
        // SAFETY: for all calls, by this function's own contract.
        unsafe {
            if width == 1 {
                if x.row == 1 && y.row == 1 {
                    return self.operator.apply_raw(alpha, x.address, beta, y.address, stream);
                }
                let strided = Several { vectors: 1, access: Access::Strided };
                return match self.kernels_for(strided)? {
                    [] => self.queue_copied(product),
                    kernels => self.queue_kernels(kernels, product),
                };
            }
            let direct = self.several.direct.load(Ordering::Relaxed);
            let packed = x.is_packed::<T>(width);
            let access = if direct && !packed { Access::Strided } else { Access::Packed };
            let kernels = self.kernels_for(Several { vectors: width, access })?;
            if packed || direct {
                return self.queue_kernels(kernels, product);
            }
            let scratch = self.several.scratch.lock().unwrap_or_else(PoisonError::into_inner);
            let to = self.scratch_in(scratch)?;
            let launch = pack_launch(T::PRECISION, self.ncols as u64, width, x, to);
            queue_launch::<T>(&self.gpu, &launch, stream)?;
            let x = Block { address: to, row: u64::from(width), vector: 1 };
            self.queue_kernels(kernels, Product { x, ..product })
        }
    }

    /// Queues kernels for several vectors.
    ///
    /// # Safety
    /// As [`GpuOperator::queue_many`].
    unsafe fn queue_kernels(&self, kernels: &[PreparedLaunch], product: Product<T>) -> Result<()> {
        let Product { alpha, beta, stream, .. } = product;
        let vectors = product.vectors();
        let steps = self.operator.steps_of_several().unwrap_or(&[]).iter();
        steps.zip(kernels).try_for_each(|(one, kernel)| {
            // SAFETY: by this function's own contract.
            unsafe { kernel.launch_after(one, vectors, alpha, beta, stream) }
        })
    }

    /// Queues the product with one vector whose elements are apart: through copies.
    ///
    /// # Safety
    /// As [`GpuOperator::queue_many`].
    unsafe fn queue_copied(&self, product: Product<T>) -> Result<()> {
        let Product { alpha, x, beta, y, stream } = product;
        let scratch = self.several.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        let own_x = self.scratch_in(scratch)?;
        let own_y = own_x + self.padded_x();
        let copy = |n: usize, from: [u64; 2], to: [u64; 2]| {
            let launch = copy_launch(T::PRECISION, n as u64, from, to);
            // SAFETY: both sides have n elements in these distances.
            unsafe { queue_launch::<T>(&self.gpu, &launch, stream) }
        };
        copy(self.ncols, [x.address, x.row], [own_x, 1])?;
        if beta != T::ZERO {
            copy(self.nrows, [y.address, y.row], [own_y, 1])?;
        }
        // SAFETY: by this function's own contract.
        unsafe { self.operator.apply_raw(alpha, own_x, beta, own_y, stream)? };
        copy(self.nrows, [own_y, 1], [y.address, y.row])
    }

    /// Bytes of one vector x, up to a multiple of 16.
    fn padded_x(&self) -> u64 {
        (self.ncols as u64 * size_of::<T>() as u64).next_multiple_of(16)
    }

    /// Returns the address of the scratch memory, which is allocated at its first use.
    fn scratch_in(
        &self,
        mut scratch: std::sync::MutexGuard<'_, Option<Memory>>,
    ) -> Result<cuda::CUdeviceptr> {
        let memory = match scratch.take() {
            Some(memory) => memory,
            None => {
                let size = size_of::<T>() as u64;
                let packed = u64::from(WIDTHS[0]) * size * self.ncols as u64;
                let copied = self.padded_x() + size * self.nrows as u64;
                Memory::new(packed.max(copied), &self.gpu.queue)?
            }
        };
        Ok(scratch.insert(memory).address())
    }

    /// Returns the kernel images of products with `count` vectors; see
    /// [`CudaOperator::images`](super::CudaOperator::images).
    pub fn images_for(&self, count: usize) -> impl Iterator<Item = &'static str> {
        let several = self.several.kernels.iter().filter_map(OnceLock::get).flatten();
        let several = several.map(PreparedLaunch::image).filter(move |_| count > 1);
        self.images().chain(several)
    }

    /// Loads the kernels for products with `count` vectors, allocates the memory that they need, and
    /// times how column-major vectors are multiplied best; waits. Later calls for as many vectors do
    /// nothing.
    ///
    /// Products with several vectors do this at their first call otherwise, without the timing. Call it
    /// before such a product is captured in a CUDA graph.
    ///
    /// # Errors
    /// [`Error::Device`] from any step; [`Error::Argument`] if `count` is 0.
    pub fn ready_many(&self, count: usize) -> Result<()> {
        if count == 0 {
            return Err(Error::argument("the number of vectors is 0; pass at least 1"));
        }
        self.gpu.make_current()?;
        let _turn = self.queueing.lock().unwrap_or_else(PoisonError::into_inner);
        let (width, ready) =
            (self.group(count as u64)?, self.several.ready.load(Ordering::Relaxed));
        let by_vendor = self.operator.steps().is_none();
        if if by_vendor { ready as usize == count } else { ready >= width } {
            return Ok(());
        }
        let scratch = self.several.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        self.scratch_in(scratch)?;
        for vectors in WIDTHS.into_iter().filter(|&vectors| vectors <= width) {
            for access in [Access::Packed, Access::Strided] {
                self.kernels_for(Several { vectors, access })?;
            }
        }
        if by_vendor {
            self.time_group(count as u32, false)?;
        }
        if width > 1 {
            let [direct, packed] = [true, false].map(|direct| self.time_group(width, direct));
            let (direct, packed) = (direct?, packed?);
            self.several.direct.store(direct < packed, Ordering::Relaxed);
        }
        self.gpu.synchronize()?;
        let ready = if by_vendor { count as u32 } else { width };
        self.several.ready.store(ready, Ordering::Relaxed);
        Ok(())
    }

    /// Times products with column-major vectors.
    fn time_group(&self, width: u32, direct: bool) -> Result<Duration> {
        self.several.direct.store(direct, Ordering::Relaxed);
        let bytes = |n: usize| u64::from(width) * size_of::<T>() as u64 * n as u64;
        let x = Memory::zeros(bytes(self.ncols), &self.gpu.queue)?;
        let y = Memory::new(bytes(self.nrows), &self.gpu.queue)?;
        let block = |memory: &Memory, n: usize| Block {
            address: memory.address(),
            row: 1,
            vector: n as u64,
        };
        let product = Product {
            alpha: T::ONE,
            x: block(&x, self.ncols),
            beta: T::ZERO,
            y: block(&y, self.nrows),
            stream: self.gpu.queue.as_inner(),
        };
        // SAFETY: the vectors have the matrix's dimensions and are freed in order on this stream; the
        // caller holds the turn.
        let queue = || unsafe { self.queue_many(u64::from(width), product) };
        queue()?;
        self.gpu.synchronize()?;
        let start = Instant::now();
        (0..TIMED).try_for_each(|_| queue())?;
        self.gpu.synchronize()?;
        Ok(start.elapsed())
    }
}

/// Products of each kind that [`GpuOperator::ready_many`] times.
const TIMED: usize = 4;

/// Describes a launch that packs `vectors` vectors of `n` elements by rows.
fn pack_launch(precision: Precision, n: u64, vectors: u32, x: Block, to: u64) -> Launch {
    let args = [n, x.address, x.row, x.vector, to].map(Arg::U64).to_vec();
    Launch::over(IMAGE, format!("pack_v{vectors}_{precision}"), n, 256, args)
}

/// Describes a launch that copies `n` elements; each side is an address and a distance.
fn copy_launch(precision: Precision, n: u64, from: [u64; 2], to: [u64; 2]) -> Launch {
    let args = [n].into_iter().chain(from).chain(to).map(Arg::U64).collect();
    Launch::over(IMAGE, format!("copy_{precision}"), n, 256, args)
}

/// Returns all launches of copies, with invented addresses, for the check of signatures.
#[cfg(test)]
pub(super) fn launches(precision: Precision) -> Vec<Launch> {
    let x = Block { address: 8, row: 1, vector: 5 };
    let packs = WIDTHS.into_iter().filter(|&vectors| vectors > 1);
    let packs = packs.map(|vectors| pack_launch(precision, 5, vectors, x, 16));
    packs.chain([copy_launch(precision, 5, [8, 2], [16, 1])]).collect()
}

/// Name of the image of copies.
const IMAGE: &str = "dense";

/// Queues a kernel on vectors whose addresses are among its arguments.
///
/// # Safety
/// The vectors have the elements that the launch names, on this GPU, until the stream has finished.
pub(super) unsafe fn queue_launch<T: Scalar>(
    gpu: &Gpu,
    launch: &Launch,
    stream: cuda::CUstream,
) -> Result<()> {
    let Some(step) = PreparedLaunch::new(gpu, launch, plain)? else { return Ok(()) };
    // SAFETY: by this function's own contract.
    unsafe { step.overlapping(gpu).launch([0; 3], T::ZERO, T::ZERO, stream) }
}
