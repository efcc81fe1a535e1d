//! Measuring in a process of its own: a candidate that crashes, hangs or breaks its device ends
//! that process, and is recorded as failed.
//!
//! [`Worker`] is this side, [`run`] the other one. They talk over the child's standard input and
//! output, a JSON message a line; a matrix follows its message as the bytes of `row_ptr`, `col_idx`
//! and `values`. A matrix crosses once, then each candidate is one job. The end of its input ends
//! the child at once, also while it measures, so it never outlives its parent by long.

mod child;

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
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
use crate::format::{Basis, Target};
use crate::scalar::{Precision, Scalar};
pub use child::run;

/// The time that one candidate may take if nothing else is said.
pub const TIME_LIMIT: Duration = Duration::from_secs(120);

/// The time that a child may take to open its device.
const START_LIMIT: Duration = Duration::from_secs(60);

/// The time between a child's last word and its end.
const LAST_BREATH: Duration = Duration::from_secs(2);

/// So many candidates in a row that end their child are an error of the device.
const MOST_DEATHS: u32 = 8;

/// What the child says first.
#[derive(Serialize, Deserialize)]
enum Hello {
    /// It can time on this device.
    Ready { device: Box<Device>, driver: String },
    /// It cannot.
    Unable(Unable),
}

/// Why the child cannot time: an error of its device, to be raised again by the parent.
#[derive(Serialize, Deserialize)]
enum Unable {
    /// [`Error::UnknownDevice`].
    Unknown { name: String, known: Vec<String>, remedy: String },
    /// [`Error::AbsentDevice`].
    Absent { name: String, remedy: String },
    /// [`Error::Device`].
    Device { fault: DeviceFault, what: String },
    /// Any other error, as its message.
    Other(String),
}

impl From<Error> for Unable {
    fn from(error: Error) -> Self {
        match error {
            Error::UnknownDevice { name, known, remedy } => Unable::Unknown { name, known, remedy },
            Error::AbsentDevice { name, remedy } => Unable::Absent { name, remedy },
            Error::Device { fault, what } => Unable::Device { fault, what },
            error => Unable::Other(error.to_string()),
        }
    }
}

impl Unable {
    /// The error again. No `From`: with two conversions to [`Error`], `?` in closures would not know
    /// its type.
    fn into_error(self) -> Error {
        match self {
            Unable::Unknown { name, known, remedy } => Error::UnknownDevice { name, known, remedy },
            Unable::Absent { name, remedy } => Error::AbsentDevice { name, remedy },
            Unable::Device { fault, what } => Error::Device { fault, what },
            Unable::Other(what) => Error::Device { fault: DeviceFault::Process, what },
        }
    }
}

/// What the child is sent.
#[derive(Serialize, Deserialize)]
enum Request {
    /// A matrix, whose arrays follow.
    Matrix { nrows: usize, ncols: usize, nnz: usize, precision: Precision },
    /// A candidate to measure on the matrix sent last.
    Job(Job),
}

#[derive(Serialize, Deserialize)]
struct Job {
    candidate: String,
    basis: Basis,
    memory_limit: u64,
    protocol: Protocol,
}

/// What the child says of a job.
#[derive(Serialize, Deserialize)]
struct Answer {
    measurement: Measurement,
    after: After,
}

/// What the child does after an answer.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum After {
    /// It takes more jobs.
    Stays,
    /// It ends, as its device may be left in any state.
    Ends,
}

/// Measures on one device through a child process, which is started again when it ends.
#[derive(Debug)]
pub struct Worker {
    program: PathBuf,
    arguments: Vec<OsString>,
    time_limit: Duration,
    device: Device,
    driver: String,
    running: Option<Running>,
    deaths: u32,
    /// [`CsrRef::identity`] and key of a matrix that is measured again and again.
    held: Option<([usize; 6], Key)>,
}

impl Worker {
    /// Starts `program`, which must call [`run`] with these arguments, and waits until it has
    /// opened its device.
    ///
    /// # Errors
    /// [`Error::UnknownDevice`] and [`Error::AbsentDevice`] as [`Meter::open`](super::Meter::open) and
    /// [`Meter::check`](super::Meter::check); [`Error::Device`] where the program does not start.
    pub fn start(program: PathBuf, arguments: Vec<OsString>) -> Result<Self> {
        let (running, device, driver) = Running::start(&program, &arguments)?;
        Ok(Worker {
            program,
            arguments,
            time_limit: TIME_LIMIT,
            device,
            driver,
            running: Some(running),
            deaths: 0,
            held: None,
        })
    }

    /// The same worker, giving each candidate this time, the matrix's way to the child included.
    pub fn with_time_limit(mut self, time_limit: Duration) -> Self {
        self.time_limit = time_limit;
        self
    }

    /// The device that the child has opened.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Its driver, as records name it.
    pub fn driver(&self) -> &str {
        &self.driver
    }

    /// The process that measures, where one is running.
    pub fn process_id(&self) -> Option<u32> {
        self.running.as_ref().map(|running| lock(&running.child).id())
    }

    /// Tells that the next candidates are of this matrix, so that it is looked through only once.
    pub(super) fn hold<T: Scalar>(&mut self, csr: CsrRef<'_, T>) {
        self.held = Some((csr.identity(), Key::of(csr)));
    }

    /// Ends what [`Worker::hold`] began.
    pub(super) fn release(&mut self) {
        self.held = None;
    }

    /// Checks and times one candidate, given as text; one that ends the child, or takes longer than
    /// `limit` or the worker's own time limit, has [`Outcome::Failed`].
    ///
    /// One pass over the matrix besides unless it is held, and its transfer where another one was
    /// measured last.
    ///
    /// # Errors
    /// [`Error::Device`] where the child does not start again, or where many candidates in a row
    /// have ended it.
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
            protocol: *protocol,
        };
        let identity = csr.identity();
        let held = self.held.filter(|(held, _)| *held == identity);
        let matrix = held.map_or_else(|| Key::of(csr), |(_, key)| key);
        // A child that ended between two jobs is nothing that this candidate did.
        let alive = |running: &Running| running.ended_within(Duration::ZERO).is_none();
        let mut running = match self.running.take().filter(alive) {
            Some(running) => running,
            None => Running::start(&self.program, &self.arguments)?.0,
        };
        let asked = running.within(limit, |to, from, holds| {
            if *holds != Some(matrix) {
                send_matrix(to, csr)?;
                *holds = Some(matrix);
            }
            send(to, &Request::Job(job))?;
            receive::<Answer>(from)
        });
        // Who gives a candidate less time than it may take knows what that ends.
        let cut = shorter.is_some() && matches!(asked, Err(End::TimedOut(_)));
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

/// What tells one matrix from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    pattern: Fingerprint,
    values: u64,
    precision: Precision,
}

impl Key {
    fn of<T: Scalar>(csr: CsrRef<'_, T>) -> Self {
        Key {
            pattern: Fingerprint::of(csr.pattern()),
            values: xxh3_64(bytemuck::cast_slice(csr.values())),
            precision: T::PRECISION,
        }
    }
}

/// Why an exchange with the child came to nothing.
enum End {
    /// It took longer than this.
    TimedOut(Duration),
    /// The pipe broke.
    Broken(io::Error),
}

/// A child at hand; it is killed when this is dropped.
#[derive(Debug)]
struct Running {
    child: Mutex<Child>,
    to: BufWriter<ChildStdin>,
    from: BufReader<ChildStdout>,
    holds: Option<Key>,
}

impl Running {
    fn start(program: &PathBuf, arguments: &[OsString]) -> Result<(Self, Device, String)> {
        let unable = |what: String| {
            let what = format!("the measuring process {}: {what}", program.display());
            Error::device(DeviceFault::Process, what)
        };
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        // The terminal's interrupt is for the parent; its end ends the child.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn().map_err(|error| unable(error.to_string()))?;
        let (to, from) = (child.stdin.take(), child.stdout.take());
        let (to, from) = to.zip(from).expect("both were asked for as pipes");
        let mut running = Running {
            child: Mutex::new(child),
            to: BufWriter::with_capacity(1 << 16, to),
            from: BufReader::new(from),
            holds: None,
        };
        match running.within(START_LIMIT, |_, from, _| receive::<Hello>(from)) {
            Ok(Hello::Ready { device, driver }) => Ok((running, *device, driver)),
            Ok(Hello::Unable(why)) => Err(why.into_error()),
            Err(end) => Err(unable(running.end(end))),
        }
    }

    /// Talks with the child, which is killed where that takes longer than `limit`.
    fn within<R>(
        &mut self,
        limit: Duration,
        talk: impl FnOnce(
            &mut BufWriter<ChildStdin>,
            &mut BufReader<ChildStdout>,
            &mut Option<Key>,
        ) -> io::Result<R>,
    ) -> std::result::Result<R, End> {
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
                _ if timed_out => Err(End::TimedOut(limit)),
                Ok(answer) => Ok(answer),
                Err(error) => Err(End::Broken(error)),
            }
        })
    }

    /// Ends the child and tells how it ended.
    fn end(self, end: End) -> String {
        match end {
            End::TimedOut(limit) => format!("it timed out after {} s", limit.as_secs_f64()),
            End::Broken(error) => match self.ended_within(LAST_BREATH) {
                Some(status) => format!("the process that measured it ended by {status}"),
                None => format!("the process that measured it could not be heard: {error}"),
            },
        }
    }

    /// How the child ended, if it does so within this time.
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

impl Drop for Running {
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

/// Waits for a message. Lines of other kinds, of a library that prints, are passed over.
///
/// # Errors
/// A message that does not read, as of numbers that JSON does not have, which nobody would answer.
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
