//! The code balance of padded row formats, and the cost of moving x and y over the host link.
//!
//! Source: M. Kreutzer, G. Hager, G. Wellein, H. Fehske, A. Basermann, A. R. Bishop, Sparse
//! matrix-vector multiplication on GPGPU clusters: a new storage format and a scalable
//! implementation (2012), section 2.2, equations 1 to 4; generalised from f64 to values of `w`
//! bytes. Column indices take 4 bytes, and the matrix is square.

use crate::scalar::Precision;

/// Loads of an element of x from memory per nonzero (alpha in the paper).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reuse {
    /// This many loads per nonzero: 1 if no cache helps.
    Loads(f64),
    /// Every element of x is loaded once: alpha is 1 / (nonzeros per row).
    Once,
}

impl Reuse {
    fn alpha(self, row_nnz: f64) -> f64 {
        match self {
            Reuse::Loads(alpha) => alpha,
            Reuse::Once => 1.0 / row_nnz,
        }
    }
}

/// Returns the code balance, equation 1: bytes moved per flop, with `row_nnz` nonzeros in every
/// row.
pub fn code_balance(row_nnz: f64, reuse: Reuse, precision: Precision) -> f64 {
    let w = precision.bytes() as f64;
    (w + 4.0 + w * reuse.alpha(row_nnz) + 2.0 * w / row_nnz) / 2.0
}

/// Returns the time of a product in seconds, equation 2, left: `nrows` rows on a device with a
/// memory bandwidth of `gpu_gbps` GB/s.
pub fn product_s(
    nrows: f64,
    row_nnz: f64,
    reuse: Reuse,
    gpu_gbps: f64,
    precision: Precision,
) -> f64 {
    2.0 * nrows * row_nnz * code_balance(row_nnz, reuse, precision) / (gpu_gbps * 1e9)
}

/// Returns the time in seconds to copy x in and y out over a link of `link_gbps` GB/s, equation 2,
/// right.
pub fn link_s(nrows: usize, ncols: usize, link_gbps: f64, precision: Precision) -> f64 {
    (nrows + ncols) as f64 * precision.bytes() as f64 / (link_gbps * 1e9)
}

/// Returns the nonzeros per row at which a product takes `times` as long as copying x and y, if the
/// device's memory is `ratio` times as fast as the link (equations 3 and 4).
///
/// With `times` = 1 (equation 3), fewer nonzeros per row mean that copying takes more than half of
/// the total time. With `times` = 10 (equation 4), more nonzeros per row mean that copying takes
/// less than a tenth of the product's time.
pub fn row_nnz_at(times: f64, ratio: f64, reuse: Reuse, precision: Precision) -> f64 {
    let index = 4.0 / precision.bytes() as f64;
    let right = 2.0 * (times * ratio - 1.0);
    match reuse {
        Reuse::Loads(alpha) => right / (alpha + 1.0 + index),
        // alpha * row_nnz is 1 and moves to the right side.
        Reuse::Once => (right - 1.0) / (1.0 + index),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scalar::Precision::{F32, F64};

    #[test]
    fn the_code_balance_is_the_papers_in_f64() {
        for (row_nnz, alpha) in [(7.0, 1.0), (315.0, 0.25)] {
            let paper = 6.0 + 4.0 * alpha + 8.0 / row_nnz;
            assert!((code_balance(row_nnz, Reuse::Loads(alpha), F64) - paper).abs() < 1e-12);
        }
        let once = 6.0 + 4.0 / 144.0 + 8.0 / 144.0;
        assert!((code_balance(144.0, Reuse::Once, F64) - once).abs() < 1e-12);
        assert_eq!(code_balance(8.0, Reuse::Loads(1.0), F32), 6.5);
    }

    #[test]
    fn product_and_transfer_are_equation_2() {
        let (n, row_nnz, alpha, bandwidth) = (1e6, 15.0, 0.5, 91.0);
        let paper = 8.0 * n / (bandwidth * 1e9) * (row_nnz * (alpha + 1.5) + 2.0);
        let ours = product_s(n, row_nnz, Reuse::Loads(alpha), bandwidth, F64);
        assert!((ours / paper - 1.0).abs() < 1e-12);
        let link = link_s(1_000_000, 1_000_000, 6.0, F64);
        assert!((link - 16.0 * n / 6e9).abs() < 1e-12);
    }

    #[test]
    fn the_link_halves_the_speed_up_to_7_or_25_a_row() {
        assert_eq!(row_nnz_at(1.0, 10.0, Reuse::Loads(1.0), F64).floor(), 7.0);
        assert_eq!(row_nnz_at(1.0, 20.0, Reuse::Once, F64).round(), 25.0);
    }

    #[test]
    fn the_link_is_a_tenth_from_80_or_266_a_row() {
        assert_eq!(row_nnz_at(10.0, 10.0, Reuse::Loads(1.0), F64).ceil(), 80.0);
        // The paper rounds "about 20 times as fast" up: 264.7 is within its 266.
        let needed = row_nnz_at(10.0, 20.0, Reuse::Once, F64);
        assert!((264.0..=266.0).contains(&needed), "{needed}");
    }

    #[test]
    fn at_the_returned_rows_both_times_are_as_asked() {
        for precision in Precision::ALL {
            for reuse in [Reuse::Loads(0.3), Reuse::Once] {
                let row_nnz = row_nnz_at(4.0, 30.0, reuse, precision);
                let product = product_s(1e5, row_nnz, reuse, 300.0, precision);
                let link = link_s(100_000, 100_000, 10.0, precision);
                assert!((product / link - 4.0).abs() < 1e-9);
            }
        }
    }
}
