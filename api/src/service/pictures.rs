//! Pictures of the matrices that were posted lately, and of those that were measured: where their
//! entries are, and how long their rows are.
//!
//! The picture of a measured matrix is the file `pictures/FINGERPRINT.json.zst` of the data folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use ellect::density::Density;
use ellect::features::Features;
use ellect::unstable::analysis::Histogram;
use ellect::{CsrRef, Fingerprint, Scalar};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::output::write_file;

/// Maximum number of rows and of columns of the grid of a picture.
const SIDE: usize = 128;

/// Number of row lengths with a bin of their own; longer rows share bins.
const SINGLE: u32 = 64;

/// Number of pictures that the cache is laid out for; its limit is in bytes.
const EXPECTED: usize = 512;

/// The picture of a matrix.
#[derive(Clone, Debug, Serialize)]
pub struct Picture {
    /// Number of rows.
    pub nrows: u64,
    /// Number of columns.
    pub ncols: u64,
    /// Number of nonzeros.
    pub nnz: u64,
    /// Features, by name.
    pub features: Features,
    /// Entries in each cell of a grid over the matrix.
    pub density: Density,
    /// Numbers of rows by length.
    pub row_lengths: Vec<Bin>,
}

/// Rows of similar length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = RowLengths)]
pub struct Bin {
    /// Shortest length.
    pub from: u32,
    /// Longest length.
    pub to: u32,
    /// Number of rows.
    pub rows: u64,
}

impl Picture {
    /// Takes the picture of a matrix with these features. One pass over its entries.
    ///
    /// # Errors
    /// None: the grid has a legal size.
    pub fn of<'a, T: Scalar>(
        csr: impl Into<CsrRef<'a, T>>,
        features: &Features,
    ) -> ellect::Result<Self> {
        let csr = csr.into();
        let side = |length: usize| length.clamp(1, SIDE);
        let density = Density::of(csr.pattern(), side(csr.nrows()), side(csr.ncols()))?;
        Ok(Picture {
            nrows: csr.nrows() as u64,
            ncols: csr.ncols() as u64,
            nnz: csr.nnz() as u64,
            features: features.clone(),
            density,
            row_lengths: bins(&Histogram::of_rows(csr.row_ptr())),
        })
    }
}

/// Returns the bin of a row length: itself while it is short, then from each power of two to the
/// next.
fn bin(length: u32) -> (u32, u32) {
    match length {
        0..=SINGLE => (length, length),
        _ => {
            let low = 1 << length.ilog2();
            (low.max(SINGLE + 1), (low - 1) * 2 + 1)
        }
    }
}

/// Counts rows by length, from the shortest to the longest, bins without rows included.
fn bins(lengths: &Histogram) -> Vec<Bin> {
    let mut bins: Vec<Bin> = Vec::new();
    for (length, rows) in lengths.iter() {
        let (from, to) = bin(length);
        let after = |bins: &[Bin]| bins.last()?.to.checked_add(1).filter(|next| *next < from);
        while let Some(next) = after(&bins) {
            let (from, to) = bin(next);
            bins.push(Bin { from, to, rows: 0 });
        }
        match bins.last_mut().filter(|last| last.from == from) {
            Some(last) => last.rows += rows,
            None => bins.push(Bin { from, to, rows }),
        }
    }
    if let Some(last) = bins.last_mut() {
        last.to = last.to.min(lengths.max());
    }
    bins
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<Fingerprint, Arc<Picture>> for ByBytes {
    fn weight(&self, _: &Fingerprint, picture: &Arc<Picture>) -> u64 {
        let Picture { density, row_lengths, .. } = picture.as_ref();
        let cells = size_of_val(density.counts()) + size_of_val(row_lengths.as_slice());
        (cells + size_of::<Picture>()) as u64
    }
}

/// A bounded cache of pictures, of which those are dropped that were not asked for lately, and the
/// folder of those that stay.
pub struct Pictures {
    lately: Cache<Fingerprint, Arc<Picture>, ByBytes>,
    folder: PathBuf,
}

impl Pictures {
    /// Creates a cache that takes at most about this number of bytes, for this data folder.
    pub fn new(bytes: u64, data: &Path) -> Self {
        let lately = Cache::with_weighter(EXPECTED, bytes, ByBytes);
        Pictures { lately, folder: data.join("pictures") }
    }

    fn path(&self, fingerprint: Fingerprint) -> PathBuf {
        self.folder.join(format!("{fingerprint}.json.zst"))
    }

    /// Returns the picture of a matrix in JSON; `None` if it is not kept, or its file is damaged.
    pub fn get(&self, fingerprint: Fingerprint) -> Option<Value> {
        if let Some(picture) = self.lately.get(&fingerprint) {
            return serde_json::to_value(picture.as_ref()).ok();
        }
        let file = fs::File::open(self.path(fingerprint)).ok()?;
        serde_json::from_reader(zstd::Decoder::new(file).ok()?).ok()
    }

    /// Writes the picture of a measured matrix to its file, unless it is there.
    ///
    /// # Errors
    /// If writing fails.
    pub fn store(&self, fingerprint: Fingerprint) -> Result<()> {
        let path = self.path(fingerprint);
        let Some(picture) = self.lately.get(&fingerprint).filter(|_| !path.exists()) else {
            return Ok(());
        };
        fs::create_dir_all(&self.folder)?;
        let text = serde_json::to_vec(picture.as_ref())?;
        let packed = zstd::encode_all(text.as_slice(), zstd::DEFAULT_COMPRESSION_LEVEL)?;
        write_file(&path, |out| Ok(out.write_all(&packed)?))
    }

    /// Keeps the picture of a matrix, which is only taken if there is none.
    ///
    /// # Errors
    /// As [`Picture::of`].
    pub fn keep<T: Scalar>(
        &self,
        fingerprint: Fingerprint,
        csr: CsrRef<'_, T>,
        features: &Features,
    ) -> ellect::Result<()> {
        if self.lately.get(&fingerprint).is_none() {
            self.lately.insert(fingerprint, Arc::new(Picture::of(csr, features)?));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ellect::Csr;
    use ellect::analysis::Analysis;

    use super::*;

    #[test]
    fn short_rows_have_their_own_bin_and_long_ones_share_one() {
        let rows = [0, 2, 2, 65, 127, 128, 300, u32::MAX];
        let bins = bins(&Histogram::of(&rows));
        let of = |length: u32| *bins.iter().find(|bin| bin.from == length).expect("a bin");
        for (from, to, rows) in [(0, 0, 1), (1, 1, 0), (2, 2, 2), (64, 64, 0), (65, 127, 2)] {
            assert_eq!(of(from), Bin { from, to, rows });
        }
        assert_eq!(of(256), Bin { from: 256, to: 511, rows: 1 });
        assert_eq!(bins.last(), Some(&Bin { from: 1 << 31, to: u32::MAX, rows: 1 }));
        assert!(bins.windows(2).all(|two| two[0].to + 1 == two[1].from), "{bins:?}");
        assert_eq!(bins.iter().map(|bin| bin.rows).sum::<u64>(), rows.len() as u64);
        let few = super::bins(&Histogram::of(&[3, 70]));
        assert_eq!(few.last(), Some(&Bin { from: 65, to: 70, rows: 1 }));
    }

    #[test]
    fn a_picture_counts_every_entry_and_every_row() {
        let folder = tempfile::tempdir().expect("a folder");
        let pictures = Pictures::new(1 << 20, folder.path());
        for (nrows, ncols) in [(0, 0), (3, 5000), (300, 7)] {
            let entries = (0..nrows).map(|row| (row, row % ncols, 1.0));
            let csr = Csr::from_triplets(nrows, ncols, entries).expect("inside");
            let analysis = Analysis::new(csr.pattern());
            let print = analysis.fingerprint();
            pictures.keep(print, csr.as_ref(), &Features::of(&analysis)).expect("a legal grid");
            let picture = pictures.lately.get(&print).expect("it is kept");
            assert_eq!(picture.density.counts().iter().sum::<u64>(), nrows as u64);
            assert_eq!(picture.row_lengths.iter().map(|bin| bin.rows).sum::<u64>(), nrows as u64);
            assert!(picture.density.rows() <= SIDE && picture.density.columns() <= SIDE);
            // Only the file is left to those who come later.
            let shown = pictures.get(print);
            pictures.store(print).expect("there is room");
            let later = Pictures::new(1 << 20, folder.path());
            assert_eq!(later.get(print), shown);
            fs::write(later.path(print), "damaged").expect("a file");
            assert_eq!(later.get(print), None);
        }
    }
}
