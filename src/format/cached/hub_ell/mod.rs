//! Hub-cached ELLPACK: x of the hubs, the columns with the most entries, is kept in shared memory.
//!
//! ```text
//!     | 4 . 1 . |      hubs = 0 (two entries)    places in shared memory = 0
//!     | . 5 . . |      hub part:  4 (row 0), 2 (row 3)          columns = 0 | 0, counted in hubs
//!     | . . . . |      rest:      1 (row 0), 5 (row 1), 6 (row 3)    columns = 2 | 1 | 3
//!     | 2 . . 6 |      rows, longest hub part first = 0 3 1
//! ```
//!
//! Both parts are sliced ELLPACK with slices of 32 rows; the hub part has 16-bit columns counted in
//! hubs, the rest has 32-bit columns. One lane per row processes both parts together. Rows are
//! sorted by descending length of the hub part, then of the rest. Rows with more than `piece`
//! entries in either part are cut into pieces, whose sums are added up; empty rows have no piece.
//! One block of threads runs per processor, and each block holds all hubs. Shared memory and L1
//! cache share the same storage, and pending loads need room in the L1 cache: too many hubs slow
//! the other loads down.
//!
//! Padding: value 0; stored but not read.
//! Good for: graphs with few columns that many rows refer to.
//! Bad for: meshes, which have no such columns; refused where hubs hold less than a quarter of the
//! entries.

mod columns;
mod gpu;
mod pieces;

use std::collections::HashMap;
use std::sync::Arc;

use ellect_kernels::shared;
use rayon::prelude::*;

use super::gpu::launch::Arrays;
use super::part_slices::PartSlices;
use super::row_order::WARP;
use super::{
    Arg, GpuConverter, GpuLayout, Layout, OnDevice, Param, Params, Refusal, Stop, Storage, Target,
    Value, Work, bytes_of, store,
};
use crate::analysis::Analysis;
use crate::csr::{Csr, CsrRef, Pattern, accumulate, offsets};
use crate::par::{self, Scratch};
use crate::scalar::Scalar;
pub use columns::HubColumns;
use pieces::{HubEllSize, RowPiece};

/// See the module.
#[derive(Debug)]
pub struct HubEllFormat;

/// Hubs must hold at least one entry in this many.
const LEAST_SHARE: u64 = 4;

/// Marks pieces of a row that has several pieces.
const SPLIT: u32 = shared("HUB_ELL_SPLIT") as u32;

/// Threads per block.
const BLOCK: u32 = 1024;

impl Storage for HubEllFormat {
    const NAME: &'static str = "hub_ell";
    const ALIASES: &'static [&'static str] = &["hubs"];
    const TITLE: &'static str = "hub-cached ELLPACK";
    const SOURCE: &'static str = "the explicit caching of C. Chen, Explicit caching HYB: a new \
        high-performance SpMV framework on GPGPU (2022), section 3, of the fullest columns in \
        place of a partition's";
    const SUITS: &'static str = "graphs with few columns that many rows refer to; bad for meshes";
    const PARAMS: &'static [Param] = &[
        Param {
            name: "kib",
            doc: "KiB of a processor's shared memory for hubs; the rest is its cache",
            values: &[Value::Int(162), Value::Int(130), Value::Int(194)],
            gpu: &[Value::Int(130), Value::Int(162), Value::Int(194)],
            host: &[],
        },
        Param {
            name: "piece",
            doc: "maximum number of entries of a row that one lane processes in either part",
            values: &[Value::Int(64), Value::Int(16), Value::Int(32), Value::Int(128)],
            gpu: &[Value::Int(16), Value::Int(32), Value::Int(64)],
            host: &[],
        },
    ];

    type Layout<T: Scalar> = HubEll<T>;

    fn work(
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<Work, Refusal> {
        let pattern = analysis.pattern();
        check_rows(pattern.nrows())?;
        let most = most_hubs(params, target);
        let (hubs, covered) = analysis.hub_entries(most);
        check_share(hubs, covered, pattern.nnz() as u64)?;
        let piece = params.int("piece");
        let size = HubEllSize::of(&analysis.hub_rows(most), piece);
        let steps = piece.min(analysis.max_length()) as f64;
        let (nrows, nnz) = (pattern.nrows() as u64, pattern.nnz() as u64);
        let w = target.precision.bytes() as u64;
        let [near, far] = size.slots;
        let bytes = size.bytes(hubs, w as usize);
        let blocks = u64::from(target.device.processors);
        let cached = w * hubs as u64;
        Ok(Work {
            layout_bytes: bytes,
            stream_bytes: bytes,
            entries: near + far,
            // Each block loads the hubs once; every other entry loads at worst a sector of its own.
            x_sectors: (blocks * cached / 32 + (nnz - covered.min(nnz))) as f64,
            extra_bytes: 2 * cached,
            scattered_rows: nrows,
            steps: (near + far) / WARP as u64,
            tile_steps: steps,
            tile_steps_most: steps,
            launches: 2,
            convert_bytes: 8 * nrows + 2 * (4 + w) * nnz + bytes,
            sorted_keys: nrows,
            ..Work::default()
        })
    }

    fn convert<T: Scalar>(
        csr: CsrRef<'_, T>,
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<HubEll<T>, Refusal> {
        let hubs = hubs(analysis, params, target)?;
        Ok(HubEll::new(csr, &hubs, params.int("piece"), target.device.processors))
    }

    fn build(
        converter: &mut dyn GpuConverter,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<GpuLayout, Stop> {
        gpu::build(converter, params, target)
    }
}

/// The hubs of a matrix.
///
/// # Errors
/// [`Refusal`] where they hold too small a share of its entries.
fn hubs(
    analysis: &Analysis<'_>,
    params: &Params,
    target: &Target<'_>,
) -> Result<Arc<HubColumns>, Refusal> {
    let pattern = analysis.pattern();
    check_rows(pattern.nrows())?;
    let hubs = analysis.hubs(most_hubs(params, target));
    check_share(hubs.columns.len(), hubs.covered, pattern.nnz() as u64)?;
    Ok(hubs)
}

/// The maximum number of hubs that a block of threads holds.
fn most_hubs(params: &Params, target: &Target<'_>) -> u16 {
    let room =
        (1024 * params.int("kib") as u64).min(target.device.shared_bytes.saturating_sub(1024));
    (room / target.precision.bytes() as u64).min(u64::from(u16::MAX) - 1) as u16
}

fn check_rows(nrows: usize) -> Result<(), Refusal> {
    if nrows >= SPLIT as usize {
        return Err(Refusal::new(format!(
            "the matrix has {nrows} rows; at most {} are allowed",
            SPLIT - 1
        )));
    }
    Ok(())
}

/// Refuses hubs that hold too few of the `nnz` entries.
fn check_share(hubs: usize, covered: u64, nnz: u64) -> Result<(), Refusal> {
    if hubs == 0 {
        return Err(Refusal::new("the device has no shared memory for x of the fullest columns"));
    }
    if covered * LEAST_SHARE < nnz {
        return Err(Refusal::new(format!(
            "the {hubs} fullest columns hold {covered} of {nnz} entries; {} are needed",
            nnz.div_ceil(LEAST_SHARE)
        )));
    }
    Ok(())
}

/// The arrays of a matrix with cached hubs.
#[derive(Debug)]
pub struct HubEll<T> {
    nrows: usize,
    ncols: usize,
    /// Column of each hub, in descending order of entries.
    hubs: Vec<u32>,
    /// Rows with several pieces or none: their y is scaled before sums are added.
    scaled: Vec<u32>,
    /// The row of each piece, marked with [`SPLIT`] where the row has other pieces.
    rows: Vec<u32>,
    near_lengths: Vec<u16>,
    far_lengths: Vec<u16>,
    near: PartSlices<T, u16>,
    far: PartSlices<T, u32>,
    /// Number of GPU thread blocks.
    blocks: u32,
    sums: Scratch<T>,
}

/// Returns the pieces of all rows, longest first; pieces of equal lengths keep their order.
/// `near` holds the number of entries of each row that lie in hubs.
fn sorted_pieces(pattern: Pattern<'_>, near: &[u32], longest: usize) -> Vec<RowPiece> {
    let mut pieces: Vec<RowPiece> = (0..pattern.nrows())
        .flat_map(|row| {
            let length = pattern.row(row).len() as u32;
            RowPiece::of_row(row as u32, [near[row], length - near[row]], longest)
        })
        .collect();
    pieces.par_sort_by_key(|piece| std::cmp::Reverse(piece.lengths()));
    pieces
}

impl<T: Scalar> HubEll<T> {
    fn new(csr: CsrRef<'_, T>, hubs: &HubColumns, longest: usize, blocks: u32) -> Self {
        let near = hubs.near(csr.pattern());
        let pieces = sorted_pieces(csr.pattern(), near, longest);
        let mut pieces_of = vec![0u32; csr.nrows()];
        pieces.iter().for_each(|piece| pieces_of[piece.row as usize] += 1);
        let scaled = (0..csr.nrows() as u32).filter(|&row| pieces_of[row as usize] != 1).collect();
        let lengths: Vec<_> = pieces.iter().map(RowPiece::lengths).collect();
        let ptr = |part: usize| {
            let longest = |slice: &[[u16; 2]]| slice.iter().map(|l| l[part]).max().unwrap_or(0);
            offsets(lengths.chunks(WARP).map(|slice| WARP * usize::from(longest(slice))))
        };
        let mut layout = HubEll {
            nrows: csr.nrows(),
            ncols: csr.ncols(),
            rows: Vec::with_capacity(pieces.len()),
            near_lengths: lengths.iter().map(|length| length[0]).collect(),
            far_lengths: lengths.iter().map(|length| length[1]).collect(),
            near: PartSlices::new(&ptr(0), 0),
            far: PartSlices::new(&ptr(1), 0),
            hubs: hubs.columns.clone(),
            scaled,
            blocks,
            sums: Scratch::default(),
        };
        let places = hubs.places(csr.pattern());
        // The pieces of each split row, in order.
        let mut parts: HashMap<u32, Vec<usize>> = HashMap::new();
        for (i, piece) in pieces.iter().enumerate() {
            if pieces_of[piece.row as usize] == 1 {
                layout.rows.push(piece.row);
                continue;
            }
            layout.rows.push(piece.row | SPLIT);
            let number = piece.number(longest);
            let parts = parts.entry(piece.row).or_default();
            parts.resize(parts.len().max(number + 1), 0);
            parts[number] = i;
        }
        for (i, piece) in pieces.iter().enumerate() {
            match parts.get(&piece.row) {
                None => layout.place(csr, places, longest, piece.row, &[i]),
                Some(parts) if parts[0] == i => {
                    layout.place(csr, places, longest, piece.row, parts)
                }
                Some(_) => {}
            }
        }
        layout
    }

    /// Writes the entries of a row to the slots of its pieces.
    fn place(
        &mut self,
        csr: CsrRef<'_, T>,
        places: &[u16],
        longest: usize,
        row: u32,
        pieces: &[usize],
    ) {
        let (columns, values) = csr.row(row as usize);
        let (mut near, mut far) = (0, 0);
        for (&column, &value) in columns.iter().zip(values) {
            match places[column as usize] {
                u16::MAX => {
                    let slot = self.far.slot(pieces[far / longest], far % longest);
                    (self.far.columns[slot], self.far.values[slot]) = (column, value);
                    far += 1;
                }
                place => {
                    let slot = self.near.slot(pieces[near / longest], near % longest);
                    (self.near.columns[slot], self.near.values[slot]) = (place, value);
                    near += 1;
                }
            }
        }
    }

    /// Row pointers, and column and slot of each entry in the order of the CSR matrix. Slots of the
    /// rest are numbered after those of the hub part.
    fn entries(&self) -> (Vec<usize>, Vec<(u32, usize)>) {
        let row = |i: usize| (self.rows[i] & !SPLIT) as usize;
        let mut row_ptr = vec![0; self.nrows + 1];
        let mut piece_ptr = row_ptr.clone();
        for (i, (&near, &far)) in self.near_lengths.iter().zip(&self.far_lengths).enumerate() {
            row_ptr[row(i) + 1] += usize::from(near) + usize::from(far);
            piece_ptr[row(i) + 1] += 1;
        }
        accumulate(&mut row_ptr);
        accumulate(&mut piece_ptr);
        // The lengths of a row's pieces never increase, so the layout keeps them in order.
        let mut next = piece_ptr.clone();
        let mut pieces = vec![0u32; self.rows.len()];
        for i in 0..self.rows.len() {
            pieces[next[row(i)]] = i as u32;
            next[row(i)] += 1;
        }
        let near_of = |&i: &u32| {
            (0..usize::from(self.near_lengths[i as usize])).map(move |k| {
                let slot = self.near.slot(i as usize, k);
                (self.hubs[usize::from(self.near.columns[slot])], slot)
            })
        };
        let far_of = |&i: &u32| {
            (0..usize::from(self.far_lengths[i as usize])).map(move |k| {
                let slot = self.far.slot(i as usize, k);
                (self.far.columns[slot], self.near.values.len() + slot)
            })
        };
        let mut entries = vec![(0, 0); row_ptr[self.nrows]];
        par::for_each(&mut par::slices_mut(&mut entries, &row_ptr), 1, |row, entries| {
            // Columns ascend in both parts.
            let pieces = &pieces[piece_ptr[row]..piece_ptr[row + 1]];
            let mut near = pieces.iter().flat_map(near_of).peekable();
            let mut far = pieces.iter().flat_map(far_of).peekable();
            for entry in entries.iter_mut() {
                let is_near = match (near.peek(), far.peek()) {
                    (Some((near, _)), Some((far, _))) => near < far,
                    (near, _) => near.is_some(),
                };
                let next = if is_near { near.next() } else { far.next() };
                *entry = next.unwrap_or_default();
            }
        });
        (row_ptr, entries)
    }
}

impl<T: Scalar> Layout<T> for HubEll<T> {
    fn apply(&self, alpha: T, x: &[T], beta: T, y: &mut [T]) {
        self.sums.with(self.rows.len(), |sums| {
            par::for_each(sums, WARP, |i, sum| {
                *sum = T::ZERO;
                for k in 0..usize::from(self.near_lengths[i]) {
                    let slot = self.near.slot(i, k);
                    let column = self.hubs[usize::from(self.near.columns[slot])];
                    *sum += self.near.values[slot] * x[column as usize];
                }
                for k in 0..usize::from(self.far_lengths[i]) {
                    let slot = self.far.slot(i, k);
                    *sum += self.far.values[slot] * x[self.far.columns[slot] as usize];
                }
            });
            for &row in &self.scaled {
                store(&mut y[row as usize], alpha, T::ZERO, beta);
            }
            for (&row, &sum) in self.rows.iter().zip(&*sums) {
                if row & SPLIT == 0 {
                    store(&mut y[row as usize], alpha, sum, beta);
                } else {
                    y[(row & !SPLIT) as usize] += alpha * sum;
                }
            }
        });
    }

    fn bytes(&self) -> u64 {
        bytes_of(&self.hubs)
            + bytes_of(&self.scaled)
            + bytes_of(&self.rows)
            + bytes_of(&self.near_lengths)
            + bytes_of(&self.far_lengths)
            + self.near.bytes()
            + self.far.bytes()
    }

    fn set_values(&mut self, values: &[T]) {
        let (_, entries) = self.entries();
        let near = self.near.values.len();
        let put = |slots: &mut [T], first: usize| {
            for (&(_, slot), &value) in entries.iter().zip(values) {
                if let Some(slot) = slot.checked_sub(first).and_then(|at| slots.get_mut(at)) {
                    *slot = value;
                }
            }
        };
        let (near_values, far_values) = (&mut self.near.values, &mut self.far.values);
        par::join(|| put(near_values, 0), || put(far_values, near));
    }

    fn to_csr(&self) -> Csr<T> {
        let (row_ptr, entries) = self.entries();
        let near = self.near.values.len();
        let value = |slot: usize| match slot.checked_sub(near) {
            None => self.near.values[slot],
            Some(slot) => self.far.values[slot],
        };
        let (columns, values) = entries.into_iter().map(|(c, slot)| (c, value(slot))).unzip();
        Csr::new(self.nrows, self.ncols, row_ptr, columns, values)
            .expect("a layout is made from a valid matrix")
    }

    fn on_device(&self) -> Option<OnDevice<'_>> {
        let mut arrays = Arrays::default();
        let lists = [
            arrays.add("hubs", "column of each hub", &self.hubs),
            arrays.add("scaled_rows", "rows with several pieces or none", &self.scaled),
        ];
        let lengths = "entries of each piece";
        let starts = "first slot of each slice of 32 pieces, and the end";
        let columns = "place in hubs of the column of each slot";
        let near = gpu::PartArgs {
            starts: arrays.add_offsets("near_ptr", starts, &self.near.ptr),
            lengths: arrays.add("near_lengths", lengths, &self.near_lengths),
            columns: arrays.add("near_col", columns, &self.near.columns),
            values: arrays.add_values("near_values", "value of each slot", &self.near.values),
        };
        let far = gpu::PartArgs {
            starts: arrays.add_offsets("far_ptr", starts, &self.far.ptr),
            lengths: arrays.add("far_lengths", lengths, &self.far_lengths),
            columns: arrays.add("far_col", "column of each slot", &self.far.columns),
            values: arrays.add_values("far_values", "value of each slot", &self.far.values),
        };
        let of_rows = "row of each piece; + 2^31 if the row has other pieces";
        let plan = gpu::HubEllPlan {
            counts: [self.hubs.len(), self.scaled.len(), self.rows.len()],
            lists,
            parts: [near, far],
            rows: arrays.add("piece_rows", of_rows, &self.rows),
            blocks: self.blocks,
        };
        let (launches, scratch) = plan.launches(T::PRECISION);
        let mut described = arrays.on_device(near.values, launches);
        let Arg::Array(far) = far.values else { unreachable!("values are an array") };
        described.values.push(far);
        described.scratch = scratch;
        Some(described)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate;

    #[test]
    fn sizes_are_computed_without_cutting_the_pieces() {
        for csr in [generate::rmat(3000, 16, 1), generate::circuit(2000, 1)] {
            let analysis = Analysis::of(&csr);
            let hubs = analysis.hubs(100);
            for longest in [1, 2, 16, 64] {
                let size = HubEllSize::of(hubs.rows(csr.pattern()), longest);
                let mut layout = HubEll::new(csr.as_ref(), &hubs, longest, 1);
                let slots = [layout.near.values.len(), layout.far.values.len()];
                let (pieces, scaled) = (layout.rows.len(), layout.scaled.len());
                let made = HubEllSize { pieces, scaled, slots: slots.map(|n| n as u64) };
                assert_eq!(size, made, "pieces of {longest}");
                assert_eq!(layout.to_csr(), csr);
                let other = csr.map_values(|value| value + 1.0);
                layout.set_values(other.values());
                assert_eq!(layout.to_csr(), other);
            }
        }
    }
}
