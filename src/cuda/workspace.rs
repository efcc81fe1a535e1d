//! Memory for small temporaries of conversions on a GPU.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use cust::memory::LockedBuffer;

use super::failed;
use super::memory::{ALIGNMENT, Memory, Queue};
use crate::error::Result;
use crate::format::TOLD;

/// Memory for small temporaries that the GPU keeps for the next conversion, because allocating,
/// clearing and freeing take time.
///
/// Its first part holds zeros. Each conversion uses [`ZEROS`] bytes of it, which begin with
/// [`COUNTERS`] 32-bit counters; the first two counters form a 64-bit sum.
pub(super) struct Workspace {
    pub memory: Memory,
    /// Page-locked memory of the host to which kernels write counters, and then a mark with the
    /// numbers that it announces.
    pub host: LockedBuffer<u32>,
    /// The last mark that a kernel was to write.
    pub mark: u32,
    /// Offset of the zeros for the current conversion.
    zeros: u64,
}

/// Maximum number of counters of a conversion, including the two of its sum.
pub(super) const COUNTERS: usize = 256;

/// Size of the workspace, in bytes.
pub(super) const WORKSPACE: u64 = 8 << 20;

/// Size of the part of the workspace that is cleared at once, from its start, in bytes.
pub(super) const CLEARED: u64 = 1 << 20;

/// Zeroed bytes of the workspace for one conversion.
pub(super) const ZEROS: u64 = 16 << 10;

/// Bytes of [`ZEROS`] that the counters occupy.
pub(super) const COUNTER_BYTES: u64 = (4 * COUNTERS as u64).next_multiple_of(ALIGNMENT);

impl Workspace {
    pub fn new(queue: &Arc<Queue>) -> Result<Self> {
        let memory = Memory::new(WORKSPACE, queue)?;
        memory.clear(CLEARED as usize)?;
        let host = LockedBuffer::new(&0, COUNTERS + 1 + TOLD);
        let host = host.map_err(failed("taking page-locked memory"))?;
        Ok(Workspace { memory, host, mark: 0, zeros: 0 })
    }

    /// Prepares the workspace for the next conversion, which is queued after this one.
    pub fn next(self) -> Result<Self> {
        let zeros = (self.zeros + ZEROS) % CLEARED;
        if zeros == 0 {
            self.memory.clear(CLEARED as usize)?;
        }
        Ok(Workspace { zeros, ..self })
    }

    /// Returns the address of the counters.
    pub fn counters(&self) -> u64 {
        self.memory.address() + self.zeros
    }

    /// Returns the numbers that follow the current mark, if a kernel has written it.
    pub fn told(&self) -> Option<[u32; TOLD]> {
        let told = &self.host[COUNTERS..];
        // SAFETY: the buffer holds the mark; a kernel may write it at any time.
        let mark = unsafe { (&raw const told[0]).read_volatile() };
        if mark != self.mark {
            return None;
        }
        // The kernel wrote the numbers before the mark.
        fence(Ordering::Acquire);
        // SAFETY: the buffer holds the numbers; no kernel writes them after the mark.
        Some(std::array::from_fn(|k| unsafe { (&raw const told[1 + k]).read_volatile() }))
    }
}
