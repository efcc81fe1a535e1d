//! The compiled module `ellect._ellect` of the Python package `ellect`.
//!
//! Python code converts matrices and vectors to plain arrays; this module reads these arrays
//! through the buffer protocol, or by their addresses on a GPU, and calls the library with Python's
//! global lock released. Answers are JSON, as on the command line. Errors and panics of the library
//! become exceptions of `ellect`.
//!
//! The workspace's first build and `cargo test --workspace` leave this package out; the script
//! `api/python/ci.sh` builds and tests it.

mod arrays;
mod errors;
mod fused;
#[cfg(feature = "cuda")]
mod gpu;
mod operator;
mod program;
#[cfg(feature = "cuda")]
mod quick;
mod rank;
mod tensor;
mod tuner;

use pyo3::prelude::*;

#[pymodule]
mod _ellect {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::arrays::Matrix;
    #[pymodule_export]
    use crate::operator::Operator;
    #[pymodule_export]
    use crate::program::run_program;
    #[pymodule_export]
    use crate::rank::{Rank, RankOperator};
    #[pymodule_export]
    use crate::tensor::Tensor;
    #[pymodule_export]
    use crate::tuner::{Tuner, feature_table};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("VERSION", env!("CARGO_PKG_VERSION"))?;
        module.add("CUDA", cfg!(feature = "cuda"))
    }
}
