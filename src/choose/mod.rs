//! The choice: all candidates ranked by their total cost to the caller, with the reasons; and the
//! policy, which decides what to find out about a matrix before the choice.

mod explain;
mod figures;
pub(crate) mod gate;
pub(crate) mod policy;
pub(crate) mod quick;
pub(crate) mod rank;
pub(crate) mod trial;

use serde::Serialize;

pub(crate) use crate::cost::Known;
use crate::cost::Source;
use crate::features::Features;
use crate::fingerprint::Fingerprint;
use crate::format::{Candidate, Params, Refusal};
use crate::model::ModelName;
use crate::protocol::is_one;
use crate::scalar::Precision;
pub use crate::workload::{Effort, Trials, ValuesUse, Verify, Workload};
pub(crate) use figures::nine_in_ten;
pub use figures::{Baseline, Speedup};
use figures::{if_any, in_digits, in_us};
pub(crate) use gate::{baseline_product_s, baseline_spmv_s, keep_baseline};
pub(crate) use policy::Thought;
pub(crate) use quick::{narrow_costs, rank_quick};
pub(crate) use rank::{NEAR_TIE, Ranking, choose};

/// The entry of one candidate in the ranking of a [`Choice`]: times in seconds, written to JSON in
/// microseconds.
///
/// ```
/// use ellect::choose::Workload;
/// use ellect::{Tuner, device, generate};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = generate::by_name("heat", 500, 1)?;
/// let choice = Tuner::without_models(device::find("cpu")?).recommend(&csr, &Workload::default())?;
/// let csr = choice.ranked(&"csr".parse()?).expect("CSR is always ranked");
/// assert_eq!((csr.convert_s, csr.break_even_spmvs), (0.0, Some(0)));
/// assert_eq!(csr.total_s, 1000.0 * csr.spmv_s);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ranked {
    /// The candidate.
    pub candidate: Candidate,
    /// Name of the candidate's format.
    pub format: &'static str,
    /// Parameters of the candidate.
    pub parameters: Params,
    /// Time of one product, in seconds; `spmv_us` in JSON, in microseconds.
    #[serde(rename = "spmv_us", serialize_with = "in_us")]
    pub spmv_s: f64,
    /// Relative error of `spmv_s` that 9 of 10 errors stay under; 0 where it is not known;
    /// `spmv_error` in JSON.
    #[serde(rename = "spmv_error", serialize_with = "in_digits")]
    pub error: f64,
    /// Time of the conversion, in seconds; `convert_us` in JSON, in microseconds.
    #[serde(rename = "convert_us", serialize_with = "in_us")]
    pub convert_s: f64,
    /// Time of the conversion, the updates of values and all products together, in seconds;
    /// `total_us` in JSON, in microseconds.
    #[serde(rename = "total_us", serialize_with = "in_us")]
    pub total_s: f64,
    /// Number of bytes of the layout.
    pub bytes: u64,
    /// Source of the times.
    pub source: Source,
    /// Number of products from which on the candidate is cheaper than CSR: 0 if it always is or
    /// costs the same (as CSR itself does), `None` if it never is.
    pub break_even_spmvs: Option<u64>,
}

/// A candidate that does not apply, with the reason.
///
/// ```
/// use ellect::{Tuner, Workload, device, generate};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = generate::by_name("heat", 500, 1)?;
/// let tuner = Tuner::without_models(device::find("cpu")?);
/// let choice = tuner.recommend(&csr, &Workload { memory_limit: Some(1), ..Workload::default() })?;
/// assert!(choice.refused.iter().any(|refused| refused.reason.to_string().contains("bytes")));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Refused {
    /// The candidate.
    pub candidate: Candidate,
    /// Reason of the refusal, with needed and allowed figures.
    pub reason: Refusal,
}

/// The chosen candidate with the ranking of all candidates and the reasons; serializes to the
/// answer of `recommend --json`.
///
/// ```
/// use ellect::choose::Workload;
/// use ellect::{Tuner, device, generate};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = generate::by_name("elasticity", 2000, 1)?;
/// let choice = Tuner::without_models(device::find("h200")?).recommend(&csr, &Workload::default())?;
///
/// let best = &choice.ranking[0];
/// assert_eq!(best.candidate, choice.candidate);
/// assert!(best.convert_s + 1000.0 * best.spmv_s <= choice.ranking[1].total_s * 1.02);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Choice {
    /// The chosen candidate, which is the first of the ranking; `choice` in JSON.
    #[serde(rename = "choice")]
    pub candidate: Candidate,
    /// The baseline that the choice is compared with.
    pub baseline: Baseline,
    /// Time of a product with the baseline over that with the choice.
    pub speedup: Speedup,
    /// Similarity of the matrix to those that the model was trained on, from 0 to 1; `None` if no
    /// model predicted.
    #[serde(serialize_with = "if_any")]
    pub confidence: Option<f64>,
    /// The model that predicted; `None` if none did.
    pub model: Option<ModelName>,
    /// Every candidate that applies: the chosen one, then the others in ascending order of total
    /// time.
    pub ranking: Vec<Ranked>,
    /// Every candidate that does not apply.
    pub refused: Vec<Refused>,
    /// Features of the matrix, by name.
    pub features: Features,
    /// Name of the device.
    pub device: String,
    /// Precision of the values.
    pub precision: Precision,
    /// Number of products that the choice was made for.
    pub spmvs: u64,
    /// Number of vectors of each product; not in JSON if it is 1.
    #[serde(skip_serializing_if = "is_one")]
    pub vectors: usize,
    /// The choice for products with the transpose; `None`, and not in JSON, if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transposed: Option<TransposedChoice>,
    /// Fingerprint of the pattern; `None` if the matrix was not analysed ([`keep_baseline`],
    /// [`rank_quick`]).
    pub fingerprint: Option<Fingerprint>,
    /// Reasons of the choice, one sentence each.
    pub explanation: Vec<String>,
}

/// The choice for the transpose of a matrix; `null` in JSON if both directions share a layout.
///
/// ```
/// use ellect::choose::{TransposedChoice, Workload};
/// use ellect::{Csr, Tuner};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = Csr::from_triplets(2, 2, [(0, 0, 2.0), (0, 1, 1.0), (1, 1, 3.0)])?;
/// let workload = Workload { transposed: 500, ..Workload::default() };
/// match Tuner::open("cpu")?.recommend(&csr, &workload)?.transposed {
///     Some(TransposedChoice::Own(choice)) => assert_eq!(choice.spmvs, 500),
///     shared => unreachable!("the matrix is not symmetric: {shared:?}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum TransposedChoice {
    /// The matrix is symmetric: its choice is for the products of both directions.
    Shared,
    /// The transpose has a layout of its own.
    Own(Box<Choice>),
}

impl Choice {
    /// Returns the entry of a candidate in the ranking.
    pub fn ranked(&self, candidate: &Candidate) -> Option<&Ranked> {
        self.ranking.iter().find(|ranked| ranked.candidate == *candidate)
    }

    /// Returns the number of products in words, with the vectors of each if there are several.
    pub fn products(&self) -> String {
        explain::products(self.spmvs, self.vectors)
    }

    /// Makes a ranked candidate the chosen one. Returns false and changes nothing if it is not in
    /// the ranking.
    pub(crate) fn choose(&mut self, candidate: &Candidate) -> bool {
        let place = self.ranking.iter().position(|ranked| ranked.candidate == *candidate);
        let Some(place) = place else { return false };
        self.ranking[..=place].rotate_right(1);
        self.candidate = candidate.clone();
        self.rate();
        true
    }

    /// Chooses the next best candidate after the conversion to the first one refused the matrix
    /// with this `reason`.
    ///
    /// That is the next candidate of the ranking; after a candidate that was timed, it is the next
    /// timed one, if any. Returns false and changes nothing if no other candidate is left.
    pub fn refuse(&mut self, reason: &str) -> bool {
        if self.ranking.len() < 2 {
            return false;
        }
        let Ranked { candidate: refused, source, .. } = self.ranking.remove(0);
        let timed = |ranked: &Ranked| ranked.source == Source::Measured;
        if source == Source::Measured
            && let Some(next) = self.ranking.iter().position(timed)
        {
            self.ranking[..=next].rotate_right(1);
        }
        let next = self.ranking[0].candidate.clone();
        self.explanation.push(format!(
            "{refused} was the first choice, but its conversion refused the matrix ({reason}). Use the \
             next best: {next}."
        ));
        self.refused.push(Refused { candidate: refused, reason: Refusal::new(reason) });
        self.candidate = next;
        self.rate();
        true
    }
}
