//! Tables of MATLAB's files: versions 5 to 7, and 7.3, which is HDF5.

mod forms;
mod input;

use ellect::read::{Complex, Options};
use forms::matlab73::{Layout, Matlab73};
use forms::table::{PLAIN, table};
use forms::*;

#[test]
fn matlab_files() {
    let m = Matlab { big: false };
    let b = Matlab { big: true };
    let problem = |m: Matlab| {
        m.structure(
            "Problem",
            &[
                ("name", m.matrix(4, "", [1, 1], &[m.element(4, &[b'x', 0])])),
                ("A", m.sparse("")),
                ("b", m.dense("")),
                ("Zeros", m.sparse("")),
            ],
        )
    };
    let small = m.matrix(
        5,
        "S",
        [3, 3],
        &[m.ints(&ROWS), m.ints(&POINTERS), m.element(2, &[4, 2, 5, 1, 6])],
    );
    let room = m.matrix(
        5,
        "R",
        [3, 3],
        &[
            m.ints(&[0, 2, 1, 0, 2, 2]),
            m.ints(&POINTERS),
            m.doubles(&[4.0, 2.0, 5.0, 1.0, 6.0, 0.0]),
        ],
    );
    table(
        &Options::default(),
        &[
            ("version 6", m.file(&[m.sparse("A")]), PLAIN),
            ("big-endian", b.file(&[b.sparse("A")]), PLAIN),
            ("version 7", m.file(&[m.compressed(&m.sparse("A"))]), PLAIN),
            ("beside a vector", m.file(&[m.dense("b"), m.compressed(&m.sparse("A"))]), PLAIN),
            (
                "SuiteSparse",
                m.file(&[m.compressed(&problem(m))]),
                &format!("{PLAIN}; read Problem.A of the MATLAB file; passed over Problem.Zeros"),
            ),
            (
                "SuiteSparse, big-endian",
                b.file(&[problem(b)]),
                &format!("{PLAIN}; read Problem.A of the MATLAB file; passed over Problem.Zeros"),
            ),
            ("values of few bytes", m.file(&[small]), PLAIN),
            ("unused room", m.file(&[room]), PLAIN),
            (
                "two matrices",
                m.file(&[m.sparse("A"), m.sparse("B")]),
                "the MATLAB file holds 2 matrices: A, B; name one, for instance member=A over HTTP, or \
             FILE:A",
            ),
            (
                "no sparse matrix",
                m.file(&[m.dense("b")]),
                "the MATLAB file holds no matrix that can be read; it holds: b (3 x 1 double)",
            ),
        ],
    );
}

#[test]
fn faults_of_matlab_files() {
    let m = Matlab { big: false };
    let wrong = m.matrix(
        5,
        "W",
        [3, 3],
        &[m.ints(&[0, 2, 1, 0, 3]), m.ints(&POINTERS), m.doubles(&BY_COLUMNS)],
    );
    table(
        &Options::default(),
        &[
            (
                "a wrong row",
                m.file(&[wrong]),
                "the MATLAB file is damaged: an array: element 4: the row index \
            is 3; it must be from 0 to 3 less 1 (in W)",
            ),
            (
                "cut off",
                m.file(&[m.sparse("A")])[..200].to_vec(),
                "the MATLAB file is damaged: it ends 80 bytes early",
            ),
        ],
    );
    let named = Options { member: Some("B".into()), ..Options::default() };
    table(&named, &[("a named variable", m.file(&[m.sparse("A"), m.sparse("B")]), PLAIN)]);
}

#[test]
fn matlab_73_files() {
    let m = Matlab73::default();
    let compressed = Matlab73 { layout: Layout::Deflated { chunk: 2 } };
    let room = [&ROWS[..], &[2]].concat();
    table(
        &Options::default(),
        &[
            ("contiguous", m.file(vec![m.sparse("A")]), PLAIN),
            ("compressed", compressed.file(vec![compressed.sparse("A")]), PLAIN),
            ("in gzip", input::gzip(&m.file(vec![m.sparse("A")])), PLAIN),
            ("logical", m.file(vec![m.logical("A")]), "3x3 1,1=1 1,3=1 2,2=1 3,1=1 3,3=1"),
            ("unused room", m.file(vec![m.sparse_of("A", 3, &POINTERS, &room)]), PLAIN),
            ("no entries", m.file(vec![m.empty("A")]), "3x3"),
            (
                "SuiteSparse",
                m.file(vec![m.structure("Problem", vec![m.sparse("A"), m.sparse("Zeros")])]),
                &format!("{PLAIN}; read Problem.A of the MATLAB file; passed over Problem.Zeros"),
            ),
            (
                "two matrices",
                m.file(vec![m.sparse("A"), m.sparse("B")]),
                "the MATLAB file holds 2 matrices: A, B; name one, for instance member=A over HTTP, \
                 or FILE:A",
            ),
            (
                "no sparse matrix",
                m.file(vec![m.structure("s", vec![])]),
                "the MATLAB file holds no matrix that can be read; it holds: b (3 x 1)",
            ),
        ],
    );
    // Written by the HDF5 library itself, with the oldest structures, as MATLAB does.
    let file = include_bytes!("data/matlab73.mat").to_vec();
    table(&Options::default(), &[("by the HDF5 library", file, PLAIN)]);
    let found = Options::default().file::<f64>("tests/data/matlab73.mat").expect("it is sound");
    assert_eq!(found.csr.nnz(), 5);
    let named = Options { member: Some("B".into()), ..Options::default() };
    table(&named, &[("a named variable", m.file(vec![m.sparse("A"), m.sparse("B")]), PLAIN)]);
    let real = Options { complex: Complex::RealPart, ..Options::default() };
    table(&real, &[("real parts", m.file(vec![m.complex("A", 0.0)]), PLAIN)]);
}

#[test]
fn faults_of_matlab_73_files() {
    let m = Matlab73::default();
    let remedy = "; write it in MATLAB with save('name.mat', 'A', '-v7'), or with scipy.io.mmwrite";
    let cut = m.file(vec![m.sparse("A")])[..700].to_vec();
    let outcome = table::outcome(&Options::default(), &cut);
    assert!(outcome.starts_with("the MATLAB 7.3 file cannot be read: "), "{outcome}");
    assert!(outcome.ends_with(remedy), "{outcome}");
    table(
        &Options::default(),
        &[
            (
                "a wrong row",
                m.file(vec![m.sparse_of("A", 3, &POINTERS, &[0, 2, 1, 0, 3])]),
                "the MATLAB file is damaged: an array: element 4: the row index is 3; it must be from \
                 0 to 3 less 1 (in A)",
            ),
            (
                "a pointer that falls",
                m.file(vec![m.sparse_of("A", 3, &[0, 2, 1, 5], &ROWS)]),
                "the MATLAB file is damaged: an array: element 2: the pointer is 1; it must be from 2 \
                 to 5 (in A)",
            ),
            (
                "complex",
                m.file(vec![m.complex("A", 0.0)]),
                "the MATLAB matrix is complex, which needs an option; read each number a + bi as \
                 the block [[a, -b], [b, a]] of a real matrix with --complex blocks (complex=blocks over \
                 HTTP), or, if every imaginary part is zero, read the real parts with --real-part \
                 (real_part=true over HTTP) (in A)",
            ),
        ],
    );
    let real = Options { complex: Complex::RealPart, ..Options::default() };
    table(
        &real,
        &[(
            "an imaginary part",
            m.file(vec![m.complex("A", 0.5)]),
            "the MATLAB file is damaged: an array: element 0: the imaginary part is 0.5; only matrices \
             whose imaginary parts are all zero can be read by their real parts (in A)",
        )],
    );
}
