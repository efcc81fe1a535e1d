//! Memory that the GPUs of all ranks of one host open to each other: counters, shares of sums, and
//! vectors with their halos.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cust::sys as cuda;

use super::{lost, settle};
use crate::cuda::exchange::{BLOCKS, LIMIT_S, Peer, Wires};
use crate::cuda::ipc::{Exported, HANDLE, Opened};
use crate::cuda::memory::{Memory, Queue};
use crate::cuda::{DeviceSlice, DeviceSliceMut, Gpu, Vector};
use crate::error::Result;
use crate::partition::{Agreed, Routes, Tell, Told, WORD};
use crate::scalar::Scalar;

/// Columns of a rank's shared memory, with a word of 8 bytes for each rank: counters for halos and for
/// sums, of each kind one that says that it is ready and one for each block whose elements have arrived;
/// marks of ranks that have closed the memory; and shares of a sum.
const READY: u64 = 0;
const ARRIVED: u64 = READY + 1;
const SUM_READY: u64 = ARRIVED + BLOCKS;
const SUM_ARRIVED: u64 = SUM_READY + 1;
const CLOSED: u64 = SUM_ARRIVED + BLOCKS;
const SHARES: u64 = CLOSED + 1;
const COLUMNS: u64 = SHARES + 1;

/// Vectors whose memory can be lent again.
const SLOTS: usize = 256;

/// The shared memory of a rank, and that of the others.
pub(super) struct Board<T: Scalar> {
    gpu: Arc<Gpu>,
    routes: Arc<Routes>,
    /// Number of elements of a vector.
    len: usize,
    halos: Peer,
    sums: Peer,
    /// Addresses to which the own share of a sum goes.
    sum_targets: Memory,
    ones: Vector<T>,
    slots: Mutex<Vec<Slot>>,
    /// Own memory, and that of each other rank; taken when this is dropped.
    own: Option<Exported>,
    others: Vec<Option<Opened>>,
}

/// A vector that other ranks have opened.
struct Slot {
    memory: Exported,
    opened: Vec<Opened>,
    /// Addresses to which elements go in the vectors of other ranks.
    targets: Memory,
    free: bool,
}

/// A vector of a [`Board`]; its memory can be lent again when this is dropped.
pub(super) struct Lease<T: Scalar> {
    board: Arc<Board<T>>,
    slot: usize,
    address: u64,
    targets: u64,
}

/// Memory that others may still have open.
struct Grave {
    own: Exported,
    _vectors: Vec<Exported>,
    rank: usize,
    size: usize,
    /// Time at which all others had closed it.
    closed: Option<Instant>,
}

static GRAVES: Mutex<Vec<Grave>> = Mutex::new(Vec::new());

/// Time after the last mark in which the other rank closes the memory that has the mark.
const CLOSING: Duration = Duration::from_secs(1);

fn column(column: u64, size: usize) -> u64 {
    8 * column * size as u64
}

impl<T: Scalar> Board<T> {
    /// Opens the memory of all ranks to each other. All ranks call this together; the inner fault is one
    /// that all know.
    ///
    /// # Errors
    /// Errors of `tell`.
    pub fn new(
        gpu: &Arc<Gpu>,
        routes: &Arc<Routes>,
        len: usize,
        tell: Tell<'_>,
    ) -> Result<Agreed<Arc<Self>>> {
        sweep();
        let own = Exported::zeros(column(COLUMNS, routes.size), &gpu.queue);
        let (own, handles) = match shared(own, tell)? {
            Ok(both) => both,
            Err(fault) => return Ok(Err(fault)),
        };
        let board = Board::of(gpu, routes, len, own, &handles);
        let (board, told) = announced(board, tell)?;
        Ok(match told {
            Ok(_) => board.map(Arc::new).map_err(|fault| fault.to_string()),
            Err(fault) => Err(fault),
        })
    }

    fn of(
        gpu: &Arc<Gpu>,
        routes: &Arc<Routes>,
        len: usize,
        own: Exported,
        handles: &[[u8; WORD]],
    ) -> Result<Self> {
        let (rank, size) = (routes.rank, routes.size);
        let open = |(other, handle): (usize, &[u8; WORD])| match other == rank {
            true => Ok(None),
            false => Opened::new(&handle[..HANDLE], &gpu.queue).map(Some),
        };
        let others = handles.iter().enumerate().map(open).collect::<Result<Vec<_>>>()?;
        let at = |rank: usize| others[rank].as_ref().map_or(own.address(), Opened::address);
        let boards: Vec<u64> = (0..size).map(at).collect();
        let of_sums = Routes::of_sums(rank, size);
        let (halos, sums) = (
            wires(routes, &boards, [READY, ARRIVED]),
            wires(&of_sums, &boards, [SUM_READY, SUM_ARRIVED]),
        );
        let target = |to: usize| boards[to] + column(SHARES, size) + (rank * size_of::<T>()) as u64;
        let targets: Vec<u64> = of_sums.sends.iter().map(|sending| target(sending.to)).collect();
        let board = Board {
            halos: Peer::new(gpu, T::PRECISION, halos)?,
            sums: Peer::new(gpu, T::PRECISION, sums)?,
            sum_targets: Memory::of(bytemuck::cast_slice(&targets), &gpu.queue)?,
            ones: gpu.vector(&vec![T::ONE; size])?,
            gpu: Arc::clone(gpu),
            routes: Arc::clone(routes),
            len,
            slots: Mutex::default(),
            own: Some(own),
            others,
        };
        gpu.synchronize()?;
        Ok(board)
    }

    fn slots(&self) -> MutexGuard<'_, Vec<Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lends a vector of zeros; all ranks call this together.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if memory runs out; [`Error::Exchange`](crate::Error::Exchange) if another rank failed.
    pub fn lease(self: &Arc<Self>, tell: Tell<'_>) -> Result<Lease<T>> {
        // Memory can be lent again where it is free on all ranks.
        let free: Vec<bool> = self.slots().iter().take(SLOTS).map(|slot| slot.free).collect();
        let mut word = [0; WORD];
        free.iter().enumerate().for_each(|(at, &free)| word[at / 8] |= u8::from(free) << (at % 8));
        let words = self.agreed(tell(Ok(word))?)?;
        let is_free = |at: &usize| words.iter().all(|word| word[at / 8] >> (at % 8) & 1 == 1);
        let slot = match (0..SLOTS).find(is_free) {
            Some(slot) => {
                let cleared = match self.slots().get(slot) {
                    Some(slot) => slot.memory.clear(self.bytes() as usize),
                    None => Err(lost(self.routes.rank, "a vector that was freed is gone".into())),
                };
                let (cleared, told) = announced(cleared, tell)?;
                cleared?;
                self.agreed(told)?;
                slot
            }
            None => self.new_slot(tell)?,
        };
        let mut slots = self.slots();
        let Some(Slot { memory, targets, free, .. }) = slots.get_mut(slot) else {
            return Err(lost(self.routes.rank, "a vector that was freed is gone".into()));
        };
        *free = false;
        let (address, targets) = (memory.address(), targets.address());
        Ok(Lease { board: Arc::clone(self), slot, address, targets })
    }

    fn bytes(&self) -> u64 {
        (self.len * size_of::<T>()) as u64
    }

    /// Allocates a vector and opens those of the ranks that get elements.
    fn new_slot(&self, tell: Tell<'_>) -> Result<usize> {
        let shared = shared(Exported::zeros(self.bytes(), &self.gpu.queue), tell)?;
        let (memory, handles) = shared.map_err(|fault| lost(self.routes.rank, fault))?;
        let opened = self.routes.sends.iter().map(|sending| {
            let opened = Opened::new(&handles[sending.to][..HANDLE], &self.gpu.queue)?;
            let place = (sending.place * size_of::<T>()) as u64;
            Ok((opened.address() + place, opened))
        });
        let slot = opened.collect::<Result<(Vec<u64>, Vec<Opened>)>>().and_then(|(at, opened)| {
            let targets = Memory::of(bytemuck::cast_slice(&at), &self.gpu.queue)?;
            Ok(Slot { memory, opened, targets, free: false })
        });
        let (slot, told) = announced(slot, tell)?;
        let slot = slot?;
        self.agreed(told)?;
        let mut slots = self.slots();
        slots.push(slot);
        Ok(slots.len() - 1)
    }

    fn agreed(&self, told: Told) -> Result<Vec<[u8; WORD]>> {
        told.map_err(|fault| lost(self.routes.rank, fault))
    }

    /// Queues the exchange of a vector.
    ///
    /// # Safety
    /// The lease lives until the stream has finished; the context is current.
    pub unsafe fn exchange(&self, x: &Lease<T>, stream: cuda::CUstream) -> Result<()> {
        // SAFETY: by this function's own contract; other ranks keep their vectors by the same one.
        unsafe { self.halos.queue::<T>(x.address, x.targets, stream) }
    }

    fn shares(&self) -> DeviceSlice<'_, T> {
        let at = self.own.as_ref().map_or(0, Exported::address) + column(SHARES, self.routes.size);
        // SAFETY: the memory has a share of each rank and lives as long as `self`, which waits for its
        // streams at its end.
        unsafe { DeviceSlice::within(at, self.routes.size, &self.gpu.queue) }
    }

    /// Returns the own share of a sum, to be changed.
    pub fn share(&self) -> Result<DeviceSliceMut<'_, T>> {
        let share = self.shares().slice(self.routes.rank..=self.routes.rank)?;
        // SAFETY: the owner of the board lets threads take turns, and kernels are ordered by the stream.
        Ok(unsafe { DeviceSliceMut::within(share) })
    }

    /// Queues the sum of all ranks' shares, added in the order of the ranks, so that all get equal bits.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if a launch fails.
    pub fn sum(&self, result: DeviceSliceMut<'_, T>) -> Result<()> {
        let (shares, targets) = (self.shares(), self.sum_targets.address());
        self.gpu.make_current()?;
        // SAFETY: the shares belong to `self`; those of other ranks live until all have closed them.
        unsafe { self.sums.queue::<T>(shares.address(), targets, self.gpu.queue.as_inner())? };
        self.gpu.dot(shares, &self.ones, result)
    }

    /// Waits for the GPU.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if a kernel faulted; [`Error::Exchange`](crate::Error::Exchange) with the rank for which this one waited
    /// in vain.
    pub fn synchronize(&self) -> Result<()> {
        for peer in [&self.halos, &self.sums] {
            if let Some(other) = peer.waited_in_vain()? {
                let what = format!(
                    "the GPU waited {LIMIT_S} s in vain for rank {other}, which has ended, failed or \
                     made other calls"
                );
                return Err(lost(self.routes.rank, what));
            }
        }
        Ok(())
    }
}

/// Tells a handle of the own memory to all ranks; returns the memory and all handles.
fn shared(own: Result<Exported>, tell: Tell<'_>) -> Result<Agreed<(Exported, Vec<[u8; WORD]>)>> {
    let own = own.and_then(|own| {
        let mut word = [0; WORD];
        word[..HANDLE].copy_from_slice(&own.handle()?);
        Ok((own, word))
    });
    let word = own.as_ref().map(|(_, word)| *word).map_err(|fault| fault.to_string());
    let told = tell(word)?;
    Ok(told.and_then(|handles| match own {
        Ok((own, _)) => Ok((own, handles)),
        Err(fault) => Err(fault.to_string()),
    }))
}

/// Tells all ranks whether the own step has succeeded.
fn announced<R>(own: Result<R>, tell: Tell<'_>) -> Result<(Result<R>, Told)> {
    let told = tell(own.as_ref().map(|_| [0; WORD]).map_err(|fault| fault.to_string()))?;
    Ok((own, told))
}

/// Returns the wires of these routes, whose counters begin in two columns of each rank's memory.
fn wires(routes: &Routes, boards: &[u64], [ready, arrived]: [u64; 2]) -> Wires {
    let size = routes.size;
    let ready_at = |of: usize, turn: usize| boards[of] + column(ready, size) + 8 * turn as u64;
    let arrived_at =
        |of: usize, turn: usize| boards[of] + column(arrived, size) + 8 * BLOCKS * turn as u64;
    Wires {
        leaving: routes.sends.iter().map(|sending| sending.elements.len()).collect(),
        from: routes.elements(),
        ready_there: routes.receives.iter().map(|r| ready_at(r.from, r.turn)).collect(),
        arrived_there: routes.sends.iter().map(|s| arrived_at(s.to, s.turn)).collect(),
        arriving: routes.receives.iter().map(|r| r.count).collect(),
        counters: [ready_at(routes.rank, 0), arrived_at(routes.rank, 0)],
        waits_for: routes.waits_for(),
    }
}

impl<T: Scalar> Lease<T> {
    /// Tells whether the vector is one of this board.
    pub fn is_of(&self, board: &Arc<Board<T>>) -> bool {
        Arc::ptr_eq(&self.board, board)
    }

    pub fn address(&self) -> u64 {
        self.address
    }

    pub fn queue(&self) -> &Arc<Queue> {
        &self.board.gpu.queue
    }
}

impl<T: Scalar> Drop for Lease<T> {
    fn drop(&mut self) {
        // When the own exchanges have ended, no other rank stores into the vector any more.
        settle(&self.board.gpu.queue);
        if let Some(slot) = self.board.slots().get_mut(self.slot) {
            slot.free = true;
        }
    }
}

impl<T: Scalar> Drop for Board<T> {
    fn drop(&mut self) {
        settle(&self.gpu.queue);
        let slots = std::mem::take(self.slots.get_mut().unwrap_or_else(PoisonError::into_inner));
        let (vectors, opened): (Vec<Exported>, Vec<_>) =
            slots.into_iter().map(|slot| (slot.memory, slot.opened)).unzip();
        drop(opened);
        let (rank, size) = (self.routes.rank, self.routes.size);
        for other in self.others.drain(..).flatten() {
            let mark = column(CLOSED, size) + 8 * rank as u64;
            // If the other process has ended, nobody looks at the mark.
            let _ = other.write(mark, &1u64.to_le_bytes());
        }
        let Some(own) = self.own.take() else { return };
        let grave = Grave { own, _vectors: vectors, rank, size, closed: None };
        GRAVES.lock().unwrap_or_else(PoisonError::into_inner).push(grave);
        sweep();
    }
}

/// Frees the memory of earlier operators that all other ranks have closed. Memory of ranks that ended
/// without closing it stays until this process ends.
fn sweep() {
    let mut graves = GRAVES.lock().unwrap_or_else(PoisonError::into_inner);
    graves.retain_mut(|grave| {
        let mut marks = vec![0u64; grave.size];
        let at = column(CLOSED, grave.size);
        if grave.own.read(at, bytemuck::cast_slice_mut(&mut marks)).is_err() {
            return false;
        }
        marks[grave.rank] = 1;
        if marks.contains(&0) {
            return true;
        }
        let closed = *grave.closed.get_or_insert_with(Instant::now);
        grave.size > 1 && closed.elapsed() < CLOSING
    });
}
