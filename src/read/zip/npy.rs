//! One array in numpy's `.npy` format, versions 1 to 3.
//!
//! ```text
//! "\x93NUMPY"  major  minor  header length (2 bytes, from version 2 on 4; little endian)
//! {'descr': '<f8', 'fortran_order': False, 'shape': (3,), }      padded with blanks, then LF
//! elements, each in the byte order and size of descr
//! ```
//!
//! The reader supports what SciPy writes for sparse matrices: booleans, integers, f16, f32, f64,
//! complex numbers of f32 and f64, and short strings. The header is a Python literal; the reader
//! looks up three of its keys, evaluates nothing and does not recurse.

use std::io::Read;

use super::super::content::excerpt;
use super::super::context::Context;
use super::super::limits::io_error;
use crate::error::{Error, Result};

/// The header of an array.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NpyHeader {
    /// Numpy's type letter: b, i, u, f, c, S, U, or one that the reader does not support.
    pub kind: u8,
    /// Bytes per element, for strings, too.
    pub size: usize,
    order: ByteOrder,
    /// Length of each dimension.
    pub shape: Vec<u64>,
    /// True if the first index runs fastest.
    pub fortran: bool,
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
            fortran: value("'fortran_order'").is_some_and(|value| value.starts_with("True")),
        })
    }

    /// Returns numpy's name of the type of elements, `complex128` for instance.
    pub fn type_name(&self) -> String {
        let bits = 8 * self.size;
        match (self.kind, self.size) {
            (b'f', 10..) => format!("longdouble (float{bits})"),
            (b'f', _) => format!("float{bits}"),
            (b'c', 17..) => format!("clongdouble (complex{bits})"),
            (b'c', _) => format!("complex{bits}"),
            (b'i', _) => format!("int{bits}"),
            (b'u', _) => format!("uint{bits}"),
            (b'b', _) => "bool".into(),
            (b'S' | b'U', _) => "text".into(),
            (kind, size) => format!("{}{size}", kind.escape_ascii()),
        }
    }

    /// Checks that the type of elements is one that can be read.
    ///
    /// # Errors
    /// The reason, if it is not.
    pub fn check_type(&self, context: &Context<'_>) -> std::result::Result<(), String> {
        match (self.kind, self.size) {
            (b'f', 10..) => Err(format!(
                "values of type {} are not supported; convert them with A.astype('float64')",
                self.type_name()
            )),
            (b'c', 8 | 16) => {
                let what =
                    format!("the values are complex ({}), which needs an option", self.type_name());
                context.accept_complex(&what).map_err(|error| error.to_string())
            }
            (b'c', _) => Err(format!("values of type {} are not supported", self.type_name())),
            (b'S' | b'U', 1..=64) | (_, 1..=8) => Ok(()),
            (_, size) => Err(format!("elements of {size} bytes are not supported")),
        }
    }

    /// Returns true if elements are little-endian and have this type letter and size.
    pub fn is_plain(&self, kind: u8, size: usize) -> bool {
        (self.kind, self.size, self.order) == (kind, size, ByteOrder::Little)
    }

    /// Returns the number of elements; `None` if it exceeds 64 bits.
    pub fn len(&self) -> Option<u64> {
        self.shape.iter().try_fold(1_u64, |len, &n| len.checked_mul(n))
    }

    /// Returns the element in `bytes` of an array of little-endian f64, the usual type of values; `None`
    /// if this array has another type.
    #[inline]
    pub fn double(&self, bytes: &[u8]) -> Option<f64> {
        let is_usual = self.kind == b'f' && self.order == ByteOrder::Little;
        let bytes: &[u8; 8] = bytes.try_into().ok().filter(|_| is_usual)?;
        Some(f64::from_le_bytes(*bytes))
    }

    /// Returns the element in `bytes` as an index; `None` if it is negative or no whole number.
    #[inline]
    pub fn index(&self, bytes: &[u8]) -> Option<u64> {
        // The usual type of indices.
        if self.kind == b'i'
            && self.order == ByteOrder::Little
            && let Ok(bytes) = <&[u8; 4]>::try_from(bytes)
        {
            return u64::try_from(i32::from_le_bytes(*bytes)).ok();
        }
        match self.kind {
            b'u' => Some(self.word(bytes)),
            b'i' => u64::try_from(self.signed(bytes)).ok(),
            _ => None,
        }
    }

    /// Returns the element in `bytes` as a number; `None` if this array holds no numbers.
    pub fn number(&self, bytes: &[u8]) -> Option<f64> {
        match (self.kind, self.size) {
            (b'f', 2) => Some(f64_of_half(self.word(bytes) as u16)),
            (b'f', 4) => Some(f64::from(f32::from_bits(self.word(bytes) as u32))),
            (b'f', 8) => Some(f64::from_bits(self.word(bytes))),
            (b'u', _) => Some(self.word(bytes) as f64),
            (b'i', _) => Some(self.signed(bytes) as f64),
            (b'b', _) => Some(if self.word(bytes) == 0 { 0.0 } else { 1.0 }),
            _ => None,
        }
    }

    /// Returns the real and the imaginary part of the complex element in `bytes`.
    pub fn complex(&self, bytes: &[u8]) -> Option<(f64, f64)> {
        let size = self.size / 2;
        let part = NpyHeader { kind: b'f', size, order: self.order, shape: vec![], fortran: false };
        let (real, imaginary) = bytes.split_at(size);
        let is_complex = self.kind == b'c' && matches!(size, 4 | 8);
        is_complex.then(|| Some((part.number(real)?, part.number(imaginary)?)))?
    }

    /// Returns the integer in `bytes`; `None` if this array holds no integers.
    pub fn integer(&self, bytes: &[u8]) -> Option<i128> {
        match self.kind {
            b'u' => Some(self.word(bytes).into()),
            b'i' => Some(self.signed(bytes).into()),
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

/// Converts IEEE binary16 without loss: 1 sign bit, 5 of the exponent, 10 of the fraction.
fn f64_of_half(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    let size = match exponent {
        0 => fraction * 2_f64.powi(-24),
        0x1f if fraction == 0.0 => f64::INFINITY,
        0x1f => f64::NAN,
        _ => (1024.0 + fraction) * 2_f64.powi(exponent - 25),
    };
    if bits & 0x8000 == 0 { size } else { -size }
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
        let usual = header("<i4", "(1,)").expect("valid");
        assert_eq!(usual.index(&[2, 1, 0, 0]), Some(258));
        assert_eq!(usual.index(&[0xfe, 0xff, 0xff, 0xff]), None);
        for (descr, double) in [("<f8", Some(1.5)), (">f8", None), ("<i8", None), ("<f4", None)] {
            let header = header(descr, "(1,)").expect("valid");
            assert_eq!(header.double(&1.5_f64.to_le_bytes()[..header.size]), double, "{descr}");
        }
        let big = header(">i4", "(1,)").expect("valid");
        assert_eq!(big.index(&[0, 0, 1, 2]), Some(258));
        let float = header(">f4", "(1,)").expect("valid");
        assert_eq!(float.number(&1.5_f32.to_be_bytes()), Some(1.5));
        assert_eq!(header("<u8", "(1,)").expect("valid").index(&[255; 8]), Some(u64::MAX));
        assert_eq!(header("|b1", "(1,)").expect("valid").number(&[1]), Some(1.0));
        assert_eq!(header("<c16", "(1,)").expect("valid").number(&[0; 8]), None);
        let complex = header("<c8", "(1,)").expect("valid");
        let bytes = [1.5_f32.to_le_bytes(), 2_f32.to_le_bytes()].concat();
        assert_eq!(complex.complex(&bytes), Some((1.5, 2.0)));
        assert_eq!(complex.type_name(), "complex64");
        assert_eq!(header("<f16", "(1,)").expect("valid").type_name(), "longdouble (float128)");
    }

    #[test]
    fn numbers_of_16_bits_are_exact() {
        let half = |bits| f64_of_half(bits);
        assert_eq!([half(0x3c00), half(0xc000), half(0x7bff)], [1.0, -2.0, 65504.0]);
        assert_eq!([half(0x0001), half(0x03ff)], [2_f64.powi(-24), 1023.0 * 2_f64.powi(-24)]);
        assert_eq!([half(0x0400), half(0x3555)], [2_f64.powi(-14), 1365.0 / 4096.0]);
        assert_eq!([half(0x7c00), half(0xfc00)], [f64::INFINITY, f64::NEG_INFINITY]);
        assert!(half(0x7e00).is_nan() && half(0x8000).is_sign_negative());
    }
}
