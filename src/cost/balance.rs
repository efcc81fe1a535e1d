//! The cost of moving x and y over the host link.
//!
//! Source: M. Kreutzer, G. Hager, G. Wellein, H. Fehske, A. Basermann, A. R. Bishop, Sparse
//! matrix-vector multiplication on GPGPU clusters: a new storage format and a scalable
//! implementation (2012), section 2.2, equation 2.

use crate::scalar::Precision;

/// Returns the time in seconds to copy x in and y out over a link of `link_gbps` GB/s, equation 2,
/// right.
pub fn link_s(nrows: usize, ncols: usize, link_gbps: f64, precision: Precision) -> f64 {
    (nrows + ncols) as f64 * precision.bytes() as f64 / (link_gbps * 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scalar::Precision::{F32, F64};

    #[test]
    fn both_vectors_cross_the_link() {
        let link = |precision| link_s(1_000_000, 1_000_000, 6.0, precision);
        assert!((link(F64) - 16e6 / 6e9).abs() < 1e-12);
        assert_eq!(link(F32), link(F64) / 2.0);
    }
}
