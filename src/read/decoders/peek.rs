//! A buffered source whose next bytes can be looked at.

use std::io::{self, BufRead, BufReader, Read};

/// A buffered source whose next bytes can be looked at, across the ends of its buffer.
pub(super) struct Peek<R> {
    /// Bytes that were taken from `source` and not yet delivered, from `at` on.
    head: Vec<u8>,
    at: usize,
    source: BufReader<R>,
}

/// Size of the buffer in bytes.
const BUFFER: usize = 1 << 17;

impl<R: Read> Peek<R> {
    /// Wraps a source.
    pub fn new(source: R) -> Self {
        Peek { head: Vec::new(), at: 0, source: BufReader::with_capacity(BUFFER, source) }
    }

    /// Returns the next `len` bytes without taking them; fewer at the end.
    pub fn peek(&mut self, len: usize) -> io::Result<&[u8]> {
        self.head.drain(..self.at);
        self.at = 0;
        let missing = len.saturating_sub(self.head.len()) as u64;
        self.source.by_ref().take(missing).read_to_end(&mut self.head)?;
        Ok(&self.head[..len.min(self.head.len())])
    }

    /// Takes bytes as long as they are zero.
    pub fn skip_zeros(&mut self) -> io::Result<()> {
        loop {
            let bytes = self.fill_buf()?;
            let zeros = bytes.iter().take_while(|&&b| b == 0).count();
            let done = bytes.len() > zeros || bytes.is_empty();
            self.consume(zeros);
            if done {
                return Ok(());
            }
        }
    }

    /// Takes `len` bytes; fewer at the end.
    pub fn skip(&mut self, len: u64) -> io::Result<()> {
        io::copy(&mut self.by_ref().take(len), &mut io::sink()).map(drop)
    }
}

impl<R: Read> BufRead for Peek<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at < self.head.len() {
            return Ok(&self.head[self.at..]);
        }
        self.source.fill_buf()
    }

    fn consume(&mut self, len: usize) {
        if self.at < self.head.len() {
            self.at += len;
        } else {
            self.source.consume(len);
        }
    }
}

impl<R: Read> Read for Peek<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.fill_buf()?.read(buffer)?;
        self.consume(got);
        Ok(got)
    }
}
