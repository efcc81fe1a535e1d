//! Dividing work among threads, without locks; products also without allocation.
//!
//! Rayon runs the threads. Its parallel iterators are compiled anew for every closure, some 2,700
//! lines of intermediate code each, which took a third of the time to compile this library. The
//! functions here call closures through references, once for each part of the work, so that
//! rayon's code is compiled once.

mod team;

use std::ops::Range;
use std::sync::Mutex;

use self::team::Lent;
use crate::error::{Error, Result};

/// Returns bounds of parts of about equal weight: part `p` is `bounds[p]..bounds[p + 1]`.
///
/// `prefix` is a running sum (such as `row_ptr`) over `prefix.len() - 1` items. Every inner bound
/// is a multiple of `step`. There is one part per `grain_weight` units of weight, and at most four
/// per thread, so small work stays on the calling thread.
pub fn split(prefix: &[usize], step: usize, grain_weight: usize) -> Vec<usize> {
    let items = prefix.len().saturating_sub(1);
    let total = prefix.last().copied().unwrap_or(0) + items;
    let parts = (total / grain_weight.max(1)).clamp(1, 4 * rayon::current_num_threads());
    let mut bounds = vec![0];
    for part in 1..parts {
        let wanted = (total as u128 * part as u128 / parts as u128) as usize;
        // The weight of an item is its share of the prefix plus one, so that empty rows count.
        let at = partition_point(items, |i| prefix[i] + i < wanted);
        let at = (at / step * step).min(items);
        if at > *bounds.last().unwrap_or(&0) && at < items {
            bounds.push(at);
        }
    }
    bounds.push(items);
    bounds
}

/// Weight below which splitting costs more than it gains: about 20 us of work for one core.
pub const GRAIN: usize = 16_384;

/// Returns the first of `0..n` for which `before` is false, or `n`; `before` must be true up to
/// some index and false from there.
pub(crate) fn partition_point(n: usize, before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, n);
    while low < high {
        let middle = low + (high - low) / 2;
        if before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// Runs `work(part, &mut y[part])` for each part of `bounds` (see [`split`]), in parallel if there
/// are several.
///
/// # Panics
/// If `bounds` does not run from 0 to `y.len()`.
pub fn over_parts<T: Send>(
    bounds: &[usize],
    y: &mut [T],
    work: &(impl Fn(Range<usize>, &mut [T]) + Sync),
) {
    assert_eq!(bounds.last().copied(), Some(y.len()), "bounds do not cover the vector");
    assert!(bounds.is_sorted(), "bounds do not rise");
    let parts = bounds.len() - 1;
    let lent = Lent::new(y);
    #[expect(unsafe_code, reason = "threads write to parts of y")]
    let of_part = |part: usize| {
        let range = bounds[part]..bounds[part + 1];
        // SAFETY: bounds rise to the length of y, and each part is taken once.
        work(range.clone(), unsafe { lent.part(range.start, range.len()) });
    };
    if parts < 2 || !team::run(parts, &of_part) {
        run(bounds, y, &|range, y| work(range, y));
    }
}

fn run<T: Send>(
    bounds: &[usize],
    y: &mut [T],
    work: &(dyn Fn(Range<usize>, &mut [T]) + Sync + '_),
) {
    match bounds {
        [] | [_] => {}
        [start, end] => work(*start..*end, y),
        _ => {
            let middle = bounds.len() / 2;
            let (low, high) = y.split_at_mut(bounds[middle] - bounds[0]);
            join(|| run(&bounds[..=middle], low, work), || run(&bounds[middle..], high, work));
        }
    }
}

/// Calls both closures, in parallel if a thread is idle, and returns their results.
pub fn join<A: Send, B: Send>(
    a: impl FnOnce() -> A + Send,
    b: impl FnOnce() -> B + Send,
) -> (A, B) {
    let (mut a, mut b) = (Some(a), Some(b));
    let (mut of_a, mut of_b) = (None, None);
    join_erased(&mut || of_a = a.take().map(|a| a()), &mut || of_b = b.take().map(|b| b()));
    of_a.zip(of_b).expect("both closures were called")
}

fn join_erased(a: &mut (dyn FnMut() + Send + '_), b: &mut (dyn FnMut() + Send + '_)) {
    rayon::join(a, b);
}

/// Calls `work(i, &mut items[i])` for each item, in parallel. A thread takes at least `fewest`
/// items at a time.
pub(crate) fn for_each<T: Send>(
    items: &mut [T],
    fewest: usize,
    work: impl Fn(usize, &mut T) + Sync,
) {
    let most = items.len().div_ceil(16 * rayon::current_num_threads()).max(fewest);
    halve(items, 0, most, &|first, items| {
        for (i, item) in items.iter_mut().enumerate() {
            work(first + i, item);
        }
    });
}

/// Calls `work` with parts of `items`, of at most `most` items each, and with the position of the
/// first item of the part.
fn halve<T: Send>(
    items: &mut [T],
    first: usize,
    most: usize,
    work: &(dyn Fn(usize, &mut [T]) + Sync + '_),
) {
    if items.len() <= most {
        return work(first, items);
    }
    let middle = items.len() / 2;
    let (low, high) = items.split_at_mut(middle);
    join(|| halve(low, first, most, work), || halve(high, first + middle, most, work));
}

/// Returns `of(i)` for each `i` of `0..n`, computed in parallel. A thread computes at least
/// `fewest` results at a time.
pub(crate) fn map<R: Send + Default>(
    n: usize,
    fewest: usize,
    of: impl Fn(usize) -> R + Sync,
) -> Vec<R> {
    let mut results: Vec<R> = std::iter::repeat_with(R::default).take(n).collect();
    for_each(&mut results, fewest, |i, result| *result = of(i));
    results
}

/// Returns `of(range)` for ranges that cover `0..n` in order, computed in parallel: at most one
/// range for each thread, and of at least `fewest` numbers each.
pub(crate) fn map_ranges<R: Send>(
    n: usize,
    fewest: usize,
    of: impl Fn(Range<usize>) -> R + Sync,
) -> Vec<R> {
    map_parts(n, fewest, rayon::current_num_threads(), of)
}

/// Returns `of(range)` for at most `most` ranges; see [`map_ranges`].
fn map_parts<R: Send>(
    n: usize,
    fewest: usize,
    most: usize,
    of: impl Fn(Range<usize>) -> R + Sync,
) -> Vec<R> {
    let parts = (n / fewest.max(1)).clamp(1, most.max(1));
    let bound = |part: usize| (n as u128 * part as u128 / parts as u128) as usize;
    let mut results: Vec<Option<R>> = std::iter::repeat_with(|| None).take(parts).collect();
    for_each(&mut results, 1, |part, result| *result = Some(of(bound(part)..bound(part + 1))));
    results.into_iter().flatten().collect()
}

/// Combines `of(i)` of each `i` of `0..n` with `sum`, which is associative and for which `zero` is
/// neutral, in parallel. A thread computes at least `fewest` of them.
pub(crate) fn reduce<R: Send>(
    n: usize,
    fewest: usize,
    zero: impl Fn() -> R + Sync,
    of: impl Fn(usize) -> R + Sync,
    sum: impl Fn(R, R) -> R + Sync,
) -> R {
    // Several parts for each thread, so that no thread waits long for a slower one.
    let most = 8 * rayon::current_num_threads();
    let parts = map_parts(n, fewest, most, |range| range.map(&of).fold(zero(), &sum));
    parts.into_iter().fold(zero(), &sum)
}

/// Cuts `y` at `cuts`, which rise from 0 to `y.len()`: part `p` is `y[cuts[p]..cuts[p + 1]]`.
///
/// # Panics
/// If `cuts` falls or passes the end of `y`.
pub fn slices_mut<'a, T>(mut y: &'a mut [T], cuts: &[usize]) -> Vec<&'a mut [T]> {
    cuts.windows(2)
        .map(|cut| y.split_off_mut(..cut[1] - cut[0]).expect("cuts rise and end within y"))
        .collect()
}

/// Threads of their own for the parts of a work, one for each part, which wait between two works.
#[derive(Debug)]
pub(crate) struct PartThreads(rayon::ThreadPool);

impl PartThreads {
    /// Starts a thread for each of `parts` parts.
    ///
    /// # Errors
    /// [`Error::Argument`] if the system starts no more threads.
    pub fn of(parts: usize) -> Result<Self> {
        let threads = rayon::ThreadPoolBuilder::new().num_threads(parts.max(1));
        let threads = threads.thread_name(|part| format!("ellect part {part}")).build();
        threads.map(PartThreads).map_err(|error| {
            Error::argument(format!(
                "{parts} threads are needed, one for each part, and they did not start ({error}); \
                 raise the limit of threads"
            ))
        })
    }

    /// Calls `of_part` with the number of each part, on its thread, and `work` on this thread at the
    /// same time; returns when all are done.
    pub fn beside<R>(&self, of_part: &(dyn Fn(usize) + Sync), work: impl FnOnce() -> R) -> R {
        self.0.in_place_scope(|scope| {
            scope.spawn_broadcast(|_, context| of_part(context.index()));
            work()
        })
    }
}

/// A pool of buffers that products use while they run; buffers are kept between products.
///
/// Several products of one operator may run at once. Each takes a buffer of its own; the pool keeps
/// as many as were ever in use at the same time.
#[derive(Debug, Default)]
pub struct Scratch<T> {
    free: Mutex<Vec<Vec<T>>>,
}

/// A copy starts without buffers.
impl<T> Clone for Scratch<T> {
    fn clone(&self) -> Self {
        Scratch { free: Mutex::default() }
    }
}

impl<T: Copy + Default> Scratch<T> {
    /// Calls `f` with a buffer of `len` elements of arbitrary content.
    pub fn with<R>(&self, len: usize, f: impl FnOnce(&mut [T]) -> R) -> R {
        let lock = || self.free.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut buffer = lock().pop().unwrap_or_default();
        buffer.resize(len, T::default());
        let result = f(&mut buffer);
        lock().push(buffer);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_everything_and_respect_the_step() {
        let prefix: Vec<usize> = (0..=10_000).map(|i| i * 7).collect();
        let bounds = split(&prefix, 32, 1_000);
        assert_eq!((bounds[0], *bounds.last().expect("bounds")), (0, 10_000));
        assert!(bounds.windows(2).all(|w| w[0] < w[1] && w[0] % 32 == 0));
        let mut y = vec![0usize; 10_000];
        over_parts(&bounds, &mut y, &|range, y| {
            for (slot, i) in y.iter_mut().zip(range) {
                *slot += i + 1;
            }
        });
        assert!(y.iter().enumerate().all(|(i, &v)| v == i + 1));
    }

    #[test]
    fn nothing_to_split_is_one_part() {
        assert_eq!(split(&[0], 1, 1), [0, 0]);
        assert_eq!(split(&[0, 5], 32, 1), [0, 1]);
        over_parts(&[0, 0], &mut Vec::<f64>::new(), &|_, _| {});
    }
}
