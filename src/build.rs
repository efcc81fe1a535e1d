//! Hashes the sources of the host products: records of other sources are not used. Lists the models
//! that ship, and the fingerprints of the wisdom that ships.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

/// What a host conversion or product runs through, under `src/`.
const SOURCES: [&str; 6] =
    ["format", "operator.rs", "par.rs", "partition.rs", "reorder.rs", "scalar.rs"];

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let mut files = Vec::new();
    for source in SOURCES {
        let path = root.join("src").join(source);
        println!("cargo:rerun-if-changed={}", path.display());
        collect(&path, &mut files);
    }
    files.sort();
    let mut hash = Xxh3::new();
    for file in files {
        hash.update(&fs::read(&file).expect("sources are readable"));
    }
    println!("cargo:rustc-env=ELLECT_HOST_KERNELS={:016x}", hash.digest());
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    models(&root, &out);
    fingerprints(&root, &out);
}

/// Writes `fingerprints.rs`: a slice of the fingerprints of all structures in the wisdom that
/// ships, in order.
fn fingerprints(root: &Path, out: &Path) {
    let wisdom = fs::File::open(root.join("models/wisdom.jsonl.zst")).expect("wisdom ships");
    let lines = BufReader::new(zstd::Decoder::new(wisdom).expect("wisdom is compressed"));
    let mut fingerprints = BTreeSet::new();
    for line in lines.lines() {
        let line = line.expect("wisdom is text");
        let rest = line.strip_prefix(r#"{"kind":"structure","fingerprint":""#);
        fingerprints.extend(rest.and_then(|rest| rest.split('"').next()).map(String::from));
    }
    fs::write(out.join("fingerprints.rs"), format!("&{:?}", Vec::from_iter(fingerprints)))
        .expect("the build folder is writable");
}

/// Writes `models.rs`: a slice of names and bytes of every `models/*.json.zst`.
fn models(root: &Path, out: &Path) {
    let folder = root.join("models");
    println!("cargo:rerun-if-changed={}", folder.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(&folder).expect("the folder of models is readable") {
        let path = entry.expect("the folder of models is readable").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.ends_with(".json.zst") {
            files.push(format!("({name:?}, include_bytes!({:?}).as_slice())", path.display()));
        }
    }
    files.sort();
    fs::write(out.join("models.rs"), format!("&[{}]", files.join(", ")))
        .expect("the build folder is writable");
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) {
    if path.is_file() {
        files.push(path.to_path_buf());
        return;
    }
    for entry in fs::read_dir(path).expect("the folder of sources is readable") {
        collect(&entry.expect("the folder of sources is readable").path(), files);
    }
}
