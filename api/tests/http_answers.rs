//! Tests of kept answers, of the forms of requests and answers, and of the routes that describe the
//! service.

mod service;

use std::process::Command;

use serde_json::{Value, json};

use service::{sample, serve};

#[test]
fn the_same_body_is_computed_once() {
    let service = serve(&[]);
    let matrix = sample("elasticity");
    let ask = || service.recommend("?device=h200", "", &matrix);
    let answers: Vec<_> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        all.into_iter().map(|one| one.join().expect("no panic")).collect()
    });
    assert_eq!(answers[0].0, 200);
    assert!(answers.iter().all(|answer| *answer == answers[0]));
    let computed = "ellect_answers_total{from=\"computed\"}";
    assert_eq!(service.figure(computed), 1.0);
    assert_eq!(service.figure("ellect_answers_total{from=\"kept\"}"), 7.0);
    // The list is cut after the choice, and names are those of the same device.
    let (_, short) = service.recommend("?device=H200&top=1", "", &matrix);
    assert_eq!(short["ranking"][0], answers[0].1["ranking"][0]);
    assert_eq!(service.figure(computed), 1.0);
    let mut other = matrix.clone();
    other.extend_from_slice(b"\n");
    for (query, body) in [("?device=h200", &other), ("?device=h200&spmvs=10", &matrix)] {
        assert_eq!(service.recommend(query, "", body).0, 200);
    }
    assert_eq!(service.figure(computed), 3.0);
}

#[test]
fn a_matrix_that_was_posted_is_asked_for_by_its_fingerprint() {
    let service = serve(&[]);
    let matrix = sample("elasticity");
    let (_, posted) = service.recommend("?device=h200&spmvs=1000", "", &matrix);
    let print = posted["fingerprint"].as_str().expect("it was analysed");
    let ask = |query: &str| service.get(&format!("/recommend/{print}?device=h200{query}"));
    assert_eq!(ask("&spmvs=1000"), (200, posted.clone()));
    for spmvs in [1, 30, 1_000_000] {
        let query = format!("&spmvs={spmvs}");
        let (status, again) = ask(&query);
        assert_eq!((status, &again["spmvs"]), (200, &json!(spmvs)));
        let (_, expected) = service.recommend(&format!("?device=h200{query}"), "", &matrix);
        assert_eq!(again["choice"], expected["choice"], "{spmvs} products");
        assert!(again["explanation"][0].as_str().is_some_and(|text| text.contains("Ranked again")));
    }
    for (query, status, code) in [
        ("&precision=f32", 404, "matrix"),
        ("&effort=measure", 400, "argument"),
        ("&mode=prepare", 400, "argument"),
    ] {
        let (got, answer) = ask(query);
        assert_eq!((got, &answer["error"]["code"]), (status, &json!(code)), "{answer}");
    }
    let (status, answer) = service.get("/recommend/00000000000000000000000000000000");
    assert_eq!((status, &answer["error"]["code"]), (404, &json!("matrix")));
    let (status, answer) = service.get("/recommend/xyz");
    assert_eq!((status, &answer["error"]["code"]), (400, &json!("argument")));
    // Models that were read again may give other answers.
    let hangup = Command::new("kill").args(["-HUP", &service.process.id().to_string()]).status();
    assert!(hangup.is_ok());
    let forgotten = (0..200).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        ask("&spmvs=1000").0 == 404
    });
    assert!(forgotten, "the answers are forgotten");
    assert_eq!(service.recommend("?device=h200&spmvs=1000", "", &matrix), (200, posted));
}

#[test]
fn several_vectors_have_answers_of_their_own() {
    let service = serve(&[]);
    let matrix = sample("elasticity");
    let (status, one) = service.recommend("?device=h200", "", &matrix);
    assert_eq!((status, one.get("vectors")), (200, None));
    let (status, four) = service.recommend("?device=h200&vectors=4", "", &matrix);
    assert_eq!((status, &four["vectors"]), (200, &json!(4)));
    assert_eq!(four["ranking"][0]["source"], "predicted");
    let print = four["fingerprint"].as_str().expect("it was analysed");
    let kept = |query: &str| service.get(&format!("/recommend/{print}?device=h200{query}"));
    assert_eq!(kept("&vectors=4"), (200, four.clone()));
    assert_eq!(kept(""), (200, one));
    assert_eq!(kept("&vectors=5").0, 404);
    let (status, answer) = service.recommend("?vectors=0", "", &matrix);
    assert_eq!((status, &answer["error"]["code"]), (400, &json!("argument")));
    let stated = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(stated.contains("it must be from 1 to 1024"), "{stated}");
}

#[test]
fn both_directions_have_one_answer() {
    let service = serve(&[]);
    let matrix = sample("convection_diffusion");
    let (status, one) = service.recommend("?device=h200", "", &matrix);
    assert_eq!((status, one.get("transposed")), (200, None));
    let (status, both) = service.recommend("?device=h200&transposed=500", "", &matrix);
    assert_eq!((status, &both["transposed"]["spmvs"]), (200, &json!(500)));
    assert_eq!(both["choice"], one["choice"]);
    let print = both["fingerprint"].as_str().expect("it was analysed").to_string();
    let kept = |query: &str| service.get(&format!("/recommend/{print}?device=h200{query}"));
    assert_eq!(kept("&transposed=500"), (200, both));
    assert_eq!(kept(""), (200, one));
    assert_eq!(kept("&transposed=400").0, 404);
    // A symmetric matrix has one layout for all products, and its answer is found again.
    let symmetric = sample("elasticity");
    let (status, both) = service.recommend("?device=h200&transposed=500", "", &symmetric);
    assert_eq!((status, &both["transposed"], &both["spmvs"]), (200, &Value::Null, &json!(1500)));
    let print = both["fingerprint"].as_str().expect("it was analysed").to_string();
    let (status, again) = service.get(&format!("/recommend/{print}?device=h200&transposed=500"));
    assert_eq!((status, again), (200, both));
}

#[test]
fn features_stand_in_for_a_matrix() {
    let service = serve(&[]);
    let (_, posted) = service.recommend("?device=h200", "", &sample("elasticity"));
    let body = json!({"features": posted["features"]}).to_string();
    let (status, answer) = service.recommend("?device=h200", "", body.as_bytes());
    assert_eq!((status, &answer["features"]), (200, &posted["features"]), "{answer}");
    assert!(answer["ranking"].as_array().is_some_and(|all| all.len() > 2), "{answer}");
    assert_eq!(answer["fingerprint"], Value::Null);
    // An answer as a whole names them too.
    let whole = posted.to_string();
    assert_eq!(service.recommend("?device=h200", "", whole.as_bytes()), (200, answer));
    let size = br#"{"features": {"nrows": 5000, "ncols": 5000, "nnz": 25000}}"#;
    assert_eq!(service.recommend("?device=h200", "", size).0, 200);
    for (query, body, stated) in [
        ("?device=cpu", &size[..], "GPU"),
        ("?device=h200&effort=estimate", &size[..], "effort predict"),
        ("?device=h200", br#"{"features": {"nrows": 5}}"#, "'ncols' is missing"),
        ("?device=h200", br#"{"features": {"nosuch": 5}}"#, "no feature is named 'nosuch'"),
        ("?device=h200", br#"{"features": {"nrows": 1e300, "ncols": 1, "nnz": 1}}"#, "'nrows' is"),
    ] {
        let (status, answer) = service.recommend(query, "", body);
        assert_eq!((status, &answer["error"]["code"]), (400, &json!("argument")), "{answer}");
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(stated), "{stated} is not in {message}");
    }
}

#[test]
fn new_measurements_replace_kept_answers() {
    let service = serve(&[]);
    let matrix = sample("circuit");
    let source = || {
        let (status, answer) = service.recommend("", "", &matrix);
        assert_eq!(status, 200, "{answer}");
        let ranking = answer["ranking"].as_array().expect("a list").clone();
        ranking.iter().any(|ranked| ranked["source"] == "measured")
    };
    assert!(!source());
    assert_eq!(service.recommend("?effort=measure&budget=5", "", &matrix).0, 200);
    assert!(source(), "the answer without measurements was kept");
}

#[test]
fn matrices_may_be_put_or_be_a_part_of_a_form() {
    let service = serve(&[]);
    let matrix = sample("circuit");
    let (_, posted) = service.recommend("?device=h200", "", &matrix);
    let (status, body) = service.send("PUT", "/recommend?device=h200", "", &matrix);
    assert_eq!(
        (status, serde_json::from_slice::<Value>(&body).expect("JSON")),
        (200, posted.clone())
    );
    let headers = "Content-Type: multipart/form-data; boundary=limit\r\n";
    let part = |name: &str| {
        let named = format!("Content-Disposition: form-data; name=\"{name}\"; filename=\"a.mtx\"");
        [format!("--limit\r\n{named}\r\n\r\n").as_bytes(), &matrix, b"\r\n"].concat()
    };
    let form = [part("file"), b"--limit--\r\n".to_vec()].concat();
    assert_eq!(service.recommend("?device=h200", headers, &form), (200, posted));
    let two = [part("file"), part("device"), b"--limit--\r\n".to_vec()].concat();
    let (status, answer) = service.recommend("?device=h200", headers, &two);
    assert_eq!((status, &answer["error"]["code"]), (400, &json!("argument")), "{answer}");
    assert!(answer["error"]["message"].as_str().is_some_and(|text| text.contains("'device'")));
    for broken in [&form[..form.len() / 2], b"--limit--\r\n", b""] {
        let (status, answer) = service.recommend("?device=h200", headers, broken);
        assert_eq!((status, &answer["error"]["code"]), (400, &json!("input")), "{answer}");
    }
}

#[test]
fn text_is_the_text_of_the_command_line() {
    let service = serve(&[]);
    let target = "/recommend?device=h200&generate=heat:2000";
    let (status, text) = service.send("POST", target, "Accept: text/plain\r\n", b"");
    assert_eq!(status, 200);
    let output = Command::new(env!("CARGO_BIN_EXE_ellect"))
        .args(["recommend", "--generate", "heat:2000", "--device", "h200", "--why"])
        .args(["--data", &service.data])
        .output()
        .expect("the program runs");
    assert_eq!(String::from_utf8_lossy(&text), String::from_utf8_lossy(&output.stdout));
}

#[test]
fn the_service_describes_itself() {
    let service = serve(&[]);
    assert_eq!(service.get("/version"), (200, json!({"version": env!("CARGO_PKG_VERSION")})));
    assert_eq!(service.get("/readyz"), (200, json!({"status": "ready"})));
    for (target, args) in [("/formats", "formats"), ("/devices", "devices")] {
        let output = Command::new(env!("CARGO_BIN_EXE_ellect"))
            .args([args, "--json", "--data", &service.data])
            .output()
            .expect("the program runs");
        let printed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(service.get(target), (200, printed), "{target}");
    }
    let (status, models) = service.get("/models");
    let all = models.as_array().expect("a list");
    let h200 = all.iter().filter(|model| model["device"] == "h200");
    assert_eq!((status, h200.count()), (200, 4), "{models}");

    let (_, posted) = service.recommend("?effort=measure&budget=5", "", &sample("circuit"));
    let print = posted["fingerprint"].as_str().expect("it was analysed");
    // Its features are stored, and suffice for a GPU.
    let (status, answer) = service.get(&format!("/recommend/{print}?device=h200"));
    assert_eq!((status, &answer["fingerprint"]), (200, &posted["fingerprint"]), "{answer}");
    assert_eq!(answer["features"]["nnz"], posted["features"]["nnz"]);
    let (status, structure) = service.get(&format!("/structures/{print}"));
    assert_eq!((status, &structure["nnz"]), (200, &posted["features"]["nnz"]));
    assert!(structure["measurements"].as_array().is_some_and(|all| !all.is_empty()));
    let (status, answer) = service.get("/structures/00000000000000000000000000000000");
    assert_eq!((status, &answer["error"]["code"]), (404, &json!("matrix")));

    let (_, text) = service.send("GET", "/", "", b"");
    let text = String::from_utf8_lossy(&text);
    for stated in ["GET /structures/{fingerprint}", "413 limit", "429 memory", "GET /metrics"] {
        assert!(text.contains(stated), "{stated} is not in {text}");
    }
    let measured = "ellect_requests_total{route=\"/recommend\",status=\"200\"}";
    assert_eq!(service.figure(measured), 1.0);
    assert!(service.figure("ellect_wisdom_revision") >= 1.0);
    // A connection is counted until a moment after its end.
    let alone = (0..100).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        service.figure("ellect_connections") == 1.0
    });
    assert!(alone, "other connections are closed");
}
