//! Hashes the sources of the host products: records of other sources are not used. Lists the models
//! that ship.

use std::env;
use std::fs;
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
    models(&root);
}

/// Writes `models.rs`: a slice of names and bytes of every `models/*.json.zst`.
fn models(root: &Path) {
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
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("models.rs");
    fs::write(out, format!("&[{}]", files.join(", "))).expect("the build folder is writable");
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
