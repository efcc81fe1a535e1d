//! HLL, hacked ELLPACK: ELLPACK in hacks of `hackSize` rows, each padded to its own longest row.
//!
//! ```text
//!     | 4 . 1 . |      hackSize = 2    hackOffsets = 0 4 8
//!     | . 5 . . |                 hack 0          hack 1
//!     | . . . . |      col_idx =  0 1 | 2 -   ||  - 0 | - 3
//!     | 2 . . 6 |      values  =  4 5 | 1 0   ||  0 2 | 0 6
//! ```
//!
//! Slots of a hack are stored column by column. With `sort`, rows are sorted by descending length
//! within windows of that many rows (or over all rows), and `rIdx` holds the row of the matrix that
//! each stored row is. With `col=16`, a column is stored as its distance from the first column of
//! the hack, in 2 bytes; hacks that span more than 65,535 columns are refused. `sort=rcm` puts rows
//! and columns in reverse Cuthill-McKee order, only in the permuted basis. `tpr` threads share a
//! row on a GPU, each processing every `tpr`-th entry; the arrays do not depend on it, and the host
//! processes whole rows.
//!
//! Padding (`-`): value 0 and the largest column index of 16 or 32 bits, which is no column. It
//! ends a row, so that no row lengths are stored; it is read but not multiplied.
//! Good for: most matrices, meshes above all. Bad for: row lengths that vary within each hack;
//! sorting then helps where y may be written out of order and neighbours need not share x.

use ellect_kernels::shared;

use super::many::LARGEST_BLOCK;
use super::narrow::gpu::Search;
use super::narrow::{AsGiven, Keep};
use super::row_order::{self, ArrayCosts, Column, WARP, add_column};
use super::sliced::{
    ColumnWidth, Kernel, SliceMultiply, SliceProduct, SliceShape, SlicedLayout, check_narrow,
};
use super::{
    Arg, Basis, GpuConverter, GpuLayout, Launch, Offsets, Param, Params, Refusal, Several, Stop,
    Storage, Target, Value, Work, gpu::convert, gpu::hacks,
};
use crate::analysis::{Analysis, Sort};
use crate::csr::CsrRef;
use crate::scalar::Scalar;

/// The parameter that chooses the width of column indices.
pub(super) const COL: Param = Param {
    name: "col",
    doc: "bits of a column index; 16-bit indices count from the hack's first column",
    values: &[Value::Int(32), Value::Int(16)],
    gpu: &[Value::Int(32), Value::Int(16)],
    host: &[Value::Int(32), Value::Int(16)],
};

/// See the module.
#[derive(Debug)]
pub struct HllFormat;

impl Storage for HllFormat {
    const NAME: &'static str = "hll";
    const TITLE: &'static str = "HLL, hacked ELLPACK";
    const SOURCE: &'static str = "D. Barbieri, V. Cardellini, A. Fanfarillo, S. Filippone, Three \
        storage formats for sparse matrices on GPGPUs (2015), section 3.2";
    const SUITS: &'static str = "most matrices, meshes above all; bad where row lengths vary \
        between neighbours, unless sorted";
    const VECTORS_AT_ONCE: usize = LARGEST_BLOCK;
    const VECTORS_AT_ONCE_ON_GPU: usize = LARGEST_BLOCK;
    const PARAMS: &'static [Param] = &[
        Param {
            name: "hack",
            doc: "number of rows of a hack, which is padded to its longest row (hackSize)",
            values: &[Value::Int(32), Value::Int(64), Value::Int(128), Value::Int(256)],
            gpu: &[Value::Int(32)],
            host: &[Value::Int(32)],
        },
        Param {
            name: "sort",
            doc: "window of rows sorted by descending length (rIdx), or reverse Cuthill-McKee order",
            values: &[
                Value::Word("none"),
                Value::Int(512),
                Value::Int(4096),
                Value::Int(32_768),
                Value::Word("all"),
                Value::Word("rcm"),
            ],
            gpu: &[Value::Word("none"), Value::Int(512), Value::Int(4096), Value::Word("rcm")],
            host: &[Value::Word("none"), Value::Int(512), Value::Word("rcm")],
        },
        Param {
            name: "tpr",
            doc: "number of threads that share a row",
            values: &[Value::Int(1), Value::Int(2), Value::Int(4), Value::Int(8)],
            gpu: &[Value::Int(1), Value::Int(2), Value::Int(4)],
            host: &[Value::Int(1)],
        },
        COL,
    ];

    type Layout<T: Scalar> = SlicedLayout<T, HackShape>;

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
    ) -> Result<SlicedLayout<T, HackShape>, Refusal> {
        convert_with(csr, analysis, params, target, (Self::NAME, AsGiven))
    }

    fn several(one: &Launch, several: Several) -> Option<Launch> {
        several_with(one, several, Self::NAME, "hll_several")
    }

    fn with_dots(one: &Launch) -> Option<Launch> {
        // There are kernels for hacks of 32 rows and one thread a row. Elsewhere, and for long rows in
        // f64, registers of the dot products cost more than a second pass (tests/results/fused.md).
        let shape = one.kernel.strip_prefix("hll_32_")?;
        let pays = shape.contains("_t1_") && !shape.ends_with("_deep_f64");
        let shape = pays.then_some(shape)?;
        Some(one.with_dots("hll_dot", format!("hll_dot_{shape}")))
    }

    fn build(
        converter: &mut dyn GpuConverter,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<GpuLayout, Stop> {
        build_with(converter, params, target, (Self::NAME, None))
    }
}

/// The launch for several vectors by the image `several_image`, in place of one of `image`, whose kernels
/// are called IMAGE_HACK_cBITS_tLANES_f64, with or without _deep before the precision.
pub(super) fn several_with(
    one: &Launch,
    several: Several,
    image: &str,
    several_image: &'static str,
) -> Option<Launch> {
    let mut words = one.kernel.strip_prefix(image)?.split('_').skip(1);
    let hack = words.next()?.parse().ok()?;
    let bits = words.next()?;
    let lanes = words.next()?.strip_prefix('t')?.parse().ok()?;
    let precision = words.last()?;
    let parts = if precision == "f64" { PARTS_F64 } else { PARTS_F32 };
    let stem = format!("{image}_{bits}");
    let kernel = (several_image, stem.as_str(), precision);
    Some(several.launch(one, kernel, [lanes, 1, parts], &[Arg::U32(hack)]))
}

/// The work of hacks whose stored values take `value_bytes` each.
pub(super) fn work_with(
    analysis: &Analysis<'_>,
    params: &Params,
    target: &Target<'_>,
    value_bytes: usize,
) -> Result<Work, Refusal> {
    let (hack, threads, sort) = (params.int("hack"), params.int("tpr"), sort(params));
    if sort == Sort::Rcm {
        check_reordering(analysis, target)?;
    }
    let slots = analysis.slots(hack, sort);
    let n_hacks = analysis.pattern().nrows().div_ceil(hack);
    let offset_bytes = ((n_hacks + 1) * Offsets::width(slots as usize)) as u64;
    let column_bytes = match width(params) {
        ColumnWidth::Wide => 4 * slots,
        ColumnWidth::Narrow => {
            check_narrow(analysis, target, hack, sort)?;
            2 * slots + 4 * n_hacks as u64
        }
    };
    let bytes = offset_bytes + column_bytes + slots * value_bytes as u64;
    let warps = (hack * threads / WARP) as u64;
    let arrays = ArrayCosts {
        layout_bytes: bytes,
        stream_bytes: bytes,
        entries: slots,
        steps: analysis.n_iter(hack * threads, threads, sort) * warps,
    };
    let work = row_order::work(analysis, target, sort, threads, arrays);
    let reordered = if sort == Sort::Rcm { analysis.pattern().nnz() as u64 } else { 0 };
    Ok(Work { partitioned_edges: reordered, ..work })
}

/// Converts on the host, for the kernels of `image`.
pub(super) fn convert_with<T: Scalar, K: Keep>(
    csr: CsrRef<'_, T>,
    analysis: &Analysis<'_>,
    params: &Params,
    target: &Target<'_>,
    (image, keep): (&'static str, K),
) -> Result<SlicedLayout<T, HackShape, K>, Refusal> {
    let (size, sort) = (params.int("hack"), sort(params));
    let offsets = analysis.slice_offsets(size, sort);
    let offsets: Vec<usize> = offsets.into_iter().map(|offset| offset as usize).collect();
    let shape =
        HackShape { image, size, offsets: Offsets::new(&offsets), threads: params.int("tpr") };
    SlicedLayout::new(csr, analysis, target, (sort, width(params)), shape, keep)
}

/// Converts on a GPU, for the kernels of `image`. Values are stored in fewer bits where `search` looks
/// for those that these do not hold.
pub(super) fn build_with(
    converter: &mut dyn GpuConverter,
    params: &Params,
    target: &Target<'_>,
    (image, search): (&'static str, Option<Search>),
) -> Result<GpuLayout, Stop> {
    let (hack, threads) = (params.int("hack"), params.int("tpr"));
    let narrow = width(params) == ColumnWidth::Narrow;
    let hacks = hacks::GpuHacks::new(converter, [hack, 1], sort(params), narrow, target);
    // The host checks values first, and the GPU states the same reason.
    search.iter().try_for_each(|search| search.end(converter))?;
    let hacks = hacks?;
    let hacks::GpuHacks { rows, starts, base, column_bits: bits, .. } = &hacks;
    let value_bytes = search.as_ref().map_or(target.precision.bytes() as u64, Search::bytes);
    let bytes = [starts.total * bits / 8, starts.total * value_bytes];
    target.check_bytes(bytes.iter().sum())?;
    let [columns, values] = convert::arrays(converter, bytes)?;
    let slots = hacks.slots(columns, values);
    let update = match &search {
        Some(search) => slots.fill_narrowed(converter, rows, search)?,
        None => slots.fill(converter, rows, target)?,
    };
    let check = search.map(|search| search.check(converter)).transpose()?;
    let slots_and_rows = hacks.slots_and_rows();
    let [_, stored] = slots_and_rows;
    let shape = stem(image, hack, *bits as usize, threads, slots_and_rows);
    let kernel = format!("{shape}_{}", target.precision);
    let (starts, base, scatter) = (starts.args, *base, rows.scatter);
    let product = SliceProduct { starts, base, scatter, columns, values: vec![values] };
    let lanes = stored as usize * threads;
    let launch = product.launch(image, kernel, converter.matrix().nrows, lanes);
    let order = rows.basis_order();
    Ok(GpuLayout { launches: vec![launch], update, check, order, ..GpuLayout::default() })
}

/// Name of the kernel of `image` without the precision, for hacks of `hack` rows, columns of `column_bits`
/// bits and `threads` threads per row. With one thread per row and many `slots` per row, the kernel
/// loads columns ahead; this does not pay where values are in f32 (tests/results/narrow.md).
fn stem(
    image: &str,
    hack: usize,
    column_bits: usize,
    threads: usize,
    [slots, rows]: [u64; 2],
) -> String {
    let is_deep = image == HllFormat::NAME && threads == 1 && slots > FLAT * rows;
    let deep = if is_deep { "_deep" } else { "" };
    format!("{image}_{hack}_c{column_bits}_t{threads}{deep}")
}

/// Lanes that share a row in products with 8 packed vectors.
const PARTS_F64: u64 = shared("HLL_PARTS_F64");
const PARTS_F32: u64 = shared("HLL_PARTS_F32");

/// Slots of a row that the kernel for short rows loads at a time.
const FLAT: u64 = 8;

/// Checks that a graph ordering may reorder rows and columns: it pays only where vectors stay in
/// that order.
///
/// # Errors
/// [`Refusal`] in the original basis, and for a matrix that is not square or is too large.
fn check_reordering(analysis: &Analysis<'_>, target: &Target<'_>) -> Result<(), Refusal> {
    let (nrows, ncols) = (analysis.pattern().nrows(), analysis.pattern().ncols());
    if target.basis == Basis::Original {
        return Err(Refusal::new("reordering needs x and y in the permuted basis"));
    }
    if nrows != ncols {
        return Err(Refusal::new(format!(
            "reordering needs a square matrix; this one has {nrows} rows and {ncols} columns"
        )));
    }
    analysis.check_patience()
}

fn sort(params: &Params) -> Sort {
    match params.get("sort") {
        Value::Int(rows) => Sort::Window(rows as usize),
        Value::Word("all") => Sort::All,
        Value::Word("rcm") => Sort::Rcm,
        Value::Word(_) => Sort::None,
    }
}

fn width(params: &Params) -> ColumnWidth {
    if params.int("col") == 16 { ColumnWidth::Narrow } else { ColumnWidth::Wide }
}

/// Hacks of a fixed number of rows, stored column by column.
#[derive(Debug)]
pub struct HackShape {
    /// The image of the kernels.
    image: &'static str,
    size: usize,
    offsets: Offsets,
    /// GPU threads that share a row.
    threads: usize,
}

impl HackShape {
    /// Slots of all hacks, and the number of rows including those that pad the last hack.
    fn slots_and_rows(&self) -> [u64; 2] {
        let hacks = self.offsets.len() - 1;
        [self.offsets.get(hacks) as u64, (hacks * self.size) as u64]
    }
}

impl SliceShape for HackShape {
    fn rows(&self) -> usize {
        self.size
    }

    fn start(&self, s: usize) -> usize {
        self.offsets.get(s)
    }

    fn slots(&self, s: usize, r: usize) -> impl Iterator<Item = usize> {
        (r..self.range(s).len()).step_by(self.size)
    }

    fn offsets(&self) -> &Offsets {
        &self.offsets
    }
}

impl SliceMultiply for HackShape {
    #[inline(always)]
    fn add<K: Keep, T: Scalar, C: Column>(
        &self,
        _s: usize,
        columns: &[C],
        values: &[K::Of<T>],
        x: &[T],
        sums: &mut [T],
    ) {
        for (columns, values) in columns.chunks_exact(self.size).zip(values.chunks_exact(self.size))
        {
            add_column::<K, _, _>(sums, columns, values, x);
        }
    }

    fn kernel(&self, column_bits: usize) -> Kernel {
        Kernel {
            image: self.image,
            stem: stem(self.image, self.size, column_bits, self.threads, self.slots_and_rows()),
            threads: self.threads,
        }
    }
}
