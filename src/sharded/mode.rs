//! Ways to order the exchange of halos and the products of a part.

use std::fmt;
use std::str::FromStr;

use super::split::Split;
use crate::error::{Error, Result};

/// The order of the exchange of halos and the products of a part.
///
/// `naive` and `task` are modes of M. Kreutzer et al., Sparse matrix-vector multiplication on GPGPU
/// clusters: a new storage format and a scalable implementation, 2012, section 3.1; `pcsr-i` and
/// `pcsr-ii` are those of G. He, J. Gao, A Novel CSR-Based Sparse Matrix-Vector Multiplication on GPUs,
/// 2016, section 4. They serve comparison: [`Mode::Auto`] takes none of them.
///
/// ```
/// use ellect::sharded::{Mode, Split};
/// use ellect::{Tuner, Workload, generate};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = generate::by_name("stencil5", 900, 1)?;
/// let tuners = Tuner::open_all(&["cpu"; 2])?.with_mode(Mode::Overlap);
/// let a = tuners.prepare_sharded(&csr, &Workload::default(), Split::EqualRows)?;
/// // The last line of 30 points needs elements of the second part.
/// let rows: Vec<usize> = a.parts()[0].operators().map(|(rows, _)| rows.len()).collect();
/// assert_eq!(rows, [420, 30]);
///
/// assert_eq!("pcsr-ii".parse::<Mode>()?.split(), Some(Split::EqualNonzeros));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// [`Mode::Overlap`] for parts on GPUs at least half of whose entries are in rows that need no
    /// halo, if these take the GPU longer than the host needs to launch the products of all parts;
    /// [`Mode::Vector`] for all others.
    #[default]
    Auto,
    /// The exchange first, then one product of all rows of the part: Kreutzer's vector mode without
    /// overlap.
    Vector,
    /// The rows that need no halo are multiplied during the exchange, the others after it, each in
    /// a format of their own. Every row is written once. Parts on hosts overlap nothing, unless each
    /// is a [`Rank`](super::Rank).
    Overlap,
    /// Kreutzer's vector mode with naive overlap: the entries in own columns are multiplied during the
    /// exchange, the others after it. Each half has all rows and a format of its own, and y is written
    /// twice. The thread that multiplies also exchanges, so parts on hosts overlap nothing.
    Naive,
    /// Kreutzer's task mode: as [`Mode::Naive`], with threads of their own. For each part on a host, a
    /// thread exchanges while others multiply; for each part on a GPU, a thread queues the exchange and
    /// both products. A [`Rank`](super::Rank) exchanges on a second thread, unless its vectors are on a
    /// GPU: it is then as [`Mode::Naive`].
    Task,
    /// PCSR-I: equal rows ([`Split::EqualRows`]), and each part gets all of x.
    PcsrI,
    /// PCSR-II: equal nonzeros ([`Split::EqualNonzeros`]), and each part gets all of x.
    PcsrII,
}

/// The modes with their names.
const NAMES: [(&str, Mode); 7] = [
    ("auto", Mode::Auto),
    ("vector", Mode::Vector),
    ("overlap", Mode::Overlap),
    ("naive", Mode::Naive),
    ("task", Mode::Task),
    ("pcsr-i", Mode::PcsrI),
    ("pcsr-ii", Mode::PcsrII),
];

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Mode {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = NAMES.iter().find(|(name, _)| *name == text);
        found.map(|&(_, mode)| mode).ok_or_else(|| {
            let names = NAMES.map(|(name, _)| name).join(", ");
            Error::argument(format!("no mode is named '{text}'; there are: {names}"))
        })
    }
}

/// Time in which a host launches the exchange and both products of a part, in seconds; measured with
/// 2 and 4 H200 (tests/results/multi_gpu.md).
pub(super) const LAUNCH_S: f64 = 7e-6;

/// The rows of a part that need no halo, as far as the mode asks.
pub(super) struct Inner {
    /// Share of the part's entries.
    pub share: f64,
    /// Least time of their product on a GPU, that of reading them, in seconds; `None` on a host.
    pub read_s: Option<f64>,
    /// Number of parts of the matrix.
    pub parts: usize,
}

impl Mode {
    /// Returns all modes, [`Mode::Auto`] first.
    pub fn all() -> impl Iterator<Item = Mode> {
        NAMES.into_iter().map(|(_, mode)| mode)
    }

    /// Returns the name, for instance `pcsr-ii`.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|&&(_, mode)| mode == self).map_or("", |(name, _)| name)
    }

    /// Returns the division of the rows that is a part of the mode; `None` if any division will do.
    pub fn split(self) -> Option<Split<'static>> {
        match self {
            Mode::PcsrI => Some(Split::EqualRows),
            Mode::PcsrII => Some(Split::EqualNonzeros),
            _ => None,
        }
    }

    /// Checks that the rows are divided as the mode demands.
    ///
    /// # Errors
    /// [`Error::Argument`] if they are not.
    pub(super) fn check(self, split: Split<'_>) -> Result<()> {
        match self.split() {
            Some(own) if own != split => Err(Error::argument(format!(
                "the mode {self} divides the rows by {own:?}, but the split is {}; pass Split::{own:?}, \
                 or choose another mode",
                split.name()
            ))),
            _ => Ok(()),
        }
    }

    /// Tells whether a part multiplies all its rows at once, after the exchange.
    pub(super) fn is_one_step(self) -> bool {
        matches!(self, Mode::Vector | Mode::PcsrI | Mode::PcsrII)
    }

    /// Tells whether a part multiplies the entries in own columns apart from the others.
    pub(super) fn divides_columns(self) -> bool {
        matches!(self, Mode::Naive | Mode::Task)
    }

    /// Tells whether each part gets all of x.
    pub(super) fn has_all_of_x(self) -> bool {
        matches!(self, Mode::PcsrI | Mode::PcsrII)
    }

    /// Tells whether a part multiplies these rows apart.
    pub(super) fn is_apart(self, inner: &Inner) -> bool {
        let launches_s = LAUNCH_S * inner.parts as f64;
        let hides_launches = inner.read_s.is_some_and(|read_s| read_s >= launches_s);
        match self {
            Mode::Auto => inner.share >= 0.5 && hides_launches,
            Mode::Overlap => true,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for mode in Mode::all() {
            assert_eq!(mode.to_string().parse::<Mode>().expect("a name"), mode);
        }
        let error = "pcsr".parse::<Mode>().expect_err("no name").to_string();
        assert!(error.starts_with("no mode is named 'pcsr'; there are: auto, vector, "), "{error}");
    }
}
