//! Reads a stream line by line; a line over the length limit is skipped without being held in
//! memory.

use std::io::{self, BufRead, Read};

/// Maximum length of a line, in bytes.
pub(super) const MOST_BYTES: usize = 64 << 10;

/// One line of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// The bytes of the line, without the line break.
    Whole(Vec<u8>),
    /// The line is longer than [`MOST_BYTES`] and was skipped.
    TooLong,
}

/// Reads the next line; returns `None` at the end of the stream.
pub(super) fn next(reader: &mut impl BufRead) -> io::Result<Option<Line>> {
    let mut line = Vec::new();
    let read = reader.by_ref().take(MOST_BYTES as u64 + 1).read_until(b'\n', &mut line)?;
    if read == 0 {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if line.len() > MOST_BYTES {
        skip(reader)?;
        return Ok(Some(Line::TooLong));
    }
    Ok(Some(Line::Whole(line)))
}

fn skip(reader: &mut impl BufRead) -> io::Result<()> {
    loop {
        let buffer = reader.fill_buf()?;
        let (used, ended) = match buffer.iter().position(|&byte| byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (buffer.len(), buffer.is_empty()),
        };
        reader.consume(used);
        if ended {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_skipped_and_the_next_one_read() {
        let long = vec![b'x'; 3 * MOST_BYTES];
        let text = [b"one\n", long.as_slice(), b"\n\nlast"].concat();
        let mut reader = io::BufReader::with_capacity(100, text.as_slice());
        let mut lines = Vec::new();
        while let Some(line) = next(&mut reader).expect("memory") {
            lines.push(line);
        }
        let whole = |text: &str| Line::Whole(text.into());
        assert_eq!(lines, [whole("one"), Line::TooLong, whole(""), whole("last")]);
    }
}
