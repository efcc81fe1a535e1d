//! The policy decides what to find out about a matrix next, and when to stop and choose.
//!
//! Finding out takes time that the products have to pay back. A [`Policy`] returns the next
//! [`Step`] for the [knowledge](Knowledge) so far; the caller performs the step, adds the result to
//! the knowledge and asks again, until the step is a [`Decision`]. [`Tuner`](crate::Tuner) performs
//! the steps on matrices; training replays them on records of measurements.
//!
//! ```text
//! rank ----------------------------------------------> analyse -> (time) -> ranked
//! prepare, on the host:
//!   gate over size, row lengths -- keep -> quick pick, also over columns -> keep the baseline
//!                              '-- else -------------> analyse -> (time) -> ranked
//! prepare, on a GPU, with a quick model:
//!   if an analysis pays for the number of products --> analyse -> ranked
//!   else the last stage whose step takes a small share of all products' time:
//!     count features | sample features | nothing ----> quick, from what is known
//! ```
//!
//! Pure: equal knowledge gives equal steps, without clock, disk or GPU.

use super::gate::{SAMPLE_S, row_scan_s};
use super::quick::{analysis_pays, feature_count_s, feature_sample_s};
use super::{Effort, Workload};
use crate::error::Error;
use crate::format::{Basis, Candidate};
use crate::model::{
    ALWAYS_ANALYZE, GateInputs, GateReason, Gates, InputNeeds, QuickModel, Stage, keeps, needs,
    quick_pick,
};

/// Purpose of a choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// To compare candidates: all of them are ranked, for any number of products.
    #[default]
    Rank,
    /// To multiply: the time of finding out about the matrix counts.
    Prepare,
}

impl Mode {
    /// All modes.
    pub const ALL: [Mode; 2] = [Mode::Rank, Mode::Prepare];

    /// Returns the mode's name in lower case.
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

/// Place of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Only on the host.
    Host,
    /// On a GPU that counts features, and also on the host.
    HostAndGpu,
    /// Only on a GPU that counts features: an analysis copies it to the host.
    Gpu,
}

impl Place {
    /// Tells whether the host has the matrix.
    pub fn on_host(self) -> bool {
        self != Place::Gpu
    }
}

/// The next step towards a choice.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Read the row lengths, in [`row_scan_s`] seconds.
    ReadRowLengths,
    /// Sample the columns of a few entries, in [`SAMPLE_S`] seconds.
    SampleColumns,
    /// Read the row lengths and sample the columns of a few entries on the GPU, in
    /// [`feature_sample_s`] seconds.
    SampleFeatures,
    /// Count the features on the GPU, in [`feature_count_s`] seconds.
    CountFeatures,
    /// Analyse the matrix on the host: compute the features and the work of every candidate, and
    /// predict the candidates' times.
    Analyse,
    /// Time these candidates, in this order.
    Time(Vec<Candidate>),
    /// Choose from what is known.
    Choose(Decision),
}

/// The way to choose from what is known.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Keep the baseline, or use the candidate that the reason picks instead:
    /// [`keep_baseline`](super::keep_baseline).
    KeepBaseline(GateReason),
    /// Choose by this stage of the quick model: [`rank_quick`](super::rank_quick).
    Quick(Stage),
    /// Choose from the analysis and all timings: [`Ranking`](super::Ranking).
    Ranked,
}

/// Knowledge about the matrix in addition to its size.
#[derive(Clone, Copy)]
pub struct Knowledge<'a> {
    /// Steps that were performed before an analysis.
    pub found: Found,
    /// Returns the value of a known feature.
    pub feature: &'a dyn Fn(&str) -> Option<f64>,
    /// Results of the analysis, if it was performed.
    pub state: Option<&'a CandidateState>,
}

/// The steps before an analysis that were performed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// True after [`Step::ReadRowLengths`].
    pub row_lengths: bool,
    /// True after [`Step::SampleColumns`].
    pub columns: bool,
    /// True after [`Step::SampleFeatures`].
    pub sample: bool,
    /// True after [`Step::CountFeatures`].
    pub features: bool,
}

impl Found {
    /// Returns the last stage of a quick model that can predict from what was found on a GPU.
    fn stage(self) -> Stage {
        match self {
            Found { features: true, .. } => Stage::Counted,
            Found { sample: true, .. } => Stage::Sampled,
            Found { .. } => Stage::Size,
        }
    }
}

/// Results of an analysis that the policy reads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CandidateState {
    /// Candidates that apply: the choice first, then the others in ascending order of total time.
    /// Read only if the effort times candidates.
    pub candidates: Vec<(Candidate, Thought)>,
    /// Candidates that may apply, which only measuring finds out.
    pub untried: Vec<Candidate>,
    /// Candidates whose times are stored in wisdom.
    pub remembered: Vec<Candidate>,
    /// True after [`Step::Time`].
    pub timed: bool,
}

/// Expected total times of a candidate, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thought {
    /// Time by the model, or by the best source that is known.
    pub predicted_s: f64,
    /// Time by the closed formulas.
    pub estimated_s: f64,
}

/// Decides what to find out about one matrix: [`Policy::next`] returns one step after the other.
#[derive(Clone, Copy, Debug)]
pub struct Policy<'a> {
    workload: &'a Workload,
    place: Place,
    nrows: u64,
    nnz: u64,
    /// Gates, and the time of one product with the baseline in seconds; `None` if every choice
    /// requires an analysis.
    gates: Option<(Gates<'a>, f64)>,
}

impl<'a> Policy<'a> {
    /// Creates the policy for a matrix with these numbers of rows and nonzeros.
    ///
    /// `gates` are the gates of the device's model for this effort and precision, and
    /// `baseline_spmv_s` is the result of [`baseline_product_s`](super::baseline_product_s).
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

    /// Removes the gates: every choice then requires an analysis.
    pub fn analysing(self) -> Self {
        Policy { gates: None, ..self }
    }

    /// Tells whether a quick model decides, unless an analysis pays.
    pub fn is_quick(&self) -> bool {
        self.quick().is_some()
    }

    /// Returns the next step.
    pub fn next(&self, known: &Knowledge<'_>) -> Step {
        if let Some(state) = known.state {
            return self.after(state);
        }
        let Some((gates, baseline_spmv_s)) = self.gates else { return Step::Analyse };
        match self.quick() {
            Some(quick) => self.in_stages(quick, baseline_spmv_s, known),
            None if self.must_count(known) => Step::CountFeatures,
            None => self.by_gate(&gates, baseline_spmv_s, known).unwrap_or_else(|needed| needed),
        }
    }

    /// Tells whether the gate needs features and only a GPU holds the matrix, so that the GPU must
    /// count them.
    fn must_count(&self, known: &Knowledge<'_>) -> bool {
        let gate_asks = self.workload.spmvs < ALWAYS_ANALYZE;
        gate_asks && !self.place.on_host() && !known.found.features
    }

    /// Returns the quick model of a GPU. It does not predict the time of updating values, so a
    /// workload with updates does without it.
    fn quick(&self) -> Option<&'a QuickModel> {
        let quick = self.gates.and_then(|(gates, _)| gates.quick);
        quick.filter(|_| self.place != Place::Host && self.workload.values.updates() == 0)
    }

    /// Returns the step for a matrix on a GPU: an analysis, a step to the last stage that pays, or
    /// the choice of the stage that was reached.
    fn in_stages(&self, quick: &QuickModel, baseline_spmv_s: f64, known: &Knowledge<'_>) -> Step {
        let spmvs = self.workload.spmvs;
        // An analysis does not have to pay for copying the matrix to the host.
        let at_hand = self.place.on_host() || spmvs >= ALWAYS_ANALYZE;
        if at_hand && analysis_pays(self.nnz, baseline_spmv_s, spmvs) {
            return Step::Analyse;
        }
        let reached = known.found.stage();
        let all_s = spmvs as f64 * baseline_spmv_s;
        // While the variation of row lengths is unknown, the upper bound applies.
        let cv = (known.feature)("row_nnz_cv").filter(|_| reached > Stage::Size);
        let steps = [
            (
                Stage::Counted,
                Step::CountFeatures,
                feature_count_s(self.nnz, cv.unwrap_or(f64::MAX)),
            ),
            (Stage::Sampled, Step::SampleFeatures, feature_sample_s(self.nrows)),
        ];
        let pays = |(stage, _, step_s): &(Stage, Step, f64)| {
            *stage > reached && quick.enters(*stage, step_s / all_s)
        };
        if let Some((_, step, _)) = steps.into_iter().find(pays) {
            return step;
        }
        match quick.stage(reached) {
            Some(stage) => Step::Choose(Decision::Quick(stage.stage)),
            None => Step::Choose(Decision::KeepBaseline(GateReason::default())),
        }
    }

    /// Returns the step that the gate before an analysis selects: an analysis, or a choice without
    /// one. The error is the step that must come first.
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

    /// Returns the inputs of the gate and of the quick picks. If the host has no copy of the
    /// matrix, the GPU has already counted, and reading takes no time.
    fn inputs(&self, baseline_spmv_s: f64) -> GateInputs {
        let [row_scan_s, sample_s] = match self.place.on_host() {
            true => [row_scan_s(self.nrows), SAMPLE_S],
            false => [0.0, 0.0],
        };
        GateInputs { spmvs: self.workload.spmvs, baseline_spmv_s, row_scan_s, sample_s }
    }

    /// Returns a feature that a gate needs; the error is the step that finds it. A feature that
    /// only the host can compute is absent if the host has no copy of the matrix.
    fn feature(&self, known: &Knowledge<'_>, name: &str) -> Result<Option<f64>, Step> {
        let Found { row_lengths, columns, features, .. } = known.found;
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

    /// Returns the step after an analysis.
    fn after(&self, state: &CandidateState) -> Step {
        let mut timed = match self.workload.effort {
            _ if state.timed => Vec::new(),
            Effort::Estimate | Effort::Predict => Vec::new(),
            Effort::Measure => {
                let all = state.candidates.iter().map(|(candidate, thought)| (candidate, *thought));
                best_few(all, FEW).into_iter().cloned().collect()
            }
            Effort::Exhaustive => {
                let all = || state.candidates.iter().map(|(candidate, _)| candidate);
                let baselines = all().filter(|candidate| candidate.is_baseline());
                let others = all().filter(|candidate| !candidate.is_baseline());
                baselines.chain(others).chain(&state.untried).cloned().collect()
            }
        };
        timed.retain(|candidate| !state.remembered.contains(candidate));
        match timed.is_empty() {
            true => Step::Choose(Decision::Ranked),
            false => Step::Time(timed),
        }
    }
}

/// Tells whether the baseline may be kept without an analysis. Gates are trained in the original
/// basis, and a caller who requests timing has time for the analysis.
pub fn may_keep(workload: &Workload) -> bool {
    workload.effort == Effort::Predict && workload.basis == Basis::Original
}

/// Numbers of candidates that [`Effort::Measure`] times in addition to the baselines: the best by
/// prediction, and the best by estimate.
pub const FEW: [usize; 2] = [3, 1];

/// Share by which a candidate's time counts as longer for each candidate of its format that is
/// already selected. Predictions distinguish variants better than formats, so the time of a
/// candidate of another format may differ more from its prediction.
const SAME_FORMAT: f64 = 0.06;

/// Returns the candidates to time: all baselines, then the given numbers of candidates that are
/// best by prediction and by estimate.
///
/// Prediction and estimate seldom err together. Among candidates that are about equally good, those
/// of different formats are preferred. Variants of CSR that are not predicted to take less time than
/// CSR are left out. [`Effort::Measure`] times [`FEW`].
pub fn best_few<'a>(
    candidates: impl Iterator<Item = (&'a Candidate, Thought)>,
    [predicted, estimated]: [usize; 2],
) -> Vec<&'a Candidate> {
    let (baselines, mut others): (Vec<_>, Vec<_>) =
        candidates.partition(|(candidate, _)| candidate.is_baseline());
    let csr = baselines.iter().find(|(candidate, _)| candidate.is_csr());
    let csr_s = csr.map_or(f64::INFINITY, |(_, thought)| thought.predicted_s);
    others
        .retain(|(candidate, thought)| !candidate.is_csr_variant() || thought.predicted_s < csr_s);
    let mut few: Vec<&Candidate> = baselines.into_iter().map(|(candidate, _)| candidate).collect();
    for turn in 0..(predicted + estimated).min(others.len()) {
        let counted = |&(candidate, thought): &(&Candidate, Thought)| {
            let format = candidate.format.name;
            let same = few.iter().filter(|other| other.format.name == format).count();
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
