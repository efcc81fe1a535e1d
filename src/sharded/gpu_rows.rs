//! Matrices that GPUs hold: their rows are divided, and their halos found, without the host.

use std::ops::Range;
use std::sync::Arc;

use super::groups::{self, Of};
use super::halo::{Counts, Halo, runs};
use super::mode::Mode;
use super::part::of_part;
use super::split::{Split, begin_of_node, bounds_by_shares, most_moved};
use super::{Part, ShardedOperator, Tuners, bandwidth, columns_like};
use crate::choose::Workload;
use crate::cuda::{DeviceCsr, DeviceSlice, Gpu, NeededColumns};
use crate::error::{Error, Result};
use crate::partition::{Group, Partition, windows};
use crate::scalar::Scalar;
use crate::tuner::Tuner;

impl Tuners {
    /// Divides a matrix that one GPU holds among the devices, which are all GPUs, and prepares each part
    /// there: [`Split::EqualRows`] or [`Split::EqualNonzeros`]. The rows are copied from GPU to GPU; see
    /// [`Tuners::prepare_rows_on_gpus`] for the rest.
    ///
    /// ```no_run
    /// use std::sync::Arc;
    ///
    /// use ellect::cuda::DeviceCsr;
    /// use ellect::sharded::Split;
    /// use ellect::{Tuner, Workload, generate};
    ///
    /// # fn main() -> ellect::Result<()> {
    /// let csr = generate::by_name("stencil7", 1_000_000, 1)?;
    /// let tuner = Tuner::open("cuda:0")?;
    /// let gpu = tuner.backend().gpu()?;
    /// let there = DeviceCsr::upload(gpu, &csr)?;
    /// let tuners = Tuner::open_all(&["cuda:0", "cuda:1"])?;
    /// let a = tuners.prepare_sharded_on_gpu(gpu, &there, &Workload::default(), Split::EqualRows)?;
    /// let on_gpus = a.on_gpus()?;
    /// # drop(on_gpus);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] for another split, if `gpu` does not hold the matrix, and as
    /// [`Tuners::prepare_rows_on_gpus`].
    pub fn prepare_sharded_on_gpu<T: Scalar>(
        &self,
        gpu: &Gpu,
        csr: &DeviceCsr<T>,
        workload: &Workload,
        split: Split<'_>,
    ) -> Result<ShardedOperator<T>> {
        self.mode.check(split)?;
        self.check_rows_stay_whole()?;
        let bounds = bounds(gpu, csr, split, self.len())?;
        let copy = |(tuner, ends): (&Arc<Tuner>, &[usize])| {
            csr.copy_rows(gpu, ends[0]..ends[1], tuner.backend().gpu()?).map(Arc::new)
        };
        let rows = self.tuners.iter().zip(bounds.windows(2)).map(copy);
        let rows = rows.collect::<Result<Vec<_>>>()?;
        self.prepared_on_gpus(&rows, workload, split)
    }

    /// Prepares a matrix whose rows are on the GPUs already: `rows[p]` are those of part `p`, neighbours in
    /// the whole matrix and behind those of part `p - 1`, with the columns of the whole matrix.
    ///
    /// Each GPU finds the columns that its rows need from other parts and numbers its columns anew; the
    /// host gets the list of such columns, which the exchange is made from. Where rows that need no halo are
    /// multiplied apart ([`Mode`]), these are the longest run of neighbouring ones.
    ///
    /// Columns of a rectangular matrix are divided into equal ranges, those of a square one like its rows.
    ///
    /// ```no_run
    /// use std::sync::Arc;
    ///
    /// use ellect::cuda::DeviceCsr;
    /// use ellect::{Csr, Tuner, Workload};
    ///
    /// # fn main() -> ellect::Result<()> {
    /// let tuners = Tuner::open_all(&["cuda:0", "cuda:1"])?;
    /// let gpus = [ellect::cuda::Gpu::open(0)?, ellect::cuda::Gpu::open(1)?];
    /// // Each GPU has two rows of four.
    /// let rows = |first: usize| {
    ///     let entries = (first..first + 2).flat_map(|i| [(i - first, i, 2.0), (i - first, 3 - i, 1.0)]);
    ///     Csr::from_triplets(2, 4, entries)
    /// };
    /// let upload = |part: usize| DeviceCsr::upload(&gpus[part], &rows(2 * part)?).map(Arc::new);
    /// let a = tuners.prepare_rows_on_gpus(&[upload(0)?, upload(1)?], &Workload::default())?;
    /// assert_eq!(a.parts()[0].neighbours().collect::<Vec<_>>(), [1]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] unless there are rows for each device and all have as many columns, for a device
    /// that is a host, and for [`Mode::Naive`] and [`Mode::Task`], which divide the entries of rows;
    /// otherwise as [`Tuner::prepare_on_gpu`].
    pub fn prepare_rows_on_gpus<T: Scalar>(
        &self,
        rows: &[Arc<DeviceCsr<T>>],
        workload: &Workload,
    ) -> Result<ShardedOperator<T>> {
        let split = self.mode.split().unwrap_or(Split::EqualRows);
        self.prepared_on_gpus(rows, workload, split)
    }

    fn prepared_on_gpus<T: Scalar>(
        &self,
        rows: &[Arc<DeviceCsr<T>>],
        workload: &Workload,
        split: Split<'_>,
    ) -> Result<ShardedOperator<T>> {
        let (partition, ncols) = self.partition_of(rows)?;
        let columns = columns_like(&partition, ncols);
        let mut parts = Vec::with_capacity(self.len());
        let mut counts = Vec::with_capacity(self.len());
        for (number, (tuner, csr)) in self.tuners.iter().zip(rows).enumerate() {
            let place =
                Place { number, parts: self.len(), bounds: &columns.bounds, mode: self.mode };
            let (part, of_part) = place.prepare(tuner, csr, workload)?;
            parts.push(part);
            counts.push(of_part);
        }
        self.operator(split, [partition, columns], parts, |number| counts[number])
    }

    /// Checks that the mode does not divide the entries of rows.
    fn check_rows_stay_whole(&self) -> Result<()> {
        match self.mode.divides_columns() {
            false => Ok(()),
            true => Err(Error::argument(format!(
                "the mode {} divides the entries of rows, which is done for matrices of the host only: \
                 call prepare_sharded, or choose another mode",
                self.mode
            ))),
        }
    }

    /// Returns the partition of the rows, and the number of columns.
    fn partition_of<T: Scalar>(&self, rows: &[Arc<DeviceCsr<T>>]) -> Result<(Partition, usize)> {
        if rows.len() != self.len() {
            return Err(Error::argument(format!(
                "the rows of {} parts were given for {} devices; pass those of each device",
                rows.len(),
                self.len()
            )));
        }
        self.check_rows_stay_whole()?;
        let ncols = rows[0].matrix().ncols;
        if let Some(part) = rows.iter().position(|csr| csr.matrix().ncols != ncols) {
            return Err(Error::argument(format!(
                "the rows of part {part} have {} columns, those of part 0 have {ncols}; rows have the \
                 columns of the whole matrix",
                rows[part].matrix().ncols
            )));
        }
        let mut bounds = vec![0];
        for csr in rows {
            bounds.push(bounds[bounds.len() - 1] + csr.matrix().nrows);
        }
        let nrows = bounds[rows.len()];
        if u32::try_from(nrows.max(ncols)).is_err() {
            return Err(Error::argument(format!(
                "{nrows} rows and {ncols} columns: a divided matrix has at most {} of each",
                u32::MAX
            )));
        }
        Ok((Partition::of_neighbours(bounds), ncols))
    }
}

/// The place of a part in a divided matrix.
struct Place<'a> {
    number: usize,
    parts: usize,
    /// First column of each part, followed by the number of columns.
    bounds: &'a [usize],
    mode: Mode,
}

impl Place<'_> {
    /// Prepares the rows of the part, with local columns.
    fn prepare<T: Scalar>(
        &self,
        tuner: &Tuner,
        csr: &Arc<DeviceCsr<T>>,
        workload: &Workload,
    ) -> Result<(Part<T>, Counts)> {
        let gpu = tuner.backend().gpu()?;
        let own = self.bounds[self.number]..self.bounds[self.number + 1];
        let needed = csr.needed(gpu, own.clone())?;
        let matrix = csr.matrix();
        let counts = Counts {
            nnz: matrix.nnz,
            inner: needed.inner,
            own: needed.own,
            halo: needed.foreign.len(),
        };
        let halo = |foreign: &[u32]| Halo {
            own: own.len(),
            before: foreign.partition_point(|&column| (column as usize) < own.start),
            runs: runs(foreign, self.bounds),
        };
        let prepare = |csr: &Arc<DeviceCsr<T>>| tuner.prepare_on_gpu(csr, &of_part(workload));
        if self.mode.has_all_of_x() {
            // All columns in their order are those of the whole matrix.
            let others = (0..matrix.ncols).filter(|column| !own.contains(column));
            let others: Vec<u32> = others.map(|column| column as u32).collect();
            let operators = vec![(Group::all(0..matrix.nrows, true), prepare(csr)?)];
            return Ok((Part { halo: halo(&others), operators }, counts));
        }
        let mut operators = Vec::new();
        for group in self.groups(tuner, csr, &needed, &counts)? {
            let local = Arc::new(csr.local(gpu, &needed, group.rows.clone())?);
            operators.push((group, prepare(&local)?));
        }
        Ok((Part { halo: halo(&needed.foreign), operators }, counts))
    }

    /// Returns the groups of the part's rows, which keep their order.
    fn groups<T: Scalar>(
        &self,
        tuner: &Tuner,
        csr: &DeviceCsr<T>,
        needed: &NeededColumns,
        counts: &Counts,
    ) -> Result<Vec<Group>> {
        let nrows = csr.matrix().nrows;
        let whole = |needs_halo| Ok(vec![Group::all(0..nrows, needs_halo)]);
        if self.mode.is_one_step() {
            return whole(true);
        }
        if counts.inner == counts.nnz {
            return whole(false);
        }
        let needs = |row: usize| needed.rows[row / 32] >> (row % 32) & 1 == 1;
        let groups = groups::around_longest_run(nrows, needs);
        let gpu = tuner.backend().gpu()?;
        let run = groups.iter().find(|group| !group.needs_halo);
        let run: Range<usize> = run.map_or(0..0, |group| group.rows.clone());
        let inner = csr.row_start(gpu, run.end)? - csr.row_start(gpu, run.start)?;
        let of = Of { part: self.number, parts: self.parts, bandwidth: bandwidth(tuner) };
        match of.multiplies_apart::<T>(self.mode, [inner, counts.nnz]) {
            true => Ok(groups),
            false => whole(true),
        }
    }
}

impl<T: Scalar> ShardedOperator<T> {
    /// Replaces the values by values on the GPUs: `values[p]` are those of part `p`, in the order of its
    /// rows as they were given to [`Tuners::prepare_rows_on_gpus`].
    ///
    /// # Errors
    /// [`Error::Argument`] unless the matrix was prepared from rows on GPUs and there are values for each
    /// part; [`Error::Shape`] unless a part gets as many values as it has entries; and as
    /// [`GpuOperator::update_values`](crate::cuda::GpuOperator::update_values). The parts before the one
    /// that fails then have the new values.
    pub fn update_values_on_gpus(&mut self, values: &[DeviceSlice<'_, T>]) -> Result<()> {
        if !self.rows_keep_order || values.len() != self.parts.len() {
            return Err(Error::argument(format!(
                "values on GPUs replace those of a matrix that was prepared from rows on GPUs, with a \
                 vector for each part: {} vectors were given for {} parts{}",
                values.len(),
                self.parts.len(),
                if self.rows_keep_order { "" } else { " of a matrix of the host; call update" }
            )));
        }
        for (part, values) in self.parts.iter_mut().zip(values) {
            if values.len() != part.nnz() {
                let (got, needed) = (values.len(), part.nnz());
                return Err(Error::Shape { what: "values of a part", got, needed });
            }
            let mut next = 0;
            for (_, operator) in &mut part.operators {
                let end = next + operator.nnz();
                if let Some(on_gpu) = operator.on_device_mut() {
                    on_gpu.update_values(values.slice(next..end)?)?;
                }
                next = end;
            }
        }
        Ok(())
    }
}

/// Returns the bounds of a matrix on a GPU, as [`Split::partition`] finds them for one on the host.
fn bounds<T: Scalar>(
    gpu: &Gpu,
    csr: &DeviceCsr<T>,
    split: Split<'_>,
    parts: usize,
) -> Result<Vec<usize>> {
    let matrix = csr.matrix();
    let nrows = matrix.nrows;
    let mut bounds = match split {
        Split::EqualRows => windows(nrows, parts),
        Split::EqualNonzeros => {
            let start = |row| csr.row_start(gpu, row);
            bounds_by_shares([nrows, matrix.nnz], &vec![1.0; parts], start)?
        }
        other => {
            return Err(Error::argument(format!(
                "{} needs the matrix on the host: call prepare_sharded, or divide it by equal rows or \
                 equal nonzeros",
                other.name()
            )));
        }
    };
    let most = most_moved(nrows, parts);
    for bound in &mut bounds {
        let first = bound.saturating_sub(most + 1);
        let rows = first..(*bound + 1).min(nrows);
        let near = csr.rows_to_host(gpu, rows)?;
        *bound = first + begin_of_node(near.pattern(), *bound - first, most);
    }
    Ok(bounds)
}
