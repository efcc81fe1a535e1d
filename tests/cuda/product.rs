//! Products whose results are known.

use ellect::operator::{permute, permute_back};
use ellect::{Csr, PreparedOperator, Scalar, check};

/// A product to compute: its vectors and factors, and the CSR reference of the result.
pub struct Product<T> {
    pub alpha: T,
    pub x: Vec<T>,
    pub beta: T,
    pub y: Vec<T>,
    pub want: Vec<check::RowReference>,
}

impl<T: Scalar> Product<T> {
    /// Computes the reference in CSR.
    pub fn of(csr: &Csr<T>, alpha: T, x: Vec<T>, beta: T, y: Vec<T>) -> Self {
        let want = check::reference(csr, alpha, &x, beta, &y);
        Product { alpha, x, beta, y, want }
    }

    /// Returns y after the product by an operator of the same matrix, in the matrix's own order.
    pub fn by(&self, what: &str, operator: &PreparedOperator<T>) -> Vec<T> {
        let order = operator.permutation();
        let x = order.map_or_else(|| self.x.clone(), |order| permute(&self.x, order));
        let mut y = order.map_or_else(|| self.y.clone(), |order| permute(&self.y, order));
        operator
            .apply(self.alpha, &x, self.beta, &mut y)
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        order.map_or_else(|| y.clone(), |order| permute_back(&y, order))
    }

    /// Checks that an operator computes exactly the reference.
    pub fn check_exact(&self, what: &str, operator: &PreparedOperator<T>) {
        let got = self.by(what, operator);
        for (row, (got, want)) in got.iter().zip(&self.want).enumerate() {
            assert_eq!(got.to_f64(), want.value, "{what}: row {row}, exact");
        }
    }
}

/// Returns products of whole numbers, which are exact in every order of summation.
pub fn exact_products<T: Scalar>(csr: &Csr<T>) -> [Product<T>; 3] {
    let x = check::whole_numbers::<T>(csr.ncols(), 1);
    let y = check::whole_numbers::<T>(csr.nrows(), 2);
    [(1.0, 0.0), (2.0, -1.0), (0.0, 2.0)].map(|(alpha, beta)| {
        Product::of(csr, T::from_f64(alpha), x.clone(), T::from_f64(beta), y.clone())
    })
}
