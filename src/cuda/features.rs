//! Features of a matrix that a GPU holds, counted there: the kernels of the image `features`.
//!
//! The kernels look at the samples that the host would take ([`Detail`]) and count whole numbers,
//! and one formula makes a feature of them wherever they were counted, so that features are the
//! host's to the last bit.

use std::sync::PoisonError;

use cust::memory::LockedBuffer;
use cust::sys::CUstream;
use ellect_kernels::shared;

use super::convert::word;
use super::memory::Memory;
use super::operator::Step;
use super::{DeviceCsr, Gpu, Graph, failed};
use crate::csr::Pattern;
use crate::error::Result;
use crate::features::{
    ColumnFill, DIAGONAL_HACKS, FeatureCounts, Features, HACK, HackCounts, SIDES,
};
use crate::format::{Arg, Launch, Matrix};
use crate::scalar::Scalar;
use crate::structure::{
    Classes, Detail, EachPrecision, Histogram, Sample, Structure, all_diagonals, fill, over_all,
};

/// Threads of a block, its warps, and the mirror images that it looks for.
const BLOCK: u64 = shared("FEATURES_THREADS");
const WARPS: u64 = BLOCK / 32;
const MIRRORS: u64 = BLOCK / 8;

/// Rows whose lengths a block looks at.
const WINDOW: u64 = shared("FEATURES_WINDOW");

/// Lengths that have a bin each; longer ones are listed.
const BINS: u64 = shared("FEATURES_BINS");

/// Classes of columns that are read at once; there are rarely more.
const CLASSES: u64 = 2048;

/// About the most entries of groups that a block takes, and steps of a hack that a warp does.
const BLOCK_ENTRIES: u64 = 1024;
const WARP_STEPS: u64 = 16;

/// Blocks that are at work on a processor at once.
const AT_ONCE: u64 = 5;

/// The most tasks in each of the queues of what blocks leave to others.
const MOST_TASKS: u64 = shared("FEATURES_TASKS");
const QUEUES: u64 = shared("FEATURES_QUEUES");

/// The most blocks and warps that the upper bits of a queue's number count.
const MOST_LEAVERS: u64 = (1 << (u64::BITS as u64 - shared("FEATURES_DECIDED_AT"))) - 1;

/// The most bytes of counts of diagonals, and of a table of keys, in which each has a place of its
/// own; it takes less time than a hash table, but for its size.
const MOST_ROOM: u64 = 16 << 20;

/// Slots of a hash table for each word of keys that is to be expected.
const SLOTS: u64 = 3;

/// Rows of blocks that share loads of x.
const LOADS: usize = 256;

/// Rows and columns for each entry, past which lists of them would be longer than the work.
const MOST_PLACES: usize = 16;

/// The most columns whose diagonals a 32-bit number tells apart.
const MOST_COLUMNS: usize = u32::MAX as usize - DIAGONAL_HACKS[1];

/// The most words of keys that the table tells apart.
const MOST_WORDS: u64 = 1 << 40;

/// The most bytes that are kept for the next matrix.
const MOST_KEPT: u64 = 64 << 20;

impl Gpu {
    /// The cheap features of a matrix that this GPU holds, all of
    /// [`FEATURES`](crate::features::FEATURES) and equal to the host's, those of
    /// [`Structure::sampled`]: counted on the GPU in one launch, of which a copy of some 50 kB
    /// comes back.
    ///
    /// Reads the row pointers once, and of a large matrix a bounded number of entries. The pattern
    /// of a matrix with more than 16 rows and columns for each entry is copied to the host and
    /// looked at there; so is one whose samples hold far more entries than its mean row tells.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) where the device has no memory for 4 bytes a column,
    /// or fails.
    pub fn features<T: Scalar>(&self, csr: &DeviceCsr<T>) -> Result<Features> {
        csr.check(self)?;
        self.make_current()?;
        let matrix = csr.matrix();
        let summary = Plan::of(matrix).map_or(Ok(None), |plan| self.count(csr, &plan))?;
        if let Some(summary) = summary {
            return Ok(Features::from(&summary));
        }
        let (row_ptr, col_idx) = csr.download_pattern(self)?;
        let pattern = Pattern::of(matrix.nrows, matrix.ncols, &row_ptr, &col_idx);
        Ok(Features::of(&Structure::sampled_pattern(pattern)))
    }

    /// Counts on the GPU; `None` where some place was too small.
    fn count<T: Scalar>(&self, csr: &DeviceCsr<T>, plan: &Plan) -> Result<Option<FeatureCounts>> {
        let places = &plan.places;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let memory = match kept.memory.take() {
            Some(memory) if memory.bytes() >= places.bytes => memory,
            _ => Memory::zeros(places.bytes, &self.queue)?,
        };
        self.look(csr, plan, &memory, self.queue.as_inner())?;
        let mut found = kept.read(&memory, places.some)?;
        if Plan::has_more(found) {
            found = kept.read(&memory, places.read)?;
        }
        // For the next matrix.
        memory.clear(places.zeros as usize)?;
        let summary = plan.summary(found);
        let keep = summary.is_some() && memory.bytes() <= MOST_KEPT;
        kept.memory = keep.then_some(memory);
        Ok(summary)
    }

    /// Queues what counts, into memory that holds zeros.
    fn look<T: Scalar>(
        &self,
        csr: &DeviceCsr<T>,
        plan: &Plan,
        memory: &Memory,
        stream: CUstream,
    ) -> Result<()> {
        let launch = plan.launch(memory.address(), self.profile.processors);
        match Step::new(self, &launch, |arg| word(csr, arg))? {
            // SAFETY: the kernel takes the matrix's own arrays and places in memory that is given
            // back behind it.
            Some(step) => unsafe { step.launch([0; 3], T::ZERO, T::ZERO, stream) },
            None => Ok(()),
        }
    }

    /// Seconds that the GPU is at work for [`Gpu::features`], the mean of one launch of a graph in
    /// which these matrices of one pattern take turns; `None` where the host looks at them.
    ///
    /// # Errors
    /// As [`Gpu::features`].
    pub fn time_features<T: Scalar>(&self, copies: &[DeviceCsr<T>]) -> Result<Option<f64>> {
        self.make_current()?;
        let Some(plan) = copies.first().and_then(|csr| Plan::of(csr.matrix())) else {
            return Ok(None);
        };
        let Places { bytes, zeros, .. } = plan.places;
        let memory = Memory::zeros(bytes, &self.queue)?;
        // What was zeroed on the GPU's own stream is there for that of the capture too.
        self.synchronize()?;
        let turn = |csr: &DeviceCsr<T>, stream| {
            self.look(csr, &plan, &memory, stream)?;
            memory.clear_on(zeros as usize, stream)
        };
        let graph =
            Graph::capture(self, |stream| copies.iter().try_for_each(|csr| turn(csr, stream)))?;
        let _alone = self.alone();
        // SAFETY: the matrices and the memory outlive the launch, which `Gpu::time` waits for.
        let time = || self.time(|| unsafe { graph.launch(self) });
        time()?;
        Ok(Some(time()? / copies.len() as f64))
    }
}

/// Numbers that the host reads of most matrices, in 64 bits.
const USUAL: usize = 1 << 13;

/// What counting features leaves for the next matrix.
pub(super) struct Kept {
    /// Device memory that holds zeros.
    memory: Option<Memory>,
    /// Where counts are read to: page-locked, so that they come at once.
    buffer: LockedBuffer<u64>,
}

impl Kept {
    /// Takes page-locked memory of the current context.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) by the driver.
    pub fn new() -> Result<Self> {
        Ok(Kept { memory: None, buffer: page_locked(USUAL)? })
    }

    /// Reads the first bytes of `memory`.
    fn read(&mut self, memory: &Memory, bytes: u64) -> Result<&[u64]> {
        let len = bytes as usize / 8;
        if self.buffer.len() < len {
            self.buffer = page_locked(len)?;
        }
        memory.read(bytemuck::cast_slice_mut(&mut self.buffer[..len]))?;
        Ok(&self.buffer[..len])
    }
}

fn page_locked(len: usize) -> Result<LockedBuffer<u64>> {
    LockedBuffer::new(&0, len).map_err(failed("taking page-locked memory"))
}

/// What is looked at of a matrix.
struct Samples {
    detail: Detail,
    mirrors: Sample,
    warps: Sample,
    hacks: [Sample; DIAGONAL_HACKS.len()],
    loads: Sample,
    sides: [Sample; SIDES.len()],
    /// Rows whose entries are counted by column, and rows that tell how full such columns are.
    drawn: [usize; 2],
}

impl Samples {
    fn of(matrix: Matrix) -> Self {
        let Matrix { nrows, ncols, nnz, .. } = matrix;
        let detail = Detail::of(nnz);
        let half = detail.half(nrows, nnz);
        Samples {
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

    /// The groups whose entries are counted, in the order of the kernels: how many are looked at,
    /// and rows of each.
    fn groups(&self) -> impl Iterator<Item = (usize, usize)> {
        let of_rows = |(sample, rows): (&Sample, usize)| (sample.sampled, rows);
        let hacks = self.hacks.iter().zip(DIAGONAL_HACKS).map(of_rows);
        let sides = self.sides.iter().zip(SIDES).map(of_rows);
        let drawn = self.drawn.iter().map(|&rows| (rows, 1));
        hacks.chain([(self.loads.sampled, LOADS)]).chain(sides).chain(drawn)
    }
}

/// How groups are shared among blocks: `2^share` for each, or where negative, `2^-share` blocks a
/// group.
#[derive(Clone, Copy)]
struct Cut {
    looked_at: u64,
    share: i32,
}

impl Cut {
    /// Of groups of so many rows.
    fn of(matrix: Matrix, looked_at: usize, rows: usize) -> Self {
        let entries = mean_entries(matrix, rows);
        let most = (BLOCK_ENTRIES / entries).min(BLOCK / rows as u64);
        let share = match most.checked_ilog2() {
            Some(share) => share as i32,
            None => -(entries.div_ceil(BLOCK_ENTRIES).next_power_of_two().ilog2() as i32),
        };
        Cut { looked_at: looked_at as u64, share }
    }

    /// Of hacks that a warp takes, or several where rows are long.
    fn of_warps(matrix: Matrix, looked_at: usize) -> Self {
        let steps = mean_entries(matrix, 1).div_ceil(WARP_STEPS);
        let warps = steps.next_power_of_two().min(WARPS);
        Cut { looked_at: looked_at as u64, share: (WARPS / warps).ilog2() as i32 }
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

/// Entries of so many rows of mean length, at least one.
fn mean_entries(matrix: Matrix, rows: usize) -> u64 {
    ((rows.min(matrix.nrows) * matrix.nnz).div_ceil(matrix.nrows) as u64).max(1)
}

/// Counts in the list of the kernels; rows of each length follow them.
const COUNTS: u64 = shared("bins_at");

/// Where the arrays of the kernels lie in one of theirs, in bytes. All hold zeros at first.
struct Places {
    longer: u64,
    /// Of each count of a column, two numbers.
    classes: u64,
    /// Up to here the host reads at first, and up to there where it must.
    some: u64,
    read: u64,
    column_counts: u64,
    /// Of each diagonal; not where the table tells how often it is met.
    diagonals: Option<u64>,
    slots: u64,
    /// Up to here the host writes zeros again; a task is a zero when it is taken.
    zeros: u64,
    bytes: u64,
}

impl Places {
    fn of(matrix: Matrix, samples: &Samples, table: u64) -> Self {
        let (ncols, nnz) = (matrix.ncols as u64, matrix.nnz as u64);
        // No column is met more often than there are rows, and none twice in a row.
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
        Places {
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

/// Bytes of a count of each diagonal, where there is room for them.
fn of_diagonals(matrix: Matrix) -> Option<u64> {
    let bytes = 4 * (matrix.nrows + matrix.ncols) as u64;
    (bytes <= MOST_ROOM).then_some(bytes)
}

/// Words of the table, in bytes where each has its place: all that there may be, and those that are
/// to be expected where one row of all columns comes on top of the mean.
fn words(matrix: Matrix, samples: &Samples) -> [u64; 2] {
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

/// What is launched for a matrix, and how its results are read.
pub(super) struct Plan {
    matrix: Matrix,
    samples: Samples,
    warps: Cut,
    groups: Vec<Cut>,
    /// Slots of the hash table; 0 where each key has a place.
    n_slots: u64,
    places: Places,
}

impl Plan {
    /// `None` where the host is to look.
    pub fn of(matrix: Matrix) -> Option<Self> {
        let Matrix { nrows, ncols, nnz, .. } = matrix;
        if (nrows + ncols) / MOST_PLACES >= nnz || ncols > MOST_COLUMNS {
            return None;
        }
        let samples = Samples::of(matrix);
        let [all, likely] = words(matrix, &samples);
        let has_room = of_diagonals(matrix).is_some() && all <= MOST_ROOM;
        let n_slots = if has_room { 0 } else { SLOTS * likely + BLOCK };
        let table = if has_room { all } else { 8 * n_slots };
        let plan = Plan {
            matrix,
            warps: Cut::of_warps(matrix, samples.warps.sampled),
            groups: samples.groups().map(|(n, rows)| Cut::of(matrix, n, rows)).collect(),
            places: Places::of(matrix, &samples, table),
            n_slots,
            samples,
        };
        let leavers = WARPS * plan.warps.blocks() + plan.blocks_of_groups();
        let fits = all < MOST_WORDS && n_slots <= u64::from(u32::MAX) && leavers <= MOST_LEAVERS;
        (fits && plan.blocks() <= i32::MAX as u64).then_some(plan)
    }

    /// Blocks of the kernel.
    fn blocks(&self) -> u64 {
        let lengths = (self.matrix.nrows as u64).div_ceil(WINDOW);
        let mirrors = (self.samples.mirrors.sampled as u64).div_ceil(MIRRORS);
        lengths + mirrors + self.warps.blocks() + self.blocks_of_groups()
    }

    fn blocks_of_groups(&self) -> u64 {
        self.groups.iter().map(|cut| cut.blocks()).sum()
    }

    /// What counts on so many processors, into this memory: where there is place for more blocks at
    /// once, some more look for tasks.
    pub fn launch(&self, memory: u64, processors: u32) -> Launch {
        let (blocks, processors) = (self.blocks(), u64::from(processors));
        let helpers = (AT_ONCE * processors).saturating_sub(blocks).min(processors);
        let Matrix { nrows, ncols, nnz, .. } = self.matrix;
        let u32 = |n: usize| Arg::U32(n as u32);
        let Places { classes, longer, column_counts, diagonals, slots, zeros, .. } = self.places;
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

    /// Whether there is more to read than was: the last class of columns has some.
    fn has_more(found: &[u64]) -> bool {
        matches!(found, [.., reached, _] if *reached > 0)
    }

    /// What the kernels found; `None` where some place was too small.
    fn summary(&self, found: &[u64]) -> Option<FeatureCounts> {
        let counts = Counts::of(found);
        let Plan { matrix, samples, .. } = self;
        let Matrix { nrows, ncols, nnz, .. } = *matrix;
        let [of_32, of_256, [entries, sectors], sides @ ..] = counts.groups;
        let hacks = HackCounts { entries: of_32[0], ..counts.hacks };
        let diagonals = match samples.detail {
            Detail::Whole => counts.met[0],
            Detail::Sampled => all_diagonals(nrows + ncols, counts.met),
        };
        let hack_diagonals = |i: usize, [entries, distinct]: [u64; 2]| {
            // A single hack is the whole matrix.
            if nrows <= DIAGONAL_HACKS[i] { diagonals } else { over_all(distinct, entries, nnz) }
        };
        let blocks = |i: usize| fill(SIDES[i], sides[i]);
        let summary = || FeatureCounts {
            nrows: nrows as f64,
            ncols: ncols as f64,
            nnz: nnz as f64,
            rows: self.row_lengths(found, counts.long_rows),
            columns: self.columns(found),
            longest: counts.longest,
            sorted_longest: counts.sorted_longest,
            hacks: hacks.over_all(samples.hacks[0], nnz),
            diagonals,
            hack_diagonals: [hack_diagonals(0, of_32), hack_diagonals(1, of_256)],
            sectors: samples.detail.sectors(samples.warps, nnz, counts.sectors, counts.of_warps),
            loads: EachPrecision::of_loads([counts.pairs, sectors, entries]),
            block_fill: [0, 1, 2, 3, 4].map(blocks),
            symmetry: samples.mirrors.share(counts.mirrored),
        };
        (counts.full == 0).then(summary)
    }

    fn row_lengths(&self, found: &[u64], long: u64) -> Histogram {
        let words: &[u32] = bytemuck::cast_slice(found);
        let list = |at: u64, len: u64| &words[at as usize / 4..][..len as usize];
        let longer = list(self.places.longer, long).to_vec();
        Histogram::of_bins(list(8 * COUNTS, BINS), longer)
    }

    fn columns(&self, found: &[u64]) -> ColumnFill {
        let classes = found[self.places.classes as usize / 8..].chunks_exact(2);
        let reached = classes.clone().skip(1).map(|class| class[0]).take_while(|&n| n > 0);
        let reached: Vec<u64> = std::iter::once(self.matrix.ncols as u64).chain(reached).collect();
        match self.samples.detail {
            Detail::Whole => {
                let more = reached.iter().skip(1).chain([&0]);
                let bins = reached.iter().zip(more).map(|(reached, more)| (reached - more) as u32);
                ColumnFill::Counted(Histogram::of_bins(&bins.collect::<Vec<_>>(), Vec::new()))
            }
            Detail::Sampled => {
                let entries: Vec<u64> = classes.take(reached.len()).map(|class| class[1]).collect();
                ColumnFill::Sampled(Classes::of(self.matrix.nnz, &reached, &entries))
            }
        }
    }
}

/// The counts of the kernels, each from the place that `layout.cuh` gives it.
struct Counts {
    longest: [u64; 4],
    sorted_longest: [u64; 2],
    long_rows: u64,
    mirrored: u64,
    sectors: [u64; 2],
    of_warps: u64,
    /// For each of [`Samples::groups`]: entries, and distinct keys among them.
    groups: [[u64; 2]; 8],
    pairs: u64,
    met: [u64; 3],
    /// Without their entries.
    hacks: HackCounts,
    full: u64,
}

impl Counts {
    fn of(found: &[u64]) -> Self {
        let one = |at: u64| found[at as usize];
        let [f32_sectors, f64_sectors, of_warps] = several(found, const { shared("sectors_at") });
        let groups: [u64; 16] = several(found, const { shared("groups_at") });
        let [near, nearer] = several(found, const { shared("near_at") });
        Counts {
            longest: several(found, const { shared("longest_at") }),
            sorted_longest: several(found, const { shared("sorted_at") }),
            long_rows: one(const { shared("long_rows_at") }),
            mirrored: one(const { shared("mirrored_at") }),
            sectors: [f32_sectors, f64_sectors],
            of_warps,
            groups: std::array::from_fn(|kind| [groups[2 * kind], groups[2 * kind + 1]]),
            pairs: one(const { shared("pairs_at") }),
            met: several(found, const { shared("met_at") }),
            hacks: HackCounts {
                profile: one(const { shared("profile_at") }),
                span_sum: one(const { shared("span_sum_at") }),
                spans_narrow: one(const { shared("narrow_at") }),
                inside: [nearer, near],
                entries: 0,
                bandwidth: one(const { shared("bandwidth_at") }),
                span_max: one(const { shared("span_max_at") }),
            },
            full: one(const { shared("full_at") }),
        }
    }
}

/// The counts from this place on.
fn several<const N: usize>(found: &[u64], at: u64) -> [u64; N] {
    std::array::from_fn(|i| found[at as usize + i])
}
