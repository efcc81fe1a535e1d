//! Bodies that hold matrices.

use std::io::{Cursor, Write};
use std::process::Command;

use ellect::Csr;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// Returns a Matrix Market file of a generated matrix.
pub fn text(program: &str, spec: &str) -> Vec<u8> {
    let output = Command::new(program).args(["generate", spec]).output();
    let text = output.expect("it runs").stdout;
    assert!(text.len() > 1000, "{spec} was not generated");
    text
}

/// Returns a matrix as SciPy's `save_npz` writes it without compression: 32-bit indices.
pub fn npz(csr: &Csr<f64>) -> Vec<u8> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    let mut add = |name: &str, kind: &str, shape: &str, data: &[u8]| {
        archive.start_file(format!("{name}.npy"), options).expect("memory");
        let about = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}");
        // The data start at a multiple of 64 bytes.
        let padded = (10 + about.len() + 1).next_multiple_of(64) - 10;
        let head = format!("{about:<width$}\n", width = padded - 1);
        archive.write_all(b"\x93NUMPY\x01\x00").expect("memory");
        archive.write_all(&(padded as u16).to_le_bytes()).expect("memory");
        archive.write_all(head.as_bytes()).expect("memory");
        archive.write_all(data).expect("memory");
    };
    let of = |n: usize| format!("({n},)");
    let starts = csr.row_ptr().iter().flat_map(|&start| (start as i32).to_le_bytes());
    let columns = csr.col_idx().iter().flat_map(|&column| (column as i32).to_le_bytes());
    let values = csr.values().iter().flat_map(|value| value.to_le_bytes());
    let shape = [csr.nrows(), csr.ncols()].map(|n| n as i64);
    add("indices", "<i4", &of(csr.nnz()), &columns.collect::<Vec<u8>>());
    add("indptr", "<i4", &of(csr.nrows() + 1), &starts.collect::<Vec<u8>>());
    add("format", "|S3", "()", b"csr");
    add("shape", "<i8", "(2,)", &shape.map(i64::to_le_bytes).concat());
    add("data", "<f8", &of(csr.nnz()), &values.collect::<Vec<u8>>());
    archive.finish().expect("memory").into_inner()
}
