//! GPUs that multiply parts of one matrix: products with the exchange of halos, and operations on
//! divided vectors.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cust::sys as cuda;

use super::access::open_memory;
use super::exchange::{Exchange, PeerVector};
use super::fork::Fork;
use super::part::{Graphs, Products, has_inner, multiply, queue};
use super::vector_ops::Factor;
use super::{Gpu, Vector, handle};
use crate::error::{Error, Result};
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
    graphs: Vec<Graphs>,
    pub x: PeerVector<T>,
    pub y: PeerVector<T>,
}

impl<T: Scalar> Peers<T> {
    /// Opens the memory of the parts' GPUs to each other and prepares their exchange.
    ///
    /// # Errors
    /// [`Error::Argument`] if two parts share a stream; [`Error::Device`] if a GPU cannot reach the
    /// memory of another, and from the driver.
    pub fn new(products: &[Products<'_, T>], sent: &[Sent<'_>]) -> Result<Self> {
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
        alpha: T,
        x: &PeerVector<T>,
        beta: T,
        y: &mut PeerVector<T>,
    ) -> Result<()> {
        let _turn = turn();
        for (part, (gpu, operators)) in self.gpus.iter().zip(products).enumerate() {
            gpu.make_current()?;
            let stream = gpu.queue.as_inner();
            // SAFETY: vectors are freed in order on their streams, and `PeerVector` waits before
            // that; the operators are borrowed, and freed in order too.
            unsafe {
                let with_halo =
                    |stream| self.with_halo(operators, part, (alpha, x), (beta, y), stream);
                let inner =
                    |stream| multiply_part(operators, false, part, (alpha, x), (beta, y), stream);
                queue(self.fork_of(part, operators), stream, with_halo, inner)?;
            }
        }
        Ok(())
    }

    /// Captures y = alpha A x + beta y: one graph for each GPU. The operators stay borrowed, and
    /// the product keeps the vectors.
    ///
    /// # Errors
    /// As [`Peers::apply`].
    pub fn capture<'a>(
        &'a self,
        products: &[Products<'a, T>],
        alpha: T,
        x: PeerVector<T>,
        beta: T,
        y: PeerVector<T>,
    ) -> Result<PeerProduct<'a, T>> {
        let turn = turn();
        let graphs = |(part, (gpu, operators)): (usize, (&Arc<Gpu>, &Products<'a, T>))| {
            // SAFETY: the product keeps the vectors and borrows the operators.
            let with_halo = |stream| unsafe {
                self.with_halo(operators, part, (alpha, &x), (beta, &y), stream)
            };
            // SAFETY: as above.
            let inner = |stream| unsafe {
                multiply_part(operators, false, part, (alpha, &x), (beta, &y), stream)
            };
            Graphs::capture(gpu, self.fork_of(part, operators), with_halo, inner)
        };
        let graphs = self.gpus.iter().zip(products).enumerate().map(graphs);
        let graphs = graphs.collect::<Result<_>>()?;
        drop(turn);
        Ok(PeerProduct { graphs, peers: self, x, y })
    }

    /// Returns the second stream if rows of the part are multiplied during the exchange.
    fn fork_of(&self, part: usize, operators: &Products<'_, T>) -> Option<&Fork> {
        let overlaps = self.halos.concerns(part) && has_inner(operators);
        overlaps.then_some(&self.forks[part])
    }

    /// Queues the part's exchange, and then the product of the rows that need a halo.
    ///
    /// # Safety
    /// As [`Exchange::queue`] and [`multiply`].
    unsafe fn with_halo(
        &self,
        operators: &Products<'_, T>,
        part: usize,
        (alpha, x): (T, &PeerVector<T>),
        (beta, y): (T, &PeerVector<T>),
        stream: cuda::CUstream,
    ) -> Result<()> {
        // SAFETY: by this function's own contract.
        unsafe {
            self.halos.queue(x, part, stream)?;
            multiply_part(operators, true, part, (alpha, x), (beta, y), stream)
        }
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
        for (part, graphs) in self.graphs.iter().enumerate() {
            // SAFETY: `self` borrows the operators and keeps the vectors.
            unsafe { graphs.launch(&self.peers.gpus[part], &self.peers.forks[part])? };
        }
        Ok(())
    }
}
