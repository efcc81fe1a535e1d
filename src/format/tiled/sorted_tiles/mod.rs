//! Tiles of CSR entries sorted by column, without their values; shared by st_csr and st_csr_vi.
//!
//! One block of GPU threads processes one tile ([`super::csr_tiles`]). For each entry, 16 bits hold
//! its place in the tile and the low bits of its column's distance from the first of 64 sorted
//! entries. Further bits of that distance follow, 4, 8 or 16 for the whole matrix, whichever makes
//! it smallest; the 256 entries of a warp that needs more get another 16 bits each. A column and
//! its place take about 3 bytes together, where a column alone takes 4 in CSR.
//!
//! Each tile has as many slots as it may have entries, so that the thread number alone determines a
//! thread's slots: it loads columns at once, without first loading the start of its tile. All
//! threads sum the same number of products, whichever rows these belong to: one bit per entry marks
//! the end of a row. Places are positions in shared memory, where the 16-byte pieces that a thread
//! sums are permuted in every other group of threads to avoid bank conflicts.
//!
//! A thread has 8 slots, a warp 256. Among these, sorted entry `32 k + l` is number `k` of lane
//! `l`: each step of a warp processes 32 neighbours.
//!
//! Padding: slots past the last entry of a tile repeat that entry, in its own place; where a tile
//! has no entry, they are zeros that no row sums.

pub(super) mod gpu;
mod sort;
mod widths;

use std::ops::Range;

use ellect_kernels::shared;

use self::widths::{EXTRA, Widths, get};
use super::gpu::launch::Arrays;
use super::{Param, Refusal, Target, Value, Work, bytes_of, store};
use crate::analysis::{Analysis, REACH, REACH_OF, Walk};
use crate::csr::Csr;
use crate::par::{self, Scratch, slices_mut};
use crate::scalar::Scalar;

/// The parameter of formats with sorted tiles.
pub(super) const TILE: Param = Param {
    name: "tile",
    doc: "maximum number of entries that a block of threads sorts together",
    values: &[Value::Int(1024), Value::Int(2048), Value::Int(4096)],
    gpu: &[Value::Int(1024), Value::Int(2048), Value::Int(4096)],
    host: &[],
};

/// Slots of a thread.
pub(super) const EACH: usize = shared("SORTED_EACH") as usize;

/// Lanes of a warp.
pub(super) const LANES: usize = 32;

/// Slots of a warp.
pub(super) const WARP: usize = REACH_OF;

/// Number of sorted entries that share a first column.
const BASED: usize = REACH;

/// Bits that hold an entry's place and the low bits of its column.
const LOW: u32 = 16;

/// Number of bits that hold an entry's place.
fn place_bits(tile: usize) -> u32 {
    tile.ilog2()
}

/// Position in shared memory of entry `at` of a tile, where entries have `bytes` bytes; also the
/// inverse, from position to entry. The kernels call it `placed`.
fn placed(at: usize, bytes: usize) -> usize {
    let piece = 16 / bytes;
    at ^ (at / (8 * piece) % (EACH / piece) * piece)
}

/// The sorted entry that is in a slot.
fn nth(slot: usize) -> usize {
    let (lane, k) = (slot % WARP / EACH, slot % EACH);
    slot / WARP * WARP + k * LANES + lane
}

/// Index of the warp's first column from which the column in a slot is counted.
fn based(slot: usize) -> usize {
    slot % EACH * LANES / BASED
}

/// The refusal of a matrix without entries.
pub(super) fn no_entries() -> Refusal {
    Refusal::new("the matrix has no entries; at least 1 is needed".to_string())
}

/// The work of tiles of at most `tile` entries; `value_bytes` maps a number of slots to the bytes
/// of their values.
///
/// # Errors
/// [`Refusal`] for a matrix without entries.
pub(super) fn work(
    analysis: &Analysis<'_>,
    tile: usize,
    target: &Target<'_>,
    value_bytes: impl Fn(u64) -> u64,
) -> Result<Work, Refusal> {
    let pattern = analysis.pattern();
    let (nrows, nnz) = (pattern.nrows() as u64, pattern.nnz() as u64);
    let w = target.precision.bytes() as u64;
    if nnz == 0 {
        return Err(no_entries());
    }
    let tiles = analysis.tiles(tile);
    let count = tiles.rows.len() as u64 - 1;
    let (slots, warps) = (count * tile as u64, count * (tile / WARP) as u64);
    let spans = analysis.sorted_spans(tile);
    let left = LOW - place_bits(tile);
    let widths = Widths::of(
        (0..).zip(spans).map(|(bits, times): (u32, u64)| (bits.saturating_sub(left), times)),
    );
    let best = widths.best();
    let wide = warps as f64 * widths.wide[best] as f64 / widths.warps.max(1) as f64;
    let (ends, lasts) = (2 * (nrows + 2 * count), slots / 8);
    let columns = slots * u64::from(LOW + EXTRA[best]) / 8 + (2.0 * wide) as u64 * WARP as u64;
    let bytes = 16 * count + ends + lasts + 16 * warps + columns + value_bytes(slots);
    let splits = analysis.max_length() > tile;
    let (tile_steps, tile_steps_most) = tiles.turns(tile / EACH);
    Ok(Work {
        layout_bytes: bytes,
        stream_bytes: bytes,
        entries: slots,
        x_sectors: analysis.x_sectors(Walk::Sorted { tile }, target.precision),
        x_loaded: analysis.x_loaded(Walk::Sorted { tile }, target),
        steps: nnz.div_ceil(32),
        tile_steps,
        tile_steps_most,
        launches: 1 + u32::from(splits),
        convert_bytes: nnz * (4 + w) + bytes,
        sorted_keys: nnz,
        ..Work::default()
    })
}

/// A matrix in sorted tiles, without its values.
#[derive(Debug)]
pub(super) struct SortedTiles {
    nrows: usize,
    ncols: usize,
    nnz: usize,
    /// The maximum number of entries of a tile, which is also its number of slots.
    tile: usize,
    /// Bytes of a product, on which places depend.
    value_bytes: usize,
    /// Per tile: the first row that begins in it; the number of rows that begin in it, with the
    /// number of entries of the row that began before (`<< 16`); the index of its first wide warp;
    /// one bit per warp, set if the warp is wide.
    tiles: Vec<[u32; 4]>,
    /// Per tile: 0, the end of the row that began before it, and the ends of its own rows, counted
    /// in its entries: `rows + 2` numbers.
    ends: Vec<u16>,
    /// One bit per entry, in the order of CSR, set if it is the last of its row in its tile:
    /// `tile / 8` bytes per tile.
    lasts: Vec<u8>,
    /// Per warp, the first columns of its sorted entries, one per 64 entries.
    bases: Vec<[u32; 4]>,
    /// Per slot, its place in the tile and, in the upper bits, the low bits of its column.
    low: Vec<u16>,
    /// Number of further bits of each column, one of [`EXTRA`].
    extra: u32,
    /// The further bits of columns, thread by thread.
    high: Vec<u32>,
    /// The upper 16 bits of the columns of wide warps, thread by thread.
    wide: Vec<u32>,
}

impl SortedTiles {
    /// Number of slots of all tiles.
    pub fn slots(&self) -> usize {
        self.tiles.len() * self.tile
    }

    /// Contents of tile `t`: its slots (none where it has no entry), its rows, and its part of
    /// `ends`.
    fn parts(&self, t: usize) -> (Range<usize>, Range<usize>, &[u16]) {
        let [first, counts, ..] = self.tiles[t];
        let (first, rows) = (first as usize, (counts & 0xffff) as usize);
        let ends = &self.ends[first + 2 * t..][..rows + 2];
        let slots = if ends[rows + 1] == 0 { 0 } else { self.tile };
        (t * self.tile..t * self.tile + slots, first..first + rows, ends)
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

    /// Row pointers of the CSR matrix.
    pub fn row_ptr(&self) -> Vec<usize> {
        let mut row_ptr = vec![self.nnz; self.nrows + 1];
        for (t, start) in self.starts().into_iter().take(self.tiles.len()).enumerate() {
            let (_, rows, ends) = self.parts(t);
            for (row_ptr, &before) in row_ptr[rows].iter_mut().zip(&ends[1..]) {
                *row_ptr = start + usize::from(before);
            }
        }
        row_ptr
    }

    /// Column of the entry in a slot, and its number in the tile.
    fn entry(&self, slot: usize) -> (u32, usize) {
        let (bits, left) = (place_bits(self.tile), LOW - place_bits(self.tile));
        let (thread, k) = (slot / EACH, slot % EACH);
        let low = u32::from(self.low[slot]);
        let words = self.extra as usize / 4;
        let mut away = low >> bits | get(self.extra, k, &self.high[thread * words..]) << left;
        let [_, _, first, mask] = self.tiles[slot / self.tile];
        let warp = slot % self.tile / WARP;
        if mask >> warp & 1 == 1 {
            let at = first as usize + (mask & ((1 << warp) - 1)).count_ones() as usize;
            let words = &self.wide[4 * (at * LANES + thread % LANES)..];
            away |= get(LOW, k, words) << (left + self.extra);
        }
        let place = low as usize & (self.tile - 1);
        (self.bases[slot / WARP][based(slot)] + away, placed(place, self.value_bytes))
    }

    /// Calls `f` with the slot, column and position in the CSR arrays of every entry, tile by tile;
    /// the last entry of a tile occurs once for each slot that repeats it.
    pub fn over_slots(&self, mut f: impl FnMut(usize, u32, usize)) {
        for (t, &start) in self.starts()[..self.tiles.len()].iter().enumerate() {
            for slot in self.parts(t).0 {
                let (column, place) = self.entry(slot);
                f(slot, column, start + place);
            }
        }
    }

    /// Stores `of(k)` for each entry `k` of the CSR arrays at the position that `at` gives for its
    /// slot, within the same warp.
    pub fn fill<V: Send>(
        &self,
        out: &mut [V],
        at: impl Fn(usize) -> usize + Sync,
        of: impl Fn(usize) -> V + Sync,
    ) {
        let starts = self.starts();
        let mut tiles: Vec<&mut [V]> = out.chunks_mut(self.tile).collect();
        par::for_each(&mut tiles, 1, |t, out| {
            for slot in self.parts(t).0 {
                out[at(slot) - t * self.tile] = of(starts[t] + self.entry(slot).1);
            }
        });
    }

    /// Computes y = alpha A x + beta y with the value of each slot.
    pub fn product<T: Scalar>(
        &self,
        scratch: &Scratch<T>,
        value: impl Fn(usize) -> T + Sync,
        (alpha, beta): (T, T),
        x: &[T],
        y: &mut [T],
    ) {
        let starts = self.starts();
        let rows: Vec<usize> = self.tiles.iter().map(|tile| tile[0] as usize).collect();
        let cuts: Vec<usize> = rows.iter().copied().chain([self.nrows]).collect();
        scratch.with(self.nnz + self.tiles.len(), |scratch| {
            let (products, heads) = scratch.split_at_mut(self.nnz);
            let tiles = slices_mut(products, &starts).into_iter().zip(slices_mut(y, &cuts));
            let mut tiles: Vec<_> = tiles.zip(&mut *heads).collect();
            par::for_each(&mut tiles, 1, |t, ((products, y), head)| {
                let (slots, _, ends) = self.parts(t);
                for slot in slots.clone() {
                    let (column, place) = self.entry(slot);
                    products[place] = value(slot) * x[column as usize];
                }
                let sum = |ends: &[u16]| {
                    let items = &products[usize::from(ends[0])..usize::from(ends[1])];
                    items.iter().fold(T::ZERO, |mut sum, &product| {
                        sum += product;
                        sum
                    })
                };
                **head = sum(ends);
                for (y, ends) in y.iter_mut().zip(ends[1..].windows(2)) {
                    store(y, alpha, sum(ends), beta);
                }
            });
            for (&[first, counts, ..], &head) in self.tiles.iter().zip(&*heads) {
                if counts >> 16 > 0 {
                    y[first as usize - 1] += alpha * head;
                }
            }
        });
    }

    /// Bytes of all arrays.
    pub fn bytes(&self) -> u64 {
        bytes_of(&self.tiles)
            + bytes_of(&self.ends)
            + bytes_of(&self.lasts)
            + bytes_of(&self.bases)
            + bytes_of(&self.low)
            + bytes_of(&self.high)
            + bytes_of(&self.wide)
    }

    /// The CSR matrix, with `value` giving the value of each slot.
    pub fn to_csr<T: Scalar>(&self, value: impl Fn(usize) -> T) -> Csr<T> {
        let mut columns = vec![0; self.nnz];
        let mut values = vec![T::ZERO; self.nnz];
        self.over_slots(|slot, column, k| (columns[k], values[k]) = (column, value(slot)));
        Csr::new(self.nrows, self.ncols, self.row_ptr(), columns, values)
            .expect("a layout is made from a valid matrix")
    }

    /// The arrays that a GPU holds.
    pub fn on_device<'a>(&'a self, arrays: &mut Arrays<'a>) -> gpu::TilePlan {
        arrays.number("tile", "slots of a tile", self.tile);
        arrays.number("extra", "bits of each slot in high", self.extra as usize);
        let of_tiles = "first row, rows + entries of the row before << 16, first wide warp, bits of \
                        wide warps";
        let of_ends = "0, the end of the row before, and the ends of the rows of each tile";
        let of_lasts = "bits of entries that end a row";
        let of_bases = "first columns of each warp of 256 slots, one for 64 entries";
        let of_low = "place in the tile of each slot, and the low bits of its column above";
        gpu::TilePlan {
            tile: self.tile,
            tiles: self.tiles.len() as u64,
            extra: self.extra,
            splits: self.tiles.iter().any(|tile| tile[1] >> 16 > 0),
            arrays: [
                arrays.add("tiles", of_tiles, &self.tiles),
                arrays.add("ends", of_ends, &self.ends),
                arrays.add("lasts", of_lasts, &self.lasts),
                arrays.add("bases", of_bases, &self.bases),
                arrays.add("low", of_low, &self.low),
                arrays.add("high", "further bits of columns", &self.high),
                arrays.add("wide", "upper 16 bits of columns of wide warps", &self.wide),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csr::Pattern;

    #[test]
    fn entries_of_a_tile_are_sorted_by_column_and_keep_their_place() {
        // The matrix drawn in the documentation of st_csr, as one tile.
        let csr =
            Csr::new(4, 4, vec![0, 2, 3, 3, 5], vec![0, 2, 1, 0, 3], vec![4.0, 1.0, 5.0, 2.0, 6.0])
                .expect("valid");
        let tiles = SortedTiles::new(csr.pattern(), 1024, 8);
        assert_eq!(tiles.tiles, [[0, 4, 0, 0]]);
        assert_eq!(tiles.ends, [0, 0, 2, 3, 3, 5]);
        assert_eq!(tiles.lasts, [[0b10110].as_slice(), &[0; 127]].concat());
        // Number 0 of the lanes of the first warp; slots after the last entry repeat it.
        let entries: Vec<_> = (0..7).map(|lane| tiles.entry(EACH * lane)).collect();
        assert_eq!(entries, [(0, 0), (0, 3), (1, 2), (2, 1), (3, 4), (3, 4), (3, 4)]);
        assert_eq!(tiles.entry(1023), (3, 4));
        let mut numbers = vec![usize::MAX; tiles.slots()];
        tiles.fill(&mut numbers, |slot| slot, |k| k);
        assert_eq!(tiles.to_csr(|slot| csr.values()[numbers[slot]]), csr);
    }

    #[test]
    fn columns_take_the_bits_that_make_a_matrix_small() {
        // Rows of 128 entries, 8 per tile: 64 sorted entries span more than 8 * `apart` columns.
        let layout = |apart: usize, far: u32| {
            let (nrows, len) = (64, 128);
            let row = |i| {
                (0..len).map(move |k| (k * apart) as u32 + if i == 0 && k > 96 { far } else { 0 })
            };
            let columns: Vec<u32> = (0..nrows).flat_map(row).collect();
            let row_ptr: Vec<usize> = (0..=nrows).map(|i| i * len).collect();
            let pattern = Pattern::of(nrows, u32::MAX as usize, &row_ptr, &columns);
            let tiles = SortedTiles::new(pattern, 1024, 8);
            assert_eq!(tiles.to_csr(|_| 1.0).pattern().col_idx(), columns);
            (tiles.extra, tiles.wide.len() / 128)
        };
        // 6 bits fit next to the place.
        assert_eq!(layout(1, 0), (4, 0));
        assert_eq!(layout(100, 0), (4, 0));
        assert_eq!(layout(500, 0), (8, 0));
        assert_eq!(layout(10_000, 0), (16, 0));
        // A few distant columns make their warp wide; where 20 more bits do not suffice, all get 8.
        assert_eq!(layout(1, 1 << 20), (4, 1));
        assert_eq!(layout(1, 1 << 27), (8, 1));
        assert_eq!(layout(1, 1 << 31), (16, 1));
    }

    #[test]
    fn places_are_distinct_and_lead_back_to_their_entries() {
        for bytes in [4, 8] {
            for at in 0..1024 {
                assert!(placed(at, bytes) < 1024);
                assert_eq!(placed(placed(at, bytes), bytes), at);
            }
            // Eight threads find their first 16 bytes in different banks.
            let mut banks: Vec<_> = (0..8).map(|i| placed(EACH * i, bytes) * bytes % 128).collect();
            banks.sort_unstable();
            assert!(banks.into_iter().eq((0..128).step_by(16)));
        }
    }

    #[test]
    fn every_entry_has_a_slot() {
        let mut all: Vec<_> = (0..1024).map(nth).collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..1024));
    }
}
