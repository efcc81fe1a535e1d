//! CUDA graphs: work that is recorded once and launched many times without the cost of queueing it.

use std::ptr::null_mut;
use std::sync::Arc;

use cust::stream::{Stream, StreamFlags};
use cust::sys as cuda;

use super::memory::Queue;
use super::{Gpu, check, failed};
use crate::error::Result;

/// Work captured from a stream, ready to launch.
///
/// ```no_run
/// use ellect::cuda::Graph;
/// use ellect::{Csr, Tuner, Workload};
///
/// # fn main() -> ellect::Result<()> {
/// let tuner = Tuner::open("cuda:0")?;
/// let csr = Csr::from_triplets(2, 2, [(0, 0, 4.0), (1, 1, 5.0)])?;
/// let operator = tuner.prepare(&csr, &Workload::default())?;
/// let a = operator.on_device().expect("prepared on a GPU");
/// let (x, y) = (a.gpu().vector(&[1.0, 2.0])?, a.gpu().zeros::<f64>(2)?);
/// let (x_at, y_at) = (x.address(), y.address());
/// let graph = Graph::capture(a.gpu(), |stream| {
///     // SAFETY: x and y have two elements on this GPU and outlive the graph's launches.
///     unsafe { a.operator().apply_raw(1.0, x_at, 0.0, y_at, stream) }
/// })?;
/// // SAFETY: operator and vectors still exist.
/// unsafe { graph.launch(a.gpu())? };
/// # Ok(())
/// # }
/// ```
pub struct Graph {
    graph: cuda::CUgraph,
    ready: cuda::CUgraphExec,
    /// Keeps the context of the graph alive.
    queue: Arc<Queue>,
}

// SAFETY: any thread may use the driver's objects, one at a time, which the missing `Sync` ensures.
unsafe impl Send for Graph {}

impl std::fmt::Debug for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Graph")
    }
}

impl Graph {
    /// Captures the work that `work` queues on the stream passed to it.
    ///
    /// Only the capture uses this stream, so other threads can use the GPU meanwhile.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if the work cannot be captured.
    pub fn capture(gpu: &Gpu, work: impl FnOnce(cuda::CUstream) -> Result<()>) -> Result<Self> {
        gpu.make_current()?;
        let own =
            Stream::new(StreamFlags::NON_BLOCKING, None).map_err(failed("making a stream"))?;
        Self::capture_from(gpu, own.as_inner(), work)
    }

    /// Captures the work that `work` queues on `stream`, which nothing else uses meanwhile; kernels
    /// keep its priority. The GPU's context is current.
    pub(super) fn capture_from(
        gpu: &Gpu,
        stream: cuda::CUstream,
        work: impl FnOnce(cuda::CUstream) -> Result<()>,
    ) -> Result<Self> {
        let capture = Capture::begin(gpu, stream)?;
        work(stream)?;
        capture.end()?.ready()
    }

    /// Queues the captured work on the GPU's stream.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if the launch fails.
    ///
    /// # Safety
    /// All addresses that the captured work uses must still be valid.
    pub unsafe fn launch(&self, gpu: &Gpu) -> Result<()> {
        gpu.make_current()?;
        // SAFETY: by this function's own contract.
        unsafe { self.launch_on(gpu.stream().as_inner()) }
    }

    /// Queues the captured work on `stream`; the GPU's context is current.
    ///
    /// # Safety
    /// As for [`Graph::launch`].
    pub(super) unsafe fn launch_on(&self, stream: cuda::CUstream) -> Result<()> {
        // SAFETY: the graph is instantiated; the addresses it uses are valid by the caller's
        // contract.
        check(unsafe { cuda::cuGraphLaunch(self.ready, stream) }, "launching")
    }
}

/// A capture of a stream that has begun. Dropping it ends the capture.
pub(super) struct Capture<'a> {
    gpu: &'a Gpu,
    stream: cuda::CUstream,
    has_ended: bool,
}

/// Captured work that cannot be launched yet.
pub(super) struct Captured(Graph, cuda::CUstream);

impl<'a> Capture<'a> {
    /// Begins to capture a stream of this GPU, whose context is current.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) from the driver.
    pub fn begin(gpu: &'a Gpu, stream: cuda::CUstream) -> Result<Self> {
        let mode = cuda::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream exists; the end of the capture follows in any case.
        check(unsafe { cuda::cuStreamBeginCapture_v2(stream, mode) }, "beginning a capture")?;
        Ok(Capture { gpu, stream, has_ended: false })
    }

    /// Ends the capture.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if the work cannot be captured.
    pub fn end(mut self) -> Result<Captured> {
        self.has_ended = true;
        self.gpu.make_current()?;
        let queue = Arc::clone(&self.gpu.queue);
        let mut captured = Graph { graph: null_mut(), ready: null_mut(), queue };
        // SAFETY: the capture of this stream has begun, and ends once.
        let code = unsafe { cuda::cuStreamEndCapture(self.stream, &mut captured.graph) };
        check(code, "ending a capture")?;
        Ok(Captured(captured, self.stream))
    }
}

impl Captured {
    /// Makes the work ready to launch. No capture is under way on this thread.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) from the driver.
    pub fn ready(self) -> Result<Graph> {
        let Captured(mut captured, stream) = self;
        captured.queue.make_current()?;
        // SAFETY: the graph has just been captured.
        let code =
            unsafe { cuda::cuGraphInstantiateWithFlags(&mut captured.ready, captured.graph, 0) };
        check(code, "making a graph ready")?;
        // SAFETY: as above. Without this, the first launch would copy the graph to the GPU.
        check(unsafe { cuda::cuGraphUpload(captured.ready, stream) }, "uploading a graph")?;
        Ok(captured)
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        if self.has_ended || self.gpu.make_current().is_err() {
            return;
        }
        let mut graph = null_mut();
        // SAFETY: the capture of this stream has begun, and ends once; the driver made the graph, which
        // is null if the capture failed.
        unsafe {
            cuda::cuStreamEndCapture(self.stream, &mut graph);
            if !graph.is_null() {
                cuda::cuGraphDestroy(graph);
            }
        }
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.queue.make_current().is_err() {
            return;
        }
        // SAFETY: the driver created each object, and each is destroyed once; null objects do not
        // exist.
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
