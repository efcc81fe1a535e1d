//! One matrix on several devices: each has some of the rows, in a format of its own choice.
//!
//! A product has two steps. First each part gets its halo, the elements of x that its rows need and
//! other parts own; every element is sent once to each part that needs it. Then all parts multiply
//! their rows at the same time: the vector mode without overlap of M. Kreutzer et al., Sparse
//! matrix-vector multiplication on GPGPU clusters: a new storage format and a scalable
//! implementation, 2012, section 3.1. Vectors are in host memory: a part on a GPU copies its x there
//! and its y back for each product. Where all parts are on GPUs that reach each other's memory,
//! [`ShardedOperator::on_gpus`] keeps vectors there and exchanges halos without the host.
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

mod gpu;
mod halo;
mod split;
mod vector;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::choose::{Choice, Workload};
use crate::csr::CsrRef;
use crate::error::{Error, Result};
use crate::format::{Basis, Candidate};
use crate::operator::PreparedOperator;
use crate::par;
use crate::partition::{Partition, windows};
use crate::scalar::Scalar;
use crate::tuner::Tuner;
pub use gpu::{CapturedProduct, GpuShards, OnGpus};
use halo::{Columns, Halo};
pub use split::Split;
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
pub struct Tuners(Vec<Arc<Tuner>>);

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
            false => Ok(Tuners(tuners)),
        }
    }

    /// Returns the number of parts.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns false: there is at least one tuner.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Divides a matrix among the devices and prepares each part there, in the format that its
    /// tuner chooses. Columns of a rectangular matrix are divided into equal ranges, those of a
    /// square one like its rows.
    ///
    /// The basis is the original one, within each part.
    ///
    /// # Errors
    /// As [`Tuner::prepare`]; [`Error::Argument`] or [`Error::Shape`] if the split does not apply.
    pub fn prepare_sharded<'a, T: Scalar>(
        &self,
        csr: impl Into<CsrRef<'a, T>>,
        workload: &Workload,
        split: Split<'_>,
    ) -> Result<ShardedOperator<T>> {
        let csr = csr.into();
        let rows = split.partition(csr.pattern(), self.len())?;
        let columns = match csr.nrows() == csr.ncols() {
            true => rows.clone(),
            false => Partition::of_neighbours(windows(csr.ncols(), self.len())),
        };
        let numbers = Columns::of(&columns);
        let workload = Workload { basis: Basis::Original, ..*workload };
        let mut parts = Vec::with_capacity(self.len());
        for (part, tuner) in self.0.iter().enumerate() {
            let (halo, local) = halo::local(csr, rows.of(part), &numbers, part)?;
            let operator = tuner.prepare(&local, &workload)?;
            parts.push(Part { halo, operator });
        }
        Ok(ShardedOperator { nrows: csr.nrows(), ncols: csr.ncols(), rows, columns, parts })
    }
}

/// The rows of one device.
///
/// ```
/// use ellect::sharded::Split;
/// use ellect::{Csr, Tuner, Workload};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = Csr::from_triplets(2, 2, [(0, 0, 2.0), (0, 1, 1.0), (1, 1, 3.0)])?;
/// let tuners = Tuner::open_all(&["cpu"; 2])?;
/// let a = tuners.prepare_sharded(&csr, &Workload::default(), Split::EqualRows)?;
/// let first = &a.parts()[0];
/// assert_eq!((first.rows(), first.nnz(), first.halo()), (1, 2, 1));
/// assert_eq!(first.neighbours().collect::<Vec<_>>(), [1]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Part<T: Scalar> {
    halo: Halo,
    operator: PreparedOperator<T>,
}

impl<T: Scalar> Part<T> {
    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.operator.nrows()
    }

    /// Returns the number of entries.
    pub fn nnz(&self) -> usize {
        self.operator.nnz()
    }

    /// Returns the number of elements of x that come from other parts before each product.
    pub fn halo(&self) -> usize {
        self.halo.len()
    }

    /// Returns the parts that elements of x come from, rising.
    pub fn neighbours(&self) -> impl Iterator<Item = usize> + '_ {
        self.halo.runs.iter().map(|run| run.owner)
    }

    /// Returns the candidate that multiplies the rows.
    pub fn candidate(&self) -> &Candidate {
        self.operator.candidate()
    }

    /// Returns the choice of the candidate.
    pub fn choice(&self) -> Option<&Choice> {
        self.operator.choice()
    }

    /// Returns the numbers of own and of foreign elements of x.
    fn sizes_x(&self) -> (usize, usize) {
        (self.halo.own, self.halo.len())
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

    /// Returns the numbers of the rows of a part in the whole matrix, rising.
    ///
    /// # Panics
    /// If there is no such part.
    pub fn rows_of(&self, part: usize) -> &[u32] {
        self.rows.of(part)
    }

    /// Computes y = alpha A x + beta y like [`PreparedOperator::apply`], for vectors that are not
    /// divided. A solver should keep its vectors divided and call
    /// [`ShardedOperator::apply_sharded`].
    ///
    /// # Errors
    /// As [`PreparedOperator::apply`].
    pub fn apply(&self, alpha: T, x: &[T], beta: T, y: &mut [T]) -> Result<()> {
        let (mut own_x, mut own_y) = (self.scatter_x(x)?, self.scatter_y(y)?);
        self.apply_sharded(alpha, &mut own_x, beta, &mut own_y)?;
        self.gather_y(&own_y, y)
    }

    /// Computes y = alpha A x + beta y; with `beta = 0`, y is written and never read. Fills the
    /// halos of x, and leaves its own elements and the halos of y as they are.
    ///
    /// # Errors
    /// [`Error::Argument`] if a vector is divided in another way; [`Error::Device`] from a GPU, in
    /// which case y is undefined.
    pub fn apply_sharded(
        &self,
        alpha: T,
        x: &mut ShardedVector<T>,
        beta: T,
        y: &mut ShardedVector<T>,
    ) -> Result<()> {
        self.check(x.has(self.parts.iter().map(Part::sizes_x)), "x", "zeros_x or scatter_x")?;
        self.check(y.has(self.sizes_y()), "y", "zeros_y or scatter_y")?;
        self.exchange(x);
        let x = x.parts();
        let mut products: Vec<_> = y.parts_mut().iter_mut().map(|y| (y, Ok(()))).collect();
        par::for_each(&mut products, 1, |part, (y, done)| {
            let operator = &self.parts[part].operator;
            *done = operator.apply(alpha, &x[part], beta, &mut y[..operator.nrows()]);
        });
        products.into_iter().try_for_each(|(_, done)| done)
    }

    /// Copies the own elements that other parts need into their halos.
    fn exchange(&self, x: &mut ShardedVector<T>) {
        let (own, mut halos) = x.split();
        par::for_each(&mut halos, 1, |part, halo| {
            let runs = self.parts[part].halo.runs.iter();
            let elements = runs.flat_map(|run| {
                let from = own[run.owner];
                run.columns.iter().map(move |&column| from[column as usize])
            });
            halo.iter_mut().zip(elements).for_each(|(to, element)| *to = element);
        });
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

    /// Returns the numbers of own and of foreign elements of y in each part: like x for a square
    /// matrix, so that either can become the other.
    fn sizes_y(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let square = self.nrows == self.ncols;
        self.parts.iter().map(move |part| match square {
            true => part.sizes_x(),
            false => (part.rows(), 0),
        })
    }

    /// Returns zeros for x.
    pub fn zeros_x(&self) -> ShardedVector<T> {
        ShardedVector::zeros(self.parts.iter().map(Part::sizes_x))
    }

    /// Returns zeros for y; for a square matrix, they can also be x.
    pub fn zeros_y(&self) -> ShardedVector<T> {
        ShardedVector::zeros(self.sizes_y())
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
        self.check(x.has(self.parts.iter().map(Part::sizes_x)), "x", "zeros_x or scatter_x")?;
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
        self.check(y.has(self.sizes_y()), "y", "zeros_y or scatter_y")?;
        gathered(y, &self.rows, to);
        Ok(())
    }

    /// Replaces the values by those of a matrix with the same pattern.
    ///
    /// # Errors
    /// [`Error::PatternChanged`] if the pattern differs, and as [`PreparedOperator::update`]; the
    /// parts before the one that fails then have the new values.
    pub fn update<'a>(&mut self, csr: impl Into<CsrRef<'a, T>>) -> Result<()> {
        let csr = csr.into();
        let (got, own) = ([csr.nrows(), csr.ncols()], [self.nrows, self.ncols]);
        if got != own {
            let what = format!("{got:?} rows and columns for {own:?}");
            return Err(Error::PatternChanged { what });
        }
        let numbers = Columns::of(&self.columns);
        for (number, part) in self.parts.iter_mut().enumerate() {
            let (halo, local) = halo::local(csr, self.rows.of(number), &numbers, number)?;
            if halo != part.halo {
                let what = format!("part {number} needs other elements of x");
                return Err(Error::PatternChanged { what });
            }
            part.operator.update(&local)?;
        }
        Ok(())
    }

    /// Returns the size of the parts' layouts, in bytes.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.operator.bytes()).sum()
    }
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
