//! Memory for reading a matrix and choosing for it, and the limits of reading in as much.

use ellect::Error;
use ellect::read::Limits;

use crate::options::Options;

/// Maximum number of rows in addition to the number of entries and to the bytes of the body.
///
/// Each row costs all candidates memory and time, and a body of a few bytes can claim many rows.
const MAX_EMPTY_ROWS: u64 = 1 << 18;

/// Memory that reading and choosing take per entry of a matrix, and some of its rows with it; the
/// second number is with its transpose.
const ENTRY_BYTES: [u64; 2] = [48, 80];

/// Memory that reading and choosing take per row or column if a row has few entries.
const ROW_BYTES: u64 = 180;

/// Returns the memory that reading and choosing with these options take per entry of a matrix.
pub fn entry_bytes(options: &Options) -> u64 {
    ENTRY_BYTES[usize::from(options.transposed > 0)]
}

/// Bounds of a matrix beside the memory that was reserved for it.
#[derive(Clone, Copy)]
pub struct Room {
    entry_bytes: u64,
    max_nonzeros: Option<u64>,
}

impl Room {
    /// Returns the bounds for these options and this setting.
    pub fn of(options: &Options, max_nonzeros: Option<u64>) -> Self {
        Room { entry_bytes: entry_bytes(options), max_nonzeros }
    }

    /// Returns the limits of reading a body of `body` bytes in this number of bytes of memory.
    pub fn limits(self, memory: u64, body: u64) -> Limits {
        let nonzeros = memory / self.entry_bytes;
        let rows = memory / ROW_BYTES;
        Limits {
            rows,
            columns: rows,
            // Text takes about 30 bytes per entry; 64 also bound what compressed data may expand to.
            bytes: body.max(nonzeros.saturating_mul(64)),
            nonzeros: nonzeros.min(self.max_nonzeros.unwrap_or(u64::MAX)),
            empty_rows: MAX_EMPTY_ROWS + body,
        }
    }

    /// Returns the memory that a matrix needs that was over a limit of the reservation; `None` if it
    /// was over another limit.
    pub fn needed(self, error: &Error, memory: u64) -> Option<u64> {
        let Error::Limit { got, limit, remedy, .. } = error else { return None };
        match *remedy {
            "nonzeros" if self.max_nonzeros.is_some_and(|most| *limit >= most) => None,
            "nonzeros" => Some(got.saturating_mul(self.entry_bytes)),
            "rows" | "columns" => Some(got.saturating_mul(ROW_BYTES)),
            "bytes" => Some(memory.saturating_add(1)),
            _ => None,
        }
    }
}
