//! Times of checked products of divided matrices, and of iterations of conjugate gradients with them.

use std::time::Instant;

use anyhow::Result;
use ellect::dots::DotWith;
use ellect::sharded::{GpuFactor, OnGpus, RecordedWork, ShardedOperator};
use ellect::{Csr, Scalar, check};

/// Samples of which the median counts.
pub const SAMPLES: usize = 9;

/// Iterations of a solver in a sample.
const ITERATIONS: u32 = 200;

/// Least time of a sample in seconds.
pub const SAMPLE_S: f64 = 0.02;

/// Times of a product.
#[derive(Clone, Copy)]
pub struct Times {
    pub product_us: f64,
    pub spread: f64,
    /// Without the exchange; `None` if that was not timed.
    pub filled_us: Option<f64>,
}

/// Times products, and checks one after all of them.
///
/// # Errors
/// Errors of the products, and of the check.
pub fn timed<T: Scalar>(
    a: &ShardedOperator<T>,
    csr: &Csr<T>,
    name: &str,
    on_gpus: bool,
) -> Result<Times> {
    let x = check::vector::<T>(csr.ncols(), 3);
    let exact = check::reference(csr, T::ONE, &x, T::ZERO, &vec![T::ZERO; csr.nrows()]);
    let right = |got: &[T], filled: &str| {
        check::compare(&format!("the divided product of {name}{filled}"), &exact, got)
    };
    let times = if on_gpus { on_devices(a, &x, &right)? } else { in_memory(a, &x, &right)? };
    let [(product_us, spread), (filled_us, _)] = times;
    Ok(Times { product_us, spread, filled_us: Some(filled_us) })
}

/// The check of y, and the words that name its product.
type Check<'a, T> = &'a dyn Fn(&[T], &str) -> ellect::Result<()>;

/// The median time in microseconds, and its spread.
type Sampled = (f64, f64);

/// Times products on GPUs, with the exchange and without it.
fn on_devices<T: Scalar>(
    a: &ShardedOperator<T>,
    x: &[T],
    right: Check<'_, T>,
) -> Result<[Sampled; 2]> {
    let gpus = a.on_gpus()?;
    let mut got = vec![T::ZERO; a.nrows()];
    let product = gpus.capture(T::ONE, gpus.scatter_x(x)?, T::ZERO, gpus.zeros_y()?)?;
    let with = samples(&mut || product.launch(), &|| gpus.synchronize())?;
    // The last of these products has used the exchange as often as the others.
    gpus.gather_y(&product.into_y()?, &mut got)?;
    right(&got, "")?;

    let (x, mut y) = (gpus.scatter_x(x)?, gpus.zeros_y()?);
    gpus.apply(T::ONE, &x, T::ZERO, &mut y)?;
    let product = gpus.capture_filled(T::ONE, x, T::ZERO, gpus.zeros_y()?)?;
    let without = samples(&mut || product.launch(), &|| gpus.synchronize())?;
    gpus.gather_y(&product.into_y()?, &mut got)?;
    right(&got, " without exchange")?;
    Ok([with, without])
}

/// Times products whose vectors are in the host's memory, with the exchange and without it.
fn in_memory<T: Scalar>(
    a: &ShardedOperator<T>,
    x: &[T],
    right: Check<'_, T>,
) -> Result<[Sampled; 2]> {
    let mut got = vec![T::ZERO; a.nrows()];
    let (mut x, mut y) = (a.scatter_x(x)?, a.zeros_y());
    let mut product = || a.apply_sharded(T::ONE, &mut x, T::ZERO, &mut y);
    let with = samples(&mut product, &|| Ok(()))?;
    a.gather_y(&y, &mut got)?;
    right(&got, "")?;

    let mut y = a.zeros_y();
    let mut product = || a.apply_filled(T::ONE, &x, T::ZERO, &mut y);
    let without = samples(&mut product, &|| Ok(()))?;
    a.gather_y(&y, &mut got)?;
    right(&got, " without exchange")?;
    Ok([with, without])
}

/// Times many products, whose end `wait` waits for.
fn samples(
    product: &mut dyn FnMut() -> ellect::Result<()>,
    wait: &dyn Fn() -> ellect::Result<()>,
) -> Result<Sampled> {
    let mut sample = |products: u32| -> Result<f64> {
        let start = Instant::now();
        (0..products).try_for_each(|_| product())?;
        wait()?;
        Ok(start.elapsed().as_secs_f64() / f64::from(products))
    };
    sample(20)?;
    let one_s = sample(20)?;
    let products = (SAMPLE_S / one_s).clamp(20.0, 20_000.0) as u32;
    let samples = (0..SAMPLES).map(|_| sample(products)).collect::<Result<Vec<f64>>>()?;
    Ok(median(samples))
}

/// Returns the median in microseconds of samples in seconds, and their relative spread without the
/// longest and the shortest.
pub fn median(mut samples: Vec<f64>) -> (f64, f64) {
    samples.sort_by(f64::total_cmp);
    let median = samples[samples.len() / 2];
    (1e6 * median, (samples[samples.len() - 2] - samples[1]) / median)
}

/// Times iterations of conjugate gradients whose vectors and numbers stay on the GPUs, recorded as CUDA
/// graphs; returns the median in microseconds. Times do not depend on the values, so any square matrix
/// will do.
pub fn iteration<T: Scalar>(a: &ShardedOperator<T>) -> Result<f64> {
    let gpus = a.on_gpus()?;
    let b = gpus.scatter_x(&check::vector::<T>(a.ncols(), 5))?;
    let (mut x, mut r, mut p, mut q) =
        (gpus.zeros_x()?, gpus.zeros_x()?, gpus.zeros_x()?, gpus.zeros_x()?);
    gpus.axpby(T::ONE, &b, T::ZERO, &mut r)?;
    gpus.axpby(T::ONE, &b, T::ZERO, &mut p)?;
    let (mut rr, mut next, mut pq) = (gpus.number()?, gpus.number()?, gpus.number()?);
    gpus.dot_into(&r, &r, &mut rr)?;
    let (one, minus_one) = (T::ONE, T::from_f64(-1.0));
    // Two iterations, after which `rr` and `next` have their first meaning again.
    let two = gpus.record(|gpus| {
        for _ in 0..2 {
            gpus.apply_dot(one, &p, T::ZERO, &mut q, &[DotWith::X], &mut [&mut pq])?;
            let along = |sign| GpuFactor::quotient(sign, &rr, &pq);
            gpus.axpby_dot(along(minus_one), &q, one, &mut r, &mut next)?;
            let beta = GpuFactor::quotient(one, &next, &rr);
            gpus.advance(along(one), &mut p, &mut x, beta, &r)?;
            std::mem::swap(&mut rr, &mut next);
        }
        Ok(())
    })?;
    iterations(&gpus, &two)
}

/// As [`iteration`], with one sum over the GPUs in place of two.
pub fn one_sum_iteration<T: Scalar>(a: &ShardedOperator<T>) -> Result<f64> {
    let gpus = a.on_gpus()?;
    let mut r = gpus.scatter_x(&check::vector::<T>(a.ncols(), 5))?;
    let mut x = gpus.zeros_x()?;
    let mut cg = gpus.one_sum_cg(&r)?;
    let two = gpus.record(|gpus| (0..2).try_for_each(|_| gpus.iterate(&mut cg, &mut x, &mut r)))?;
    iterations(&gpus, &two)
}

/// Times a record of two iterations; returns the median of one in microseconds.
fn iterations<T: Scalar>(gpus: &OnGpus<'_, T>, two: &RecordedWork<'_, T>) -> Result<f64> {
    let sample = || -> Result<f64> {
        gpus.synchronize()?;
        let start = Instant::now();
        (0..ITERATIONS / 2).try_for_each(|_| two.launch())?;
        gpus.synchronize()?;
        Ok(start.elapsed().as_secs_f64() / f64::from(ITERATIONS))
    };
    sample()?;
    let mut samples = (0..5).map(|_| sample()).collect::<Result<Vec<f64>>>()?;
    samples.sort_by(f64::total_cmp);
    Ok(1e6 * samples[2])
}
