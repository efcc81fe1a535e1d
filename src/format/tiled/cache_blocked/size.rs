//! Size of the layout, from all slabs or estimated.

use super::{Slabs, tiles};
use crate::analysis::Analysis;
use crate::csr::Pattern;
use crate::device::Kind;
use crate::format::st_csr::StCsrFormat;
use crate::format::{Offsets, Refusal, Storage, Target, Work};

/// Size of the layout.
pub(super) struct CacheBlockedSize {
    /// Number of slabs.
    pub slabs: u64,
    /// Number of stored entries, with padding.
    pub entries: u64,
    /// Bytes of all arrays.
    pub bytes: u64,
}

impl CacheBlockedSize {
    /// The exact size, computed from all slabs.
    pub fn of(
        pattern: Pattern<'_>,
        cuts: &[u32],
        target: &Target<'_>,
    ) -> Result<CacheBlockedSize, Refusal> {
        let (nrows, w) = (pattern.nrows(), target.precision.bytes());
        let mut size = CacheBlockedSize { slabs: 0, entries: 0, bytes: 0 };
        for slab in Slabs::new(pattern, cuts.to_vec()) {
            let nnz = slab.row_ptr[nrows];
            let (entries, bytes) = match target.device.kind {
                Kind::Host => (nnz as u64, rows_bytes(nrows, nnz, w)),
                Kind::Gpu => {
                    let columns = slab.columns(pattern);
                    let slab = Pattern::of(nrows, pattern.ncols(), &slab.row_ptr, &columns);
                    let work = StCsrFormat::work(&Analysis::new(slab), &tiles().params, target)?;
                    (work.entries, work.layout_bytes)
                }
            };
            size.slabs += 1;
            size.entries += entries;
            size.bytes += bytes;
        }
        Ok(size)
    }

    /// An estimate that assumes entries evenly spread over the slabs; `whole` is the work of the
    /// matrix in a single slab.
    pub fn guess(
        pattern: Pattern<'_>,
        cuts: &[u32],
        target: &Target<'_>,
        whole: &Work,
    ) -> CacheBlockedSize {
        let (nrows, nnz, w) = (pattern.nrows(), pattern.nnz(), target.precision.bytes());
        let slabs = cuts.len() - 1;
        let (entries, bytes) = match target.device.kind {
            Kind::Host => (nnz as u64, slabs as u64 * rows_bytes(nrows, nnz / slabs, w)),
            Kind::Gpu => {
                // A tile has no more rows than slots.
                let entries = whole.entries.max((slabs * nrows) as u64);
                let ends = 2 * (nrows * (slabs - 1)) as u64;
                let slot_bytes = whole.layout_bytes as f64 / whole.entries as f64;
                (entries, (entries as f64 * slot_bytes) as u64 + ends)
            }
        };
        CacheBlockedSize { slabs: slabs as u64, entries, bytes }
    }
}

/// Bytes of a slab of `nnz` entries in CSR.
fn rows_bytes(nrows: usize, nnz: usize, value_bytes: usize) -> u64 {
    ((nrows + 1) * Offsets::width(nnz) + nnz * (4 + value_bytes)) as u64
}
