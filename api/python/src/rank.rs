//! Ranks: a matrix that several processes share, between which a Python function or sockets move bytes.

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ellect::csr::CsrRef;
use ellect::sharded::{Exchange, ExchangeError, Incoming, Mode, Outgoing, Sockets, Split};
use ellect::{Error, Precision, Result, Scalar, Workload, sharded};
use pyo3::buffer::{Element, PyBuffer};
use pyo3::prelude::*;
use pyo3::types::PyByteArray;

use crate::arrays::{Matrix, ValuesRef, elements, elements_mut};
use crate::errors::{exception, run};
use crate::operator::apart;
use crate::tuner::{Tuner, Use, json};

/// A Python function `exchange(send, receive)` that moves messages, each a pair of a rank and a
/// bytearray.
struct Function(Py<PyAny>);

impl Exchange for Function {
    fn exchange(
        &mut self,
        send: &[Outgoing<'_>],
        receive: &mut [Incoming<'_>],
        _meanwhile: &mut dyn FnMut(),
    ) -> std::result::Result<(), ExchangeError> {
        Python::attach(|py| {
            let message = |rank: usize, bytes: &[u8]| (rank, PyByteArray::new(py, bytes));
            let sent: Vec<_> = send.iter().map(|to| message(to.rank, to.bytes)).collect();
            let room: Vec<_> = receive.iter().map(|from| message(from.rank, from.bytes)).collect();
            self.0.call1(py, (sent, room.clone()))?;
            for (from, (rank, bytes)) in receive.iter_mut().zip(&room) {
                let (got, wanted) = (bytes.len(), from.bytes.len());
                if got != wanted {
                    let what = format!(
                        "the exchange left {got} bytes for the message from rank {rank}, which has \
                         {wanted}; fill the bytearray in place"
                    );
                    return Err(what.into());
                }
                from.bytes.copy_from_slice(&bytes.to_vec());
            }
            Ok(())
        })
    }
}

/// One of several processes that share a matrix.
#[pyclass(frozen, module = "ellect._ellect")]
pub struct Rank(sharded::Rank);

/// The own rows of a matrix, of either precision.
enum Prepared {
    F32(sharded::RankOperator<f32>),
    F64(sharded::RankOperator<f64>),
}

impl From<sharded::RankOperator<f32>> for Prepared {
    fn from(operator: sharded::RankOperator<f32>) -> Self {
        Prepared::F32(operator)
    }
}

impl From<sharded::RankOperator<f64>> for Prepared {
    fn from(operator: sharded::RankOperator<f64>) -> Self {
        Prepared::F64(operator)
    }
}

/// The divisions of the rows that need no more than a name.
const SPLITS: [(&str, Split<'static>); 3] = [
    ("equal-rows", Split::EqualRows),
    ("equal-nonzeros", Split::EqualNonzeros),
    ("few-cuts", Split::FewCuts),
];

/// Returns the division with this name.
fn named(split: &str) -> Result<Split<'static>> {
    let found = SPLITS.iter().find(|(name, _)| *name == split);
    found.map(|&(_, split)| split).ok_or_else(|| {
        let names = SPLITS.map(|(name, _)| name).join(", ");
        Error::argument(format!("no split is named '{split}'; there are: {names}"))
    })
}

/// Evaluates `$body` for the operator of either precision.
macro_rules! each {
    ($prepared:expr, $operator:ident => $body:expr) => {
        match $prepared {
            Prepared::F32($operator) => $body,
            Prepared::F64($operator) => $body,
        }
    };
}

/// A way to prepare the rank's rows, for a matrix of either precision.
trait Way {
    fn prepare<T: Scalar>(&self, csr: CsrRef<'_, T>) -> Result<sharded::RankOperator<T>>;
}

/// Own rows of the rank, and the number of own columns.
struct Rows<'a>(&'a Rank, &'a Tuner, Workload, Option<usize>);

impl Way for Rows<'_> {
    fn prepare<T: Scalar>(&self, csr: CsrRef<'_, T>) -> Result<sharded::RankOperator<T>> {
        let Rows(rank, tuner, workload, columns) = self;
        rank.0.prepare_rows(&tuner.0, csr, *columns, workload)
    }
}

/// The whole matrix, and its division.
struct Whole<'a>(&'a Rank, &'a Tuner, Workload, Split<'a>);

impl Way for Whole<'_> {
    fn prepare<T: Scalar>(&self, csr: CsrRef<'_, T>) -> Result<sharded::RankOperator<T>> {
        let Whole(rank, tuner, workload, split) = self;
        rank.0.prepare_whole(&tuner.0, csr, workload, *split)
    }
}

impl Rank {
    /// Prepares the matrix; a rank that fails before the others hear of it tells them.
    fn prepared(
        &self,
        py: Python<'_>,
        matrix: &Matrix,
        way: Result<impl Way + Send>,
    ) -> PyResult<RankOperator> {
        run(py, || {
            let told = Cell::new(false);
            let prepared = way.and_then(|way| {
                crate::arrays::with_csr!(matrix, |csr| {
                    told.set(true);
                    way.prepare(csr).map(Prepared::from)
                })
            });
            if !told.get() {
                self.0.give_up();
            }
            prepared.and_then(RankOperator::of)
        })
    }
}

#[pymethods]
impl Rank {
    /// Makes this process rank `rank` of `size` ranks, whose messages `exchange` moves.
    #[new]
    fn new(rank: usize, size: usize, exchange: Py<PyAny>, mode: &str) -> PyResult<Self> {
        let mode: Mode = mode.parse().map_err(exception)?;
        let rank = sharded::Rank::of(rank, size, Function(exchange)).map_err(exception)?;
        Ok(Rank(rank.with_mode(mode)))
    }

    /// Connects the ranks with each other by sockets; rank 0 listens at `address`.
    #[staticmethod]
    fn meet(
        py: Python<'_>,
        rank: usize,
        size: usize,
        address: &str,
        timeout_s: f64,
        mode: &str,
    ) -> PyResult<Self> {
        run(py, || {
            let mode: Mode = mode.parse()?;
            let patience = Duration::try_from_secs_f64(timeout_s).map_err(|error| {
                Error::argument(format!(
                    "timeout_s is {timeout_s}: {error}; give a number of seconds from 0 on"
                ))
            })?;
            let sockets = Sockets::meet(rank, size, address, patience)?;
            Ok(Rank(sharded::Rank::of(rank, size, sockets)?.with_mode(mode)))
        })
    }

    /// Number of this rank.
    #[getter]
    fn rank(&self) -> usize {
        self.0.rank()
    }

    /// Number of ranks.
    #[getter]
    fn size(&self) -> usize {
        self.0.size()
    }

    /// Replaces each number of an array of 64-bit floats by its sum over all ranks.
    fn sum(&self, py: Python<'_>, numbers: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut numbers: PyBuffer<f64> = PyBuffer::get(numbers)?;
        run(py, || self.0.sum(elements_mut(&mut numbers)?))
    }

    /// Takes part in a preparation or an update as a rank that failed.
    fn give_up(&self, py: Python<'_>) -> PyResult<()> {
        run(py, || {
            self.0.give_up();
            Ok(())
        })
    }

    /// Prepares own rows, with all columns of the whole matrix.
    fn prepare_rows(
        &self,
        py: Python<'_>,
        tuner: &Tuner,
        matrix: &Matrix,
        columns: Option<usize>,
        workload: Use,
    ) -> PyResult<RankOperator> {
        let way = workload.workload().map(|workload| Rows(self, tuner, workload, columns));
        self.prepared(py, matrix, way)
    }

    /// Prepares the own part of a matrix that each rank has as a whole. `split` names the division;
    /// `owners` are 32-bit ranks of all rows, which take its place.
    fn prepare_whole(
        &self,
        py: Python<'_>,
        tuner: &Tuner,
        matrix: &Matrix,
        split: &str,
        owners: Option<Vec<u32>>,
        workload: Use,
    ) -> PyResult<RankOperator> {
        let split = match &owners {
            Some(owners) => Ok(Split::Owners(owners)),
            None => named(split),
        };
        let way = split.and_then(|split| Ok(Whole(self, tuner, workload.workload()?, split)));
        self.prepared(py, matrix, way)
    }
}

/// The part of a matrix that one rank multiplies.
#[pyclass(frozen, module = "ellect._ellect")]
pub struct RankOperator {
    prepared: Mutex<Prepared>,
    /// Numbers of rows and columns of the whole matrix.
    #[pyo3(get)]
    shape: (usize, usize),
    /// Numbers of own rows and of own columns.
    #[pyo3(get)]
    own_shape: (usize, usize),
    /// Number of entries in own rows.
    #[pyo3(get)]
    nnz: usize,
    /// Number of elements of x that come from other ranks, and these ranks.
    #[pyo3(get)]
    halo: usize,
    #[pyo3(get)]
    neighbours: Vec<usize>,
    /// Name of the precision: `f32` or `f64`.
    #[pyo3(get)]
    precision: &'static str,
    /// The chosen candidate.
    #[pyo3(get)]
    candidate: String,
    /// The choice as JSON.
    #[pyo3(get)]
    choice: String,
}

impl RankOperator {
    fn of(prepared: Prepared) -> Result<Self> {
        let precision = match &prepared {
            Prepared::F32(_) => Precision::F32,
            Prepared::F64(_) => Precision::F64,
        };
        Ok(each!(&prepared, operator => RankOperator {
            shape: (operator.nrows(), operator.ncols()),
            own_shape: (operator.part().rows(), operator.own_columns()),
            nnz: operator.part().nnz(),
            halo: operator.part().halo(),
            neighbours: operator.part().neighbours().collect(),
            precision: precision.name(),
            candidate: operator.part().candidate().to_string(),
            choice: json(&operator.part().choice())?,
            prepared: Mutex::new(prepared),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Prepared> {
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Multiplies contiguous vectors; vectors that do not fit give the product up.
fn multiply<T: Scalar + Element>(
    operator: &sharded::RankOperator<T>,
    (alpha, x): (f64, PyResult<PyBuffer<T>>),
    (beta, y): (f64, PyResult<PyBuffer<T>>),
) -> Result<()> {
    let given = |buffer: PyResult<PyBuffer<T>>, name: &str| {
        buffer.map_err(|error| Error::argument(format!("{name} cannot be used: {error}")))
    };
    let vectors = given(x, "x").and_then(|x| Ok((x, given(y, "out")?)));
    let done = vectors.and_then(|(x, mut y)| {
        let (x, mut copy, y) = (elements(&x)?, Vec::new(), elements_mut(&mut y)?);
        let x = apart(x, y, &mut copy);
        Ok(operator.apply(T::from_f64(alpha), x, T::from_f64(beta), y))
    });
    done.unwrap_or_else(|error| {
        operator.give_up();
        Err(error)
    })
}

#[pymethods]
impl RankOperator {
    /// Computes the own elements of out = alpha A x + beta out.
    fn apply(
        &self,
        py: Python<'_>,
        x: &Bound<'_, PyAny>,
        out: &Bound<'_, PyAny>,
        alpha: f64,
        beta: f64,
    ) -> PyResult<()> {
        if self.precision == Precision::F32.name() {
            let (x, y) = ((alpha, PyBuffer::get(x)), (beta, PyBuffer::get(out)));
            return run(py, || match &*self.lock() {
                Prepared::F32(operator) => multiply(operator, x, y),
                Prepared::F64(_) => Ok(()),
            });
        }
        let (x, y) = ((alpha, PyBuffer::get(x)), (beta, PyBuffer::get(out)));
        run(py, || match &*self.lock() {
            Prepared::F64(operator) => multiply(operator, x, y),
            Prepared::F32(_) => Ok(()),
        })
    }

    /// Takes part in a product as a rank that failed.
    fn give_up(&self, py: Python<'_>) -> PyResult<()> {
        run(py, || {
            each!(&*self.lock(), operator => operator.give_up());
            Ok(())
        })
    }

    /// Returns the numbers of the own rows in the whole matrix.
    fn rows(&self, py: Python<'_>) -> PyResult<Vec<usize>> {
        run(py, || Ok(each!(&*self.lock(), operator => operator.rows().collect())))
    }

    /// Takes the values of a matrix with the same pattern and precision, given as to preparation.
    fn update_from(&self, py: Python<'_>, matrix: &Matrix) -> PyResult<()> {
        run(py, || {
            let told = Cell::new(false);
            let prepared = &mut *self.lock();
            let rank = each!(&*prepared, operator => operator.rank().clone());
            let row_ptr = matrix.row_ptr();
            let updated = row_ptr.and_then(|row_ptr| match (prepared, matrix.values()) {
                (Prepared::F32(operator), ValuesRef::F32(values)) => {
                    let csr = matrix.csr(&row_ptr, values?)?;
                    told.set(true);
                    operator.update(csr)
                }
                (Prepared::F64(operator), ValuesRef::F64(values)) => {
                    let csr = matrix.csr(&row_ptr, values?)?;
                    told.set(true);
                    operator.update(csr)
                }
                _ => Err(Error::argument("the values have another precision than the operator")),
            });
            if !told.get() {
                rank.give_up();
            }
            updated
        })
    }
}
