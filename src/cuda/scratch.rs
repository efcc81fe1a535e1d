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
    /// Uses memory for the scratch buffers and then for `counters` bytes of counters.
    pub fn of(mut all: Vec<Memory>, counters: u64) -> Self {
        if counters == 0 {
            all.pop();
        }
        let counters = all.last().filter(|_| counters > 0).map_or(0, Memory::address);
        ScratchMemory { all, counters }
    }

    /// Returns the address of the counters, 0 if there are none.
    pub fn counters(&self) -> cuda::CUdeviceptr {
        self.counters
    }

    /// Tells whether this memory is enough for buffers of these sizes, and for these bytes of counters.
    pub fn suffices(&self, scratch: &[u64], counters: u64) -> bool {
        let wanted = scratch.iter().copied().chain((counters > 0).then_some(counters));
        let bytes: Vec<_> = wanted.collect();
        bytes.len() == self.all.len()
            && self.all.iter().zip(bytes).all(|(memory, bytes)| memory.bytes() >= bytes)
    }

    /// Allocates buffers of these sizes, and counters of `counters` bytes.
    pub fn new(gpu: &Gpu, scratch: &[u64], counters: u64) -> Result<Self> {
        let all = scratch.iter().map(|&bytes| Memory::new(bytes, &gpu.queue));
        let mut all = all.collect::<Result<Vec<_>>>()?;
        if counters > 0 {
            all.push(Memory::zeros(counters, &gpu.queue)?);
        }
        let counters = all.last().filter(|_| counters > 0).map_or(0, Memory::address);
        Ok(ScratchMemory { all, counters })
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
