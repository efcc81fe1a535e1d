//! Estimates times with closed formulas from the work of a candidate ([`Work`]) and the profile of
//! a device ([`Device`](crate::device::Device)).
//!
//! The walls of a product are lower bounds of its time, each a quantity divided by a rate:
//!

//! | wall | quantity | rate |
//! |---|---|---|
//! | stream | bytes of the layout, of x, y and middle arrays, unless all fits in cache | memory |
//! | gather | all stream bytes, and 32 per sector of x that misses L1 | last-level cache |
//! | lookup | requested sectors of x | L1 caches |
//! | compute | multiply-adds and rows | processors |
//! | wait | number of times that warps wait for entries | processors |
//! | row | steps of the longest row or slowest tile, if a few threads process it | one thread |
//!
//! The time of a product is a smooth maximum (a norm with exponent 3) of the first five walls, plus
//! the row wall, because a long row is as likely to start last as first. Launches and the fixed
//! costs measured for each format's kernels are added.

use serde::{Deserialize, Serialize};

use super::{Cost, Source, kernel_figures};
use crate::analysis::{Analysis, Sort, Walk};
use crate::device::{KernelFigures, Kind};
use crate::format::{Candidate, Refusal, Target, Work};
use crate::par;
use crate::protocol::Protocol;

/// Exponent of the norm that combines the walls; the larger it is, the more the highest wall
/// dominates.
const SHARPNESS: i32 = 3;

/// Share of the kernel's time for entries and rows that each further vector of a block adds. It is an
/// assumption: further vectors need no loads of the matrix, and registers hold 2 to 4 of them.
const FURTHER_VECTOR: f64 = 0.25;

/// Times of one product, wall by wall, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    /// Time of all bytes through memory.
    pub stream_s: f64,
    /// Time of bytes and sectors through the last-level cache.
    pub gather_s: f64,
    /// Time of sectors through the L1 caches.
    pub lookup_s: f64,
    /// Time of multiply-adds and rows on a host, where they overlap with memory traffic.
    pub compute_s: f64,
    /// Time that warps wait for entries if rows of different lengths share a warp.
    pub wait_s: f64,
    /// Time of the longest row or the slowest tile, if a few threads process all of it.
    pub row_s: f64,
    /// Time of launches, and the kernels' additional time per entry and row.
    pub overhead_s: f64,
    /// Sectors of x that miss the L1 cache.
    pub missed: f64,
    /// Bytes that one product moves through memory.
    pub bytes: f64,
    /// Byte floor: the minimum time of any product with this layout, in which the layout, x and y
    /// each move once from the caches and the memory that hold them.
    pub floor_s: f64,
}

impl Times {
    /// Returns the walls of `count` such products.
    fn repeated(self, count: f64) -> Self {
        let Times { stream_s, gather_s, lookup_s, compute_s, wait_s, .. } = self;
        let Times { row_s, overhead_s, missed, bytes, floor_s, .. } = self;
        Times {
            stream_s: count * stream_s,
            gather_s: count * gather_s,
            lookup_s: count * lookup_s,
            compute_s: count * compute_s,
            wait_s: count * wait_s,
            row_s: count * row_s,
            overhead_s: count * overhead_s,
            missed: count * missed,
            bytes: count * bytes,
            floor_s: count * floor_s,
        }
    }

    /// Returns the walls of these products and of others after them.
    fn and(self, other: Times) -> Self {
        Times {
            stream_s: self.stream_s + other.stream_s,
            gather_s: self.gather_s + other.gather_s,
            lookup_s: self.lookup_s + other.lookup_s,
            compute_s: self.compute_s + other.compute_s,
            wait_s: self.wait_s + other.wait_s,
            row_s: self.row_s + other.row_s,
            overhead_s: self.overhead_s + other.overhead_s,
            missed: self.missed + other.missed,
            bytes: self.bytes + other.bytes,
            floor_s: self.floor_s + other.floor_s,
        }
    }

    /// Returns the time of the product, in seconds.
    pub fn total_s(&self) -> f64 {
        let walls = [self.stream_s, self.gather_s, self.lookup_s, self.compute_s, self.wait_s];
        let highest = walls.into_iter().fold(f64::MIN_POSITIVE, f64::max);
        let sum: f64 = walls.iter().map(|wall| (wall / highest).powi(SHARPNESS)).sum();
        highest * sum.powf(1.0 / f64::from(SHARPNESS)) + self.row_s + self.overhead_s
    }

    /// Names the wall that limits the product.
    pub fn bound(&self) -> &'static str {
        [
            (self.stream_s, "memory bandwidth"),
            (self.gather_s, "gathers of x from the last-level cache"),
            (self.lookup_s, "loads of x from the L1 cache"),
            (self.compute_s, "arithmetic and the cost per row"),
            (self.wait_s, "warps that wait for their longest rows"),
            (self.row_s, "its longest row or slowest tile"),
            (self.overhead_s, "kernel launches and the cost per row"),
        ]
        .into_iter()
        .fold((0.0, "nothing"), |most, wall| if wall.0 > most.0 { wall } else { most })
        .1
    }
}

/// The figures of a matrix that estimates use, in addition to the [`Work`] of each candidate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MatrixTerms {
    /// Number of rows.
    pub nrows: usize,
    /// Number of columns.
    pub ncols: usize,
    /// Number of nonzeros.
    pub nnz: usize,
    /// Entries of the longest row.
    pub longest: usize,
    /// Number of rows whose length differs from the preceding row's.
    pub changes: usize,
    /// Share of the requested x sectors, with rows in the matrix's own order, that the same block
    /// of rows did not request before.
    pub new_share: f64,
}

impl MatrixTerms {
    /// Computes the figures of a matrix for this target. Samples the locality of x in one pass over
    /// some blocks of rows.
    pub fn of(analysis: &Analysis<'_>, target: &Target<'_>) -> Self {
        let pattern = analysis.pattern();
        MatrixTerms {
            nrows: pattern.nrows(),
            ncols: pattern.ncols(),
            nnz: pattern.nnz(),
            longest: analysis.max_length(),
            changes: analysis.changes(),
            new_share: new_share(analysis, target),
        }
    }
}

/// All inputs of the estimate of one candidate: a record that holds them can be estimated and
/// learned from without the matrix.
///
/// ```
/// use ellect::analysis::Analysis;
/// use ellect::cost::CostInputs;
/// use ellect::{Precision, Workload, device, generate};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = generate::by_name("heat", 500, 1)?;
/// let cpu = device::find("cpu")?;
/// let target = Workload::default().target(&cpu, Precision::F64);
/// let inputs = CostInputs::of(&Analysis::of(&csr), &"csr".parse()?, &target);
/// assert_eq!(inputs.expect("CSR applies").matrix.nnz, csr.nnz());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostInputs {
    /// The figures of the matrix; records call them `sight`.
    #[serde(rename = "sight")]
    pub matrix: MatrixTerms,
    /// The work of the candidate.
    pub work: Work,
}

impl CostInputs {
    /// Computes the inputs for a candidate of this matrix and target. Takes as long as an estimate;
    /// the analysis keeps part of it.
    ///
    /// # Errors
    /// [`Refusal`] if the candidate does not apply to the matrix.
    pub fn of(
        analysis: &Analysis<'_>,
        candidate: &Candidate,
        target: &Target<'_>,
    ) -> Result<Self, Refusal> {
        let work = candidate.work(analysis, target)?;
        Ok(CostInputs { matrix: MatrixTerms::of(analysis, target), work })
    }
}

/// Estimates the candidates of one matrix for one target.
#[derive(Clone, Copy, Debug)]
pub struct Estimator<'a> {
    target: Target<'a>,
    matrix: MatrixTerms,
    /// Vectors of a product.
    vectors: usize,
}

impl<'a> Estimator<'a> {
    /// Creates an estimator for a matrix. Samples the locality of x in one pass over some blocks of
    /// rows.
    pub fn new(analysis: &Analysis<'_>, target: &Target<'a>) -> Self {
        Estimator::of(MatrixTerms::of(analysis, target), target)
    }

    /// Creates an estimator for a matrix whose figures are known.
    pub fn of(matrix: MatrixTerms, target: &Target<'a>) -> Self {
        Estimator { target: *target, matrix, vectors: 1 }
    }

    /// Sets the number of vectors of a product; 1 by default.
    pub fn with_vectors(self, vectors: usize) -> Self {
        Estimator { vectors, ..self }
    }

    /// Returns the figures of the matrix.
    pub fn matrix_terms(&self) -> MatrixTerms {
        self.matrix
    }

    /// Estimates the cost of a candidate with this work.
    pub fn cost(&self, candidate: &Candidate, work: &Work) -> Cost {
        self.cost_and_times(candidate, work).0
    }

    /// As [`Estimator::cost`] and [`Estimator::times`]; looks up the kernel figures once.
    pub(crate) fn cost_and_times(&self, candidate: &Candidate, work: &Work) -> (Cost, Times) {
        let figures = kernel_figures(self.target.device, candidate);
        let times = self.times_with(figures, candidate, work);
        let cost = Cost {
            convert_s: self.convert_s(figures, work),
            update_s: self.update_s(figures, work),
            spmv_s: times.total_s(),
            bytes: work.layout_bytes,
            source: Source::Estimated,
        };
        (cost, times)
    }

    /// Estimates the walls of one product; with several vectors, the sums over blocks of vectors
    /// for which the matrix is read once.
    pub fn times(&self, candidate: &Candidate, work: &Work) -> Times {
        self.times_with(kernel_figures(self.target.device, candidate), candidate, work)
    }

    fn times_with(&self, figures: KernelFigures, candidate: &Candidate, work: &Work) -> Times {
        let most = match self.target.device.kind {
            Kind::Host => candidate.format.vectors_at_once,
            Kind::Gpu => candidate.format.vectors_at_once_on_gpu(&candidate.params),
        };
        let most = most.max(1);
        let of_blocks = |block: usize, count: usize| {
            self.times_of_block(figures, work, block).repeated(count as f64)
        };
        let (mut block, mut left) = (most, self.vectors);
        let mut all: Option<Times> = None;
        while left > 0 {
            if block <= left {
                let times = of_blocks(block, left / block);
                left %= block;
                all = Some(all.map_or(times, |all| all.and(times)));
            }
            block = (block / 2).max(1);
        }
        all.unwrap_or_else(|| self.times_at(figures, work))
    }

    /// As [`Estimator::times`] for one vector, with explicit kernel figures instead of those in the
    /// device's profile.
    pub fn times_at(&self, figures: KernelFigures, work: &Work) -> Times {
        self.times_of_block(figures, work, 1)
    }

    /// Estimates the walls of a product that reads the matrix once for `block` vectors, whose
    /// elements lie side by side.
    fn times_of_block(&self, figures: KernelFigures, work: &Work, block: usize) -> Times {
        let Target { device, precision, .. } = self.target;
        let vectors = block as f64;
        // An element of x, with those of the other vectors beside it.
        let w = precision.bytes() as f64 * vectors;
        let (x_bytes, y_bytes) = (self.matrix.ncols as f64 * w, self.matrix.nrows as f64 * w);
        let requests = work.entries as f64 * (w / 32.0).max(1.0);
        let sectors = |of_one: f64| (vectors * of_one).min(requests.max(of_one));
        let x_sectors = sectors(work.x_sectors);
        let longer = 1.0 + (vectors - 1.0) * FURTHER_VECTOR;

        // Sectors of x that the L1 cache no longer holds when they are requested again. Some of
        // them have left the last-level cache, too, and come from memory.
        let window = work.x_window_bytes.map_or(x_bytes, |bytes| bytes as f64 * vectors);
        let window = window.min(x_bytes);
        let fits_near = (device.near_bytes as f64 / window.max(1.0)).min(1.0);
        let missed = match (work.x_loaded, device.kind) {
            (Some(loaded), _) => sectors(loaded),
            (None, Kind::Gpu) => x_sectors * self.matrix.new_share,
            (None, Kind::Host) => x_sectors * self.matrix.new_share * (1.0 - fits_near),
        };
        let room = device.cache_bytes as f64;
        let at_a_time = (x_bytes + y_bytes) * (window / x_bytes.max(1.0)).min(1.0);
        let lost = (1.0 - room / at_a_time.max(1.0)).max(0.0);
        let far = 32.0 * missed * lost;
        // On GPUs, the first load of each sector is already counted in the bytes of x.
        let again = (far - x_bytes).max(0.0);
        let (again, far_s) = match (device.kind, device.far_gbps) {
            (_, 0.0) => (again, 0.0),
            (Kind::Host, gbps) => (0.0, far / gbps / 1e9),
            (Kind::Gpu, gbps) => (0.0, again / gbps / 1e9),
        };
        // A row that is written out of order writes a whole sector.
        let scatter = work.scattered_rows as f64 * (32.0 - w).max(0.0);

        let dense = work.stream_bytes as f64 + work.extra_bytes as f64 + x_bytes + y_bytes;
        let bytes = dense + again + scatter * lost;
        let share = figures.bandwidth.of(precision).max(1e-3);
        let cached = self.cached_share(bytes);
        let near = dense * (cached / share + 1.0 - cached) + scatter;
        let gathered = 32.0 * missed * figures.gather.of(precision);
        let near_s = near / device.cache_gbps + gathered / device.gather_gbps;
        let host = device.kind == Kind::Host;
        let kernel_s = self.kernel_s(figures, work) * longer;
        Times {
            stream_s: bytes * (1.0 - cached) / device.read_gbps / share / 1e9,
            gather_s: near_s / 1e9 + far_s,
            lookup_s: x_sectors * figures.lookup.of(precision) / device.lookup_gps / 1e9,
            compute_s: if host { kernel_s } else { 0.0 },
            wait_s: work.waits as f64 * figures.wait_ns.of(precision)
                / f64::from(device.processors)
                / 1e9,
            row_s: self.row_s(figures, work) * longer,
            overhead_s: self.launch_s(work)
                + figures.fixed_us.of(precision) * 1e-6
                + if host { 0.0 } else { kernel_s },
            missed,
            bytes,
            floor_s: (dense * (1.0 - cached) / device.read_gbps)
                .max(dense * cached / device.cache_gbps)
                / 1e9,
        }
    }

    /// Returns the number of host threads that get a part of the work.
    fn threads(&self, work: &Work) -> f64 {
        let parts = (work.entries as usize + self.matrix.nrows) / par::GRAIN;
        parts.clamp(1, self.target.device.processors as usize) as f64
    }

    /// Returns the share of a product's bytes that the last-level cache still holds from the
    /// previous product, if copies take turns as they did when the profiles were measured.
    fn cached_share(&self, bytes: f64) -> f64 {
        let device = self.target.device;
        let copies = Protocol::default().copies(bytes as u64, device) as f64;
        let filled = bytes * copies / device.cache_bytes.max(1) as f64;
        ((1.5 - filled) / 0.75).clamp(0.0, 1.0)
    }

    /// Returns the kernels' time for entries and rows, in seconds, from the format's measured
    /// figures.
    fn kernel_s(&self, figures: KernelFigures, work: &Work) -> f64 {
        let Target { device, precision, .. } = self.target;
        let processors = match device.kind {
            Kind::Gpu => f64::from(device.processors),
            Kind::Host => self.threads(work),
        };
        let entries_ns = work.entries as f64 * figures.entry_ns.of(precision);
        let rows_ns = self.matrix.nrows as f64 * figures.row_ns.of(precision);
        let changes_ns = self.matrix.changes as f64 * figures.change_ns.of(precision);
        (entries_ns + rows_ns + changes_ns) / processors / 1e9
    }

    /// Returns the time of the longest row or the slowest tile, if a few threads process all of it,
    /// in seconds.
    fn row_s(&self, figures: KernelFigures, work: &Work) -> f64 {
        let Target { device, precision, .. } = self.target;
        let step_ns = match figures.step_ns.of(precision) {
            0.0 => device.step_ns,
            own => own,
        };
        let steps = if work.lanes == 0 {
            work.tile_steps_most
        } else {
            let threads_a_row = (work.lanes as f64 / self.matrix.nrows.max(1) as f64).max(1.0);
            self.matrix.longest as f64 / threads_a_row
        };
        steps * step_ns / 1e9
    }

    fn launch_s(&self, work: &Work) -> f64 {
        let device = self.target.device;
        match device.kind {
            Kind::Host if self.threads(work) <= 1.0 => 0.0,
            Kind::Host | Kind::Gpu => f64::from(work.launches) * device.launch_s,
        }
    }

    fn convert_s(&self, figures: KernelFigures, work: &Work) -> f64 {
        let Target { device, precision, .. } = self.target;
        if work.convert_bytes == 0 {
            return 0.0;
        }
        let work_ns = match figures.convert_ns.of(precision) {
            0.0 => {
                work.convert_bytes as f64 / device.convert_gbps
                    + work.sorted_keys as f64 * device.sort_ns
                    + work.partitioned_edges as f64 * device.partition_ns
            }
            entry_ns => work.entries as f64 * entry_ns,
        };
        let fixed_s = match figures.convert_us.of(precision) {
            0.0 => device.convert_s,
            fixed_us => fixed_us / 1e6,
        };
        fixed_s + work_ns / 1e9
    }

    /// Estimates the time of an update: new values are read, looked up in the order of the layout,
    /// and written.
    fn update_s(&self, figures: KernelFigures, work: &Work) -> f64 {
        let Target { device, precision, .. } = self.target;
        match figures.update_ns.of(precision) {
            0.0 => {
                let w = precision.bytes() as f64;
                let bytes = self.matrix.nnz as f64 * (w + 4.0) + work.entries as f64 * w;
                f64::from(work.launches) * device.launch_s + bytes / device.convert_gbps / 1e9
            }
            entry_ns => work.entries as f64 * entry_ns / 1e9,
        }
    }
}

/// Blocks of threads that share one L1 cache at a time.
const BLOCKS_A_CACHE: u64 = 8;

/// Returns the sectors of x that blocks of neighbouring rows load, divided by the sectors that
/// their warps request step by step. A block's loaded sectors stay cached until its share of the L1
/// cache is full.
fn new_share(analysis: &Analysis<'_>, target: &Target<'_>) -> f64 {
    let room = (target.device.near_bytes / BLOCKS_A_CACHE / 32).max(1);
    let loaded_a_nonzero = analysis.loaded_sectors(room as usize, target.precision);
    let rows = Walk::Rows { threads: 1, sort: Sort::None };
    let nnz = analysis.pattern().nnz().max(1) as f64;
    let asked_a_nonzero = analysis.x_sectors(rows, target.precision) / nnz;
    if asked_a_nonzero > 0.0 { (loaded_a_nonzero / asked_a_nonzero).min(1.0) } else { 1.0 }
}
