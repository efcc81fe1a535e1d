//! Streams in the .xz format, with zeros between them.

use std::io::{self, BufRead, Read};

use xz4rust::{XzDecoder, XzError};

use super::peek::Peek;
use crate::error::Error;
use crate::units;

/// Size of the dictionary at first; a block that needs more enlarges it.
const FIRST_DICTIONARY: usize = 1 << 12;

/// Decompresses xz.
pub(super) struct Xz<R> {
    source: Peek<R>,
    decoder: Box<XzDecoder<'static>>,
    largest: u64,
    ended: bool,
}

impl<R: Read> Xz<R> {
    /// Wraps a source; dictionaries have at most 2^`window` bytes.
    pub fn new(source: R, window: u32) -> Self {
        let largest = 1 << window;
        let decoder = XzDecoder::in_heap_with_alloc_dict_size(FIRST_DICTIONARY, largest as usize);
        Xz { source: Peek::new(source), decoder, largest, ended: false }
    }

    fn fault(&self, error: XzError) -> io::Error {
        let needed = match error {
            XzError::DictionaryTooLarge(needed) => Some(needed),
            // Codes of sizes: 40 is 4 GiB, and those below follow by 2^n and 3 2^n.
            XzError::UnsupportedLzmaProperties(code @ 0..=40) => {
                Some(u64::from(2 | code & 1) << (code / 2 + 11))
            }
            _ => None,
        };
        if let Some(needed) = needed {
            return io::Error::other(Error::input(format!(
                "the xz data needs a dictionary of {}; the limit is {}: decompress it first",
                units::bytes(needed),
                units::bytes(self.largest)
            )));
        }
        if error == XzError::Sha256NotSupported {
            return io::Error::other(Error::input(
                "the xz data has SHA-256 checksums, which are not supported: decompress it first",
            ));
        }
        io::Error::new(io::ErrorKind::InvalidData, format!("xz data: {error}"))
    }
}

impl<R: Read> Read for Xz<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !self.ended && !buffer.is_empty() {
            let input = self.source.fill_buf()?;
            if input.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let step = match self.decoder.decode(input, buffer) {
                Ok(step) if step.made_progress() || step.is_end_of_stream() => step,
                Ok(_) => return Err(io::ErrorKind::InvalidData.into()),
                Err(error) => return Err(self.fault(error)),
            };
            self.source.consume(step.input_consumed());
            if step.is_end_of_stream() {
                self.decoder.reset();
                self.source.skip_zeros()?;
                self.ended = self.source.fill_buf()?.is_empty();
            }
            if step.output_produced() > 0 {
                return Ok(step.output_produced());
            }
        }
        Ok(0)
    }
}
