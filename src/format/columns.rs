//! Layouts stored column by column over all rows: ell, ellr, ellg, pellr, jad and pjds.
//!
//! Entry `k` of stored row `i` is at slot `starts[k] + i`. The formats differ in the order of the
//! rows, in where the columns start, and in what they keep of the row lengths.

use rayon::prelude::*;

use super::launch::{Arrays, NULL};
use super::rows::{Column, Rows, WARP, add_column};
use super::{Arg, Launch, Layout, Offsets, OnDevice, Target, bytes_of};
use crate::csr::Csr;
use crate::par::Scratch;
use crate::scalar::Scalar;
use crate::structure::{Sort, Structure};

/// Where the columns of slots start.
#[derive(Debug)]
pub(super) enum Starts {
    /// All columns have this many rows.
    Pitch(usize),
    /// One offset a column, and the end.
    List(Offsets),
}

impl Starts {
    fn get(&self, k: usize) -> usize {
        match self {
            Starts::Pitch(rows) => k * rows,
            Starts::List(offsets) => offsets.get(k),
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Starts::Pitch(_) => 0,
            Starts::List(offsets) => offsets.bytes(),
        }
    }

    /// Rows of column `k`.
    fn rows(&self, k: usize) -> usize {
        self.get(k + 1) - self.get(k)
    }
}

/// Starts of the columns where rows are sorted, longest first, and each column is as long as the
/// number of rows that reach it, rounded up to `br`.
pub(super) fn jagged_starts(structure: &Structure<'_>, br: usize) -> Vec<usize> {
    let mut rows = vec![0usize; structure.max_length()];
    for &length in structure.lengths() {
        if length > 0 {
            rows[length as usize - 1] += 1;
        }
    }
    let mut reach = 0;
    for rows in rows.iter_mut().rev() {
        reach += *rows;
        *rows = reach.next_multiple_of(br);
    }
    let mut starts = vec![0];
    starts.extend(rows.iter().scan(0, |total, rows| {
        *total += rows;
        Some(*total)
    }));
    starts
}

/// The lengths that a layout keeps: none, one a row, or one a warp (its longest).
#[derive(Debug)]
pub(super) struct Lengths {
    rows_each: usize,
    list: Vec<u32>,
}

impl Lengths {
    /// No lengths: the padding column alone ends a row.
    pub fn none() -> Self {
        Lengths { rows_each: 1, list: Vec::new() }
    }

    /// One for every stored row.
    pub fn of_rows(structure: &Structure<'_>, sort: Sort) -> Self {
        let lengths = structure.lengths();
        let list = match sort {
            Sort::None => lengths.to_vec(),
            _ => structure.order(sort).iter().map(|&row| lengths[row as usize]).collect(),
        };
        Lengths { rows_each: 1, list }
    }

    /// The longest of every warp of stored rows.
    pub fn of_warps(structure: &Structure<'_>, sort: Sort) -> Self {
        let offsets = structure.slice_offsets(WARP, sort);
        let list = offsets.windows(2).map(|w| ((w[1] - w[0]) / WARP as u64) as u32).collect();
        Lengths { rows_each: WARP, list }
    }

    /// Whether stored row `i` is known to have no entry `k`.
    fn ends_before(&self, i: usize, k: usize) -> bool {
        self.list.get(i / self.rows_each).is_some_and(|&length| length as usize <= k)
    }
}

/// The arrays of a layout stored column by column.
#[derive(Debug)]
pub struct Columns<T> {
    rows: Rows,
    /// GPU threads that share a row.
    threads: usize,
    width: usize,
    starts: Starts,
    lengths: Lengths,
    col_idx: Vec<u32>,
    values: Vec<T>,
    scratch: Scratch<T>,
}

impl<T: Scalar> Columns<T> {
    /// Converts: one pass over columns and one over values, in parallel over parts of the rows.
    pub(super) fn new(
        csr: &Csr<T>,
        structure: &Structure<'_>,
        target: &Target<'_>,
        sort: Sort,
        starts: Starts,
        lengths: Lengths,
    ) -> Self {
        let rows = Rows::new(structure, sort, WARP, target);
        let width = structure.max_length();
        let slots = starts.get(width);
        let (mut col_idx, mut values) = (vec![0u32; slots], vec![T::ZERO; slots]);
        let place = Place { rows: &rows, width, starts: &starts, row_ptr: csr.row_ptr() };
        match rows.relabelled() {
            Some(new) => {
                place.fill(csr.col_idx(), &mut col_idx, u32::PADDING, |old| new[old as usize]);
            }
            None => place.fill(csr.col_idx(), &mut col_idx, u32::PADDING, |column| column),
        }
        place.fill(csr.values(), &mut values, T::ZERO, |value| value);
        let scratch = Scratch::default();
        Columns { rows, threads: 1, width, starts, lengths, col_idx, values, scratch }
    }

    /// The same layout, for so many GPU threads a row.
    pub(super) fn with_threads(self, threads: usize) -> Self {
        Columns { threads, ..self }
    }

    /// Entries of each stored row.
    fn counts(&self) -> Vec<u32> {
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

impl<T: Scalar> Layout<T> for Columns<T> {
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
                add_column(sums, &self.col_idx[slots.clone()], &self.values[slots], x);
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
        let place = Place { rows, width: self.width, starts, row_ptr: &row_ptr };
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
            Starts::Pitch(rows) => (*rows, [NULL, NULL]),
            Starts::List(offsets) => (0, arrays.add_offsets(offsets)),
        };
        let lengths = Some(&self.lengths.list[..]).filter(|list| !list.is_empty());
        let values = arrays.add(&self.values);
        let args = vec![
            Arg::U32(self.rows.nrows() as u32),
            Arg::U32(self.width as u32),
            Arg::U64(pitch as u64),
            narrow,
            wide,
            arrays.add_some(lengths),
            Arg::U32(self.lengths.rows_each as u32),
            arrays.add_some(self.rows.scatter()),
            arrays.add(&self.col_idx),
            values,
            Arg::X,
            Arg::Y,
            Arg::Alpha,
            Arg::Beta,
        ];
        let kernel = format!("columns_t{}_{}", self.threads, T::PRECISION);
        let threads = (self.rows.nrows().next_multiple_of(WARP) * self.threads) as u64;
        let launch = Launch::over("columns", kernel, threads, 256, args);
        Some(arrays.on_device(values, vec![launch]))
    }
}

/// Where the entries of a CSR matrix go.
struct Place<'a> {
    rows: &'a Rows,
    width: usize,
    starts: &'a Starts,
    row_ptr: &'a [usize],
}

impl Place<'_> {
    /// Puts `map(entry)` of every entry of `source` in its slot, and `padding` in all others.
    fn fill<S: Copy + Sync, E: Copy + Send + Sync>(
        &self,
        source: &[S],
        slots: &mut [E],
        padding: E,
        map: impl Fn(S) -> E + Sync,
    ) {
        let mut bounds = self.rows.parts().to_vec();
        // The last part takes the padding below the last row, too.
        if let (Some(last), true) = (bounds.last_mut(), self.width > 0) {
            *last = self.starts.rows(0).max(*last);
        }
        let pieces = self.cut(slots, &bounds);
        pieces.into_par_iter().zip(bounds.par_windows(2)).for_each(|(mut columns, part)| {
            for (at, i) in (part[0]..part[1]).enumerate() {
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

    /// Cuts every column at the bounds of the parts: for each part, its piece of each column.
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
