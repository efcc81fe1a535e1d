//! A second stream that does a part of the work of a stream.

use cust::context::CurrentContext;
use cust::stream::{Stream, StreamFlags};
use cust::sys as cuda;

use super::{check, failed};
use crate::error::Result;

/// A second stream, whose blocks become resident before those of other streams, and the events by
/// which it follows and joins the first one.
pub(super) struct Fork {
    side: Stream,
    begun: Event,
    ended: Event,
}

impl Fork {
    /// Opens the second stream in the current context.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) from the driver.
    pub fn new() -> Result<Self> {
        let priorities = CurrentContext::get_stream_priority_range();
        let greatest = priorities.map_err(failed("asking for priorities of streams"))?.greatest;
        let side = Stream::new(StreamFlags::NON_BLOCKING, Some(greatest));
        Ok(Fork {
            side: side.map_err(failed("making a stream"))?,
            begun: Event::new()?,
            ended: Event::new()?,
        })
    }

    /// Returns the second stream.
    pub fn side(&self) -> cuda::CUstream {
        self.side.as_inner()
    }

    /// Queues `beside` on the second stream and `work` on `stream`, at the same time: both after the
    /// work that is queued on `stream`, and before all that follows there. Works in a capture of
    /// `stream`, too.
    ///
    /// # Errors
    /// Errors of `beside` and `work`; [`Error::Device`](crate::Error::Device) from the driver.
    pub fn run(
        &self,
        stream: cuda::CUstream,
        beside: impl FnOnce(cuda::CUstream) -> Result<()>,
        work: impl FnOnce(cuda::CUstream) -> Result<()>,
    ) -> Result<()> {
        let side = self.side.as_inner();
        follow(side, stream, &self.begun)?;
        let queued = beside(side).and_then(|()| work(stream));
        // A capture can only end after the streams have joined.
        follow(stream, side, &self.ended)?;
        queued
    }
}

/// Lets the later work of `stream` wait for the work that is queued on `other`.
fn follow(stream: cuda::CUstream, other: cuda::CUstream, event: &Event) -> Result<()> {
    // SAFETY: streams and event exist and belong to the current context.
    unsafe {
        check(cuda::cuEventRecord(event.0, other), "recording an event")?;
        check(cuda::cuStreamWaitEvent(stream, event.0, 0), "waiting for another stream")
    }
}

/// An event without times, for streams that are known by their handles; events of `cust` take only
/// its own streams.
struct Event(cuda::CUevent);

// SAFETY: any thread may use an event.
unsafe impl Send for Event {}
// SAFETY: as above; the driver guards its own state.
unsafe impl Sync for Event {}

impl Event {
    fn new() -> Result<Self> {
        let mut event = std::ptr::null_mut();
        let flags = cuda::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING as u32;
        // SAFETY: the driver writes one event.
        check(unsafe { cuda::cuEventCreate(&mut event, flags) }, "making an event")?;
        Ok(Event(event))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the driver made the event, and it is destroyed once; work that refers to it goes
        // on.
        unsafe { cuda::cuEventDestroy_v2(self.0) };
    }
}
