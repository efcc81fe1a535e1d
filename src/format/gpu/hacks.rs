//! Rows of a matrix on a GPU in hacks.

use super::super::sliced::check_span;
use super::super::{Arg, Launch, Target};
use super::convert::{GpuConverter, GpuRows, SliceOffsets, SlotFill, slice_widths, step};
use super::launch::NULL;
use super::small::{self, FoundHacks, HackShape, SmallHacks};
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
            small.find(converter, small::CSR, u64::from(u32::MAX))?;
            let found = FoundHacks::told(converter)?;
            check_span(found.widest)?;
            return Ok(GpuHacks::of_small(&small, &shape, &found));
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

    fn of_small(small: &SmallHacks, shape: &HackShape, found: &FoundHacks) -> Self {
        GpuHacks {
            rows: GpuRows::ordered(small.order, found.longest),
            hack: shape.hack,
            run: shape.run as u32,
            stored: shape.hacks() * shape.hack,
            starts: SliceOffsets { args: [small.starts, NULL], total: found.units },
            base: small.base,
            column_bits: if shape.narrow { 16 } else { 32 },
        }
    }

    /// As [`GpuHacks::new`], and fills columns and values.
    pub fn filled(
        converter: &mut dyn GpuConverter,
        sizes: [usize; 2],
        sort: Sort,
        narrow: bool,
        target: &Target<'_>,
    ) -> Result<FilledHacks, Stop> {
        let shape = HackShape::of(&*converter, sizes, sort, narrow);
        let [column_bytes, value_bytes] =
            [if narrow { 2 } else { 4 }, target.precision.bytes() as u64];
        let bytes = |slots: u64| [slots * column_bytes, slots * value_bytes];
        let Some(small) = SmallHacks::of_matrix(converter, &shape, target)? else {
            let hacks = GpuHacks::new(converter, sizes, sort, narrow, target)?;
            let bytes = bytes(hacks.starts.total);
            target.check_bytes(bytes.iter().sum())?;
            let [columns, values] = [converter.array(bytes[0])?, converter.array(bytes[1])?];
            let update = hacks.slots(columns, values).fill(converter, &hacks.rows, target)?;
            return Ok(FilledHacks { hacks, columns, values, update });
        };
        let matrix = converter.matrix();
        let longest = converter.longest_row().unwrap_or(usize::MAX).next_multiple_of(shape.run);
        let most = (shape.hacks() * shape.hack).saturating_mul(longest) as u64;
        let bound = small::some_slots(matrix.nnz).min(most);
        let unknown = FoundHacks { units: bound, longest: 0, widest: 0 };
        let hacks = GpuHacks::of_small(&small, &shape, &unknown);
        let check = |found: &FoundHacks| {
            check_span(found.widest)?;
            target.check_bytes(bytes(found.units).iter().sum())
        };
        let fill = |[columns, values]: [Arg; 2]| {
            hacks.slots(columns, values).all(matrix, 0, &hacks.rows, target)
        };
        let from = small::CSR;
        let (found, [columns, values]) = small.fill(converter, from, bound, bytes, check, fill)?;
        let hacks = GpuHacks::of_small(&small, &shape, &found);
        let slots = hacks.slots(columns, values);
        for launch in slots.all(matrix, found.longest, &hacks.rows, target).iter().skip(1) {
            converter.launch(launch)?;
        }
        let update = slots.update(matrix, found.longest, &hacks.rows, target);
        Ok(FilledHacks { hacks, columns, values, update })
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

/// Hacks whose columns and values are filled.
pub(in crate::format) struct FilledHacks {
    pub hacks: GpuHacks,
    pub columns: Arg,
    pub values: Arg,
    /// The launches that refill the values.
    pub update: Vec<Launch>,
}
