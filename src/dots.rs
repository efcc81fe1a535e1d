//! Dot products of the result of a product: (y, x), (y, y) and (y, z) of y = alpha A x + beta y.
//!
//! Krylov solvers need them in each iteration; `apply_dot` of
//! [`PreparedOperator`](crate::PreparedOperator) and of `GpuOperator` computes them with the product, on
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

/// The dot products of one product, checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<V> {
    /// Number of dot products.
    pub count: usize,
    /// A bit for each of (y, x), (y, y) and (y, z), set if it is computed.
    pub bits: u32,
    /// The dot product that each result is, two bits each: 0 for (y, x), 1 for (y, y), 2 for (y, z).
    pub places: u32,
    /// The vector z.
    pub z: Option<V>,
}

impl<V: Copy> Wanted<V> {
    /// Checks a list of dot products for a matrix of `nrows` rows and `ncols` columns and this many
    /// results; `len` returns the number of elements of a vector.
    ///
    /// # Errors
    /// [`Error::Argument`] for more than [`MOST`] dot products, several with other vectors, or one with x
    /// where the matrix is not square; [`Error::Shape`] if z or the results have another length.
    pub fn of(
        with: &[DotWith<V>],
        [nrows, ncols]: [usize; 2],
        results: usize,
        len: impl Fn(V) -> usize,
    ) -> Result<Self> {
        let count = with.len();
        if count > MOST {
            return Err(Error::argument(format!(
                "{count} dot products were asked for, and a product computes at most {MOST}; compute \
                 the others on their own"
            )));
        }
        if results != count {
            return Err(Error::Shape { what: "the list of results", got: results, needed: count });
        }
        let mut wanted = Wanted { count, bits: 0, places: 0, z: None };
        for (i, one) in with.iter().enumerate() {
            let place = match *one {
                DotWith::X if nrows != ncols => {
                    return Err(Error::argument(format!(
                        "the dot product (y, x) needs a square matrix, and this one has {nrows} rows \
                         and {ncols} columns; leave DotWith::X out"
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
                    if len(z) != nrows {
                        return Err(Error::Shape { what: "z", got: len(z), needed: nrows });
                    }
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

/// Computes the dot products of y on this host, in double precision and in an order that depends on the
/// length alone.
pub(crate) fn compute<T: Scalar>(wanted: &Wanted<&[T]>, x: &[T], y: &[T], results: &mut [T]) {
    let of_chunk = |chunk: usize| {
        let range = chunk * CHUNK..((chunk + 1) * CHUNK).min(y.len());
        let others = [Some(x), Some(y), wanted.z].map(|other| other?.get(range.clone()));
        let mut sums = [0.0; MOST];
        for (place, (sum, other)) in sums.iter_mut().zip(others).enumerate() {
            if wanted.bits >> place & 1 == 1 {
                let pairs = y[range.clone()].iter().zip(other.unwrap_or_default());
                *sum = pairs.map(|(y, other)| y.to_f64() * other.to_f64()).sum();
            }
        }
        sums
    };
    let chunks = par::map(y.len().div_ceil(CHUNK), 4, of_chunk);
    for (i, result) in results.iter_mut().enumerate().take(wanted.count) {
        *result = T::from_f64(chunks.iter().map(|sums| sums[wanted.place(i)]).sum());
    }
}
