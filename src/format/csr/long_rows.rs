//! Long rows of a CSR matrix on a GPU: each is cut into pieces, and a warp sums each piece.
//!
//! In products with several vectors, few lanes share a row, as many as suit its mean length, so a row
//! that is many times longer would take most of the time. A product with one vector cuts fewer rows
//! ([`Cut::is_cut`]). Whether a matrix has such rows is known from its row pointers.

use ellect_kernels::shared;

use super::csr::{BATCH, lanes_a_row};
use super::row_order::WARP;
use super::{Arg, GpuConverter, Launch, Matrix, Stop, Target, Work};
use crate::analysis::{Analysis, Histogram, Walk};

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

/// Pieces of a matrix on a GPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pieces {
    /// The list of [`Cut::list`].
    pub list: Arg,
    pub count: u64,
    /// Pieces of rows that a product with one vector cuts; they come first.
    pub cut: u64,
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
    /// Entries of the longest row up to which a product with one vector cuts no row, and of the longest
    /// row that it does not cut otherwise, found by measurement: all rows of a block share its threads.
    pub const NONE_CUT: usize = shared("CSR_NONE_CUT") as usize;
    const UNCUT: usize = shared("CSR_UNCUT") as usize;

    /// Tells whether a product with one vector cuts a row of `length` entries if the longest row of the
    /// matrix has `longest`.
    pub fn is_cut(length: usize, longest: usize) -> bool {
        longest > Self::NONE_CUT && length > Self::UNCUT
    }

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
    /// piece. Long rows come first, so that those that a product with one vector cuts do.
    pub fn list(&self, row_ptr: &[usize]) -> Vec<[u32; 2]> {
        let mut list = Vec::new();
        for is_cut in [true, false] {
            for (row, ends) in row_ptr.windows(2).enumerate() {
                let (first, length) = (list.len(), ends[1] - ends[0]);
                if (length > Self::UNCUT) == is_cut {
                    list.resize(first + self.pieces_of(length), [row as u32, first as u32]);
                }
            }
        }
        list
    }

    /// Finds the length of the longest row of a matrix on a GPU, and lists its pieces, or none if no
    /// row is to be cut. Waits once, for both numbers, unless the longest row is known and short.
    pub fn find(&self, converter: &mut dyn GpuConverter) -> Result<(usize, Option<Pieces>), Stop> {
        let matrix = converter.matrix();
        if let Some(known) = converter.longest_row().filter(|&known| !self.applies(known)) {
            return Ok((known, None));
        }
        let [longest, count, cut] = self.lengths(converter)?;
        if !self.applies(longest as usize) {
            return Ok((longest as usize, None));
        }
        let list = converter.array(size_of::<[u32; 2]>() as u64 * u64::from(count))?;
        let taken = [converter.number()?, converter.number()?];
        let args = [Arg::U32(cut), Arg::RowPtr].into_iter().chain(taken).chain([list]);
        converter.launch(&self.step("cut_rows", &matrix, matrix.nrows, args))?;
        let cut = if longest as usize > Self::NONE_CUT { cut } else { 0 };
        let pieces = Pieces { list, count: u64::from(count), cut: u64::from(cut) };
        Ok((longest as usize, Some(pieces)))
    }

    /// Finds the length of the longest row of a matrix on a GPU. Waits once, unless it is known.
    pub fn longest(&self, converter: &mut dyn GpuConverter) -> Result<usize, Stop> {
        match converter.longest_row() {
            Some(known) => Ok(known),
            None => Ok(self.lengths(converter)?[0] as usize),
        }
    }

    /// Finds the length of the longest row of a matrix on a GPU, the number of pieces, and that of
    /// pieces that come first. Waits once.
    fn lengths(&self, converter: &mut dyn GpuConverter) -> Result<[u32; 3], Stop> {
        let matrix = converter.matrix();
        let numbers = [converter.number()?, converter.number()?, converter.number()?];
        let threads = matrix.nrows.div_ceil(ROWS_A_THREAD).min(MOST_THREADS);
        let args = [Arg::RowPtr].into_iter().chain(numbers);
        converter.launch(&self.step("long_rows", &matrix, threads, args))?;
        let [longest, count, cut] = numbers;
        Ok([converter.read(longest)?, converter.read(count)?, converter.read(cut)?])
    }

    /// A launch of a kernel that looks at the rows' lengths.
    fn step(
        &self,
        kernel: &str,
        matrix: &Matrix,
        threads: usize,
        more: impl Iterator<Item = Arg>,
    ) -> Launch {
        let sizes = [Arg::U32(matrix.nrows as u32), Arg::U32(self.longest), Arg::U32(self.log)];
        let kernel = format!("{kernel}_{}", matrix.offset_name());
        Launch::over(
            "convert_csr",
            kernel,
            threads as u64,
            256,
            sizes.into_iter().chain(more).collect(),
        )
    }

    /// The work of a product in which lanes read whole rows or their pieces; `whole` is that of a product
    /// which cuts no row.
    pub fn work(&self, analysis: &Analysis<'_>, target: &Target<'_>, whole: Work) -> Work {
        let pattern = analysis.pattern();
        let threads = lanes_a_row(pattern.nrows(), pattern.nnz());
        let pieces = self.counts(analysis.row_lengths(), BATCH);
        let list = pieces.pieces * size_of::<[u32; 2]>() as u64;
        let longest_steps = (self.longest as usize).div_ceil(threads) as u64;
        // A long row counts as one of the longest that are not cut: there is such a row nearby, or its
        // lanes only find that it is long.
        let short = |length: u32| length.min(self.longest);
        let lanes = threads as u64;
        let steps = |length| u64::from(short(length)).div_ceil(lanes);
        let waits = |length| u64::from(short(length)) / (lanes * BATCH as u64) + 1;
        Work {
            layout_bytes: whole.layout_bytes + list,
            stream_bytes: whole.stream_bytes + list,
            x_loaded: analysis.x_loaded(Walk::Entries, target),
            // The sums of pieces are written and read.
            extra_bytes: 2 * pieces.pieces * target.precision.bytes() as u64,
            steps: analysis.sum_over_warps(WARP, threads, steps) + pieces.steps,
            waits: analysis.sum_over_warps(WARP, threads, waits) + pieces.waits,
            tile_steps: pieces.steps as f64 / pieces.pieces.max(1) as f64,
            tile_steps_most: pieces.steps_most.max(longest_steps) as f64,
            lanes: 0,
            ..whole
        }
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
        assert_eq!(cut.list(&row_ptr), [[3, 0], [3, 0], [4, 2], [4, 2], [4, 2], [1, 5]]);
        let counts = cut.counts(&Histogram::of_rows(&row_ptr), 6);
        assert_eq!((counts.pieces, counts.steps), (6, 3 + 32 + 33));
        // 192 entries at a time: 65 entries, twice two pieces of 512, and one entry.
        assert_eq!(counts.waits, 1 + 4 * 3 + 1);
        assert_eq!(counts.steps_most, 16 + 1);
        // Rows of 100, 1024 and 256 entries: the pieces of the second one come first.
        assert_eq!(cut.list(&[0, 100, 1124, 1380]), [[1, 0], [1, 0], [0, 2], [2, 3]]);
        assert!(!Cut::is_cut(1024, 1024) && Cut::is_cut(257, 1025) && !Cut::is_cut(256, 1025));
        let wide = Cut::of(5000, 16);
        assert_eq!((wide.whole, wide.longest), (512, 128));
    }

    #[test]
    fn pieces_grow_with_the_matrix() {
        let log = |nnz: usize| Cut::of(nnz, 8).log;
        assert_eq!([0, 8 << 20, (8 << 20) + 1, 22 << 20, 1 << 40].map(log), [9, 9, 10, 11, 14]);
    }
}
