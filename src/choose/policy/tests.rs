use super::*;
use crate::format::{BASELINES, CSR, PCSR};
use crate::model::gate::{READING, SPMVS};
use crate::model::quick::QuickStage;
use crate::model::rules::Rule;
use crate::model::{ANALYZE, KEEP, QuickPick, Rules};

fn answer(word: &str) -> Rules {
    Rules { nodes: vec![Rule::Answer(word.into())] }
}

/// Returns rules with the first answer if the input is below this threshold, else the second.
fn split(feature: &str, below: f64, words: [&str; 2]) -> Rules {
    let first = Rule::Split { feature: feature.into(), below, low: 1, high: 2 };
    let ends = words.map(|word| Rule::Answer(word.into()));
    Rules { nodes: std::iter::once(first).chain(ends).collect() }
}

fn pick(candidate: &str, feature: &str) -> QuickPick {
    QuickPick { candidate: candidate.into(), rules: split(feature, 5.0, [candidate, KEEP]) }
}

fn candidate(name: &str) -> Candidate {
    name.parse().expect("a candidate")
}

/// Numbers of rows and of nonzeros of the test matrices.
const SIZE: [u64; 2] = [1000, 5000];
/// Seconds of one product with the baseline.
const BASELINE_S: f64 = 1e-5;

/// The arguments that a policy is created from.
struct PolicyArguments {
    mode: Mode,
    place: Place,
    workload: Workload,
    analysis: Rules,
    picks: Vec<QuickPick>,
    quick: Option<QuickModel>,
    baseline_s: Option<f64>,
}

/// Returns a matrix on the host for 1,000 products, whose gate keeps the baseline.
fn asked() -> PolicyArguments {
    PolicyArguments {
        mode: Mode::Prepare,
        place: Place::Host,
        workload: Workload::default(),
        analysis: answer(KEEP),
        picks: Vec::new(),
        quick: None,
        baseline_s: Some(BASELINE_S),
    }
}

impl PolicyArguments {
    /// Returns the next step if every known feature is 1.
    fn next(&self, found: Found, analysis: Option<&CandidateState>) -> Step {
        let PolicyArguments { analysis: gate, picks, quick, .. } = self;
        let gates = Gates { analysis: gate, picks, quick: quick.as_ref() };
        let (place, baseline_s) = (self.place, self.baseline_s);
        let policy = Policy::new(self.mode, place, &self.workload, SIZE, baseline_s, Some(gates));
        policy.next(&Knowledge { found, feature: &|_| Some(1.0), state: analysis })
    }

    fn first(&self) -> Step {
        self.next(Found::default(), None)
    }

    fn spmvs(self, spmvs: u64) -> Self {
        PolicyArguments { workload: Workload { spmvs, ..self.workload }, ..self }
    }

    fn effort(self, effort: Effort) -> Self {
        PolicyArguments { workload: Workload { effort, ..self.workload }, ..self }
    }
}

const ROWS: Found = Found { row_lengths: true, ..NOTHING };
const COUNTED: Found = Found { features: true, ..NOTHING };
const NOTHING: Found = Found { row_lengths: false, columns: false, sample: false, features: false };

/// Returns a quick model with these stages and shares.
fn stages(shares: &[(Stage, f64)]) -> Option<QuickModel> {
    let stage = |&(stage, share): &(Stage, f64)| QuickStage {
        stage,
        share,
        margin: 0.1,
        candidates: Vec::new(),
    };
    Some(QuickModel { stages: shares.iter().map(stage).collect() })
}

fn kept(gate: &[&str], pick: Option<(&str, &str)>) -> Step {
    let gate = gate.iter().map(ToString::to_string).collect();
    let pick = pick.map(|(name, met)| (name.to_string(), vec![met.to_string()]));
    Step::Choose(Decision::KeepBaseline(GateReason { gate, pick }))
}

#[test]
fn a_gate_that_keeps_the_baseline_ends_it_at_once() {
    assert_eq!(asked().first(), kept(&[], None));
    assert_eq!(PolicyArguments { analysis: answer(ANALYZE), ..asked() }.first(), Step::Analyse);
    let few = PolicyArguments { analysis: split(SPMVS, 500.0, [KEEP, ANALYZE]), ..asked() };
    assert_eq!(few.spmvs(499).first(), kept(&["spmvs < 500"], None));
    assert_eq!(asked().spmvs(ALWAYS_ANALYZE - 1).first(), kept(&[], None));
    assert_eq!(asked().spmvs(ALWAYS_ANALYZE).first(), Step::Analyse, "whatever the gate says");
}

#[test]
fn nothing_is_chosen_without_an_analysis_where_no_gate_may_say_so() {
    assert_eq!(PolicyArguments { mode: Mode::Rank, ..asked() }.first(), Step::Analyse);
    for effort in [Effort::Estimate, Effort::Measure, Effort::Exhaustive] {
        assert_eq!(asked().effort(effort).first(), Step::Analyse, "{effort}");
    }
    let workload = Workload { basis: Basis::Permuted, ..Workload::default() };
    assert_eq!(PolicyArguments { workload, ..asked() }.first(), Step::Analyse);
    // A baseline may refuse the size.
    assert_eq!(PolicyArguments { baseline_s: None, ..asked() }.first(), Step::Analyse);
    let workload = Workload::default();
    let policy = Policy::new(Mode::Prepare, Place::Host, &workload, SIZE, Some(BASELINE_S), None);
    let known = Knowledge { found: Found::default(), feature: &|_| None, state: None };
    assert_eq!(policy.next(&known), Step::Analyse, "there is no model");
}

#[test]
fn row_lengths_and_columns_are_read_only_where_rules_on_the_way_ask_for_them() {
    let longest = || split("row_nnz_max", 5.0, [KEEP, ANALYZE]);
    let gate = PolicyArguments { analysis: longest(), ..asked() };
    assert_eq!(gate.first(), Step::ReadRowLengths);
    assert_eq!(gate.next(ROWS, None), kept(&["row_nnz_max < 5"], None));
    // The size is known, and so are the shares of time that reading would take.
    for input in ["nnz", READING] {
        let gate = PolicyArguments { analysis: split(input, 5.0, [KEEP, ANALYZE]), ..asked() };
        assert_eq!(gate.first(), kept(&[&format!("{input} < 5")], None));
    }
    // If the gate lets the matrix pass, the picks need no input.
    let picks = || vec![pick(PCSR, "x_sectors_f64"), pick(CSR, "row_nnz_max")];
    let through = PolicyArguments { analysis: answer(ANALYZE), picks: picks(), ..asked() };
    assert_eq!(through.first(), Step::Analyse);
    let picking = PolicyArguments { picks: picks(), ..asked() };
    assert_eq!(picking.first(), Step::SampleColumns);
    let columns = Found { columns: true, ..Found::default() };
    assert_eq!(picking.next(columns, None), kept(&[], Some((PCSR, "x_sectors_f64 < 5"))));
    // The first pick does not match, so the second one needs its input.
    let second = QuickPick { candidate: PCSR.into(), rules: answer(KEEP) };
    let second = PolicyArguments { picks: vec![second, pick(CSR, "row_nnz_max")], ..asked() };
    assert_eq!(second.first(), Step::ReadRowLengths);
    assert_eq!(second.next(ROWS, None), kept(&[], Some((CSR, "row_nnz_max < 5"))));
}

fn quick(stage: Stage) -> Step {
    Step::Choose(Decision::Quick(stage))
}

#[test]
fn a_gpu_enters_the_last_stage_that_takes_a_small_share_of_all_products() {
    let all = || stages(&[(Stage::Size, 0.0), (Stage::Sampled, 0.05), (Stage::Counted, 0.02)]);
    for place in [Place::HostAndGpu, Place::Gpu] {
        let of = |quick, spmvs| PolicyArguments { place, quick, ..asked() }.spmvs(spmvs);
        // A product takes 10 us: sampling takes 5 % of 54 products, counting 2 % of 580.
        let first = |spmvs| of(all(), spmvs).first();
        assert_eq!([1, 49].map(first), [quick(Stage::Size), quick(Stage::Size)]);
        assert_eq!([56, 500].map(first), [Step::SampleFeatures, Step::SampleFeatures]);
        assert_eq!(first(600), Step::CountFeatures, "without a sample");
        let sampled = Found { sample: true, ..NOTHING };
        assert_eq!(of(all(), 100).next(sampled, None), quick(Stage::Sampled));
        assert_eq!(of(all(), 100).next(COUNTED, None), quick(Stage::Counted));
        // The sample shows that row lengths vary, so counting takes longer than at least.
        assert_eq!(of(all(), 500).next(sampled, None), quick(Stage::Sampled));
        assert_eq!(of(all(), 600).next(sampled, None), Step::CountFeatures);
        // Stages that a model does not have are not entered.
        let last = || stages(&[(Stage::Counted, 0.02)]);
        assert_eq!(of(last(), 100).first(), kept(&[], None));
        assert_eq!(of(last(), 1000).first(), Step::CountFeatures);
        // Updates are not predicted, so the gate before an analysis decides instead.
        let workload = Workload { values: super::super::ValuesUse::Change(1), ..asked().workload };
        let updated = PolicyArguments { workload, ..of(all(), 1000) };
        let first = if place == Place::Gpu { Step::CountFeatures } else { kept(&[], None) };
        assert_eq!(updated.first(), first, "{place:?}");
        assert_eq!(updated.next(COUNTED, None), kept(&[], None), "{place:?}");
    }
    // The host has no stages.
    let host = PolicyArguments { quick: all(), ..asked() };
    assert_eq!(host.first(), kept(&[], None));
}

#[test]
fn a_matrix_on_a_gpu_is_analysed_where_that_pays_in_addition() {
    let on = |place, spmvs| {
        let quick = stages(&[(Stage::Counted, 0.02)]);
        PolicyArguments { place, quick, ..asked() }.spmvs(spmvs).first()
    };
    // From about 15,000 products on, 3 % of their time exceeds the time of an analysis.
    assert_eq!(on(Place::HostAndGpu, 10_000), Step::CountFeatures);
    assert_eq!(on(Place::HostAndGpu, 20_000), Step::Analyse);
    // The matrix is copied to the host only for more products than that.
    assert_eq!(on(Place::Gpu, 20_000), Step::CountFeatures);
    assert_eq!(on(Place::Gpu, ALWAYS_ANALYZE), Step::Analyse);
}

#[test]
fn without_a_quick_model_a_gpu_counts_for_the_gate_of_an_analysis() {
    let gate = || split("row_nnz_max", 5.0, [KEEP, ANALYZE]);
    let gpu = PolicyArguments { place: Place::Gpu, analysis: gate(), ..asked() };
    assert_eq!(gpu.first(), Step::CountFeatures);
    assert_eq!(gpu.next(COUNTED, None), kept(&["row_nnz_max < 5"], None));
    let through = PolicyArguments { place: Place::Gpu, analysis: answer(ANALYZE), ..asked() };
    assert_eq!(through.next(COUNTED, None), Step::Analyse);
    // Counting would not change the decision.
    let many = PolicyArguments { place: Place::Gpu, ..asked() }.spmvs(ALWAYS_ANALYZE);
    assert_eq!(many.first(), Step::Analyse);
    let both = PolicyArguments { place: Place::HostAndGpu, analysis: gate(), ..asked() };
    assert_eq!(both.first(), Step::ReadRowLengths, "the host has it");
}

/// A variant of CSR.
const VECTOR: &str = "csr:kernel=vector";

#[test]
fn what_is_timed_after_an_analysis_depends_on_the_effort() {
    let names = ["hdia:hack=32", CSR, "ell", "jad", "coo", "pjds:br=32", BASELINES[0], VECTOR];
    let names = names.map(candidate);
    let thought = |(i, candidate): (usize, &Candidate)| {
        let (predicted_s, estimated_s) = (1.0 + i as f64, 10.0 - i as f64);
        (candidate.clone(), Thought { predicted_s, estimated_s })
    };
    let untried = vec![candidate("ehyb:part=metis,share=2")];
    let analysis = CandidateState {
        candidates: names.iter().enumerate().map(thought).collect(),
        untried,
        ..CandidateState::default()
    };
    let step = |effort: Effort, analysis: &CandidateState| {
        asked().effort(effort).next(Found::default(), Some(analysis))
    };
    let timed = |effort: Effort, analysis: &CandidateState| match step(effort, analysis) {
        Step::Time(candidates) => candidates.iter().map(ToString::to_string).collect::<Vec<_>>(),
        other => panic!("{effort}: {other:?}"),
    };
    for effort in [Effort::Estimate, Effort::Predict] {
        assert_eq!(step(effort, &analysis), Step::Choose(Decision::Ranked), "{effort}");
    }
    // The baselines in the order of the ranking, the best three predicted, the best estimated. The
    // variant of CSR has a better estimate, but it is not predicted to take less time than CSR.
    let few = [CSR, BASELINES[0], "hdia:hack=32", "ell", "jad", "pjds:br=32"];
    assert_eq!(timed(Effort::Measure, &analysis), few);
    let all = timed(Effort::Exhaustive, &analysis);
    let last = ["coo", "pjds:br=32", VECTOR, "ehyb:part=metis,share=2"];
    assert_eq!(
        (all.len(), &all[..2], &all[5..]),
        (9, &few.map(String::from)[..2], &last.map(String::from)[..])
    );
    let mut faster = analysis.clone();
    faster.candidates[7].1.predicted_s = 1.5;
    assert_eq!(timed(Effort::Measure, &faster)[3], VECTOR);
    // Candidates with stored times are not timed again, and timed ones are chosen from.
    let remembered = names.to_vec();
    let known = CandidateState { remembered, ..analysis.clone() };
    assert_eq!(timed(Effort::Exhaustive, &known), ["ehyb:part=metis,share=2"]);
    assert_eq!(step(Effort::Measure, &known), Step::Choose(Decision::Ranked));
    let done = CandidateState { timed: true, ..analysis };
    assert_eq!(step(Effort::Exhaustive, &done), Step::Choose(Decision::Ranked));
}

#[test]
fn a_mode_is_read_as_it_is_written() {
    for mode in Mode::ALL {
        assert_eq!(mode.to_string().parse::<Mode>().ok(), Some(mode));
    }
    let error = "plan".parse::<Mode>().expect_err("there is none").to_string();
    assert!(error.contains("must be rank or prepare"), "{error}");
}
