//! Generators of files in the forms that other programs write, each of the same small matrix:
//!
//! ```text
//! | 4 . 1 |
//! | . 5 . |
//! | 2 . 6 |
//! ```

#![allow(dead_code, reason = "each test binary uses its own part")]

pub mod matlab73;
pub mod table;

use std::io::{Cursor, Write};

use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use crate::input::{GENERAL, Npz, float64, int32};

/// The lines behind the banner.
pub const BODY: &str = "3 3 5\n1 1 4\n1 3 1\n2 2 5\n3 1 2\n3 3 6\n";

/// Column pointers, rows and values by columns; all counted from 0.
pub const POINTERS: [u32; 4] = [0, 2, 3, 5];
pub const ROWS: [u32; 5] = [0, 2, 1, 0, 2];
pub const BY_COLUMNS: [f64; 5] = [4.0, 2.0, 5.0, 1.0, 6.0];

/// Column of each entry, and values by rows. The pattern is symmetric, so that row pointers equal
/// column pointers.
pub const COLUMNS: [u32; 5] = [0, 2, 1, 0, 2];
pub const BY_ROWS: [f64; 5] = [4.0, 1.0, 5.0, 2.0, 6.0];

pub fn plain() -> Vec<u8> {
    format!("{}{BODY}", GENERAL).into_bytes()
}

/// A file that a vector of right-hand sides is.
pub fn vector() -> Vec<u8> {
    b"%%MatrixMarket matrix array real general\n3 1\n1\n2\n3\n".to_vec()
}

pub fn bzip2(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

fn crc32(bytes: &[u8]) -> [u8; 4] {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum().to_le_bytes()
}

/// An xz stream of one block whose chunks are stored; `dictionary` is the code of its size: 0 is
/// 4 KiB, 40 is 4 GiB.
pub fn xz(bytes: &[u8], dictionary: u8) -> Vec<u8> {
    let mut out = b"\xfd7zXZ\0".to_vec();
    let flags = [0, 1];
    out.extend(flags);
    out.extend(crc32(&flags));
    // Header of the block: its size, no flags, LZMA2 with one byte of properties, padding.
    let header = [2, 0, 0x21, 1, dictionary, 0, 0, 0];
    out.extend(header);
    out.extend(crc32(&header));
    let mut data = Vec::new();
    for (k, chunk) in bytes.chunks(1 << 16).enumerate() {
        data.push(if k == 0 { 1 } else { 2 });
        data.extend(((chunk.len() - 1) as u16).to_be_bytes());
        data.extend(chunk);
    }
    data.push(0);
    let unpadded = (header.len() + 4 + data.len() + 4) as u64;
    out.extend(&data);
    out.extend(vec![0; (4 - data.len() % 4) % 4]);
    out.extend(crc32(bytes));
    let mut index = vec![0, 1];
    for mut number in [unpadded, bytes.len() as u64] {
        while number >= 0x80 {
            index.push(number as u8 | 0x80);
            number >>= 7;
        }
        index.push(number as u8);
    }
    index.extend(vec![0; (4 - index.len() % 4) % 4]);
    let backward = (index.len() / 4) as u32;
    out.extend(&index);
    out.extend(crc32(&index));
    let footer = [&backward.to_le_bytes()[..], &flags].concat();
    out.extend(crc32(&footer));
    out.extend(footer);
    out.extend(b"YZ");
    out
}

/// A skippable frame of zstd, as pzstd and seekable zstd write them.
pub fn skippable(content: &[u8]) -> Vec<u8> {
    [b"\x50\x2a\x4d\x18", &(content.len() as u32).to_le_bytes()[..], content].concat()
}

/// A tar archive of ustar headers; a name that ends in `/` is a folder.
pub fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, content) in files {
        let kind = if name.ends_with('/') { b'5' } else { b'0' };
        tar_entry(&mut out, name, kind, content);
    }
    out.extend([0; 1024]);
    out
}

/// Adds a header of this type and its content.
pub fn tar_entry(out: &mut Vec<u8>, name: &str, kind: u8, content: &[u8]) {
    let mut header = [0; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..108].copy_from_slice(b"0000644\0");
    header[124..136].copy_from_slice(format!("{:011o}\0", content.len()).as_bytes());
    header[148..156].fill(b' ');
    header[156] = kind;
    header[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u32 = header.iter().map(|&b| u32::from(b)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    out.extend(header);
    out.extend(content.iter());
    out.extend(vec![0; (512 - content.len() % 512) % 512]);
}

pub fn zip_of(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in files {
        zip.start_file(*name, SimpleFileOptions::default()).expect("memory");
        zip.write_all(content).expect("memory");
    }
    zip.finish().expect("memory").into_inner()
}

/// A Harwell-Boeing or Rutherford-Boeing file of this type; values are formatted by `value`.
pub fn boeing(kind: &str, formats: &str, lists: [&str; 3], rhs: &str) -> Vec<u8> {
    let lines = |text: &str| text.lines().count();
    let counts = lists.map(lines);
    let all = counts.iter().sum::<usize>() + lines(rhs);
    let rhs_lines =
        if rhs.is_empty() { String::new() } else { "F                 1       0\n".into() };
    format!(
        "{:72}{:8}\n{all:14}{:14}{:14}{:14}{:14}\n{kind:14}{:14}{:14}{:14}{:14}\n{formats}\n\
         {rhs_lines}{}{}{}{rhs}",
        "A matrix of three rows",
        "SMALL",
        counts[0],
        counts[1],
        counts[2],
        lines(rhs),
        3,
        3,
        5,
        0,
        lists[0],
        lists[1],
        lists[2],
    )
    .into_bytes()
}

/// The real unsymmetric matrix, with the values as given.
pub fn rua(values_format: &str, values: &str) -> Vec<u8> {
    let formats = format!("{:16}{:16}{values_format:20}", "(16I2)", "(16I2)");
    boeing("RUA", &formats, [" 1 3 4 6\n", " 1 3 2 1 3\n", values], "")
}

/// Numbers of PETSc: integers of 4 or 8 bytes.
pub fn petsc_ints(bytes: usize, numbers: &[i64]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_be_bytes()[8 - bytes..].to_vec()).collect()
}

pub fn petsc(bytes: usize) -> Vec<u8> {
    let mut out = petsc_ints(bytes, &[1_211_216, 3, 3, 5, 2, 1, 2]);
    out.extend(petsc_ints(bytes, &COLUMNS.map(i64::from)));
    out.extend(BY_ROWS.iter().flat_map(|v| v.to_be_bytes()));
    out
}

/// Writes MATLAB 5 elements in little- or big-endian order.
#[derive(Clone, Copy)]
pub struct Matlab {
    pub big: bool,
}

impl Matlab {
    fn number<const N: usize>(self, mut little: [u8; N]) -> [u8; N] {
        if self.big {
            little.reverse();
        }
        little
    }

    /// The file with these variables.
    pub fn file(self, elements: &[Vec<u8>]) -> Vec<u8> {
        let mut out = format!("{:116}", "MATLAB 5.0 MAT-file, Platform: test").into_bytes();
        out.extend([0; 8]);
        out.extend(self.number(0x0100_u16.to_le_bytes()));
        out.extend(if self.big { b"MI" } else { b"IM" });
        out.extend(elements.concat());
        out
    }

    /// An element: short if it has at most 4 bytes.
    pub fn element(self, kind: u32, data: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        if kind != 14 && kind != 15 && (1..=4).contains(&data.len()) {
            out.extend(self.number((kind | (data.len() as u32) << 16).to_le_bytes()));
            out.extend(data);
            out.extend(vec![0; 4 - data.len()]);
            return out;
        }
        out.extend(self.number(kind.to_le_bytes()));
        out.extend(self.number((data.len() as u32).to_le_bytes()));
        out.extend(data);
        if kind != 15 {
            out.extend(vec![0; (8 - data.len() % 8) % 8]);
        }
        out
    }

    pub fn ints(self, numbers: &[u32]) -> Vec<u8> {
        let bytes: Vec<u8> = numbers.iter().flat_map(|n| self.number(n.to_le_bytes())).collect();
        self.element(5, &bytes)
    }

    pub fn doubles(self, numbers: &[f64]) -> Vec<u8> {
        let bytes: Vec<u8> = numbers.iter().flat_map(|n| self.number(n.to_le_bytes())).collect();
        self.element(9, &bytes)
    }

    /// A matrix of this class with its parts behind flags, dimensions and name.
    pub fn matrix(self, class: u32, name: &str, shape: [u32; 2], parts: &[Vec<u8>]) -> Vec<u8> {
        let flags: Vec<u8> = [class, 5].iter().flat_map(|n| self.number(n.to_le_bytes())).collect();
        let head = [self.element(6, &flags), self.ints(&shape), self.element(1, name.as_bytes())];
        self.element(14, &[head.concat(), parts.concat()].concat())
    }

    pub fn sparse(self, name: &str) -> Vec<u8> {
        let parts = [self.ints(&ROWS), self.ints(&POINTERS), self.doubles(&BY_COLUMNS)];
        self.matrix(5, name, [3, 3], &parts)
    }

    /// A dense matrix of one column.
    pub fn dense(self, name: &str) -> Vec<u8> {
        self.matrix(6, name, [3, 1], &[self.doubles(&[1.0, 2.0, 3.0])])
    }

    /// A structure with these fields.
    pub fn structure(self, name: &str, fields: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let mut names = Vec::new();
        for (field, _) in fields {
            let mut padded = field.as_bytes().to_vec();
            padded.resize(8, 0);
            names.extend(padded);
        }
        let mut parts = vec![self.ints(&[8]), self.element(1, &names)];
        parts.extend(fields.iter().map(|(_, element)| element.clone()));
        self.matrix(2, name, [1, 1], &parts)
    }

    /// An element in zlib, as `save -v7` writes each variable.
    pub fn compressed(self, element: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(element).expect("memory");
        self.element(15, &encoder.finish().expect("memory"))
    }
}

/// An archive without `format` and `shape`: `indptr`, `indices` and `data` alone.
pub fn plain_npz() -> Npz {
    Npz { arrays: Vec::new() }
        .with("indptr", "<i4", &[4], &int32(POINTERS.into_iter()))
        .with("indices", "<i4", &[5], &int32(COLUMNS.into_iter()))
        .with("data", "<f8", &[5], &float64(&BY_ROWS))
}

fn scipy(format: &str) -> Npz {
    let shape: Vec<u8> = [3_i64, 3].iter().flat_map(|n| n.to_le_bytes()).collect();
    Npz { arrays: Vec::new() }.with("format", "|S3", &[], format.as_bytes()).with(
        "shape",
        "<i8",
        &[2],
        &shape,
    )
}

/// Three diagonals; elements that lie outside of the matrix are 9.
pub fn dia() -> Npz {
    let data = [9.0, 9.0, 1.0, 4.0, 5.0, 6.0, 2.0, 9.0, 9.0];
    let offsets: Vec<u8> = [2_i32, 0, -2].iter().flat_map(|n| n.to_le_bytes()).collect();
    scipy("dia").with("offsets", "<i4", &[3], &offsets).with(
        "data",
        "<f8",
        &[3, 3],
        &float64(&data),
    )
}

/// Blocks of one row and three columns: each row is one block.
pub fn bsr() -> Npz {
    let data = [4.0, 0.0, 1.0, 0.0, 5.0, 0.0, 2.0, 0.0, 6.0];
    scipy("bsr")
        .with("indptr", "<i4", &[4], &int32([0, 1, 2, 3].into_iter()))
        .with("indices", "<i4", &[3], &int32([0; 3].into_iter()))
        .with("data", "<f8", &[3, 1, 3], &float64(&data))
}

/// The matrix in SciPy's csr, with values of another type.
pub fn csr_npz(descr: &str, values: &[u8]) -> Npz {
    let mut npz = scipy("csr");
    npz.arrays.extend(plain_npz().arrays);
    npz.with("data", descr, &[5], values)
}
