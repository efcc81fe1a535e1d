//! HDIA, hacked DIA: the diagonals of each hack of `hackSize` rows; no column indices.
//!
//! ```text
//!     | 4 . 1 . |      hackSize = 2    hackOffsets = 0 2 4
//!     | . 5 . . |                 hack 0          hack 1
//!     | . . . . |      offsets =  0  2        |  -3  0
//!     | 2 . . 6 |      values  =  4 5 | 1 *   |  * 2 | * 6
//! ```
//!
//! Values are stored hack by hack and, within a hack, diagonal by diagonal, with `hackSize` places
//! each. Fill (`*`) has the value -0.0 and is never multiplied into a result.
//! Good for: stencils and banded matrices, also where diagonals begin, end or shift along the rows.
//! Bad for: unstructured meshes and graphs; refused where there are more than three places per
//! entry.

use super::diagonals::{self, DiagonalLayout};
use super::many::LARGEST_BLOCK;
use super::narrow::AsGiven;
use super::{
    GpuConverter, GpuLayout, Launch, Param, Params, Refusal, Several, Stop, Storage, Target, Value,
    Work,
};
use crate::analysis::Analysis;
use crate::csr::CsrRef;
use crate::scalar::Scalar;

/// See the module.
#[derive(Debug)]
pub struct HdiaFormat;

impl Storage for HdiaFormat {
    const NAME: &'static str = "hdia";
    const TITLE: &'static str = "HDIA, hacked DIA";
    const SOURCE: &'static str = "D. Barbieri, V. Cardellini, A. Fanfarillo, S. Filippone, Three \
        storage formats for sparse matrices on GPGPUs (2015), section 3.3";
    const SUITS: &'static str = "stencils and banded matrices; bad for unstructured ones";
    const VECTORS_AT_ONCE: usize = LARGEST_BLOCK;
    const VECTORS_AT_ONCE_ON_GPU: usize = LARGEST_BLOCK;
    const PARAMS: &'static [Param] = &[Param {
        name: "hack",
        doc: "number of rows of a hack (hackSize)",
        values: &[
            Value::Int(256),
            Value::Int(32),
            Value::Int(64),
            Value::Int(128),
            Value::Int(512),
            Value::Int(1024),
        ],
        gpu: &[Value::Int(64), Value::Int(256), Value::Int(1024)],
        host: &[Value::Int(32), Value::Int(256)],
    }];

    type Layout<T: Scalar> = DiagonalLayout<T>;

    fn work(
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<Work, Refusal> {
        diagonals::work(analysis, target, params.int("hack"), target.precision.bytes())
    }

    fn convert<T: Scalar>(
        csr: CsrRef<'_, T>,
        analysis: &Analysis<'_>,
        params: &Params,
        _target: &Target<'_>,
    ) -> Result<DiagonalLayout<T>, Refusal> {
        DiagonalLayout::new(csr, analysis, params.int("hack"), (diagonals::KERNEL, AsGiven))
    }

    fn several(one: &Launch, several: Several) -> Option<Launch> {
        diagonals::several(one, several, "diagonals_several")
    }

    fn with_dots(one: &Launch) -> Option<Launch> {
        diagonals::with_dots(one)
    }

    fn build(
        converter: &mut dyn GpuConverter,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<GpuLayout, Stop> {
        diagonals::build(converter, target, params.int("hack"), (diagonals::KERNEL, None))
    }
}
