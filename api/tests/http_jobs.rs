//! Tests of jobs: their states, events and ends, and their way through restarts of the service.

mod service;

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use service::{Service, answer, sample, serve, signal};

/// A measurement of the sample `circuit` that takes some seconds; the answer does not wait for it.
const LONG: &str = "?effort=exhaustive&budget=5&wait_ms=0";

/// Enqueues a measurement; returns its number.
fn enqueue(service: &Service, query: &str) -> u64 {
    let (status, job) = service.recommend(query, "", &sample("circuit"));
    assert_eq!(status, 202, "{job}");
    job["id"].as_u64().expect("a number")
}

/// Waits until a job has measured a candidate.
fn at_work(service: &Service, id: u64) -> Value {
    service.job_when(id, |job| job["progress"]["done"].as_u64() > Some(0))
}

fn files(service: &Service, ending: &str) -> usize {
    let all = std::fs::read_dir(format!("{}/jobs", service.data)).expect("a folder");
    let names = all.map(|entry| entry.expect("readable").file_name());
    names.filter(|name| name.to_string_lossy().ends_with(ending)).count()
}

#[test]
fn a_long_measurement_goes_on_as_a_job() {
    let service = serve(&[]);
    let started = service.ask("POST", &format!("/recommend{LONG}"), "", &sample("circuit"));
    let job: Value = serde_json::from_slice(&started.body).expect("JSON");
    assert_eq!((started.status, &job["id"], &job["kind"]), (202, &json!(1), &json!("recommend")));
    assert!(started.head.contains("location: /jobs/1\r\n"), "{}", started.head);
    assert_eq!(job["details"]["parameters"]["effort"], "exhaustive");
    // A request like it is no second job, and may wait for the first.
    let (status, waited) = service.recommend("?effort=exhaustive&budget=5", "", &sample("circuit"));
    assert_eq!((status, &waited["ranking"][0]["source"]), (200, &json!("measured")), "{waited}");
    let ended = service.ended_job(1);
    assert_eq!((&ended["status"], &ended["attempts"]), (&json!("succeeded"), &json!(1)), "{ended}");
    assert_eq!(ended["result"], waited);
    let at = |name: &str| ended[name].as_f64().expect("a time");
    assert!(at("enqueued_at") <= at("started_at") && at("started_at") < at("finished_at"));
    // Each is rounded to a millisecond.
    assert!((at("finished_at") - at("started_at") - at("duration_s")).abs() < 5e-3, "{ended}");
    assert_eq!((files(&service, ".body"), files(&service, ".result")), (0, 1));

    let second = enqueue(&service, "?effort=measure&precision=f32&budget=5&wait_ms=0");
    let listed = |query: &str| {
        let (status, list) = service.json("GET", &format!("/jobs{query}"), b"");
        assert_eq!(status, 200, "{list}");
        let ids = list["jobs"].as_array().expect("a list").iter().map(|job| job["id"].as_u64());
        (ids.map(|id| id.expect("a number")).collect::<Vec<_>>(), list["next"].clone())
    };
    assert_eq!(listed(""), (vec![second, 1], Value::Null));
    assert_eq!(listed("?limit=1"), (vec![second], json!(1)));
    assert_eq!(listed("?limit=1&from=1&kind=recommend"), (vec![1], Value::Null));
    assert_eq!(listed("?status=succeeded,failed&from=1"), (vec![1], Value::Null));
    assert_eq!(listed("?kind=tune").0, Vec::<u64>::new());
    for query in ["?status=lost", "?kind=x", "?limit=0", "?limit=x", "?from=-1", "?nosuch=1"] {
        let (status, answer) = service.json("GET", &format!("/jobs{query}"), b"");
        assert_eq!((status, &answer["error"]["code"]), (400, &json!("argument")), "{query}");
    }
    for (target, status, code) in
        [("/jobs/99", 404, "job"), ("/jobs/x", 400, "argument"), ("/jobs/%ff", 400, "argument")]
    {
        for method in ["GET", "DELETE"] {
            let (got, answer) = service.json(method, target, b"");
            assert_eq!((got, &answer["error"]["code"]), (status, &json!(code)), "{answer}");
        }
    }
}

#[test]
fn events_tell_of_a_job_until_it_ends() {
    let service = serve(&[]);
    let id = enqueue(&service, LONG);
    let target = format!("/jobs/{id}/events");
    let told = service.ask("GET", &target, "", b"");
    assert!(told.head.contains("content-type: text/event-stream"), "{}", told.head);
    let text = String::from_utf8(told.body).expect("text");
    let names: Vec<&str> =
        text.lines().filter_map(|line| line.split_once("event: ")).map(|(_, name)| name).collect();
    assert_eq!(names.first(), Some(&"status"), "{text}");
    assert!(names.contains(&"progress") && names.last() == Some(&"status"), "{text}");
    let last = text.lines().filter_map(|line| line.split_once("data: ")).next_back();
    let last: Value = serde_json::from_str(last.expect("an event").1).expect("JSON");
    assert_eq!(last["status"], "succeeded");
    assert!(last["progress"]["done"].as_u64() > Some(0), "{last}");
    // A job that has ended is told of once.
    let (_, after) = service.send("GET", &target, "", b"");
    assert_eq!(String::from_utf8_lossy(&after).matches("event: status").count(), 1);
}

#[test]
fn jobs_are_canceled_whether_they_wait_or_are_at_work() {
    let service = serve(&[]);
    let running = enqueue(&service, "?effort=exhaustive&budget=100&wait_ms=0");
    let waiting = enqueue(&service, "?effort=exhaustive&budget=100&precision=f32&wait_ms=0");
    at_work(&service, running);
    assert_eq!(service.job_when(waiting, |_| true)["status"], "enqueued");
    let matrix = sample("circuit");
    std::thread::scope(|scope| {
        // A request that waits for a canceled job is told so.
        let asked = scope.spawn(|| {
            service.recommend(
                "?effort=exhaustive&budget=100&precision=f32&wait_ms=60000",
                "",
                &matrix,
            )
        });
        std::thread::sleep(Duration::from_millis(300));
        let (status, job) = service.json("DELETE", &format!("/jobs/{waiting}"), b"");
        assert_eq!((status, &job["status"]), (200, &json!("canceled")), "{job}");
        let (status, answer) = asked.join().expect("no panic");
        assert_eq!((status, &answer["error"]["code"]), (409, &json!("canceled")), "{answer}");
    });
    let (status, job) = service.json("DELETE", &format!("/jobs/{running}"), b"");
    assert!(status == 200 || status == 202, "{job}");
    let ended = service.ended_job(running);
    assert_eq!(
        (&ended["status"], &ended["error"]["code"]),
        (&json!("canceled"), &json!("canceled"))
    );
    assert_eq!(files(&service, ".body"), 0);
    let (status, answer) = service.json("DELETE", &format!("/jobs/{running}"), b"");
    assert_eq!((status, &answer["error"]["code"]), (409, &json!("finished")), "{answer}");
    // The device is free again.
    assert_eq!(service.recommend("?effort=measure&budget=5", "", &matrix).0, 200);
}

#[test]
fn a_job_of_a_service_that_died_is_done_once_more_and_then_fails() {
    let service = serve(&[]);
    let id = enqueue(&service, "?effort=exhaustive&budget=100&wait_ms=0");
    at_work(&service, id);
    service.signal("KILL");
    let service = service.again(&[]);
    let again = at_work(&service, id);
    assert_eq!(
        (&again["status"], &again["attempts"]),
        (&json!("processing"), &json!(2)),
        "{again}"
    );
    assert!(again["again"].as_str().is_some_and(|why| why.contains("service ended")), "{again}");
    service.signal("KILL");
    let service = service.again(&[]);
    let ended = service.ended_job(id);
    assert_eq!(
        (&ended["status"], &ended["error"]["code"]),
        (&json!("failed"), &json!("interrupted"))
    );
    assert_eq!(files(&service, ".body"), 0);
    // Numbers go on.
    assert_eq!(enqueue(&service, LONG), id + 1);
    assert_eq!(service.ended_job(id + 1)["status"], "succeeded");
}

#[test]
fn jobs_of_a_service_that_is_stopped_go_on_at_its_next_start() {
    let service = serve(&[]);
    let running = enqueue(&service, LONG);
    let waiting = enqueue(&service, "?effort=measure&budget=5&precision=f32&wait_ms=0");
    at_work(&service, running);
    let matrix = sample("circuit");
    let target = "/recommend?effort=exhaustive&budget=5&wait_ms=60000";
    let stream = service.begin("POST", target, "", matrix.len());
    let answered = std::thread::scope(|scope| {
        let asked = scope.spawn(|| answer(stream, &matrix));
        std::thread::sleep(Duration::from_millis(300));
        service.signal("TERM");
        asked.join().expect("no panic")
    });
    // A request that waits is told that the job goes on.
    let job: Value = serde_json::from_slice(&answered.body).expect("JSON");
    assert_eq!((answered.status, &job["id"]), (202, &json!(running)), "{job}");
    assert!(job["again"].as_str().is_some_and(|why| why.contains("next start")), "{job}");
    let service = service.again(&[]);
    for id in [running, waiting] {
        let ended = service.ended_job(id);
        assert_eq!(
            (&ended["status"], &ended["attempts"]),
            (&json!("succeeded"), &json!(1)),
            "{ended}"
        );
        assert_eq!(ended["result"]["ranking"][0]["source"], "measured");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_measuring_process_that_dies_or_hangs_ends_no_job() {
    let service = serve(&[]);
    for (name, precision) in [("KILL", "f64"), ("STOP", "f32")] {
        let query = format!("?effort=exhaustive&budget=5&precision={precision}&wait_ms=0");
        let id = enqueue(&service, &query);
        at_work(&service, id);
        for process in service::children(service.process.id()) {
            signal(process, name);
        }
        let ended = service.ended_job(id);
        assert_eq!(ended["status"], "succeeded", "{name}: {ended}");
        assert_eq!(ended["result"]["ranking"][0]["source"], "measured", "{name}");
    }
    assert_eq!(service.send("GET", "/readyz", "", b"").0, 200);
}

#[test]
fn jobs_are_bounded_in_number_and_size() {
    let service = serve(&["--jobs", "2", "--job-bytes", "1000000"]);
    for spmvs in 1..=4 {
        let query = format!("?effort=measure&budget=2&spmvs={spmvs}");
        assert_eq!(service.recommend(&query, "", &sample("circuit")).0, 200);
    }
    let (_, list) = service.json("GET", "/jobs", b"");
    let ids: Vec<_> =
        list["jobs"].as_array().expect("a list").iter().map(|job| &job["id"]).collect();
    assert_eq!(ids, [4, 3]);
    assert_eq!(files(&service, ".result"), 2);
    assert_eq!(service.json("GET", "/jobs/1", b"").0, 404);
    let small = serve(&["--job-bytes", "1000"]);
    let (status, answer) = small.recommend("?effort=measure", "", &sample("circuit"));
    assert_eq!((status, &answer["error"]["code"]), (503, &json!("jobs")), "{answer}");
    let (status, answer) = small.recommend("?effort=measure&generate=heat:500&budget=2", "", b"");
    assert_eq!((status, &answer["ranking"][0]["source"]), (200, &json!("measured")), "{answer}");
}

#[test]
fn features_alone_are_no_job() {
    let service = serve(&[]);
    let body = br#"{"features": {"nrows": 5000, "ncols": 5000, "nnz": 25000}}"#;
    let (status, answer) = service.recommend("?effort=measure", "", body);
    assert_eq!((status, &answer["error"]["code"]), (400, &json!("argument")), "{answer}");
    // A body that is no matrix is a job that fails, with the reason of the reader.
    let (status, answer) = service.recommend("?effort=measure", "", b"no matrix");
    assert_eq!((status, &answer["error"]["code"]), (400, &json!("input")), "{answer}");
    assert_eq!(service.ended_job(1)["error"]["message"], answer["error"]["message"]);
}

#[test]
fn two_services_never_share_a_folder() {
    for alone in [&[][..], &["--no-wisdom"]] {
        let service = serve(alone);
        let mut second = Command::new(env!("CARGO_BIN_EXE_ellect"));
        second.args(["serve", "--listen", "127.0.0.1:0", "--data", &service.data]).args(alone);
        let output = second.output().expect("it ends");
        let stated = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stated}");
        assert!(stated.contains("in use by another process"), "{stated}");
    }
}

#[test]
fn a_damaged_database_is_restored_and_damaged_jobs_are_left_out() {
    let service = serve(&[]);
    let (status, measured) = service.recommend("?effort=measure&budget=3", "", &sample("circuit"));
    assert_eq!(status, 200, "{measured}");
    service.signal("TERM");
    let folder = std::path::Path::new(&service.data).to_path_buf();
    let mut service = service;
    service.process.wait().expect("it ends");
    std::fs::write(folder.join("wisdom/db"), vec![0x5a; 5000]).expect("writable");
    let jobs = folder.join("jobs/jobs.jsonl");
    let text = std::fs::read_to_string(&jobs).expect("text");
    std::fs::write(&jobs, format!("{{\"id\": 1, \n{text}\0\0")).expect("writable");
    let service = service.again(&[]);
    assert_eq!(service.json("GET", "/jobs/1", b"").1["result"], measured);
    let print = measured["fingerprint"].as_str().expect("it was analysed");
    let (status, structure) = service.json("GET", &format!("/structures/{print}"), b"");
    assert_eq!(status, 200, "{structure}");
    assert!(structure["measurements"].as_array().is_some_and(|all| !all.is_empty()));
    assert_eq!(service.send("GET", "/readyz", "", b"").0, 200);
}
