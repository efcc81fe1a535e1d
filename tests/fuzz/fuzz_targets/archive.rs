//! Fuzz target: tar archives. The checksum of each block that could be a header is made right,
//! which random bytes never do; the first block says that it is ustar.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut archive = bytes.to_vec();
    for (k, block) in archive.chunks_exact_mut(512).enumerate() {
        if k > 0 && &block[257..262] != b"ustar" {
            continue;
        }
        block[257..262].copy_from_slice(b"ustar");
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|&b| u32::from(b)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    ellect_fuzz::check(&archive);
});
