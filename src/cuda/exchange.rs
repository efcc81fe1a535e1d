//! Exchange of elements of vectors between GPUs whose memory is open to each other: kernels store
//! elements of x into the vectors of other GPUs and agree by counters; see
//! `kernels/vectors/exchange.cu`.

use std::ops::Range;
use std::sync::Arc;

use cust::sys as cuda;

use super::launch::{PreparedLaunch, plain};
use super::memory::{Memory, Queue};
use super::{DeviceSlice, DeviceSliceMut, Gpu, Vector, handle};
use crate::error::{DeviceFault, Error, Result};
use crate::format::{Arg, Launch};
use crate::partition::Sent;
use crate::scalar::{Precision, Scalar};

/// Threads of a block, maximum number of blocks, and words of the state.
const THREADS: u32 = ellect_kernels::shared("EXCHANGE_THREADS") as u32;
const BLOCKS: u64 = ellect_kernels::shared("EXCHANGE_BLOCKS");
const STATE: u64 = ellect_kernels::shared("EXCHANGE_STATE");

/// Place of the fault in the state.
const FAULT_AT: usize = 2;

/// Elements for each thread, up to [`BLOCKS`] blocks.
const EACH: u64 = 4;

/// Maximum time of waiting for another GPU, in nanoseconds.
const LIMIT_NS: u64 = 20_000_000_000;

/// A vector divided among GPUs: each has its own elements and its halo.
pub(crate) struct PeerVector<T> {
    pub(super) parts: Vec<Vector<T>>,
    /// Places of the own elements of each part.
    own: Vec<Range<usize>>,
    /// For each part, the addresses in other parts to which its elements go.
    targets: Vec<Memory>,
}

impl<T: Scalar> PeerVector<T> {
    /// Returns the own elements of a part.
    pub fn own(&self, part: usize) -> Result<DeviceSlice<'_, T>> {
        self.parts[part].slice(self.own[part].clone())
    }

    /// Returns the own elements of a part, to be changed.
    pub fn own_mut(&mut self, part: usize) -> Result<DeviceSliceMut<'_, T>> {
        self.parts[part].slice_mut(self.own[part].clone())
    }

    /// Overwrites the own elements of a part; waits.
    pub fn write(&mut self, part: usize, host: &[T]) -> Result<()> {
        self.own_mut(part)?.write(host)
    }

    /// Copies the own elements of a part to the host; waits.
    pub fn read(&self, part: usize, host: &mut [T]) -> Result<()> {
        self.own(part)?.read(host)
    }

    /// Returns the places of own elements, and the number of all elements, of each part.
    pub fn shapes(&self) -> impl Iterator<Item = (Range<usize>, usize)> + '_ {
        self.parts.iter().zip(&self.own).map(|(part, own)| (own.clone(), part.len()))
    }
}

/// The elements that each of several GPUs sends to the others.
pub(super) struct Exchange {
    parts: Vec<Peer>,
    /// For each part, the parts to which it sends, and the places in their vectors.
    sends: Vec<Vec<(usize, usize)>>,
}

/// One GPU of an exchange.
struct Peer {
    gpu: Arc<Gpu>,
    /// `None` if the part sends and receives nothing.
    launch: Option<PreparedLaunch>,
    state: Memory,
    /// The parts for which it waits, receivers first.
    waits_for: Vec<usize>,
    _arrays: Vec<Memory>,
}

impl Exchange {
    /// Prepares an exchange between GPUs whose memory is open to each other, one for each part.
    ///
    /// # Errors
    /// [`Error::Device`] from the driver.
    pub fn new(gpus: &[Arc<Gpu>], sent: &[Sent<'_>], precision: Precision) -> Result<Self> {
        // Counters for each pair: `ready` of a receiver and `arrived` of a sender.
        let counters = |gpu: &Arc<Gpu>| Memory::zeros(16 * gpus.len() as u64, &gpu.queue);
        let counters: Vec<Memory> = gpus.iter().map(counters).collect::<Result<_>>()?;
        gpus.iter().try_for_each(|gpu| gpu.synchronize())?;
        let mut parts = Vec::with_capacity(gpus.len());
        let mut sends = Vec::with_capacity(gpus.len());
        for (part, gpu) in gpus.iter().enumerate() {
            let out: Vec<&Sent<'_>> = sent.iter().filter(|s| s.from == part).collect();
            let senders: Vec<usize> =
                sent.iter().filter(|s| s.to == part).map(|s| s.from).collect();
            sends.push(out.iter().map(|s| (s.to, s.place)).collect());
            parts.push(Peer::new(gpu, precision, part, &out, &senders, sent, &counters)?);
        }
        // Counters live as long as any part: each keeps its own.
        for (peer, own) in parts.iter_mut().zip(counters) {
            peer._arrays.push(own);
        }
        Ok(Exchange { parts, sends })
    }

    /// Allocates zeros with these places of own elements, and numbers of all elements, in each part.
    ///
    /// # Errors
    /// [`Error::Device`] if memory runs out.
    pub fn zeros<T: Scalar>(&self, shapes: &[(Range<usize>, usize)]) -> Result<PeerVector<T>> {
        let zeros = self.parts.iter().zip(shapes).map(|(peer, (_, len))| peer.gpu.zeros(*len));
        let parts: Vec<Vector<T>> = zeros.collect::<Result<_>>()?;
        let mut targets = Vec::with_capacity(parts.len());
        for (peer, sends) in self.parts.iter().zip(&self.sends) {
            let at = |&(to, place): &(usize, usize)| {
                parts[to].address() + (place * size_of::<T>()) as u64
            };
            let addresses: Vec<u64> = sends.iter().map(at).collect();
            targets.push(Memory::of(bytemuck::cast_slice(&addresses), &peer.gpu.queue)?);
        }
        Ok(PeerVector { parts, own: shapes.iter().map(|(own, _)| own.clone()).collect(), targets })
    }

    /// Tells whether a part sends or receives anything.
    pub fn concerns(&self, part: usize) -> bool {
        self.parts[part].launch.is_some()
    }

    /// Queues the part's exchange of x on `stream`.
    ///
    /// # Errors
    /// [`Error::Device`] if the launch fails.
    ///
    /// # Safety
    /// x was made by [`Exchange::zeros`] of this exchange, and both live until the streams of all
    /// parts have finished it. The context of the part's GPU is current.
    pub unsafe fn queue<T: Scalar>(
        &self,
        x: &PeerVector<T>,
        part: usize,
        stream: cuda::CUstream,
    ) -> Result<()> {
        let Some(launch) = &self.parts[part].launch else { return Ok(()) };
        let vectors = [x.parts[part].address(), x.targets[part].address(), 0];
        // SAFETY: the arrays of the launch belong to `self`, the vectors by the caller's contract.
        unsafe { launch.launch(vectors, T::ONE, T::ZERO, stream) }
    }

    /// Waits for all GPUs.
    ///
    /// # Errors
    /// [`Error::Device`] if a kernel faulted, or if a part waited in vain for another one.
    pub fn synchronize(&self) -> Result<()> {
        for (part, peer) in self.parts.iter().enumerate() {
            peer.gpu.make_current()?;
            let mut state = [0u64; STATE as usize];
            peer.state.read(bytemuck::cast_slice_mut(&mut state))?;
            if let Some(other) = state[FAULT_AT].checked_sub(1) {
                let other = peer.waits_for.get(other as usize).copied().unwrap_or(part);
                let name = |part: usize| handle(self.parts[part].gpu.index);
                let what = format!(
                    "part {part} on {} waited {} s in vain for part {other} on {}; prepare the \
                     matrix anew",
                    name(part),
                    LIMIT_NS / 1_000_000_000,
                    name(other)
                );
                return Err(Error::device(DeviceFault::Failed, what));
            }
        }
        Ok(())
    }
}

impl Peer {
    fn new(
        gpu: &Arc<Gpu>,
        precision: Precision,
        part: usize,
        out: &[&Sent<'_>],
        senders: &[usize],
        all: &[Sent<'_>],
        counters: &[Memory],
    ) -> Result<Self> {
        let queue = &gpu.queue;
        let state = Memory::zeros(8 * STATE, queue)?;
        let waits_for = out.iter().map(|s| s.to).chain(senders.iter().copied()).collect();
        let from: Vec<u32> =
            out.iter().flat_map(|s| s.elements.iter().map(|&at| s.first + at)).collect();
        let mut end = 0;
        let ends = out.iter().map(|s| {
            end += s.elements.len() as u64;
            end
        });
        let ends: Vec<u64> = ends.collect();
        // Place of part `other` among the receivers, or the senders, of `of`.
        let place = |of: usize, other: usize, receives: bool| {
            let mut others = all.iter().filter_map(|s| match receives {
                true => (s.from == of).then_some(s.to),
                false => (s.to == of).then_some(s.from),
            });
            others.position(|found| found == other).unwrap_or(0) as u64
        };
        let arrived_at = 8 * counters.len() as u64;
        let ready_there: Vec<u64> =
            senders.iter().map(|&s| counters[s].address() + 8 * place(s, part, true)).collect();
        let arrived_there: Vec<u64> = out
            .iter()
            .map(|s| counters[s.to].address() + arrived_at + 8 * place(s.to, part, false))
            .collect();
        let bytes = [
            bytemuck::cast_slice::<u32, u8>(&from),
            bytemuck::cast_slice(&ends),
            bytemuck::cast_slice(&ready_there),
            bytemuck::cast_slice(&arrived_there),
        ];
        let arrays: Vec<Memory> =
            bytes.into_iter().map(|bytes| Memory::of(bytes, queue)).collect::<Result<_>>()?;
        let own = counters[part].address();
        let plan = Plan {
            count: from.len() as u64,
            receivers: out.len() as u32,
            senders: senders.len() as u32,
            addresses: [0, 1, 2, 3].map(|k| arrays[k].address()),
            counters: [own, own + arrived_at],
            state: state.address(),
        };
        let launch = match waits_for {
            ref parts if Vec::is_empty(parts) => None,
            _ => PreparedLaunch::new(gpu, &plan.launch(precision), plain)?,
        };
        let launch = launch.map(|launch| launch.overlapping(gpu));
        Ok(Peer { gpu: Arc::clone(gpu), launch, state, waits_for, _arrays: arrays })
    }
}

/// Numbers and addresses of the exchange of one part.
struct Plan {
    count: u64,
    receivers: u32,
    senders: u32,
    /// Elements to send, their ends, and the counters in the memory of senders and of receivers.
    addresses: [u64; 4],
    /// Own counters: `ready`, `arrived`.
    counters: [u64; 2],
    state: u64,
}

impl Plan {
    /// Describes the launch; x and the addresses of targets are the vectors X and Y.
    fn launch(&self, precision: Precision) -> Launch {
        let [from, ends, ready_there, arrived_there] = self.addresses.map(Arg::U64);
        let [ready, arrived] = self.counters.map(Arg::U64);
        let args = vec![
            Arg::U64(self.count),
            from,
            Arg::X,
            Arg::U32(self.receivers),
            ends,
            Arg::Y,
            Arg::U32(self.senders),
            ready_there,
            arrived_there,
            ready,
            arrived,
            Arg::U64(self.state),
            Arg::U64(LIMIT_NS),
        ];
        let blocks = self.count.div_ceil(EACH * u64::from(THREADS)).clamp(1, BLOCKS);
        let kernel = format!("exchange_{precision}");
        Launch::over("exchange", kernel, blocks * u64::from(THREADS), THREADS, args)
    }
}

/// Returns the launch of an exchange with invented addresses, for the check of signatures.
#[cfg(test)]
pub(super) fn launch(precision: Precision) -> Launch {
    let plan = Plan {
        count: 5000,
        receivers: 1,
        senders: 1,
        addresses: [8, 16, 24, 32],
        counters: [40, 48],
        state: 56,
    };
    plan.launch(precision)
}

impl<T> Drop for PeerVector<T> {
    fn drop(&mut self) {
        // Other GPUs may still store into the halos.
        self.targets.iter().for_each(|target| settle(target.queue()));
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        // Other GPUs may still write to the counters.
        self.parts.iter().for_each(|peer| settle(&peer.gpu.queue));
    }
}

/// Waits for all work on a stream; a fault shows at the next use of its GPU.
fn settle(queue: &Queue) {
    let _ = queue.make_current().map(|()| queue.synchronize());
}
