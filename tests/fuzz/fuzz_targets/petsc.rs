//! Fuzz target: PETSc files, with 32- or 64-bit indices by the first byte.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let [choice, rest @ ..] = bytes else { return };
    let class = 1_211_216_i64 - 2 * i64::from(choice & 2 != 0);
    let head = match choice & 1 {
        0 => class.to_be_bytes()[4..].to_vec(),
        _ => class.to_be_bytes().to_vec(),
    };
    ellect_fuzz::check(&[&head[..], rest].concat());
});
