//! Peak memory of reading a matrix of a million entries, in every form: at most two and a half times
//! the matrix, beside blocks of text and windows of decoders, which do not grow with it.

mod forms;
mod input;

use std::fmt::Write;

use allocation_counter::measure;
use ellect::read::Options;
use ellect::{Csr, generate, write};
use forms::matlab73::{Layout, Matlab73};
use forms::*;
use input::{Npz, float64, gzip, int32, zstd_of};

/// Memory of blocks of text that are parsed in parallel, and of windows of decoders.
const BLOCKS: u64 = 8 << 20;

fn wide(numbers: impl Iterator<Item = usize>) -> Vec<i64> {
    numbers.map(|number| number as i64).collect()
}

fn petsc_of(csr: &Csr<f64>, bytes: usize) -> Vec<u8> {
    let size = csr.nrows() as i64;
    let mut out = petsc_ints(bytes, &[1_211_216, size, size, csr.nnz() as i64]);
    out.extend(petsc_ints(bytes, &wide(csr.row_ptr().windows(2).map(|w| w[1] - w[0]))));
    out.extend(petsc_ints(bytes, &wide(csr.col_idx().iter().map(|&c| c as usize))));
    out.extend(csr.values().iter().flat_map(|v| v.to_be_bytes()));
    out
}

/// Columns, rows and values as Rutherford-Boeing lists them.
fn boeing_of(by_columns: &Csr<f64>, kind: &str) -> Vec<u8> {
    let column = |numbers: &mut dyn Iterator<Item = String>| numbers.collect::<String>();
    let lists = [
        column(&mut by_columns.row_ptr().iter().map(|p| format!("{:8}\n", p + 1))),
        column(&mut by_columns.col_idx().iter().map(|r| format!("{:8}\n", r + 1))),
        column(&mut by_columns.values().iter().map(|v| format!("{v:26.16e}\n"))),
    ];
    let boeing = boeing(kind, "(1I8) (1I8) (1E26.16)", [&lists[0], &lists[1], &lists[2]], "");
    let sizes = format!("{:14}{:14}{:14}{:14}\n", 3, 3, 5, 0);
    let size = by_columns.nrows();
    let own = format!("{size:14}{size:14}{:14}{:14}\n", by_columns.nnz(), 0);
    String::from_utf8(boeing).expect("ASCII").replacen(&sizes, &own, 1).into_bytes()
}

/// The entries on and below the diagonal.
fn lower(csr: &Csr<f64>) -> Csr<f64> {
    let entries: Vec<_> = csr.iter().filter(|&(i, j, _)| i >= j).collect();
    let mut row_ptr = vec![0; csr.nrows() + 1];
    entries.iter().for_each(|&(i, ..)| row_ptr[i + 1] += 1);
    (0..csr.nrows()).for_each(|i| row_ptr[i + 1] += row_ptr[i]);
    let columns = entries.iter().map(|&(_, j, _)| j as u32).collect();
    let values = entries.iter().map(|&(.., value)| value).collect();
    Csr::new(csr.nrows(), csr.ncols(), row_ptr, columns, values).expect("a part of a matrix")
}

fn market(csr: &Csr<f64>, symmetry: &str) -> Vec<u8> {
    let mut text = Vec::new();
    write::matrix_market(csr, &mut text).expect("memory");
    String::from_utf8(text).expect("ASCII").replacen("general", symmetry, 1).into_bytes()
}

fn json_of(csr: &Csr<f64>) -> Vec<u8> {
    let list = |numbers: &mut dyn Iterator<Item = String>| numbers.collect::<Vec<_>>().join(",");
    let mut text = format!("{{\"shape\":[{},{}],", csr.nrows(), csr.ncols());
    let pointers = list(&mut csr.row_ptr().iter().map(usize::to_string));
    let columns = list(&mut csr.col_idx().iter().map(u32::to_string));
    let values = list(&mut csr.values().iter().map(f64::to_string));
    write!(text, "\"indptr\":[{pointers}],\"indices\":[{columns}],\"data\":[{values}]}}")
        .expect("memory");
    text.into_bytes()
}

/// Arrays in the order in which SciPy writes them.
fn npz_of(format: &str, csr: &Csr<f64>, arrays: [(&str, &str, &[usize], Vec<u8>); 3]) -> Vec<u8> {
    let shape = [csr.nrows() as i64, csr.ncols() as i64].map(i64::to_le_bytes).concat();
    let mut npz = Npz { arrays: Vec::new() }.with("format", "|S3", &[], format.as_bytes()).with(
        "shape",
        "<i8",
        &[2],
        &shape,
    );
    for (name, kind, sizes, bytes) in arrays {
        npz = npz.with(name, kind, sizes, &bytes);
    }
    npz.stored()
}

fn csc(csr: &Csr<f64>, at: &Csr<f64>) -> Vec<u8> {
    let pointers = int32(at.row_ptr().iter().map(|&p| p as u32));
    let rows = int32(at.col_idx().iter().copied());
    npz_of(
        "csc",
        csr,
        [
            ("indices", "<i4", &[csr.nnz()], rows),
            ("indptr", "<i4", &[csr.ncols() + 1], pointers),
            ("data", "<f8", &[csr.nnz()], float64(at.values())),
        ],
    )
}

fn coo(csr: &Csr<f64>, at: &Csr<f64>) -> Vec<u8> {
    let columns = int32(at.iter().map(|(j, ..)| j as u32));
    let rows = int32(at.col_idx().iter().copied());
    npz_of(
        "coo",
        csr,
        [
            ("row", "<i4", &[csr.nnz()], rows),
            ("col", "<i4", &[csr.nnz()], columns),
            ("data", "<f8", &[csr.nnz()], float64(at.values())),
        ],
    )
}

/// Blocks of one row and one column.
fn blocks(csr: &Csr<f64>) -> Vec<u8> {
    let pointers = int32(csr.row_ptr().iter().map(|&p| p as u32));
    let columns = int32(csr.col_idx().iter().copied());
    npz_of(
        "bsr",
        csr,
        [
            ("indptr", "<i4", &[csr.nrows() + 1], pointers),
            ("indices", "<i4", &[csr.nnz()], columns),
            ("data", "<f8", &[csr.nnz(), 1, 1], float64(csr.values())),
        ],
    )
}

fn diagonals(csr: &Csr<f64>) -> Vec<u8> {
    let n = csr.ncols();
    let offset = |i: usize, j: usize| j as i32 - i as i32;
    let mut offsets: Vec<i32> = csr.iter().map(|(i, j, _)| offset(i, j)).collect();
    offsets.sort_unstable();
    offsets.dedup();
    let mut data = vec![0.0; offsets.len() * n];
    for (i, j, value) in csr.iter() {
        let k = offsets.binary_search(&offset(i, j)).expect("it is listed");
        data[k * n + j] = value;
    }
    npz_of(
        "dia",
        csr,
        [
            (
                "offsets",
                "<i4",
                &[offsets.len()],
                offsets.iter().flat_map(|o| o.to_le_bytes()).collect(),
            ),
            ("data", "<f8", &[offsets.len(), n], float64(&data)),
            ("unused", "<f8", &[1], float64(&[0.0])),
        ],
    )
}

/// The matrix in each form that is read by a reader of its own, or through a decoder.
fn forms_of(csr: &Csr<f64>) -> Vec<(&'static str, Vec<u8>)> {
    let at = csr.transpose();
    let text = market(csr, "general");
    let m = Matlab { big: false };
    let size = csr.nrows() as u32;
    let pointers: Vec<u32> = at.row_ptr().iter().map(|&p| p as u32).collect();
    let parts = [m.ints(at.col_idx()), m.ints(&pointers), m.doubles(at.values())];
    let matlab = m.matrix(5, "A", [size, size], &parts);
    vec![
        ("Matrix Market", text.clone()),
        ("symmetric Matrix Market", market(&lower(csr), "symmetric")),
        ("tar", tar(&[("a/a.mtx", &text)])),
        ("zip", zip_of(&[("a/a.mtx", &text)])),
        ("gzip", gzip(&text)),
        ("zstd", zstd_of(&text)),
        ("bzip2", bzip2(&text)),
        ("xz", xz(&text, 10)),
        ("JSON", json_of(csr)),
        ("MATLAB", m.file(std::slice::from_ref(&matlab))),
        ("MATLAB, compressed", m.file(&[m.compressed(&matlab)])),
        ("PETSc", petsc_of(csr, 4)),
        ("PETSc, 64-bit", petsc_of(csr, 8)),
        ("Boeing", boeing_of(&at, "RUA")),
        ("symmetric Boeing", boeing_of(&lower(csr).transpose(), "RSA")),
        ("csr", Npz::csr(csr).stored()),
        ("csr, deflated", Npz::csr(csr).deflated()),
        ("csc", csc(csr, &at)),
        ("coo", coo(csr, &at)),
        ("bsr", blocks(csr)),
        ("dia", diagonals(csr)),
    ]
}

/// Returns the peak of `read` on one thread, which the counter sees as a whole.
#[track_caller]
fn check(form: &str, csr: &Csr<f64>, read: impl FnOnce() -> Csr<f64> + Send) {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a thread");
    let mut found = None;
    let memory = pool.install(|| measure(|| found = Some(read())));
    assert!(found.expect("it ran") == *csr, "{form}");
    let limit = 5 * csr.bytes() / 2 + BLOCKS;
    assert!(memory.bytes_max <= limit, "{form}: {} of {limit} bytes", memory.bytes_max);
}

fn matrix() -> Csr<f64> {
    let spec: generate::Spec = "stencil27:40000".parse().expect("a class");
    spec.make()
}

#[test]
fn peak_memory_is_at_most_two_and_a_half_times_the_matrix() {
    let csr = matrix();
    for (form, content) in forms_of(&csr) {
        check(form, &csr, || Options::default().bytes(&content).expect(form).csr);
    }
}

/// HDF5 is read in place from a file.
#[test]
fn peak_memory_of_matlab_73_files() {
    let csr = matrix();
    let at = csr.transpose();
    let list = |numbers: &mut dyn Iterator<Item = u64>| numbers.collect::<Vec<_>>();
    let pointers = list(&mut at.row_ptr().iter().map(|&p| p as u64));
    let rows = list(&mut at.col_idx().iter().map(|&r| r.into()));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.mat");
    for layout in [Layout::Contiguous, Layout::Deflated { chunk: 10_000 }] {
        let m = Matlab73 { layout };
        let group = m.large("A", csr.nrows() as u64, &pointers, &rows, at.values());
        std::fs::write(&path, m.file(vec![group])).expect("disk");
        check("MATLAB 7.3", &csr, || Options::default().file(&path).expect("MATLAB 7.3").csr);
    }
}
