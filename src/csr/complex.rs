//! Complex matrices, and the real matrices of twice the size that stand for them.

use num_complex::Complex;

use super::{Csr, CsrRef, MAX_DIMENSION, Pattern, check_arrays};
use crate::error::{Error, Result};
use crate::par;
use crate::scalar::Scalar;

/// A complex sparse matrix in compressed sparse rows, always valid: the invariants are those of
/// [`Csr`], with half as many rows and columns at most.
///
/// Every format multiplies it as the real matrix of [`ComplexCsr::to_real`], in which each entry
/// a + bi is the block `[[a, -b], [b, a]]`. A complex vector, stored as real and imaginary parts in
/// turn, is the real vector of twice the length.
///
/// ```
/// use ellect::csr::{Complex, ComplexCsr};
///
/// # fn main() -> ellect::Result<()> {
/// let i = Complex::new(0.0, 1.0);
/// let a = ComplexCsr::from_triplets(2, 3, [(0, 0, 2.0 * i), (1, 2, 1.0 - i)])?;
/// assert_eq!((a.nrows(), a.ncols(), a.nnz()), (2, 3, 2));
/// let real = a.to_real();
/// assert_eq!(real.row(2), (&[4, 5][..], &[1.0, 1.0][..]));
/// assert_eq!(real.row(3), (&[4, 5][..], &[-1.0, 1.0][..]));
/// assert_eq!(ComplexCsr::from_blocks(&real)?, a);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ComplexCsr<T> {
    nrows: usize,
    ncols: usize,
    row_ptr: Vec<usize>,
    col_idx: Vec<u32>,
    values: Vec<Complex<T>>,
}

impl<T: Scalar> ComplexCsr<T> {
    /// Checks the arrays and takes ownership of them. One pass over `row_ptr` and `col_idx`.
    ///
    /// # Errors
    /// As [`Csr::new`], and [`Error::Input`] for more than 2^31 - 1 rows or columns.
    pub fn new(
        nrows: usize,
        ncols: usize,
        row_ptr: Vec<usize>,
        col_idx: Vec<u32>,
        values: Vec<Complex<T>>,
    ) -> Result<Self> {
        check_dimensions(nrows, ncols)?;
        check_arrays(nrows, ncols, &row_ptr, &col_idx, values.len())?;
        Ok(ComplexCsr { nrows, ncols, row_ptr, col_idx, values })
    }

    /// Builds a matrix from `(row, column, value)` triplets in any order; repeated entries are
    /// summed.
    ///
    /// # Errors
    /// [`Error::Input`] for an index outside the matrix, and for more than 2^31 - 1 rows or columns.
    pub fn from_triplets(
        nrows: usize,
        ncols: usize,
        triplets: impl IntoIterator<Item = (usize, usize, Complex<T>)>,
    ) -> Result<Self> {
        let triplets: Vec<_> = triplets.into_iter().collect();
        let part = |of: fn(Complex<T>) -> T| {
            let own = triplets.iter().map(|&(row, column, value)| (row, column, of(value)));
            Csr::from_triplets(nrows, ncols, own)
        };
        ComplexCsr::from_parts(&part(|value| value.re)?, &part(|value| value.im)?)
    }

    /// Builds the matrix with these real and imaginary parts; an entry of either is one of the matrix.
    ///
    /// # Errors
    /// [`Error::Shape`] if the parts differ in size; [`Error::Input`] for more than 2^31 - 1 rows or
    /// columns.
    pub fn from_parts(real: &Csr<T>, imaginary: &Csr<T>) -> Result<Self> {
        let sizes = [(real.nrows(), imaginary.nrows()), (real.ncols(), imaginary.ncols())];
        for (what, (needed, got)) in
            ["rows of the imaginary part", "columns of the imaginary part"].into_iter().zip(sizes)
        {
            if got != needed {
                return Err(Error::Shape { what, got, needed });
            }
        }
        check_dimensions(real.nrows(), real.ncols())?;
        if real.pattern() == imaginary.pattern() {
            let parts = real.values().iter().zip(imaginary.values());
            let values = parts.map(|(&re, &im)| Complex { re, im }).collect();
            let Csr { nrows, ncols, row_ptr, col_idx, .. } = real.clone();
            return Ok(ComplexCsr { nrows, ncols, row_ptr, col_idx, values });
        }
        let (mut row_ptr, mut col_idx, mut values) = (vec![0], Vec::new(), Vec::new());
        for row in 0..real.nrows() {
            merge(real.row(row), imaginary.row(row), |column, value| {
                col_idx.push(column);
                values.push(value);
            });
            row_ptr.push(col_idx.len());
        }
        Ok(ComplexCsr { nrows: real.nrows(), ncols: real.ncols(), row_ptr, col_idx, values })
    }

    /// Builds the matrix for which this real one of twice the size stands: the inverse of
    /// [`ComplexCsr::to_real`].
    ///
    /// # Errors
    /// [`Error::Input`] with the first row of a pair that does not consist of blocks
    /// `[[a, -b], [b, a]]`.
    pub fn from_blocks<'a>(real: impl Into<CsrRef<'a, T>>) -> Result<Self> {
        let real = real.into();
        let (nrows, ncols) = (real.nrows() / 2, real.ncols() / 2);
        let other = |row: usize| {
            Error::input(format!(
                "rows {row} and {} of the real matrix do not consist of blocks [[a, -b], [b, a]]",
                row + 1
            ))
        };
        if real.nrows() % 2 == 1 || real.ncols() % 2 == 1 {
            return Err(Error::input(format!(
                "the real matrix of a complex one has even sizes; this one is {} x {}",
                real.nrows(),
                real.ncols()
            )));
        }
        let (mut row_ptr, mut col_idx, mut values) = (vec![0], Vec::new(), Vec::new());
        for row in (0..real.nrows()).step_by(2) {
            let ((upper, above), (lower, below)) = (real.row(row), real.row(row + 1));
            if !is_row_of_blocks([upper, lower], [above, below]) {
                return Err(other(row));
            }
            col_idx.extend(upper.iter().step_by(2).map(|column| column / 2));
            let numbers = above.iter().zip(below).step_by(2);
            values.extend(numbers.map(|(&re, &im)| Complex { re, im }));
            row_ptr.push(col_idx.len());
        }
        Ok(ComplexCsr { nrows, ncols, row_ptr, col_idx, values })
    }

    /// Returns the real matrix of twice as many rows and columns that stands for this one, with four
    /// entries for each: every entry a + bi becomes the block `[[a, -b], [b, a]]`.
    pub fn to_real(&self) -> Csr<T> {
        blocks(self.pattern(), |k| [self.values[k].re, self.values[k].im])
    }

    /// Returns the number of rows.
    pub fn nrows(&self) -> usize {
        self.nrows
    }

    /// Returns the number of columns.
    pub fn ncols(&self) -> usize {
        self.ncols
    }

    /// Returns the number of entries.
    pub fn nnz(&self) -> usize {
        self.values.len()
    }

    /// Returns the first entry of each row, and the number of entries.
    pub fn row_ptr(&self) -> &[usize] {
        &self.row_ptr
    }

    /// Returns the column of each entry.
    pub fn col_idx(&self) -> &[u32] {
        &self.col_idx
    }

    /// Returns the values.
    pub fn values(&self) -> &[Complex<T>] {
        &self.values
    }

    /// Returns the values, to change them.
    pub fn values_mut(&mut self) -> &mut [Complex<T>] {
        &mut self.values
    }

    /// Borrows the pattern.
    pub fn pattern(&self) -> Pattern<'_> {
        Pattern::of(self.nrows, self.ncols, &self.row_ptr, &self.col_idx)
    }
}

/// A real matrix is a complex one with imaginary parts of 0.
impl<T: Scalar> TryFrom<&Csr<T>> for ComplexCsr<T> {
    type Error = Error;

    fn try_from(real: &Csr<T>) -> Result<Self> {
        ComplexCsr::from_parts(real, &real.map_values(|_| T::ZERO))
    }
}

/// Checks that 32 bits hold the indices of the real matrix.
fn check_dimensions(nrows: usize, ncols: usize) -> Result<()> {
    let most = MAX_DIMENSION / 2;
    match [nrows, ncols].into_iter().find(|&size| size > most) {
        None => Ok(()),
        Some(size) => Err(Error::input(format!(
            "a complex matrix is {nrows} x {ncols}; at most {most} rows and columns are supported, \
             not {size}"
        ))),
    }
}

/// Calls `put` with column and value of each entry of either part of a row.
fn merge<T: Scalar>(
    (real_columns, real): (&[u32], &[T]),
    (imaginary_columns, imaginary): (&[u32], &[T]),
    mut put: impl FnMut(u32, Complex<T>),
) {
    let (mut at, mut beside) = (0, 0);
    loop {
        let [own, other] = [real_columns.get(at), imaginary_columns.get(beside)];
        let Some(&column) = own.into_iter().chain(other).min() else { return };
        let mut value = Complex { re: T::ZERO, im: T::ZERO };
        if own == Some(&column) {
            (value.re, at) = (real[at], at + 1);
        }
        if other == Some(&column) {
            (value.im, beside) = (imaginary[beside], beside + 1);
        }
        put(column, value);
    }
}

/// Tells whether a real matrix stands for a complex one. One pass over pattern and values.
pub(crate) fn consists_of_blocks<T: Scalar>(real: CsrRef<'_, T>) -> bool {
    let is_row = |row: usize| {
        let ((upper, above), (lower, below)) = (real.row(row), real.row(row + 1));
        is_row_of_blocks([upper, lower], [above, below])
    };
    let are_even = real.nrows().is_multiple_of(2) && real.ncols().is_multiple_of(2);
    are_even && (0..real.nrows()).step_by(2).all(is_row)
}

/// Tells whether two rows consist of blocks `[[a, -b], [b, a]]`, from their columns and values.
pub(crate) fn is_row_of_blocks<T: Scalar>(columns: [&[u32]; 2], values: [&[T]; 2]) -> bool {
    let [upper, lower] = columns;
    let [above, below] = values.map(|values| values.as_chunks::<2>().0);
    let pairs = upper.as_chunks::<2>().0.iter();
    upper == lower
        && upper.len().is_multiple_of(2)
        && pairs.zip(above.iter().zip(below)).all(|(columns, (above, below))| {
            columns[0] % 2 == 0 && columns[1] == columns[0] + 1 && is_block([*above, *below])
        })
}

/// Tells whether the values of a block are those of a complex number, as `[[a, -b], [b, a]]`.
#[inline(always)]
pub(crate) fn is_block<T: Scalar>([[a, c], [b, d]]: [[T; 2]; 2]) -> bool {
    let same = |a: T, d: T| a == d || (a.to_f64().is_nan() && d.to_f64().is_nan());
    same(a, d) && same(b, T::ZERO - c)
}

/// Returns the real matrix that stands for a complex one of this pattern; `number(k)` gives real and
/// imaginary part of entry `k`. The pattern has at most 2^31 - 1 rows and columns.
pub(crate) fn blocks<T: Scalar>(
    pattern: Pattern<'_>,
    number: impl Fn(usize) -> [T; 2] + Sync,
) -> Csr<T> {
    let row_ptr = pattern.row_ptr();
    let starts = row_ptr.windows(2).flat_map(|row| [4 * row[0], 2 * (row[0] + row[1])]);
    let starts: Vec<usize> = starts.chain([4 * pattern.nnz()]).collect();
    let mut col_idx = vec![0; 4 * pattern.nnz()];
    over_rows(row_ptr, &mut col_idx, &|row, columns| {
        let (upper, lower) = columns.split_at_mut(columns.len() / 2);
        for (pair, column) in upper.as_chunks_mut::<2>().0.iter_mut().zip(pattern.row(row)) {
            *pair = [2 * column, 2 * column + 1];
        }
        lower.copy_from_slice(upper);
    });
    Csr {
        nrows: 2 * pattern.nrows(),
        ncols: 2 * pattern.ncols(),
        row_ptr: starts,
        col_idx,
        values: block_values(row_ptr, number),
    }
}

/// Returns the values of [`blocks`]; `row_ptr` counts complex entries.
pub(crate) fn block_values<T: Scalar>(
    row_ptr: &[usize],
    number: impl Fn(usize) -> [T; 2] + Sync,
) -> Vec<T> {
    let mut values = vec![T::ZERO; 4 * row_ptr[row_ptr.len() - 1]];
    over_rows(row_ptr, &mut values, &|row, values| {
        let (upper, lower) = values.split_at_mut(values.len() / 2);
        let pairs = upper.as_chunks_mut::<2>().0.iter_mut().zip(lower.as_chunks_mut::<2>().0);
        for (k, (above, below)) in (row_ptr[row]..).zip(pairs) {
            let [a, b] = number(k);
            (*above, *below) = ([a, T::ZERO - b], [b, a]);
        }
    });
    values
}

/// Calls `work` with each complex row and its part of `elements`, four for each entry, in parallel.
fn over_rows<E: Send>(
    row_ptr: &[usize],
    elements: &mut [E],
    work: &(impl Fn(usize, &mut [E]) + Sync),
) {
    let bounds = par::split(row_ptr, 1, par::GRAIN / 4);
    let cuts: Vec<usize> = bounds.iter().map(|&row| 4 * row_ptr[row]).collect();
    par::for_each(&mut par::slices_mut(elements, &cuts), 1, |part, elements| {
        let mut rest = &mut **elements;
        for row in bounds[part]..bounds[part + 1] {
            let (own, after) = rest.split_at_mut(4 * (row_ptr[row + 1] - row_ptr[row]));
            rest = after;
            work(row, own);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn c(re: f64, im: f64) -> Complex<f64> {
        Complex { re, im }
    }

    #[test]
    fn parts_with_other_patterns_are_merged() {
        let real = Csr::from_triplets(2, 4, [(0, 1, 1.0), (0, 3, 2.0)]).expect("in range");
        let imaginary = Csr::from_triplets(2, 4, [(0, 0, 5.0), (0, 3, 6.0), (1, 2, 7.0)]);
        let imaginary = imaginary.expect("in range");
        let merged = ComplexCsr::from_parts(&real, &imaginary).expect("equal sizes");
        assert_eq!((merged.row_ptr(), merged.col_idx()), (&[0, 3, 4][..], &[0, 1, 3, 2][..]));
        assert_eq!(merged.values(), [c(0.0, 5.0), c(1.0, 0.0), c(2.0, 6.0), c(0.0, 7.0)]);
        let narrow = Csr::from_triplets(2, 3, []).expect("no entries");
        let stated = ComplexCsr::from_parts(&real, &narrow).expect_err("other size").to_string();
        assert!(stated.contains("columns of the imaginary part"), "{stated}");
    }

    #[test]
    fn repeated_triplets_are_summed() {
        let twice = [(1, 0, c(1.0, 2.0)), (0, 1, c(0.0, 1.0)), (1, 0, c(-1.0, 3.0))];
        let csr = ComplexCsr::from_triplets(2, 2, twice).expect("in range");
        assert_eq!(csr.values(), [c(0.0, 1.0), c(0.0, 5.0)], "a real part of 0 stays an entry");
    }

    #[test]
    fn the_real_matrix_has_a_block_for_each_entry_and_reads_back() {
        let n = 3000;
        let near =
            (0..n).flat_map(|i| [(i, i, c(i as f64, 1.0)), (i, (7 * i + 1) % n, c(0.5, -0.25))]);
        let csr = ComplexCsr::from_triplets(n, n, near).expect("in range");
        let real = csr.to_real();
        let checked = real.clone().into_arrays();
        let checked = Csr::new(2 * n, 2 * n, checked.0, checked.1, checked.2);
        assert_eq!(checked.expect("valid"), real);
        for (row, column) in [(0, 1), (5, 36), (2999, 2999)] {
            let at = csr.row_ptr()[row]..csr.row_ptr()[row + 1];
            let at = at.clone().find(|&k| csr.col_idx()[k] == column).expect("an entry");
            let (a, b) = (csr.values()[at].re, csr.values()[at].im);
            let column = 2 * column as usize;
            let found = [0, 1].map(|p| [0, 1].map(|q| real.get(2 * row + p, column + q)));
            assert_eq!(found, [[Some(a), Some(-b)], [Some(b), Some(a)]]);
        }
        assert_eq!(ComplexCsr::from_blocks(&real).expect("blocks"), csr);
    }

    #[test]
    fn other_real_matrices_and_sizes_are_refused() {
        let csr = ComplexCsr::from_triplets(2, 2, [(1, 1, c(1.0, 2.0))]).expect("in range");
        let mut real = csr.to_real();
        real.values_mut()[3] = 5.0;
        let stated = ComplexCsr::from_blocks(&real).expect_err("no block").to_string();
        assert!(stated.contains("rows 2 and 3"), "{stated}");
        let odd = Csr::<f64>::from_triplets(3, 2, []).expect("no entries");
        assert!(ComplexCsr::from_blocks(&odd).expect_err("odd").to_string().contains("3 x 2"));
        let wide = ComplexCsr::<f64>::new(1, 1 << 31, vec![0, 0], Vec::new(), Vec::new());
        assert!(wide.expect_err("too wide").to_string().contains("at most 2147483647 rows"));
    }

    #[test]
    fn zeros_of_either_sign_and_nan_are_blocks() {
        assert!(is_block([[0.0, -0.0], [-0.0, 0.0]]) && is_block([[1.0, 0.0], [0.0, 1.0]]));
        assert!(is_block([[f64::NAN, f64::NEG_INFINITY], [f64::INFINITY, f64::NAN]]));
        assert!(!is_block([[1.0, 2.0], [2.0, 1.0]]) && !is_block([[1.0, -2.0], [2.0, 1.5]]));
    }
}
