//! Cost terms: the work of a candidate as named numbers, which models see in addition to its
//! parameters.

use std::collections::BTreeMap;

use super::{MatrixTerms, Times};
use crate::format::{Candidate, Role, Work};

/// Names of the numbers that [`terms`] returns, in its order, followed by those that [`relate`]
/// fills in.
///
/// The suffix of a name gives its unit: `_floors` are multiples of the byte floor, `_a_nonzero`,
/// `_a_row` and `_a_lane` are counts per nonzero, row, or lane (a GPU thread that walks whole rows;
/// 0 if there are none); the others are plain counts. `longest_a_lane` is the number of entries of
/// the longest row per lane that works on it. The last four are estimates divided by the
/// candidate's own estimate: the lowest of all candidates, the lowest of its format, CSR's and
/// cuSPARSE's.
pub const TERMS: [&str; 32] = [
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
    "new_share",
    "missed_a_nonzero",
    "changes_a_row",
    "entries",
    "steps",
    "lanes",
    "entries_a_lane",
    "steps_a_lane",
    "longest_a_lane",
    "tile_steps",
    "tile_steps_most",
    "wait_floors",
    "least_estimates",
    "least_of_format_estimates",
    "csr_estimates",
    "cusparse_estimates",
];

/// Index of the first term that [`relate`] fills in.
const RELATED: usize = TERMS.len() - 4;

/// Returns the terms of a candidate, named by [`TERMS`], from its work, its estimated times and the
/// figures of the matrix. The terms of [`relate`] are 1.
pub fn terms(work: &Work, times: &Times, matrix: &MatrixTerms) -> [f64; TERMS.len()] {
    let floor_s = times.floor_s.max(f64::MIN_POSITIVE);
    let (rows, nonzeros) = (matrix.nrows.max(1) as f64, matrix.nnz.max(1) as f64);
    let (entries, steps, lanes) = (work.entries as f64, work.steps as f64, work.lanes as f64);
    let a_lane = |count: f64| if work.lanes == 0 { 0.0 } else { count / lanes };
    [
        times.floor_s * 1e6,
        times.total_s() / floor_s,
        times.stream_s / floor_s,
        times.gather_s / floor_s,
        times.lookup_s / floor_s,
        times.compute_s / floor_s,
        times.row_s / floor_s,
        times.overhead_s / floor_s,
        entries / nonzeros,
        work.stream_bytes as f64 / nonzeros,
        work.extra_bytes as f64 / nonzeros,
        work.x_sectors / nonzeros,
        steps / nonzeros,
        work.scattered_rows as f64 / rows,
        lanes / rows,
        f64::from(work.launches),
        matrix.new_share,
        times.missed / nonzeros,
        matrix.changes as f64 / rows,
        entries,
        steps,
        lanes,
        a_lane(entries),
        a_lane(steps),
        a_lane(matrix.longest as f64 * rows),
        work.tile_steps,
        work.tile_steps_most,
        times.wait_s / floor_s,
        1.0,
        1.0,
        1.0,
        1.0,
    ]
}

/// Fills in the ratios between the estimates of the candidates of one matrix. If a format has no
/// candidate, the candidate itself takes its place. Other variants of CSR, and formats that store
/// fewer bytes of values than the format that stands in for them, are related to the others, but these
/// not to them: what models learned from the others stays valid.
pub fn relate<'a>(
    candidates: impl IntoIterator<Item = (&'a Candidate, &'a mut [f64; TERMS.len()])>,
) {
    let mut all: Vec<_> = candidates.into_iter().collect();
    // TERMS[0] is floor_us, TERMS[1] is estimate_floors.
    let estimate_us = |terms: &[f64; TERMS.len()]| terms[0] * terms[1];
    let mut of_format: BTreeMap<&str, f64> = BTreeMap::new();
    let mut of_role: BTreeMap<Role, f64> = BTreeMap::new();
    let counts = |candidate: &Candidate| !candidate.is_csr_variant() && !candidate.has_stand_in();
    for (candidate, terms) in all.iter().filter(|(candidate, _)| counts(candidate)) {
        let least = of_format.entry(candidate.format.name).or_insert(f64::INFINITY);
        *least = least.min(estimate_us(terms));
        let least = of_role.entry(candidate.format.role).or_insert(f64::INFINITY);
        *least = least.min(estimate_us(terms));
    }
    let least_us = of_format.values().copied().fold(f64::INFINITY, f64::min);
    for (candidate, terms) in &mut all {
        let own_us = estimate_us(terms);
        let least_of_format = of_format.get(candidate.format.name).copied().unwrap_or(own_us);
        let of = |role| of_role.get(&role).copied().unwrap_or(own_us);
        let others = [least_us, least_of_format, of(Role::Baseline), of(Role::Vendor)];
        for (term, other_us) in terms[RELATED..].iter_mut().zip(others) {
            *term = other_us / own_us.max(f64::MIN_POSITIVE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_related_to_the_least_of_all_of_the_format_and_of_csr() {
        let named = |name: &str| name.parse::<Candidate>().expect("a candidate");
        let candidates =
            ["csr", "st_csr:tile=1024", "st_csr:tile=2048", "csr:kernel=vector"].map(named);
        let of = |floor_us: f64, floors: f64| {
            let mut terms = [1.0; TERMS.len()];
            (terms[0], terms[1]) = (floor_us, floors);
            terms
        };
        let mut numbers = [of(4.0, 2.0), of(1.0, 2.0), of(2.0, 2.0), of(0.5, 2.0)];
        relate(candidates.iter().zip(&mut numbers));
        assert_eq!(numbers[0][RELATED..], [0.25, 1.0, 1.0, 1.0]);
        assert_eq!(numbers[1][RELATED..], [1.0, 1.0, 4.0, 1.0]);
        assert_eq!(numbers[2][RELATED..], [0.5, 0.5, 2.0, 1.0]);
        assert_eq!(numbers[3][RELATED..], [2.0, 8.0, 8.0, 1.0]);
    }
}
