//! Row order of a layout, shared by the formats of the ELLPACK family.
//!
//! A slot holds one entry. A slot without an entry is padding: it holds the column
//! [`Column::PADDING`], which lies past the end of every x, and the value 0. The bounds check of
//! the column index therefore also skips padding, and Inf or NaN in x cannot reach a wrong row.

use std::ops::Range;
use std::sync::Arc;

use super::narrow::Keep;
use super::{Basis, Refusal, Target, Work, store};
use crate::analysis::{Analysis, Sort, Walk, inverse};
use crate::csr::{Csr, accumulate};
use crate::device::Kind;
use crate::par::{self, Scratch};
use crate::scalar::Scalar;

/// Lanes of a warp; rows are padded and counted in groups of this size.
pub(super) const WARP: usize = 32;

/// Rows whose sums one thread holds on its stack. The number is large enough that a block's piece
/// of a column fills a memory page, and small enough for the L1 cache. It is a multiple of every
/// slice height.
pub(super) const BLOCK: usize = 512;

/// A stored column index, of 16 or 32 bits.
pub trait Column: Copy + PartialEq + Send + Sync {
    /// The index that marks a slot without an entry; it lies past the end of every x.
    const PADDING: Self;
    /// Converts the stored index to an index into x.
    fn index(self) -> usize;
}

impl Column for u32 {
    const PADDING: u32 = u32::MAX;
    #[inline(always)]
    fn index(self) -> usize {
        self as usize
    }
}

impl Column for u16 {
    const PADDING: u16 = u16::MAX;
    #[inline(always)]
    fn index(self) -> usize {
        usize::from(self)
    }
}

/// `sums[i] += values[i] * x[columns[i]]`, skipping padding.
#[inline(always)]
pub(super) fn add_column<K: Keep, T: Scalar, C: Column>(
    sums: &mut [T],
    columns: &[C],
    values: &[K::Of<T>],
    x: &[T],
) {
    for ((sum, &column), &value) in sums.iter_mut().zip(columns).zip(values) {
        if let Some(&x) = x.get(column.index()) {
            *sum += K::load(value) * x;
        }
    }
}

/// The rows of a layout: their order, the basis of the vectors, and the parts that threads process.
#[derive(Debug)]
pub(super) struct StoredRows {
    nrows: usize,
    ncols: usize,
    order: Option<Arc<[u32]>>,
    basis: Basis,
    parts: Vec<usize>,
    /// `inverse[old] = new`, kept where the rows of a part are scattered over y; otherwise empty.
    inverse: Vec<u32>,
}

impl StoredRows {
    /// Orders the rows by `sort`; inner bounds of parts are multiples of `slice` and of the sort
    /// window.
    pub fn new(analysis: &Analysis<'_>, sort: Sort, slice: usize, target: &Target<'_>) -> Self {
        let pattern = analysis.pattern();
        let offsets = analysis.slice_offsets(slice, sort);
        let offsets: Vec<usize> = offsets.into_iter().map(|offset| offset as usize).collect();
        let step = match sort {
            Sort::Window(rows) => (rows / slice).max(1),
            Sort::None | Sort::All | Sort::Rcm => 1,
        };
        let parts = par::split(&offsets, step, par::GRAIN);
        let parts: Vec<usize> =
            parts.into_iter().map(|bound| (bound * slice).min(pattern.nrows())).collect();
        let order = (sort != Sort::None).then(|| analysis.order(sort));
        let basis = basis(analysis, sort, target);
        let inverse = match &order {
            Some(order) if sort == Sort::All && basis == Basis::Original && parts.len() > 2 => {
                inverse(order)
            }
            _ => Vec::new(),
        };
        StoredRows { nrows: pattern.nrows(), ncols: pattern.ncols(), order, basis, parts, inverse }
    }

    /// Number of rows.
    pub fn nrows(&self) -> usize {
        self.nrows
    }

    /// The row of the matrix that is stored as row `i`.
    pub fn old(&self, i: usize) -> usize {
        self.order.as_ref().map_or(i, |order| order[i] as usize)
    }

    /// The row of y that each stored row is written to, where it differs from the stored row.
    pub fn scatter(&self) -> Option<&[u32]> {
        match self.basis {
            Basis::Original => self.order.as_deref(),
            Basis::Permuted => None,
        }
    }

    /// True if a part holds rows of y that belong to another part.
    pub fn leave_parts(&self) -> bool {
        !self.inverse.is_empty()
    }

    /// Bounds of the parts, in stored rows.
    pub fn parts(&self) -> &[usize] {
        &self.parts
    }

    /// Bytes of the order array.
    pub fn bytes(&self) -> u64 {
        self.order.as_ref().map_or(0, |order| 4 * order.len() as u64)
    }

    /// The order of the permuted basis: see [`super::Layout::order`].
    pub fn basis_order(&self) -> Option<&[u32]> {
        match self.basis {
            Basis::Permuted => self.order.as_deref(),
            Basis::Original => None,
        }
    }

    /// The new column of each old column, where the basis is permuted.
    pub fn relabelled(&self) -> Option<Vec<u32>> {
        self.basis_order().map(inverse)
    }

    /// Computes `y = alpha * sums + beta * y`. `sums(rows, out)` adds the products of the stored
    /// rows `rows`, at most [`BLOCK`], to `out`, which holds zeros.
    pub fn product<T: Scalar>(
        &self,
        scratch: &Scratch<T>,
        (alpha, beta): (T, T),
        y: &mut [T],
        sums: &(impl Fn(Range<usize>, &mut [T]) + Sync),
    ) {
        match &self.order {
            Some(order) if self.basis == Basis::Original => {
                if self.inverse.is_empty() {
                    par::over_parts(&self.parts, y, &|rows, y| {
                        let first = rows.start;
                        blocks(rows, sums, |rows, sums| {
                            for (&old, &sum) in order[rows].iter().zip(sums) {
                                store(&mut y[old as usize - first], alpha, sum, beta);
                            }
                        });
                    });
                } else {
                    scratch.with(self.nrows, |stored| self.gather(stored, (alpha, beta), y, sums));
                }
            }
            _ => par::over_parts(&self.parts, y, &|rows, y| {
                let first = rows.start;
                blocks(rows, sums, |rows, sums| {
                    for (y, &sum) in y[rows.start - first..].iter_mut().zip(sums) {
                        store(y, alpha, sum, beta);
                    }
                });
            }),
        }
    }

    fn gather<T: Scalar>(
        &self,
        stored: &mut [T],
        (alpha, beta): (T, T),
        y: &mut [T],
        sums: &(impl Fn(Range<usize>, &mut [T]) + Sync),
    ) {
        par::over_parts(&self.parts, stored, &|rows, stored| {
            let first = rows.start;
            blocks(rows, sums, |rows, sums| {
                stored[rows.start - first..][..sums.len()].copy_from_slice(sums);
            });
        });
        let stored = &*stored;
        let chunk = self.nrows.div_ceil(self.parts.len() - 1);
        par::for_each(y, chunk, |i, y| {
            store(y, alpha, stored[self.inverse[i] as usize], beta);
        });
    }

    /// Row pointers of the CSR matrix, from the number of entries of each stored row.
    pub fn row_ptr(&self, counts: &[u32]) -> Vec<usize> {
        let mut row_ptr = vec![0; self.nrows + 1];
        for (i, &count) in counts.iter().enumerate().take(self.nrows) {
            row_ptr[self.old(i) + 1] = count as usize;
        }
        accumulate(&mut row_ptr);
        row_ptr
    }

    /// Rebuilds the CSR matrix; `entries(i)` lists column and value of the `counts[i]` entries of
    /// stored row `i`.
    pub fn to_csr<T: Scalar, I: Iterator<Item = (u32, T)>>(
        &self,
        counts: &[u32],
        entries: impl Fn(usize) -> I,
    ) -> Csr<T> {
        let row_ptr = self.row_ptr(counts);
        let nnz = row_ptr[self.nrows];
        let (mut col_idx, mut values) = (vec![0; nnz], vec![T::ZERO; nnz]);
        let order = self.basis_order();
        for i in 0..self.nrows {
            let first = row_ptr[self.old(i)];
            for (at, (column, value)) in (first..).zip(entries(i)) {
                col_idx[at] = order.map_or(column, |order| order[column as usize]);
                values[at] = value;
            }
        }
        Csr::new(self.nrows, self.ncols, row_ptr, col_idx, values)
            .expect("a layout is made from a valid matrix")
    }
}

/// Calls `sums` for each block of `rows` and passes its sums to `sink`.
fn blocks<T: Scalar>(
    rows: Range<usize>,
    sums: &impl Fn(Range<usize>, &mut [T]),
    mut sink: impl FnMut(Range<usize>, &[T]),
) {
    let mut buffer = [T::ZERO; BLOCK];
    for start in rows.clone().step_by(BLOCK) {
        let block = start..(start + BLOCK).min(rows.end);
        let buffer = &mut buffer[..block.len()];
        buffer.fill(T::ZERO);
        sums(block.clone(), buffer);
        sink(block, buffer);
    }
}

/// The basis of a layout with rows in `sort` order. The basis is permuted only for square matrices
/// with sorted rows.
pub(super) fn basis(analysis: &Analysis<'_>, sort: Sort, target: &Target<'_>) -> Basis {
    let pattern = analysis.pattern();
    if sort == Sort::None || pattern.nrows() != pattern.ncols() {
        Basis::Original
    } else {
        target.basis
    }
}

/// Memory and work of a format's own arrays, without the row order.
pub(super) struct ArrayCosts {
    /// Bytes held.
    pub layout_bytes: u64,
    /// Bytes that one product reads.
    pub stream_bytes: u64,
    /// Slots that one product processes.
    pub entries: u64,
    /// Warp iterations.
    pub steps: u64,
}

/// The work of a layout with rows in `sort` order and `threads` lanes per row.
pub(super) fn work(
    analysis: &Analysis<'_>,
    target: &Target<'_>,
    sort: Sort,
    threads: usize,
    arrays: ArrayCosts,
) -> Work {
    let pattern = analysis.pattern();
    let (nrows, nnz) = (pattern.nrows() as u64, pattern.nnz() as u64);
    let value_bytes = target.precision.bytes() as u64;
    let order_bytes = if sort == Sort::None { 0 } else { 4 * nrows };
    let scatters = sort != Sort::None && basis(analysis, sort, target) == Basis::Original;
    // A host computes globally sorted rows into a buffer, and y gathers from it.
    let second_pass = scatters && sort == Sort::All && target.device.kind == Kind::Host;
    // Rows sorted within a warp go to the sectors of y that the warp writes anyway.
    let scattered = scatters && !matches!(sort, Sort::Window(rows) if rows <= WARP);
    let layout_bytes = arrays.layout_bytes + order_bytes;
    Work {
        layout_bytes,
        stream_bytes: arrays.stream_bytes + if scatters { order_bytes } else { 0 },
        entries: arrays.entries,
        x_sectors: analysis.x_sectors(Walk::Rows { threads, sort }, target.precision),
        x_loaded: analysis.x_loaded(Walk::Rows { threads, sort }, target),
        extra_bytes: if second_pass { 2 * value_bytes * nrows } else { 0 },
        scattered_rows: if scattered { nrows } else { 0 },
        steps: arrays.steps,
        lanes: threads as u64 * nrows,
        launches: if second_pass { 2 } else { 1 },
        convert_bytes: 8 * nrows + (4 + value_bytes) * nnz + layout_bytes,
        sorted_keys: if sort == Sort::None { 0 } else { nrows },
        ..Work::default()
    }
}

/// Bytes of values and columns that warps read when each row stops at its own length. Warps read
/// whole 32-byte sectors, and each sector is read up to its longest row.
pub(super) fn sector_bytes(analysis: &Analysis<'_>, target: &Target<'_>, sort: Sort) -> u64 {
    let sectors = |bytes: usize| bytes as u64 * analysis.slots(32 / bytes, sort);
    sectors(target.precision.bytes()) + sectors(4)
}

/// The maximum number of slots per entry in a layout of full columns.
const MOST_FILL: u64 = 3;

/// The number of slots below which the share of padding is not limited.
const FEW_SLOTS: u64 = 1 << 16;

/// The maximum number of slots for `nnz` entries in a layout with padding or fill.
pub(super) fn allowed_slots(nnz: u64) -> u64 {
    (MOST_FILL * nnz).max(FEW_SLOTS)
}

/// Slots of `columns` full columns of `rows` rows.
///
/// # Errors
/// [`Refusal`] where the slots exceed [`allowed_slots`].
pub(super) fn full_columns(nnz: usize, rows: usize, columns: usize) -> Result<u64, Refusal> {
    let nnz = nnz as u64;
    let slots = rows as u128 * columns as u128;
    let allowed = allowed_slots(nnz);
    if slots <= u128::from(allowed) {
        return Ok(slots as u64);
    }
    Err(Refusal::new(format!(
        "padding every row to {columns} entries takes {slots} slots for {nnz} entries; \
         {allowed} are allowed ({MOST_FILL} per entry)"
    )))
}
