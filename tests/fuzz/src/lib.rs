//! The check of all fuzz targets: bytes are either read or refused, without panic and within the
//! memory limits.
//!
//! A million runs of each target:
//!
//! ```sh
//! for target in read archive boeing petsc matlab matlab73; do
//!     cargo +nightly fuzz run "$target" --fuzz-dir tests/fuzz -- -runs=1000000 -rss_limit_mb=512
//! done
//! ```

use ellect::read::{Complex, Limits, Options};

/// Reads `bytes` within tight limits, and checks them.
pub fn check(bytes: &[u8]) {
    let limits = Limits {
        rows: 1 << 16,
        columns: 1 << 16,
        nonzeros: 1 << 16,
        bytes: 1 << 20,
        empty_rows: 1 << 12,
    };
    let options = Options { limits, complex: Complex::RealPart, member: None };
    if let Ok(found) = options.bytes::<f64>(bytes) {
        assert!(found.csr.nrows() <= 1 << 16 && found.csr.nnz() <= 1 << 16);
    }
}
