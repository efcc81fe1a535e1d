//! Seeded generators of test matrices: the same arguments give the same matrix on every machine,
//! with any number of threads.
//!
//! [`CLASSES`] is the table of matrix classes. A [`Spec`] names one matrix by class, number of
//! rows, order and seed. [`corpus()`] returns the specs of a whole set. [`scaled()`] enlarges a
//! given matrix.

mod blocks;
mod classes;
mod corpus;
mod graph;
mod grid;
mod mesh;
mod network;
mod optimization;
mod quadratic;
mod quantum;
mod random;
mod scaled;
mod spec;
mod unweighted;

use crate::csr::Csr;
use crate::error::Result;
pub use blocks::{Neighbours, block_system, elasticity_hex, pose_graph};
pub use classes::{CLASSES, Class};
pub use corpus::{Size, corpus};
pub use graph::{
    banded, banded_outliers, chung_lu, circuit, poisson, power_law, rmat, uniform, web,
};
pub use grid::{Coefficients, Points, convection_diffusion, stencil};
pub use mesh::{elasticity, heat};
pub use network::{power_flow, road, triangles};
pub use optimization::{kkt, least_squares, linear_program};
pub use quadratic::{p2, taylor_hood};
pub use quantum::holstein_hubbard;
pub use random::{random_order, with_drawn_values};
pub use scaled::scaled;
pub use spec::{MOST_ROWS, Order, Spec};
pub use unweighted::{cover, followers, friends, incidence, laplacian, links};

/// Generates the matrix of this class with about `rows` rows, in its natural order.
///
/// # Errors
/// As [`Spec::new`].
pub fn by_name(name: &str, rows: usize, seed: u64) -> Result<Csr<f64>> {
    Ok(Spec::new(name, rows, Order::Natural, seed)?.make())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_makes_about_the_rows_asked_for_and_the_same_again() {
        for class in CLASSES {
            let csr = by_name(class.name, 1000, 3).expect("listed");
            assert!((400..2000).contains(&csr.nrows()), "{}: {}", class.name, csr.nrows());
            assert!(csr.nnz() > csr.nrows(), "{}", class.name);
            assert!(csr.values().iter().all(|value| value.is_finite()), "{}", class.name);
            let first = |like: &str| CLASSES.iter().any(|c| c.name == like && c.like.is_none());
            assert!(class.like.is_none_or(first), "{}", class.name);
            let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().expect("a pool");
            assert_eq!(pool.install(|| (class.make)(1000, 3)), csr, "{}", class.name);
        }
        assert!(by_name("nosuch", 10, 0).is_err());
        assert!(by_name("uniform", 0, 0).is_err());
    }

    #[test]
    fn what_is_said_to_be_symmetric_is() {
        for name in [
            "stencil7",
            "elasticity",
            "elasticity_hex",
            "heat",
            "triangles",
            "p2",
            "taylor_hood",
            "pose_graph",
            "holstein_hubbard",
            "kkt",
            "road",
            "circuit",
            "chung_lu",
        ] {
            let csr = by_name(name, 600, 1).expect("listed");
            for i in 0..csr.nrows() {
                let (columns, values) = csr.row(i);
                for (&j, &value) in columns.iter().zip(values) {
                    let (back, mirrored) = csr.row(j as usize);
                    let at = back.binary_search(&(i as u32)).expect("symmetric pattern");
                    let bound = 1e-12 * (1.0 + value.abs());
                    assert!((mirrored[at] - value).abs() <= bound, "{name}: {i}, {j}");
                }
            }
        }
    }
}
