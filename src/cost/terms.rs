//! What a candidate does, as plain numbers by name: what models see of it besides its parameters.

use super::Times;
use crate::format::Work;

/// The names of the numbers that [`terms`] gives, in its order.
///
/// Times are shares of the byte floor, counts are for each nonzero or row of the matrix.
pub const TERMS: [&str; 16] = [
    "floor_us",
    "estimate_floors",
    "stream_floors",
    "gather_floors",
    "lookup_floors",
    "compute_floors",
    "row_floors",
    "besides_floors",
    "entries_a_nonzero",
    "stream_bytes_a_nonzero",
    "extra_bytes_a_nonzero",
    "x_sectors_a_nonzero",
    "steps_a_nonzero",
    "scattered_a_row",
    "lanes_a_row",
    "launches",
];

/// The numbers of a candidate that does this work in these times, named by [`TERMS`].
pub fn terms(work: &Work, times: &Times, nrows: usize, nnz: usize) -> [f64; TERMS.len()] {
    let floor_s = times.floor_s.max(f64::MIN_POSITIVE);
    let (rows, entries) = (nrows.max(1) as f64, nnz.max(1) as f64);
    [
        times.floor_s * 1e6,
        times.total_s() / floor_s,
        times.stream_s / floor_s,
        times.gather_s / floor_s,
        times.lookup_s / floor_s,
        times.compute_s / floor_s,
        times.row_s / floor_s,
        times.besides_s / floor_s,
        work.entries as f64 / entries,
        work.stream_bytes as f64 / entries,
        work.extra_bytes as f64 / entries,
        work.x_sectors / entries,
        work.steps as f64 / entries,
        work.scattered_rows as f64 / rows,
        work.lanes as f64 / rows,
        f64::from(work.launches),
    ]
}
