//! Number of row blocks, and assignment of rows to them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ellect_kernels::shared;
use rayon::prelude::*;

use super::{LANES, LongRow, NO_SUM, REACH, STEP, WORDS};
use crate::analysis::Analysis;
use crate::format::{Matrix, Refusal, Target};
use crate::par;

/// Neighbouring rows that stay together, so that y is written in whole sectors.
pub(super) const GROUP: usize = shared("COLUMN_SWEEP_GROUP") as usize;

/// Bytes of a processor's shared memory that blocks leave free as cache for loads.
const CACHE: u64 = 28 * 1024;

/// The minimum number of entries per block while processors are idle.
const LEAST: usize = 8 * STEP;

/// The size of the layout.
#[derive(Clone, Copy, Debug)]
pub(super) struct ColumnSweepShape {
    pub nrows: usize,
    pub nnz: usize,
    /// Number of pieces of [`REACH`] columns.
    pub pieces: usize,
    /// Number of blocks of threads; `waves` is the number that a processor runs one after the
    /// other.
    pub blocks: usize,
    pub waves: usize,
    /// The maximum number of sums that a block holds.
    pub most: usize,
    /// Number of steps for which the layout has room.
    pub steps: usize,
}

impl ColumnSweepShape {
    /// Chooses the fewest blocks that hold the sums of all rows, but at least one per processor
    /// where there are entries for them. `longest` is the length of the longest row.
    ///
    /// # Errors
    /// [`Refusal`] where shared memory holds too few sums.
    pub fn new(matrix: Matrix, longest: usize, target: &Target<'_>) -> Result<Self, Refusal> {
        let Matrix { nrows, ncols, nnz, .. } = matrix;
        let room = target.device.shared_bytes.saturating_sub(CACHE);
        let most = (room / target.precision.bytes() as u64).min(u64::from(NO_SUM)) as usize;
        // Long rows have at most two further sums per entry of a step, and a block may be unable to
        // use the sums of one more group.
        let further = 2 * STEP + GROUP * longest.min(STEP);
        let rows = most.saturating_sub(further);
        if rows < STEP {
            return Err(Refusal::new(format!(
                "shared memory has room for {most} sums; {} are needed",
                further + STEP
            )));
        }
        let idle = nnz.div_ceil(LEAST).clamp(1, target.device.processors as usize);
        let waves = nrows.next_multiple_of(GROUP).div_ceil(idle * rows).max(1);
        let (blocks, pieces) = (waves * idle, ncols.div_ceil(REACH as usize).max(1));
        // Each piece of the columns of a block begins with a warp.
        let steps = (nnz + blocks * (pieces - 1) * (LANES - 1)) / STEP + blocks;
        Ok(ColumnSweepShape { nrows, nnz, pieces, blocks, waves, most, steps })
    }

    /// Number of rows with several sums.
    pub fn long_rows(&self, analysis: &Analysis<'_>) -> usize {
        let lengths = analysis.row_lengths().iter();
        let long = lengths.filter(|&(length, _)| self.sums_of(length as usize) > 1);
        long.map(|(_, times)| times as usize).sum()
    }

    /// Bytes of the layout with `long_rows` rows with several sums and values of `w` bytes.
    pub fn bytes(&self, long_rows: usize, w: u64) -> u64 {
        let lists = self.blocks * 4 * WORDS
            + 4 * self.nrows.div_ceil(GROUP)
            + long_rows * size_of::<LongRow>();
        lists as u64 + self.steps as u64 * (STEP as u64 * (4 + w) + 4 * (STEP / LANES) as u64)
    }

    /// Number of sums of a row of `length` entries: enough that entries of one step seldom share a
    /// sum.
    pub fn sums_of(&self, length: usize) -> usize {
        let a_step = (length * STEP) as u128 * self.blocks as u128;
        let sums = (2 * a_step).div_ceil(self.nnz.max(1) as u128);
        (sums.max(1) as usize).min(STEP).min(length.max(1))
    }

    /// The groups of each block, in ascending order. Assigns the heaviest groups first, each to the
    /// block with the least work so far that still has room for its sums.
    ///
    /// # Errors
    /// [`Refusal`] where no block has room.
    pub fn deal(&self, lengths: &[u32]) -> Result<Vec<Vec<u32>>, Refusal> {
        // A row takes about as much time as an entry.
        let weigh = |group: usize| {
            let rows = &lengths[group * GROUP..lengths.len().min((group + 1) * GROUP)];
            let entries: u64 = rows.iter().map(|&length| u64::from(length)).sum();
            (entries + GROUP as u64, group as u32)
        };
        let mut groups = par::map(lengths.len().div_ceil(GROUP), par::GRAIN / GROUP, weigh);
        groups.par_sort_unstable_by_key(|&(weight, group)| (Reverse(weight), group));
        let mut dealt = vec![Vec::new(); self.blocks];
        let mut left = vec![self.most; self.blocks];
        let mut blocks: BinaryHeap<_> = (0..self.blocks).map(|block| Reverse((0, block))).collect();
        let mut full = Vec::new();
        for (weight, group) in groups {
            let rows = lengths.chunks(GROUP).nth(group as usize).unwrap_or_default();
            let further = rows.iter().map(|&length| self.sums_of(length as usize) - 1);
            let sums = GROUP + further.sum::<usize>();
            let (load, block) = loop {
                let Some(Reverse((load, block))) = blocks.pop() else {
                    return Err(Refusal::new(format!(
                        "cannot place {sums} more row sums: every block is near its limit of {}",
                        self.most
                    )));
                };
                if left[block] >= sums {
                    break (load, block);
                }
                full.push(Reverse((load, block)));
            };
            left[block] -= sums;
            dealt[block].push(group);
            blocks.push(Reverse((load + weight, block)));
            blocks.extend(full.drain(..));
        }
        par::for_each(&mut dealt, 1, |_, groups| groups.sort_unstable());
        Ok(dealt)
    }
}
