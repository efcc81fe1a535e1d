//! Products of parts in one process, whose vectors are in host memory, in the order of each mode.

use std::sync::{Mutex, PoisonError};

use super::mode::Mode;
use super::{Part, ShardedOperator, ShardedVector};
use crate::error::Result;
use crate::par::{self, PartThreads};
use crate::partition::Group;
use crate::scalar::Scalar;

/// The own elements of each part's y, and the success of its products.
type Products<'a, T> = Vec<(&'a mut [T], Result<()>)>;

impl<T: Scalar> ShardedOperator<T> {
    /// Computes y = alpha A x + beta y; with `beta = 0`, y is written and never read. Fills the
    /// halos of x, and leaves its own elements and the halos of y as they are.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) if a vector is divided in another way;
    /// [`Error::Device`](crate::Error::Device) from a GPU, in which case y is undefined.
    pub fn apply_sharded(
        &self,
        alpha: T,
        x: &mut ShardedVector<T>,
        beta: T,
        y: &mut ShardedVector<T>,
    ) -> Result<()> {
        self.check_vectors(x, y)?;
        let mut products: Products<'_, T> =
            y.all_own_mut().into_iter().map(|y| (y, Ok(()))).collect();
        let own = |products: &mut Products<'_, T>, x: &ShardedVector<T>| {
            self.multiply(|group| !group.adds(), (alpha, x), beta, products);
        };
        match (&self.threads, self.choice.mode) {
            (Some(threads), _) => {
                let arrived = self.while_exchanged(threads, x, || own(&mut products, x));
                self.add_foreign((alpha, x), &arrived, &mut products);
            }
            (None, Mode::Naive) => {
                own(&mut products, x);
                let mut arrived = vec![Vec::new(); self.parts.len()];
                par::for_each(&mut arrived, 1, |part, room| *room = self.gathered(part, x));
                self.add_foreign((alpha, x), &arrived, &mut products);
            }
            _ => {
                self.exchange(x);
                self.multiply(|_| true, (alpha, x), beta, &mut products);
            }
        }
        products.into_iter().try_for_each(|(_, done)| done)
    }

    /// Computes y = alpha A x + beta y as [`ShardedOperator::apply_sharded`], for an x whose halos an
    /// earlier product has filled and whose elements have not changed since: nothing is exchanged. The
    /// times of both differ by the communication.
    ///
    /// # Errors
    /// As [`ShardedOperator::apply_sharded`].
    pub fn apply_filled(
        &self,
        alpha: T,
        x: &ShardedVector<T>,
        beta: T,
        y: &mut ShardedVector<T>,
    ) -> Result<()> {
        self.check_vectors(x, y)?;
        let mut products: Products<'_, T> =
            y.all_own_mut().into_iter().map(|y| (y, Ok(()))).collect();
        self.multiply(|_| true, (alpha, x), beta, &mut products);
        products.into_iter().try_for_each(|(_, done)| done)
    }

    fn check_vectors(&self, x: &ShardedVector<T>, y: &ShardedVector<T>) -> Result<()> {
        self.check(x.has(self.parts.iter().map(Part::shape_x)), "x", "zeros_x or scatter_x")?;
        self.check(y.has(self.shapes_y()), "y", "zeros_y or scatter_y")
    }

    /// Multiplies the groups that `chosen` selects, in all parts at the same time.
    fn multiply(
        &self,
        chosen: impl Fn(&Group) -> bool + Sync,
        (alpha, x): (T, &ShardedVector<T>),
        beta: T,
        products: &mut Products<'_, T>,
    ) {
        let x = x.parts();
        par::for_each(products, 1, |part, (y, done)| {
            if done.is_ok() {
                *done = self.parts[part].multiply(&chosen, (alpha, &x[part]), (beta, y));
            }
        });
    }

    /// Copies elements that have arrived into the halos of x, and adds the products of the entries in
    /// columns of other parts.
    fn add_foreign(
        &self,
        (alpha, x): (T, &mut ShardedVector<T>),
        arrived: &[Vec<T>],
        products: &mut Products<'_, T>,
    ) {
        let (_, mut halos) = x.split();
        par::for_each(&mut halos, 1, |part, halos| fill(halos, arrived[part].iter().copied()));
        self.multiply(Group::adds, (alpha, x), T::ONE, products);
    }

    /// Calls `work` while a thread for each part gathers its halo; returns the halos.
    fn while_exchanged(
        &self,
        threads: &PartThreads,
        x: &ShardedVector<T>,
        work: impl FnOnce(),
    ) -> Vec<Vec<T>> {
        let rooms: Vec<_> = self.parts.iter().map(|_| Mutex::new(Vec::new())).collect();
        let gather = |part: usize| {
            let halo = self.gathered(part, x);
            *rooms[part].lock().unwrap_or_else(PoisonError::into_inner) = halo;
        };
        threads.beside(&gather, work);
        let halos = rooms.into_iter().map(Mutex::into_inner);
        halos.map(|halo| halo.unwrap_or_else(PoisonError::into_inner)).collect()
    }

    /// Returns the elements of a part's halo, in its order.
    fn gathered(&self, part: usize, x: &ShardedVector<T>) -> Vec<T> {
        let runs = self.parts[part].halo.runs.iter();
        let elements = runs.flat_map(|run| {
            let from = x.own(run.owner);
            run.columns.iter().map(move |&column| from[column as usize])
        });
        elements.collect()
    }

    /// Copies the own elements that other parts need into their halos.
    fn exchange(&self, x: &mut ShardedVector<T>) {
        let (own, mut halos) = x.split();
        par::for_each(&mut halos, 1, |part, halos| {
            let runs = self.parts[part].halo.runs.iter();
            let elements = runs.flat_map(|run| {
                let from = own[run.owner];
                run.columns.iter().map(move |&column| from[column as usize])
            });
            fill(halos, elements);
        });
    }
}

/// Writes elements to the halos before and behind the own elements.
fn fill<T>(halos: &mut [&mut [T]; 2], elements: impl Iterator<Item = T>) {
    let places = halos.iter_mut().flat_map(|halo| halo.iter_mut());
    places.zip(elements).for_each(|(to, element)| *to = element);
}
