//! Fuzz target: elements of a MATLAB 5 file, in either byte order by the first byte.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let [choice, rest @ ..] = bytes else { return };
    let order = if choice & 1 == 0 { b"\x00\x01IM" } else { b"\x01\x00MI" };
    let head = [&[b' '; 124][..], order].concat();
    ellect_fuzz::check(&[&head[..], rest].concat());
});
