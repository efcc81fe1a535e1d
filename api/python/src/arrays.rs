//! Matrices and vectors of Python callers, read through the buffer protocol.
#![allow(unsafe_code, reason = "arrays of other owners are reached by their addresses")]

use ellect::csr::{CsrRef, RowPtr};
use ellect::density::Density;
use ellect::read::{self, Limits};
use ellect::{Csr, Error, Precision, Result, Scalar};
use pyo3::buffer::{Element, PyBuffer};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::{exception, run};

/// Borrows the elements of a contiguous buffer.
///
/// # Errors
/// [`Error::Argument`] if the buffer is not contiguous.
pub fn elements<T: Element>(buffer: &PyBuffer<T>) -> Result<&[T]> {
    let all = buffer.as_slice_ptr().ok_or_else(scattered)?;
    // SAFETY: the exporter keeps the elements in place while the buffer is held, and the buffer
    // outlives the slice. Callers of the package promise not to change arrays during a call.
    Ok(unsafe { all.as_ref() })
}

/// Borrows the elements of a contiguous buffer for writing.
///
/// # Errors
/// [`Error::Argument`] if the buffer is not contiguous or is read-only.
pub fn elements_mut<T: Element>(buffer: &mut PyBuffer<T>) -> Result<&mut [T]> {
    if buffer.readonly() {
        return Err(Error::argument("out is read-only; give an array that can be written"));
    }
    let mut all = buffer.as_slice_ptr().ok_or_else(scattered)?;
    // SAFETY: as for `elements`; callers check that no other slice of this call overlaps.
    Ok(unsafe { all.as_mut() })
}

fn scattered() -> Error {
    Error::argument("an array is not contiguous; numpy.ascontiguousarray copies it")
}

/// An array of a caller, or a copy.
enum Array<T: Element> {
    Borrowed(PyBuffer<T>),
    Owned(Vec<T>),
}

impl<T: Element> Array<T> {
    fn as_slice(&self) -> Result<&[T]> {
        match self {
            Array::Borrowed(buffer) => elements(buffer),
            Array::Owned(copy) => Ok(copy),
        }
    }
}

/// Row pointers of a caller, or a copy.
enum Offsets {
    Narrow(PyBuffer<i32>),
    Wide(PyBuffer<i64>),
    Owned(Vec<usize>),
}

impl Offsets {
    fn of(indptr: &Bound<'_, PyAny>) -> PyResult<Self> {
        match PyBuffer::get(indptr) {
            Ok(narrow) => Ok(Offsets::Narrow(narrow)),
            Err(_) => PyBuffer::get(indptr).map(Offsets::Wide),
        }
    }

    fn row_ptr(&self) -> Result<RowPtr<'_>> {
        match self {
            Offsets::Narrow(offsets) => RowPtr::new(elements(offsets)?),
            Offsets::Wide(offsets) => RowPtr::new(elements(offsets)?),
            Offsets::Owned(offsets) => RowPtr::new(offsets),
        }
    }
}

/// Column indices of a caller, or a copy.
enum Columns {
    Narrow(PyBuffer<i32>),
    Owned(Vec<u32>),
}

impl Columns {
    /// Borrows 32-bit indices and narrows 64-bit ones.
    fn of(py: Python<'_>, indices: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(narrow) = PyBuffer::get(indices) {
            return Ok(Columns::Narrow(narrow));
        }
        let wide: PyBuffer<i64> = PyBuffer::get(indices)?;
        run(py, || narrowed(elements(&wide)?).map(Columns::Owned))
    }

    fn to_vec(&self) -> Result<Vec<u32>> {
        match self {
            Columns::Narrow(columns) => {
                elements(columns)?.iter().map(|&column| narrow(column.into())).collect()
            }
            Columns::Owned(columns) => Ok(columns.clone()),
        }
    }
}

fn narrowed(wide: &[i64]) -> Result<Vec<u32>> {
    wide.iter().map(|&column| narrow(column)).collect()
}

fn narrow(column: i64) -> Result<u32> {
    u32::try_from(column).map_err(|_| {
        let limit = u32::MAX;
        Error::input(format!("a column index is {column}; it must be from 0 to {limit}"))
    })
}

enum Values {
    F32(Array<f32>),
    F64(Array<f64>),
}

/// A CSR matrix: arrays of the caller that are valid as they are, or copies.
#[pyclass(frozen, module = "ellect._ellect")]
pub struct Matrix {
    nrows: usize,
    ncols: usize,
    offsets: Offsets,
    columns: Columns,
    values: Values,
    /// Number of entries that were summed into others; `None` if the caller's arrays are valid.
    #[pyo3(get)]
    repaired: Option<usize>,
}

/// Calls `$body` with the matrix as a [`CsrRef`] of its own precision.
macro_rules! with_csr {
    ($matrix:expr, |$csr:ident| $body:expr) => {
        match $matrix.values() {
            $crate::arrays::ValuesRef::F32(values) => {
                let (row_ptr, values) = ($matrix.row_ptr()?, values?);
                let $csr = $matrix.csr(&row_ptr, values)?;
                $body
            }
            $crate::arrays::ValuesRef::F64(values) => {
                let (row_ptr, values) = ($matrix.row_ptr()?, values?);
                let $csr = $matrix.csr(&row_ptr, values)?;
                $body
            }
        }
    };
}
pub(crate) use with_csr;

/// The values of a matrix by their type.
pub enum ValuesRef<'a> {
    F32(Result<&'a [f32]>),
    F64(Result<&'a [f64]>),
}

/// Sorts rows and sums repeated entries.
fn sorted<T: Scalar>(matrix: &Matrix, values: &[T]) -> Result<Csr<T>> {
    let (row_ptr, columns) = (matrix.row_ptr()?.to_vec(), matrix.columns.to_vec()?);
    Csr::from_unsorted(matrix.nrows, matrix.ncols, row_ptr, columns, values.to_vec())
}

impl Matrix {
    pub fn row_ptr(&self) -> Result<RowPtr<'_>> {
        self.offsets.row_ptr()
    }

    pub fn values(&self) -> ValuesRef<'_> {
        match &self.values {
            Values::F32(values) => ValuesRef::F32(values.as_slice()),
            Values::F64(values) => ValuesRef::F64(values.as_slice()),
        }
    }

    /// Borrows the matrix and checks it: one pass over its pattern.
    pub fn csr<'a, T: Scalar>(
        &'a self,
        row_ptr: &'a [usize],
        values: &'a [T],
    ) -> Result<CsrRef<'a, T>> {
        let (nrows, ncols) = (self.nrows, self.ncols);
        match &self.columns {
            Columns::Narrow(columns) => {
                CsrRef::new(nrows, ncols, row_ptr, elements(columns)?, values)
            }
            Columns::Owned(columns) => CsrRef::new(nrows, ncols, row_ptr, columns, values),
        }
    }

    /// Returns a valid matrix: this one, or a copy with sorted rows and summed entries.
    fn repaired(self) -> Result<Self> {
        if self.check().is_ok() {
            return Ok(self);
        }
        // The constructors report every fault that sorting and summing cannot repair.
        let (before, mut owned) = match self.values() {
            ValuesRef::F32(values) => {
                let values = values?;
                (values.len(), Matrix::of_f32(sorted(&self, values)?))
            }
            ValuesRef::F64(values) => {
                let values = values?;
                (values.len(), Matrix::of_f64(sorted(&self, values)?))
            }
        };
        owned.repaired = Some(before - owned.count());
        Ok(owned)
    }

    /// Checks that the arrays are valid as they are.
    fn check(&self) -> Result<()> {
        with_csr!(self, |_csr| Ok(()))
    }

    fn count(&self) -> usize {
        match &self.columns {
            Columns::Narrow(columns) => columns.item_count(),
            Columns::Owned(columns) => columns.len(),
        }
    }

    pub fn of_f32(csr: Csr<f32>) -> Self {
        Matrix::of(csr, |values| Values::F32(Array::Owned(values)))
    }

    pub fn of_f64(csr: Csr<f64>) -> Self {
        Matrix::of(csr, |values| Values::F64(Array::Owned(values)))
    }

    fn of<T: Scalar>(csr: Csr<T>, values: impl FnOnce(Vec<T>) -> Values) -> Self {
        let (nrows, ncols) = (csr.nrows(), csr.ncols());
        let (row_ptr, columns, entries) = csr.into_arrays();
        let (offsets, columns) = (Offsets::Owned(row_ptr), Columns::Owned(columns));
        Matrix { nrows, ncols, offsets, columns, values: values(entries), repaired: None }
    }
}

#[pymethods]
impl Matrix {
    /// Takes the arrays of a CSR matrix: values of 32 or 64 bits, indices of 32 or 64 bits.
    #[new]
    fn new(
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        indices: &Bound<'_, PyAny>,
        indptr: &Bound<'_, PyAny>,
        nrows: usize,
        ncols: usize,
    ) -> PyResult<Self> {
        let values = match PyBuffer::get(data) {
            Ok(narrow) => Values::F32(Array::Borrowed(narrow)),
            Err(_) => Values::F64(Array::Borrowed(PyBuffer::get(data)?)),
        };
        ellect::csr::check_dimensions(nrows, ncols).map_err(exception)?;
        let (offsets, columns) = (Offsets::of(indptr)?, Columns::of(py, indices)?);
        let given = Matrix { nrows, ncols, offsets, columns, values, repaired: None };
        run(py, || given.repaired())
    }

    /// Reads a matrix from a file.
    #[staticmethod]
    fn read(py: Python<'_>, path: std::path::PathBuf, precision: &str) -> PyResult<Self> {
        let precision: Precision = precision.parse().map_err(exception)?;
        run(py, || match precision {
            Precision::F32 => read::file(&path, &Limits::default()).map(Matrix::of_f32),
            Precision::F64 => read::file(&path, &Limits::default()).map(Matrix::of_f64),
        })
    }

    /// Counts the entries in each cell of a grid: 64-bit numbers, row by row.
    fn density<'py>(
        &self,
        py: Python<'py>,
        rows: usize,
        columns: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let count = || with_csr!(self, |csr| Density::of(csr.pattern(), rows, columns));
        let found = run(py, count)?;
        Ok(PyBytes::new(py, bytemuck::cast_slice(found.counts())))
    }

    /// Numbers of rows and columns.
    #[getter]
    fn shape(&self) -> (usize, usize) {
        (self.nrows, self.ncols)
    }

    /// Number of entries.
    #[getter]
    fn nnz(&self) -> usize {
        self.count()
    }

    /// Name of the precision of the values: `f32` or `f64`.
    #[getter]
    fn precision(&self) -> &'static str {
        match self.values {
            Values::F32(_) => Precision::F32.name(),
            Values::F64(_) => Precision::F64.name(),
        }
    }
}
