//! The layers of each package: a module uses only modules below it.
//!
//! Each list names the modules of a package from the ground floor up. A module may use the modules
//! before it in the list, never those behind it. Test code may use everything.
//!
//! A format is known by its name only in its module, in the table of formats and in its kernels.

mod toy;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use ellect::format::FORMATS;

/// The library's modules, ground floor first.
const LIBRARY: &[&str] = &[
    "units",
    "error",
    "refusal",
    "par",
    "scalar",
    "dense",
    "permutation",
    "dots",
    "csr",
    "assemble",
    "check",
    "fingerprint",
    "density",
    "write",
    "read",
    "reorder",
    "partition",
    "generate",
    "device",
    "compress",
    "protocol",
    "target",
    "workload",
    "analysis",
    "format",
    "export",
    "features",
    "cost",
    "model",
    "choose",
    "cuda",
    "operator",
    "measure",
    "wisdom",
    "session",
    "pair",
    "complex",
    "tuner",
    "lazy",
    "sharded",
    "unstable",
];

/// The modules of the package for training, ground floor first.
const TRAINING: &[&str] = &[
    "stats",
    "corpus",
    "case",
    "sample_cases",
    "dataset",
    "learner",
    "plan",
    "records",
    "profile",
    "conversions",
    "settings",
    "regressors",
    "crossval",
    "trees",
    "policy_replay",
    "amortized",
    "tree",
    "stages",
    "quick",
    "gate",
    "replay",
    "repeatability",
    "guard",
    "rules",
    "goals",
    "targets",
    "report",
    "plot",
    "estimates",
    "train",
    "card",
    "evaluate",
    "tune",
];

/// The modules of the command line and the service, ground floor first.
const PROGRAM: &[&str] = &[
    "output",
    "query",
    "started",
    "options",
    "arguments",
    "tuner_of",
    "shared",
    "views",
    "installed",
    "service",
    "commands",
    "cli",
    "configured",
    "lib",
    "bin",
];

/// Every Rust file under `folder`.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the repository") {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

/// Returns the code of a file without comments and without the tests at its end.
fn code(text: &str) -> String {
    let starts = ["#[cfg(test)]\nmod ", "#[cfg(all(test, "];
    let tests = starts.iter().filter_map(|start| text.find(start)).min().unwrap_or(text.len());
    let lines = text[..tests].lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the modules of the crate that this code uses.
fn used(code: &str) -> BTreeSet<String> {
    names_after("crate::", code)
}

/// Returns the first names after `path` in this code, for instance after `crate::`: one for
/// `crate::a::b`, several for `crate::{a, b::c}`.
fn names_after(path: &str, code: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for after in code.split(path).skip(1) {
        let Some(list) = after.strip_prefix('{') else {
            names.insert(first_name(after));
            continue;
        };
        let (mut depth, mut item) = (0, String::new());
        for c in list.chars() {
            match c {
                '}' if depth == 0 => break,
                ',' if depth == 0 => {
                    names.insert(first_name(item.trim()));
                    item.clear();
                    continue;
                }
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            item.push(c);
        }
        names.insert(first_name(item.trim()));
    }
    names
}

/// Returns the identifier that `text` starts with.
fn first_name(text: &str) -> String {
    text.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
}

/// Returns the top-level module that contains this file: `a` for `a.rs` and for `a/b.rs`.
fn module(file: &Path) -> String {
    let first = file.components().next().expect("a path in the package");
    let name = first.as_os_str().to_string_lossy().into_owned();
    let name = name.strip_suffix(".rs").unwrap_or(&name);
    // A file that replaces a module in builds without a feature has that module's place.
    name.strip_suffix("_none").unwrap_or(name).to_string()
}

/// Returns the uses of modules behind a module's own place in `layers`.
fn arrows_upward(folder: &str, layers: &[&str], roots: &[&str]) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut files = Vec::new();
    sources(&folder, &mut files);
    let place = |name: &str| layers.iter().position(|layer| *layer == name);
    let mut upward = Vec::new();
    for path in files {
        let file = path.strip_prefix(&folder).expect("a file of the folder");
        let own = module(file);
        if roots.contains(&own.as_str()) || file.ends_with("tests.rs") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("sources are UTF-8");
        let from = place(&own).unwrap_or_else(|| panic!("{own} has no place among the layers"));
        for name in used(&code(&text)) {
            // Names at the root are re-exports for users; code inside the package must name the
            // module.
            let root_item = name.starts_with(|c: char| c.is_ascii_uppercase());
            assert!(!root_item, "{}: name the module of crate::{name}", path.display());
            match place(&name) {
                Some(to) if to > from => {
                    upward.push(format!("{}: {own} -> {name}", file.display()))
                }
                Some(_) => {}
                None => panic!("{}: crate::{name} has no place among the layers", path.display()),
            }
        }
    }
    upward
}

#[test]
fn the_library_uses_only_what_stands_below() {
    assert_eq!(arrows_upward("src", LIBRARY, &["lib"]), [""; 0]);
}

#[test]
fn training_uses_only_what_stands_below() {
    assert_eq!(arrows_upward("training/src", TRAINING, &["lib"]), [""; 0]);
}

#[test]
fn the_program_uses_only_what_stands_below() {
    assert_eq!(arrows_upward("api/src", PROGRAM, &[]), [""; 0]);
}

#[test]
fn kernels_and_the_library_use_no_package_above() {
    for (folder, above) in [
        ("kernels/src", &["ellect::", "ellect_training::"][..]),
        ("src", &["ellect_training::", "axum::", "clap::"]),
        ("training/src", &["axum::", "clap::"]),
    ] {
        let mut files = Vec::new();
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut files);
        assert!(!files.is_empty(), "{folder} has sources");
        for path in files {
            let text = code(&fs::read_to_string(&path).expect("sources are UTF-8"));
            let found = above.iter().find(|package| text.contains(*package));
            assert_eq!(found, None, "{}", path.display());
        }
    }
}

/// Names of formats outside the formats' modules: the file, the name, and the thing that has it.
const NAMED: &[(&str, &str, &str)] = &[
    ("src/cuda/mod.rs", "coo", "the image of a kernel that is made to fail"),
    ("src/cuda/operator.rs", "cusparse", "the library, in records of measurements"),
    ("src/format/baseline.rs", "csr", "the baseline"),
    ("src/format/baseline.rs", "cusparse", "the baseline with the vendor's library"),
    ("src/format/baseline.rs", "pcsr", "the candidate that needs no analysis"),
    ("src/measure/provenance.rs", "cusparse", "the library, in records of measurements"),
    ("src/measure/vendor_transposed.rs", "cusparse", "the library, in records of measurements"),
    ("src/read/zip/in_place.rs", "csr", "SciPy's name of a format of files"),
    ("src/read/zip/npz.rs", "coo", "SciPy's name of a format of files"),
    ("src/read/zip/npz.rs", "csr", "SciPy's name of a format of files"),
    ("src/read/zip/npz.rs", "dia", "SciPy's name of a format of files"),
];

#[test]
fn only_its_module_and_the_table_name_a_format() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = vec![root.join("build.rs")];
    for folder in ["src", "kernels/src", "kernels/build", "training/src", "api/src"] {
        sources(&root.join(folder), &mut files);
    }
    // The modules of formats lie in folders of `src/format`, its own files are shared by all.
    let format = root.join("src/format");
    files.retain(|file| file.parent() == Some(&format) || !file.starts_with(&format));
    files.retain(|file| !file.ends_with("tests.rs"));
    assert!(files.len() > 100, "the sources are where they were");
    let mut found = BTreeSet::new();
    for path in files {
        let code = code(&fs::read_to_string(&path).expect("sources are UTF-8"));
        let file = path.strip_prefix(root).expect("a file of the repository");
        let modules = names_after("format::", &code);
        let formats = FORMATS.iter().chain(toy::FORMATS);
        let ids = formats
            .flat_map(|format| std::iter::once(format.name).chain(format.aliases.iter().copied()));
        for id in ids {
            let quoted = [format!("\"{id}\""), format!("\"{id}:")];
            if modules.contains(id) || quoted.iter().any(|text| code.contains(text)) {
                found.insert((file.display().to_string(), id));
            }
        }
    }
    let allowed = NAMED.iter().map(|(file, id, _)| (file.to_string(), *id)).collect();
    assert_eq!(found, allowed);
}

#[test]
fn every_kind_of_use_is_seen() {
    let code = code(
        "use crate::a::B;\nuse crate::{c, d::{E, f}};\n// crate::not\nfn g() { crate::h::i() }\n\
         #[cfg(test)]\nmod tests { use crate::later; }\n",
    );
    assert_eq!(Vec::from_iter(used(&code)), ["a", "c", "d", "h"]);
}
