//! The matrix of a decision: on the host, on the GPU that the tuner opened, or on both.

use std::cell::OnceCell;
use std::sync::Arc;

use crate::analysis::Analysis;
use crate::choose::policy::Place;
use crate::csr::{Csr, CsrRef};
use crate::cuda::{DeviceCsr, Gpu};
use crate::device::Kind;
use crate::error::{Error, Result};
use crate::features::Features;
use crate::format::{Candidate, Target};
use crate::measure::Backend;
use crate::operator::PreparedOperator;
use crate::scalar::Scalar;

/// A matrix on the host, on a GPU, or on both.
pub(super) struct Subject<'a, T: Scalar> {
    /// The caller's copy on the host.
    given: Option<CsrRef<'a, T>>,
    /// The copy on the host that was fetched from the GPU because the caller gave none.
    fetched: OnceCell<Csr<T>>,
    on_gpu: Option<(&'a Arc<Gpu>, Arc<DeviceCsr<T>>)>,
    /// True if this is the transpose of the caller's matrix.
    is_transpose: bool,
}

impl<'a, T: Scalar> Subject<'a, T> {
    /// Creates a subject for a matrix on the host.
    pub(super) fn on_host(csr: CsrRef<'a, T>) -> Self {
        Subject { given: Some(csr), fetched: OnceCell::new(), on_gpu: None, is_transpose: false }
    }

    /// Creates a subject for a matrix on a GPU, and also on the host if `given` holds a copy.
    pub(super) fn on_gpu(
        gpu: &'a Arc<Gpu>,
        csr: Arc<DeviceCsr<T>>,
        given: Option<CsrRef<'a, T>>,
    ) -> Self {
        let on_gpu = Some((gpu, csr));
        Subject { given, fetched: OnceCell::new(), on_gpu, is_transpose: false }
    }

    /// Tells whether this is the transpose of the caller's matrix.
    pub(super) fn of_transpose(self, is_transpose: bool) -> Self {
        Subject { is_transpose, ..self }
    }

    /// Returns the origin of this matrix in records, from that of the caller's matrix.
    pub(super) fn source(&self, of_matrix: &str) -> String {
        match self.is_transpose && !of_matrix.is_empty() {
            true => format!("transpose of {of_matrix}"),
            false => of_matrix.to_string(),
        }
    }

    /// Returns the place of the matrix for a decision about a device of this kind. A GPU that is
    /// not opened is simulated: the host computes the same features that the GPU would count.
    pub(super) fn place(&self, kind: Kind) -> Place {
        match (kind, self.given) {
            (Kind::Host, _) => Place::Host,
            (Kind::Gpu, Some(_)) => Place::HostAndGpu,
            (Kind::Gpu, None) => Place::Gpu,
        }
    }

    /// Returns the numbers of rows, columns and nonzeros.
    pub(super) fn size(&self) -> [usize; 3] {
        if let Some((_, csr)) = &self.on_gpu {
            let matrix = csr.matrix();
            return [matrix.nrows, matrix.ncols, matrix.nnz];
        }
        self.given.map_or([0; 3], |csr| [csr.nrows(), csr.ncols(), csr.nnz()])
    }

    /// Returns the matrix on the host: the caller's copy, or one that is copied from the GPU.
    ///
    /// # Errors
    /// [`Error::Device`] if copying fails.
    pub(super) fn csr(&self) -> Result<CsrRef<'_, T>> {
        if let Some(csr) = self.given.or(self.fetched.get().map(Csr::as_ref)) {
            return Ok(csr);
        }
        if let Some((gpu, csr)) = &self.on_gpu {
            let csr = csr.to_csr(gpu)?;
            return Ok(self.fetched.get_or_init(|| csr).as_ref());
        }
        Err(nowhere())
    }

    /// Samples features on the GPU; `None` if the matrix is not on a GPU.
    ///
    /// # Errors
    /// [`Error::Device`] if the GPU fails.
    pub(super) fn sample_features(&self) -> Result<Option<Features>> {
        if let Some((gpu, csr)) = &self.on_gpu {
            return gpu.sample_features(csr).map(Some);
        }
        Ok(None)
    }

    /// Counts the features on the GPU; `None` if the matrix is not on a GPU.
    ///
    /// # Errors
    /// [`Error::Device`] if the GPU fails.
    pub(super) fn count_features(&self) -> Result<Option<Features>> {
        if let Some((gpu, csr)) = &self.on_gpu {
            return gpu.features(csr).map(Some);
        }
        Ok(None)
    }

    /// Tells whether the matrix has few distinct values, found on the GPU; `None` if the matrix is
    /// not on a GPU.
    ///
    /// # Errors
    /// [`Error::Device`] if the GPU fails.
    pub(super) fn has_few_values(&self) -> Result<Option<bool>> {
        if let Some((gpu, csr)) = &self.on_gpu {
            return gpu.has_few_values(csr).map(Some);
        }
        Ok(None)
    }

    /// Tells whether formats that store values in fewer bits can hold them, found on the GPU; `None` if
    /// the matrix is not on a GPU.
    ///
    /// # Errors
    /// [`Error::Device`] if the GPU fails.
    pub(super) fn holds_narrowed(&self, target: &Target<'_>) -> Result<Option<bool>> {
        if let Some((gpu, csr)) = &self.on_gpu {
            return gpu.holds_narrowed(csr, target).map(Some);
        }
        Ok(None)
    }

    /// Converts the matrix on the GPU, without the host; `None` if the matrix is not on a GPU, or
    /// if the format is converted on the host.
    ///
    /// # Errors
    /// As [`PreparedOperator::on_gpu`].
    pub(super) fn convert_on_gpu(
        &self,
        candidate: &Candidate,
        target: &Target<'_>,
    ) -> Result<Option<PreparedOperator<T>>> {
        let Some((gpu, csr)) = &self.on_gpu else { return Ok(None) };
        PreparedOperator::built(gpu, csr, candidate, target)
    }

    /// Converts the matrix for the backend's device: on its GPU if the format supports that,
    /// otherwise on the host.
    ///
    /// # Errors
    /// As [`Backend::prepare`].
    pub(super) fn convert(
        &self,
        backend: &Backend,
        analysis: &Analysis<'_>,
        candidate: &Candidate,
        target: &Target<'_>,
    ) -> Result<PreparedOperator<T>> {
        let csr = self.csr()?;
        if let Some((gpu, there)) = &self.on_gpu {
            return PreparedOperator::on_gpu(gpu, there, csr, analysis, candidate, target);
        }
        backend.prepare(csr, analysis, candidate, target)
    }
}

/// Returns the error for a matrix that is neither on the host nor on a GPU; no constructor creates
/// one.
fn nowhere() -> Error {
    Error::argument("the matrix is neither on the host nor on a GPU")
}
