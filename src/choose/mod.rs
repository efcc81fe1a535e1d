//! The choice: every candidate ranked by what it costs the caller, and why; and the policy that says
//! what to find out about a matrix before the choice is made.

mod explain;
mod gate;
pub mod policy;
mod quick;
mod rank;

use serde::{Serialize, Serializer};

use crate::cost::Source;
pub use crate::cost::{Known, works};
use crate::device::Device;
use crate::features::Features;
use crate::fingerprint::Fingerprint;
use crate::format::{Candidate, Params, Refusal};
use crate::scalar::Precision;
use crate::structure::Structure;
pub use crate::workload::{Effort, ValuesUse, Verify, Workload};
pub use gate::{SAMPLE_S, baseline_spmv_s, keep_baseline, row_scan_s};
pub use policy::{FEW, Thought, best_few};
pub use quick::{analysis_pays, feature_count_s, rank_quick};
pub use rank::{By, NEAR_TIE, Ranking, order, trusted};

/// One candidate's place in a [`Choice`]: times in seconds, which JSON gives in microseconds.
///
/// ```
/// use ellect::choose::Workload;
/// use ellect::{Tuner, device, generate};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = generate::by_name("heat", 500, 1)?;
/// let choice = Tuner::new(device::find("cpu")?).recommend(&csr, &Workload::default())?;
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
    /// The name of its format.
    pub format: &'static str,
    /// Its parameters.
    pub parameters: Params,
    /// Time of one product, in seconds; `spmv_us` in JSON, in microseconds.
    #[serde(rename = "spmv_us", serialize_with = "in_us")]
    pub spmv_s: f64,
    /// Time of the conversion, in seconds; `convert_us` in JSON, in microseconds.
    #[serde(rename = "convert_us", serialize_with = "in_us")]
    pub convert_s: f64,
    /// Conversion, updates of values and all products together, in seconds; `total_us` in JSON, in
    /// microseconds.
    #[serde(rename = "total_us", serialize_with = "in_us")]
    pub total_s: f64,
    /// Bytes of the layout.
    pub bytes: u64,
    /// Where the times come from.
    pub source: Source,
    /// Products from which on it is cheaper than staying in CSR: 0 where it always is or costs the
    /// same (CSR itself), none where it never is.
    pub break_even_spmvs: Option<u64>,
}

/// Seconds, written in microseconds.
fn in_us<S: Serializer>(seconds: &f64, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_f64(seconds * 1e6)
}

/// A candidate that does not apply, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Refused {
    /// The candidate.
    pub candidate: Candidate,
    /// Needed and allowed figures.
    pub reason: Refusal,
}

/// A ranking of all candidates with the one that is chosen; serializes to the answer of
/// `recommend --json`.
///
/// ```
/// use ellect::choose::Workload;
/// use ellect::{Tuner, device, generate};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = generate::by_name("elasticity", 2000, 1)?;
/// let choice = Tuner::new(device::find("h200")?).recommend(&csr, &Workload::default())?;
///
/// let best = &choice.ranking[0];
/// assert_eq!(best.candidate, choice.candidate);
/// assert!(best.convert_s + 1000.0 * best.spmv_s <= choice.ranking[1].total_s * 1.02);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Choice {
    /// The candidate that is chosen: the first of the ranking. `choice` in JSON.
    #[serde(rename = "choice")]
    pub candidate: Candidate,
    /// Every candidate that applies: the one that is chosen, then the others by their total time.
    pub ranking: Vec<Ranked>,
    /// Every candidate that does not.
    pub refused: Vec<Refused>,
    /// Features of the matrix, by name.
    pub features: Features,
    /// Name of the device.
    pub device: String,
    /// Precision of the values.
    pub precision: Precision,
    /// Products that the choice was made for.
    pub spmvs: u64,
    /// Fingerprint of the pattern; none where the matrix was not analysed ([`keep_baseline`],
    /// [`rank_quick`]).
    pub fingerprint: Option<Fingerprint>,
    /// The reasons, in sentences.
    pub explanation: Vec<String>,
}

impl Choice {
    /// The place of a candidate in the ranking.
    pub fn ranked(&self, candidate: &Candidate) -> Option<&Ranked> {
        self.ranking.iter().find(|ranked| ranked.candidate == *candidate)
    }

    /// Chooses the next best candidate after the conversion to the first one refused the matrix: the
    /// next of the ranking, or after a candidate that was timed the next one that was. False, with
    /// nothing changed, where there is no other.
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
        true
    }
}

/// Ranks every candidate for this device and explains the choice: see [`Ranking::of`].
///
/// Pure: the same arguments give the same answer, with no clock, disk or GPU.
pub fn choose(
    structure: &Structure<'_>,
    device: &Device,
    workload: &Workload,
    known: &[Known],
) -> Choice {
    Ranking::of(structure, device, workload, known).explained()
}
