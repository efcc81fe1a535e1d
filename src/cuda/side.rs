//! A second stream of an open GPU: conversions run on it while products run on the first.
//!
//! A [`Gpu`] has one stream, with a workspace and counters for one order of work. The GPU beside it
//! ([`Gpu::beside`]) has its own, in the same context and with the same loaded kernels. A stream
//! waits for work of another one by a [`Mark`], without the host. An operator that was made on the
//! second stream is handed over to the first
//! ([`GpuOperator::move_to`](super::GpuOperator::move_to)).

use std::sync::{Arc, PoisonError};

use cust::event::{Event, EventFlags};
use cust::stream::StreamWaitEventFlags;

use super::{Gpu, failed};
use crate::error::Result;

/// A point in the work of a stream, for which another stream can wait.
pub(crate) struct Mark(Event);

impl Gpu {
    /// Returns the same GPU with a second stream, which the first call opens.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) from the driver.
    pub(crate) fn beside(&self) -> Result<Arc<Gpu>> {
        let mut side = self.side.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(side) = side.as_ref() {
            return Ok(Arc::clone(side));
        }
        let shared = Arc::clone(&self.shared);
        let opened = Gpu::with_stream(self.index, self.profile.clone(), shared)?;
        Ok(Arc::clone(side.insert(Arc::new(opened))))
    }

    /// Marks the end of the work that is queued on the stream so far; does not wait.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) from the driver.
    pub(crate) fn mark(&self) -> Result<Mark> {
        self.make_current()?;
        let event = Event::new(EventFlags::DISABLE_TIMING).map_err(failed("making an event"))?;
        event.record(&self.queue).map_err(failed("recording an event"))?;
        Ok(Mark(event))
    }

    /// Lets all later work on this stream wait for the work before `mark`; the host does not wait.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) from the driver.
    pub(crate) fn wait_for(&self, mark: Mark) -> Result<()> {
        self.make_current()?;
        let waits = self.queue.wait_event(mark.0, StreamWaitEventFlags::DEFAULT);
        waits.map_err(failed("waiting for another stream"))
    }
}
