//! The parts of EHYB: their number, their rows, and their in-part entries.

use std::ops::Range;
use std::sync::Arc;

use super::row_order::WARP;
use super::{Basis, Params, Refusal, Target};
use crate::analysis::{Analysis, Sample, inverse, longest_first, probes};
use crate::csr::offsets;
use crate::device::Kind;
use crate::par;
use crate::partition::{self, Partition};

/// Number of parts, K * P, by equation 1: the smallest number that P processors can share evenly
/// such that each part's piece of x fits `near_bytes` and 16-bit columns; each part has at least a
/// warp of rows.
fn n_parts(columns: usize, value_bytes: usize, processors: usize, near_bytes: usize) -> usize {
    let fits = (near_bytes / value_bytes).clamp(1, usize::from(u16::MAX) - 1);
    let k = columns.div_ceil(fits * processors).max(1);
    // Parts differ by one row, so the longest part may not fit; then K increases by one.
    let k = if columns.div_ceil(k * processors) > fits { k + 1 } else { k };
    (k * processors).min(columns.div_ceil(WARP)).max(columns.div_ceil(fits)).max(1)
}

/// Bytes of x that a part may hold.
fn near_bytes(params: &Params, target: &Target<'_>) -> u64 {
    match target.device.kind {
        // A block needs 1 KiB of the processor's memory in addition to its own.
        Kind::Gpu => (target.device.shared_bytes / params.int("share") as u64).saturating_sub(1024),
        Kind::Host => target.device.near_bytes,
    }
}

/// Number of parts of a matrix.
fn parts_of(analysis: &Analysis<'_>, params: &Params, target: &Target<'_>) -> usize {
    let processors = target.device.processors.max(1) as usize;
    let near_bytes = near_bytes(params, target) as usize;
    n_parts(analysis.pattern().ncols(), target.precision.bytes(), processors, near_bytes)
}

/// Size of the layout.
pub(super) struct EhybSize {
    pub parts: u64,
    /// Number of slices of in-part entries.
    pub slices: usize,
    /// Number of slots of in-part entries; `far` counts those of the other entries.
    pub near: u64,
    pub far: u64,
    /// Number of in-part entries.
    pub inside: u64,
    /// Number of rows with entries outside their part.
    pub far_rows: usize,
    /// True if rows are stored out of order.
    pub ordered: bool,
    /// The basis of x and y.
    pub basis: Basis,
    /// True if a piece of x is gathered through the order.
    pub gathers: bool,
}

impl EhybSize {
    /// The size that [`EhybPlan::new`] leads to; where the analysis is for estimates, computed
    /// from a sample of the slices.
    pub fn of(
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<Self, Refusal> {
        if !analysis.is_whole() && !params.is("part", "metis") {
            return Ok(EhybSize::of_sample(analysis, params, target));
        }
        let plan = EhybPlan::new(analysis, params, target)?;
        let (near, far) = (last(&plan.near_ptr()) as u64, last(&plan.far_ptr()) as u64);
        Ok(EhybSize {
            parts: plan.bounds.len() as u64 - 1,
            slices: plan.slices().count(),
            near,
            far,
            inside: plan.inside,
            far_rows: plan.far_rows.len(),
            ordered: plan.order.is_some(),
            basis: plan.basis,
            gathers: plan.gathers,
        })
    }

    fn of_sample(analysis: &Analysis<'_>, params: &Params, target: &Target<'_>) -> Self {
        let pattern = analysis.pattern();
        let (nrows, ncols) = (pattern.nrows(), pattern.ncols());
        let parts = parts_of(analysis, params, target);
        let bounds = partition::windows(nrows, parts);
        let pieces = partition::windows(ncols, parts);
        let ordered = !params.is("part", "none");
        let slices = |p: usize| (bounds[p + 1] - bounds[p]).div_ceil(WARP);
        let all: usize = (0..parts).map(slices).sum();
        let some = Sample { groups: parts, sampled: parts.min(MOST_PARTS) };
        let each = analysis.groups(all).sampled.div_ceil(some.sampled.max(1));
        let of_part = |p: usize| {
            let piece = pieces[p] as u32..pieces[p + 1] as u32;
            let within = Sample { groups: slices(p), sampled: slices(p).min(each) };
            let rows = within.picks().flat_map(|s| {
                let first = bounds[p] + s * WARP;
                first..bounds[p + 1].min(first + WARP)
            });
            let mut near = Vec::new();
            let mut far = Vec::new();
            for row in rows {
                let columns = pattern.row(row);
                let before = |end: u32| columns.partition_point(|&column| column < end);
                let inside = before(piece.end) - before(piece.start);
                near.push(inside as u32);
                far.push((columns.len() - inside) as u32);
            }
            let inside: u64 = near.iter().map(|&near| u64::from(near)).sum();
            let step = if ordered {
                near.sort_unstable_by(|a, b| b.cmp(a));
                // A slice of all rows contains this many of the sampled rows.
                (WARP * within.sampled / within.groups.max(1)).max(1)
            } else {
                WARP
            };
            (padded(&near, step), inside, far)
        };
        let found = par::map(some.sampled, 1, |at| of_part(some.pick(at)));
        let slots: u64 = found.iter().map(|(slots, ..)| slots).sum();
        let inside: u64 = found.iter().map(|(_, inside, _)| inside).sum();
        let mut far: Vec<u32> = found.into_iter().flat_map(|(.., far)| far).collect();
        let share = far.len().max(1) as f64 / nrows.max(1) as f64;
        let outside: u64 = far.iter().map(|&far| u64::from(far)).sum();
        far.retain(|&far| far > 0);
        far.sort_unstable_by(|a, b| b.cmp(a));
        let far_slots = padded(&far, ((WARP as f64 * share) as usize).max(1));
        let scaled = |count: u64| (count as f64 / share) as u64;
        let nnz = pattern.nnz() as u64;
        let inside_share = inside as f64 / (inside + outside).max(1) as f64;
        EhybSize {
            parts: parts as u64,
            slices: all,
            near: scaled(slots),
            far: scaled(far_slots),
            inside: ((nnz as f64 * inside_share) as u64).min(nnz),
            far_rows: scaled(far.len() as u64) as usize,
            ordered,
            basis: if ordered && nrows == ncols { target.basis } else { Basis::Original },
            gathers: false,
        }
    }
}

/// The maximum number of parts in a sample.
const MOST_PARTS: usize = 32;

/// Slots of rows with these lengths in slices of `step` rows.
fn padded(lengths: &[u32], step: usize) -> u64 {
    lengths.chunks(step).map(|rows| (longest(rows) * rows.len()) as u64).sum()
}

/// Placement of the entries of a matrix.
pub(super) struct EhybPlan {
    /// First stored row of each part, and the end.
    pub bounds: Vec<usize>,
    /// First column of each part's piece of x, and the end.
    pub pieces: Vec<usize>,
    pub basis: Basis,
    /// Row of the matrix that each stored row is; `None` where rows keep their order.
    pub order: Option<Vec<u32>>,
    /// Stored row of each row of the matrix, where columns are counted in that order.
    pub new: Option<Vec<u32>>,
    /// True if a piece of x is gathered through the order.
    pub gathers: bool,
    /// In-part entries of each stored row.
    pub near: Vec<u32>,
    /// Number of in-part entries of all rows.
    pub inside: u64,
    /// Stored rows with entries outside their part, in descending order of the number of such
    /// entries, which `far` holds.
    pub far_rows: Vec<u32>,
    pub far: Vec<u32>,
}

impl EhybPlan {
    pub fn new(
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<Self, Refusal> {
        let pattern = analysis.pattern();
        let (nrows, ncols) = (pattern.nrows(), pattern.ncols());
        let near_bytes = near_bytes(params, target);
        let value_bytes = target.precision.bytes();
        let parts = parts_of(analysis, params, target);
        let square = nrows == ncols;
        let metis = params.is("part", "metis");
        let (mut order, bounds) = if metis {
            let most = (near_bytes as usize / value_bytes).clamp(1, usize::from(u16::MAX) - 1);
            let partition = analysis.partition(parts, most.max(ncols.div_ceil(parts)))?;
            (partition.order.clone(), partition.bounds.clone())
        } else {
            ((0..nrows as u32).collect(), partition::windows(nrows, parts))
        };
        let pieces = if square { bounds.clone() } else { partition::windows(ncols, parts) };
        let sorted = !params.is("part", "none");
        let basis = if sorted && square { target.basis } else { Basis::Original };

        // The parts hold ranges of columns: for METIS in the order of the partition.
        let place = metis.then(|| inverse(&order));
        let inside = |row: u32, piece: &Range<u32>| -> u32 {
            let columns = pattern.row(row as usize);
            let inside = match &place {
                None if columns.first().is_none_or(|&first| first >= piece.start)
                    && columns.last().is_none_or(|&last| last < piece.end) =>
                {
                    columns.len()
                }
                None => {
                    let before = |end: u32| columns.partition_point(|&column| column < end);
                    before(piece.end) - before(piece.start)
                }
                Some(place) => {
                    columns.iter().filter(|&&c| piece.contains(&place[c as usize])).count()
                }
            };
            inside as u32
        };
        let mut near = vec![0u32; nrows];
        let parts = par::slices_mut(&mut order, &bounds).into_iter();
        let mut parts: Vec<_> = parts.zip(par::slices_mut(&mut near, &bounds)).collect();
        par::for_each(&mut parts, 1, |p, (rows, near)| {
            let piece = pieces[p] as u32..pieces[p + 1] as u32;
            let mut counted: Vec<_> = rows.iter().map(|&row| (inside(row, &piece), row)).collect();
            if sorted {
                counted.sort_by_key(|&(count, _)| std::cmp::Reverse(count));
            }
            for ((row, near), counted) in rows.iter_mut().zip(near.iter_mut()).zip(counted) {
                (*near, *row) = counted;
            }
        });

        let lengths = analysis.lengths();
        let outside = order.iter().zip(&near).map(|(&row, near)| lengths[row as usize] - near);
        let outside: Vec<u32> = outside.collect();
        let mut far_rows: Vec<u32> =
            (0..nrows as u32).filter(|&i| outside[i as usize] > 0).collect();
        longest_first(&outside, &mut far_rows);
        let far = far_rows.iter().map(|&i| outside[i as usize]).collect();
        let permuted = basis == Basis::Permuted;
        let new = (permuted || metis).then(|| inverse(&order));
        Ok(EhybPlan {
            pieces,
            basis,
            new,
            gathers: metis && !permuted,
            inside: near.iter().map(|&count| u64::from(count)).sum(),
            near,
            far_rows,
            far,
            order: sorted.then_some(order),
            bounds,
        })
    }

    /// Slices of each part: 32 rows each; the last slice of a part may have fewer.
    fn slices(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.bounds.windows(2).flat_map(|part| {
            let end = part[1];
            (part[0]..end).step_by(WARP).map(move |first| first..end.min(first + WARP))
        })
    }

    /// First slice of each part, and the end.
    pub fn first_slices(&self) -> Vec<u32> {
        let slices = self.bounds.windows(2).map(|part| (part[1] - part[0]).div_ceil(WARP));
        offsets(slices).into_iter().map(|first| first as u32).collect()
    }

    /// First slot of each slice of in-part entries, and the end.
    pub fn near_ptr(&self) -> Vec<usize> {
        offsets(self.slices().map(|rows| WARP * longest(&self.near[rows])))
    }

    /// First slot of each slice of the ER part, and the end.
    pub fn far_ptr(&self) -> Vec<usize> {
        offsets(self.far.chunks(WARP).map(|rows| WARP * longest(rows)))
    }
}

/// The place of each of `nrows` stored rows among `rows`; `rows.len()` for a row not among them.
pub(super) fn places(nrows: usize, rows: &[u32]) -> Vec<u32> {
    let mut places = vec![rows.len() as u32; nrows];
    for (at, &i) in rows.iter().enumerate() {
        places[i as usize] = at as u32;
    }
    places
}

fn longest(lengths: &[u32]) -> usize {
    lengths.iter().copied().max().unwrap_or(0) as usize
}

pub(super) fn last(ptr: &[usize]) -> usize {
    ptr.last().copied().unwrap_or(0)
}

/// A partition, or the reason why there is none.
type PartitionResult = Result<Arc<Partition>, Refusal>;

probes! {
    /// A partition by METIS, by number of parts and maximum number of rows per part.
    MetisPartition(usize, usize) -> PartitionResult;
}

impl Analysis<'_> {
    /// Partitions the graph of the square pattern by METIS into `parts` parts of at most `most`
    /// rows; cached.
    ///
    /// # Errors
    /// [`Refusal`] where METIS cannot partition the graph, and where the analysis is for
    /// estimates.
    pub fn partition(&self, parts: usize, most: usize) -> PartitionResult {
        self.check_patience()?;
        self.memo().get(MetisPartition(parts, most), || {
            partition::metis(self.pattern(), parts, most).map(Arc::new)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_the_fewest_that_fit_for_all_processors() {
        // The paper's V100: 80 processors, 96 KiB of shared memory.
        assert_eq!(n_parts(1_000_000, 8, 80, 96 * 1024), 160);
        assert_eq!(n_parts(900_000, 8, 80, 96 * 1024), 80);
        assert_eq!(n_parts(1_000_000, 4, 80, 96 * 1024), 80);
        // Few rows: no part smaller than a warp. Many rows: 16 bits count the columns of a part.
        assert_eq!(n_parts(100, 8, 132, 232_448), 4);
        assert_eq!(n_parts(0, 8, 132, 232_448), 1);
        assert!(10_000_000usize.div_ceil(n_parts(10_000_000, 4, 2, 2 << 20)) < 65_535);
    }

    #[test]
    fn windows_of_a_band_hold_most_entries() {
        let csr = crate::generate::banded(2000, 5, 1.0, 1);
        let analysis = Analysis::new(csr.pattern()).with_partitioning();
        let devices = crate::device::Device::shipped();
        let target = Target {
            device: &devices[0],
            precision: crate::Precision::F64,
            basis: Basis::Original,
            memory_limit: u64::MAX,
            stored: Default::default(),
        };
        let plan = |text: &str| {
            let candidate: super::super::Candidate = text.parse().expect("a candidate");
            EhybPlan::new(&analysis, &candidate.params, &target).expect("it applies")
        };
        assert!(plan("ehyb:part=window").inside as f64 > 0.85 * csr.nnz() as f64);
        #[cfg(feature = "metis")]
        assert!(plan("ehyb:part=metis").inside as f64 > 0.85 * csr.nnz() as f64);
    }
}
