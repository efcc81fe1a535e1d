//! The bisection of a warp, which biell and bijad store.
//!
//! The 32 rows of a warp are sorted by descending length. Group 0 assigns one lane to every row and
//! holds the columns that more than half of the rows reach: as many as the 17th row has. Each
//! further group holds half as many rows, with twice as many lanes each: group `g` holds `32 >> g`
//! rows with `2^g` lanes each, and ends where the next half of its rows ends. A warp has six
//! groups.
//!
//! Group `g` consists of steps of 32 slots, and each step holds `2^g` columns; free places in its
//! last step are filled from the columns after it. Entry `c` of row `r` in a group is in step
//! `c >> g` at lane `r + (32 >> g) * (c mod 2^g)`. To sum up, a warp processes the groups from the
//! last to the first; after each group it adds every lane with the bit `32 >> g` to the lane
//! without it: five shuffles.

use rayon::prelude::*;

use super::narrow::{AsGiven, Keep};
use super::row_order::{self, ArrayCosts, Column, WARP};
use super::sliced::{ColumnWidth, Kernel, SliceMultiply, SliceShape, SlicedLayout};
use super::{Offsets, Refusal, Target, Work};
use crate::analysis::{Analysis, Sort};
use crate::csr::{CsrRef, offsets};
use crate::scalar::Scalar;

/// Groups of a warp: 32, 16, 8, 4, 2 and 1 rows.
const GROUPS: usize = 6;

/// The minimum number of warps that a thread processes.
const FEWEST_WARPS: usize = 512;

/// Starts of the groups of every warp.
#[derive(Debug)]
pub struct Bisection {
    /// `I`: the starts of the six groups of every warp, and the end.
    starts: Offsets,
}

/// Steps of 32 slots in each group of a warp whose rows have these lengths, in descending order.
fn steps(lengths: &[u32]) -> [usize; GROUPS] {
    let length = |r: usize| lengths.get(r).map_or(0, |&length| length as usize);
    let mut column = 0;
    std::array::from_fn(|g| {
        let steps = length((WARP >> g) / 2).saturating_sub(column).div_ceil(1 << g);
        column += steps << g;
        steps
    })
}

/// Starts of all groups of the rows in `sort` order.
fn group_starts(analysis: &Analysis<'_>, sort: Sort) -> Vec<usize> {
    let lengths = analysis.sorted_lengths(sort);
    offsets(lengths.chunks(WARP).flat_map(steps).map(|steps| steps * WARP))
}

/// The work of the bisected layout with rows in `sort` order.
pub(super) fn work(analysis: &Analysis<'_>, target: &Target<'_>, sort: Sort) -> Work {
    let lengths = analysis.sorted_lengths(sort);
    let warps = lengths.par_chunks(WARP).with_min_len(FEWEST_WARPS);
    let slots = WARP * warps.map(|warp| steps(warp).iter().sum::<usize>()).sum::<usize>();
    let starts = GROUPS * lengths.len().div_ceil(WARP) + 1;
    let bytes = (starts * Offsets::width(slots) + slots * (4 + target.precision.bytes())) as u64;
    let arrays = ArrayCosts {
        layout_bytes: bytes,
        stream_bytes: bytes,
        entries: slots as u64,
        steps: (slots / WARP) as u64,
    };
    row_order::work(analysis, target, sort, 1, arrays)
}

/// The layout with rows in `sort` order.
pub(super) fn convert<T: Scalar>(
    csr: CsrRef<'_, T>,
    analysis: &Analysis<'_>,
    target: &Target<'_>,
    sort: Sort,
) -> Result<SlicedLayout<T, Bisection>, Refusal> {
    let shape = Bisection { starts: Offsets::new(&group_starts(analysis, sort)) };
    SlicedLayout::new(csr, analysis, target, (sort, ColumnWidth::Wide), shape, AsGiven)
}

impl Bisection {
    /// Slots of group `g` of warp `s`, counted from the start of the warp.
    fn group(&self, s: usize, g: usize) -> std::ops::Range<usize> {
        let first = self.start(s);
        let at = s * GROUPS + g;
        self.starts.get(at) - first..self.starts.get(at + 1) - first
    }
}

impl SliceShape for Bisection {
    fn rows(&self) -> usize {
        WARP
    }

    fn start(&self, s: usize) -> usize {
        self.starts.get(s * GROUPS)
    }

    /// Every `32 >> g`-th slot of each group that still holds the row: the lanes of a step, then
    /// those of the next one.
    fn slots(&self, s: usize, r: usize) -> impl Iterator<Item = usize> {
        (0..GROUPS).take_while(move |&g| r < WARP >> g).flat_map(move |g| {
            let group = self.group(s, g);
            (group.start + r..group.end).step_by(WARP >> g)
        })
    }

    fn offsets(&self) -> &Offsets {
        &self.starts
    }
}

impl SliceMultiply for Bisection {
    #[inline(always)]
    fn add<K: Keep, T: Scalar, C: Column>(
        &self,
        s: usize,
        columns: &[C],
        values: &[K::Of<T>],
        x: &[T],
        sums: &mut [T],
    ) {
        let mut lanes = [T::ZERO; WARP];
        for g in (0..GROUPS).rev() {
            let group = self.group(s, g);
            let (columns, values) = (&columns[group.clone()], &values[group]);
            for (columns, values) in columns.chunks_exact(WARP).zip(values.chunks_exact(WARP)) {
                row_order::add_column::<K, _, _>(&mut lanes, columns, values, x);
            }
            fold(&mut lanes, WARP >> g);
        }
        for (sum, &lane) in sums.iter_mut().zip(&lanes) {
            *sum += lane;
        }
    }

    fn kernel(&self, _column_bits: usize) -> Kernel {
        Kernel { image: "bisection", stem: "bisection".to_string(), threads: 1 }
    }
}

/// Adds every lane with `bit` to the lane without it and sets the former to 0; does nothing where
/// no lane has the bit.
#[inline(always)]
fn fold<T: Scalar>(lanes: &mut [T; WARP], bit: usize) {
    for lane in 0..WARP {
        if lane & bit != 0 {
            let sum = std::mem::take(&mut lanes[lane]);
            lanes[lane ^ bit] += sum;
        }
    }
}
