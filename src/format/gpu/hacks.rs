//! Rows of a matrix on a GPU in hacks.

use super::super::sliced::check_span;
use super::super::{Arg, Target};
use super::convert::{GpuConverter, GpuRows, SliceOffsets, slice_widths, step};
use super::launch::NULL;
use super::slot_fill::SlotFill;
use super::small::{CSR, FoundHacks, HackShape, SmallHacks};
use super::stop::Stop;
use crate::analysis::Sort;

/// Rows of a matrix on a GPU in hacks, each padded to its longest row.
pub(in crate::format) struct GpuHacks {
    pub rows: GpuRows,
    hack: usize,
    /// Number of consecutive entries of a row that are stored next to each other.
    run: u32,
    stored: usize,
    pub starts: SliceOffsets,
    /// The first column of each hack; null for 32-bit columns.
    pub base: Arg,
    pub column_bits: u64,
}

impl GpuHacks {
    /// Computes the starts of hacks of `hack` rows in `sort` order, with runs of `run` slots of a
    /// row, and the first column of each hack where columns are `narrow`.
    pub fn new(
        converter: &mut dyn GpuConverter,
        [hack, run]: [usize; 2],
        sort: Sort,
        narrow: bool,
        target: &Target<'_>,
    ) -> Result<Self, Stop> {
        let shape = HackShape::of(&*converter, [hack, run], sort, narrow);
        if let Some(small) = SmallHacks::of_matrix(converter, &shape, target)? {
            let FoundHacks { units, longest, widest } = small.find(converter, CSR)?;
            check_span(widest)?;
            return Ok(GpuHacks {
                rows: GpuRows::ordered(small.order, longest),
                hack,
                run: run as u32,
                stored: shape.hacks() * hack,
                starts: SliceOffsets { args: [small.starts, NULL], total: units },
                base: small.base,
                column_bits: if narrow { 16 } else { 32 },
            });
        }
        let matrix = converter.matrix();
        let rows = GpuRows::new(converter, sort, target)?;
        let hacks = matrix.nrows.div_ceil(hack);
        let sizes = [matrix.nrows, hack, hacks];
        let counts = converter.temporary(4 * (hacks as u64 + 1))?;
        converter.launch(&slice_widths(sizes, run as u32, rows.order, rows.lengths, counts))?;
        let widest = converter.number()?;
        let (base, column_bits) = if narrow {
            let base = converter.array(4 * hacks as u64)?;
            let kernel = format!("spans_{}", matrix.offset_name());
            let from = [rows.order, rows.relabel, Arg::RowPtr, Arg::ColIdx];
            let sizes = sizes.map(|size| Arg::U32(size as u32));
            let args = sizes.into_iter().chain(from).chain([base, widest]).collect();
            converter.launch(&step(kernel, hacks * 32, args))?;
            (base, 16)
        } else {
            (NULL, 32)
        };
        let starts = converter.starts(counts, hack, hacks + 1)?;
        check_span(converter.read(widest)? as usize)?;
        let (run, stored) = (run as u32, hacks * hack);
        Ok(GpuHacks { rows, hack, run, stored, starts, base, column_bits })
    }

    /// The target of [`SlotFill::fill`] for these hacks.
    pub fn slots(&self, columns: Arg, values: Arg) -> SlotFill {
        SlotFill {
            slice: self.hack,
            run: self.run,
            stored: self.stored,
            width: 0,
            pitch: 0,
            starts: self.starts.args,
            base: self.base,
            columns,
            values,
        }
    }

    /// Slots of all hacks, and the number of rows including those that pad the last hack.
    pub fn slots_and_rows(&self) -> [u64; 2] {
        [self.starts.total, self.stored as u64]
    }
}
