//! Layouts stored column by column over all rows: ell, ellr, ellg, pellr, jad and pjds.
//!
//! Entry `k` of stored row `i` is at slot `starts[k] + i`. The formats differ in the order of the
//! rows, in the starts of the columns, and in the row lengths that they store.

use super::gpu::launch::{Arrays, NULL};
use super::gpu::slot_fill::SlotFill;
use super::narrow::AsGiven;
use super::row_order::{Column, StoredRows, WARP, add_column, full_columns};
use super::{
    Arg, GpuConverter, GpuLayout, Launch, Layout, Offsets, OnDevice, Stop, Target, bytes_of,
    gpu::convert,
};
use crate::analysis::{Analysis, Sort};
use crate::csr::{Csr, CsrRef, offsets};
use crate::par::{self, Scratch};
use crate::scalar::{Precision, Scalar};

/// Starts of the columns, in slots.
#[derive(Debug)]
pub(super) enum ColumnStarts {
    /// All columns have this many rows.
    Pitch(usize),
    /// One offset per column, and the end.
    List(Offsets),
}

impl ColumnStarts {
    fn get(&self, k: usize) -> usize {
        match self {
            ColumnStarts::Pitch(rows) => k * rows,
            ColumnStarts::List(offsets) => offsets.get(k),
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            ColumnStarts::Pitch(_) => 0,
            ColumnStarts::List(offsets) => offsets.bytes(),
        }
    }

    /// Number of rows of column `k`.
    fn rows(&self, k: usize) -> usize {
        self.get(k + 1) - self.get(k)
    }
}

/// Starts of the columns where rows are sorted by descending length and each column is as long as
/// the number of rows that reach it, rounded up to a multiple of `br`.
pub(super) fn jagged_starts(analysis: &Analysis<'_>, br: usize) -> Vec<usize> {
    let mut rows = vec![0usize; analysis.max_length()];
    for &length in analysis.lengths() {
        if length > 0 {
            rows[length as usize - 1] += 1;
        }
    }
    let mut reach = 0;
    for rows in rows.iter_mut().rev() {
        reach += *rows;
        *rows = reach.next_multiple_of(br);
    }
    offsets(rows)
}

/// The row lengths that a layout stores: none, one per row, or one per warp (its longest).
#[derive(Debug)]
pub(super) struct StoredLengths {
    rows_each: usize,
    list: Vec<u32>,
}

impl StoredLengths {
    /// Stores no lengths: the padding column alone ends a row.
    pub fn none() -> Self {
        StoredLengths { rows_each: 1, list: Vec::new() }
    }

    /// Stores the length of every stored row.
    pub fn of_rows(analysis: &Analysis<'_>, sort: Sort) -> Self {
        let lengths = analysis.lengths();
        let list = match sort {
            Sort::None => lengths.to_vec(),
            _ => analysis.order(sort).iter().map(|&row| lengths[row as usize]).collect(),
        };
        StoredLengths { rows_each: 1, list }
    }

    /// Stores the longest length of every warp of stored rows.
    pub fn of_warps(analysis: &Analysis<'_>, sort: Sort) -> Self {
        let offsets = analysis.slice_offsets(WARP, sort);
        let list = offsets.windows(2).map(|w| ((w[1] - w[0]) / WARP as u64) as u32).collect();
        StoredLengths { rows_each: WARP, list }
    }

    /// True if the stored lengths show that row `i` has no entry `k`.
    fn ends_before(&self, i: usize, k: usize) -> bool {
        self.list.get(i / self.rows_each).is_some_and(|&length| length as usize <= k)
    }
}

/// The arrays of a layout stored column by column.
#[derive(Debug)]
pub struct ColumnMajor<T> {
    rows: StoredRows,
    /// GPU threads that share a row.
    threads: usize,
    width: usize,
    starts: ColumnStarts,
    lengths: StoredLengths,
    col_idx: Vec<u32>,
    values: Vec<T>,
    scratch: Scratch<T>,
}

impl<T: Scalar> ColumnMajor<T> {
    /// Converts with one pass over columns and one over values, in parallel over parts of the rows.
    pub(super) fn new(
        csr: CsrRef<'_, T>,
        analysis: &Analysis<'_>,
        target: &Target<'_>,
        sort: Sort,
        starts: ColumnStarts,
        lengths: StoredLengths,
    ) -> Self {
        let rows = StoredRows::new(analysis, sort, WARP, target);
        let width = analysis.max_length();
        let slots = starts.get(width);
        let (mut col_idx, mut values) = (vec![0u32; slots], vec![T::ZERO; slots]);
        let place = SlotMap { rows: &rows, width, starts: &starts, row_ptr: csr.row_ptr() };
        match rows.relabelled() {
            Some(new) => {
                place.fill(csr.col_idx(), &mut col_idx, u32::PADDING, |old| new[old as usize]);
            }
            None => place.fill(csr.col_idx(), &mut col_idx, u32::PADDING, |column| column),
        }
        place.fill(csr.values(), &mut values, T::ZERO, |value| value);
        let scratch = Scratch::default();
        ColumnMajor { rows, threads: 1, width, starts, lengths, col_idx, values, scratch }
    }

    /// Sets the number of GPU threads per row.
    pub(super) fn with_threads(self, threads: usize) -> Self {
        ColumnMajor { threads, ..self }
    }

    /// Entries of each stored row.
    pub(super) fn counts(&self) -> Vec<u32> {
        let mut counts = vec![0; self.rows.nrows()];
        for k in 0..self.width {
            let column = &self.col_idx[self.starts.get(k)..self.starts.get(k + 1)];
            for (count, &column) in counts.iter_mut().zip(column) {
                *count += u32::from(column != u32::PADDING);
            }
        }
        counts
    }
}

impl<T: Scalar> Layout<T> for ColumnMajor<T> {
    fn apply(&self, alpha: T, x: &[T], beta: T, y: &mut [T]) {
        self.rows.product(&self.scratch, (alpha, beta), y, &|rows, sums| {
            let mut active = sums.len();
            for k in 0..self.width {
                active = active.min(self.starts.rows(k).saturating_sub(rows.start));
                while active > 0 && self.lengths.ends_before(rows.start + active - 1, k) {
                    active -= 1;
                }
                if active == 0 {
                    break;
                }
                let first = self.starts.get(k) + rows.start;
                let slots = first..first + active;
                let sums = &mut sums[..active];
                add_column::<AsGiven, _, _>(
                    sums,
                    &self.col_idx[slots.clone()],
                    &self.values[slots],
                    x,
                );
            }
        });
    }

    fn bytes(&self) -> u64 {
        self.rows.bytes()
            + self.starts.bytes()
            + bytes_of(&self.lengths.list)
            + bytes_of(&self.col_idx)
            + bytes_of(&self.values)
    }

    fn set_values(&mut self, values: &[T]) {
        let row_ptr = self.rows.row_ptr(&self.counts());
        let (rows, starts) = (&self.rows, &self.starts);
        let place = SlotMap { rows, width: self.width, starts, row_ptr: &row_ptr };
        place.fill(values, &mut self.values, T::ZERO, |value| value);
    }

    fn to_csr(&self) -> Csr<T> {
        let counts = self.counts();
        self.rows.to_csr(&counts, |i| {
            (0..counts[i] as usize).map(move |k| {
                let slot = self.starts.get(k) + i;
                (self.col_idx[slot], self.values[slot])
            })
        })
    }

    fn order(&self) -> Option<&[u32]> {
        self.rows.basis_order()
    }

    fn on_device(&self) -> Option<OnDevice<'_>> {
        let mut arrays = Arrays::default();
        let (pitch, [narrow, wide]) = match &self.starts {
            ColumnStarts::Pitch(rows) => (*rows, [NULL, NULL]),
            ColumnStarts::List(offsets) => (0, {
                arrays.add_offsets("col_ptr", "first slot of each column, and the end", offsets)
            }),
        };
        arrays.number("width", "number of columns of slots", self.width);
        arrays.number("pitch", "slots of each column; 0 where col_ptr lists them", pitch);
        arrays.number("rows_each", "stored rows of each of row_lengths", self.lengths.rows_each);
        let of_lengths = "most entries of a row among each rows_each stored rows";
        let lengths = Some(&self.lengths.list[..]).filter(|list| !list.is_empty());
        let values = arrays.add_values("values", "value of each slot; 0 for padding", &self.values);
        let product = ColumnsProduct {
            width: self.width,
            pitch,
            starts: [narrow, wide],
            lengths: arrays.add_some("row_lengths", of_lengths, lengths),
            rows_each: self.lengths.rows_each,
            scatter: arrays.add_row_order(self.rows.scatter()),
            columns: arrays.add(
                "col_idx",
                "column of each slot; 2^32 - 1 for padding",
                &self.col_idx,
            ),
            values,
        };
        let launch = product.launch(self.rows.nrows(), self.threads, T::PRECISION);
        Some(arrays.on_device(values, vec![launch]))
    }
}

/// Kernel arguments of a product on a GPU with columns that span all rows.
struct ColumnsProduct {
    width: usize,
    pitch: usize,
    starts: [Arg; 2],
    lengths: Arg,
    rows_each: usize,
    scatter: Arg,
    columns: Arg,
    values: Arg,
}

impl ColumnsProduct {
    fn launch(self, nrows: usize, threads: usize, precision: Precision) -> Launch {
        let mut args =
            vec![Arg::U32(nrows as u32), Arg::U32(self.width as u32), Arg::U64(self.pitch as u64)];
        args.extend(self.starts);
        args.extend([self.lengths, Arg::U32(self.rows_each as u32), self.scatter]);
        args.extend([self.columns, self.values, Arg::X, Arg::Y, Arg::Alpha, Arg::Beta]);
        let kernel = format!("columns_t{threads}_{precision}");
        let lanes = nrows.next_multiple_of(WARP) * threads;
        Launch::over("columns", kernel, lanes as u64, 256, args)
    }
}

/// Shape of the columns of slots that a GPU fills.
pub(super) enum ColumnPlan {
    /// Every column has all rows, rounded up to a multiple of this number.
    Full(usize),
    /// Columns have as many rows as reach them, rounded up to a multiple of this number.
    Jagged(usize),
}

/// Choice of the row lengths that a layout stores.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum KeptLengths {
    Nothing,
    Rows,
    Warps,
}

/// Converts on a GPU: see [`super::Storage::build`].
pub(super) fn build(
    converter: &mut dyn GpuConverter,
    target: &Target<'_>,
    sort: Sort,
    plan: ColumnPlan,
    kept: KeptLengths,
    threads: usize,
) -> Result<GpuLayout, Stop> {
    let matrix = converter.matrix();
    let rows = convert::GpuRows::new(converter, sort, target)?;
    let width = rows.longest(converter)?;
    let (lengths, rows_each) = match kept {
        KeptLengths::Nothing => (NULL, 1),
        KeptLengths::Rows => (rows.sorted_lengths(converter)?, 1),
        KeptLengths::Warps => (rows.warp_lengths(converter)?, WARP),
    };
    let (pitch, starts, total, stored) = match plan {
        ColumnPlan::Full(multiple) => {
            let pitch = matrix.nrows.next_multiple_of(multiple);
            let total = full_columns(matrix.nnz, pitch, width)?;
            (pitch, [NULL, NULL], total, pitch)
        }
        ColumnPlan::Jagged(br) => {
            let counts = converter.temporary(4 * (width as u64 + 1))?;
            let sorted = match kept {
                KeptLengths::Rows => lengths,
                KeptLengths::Nothing | KeptLengths::Warps => rows.sorted_lengths(converter)?,
            };
            let args = vec![Arg::U32(matrix.nrows as u32), Arg::U32(br as u32), sorted, counts];
            converter.launch(&convert::step("jagged_counts".to_string(), matrix.nrows, args))?;
            let starts = converter.starts(counts, 1, width + 1)?;
            (0, starts.args, starts.total, matrix.nrows.next_multiple_of(br))
        }
    };
    let value_bytes = target.precision.bytes() as u64;
    target.check_bytes(total * (4 + value_bytes))?;
    let columns = converter.array(4 * total)?;
    let values = converter.array(total * value_bytes)?;
    let slots =
        SlotFill { slice: 0, run: 1, stored, width, pitch, starts, base: NULL, columns, values };
    let update = slots.fill(converter, &rows, target)?;
    let scatter = rows.scatter;
    let product =
        ColumnsProduct { width, pitch, starts, lengths, rows_each, scatter, columns, values };
    let launch = product.launch(matrix.nrows, threads, target.precision);
    let order = rows.basis_order();
    Ok(GpuLayout { launches: vec![launch], update, order, ..GpuLayout::default() })
}

/// Maps the entries of a CSR matrix to their slots.
struct SlotMap<'a> {
    rows: &'a StoredRows,
    width: usize,
    starts: &'a ColumnStarts,
    row_ptr: &'a [usize],
}

impl SlotMap<'_> {
    /// Writes `map(entry)` of every entry of `source` to its slot, and `padding` to all other
    /// slots.
    fn fill<S: Copy + Sync, E: Copy + Send + Sync>(
        &self,
        source: &[S],
        slots: &mut [E],
        padding: E,
        map: impl Fn(S) -> E + Sync,
    ) {
        let mut bounds = self.rows.parts().to_vec();
        // The last part also fills the padding below the last row.
        if let (Some(last), true) = (bounds.last_mut(), self.width > 0) {
            *last = self.starts.rows(0).max(*last);
        }
        let mut pieces = self.cut(slots, &bounds);
        par::for_each(&mut pieces, 1, |part, columns| {
            for (at, i) in (bounds[part]..bounds[part + 1]).enumerate() {
                let entries = if i < self.rows.nrows() {
                    let old = self.rows.old(i);
                    &source[self.row_ptr[old]..self.row_ptr[old + 1]]
                } else {
                    &[]
                };
                for (column, &entry) in columns.iter_mut().zip(entries) {
                    column[at] = map(entry);
                }
                for column in columns.iter_mut().skip(entries.len()) {
                    // Columns only get shorter.
                    let Some(slot) = column.get_mut(at) else { break };
                    *slot = padding;
                }
            }
        });
    }

    /// Cuts every column at the bounds of the parts; returns, for each part, its piece of each
    /// column.
    fn cut<'s, E>(&self, mut slots: &'s mut [E], bounds: &[usize]) -> Vec<Vec<&'s mut [E]>> {
        let mut pieces: Vec<Vec<&mut [E]>> = bounds.windows(2).map(|_| Vec::new()).collect();
        for k in 0..self.width {
            let (mut column, rest) = slots.split_at_mut(self.starts.rows(k));
            slots = rest;
            for (pieces, part) in pieces.iter_mut().zip(bounds.windows(2)) {
                let rows = column.len().min(part[1] - part[0]);
                if rows == 0 {
                    break;
                }
                let (piece, below) = column.split_at_mut(rows);
                pieces.push(piece);
                column = below;
            }
        }
        pieces
    }
}
