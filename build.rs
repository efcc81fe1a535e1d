//! Lists the shipped models and shards of wisdom, which the library embeds.
//!
//! Writes `models.rs` and `wisdom.rs` to the build folder. Each contains a slice of (name, bytes),
//! sorted by name; without the feature `shipped`, both slices are empty.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    embed(&root.join("models"), &[".model", ".json.zst"], &out.join("models.rs"));
    embed(&root.join("models/wisdom"), &[".jsonl.zst"], &out.join("wisdom.rs"));
}

/// Writes a slice with the names and bytes of the files in `folder` that have one of `endings`.
fn embed(folder: &Path, endings: &[&str], out: &Path) {
    println!("cargo:rerun-if-changed={}", folder.display());
    let mut files = Vec::new();
    if env::var_os("CARGO_FEATURE_SHIPPED").is_some() {
        // The folder does not exist in a checkout without shipped data.
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.expect("the folder of shipped data is readable").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if endings.iter().any(|ending| name.ends_with(ending)) {
                files.push(format!("({name:?}, include_bytes!({:?}).as_slice())", path.display()));
            }
        }
    }
    files.sort();
    fs::write(out, format!("&[{}]", files.join(", "))).expect("the build folder is writable");
}
