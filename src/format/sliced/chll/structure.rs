//! The structure of complex matrices that are given as real ones: blocks `[[a, -b], [b, a]]`.

use rayon::prelude::*;

use crate::analysis::{Analysis, Detail, ValuesOf, probes, spread};
use crate::csr::{Pattern, complex};
use crate::format::Refusal;
use crate::scalar::Scalar;

/// Block rows that are checked before all others, and as a sample of a large matrix.
const FIRST: usize = 16;
const SAMPLED: usize = 2048;

/// Smallest number of block rows that a thread checks.
const GRAIN: usize = 1024;

probes! {
    /// The first block row found without the structure, in all block rows.
    FirstOther() -> Option<usize>;
    /// The first one in a sample of the block rows.
    FirstOtherSampled() -> Option<usize>;
}

/// Checks that a matrix consists of blocks `[[a, -b], [b, a]]`. For a large matrix whose analysis
/// serves estimates, a sample of its rows is checked. Nearly all other matrices are refused after a
/// look at 16 pairs of rows.
///
/// # Errors
/// [`Refusal`] with the first rows found that differ.
pub(super) fn check(analysis: &Analysis<'_>) -> Result<(), Refusal> {
    refuse(analysis, analysis.detail())
}

/// As [`check`], for every row.
///
/// # Errors
/// As [`check`].
pub(super) fn check_all(analysis: &Analysis<'_>) -> Result<(), Refusal> {
    refuse(analysis, Detail::Whole)
}

/// Checks that the size of a matrix is one of complex matrices.
///
/// # Errors
/// [`Refusal`] with the size.
pub(super) fn check_size([nrows, ncols, nnz]: [usize; 3]) -> Result<(), Refusal> {
    if !nrows.is_multiple_of(2) || !ncols.is_multiple_of(2) || !nnz.is_multiple_of(4) || nnz == 0 {
        return Err(Refusal::new(format!(
            "{nrows} rows, {ncols} columns and {nnz} entries do not make 2 x 2 blocks \
             [[a, -b], [b, a]]; it stores complex matrices that are given as such blocks"
        )));
    }
    Ok(())
}

/// The refusal of a matrix in which the rows `row` and `row + 1` have another structure.
pub(super) fn other(row: usize) -> Refusal {
    Refusal::new(format!(
        "row {row} and the next one do not consist of 2 x 2 blocks [[a, -b], [b, a]]; it stores \
         complex matrices that are given as such blocks"
    ))
}

/// The refusal of new values that differ in the rows `row` and `row + 1`.
pub(super) fn other_values(row: usize) -> Refusal {
    Refusal::new(format!(
        "the new values of row {row} and the next one are not 2 x 2 blocks [[a, -b], [b, a]], as the \
         converted ones were; prepare a new operator for them"
    ))
}

fn refuse(analysis: &Analysis<'_>, detail: Detail) -> Result<(), Refusal> {
    let pattern = analysis.pattern();
    check_size([pattern.nrows(), pattern.ncols(), pattern.nnz()])?;
    let found = match analysis.values() {
        None => return Err(Refusal::new("values are unknown")),
        Some(ValuesOf::F32(values)) => first_other(analysis, values, detail),
        Some(ValuesOf::F64(values)) => first_other(analysis, values, detail),
    };
    found.map_or(Ok(()), |block_row| Err(other(2 * block_row)))
}

/// The first block row found that has another structure.
fn first_other<T: Scalar>(analysis: &Analysis<'_>, values: &[T], detail: Detail) -> Option<usize> {
    let pattern = analysis.pattern();
    let n = pattern.nrows() / 2;
    let differs = |i: &usize| !is_complex_row(pattern, values, *i);
    let some = |count: usize| {
        let count = count.min(n);
        (0..count).map(|at| spread(at, count, n)).find(differs)
    };
    let all = || {
        let all = (0..n).into_par_iter().with_min_len(GRAIN);
        some(FIRST).or_else(|| all.find_first(differs))
    };
    match detail {
        Detail::Whole => analysis.memo().get(FirstOther(), all),
        Detail::Sampled => analysis.memo().get(FirstOtherSampled(), || some(SAMPLED)),
    }
}

/// Tells whether block row `i` has the structure.
fn is_complex_row<T: Scalar>(pattern: Pattern<'_>, values: &[T], i: usize) -> bool {
    let row_ptr = pattern.row_ptr();
    let rows = [2 * i, 2 * i + 1];
    let values = rows.map(|row| &values[row_ptr[row]..row_ptr[row + 1]]);
    complex::is_row_of_blocks(rows.map(|row| pattern.row(row)), values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Csr;

    fn blocks(n: usize, change: impl Fn(usize, usize, f64) -> f64) -> Csr<f64> {
        let at = |i: usize, j: usize| {
            let (a, b) = (1.0 + (i + j) as f64, 0.5 * i as f64 - j as f64);
            let (row, column) = (2 * i, 2 * j);
            [
                (row, column, a),
                (row, column + 1, -b),
                (row + 1, column, b),
                (row + 1, column + 1, a),
            ]
        };
        let near = (0..n).flat_map(|i| (i.saturating_sub(1)..n.min(i + 2)).map(move |j| (i, j)));
        let entries = near.flat_map(|(i, j)| at(i, j));
        let entries = entries.map(|(row, column, value)| (row, column, change(row, column, value)));
        Csr::from_triplets(2 * n, 2 * n, entries).expect("indices are in range")
    }

    #[track_caller]
    fn refused(csr: &Csr<f64>) -> String {
        check_all(&Analysis::of(csr)).expect_err("another structure").to_string()
    }

    #[test]
    fn one_value_that_differs_is_found_in_any_row() {
        let n = 5000;
        assert!(check_all(&Analysis::of(&blocks(n, |_, _, value| value))).is_ok());
        for row in [0, 1, 4711, 2 * n - 1] {
            let csr = blocks(n, |r, c, value| if (r, c) == (row, row) { 0.125 } else { value });
            assert!(refused(&csr).starts_with(&format!("row {} and the next", row / 2 * 2)));
        }
    }

    #[test]
    fn other_patterns_are_refused() {
        let whole = blocks(3, |_, _, value| value);
        let kept = whole.iter().filter(|&(row, column, _)| row != 2 || column > 1);
        let part = Csr::from_triplets(6, 6, kept).expect("indices are in range");
        assert!(refused(&part).contains("6 rows, 6 columns and 26 entries"));
        let moved = whole.iter().map(|(row, column, value)| (row, (column + 1) % 6, value));
        assert!(refused(&Csr::from_triplets(6, 6, moved).expect("in range")).starts_with("row 0"));
        let odd = whole.iter().filter(|&(row, ..)| row < 5);
        assert!(refused(&Csr::from_triplets(5, 6, odd).expect("in range")).contains("5 rows"));
        assert!(refused(&Csr::from_triplets(2, 2, []).expect("in range")).contains("0 entries"));
        let pattern = check(&Analysis::new(whole.pattern())).expect_err("no values");
        assert_eq!(pattern.to_string(), "values are unknown");
    }
}
