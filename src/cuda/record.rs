//! Work on several GPUs that is recorded once, as a CUDA graph for each GPU.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Graph;
use super::exchange::{PeerMemory, PeerVector};
use super::graph::Capture;
use super::part::Products;
use super::peers::{Peers, turn};
use crate::error::{Error, Result};
use crate::scalar::Scalar;

/// The vectors of the work that is being recorded, if any.
pub(super) struct Recording<T>(Mutex<Option<Vec<Arc<PeerMemory<T>>>>>);

impl<T> Default for Recording<T> {
    fn default() -> Self {
        Recording(Mutex::new(None))
    }
}

impl<T: Scalar> Recording<T> {
    fn vectors(&self) -> MutexGuard<'_, Option<Vec<Arc<PeerMemory<T>>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells whether work is being recorded.
    pub fn is_on(&self) -> bool {
        self.vectors().is_some()
    }

    /// Keeps the memory of vectors if work is being recorded.
    pub fn keep<'a>(&self, vectors: impl IntoIterator<Item = &'a PeerVector<T>>)
    where
        T: 'a,
    {
        if let Some(kept) = &mut *self.vectors() {
            kept.extend(vectors.into_iter().map(|vector| Arc::clone(vector.memory())));
        }
    }
}

/// Ends a recording when it is dropped, also after a fault.
struct End<'a, T: Scalar>(&'a Recording<T>);

impl<T: Scalar> Drop for End<'_, T> {
    fn drop(&mut self) {
        *self.0.vectors() = None;
    }
}

/// Recorded work: a graph for each GPU, and the memory that the graphs use.
pub(crate) struct PeerGraphs<'a, T> {
    peers: &'a Peers<T>,
    graphs: Mutex<Vec<Graph>>,
    _vectors: Vec<Arc<PeerMemory<T>>>,
}

impl<T: Scalar> Peers<T> {
    /// Records the work that `work` queues on the GPUs. It keeps the memory of all vectors and numbers
    /// that it uses.
    ///
    /// # Errors
    /// [`Error::Argument`] if work is already being recorded; errors of `work`;
    /// [`Error::Device`] if it waits, or if it cannot be captured for another reason.
    pub fn record(
        &self,
        products: &[Products<'_, T>],
        work: impl FnOnce() -> Result<()>,
    ) -> Result<PeerGraphs<'_, T>> {
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        self.load_dots(products, &mut sums)?;
        drop(sums);
        let mut vectors = self.recording.vectors();
        if vectors.is_some() {
            return Err(Error::argument(
                "work on these GPUs is being recorded already; record one thing after the other",
            ));
        }
        *vectors = Some(Vec::new());
        drop(vectors);
        let end = End(&self.recording);
        let graphs = Mutex::new(self.captured(work)?);
        let vectors = end.0.vectors().take().unwrap_or_default();
        Ok(PeerGraphs { peers: self, graphs, _vectors: vectors })
    }

    fn captured(&self, work: impl FnOnce() -> Result<()>) -> Result<Vec<Graph>> {
        let mut captures = Vec::with_capacity(self.gpus.len());
        for gpu in &self.gpus {
            gpu.make_current()?;
            captures.push(Capture::begin(gpu, gpu.queue.as_inner())?);
        }
        work()?;
        // A GPU is made ready only after all captures have ended, because the driver may wait then.
        let captured: Vec<_> = captures.into_iter().map(Capture::end).collect::<Result<_>>()?;
        captured.into_iter().map(|captured| captured.ready()).collect()
    }
}

impl<T: Scalar> PeerGraphs<'_, T> {
    /// Queues the recorded work on all GPUs; returns without waiting.
    ///
    /// # Errors
    /// [`Error::Device`] if a launch fails.
    pub fn launch(&self) -> Result<()> {
        let _turn = turn();
        let graphs = self.graphs.lock().unwrap_or_else(PoisonError::into_inner);
        for (gpu, graph) in self.peers.gpus.iter().zip(graphs.iter()) {
            // SAFETY: `self` keeps the vectors and borrows all else that the graph uses.
            unsafe { graph.launch(gpu)? };
        }
        Ok(())
    }
}
