//! What measures: this host, or one of its GPUs.

#[cfg(feature = "cuda")]
use std::any::Any;
#[cfg(feature = "cuda")]
use std::sync::Arc;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

#[cfg(feature = "cuda")]
use super::gpu::{Held, on_gpu};
use super::{Measurement, Outcome, Protocol, Samples, Worker, on_host};
use crate::cost::CostInputs;
use crate::csr::CsrRef;
use crate::device::{self, Device, Kind};
use crate::error::{Error, Result};
use crate::features::Features;
use crate::format::{Candidate, Target};
use crate::operator::PreparedOperator;
use crate::scalar::Scalar;
use crate::structure::Structure;

/// A device that candidates can be timed on, or only be estimated for.
///
/// ```
/// use ellect::{Error, device};
/// use ellect::measure::Meter;
///
/// # fn main() -> ellect::Result<()> {
/// assert!(Meter::of(device::find("cpu")?).check().is_ok());
/// let absent = Meter::of(device::find("h200")?).check();
/// assert!(matches!(absent, Err(Error::AbsentDevice { .. })));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Meter {
    device: Device,
    worker: Option<Mutex<Worker>>,
    /// Of the worker: it is told without a wait for the worker's job.
    driver: Option<String>,
    #[cfg(feature = "cuda")]
    gpu: Option<Arc<cuda::Gpu>>,
    /// A matrix on the GPU, [`Held`].
    #[cfg(feature = "cuda")]
    held: Mutex<Option<Arc<dyn Any + Send + Sync>>>,
}

impl Meter {
    /// A meter for a device that is known by its profile; a host can be timed on, a GPU cannot.
    pub fn of(device: Device) -> Self {
        Meter {
            device,
            worker: None,
            driver: None,
            #[cfg(feature = "cuda")]
            gpu: None,
            #[cfg(feature = "cuda")]
            held: Mutex::default(),
        }
    }

    /// A meter that times in the worker's process; what it prepares, it prepares for the host.
    pub fn through(worker: Worker) -> Self {
        let (device, driver) = (worker.device().clone(), worker.driver().to_string());
        Meter { worker: Some(Mutex::new(worker)), driver: Some(driver), ..Meter::of(device) }
    }

    /// The device of this name: `cuda:N` opens GPU `N` of this machine (feature `cuda`), any other
    /// name is a profile; the profile of either is the one saved under `data` where there is one.
    ///
    /// # Errors
    /// [`Error::UnknownDevice`] where there is none; [`Error::Device`] where it does not open.
    pub fn open(name: &str, data: &std::path::Path) -> Result<Self> {
        match name.strip_prefix("cuda:") {
            Some(index) => Meter::open_gpu(name, index, data),
            None => Ok(Meter::of(device::find_in(name, data)?)),
        }
    }

    #[cfg(feature = "cuda")]
    fn open_gpu(name: &str, index: &str, data: &std::path::Path) -> Result<Self> {
        // One name for one GPU: not cuda:00.
        let parsed = index.parse().ok().filter(|parsed: &u32| parsed.to_string() == index);
        let known = || device::unknown(name, names(), "");
        let gpu = cuda::Gpu::open(parsed.ok_or_else(known)?)?;
        let own = gpu.profile();
        let device = device::saved(&own.name, data)?.unwrap_or_else(|| own.clone());
        Ok(Meter { gpu: Some(Arc::new(gpu)), ..Meter::of(device) })
    }

    #[cfg(not(feature = "cuda"))]
    fn open_gpu(name: &str, _index: &str, _data: &std::path::Path) -> Result<Self> {
        Err(device::unknown(
            name,
            names(),
            "GPUs of this machine need a program built with the feature cuda",
        ))
    }

    /// Converts a matrix for this device: on its GPU, where it is one of this machine, else for the
    /// host.
    ///
    /// # Errors
    /// [`Error::Refused`] where the candidate does not suit the matrix, [`Error::Device`] by a GPU.
    pub fn prepare<'a, T: Scalar>(
        &self,
        csr: impl Into<CsrRef<'a, T>>,
        structure: &Structure<'_>,
        candidate: &Candidate,
        target: &Target<'_>,
    ) -> Result<PreparedOperator<T>> {
        let csr = csr.into();
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &self.gpu {
            let on_gpu = Arc::new(cuda::DeviceCsr::upload(gpu, csr)?);
            return PreparedOperator::on_gpu(gpu, &on_gpu, csr, structure, candidate, target);
        }
        PreparedOperator::with_structure(csr, structure, candidate, target)
    }

    /// The device's profile.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The GPU that this process opened.
    ///
    /// # Errors
    /// [`Error::Argument`] where it opened none.
    #[cfg(feature = "cuda")]
    pub fn gpu(&self) -> Result<&Arc<cuda::Gpu>> {
        self.gpu.as_ref().ok_or_else(|| {
            let name = &self.device.name;
            Error::argument(format!(
                "{name} is no GPU that this process opened; open one as cuda:0"
            ))
        })
    }

    /// The driver of the device, as records name it; `None` where the device is not at hand.
    pub fn driver(&self) -> Option<String> {
        if self.driver.is_some() {
            return self.driver.clone();
        }
        #[cfg(feature = "cuda")]
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
    /// [`Error::AbsentDevice`] where they cannot.
    pub fn check(&self) -> Result<()> {
        if self.worker.is_some() {
            return Ok(());
        }
        #[cfg(feature = "cuda")]
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

    /// The cheap features of a matrix and the seconds that they took, `times` times: on a GPU that
    /// this process opened, from the CSR matrix there until they are known on the host, after once
    /// untimed; else on this host.
    ///
    /// # Errors
    /// As [`Meter::check`], and [`Error::Device`] by a GPU.
    ///
    /// # Panics
    /// For no times.
    pub fn features<'a, T: Scalar>(
        &self,
        csr: impl Into<CsrRef<'a, T>>,
        times: usize,
    ) -> Result<(Features, Samples)> {
        self.check()?;
        let csr = csr.into();
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &self.gpu {
            let there = cuda::DeviceCsr::upload(gpu, csr)?;
            gpu.features(&there)?;
            return timed(times, || gpu.features(&there));
        }
        timed(times, || Ok(Features::of(&Structure::sampled(csr))))
    }

    /// The seconds that a GPU which this process opened is at work for the features of a matrix,
    /// `times` times: launches of a graph, in which as many copies of the matrix take turns as
    /// `protocol` lets products have. `None` on a host, and where a host looks at the matrix.
    ///
    /// # Errors
    /// As [`Meter::features`].
    pub fn features_on_gpu<'a, T: Scalar>(
        &self,
        csr: impl Into<CsrRef<'a, T>>,
        protocol: &Protocol,
        times: usize,
    ) -> Result<Option<Samples>> {
        let csr = csr.into();
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &self.gpu {
            let there = cuda::DeviceCsr::upload(gpu, csr)?;
            let wanted = protocol.copies(there.bytes().iter().sum(), &self.device);
            let more = (1..wanted).map(|_| cuda::DeviceCsr::upload(gpu, csr));
            let copies = std::iter::once(Ok(there)).chain(more).collect::<Result<Vec<_>>>()?;
            let raw_s = (0..times).map(|_| gpu.time_features(&copies));
            let raw_s = raw_s.collect::<Result<Option<Vec<_>>>>()?;
            return Ok(raw_s.filter(|raw_s| !raw_s.is_empty()).map(Samples::new));
        }
        let _ = (csr, protocol, times);
        Ok(None)
    }

    /// Keeps a matrix at hand for the candidates that are timed on it: on a GPU, it is uploaded
    /// once, where a failure is told by each candidate; for a worker, it is looked through once.
    pub fn hold<'a, T: Scalar>(&'a self, csr: impl Into<CsrRef<'a, T>>) -> Holding<'a> {
        let csr = csr.into();
        if let Some(worker) = &self.worker {
            worker.lock().unwrap_or_else(PoisonError::into_inner).hold(csr);
        }
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &self.gpu {
            let held = Held::new(gpu, csr).ok();
            let held = held.map(|held| Arc::new(held) as Arc<dyn Any + Send + Sync>);
            *self.held.lock().unwrap_or_else(PoisonError::into_inner) = held;
        }
        Holding { meter: self }
    }

    /// Lets the device fault: a GPU by a kernel that writes where no memory is, which its next work
    /// meets; a host by a stack without end, which ends the process. For tests.
    ///
    /// # Errors
    /// [`Error::Device`] where the kernel is not launched.
    pub(super) fn fault(&self) -> Result<()> {
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &self.gpu {
            return gpu.fault();
        }
        overflow(0);
        Ok(())
    }

    /// Checks and times one candidate; in a worker's process within `limit`, or the worker's own
    /// time limit where that is less.
    ///
    /// # Errors
    /// As [`Meter::check`], and [`Error::Device`] where a worker's process does not start again.
    pub fn measure<'a, T: Scalar>(
        &self,
        csr: impl Into<CsrRef<'a, T>>,
        structure: &Structure<'_>,
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
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &self.gpu {
            let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let held = held.as_ref().and_then(|held| held.downcast_ref::<Held<T>>());
            let held = held.filter(|held| held.is(csr));
            let measured = on_gpu(gpu, held, csr, structure, candidate, target, protocol);
            return Ok(with_inputs(measured, structure, candidate, target));
        }
        let measured = on_host(csr, candidate, target, protocol);
        Ok(with_inputs(measured, structure, candidate, target))
    }
}

/// The same measurement with the inputs of its estimate, where it was timed.
fn with_inputs(
    measured: Measurement,
    structure: &Structure<'_>,
    candidate: &Candidate,
    target: &Target<'_>,
) -> Measurement {
    let is_timed = matches!(measured.outcome, Outcome::Timed(_));
    let inputs = || CostInputs::of(structure, candidate, target).ok().map(Box::new);
    let inputs = if is_timed { inputs() } else { None };
    Measurement { inputs, ..measured }
}

/// What `look` gives the last time, and the seconds of each time.
fn timed(times: usize, look: impl Fn() -> Result<Features>) -> Result<(Features, Samples)> {
    let time = |_| {
        let start = Instant::now();
        look().map(|features| (features, start.elapsed().as_secs_f64()))
    };
    let (mut found, raw_s): (Vec<_>, _) = (0..times).map(time).collect::<Result<_>>()?;
    Ok((found.pop().expect("it looked at least once"), Samples::new(raw_s)))
}

/// A matrix that a meter keeps at hand until this is dropped; see [`Meter::hold`].
#[derive(Debug)]
pub struct Holding<'a> {
    meter: &'a Meter,
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        if let Some(worker) = &self.meter.worker {
            worker.lock().unwrap_or_else(PoisonError::into_inner).release();
        }
        #[cfg(feature = "cuda")]
        {
            *self.meter.held.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}

/// Takes more of the stack than there is.
fn overflow(depth: u64) -> u64 {
    let depth = std::hint::black_box(depth);
    // The black box keeps the call from becoming a loop.
    if depth == u64::MAX { 0 } else { std::hint::black_box(overflow(depth + 1)) + depth }
}

/// The names that there are: shipped profiles, and the GPUs of this machine (feature `cuda`).
pub fn names() -> Vec<String> {
    let shipped = Device::shipped().into_iter().map(|device| device.name);
    #[cfg(feature = "cuda")]
    let shipped = shipped.chain((0..cuda::count()).map(cuda::handle));
    shipped.collect()
}

/// The GPUs of this machine (feature `cuda`), as `cuda:N`, and the profile of each that none is saved
/// of.
///
/// # Errors
/// [`Error::Device`] by a driver.
pub fn gpus() -> Result<Vec<(String, Device)>> {
    #[cfg(feature = "cuda")]
    let all = cuda::all()?;
    #[cfg(not(feature = "cuda"))]
    let all = Vec::new();
    Ok(all)
}
