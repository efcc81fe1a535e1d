//! CDIA, constant diagonals: in each hack of rows one value a diagonal, and a bit for each row.
//!
//! ```text
//!     | 4 1 . . |      hackSize = 2      hack 0            hack 1
//!     | 2 4 1 . |      offsets =  0  1  -1            |  -1  0  1
//!     | . 2 4 1 |      values  =  4  1   2            |   2  4  1
//!     | . . 2 4 |      rows    = 11 11  01            |  11 11 10
//! ```
//!
//! (`hackSize` is 256 or 1024; it is 2 above for the eye.) A diagonal with several values in a hack
//! is held once for each of them, with the rows that have it. So an entry takes a bit and hardly
//! more, whatever the precision. No fill is multiplied. New values must be constant along the same
//! pieces, otherwise they are refused.
//! Good for: stencils with constant coefficients. Bad for: all else, and refused where a hack has
//! many values for each of its diagonals.

use std::sync::Arc;

use rayon::prelude::*;

use super::launch::Arrays;
use super::rows::WARP;
use super::{
    Arg, Launch, Layout, Offsets, OnDevice, Param, Params, Refusal, Storage, Target, Value, Work,
    bytes_of, store,
};
use crate::csr::Csr;
use crate::par;
use crate::scalar::Scalar;
use crate::structure::{Constants, Structure};

/// See the module.
#[derive(Debug)]
pub struct CdiaFormat;

/// Rows that a warp takes: four a lane.
const ROWS_A_WARP: usize = 4 * WARP;

impl Storage for CdiaFormat {
    const NAME: &'static str = "cdia";
    const TITLE: &'static str = "CDIA, constant diagonals";
    const SOURCE: &'static str = "HDIA (D. Barbieri, V. Cardellini, A. Fanfarillo, S. Filippone, \
        Three storage formats for sparse matrices on GPGPUs (2015), section 3.3) with one value \
        for a diagonal of a hack";
    const SUITS: &'static str = "stencils with constant coefficients; bad for all else";
    const PARAMS: &'static [Param] = &[Param {
        name: "hack",
        doc: "rows of a hack (hackSize)",
        values: &[Value::Int(1024), Value::Int(256)],
        gpu: &[Value::Int(1024), Value::Int(256)],
        host: &[Value::Int(1024)],
    }];

    type Layout<T: Scalar> = ConstantDiagonals<T>;

    fn work(
        structure: &Structure<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<Work, Refusal> {
        let hack = params.int("hack");
        let constants = constants(structure, hack)?;
        let pattern = structure.pattern();
        let (nrows, nnz) = (pattern.nrows() as u64, pattern.nnz() as u64);
        let w = target.precision.bytes() as u64;
        let pieces = constants.offsets.len() as u64;
        let pointers = constants.ptr.len() * Offsets::width(pieces as usize);
        let bytes = pointers as u64 + pieces * (4 + w + hack as u64 / 8);
        let places = pieces * hack as u64;
        Ok(Work {
            layout_bytes: bytes,
            stream_bytes: bytes,
            entries: places,
            x_sectors: (places / WARP as u64) as f64 * (w as f64 + 1.0 - w as f64 / 32.0),
            steps: places / WARP as u64,
            lanes: nrows.div_ceil(4),
            launches: 1,
            convert_bytes: 8 * nrows + (4 + w) * nnz + bytes,
            ..Work::default()
        })
    }

    fn convert<T: Scalar>(
        csr: &Csr<T>,
        structure: &Structure<'_>,
        params: &Params,
        _target: &Target<'_>,
    ) -> Result<ConstantDiagonals<T>, Refusal> {
        let hack = params.int("hack");
        Ok(ConstantDiagonals::new(csr, &*constants(structure, hack)?, hack))
    }
}

fn constants(structure: &Structure<'_>, hack: usize) -> Result<Arc<Constants>, Refusal> {
    let largest = structure.pattern().nrows().max(structure.pattern().ncols());
    if i32::try_from(largest).is_err() {
        return Err(Refusal::new(format!(
            "a matrix of {largest} rows or columns has offsets past {}, the most that 32 bits hold",
            i32::MAX
        )));
    }
    structure.constants(hack).ok_or_else(|| {
        Refusal::new(format!(
            "diagonals of hacks of {hack} rows have more than 4 values each, or values are unknown"
        ))
    })
}

/// The pieces of diagonals of each hack.
#[derive(Debug)]
pub struct ConstantDiagonals<T> {
    nrows: usize,
    ncols: usize,
    hack: usize,
    /// First piece of each hack, and the end.
    ptr: Offsets,
    offsets: Vec<i32>,
    values: Vec<T>,
    /// Bit `r % 32` of word `p * (hack / 32) + r / 32`: whether row `r` of its hack has piece `p`.
    rows: Vec<u32>,
    parts: Vec<usize>,
}

impl<T: Scalar> ConstantDiagonals<T> {
    fn new(csr: &Csr<T>, constants: &Constants, hack: usize) -> Self {
        let words = hack / WARP;
        let Constants { ptr, offsets, entries } = constants;
        let mut rows = vec![0u32; offsets.len() * words];
        let cuts: Vec<usize> = ptr.iter().map(|p| p * words).collect();
        par::slices_mut(&mut rows, &cuts).into_par_iter().enumerate().for_each(|(h, bits)| {
            let pieces = ptr[h]..ptr[h + 1];
            for row in h * hack..((h + 1) * hack).min(csr.nrows()) {
                let (columns, values) = csr.row(row);
                for (&column, value) in columns.iter().zip(values) {
                    let offset = i64::from(column) - row as i64;
                    let piece = pieces.clone().find(|&p| {
                        offsets[p] == offset && csr.values()[entries[p]].bits() == value.bits()
                    });
                    if let Some(piece) = piece {
                        let r = row - h * hack;
                        bits[(piece - pieces.start) * words + r / WARP] |= 1 << (r % WARP);
                    }
                }
            }
        });
        ConstantDiagonals {
            nrows: csr.nrows(),
            ncols: csr.ncols(),
            hack,
            ptr: Offsets::new(ptr),
            offsets: offsets.iter().map(|&offset| offset as i32).collect(),
            values: entries.iter().map(|&k| csr.values()[k]).collect(),
            rows,
            parts: par::split(csr.row_ptr(), WARP, par::GRAIN),
        }
    }

    /// Whether a row of the matrix has a piece of its hack.
    fn has(&self, piece: usize, row: usize) -> bool {
        let r = row % self.hack;
        self.rows[piece * (self.hack / WARP) + r / WARP] >> (r % WARP) & 1 == 1
    }

    /// Column and piece of the entries of a row, columns rising.
    fn entries(&self, row: usize) -> Vec<(u32, usize)> {
        let h = row / self.hack;
        let pieces = self.ptr.get(h)..self.ptr.get(h + 1);
        let column = |p: usize| (row as i64 + i64::from(self.offsets[p])) as u32;
        let mut entries: Vec<(u32, usize)> =
            pieces.filter(|&p| self.has(p, row)).map(|p| (column(p), p)).collect();
        entries.sort_unstable_by_key(|&(column, _)| column);
        entries
    }

    /// The value of each piece among these values of all entries, in the order of the CSR matrix.
    fn take(&self, values: &[T]) -> Result<Vec<T>, Refusal> {
        let mut taken: Vec<Option<T>> = vec![None; self.values.len()];
        let mut next = values.iter();
        for row in 0..self.nrows {
            for ((column, piece), &value) in self.entries(row).into_iter().zip(&mut next) {
                let known = *taken[piece].get_or_insert(value);
                if known.bits() != value.bits() {
                    return Err(Refusal::new(format!(
                        "the new values are not constant along the diagonals that had one value: \
                         row {row} has {} in column {column}, a row before has {}; prepare a new \
                         operator for them",
                        value.to_f64(),
                        known.to_f64()
                    )));
                }
            }
        }
        Ok(taken.into_iter().map(|value| value.unwrap_or(T::ZERO)).collect())
    }
}

impl<T: Scalar> Layout<T> for ConstantDiagonals<T> {
    fn apply(&self, alpha: T, x: &[T], beta: T, y: &mut [T]) {
        let words = self.hack / WARP;
        par::over_parts(&self.parts, y, &|part, y| {
            for first in part.clone().step_by(WARP) {
                // Parts begin at multiples of a warp's rows.
                let (h, word) = (first / self.hack, first % self.hack / WARP);
                let mut sums = [T::ZERO; WARP];
                for p in self.ptr.get(h)..self.ptr.get(h + 1) {
                    let (value, bits) = (self.values[p], self.rows[p * words + word]);
                    let column = first as i64 + i64::from(self.offsets[p]);
                    let inside = usize::try_from(column).ok().and_then(|c| x.get(c..c + WARP));
                    match inside {
                        Some(x) if bits == u32::MAX => {
                            for (sum, &x) in sums.iter_mut().zip(x) {
                                *sum += value * x;
                            }
                        }
                        _ => {
                            for (r, sum) in sums.iter_mut().enumerate() {
                                if bits >> r & 1 == 1 {
                                    *sum += value * x[(column + r as i64) as usize];
                                }
                            }
                        }
                    }
                }
                let y = &mut y[first - part.start..part.end.min(first + WARP) - part.start];
                for (y, &sum) in y.iter_mut().zip(&sums) {
                    store(y, alpha, sum, beta);
                }
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
        let mut row_ptr = vec![0];
        let (mut columns, mut values) = (Vec::new(), Vec::new());
        for row in 0..self.nrows {
            for (column, piece) in self.entries(row) {
                columns.push(column);
                values.push(self.values[piece]);
            }
            row_ptr.push(columns.len());
        }
        Csr::new(self.nrows, self.ncols, row_ptr, columns, values)
            .expect("a layout is made from a valid matrix")
    }

    fn on_device(&self) -> Option<OnDevice<'_>> {
        let mut arrays = Arrays::default();
        let mut args = [self.nrows, self.hack].map(|size| Arg::U32(size as u32)).to_vec();
        args.extend(arrays.add_offsets(&self.ptr));
        args.push(arrays.add(&self.offsets));
        let values = arrays.add(&self.values);
        args.extend([values, arrays.add(&self.rows), Arg::X, Arg::Y, Arg::Alpha, Arg::Beta]);
        let warps = self.nrows.div_ceil(ROWS_A_WARP);
        let kernel = format!("cdia_{}", T::PRECISION);
        let launch = Launch::over("cdia", kernel, (warps * WARP) as u64, 128, args);
        Some(arrays.on_device(values, vec![launch]))
    }
}
