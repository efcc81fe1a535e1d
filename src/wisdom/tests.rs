//! Tests of layers, keys, import and pruning.

use super::shards::tests::shipping;
use super::*;
use crate::choose::{Effort, Workload};
use crate::format::Basis;
use crate::measure::provenance::{host_driver, host_kernels as kernels_of};
use crate::measure::{Outcome, Protocol};
use crate::scalar::Precision;
use crate::{Csr, Tuner, device};

const FINGERPRINT: &str = "0123456789abcdef0123456789abcdef";

/// Writes the line of a measurement of csr with these parts of its key.
fn line(driver: &str, kernels: &str, taken_at: u64, spmv_s: f64) -> String {
    let protocol = serde_json::to_string(&Protocol::default()).expect("plain data");
    let samples =
        format!(r#"{{"raw_s":[{spmv_s}],"min_s":{spmv_s},"median_s":{spmv_s},"spread":0}}"#);
    format!(
        r#"{{"kind":"measurement","fingerprint":"{FINGERPRINT}","candidate":"csr","device":"cpu",
        "threads":2,"precision":"f64","protocol":{protocol},"driver":"{driver}",
        "kernels":"{kernels}","taken_at":{taken_at},"outcome":"timed","spmv":{samples},
        "convert":{samples},"products_per_sample":1,"update_s":0,"bytes":10,"copies":1}}"#
    )
    .replace('\n', " ")
}

fn structure_line(source: &str) -> String {
    format!(
        r#"{{"kind":"structure","fingerprint":"{FINGERPRINT}","source":"{source}","family":"",
        "nrows":3,"ncols":3,"nnz":4,"features":{{"nnz":4}}}}"#
    )
    .replace('\n', " ")
}

fn host_kernels() -> String {
    kernels_of("csr")
}

fn here(taken_at: u64, spmv_s: f64) -> String {
    line(&host_driver(), &host_kernels(), taken_at, spmv_s)
}

fn asked(wisdom: &Wisdom) -> Answer {
    asked_of(wisdom, "csr")
}

fn asked_of(wisdom: &Wisdom, candidate: &str) -> Answer {
    let wanted = Wanted {
        fingerprint: FINGERPRINT.parse().expect("hexadecimal"),
        device: "cpu",
        driver: Some(host_driver()),
        precision: Precision::F64,
        basis: Basis::Original,
        protocol: Protocol::default().version,
        vectors: 1,
    };
    wisdom.ask(&wanted, &candidate.parse().expect("a format")).expect("a sound database")
}

fn time_s(answer: &Answer) -> f64 {
    let Answer::Known(measurement) = answer else { panic!("{answer:?}") };
    measurement.cost().expect("timed").spmv_s
}

fn open(folder: &tempfile::TempDir) -> Wisdom {
    Wisdom::open(folder.path()).expect("a new database")
}

#[test]
fn the_users_own_records_lie_over_those_that_ship() {
    let folder = tempfile::tempdir().expect("a folder");
    let own = Store::open(&folder.path().join("wisdom"), |_| {}).expect("a new database");
    let of_another = |line: String| line.replace(FINGERPRINT, &FINGERPRINT.replace('0', "f"));
    let lines = [
        structure_line("shipped"),
        of_another(structure_line("another")),
        here(9, 2.0),
        of_another(here(9, 1.0)),
    ];
    let wisdom = Wisdom::over(shipping(&lines), Some(own));
    assert_eq!(time_s(&asked(&wisdom)), 2.0);
    wisdom.import(line("another", "", 1, 1.0).as_bytes()).expect("imported");
    assert_eq!(time_s(&asked(&wisdom)), 2.0, "a stale record hides no good one below");
    wisdom.import(here(1, 3.0).as_bytes()).expect("imported");
    assert_eq!(time_s(&asked(&wisdom)), 3.0);
    let fingerprint = FINGERPRINT.parse().expect("hexadecimal");
    let structure = wisdom.structure(fingerprint).expect("sound").expect("it ships");
    assert_eq!((structure.source.as_str(), structure.features["nnz"]), ("shipped", 4.0));
    assert!(Wisdom::shipped().keep([]).is_err(), "what ships is read-only");
}

#[test]
fn a_record_of_another_key_is_not_used_and_the_answer_says_why() {
    let folder = tempfile::tempdir().expect("a folder");
    let wisdom = open(&folder);
    assert_eq!(asked(&wisdom), Answer::Missing);
    let stale = |text: String| {
        wisdom.prune(|_| true).expect("emptied");
        wisdom.import(text.as_bytes()).expect("imported");
        let answer = asked(&wisdom);
        let Answer::Stale(stale) = answer else { panic!("{answer:?} of {text}") };
        stale
    };
    let driver = stale(line("old", &host_kernels(), 1, 1.0));
    assert_eq!((driver.what, driver.stored.as_str()), ("driver", "old"));
    assert_eq!(driver.now, host_driver());
    let kernels = stale(line(&host_driver(), "host.csr=0", 1, 1.0));
    assert_eq!((kernels.what, kernels.now), ("kernels", host_kernels()));
    assert_eq!(stale(line(&host_driver(), "", 1, 1.0)).what, "kernels");
    let now = Protocol::default().version;
    let protocol = here(1, 1.0).replace(&format!(r#""version":{now}"#), r#""version":0"#);
    let expected = format!("measured with protocol 0; it is now {now}");
    assert_eq!(stale(protocol).to_string(), expected);
}

#[test]
fn a_less_complete_record_of_a_matrix_loses_no_known_field() {
    let folder = tempfile::tempdir().expect("a folder");
    let wisdom = open(&folder);
    let full =
        structure_line("heat:3").replace(r#""family":"""#, r#""family":"heat","analysis_s":0.5"#);
    let poor = structure_line("other.mtx").replace(r#"{"nnz":4}"#, "{}");
    for line in [&full, &poor] {
        assert_eq!(wisdom.import(line.as_bytes()).expect("it is open").taken, 1);
    }
    let fingerprint = FINGERPRINT.parse().expect("hexadecimal");
    let known = wisdom.structure(fingerprint).expect("sound").expect("it was kept");
    assert_eq!((known.source.as_str(), known.family.as_str()), ("other.mtx", "heat"));
    assert_eq!((known.analysis_s, known.features.get("nnz")), (Some(0.5), Some(&4.0)));
    for held in ["heat:3", "other.mtx"] {
        let kept = wisdom.to_keep(fingerprint, held, || panic!("it is held"));
        assert!(kept.expect("sound").is_none());
    }
    let more = structure_line("heat:3").replace(r#""nnz":4,"#, r#""nnz":10,"#);
    assert_eq!(wisdom.import(more.as_bytes()).expect("it is open").skipped, 1);
}

#[test]
fn samples_with_more_digits_than_are_kept_now_are_taken() {
    let folder = tempfile::tempdir().expect("a folder");
    let wisdom = open(&folder);
    let exact = 0.000_028_255_555_364_820_693;
    assert_eq!(wisdom.import(here(5, exact).as_bytes()).expect("read").taken, 1);
    assert_eq!(time_s(&asked(&wisdom)), exact);
    let other = here(6, exact).replace(&format!(r#""min_s":{exact}"#), r#""min_s":0.0000282556"#);
    let imported = wisdom.import(other.as_bytes()).expect("read");
    assert_eq!((imported.taken, imported.skipped), (0, 1), "{:?}", imported.bad);
}

#[test]
fn an_import_skips_bad_lines_and_changes_nothing_the_second_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let wisdom = open(&folder);
    let long = "x".repeat(1 << 20);
    let lines = [
        structure_line("a"),
        "{".into(),
        here(5, 1.0),
        here(5, 1.0).replace(r#""csr""#, r#""nosuch""#),
        here(5, 1.0).replace(r#""min_s":1"#, r#""min_s":0.5"#),
        here(5, -1.0),
        String::new(),
        long,
        here(4, 7.0),
    ]
    .join("\n");
    let first = wisdom.import(lines.as_bytes()).expect("read to its end");
    assert_eq!((first.taken, first.known, first.skipped), (2, 1, 5));
    let bad: Vec<u64> = first.bad.iter().map(|(line, _)| *line).collect();
    assert_eq!(bad, [2, 4, 5, 6, 8]);
    assert!(first.bad[1].1.contains("no format is named 'nosuch'"));
    assert_eq!(time_s(&asked(&wisdom)), 1.0, "an older record does not replace a newer one");
    let second = wisdom.import(lines.as_bytes()).expect("read to its end");
    assert_eq!((second.taken, second.known), (0, 3));

    let mut text = Vec::new();
    assert_eq!(wisdom.export(&mut text).expect("written"), 2);
    let other = tempfile::tempdir().expect("a folder");
    let copy = open(&other);
    assert_eq!(copy.import(text.as_slice()).expect("own lines").taken, 2);
    let mut again = Vec::new();
    copy.export(&mut again).expect("written");
    assert_eq!(text, again);
    let verified = copy.verify().expect("sound");
    assert_eq!((verified.structures, verified.measurements, verified.bad.len()), (1, 1, 0));
}

#[test]
fn joined_runs_stand_beside_each_other_and_the_middle_one_counts() {
    let folder = tempfile::tempdir().expect("a folder");
    let wisdom = open(&folder);
    let join = |text: &str| wisdom.join(text.as_bytes()).expect("read to its end");
    // The later run comes first, because the order must not matter.
    for (taken_at, spmv_s) in [(5, 4.0), (3, 1.0), (4, 2.0)] {
        assert_eq!(join(&here(taken_at, spmv_s)).taken, 1);
    }
    assert_eq!(time_s(&asked(&wisdom)), 2.0);
    assert_eq!(join(&here(3, 1.0)).known, 1, "it is there already");
    let mut all = Vec::new();
    wisdom.export(&mut all).expect("written");
    assert_eq!(join(&String::from_utf8_lossy(&all)).known, 1);
    let ended = |taken_at: u64, how: &str| {
        let how = format!(r#""{how}","reason":"of a test""#);
        here(taken_at, 1.0).replace(r#""timed""#, &how)
    };
    for how in ["refused", "cut"] {
        assert_eq!(join(&ended(9, how)).known, 1, "what is no answer takes no place");
    }
    assert_eq!(time_s(&asked(&wisdom)), 2.0);
    assert_eq!(join(&ended(9, "wrong")).taken, 1);
    let Answer::Known(wrong) = asked(&wisdom) else { panic!("it is an answer") };
    assert!(matches!(wrong.outcome, Outcome::Wrong { .. }));
}

#[test]
fn what_is_joined_is_imported_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let (wisdom, runs) = (open(&folder), 3000);
    let lines: Vec<String> = (0..runs).map(|i| here(i, 1.0 + i as f64)).collect();
    let joined = wisdom.join(lines.join("\n").as_bytes()).expect("read to its end");
    assert!(joined.taken > 100 && joined.known > 0, "more than a line holds: {joined:?}");
    let mut all = Vec::new();
    wisdom.export(&mut all).expect("written");
    let other = tempfile::tempdir().expect("a folder");
    let imported = open(&other).import(all.as_slice()).expect("read to its end");
    assert_eq!((imported.taken, imported.skipped), (1, 0), "{imported:?}");
}

#[test]
fn of_a_wrong_product_only_the_outcome_is_kept() {
    let text = here(1, 1.0).replace(r#""timed""#, r#""wrong","reason":"row 3""#);
    let record = Record::parse(text.as_bytes()).expect("valid");
    let line = String::from_utf8(record.line()).expect("JSON");
    assert!(line.contains("row 3") && !line.contains("spmv"), "{line}");
}

#[test]
fn verify_and_prune_find_damaged_values() {
    let folder = tempfile::tempdir().expect("a folder");
    let wisdom = open(&folder);
    wisdom.import(here(1, 1.0).as_bytes()).expect("imported");
    let own = wisdom.own.as_ref().expect("its own");
    let mut batch = own.batch();
    batch.put(Tree::Measurements, "a key", b"{}".to_vec()).expect("written");
    batch.commit().expect("written");
    let verified = wisdom.verify().expect("read");
    assert_eq!((verified.measurements, verified.bad.len()), (1, 1));
    assert_eq!(wisdom.prune(|_| false).expect("pruned"), 1);
    assert!(wisdom.verify().expect("read").bad.is_empty());
}

#[test]
fn a_matrix_is_timed_once_and_answered_from_wisdom_ever_after() {
    let folder = tempfile::tempdir().expect("a folder");
    let wisdom = std::sync::Arc::new(open(&folder));
    let protocol =
        Protocol { min_sample_s: 1e-6, max_samples: 5, max_copies: 1, ..Protocol::default() };
    let tuner = Tuner::without_models(device::find("cpu").expect("shipped"))
        .with_protocol(protocol)
        .with_wisdom(std::sync::Arc::clone(&wisdom))
        .with_source("diagonal");
    let csr = Csr::from_triplets(50, 50, (0..50).map(|i| (i, i, 1.0))).expect("in range");
    let timed = |effort| {
        let mut timed = Vec::new();
        let workload = Workload { effort, ..Workload::default() };
        let choice = tuner
            .recommend_with(&csr, &workload, &mut |progress| {
                timed.push(progress.measurement.candidate.clone());
            })
            .expect("a choice");
        (timed, choice)
    };
    let (first, _) = timed(Effort::Measure);
    assert!(first.len() > 1 && first.contains(&"csr".to_string()), "{first:?}");
    let (second, measured) = timed(Effort::Measure);
    assert!(second.is_empty(), "{second:?}");
    let (_, predicted) = timed(Effort::Predict);
    assert_eq!(predicted, measured);
    assert_eq!(predicted.ranking[0].source, crate::cost::Source::Measured);
    let (_, estimated) = timed(Effort::Estimate);
    assert!(estimated.ranking.iter().all(|r| r.source == crate::cost::Source::Estimated));
    let fingerprint = measured.fingerprint.expect("analysed");
    let structure = wisdom.structure(fingerprint).expect("sound").expect("kept");
    assert_eq!((structure.source.as_str(), structure.nnz), ("diagonal", 50));

    wisdom.prune(|_| true).expect("pruned");
    assert_eq!(wisdom.structure(fingerprint).expect("sound"), None);
}

#[test]
fn timings_of_formats_chosen_by_values_do_not_answer_for_other_values() {
    let folder = tempfile::tempdir().expect("a folder");
    let protocol =
        Protocol { min_sample_s: 1e-6, max_samples: 3, max_copies: 1, ..Protocol::default() };
    let tuner = Tuner::without_models(device::find("cpu").expect("shipped"))
        .with_protocol(protocol)
        .with_wisdom(std::sync::Arc::new(open(&folder)));
    let of = |value: &dyn Fn(usize) -> f64| {
        let row = |i: usize| (i.saturating_sub(1)..(i + 2).min(20_000)).map(move |j| (i, j));
        let entries = (0..20_000).flat_map(row).map(|(i, j)| (i, j, value(i)));
        Csr::from_triplets(20_000, 20_000, entries).expect("in range")
    };
    let source = |csr: &Csr<f64>, effort| {
        let workload = Workload { effort, ..Workload::default() };
        let choice = tuner.recommend(csr, &workload).expect("a choice");
        let of_format = |name| {
            let mut ranking = choice.ranking.iter();
            ranking.find(|ranked| ranked.format == name).map(|ranked| ranked.source)
        };
        ["cdia", "dia"].map(of_format)
    };
    use crate::cost::Source::Measured;
    // One pattern with one distinct value, another one, and many distinct values.
    let (constant, other, many) = (of(&|_| 1.0), of(&|_| 2.0), of(&|i| (i / 300 % 7) as f64 + 1.0));
    assert_eq!(source(&constant, Effort::Exhaustive), [Some(Measured); 2]);
    assert_eq!(source(&other, Effort::Predict), [Some(Measured); 2]);
    let [by_values, dia] = source(&many, Effort::Predict);
    assert!(by_values.is_some_and(|source| source != Measured), "{by_values:?}");
    assert_eq!(dia, Some(Measured));
}

/// Returns the record of [`here`] under another candidate, as text and with the key that a program
/// gave it that knew the format by `name`.
fn stored_as(name: &str, params: &str, taken_at: u64, spmv_s: f64) -> (String, String) {
    let line = here(taken_at, spmv_s);
    let line = line.replace(r#""csr""#, &format!(r#""{name}{params}""#));
    let line = line.replace("host.csr=", &format!("host.{name}="));
    let (driver, version) = (host_driver(), Protocol::default().version.to_string());
    let kernels = host_kernels().replace("host.csr=", &format!("host.{name}="));
    let candidate = format!("{name}{params}");
    let parts = [FINGERPRINT, "cpu", "f64", "original", &candidate, &driver, &kernels, &version];
    (parts.join("\u{1f}"), line)
}

#[test]
fn records_stored_before_a_format_was_renamed_still_answer() {
    let folder = tempfile::tempdir().expect("a folder");
    let renamed = [
        ("slabs", ":cache=40", "cache_blocked"),
        ("hubs", ":kib=130,piece=16", "hub_ell"),
        ("sweep", "", "column_sweep"),
        ("stcsr", ":tile=1024", "st_csr"),
        ("stvi", ":tile=1024", "st_csr_vi"),
        ("hllvi", ":sort=none,col=16", "hll_vi"),
        ("hlldu", ":sort=512", "hll_du"),
    ];
    let store = Store::open(&folder.path().join("wisdom"), |_| {}).expect("a new database");
    let mut batch = store.batch();
    batch.put(Tree::Structures, FINGERPRINT, structure_line("a").into_bytes()).expect("written");
    for (name, params, _) in renamed {
        let (key, line) = stored_as(name, params, 5, 2.0);
        batch.put(Tree::Measurements, &key, line.into_bytes()).expect("written");
    }
    // An earlier program measured again after this one.
    let (key, line) = stored_as("column_sweep", "", 4, 3.0);
    batch.put(Tree::Measurements, &key, line.into_bytes()).expect("written");
    batch.put(Tree::Measurements, "sweep", b"no record".to_vec()).expect("written");
    batch.commit().expect("written");
    drop(store);

    for _ in 0..2 {
        let wisdom = open(&folder);
        for (_, params, name) in renamed {
            let candidate = format!("{name}{params}");
            let answer = asked_of(&wisdom, &candidate);
            let Answer::Known(known) = &answer else { panic!("{candidate}: {answer:?}") };
            assert_eq!(known.candidate, candidate);
            assert_eq!(known.provenance.kernels, kernels_of(name));
        }
        let Answer::Known(both) = asked_of(&wisdom, "column_sweep") else { panic!("known") };
        let Outcome::Timed(timing) = both.outcome else { panic!("timed") };
        assert_eq!(timing.runs().count(), 2, "no run is lost");
        let fingerprint = FINGERPRINT.parse().expect("hexadecimal");
        let all = wisdom.measurements(fingerprint).expect("sound");
        assert_eq!(all.len(), renamed.len(), "each is listed once");
        let verified = wisdom.verify().expect("sound");
        assert_eq!((verified.measurements, verified.bad.len()), (renamed.len() as u64, 1));
    }
}

#[test]
fn lines_with_earlier_names_are_imported_under_the_current_ones() {
    let folder = tempfile::tempdir().expect("a folder");
    let wisdom = open(&folder);
    let (_, earlier) = stored_as("slabs", ":cache=40", 5, 2.0);
    let (_, same) = stored_as("cache_blocked", ":cache=40", 5, 2.0);
    assert_eq!(wisdom.import(earlier.as_bytes()).expect("read").taken, 1);
    assert_eq!(wisdom.import(same.as_bytes()).expect("read").known, 1);
    let mut text = Vec::new();
    assert_eq!(wisdom.export(&mut text).expect("written"), 1);
    let text = String::from_utf8(text).expect("JSON");
    assert!(!text.contains("slabs") && text.contains("host.cache_blocked="), "{text}");

    let shipping = Wisdom::over(shipping(&[structure_line("a"), earlier]), None);
    assert!(matches!(asked_of(&shipping, "cache_blocked:cache=40"), Answer::Known(_)));
}

#[test]
fn a_matrix_is_found_under_every_name_it_was_measured_under() {
    let folder = tempfile::tempdir().expect("a folder");
    let own = Store::open(&folder.path().join("wisdom"), |_| {}).expect("a new database");
    let wisdom = Wisdom::over(shipping(&[structure_line("shipped")]), Some(own));
    let fingerprint = FINGERPRINT.parse().expect("hexadecimal");
    for name in ["mine.mtx", "copy.mtx", "mine.mtx", "shipped"] {
        let kept = wisdom.to_keep(fingerprint, name, || panic!("it ships")).expect("sound");
        wisdom.keep(kept).expect("written");
        let known = wisdom.structure(fingerprint).expect("sound").expect("kept");
        assert!(known.is_named(name) && known.is_named("shipped"), "{known:?}");
    }
    // A record under yet another name, and the same lines again.
    for _ in 0..2 {
        wisdom.import(structure_line("theirs.mtx").as_bytes()).expect("imported");
        wisdom.keep([Record::parse(structure_line("").as_bytes()).expect("one")]).expect("kept");
    }
    let known = wisdom.structure(fingerprint).expect("sound").expect("kept");
    assert_eq!(known.source, "theirs.mtx");
    assert_eq!(known.names, ["mine.mtx", "copy.mtx", "shipped"]);
    let again = wisdom.import(structure_line("copy.mtx").as_bytes()).expect("imported");
    assert_eq!((again.taken, again.known), (0, 1));
}

#[test]
fn a_byte_order_mark_loses_no_record_and_every_bad_line_is_numbered() {
    let folder = tempfile::tempdir().expect("a folder");
    let wisdom = open(&folder);
    let marked = format!("\u{feff}{}\r\n{}\n", structure_line("a"), here(5, 1.0));
    let imported = wisdom.import(marked.as_bytes()).expect("read");
    assert_eq!((imported.taken, imported.skipped), (2, 0));
    let many = format!("{}\n{}\n{}", "bad\n".repeat(150), structure_line("a"), "bad\n".repeat(3));
    let imported = wisdom.import(many.as_bytes()).expect("read");
    assert_eq!((imported.known, imported.skipped, imported.bad.len()), (1, 153, 100));
    assert_eq!(imported.bad_too, [(101, 150), (153, 155)]);
    // The lines beside the database are an export too.
    wisdom.close().expect("exported");
    let text = std::fs::read(folder.path().join("wisdom/export.jsonl")).expect("there");
    let other = tempfile::tempdir().expect("a folder");
    let imported = open(&other).import(text.as_slice()).expect("read");
    assert_eq!((imported.taken, imported.skipped), (2, 0));
}

#[test]
fn a_second_process_reads_and_adds_and_the_holder_takes_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let holder = open(&folder);
    holder.import(here(5, 1.0).as_bytes()).expect("imported");
    let second = open(&folder);
    assert_eq!(time_s(&asked(&second)), 1.0);
    second.keep([Record::parse(here(6, 2.0).as_bytes()).expect("one")]).expect("added");
    second.import(structure_line("a").as_bytes()).expect("added");
    assert_eq!(time_s(&asked(&second)), 2.0, "it sees what it added");
    let reader = Wisdom::open_existing(folder.path()).expect("it reads");
    assert_eq!((time_s(&asked(&reader)), reader.keeps()), (2.0, false));
    let refused = second.prune(|_| true).expect_err("it does not hold the database").to_string();
    assert!(refused.contains("in use"), "{refused}");
    let alone = Wisdom::open_alone(folder.path()).expect_err("it is held").to_string();
    assert!(alone.contains("in use") && alone.contains("--data"), "{alone}");
    holder.upkeep().expect("the second one still adds");
    assert_eq!(time_s(&asked(&holder)), 1.0);
    drop(second);
    holder.upkeep().expect("taken over");
    assert_eq!(time_s(&asked(&holder)), 2.0);
    assert_eq!(std::fs::read_dir(folder.path().join("wisdom/incoming")).expect("there").count(), 0);
    assert_eq!(holder.verify().expect("sound").structures, 1);
}

#[test]
fn a_repair_keeps_what_can_be_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let wisdom = open(&folder);
    wisdom.import([structure_line("a"), here(5, 1.0)].join("\n").as_bytes()).expect("imported");
    drop(wisdom);
    let path = folder.path().join("wisdom");
    // The log is lost, and a line of the export.
    std::fs::write(path.join("db"), vec![0x5a; 600_000]).expect("writable");
    let export = std::fs::read_to_string(path.join("export.jsonl")).expect("there");
    std::fs::write(path.join("export.jsonl"), export.replacen("structure", "strukture", 1))
        .expect("writable");
    let error = Wisdom::open(folder.path()).expect_err("damaged").to_string();
    assert!(error.contains("wisdom repair"), "{error}");
    let (wisdom, kept) = Wisdom::repair(folder.path()).expect("repaired");
    assert_eq!(kept, wisdom.verify().expect("sound").measurements);
    assert_eq!(time_s(&asked(&wisdom)), 1.0);
    assert!(path.join("aside/1-db").exists() && path.join("aside/1-export.jsonl").exists());
}
