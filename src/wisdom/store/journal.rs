//! The records as lines of JSON beside the database, for readers, for repairs and for people.
//!
//! - `export.jsonl` holds every record at the last export, and is replaced by an atomic rename.
//! - `journal.jsonl` holds the changes since: records, and the keys of removed ones.
//!
//! Both consist of groups of lines, each ended by a mark, `{"kind":"commit",...}`, with the number of
//! commits, the checksum over all records, and a hash of the lines of the group. The lines behind
//! the last mark belong to a write that was not acknowledged. Replaying the journal on a newer
//! export changes nothing, so the two files need not change at the same moment.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use super::super::lines::{self, Line};
use super::super::record::{Record, is_mark};
use super::{Changes, State, Tree};
use crate::error::{Error, Result};

/// Name of the export.
pub(super) const EXPORT: &str = "export.jsonl";
/// Name of the journal.
pub(super) const JOURNAL: &str = "journal.jsonl";
/// Name of an export that is being written.
const PART: &str = "export.jsonl.part";
/// Age of an export from which on the next write makes a new one.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// A line that is not a record.
#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Mark {
    /// Ends a group.
    Commit { count: u64, sum: String, check: String },
    /// The record with this key was removed.
    Removed { tree: Tree, key: String },
}

impl Mark {
    fn line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).expect("marks are plain data");
        line.push(b'\n');
        line
    }

    /// Returns the mark at the end of a group.
    fn commit(state: State, hash: &Xxh3) -> Vec<u8> {
        let (sum, check) = (hex(state.sum), hex(hash.digest()));
        Mark::Commit { count: state.count, sum, check }.line()
    }
}

fn hex(number: u64) -> String {
    format!("{number:016x}")
}

/// Values by tree and key.
pub(super) type Records = BTreeMap<(Tree, Vec<u8>), Vec<u8>>;

/// Contents of the export and the journal.
#[derive(Debug)]
pub(super) struct Lines {
    /// Every record.
    pub records: Records,
    /// State at the last mark.
    pub state: State,
    /// Tells whether every group has the hash that its mark states, and none is missing.
    pub whole: bool,
}

/// Reads the export and the journal in the folder of a database; `None` if it has neither.
///
/// # Errors
/// [`Error::Io`] if a file cannot be read.
pub(super) fn load(path: &Path) -> Result<Option<Lines>> {
    loop {
        let before = identity(path);
        let mut lines = Lines { records: Records::new(), state: State::default(), whole: true };
        let io = |source| Error::Io { what: path.display().to_string(), source };
        let export = read(&path.join(EXPORT), &mut lines).map_err(io)?;
        let journal = read(&path.join(JOURNAL), &mut lines).map_err(io)?;
        // An export that was replaced meanwhile may hold what the journal no longer does.
        if identity(path) == before {
            return Ok((export || journal).then_some(lines));
        }
    }
}

/// Returns what changes when the export is replaced.
fn identity(path: &Path) -> Option<(u64, Option<SystemTime>)> {
    fs::metadata(path.join(EXPORT)).ok().map(|there| (there.len(), there.modified().ok()))
}

/// Adds the groups of a file to `lines`; returns whether the file exists.
fn read(file: &Path, lines: &mut Lines) -> io::Result<bool> {
    let mut reader = match File::open(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        opened => BufReader::new(opened?),
    };
    let is_export = file.ends_with(EXPORT);
    let (mut hash, mut group, mut ended) = (Xxh3::new(), Vec::new(), !is_export);
    while let Some(line) = lines::next(&mut reader)? {
        let Line::Whole(line) = line else {
            lines.whole = false;
            continue;
        };
        let mark = is_mark(&line).then(|| serde_json::from_slice(&line).ok()).flatten();
        let Some(Mark::Commit { count, sum, check }) = mark else {
            hash.update(&line);
            hash.update(b"\n");
            match mark {
                Some(Mark::Removed { tree, key }) => group.push(((tree, key.into_bytes()), None)),
                _ => group.extend(entry(line)),
            }
            continue;
        };
        lines.whole &= check == hex(hash.digest());
        lines.whole &= is_export || count <= lines.state.count + 1;
        hash.reset();
        for (key, value) in group.drain(..) {
            match value {
                Some(value) => lines.records.insert(key, value),
                None => lines.records.remove(&key),
            };
        }
        if count >= lines.state.count {
            let sum = u64::from_str_radix(&sum, 16).unwrap_or(0);
            lines.state = State { count, sum };
        }
        ended = true;
    }
    // An export without a mark lost its end.
    lines.whole &= ended && (group.is_empty() || !is_export);
    if !lines.whole {
        lines.records.extend(group.into_iter().filter_map(|(key, value)| Some((key, value?))));
    }
    Ok(true)
}

type Entry = ((Tree, Vec<u8>), Option<Vec<u8>>);

/// Returns the record in a line, by its key; `None` if the line is not a record.
fn entry(line: Vec<u8>) -> Option<Entry> {
    let record = Record::parse(&line).ok()?;
    Some(((Tree::of(&record), record.key().into_bytes()), Some(line)))
}

/// Returns the state at the end of the journal, or of the export if the journal is empty, by reading
/// a few bytes; `None` if there is no mark at the end.
pub(super) fn tail(path: &Path) -> Option<State> {
    let is_empty = fs::metadata(path.join(JOURNAL)).map_or(true, |there| there.len() == 0);
    let mut file = File::open(path.join(if is_empty { EXPORT } else { JOURNAL })).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(256))).ok()?;
    let mut end = Vec::new();
    file.read_to_end(&mut end).ok()?;
    let end = end.strip_suffix(b"\n")?;
    let line = end.rsplit(|&byte| byte == b'\n').next()?;
    match serde_json::from_slice(line).ok()? {
        Mark::Commit { count, sum, .. } => {
            Some(State { count, sum: u64::from_str_radix(&sum, 16).ok()? })
        }
        Mark::Removed { .. } => None,
    }
}

/// The export and the journal of a database that this process holds.
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    /// A write failed, so only a new export describes the database.
    pub behind: bool,
    /// Tells whether the journal holds anything.
    changed: bool,
    exported_at: SystemTime,
}

impl Journal {
    /// Opens the journal in the folder of a database, or creates it.
    ///
    /// # Errors
    /// [`Error::Io`]; also if no file can be created in the folder.
    pub fn open(path: &Path) -> Result<Self> {
        let io = |source| Error::Io { what: path.join(JOURNAL).display().to_string(), source };
        // A folder that cannot be written to is told before anything in it changes.
        File::create(path.join(PART)).map_err(io)?;
        fs::remove_file(path.join(PART)).map_err(io)?;
        let file = OpenOptions::new().append(true).create(true).open(path.join(JOURNAL));
        let file = file.map_err(io)?;
        let exported = fs::metadata(path.join(EXPORT)).and_then(|there| there.modified());
        let exported_at = exported.unwrap_or_else(|_| SystemTime::now());
        let changed = file.metadata().map_err(io)?.len() > 0;
        Ok(Journal { path: path.to_path_buf(), file, behind: false, changed, exported_at })
    }

    /// Tells whether a new export is due: the last one is a day old, and something changed.
    pub fn is_due(&self) -> bool {
        self.changed && self.exported_at.elapsed().is_ok_and(|age| age > DAY)
    }

    /// Tells whether an export would differ from the last one.
    pub fn is_changed(&self) -> bool {
        self.changed || self.behind
    }

    /// Appends changes that lead to `state`; they are on disk when this returns.
    ///
    /// # Errors
    /// [`Error::Io`]; the journal is then behind the database.
    pub fn append(&mut self, changes: &Changes, state: State) -> Result<()> {
        let (mut text, mut hash) = (Vec::new(), Xxh3::new());
        for ((tree, key), value) in changes {
            match value {
                Some(value) => text.extend(without_breaks(value)),
                None => {
                    let key = String::from_utf8_lossy(key).into_owned();
                    text.extend(Mark::Removed { tree: *tree, key }.line());
                }
            }
        }
        hash.update(&text);
        text.extend(Mark::commit(state, &hash));
        self.changed = true;
        self.file.write_all(&text).and_then(|()| self.file.sync_data()).map_err(|source| {
            self.behind = true;
            Error::Io { what: self.path.join(JOURNAL).display().to_string(), source }
        })
    }

    /// Replaces the export by what `each` passes on, and empties the journal.
    ///
    /// # Errors
    /// [`Error::Io`], and errors of `each`; the old export then stays.
    pub fn export(
        &mut self,
        state: State,
        each: impl FnOnce(&mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>,
    ) -> Result<()> {
        let part = self.path.join(PART);
        let io = |source| Error::Io { what: part.display().to_string(), source };
        let mut out = BufWriter::new(File::create(&part).map_err(io)?);
        let mut hash = Xxh3::new();
        each(&mut |value| {
            let line = without_breaks(value);
            hash.update(&line);
            out.write_all(&line).map_err(io)
        })?;
        out.write_all(&Mark::commit(state, &hash)).map_err(io)?;
        out.flush().and_then(|()| out.get_ref().sync_all()).map_err(io)?;
        fs::rename(&part, self.path.join(EXPORT)).map_err(io)?;
        sync_folder(&self.path).map_err(io)?;
        self.file.set_len(0).map_err(io)?;
        (self.changed, self.behind) = (false, false);
        self.exported_at = SystemTime::now();
        Ok(())
    }
}

/// Returns the line of a value; only damaged values contain line breaks.
fn without_breaks(value: &[u8]) -> Vec<u8> {
    let plain = value.iter().map(|&byte| if byte == b'\n' { b' ' } else { byte });
    plain.chain([b'\n']).collect()
}

/// Makes renames in a folder last through a loss of power.
pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    match cfg!(unix) {
        true => File::open(path)?.sync_all(),
        false => Ok(()),
    }
}
