//! Fuzz target: any bytes are either read or refused, without panic and within the memory limits.
#![no_main]

use ellect::Csr;
use ellect::read::{self, Limits};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits {
        rows: 1 << 16,
        columns: 1 << 16,
        nonzeros: 1 << 16,
        bytes: 1 << 20,
        empty_rows: 1 << 12,
    };
    let read: ellect::Result<Csr<f64>> = read::bytes(bytes, &limits);
    if let Ok(csr) = read {
        assert!(csr.nrows() <= 1 << 16 && csr.nnz() <= 1 << 16);
    }
});
