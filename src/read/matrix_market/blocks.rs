//! Blocks of text that end at a line end.

use std::io::{self, Read};
use std::ops::Deref;

use super::super::limits::io_error;
use super::LINE_BYTES;
use super::lines::ParsedLines;
use crate::error::Result;

/// Bytes of a block of text, which is larger only if a line is.
const BLOCK_BYTES: usize = 1 << 16;

/// A block of text and its parsed lines; the buffers are reused.
pub(super) struct TextBlock<T> {
    pub text: Text,
    pub parsed: ParsedLines<T>,
}

impl<T> Default for TextBlock<T> {
    fn default() -> Self {
        TextBlock { text: Text::default(), parsed: ParsedLines::default() }
    }
}

/// The text in the first bytes of a buffer. The rest of the buffer keeps old bytes, so that a reader
/// that asks for initialised memory costs nothing.
#[derive(Default)]
pub(super) struct Text {
    buffer: Vec<u8>,
    len: usize,
}

impl Deref for Text {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer[..self.len]
    }
}

impl Text {
    /// Adds bytes from `source` until there are `wanted`, or no more; returns false then.
    fn fill(&mut self, source: &mut impl Read, wanted: usize) -> io::Result<bool> {
        while self.len < wanted {
            if self.len == self.buffer.len() {
                self.buffer.resize((2 * self.len).max(BLOCK_BYTES).min(wanted), 0);
            }
            let end = self.buffer.len().min(wanted);
            match source.read(&mut self.buffer[self.len..end]) {
                Ok(0) => return Ok(false),
                Ok(got) => self.len += got,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }
}

/// Cuts a source into blocks that end at a line end.
pub(super) struct Cutter<R> {
    source: R,
    /// The start of a line whose end has not been read yet.
    carry: Vec<u8>,
    state: CutterState,
}

#[derive(Clone, Copy)]
enum CutterState {
    Open,
    Ended,
    LineTooLong,
}

impl<R: Read> Cutter<R> {
    /// Creates a cutter at the start of a source.
    pub fn of(source: R) -> Self {
        Cutter { source, carry: Vec::new(), state: CutterState::Open }
    }

    /// Tells whether the source is cut no further because of a line that fits into no block.
    pub fn met_a_long_line(&self) -> bool {
        matches!(self.state, CutterState::LineTooLong)
    }

    /// Fills the first blocks with text and returns their number.
    pub fn fill<T>(&mut self, blocks: &mut [TextBlock<T>]) -> Result<usize> {
        for (filled, block) in blocks.iter_mut().enumerate() {
            self.next(&mut block.text).map_err(io_error)?;
            if block.text.is_empty() {
                return Ok(filled);
            }
        }
        Ok(blocks.len())
    }

    fn next(&mut self, text: &mut Text) -> io::Result<()> {
        text.len = 0;
        if !matches!(self.state, CutterState::Open) {
            return Ok(());
        }
        text.fill(&mut self.carry.as_slice(), self.carry.len())?;
        self.carry.clear();
        for most in [BLOCK_BYTES, LINE_BYTES] {
            if !text.fill(&mut self.source, most)? {
                self.state = CutterState::Ended;
                return Ok(());
            }
            if let Some(end) = text.iter().rposition(|&b| b == b'\n') {
                self.carry.extend_from_slice(&text[end + 1..]);
                text.len = end + 1;
                return Ok(());
            }
        }
        self.state = CutterState::LineTooLong;
        text.len = 0;
        Ok(())
    }
}
