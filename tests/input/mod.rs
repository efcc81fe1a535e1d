//! Files made in memory: compressed ones, and archives as `scipy.sparse.save_npz` writes them.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::io::{Cursor, Write};

use ellect::{Csr, Scalar};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// The banner of the simplest kind of Matrix Market file.
pub const GENERAL: &str = "%%MatrixMarket matrix coordinate real general\n";

/// Returns the entries of a matrix as `(row, column, value)`, counted from 0.
pub fn entries<T: Scalar>(csr: &Csr<T>) -> Vec<(usize, u32, f64)> {
    (0..csr.nrows())
        .flat_map(|row| {
            let (columns, values) = csr.row(row);
            columns.iter().zip(values).map(move |(&column, value)| (row, column, value.to_f64()))
        })
        .collect()
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

pub fn zstd_of(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).expect("memory")
}

/// Arrays by name, each with its header.
#[derive(Clone)]
pub struct Npz {
    pub arrays: Vec<(String, Vec<u8>)>,
}

impl Npz {
    pub fn csr(csr: &Csr<f64>) -> Npz {
        let pointers = int32(csr.row_ptr().iter().map(|&p| p as u32));
        new("csr", csr.nrows(), csr.ncols())
            .with("indices", "<i4", &[csr.nnz()], &int32(csr.col_idx().iter().copied()))
            .with("indptr", "<i4", &[csr.nrows() + 1], &pointers)
            .with("data", "<f8", &[csr.nnz()], &float64(csr.values()))
    }

    pub fn csc(csr: &Csr<f64>) -> Npz {
        let mut entries = triplets(csr);
        entries.sort_by_key(|&(row, col, _)| (col, row));
        let mut pointers = vec![0; csr.ncols() + 1];
        for &(_, col, _) in &entries {
            pointers[col as usize + 1..].iter_mut().for_each(|p| *p += 1);
        }
        let values: Vec<f64> = entries.iter().map(|e| e.2).collect();
        new("csc", csr.nrows(), csr.ncols())
            .with("indices", "<i4", &[csr.nnz()], &int32(entries.iter().map(|e| e.0)))
            .with("indptr", "<i4", &[csr.ncols() + 1], &int32(pointers.into_iter()))
            .with("data", "<f8", &[csr.nnz()], &float64(&values))
    }

    pub fn coo(csr: &Csr<f64>) -> Npz {
        let mut entries = triplets(csr);
        entries.reverse();
        let values: Vec<f64> = entries.iter().map(|e| e.2).collect();
        new("coo", csr.nrows(), csr.ncols())
            .with("row", "<i4", &[csr.nnz()], &int32(entries.iter().map(|e| e.0)))
            .with("col", "<i4", &[csr.nnz()], &int32(entries.iter().map(|e| e.1)))
            .with("data", "<f8", &[csr.nnz()], &float64(&values))
    }

    /// Adds an array, or replaces the array with this name.
    pub fn with(mut self, name: &str, descr: &str, shape: &[usize], elements: &[u8]) -> Npz {
        let shape: String = shape.iter().map(|n| format!("{n},")).collect();
        let dict = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
        // Elements start at a multiple of 64 bytes.
        let padding = 63 - (10 + dict.len()) % 64;
        let header = format!("{dict}{}\n", " ".repeat(padding));
        let mut array = b"\x93NUMPY\x01\x00".to_vec();
        array.extend((header.len() as u16).to_le_bytes());
        array.extend(header.as_bytes());
        array.extend(elements);
        self = self.without(name);
        self.arrays.push((format!("{name}.npy"), array));
        self
    }

    pub fn without(mut self, name: &str) -> Npz {
        self.arrays.retain(|(file, _)| *file != format!("{name}.npy"));
        self
    }

    pub fn stored(&self) -> Vec<u8> {
        self.pack(CompressionMethod::Stored)
    }

    pub fn deflated(&self) -> Vec<u8> {
        self.pack(CompressionMethod::Deflated)
    }

    fn pack(&self, method: CompressionMethod) -> Vec<u8> {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, bytes) in &self.arrays {
            let options = SimpleFileOptions::default().compression_method(method).large_file(true);
            zip.start_file(name.as_str(), options).expect("memory");
            zip.write_all(bytes).expect("memory");
        }
        zip.finish().expect("memory").into_inner()
    }
}

fn new(format: &str, nrows: usize, ncols: usize) -> Npz {
    let shape: Vec<u8> = [nrows, ncols].iter().flat_map(|&n| (n as i64).to_le_bytes()).collect();
    Npz { arrays: Vec::new() }.with("format", "|S3", &[], format.as_bytes()).with(
        "shape",
        "<i8",
        &[2],
        &shape,
    )
}

fn triplets(csr: &Csr<f64>) -> Vec<(u32, u32, f64)> {
    (0..csr.nrows())
        .flat_map(|row| {
            let (columns, values) = csr.row(row);
            columns.iter().zip(values).map(move |(&col, &value)| (row as u32, col, value))
        })
        .collect()
}

/// Returns the bytes of 32-bit integers.
pub fn int32(numbers: impl Iterator<Item = u32>) -> Vec<u8> {
    numbers.flat_map(|n| (n as i32).to_le_bytes()).collect()
}

/// Returns the bytes of 64-bit numbers.
pub fn float64(numbers: &[f64]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}
