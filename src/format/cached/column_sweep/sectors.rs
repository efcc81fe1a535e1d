//! Sectors of x that a product loads if each block of threads passes over all columns once.

use crate::analysis::{Analysis, Classes};
use crate::par;
use crate::scalar::Precision;

/// Minimum number of columns that a thread sums.
const FEWEST: usize = 1 << 16;

impl Analysis<'_> {
    /// Returns the expected number of x sectors that are loaded if the rows are split at random
    /// into `parts` parts and each part loads each sector that it needs once. Estimated from a
    /// sample of the rows if this analysis is for estimates.
    pub(super) fn swept_sectors(&self, parts: usize, precision: Precision) -> f64 {
        let columns = 32 / precision.bytes();
        if let Some(sample) = self.column_sample() {
            return of_classes(sample.classes(), parts, columns);
        }
        if self.pattern().ncols() / 64 > self.pattern().nnz() {
            return self.pattern().nnz() as f64;
        }
        of_counts(&self.column_counts(), parts, columns)
    }
}

/// Computes the expected number of sectors of `columns` columns from the entries of each column.
fn of_counts(counts: &[u32], parts: usize, columns: usize) -> f64 {
    let of_sector =
        |counts: &[u32]| parts_with_one(counts.iter().map(|&count| f64::from(count)).sum(), parts);
    // The order of summation does not depend on the number of threads.
    let of_piece = |piece: usize| -> f64 {
        let counts = &counts[piece * FEWEST..counts.len().min((piece + 1) * FEWEST)];
        counts.chunks(columns).map(of_sector).sum()
    };
    par::map(counts.len().div_ceil(FEWEST), 1, of_piece).iter().sum()
}

/// Estimates [`of_counts`] from a sample, assuming that columns of a class are neighbours.
fn of_classes(classes: &Classes, parts: usize, columns: usize) -> f64 {
    let of_class = |(class_columns, entries): (u64, f64)| {
        let sectors = class_columns as f64 / columns as f64;
        sectors * parts_with_one(entries / sectors, parts)
    };
    classes.iter().map(of_class).sum()
}

/// Returns the expected number of parts that hold at least one of a sector's `entries` entries, if
/// entries are assigned to `parts` parts at random.
fn parts_with_one(entries: f64, parts: usize) -> f64 {
    let parts = parts as f64;
    if parts > 1.0 {
        parts * -(entries * (-1.0 / parts).ln_1p()).exp_m1()
    } else {
        entries.min(1.0)
    }
}
