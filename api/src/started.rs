//! The command that started this process, from which it starts others of its kind.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The words of a command line, and the command that starts the program again.
#[derive(Clone, Debug)]
pub struct Started {
    words: Vec<OsString>,
    again: Option<(PathBuf, Vec<OsString>)>,
}

static STARTED: OnceLock<Started> = OnceLock::new();

impl Started {
    /// Describes a process whose own image is the program.
    pub fn as_program() -> Self {
        Started { words: std::env::args_os().collect(), again: None }
    }

    /// Describes a process in which an interpreter runs the program: `arguments` are those of the
    /// program, and `again` holds an interpreter and the arguments with which it runs the program.
    pub fn by_interpreter(arguments: Vec<OsString>, again: (PathBuf, Vec<OsString>)) -> Self {
        let words = std::iter::once("ellect".into()).chain(arguments).collect();
        Started { words, again: Some(again) }
    }

    /// Makes this the description of this process, unless it has one.
    pub fn keep(self) {
        let _ = STARTED.set(self);
    }
}

/// Returns the words of this process's command line, the program's name first.
pub fn words() -> Vec<OsString> {
    STARTED.get().map_or_else(|| std::env::args_os().collect(), |started| started.words.clone())
}

/// Returns a path and the first arguments with which a child process runs this program.
///
/// On Linux the path of a program holds even if the file was replaced or removed since the process
/// started, because the link leads to the open image: a child process is always of the same version.
///
/// # Errors
/// If the system does not know the path.
pub fn again() -> io::Result<(PathBuf, Vec<OsString>)> {
    if let Some(again) = STARTED.get().and_then(|started| started.again.clone()) {
        return Ok(again);
    }
    let image = Path::new("/proc/self/exe");
    if cfg!(target_os = "linux") && image.exists() {
        return Ok((image.to_path_buf(), Vec::new()));
    }
    std::env::current_exe().map(|path| (path, Vec::new()))
}
