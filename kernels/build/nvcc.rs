//! Runs nvcc.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

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
/// # Panics
/// If nvcc fails or `out` is not writable.
pub fn compile(nvcc: &Path, source: &Path, include: &Path, out: &Path) -> Compiled {
    let name = source.file_stem().expect("a source has a name").to_string_lossy().into_owned();
    let keep = out.join(format!("{name}.keep"));
    fs::create_dir_all(&keep).expect("the output folder is writable");
    let mut command = command(nvcc);
    command.args(["-fatbin", "-Xptxas", "-v", "-lineinfo", "--keep", "--keep-dir"]).arg(&keep);
    command.arg("-I").arg(include);
    let log = run(command.arg("-o").arg(out.join(format!("{name}.fatbin"))).arg(source));
    let read = |path: PathBuf| fs::read(path).expect("nvcc wrote it");
    let cubins: Vec<_> = files(&keep, ".cubin").into_iter().map(read).collect();
    assert_eq!(cubins.len(), ARCHITECTURES.len(), "nvcc keeps machine code for each architecture");
    let ptx = files(&keep, ".ptx").pop().expect("nvcc keeps PTX");
    let ptx = fs::read_to_string(ptx).expect("PTX is text");
    fs::remove_dir_all(&keep).expect("the output folder is writable");
    Compiled { log, cubins, ptx }
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
