//! Records that processes add while another one holds the database: each process writes its own file
//! in the folder `incoming`, and the holder takes them over.
//!
//! A file is locked as long as its process adds to it, so the holder takes only finished ones, those
//! of killed processes too.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::super::lines::{self, Line};
use crate::error::{Error, Result};

const INCOMING: &str = "incoming";
const ENDING: &str = ".jsonl";

/// Lists the files in the folder of a database, oldest first; none if there is no folder.
fn files(path: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(path.join(INCOMING)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let file = entry?.path();
        if file.to_string_lossy().ends_with(ENDING) {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

/// Returns the complete lines of all files; the last line of a file may be cut off.
pub(super) fn read(path: &Path) -> Result<Vec<Vec<u8>>> {
    let io = |source| Error::Io { what: path.join(INCOMING).display().to_string(), source };
    let mut all = Vec::new();
    for file in files(path).map_err(io)? {
        match fs::read(&file) {
            // The holder took it over meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            text => all.extend(complete(&text.map_err(io)?).map_err(io)?),
        }
    }
    Ok(all)
}

/// Returns the lines that end with a line break.
fn complete(text: &[u8]) -> io::Result<Vec<Vec<u8>>> {
    let end = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let (mut rest, mut all) = (&text[..end], Vec::new());
    while let Some(line) = lines::next(&mut rest)? {
        if let Line::Whole(line) = line {
            all.push(line);
        }
    }
    Ok(all)
}

/// A file in the folder `incoming` whose process has ended.
pub(in super::super) struct Finished {
    file: PathBuf,
    /// Its complete lines.
    pub lines: Vec<Vec<u8>>,
    /// Keeps another holder, of an earlier version, from taking it too.
    _lock: File,
}

impl Finished {
    /// Removes the file, once its records are stored.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn remove(self) -> Result<()> {
        let io = |source| Error::Io { what: self.file.display().to_string(), source };
        fs::remove_file(&self.file).map_err(io)
    }
}

/// Returns the files to which no process adds any more, oldest first.
pub(super) fn finished(path: &Path) -> Result<Vec<Finished>> {
    let io = |source| Error::Io { what: path.join(INCOMING).display().to_string(), source };
    let mut all = Vec::new();
    for file in files(path).map_err(io)? {
        let lock = File::open(&file).map_err(io)?;
        if lock.try_lock().is_ok() {
            let lines = complete(&fs::read(&file).map_err(io)?).map_err(io)?;
            all.push(Finished { file, lines, _lock: lock });
        }
    }
    Ok(all)
}

/// The file to which this process adds records.
pub(super) struct Spool {
    path: PathBuf,
    file: Option<File>,
    length: u64,
}

impl Spool {
    /// Adds records to the database in the folder `path`; the first ones create the file.
    pub fn new(path: &Path) -> Self {
        Spool { path: path.join(INCOMING), file: None, length: 0 }
    }

    fn file(&mut self) -> io::Result<&mut File> {
        if self.file.is_none() {
            fs::create_dir_all(&self.path)?;
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let now = now.map_or(0, |time| time.as_nanos());
            let name = self.path.join(format!("{now:024x}-{}", std::process::id()));
            let file = OpenOptions::new().write(true).create_new(true).open(&name)?;
            // The holder looks at it only under its final name, so it is locked by then.
            file.lock()?;
            fs::rename(&name, name.with_extension(&ENDING[1..]))?;
            self.file = Some(file);
        }
        self.file.as_mut().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Adds lines; they are on disk when this returns.
    ///
    /// # Errors
    /// [`Error::Io`]; none of the lines is then added.
    pub fn add<'a>(&mut self, lines: impl Iterator<Item = &'a [u8]>) -> Result<()> {
        let text: Vec<u8> = lines.flat_map(|line| [line, b"\n"].concat()).collect();
        let length = self.length;
        let mut add = || {
            let file = self.file()?;
            let added = file.write_all(&text).and_then(|()| file.sync_data());
            if added.is_err() {
                // A line that was written in part would spoil the next one.
                file.set_len(length)?;
                io::Seek::seek(file, io::SeekFrom::Start(length))?;
            }
            added
        };
        add().map_err(|source| Error::Io { what: self.path.display().to_string(), source })?;
        self.length += text.len() as u64;
        Ok(())
    }
}
