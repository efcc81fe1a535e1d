//! Choices and operators for a matrix and its transpose.

use std::cell::OnceCell;
use std::sync::Arc;

use super::subject::Subject;
use super::{Progress, Tuner};
use crate::choose::policy::Mode;
use crate::choose::{Choice, Effort, TransposedChoice, ValuesUse, Workload};
use crate::csr::{Csr, CsrRef, EntryOrder};
use crate::cuda::DeviceCsr;
use crate::error::Result;
use crate::format::Basis;
use crate::operator::PreparedOperator;
use crate::pair::PreparedPair;
use crate::scalar::Scalar;
use crate::units::bytes;

/// A memory limit of at least this number of times both matrices in CSR is left to the direction
/// that is chosen first, except for the CSR of the other.
const AMPLE: u64 = 4;

/// The two directions of a matrix.
struct Directions<T> {
    /// The transpose; `None` if the matrix is symmetric.
    transpose: Option<Csr<T>>,
    /// Places of the values in the order of the transpose, if values will be replaced.
    order: Option<EntryOrder>,
    /// Workload of the matrix.
    forward: Workload,
    /// Workload of the transpose, with the memory limit of both.
    back: Workload,
    memory_limit: u64,
}

impl<T> Directions<T> {
    /// Returns the workload of the transpose if the layout of the matrix takes this many bytes.
    fn back_beside(&self, bytes: u64) -> Workload {
        Workload { memory_limit: Some(self.memory_limit.saturating_sub(bytes)), ..self.back }
    }
}

impl Tuner {
    /// Prepares the transpose of a matrix as [`Tuner::prepare`] prepares a matrix; the workload's
    /// `spmvs` are products with the transpose.
    ///
    /// The transpose is made on the host, in parallel, and dropped after its conversion. It is a
    /// matrix of its own: stored timings are found by its own fingerprint, and new ones are stored
    /// under it. For a matrix on a GPU, see [`Tuner::prepare_transposed_on_gpu`].
    ///
    /// ```
    /// use ellect::{Csr, Tuner, Workload};
    ///
    /// # fn main() -> ellect::Result<()> {
    /// let csr = Csr::from_triplets(2, 3, [(0, 0, 4.0), (0, 2, 1.0), (1, 1, 5.0)])?;
    /// let operator = Tuner::open("cpu")?.prepare_transposed(&csr, &Workload::default())?;
    /// let mut z = [0.0; 3];
    /// operator.apply(1.0, &[1.0, 1.0], 0.0, &mut z)?;
    /// assert_eq!(z, [4.0, 5.0, 1.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Tuner::prepare`].
    pub fn prepare_transposed<'a, T: Scalar>(
        &self,
        csr: impl Into<CsrRef<'a, T>>,
        workload: &Workload,
    ) -> Result<PreparedOperator<T>> {
        self.prepare_one(csr.into().transpose().as_ref(), true, workload)
    }

    /// Like [`Tuner::prepare_transposed`], for a matrix on the GPU that this tuner opened, which makes the
    /// transpose there ([`DeviceCsr::transpose`](crate::cuda::DeviceCsr::transpose)). The operator keeps
    /// the transpose where its format needs it, the matrix itself is not kept.
    ///
    /// # Errors
    /// As [`Tuner::prepare_on_gpu`].
    pub fn prepare_transposed_on_gpu<T: Scalar>(
        &self,
        csr: &DeviceCsr<T>,
        workload: &Workload,
    ) -> Result<PreparedOperator<T>> {
        let gpu = self.backend.gpu()?;
        let subject = Subject::on_gpu(gpu, Arc::new(csr.transpose(gpu)?), None);
        self.prepare_subject(&subject.of_transpose(true), workload)
    }

    /// Prepares a matrix for `spmvs` products and its transpose for `transposed` products of the
    /// workload, each in a format of its own choice.
    ///
    /// If the matrix is symmetric, one layout serves both directions, chosen for all products
    /// together. Otherwise both layouts are in the original basis, share the memory limit, and have
    /// half of the time for measuring each. While the matrix is prepared, the transpose is on the
    /// host in CSR, also for a GPU.
    ///
    /// # Errors
    /// As [`Tuner::prepare`].
    pub fn prepare_both<'a, T: Scalar>(
        &self,
        csr: impl Into<CsrRef<'a, T>>,
        workload: &Workload,
    ) -> Result<PreparedPair<T>> {
        let csr = csr.into();
        let mut directions = self.directions(csr, workload)?;
        let forward = self.prepare_one(csr, false, &directions.forward)?;
        let transposed = match &directions.transpose {
            Some(transpose) => {
                let workload = directions.back_beside(forward.bytes());
                Some(self.prepare_one(transpose.as_ref(), true, &workload)?)
            }
            None => None,
        };
        let (order, backend) = (directions.order.take(), Arc::clone(&self.backend));
        let target = (directions.forward.basis, directions.memory_limit);
        Ok(PreparedPair::new(forward, transposed, order, backend, target))
    }

    /// Chooses for a matrix, and for its transpose if the workload multiplies by that too.
    pub(super) fn choose<T: Scalar>(
        &self,
        csr: CsrRef<'_, T>,
        workload: &Workload,
        mode: Mode,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Choice> {
        if workload.transposed == 0 {
            return self.choose_one(csr, false, workload, mode, progress);
        }
        let directions = self.directions(csr, workload)?;
        let mut choice = self.choose_one(csr, false, &directions.forward, mode, progress)?;
        let Some(transpose) = &directions.transpose else {
            choice.explanation.push(format!(
                "The matrix is symmetric: one layout serves {} products with it and {} with its \
                 transpose.",
                workload.spmvs, workload.transposed
            ));
            choice.transposed = Some(TransposedChoice::Shared);
            return Ok(choice);
        };
        let taken = |choice: &Choice| choice.ranking.first().map_or(0, |first| first.bytes);
        let own = taken(&choice);
        let back = directions.back_beside(own);
        let mut of_transpose = self.choose_one(transpose.as_ref(), true, &back, mode, progress)?;
        choice.explanation.push(format!(
            "The transpose has a layout of its own, {}: {} beside {}.",
            of_transpose.candidate,
            bytes(taken(&of_transpose)),
            bytes(own)
        ));
        of_transpose.explanation.push("This choice is for products with the transpose.".into());
        choice.transposed = Some(TransposedChoice::Own(Box::new(of_transpose)));
        Ok(choice)
    }

    /// Chooses for one direction. `is_transpose` tells which, for the source in new records.
    fn choose_one<T: Scalar>(
        &self,
        csr: CsrRef<'_, T>,
        is_transpose: bool,
        workload: &Workload,
        mode: Mode,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Choice> {
        let subject = match mode {
            Mode::Rank => Subject::on_host(csr),
            Mode::Prepare => self.subject(csr, workload)?,
        };
        let subject = subject.of_transpose(is_transpose);
        Ok(self.decide_about(&subject, &OnceCell::new(), workload, mode, progress)?.choice)
    }

    fn prepare_one<T: Scalar>(
        &self,
        csr: CsrRef<'_, T>,
        is_transpose: bool,
        workload: &Workload,
    ) -> Result<PreparedOperator<T>> {
        let subject = self.subject(csr, workload)?.of_transpose(is_transpose);
        self.prepare_subject(&subject, workload)
    }

    /// Makes the transpose and divides the workload between both directions.
    fn directions<T: Scalar>(
        &self,
        csr: CsrRef<'_, T>,
        workload: &Workload,
    ) -> Result<Directions<T>> {
        workload.check(T::PRECISION)?;
        let (transpose, order) = match workload.values {
            ValuesUse::Fixed => (csr.transpose(), None),
            ValuesUse::Change(_) => {
                let (transpose, order) = csr.transpose_with_order();
                (transpose, Some(order))
            }
        };
        let memory_limit = workload.memory_limit.unwrap_or(self.device().memory_bytes);
        let one = Workload { transposed: 0, ..*workload };
        if csr.equals(transpose.as_ref()) {
            let spmvs = workload.spmvs.saturating_add(workload.transposed);
            let forward = Workload { spmvs, ..one };
            return Ok(Directions { transpose: None, order, forward, back: forward, memory_limit });
        }
        let budget_s = workload.budget_s.map(|seconds| seconds / 2.0);
        let forward = Workload { basis: Basis::Original, budget_s, ..one };
        let back = Workload { spmvs: workload.transposed, ..forward };
        let left =
            self.left_for_transpose([csr, transpose.as_ref()], [&forward, &back], memory_limit)?;
        let forward = Workload { memory_limit: Some(memory_limit.saturating_sub(left)), ..forward };
        Ok(Directions { transpose: Some(transpose), order, forward, back, memory_limit })
    }

    /// Returns the bytes that the layout of the matrix must leave to that of its transpose.
    ///
    /// With ample memory, the transpose is left the bytes of its CSR arrays. Otherwise the pair of
    /// layouts is found that fits the memory and takes the least total time, and the transpose is left
    /// the bytes of its layout in that pair.
    fn left_for_transpose<T: Scalar>(
        &self,
        matrices: [CsrRef<'_, T>; 2],
        workloads: [&Workload; 2],
        memory_limit: u64,
    ) -> Result<u64> {
        let [in_csr, of_transpose] = matrices.map(|csr| csr.bytes());
        if memory_limit / AMPLE >= in_csr + of_transpose {
            return Ok(of_transpose);
        }
        let ranked = |at: usize| {
            let effort = workloads[at].effort.min(Effort::Predict);
            let workload = Workload { effort, memory_limit: Some(memory_limit), ..*workloads[at] };
            self.choose_one(matrices[at], at == 1, &workload, Mode::Rank, &mut |_| ())
        };
        let (forward, back) = (ranked(0)?, ranked(1)?);
        let pairs =
            forward.ranking.iter().flat_map(|one| back.ranking.iter().map(move |two| (one, two)));
        let fitting =
            pairs.filter(|(one, two)| one.bytes.saturating_add(two.bytes) <= memory_limit);
        let total_s = |(one, two): &(&crate::choose::Ranked, &crate::choose::Ranked)| {
            one.total_s + two.total_s
        };
        let best = fitting.min_by(|a, b| total_s(a).total_cmp(&total_s(b)));
        Ok(best.map_or(of_transpose, |(_, two)| two.bytes))
    }
}
