//! One array in numpy's `.npy` format, versions 1 to 3.
//!
//! ```text
//! "\x93NUMPY"  major  minor  header length (2 bytes, from version 2 on 4; little endian)
//! {'descr': '<f8', 'fortran_order': False, 'shape': (3,), }      padded with blanks, then LF
//! elements, each in the byte order and size of descr
//! ```
//!
//! The reader supports what SciPy writes for sparse matrices: booleans, integers, f32, f64 and
//! short strings, in arrays of zero dimensions or one. The header is a Python literal; the reader
//! looks up two of its keys, evaluates nothing and does not recurse.

use std::io::Read;

use super::{excerpt, io_error};
use crate::error::{Error, Result};

/// The header of an array.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NpyHeader {
    /// Numpy's type letter: b, i, u, f, S, U, or one that the reader does not support.
    pub kind: u8,
    /// Bytes per element, for strings, too.
    pub size: usize,
    order: ByteOrder,
    /// Length of each dimension.
    pub shape: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ByteOrder {
    Little,
    Big,
}

/// Maximum number of header bytes.
const HEADER_BYTES: usize = 1 << 16;

impl NpyHeader {
    /// Reads the header and leaves `source` at the first element.
    ///
    /// # Errors
    /// [`Error::Input`] if the header is malformed.
    pub fn read(source: &mut impl Read) -> Result<NpyHeader> {
        let mut start = [0; 8];
        source.read_exact(&mut start).map_err(io_error)?;
        let (magic, version) = start.split_at(6);
        if magic != b"\x93NUMPY" {
            return Err(Error::input("this is no numpy array: the magic bytes are missing"));
        }
        let mut len = [0; 4];
        let len_bytes = match version[0] {
            1 => 2,
            2 | 3 => 4,
            other => {
                return Err(Error::input(format!(
                    "the version of the numpy array is {other}; versions 1 to 3 are supported"
                )));
            }
        };
        source.read_exact(&mut len[..len_bytes]).map_err(io_error)?;
        let len = u32::from_le_bytes(len) as usize;
        if len > HEADER_BYTES {
            return Err(Error::input(format!(
                "the numpy header has {len} bytes; the limit is {HEADER_BYTES}"
            )));
        }
        let mut text = vec![0; len];
        source.read_exact(&mut text).map_err(io_error)?;
        let parsed = std::str::from_utf8(&text).ok().and_then(NpyHeader::parse);
        parsed.ok_or_else(|| {
            Error::input(format!("the numpy header {} is malformed", excerpt(&text)))
        })
    }

    fn parse(text: &str) -> Option<NpyHeader> {
        let value = |key: &str| {
            let after = text.split_once(key)?.1;
            after.trim_start().strip_prefix(':').map(str::trim_start)
        };
        let (descr, _) = value("'descr'")?.strip_prefix('\'')?.split_once('\'')?;
        let (shape, _) = value("'shape'")?.strip_prefix('(')?.split_once(')')?;
        let &[order, kind, ref size @ ..] = descr.as_bytes() else { return None };
        let order = match order {
            b'<' | b'|' | b'=' => ByteOrder::Little,
            b'>' => ByteOrder::Big,
            _ => return None,
        };
        let size: usize = std::str::from_utf8(size).ok()?.parse().ok()?;
        let lengths = shape.split(',').map(str::trim).filter(|length| !length.is_empty());
        Some(NpyHeader {
            kind,
            // Numpy counts characters of 4 bytes each.
            size: if kind == b'U' { size.checked_mul(4)? } else { size },
            order,
            shape: lengths.map(|length| length.parse().ok()).collect::<Option<_>>()?,
        })
    }

    /// Returns the number of elements; `None` if it exceeds 64 bits.
    pub fn len(&self) -> Option<u64> {
        self.shape.iter().try_fold(1_u64, |len, &n| len.checked_mul(n))
    }

    /// Returns the element in `bytes` as an index; `None` if it is negative or no whole number.
    pub fn index(&self, bytes: &[u8]) -> Option<u64> {
        match self.kind {
            b'u' => Some(self.word(bytes)),
            b'i' => u64::try_from(self.signed(bytes)).ok(),
            _ => None,
        }
    }

    /// Returns the element in `bytes` as a number; `None` if this array holds no numbers.
    pub fn number(&self, bytes: &[u8]) -> Option<f64> {
        match (self.kind, self.size) {
            (b'f', 4) => Some(f64::from(f32::from_bits(self.word(bytes) as u32))),
            (b'f', 8) => Some(f64::from_bits(self.word(bytes))),
            (b'u', _) => Some(self.word(bytes) as f64),
            (b'i', _) => Some(self.signed(bytes) as f64),
            (b'b', _) => Some(if self.word(bytes) == 0 { 0.0 } else { 1.0 }),
            _ => None,
        }
    }

    /// Returns 1 to 8 bytes as an unsigned number.
    fn word(&self, bytes: &[u8]) -> u64 {
        let mut word = [0; 8];
        match self.order {
            ByteOrder::Little => {
                word[..bytes.len()].copy_from_slice(bytes);
                u64::from_le_bytes(word)
            }
            ByteOrder::Big => {
                word[8 - bytes.len()..].copy_from_slice(bytes);
                u64::from_be_bytes(word)
            }
        }
    }

    fn signed(&self, bytes: &[u8]) -> i64 {
        let unused = 64 - 8 * bytes.len();
        (self.word(bytes) << unused) as i64 >> unused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(descr: &str, shape: &str) -> Option<NpyHeader> {
        NpyHeader::parse(&format!(
            "{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
        ))
    }

    #[test]
    fn headers_are_understood() {
        let vector = header("<f8", "(3,)").expect("valid");
        assert_eq!((vector.kind, vector.size, vector.shape), (b'f', 8, vec![3]));
        let text = header("|S3", "()").expect("valid");
        assert_eq!((text.kind, text.size, text.len()), (b'S', 3, Some(1)));
        assert_eq!(header("<U3", "()").expect("valid").size, 12);
        assert_eq!(header("<f8", "(4294967296, 4294967296)").expect("valid").len(), None);
        assert_eq!(header("<f8", "(-1,)"), None);
        assert_eq!(header("f", "(1,)"), None);
        assert_eq!(NpyHeader::parse("{'descr': [('a', '<f8')], 'shape': (1,)}"), None);
    }

    #[test]
    fn elements_of_either_byte_order_are_read() {
        let little = header("<i2", "(1,)").expect("valid");
        assert_eq!(little.number(&[0xfe, 0xff]), Some(-2.0));
        assert_eq!(little.index(&[0xfe, 0xff]), None);
        assert_eq!(little.index(&[2, 1]), Some(258));
        let big = header(">i4", "(1,)").expect("valid");
        assert_eq!(big.index(&[0, 0, 1, 2]), Some(258));
        let float = header(">f4", "(1,)").expect("valid");
        assert_eq!(float.number(&1.5_f32.to_be_bytes()), Some(1.5));
        assert_eq!(header("<u8", "(1,)").expect("valid").index(&[255; 8]), Some(u64::MAX));
        assert_eq!(header("|b1", "(1,)").expect("valid").number(&[1]), Some(1.0));
        assert_eq!(header("<c16", "(1,)").expect("valid").number(&[0; 8]), None);
    }
}
