//! The backend: times candidates on this host or on one of its GPUs.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::gpu::{ResidentMatrix, conversions_on_gpu, on_gpu, vendor_transposed};
use super::{Measurement, Outcome, Protocol, Samples, Worker, on_host};
use crate::analysis::Analysis;
use crate::cost::CostInputs;
use crate::csr::CsrRef;
use crate::cuda;
use crate::device::{self, Device, Kind};
use crate::error::{Error, Result};
use crate::features::Features;
use crate::format::{Candidate, Target};
use crate::operator::PreparedOperator;
use crate::scalar::Scalar;

/// A device on which candidates can be timed, or for which they can only be estimated.
///
/// ```
/// use ellect::{Error, device};
/// use ellect::measure::Backend;
///
/// # fn main() -> ellect::Result<()> {
/// assert!(Backend::of(device::find("cpu")?).check().is_ok());
/// let absent = Backend::of(device::find("h200")?).check();
/// assert!(matches!(absent, Err(Error::AbsentDevice { .. })));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Backend {
    device: Device,
    worker: Option<Mutex<Worker>>,
    /// Driver of the worker's device; stored so that reading it does not wait for a running job.
    driver: Option<String>,
    /// Number of times that the worker's process was started again, to be read likewise.
    restarts: Arc<AtomicU64>,
    gpu: Option<Arc<cuda::Gpu>>,
    /// Matrix kept on the GPU, a [`ResidentMatrix`].
    held: Mutex<Option<Arc<dyn Any + Send + Sync>>>,
}

impl Backend {
    /// Creates a backend from a device profile; it can time on a host but not on a GPU.
    pub fn of(device: Device) -> Self {
        Backend {
            device,
            worker: None,
            driver: None,
            restarts: Arc::default(),
            gpu: None,
            held: Mutex::default(),
        }
    }

    /// Creates a backend that times in the worker's process and prepares operators for the host.
    pub fn through(worker: Worker) -> Self {
        let (device, driver) = (worker.device().clone(), worker.driver().to_string());
        let restarts = worker.restarts();
        let worker = Some(Mutex::new(worker));
        Backend { worker, driver: Some(driver), restarts, ..Backend::of(device) }
    }

    /// Opens a device by name: `cuda:N` opens GPU `N` of this machine (feature `cuda`), any other
    /// name is a profile. A profile saved under `data` takes precedence.
    ///
    /// # Errors
    /// [`Error::UnknownDevice`] if there is none; [`Error::Device`] if it cannot be opened.
    pub fn open(name: &str, data: &std::path::Path) -> Result<Self> {
        match name.to_ascii_lowercase().strip_prefix("cuda:") {
            Some(index) => Backend::open_gpu(name, index, data),
            None => Ok(Backend::of(device::find_in(name, data)?)),
        }
    }

    fn open_gpu(name: &str, index: &str, data: &std::path::Path) -> Result<Self> {
        // Each GPU has exactly one name: `cuda:00` is refused.
        let parsed = index.parse().ok().filter(|parsed: &u32| parsed.to_string() == index);
        let known = || device::unknown(name, names(), "");
        let gpu = cuda::Gpu::open(parsed.ok_or_else(known)?)?;
        let own = gpu.profile();
        let device = device::saved(&own.name, data)?.unwrap_or_else(|| own.clone());
        Ok(Backend { gpu: Some(Arc::new(gpu)), ..Backend::of(device) })
    }

    /// Converts a matrix for this device: on its GPU if this process opened one, otherwise for the
    /// host.
    ///
    /// # Errors
    /// [`Error::Refused`] if the candidate does not apply to the matrix; [`Error::Device`] from a
    /// GPU.
    pub fn prepare<'a, T: Scalar>(
        &self,
        csr: impl Into<CsrRef<'a, T>>,
        analysis: &Analysis<'_>,
        candidate: &Candidate,
        target: &Target<'_>,
    ) -> Result<PreparedOperator<T>> {
        let csr = csr.into();
        if let Some(gpu) = &self.gpu {
            let on_gpu = Arc::new(cuda::DeviceCsr::upload(gpu, csr)?);
            return PreparedOperator::on_gpu(gpu, &on_gpu, csr, analysis, candidate, target);
        }
        PreparedOperator::with_analysis(csr, analysis, candidate, target)
    }

    /// Returns the number of times that the worker's process was started again; 0 without a worker.
    pub fn restarts(&self) -> u64 {
        self.restarts.load(Ordering::Relaxed)
    }

    /// Returns the device's profile.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the GPU that this process opened.
    ///
    /// # Errors
    /// [`Error::Argument`] if it opened none.
    pub fn gpu(&self) -> Result<&Arc<cuda::Gpu>> {
        self.gpu.as_ref().ok_or_else(|| {
            let name = &self.device.name;
            Error::argument(format!(
                "this process has not opened {name} as a GPU; open one with the name cuda:0"
            ))
        })
    }

    /// Checks and times cuSPARSE's product with a matrix of which it stores the transpose in CSR, on the
    /// backend's GPU and under the protocol of candidates. A wrong product and a fault are outcomes, not
    /// errors.
    ///
    /// # Errors
    /// As [`Backend::gpu`].
    pub fn vendor_transposed<'a, T: Scalar>(
        &self,
        csr: impl Into<CsrRef<'a, T>>,
        analysis: &Analysis<'_>,
        target: &Target<'_>,
        protocol: &Protocol,
    ) -> Result<Measurement> {
        Ok(vendor_transposed(self.gpu()?, csr.into(), analysis, target, protocol))
    }

    /// Returns the driver of the device as named in records; `None` if the device is not present.
    pub fn driver(&self) -> Option<String> {
        if self.driver.is_some() {
            return self.driver.clone();
        }
        if let Some(gpu) = &self.gpu {
            return Some(gpu.driver_key());
        }
        match self.device.kind {
            Kind::Host => Some(super::provenance::host_driver()),
            Kind::Gpu => None,
        }
    }

    /// Checks that candidates can be timed on the device.
    ///
    /// # Errors
    /// [`Error::AbsentDevice`] if they cannot.
    pub fn check(&self) -> Result<()> {
        if self.worker.is_some() {
            return Ok(());
        }
        if self.gpu.is_some() {
            return Ok(());
        }
        match self.device.kind {
            Kind::Host => Ok(()),
            Kind::Gpu => Err(Error::AbsentDevice {
                name: self.device.name.clone(),
                remedy: "name cpu, or cuda:0 for this machine's first GPU; a choice for it takes \
                         effort estimate or predict"
                    .to_string(),
            }),
        }
    }

    /// Computes the cheap features of a matrix `times` times; returns them and the time of each
    /// run.
    ///
    /// On a GPU that this process opened, a run starts with the CSR matrix on the GPU and ends when
    /// the host has the features; one untimed run precedes. Otherwise a run is on this host.
    ///
    /// # Errors
    /// As [`Backend::check`], and [`Error::Device`] from a GPU.
    ///
    /// # Panics
    /// If `times` is 0.
    pub fn features<'a, T: Scalar>(
        &self,
        csr: impl Into<CsrRef<'a, T>>,
        times: usize,
    ) -> Result<(Features, Samples)> {
        self.check()?;
        let csr = csr.into();
        if let Some(gpu) = &self.gpu {
            let there = cuda::DeviceCsr::upload(gpu, csr)?;
            gpu.features(&there)?;
            return timed(times, || gpu.features(&there));
        }
        timed(times, || Ok(Features::of(&Analysis::sampled(csr))))
    }

    /// Samples the features of a matrix `times` times, as a choice does for a matrix in the memory of
    /// the backend's GPU; `None` on a host.
    ///
    /// Returns the features, and the times until the host knew them.
    ///
    /// # Errors
    /// [`Error::Device`] if the GPU fails.
    ///
    /// # Panics
    /// If `times` is 0.
    pub fn sampled_features<'a, T: Scalar>(
        &self,
        csr: impl Into<CsrRef<'a, T>>,
        times: usize,
    ) -> Result<Option<(Features, Samples)>> {
        let Some(gpu) = &self.gpu else { return Ok(None) };
        let there = cuda::DeviceCsr::upload(gpu, csr)?;
        gpu.sample_features(&there)?;
        timed(times, || gpu.sample_features(&there)).map(Some)
    }

    /// Times the GPU's work for the features of a matrix, `times` times, without the host's share.
    ///
    /// Each sample is the launch of a graph in which copies of the matrix take turns, as many as
    /// `protocol` allows for products. `None` on a host, and if the features of this matrix are
    /// computed on the host.
    ///
    /// # Errors
    /// As [`Backend::features`].
    pub fn features_on_gpu<'a, T: Scalar>(
        &self,
        csr: impl Into<CsrRef<'a, T>>,
        protocol: &Protocol,
        times: usize,
    ) -> Result<Option<Samples>> {
        let csr = csr.into();
        if let Some(gpu) = &self.gpu {
            let there = cuda::DeviceCsr::upload(gpu, csr)?;
            let wanted = protocol.copies(there.bytes().iter().sum(), &self.device);
            let more = (1..wanted).map(|_| cuda::DeviceCsr::upload(gpu, csr));
            let copies = std::iter::once(Ok(there)).chain(more).collect::<Result<Vec<_>>>()?;
            let raw_s = (0..times).map(|_| gpu.time_features(&copies));
            let raw_s = raw_s.collect::<Result<Option<Vec<_>>>>()?;
            return Ok(raw_s.filter(|raw_s| !raw_s.is_empty()).map(Samples::new));
        }
        Ok(None)
    }

    /// Keeps a matrix ready for the candidates to be timed on it.
    ///
    /// A GPU receives it once; if that fails, every candidate reports the failure. For a worker,
    /// its hash is computed once.
    pub fn hold<'a, T: Scalar>(&'a self, csr: impl Into<CsrRef<'a, T>>) -> Holding<'a> {
        let csr = csr.into();
        if let Some(worker) = &self.worker {
            worker.lock().unwrap_or_else(PoisonError::into_inner).hold(csr);
        }
        if let Some(gpu) = &self.gpu {
            let held = ResidentMatrix::new(gpu, csr).ok();
            let held = held.map(|held| Arc::new(held) as Arc<dyn Any + Send + Sync>);
            *self.held.lock().unwrap_or_else(PoisonError::into_inner) = held;
        }
        Holding { backend: self }
    }

    /// Makes the device fault, for tests: a GPU by a kernel that writes to an unmapped address,
    /// which its next operation reports; a host by a stack overflow, which ends the process.
    ///
    /// # Errors
    /// [`Error::Device`] if the kernel cannot be launched.
    pub(super) fn fault(&self) -> Result<()> {
        if let Some(gpu) = &self.gpu {
            return gpu.fault();
        }
        overflow(0);
        Ok(())
    }

    /// Checks and times one candidate; a worker's process has to finish within `limit` or its own
    /// time limit, whichever is shorter.
    ///
    /// # Errors
    /// As [`Backend::check`], and [`Error::Device`] if a worker's process cannot be restarted.
    pub fn measure<'a, T: Scalar>(
        &self,
        csr: impl Into<CsrRef<'a, T>>,
        analysis: &Analysis<'_>,
        candidate: &Candidate,
        target: &Target<'_>,
        protocol: &Protocol,
        limit: Option<Duration>,
    ) -> Result<Measurement> {
        self.check()?;
        let csr = csr.into();
        if let Some(worker) = &self.worker {
            let mut worker = worker.lock().unwrap_or_else(PoisonError::into_inner);
            return worker.measure(csr, &candidate.to_string(), target, protocol, limit);
        }
        if let Some(gpu) = &self.gpu {
            let held = self.held();
            let held = held.as_ref().and_then(|held| held.downcast_ref::<ResidentMatrix<T>>());
            let held = held.filter(|held| held.is(csr));
            let measured = on_gpu(gpu, held, csr, analysis, candidate, target, protocol);
            return Ok(with_inputs(measured, analysis, candidate, target));
        }
        let measured = on_host(csr, candidate, target, protocol);
        Ok(with_inputs(measured, analysis, candidate, target))
    }

    /// Times conversions of a matrix on the GPU that this process opened, as [`Backend::measure`]
    /// does, without products; `None` if the format converts on the host.
    ///
    /// # Errors
    /// As [`Backend::gpu`]; [`Error::Refused`] if the candidate does not apply to the matrix;
    /// [`Error::Device`] from the GPU.
    pub fn conversions<'a, T: Scalar>(
        &self,
        csr: impl Into<CsrRef<'a, T>>,
        candidate: &Candidate,
        target: &Target<'_>,
        protocol: &Protocol,
    ) -> Result<Option<Samples>> {
        let (gpu, csr, held) = (self.gpu()?, csr.into(), self.held());
        let held = held.as_ref().and_then(|held| held.downcast_ref::<ResidentMatrix<T>>());
        let held = held.filter(|held| held.is(csr));
        conversions_on_gpu(gpu, csr, held, candidate, target, protocol)
    }

    /// Returns the matrix that [`Backend::hold`] keeps on the GPU.
    fn held(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl From<Device> for std::sync::Arc<Backend> {
    fn from(device: Device) -> Self {
        std::sync::Arc::new(Backend::of(device))
    }
}

/// Adds the inputs of the candidate's estimate to a measurement that was timed.
fn with_inputs(
    measured: Measurement,
    analysis: &Analysis<'_>,
    candidate: &Candidate,
    target: &Target<'_>,
) -> Measurement {
    let is_timed = matches!(measured.outcome, Outcome::Timed(_));
    let inputs = || CostInputs::of(analysis, candidate, target).ok().map(Box::new);
    let inputs = if is_timed { inputs() } else { None };
    Measurement { inputs, ..measured }
}

/// Calls `compute` `times` times; returns its last result and the time of each call.
fn timed(times: usize, compute: impl Fn() -> Result<Features>) -> Result<(Features, Samples)> {
    let time = |_| {
        let start = Instant::now();
        compute().map(|features| (features, start.elapsed().as_secs_f64()))
    };
    let (mut found, raw_s): (Vec<_>, _) = (0..times).map(time).collect::<Result<_>>()?;
    Ok((found.pop().expect("`times` is at least 1"), Samples::new(raw_s)))
}

/// A matrix that a backend keeps ready until this is dropped; see [`Backend::hold`].
#[derive(Debug)]
pub struct Holding<'a> {
    backend: &'a Backend,
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        if let Some(worker) = &self.backend.worker {
            worker.lock().unwrap_or_else(PoisonError::into_inner).release();
        }
        *self.backend.held.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Overflows the stack by endless recursion.
fn overflow(depth: u64) -> u64 {
    let depth = std::hint::black_box(depth);
    // The black box prevents the compiler from turning the recursion into a loop.
    if depth == u64::MAX { 0 } else { std::hint::black_box(overflow(depth + 1)) + depth }
}

/// Returns the known device names: shipped profiles and this machine's GPUs (feature `cuda`).
pub fn names() -> Vec<String> {
    let shipped = Device::shipped().into_iter().map(|device| device.name);
    shipped.chain((0..cuda::count()).map(cuda::handle)).collect()
}

/// Lists this machine's GPUs (feature `cuda`): the name `cuda:N` and the profile used if none is
/// saved.
///
/// # Errors
/// [`Error::Device`] from a driver.
pub fn gpus() -> Result<Vec<(String, Device)>> {
    cuda::all()
}
