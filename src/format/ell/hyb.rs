//! HYB: the first K entries of each row in ELLPACK, the others in coordinates.
//!
//! ```text
//!     | 4 . 1 . |      K = 1      ELLPACK part        coordinates
//!     | . 5 . . |                 col_idx = 0 1 - 0   row_idx = 0 3
//!     | . . . . |                 values  = 4 5 0 2   col_idx = 2 3
//!     | 2 . . 6 |                                     values  = 1 6
//! ```
//!
//! K is the largest number of columns that at least a third of the rows reach. Padding as in
//! [`super::ell`].
//! Good for: rows of nearly the same length except for some long ones. Bad for: row lengths without
//! a common size, where most entries are stored as coordinates.

use super::column_major::{ColumnMajor, ColumnStarts, StoredLengths};
use super::coo::CooLayout;
use super::row_order::{self, WARP};
use super::{Layout, OnDevice, Params, Refusal, Storage, Target, Work};
use crate::analysis::{Analysis, Sort, Walk};
use crate::csr::{Csr, CsrRef};
use crate::device::Kind;
use crate::scalar::Scalar;

/// See the module.
#[derive(Debug)]
pub struct HybFormat;

impl Storage for HybFormat {
    const NAME: &'static str = "hyb";
    const TITLE: &'static str = "HYB, ELLPACK and coordinates";
    const SOURCE: &'static str = "N. Bell, M. Garland, Efficient Sparse Matrix-Vector \
        Multiplication on CUDA (2008), section 3.5";
    const SUITS: &'static str = "rows of nearly the same length except for some long ones";
    const KERNELS_OF: &'static [&'static str] = &["coo"];

    type Layout<T: Scalar> = HybLayout<T>;

    fn work(
        analysis: &Analysis<'_>,
        _params: &Params,
        target: &Target<'_>,
    ) -> Result<Work, Refusal> {
        let pattern = analysis.pattern();
        let (nrows, nnz) = (pattern.nrows() as u64, pattern.nnz() as u64);
        let w = target.precision.bytes() as u64;
        let width = width(analysis);
        let slots = row_order::full_columns(pattern.nnz(), pattern.nrows(), width)?;
        let over =
            |(length, times): (u32, u64)| times * u64::from(length).saturating_sub(width as u64);
        let rest: u64 = analysis.row_lengths().iter().map(over).sum();
        let bytes = slots * (4 + w) + rest * (8 + w);
        // Entries in coordinates are read along rows, entries in ELLPACK across rows.
        let share = rest as f64 / nnz.max(1) as f64;
        let across = Walk::Rows { threads: 1, sort: Sort::None };
        let x_sectors = (1.0 - share) * analysis.x_sectors(across, target.precision)
            + share * analysis.x_sectors(Walk::Entries, target.precision);
        let second_pass = rest > 0 || target.device.kind == Kind::Host;
        Ok(Work {
            layout_bytes: bytes,
            stream_bytes: bytes,
            entries: slots + rest,
            x_sectors,
            x_loaded: analysis.x_loaded(across, target),
            extra_bytes: if second_pass { 2 * w * nrows } else { 0 },
            steps: nrows.div_ceil(WARP as u64) * width as u64 + rest.div_ceil(32),
            launches: if second_pass { 2 } else { 1 },
            convert_bytes: 8 * nrows + 3 * (4 + w) * nnz + bytes,
            ..Work::default()
        })
    }

    fn convert<T: Scalar>(
        csr: CsrRef<'_, T>,
        analysis: &Analysis<'_>,
        _params: &Params,
        target: &Target<'_>,
    ) -> Result<HybLayout<T>, Refusal> {
        let width = width(analysis);
        let (head, tail) = split(csr, width);
        let head_analysis = Analysis::new(head.pattern());
        let starts = ColumnStarts::Pitch(csr.nrows());
        let sort = Sort::None;
        let ell = ColumnMajor::new(
            head.as_ref(),
            &head_analysis,
            target,
            sort,
            starts,
            StoredLengths::none(),
        );
        Ok(HybLayout { ell, coo: CooLayout::new(tail.as_ref()) })
    }
}

/// K: the largest number of columns that at least a third of the rows reach.
fn width(analysis: &Analysis<'_>) -> usize {
    let lengths = analysis.row_lengths();
    let nrows = lengths.len();
    lengths.at(nrows - nrows.div_ceil(3)) as usize
}

/// Splits a matrix into the first `width` entries of each row and the others.
fn split<T: Scalar>(csr: CsrRef<'_, T>, width: usize) -> (Csr<T>, Csr<T>) {
    let part = |of_row: &dyn Fn(usize) -> std::ops::Range<usize>| {
        let mut row_ptr = vec![0];
        let (mut columns, mut values) = (Vec::new(), Vec::new());
        for row in 0..csr.nrows() {
            let (row_columns, row_values) = csr.row(row);
            let range = of_row(row_columns.len());
            columns.extend_from_slice(&row_columns[range.clone()]);
            values.extend_from_slice(&row_values[range]);
            row_ptr.push(columns.len());
        }
        Csr::new(csr.nrows(), csr.ncols(), row_ptr, columns, values)
            .expect("a piece of each row of a valid matrix")
    };
    (part(&|len| 0..len.min(width)), part(&|len| len.min(width)..len))
}

/// The ELLPACK part and the coordinates part of a matrix.
#[derive(Debug)]
pub struct HybLayout<T> {
    ell: ColumnMajor<T>,
    coo: CooLayout<T>,
}

impl<T: Scalar> Layout<T> for HybLayout<T> {
    fn apply(&self, alpha: T, x: &[T], beta: T, y: &mut [T]) {
        self.ell.apply(alpha, x, beta, y);
        if self.coo.bytes() > 0 {
            self.coo.apply(alpha, x, T::ONE, y);
        }
    }

    fn bytes(&self) -> u64 {
        self.ell.bytes() + self.coo.bytes()
    }

    fn set_values(&mut self, values: &[T]) {
        let (mut head, mut tail) = (Vec::new(), Vec::new());
        let mut rest = values;
        let mut later = self.coo.rows().chunk_by(|a, b| a == b).peekable();
        for (row, &count) in self.ell.counts().iter().enumerate() {
            let others = later.next_if(|rows| rows[0] as usize == row).map_or(0, <[u32]>::len);
            let (own, following) = rest.split_at(count as usize + others);
            let (first, others) = own.split_at(count as usize);
            head.extend_from_slice(first);
            tail.extend_from_slice(others);
            rest = following;
        }
        self.ell.set_values(&head);
        self.coo.set_values(&tail);
    }

    fn to_csr(&self) -> Csr<T> {
        let (head, tail) = (self.ell.to_csr(), self.coo.to_csr());
        let mut row_ptr = vec![0];
        let (mut columns, mut values) = (Vec::new(), Vec::new());
        for row in 0..head.nrows() {
            for part in [&head, &tail] {
                columns.extend_from_slice(part.row(row).0);
                values.extend_from_slice(part.row(row).1);
            }
            row_ptr.push(columns.len());
        }
        Csr::new(head.nrows(), head.ncols(), row_ptr, columns, values)
            .expect("the parts of a valid matrix")
    }

    fn on_device(&self) -> Option<OnDevice<'_>> {
        let rest = self.coo.add_on_device().named("coo_");
        Some(self.ell.on_device()?.named("ell_").then(rest))
    }
}
