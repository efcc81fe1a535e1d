//! Prepared operators: products and updates of values.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use ellect::dense::{DenseMut, DenseRef};
use ellect::{Csr, Error, Precision, PreparedOperator, Result, Scalar};
use pyo3::buffer::{Element, PyBuffer};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::arrays::{Matrix, ValuesRef, elements, elements_mut};
use crate::errors::{exception, run};
use crate::fused::Sums;
use crate::tuner::json;
#[cfg(feature = "cuda")]
use crate::tuner::{Tuner, Use};

/// An operator of either precision.
pub enum Prepared {
    F32(PreparedOperator<f32>),
    F64(PreparedOperator<f64>),
}

impl From<PreparedOperator<f32>> for Prepared {
    fn from(operator: PreparedOperator<f32>) -> Self {
        Prepared::F32(operator)
    }
}

impl From<PreparedOperator<f64>> for Prepared {
    fn from(operator: PreparedOperator<f64>) -> Self {
        Prepared::F64(operator)
    }
}

/// Evaluates `$body` for the operator of either precision.
macro_rules! each {
    ($prepared:expr, $operator:ident => $body:expr) => {
        match $prepared {
            $crate::operator::Prepared::F32($operator) => $body,
            $crate::operator::Prepared::F64($operator) => $body,
        }
    };
}
#[cfg(feature = "cuda")]
pub(crate) use each;

/// An operator; `None` once it is closed.
///
/// The lock is never waited for while this thread holds Python's global lock, except for launches
/// on a GPU, which take it for microseconds.
#[pyclass(frozen, module = "ellect._ellect")]
pub struct Operator {
    prepared: RwLock<Option<Prepared>>,
    #[cfg(feature = "cuda")]
    order: crate::gpu::Order,
    #[cfg(feature = "cuda")]
    results: crate::quick::Results,
    /// Numbers of rows and columns.
    #[pyo3(get)]
    shape: (usize, usize),
    /// Number of entries.
    #[pyo3(get)]
    nnz: usize,
    /// Name of the precision: `f32` or `f64`.
    #[pyo3(get)]
    precision: &'static str,
    /// The chosen candidate.
    #[pyo3(get)]
    candidate: String,
    /// The choice as JSON.
    #[pyo3(get)]
    choice: String,
    /// Index of the GPU that holds the operator; `None` on a host.
    #[pyo3(get)]
    gpu: Option<u32>,
}

fn closed() -> Error {
    Error::argument("the operator is closed; prepare the matrix again")
}

/// Tells whether two vectors overlap.
pub(crate) fn overlap<T>(x: &[T], y: &[T]) -> bool {
    let (x_range, y_range) = (x.as_ptr_range(), y.as_ptr_range());
    x_range.start < y_range.end && y_range.start < x_range.end
}

/// Borrows x, or copies it if it overlaps y.
pub(crate) fn apart<'a, T: Scalar>(x: &'a [T], y: &[T], copy: &'a mut Vec<T>) -> &'a [T] {
    if overlap(x, y) {
        copy.extend_from_slice(x);
        return copy;
    }
    x
}

/// Multiplies `columns` vectors, which x and y hold row by row or one after another.
fn multiply<T: Scalar + Element>(
    operator: &PreparedOperator<T>,
    (alpha, x): (f64, &PyBuffer<T>),
    (beta, y): (f64, &mut PyBuffer<T>),
    columns: usize,
    by_rows: (bool, bool),
) -> Result<()> {
    let (x, mut copy, y) = (elements(x)?, Vec::new(), elements_mut(y)?);
    let x = apart(x, y, &mut copy);
    let (alpha, beta) = (T::from_f64(alpha), T::from_f64(beta));
    let (nrows, ncols) = (operator.nrows(), operator.ncols());
    let lengths = [("x", x.len(), ncols), ("out", y.len(), nrows)];
    for (what, got, of_one) in lengths {
        let needed = of_one.saturating_mul(columns);
        if got != needed {
            return Err(Error::Shape { what, got, needed });
        }
    }
    if columns == 1 {
        return operator.apply(alpha, x, beta, y);
    }
    let x = match by_rows.0 {
        true => DenseRef::rows(ncols, columns, x)?,
        false => DenseRef::columns(ncols, columns, x)?,
    };
    let y = match by_rows.1 {
        true => DenseMut::rows(nrows, columns, y)?,
        false => DenseMut::columns(nrows, columns, y)?,
    };
    operator.apply_many(alpha, x, beta, y)
}

/// Returns the transposed matrix, and whether it is the matrix itself.
fn turned<T: Scalar>(
    operator: &PreparedOperator<T>,
    of: fn(Csr<T>) -> Matrix,
) -> Result<(Matrix, bool)> {
    let csr = operator.to_csr()?;
    let transposed = csr.transpose();
    let is_symmetric = transposed == csr;
    Ok((of(transposed), is_symmetric))
}

impl Operator {
    /// Wraps an operator.
    pub fn new(py: Python<'_>, prepared: Prepared) -> PyResult<Self> {
        let precision = match &prepared {
            Prepared::F32(_) => Precision::F32,
            Prepared::F64(_) => Precision::F64,
        };
        let (choice, prepared) = run(py, || {
            let choice = each!(&prepared, operator => json(&operator.choice()))?;
            Ok((choice, prepared))
        })?;
        #[cfg(feature = "cuda")]
        let gpu = crate::gpu::index(&prepared);
        #[cfg(not(feature = "cuda"))]
        let gpu = None;
        Ok(each!(&prepared, operator => Operator {
            shape: (operator.nrows(), operator.ncols()),
            nnz: operator.nnz(),
            precision: precision.name(),
            candidate: operator.candidate().to_string(),
            choice,
            gpu,
            #[cfg(feature = "cuda")]
            order: crate::gpu::Order::default(),
            #[cfg(feature = "cuda")]
            results: crate::quick::Results::default(),
            prepared: RwLock::new(Some(prepared)),
        }))
    }

    fn read(&self) -> RwLockReadGuard<'_, Option<Prepared>> {
        self.prepared.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Option<Prepared>> {
        self.prepared.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until products that were queued on a GPU have ended.
    fn settle(&self, prepared: &Prepared) -> Result<()> {
        #[cfg(feature = "cuda")]
        self.order.settle(prepared)?;
        #[cfg(not(feature = "cuda"))]
        let _on_host = prepared;
        Ok(())
    }

    /// Replaces the values.
    fn take<'a>(
        &self,
        py: Python<'_>,
        values: impl FnOnce() -> ValuesRef<'a> + Send,
    ) -> PyResult<()> {
        run(py, || {
            let mut prepared = self.write();
            let prepared = prepared.as_mut().ok_or_else(closed)?;
            self.settle(prepared)?;
            match (prepared, values()) {
                (Prepared::F32(operator), ValuesRef::F32(values)) => {
                    operator.update_values(values?)
                }
                (Prepared::F64(operator), ValuesRef::F64(values)) => {
                    operator.update_values(values?)
                }
                _ => Err(Error::argument("the values have another precision than the operator")),
            }
        })
    }

    fn apply_as<T: Scalar + Element>(
        &self,
        py: Python<'_>,
        (alpha, x): (f64, &Bound<'_, PyAny>),
        (beta, out): (f64, &Bound<'_, PyAny>),
        (columns, by_rows): (usize, (bool, bool)),
        of: fn(&Prepared) -> Option<&PreparedOperator<T>>,
    ) -> PyResult<()> {
        let (x, mut y) = (PyBuffer::get(x)?, PyBuffer::get(out)?);
        run(py, || {
            let prepared = self.read();
            let prepared = prepared.as_ref().ok_or_else(closed)?;
            self.settle(prepared)?;
            let operator = of(prepared).ok_or_else(closed)?;
            multiply(operator, (alpha, &x), (beta, &mut y), columns, by_rows)
        })
    }
}

impl Operator {
    fn apply_fused_as<T: Scalar + Element>(
        &self,
        py: Python<'_>,
        (alpha, x): (f64, &Bound<'_, PyAny>),
        (beta, out): (f64, &Bound<'_, PyAny>),
        mut sums: Sums<T>,
        of: fn(&Prepared) -> Option<&PreparedOperator<T>>,
    ) -> PyResult<()> {
        let (x, mut y) = (PyBuffer::get(x)?, PyBuffer::get(out)?);
        run(py, || {
            let prepared = self.read();
            let prepared = prepared.as_ref().ok_or_else(closed)?;
            self.settle(prepared)?;
            let operator = of(prepared).ok_or_else(closed)?;
            sums.multiply(operator, (alpha, &x), (beta, &mut y))
        })
    }
}

#[pymethods]
impl Operator {
    /// Computes out = alpha A x + beta out for contiguous arrays of the operator's precision.
    /// `vectors` tells how many vectors they hold, and for x and for out whether these lie row by row
    /// or one after another.
    fn apply(
        &self,
        py: Python<'_>,
        x: &Bound<'_, PyAny>,
        out: &Bound<'_, PyAny>,
        alpha: f64,
        beta: f64,
        vectors: (usize, bool, bool),
    ) -> PyResult<()> {
        let (columns, x_by_rows, out_by_rows) = vectors;
        let (x, out, vectors) = ((alpha, x), (beta, out), (columns, (x_by_rows, out_by_rows)));
        if self.precision == Precision::F32.name() {
            return self.apply_as::<f32>(py, x, out, vectors, |prepared| match prepared {
                Prepared::F32(operator) => Some(operator),
                Prepared::F64(_) => None,
            });
        }
        self.apply_as::<f64>(py, x, out, vectors, |prepared| match prepared {
            Prepared::F64(operator) => Some(operator),
            Prepared::F32(_) => None,
        })
    }

    /// Computes out = alpha A x + beta out for contiguous arrays of the operator's precision, and of the
    /// new out the dot products `with_` (0 with x, 1 with out, 2 with z) and w = w + gamma out, where
    /// `add` is gamma and w.
    #[allow(clippy::too_many_arguments, reason = "Python passes each")]
    fn apply_fused(
        &self,
        py: Python<'_>,
        x: (f64, Bound<'_, PyAny>),
        out: (f64, Bound<'_, PyAny>),
        with_: Vec<u8>,
        z: Option<Bound<'_, PyAny>>,
        results: Bound<'_, PyAny>,
        add: Option<(f64, Bound<'_, PyAny>)>,
    ) -> PyResult<()> {
        let (x, y, z) = ((x.0, &x.1), (out.0, &out.1), z.as_ref());
        if self.precision == Precision::F32.name() {
            let sums = Sums::<f32>::of(&with_, z, &results, add)?;
            return self.apply_fused_as(py, x, y, sums, |prepared| match prepared {
                Prepared::F32(operator) => Some(operator),
                Prepared::F64(_) => None,
            });
        }
        let sums = Sums::<f64>::of(&with_, z, &results, add)?;
        self.apply_fused_as(py, x, y, sums, |prepared| match prepared {
            Prepared::F64(operator) => Some(operator),
            Prepared::F32(_) => None,
        })
    }

    /// Takes values of the operator's precision, in row order.
    fn update(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<()> {
        if self.precision == Precision::F32.name() {
            let values = PyBuffer::get(data)?;
            return self.take(py, || ValuesRef::F32(elements(&values)));
        }
        let values = PyBuffer::get(data)?;
        self.take(py, || ValuesRef::F64(elements(&values)))
    }

    /// Takes the values of a matrix with the same pattern and precision.
    fn update_from(&self, py: Python<'_>, matrix: &Matrix) -> PyResult<()> {
        self.take(py, || matrix.values())
    }

    /// Returns the transposed matrix, on the host, and whether it is the matrix itself.
    fn transposed(&self, py: Python<'_>) -> PyResult<(Matrix, bool)> {
        run(py, || match self.read().as_ref().ok_or_else(closed)? {
            Prepared::F32(operator) => turned(operator, Matrix::of_f32),
            Prepared::F64(operator) => turned(operator, Matrix::of_f64),
        })
    }

    /// Size of the layout's arrays in bytes.
    fn layout_bytes(&self, py: Python<'_>) -> PyResult<u64> {
        run(py, || {
            let prepared = self.read();
            Ok(each!(prepared.as_ref().ok_or_else(closed)?, operator => operator.bytes()))
        })
    }

    /// Order of the permuted basis as the bytes of 32-bit numbers; `None` in the original basis.
    fn permutation<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let prepared = self.read();
        let prepared = prepared.as_ref().ok_or_else(closed).map_err(exception)?;
        let order = each!(prepared, operator => operator.permutation());
        Ok(order.map(|order| PyBytes::new(py, bytemuck::cast_slice(order))))
    }

    /// Frees the layout, once products that were queued on a GPU have ended.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        #[cfg(feature = "cuda")]
        self.results.clear();
        run(py, || {
            let prepared = self.write().take();
            prepared.as_ref().map_or(Ok(()), |prepared| self.settle(prepared))
        })
    }

    /// Queues y = alpha A x + beta y for `columns` vectors at addresses on the operator's GPU. The
    /// caller has checked the vectors.
    #[cfg(feature = "cuda")]
    fn apply_at(&self, x: (u64, f64), y: (u64, f64), stream: u64, columns: u64) -> PyResult<()> {
        crate::errors::run_attached(|| {
            let prepared = self.read();
            let prepared = prepared.as_ref().ok_or_else(closed)?;
            self.order.queue(prepared, x, y, stream, columns)
        })
    }

    /// Queues out = alpha A x + beta out for vectors of CuPy or torch on the operator's GPU, and returns
    /// out, a new vector if it is None. Returns None, having done nothing, unless all can be used as
    /// they are.
    #[cfg(feature = "cuda")]
    fn queue<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        out: &Bound<'py, PyAny>,
        alpha: f64,
        beta: f64,
        stream: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(gpu) = self.gpu.filter(|_| beta == 0.0 || !out.is_none()) else { return Ok(None) };
        let (nrows, ncols) = self.shape;
        let precision = match self.precision == Precision::F32.name() {
            true => Precision::F32,
            false => Precision::F64,
        };
        let (lengths, results) = ([ncols, nrows], &self.results);
        let wanted = crate::quick::Wanted { lengths, precision, gpu, results };
        let Some(found) = wanted.find(x, out, stream) else { return Ok(None) };
        self.apply_at((found.x, alpha), (found.y, beta), found.stream, 1)?;
        Ok(Some(found.out))
    }

    /// Queues y = alpha A x + beta y for vectors at addresses on the operator's GPU, the dot products
    /// `with_` as `apply_fused`, and w = w + gamma y, where `add` is gamma and the address of w. `others`
    /// are the addresses of z and of the results. The caller has checked the vectors.
    #[cfg(feature = "cuda")]
    fn apply_fused_at(
        &self,
        x: (u64, f64),
        y: (u64, f64),
        with_: Vec<u8>,
        others: (u64, u64),
        add: Option<(f64, u64)>,
        stream: u64,
    ) -> PyResult<()> {
        crate::errors::run_attached(|| {
            let prepared = self.read();
            let prepared = prepared.as_ref().ok_or_else(closed)?;
            let with = crate::fused::listed(&with_, others.0)?;
            let fused = ellect::dots::Fused { with: &with, results: Some(others.1), add };
            self.order.queue_fused(prepared, x, y, fused, stream)
        })
    }

    /// Takes `nnz` values at an address on the operator's GPU, which `stream` has queued to be
    /// written.
    #[cfg(feature = "cuda")]
    fn update_at(&self, py: Python<'_>, values: u64, stream: u64) -> PyResult<()> {
        run(py, || {
            let mut prepared = self.write();
            let prepared = prepared.as_mut().ok_or_else(closed)?;
            self.settle(prepared)?;
            crate::gpu::update(prepared, values, stream)
        })
    }

    /// Makes the transpose of the newest matrix on the operator's GPU: tells whether it is the matrix
    /// itself, and otherwise prepares it, or gives its values to `old`, the operator of an earlier one.
    /// `None` if the GPU does not hold the matrix.
    #[cfg(feature = "cuda")]
    fn transposed_on_gpu(
        &self,
        py: Python<'_>,
        tuner: &Tuner,
        workload: Use,
        old: Option<&Operator>,
    ) -> PyResult<Option<(bool, Option<Operator>)>> {
        let workload = workload.workload().map_err(exception)?;
        let found = run(py, || {
            let turned = {
                let prepared = self.read();
                let prepared = prepared.as_ref().ok_or_else(closed)?;
                self.settle(prepared)?;
                crate::gpu::Turned::of(prepared)?
            };
            let Some((turned, is_symmetric)) = turned else { return Ok(None) };
            let Some(old) = old else {
                let made = (!is_symmetric).then(|| turned.prepare(&tuner.0, &workload));
                return Ok(Some((is_symmetric, made.transpose()?)));
            };
            let mut old_prepared = old.write();
            let old_prepared = old_prepared.as_mut().ok_or_else(closed)?;
            old.settle(old_prepared)?;
            turned.update(old_prepared)?;
            Ok(Some((is_symmetric, None)))
        })?;
        let made = |made: Option<Prepared>| made.map(|made| Operator::new(py, made)).transpose();
        found.map(|(is_symmetric, new)| Ok((is_symmetric, made(new)?))).transpose()
    }

    /// Makes products read the operator's own copy of the values, for graphs.
    #[cfg(feature = "cuda")]
    fn own_values(&self, py: Python<'_>) -> PyResult<()> {
        run(py, || {
            let mut prepared = self.write();
            let prepared = prepared.as_mut().ok_or_else(closed)?;
            self.settle(prepared)?;
            each!(prepared, operator => operator.on_device_mut().map_or(Ok(()), |a| a.own_values()))
        })
    }
}

#[cfg(feature = "cuda")]
impl Drop for Operator {
    fn drop(&mut self) {
        // The layout is freed on another stream than the one that runs its products.
        if let Some(prepared) = self.prepared.get_mut().unwrap_or_else(PoisonError::into_inner) {
            let _ = self.order.settle(prepared);
        }
    }
}
