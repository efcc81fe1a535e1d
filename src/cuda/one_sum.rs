//! Iterations of conjugate gradients on several GPUs with one sum over them; see
//! `kernels/vectors/dots.cu`.

use std::sync::PoisonError;

use super::exchange::PeerVector;
use super::part::{Products, adds, multiply, multiply_dots};
use super::peers::{Peers, Product, turn};
use super::vector_ops::{over_parts, parts_of};
use super::{Gpu, dots};
use crate::dots::DotWith;
use crate::error::Result;
use crate::format::{Arg, Launch};
use crate::scalar::{Precision, Scalar};

/// The vectors and numbers of an iteration, which all are divided alike.
pub(crate) struct OneSum<'a, T> {
    /// w = A r, p, s = A p, x and r.
    pub vectors: [&'a PeerVector<T>; 5],
    /// (r, r) of this iteration and of the one before, (r, w), and (p, s) of the one before.
    pub known: [&'a PeerVector<T>; 4],
    /// (p, s) of this iteration.
    pub pq: &'a PeerVector<T>,
}

impl<T: Scalar> Peers<T> {
    /// Queues an iteration: the updates of p, s, x and r, w = A r, and one sum over all parts, by which
    /// (r, w) and the new (r, r) take the places of (r, w) and of (r, r) of the iteration before. Returns
    /// without waiting.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if a launch fails; the vectors fit, as callers have checked.
    pub fn one_sum(&self, products: &[Products<'_, T>], state: &OneSum<'_, T>) -> Result<()> {
        let [w, _, _, _, r] = state.vectors;
        let [_, rr_before, rw, _] = state.known;
        let all = state.vectors.into_iter().chain(state.known).chain([state.pq]);
        self.recording.keep(all);
        let _turn = turn();
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        self.load_dots(products, &mut sums)?;
        let shares: Vec<u64> =
            (0..self.gpus.len()).map(|part| sums.reduction.own_at(part, 0)).collect();
        // A product that is added to y in two steps computes no dot product.
        let apart = products.iter().any(adds);
        self.each_part(&|part| {
            let (gpu, operators) = (&self.gpus[part], &products[part]);
            let share = shares[part];
            state.update(gpu, part, share + size_of::<T>() as u64)?;
            let (r_at, w_at) = (r.address(part), w.own(part)?.address());
            let with = [DotWith::Z(r.own(part)?.address())];
            // SAFETY: vectors are freed in order on their streams, and `PeerVector` waits
            // before that; the operators are borrowed, and freed in order too.
            unsafe {
                let product: Product<'_> = &|needs_halo, stream| {
                    let (x, y) = ((T::ONE, r_at), (T::ZERO, w_at));
                    match apart {
                        true => multiply(operators, needs_halo, x, y, stream),
                        false => multiply_dots(operators, needs_halo, x, y, (&with, share), stream),
                    }
                };
                self.with_steps(operators, part, r, false, product, |steps| {
                    steps.queue(self.fork_of(part, operators), gpu.queue.as_inner())
                })
            }
        })?;
        for (part, (gpu, operators)) in self.gpus.iter().zip(products).enumerate() {
            let lists = if apart { 1 } else { operators.len() };
            if apart {
                gpu.dot(w.own(part)?, r.own(part)?, sums.reduction.number_mut(part, 0)?)?;
            }
            // The share of (r, r) is in the first list alone.
            (1..lists).try_for_each(|list| sums.reduction.clear(part, list, 1))?;
            let results = [rw.own(part)?.address(), rr_before.own(part)?.address()];
            // SAFETY: the results wait for all streams before they are freed, as `self` does.
            unsafe { sums.reduction.queue(part, lists, &results)? };
        }
        Ok(())
    }
}

impl<T: Scalar> OneSum<'_, T> {
    /// Queues the updates of a part's elements, and its share of (r, r) at the address `share`.
    fn update(&self, gpu: &Gpu, part: usize, share: u64) -> Result<()> {
        let own = |vector: &PeerVector<T>| Ok(vector.own(part)?.address());
        let [w, p, s, x, r] = self.vectors.map(own);
        let [rr, rr_before, rw, pq_before] = self.known.map(own);
        let numbers = [rr?, rr_before?, rw?, pq_before?, own(self.pq)?];
        let vectors = [w?, p?, s?, x?, r?];
        let n = self.vectors[4].own(part)?.len() as u64;
        gpu.with_partial_sums(|parts| {
            let launches = launches(T::PRECISION, n, (numbers, vectors), [parts, share]);
            launches.iter().try_for_each(|one| gpu.queue_launch(one, [0; 2], T::ONE, T::ZERO))
        })
    }
}

/// Describes the launches of the updates over `n` elements; the last addresses are those of the partial
/// sums and of the result.
pub(super) fn launches(
    precision: Precision,
    n: u64,
    (numbers, vectors): ([u64; 5], [u64; 5]),
    addresses: [u64; 2],
) -> [Launch; 2] {
    let count = parts_of(n);
    let args = [n].into_iter().chain(numbers).chain(vectors).chain([addresses[0]]);
    let args = args.map(Arg::U64).collect();
    let first = over_parts(dots::IMAGE, format!("one_sum_step_{precision}"), count, args);
    [first, dots::sum_launch(precision, count, 0, 1, addresses)]
}
