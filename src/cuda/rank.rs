//! A rank's part on its GPU: products with the exchange of halos, and sums over all ranks.

mod board;
mod messages;

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use cust::sys as cuda;

use super::access::{can_reach, device};
use super::fork::Fork;
use super::launch::{PreparedLaunch, plain};
use super::memory::{Memory, Queue};
use super::part::{Graphs, Products, Steps, adds, has_inner, multiply};
use super::{DeviceSlice, DeviceSliceMut, Gpu, Vector, check, count};
use crate::error::{Error, Result};
use crate::format::{Arg, Launch};
use crate::partition::{Agreed, Routes, Tell, WORD};
use crate::scalar::{Precision, Scalar};
use board::{Board, Lease};
use messages::Messages;

/// A way to move elements between ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// Kernels store into the memory of other processes' GPUs.
    Peer,
    /// NCCL.
    Nccl,
    /// The host: elements are copied there and back by the caller.
    Host,
}

/// A rank's part on its GPU.
pub(crate) struct RankGpu<T: Scalar> {
    gpu: Arc<Gpu>,
    routes: Arc<Routes>,
    fork: Fork,
    packing: Arc<Packing>,
    way: Way<T>,
    /// Held while work is queued, so that several threads take turns.
    turn: Mutex<()>,
}

enum Way<T: Scalar> {
    Peer(Arc<Board<T>>),
    Nccl(Arc<Messages<T>>),
    Host,
}

/// A vector of a rank on its GPU.
pub(crate) struct RankStore<T: Scalar> {
    place: Place<T>,
    /// Places of the own elements, and the number of all elements.
    own: Range<usize>,
    len: usize,
}

enum Place<T: Scalar> {
    Own(Vector<T>),
    Shared(Lease<T>),
}

/// A product captured as graphs.
pub(crate) struct RankGraph<'a, T: Scalar> {
    gpu: &'a RankGpu<T>,
    graphs: Graphs,
    pub x: RankStore<T>,
    pub y: RankStore<T>,
}

/// Gathers the elements that other ranks need into one buffer.
pub(super) struct Packing {
    launch: Option<PreparedLaunch>,
    packed: Memory,
    /// Number of launches that have ended.
    done: Memory,
    _elements: Memory,
}

/// Returns the number by which all processes know a GPU, or a part of one.
///
/// # Errors
/// [`Error::Device`] from the driver.
pub(crate) fn identity(gpu: &Gpu) -> Result<[u8; 16]> {
    uuid(gpu.index)
}

fn uuid(index: u32) -> Result<[u8; 16]> {
    let mut uuid = cuda::CUuuid { bytes: [0; 16] };
    let device = device(index)?;
    // SAFETY: the driver writes one number; the device exists.
    check(unsafe { cuda::cuDeviceGetUuid_v2(&mut uuid, device) }, "asking for a GPU's number")?;
    Ok(uuid.bytes.map(|byte| byte as u8))
}

/// Tells whether a GPU reaches the memory of another one; a GPU that this process does not see may be
/// reached.
///
/// # Errors
/// [`Error::Device`] from the driver.
pub(crate) fn reach(gpu: &Gpu, other: [u8; 16]) -> Result<bool> {
    for index in 0..count() {
        if uuid(index)? == other {
            return can_reach(device(gpu.index)?, device(index)?);
        }
    }
    Ok(true)
}

impl<T: Scalar> RankGpu<T> {
    /// Prepares the part's products and connects it with the others. All ranks call this together;
    /// the inner fault is one that all ranks know.
    ///
    /// # Errors
    /// Errors of `tell`.
    pub fn new(
        products: &Products<'_, T>,
        routes: Routes,
        shape: (Range<usize>, usize),
        link: Link,
        tell: Tell<'_>,
    ) -> Result<Agreed<Self>> {
        let Some(gpu) = products.first().map(|(_, a)| Arc::clone(a.gpu())) else {
            let told = tell(Err("the part has no operator on a GPU".into()))?;
            return Ok(Err(told.err().unwrap_or_default()));
        };
        let routes = Arc::new(routes);
        let ready = Ready::new(&gpu, products, &routes, shape.1);
        if let Err(fault) =
            tell(ready.as_ref().map(|_| [0; WORD]).map_err(|fault| fault.to_string()))?
        {
            return Ok(Err(fault));
        }
        let Ready { fork, packing } = ready?;
        let packing = Arc::new(packing);
        let way = match link {
            Link::Peer => Board::new(&gpu, &routes, shape.1, tell)?.map(Way::Peer),
            Link::Nccl => Messages::new(&gpu, &routes, &packing, shape.1, tell)?.map(Way::Nccl),
            Link::Host => Ok(Way::Host),
        };
        Ok(way.map(|way| RankGpu { gpu, routes, fork, packing, way, turn: Mutex::default() }))
    }

    /// Returns the GPU.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// Allocates zeros with these places of own elements, and number of all elements. Vectors with a
    /// halo are allocated by all ranks together.
    ///
    /// # Errors
    /// [`Error::Device`] if memory runs out; [`Error::Exchange`] if another rank failed.
    pub fn zeros(
        &self,
        (own, len): (Range<usize>, usize),
        has_halo: bool,
        tell: Tell<'_>,
    ) -> Result<RankStore<T>> {
        let place = match &self.way {
            Way::Peer(board) if has_halo => Place::Shared(board.lease(tell)?),
            _ => Place::Own(self.gpu.zeros(len)?),
        };
        Ok(RankStore { place, own, len })
    }

    /// Queues y = alpha A x + beta y; returns without waiting. Not for [`Link::Host`].
    ///
    /// # Errors
    /// [`Error::Device`] if a launch fails; the vectors fit, as callers have checked.
    pub fn apply(
        &self,
        products: &Products<'_, T>,
        (alpha, x): (T, &RankStore<T>),
        (beta, y): (T, &mut RankStore<T>),
    ) -> Result<()> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.gpu.make_current()?;
        let (x_at, y_at) = ((alpha, x.address()), (beta, y.own_mut()?.address()));
        let steps = Steps {
            // SAFETY: vectors wait for their stream before they are freed or lent again; the operators
            // are borrowed, and freed in order.
            exchange: &|stream| unsafe { self.exchange(x, stream) },
            // SAFETY: as above.
            boundary: &|stream| unsafe { multiply(products, true, x_at, y_at, stream) },
            // SAFETY: as above.
            inner: &|stream| unsafe { multiply(products, false, x_at, y_at, stream) },
            adds: adds(products),
        };
        steps.queue(self.fork_of(products), self.gpu.queue.as_inner())
    }

    /// Captures y = alpha A x + beta y. The operators stay borrowed, and the product keeps the vectors.
    ///
    /// # Errors
    /// As [`RankGpu::apply`].
    pub fn capture<'a>(
        &'a self,
        products: &Products<'a, T>,
        (alpha, x): (T, RankStore<T>),
        (beta, mut y): (T, RankStore<T>),
    ) -> Result<RankGraph<'a, T>> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let (x_at, y_at) = ((alpha, x.address()), (beta, y.own_mut()?.address()));
        let steps = Steps {
            // SAFETY: the product keeps the vectors and borrows the operators.
            exchange: &|stream| unsafe { self.exchange(&x, stream) },
            // SAFETY: as above.
            boundary: &|stream| unsafe { multiply(products, true, x_at, y_at, stream) },
            // SAFETY: as above.
            inner: &|stream| unsafe { multiply(products, false, x_at, y_at, stream) },
            adds: adds(products),
        };
        let graphs = Graphs::capture(&self.gpu, self.fork_of(products), &steps)?;
        Ok(RankGraph { gpu: self, graphs, x, y })
    }

    /// Returns the second stream if rows are multiplied during the exchange.
    fn fork_of(&self, products: &Products<'_, T>) -> Option<&Fork> {
        let exchanges = !self.routes.sends.is_empty() || !self.routes.receives.is_empty();
        (exchanges && has_inner(products)).then_some(&self.fork)
    }

    /// Queues the exchange of x on `stream`.
    ///
    /// # Safety
    /// x lives until the stream has finished; the context is current.
    unsafe fn exchange(&self, x: &RankStore<T>, stream: cuda::CUstream) -> Result<()> {
        // SAFETY: by this function's own contract.
        unsafe {
            match (&self.way, &x.place) {
                (Way::Peer(board), Place::Shared(lease)) if lease.is_of(board) => {
                    board.exchange(lease, stream)
                }
                (Way::Peer(_), _) => Err(Error::argument(
                    "other ranks do not know this x; make it by this on_gpu's zeros_x or scatter_x",
                )),
                (Way::Nccl(messages), _) => messages.exchange(x.address(), stream),
                (Way::Host, _) => Ok(()),
            }
        }
    }

    /// Copies the elements that other ranks need to the host, by receiver, after all queued work; waits.
    ///
    /// # Errors
    /// [`Error::Device`] from the driver.
    pub fn outgoing(&self, x: &RankStore<T>, host: &mut [T]) -> Result<()> {
        self.gpu.make_current()?;
        // SAFETY: x lives while the copy below waits for the stream.
        unsafe { self.packing.queue::<T>(x.address(), self.gpu.queue.as_inner())? };
        self.packing.packed.read(bytemuck::cast_slice_mut(host))
    }

    /// Copies elements of another rank from the host to their places in x, after all queued work; waits.
    ///
    /// # Errors
    /// [`Error::Device`] from the driver.
    pub fn incoming(&self, x: &RankStore<T>, place: usize, host: &[T]) -> Result<()> {
        x.all()?.slice(place..place + host.len())?;
        let at = x.address() + (place * size_of::<T>()) as u64;
        super::memory::write(at, bytemuck::cast_slice(host), &self.gpu.queue)
    }

    /// Queues the product of the rows that need a halo, or of the others, without an exchange.
    ///
    /// # Errors
    /// As [`RankGpu::apply`].
    pub fn multiply(
        &self,
        products: &Products<'_, T>,
        needs_halo: bool,
        (alpha, x): (T, &RankStore<T>),
        (beta, y): (T, &mut RankStore<T>),
    ) -> Result<()> {
        self.gpu.make_current()?;
        let (x, y) = ((alpha, x.address()), (beta, y.own_mut()?.address()));
        // SAFETY: as in `RankGpu::apply`.
        unsafe { multiply(products, needs_halo, x, y, self.gpu.queue.as_inner()) }
    }

    /// Queues the dot product over all ranks; returns without waiting. With [`Link::Host`], the result
    /// is the rank's own share.
    ///
    /// # Errors
    /// As [`Gpu::dot`], and [`Error::Device`] if a launch fails.
    pub fn dot(
        &self,
        x: DeviceSlice<'_, T>,
        y: DeviceSlice<'_, T>,
        mut result: DeviceSliceMut<'_, T>,
    ) -> Result<()> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        match &self.way {
            Way::Peer(board) => {
                self.gpu.dot(x, y, board.share()?)?;
                board.sum(result)
            }
            Way::Nccl(messages) => {
                self.gpu.dot(x, y, result.reborrow())?;
                messages.sum(result)
            }
            Way::Host => self.gpu.dot(x, y, result),
        }
    }

    /// Queues the replacement of a number by its sum over all ranks; returns without waiting. Does
    /// nothing with [`Link::Host`].
    ///
    /// # Errors
    /// As [`RankGpu::dot`].
    pub fn sum(&self, mut value: DeviceSliceMut<'_, T>) -> Result<()> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        match &self.way {
            Way::Peer(board) => {
                self.gpu.axpby(T::ONE, value.as_slice(), T::ZERO, board.share()?)?;
                board.sum(value.reborrow())
            }
            Way::Nccl(messages) => messages.sum(value),
            Way::Host => Ok(()),
        }
    }

    /// Waits for the GPU.
    ///
    /// # Errors
    /// [`Error::Device`] if a kernel faulted; [`Error::Exchange`] with the rank, or the ranks, for which
    /// this one waited in vain.
    pub fn synchronize(&self) -> Result<()> {
        self.gpu.make_current()?;
        match &self.way {
            Way::Peer(board) => board.synchronize(),
            Way::Nccl(messages) => messages.synchronize(),
            Way::Host => self.gpu.synchronize(),
        }
    }
}

/// The part's own preparations, before ranks connect.
struct Ready {
    fork: Fork,
    packing: Packing,
}

impl Ready {
    /// Prepares packing, and runs each kernel once: the driver loads a kernel at its first launch, for
    /// which it may wait for all work of the GPU, and that may wait for other ranks.
    fn new<T: Scalar>(
        gpu: &Arc<Gpu>,
        products: &Products<'_, T>,
        routes: &Routes,
        len: usize,
    ) -> Result<Self> {
        gpu.make_current()?;
        let rows = products.iter().map(|(group, _)| group.rows.end).max().unwrap_or(0);
        let (x, mut y) = (gpu.zeros::<T>(len.max(1))?, gpu.zeros::<T>(rows.max(1))?);
        for needs_halo in [false, true] {
            let (x, y) = ((T::ONE, x.address()), (T::ZERO, y.address()));
            // SAFETY: the vectors have all columns and rows, and the wait below precedes their end.
            unsafe { multiply(products, needs_halo, x, y, gpu.queue.as_inner())? };
        }
        gpu.axpby(T::ONE, x.slice(..1)?, T::ZERO, y.slice_mut(..1)?)?;
        gpu.dot(x.slice(..1)?, x.slice(..1)?, y.slice_mut(..1)?)?;
        let packing = Packing::new::<T>(gpu, routes)?;
        // SAFETY: as above; all elements are within x.
        unsafe { packing.queue::<T>(x.address(), gpu.queue.as_inner())? };
        let fork = Fork::new()?;
        gpu.synchronize()?;
        Ok(Ready { fork, packing })
    }
}

impl Packing {
    fn new<T: Scalar>(gpu: &Arc<Gpu>, routes: &Routes) -> Result<Self> {
        let elements = Memory::of(bytemuck::cast_slice(&routes.elements()), &gpu.queue)?;
        let packed = Memory::new((routes.sent() * size_of::<T>()) as u64, &gpu.queue)?;
        let done = Memory::zeros(8, &gpu.queue)?;
        let addresses = [elements.address(), packed.address(), done.address()];
        let launch = pack(T::PRECISION, routes.sent() as u64, addresses);
        let launch = PreparedLaunch::new(gpu, &launch, plain)?;
        let launch = launch.map(|launch| launch.overlapping(gpu));
        Ok(Packing { launch, packed, done, _elements: elements })
    }

    /// Queues the gathering of the elements of the vector at `x_at`.
    ///
    /// # Safety
    /// The vector lives until the stream has finished; the context is current.
    unsafe fn queue<T: Scalar>(&self, x_at: u64, stream: cuda::CUstream) -> Result<()> {
        let Some(launch) = &self.launch else { return Ok(()) };
        // SAFETY: the arrays belong to `self`, the vector by the caller's contract.
        unsafe { launch.launch([x_at, 0, 0], T::ONE, T::ZERO, stream) }
    }

    /// Returns the address of the gathered elements.
    fn address(&self) -> u64 {
        self.packed.address()
    }
}

/// Describes the launch that gathers `count` elements; the addresses are those of their places, of the
/// result and of the number of launches that have ended.
pub(super) fn pack(precision: Precision, count: u64, [elements, to, done]: [u64; 3]) -> Launch {
    let args = vec![Arg::U64(count), Arg::U64(elements), Arg::X, Arg::U64(to), Arg::U64(done)];
    Launch::over("pack", format!("pack_{precision}"), count.max(1), 256, args)
}

impl<T: Scalar> RankStore<T> {
    fn address(&self) -> u64 {
        match &self.place {
            Place::Own(vector) => vector.address(),
            Place::Shared(lease) => lease.address(),
        }
    }

    fn all(&self) -> Result<DeviceSlice<'_, T>> {
        match &self.place {
            Place::Own(vector) => vector.slice(..),
            Place::Shared(lease) => {
                // SAFETY: the lease has this many elements, and waits before it ends.
                Ok(unsafe { DeviceSlice::within(lease.address(), self.len, lease.queue()) })
            }
        }
    }

    /// Returns the places of own elements, and the number of all elements.
    pub fn shape(&self) -> (Range<usize>, usize) {
        (self.own.clone(), self.len)
    }

    /// Returns the own elements.
    pub fn own(&self) -> Result<DeviceSlice<'_, T>> {
        self.all()?.slice(self.own.clone())
    }

    /// Overwrites the own elements; waits.
    pub fn write(&mut self, host: &[T]) -> Result<()> {
        self.own_mut()?.write(host)
    }

    /// Copies the own elements to the host; waits.
    pub fn read(&self, host: &mut [T]) -> Result<()> {
        self.own()?.read(host)
    }

    /// Returns the own elements, to be changed.
    pub fn own_mut(&mut self) -> Result<DeviceSliceMut<'_, T>> {
        // SAFETY: the vector is borrowed mutably as long as the slice.
        self.own().map(|own| unsafe { DeviceSliceMut::within(own) })
    }
}

impl<T: Scalar> RankGraph<'_, T> {
    /// Queues the product; returns without waiting.
    ///
    /// # Errors
    /// [`Error::Device`] if a launch fails.
    pub fn launch(&self) -> Result<()> {
        let _turn = self.gpu.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if let Way::Nccl(messages) = &self.gpu.way {
            messages.is_open()?;
        }
        // SAFETY: `self` borrows the operators and keeps the vectors.
        unsafe { self.graphs.launch(&self.gpu.gpu, &self.gpu.fork) }
    }

    /// Waits for the GPU and returns y.
    ///
    /// # Errors
    /// As [`RankGpu::synchronize`].
    pub fn into_y(self) -> Result<RankStore<T>> {
        self.gpu.synchronize()?;
        Ok(self.y)
    }
}

/// Waits for all work on a stream; a fault shows at the next use of its GPU.
fn settle(queue: &Queue) {
    let _ = queue.make_current().map(|()| queue.synchronize());
}

/// Returns the error of a rank that waited for others in vain.
fn lost(rank: usize, what: String) -> Error {
    Error::Exchange { rank, what }
}
