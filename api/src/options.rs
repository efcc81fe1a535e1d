//! What a caller says of the matrix's use: the same words on the command line and in a query.

use std::path::Path;

use clap::Args;
use ellect::choose::{Choice, Effort, ValuesUse, Workload};
use ellect::format::Basis;
use ellect::measure::Meter;
use ellect::tuner::Progress;
use ellect::{Csr, Precision, Result, Scalar, Tuner};
use serde::Deserialize;

/// Options of a recommendation.
#[derive(Clone, Debug, Args, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Device that will multiply; `ellect devices` lists them, cuda:0 is this machine's first GPU
    #[arg(long, default_value = "cpu", value_name = "NAME")]
    pub device: String,
    /// Precision of the values: f64 or f32
    #[arg(long, default_value_t = Precision::F64)]
    pub precision: Precision,
    /// Products expected with this pattern
    #[arg(long, default_value_t = 1000, value_name = "N")]
    pub spmvs: u64,
    /// Times that the values are replaced while the pattern stays
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub updates: u64,
    /// Basis of x and y: original, or permuted for Krylov solvers
    #[arg(long, default_value_t = Basis::Original)]
    pub basis: Basis,
    /// What may be spent on the choice: estimate, predict, measure or exhaustive
    #[arg(long, default_value_t = Effort::Estimate)]
    pub effort: Effort,
    /// The most bytes that a layout may take
    #[arg(long, value_name = "BYTES")]
    pub memory_limit: Option<u64>,
    /// The most seconds that measuring may take
    #[arg(long, value_name = "SECONDS")]
    pub budget: Option<f64>,
    /// Candidates to list; 0 for all
    #[arg(long, default_value_t = 0, value_name = "K")]
    pub top: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            device: "cpu".into(),
            precision: Precision::F64,
            spmvs: 1000,
            updates: 0,
            basis: Basis::Original,
            effort: Effort::Estimate,
            memory_limit: None,
            budget: None,
            top: 0,
        }
    }
}

impl Options {
    /// The device of that name, its profile from `data` if there is one.
    ///
    /// # Errors
    /// Where there is no such device.
    pub fn meter(&self, data: &Path) -> Result<Meter> {
        Meter::open(&self.device, data)
    }

    /// The workload that the options describe.
    pub fn workload(&self) -> Workload {
        Workload {
            precision: self.precision,
            spmvs: self.spmvs,
            basis: self.basis,
            values: match self.updates {
                0 => ValuesUse::Fixed,
                updates => ValuesUse::Change(updates),
            },
            effort: self.effort,
            memory_limit: self.memory_limit,
            budget_s: self.budget,
            ..Workload::default()
        }
    }

    /// The choice for a matrix, with as many candidates listed as were asked for.
    ///
    /// # Errors
    /// As [`Tuner::recommend`].
    pub fn recommend<T: Scalar>(
        &self,
        csr: &Csr<T>,
        meter: Meter,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Choice> {
        let tuner = Tuner::with_meter(meter);
        let mut choice = tuner.recommend_with(csr, &self.workload(), progress)?;
        if self.top > 0 {
            choice.ranking.truncate(self.top);
        }
        Ok(choice)
    }
}
