//! Tar archives: ustar, GNU and pax, and the older form without a magic number.
//!
//! ```text
//! header, 512 bytes:   name 0..100, size 124..136 (octal), checksum 148..156 (octal),
//!                      type 156, "ustar" 257..262, prefix of the name 345..500
//! content, padded to a multiple of 512 bytes, then the next header; a block of zeros ends it
//! ```
//!
//! A header of type `L` (GNU) or `x` (pax) brings the long name of the next one in its content.
//! Source: IEEE Std 1003.1-2017, pax, section "ustar Interchange Format".

use std::io::{self, Read};

use super::super::context::Context;
use super::super::layers::Source;
use super::super::limits::io_error;
use super::Picker;
use crate::csr::Csr;
use crate::error::{Error, Result};
use crate::scalar::Scalar;

const BLOCK: usize = 512;

/// Maximum number of bytes of a header's extension.
const EXTENSION_BYTES: u64 = 1 << 16;

/// Reads the matrix in the archive.
///
/// # Errors
/// [`Error::Input`] if the archive is damaged, or holds no matrix or several; faults of the matrix.
pub(in super::super) fn read<T: Scalar>(
    mut source: Source<'_>,
    context: &Context<'_>,
) -> Result<Csr<T>> {
    let mut picker = Picker::new(context);
    let mut next = Next::default();
    while let Some(header) = header(&mut source)? {
        let size = next.size.filter(|_| !header.is_extension()).unwrap_or(header.size);
        let mut content = source.by_ref().take(size);
        match header.kind {
            b'L' => next.name = Some(lossy(&extension(&mut content)?)),
            b'x' => next.pax(&extension(&mut content)?)?,
            b'0' | b'\0' | b'7' if !header.name.ends_with('/') => {
                let name = next.name.take().unwrap_or(header.name);
                picker.member(&name, Box::new(&mut content))?;
                next = Next::default();
            }
            b'S' => picker.other(format!("{} (a file with holes)", header.name))?,
            b'K' | b'g' => {}
            _ => next = Next::default(),
        }
        io::copy(&mut content, &mut io::sink()).map_err(io_error)?;
        let missing = content.limit();
        let padding = (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64;
        if missing > 0 {
            return Err(damaged(&format!("it ends {missing} bytes early")));
        }
        // Some writers leave out the padding of the last file.
        io::copy(&mut source.by_ref().take(padding), &mut io::sink()).map_err(io_error)?;
    }
    // Reading to the end makes the decoder verify its checksum.
    io::copy(&mut source, &mut io::sink()).map_err(io_error)?;
    picker.finish("archive")
}

fn damaged(what: &str) -> Error {
    Error::input(format!("the tar archive is damaged: {what}"))
}

/// Properties of the next file, from a header's extension.
#[derive(Default)]
struct Next {
    name: Option<String>,
    size: Option<u64>,
}

impl Next {
    /// Reads pax records, `LENGTH KEY=VALUE` and a line end each; the length counts all of it.
    fn pax(&mut self, mut records: &[u8]) -> Result<()> {
        while !records.is_empty() {
            let record = pax_record(records).ok_or_else(|| damaged("a pax header is malformed"))?;
            records = &records[record.len..];
            match record.key {
                b"path" => self.name = Some(lossy(record.value)),
                b"size" => {
                    let size = std::str::from_utf8(record.value).ok().and_then(|s| s.parse().ok());
                    self.size = Some(size.ok_or_else(|| damaged("a pax size is no number"))?);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

struct PaxRecord<'a> {
    len: usize,
    key: &'a [u8],
    value: &'a [u8],
}

fn pax_record(records: &[u8]) -> Option<PaxRecord<'_>> {
    let blank = records.iter().position(|&b| b == b' ')?;
    let len: usize = std::str::from_utf8(&records[..blank]).ok()?.parse().ok()?;
    let text = records.get(blank + 1..len)?.strip_suffix(b"\n")?;
    let equals = text.iter().position(|&b| b == b'=')?;
    Some(PaxRecord { len, key: &text[..equals], value: &text[equals + 1..] })
}

fn extension(content: &mut impl Read) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    content.take(EXTENSION_BYTES + 1).read_to_end(&mut bytes).map_err(io_error)?;
    if bytes.len() as u64 > EXTENSION_BYTES {
        return Err(damaged(&format!("a name is longer than {EXTENSION_BYTES} bytes")));
    }
    Ok(bytes)
}

struct Header {
    name: String,
    size: u64,
    kind: u8,
}

impl Header {
    fn is_extension(&self) -> bool {
        matches!(self.kind, b'L' | b'K' | b'x' | b'g')
    }
}

/// Reads the next header; `None` at the end of the archive.
fn header(source: &mut Source<'_>) -> Result<Option<Header>> {
    let mut block = Vec::new();
    source.by_ref().take(BLOCK as u64).read_to_end(&mut block).map_err(io_error)?;
    if block.is_empty() || block.iter().all(|&b| b == 0) {
        return Ok(None);
    }
    if block.len() < BLOCK || !checksum_holds(&block) {
        return Err(damaged("the checksum of a header is wrong"));
    }
    let mut name = lossy(&block[..100]);
    if &block[257..262] == b"ustar" && block[263] == b'0' && block[345] != 0 {
        name = format!("{}/{name}", lossy(&block[345..500]));
    }
    let kind = block[156];
    let size = match kind {
        // Links, devices and folders have no content.
        b'1'..=b'6' => 0,
        _ => size(&block[124..136]).ok_or_else(|| damaged("the size of a file is no number"))?,
    };
    Ok(Some(Header { name, size, kind }))
}

/// Reads a size: octal digits, or the bytes of a number after a byte with its highest bit set.
fn size(field: &[u8]) -> Option<u64> {
    if field[0] & 0x80 != 0 {
        let (high, low) = field[1..].split_at(3);
        return (field[0] == 0x80 && high == [0; 3])
            .then(|| low.iter().fold(0, |size, &b| size << 8 | u64::from(b)));
    }
    octal(field)
}

fn octal(field: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(field).ok()?.trim_matches(['\0', ' ']);
    if text.is_empty() {
        return Some(0);
    }
    u64::from_str_radix(text, 8).ok()
}

/// Returns true if `block` is a header with the right checksum: the sum of its bytes, with blanks
/// in place of the checksum.
pub(in super::super) fn checksum_holds(block: &[u8]) -> bool {
    let plain = block[..148].iter().chain(&block[156..BLOCK]);
    let sum = plain.fold(8 * u64::from(b' '), |sum, &b| sum + u64::from(b));
    block[0] != 0 && octal(&block[148..156]) == Some(sum)
}

/// Returns the text up to the first zero byte.
fn lossy(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
