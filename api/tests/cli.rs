//! Tests of the command line program, as a person or a script uses it.

use std::path::PathBuf;

use assert_cmd::Command;
use ellect::format::FORMATS;
use serde_json::Value;

fn sample(name: &str) -> String {
    format!("{}/../tests/data/{name}.mtx", env!("CARGO_MANIFEST_DIR"))
}

/// Returns the program with these arguments and a separate data folder per test.
fn ellect(args: &[&str]) -> Command {
    let mut command = Command::cargo_bin("ellect").expect("the program is built");
    let test = std::thread::current().name().unwrap_or("data").to_string();
    let data = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(test);
    command.env("ELLECT_DATA", data).args(args);
    command
}

fn json(args: &[&str]) -> Value {
    let output = ellect(args).assert().success().get_output().stdout.clone();
    serde_json::from_slice(&output).expect("the answer is JSON")
}

fn text(args: &[&str]) -> String {
    let output = ellect(args).assert().success().get_output().stdout.clone();
    String::from_utf8(output).expect("the answer is text")
}

/// Returns the standard error of a command that must end with this exit code.
fn error(args: &[&str], code: i32) -> String {
    let output = ellect(args).assert().code(code).get_output().clone();
    assert!(output.stdout.is_empty(), "errors go to standard error alone");
    String::from_utf8(output.stderr).expect("errors are text")
}

#[test]
fn recommend_ranks_and_explains() {
    let file = sample("elasticity");
    let answer = json(&["recommend", &file, "--device", "h200", "--spmvs", "5000", "--json"]);
    for key in
        ["choice", "ranking", "refused", "features", "device", "precision", "spmvs", "fingerprint"]
    {
        assert!(!answer[key].is_null(), "{key} is missing");
    }
    assert_eq!((&answer["device"], &answer["spmvs"]), (&"h200".into(), &5000.into()));
    assert!(answer["explanation"].as_array().is_some_and(|sentences| sentences.len() >= 3));
    assert_eq!(answer["features"]["nnz"], 5598);
    let ranking = answer["ranking"].as_array().expect("a list");
    assert_eq!(ranking[0]["candidate"], answer["choice"]);
    for entry in ranking {
        for key in ["format", "parameters", "spmv_us", "convert_us", "total_us", "bytes", "source"]
        {
            assert!(!entry[key].is_null(), "{key} is missing");
        }
        assert!(entry.get("break_even_spmvs").is_some());
    }
    assert!(ranking.iter().any(|entry| entry["candidate"] == "csr"), "CSR is always a candidate");

    // The model predicts all candidates, for few products too; only variants of csr that it never
    // saw keep their estimates.
    let few = json(&["recommend", &file, "--device", "h200", "--spmvs", "10", "--json"]);
    let few = few["ranking"].as_array().expect("a list");
    assert_eq!(few.len(), ranking.len());
    let is_new =
        |entry: &Value| entry["candidate"].as_str().is_some_and(|c| c.starts_with("csr:kernel="));
    let known = few.iter().chain(ranking).filter(|entry| !is_new(entry));
    assert!(known.into_iter().all(|entry| entry["source"] == "predicted"));
    let estimated = json(&["recommend", &file, "--effort", "estimate", "--json"]);
    assert_eq!(estimated["ranking"][0]["source"], "estimated");

    let shown = text(&["recommend", &file, "--top", "3"]);
    assert!(shown.contains("candidate") && shown.contains("refused; matrix"), "{shown}");
}

#[test]
fn recommend_takes_a_generated_matrix_by_name() {
    let generate = ["recommend", "--generate", "stencil5:10000", "--device", "h200", "--json"];
    let answer = json(&generate);
    assert_eq!(
        (&answer["features"]["nrows"], &answer["precision"]),
        (&10_000.into(), &"f64".into())
    );
    // A file with the same matrix gives the same answer, in f32 too.
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("a.mtx");
    let file = file.to_str().expect("text");
    text(&["generate", "stencil5:10000", "-o", file]);
    for precision in ["f64", "f32"] {
        let of = |matrix: &[&str]| {
            json(&[&["recommend", "--precision", precision, "--json"], matrix].concat())
        };
        assert_eq!(of(&["--generate", "stencil5:10000"]), of(&[file]), "{precision}");
    }
    assert!(text(&["recommend", "--help"]).contains("--generate <CLASS:ROWS>"));
    let both = error(&["recommend", file, "--generate", "heat:10"], 2);
    assert!(both.contains("cannot be used with"), "{both}");
    assert!(error(&["recommend"], 2).contains("<FILE>"));
    assert!(error(&["recommend", "--generate", "nosuch:10"], 2).contains("there are: stencil5"));
    let large = ["recommend", "--generate", "heat:1000000", "--max-nonzeros", "1000"];
    assert!(error(&large, 2).contains("over the limit of 1000; raise the limit"));
}

#[test]
fn recommend_shows_what_a_program_that_prepares_would_use() {
    let file = sample("elasticity");
    let ask = |mode: &[&str], spmvs: &str| {
        let args = ["recommend", &file, "--device", "h200", "--spmvs", spmvs, "--json"];
        json(&[&args[..], mode].concat())
    };
    let (rank, prepare) = (["--mode", "rank"], ["--mode", "prepare"]);
    for spmvs in ["10", "10000000"] {
        assert_eq!(ask(&[], spmvs), ask(&rank, spmvs), "all are ranked by default");
    }
    // For few products, only the candidates that the size of the matrix suggests are considered.
    let few = ask(&prepare, "10");
    let ranked = few["ranking"].as_array().map_or(0, Vec::len);
    assert!((2..10).contains(&ranked), "{few}");
    assert_eq!(
        (&few["fingerprint"], &few["choice"]),
        (&Value::Null, &few["ranking"][0]["candidate"])
    );
    // For very many products an analysis pays: all candidates are ranked.
    assert_eq!(ask(&prepare, "10000000"), ask(&rank, "10000000"));
    let shown =
        text(&["recommend", &file, "--device", "h200", "--spmvs", "10", "--mode", "prepare"]);
    assert!(shown.contains("matrix not analysed"), "{shown}");
    let stderr = error(&["recommend", &file, "--mode", "plan"], 2);
    assert!(stderr.contains("it must be rank or prepare"), "{stderr}");
}

#[test]
fn recommend_measures_on_this_machine() {
    let file = sample("circuit");
    let answer = json(&["recommend", &file, "--effort", "measure", "--precision", "f32", "--json"]);
    let measured = |entry: &Value| entry["source"] == "measured";
    let ranking = answer["ranking"].as_array().expect("a list");
    assert!(measured(&ranking[0]));
    assert!(ranking.iter().any(|entry| entry["candidate"] == "csr" && measured(entry)));
    let stderr = error(&["recommend", &file, "--effort", "measure", "--device", "h200"], 2);
    assert!(stderr.contains("not on this machine"), "{stderr}");
}

#[test]
fn features_are_flat_numbers() {
    let answer = json(&["features", &sample("convection_diffusion"), "--json"]);
    let features = answer.as_object().expect("a map");
    assert!(features.values().all(Value::is_number));
    for key in [
        "nrows",
        "ncols",
        "nnz",
        "row_nnz_mean",
        "row_nnz_sigma",
        "row_nnz_min",
        "row_nnz_max",
        "n_diagonals",
        "n_iter_ellr",
        "n_iter_pellr",
        "n_p",
    ] {
        assert!(features.contains_key(key), "{key} is missing");
    }
    assert_eq!((&answer["nrows"], &answer["n_diagonals"]), (&729.into(), &7.into()));
    assert!(text(&["features", &sample("circuit")]).lines().count() > 40);
    let with = ["--with", "part_share_metis_4096,block_fill_3_exact"];
    let answer = json(&["features", &sample("elasticity"), "--json", with[0], with[1]]);
    assert_eq!(answer["part_share_metis_4096"], 1);
    assert!(answer["block_fill_3_exact"].is_number());
}

#[test]
fn formats_list_every_parameter() {
    let answer = json(&["formats", "--json"]);
    let formats = answer.as_array().expect("a list");
    let hll = formats.iter().find(|format| format["name"] == "hll").expect("listed");
    assert_eq!(hll["parameters"][0]["name"], "hack");
    assert!(formats.iter().all(|format| format["source"].as_str().is_some_and(|s| !s.is_empty())));
    let names = formats.iter().map(|format| format["name"].as_str().unwrap_or_default());
    assert!(names.eq(FORMATS.iter().map(|format| format.name)));
    // Records contain the names of candidates, so a change of a name must be intended.
    let shown = text(&["formats"]);
    let called = shown.lines().filter_map(|line| {
        let (name, _) = line.trim_start().split_once("  ")?;
        (!line.starts_with(' ') || name.contains('=')).then(|| match line.starts_with(' ') {
            true => format!("  {name}\n"),
            false => format!("{name}\n"),
        })
    });
    insta::assert_snapshot!("formats", called.collect::<String>());
}

#[test]
fn verify_gives_a_line_for_every_candidate() {
    for name in ["elasticity", "convection_diffusion", "circuit"] {
        let shown = text(&["verify", &sample(name), "--basis", "permuted"]);
        assert!(shown.contains(" 0 wrong") && shown.lines().count() > 60, "{shown}");
    }
}

#[test]
fn measure_prints_records_that_read_back() {
    let file = sample("convection_diffusion");
    let lines = text(&["measure", &file, "--only", "csr", "--only", "hdia", "--json"]);
    let records: Vec<ellect::measure::Measurement> =
        lines.lines().skip(1).map(|l| serde_json::from_str(l).expect("a record")).collect();
    assert_eq!(records.len(), 3, "after the record of the matrix");
    assert!(records.iter().all(|record| record.cost().is_some()));
    assert!(text(&["measure", &file, "--only", "csr"]).contains("over csr"));
    assert!(error(&["measure", &file, "--only", "nosuch"], 2).contains("no candidate begins with"));
}

#[test]
fn generated_matrices_are_read_from_standard_input() {
    let matrix = text(&["generate", "stencil5:100"]);
    let mut command = ellect(&["features", "-", "--json"]);
    let output = command.write_stdin(matrix).assert().success().get_output().stdout.clone();
    let features: Value = serde_json::from_slice(&output).expect("the answer is JSON");
    assert_eq!((&features["nrows"], &features["n_diagonals"]), (&100.into(), &5.into()));
}

#[test]
fn complex_matrices_need_an_option() {
    let complex = "%%MatrixMarket matrix coordinate complex hermitian\n2 2 1\n2 1 3.0 0.0\n";
    let run = |args: &[&str], text: &str| ellect(args).write_stdin(text.to_string()).assert();
    let output = run(&["features", "-"], complex).code(2).get_output().stderr.clone();
    let stderr = String::from_utf8(output).expect("errors are text");
    assert!(stderr.contains("read the real parts with --real-part"), "{stderr}");
    let args = ["features", "-", "--real-part", "--json"];
    let output = run(&args, complex).success().get_output().stdout.clone();
    let features: Value = serde_json::from_slice(&output).expect("the answer is JSON");
    assert_eq!(features["nnz"].as_u64(), Some(2));
    assert!(stderr.contains("with --complex blocks"), "{stderr}");
    let complex = complex.replace("0.0", "4.0");
    let args = ["features", "-", "--complex", "blocks", "--json"];
    let output = run(&args, &complex).success().get_output().stdout.clone();
    let features: Value = serde_json::from_slice(&output).expect("the answer is JSON");
    assert_eq!((&features["nrows"], &features["nnz"]), (&4.into(), &8.into()));
    let args = ["verify", "-", "--complex", "blocks", "--device", "cpu"];
    run(&args, &complex).success();
    run(&["features", "-", "--complex", "blocks", "--real-part"], &complex).code(2);
}

#[test]
fn notes_of_the_reader_are_printed_once() {
    let text = "%%MatrixMarket matrix coordinate integer general\n1 1 1\n1 1 9007199254740993\n";
    let output = ellect(&["features", "-"]).write_stdin(text).assert().success();
    let stderr = String::from_utf8(output.get_output().stderr.clone()).expect("notes are text");
    assert_eq!(stderr, "-: 1 integer over 2^53 was rounded to the next number of 53 bits\n");
}

#[test]
fn classes_of_generated_matrices_are_listed() {
    let listed = text(&["generate", "--list"]);
    for class in ellect::generate::CLASSES {
        assert!(listed.contains(&format!("{}  {}\n", class.name, class.doc)), "{}", class.name);
    }
    assert!(error(&["generate", "--list", "heat:10"], 2).contains("cannot be used with"));
}

#[test]
fn errors_say_what_is_wrong_and_end_with_2() {
    assert!(error(&["recommend", "/nosuch.mtx"], 2).contains("/nosuch.mtx"));
    let file = sample("circuit");
    assert!(error(&["recommend", &file, "--device", "nosuch"], 2).contains("there are: h200, cpu"));
    assert!(error(&["recommend", &file, "--precision", "f16"], 2).contains("must be f32 or f64"));
    let stderr = error(&["features", &file, "--max-nonzeros", "10"], 2);
    assert!(stderr.contains("over the limit of 10"), "{stderr}");
    let mut command = ellect(&["features", "-"]);
    let broken = "%%MatrixMarket matrix coordinate real general\n2 2 1\n3 1 1.0\n";
    let output = command.write_stdin(broken).assert().code(2).get_output().stderr.clone();
    let stderr = String::from_utf8(output).expect("errors are text");
    assert!(stderr.contains("line 3"), "{stderr}");
}

#[test]
fn an_error_names_its_cause_once() {
    let stderr = error(&["recommend", "/nosuch.mtx"], 2);
    assert_eq!(stderr, "error: /nosuch.mtx: No such file or directory (os error 2)\n");
    let stderr = error(&["generate", "stencil5:1000", "-o", "/nosuch/a.mtx"], 2);
    assert!(stderr.starts_with("error: ") && stderr.contains("/nosuch/a.mtx"), "{stderr}");
    assert!(error(&["recommend"], 2).starts_with("error: "));
    assert!(error(&["generate", "nosuch:10"], 2).contains("there are: stencil5"));
    assert!(error(&["generate", "heat"], 2).contains("write CLASS:ROWS"));
    assert!(error(&["verify", &sample("circuit"), "--spmvs", "3"], 2).contains("--spmvs"));
}

#[test]
fn a_reader_that_goes_away_ends_the_program_quietly() {
    for args in [
        vec!["generate", "stencil5:100000"],
        vec!["features", &sample("circuit")],
        vec!["verify", &sample("circuit")],
    ] {
        let mut process = std::process::Command::new(env!("CARGO_BIN_EXE_ellect"))
            .args(&args)
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("the program starts");
        drop(process.stdout.take());
        let output = process.wait_with_output().expect("it ends");
        assert!(output.status.success() && output.stderr.is_empty(), "{args:?}: {output:?}");
    }
}

#[test]
fn limits_of_reading_name_the_option_that_raises_them() {
    let mut command = ellect(&["features", "-", "--max-empty-rows", "5"]);
    let tall = "%%MatrixMarket matrix coordinate real general\n9 1 1\n1 1 1.0\n";
    let output = command.write_stdin(tall).assert().code(2).get_output().stderr.clone();
    let stderr = String::from_utf8(output).expect("errors are text");
    assert!(stderr.contains("empty_rows") && stderr.contains("limit of 5"), "{stderr}");
    let stderr = error(&["features", &sample("circuit"), "--max-bytes", "100"], 2);
    assert!(stderr.contains("limit of 100"), "{stderr}");
}

#[test]
fn help_documents_the_json_of_a_recommendation() {
    let help = text(&["recommend", "--help"]);
    let answer = json(&["recommend", &sample("circuit"), "--json"]);
    let ranking = answer["ranking"].as_array().expect("a list");
    let keys = [&answer, &ranking[0], &answer["refused"][0]]
        .map(|value| value.as_object().expect("an object").keys());
    for key in keys.into_iter().flatten() {
        assert!(help.contains(key), "{key} is not documented");
    }
}

#[test]
fn devices_are_listed() {
    let answer = json(&["devices", "--json"]);
    let names: Vec<_> =
        answer.as_array().expect("a list").iter().map(|device| &device["name"]).collect();
    assert_eq!(names, ["h200", "cpu"]);
}

#[test]
fn what_was_measured_is_remembered_moved_and_pruned() {
    let file = sample("circuit");
    let own = tempfile::tempdir().expect("a folder");
    let own = own.path().to_str().expect("text");
    let measure = ["measure", &file, "--only", "csr", "--json", "--data", own];
    let first = text(&measure);
    let lines: Vec<Value> =
        first.lines().map(|line| serde_json::from_str(line).expect("a record")).collect();
    assert_eq!(
        (&lines[0]["kind"], &lines[0]["source"]),
        (&"structure".into(), &"circuit.mtx".into())
    );
    assert_eq!((&lines[1]["kind"], &lines[1]["outcome"]), (&"measurement".into(), &"timed".into()));
    assert!(lines[1]["kernels"].as_str().is_some_and(|kernels| kernels.starts_with("host.csr=")));
    assert_eq!(text(&measure), first, "the second time nothing is timed");

    let listed = text(&["wisdom", "list", "--data", own]);
    assert!(listed.contains("circuit.mtx"), "{listed}");
    let exported = text(&["wisdom", "export", "--data", own]);
    assert_eq!(exported, first);
    let shards = tempfile::tempdir().expect("a folder");
    let to_shards = ["wisdom", "export", "--data", own, "--shards"];
    let to_shards = [&to_shards[..], &[shards.path().to_str().expect("text")]].concat();
    for stated in ["2 records new or newer, 1 shards written", "0 records new or newer, 0 shards"] {
        let output = ellect(&to_shards).assert().success();
        let said = String::from_utf8_lossy(&output.get_output().stderr).into_owned();
        assert!(said.contains(stated), "{said}");
    }
    assert_eq!(std::fs::read_dir(shards.path()).expect("a folder").count(), 1);
    let other = tempfile::tempdir().expect("a folder");
    let other = other.path().to_str().expect("text");
    let import = ["wisdom", "import", "-", "--json", "--data", other];
    let output = ellect(&import).write_stdin(format!("{{\n{exported}")).assert().code(1);
    let stated = String::from_utf8_lossy(&output.get_output().stderr).into_owned();
    assert!(stated.contains("line 1 skipped"), "{stated}");
    let verified = json(&["wisdom", "verify", "--json", "--data", other]);
    assert_eq!((&verified["measurements"], &verified["bad"]), (&1.into(), &0.into()));
    let removed = |more: &[&str]| {
        let args = [["wisdom", "prune", "--json", "--data", other].as_slice(), more].concat();
        json(&args)["removed"].clone()
    };
    assert_eq!(removed(&[]), 0, "all of it is of use");
    assert_eq!(removed(&["--all", "--matrix", "another.mtx"]), 0);
    assert_eq!(removed(&["--all", "--matrix", "circuit.mtx"]), 1);
}

#[test]
fn a_byte_order_mark_is_skipped_and_a_bad_line_ends_with_1() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().to_str().expect("text");
    let record = |number: u32| {
        format!(
            r#"{{"kind":"structure","fingerprint":"{number:032x}","source":"a","nrows":3,"ncols":3,"nnz":4,"features":{{}}}}"#
        )
    };
    let import = |text: String, code: i32| {
        let args = ["wisdom", "import", "-", "--data", data];
        let output = ellect(&args).write_stdin(text).assert().code(code).get_output().clone();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    let stated = import(format!("\u{feff}{}\n{}\n", record(1), record(2)), 0);
    assert!(stated.contains("2 records imported, 0 known, 0 skipped"), "{stated}");
    let stated = import(format!("{}\nbad\n{}\n", record(3), record(4)), 1);
    assert!(stated.contains("2 records imported, 0 known, 1 skipped"), "{stated}");
    assert!(stated.contains("line 2 skipped: "), "{stated}");
}

#[test]
fn a_file_whose_pattern_ships_is_listed_under_its_own_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("mine.mtx");
    let data = folder.path().to_str().expect("text");
    std::fs::copy(sample("circuit"), &file).expect("copied");
    let file = file.to_str().expect("text");
    for measured in [sample("circuit").as_str(), file] {
        text(&["measure", measured, "--only", "csr", "--data", data]);
    }
    for name in ["circuit.mtx", "mine.mtx"] {
        let rows = json(&["wisdom", "list", "--matrix", name, "--json", "--data", data]);
        assert_eq!(rows.as_array().map(Vec::len), Some(1), "{name}");
        let shown = text(&["wisdom", "list", "--matrix", name, "--data", data]);
        assert!(shown.contains(name), "{shown}");
    }
    assert_eq!(
        json(&["wisdom", "list", "--matrix", "other", "--json", "--data", data]),
        Value::Array(vec![])
    );
}

/// Reading works in a data folder that cannot be written to, and leaves it as it is.
#[cfg(unix)]
#[test]
fn a_folder_that_cannot_be_written_to_is_read() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::process::CommandExt;
    use std::path::Path;

    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let own = data.to_str().expect("text");
    let (program, file) = (folder.path().join("ellect"), folder.path().join("circuit.mtx"));
    std::fs::copy(env!("CARGO_BIN_EXE_ellect"), &program).expect("copied");
    std::fs::copy(sample("circuit"), &file).expect("copied");
    let file = file.to_str().expect("text");
    text(&["measure", file, "--only", "csr", "--data", own]);
    let set = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("owned");
    };
    let files = || {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(data.join("wisdom")).expect("a folder") {
            let path = entry.expect("an entry").path();
            files.push((path.clone(), std::fs::metadata(&path).expect("there").len()));
        }
        files.sort();
        files
    };
    set(folder.path(), 0o755);
    for lines in ["with lines", "without lines"] {
        if lines == "without lines" {
            for name in ["export.jsonl", "journal.jsonl"] {
                std::fs::remove_file(data.join("wisdom").join(name)).expect("there");
            }
        }
        for (path, _) in files() {
            set(&path, if path.is_dir() { 0o555 } else { 0o444 });
        }
        set(&data.join("wisdom"), 0o555);
        set(&data, 0o555);
        let before = files();
        for args in [
            vec!["wisdom", "list"],
            vec!["wisdom", "export"],
            vec!["wisdom", "verify"],
            vec!["recommend", file],
            vec!["recommend", file, "--effort", "measure", "--budget", "1"],
        ] {
            let mut command = std::process::Command::new(&program);
            command.args(&args).args(["--data", own]);
            if std::fs::metadata(&data).expect("there").uid() == 0 {
                // Permissions do not bind the superuser.
                command.uid(65534).gid(65534);
            }
            let output = command.output().expect("it runs");
            let stated = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{args:?} {lines}: {stated}");
            let shown = String::from_utf8_lossy(&output.stdout);
            let names =
                [vec!["circuit.mtx"], vec!["1 structures, 1 measurements"], vec!["measured"]];
            let is_told = names.concat().iter().any(|name| shown.contains(name));
            assert!(is_told, "{args:?} {lines}: {shown} {stated}");
        }
        assert_eq!(files(), before);
        set(&data.join("wisdom"), 0o755);
        for (path, _) in files() {
            set(&path, if path.is_dir() { 0o755 } else { 0o644 });
        }
        set(&data, 0o755);
    }
}
