//! Compressed sparse rows: the input form of every matrix and the baseline for every other format.
//!
//! ```text
//!     | 4 . 1 . |      row_ptr = 0 2 3 3 5
//!     | . 5 . . |      col_idx = 0 2 | 1 | | 0 3
//!     | . . . . |      values  = 4 1 | 5 | | 2 6
//!     | 2 . . 6 |
//! ```
//!
//! No padding. Row pointers take 4 bytes where they fit, as in cuSPARSE.
//! Good for: every matrix, with no conversion but a copy. Bad for: regular matrices, where other
//! formats need not read column indices.
//!
//! On a GPU, a few lanes read and sum each row. In large matrices of short rows, a block of threads reads
//! the entries of its rows evenly and stores their products in shared memory, from where a few lanes sum
//! each row (`staged`). If some row is much too long for that, it is cut into pieces, of which a list is
//! needed (`long_rows`); large matrices are then read in tiles, as those of `pcsr` (`csr_product`). The
//! GPU looks for long rows when an operator is made: one pass over the row pointers and one wait. The
//! operator of a small matrix is ready after 14 to 21 microseconds on an H200, with a list of pieces after
//! 33 to 46. Records contain this time; choices do not count it, because the arrays of a baseline need no
//! conversion.
//!
//! A layout that the host made always cuts long rows into pieces.
//!
//! This is the automatic variant, `csr`. The other variants, `csr:kernel=scalar` for instance, are
//! kernels of the literature that it can be compared with (`csr_variants`); they exist on GPUs only.

use ellect_kernels::shared;

use super::csr_product::{Product, TILE, in_tiles};
use super::csr_tiles::{FoundTiles, TILES};
use super::csr_variants::{KERNEL, Variant};
use super::gpu::launch::Arrays;
use super::long_rows::{Cut, LongRows, Pieces};
use super::many::{BlockProduct, LARGEST_BLOCK, XBlock, YBlock, in_blocks};
use super::narrow::StoredValue;
use super::pcsr::tiles_work;
use super::row_order::WARP;
use super::staged;
use super::{
    Arg, Extent, GpuConverter, GpuLayout, Launch, Layout, Matrix, Offsets, OnDevice, Param, Params,
    Refusal, Role, Several, Stop, Storage, Target, Work, bytes_of, store,
};
use crate::analysis::{Analysis, Sort, Walk};
use crate::csr::{Csr, CsrRef, Pattern};
use crate::dense::{DenseMut, DenseRef};
use crate::device::Kind;
use crate::par::{self, Scratch};
use crate::scalar::{Precision, Scalar};

/// See the module.
#[derive(Debug)]
pub struct CsrFormat;

/// Entries that a lane loads at a time.
const BATCH: usize = shared("CSR_BATCH") as usize;

impl Storage for CsrFormat {
    const NAME: &'static str = "csr";
    const TITLE: &'static str = "compressed sparse rows";
    const SOURCE: &'static str = "Y. Saad, Iterative Methods for Sparse Linear Systems, 2nd ed. \
        (2003), section 3.4; the variants scalar and vector: N. Bell, M. Garland, Efficient Sparse \
        Matrix-Vector Multiplication on CUDA (2008), section 5.1; adaptive: J. L. Greathouse, \
        M. Daga, Efficient Sparse Matrix-Vector Multiplication on GPUs Using the CSR Storage Format \
        (2014)";
    const SUITS: &'static str = "every matrix; needs no conversion";
    const ROLE: Role = Role::Baseline;
    const VECTORS_AT_ONCE: usize = LARGEST_BLOCK;
    const VECTORS_AT_ONCE_ON_GPU: usize = LARGEST_BLOCK;
    const PARAMS: &'static [Param] = &[KERNEL];
    const KERNELS_OF: &'static [&'static str] = &["pcsr"];

    type Layout<T: Scalar> = CsrLayout<T>;

    fn work(
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<Work, Refusal> {
        if let Some(variant) = Variant::of(params) {
            return Ok(variant.work(analysis, target));
        }
        Ok(match cut_of(analysis, target) {
            Some(_) if in_tiles(analysis.pattern().nnz(), analysis.max_length()) => {
                Work { convert_bytes: 0, ..tiles_work(analysis, target, TILE) }
            }
            Some(cut) => cut_rows(analysis, target, &cut, whole_rows(analysis, target)),
            None => whole_rows(analysis, target),
        })
    }

    fn convert<T: Scalar>(
        csr: CsrRef<'_, T>,
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<CsrLayout<T>, Refusal> {
        let variant = Variant::of(params);
        let pieces = match variant {
            Some(variant) => variant.list(csr.row_ptr()),
            None => {
                let cut = cut_of(analysis, target);
                cut.map_or_else(Vec::new, |cut| cut.list(csr.row_ptr()))
            }
        };
        Ok(CsrLayout { variant, pieces, ..CsrLayout::of(csr.to_csr()) })
    }

    fn image(params: &Params, extent: Extent, precision: Precision) -> Option<&'static str> {
        let Extent { nrows, nnz, longest } = extent;
        Some(match Variant::of(params) {
            Some(variant) => variant.image(),
            None if cut_for(nrows, nnz).applies(longest) => {
                if in_tiles(nnz, longest) {
                    TILES
                } else {
                    CUT_ROWS
                }
            }
            None if staged::applies(extent, precision) => STAGED_ROWS,
            None => WHOLE_ROWS,
        })
    }

    fn with_dots(one: &Launch) -> Option<Launch> {
        // csr_tLANES_f64, with 32-bit offsets: there are kernels for short rows.
        let lanes = one.kernel.strip_prefix("csr_t").filter(|_| one.image == WHOLE_ROWS)?;
        if !["2_", "4_"].iter().any(|few| lanes.starts_with(few)) {
            return None;
        }
        Some(one.with_dots("csr_dot", format!("csr_dot_t{lanes}")))
    }

    fn several(one: &Launch, several: Several) -> Option<Launch> {
        // csr_tLANES_f64, csr_staged_tLANES_f64, csr_long_tLANES_f64, and all with 64-bit offsets:
        // csr_wide_tLANES_f64
        let (stem, precision) = one.kernel.rsplit_once('_')?;
        let (stem, lanes) = stem.rsplit_once("_t")?;
        let lanes = lanes.parse().ok()?;
        let (word, now) = if lanes > FEW_UP_TO { ("most", MOST) } else { ("few", FEW) };
        // The blocks of pieces do not become fewer with the lanes of a row.
        let (image, name, now) = match (one.image, stem) {
            (WHOLE_ROWS | STAGED_ROWS, _) => ("csr_several", WHOLE_ROWS, now),
            (CUT_ROWS, CUT_ROWS) => ("csr_long_several", CUT_ROWS, now.max(lanes)),
            _ => return None,
        };
        let stem = format!("{name}{}_{word}", stem.strip_prefix(one.image)?);
        Some(several.launch(one, (image, &stem, precision), [lanes, now, PARTS], &[]))
    }

    fn build(
        converter: &mut dyn GpuConverter,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<GpuLayout, Stop> {
        let matrix = converter.matrix();
        let variant = Variant::of(params);
        let arrays = [Arg::RowPtr, Arg::ColIdx, Arg::Values];
        let precision = target.precision;
        let product = Product { variant, matrix, arrays, pieces: None, longest: 0, precision };
        if let Some(variant) = variant {
            return Ok(Product { pieces: variant.find(converter)?, ..product }.layout());
        }
        let cut = cut_for(matrix.nrows, matrix.nnz);
        let LongRows { longest, pieces } = cut.find(converter)?;
        let Some(count) = pieces else { return Ok(Product { longest, ..product }.layout()) };
        let pieces = Some(cut.cut(converter, count, precision)?);
        let product = Product { pieces, longest, ..product };
        match in_tiles(matrix.nnz, longest) {
            true => Ok(product.in_tiles(&FoundTiles::new(converter, TILE)?)),
            false => Ok(product.layout()),
        }
    }
}

/// The bytes of the CSR arrays.
pub(super) fn whole_bytes(pattern: Pattern<'_>, precision: Precision) -> u64 {
    let (nrows, nnz) = (pattern.nrows(), pattern.nnz());
    ((nrows + 1) * Offsets::width(nnz) + nnz * (4 + precision.bytes())) as u64
}

/// The work of a product in which the lanes of a row process all of it, whatever its length.
pub(super) fn whole_rows(analysis: &Analysis<'_>, target: &Target<'_>) -> Work {
    let pattern = analysis.pattern();
    rows_by(analysis, target, lanes_a_row(pattern.nrows(), pattern.nnz()), BATCH)
}

/// As [`whole_rows`], with `threads` lanes a row, each of which loads `batch` entries at a time.
pub(super) fn rows_by(
    analysis: &Analysis<'_>,
    target: &Target<'_>,
    threads: usize,
    batch: usize,
) -> Work {
    let pattern = analysis.pattern();
    let (nrows, nnz) = (pattern.nrows(), pattern.nnz());
    let gpu = target.device.kind == Kind::Gpu;
    let bytes = whole_bytes(pattern, target.precision);
    Work {
        layout_bytes: bytes,
        stream_bytes: bytes,
        entries: nnz as u64,
        x_sectors: analysis.x_sectors(Walk::Entries, target.precision),
        x_loaded: analysis.x_loaded(Walk::Rows { threads, sort: Sort::None }, target),
        steps: analysis.n_iter(WARP, threads, Sort::None),
        // Lanes of a GPU walk whole rows; hosts split the entries evenly.
        waits: if gpu { analysis.n_waits(WARP, threads, batch) } else { 0 },
        lanes: if gpu { (threads * nrows) as u64 } else { 0 },
        launches: 1,
        ..Work::default()
    }
}

/// The work of a product in which long rows are cut; `whole` is that of [`whole_rows`].
fn cut_rows(analysis: &Analysis<'_>, target: &Target<'_>, cut: &Cut, whole: Work) -> Work {
    let pattern = analysis.pattern();
    let threads = lanes_a_row(pattern.nrows(), pattern.nnz());
    let pieces = cut.counts(analysis.row_lengths(), BATCH);
    let list = pieces.pieces * size_of::<[u32; 2]>() as u64;
    let longest_steps = (cut.longest as usize).div_ceil(threads) as u64;
    // A long row counts as one of the longest that are not cut: there is such a row nearby, or its
    // lanes only find that it is long.
    let short = |length: u32| length.min(cut.longest);
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

/// Returns how a target cuts the rows of a matrix; `None` if it cuts none.
pub(super) fn cut_of(analysis: &Analysis<'_>, target: &Target<'_>) -> Option<Cut> {
    let pattern = analysis.pattern();
    let cut = cut_for(pattern.nrows(), pattern.nnz());
    (target.device.kind == Kind::Gpu && cut.applies(analysis.max_length())).then_some(cut)
}

/// Returns how the rows of a matrix of this size are cut on a GPU, if any is long.
pub(super) fn cut_for(nrows: usize, nnz: usize) -> Cut {
    Cut::of(nnz, lanes_a_row(nrows, nnz))
}

/// Lanes that share a row on a GPU, found by measurement. Short rows of average length are loaded
/// at once, [`BATCH`] entries per lane; among long rows, neighbours share more of x where each has
/// few lanes (tests/results/tried.md).
pub(super) fn lanes_a_row(nrows: usize, nnz: usize) -> usize {
    match nnz / nrows.max(1) {
        0..=10 => 2,
        11..=20 => 4,
        21..=128 => 8,
        129..=512 => 16,
        _ => 32,
    }
}

/// Lanes that share a row in products with several vectors: few, up to [`FEW_UP_TO`] with one
/// vector, or most; with 8 packed vectors, each of them in [`PARTS`] parts.
const FEW: u64 = shared("CSR_FEW_LANES");
const MOST: u64 = shared("CSR_MOST_LANES");
const FEW_UP_TO: u64 = 8;
const PARTS: u64 = shared("CSR_PARTS");

/// The images of kernels whose lanes process whole rows, of those whose blocks of threads read the
/// entries of their rows evenly, and of those that cut long rows; [`TILES`] is that of tiles.
pub(super) const WHOLE_ROWS: &str = "csr";
pub(super) const STAGED_ROWS: &str = "csr_staged";
pub(super) const CUT_ROWS: &str = "csr_long";

/// Threads per block.
pub(super) const BLOCK: u32 = 256;

/// The arrays of a CSR matrix, with the ranges of rows that threads process.
#[derive(Clone, Debug)]
pub struct CsrLayout<T> {
    ncols: usize,
    row_ptr: Offsets,
    col_idx: Vec<u32>,
    values: Vec<T>,
    parts: Vec<usize>,
    /// The variant; `None` for the automatic one.
    variant: Option<Variant>,
    /// The pieces of long rows, as [`Cut::list`] returns them, or the blocks of rows of the variant;
    /// empty on a host.
    pieces: Vec<[u32; 2]>,
    /// Blocks of x in products with several vectors.
    scratch: Scratch<T>,
}

impl<T: Scalar> Layout<T> for CsrLayout<T> {
    fn apply(&self, alpha: T, x: &[T], beta: T, y: &mut [T]) {
        match &self.row_ptr {
            Offsets::Narrow(ptr) => self.product(|i| ptr[i] as usize, alpha, x, beta, y),
            Offsets::Wide(ptr) => self.product(|i| ptr[i] as usize, alpha, x, beta, y),
        }
    }

    fn apply_many(&self, alpha: T, x: DenseRef<'_, T>, beta: T, y: DenseMut<'_, T>) {
        in_blocks(self, &self.scratch, (alpha, beta), x, y);
    }

    fn bytes(&self) -> u64 {
        let entries = bytes_of(&self.col_idx) + bytes_of(&self.values);
        self.row_ptr.bytes() + entries + bytes_of(&self.pieces)
    }

    fn set_values(&mut self, values: &[T]) {
        self.values.copy_from_slice(values);
    }

    fn to_csr(&self) -> Csr<T> {
        let row_ptr = self.row_ptr.to_vec();
        let nrows = row_ptr.len() - 1;
        Csr::new(nrows, self.ncols, row_ptr, self.col_idx.clone(), self.values.clone())
            .expect("a layout is made from a valid matrix")
    }

    fn on_device(&self) -> Option<OnDevice<'_>> {
        let mut arrays = Arrays::default();
        let (row_ptr, col_idx) = (&self.row_ptr, &self.col_idx);
        let (matrix, at) = described(&mut arrays, self.ncols, row_ptr, col_idx, &self.values);
        let count = self.pieces.len() as u64;
        let of_pieces = "row of each piece, and the place in the list of the row's first piece";
        let pieces = (count > 0)
            .then(|| Pieces { list: arrays.add("pieces", of_pieces, &self.pieces), count });
        let (variant, precision) = (self.variant, T::PRECISION);
        let lengths = (0..matrix.nrows).map(|row| row_ptr.get(row + 1) - row_ptr.get(row));
        let longest = lengths.max().unwrap_or(0);
        let product = Product { variant, matrix, arrays: at, pieces, longest, precision };
        let [.., values] = at;
        let described = arrays.on_device(values, vec![product.launch()]);
        Some(OnDevice { scratch: product.scratch(), counters: product.counters(), ..described })
    }
}

/// Adds the arrays of a CSR matrix with `ncols` columns; returns its size, and the addresses of row
/// pointers, columns and values.
pub(super) fn described<'a, V: StoredValue>(
    arrays: &mut Arrays<'a>,
    ncols: usize,
    row_ptr: &'a Offsets,
    col_idx: &'a [u32],
    values: &'a [V],
) -> (Matrix, [Arg; 3]) {
    let (nrows, nnz) = (row_ptr.len() - 1, values.len());
    let wide = matches!(row_ptr, Offsets::Wide(_));
    let at = [
        arrays.add_either("row_ptr", "first entry of each row, and the end", row_ptr),
        arrays.add("col_idx", "column of each entry", col_idx),
        arrays.add_values("values", "value of each entry", values),
    ];
    (Matrix { nrows, ncols, nnz, wide }, at)
}

impl<T: Scalar> CsrLayout<T> {
    pub(super) fn of(csr: Csr<T>) -> Self {
        let ncols = csr.ncols();
        let (row_ptr, col_idx, values) = csr.into_arrays();
        let parts = par::split(&row_ptr, 1, par::GRAIN);
        let row_ptr = Offsets::new(&row_ptr);
        let (variant, pieces, scratch) = (None, Vec::new(), Scratch::default());
        CsrLayout { ncols, row_ptr, col_idx, values, parts, variant, pieces, scratch }
    }

    pub(super) fn row_ptr(&self) -> Vec<usize> {
        self.row_ptr.to_vec()
    }

    fn product(
        &self,
        row_ptr: impl Fn(usize) -> usize + Sync,
        alpha: T,
        x: &[T],
        beta: T,
        y: &mut [T],
    ) {
        if self.values.len() < SHORT * (self.row_ptr.len() - 1) {
            self.by_rows(row_ptr, |values, columns| short_dot(values, columns, x), alpha, beta, y);
        } else {
            self.by_rows(row_ptr, |values, columns| dot(values, columns, x), alpha, beta, y);
        }
    }

    fn by_rows(
        &self,
        row_ptr: impl Fn(usize) -> usize + Sync,
        sum: impl Fn(&[T], &[u32]) -> T + Sync,
        alpha: T,
        beta: T,
        y: &mut [T],
    ) {
        par::over_parts(&self.parts, y, &|rows, y| {
            let mut start = row_ptr(rows.start);
            for (y, row) in y.iter_mut().zip(rows) {
                let end = row_ptr(row + 1);
                store(y, alpha, sum(&self.values[start..end], &self.col_idx[start..end]), beta);
                start = end;
            }
        });
    }
}

impl<T: Scalar> BlockProduct<T> for CsrLayout<T> {
    fn block<const B: usize>(&self, x: XBlock<'_, T>, (alpha, beta): (T, T), y: YBlock<'_, T, B>) {
        y.over_parts(&self.parts, &|rows, mut y| {
            let mut start = self.row_ptr.get(rows.start);
            for (i, row) in rows.enumerate() {
                let end = self.row_ptr.get(row + 1);
                let sums = x.dot(&self.values[start..end], &self.col_idx[start..end]);
                y.put(i, alpha, &sums, beta);
                start = end;
            }
        });
    }
}

/// Mean entries per row below which a row is summed in order.
const SHORT: usize = 8;

/// Sum of `values[k] * x[columns[k]]`, in the order of `k`.
#[inline(always)]
fn short_dot<T: Scalar>(values: &[T], columns: &[u32], x: &[T]) -> T {
    let mut sum = T::ZERO;
    for (&value, &column) in values.iter().zip(columns) {
        sum += value * x[column as usize];
    }
    sum
}

/// Sum of `values[k] * x[columns[k]]`, in four independent chains.
#[inline(always)]
pub(crate) fn dot<T: Scalar>(values: &[T], columns: &[u32], x: &[T]) -> T {
    let mut sums = [T::ZERO; 4];
    let quads = values.chunks_exact(4).zip(columns.chunks_exact(4));
    let rest = values.len() / 4 * 4;
    for (values, columns) in quads {
        for lane in 0..4 {
            sums[lane] += values[lane] * x[columns[lane] as usize];
        }
    }
    let mut sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    for (&value, &column) in values[rest..].iter().zip(&columns[rest..]) {
        sum += value * x[column as usize];
    }
    sum
}
