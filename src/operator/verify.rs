//! Checks of an operator's products with the CSR reference.

use super::PreparedOperator;
use crate::check;
use crate::csr::CsrRef;
use crate::error::Result;
use crate::permutation::{permute, permute_back};
use crate::scalar::Scalar;

impl<T: Scalar> PreparedOperator<T> {
    /// Compares one product with the CSR reference of `csr`, for x and y generated from `seed`.
    ///
    /// # Errors
    /// [`Error::WrongProduct`](crate::Error::WrongProduct) with the worst row;
    /// [`Error::Shape`](crate::Error::Shape) if `csr` has other dimensions.
    pub fn verify<'a>(&self, csr: impl Into<CsrRef<'a, T>>, seed: u64) -> Result<()> {
        self.verify_many(csr, 1, seed)
    }

    /// Compares a product of `vectors` vectors with the CSR reference, like
    /// [`PreparedOperator::verify`].
    ///
    /// # Errors
    /// As [`PreparedOperator::verify`].
    pub fn verify_many<'a>(
        &self,
        csr: impl Into<CsrRef<'a, T>>,
        vectors: usize,
        seed: u64,
    ) -> Result<()> {
        let csr = csr.into();
        let (alpha, beta) = (T::from_f64(1.5), T::from_f64(-0.5));
        let order = self.permutation();
        let x = seeded(csr.ncols(), vectors, seed, order);
        let mut y = seeded(csr.nrows(), vectors, seed ^ 1, order);
        self.multiply((alpha, beta), vectors, &x, &mut y)?;
        for (vector, got) in y.chunks(self.nrows.max(1)).enumerate() {
            let back = order.map(|order| permute_back(got, order));
            let seed = check::seed_of(seed, vector);
            let (x, y) = (check::vector(csr.ncols(), seed), check::vector(csr.nrows(), seed ^ 1));
            let reference = check::reference(csr, alpha, &x, beta, &y);
            self.check_product(&reference, back.as_deref().unwrap_or(got))?;
        }
        Ok(())
    }
}

/// Returns `vectors` seeded vectors of `len` elements one after the other, each in this order.
pub(crate) fn seeded<T: Scalar>(
    len: usize,
    vectors: usize,
    seed: u64,
    order: Option<&[u32]>,
) -> Vec<T> {
    let one = |vector| {
        let own: Vec<T> = check::vector(len, check::seed_of(seed, vector));
        order.map_or_else(|| own.clone(), |order| permute(&own, order))
    };
    match (vectors, order) {
        (1, None) => check::vector(len, seed),
        _ => (0..vectors).flat_map(one).collect(),
    }
}
