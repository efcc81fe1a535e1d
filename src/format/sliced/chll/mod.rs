//! CHLL, complex HLL: 2 x 2 blocks `[[a, -b], [b, a]]` in hacks of 32 block rows, two numbers each.
//!
//! ```text
//!     | 4 -3   .  . |      complex:  | 4+3i   .   |     hack of block rows 0 and 1
//!     | 3  4   .  . |                | 2-i   6+5i |       block columns = 0 0 | - 1
//!     | 2  1   6 -5 |                                     values        = (4,3) (2,-1) | (0,0) (6,5)
//!     |-1  2   5  6 |
//! ```
//!
//! A complex matrix is handled as the real matrix in which each entry a + bi is such a block, and a
//! complex vector as its real and imaginary parts in turn. Of each block, the format stores the
//! column and (a, b), as a complex format does: 10 to 20 bytes for four entries. With `sort`, block
//! rows are sorted by descending length within windows of that many block rows. With `col=16`, a
//! block column is stored as its distance from the first block column of the hack, in 2 bytes.
//!
//! Padding (`-`): value (0, 0) and the largest index of 16 or 32 bits, which is no block column. New
//! values must have the same structure; otherwise they are refused.
//! Good for: complex matrices where HLL suits. Bad for: all other matrices; refused.

mod gpu;
mod layout;
mod structure;

use super::bhll::{BlockPlan, work_of_blocks};
use super::many::LARGEST_BLOCK;
use super::row_order::WARP;
use super::{GpuConverter, GpuLayout, Param, Params, Refusal, Stop, Storage, Target, Value, Work};
use crate::analysis::Analysis;
use crate::csr::CsrRef;
use crate::scalar::Scalar;
pub use layout::ChllLayout;

/// See the module.
#[derive(Debug)]
pub struct ChllFormat;

/// Block rows of a hack: one per lane.
const HACK: usize = WARP;

impl Storage for ChllFormat {
    const NAME: &'static str = "chll";
    const TITLE: &'static str = "CHLL, complex HLL";
    const SOURCE: &'static str = "HLL (D. Barbieri, V. Cardellini, A. Fanfarillo, S. Filippone, Three \
        storage formats for sparse matrices on GPGPUs (2015), section 3.2) of complex numbers, given \
        as real 2 x 2 blocks";
    const SUITS: &'static str = "complex matrices, given as real 2 x 2 blocks [[a, -b], [b, a]]; \
        refused for all else";
    const VECTORS_AT_ONCE: usize = LARGEST_BLOCK;
    const PARAMS: &'static [Param] = &[
        Param {
            name: "sort",
            doc: "window of block rows sorted by descending length (rIdx)",
            values: &[Value::Word("none"), Value::Int(512)],
            gpu: &[Value::Word("none"), Value::Int(512)],
            host: &[Value::Word("none"), Value::Int(512)],
        },
        Param {
            name: "col",
            doc: "bits of a block column index; 16-bit indices count from the hack's first block column",
            values: &[Value::Int(32), Value::Int(16)],
            gpu: &[Value::Int(32), Value::Int(16)],
            host: &[Value::Int(32)],
        },
    ];
    const BY_VALUES: bool = true;
    const FIGURES_OF: Option<&'static str> = Some("bhll:b=2");
    const SAVES: f64 = 0.9;

    type Layout<T: Scalar> = ChllLayout<T>;

    fn work(
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<Work, Refusal> {
        structure::check(analysis)?;
        let value_bytes = target.precision.bytes();
        let plan = plan(analysis, params, target);
        // As in bhll, rows of a block request the same elements of x.
        work_of_blocks(analysis, target, &plan, [2 * value_bytes, value_bytes])
    }

    fn convert<T: Scalar>(
        csr: CsrRef<'_, T>,
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<ChllLayout<T>, Refusal> {
        structure::check_all(analysis)?;
        let blocks = analysis.blocks(2);
        ChllLayout::new(csr, &blocks, &plan(analysis, params, target), target)
    }

    fn build(
        converter: &mut dyn GpuConverter,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<GpuLayout, Stop> {
        gpu::build(converter, params, target)
    }
}

/// Parameters of the conversion: those of bhll with 2 x 2 blocks.
fn plan(analysis: &Analysis<'_>, params: &Params, target: &Target<'_>) -> BlockPlan {
    BlockPlan::of(analysis, params, target, 2)
}
