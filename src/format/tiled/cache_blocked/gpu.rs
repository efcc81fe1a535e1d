//! Conversion to slabs on a GPU.

use super::tiles;
use crate::error::Error;
use crate::format::gpu::convert::TOLD;
use crate::format::gpu::launch::NULL;
use crate::format::{Arg, GpuConverter, GpuLayout, Launch, Matrix, SliceOffsets, Stop, Target};

/// The maximum number of slabs that a GPU converts: a conversion has few numbers to read back, and
/// each slab uses some of them.
const MOST: usize = 56;

/// A launch of a conversion kernel over `threads` threads.
fn launch(kernel: impl Into<String>, threads: u64, args: Vec<Arg>) -> Launch {
    Launch::over("convert_cache_blocked", kernel, threads, 256, args)
}

/// Selects the entries of a slab: one bit per entry in 32-bit words, the number of set bits before
/// each word, and their total.
struct Marks {
    args: [Arg; 3],
    nnz: u64,
}

impl Marks {
    fn new(converter: &mut dyn GpuConverter, columns: [u32; 2]) -> Result<Self, Stop> {
        let nnz = converter.matrix().nnz as u64;
        // One word more than entries need, so that the last prefix sum is the total.
        let words = nnz / 32 + 2;
        let (bits, counts) = (converter.array(4 * words)?, converter.temporary(4 * words)?);
        let [first, past] = columns.map(Arg::U32);
        let args = vec![Arg::U64(nnz), Arg::U64(words), first, past, Arg::ColIdx, bits, counts];
        converter.launch(&launch("mark_slab", 32 * words, args))?;
        let SliceOffsets { args: [narrow, wide], total } =
            converter.starts(counts, 1, words as usize)?;
        Ok(Marks { args: [bits, narrow, wide], nnz: total })
    }

    /// Copies the entries of the slab: their values, and their columns unless `columns` is null.
    fn take(&self, matrix: Matrix, target: &Target<'_>, columns: Arg, values: Arg) -> Launch {
        let nnz = matrix.nnz as u64;
        let args = [Arg::U64(nnz)].into_iter().chain(self.args);
        let args = args.chain([Arg::ColIdx, Arg::Values, columns, values]);
        launch(format!("take_slab_{}", target.precision), nnz, args.collect())
    }
}

/// Converts a slab as if it were the whole matrix.
struct SlabBuilder<'a> {
    whole: &'a mut dyn GpuConverter,
    matrix: Matrix,
    arrays: SlabArrays,
}

/// The CSR arrays of a slab.
#[derive(Clone, Copy)]
struct SlabArrays {
    row_ptr: Arg,
    columns: Arg,
    values: Arg,
}

impl SlabArrays {
    /// The launch with the arrays of the whole matrix replaced by those of the slab.
    fn of(&self, launch: &Launch) -> Launch {
        let own = |&arg: &Arg| match arg {
            Arg::RowPtr => self.row_ptr,
            Arg::ColIdx => self.columns,
            Arg::Values => self.values,
            other => other,
        };
        Launch { args: launch.args.iter().map(own).collect(), ..launch.clone() }
    }
}

impl GpuConverter for SlabBuilder<'_> {
    fn matrix(&self) -> Matrix {
        self.matrix
    }

    fn array(&mut self, bytes: u64) -> Result<Arg, Error> {
        self.whole.array(bytes)
    }

    fn arrays(&mut self, bytes: &[u64]) -> Result<Vec<Arg>, Error> {
        self.whole.arrays(bytes)
    }

    fn trim(&mut self, array: Arg, bytes: u64) {
        self.whole.trim(array, bytes);
    }

    fn zeros(&mut self, bytes: u64) -> Result<Arg, Error> {
        self.whole.zeros(bytes)
    }

    fn temporary(&mut self, bytes: u64) -> Result<Arg, Error> {
        self.whole.temporary(bytes)
    }

    fn temporary_zeros(&mut self, bytes: u64) -> Result<Arg, Error> {
        self.whole.temporary_zeros(bytes)
    }

    fn number(&mut self) -> Result<Arg, Error> {
        self.whole.number()
    }

    fn launch(&mut self, launch: &Launch) -> Result<(), Error> {
        self.whole.launch(&self.arrays.of(launch))
    }

    fn starts(&mut self, counts: Arg, each: usize, n: usize) -> Result<SliceOffsets, Error> {
        self.whole.starts(counts, each, n)
    }

    fn temporary_starts(
        &mut self,
        counts: Arg,
        each: usize,
        n: usize,
    ) -> Result<SliceOffsets, Error> {
        self.whole.temporary_starts(counts, each, n)
    }

    fn sort_down(
        &mut self,
        keys: Arg,
        rows: Arg,
        sorted: Arg,
        n: usize,
        bits: u32,
    ) -> Result<(), Error> {
        self.whole.sort_down(keys, rows, sorted, n, bits)
    }

    fn read(&mut self, number: Arg) -> Result<u32, Error> {
        self.whole.read(number)
    }

    fn host(&mut self) -> Result<[Arg; 2], Error> {
        self.whole.host()
    }

    fn told(&mut self) -> Result<[u32; TOLD], Error> {
        self.whole.told()
    }

    fn note_written(&mut self) {
        self.whole.note_written();
    }
}

/// Converts on a GPU: see [`Storage::build`](crate::format::Storage::build).
pub(super) fn build(
    converter: &mut dyn GpuConverter,
    cuts: &[u32],
    target: &Target<'_>,
) -> Result<GpuLayout, Stop> {
    if cuts.len() - 1 > MOST {
        return Err(Stop::OnHost);
    }
    let matrix = converter.matrix();
    let mut slabs = Vec::new();
    for cut in cuts.windows(2) {
        let marks = Marks::new(converter, [cut[0], cut[1]])?;
        if marks.nnz > 0 {
            slabs.push(marks);
        }
    }
    let most = slabs.iter().map(|marks| marks.nnz).max().unwrap_or(0);
    let rows = matrix.nrows as u64 + 1;
    let arrays = SlabArrays {
        row_ptr: converter.temporary(if matrix.wide { 8 } else { 4 } * rows)?,
        columns: converter.temporary(4 * most)?,
        // New values are copied through this array as well.
        values: converter.array(target.precision.bytes() as u64 * most)?,
    };
    let tiles = tiles();
    let mut whole = GpuLayout::default();
    for marks in slabs {
        let args = [Arg::U64(rows)].into_iter().chain(marks.args);
        let args = args.chain([Arg::RowPtr, arrays.row_ptr]).collect();
        converter.launch(&launch(format!("slab_rows_{}", matrix.offset_name()), rows, args))?;
        converter.launch(&marks.take(matrix, target, arrays.columns, arrays.values))?;
        let matrix_of_slab = Matrix { nnz: marks.nnz as usize, ..matrix };
        let mut of_slab = SlabBuilder { whole: &mut *converter, matrix: matrix_of_slab, arrays };
        let slab = tiles.format.build(&mut of_slab, &tiles.params, target)?;
        let (later, scratch) = (!whole.launches.is_empty(), whole.scratch.len());
        whole.launches.extend(slab.launches.into_iter().map(|launch| {
            let own = |arg: Arg| match arg {
                Arg::Scratch(i) => Arg::Scratch(scratch + i),
                Arg::Beta if later => Arg::One,
                other => other,
            };
            Launch { args: launch.args.iter().copied().map(own).collect(), ..launch }
        }));
        whole.scratch.extend(slab.scratch);
        whole.counters = whole.counters.max(slab.counters);
        whole.update.push(marks.take(matrix, target, NULL, arrays.values));
        whole.update.extend(slab.update.iter().map(|launch| arrays.of(launch)));
    }
    Ok(whole)
}
