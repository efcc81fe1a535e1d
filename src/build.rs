//! Hashes the sources of the host products: records of other sources are not used.

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
