//! Hacks of 32 rows with four consecutive slots per row: the slice shape of hll_vi and hll_du.

use super::row_order::{self, ArrayCosts};
use super::sliced::SliceShape;
use super::{Offsets, Params, Target, Value, Work};
use crate::analysis::{Analysis, Sort};

/// Hacks whose rows are stored in runs of four slots: first the first run of every row, then the
/// second run of every row, and so on.
#[derive(Debug)]
pub struct Quads {
    offsets: Offsets,
}

/// Rows of a hack.
pub(super) const HACK: usize = 32;

/// Slots of a row that are padded together.
pub(super) const RUN: usize = 4;

/// Slots that one run of every row of a hack takes.
pub(super) const STEP: usize = HACK * RUN;

/// The order of rows that the parameter `sort` selects: the matrix's own or windows.
pub(super) fn sort(params: &Params) -> Sort {
    match params.get("sort") {
        Value::Int(rows) => Sort::Window(rows as usize),
        Value::Word(_) => Sort::None,
    }
}

/// Number of runs in all hacks, with rows in `sort` order.
pub(super) fn runs(analysis: &Analysis<'_>, sort: Sort) -> u64 {
    analysis.n_iter(STEP, RUN, sort)
}

/// The work of a product with a layout of `bytes` bytes.
pub(super) fn work(analysis: &Analysis<'_>, target: &Target<'_>, sort: Sort, bytes: u64) -> Work {
    let arrays = ArrayCosts {
        layout_bytes: bytes,
        stream_bytes: bytes,
        entries: runs(analysis, sort) * STEP as u64,
        steps: analysis.n_iter(HACK, 1, sort),
    };
    row_order::work(analysis, target, sort, 1, arrays)
}

impl Quads {
    /// Shape of the hacks of the rows in `sort` order.
    pub fn new(analysis: &Analysis<'_>, sort: Sort) -> Self {
        let starts = analysis.slice_offsets(HACK, sort);
        let mut offsets = vec![0];
        for hack in starts.windows(2) {
            let slots = (hack[1] - hack[0]).next_multiple_of(STEP as u64) as usize;
            offsets.push(offsets[offsets.len() - 1] + slots);
        }
        Quads { offsets: Offsets::new(&offsets) }
    }
}

impl SliceShape for Quads {
    fn rows(&self) -> usize {
        HACK
    }

    fn start(&self, s: usize) -> usize {
        self.offsets.get(s)
    }

    fn slots(&self, s: usize, r: usize) -> impl Iterator<Item = usize> {
        let runs = (r * RUN..self.range(s).len()).step_by(STEP);
        runs.flat_map(|run| run..run + RUN)
    }

    fn offsets(&self) -> &Offsets {
        &self.offsets
    }
}
