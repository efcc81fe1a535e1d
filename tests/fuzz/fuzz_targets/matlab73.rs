//! Fuzz target: a MATLAB 7.3 file in which the input replaces bytes: two bytes of an input tell the
//! place, the third is the new byte.
#![no_main]

use libfuzzer_sys::fuzz_target;

const FILE: &[u8] = include_bytes!("../../data/matlab73.mat");

/// Length of the text before HDF5.
const TEXT_BYTES: usize = 512;

fuzz_target!(|bytes: &[u8]| {
    let mut file = FILE.to_vec();
    let (_, hdf5) = file.split_at_mut(TEXT_BYTES);
    for change in bytes.chunks_exact(3) {
        let place = usize::from(u16::from_le_bytes([change[0], change[1]]));
        hdf5[place % (FILE.len() - TEXT_BYTES)] = change[2];
    }
    ellect_fuzz::check(&file);
});
