//! Storage formats: one module and one line of the table for each.
//!
//! A format answers three questions about a matrix: which [`Params`] to try, how much [`Work`] a
//! product is (or a [`Refusal`]), and how to [`convert`](Storage::convert) the CSR matrix to its
//! [`Layout`]. No code outside this folder names a format.
//!
//! A format is added in three places: a module that implements [`Storage`], a line of the table of
//! formats in this file, and a `.cu` file in `kernels/products` if it multiplies on GPUs. Tests,
//! the command line and training read the table ([`FORMATS`]). `tests/toy` is an example, in a
//! table of its own.
//!
//! A format gets a new name as [`Storage::NAME`], and so do its module and its `.cu` files; the
//! earlier name becomes an alias ([`Storage::ALIASES`]), under which stored data is still read.

pub(crate) mod aliases;
mod baseline;
mod candidate;
mod fill_marker;
pub(crate) mod gpu;
pub(crate) mod images;
pub(crate) mod narrow;
pub(crate) mod offsets;
mod row_order;
mod storage;
pub(crate) mod value_dictionary;
mod work;

// Modules that several formats of a family share; each file is in the family's folder.
#[path = "sliced/bisection.rs"]
mod bisection;
#[path = "ell/column_major.rs"]
mod column_major;
#[path = "csr/csr_product.rs"]
mod csr_product;
#[path = "csr/csr_tiles.rs"]
mod csr_tiles;
#[path = "csr/csr_variants.rs"]
mod csr_variants;
#[path = "dia/diagonals.rs"]
mod diagonals;
#[path = "csr/long_rows.rs"]
mod long_rows;
mod many;
#[path = "cached/part_slices.rs"]
mod part_slices;
#[path = "cached/partition.rs"]
mod partition;
#[path = "csr/row_blocks.rs"]
mod row_blocks;
#[path = "sliced/sliced.rs"]
mod sliced;
#[path = "sliced/sliced_quads.rs"]
mod sliced_quads;
#[path = "tiled/sorted_tiles/mod.rs"]
mod sorted_tiles;
#[path = "csr/staged.rs"]
mod staged;

use crate::error::{Error, Result};
pub use crate::refusal::Refusal;
use crate::scalar::Scalar;
pub use crate::target::{Basis, StoredValues, Target};
pub use baseline::{BASELINES, CSR, PCSR, Role, baseline, baselines, immediate};
#[cfg(feature = "cuda")]
pub(crate) use bhll::fill as block_fill;
pub use candidate::{Candidate, Param, Params, Value, candidates, candidates_for, candidates_of};
pub use gpu::convert::Matrix;
#[cfg(feature = "cuda")]
pub(crate) use gpu::convert::{Check, TOLD};
pub(crate) use gpu::convert::{GpuConverter, GpuLayout, SliceOffsets};
pub(crate) use gpu::launch::{Algorithm, Arg, Launch, OnDevice, Vendor};
pub use gpu::several::{Access, Several, WIDTHS};
pub(crate) use gpu::stop::Stop;
pub(crate) use offsets::Offsets;
pub use storage::{Extent, Format, Layout, Storage};
pub use work::Work;

/// Declares the modules of all formats and the table of formats.
macro_rules! formats {
    ($($path:literal $module:ident :: $($storage:ident)|+),* $(,)?) => {
        $(
            #[path = $path]
            pub mod $module;
        )*

        /// Every format, in the order in which ties are decided and lists are printed.
        pub static FORMATS: &[Format] = &[$($(Format::of::<$module::$storage>()),+),*];
    };
}

// `cargo fmt` does not expand this macro, so `.ci/run` formats the modules by name.
formats! {
    "csr/csr.rs" csr::CsrFormat,
    "csr/csr_narrow.rs" csr_narrow::CsrF32Format | CsrF16Format | CsrBf16Format,
    "csr/cusparse.rs" cusparse::CusparseFormat,
    "csr/coo.rs" coo::CooFormat,
    "dia/dia.rs" dia::DiaFormat,
    "ell/ell.rs" ell::EllFormat,
    "ell/ellr.rs" ellr::EllrFormat,
    "ell/ellg.rs" ellg::EllgFormat,
    "ell/jad.rs" jad::JadFormat,
    "ell/pjds.rs" pjds::PjdsFormat,
    "ell/pellr.rs" pellr::PellrFormat,
    "sliced/biell.rs" biell::BiellFormat,
    "sliced/bijad.rs" bijad::BijadFormat,
    "ell/hyb.rs" hyb::HybFormat,
    "sliced/hll.rs" hll::HllFormat,
    "sliced/hll_vi.rs" hll_vi::HllViFormat,
    "sliced/hll_narrow.rs" hll_narrow::HllF32Format | HllF16Format | HllBf16Format,
    "sliced/hll_du/mod.rs" hll_du::HllDuFormat,
    "sliced/bhll/mod.rs" bhll::BhllFormat,
    "sliced/bhll_narrow.rs" bhll_narrow::BhllF32Format | BhllF16Format | BhllBf16Format,
    "sliced/chll/mod.rs" chll::ChllFormat,
    "dia/hdia.rs" hdia::HdiaFormat,
    "dia/hdia_narrow.rs" hdia_narrow::HdiaF32Format | HdiaF16Format | HdiaBf16Format,
    "dia/cdia/mod.rs" cdia::CdiaFormat,
    "csr/pcsr.rs" pcsr::PcsrFormat,
    "tiled/st_csr.rs" st_csr::StCsrFormat,
    "tiled/st_csr_narrow.rs" st_csr_narrow::StCsrF32Format | StCsrF16Format | StCsrBf16Format,
    "tiled/st_csr_vi.rs" st_csr_vi::StCsrViFormat,
    "tiled/cache_blocked/mod.rs" cache_blocked::CacheBlockedFormat,
    "cached/column_sweep/mod.rs" column_sweep::ColumnSweepFormat,
    "cached/ehyb/mod.rs" ehyb::EhybFormat,
    "cached/hub_ell/mod.rs" hub_ell::HubEllFormat,
}

/// Returns the format with this name or alias ([`Storage::ALIASES`]).
///
/// # Errors
/// [`Error::Argument`] with the known names, if no format has this name.
pub fn find(name: &str) -> Result<&'static Format> {
    find_in(FORMATS, name)
}

/// Returns the format of a table with this name or alias.
fn find_in(formats: &'static [Format], name: &str) -> Result<&'static Format> {
    formats.iter().find(|format| format.is_called(name)).ok_or_else(|| {
        let known: Vec<_> = formats.iter().map(|format| format.name).collect();
        Error::argument(format!("no format is named '{name}'; there are: {}", known.join(", ")))
    })
}

/// Returns the number of bytes of a slice's elements.
pub fn bytes_of<T>(array: &[T]) -> u64 {
    size_of_val(array) as u64
}

/// Stores `y = alpha * sum + beta * y`, and reads y only if `beta` is not 0.
#[inline(always)]
pub(crate) fn store<T: Scalar>(y: &mut T, alpha: T, sum: T, beta: T) {
    *y = if beta == T::ZERO { alpha * sum } else { alpha * sum + beta * *y };
}
