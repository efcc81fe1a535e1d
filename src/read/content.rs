//! Detection of the kind of content from its first bytes, and from a file's name where the bytes
//! of several kinds look alike.

use super::harwell_boeing;
use crate::error::{Error, Result};

/// A kind of content that the reader supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    MatrixMarket,
    HarwellBoeing,
    Json,
    Petsc,
    Matlab,
    Matlab73,
    Zip,
    Tar,
    Gzip,
    Zstd,
    Bzip2,
    Xz,
}

/// Number of first bytes that decide the kind: a tar archive is recognised at byte 257, HDF5 at
/// byte 512, and the formats of a Harwell-Boeing file are in its fourth line.
pub(super) const HEAD_BYTES: u64 = 1024;

/// The first bytes of each kind of content. A lone `%` is Matrix Market with a broken first line.
const STARTS: [(&[u8], Content); 10] = [
    (b"%", Content::MatrixMarket),
    (b"{", Content::Json),
    (b"PK\x03\x04", Content::Zip),
    (b"PK\x05\x06", Content::Zip),
    (b"MATLAB 7.3", Content::Matlab73),
    (b"\x1f\x8b", Content::Gzip),
    (b"\x28\xb5\x2f\xfd", Content::Zstd),
    (b"\xfd7zXZ\x00", Content::Xz),
    (b"\x00\x12\x7b", Content::Petsc),
    (b"\x00\x00\x00\x00\x00\x12\x7b", Content::Petsc),
];

/// Known kinds of files that the reader does not support, with the remedy.
const REMEDIES: [(&[u8], &str); 22] = [
    (b"\x93NUMPY", "a single numpy array; save the matrix with scipy.sparse.save_npz"),
    (b"\x89HDF", "an HDF5 file; save the matrix with scipy.io.mmwrite or scipy.sparse.save_npz"),
    (b"\xd0\xcf\x11\xe0", "an old Office document; write the matrix with scipy.io.mmwrite"),
    (b"\x50\x7b\x12\x00", "a PETSc file in little-endian order; PETSc's own are big-endian"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive; unpack it first"),
    (b"Rar!", "a rar archive; unpack it first"),
    (b"\x1f\x9d", "compressed by compress (.Z); decompress it first, or use gzip or zstd"),
    (b"\x04\x22\x4d\x18", "lz4; decompress it first, or use gzip or zstd"),
    (b"LZIP", "lzip; decompress it first, or use gzip, zstd or xz"),
    (b"\x5d\x00\x00", "lzma (.lzma); decompress it first, or use xz"),
    (b"\xff\xfe", UTF_16),
    (b"\xfe\xff", UTF_16),
    (b"\x80\x02", PICKLE),
    (b"\x80\x03", PICKLE),
    (b"\x80\x04", PICKLE),
    (b"\x80\x05", PICKLE),
    (b"PAR1", "a Parquet file; write the matrix with scipy.io.mmwrite"),
    (b"CDF", "a NetCDF file; write the matrix with scipy.io.mmwrite"),
    (b"%PDF", "a PDF document; there is no matrix in it"),
    (b"\x7fELF", "a program; there is no matrix in it"),
    (
        b"version https://git-lfs",
        "a Git LFS pointer, not the file itself; fetch it with git lfs pull",
    ),
    (b"[", "a JSON array; a JSON matrix is an object with nrows, ncols, row_ptr and col_idx"),
];

const MATLAB_OTHER: &str = "a MATLAB file of version 4 or of no known version; write it in MATLAB \
                            with save('name.mat', 'A', '-v7')";
const UTF_16: &str = "text in UTF-16; save it as UTF-8 or ASCII";
const PICKLE: &str = "a Python pickle; save the matrix with scipy.sparse.save_npz";

/// Returns the kind of content that starts with `head`; `name` is the file's name, if it has one.
///
/// # Errors
/// [`Error::Input`] that names the kind if it is known but not supported, and what is supported.
pub(super) fn sniff(head: &[u8], name: &str) -> Result<Content> {
    if head.is_empty() {
        return Err(Error::input("the input is empty"));
    }
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    let is_text = |content| matches!(content, Content::Json | Content::MatrixMarket);
    if let Some(what) = unsupported(head, text) {
        return Err(Error::byte(0, format!("the input is {what}")));
    }
    for (start, content) in STARTS {
        if head.starts_with(start) || (is_text(content) && text.starts_with(start)) {
            return Ok(content);
        }
    }
    if is_matlab(head) {
        return Ok(Content::Matlab);
    }
    if is_tar(head) {
        return Ok(Content::Tar);
    }
    match head {
        [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => return Ok(Content::Zstd),
        [b'B', b'Z', b'h', b'1'..=b'9', ..] => return Ok(Content::Bzip2),
        _ => {}
    }
    if harwell_boeing::is_head(head) || (!is_binary(head) && harwell_boeing::is_name(name)) {
        return Ok(Content::HarwellBoeing);
    }
    if is_binary(head) && name.to_ascii_lowercase().ends_with(".mat") {
        return Err(Error::byte(0, format!("the input is {MATLAB_OTHER}")));
    }
    Err(Error::byte(0, unknown(head)))
}

/// Returns the name and the remedy of a kind that the reader does not support.
fn unsupported(head: &[u8], text: &[u8]) -> Option<&'static str> {
    if let Some(&(_, what)) = REMEDIES.iter().find(|(start, _)| head.starts_with(start)) {
        return Some(what);
    }
    if head.get(512..516) == Some(b"\x89HDF") && !head.starts_with(b"MATLAB 7.3") {
        return Some(REMEDIES[1].1);
    }
    let markup = [&b"<!doctype"[..], b"<html", b"<?xml"];
    let starts =
        |word: &&[u8]| text.get(..word.len()).is_some_and(|t| t.eq_ignore_ascii_case(word));
    if markup.iter().any(starts) {
        return Some("a web page or XML, not a matrix; download the file itself");
    }
    None
}

/// Returns true for the header of a MATLAB 5 file (also called 6 or 7): version 1 in either order.
fn is_matlab(head: &[u8]) -> bool {
    matches!(head.get(124..128), Some(b"\x00\x01IM" | b"\x01\x00MI"))
        || head.starts_with(b"MATLAB 5.0")
}

/// Returns true for a tar header: its checksum is right.
fn is_tar(head: &[u8]) -> bool {
    head.get(..512).is_some_and(super::archive::tar_checksum_holds)
}

/// Returns true for content that is no text in UTF-8; a character may be cut at the end.
fn is_binary(head: &[u8]) -> bool {
    head.iter().any(|&b| b < 0x20 && !b.is_ascii_whitespace() && b != 0x1a)
        || std::str::from_utf8(head).is_err_and(|error| error.error_len().is_some())
}

/// Returns the message for content of no known kind; it shows text, and never raw bytes.
fn unknown(head: &[u8]) -> String {
    const KINDS: &str = "it must be Matrix Market text ('%%MatrixMarket'), a JSON matrix ('{'), a \
                         SciPy .npz, Rutherford-Boeing, PETSc or MATLAB file, plain, compressed or \
                         in a tar or zip archive";
    if is_binary(head) {
        return format!("the input is binary data of no known kind; {KINDS}");
    }
    let text = String::from_utf8_lossy(head);
    let start: String = text.chars().take(SHOWN).collect();
    let more = if start.len() < text.len() { "..." } else { "" };
    format!("the input starts with '{}{more}'; {KINDS}", start.escape_debug())
}

/// Maximum length of quoted content in a message.
const SHOWN: usize = 40;

/// Returns the start of `text` in quotes, for a message.
pub(super) fn excerpt(text: &[u8]) -> String {
    let more = if text.len() > SHOWN { "..." } else { "" };
    format!("'{}{more}'", text[..text.len().min(SHOWN)].escape_ascii())
}
