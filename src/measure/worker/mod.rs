//! Measures in a child process: a candidate that crashes, hangs or breaks its device ends only that
//! process, and its outcome is recorded as failed.
//!
//! [`Worker`] is the parent's side, [`run`] the child's. They exchange JSON messages, one on each
//! line, over the child's standard input and output. A matrix follows its message as the bytes of
//! `row_ptr`, `col_idx` and `values`; it is sent once, then each candidate is one job. When its
//! input ends, the child ends at once, even during a measurement, so that it never outlives its
//! parent by long.

mod child;

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::provenance::all_kernels;
use super::{Measurement, Outcome, Protocol, Provenance};
use crate::csr::CsrRef;
use crate::device::{Device, Kind};
use crate::error::{DeviceFault, Error, Result};
use crate::fingerprint::Fingerprint;
use crate::format::{Basis, StoredValues, Target};
use crate::scalar::{Precision, Scalar};
pub use child::run;

/// Default time limit for one candidate.
pub const TIME_LIMIT: Duration = Duration::from_secs(120);

/// Time limit for a child to open its device.
const START_LIMIT: Duration = Duration::from_secs(60);

/// Time to wait for a child's exit after its output has closed.
const LAST_BREATH: Duration = Duration::from_secs(2);

/// Number of consecutive candidates that may end their child before the device counts as broken.
const MOST_DEATHS: u32 = 8;

/// First message of the child.
#[derive(Serialize, Deserialize)]
enum Hello {
    /// The child can time on this device.
    Ready { device: Box<Device>, driver: String },
    /// The child cannot time on this device.
    Failed(StartFailure),
}

/// Reason why the child cannot time: an error of its device, which the parent raises again.
#[derive(Serialize, Deserialize)]
enum StartFailure {
    /// [`Error::UnknownDevice`].
    Unknown { name: String, known: Vec<String>, remedy: String },
    /// [`Error::AbsentDevice`].
    Absent { name: String, remedy: String },
    /// [`Error::Device`].
    Device { fault: DeviceFault, what: String },
    /// Any other error, as its message.
    Other(String),
}

impl From<Error> for StartFailure {
    fn from(error: Error) -> Self {
        match error {
            Error::UnknownDevice { name, known, remedy } => {
                StartFailure::Unknown { name, known, remedy }
            }
            Error::AbsentDevice { name, remedy } => StartFailure::Absent { name, remedy },
            Error::Device { fault, what } => StartFailure::Device { fault, what },
            error => StartFailure::Other(error.to_string()),
        }
    }
}

impl StartFailure {
    /// Rebuilds the error. This is not a `From`: with a second conversion to [`Error`], `?` in
    /// closures could not infer its type.
    fn into_error(self) -> Error {
        match self {
            StartFailure::Unknown { name, known, remedy } => {
                Error::UnknownDevice { name, known, remedy }
            }
            StartFailure::Absent { name, remedy } => Error::AbsentDevice { name, remedy },
            StartFailure::Device { fault, what } => Error::Device { fault, what },
            StartFailure::Other(what) => Error::Device { fault: DeviceFault::Process, what },
        }
    }
}

/// Message to the child.
#[derive(Serialize, Deserialize)]
enum Request {
    /// Announces a matrix; its arrays follow.
    Matrix { nrows: usize, ncols: usize, nnz: usize, precision: Precision },
    /// Requests the measurement of a candidate on the matrix sent last.
    Job(Job),
}

#[derive(Serialize, Deserialize)]
struct Job {
    candidate: String,
    basis: Basis,
    memory_limit: u64,
    #[serde(default)]
    stored: StoredValues,
    protocol: Protocol,
}

/// The child's reply to a job.
#[derive(Serialize, Deserialize)]
struct Reply {
    measurement: Measurement,
    after: After,
}

/// Behaviour of the child process after a reply.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum After {
    /// The child accepts more jobs.
    Stays,
    /// The child ends, because its device may be in an undefined state.
    Ends,
}

/// Measures on one device through a child process, which is restarted when it ends.
///
/// ```no_run
/// use ellect::measure::{Backend, Worker};
///
/// # fn main() -> ellect::Result<()> {
/// // The program calls `ellect::measure::worker::run` with these arguments.
/// let worker = Worker::start("ellect".into(), vec!["worker".into(), "--device=cpu".into()])?;
/// let backend = Backend::through(worker);
/// assert_eq!(backend.device().name, "cpu");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Worker {
    program: PathBuf,
    arguments: Vec<OsString>,
    time_limit: Duration,
    device: Device,
    driver: String,
    running: Option<ChildProcess>,
    deaths: u32,
    /// Number of times that the child was started again.
    restarts: Arc<AtomicU64>,
    /// [`CsrRef::identity`] and key of a matrix on which several candidates are measured.
    held: Option<([usize; 6], MatrixKey)>,
}

impl Worker {
    /// Starts `program` and waits until it has opened its device; the program must call [`run`]
    /// with these arguments.
    ///
    /// # Errors
    /// [`Error::UnknownDevice`] and [`Error::AbsentDevice`] as [`Backend::open`](super::Backend::open)
    /// and [`Backend::check`](super::Backend::check); [`Error::Device`] if the program does not start.
    pub fn start(program: PathBuf, arguments: Vec<OsString>) -> Result<Self> {
        let (running, device, driver) = ChildProcess::start(&program, &arguments)?;
        Ok(Worker {
            program,
            arguments,
            time_limit: TIME_LIMIT,
            device,
            driver,
            running: Some(running),
            deaths: 0,
            restarts: Arc::default(),
            held: None,
        })
    }

    /// Sets the time limit for each candidate, which includes sending the matrix to the child.
    pub fn with_time_limit(mut self, time_limit: Duration) -> Self {
        self.time_limit = time_limit;
        self
    }

    /// Returns the device that the child has opened.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the driver of the device as named in records.
    pub fn driver(&self) -> &str {
        &self.driver
    }

    /// Returns the ID of the process that measures, if one is running.
    pub fn process_id(&self) -> Option<u32> {
        self.running.as_ref().map(|running| lock(&running.child).id())
    }

    /// Returns the number of times that the process was started again; it goes on to count.
    pub(super) fn restarts(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.restarts)
    }

    /// Announces that the next candidates are of this matrix, so that its key is computed only
    /// once.
    pub(super) fn hold<T: Scalar>(&mut self, csr: CsrRef<'_, T>) {
        self.held = Some((csr.identity(), MatrixKey::of(csr)));
    }

    /// Ends the effect of [`Worker::hold`].
    pub(super) fn release(&mut self) {
        self.held = None;
    }

    /// Checks and times one candidate, given as text. If it ends the child, or takes longer than
    /// `limit` or the worker's own time limit, its outcome is [`Outcome::Failed`].
    ///
    /// Unless the matrix is held, this makes an additional pass over it. The matrix is sent if
    /// another one was measured last.
    ///
    /// # Errors
    /// [`Error::Device`] if the child cannot be restarted, or if many consecutive candidates have
    /// ended it.
    pub fn measure<'a, T: Scalar>(
        &mut self,
        csr: impl Into<CsrRef<'a, T>>,
        candidate: &str,
        target: &Target<'_>,
        protocol: &Protocol,
        limit: Option<Duration>,
    ) -> Result<Measurement> {
        let csr = csr.into();
        let shorter = limit.filter(|&limit| limit < self.time_limit);
        let limit = shorter.unwrap_or(self.time_limit);
        let job = Job {
            candidate: candidate.to_string(),
            basis: target.basis,
            memory_limit: target.memory_limit,
            stored: target.stored,
            protocol: *protocol,
        };
        let identity = csr.identity();
        let held = self.held.filter(|(held, _)| *held == identity);
        let matrix = held.map_or_else(|| MatrixKey::of(csr), |(_, key)| key);
        // A child that ended between two jobs is not the fault of this candidate.
        let alive = |running: &ChildProcess| running.ended_within(Duration::ZERO).is_none();
        let mut running = match self.running.take().filter(alive) {
            Some(running) => running,
            None => {
                self.restarts.fetch_add(1, Ordering::Relaxed);
                ChildProcess::start(&self.program, &self.arguments)?.0
            }
        };
        let asked = running.within(limit, |to, from, holds| {
            if *holds != Some(matrix) {
                send_matrix(to, csr)?;
                *holds = Some(matrix);
            }
            send(to, &Request::Job(job))?;
            receive::<Reply>(from)
        });
        // The caller chose the shorter limit, so exceeding it does not count against the device.
        let cut = shorter.is_some() && matches!(asked, Err(ExchangeFailure::TimedOut(_)));
        let reason = match asked {
            Ok(answer) => {
                self.deaths = 0;
                if answer.after == After::Stays {
                    self.running = Some(running);
                }
                return Ok(answer.measurement);
            }
            Err(end) => running.end(end),
        };
        self.deaths += u32::from(!cut);
        if self.deaths >= MOST_DEATHS {
            self.deaths = 0;
            let what = format!(
                "{MOST_DEATHS} candidates in a row ended the process that measures on {}, \
                 {candidate} the last one: {reason}",
                self.device.name
            );
            return Err(Error::device(DeviceFault::Process, what));
        }
        Ok(Measurement {
            fingerprint: matrix.pattern,
            candidate: candidate.to_string(),
            device: self.device.name.clone(),
            threads: match self.device.kind {
                Kind::Host => rayon::current_num_threads() as u32,
                Kind::Gpu => 1,
            },
            precision: T::PRECISION,
            basis: target.basis,
            protocol: *protocol,
            provenance: Provenance::now(
                self.driver.clone(),
                all_kernels(self.device.kind, candidate),
            ),
            inputs: None,
            outcome: Outcome::Failed { reason },
        })
    }
}

/// Identifies a matrix by its pattern, values and precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MatrixKey {
    pattern: Fingerprint,
    values: u64,
    precision: Precision,
}

impl MatrixKey {
    fn of<T: Scalar>(csr: CsrRef<'_, T>) -> Self {
        MatrixKey {
            pattern: Fingerprint::of(csr.pattern()),
            values: xxh3_64(bytemuck::cast_slice(csr.values())),
            precision: T::PRECISION,
        }
    }
}

/// Reason why an exchange with the child failed.
enum ExchangeFailure {
    /// The child did not reply within this time.
    TimedOut(Duration),
    /// The pipe broke.
    Broken(io::Error),
}

/// A running child process; it is killed when this is dropped.
#[derive(Debug)]
struct ChildProcess {
    child: Mutex<Child>,
    to: BufWriter<ChildStdin>,
    from: BufReader<ChildStdout>,
    holds: Option<MatrixKey>,
}

impl ChildProcess {
    fn start(program: &PathBuf, arguments: &[OsString]) -> Result<(Self, Device, String)> {
        let unable = |what: String| {
            let what = format!("the measuring process {}: {what}", program.display());
            Error::device(DeviceFault::Process, what)
        };
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        // A terminal's interrupt goes to the parent only; the end of the parent ends the child.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn().map_err(|error| unable(error.to_string()))?;
        let (to, from) = (child.stdin.take(), child.stdout.take());
        let (to, from) = to.zip(from).expect("both were asked for as pipes");
        let mut running = ChildProcess {
            child: Mutex::new(child),
            to: BufWriter::with_capacity(1 << 16, to),
            from: BufReader::new(from),
            holds: None,
        };
        match running.within(START_LIMIT, |_, from, _| receive::<Hello>(from)) {
            Ok(Hello::Ready { device, driver }) => Ok((running, *device, driver)),
            Ok(Hello::Failed(why)) => Err(why.into_error()),
            Err(end) => Err(unable(running.end(end))),
        }
    }

    /// Runs an exchange with the child; kills the child if that takes longer than `limit`.
    fn within<R>(
        &mut self,
        limit: Duration,
        talk: impl FnOnce(
            &mut BufWriter<ChildStdin>,
            &mut BufReader<ChildStdout>,
            &mut Option<MatrixKey>,
        ) -> io::Result<R>,
    ) -> std::result::Result<R, ExchangeFailure> {
        let (done, over) = channel::<()>();
        let child = &self.child;
        thread::scope(|scope| {
            let watch = scope.spawn(move || match over.recv_timeout(limit) {
                Err(RecvTimeoutError::Timeout) => {
                    let _ = lock(child).kill();
                    true
                }
                Ok(()) | Err(RecvTimeoutError::Disconnected) => false,
            });
            let result = talk(&mut self.to, &mut self.from, &mut self.holds);
            drop(done);
            let timed_out = watch.join().unwrap_or(false);
            match result {
                _ if timed_out => Err(ExchangeFailure::TimedOut(limit)),
                Ok(answer) => Ok(answer),
                Err(error) => Err(ExchangeFailure::Broken(error)),
            }
        })
    }

    /// Ends the child and returns the reason as text.
    fn end(self, end: ExchangeFailure) -> String {
        match end {
            ExchangeFailure::TimedOut(limit) => {
                format!("it timed out after {} s", limit.as_secs_f64())
            }
            ExchangeFailure::Broken(error) => match self.ended_within(LAST_BREATH) {
                Some(status) => format!("the process that measured it ended by {status}"),
                None => format!("the process that measured it does not respond: {error}"),
            },
        }
    }

    /// Waits at most `time` for the child to exit; returns its exit status.
    fn ended_within(&self, time: Duration) -> Option<ExitStatus> {
        let start = Instant::now();
        loop {
            let status = lock(&self.child).try_wait().ok().flatten();
            if status.is_some() || start.elapsed() >= time {
                return status;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let mut child = lock(&self.child);
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn lock(child: &Mutex<Child>) -> MutexGuard<'_, Child> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}

fn send(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *to, message)?;
    to.write_all(b"\n")?;
    to.flush()
}

fn send_matrix<T: Scalar>(to: &mut impl Write, csr: CsrRef<'_, T>) -> io::Result<()> {
    let (nrows, ncols, nnz) = (csr.nrows(), csr.ncols(), csr.nnz());
    send(to, &Request::Matrix { nrows, ncols, nnz, precision: T::PRECISION })?;
    to.write_all(bytemuck::cast_slice(csr.pattern().row_ptr()))?;
    to.write_all(bytemuck::cast_slice(csr.pattern().col_idx()))?;
    to.write_all(bytemuck::cast_slice(csr.values()))?;
    to.flush()
}

/// Waits for a message; skips lines that are not messages, such as output of a library.
///
/// # Errors
/// If a message cannot be parsed, for instance because a number is not representable in JSON;
/// skipping it would wait forever.
fn receive<M: DeserializeOwned>(from: &mut impl BufRead) -> io::Result<M> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if from.read_until(b'\n', &mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match serde_json::from_slice(&line) {
            Ok(message) => return Ok(message),
            Err(error) if line.starts_with(b"{") => return Err(error.into()),
            Err(_) => {}
        }
    }
}
