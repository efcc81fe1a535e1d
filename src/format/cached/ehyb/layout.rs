//! The arrays of EHYB, and its product on a host.

use std::ops::Range;

use crate::analysis::inverse;
use crate::csr::{Csr, CsrRef, accumulate};
use crate::format::gpu::launch::{Arrays, NULL};
use crate::format::narrow::AsGiven;
use crate::format::part_slices::PartSlices;
use crate::format::partition::{EhybPlan, places};
use crate::format::row_order::{Column, WARP, add_column};
use crate::format::{Arg, Basis, Launch, Layout, OnDevice, bytes_of, store};
use crate::par::{self, Scratch};
use crate::scalar::Scalar;

impl<T: Scalar, C: Column> PartSlices<T, C> {
    /// Slots of row `r` of slice `s`.
    fn slots(&self, s: usize, r: usize) -> impl Iterator<Item = usize> + use<T, C> {
        (self.ptr.get(s) + r..self.ptr.get(s + 1)).step_by(WARP)
    }

    /// Slots of row `r` of slice `s` that hold entries.
    fn entries(&self, s: usize, r: usize) -> impl Iterator<Item = usize> + '_ {
        self.slots(s, r).take_while(|&slot| self.columns[slot] != C::PADDING)
    }

    /// Sums of the rows of slice `s`.
    #[inline(always)]
    fn sums(&self, s: usize, x: &[T]) -> [T; WARP] {
        let slots = self.ptr.get(s)..self.ptr.get(s + 1);
        let columns = self.columns[slots.clone()].chunks_exact(WARP);
        let mut sums = [T::ZERO; WARP];
        for (columns, values) in columns.zip(self.values[slots].chunks_exact(WARP)) {
            add_column::<AsGiven, _, _>(&mut sums, columns, values, x);
        }
        sums
    }
}

/// The arrays of EHYB.
#[derive(Debug)]
pub struct Ehyb<T> {
    nrows: usize,
    ncols: usize,
    basis: Basis,
    gathers: bool,
    /// Per part: the first stored row, the first slice, and the first column of its piece of x;
    /// each list includes the end.
    bounds: Vec<u32>,
    first_slices: Vec<u32>,
    pieces: Vec<u32>,
    order: Vec<u32>,
    near: PartSlices<T, u16>,
    far: PartSlices<T, u32>,
    /// yIdxER, in stored rows.
    far_rows: Vec<u32>,
    host: Host<T>,
}

/// Arrays that only the host needs.
#[derive(Debug)]
struct Host<T> {
    /// Place of each stored row in the ER part; past its end for a row that is not in it.
    far_of: Vec<u32>,
    n_far: usize,
    /// Stored row of each row, where the rows of a part are scattered over y; otherwise empty.
    inverse: Vec<u32>,
    /// Bounds of the threads' ranges: whole parts, in stored rows, and whole slices of the ER part,
    /// in rows of the ER part.
    parts: Vec<usize>,
    far_parts: Vec<usize>,
    sums: Scratch<T>,
    far_sums: Scratch<T>,
    pieces: Scratch<T>,
}

impl<T: Scalar> Host<T> {
    fn new(plan: &EhybPlan, near_ptr: &[usize], far_ptr: &[usize]) -> Self {
        let nrows = plan.near.len();
        let starts: Vec<usize> =
            plan.first_slices().iter().map(|&s| near_ptr[s as usize]).collect();
        let parts = par::split(&starts, 1, par::GRAIN);
        let far_parts = par::split(far_ptr, 1, par::GRAIN);
        let far_rows = plan.far_rows.len();
        Host {
            far_of: places(nrows, &plan.far_rows),
            n_far: far_rows,
            inverse: match &plan.order {
                Some(order) if plan.gathers => inverse(order),
                _ => Vec::new(),
            },
            parts: parts.into_iter().map(|part| plan.bounds[part]).collect(),
            far_parts: far_parts.into_iter().map(|s| (s * WARP).min(far_rows)).collect(),
            sums: Scratch::default(),
            far_sums: Scratch::default(),
            pieces: Scratch::default(),
        }
    }

    /// Place of stored row `i` in the ER part.
    fn far(&self, i: usize) -> Option<usize> {
        Some(self.far_of[i] as usize).filter(|&at| at < self.n_far)
    }
}

/// A slot of the in-part entries or of the ER part.
#[derive(Clone, Copy)]
enum EhybSlot {
    Near(usize),
    Far(usize),
}

impl<T: Scalar> Ehyb<T> {
    pub(super) fn new(csr: CsrRef<'_, T>, plan: EhybPlan) -> Self {
        let (near_ptr, far_ptr) = (plan.near_ptr(), plan.far_ptr());
        let mut near = PartSlices::new(&near_ptr, u16::PADDING);
        let mut far = PartSlices::new(&far_ptr, u32::PADDING);
        let old = |i: usize| plan.order.as_ref().map_or(i, |order| order[i] as usize);
        // Position of a column in the order in which pieces are counted, and in x.
        let place = |column: u32| plan.new.as_ref().map_or(column, |new| new[column as usize]);
        let in_x = |column: u32| if plan.gathers { column } else { place(column) };
        let host = Host::new(&plan, &near_ptr, &far_ptr);
        let mut s = 0;
        for (p, part) in plan.bounds.windows(2).enumerate() {
            // Windows are ranges of the matrix's own columns; permuting moves columns only within
            // them.
            let piece = plan.pieces[p] as u32..plan.pieces[p + 1] as u32;
            for first in (part[0]..part[1]).step_by(WARP) {
                let rows = first..part[1].min(first + WARP);
                for i in rows {
                    let (columns, values) = csr.row(old(i));
                    let mut near_slots = near.slots(s, i - first);
                    let mut far_slots = host.far(i).map(|at| far.slots(at / WARP, at % WARP));
                    for (&column, &value) in columns.iter().zip(values) {
                        let placed = place(column);
                        if piece.contains(&placed) {
                            let slot = near_slots.next().expect("counted when it was planned");
                            near.columns[slot] = (placed - piece.start) as u16;
                            near.values[slot] = value;
                        } else {
                            let slots = far_slots.as_mut().expect("counted when it was planned");
                            let slot = slots.next().expect("counted when it was planned");
                            far.columns[slot] = in_x(column);
                            far.values[slot] = value;
                        }
                    }
                }
                s += 1;
            }
        }
        let narrow = |list: &[usize]| list.iter().map(|&i| i as u32).collect();
        Ehyb {
            nrows: csr.nrows(),
            ncols: csr.ncols(),
            basis: plan.basis,
            gathers: plan.gathers,
            bounds: narrow(&plan.bounds),
            first_slices: plan.first_slices(),
            pieces: narrow(&plan.pieces),
            order: plan.order.unwrap_or_default(),
            near,
            far,
            far_rows: plan.far_rows,
            host,
        }
    }

    /// The row of the matrix that is stored as row `i`.
    fn old(&self, i: usize) -> usize {
        self.order.get(i).map_or(i, |&old| old as usize)
    }

    fn n_parts(&self) -> usize {
        self.bounds.len() - 1
    }

    /// Slices of part `p` with their stored rows.
    fn slices(&self, p: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
        let (first, end) = (self.bounds[p] as usize, self.bounds[p + 1] as usize);
        let slices = self.first_slices[p] as usize..self.first_slices[p + 1] as usize;
        slices.enumerate().map(move |(k, s)| {
            let first = first + k * WARP;
            (s, first..end.min(first + WARP))
        })
    }

    /// Calls `f(row, entries)` for every row with the column in the matrix and the slot of its
    /// entries, sorted by column.
    fn for_rows(&self, mut f: impl FnMut(usize, &[(u32, EhybSlot)])) {
        let permuted = self.basis == Basis::Permuted;
        // Map columns back from the order in which pieces are counted, and from x.
        let reordered = permuted || self.gathers;
        let mut entries = Vec::new();
        for p in 0..self.n_parts() {
            for (s, rows) in self.slices(p) {
                for (r, i) in rows.enumerate() {
                    entries.clear();
                    for slot in self.near.entries(s, r) {
                        let placed = self.pieces[p] + u32::from(self.near.columns[slot]);
                        let old = if reordered { self.order[placed as usize] } else { placed };
                        entries.push((old, EhybSlot::Near(slot)));
                    }
                    if let Some(at) = self.host.far(i) {
                        for slot in self.far.entries(at / WARP, at % WARP) {
                            let at = self.far.columns[slot];
                            let old = if permuted { self.order[at as usize] } else { at };
                            entries.push((old, EhybSlot::Far(slot)));
                        }
                    }
                    entries.sort_unstable_by_key(|entry| entry.0);
                    f(self.old(i), &entries);
                }
            }
        }
    }

    fn row_ptr(&self) -> Vec<usize> {
        let mut row_ptr = vec![0; self.nrows + 1];
        self.for_rows(|row, entries| row_ptr[row + 1] = entries.len());
        accumulate(&mut row_ptr);
        row_ptr
    }

    /// Passes `sink` the sums of the stored rows `rows`, which are whole parts, slice by slice.
    /// `far` holds the sums of the ER part, and 0 for rows that are not in it.
    #[inline(always)]
    fn sum(
        &self,
        rows: Range<usize>,
        x: &[T],
        far: &[T],
        mut sink: impl FnMut(Range<usize>, &[T]),
    ) {
        let first = self.bounds.partition_point(|&row| (row as usize) < rows.start);
        let parts = (first..self.n_parts()).take_while(|&p| (self.bounds[p] as usize) < rows.end);
        for p in parts {
            self.with_piece(p, x, |x| {
                for (s, rows) in self.slices(p) {
                    let mut sums = self.near.sums(s, x);
                    let sums = &mut sums[..rows.len()];
                    if far.len() > 1 {
                        for (sum, &at) in sums.iter_mut().zip(&self.host.far_of[rows.clone()]) {
                            *sum += far[at as usize];
                        }
                    }
                    sink(rows, sums);
                }
            });
        }
    }

    /// Calls `f` with the piece of x of part `p`.
    #[inline(always)]
    fn with_piece(&self, p: usize, x: &[T], f: impl FnOnce(&[T])) {
        let piece = self.pieces[p] as usize..self.pieces[p + 1] as usize;
        if !self.gathers {
            return f(&x[piece]);
        }
        self.host.pieces.with(piece.len(), |near| {
            for (near, &old) in near.iter_mut().zip(&self.order[piece]) {
                *near = x[old as usize];
            }
            f(near);
        });
    }
}

impl<T: Scalar> Layout<T> for Ehyb<T> {
    fn apply(&self, alpha: T, x: &[T], beta: T, y: &mut [T]) {
        let host = &self.host;
        let scattered = self.basis == Basis::Original && !self.order.is_empty();
        host.far_sums.with(self.far_rows.len() + 1, |far| {
            let (none, rest) =
                far.split_last_mut().expect("the buffer holds one more than the rows");
            *none = T::ZERO;
            par::over_parts(&host.far_parts, rest, &|rows, far| {
                for (s, far) in (rows.start / WARP..).zip(far.chunks_mut(WARP)) {
                    far.copy_from_slice(&self.far.sums(s, x)[..far.len()]);
                }
            });
            let far = &*far;
            if host.inverse.is_empty() {
                return par::over_parts(&host.parts, y, &|part, y| {
                    self.sum(part.clone(), x, far, |rows, sums| {
                        if scattered {
                            for (&old, &sum) in self.order[rows].iter().zip(sums) {
                                store(&mut y[old as usize - part.start], alpha, sum, beta);
                            }
                        } else {
                            for (y, &sum) in y[rows.start - part.start..].iter_mut().zip(sums) {
                                store(y, alpha, sum, beta);
                            }
                        }
                    });
                });
            }
            host.sums.with(self.nrows, |stored| {
                par::over_parts(&host.parts, stored, &|part, stored| {
                    self.sum(part.clone(), x, far, |rows, sums| {
                        stored[rows.start - part.start..][..sums.len()].copy_from_slice(sums);
                    });
                });
                let stored = &*stored;
                let chunk = self.nrows.div_ceil(host.parts.len() - 1);
                par::for_each(y, chunk, |row, y| {
                    store(y, alpha, stored[host.inverse[row] as usize], beta);
                });
            });
        });
    }

    fn bytes(&self) -> u64 {
        let parts = bytes_of(&self.bounds) + bytes_of(&self.first_slices) + bytes_of(&self.pieces);
        let rows = bytes_of(&self.order) + bytes_of(&self.far_rows);
        parts + rows + self.near.bytes() + self.far.bytes()
    }

    fn set_values(&mut self, values: &[T]) {
        let row_ptr = self.row_ptr();
        let mut near = std::mem::take(&mut self.near.values);
        let mut far = std::mem::take(&mut self.far.values);
        self.for_rows(|row, entries| {
            for (&(_, slot), &value) in entries.iter().zip(&values[row_ptr[row]..]) {
                match slot {
                    EhybSlot::Near(slot) => near[slot] = value,
                    EhybSlot::Far(slot) => far[slot] = value,
                }
            }
        });
        (self.near.values, self.far.values) = (near, far);
    }

    fn to_csr(&self) -> Csr<T> {
        let row_ptr = self.row_ptr();
        let nnz = row_ptr[self.nrows];
        let (mut columns, mut values) = (vec![0; nnz], vec![T::ZERO; nnz]);
        self.for_rows(|row, entries| {
            for (at, &(column, slot)) in (row_ptr[row]..).zip(entries) {
                columns[at] = column;
                values[at] = match slot {
                    EhybSlot::Near(slot) => self.near.values[slot],
                    EhybSlot::Far(slot) => self.far.values[slot],
                };
            }
        });
        Csr::new(self.nrows, self.ncols, row_ptr, columns, values)
            .expect("a layout is made from a valid matrix")
    }

    fn order(&self) -> Option<&[u32]> {
        (self.basis == Basis::Permuted).then_some(&self.order)
    }

    /// One block per part, with its piece of x in shared memory; then one warp per slice of the ER
    /// part.
    fn on_device(&self) -> Option<OnDevice<'_>> {
        let mut arrays = Arrays::default();
        let name = T::PRECISION;
        let scatter = Some(&self.order[..])
            .filter(|order| !order.is_empty() && self.basis == Basis::Original);
        let order = arrays.add_row_order(scatter);
        let bounds =
            arrays.add("bounds", "first stored row of each part, and the end", &self.bounds);
        let first_slices =
            arrays.add("first_slices", "first slice of each part, and the end", &self.first_slices);
        let pieces = "first column of each part's piece of x, and the end";
        let pieces = arrays.add("pieces", pieces, &self.pieces);
        arrays.number("gathers", "1 if pieces count columns in row_order", self.gathers.into());
        let mut args =
            vec![bounds, first_slices, pieces, if self.gathers { order } else { NULL }, order];
        let starts = "first slot of each slice of in-part entries, and the end";
        args.extend(arrays.add_offsets("near_ptr", starts, &self.near.ptr));
        let near = arrays.add_values("near_values", OF_VALUES, &self.near.values);
        let columns = "column of each slot, counted from its piece; 2^16 - 1 for padding";
        args.extend([arrays.add("near_col", columns, &self.near.columns), near]);
        let end = [Arg::X, Arg::Y, Arg::Alpha, Arg::Beta];
        args.extend(end);
        let longest = self.pieces.windows(2).map(|w| w[1] - w[0]).max().unwrap_or(0);
        let part = Launch {
            image: "ehyb",
            kernel: format!("ehyb_part_{name}"),
            grid: self.n_parts() as u64,
            block: BLOCK,
            shared_bytes: longest * size_of::<T>() as u32,
            args,
        };
        let far_rows = "stored row of each row of the ER part";
        let far_rows = arrays.add("far_rows", far_rows, &self.far_rows);
        let mut args = vec![Arg::U32(self.far_rows.len() as u32), far_rows, order];
        let starts = "first slot of each slice of the ER part, and the end";
        args.extend(arrays.add_offsets("far_ptr", starts, &self.far.ptr));
        let far = arrays.add_values("far_values", OF_VALUES, &self.far.values);
        let columns = "column of each slot; 2^32 - 1 for padding";
        args.extend([arrays.add("far_col", columns, &self.far.columns), far]);
        args.extend([Arg::X, Arg::Y, Arg::Alpha]);
        let threads = self.far_rows.len().next_multiple_of(WARP) as u64;
        let rest = Launch::over("ehyb", format!("ehyb_rest_{name}"), threads, 256, args);
        let mut described = arrays.on_device(near, vec![part, rest]);
        if let Arg::Array(far) = far {
            described.values.push(far);
        }
        Some(described)
    }
}

/// Meaning of the values of both parts.
const OF_VALUES: &str = "value of each slot; 0 for padding";

/// Threads of a block that multiplies a part.
const BLOCK: u32 = 1024;
