//! EHYB, explicitly cached hybrid: rows in parts, each of which caches its own piece of x.
//!
//! ```text
//!     | 4 . 1 . |      two parts of VecSize 2: rows 0 1 and rows 2 3
//!     | . 5 . . |      in-part entries: 4, 5, 6    columns counted from the part: 0 | 1 || - | 1
//!     | . . . . |      ER part: 1 (row 0), 2 (row 3)    yIdxER = 0 3    columns = 2 | 0
//!     | 2 . . 6 |
//! ```
//!
//! The pieces of x fill a GPU's shared memory: K is the smallest whole number for which the rows of
//! each of K * P parts fit (equations 1 and 2; P processors; with `share=2` two pieces fit, so that
//! one block of threads loads while the other multiplies). In-part entries are sliced ELLPACK with
//! slices of 32 rows and 16-bit columns, rows sorted by descending length within each part. All
//! other entries form the ER part: sliced ELLPACK of the rows that have such entries, sorted by
//! descending length, with 32-bit columns; it is added to y afterwards. `part=metis` minimises the
//! entries outside the parts; `part=window` makes a part of consecutive rows and needs no
//! partitioning; `part=none` also skips the sort. Parts hold at least 32 rows.
//!
//! Padding (`-`): the largest column of 16 or 32 bits, and value 0; read, not multiplied.
//! Good for: meshes in bad order, whose x is spread over memory. Bad for: graphs without good cuts,
//! and few products: partitioning takes as long as thousands of products.

mod layout;

use super::partition::{EhybPlan, EhybSize, last};
use super::row_order::{WARP, allowed_slots};
use super::{Basis, Offsets, Param, Params, Refusal, Storage, Target, Value, Work};
use crate::analysis::{Analysis, Sort, Walk};
use crate::csr::CsrRef;
use crate::scalar::Scalar;
pub use layout::Ehyb;

/// See the module.
#[derive(Debug)]
pub struct EhybFormat;

impl Storage for EhybFormat {
    const NAME: &'static str = "ehyb";
    const TITLE: &'static str = "EHYB, explicitly cached hybrid";
    const SOURCE: &'static str = "C. Chen, Explicit caching HYB: a new high-performance SpMV \
        framework on GPGPU (2022), sections 3 and 4";
    const SUITS: &'static str = "meshes in bad order and many products; bad for graphs without \
        good cuts";
    const PARAMS: &'static [Param] = &[
        Param {
            name: "part",
            doc: "parts of the rows: by METIS, windows with sorted rows, or windows in the original order",
            values: &[Value::Word("window"), Value::Word("metis"), Value::Word("none")],
            gpu: &[Value::Word("window"), Value::Word("metis"), Value::Word("none")],
            host: &[Value::Word("window")],
        },
        Param {
            name: "share",
            doc: "number of parts that share a processor's memory; 1 in the paper",
            values: &[Value::Int(2), Value::Int(1)],
            gpu: &[Value::Int(2), Value::Int(1)],
            host: &[Value::Int(1)],
        },
    ];

    type Layout<T: Scalar> = Ehyb<T>;

    fn work(
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<Work, Refusal> {
        let size = EhybSize::of(analysis, params, target)?;
        let pattern = analysis.pattern();
        let (nrows, nnz) = (pattern.nrows() as u64, pattern.nnz() as u64);
        let w = target.precision.bytes() as u64;
        let (near, far) = (size.near as usize, size.far as usize);
        let slots = size.near + size.far;
        check_slots(slots, nnz)?;
        let parts = size.parts + 1;
        let (slices, far_rows) = (size.slices + 1, size.far_rows);
        let far_slices = far_rows.div_ceil(WARP) + 1;
        let order = if size.ordered { 4 * nrows } else { 0 };
        let bytes = 4 * (3 * parts + far_rows as u64)
            + (slices * Offsets::width(near) + far_slices * Offsets::width(far)) as u64
            + near as u64 * (2 + w)
            + far as u64 * (4 + w)
            + order;
        let outside = nnz - size.inside;
        let walk = Walk::Rows { threads: 1, sort: Sort::None };
        let gathered =
            analysis.x_sectors(walk, target.precision) * outside as f64 / nnz.max(1) as f64;
        let pieces = (pattern.ncols() as u64 * w) as f64 / 32.0;
        // Gathering a piece reads at worst a sector per element.
        let gather = if size.gathers { pattern.ncols() as f64 } else { pieces };
        let scatters = size.ordered && size.basis == Basis::Original;
        Ok(Work {
            layout_bytes: bytes,
            stream_bytes: bytes - if scatters || size.gathers { 0 } else { order },
            entries: slots,
            x_sectors: gather + gathered,
            extra_bytes: 2 * w * far_rows as u64,
            scattered_rows: if scatters { nrows } else { 0 },
            steps: slots / WARP as u64,
            lanes: nrows,
            launches: if far_rows > 0 { 2 } else { 1 },
            convert_bytes: 8 * nrows + 2 * (4 + w) * nnz + bytes,
            sorted_keys: nrows,
            partitioned_edges: if params.is("part", "metis") { nnz } else { 0 },
            ..Work::default()
        })
    }

    fn convert<T: Scalar>(
        csr: CsrRef<'_, T>,
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<Ehyb<T>, Refusal> {
        let plan = EhybPlan::new(analysis, params, target)?;
        check_slots((last(&plan.near_ptr()) + last(&plan.far_ptr())) as u64, csr.nnz() as u64)?;
        Ok(Ehyb::new(csr, plan))
    }
}

/// Checks that slices take no more slots than allowed for `nnz` entries.
fn check_slots(slots: u64, nnz: u64) -> Result<(), Refusal> {
    let allowed = allowed_slots(nnz);
    if slots <= allowed {
        return Ok(());
    }
    Err(Refusal::new(format!(
        "its slices take {slots} slots for {nnz} entries; {allowed} are allowed"
    )))
}
