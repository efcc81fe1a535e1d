//! Tests of training over HTTP, of the routes of models, and of records in and out.

mod service;

use std::path::Path;

use ellect::device::{self, Device};
use serde_json::{Value, json};

use service::{Service, children, sample, serve, signal};

/// Records of a device that no shipped model knows, for 38 matrices.
fn records() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/results/h200-unseen.jsonl.zst");
    let text = zstd::decode_all(std::fs::File::open(path).expect("it is there"));
    let text = String::from_utf8(text.expect("it is sound")).expect("text");
    text.replace("\"device\":\"h200\"", "\"device\":\"h150\"")
}

/// Starts a service that knows that device.
fn service() -> Service {
    let service = serve(&[]);
    let own = device::find("h200").expect("it ships");
    let own = Device { name: "h150".into(), capability: Some("8.0".into()), ..own };
    own.save(Path::new(&service.data)).expect("writable");
    service
}

const PLAN: &str = "plan=extra+trees+over+the+estimate";

#[test]
fn records_are_added_trained_from_and_exported() {
    let service = service();
    let (status, answer) = service.json("POST", "/tune?device=h150&precision=f32", b"");
    assert_eq!((status, &answer["error"]["code"]), (409, &json!("unmeasured")), "{answer}");

    let text = records();
    let packed = zstd::encode_all(text.as_bytes(), 1).expect("memory");
    let (status, added) = service.json("POST", "/measurements", &packed);
    assert_eq!((status, &added["taken"], &added["skipped"]), (200, &json!(6802), &json!(0)));
    let damaged = [&text[..text.len() / 2], "\nno record\n"].concat();
    let (status, again) = service.json("POST", "/measurements", damaged.as_bytes());
    assert_eq!((status, &again["taken"]), (200, &json!(0)), "{}", again["bad"]);
    assert!(again["known"].as_u64() > Some(3000) && again["skipped"].as_u64() >= Some(1));
    assert!(again["bad"].as_array().is_some_and(|bad| bad[0]["line"].is_u64()));
    let (status, answer) = service.json("POST", "/measurements", b"no record\nneither\n");
    assert_eq!((status, &answer["error"]["code"]), (422, &json!("records")), "{answer}");
    let (status, exported) = service.send("GET", "/measurements?device=h150", "", b"");
    let exported = String::from_utf8(exported).expect("text");
    assert_eq!((status, dechunked(&exported).lines().count()), (200, 6802));

    let before = service.json("GET", "/models", b"").1;
    let target = format!("/tune?device=h150&precision=f32&{PLAN}");
    let (status, job) = service.json("POST", &target, b"");
    assert_eq!((status, &job["kind"]), (202, &json!("tune")), "{job}");
    let ended = service.ended_job(job["id"].as_u64().expect("a number"));
    assert_eq!(ended["status"], "succeeded", "{ended}");
    let trained = &ended["result"]["models"][0];
    assert_eq!((&trained["device"], &trained["precision"]), (&json!("h150"), &json!("f32")));
    assert_eq!(trained["verdict"]["matrices"], 38, "{trained}");
    assert!(ended["result"]["report"].as_str().is_some_and(|text| text.contains("h150 in f32")));
    let is_used = trained["state"] == "in use";
    let (_, after) = service.json("GET", "/models", b"");
    let of_device = |list: &Value| {
        let all = list.as_array().expect("a list").iter();
        all.filter(|model| model["device"] == "h150").cloned().collect::<Vec<_>>()
    };
    assert!(of_device(&before).is_empty());
    let listed = of_device(&after);
    assert_eq!((listed.len(), &listed[0]["id"]), (1, &trained["id"]), "{listed:?}");
    assert_eq!(listed[0]["state"], if is_used { "in use" } else { "kept" });
    if is_used {
        assert!(listed[0]["scores"]["prediction"].as_f64().is_some_and(|score| score > 0.5));
        let card = listed[0]["card"].as_str().expect("a path");
        let (status, card) = service.send("GET", card, "", b"");
        let card = String::from_utf8(card).expect("text");
        assert!(status == 200 && card.contains("h150 in f32"), "{card}");
        let (status, answer) =
            service.recommend("?device=h150&precision=f32", "", &sample("circuit"));
        assert_eq!((status, &answer["model"]["id"]), (200, &trained["id"]), "{answer}");
    }
}

/// Joins the parts of an answer without a length.
fn dechunked(text: &str) -> String {
    let (mut all, mut rest) = (String::new(), text);
    while let Some((length, after)) = rest.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).expect("a length");
        all += &after[..length];
        rest = &after[length + 2..];
    }
    all
}

#[test]
fn generated_matrices_are_measured_before_the_training() {
    let service = serve(&[]);
    // Three matrices are too few for an installation, but enough for a model.
    let matrices = "matrix=heat:400,banded:400,uniform:400";
    let target = format!("/tune?precision=f64&{matrices}&budget=30s&{PLAN}");
    let (_, job) = service.json("POST", &target, b"");
    let id = job["id"].as_u64().expect("a number");
    let at = service.job_when(id, |job| job["progress"]["total"] == 3 || job["status"] == "failed");
    assert_eq!(at["error"], Value::Null, "{at}");
    // Other work on this host waits for its turn.
    let (status, second) = service.recommend("?effort=measure&wait_ms=0", "", &sample("circuit"));
    assert_eq!((status, &second["status"]), (202, &json!("enqueued")), "{second}");
    let (status, _) = service.json("DELETE", &format!("/jobs/{id}"), b"");
    assert_eq!(status, 200, "a process is ended at once");
    let ended = service.ended_job(id);
    assert_eq!(
        (&ended["status"], &ended["error"]["code"]),
        (&json!("canceled"), &json!("canceled"))
    );
    assert_eq!(service.ended_job(2)["status"], "succeeded");
}

#[cfg(target_os = "linux")]
#[test]
fn a_training_process_that_dies_is_started_once_more() {
    let service = service();
    assert_eq!(service.json("POST", "/measurements", records().as_bytes()).0, 200);
    let (_, job) = service.json("POST", "/tune?device=h150&precision=f32", b"");
    let id = job["id"].as_u64().expect("a number");
    for attempt in 1..=2 {
        service.job_when(id, |job| {
            job["status"] == "processing"
                && job["attempts"] == attempt
                && !children(service.process.id()).is_empty()
        });
        children(service.process.id()).into_iter().for_each(|process| signal(process, "KILL"));
    }
    let ended = service.ended_job(id);
    assert_eq!(
        (&ended["status"], &ended["error"]["code"]),
        (&json!("failed"), &json!("interrupted"))
    );
    let message = ended["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("signal: 9"), "{ended}");
    assert!(ended["again"].as_str().is_some_and(|why| why.contains("signal: 9")), "{ended}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_training_process_ends_with_its_service() {
    let service = service();
    assert_eq!(service.json("POST", "/measurements", records().as_bytes()).0, 200);
    let (_, job) = service.json("POST", "/tune?device=h150&precision=f32", b"");
    let id = job["id"].as_u64().expect("a number");
    service.job_when(id, |job| job["status"] == "processing");
    let trains = std::cell::Cell::new(0);
    service.job_when(id, |_| {
        trains.set(children(service.process.id()).first().copied().unwrap_or(0));
        trains.get() != 0
    });
    service.signal("KILL");
    let status = format!("/proc/{}/status", trains.get());
    let ends = (0..500).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        // A process whose parent has not asked for its end stays as a zombie.
        std::fs::read_to_string(&status).map_or(true, |text| text.contains("State:\tZ"))
    });
    assert!(ends, "it goes on without its service");
    // The job is begun once more at the next start, and stopped with it.
    let service = service.again(&[]);
    let again = service.job_when(id, |job| job["status"] == "processing");
    assert_eq!(again["attempts"], 2, "{again}");
    assert_eq!(service.json("DELETE", &format!("/jobs/{id}"), b"").0, 200);
}

#[test]
fn wrong_trainings_are_refused_before_they_are_jobs() {
    let service = serve(&[]);
    for (query, status, code) in [
        ("?device=nosuch", 400, "device"),
        ("?device=h200&generate=small", 400, "device"),
        ("?generate=huge", 400, "argument"),
        ("?corpus=/etc", 400, "argument"),
        ("?budget=0", 400, "argument"),
        ("", 409, "unmeasured"),
    ] {
        let (got, answer) = service.json("POST", &format!("/tune{query}"), b"");
        assert_eq!((got, &answer["error"]["code"]), (status, &json!(code)), "{query}: {answer}");
    }
    assert_eq!(service.json("GET", "/jobs", b"").1["total"], 0);
    let bare = serve(&["--no-wisdom"]);
    for (method, target) in [("POST", "/tune"), ("POST", "/measurements"), ("GET", "/measurements")]
    {
        let (status, answer) = bare.json(method, target, b"");
        assert_eq!((status, &answer["error"]["code"]), (409, &json!("no_wisdom")), "{answer}");
    }
}

#[test]
fn models_are_read_again_on_request_and_a_damaged_one_is_named() {
    let service = serve(&[]);
    let (status, models) = service.json("POST", "/models/reload", b"");
    assert_eq!((status, &models), (200, &service.json("GET", "/models", b"").1));
    for model in models.as_array().expect("a list") {
        assert!(model["scores"]["prediction"].as_f64().is_some_and(|score| score > 0.5), "{model}");
        let (status, card) = service.send("GET", model["card"].as_str().expect("a path"), "", b"");
        assert!(status == 200 && card.starts_with(b"# Model of "), "{model}");
    }
    for (target, status, code) in [
        ("/models/nosuch/f64/card", 400, "device"),
        ("/models/..%2f..%2fa/f64/card", 400, "device"),
        ("/models/cpu/f16/card", 400, "argument"),
        ("/models/cpu/%ff/card", 400, "argument"),
    ] {
        let (got, answer) = service.json("GET", target, b"");
        assert_eq!((got, &answer["error"]["code"]), (status, &json!(code)), "{target}: {answer}");
    }
    let folder = Path::new(&service.data).join("models");
    std::fs::create_dir_all(&folder).expect("writable");
    std::fs::write(folder.join("cpu-f64.model"), "no model").expect("writable");
    let (status, answer) = service.json("POST", "/models/reload", b"");
    assert_eq!((status, &answer["error"]["code"]), (422, &json!("model")), "{answer}");
    let message = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("cpu-f64.model"), "{message}");
    let (status, answer) = service.get("/readyz");
    assert_eq!((status, &answer["error"]["code"]), (503, &json!("not_ready")), "{answer}");
    std::fs::remove_file(folder.join("cpu-f64.model")).expect("it is there");
    assert_eq!(service.json("POST", "/models/reload", b"").0, 200);
    assert_eq!(service.get("/readyz").0, 200);
}

#[test]
fn a_reader_changes_nothing() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let file = folder.path().join("tokens");
    std::fs::write(&file, "read 0123456789abcdef\n").expect("a file");
    let service = serve(&["--tokens", file.to_str().expect("text")]);
    let headers = "Authorization: Bearer 0123456789abcdef\r\n";
    for (method, target) in [
        ("POST", "/tune"),
        ("POST", "/measurements"),
        ("POST", "/models/reload"),
        ("DELETE", "/jobs/1"),
        ("POST", "/recommend?effort=measure"),
    ] {
        let (status, answer) = service.send(method, target, headers, b"");
        let answer: Value = serde_json::from_slice(&answer).expect("JSON");
        assert_eq!((status, &answer["error"]["code"]), (403, &json!("role")), "{method} {target}");
    }
    for target in ["/jobs", "/models", "/measurements"] {
        assert_eq!(service.send("GET", target, headers, b"").0, 200, "{target}");
    }
}
