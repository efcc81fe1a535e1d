//! C interface of ellect: opaque handles, status codes and JSON. `include/ellect.h` is generated from
//! this crate and holds its documentation.
//!
//! Every function checks its arguments and returns a status; no panic crosses to the caller. Modules,
//! ground floor first: [`status`] (codes and the last error), [`input`] (arguments of C callers),
//! [`csr`], [`arrays`], [`directions`], [`gpu`], [`matrix`], [`tuner`], [`operator`], [`many`],
//! [`transposed`], [`fused`], [`rank`].

mod arrays;
mod csr;
mod directions;
mod fused;
#[cfg_attr(not(feature = "cuda"), path = "gpu_none.rs")]
mod gpu;
mod input;
mod many;
mod matrix;
mod operator;
mod rank;
mod status;
mod transposed;
mod tuner;
