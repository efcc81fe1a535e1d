//! Frames of zstd, skippable ones among them. Source: Y. Collet, M. Kucherawy, "Zstandard
//! Compression and the 'application/zstd' Media Type", RFC 8878, 2021, section 3.1.
//!
//! ```text
//! frame:            28 b5 2f fd | descriptor | window? | dictionary | content size | blocks
//! skippable frame:  5x 2a 4d 18 | length, 4 bytes | content that no decoder needs
//! ```

use std::io::{self, Read};

use zstd::Decoder;

use super::peek::Peek;
use crate::error::Error;
use crate::units;

/// Number of bytes of the longest frame header.
const HEADER_BYTES: usize = 18;

/// Decompresses all frames of a source.
pub(super) struct Frames<R> {
    /// The frame being read.
    frame: Option<Decoder<'static, Peek<R>>>,
    /// The source between frames.
    source: Option<Peek<R>>,
    window: u32,
}

impl<R: Read> Frames<R> {
    /// Wraps a source; windows have at most 2^`window` bytes.
    pub fn new(source: R, window: u32) -> Self {
        Frames { frame: None, source: Some(Peek::new(source)), window }
    }

    /// Opens the next frame that has content; leaves none at the end.
    fn advance(&mut self, mut source: Peek<R>) -> io::Result<()> {
        loop {
            match *source.peek(HEADER_BYTES)? {
                [] => return Ok(()),
                [0x50..=0x5f, 0x2a, 0x4d, 0x18, a, b, c, d, ..] => {
                    source.skip(8 + u64::from(u32::from_le_bytes([a, b, c, d])))?;
                }
                ref header => {
                    let needed = window(header).unwrap_or(0);
                    let limit = 1 << self.window;
                    if needed > limit {
                        return Err(io::Error::other(Error::input(format!(
                            "the zstd data needs a window of {}; the limit is {}: decompress it \
                             first (zstd -d --long=31), or compress it without --long",
                            units::bytes(needed),
                            units::bytes(limit)
                        ))));
                    }
                    let mut decoder = Decoder::with_buffer(source)?.single_frame();
                    decoder.window_log_max(self.window)?;
                    self.frame = Some(decoder);
                    return Ok(());
                }
            }
        }
    }
}

/// Returns the window that a frame header asks for; `None` if the header is cut off.
fn window(header: &[u8]) -> Option<u64> {
    let descriptor = *header.get(4)?;
    let single_segment = descriptor & 0x20 != 0;
    if !single_segment {
        let byte = u64::from(*header.get(5)?);
        let base = 1 << (10 + (byte >> 3));
        return Some(base + base / 8 * (byte & 7));
    }
    let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let size = [1, 2, 4, 8][usize::from(descriptor >> 6)];
    let field = header.get(5 + dictionary..5 + dictionary + size)?;
    let content = field.iter().rev().fold(0, |content, &byte| content << 8 | u64::from(byte));
    Some(if size == 2 { content + 256 } else { content })
}

impl<R: Read> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(source) = self.source.take() {
                self.advance(source)?;
            }
            let Some(frame) = &mut self.frame else { return Ok(0) };
            let got = frame.read(buffer)?;
            if got > 0 || buffer.is_empty() {
                return Ok(got);
            }
            self.source = self.frame.take().map(Decoder::finish);
        }
    }
}
