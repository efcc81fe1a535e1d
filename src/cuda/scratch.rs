//! Memory that the launches of a product share.

use cust::sys as cuda;

use super::Gpu;
use super::launch::{ArgWord, PreparedLaunch};
use super::memory::Memory;
use crate::error::Result;
use crate::format::{Arg, Launch};

/// The memory that the launches of a product share.
pub(super) struct ScratchMemory {
    /// The scratch buffers, and then the counters, filled with zeros, if there are any.
    pub all: Vec<Memory>,
    /// Address of the counters.
    counters: cuda::CUdeviceptr,
}

impl ScratchMemory {
    /// Bytes of each part: the scratch buffers of these sizes, and then the counters, if there are any.
    pub fn parts(scratch: &[u64], counters: u64) -> impl Iterator<Item = u64> {
        scratch.iter().copied().chain((counters > 0).then_some(counters))
    }

    /// Allocates buffers of these sizes, and counters of `counters` bytes.
    pub fn new(gpu: &Gpu, scratch: &[u64], counters: u64) -> Result<Self> {
        let all = scratch.iter().map(|&bytes| Memory::new(bytes, &gpu.queue));
        let mut all = all.collect::<Result<Vec<_>>>()?;
        if counters > 0 {
            all.push(Memory::zeros(counters, &gpu.queue)?);
        }
        Ok(ScratchMemory::of(all, counters))
    }

    /// Uses memory for these [`ScratchMemory::parts`], of which a kernel clears the counters.
    pub fn of(all: Vec<Memory>, counters: u64) -> Self {
        let counters = all.last().filter(|_| counters > 0).map_or(0, Memory::address);
        ScratchMemory { all, counters }
    }

    /// Returns the address of the counters, 0 if there are none.
    pub fn counters(&self) -> cuda::CUdeviceptr {
        self.counters
    }

    /// Tells whether this memory is enough for buffers of these sizes, and for these bytes of counters.
    pub fn suffices(&self, scratch: &[u64], counters: u64) -> bool {
        let mut own = self.all.iter().map(Memory::bytes);
        ScratchMemory::parts(scratch, counters)
            .all(|bytes| own.next().is_some_and(|own| own >= bytes))
            && own.next().is_none()
    }

    /// Prepares the launches of a product.
    pub fn product(
        &self,
        gpu: &Gpu,
        launches: &[Launch],
        fixed: impl Fn(Arg) -> ArgWord,
    ) -> Result<Vec<PreparedLaunch>> {
        let steps = launches.iter().filter_map(|launch| {
            let step = PreparedLaunch::new(gpu, launch, |arg| match arg {
                Arg::Scratch(i) => ArgWord::Fixed(self.all[i].address()),
                Arg::Counters => ArgWord::Fixed(self.counters),
                other => fixed(other),
            });
            step.map(|step| step.map(|step| step.overlapping(gpu))).transpose()
        });
        steps.collect()
    }
}
