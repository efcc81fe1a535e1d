//! One matrix on several devices: each has some of the rows, in a format of its own choice.
//!
//! A product has two steps. First each part gets its halo, the elements of x that its rows need and
//! other parts own; every element is sent once to each part that needs it. Then all parts multiply
//! their rows at the same time: the vector mode without overlap of M. Kreutzer et al., Sparse
//! matrix-vector multiplication on GPGPU clusters: a new storage format and a scalable
//! implementation, 2012, section 3.1. [`Mode`] names the other orders of that paper, and those of
//! PCSR-I and PCSR-II; [`ShardedOperator::choice`] tells which order was chosen and why, what the model
//! expects of each, and whether fewer GPUs would do. Vectors are in host memory: a part on a GPU copies its x there
//! and its y back for each product. Where all parts are on GPUs that reach each other's memory,
//! [`ShardedOperator::on_gpus`] keeps vectors there, exchanges halos without the host, and multiplies
//! rows that need no halo meanwhile ([`Mode`]). [`OnGpus::record`] records the steps of a solver, so that
//! the host launches an iteration by one call for each GPU. A matrix may be on a GPU, or its rows on all
//! of them, from the start: [`Tuners::prepare_sharded_on_gpu`], [`Tuners::prepare_rows_on_gpus`].
//!
//! Where each part is a process of its own, as with MPI, a [`Rank`] has the part, and an [`Exchange`] of
//! the caller moves the halos; [`Sockets`] is one without MPI. Where each process has a GPU,
//! [`RankOperator::on_gpu`] keeps vectors there: the GPUs move halos themselves by stores into each
//! other's memory or by NCCL ([`Transport`]), and the exchange serves the set-up only.
//!
//! ```
//! use ellect::sharded::Split;
//! use ellect::{Tuner, Workload, generate};
//!
//! # fn main() -> ellect::Result<()> {
//! let csr = generate::by_name("heat", 900, 1)?;
//! let tuners = Tuner::open_all(&["cpu"; 4])?;
//! let a = tuners.prepare_sharded(&csr, &Workload::default(), Split::EqualNonzeros)?;
//!
//! // A solver keeps its vectors divided.
//! let (mut x, mut y) = (a.scatter_x(&vec![1.0; csr.ncols()])?, a.zeros_y());
//! a.apply_sharded(1.0, &mut x, 0.0, &mut y)?;
//! let alpha = x.dot(&y)?;
//! # assert!(alpha > 0.0);
//!
//! for part in a.parts() {
//!     println!("{} rows, {} elements from others, {}", part.rows(), part.halo(), part.candidate());
//! }
//! # Ok(())
//! # }
//! ```

mod agreement;
mod balance;
mod choice;
mod gpu;
mod gpu_rows;
mod groups;
mod halo;
mod messages;
mod mode;
mod numbers;
mod one_sum;
mod part;
mod product;
mod rank;
mod rank_gpu;
mod rank_link;
mod rank_operator;
mod recorded;
mod sockets;
mod split;
mod threads;
mod transport;
mod vector;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::choose::Workload;
use crate::csr::CsrRef;
use crate::dense::{self, DenseMut, DenseRef};
use crate::device::Kind;
use crate::error::{Error, Result};
use crate::par::PartThreads;
use crate::partition::{Partition, windows};
use crate::scalar::Scalar;
use crate::tuner::Tuner;
pub use choice::{ExpectedMode, ModeChoice};
pub use gpu::{CapturedProduct, GpuShards, OnGpus};
use halo::{Columns, Counts, Shape};
pub use messages::{Exchange, ExchangeError, Incoming, Outgoing};
pub use mode::Mode;
pub use numbers::{GpuFactor, GpuNumber};
pub use one_sum::OneSumCg;
pub use part::Part;
pub use rank::Rank;
pub use rank_gpu::{RankGpuNumber, RankGpuProduct, RankGpuVector, RankOnGpu};
pub use rank_operator::{RankOperator, RankVector};
pub use recorded::RecordedWork;
pub use sockets::Sockets;
pub use split::Split;
pub use threads::Threads;
pub use transport::Transport;
pub use vector::ShardedVector;

/// The tuners of several devices, one for each part of a matrix.
///
/// ```
/// use ellect::Tuner;
///
/// # fn main() -> ellect::Result<()> {
/// assert_eq!(Tuner::open_all(&["cpu", "cpu"])?.len(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Tuners {
    tuners: Vec<Arc<Tuner>>,
    mode: Mode,
}

impl Tuner {
    /// Opens a tuner for each of these devices, each device once: see [`Tuner::open`]. A device
    /// that is named several times gets several parts of a matrix.
    ///
    /// # Errors
    /// As [`Tuner::open`]; [`Error::Argument`] without any name.
    pub fn open_all(names: &[impl AsRef<str>]) -> Result<Tuners> {
        let mut opened = BTreeMap::new();
        let mut tuners = Vec::new();
        for name in names.iter().map(AsRef::as_ref) {
            let tuner = match opened.get(name) {
                Some(tuner) => Arc::clone(tuner),
                None => Arc::new(Tuner::open(name)?),
            };
            opened.insert(name, Arc::clone(&tuner));
            tuners.push(tuner);
        }
        Tuners::of(tuners)
    }
}

impl Tuners {
    /// Gathers tuners, one for each part; several may be the same.
    ///
    /// # Errors
    /// [`Error::Argument`] if there are none.
    pub fn of(tuners: Vec<Arc<Tuner>>) -> Result<Self> {
        match tuners.is_empty() {
            true => Err(Error::argument("no device is named; name at least one, cpu for instance")),
            false => Ok(Tuners { tuners, mode: Mode::Auto }),
        }
    }

    /// Returns the tuners with another order of exchange and products.
    #[must_use]
    pub fn with_mode(self, mode: Mode) -> Self {
        Tuners { mode, ..self }
    }

    /// Returns the number of parts.
    pub fn len(&self) -> usize {
        self.tuners.len()
    }

    /// Returns false: there is at least one tuner.
    pub fn is_empty(&self) -> bool {
        self.tuners.is_empty()
    }

    /// Divides a matrix among the devices and prepares each part there, in the format that its
    /// tuner chooses. Columns of a rectangular matrix are divided into equal ranges, those of a
    /// square one like its rows.
    ///
    /// The basis is the original one, within each part.
    ///
    /// # Errors
    /// As [`Tuner::prepare`]; [`Error::Argument`] or [`Error::Shape`] if the split does not apply, or
    /// is not that of the mode.
    pub fn prepare_sharded<'a, T: Scalar>(
        &self,
        csr: impl Into<CsrRef<'a, T>>,
        workload: &Workload,
        split: Split<'_>,
    ) -> Result<ShardedOperator<T>> {
        let csr = csr.into();
        self.mode.check(split)?;
        let mut rows = match split {
            Split::EqualTimes => balance::equal_times(&self.tuners, csr, workload)?,
            _ => split.partition(csr.pattern(), self.len())?,
        };
        let bandwidths: Vec<Option<f64>> =
            self.tuners.iter().map(|tuner| bandwidth(tuner)).collect();
        let numbers = Columns::of(&columns_like(&rows, csr.ncols()));
        let groups = groups::groups(csr, &mut rows, &numbers, self.mode, &bandwidths);
        let columns = columns_like(&rows, csr.ncols());
        let numbers = Columns::of(&columns).for_mode(self.mode);
        let mut parts = Vec::with_capacity(self.len());
        for (part, (tuner, groups)) in self.tuners.iter().zip(groups).enumerate() {
            let (halo, matrices) = halo::local(csr, rows.of(part), &groups, &numbers, part)?;
            parts.push(Part::of(tuner, halo, groups, &matrices, workload)?);
        }
        let counts = |number: usize| halo::counts(csr, rows.of(number), &numbers, number);
        let counts: Vec<Counts> = match self.are_gpus() {
            true => (0..self.len()).map(counts).collect(),
            false => Vec::new(),
        };
        let operator = self.operator(split, [rows, columns], parts, |number| counts[number])?;
        Ok(ShardedOperator { rows_keep_order: false, ..operator })
    }

    /// Makes the operator of these parts, which have the rows and columns of two partitions. `counts` counts
    /// the entries of a part; it is called if all devices are GPUs.
    fn operator<T: Scalar>(
        &self,
        split: Split<'_>,
        [rows, columns]: [Partition; 2],
        parts: Vec<Part<T>>,
        counts: impl Fn(usize) -> Counts,
    ) -> Result<ShardedOperator<T>> {
        let [nrows, ncols] = [rows.order.len(), columns.order.len()];
        let works = self.works(ncols, counts, &parts);
        let choice = self.choice(split, &parts, works.as_ref());
        let threads = (self.mode == Mode::Task)
            .then(|| PartThreads::of(self.len()).map(Arc::new))
            .transpose()?;
        let rows_keep_order = true;
        Ok(ShardedOperator { nrows, ncols, rows, columns, parts, choice, threads, rows_keep_order })
    }

    /// Tells whether all devices are GPUs.
    fn are_gpus(&self) -> bool {
        self.tuners.iter().all(|tuner| tuner.device().kind != Kind::Host)
    }
}

/// A matrix divided by rows among several devices.
///
/// ```
/// use ellect::sharded::Split;
/// use ellect::{Csr, Tuner, Workload};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = Csr::from_triplets(2, 2, [(0, 0, 2.0), (0, 1, 1.0), (1, 1, 3.0)])?;
/// let tuners = Tuner::open_all(&["cpu"; 2])?;
/// let a = tuners.prepare_sharded(&csr, &Workload::default(), Split::EqualRows)?;
/// let mut y = [0.0; 2];
/// a.apply(1.0, &[1.0, 10.0], 0.0, &mut y)?;
/// assert_eq!(y, [12.0, 30.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ShardedOperator<T: Scalar> {
    nrows: usize,
    ncols: usize,
    rows: Partition,
    columns: Partition,
    parts: Vec<Part<T>>,
    choice: ModeChoice,
    /// The threads of [`Mode::Task`].
    threads: Option<Arc<PartThreads>>,
    /// Set if parts have their rows and entries in the order of the whole matrix.
    rows_keep_order: bool,
}

impl<T: Scalar> ShardedOperator<T> {
    /// Returns the number of rows.
    pub fn nrows(&self) -> usize {
        self.nrows
    }

    /// Returns the number of columns.
    pub fn ncols(&self) -> usize {
        self.ncols
    }

    /// Returns the parts, in the order of their devices.
    pub fn parts(&self) -> &[Part<T>] {
        &self.parts
    }

    /// Returns the choice of the mode for all parts, with its reason; [`Part::choice`] is that of a
    /// part's format.
    pub fn choice(&self) -> &ModeChoice {
        &self.choice
    }

    /// Returns the numbers of the rows of a part in the whole matrix, in the order of the part's
    /// elements of y.
    ///
    /// # Panics
    /// If there is no such part.
    pub fn rows_of(&self, part: usize) -> &[u32] {
        self.rows.of(part)
    }

    /// Computes y = alpha A x + beta y like [`PreparedOperator::apply`](crate::PreparedOperator::apply), for vectors that are not
    /// divided. A solver should keep its vectors divided and call
    /// [`ShardedOperator::apply_sharded`].
    ///
    /// # Errors
    /// As [`PreparedOperator::apply`](crate::PreparedOperator::apply).
    pub fn apply(&self, alpha: T, x: &[T], beta: T, y: &mut [T]) -> Result<()> {
        let (mut own_x, mut own_y) = (self.scatter_x(x)?, self.scatter_y(y)?);
        self.apply_sharded(alpha, &mut own_x, beta, &mut own_y)?;
        self.gather_y(&own_y, y)
    }

    /// Computes Y = alpha A X + beta Y for one vector in each column of X and Y, column by column as
    /// [`ShardedOperator::apply`].
    ///
    /// # Errors
    /// As [`PreparedOperator::apply_many`](crate::PreparedOperator::apply_many).
    pub fn apply_many(
        &self,
        alpha: T,
        x: DenseRef<'_, T>,
        beta: T,
        y: DenseMut<'_, T>,
    ) -> Result<()> {
        dense::check([self.nrows(), self.ncols()], &x, &y)?;
        dense::by_columns(x, y, beta != T::ZERO, &mut |x, y| self.apply(alpha, x, beta, y))
    }

    fn check(&self, fits: bool, name: &str, remedy: &str) -> Result<()> {
        match fits {
            true => Ok(()),
            false => Err(Error::argument(format!(
                "{name} is divided in another way than the matrix; make it by this operator's \
                 {remedy}"
            ))),
        }
    }

    /// Returns the places of y in each part: like x for a square matrix, so that either can become
    /// the other.
    fn shapes_y(&self) -> impl Iterator<Item = Shape> + '_ {
        let square = self.nrows == self.ncols;
        self.parts.iter().map(move |part| match square {
            true => part.shape_x(),
            false => Shape { own: 0..part.rows(), len: part.rows() },
        })
    }

    /// Returns zeros for x.
    pub fn zeros_x(&self) -> ShardedVector<T> {
        ShardedVector::zeros(self.parts.iter().map(Part::shape_x))
    }

    /// Returns zeros for y; for a square matrix, they can also be x.
    pub fn zeros_y(&self) -> ShardedVector<T> {
        ShardedVector::zeros(self.shapes_y())
    }

    /// Divides a vector of `ncols` elements among the parts.
    ///
    /// # Errors
    /// [`Error::Shape`] if it has another length.
    pub fn scatter_x(&self, x: &[T]) -> Result<ShardedVector<T>> {
        check_len("x", x.len(), self.ncols)?;
        Ok(scattered(self.zeros_x(), &self.columns, x))
    }

    /// Divides a vector of `nrows` elements among the parts.
    ///
    /// # Errors
    /// [`Error::Shape`] if it has another length.
    pub fn scatter_y(&self, y: &[T]) -> Result<ShardedVector<T>> {
        check_len("y", y.len(), self.nrows)?;
        Ok(scattered(self.zeros_y(), &self.rows, y))
    }

    /// Copies the elements of a divided x to one vector of `ncols` elements.
    ///
    /// # Errors
    /// [`Error::Shape`] if that has another length; [`Error::Argument`] if x is divided in another
    /// way.
    pub fn gather_x(&self, x: &ShardedVector<T>, to: &mut [T]) -> Result<()> {
        check_len("the vector for x", to.len(), self.ncols)?;
        self.check(x.has(self.parts.iter().map(Part::shape_x)), "x", "zeros_x or scatter_x")?;
        gathered(x, &self.columns, to);
        Ok(())
    }

    /// Copies the elements of a divided y to one vector of `nrows` elements.
    ///
    /// # Errors
    /// [`Error::Shape`] if that has another length; [`Error::Argument`] if y is divided in another
    /// way.
    pub fn gather_y(&self, y: &ShardedVector<T>, to: &mut [T]) -> Result<()> {
        check_len("the vector for y", to.len(), self.nrows)?;
        self.check(y.has(self.shapes_y()), "y", "zeros_y or scatter_y")?;
        gathered(y, &self.rows, to);
        Ok(())
    }

    /// Replaces the values by those of a matrix with the same pattern.
    ///
    /// # Errors
    /// [`Error::PatternChanged`] if the pattern differs, and as [`PreparedOperator::update`](crate::PreparedOperator::update); the
    /// parts before the one that fails then have the new values.
    pub fn update<'a>(&mut self, csr: impl Into<CsrRef<'a, T>>) -> Result<()> {
        let csr = csr.into();
        let (got, own) = ([csr.nrows(), csr.ncols()], [self.nrows, self.ncols]);
        if got != own {
            let what = format!("{got:?} rows and columns for {own:?}");
            return Err(Error::PatternChanged { what });
        }
        let numbers = Columns::of(&self.columns).for_mode(self.choice.mode);
        for (number, part) in self.parts.iter_mut().enumerate() {
            part.update(csr, self.rows.of(number), &numbers, number)?;
        }
        Ok(())
    }

    /// Returns the size of the parts' layouts, in bytes.
    pub fn bytes(&self) -> u64 {
        let operators = self.parts.iter().flat_map(|part| &part.operators);
        operators.map(|(_, operator)| operator.bytes()).sum()
    }
}

/// Divides columns like the rows of a square matrix, those of a rectangular one into equal ranges.
fn columns_like(rows: &Partition, ncols: usize) -> Partition {
    match rows.order.len() == ncols {
        true => rows.clone(),
        false => Partition::of_neighbours(windows(ncols, rows.parts())),
    }
}

/// Returns the bandwidth of a tuner's GPU in bytes a second; `None` on a host.
fn bandwidth(tuner: &Tuner) -> Option<f64> {
    tuner.backend().gpu().ok().map(|_| 1e9 * tuner.device().read_gbps)
}

fn check_len(what: &'static str, got: usize, needed: usize) -> Result<()> {
    match got == needed {
        true => Ok(()),
        false => Err(Error::Shape { what, got, needed }),
    }
}

fn scattered<T: Scalar>(
    mut to: ShardedVector<T>,
    partition: &Partition,
    from: &[T],
) -> ShardedVector<T> {
    for part in 0..partition.parts() {
        let own = to.own_mut(part).iter_mut().zip(partition.of(part));
        own.for_each(|(to, &at)| *to = from[at as usize]);
    }
    to
}

fn gathered<T: Scalar>(from: &ShardedVector<T>, partition: &Partition, to: &mut [T]) {
    for part in 0..partition.parts() {
        let own = from.own(part).iter().zip(partition.of(part));
        own.for_each(|(&element, &at)| to[at as usize] = element);
    }
}
