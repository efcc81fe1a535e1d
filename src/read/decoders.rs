//! Decoders of compressed input (feature `read-archives`; without it, `decoders_none.rs` is
//! compiled instead).
//!
//! Each accepts concatenated members, as `cat a.gz b.gz` makes them, and what the format's own
//! program accepts behind the last one: zeros after gzip and xz, and other bytes after gzip and
//! bzip2, which those programs ignore with a warning.

mod peek;
mod xz;
mod zstd;

use std::io::{self, Read};

use bzip2::bufread::BzDecoder;
use flate2::bufread::GzDecoder;

use self::peek::Peek;
use super::context::{Context, Notes};
use super::layers::Source;
use crate::error::Result;

/// Decompresses gzip.
///
/// # Errors
/// None; the version in `decoders_none.rs` always fails.
pub(super) fn gzip<'a>(source: Source<'a>, context: &Context<'_>) -> Result<Source<'a>> {
    Ok(Box::new(Members::<GzDecoder<_>>::new(source, context.notes.clone())))
}

/// Decompresses bzip2.
///
/// # Errors
/// None; the version in `decoders_none.rs` always fails.
pub(super) fn bzip2<'a>(source: Source<'a>, context: &Context<'_>) -> Result<Source<'a>> {
    Ok(Box::new(Members::<BzDecoder<_>>::new(source, context.notes.clone())))
}

/// Decompresses xz. Reading fails if a block needs a larger dictionary than the limit.
///
/// # Errors
/// None; the version in `decoders_none.rs` always fails.
pub(super) fn xz<'a>(source: Source<'a>, context: &Context<'_>) -> Result<Source<'a>> {
    Ok(Box::new(xz::Xz::new(source, window_limit(context))))
}

/// Decompresses zstd. Reading fails if a frame needs a larger window than the limit.
///
/// # Errors
/// None; the version in `decoders_none.rs` always fails.
pub(super) fn zstd<'a>(source: Source<'a>, context: &Context<'_>) -> Result<Source<'a>> {
    Ok(Box::new(zstd::Frames::new(source, window_limit(context))))
}

/// Decompresses one zlib stream, as MATLAB files hold one for each variable.
///
/// # Errors
/// None; the version in `decoders_none.rs` always fails.
pub(super) fn zlib<'a>(source: Source<'a>, _context: &Context<'_>) -> Result<Source<'a>> {
    Ok(Box::new(flate2::read::ZlibDecoder::new(source)))
}

/// Returns the base-2 logarithm of the largest window: a file of a few bytes may claim 128 MiB.
fn window_limit(context: &Context<'_>) -> u32 {
    (context.limits.bytes.max(1).ilog2() + 1).clamp(23, 27)
}

/// A decoder of one member of a compressed file.
trait Member: Read {
    type Source: Read;
    /// The bytes that a member starts with.
    const START: &[u8];
    /// Name of the format.
    const NAME: &str;
    fn open(source: Peek<Self::Source>) -> Self;
    fn close(self) -> Peek<Self::Source>;
}

impl<R: Read> Member for GzDecoder<Peek<R>> {
    type Source = R;
    const START: &[u8] = b"\x1f\x8b";
    const NAME: &str = "gzip";

    fn open(source: Peek<R>) -> Self {
        GzDecoder::new(source)
    }

    fn close(self) -> Peek<R> {
        self.into_inner()
    }
}

impl<R: Read> Member for BzDecoder<Peek<R>> {
    type Source = R;
    const START: &[u8] = b"BZh";
    const NAME: &str = "bzip2";

    fn open(source: Peek<R>) -> Self {
        BzDecoder::new(source)
    }

    fn close(self) -> Peek<R> {
        self.into_inner()
    }
}

/// All members of a compressed file, one after the other.
struct Members<D> {
    /// The member being read; `None` behind the last one.
    member: Option<D>,
    notes: Notes,
}

impl<D: Member> Members<D> {
    fn new(source: D::Source, notes: Notes) -> Self {
        Members { member: Some(D::open(Peek::new(source))), notes }
    }
}

impl<D: Member> Read for Members<D> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let got = member.read(buffer)?;
            if got > 0 || buffer.is_empty() {
                return Ok(got);
            }
            let Some(ended) = self.member.take() else { break };
            let mut source = ended.close();
            source.skip_zeros()?;
            let next = source.peek(D::START.len())?;
            if next == D::START {
                self.member = Some(D::open(source));
            } else if !next.is_empty() {
                let name = D::NAME;
                self.notes.tell(format!("ignored the bytes behind the {name} data"));
            }
        }
        Ok(0)
    }
}
