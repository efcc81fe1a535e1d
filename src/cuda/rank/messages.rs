//! Elements and sums that NCCL moves between ranks.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cust::stream::{Stream, StreamFlags};
use cust::sys as cuda;

use super::{Packing, lost};
use crate::cuda::exchange::LIMIT_S;
use crate::cuda::nccl::{Comm, ID, patiently, unique_id};
use crate::cuda::{DeviceSliceMut, Gpu, check, failed};
use crate::error::{Error, Result};
use crate::partition::{Agreed, Routes, Tell, WORD};
use crate::scalar::Scalar;

/// Time of waiting without pauses, and the pauses that follow.
const EAGER: Duration = Duration::from_millis(2);
const PAUSE: Duration = Duration::from_micros(50);

/// Time between two looks at the progress of the GPU.
const LOOK: Duration = Duration::from_secs(1);

/// The connection of a rank, and what it sends and receives.
pub(super) struct Messages<T: Scalar> {
    gpu: Arc<Gpu>,
    comm: Comm,
    routes: Arc<Routes>,
    packing: Arc<Packing>,
    /// Reads the progress while the GPU's stream is busy.
    watch: Stream,
    scalar: PhantomData<T>,
}

impl<T: Scalar> Messages<T> {
    /// Connects all ranks and sends something between all that exchange: the first message of a pair
    /// takes most of a second, and none may be the first in a capture. All ranks call this together; the
    /// inner fault is one that all know.
    ///
    /// # Errors
    /// Errors of `tell`.
    pub fn new(
        gpu: &Arc<Gpu>,
        routes: &Arc<Routes>,
        packing: &Arc<Packing>,
        len: usize,
        tell: Tell<'_>,
    ) -> Result<Agreed<Arc<Self>>> {
        let id = match routes.rank {
            0 => unique_id(),
            _ => super::super::nccl_version().map(|_| [0; ID]),
        };
        let id = match tell(id.map_err(|fault| fault.to_string()))? {
            Ok(words) => words[0],
            Err(fault) => return Ok(Err(fault)),
        };
        let own = Messages::connect(gpu, routes, packing, len, id);
        let told = tell(own.as_ref().map(|_| [0; WORD]).map_err(|fault| fault.to_string()))?;
        Ok(told.and_then(|_| own.map_err(|fault| fault.to_string())))
    }

    fn connect(
        gpu: &Arc<Gpu>,
        routes: &Arc<Routes>,
        packing: &Arc<Packing>,
        len: usize,
        id: [u8; ID],
    ) -> Result<Arc<Self>> {
        let comm = Comm::new(&gpu.queue, [routes.rank, routes.size], id)?;
        gpu.make_current()?;
        let watch =
            Stream::new(StreamFlags::NON_BLOCKING, None).map_err(failed("making a stream"))?;
        let (gpu, routes, packing) = (Arc::clone(gpu), Arc::clone(routes), Arc::clone(packing));
        let own = Messages { gpu, comm, routes, packing, watch, scalar: PhantomData };
        let own = Arc::new(own);
        let first = Arc::clone(&own);
        patiently("the first messages of all pairs", move || {
            first.gpu.make_current()?;
            let mut x = first.gpu.zeros::<T>(len.max(1))?;
            // SAFETY: x has all elements, and the wait below precedes its end.
            unsafe { first.exchange(x.address(), first.gpu.queue.as_inner())? };
            first.sum(x.slice_mut(..1)?)?;
            first.synchronize()
        })??;
        Ok(own)
    }

    /// Queues the exchange of the vector at `x_at`.
    ///
    /// # Safety
    /// The vector lives until the stream has finished; the context is current.
    pub unsafe fn exchange(&self, x_at: u64, stream: cuda::CUstream) -> Result<()> {
        let Routes { sends, receives, .. } = &*self.routes;
        if sends.is_empty() && receives.is_empty() {
            return Ok(());
        }
        let place = |at: u64, element: usize| at + (element * size_of::<T>()) as u64;
        // SAFETY: gathered elements belong to `self`, the vector by this function's own contract; ranks
        // have agreed upon the numbers of elements.
        unsafe {
            self.packing.queue::<T>(x_at, stream)?;
            self.comm.group(|| {
                let mut next = 0;
                for sending in sends {
                    let (at, count) = (place(self.packing.address(), next), sending.elements.len());
                    self.comm.send::<T>(at, [count, sending.to], stream)?;
                    next += count;
                }
                receives.iter().try_for_each(|receiving| {
                    let at = place(x_at, receiving.place);
                    self.comm.receive::<T>(at, [receiving.count, receiving.from], stream)
                })
            })
        }
    }

    /// Queues the replacement of a number by its sum over all ranks, of equal bits on all.
    ///
    /// # Errors
    /// [`Error::Device`] if the library fails; [`Error::Argument`] unless it is one number of this GPU.
    pub fn sum(&self, value: DeviceSliceMut<'_, T>) -> Result<()> {
        value.check(&self.gpu.queue, "the number to add")?;
        if value.len() != 1 {
            let what = format!("{} numbers are to be added over ranks; give one", value.len());
            return Err(Error::argument(what));
        }
        self.gpu.make_current()?;
        // SAFETY: the number is on this GPU, and freed in the order of its stream.
        unsafe { self.comm.sum::<T>(value.address(), self.gpu.queue.as_inner()) }
    }

    /// Tells whether the connection can still be used.
    ///
    /// # Errors
    /// [`Error::Device`] after a fault of an earlier wait.
    pub fn is_open(&self) -> Result<()> {
        self.comm.is_open()
    }

    /// Waits for the GPU, as long as it makes progress.
    ///
    /// # Errors
    /// [`Error::Device`] if a kernel or NCCL failed; [`Error::Exchange`] with the ranks of which one did
    /// not arrive. After either, the connection has ended.
    pub fn synchronize(&self) -> Result<()> {
        let stream = self.gpu.queue.as_inner();
        let start = Instant::now();
        let (mut looked, mut moved, mut seen) = (start, start, None);
        loop {
            // SAFETY: the stream exists.
            match unsafe { cuda::cuStreamQuery(stream) } {
                cuda::CUresult::CUDA_SUCCESS => return self.comm.state(),
                cuda::CUresult::CUDA_ERROR_NOT_READY => {}
                code => {
                    self.comm.abort();
                    return check(code, "a kernel");
                }
            }
            if start.elapsed() < EAGER {
                std::thread::yield_now();
                continue;
            }
            std::thread::sleep(PAUSE);
            if looked.elapsed() < LOOK {
                continue;
            }
            looked = Instant::now();
            self.comm.state().inspect_err(|_| self.comm.abort())?;
            let done = Some(self.done()?);
            if done != seen {
                (seen, moved) = (done, looked);
            } else if moved.elapsed() >= Duration::from_secs(LIMIT_S) {
                self.comm.abort();
                return Err(self.lost());
            }
        }
    }

    /// Returns the number of exchanges that the GPU has begun.
    fn done(&self) -> Result<u64> {
        let mut done = 0u64;
        let (to, stream) = (std::ptr::from_mut(&mut done).cast(), self.watch.as_inner());
        // SAFETY: the driver writes one number, which lives until the copy has ended.
        unsafe {
            let from = self.packing.done.address();
            check(cuda::cuMemcpyDtoHAsync_v2(to, from, 8, stream), "asking for progress")?;
            check(cuda::cuStreamSynchronize(stream), "asking for progress")?;
        }
        Ok(done)
    }

    fn lost(&self) -> Error {
        let mut others = self.routes.waits_for();
        others.sort_unstable();
        others.dedup();
        let others: Vec<String> = others.iter().map(usize::to_string).collect();
        let what = format!(
            "the GPU made no progress for {LIMIT_S} s: one of the ranks {}, or in a sum any other \
             rank, has ended, failed or made other calls",
            others.join(", ")
        );
        lost(self.routes.rank, what)
    }
}

impl<T: Scalar> Drop for Messages<T> {
    fn drop(&mut self) {
        // The connection may only end after its work; the wait is bounded, and ends it after a fault.
        let _ = self.gpu.make_current().and_then(|()| self.synchronize());
    }
}
