//! Products with dot products of their result, and with its multiple added to another vector.
//!
//! Formats with a kernel for it compute all in one pass over the matrix; each block of the kernel writes
//! partial sums. Otherwise a second kernel computes the partial sums of all dot products, and the sum of
//! vectors, in one pass over the vectors. A last kernel adds the partial sums, always in the same order.

use std::sync::{OnceLock, PoisonError};

use cust::sys as cuda;

use super::launch::{PreparedLaunch, Vectors, bits, plain};
use super::memory::Memory;
use super::several::queue_launch;
use super::vector_ops::parts_of;
use super::{DeviceSlice, DeviceSliceMut, GpuOperator};
use crate::dots::{DotWith, Fused, MOST, Wanted};
use crate::error::Result;
use crate::format::{Arg, Launch};
use crate::scalar::{Precision, Scalar};
use ellect_kernels::shared;

/// Name of the image.
pub(super) const IMAGE: &str = "dots";

/// Threads of the block that adds the partial sums of one dot product.
const SUM_THREADS: u32 = shared("DOTS_THREADS") as u32;

/// Whatever dot products with an operator need; made at the first one.
pub(super) type ReadyDots = OnceLock<Ready>;

pub(super) struct Ready {
    /// The launch in place of the product's only one; `None` if the format has none.
    fused: Option<PreparedLaunch>,
    /// Number of partial sums of each dot product.
    count: u64,
    parts: Memory,
}

/// Addresses and factors of one call.
#[derive(Clone, Copy)]
struct Call<T> {
    alpha: T,
    x: cuda::CUdeviceptr,
    beta: T,
    y: cuda::CUdeviceptr,
    dots: cuda::CUdeviceptr,
    /// gamma and w of w = w + gamma y.
    add: Option<(T, cuda::CUdeviceptr)>,
    stream: cuda::CUstream,
}

impl<T: Scalar> GpuOperator<T> {
    /// Queues y = alpha A x + beta y and dot products of the new y on the GPU's stream, and returns
    /// without waiting; with `beta = 0`, y is written and never read.
    ///
    /// The results are written to `dots` on the GPU, in the order of `with`, so that a solver can use
    /// them there ([`Factor::quotient`](super::Factor::quotient)). If
    /// [`GpuOperator::fuses_dots`], they are computed in the pass of the product, otherwise in one more
    /// pass over the vectors. Sums are computed in double precision, in an order that depends on the
    /// operator alone: equal vectors give equal bits.
    ///
    /// The first call finds the kernels and allocates memory; see [`GpuOperator::ready_dots`].
    ///
    /// ```no_run
    /// use ellect::dots::DotWith;
    /// use ellect::{Csr, Tuner, Workload};
    ///
    /// # fn main() -> ellect::Result<()> {
    /// let csr = Csr::from_triplets(2, 2, [(0, 0, 4.0), (0, 1, 1.0), (1, 1, 5.0)])?;
    /// let operator = Tuner::open("cuda:0")?.prepare(&csr, &Workload::default())?;
    /// let a = operator.on_device().expect("prepared on a GPU");
    /// let p = a.gpu().vector(&[1.0, 2.0])?;
    /// let (mut q, mut pq) = (a.gpu().zeros(2)?, a.gpu().zeros(1)?);
    /// a.apply_dot(1.0, &p, 0.0, &mut q, &[DotWith::X], &mut pq)?;
    ///
    /// let mut host = [0.0];
    /// pq.read(&mut host)?;
    /// assert_eq!(host, [26.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`GpuOperator::apply`]; [`Error::Argument`](crate::Error::Argument) for more than [`MOST`] dot products, several with
    /// other vectors, or one with x where the matrix is not square; [`Error::Shape`](crate::Error::Shape) unless `dots` has an
    /// element for each of `with`, and z as many as y.
    pub fn apply_dot<'x, 'y, 'z, 'd>(
        &self,
        alpha: T,
        x: impl Into<DeviceSlice<'x, T>>,
        beta: T,
        y: impl Into<DeviceSliceMut<'y, T>>,
        with: &[DotWith<DeviceSlice<'z, T>>],
        dots: impl Into<DeviceSliceMut<'d, T>>,
    ) -> Result<()> {
        self.apply_fused(alpha, x, beta, y, Fused::new().dots(with, dots))
    }

    /// Queues y = alpha A x + beta y, and of the new y what `fused` asks for: dot products as
    /// [`GpuOperator::apply_dot`] does, and w = w + gamma y. Returns without waiting.
    ///
    /// If [`GpuOperator::fuses_dots`], all is computed in the pass of the product, otherwise in one more
    /// pass over the vectors.
    ///
    /// ```no_run
    /// use ellect::dots::{DotWith, Fused};
    /// use ellect::{Csr, Tuner, Workload};
    ///
    /// # fn main() -> ellect::Result<()> {
    /// let csr = Csr::from_triplets(2, 2, [(0, 0, 4.0), (0, 1, 1.0), (1, 1, 5.0)])?;
    /// let operator = Tuner::open("cuda:0")?.prepare(&csr, &Workload::default())?;
    /// let a = operator.on_device().expect("prepared on a GPU");
    /// let x = a.gpu().vector(&[1.0, 2.0])?;
    /// let (mut y, mut w, mut yy) = (a.gpu().zeros(2)?, a.gpu().zeros(2)?, a.gpu().zeros(1)?);
    /// let fused = Fused::new().dots(&[DotWith::Y], &mut yy).add(-0.5, &mut w);
    /// a.apply_fused(1.0, &x, 0.0, &mut y, fused)?;
    ///
    /// let mut host = [0.0; 2];
    /// w.read(&mut host)?;
    /// assert_eq!(host, [-3.0, -5.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`GpuOperator::apply_dot`]; [`Error::Shape`](crate::Error::Shape) unless w has as many elements
    /// as y.
    pub fn apply_fused<'x, 'y, 'z, 'w>(
        &self,
        alpha: T,
        x: impl Into<DeviceSlice<'x, T>>,
        beta: T,
        y: impl Into<DeviceSliceMut<'y, T>>,
        fused: Fused<'_, T, DeviceSlice<'z, T>, DeviceSliceMut<'w, T>>,
    ) -> Result<()> {
        let (x, y) = (x.into(), y.into());
        self.check_vectors(&x, &y)?;
        let Wanted { count, bits, places, z } = Wanted::of(&fused, [self.nrows, self.ncols])?;
        fused.check_lengths(self.nrows, |z| z.len(), |w| w.len())?;
        let queue = &self.gpu.queue;
        z.map_or(Ok(()), |z| z.check(queue, "z"))?;
        fused.results.as_ref().map_or(Ok(()), |dots| dots.check(queue, "the list of results"))?;
        fused.add.as_ref().map_or(Ok(()), |(_, w)| w.check(queue, "w"))?;
        let wanted = Wanted { count, bits, places, z: z.map(|z| z.address()) };
        self.gpu.make_current()?;
        let stream = queue.as_inner();
        let dots = fused.results.map_or(0, |dots| dots.address());
        let add = fused.add.map(|(gamma, w)| (gamma, w.address()));
        let (x, y) = (x.address(), y.address());
        let _turn = self.queueing.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the vectors are checked. Memory of vectors and of this operator is freed in order on
        // the same stream, and the lock keeps the launches of a product together.
        unsafe { self.queue_dots(Call { alpha, x, beta, y, dots, add, stream }, &wanted) }
    }

    /// Queues y = alpha A x + beta y, and of the new y what `fused` asks for, on `stream`, for device
    /// addresses: [`GpuOperator::apply_fused`] for a stream of one's own and for CUDA graphs.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) as [`GpuOperator::apply_dot`]; otherwise as
    /// [`CudaOperator::apply_raw`](super::CudaOperator::apply_raw).
    ///
    /// # Safety
    /// As [`CudaOperator::apply_raw`](super::CudaOperator::apply_raw); moreover, the address of the
    /// results is that of an element for each dot product, and those of z and w are each that of `nrows`
    /// values, on this GPU; they stay valid as long, and neither the results, y nor w overlap another
    /// vector. [`GpuOperator::ready_dots`] has been called.
    pub unsafe fn apply_fused_raw(
        &self,
        alpha: T,
        x: cuda::CUdeviceptr,
        beta: T,
        y: cuda::CUdeviceptr,
        fused: Fused<'_, T, cuda::CUdeviceptr, cuda::CUdeviceptr>,
        stream: cuda::CUstream,
    ) -> Result<()> {
        let wanted = Wanted::of(&fused, [self.nrows, self.ncols])?;
        let (dots, add) = (fused.results.unwrap_or(0), fused.add);
        // SAFETY: by this function's own contract.
        unsafe { self.queue_dots(Call { alpha, x, beta, y, dots, add, stream }, &wanted) }
    }

    /// Tells whether dot products and w = w + gamma y are computed in the pass of the product: the format
    /// has a kernel for it. Otherwise, [`GpuOperator::apply_fused`] reads the vectors once more.
    pub fn fuses_dots(&self) -> bool {
        let only = self.only_step().map(PreparedLaunch::described);
        only.is_some_and(|step| self.format.with_dots(&step).is_some())
    }

    /// Loads the kernels for products with dot products, and allocates memory for partial sums: about 8
    /// bytes for every 85 rows. Later calls do nothing.
    ///
    /// [`GpuOperator::apply_fused`] does this at its first call. Call it before such a product is captured
    /// in a CUDA graph.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if memory runs out.
    pub fn ready_dots(&self) -> Result<()> {
        self.gpu.make_current()?;
        self.ready().map(|_| ())
    }

    /// Returns the launch of a product that consists of one launch.
    fn only_step(&self) -> Option<&PreparedLaunch> {
        match self.operator.steps() {
            Some([step]) => Some(step),
            _ => None,
        }
    }

    fn ready(&self) -> Result<&Ready> {
        if let Some(ready) = self.dots.get() {
            return Ok(ready);
        }
        let step = self.only_step();
        let fused = step.map(|step| step.with_dots(&self.gpu, self.format)).transpose()?.flatten();
        let apart = parts_of(self.nrows as u64);
        let count = fused.as_ref().map_or(apart, |fused| u64::from(fused.grid()));
        self.gpu.module(IMAGE)?;
        let parts = Memory::new(8 * MOST as u64 * count.max(1), &self.gpu.queue)?;
        // Other streams may use the memory once this one has reached the allocation.
        self.gpu.synchronize()?;
        Ok(self.dots.get_or_init(|| Ready { fused, count, parts }))
    }

    /// Queues a product, and what is wanted of y.
    ///
    /// # Safety
    /// As [`GpuOperator::apply_fused_raw`], but on the GPU's own stream nothing needs to be ready.
    unsafe fn queue_dots(&self, call: Call<T>, wanted: &Wanted<cuda::CUdeviceptr>) -> Result<()> {
        let Call { alpha, x, beta, y, dots, add, stream } = call;
        if wanted.bits == 0 {
            // SAFETY: by this function's own contract.
            return unsafe { self.operator.apply_raw(alpha, x, beta, y, stream) };
        }
        let Ready { fused, count, parts } = self.ready()?;
        let (parts, z) = (parts.address(), wanted.z.unwrap_or(0));
        let (gamma, w) = add.unwrap_or((T::ZERO, 0));
        let of_dots = [z, u64::from(wanted.bits), parts, w, bits(gamma)];
        let vectors = Vectors { addresses: [x, y, 0], dots: of_dots, ..Vectors::default() };
        // SAFETY: for all launches, by this function's own contract; the partial sums have a place for
        // each block, and live as long as `self`.
        unsafe {
            match (fused, self.only_step()) {
                (Some(fused), Some(step)) => {
                    fused.launch_after(step, vectors, alpha, beta, stream)?;
                }
                _ => {
                    self.operator.apply_raw(alpha, x, beta, y, stream)?;
                    let n = self.nrows as u64;
                    let launch = parts_launch(T::PRECISION, n, add.is_some());
                    if let Some(step) = PreparedLaunch::new(&self.gpu, &launch, plain)? {
                        step.overlapping(&self.gpu).launch(vectors, alpha, beta, stream)?;
                    }
                }
            }
            let launch =
                sum_launch(T::PRECISION, *count, wanted.places, wanted.count, [parts, dots]);
            queue_launch::<T>(&self.gpu, &launch, stream)
        }
    }
}

/// Describes the launch that computes partial sums of dot products of y, of `n` elements, and
/// w = w + gamma y if it `adds`.
fn parts_launch(precision: Precision, n: u64, adds: bool) -> Launch {
    let mut args = vec![Arg::U64(n), Arg::X, Arg::Y, Arg::Z, Arg::Wanted, Arg::Parts];
    let mut kernel = "dots_parts".to_string();
    if adds {
        args.extend([Arg::W, Arg::Gamma]);
        kernel += "_add";
    }
    super::vector_ops::over_parts(IMAGE, format!("{kernel}_{precision}"), parts_of(n), args)
}

/// Describes the launch that adds `count` partial sums for each of `results` results, which are the dot
/// products `places`; the addresses are those of the partial sums and of the results.
pub(super) fn sum_launch(
    precision: Precision,
    count: u64,
    places: u32,
    results: usize,
    [parts, to]: [u64; 2],
) -> Launch {
    let args = vec![Arg::U32(count as u32), Arg::U64(parts), Arg::U32(places), Arg::U64(to)];
    let threads = results as u64 * u64::from(SUM_THREADS);
    Launch::over(IMAGE, format!("dots_sum_{precision}"), threads, SUM_THREADS, args)
}

/// Returns the launches of dot products, with invented addresses, for the check of signatures.
#[cfg(test)]
pub(super) fn launches(precision: Precision) -> Vec<Launch> {
    let [parts, add] = [false, true].map(|adds| parts_launch(precision, 5, adds));
    vec![parts, add, sum_launch(precision, 1, 36, 3, [32, 40])]
}
