//! Timing candidates on a GPU, by the same protocol as on a host.
//!
//! Copies of the layout, each with its own x and y, take turns in a CUDA graph, so that neither the
//! matrix nor x is still in the caches; a sample is the time between two events around one launch
//! of the graph. Queueing launches costs nothing that a solver which uses graphs would not save.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use cust::sys::CUstream;

use super::provenance::gpu_kernels;
use super::{Measurement, Outcome, Protocol, Provenance, Samples, State, Timing, take_samples};
use crate::check::{self, RowReference};
use crate::csr::CsrRef;
use crate::cuda::{DeviceCsr, Gpu, Graph, Placed, Vector};
use crate::error::Result;
use crate::format::{Candidate, Target};
use crate::operator::{PreparedOperator, permute, permute_back};
use crate::scalar::Scalar;
use crate::structure::Structure;

/// Checks and times one candidate on a GPU.
///
/// The conversion counts from a CSR matrix that is on the device, where the format converts there:
/// until the GPU has ended it, its memory being kept from one time to the next. Where it is made on
/// the host, it counts with its upload. A refusal, a wrong product and a fault are outcomes, not
/// errors.
///
/// `held` is the same matrix, kept from one candidate to the next; uploaded here where there is
/// none.
pub fn on_gpu<T: Scalar>(
    gpu: &Arc<Gpu>,
    held: Option<&Held<T>>,
    csr: CsrRef<'_, T>,
    structure: &Structure<'_>,
    candidate: &Candidate,
    target: &Target<'_>,
    protocol: &Protocol,
) -> Measurement {
    let provenance = |kernels| Provenance::now(gpu.driver_key(), kernels);
    let (result, provenance) = match time(gpu, held, csr, structure, candidate, target, protocol) {
        Ok((timing, kernels, state)) => (Ok(timing), provenance(kernels).with_state(state)),
        Err(error) => (Err(error), provenance(gpu_kernels(std::iter::empty()))),
    };
    Measurement {
        fingerprint: structure.fingerprint(),
        candidate: candidate.to_string(),
        device: target.device.name.clone(),
        threads: 1,
        precision: T::PRECISION,
        basis: target.basis,
        protocol: *protocol,
        provenance,
        inputs: None,
        outcome: Outcome::of(result),
    }
}

/// A matrix on a GPU and the references of its products, for all its candidates.
pub struct Held<T: Scalar> {
    /// [`CsrRef::identity`] of the matrix on the host.
    identity: [usize; 6],
    on_gpu: Arc<DeviceCsr<T>>,
    values: Vector<T>,
    references: Mutex<Vec<(Asked, Arc<[RowReference]>)>>,
    /// x of a seed, never written.
    inputs: Mutex<Vec<(u64, Arc<Vector<T>>)>>,
}

/// Seed, alpha and beta of a product.
type Asked = (u64, [u64; 2]);

/// References kept of one matrix: of the first copy, and of the last one of most candidates.
const MOST_REFERENCES: usize = 4;

impl<T: Scalar> Held<T> {
    /// Uploads a matrix.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) where the memory does not suffice.
    pub fn new(gpu: &Gpu, csr: CsrRef<'_, T>) -> Result<Self> {
        Ok(Held {
            identity: csr.identity(),
            on_gpu: Arc::new(DeviceCsr::upload(gpu, csr)?),
            values: gpu.vector(csr.values())?,
            references: Mutex::default(),
            inputs: Mutex::default(),
        })
    }

    /// Whether it is this very matrix, which was not dropped since.
    pub fn is(&self, csr: CsrRef<'_, T>) -> bool {
        self.identity == csr.identity()
    }

    /// The x of a seed.
    fn input(&self, gpu: &Gpu, csr: CsrRef<'_, T>, seed: u64) -> Result<Arc<Vector<T>>> {
        let kept = || self.inputs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, x)) = kept().iter().find(|(known, _)| *known == seed) {
            return Ok(x.clone());
        }
        // No lock is held meanwhile: it is made by all threads.
        let x = Arc::new(gpu.vector(&check::vector::<T>(csr.ncols(), seed))?);
        kept().push((seed, x.clone()));
        Ok(x)
    }

    /// The reference of a product of seeded vectors.
    fn reference(
        &self,
        csr: CsrRef<'_, T>,
        seed: u64,
        (alpha, beta): (T, T),
    ) -> Arc<[RowReference]> {
        let asked = (seed, [alpha, beta].map(|factor| factor.to_f64().to_bits()));
        let kept = || self.references.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, reference)) = kept().iter().find(|(known, _)| *known == asked) {
            return reference.clone();
        }
        let (x, old) = (check::vector(csr.ncols(), seed), check::vector(csr.nrows(), !seed));
        let reference: Arc<[RowReference]> = check::reference(csr, alpha, &x, beta, &old).into();
        let mut kept = kept();
        if kept.len() < MOST_REFERENCES {
            kept.push((asked, reference.clone()));
        }
        reference
    }
}

/// A copy of the layout on the GPU, with vectors of its own in the operator's basis.
struct Copy<T: Scalar> {
    operator: PreparedOperator<T>,
    x: Arc<Vector<T>>,
    y: Vector<T>,
}

impl<T: Scalar> Copy<T> {
    fn queue(&self, stream: CUstream, alpha: T, beta: T) -> Result<()> {
        let Some(placed) = self.operator.on_device() else { return Ok(()) };
        // SAFETY: the vectors have the lengths of the matrix and live as long as `self`, which the
        // caller keeps until the stream is synchronised.
        #[allow(unsafe_code, reason = "queues kernels on this copy's own vectors")]
        unsafe {
            placed.operator().apply_raw(alpha, self.x.address(), beta, self.y.address(), stream)
        }
    }
}

fn time<T: Scalar>(
    gpu: &Arc<Gpu>,
    held: Option<&Held<T>>,
    csr: CsrRef<'_, T>,
    structure: &Structure<'_>,
    candidate: &Candidate,
    target: &Target<'_>,
    protocol: &Protocol,
) -> Result<(Timing, String, State)> {
    let own;
    let held = match held {
        Some(held) => held,
        None => {
            own = Held::new(gpu, csr)?;
            &own
        }
    };
    let on_gpu = &held.on_gpu;
    let mut convert_s = Vec::new();
    let prepare = || PreparedOperator::on_gpu(gpu, on_gpu, csr, structure, candidate, target);
    // The y of a later copy is written before it is read.
    let copy = |operator: PreparedOperator<T>, seed: u64| -> Result<Copy<T>> {
        let permuted = |len: usize, seed: u64, order: &[u32]| {
            gpu.vector(&permute(&check::vector::<T>(len, seed), order))
        };
        let x = match operator.permutation() {
            None => held.input(gpu, csr, seed)?,
            Some(order) => Arc::new(permuted(csr.ncols(), seed, order)?),
        };
        let y = match operator.permutation() {
            _ if seed != protocol.seed => gpu.zeros(csr.nrows())?,
            None => gpu.vector(&check::vector::<T>(csr.nrows(), !seed))?,
            Some(order) => permuted(csr.nrows(), !seed, order)?,
        };
        Ok(Copy { operator, x, y })
    };
    let start = Instant::now();
    let first = prepare()?;
    let mut spent_s = start.elapsed().as_secs_f64();
    if !first.on_device().is_some_and(Placed::is_built) {
        convert_s.push(spent_s);
    }
    let mut copies = vec![copy(first, protocol.seed)?];
    let bytes = copies[0].operator.bytes();
    let (alpha, beta) = (T::from_f64(1.5), T::from_f64(-0.5));
    let own_stream = gpu.stream().as_inner();
    copies[0].queue(own_stream, alpha, beta)?;
    compare(&copies[0], &held.reference(csr, protocol.seed, (alpha, beta)))?;
    let wanted = protocol.copies(bytes, target.device);
    while copies.len() < wanted && spent_s < protocol.max_convert_s {
        let seed = protocol.seed + copies.len() as u64;
        let start = Instant::now();
        let operator = prepare()?;
        spent_s += start.elapsed().as_secs_f64();
        copies.push(copy(operator, seed)?);
    }
    if copies[0].operator.on_device().is_some_and(Placed::is_built) {
        loop {
            let start = Instant::now();
            let operator = gpu.convert(on_gpu, candidate, target)?;
            convert_s.push(start.elapsed().as_secs_f64());
            drop(operator);
            let spent_s: f64 = convert_s.iter().sum();
            if convert_s.len() >= CONVERSIONS || spent_s >= protocol.max_convert_s {
                break;
            }
        }
    }
    let update_s = update(&held.values, &mut copies[0].operator)?;

    // One turn of all copies outside a graph, then as many in a graph as a sample asks for.
    let turn = |stream| copies.iter().try_for_each(|copy| copy.queue(stream, T::ONE, T::ZERO));
    let alone = gpu.alone();
    turn(own_stream)?;
    let turn_s = gpu.time(|| turn(own_stream))?;
    let turns = (protocol.min_sample_s / turn_s).ceil().clamp(1.0, MOST_TURNS) as u64;
    let graph = Graph::capture(gpu, |stream| (0..turns).try_for_each(|_| turn(stream)))?;
    let launch = || {
        // SAFETY: the copies outlive the graph's last launch, which `Gpu::time` waits for.
        #[allow(unsafe_code, reason = "launches work on this function's own buffers")]
        unsafe {
            graph.launch(gpu)
        }
    };
    for _ in 0..protocol.warmup {
        gpu.time(launch)?;
    }
    let products = turns * copies.len() as u64;
    let spmv = take_samples(protocol, || Ok(gpu.time(launch)? / products as f64))?;
    // Asked while the GPU is at work: clocks fall where it rests.
    let mut state = State::default();
    gpu.time(|| {
        launch()?;
        state = gpu.state();
        Ok(())
    })?;
    drop(alone);
    let last = copies.len() - 1;
    let reference = held.reference(csr, protocol.seed + last as u64, (T::ONE, T::ZERO));
    compare(&copies[last], &reference)?;
    let kernels = gpu_kernels(copies[0].operator.on_device().into_iter().flat_map(Placed::images));
    let timing = Timing {
        reruns: Vec::new(),
        spmv,
        products_per_sample: products,
        convert: Samples::new(convert_s),
        update_s,
        bytes,
        copies: copies.len() as u32,
    };
    Ok((timing, kernels, state))
}

/// The most turns in one graph.
const MOST_TURNS: f64 = 256.0;

/// Conversions that are timed on the GPU if time allows it, after one that took memory from the
/// driver.
const CONVERSIONS: usize = 5;

/// Seconds that it takes to put in values that are on the GPU, the second time.
fn update<T: Scalar>(values: &Vector<T>, operator: &mut PreparedOperator<T>) -> Result<f64> {
    let mut update_s = 0.0;
    for _ in 0..2 {
        let Some(placed) = operator.on_device_mut() else { return Ok(0.0) };
        let start = Instant::now();
        // SAFETY: the vector holds as many values as the matrix has entries.
        #[allow(unsafe_code, reason = "hands this function's own vector over")]
        unsafe {
            placed.set_device_values(values.address())?;
        }
        update_s = start.elapsed().as_secs_f64();
    }
    Ok(update_s)
}

/// Compares the y of a copy with the reference.
fn compare<T: Scalar>(copy: &Copy<T>, reference: &[RowReference]) -> Result<()> {
    let mut y = vec![T::ZERO; reference.len()];
    copy.y.read(&mut y)?;
    let y = copy.operator.permutation().map_or_else(|| y.clone(), |order| permute_back(&y, order));
    check::compare(&copy.operator.candidate().to_string(), reference, &y)
}
