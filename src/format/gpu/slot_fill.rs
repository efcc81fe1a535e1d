//! Columns and values of a layout in slots, filled by a GPU from the CSR matrix.

use super::super::narrow::gpu::Search;
use super::super::{Arg, Launch, Target};
use super::convert::{GpuConverter, GpuRows, depth};
use super::launch::NULL;
use super::stop::Stop;

/// Limits on how one block of the kernel `fill` repeats over its rows: the repetitions before other
/// blocks share the rest, the repetitions of each of those blocks, and the maximum number of them.
const FILLED_ALONE: usize = 8;
const FILLED_IN_PART: usize = 8;
const MOST_PARTS: usize = 64;

/// Target slots of the entries; the kernel `fill` documents the fields.
pub(in crate::format) struct SlotFill {
    /// Rows per slice; 0 where columns span all rows.
    pub slice: usize,
    /// Number of consecutive entries of a row stored next to each other in a slice, a power of two.
    pub run: u32,
    /// Stored rows, padding included.
    pub stored: usize,
    /// Entries of the longest row, where columns span all rows.
    pub width: usize,
    /// Slots between two columns that span all rows, where no list holds their starts.
    pub pitch: usize,
    /// Starts of slices or columns.
    pub starts: [Arg; 2],
    /// First column of each slice; null for 32-bit columns.
    pub base: Arg,
    /// The arrays of columns and of values; either may be null.
    pub columns: Arg,
    pub values: Arg,
}

impl SlotFill {
    /// Fills columns and values; returns the launches that refill the values.
    pub fn fill(
        self,
        converter: &mut dyn GpuConverter,
        rows: &GpuRows,
        target: &Target<'_>,
    ) -> Result<Vec<Launch>, Stop> {
        let all = [rows.relabel, self.columns, Arg::Values];
        for launch in self.launches(converter, rows, target.precision, all)? {
            converter.launch(&launch)?;
        }
        self.launches(converter, rows, target.precision, [NULL, NULL, Arg::Values])
    }

    /// Fills only values, from bytes in the order of the CSR matrix.
    pub fn fill_bytes(
        self,
        converter: &mut dyn GpuConverter,
        rows: &GpuRows,
        bytes: Arg,
    ) -> Result<(), Stop> {
        for launch in self.launches(converter, rows, "u8", [NULL, NULL, bytes])? {
            converter.launch(&launch)?;
        }
        Ok(())
    }

    /// As [`SlotFill::fill`], with values in fewer bits, for which `search` looks.
    pub fn fill_narrowed(
        self,
        converter: &mut dyn GpuConverter,
        rows: &GpuRows,
        search: &Search,
    ) -> Result<Vec<Launch>, Stop> {
        let mut launches = |of| -> Result<Vec<Launch>, Stop> {
            let launches = self.launches(converter, rows, search.type_name(), of)?;
            let image = search.image();
            Ok(launches.into_iter().map(|launch| Launch { image, ..launch }).collect())
        };
        let all = launches([rows.relabel, self.columns, Arg::Values])?;
        let update = launches([NULL, NULL, Arg::Values])?;
        all.iter().try_for_each(|launch| converter.launch(launch))?;
        Ok(update)
    }

    /// The launches that fill the columns, unless null, and the values. The addresses are those of
    /// the relabelling (or null), of the columns and of the source of the values; `value_type`
    /// names the type of the values in kernel names.
    fn launches(
        &self,
        converter: &mut dyn GpuConverter,
        rows: &GpuRows,
        value_type: impl std::fmt::Display,
        [relabel, columns, from]: [Arg; 3],
    ) -> Result<Vec<Launch>, Stop> {
        let matrix = converter.matrix();
        let longest = rows.longest(converter)?;
        let bits = if self.base == NULL { 32 } else { 16 };
        let depth = depth(matrix.nnz, matrix.nrows);
        let kernel = format!("fill{depth}_c{bits}_{}_{value_type}", matrix.offset_name());
        // A block processes 1,024 entries at a time; where rows need many such steps, other blocks
        // share the rest.
        let blocks = self.stored.div_ceil(1024 / depth);
        let cap = FILLED_ALONE * depth;
        let parts = longest.saturating_sub(cap).div_ceil(FILLED_IN_PART * depth).min(MOST_PARTS);
        let [narrow, wide] = self.starts;
        let launch = |parts: usize| {
            let args = vec![
                Arg::U32(cap as u32),
                Arg::U32(parts as u32),
                Arg::U32(matrix.nrows as u32),
                Arg::U32(self.stored as u32),
                Arg::U32(self.width as u32),
                Arg::U32(self.slice as u32),
                Arg::U32(self.run.ilog2()),
                Arg::U64(self.pitch as u64),
                narrow,
                wide,
                rows.order,
                relabel,
                self.base,
                Arg::RowPtr,
                Arg::ColIdx,
                from,
                columns,
                self.values,
            ];
            let blocks = if parts == 0 { blocks } else { blocks.div_ceil(32) * parts };
            Launch::over("convert", kernel.clone(), blocks as u64 * 128, 128, args)
        };
        let rest = (parts > 0).then(|| launch(parts));
        Ok([launch(0)].into_iter().chain(rest).collect())
    }
}
