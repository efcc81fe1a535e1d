//! Tuners: recommendations, features and preparation.

use std::path::PathBuf;

use ellect::analysis::Analysis;
use ellect::choose::{ValuesUse, Verify};
use ellect::features::{FEATURES, Features};
use ellect::{Error, Result, Workload};
use pyo3::prelude::*;
use serde::Serialize;

use crate::arrays::{Matrix, with_csr};
use crate::errors::{exception, run};
use crate::operator::{Operator, Prepared};

/// A tuner of one device.
#[pyclass(frozen, module = "ellect._ellect")]
pub struct Tuner(pub ellect::Tuner);

/// The intended use of a matrix, from keyword arguments.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Use {
    spmvs: u64,
    transposed: u64,
    vectors: usize,
    updates: u64,
    effort: String,
    basis: String,
    values: String,
    memory_limit: Option<u64>,
    budget_s: Option<f64>,
    verify: bool,
}

impl Use {
    pub fn workload(self) -> Result<Workload> {
        Ok(Workload {
            spmvs: self.spmvs,
            transposed: self.transposed,
            vectors: self.vectors,
            basis: self.basis.parse()?,
            stored: self.values.parse()?,
            values: match self.updates {
                0 => ValuesUse::Fixed,
                updates => ValuesUse::Change(updates),
            },
            effort: self.effort.parse()?,
            memory_limit: self.memory_limit,
            verify: if self.verify { Verify::OnPrepare } else { Verify::No },
            budget_s: self.budget_s,
            ..Workload::default()
        })
    }
}

/// Writes an answer as JSON.
pub fn json(answer: &impl Serialize) -> Result<String> {
    let failed = |error| Error::input(format!("cannot write an answer as JSON: {error}"));
    serde_json::to_string(answer).map_err(failed)
}

#[pymethods]
impl Tuner {
    /// Opens a device, with the models and measurements of a data folder.
    #[new]
    fn new(py: Python<'_>, device: &str, data: Option<PathBuf>) -> PyResult<Self> {
        let data = data.unwrap_or_else(ellect::device::data_dir);
        run(py, || ellect::Tuner::open_in(device, &data)).map(Tuner)
    }

    /// Name of the device's profile.
    #[getter]
    fn device(&self) -> &str {
        &self.0.device().name
    }

    /// Sentences about models and databases that could not be used.
    fn warnings(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        run(py, || Ok(self.0.warnings()))
    }

    /// Returns the ranking of all candidates as JSON.
    fn recommend(&self, py: Python<'_>, matrix: &Matrix, workload: Use) -> PyResult<String> {
        let workload = workload.workload().map_err(exception)?;
        run(py, || with_csr!(matrix, |csr| json(&self.0.recommend(csr, &workload)?)))
    }

    /// Returns the cheap features of a matrix as JSON.
    fn features(&self, py: Python<'_>, matrix: &Matrix) -> PyResult<String> {
        run(py, || with_csr!(matrix, |csr| json(&Features::of(&Analysis::of(csr)))))
    }

    /// Chooses a candidate and converts the matrix.
    fn prepare(&self, py: Python<'_>, matrix: &Matrix, workload: Use) -> PyResult<Operator> {
        let workload = workload.workload().map_err(exception)?;
        let prepared = || with_csr!(matrix, |csr| Ok(self.0.prepare(csr, &workload)?.into()));
        run(py, prepared).and_then(|prepared: Prepared| Operator::new(py, prepared))
    }

    /// Chooses for a matrix and its transpose, and converts both. Without a second operator, the
    /// matrix is symmetric and the first one serves both.
    fn prepare_both(
        &self,
        py: Python<'_>,
        matrix: &Matrix,
        workload: Use,
    ) -> PyResult<(Operator, Option<Operator>)> {
        let workload = workload.workload().map_err(exception)?;
        let prepared = || {
            with_csr!(matrix, |csr| {
                let (forward, transposed) = self.0.prepare_both(csr, &workload)?.into_parts();
                Ok((forward.into(), transposed.map(Prepared::from)))
            })
        };
        let (forward, transposed): (Prepared, Option<Prepared>) = run(py, prepared)?;
        let transposed = transposed.map(|transposed| Operator::new(py, transposed)).transpose()?;
        Ok((Operator::new(py, forward)?, transposed))
    }

    /// Like `prepare`, for the addresses of a valid CSR matrix on this tuner's GPU: row pointers,
    /// columns and values. `stream` has queued the work that writes the arrays.
    #[cfg(feature = "cuda")]
    #[expect(clippy::too_many_arguments, reason = "one argument for each array and size")]
    fn prepare_on_gpu(
        &self,
        py: Python<'_>,
        addresses: [u64; 3],
        size: [usize; 3],
        wide: bool,
        precision: &str,
        stream: u64,
        workload: Use,
    ) -> PyResult<Operator> {
        let workload = workload.workload().map_err(exception)?;
        let precision = precision.parse().map_err(exception)?;
        let matrix = crate::gpu::Arrays { addresses, size, wide, precision, stream };
        let prepared = run(py, || crate::gpu::prepare(&self.0, &matrix, &workload))?;
        Operator::new(py, prepared)
    }
}

/// Returns name, unit and meaning of every cheap feature.
#[pyfunction]
pub fn feature_table() -> Vec<(&'static str, &'static str, &'static str)> {
    FEATURES.iter().map(|feature| (feature.name, feature.unit, feature.doc)).collect()
}
