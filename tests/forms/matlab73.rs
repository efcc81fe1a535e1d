//! Generator of MATLAB 7.3 files: HDF5 behind 512 bytes of text.

use hdf5_pure::make_f64_type;
use hdf5_pure::{AttrValue, CompoundTypeBuilder, FileBuilder, FinishedGroup, GroupBuilder};

use super::{BY_COLUMNS, POINTERS, ROWS};

/// The storage of arrays.
#[derive(Clone, Copy, Default)]
pub enum Layout {
    #[default]
    Contiguous,
    Deflated {
        /// Number of elements of a chunk.
        chunk: u64,
    },
}

/// A file whose arrays are stored in one way.
#[derive(Clone, Copy, Default)]
pub struct Matlab73 {
    pub layout: Layout,
}

/// Returns the numbers of a list as MATLAB stores them.
fn wide(numbers: &[u32]) -> Vec<u64> {
    numbers.iter().map(|&number| number.into()).collect()
}

impl Matlab73 {
    /// A file with a dense vector `b` beside the groups.
    pub fn file(self, groups: Vec<FinishedGroup>) -> Vec<u8> {
        let mut file = FileBuilder::new();
        file.with_userblock(512);
        file.with_userblock_content(b"MATLAB 7.3 MAT-file, Platform: GLNXA64");
        let b = file.create_dataset("b").with_f64_data(&[1.0, 2.0, 3.0]).with_shape(&[1, 3]);
        b.set_attr("MATLAB_class", AttrValue::AsciiString("double".into()));
        groups.into_iter().for_each(|group| file.add_group(group));
        file.finish().expect("memory")
    }

    pub fn structure(self, name: &str, fields: Vec<FinishedGroup>) -> FinishedGroup {
        let mut group = FileBuilder::new().create_group(name);
        group.set_attr("MATLAB_class", AttrValue::AsciiString("struct".into()));
        fields.into_iter().for_each(|field| group.add_group(field));
        group.finish()
    }

    /// The matrix of most tables.
    pub fn sparse(self, name: &str) -> FinishedGroup {
        self.sparse_of(name, 3, &POINTERS, &ROWS)
    }

    /// A matrix of three rows or more, with values of the matrix of most tables, then zeros.
    pub fn sparse_of(
        self,
        name: &str,
        nrows: u64,
        pointers: &[u32],
        rows: &[u32],
    ) -> FinishedGroup {
        let mut values = BY_COLUMNS.to_vec();
        values.resize(rows.len(), 0.0);
        self.large(name, nrows, &wide(pointers), &wide(rows), &values)
    }

    pub fn large(
        self,
        name: &str,
        nrows: u64,
        pointers: &[u64],
        rows: &[u64],
        values: &[f64],
    ) -> FinishedGroup {
        let mut group = self.group(name, nrows, pointers, rows);
        let data = group.create_dataset("data").with_f64_data(values);
        if let Layout::Deflated { chunk } = self.layout {
            data.with_chunks(&[chunk]).with_deflate(3);
        }
        group.finish()
    }

    /// A matrix without entries, which has no lists of rows and values.
    pub fn empty(self, name: &str) -> FinishedGroup {
        let mut group = self.start(name, 3);
        group.create_dataset("jc").with_u64_data(&[0; 4]);
        group.finish()
    }

    pub fn logical(self, name: &str) -> FinishedGroup {
        let mut group = self.group(name, 3, &wide(&POINTERS), &wide(&ROWS));
        group.create_dataset("data").with_u8_data(&[1; 5]);
        group.finish()
    }

    /// The matrix of most tables, with one imaginary part in all values.
    pub fn complex(self, name: &str, imaginary: f64) -> FinishedGroup {
        let pair = CompoundTypeBuilder::new()
            .field("real", make_f64_type())
            .field("imag", make_f64_type())
            .build()
            .expect("two fields");
        let bytes = BY_COLUMNS.iter().flat_map(|&real| [real, imaginary]);
        let bytes = bytes.flat_map(f64::to_le_bytes).collect();
        let mut group = self.group(name, 3, &wide(&POINTERS), &wide(&ROWS));
        group.create_dataset("data").with_compound_data(pair, bytes, BY_COLUMNS.len() as u64);
        group.finish()
    }

    fn start(self, name: &str, nrows: u64) -> GroupBuilder {
        let mut group = FileBuilder::new().create_group(name);
        group.set_attr("MATLAB_class", AttrValue::AsciiString("double".into()));
        group.set_attr("MATLAB_sparse", AttrValue::U64(nrows));
        group
    }

    /// A group with its lists of pointers and rows.
    fn group(self, name: &str, nrows: u64, pointers: &[u64], rows: &[u64]) -> GroupBuilder {
        let mut group = self.start(name, nrows);
        for (list, numbers) in [("jc", pointers), ("ir", rows)] {
            let dataset = group.create_dataset(list).with_u64_data(numbers);
            if let Layout::Deflated { chunk } = self.layout {
                dataset.with_chunks(&[chunk]).with_deflate(3);
            }
        }
        group
    }
}
