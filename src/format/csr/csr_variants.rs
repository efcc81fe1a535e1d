//! Variants of CSR on a GPU that the literature compares other formats with.
//!
//! - scalar: a thread sums a row;
//! - vector: a warp sums a row, or the part of a warp whose number of lanes, a power of two, is
//!   closest to the mean row length;
//! - adaptive: a block of threads sums as many short rows as fit into shared memory, a longer row,
//!   or a piece of a row that is longer still (`row_blocks`).
//!
//! Like the baseline, they multiply the caller's CSR arrays.

use super::csr::{rows_by, whole_bytes};
use super::gpu::launch::NULL;
use super::long_rows::Pieces;
use super::row_blocks::{self, BlockCounts, THREADS};
use super::row_order::WARP;
use super::{Arg, GpuConverter, Launch, Matrix, Param, Params, Stop, Target, Value, Work};
use crate::analysis::{Analysis, Walk};
use crate::scalar::Precision;

/// A variant of CSR other than the automatic one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variant {
    Scalar,
    Vector,
    Adaptive,
}

/// The parameter that names the variant.
pub(super) const KERNEL: Param = Param {
    name: "kernel",
    doc: "scalar: a thread sums a row; vector: a warp or a part of one; adaptive: a block of threads \
          sums a block of rows; auto: chosen by the row lengths",
    values: &[Value::AUTO, Value::Word("scalar"), Value::Word("vector"), Value::Word("adaptive")],
    gpu: &[Value::AUTO, Value::Word("scalar"), Value::Word("vector"), Value::Word("adaptive")],
    host: &[Value::AUTO],
};

impl Variant {
    /// Returns the variant with these parameters; `None` for the automatic one.
    pub fn of(params: &Params) -> Option<Self> {
        match params.get(KERNEL.name) {
            Value::Word("scalar") => Some(Variant::Scalar),
            Value::Word("vector") => Some(Variant::Vector),
            Value::Word("adaptive") => Some(Variant::Adaptive),
            _ => None,
        }
    }

    /// Returns the image with the variant's kernels.
    pub fn image(self) -> &'static str {
        match self {
            Variant::Scalar => "csr_scalar",
            Variant::Vector => "csr_vector",
            Variant::Adaptive => "csr_adaptive",
        }
    }

    /// Computes the work of a product.
    pub fn work(self, analysis: &Analysis<'_>, target: &Target<'_>) -> Work {
        let pattern = analysis.pattern();
        let (nrows, nnz) = (pattern.nrows(), pattern.nnz());
        match self {
            Variant::Scalar => one_thread_a_row(analysis, target),
            // A lane loads one entry at a time.
            Variant::Vector => rows_by(analysis, target, lanes_near_mean(nrows, nnz), 1),
            Variant::Adaptive => blocks_of_rows(analysis, target),
        }
    }

    /// Lists the blocks of rows, if the variant needs them; otherwise returns an empty list.
    pub fn list(self, row_ptr: &[usize]) -> Vec<[u32; 2]> {
        match self {
            Variant::Scalar | Variant::Vector => Vec::new(),
            Variant::Adaptive => row_blocks::list(row_ptr),
        }
    }

    /// As [`Variant::list`], on a GPU.
    pub fn find(self, converter: &mut dyn GpuConverter) -> Result<Option<Pieces>, Stop> {
        if self != Variant::Adaptive || converter.matrix().nrows == 0 {
            return Ok(None);
        }
        let (list, count) = row_blocks::find(converter)?;
        Ok(Some(Pieces { list, count }))
    }

    /// Returns the launch of a product. `arrays` are row pointers, columns and values.
    pub fn launch(
        self,
        matrix: Matrix,
        arrays: [Arg; 3],
        blocks: Option<Pieces>,
        precision: Precision,
    ) -> Launch {
        let image = self.image();
        let (lanes, threads) = match self {
            Variant::Scalar => (String::new(), matrix.nrows as u64),
            Variant::Vector => {
                let lanes = lanes_near_mean(matrix.nrows, matrix.nnz);
                (format!("t{lanes}_"), (matrix.nrows * lanes) as u64)
            }
            Variant::Adaptive => {
                (String::new(), blocks.map_or(0, |blocks| blocks.count * THREADS as u64))
            }
        };
        let list = match (self, blocks) {
            (Variant::Adaptive, None) => vec![NULL; 3],
            (_, None) => Vec::new(),
            (_, Some(blocks)) => vec![blocks.list, Arg::Scratch(0), Arg::Counters],
        };
        let wide = if matrix.wide { "wide_" } else { "" };
        let kernel = format!("{image}_{wide}{lanes}{precision}");
        let vectors = [Arg::X, Arg::Y, Arg::Alpha, Arg::Beta];
        let rows = [Arg::U32(matrix.nrows as u32)].into_iter().chain(list);
        let args = rows.chain(arrays).chain(vectors).collect();
        Launch::over(image, kernel, threads, THREADS as u32, args)
    }
}

/// The number of lanes of a row, from 2 to a warp, that is closest to the mean row length.
fn lanes_near_mean(nrows: usize, nnz: usize) -> usize {
    let fits = |lanes: &usize| 2 * nnz < 3 * lanes * nrows;
    [2, 4, 8, 16].into_iter().find(fits).unwrap_or(WARP)
}

/// The work of a product in which a thread sums each row.
fn one_thread_a_row(analysis: &Analysis<'_>, target: &Target<'_>) -> Work {
    let pattern = analysis.pattern();
    let (nrows, nnz) = (pattern.nrows().max(1) as f64, pattern.nnz() as f64);
    let work = rows_by(analysis, target, 1, 1);
    // In each step, a lane loads a sector of columns and one of values of its own, unless rows are
    // so short that lanes share sectors. Other lanes displace these sectors from the L1 cache before
    // the next step.
    let sectors = |bytes: usize| nnz * (nnz / nrows * bytes as f64 / SECTOR).min(1.0);
    let loaded = sectors(size_of::<u32>()) + sectors(target.precision.bytes());
    Work { x_sectors: work.x_sectors + loaded, x_loaded: work.x_loaded.map(|x| x + loaded), ..work }
}

/// Bytes of a sector.
const SECTOR: f64 = 32.0;

/// The work of a product in which a block of threads sums each block of rows.
fn blocks_of_rows(analysis: &Analysis<'_>, target: &Target<'_>) -> Work {
    let pattern = analysis.pattern();
    let nnz = pattern.nnz() as u64;
    let counts = BlockCounts::of(pattern.row_ptr());
    let list = counts.blocks * size_of::<[u32; 2]>() as u64;
    let bytes = whole_bytes(pattern, target.precision) + list;
    let w = target.precision.bytes() as u64;
    Work {
        layout_bytes: bytes,
        stream_bytes: bytes,
        entries: nnz,
        x_sectors: analysis.x_sectors(Walk::Entries, target.precision),
        x_loaded: analysis.x_loaded(Walk::Entries, target),
        // The sums of pieces are written and read.
        extra_bytes: 2 * counts.pieces * w,
        steps: nnz.div_ceil(WARP as u64),
        tile_steps: counts.steps,
        tile_steps_most: counts.steps_most,
        launches: 1,
        // Two kernels read the row pointers, and the second one writes the list.
        convert_bytes: 2 * (whole_bytes(pattern, target.precision) - nnz * (4 + w)) + list,
        ..Work::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Candidate;
    use crate::{Workload, generate};

    #[test]
    fn a_row_gets_the_lanes_closest_to_the_mean_length() {
        let lanes =
            [0, 1, 2, 3, 5, 6, 11, 12, 23, 24, 500].map(|mean| lanes_near_mean(10, 10 * mean));
        assert_eq!(lanes, [2, 2, 2, 4, 4, 8, 8, 16, 16, 32, 32]);
        assert_eq!(lanes_near_mean(0, 0), WARP);
    }

    #[test]
    fn a_thread_loads_its_own_sectors_of_long_rows() {
        let device = crate::device::find("h200").expect("shipped");
        let target = Workload::default().target(&device, Precision::F64);
        let csr = generate::by_name("stencil27", 8000, 1).expect("a class");
        let analysis = Analysis::of(&csr);
        let work = |text: &str| {
            let candidate: Candidate = text.parse().expect("a candidate");
            candidate.work(&analysis, &target).expect("every matrix")
        };
        let (auto, scalar) = (work("csr"), work("csr:kernel=scalar"));
        let more = |of: fn(&Work) -> f64| (of(&scalar) - of(&auto)) / csr.nnz() as f64;
        assert!(more(|work| work.x_sectors) > 1.5, "{scalar:?}");
        assert!(more(|work| work.x_loaded.expect("a GPU")) > 1.5, "{scalar:?}");
        assert_eq!(scalar.layout_bytes, auto.layout_bytes);
        assert_eq!([auto, scalar].map(|work| work.convert_bytes), [0; 2]);
        assert!(work("csr:kernel=adaptive").convert_bytes > 0);
    }
}
