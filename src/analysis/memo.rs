//! A cache of computed answers, shared by all modules.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

/// The key of a cached answer; each key type is one kind of question.
pub trait Probe: Clone + Eq + Hash + Send + 'static {
    /// Type of the answer; must be cheap to clone.
    type Answer: Clone + Send + 'static;
}

/// Declares probe types: `Name(key types) -> answer type;`, each with a doc comment.
macro_rules! probes {
    ($($(#[$doc:meta])* $name:ident($($key:ty),*) -> $answer:ty;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, PartialEq, Eq, Hash)]
            struct $name($($key),*);

            impl crate::analysis::Probe for $name {
                type Answer = $answer;
            }
        )*
    };
}
pub(crate) use probes;

/// Cached answers to probes, by the probe's type and then by its value.
#[derive(Default)]
pub struct Memo {
    answers: Mutex<HashMap<TypeId, Box<dyn Any + Send>>>,
}

impl std::fmt::Debug for Memo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memo").finish_non_exhaustive()
    }
}

impl Memo {
    /// Returns the cached answer to `probe`, or computes it with `compute` and caches it.
    ///
    /// No lock is held while `compute` runs, because it may run in parallel and its thread may
    /// meanwhile take other work that queries this memo. Two threads may compute the same answer;
    /// the first one is kept.
    pub fn get<P: Probe>(&self, probe: P, compute: impl FnOnce() -> P::Answer) -> P::Answer {
        if let Some(known) =
            self.with(|answers: &mut HashMap<P, P::Answer>| answers.get(&probe).cloned())
        {
            return known;
        }
        let answer = compute();
        self.with(|answers: &mut HashMap<P, P::Answer>| {
            answers.entry(probe).or_insert(answer).clone()
        })
    }

    /// Calls `act` on the map of all cached answers to this type of probe.
    fn with<P: Probe, R>(&self, act: impl FnOnce(&mut HashMap<P, P::Answer>) -> R) -> R {
        let mut all = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let answers = all
            .entry(TypeId::of::<P>())
            .or_insert_with(|| Box::new(HashMap::<P, P::Answer>::new()));
        let answers = answers.downcast_mut().expect("the map of a probe's type holds its answers");
        act(answers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    probes! {
        /// The square of a number.
        Square(u32) -> u64;
        /// The cube of a number.
        Cube(u32) -> u64;
    }

    #[test]
    fn an_answer_is_computed_once_for_each_probe() {
        let memo = Memo::default();
        assert_eq!(memo.get(Square(3), || 9), 9);
        assert_eq!(memo.get(Square(3), || unreachable!("it is kept")), 9);
        assert_eq!(memo.get(Square(4), || 16), 16);
        assert_eq!(memo.get(Cube(3), || 27), 27, "another type of probe has answers of its own");
    }

    #[test]
    fn a_probe_may_ask_the_memo_that_keeps_it() {
        let memo = Memo::default();
        let cube = memo.get(Cube(2), || 2 * memo.get(Square(2), || 4));
        assert_eq!((cube, memo.get(Square(2), || 0)), (8, 4));
    }
}
