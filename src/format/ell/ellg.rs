//! ELL-G: ELLPACK for GPUs, with row lengths and columns that start on 128-byte boundaries.
//!
//! ```text
//!     | 4 . 1 . |      rl = 2 1 0 2    pitch = 32
//!     | . 5 . . |                 column 0              column 1
//!     | . . . . |      col_idx =  0 1 - 0 - - ... -  |  2 - - 3 - - ... -
//!     | 2 . . 6 |      values  =  4 5 0 2 0 0 ... 0  |  1 0 0 6 0 0 ... 0
//! ```
//!
//! The pitch is the number of rows rounded up to a multiple of 32, so that columns of 4-byte
//! indices and of 4- or 8-byte values are all aligned. `tpr` threads share a row, each processing
//! every `tpr`-th entry; the arrays do not depend on it, and the host processes whole rows.
//! Padding (`-`): column `u32::MAX` and value 0, stored but not read.
//! Good for: rows of nearly the same length; several threads per row where there are too few rows
//! to fill the device. Bad for: memory, which equals that of ELLPACK; refused where there are more
//! than three slots per entry.

use super::column_major::{
    self, ColumnMajor, ColumnPlan, ColumnStarts, KeptLengths, StoredLengths,
};
use super::ellr::padded_work;
use super::row_order::WARP;
use super::{GpuConverter, GpuLayout, Param, Params, Refusal, Stop, Storage, Target, Value, Work};
use crate::analysis::{Analysis, Sort};
use crate::csr::CsrRef;
use crate::scalar::Scalar;

/// See the module.
#[derive(Debug)]
pub struct EllgFormat;

impl Storage for EllgFormat {
    const NAME: &'static str = "ellg";
    const TITLE: &'static str = "ELL-G, aligned ELLPACK with row lengths";
    const SOURCE: &'static str = "D. Barbieri, V. Cardellini, A. Fanfarillo, S. Filippone, Three \
        storage formats for sparse matrices on GPGPUs (2015), section 3.1";
    const SUITS: &'static str = "rows of nearly the same length, also few rows with several threads \
        per row; bad where a few rows are long";
    const PARAMS: &'static [Param] = &[Param {
        name: "tpr",
        doc: "number of threads that share a row",
        values: &[Value::Int(1), Value::Int(2), Value::Int(4), Value::Int(8)],
        gpu: &[Value::Int(1), Value::Int(2), Value::Int(4), Value::Int(8)],
        host: &[Value::Int(1)],
    }];

    type Layout<T: Scalar> = ColumnMajor<T>;

    fn work(
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<Work, Refusal> {
        let pitch = analysis.pattern().nrows().next_multiple_of(WARP);
        padded_work(analysis, target, pitch, params.int("tpr"))
    }

    fn convert<T: Scalar>(
        csr: CsrRef<'_, T>,
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<ColumnMajor<T>, Refusal> {
        let starts = ColumnStarts::Pitch(csr.nrows().next_multiple_of(WARP));
        let lengths = StoredLengths::of_rows(analysis, Sort::None);
        let columns = ColumnMajor::new(csr, analysis, target, Sort::None, starts, lengths);
        Ok(columns.with_threads(params.int("tpr")))
    }

    fn build(
        converter: &mut dyn GpuConverter,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<GpuLayout, Stop> {
        column_major::build(
            converter,
            target,
            Sort::None,
            ColumnPlan::Full(WARP),
            KeptLengths::Rows,
            params.int("tpr"),
        )
    }
}
