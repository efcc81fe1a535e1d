//! Products of a matrix on several GPUs whose vectors stay there.

use std::ops::Range;
use std::sync::Arc;

use super::halo::Shape;
use super::{Part, ShardedOperator, check_len};
use crate::cuda::{
    DeviceSlice, DeviceSliceMut, Gpu, GpuOperator, PeerProduct, PeerVector, Peers, Products,
};
use crate::error::{Error, Result};
use crate::partition::{Partition, Sent};
use crate::scalar::Scalar;

/// The products of a [`ShardedOperator`] whose parts are all on GPUs, with vectors that stay there.
///
/// One kernel for each part stores the elements of x that other parts need straight into their halos
/// and waits for its own halo: the GPUs agree among themselves, and the host only launches. Rows that
/// need no halo are multiplied meanwhile, where that pays ([`Mode`](super::Mode)). Work is queued on each
/// GPU's stream and returns without waiting, so that a solver on the GPUs is ordered by itself.
///
/// ```no_run
/// use ellect::sharded::Split;
/// use ellect::{Tuner, Workload, generate};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = generate::by_name("stencil7", 1_000_000, 1)?;
/// let tuners = Tuner::open_all(&["cuda:0", "cuda:1"])?;
/// let a = tuners.prepare_sharded(&csr, &Workload::default(), Split::EqualNonzeros)?;
/// let on_gpus = a.on_gpus()?;
///
/// let x = on_gpus.scatter_x(&vec![1.0; csr.ncols()])?;
/// let mut y = on_gpus.zeros_y()?;
/// on_gpus.apply(1.0, &x, 0.0, &mut y)?;
/// let sum = on_gpus.dot(&x, &y)?;
///
/// let mut host = vec![0.0; csr.nrows()];
/// on_gpus.gather_y(&y, &mut host)?;
/// # assert!(sum > 0.0);
/// # Ok(())
/// # }
/// ```
pub struct OnGpus<'a, T: Scalar> {
    pub(super) operator: &'a ShardedOperator<T>,
    pub(super) peers: Peers<T>,
}

/// A vector divided among the GPUs of an [`OnGpus`].
///
/// ```no_run
/// # use ellect::sharded::Split;
/// # use ellect::{Tuner, Workload, generate};
///
/// # fn main() -> ellect::Result<()> {
/// # let csr = generate::by_name("stencil7", 1_000_000, 1)?;
/// # let tuners = Tuner::open_all(&["cuda:0", "cuda:1"])?;
/// # let a = tuners.prepare_sharded(&csr, &Workload::default(), Split::EqualRows)?;
/// let on_gpus = a.on_gpus()?;
/// let x = on_gpus.zeros_x()?;
/// assert!(!x.own(0)?.is_empty());
/// # Ok(())
/// # }
/// ```
pub struct GpuShards<T: Scalar>(pub(super) PeerVector<T>);

/// A product captured as one CUDA graph for each GPU, by [`OnGpus::capture`].
///
/// ```no_run
/// # use ellect::sharded::Split;
/// # use ellect::{Tuner, Workload, generate};
///
/// # fn main() -> ellect::Result<()> {
/// # let csr = generate::by_name("stencil7", 1_000_000, 1)?;
/// # let tuners = Tuner::open_all(&["cuda:0", "cuda:1"])?;
/// # let a = tuners.prepare_sharded(&csr, &Workload::default(), Split::EqualRows)?;
/// let on_gpus = a.on_gpus()?;
/// let product = on_gpus.capture(1.0, on_gpus.zeros_x()?, 0.0, on_gpus.zeros_y()?)?;
/// (0..1000).try_for_each(|_| product.launch())?;
/// let y = product.into_y()?;
/// # drop(y);
/// # Ok(())
/// # }
/// ```
pub struct CapturedProduct<'a, T: Scalar>(PeerProduct<'a, T>);

impl<T: Scalar> std::fmt::Debug for OnGpus<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OnGpus").field("operator", self.operator).finish_non_exhaustive()
    }
}

impl<T: Scalar> std::fmt::Debug for GpuShards<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.shapes()).finish()
    }
}

impl<T: Scalar> std::fmt::Debug for CapturedProduct<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CapturedProduct")
    }
}

impl<T: Scalar> GpuShards<T> {
    /// Returns the elements of a part on its GPU.
    ///
    /// # Errors
    /// Never; slices are checked.
    ///
    /// # Panics
    /// If there is no such part.
    pub fn own(&self, part: usize) -> Result<DeviceSlice<'_, T>> {
        self.0.own(part)
    }

    /// Returns the elements of a part on its GPU, to be changed.
    ///
    /// # Errors
    /// Never; slices are checked.
    ///
    /// # Panics
    /// If there is no such part.
    pub fn own_mut(&mut self, part: usize) -> Result<DeviceSliceMut<'_, T>> {
        self.0.own_mut(part)
    }
}

impl<T: Scalar> ShardedOperator<T> {
    /// Opens the memory of the parts' GPUs to each other, for products with vectors that stay
    /// there.
    ///
    /// # Errors
    /// [`Error::Argument`] if a part is on a host, or if two parts are on one stream;
    /// [`Error::Device`] if a GPU cannot reach the memory of another one.
    pub fn on_gpus(&self) -> Result<OnGpus<'_, T>> {
        let products = self.on_each_gpu()?;
        let mut sent = Vec::new();
        for (to, part) in self.parts.iter().enumerate() {
            for (place, run) in part.halo.places() {
                let first = self.parts[run.owner].halo.before as u32;
                sent.push(Sent { from: run.owner, to, first, elements: &run.columns, place });
            }
        }
        Ok(OnGpus { operator: self, peers: Peers::new(&products, &sent, self.threads.clone())? })
    }

    /// Returns the operators of each part's groups of rows.
    pub(super) fn on_each_gpu(&self) -> Result<Vec<Products<'_, T>>> {
        let mut parts = Vec::with_capacity(self.parts.len());
        for (number, part) in self.parts.iter().enumerate() {
            let on_host = || {
                Error::argument(format!(
                    "part {number} is on a host; vectors stay on GPUs only if all parts are there: \
                     use apply_sharded"
                ))
            };
            let mut operators = Vec::with_capacity(part.operators.len());
            for (group, operator) in &part.operators {
                operators.push((group, operator.on_device().ok_or_else(on_host)?));
            }
            parts.push(operators);
        }
        Ok(parts)
    }
}

impl<T: Scalar> OnGpus<'_, T> {
    /// Returns zeros for x.
    ///
    /// # Errors
    /// [`Error::Device`] if memory runs out.
    pub fn zeros_x(&self) -> Result<GpuShards<T>> {
        self.zeros(self.operator.parts.iter().map(Part::shape_x))
    }

    /// Returns zeros for y; for a square matrix, they can also be x.
    ///
    /// # Errors
    /// [`Error::Device`] if memory runs out.
    pub fn zeros_y(&self) -> Result<GpuShards<T>> {
        self.zeros(self.operator.shapes_y())
    }

    fn zeros(&self, shapes: impl Iterator<Item = Shape>) -> Result<GpuShards<T>> {
        self.peers.zeros(&pairs(shapes).collect::<Vec<_>>()).map(GpuShards)
    }

    /// Divides a vector of `ncols` elements among the GPUs.
    ///
    /// # Errors
    /// [`Error::Shape`] if it has another length; [`Error::Device`] if memory runs out.
    pub fn scatter_x(&self, x: &[T]) -> Result<GpuShards<T>> {
        check_len("x", x.len(), self.operator.ncols)?;
        scattered(self.zeros_x()?, &self.operator.columns, x)
    }

    /// Divides a vector of `nrows` elements among the GPUs.
    ///
    /// # Errors
    /// As [`OnGpus::scatter_x`].
    pub fn scatter_y(&self, y: &[T]) -> Result<GpuShards<T>> {
        check_len("y", y.len(), self.operator.nrows)?;
        scattered(self.zeros_y()?, &self.operator.rows, y)
    }

    /// Copies a divided x to one vector of `ncols` elements, after all queued work.
    ///
    /// # Errors
    /// [`Error::Shape`] if that has another length; [`Error::Argument`] if x is divided in another
    /// way; errors of [`OnGpus::synchronize`].
    pub fn gather_x(&self, x: &GpuShards<T>, to: &mut [T]) -> Result<()> {
        check_len("the vector for x", to.len(), self.operator.ncols)?;
        self.check_x(x)?;
        self.gathered(x, &self.operator.columns, to)
    }

    /// Copies a divided y to one vector of `nrows` elements, after all queued work.
    ///
    /// # Errors
    /// As [`OnGpus::gather_x`].
    pub fn gather_y(&self, y: &GpuShards<T>, to: &mut [T]) -> Result<()> {
        check_len("the vector for y", to.len(), self.operator.nrows)?;
        self.check_y(y)?;
        self.gathered(y, &self.operator.rows, to)
    }

    fn gathered(&self, from: &GpuShards<T>, partition: &Partition, to: &mut [T]) -> Result<()> {
        self.synchronize()?;
        let mut own = Vec::new();
        for part in 0..partition.parts() {
            let places = partition.of(part);
            own.resize(places.len(), T::ZERO);
            from.0.read(part, &mut own)?;
            places.iter().zip(&own).for_each(|(&at, &element)| to[at as usize] = element);
        }
        Ok(())
    }

    fn check_x(&self, x: &GpuShards<T>) -> Result<()> {
        let fits = x.0.shapes().eq(pairs(self.operator.parts.iter().map(Part::shape_x)));
        self.operator.check(fits, "x", "on_gpus().zeros_x or scatter_x")
    }

    fn check_y(&self, y: &GpuShards<T>) -> Result<()> {
        let fits = y.0.shapes().eq(pairs(self.operator.shapes_y()));
        self.operator.check(fits, "y", "on_gpus().zeros_y or scatter_y")
    }

    /// Checks that x and y are divided as the matrix is.
    pub(super) fn check_product(&self, x: &GpuShards<T>, y: &GpuShards<T>) -> Result<()> {
        self.check_x(x)?;
        self.check_y(y)
    }

    /// Queues y = alpha A x + beta y on all GPUs and returns without waiting; with `beta = 0`, y is
    /// written and never read. Fills the halos of x.
    ///
    /// # Errors
    /// [`Error::Argument`] if a vector is divided in another way; [`Error::Device`] if a launch
    /// fails. A fault of a kernel shows when the GPUs are waited for.
    pub fn apply(&self, alpha: T, x: &GpuShards<T>, beta: T, y: &mut GpuShards<T>) -> Result<()> {
        self.check_product(x, y)?;
        self.peers.apply(&self.operator.on_each_gpu()?, (alpha, &x.0), (beta, &mut y.0))
    }

    /// Captures y = alpha A x + beta y for many launches: a graph for each GPU, whose launch costs
    /// less than queueing exchange and product. The product keeps the vectors.
    ///
    /// # Errors
    /// As [`OnGpus::apply`].
    pub fn capture(
        &self,
        alpha: T,
        x: GpuShards<T>,
        beta: T,
        y: GpuShards<T>,
    ) -> Result<CapturedProduct<'_, T>> {
        self.captured((alpha, x), (beta, y), false)
    }

    /// Captures a product as [`OnGpus::capture`], for an x whose halos an earlier product has filled and
    /// whose elements do not change: nothing is exchanged. The times of both differ by the
    /// communication.
    ///
    /// # Errors
    /// As [`OnGpus::apply`].
    pub fn capture_filled(
        &self,
        alpha: T,
        x: GpuShards<T>,
        beta: T,
        y: GpuShards<T>,
    ) -> Result<CapturedProduct<'_, T>> {
        self.captured((alpha, x), (beta, y), true)
    }

    fn captured(
        &self,
        (alpha, x): (T, GpuShards<T>),
        (beta, y): (T, GpuShards<T>),
        is_filled: bool,
    ) -> Result<CapturedProduct<'_, T>> {
        self.check_product(&x, &y)?;
        let operators = self.operator.on_each_gpu()?;
        let product = self.peers.capture(&operators, (alpha, x.0), (beta, y.0), is_filled)?;
        Ok(CapturedProduct(product))
    }

    /// Returns the GPU of each part, for operations on its elements of vectors.
    pub fn gpus(&self) -> impl Iterator<Item = &Arc<Gpu>> {
        self.operator
            .parts
            .iter()
            .filter_map(|part| part.largest().on_device())
            .map(GpuOperator::gpu)
    }

    /// Waits for all GPUs.
    ///
    /// # Errors
    /// [`Error::Device`] if a kernel faulted, or if a GPU waited too long for another one: the
    /// message names both parts, and the matrix must be prepared anew.
    pub fn synchronize(&self) -> Result<()> {
        self.peers.synchronize()
    }
}

impl<T: Scalar> CapturedProduct<'_, T> {
    /// Returns the elements of x of a part, to be changed between products.
    ///
    /// # Errors
    /// Never; slices are checked.
    ///
    /// # Panics
    /// If there is no such part.
    pub fn x_mut(&mut self, part: usize) -> Result<DeviceSliceMut<'_, T>> {
        self.0.x.own_mut(part)
    }

    /// Returns the elements of y of a part, to be changed between products.
    ///
    /// # Errors
    /// Never; slices are checked.
    ///
    /// # Panics
    /// If there is no such part.
    pub fn y_mut(&mut self, part: usize) -> Result<DeviceSliceMut<'_, T>> {
        self.0.y.own_mut(part)
    }

    /// Waits for all GPUs and returns y, which [`OnGpus::gather_y`] copies to the host.
    ///
    /// # Errors
    /// As [`OnGpus::synchronize`].
    pub fn into_y(self) -> Result<GpuShards<T>> {
        self.0.into_y().map(GpuShards)
    }

    /// Queues the product on all GPUs and returns without waiting.
    ///
    /// # Errors
    /// [`Error::Device`] if a launch fails.
    pub fn launch(&self) -> Result<()> {
        self.0.launch()
    }
}

/// Returns the number of own elements of each part.
pub(super) fn lengths<T: Scalar>(vector: &GpuShards<T>) -> impl Iterator<Item = usize> + '_ {
    vector.0.shapes().map(|(own, _)| own.len())
}

/// Returns shapes in the backend's terms: places of own elements, and all elements.
fn pairs(shapes: impl Iterator<Item = Shape>) -> impl Iterator<Item = (Range<usize>, usize)> {
    shapes.map(|shape| (shape.own, shape.len))
}

fn scattered<T: Scalar>(
    mut to: GpuShards<T>,
    partition: &Partition,
    from: &[T],
) -> Result<GpuShards<T>> {
    for part in 0..partition.parts() {
        let own: Vec<T> = partition.of(part).iter().map(|&at| from[at as usize]).collect();
        to.0.write(part, &own)?;
    }
    Ok(to)
}
