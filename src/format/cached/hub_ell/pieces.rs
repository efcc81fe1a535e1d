//! Pieces of rows, each processed by one lane, and the size of a layout of such pieces.

use super::columns::RowParts;
use crate::format::Offsets;
use crate::format::row_order::WARP;

/// A piece of a row: the range `near` of the row's entries in hubs and the range `far` of its other
/// entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowPiece {
    pub row: u32,
    near: [u32; 2],
    far: [u32; 2],
}

impl RowPiece {
    /// Cuts a row with `near` entries in hubs and `far` other entries into pieces of at most
    /// `longest` entries of either kind; an empty row yields none.
    pub fn of_row(
        row: u32,
        [near, far]: RowParts,
        longest: usize,
    ) -> impl Iterator<Item = RowPiece> {
        let longest = longest as u32;
        (0..near.max(far).div_ceil(longest)).map(move |i| {
            let cut = |length: u32| [i, i + 1].map(|i| length.min(i * longest));
            RowPiece { row, near: cut(near), far: cut(far) }
        })
    }

    /// Number of pieces of the row before this one.
    pub fn number(&self, longest: usize) -> usize {
        self.near[0].max(self.far[0]) as usize / longest
    }

    /// Numbers of entries in hubs and of other entries.
    pub fn lengths(&self) -> [u16; 2] {
        [self.near, self.far].map(|[first, end]| (end - first) as u16)
    }
}

/// Size of the layout, computed without cutting the pieces.
#[derive(Debug, Default, PartialEq)]
pub(super) struct HubEllSize {
    /// Number of pieces of all rows.
    pub pieces: usize,
    /// Number of rows with several pieces or none.
    pub scaled: usize,
    /// Numbers of slots in the hub part and in the rest.
    pub slots: [u64; 2],
}

impl HubEllSize {
    /// Size for `rows`, each row shape with its frequency, cut into pieces of at most `longest`
    /// entries in either part.
    pub fn of(rows: &[(RowParts, u64)], longest: usize) -> Self {
        let mut size = HubEllSize::default();
        // There are few distinct lengths, so a counting sort suffices.
        let mut counts = vec![0u64; (longest + 1) * (longest + 1)];
        for &(parts, times) in rows {
            size.scaled += if parts == [0, 0] { times as usize } else { 0 };
            for piece in RowPiece::of_row(0, parts, longest) {
                let [near, far] = piece.lengths().map(usize::from);
                counts[near * (longest + 1) + far] += times;
                size.scaled += if piece.number(longest) == 1 { times as usize } else { 0 };
            }
        }
        // Free places in the last slice begun, and the longest rest of that slice so far.
        let (mut left, mut widest) = (0, 0);
        let warp = WARP as u64;
        for (key, &count) in counts.iter().enumerate().rev().filter(|(_, count)| **count > 0) {
            let [near, far] = [key / (longest + 1), key % (longest + 1)].map(|n| n as u64);
            if left > 0 && far > widest {
                size.slots[1] += (far - widest) * warp;
                widest = far;
            }
            if count > left {
                let slices = (count - left).div_ceil(warp);
                size.slots[0] += slices * near * warp;
                size.slots[1] += slices * far * warp;
                (left, widest) = (left + slices * warp, far);
            }
            left -= count;
            size.pieces += count as usize;
        }
        size
    }

    /// Bytes of the layout with `hubs` hubs and values of `value_bytes` bytes.
    pub fn bytes(&self, hubs: usize, value_bytes: usize) -> u64 {
        let [near, far] = self.slots;
        let slices = self.pieces.div_ceil(WARP) + 1;
        let pointers = slices * (Offsets::width(near as usize) + Offsets::width(far as usize));
        let lists = 4 * (hubs + self.scaled) + 8 * self.pieces;
        let w = value_bytes as u64;
        (pointers + lists) as u64 + near * (2 + w) + far * (4 + w)
    }
}
