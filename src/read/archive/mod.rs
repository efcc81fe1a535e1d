//! The choice of the matrix among the members of an archive, or the variables of a file.
//!
//! Members are offered in the order of the archive, and the one that can be meant is read when it
//! is met, so that one pass is enough and at most one matrix is held. The rules, the first that
//! applies:
//! 1. A matrix is preferred to a vector, which is an array or has one row or one column.
//! 2. In one folder, `NAME/NAME.mtx` is preferred to all others; so is field `A` of a structure.
//! 3. In one folder, `NAME.mtx` is preferred to `NAME_b.mtx`, `NAME_coord.mtx` and the like.
//!
//! If several are left, none is read.

mod tar;

use super::content::{Content, excerpt};
use super::context::{Context, list};
use super::layers::{Source, open};
use super::{harwell_boeing, matrix_market};
use crate::csr::Csr;
use crate::error::{Error, Result};
use crate::scalar::Scalar;
pub(super) use tar::{checksum_holds as tar_checksum_holds, read as tar};

/// First bytes of a file that are searched for the size line, behind the comments.
pub(super) const GLANCE_BYTES: u64 = 1 << 16;

/// Maximum number of members, whose names are kept for messages.
const MAX_MEMBERS: usize = 10_000;

/// Maximum length of a name in bytes.
const NAME_BYTES: usize = 4096;

/// A member or variable that could be the matrix.
pub(super) struct Candidate {
    /// The name by which the caller can pick it.
    name: String,
    folder: String,
    /// The file's name without endings; `None` for variables.
    stem: Option<String>,
    /// True for the one that is named like its folder.
    main: bool,
    vector: bool,
}

impl Candidate {
    fn member(name: &str, vector: bool) -> Candidate {
        let (folder, file) = name.rsplit_once('/').unwrap_or(("", name));
        let stem = stem(file);
        let main = folder.rsplit('/').next() == Some(stem);
        Candidate {
            name: name.into(),
            folder: folder.into(),
            stem: Some(stem.into()),
            main,
            vector,
        }
    }

    /// A variable, or the field of a structure, `Problem.A` for instance.
    pub fn variable(name: &str, vector: bool) -> Candidate {
        let (folder, field) = name.rsplit_once('.').unwrap_or(("", name));
        let main = !folder.is_empty() && field == "A";
        Candidate { name: name.into(), folder: folder.into(), stem: None, main, vector }
    }

    /// Returns true if this is meant, not `other`, where an archive holds both.
    fn outranks(&self, other: &Candidate) -> bool {
        if self.vector != other.vector {
            return other.vector;
        }
        let belongs = match (&self.stem, &other.stem) {
            (Some(stem), Some(longer)) => {
                longer.strip_prefix(stem.as_str()).is_some_and(|rest| rest.starts_with('_'))
            }
            _ => false,
        };
        self.folder == other.folder && (self.main || belongs) && !other.main
    }
}

/// Returns the name of a file without the endings of compression and of its format.
fn stem(file: &str) -> &str {
    let plain = [".gz", ".zst", ".bz2", ".xz"].iter().find_map(|ending| file.strip_suffix(ending));
    let plain = plain.unwrap_or(file);
    plain.rsplit_once('.').map_or(plain, |(stem, _)| stem)
}

/// Returns true for a name that says that the file is a matrix.
fn is_matrix_name(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let plain = [".gz", ".zst", ".bz2", ".xz"].iter().find_map(|ending| lower.strip_suffix(ending));
    let plain = plain.unwrap_or(&lower);
    [".mtx", ".mm", ".npz", ".mat"].iter().any(|ending| plain.ends_with(ending))
        || harwell_boeing::is_name(plain)
}

/// Reads the matrix among the members that are offered, in their order.
pub(super) struct Picker<'a, T> {
    context: &'a Context<'a>,
    /// The matrix of the only rival, or the fault of reading it.
    read: Option<Result<Csr<T>>>,
    /// The candidates of which none is preferred to another.
    rivals: Vec<Candidate>,
    /// Names of candidates that another one is preferred to.
    passed: Vec<String>,
    /// Names of everything else.
    others: Vec<String>,
}

impl<'a, T: Scalar> Picker<'a, T> {
    /// Creates a picker that has been offered nothing.
    pub fn new(context: &'a Context<'a>) -> Self {
        Picker { context, read: None, rivals: Vec::new(), passed: Vec::new(), others: Vec::new() }
    }

    /// Offers a file of an archive.
    ///
    /// # Errors
    /// [`Error::Limit`], and faults of the archive itself.
    pub fn member(&mut self, name: &str, source: Source<'_>) -> Result<()> {
        let context = self.context;
        let name = name.trim_start_matches("./");
        self.count(name)?;
        if let Some(wanted) = context.member {
            if wanted.trim_start_matches("./") == name {
                let read = || open(source, name, 0, context)?.read(context);
                self.offer(Candidate::member(name, false), read);
            } else {
                self.others.push(name.into());
            }
            return Ok(());
        }
        // Archivers of macOS add a file `._NAME` for each file.
        let hidden = name.rsplit('/').next().is_some_and(|file| file.starts_with('.'));
        if hidden {
            return Ok(());
        }
        let opened = match open(source, name, GLANCE_BYTES, context) {
            Ok(opened) => opened,
            Err(error) => return self.unreadable(name, error),
        };
        let nested = matches!(opened.content, Content::Json | Content::Tar)
            || (opened.content == Content::Zip && !name.ends_with(".npz"));
        if nested {
            self.others.push(name.into());
            return Ok(());
        }
        let vector = opened.content == Content::MatrixMarket
            && matrix_market::shape(&opened.head).is_some_and(|shape| shape.is_vector());
        self.offer(Candidate::member(name, vector), || opened.read(context));
        Ok(())
    }

    /// Offers a file that cannot be opened; its fault matters if its name is that of a matrix.
    ///
    /// # Errors
    /// `error`, if it is none of the file's content.
    pub fn unreadable(&mut self, name: &str, error: Error) -> Result<()> {
        if !matches!(error, Error::Input { .. }) {
            return Err(error);
        }
        match is_matrix_name(name) {
            true => self.offer(Candidate::member(name, false), || Err(error)),
            false => self.others.push(name.into()),
        }
        Ok(())
    }

    /// Offers a candidate; `read` is called if it can be the matrix.
    pub fn offer(&mut self, candidate: Candidate, read: impl FnOnce() -> Result<Csr<T>>) {
        if self.rivals.iter().any(|rival| rival.outranks(&candidate)) {
            self.passed.push(candidate.name);
            return;
        }
        let (kept, outranked): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.rivals).into_iter().partition(|r| !candidate.outranks(r));
        self.passed.extend(outranked.into_iter().map(|rival| rival.name));
        self.rivals = kept;
        // A second rival makes both unwanted; the first matrix is freed before the next is read.
        self.read = None;
        self.rivals.push(candidate);
        if self.rivals.len() == 1 {
            self.read = Some(read());
        }
    }

    /// Adds the name of something that is no sparse matrix.
    ///
    /// # Errors
    /// [`Error::Input`] for too many or too long names.
    pub fn other(&mut self, name: String) -> Result<()> {
        self.count(&name)?;
        self.others.push(name);
        Ok(())
    }

    fn count(&self, name: &str) -> Result<()> {
        let members = self.rivals.len() + self.passed.len() + self.others.len();
        if members < MAX_MEMBERS && name.len() <= NAME_BYTES {
            return Ok(());
        }
        Err(Error::input(format!(
            "an archive may hold at most {MAX_MEMBERS} files, with names of at most {NAME_BYTES} \
             bytes; unpack it first"
        )))
    }

    /// Returns the matrix that is meant.
    ///
    /// # Errors
    /// [`Error::Input`] with the names, if it is none or several; the fault of reading it.
    pub fn finish(self, what: &str) -> Result<Csr<T>> {
        let names: Vec<_> = self.rivals.into_iter().map(|rival| rival.name).collect();
        match (self.context.member, names.as_slice(), self.read) {
            (_, [name], Some(read)) => {
                if !self.passed.is_empty() {
                    self.context.notes.tell(format!(
                        "read {} of the {what}; passed over {}",
                        name.escape_debug(),
                        list(&self.passed)
                    ));
                }
                read.map_err(|error| match error {
                    Error::Input { at, what } => {
                        Error::Input { at, what: format!("{what} (in {})", name.escape_debug()) }
                    }
                    other => other,
                })
            }
            (Some(wanted), [], _) => Err(Error::input(format!(
                "the {what} holds no matrix {}; it holds: {}",
                excerpt(wanted.as_bytes()),
                list(&self.others)
            ))),
            (None, [], _) if self.others.is_empty() => {
                Err(Error::input(format!("the {what} is empty")))
            }
            (None, [], _) => Err(Error::input(format!(
                "the {what} holds no matrix that can be read; it holds: {}",
                list(&self.others)
            ))),
            (_, [first, ..], _) => Err(Error::input(format!(
                "the {what} holds {} matrices: {}; name one, for instance {}",
                names.len(),
                list(&names),
                example(&self.context.name, first)
            ))),
        }
    }
}

/// Shows how to pick a member: by the path, or without one in a query.
fn example(path: &str, member: &str) -> String {
    let member = member.escape_debug();
    if path.is_empty() {
        return format!("member={member} over HTTP, or FILE:{member}");
    }
    format!("{}:{member}", path.escape_debug())
}
