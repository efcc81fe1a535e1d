//! Tiles of CSR entries sorted by column: what stcsr and stvi share, all but the values.
//!
//! A tile is what a block of GPU threads takes ([`super::csr_tiles`]). Of each entry, 16 bits hold its
//! place in the tile and the low bits of its column's distance from the first of 64 sorted entries.
//! So many bits of that distance follow besides, 4, 8 or 16, as make the matrix smallest, and 16 more
//! for the 256 entries of a warp where that does not do: a column and its place take about 3 bytes
//! together, where a column alone takes 4 in CSR.
//!
//! Each tile has as many slots as it may have entries, so that a thread's are where its number
//! says: it asks for columns at once, without a look at where its tile starts. It sums as many
//! products as every other, whatever rows they are of: a bit an entry says where a row ends. Places
//! are those of shared memory, where the pieces of 16 bytes that a thread sums are in another order
//! in every other group of threads, lest their banks conflict.
//!
//! A thread takes 8 slots, a warp 256. Of these, sorted entry `32 k + l` is number `k` of lane `l`:
//! each step of a warp takes 32 neighbours.
//!
//! Padding: slots past the last entry of a tile repeat it, in its own place; where a tile has no
//! entry, zeros that no row sums.

pub(super) mod gpu;

use std::ops::Range;

use ellect_kernels::shared;
use rayon::prelude::*;

use super::csr_tiles::Tiles;
use super::gpu::launch::Arrays;
use super::{Refusal, Target, Work, bytes_of, store};
use crate::csr::{Csr, Pattern};
use crate::par::{Scratch, slices_mut};
use crate::scalar::Scalar;
use crate::structure::{REACH, REACH_OF, Structure, Walk};

/// Slots of a thread.
pub(super) const EACH: usize = shared("SORTED_EACH") as usize;

/// Lanes of a warp.
pub(super) const LANES: usize = 32;

/// Slots of a warp.
pub(super) const WARP: usize = REACH_OF;

/// Sorted entries that share a first column.
const BASED: usize = REACH;

/// Bits of an entry that hold its place and the low ones of its column.
const LOW: u32 = 16;

/// Those of them that hold its place.
fn place_bits(tile: usize) -> u32 {
    tile.ilog2()
}

/// Where in shared memory the entry `at` of a tile lies, of so many bytes; and the entry that lies
/// in a place. `placed` of the kernels.
fn placed(at: usize, bytes: usize) -> usize {
    let piece = 16 / bytes;
    at ^ (at / (8 * piece) % (EACH / piece) * piece)
}

/// Which sorted entry is in a slot.
fn nth(slot: usize) -> usize {
    let (lane, k) = (slot % WARP / EACH, slot % EACH);
    slot / WARP * WARP + k * LANES + lane
}

/// Which of the first columns of a warp that of a slot is counted from.
fn based(slot: usize) -> usize {
    slot % EACH * LANES / BASED
}

/// Bits of a column that all slots of a matrix may have besides those with its place.
const EXTRA: [u32; 3] = [4, 8, 16];

/// How many warps of a matrix there are, and those that so many bits of a column do not do for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Widths {
    warps: u64,
    /// For each of [`EXTRA`], those that take more.
    wide: [u64; 3],
    /// Those that take more still than the 16 bits of a wide warp besides.
    far: [u64; 3],
}

impl Widths {
    /// Of warps that take these bits of a column besides those with its place, each so many times.
    fn of(bits: impl IntoIterator<Item = (u32, u64)>) -> Self {
        bits.into_iter().fold(Widths::default(), |widths, (bits, times)| Widths {
            warps: widths.warps + times,
            wide: [0, 1, 2].map(|i| widths.wide[i] + if bits > EXTRA[i] { times } else { 0 }),
            far: [0, 1, 2].map(|i| widths.far[i] + if bits > EXTRA[i] + LOW { times } else { 0 }),
        })
    }

    /// The number of [`EXTRA`] that makes the matrix smallest, where a wide warp counts for twice
    /// the bytes that it has: a product waits for them longer. `extra_bits` of the kernels.
    fn best(&self) -> usize {
        let bits = |i: usize| u64::from(EXTRA[i]) * self.warps + 32 * self.wide[i];
        let fit = [2, 1, 0].into_iter().filter(|&i| self.far[i] == 0);
        fit.fold(2, |best, i| if bits(i) < bits(best) { i } else { best })
    }
}

/// Why sorted tiles of a matrix without entries are not made.
pub(super) fn no_entries() -> Refusal {
    Refusal::new("0 entries, 1 is needed".to_string())
}

/// The work of tiles of at most `tile` entries whose values take `value_bytes` of so many slots.
///
/// # Errors
/// [`Refusal`] of a matrix without entries.
pub(super) fn work(
    structure: &Structure<'_>,
    tile: usize,
    target: &Target<'_>,
    value_bytes: impl Fn(u64) -> u64,
) -> Result<Work, Refusal> {
    let pattern = structure.pattern();
    let (nrows, nnz) = (pattern.nrows() as u64, pattern.nnz() as u64);
    let w = target.precision.bytes() as u64;
    if nnz == 0 {
        return Err(no_entries());
    }
    let tiles = structure.tiles(tile);
    let count = tiles.rows.len() as u64 - 1;
    let (slots, warps) = (count * tile as u64, count * (tile / WARP) as u64);
    let spans = structure.sorted_spans(tile);
    let left = LOW - place_bits(tile);
    let widths = Widths::of(
        (0..).zip(spans).map(|(bits, times): (u32, u64)| (bits.saturating_sub(left), times)),
    );
    let best = widths.best();
    let wide = warps as f64 * widths.wide[best] as f64 / widths.warps.max(1) as f64;
    let (ends, lasts) = (2 * (nrows + 2 * count), slots / 8);
    let columns = slots * u64::from(LOW + EXTRA[best]) / 8 + (2.0 * wide) as u64 * WARP as u64;
    let bytes = 16 * count + ends + lasts + 16 * warps + columns + value_bytes(slots);
    let splits = structure.max_length() > tile;
    let (tile_steps, tile_steps_most) = tiles.turns(tile / EACH);
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

/// Everything of a matrix in sorted tiles but its values.
#[derive(Debug)]
pub(super) struct SortedTiles {
    nrows: usize,
    ncols: usize,
    nnz: usize,
    /// The most entries of a tile, and its slots.
    tile: usize,
    /// Bytes of a product, which places depend on.
    value_bytes: usize,
    /// Of each tile: first row that begins in it, rows that begin in it and entries of the row that
    /// began before it (`<< 16`), where its wide warps begin among all, a bit a warp that is wide.
    tiles: Vec<[u32; 4]>,
    /// Of each tile 0, the end of the row that began before it, and the ends of its own rows,
    /// counted in its entries: `rows + 2` numbers.
    ends: Vec<u16>,
    /// Whether each entry, in the order of CSR, is the last of its row in its tile: a bit each,
    /// `tile / 8` bytes for each tile.
    lasts: Vec<u8>,
    /// Of each warp, the first columns of its sorted entries, 64 at a time.
    bases: Vec<[u32; 4]>,
    /// Of each slot its place in the tile and, in the upper bits, the low ones of its column.
    low: Vec<u16>,
    /// How many bits of its column follow, one of [`EXTRA`].
    extra: u32,
    /// These bits, thread by thread.
    high: Vec<u32>,
    /// The upper 16 bits of columns of wide warps, thread by thread.
    wide: Vec<u32>,
}

impl SortedTiles {
    /// Sorts tiles of at most `tile` entries, of which each has a product of `value_bytes`.
    pub fn new(pattern: Pattern<'_>, tile: usize, value_bytes: usize) -> Self {
        let tiles = Tiles::of(pattern, tile);
        let (count, warps) = (tiles.rows.len() - 1, tile / WARP);
        let slots = count * tile;
        let end_cuts: Vec<_> = (0..=count).map(|t| tiles.rows[t] as usize + 2 * t).collect();
        let mut ends = vec![0u16; end_cuts[count]];
        let mut low = vec![0u16; slots];
        // Bits of columns that are not with places, and the most of each warp.
        let mut rest = vec![0u32; slots];
        let mut bases = vec![[0u32; 4]; count * warps];
        let mut lasts = vec![0u8; slots / 8];
        let row_ptr = pattern.row_ptr();
        let (bits, left) = (place_bits(tile), LOW - place_bits(tile));
        slices_mut(&mut ends, &end_cuts)
            .into_par_iter()
            .zip(low.par_chunks_mut(tile))
            .zip(rest.par_chunks_mut(tile))
            .zip(bases.par_chunks_mut(warps))
            .zip(lasts.par_chunks_mut(tile / 8))
            .enumerate()
            .for_each(|(t, ((((ends, low), rest), bases), lasts))| {
                let (start, end) = (tiles.entries[t], tiles.entries[t + 1]);
                let rows = tiles.rows[t] as usize..=tiles.rows[t + 1] as usize;
                for (slot, &row_end) in ends[1..].iter_mut().zip(&row_ptr[rows]) {
                    let to = row_end.min(end) - start;
                    *slot = to as u16;
                    if let Some(last) = to.checked_sub(1) {
                        lasts[last / 8] |= 1 << (last % 8);
                    }
                }
                let columns = &pattern.col_idx()[start..end];
                let mut sorted: Vec<(u32, usize)> = columns.iter().copied().zip(0..).collect();
                sorted.sort_unstable();
                let Some(&last) = sorted.last() else { return };
                sorted.resize(tile, last);
                for (bases, warp) in bases.iter_mut().zip(sorted.chunks(WARP)) {
                    *bases = [0, 1, 2, 3].map(|i| warp[i * BASED].0);
                }
                for slot in 0..tile {
                    let (column, place) = sorted[nth(slot)];
                    let away = column - bases[slot / WARP][based(slot)];
                    low[slot] = (away << bits) as u16 | placed(place, value_bytes) as u16;
                    rest[slot] = away >> left;
                }
            });
        let most =
            |warp: &[u32]| u32::BITS - warp.iter().fold(0, |all, &rest| all | rest).leading_zeros();
        let needed: Vec<u32> = rest.par_chunks(WARP).map(most).collect();
        let extra = EXTRA[Widths::of(needed.iter().map(|&bits| (bits, 1))).best()];
        let mut high = vec![0u32; slots / 32 * extra as usize];
        let words = extra as usize / 4;
        high.par_chunks_mut(words)
            .zip(rest.par_chunks(EACH))
            .for_each(|(words, rest)| put(extra, rest, words));
        let mut wide = Vec::new();
        let mut headers = Vec::with_capacity(count);
        for t in 0..count {
            let rows = tiles.rows[t + 1] - tiles.rows[t];
            let begun = row_ptr[tiles.rows[t] as usize].min(tiles.entries[t + 1]);
            let begun = begun.saturating_sub(tiles.entries[t]) as u32;
            let first_wide = (wide.len() / (4 * LANES)) as u32;
            let mut mask = 0;
            for warp in (0..warps).filter(|warp| needed[t * warps + warp] > extra) {
                mask |= 1 << warp;
                for rest in rest[(t * warps + warp) * WARP..][..WARP].chunks(EACH) {
                    let mut words = [0; 4];
                    let rest: Vec<u32> = rest.iter().map(|rest| rest >> extra).collect();
                    put(LOW, &rest, &mut words);
                    wide.extend(words);
                }
            }
            headers.push([tiles.rows[t], rows | begun << 16, first_wide, mask]);
        }
        SortedTiles {
            nrows: pattern.nrows(),
            ncols: pattern.ncols(),
            nnz: pattern.nnz(),
            tile,
            value_bytes,
            tiles: headers,
            ends,
            lasts,
            bases,
            low,
            extra,
            high,
            wide,
        }
    }

    /// Slots of all tiles.
    pub fn slots(&self) -> usize {
        self.tiles.len() * self.tile
    }

    /// What is known of tile `t`: slots, none where it has no entry, rows, and its numbers in
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

    /// Where rows begin and end in the CSR arrays.
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

    /// Column and number in the tile of the entry in a slot.
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

    /// Calls `f` with the slot, column and number in the CSR arrays of every entry, tile by tile;
    /// of the last one of a tile with each slot that repeats it.
    pub fn over_slots(&self, mut f: impl FnMut(usize, u32, usize)) {
        for (t, &start) in self.starts()[..self.tiles.len()].iter().enumerate() {
            for slot in self.parts(t).0 {
                let (column, place) = self.entry(slot);
                f(slot, column, start + place);
            }
        }
    }

    /// Puts what `of` says of each entry, by its number in the CSR arrays, where `at` says that that
    /// of its slot is: within the same warp.
    pub fn fill<V: Send>(
        &self,
        out: &mut [V],
        at: impl Fn(usize) -> usize + Sync,
        of: impl Fn(usize) -> V + Sync,
    ) {
        let starts = self.starts();
        out.par_chunks_mut(self.tile).zip(&starts).enumerate().for_each(|(t, (out, start))| {
            for slot in self.parts(t).0 {
                out[at(slot) - t * self.tile] = of(start + self.entry(slot).1);
            }
        });
    }

    /// y = alpha A x + beta y with the value of each slot.
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
            slices_mut(products, &starts)
                .into_par_iter()
                .zip(slices_mut(y, &cuts))
                .zip(&mut *heads)
                .enumerate()
                .for_each(|(t, ((products, y), head))| {
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
                    *head = sum(ends);
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

    /// The CSR matrix with the value of each slot.
    pub fn to_csr<T: Scalar>(&self, value: impl Fn(usize) -> T) -> Csr<T> {
        let mut columns = vec![0; self.nnz];
        let mut values = vec![T::ZERO; self.nnz];
        self.over_slots(|slot, column, k| (columns[k], values[k]) = (column, value(slot)));
        Csr::new(self.nrows, self.ncols, self.row_ptr(), columns, values)
            .expect("a layout is made from a valid matrix")
    }

    /// What a GPU holds of it.
    pub fn on_device<'a>(&'a self, arrays: &mut Arrays<'a>) -> gpu::Plan {
        gpu::Plan {
            tile: self.tile,
            tiles: self.tiles.len() as u64,
            extra: self.extra,
            splits: self.tiles.iter().any(|tile| tile[1] >> 16 > 0),
            arrays: [
                arrays.add(&self.tiles),
                arrays.add(&self.ends),
                arrays.add(&self.lasts),
                arrays.add(&self.bases),
                arrays.add(&self.low),
                arrays.add(&self.high),
                arrays.add(&self.wide),
            ],
        }
    }
}

/// Puts the low `width` bits of each number after those of the one before, in words of 32.
fn put(width: u32, numbers: &[u32], words: &mut [u32]) {
    for (at, number) in (0..).step_by(width as usize).zip(numbers) {
        words[at / 32] |= (number & ((1 << width) - 1)) << (at % 32);
    }
}

/// Number `k` of those that [`put`] has put there.
fn get(width: u32, k: usize, words: &[u32]) -> u32 {
    let at = k * width as usize;
    words[at / 32] >> (at % 32) & ((1 << width) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_a_tile_go_by_column_and_know_their_place() {
        // The example of stcsr, as one tile.
        let csr =
            Csr::new(4, 4, vec![0, 2, 3, 3, 5], vec![0, 2, 1, 0, 3], vec![4.0, 1.0, 5.0, 2.0, 6.0])
                .expect("valid");
        let tiles = SortedTiles::new(csr.pattern(), 1024, 8);
        assert_eq!(tiles.tiles, [[0, 4, 0, 0]]);
        assert_eq!(tiles.ends, [0, 0, 2, 3, 3, 5]);
        assert_eq!(tiles.lasts, [[0b10110].as_slice(), &[0; 127]].concat());
        // Number 0 of the lanes of the first warp; after the last entry comes that again.
        let entries: Vec<_> = (0..7).map(|lane| tiles.entry(EACH * lane)).collect();
        assert_eq!(entries, [(0, 0), (0, 3), (1, 2), (2, 1), (3, 4), (3, 4), (3, 4)]);
        assert_eq!(tiles.entry(1023), (3, 4));
        let mut numbers = vec![usize::MAX; tiles.slots()];
        tiles.fill(&mut numbers, |slot| slot, |k| k);
        assert_eq!(tiles.to_csr(|slot| csr.values()[numbers[slot]]), csr);
    }

    #[test]
    fn columns_take_the_bits_that_make_a_matrix_small() {
        // Rows of 128 entries, 8 a tile: 64 sorted entries reach over 8 * `apart` columns.
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
        // 6 bits lie with the place.
        assert_eq!(layout(1, 0), (4, 0));
        assert_eq!(layout(100, 0), (4, 0));
        assert_eq!(layout(500, 0), (8, 0));
        assert_eq!(layout(10_000, 0), (16, 0));
        // A few columns far off make their warp wide; where 20 bits more do not do, all have 8.
        assert_eq!(layout(1, 1 << 20), (4, 1));
        assert_eq!(layout(1, 1 << 27), (8, 1));
        assert_eq!(layout(1, 1 << 31), (16, 1));
    }

    #[test]
    fn widths_are_chosen_by_bytes() {
        let best = |bits: &[(u32, u64)]| EXTRA[Widths::of(bits.iter().copied()).best()];
        assert_eq!(best(&[]), 16);
        assert_eq!(best(&[(0, 1)]), 4);
        // 4 bits and 32 for one of eight are as many as 8 bits.
        assert_eq!(best(&[(4, 7), (5, 1)]), 8);
        assert_eq!(best(&[(4, 8), (5, 1)]), 4);
        assert_eq!(best(&[(8, 3), (9, 1)]), 16);
        assert_eq!(best(&[(8, 4), (9, 1)]), 8);
        assert_eq!(best(&[(8, 99), (25, 1)]), 16);
        assert_eq!(best(&[(4, 99), (21, 1)]), 8);
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
