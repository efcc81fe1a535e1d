//! Tests of `ellect tune` on this host: from a corpus to models, with a run that is killed and
//! continued.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use ellect::model::{Model, Purpose};
use ellect::{Precision, generate, write};

/// Classes of the matrices in the corpus.
const CLASSES: [&str; 6] = ["banded", "elasticity", "heat", "rmat", "stencil5", "uniform"];

/// Writes the corpus to a folder: one small matrix of each class.
fn corpus(folder: &Path) {
    std::fs::create_dir(folder).expect("writable");
    for class in CLASSES {
        let csr = generate::by_name(class, 400, 1).expect("a class");
        let file = std::fs::File::create(folder.join(format!("{class}.mtx"))).expect("writable");
        write::matrix_market(&csr, file).expect("writable");
    }
}

/// Returns the command `ellect --data DATA tune` for that corpus, in f64.
fn tune(data: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("ellect"));
    let fixed = ["tune", "--device", "cpu", "--corpus", "corpus", "--precision", "f64"];
    command.arg("--data").arg(data).args(fixed).args(more);
    command.current_dir(data);
    command
}

fn ellect(data: &Path, arguments: &[&str]) -> (i32, String) {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("ellect"));
    let output = command.arg("--data").arg(data).args(arguments).current_dir(data).output();
    let output = output.expect("it runs");
    (output.status.code().expect("it ends"), String::from_utf8(output.stdout).expect("text"))
}

#[test]
fn a_killed_run_goes_on_and_ends_with_models() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    corpus(&data.join("corpus"));
    killed_on_its_way(data);
    goes_on(data);
    is_evaluated(data);
    let model = is_trained_again(data);
    runs_the_best_once_more(data);
    falls_behind(data, model);
}

/// Kills a run after three matrices, and checks that their measurements are stored.
fn killed_on_its_way(data: &Path) {
    let mut killed = tune(data, &["--budget", "60s"]).stderr(Stdio::piped()).spawn().expect("runs");
    let lines = BufReader::new(killed.stderr.take().expect("piped")).lines();
    let stated: Vec<String> = lines.take(3).map(|line| line.expect("text")).collect();
    killed.kill().expect("killed");
    killed.wait().expect("ended");
    assert!(stated.iter().all(|line| line.contains(" f64: ")), "{stated:?}");

    // The child process that measured ends soon after its parent and releases the database.
    let (code, kept) = loop {
        let (code, kept) = ellect(data, &["wisdom", "list", "--json"]);
        if code == 0 {
            break (code, kept);
        }
    };
    assert_eq!(code, 0);
    let kept: serde_json::Value = serde_json::from_str(&kept).expect("JSON");
    assert!(kept.as_array().is_some_and(|rows| rows.len() >= 3), "{kept}");
}

/// Resumes the run until it ends: it measures the rest, exports all records and writes a model.
fn goes_on(data: &Path) {
    let arguments =
        ["--resume", "--budget", "300s", "--export", "all.jsonl.zst", "--out", "models"];
    let arguments = [&arguments[..], &["--plots", "plots"]].concat();
    let ended = tune(data, &arguments).output().expect("it runs");
    let (stated, summary) =
        (String::from_utf8_lossy(&ended.stderr), String::from_utf8_lossy(&ended.stdout));
    assert!(ended.status.success(), "{stated}");
    assert!(summary.contains("cpu-f64.model") && !summary.contains("are left"), "{summary}");
    // The matrices measured before are not reported again.
    assert!(!stated.lines().any(|line| line.starts_with("1/")), "{stated}");
    for file in ["models/cpu-f64.model", "models/cpu-f64.md"] {
        assert!(data.join(file).is_file(), "{file}");
    }
    for plot in ["regret", "predictions", "winners"] {
        assert!(data.join(format!("plots/cpu-f64-{plot}.svg")).is_file(), "{plot}");
    }
    assert!(
        !data.join("models/cpu-f64-regret.svg").exists(),
        "plots lie where they were asked for"
    );

    // Nothing is left to measure.
    let again = tune(data, &["--resume", "--measure-only"]).output().expect("it runs");
    assert!(String::from_utf8_lossy(&again.stdout).contains(" 0 candidates timed"), "{again:?}");
}

/// Arguments that evaluate the exported records, which contain everything that evaluation needs.
const EVALUATE: [&str; 8] =
    ["evaluate", "--device", "cpu", "--precision", "f64", "--quick", "--records", "all.jsonl.zst"];

/// Evaluates the records with newly trained models, and with those that the run wrote.
fn is_evaluated(data: &Path) {
    let (_, tables) = ellect(data, &[&EVALUATE[..], &["--models", "models"]].concat());
    for rule in ["| model |", "| model, best 2 timed |", "| effort measure |", "| estimate |"] {
        assert!(tables.contains(rule), "{rule} {tables}");
    }
    assert!(tables.contains("| always csr |") && tables.contains("decision tree"), "{tables}");

    // The models are scored unchanged: those that the run wrote, then those that ship.
    let as_is = [&EVALUATE[..], &["--as-is"]].concat();
    let (code, tables) = ellect(data, &[&as_is[..], &["--models", "models"]].concat());
    assert!(code == 0 && tables.contains("The model is used as it is"), "{code} {tables}");
    assert!(tables.contains("| effort measure |") && !tables.contains("decision tree"), "{tables}");
    let (code, tables) = ellect(data, &as_is);
    assert!(code == 0 && tables.contains("The model is used as it is"), "{code} {tables}");
    assert_eq!(ellect(data, &["evaluate", "--as-is"]).0, 2, "what ships is what it learned from");
}

/// Trains on the stored measurements alone, which gives the same model.
fn is_trained_again(data: &Path) -> Model {
    let train = ["train", "--device", "cpu", "--precision", "f64", "--out", "again"];
    let (code, stated) = ellect(data, &train);
    assert!(code == 0 && stated.contains("class held out"), "{stated}");
    let model = |folder: &str| {
        let bytes = std::fs::read(data.join(folder).join("cpu-f64.model")).expect("a model");
        Model::parse(&bytes, "cpu", Precision::F64).expect("sound")
    };
    let (first, second) = (model("models"), model("again"));
    assert_eq!(
        (first.formats, first.applicability),
        (second.formats.clone(), second.applicability.clone())
    );
    second
}

/// Reruns the best candidates and their baselines, in addition to the earlier runs.
///
/// A `--cut` of 1, which skips nearly all candidates, removes no earlier timing.
fn runs_the_best_once_more(data: &Path) {
    let timed = || {
        let (_, list) = ellect(data, &["wisdom", "list", "--json"]);
        let list: Vec<serde_json::Value> = serde_json::from_str(&list).expect("JSON");
        list.iter().filter_map(|row| row["timed"].as_u64()).sum::<u64>()
    };
    let before = timed();
    let rerun = ["--rerun", "1", "--cut", "1", "--measure-only", "--export", "rerun.jsonl"];
    let rerun = tune(data, &rerun).output().expect("it runs");
    assert_eq!((before > 0, timed()), (true, before));
    let summary = String::from_utf8_lossy(&rerun.stdout).into_owned();
    let lines = std::fs::read_to_string(data.join("rerun.jsonl")).expect("exported");
    let of_several = lines.lines().filter(|line| line.contains("\"reruns\":[")).count();
    assert!((CLASSES.len()..=2 * CLASSES.len()).contains(&of_several), "{of_several}");
    assert!(summary.contains(&format!(" {of_several} candidates timed")), "{summary}");
    // No candidate runs more often than `--runs` allows.
    let enough = ["--rerun", "2", "--runs", "2", "--measure-only", "--export", "enough.jsonl"];
    assert!(tune(data, &enough).output().expect("it runs").status.success());
    let lines = std::fs::read_to_string(data.join("enough.jsonl")).expect("exported");
    let reruns = |line: &str| {
        let record: serde_json::Value = serde_json::from_str(line).expect("JSON");
        record["reruns"].as_array().map_or(0, Vec::len)
    };
    assert!(lines.lines().filter(|line| reruns(line) > 0).count() > of_several, "all that is near");
    assert!(lines.lines().all(|line| reruns(line) <= 1));
}

/// Compares with a model whose score is better than what can be reached now.
fn falls_behind(data: &Path, mut better: Model) {
    assert!(better.scores.contains_key("prediction"), "{:?}", better.scores);
    better.scores.insert("prediction".into(), 2.0);
    std::fs::create_dir(data.join("better")).expect("writable");
    let path = data.join("better/cpu-f64.model");
    std::fs::write(path, better.bytes().expect("memory")).expect("writable");
    let (code, tables) = ellect(data, &[&EVALUATE[..], &["--models", "better"]].concat());
    assert!(code == 1 && tables.contains("| 2.0000 | FELL |"), "{code} {tables}");
}

#[test]
fn generated_matrices_make_models_within_a_budget() {
    let folder = tempfile::tempdir().expect("a folder");
    let generated = ["tune", "--device", "cpu", "--generate", "small", "--precision", "f64"];
    let budget = ["--budget", "15s", "--out", "models"];
    let (code, stated) = ellect(folder.path(), &[&generated[..], &budget].concat());
    assert_eq!(code, 0, "{stated}");
    assert!(stated.contains("| effort measure |") && stated.contains("class held out"), "{stated}");
    let file = |name: &str| folder.path().join("models").join(name).is_file();
    assert!(file("cpu-f64.model") && file("cpu-f64.md"));
}

#[test]
fn every_shipped_model_is_evaluated_without_a_device() {
    let folder = tempfile::tempdir().expect("a folder");
    for device in ellect::device::Device::shipped() {
        // The models choose as they did when their cards were written.
        let replay = ["evaluate", "--replay", "--device", &device.name];
        let of_several = Model::shipped(&device, Purpose::of(Precision::F64, 2)).expect("it loads");
        let several = of_several.map(|_| [&replay[..], &["--several"]].concat());
        for arguments in [Some(replay.to_vec()), several].into_iter().flatten() {
            let (code, stated) = ellect(folder.path(), &arguments);
            assert_eq!(code, 0, "{} {stated}", device.name);
            let agree = stated.matches("replayed scores agree with the recorded ones").count();
            assert_eq!(agree, 2, "{stated}");
        }
    }
    // Models that learn from the records of hosts are no worse than those that ship.
    let evaluate = ["evaluate", "--quick", "--json", "--device", "cpu"];
    let (code, tables) = ellect(folder.path(), &evaluate);
    assert_eq!(code, 0, "{tables}");
    assert!(tables.contains(r#""profile_too": true"#), "its profile was fitted to what ships");
}

#[test]
fn every_shipped_model_has_its_scores_and_its_card() {
    for device in ellect::device::Device::shipped() {
        for purpose in Purpose::ALL {
            let Some(model) = Model::shipped(&device, purpose).expect("it loads") else {
                assert!(purpose.several, "{} {purpose}", device.name);
                continue;
            };
            // `evaluate` compares the choices of the code with recorded ones.
            let missing: Vec<&str> = ["prediction", "replay_model"]
                .into_iter()
                .filter(|name| !model.scores.contains_key(*name))
                .collect();
            assert_eq!(missing, Vec::<&str>::new(), "{} {purpose}", device.name);
            let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models");
            let card = ellect::model::file_name(&device.name, purpose);
            let card = models.join(card).with_extension("md");
            let card = std::fs::read_to_string(card).expect("a card");
            let row = format!("| data hash | {} |", model.data);
            assert!(card.contains(&row), "{} {purpose}", device.name);
            let score = format!("| {:.4} |", model.scores["prediction"]);
            assert!(card.contains(&score), "{} {purpose}: {score}", device.name);
        }
    }
}

#[test]
fn a_budget_ends_a_run_and_tells_what_is_left() {
    let folder = tempfile::tempdir().expect("a folder");
    corpus(&folder.path().join("corpus"));
    let arguments = ["--generate", "small", "--budget", "1s", "--measure-only"];
    let ended = tune(folder.path(), &arguments).output().expect("it runs");
    let summary = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success());
    assert!(summary.contains("are left: the budget is spent"), "{summary}");
    assert!(summary.contains("candidates had no time left"), "{summary}");
    // A candidate that had no time left is not stored as decided, so a resumed run times it.
    let more = tune(folder.path(), &["--resume", "--measure-only"]).output().expect("it runs");
    let more = String::from_utf8_lossy(&more.stdout);
    assert!(!more.contains(" 0 candidates timed") && !more.contains("no time left"), "{more}");
    let nothing = ellect(folder.path(), &["tune", "--device", "cpu"]);
    assert_eq!(nothing.0, 2);
    let class = |name| tune(folder.path(), &["--generate", "small", "--class", name]);
    let one = class("banded").arg("--measure-only").output().expect("it runs");
    assert!(String::from_utf8_lossy(&one.stdout).starts_with("2 matrices measured"), "{one:?}");
    let unknown = class("nosuch").output().expect("it runs");
    assert_eq!(unknown.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("class is 'nosuch'"));
}

#[test]
fn some_candidates_are_measured_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    corpus(&data.join("corpus"));
    let run = |more: &[&str]| {
        let fixed = ["--budget", "60s", "--measure-only", "--export", "all.jsonl"];
        let ended = tune(data, &[&fixed, more].concat()).output().expect("it runs");
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        let lines = std::fs::read_to_string(data.join("all.jsonl")).expect("written");
        let lines = lines.lines().map(|line| serde_json::from_str(line).expect("JSON"));
        let candidate = |line: serde_json::Value| Some(line["candidate"].as_str()?.to_string());
        lines.filter_map(candidate).collect::<Vec<_>>()
    };
    let some = run(&["--only", "csr", "--only", "ell"]);
    assert!(some.iter().any(|candidate| candidate == "csr"), "{some:?}");
    assert!(some.iter().all(|text| text.starts_with("csr") || text.starts_with("ell")), "{some:?}");
    // A resumed run measures the other candidates.
    assert!(run(&["--resume"]).len() > some.len());
}

#[test]
fn a_gpu_is_scored_by_the_models_of_its_kin() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    let records = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/results/h200-unseen.jsonl.zst");
    let records = zstd::decode_all(std::fs::File::open(records).expect("it is there"));
    let records = String::from_utf8(records.expect("it is sound")).expect("text");
    let of_other = records.replace("\"device\":\"h200\"", "\"device\":\"h150\"");
    std::fs::write(data.join("other.jsonl"), of_other).expect("writable");
    let evaluate = ["evaluate", "--as-is", "--records", "other.jsonl", "--device", "h150"];
    assert_eq!(ellect(data, &evaluate).0, 2, "nothing is known of it");

    let own = ellect::device::find("h200").expect("it ships");
    let own = ellect::device::Device { name: "h150".into(), ..own };
    own.save(data).expect("writable");
    let (code, tables) = ellect(data, &evaluate);
    assert!(code == 0 && tables.contains("## h150 in f32"), "{code} {tables}");
    let other = ellect::device::Device { capability: Some("8.0".into()), ..own };
    other.save(data).expect("writable");
    assert_eq!(ellect(data, &evaluate).0, 2, "no model is of its make");
}
