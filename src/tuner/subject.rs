//! The matrix that is decided about: on the host, on the GPU that the tuner opened, or on both.

use std::cell::OnceCell;
#[cfg(feature = "cuda")]
use std::sync::Arc;

use crate::choose::policy::Place;
use crate::csr::{Csr, CsrRef};
#[cfg(feature = "cuda")]
use crate::cuda::{DeviceCsr, Gpu};
use crate::device::Kind;
use crate::error::{Error, Result};
use crate::features::Features;
use crate::format::{Candidate, Target};
use crate::measure::Meter;
use crate::operator::PreparedOperator;
use crate::scalar::Scalar;
use crate::structure::Structure;

/// A matrix, wherever it is.
pub(super) struct Subject<'a, T: Scalar> {
    /// The caller's copy on the host.
    given: Option<CsrRef<'a, T>>,
    /// A copy that was made because only the GPU had one.
    fetched: OnceCell<Csr<T>>,
    #[cfg(feature = "cuda")]
    on_gpu: Option<(&'a Arc<Gpu>, Arc<DeviceCsr<T>>)>,
}

impl<'a, T: Scalar> Subject<'a, T> {
    /// A matrix on the host.
    pub(super) fn on_host(csr: CsrRef<'a, T>) -> Self {
        Subject {
            given: Some(csr),
            fetched: OnceCell::new(),
            #[cfg(feature = "cuda")]
            on_gpu: None,
        }
    }

    /// A matrix on a GPU, and on the host too where that copy is given.
    #[cfg(feature = "cuda")]
    pub(super) fn on_gpu(
        gpu: &'a Arc<Gpu>,
        csr: Arc<DeviceCsr<T>>,
        given: Option<CsrRef<'a, T>>,
    ) -> Self {
        Subject { given, fetched: OnceCell::new(), on_gpu: Some((gpu, csr)) }
    }

    /// Where it is for a decision about a device of this kind. A GPU that is not opened is simulated:
    /// the host finds the features that it would count, which are the same.
    pub(super) fn place(&self, kind: Kind) -> Place {
        match (kind, self.given) {
            (Kind::Host, _) => Place::Host,
            (Kind::Gpu, Some(_)) => Place::HostAndGpu,
            (Kind::Gpu, None) => Place::Gpu,
        }
    }

    /// Its numbers of rows, columns and nonzeros.
    pub(super) fn size(&self) -> [usize; 3] {
        #[cfg(feature = "cuda")]
        if let Some((_, csr)) = &self.on_gpu {
            let matrix = csr.matrix();
            return [matrix.nrows, matrix.ncols, matrix.nnz];
        }
        self.given.map_or([0; 3], |csr| [csr.nrows(), csr.ncols(), csr.nnz()])
    }

    /// The matrix on the host: the caller's copy, or one that is made from the GPU's.
    ///
    /// # Errors
    /// [`Error::Device`] where copying fails.
    pub(super) fn csr(&self) -> Result<CsrRef<'_, T>> {
        if let Some(csr) = self.given.or(self.fetched.get().map(Csr::as_ref)) {
            return Ok(csr);
        }
        #[cfg(feature = "cuda")]
        if let Some((gpu, csr)) = &self.on_gpu {
            let csr = csr.to_csr(gpu)?;
            return Ok(self.fetched.get_or_init(|| csr).as_ref());
        }
        Err(nowhere())
    }

    /// Its features, counted on the GPU; `None` where it is not on one.
    ///
    /// # Errors
    /// [`Error::Device`] by the GPU.
    pub(super) fn count_features(&self) -> Result<Option<Features>> {
        #[cfg(feature = "cuda")]
        if let Some((gpu, csr)) = &self.on_gpu {
            return gpu.features(csr).map(Some);
        }
        Ok(None)
    }

    /// Whether few of its values are distinct, found on the GPU; `None` where it is not on one.
    ///
    /// # Errors
    /// [`Error::Device`] by the GPU.
    pub(super) fn has_few_values(&self) -> Result<Option<bool>> {
        #[cfg(feature = "cuda")]
        if let Some((gpu, csr)) = &self.on_gpu {
            return gpu.has_few_values(csr).map(Some);
        }
        Ok(None)
    }

    /// Converts it on the GPU, without the host; `None` where it is not on a GPU, or where the host
    /// makes the layout.
    ///
    /// # Errors
    /// As [`PreparedOperator::on_gpu`].
    #[cfg(feature = "cuda")]
    pub(super) fn convert_on_gpu(
        &self,
        candidate: &Candidate,
        target: &Target<'_>,
    ) -> Result<Option<PreparedOperator<T>>> {
        let Some((gpu, csr)) = &self.on_gpu else { return Ok(None) };
        PreparedOperator::built(gpu, csr, candidate, target)
    }

    /// As with the feature `cuda` for a matrix that is on no GPU.
    ///
    /// # Errors
    /// None.
    #[cfg(not(feature = "cuda"))]
    pub(super) fn convert_on_gpu(
        &self,
        _candidate: &Candidate,
        _target: &Target<'_>,
    ) -> Result<Option<PreparedOperator<T>>> {
        Ok(None)
    }

    /// Converts it for the meter's device: on its GPU where the format can, else on the host.
    ///
    /// # Errors
    /// As [`Meter::prepare`].
    pub(super) fn convert(
        &self,
        meter: &Meter,
        structure: &Structure<'_>,
        candidate: &Candidate,
        target: &Target<'_>,
    ) -> Result<PreparedOperator<T>> {
        let csr = self.csr()?;
        #[cfg(feature = "cuda")]
        if let Some((gpu, there)) = &self.on_gpu {
            return PreparedOperator::on_gpu(gpu, there, csr, structure, candidate, target);
        }
        meter.prepare(csr, structure, candidate, target)
    }
}

/// The error of a matrix that is nowhere, which nothing makes.
fn nowhere() -> Error {
    Error::argument("the matrix is neither on the host nor on a GPU")
}
