//! A team of threads that wait for the next product.
//!
//! A product of a small matrix takes some ten microseconds. Handing it to a pool whose threads sleep
//! takes as long. The calling thread is therefore a member of this team, and the other members stay
//! awake for [`AWAKE`] after a product, because a solver soon computes the next one. Each member
//! first takes the parts of its own block, whose arrays its caches may hold, then those that others
//! left.

#![allow(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, TryLockError};
use std::thread::Thread;
use std::time::{Duration, Instant};
use std::{hint, ptr, thread};

/// Time for which a member looks for work before it sleeps.
const AWAKE: Duration = Duration::from_micros(100);

/// Looks for work between two looks at the clock.
const LOOKS: u32 = 64;

/// Work on one part.
type Work<'a> = &'a (dyn Fn(usize) + Sync);

/// The parts of one member that nobody has taken yet, in a cache line of their own.
#[repr(align(64))]
#[derive(Default)]
struct Block {
    next: AtomicUsize,
    end: AtomicUsize,
}

/// The team; the thread that calls it is member 0.
struct Team {
    /// Held by the caller whose work is done.
    caller: Mutex<()>,
    blocks: Box<[Block]>,
    /// A [`Work`] on the caller's stack; null while there is none.
    open: AtomicPtr<()>,
    /// Number of times that work was opened.
    opened: AtomicU64,
    /// Members that may use `open`.
    active: AtomicUsize,
    /// Members that sleep, or are about to.
    asleep: AtomicUsize,
    panicked: AtomicBool,
    members: OnceLock<Vec<Thread>>,
}

/// Calls `work` once for each part of `0..parts`, on several threads. Returns false, without a call,
/// if the team has no other member, works for another thread, or is called by a thread of rayon,
/// which has threads of its own.
pub(super) fn run(parts: usize, work: Work<'_>) -> bool {
    if rayon::current_thread_index().is_some() {
        return false;
    }
    static TEAM: OnceLock<Option<&'static Team>> = OnceLock::new();
    match TEAM.get_or_init(|| Team::start(rayon::current_num_threads())) {
        Some(team) => team.run(parts, work),
        None => false,
    }
}

impl Team {
    /// Starts a team of `members`, the caller included; `None` if there is no other member.
    fn start(members: usize) -> Option<&'static Team> {
        if members < 2 {
            return None;
        }
        let team: &'static Team = Box::leak(Box::new(Team {
            caller: Mutex::new(()),
            blocks: (0..members).map(|_| Block::default()).collect(),
            open: AtomicPtr::new(ptr::null_mut()),
            opened: AtomicU64::new(0),
            active: AtomicUsize::new(0),
            asleep: AtomicUsize::new(0),
            panicked: AtomicBool::new(false),
            members: OnceLock::new(),
        }));
        let start = |own: usize| {
            let named = thread::Builder::new().name(format!("ellect-{own}"));
            named.spawn(move || team.serve(own)).ok()
        };
        let started: Vec<Thread> =
            (1..members).filter_map(start).map(|handle| handle.thread().clone()).collect();
        if started.is_empty() {
            return None;
        }
        team.members.set(started).ok()?;
        Some(team)
    }

    /// As [`run`].
    fn run(&self, parts: usize, work: Work<'_>) -> bool {
        let _caller = match self.caller.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => PoisonError::into_inner(poisoned),
            Err(TryLockError::WouldBlock) => return false,
        };
        let members = self.blocks.len();
        let bound = |member: usize| parts * member / members;
        for (member, block) in self.blocks.iter().enumerate() {
            block.next.store(bound(member), Ordering::Relaxed);
            block.end.store(bound(member + 1), Ordering::Relaxed);
        }
        // Dropped at the end, or if `work` panics: nobody uses it after this call.
        let closing = Closing(self);
        self.open.store(ptr::from_ref(&work).cast_mut().cast(), Ordering::SeqCst);
        self.opened.fetch_add(1, Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) > 0 {
            self.members.get().into_iter().flatten().for_each(Thread::unpark);
        }
        self.take(0, work);
        drop(closing);
        assert!(!self.panicked.swap(false, Ordering::SeqCst), "a thread of a product panicked");
        true
    }

    /// Works on the parts of a member's own block, then on those of the others.
    fn take(&self, own: usize, work: Work<'_>) {
        let members = self.blocks.len();
        for block in (0..members).map(|at| &self.blocks[(own + at) % members]) {
            loop {
                let part = block.next.fetch_add(1, Ordering::Relaxed);
                if part >= block.end.load(Ordering::Relaxed) {
                    break;
                }
                work(part);
            }
        }
    }

    /// Works for all callers, for ever.
    fn serve(&self, own: usize) {
        let mut seen = 0;
        loop {
            seen = self.wait(seen);
            self.active.fetch_add(1, Ordering::SeqCst);
            let open: *const Work<'_> = self.open.load(Ordering::SeqCst).cast_const().cast();
            // SAFETY: a caller opens a pointer to its own `Work`, closes it, and does not return
            // before no member is active. This member was active before it read the pointer, so the
            // caller waits for it.
            let work = unsafe { open.as_ref() };
            if let Some(work) = work
                && catch_unwind(AssertUnwindSafe(|| self.take(own, work))).is_err()
            {
                self.panicked.store(true, Ordering::SeqCst);
            }
            self.active.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Waits until work was opened more than `seen` times; returns the number of times.
    fn wait(&self, seen: u64) -> u64 {
        let began = Instant::now();
        while began.elapsed() < AWAKE {
            for _ in 0..LOOKS {
                let opened = self.opened.load(Ordering::SeqCst);
                if opened != seen {
                    return opened;
                }
                hint::spin_loop();
            }
        }
        self.asleep.fetch_add(1, Ordering::SeqCst);
        let opened = loop {
            let opened = self.opened.load(Ordering::SeqCst);
            if opened != seen {
                break opened;
            }
            thread::park();
        };
        self.asleep.fetch_sub(1, Ordering::SeqCst);
        opened
    }
}

/// Closes the work of a caller when dropped, and waits for the members that still work on it.
struct Closing<'a>(&'a Team);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.open.store(ptr::null_mut(), Ordering::SeqCst);
        let mut looks = 0;
        while self.0.active.load(Ordering::SeqCst) > 0 {
            looks += 1;
            // A member that lost its processor needs this one.
            if looks % LOOKS == 0 { thread::yield_now() } else { hint::spin_loop() }
        }
    }
}

/// A vector whose parts are lent to several threads.
pub(super) struct Lent<T>(*mut T);

// SAFETY: the pointer is only used through `part`, whose callers take each element once; elements
// may be sent to other threads.
unsafe impl<T: Send> Sync for Lent<T> {}

impl<T> Lent<T> {
    pub(super) fn new(y: &mut [T]) -> Self {
        Lent(y.as_mut_ptr())
    }

    /// Returns `len` elements from `start` on.
    ///
    /// # Safety
    /// The elements lie in the vector, which is borrowed for as long as the part is used, and no
    /// other part has one of them.
    #[expect(clippy::mut_from_ref, reason = "parts do not overlap")]
    pub(super) unsafe fn part(&self, start: usize, len: usize) -> &mut [T] {
        // SAFETY: by the conditions above.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(start), len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_is_taken_once() {
        let team = Team::start(4).expect("other members");
        for parts in [1, 2, 3, 4, 7, 64, 1000] {
            for _ in 0..200 {
                let taken: Vec<AtomicUsize> = (0..parts).map(|_| AtomicUsize::new(0)).collect();
                let work = |part: usize| _ = taken[part].fetch_add(1, Ordering::Relaxed);
                assert!(team.run(parts, &work));
                assert!(taken.iter().all(|count| count.load(Ordering::Relaxed) == 1), "{parts}");
            }
        }
    }

    #[test]
    fn members_wake_up_and_several_callers_are_told_apart() {
        let team = Team::start(3).expect("other members");
        thread::sleep(4 * AWAKE);
        let total = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let add = |part: usize| _ = total.fetch_add(part, Ordering::Relaxed);
                        if !team.run(10, &add) {
                            (0..10).for_each(add);
                        }
                    }
                });
            }
        });
        assert_eq!(total.load(Ordering::Relaxed), 4 * 500 * 45);
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_team_goes_on() {
        let team = Team::start(2).expect("other members");
        for bad in [0, 9] {
            let work = |part: usize| assert!(part != bad, "part {part}");
            assert!(catch_unwind(AssertUnwindSafe(|| team.run(10, &work))).is_err());
        }
        assert!(team.run(10, &|_| ()));
    }
}
