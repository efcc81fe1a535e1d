//! Long rows of a CSR matrix on a GPU: each is cut into pieces, and a warp sums each piece.
//!
//! Few lanes share a row, as many as suit its mean length, so a row that is many times longer would
//! take most of the time of a product. Whether a matrix has such a row is known from its row
//! pointers.

use super::row_order::WARP;
use super::staged;
use super::{Arg, GpuConverter, Launch, Matrix, Stop, WIDTHS};
use crate::analysis::Histogram;
use crate::scalar::Precision;

/// Decides which rows of a matrix are long and how they are cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// Entries of the longest row up to which no row of the matrix is cut.
    whole: u32,
    /// Entries of the longest row that is not cut, if any row is.
    pub longest: u32,
    /// log2 of the entries of a piece.
    pub log: u32,
}

/// Long rows of a matrix on a GPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct LongRows {
    /// Length of the longest row.
    pub longest: usize,
    /// Number of pieces; `None` if no row is to be cut.
    pub pieces: Option<u64>,
}

/// Pieces of a matrix on a GPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pieces {
    /// The list of [`Cut::list`].
    pub list: Arg,
    pub count: u64,
}

impl Pieces {
    /// Bytes of the sums of pieces, for products with up to this number of vectors.
    pub fn sums(&self, vectors: u32, precision: Precision) -> u64 {
        u64::from(vectors) * precision.bytes() as u64 * self.count
    }

    /// Bytes of the counters of rows with several pieces, one for each piece.
    pub fn counters(&self) -> u64 {
        4 * self.count
    }
}

/// Entries per lane of the longest row up to which no row is cut, found by measurement: such rows
/// cost less than the kernel that looks for pieces.
const WHOLE_A_LANE: usize = 32;

/// Entries per lane of the longest row that is not cut. From 8 to 32, measured times hardly differ.
const LONGEST_A_LANE: usize = 8;

/// Lower limit of both bounds, in entries.
const LEAST_BOUND: usize = 64;

/// Entries of the smallest and of the largest piece. Small pieces of few rows end soonest; in large
/// matrices, large pieces have fewer sums to add up.
const PIECE: [usize; 2] = [512, 16_384];

/// Number of pieces in which the smallest size cuts a matrix, at most, before pieces are larger.
const MANY_PIECES: usize = 16_384;

/// Rows whose lengths a thread reads on average, and the largest number of threads that read.
const ROWS_A_THREAD: usize = 8;
const MOST_THREADS: usize = 1 << 18;

impl Cut {
    /// Decides for a matrix of this size with `lanes` lanes per row.
    pub fn of(nnz: usize, lanes: usize) -> Self {
        let bound = |a_lane: usize| (a_lane * lanes).max(LEAST_BOUND) as u32;
        let [least, most] = PIECE;
        let piece = nnz.div_ceil(MANY_PIECES).clamp(least, most).next_power_of_two();
        let (whole, longest) = (bound(WHOLE_A_LANE), bound(LONGEST_A_LANE));
        Cut { whole, longest, log: piece.ilog2() }
    }

    /// Tells whether a matrix has rows to cut if its longest row has this many entries.
    pub fn applies(&self, longest: usize) -> bool {
        longest > self.whole as usize
    }

    /// Returns the number of pieces of a row.
    fn pieces_of(&self, length: usize) -> usize {
        if length > self.longest as usize { length.div_ceil(1 << self.log) } else { 0 }
    }

    /// Returns the list of pieces: the row of each, and the position in the list of the row's first
    /// piece.
    pub fn list(&self, row_ptr: &[usize]) -> Vec<[u32; 2]> {
        let mut list = Vec::new();
        for (row, ends) in row_ptr.windows(2).enumerate() {
            let first = list.len();
            list.resize(first + self.pieces_of(ends[1] - ends[0]), [row as u32, first as u32]);
        }
        list
    }

    /// Finds the length of the longest row of a matrix on a GPU, and the number of pieces, or none if no
    /// row is to be cut. Waits once, unless the longest row is known and short. If the size of the matrix
    /// tells that no row is cut and none is staged, the length may be too large.
    pub fn find(&self, converter: &mut dyn GpuConverter) -> Result<LongRows, Stop> {
        let Matrix { nrows, ncols, nnz, .. } = converter.matrix();
        let known = converter.longest_row();
        let most = known.unwrap_or(ncols.min(nnz));
        if !self.applies(most) && (known.is_some() || nnz < staged::LEAST) {
            return Ok(LongRows { longest: most, pieces: None });
        }
        let numbers = [converter.number()?, converter.number()?, converter.number()?];
        let out = numbers.into_iter().chain(converter.host()?).collect();
        let threads = nrows.div_ceil(ROWS_A_THREAD).min(MOST_THREADS);
        let step = self.step(converter, "long_rows", threads, out);
        converter.launch(&step)?;
        let [longest, count, ..] = converter.told()?;
        let pieces = self.applies(longest as usize).then_some(u64::from(count));
        Ok(LongRows { longest: longest as usize, pieces })
    }

    /// Lists `count` pieces of a matrix on a GPU. Allocates the memory for their sums, too; waits until
    /// the list is written.
    pub fn cut(
        &self,
        converter: &mut dyn GpuConverter,
        count: u64,
        precision: Precision,
    ) -> Result<Pieces, Stop> {
        let numbers = [converter.number()?, converter.number()?];
        let pieces = Pieces { list: Arg::U64(0), count };
        let bytes = size_of::<[u32; 2]>() as u64 * count;
        let sums = pieces.sums(WIDTHS[0], precision);
        let [list, counters] = converter.array_and_shared(bytes, &[sums], pieces.counters())?;
        let cleared = [counters, Arg::U32(count as u32)];
        let out = numbers.into_iter().chain([list]).chain(cleared).chain(converter.host()?);
        let step = self.step(converter, "cut_rows", converter.matrix().nrows, out.collect());
        converter.launch(&step)?;
        converter.told()?;
        converter.note_written();
        Ok(Pieces { list, ..pieces })
    }

    /// Describes a kernel that reads all row pointers, with these last arguments.
    fn step(
        &self,
        converter: &dyn GpuConverter,
        kernel: &str,
        threads: usize,
        out: Vec<Arg>,
    ) -> Launch {
        let matrix = converter.matrix();
        let sizes = [matrix.nrows as u32, self.longest, self.log].map(Arg::U32);
        let args = sizes.into_iter().chain([Arg::RowPtr]).chain(out).collect();
        let kernel = format!("{kernel}_{}", matrix.offset_name());
        Launch::over("convert_csr", kernel, threads as u64, 256, args)
    }

    /// Counts the pieces of rows of these lengths.
    pub fn counts(&self, lengths: &Histogram, batch: usize) -> PieceCounts {
        let mut counts = PieceCounts::default();
        let (size, at_a_time) = (1u64 << self.log, (WARP * batch) as u64);
        for (length, times) in lengths.iter().filter(|&(length, _)| length > self.longest) {
            let (full, rest) = (u64::from(length) / size, u64::from(length) % size);
            let last = u64::from(rest > 0);
            counts.pieces += times * (full + last);
            counts.steps += times * u64::from(length).div_ceil(WARP as u64);
            counts.waits += times * (full * (size / at_a_time + 1) + last * (rest / at_a_time + 1));
        }
        let longest = lengths.max() as usize;
        let sums = self.pieces_of(longest).div_ceil(WARP);
        counts.steps_most = (longest.min(1 << self.log).div_ceil(WARP) + sums) as u64;
        counts
    }
}

/// Counts of the pieces of a matrix.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct PieceCounts {
    pub pieces: u64,
    /// Steps of all warps: in each, every lane processes an entry.
    pub steps: u64,
    /// Times that warps wait for entries.
    pub waits: u64,
    /// Consecutive steps for a piece of the longest row and the sum of the row's pieces.
    pub steps_most: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_past_the_bound_are_cut() {
        let cut = Cut::of(5000, 2);
        assert_eq!((cut.whole, cut.longest, cut.log), (64, 64, 9));
        assert!(!cut.applies(64) && cut.applies(65));
        // Rows of 64, 65, 0, 1024 and 1025 entries.
        let row_ptr = [0, 64, 129, 129, 1153, 2178];
        assert_eq!(cut.list(&row_ptr), [[1, 0], [3, 1], [3, 1], [4, 3], [4, 3], [4, 3]]);
        let counts = cut.counts(&Histogram::of_rows(&row_ptr), 6);
        assert_eq!((counts.pieces, counts.steps), (6, 3 + 32 + 33));
        // 192 entries at a time: 65 entries, twice two pieces of 512, and one entry.
        assert_eq!(counts.waits, 1 + 4 * 3 + 1);
        assert_eq!(counts.steps_most, 16 + 1);
        let wide = Cut::of(5000, 16);
        assert_eq!((wide.whole, wide.longest), (512, 128));
    }

    #[test]
    fn pieces_grow_with_the_matrix() {
        let log = |nnz: usize| Cut::of(nnz, 8).log;
        assert_eq!([0, 8 << 20, (8 << 20) + 1, 22 << 20, 1 << 40].map(log), [9, 9, 10, 11, 14]);
    }
}
