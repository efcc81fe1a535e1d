//! What the caller means to do with the matrix: the terms that a choice depends on.

use serde::{Deserialize, Serialize};

use crate::device::Device;
use crate::error::{Error, Result};
use crate::scalar::Precision;
use crate::target::{Basis, Target};

/// What the caller means to do with the matrix.
///
/// ```
/// use ellect::choose::{Effort, ValuesUse, Workload};
///
/// let newton = Workload {
///     spmvs: 20_000,
///     values: ValuesUse::Change(40),
///     effort: Effort::Measure,
///     budget_s: Some(5.0),
///     ..Workload::default()
/// };
/// assert_eq!(newton.values.updates(), 40);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Workload {
    /// Precision of the values. [`Tuner`](crate::Tuner) takes it from the matrix instead.
    pub precision: Precision,
    /// Products expected with this pattern, over all its values.
    pub spmvs: u64,
    /// Which basis the vectors may be in.
    pub basis: Basis,
    /// Whether the values change while the pattern stays.
    pub values: ValuesUse,
    /// How much may be spent on the choice.
    pub effort: Effort,
    /// The most bytes that a layout may take; `None` for the device's memory.
    pub memory_limit: Option<u64>,
    /// Whether the prepared operator is compared with CSR before it is handed out.
    pub verify: Verify,
    /// The most seconds that measuring may take, checked between candidates; `None` for no limit.
    pub budget_s: Option<f64>,
}

impl Workload {
    /// What layouts on this device are made for: precision, basis and memory limit of the workload,
    /// the device's memory where it sets no limit.
    pub fn target<'a>(&self, device: &'a Device) -> Target<'a> {
        Target {
            device,
            precision: self.precision,
            basis: self.basis,
            memory_limit: self.memory_limit.unwrap_or(device.memory_bytes),
        }
    }
}

impl Default for Workload {
    /// 1,000 products in f64, in the original basis, with fixed values, chosen by effort
    /// [`Effort::Predict`].
    fn default() -> Self {
        Workload {
            precision: Precision::F64,
            spmvs: 1000,
            basis: Basis::Original,
            values: ValuesUse::Fixed,
            effort: Effort::default(),
            memory_limit: None,
            verify: Verify::No,
            budget_s: None,
        }
    }
}

/// Whether values change while the pattern stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ValuesUse {
    /// They stay as they were prepared.
    #[default]
    Fixed,
    /// They are replaced so many times: each candidate then pays for so many updates.
    Change(u64),
}

impl ValuesUse {
    /// Number of updates.
    pub fn updates(self) -> u64 {
        match self {
            ValuesUse::Fixed => 0,
            ValuesUse::Change(updates) => updates,
        }
    }
}

/// How much may be spent on the choice; each rung has an answer.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    /// Closed formulas only.
    Estimate,
    /// The trained model of the device, or the formulas where none is loaded, and what is remembered of
    /// earlier measurements. Times nothing: where the model was trained on no matrix like this one, it
    /// says so and leans towards the formulas. Where a matrix is prepared for few products, the model
    /// may keep the baseline without an analysis ([`Tuner::decide`](crate::Tuner::decide)).
    #[default]
    Predict,
    /// Time CSR, the best few by the model and the best by the formulas on the device.
    Measure,
    /// Time every candidate that does not refuse.
    Exhaustive,
}

impl Effort {
    /// All rungs, cheapest first.
    pub const ALL: [Effort; 4] =
        [Effort::Estimate, Effort::Predict, Effort::Measure, Effort::Exhaustive];

    /// The rung's name in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Effort::Estimate => "estimate",
            Effort::Predict => "predict",
            Effort::Measure => "measure",
            Effort::Exhaustive => "exhaustive",
        }
    }
}

impl std::fmt::Display for Effort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Effort {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Effort::ALL.into_iter().find(|effort| effort.name() == text).ok_or_else(|| {
            let known = Effort::ALL.map(Effort::name).join(", ");
            Error::argument(format!("effort is '{text}'; it must be one of {known}"))
        })
    }
}

/// Whether a prepared operator is compared with CSR before it is handed out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verify {
    /// It is not.
    #[default]
    No,
    /// One product on seeded vectors is compared with the CSR reference when it is prepared, while
    /// the CSR matrix is at hand: the operator does not keep it.
    OnPrepare,
}
