//! Operations on vectors that solvers need in addition to products: y = alpha x + beta y, bounds, dot
//! products, and steps of conjugate gradients that read each vector once.

use std::sync::{Mutex, PoisonError};

use super::dots;
use super::launch::{PreparedLaunch, plain};
use super::memory::Memory;
use super::{DeviceSlice, DeviceSliceMut, Gpu};
use crate::error::{Error, Result};
use crate::format::{Arg, Launch};
use crate::scalar::{Precision, Scalar};

/// Name of the image.
const IMAGE: &str = "vectors";

/// Threads of a block that sums.
const THREADS: u32 = ellect_kernels::shared("VECTORS_THREADS") as u32;

/// Maximum number of partial sums of a dot product.
const PARTS: u64 = ellect_kernels::shared("VECTORS_PARTS");

/// Elements for each thread of a dot product, up to [`PARTS`] blocks.
const EACH: u64 = 4;

/// Memory for the partial sums of a dot product; allocated at the first one.
pub(super) type PartialSums = Mutex<Option<Memory>>;

/// A factor of a vector: a number, which may be multiplied by a quotient of two numbers that only
/// the GPU knows.
///
/// A quotient lets a solver use the results of dot products without copying them to the host.
///
/// ```no_run
/// use ellect::cuda::{Factor, Gpu};
///
/// # fn main() -> ellect::Result<()> {
/// let gpu = Gpu::open(0)?;
/// let (x, mut y) = (gpu.vector(&[3.0, 4.0])?, gpu.zeros(2)?);
/// let (one, mut xx) = (gpu.vector(&[1.0])?, gpu.zeros(1)?);
/// gpu.dot(&x, &x, &mut xx)?;
/// gpu.axpby(Factor::quotient(50.0, &one, &xx)?, &x, 0.0, &mut y)?;
///
/// let mut host = [0.0; 2];
/// y.read(&mut host)?;
/// assert_eq!(host, [6.0, 8.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Factor<'a, T> {
    scale: T,
    quotient: Option<[DeviceSlice<'a, T>; 2]>,
}

impl<T: Scalar> From<T> for Factor<'_, T> {
    fn from(scale: T) -> Self {
        Factor { scale, quotient: None }
    }
}

impl<'a, T: Scalar> Factor<'a, T> {
    /// Creates the factor `scale * over / under` from two vectors of one element, which are read
    /// when the operation runs.
    ///
    /// If `under` is 0 then, the factor is 0: a solver that has found the exact solution stays
    /// there.
    ///
    /// # Errors
    /// [`Error::Argument`] unless both have one element.
    pub fn quotient(
        scale: T,
        over: impl Into<DeviceSlice<'a, T>>,
        under: impl Into<DeviceSlice<'a, T>>,
    ) -> Result<Self> {
        let quotient = [over.into(), under.into()];
        for (slice, what) in quotient.iter().zip(["the dividend", "the divisor"]) {
            one_element(slice.len(), what)?;
        }
        Ok(Factor { scale, quotient: Some(quotient) })
    }

    /// Returns the addresses of dividend and divisor; null if there is no quotient.
    fn addresses(&self) -> [u64; 2] {
        self.quotient.map_or([0; 2], |quotient| quotient.map(|slice| slice.address()))
    }
}

impl Gpu {
    /// Queues y = alpha x + beta y; with `beta = 0`, y is written and never read.
    ///
    /// This adds (`beta = 1`), scales and copies vectors. Returns without waiting.
    ///
    /// # Errors
    /// [`Error::Argument`] if the lengths differ or a vector is on another GPU; [`Error::Device`]
    /// if the launch fails.
    pub fn axpby<'a, 'b, 'x, 'y, T: Scalar>(
        &self,
        alpha: impl Into<Factor<'a, T>>,
        x: impl Into<DeviceSlice<'x, T>>,
        beta: impl Into<Factor<'b, T>>,
        y: impl Into<DeviceSliceMut<'y, T>>,
    ) -> Result<()> {
        let (alpha, x, beta, y) = (alpha.into(), x.into(), beta.into(), y.into());
        self.check_factors([&alpha, &beta])?;
        x.check(&self.queue, "x")?;
        y.check(&self.queue, "y")?;
        same_len(x.len(), y.len())?;
        let factors = [alpha.addresses(), beta.addresses()];
        let launch = axpby_launch(T::PRECISION, x.len() as u64, factors);
        self.queue_launch(&launch, [x.address(), y.address()], alpha.scale, beta.scale)
    }

    /// Queues y = alpha x + beta y and the dot product (y, y) of the new y, in one pass; its result is the
    /// one element of `result`. With `beta = 0`, y is written and never read. Returns without waiting.
    ///
    /// In conjugate gradients this updates the residual and computes its norm. The order of the sum
    /// depends on the length alone, as in [`Gpu::dot`].
    ///
    /// # Errors
    /// As [`Gpu::axpby`] and [`Gpu::dot`].
    pub fn axpby_dot<'a, 'b, 'x, 'y, 'r, T: Scalar>(
        &self,
        alpha: impl Into<Factor<'a, T>>,
        x: impl Into<DeviceSlice<'x, T>>,
        beta: impl Into<Factor<'b, T>>,
        y: impl Into<DeviceSliceMut<'y, T>>,
        result: impl Into<DeviceSliceMut<'r, T>>,
    ) -> Result<()> {
        let (alpha, x, beta, y) = (alpha.into(), x.into(), beta.into(), y.into());
        let result = result.into();
        self.check_factors([&alpha, &beta])?;
        x.check(&self.queue, "x")?;
        y.check(&self.queue, "y")?;
        result.check(&self.queue, "the result")?;
        same_len(x.len(), y.len())?;
        one_element(result.len(), "the result")?;
        let factors = [alpha.addresses(), beta.addresses()];
        let vectors = [x.address(), y.address()];
        self.with_partial_sums(|parts| {
            let addresses = [parts, result.address()];
            let launches = axpby_dot_launches(T::PRECISION, x.len() as u64, factors, addresses);
            let mut launches = launches.iter();
            launches.try_for_each(|one| self.queue_launch(one, vectors, alpha.scale, beta.scale))
        })
    }

    /// Queues x = x + alpha p, followed by p = r + beta p, in one pass: the step of conjugate gradients
    /// along p, and the next direction. Returns without waiting.
    ///
    /// ```no_run
    /// use ellect::cuda::Gpu;
    ///
    /// # fn main() -> ellect::Result<()> {
    /// let gpu = Gpu::open(0)?;
    /// let r = gpu.vector(&[1.0, 1.0])?;
    /// let (mut p, mut x) = (gpu.vector(&[2.0, 4.0])?, gpu.zeros(2)?);
    /// gpu.advance(0.5, &mut p, &mut x, 2.0, &r)?;
    ///
    /// let (mut of_x, mut of_p) = ([0.0; 2], [0.0; 2]);
    /// x.read(&mut of_x)?;
    /// p.read(&mut of_p)?;
    /// assert_eq!((of_x, of_p), ([1.0, 2.0], [5.0, 9.0]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Gpu::axpby`].
    pub fn advance<'a, 'b, 'p, 'x, 'r, T: Scalar>(
        &self,
        alpha: impl Into<Factor<'a, T>>,
        p: impl Into<DeviceSliceMut<'p, T>>,
        x: impl Into<DeviceSliceMut<'x, T>>,
        beta: impl Into<Factor<'b, T>>,
        r: impl Into<DeviceSlice<'r, T>>,
    ) -> Result<()> {
        let (alpha, p, x, beta, r) = (alpha.into(), p.into(), x.into(), beta.into(), r.into());
        self.check_factors([&alpha, &beta])?;
        p.check(&self.queue, "p")?;
        x.check(&self.queue, "x")?;
        r.check(&self.queue, "r")?;
        for (what, len) in [("x", x.len()), ("r", r.len())] {
            if len != p.len() {
                let n = p.len();
                return Err(Error::argument(format!("p has {n} elements, but {what} has {len}")));
            }
        }
        let factors = [alpha.addresses(), beta.addresses()];
        let launch = advance_launch(T::PRECISION, x.len() as u64, factors, r.address());
        self.queue_launch(&launch, [x.address(), p.address()], alpha.scale, beta.scale)
    }

    /// Queues y = min(max(y, lower), upper) for each element: the step of a method with bounds on its
    /// unknowns. NaN stays. Returns without waiting.
    ///
    /// ```no_run
    /// use ellect::cuda::Gpu;
    ///
    /// # fn main() -> ellect::Result<()> {
    /// let gpu = Gpu::open(0)?;
    /// let mut y = gpu.vector(&[-2.0, 0.5, 7.0])?;
    /// gpu.clamp(0.0, 1.0, &mut y)?;
    ///
    /// let mut host = [0.0; 3];
    /// y.read(&mut host)?;
    /// assert_eq!(host, [0.0, 0.5, 1.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] unless `lower` is at most `upper`, and if y is on another GPU;
    /// [`Error::Device`] if the launch fails.
    pub fn clamp<'y, T: Scalar>(
        &self,
        lower: T,
        upper: T,
        y: impl Into<DeviceSliceMut<'y, T>>,
    ) -> Result<()> {
        let y = y.into();
        y.check(&self.queue, "y")?;
        if lower.to_f64() <= upper.to_f64() {
            let launch = clamp_launch(T::PRECISION, y.len() as u64);
            return self.queue_launch(&launch, [0, y.address()], lower, upper);
        }
        Err(Error::argument(format!(
            "the lower bound is {lower}, and the upper one {upper}; the lower one must be at most the \
             upper one"
        )))
    }

    /// Checks that the numbers of these factors, alpha and beta, are on this GPU.
    fn check_factors<T: Scalar>(&self, factors: [&Factor<'_, T>; 2]) -> Result<()> {
        for (factor, name) in factors.into_iter().zip(["alpha", "beta"]) {
            let mut quotient = factor.quotient.iter().flatten();
            quotient.try_for_each(|slice| slice.check(&self.queue, name))?;
        }
        Ok(())
    }

    /// Queues the dot product of x and y, whose result is the one element of `result`. Returns
    /// without waiting.
    ///
    /// Sums are computed in double precision, in an order that depends on the length alone: equal
    /// vectors give equal bits, on every GPU.
    ///
    /// # Errors
    /// [`Error::Argument`] if the lengths differ, a vector is on another GPU, or `result` does not
    /// have one element; [`Error::Device`] if a launch fails.
    pub fn dot<'x, 'y, 'r, T: Scalar>(
        &self,
        x: impl Into<DeviceSlice<'x, T>>,
        y: impl Into<DeviceSlice<'y, T>>,
        result: impl Into<DeviceSliceMut<'r, T>>,
    ) -> Result<()> {
        let (x, y, result) = (x.into(), y.into(), result.into());
        x.check(&self.queue, "x")?;
        y.check(&self.queue, "y")?;
        result.check(&self.queue, "the result")?;
        same_len(x.len(), y.len())?;
        one_element(result.len(), "the result")?;
        let vectors = [x.address(), y.address()];
        self.with_partial_sums(|parts| {
            let launches = dot_launches(T::PRECISION, x.len() as u64, [parts, result.address()]);
            let mut launches = launches.iter();
            launches.try_for_each(|launch| self.queue_launch(launch, vectors, T::ONE, T::ZERO))
        })
    }

    /// Calls `queue` with the address of memory for [`PARTS`] partial sums, which nothing else uses until
    /// the kernels that `queue` queues have run.
    pub(super) fn with_partial_sums(&self, queue: impl FnOnce(u64) -> Result<()>) -> Result<()> {
        self.make_current()?;
        // The lock is held until all kernels are queued, so that no other sum overwrites the parts
        // between them.
        let mut sums = self.partial_sums.lock().unwrap_or_else(PoisonError::into_inner);
        let memory = match sums.take() {
            Some(memory) => memory,
            None => Memory::new(8 * PARTS, &self.queue)?,
        };
        let address = memory.address();
        *sums = Some(memory);
        queue(address)
    }

    /// Queues a kernel on vectors that callers have checked.
    pub(super) fn queue_launch<T: Scalar>(
        &self,
        launch: &Launch,
        [x, y]: [u64; 2],
        alpha: T,
        beta: T,
    ) -> Result<()> {
        self.make_current()?;
        let Some(step) = PreparedLaunch::new(self, launch, plain)? else { return Ok(()) };
        let step = step.overlapping(self);
        // SAFETY: the vectors have the lengths that the launch names and are on this GPU; owned
        // memory is freed in order on this stream, and borrowed memory lives by the contract of
        // `DeviceSlice::from_raw`.
        unsafe { step.launch([x, y, 0], alpha, beta, self.queue.as_inner()) }
    }
}

/// Describes the launch of y = alpha x + beta y over `n` elements; the addresses are those of the
/// dividends and divisors of alpha and beta.
fn axpby_launch(precision: Precision, n: u64, [alpha, beta]: [[u64; 2]; 2]) -> Launch {
    let ([a, b], [c, d]) = (alpha.map(Arg::U64), beta.map(Arg::U64));
    let args = vec![Arg::U64(n), Arg::Alpha, a, b, Arg::X, Arg::Beta, c, d, Arg::Y];
    Launch::over(IMAGE, format!("axpby_{precision}"), n, 256, args)
}

/// Describes the launch of [`Gpu::clamp`] over `n` elements, with the bounds as alpha and beta.
fn clamp_launch(precision: Precision, n: u64) -> Launch {
    let args = vec![Arg::U64(n), Arg::Alpha, Arg::Beta, Arg::Y];
    Launch::over(IMAGE, format!("clamp_{precision}"), n, 256, args)
}

/// Describes the two launches of a dot product of `n` elements; the addresses are those of the
/// partial sums and of the result.
fn dot_launches(precision: Precision, n: u64, addresses: [u64; 2]) -> [Launch; 2] {
    let [parts, result] = addresses.map(Arg::U64);
    let count = parts_of(n);
    let args = vec![Arg::U64(n), Arg::X, Arg::Y, parts];
    let first = over_parts(IMAGE, format!("dot_parts_{precision}"), count, args);
    let args = vec![Arg::U32(count as u32), parts, result];
    [first, over_parts(IMAGE, format!("dot_sum_{precision}"), 1, args)]
}

/// Number of partial sums of a dot product of `n` elements.
pub(super) fn parts_of(n: u64) -> u64 {
    n.div_ceil(EACH * u64::from(THREADS)).min(PARTS)
}

/// A launch of one block for each partial sum.
pub(super) fn over_parts(
    image: &'static str,
    kernel: String,
    parts: u64,
    args: Vec<Arg>,
) -> Launch {
    Launch::over(image, kernel, parts * u64::from(THREADS), THREADS, args)
}

/// Describes the two launches of y = alpha x + beta y with (y, y) over `n` elements; the addresses are
/// those of [`axpby_launch`], of the partial sums and of the result.
fn axpby_dot_launches(
    precision: Precision,
    n: u64,
    factors: [[u64; 2]; 2],
    addresses: [u64; 2],
) -> [Launch; 2] {
    let mut args = axpby_launch(precision, n, factors).args;
    args.push(Arg::U64(addresses[0]));
    let count = parts_of(n);
    let first = over_parts(dots::IMAGE, format!("axpby_dot_{precision}"), count, args);
    [first, dots::sum_launch(precision, count, 0, 1, addresses)]
}

/// Describes the launch of [`Gpu::advance`] over `n` elements, with p as y; the addresses are those of
/// [`axpby_launch`], and r.
fn advance_launch(precision: Precision, n: u64, [alpha, beta]: [[u64; 2]; 2], r: u64) -> Launch {
    let ([a, b], [c, d]) = (alpha.map(Arg::U64), beta.map(Arg::U64));
    let args = vec![Arg::U64(n), Arg::Alpha, a, b, Arg::U64(r), Arg::Beta, c, d, Arg::Y, Arg::X];
    Launch::over(dots::IMAGE, format!("advance_{precision}"), n.div_ceil(2), 256, args)
}

/// Returns all launches of operations on `n` elements, with invented addresses, for the check of
/// signatures.
#[cfg(test)]
pub(super) fn launches(precision: Precision, n: u64) -> Vec<Launch> {
    let factors = [[8, 16], [24, 32]];
    let own = [
        axpby_launch(precision, n, factors),
        advance_launch(precision, n, factors, 40),
        clamp_launch(precision, n),
    ];
    let dots = dot_launches(precision, n, [8, 16]).into_iter();
    let one_sum = super::one_sum::launches(precision, n, ([8; 5], [16; 5]), [40, 48]);
    let sums = axpby_dot_launches(precision, n, factors, [40, 48]).into_iter().chain(one_sum);
    own.into_iter().chain(dots).chain(sums).collect()
}

fn same_len(x: usize, y: usize) -> Result<()> {
    match x == y {
        true => Ok(()),
        false => Err(Error::argument(format!("x has {x} elements, but y has {y}"))),
    }
}

fn one_element(got: usize, what: &'static str) -> Result<()> {
    match got {
        1 => Ok(()),
        _ => Err(Error::argument(format!("{what} has {got} elements; it must have 1"))),
    }
}
