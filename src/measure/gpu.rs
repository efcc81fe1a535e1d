//! Times candidates on a GPU under the same protocol as on a host.
//!
//! Several copies of the layout, each with its own x and y, take turns in a CUDA graph, so that
//! neither the matrix nor x is still in the caches. A sample is the time between two events around
//! one launch of the graph, so it excludes launch overheads, which a solver that uses graphs avoids
//! as well.

#[path = "vendor_transposed.rs"]
mod vendor_transposed;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use cust::sys::CUstream;

use super::provenance::{ALL, conversion_kernels, hash};
use super::{Measurement, Outcome, Protocol, Provenance, Samples, State, Timing, take_samples};
use crate::analysis::Analysis;
use crate::check::{self, RowReference};
use crate::csr::CsrRef;
use crate::cuda::{DeviceCsr, Gpu, GpuOperator, Graph, Vector};
use crate::error::Result;
use crate::format::{Candidate, Target};
use crate::operator::{PreparedOperator, permute_back, seeded};
use crate::scalar::Scalar;
pub use vendor_transposed::vendor_transposed;

/// Checks and times one candidate on a GPU.
///
/// If the format converts on the GPU, the conversion time starts with the CSR matrix on the GPU and
/// ends when the GPU has finished; memory is reused from one conversion to the next. If the format
/// converts on the host, the time includes the upload. A refusal, a wrong product and a fault are
/// outcomes, not errors.
///
/// `resident` is the same matrix, kept on the GPU for several candidates; without it, the matrix is
/// uploaded.
pub fn on_gpu<T: Scalar>(
    gpu: &Arc<Gpu>,
    resident: Option<&ResidentMatrix<T>>,
    csr: CsrRef<'_, T>,
    analysis: &Analysis<'_>,
    candidate: &Candidate,
    target: &Target<'_>,
    protocol: &Protocol,
) -> Measurement {
    let time = || {
        let uploaded;
        let resident = match resident {
            Some(resident) => resident,
            None => {
                uploaded = ResidentMatrix::new(gpu, csr)?;
                &uploaded
            }
        };
        TimedCandidate { gpu, resident, csr, analysis, candidate, target, protocol }.time()
    };
    measured::<T>(gpu, analysis, candidate.to_string(), target, protocol, time())
}

/// Returns the record of a candidate, or of a product in its place, from its timing, the code that ran and
/// the GPU's state.
fn measured<T: Scalar>(
    gpu: &Gpu,
    analysis: &Analysis<'_>,
    candidate: String,
    target: &Target<'_>,
    protocol: &Protocol,
    timed: Result<(Timing, String, State)>,
) -> Measurement {
    let provenance = |kernels| Provenance::now(gpu.driver_key(), kernels);
    let (result, provenance) = match timed {
        Ok((timing, kernels, state)) => (Ok(timing), provenance(kernels).with_state(state)),
        Err(error) => (Err(error), provenance(gpu_kernels(std::iter::empty()))),
    };
    Measurement {
        fingerprint: analysis.fingerprint(),
        candidate,
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

/// Times conversions on a GPU, as [`on_gpu`] does; `None` if the format converts on the host.
///
/// # Errors
/// [`Error::Refused`](crate::Error::Refused) if the candidate does not apply to the matrix;
/// [`Error::Device`](crate::Error::Device) from the driver.
pub fn conversions_on_gpu<T: Scalar>(
    gpu: &Gpu,
    csr: CsrRef<'_, T>,
    resident: Option<&ResidentMatrix<T>>,
    candidate: &Candidate,
    target: &Target<'_>,
    protocol: &Protocol,
) -> Result<Option<Samples>> {
    let uploaded;
    let resident = match resident {
        Some(resident) => resident,
        None => {
            uploaded = ResidentMatrix::new(gpu, csr)?;
            &uploaded
        }
    };
    // The first one allocates memory from the driver.
    if gpu.convert(&resident.on_gpu, candidate, target)?.is_none() {
        return Ok(None);
    }
    let convert_s = time_conversions(gpu, resident, candidate, target, protocol)?;
    Ok(Some(Samples::new(convert_s)))
}

/// Times conversions on the GPU; returns the time of each in seconds.
fn time_conversions<T: Scalar>(
    gpu: &Gpu,
    resident: &ResidentMatrix<T>,
    candidate: &Candidate,
    target: &Target<'_>,
    protocol: &Protocol,
) -> Result<Vec<f64>> {
    let mut convert_s = Vec::new();
    loop {
        let start = Instant::now();
        let operator = gpu.convert(&resident.on_gpu, candidate, target)?;
        convert_s.push(start.elapsed().as_secs_f64());
        drop(operator);
        let spent_s: f64 = convert_s.iter().sum();
        if convert_s.len() >= CONVERSIONS || spent_s >= protocol.max_convert_s {
            return Ok(convert_s);
        }
    }
}

/// A matrix on a GPU and the reference results of its products, shared by all candidates.
pub struct ResidentMatrix<T: Scalar> {
    /// [`CsrRef::identity`] of the matrix on the host.
    identity: [usize; 6],
    on_gpu: Arc<DeviceCsr<T>>,
    values: Vector<T>,
    references: Mutex<Vec<(ReferenceKey, Arc<[RowReference]>)>>,
    /// They are never written.
    inputs: Mutex<Inputs<T>>,
}

/// Vectors x, by their seed and their number.
type Inputs<T> = Vec<((u64, usize), Arc<Vector<T>>)>;

/// Identifies a reference product: seed, and the bits of alpha and beta.
type ReferenceKey = (u64, [u64; 2]);

/// Maximum number of stored references for each vector of a product: those of the first copy, and those
/// of the last copy for most candidates.
const MOST_REFERENCES: usize = 4;

impl<T: Scalar> ResidentMatrix<T> {
    /// Uploads a matrix.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if memory runs out.
    pub fn new(gpu: &Gpu, csr: CsrRef<'_, T>) -> Result<Self> {
        Ok(ResidentMatrix {
            identity: csr.identity(),
            on_gpu: Arc::new(DeviceCsr::upload(gpu, csr)?),
            values: gpu.vector(csr.values())?,
            references: Mutex::default(),
            inputs: Mutex::default(),
        })
    }

    /// Tells whether this is the same matrix in the same memory of the host.
    pub fn is(&self, csr: CsrRef<'_, T>) -> bool {
        self.identity == csr.identity()
    }

    /// Returns the vectors x of a seed, one after the other.
    fn input(
        &self,
        gpu: &Gpu,
        csr: CsrRef<'_, T>,
        seed: u64,
        vectors: usize,
    ) -> Result<Arc<Vector<T>>> {
        let kept = || self.inputs.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = (seed, vectors);
        if let Some((_, x)) = kept().iter().find(|(known, _)| *known == asked) {
            return Ok(x.clone());
        }
        // No lock is held here, because all threads fill the vector.
        let x = Arc::new(gpu.vector(&seeded::<T>(csr.ncols(), vectors, seed, None))?);
        kept().push((asked, x.clone()));
        Ok(x)
    }

    /// Returns the reference result of a product with vectors of this seed, of which a product has
    /// `vectors` in all.
    fn reference(
        &self,
        csr: CsrRef<'_, T>,
        (seed, vectors): (u64, usize),
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
        if kept.len() < MOST_REFERENCES * vectors {
            kept.push((asked, reference.clone()));
        }
        reference
    }
}

/// A copy of the layout on the GPU with its own vectors, in the operator's basis; several vectors
/// follow each other.
struct GpuCopy<T: Scalar> {
    operator: PreparedOperator<T>,
    vectors: usize,
    x: Arc<Vector<T>>,
    y: Vector<T>,
}

impl<T: Scalar> GpuCopy<T> {
    fn queue(&self, stream: CUstream, alpha: T, beta: T) -> Result<()> {
        let Some(placed) = self.operator.on_device() else { return Ok(()) };
        // SAFETY: the vectors have the lengths of the matrix and live as long as `self`, which the
        // caller keeps until the stream is synchronised.
        #[allow(unsafe_code, reason = "queues kernels on this copy's own vectors")]
        unsafe {
            let (x, y) = (self.x.address(), self.y.address());
            match self.vectors {
                1 => placed.operator().apply_raw(alpha, x, beta, y, stream),
                vectors => placed.apply_many_raw(vectors, alpha, x, beta, y, stream),
            }
        }
    }

    /// Compares y with the references of a product with these factors and vectors of this seed.
    fn compare(
        &self,
        resident: &ResidentMatrix<T>,
        csr: CsrRef<'_, T>,
        seed: u64,
        factors: (T, T),
    ) -> Result<()> {
        let mut all = vec![T::ZERO; self.y.len()];
        self.y.read(&mut all)?;
        let order = self.operator.permutation();
        for (vector, got) in all.chunks(csr.nrows().max(1)).enumerate() {
            let of = (check::seed_of(seed, vector), self.vectors);
            let reference = resident.reference(csr, of, factors);
            let back = order.map(|order| permute_back(got, order));
            self.operator.check_product(&reference, back.as_deref().unwrap_or(got))?;
        }
        Ok(())
    }
}

/// One measurement: a candidate, the matrix and the GPU.
struct TimedCandidate<'a, 's, T: Scalar> {
    gpu: &'a Arc<Gpu>,
    resident: &'a ResidentMatrix<T>,
    csr: CsrRef<'a, T>,
    analysis: &'a Analysis<'s>,
    candidate: &'a Candidate,
    target: &'a Target<'a>,
    protocol: &'a Protocol,
}

/// Samples of a product, with their number of products and the state of the GPU under this load.
struct TimedProducts {
    spmv: Samples,
    products_per_sample: u64,
    state: State,
}

impl<T: Scalar> TimedCandidate<'_, '_, T> {
    fn prepare(&self) -> Result<PreparedOperator<T>> {
        let TimedCandidate { gpu, resident, csr, analysis, candidate, target, .. } = *self;
        PreparedOperator::on_gpu(gpu, &resident.on_gpu, csr, analysis, candidate, target)
    }

    /// Gives an operator its own vectors, filled from `seed`.
    fn copy(&self, operator: PreparedOperator<T>, seed: u64) -> Result<GpuCopy<T>> {
        let TimedCandidate { gpu, resident, csr, protocol, .. } = *self;
        let vectors = protocol.vectors;
        if vectors > 1
            && let Some(placed) = operator.on_device()
        {
            placed.ready_many(vectors)?;
        }
        let order = operator.permutation();
        let x = match order {
            None => resident.input(gpu, csr, seed, vectors)?,
            Some(_) => Arc::new(gpu.vector(&seeded::<T>(csr.ncols(), vectors, seed, order))?),
        };
        // Products write the y of every copy but the first before they read it.
        let y = match seed == protocol.seed {
            false => gpu.zeros(csr.nrows() * vectors)?,
            true => gpu.vector(&seeded::<T>(csr.nrows(), vectors, !seed, order))?,
        };
        Ok(GpuCopy { operator, vectors, x, y })
    }

    /// Converts one copy, checks its product, and converts the other copies.
    ///
    /// Returns them with the time of the conversion in seconds, if it was on the host.
    fn copies(&self) -> Result<(Vec<GpuCopy<T>>, Vec<f64>)> {
        let TimedCandidate { gpu, resident, csr, target, protocol, .. } = *self;
        let start = Instant::now();
        let first = self.prepare()?;
        let mut spent_s = start.elapsed().as_secs_f64();
        let mut convert_s = Vec::new();
        if !first.on_device().is_some_and(GpuOperator::is_built) {
            convert_s.push(spent_s);
        }
        let mut copies = vec![self.copy(first, protocol.seed)?];
        let (alpha, beta) = (T::from_f64(1.5), T::from_f64(-0.5));
        copies[0].queue(gpu.stream().as_inner(), alpha, beta)?;
        copies[0].compare(resident, csr, protocol.seed, (alpha, beta))?;
        let of_vectors = match protocol.vectors {
            1 => 0,
            vectors => ((csr.nrows() + csr.ncols()) * vectors * size_of::<T>()) as u64,
        };
        let wanted = protocol.copies(copies[0].operator.bytes() + of_vectors, target.device);
        while copies.len() < wanted && spent_s < protocol.max_convert_s {
            let seed = protocol.seed + copies.len() as u64;
            let start = Instant::now();
            let operator = self.prepare()?;
            spent_s += start.elapsed().as_secs_f64();
            copies.push(self.copy(operator, seed)?);
        }
        Ok((copies, convert_s))
    }

    /// Checks and times the candidate; returns the timing, the code that ran and the GPU's state.
    fn time(&self) -> Result<(Timing, String, State)> {
        let TimedCandidate { gpu, resident, csr, candidate, target, protocol, .. } = *self;
        let (mut copies, mut convert_s) = self.copies()?;
        let bytes = copies[0].operator.bytes();
        let mut convert_kernels = String::new();
        if copies[0].operator.on_device().is_some_and(GpuOperator::is_built) {
            convert_s = time_conversions(gpu, resident, candidate, target, protocol)?;
            convert_kernels = conversion_kernels(candidate.format);
        }
        let update_s = update(&resident.values, &mut copies[0].operator)?;
        let turn = |stream| copies.iter().try_for_each(|copy| copy.queue(stream, T::ONE, T::ZERO));
        let TimedProducts { spmv, products_per_sample, state } =
            time_turns(gpu, protocol, copies.len(), &turn)?;
        let last = copies.len() - 1;
        copies[last].compare(resident, csr, protocol.seed + last as u64, (T::ONE, T::ZERO))?;
        let placed = copies[0].operator.on_device();
        let kernels = gpu_kernels(placed.into_iter().flat_map(|a| a.images_for(protocol.vectors)));
        let timing = Timing {
            reruns: Vec::new(),
            spmv,
            products_per_sample,
            convert: Samples::new(convert_s),
            convert_kernels,
            update_s,
            bytes,
            copies: copies.len() as u32,
        };
        Ok((timing, kernels, state))
    }
}

/// Times launches of a graph in which copies take turns: `turn` queues a product of each, with memory that
/// the caller keeps.
fn time_turns(
    gpu: &Gpu,
    protocol: &Protocol,
    copies: usize,
    turn: &dyn Fn(CUstream) -> Result<()>,
) -> Result<TimedProducts> {
    // One turn of all copies outside a graph tells how many turns a sample needs in a graph.
    let _alone = gpu.alone();
    let own_stream = gpu.stream().as_inner();
    turn(own_stream)?;
    let turn_s = gpu.time(|| turn(own_stream))?;
    let turns = (protocol.min_sample_s / turn_s).ceil().clamp(1.0, MOST_TURNS) as u64;
    let graph = Graph::capture(gpu, |stream| (0..turns).try_for_each(|_| turn(stream)))?;
    let launch = || {
        // SAFETY: the copies outlive the graph's last launch, which `Gpu::time` waits for.
        #[allow(unsafe_code, reason = "launches work on the buffers of the copies")]
        unsafe {
            graph.launch(gpu)
        }
    };
    for _ in 0..protocol.warmup {
        gpu.time(launch)?;
    }
    let products_per_sample = turns * copies as u64;
    let spmv = take_samples(protocol, || Ok(gpu.time(launch)? / products_per_sample as f64))?;
    // The state is read while the GPU works, because its clocks fall when it is idle.
    let mut state = State::default();
    gpu.time(|| {
        launch()?;
        state = gpu.state();
        Ok(())
    })?;
    Ok(TimedProducts { spmv, products_per_sample, state })
}

/// Maximum number of turns in one graph.
const MOST_TURNS: f64 = 256.0;

/// Maximum number of conversions timed on the GPU, after one that allocates memory from the driver.
const CONVERSIONS: usize = 5;

/// Returns the time of replacing the values by values on the GPU, in seconds: the second of two
/// runs.
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

/// Returns the code behind the images that a GPU launched; `cusparse` stands for the library.
fn gpu_kernels<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        names.push(ALL);
    }
    let part = |name: &str| format!("{name}={}", hash(name).unwrap_or_default());
    names.into_iter().map(part).collect::<Vec<_>>().join(",")
}
