//! The policy: what to find out about a matrix next, and when to stop and choose.
//!
//! Finding out takes time that the products have to pay back. A [`Policy`] is asked for the next
//! [`Step`] with what is [known](Knowledge) so far; the caller performs the step, adds what it learnt
//! and asks again, until the step is a [`Decision`]. [`Tuner`](crate::Tuner) performs the steps on
//! matrices, training replays them on records of measurements.
//!
//! ```text
//! rank ----------------------------------------------> analyse -> (time) -> ranked
//! prepare, on the host:
//!   gate over size, row lengths -- keep -> quick pick over them and some columns -> keep the baseline
//!                              '-- else -------------> analyse -> (time) -> ranked
//! prepare, on a GPU that counts features:
//!   so many products that an analysis pays ----------> analyse -> ranked
//!   gate over the size -- keep -> quick pick -> keep the baseline
//!                     '-- else -> count features -> quick
//! ```
//!
//! Pure: the same knowledge gives the same step, with no clock, disk or GPU.

use super::gate::{SAMPLE_S, row_scan_s};
use super::quick::{analysis_pays, feature_count_s};
use super::{Effort, Workload};
use crate::error::Error;
use crate::format::{Basis, Candidate};
use crate::model::{
    ALWAYS_ANALYZE, GateInputs, GateReason, Gates, InputNeeds, Rules, keeps, needs, quick_pick,
};

/// What the choice is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// To compare: every candidate is ranked, however few products are to come.
    #[default]
    Rank,
    /// To multiply: the time of finding out counts.
    Prepare,
}

impl Mode {
    /// All modes.
    pub const ALL: [Mode; 2] = [Mode::Rank, Mode::Prepare];

    /// The mode's name in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Rank => "rank",
            Mode::Prepare => "prepare",
        }
    }
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Mode {
    type Err = Error;

    fn from_str(text: &str) -> crate::error::Result<Self> {
        Mode::ALL.into_iter().find(|mode| mode.name() == text).ok_or_else(|| {
            let known = Mode::ALL.map(Mode::name).join(" or ");
            Error::argument(format!("mode is '{text}'; it must be {known}"))
        })
    }
}

/// Where the matrix is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the host alone.
    Host,
    /// On a GPU that counts features, and on the host.
    HostAndGpu,
    /// On a GPU that counts features, alone: an analysis copies it to the host.
    Gpu,
}

impl Place {
    /// Whether the host has the matrix.
    pub fn on_host(self) -> bool {
        self != Place::Gpu
    }
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Read the lengths of rows, in [`row_scan_s`] seconds.
    ReadRowLengths,
    /// Sample the columns of a few entries, in [`SAMPLE_S`] seconds.
    SampleColumns,
    /// Count the features on the GPU, in [`feature_count_s`] seconds.
    CountFeatures,
    /// Find the features and the work of every candidate, and predict their times, on the host.
    Analyse,
    /// Time these candidates, in this order.
    Time(Vec<Candidate>),
    /// Choose.
    Choose(Decision),
}

/// How to choose from what is known.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// The baseline, or what the reason picks instead:
    /// [`keep_baseline`](super::keep_baseline).
    KeepBaseline(GateReason),
    /// From counted features alone: [`rank_quick`](super::rank_quick).
    Quick,
    /// From the analysis, and what was timed: [`Ranking`](super::Ranking).
    Ranked,
}

/// What is known of the matrix, besides its size.
#[derive(Clone, Copy)]
pub struct Knowledge<'a> {
    /// What was found out before an analysis.
    pub found: Found,
    /// The value of a feature that is known.
    pub feature: &'a dyn Fn(&str) -> Option<f64>,
    /// What the analysis told, where there was one.
    pub analysis: Option<&'a Analysis>,
}

/// The steps before an analysis that were performed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// [`Step::ReadRowLengths`].
    pub row_lengths: bool,
    /// [`Step::SampleColumns`].
    pub columns: bool,
    /// [`Step::CountFeatures`].
    pub features: bool,
}

/// What an analysis tells the policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Analysis {
    /// The candidates that apply, the choice first, then by total time. The policy reads them where
    /// the effort times candidates.
    pub candidates: Vec<(Candidate, Thought)>,
    /// Candidates of which only measuring finds out whether they apply.
    pub untried: Vec<Candidate>,
    /// Candidates whose times are remembered.
    pub remembered: Vec<Candidate>,
    /// Whether [`Step::Time`] was performed.
    pub timed: bool,
}

/// The expected seconds of a candidate in all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thought {
    /// By the model, or the best that is known.
    pub predicted_s: f64,
    /// By the closed formulas.
    pub estimated_s: f64,
}

/// Decides what to find out about one matrix; see the module.
#[derive(Clone, Copy, Debug)]
pub struct Policy<'a> {
    workload: &'a Workload,
    place: Place,
    nrows: u64,
    nnz: u64,
    /// Gates, and the seconds of a product with the baseline; `None` where nothing is chosen without
    /// an analysis.
    gates: Option<(Gates<'a>, f64)>,
}

impl<'a> Policy<'a> {
    /// The policy for a matrix with these numbers of rows and nonzeros. `gates` are those of the
    /// device's model for this effort and precision, `baseline_spmv_s` is
    /// [`baseline_spmv_s`](super::baseline_spmv_s).
    pub fn new(
        mode: Mode,
        place: Place,
        workload: &'a Workload,
        [nrows, nnz]: [u64; 2],
        baseline_spmv_s: Option<f64>,
        gates: Option<Gates<'a>>,
    ) -> Self {
        let gates = gates.zip(baseline_spmv_s);
        let gates = gates.filter(|_| mode == Mode::Prepare && may_keep(workload));
        Policy { workload, place, nrows, nnz, gates }
    }

    /// The same policy where nothing is chosen without an analysis.
    pub fn analysing(self) -> Self {
        Policy { gates: None, ..self }
    }

    /// Whether the choice is made from features that the GPU counts, unless an analysis pays.
    pub fn counts_features(&self) -> bool {
        self.counting_gate().is_some()
    }

    /// The next step.
    pub fn next(&self, known: &Knowledge<'_>) -> Step {
        if let Some(analysis) = known.analysis {
            return self.after(analysis);
        }
        let Some((gates, baseline_spmv_s)) = self.gates else { return Step::Analyse };
        let step = match self.counting_gate() {
            Some(counting) => self.on_gpu(&gates, counting, baseline_spmv_s, known),
            None if self.must_count(known) => Ok(Step::CountFeatures),
            None => self.by_gate(&gates, baseline_spmv_s, known),
        };
        step.unwrap_or_else(|needed| needed)
    }

    /// Whether the gate needs the features of a matrix that only a GPU holds.
    fn must_count(&self, known: &Knowledge<'_>) -> bool {
        let gate_asks = self.workload.spmvs < ALWAYS_ANALYZE;
        gate_asks && !self.place.on_host() && !known.found.features
    }

    /// The gate before counting, where the GPU counts. Features do not tell how long an update of
    /// values takes.
    fn counting_gate(&self) -> Option<&'a Rules> {
        let counting = self.gates.and_then(|(gates, _)| gates.counting);
        counting.filter(|_| self.place != Place::Host && self.workload.values.updates() == 0)
    }

    /// An analysis, counting, or neither. The error is the step that has to come before.
    fn on_gpu(
        &self,
        gates: &Gates<'_>,
        counting: &Rules,
        baseline_spmv_s: f64,
        known: &Knowledge<'_>,
    ) -> Result<Step, Step> {
        let spmvs = self.workload.spmvs;
        // The time of copying the matrix to the host is not part of what an analysis has to pay.
        let at_hand = self.place.on_host() || spmvs >= ALWAYS_ANALYZE;
        if at_hand && analysis_pays(self.nnz, baseline_spmv_s, spmvs) {
            return Ok(Step::Analyse);
        }
        if known.found.features {
            return Ok(Step::Choose(Decision::Quick));
        }
        // The row lengths, and how much they differ, are not known yet.
        let row_scan_s = feature_count_s(self.nnz, f64::MAX);
        let inputs = GateInputs { spmvs, baseline_spmv_s, row_scan_s, sample_s: 0.0 };
        let Some(gate) = keeps(counting, &inputs, |name| self.feature(known, name))? else {
            return Ok(Step::CountFeatures);
        };
        let pick = match self.place.on_host() {
            true => self.pick(gates, baseline_spmv_s, known)?,
            false => None,
        };
        Ok(Step::Choose(Decision::KeepBaseline(GateReason { gate, pick })))
    }

    /// An analysis, or none. The error is the step that has to come before.
    fn by_gate(
        &self,
        gates: &Gates<'_>,
        baseline_spmv_s: f64,
        known: &Knowledge<'_>,
    ) -> Result<Step, Step> {
        let inputs = self.inputs(baseline_spmv_s);
        let Some(gate) = keeps(gates.analysis, &inputs, |name| self.feature(known, name))? else {
            return Ok(Step::Analyse);
        };
        let pick = self.pick(gates, baseline_spmv_s, known)?;
        Ok(Step::Choose(Decision::KeepBaseline(GateReason { gate, pick })))
    }

    fn pick(
        &self,
        gates: &Gates<'_>,
        baseline_spmv_s: f64,
        known: &Knowledge<'_>,
    ) -> Result<Option<(String, Vec<String>)>, Step> {
        let inputs = self.inputs(baseline_spmv_s);
        quick_pick(gates.picks, &inputs, |name| self.feature(known, name))
    }

    /// The inputs of the gate and of quick picks: where the host has no copy, the GPU has counted.
    fn inputs(&self, baseline_spmv_s: f64) -> GateInputs {
        let [row_scan_s, sample_s] = match self.place.on_host() {
            true => [row_scan_s(self.nrows), SAMPLE_S],
            false => [0.0, 0.0],
        };
        GateInputs { spmvs: self.workload.spmvs, baseline_spmv_s, row_scan_s, sample_s }
    }

    /// A feature that a gate asks for; the error is the step that finds it. What only the host could
    /// find of a matrix that it does not have is absent.
    fn feature(&self, known: &Knowledge<'_>, name: &str) -> Result<Option<f64>, Step> {
        let Found { row_lengths, columns, features } = known.found;
        let missing = match needs(name) {
            InputNeeds::RowLengths if !row_lengths && !features => Some(Step::ReadRowLengths),
            InputNeeds::Columns if !columns && !features => Some(Step::SampleColumns),
            _ => None,
        };
        match missing {
            Some(step) if self.place.on_host() => Err(step),
            Some(_) => Ok(None),
            None => Ok((known.feature)(name)),
        }
    }

    /// The step after an analysis.
    fn after(&self, analysis: &Analysis) -> Step {
        let mut timed = match self.workload.effort {
            _ if analysis.timed => Vec::new(),
            Effort::Estimate | Effort::Predict => Vec::new(),
            Effort::Measure => {
                let all =
                    analysis.candidates.iter().map(|(candidate, thought)| (candidate, *thought));
                best_few(all, FEW).into_iter().cloned().collect()
            }
            Effort::Exhaustive => {
                let all = || analysis.candidates.iter().map(|(candidate, _)| candidate);
                let baselines = all().filter(|candidate| candidate.is_baseline());
                let others = all().filter(|candidate| !candidate.is_baseline());
                baselines.chain(others).chain(&analysis.untried).cloned().collect()
            }
        };
        timed.retain(|candidate| !analysis.remembered.contains(candidate));
        match timed.is_empty() {
            true => Step::Choose(Decision::Ranked),
            false => Step::Time(timed),
        }
    }
}

/// Whether a baseline may be kept without an analysis: gates are trained in the original basis, and a
/// caller who asks for timing has the time.
pub fn may_keep(workload: &Workload) -> bool {
    workload.effort == Effort::Predict && workload.basis == Basis::Original
}

/// Numbers of candidates that [`Effort::Measure`] times in addition to the baselines: by prediction,
/// and by estimate.
pub const FEW: [usize; 2] = [3, 1];

/// The share of its time that a candidate counts as slower for each one of its format that is timed
/// too: predictions tell variants apart better than formats, so another format may surprise more.
const SAME_FORMAT: f64 = 0.06;

/// The candidates to time: all baselines, then the given numbers of those that are best by prediction
/// and by estimate, as where one of these errs the other seldom does; of several formats where they
/// are about as good. [`Effort::Measure`] times [`FEW`].
pub fn best_few<'a>(
    candidates: impl Iterator<Item = (&'a Candidate, Thought)>,
    [predicted, estimated]: [usize; 2],
) -> Vec<&'a Candidate> {
    let (baselines, mut others): (Vec<_>, Vec<_>) =
        candidates.partition(|(candidate, _)| candidate.is_baseline());
    let mut few: Vec<&Candidate> = baselines.into_iter().map(|(candidate, _)| candidate).collect();
    for turn in 0..(predicted + estimated).min(others.len()) {
        let counted = |&(candidate, thought): &(&Candidate, Thought)| {
            let format = candidate.format.name();
            let same = few.iter().filter(|other| other.format.name() == format).count();
            let seconds = if turn < predicted { thought.predicted_s } else { thought.estimated_s };
            seconds * (1.0 + SAME_FORMAT * same as f64)
        };
        let times: Vec<f64> = others.iter().map(counted).collect();
        let best = (0..others.len()).min_by(|&a, &b| times[a].total_cmp(&times[b]));
        few.extend(best.map(|best| others.remove(best).0));
    }
    few
}

#[cfg(test)]
mod tests;
