//! Columns and values of blocks in the order in which they are stored.

use super::{BlockPlan, HACK};
use crate::analysis::{Analysis, inverse};
use crate::csr::CsrRef;
use crate::format::narrow::{Keep, StoredValue};
use crate::format::row_order::Column;
use crate::format::sliced::check_spans;
use crate::format::{Basis, Refusal, fill_marker};
use crate::par;
use crate::scalar::Scalar;

/// Block columns of all slots.
#[derive(Debug)]
pub(super) enum BlockColumns {
    Wide(Vec<u32>),
    Narrow { base: Vec<u32>, offset: Vec<u16> },
}

/// The block rows of a matrix in the order in which they are stored.
pub(super) struct StoredBlocks<'a> {
    /// The pattern of blocks.
    pub blocks: &'a Analysis<'a>,
    /// Block row of the matrix that each stored block row is; `None` in the matrix's own order.
    pub order: Option<&'a [u32]>,
    /// First slot of each hack, and the end.
    pub hack_ptr: &'a [usize],
}

impl StoredBlocks<'_> {
    /// Block row of the matrix that is stored as block row `i`.
    fn old(&self, i: usize) -> usize {
        self.order.map_or(i, |order| order[i] as usize)
    }

    /// Stored block rows of hack `h`, by lane.
    fn lanes(&self, h: usize) -> impl Iterator<Item = (usize, usize)> {
        let lanes = 0..HACK.min(self.blocks.pattern().nrows() - h * HACK);
        lanes.map(move |l| (l, self.old(h * HACK + l)))
    }

    /// Block columns of all slots.
    pub fn columns(&self, plan: &BlockPlan) -> Result<BlockColumns, Refusal> {
        let n_slots = self.hack_ptr[self.hack_ptr.len() - 1];
        let new = match (plan.basis, self.order) {
            (Basis::Permuted, Some(order)) => Some(inverse(order)),
            _ => None,
        };
        let relabel = |old: u32| new.as_ref().map_or(old, |new| new[old as usize]);
        let mut columns = match plan.narrow {
            false => BlockColumns::Wide(vec![u32::PADDING; n_slots * HACK]),
            true => {
                let spans = plan.spans(self.blocks);
                check_spans(&spans)?;
                BlockColumns::Narrow {
                    base: spans.iter().map(|span| span.start).collect(),
                    offset: vec![u16::PADDING; n_slots * HACK],
                }
            }
        };
        for h in 0..self.hack_ptr.len() - 1 {
            for (l, row) in self.lanes(h) {
                for (slot, &column) in (self.hack_ptr[h]..).zip(self.blocks.pattern().row(row)) {
                    match &mut columns {
                        BlockColumns::Wide(list) => list[slot * HACK + l] = relabel(column),
                        BlockColumns::Narrow { base, offset } => {
                            offset[slot * HACK + l] = (relabel(column) - base[h]) as u16;
                        }
                    }
                }
            }
        }
        Ok(columns)
    }

    /// Values of all slots, those of hack `h` at `bounds[h]..bounds[h + 1]`.
    pub fn values<T: Scalar, K: Keep>(
        &self,
        csr: CsrRef<'_, T>,
        b: usize,
        bounds: &[usize],
    ) -> Vec<K::Of<T>> {
        let mut values = vec![K::Of::<T>::ZERO; bounds[bounds.len() - 1]];
        par::for_each(&mut par::slices_mut(&mut values, bounds), 1, |h, values| {
            values.fill(K::store::<T>(fill_marker::fill()));
            for (l, block_row) in self.lanes(h) {
                let block_columns = self.blocks.pattern().row(block_row);
                for p in 0..b.min(csr.nrows() - block_row * b) {
                    let (row_columns, entries) = csr.row(block_row * b + p);
                    let mut slot = 0;
                    for (&column, &entry) in row_columns.iter().zip(entries) {
                        while block_columns[slot] != column / b as u32 {
                            slot += 1;
                        }
                        let element = p * b + column as usize % b;
                        values[(slot * b * b + element) * HACK + l] =
                            K::store(fill_marker::entry(entry));
                    }
                }
            }
        });
        values
    }
}
