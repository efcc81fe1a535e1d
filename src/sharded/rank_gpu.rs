//! A rank's part on its GPU, with vectors that stay there.

use std::ops::Range;
use std::sync::{Arc, PoisonError};

use super::check_len;
use super::rank::numbers;
use super::rank_operator::RankOperator;
use super::transport::{Transport, Way};
use crate::cuda::{DeviceSlice, DeviceSliceMut, Gpu, RankGpu, RankGraph, RankStore};
use crate::error::{Error, Result};
use crate::partition::{Told, WORD};
use crate::scalar::Scalar;

/// The products of a [`RankOperator`] whose part is on a GPU, with vectors that stay there.
///
/// A product is the exchange of halos and the multiplication, both queued on the GPU's stream without
/// waiting, and can be captured as a CUDA graph. The host takes part only with [`Transport::Host`]. All
/// ranks make the same calls in the same order, from one thread each.
///
/// ```no_run
/// use std::time::Duration;
///
/// use ellect::sharded::{Rank, Sockets, Split, Transport};
/// use ellect::{Tuner, Workload, generate};
///
/// # fn main() -> ellect::Result<()> {
/// // Rank 0 of 2; the other process says 1.
/// let exchange = Sockets::meet(0, 2, "127.0.0.1:29600", Duration::from_secs(60))?;
/// let rank = Rank::of(0, 2, exchange)?;
/// let csr = generate::by_name("stencil7", 1_000_000, 1)?;
/// let tuner = Tuner::open("cuda:0")?;
/// let a = rank.prepare_whole(&tuner, &csr, &Workload::default(), Split::EqualRows)?;
/// let on_gpu = a.on_gpu(Transport::Auto)?;
/// println!("{}: {}", on_gpu.transport(), on_gpu.why());
///
/// let x = on_gpu.scatter_x(&vec![1.0; a.own_columns()])?;
/// let mut y = on_gpu.zeros_y()?;
/// on_gpu.apply(1.0, &x, 0.0, &mut y)?;
/// let sum = on_gpu.dot(&x, &y)?;
/// # assert!(sum > 0.0);
/// # Ok(())
/// # }
/// ```
pub struct RankOnGpu<'a, T: Scalar> {
    pub(super) operator: &'a RankOperator<T>,
    pub(super) gpu: RankGpu<T>,
    pub(super) way: Way,
}

/// The own elements of a vector of a [`RankOnGpu`], with room for the halo of an x.
///
/// ```no_run
/// # use ellect::sharded::{RankOnGpu, RankGpuVector};
/// # fn f(on_gpu: RankOnGpu<'_, f64>) -> ellect::Result<()> {
/// let x: RankGpuVector<f64> = on_gpu.zeros_x()?;
/// assert!(!x.own()?.is_empty());
/// # Ok(())
/// # }
/// ```
pub struct RankGpuVector<T: Scalar>(RankStore<T>);

/// A number that the GPU of each rank has in its memory: the result of a dot product.
///
/// ```no_run
/// # use ellect::sharded::RankOnGpu;
/// # fn f(on_gpu: RankOnGpu<'_, f64>) -> ellect::Result<()> {
/// let x = on_gpu.zeros_x()?;
/// let mut square = on_gpu.number()?;
/// on_gpu.dot_into(&x, &x, &mut square)?;
/// assert_eq!(on_gpu.read(&square)?, 0.0);
/// # Ok(())
/// # }
/// ```
pub struct RankGpuNumber<T: Scalar>(RankStore<T>);

/// A product captured as a CUDA graph, by [`RankOnGpu::capture`].
///
/// ```no_run
/// # use ellect::sharded::RankOnGpu;
/// # fn f(on_gpu: RankOnGpu<'_, f64>) -> ellect::Result<()> {
/// let product = on_gpu.capture(1.0, on_gpu.zeros_x()?, 0.0, on_gpu.zeros_y()?)?;
/// (0..1000).try_for_each(|_| product.launch())?;
/// let y = product.into_y()?;
/// # drop(y);
/// # Ok(())
/// # }
/// ```
pub struct RankGpuProduct<'a, T: Scalar>(RankGraph<'a, T>);

impl<T: Scalar> std::fmt::Debug for RankOnGpu<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RankOnGpu").field("way", &self.way).finish_non_exhaustive()
    }
}

impl<T: Scalar> std::fmt::Debug for RankGpuVector<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("RankGpuVector").field(&self.0.shape()).finish()
    }
}

impl<T: Scalar> std::fmt::Debug for RankGpuNumber<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RankGpuNumber")
    }
}

impl<T: Scalar> std::fmt::Debug for RankGpuProduct<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RankGpuProduct")
    }
}

impl<T: Scalar> RankGpuVector<T> {
    /// Returns the own elements.
    ///
    /// # Errors
    /// Never; slices are checked.
    pub fn own(&self) -> Result<DeviceSlice<'_, T>> {
        self.0.own()
    }

    /// Returns the own elements, to be changed.
    ///
    /// # Errors
    /// Never; slices are checked.
    pub fn own_mut(&mut self) -> Result<DeviceSliceMut<'_, T>> {
        self.0.own_mut()
    }
}

impl<T: Scalar> RankGpuNumber<T> {
    /// Returns the number as a slice of one element, for operations of the GPU.
    ///
    /// # Errors
    /// Never; slices are checked.
    pub fn slice(&self) -> Result<DeviceSlice<'_, T>> {
        self.0.own()
    }
}

impl<T: Scalar> RankOnGpu<'_, T> {
    /// Returns the transport that moves halos and sums, never [`Transport::Auto`].
    pub fn transport(&self) -> Transport {
        self.way.transport
    }

    /// Returns the reason for the transport, and the faults of those that were tried before.
    pub fn why(&self) -> &str {
        &self.way.why
    }

    /// Returns the GPU, for operations on own elements of vectors.
    pub fn gpu(&self) -> &Arc<Gpu> {
        self.gpu.gpu()
    }

    fn shape_x(&self) -> (Range<usize>, usize) {
        let shape = self.operator.part.shape_x();
        (shape.own, shape.len)
    }

    fn is_square(&self) -> bool {
        self.operator.nrows() == self.operator.ncols()
    }

    fn shape_y(&self) -> (Range<usize>, usize) {
        let rows = self.operator.part.rows();
        if self.is_square() { self.shape_x() } else { (0..rows, rows) }
    }

    fn tell(&self, own: std::result::Result<[u8; WORD], String>) -> Result<Told> {
        self.operator.rank.tell(own)
    }

    /// Returns zeros for x. All ranks call this together.
    ///
    /// # Errors
    /// [`Error::Device`] if memory runs out; [`Error::Exchange`] if another rank failed.
    pub fn zeros_x(&self) -> Result<RankGpuVector<T>> {
        self.gpu.zeros(self.shape_x(), true, &|own| self.tell(own)).map(RankGpuVector)
    }

    /// Returns zeros for y; for a square matrix, they can also be x. All ranks call this together.
    ///
    /// # Errors
    /// As [`RankOnGpu::zeros_x`].
    pub fn zeros_y(&self) -> Result<RankGpuVector<T>> {
        let zeros = self.gpu.zeros(self.shape_y(), self.is_square(), &|own| self.tell(own));
        zeros.map(RankGpuVector)
    }

    /// Returns x with these own elements. All ranks call this together.
    ///
    /// # Errors
    /// [`Error::Shape`] if their number is another one; as [`RankOnGpu::zeros_x`].
    pub fn scatter_x(&self, own: &[T]) -> Result<RankGpuVector<T>> {
        let mut x = self.zeros_x()?;
        check_len("x", own.len(), self.shape_x().0.len())?;
        x.0.write(own)?;
        Ok(x)
    }

    /// Returns y with these own elements. All ranks call this together.
    ///
    /// # Errors
    /// As [`RankOnGpu::scatter_x`].
    pub fn scatter_y(&self, own: &[T]) -> Result<RankGpuVector<T>> {
        let mut y = self.zeros_y()?;
        check_len("y", own.len(), self.shape_y().0.len())?;
        y.0.write(own)?;
        Ok(y)
    }

    /// Copies the own elements of a vector to the host, after all queued work.
    ///
    /// # Errors
    /// [`Error::Shape`] if their number is another one; errors of [`RankOnGpu::synchronize`].
    pub fn gather(&self, vector: &RankGpuVector<T>, own: &mut [T]) -> Result<()> {
        self.synchronize()?;
        vector.0.read(own)
    }

    fn check(&self, x: &RankGpuVector<T>, y: &RankGpuVector<T>) -> Result<()> {
        let fault = |name: &str| {
            Err(Error::argument(format!(
                "{name} has other elements than the part; make it by on_gpu's zeros_{name} or \
                 scatter_{name}"
            )))
        };
        match () {
            () if x.0.shape() != self.shape_x() => fault("x"),
            () if y.0.shape() != self.shape_y() => fault("y"),
            () => Ok(()),
        }
    }

    /// Queues y = alpha A x + beta y and returns without waiting, except with [`Transport::Host`]; with
    /// `beta = 0`, y is written and never read. Fills the halo of x.
    ///
    /// All ranks call this together.
    ///
    /// # Errors
    /// [`Error::Argument`] if a vector is not one of this operator; [`Error::Device`] if a launch fails;
    /// [`Error::Exchange`] with [`Transport::Host`] if the exchange fails, or another rank. A fault of a
    /// kernel, or a rank that does not arrive, shows when the GPU is waited for.
    pub fn apply(
        &self,
        alpha: T,
        x: &RankGpuVector<T>,
        beta: T,
        y: &mut RankGpuVector<T>,
    ) -> Result<()> {
        let fits = self.check(x, y);
        if self.way.transport == Transport::Host {
            return self.through_host(fits, (alpha, &x.0), (beta, &mut y.0));
        }
        fits?;
        self.gpu.apply(&self.operator.on_device()?, (alpha, &x.0), (beta, &mut y.0))
    }

    /// Multiplies with elements that the ranks' exchange moves. A rank whose vectors do not fit says so
    /// to the others.
    fn through_host(
        &self,
        fits: Result<()>,
        (alpha, x): (T, &RankStore<T>),
        (beta, y): (T, &mut RankStore<T>),
    ) -> Result<()> {
        let operator = self.operator;
        let products = operator.on_device()?;
        let links = &mut *operator.links.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = fits.and_then(|()| {
            let count = links.elements.iter().map(Vec::len).sum();
            let mut packed = vec![T::ZERO; count];
            self.gpu.outgoing(x, &mut packed)?;
            let mut packed = &packed[..];
            for (parcel, elements) in links.send.iter_mut().zip(&links.elements) {
                let (of_rank, rest) = packed.split_at(elements.len());
                parcel.payload_mut().copy_from_slice(bytemuck::cast_slice(of_rank));
                packed = rest;
            }
            self.gpu.multiply(&products, false, (alpha, x), (beta, y))
        });
        let (send, receive) = (&mut links.send, &mut links.receive);
        let exchanged = operator.rank.exchange(begun.is_err(), send, receive, &mut || {});
        begun?;
        exchanged?;
        for ((place, _), parcel) in operator.part.halo.places().zip(&links.receive) {
            self.gpu.incoming(x, place, &numbers::<T>(parcel.payload()))?;
        }
        self.gpu.multiply(&products, true, (alpha, x), (beta, y))
    }

    /// Captures y = alpha A x + beta y for many launches. The product keeps the vectors.
    ///
    /// # Errors
    /// As [`RankOnGpu::apply`]; [`Error::Argument`] with [`Transport::Host`], whose exchange no graph
    /// contains.
    pub fn capture(
        &self,
        alpha: T,
        x: RankGpuVector<T>,
        beta: T,
        y: RankGpuVector<T>,
    ) -> Result<RankGpuProduct<'_, T>> {
        self.check(&x, &y)?;
        if self.way.transport == Transport::Host {
            return Err(Error::argument(format!(
                "a product whose halo moves through the host cannot be captured; use apply, or \
                 transport peer or nccl (here: {})",
                self.way.why
            )));
        }
        let products = self.operator.on_device()?;
        self.gpu.capture(&products, (alpha, x.0), (beta, y.0)).map(RankGpuProduct)
    }

    /// Returns the number zero.
    ///
    /// # Errors
    /// [`Error::Device`] if memory runs out.
    pub fn number(&self) -> Result<RankGpuNumber<T>> {
        self.gpu.zeros((0..1, 1), false, &|own| self.tell(own)).map(RankGpuNumber)
    }

    /// Copies a number to the host, after all queued work.
    ///
    /// # Errors
    /// Errors of [`RankOnGpu::synchronize`].
    pub fn read(&self, number: &RankGpuNumber<T>) -> Result<T> {
        self.synchronize()?;
        let mut host = [T::ZERO];
        number.0.read(&mut host)?;
        Ok(host[0])
    }

    /// Queues the dot product of two vectors that are divided alike, over all ranks, and returns without
    /// waiting, except with [`Transport::Host`]. All ranks get equal bits.
    ///
    /// All ranks call this together.
    ///
    /// # Errors
    /// [`Error::Argument`] if the vectors have different numbers of own elements; [`Error::Device`] if a
    /// launch fails; [`Error::Exchange`] with [`Transport::Host`].
    pub fn dot_into(
        &self,
        x: &RankGpuVector<T>,
        y: &RankGpuVector<T>,
        result: &mut RankGpuNumber<T>,
    ) -> Result<()> {
        let queued = x.own().and_then(|x| self.gpu.dot(x, y.own()?, result.0.own_mut()?));
        self.add_on_host(queued, result)
    }

    /// Queues the replacement of a number by its sum over all ranks; see [`RankOnGpu::dot_into`].
    ///
    /// # Errors
    /// As [`RankOnGpu::dot_into`].
    pub fn sum(&self, number: &mut RankGpuNumber<T>) -> Result<()> {
        let queued = number.0.own_mut().and_then(|number| self.gpu.sum(number));
        self.add_on_host(queued, number)
    }

    /// Adds the numbers of all ranks with [`Transport::Host`], with another transport nothing.
    fn add_on_host(&self, queued: Result<()>, number: &mut RankGpuNumber<T>) -> Result<()> {
        if self.way.transport != Transport::Host {
            return queued;
        }
        let own = queued.and_then(|()| self.read(number));
        let bytes = own.as_ref().ok().map(bytemuck::bytes_of);
        let all = self.operator.rank.all_gather(bytes, size_of::<T>());
        own?;
        let sum = numbers::<T>(&all?).into_iter().fold(T::ZERO, |sum, of_rank| sum + of_rank);
        number.0.write(&[sum])
    }

    /// Returns the dot product of two vectors that are divided alike, over all ranks; waits.
    ///
    /// # Errors
    /// As [`RankOnGpu::dot_into`] and [`RankOnGpu::synchronize`].
    pub fn dot(&self, x: &RankGpuVector<T>, y: &RankGpuVector<T>) -> Result<T> {
        let mut result = self.number()?;
        self.dot_into(x, y, &mut result)?;
        self.read(&result)
    }

    /// Waits for all work of this rank's GPU.
    ///
    /// # Errors
    /// [`Error::Device`] if a kernel faulted; [`Error::Exchange`] with the rank, or the ranks, for which
    /// this one waited in vain, after 20 s without progress: the matrix must be prepared anew.
    pub fn synchronize(&self) -> Result<()> {
        self.gpu.synchronize()
    }
}

impl<T: Scalar> RankGpuProduct<'_, T> {
    /// Returns the own elements of x, to be changed between products.
    ///
    /// # Errors
    /// Never; slices are checked.
    pub fn x_mut(&mut self) -> Result<DeviceSliceMut<'_, T>> {
        self.0.x.own_mut()
    }

    /// Returns the own elements of y, to be changed between products.
    ///
    /// # Errors
    /// Never; slices are checked.
    pub fn y_mut(&mut self) -> Result<DeviceSliceMut<'_, T>> {
        self.0.y.own_mut()
    }

    /// Queues the product and returns without waiting. All ranks call this together.
    ///
    /// # Errors
    /// [`Error::Device`] if the launch fails.
    pub fn launch(&self) -> Result<()> {
        self.0.launch()
    }

    /// Waits for the GPU and returns y, which [`RankOnGpu::gather`] copies to the host.
    ///
    /// # Errors
    /// As [`RankOnGpu::synchronize`].
    pub fn into_y(self) -> Result<RankGpuVector<T>> {
        self.0.into_y().map(RankGpuVector)
    }
}
