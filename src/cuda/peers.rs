//! GPUs that multiply parts of one matrix: products with the exchange of halos, and operations on
//! divided vectors.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cust::sys as cuda;

use super::access::open_memory;
use super::exchange::{Exchange, PeerVector};
use super::fork::Fork;
use super::part::{Graphs, Products, Steps, adds, has_inner, multiply};
use super::vector_ops::Factor;
use super::{Gpu, Vector, handle};
use crate::error::{Error, Result};
use crate::par::PartThreads;
use crate::partition::Sent;
use crate::scalar::Scalar;

/// A factor of a divided vector: a number, and perhaps a quotient of numbers on the GPUs.
pub(crate) type PeerFactor<'a, T> = (T, Option<[&'a PeerVector<T>; 2]>);

/// GPUs that multiply parts of one matrix and exchange halos.
pub(crate) struct Peers<T> {
    gpus: Vec<Arc<Gpu>>,
    halos: Exchange,
    /// The second stream of each GPU, for products that overlap with the exchange.
    forks: Vec<Fork>,
    /// The exchange of each part's share of a dot product.
    shares: Exchange,
    gathered: Mutex<Gathered<T>>,
    /// A thread for each GPU that queues its products; `None` if the caller's thread queues all.
    threads: Option<Arc<PartThreads>>,
}

/// Held while work is queued, by all operators of the process: GPUs that queue two exchanges in
/// different orders may wait for each other, because a GPU runs streams that share one of its queues
/// in the order of their launches.
static TURN: Mutex<()> = Mutex::new(());

/// Waits for [`TURN`].
fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The shares of a dot product on each GPU, and ones.
struct Gathered<T> {
    shares: PeerVector<T>,
    ones: Vec<Vector<T>>,
}

/// A product captured as one graph for each GPU.
pub(crate) struct PeerProduct<'a, T> {
    peers: &'a Peers<T>,
    graphs: Vec<Mutex<Graphs>>,
    pub x: PeerVector<T>,
    pub y: PeerVector<T>,
}

impl<T: Scalar> Peers<T> {
    /// Opens the memory of the parts' GPUs to each other and prepares their exchange.
    ///
    /// # Errors
    /// [`Error::Argument`] if two parts share a stream; [`Error::Device`] if a GPU cannot reach the
    /// memory of another, and from the driver.
    pub fn new(
        products: &[Products<'_, T>],
        sent: &[Sent<'_>],
        threads: Option<Arc<PartThreads>>,
    ) -> Result<Self> {
        let of_parts = products.iter().filter_map(|operators| operators.first());
        let gpus: Vec<Arc<Gpu>> = of_parts.map(|(_, a)| Arc::clone(a.gpu())).collect();
        for (k, gpu) in gpus.iter().enumerate() {
            if gpus[..k].iter().any(|other| Arc::ptr_eq(&other.queue, &gpu.queue)) {
                return Err(Error::argument(format!(
                    "{} multiplies several parts on one stream, where an exchange would wait for \
                     itself: name each GPU once",
                    handle(gpu.index)
                )));
            }
        }
        open_memory(&gpus)?;
        let parts = gpus.len();
        let pairs = (0..parts).flat_map(|from| (0..parts).map(move |to| (from, to)));
        let share = |(from, to)| Sent { from, to, first: from as u32, elements: &[0], place: from };
        let to_all: Vec<Sent<'_>> = pairs.filter(|(from, to)| from != to).map(share).collect();
        let shares = Exchange::new(&gpus, &to_all, T::PRECISION)?;
        let places: Vec<_> = (0..parts).map(|part| (part..part + 1, parts)).collect();
        let ones =
            gpus.iter().map(|gpu| gpu.vector(&vec![T::ONE; parts])).collect::<Result<_>>()?;
        let gathered = Gathered { shares: shares.zeros(&places)?, ones };
        let fork = |gpu: &Arc<Gpu>| gpu.make_current().and_then(|()| Fork::new());
        let peers = Peers {
            halos: Exchange::new(&gpus, sent, T::PRECISION)?,
            forks: gpus.iter().map(fork).collect::<Result<_>>()?,
            shares,
            gathered: Mutex::new(gathered),
            threads,
            gpus,
        };
        peers.warm_up(products)?;
        Ok(peers)
    }

    /// Runs each kernel once beside the exchange, and waits: the driver loads a kernel at its first
    /// launch, for which it may wait for all work of the GPU, and that may wait for other parts.
    fn warm_up(&self, products: &[Products<'_, T>]) -> Result<()> {
        let shape = |operators: &Products<'_, T>| {
            let rows = operators.iter().map(|(group, _)| group.rows.end).max().unwrap_or(0);
            let ncols = operators.iter().map(|(_, a)| a.ncols).max().unwrap_or(0);
            (0..rows, rows.max(ncols))
        };
        let shapes: Vec<_> = products.iter().map(shape).collect();
        let (x, mut y) = (self.zeros(&shapes)?, self.zeros(&shapes)?);
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        let Gathered { shares, ones } = &mut *gathered;
        for (part, (gpu, operators)) in self.gpus.iter().zip(products).enumerate() {
            gpu.make_current()?;
            for needs_halo in [false, true] {
                let (x, y) = ((T::ONE, &x), (T::ZERO, &y));
                let stream = gpu.queue.as_inner();
                // SAFETY: the vectors have all columns and rows, and wait before they are freed.
                unsafe { multiply_part(operators, needs_halo, part, x, y, stream)? };
            }
            gpu.axpby(T::ONE, x.own(part)?, T::ZERO, y.own_mut(part)?)?;
            gpu.dot(&ones[part], &ones[part], shares.own_mut(part)?)?;
        }
        drop(gathered);
        self.synchronize()
    }

    /// Allocates zeros with these places of own elements, and numbers of all elements, in each part.
    ///
    /// # Errors
    /// [`Error::Device`] if memory runs out.
    pub fn zeros(&self, shapes: &[(Range<usize>, usize)]) -> Result<PeerVector<T>> {
        self.halos.zeros(shapes)
    }

    /// Queues y = alpha A x + beta y on all GPUs; returns without waiting.
    ///
    /// # Errors
    /// [`Error::Device`] if a launch fails; the vectors fit, as callers have checked.
    pub fn apply(
        &self,
        products: &[Products<'_, T>],
        x: (T, &PeerVector<T>),
        (beta, y): (T, &mut PeerVector<T>),
    ) -> Result<()> {
        let _turn = turn();
        let y = (beta, &*y);
        self.each_part(&|part| {
            let (gpu, operators) = (&self.gpus[part], &products[part]);
            gpu.make_current()?;
            // SAFETY: vectors are freed in order on their streams, and `PeerVector` waits before
            // that; the operators are borrowed, and freed in order too.
            unsafe {
                self.with_steps(operators, part, x, y, false, |steps| {
                    steps.queue(self.fork_of(part, operators), gpu.queue.as_inner())
                })
            }
        })
    }

    /// Captures y = alpha A x + beta y: graphs for each GPU. The operators stay borrowed, and the
    /// product keeps the vectors. Nothing is exchanged if the halos of x are filled.
    ///
    /// # Errors
    /// As [`Peers::apply`].
    pub fn capture<'a>(
        &'a self,
        products: &[Products<'a, T>],
        (alpha, x): (T, PeerVector<T>),
        (beta, y): (T, PeerVector<T>),
        is_filled: bool,
    ) -> Result<PeerProduct<'a, T>> {
        let turn = turn();
        let graphs = |(part, (gpu, operators)): (usize, (&Arc<Gpu>, &Products<'a, T>))| {
            let fork = self.fork_of(part, operators).filter(|_| !is_filled);
            let (x, y) = ((alpha, &x), (beta, &y));
            // SAFETY: the product keeps the vectors and borrows the operators.
            unsafe {
                self.with_steps(operators, part, x, y, is_filled, |steps| {
                    Graphs::capture(gpu, fork, &steps)
                })
            }
        };
        let graphs = self.gpus.iter().zip(products).enumerate().map(graphs);
        let graphs = graphs.map(|graphs| graphs.map(Mutex::new));
        let graphs = graphs.collect::<Result<_>>()?;
        drop(turn);
        Ok(PeerProduct { graphs, peers: self, x, y })
    }

    /// Calls `work` with each part, on the part's thread if it has one.
    ///
    /// # Errors
    /// The first error of a part.
    fn each_part(&self, work: &(dyn Fn(usize) -> Result<()> + Sync)) -> Result<()> {
        let parts = self.gpus.len();
        let Some(threads) = &self.threads else { return (0..parts).try_for_each(work) };
        let done: Vec<_> = (0..parts).map(|_| Mutex::new(Ok(()))).collect();
        let of_part = |part: usize| {
            *done[part].lock().unwrap_or_else(PoisonError::into_inner) = work(part);
        };
        threads.beside(&of_part, || {});
        let mut done = done.into_iter().map(Mutex::into_inner);
        done.try_for_each(|done| done.unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the second stream if rows of the part are multiplied during the exchange.
    fn fork_of(&self, part: usize, operators: &Products<'_, T>) -> Option<&Fork> {
        let overlaps = self.halos.concerns(part) && has_inner(operators);
        overlaps.then_some(&self.forks[part])
    }

    /// Calls `work` with the steps of a part's product.
    ///
    /// # Safety
    /// As [`Exchange::queue`] and [`multiply`].
    unsafe fn with_steps<R>(
        &self,
        operators: &Products<'_, T>,
        part: usize,
        x: (T, &PeerVector<T>),
        y: (T, &PeerVector<T>),
        is_filled: bool,
        work: impl FnOnce(Steps<'_>) -> R,
    ) -> R {
        work(Steps {
            exchange: &|stream| match is_filled {
                true => Ok(()),
                // SAFETY: by this function's own contract.
                false => unsafe { self.halos.queue(x.1, part, stream) },
            },
            // SAFETY: as above.
            boundary: &|stream| unsafe { multiply_part(operators, true, part, x, y, stream) },
            // SAFETY: as above.
            inner: &|stream| unsafe { multiply_part(operators, false, part, x, y, stream) },
            adds: adds(operators),
        })
    }

    /// Queues the dot product of the own elements: each GPU computes its share, sends it to all
    /// others, and adds the shares in the order of the parts, so that all have equal bits. Returns
    /// without waiting.
    ///
    /// # Errors
    /// [`Error::Argument`] if the vectors are divided in different ways; [`Error::Device`] if a
    /// launch fails.
    pub fn dot(
        &self,
        x: &PeerVector<T>,
        y: &PeerVector<T>,
        result: &mut PeerVector<T>,
    ) -> Result<()> {
        let _turn = turn();
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        for (part, gpu) in self.gpus.iter().enumerate() {
            if self.gpus.len() == 1 {
                return gpu.dot(x.own(part)?, y.own(part)?, result.own_mut(part)?);
            }
            gpu.dot(x.own(part)?, y.own(part)?, gathered.shares.own_mut(part)?)?;
            // SAFETY: the shares belong to the exchange, live as long as `self`, and wait for all
            // streams before they are freed.
            unsafe { self.shares.queue(&gathered.shares, part, gpu.queue.as_inner())? };
            let shares = &gathered.shares.parts[part];
            gpu.dot(shares, &gathered.ones[part], result.own_mut(part)?)?;
        }
        Ok(())
    }

    /// Queues y = alpha x + beta y for the own elements; returns without waiting.
    ///
    /// # Errors
    /// As [`Peers::dot`].
    pub fn axpby(
        &self,
        alpha: PeerFactor<'_, T>,
        x: &PeerVector<T>,
        beta: PeerFactor<'_, T>,
        y: &mut PeerVector<T>,
    ) -> Result<()> {
        for (part, gpu) in self.gpus.iter().enumerate() {
            let (alpha, beta) = (factor_of(part, alpha)?, factor_of(part, beta)?);
            gpu.axpby(alpha, x.own(part)?, beta, y.own_mut(part)?)?;
        }
        Ok(())
    }

    /// Waits for all GPUs.
    ///
    /// # Errors
    /// [`Error::Device`] if a kernel faulted, or if a part waited in vain for another one.
    pub fn synchronize(&self) -> Result<()> {
        self.halos.synchronize()?;
        self.shares.synchronize()
    }
}

/// Queues the part's y = alpha A x + beta y for the rows that need a halo, or for the others.
///
/// # Safety
/// As [`multiply`].
unsafe fn multiply_part<T: Scalar>(
    operators: &Products<'_, T>,
    needs_halo: bool,
    part: usize,
    (alpha, x): (T, &PeerVector<T>),
    (beta, y): (T, &PeerVector<T>),
    stream: cuda::CUstream,
) -> Result<()> {
    let (x, y) = ((alpha, x.parts[part].address()), (beta, y.own(part)?.address()));
    // SAFETY: by this function's own contract.
    unsafe { multiply(operators, needs_halo, x, y, stream) }
}

/// Returns the factor on the GPU of a part.
fn factor_of<T: Scalar>(
    part: usize,
    (scale, quotient): PeerFactor<'_, T>,
) -> Result<Factor<'_, T>> {
    match quotient {
        None => Ok(Factor::from(scale)),
        Some([over, under]) => Factor::quotient(scale, over.own(part)?, under.own(part)?),
    }
}

impl<T: Scalar> PeerProduct<'_, T> {
    /// Waits for all GPUs and returns y.
    ///
    /// # Errors
    /// As [`Peers::synchronize`].
    pub fn into_y(self) -> Result<PeerVector<T>> {
        self.peers.synchronize()?;
        Ok(self.y)
    }

    /// Queues the product on all GPUs; returns without waiting.
    ///
    /// # Errors
    /// [`Error::Device`] if a launch fails.
    pub fn launch(&self) -> Result<()> {
        let _turn = turn();
        self.peers.each_part(&|part| {
            let (gpu, fork) = (&self.peers.gpus[part], &self.peers.forks[part]);
            let graphs = self.graphs[part].lock().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: `self` borrows the operators and keeps the vectors.
            unsafe { graphs.launch(gpu, fork) }
        })
    }
}
