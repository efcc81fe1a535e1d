//! Runs nvcc.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Architectures that get machine code, in ascending order; the last one also yields the PTX for
/// future GPUs.
const ARCHITECTURES: [&str; 2] = ["80", "90"];

/// Output of nvcc for a `.cu` file.
pub struct Compiled {
    /// Report of ptxas on registers, shared memory and spills.
    pub log: String,
    /// The machine code, one ELF file per architecture, sorted by file name.
    pub cubins: Vec<Vec<u8>>,
    /// The PTX of the last architecture.
    pub ptx: String,
}

/// The compiler.
pub struct Nvcc {
    /// Path of the program.
    pub path: PathBuf,
    /// The version that it prints.
    pub version: String,
}

impl Nvcc {
    /// The nvcc of [`find`].
    ///
    /// # Errors
    /// The reason why it does not run.
    pub fn new(package: &Path) -> Result<Self, String> {
        let path = find(package);
        let version = output(Command::new(&path).arg("--version"))?.stdout;
        Ok(Nvcc { path, version: String::from_utf8_lossy(&version).into_owned() })
    }
}

/// Path of nvcc: `$NVCC`, the copy that `toolchain.sh` fetched, `$CUDA_PATH`, /usr/local/cuda or
/// the PATH, in this order. `package` is the folder of this package.
pub fn find(package: &Path) -> PathBuf {
    let fetched = package.join("../target/cuda-toolkit/nvidia/cu13/bin/nvcc");
    let named = env::var_os("NVCC").map(PathBuf::from);
    let in_path = env::var_os("CUDA_PATH").map(|root| PathBuf::from(root).join("bin/nvcc"));
    [named, Some(fetched), in_path, Some(PathBuf::from("/usr/local/cuda/bin/nvcc"))]
        .into_iter()
        .flatten()
        .find(|path| path.is_file())
        .unwrap_or_else(|| PathBuf::from("nvcc"))
}

/// Compiles `source` for every architecture into `out/NAME.fatbin`, where NAME is the stem of the
/// source's file name. Headers come from the source's own folder and from `include`.
///
/// `cache` holds what earlier calls compiled, in this or another build: the same source with the same
/// headers is not compiled twice by the same nvcc.
///
/// # Panics
/// If nvcc fails, or `out` or `cache` is not writable.
pub fn compile(nvcc: &Nvcc, source: &Path, include: &Path, out: &Path, cache: &Path) -> Compiled {
    let name = source.file_stem().expect("a source has a name").to_string_lossy().into_owned();
    let mut command = command(&nvcc.path);
    command.args(["-fatbin", "-Xptxas", "-v", "-lineinfo", "--keep"]);
    let own = source.parent().expect("a source has a folder");
    let headers = [own, include].into_iter().flat_map(|folder| files(folder, ".cuh"));
    let kept = cache.join(key(nvcc, &command, headers.chain([source.to_path_buf()])));
    if !kept.is_dir() {
        // Another build may compile the same source now: the folder appears when it is complete.
        let begun = cache.join(format!("{name}.{}", std::process::id()));
        fs::create_dir_all(&begun).expect("the cache is writable");
        command.arg("-I").arg(include).arg("--keep-dir").arg(&begun);
        command.arg("-o").arg(begun.join(FATBIN)).arg(source);
        fs::write(begun.join(LOG), run(&mut command)).expect("the cache is writable");
        for file in files(&begun, "") {
            let file_name = file.to_string_lossy();
            if ![FATBIN, LOG, ".cubin", ".ptx"].iter().any(|own| file_name.ends_with(own)) {
                fs::remove_file(&file).expect("the cache is writable");
            }
        }
        if fs::rename(&begun, &kept).is_err() {
            fs::remove_dir_all(&begun).expect("the cache is writable");
        }
    }
    fs::copy(kept.join(FATBIN), out.join(format!("{name}.fatbin"))).expect("nvcc wrote it");
    let read = |path: PathBuf| fs::read(path).expect("nvcc wrote it");
    let cubins: Vec<_> = files(&kept, ".cubin").into_iter().map(read).collect();
    assert_eq!(cubins.len(), ARCHITECTURES.len(), "nvcc keeps machine code for each architecture");
    let ptx = files(&kept, ".ptx").pop().expect("nvcc keeps PTX");
    let text = |path: PathBuf| fs::read_to_string(path).expect("nvcc wrote text");
    Compiled { log: text(kept.join(LOG)), cubins, ptx: text(ptx) }
}

/// Names of files in a folder of the cache.
const FATBIN: &str = "kernels.fatbin";
const LOG: &str = "ptxas.log";

/// Name of the folder of the cache for what nvcc makes of these files with the arguments so far.
fn key(nvcc: &Nvcc, command: &Command, files: impl Iterator<Item = PathBuf>) -> String {
    let mut hash = xxhash_rust::xxh3::Xxh3::new();
    hash.update(nvcc.version.as_bytes());
    hash.update(format!("{:?}", command.get_args()).as_bytes());
    for file in files {
        hash.update(file.file_name().expect("a source has a name").as_encoded_bytes());
        hash.update(&fs::read(&file).expect("the package's sources are readable"));
    }
    format!("{:032x}", hash.digest128())
}

/// The files of `folder` whose names end in `ending`, sorted by name.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder is readable");
    let paths = entries.map(|entry| entry.expect("the folder is readable").path());
    let mut paths: Vec<_> = paths.filter(|path| path.to_string_lossy().ends_with(ending)).collect();
    paths.sort();
    paths
}

/// An nvcc command with the options for all sources and every architecture.
pub fn command(nvcc: &Path) -> Command {
    let mut command = Command::new(nvcc);
    command.args(["-O3", "-std=c++17", "--threads", "2"]);
    for (i, arch) in ARCHITECTURES.iter().enumerate() {
        let last = i + 1 == ARCHITECTURES.len();
        let code = if last { format!("[sm_{arch},compute_{arch}]") } else { format!("sm_{arch}") };
        command.arg("-gencode").arg(format!("arch=compute_{arch},code={code}"));
    }
    command
}

/// Runs nvcc and returns its error output.
///
/// # Panics
/// If there is no nvcc or it fails.
pub fn run(command: &mut Command) -> String {
    let output = output(command).unwrap_or_else(|why| panic!("{why}"));
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?} failed:\n{log}");
    log
}

/// Runs nvcc and returns its output, whether it succeeds or not.
///
/// # Errors
/// The reason why it does not run.
fn output(command: &mut Command) -> Result<Output, String> {
    command.output().map_err(|error| {
        format!(
            "cannot run {command:?}: {error}; install the CUDA toolkit, name nvcc in $NVCC, or \
             fetch it with kernels/toolchain.sh"
        )
    })
}
