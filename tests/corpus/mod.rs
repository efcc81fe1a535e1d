//! Test matrices, hand-sized cases first.
#![allow(dead_code, reason = "each test binary uses its own part")]

pub mod edges;

use std::path::PathBuf;

use ellect::csr::ComplexCsr;
use ellect::read::{self, Limits};
use ellect::{Csr, generate};

/// Small named matrices: edge-case shapes, and sizes around a warp.
pub fn small() -> Vec<(String, Csr<f64>)> {
    let mut all = vec![
        ("0 x 0".to_string(), dense(0, 0, |_, _| None)),
        ("0 x 5".to_string(), dense(0, 5, |_, _| None)),
        ("5 x 0".to_string(), dense(5, 0, |_, _| None)),
        ("no entries".to_string(), dense(40, 40, |_, _| None)),
        ("1 x 1".to_string(), dense(1, 1, |_, _| Some(2.5))),
        ("1 x 50".to_string(), dense(1, 50, |_, j| (j % 3 != 1).then_some(j as f64 - 20.0))),
        ("50 x 1".to_string(), dense(50, 1, |i, _| (i % 4 != 2).then_some(0.5 * i as f64))),
        ("explicit zeros".to_string(), dense(37, 37, |i, j| (i == j || j == 5).then_some(0.0))),
        (
            "one dense row".to_string(),
            dense(70, 70, |i, j| (i == 33 || i == j).then_some(1.0 + (i * j % 5) as f64)),
        ),
        (
            "one dense column".to_string(),
            dense(70, 64, |i, j| (j == 7 || i == j).then_some(1.0 - (i % 5) as f64)),
        ),
        (
            "empty first and last rows".to_string(),
            dense(67, 45, |i, j| {
                (i > 2 && i < 60 && (i * 7 + j * 3) % 11 == 0).then_some(0.25 * (i + j) as f64)
            }),
        ),
        (
            "dense blocks of 3".to_string(),
            dense(66, 66, |i, j| {
                let (bi, bj) = (i / 3, j / 3);
                (bi == bj || (bi * 5 + 1) % 22 == bj || (bi + 7) % 22 == bj)
                    .then_some((i * 66 + j) as f64 / 64.0 - 20.0)
            }),
        ),
        ("dense 48 x 48".to_string(), dense(48, 48, |i, j| Some((i as f64 - j as f64) / 8.0))),
    ];
    for n in [31, 32, 33, 64, 65, 129] {
        all.push((
            format!("tridiagonal {n}"),
            dense(n, n, |i, j| {
                (i.abs_diff(j) <= 1).then_some(if i == j {
                    2.0
                } else {
                    -1.0 - 1.0 / (i + 1) as f64
                })
            }),
        ));
        all.push((
            format!("scattered {n} x {}", n + 9),
            dense(n, n + 9, |i, j| {
                let hash = (i * 2_654_435_761 + j * 40_503 + i * j * 97) % 101;
                (hash < 3 + i % 17).then_some(hash as f64 / 16.0 - 0.7)
            }),
        ));
    }
    all
}

/// Real matrices that stand for complex ones, in blocks `[[a, -b], [b, a]]`: some small ones, and one
/// that is work for several threads.
pub fn complex() -> Vec<(String, Csr<f64>)> {
    let mut all: Vec<_> = small().into_iter().filter(|(_, csr)| csr.nnz() > 0).collect();
    all.retain(|(name, _)| !name.contains("65") && !name.contains("129"));
    for (class, rows) in [("circuit", 1500), ("banded", 12_000)] {
        let csr = generate::by_name(class, rows, 7).expect("the class exists");
        all.push((format!("{class} of {rows} rows"), csr));
    }
    let blocks = |(name, csr): (String, Csr<f64>)| (format!("complex {name}"), to_blocks(&csr));
    all.into_iter().map(blocks).collect()
}

/// Returns the real matrix of a complex one with these real parts.
pub fn to_blocks(real: &Csr<f64>) -> Csr<f64> {
    let imaginary = real.map_values(|value| 0.75 - 0.5 * value);
    ComplexCsr::from_parts(real, &imaginary).expect("equal sizes").to_real()
}

/// Matrices from the project's own generators; the larger ones are work for several threads.
pub fn generated() -> Vec<(String, Csr<f64>)> {
    [
        ("convection_diffusion", 700),
        ("stencil9", 900),
        ("stencil27", 1000),
        ("elasticity", 650),
        ("heat", 500),
        ("circuit", 1500),
        ("circuit", 20_000),
        ("rmat", 4096),
        ("uniform", 3000),
        ("power_law", 2000),
        ("banded", 1500),
        ("p2", 700),
        ("blocks5", 320),
        ("holstein_hubbard", 1200),
        ("kkt", 700),
        ("linear_program", 900),
        ("power_flow", 900),
        ("chung_lu", 1500),
    ]
    .into_iter()
    .map(|(class, rows)| {
        let csr = generate::by_name(class, rows, 7).expect("the class exists");
        (format!("{class} of {rows} rows"), csr)
    })
    .collect()
}

/// Reads the real matrices of at most `most_nnz` entries; none if the files are absent. If
/// `ELLECT_TEST_MATRICES` names a folder, all matrices in it are read.
#[allow(clippy::print_stdout, reason = "says what is not checked")]
pub fn real(most_nnz: usize) -> Vec<(String, Csr<f64>)> {
    let named = std::env::var_os("ELLECT_TEST_MATRICES").map(PathBuf::from);
    let most_nnz = if named.is_some() { usize::MAX } else { most_nnz };
    let shared = || concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/matrices/mtx").into();
    let folder = named.unwrap_or_else(shared);
    let Ok(files) = std::fs::read_dir(&folder) else {
        println!("no real matrices are checked: {} is absent", folder.display());
        return Vec::new();
    };
    let mut paths: Vec<_> =
        files.map(|file| file.expect("the folder is readable").path()).collect();
    paths.sort();
    let named = paths.into_iter().map(|path| {
        let csr = read::file(&path, &Limits::default())
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        (path.file_name().expect("a file").to_string_lossy().into_owned(), csr)
    });
    named.filter(|(_, csr)| csr.nnz() <= most_nnz).collect()
}

/// Builds a matrix from a function of row and column; `None` stores no entry.
pub fn dense(nrows: usize, ncols: usize, f: impl Fn(usize, usize) -> Option<f64>) -> Csr<f64> {
    let entries = (0..nrows).flat_map(|i| (0..ncols).map(move |j| (i, j)));
    Csr::from_triplets(nrows, ncols, entries.filter_map(|(i, j)| Some((i, j, f(i, j)?))))
        .expect("indices are in range")
}
