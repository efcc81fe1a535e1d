//! Steps in the pass of a product y = alpha A x + beta y: dot products (y, x), (y, y) and (y, z), and
//! w = w + gamma y.
//!
//! Solvers need them in each iteration; `apply_dot` and `apply_fused` of
//! [`PreparedOperator`](crate::PreparedOperator) and of `GpuOperator` compute them with the product, on
//! a GPU in the same pass where the format can.

use ellect_kernels::shared;

use crate::error::{Error, Result};
use crate::par;
use crate::scalar::Scalar;

/// Maximum number of dot products with one product.
pub const MOST: usize = shared("DOTS_MOST") as usize;

/// The other vector of a dot product with y, the result of a product.
///
/// ```
/// use ellect::dots::DotWith;
/// use ellect::{Csr, Tuner, Workload};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = Csr::from_triplets(2, 2, [(0, 0, 2.0), (0, 1, 1.0), (1, 1, 3.0)])?;
/// let a = Tuner::open("cpu")?.prepare(&csr, &Workload::default())?;
/// let (p, mut q, mut dots) = ([1.0, 2.0], [0.0; 2], [0.0; 2]);
/// a.apply_dot(1.0, &p, 0.0, &mut q, &[DotWith::X, DotWith::Z(&[1.0, 1.0])], &mut dots)?;
/// assert_eq!((q, dots), ([4.0, 6.0], [16.0, 10.0]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DotWith<V> {
    /// x: the dot product (y, x), of a square matrix.
    X,
    /// y itself: (y, y).
    Y,
    /// Another vector of as many elements as y: (y, z).
    Z(V),
}

impl<V: Copy> DotWith<V> {
    /// Returns the dot product with `of(z)` in place of z.
    pub fn map<U>(self, of: impl FnOnce(V) -> U) -> DotWith<U> {
        match self {
            DotWith::X => DotWith::X,
            DotWith::Y => DotWith::Y,
            DotWith::Z(z) => DotWith::Z(of(z)),
        }
    }
}

/// A list of what one pass computes in addition to y = alpha A x + beta y: dot products of the new y,
/// and w = w + gamma y.
///
/// `V` is a vector to read and `W` one to write: `&[T]` and `&mut [T]` on a host, `DeviceSlice` and
/// `DeviceSliceMut` on a GPU, and addresses for `GpuOperator::apply_fused_raw`.
///
/// ```
/// use ellect::dots::{DotWith, Fused};
/// use ellect::{Csr, Tuner, Workload};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = Csr::from_triplets(2, 2, [(0, 0, 2.0), (0, 1, 1.0), (1, 1, 3.0)])?;
/// let a = Tuner::open("cpu")?.prepare(&csr, &Workload::default())?;
/// let (x, mut y, mut w, mut dots) = ([1.0, 2.0], [0.0; 2], [9.0; 2], [0.0; 1]);
/// let fused = Fused::new().dots(&[DotWith::Y], &mut dots[..]).add(-1.0, &mut w[..]);
/// a.apply_fused(1.0, &x, 0.0, &mut y, fused)?;
/// assert_eq!((y, dots, w), ([4.0, 6.0], [52.0], [5.0, 3.0]));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Fused<'a, T, V, W> {
    /// Dot products of the new y.
    pub with: &'a [DotWith<V>],
    /// Their results, in the same order.
    pub results: Option<W>,
    /// gamma and w of w = w + gamma y; w has as many elements as y.
    pub add: Option<(T, W)>,
}

impl<T, V, W> Default for Fused<'_, T, V, W> {
    fn default() -> Self {
        Fused { with: &[], results: None, add: None }
    }
}

impl<'a, T, V, W> Fused<'a, T, V, W> {
    /// Creates a list of nothing: y alone is computed.
    pub fn new() -> Self {
        Fused::default()
    }

    /// Asks for dot products of the new y, which are written to `results` in the order of `with`.
    #[must_use]
    pub fn dots(self, with: &'a [DotWith<V>], results: impl Into<W>) -> Self {
        Fused { with, results: Some(results.into()), ..self }
    }

    /// Asks for w = w + gamma y with the new y; w has as many elements as y.
    #[must_use]
    pub fn add(self, gamma: T, w: impl Into<W>) -> Self {
        Fused { add: Some((gamma, w.into())), ..self }
    }

    /// Checks the lengths of z, w and the results for a matrix of `nrows` rows; `len` and `len_mut` return
    /// the number of elements of a vector.
    ///
    /// # Errors
    /// [`Error::Shape`] if one has another length.
    pub(crate) fn check_lengths(
        &self,
        nrows: usize,
        len: impl Fn(&V) -> usize,
        len_mut: impl Fn(&W) -> usize,
    ) -> Result<()> {
        let results = self.results.as_ref().map_or(0, &len_mut);
        let mut lengths = vec![("the list of results", results, self.with.len())];
        lengths.extend(self.add.iter().map(|(_, w)| ("w", len_mut(w), nrows)));
        lengths.extend(self.with.iter().filter_map(|one| match one {
            DotWith::Z(z) => Some(("z", len(z), nrows)),
            DotWith::X | DotWith::Y => None,
        }));
        match lengths.into_iter().find(|(_, got, needed)| got != needed) {
            Some((what, got, needed)) => Err(Error::Shape { what, got, needed }),
            None => Ok(()),
        }
    }
}

/// The list of what one pass computes of y, checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<V> {
    /// Number of dot products.
    pub count: usize,
    /// A bit for each of (y, x), (y, y) and (y, z), set if it is computed, and [`ADD`].
    pub bits: u32,
    /// The dot product that each result is, two bits each: 0 for (y, x), 1 for (y, y), 2 for (y, z).
    pub places: u32,
    /// The vector z.
    pub z: Option<V>,
}

/// The bit of [`Wanted::bits`] that is set if w = w + gamma y is computed.
const ADD: u32 = shared("DOTS_ADD") as u32;

impl<V: Copy> Wanted<V> {
    /// Checks what is computed with a product of a matrix of `nrows` rows and `ncols` columns, but for
    /// [`Fused::check_lengths`].
    ///
    /// # Errors
    /// [`Error::Argument`] for more than [`MOST`] dot products, several with other vectors, or one with x
    /// where the matrix is not square.
    pub fn of<T, W>(fused: &Fused<'_, T, V, W>, [nrows, ncols]: [usize; 2]) -> Result<Self> {
        let count = fused.with.len();
        if count > MOST {
            return Err(Error::argument(format!(
                "{count} dot products were asked for, and a product computes at most {MOST}; compute \
                 the others on their own"
            )));
        }
        let bits = if fused.add.is_some() { ADD } else { 0 };
        let mut wanted = Wanted { count, bits, places: 0, z: None };
        for (i, one) in fused.with.iter().enumerate() {
            let place = match *one {
                DotWith::X if nrows != ncols => {
                    return Err(Error::argument(format!(
                        "the dot product (y, x) needs a square matrix, and this one has {nrows} rows \
                         and {ncols} columns; leave it out"
                    )));
                }
                DotWith::X => 0,
                DotWith::Y => 1,
                DotWith::Z(_) if wanted.z.is_some() => {
                    return Err(Error::argument(
                        "two dot products with other vectors were asked for, and a product computes \
                         one; compute the other on its own",
                    ));
                }
                DotWith::Z(z) => {
                    wanted.z = Some(z);
                    2
                }
            };
            wanted.bits |= 1 << place;
            wanted.places |= place << (2 * i);
        }
        Ok(wanted)
    }

    /// Returns the place of dot product `i` of the list: 0 for (y, x), 1 for (y, y), 2 for (y, z).
    pub fn place(&self, i: usize) -> usize {
        (self.places >> (2 * i) & 3) as usize
    }
}

/// Elements whose products are summed by one thread.
const CHUNK: usize = 4096;

/// Computes the dot products of y and w = w + gamma y on this host. Dot products are added in double
/// precision and in an order that depends on the length alone.
pub(crate) fn compute<T: Scalar>(
    wanted: &Wanted<&[T]>,
    fused: Fused<'_, T, &[T], &mut [T]>,
    x: &[T],
    y: &[T],
) {
    let (gamma, w) = fused.add.unwrap_or((T::ZERO, &mut []));
    let parts_of_w = w.chunks_mut(CHUNK).chain(std::iter::repeat_with(Default::default));
    let count = y.len().div_ceil(CHUNK);
    let mut chunks: Vec<(&mut [T], [f64; MOST])> =
        parts_of_w.map(|w| (w, [0.0; MOST])).take(count).collect();
    par::for_each(&mut chunks, 4, |chunk, (w, sums)| {
        let range = chunk * CHUNK..((chunk + 1) * CHUNK).min(y.len());
        let others = [Some(x), Some(y), wanted.z].map(|other| other?.get(range.clone()));
        for (place, (sum, other)) in sums.iter_mut().zip(others).enumerate() {
            if wanted.bits >> place & 1 == 1 {
                let pairs = y[range.clone()].iter().zip(other.unwrap_or_default());
                *sum = pairs.map(|(y, other)| y.to_f64() * other.to_f64()).sum();
            }
        }
        for (w, &y) in w.iter_mut().zip(&y[range]) {
            *w += gamma * y;
        }
    });
    for (i, result) in fused.results.unwrap_or_default().iter_mut().enumerate().take(wanted.count) {
        *result = T::from_f64(chunks.iter().map(|(_, sums)| sums[wanted.place(i)]).sum());
    }
}
