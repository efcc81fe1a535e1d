//! CUDA graphs: work that is queued once and launched many times, without the cost of queueing.

use std::ptr::null_mut;
use std::sync::Arc;

use cust::stream::{Stream, StreamFlags};
use cust::sys as cuda;

use super::memory::Queue;
use super::{Gpu, check, failed};
use crate::error::Result;

/// Work captured from a stream, ready to launch.
pub struct Graph {
    graph: cuda::CUgraph,
    ready: cuda::CUgraphExec,
    /// What it lives in.
    queue: Arc<Queue>,
}

impl std::fmt::Debug for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Graph")
    }
}

impl Graph {
    /// Captures what `work` queues on the stream that it is handed, which is the capture's alone:
    /// other threads go on with the GPU meanwhile.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) where the work cannot be captured.
    pub fn capture(gpu: &Gpu, work: impl FnOnce(cuda::CUstream) -> Result<()>) -> Result<Self> {
        gpu.make_current()?;
        let own =
            Stream::new(StreamFlags::NON_BLOCKING, None).map_err(failed("making a stream"))?;
        let stream = own.as_inner();
        let mode = cuda::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        let mut captured =
            Graph { graph: null_mut(), ready: null_mut(), queue: Arc::clone(&gpu.queue) };
        // SAFETY: the stream was made above; begin and end come in pairs, whatever `work` says.
        let (queued, ended) = unsafe {
            check(cuda::cuStreamBeginCapture_v2(stream, mode), "beginning a capture")?;
            let queued = work(stream);
            (queued, cuda::cuStreamEndCapture(stream, &mut captured.graph))
        };
        queued?;
        check(ended, "ending a capture")?;
        // SAFETY: the graph was captured just now.
        let code =
            unsafe { cuda::cuGraphInstantiateWithFlags(&mut captured.ready, captured.graph, 0) };
        check(code, "making a graph ready")?;
        Ok(captured)
    }

    /// Queues the captured work on the GPU's stream.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) where the launch fails.
    ///
    /// # Safety
    /// All addresses that the captured work uses are still valid.
    pub unsafe fn launch(&self, gpu: &Gpu) -> Result<()> {
        gpu.make_current()?;
        // SAFETY: the graph is ready; what it uses is valid by the caller's contract.
        check(unsafe { cuda::cuGraphLaunch(self.ready, gpu.stream().as_inner()) }, "launching")
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.queue.make_current().is_err() {
            return;
        }
        // SAFETY: each was made by the driver and is destroyed once; null was never made.
        unsafe {
            if !self.ready.is_null() {
                cuda::cuGraphExecDestroy(self.ready);
            }
            if !self.graph.is_null() {
                cuda::cuGraphDestroy(self.graph);
            }
        }
    }
}
