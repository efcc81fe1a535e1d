//! Files of a database that are damaged or unfinished: found before sled reads them, and kept in the
//! folder `aside`.
//!
//! sled writes a snapshot of its table of pages at most openings: to `snap.X.generating`, which it
//! then renames to `snap.X`. A start that is broken off leaves the former, and sled takes whatever
//! begins with `snap.` and is the last by name for the snapshot. Without any snapshot sled reads the
//! whole log, so none is needed. Its file `conf` holds constants, and is written again if missing.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::database::{LOG, MADE};
use super::journal::sync_folder;

/// Name of the folder for damaged files.
const ASIDE: &str = "aside";

/// Name of the folder for sled's files while a smaller database replaces them.
pub(super) const REPLACED: &str = "replaced";

/// Moves damaged and unfinished snapshots and settings aside; returns a note for each.
pub(super) fn unusable(path: &Path) -> io::Result<Vec<String>> {
    let mut notes = Vec::new();
    for name in sled_files(path)? {
        let bytes = || fs::read(path.join(&name));
        let why = match name.as_str() {
            name if name.ends_with(".generating") => "a start was broken off while it was written",
            name if name.starts_with("snap.") && !is_checked(&bytes()?, 12) => "it is damaged",
            "conf" if !is_checked(&bytes()?, 4) => "it is damaged",
            _ => continue,
        };
        let to = move_aside(path, &name)?;
        notes.push(format!("moved {name} to {}: {why}, and no record needs it", to.display()));
    }
    Ok(notes)
}

/// Tells whether the CRC-32 in the last four bytes is the one of all bytes but the last `end`.
fn is_checked(bytes: &[u8], end: usize) -> bool {
    let body = bytes.len().checked_sub(end).filter(|&body| body > 0);
    let (Some(body), Some(crc)) = (body, bytes.last_chunk::<4>()) else { return false };
    crc32fast::hash(&bytes[..body]) == u32::from_le_bytes(*crc)
}

/// Moves all of sled's files aside; returns the folder.
pub(super) fn all(path: &Path) -> io::Result<PathBuf> {
    for name in sled_files(path)? {
        move_aside(path, &name)?;
    }
    Ok(path.join(ASIDE))
}

/// Moves a file of the folder into its folder `aside`, under a name with a number in front.
pub(super) fn move_aside(path: &Path, name: &str) -> io::Result<PathBuf> {
    let aside = path.join(ASIDE);
    fs::create_dir_all(&aside)?;
    let mut to = aside.join(format!("1-{name}"));
    for n in 2.. {
        if !to.exists() {
            break;
        }
        to = aside.join(format!("{n}-{name}"));
    }
    fs::rename(path.join(name), &to)?;
    sync_folder(path)?;
    Ok(to)
}

/// Moves all of sled's files into the folder [`REPLACED`].
pub(super) fn replace(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path.join(REPLACED))?;
    for name in sled_files(path)? {
        fs::rename(path.join(&name), path.join(REPLACED).join(&name))?;
    }
    sync_folder(path)
}

/// Returns the names of sled's files in the folder, the log last, and of the file that counts
/// commits.
pub(super) fn sled_files(path: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with("snap.") || [MADE, "conf", "blobs", LOG].contains(&name.as_str()) {
            names.push(name);
        }
    }
    names.sort_by_key(|name| name == LOG);
    Ok(names)
}
