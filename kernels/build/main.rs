//! Compiles every `.cu` file with nvcc (feature `cuda` only) and writes the table of images, the
//! table of driver entry points, and the table of sources of products.
#![allow(clippy::print_stdout, reason = "cargo reads what a build script prints")]

mod cubin;
mod nvcc;
mod ptx;

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders of `.cu` files: kernels of products, of conversions, of feature counts and of operations
/// on vectors.
const FOLDERS: [&str; 4] = [PRODUCTS, "conversions", "features", "vectors"];

/// The folder of products.
const PRODUCTS: &str = "products";

/// Headers that several folders include.
const COMMON: &str = "common";

fn main() {
    println!("cargo:rerun-if-changed=build");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let package = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    texts(&package, &out);
    let mut images = Vec::new();
    if env::var_os("CARGO_FEATURE_CUDA").is_some() {
        trampolines(&package, &out);
        println!("cargo:rerun-if-env-changed=NVCC");
        println!("cargo:rerun-if-env-changed=CUDA_PATH");
        let nvcc = nvcc::Nvcc::new(&package).unwrap_or_else(|why| panic!("{why}"));
        // OUT_DIR is PROFILE/build/PACKAGE/out in the target folder; all builds share the cache there.
        let cache = out.ancestors().nth(4).unwrap_or(&out).join("kernels");
        let common = package.join(COMMON);
        for folder in FOLDERS {
            // Cargo watches all files of the folder, including headers and new sources.
            println!("cargo:rerun-if-changed={}", package.join(folder).display());
            for source in files(&package.join(folder), "cu") {
                let name = stem(&source);
                let compiled = nvcc::compile(&nvcc, &source, &common, &out, &cache);
                images.push((image(&name, folder, &compiled, &out), name));
            }
        }
        primitives(&nvcc.path, &package, &out);
    }
    images.sort_by(|(_, a), (_, b)| a.cmp(b));
    let images = images.into_iter().map(|(image, _)| image).collect::<Vec<_>>();
    fs::write(out.join("images.rs"), format!("&[\n{}]", images.concat()))
        .expect("OUT_DIR is writable");
}

fn stem(source: &Path) -> String {
    source.file_stem().expect("a source has a name").to_string_lossy().into_owned()
}

/// The files of a folder with this ending.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the package's folders are readable");
    let paths = entries.map(|entry| entry.expect("the package's folders are readable").path());
    paths.filter(|path| path.extension().is_some_and(|own| own == ending)).collect()
}

/// Writes the table of the sources of products and of the headers that they include.
fn texts(package: &Path, out: &Path) {
    let mut list = Vec::new();
    for (folder, ending) in [(PRODUCTS, "cu"), (COMMON, "cuh")] {
        let folder = package.join(folder);
        println!("cargo:rerun-if-changed={}", folder.display());
        for file in files(&folder, ending) {
            let name = file.file_name().expect("a source has a name").to_string_lossy();
            list.push(format!("({name:?}, include_str!({:?}))", file.display()));
        }
    }
    list.sort();
    fs::write(out.join("sources.rs"), format!("&[{}]", list.join(", ")))
        .expect("OUT_DIR is writable");
}

/// The image of one source as a Rust expression.
fn image(name: &str, folder: &str, compiled: &nvcc::Compiled, out: &Path) -> String {
    fs::write(out.join(format!("{name}.ptxas")), &compiled.log).expect("OUT_DIR is writable");
    let hash = cubin::digest(&compiled.cubins).unwrap_or_else(|why| panic!("{name}: {why}"));
    let kernels = ptx::kernels(&compiled.ptx).unwrap_or_else(|why| panic!("{name}: {why}"));
    let resident = kernels.iter().filter_map(|kernel| kernel.name.strip_suffix("_resident"));
    let resident = resident.collect::<Vec<_>>();
    let mut list = String::new();
    for kernel in &kernels {
        let params = kernel.params.iter().map(|param| format!("Param::{param}"));
        let params = params.collect::<Vec<_>>().join(", ");
        writeln!(list, "Kernel {{ name: {:?}, params: &[{params}] }},", kernel.name)
            .expect("writing to a string");
    }
    format!(
        "Image {{ name: {name:?}, folder: {folder:?}, fatbin: \
         include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{name}.fatbin\")), resources: \
         include_str!(concat!(env!(\"OUT_DIR\"), \"/{name}.ptxas\")), hash: {hash:?}, kernels: \
         &[{list}], resident: &{resident:?} }},\n"
    )
}

/// Builds the library of CUB's algorithms, linked with the CUDA runtime, which opens the driver at
/// its first call.
fn primitives(nvcc: &Path, package: &Path, out: &Path) {
    let source = package.join("primitives/primitives.cu");
    println!("cargo:rerun-if-changed={}", source.display());
    let mut command = nvcc::command(nvcc);
    command.args(["-lib", "-Xcompiler", "-fPIC"]);
    nvcc::run(command.arg("-o").arg(out.join("libellect_primitives.a")).arg(&source));
    println!("cargo:rustc-link-search=native={}", out.display());
    println!("cargo:rustc-link-lib=static=ellect_primitives");
    let root = nvcc.canonicalize().ok().and_then(|nvcc| Some(nvcc.parent()?.parent()?.to_owned()));
    let root = root.unwrap_or_else(|| PathBuf::from("/usr/local/cuda"));
    for lib in ["lib", "lib64", "targets/x86_64-linux/lib"] {
        println!("cargo:rustc-link-search=native={}", root.join(lib).display());
    }
    println!("cargo:rustc-link-lib=static=cudart_static");
    for lib in ["stdc++", "rt", "dl", "pthread"] {
        println!("cargo:rustc-link-lib={lib}");
    }
}

/// Writes one jump per driver function, through a table that `driver::load` fills.
fn trampolines(package: &Path, out: &Path) {
    let list = package.join("driver_api.txt");
    println!("cargo:rerun-if-changed={}", list.display());
    let names = fs::read_to_string(&list).expect("driver_api.txt is part of the package");
    let (mut table, mut code) = (String::from("&[\n"), String::new());
    for (i, name) in names.lines().enumerate() {
        writeln!(table, "{name:?},").expect("writing to a string");
        writeln!(
            code,
            ".globl {name}\n.type {name},@function\n{name}:\njmp *{{table}}+{}(%rip)",
            8 * i
        )
        .expect("writing to a string");
    }
    table.push(']');
    fs::write(out.join("driver_names.rs"), table).expect("OUT_DIR is writable");
    fs::write(out.join("driver.s"), code).expect("OUT_DIR is writable");
}
