//! Tests of tokens and of the configuration of a service.

mod service;

use std::process::{Command, Output};

use serde_json::{Value, json};

use service::{sample, serve};

const READ: &str = "0123456789abcdef";
const WRITE: &str = "fedcba9876543210";

/// Runs `ellect serve` with arguments that make it end at once.
fn ended(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ellect"));
    command.arg("serve").args(arguments).envs(environment.iter().copied());
    command.output().expect("the program runs")
}

#[test]
fn a_service_with_tokens_asks_for_one() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let file = folder.path().join("tokens");
    std::fs::write(&file, format!("# team\nread {READ}\nwrite {WRITE}\n")).expect("a file");
    let service = serve(&["--tokens", file.to_str().expect("text")]);
    let matrix = sample("circuit");
    let bearer = |token: &str| format!("Authorization: Bearer {token}\r\n");
    let measure = "?effort=measure&budget=5&top=1";
    for (query, headers, status, code) in [
        ("", String::new(), 401, json!("token")),
        ("", bearer("0123456789abcdeg"), 401, json!("token")),
        ("", format!("Authorization: Basic {READ}\r\n"), 401, json!("token")),
        ("", bearer(READ), 200, Value::Null),
        (measure, bearer(READ), 403, json!("role")),
        (measure, bearer(WRITE), 200, Value::Null),
    ] {
        let (got, answer) = service.recommend(query, &headers, &matrix);
        assert_eq!((got, &answer["error"]["code"]), (status, &code), "{query} {headers}");
    }
    let refused = service.ask("GET", "/metrics", "", b"");
    assert!(refused.status == 401 && refused.head.contains("www-authenticate: Bearer"));
    for target in ["/healthz", "/readyz"] {
        assert_eq!(service.send("GET", target, "", b"").0, 200);
    }
}

#[test]
fn other_machines_are_served_with_tokens_or_if_that_is_asked_for() {
    let output = ended(&["--listen", "0.0.0.0:0"], &[]);
    let stated = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2));
    assert!(stated.contains("--tokens") && stated.contains("--insecure"), "{stated}");
    let output = ended(&["--tokens", "/nosuch/tokens"], &[]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("/nosuch/tokens"));
}

#[test]
fn options_come_from_the_command_line_the_environment_and_a_file_in_this_order() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let path = folder.path().join("ellect.toml");
    let file = path.to_str().expect("text");
    std::fs::write(&path, "queue = 5\nmemory = \"8G\"\nworkers = 3\ninsecure = true\n")
        .expect("a file");
    let set = [("ELLECT_QUEUE", "6"), ("ELLECT_WORKERS", "4")];
    let printed = |arguments: &[&str], set: &[(&str, &str)]| {
        let output = ended(&[arguments, &["--print-config"]].concat(), set);
        let stated = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{stated}");
        String::from_utf8(output.stdout).expect("text")
    };
    let all = printed(&["--config", file, "--workers", "7"], &set);
    for line in ["queue = \"6\"", "memory = \"8G\"", "workers = \"7\"", "insecure = \"true\""] {
        assert!(all.lines().any(|other| other == line), "{line} is not in {all}");
    }
    // The printed text is such a file.
    std::fs::write(&path, &all).expect("a file");
    assert_eq!(printed(&["--config", file], &[]), all);
    // The file may be named by the environment.
    assert_eq!(printed(&[], &[("ELLECT_CONFIG", file)]), all);
    for (text, stated) in [
        ("nosuch = 1", "no option is named 'nosuch'"),
        ("queue = [1]", "queue is of type array"),
        ("queue = ", "ellect.toml"),
        ("memory = \"much\"", "it is 'much'"),
    ] {
        std::fs::write(&path, text).expect("a file");
        let output = ended(&["--config", file], &[]);
        let got = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.code() == Some(2) && got.contains(stated),
            "{stated} is not in {got}"
        );
    }
}
