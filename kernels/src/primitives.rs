//! Sums and sorts over arrays on a GPU: `primitives/primitives.cu`, which calls CUB.
//!
//! Every function takes device addresses of the current context and one of its streams. Where
//! `temporary` is null, the function only writes to `bytes` how much temporary memory it needs. The
//! return value is a CUDA error code, 0 for success.
#![allow(unsafe_code, reason = "calls a C library")]

use std::ffi::{c_int, c_void};

unsafe extern "C" {
    /// Computes `sums[i] = (counts[0] + ... + counts[i - 1]) * each` for `i < n`.
    ///
    /// # Safety
    /// The arrays hold `n` numbers each; `temporary` holds the bytes requested.
    pub fn ellect_exclusive_sum(
        temporary: *mut c_void,
        bytes: *mut usize,
        counts: *const u32,
        each: u64,
        sums: *mut u64,
        n: u64,
        stream: *mut c_void,
    ) -> c_int;

    /// Sorts rows by descending keys, of which only the low `bits` bits count; stable.
    ///
    /// # Safety
    /// The arrays hold `n` numbers each and do not overlap; `temporary` holds the bytes requested.
    pub fn ellect_sort_down(
        temporary: *mut c_void,
        bytes: *mut usize,
        keys: *const u64,
        sorted_keys: *mut u64,
        rows: *const u32,
        sorted_rows: *mut u32,
        n: u64,
        bits: c_int,
        stream: *mut c_void,
    ) -> c_int;
}
