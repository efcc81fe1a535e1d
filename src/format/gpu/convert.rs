//! Conversion on a GPU of a CSR matrix that the GPU holds, in steps that the format requests.
//!
//! A format says which arrays it needs, which kernels fill them, and what is summed or sorted in
//! between; a [`GpuConverter`] executes these steps. So formats know nothing of CUDA, and the CUDA code
//! knows no format.

use super::super::{Arg, Basis, Launch, Refusal, Target, Vendor};
use super::launch::NULL;
use super::stop::Stop;
use crate::analysis::Sort;
use crate::error::Error;

/// The result of one step of a conversion.
pub(in crate::format) type StepResult<T> = std::result::Result<T, Error>;

/// Executes the steps of a conversion on a GPU.
pub trait GpuConverter {
    /// The matrix that is converted.
    fn matrix(&self) -> Matrix;

    /// Returns the number of entries of the longest row, if it is known without asking the GPU.
    fn longest_row(&self) -> Option<usize> {
        None
    }

    /// Allocates an uninitialised array of the layout, of `bytes` bytes.
    ///
    /// # Errors
    /// [`Error::Device`] where memory does not suffice.
    fn array(&mut self, bytes: u64) -> StepResult<Arg>;

    /// Allocates several uninitialised arrays of the layout at once, which takes less time.
    ///
    /// # Errors
    /// As [`GpuConverter::array`].
    fn arrays(&mut self, bytes: &[u64]) -> StepResult<Vec<Arg>> {
        bytes.iter().map(|&bytes| self.array(bytes)).collect()
    }

    /// Allocates an array of the layout at once with the memory that its products share, which takes less
    /// time than one after the other: scratch buffers of these sizes, and `counters` bytes of counters,
    /// which a kernel of the conversion clears. Returns the array and the counters. The layout's products
    /// use this memory if they need no more ([`GpuLayout::scratch`], [`GpuLayout::counters`]).
    ///
    /// # Errors
    /// As [`GpuConverter::array`].
    fn array_and_shared(
        &mut self,
        bytes: u64,
        scratch: &[u64],
        counters: u64,
    ) -> StepResult<[Arg; 2]> {
        let _ = scratch;
        Ok([self.array(bytes)?, self.temporary(counters)?])
    }

    /// Shrinks an array of the layout to its first `bytes` bytes, once the size needed is known.
    fn trim(&mut self, array: Arg, bytes: u64);

    /// Allocates an array of the layout, filled with zeros.
    ///
    /// # Errors
    /// As [`GpuConverter::array`].
    fn zeros(&mut self, bytes: u64) -> StepResult<Arg>;

    /// Allocates an uninitialised array that is freed after the conversion.
    ///
    /// # Errors
    /// As [`GpuConverter::array`].
    fn temporary(&mut self, bytes: u64) -> StepResult<Arg>;

    /// Allocates an array that is filled with zeros and freed after the conversion.
    ///
    /// # Errors
    /// As [`GpuConverter::array`].
    fn temporary_zeros(&mut self, bytes: u64) -> StepResult<Arg>;

    /// Allocates a 32-bit number, initially 0, that kernels write and [`GpuConverter::read`] reads.
    ///
    /// # Errors
    /// As [`GpuConverter::array`].
    fn number(&mut self) -> StepResult<Arg>;

    /// Queues a kernel launch.
    ///
    /// # Errors
    /// [`Error::Device`] where the launch fails.
    fn launch(&mut self, launch: &Launch) -> StepResult<()>;

    /// Computes the start of each of `n` runs, where run `i` has `each * counts[i]` slots. The
    /// offsets are an array of the layout: 32-bit where the last one fits, otherwise 64-bit; the
    /// address of the other width is null.
    ///
    /// # Errors
    /// As [`GpuConverter::array`].
    fn starts(&mut self, counts: Arg, each: usize, n: usize) -> StepResult<SliceOffsets>;

    /// As [`GpuConverter::starts`], with offsets that are freed after the conversion.
    ///
    /// # Errors
    /// As [`GpuConverter::array`].
    fn temporary_starts(&mut self, counts: Arg, each: usize, n: usize) -> StepResult<SliceOffsets>;

    /// Sorts `rows` into `sorted` by descending 64-bit `keys`, of which only the low `bits` count.
    /// The sort is stable.
    ///
    /// # Errors
    /// As [`GpuConverter::array`].
    fn sort_down(
        &mut self,
        keys: Arg,
        rows: Arg,
        sorted: Arg,
        n: usize,
        bits: u32,
    ) -> StepResult<()>;

    /// Reads a number that kernels wrote. Synchronises only if a kernel that may write it was
    /// queued since the last read or the last computation of offsets.
    ///
    /// # Errors
    /// [`Error::Device`] where a kernel faulted.
    fn read(&mut self, number: Arg) -> StepResult<u32>;

    /// Returns an address in memory of the host and a mark, as arguments of a kernel that tells the
    /// host up to [`TOLD`] numbers: it writes them behind the mark, and the mark last.
    fn host(&mut self) -> StepResult<[Arg; 2]>;

    /// Waits until a kernel has told the host numbers, for the last mark of
    /// [`GpuConverter::host`]; returns the numbers. The kernel may still run.
    ///
    /// # Errors
    /// [`Error::Device`] where a kernel faulted.
    fn told(&mut self) -> StepResult<[u32; TOLD]>;

    /// States that all queued kernels have written their results, though the last may still run.
    fn note_written(&mut self);
}

/// Allocates `N` uninitialised arrays of the layout: see [`GpuConverter::arrays`].
pub(in crate::format) fn arrays<const N: usize>(
    converter: &mut dyn GpuConverter,
    bytes: [u64; N],
) -> StepResult<[Arg; N]> {
    let arrays = converter.arrays(&bytes)?;
    Ok(std::array::from_fn(|k| arrays[k]))
}

/// Maximum number of numbers that a kernel tells the host.
pub const TOLD: usize = 3;

/// The CSR matrix that is converted.
///
/// ```
/// use ellect::format::Matrix;
///
/// let narrow = Matrix { nrows: 1000, ncols: 1000, nnz: 5000, wide: false };
/// assert_eq!(narrow.nnz / narrow.nrows, 5);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// Number of rows.
    pub nrows: usize,
    /// Number of columns.
    pub ncols: usize,
    /// Number of entries.
    pub nnz: usize,
    /// True if row pointers have 64 bits.
    pub wide: bool,
}

impl Matrix {
    /// The part of kernel names that states the width of row pointers.
    pub fn offset_name(&self) -> &'static str {
        if self.wide { "wide" } else { "narrow" }
    }
}

/// Offsets on a GPU, as [`GpuConverter::starts`] computes them.
#[derive(Clone, Copy, Debug)]
pub struct SliceOffsets {
    /// Addresses of the 32-bit and the 64-bit offsets; one is null.
    pub args: [Arg; 2],
    /// The last offset.
    pub total: u64,
}

/// A layout that a GPU has converted.
#[derive(Clone, Debug, Default)]
pub struct GpuLayout {
    /// The launches of one product, in order on one stream.
    pub launches: Vec<Launch>,
    /// The launches of a product that those for several vectors take the place of; where empty, these
    /// are `launches`.
    pub several: Vec<Launch>,
    /// cuSPARSE's part in the product, and the addresses of the offsets, columns and values that it
    /// reads; where present, `launches` is empty.
    pub vendor: Option<(Vendor, [Arg; 3])>,
    /// Bytes of the scratch buffers that a product needs; it writes them before it reads them.
    pub scratch: Vec<u64>,
    /// Bytes of counters, which are 0 before and after each product.
    pub counters: u64,
    /// The launches that store new values, which are at [`Arg::Values`]; where empty, the product
    /// reads the values of the matrix itself.
    pub update: Vec<Launch>,
    /// The check that runs before `update`, where the layout requires that certain values are
    /// equal.
    pub check: Option<Check>,
    /// The order of a permuted basis.
    pub order: Option<Arg>,
}

/// Checks whether a layout can store new values, which are at [`Arg::Values`].
#[derive(Clone, Debug)]
pub struct Check {
    /// Finds the first row whose values the layout cannot store.
    pub launch: Launch,
    /// The array that receives the number of that row; it holds 2^32 - 1 beforehand.
    pub row: Arg,
    /// Builds the refusal for that row.
    pub reason: fn(row: u32) -> Refusal,
}

/// Threads per block of most kernels of the image `convert`.
const BLOCK: u32 = 256;

/// The largest windows of rows that one block sorts, with the number of its threads.
const SORTED_BY_A_BLOCK: [(usize, u32); 2] = [(512, 128), (4096, 512)];

/// The number of entries of a row that a kernel reads at a time, from the mean row length. Of the
/// kernels compiled for 8, 16 and 32, this is the one that reads the most rows at once and few rows
/// in several parts.
pub(in crate::format) fn depth(entries: usize, rows: usize) -> usize {
    entries.div_ceil(rows.max(1)).next_power_of_two().clamp(8, 32)
}

/// Number of bits that hold every number up to `most`.
pub(in crate::format) fn bits(most: usize) -> u32 {
    usize::BITS - most.leading_zeros()
}

/// A launch of the image `convert` over `threads` threads.
pub(in crate::format) fn step(kernel: String, threads: usize, args: Vec<Arg>) -> Launch {
    Launch::over("convert", kernel, threads as u64, BLOCK, args)
}

/// The rows of a matrix on a GPU in the order of a layout.
pub(in crate::format) struct GpuRows {
    /// Entries of each row of the matrix.
    pub lengths: Arg,
    longest: Longest,
    /// The row of the matrix that each stored row is; null where rows keep their order.
    pub order: Arg,
    /// The order in which y is written; null where rows keep their order.
    pub scatter: Arg,
    /// The new column of each old column in a permuted basis; otherwise null.
    pub relabel: Arg,
    basis: Basis,
}

impl GpuRows {
    /// Computes row lengths and order.
    pub fn new(
        converter: &mut dyn GpuConverter,
        sort: Sort,
        target: &Target<'_>,
    ) -> Result<Self, Stop> {
        let matrix = converter.matrix();
        let n = matrix.nrows;
        let count = Arg::U32(n as u32);
        let lengths = converter.temporary(4 * n as u64)?;
        let longest = converter.number()?;
        let kernel = format!("lengths_{}", matrix.offset_name());
        converter.launch(&step(kernel, n, vec![count, Arg::RowPtr, lengths, longest]))?;
        let (order, scatter, relabel, basis) = (NULL, NULL, NULL, Basis::Original);
        let known = Longest::Number(longest);
        let mut rows = GpuRows { lengths, longest: known, order, scatter, relabel, basis };
        let window = match sort {
            Sort::None => return Ok(rows),
            Sort::Window(window) => window.min(n).max(1),
            Sort::All => n.max(1),
            Sort::Rcm => return Err(Stop::OnHost),
        };
        rows.order = longest_first(converter, lengths, longest, n, window)?;
        rows.basis = if matrix.nrows == matrix.ncols { target.basis } else { Basis::Original };
        match rows.basis {
            Basis::Original => rows.scatter = rows.order,
            Basis::Permuted => {
                rows.relabel = converter.temporary(4 * n as u64)?;
                let args = vec![count, rows.order, rows.relabel];
                converter.launch(&step("inverse".to_string(), n, args))?;
            }
        }
        Ok(rows)
    }

    /// Rows in `order`, or in their own order where it is null, in the original basis; without their
    /// lengths.
    pub fn ordered(order: Arg, longest: usize) -> Self {
        let (lengths, relabel, basis) = (NULL, NULL, Basis::Original);
        let longest = Longest::Known(longest);
        GpuRows { lengths, longest, order, scatter: order, relabel, basis }
    }

    /// The number of entries of the longest row.
    pub fn longest(&self, converter: &mut dyn GpuConverter) -> Result<usize, Stop> {
        match self.longest {
            Longest::Number(number) => Ok(converter.read(number)? as usize),
            Longest::Known(longest) => Ok(longest),
        }
    }

    /// The order of the permuted basis.
    pub fn basis_order(&self) -> Option<Arg> {
        (self.basis == Basis::Permuted).then_some(self.order)
    }

    /// The row lengths in the order of the layout, as an array of the layout.
    pub fn sorted_lengths(&self, converter: &mut dyn GpuConverter) -> Result<Arg, Stop> {
        let n = converter.matrix().nrows;
        let sorted = converter.array(4 * n as u64)?;
        let args = vec![Arg::U32(n as u32), self.order, self.lengths, sorted];
        converter.launch(&step("permute".to_string(), n, args))?;
        Ok(sorted)
    }

    /// The longest row length of every warp of stored rows, as an array of the layout.
    pub fn warp_lengths(&self, converter: &mut dyn GpuConverter) -> Result<Arg, Stop> {
        let n = converter.matrix().nrows;
        let warps = n.div_ceil(32);
        let longest = converter.array(4 * warps as u64)?;
        converter.launch(&slice_widths([n, 32, warps], 1, self.order, self.lengths, longest))?;
        Ok(longest)
    }
}

/// The length of a matrix's longest row.
#[derive(Clone, Copy)]
enum Longest {
    /// A number of the conversion.
    Number(Arg),
    Known(usize),
}

/// Computes the width of each slice: the longest of its `lengths`, in `order`, rounded up to a
/// multiple. `sizes` holds the number of rows, the rows per slice and the number of slices.
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

/// Sorts `n` rows by descending `lengths` in each window, as an array of the layout. The number
/// `longest` holds the largest length.
pub(in crate::format) fn longest_first(
    converter: &mut dyn GpuConverter,
    lengths: Arg,
    longest: Arg,
    n: usize,
    window: usize,
) -> Result<Arg, Stop> {
    let sizes = [n, window].map(|size| Arg::U32(size as u32));
    if let Some((most, block)) = SORTED_BY_A_BLOCK.into_iter().find(|&(most, _)| window <= most) {
        let order = converter.array(4 * n as u64)?;
        let threads = n.div_ceil(window) as u64 * u64::from(block);
        let args = sizes.into_iter().chain([lengths, order]).collect();
        let kernel = format!("sort_window_{most}");
        converter.launch(&Launch::over("convert", kernel, threads, block, args))?;
        return Ok(order);
    }
    let length_bits = bits(converter.read(longest)? as usize);
    let keys = converter.temporary(8 * n as u64)?;
    let own = converter.temporary(4 * n as u64)?;
    let args = sizes.into_iter().chain([Arg::U32(length_bits), lengths, keys, own]).collect();
    converter.launch(&step("sort_keys".to_string(), n, args))?;
    let windows = n.saturating_sub(1) / window;
    let sorted = converter.array(4 * n as u64)?;
    converter.sort_down(keys, own, sorted, n, length_bits + bits(windows))?;
    Ok(sorted)
}
