//! The fingerprint of a pattern: the key of stored measurements and analyses.

use std::fmt;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use crate::csr::Pattern;

/// The 128-bit XXH3 hash of dimensions, row lengths and columns, without values.
///
/// Equal on all machines of little-endian byte order; written as 32 hexadecimal digits.
///
/// ```
/// use ellect::{Csr, Fingerprint};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = Csr::from_triplets(1, 2, [(0, 1, 3.0)])?;
/// let other = csr.map_values(|value| 2.0 * value);
/// assert_eq!(Fingerprint::of(csr.pattern()), Fingerprint::of(other.pattern()));
/// assert_eq!(Fingerprint::of(csr.pattern()).to_string().len(), 32);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(u128);

impl Fingerprint {
    /// Hashes a pattern. One pass over its arrays, with row pointers as row lengths.
    pub fn of(pattern: Pattern<'_>) -> Self {
        let mut hash = Xxh3::new();
        hash.update(&(pattern.nrows() as u64).to_le_bytes());
        hash.update(&(pattern.ncols() as u64).to_le_bytes());
        let mut lengths = [0u32; 1024];
        let mut row = 0;
        while row < pattern.nrows() {
            let end = (row + lengths.len()).min(pattern.nrows());
            for (length, row) in lengths.iter_mut().zip(row..end) {
                *length = pattern.row_nnz(row) as u32;
            }
            hash.update(bytemuck::cast_slice(&lengths[..end - row]));
            row = end;
        }
        hash.update(bytemuck::cast_slice(pattern.col_idx()));
        Fingerprint(hash.digest128())
    }

    /// Returns the 128 bits; the highest bits are the first digits of the text.
    pub(crate) const fn bits(self) -> u128 {
        self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<Fingerprint> for String {
    fn from(fingerprint: Fingerprint) -> String {
        fingerprint.to_string()
    }
}

impl std::str::FromStr for Fingerprint {
    type Err = crate::error::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
        u128::from_str_radix(text, 16).ok().filter(|_| digits).map(Fingerprint).ok_or_else(|| {
            crate::error::Error::argument(format!(
                "fingerprint '{text}' is not 32 hexadecimal digits"
            ))
        })
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
