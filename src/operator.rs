//! Prepared operators: a matrix in the chosen layout, with the checks that layouts omit.

pub(crate) mod complex;
mod dots;
mod verify;

use std::sync::Arc;

use crate::analysis::Analysis;
use crate::check::{self, RowReference};
use crate::choose::Choice;
use crate::csr::{Csr, CsrRef};
use crate::cuda::{DeviceCsr, Gpu, GpuOperator};
use crate::dense::{self, DenseMut, DenseRef};
use crate::device::Kind;
use crate::error::{Error, Result};
use crate::fingerprint::Fingerprint;
use crate::format::{Candidate, Layout, Target};
use crate::par::Scratch;
pub use crate::permutation::{permute, permute_back};
use crate::scalar::Scalar;
pub(crate) use verify::seeded;

/// A matrix prepared for repeated products; owns all its buffers.
///
/// ```
/// use ellect::Workload;
/// use ellect::{Csr, Precision, PreparedOperator, device};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = Csr::from_triplets(2, 3, [(0, 0, 4.0), (0, 2, 1.0), (1, 1, 5.0)])?;
/// let cpu = device::find("cpu")?;
/// let target = Workload::default().target(&cpu, Precision::F64);
/// let operator = PreparedOperator::new(&csr, &"ell".parse()?, &target)?;
///
/// let mut y = [1.0, 1.0];
/// operator.apply(2.0, &[1.0, 2.0, 3.0], -1.0, &mut y)?;
/// assert_eq!(y, [13.0, 19.0]);
/// assert_eq!(operator.to_csr()?, csr);
/// # Ok(())
/// # }
/// ```
pub struct PreparedOperator<T: Scalar> {
    nrows: usize,
    ncols: usize,
    nnz: usize,
    /// `None` if the host has never had the pattern.
    fingerprint: Option<Fingerprint>,
    candidate: Candidate,
    /// Largest error of a stored value, as a share of it.
    rounding: f64,
    choice: Option<Box<Choice>>,
    location: Location<T>,
    /// Products with complex factors.
    scratch: Box<Scratch<T>>,
}

/// The memory that holds the layout.
enum Location<T: Scalar> {
    Host(Box<dyn Layout<T>>),
    Gpu(Box<GpuOperator<T>>),
}

impl<T: Scalar> std::fmt::Debug for PreparedOperator<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PreparedOperator")
            .field("candidate", &self.candidate)
            .field("nrows", &self.nrows)
            .field("ncols", &self.ncols)
            .field("nnz", &self.nnz)
            .finish_non_exhaustive()
    }
}

impl<T: Scalar> PreparedOperator<T> {
    /// Converts `csr` to the candidate's layout.
    ///
    /// # Errors
    /// [`Error::Refused`] if the candidate does not apply to the matrix.
    pub fn new<'a>(
        csr: impl Into<CsrRef<'a, T>>,
        candidate: &Candidate,
        target: &Target<'_>,
    ) -> Result<Self> {
        let csr = csr.into();
        let analysis = Analysis::of(csr).with_partitioning();
        Self::with_analysis(csr, &analysis, candidate, target)
    }

    /// Like [`PreparedOperator::new`], but reuses an existing analysis of the pattern.
    ///
    /// # Errors
    /// As [`PreparedOperator::new`].
    pub fn with_analysis<'a>(
        csr: impl Into<CsrRef<'a, T>>,
        analysis: &Analysis<'_>,
        candidate: &Candidate,
        target: &Target<'_>,
    ) -> Result<Self> {
        candidate.work(analysis, target).map_err(|reason| candidate.refused(&reason))?;
        let layout = candidate.convert(csr, analysis, target)?;
        Ok(Self::placed(analysis, candidate, target, Location::Host(layout)))
    }

    /// Converts on a GPU if the format can, otherwise on the host; the layout ends up on the GPU.
    /// `on_gpu` is the same matrix, already uploaded.
    ///
    /// # Errors
    /// [`Error::Refused`] if the candidate does not apply to the matrix; [`Error::Device`] from the
    /// driver.
    pub fn on_gpu<'a>(
        gpu: &Arc<Gpu>,
        on_gpu: &Arc<DeviceCsr<T>>,
        csr: impl Into<CsrRef<'a, T>>,
        analysis: &Analysis<'_>,
        candidate: &Candidate,
        target: &Target<'_>,
    ) -> Result<Self> {
        candidate.work(analysis, target).map_err(|reason| candidate.refused(&reason))?;
        let placed = GpuOperator::new(gpu, on_gpu, csr.into(), analysis, candidate, target)?;
        Ok(Self::placed(analysis, candidate, target, Location::Gpu(Box::new(placed))))
    }

    /// Converts a matrix on a GPU without its pattern on the host; `None` if the format converts on
    /// the host.
    ///
    /// # Errors
    /// As [`PreparedOperator::on_gpu`].
    pub fn built(
        gpu: &Arc<Gpu>,
        on_gpu: &Arc<DeviceCsr<T>>,
        candidate: &Candidate,
        target: &Target<'_>,
    ) -> Result<Option<Self>> {
        let Some(placed) = GpuOperator::built(gpu, on_gpu, candidate, target)? else {
            return Ok(None);
        };
        let matrix = on_gpu.matrix();
        Ok(Some(PreparedOperator {
            nrows: matrix.nrows,
            ncols: matrix.ncols,
            nnz: matrix.nnz,
            fingerprint: None,
            candidate: candidate.clone(),
            rounding: candidate.rounding(target),
            choice: None,
            location: Location::Gpu(Box::new(placed)),
            scratch: Box::default(),
        }))
    }

    fn placed(
        analysis: &Analysis<'_>,
        candidate: &Candidate,
        target: &Target<'_>,
        location: Location<T>,
    ) -> Self {
        let pattern = analysis.pattern();
        PreparedOperator {
            nrows: pattern.nrows(),
            ncols: pattern.ncols(),
            nnz: pattern.nnz(),
            fingerprint: Some(analysis.fingerprint()),
            candidate: candidate.clone(),
            rounding: candidate.rounding(target),
            choice: None,
            location,
            scratch: Box::default(),
        }
    }

    /// Returns the operator on its GPU, for vectors on the GPU; `None` on a host.
    pub fn on_device(&self) -> Option<&GpuOperator<T>> {
        match &self.location {
            Location::Host(_) => None,
            Location::Gpu(placed) => Some(placed),
        }
    }

    /// Returns the operator on its GPU, for updates with values on the GPU; `None` on a host.
    pub fn on_device_mut(&mut self) -> Option<&mut GpuOperator<T>> {
        match &mut self.location {
            Location::Host(_) => None,
            Location::Gpu(placed) => Some(placed),
        }
    }

    /// Takes over the newest values of another operator of the same matrix in the same memory; on a
    /// GPU, queues this without waiting. Returns false if the layout cannot hold them, or only
    /// after a wait.
    ///
    /// # Errors
    /// [`Error::Device`] from a GPU.
    pub(crate) fn take_values_of(&mut self, other: &Self) -> Result<bool> {
        match (&mut self.location, &other.location) {
            (Location::Gpu(own), Location::Gpu(other)) => own.take_values_of(other),
            (Location::Host(own), Location::Host(other)) => {
                let csr = other.to_csr();
                if own.check_values(csr.values()).is_err() {
                    return Ok(false);
                }
                own.set_values(csr.values());
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Stores the choice that led to this operator.
    pub(crate) fn with_choice(mut self, choice: Choice) -> Self {
        self.choice = Some(Box::new(choice));
        self
    }

    /// Returns the choice that led to this operator; `None` if the caller named the candidate.
    pub fn choice(&self) -> Option<&Choice> {
        self.choice.as_deref()
    }

    /// Computes y = alpha A x + beta y; with `beta = 0`, y is written and never read.
    ///
    /// On a GPU this copies x and y there and y back; a solver should keep its vectors there.
    ///
    /// # Errors
    /// [`Error::Shape`] unless `x` has `ncols` and `y` has `nrows` elements; [`Error::Device`] from
    /// a GPU.
    pub fn apply(&self, alpha: T, x: &[T], beta: T, y: &mut [T]) -> Result<()> {
        if x.len() != self.ncols {
            return Err(Error::Shape { what: "x", got: x.len(), needed: self.ncols });
        }
        if y.len() != self.nrows {
            return Err(Error::Shape { what: "y", got: y.len(), needed: self.nrows });
        }
        match &self.location {
            Location::Host(layout) => {
                layout.apply(alpha, x, beta, y);
                Ok(())
            }
            Location::Gpu(placed) => placed.apply_on_host(alpha, x, beta, y),
        }
    }

    /// Computes Y = alpha A X + beta Y for one vector in each column of X and Y; with `beta = 0`, Y
    /// is written and never read.
    ///
    /// On a host, several formats read the matrix once for up to 8 columns
    /// ([`Layout::apply_many`]); a single column is multiplied as by [`PreparedOperator::apply`]. In
    /// a permuted basis, each column is permuted. On a GPU this copies X and Y there and Y back;
    /// `GpuOperator::apply_many` multiplies vectors that are there.
    ///
    /// ```
    /// use ellect::dense::{DenseMut, DenseRef};
    /// use ellect::{Csr, Tuner, Workload};
    ///
    /// # fn main() -> ellect::Result<()> {
    /// let csr = Csr::from_triplets(2, 2, [(0, 0, 2.0), (0, 1, 1.0), (1, 1, 3.0)])?;
    /// let operator = Tuner::open("cpu")?.prepare(&csr, &Workload::default())?;
    /// let (x, mut y) = ([1.0, 2.0, 10.0, 20.0], [1.0; 4]);
    /// let x = DenseRef::columns(2, 2, &x)?;
    /// operator.apply_many(1.0, x, -1.0, DenseMut::columns(2, 2, &mut y)?)?;
    /// assert_eq!(y, [3.0, 5.0, 39.0, 59.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`] unless X has `ncols` and Y has `nrows` rows; [`Error::Argument`] unless both
    /// have as many columns; [`Error::Device`] from a GPU.
    pub fn apply_many(
        &self,
        alpha: T,
        x: DenseRef<'_, T>,
        beta: T,
        y: DenseMut<'_, T>,
    ) -> Result<()> {
        dense::check([self.nrows, self.ncols], &x, &y)?;
        match &self.location {
            Location::Host(layout) if y.ncols() > 1 => {
                layout.apply_many(alpha, x, beta, y);
                Ok(())
            }
            Location::Gpu(placed) if y.ncols() > 1 => placed.apply_many_on_host(alpha, x, beta, y),
            Location::Host(_) | Location::Gpu(_) => {
                dense::by_columns(x, y, beta != T::ZERO, &mut |x, y| self.apply(alpha, x, beta, y))
            }
        }
    }

    /// Computes Y = alpha A X + beta Y for vectors that lie one after the other.
    ///
    /// # Errors
    /// As [`PreparedOperator::apply_many`].
    pub(crate) fn multiply(
        &self,
        (alpha, beta): (T, T),
        vectors: usize,
        x: &[T],
        y: &mut [T],
    ) -> Result<()> {
        if vectors == 1 {
            return self.apply(alpha, x, beta, y);
        }
        let x = DenseRef::columns(self.ncols, vectors, x)?;
        self.apply_many(alpha, x, beta, DenseMut::columns(self.nrows, vectors, y)?)
    }

    /// Replaces the values by those of a matrix with the same pattern, in the order of the CSR
    /// arrays.
    ///
    /// # Errors
    /// [`Error::PatternChanged`] unless there are `nnz` values; [`Error::Refused`] if the layout
    /// relies on a property of the values, such as few distinct ones or values that f32 holds, that
    /// these values lack; the old values stay.
    pub fn update_values(&mut self, values: &[T]) -> Result<()> {
        self.check_values(values)?;
        self.set_values(values)
    }

    /// Checks that the layout can hold these values.
    ///
    /// # Errors
    /// As [`PreparedOperator::update_values`].
    pub(crate) fn check_values(&self, values: &[T]) -> Result<()> {
        if values.len() != self.nnz {
            return Err(Error::PatternChanged {
                what: format!("{} values for {} entries", values.len(), self.nnz),
            });
        }
        let reason = match &self.location {
            Location::Host(layout) => layout.check_values(values).err(),
            Location::Gpu(placed) => placed.check_values(values)?,
        };
        reason.map_or(Ok(()), |reason| Err(self.candidate.refused(&reason)))
    }

    /// Replaces the values by others that were checked.
    ///
    /// # Errors
    /// [`Error::Device`] from a GPU.
    pub(crate) fn set_values(&mut self, values: &[T]) -> Result<()> {
        match &mut self.location {
            Location::Host(layout) => {
                layout.set_values(values);
                Ok(())
            }
            Location::Gpu(placed) => placed.set_values(values),
        }
    }

    /// Replaces the values by those of `csr`, after checking that its pattern is the prepared one.
    ///
    /// Costs one pass over the pattern, and a copy from the GPU if the host has never had it.
    ///
    /// # Errors
    /// [`Error::PatternChanged`] if the pattern differs; [`Error::Device`] if the copy from the GPU
    /// fails.
    pub fn update<'a>(&mut self, csr: impl Into<CsrRef<'a, T>>) -> Result<()> {
        let csr = csr.into();
        self.check_pattern(csr)?;
        self.update_values(csr.values())
    }

    /// Checks that the pattern of `csr` is the prepared one.
    ///
    /// # Errors
    /// As [`PreparedOperator::update`].
    pub(crate) fn check_pattern(&self, csr: CsrRef<'_, T>) -> Result<()> {
        let found = Fingerprint::of(csr.pattern());
        let own = match self.fingerprint {
            Some(own) => own,
            None => Fingerprint::of(self.to_csr()?.pattern()),
        };
        if found != own {
            return Err(Error::PatternChanged { what: format!("fingerprint {found} for {own}") });
        }
        Ok(())
    }

    /// Returns the order of the permuted basis of x and y, `order[new] = old`; `None` in the
    /// original basis.
    ///
    /// A solver permutes its right-hand side into this basis once, and the solution back.
    pub fn permutation(&self) -> Option<&[u32]> {
        match &self.location {
            Location::Host(layout) => layout.order(),
            Location::Gpu(placed) => placed.order(),
        }
    }

    /// Returns where the operator multiplies: on a GPU, or on this host.
    pub fn runs_on(&self) -> Kind {
        match self.location {
            Location::Host(_) => Kind::Host,
            Location::Gpu(_) => Kind::Gpu,
        }
    }

    /// Returns the candidate that was prepared.
    pub fn candidate(&self) -> &Candidate {
        &self.candidate
    }

    /// Returns the largest error of a stored value, as a share of it: 2^-24, 2^-11 or 2^-8
    /// if the caller allowed values in f32, f16 or bf16 ([`StoredValues`](crate::format::StoredValues)) and
    /// the layout holds such, otherwise 0.
    pub fn rounding(&self) -> f64 {
        self.rounding
    }

    /// Compares a product with the references of its rows.
    ///
    /// # Errors
    /// As [`check::compare_rounded`].
    pub(crate) fn check_product(&self, reference: &[RowReference], y: &[T]) -> Result<()> {
        check::compare_rounded(&self.candidate.to_string(), reference, y, self.rounding)
    }

    /// Returns the size of the layout's arrays, in bytes.
    pub fn bytes(&self) -> u64 {
        match &self.location {
            Location::Host(layout) => layout.bytes(),
            Location::Gpu(placed) => placed.bytes(),
        }
    }

    /// Returns the number of rows.
    pub fn nrows(&self) -> usize {
        self.nrows
    }

    /// Returns the number of columns.
    pub fn ncols(&self) -> usize {
        self.ncols
    }

    /// Returns the number of entries.
    pub fn nnz(&self) -> usize {
        self.nnz
    }

    /// Converts the matrix back to CSR.
    ///
    /// # Errors
    /// [`Error::Device`] if the copy from a GPU fails.
    pub fn to_csr(&self) -> Result<Csr<T>> {
        match &self.location {
            Location::Host(layout) => Ok(layout.to_csr()),
            Location::Gpu(placed) => placed.to_csr(),
        }
    }
}

/// Operators can move between threads, with and without a GPU.
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<PreparedOperator<f64>>();
};
