//! Conversion on a GPU: the steps that a format asks for, of a CSR matrix that the GPU holds.
//!
//! A format says which arrays it wants, which kernels fill them and what is summed or sorted in
//! between; [`Builder`] does it. So formats know nothing of CUDA, and the CUDA code knows no
//! format.

use super::super::sliced::check_span;
use super::super::{Arg, Basis, Launch, Refusal, Target, Vendor};
use super::launch::NULL;
use crate::error::Error;
use crate::structure::Sort;

/// What a step of a conversion gives.
type Step<T> = std::result::Result<T, Error>;

/// What carries out the steps of a conversion on a GPU.
pub trait Builder {
    /// The matrix.
    fn matrix(&self) -> Matrix;

    /// An array of the layout, of so many bytes; what it holds at first is unknown.
    ///
    /// # Errors
    /// [`Error::Device`] where the memory does not suffice.
    fn array(&mut self, bytes: u64) -> Step<Arg>;

    /// Makes an array of the layout as small as it turned out to be: only its first `bytes` count.
    fn trim(&mut self, array: Arg, bytes: u64);

    /// An array of the layout that holds zeros at first.
    ///
    /// # Errors
    /// As [`Builder::array`].
    fn zeros(&mut self, bytes: u64) -> Step<Arg>;

    /// An array that the conversion alone needs; what it holds at first is unknown.
    ///
    /// # Errors
    /// As [`Builder::array`].
    fn temporary(&mut self, bytes: u64) -> Step<Arg>;

    /// An array that the conversion alone needs, which holds zeros at first.
    ///
    /// # Errors
    /// As [`Builder::array`].
    fn temporary_zeros(&mut self, bytes: u64) -> Step<Arg>;

    /// A 32-bit number, 0 at first, that kernels write and [`Builder::read`] reads.
    ///
    /// # Errors
    /// As [`Builder::array`].
    fn number(&mut self) -> Step<Arg>;

    /// Queues a kernel of the image `convert`, or another.
    ///
    /// # Errors
    /// [`Error::Device`] where the launch fails.
    fn launch(&mut self, launch: &Launch) -> Step<()>;

    /// Where each of `n` runs of `each` times `counts` slots starts: an array of the layout of
    /// 32-bit offsets, or of 64-bit ones where 32 bits do not hold the last of them; the other
    /// address is null.
    ///
    /// # Errors
    /// As [`Builder::array`].
    fn starts(&mut self, counts: Arg, each: usize, n: usize) -> Step<Starts>;

    /// As [`Builder::starts`], of offsets that the conversion alone needs.
    ///
    /// # Errors
    /// As [`Builder::array`].
    fn temporary_starts(&mut self, counts: Arg, each: usize, n: usize) -> Step<Starts>;

    /// Puts `rows` into `sorted`, in the order of falling `keys` (64-bit, of which the low `bits`
    /// count), rows of the same key as they were.
    ///
    /// # Errors
    /// As [`Builder::array`].
    fn sort_down(&mut self, keys: Arg, rows: Arg, sorted: Arg, n: usize, bits: u32) -> Step<()>;

    /// What kernels have written to a number so far. It waits for them, unless none was given this
    /// number since numbers were last read or offsets found.
    ///
    /// # Errors
    /// [`Error::Device`] where a kernel faulted.
    fn read(&mut self, number: Arg) -> Step<u32>;
}

/// The matrix that is converted.
#[derive(Clone, Copy, Debug)]
pub struct Matrix {
    /// Number of rows.
    pub nrows: usize,
    /// Number of columns.
    pub ncols: usize,
    /// Number of entries.
    pub nnz: usize,
    /// Whether row pointers have 64 bits.
    pub wide: bool,
}

impl Matrix {
    /// How kernels of the image `convert` call the width of row pointers.
    pub fn offset_name(&self) -> &'static str {
        if self.wide { "wide" } else { "narrow" }
    }
}

/// Offsets on a GPU: see [`Builder::starts`].
#[derive(Clone, Copy, Debug)]
pub struct Starts {
    /// Addresses of 32-bit and of 64-bit offsets; one is null.
    pub args: [Arg; 2],
    /// The last offset.
    pub total: u64,
}

/// A layout that a GPU has made.
#[derive(Clone, Debug, Default)]
pub struct Built {
    /// The launches of one product, in order on one stream.
    pub launches: Vec<Launch>,
    /// cuSPARSE's part in it, and the addresses of offsets, columns and values that it takes; it
    /// comes in place of launches.
    pub vendor: Option<(Vendor, [Arg; 3])>,
    /// Bytes of the buffers that a product needs besides, and writes before it reads them.
    pub scratch: Vec<u64>,
    /// What takes over new values, which are at [`Arg::Values`]; where this is empty, the product
    /// reads the values of the matrix itself.
    pub update: Vec<Launch>,
    /// What looks at new values before, where the layout was made for values that are alike.
    pub check: Option<Check>,
    /// The order of a permuted basis.
    pub order: Option<Arg>,
}

/// Looks whether new values, which are at [`Arg::Values`], suit a layout.
#[derive(Clone, Debug)]
pub struct Check {
    /// Finds the first row whose values do not.
    pub launch: Launch,
    /// The array that takes its number, 2^32 - 1 before.
    pub row: Arg,
    /// Why that row's values do not suit.
    pub reason: fn(row: u32) -> Refusal,
}

/// Why a conversion was not made.
#[derive(Debug)]
pub enum Stop {
    /// The layout does not suit the matrix.
    Refused(Refusal),
    /// The device failed.
    Failed(Error),
    /// This variant is converted on the host.
    OnHost,
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Stop::Refused(refusal)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Failed(error)
    }
}

/// Threads of a block of most kernels of the image `convert`.
const BLOCK: u32 = 256;

/// The largest windows of rows that a block sorts, by the threads of the block.
const SORTED_BY_A_BLOCK: [(usize, u32); 2] = [(512, 128), (4096, 512)];

/// How many entries of a row a kernel reads at a time, where rows have so many in the mean: of the
/// kernels made for 8, 16 and 32, the one that reads most rows at once and few of them in parts.
pub(in crate::format) fn depth(entries: usize, rows: usize) -> usize {
    entries.div_ceil(rows.max(1)).next_power_of_two().clamp(8, 32)
}

/// Bits of numbers up to this one.
pub(in crate::format) fn bits(most: usize) -> u32 {
    usize::BITS - most.leading_zeros()
}

/// A launch of the image `convert` over `threads` threads.
pub(in crate::format) fn step(kernel: String, threads: usize, args: Vec<Arg>) -> Launch {
    Launch::over("convert", kernel, threads as u64, BLOCK, args)
}

/// The rows of a matrix on a GPU in the order of a layout.
pub(in crate::format) struct Rows {
    /// Entries of each row of the matrix.
    pub lengths: Arg,
    /// The number of entries of the longest.
    pub longest: Arg,
    /// The row of the matrix of each stored one; null where they keep their order.
    pub order: Arg,
    /// Where y is written in another order: that order; else null.
    pub scatter: Arg,
    /// The new column of each old one in a permuted basis; else null.
    pub relabel: Arg,
    basis: Basis,
}

impl Rows {
    /// Finds lengths and order.
    pub fn new(builder: &mut dyn Builder, sort: Sort, target: &Target<'_>) -> Result<Self, Stop> {
        let matrix = builder.matrix();
        let n = matrix.nrows;
        let count = Arg::U32(n as u32);
        let lengths = builder.temporary(4 * n as u64)?;
        let longest = builder.number()?;
        let kernel = format!("lengths_{}", matrix.offset_name());
        builder.launch(&step(kernel, n, vec![count, Arg::RowPtr, lengths, longest]))?;
        let (order, scatter, relabel, basis) = (NULL, NULL, NULL, Basis::Original);
        let mut rows = Rows { lengths, longest, order, scatter, relabel, basis };
        let window = match sort {
            Sort::None => return Ok(rows),
            Sort::Window(window) => window.min(n).max(1),
            Sort::All => n.max(1),
            Sort::Rcm => return Err(Stop::OnHost),
        };
        rows.order = longest_first(builder, lengths, longest, n, window)?;
        rows.basis = if matrix.nrows == matrix.ncols { target.basis } else { Basis::Original };
        match rows.basis {
            Basis::Original => rows.scatter = rows.order,
            Basis::Permuted => {
                rows.relabel = builder.temporary(4 * n as u64)?;
                let args = vec![count, rows.order, rows.relabel];
                builder.launch(&step("inverse".to_string(), n, args))?;
            }
        }
        Ok(rows)
    }

    /// The order of the permuted basis.
    pub fn basis_order(&self) -> Option<Arg> {
        (self.basis == Basis::Permuted).then_some(self.order)
    }

    /// The lengths in the order of the layout, as an array of it.
    pub fn sorted_lengths(&self, builder: &mut dyn Builder) -> Result<Arg, Stop> {
        let n = builder.matrix().nrows;
        let sorted = builder.array(4 * n as u64)?;
        let args = vec![Arg::U32(n as u32), self.order, self.lengths, sorted];
        builder.launch(&step("permute".to_string(), n, args))?;
        Ok(sorted)
    }

    /// The longest of every warp of stored rows, as an array of the layout.
    pub fn warp_lengths(&self, builder: &mut dyn Builder) -> Result<Arg, Stop> {
        let n = builder.matrix().nrows;
        let warps = n.div_ceil(32);
        let longest = builder.array(4 * warps as u64)?;
        builder.launch(&slice_widths([n, 32, warps], 1, self.order, self.lengths, longest))?;
        Ok(longest)
    }
}

/// Finds the longest of the `lengths` of each slice, in `order`, rounded up to a multiple: of so many
/// rows, in slices of so many, of which there are so many.
pub(in crate::format) fn slice_widths(
    sizes: [usize; 3],
    multiple: u32,
    order: Arg,
    lengths: Arg,
    widths: Arg,
) -> Launch {
    let [.., slices] = sizes;
    let sizes = sizes.map(|size| Arg::U32(size as u32));
    let args = sizes.into_iter().chain([Arg::U32(multiple), order, lengths, widths]).collect();
    step("slice_widths".to_string(), slices * 32, args)
}

/// Rows of a matrix on a GPU in hacks, each padded to its own longest.
pub(in crate::format) struct Hacks {
    pub rows: Rows,
    hack: usize,
    /// Entries of a row that lie side by side.
    run: u32,
    stored: usize,
    pub starts: Starts,
    /// The first column of each hack; null for 32-bit columns.
    pub base: Arg,
    pub column_bits: u64,
}

impl Hacks {
    /// Finds where hacks of `hack` rows in `sort` order start, in runs of `run` slots of a row, and
    /// the first column of each where columns are to be `narrow`.
    pub fn new(
        builder: &mut dyn Builder,
        [hack, run]: [usize; 2],
        sort: Sort,
        narrow: bool,
        target: &Target<'_>,
    ) -> Result<Self, Stop> {
        let matrix = builder.matrix();
        let rows = Rows::new(builder, sort, target)?;
        let hacks = matrix.nrows.div_ceil(hack);
        let sizes = [matrix.nrows, hack, hacks];
        let counts = builder.temporary(4 * (hacks as u64 + 1))?;
        builder.launch(&slice_widths(sizes, run as u32, rows.order, rows.lengths, counts))?;
        let widest = builder.number()?;
        let (base, column_bits) = if narrow {
            let base = builder.array(4 * hacks as u64)?;
            let kernel = format!("spans_{}", matrix.offset_name());
            let from = [rows.order, rows.relabel, Arg::RowPtr, Arg::ColIdx];
            let sizes = sizes.map(|size| Arg::U32(size as u32));
            let args = sizes.into_iter().chain(from).chain([base, widest]).collect();
            builder.launch(&step(kernel, hacks * 32, args))?;
            (base, 16)
        } else {
            (NULL, 32)
        };
        let starts = builder.starts(counts, hack, hacks + 1)?;
        check_span(builder.read(widest)? as usize)?;
        let (run, stored) = (run as u32, hacks * hack);
        Ok(Hacks { rows, hack, run, stored, starts, base, column_bits })
    }

    /// Where entries go.
    pub fn slots(&self, columns: Arg, values: Arg) -> Slots {
        Slots {
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

    /// Slots of all hacks, and rows with those that fill the last one up.
    pub fn slots_and_rows(&self) -> [u64; 2] {
        [self.starts.total, self.stored as u64]
    }
}

/// `n` rows of these lengths, of which the number `longest` is the largest, longest first in each
/// window, as an array of the layout.
pub(in crate::format) fn longest_first(
    builder: &mut dyn Builder,
    lengths: Arg,
    longest: Arg,
    n: usize,
    window: usize,
) -> Result<Arg, Stop> {
    let sizes = [n, window].map(|size| Arg::U32(size as u32));
    if let Some((most, block)) = SORTED_BY_A_BLOCK.into_iter().find(|&(most, _)| window <= most) {
        let order = builder.array(4 * n as u64)?;
        let threads = n.div_ceil(window) as u64 * u64::from(block);
        let args = sizes.into_iter().chain([lengths, order]).collect();
        let kernel = format!("sort_window_{most}");
        builder.launch(&Launch::over("convert", kernel, threads, block, args))?;
        return Ok(order);
    }
    let length_bits = bits(builder.read(longest)? as usize);
    let keys = builder.temporary(8 * n as u64)?;
    let own = builder.temporary(4 * n as u64)?;
    let args = sizes.into_iter().chain([Arg::U32(length_bits), lengths, keys, own]).collect();
    builder.launch(&step("sort_keys".to_string(), n, args))?;
    let windows = n.saturating_sub(1) / window;
    let sorted = builder.array(4 * n as u64)?;
    builder.sort_down(keys, own, sorted, n, length_bits + bits(windows))?;
    Ok(sorted)
}

/// Times that a block of the kernel `fill` goes on over its rows before others share the rest; times
/// that those go on, and the most of them.
const FILLED_ALONE: usize = 8;
const FILLED_IN_PART: usize = 8;
const MOST_PARTS: usize = 64;

/// Where entries go: see the kernel `fill`.
pub(in crate::format) struct Slots {
    /// Rows of a slice; 0 where columns go over all rows.
    pub slice: usize,
    /// Entries of a row that lie side by side in a slice, a power of two.
    pub run: u32,
    /// Stored rows, those of padding among them.
    pub stored: usize,
    /// Entries of the longest row, where columns go over all rows.
    pub width: usize,
    /// Slots between two columns of all rows, where they do not start at a list.
    pub pitch: usize,
    /// Where slices or columns start.
    pub starts: [Arg; 2],
    /// First column of each slice; null for 32-bit columns.
    pub base: Arg,
    /// The first array of columns, and that of values; either may be null.
    pub columns: Arg,
    pub values: Arg,
}

impl Slots {
    /// Fills columns and values; gives the launches that fill the values anew.
    pub fn fill(
        self,
        builder: &mut dyn Builder,
        rows: &Rows,
        target: &Target<'_>,
    ) -> Result<Vec<Launch>, Stop> {
        let all = [rows.relabel, self.columns, Arg::Values];
        for launch in self.launches(builder, rows, target.precision, all)? {
            builder.launch(&launch)?;
        }
        self.launches(builder, rows, target.precision, [NULL, NULL, Arg::Values])
    }

    /// Fills values, and nothing else, from bytes in the order of the CSR matrix.
    pub fn fill_bytes(
        self,
        builder: &mut dyn Builder,
        rows: &Rows,
        bytes: Arg,
    ) -> Result<(), Stop> {
        for launch in self.launches(builder, rows, "u8", [NULL, NULL, bytes])? {
            builder.launch(&launch)?;
        }
        Ok(())
    }

    /// The launches that fill columns, unless these are null, relabelled so, and values of a type from
    /// where they are.
    fn launches(
        &self,
        builder: &mut dyn Builder,
        rows: &Rows,
        value_type: impl std::fmt::Display,
        [relabel, columns, from]: [Arg; 3],
    ) -> Result<Vec<Launch>, Stop> {
        let matrix = builder.matrix();
        let longest = builder.read(rows.longest)? as usize;
        let bits = if self.base == NULL { 32 } else { 16 };
        let depth = depth(matrix.nnz, matrix.nrows);
        let kernel = format!("fill{depth}_c{bits}_{}_{value_type}", matrix.offset_name());
        // A block takes 1,024 entries at a time; where it would take many, others share the rest.
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
