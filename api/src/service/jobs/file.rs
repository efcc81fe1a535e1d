//! The jobs on disk, in the folder `jobs` of the data folder.
//!
//! ```text
//! lock          locked by the service that uses the folder
//! jobs.jsonl    a line for each change of a job; the last line of a job counts
//! 7.body        the matrix of job 7, until it ends
//! 7.result      the result of job 7, in JSON
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::job::Job;
use crate::output::write_file;

/// Bytes of lines that are out of date, in addition to those of the jobs, at which the file is
/// written anew.
const SPARE: u64 = 1 << 20;

/// The folder of jobs, which this process alone uses.
pub struct Folder {
    /// The paths of its files.
    pub paths: Paths,
    lines: File,
    /// Bytes of the file of lines.
    bytes: u64,
    /// Bytes of that file when it was last written anew.
    fresh: u64,
    /// Held as long as the folder is used.
    _lock: File,
    /// The folder itself, if nothing is kept.
    _temporary: Option<TempDir>,
}

/// The paths of the files of a folder of jobs.
#[derive(Clone, Debug)]
pub struct Paths(PathBuf);

impl Paths {
    /// Returns the path of the matrix of a job.
    pub fn body(&self, id: u64) -> PathBuf {
        self.0.join(format!("{id}.body"))
    }

    /// Returns the path of the result of a job.
    pub fn result(&self, id: u64) -> PathBuf {
        self.0.join(format!("{id}.result"))
    }
}

/// The jobs that were found, and the number of lines that were none.
pub struct Found {
    /// By number.
    pub jobs: BTreeMap<u64, Job>,
    /// Number of lines that cannot be read.
    pub bad: usize,
}

impl Folder {
    /// Opens the folder in this data folder; creates it if it is missing.
    ///
    /// # Errors
    /// If another process uses it, or it cannot be read or written.
    pub fn open(data: &Path) -> Result<(Self, Found)> {
        Folder::at(data.join("jobs"), None)
    }

    /// Makes a folder that is removed at the end.
    ///
    /// # Errors
    /// If the temporary folder cannot be written to.
    pub fn temporary() -> Result<(Self, Found)> {
        let folder = tempfile::tempdir().context("making a temporary folder for jobs")?;
        Folder::at(folder.path().to_path_buf(), Some(folder))
    }

    fn at(path: PathBuf, temporary: Option<TempDir>) -> Result<(Self, Found)> {
        let named = || path.display().to_string();
        fs::create_dir_all(&path).with_context(named)?;
        let lock = OpenOptions::new().create(true).append(true).open(path.join("lock"));
        let lock = lock.with_context(named)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!(
                "the jobs in {} are in use by another process, a service probably: end it, or name \
                 another folder with --data",
                path.display()
            ),
            Err(TryLockError::Error(error)) => return Err(error).with_context(named),
        }
        let found = read(&path.join(LINES)).with_context(named)?;
        let lines = OpenOptions::new().create(true).append(true).open(path.join(LINES));
        let lines = lines.with_context(named)?;
        let paths = Paths(path);
        let mut folder =
            Folder { paths, lines, bytes: 0, fresh: 0, _lock: lock, _temporary: temporary };
        folder.write_anew(found.jobs.values())?;
        Ok((folder, found))
    }

    /// Adds a line for a job; it is on disk when this returns.
    ///
    /// # Errors
    /// As the system.
    pub fn add(&mut self, job: &Job) -> io::Result<()> {
        let line = line(job)?;
        // A line that was written in part is ended, so that it does not spoil the next one.
        self.lines.write_all(&line).inspect_err(|_| {
            let _ = self.lines.write_all(b"\n");
        })?;
        self.bytes += line.len() as u64;
        self.lines.sync_data()
    }

    /// Tells whether most lines are out of date.
    pub fn is_long(&self) -> bool {
        self.bytes > 2 * self.fresh + SPARE
    }

    /// Writes the lines of these jobs alone.
    ///
    /// # Errors
    /// If the folder cannot be written to; the old lines are then kept.
    pub fn write_anew<'a>(&mut self, jobs: impl Iterator<Item = &'a Job>) -> Result<()> {
        let mut text = Vec::new();
        for job in jobs {
            text.extend(line(job)?);
        }
        let path = self.paths.0.join(LINES);
        write_file(&path, |out| Ok(out.write_all(&text)?))?;
        let named = || path.display().to_string();
        self.lines = OpenOptions::new().append(true).open(&path).with_context(named)?;
        self.lines.sync_data().with_context(named)?;
        (self.bytes, self.fresh) = (text.len() as u64, text.len() as u64);
        Ok(())
    }

    /// Removes the files of matrices and results that belong to none of these jobs.
    pub fn sweep(&self, jobs: &BTreeMap<u64, Job>) {
        for entry in fs::read_dir(&self.paths.0).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some((id, ending)) = name.split_once('.') else { continue };
            let job = id.parse().ok().and_then(|id: u64| jobs.get(&id));
            let is_used = match ending {
                "body" => job.is_some_and(|job| !job.status.is_final()),
                "result" => job.is_some_and(|job| job.status.is_final()),
                _ => true,
            };
            if !is_used {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// Name of the file of lines.
const LINES: &str = "jobs.jsonl";

fn line(job: &Job) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(job)?;
    line.push(b'\n');
    Ok(line)
}

fn read(path: &Path) -> io::Result<Found> {
    let text = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        read => read?,
    };
    let mut found = Found { jobs: BTreeMap::new(), bad: 0 };
    for line in text.split(|&byte| byte == b'\n').filter(|line| !line.trim_ascii().is_empty()) {
        match serde_json::from_slice::<Job>(line) {
            Ok(job) => drop(found.jobs.insert(job.id, job)),
            Err(_) => found.bad += 1,
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::job::{Status, Task};
    use super::*;

    fn job(id: u64) -> Job {
        Job::new(id, Task::Recommend { query: Vec::new(), body_bytes: 0 })
    }

    #[test]
    fn lines_that_were_cut_or_damaged_cost_no_other_job() {
        let data = tempfile::tempdir().expect("a folder");
        let (mut folder, found) = Folder::open(data.path()).expect("it is new");
        assert!(found.jobs.is_empty());
        let again = Folder::open(data.path()).map(|_| ()).expect_err("it is locked").to_string();
        assert!(again.contains("in use by another process"), "{again}");
        for id in 1..=3 {
            folder.add(&job(id)).expect("there is room");
        }
        let mut second = job(2);
        second.begin();
        folder.add(&second).expect("there is room");
        let paths = folder.paths.clone();
        fs::write(paths.body(1), "1").and_then(|()| fs::write(paths.body(9), "9")).expect("room");
        drop(folder);
        let lines = data.path().join("jobs").join(LINES);
        let mut text = fs::read(&lines).expect("it is there");
        text.extend(b"{\"id\": 4, \"tas");
        fs::write(&lines, &text).expect("there is room");
        let (folder, found) = Folder::open(data.path()).expect("the lock was given back");
        assert_eq!((found.bad, found.jobs.keys().copied().collect::<Vec<_>>()), (1, vec![1, 2, 3]));
        assert_eq!((found.jobs[&2].status, found.jobs[&2].attempts), (Status::Processing, 1));
        folder.sweep(&found.jobs);
        assert!(paths.body(1).exists() && !paths.body(9).exists());
        // Only whole lines, one for each job, are left.
        drop(folder);
        let text = fs::read_to_string(&lines).expect("text");
        assert_eq!(text.lines().count(), 3);
    }
}
