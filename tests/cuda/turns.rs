//! The turns of tests on a GPU: most share it, and one that times has it alone.

use std::cell::RefCell;
use std::sync::{Arc, Once, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use ellect::cuda::Gpu;

/// Shared by all tests that use a GPU, held alone by one that times.
static IN_USE: RwLock<()> = RwLock::new(());

thread_local! {
    /// The share of this thread's test.
    static SHARE: RefCell<Option<RwLockReadGuard<'static, ()>>> = const { RefCell::new(None) };
}

/// Waits until no other test uses a GPU, and keeps others waiting until the result is dropped. Opens
/// no GPU meanwhile.
pub fn alone() -> RwLockWriteGuard<'static, ()> {
    SHARE.take();
    IN_USE.write().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the first GPU; `None` if there is none, unless one is required.
pub fn gpu() -> Option<Arc<Gpu>> {
    SHARE.with_borrow_mut(|share| {
        share.get_or_insert_with(|| IN_USE.read().unwrap_or_else(PoisonError::into_inner));
    });
    // Streams that share a queue of the GPU wait for each other, so that two parts on one GPU may wait
    // in vain; there are 8 queues by default.
    static QUEUES: Once = Once::new();
    // SAFETY: no test has opened the driver, the only reader of this variable.
    QUEUES.call_once(|| unsafe { std::env::set_var("CUDA_DEVICE_MAX_CONNECTIONS", "32") });
    match Gpu::open(0) {
        Ok(gpu) => Some(Arc::new(gpu)),
        Err(error) => {
            assert!(std::env::var_os("REQUIRE_GPU").is_none(), "no GPU: {error}");
            println!("not run: {error}");
            None
        }
    }
}
