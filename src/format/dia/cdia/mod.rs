//! CDIA, constant diagonals: in each hack of rows one value per diagonal, and one bit per row.
//!
//! ```text
//!     | 4 1 . . |      rows of a hack: 2  hack 0            hack 1
//!     | 2 4 1 . |      offsets =  0  1  -1            |  -1  0  1
//!     | . 2 4 1 |      values  =  4  1   2            |   2  4  1
//!     | . . 2 4 |      rows    = 11 11  01            |  11 11 10
//! ```
//!
//! (Hacks have 1,024 rows; the drawing shows 2.) A diagonal with several values in a hack is stored
//! once for each value, with a bit for each row that has this value. So an entry takes little more
//! than a bit, in any precision. There is no padding or fill. New values must be constant along the
//! same pieces; otherwise they are refused.
//! Good for: stencils with constant coefficients. Bad for: all other matrices; refused where a hack
//! has many values per diagonal.

mod gpu;
mod pieces;

use std::ops::Range;
use std::sync::Arc;

use ellect_kernels::shared;

use super::gpu::launch::Arrays;
use super::row_order::WARP;
use super::{
    Arg, GpuConverter, GpuLayout, Launch, Layout, Offsets, OnDevice, Params, Refusal, Stop,
    Storage, Target, Work, bytes_of, store,
};
use crate::analysis::Analysis;
use crate::csr::{Csr, CsrRef, offsets};
use crate::device::Kind;
use crate::par;
use crate::scalar::{Precision, Scalar};
use pieces::Constants;

/// See the module.
#[derive(Debug)]
pub struct CdiaFormat;

/// Rows of a hack: eight for each of 128 GPU threads.
const HACK: usize = shared("CDIA_HACK") as usize;

/// Threads per block; each block processes one hack.
const THREADS: usize = shared("CDIA_THREADS") as usize;

/// Number of 32-bit words that hold the row bits of a piece.
const WORDS: usize = HACK / WARP;

impl Storage for CdiaFormat {
    const NAME: &'static str = "cdia";
    const TITLE: &'static str = "CDIA, constant diagonals";
    const SOURCE: &'static str = "HDIA (D. Barbieri, V. Cardellini, A. Fanfarillo, S. Filippone, \
        Three storage formats for sparse matrices on GPGPUs (2015), section 3.3) with one value \
        for a diagonal of a hack";
    const SUITS: &'static str = "stencils with constant coefficients; bad for all else";
    const BY_VALUES: bool = true;
    const HOST_VERSION: u32 = 2;
    type Layout<T: Scalar> = ConstantDiagonals<T>;

    fn work(
        analysis: &Analysis<'_>,
        _params: &Params,
        target: &Target<'_>,
    ) -> Result<Work, Refusal> {
        check_size(analysis.pattern().nrows(), analysis.pattern().ncols())?;
        let counts = analysis.constant_counts(HACK).ok_or_else(not_constant)?;
        let pattern = analysis.pattern();
        let (nrows, nnz) = (pattern.nrows() as u64, pattern.nnz() as u64);
        let w = target.precision.bytes() as u64;
        let pieces = counts.pieces;
        let bytes = layout_bytes(counts.hacks, pieces, w);
        let places = pieces * HACK as u64;
        // A block of the GPU processes a hack, piece by piece.
        let (lanes, tile_steps, tile_steps_most) = match target.device.kind {
            Kind::Gpu => (0, pieces as f64 / counts.hacks.max(1) as f64, counts.most as f64),
            Kind::Host => (nrows.div_ceil(8), 0.0, 0.0),
        };
        Ok(Work {
            layout_bytes: bytes,
            stream_bytes: bytes,
            entries: places,
            x_sectors: (places / WARP as u64) as f64 * (w as f64 + 1.0 - w as f64 / 32.0),
            steps: places / WARP as u64,
            tile_steps,
            tile_steps_most,
            lanes,
            launches: 1,
            convert_bytes: 8 * nrows + (4 + w) * nnz + bytes,
            ..Work::default()
        })
    }

    fn convert<T: Scalar>(
        csr: CsrRef<'_, T>,
        analysis: &Analysis<'_>,
        _params: &Params,
        _target: &Target<'_>,
    ) -> Result<ConstantDiagonals<T>, Refusal> {
        Ok(ConstantDiagonals::new(csr, &*constants(analysis)?))
    }

    fn with_dots(one: &Launch) -> Option<Launch> {
        let precision = one.kernel.strip_prefix("cdia_")?;
        Some(one.with_dots("cdia_dot", format!("cdia_dot_{precision}")))
    }

    fn build(
        converter: &mut dyn GpuConverter,
        _params: &Params,
        target: &Target<'_>,
    ) -> Result<GpuLayout, Stop> {
        gpu::build(converter, target)
    }
}

/// Bytes of a layout with `hacks` hacks, `pieces` pieces and values of `value_bytes` bytes.
fn layout_bytes(hacks: usize, pieces: u64, value_bytes: u64) -> u64 {
    let pointers = (hacks + 1) * Offsets::width(pieces as usize);
    pointers as u64 + pieces * (4 + value_bytes + HACK as u64 / 8)
}

fn constants(analysis: &Analysis<'_>) -> Result<Arc<Constants>, Refusal> {
    check_size(analysis.pattern().nrows(), analysis.pattern().ncols())?;
    analysis.constants(HACK).ok_or_else(not_constant)
}

fn check_size(nrows: usize, ncols: usize) -> Result<(), Refusal> {
    let largest = nrows.max(ncols);
    if i32::try_from(largest).is_err() {
        return Err(Refusal::new(format!(
            "a matrix with {largest} rows or columns has offsets above {}, the limit of 32 bits",
            i32::MAX
        )));
    }
    Ok(())
}

fn not_constant() -> Refusal {
    Refusal::new(format!(
        "diagonals of hacks of {HACK} rows have fewer than 4 entries each, more than 4 values, or \
         values are unknown"
    ))
}

/// The launch of a product, one block per hack; `starts` holds the first piece of each hack.
fn product(
    nrows: usize,
    starts: [Arg; 2],
    offsets: Arg,
    values: Arg,
    rows: Arg,
    precision: Precision,
) -> Launch {
    let pieces = starts.into_iter().chain([offsets, values, rows]);
    let vectors = [Arg::X, Arg::Y, Arg::Alpha, Arg::Beta];
    let args = [Arg::U32(nrows as u32)].into_iter().chain(pieces).chain(vectors).collect();
    let threads = (nrows.div_ceil(HACK) * THREADS) as u64;
    Launch::over("cdia", format!("cdia_{precision}"), threads, THREADS as u32, args)
}

/// The arrays of a matrix in constant diagonals.
#[derive(Debug)]
pub struct ConstantDiagonals<T> {
    nrows: usize,
    ncols: usize,
    /// First piece of each hack, and the end.
    ptr: Offsets,
    offsets: Vec<i32>,
    values: Vec<T>,
    /// Bit `r % 32` of word `p * WORDS + r / 32` is set if row `r` of its hack has piece `p`.
    rows: Vec<u32>,
    parts: Vec<usize>,
}

impl<T: Scalar> ConstantDiagonals<T> {
    fn new(csr: CsrRef<'_, T>, constants: &Constants) -> Self {
        let Constants { ptr, offsets, entries } = constants;
        let mut rows = vec![0u32; offsets.len() * WORDS];
        let cuts: Vec<usize> = ptr.iter().map(|p| p * WORDS).collect();
        par::for_each(&mut par::slices_mut(&mut rows, &cuts), 1, |h, bits| {
            let pieces = ptr[h]..ptr[h + 1];
            for row in h * HACK..((h + 1) * HACK).min(csr.nrows()) {
                let (columns, values) = csr.row(row);
                for (&column, value) in columns.iter().zip(values) {
                    let offset = i64::from(column) - row as i64;
                    let piece = pieces.clone().find(|&p| {
                        offsets[p] == offset && csr.values()[entries[p]].bits() == value.bits()
                    });
                    if let Some(piece) = piece {
                        let r = row - h * HACK;
                        bits[(piece - pieces.start) * WORDS + r / WARP] |= 1 << (r % WARP);
                    }
                }
            }
        });
        ConstantDiagonals {
            nrows: csr.nrows(),
            ncols: csr.ncols(),
            ptr: Offsets::new(ptr),
            offsets: offsets.iter().map(|&offset| offset as i32).collect(),
            values: entries.iter().map(|&k| csr.values()[k]).collect(),
            rows,
            parts: par::split(csr.row_ptr(), WARP, par::GRAIN),
        }
    }

    /// True if row `row` of the matrix has an entry on piece `piece` of its hack.
    fn has(&self, piece: usize, row: usize) -> bool {
        let r = row % HACK;
        self.rows[piece * WORDS + r / WARP] >> (r % WARP) & 1 == 1
    }

    /// Rows and pieces of hack `h`, the pieces in ascending order of their offsets.
    fn hack(&self, h: usize) -> (Range<usize>, Vec<usize>) {
        let mut pieces: Vec<usize> = (self.ptr.get(h)..self.ptr.get(h + 1)).collect();
        pieces.sort_by_key(|&p| self.offsets[p]);
        (h * HACK..((h + 1) * HACK).min(self.nrows), pieces)
    }

    /// Calls `f` with row, column and piece of each entry of hack `h`, in the order of the CSR
    /// matrix.
    fn over_entries(&self, h: usize, mut f: impl FnMut(usize, u32, usize)) {
        let (rows, pieces) = self.hack(h);
        for row in rows {
            for &piece in pieces.iter().filter(|&&piece| self.has(piece, row)) {
                f(row, (row as i64 + i64::from(self.offsets[piece])) as u32, piece);
            }
        }
    }

    /// Number of entries before each hack, and the total.
    fn hack_entries(&self) -> Vec<usize> {
        offsets((0..self.ptr.len() - 1).map(|h| {
            let words = self.ptr.get(h) * WORDS..self.ptr.get(h + 1) * WORDS;
            self.rows[words].iter().map(|bits| bits.count_ones() as usize).sum()
        }))
    }

    /// The value of each piece, from the values of all entries in the order of the CSR matrix.
    fn take(&self, values: &[T]) -> Result<Vec<T>, Refusal> {
        let starts = self.hack_entries();
        let of_hack = |h: usize| {
            let pieces = self.ptr.get(h)..self.ptr.get(h + 1);
            let mut taken: Vec<Option<T>> = vec![None; pieces.len()];
            let (mut next, mut differs) = (starts[h], None);
            self.over_entries(h, |row, column, piece| {
                let value = values[next];
                let known = *taken[piece - pieces.start].get_or_insert(value);
                if known.bits() != value.bits() && differs.is_none() {
                    differs = Some(Refusal::new(format!(
                        "the new values are not constant along the diagonals that had one value: \
                         row {row} has {} in column {column}, an earlier row has {}; prepare a new \
                         operator for them",
                        value.to_f64(),
                        known.to_f64()
                    )));
                }
                next += 1;
            });
            match differs {
                Some(refusal) => Err(refusal),
                None => Ok(taken.into_iter().map(|value| value.unwrap_or(T::ZERO)).collect()),
            }
        };
        let hacks = par::map(self.ptr.len() - 1, 1, |h| Some(of_hack(h)));
        let hacks: Result<Vec<Vec<T>>, Refusal> = hacks.into_iter().flatten().collect();
        Ok(hacks?.concat())
    }
}

impl<T: Scalar> Layout<T> for ConstantDiagonals<T> {
    fn apply(&self, alpha: T, x: &[T], beta: T, y: &mut [T]) {
        par::over_parts(&self.parts, y, &|part, y| {
            let mut sums = [[T::ZERO; WARP]; WORDS];
            let mut first = part.start;
            while first < part.end {
                // Parts begin at multiples of 32 rows.
                let (h, word) = (first / HACK, first % HACK / WARP);
                let end = part.end.min((h + 1) * HACK);
                let sums = &mut sums[..(end - first).div_ceil(WARP)];
                sums.fill([T::ZERO; WARP]);
                for p in self.ptr.get(h)..self.ptr.get(h + 1) {
                    let words = &self.rows[p * WORDS + word..][..sums.len()];
                    let column = first as i64 + i64::from(self.offsets[p]);
                    add_piece(self.values[p], words, x, column, sums);
                }
                let y = &mut y[first - part.start..end - part.start];
                for (y, &sum) in y.iter_mut().zip(sums.as_flattened()) {
                    store(y, alpha, sum, beta);
                }
                first = end;
            }
        });
    }

    fn bytes(&self) -> u64 {
        self.ptr.bytes() + bytes_of(&self.offsets) + bytes_of(&self.values) + bytes_of(&self.rows)
    }

    fn check_values(&self, values: &[T]) -> Result<(), Refusal> {
        self.take(values).map(|_| ())
    }

    fn set_values(&mut self, values: &[T]) {
        if let Ok(values) = self.take(values) {
            self.values = values;
        }
    }

    fn limits_values(&self) -> bool {
        true
    }

    fn to_csr(&self) -> Csr<T> {
        let mut row_ptr = vec![0; self.nrows + 1];
        let (mut columns, mut values) = (Vec::new(), Vec::new());
        for h in 0..self.ptr.len() - 1 {
            self.over_entries(h, |row, column, piece| {
                columns.push(column);
                values.push(self.values[piece]);
                row_ptr[row + 1] = columns.len();
            });
        }
        for row in 0..self.nrows {
            row_ptr[row + 1] = row_ptr[row + 1].max(row_ptr[row]);
        }
        Csr::new(self.nrows, self.ncols, row_ptr, columns, values)
            .expect("a layout is made from a valid matrix")
    }

    fn on_device(&self) -> Option<OnDevice<'_>> {
        let mut arrays = Arrays::default();
        let starts =
            arrays.add_offsets("hack_ptr", "first piece of each hack, and the end", &self.ptr);
        let offsets = arrays.add("offsets", "column less row of each piece", &self.offsets);
        let values = arrays.add_values("values", "value of each piece", &self.values);
        let of_rows = "bits of the rows that have a piece, 32 words for each piece";
        let rows = arrays.add("rows", of_rows, &self.rows);
        arrays.number("hack", "rows of a hack", HACK);
        let launch = product(self.nrows, starts, offsets, values, rows, T::PRECISION);
        Some(arrays.on_device(values, vec![launch]))
    }
}

/// Adds `value` times elements of x to sums of rows, from `column` for the first row on, where a bit of
/// `words` is set; 32 rows for each word.
fn add_piece<T: Scalar>(value: T, words: &[u32], x: &[T], column: i64, sums: &mut [[T; WARP]]) {
    for (k, (sums, &bits)) in sums.iter_mut().zip(words).enumerate() {
        let column = column + (k * WARP) as i64;
        let inside = usize::try_from(column).ok().and_then(|c| x.get(c..)?.first_chunk::<WARP>());
        match inside {
            _ if bits == 0 => {}
            Some(x) if bits == u32::MAX => {
                for (sum, &x) in sums.iter_mut().zip(x) {
                    *sum += value * x;
                }
            }
            // Elements without an entry may not be finite, so sums are selected, not products.
            Some(x) => {
                for (r, (sum, &x)) in sums.iter_mut().zip(x).enumerate() {
                    let with = *sum + value * x;
                    *sum = if bits & 1 << r == 0 { *sum } else { with };
                }
            }
            None => {
                for (r, sum) in sums.iter_mut().enumerate() {
                    if bits & 1 << r != 0 {
                        *sum += value * x[(column + r as i64) as usize];
                    }
                }
            }
        }
    }
}
