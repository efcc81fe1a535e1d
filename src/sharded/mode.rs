//! Ways to order the exchange of halos and the products of a part.

/// The order of the exchange of halos and the products of a part.
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
    /// The exchange first, then one product of all rows of the part: the vector mode of M. Kreutzer
    /// et al., 2012, section 3.1.
    Vector,
    /// The rows that need no halo are multiplied during the exchange, the others after it, each in
    /// a format of their own. Every row is written once. Parts on hosts overlap nothing, unless each
    /// is a [`Rank`](super::Rank).
    Overlap,
}

/// Time in which a host launches the exchange and both products of a part, in seconds; measured with
/// 2 and 4 H200 (tests/results/multi_gpu.md).
const LAUNCH_S: f64 = 7e-6;

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
    /// Tells whether a part multiplies these rows apart.
    pub(super) fn is_apart(self, inner: &Inner) -> bool {
        let launches_s = LAUNCH_S * inner.parts as f64;
        let hides_launches = inner.read_s.is_some_and(|read_s| read_s >= launches_s);
        match self {
            Mode::Auto => inner.share >= 0.5 && hides_launches,
            Mode::Vector => false,
            Mode::Overlap => true,
        }
    }
}
