//! The whole way from timings on this host to a model that predicts, on small matrices.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use ellect::analysis::Analysis;
use ellect::choose::{Effort, Trials, Workload};
use ellect::cost::Source;
use ellect::device::Device;
use ellect::format::{CSR, PCSR, candidates};
use ellect::measure::{Backend, Protocol};
use ellect::model::{LoadFault, Model, Predictor};
use ellect::unstable::choose::{Decision, Found, Knowledge, Mode, Place, Policy, Step};
use ellect::unstable::model::{ALWAYS_ANALYZE, GateReason, QuickPick, Rule, Rules, file_name};
use ellect::{Precision, Tuner, generate};
use ellect_training::corpus::Families;
use ellect_training::crossval::{Predicted, cross_validate};
use ellect_training::evaluate::Unseen;
use ellect_training::plan::PLANS;
use ellect_training::profile::Fitted;
use ellect_training::rules::Row;
use ellect_training::{Case, Records, Settings, Trained, card, evaluate, train};
use tempfile::TempDir;

const SOURCES: [&str; 5] = ["stencil5", "stencil7", "uniform", "banded", "rmat"];

fn cpu() -> Device {
    Device::shipped().into_iter().find(|d| d.name == "cpu").expect("shipped")
}

/// Returns records of small matrices, read from lines as the command line writes them.
fn records() -> Records {
    let backend = Backend::of(cpu());
    let protocol =
        Protocol { min_sample_s: 1e-5, max_samples: 5, max_copies: 1, ..Protocol::default() };
    let target = Workload::default().target(backend.device(), Precision::F64);
    let mut lines = String::new();
    for source in SOURCES {
        let csr = generate::by_name(source, 300, 1).expect("a class");
        let analysis = Analysis::of(&csr);
        for candidate in candidates(backend.device().kind) {
            let name = candidate.format.name;
            if !["csr", "hll", "ell"].contains(&name) {
                continue;
            }
            let measured = backend.measure(&csr, &analysis, &candidate, &target, &protocol, None);
            let mut line = serde_json::to_value(measured.expect("a host")).expect("plain data");
            line["matrix"] = format!("{source}:300").into();
            lines += &(line.to_string() + "\n");
        }
    }
    // An impossible time is reported with its line, and nothing of the line is learned.
    let timed = lines.lines().find(|line| line.contains("\"spmv\"")).expect("csr was timed");
    let mut wrong: serde_json::Value = serde_json::from_str(timed).expect("own line");
    wrong["spmv"]["raw_s"][0] = (-1.0).into();
    let error = Records::default().read(&wrong.to_string()).expect_err("a negative time");
    assert!(format!("{error:#}").contains("line 1: spmv"), "{error:#}");
    let mut records = Records::default();
    records.read(&lines).expect("own lines");
    let mut skipped = Vec::new();
    let matrix = |source: &str, _| Ok(source.parse::<generate::Spec>()?.make());
    let families = Families::default();
    records.complete(&cpu(), &families, &matrix, &mut |what| skipped.push(what));
    assert_eq!(skipped, Vec::<String>::new());

    // Once complete, records alone yield the same cases.
    let mut again = Records::default();
    again.read(&String::from_utf8(records.lines("cpu")).expect("text")).expect("own lines");
    assert_eq!(again.cases(&cpu()), records.cases(&cpu()));
    records
}

/// Data shared by the tests: records of this host, their cases, and the model trained on them.
struct Made {
    records: Records,
    cases: Vec<Case>,
    trained: Trained,
    /// The model without the rules that decide when not to analyse a matrix.
    model: Model,
}

fn settings() -> Settings {
    Settings { folds: 3, ..Settings::default() }
}

/// Measures and trains once for all tests.
fn made() -> &'static Made {
    static MADE: OnceLock<Made> = OnceLock::new();
    MADE.get_or_init(|| {
        let records = records();
        let cases = records.cases(&cpu());
        assert_eq!(cases.len(), SOURCES.len());
        let trained = train(&cases, &settings()).expect("five families");
        let model = Model { gate: Rules::default(), ..trained.model.clone() };
        Made { records, cases, trained, model }
    })
}

/// Returns a data folder that holds this model of the host.
fn with_model(model: &Model) -> TempDir {
    let data = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(data.path().join("models")).expect("writable");
    let path = data.path().join("models").join(file_name("cpu", Precision::F64));
    std::fs::write(path, model.bytes().expect("memory")).expect("writable");
    data
}

fn answer(word: &str) -> Rule {
    Rule::Answer(word.into())
}

#[test]
fn training_again_makes_the_same_model() {
    let Made { cases, trained, model, .. } = made();
    let again = train(cases, &settings()).expect("the same").model;
    assert!(!trained.model.gate.nodes.is_empty());
    assert!(model.quick_picks.is_empty(), "a host's baseline is csr");
    // linfa settles ties of a split by chance.
    assert_eq!(Model { rules: model.rules.clone(), gate: Rules::default(), ..again }, *model);
}

#[test]
fn a_model_loads_whole_or_not_at_all() {
    let model = &made().model;
    let text = serde_json::to_vec(model).expect("plain data");
    assert_eq!(Model::parse(&text, "cpu", Precision::F64).expect("own text"), *model);
    let packed = model.bytes().expect("memory");
    assert_eq!(Model::parse(&packed, "cpu", Precision::F64), Ok(model.clone()));
    let fault = |text: &[u8], precision| Model::parse(text, "cpu", precision).expect_err("wrong");
    assert!(matches!(fault(&text, Precision::F32), LoadFault::Target { .. }));
    assert!(matches!(fault(&text[..90], Precision::F64), LoadFault::Text(_)));
    let other = Model { schema: 99, ..model.clone() };
    let other = serde_json::to_vec(&other).expect("plain data");
    assert_eq!(fault(&other, Precision::F64), LoadFault::Schema { got: 99 });
    let other = Model { features: vec!["nosuch".into()], ..model.clone() };
    let other = serde_json::to_vec(&other).expect("plain data");
    assert!(matches!(fault(&other, Precision::F64), LoadFault::Name { .. }));
    let mut other = serde_json::to_value(model).expect("plain data");
    let roots = &mut other["formats"]["csr"]["forest"]["roots"];
    roots.as_array_mut().expect("csr was timed").push(u32::MAX.into());
    let other = serde_json::to_vec(&other).expect("plain data");
    assert!(matches!(fault(&other, Precision::F64), LoadFault::Damaged { .. }));
}

#[test]
fn the_tuner_predicts_with_a_model_that_is_sure_of_what_it_was_shown() {
    let model = &made().model;
    let data = with_model(model);
    let csr = generate::by_name("stencil5", 300, 1).expect("a class");
    let tuner = Tuner::without_models(cpu()).with_models(data.path()).expect("it loads");
    let workload = Workload::default();
    let choice = tuner.recommend(&csr, &workload).expect("a choice");
    let sources: BTreeMap<_, _> =
        choice.ranking.iter().map(|ranked| (ranked.format, ranked.source)).collect();
    assert_eq!((sources["csr"], sources["coo"]), (Source::Predicted, Source::Estimated));
    let analysis = Analysis::of(&csr);
    let target = workload.target(tuner.device(), Precision::F64);
    let predictor = Predictor::new(model.clone());
    assert!(predictor.predict(&analysis, &target).confidence > 0.99);

    let strange = generate::by_name("power_law", 20_000, 1).expect("a class");
    assert!(predictor.predict(&Analysis::of(&strange), &target).confidence < 0.5);
}

#[test]
fn for_few_products_prepare_keeps_csr_where_the_rules_say_so() {
    let model = &made().model;
    let csr = generate::by_name("stencil5", 300, 1).expect("a class");
    // A trial may choose otherwise.
    let workload = Workload { trials: Trials::Never, ..Workload::default() };
    // A model without rules analyses every matrix.
    let data = with_model(model);
    let tuner = Tuner::without_models(cpu()).with_models(data.path()).expect("it loads");
    let choice = tuner.recommend(&csr, &workload).expect("a choice");

    let split = Rule::Split { feature: "spmvs".into(), below: 500.0, low: 1, high: 2 };
    let gate = Rules { nodes: vec![split, answer("stay"), answer("look")] };
    let data = with_model(&Model { gate, ..model.clone() });
    let tuner = Tuner::without_models(cpu()).with_models(data.path()).expect("it loads");
    let few = Workload { spmvs: 100, ..workload };
    let prepared = |workload: &Workload| {
        let operator = tuner.prepare(&csr, workload).expect("CSR suits");
        operator.choice().expect("a choice was made").clone()
    };
    let keep = prepared(&few);
    assert_eq!((keep.candidate.to_string().as_str(), keep.ranking.len()), ("csr", 1));
    assert_eq!((keep.fingerprint, keep.features.get("nnz")), (None, Some(csr.nnz() as f64)));
    assert!(keep.explanation[0].contains("because spmvs < 500, an analysis"), "{keep:?}");
    assert_eq!(prepared(&workload), choice);
    let estimate = Workload { effort: Effort::Estimate, ..few };
    assert!(prepared(&estimate).ranking.len() > 1);
    // `recommend` ranks all candidates by the model, for few products too.
    let ranked = tuner.recommend(&csr, &few).expect("a choice");
    assert_eq!(ranked.ranking.len(), choice.ranking.len());
    let in_csr = ranked.ranking.iter().find(|ranked| ranked.format == "csr").map(|r| r.source);
    assert_eq!((in_csr, ranked.fingerprint), (Some(Source::Predicted), choice.fingerprint));
}

#[test]
fn for_very_many_products_a_matrix_is_analysed_whatever_the_rules_say() {
    let model = &made().model;
    let csr = generate::by_name("stencil5", 300, 1).expect("a class");
    let never = Model { gate: Rules { nodes: vec![answer("stay")] }, ..model.clone() };
    let first = |spmvs| {
        let workload = Workload { spmvs, ..Workload::default() };
        let size = [csr.nrows() as u64, csr.nnz() as u64];
        let gates = Some(never.gates());
        let policy = Policy::new(Mode::Prepare, Place::Host, &workload, size, Some(1e-3), gates);
        let nothing = |_: &str| None;
        policy.next(&Knowledge { found: Found::default(), feature: &nothing, state: None })
    };
    let kept = Step::Choose(Decision::KeepBaseline(GateReason::default()));
    assert_eq!(first(ALWAYS_ANALYZE - 1), kept);
    assert_eq!(first(ALWAYS_ANALYZE), Step::Analyse);
    let damaged = |nodes: Vec<Rule>| Model { gate: Rules { nodes }, ..model.clone() }.check();
    assert!(matches!(damaged(vec![answer("hll")]), Err(LoadFault::Damaged { .. })));
    let of_entries = Rule::Split { feature: "bandwidth".into(), below: 1.0, low: 1, high: 2 };
    let dear = vec![of_entries, answer("stay"), answer("look")];
    assert!(matches!(damaged(dear), Err(LoadFault::Damaged { .. })), "it reads entries");
}

#[test]
fn on_a_gpu_rules_choose_among_csr_kernels_without_analysing_the_matrix() {
    let model = &made().model;
    let split = |feature: &str, below, [low, high]: [u32; 2]| Rule::Split {
        feature: feature.into(),
        below,
        low,
        high,
    };
    let read = split("reading_share", 0.01, [1, 2]);
    let long = split("row_nnz_max", 9.0, [3, 2]);
    let csr = Rules { nodes: vec![read, long, answer("stay"), answer("csr")] };
    let [sampled, many] = [split("sampling_share", 0.01, [1, 3]), split("spmvs", 5000.0, [3, 2])];
    let near = split("x_sectors_f64", 0.5, [4, 3]);
    let pcsr = Rules { nodes: vec![sampled, many, near, answer("stay"), answer(PCSR)] };
    let taken = |candidate: &str, rules: Rules| QuickPick { candidate: candidate.into(), rules };
    let quick_picks = vec![taken(PCSR, pcsr), taken(CSR, csr)];
    let gate = Rules { nodes: vec![answer("stay")] };
    let model = Model { device: "h200".into(), gate, quick_picks, ..model.clone() };
    let analyses = taken(CSR, Rules { nodes: vec![answer("look")] });
    let analyses = Model { quick_picks: vec![analyses], ..model.clone() };
    assert!(matches!(analyses.check(), Err(LoadFault::Damaged { part, .. }) if part == "csr"));
    let unknown = taken("csr2", Rules { nodes: vec![answer("csr2")] });
    let unknown = Model { quick_picks: vec![unknown], ..model.clone() };
    assert!(matches!(unknown.check(), Err(LoadFault::Name { what: "candidate", .. })));

    let data = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(data.path().join("models")).expect("writable");
    let path = data.path().join("models").join(file_name("h200", Precision::F64));
    std::fs::write(&path, model.bytes().expect("memory")).expect("writable");
    let gpu = Device::shipped().into_iter().find(|d| d.name == "h200").expect("shipped");
    let tuner =
        Tuner::without_models(gpu).host_emulation().with_models(data.path()).expect("it loads");
    let choice = |class: &str, spmvs| {
        let csr = generate::by_name(class, 300, 1).expect("a class");
        let workload = Workload { spmvs, ..Workload::default() };
        assert!(tuner.recommend(&csr, &workload).expect("a choice").ranking.len() > 20);
        let operator = tuner.prepare(&csr, &workload).expect("CSR suits");
        operator.choice().expect("a choice was made").clone()
    };
    let keep = choice("stencil5", 1000);
    assert_eq!((keep.candidate.to_string().as_str(), keep.fingerprint), ("csr", None));
    let predictions = "because reading_share < 0.01 and row_nnz_max < 9, the model expects";
    assert!(keep.explanation[1].contains(predictions), "{:?}", keep.explanation);
    // In each case, one row is long, reading row lengths takes as long as the only product, or the
    // columns of neighbouring rows lie apart.
    for (class, spmvs) in [("power_law", 1000), ("stencil5", 1), ("power_law", 10_000)] {
        let keep = choice(class, spmvs);
        let names: Vec<_> = keep.ranking.iter().map(|r| r.candidate.to_string()).collect();
        assert_eq!(names, ["cusparse:alg=csr_alg1", "csr", PCSR], "{class} for {spmvs}");
        assert_eq!(keep.explanation.len(), 1, "{:?}", keep.explanation);
    }
    let at_once = choice("stencil5", 10_000);
    let names: Vec<_> = at_once.ranking.iter().map(|r| r.candidate.to_string()).collect();
    assert_eq!(names, [PCSR, "cusparse:alg=csr_alg1", "csr"]);
    assert!(at_once.ranking[0].convert_s > 0.0 && at_once.fingerprint.is_none());
    assert!(
        at_once.explanation[0].contains("converts in about one product"),
        "{:?}",
        at_once.explanation
    );
}

#[test]
fn reports_cards_and_plots_show_how_well_the_model_chooses() {
    let Made { cases, trained, .. } = made();
    let settings = settings();
    let report = evaluate(cases, trained.plan, &settings, Unseen::Tried).expect("families");
    assert_eq!(report.classes.len(), SOURCES.len());
    let all = |row: &Row| row.all.worst <= 1.0 && row.all.best_over_chosen >= row.all.worst;
    assert!(report.rows.iter().all(all));
    assert!(report.markdown().contains("| always csr |"));
    assert!(card::card(cases, trained, &report).contains("## Worst choices"));
    let plots = card::plots(cases, &trained.predicted, &settings).expect("they are drawn");
    assert!(plots.iter().all(|(_, svg)| svg.starts_with("<svg") && svg.ends_with("</svg>\n")));
}

#[test]
fn a_profile_that_was_fitted_to_the_records_leaves_out_what_the_model_does() {
    let Made { records, cases, .. } = made();
    let fitted = Arc::new(Fitted { records: records.clone(), device: cpu() });
    let without = fitted.without(cases, &[0]);
    let predictions =
        |case: &Case| (case.source.clone(), case.trials.iter().map(|t| t.spmv_s).sum());
    let times = |cases: &[Case]| cases.iter().map(predictions).collect::<Vec<(String, f64)>>();
    assert_eq!(times(&without), times(cases), "what was measured stays");
    let estimates = |case: &Case| -> Vec<f64> {
        case.trials.iter().map(|trial| trial.estimate.spmv_s).collect()
    };
    // With this few matrices no figure is fitted, and the figures that ship must not be used.
    assert!(without.iter().zip(cases).all(|(a, b)| estimates(a) != estimates(b)));
    let settings = Settings { folds: 3, fitted: Some(fitted), ..Settings::default() };
    let plan = PLANS[1];
    let predicted = cross_validate(cases, plan, &settings).expect("families");
    let by_own = |(case, predicted): (&Case, &Predicted)| predicted.estimate_s == estimates(case);
    assert!(!cases.iter().zip(&predicted).any(by_own));
    let settings = Settings { fitted: None, ..settings };
    let predicted = cross_validate(cases, plan, &settings).expect("families");
    assert!(cases.iter().zip(&predicted).all(by_own));
}
