//! ST-CSR, sorted-tile CSR: the tiles of PCSR, with the entries of each sorted by column.
//!
//! ```text
//!     | 4 . 1 . |      tile = 4 entries         tiles, sorted    = 4 5 1 | 2 6
//!     | . 5 . . |                               columns          = 0 1 2 | 0 3
//!     | . . . . |      ends of rows = 2 3 3 | 2 places in tile   = 0 2 1 | 0 1
//!     | 2 . . 6 |    last of row = 0 1 1 . | 0 1
//! ```
//!
//! A product forms `values * x[column]` in the order of columns, puts each result in its place
//! among the rows in shared memory, and sums rows there. So the lanes of a warp read x side by side,
//! whatever the order of rows: entries of a tile that share a column, or a line of x, ask for it
//! once. Column and place take 32 bits together, as a column alone does in CSR: as many for the
//! place as the tile needs, 10 to 12, the others for the distance from the first column of 128
//! sorted entries.
//!
//! Each thread sums as many products as every other, whatever rows they are of: a bit an entry says
//! where a row ends. Places are those of shared memory, where the pieces of 16 bytes that a thread
//! sums are in another order in every other group of threads, lest their banks conflict.
//!
//! Entries of a tile go in groups of 4, a group a thread. In 32 groups, sorted entry `32 c + l` is
//! number `c` of group `l`: each step of a warp takes 32 neighbours. In double precision the first
//! two values of all 32 groups come before the other two.
//!
//! Padding: up to 3 times the last entry again, in its own place; a group of zeros that no row sums
//! where a tile has no entry. Good for: unstructured meshes,
//! circuits and graphs, rows of every length. Bad for: stencils and blocks, whose columns need not
//! be stored; one product, since tiles must be sorted.

mod gpu;

use std::ops::Range;

use rayon::prelude::*;

use super::launch::Arrays;
use super::tiles::Tiles;
use super::{
    Builder, Built, Layout, OnDevice, Param, Params, Refusal, Stop, Storage, Target, Value, Work,
    bytes_of, store,
};
use crate::csr::Csr;
use crate::par::{Scratch, slices_mut};
use crate::scalar::Scalar;
use crate::structure::{Structure, Walk};

/// See the module.
#[derive(Debug)]
pub struct StcsrFormat;

/// Entries of a group.
const GROUP: usize = 4;

/// Entries that share a first column: a group a lane of a warp.
const STEP: usize = 32 * GROUP;

/// Bits of a packed entry that hold its place.
fn place_bits(tile: usize) -> u32 {
    tile.ilog2()
}

/// Entries that a thread sums: `OWN` of the kernels.
const OWN: usize = 8;

/// Where in shared memory the entry `at` of a tile lies, of so many bytes; and the entry that lies
/// in a place. `placed` of the kernels.
fn placed(at: usize, bytes: usize) -> usize {
    let piece = 16 / bytes;
    at ^ (at / (8 * piece) % (OWN / piece) * piece)
}

/// Where among the values of a tile that of a slot is, each of so many bytes: `pair_at` of the
/// kernels.
fn value_at(slot: usize, slots: usize, bytes: usize) -> usize {
    if bytes == 4 {
        return slot;
    }
    let step = slot / STEP * STEP;
    let lanes = (slots - step).min(STEP) / GROUP;
    let (group, c) = ((slot - step) / GROUP, slot % GROUP);
    step + 2 * (c / 2 * lanes + group) + c % 2
}

/// The most columns from the first of a step to its last.
fn most_span(tile: usize) -> u32 {
    1 << (u32::BITS - place_bits(tile))
}

impl Storage for StcsrFormat {
    const NAME: &'static str = "stcsr";
    const TITLE: &'static str = "ST-CSR, sorted-tile CSR";
    const SOURCE: &'static str = "the tiles of G. He, J. Gao, A Novel CSR-Based Sparse \
        Matrix-Vector Multiplication on GPUs (2016), section 3; sorting them by column is our own";
    const SUITS: &'static str = "unstructured meshes, circuits, graphs, rows of every length; bad \
        for stencils and blocks";
    const PARAMS: &'static [Param] = &[Param {
        name: "tile",
        doc: "the most entries that are sorted together, by a block of threads",
        values: &[Value::Int(1024), Value::Int(2048), Value::Int(4096)],
        gpu: &[Value::Int(1024), Value::Int(2048), Value::Int(4096)],
        host: &[],
    }];

    type Layout<T: Scalar> = StcsrLayout<T>;

    fn work(
        structure: &Structure<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<Work, Refusal> {
        let pattern = structure.pattern();
        let (nrows, nnz) = (pattern.nrows() as u64, pattern.nnz() as u64);
        let w = target.precision.bytes() as u64;
        let tile = params.int("tile");
        if nnz == 0 {
            return Err(Refusal::new("0 entries, 1 is needed".to_string()));
        }
        let tiles = structure.tiles(tile);
        let count = tiles.rows.len() as u64 - 1;
        let groups = groups(&tiles)?;
        let slots = (GROUP * groups[groups.len() - 1]) as u64;
        let bases = 4 * count * (tile / STEP) as u64;
        let (ends, lasts) = (2 * (nrows + 2 * count), count * (tile / 8) as u64);
        let bytes = 16 * count + ends + lasts + bases + slots * (4 + w);
        let splits = structure.max_length() > tile;
        let (tile_steps, tile_steps_most) = tiles.turns(tile / OWN);
        Ok(Work {
            layout_bytes: bytes,
            stream_bytes: bytes,
            entries: slots,
            x_sectors: structure.x_sectors(Walk::Sorted { tile }, target.precision),
            x_loaded: structure.x_loaded(Walk::Sorted { tile }, target),
            steps: nnz.div_ceil(32),
            tile_steps,
            tile_steps_most,
            launches: 1 + u32::from(splits),
            convert_bytes: nnz * (4 + w) + bytes,
            sorted_keys: nnz,
            ..Work::default()
        })
    }

    fn convert<T: Scalar>(
        csr: &Csr<T>,
        _structure: &Structure<'_>,
        params: &Params,
        _target: &Target<'_>,
    ) -> Result<StcsrLayout<T>, Refusal> {
        StcsrLayout::new(csr, params.int("tile"))
    }

    fn build(
        builder: &mut dyn Builder,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<Built, Stop> {
        gpu::build(builder, params, target)
    }
}

/// Where the groups of each tile start, and end.
fn groups(tiles: &Tiles) -> Result<Vec<usize>, Refusal> {
    let mut starts = vec![0];
    for tile in tiles.entries.windows(2) {
        starts.push(starts[starts.len() - 1] + (tile[1] - tile[0]).div_ceil(GROUP).max(1));
    }
    let count = starts[starts.len() - 1];
    if u32::try_from(count).is_err() {
        return Err(Refusal::new(format!("{count} groups of 4 entries, {} are allowed", u32::MAX)));
    }
    Ok(starts)
}

fn too_wide(span: u64, tile: usize) -> Refusal {
    Refusal::new(format!(
        "128 sorted entries of a tile reach over {span} columns, {} are allowed",
        most_span(tile)
    ))
}

/// The arrays of a matrix in sorted tiles.
#[derive(Debug)]
pub struct StcsrLayout<T> {
    nrows: usize,
    ncols: usize,
    nnz: usize,
    /// The most entries of a tile.
    tile: usize,
    /// Of each tile: first group, first row that begins in it, rows that begin in it and groups
    /// (`<< 16`), entries of the row that began before it.
    tiles: Vec<[u32; 4]>,
    /// Of each tile 0, the end of the row that began before it, and the ends of its own rows,
    /// counted in its entries: `rows + 2` numbers.
    ends: Vec<u16>,
    /// Whether each entry, in the order of CSR, is the last of its row in its tile: a bit each,
    /// `tile / 8` bytes for each tile.
    lasts: Vec<u8>,
    /// Column less that of `bases`, in the upper bits, and place in the tile.
    packed: Vec<u32>,
    /// First column of every 32 groups, `tile / 128` for each tile; past its last group, the same
    /// again.
    bases: Vec<u32>,
    values: Vec<T>,
    scratch: Scratch<T>,
}

impl<T: Scalar> StcsrLayout<T> {
    fn new(csr: &Csr<T>, tile: usize) -> Result<Self, Refusal> {
        let tiles = Tiles::of(csr.pattern(), tile);
        let count = tiles.rows.len() - 1;
        let groups = groups(&tiles)?;
        let steps = tile / STEP;
        let cut = |each: &dyn Fn(usize) -> usize| (0..=count).map(each).collect::<Vec<_>>();
        let (slot_cuts, end_cuts) =
            (cut(&|t| GROUP * groups[t]), cut(&|t| tiles.rows[t] as usize + 2 * t));
        let slots = slot_cuts[count];
        let mut ends = vec![0u16; end_cuts[count]];
        let (mut packed, mut values) = (vec![0u32; slots], vec![T::ZERO; slots]);
        let mut bases = vec![0u32; count * steps];
        let mut lasts = vec![0u8; count * (tile / 8)];
        let row_ptr = csr.row_ptr();
        let widest = slices_mut(&mut packed, &slot_cuts)
            .into_par_iter()
            .zip(slices_mut(&mut values, &slot_cuts))
            .zip(slices_mut(&mut ends, &end_cuts))
            .zip(bases.par_chunks_mut(steps.max(1)))
            .zip(lasts.par_chunks_mut(tile / 8))
            .enumerate()
            .map(|(t, ((((packed, values), ends), bases), lasts))| {
                let (start, end) = (tiles.entries[t], tiles.entries[t + 1]);
                let rows = tiles.rows[t] as usize..=tiles.rows[t + 1] as usize;
                for (slot, &row_end) in ends[1..].iter_mut().zip(&row_ptr[rows]) {
                    let to = row_end.min(end) - start;
                    *slot = to as u16;
                    if let Some(last) = to.checked_sub(1) {
                        lasts[last / 8] |= 1 << (last % 8);
                    }
                }
                let columns = &csr.col_idx()[start..end];
                let mut sorted: Vec<(u32, usize)> = columns.iter().copied().zip(0..).collect();
                sorted.sort_unstable();
                // Padding repeats the last entry.
                sorted.resize(packed.len(), sorted.last().copied().unwrap_or_default());
                let mut widest = 0;
                // Steps past the last entry have the base of the last.
                let last = sorted.len().saturating_sub(1) / STEP;
                for (step, base) in bases.iter_mut().enumerate() {
                    let from = step.min(last) * STEP;
                    *base = sorted[from].0;
                    widest = widest.max(sorted[(from + STEP).min(sorted.len()) - 1].0 - *base);
                }
                let slots = packed.len();
                for (slot, packed) in packed.iter_mut().enumerate() {
                    if columns.is_empty() {
                        break;
                    }
                    let (column, place) = sorted[nth(slot, sorted.len())];
                    let column = column - first_of(&sorted, slot);
                    *packed = column << place_bits(tile) | placed(place, size_of::<T>()) as u32;
                    values[value_at(slot, slots, size_of::<T>())] = csr.values()[start + place];
                }
                widest
            })
            .max()
            .unwrap_or(0);
        if widest >= most_span(tile) {
            return Err(too_wide(u64::from(widest) + 1, tile));
        }
        let headers = (0..count).map(|t| {
            let rows = tiles.rows[t + 1] - tiles.rows[t];
            let head = (row_ptr[tiles.rows[t] as usize].min(tiles.entries[t + 1]))
                .saturating_sub(tiles.entries[t]);
            let held = (groups[t + 1] - groups[t]) as u32;
            [groups[t] as u32, tiles.rows[t], rows | held << 16, head as u32]
        });
        Ok(StcsrLayout {
            nrows: csr.nrows(),
            ncols: csr.ncols(),
            nnz: csr.nnz(),
            tile,
            tiles: headers.collect(),
            ends,
            lasts,
            packed,
            bases,
            values,
            scratch: Scratch::default(),
        })
    }

    /// What is known of tile `t`: slots, none where it has no entry, rows, and its numbers in
    /// `ends`.
    fn parts(&self, t: usize) -> (Range<usize>, Range<usize>, &[u16]) {
        let [group, first, counts, _] = self.tiles[t];
        let (first, rows) = (first as usize, (counts & 0xffff) as usize);
        let ends = &self.ends[first + 2 * t..][..rows + 2];
        let groups = if ends[rows + 1] == 0 { 0 } else { (counts >> 16) as usize };
        let slot = GROUP * group as usize;
        (slot..slot + GROUP * groups, first..first + rows, ends)
    }

    /// First entry of each tile in the CSR arrays.
    fn starts(&self) -> Vec<usize> {
        let mut starts = vec![0];
        for t in 0..self.tiles.len() {
            let (_, _, ends) = self.parts(t);
            starts.push(starts[t] + usize::from(ends[ends.len() - 1]));
        }
        starts
    }

    /// Column and number in the tile of the entry in a slot of tile `t`.
    fn entry(&self, t: usize, first_slot: usize, slot: usize) -> (u32, usize) {
        let step = (slot - first_slot) / STEP;
        let base = self.bases[t * (self.tile / STEP) + step];
        let packed = self.packed[slot];
        let place = packed as usize & (self.tile - 1);
        (base + (packed >> place_bits(self.tile)), placed(place, size_of::<T>()))
    }

    /// The value of the entry in one of the slots of a tile.
    fn value(&self, slots: &Range<usize>, slot: usize) -> T {
        self.values[slots.start + value_at(slot - slots.start, slots.len(), size_of::<T>())]
    }
}

/// Which of `len` sorted entries is in a slot.
fn nth(slot: usize, len: usize) -> usize {
    let step = slot / STEP * STEP;
    let lanes = ((len - step) / GROUP).min(STEP / GROUP);
    let (lane, c) = ((slot - step) / GROUP, slot % GROUP);
    step + c * lanes + lane
}

/// First column of the step that a slot is in.
fn first_of(sorted: &[(u32, usize)], slot: usize) -> u32 {
    sorted[slot / STEP * STEP].0
}

impl<T: Scalar> Layout<T> for StcsrLayout<T> {
    fn apply(&self, alpha: T, x: &[T], beta: T, y: &mut [T]) {
        let starts = self.starts();
        let rows: Vec<usize> = self.tiles.iter().map(|tile| tile[1] as usize).collect();
        let cuts: Vec<usize> = rows.iter().copied().chain([self.nrows]).collect();
        self.scratch.with(self.nnz + self.tiles.len(), |scratch| {
            let (products, heads) = scratch.split_at_mut(self.nnz);
            slices_mut(products, &starts)
                .into_par_iter()
                .zip(slices_mut(y, &cuts))
                .zip(&mut *heads)
                .enumerate()
                .for_each(|(t, ((products, y), head))| {
                    let (slots, _, ends) = self.parts(t);
                    for slot in slots.clone() {
                        let (column, place) = self.entry(t, slots.start, slot);
                        products[place] = self.value(&slots, slot) * x[column as usize];
                    }
                    let sum = |ends: &[u16]| {
                        let items = &products[usize::from(ends[0])..usize::from(ends[1])];
                        items.iter().fold(T::ZERO, |mut sum, &product| {
                            sum += product;
                            sum
                        })
                    };
                    *head = sum(ends);
                    for (y, ends) in y.iter_mut().zip(ends[1..].windows(2)) {
                        store(y, alpha, sum(ends), beta);
                    }
                });
            for (&[_, first, _, begun], &head) in self.tiles.iter().zip(&*heads) {
                if begun > 0 {
                    y[first as usize - 1] += alpha * head;
                }
            }
        });
    }

    fn bytes(&self) -> u64 {
        bytes_of(&self.tiles)
            + bytes_of(&self.ends)
            + bytes_of(&self.lasts)
            + bytes_of(&self.packed)
            + bytes_of(&self.bases)
            + bytes_of(&self.values)
    }

    fn set_values(&mut self, values: &[T]) {
        let starts = self.starts();
        for t in 0..self.tiles.len() {
            let (slots, _, _) = self.parts(t);
            for slot in slots.clone() {
                let (_, place) = self.entry(t, slots.start, slot);
                let to = slots.start + value_at(slot - slots.start, slots.len(), size_of::<T>());
                self.values[to] = values[starts[t] + place];
            }
        }
    }

    fn to_csr(&self) -> Csr<T> {
        let starts = self.starts();
        let mut row_ptr = vec![self.nnz; self.nrows + 1];
        let mut columns = vec![0; self.nnz];
        let mut values = vec![T::ZERO; self.nnz];
        for (t, &start) in starts[..self.tiles.len()].iter().enumerate() {
            let (slots, rows, ends) = self.parts(t);
            for (row_ptr, &before) in row_ptr[rows].iter_mut().zip(&ends[1..]) {
                *row_ptr = start + usize::from(before);
            }
            for slot in slots.clone() {
                let (column, place) = self.entry(t, slots.start, slot);
                (columns[start + place], values[start + place]) =
                    (column, self.value(&slots, slot));
            }
        }
        Csr::new(self.nrows, self.ncols, row_ptr, columns, values)
            .expect("a layout is made from a valid matrix")
    }

    fn on_device(&self) -> Option<OnDevice<'_>> {
        let mut arrays = Arrays::default();
        let plan = gpu::Plan {
            tile: self.tile,
            tiles: self.tiles.len() as u64,
            splits: self.tiles.iter().any(|tile| tile[3] > 0),
            arrays: [
                arrays.add(&self.tiles),
                arrays.add(&self.ends),
                arrays.add(&self.lasts),
                arrays.add(&self.packed),
                arrays.add(&self.bases),
                arrays.add(&self.values),
            ],
        };
        let [.., values] = plan.arrays;
        let mut described = arrays.on_device(values, plan.launches(T::PRECISION));
        described.scratch = vec![size_of::<T>() as u64 * plan.tiles];
        Some(described)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_a_tile_go_by_column_and_know_their_place() {
        // The example of the module, as two tiles.
        let csr =
            Csr::new(4, 4, vec![0, 2, 3, 3, 5], vec![0, 2, 1, 0, 3], vec![4.0, 1.0, 5.0, 2.0, 6.0])
                .expect("valid");
        let layout = StcsrLayout::new(&csr, 128).expect("narrow");
        assert_eq!(layout.tiles, [[0, 0, 4 | 2 << 16, 0]]);
        assert_eq!(layout.ends, [0, 0, 2, 3, 3, 5]);
        assert_eq!(layout.lasts, [[0b10110].as_slice(), &[0; 15]].concat());
        // Two lanes: sorted entries 0 and 1 are number 0 of both groups, and so on; the last is
        // repeated.
        let entries: Vec<_> = (0..8).map(|slot| layout.entry(0, 0, slot)).collect();
        let sorted = [(0, 0), (0, 3), (1, 2), (2, 1), (3, 4), (3, 4), (3, 4), (3, 4)];
        let dealt = [0, 2, 4, 6, 1, 3, 5, 7].map(|i| sorted[i]);
        assert_eq!(entries, dealt);
        assert_eq!(layout.to_csr(), csr);
    }

    #[test]
    fn columns_too_far_apart_are_refused_with_their_span() {
        let two = |first, last| {
            Csr::new(1, 1 << 23, vec![0, 2], vec![first, last], vec![1.0, 1.0]).expect("valid")
        };
        let refusal = StcsrLayout::new(&two(0, 1 << 22), 1024).expect_err("too wide").to_string();
        assert!(refusal.contains("4194305"), "{refusal}");
        let narrow = two(1, 1 << 22);
        assert_eq!(StcsrLayout::new(&narrow, 1024).expect("narrow").to_csr(), narrow);
        assert!(StcsrLayout::new(&narrow, 2048).is_err());
    }

    #[test]
    fn places_are_distinct_and_lead_back_to_their_entries() {
        for bytes in [4, 8] {
            for at in 0..1024 {
                assert!(placed(at, bytes) < 1024);
                assert_eq!(placed(placed(at, bytes), bytes), at);
            }
            // Eight threads find their first 16 bytes in different banks.
            let mut banks: Vec<_> = (0..8).map(|i| placed(OWN * i, bytes) * bytes % 128).collect();
            banks.sort_unstable();
            assert!(banks.into_iter().eq((0..128).step_by(16)));
        }
    }

    #[test]
    fn every_entry_of_a_step_has_a_slot() {
        for len in [4, 8, 124, 128, 132, 500, 1024] {
            let mut all: Vec<_> = (0..len).map(|slot| nth(slot, len)).collect();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..len), "{len}");
            for bytes in [4, 8] {
                let mut all: Vec<_> = (0..len).map(|slot| value_at(slot, len, bytes)).collect();
                all.sort_unstable();
                assert!(all.into_iter().eq(0..len), "{len}");
            }
        }
    }
}
