//! Data elements of a MATLAB file: a type, a size and data.

use std::io::{self, Read, Take};

use super::super::binary;
use super::super::layers::Source;
use super::super::limits::io_error;
use super::damaged;
use crate::error::{Error, Result};

/// Byte order of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

impl Order {
    /// Returns 1 to 8 bytes as an unsigned number.
    fn word(self, bytes: &[u8]) -> u64 {
        let add = |word: u64, &b: &u8| word << 8 | u64::from(b);
        match self {
            Order::Little => bytes.iter().rev().fold(0, add),
            Order::Big => bytes.iter().fold(0, add),
        }
    }
}

/// Type of an element's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    /// A signed integer of so many bytes.
    Signed(usize),
    /// An unsigned integer of so many bytes.
    Unsigned(usize),
    Single,
    Double,
    Matrix,
    Compressed,
    Other,
}

impl Type {
    fn of(code: u32) -> Type {
        match code {
            1 => Type::Signed(1),
            2 => Type::Unsigned(1),
            3 => Type::Signed(2),
            4 => Type::Unsigned(2),
            5 => Type::Signed(4),
            6 => Type::Unsigned(4),
            7 => Type::Single,
            9 => Type::Double,
            12 => Type::Signed(8),
            13 => Type::Unsigned(8),
            14 => Type::Matrix,
            15 => Type::Compressed,
            _ => Type::Other,
        }
    }

    fn size(self) -> Option<usize> {
        match self {
            Type::Signed(size) | Type::Unsigned(size) => Some(size),
            Type::Single => Some(4),
            Type::Double => Some(8),
            Type::Matrix | Type::Compressed | Type::Other => None,
        }
    }
}

/// An element whose data has not been read.
pub(super) struct Element<'s, 'd> {
    pub kind: Type,
    pub order: Order,
    pub data: Take<&'s mut Source<'d>>,
    /// Number of bytes behind the data.
    padding: u64,
}

impl<'s, 'd> Element<'s, 'd> {
    /// Reads the head of the next element; `None` at the end of `source`.
    ///
    /// # Errors
    /// [`Error::Input`] if the head is cut off.
    pub fn next(source: &'s mut Source<'d>, order: Order) -> Result<Option<Element<'s, 'd>>> {
        let mut head = Vec::new();
        source.by_ref().take(4).read_to_end(&mut head).map_err(io_error)?;
        if head.is_empty() {
            return Ok(None);
        }
        if head.len() < 4 {
            return Err(damaged("it is cut off"));
        }
        let word = order.word(&head) as u32;
        let (code, size, padding) = match word >> 16 {
            0 => {
                let mut size = [0; 4];
                source.read_exact(&mut size).map_err(io_error)?;
                let size = order.word(&size);
                (word, size, (8 - size % 8) % 8)
            }
            size @ 1..=4 => (word & 0xffff, u64::from(size), u64::from(4 - size)),
            _ => return Err(damaged("a short element has over 4 bytes")),
        };
        let kind = Type::of(code);
        let padding = if kind == Type::Compressed { 0 } else { padding };
        Ok(Some(Element { kind, order, data: source.take(size), padding }))
    }

    /// Reads the head of a part that must follow.
    ///
    /// # Errors
    /// [`Error::Input`] if there is none.
    pub fn part(source: &'s mut Source<'d>, order: Order, what: &str) -> Result<Self> {
        Element::next(source, order)?.ok_or_else(|| damaged(&format!("it ends before the {what}")))
    }

    /// Returns true if the element has no data.
    pub fn is_empty(&self) -> bool {
        self.data.limit() == 0
    }

    /// Passes over the rest of the data and the padding.
    ///
    /// # Errors
    /// [`Error::Input`] if the data is cut off.
    pub fn finish(mut self) -> Result<()> {
        io::copy(&mut self.data, &mut io::sink()).map_err(io_error)?;
        if self.data.limit() > 0 {
            return Err(damaged(&format!("it ends {} bytes early", self.data.limit())));
        }
        // Some writers leave out the padding of the last element.
        let source = self.data.into_inner();
        io::copy(&mut source.take(self.padding), &mut io::sink()).map_err(io_error)?;
        Ok(())
    }

    /// Reads all bytes, at most `most`.
    ///
    /// # Errors
    /// [`Error::Input`] if there are more, or they are cut off.
    pub fn bytes(mut self, most: usize) -> Result<Vec<u8>> {
        if self.data.limit() > most as u64 {
            return Err(damaged(&format!(
                "a part has {} bytes; the limit is {most}",
                self.data.limit()
            )));
        }
        let mut bytes = Vec::new();
        self.data.read_to_end(&mut bytes).map_err(io_error)?;
        self.finish()?;
        Ok(bytes)
    }

    /// Reads all bytes as text.
    ///
    /// # Errors
    /// As [`Element::bytes`].
    pub fn text(self) -> Result<String> {
        const LONGEST: usize = 1024;
        Ok(String::from_utf8_lossy(&self.bytes(LONGEST)?).into_owned())
    }

    /// Reads all numbers of 32 bits, at most `most`; none may be negative.
    ///
    /// # Errors
    /// As [`Element::bytes`], and for numbers of another type.
    pub fn words(self, most: usize) -> Result<Vec<u32>> {
        let (kind, order) = (self.kind, self.order);
        if !matches!(kind, Type::Signed(4) | Type::Unsigned(4)) {
            return Err(damaged("a part holds no integers of 32 bits"));
        }
        let bytes = self.bytes(4 * most)?;
        let words: Vec<u32> = bytes.chunks_exact(4).map(|b| order.word(b) as u32).collect();
        match words.iter().any(|&word| kind == Type::Signed(4) && word > i32::MAX as u32) {
            true => Err(damaged("a size is negative")),
            false => Ok(words),
        }
    }

    /// Reads all numbers, at most `most`, and passes each through `each`.
    ///
    /// # Errors
    /// [`Error::Input`] if they are cut off, or `each` fails; [`Error::Limit`].
    pub fn numbers<U>(
        mut self,
        most: u64,
        mut each: impl FnMut(f64) -> std::result::Result<U, String>,
    ) -> Result<Vec<U>> {
        let (kind, order) = (self.kind, self.order);
        let Some(size) = kind.size() else {
            return Err(damaged("an array holds no numbers"));
        };
        let len = self.data.limit() / size as u64;
        if len > most {
            let what = "number of elements of an array";
            let at = crate::error::At::Whole;
            return Err(Error::Limit { at, what, got: len, limit: most, remedy: "nonzeros" });
        }
        let number = |bytes: &[u8]| {
            let (word, unused) = (order.word(bytes), 64 - 8 * size);
            match kind {
                Type::Single => f64::from(f32::from_bits(word as u32)),
                Type::Double => f64::from_bits(word),
                Type::Signed(_) => ((word << unused) as i64 >> unused) as f64,
                _ => word as f64,
            }
        };
        let decode = |bytes: &[u8]| each(number(bytes));
        let fault = |what: String| damaged(&format!("an array: {what}"));
        let numbers = binary::elements(&mut self.data, len, size, decode, fault)?;
        self.finish()?;
        Ok(numbers)
    }
}
