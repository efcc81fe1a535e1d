//! Sums over GPUs whose memory is open to each other: each GPU sends its numbers to all others and adds
//! those of all in the same order; see `kernels/vectors/reduce.cu`.

use std::sync::Arc;

use cust::sys as cuda;

use super::exchange::{FAULT_AT, LIMIT_S, STATE, settle};
use super::launch::{PreparedLaunch, plain};
use super::memory::Memory;
use super::several::queue_launch;
use super::{DeviceSliceMut, Gpu, Vector, check};
use crate::dots::MOST;
use crate::error::Result;
use crate::format::{Arg, Launch};
use crate::scalar::{Precision, Scalar};

/// Threads of the only block.
const THREADS: u32 = ellect_kernels::shared("REDUCE_THREADS") as u32;

/// Numbers of each of several GPUs, which are added over all of them.
pub(super) struct Reduction<T> {
    parts: Vec<Adder<T>>,
    /// Lists of [`MOST`] numbers that each GPU adds first.
    lists: usize,
}

/// One GPU of a sum.
struct Adder<T> {
    gpu: Arc<Gpu>,
    /// The GPU's own numbers.
    own: Vector<T>,
    state: Memory,
    /// Counters, one for each GPU, by which it says that its numbers are here.
    arrived: Memory,
    /// Numbers of all GPUs, for two sums in turn.
    slots: Memory,
    /// Addresses of the slots of all GPUs, and of the counters there.
    there: Vec<Memory>,
}

impl<T: Scalar> Reduction<T> {
    /// Prepares sums over GPUs of this many lists of numbers on each.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) from the driver.
    pub fn new(gpus: &[Arc<Gpu>], lists: usize) -> Result<Self> {
        let parts = gpus.len() as u64;
        let adder = |gpu: &Arc<Gpu>| {
            Ok(Adder {
                own: gpu.zeros(lists * MOST)?,
                state: Memory::zeros(8 * STATE, &gpu.queue)?,
                arrived: Memory::zeros(8 * parts, &gpu.queue)?,
                slots: Memory::zeros(8 * 2 * parts * MOST as u64, &gpu.queue)?,
                there: Vec::new(),
                gpu: Arc::clone(gpu),
            })
        };
        let mut adders: Vec<Adder<T>> = gpus.iter().map(adder).collect::<Result<_>>()?;
        let slots: Vec<u64> = adders.iter().map(|adder| adder.slots.address()).collect();
        for (part, gpu) in gpus.iter().enumerate() {
            let own = 8 * part as u64;
            let counters: Vec<u64> =
                adders.iter().map(|adder| adder.arrived.address() + own).collect();
            for addresses in [&slots, &counters] {
                let addresses = Memory::of(bytemuck::cast_slice(addresses), &gpu.queue)?;
                adders[part].there.push(addresses);
            }
            gpu.synchronize()?;
        }
        let reduction = Reduction { parts: adders, lists };
        for (part, gpu) in gpus.iter().enumerate() {
            // The driver loads the kernel now: later it would wait for a sum that waits for this part.
            gpu.make_current()?;
            PreparedLaunch::new(gpu, &reduction.launch(part, lists, &[0]), plain)?;
        }
        Ok(reduction)
    }

    /// Returns a number of the first list of a part, to be written.
    pub fn number_mut(&mut self, part: usize, k: usize) -> Result<DeviceSliceMut<'_, T>> {
        self.parts[part].own.slice_mut(k..k + 1)
    }

    /// Queues clearing number `k` of a list of a part.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) from the driver.
    pub fn clear(&self, part: usize, list: usize, k: usize) -> Result<()> {
        let adder = &self.parts[part];
        let number = self.own_at(part, list) + (k * size_of::<T>()) as u64;
        adder.gpu.make_current()?;
        // SAFETY: each list has `MOST` numbers.
        let code =
            unsafe { cuda::cuMemsetD8Async(number, 0, size_of::<T>(), adder.gpu.queue.as_inner()) };
        check(code, "clearing a number")
    }

    /// Returns the address of a list of a part.
    pub fn own_at(&self, part: usize, list: usize) -> u64 {
        self.parts[part].own.address() + (list * MOST * size_of::<T>()) as u64
    }

    /// Queues the part's share of a sum on its stream: `lists` lists of `results.len()` numbers each,
    /// whose sums over all parts go to these addresses.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if the launch fails.
    ///
    /// # Safety
    /// At the addresses is a number each, on the part's GPU; these and `self` live until the streams of
    /// all parts have finished the sum.
    pub unsafe fn queue(&self, part: usize, lists: usize, results: &[u64]) -> Result<()> {
        debug_assert!(
            lists <= self.lists && results.len() <= MOST,
            "more numbers than were prepared"
        );
        let gpu = &self.parts[part].gpu;
        gpu.make_current()?;
        let launch = self.launch(part, lists, results);
        // SAFETY: memory of `self` and the results live by this function's own contract.
        unsafe { queue_launch::<T>(gpu, &launch, gpu.queue.as_inner()) }
    }

    /// Describes the launch of a part.
    fn launch(&self, part: usize, lists: usize, results: &[u64]) -> Launch {
        let adder = &self.parts[part];
        let plan = Plan {
            lists,
            part,
            parts: self.parts.len(),
            own: self.own_at(part, 0),
            there: [0, 1].map(|k: usize| adder.there[k].address()),
            arrived: adder.arrived.address(),
            state: adder.state.address(),
        };
        plan.launch(T::PRECISION, results)
    }

    /// Returns a part, and the part for which it waited too long, if there are such; waits for all
    /// queued work.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if a kernel faulted.
    pub fn waited_in_vain(&self) -> Result<Option<[usize; 2]>> {
        for (part, adder) in self.parts.iter().enumerate() {
            adder.gpu.make_current()?;
            let mut state = [0u64; STATE as usize];
            adder.state.read(bytemuck::cast_slice_mut(&mut state))?;
            if let Some(other) = state[FAULT_AT].checked_sub(1) {
                return Ok(Some([part, other as usize]));
            }
        }
        Ok(None)
    }
}

impl<T> Drop for Reduction<T> {
    fn drop(&mut self) {
        // Other GPUs may still write to slots and counters.
        self.parts.iter().for_each(|adder| settle(&adder.gpu.queue));
    }
}

/// Numbers and addresses of the sum of one part.
struct Plan {
    lists: usize,
    part: usize,
    parts: usize,
    own: u64,
    there: [u64; 2],
    arrived: u64,
    state: u64,
}

impl Plan {
    fn launch(&self, precision: Precision, results: &[u64]) -> Launch {
        let [slots_there, arrived_there] = self.there.map(Arg::U64);
        let mut args = vec![
            Arg::U32(results.len() as u32),
            Arg::U32(self.lists as u32),
            Arg::U64(self.own),
            Arg::U32(self.part as u32),
            Arg::U32(self.parts as u32),
            slots_there,
            arrived_there,
            Arg::U64(self.arrived),
            Arg::U64(self.state),
            Arg::U64(1_000_000_000 * LIMIT_S),
        ];
        args.extend((0..MOST).map(|k| Arg::U64(results.get(k).copied().unwrap_or(0))));
        let threads = u64::from(THREADS);
        Launch::over("reduce", format!("reduce_{precision}"), threads, THREADS, args)
    }
}

/// Returns the launch of a sum with invented addresses, for the check of signatures.
#[cfg(test)]
pub(super) fn launch(precision: Precision) -> Launch {
    let plan =
        Plan { lists: 1, part: 0, parts: 2, own: 8, there: [16, 24], arrived: 32, state: 40 };
    plan.launch(precision, &[48])
}
