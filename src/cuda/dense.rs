//! Dense matrices in the memory of a GPU, whose columns are the vectors of a product.

use super::several::Block;
use super::{DeviceSlice, DeviceSliceMut};
use crate::dense::{Order, Shape};
use crate::error::Result;
use crate::scalar::Scalar;

/// A dense matrix on a GPU to read: the vectors x of a product, one per column.
///
/// The leading dimension is the distance in elements between two columns in column-major order, or
/// between two rows in row-major order.
///
/// ```no_run
/// use ellect::cuda::{DeviceDense, DeviceDenseMut};
/// use ellect::dense::Order;
/// use ellect::{Csr, Tuner, Workload};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = Csr::from_triplets(2, 2, [(0, 0, 4.0), (0, 1, 1.0), (1, 1, 5.0)])?;
/// let operator = Tuner::open("cuda:0")?.prepare(&csr, &Workload::default())?;
/// let a = operator.on_device().expect("prepared on a GPU");
///
/// // Two vectors, one after the other.
/// let (x, mut y) = (a.gpu().vector(&[1.0, 2.0, 10.0, 20.0])?, a.gpu().zeros(4)?);
/// a.apply_many(
///     1.0,
///     DeviceDense::new(Order::ColumnMajor, [2, 2], 2, &x)?,
///     0.0,
///     DeviceDenseMut::new(Order::ColumnMajor, [2, 2], 2, &mut y)?,
/// )?;
/// let mut host = [0.0; 4];
/// y.read(&mut host)?;
/// assert_eq!(host, [6.0, 10.0, 60.0, 100.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct DeviceDense<'a, T> {
    shape: Shape,
    data: DeviceSlice<'a, T>,
}

/// A dense matrix on a GPU to write, and to read if the product adds to it: the vectors y of a product,
/// one per column. See [`DeviceDense`] for an example.
///
/// ```no_run
/// use ellect::cuda::{DeviceDenseMut, Gpu};
/// use ellect::dense::Order;
///
/// # fn main() -> ellect::Result<()> {
/// let mut y = Gpu::open(0)?.zeros::<f64>(6)?;
/// let rows_of_two = DeviceDenseMut::new(Order::RowMajor, [3, 2], 2, &mut y)?;
/// assert_eq!((rows_of_two.nrows(), rows_of_two.ncols()), (3, 2));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct DeviceDenseMut<'a, T> {
    shape: Shape,
    data: DeviceSliceMut<'a, T>,
}

impl<'a, T: Scalar> DeviceDense<'a, T> {
    /// Describes a matrix of `[nrows, ncols]` with this leading dimension; `data` may be longer.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) if the leading dimension is less than a column
    /// (column-major) or a row (row-major), or if `data` is too short.
    pub fn new(
        order: Order,
        [nrows, ncols]: [usize; 2],
        leading: usize,
        data: impl Into<DeviceSlice<'a, T>>,
    ) -> Result<Self> {
        let data = data.into();
        let (shape, _) = Shape::checked(order, [nrows, ncols], leading, data.len())?;
        Ok(DeviceDense { shape, data })
    }

    /// Returns the number of rows: elements of each vector.
    pub fn nrows(&self) -> usize {
        self.shape.nrows
    }

    /// Returns the number of columns: vectors.
    pub fn ncols(&self) -> usize {
        self.shape.ncols
    }

    pub(super) fn data(&self) -> DeviceSlice<'a, T> {
        self.data
    }

    pub(super) fn block(&self) -> Block {
        block(&self.shape, self.data.address())
    }
}

impl<'a, T: Scalar> DeviceDenseMut<'a, T> {
    /// Describes a matrix as [`DeviceDense::new`] does.
    ///
    /// # Errors
    /// As [`DeviceDense::new`].
    pub fn new(
        order: Order,
        [nrows, ncols]: [usize; 2],
        leading: usize,
        data: impl Into<DeviceSliceMut<'a, T>>,
    ) -> Result<Self> {
        let data = data.into();
        let (shape, _) = Shape::checked(order, [nrows, ncols], leading, data.len())?;
        Ok(DeviceDenseMut { shape, data })
    }

    /// Returns the number of rows: elements of each vector.
    pub fn nrows(&self) -> usize {
        self.shape.nrows
    }

    /// Returns the number of columns: vectors.
    pub fn ncols(&self) -> usize {
        self.shape.ncols
    }

    pub(super) fn data(&self) -> &DeviceSliceMut<'a, T> {
        &self.data
    }

    pub(super) fn block(&self) -> Block {
        block(&self.shape, self.data.address())
    }
}

fn block(shape: &Shape, address: u64) -> Block {
    let leading = shape.leading as u64;
    match shape.order {
        Order::ColumnMajor => Block { address, row: 1, vector: leading },
        Order::RowMajor => Block { address, row: leading, vector: 1 },
    }
}
