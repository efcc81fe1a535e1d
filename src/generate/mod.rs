//! Seeded generators of test matrices: the same arguments give the same matrix on every machine,
//! over any number of threads.

mod graph;
mod grid;
mod mesh;
mod random;

use crate::csr::Csr;
use crate::error::{Error, Result};
pub use graph::{banded, circuit, poisson, power_law, rmat, uniform};
pub use grid::{Coefficients, Points, convection_diffusion, stencil};
pub use mesh::{elasticity, heat};
pub use random::random_order;

/// A class of matrices.
#[derive(Debug)]
pub struct Class {
    /// Its name.
    pub name: &'static str,
    /// What it is, in one sentence.
    pub doc: &'static str,
    /// Makes the one of about this many rows.
    make: fn(rows: usize, seed: u64) -> Csr<f64>,
}

const fn class(name: &'static str, doc: &'static str, make: fn(usize, u64) -> Csr<f64>) -> Class {
    Class { name, doc, make }
}

/// Every class, by name.
pub static CLASSES: &[Class] = &[
    class("stencil5", "Poisson problem on a square, 5 points", |rows, seed| {
        stencil(Points::Five, Coefficients::Varying, edge(rows, 2), seed)
    }),
    class("stencil9", "Poisson problem on a square, 9 points", |rows, seed| {
        stencil(Points::Nine, Coefficients::Varying, edge(rows, 2), seed)
    }),
    class("stencil7", "Poisson problem on a cube, 7 points", |rows, seed| {
        stencil(Points::Seven, Coefficients::Varying, edge(rows, 3), seed)
    }),
    class("stencil27", "Poisson problem on a cube, 27 points", |rows, seed| {
        stencil(Points::TwentySeven, Coefficients::Varying, edge(rows, 3), seed)
    }),
    class("constant7", "the same with 7 points and one coefficient", |rows, seed| {
        stencil(Points::Seven, Coefficients::Constant, edge(rows, 3), seed)
    }),
    class(
        "convection_diffusion",
        "convection and diffusion in a cube (pde50 to pde100)",
        |rows, _| convection_diffusion(edge(rows, 3)),
    ),
    class(
        "elasticity",
        "linear elasticity on jittered tetrahedra, 3 unknowns a node",
        |rows, seed| elasticity(edge(rows / 3, 3), seed),
    ),
    class("heat", "heat conduction on jittered tetrahedra", |rows, seed| heat(edge(rows, 3), seed)),
    class("circuit", "resistors between near nodes, and a few nodes that many share", circuit),
    class("rmat", "R-MAT graph, 16 edges a node", |rows, seed| rmat(rows.max(2).ilog2(), 16, seed)),
    class("uniform", "16 entries a row, anywhere", |rows, seed| uniform(rows, 16, seed)),
    class(
        "poisson",
        "a Poisson-distributed number of entries a row, 8 on average, anywhere",
        |rows, seed| poisson(rows, 8.0, seed),
    ),
    class("power_law", "row lengths of a power law, entries anywhere", power_law),
    class("banded", "half of the entries within 20 columns of the diagonal", |rows, seed| {
        banded(rows, 20, 0.5, seed)
    }),
];

/// The matrix of this class with about `rows` rows.
///
/// # Errors
/// [`Error::Argument`] with the known names.
pub fn by_name(name: &str, rows: usize, seed: u64) -> Result<Csr<f64>> {
    let class = CLASSES.iter().find(|class| class.name == name).ok_or_else(|| {
        let known: Vec<_> = CLASSES.iter().map(|class| class.name).collect();
        Error::argument(format!("no class is named '{name}'; there are: {}", known.join(", ")))
    })?;
    if rows == 0 || rows > MOST_ROWS {
        return Err(Error::argument(format!("{rows} rows; there must be 1 to {MOST_ROWS}")));
    }
    Ok((class.make)(rows, seed))
}

/// The most rows of a generated matrix.
pub const MOST_ROWS: usize = 1 << 30;

/// The edge of the square or cube with about so many points.
fn edge(points: usize, dimensions: i32) -> usize {
    (points as f64).powf(1.0 / f64::from(dimensions)).round().max(1.0) as usize
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
            let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().expect("a pool");
            assert_eq!(pool.install(|| (class.make)(1000, 3)), csr, "{}", class.name);
        }
        assert!(by_name("nosuch", 10, 0).is_err());
        assert!(by_name("uniform", 0, 0).is_err());
    }

    #[test]
    fn problems_with_an_energy_are_symmetric() {
        for name in ["stencil7", "elasticity", "heat", "circuit"] {
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
