//! The test oracle: compares products with a CSR reference in f64, row by row, within the rounding
//! bound.

use crate::csr::CsrRef;
use crate::error::{Error, Result};
use crate::par;
use crate::scalar::Scalar;

/// Reference product of one row: the sum in f64, and the magnitude with which its rounding error
/// scales.
///
/// ```
/// use ellect::{Csr, check};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = Csr::from_triplets(1, 2, [(0, 0, 2.0), (0, 1, -3.0)])?;
/// let rows = check::reference(&csr, 1.0, &[1.0, 1.0], 0.0, &[0.0]);
/// assert_eq!((rows[0].value, rows[0].magnitude), (-1.0, 5.0));
/// # Ok(())
/// # }
/// ```
#[derive(Default, Clone, Copy, Debug, PartialEq)]
pub struct RowReference {
    /// `alpha * (A x)_i + beta * y_i`.
    pub value: f64,
    /// `|alpha| * (|A| |x|)_i + |beta| * |y_i|`.
    pub magnitude: f64,
    /// Number of terms summed.
    pub terms: usize,
}

/// Computes `alpha A x + beta y` from the CSR arrays in f64, in row order. If `beta` is 0, y is not
/// read.
///
/// # Panics
/// If `x` or `y` has the wrong length.
pub fn reference<'a, T: Scalar>(
    csr: impl Into<CsrRef<'a, T>>,
    alpha: T,
    x: &[T],
    beta: T,
    y: &[T],
) -> Vec<RowReference> {
    let csr = csr.into();
    assert_eq!((x.len(), y.len()), (csr.ncols(), csr.nrows()), "vectors do not fit the matrix");
    let (alpha, beta) = (alpha.to_f64(), beta.to_f64());
    par::map(csr.nrows(), 1, |row| {
        let (columns, values) = csr.row(row);
        let (mut sum, mut magnitude) = (0.0, 0.0);
        for (&column, value) in columns.iter().zip(values) {
            let term = value.to_f64() * x[column as usize].to_f64();
            sum += term;
            magnitude += term.abs();
        }
        let old = if beta == 0.0 { 0.0 } else { beta * y[row].to_f64() };
        RowReference {
            value: alpha * sum + old,
            magnitude: alpha.abs() * magnitude + old.abs(),
            terms: columns.len(),
        }
    })
}

/// Compares a product with its reference.
///
/// A row passes if both values are finite and differ by at most `(terms + 4) * eps * magnitude`,
/// which bounds every order of summation, or if both are the same infinity or both NaN. In f32 a
/// sum may overflow although the f64 reference does not; an infinity then passes if the magnitude
/// exceeds the largest value of the type.
///
/// # Errors
/// [`Error::WrongProduct`] with the worst row.
pub fn compare<T: Scalar>(candidate: &str, reference: &[RowReference], y: &[T]) -> Result<()> {
    compare_rounded(candidate, reference, y, 0.0)
}

/// Compares the product of a matrix whose values were rounded with the reference of the exact values,
/// as [`compare`]; `rounding` is the largest error of a value as a share of it, and each row may differ
/// by `rounding * magnitude` more.
///
/// ```
/// use ellect::{Csr, check};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = Csr::from_triplets(1, 1, [(0, 0, 0.1)])?;
/// let reference = check::reference(&csr, 1.0, &[1.0], 0.0, &[0.0]);
/// let rounded = [f64::from(0.1f32)];
/// assert!(check::compare("exact", &reference, &rounded).is_err());
/// check::compare_rounded("rounded", &reference, &rounded, 2.0f64.powi(-24))?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As [`compare`].
pub fn compare_rounded<T: Scalar>(
    candidate: &str,
    reference: &[RowReference],
    y: &[T],
    rounding: f64,
) -> Result<()> {
    use rayon::prelude::*;
    let largest = T::largest();
    let excess = |row: usize| {
        let (want, got) = (&reference[row], y[row].to_f64());
        if want.value.is_finite() && got.is_finite() {
            let bound = ((want.terms + 4) as f64 * T::EPSILON + rounding) * want.magnitude
                + T::smallest() * (want.terms + 4) as f64;
            (want.value - got).abs() / bound
        } else if want.value.is_nan() == got.is_nan()
            && (got.is_nan() || want.value.is_infinite() && want.value == got)
            || want.magnitude > largest
        {
            0.0
        } else {
            f64::INFINITY
        }
    };
    let rows = (0..reference.len().min(y.len())).into_par_iter().with_min_len(1 << 14);
    let wrong = rows.map(|row| (row, excess(row))).filter(|&(_, excess)| excess > 1.0);
    // The first of several rows with the same error.
    let worst =
        wrong.reduce_with(|a, b| if b.1 > a.1 || (b.1 == a.1 && b.0 < a.0) { b } else { a });
    match worst {
        None if reference.len() == y.len() => Ok(()),
        None => Err(Error::Shape { what: "y", got: y.len(), needed: reference.len() }),
        Some((row, excess)) => Err(Error::WrongProduct {
            candidate: candidate.to_string(),
            what: format!(
                "row {row} is {}, the reference is {}: the difference is {excess:.1} times the \
                 rounding bound",
                y[row], reference[row].value
            ),
        }),
    }
}

/// Returns a vector of `len` seeded values with magnitudes from 1/16 to 1 and both signs, all exact
/// in f32.
pub fn vector<T: Scalar>(len: usize, seed: u64) -> Vec<T> {
    par::map(len, 1 << 14, |i| {
        let bits = mix(seed ^ mix(i as u64));
        let size = (bits % 961 + 64) as f64 / 1024.0;
        T::from_f64(if bits >> 63 == 0 { size } else { -size })
    })
}

/// Returns the seed of one of the vectors of a product; the first has the product's own.
pub(crate) fn seed_of(seed: u64, vector: usize) -> u64 {
    seed ^ (vector as u64) << 32
}

/// Returns a vector of `len` seeded whole numbers from -4 to 4. Their products and sums are exact,
/// so every order of summation gives the same result.
pub fn whole_numbers<T: Scalar>(len: usize, seed: u64) -> Vec<T> {
    (0..len as u64).map(|i| T::from_f64((mix(seed ^ mix(i)) % 9) as f64 - 4.0)).collect()
}

/// Mixes the bits of `seed` with SplitMix64 (G. Steele, D. Lea, C. Flood, Fast splittable
/// pseudorandom number generators, 2014).
pub(crate) fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
