//! Features of a matrix that a GPU holds, counted there: the kernels of the images `features` and
//! `features_samples`.
//!
//! The kernels count whole numbers, and one formula makes a feature of them wherever they were
//! counted, so that features are the host's to the last bit.

use std::sync::{Mutex, MutexGuard, PoisonError};

use cust::event::{Event, EventFlags};
use cust::memory::LockedBuffer;
use cust::stream::{Stream, StreamFlags, StreamWaitEventFlags};

use super::convert::word;
use super::memory::Memory;
use super::operator::Step;
use super::{DeviceCsr, Gpu, failed};
use crate::csr::Pattern;
use crate::error::Result;
use crate::features::{Columns, Features, HACK, SIDES, Summary};
use crate::format::{Arg, Launch, Matrix};
use crate::scalar::Scalar;
use crate::structure::{EachPrecision, Histogram, SAMPLED_MIRRORS, Sample, Structure, fill};

/// Threads of most blocks, and of those that take much.
const BLOCK: u64 = 256;
const WIDE_BLOCK: u64 = 1024;

/// Lengths that a block sorts.
const WINDOW: u64 = 4096;

/// Lengths that have a bin each; longer ones are listed.
const BINS: u64 = 4096;

/// Entries that a warp takes.
const WARP_ENTRIES: u64 = 1024;

/// Rows whose diagonals a block counts.
const DIAGONAL_HACK: u64 = 256;

/// A hack whose diagonals are counted in parts has one for each so many entries, or fewer.
const PART_ENTRIES: u64 = 2048;

/// A hack whose sectors are counted in parts, likewise.
const STEP_ENTRIES: u64 = 128;

/// Blocks that a processor has room for where they count such parts.
const RESIDENT: u64 = 5;

/// Groups of a sample that a block looks at, a warp each.
const GROUPS: u64 = 8;

/// Rows and columns for each entry, past which lists of them would be longer than the work.
const MOST_PLACES: usize = 16;

/// The most columns whose diagonals a 32-bit number tells apart.
const MOST_COLUMNS: usize = u32::MAX as usize - DIAGONAL_HACK as usize;

impl Gpu {
    /// The cheap features of a matrix that this GPU holds, all of
    /// [`FEATURES`](crate::features::FEATURES) and equal to the host's: counted on the GPU in eight
    /// launches on four streams, of which a copy of some 32 kB comes back.
    ///
    /// Reads the columns about twice and counts those of each column and diagonal. The pattern of a
    /// matrix with more than 16 rows and columns for each entry is copied to the host and looked at
    /// there.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) where the device has no memory for 4 bytes a column,
    /// or fails.
    pub fn features<T: Scalar>(&self, csr: &DeviceCsr<T>) -> Result<Features> {
        self.make_current()?;
        let Matrix { nrows, ncols, nnz, .. } = csr.matrix();
        let listed = (nrows + ncols) / MOST_PLACES < nnz && ncols <= MOST_COLUMNS;
        let summary = if listed { self.summary(csr)? } else { None };
        if let Some(summary) = summary {
            return Ok(Features::from(&summary));
        }
        let (row_ptr, col_idx) = csr.download_pattern(self)?;
        let pattern = Pattern::of(nrows, ncols, &row_ptr, &col_idx);
        Ok(Features::of(&Structure::new(pattern)))
    }

    /// Counts on the GPU; `None` where a table of diagonals was too small for some part of a hack.
    fn summary<T: Scalar>(&self, csr: &DeviceCsr<T>) -> Result<Option<Summary>> {
        let matrix = csr.matrix();
        let samples = Samples::of(matrix);
        let places = Places::of(matrix);
        let memory = Memory::new(places.bytes, &self.stream)?;
        memory.clear(places.cleared as usize)?;
        let processors = u64::from(self.profile.processors);
        let queued =
            self.queue(csr, &launches(processors, matrix, &samples, &places, memory.address()));
        // Whatever was queued ends before the memory is given back.
        let ended = self.lanes.join(&self.stream);
        queued.and(ended)?;
        let len = places.read as usize / 8;
        let mut found = self.lanes.buffer(len)?;
        memory.read(bytemuck::cast_slice_mut(&mut found[..len]))?;
        Ok(summary(matrix, &samples, &places, &found[..len]))
    }

    /// Queues each list of launches on a stream of its own, after what was queued before.
    fn queue<T: Scalar>(&self, csr: &DeviceCsr<T>, lists: &[Vec<Launch>; LANES]) -> Result<()> {
        self.lanes.fork(&self.stream)?;
        for (stream, launches) in self.lanes.streams(&self.stream).zip(lists) {
            for launch in launches {
                if let Some(step) = Step::new(self, launch, |arg| word(csr, arg))? {
                    // SAFETY: the kernels take the matrix's own arrays and places in memory that
                    // is given back behind them.
                    unsafe { step.launch([0; 3], T::ZERO, T::ZERO, stream.as_inner())? };
                }
            }
        }
        Ok(())
    }
}

/// Numbers that the host reads of most matrices, in 64 bits.
const USUAL: usize = 1 << 13;

/// Streams that share the work.
const LANES: usize = 4;

/// What counting features needs besides a GPU's own stream.
pub(super) struct Lanes {
    streams: Vec<Stream>,
    /// Where counts are read to: page-locked, so that they come at once.
    buffer: Mutex<LockedBuffer<u64>>,
}

impl Lanes {
    /// Opens streams of the current context.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) by the driver.
    pub fn open() -> Result<Self> {
        let stream = |_| Stream::new(StreamFlags::NON_BLOCKING, None);
        let streams = (1..LANES).map(stream).collect::<std::result::Result<_, _>>();
        let buffer = LockedBuffer::new(&0, USUAL).map_err(failed("taking page-locked memory"))?;
        let streams = streams.map_err(failed("making a stream"))?;
        Ok(Lanes { streams, buffer: Mutex::new(buffer) })
    }

    fn streams<'a>(&'a self, first: &'a Stream) -> impl Iterator<Item = &'a Stream> {
        std::iter::once(first).chain(&self.streams)
    }

    /// Makes the other streams wait for the first.
    fn fork(&self, first: &Stream) -> Result<()> {
        self.streams.iter().try_for_each(|stream| follow(stream, first))
    }

    /// Makes the first stream wait for the others.
    fn join(&self, first: &Stream) -> Result<()> {
        self.streams.iter().try_for_each(|stream| follow(first, stream))
    }

    /// Room for `len` numbers.
    fn buffer(&self, len: usize) -> Result<MutexGuard<'_, LockedBuffer<u64>>> {
        let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        if buffer.len() < len {
            *buffer = LockedBuffer::new(&0, len).map_err(failed("taking page-locked memory"))?;
        }
        Ok(buffer)
    }
}

/// Makes a stream wait for what is queued on another.
fn follow(stream: &Stream, other: &Stream) -> Result<()> {
    let event = Event::new(EventFlags::DISABLE_TIMING).map_err(failed("making an event"))?;
    event.record(other).map_err(failed("recording an event"))?;
    let waits = stream.wait_event(event, StreamWaitEventFlags::DEFAULT);
    waits.map_err(failed("waiting for an event"))
}

/// What is looked at of sampled features.
struct Samples {
    mirrors: Sample,
    loads: Sample,
    warps: Sample,
    sides: [Sample; SIDES.len()],
}

impl Samples {
    fn of(matrix: Matrix) -> Self {
        let Matrix { nrows, ncols, nnz, .. } = matrix;
        let groups = |rows| Sample::of_groups(nrows.div_ceil(rows), nnz);
        Samples {
            mirrors: Sample::of_mirrors(nrows, ncols, nnz, SAMPLED_MIRRORS),
            loads: Sample::of_blocks(nrows),
            warps: groups(HACK),
            sides: SIDES.map(groups),
        }
    }

    /// Numbers of what the kernel `samples` looks at, in the order that it takes them in.
    fn looked_at(&self) -> impl Iterator<Item = u64> {
        let samples = [self.mirrors, self.warps].into_iter().chain(self.sides);
        samples.map(|sample| sample.looked_at as u64)
    }

    /// Its blocks of threads.
    fn blocks(&self) -> u64 {
        let each = std::iter::once(BLOCK).chain(std::iter::repeat(GROUPS));
        self.looked_at().zip(each).map(|(looked_at, each)| looked_at.div_ceil(each)).sum()
    }
}

/// Counts in the lists that the kernels of both images add to.
const COUNTS: u64 = 20;
const SAMPLE_COUNTS: u64 = 17;

/// Where the arrays of the kernels lie in one of theirs, in bytes.
struct Places {
    counts: u64,
    sample_counts: u64,
    /// Of rows, of columns.
    bins: [u64; 2],
    longer: [u64; 2],
    /// Up to here the host reads.
    read: u64,
    column_counts: u64,
    seen: u64,
    /// Up to here there are zeros at first.
    cleared: u64,
    /// Of diagonals, of sectors.
    tasks: [u64; 2],
    bytes: u64,
}

impl Places {
    fn of(matrix: Matrix) -> Self {
        let Matrix { nrows, ncols, nnz, .. } = matrix;
        let (nrows, ncols, nnz) = (nrows as u64, ncols as u64, nnz as u64);
        let mut bytes = 0;
        let mut place = |len: u64| {
            let at = bytes;
            bytes += len.next_multiple_of(16);
            at
        };
        Places {
            counts: place(8 * COUNTS),
            sample_counts: place(8 * SAMPLE_COUNTS),
            bins: [(); 2].map(|()| place(4 * BINS)),
            longer: [(); 2].map(|()| place(4 * (nnz / BINS))),
            read: place(0),
            column_counts: place(4 * ncols),
            seen: place(4 * ((nrows + ncols) / 32 + 1)),
            cleared: place(0),
            tasks: most_tasks(nnz).map(|most| place(8 * most)),
            bytes,
        }
    }
}

/// The most parts of hacks that are left to count: of diagonals, of sectors.
fn most_tasks(nnz: u64) -> [u64; 2] {
    [PART_ENTRIES, STEP_ENTRIES].map(|each| nnz / each + 1)
}

/// What is launched on each stream.
fn launches(
    processors: u64,
    matrix: Matrix,
    samples: &Samples,
    places: &Places,
    memory: u64,
) -> [Vec<Launch>; LANES] {
    let Matrix { nrows, ncols, nnz, .. } = matrix;
    let (rows, columns, entries) = (nrows as u64, ncols as u64, nnz as u64);
    let at = |place: u64| Arg::U64(memory + place);
    let [nrows, ncols] = [rows, columns].map(|n| Arg::U32(n as u32));
    let nnz = Arg::U64(entries);
    let pattern = [Arg::RowPtr, Arg::ColIdx];
    let (counts, sample_counts) = (at(places.counts), at(places.sample_counts));
    let looked_at: Vec<Arg> = samples.looked_at().map(|n| Arg::U32(n as u32)).collect();
    let lists = |i: usize| [counts, at(places.bins[i]), at(places.longer[i])];
    let [diagonal_tasks, sector_tasks] = places.tasks.map(at);
    let diagonals = [at(places.seen), counts, diagonal_tasks];
    let again = most_tasks(entries).map(|most| most.min(RESIDENT * processors));
    let launch = |image, kernel: &str, grid: u64, block: u64, args: &[&[Arg]]| {
        let kernel = format!("features_{kernel}_{}", matrix.offset_name());
        Launch::over(image, kernel, grid * block, block as u32, args.concat())
    };
    let whole = |kernel, grid, block, args| launch("features", kernel, grid, block, args);
    let sampled = |kernel, grid, block, args| launch("features_samples", kernel, grid, block, args);
    let of_hacks: &[&[Arg]] = &[&[nrows, ncols], &pattern, &diagonals];
    let warps = entries.div_ceil(WARP_ENTRIES);
    [
        vec![
            whole("diagonals", rows.div_ceil(DIAGONAL_HACK), BLOCK, of_hacks),
            whole("again", again[0], BLOCK, of_hacks),
        ],
        vec![
            sampled(
                "samples",
                samples.blocks(),
                BLOCK,
                &[&[nrows, ncols, nnz], &looked_at, &pattern, &[sample_counts, sector_tasks]],
            ),
            sampled(
                "sectors",
                again[1],
                BLOCK,
                &[&[nrows], &pattern, &[sample_counts, sector_tasks]],
            ),
        ],
        vec![
            whole(
                "entries",
                warps.div_ceil(BLOCK / 32),
                BLOCK,
                &[&[nrows, nnz], &pattern, &[at(places.column_counts), counts]],
            ),
            whole(
                "columns",
                columns.div_ceil(WINDOW),
                WIDE_BLOCK,
                &[&[ncols, at(places.column_counts)], &lists(1)],
            ),
        ],
        vec![
            whole("rows", rows.div_ceil(WINDOW), WIDE_BLOCK, &[&[nrows], &pattern, &lists(0)]),
            sampled(
                "loads",
                samples.loads.looked_at as u64,
                WIDE_BLOCK,
                &[&[nrows, ncols], &pattern, &[sample_counts]],
            ),
        ],
    ]
}

/// A list that is read from its start.
struct List<'a>(&'a [u64]);

impl List<'_> {
    fn next<const N: usize>(&mut self) -> [u64; N] {
        let (first, rest) = self.0.split_first_chunk().expect("the list has as many counts");
        self.0 = rest;
        *first
    }
}

/// What the kernels found; `None` where they could not count all diagonals.
fn summary(matrix: Matrix, samples: &Samples, places: &Places, found: &[u64]) -> Option<Summary> {
    let list = |at: u64, len: u64| List(&found[at as usize / 8..][..len as usize]);
    // In the order of kernels/features.cu...
    let mut counts = list(places.counts, COUNTS);
    let longest = counts.next();
    let sorted_longest = counts.next();
    let [profile, span_sum, spans_narrow, bandwidth, span_max] = counts.next();
    let inside = counts.next();
    let [diagonals, of_32, of_256] = counts.next();
    let [long_rows, long_columns, _tasks, uncounted] = counts.next();
    // ... and of kernels/features_samples.cu.
    let mut counts = list(places.sample_counts, SAMPLE_COUNTS);
    let sectors = counts.next();
    let loads = counts.next();
    let block_fill = SIDES.map(|b| fill(b, counts.next()));
    let [mirrored, _tasks] = counts.next();
    let words: &[u32] = bytemuck::cast_slice(found);
    let histogram = |i: usize, long: u64| {
        let list = |at: u64, len: u64| &words[at as usize / 4..][..len as usize];
        Histogram::of_bins(list(places.bins[i], BINS), list(places.longer[i], long).to_vec())
    };
    let summary = || Summary {
        nrows: matrix.nrows as f64,
        ncols: matrix.ncols as f64,
        nnz: matrix.nnz as f64,
        rows: histogram(0, long_rows),
        columns: Columns::Counted(histogram(1, long_columns)),
        longest,
        sorted_longest,
        profile,
        span_sum,
        spans_narrow,
        bandwidth,
        span_max,
        inside,
        diagonals,
        hack_diagonals: [of_32, of_256],
        sectors: samples.warps.scaled(sectors),
        loads: EachPrecision::of_loads(loads),
        block_fill,
        symmetry: samples.mirrors.share(mirrored),
    };
    (uncounted == 0).then(summary)
}
