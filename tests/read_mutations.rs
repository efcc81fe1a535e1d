//! Damaged files of every form: thousands of mutations of each sample are read or refused, without
//! panic and without memory beyond what the file bears out.

mod forms;
mod input;

use allocation_counter::measure;
use ellect::read::{Complex, Limits, Options};
use forms::matlab73::{Layout, Matlab73};
use forms::*;
use input::{Npz, gzip, zstd_of};

/// Mutations of each sample.
const MUTATIONS: u64 = 4000;

/// Limits that bound what a damaged file may cost.
const TIGHT: Limits = Limits {
    rows: 1 << 20,
    columns: 1 << 20,
    nonzeros: 1 << 20,
    bytes: 1 << 20,
    empty_rows: 1 << 10,
};

/// Memory that a reader may hold for a file of a few kilobytes: blocks of text that are parsed in
/// parallel, windows and dictionaries of up to 8 MiB, and a decompressed megabyte.
const MOST_BYTES: u64 = 48 << 20;

/// The next number of a fixed sequence (SplitMix64).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Changes up to four places: other bytes, extreme numbers, cuts, repeats and insertions.
fn mutate(content: &[u8], state: &mut u64) -> Vec<u8> {
    let mut content = content.to_vec();
    for _ in 0..=next(state) % 4 {
        if content.is_empty() {
            break;
        }
        let at = next(state) as usize % content.len();
        let byte = next(state) as u8;
        match next(state) % 8 {
            0..=2 => content[at] = byte,
            3 => content[at] = [0, 1, 0x7f, 0x80, 0xff, b'9', b'-', b' '][usize::from(byte % 8)],
            4 => content[at..].iter_mut().take(8).for_each(|b| *b = 0xff),
            5 => content.truncate(at),
            6 => {
                let end = (at + usize::from(byte % 32)).min(content.len());
                let part = content[at..end].to_vec();
                content.splice(at..at, part);
            }
            _ => content.insert(at, byte),
        }
    }
    content
}

/// Returns a sample of each form, uncompressed where the form is, so that mutations reach it.
fn samples() -> Vec<(&'static str, Vec<u8>)> {
    let (m, b) = (Matlab { big: false }, Matlab { big: true });
    let hdf5 = Matlab73::default();
    let deflated = Matlab73 { layout: Layout::Deflated { chunk: 2 } };
    let values = "  4.00E+00  2.00E+00  5.00E+00\n  1.00E+00  6.00E+00\n";
    let members: [(&str, &[u8]); 3] =
        [("s/s.mtx", &plain()), ("s/s_b.mtx", &vector()), ("s/readme", b"text")];
    let mut long = Vec::new();
    tar_entry(&mut long, "././@LongLink", b'L', b"a/long/name.mtx\0");
    tar_entry(&mut long, "a", b'0', &plain());
    tar_entry(&mut long, "pax", b'x', b"18 path=b/b.mtx.c\n");
    tar_entry(&mut long, "b", b'0', b"no matrix");
    let json = br#"{"shape":[3,3],"indptr":[0,2,3,5],"indices":[0,2,1,0,2],"data":[4,1,5,2,6]}"#;
    let complex = "%%MatrixMarket matrix coordinate complex hermitian\n2 2 2\n1 1 4 0\n2 1 2 0\n";
    let array = "%%MatrixMarket matrix array real skew-symmetric\n3 3\n0\n1\n2\n0\n3\n0\n";
    let structure =
        m.structure("Problem", &[("name", m.dense("")), ("A", m.sparse("")), ("b", m.dense(""))]);
    vec![
        ("Matrix Market", plain()),
        ("complex", complex.into()),
        ("array", array.into()),
        ("Boeing", rua("(3E10.2)", values)),
        ("PETSc 32", petsc(4)),
        ("PETSc 64", petsc(8)),
        ("MATLAB", m.file(&[m.sparse("A"), m.dense("b")])),
        ("MATLAB big-endian", b.file(&[b.sparse("A")])),
        ("MATLAB structure", m.file(std::slice::from_ref(&structure))),
        ("MATLAB compressed", m.file(&[m.compressed(&structure)])),
        ("MATLAB 7.3", hdf5.file(vec![hdf5.structure("Problem", vec![hdf5.sparse("A")])])),
        ("MATLAB 7.3 by another library", include_bytes!("data/matlab73.mat").to_vec()),
        ("MATLAB 7.3 compressed", deflated.file(vec![deflated.sparse("A")])),
        ("tar", tar(&members)),
        ("tar of long names", long),
        ("zip", zip_of(&members)),
        ("npz", plain_npz().stored()),
        ("bsr", bsr().stored()),
        ("dia", dia().stored()),
        ("half", csr_npz("<f2", &[0; 10]).stored()),
        ("gzip", gzip(&plain())),
        ("bzip2", bzip2(&plain())),
        ("xz", xz(&plain(), 10)),
        ("zstd", [skippable(&[1; 9]), zstd_of(&plain())].concat()),
        ("JSON", json.to_vec()),
    ]
}

#[test]
fn mutated_files_are_read_or_refused_within_the_limits() {
    let options = Options { limits: TIGHT, complex: Complex::RealPart, member: None };
    // On one thread, so that the counter sees all memory and the run repeats.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a thread");
    for (form, content) in samples() {
        assert!(options.bytes::<f64>(&content).is_ok(), "{form} is valid");
        let mut state = 41;
        for k in 0..MUTATIONS {
            let mutated = mutate(&content, &mut state);
            let mut read = None;
            let memory = pool.install(|| measure(|| read = Some(options.bytes::<f64>(&mutated))));
            assert!(memory.bytes_max < MOST_BYTES, "{form} {k}: {} bytes", memory.bytes_max);
            if let Some(Ok(found)) = read {
                assert!(found.csr.nnz() as u64 <= TIGHT.nonzeros, "{form} {k}");
            }
        }
    }
}

/// Mutations inside of arrays and members, behind which the archive's checksums are right.
#[test]
fn mutated_members_are_read_or_refused() {
    let options = Options { limits: TIGHT, ..Options::default() };
    for (form, npz) in [("bsr", bsr()), ("dia", dia()), ("plain", plain_npz())] {
        let mut state = 42;
        for _ in 0..MUTATIONS {
            let mut mutated = Npz { arrays: npz.arrays.clone() };
            let which = next(&mut state) as usize % mutated.arrays.len();
            let array = &mut mutated.arrays[which].1;
            *array = mutate(array, &mut state);
            if let Ok(found) = options.bytes::<f64>(&mutated.stored()) {
                assert!(found.csr.nnz() as u64 <= TIGHT.nonzeros, "{form}");
            }
        }
    }
    let mut state = 43;
    for _ in 0..MUTATIONS {
        let mutated = mutate(&plain(), &mut state);
        let _ = options.bytes::<f64>(&tar(&[("a/a.mtx", &mutated), ("a/b.mtx", &vector())]));
    }
}
