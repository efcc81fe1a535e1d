//! The workload: what the caller will do with the matrix.

use serde::{Deserialize, Serialize};

use crate::device::Device;
use crate::error::{Error, Result};
use crate::protocol::{check_vectors, deserialize_vectors, is_one, is_zero, one};
use crate::scalar::Precision;
use crate::target::{Basis, StoredValues, Target};

/// The intended use of a matrix, on which the choice of a format depends.
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
    /// Expected number of products with this pattern, over all its values; each multiplies
    /// `vectors` vectors.
    pub spmvs: u64,
    /// Expected number of products with the transposed matrix, which
    /// [`Tuner::prepare_both`](crate::Tuner::prepare_both) also prepares and
    /// [`Tuner::recommend`](crate::Tuner::recommend) also chooses for; an operator of one direction
    /// ignores it.
    #[serde(skip_serializing_if = "is_zero")]
    pub transposed: u64,
    /// Number of vectors of one product, at least 1. From 2 on, trained models and the timings of
    /// single vectors do not apply.
    #[serde(
        default = "one",
        skip_serializing_if = "is_one",
        deserialize_with = "deserialize_vectors"
    )]
    pub vectors: usize,
    /// The basis of the vectors.
    pub basis: Basis,
    /// Changes of the values while the pattern stays.
    pub values: ValuesUse,
    /// Storage of the values: exact, or rounded to f32 where that makes products faster.
    #[serde(skip_serializing_if = "StoredValues::is_exact")]
    pub stored: StoredValues,
    /// Effort of the choice.
    pub effort: Effort,
    /// Maximum number of bytes of the layout; `None` for the device's memory.
    pub memory_limit: Option<u64>,
    /// Verification of the prepared operator against CSR.
    pub verify: Verify,
    /// Short timings on a host before an operator is handed out.
    pub trials: Trials,
    /// Maximum time for measuring in seconds, checked between candidates; `None` for no limit.
    pub budget_s: Option<f64>,
}

impl Workload {
    /// Checks the number of vectors, and that values of a matrix of this precision can be stored as the
    /// workload asks.
    ///
    /// # Errors
    /// [`Error::Argument`] for no vector, for more than 1,024, and for f16 or bf16 with f64.
    pub fn check(&self, precision: Precision) -> Result<()> {
        self.stored.check(precision)?;
        check_vectors(self.vectors)
    }

    /// Returns the target of layouts of this precision on this device, with the basis, the storage
    /// of values and the memory limit of the workload; without one, the device's memory is the limit.
    pub fn target<'a>(&self, device: &'a Device, precision: Precision) -> Target<'a> {
        Target {
            device,
            precision,
            basis: self.basis,
            memory_limit: self.memory_limit.unwrap_or(device.memory_bytes),
            stored: self.stored,
        }
    }
}

impl Default for Workload {
    /// 1,000 products of one vector in the original basis, none with the transpose, with fixed values
    /// that are stored exactly, and effort [`Effort::Predict`].
    fn default() -> Self {
        Workload {
            spmvs: 1000,
            transposed: 0,
            vectors: 1,
            basis: Basis::Original,
            values: ValuesUse::Fixed,
            stored: StoredValues::Exact,
            effort: Effort::default(),
            memory_limit: None,
            verify: Verify::No,
            trials: Trials::default(),
            budget_s: None,
        }
    }
}

/// Changes of the values while the pattern stays.
///
/// ```
/// use ellect::choose::ValuesUse;
///
/// assert_eq!(ValuesUse::Change(40).updates(), 40);
/// assert_eq!(ValuesUse::default().updates(), 0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ValuesUse {
    /// The values never change.
    #[default]
    Fixed,
    /// The values are replaced this many times; the cost of each candidate includes the updates.
    Change(u64),
}

impl ValuesUse {
    /// Returns the number of updates.
    pub fn updates(self) -> u64 {
        match self {
            ValuesUse::Fixed => 0,
            ValuesUse::Change(updates) => updates,
        }
    }
}

/// Effort of the choice; every level gives an answer.
///
/// ```
/// use ellect::choose::Effort;
///
/// # fn main() -> ellect::Result<()> {
/// assert!(Effort::Predict < Effort::Measure);
/// assert_eq!("exhaustive".parse::<Effort>()?, Effort::Exhaustive);
/// # Ok(())
/// # }
/// ```
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    /// Closed formulas only.
    Estimate,
    /// Use the device's trained model, or the formulas if none is loaded, and stored measurements.
    /// Times nothing. If the model was not trained on similar matrices, the answer says so and
    /// gives the formulas more weight. If a matrix is prepared for few products, the model may keep
    /// CSR without analysing the matrix ([`Tuner::decide`](crate::Tuner::decide)).
    #[default]
    Predict,
    /// Time CSR, the best candidates by the model, and the best one by the formulas on the device.
    Measure,
    /// Time every candidate that applies.
    Exhaustive,
}

impl Effort {
    /// All levels, cheapest first.
    pub const ALL: [Effort; 4] =
        [Effort::Estimate, Effort::Predict, Effort::Measure, Effort::Exhaustive];

    /// Returns the level's name in lower case.
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

/// Verification of a prepared operator against CSR.
///
/// ```
/// use ellect::choose::{Verify, Workload};
/// use ellect::{Tuner, generate};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = generate::by_name("heat", 500, 1)?;
/// let workload = Workload { verify: Verify::OnPrepare, ..Workload::default() };
/// Tuner::open("cpu")?.prepare(&csr, &workload)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verify {
    /// No verification.
    #[default]
    No,
    /// Compare one product on seeded vectors with the CSR reference during preparation, while the
    /// CSR matrix is available; the operator does not keep it.
    OnPrepare,
}

/// Short timings of a few candidates next to CSR while an operator for a host is prepared.
///
/// ```
/// use ellect::choose::{Trials, Workload};
/// use ellect::{Tuner, generate};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = generate::by_name("heat", 500, 1)?;
/// let workload = Workload { trials: Trials::Never, ..Workload::default() };
/// let operator = Tuner::open("cpu")?.prepare(&csr, &workload)?;
/// assert_eq!(operator.candidate().to_string(), "csr");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Trials {
    /// With [`Effort::Predict`], the two or three most promising candidates are converted and timed
    /// next to CSR, if the products to come are worth it: for at most 2 % of their expected time, or
    /// 20 ms if that is at most 4 %.
    #[default]
    WhenTheyPay,
    /// Nothing is timed that the effort does not ask for.
    Never,
}
