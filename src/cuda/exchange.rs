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

/// Threads of a block, maximum number of blocks for a receiver, and words of the state.
const THREADS: u32 = ellect_kernels::shared("EXCHANGE_THREADS") as u32;
pub(super) const BLOCKS: u64 = ellect_kernels::shared("EXCHANGE_BLOCKS");
pub(super) const STATE: u64 = ellect_kernels::shared("EXCHANGE_STATE");

/// Place of the fault in the state.
pub(super) const FAULT_AT: usize = 2;

/// Elements for each thread, up to [`BLOCKS`] blocks.
const EACH: u64 = 2;

/// Maximum time of waiting for another GPU, in seconds.
pub(super) const LIMIT_S: u64 = 20;

/// A vector divided among GPUs: each has its own elements and its halo.
pub(crate) struct PeerVector<T> {
    memory: Arc<PeerMemory<T>>,
    /// Places of the own elements of each part.
    own: Vec<Range<usize>>,
}

/// The memory of a divided vector, which recorded work keeps.
pub(super) struct PeerMemory<T> {
    parts: Vec<Vector<T>>,
    /// For each part, the addresses in other parts to which its elements go.
    targets: Vec<Memory>,
}

impl<T: Scalar> PeerVector<T> {
    /// Returns the own elements of a part.
    pub fn own(&self, part: usize) -> Result<DeviceSlice<'_, T>> {
        self.memory.parts[part].slice(self.own[part].clone())
    }

    /// Returns the own elements of a part, to be changed.
    pub fn own_mut(&mut self, part: usize) -> Result<DeviceSliceMut<'_, T>> {
        // SAFETY: the vector is borrowed mutably as long as the slice; recorded work is ordered by the
        // streams.
        self.own(part).map(|own| unsafe { DeviceSliceMut::within(own) })
    }

    /// Returns the address of all elements of a part.
    pub fn address(&self, part: usize) -> u64 {
        self.memory.parts[part].address()
    }

    /// Returns the memory.
    pub(super) fn memory(&self) -> &Arc<PeerMemory<T>> {
        &self.memory
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
        self.memory.parts.iter().zip(&self.own).map(|(part, own)| (own.clone(), part.len()))
    }
}

/// The elements that each of several GPUs sends to the others.
pub(super) struct Exchange {
    parts: Vec<Peer>,
    /// For each part, the parts to which it sends, and the places in their vectors.
    sends: Vec<Vec<(usize, usize)>>,
}

/// One GPU of an exchange.
pub(super) struct Peer {
    gpu: Arc<Gpu>,
    /// `None` if the part sends and receives nothing.
    launch: Option<PreparedLaunch>,
    state: Memory,
    /// The parts for which it waits, receivers first.
    waits_for: Vec<usize>,
    _arrays: Vec<Memory>,
}

/// The elements that a GPU sends, and the counters by which it and the others agree.
pub(super) struct Wires {
    /// Places of the elements in the own vector, by receiver, and their number for each receiver.
    pub from: Vec<u32>,
    pub leaving: Vec<usize>,
    /// Addresses of the counters of each sender that this GPU raises when its halo may be overwritten,
    /// and of the [`BLOCKS`] counters of each receiver, one for each block whose elements have arrived.
    pub ready_there: Vec<u64>,
    pub arrived_there: Vec<u64>,
    /// Numbers of elements that the senders send.
    pub arriving: Vec<usize>,
    /// Addresses of the own counters of both kinds.
    pub counters: [u64; 2],
    /// The parts for which the GPU waits, receivers first.
    pub waits_for: Vec<usize>,
}

impl Exchange {
    /// Prepares an exchange between GPUs whose memory is open to each other, one for each part.
    ///
    /// # Errors
    /// [`Error::Device`] from the driver.
    pub fn new(gpus: &[Arc<Gpu>], sent: &[Sent<'_>], precision: Precision) -> Result<Self> {
        // Counters for each pair: `ready` of a receiver, and `arrived` of each block of a sender.
        let bytes = 8 * (1 + BLOCKS) * gpus.len() as u64;
        let counters = |gpu: &Arc<Gpu>| Memory::zeros(bytes, &gpu.queue);
        let counters: Vec<Memory> = gpus.iter().map(counters).collect::<Result<_>>()?;
        gpus.iter().try_for_each(|gpu| gpu.synchronize())?;
        let mut parts = Vec::with_capacity(gpus.len());
        let mut sends = Vec::with_capacity(gpus.len());
        for (part, gpu) in gpus.iter().enumerate() {
            let out: Vec<&Sent<'_>> = sent.iter().filter(|s| s.from == part).collect();
            let senders: Vec<&Sent<'_>> = sent.iter().filter(|s| s.to == part).collect();
            sends.push(out.iter().map(|s| (s.to, s.place)).collect());
            let wires = wires(part, &out, &senders, sent, &counters);
            parts.push(Peer::new(gpu, precision, wires)?);
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
        let own = shapes.iter().map(|(own, _)| own.clone()).collect();
        Ok(PeerVector { memory: Arc::new(PeerMemory { parts, targets }), own })
    }

    /// Tells whether a part sends or receives anything.
    pub fn concerns(&self, part: usize) -> bool {
        self.parts[part].is_concerned()
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
        let (x_at, targets_at) = (x.address(part), x.memory.targets[part].address());
        // SAFETY: the vectors live by the caller's contract.
        unsafe { self.parts[part].queue::<T>(x_at, targets_at, stream) }
    }

    /// Waits for all GPUs.
    ///
    /// # Errors
    /// [`Error::Device`] if a kernel faulted, or if a part waited in vain for another one.
    pub fn synchronize(&self) -> Result<()> {
        for (part, peer) in self.parts.iter().enumerate() {
            if let Some(other) = peer.waited_in_vain()? {
                return Err(self.in_vain([part, other]));
            }
        }
        Ok(())
    }

    /// Returns the error of a part that waited too long for another one.
    pub fn in_vain(&self, [part, other]: [usize; 2]) -> Error {
        let name = |part: usize| handle(self.parts[part].gpu.index);
        let what = format!(
            "part {part} on {} waited {} s in vain for part {other} on {}; prepare the matrix anew",
            name(part),
            LIMIT_S,
            name(other)
        );
        Error::device(DeviceFault::Failed, what)
    }
}

/// Returns the wires of a part of one process.
fn wires(
    part: usize,
    out: &[&Sent<'_>],
    senders: &[&Sent<'_>],
    all: &[Sent<'_>],
    counters: &[Memory],
) -> Wires {
    // Place of part `other` among the receivers, or the senders, of `of`.
    let place = |of: usize, other: usize, receives: bool| {
        let mut others = all.iter().filter_map(|s| match receives {
            true => (s.from == of).then_some(s.to),
            false => (s.to == of).then_some(s.from),
        });
        others.position(|found| found == other).unwrap_or(0) as u64
    };
    let arrived_at = 8 * counters.len() as u64;
    let ready_there =
        senders.iter().map(|s| counters[s.from].address() + 8 * place(s.from, part, true));
    let arrived_there = out
        .iter()
        .map(|s| counters[s.to].address() + arrived_at + 8 * BLOCKS * place(s.to, part, false));
    let own = counters[part].address();
    Wires {
        from: out.iter().flat_map(|s| s.elements.iter().map(|&at| s.first + at)).collect(),
        leaving: out.iter().map(|s| s.elements.len()).collect(),
        ready_there: ready_there.collect(),
        arrived_there: arrived_there.collect(),
        arriving: senders.iter().map(|s| s.elements.len()).collect(),
        counters: [own, own + arrived_at],
        waits_for: out.iter().map(|s| s.to).chain(senders.iter().map(|s| s.from)).collect(),
    }
}

impl Peer {
    /// Prepares the exchange of one GPU.
    ///
    /// # Errors
    /// [`Error::Device`] from the driver.
    pub fn new(gpu: &Arc<Gpu>, precision: Precision, wires: Wires) -> Result<Self> {
        let queue = &gpu.queue;
        let state = Memory::zeros(8 * STATE, queue)?;
        let (mut end, mut blocks) = (0, 0);
        let ends = wires.leaving.iter().map(|&count| {
            end += count as u64;
            blocks += blocks_for(count);
            (end, blocks)
        });
        let (ends, block_ends): (Vec<u64>, Vec<u32>) = ends.unzip();
        let arrivals: Vec<u32> = wires.arriving.iter().map(|&count| blocks_for(count)).collect();
        let bytes = [
            bytemuck::cast_slice::<u32, u8>(&wires.from),
            bytemuck::cast_slice(&ends),
            bytemuck::cast_slice(&block_ends),
            bytemuck::cast_slice(&wires.ready_there),
            bytemuck::cast_slice(&wires.arrived_there),
            bytemuck::cast_slice(&arrivals),
        ];
        let arrays: Vec<Memory> =
            bytes.into_iter().map(|bytes| Memory::of(bytes, queue)).collect::<Result<_>>()?;
        let plan = Plan {
            blocks,
            receivers: wires.arrived_there.len() as u32,
            senders: wires.ready_there.len() as u32,
            addresses: [0, 1, 2, 3, 4, 5].map(|k| arrays[k].address()),
            counters: wires.counters,
            state: state.address(),
        };
        let waits_for = wires.waits_for;
        let launch = match waits_for.is_empty() {
            true => None,
            false => PreparedLaunch::new(gpu, &plan.launch(precision), plain)?,
        };
        let launch = launch.map(|launch| launch.overlapping(gpu));
        Ok(Peer { gpu: Arc::clone(gpu), launch, state, waits_for, _arrays: arrays })
    }

    /// Tells whether the GPU sends or receives anything.
    pub fn is_concerned(&self) -> bool {
        self.launch.is_some()
    }

    /// Queues the exchange of the vector at `x_at` on `stream`; at `targets_at` are the addresses to
    /// which the elements for each receiver go.
    ///
    /// # Errors
    /// [`Error::Device`] if the launch fails.
    ///
    /// # Safety
    /// The vector, the addresses and the memory that they name live until the streams of all GPUs have
    /// finished the exchange. The GPU's context is current.
    pub unsafe fn queue<T: Scalar>(
        &self,
        x_at: u64,
        targets_at: u64,
        stream: cuda::CUstream,
    ) -> Result<()> {
        let Some(launch) = &self.launch else { return Ok(()) };
        // SAFETY: the arrays of the launch belong to `self`, the vectors by the caller's contract.
        unsafe { launch.launch([x_at, targets_at, 0], T::ONE, T::ZERO, stream) }
    }

    /// Returns the part for which the GPU waited too long, if any; waits for all queued work.
    ///
    /// # Errors
    /// [`Error::Device`] if a kernel faulted.
    pub fn waited_in_vain(&self) -> Result<Option<usize>> {
        self.gpu.make_current()?;
        let mut state = [0u64; STATE as usize];
        self.state.read(bytemuck::cast_slice_mut(&mut state))?;
        let other = state[FAULT_AT].checked_sub(1);
        let unknown = self.waits_for.first().copied().unwrap_or(0);
        Ok(other.map(|at| self.waits_for.get(at as usize).copied().unwrap_or(unknown)))
    }
}

/// Returns the number of blocks that send this many elements to one receiver.
fn blocks_for(count: usize) -> u32 {
    (count as u64).div_ceil(EACH * u64::from(THREADS)).clamp(1, BLOCKS) as u32
}

/// Numbers and addresses of the exchange of one part.
struct Plan {
    blocks: u32,
    receivers: u32,
    senders: u32,
    /// Elements to send, their ends and those of the blocks; the counters in the memory of senders and of
    /// receivers; and the numbers of blocks of the senders.
    addresses: [u64; 6],
    /// Own counters: `ready`, `arrived`.
    counters: [u64; 2],
    state: u64,
}

impl Plan {
    /// Describes the launch; x and the addresses of targets are the vectors X and Y.
    fn launch(&self, precision: Precision) -> Launch {
        let [from, ends, block_ends, ready_there, arrived_there, arrivals] =
            self.addresses.map(Arg::U64);
        let [ready, arrived] = self.counters.map(Arg::U64);
        let args = vec![
            from,
            Arg::X,
            Arg::U32(self.receivers),
            ends,
            block_ends,
            Arg::Y,
            Arg::U32(self.senders),
            ready_there,
            arrived_there,
            ready,
            arrived,
            arrivals,
            Arg::U64(self.state),
            Arg::U64(1_000_000_000 * LIMIT_S),
        ];
        let threads = u64::from(self.blocks.max(1)) * u64::from(THREADS);
        Launch::over("exchange", format!("exchange_{precision}"), threads, THREADS, args)
    }
}

/// Returns the launch of an exchange with invented addresses, for the check of signatures.
#[cfg(test)]
pub(super) fn launch(precision: Precision) -> Launch {
    let plan = Plan {
        blocks: 10,
        receivers: 1,
        senders: 1,
        addresses: [8, 16, 24, 32, 40, 48],
        counters: [56, 64],
        state: 72,
    };
    plan.launch(precision)
}

impl<T> Drop for PeerMemory<T> {
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
pub(super) fn settle(queue: &Queue) {
    let _ = queue.make_current().map(|()| queue.synchronize());
}
