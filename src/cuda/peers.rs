//! GPUs that multiply parts of one matrix: products with the exchange of halos, and operations on
//! divided vectors.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cust::sys as cuda;

use super::access::open_memory;
use super::exchange::{Exchange, PeerVector};
use super::fork::Fork;
use super::part::{Graphs, Products, Steps, adds, has_inner, multiply};
use super::record::Recording;
use super::reduce::Reduction;
use super::{Gpu, handle};
use crate::error::{Error, Result};
use crate::par::PartThreads;
use crate::partition::Sent;
use crate::scalar::Scalar;

/// GPUs that multiply parts of one matrix and exchange halos.
pub(crate) struct Peers<T> {
    pub(super) gpus: Vec<Arc<Gpu>>,
    halos: Exchange,
    /// The second stream of each GPU, for products that overlap with the exchange.
    forks: Vec<Fork>,
    pub(super) sums: Mutex<Sums<T>>,
    /// Work that is being recorded.
    pub(super) recording: Recording<T>,
    /// A thread for each GPU that queues its products; `None` if the caller's thread queues all.
    threads: Option<Arc<PartThreads>>,
}

/// Held while work is queued, by all operators of the process: GPUs that queue two exchanges in
/// different orders may wait for each other, because a GPU runs streams that share one of its queues
/// in the order of their launches.
static TURN: Mutex<()> = Mutex::new(());

/// Waits for [`TURN`].
pub(super) fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sums over all GPUs.
pub(super) struct Sums<T> {
    pub reduction: Reduction<T>,
    /// Set once the kernels of products with dot products are loaded.
    pub loaded: bool,
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
        // Each operator of a part has its own list of dot products.
        let lists = products.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let sums = Sums { reduction: Reduction::new(&gpus, lists)?, loaded: false };
        let fork = |gpu: &Arc<Gpu>| gpu.make_current().and_then(|()| Fork::new());
        let peers = Peers {
            halos: Exchange::new(&gpus, sent, T::PRECISION)?,
            forks: gpus.iter().map(fork).collect::<Result<_>>()?,
            sums: Mutex::new(sums),
            recording: Recording::default(),
            threads,
            gpus,
        };
        peers.warm_up(products)?;
        Ok(peers)
    }

    /// Runs each kernel once beside the exchange, and waits: the driver loads a kernel at its first
    /// launch, for which it may wait for all work of the GPU, and that may wait for other parts.
    fn warm_up(&self, products: &[Products<'_, T>]) -> Result<()> {
        let (x, y) = self.vectors_for(products)?;
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        for (part, (gpu, operators)) in self.gpus.iter().zip(products).enumerate() {
            gpu.make_current()?;
            for needs_halo in [false, true] {
                let (x, y) = ((T::ONE, &x), (T::ZERO, &y));
                let stream = gpu.queue.as_inner();
                // SAFETY: the vectors have all columns and rows, and wait before they are freed.
                unsafe { multiply_part(operators, needs_halo, part, x, y, stream)? };
            }
            let (a, mut b, mut c) = (gpu.zeros(1)?, gpu.zeros(1)?, gpu.zeros(1)?);
            gpu.axpby(T::ONE, &a, T::ZERO, &mut b)?;
            gpu.advance(T::ONE, &mut b, &mut c, T::ONE, &a)?;
            gpu.axpby_dot(T::ONE, &a, T::ONE, &mut b, sums.reduction.number_mut(part, 0)?)?;
            gpu.dot(&a, &b, sums.reduction.number_mut(part, 0)?)?;
            gpu.synchronize()?;
        }
        let results = self.zeros(&vec![(0..1, 1); self.gpus.len()])?;
        for part in 0..self.gpus.len() {
            // SAFETY: the results wait for all streams before they are freed, as `self` does.
            unsafe { sums.reduction.queue(part, 1, &[results.own(part)?.address()])? };
        }
        drop(sums);
        self.synchronize()
    }

    /// Returns vectors with places for all elements that the products read and write.
    pub(super) fn vectors_for(
        &self,
        products: &[Products<'_, T>],
    ) -> Result<(PeerVector<T>, PeerVector<T>)> {
        let shape = |operators: &Products<'_, T>| {
            let rows = operators.iter().map(|(group, _)| group.rows.end).max().unwrap_or(0);
            let ncols = operators.iter().map(|(_, a)| a.ncols).max().unwrap_or(0);
            (0..rows, rows.max(ncols))
        };
        let shapes: Vec<_> = products.iter().map(shape).collect();
        Ok((self.zeros(&shapes)?, self.zeros(&shapes)?))
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
        self.recording.keep([x.1, &*y]);
        let _turn = turn();
        let y = (beta, &*y);
        self.each_part(&|part| {
            let (gpu, operators) = (&self.gpus[part], &products[part]);
            gpu.make_current()?;
            // SAFETY: vectors are freed in order on their streams, and `PeerVector` waits before
            // that; the operators are borrowed, and freed in order too.
            unsafe {
                let product: Product<'_> =
                    &|needs_halo, stream| multiply_part(operators, needs_halo, part, x, y, stream);
                self.with_steps(operators, part, x.1, false, product, |steps| {
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
                let product: Product<'_> =
                    &|needs_halo, stream| multiply_part(operators, needs_halo, part, x, y, stream);
                self.with_steps(operators, part, x.1, is_filled, product, |steps| {
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
    pub(super) fn each_part(&self, work: &(dyn Fn(usize) -> Result<()> + Sync)) -> Result<()> {
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

    /// Returns the second stream if rows of the part are multiplied during the exchange. Recorded work
    /// is one graph, where a branch takes longer than it saves.
    pub(super) fn fork_of(&self, part: usize, operators: &Products<'_, T>) -> Option<&Fork> {
        let overlaps = self.halos.concerns(part) && has_inner(operators) && !self.recording.is_on();
        overlaps.then_some(&self.forks[part])
    }

    /// Calls `work` with the steps of a part's product with x.
    ///
    /// # Safety
    /// As [`Exchange::queue`].
    pub(super) unsafe fn with_steps<R>(
        &self,
        operators: &Products<'_, T>,
        part: usize,
        x: &PeerVector<T>,
        is_filled: bool,
        product: Product<'_>,
        work: impl FnOnce(Steps<'_>) -> R,
    ) -> R {
        work(Steps {
            exchange: &|stream| match is_filled {
                true => Ok(()),
                // SAFETY: by this function's own contract.
                false => unsafe { self.halos.queue(x, part, stream) },
            },
            boundary: &|stream| product(true, stream),
            inner: &|stream| product(false, stream),
            adds: adds(operators),
        })
    }

    /// Waits for all GPUs.
    ///
    /// # Errors
    /// [`Error::Device`] if a kernel faulted, or if a part waited in vain for another one.
    pub fn synchronize(&self) -> Result<()> {
        self.halos.synchronize()?;
        let sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        sums.reduction.waited_in_vain()?.map_or(Ok(()), |parts| Err(self.halos.in_vain(parts)))
    }
}

/// Queues the product of the groups that need a halo, or of the others, on a stream.
pub(super) type Product<'a> = &'a dyn Fn(bool, cuda::CUstream) -> Result<()>;

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
    let (x, y) = ((alpha, x.address(part)), (beta, y.own(part)?.address()));
    // SAFETY: by this function's own contract.
    unsafe { multiply(operators, needs_halo, x, y, stream) }
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
