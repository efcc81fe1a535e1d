//! Tests of `ellect convert`, as a person or a script uses it.

use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use serde_json::Value;

#[path = "../../kernels/build/nvcc.rs"]
#[allow(dead_code, reason = "the build script uses the rest")]
mod nvcc;

fn sample(name: &str) -> String {
    format!("{}/../tests/data/{name}.mtx", env!("CARGO_MANIFEST_DIR"))
}

/// A folder of its own for a test.
fn folder(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("convert").join(test);
    fs::create_dir_all(&folder).expect("the build folder is writable");
    folder
}

/// Returns the program with these arguments, which writes to `folder`.
fn convert(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::cargo_bin("ellect").expect("the program is built");
    command.env("ELLECT_DATA", folder.join("data")).current_dir(folder);
    command.arg("convert").args(args);
    command
}

fn json(folder: &Path, args: &[&str]) -> Value {
    let output = convert(folder, args).assert().success().get_output().stdout.clone();
    serde_json::from_slice(&output).expect("the answer is JSON")
}

/// Returns the standard error of a command that ends with exit code 2.
fn error(folder: &Path, args: &[&str]) -> String {
    let output = convert(folder, args).assert().code(2).get_output().clone();
    assert!(output.stdout.is_empty(), "errors go to standard error alone");
    String::from_utf8(output.stderr).expect("errors are text")
}

#[test]
fn layouts_of_several_formats_are_written() {
    let (folder, file) = (folder("several"), sample("elasticity"));
    for (to, first) in [
        ("csr", "row_ptr"),
        ("coo", "row_idx"),
        ("hll:col=16", "slice_ptr"),
        ("bhll", "hack_ptr"),
        ("hyb", "ell_values"),
        ("st_csr", "tiles"),
    ] {
        let args = [&file, "--to", to, "--device", "h200", "-o", "a.npz", "--json"];
        let about = json(&folder, &args);
        assert_eq!(about["arrays"][0]["name"], first, "{to}");
        let candidate = about["candidate"].as_str().expect("text");
        assert!(candidate.starts_with(to.split(':').next().expect("a format")), "{candidate}");
        assert_eq!((&about["nnz"], &about["device"]), (&5598.into(), &"h200".into()));
        let archive = fs::read(folder.join("a.npz")).expect("written");
        assert!(archive.starts_with(b"PK\x03\x04"));
    }
    let args = [&file, "--to", "hll", "--precision", "f32", "-o", "b.npz"];
    let output = convert(&folder, &args).assert().success().get_output().stdout.clone();
    let text = String::from_utf8(output).expect("text");
    assert!(text.contains("slice_rows = 32: rows of a slice"), "{text}");
    assert!(text.contains("<f4"), "{text}");
}

#[test]
fn the_best_candidate_is_the_one_that_recommend_chooses() {
    let folder = folder("best");
    let workload = ["--generate", "elasticity:60000", "--device", "h200", "--spmvs", "1e6"];
    let mut recommend = Command::cargo_bin("ellect").expect("the program is built");
    recommend.env("ELLECT_DATA", folder.join("data")).arg("recommend").args(workload);
    let answer = recommend.arg("--json").assert().success().get_output().stdout.clone();
    let answer: Value = serde_json::from_slice(&answer).expect("JSON");
    let mut args = workload.to_vec();
    args.extend(["--to", "best", "-o", "best.npz", "--json"]);
    assert_eq!(json(&folder, &args)["candidate"], answer["choice"]);
    assert_ne!(answer["choice"], "csr");
}

#[test]
fn what_cannot_be_written_is_said_with_what_to_do() {
    let (folder, file) = (folder("errors"), sample("elasticity"));
    let with = |more: &[&str]| {
        let mut args = vec![file.as_str(), "-o", "a.npz"];
        args.extend(more);
        error(&folder, &args)
    };
    let vendor = with(&["--to", "cusparse", "--device", "h200"]);
    assert!(
        vendor.contains("library of the device's vendor") && vendor.contains("csr"),
        "{vendor}"
    );
    let host = with(&["--to", "hll", "--emit", "cuda"]);
    assert!(host.contains("--device, h200"), "{host}");
    assert!(with(&["--to", "hlll"]).contains("there are: csr"));
    assert!(with(&["--to", "hll:hack=7"]).contains("must be one of 32"));
    assert!(with(&["--to", "cdia", "--device", "h200"]).contains("cdia"));
    assert!(with(&["--to", "csr", "--program", "a.cu"]).contains("--emit"));
    assert!(with(&["--to", "csr", "--top", "3"]).contains("ellect recommend"));
    let one = ["--to", "csr", "--device", "h200", "--emit", "cuda", "--program", "a.npz"];
    assert!(with(&one).contains("would be one file"));
    assert!(!folder.join("a.npz").exists(), "nothing is written");
    for pipe in ["-", "/dev/stdout"] {
        let said = error(&folder, &[&file, "--to", "csr", "-o", pipe]);
        assert!(said.contains("no regular file") && said.contains("name a file"), "{said}");
    }
    let own = folder.join("own.bin");
    fs::copy(&file, &own).expect("writable");
    let own = own.to_string_lossy();
    let args = [&own, "--to", "csr", "--device", "h200", "--emit", "cuda", "-o", "own.npz"];
    assert!(error(&folder, &args).contains("own.bin would be written over the matrix"));
    let nowhere = error(&folder, &[&file, "--to", "csr", "-o", "nosuch/a.npz"]);
    assert!(nowhere.contains("nosuch/a.npz"), "{nowhere}");
    let missing = error(&folder, &[&file, "-o", "a.npz"]);
    assert!(missing.contains("--to"), "{missing}");
}

/// Candidates whose programs differ: in launches, scratch memory, counters and shared memory.
const COMPILED: [(&str, &str, &str); 8] = [
    ("hll:col=16", "elasticity:900", "f64"),
    ("hyb", "circuit:2000", "f32"),
    ("csr", "rmat:3000", "f64"),
    ("pcsr:kernel=two,tile=1024", "rmat:3000", "f32"),
    ("st_csr_vi", "constant5:2000", "f64"),
    ("column_sweep", "rmat:3000", "f32"),
    ("ehyb", "elasticity:900", "f64"),
    ("hub_ell", "rmat:3000", "f64"),
];

#[test]
#[allow(clippy::print_stdout, reason = "says what is not checked")]
fn programs_hold_their_kernels_and_compile_alone() {
    let folder = folder("programs");
    let nvcc = nvcc::find(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels"));
    let found = std::process::Command::new(&nvcc).arg("--version").output().is_ok();
    if !found {
        println!("no program is compiled: there is no nvcc; kernels/toolchain.sh fetches one");
    }
    for (k, (to, spec, precision)) in COMPILED.into_iter().enumerate() {
        let output = format!("p{k}.npz");
        let args = ["--generate", spec, "--to", to, "--device", "h200", "--precision", precision];
        let mut command = convert(&folder, &args);
        command.args(["-o", &output, "--emit", "cuda"]).assert().success();
        let program = folder.join(format!("p{k}.cu"));
        let text = fs::read_to_string(&program).expect("written");
        assert!(text.contains("__global__") && text.contains("<<<"), "{to}");
        assert!(!text.contains("#include \"") && !text.contains("#define"), "{to}");
        let data = fs::read(folder.join(format!("p{k}.bin"))).expect("written");
        assert!(data.starts_with(b"ELLECTL1") && data.len().is_multiple_of(8), "{to}");
        if found {
            // Without a CUDA runtime library to link, an object file shows as much.
            let mut compile = std::process::Command::new(&nvcc);
            compile.arg("-c").arg(&program).arg("-o").arg(program.with_extension("o"));
            let output = compile.output().expect("nvcc runs");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{to}: {said}");
            assert!(!said.contains("warning #"), "{to}: {said}");
        }
    }
}
