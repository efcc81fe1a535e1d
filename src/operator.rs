//! The prepared operator: a matrix in the chosen layout, with the checks that layouts leave out.

#[cfg(feature = "cuda")]
use std::sync::Arc;

use crate::check;
use crate::choose::Choice;
use crate::csr::{Csr, CsrRef};
#[cfg(feature = "cuda")]
use crate::cuda::{DeviceCsr, Gpu, GpuOperator};
use crate::error::{Error, Result};
use crate::fingerprint::Fingerprint;
use crate::format::{Candidate, Layout, Target};
use crate::scalar::Scalar;
use crate::structure::Structure;

/// A matrix prepared for repeated products; owns all its buffers.
///
/// ```
/// use ellect::choose::{Workload, target};
/// use ellect::{Csr, PreparedOperator, device};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = Csr::from_triplets(2, 3, [(0, 0, 4.0), (0, 2, 1.0), (1, 1, 5.0)])?;
/// let cpu = device::find("cpu")?;
/// let operator =
///     PreparedOperator::new(&csr, &"ell".parse()?, &target(&cpu, &Workload::default()))?;
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
    /// None where the host has not seen the pattern.
    fingerprint: Option<Fingerprint>,
    candidate: Candidate,
    choice: Option<Box<Choice>>,
    place: Place<T>,
}

/// Where the layout is.
enum Place<T: Scalar> {
    Host(Box<dyn Layout<T>>),
    #[cfg(feature = "cuda")]
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
    /// [`Error::Refused`] where the candidate does not suit the matrix.
    pub fn new<'a>(
        csr: impl Into<CsrRef<'a, T>>,
        candidate: &Candidate,
        target: &Target<'_>,
    ) -> Result<Self> {
        let csr = csr.into();
        let structure = Structure::of(csr).with_partitioning();
        Self::with_structure(csr, &structure, candidate, target)
    }

    /// Like [`PreparedOperator::new`], with what is already known of the pattern.
    ///
    /// # Errors
    /// As there.
    pub fn with_structure<'a>(
        csr: impl Into<CsrRef<'a, T>>,
        structure: &Structure<'_>,
        candidate: &Candidate,
        target: &Target<'_>,
    ) -> Result<Self> {
        candidate.work(structure, target).map_err(|reason| candidate.refused(&reason))?;
        let layout = candidate.convert(csr, structure, target)?;
        Ok(Self::placed(structure, candidate, Place::Host(layout)))
    }

    /// Converts on a GPU where the format can, else on the host, and leaves the layout on the GPU.
    /// `on_gpu` is the same matrix, uploaded.
    ///
    /// # Errors
    /// [`Error::Refused`] where the candidate does not suit the matrix, [`Error::Device`] by the
    /// device.
    #[cfg(feature = "cuda")]
    pub fn on_gpu<'a>(
        gpu: &Arc<Gpu>,
        on_gpu: &Arc<DeviceCsr<T>>,
        csr: impl Into<CsrRef<'a, T>>,
        structure: &Structure<'_>,
        candidate: &Candidate,
        target: &Target<'_>,
    ) -> Result<Self> {
        candidate.work(structure, target).map_err(|reason| candidate.refused(&reason))?;
        let placed = GpuOperator::new(gpu, on_gpu, csr.into(), structure, candidate, target)?;
        Ok(Self::placed(structure, candidate, Place::Gpu(Box::new(placed))))
    }

    /// Converts a matrix that a GPU holds without a look at it by the host; `None` where the host
    /// makes the layout.
    ///
    /// # Errors
    /// As [`PreparedOperator::on_gpu`].
    #[cfg(feature = "cuda")]
    pub fn built(
        gpu: &Arc<Gpu>,
        on_gpu: &Arc<DeviceCsr<T>>,
        candidate: &Candidate,
        target: &Target<'_>,
    ) -> Result<Option<Self>> {
        let Some(placed) = GpuOperator::built(gpu, on_gpu, candidate, target)? else { return Ok(None) };
        let matrix = on_gpu.matrix();
        Ok(Some(PreparedOperator {
            nrows: matrix.nrows,
            ncols: matrix.ncols,
            nnz: matrix.nnz,
            fingerprint: None,
            candidate: candidate.clone(),
            choice: None,
            place: Place::Gpu(Box::new(placed)),
        }))
    }

    fn placed(structure: &Structure<'_>, candidate: &Candidate, place: Place<T>) -> Self {
        let pattern = structure.pattern();
        PreparedOperator {
            nrows: pattern.nrows(),
            ncols: pattern.ncols(),
            nnz: pattern.nnz(),
            fingerprint: Some(structure.fingerprint()),
            candidate: candidate.clone(),
            choice: None,
            place,
        }
    }

    /// The operator on its GPU, for vectors that are there: `None` on a host.
    #[cfg(feature = "cuda")]
    pub fn on_device(&self) -> Option<&GpuOperator<T>> {
        match &self.place {
            Place::Host(_) => None,
            Place::Gpu(placed) => Some(placed),
        }
    }

    /// The same, to put in values that are on the device.
    #[cfg(feature = "cuda")]
    pub fn on_device_mut(&mut self) -> Option<&mut GpuOperator<T>> {
        match &mut self.place {
            Place::Host(_) => None,
            Place::Gpu(placed) => Some(placed),
        }
    }

    /// An operator of the same matrix in another layout, on the host.
    pub(crate) fn relaid(&self, candidate: Candidate, layout: Box<dyn Layout<T>>) -> Self {
        PreparedOperator {
            nrows: self.nrows,
            ncols: self.ncols,
            nnz: self.nnz,
            fingerprint: self.fingerprint,
            candidate,
            choice: None,
            place: Place::Host(layout),
        }
    }

    /// The same operator, remembering why it was chosen.
    pub(crate) fn with_choice(mut self, choice: Choice) -> Self {
        self.choice = Some(Box::new(choice));
        self
    }

    /// The choice that led to this operator; `None` where the candidate was named by the caller.
    pub fn choice(&self) -> Option<&Choice> {
        self.choice.as_deref()
    }

    /// y = alpha A x + beta y. With `beta = 0`, y is written and never read.
    ///
    /// On a GPU this copies the vectors there and back; a solver keeps them there.
    ///
    /// # Errors
    /// [`Error::Shape`] unless `x` has `ncols` and `y` has `nrows` elements; [`Error::Device`] by
    /// a GPU.
    pub fn apply(&self, alpha: T, x: &[T], beta: T, y: &mut [T]) -> Result<()> {
        if x.len() != self.ncols {
            return Err(Error::Shape { what: "x", got: x.len(), needed: self.ncols });
        }
        if y.len() != self.nrows {
            return Err(Error::Shape { what: "y", got: y.len(), needed: self.nrows });
        }
        match &self.place {
            Place::Host(layout) => {
                layout.apply(alpha, x, beta, y);
                Ok(())
            }
            #[cfg(feature = "cuda")]
            Place::Gpu(placed) => placed.apply(alpha, x, beta, y),
        }
    }

    /// Puts in the values of a new matrix with the same pattern, in the order of the CSR arrays.
    ///
    /// # Errors
    /// [`Error::PatternChanged`] unless there are `nnz` values; [`Error::Refused`] by a layout that
    /// was made for values that are alike.
    pub fn update_values(&mut self, values: &[T]) -> Result<()> {
        if values.len() != self.nnz {
            return Err(Error::PatternChanged {
                what: format!("{} values for {} entries", values.len(), self.nnz),
            });
        }
        match &mut self.place {
            Place::Host(layout) => {
                let checked = layout.check_values(values);
                checked.map_err(|reason| self.candidate.refused(&reason))?;
                layout.set_values(values);
                Ok(())
            }
            #[cfg(feature = "cuda")]
            Place::Gpu(placed) => {
                if let Some(reason) = placed.check_values(values)? {
                    return Err(self.candidate.refused(&reason));
                }
                placed.set_values(values)
            }
        }
    }

    /// Puts in the values of `csr` after making sure that its pattern is the prepared one.
    ///
    /// # Errors
    /// [`Error::PatternChanged`] where it is not. One pass over the pattern; where it was prepared from
    /// a GPU alone, also a copy from there, and [`Error::Device`] where that fails.
    pub fn update<'a>(&mut self, csr: impl Into<CsrRef<'a, T>>) -> Result<()> {
        let csr = csr.into();
        let found = Fingerprint::of(csr.pattern());
        let own = match self.fingerprint {
            Some(own) => own,
            None => Fingerprint::of(self.to_csr()?.pattern()),
        };
        if found != own {
            return Err(Error::PatternChanged { what: format!("fingerprint {found} for {own}") });
        }
        self.update_values(csr.values())
    }

    /// The order of the basis that x and y are in, `order[new] = old`: `None` in the original one.
    ///
    /// A solver permutes its right-hand side into the basis once, and the solution back.
    pub fn permutation(&self) -> Option<&[u32]> {
        match &self.place {
            Place::Host(layout) => layout.order(),
            #[cfg(feature = "cuda")]
            Place::Gpu(placed) => placed.order(),
        }
    }

    /// The candidate that was prepared.
    pub fn candidate(&self) -> &Candidate {
        &self.candidate
    }

    /// Bytes of the layout's arrays.
    pub fn bytes(&self) -> u64 {
        match &self.place {
            Place::Host(layout) => layout.bytes(),
            #[cfg(feature = "cuda")]
            Place::Gpu(placed) => placed.operator().bytes(),
        }
    }

    /// Number of rows.
    pub fn nrows(&self) -> usize {
        self.nrows
    }

    /// Number of columns.
    pub fn ncols(&self) -> usize {
        self.ncols
    }

    /// Number of entries.
    pub fn nnz(&self) -> usize {
        self.nnz
    }

    /// The matrix, converted back.
    ///
    /// # Errors
    /// [`Error::Device`] where the copy from a GPU fails.
    pub fn to_csr(&self) -> Result<Csr<T>> {
        match &self.place {
            Place::Host(layout) => Ok(layout.to_csr()),
            #[cfg(feature = "cuda")]
            Place::Gpu(placed) => placed.to_csr(),
        }
    }

    /// Compares one product with the CSR reference of `csr`, on seeded values of x and y.
    ///
    /// # Errors
    /// [`Error::WrongProduct`] with the worst row; [`Error::Shape`] where `csr` is another matrix.
    pub fn verify<'a>(&self, csr: impl Into<CsrRef<'a, T>>, seed: u64) -> Result<()> {
        let csr = csr.into();
        let x: Vec<T> = check::vector(csr.ncols(), seed);
        let y: Vec<T> = check::vector(csr.nrows(), seed ^ 1);
        let (alpha, beta) = (T::from_f64(1.5), T::from_f64(-0.5));
        let (xp, mut yp) = match self.permutation() {
            Some(order) => (permute(&x, order), permute(&y, order)),
            None => (x.clone(), y.clone()),
        };
        self.apply(alpha, &xp, beta, &mut yp)?;
        if let Some(order) = self.permutation() {
            yp = permute_back(&yp, order);
        }
        let reference = check::reference(csr, alpha, &x, beta, &y);
        check::compare(&self.candidate.to_string(), &reference, &yp)
    }
}

/// `result[new] = vector[order[new]]`: into the permuted basis.
///
/// # Panics
/// If the lengths differ.
pub fn permute<T: Copy>(vector: &[T], order: &[u32]) -> Vec<T> {
    assert_eq!(vector.len(), order.len(), "vector and order differ in length");
    order.iter().map(|&old| vector[old as usize]).collect()
}

/// `result[order[new]] = vector[new]`: back to the original basis.
///
/// # Panics
/// If the lengths differ.
pub fn permute_back<T: Copy + Default>(vector: &[T], order: &[u32]) -> Vec<T> {
    assert_eq!(vector.len(), order.len(), "vector and order differ in length");
    let mut result = vec![T::default(); vector.len()];
    for (&value, &old) in vector.iter().zip(order) {
        result[old as usize] = value;
    }
    result
}

/// Operators go from thread to thread, with a GPU as without.
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<PreparedOperator<f64>>();
};
