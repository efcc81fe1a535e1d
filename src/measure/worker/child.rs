//! The child process that measures.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use super::super::{Backend, Outcome};
use super::{After, Hello, Job, Reply, Request, receive, send};
use crate::analysis::Analysis;
use crate::csr::Csr;
use crate::device::Kind;
use crate::error::Result;
use crate::format::{CSR, Candidate, Target};
use crate::scalar::{Precision, Scalar};

/// A message from the parent, including the matrix if it has one.
enum Incoming {
    F32(Csr<f32>),
    F64(Csr<f64>),
    Job(Job),
}

/// Measures on the named device until the input ends; the child's side of
/// [`Worker`](super::Worker).
///
/// The end of the input ends the process immediately, even during a measurement.
///
/// # Errors
/// [`Error::Io`](crate::error::Error::Io) if the output cannot be written.
pub fn run(
    name: &str,
    data: &Path,
    input: impl Read + Send + 'static,
    mut output: impl Write,
) -> Result<()> {
    let io = |source| crate::error::Error::Io { what: "answering the parent".into(), source };
    let backend =
        match Backend::open(name, data).and_then(|backend| backend.check().map(|()| backend)) {
            Ok(backend) => backend,
            Err(error) => return send(&mut output, &Hello::Failed(error.into())).map_err(io),
        };
    let device = Box::new(backend.device().clone());
    let driver = backend.driver().unwrap_or_default();
    send(&mut output, &Hello::Ready { device, driver }).map_err(io)?;
    let (sender, incoming) = sync_channel(1);
    thread::spawn(move || {
        let mut input = BufReader::with_capacity(1 << 16, input);
        while let Ok(next) = take(&mut input) {
            if sender.send(next).is_err() {
                break;
            }
        }
        process::exit(0);
    });
    let mut next = incoming.recv().ok();
    while let Some(matrix) = next {
        next = match matrix {
            Incoming::F32(csr) => jobs(&backend, &csr, &incoming, &mut output),
            Incoming::F64(csr) => jobs(&backend, &csr, &incoming, &mut output),
            // A job before any matrix; the parent never sends this.
            Incoming::Job(_) => Ok(None),
        }
        .map_err(io)?;
    }
    Ok(())
}

/// Runs the jobs on one matrix; returns the next matrix, or `None` if the child must end.
fn jobs<T: Scalar>(
    backend: &Backend,
    csr: &Csr<T>,
    incoming: &Receiver<Incoming>,
    output: &mut impl Write,
) -> io::Result<Option<Incoming>> {
    let analysis = Analysis::sampled(csr).with_partitioning();
    let _held = backend.hold(csr);
    while let Ok(next) = incoming.recv() {
        let Incoming::Job(job) = next else { return Ok(Some(next)) };
        let target = Target {
            device: backend.device(),
            precision: T::PRECISION,
            basis: job.basis,
            memory_limit: job.memory_limit,
            stored: job.stored,
        };
        let measured = candidate(&job.candidate, backend).and_then(|candidate| {
            backend.measure(csr, &analysis, &candidate, &target, &job.protocol, None)
        });
        let mut measurement = measured.map_err(io::Error::other)?;
        measurement.candidate = job.candidate;
        let after = match (&measurement.outcome, backend.device().kind) {
            (Outcome::Failed { .. }, Kind::Gpu) => After::Ends,
            _ => After::Stays,
        };
        send(output, &Reply { measurement, after })?;
        if after == After::Ends {
            return Ok(None);
        }
    }
    Ok(None)
}

/// Parses a candidate; debug builds also accept the commands of tests that end, block or fault this
/// process.
fn candidate(text: &str, backend: &Backend) -> Result<Candidate> {
    if cfg!(debug_assertions) {
        match text {
            "debug:exit" => process::exit(3),
            "debug:hang" => loop {
                thread::park();
            },
            "debug:abort" => process::abort(),
            "debug:fault" => {
                backend.fault()?;
                return CSR.parse();
            }
            _ => {}
        }
    }
    text.parse()
}

/// Reads one message and the matrix that follows it, if any.
fn take(input: &mut impl BufRead) -> io::Result<Incoming> {
    match receive(input)? {
        Request::Job(job) => Ok(Incoming::Job(job)),
        Request::Matrix { nrows, ncols, nnz, precision: Precision::F32 } => {
            matrix(input, nrows, ncols, nnz).map(Incoming::F32)
        }
        Request::Matrix { nrows, ncols, nnz, precision: Precision::F64 } => {
            matrix(input, nrows, ncols, nnz).map(Incoming::F64)
        }
    }
}

fn matrix<T: Scalar>(
    input: &mut impl Read,
    nrows: usize,
    ncols: usize,
    nnz: usize,
) -> io::Result<Csr<T>> {
    let (mut row_ptr, mut col_idx, mut values) =
        (vec![0usize; nrows + 1], vec![0u32; nnz], vec![T::ZERO; nnz]);
    input.read_exact(bytemuck::cast_slice_mut(&mut row_ptr))?;
    input.read_exact(bytemuck::cast_slice_mut(&mut col_idx))?;
    input.read_exact(bytemuck::cast_slice_mut(&mut values))?;
    Csr::new(nrows, ncols, row_ptr, col_idx, values).map_err(io::Error::other)
}
