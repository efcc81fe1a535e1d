//! The part of a divided matrix that one process has: set-up and products.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use xxhash_rust::xxh3::xxh3_64;

use super::agreement::{self, Facts};
use super::groups::{self, Of};
use super::halo::{self, Columns, Halo};
use super::messages::Parcel;
use super::part::Part;
use super::rank::{Rank, numbers};
use super::split::Split;
use super::{bandwidth, check_len, columns_like};
use crate::choose::Workload;
use crate::csr::CsrRef;
use crate::error::{Error, Result};
use crate::fingerprint::Fingerprint;
use crate::partition::{Group, Partition};
use crate::scalar::Scalar;
use crate::tuner::Tuner;

/// Own rows of a rank, and the numbering of all columns.
#[derive(Debug)]
struct Division {
    /// The own rows in the matrix that the rank gave.
    rows: Vec<u32>,
    /// Number in the whole matrix of the first row that the rank gave.
    first_row: usize,
    columns: Columns,
    /// Number of rows that the rank gave.
    given: usize,
    /// Numbers of rows and columns of the whole matrix.
    shape: [usize; 2],
}

impl Rank {
    /// Prepares the own rows of a matrix. `rows` has all columns of the whole matrix, numbered as there;
    /// rank 0 has the first rows, rank 1 the next ones and so on. `columns` is the number of own columns,
    /// that is of own elements of x, in the order of the ranks too; `None` for a square matrix, whose
    /// columns are divided like its rows.
    ///
    /// All ranks call this together. If one of them fails, all do. The basis is the original one.
    ///
    /// # Errors
    /// As [`Tuner::prepare`]; [`Error::Argument`] if the ranks' numbers of rows or columns do not fit
    /// each other; [`Error::Exchange`] if the exchange fails, or if another rank failed.
    pub fn prepare_rows<'a, T: Scalar>(
        &self,
        tuner: &Tuner,
        rows: impl Into<CsrRef<'a, T>>,
        columns: Option<usize>,
        workload: &Workload,
    ) -> Result<RankOperator<T>> {
        let csr = rows.into();
        let suits = match self.mode.split() {
            None => Ok(()),
            Some(_) => Err(Error::argument(format!(
                "the mode {} divides the rows itself, but each rank has its own rows; call \
                 prepare_whole, or choose another mode",
                self.mode
            ))),
        };
        let facts = suits.as_ref().ok().map(|()| Facts {
            stated: u64::from(columns.is_some()),
            rows: csr.nrows() as u64,
            columns: columns.unwrap_or(0) as u64,
            ..self.facts::<T>(csr.ncols())
        });
        let all = self.agree(facts);
        suits?;
        let all = all?;
        let [rows, columns] = agreement::bounds(&all)?;
        let division = Division {
            rows: (0..csr.nrows() as u32).collect(),
            first_row: rows[self.rank()],
            given: csr.nrows(),
            shape: [rows[self.size()], csr.ncols()],
            columns: Columns::of_neighbours(columns),
        };
        self.prepare(tuner, csr, division, workload)
    }

    /// Prepares the own rows of a matrix that each rank has as a whole; see
    /// [`Tuners::prepare_sharded`](super::Tuners::prepare_sharded). Part `p` of the split is that of
    /// rank `p`, and its rows keep their order.
    ///
    /// All ranks call this together. If one of them fails, all do.
    ///
    /// # Errors
    /// As [`Rank::prepare_rows`]; [`Error::Argument`] or [`Error::Shape`] if the split does not apply.
    pub fn prepare_whole<'a, T: Scalar>(
        &self,
        tuner: &Tuner,
        csr: impl Into<CsrRef<'a, T>>,
        workload: &Workload,
        split: Split<'_>,
    ) -> Result<RankOperator<T>> {
        let csr = csr.into();
        let suits = self.mode.check(split);
        let rows = suits.and_then(|()| split.partition(csr.pattern(), self.size()));
        let facts = rows.as_ref().ok().map(|rows| Facts {
            whole: 1,
            digest: digest(csr, rows),
            ..self.facts::<T>(csr.ncols())
        });
        let all = self.agree(facts);
        let rows = rows?;
        all?;
        let division = Division {
            columns: Columns::of(&columns_like(&rows, csr.ncols())).for_mode(self.mode),
            rows: rows.of(self.rank()).to_vec(),
            first_row: 0,
            given: csr.nrows(),
            shape: [csr.nrows(), csr.ncols()],
        };
        self.prepare(tuner, csr, division, workload)
    }

    /// Takes part in the preparation or the update of a matrix as a rank that failed, for instance
    /// because it could not read its rows; the other ranks then fail too instead of waiting.
    pub fn give_up(&self) {
        // The other ranks are told; this one knows why.
        let _ = self.all_gather(None, Facts::BYTES);
    }

    /// Tells the other ranks whether this one has succeeded.
    ///
    /// # Errors
    /// The own fault, else [`Error::Exchange`] if another rank failed.
    fn all_succeed<R>(&self, own: Result<R>) -> Result<R> {
        let all = self.all_gather(own.is_ok().then_some(&[0; Facts::BYTES]), Facts::BYTES);
        let own = own?;
        all.map(|_| own)
    }

    fn facts<T: Scalar>(&self, ncols: usize) -> Facts {
        Facts {
            size: self.size() as u64,
            value_bytes: size_of::<T>() as u64,
            whole: 0,
            ncols: ncols as u64,
            digest: 0,
            stated: 0,
            rows: 0,
            columns: 0,
        }
    }

    /// Returns the facts of all ranks, which fit each other; `None` if this rank failed.
    fn agree(&self, own: Option<Facts>) -> Result<Vec<Facts>> {
        let own = own.map(|facts| facts.words());
        let own = own.as_ref().map(|words| bytemuck::cast_slice(words));
        let all = Facts::read(&self.all_gather(own, Facts::BYTES)?);
        agreement::check(&all)?;
        Ok(all)
    }

    fn prepare<T: Scalar>(
        &self,
        tuner: &Tuner,
        csr: CsrRef<'_, T>,
        division: Division,
        workload: &Workload,
    ) -> Result<RankOperator<T>> {
        let (rank, parts) = (self.rank(), self.size());
        let of = Of { part: rank, parts, bandwidth: bandwidth(tuner) };
        let (rows, columns) = (&division.rows, &division.columns);
        let groups = groups::in_order(csr, rows, columns, self.mode, &of);
        let local = halo::local(csr, rows, &groups, columns, rank);
        let asked = self.asked(local.as_ref().map(|(halo, _)| halo).ok());
        let (halo, matrices) = local?;
        let requests = self.requests(&halo, asked?, columns.own(rank).len());
        let (requests, part) = self.all_succeed(requests.and_then(|requests| {
            Ok((requests, Part::of(tuner, halo, groups, &matrices, workload)?))
        }))?;
        let room = |(rank, len): (usize, usize)| Parcel::new(rank, len * size_of::<T>());
        let send =
            requests.into_iter().map(|(to, elements)| (room((to, elements.len())), elements));
        let (send, elements) = send.unzip();
        let runs = part.halo.runs.iter().map(|run| room((run.owner, run.columns.len())));
        let links = Mutex::new(Links { send, elements, receive: runs.collect(), x: Vec::new() });
        Ok(RankOperator { rank: self.clone(), part, division, links })
    }

    /// Tells all ranks how many elements this one needs from each; returns how many each rank needs
    /// from this one. `None` if this rank failed.
    fn asked(&self, halo: Option<&Halo>) -> Result<Vec<usize>> {
        let (rank, size) = (self.rank(), self.size());
        let mut counts = vec![0u64; size];
        let runs = halo.map_or(&[][..], |halo| &halo.runs);
        runs.iter().for_each(|run| counts[run.owner] = run.columns.len() as u64);
        let own = halo.map(|_| bytemuck::cast_slice(&counts));
        let all: Vec<u64> = numbers(&self.all_gather(own, size * size_of::<u64>())?);
        Ok((0..size).map(|from| all[from * size + rank] as usize).collect())
    }

    /// Tells the owners of a halo's elements which they are; returns the own elements that other ranks
    /// need, for each rank that needs any. There are `own` own elements.
    fn requests(
        &self,
        halo: &Halo,
        asked: Vec<usize>,
        own: usize,
    ) -> Result<Vec<(usize, Vec<u32>)>> {
        let fault = |from: usize| Error::Exchange {
            rank: self.rank(),
            what: format!("rank {from} asks for elements of x that do not belong to this rank"),
        };
        if let Some(from) = asked.iter().position(|&count| count > own) {
            return Err(fault(from));
        }
        let holding =
            |run: &halo::Run| Parcel::holding(run.owner, bytemuck::cast_slice(&run.columns));
        let mut send: Vec<_> = halo.runs.iter().map(holding).collect();
        let asked = asked.into_iter().enumerate().filter(|&(_, count)| count > 0);
        let room = asked.map(|(from, count)| Parcel::new(from, count * size_of::<u32>()));
        let mut receive: Vec<_> = room.collect();
        self.exchange(false, &mut send, &mut receive, &mut || {})?;
        let requests = receive.iter().map(|parcel| {
            let elements: Vec<u32> = numbers(parcel.payload());
            let fits = elements.is_sorted_by(|a, b| a < b)
                && elements.last().is_some_and(|&last| (last as usize) < own);
            fits.then_some((parcel.rank, elements)).ok_or_else(|| fault(parcel.rank))
        });
        requests.collect()
    }
}

/// Hashes a pattern and its division among ranks.
fn digest<T: Scalar>(csr: CsrRef<'_, T>, rows: &Partition) -> u64 {
    let pattern = Fingerprint::of(csr.pattern()).bits() as u64;
    let bounds = xxh3_64(bytemuck::cast_slice(&rows.bounds));
    xxh3_64(bytemuck::cast_slice(&[pattern, bounds, xxh3_64(bytemuck::cast_slice(&rows.order))]))
}

/// Messages of a product, kept for the next one.
#[derive(Debug)]
pub(super) struct Links<T> {
    /// Messages to the ranks that need own elements, and the positions of these elements.
    pub send: Vec<Parcel>,
    pub elements: Vec<Vec<u32>>,
    /// Messages with the halo, in its order.
    pub receive: Vec<Parcel>,
    /// Own elements of x and halo of products whose caller has no room for the halo; else empty.
    x: Vec<T>,
}

/// The part of a matrix that one of several processes multiplies.
///
/// A part on a GPU copies its x there and its y back for each product; with
/// [`RankOperator::on_gpu`], vectors stay there.
///
/// ```
/// use ellect::sharded::{Rank, Split, Threads};
/// use ellect::{Csr, Tuner, Workload};
///
/// fn on_rank(rank: Rank) -> ellect::Result<()> {
///     let csr = Csr::from_triplets(2, 2, [(0, 0, 2.0), (0, 1, 1.0), (1, 1, 3.0)])?;
///     let tuner = Tuner::open("cpu")?;
///     let a = rank.prepare_whole(&tuner, &csr, &Workload::default(), Split::EqualRows)?;
///     let (x, mut y) = ([[1.0], [10.0]][rank.rank()], [0.0]);
///     a.apply(1.0, &x, 0.0, &mut y)?;
///     assert_eq!(y, [[12.0], [30.0]][rank.rank()]);
///     assert_eq!(a.part().halo(), [1, 0][rank.rank()]);
///     Ok(())
/// }
///
/// # fn main() -> ellect::Result<()> {
/// let exchanges = Threads::all(2).into_iter().enumerate();
/// let threads = exchanges.map(|(rank, exchange)| {
///     std::thread::spawn(move || on_rank(Rank::of(rank, 2, exchange)?))
/// });
/// for thread in threads.collect::<Vec<_>>() {
///     thread.join().expect("no rank panics")?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RankOperator<T: Scalar> {
    pub(super) rank: Rank,
    pub(super) part: Part<T>,
    division: Division,
    pub(super) links: Mutex<Links<T>>,
}

impl<T: Scalar> RankOperator<T> {
    /// Returns the rank.
    pub fn rank(&self) -> &Rank {
        &self.rank
    }

    /// Returns the number of rows of the whole matrix.
    pub fn nrows(&self) -> usize {
        self.division.shape[0]
    }

    /// Returns the number of columns of the whole matrix.
    pub fn ncols(&self) -> usize {
        self.division.shape[1]
    }

    /// Returns the own rows, with their choice and their neighbours.
    pub fn part(&self) -> &Part<T> {
        &self.part
    }

    /// Returns the numbers of the own rows in the whole matrix, in the order of the own elements of y.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = usize> {
        self.division.rows.iter().map(|&row| self.division.first_row + row as usize)
    }

    /// Returns the number of own elements of x.
    pub fn own_columns(&self) -> usize {
        self.part.halo.own
    }

    /// Returns the numbers of elements of x that other ranks need, each with the rank.
    pub fn sent(&self) -> Vec<(usize, usize)> {
        let links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = links.send.iter().zip(&links.elements);
        sent.map(|(parcel, elements)| (parcel.rank, elements.len())).collect()
    }

    /// Returns zeros for x, with room for the halo.
    pub fn zeros_x(&self) -> RankVector<T> {
        let shape = self.part.shape_x();
        RankVector { elements: vec![T::ZERO; shape.len], own: shape.own }
    }

    /// Computes the own elements of y = alpha A x + beta y from those of x; with `beta = 0`, y is written
    /// and never read. Copies x; [`RankOperator::apply_with_halo`] does not.
    ///
    /// All ranks call this together.
    ///
    /// # Errors
    /// As [`RankOperator::apply_with_halo`].
    pub fn apply(&self, alpha: T, x: &[T], beta: T, y: &mut [T]) -> Result<()> {
        let links = &mut *self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let shape = self.part.shape_x();
        let fits = check_len("x", x.len(), shape.own.len());
        let mut room = std::mem::take(&mut links.x);
        room.resize(shape.len, T::ZERO);
        if fits.is_ok() {
            room[shape.own].copy_from_slice(x);
        }
        let done = self.product(links, fits, (alpha, &mut room), (beta, y));
        links.x = room;
        done
    }

    /// Computes the own elements of y = alpha A x + beta y; with `beta = 0`, y is written and never
    /// read. Fills the halo of x and leaves its own elements as they are.
    ///
    /// All ranks call this together. Each sends the elements that others need, multiplies the rows that
    /// need no halo if the mode has them apart, waits for its halo, and multiplies the other rows.
    ///
    /// # Errors
    /// [`Error::Argument`] or [`Error::Shape`] for a vector of another operator or length, and errors of
    /// [`PreparedOperator::apply`](crate::PreparedOperator::apply); ranks that need elements of this one
    /// then fail too. [`Error::Exchange`] if the exchange fails. After an error, y is undefined.
    pub fn apply_with_halo(
        &self,
        alpha: T,
        x: &mut RankVector<T>,
        beta: T,
        y: &mut [T],
    ) -> Result<()> {
        let links = &mut *self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let shape = self.part.shape_x();
        let fits = match x.own == shape.own && x.elements.len() == shape.len {
            true => Ok(()),
            false => {
                Err(Error::argument("x belongs to another operator; make it by this one's zeros_x"))
            }
        };
        self.product(links, fits, (alpha, &mut x.elements), (beta, y))
    }

    /// Takes part in a product as a rank that failed; ranks that need elements of this one then fail too
    /// instead of waiting.
    pub fn give_up(&self) {
        let links = &mut *self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let fault = Error::argument("the product is given up");
        // The other ranks are told; this one knows why.
        let _ = self.product(links, Err(fault), (T::ZERO, &mut []), (T::ZERO, &mut []));
    }

    /// Multiplies; `fits` tells whether x does. A rank whose vectors do not fit says so to those that
    /// wait for its elements.
    fn product(
        &self,
        links: &mut Links<T>,
        fits: Result<()>,
        (alpha, x): (T, &mut [T]),
        (beta, y): (T, &mut [T]),
    ) -> Result<()> {
        let fits = fits.and_then(|()| check_len("y", y.len(), self.part.rows()));
        if fits.is_ok() {
            let own = &x[self.part.shape_x().own];
            for (parcel, elements) in links.send.iter_mut().zip(&links.elements) {
                let places = parcel.payload_mut().chunks_exact_mut(size_of::<T>());
                places.zip(elements).for_each(|(to, &element)| {
                    to.copy_from_slice(bytemuck::bytes_of(&own[element as usize]));
                });
            }
        }
        let multiply = |needs_halo: bool, x: &[T], y: &mut [T]| {
            self.part.multiply(
                |group: &Group| group.needs_halo == needs_halo,
                (alpha, x),
                (beta, y),
            )
        };
        let mut inner = None;
        let mut meanwhile = || {
            if fits.is_ok() && inner.is_none() {
                inner = Some(multiply(false, x, y));
            }
        };
        let (send, receive) = (&mut links.send, &mut links.receive);
        let faulty = fits.is_err();
        let exchanged = self.rank.exchange_of_product(faulty, send, receive, &mut meanwhile);
        fits?;
        exchanged?;
        inner.unwrap_or_else(|| multiply(false, x, y))?;
        for ((place, _), parcel) in self.part.halo.places().zip(&links.receive) {
            let elements = parcel.payload().chunks_exact(size_of::<T>());
            let elements = elements.map(bytemuck::pod_read_unaligned);
            x[place..].iter_mut().zip(elements).for_each(|(to, element)| *to = element);
        }
        multiply(true, x, y)
    }

    /// Replaces the values by those of a matrix with the same pattern, given as to preparation: the own
    /// rows, or the whole matrix.
    ///
    /// All ranks call this together.
    ///
    /// # Errors
    /// [`Error::PatternChanged`] if the pattern differs, and as
    /// [`PreparedOperator::update`](crate::PreparedOperator::update); [`Error::Exchange`] if another rank
    /// failed, or if the exchange did. Ranks that did not fail then have the new values.
    pub fn update<'a>(&mut self, csr: impl Into<CsrRef<'a, T>>) -> Result<()> {
        let csr = csr.into();
        let updated = self.update_own(csr);
        self.rank.all_succeed(updated)
    }

    fn update_own(&mut self, csr: CsrRef<'_, T>) -> Result<()> {
        let division = &self.division;
        let (got, own) = ([csr.nrows(), csr.ncols()], [division.given, division.shape[1]]);
        if got != own {
            let what = format!("{got:?} rows and columns for {own:?}");
            return Err(Error::PatternChanged { what });
        }
        self.part.update(csr, &division.rows, &division.columns, self.rank.rank())
    }
}

/// The own elements of a vector x of a [`RankOperator`], with room for its halo.
///
/// ```
/// use ellect::sharded::{Rank, Split, Threads};
/// use ellect::{Tuner, Workload, generate};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = generate::by_name("heat", 900, 1)?;
/// let exchange = Threads::all(1).remove(0);
/// let rank = Rank::of(0, 1, exchange)?;
/// let a = rank.prepare_whole(&Tuner::open("cpu")?, &csr, &Workload::default(), Split::EqualRows)?;
///
/// let (mut x, mut y) = (a.zeros_x(), vec![0.0; csr.nrows()]);
/// x.own_mut().fill(1.0);
/// a.apply_with_halo(1.0, &mut x, 0.0, &mut y)?;
/// assert!(rank.dot(x.own(), &y)? > 0.0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct RankVector<T> {
    elements: Vec<T>,
    /// Places of the own elements, between the halos of earlier and of later ranks.
    own: Range<usize>,
}

impl<T: Scalar> RankVector<T> {
    /// Returns the own elements.
    pub fn own(&self) -> &[T] {
        &self.elements[self.own.clone()]
    }

    /// Returns the own elements, to be changed.
    pub fn own_mut(&mut self) -> &mut [T] {
        &mut self.elements[self.own.clone()]
    }
}
