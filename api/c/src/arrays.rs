//! CSR arrays in host memory: those of a caller, or copies.
#![allow(unsafe_code, reason = "callers pass addresses")]

use ellect::csr::{CsrRef, RowPtr};
use ellect::{Csr, Error, Precision, Scalar};

use crate::csr::{EllectCsr, Form};
use crate::input::Array;
use crate::status::{Failure, Outcome};

/// An array of the caller, or a copy.
pub enum Held<T> {
    Borrowed(Array<T>),
    Owned(Vec<T>),
}

impl<T> Held<T> {
    pub fn as_slice(&self) -> &[T] {
        match self {
            Held::Borrowed(array) => array.as_slice(),
            Held::Owned(copy) => copy,
        }
    }
}

pub enum Offsets {
    Narrow(Array<i32>),
    Wide(Array<i64>),
    Owned(Vec<usize>),
}

impl Offsets {
    fn row_ptr(&self) -> Outcome<RowPtr<'_>> {
        Ok(match self {
            Offsets::Narrow(offsets) => RowPtr::new(offsets.as_slice()),
            Offsets::Wide(offsets) => RowPtr::new(offsets.as_slice()),
            Offsets::Owned(offsets) => RowPtr::new(offsets.as_slice()),
        }?)
    }
}

pub enum Columns {
    Borrowed(Array<i32>),
    Owned(Vec<u32>),
}

impl Columns {
    fn to_vec(&self) -> Outcome<Vec<u32>> {
        match self {
            Columns::Borrowed(columns) => {
                columns.as_slice().iter().map(|&column| narrowed(column.into())).collect()
            }
            Columns::Owned(columns) => Ok(columns.clone()),
        }
    }
}

fn narrowed(column: i64) -> Outcome<u32> {
    u32::try_from(column).map_err(|_| {
        let what = format!("a column index is {column}; it must be from 0 to {}", u32::MAX);
        Error::input(what).into()
    })
}

pub enum Values {
    F32(Held<f32>),
    F64(Held<f64>),
}

/// A value type that a matrix can hold.
pub trait Value: Scalar {
    /// Returns values of this type; `None` if they have the other one.
    fn of(values: &Values) -> Option<&[Self]>;
    /// Wraps copied values.
    fn owned(values: Vec<Self>) -> Values;
}

impl Value for f32 {
    fn of(values: &Values) -> Option<&[f32]> {
        match values {
            Values::F32(values) => Some(values.as_slice()),
            Values::F64(_) => None,
        }
    }

    fn owned(values: Vec<f32>) -> Values {
        Values::F32(Held::Owned(values))
    }
}

impl Value for f64 {
    fn of(values: &Values) -> Option<&[f64]> {
        match values {
            Values::F32(_) => None,
            Values::F64(values) => Some(values.as_slice()),
        }
    }

    fn owned(values: Vec<f64>) -> Values {
        Values::F64(Held::Owned(values))
    }
}

/// The arrays of a matrix in host memory.
pub struct HostArrays {
    pub nrows: usize,
    pub ncols: usize,
    pub offsets: Offsets,
    pub columns: Columns,
    pub values: Values,
}

impl HostArrays {
    /// Borrows the arrays of a caller; 64-bit columns are narrowed in a copy.
    ///
    /// # Safety
    /// The arrays stay valid and unchanged as long as this exists.
    pub unsafe fn borrow(csr: &EllectCsr, form: &Form) -> Outcome<Self> {
        let (nnz, count) = (csr.nnz, csr.nrows.saturating_add(1));
        // SAFETY: by this function's own contract, for all arrays.
        unsafe {
            let offsets = match form.wide_offsets {
                false => Offsets::Narrow(Array::new(csr.row_ptr, count, "row_ptr")?),
                true => Offsets::Wide(Array::new(csr.row_ptr, count, "row_ptr")?),
            };
            let columns = match form.wide_columns {
                false => Columns::Borrowed(Array::new(csr.col_idx, nnz, "col_idx")?),
                true => {
                    let wide: Array<i64> = Array::new(csr.col_idx, nnz, "col_idx")?;
                    let narrow = wide.as_slice().iter().copied().map(narrowed);
                    Columns::Owned(narrow.collect::<Outcome<_>>()?)
                }
            };
            let values = match form.precision {
                Precision::F32 => {
                    Values::F32(Held::Borrowed(Array::new(csr.values, nnz, "values")?))
                }
                Precision::F64 => {
                    Values::F64(Held::Borrowed(Array::new(csr.values, nnz, "values")?))
                }
            };
            Ok(HostArrays { nrows: form.nrows, ncols: form.ncols, offsets, columns, values })
        }
    }

    /// Takes over the arrays of a valid matrix.
    pub fn of<T: Value>(csr: Csr<T>) -> Self {
        let (nrows, ncols) = (csr.nrows(), csr.ncols());
        let (offsets, columns, values) = csr.into_arrays();
        let (offsets, columns) = (Offsets::Owned(offsets), Columns::Owned(columns));
        HostArrays { nrows, ncols, offsets, columns, values: T::owned(values) }
    }

    /// Calls `work` with the matrix, which is checked before: one pass over the pattern.
    pub fn with<T: Value, R>(&self, work: impl FnOnce(CsrRef<'_, T>) -> Outcome<R>) -> Outcome<R> {
        let (nrows, ncols, offsets) = (self.nrows, self.ncols, self.offsets.row_ptr()?);
        let values = T::of(&self.values).ok_or_else(other_type)?;
        work(match &self.columns {
            Columns::Borrowed(columns) => {
                CsrRef::new(nrows, ncols, &offsets, columns.as_slice(), values)?
            }
            Columns::Owned(columns) => CsrRef::new(nrows, ncols, &offsets, columns, values)?,
        })
    }

    /// Copies the arrays. If they are not valid as they are, sorts rows and sums repeated entries;
    /// the second result then is true.
    pub fn copied<T: Value>(&self) -> Outcome<(Self, bool)> {
        if let Ok(csr) = self.with(|csr: CsrRef<'_, T>| Ok(csr.to_csr())) {
            return Ok((HostArrays::of(csr), false));
        }
        // The constructor reports every fault that sorting and summing cannot repair.
        let (row_ptr, columns) = (self.offsets.row_ptr()?.to_vec(), self.columns.to_vec()?);
        let values = T::of(&self.values).ok_or_else(other_type)?.to_vec();
        let csr = Csr::from_unsorted(self.nrows, self.ncols, row_ptr, columns, values)?;
        Ok((HostArrays::of(csr), true))
    }
}

/// The failure of values of the wrong type.
pub fn other_type() -> Failure {
    Failure::argument("the values have another type than the operator; pass values of its type")
}
