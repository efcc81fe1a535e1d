//! A rank: one of several processes that share a matrix, and sums over all of them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::messages::{Exchange, Parcel, Post};
use super::mode::Mode;
use super::vector::dot;
use crate::error::{Error, Result};
use crate::scalar::Scalar;

/// One of several processes that share a matrix, each with a part of its rows.
///
/// All ranks make the same calls in the same order: [`Rank::prepare_rows`] or [`Rank::prepare_whole`],
/// products, sums. A clone is the same rank; several operators of one program share the exchange so.
///
/// ```
/// use ellect::sharded::{Rank, Threads};
/// use ellect::{Csr, Tuner, Workload};
///
/// // Each rank has two rows of a line of points, with the columns of the whole matrix.
/// fn on_rank(rank: Rank) -> ellect::Result<f64> {
///     let (n, first) = (2 * rank.size(), 2 * rank.rank());
///     let near = |i: usize| i.saturating_sub(1)..(i + 2).min(n);
///     let entries = (first..first + 2).flat_map(|i| near(i).map(move |j| (i - first, j, 1.0)));
///     let rows = Csr::from_triplets(2, n, entries)?;
///     let a = rank.prepare_rows(&Tuner::open("cpu")?, &rows, None, &Workload::default())?;
///     let mut y = [0.0; 2];
///     a.apply(1.0, &[1.0, 1.0], 0.0, &mut y)?;
///     rank.dot(&[1.0, 1.0], &y)
/// }
///
/// # fn main() -> ellect::Result<()> {
/// let exchanges = Threads::all(3).into_iter().enumerate();
/// let threads = exchanges.map(|(rank, exchange)| {
///     std::thread::spawn(move || on_rank(Rank::of(rank, 3, exchange)?))
/// });
/// for thread in threads.collect::<Vec<_>>() {
///     assert_eq!(thread.join().expect("no rank panics")?, 16.0);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Rank {
    rank: usize,
    size: usize,
    pub(super) mode: Mode,
    post: Arc<Mutex<Post>>,
}

impl std::fmt::Debug for Rank {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Rank {} of {}", self.rank, self.size)
    }
}

impl Rank {
    /// Creates rank `rank` of `size` ranks, which are counted from 0. Sends nothing yet.
    ///
    /// # Errors
    /// [`Error::Argument`] unless `rank` is below `size`.
    pub fn of(rank: usize, size: usize, exchange: impl Exchange + 'static) -> Result<Self> {
        if rank >= size {
            return Err(Error::argument(format!(
                "this is rank {rank} of {size} ranks; ranks are counted from 0 and are below their \
                 number"
            )));
        }
        let post = Arc::new(Mutex::new(Post::new(rank, exchange)));
        Ok(Rank { rank, size, mode: Mode::Auto, post })
    }

    /// Returns the rank with another order of exchange and products. [`Mode::Overlap`] pays where the
    /// exchange proceeds in the background. It keeps the order of the rows: the longest run of rows
    /// that need no halo is multiplied during the exchange. With [`Mode::Task`], products call the
    /// exchange from a thread of their own.
    #[must_use]
    pub fn with_mode(self, mode: Mode) -> Self {
        Rank { mode, ..self }
    }

    /// Returns the number of this rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Returns the number of ranks.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Replaces each value by its sum over all ranks, added in their order: all ranks get equal bits.
    /// All ranks give the same number of values. Takes log2 of the number of ranks in exchanges.
    ///
    /// # Errors
    /// [`Error::Exchange`] if the exchange fails, or if another rank failed.
    pub fn sum<T: Scalar>(&self, values: &mut [T]) -> Result<()> {
        let all = self.all_gather(Some(bytemuck::cast_slice(values)), size_of_val(values))?;
        let all: Vec<T> = numbers(&all);
        for (i, value) in values.iter_mut().enumerate() {
            let of_ranks = all.iter().skip(i).step_by(all.len() / self.size);
            *value = of_ranks.fold(T::ZERO, |sum, &of_rank| sum + of_rank);
        }
        Ok(())
    }

    /// Returns the dot product of two vectors that are divided alike, from the own elements of each
    /// rank: each rank's in order, then their sum in the order of the ranks, so that all ranks get equal
    /// bits.
    ///
    /// # Errors
    /// [`Error::Shape`] if x and y have different lengths; the other ranks then fail too. As
    /// [`Rank::sum`].
    pub fn dot<T: Scalar>(&self, x: &[T], y: &[T]) -> Result<T> {
        let own = [dot(x, y)];
        let alike = x.len() == y.len();
        let own = alike.then_some(bytemuck::bytes_of(&own));
        let all = self.all_gather(own, size_of::<T>());
        if !alike {
            return Err(Error::Shape { what: "y", got: y.len(), needed: x.len() });
        }
        Ok(numbers::<T>(&all?).into_iter().fold(T::ZERO, |sum, of_rank| sum + of_rank))
    }

    /// Locks the exchange. A thread that panicked there leaves no state that matters to the next one.
    fn post(&self) -> MutexGuard<'_, Post> {
        self.post.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends and receives messages; see [`Post::exchange`].
    pub(super) fn exchange(
        &self,
        faulty: bool,
        send: &mut [Parcel],
        receive: &mut [Parcel],
        meanwhile: &mut dyn FnMut(),
    ) -> Result<()> {
        self.post().exchange(faulty, send, receive, meanwhile)
    }

    /// Sends and receives messages of a product, with [`Mode::Task`] on a second thread, while this one
    /// calls `meanwhile`.
    ///
    /// # Errors
    /// As [`Post::exchange`].
    pub(super) fn exchange_of_product(
        &self,
        faulty: bool,
        send: &mut [Parcel],
        receive: &mut [Parcel],
        meanwhile: &mut dyn FnMut(),
    ) -> Result<()> {
        if self.mode != Mode::Task || faulty {
            return self.exchange(faulty, send, receive, meanwhile);
        }
        let mut begun = false;
        let exchanged = std::thread::scope(|scope| {
            let exchange = || self.exchange(false, send, receive, &mut || {});
            let thread = std::thread::Builder::new().name("ellect exchange".into());
            let thread = thread.spawn_scoped(scope, exchange).ok()?;
            begun = true;
            meanwhile();
            thread.join().ok()
        });
        let fault = || Error::Exchange {
            rank: self.rank,
            what: "the thread of the exchange failed".into(),
        };
        match begun {
            true => exchanged.unwrap_or_else(|| Err(fault())),
            // No thread started; other ranks wait for the messages all the same.
            false => self.exchange(false, send, receive, meanwhile),
        }
    }

    /// Returns the bytes of all ranks, in their order; each gives `len` bytes, or `None` if it failed.
    ///
    /// A rank sends all that it has to one that lies 1, 2, 4 and so on before it (J. Bruck et al.,
    /// Efficient Algorithms for All-to-All Communications in Multiport Message-Passing Systems, 1997).
    /// It takes part in all rounds also after a fault, so that no other rank waits for it.
    ///
    /// # Errors
    /// [`Error::Exchange`] if the exchange fails, or if a rank failed, with the number of the first.
    pub(super) fn all_gather(&self, own: Option<&[u8]>, len: usize) -> Result<Vec<u8>> {
        let (rank, size, block) = (self.rank, self.size, 1 + len);
        // Blocks of this rank, of the next one and so on: a mark of success, and the bytes.
        let mut blocks = vec![u8::from(own.is_some())];
        blocks.extend_from_slice(own.unwrap_or(&vec![0; len]));
        let mut fault = None;
        let mut post = self.post();
        let mut have = 1;
        while have < size {
            let more = have.min(size - have);
            let mut send = [Parcel::holding((rank + size - have) % size, &blocks[..more * block])];
            let mut receive = [Parcel::new((rank + have) % size, more * block)];
            let done = post.exchange(fault.is_some(), &mut send, &mut receive, &mut || {});
            fault = fault.or(done.err());
            blocks.extend_from_slice(receive[0].payload());
            have += more;
        }
        if let Some(fault) = fault {
            return Err(fault);
        }
        blocks.rotate_right(rank * block);
        let failed = blocks.chunks_exact(block).position(|block| block[0] == 0);
        match failed {
            Some(failed) => Err(post.failed(failed)),
            None => Ok(blocks.chunks_exact(block).flat_map(|block| &block[1..]).copied().collect()),
        }
    }
}

/// Reads numbers from the bytes of a message.
pub(super) fn numbers<P: bytemuck::AnyBitPattern>(bytes: &[u8]) -> Vec<P> {
    bytes.chunks_exact(size_of::<P>()).map(bytemuck::pod_read_unaligned).collect()
}
