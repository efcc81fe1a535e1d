//! Hacks of small matrices on a GPU (kernels/conversions/convert_small.cu).
//!
//! The conversion of a small matrix takes as long as its launches and waits. Therefore one kernel
//! finds the starts of all hacks and writes the numbers that the host needs to memory of the host.

use super::super::{Arg, Basis, Launch, Matrix, Target};
use super::convert::{GpuConverter, StepResult};
use super::launch::NULL;
use crate::analysis::Sort;

/// Maximum number of entries, and of rows, of a small matrix. Offsets of its slots fit in 32 bits.
const SMALL: usize = 1 << 20;

/// Tells whether a matrix is small. Its row pointers have 32 bits.
pub(in crate::format) fn is_small(matrix: &Matrix) -> bool {
    !matrix.wide && (1..=SMALL).contains(&matrix.nrows) && matrix.nnz <= SMALL
}

/// Shape of hacks.
pub(in crate::format) struct HackShape {
    /// Number of rows of the matrix, or of its block rows.
    pub rows: usize,
    /// Number of rows of a hack.
    pub hack: usize,
    /// Number that divides the width of each hack.
    pub run: usize,
    /// Units of starts per column of a hack.
    pub each: usize,
    pub sort: Sort,
    /// True if the first column of each hack is requested.
    pub narrow: bool,
}

impl HackShape {
    /// Hacks of the converter's matrix, whose starts count slots.
    pub fn of(
        converter: &dyn GpuConverter,
        [hack, run]: [usize; 2],
        sort: Sort,
        narrow: bool,
    ) -> Self {
        HackShape { rows: converter.matrix().nrows, hack, run, each: hack, sort, narrow }
    }

    /// Number of hacks.
    pub fn hacks(&self) -> usize {
        self.rows.div_ceil(self.hack)
    }

    /// Rows of a window that is sorted, or 0 where rows keep their order; `None` if no kernel sorts
    /// such windows and finds hacks.
    fn window(&self) -> Option<usize> {
        let Sort::Window(rows) = self.sort else { return (self.sort == Sort::None).then_some(0) };
        let window = rows.min(self.rows);
        let whole_hacks = window == self.rows || window.is_multiple_of(self.hack);
        (self.hack == 32 && whole_hacks && window <= MOST_SORTED).then_some(window)
    }
}

/// The largest windows of rows that the two kernels sort, and the threads of their blocks.
const SORTED: [(usize, u32); 2] = [(512, 128), (MOST_SORTED, 512)];
const MOST_SORTED: usize = 4096;

/// Maximum number of blocks that find hacks without sorting, and hacks that each finds at a time.
const MOST_BLOCKS: usize = 1024;
const HACKS_A_BLOCK: usize = 8;

/// Arguments of [`SmallHacks::find`]: the rows of the CSR matrix. The last three are null, or list
/// lengths, first columns and last columns of rows, in place of the first two.
pub(in crate::format) const CSR: [Arg; 5] = [Arg::RowPtr, Arg::ColIdx, NULL, NULL, NULL];

/// Arrays of the layout that describe the hacks of a small matrix.
pub(in crate::format) struct SmallHacks {
    sizes: [usize; 6],
    /// Row of the matrix for each stored row; null where rows keep their order.
    pub order: Arg,
    /// First column of each hack; null where it is not requested.
    pub base: Arg,
    /// Starts of hacks, 32-bit.
    pub starts: Arg,
}

impl SmallHacks {
    /// Allocates the arrays; `None` if no kernel finds such hacks.
    pub fn new(converter: &mut dyn GpuConverter, shape: &HackShape) -> StepResult<Option<Self>> {
        let Some(window) = shape.window() else { return Ok(None) };
        let hacks = shape.hacks();
        let mut bytes = vec![4 * (hacks as u64 + 1)];
        bytes.extend(shape.narrow.then_some(4 * hacks as u64));
        bytes.extend((window > 0).then_some(4 * shape.rows as u64));
        let mut arrays = converter.arrays(&bytes)?.into_iter();
        let mut next = |wanted: bool| if wanted { arrays.next() } else { None }.unwrap_or(NULL);
        let (starts, base, order) = (next(true), next(shape.narrow), next(window > 0));
        let sizes = [shape.rows, shape.hack, window, hacks, shape.run, shape.each];
        Ok(Some(SmallHacks { sizes, order, base, starts }))
    }

    /// As [`SmallHacks::new`], for the converter's own rows; also `None` if the matrix is not small
    /// or its basis is permuted.
    pub fn of_matrix(
        converter: &mut dyn GpuConverter,
        shape: &HackShape,
        target: &Target<'_>,
    ) -> StepResult<Option<Self>> {
        let matrix = converter.matrix();
        let square = matrix.nrows == matrix.ncols;
        let permuted = shape.sort != Sort::None && square && target.basis == Basis::Permuted;
        if !is_small(&matrix) || permuted {
            return Ok(None);
        }
        SmallHacks::new(converter, shape)
    }

    /// Finds the starts of hacks, in units; waits for the numbers. `from` describes the rows: see
    /// [`CSR`].
    pub fn find(&self, converter: &mut dyn GpuConverter, from: [Arg; 5]) -> StepResult<FoundHacks> {
        let [rows, hack, window, hacks, run, each] = self.sizes;
        let turns = hacks.div_ceil(MOST_BLOCKS * HACKS_A_BLOCK);
        let sorted = SORTED.into_iter().find(|&(most, _)| window > 0 && window <= most);
        let (kernel, blocks, block) = match sorted {
            Some((most, block)) => (format!("sort_hacks_{most}"), rows.div_ceil(window), block),
            None => ("hack_starts".to_string(), hacks.div_ceil(turns * HACKS_A_BLOCK), 256),
        };
        let found = converter.temporary_zeros(4 * blocks as u64)?;
        let numbers = [converter.number()?, converter.number()?];
        let host = converter.host()?;
        let sizes = if window > 0 { vec![rows, window] } else { vec![rows, hack, turns] };
        let sizes = sizes.into_iter().chain([hacks, run, each]);
        let mut args: Vec<Arg> = sizes.map(|size| Arg::U32(size as u32)).collect();
        args.extend(from);
        args.extend([self.base, self.starts]);
        args.extend((window > 0).then_some(self.order));
        args.extend([found].into_iter().chain(numbers).chain(host));
        let threads = blocks as u64 * u64::from(block);
        converter.launch(&Launch::over("convert_small", kernel, threads, block, args))?;
        let [units, longest, widest, ..] = converter.told()?;
        let (longest, widest) = (longest as usize, widest as usize);
        Ok(FoundHacks { units: u64::from(units), longest, widest })
    }
}

/// Numbers that the host is told about hacks.
pub(in crate::format) struct FoundHacks {
    /// Units of all hacks.
    pub units: u64,
    /// Entries of the longest row.
    pub longest: usize,
    /// Columns that the widest hack spans; 0 where first columns are not requested.
    pub widest: usize,
}
