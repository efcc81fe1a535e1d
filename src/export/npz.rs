//! Layouts as NumPy archives.

use std::io::{self, BufWriter, Seek, Write};

use ::zip::CompressionMethod;
use ::zip::write::{SimpleFileOptions, ZipWriter};

use super::{Export, StoredArray};
use crate::error::{Error, Result};
use crate::scalar::Scalar;

/// Bytes of a member from which its sizes take 64 bits.
const LARGE: usize = u32::MAX as usize / 2;

impl<T: Scalar> Export<'_, T> {
    /// Writes an uncompressed `.npz` archive with every array, and the member `layout.json`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn npz(&self, sink: impl Write + Seek) -> Result<()> {
        let failed = |source| Error::Io { what: "writing the layout".into(), source };
        self.write_members(sink).map_err(failed)
    }

    fn write_members(&self, sink: impl Write + Seek) -> io::Result<()> {
        let mut zip = ZipWriter::new(BufWriter::new(sink));
        let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
        for array in self.arrays() {
            let options = options.large_file(array.bytes.len() >= LARGE);
            zip.start_file(format!("{}.npy", array.name), options)?;
            zip.write_all(&header(array))?;
            zip.write_all(array.bytes)?;
        }
        zip.start_file("layout.json", options)?;
        serde_json::to_writer_pretty(&mut zip, &self.metadata())?;
        zip.finish()?.flush()
    }
}

/// Returns the header of an array in NumPy's format, version 1.
fn header(array: &StoredArray<'_>) -> Vec<u8> {
    let lengths: String = array.shape().iter().map(|length| format!("{length}, ")).collect();
    let mut text = format!(
        "{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}",
        array.element.numpy(),
        lengths.trim_end()
    );
    // The elements begin at a multiple of 64 bytes.
    const START: usize = 10;
    let padded = (START + text.len() + 1).next_multiple_of(64) - START;
    text.extend(std::iter::repeat_n(' ', padded - 1 - text.len()));
    text.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((text.len() as u16).to_le_bytes());
    bytes.extend(text.into_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_those_of_numpy() {
        let list = [1u16, 2, 3];
        let bytes = header(&StoredArray::of("list", "numbers", &list));
        assert_eq!((bytes.len(), &bytes[..10]), (128, b"\x93NUMPY\x01\x00\x76\x00".as_slice()));
        let text = String::from_utf8_lossy(&bytes[10..]);
        assert_eq!(text.trim_end(), "{'descr': '<u2', 'fortran_order': False, 'shape': (3,), }");
        assert!(text.ends_with(" \n"));
        let pairs = [[1u32, 2], [3, 4], [5, 6]];
        let bytes = header(&StoredArray::of("pairs", "numbers", &pairs));
        assert!(String::from_utf8_lossy(&bytes[10..]).contains("'<u4', 'fortran_order': False"));
        assert!(String::from_utf8_lossy(&bytes[10..]).contains("'shape': (3, 2,), }"));
    }
}
