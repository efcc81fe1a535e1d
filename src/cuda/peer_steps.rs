//! Steps of solvers on vectors divided among GPUs: dot products over all parts, with products and
//! without, and updates of vectors.

use std::sync::PoisonError;

use super::exchange::PeerVector;
use super::part::{Products, adds, multiply_dots};
use super::peers::{Peers, Product, Sums, turn};
use super::vector_ops::Factor;
use crate::dots::DotWith;
use crate::error::Result;
use crate::scalar::Scalar;

/// A factor of a divided vector: a number, and perhaps a quotient of numbers on the GPUs.
pub(crate) type PeerFactor<'a, T> = (T, Option<[&'a PeerVector<T>; 2]>);

/// Dot products of y, and the numbers on all GPUs to which they go.
pub(crate) type PeerDots<'a, T> =
    (&'a [DotWith<&'a PeerVector<T>>], &'a mut [&'a mut PeerVector<T>]);

impl<T: Scalar> Peers<T> {
    /// Queues y = alpha A x + beta y and dot products of the new y over all parts: in the pass of the
    /// product, unless the product of a part is added to y in two steps. Returns without waiting.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) for more dot products than a product computes;
    /// otherwise as [`Peers::apply`], whose vectors these are.
    pub fn apply_dot(
        &self,
        products: &[Products<'_, T>],
        (alpha, x): (T, &PeerVector<T>),
        (beta, y): (T, &mut PeerVector<T>),
        (with, results): PeerDots<'_, T>,
    ) -> Result<()> {
        self.recording.keep([x, &*y]);
        self.keep_dots(with, results);
        if products.iter().any(adds) {
            self.apply(products, (alpha, x), (beta, y))?;
            return self.dots(x, y, (with, results));
        }
        let _turn = turn();
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        self.load_dots(products, &mut sums)?;
        let (sums, y, results) = (&*sums, &*y, &*results);
        self.each_part(&|part| {
            let (gpu, operators) = (&self.gpus[part], &products[part]);
            gpu.make_current()?;
            let with = with.iter().map(|one| address_with(*one, x, part));
            let with = with.collect::<Result<Vec<_>>>()?;
            let (x_at, y_at) = (x.address(part), y.own(part)?.address());
            let dots = (with.as_slice(), sums.reduction.own_at(part, 0));
            let to = results.iter().map(|result| Ok(result.own(part)?.address()));
            let to = to.collect::<Result<Vec<u64>>>()?;
            // SAFETY: vectors and results are freed in order on their streams, and `PeerVector` waits
            // before that; the operators are borrowed, and freed in order too.
            unsafe {
                let product: Product<'_> = &|needs_halo, stream| {
                    multiply_dots(operators, needs_halo, (alpha, x_at), (beta, y_at), dots, stream)
                };
                self.with_steps(operators, part, x, false, product, |steps| {
                    steps.queue(self.fork_of(part, operators), gpu.queue.as_inner())
                })?;
                sums.reduction.queue(part, operators.len(), &to)
            }
        })
    }

    /// Runs each product with dot products once without the exchange, and waits, as
    /// [`Peers::new`] does for products alone.
    pub(super) fn load_dots(&self, products: &[Products<'_, T>], sums: &mut Sums<T>) -> Result<()> {
        if sums.loaded {
            return Ok(());
        }
        products.iter().flatten().try_for_each(|(_, a)| a.ready_dots())?;
        let (x, y) = self.vectors_for(products)?;
        for (part, (gpu, operators)) in self.gpus.iter().zip(products).enumerate() {
            gpu.make_current()?;
            let (x_at, y_at) = (x.address(part), y.address(part));
            for needs_halo in [false, true] {
                let dots = (&[DotWith::Y][..], sums.reduction.own_at(part, 0));
                let (x, y) = ((T::ONE, x_at), (T::ZERO, y_at));
                let stream = gpu.queue.as_inner();
                // SAFETY: the vectors have all columns and rows, and wait before they are freed.
                unsafe { multiply_dots(operators, needs_halo, x, y, dots, stream)? };
            }
            gpu.synchronize()?;
        }
        sums.loaded = true;
        Ok(())
    }

    /// Keeps the vectors and results of dot products if work is recorded.
    fn keep_dots(&self, with: &[DotWith<&PeerVector<T>>], results: &[&mut PeerVector<T>]) {
        let others = with.iter().filter_map(|one| match one {
            DotWith::Z(z) => Some(*z),
            _ => None,
        });
        self.recording.keep(others.chain(results.iter().map(|result| &**result)));
    }

    /// Queues dot products of y with x and other vectors over all parts.
    fn dots(
        &self,
        x: &PeerVector<T>,
        y: &PeerVector<T>,
        (with, results): PeerDots<'_, T>,
    ) -> Result<()> {
        self.recording.keep([x, y]);
        self.keep_dots(with, results);
        let _turn = turn();
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        for (part, gpu) in self.gpus.iter().enumerate() {
            for (k, one) in with.iter().enumerate() {
                let other = match one {
                    DotWith::X => x,
                    DotWith::Y => y,
                    DotWith::Z(z) => z,
                };
                let result = sums.reduction.number_mut(part, k)?;
                gpu.dot(y.own(part)?, other.own(part)?, result)?;
            }
            let to = results.iter().map(|result| Ok(result.own(part)?.address()));
            // SAFETY: the results wait for all streams before they are freed, as `self` does.
            unsafe { sums.reduction.queue(part, 1, &to.collect::<Result<Vec<u64>>>()?)? };
        }
        Ok(())
    }

    /// Queues the dot product of the own elements: each GPU computes its share, sends it to all
    /// others, and adds the shares in the order of the parts, so that all have equal bits. Returns
    /// without waiting.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) if the vectors are divided in different ways;
    /// [`Error::Device`](crate::Error::Device) if a launch fails.
    pub fn dot(
        &self,
        x: &PeerVector<T>,
        y: &PeerVector<T>,
        result: &mut PeerVector<T>,
    ) -> Result<()> {
        self.dots(x, y, (&[DotWith::X], &mut [result]))
    }

    /// Queues y = alpha x + beta y for the own elements; returns without waiting.
    ///
    /// # Errors
    /// As [`Peers::dot`].
    pub fn axpby(
        &self,
        alpha: PeerFactor<'_, T>,
        x: &PeerVector<T>,
        beta: PeerFactor<'_, T>,
        y: &mut PeerVector<T>,
    ) -> Result<()> {
        self.recording.keep([x, &*y].into_iter().chain(numbers([alpha, beta])));
        for (part, gpu) in self.gpus.iter().enumerate() {
            let (alpha, beta) = (factor_of(part, alpha)?, factor_of(part, beta)?);
            gpu.axpby(alpha, x.own(part)?, beta, y.own_mut(part)?)?;
        }
        Ok(())
    }

    /// Queues y = alpha x + beta y, and (y, y) over all parts, in one pass; returns without waiting.
    ///
    /// # Errors
    /// As [`Peers::dot`].
    pub fn axpby_dot(
        &self,
        alpha: PeerFactor<'_, T>,
        x: &PeerVector<T>,
        beta: PeerFactor<'_, T>,
        y: &mut PeerVector<T>,
        result: &mut PeerVector<T>,
    ) -> Result<()> {
        self.recording.keep([x, &*y, &*result].into_iter().chain(numbers([alpha, beta])));
        let _turn = turn();
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        for (part, gpu) in self.gpus.iter().enumerate() {
            let (alpha, beta) = (factor_of(part, alpha)?, factor_of(part, beta)?);
            let own = sums.reduction.number_mut(part, 0)?;
            gpu.axpby_dot(alpha, x.own(part)?, beta, y.own_mut(part)?, own)?;
            // SAFETY: the result waits for all streams before it is freed, as `self` does.
            unsafe { sums.reduction.queue(part, 1, &[result.own(part)?.address()])? };
        }
        Ok(())
    }

    /// Queues x = x + alpha p, followed by p = r + beta p, in one pass; returns without waiting.
    ///
    /// # Errors
    /// As [`Peers::dot`].
    pub fn advance(
        &self,
        alpha: PeerFactor<'_, T>,
        p: &mut PeerVector<T>,
        x: &mut PeerVector<T>,
        beta: PeerFactor<'_, T>,
        r: &PeerVector<T>,
    ) -> Result<()> {
        self.recording.keep([&*p, &*x, r].into_iter().chain(numbers([alpha, beta])));
        for (part, gpu) in self.gpus.iter().enumerate() {
            let (alpha, beta) = (factor_of(part, alpha)?, factor_of(part, beta)?);
            gpu.advance(alpha, p.own_mut(part)?, x.own_mut(part)?, beta, r.own(part)?)?;
        }
        Ok(())
    }
}

/// Returns the numbers of factors.
fn numbers<'a, T>(factors: [PeerFactor<'a, T>; 2]) -> impl Iterator<Item = &'a PeerVector<T>> {
    factors.into_iter().filter_map(|(_, quotient)| quotient).flatten()
}

/// Returns the other vector of a dot product of y by the address of a part's own elements. That of x is
/// an address too, as its halo may lie before them.
fn address_with<T: Scalar>(
    with: DotWith<&PeerVector<T>>,
    x: &PeerVector<T>,
    part: usize,
) -> Result<DotWith<u64>> {
    Ok(match with {
        DotWith::X => DotWith::Z(x.own(part)?.address()),
        DotWith::Y => DotWith::Y,
        DotWith::Z(z) => DotWith::Z(z.own(part)?.address()),
    })
}

/// Returns the factor on the GPU of a part.
fn factor_of<T: Scalar>(
    part: usize,
    (scale, quotient): PeerFactor<'_, T>,
) -> Result<Factor<'_, T>> {
    match quotient {
        None => Ok(Factor::from(scale)),
        Some([over, under]) => Factor::quotient(scale, over.own(part)?, under.own(part)?),
    }
}
