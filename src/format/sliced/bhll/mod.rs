//! BHLL, blocked HLL: dense `b` x `b` blocks in hacks of 32 block rows.
//!
//! ```text
//!     | 4 3 . . |      b = 2, block rows of a hack side by side: one lane each
//!     | 1 5 . . |      block columns     =  0 | 0   - | 1
//!     | 2 . 6 1 |      values, element 0 =  4 | 2   * | 6
//!     | . 7 . 8 |              element 1 =  3 | *   * | 1
//!                              element 2 =  1 | *   * | *
//!                              element 3 =  5 | 7   * | 8
//! ```
//!
//! One column index serves `b * b` values, and a lane reads `b` consecutive elements of x. With
//! `sort`, block rows are sorted by descending length within windows of that many block rows. With
//! `col=16`, a block column is stored as its distance from the first block column of the hack, in 2
//! bytes. Padding (`-`) is the largest index of 16 or 32 bits; fill (`*`) has the value -0.0 and is
//! never multiplied into a result.
//! Good for: finite elements with several unknowns per node. Bad for: matrices without dense
//! blocks; refused where there are more than three places per entry.

mod blocks;
pub(super) mod gpu;
mod layout;
mod stored;

use std::ops::Range;
use std::sync::Arc;

use super::many::LARGEST_BLOCK;
use super::narrow::{AsGiven, Keep};
use super::row_order::{self, WARP};
use super::sliced::check_spans;
use super::{
    Basis, GpuConverter, GpuLayout, Launch, Offsets, Param, Params, Refusal, Several, Stop,
    Storage, Target, Value, Work, fill_marker,
};
use crate::analysis::{Analysis, Sort, Walk, inverse};
use crate::csr::CsrRef;
use crate::scalar::Scalar;
pub use blocks::Blocks;
#[cfg(feature = "cuda")]
pub(crate) use blocks::fill;
pub(super) use gpu::{build as build_with, several as several_with};
pub use layout::BhllLayout;

/// See the module.
#[derive(Debug)]
pub struct BhllFormat;

/// The parameter `b`.
pub(super) const B: Param = Param {
    name: "b",
    doc: "number of rows and columns of a block",
    values: &[Value::Int(3), Value::Int(2), Value::Int(4), Value::Int(5), Value::Int(6)],
    gpu: &[Value::Int(2), Value::Int(3), Value::Int(4), Value::Int(5), Value::Int(6)],
    host: &[Value::Int(2), Value::Int(3), Value::Int(4), Value::Int(5), Value::Int(6)],
};

/// The parameter `sort`.
pub(super) const SORT: Param = Param {
    name: "sort",
    doc: "window of block rows sorted by descending length (rIdx)",
    values: &[Value::Word("none"), Value::Int(512)],
    gpu: &[Value::Word("none"), Value::Int(512)],
    host: &[Value::Word("none"), Value::Int(512)],
};

/// The parameter `col`.
pub(super) const COL: Param = Param {
    name: "col",
    doc: "bits of a block column index; 16-bit indices count from the hack's first block column",
    values: &[Value::Int(32), Value::Int(16)],
    gpu: &[Value::Int(32), Value::Int(16)],
    host: &[Value::Int(32)],
};

/// Block rows of a hack: one per lane.
const HACK: usize = WARP;

impl Storage for BhllFormat {
    const NAME: &'static str = "bhll";
    const TITLE: &'static str = "BHLL, blocked HLL";
    const SOURCE: &'static str = "the extension to dense blocks announced by D. Barbieri, \
        V. Cardellini, A. Fanfarillo, S. Filippone, Three storage formats for sparse matrices on \
        GPGPUs (2015), section 5";
    const SUITS: &'static str = "finite elements with several unknowns per node; bad without \
        dense blocks";
    const VECTORS_AT_ONCE: usize = LARGEST_BLOCK;
    const VECTORS_AT_ONCE_ON_GPU: usize = LARGEST_BLOCK;
    const PARAMS: &'static [Param] = &[B, SORT, COL];

    type Layout<T: Scalar> = BhllLayout<T>;

    fn work(
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<Work, Refusal> {
        work_with(analysis, params, target, target.precision.bytes())
    }

    fn convert<T: Scalar>(
        csr: CsrRef<'_, T>,
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<BhllLayout<T>, Refusal> {
        convert_with(csr, analysis, params, target, (Self::NAME, AsGiven))
    }

    fn several(one: &Launch, several: Several) -> Option<Launch> {
        gpu::several(one, several, "bhll_several")
    }

    fn with_dots(one: &Launch) -> Option<Launch> {
        let shape = one.kernel.strip_prefix("bhll_b")?;
        Some(one.with_dots("bhll_dot", format!("bhll_dot_b{shape}")))
    }

    fn build(
        converter: &mut dyn GpuConverter,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<GpuLayout, Stop> {
        gpu::build(converter, params, target, (Self::NAME, None))
    }
}

/// The work of blocks whose values take `value_bytes` each.
pub(super) fn work_with(
    analysis: &Analysis<'_>,
    params: &Params,
    target: &Target<'_>,
    value_bytes: usize,
) -> Result<Work, Refusal> {
    let b = params.int("b");
    let pattern = analysis.pattern();
    let nnz = pattern.nnz() as u64;
    check_rows(pattern.nrows())?;
    let full = analysis.block_fill(b);
    if full < 0.3 && row_order::allowed_slots(nnz) < (nnz as f64 / full) as u64 {
        return Err(Refusal::new(format!(
            "{b} x {b} blocks are {:.0} % full (sampled); at least 33 % are needed",
            100.0 * full
        )));
    }
    let plan = BlockPlan::new(analysis, params, target);
    work_of_blocks(analysis, target, &plan, [b * b * value_bytes, value_bytes])
}

/// The work of blocks that take `block_bytes` each, beside their columns, with values of `value_bytes` in
/// the matrix.
///
/// # Errors
/// [`Refusal`] where there is too much fill, or 16 bits do not hold the columns of a hack.
pub(super) fn work_of_blocks(
    analysis: &Analysis<'_>,
    target: &Target<'_>,
    plan: &BlockPlan,
    [block_bytes, value_bytes]: [usize; 2],
) -> Result<Work, Refusal> {
    let (b, w) = (plan.b, value_bytes as u64);
    let pattern = analysis.pattern();
    let (nrows, nnz) = (pattern.nrows() as u64, pattern.nnz() as u64);
    let some = analysis.some_blocks(b);
    let block_analysis = Analysis::new(some.blocks.pattern());
    let slots = (some.scale * block_analysis.slots(HACK, plan.sort) as f64) as u64;
    let n_hacks = pattern.nrows().div_ceil(b).div_ceil(HACK) as u64;
    let entries =
        fill_marker::check("its blocks", u128::from(slots) * (b * b) as u128, nnz as usize)?;
    let column_bytes = match plan.narrow {
        true => {
            plan.check_spans(analysis, &block_analysis)?;
            2 * slots + 4 * n_hacks
        }
        false => 4 * slots,
    };
    let order_bytes = plan.order_bytes(pattern.nrows());
    let scatters = plan.sort != Sort::None && plan.basis == Basis::Original;
    let pointers = (n_hacks + 1) * Offsets::width(slots as usize) as u64;
    let bytes = pointers + column_bytes + block_bytes as u64 * slots + order_bytes;
    let across = Walk::Rows { threads: 1, sort: Sort::None };
    Ok(Work {
        layout_bytes: bytes,
        stream_bytes: bytes - if scatters { 0 } else { order_bytes },
        entries,
        // With one lane per block row, a lane requests `b` elements per block; with one lane
        // per row it requests one element per entry. But rows of a block request the same
        // elements.
        x_sectors: analysis.x_sectors(across, target.precision),
        x_loaded: analysis.x_loaded(across, target),
        scattered_rows: if scatters { nrows } else { 0 },
        steps: slots / HACK as u64,
        lanes: nrows,
        launches: 1,
        convert_bytes: 8 * nrows + 2 * (4 + w) * nnz + bytes,
        sorted_keys: if plan.sort == Sort::None { 0 } else { nrows / b as u64 },
        ..Work::default()
    })
}

/// Converts on the host; `kernel` names image and kernels of products.
pub(super) fn convert_with<T: Scalar, K: Keep>(
    csr: CsrRef<'_, T>,
    analysis: &Analysis<'_>,
    params: &Params,
    target: &Target<'_>,
    (kernel, keep): (&'static str, K),
) -> Result<BhllLayout<T, K>, Refusal> {
    let (blocks, plan) =
        (analysis.blocks(params.int("b")), BlockPlan::new(analysis, params, target));
    BhllLayout::new(csr, &blocks, &plan, (kernel, keep))
}

/// Refuses matrices with too many rows: 32 bits must hold the rows of all whole block rows.
pub(super) fn check_rows(nrows: usize) -> Result<(), Refusal> {
    const MOST: usize = u32::MAX as usize - 256;
    if nrows <= MOST {
        return Ok(());
    }
    Err(Refusal::new(format!("the matrix has {nrows} rows; at most {MOST} are allowed")))
}

pub(super) fn sort(params: &Params) -> Sort {
    match params.get("sort") {
        Value::Int(rows) => Sort::Window(rows as usize),
        Value::Word(_) => Sort::None,
    }
}

/// True if the basis may be permuted: a block row must move as a whole.
pub(super) fn movable(nrows: usize, ncols: usize, b: usize, sort: Sort) -> bool {
    sort != Sort::None && nrows == ncols && nrows.is_multiple_of(b)
}

/// Parameters of the conversion of a matrix to blocks.
pub(super) struct BlockPlan {
    b: usize,
    /// Order of the block rows.
    pub sort: Sort,
    /// Basis of the vectors.
    pub basis: Basis,
    /// True for block columns of 16 bits.
    pub narrow: bool,
}

impl BlockPlan {
    fn new(analysis: &Analysis<'_>, params: &Params, target: &Target<'_>) -> Self {
        BlockPlan::of(analysis, params, target, params.int("b"))
    }

    /// The plan for blocks of `b` rows and columns, with the parameters `sort` and `col`.
    pub fn of(analysis: &Analysis<'_>, params: &Params, target: &Target<'_>, b: usize) -> Self {
        let pattern = analysis.pattern();
        let sort = sort(params);
        let movable = movable(pattern.nrows(), pattern.ncols(), b, sort);
        BlockPlan {
            b,
            sort,
            basis: if movable { target.basis } else { Basis::Original },
            narrow: params.int("col") == 16,
        }
    }

    /// Bytes of the order: of block rows where y is scattered, of rows where the caller permutes by
    /// it.
    pub fn order_bytes(&self, nrows: usize) -> u64 {
        match (self.sort, self.basis) {
            (Sort::None, _) => 0,
            (_, Basis::Original) => 4 * nrows.div_ceil(self.b) as u64,
            (_, Basis::Permuted) => 4 * nrows as u64,
        }
    }

    /// Checks that 16 bits hold the block columns of each hack; with a sample of the blocks, those of
    /// its hacks.
    ///
    /// # Errors
    /// [`Refusal`] with the widest span.
    pub fn check_spans(
        &self,
        analysis: &Analysis<'_>,
        blocks: &Analysis<'_>,
    ) -> Result<(), Refusal> {
        match analysis.is_whole() {
            true => check_spans(&self.spans(blocks)),
            false => check_spans(&blocks.spans(HACK, self.sort, None)),
        }
    }

    /// First and one past the last block column of each hack.
    fn spans(&self, blocks: &Analysis<'_>) -> Arc<[Range<u32>]> {
        let new = (self.basis == Basis::Permuted).then(|| inverse(&blocks.order(self.sort)));
        blocks.spans(HACK, self.sort, new.as_deref())
    }
}
