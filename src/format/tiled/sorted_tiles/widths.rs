//! Numbers of bits for the columns of sorted tiles, and numbers packed densely into words.

use super::LOW;

/// Choices for the number of column bits of every slot in addition to those next to its place.
pub(super) const EXTRA: [u32; 3] = [4, 8, 16];

/// Number of warps of a matrix, and of warps for which a number of column bits does not suffice.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Widths {
    /// Number of warps.
    pub warps: u64,
    /// For each of [`EXTRA`], the number of warps that need more bits.
    pub wide: [u64; 3],
    /// The number of warps that need even more than the additional 16 bits of a wide warp.
    far: [u64; 3],
}

impl Widths {
    /// Counts warps by their number of column bits in addition to those next to the place; each
    /// pair holds a number of bits and a number of warps.
    pub fn of(bits: impl IntoIterator<Item = (u32, u64)>) -> Self {
        bits.into_iter().fold(Widths::default(), |widths, (bits, times)| Widths {
            warps: widths.warps + times,
            wide: [0, 1, 2].map(|i| widths.wide[i] + if bits > EXTRA[i] { times } else { 0 }),
            far: [0, 1, 2].map(|i| widths.far[i] + if bits > EXTRA[i] + LOW { times } else { 0 }),
        })
    }

    /// Index of the choice in [`EXTRA`] that makes the matrix smallest, with the bytes of wide
    /// warps counted twice because a product waits longer for them. The kernels call it
    /// `extra_bits`.
    pub fn best(&self) -> usize {
        let bits = |i: usize| u64::from(EXTRA[i]) * self.warps + 32 * self.wide[i];
        let fit = [2, 1, 0].into_iter().filter(|&i| self.far[i] == 0);
        fit.fold(2, |best, i| if bits(i) < bits(best) { i } else { best })
    }
}

/// Appends the low `width` bits of each number to `words`, densely packed into 32 bits each.
pub(super) fn put(width: u32, numbers: &[u32], words: &mut [u32]) {
    for (at, number) in (0..).step_by(width as usize).zip(numbers) {
        words[at / 32] |= (number & ((1 << width) - 1)) << (at % 32);
    }
}

/// Number `k` of those that [`put`] has packed.
pub(super) fn get(width: u32, k: usize, words: &[u32]) -> u32 {
    let at = k * width as usize;
    words[at / 32] >> (at % 32) & ((1 << width) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_are_chosen_by_bytes() {
        let best = |bits: &[(u32, u64)]| EXTRA[Widths::of(bits.iter().copied()).best()];
        assert_eq!(best(&[]), 16);
        assert_eq!(best(&[(0, 1)]), 4);
        // 4 bits for each and 32 for one warp in eight take as much as 8 bits.
        assert_eq!(best(&[(4, 7), (5, 1)]), 8);
        assert_eq!(best(&[(4, 8), (5, 1)]), 4);
        assert_eq!(best(&[(8, 3), (9, 1)]), 16);
        assert_eq!(best(&[(8, 4), (9, 1)]), 8);
        assert_eq!(best(&[(8, 99), (25, 1)]), 16);
        assert_eq!(best(&[(4, 99), (21, 1)]), 8);
    }
}
