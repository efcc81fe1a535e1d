//! The memory that requests may take together.

use std::sync::Arc;
use std::time::Duration;

use ellect::units;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::failure::{Failure, LIMIT, MEMORY};
use super::rooms::Rooms;

/// Time that a request waits for memory before it is refused.
const PATIENCE: Duration = Duration::from_secs(20);

/// Time for which the buffer of a large body is kept for the next one.
const KEPT: Duration = Duration::from_secs(10);

/// Share of the budget for bodies that are held in memory. They have their own share, so that
/// bodies never wait for matrices while matrices wait for bodies.
const OF_BODIES: f64 = 0.25;

/// Memory that requests reserve before they take it.
pub struct Budget {
    /// For bodies that are held in memory.
    pub bodies: Share,
    /// For matrices and what is computed from them.
    pub matrices: Share,
}

impl Budget {
    /// Divides this number of bytes.
    pub fn new(bytes: u64) -> Self {
        let bodies = (bytes as f64 * OF_BODIES) as u64;
        Budget { bodies: Share::new(bodies), matrices: Share::new(bytes - bodies) }
    }
}

/// A part of the budget.
pub struct Share {
    /// One permit for each KiB.
    free: Arc<Semaphore>,
    kib: u32,
    /// Time that a request waits.
    patience: Duration,
    /// A buffer that is kept gives way to requests.
    rooms: Arc<Rooms>,
}

/// Memory that a request has reserved; it is returned when this is dropped.
#[derive(Debug)]
pub struct Reserved(OwnedSemaphorePermit);

impl Reserved {
    /// Adds another reservation of the same share to this one.
    pub fn add(&mut self, other: Reserved) {
        self.0.merge(other.0);
    }
}

impl Share {
    fn new(bytes: u64) -> Self {
        let kib = u32::try_from(bytes >> 10).unwrap_or(u32::MAX).max(1);
        let most = u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX);
        let kib = kib.min(most);
        let free = Arc::new(Semaphore::new(kib as usize));
        let rooms = Rooms::new(Arc::clone(&free), KEPT);
        Share { free, kib, patience: PATIENCE, rooms }
    }

    /// Returns the buffers for large bodies in this memory.
    pub fn rooms(&self) -> &Arc<Rooms> {
        &self.rooms
    }

    /// Returns the bytes of the share.
    pub fn bytes(&self) -> u64 {
        u64::from(self.kib) << 10
    }

    /// Returns the bytes that are reserved now.
    pub fn reserved(&self) -> u64 {
        self.bytes() - ((self.free.available_permits() as u64) << 10)
    }

    /// Reserves memory if it is free now.
    pub fn try_reserve(&self, bytes: u64) -> Option<Reserved> {
        let kib = u32::try_from(bytes.div_ceil(1 << 10)).ok()?;
        let reserve = || Arc::clone(&self.free).try_acquire_many_owned(kib).ok();
        reserve().or_else(|| self.rooms.clear().then(reserve).flatten()).map(Reserved)
    }

    /// Reserves memory; waits until other requests have returned enough of it.
    ///
    /// # Errors
    /// 413 if it is more than the whole share, 429 if it is not free in time.
    pub async fn reserve(&self, bytes: u64) -> Result<Reserved, Failure> {
        let kib = u32::try_from(bytes.div_ceil(1 << 10)).ok().filter(|&kib| kib <= self.kib);
        let Some(kib) = kib else {
            let (needed, limit) = (units::bytes(bytes), units::bytes(self.bytes()));
            let stated = format!(
                "this matrix needs about {needed} of memory, and this service has {limit} for all \
                 matrices (memory); send a smaller matrix, or ask its operator to raise the limit"
            );
            let detail = json!({"got": bytes, "limit": self.bytes(), "setting": "memory"});
            return Err(Failure::new(&LIMIT, stated).with_detail(detail));
        };
        if self.free.available_permits() < kib as usize {
            self.rooms.clear();
        }
        let waited = Arc::clone(&self.free).acquire_many_owned(kib);
        match tokio::time::timeout(self.patience, waited).await {
            Ok(permit) => permit.map(Reserved).map_err(Failure::internal),
            Err(_) => {
                let stated = format!(
                    "this request needs {} of memory, which other requests held for {} s; try again \
                     later",
                    units::bytes(bytes),
                    self.patience.as_secs()
                );
                let detail = json!({"needed": bytes, "of": self.bytes()});
                Err(Failure::new(&MEMORY, stated).with_detail(detail))
            }
        }
    }
}

/// Checks that the system gives this number of bytes now, because a failed allocation would end the
/// service. A limit on the memory of the process may be lower than the budget.
///
/// # Errors
/// 429 if it does not.
pub fn check_given(bytes: u64) -> Result<(), Failure> {
    let mut room: Vec<u8> = Vec::new();
    let given = usize::try_from(bytes).is_ok_and(|bytes| room.try_reserve_exact(bytes).is_ok());
    std::hint::black_box(room);
    if given {
        return Ok(());
    }
    let stated = format!(
        "this request needs {} of memory, which the system does not give now; try again later",
        units::bytes(bytes)
    );
    Err(Failure::new(&MEMORY, stated).with_detail(json!({"needed": bytes})))
}

/// Returns the default budget: half of the memory that the machine or the control group of this
/// process has.
pub fn default_bytes() -> u64 {
    ellect::measure::memory_bytes() / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn memory_is_waited_for_and_too_much_of_it_is_refused() {
        let share = Share::new(1 << 20);
        let large = share.reserve((1 << 20) + 1).await.expect_err("more than there is");
        assert_eq!((large.code, &large.detail["setting"]), (&LIMIT, &json!("memory")));
        let mut first = share.reserve(1000 << 10).await.expect("it is free");
        first.add(share.try_reserve(20 << 10).expect("it is free"));
        assert_eq!(share.reserved(), 1020 << 10);
        assert!(share.try_reserve(5 << 10).is_none());
        let waiting = share.reserve(5 << 10);
        tokio::pin!(waiting);
        let early = tokio::time::timeout(Duration::from_millis(10), &mut waiting).await;
        assert!(early.is_err(), "nothing was returned yet");
        drop(first);
        assert!(waiting.await.is_ok());
    }

    #[test]
    fn memory_that_the_system_does_not_have_is_not_given() {
        assert!(check_given(1 << 20).is_ok());
        let failure = check_given(1 << 60).expect_err("no machine has it");
        assert_eq!((failure.code, &failure.detail["needed"]), (&MEMORY, &json!(1_u64 << 60)));
    }

    #[tokio::test]
    async fn a_request_that_waited_long_is_asked_to_come_back() {
        let share = Share { patience: Duration::from_millis(10), ..Share::new(1 << 20) };
        let _all = share.reserve(1 << 20).await.expect("it is free");
        let failure = share.reserve(1).await.expect_err("none is free");
        assert_eq!(failure.code, &MEMORY);
    }
}
