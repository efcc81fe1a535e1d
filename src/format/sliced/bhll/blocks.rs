//! The dense blocks of a pattern: found in all rows or in a sample of them, and how full they are.

use std::ops::Range;
use std::sync::Arc;

use crate::analysis::sampling::{SAMPLED_ENTRIES, sums};
use crate::analysis::{Analysis, Detail, Sample, probes};
use crate::csr::{Pattern, offsets};
use crate::par;

/// The pattern of block rows and block columns: an entry for each dense block that holds an entry
/// of the matrix.
#[derive(Debug)]
pub struct Blocks {
    ncols: usize,
    row_ptr: Vec<usize>,
    col_idx: Vec<u32>,
}

impl Blocks {
    /// Returns the pattern, with one row per block row and one column per block column.
    pub fn pattern(&self) -> Pattern<'_> {
        Pattern::of(self.row_ptr.len() - 1, self.ncols, &self.row_ptr, &self.col_idx)
    }
}

/// Block rows per sampled window: as many as formats sort together.
const WINDOW: usize = 512;

/// Minimum number of block rows whose blocks a thread counts.
const FEWEST_BLOCK_ROWS: usize = 32;

/// Number of neighbouring blocks that are found at a time.
const AT_ONCE: u32 = u64::BITS;

/// Minimum number of sampled windows, however many entries they have.
const FEWEST_WINDOWS: usize = 8;

/// Blocks of all rows, or of a sample of the rows.
#[derive(Debug)]
pub(crate) struct SomeBlocks {
    /// The block rows of all sampled windows, one after another.
    pub blocks: Arc<Blocks>,
    /// Entries of the matrix divided by entries of the sample.
    pub scale: f64,
}

probes! {
    /// The `b` x `b` blocks of the whole pattern.
    AllBlocks(usize) -> Arc<Blocks>;
    /// The `b` x `b` blocks of a sample of the rows.
    SampledBlocks(usize) -> Arc<Blocks>;
    /// Share of the slots of nonempty `b` x `b` blocks that hold an entry.
    BlockFill(usize) -> f64;
}

impl Analysis<'_> {
    /// Returns the pattern of the `b` x `b` blocks that hold an entry.
    ///
    /// One pass over the pattern; kept.
    pub fn blocks(&self, b: usize) -> Arc<Blocks> {
        self.memo().get(AllBlocks(b), || Arc::new(self.find_blocks(b)))
    }

    /// Returns the `b` x `b` blocks of all rows, or of a sample of windows of 512 block rows if
    /// this analysis is for estimates; kept.
    pub(crate) fn some_blocks(&self, b: usize) -> SomeBlocks {
        let rows = WINDOW * b;
        let groups = self.pattern().nrows().div_ceil(rows);
        let sample = match self.detail() {
            Detail::Whole => return SomeBlocks { blocks: self.blocks(b), scale: 1.0 },
            Detail::Sampled => {
                let entries = self.pattern().nnz() / groups.max(1);
                let sampled = (SAMPLED_ENTRIES / 8 / entries.max(1)).max(FEWEST_WINDOWS);
                Sample { groups, sampled: groups.min(sampled) }
            }
        };
        let window = |w: usize| w * rows..self.pattern().nrows().min((w + 1) * rows);
        let find = || Arc::new(self.blocks_of(b, sample.sampled, |at| window(sample.pick(at))));
        let row_ptr = self.pattern().row_ptr();
        let entries = sample.picks().map(window).map(|w| row_ptr[w.end] - row_ptr[w.start]);
        let entries = entries.sum::<usize>().max(1);
        SomeBlocks {
            blocks: self.memo().get(SampledBlocks(b), find),
            scale: self.pattern().nnz() as f64 / entries as f64,
        }
    }

    fn find_blocks(&self, b: usize) -> Blocks {
        let bounds = par::split(self.pattern().row_ptr(), b, par::GRAIN);
        self.blocks_of(b, bounds.len() - 1, |part| bounds[part]..bounds[part + 1])
    }

    /// Finds the blocks in the ranges of rows that `rows` gives for `0..parts`, each of which must
    /// start at a block row.
    fn blocks_of(
        &self,
        b: usize,
        parts: usize,
        rows: impl Fn(usize) -> Range<usize> + Sync,
    ) -> Blocks {
        let found = par::map(parts, 1, |part| {
            let (mut counts, mut columns) = (Vec::new(), Vec::new());
            let mut block_row = Vec::new();
            for first in rows(part).step_by(b) {
                let before = columns.len();
                self.block_row(first, b, &mut block_row);
                merge(&mut block_row, b, |column| columns.push(column));
                counts.push(columns.len() - before);
            }
            (counts, columns)
        });
        let (counts, columns): (Vec<Vec<usize>>, Vec<Vec<u32>>) = found.into_iter().unzip();
        let row_ptr = offsets(counts.into_iter().flatten());
        Blocks { ncols: self.pattern().ncols().div_ceil(b), row_ptr, col_idx: columns.concat() }
    }

    /// Returns entries divided by slots of the nonempty `b` x `b` blocks; 1 if there are no
    /// entries. Samples block rows as [`Analysis::x_sectors`] samples warps; kept.
    pub fn block_fill(&self, b: usize) -> f64 {
        self.memo().get(BlockFill(b), || self.find_fill(b))
    }

    fn find_fill(&self, b: usize) -> f64 {
        let sample = self.sample(self.pattern().nrows().div_ceil(b));
        if sample.sampled == sample.groups {
            // Formats need the blocks, too.
            let blocks = self.blocks(b).pattern().nnz();
            return fill(b, [self.pattern().nnz() as u64, blocks as u64]);
        }
        let count = |rows: &mut Vec<_>, at: usize| {
            self.block_row(sample.pick(at) * b, b, rows);
            let entries = rows.iter().map(|row| row.len() as u64).sum();
            let mut blocks = 0;
            merge(rows, b, |_| blocks += 1);
            [entries, blocks]
        };
        fill(b, sums(sample.sampled, FEWEST_BLOCK_ROWS, Vec::new, count))
    }
}

/// Returns entries divided by the slots of `blocks` dense `b` x `b` blocks.
pub(crate) fn fill(b: usize, [entries, blocks]: [u64; 2]) -> f64 {
    if blocks == 0 { 1.0 } else { entries as f64 / (blocks * (b * b) as u64) as f64 }
}

impl<'a> Analysis<'a> {
    /// Writes the columns of the `b` rows from `first` on to `rows`.
    fn block_row(&self, first: usize, b: usize, rows: &mut Vec<&'a [u32]>) {
        let end = (first + b).min(self.pattern().nrows());
        rows.clear();
        rows.extend((first..end).map(|row| self.pattern().row(row)));
    }
}

/// Calls `found` with the number of each block of `b` columns in which one of the rows has an
/// entry, in rising order. Columns must rise within each row. Consumes the rows.
fn merge(rows: &mut Vec<&[u32]>, b: usize, mut found: impl FnMut(u32)) {
    // `(x * inverse) >> 16` is `x / b` for all places among so many blocks.
    let (b, inverse) = (b as u32, (1 << 16) / b as u32 + 1);
    rows.retain(|row| !row.is_empty());
    while let Some(first) = rows.iter().map(|row| row[0]).min() {
        let block = first / b;
        let (start, width) = (block * b, AT_ONCE * b);
        // One bit for each block from this one on.
        let mut met = 0u64;
        let mut ended = false;
        for row in rows.iter_mut() {
            let mut passed = 0;
            for &column in row.iter() {
                let place = column - start;
                if place >= width {
                    break;
                }
                met |= 1 << ((place * inverse) >> 16);
                passed += 1;
            }
            *row = &row[passed..];
            ended |= row.is_empty();
        }
        if ended {
            rows.retain(|row| !row.is_empty());
        }
        while met != 0 {
            found(block + met.trailing_zeros());
            met &= met - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csr::Csr;

    #[track_caller]
    fn check(rows: &[&[u32]], b: usize, expected: &[u32]) {
        let mut found = Vec::new();
        merge(&mut rows.to_vec(), b, |block| found.push(block));
        assert_eq!(found, expected);
    }

    #[test]
    fn blocks_of_merged_rows_are_found_once() {
        let rows: [&[u32]; 3] = [&[0, 1, 2, 9], &[], &[1, 3, 4, 8]];
        check(&rows, 3, &[0, 1, 2, 3]);
        check(&rows, 2, &[0, 1, 2, 4]);
        check(&rows, 1, &[0, 1, 2, 3, 4, 8, 9]);
        check(&[&[u32::MAX - 1]], 6, &[(u32::MAX - 1) / 6]);
        check(&[&[], &[]], 2, &[]);
    }

    #[test]
    fn all_blocks_make_a_pattern() {
        let entries = [(0, 0, 1.0), (1, 1, 1.0), (1, 4, 1.0), (4, 2, 1.0), (4, 3, 1.0)];
        let csr = Csr::from_triplets(5, 5, entries).expect("indices are in range");
        let analysis = Analysis::new(csr.pattern());
        let blocks = analysis.blocks(2);
        let pattern = blocks.pattern();
        assert_eq!((pattern.nrows(), pattern.ncols()), (3, 3));
        assert_eq!((pattern.row_ptr(), pattern.col_idx()), (&[0, 2, 2, 3][..], &[0, 2, 1][..]));
        assert_eq!(analysis.block_fill(2), 5.0 / 12.0);
    }
}
