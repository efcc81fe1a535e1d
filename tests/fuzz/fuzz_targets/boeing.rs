//! Fuzz target: Rutherford-Boeing and Harwell-Boeing files. The first four lines are right in
//! form; the first byte chooses the type and the format of values, the rest follows.
#![no_main]

use libfuzzer_sys::fuzz_target;

const KINDS: [&str; 8] = ["RUA", "RSA", "RZA", "RRA", "PUA", "PSA", "IUA", "RHA"];
const FORMATS: [&str; 4] = ["(3E9.2)", "(1P,4D12.4)", "(8F5.2)", "(4(1PE16.8))"];

fuzz_target!(|bytes: &[u8]| {
    let [choice, ncols, entries, rest @ ..] = bytes else { return };
    let (kind, format) = (KINDS[usize::from(choice % 8)], FORMATS[usize::from(choice / 8 % 4)]);
    let head =
        format!("A title\n5 1 1 1 0\n{kind} {ncols} {ncols} {entries} 0\n(8I4) (8I4) {format}\n");
    ellect_fuzz::check(&[head.as_bytes(), rest].concat());
});
