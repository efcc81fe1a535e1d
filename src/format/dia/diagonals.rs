//! Layouts stored by diagonals: dia, which has one hack of all rows, hdia and hdia_narrow.

use std::ops::Range;

use super::gpu::launch::{Arrays, NULL};
use super::many::{self, BlockProduct, XBlock, YBlock};
use super::narrow::{self, AsGiven, Keep, StoredValue, gpu::Search};
use super::row_order::{BLOCK, WARP, allowed_slots};
use super::{
    Arg, GpuConverter, GpuLayout, Launch, Layout, Matrix, Offsets, OnDevice, Refusal, Several,
    Stop, Target, Work, bytes_of, fill_marker, gpu::convert, store,
};
use crate::analysis::Analysis;
use crate::csr::{Csr, CsrRef, offsets};
use crate::dense::{DenseMut, DenseRef};
use crate::par::{self, Scratch};
use crate::scalar::{Precision, Scalar};
use ellect_kernels::shared;

/// The diagonals of each hack of rows; every diagonal has a place for each row of the hack.
#[derive(Debug)]
pub struct DiagonalLayout<T: Scalar, K: Keep = AsGiven> {
    nrows: usize,
    ncols: usize,
    /// Rows of a hack: an even number.
    hack: usize,
    /// First diagonal of each hack, and the end (hackOffsets).
    hack_ptr: Offsets,
    /// Offset `j - i` of each diagonal, in ascending order within a hack.
    offsets: Vec<i32>,
    /// Diagonal `d` of the layout has row `r` of its hack at slot `d * hack + r`.
    values: Vec<K::Of<T>>,
    keep: K,
    /// The image and the kernel of a product, without the precision.
    kernel: &'static str,
    parts: Vec<usize>,
    /// Blocks of x in products with several vectors.
    scratch: Scratch<T>,
}

/// The image of the kernels that multiply values as they are given.
pub(super) const KERNEL: &str = "diagonals";

/// The work of diagonals in hacks of `hack` rows, whose values take `value_bytes` each.
///
/// # Errors
/// [`Refusal`] where there is too much fill, or 32-bit offsets do not suffice.
pub(super) fn work(
    analysis: &Analysis<'_>,
    target: &Target<'_>,
    hack: usize,
    value_bytes: usize,
) -> Result<Work, Refusal> {
    let pattern = analysis.pattern();
    let (nrows, nnz) = (pattern.nrows(), pattern.nnz());
    let largest = nrows.max(pattern.ncols());
    if i32::try_from(largest).is_err() {
        return Err(Refusal::new(format!(
            "a matrix with {largest} rows or columns has offsets above {}, the limit of 32 bits",
            i32::MAX
        )));
    }
    // Smaller hacks never need more slots: where theirs are too many, so are those of `hack`.
    for hack in [WARP.min(hack), hack] {
        let diagonals = analysis.n_diagonals(hack);
        fill_marker::check("its diagonals", diagonals as u128 * hack as u128, nnz)?;
    }
    let diagonals = analysis.n_diagonals(hack);
    let slots = diagonals * hack as u64;
    let (w, value_bytes) = (target.precision.bytes() as u64, value_bytes as u64);
    let pointers = (nrows.div_ceil(hack) + 1) * Offsets::width(diagonals as usize);
    let bytes = pointers as u64 + 4 * diagonals + value_bytes * slots;
    // A warp reads 32 neighbouring elements that may start anywhere in a sector.
    let sectors_a_step = w as f64 + 1.0 - w as f64 / 32.0;
    let steps = diagonals * hack.div_ceil(WARP) as u64;
    Ok(Work {
        layout_bytes: bytes,
        stream_bytes: bytes,
        entries: slots,
        x_sectors: steps as f64 * sectors_a_step,
        steps,
        lanes: nrows as u64,
        launches: 1,
        convert_bytes: 8 * nrows as u64 + (8 + w) * nnz as u64 + bytes,
        ..Work::default()
    })
}

impl<T: Scalar, K: Keep> DiagonalLayout<T, K> {
    /// Converts with one pass to find the diagonals and one to place the entries, in parallel over
    /// hacks.
    ///
    /// # Errors
    /// [`Refusal`] where there is too much fill.
    pub(super) fn new(
        csr: CsrRef<'_, T>,
        analysis: &Analysis<'_>,
        hack: usize,
        (kernel, keep): (&'static str, K),
    ) -> Result<Self, Refusal> {
        let lists = analysis.hack_offsets(hack);
        let mut hack_ptr = vec![0];
        for list in &lists {
            hack_ptr.push(hack_ptr[hack_ptr.len() - 1] + list.len());
        }
        let offsets: Vec<i32> = lists.into_iter().flatten().map(|offset| offset as i32).collect();
        fill_marker::check("its diagonals", offsets.len() as u128 * hack as u128, csr.nnz())?;
        let values = vec![K::Of::<T>::ZERO; offsets.len() * hack];
        let parts = par::split(csr.row_ptr(), hack.min(BLOCK), par::GRAIN);
        let hack_ptr = Offsets::new(&hack_ptr);
        let (nrows, ncols) = (csr.nrows(), csr.ncols());
        let scratch = Scratch::default();
        let mut layout = DiagonalLayout {
            nrows,
            ncols,
            hack,
            hack_ptr,
            offsets,
            values,
            keep,
            kernel,
            parts,
            scratch,
        };
        layout.over_hacks(|rows, offsets, values| {
            values.fill(K::store::<T>(fill_marker::fill()));
            for (r, row) in rows.enumerate() {
                let mut d = 0;
                let (columns, entries) = csr.row(row);
                for (&column, &entry) in columns.iter().zip(entries) {
                    let offset = (i64::from(column) - row as i64) as i32;
                    while offsets[d] != offset {
                        d += 1;
                    }
                    values[d * hack + r] = K::store(fill_marker::entry(entry));
                }
            }
        });
        Ok(layout)
    }

    /// Calls `f` with the rows, the offsets and the slots of each hack, in parallel.
    fn over_hacks(&mut self, f: impl Fn(Range<usize>, &[i32], &mut [K::Of<T>]) + Sync) {
        let ptr = self.hack_ptr.to_vec();
        let cuts: Vec<usize> = ptr.iter().map(|d| d * self.hack).collect();
        let (hack, nrows, offsets) = (self.hack, self.nrows, &self.offsets);
        par::for_each(&mut par::slices_mut(&mut self.values, &cuts), 1, |h, values| {
            let rows = h * hack..((h + 1) * hack).min(nrows);
            f(rows, &offsets[ptr[h]..ptr[h + 1]], values);
        });
    }

    /// Diagonals of hack `h`.
    fn diagonals(&self, h: usize) -> Range<usize> {
        self.hack_ptr.get(h)..self.hack_ptr.get(h + 1)
    }

    /// Column and value of the entries of row `i`.
    fn entries(&self, i: usize) -> impl Iterator<Item = (u32, T)> {
        self.diagonals(i / self.hack)
            .map(move |d| (d, K::load::<T>(self.values[d * self.hack + i % self.hack])))
            .filter(|(_, value)| !value.is_negative_zero())
            .map(move |(d, value)| ((i as i64 + i64::from(self.offsets[d])) as u32, value))
    }

    fn row_ptr(&self) -> Vec<usize> {
        offsets(par::map(self.nrows, 1, |i| self.entries(i).count()))
    }

    /// Adds the products of `rows`, which lie in one hack, to `sums`.
    #[inline(always)]
    fn add(&self, rows: Range<usize>, x: &[T], sums: &mut [T], product: impl Fn(T, T) -> T) {
        let h = rows.start / self.hack;
        for d in self.diagonals(h) {
            let (first, within, values) = self.diagonal(h, d, &rows);
            let x = &x[first..][..values.len()];
            for ((sum, &value), &x) in sums[within..].iter_mut().zip(values).zip(x) {
                *sum += product(K::load(value), x);
            }
        }
    }

    /// The part of diagonal `d` in `rows`, which lie in hack `h`: its first column, its first row
    /// counted from those, and its values.
    #[inline(always)]
    fn diagonal(&self, h: usize, d: usize, rows: &Range<usize>) -> (usize, usize, &[K::Of<T>]) {
        let offset = self.offsets[d] as isize;
        let start = rows.start.max(offset.min(0).unsigned_abs());
        let end = rows.end.min(self.ncols.saturating_add_signed(-offset));
        if start >= end {
            return (0, 0, &[]);
        }
        let slot = d * self.hack + start - h * self.hack;
        let values = &self.values[slot..][..end - start];
        (start.wrapping_add_signed(offset), start - rows.start, values)
    }

    /// As [`DiagonalLayout::add`], for `B` columns of x.
    #[inline(always)]
    fn add_block<const B: usize>(
        &self,
        rows: Range<usize>,
        x: XBlock<'_, T>,
        sums: &mut [[T; B]],
        product: impl Fn(T, T) -> T,
    ) {
        let h = rows.start / self.hack;
        for d in self.diagonals(h) {
            let (first, within, values) = self.diagonal(h, d, &rows);
            for ((sums, &value), j) in sums[within..].iter_mut().zip(values).zip(first..) {
                if let Some(x) = x.row(j) {
                    many::add(sums, x, |x| product(K::load(value), x));
                }
            }
        }
    }
}

/// Rows whose sums stay in the L1 cache while the diagonals of their hack pass.
const FEW: usize = 32;

impl<T: Scalar, K: Keep> BlockProduct<T> for DiagonalLayout<T, K> {
    fn block<const B: usize>(&self, x: XBlock<'_, T>, (alpha, beta): (T, T), y: YBlock<'_, T, B>) {
        y.over_parts(&self.parts, &|part, mut y| {
            let mut start = part.start;
            while start < part.end {
                let next_hack = (start / self.hack + 1) * self.hack;
                let rows = start..part.end.min(next_hack).min(start + FEW);
                let mut buffer = [[T::ZERO; B]; FEW];
                let sums = &mut buffer[..rows.len()];
                self.add_block(rows.clone(), x, sums, |value, x| value * x);
                // Fill adds nothing to a sum, except that it yields NaN where x is not finite.
                if sums.as_flattened().iter().any(|sum| sum.is_nan()) {
                    sums.fill([T::ZERO; B]);
                    self.add_block(rows.clone(), x, sums, fill_marker::product);
                }
                for (i, sums) in (rows.start - part.start..).zip(&*sums) {
                    y.put(i, alpha, sums, beta);
                }
                start = rows.end;
            }
        });
    }
}

impl<T: Scalar, K: Keep> Layout<T> for DiagonalLayout<T, K> {
    fn apply(&self, alpha: T, x: &[T], beta: T, y: &mut [T]) {
        par::over_parts(&self.parts, y, &|part, y| {
            let mut buffer = [T::ZERO; BLOCK];
            let mut start = part.start;
            while start < part.end {
                let next_hack = (start / self.hack + 1) * self.hack;
                let rows = start..part.end.min(next_hack).min(start + BLOCK);
                let sums = &mut buffer[..rows.len()];
                sums.fill(T::ZERO);
                self.add(rows.clone(), x, sums, |value, x| value * x);
                // Fill adds nothing to a sum, except that it yields NaN where x is not finite.
                if sums.iter().any(|sum| sum.is_nan()) {
                    sums.fill(T::ZERO);
                    self.add(rows.clone(), x, sums, fill_marker::product);
                }
                for (y, &sum) in y[rows.start - part.start..].iter_mut().zip(&*sums) {
                    store(y, alpha, sum, beta);
                }
                start = rows.end;
            }
        });
    }

    fn apply_many(&self, alpha: T, x: DenseRef<'_, T>, beta: T, y: DenseMut<'_, T>) {
        many::in_blocks(self, &self.scratch, (alpha, beta), x, y);
    }

    fn bytes(&self) -> u64 {
        self.hack_ptr.bytes() + bytes_of(&self.offsets) + bytes_of(&self.values)
    }

    fn set_values(&mut self, values: &[T]) {
        let row_ptr = self.row_ptr();
        let hack = self.hack;
        self.over_hacks(|rows, _, slots| {
            let mut next = row_ptr[rows.clone()].to_vec();
            for slots in slots.chunks_exact_mut(hack) {
                for (slot, next) in slots.iter_mut().zip(&mut next) {
                    if !slot.is_negative_zero() {
                        *slot = K::store(fill_marker::entry(values[*next]));
                        *next += 1;
                    }
                }
            }
        });
    }

    fn limits_values(&self) -> bool {
        self.keep.limits()
    }

    fn check_values(&self, values: &[T]) -> Result<(), Refusal> {
        self.keep.check(values, |k| narrow::row_of(&self.row_ptr(), k))
    }

    fn to_csr(&self) -> Csr<T> {
        let (columns, values) = (0..self.nrows).flat_map(|i| self.entries(i)).unzip();
        Csr::new(self.nrows, self.ncols, self.row_ptr(), columns, values)
            .expect("a layout is made from a valid matrix")
    }

    /// One thread processes two rows.
    fn on_device(&self) -> Option<OnDevice<'_>> {
        let mut arrays = Arrays::default();
        let of_starts = "first diagonal of each hack, and the end";
        let starts = arrays.add_offsets("hack_ptr", of_starts, &self.hack_ptr);
        let of_values = "values of each diagonal, by row of its hack; -0.0 for fill";
        let values = arrays.add_values("values", of_values, &self.values);
        let offsets = arrays.add("offsets", "column less row of each diagonal", &self.offsets);
        arrays.number("hack", "rows of a hack", self.hack);
        let shape = [self.nrows, self.ncols, self.hack];
        let launch = product(shape, starts, [offsets, values], (self.kernel, T::PRECISION));
        Some(arrays.on_device(values, vec![launch]))
    }
}

/// The launch of one product; `shape` holds rows, columns and rows per hack, `diagonals` offsets and
/// values.
fn product(
    shape: [usize; 3],
    starts: [Arg; 2],
    diagonals: [Arg; 2],
    (kernel, precision): (&'static str, Precision),
) -> Launch {
    let [nrows, ncols, hack] = shape;
    let shift = if hack.is_power_of_two() { hack.trailing_zeros() } else { u32::BITS };
    let sizes = [nrows as u32, ncols as u32, shift, hack as u32].map(Arg::U32);
    let vectors = [Arg::X, Arg::Y, Arg::Alpha, Arg::Beta];
    let args = sizes.into_iter().chain(starts).chain(diagonals).chain(vectors).collect();
    let name = format!("{kernel}_{precision}");
    Launch::over(kernel, name, nrows.div_ceil(2) as u64, 256, args)
}

/// The launch that also computes dot products of y: see [`super::Storage::with_dots`].
pub(super) fn with_dots(one: &Launch) -> Option<Launch> {
    let precision = one.kernel.strip_prefix("diagonals_")?;
    Some(one.with_dots("diagonals_dot", format!("diagonals_dot_{precision}")))
}

/// The launch for several vectors by the image `several_image`: see [`super::Storage::several`].
pub(super) fn several(
    one: &Launch,
    several: Several,
    several_image: &'static str,
) -> Option<Launch> {
    let (stem, precision) = one.kernel.rsplit_once('_')?;
    let parts = if precision == "f64" { PARTS_F64 } else { PARTS_F32 };
    // A thread multiplies two rows with one vector, and one row with several.
    Some(several.launch(one, (several_image, stem, precision), [1, 2, parts], &[]))
}

/// Threads that share a row in products with 8 packed vectors.
const PARTS_F64: u64 = shared("DIAGONAL_PARTS_F64");
const PARTS_F32: u64 = shared("DIAGONAL_PARTS_F32");

/// The maximum number of rows of a small hack.
const SMALL: usize = shared("SMALL_HACK") as usize;

/// Converts on a GPU, hacks of at most 1,024 rows: see [`super::Storage::build`]. With `search`, values
/// are stored in fewer bits once it has found that these hold them.
pub(super) fn build(
    converter: &mut dyn GpuConverter,
    target: &Target<'_>,
    hack: usize,
    (kernel, search): (&'static str, Option<Search>),
) -> Result<GpuLayout, Stop> {
    let matrix = converter.matrix();
    let Matrix { nrows, ncols, nnz, .. } = matrix;
    if i32::try_from(nrows.max(ncols)).is_err() {
        return Err(Stop::OnHost);
    }
    let hacks = nrows.div_ceil(hack);
    // A single hack with more diagonals exceeds the limit for the whole matrix.
    let most = (allowed_slots(nnz as u64) / hack as u64).min(u64::from(u32::MAX - 1));
    let counts = converter.temporary(4 * (hacks as u64 + 1))?;
    let depth = convert::depth(nnz, nrows);
    // Diagonals kept per hack between counting and writing; for most hacks these are all.
    let keep = 8 * depth;
    let kept = converter.temporary(4 * (hacks * keep) as u64)?;
    let find = |starts: [Arg; 2], offsets: Arg| {
        let sizes = [nrows, hack, most as usize, keep].map(|size| Arg::U32(size as u32));
        let from = [Arg::RowPtr, Arg::ColIdx, counts, kept];
        let args = sizes.into_iter().chain(from).chain(starts).chain([offsets]).collect();
        let stem = if hack <= SMALL { "small_hack_offsets" } else { "hack_offsets" };
        let kernel = format!("{stem}{depth}_{}", matrix.offset_name());
        let block = hack.min(512);
        Launch::over("convert_diagonals", kernel, (hacks * block) as u64, block as u32, args)
    };
    converter.launch(&find([NULL, NULL], NULL))?;
    let starts = converter.starts(counts, 1, hacks + 1);
    // The host checks values first, and the GPU states the same reason.
    search.iter().try_for_each(|search| search.end(converter))?;
    let starts = starts?;
    let slots = fill_marker::check("its diagonals", u128::from(starts.total) * hack as u128, nnz)?;
    let value_bytes = search.as_ref().map_or(target.precision.bytes() as u64, Search::bytes);
    target.check_bytes(slots * value_bytes + 4 * starts.total)?;
    let offsets = converter.array(4 * starts.total)?;
    let values = converter.array(slots * value_bytes)?;
    converter.launch(&find(starts.args, offsets))?;
    let depth = convert::depth(starts.total as usize, hacks);
    let sizes = [nrows, hack, hacks].map(|size| Arg::U32(size as u32));
    let from = [Arg::RowPtr, Arg::ColIdx, Arg::Values];
    let args = sizes.into_iter().chain(from).chain(starts.args).chain([offsets, values]).collect();
    let stem = format!("fill_diagonals{depth}_{}", matrix.offset_name());
    let (image, name) = match &search {
        Some(search) => {
            let image = search.image_of(["convert_hdia_f32", "convert_half_diagonals"]);
            (image, format!("{stem}_{}", search.type_name()))
        }
        None => ("convert_diagonals", format!("{stem}_{}", target.precision)),
    };
    let fill = Launch::over(image, name, (hacks * hack) as u64, 128, args);
    converter.launch(&fill)?;
    let check = search.map(|search| search.check(converter)).transpose()?;
    let shape = [nrows, ncols, hack];
    let kernel = (kernel, target.precision);
    let launches = vec![product(shape, starts.args, [offsets, values], kernel)];
    Ok(GpuLayout { launches, update: vec![fill], check, ..GpuLayout::default() })
}
