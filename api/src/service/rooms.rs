//! Buffers for large bodies. The pages of a new one take longer than the hash of the body, so that
//! the last one is kept for a short time, for the body that comes next.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use memmap2::MmapMut;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A buffer that nobody uses, with its part of the memory.
struct Kept {
    map: MmapMut,
    /// Number of bytes whose pages the buffer has.
    paged: usize,
    /// Number of buffers that were kept before it.
    number: u64,
    _permit: OwnedSemaphorePermit,
}

/// The buffer that is kept, at most one.
pub struct Rooms {
    /// One permit for each KiB of memory.
    free: Arc<Semaphore>,
    /// Time for which a buffer that nobody uses is kept.
    time: Duration,
    /// Number of buffers that were kept so far, and the one that is.
    kept: Mutex<(u64, Option<Kept>)>,
}

impl Rooms {
    /// Keeps buffers for this time in the memory that these permits stand for, one for each KiB.
    pub fn new(free: Arc<Semaphore>, time: Duration) -> Arc<Self> {
        Arc::new(Rooms { free, time, kept: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, (u64, Option<Kept>)> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the kept buffer and its memory back; returns false if there is none.
    pub fn clear(&self) -> bool {
        self.lock().1.take().is_some()
    }

    /// Returns a buffer of at least this number of bytes, for which memory is reserved; `None` if the
    /// system gives none. A kept one holds bytes of an earlier body.
    pub fn take(self: &Arc<Self>, bytes: u64) -> Option<Room> {
        let bytes = usize::try_from(bytes).ok()?;
        let kept = self.lock().1.take();
        let (map, paged) = match kept.filter(|kept| kept.map.len() >= bytes) {
            Some(kept) => (kept.map, kept.paged),
            None => (MmapMut::map_anon(bytes).ok()?, 0),
        };
        Some(Room { map: Some(map), paged, rooms: Arc::clone(self) })
    }

    /// Keeps a buffer for the next body, if its memory is free.
    fn keep(self: &Arc<Self>, map: MmapMut, paged: usize) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let Ok(kib) = u32::try_from(map.len().div_ceil(1 << 10)) else { return };
        self.clear();
        let Ok(permit) = Arc::clone(&self.free).try_acquire_many_owned(kib) else { return };
        let mut kept = self.lock();
        kept.0 += 1;
        let number = kept.0;
        kept.1 = Some(Kept { map, paged, number, _permit: permit });
        drop(kept);
        let rooms = Arc::clone(self);
        runtime.spawn(async move {
            tokio::time::sleep(rooms.time).await;
            rooms.lock().1.take_if(|kept| kept.number == number);
        });
    }
}

/// A buffer for one body.
pub struct Room {
    map: Option<MmapMut>,
    /// Number of bytes whose pages were asked for.
    paged: usize,
    rooms: Arc<Rooms>,
}

/// Number of bytes whose pages are asked for at once.
const PAGES: usize = 4 << 20;

impl Room {
    /// Writes bytes from place `start` on; returns `None`, and writes nothing, if they do not fit.
    ///
    /// Pages of a new buffer are asked for many at once, which takes less time than a fault for each.
    pub fn write(&mut self, start: usize, bytes: &[u8]) -> Option<()> {
        let map = self.map.as_mut()?;
        let end = start.checked_add(bytes.len()).filter(|&end| end <= map.len())?;
        while self.paged < end {
            let len = PAGES.min(map.len() - self.paged);
            #[cfg(target_os = "linux")]
            let _ = map.advise_range(memmap2::Advice::PopulateWrite, self.paged, len);
            self.paged += len;
        }
        map[start..end].copy_from_slice(bytes);
        Some(())
    }
}

impl AsRef<[u8]> for Room {
    fn as_ref(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }
}

impl AsMut<[u8]> for Room {
    fn as_mut(&mut self) -> &mut [u8] {
        self.map.as_deref_mut().unwrap_or_default()
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some(map) = self.map.take() {
            self.rooms.keep(map, self.paged);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_buffer_is_kept_for_the_next_body_and_then_given_back() {
        let free = Arc::new(Semaphore::new(100));
        let time = Duration::from_millis(500);
        let rooms = Rooms::new(Arc::clone(&free), time);
        let mut room = rooms.take(50 << 10).expect("memory");
        room.as_mut()[7] = 1;
        drop(room);
        assert_eq!(free.available_permits(), 50);
        let again = rooms.take(40 << 10).expect("memory");
        assert_eq!((again.as_ref().len(), again.as_ref()[7]), (50 << 10, 1), "the same one");
        assert_eq!(free.available_permits(), 100);
        drop(again);
        let larger = rooms.take(60 << 10).expect("memory");
        assert_eq!((larger.as_ref().len(), larger.as_ref()[7]), (60 << 10, 0));
        let reserved = Arc::clone(&free).try_acquire_many_owned(90).expect("memory");
        drop(larger);
        assert_eq!(free.available_permits(), 10, "not kept where the memory is in use");
        drop(reserved);
        drop(rooms.take(60 << 10));
        assert_eq!(free.available_permits(), 40);
        tokio::time::sleep(3 * time).await;
        assert_eq!(free.available_permits(), 100);
    }
}
