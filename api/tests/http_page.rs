//! Tests of the page and of what it asks for: files, samples, classes, structures and pictures.

mod service;

use serde_json::{Value, json};

use service::{Service, sample, serve};

const BROWSER: &str = "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n";

/// Returns the page as a browser gets it: the head and the text.
fn page(service: &Service) -> (String, String) {
    let answer = service.ask("GET", "/", BROWSER, b"");
    assert_eq!(answer.status, 200);
    (answer.head, String::from_utf8(answer.body).expect("text"))
}

/// Returns the paths of the page's own files.
fn files(text: &str) -> Vec<String> {
    let all = text.split("=\"page/").skip(1).filter_map(|rest| rest.split('"').next());
    all.map(|path| format!("/page/{path}")).collect()
}

#[test]
fn a_browser_gets_the_page_and_its_files_and_a_program_the_text() {
    let service = serve(&[]);
    let (head, text) = page(&service);
    assert!(head.contains("content-type: text/html"), "{head}");
    for stated in ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"] {
        assert!(head.contains(stated), "{head}");
    }
    assert!(!head.contains("unsafe") && !text.contains("{version}"), "{head}");
    let paths = files(&text);
    assert_eq!(paths.len(), 4, "{paths:?}");
    for path in &paths {
        let answer = service.ask("GET", path, "", b"");
        assert_eq!(answer.status, 200, "{path}");
        for stated in ["immutable", "x-content-type-options: nosniff", "content-type: "] {
            assert!(answer.head.contains(stated), "{path}: {}", answer.head);
        }
    }
    let folder = paths[0].rsplit_once('/').expect("a folder").0;
    for wrong in [format!("{folder}/nosuch.js"), paths[0].replace(folder, "/page/old")] {
        assert_eq!(service.get(&wrong).0, 404, "{wrong}");
    }
    let (status, text) = service.send("GET", "/", "Accept: */*\r\n", b"");
    assert!(status == 200 && text.starts_with(b"ellect chooses"));
}

#[test]
fn a_service_without_a_page_has_the_text_alone() {
    let service = serve(&["--no-page"]);
    let (head, text) = page(&service);
    assert!(head.contains("content-type: text/plain") && text.starts_with("ellect chooses"));
}

#[test]
fn the_page_needs_no_token_but_what_it_asks_for_does() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let file = folder.path().join("tokens");
    std::fs::write(&file, "read 0123456789abcdef\n").expect("a file");
    let service = serve(&["--tokens", file.to_str().expect("text")]);
    for path in files(&page(&service).1) {
        assert_eq!(service.ask("GET", &path, "", b"").status, 200, "{path}");
    }
    for path in
        ["/structures", "/classes", "/samples", "/nosuch", "/page/x", "/samples/circuit.mtx"]
    {
        assert_eq!(service.get(path).0, 401, "{path}");
    }
}

#[test]
fn samples_and_classes_can_be_asked_for() {
    let service = serve(&[]);
    let (_, samples) = service.get("/samples");
    let samples = samples.as_array().expect("a list").clone();
    assert_eq!(samples.len(), 3);
    for one in samples {
        let path = one["path"].as_str().expect("text");
        let (status, matrix) = service.send("GET", path, "", b"");
        assert_eq!(status, 200, "{path}");
        let (status, answer) = service.recommend("?device=h200&top=1", "", &matrix);
        assert_eq!((status, &answer["device"]), (200, &json!("h200")), "{answer}");
    }
    assert_eq!(service.get("/samples/nosuch").0, 404);
    let (_, classes) = service.get("/classes");
    for class in classes.as_array().expect("a list") {
        let name = class["name"].as_str().expect("text");
        let target = format!("?device=h200&top=1&effort=estimate&generate={name}:500");
        assert_eq!(service.recommend(&target, "", b"").0, 200, "{name}");
    }
}

#[test]
fn a_posted_matrix_has_a_picture_and_a_measured_one_is_listed() {
    let service = serve(&[]);
    let (_, none) = service.get("/structures?origin=own");
    assert_eq!(none, json!({"structures": [], "total": 0, "next": null, "wins": []}));
    let matrix = sample("circuit");
    let (_, posted) = service.recommend("?device=h200&top=1", "", &matrix);
    let print = posted["fingerprint"].as_str().expect("it was analysed").to_string();
    let (status, structure) = service.get(&format!("/structures/{print}"));
    assert_eq!(status, 200, "{structure}");
    let sum = |list: &Value, of: &dyn Fn(&Value) -> u64| -> u64 {
        list.as_array().expect("a list").iter().map(of).sum()
    };
    let entries = sum(&structure["density"]["counts"], &|count| count.as_u64().expect("a count"));
    assert_eq!(json!(entries), structure["nnz"]);
    let rows = sum(&structure["row_lengths"], &|bin| bin["rows"].as_u64().expect("a count"));
    assert_eq!(json!(rows), structure["nrows"]);
    assert_eq!(structure["features"], posted["features"]);
    assert_eq!(structure["measurements"], json!([]));
    let error = posted["ranking"][0]["spmv_error"].as_f64().expect("a number");
    assert!(error > 0.0 && error < 1.0, "{error}");

    let (status, _) = service.recommend("?effort=measure&budget=3&wait_ms=100000", "", &matrix);
    assert_eq!(status, 200);
    let (_, own) = service.get("/structures?origin=own");
    let listed = &own["structures"][0];
    assert_eq!((&own["total"], &listed["fingerprint"]), (&json!(1), &json!(print)), "{own}");
    let best = &listed["best"][0];
    assert!(best["spmv_us"].as_f64().is_some_and(|us| us > 0.0), "{own}");
    assert_eq!(own["wins"][0]["formats"][0]["format"], best["format"]);
    assert_eq!(
        (&own["wins"][0]["structures"], &own["wins"][0]["device"]),
        (&json!(1), &json!("cpu"))
    );
    let (_, other) = service.get("/structures?text=nosuch");
    assert_eq!(other["total"], json!(0));
    let (_, measured) = service.get(&format!("/structures/{print}"));
    assert!(measured["density"].is_object() && measured["measurements"][0].is_object());
    assert_eq!(service.get("/structures?limit=0").0, 400);
    assert_eq!(service.get("/structures?origin=nosuch").0, 400);
    // The picture of a measured matrix outlives the process.
    service.signal("TERM");
    let service = service.again(&[]);
    let (_, later) = service.get(&format!("/structures/{print}"));
    assert_eq!(later["density"], measured["density"]);
}

#[test]
fn the_measurements_that_ship_are_listed_page_by_page() {
    let service = serve(&[]);
    let ask =
        |query: &str| service.get(&format!("/structures?origin=shipped&text=elasticity{query}")).1;
    let all = ask("&limit=1000");
    let total = all["total"].as_u64().expect("a number");
    assert!(total > 5 && all["next"].is_null());
    let first = ask("&limit=3");
    assert_eq!((&first["next"], &first["total"]), (&json!(3), &json!(total)));
    let second = ask("&limit=3&from=3");
    let names = |list: &Value, range: std::ops::Range<usize>| -> Vec<Value> {
        list["structures"].as_array().expect("a list")[range].to_vec()
    };
    assert_eq!(names(&all, 0..3), names(&first, 0..3));
    assert_eq!(names(&all, 3..6), names(&second, 0..3));
    for wins in all["wins"].as_array().expect("a list") {
        let formats = wins["formats"].as_array().expect("a list");
        let won: u64 = formats.iter().map(|one| one["wins"].as_u64().expect("a count")).sum();
        assert_eq!(json!(won), wins["structures"]);
        let counts: Vec<_> = formats.iter().map(|one| one["wins"].as_u64()).collect();
        assert!(counts.is_sorted_by(|a, b| a >= b), "{counts:?}");
    }
}
