//! Offsets of rows, slices and columns, in the narrowest integers that hold them.

/// Row or entry offsets, in 4 bytes where they fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offsets {
    /// 32-bit offsets, where none is above 2^32 - 4096: kernels count a few entries past the last
    /// one.
    Narrow(Vec<u32>),
    /// 64-bit offsets.
    Wide(Vec<u64>),
}

/// The largest offset that is stored in 4 bytes.
const MOST_NARROW: usize = u32::MAX as usize - 4095;

impl Offsets {
    /// Stores `offsets` in the narrowest width that holds the last one, which is the largest.
    pub fn new(offsets: &[usize]) -> Self {
        if Offsets::width(offsets.last().copied().unwrap_or(0)) == 4 {
            Offsets::Narrow(offsets.iter().map(|&offset| offset as u32).collect())
        } else {
            Offsets::Wide(offsets.iter().map(|&offset| offset as u64).collect())
        }
    }

    /// Bytes of one offset where the largest is `last`.
    pub fn width(last: usize) -> usize {
        if last <= MOST_NARROW { 4 } else { 8 }
    }

    /// Offset `i`.
    ///
    /// # Panics
    /// If `i` is past the end.
    pub fn get(&self, i: usize) -> usize {
        match self {
            Offsets::Narrow(offsets) => offsets[i] as usize,
            Offsets::Wide(offsets) => offsets[i] as usize,
        }
    }

    /// Number of offsets.
    #[expect(clippy::len_without_is_empty, reason = "offsets hold at least the first")]
    pub fn len(&self) -> usize {
        match self {
            Offsets::Narrow(offsets) => offsets.len(),
            Offsets::Wide(offsets) => offsets.len(),
        }
    }

    /// All offsets, as `usize`.
    pub fn to_vec(&self) -> Vec<usize> {
        match self {
            Offsets::Narrow(offsets) => offsets.iter().map(|&offset| offset as usize).collect(),
            Offsets::Wide(offsets) => offsets.iter().map(|&offset| offset as usize).collect(),
        }
    }

    /// Bytes of the array.
    pub fn bytes(&self) -> u64 {
        match self {
            Offsets::Narrow(offsets) => 4 * offsets.len() as u64,
            Offsets::Wide(offsets) => 8 * offsets.len() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_that_kernels_cannot_count_past_in_32_bits_are_wide() {
        assert_eq!([0, 1, (1 << 32) - 4096].map(Offsets::width), [4; 3]);
        assert_eq!([(1 << 32) - 4095, 1 << 32].map(Offsets::width), [8; 2]);
        let wide = Offsets::new(&[0, (1 << 32) - 1]);
        assert_eq!((wide.bytes(), wide.get(1)), (16, (1 << 32) - 1));
    }
}
