//! Features of a matrix that a GPU holds, counted there: the kernels of the image `features`.
//!
//! The kernels count whole numbers, and one formula makes a feature of them wherever they were
//! counted, so that features are the host's to the last bit.

use super::convert::word;
use super::memory::Memory;
use super::operator::Step;
use super::{DeviceCsr, Gpu};
use crate::csr::Pattern;
use crate::error::Result;
use crate::features::{Features, HACK, SIDES, Summary};
use crate::format::{Arg, Launch, Matrix};
use crate::scalar::Scalar;
use crate::structure::{EachPrecision, Histogram, SAMPLED_MIRRORS, Sample, Structure, fill};

/// The image.
const IMAGE: &str = "features";

/// Threads of a block, but of those that sort lengths.
const BLOCK: u64 = 256;

/// Threads of a block that sorts lengths, and the lengths.
const SORTING: u64 = 1024;
const WINDOW: u64 = 4096;

/// Lengths that have a bin each; longer ones are listed.
const BINS: u64 = 4096;

/// Entries that a warp takes.
const WARP_ENTRIES: u64 = 1024;

/// Rows whose diagonals a block counts.
const DIAGONAL_HACK: u64 = 256;

/// A hack whose diagonals are counted in parts has one for each so many entries, or fewer.
const PART_ENTRIES: u64 = 2048;

/// Blocks that a processor has room for where they count diagonals.
const RESIDENT: u64 = 5;

/// Groups of a sample that a block looks at, a warp each.
const GROUPS: u64 = 8;

/// Rows and columns for each entry, past which lists of them would be longer than the work.
const MOST_PLACES: usize = 16;

/// The most columns whose diagonals a 32-bit number tells apart.
const MOST_COLUMNS: usize = u32::MAX as usize - DIAGONAL_HACK as usize;

impl Gpu {
    /// The cheap features of a matrix that this GPU holds, all of
    /// [`FEATURES`](crate::features::FEATURES) and equal to the host's: counted on the GPU in six
    /// launches, of which a copy of some 32 kB comes back.
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
        let memory = Memory::zeros(places.bytes, &self.stream)?;
        let processors = u64::from(self.profile.processors);
        for launch in launches(matrix, &samples, &places, memory.address(), processors) {
            if let Some(step) = Step::new(self, &launch, |arg| word(csr, arg))? {
                // SAFETY: the kernels take the matrix's own arrays and places in `memory`, which
                // lives until the copy below has ended.
                unsafe { step.launch([0; 3], T::ZERO, T::ZERO, self.stream.as_inner())? };
            }
        }
        let mut found = vec![0u64; places.tasks as usize / 8];
        memory.read(bytemuck::cast_slice_mut(&mut found))?;
        Ok(summary(matrix, &samples, &places, &found))
    }
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

    /// Numbers of what is looked at, in the order that the kernel takes them in.
    fn looked_at(&self) -> impl Iterator<Item = u64> {
        let rest = self.sides.iter().map(|side| side.looked_at as u64);
        [self.mirrors, self.loads, self.warps].map(|s| s.looked_at as u64).into_iter().chain(rest)
    }

    /// Blocks of threads.
    fn blocks(&self) -> u64 {
        let each = [BLOCK, 1].into_iter().chain(std::iter::repeat(GROUPS));
        self.looked_at().zip(each).map(|(looked_at, each)| looked_at.div_ceil(each)).sum()
    }
}

/// Counts in the list that the kernels add to.
const COUNTS: u64 = 36;

/// Where the arrays of the kernels lie in one of theirs, in bytes: first what the host reads.
struct Places {
    counts: u64,
    /// Of rows, of columns.
    bins: [u64; 2],
    longer: [u64; 2],
    tasks: u64,
    column_counts: u64,
    seen: u64,
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
            bins: [(); 2].map(|()| place(4 * BINS)),
            longer: [(); 2].map(|()| place(4 * (nnz / BINS))),
            tasks: place(8 * most_tasks(nnz)),
            column_counts: place(4 * ncols),
            seen: place(4 * ((nrows + ncols) / 32 + 1)),
            bytes,
        }
    }
}

/// The most parts of hacks whose diagonals are counted in parts.
fn most_tasks(nnz: u64) -> u64 {
    nnz / PART_ENTRIES + 1
}

fn launches(
    matrix: Matrix,
    samples: &Samples,
    places: &Places,
    memory: u64,
    processors: u64,
) -> [Launch; 6] {
    let Matrix { nrows, ncols, nnz, .. } = matrix;
    let (rows, columns, entries) = (nrows as u64, ncols as u64, nnz as u64);
    let at = |place: u64| Arg::U64(memory + place);
    let [nrows, ncols] = [rows, columns].map(|n| Arg::U32(n as u32));
    let nnz = Arg::U64(entries);
    let counts = at(places.counts);
    let looked_at = samples.looked_at().map(|n| Arg::U32(n as u32));
    let diagonals =
        vec![nrows, Arg::RowPtr, Arg::ColIdx, at(places.seen), counts, at(places.tasks)];
    let lists = |i: usize| [counts, at(places.bins[i]), at(places.longer[i])];
    let launch = |kernel: &str, grid: u64, block: u64, args: Vec<Arg>| {
        let kernel = format!("{kernel}_{}", matrix.offset_name());
        Launch::over(IMAGE, kernel, grid * block, block as u32, args)
    };
    let pattern = [Arg::RowPtr, Arg::ColIdx];
    [
        launch(
            "features_samples",
            samples.blocks(),
            BLOCK,
            [nrows, ncols, nnz]
                .into_iter()
                .chain(looked_at)
                .chain(pattern)
                .chain([counts])
                .collect(),
        ),
        launch("features_diagonals", rows.div_ceil(DIAGONAL_HACK), BLOCK, diagonals.clone()),
        launch("features_again", most_tasks(entries).min(RESIDENT * processors), BLOCK, diagonals),
        launch(
            "features_rows",
            rows.div_ceil(WINDOW),
            SORTING,
            [nrows].into_iter().chain(pattern).chain(lists(0)).collect(),
        ),
        launch(
            "features_entries",
            entries.div_ceil(WARP_ENTRIES).div_ceil(BLOCK / 32),
            BLOCK,
            vec![nrows, nnz, Arg::RowPtr, Arg::ColIdx, at(places.column_counts), counts],
        ),
        launch(
            "features_columns",
            columns.div_ceil(WINDOW),
            SORTING,
            [ncols, at(places.column_counts)].into_iter().chain(lists(1)).collect(),
        ),
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
    let mut counts = List(&found[..COUNTS as usize]);
    // In the order of kernels/features.cu.
    let longest = counts.next();
    let sorted_longest = counts.next();
    let [profile, span_sum, spans_narrow, bandwidth, span_max] = counts.next();
    let inside = counts.next();
    let [diagonals, of_32, of_256] = counts.next();
    let sectors = counts.next();
    let loads = counts.next();
    let block_fill = SIDES.map(|b| fill(b, counts.next()));
    let [mirrored, long_rows, long_columns, _tasks, uncounted] = counts.next();
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
        columns: histogram(1, long_columns),
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
