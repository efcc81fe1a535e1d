//! Compiles every `.cu` file of this folder with nvcc (feature `cuda` only) and writes the table
//! of images and the table of the driver's entry points.

use std::collections::BTreeSet;
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use xxhash_rust::xxh3::Xxh3;

/// Machine code for these, and PTX of the last for what comes after.
const ARCHITECTURES: [&str; 2] = ["80", "90"];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let mut images = String::from("&[\n");
    if env::var_os("CARGO_FEATURE_CUDA").is_some() {
        let folder = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
        // A new source is noticed by its folder.
        println!("cargo:rerun-if-changed={}", folder.display());
        trampolines(&folder, &out);
        let nvcc = nvcc(&folder);
        let version = Command::new(&nvcc).arg("--version").output();
        let version = version.map(|output| output.stdout).unwrap_or_default();
        for source in sources(&folder) {
            let log = compile(&nvcc, &source, &out);
            let few = short_forms(&log);
            let name = stem(&source);
            let hash = hash(&source, &folder, &version);
            writeln!(
                images,
                "Image {{ name: {name:?}, fatbin: include_bytes!(concat!(env!(\"OUT_DIR\"), \
                 \"/{name}.fatbin\")), resources: include_str!(concat!(env!(\"OUT_DIR\"), \
                 \"/{name}.ptxas\")), hash: {hash:?}, few: &{few:?} }},"
            )
            .expect("writing to a string");
        }
        primitives(&nvcc, &folder, &out);
    }
    images.push(']');
    fs::write(out.join("images.rs"), images).expect("OUT_DIR is writable");
}

fn stem(source: &Path) -> String {
    source.file_stem().expect("a source has a name").to_string_lossy().into_owned()
}

/// The `.cu` files, by name; headers only mark a rebuild.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut sources = Vec::new();
    for entry in fs::read_dir(folder).expect("the package's folder is readable") {
        let path = entry.expect("the package's folder is readable").path();
        match path.extension().and_then(|e| e.to_str()) {
            Some("cu") => sources.push(path.clone()),
            Some("cuh") => {}
            _ => continue,
        }
        println!("cargo:rerun-if-changed={}", path.display());
    }
    sources.sort();
    sources
}

/// Hash of a source, of the headers beside it that it includes, and of the compiler's version.
fn hash(source: &Path, folder: &Path, version: &[u8]) -> String {
    let mut files = vec![source.to_path_buf()];
    let mut hash = Xxh3::new();
    hash.update(version);
    let mut next = 0;
    while let Some(file) = files.get(next) {
        let text = fs::read_to_string(file).expect("the source is readable");
        hash.update(text.as_bytes());
        let included = |line: &str| {
            let name = line.trim().strip_prefix("#include \"")?.strip_suffix('"')?;
            Some(folder.join(name))
        };
        for header in text.lines().filter_map(included) {
            if !files.contains(&header) {
                files.push(header);
            }
        }
        next += 1;
    }
    format!("{:016x}", hash.digest())
}

/// nvcc: `$NVCC`, the one that `toolchain.sh` fetched, `$CUDA_PATH`, /usr/local/cuda or the PATH.
fn nvcc(folder: &Path) -> PathBuf {
    println!("cargo:rerun-if-env-changed=NVCC");
    println!("cargo:rerun-if-env-changed=CUDA_PATH");
    let fetched = folder.join("../target/cuda-toolkit/nvidia/cu13/bin/nvcc");
    let named = env::var_os("NVCC").map(PathBuf::from);
    let in_path = env::var_os("CUDA_PATH").map(|root| PathBuf::from(root).join("bin/nvcc"));
    [named, Some(fetched), in_path, Some(PathBuf::from("/usr/local/cuda/bin/nvcc"))]
        .into_iter()
        .flatten()
        .find(|path| path.is_file())
        .unwrap_or_else(|| PathBuf::from("nvcc"))
}

/// Compiles a source for every architecture; gives what ptxas said.
fn compile(nvcc: &Path, source: &Path, out: &Path) -> String {
    let name = stem(source);
    let mut command = command(nvcc);
    command.args(["-fatbin", "-Xptxas", "-v", "-lineinfo"]);
    let log = run(command.arg("-o").arg(out.join(format!("{name}.fatbin"))).arg(source));
    fs::write(out.join(format!("{name}.ptxas")), &log).expect("OUT_DIR is writable");
    log
}

/// The kernels that ptxas named with a form for few threads, `_few`, besides.
fn short_forms(log: &str) -> Vec<&str> {
    let entries = log.split("entry function '").skip(1);
    let named = entries.filter_map(|rest| rest.split('\'').next()?.strip_suffix("_few"));
    // Once for each architecture.
    named.collect::<BTreeSet<_>>().into_iter().collect()
}

/// The library of CUB's algorithms, linked with the CUDA runtime, which opens the driver when it
/// is first called.
fn primitives(nvcc: &Path, folder: &Path, out: &Path) {
    let source = folder.join("primitives/primitives.cu");
    println!("cargo:rerun-if-changed={}", source.display());
    let mut command = command(nvcc);
    command.args(["-lib", "-Xcompiler", "-fPIC"]);
    run(command.arg("-o").arg(out.join("libellect_primitives.a")).arg(&source));
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

/// nvcc, for every architecture.
fn command(nvcc: &Path) -> Command {
    let mut command = Command::new(nvcc);
    command.args(["-O3", "-std=c++17", "--threads", "2"]);
    for (i, arch) in ARCHITECTURES.iter().enumerate() {
        let last = i + 1 == ARCHITECTURES.len();
        let code = if last { format!("[sm_{arch},compute_{arch}]") } else { format!("sm_{arch}") };
        command.arg("-gencode").arg(format!("arch=compute_{arch},code={code}"));
    }
    command
}

/// Runs nvcc and gives what it says.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| {
        panic!(
            "cannot run {command:?}: {error}; install the CUDA toolkit, name nvcc in $NVCC, or \
             fetch it with kernels/toolchain.sh"
        )
    });
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?} failed:\n{log}");
    log
}

/// One jump for each driver function, through a table that `driver::load` fills.
fn trampolines(folder: &Path, out: &Path) {
    let list = folder.join("driver_api.txt");
    println!("cargo:rerun-if-changed={}", list.display());
    let names = fs::read_to_string(&list).expect("driver_api.txt is part of the package");
    let (mut table, mut code) = (String::from("&[\n"), String::new());
    for (i, name) in names.lines().enumerate() {
        writeln!(table, "{name:?},").expect("writing to a string");
        writeln!(
            code,
            ".globl {name}\n.type {name},@function\n{name}:\njmp *ELLECT_DRIVER_TABLE+{}(%rip)",
            8 * i
        )
        .expect("writing to a string");
    }
    table.push(']');
    fs::write(out.join("driver_names.rs"), table).expect("OUT_DIR is writable");
    fs::write(out.join("driver.s"), code).expect("OUT_DIR is writable");
}
