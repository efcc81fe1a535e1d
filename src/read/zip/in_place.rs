//! SciPy's uncompressed csr archives, whose arrays stay where they are.
//!
//! Numpy aligns the elements of an array within its member, but the archive puts members at any
//! byte. The elements are therefore moved down, by less than the size of one, over the end of their
//! header. Whatever is unusual is left to [`super::npz`], which reads all archives and names faults;
//! the bytes are then what they were.

use std::io::{Cursor, Read, Seek};
use std::ops::Range;

use ::zip::{CompressionMethod, ZipArchive};
use crc32fast::Hasher;

use super::super::limits::Limits;
use super::npy::NpyHeader;
use crate::csr::CsrRef;
use crate::error::At;
use crate::par;
use crate::scalar::Scalar;

/// Number of bytes that are checked and moved at once: they stay in a cache.
const CHUNK_BYTES: usize = 1 << 15;

/// The arrays of a matrix in csr; columns and values are ranges of the archive's bytes.
pub(in super::super) struct Places {
    pub nrows: usize,
    pub ncols: usize,
    pub row_ptr: Vec<usize>,
    pub columns: Range<usize>,
    pub values: Range<usize>,
}

/// Finds the arrays in an archive, checks them as [`super::read`] does, and moves the elements to
/// addresses that fit their types; returns `None`, and leaves `bytes` as they are, if anything is
/// unusual or wrong.
pub(in super::super) fn place<T: Scalar>(bytes: &mut [u8], limits: &Limits) -> Option<Places> {
    let arrays = Arrays::find::<T>(bytes, limits)?;
    let Arrays { nrows, ncols, row_ptr, columns, values } = arrays;
    let (of_columns, of_values) = (columns.member.clone(), values.member.clone());
    let [column_bytes, value_bytes] = bytes.get_disjoint_mut([of_columns, of_values]).ok()?;
    let kept = [columns.header(column_bytes), values.header(value_bytes)];
    let (columns_at, values_at) = par::join(
        || columns.settle::<u32>(column_bytes, |_| true),
        || values.settle::<T>(value_bytes, is_finite),
    );
    let usual = columns_at.zip(values_at).filter(|(columns_at, values_at)| {
        let indices = bytemuck::try_cast_slice::<u8, i32>(&column_bytes[columns_at.clone()]);
        let numbers = bytemuck::try_cast_slice::<u8, T>(&value_bytes[values_at.clone()]);
        indices.ok().zip(numbers.ok()).is_some_and(|(indices, numbers)| {
            CsrRef::new(nrows, ncols, &row_ptr, indices, numbers).is_ok()
        })
    });
    let Some((columns_at, values_at)) = usual else {
        columns.unsettle::<u32>(column_bytes, &kept[0]);
        values.unsettle::<T>(value_bytes, &kept[1]);
        return None;
    };
    let within = |array: &Array, at: Range<usize>| {
        array.member.start + at.start..array.member.start + at.end
    };
    let (columns, values) = (within(&columns, columns_at), within(&values, values_at));
    Some(Places { nrows, ncols, row_ptr, columns, values })
}

fn is_finite<T: Scalar>(values: &[T]) -> bool {
    values.iter().fold(true, |all, value| all & value.to_f64().is_finite())
}

/// An array of the archive.
struct Array {
    /// Its header and its elements.
    member: Range<usize>,
    /// Length of the header.
    header_bytes: usize,
    header: NpyHeader,
    /// Checksum of the member.
    crc: u32,
}

impl Array {
    /// Finds a member that is stored without compression.
    fn find(zip: &mut ZipArchive<impl Read + Seek>, bytes: &[u8], name: &str) -> Option<Array> {
        let member = zip.by_name(&format!("{name}.npy")).ok()?;
        let is_plain = member.compression() == CompressionMethod::Stored
            && member.compressed_size() == member.size()
            && !member.encrypted();
        let start = usize::try_from(member.data_start().filter(|_| is_plain)?).ok()?;
        let end = start.checked_add(usize::try_from(member.size()).ok()?)?;
        let mut rest = bytes.get(start..end)?;
        let header = NpyHeader::read(&mut rest).ok()?;
        let elements = header.len().and_then(|len| len.checked_mul(header.size as u64));
        (elements == Some(rest.len() as u64)).then_some(())?;
        let header_bytes = end - start - rest.len();
        Some(Array { member: start..end, header_bytes, header, crc: member.crc32() })
    }

    /// Returns the elements of an array of one dimension as indices, if the checksum holds.
    fn indices(&self, bytes: &[u8]) -> Option<Vec<u64>> {
        let member = &bytes[self.member.clone()];
        let is_whole = self.header.shape.len() == 1 && crc32fast::hash(member) == self.crc;
        let elements = member[self.header_bytes..].chunks_exact(self.header.size.max(1));
        elements.map(|bytes| self.header.index(bytes)).collect::<Option<_>>().filter(|_| is_whole)
    }

    /// Returns a copy of the header.
    fn header(&self, member: &[u8]) -> Vec<u8> {
        member[..self.header_bytes].to_vec()
    }

    /// Returns the number of bytes by which elements are moved.
    fn shift<E>(&self, member: &[u8]) -> usize {
        (member.as_ptr().addr() + self.header_bytes) % size_of::<E>()
    }

    /// Moves the elements; returns where they are, if the checksum and `check` hold.
    fn settle<E: bytemuck::Pod>(
        &self,
        member: &mut [u8],
        check: impl Fn(&[E]) -> bool,
    ) -> Option<Range<usize>> {
        let shift = self.shift::<E>(member);
        let mut hash = Hasher::new();
        hash.update(&member[..self.header_bytes]);
        let (mut is_right, mut from) = (true, self.header_bytes);
        while from < member.len() {
            let to = (from + CHUNK_BYTES).min(member.len());
            hash.update(&member[from..to]);
            member.copy_within(from..to, from - shift);
            let moved = bytemuck::try_cast_slice::<u8, E>(&member[from - shift..to - shift]);
            is_right &= moved.is_ok_and(&check);
            from = to;
        }
        let at = self.header_bytes - shift..member.len() - shift;
        (is_right && hash.finalize() == self.crc).then_some(at)
    }

    /// Moves the elements back to where they were.
    fn unsettle<E>(&self, member: &mut [u8], header: &[u8]) {
        let shift = self.shift::<E>(member);
        let end = member.len() - shift;
        member.copy_within(self.header_bytes - shift..end, self.header_bytes);
        member[..self.header_bytes].copy_from_slice(header);
    }
}

/// The arrays of csr as they are found.
struct Arrays {
    nrows: usize,
    ncols: usize,
    row_ptr: Vec<usize>,
    columns: Array,
    values: Array,
}

impl Arrays {
    /// Finds arrays of the usual types and of lengths that agree, within limits.
    fn find<T: Scalar>(bytes: &[u8], limits: &Limits) -> Option<Arrays> {
        let mut zip = ZipArchive::new(Cursor::new(bytes)).ok()?;
        let mut array = |name| Array::find(&mut zip, bytes, name);
        let format = array("format")?;
        let word = &bytes[format.member.clone()][format.header_bytes..];
        let letters: Vec<u8> = word.iter().copied().filter(|&byte| byte != 0).collect();
        let [shape, indptr, columns, values] =
            [array("shape")?, array("indptr")?, array("indices")?, array("data")?];
        let is_usual = cfg!(target_endian = "little")
            && letters == b"csr"
            && columns.header.is_plain(b'i', size_of::<u32>())
            && values.header.is_plain(b'f', size_of::<T>());
        let entries = values.header.len().filter(|_| is_usual)?;
        let shape = shape.indices(bytes)?;
        let &[nrows, ncols] = shape.as_slice() else { return None };
        let (nrows, ncols) = limits.dimensions(At::Whole, nrows, ncols).ok()?;
        limits.entries(At::Whole, entries).ok()?;
        limits.borne_out(0, ncols, usize::try_from(entries).ok()?).ok()?;
        let agrees = columns.header.len() == Some(entries)
            && indptr.header.len() == Some(nrows as u64 + 1)
            && bytes.len() as u64 <= limits.bytes;
        let pointers = indptr.indices(bytes).filter(|_| agrees)?;
        let row_ptr = pointers.into_iter().map(usize::try_from).collect::<Result<_, _>>().ok()?;
        Some(Arrays { nrows, ncols, row_ptr, columns, values })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read;

    /// Writes a member without compression.
    fn member(archive: &mut ::zip::ZipWriter<Cursor<Vec<u8>>>, name: &str, content: &[u8]) {
        use std::io::Write;
        let options = ::zip::write::SimpleFileOptions::default()
            .compression_method(CompressionMethod::Stored);
        archive.start_file(format!("{name}.npy"), options).expect("memory");
        archive.write_all(content).expect("memory");
    }

    fn npy(descr: &str, shape: &str, bytes: &[u8]) -> Vec<u8> {
        let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
        let mut array = b"\x93NUMPY\x01\x00".to_vec();
        array.extend((text.len() as u16).to_le_bytes());
        array.extend(text.as_bytes());
        array.extend(bytes);
        array
    }

    /// Returns an archive whose arrays begin at all remainders of 8 bytes as `name` grows.
    fn archive(name: &str, columns: &[i32], values: &[f64]) -> Vec<u8> {
        let mut archive = ::zip::ZipWriter::new(Cursor::new(Vec::new()));
        member(&mut archive, name, b"");
        member(&mut archive, "indices", &npy("<i4", "(4,)", bytemuck::cast_slice(columns)));
        let pointers = [0_i32, 2, 2, 4];
        member(&mut archive, "indptr", &npy("<i4", "(4,)", bytemuck::cast_slice(&pointers)));
        member(&mut archive, "format", &npy("|S3", "()", b"csr"));
        member(&mut archive, "shape", &npy("<i8", "(2,)", bytemuck::cast_slice(&[3_i64, 5])));
        member(&mut archive, "data", &npy("<f8", "(4,)", bytemuck::cast_slice(values)));
        archive.finish().expect("memory").into_inner()
    }

    #[test]
    fn arrays_at_any_byte_are_used_where_they_are() {
        let values = [1.5, -2.0, 3.0, 4.0];
        for len in 0..8 {
            let mut bytes = archive(&"x".repeat(len), &[0, 4, 1, 2], &values);
            let copied = read::bytes::<f64>(&bytes, &Limits::default()).expect("valid");
            let placed = place::<f64>(&mut bytes, &Limits::default()).expect("usual");
            let columns: &[u32] = bytemuck::cast_slice(&bytes[placed.columns]);
            assert_eq!((placed.nrows, placed.ncols, columns), (3, 5, copied.col_idx()));
            assert_eq!(placed.row_ptr, copied.row_ptr());
            assert_eq!(bytemuck::cast_slice::<u8, f64>(&bytes[placed.values]), values);
        }
    }

    #[test]
    fn unusual_archives_are_left_as_they_are() {
        let values = [1.5, -2.0, 3.0, 4.0];
        let limited = Limits { nonzeros: 3, ..Limits::default() };
        for len in 0..8 {
            let name = "x".repeat(len);
            let usual = archive(&name, &[0, 4, 1, 2], &values);
            let mut damaged = usual.clone();
            let at = damaged.windows(8).rposition(|bytes| bytes == 3.0_f64.to_le_bytes());
            damaged[at.expect("it is stored") + 7] ^= 1;
            for (bytes, limits) in [
                (archive(&name, &[4, 0, 1, 2], &values), Limits::default()),
                (archive(&name, &[0, 5, 1, 2], &values), Limits::default()),
                (archive(&name, &[0, 4, -1, 2], &values), Limits::default()),
                (archive(&name, &[0, 4, 1, 2], &[1.0, f64::NAN, 2.0, 3.0]), Limits::default()),
                (damaged, Limits::default()),
                (usual.clone(), limited),
            ] {
                let mut changed = bytes.clone();
                assert!(place::<f64>(&mut changed, &limits).is_none());
                assert_eq!(changed, bytes);
            }
            let mut as_f32 = usual.clone();
            assert!(place::<f32>(&mut as_f32, &Limits::default()).is_none());
            assert_eq!(as_f32, usual);
        }
    }
}
