//! The slots of a block of rows: its entries sorted by column, without conflicts within a step.

use rayon::prelude::*;

use super::plan::{ColumnSweepShape, GROUP};
use super::{LANES, LATE, LongRow, NO_SUM, REACH, SHIFT, STEP, TRIES};
use crate::csr::CsrRef;
use crate::scalar::Scalar;

/// The slots of one block during conversion.
pub(super) struct BlockSlots<T> {
    pub keys: Vec<u32>,
    /// Base column of each warp of slots.
    pub bases: Vec<u32>,
    pub values: Vec<T>,
    pub long_rows: Vec<LongRow>,
    /// Number of sums.
    pub sums: u32,
}

impl<T: Scalar> BlockSlots<T> {
    /// Collects the entries of these groups, sorted by column.
    pub fn new(csr: CsrRef<'_, T>, shape: &ColumnSweepShape, groups: &[u32]) -> Self {
        let mut long_rows = Vec::new();
        let mut sums = (groups.len() * GROUP) as u32;
        let mut entries = Vec::new();
        for (row, place) in rows_of(groups, csr.nrows()) {
            let (columns, values) = csr.row(row);
            let own = shape.sums_of(columns.len()) as u32;
            if own > 1 {
                long_rows.push([place, sums, own - 1]);
            }
            for (turn, (&column, &value)) in (0..own).cycle().zip(columns.iter().zip(values)) {
                entries.push((column, if turn == 0 { place } else { sums + turn - 1 }, value));
            }
            sums += own - 1;
        }
        // Rows ascend and the sort is stable, so entries of a column keep their order.
        entries.par_sort_by_key(|&(column, ..)| column);
        let (keys, bases, values) = (Vec::new(), Vec::new(), Vec::new());
        let mut slots = BlockSlots { keys, bases, values, long_rows, sums };
        slots.fill(&entries);
        slots
    }

    /// Writes columns, sums and values; each piece of the columns begins with a warp.
    fn fill(&mut self, entries: &[(u32, u32, T)]) {
        for piece in entries.chunk_by(|a, b| a.0 / REACH == b.0 / REACH) {
            self.keys.extend(piece.iter().map(|&(column, sum, _)| (sum << 16) | (column % REACH)));
            self.values.extend(piece.iter().map(|entry| entry.2));
            self.pad(LANES);
            self.bases.resize(self.keys.len() / LANES, piece[0].0 / REACH * REACH);
        }
        self.pad(STEP);
        self.bases.resize(self.keys.len() / LANES, 0);
        self.move_late();
    }

    /// Resolves conflicts within a step: an entry whose sum an earlier entry of its step also has
    /// swaps places with an entry of the next step where possible, and is marked as late otherwise.
    fn move_late(&mut self) {
        let sum = |key: u32| (key >> 16 != NO_SUM).then_some(key as usize >> 16);
        // The last step in which each sum was used.
        let mut taken = vec![usize::MAX; self.sums as usize];
        for first in (0..self.keys.len()).step_by(STEP) {
            for slot in first..first + STEP {
                let Some(own) = sum(self.keys[slot]) else { continue };
                if std::mem::replace(&mut taken[own], first) != first {
                    continue;
                }
                let others = (1..=TRIES).map(|turn| (slot + turn * SHIFT) % STEP + first + STEP);
                let can_swap = |&other: &usize| {
                    let free = |&key: &u32| sum(key).is_some_and(|sum| taken[sum] != first);
                    self.keys.get(other).is_some_and(free)
                        && self.bases[other / LANES] == self.bases[slot / LANES]
                };
                match others.into_iter().find(can_swap) {
                    Some(other) => {
                        self.keys.swap(slot, other);
                        self.values.swap(slot, other);
                        taken[self.keys[slot] as usize >> 16] = first;
                    }
                    None => self.keys[slot] |= LATE,
                }
            }
        }
    }

    fn pad(&mut self, multiple: usize) {
        let slots = self.keys.len().next_multiple_of(multiple);
        self.keys.resize(slots, NO_SUM << 16);
        self.values.resize(slots, T::ZERO);
    }
}

/// The rows of these groups, each with its place in the block.
pub(super) fn rows_of(groups: &[u32], nrows: usize) -> impl Iterator<Item = (usize, u32)> + '_ {
    groups.iter().zip(0..).flat_map(move |(&group, k)| {
        let first = group as usize * GROUP;
        (first..nrows.min(first + GROUP)).zip(k * GROUP as u32..)
    })
}
