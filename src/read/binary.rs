//! Arrays of numbers in binary files.

use std::io::Read;

use super::limits::io_error;
use crate::error::{Error, Result};
use crate::scalar::Scalar;

/// Number of bytes that are read at once.
const CHUNK_BYTES: usize = 1 << 16;

/// Number of elements for which memory is taken at first.
const FIRST_ELEMENTS: usize = 1 << 13;

/// Reads `len` elements of `size` bytes each, decoded by `decode`; `fault` creates the error from
/// the text about an element.
///
/// Memory is taken for the elements that were read and half as many more, never for `len`.
///
/// # Errors
/// If the source ends early, or `decode` fails.
pub(super) fn elements<U>(
    source: &mut impl Read,
    len: u64,
    size: usize,
    mut decode: impl FnMut(&[u8]) -> std::result::Result<U, String>,
    fault: impl Fn(String) -> Error,
) -> Result<Vec<U>> {
    let mut elements = Vec::new();
    let per_chunk = CHUNK_BYTES / size;
    let mut chunk = vec![0; per_chunk * size];
    while (elements.len() as u64) < len {
        let left = usize::try_from(len - elements.len() as u64).unwrap_or(usize::MAX);
        let wanted = per_chunk.min(left);
        let bytes = &mut chunk[..wanted * size];
        source.read_exact(bytes).map_err(io_error)?;
        reserve(&mut elements, wanted, left);
        for bytes in bytes.chunks_exact(size) {
            let element = decode(bytes)
                .map_err(|what| fault(format!("element {}: {what}", elements.len())))?;
            elements.push(element);
        }
    }
    Ok(elements)
}

/// Makes room for `wanted` of `left` more elements: half of those that are there, at least.
pub(super) fn reserve<U>(elements: &mut Vec<U>, wanted: usize, left: usize) {
    if elements.capacity() - elements.len() < wanted {
        let more = (elements.len() / 2).max(FIRST_ELEMENTS);
        elements.reserve_exact(more.max(wanted).min(left));
    }
}

/// Checks that the imaginary part of a complex value is zero.
///
/// # Errors
/// A text, if it is not.
pub(super) fn no_imaginary_part(part: f64) -> std::result::Result<(), String> {
    match part {
        0.0 => Ok(()),
        _ => Err(format!(
            "the imaginary part is {part}; only matrices whose imaginary parts are all zero can be \
             read by their real parts"
        )),
    }
}

/// Rounds a number to a value of the matrix.
///
/// # Errors
/// A text, if the value is not finite.
#[inline]
pub(super) fn value<T: Scalar>(number: f64) -> std::result::Result<T, String> {
    let value = T::from_f64(number);
    if value.to_f64().is_finite() {
        Ok(value)
    } else {
        Err(format!("{number:e} is not finite in {}", T::PRECISION))
    }
}

/// Returns true if `number` loses digits as f64.
pub(super) fn is_rounded(number: i128) -> bool {
    number as f64 as i128 != number
}
