//! The launch that counts features: samples, division among blocks, and arrays of the kernel.

use ellect_kernels::shared;

use crate::analysis::{Detail, Sample};
use crate::features::{DIAGONAL_HACKS, HACK, SIDES};
use crate::format::{Arg, Launch, Matrix};

/// Threads of a block.
const BLOCK: u64 = shared("FEATURES_THREADS");

/// Warps of a block.
const WARPS: u64 = BLOCK / 32;

/// Mirror images that one block searches for.
const MIRRORS: u64 = BLOCK / 8;

/// Rows whose lengths one block reads.
const WINDOW: u64 = shared("FEATURES_WINDOW");

/// Number of row lengths with a bin of their own; longer rows are listed.
pub(super) const BINS: u64 = shared("FEATURES_BINS");

/// Number of column classes in the first read from the device; few matrices have more.
const CLASSES: u64 = 2048;

/// Approximate maximum number of group entries for one block.
const BLOCK_ENTRIES: u64 = 1024;

/// Approximate maximum number of steps of a hack for one warp.
const WARP_STEPS: u64 = 16;

/// Resident blocks of the kernel on one multiprocessor.
const AT_ONCE: u64 = 5;

/// Maximum number of tasks in a queue; blocks leave tasks there for other blocks.
const MOST_TASKS: u64 = shared("FEATURES_TASKS");

/// Number of queues of tasks.
const QUEUES: u64 = shared("FEATURES_QUEUES");

/// Maximum number of blocks and warps that the upper bits of a queue's state can count.
const MOST_LEAVERS: u64 = (1 << (u64::BITS as u64 - shared("FEATURES_DECIDED_AT"))) - 1;

/// Maximum size of the counters of diagonals, and of a key table with one slot for each possible
/// key, in bytes. Such a table is faster than a hash table, but needs more memory.
const MOST_ROOM: u64 = 16 << 20;

/// Hash table slots for each expected word of keys.
const SLOTS: u64 = 3;

/// Rows of a block in which loads of x are shared.
const LOADS: usize = 256;

/// Maximum number of rows and columns for each entry; above it, arrays over rows and columns would
/// cost more than the counting.
const MOST_PLACES: usize = 16;

/// Maximum number of columns for which 32 bits can number all diagonals.
const MOST_COLUMNS: usize = u32::MAX as usize - DIAGONAL_HACKS[1];

/// Maximum number of words of keys that the table can distinguish.
const MOST_WORDS: u64 = 1 << 40;

/// Number of counts before the row length bins in the kernels' list.
pub(super) const COUNTS: u64 = shared("bins_at");

/// Samples of a matrix that the kernels read.
pub(super) struct CountSamples {
    pub(super) detail: Detail,
    pub(super) mirrors: Sample,
    pub(super) warps: Sample,
    pub(super) hacks: [Sample; DIAGONAL_HACKS.len()],
    loads: Sample,
    sides: [Sample; SIDES.len()],
    /// Numbers of rows in the two halves of the column sample: entries of the first half are
    /// counted by column; the second half estimates how full those columns are.
    drawn: [usize; 2],
}

impl CountSamples {
    fn of(matrix: Matrix) -> Self {
        let Matrix { nrows, ncols, nnz, .. } = matrix;
        let detail = Detail::of(nnz);
        let half = detail.half(nrows, nnz);
        CountSamples {
            detail,
            mirrors: Sample::of_mirrors(nrows, ncols, nnz, detail.mirrors()),
            warps: detail.sample(nrows.div_ceil(HACK), nnz),
            hacks: DIAGONAL_HACKS.map(|hack| detail.groups(nrows.div_ceil(hack), nnz)),
            loads: detail.blocks(nrows, nnz),
            sides: SIDES.map(|b| detail.sample(nrows.div_ceil(b), nnz)),
            drawn: match detail {
                Detail::Whole => [nrows, 0],
                Detail::Sampled => [half, half],
            },
        }
    }

    /// Returns the kinds of groups whose entries are counted, in the order of the kernels: number
    /// of sampled groups, and rows in each.
    fn groups(&self) -> impl Iterator<Item = (usize, usize)> {
        let of_rows = |(sample, rows): (&Sample, usize)| (sample.sampled, rows);
        let hacks = self.hacks.iter().zip(DIAGONAL_HACKS).map(of_rows);
        let sides = self.sides.iter().zip(SIDES).map(of_rows);
        let drawn = self.drawn.iter().map(|&rows| (rows, 1));
        hacks.chain([(self.loads.sampled, LOADS)]).chain(sides).chain(drawn)
    }
}

/// Division of groups among blocks: `2^share` groups for each block, or, if `share` is negative,
/// `2^-share` blocks for each group.
#[derive(Clone, Copy)]
struct BlockShare {
    looked_at: u64,
    share: i32,
}

impl BlockShare {
    /// Divides groups of `rows` rows.
    fn of(matrix: Matrix, looked_at: usize, rows: usize) -> Self {
        let entries = mean_entries(matrix, rows);
        let most = (BLOCK_ENTRIES / entries).min(BLOCK / rows as u64);
        let share = match most.checked_ilog2() {
            Some(share) => share as i32,
            None => -(entries.div_ceil(BLOCK_ENTRIES).next_power_of_two().ilog2() as i32),
        };
        BlockShare { looked_at: looked_at as u64, share }
    }

    /// Divides hacks among warps: one warp for each hack, or several if rows are long.
    fn of_warps(matrix: Matrix, looked_at: usize) -> Self {
        let steps = mean_entries(matrix, 1).div_ceil(WARP_STEPS);
        let warps = steps.next_power_of_two().min(WARPS);
        BlockShare { looked_at: looked_at as u64, share: (WARPS / warps).ilog2() as i32 }
    }

    fn blocks(self) -> u64 {
        match u32::try_from(self.share) {
            Ok(share) => self.looked_at.div_ceil(1 << share),
            Err(_) => self.looked_at << -self.share,
        }
    }

    fn arg(self) -> Arg {
        Arg::U64(self.looked_at | u64::from(self.share as u32) << 32)
    }
}

/// Returns the number of entries in `rows` rows of mean length, at least 1.
fn mean_entries(matrix: Matrix, rows: usize) -> u64 {
    ((rows.min(matrix.nrows) * matrix.nnz).div_ceil(matrix.nrows) as u64).max(1)
}

/// Byte offsets of the kernels' arrays in one allocation, which holds zeros at first.
pub(super) struct ArrayOffsets {
    /// Lengths of the rows that are too long for a bin.
    pub(super) longer: u64,
    /// Two numbers for each number of entries of a column.
    pub(super) classes: u64,
    /// End of the first read by the host.
    pub(super) some: u64,
    /// End of the second read, if it is needed.
    pub(super) read: u64,
    /// Counters of entries, one for each column.
    column_counts: u64,
    /// Counters of diagonals; `None` if the key table counts how often each diagonal occurs.
    diagonals: Option<u64>,
    /// Slots of the key table.
    slots: u64,
    /// End of the part that the host clears again; tasks beyond it are cleared when they are taken.
    pub(super) zeros: u64,
    /// Size of the allocation.
    pub(super) bytes: u64,
}

impl ArrayOffsets {
    fn of(matrix: Matrix, samples: &CountSamples, table: u64) -> Self {
        let (ncols, nnz) = (matrix.ncols as u64, matrix.nnz as u64);
        // A column has at most one entry in each row.
        let most = match samples.detail {
            Detail::Whole => matrix.nrows.min(matrix.nnz),
            Detail::Sampled => samples.drawn[0],
        };
        let n_classes = most as u64 + 2;
        let mut bytes = 8 * COUNTS + 4 * BINS;
        let mut place = |len: u64| {
            let at = bytes;
            bytes += len.next_multiple_of(16);
            at
        };
        let longer = place(4 * (nnz / BINS));
        let classes = place(16 * n_classes);
        let column_counts = place(4 * ncols);
        let diagonals = of_diagonals(matrix).map(&mut place);
        let slots = place(table);
        let zeros = place(8 * QUEUES * MOST_TASKS);
        ArrayOffsets {
            longer,
            classes,
            some: classes + 16 * n_classes.min(CLASSES),
            read: classes + 16 * n_classes,
            column_counts,
            diagonals,
            slots,
            zeros,
            bytes,
        }
    }
}

/// Returns the size of the counters of diagonals in bytes, if it is small enough.
fn of_diagonals(matrix: Matrix) -> Option<u64> {
    let bytes = 4 * (matrix.nrows + matrix.ncols) as u64;
    (bytes <= MOST_ROOM).then_some(bytes)
}

/// Returns the words of the key table, in bytes for a table with one slot for each key: the
/// maximum, and the number expected if one row with all columns adds to rows of mean length.
fn words(matrix: Matrix, samples: &CountSamples) -> [u64; 2] {
    let of_keys = |keys: usize| (keys / 8 + 1) as u64;
    let columns = matrix.ncols;
    let full = of_keys(columns);
    let groups = [columns + DIAGONAL_HACKS[0], columns + DIAGONAL_HACKS[1], columns / 4];
    let groups = groups.into_iter().zip(samples.groups()).map(|(keys, (looked_at, rows))| {
        (looked_at as u64 * of_keys(keys), looked_at as u64 * mean_entries(matrix, rows))
    });
    let mut groups = groups.collect::<Vec<_>>();
    if of_diagonals(matrix).is_none() {
        groups.push((of_keys(matrix.nrows + columns), groups[0].1));
    }
    let likely = |&(words, entries): &(u64, u64)| words.min(entries + full).min(matrix.nnz as u64);
    [groups.iter().map(|(words, _)| words).sum(), groups.iter().map(likely).sum()]
}

/// The launch that counts a matrix's features, and the layout of its results.
pub(in super::super) struct CountPlan {
    pub(super) matrix: Matrix,
    pub(super) samples: CountSamples,
    warps: BlockShare,
    groups: Vec<BlockShare>,
    /// Slots of the hash table; 0 if each key has its own slot.
    n_slots: u64,
    pub(super) places: ArrayOffsets,
}

impl CountPlan {
    /// Plans the counting; `None` if the host must compute the features.
    pub fn of(matrix: Matrix) -> Option<Self> {
        let Matrix { nrows, ncols, nnz, .. } = matrix;
        if (nrows + ncols) / MOST_PLACES >= nnz || ncols > MOST_COLUMNS {
            return None;
        }
        let samples = CountSamples::of(matrix);
        let [all, likely] = words(matrix, &samples);
        let has_room = of_diagonals(matrix).is_some() && all <= MOST_ROOM;
        let n_slots = if has_room { 0 } else { SLOTS * likely + BLOCK };
        let table = if has_room { all } else { 8 * n_slots };
        let plan = CountPlan {
            matrix,
            warps: BlockShare::of_warps(matrix, samples.warps.sampled),
            groups: samples.groups().map(|(n, rows)| BlockShare::of(matrix, n, rows)).collect(),
            places: ArrayOffsets::of(matrix, &samples, table),
            n_slots,
            samples,
        };
        let leavers = WARPS * plan.warps.blocks() + plan.blocks_of_groups();
        let fits = all < MOST_WORDS && n_slots <= u64::from(u32::MAX) && leavers <= MOST_LEAVERS;
        (fits && plan.blocks() <= i32::MAX as u64).then_some(plan)
    }

    /// Returns the number of blocks that have work of their own.
    fn blocks(&self) -> u64 {
        let lengths = (self.matrix.nrows as u64).div_ceil(WINDOW);
        let mirrors = (self.samples.mirrors.sampled as u64).div_ceil(MIRRORS);
        lengths + mirrors + self.warps.blocks() + self.blocks_of_groups()
    }

    fn blocks_of_groups(&self) -> u64 {
        self.groups.iter().map(|cut| cut.blocks()).sum()
    }

    /// Describes the launch on a GPU with this many multiprocessors, with `memory` as the address
    /// of the arrays. If more blocks can be resident, additional ones process only tasks from the
    /// queues.
    pub fn launch(&self, memory: u64, processors: u32) -> Launch {
        let (blocks, processors) = (self.blocks(), u64::from(processors));
        let helpers = (AT_ONCE * processors).saturating_sub(blocks).min(processors);
        let Matrix { nrows, ncols, nnz, .. } = self.matrix;
        let u32 = |n: usize| Arg::U32(n as u32);
        let ArrayOffsets { classes, longer, column_counts, diagonals, slots, zeros, .. } =
            self.places;
        let mut args = vec![u32(nrows), u32(ncols), Arg::U64(nnz as u64)];
        args.push(u32(self.samples.mirrors.sampled));
        args.extend([self.warps].iter().chain(&self.groups).map(|cut| cut.arg()));
        args.extend([Arg::RowPtr, Arg::ColIdx]);
        args.extend([0, classes, longer, column_counts].map(|at| Arg::U64(memory + at)));
        args.push(Arg::U64(diagonals.map_or(0, |at| memory + at)));
        args.extend([Arg::U64(memory + slots), Arg::U32(self.n_slots as u32)]);
        args.push(Arg::U64(memory + zeros));
        let kernel = format!("features_count_{}", self.matrix.offset_name());
        Launch::over("features", kernel, (blocks + helpers) * BLOCK, BLOCK as u32, args)
    }
}
