//! Fuzz target: any bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| ellect_fuzz::check(bytes));
