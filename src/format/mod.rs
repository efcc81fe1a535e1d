//! Storage formats: one module and one line of the table for each.
//!
//! A format answers three questions about a matrix: which [`Params`] to try, how much [`Work`] a
//! product is (or a [`Refusal`]), and how to [`convert`](Storage::convert) the CSR matrix to its
//! [`Layout`]. No code outside this folder names a format.

mod baseline;
mod candidate;
mod fill_marker;
pub(crate) mod gpu;
pub(crate) mod offsets;
mod row_order;
pub(crate) mod value_dictionary;

// Modules that several formats of a family share; each file is in the family's folder.
#[path = "sliced/bisection.rs"]
mod bisection;
#[path = "ell/column_major.rs"]
mod column_major;
#[path = "csr/csr_tiles.rs"]
mod csr_tiles;
#[path = "dia/diagonals.rs"]
mod diagonals;
#[path = "cached/part_slices.rs"]
mod part_slices;
#[path = "cached/partition.rs"]
mod partition;
#[path = "sliced/sliced.rs"]
mod sliced;
#[path = "sliced/sliced_quads.rs"]
mod sliced_quads;
#[path = "tiled/sorted_tiles/mod.rs"]
mod sorted_tiles;

use std::any::Any;

use serde::{Deserialize, Serialize};

use crate::analysis::Analysis;
use crate::csr::{Csr, CsrRef};
use crate::error::{Error, Result};
pub use crate::refusal::Refusal;
use crate::scalar::{Precision, Scalar};
pub use crate::target::{Basis, Target};
pub use baseline::{BASELINES, CSR, PCSR, Role, baseline, baselines, immediate};
#[cfg(feature = "cuda")]
pub(crate) use bhll::fill as block_fill;
pub use candidate::{Candidate, Param, Params, Value, candidates};
#[cfg(feature = "cuda")]
pub(crate) use gpu::convert::Check;
pub use gpu::convert::Matrix;
pub(crate) use gpu::convert::{GpuConverter, GpuLayout, SliceOffsets, Stop};
pub(crate) use gpu::launch::{Algorithm, Arg, Launch, OnDevice, Vendor};
pub(crate) use offsets::Offsets;

/// Declares the modules of all formats and the table of formats.
macro_rules! formats {
    ($($path:literal $module:ident :: $storage:ident),* $(,)?) => {
        $(
            #[path = $path]
            pub mod $module;
        )*

        /// Every format, in the order in which ties are decided and lists are printed.
        pub static FORMATS: &[&'static dyn Format] = &[$(&$module::$storage),*];
    };
}

// `cargo fmt` does not expand this macro, so `.ci/run` formats the modules by name.
formats! {
    "csr/csr.rs" csr::CsrFormat,
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
    "sliced/hllvi.rs" hllvi::HllviFormat,
    "sliced/hlldu/mod.rs" hlldu::HllduFormat,
    "sliced/bhll/mod.rs" bhll::BhllFormat,
    "dia/hdia.rs" hdia::HdiaFormat,
    "dia/cdia/mod.rs" cdia::CdiaFormat,
    "csr/pcsr.rs" pcsr::PcsrFormat,
    "tiled/stcsr.rs" stcsr::StcsrFormat,
    "tiled/stvi.rs" stvi::StviFormat,
    "tiled/slabs/mod.rs" slabs::SlabsFormat,
    "cached/sweep/mod.rs" sweep::SweepFormat,
    "cached/ehyb/mod.rs" ehyb::EhybFormat,
    "cached/hubs/mod.rs" hubs::HubsFormat,
}

/// Work of one conversion and one product of a layout; costs are computed from it.
///
/// ```
/// use ellect::analysis::Analysis;
/// use ellect::format::Candidate;
/// use ellect::{Csr, Precision, Workload, device};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = Csr::from_triplets(2, 2, [(0, 0, 1.0), (0, 1, 2.0), (1, 1, 3.0)])?;
/// let cpu = device::find("cpu")?;
/// let target = Workload::default().target(&cpu, Precision::F64);
/// let ell: Candidate = "ell".parse()?;
/// let work = ell.work(&Analysis::of(&csr), &target).expect("ELL applies");
/// assert!(work.entries >= 3, "entries and padding");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Number of bytes of the layout's arrays, equal to [`Layout::bytes`].
    pub layout_bytes: u64,
    /// Bytes of the layout's arrays that one product reads.
    pub stream_bytes: u64,
    /// Number of multiply-adds, including those on padding.
    pub entries: u64,
    /// Number of 32-byte sectors of x that the warp steps of a product request.
    pub x_sectors: f64,
    /// Number of sectors of x that the nearest caches of a GPU load, if [`Analysis::x_loaded`]
    /// computes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x_loaded: Option<f64>,
    /// Bytes of x that a product accesses at a time, if fewer than all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x_window_bytes: Option<u64>,
    /// Additional bytes moved through memory: intermediate arrays, second passes over y, cached
    /// slices of x.
    pub extra_bytes: u64,
    /// Number of rows of y that are written in another order than they are computed in.
    pub scattered_rows: u64,
    /// Number of warp iterations (PELLR, equation 1): the sum over warps of their longest lane.
    pub steps: u64,
    /// Number of times that warps wait for entries they loaded, summed over all warps, if each warp
    /// processes rows up to their own length.
    #[serde(default)]
    pub waits: u64,
    /// Mean over tiles of the consecutive steps or turns in which a thread block of a GPU sums the
    /// rows of its tile; 0 if the format has no tiles. Sampled if there are many tiles.
    #[serde(default)]
    pub tile_steps: f64,
    /// Maximum over tiles of the steps in `tile_steps`. Sampled if there are many tiles.
    #[serde(default)]
    pub tile_steps_most: f64,
    /// Number of GPU threads that process whole rows, alone or together with others: rows times
    /// threads per row. 0 if long rows are split among as many threads as they need.
    pub lanes: u64,
    /// Number of kernels launched (parallel regions on a host).
    pub launches: u32,
    /// Number of bytes that the conversion reads and writes.
    pub convert_bytes: u64,
    /// Number of keys that the conversion sorts.
    pub sorted_keys: u64,
    /// Number of edges of the graph that the conversion partitions on the host.
    pub partitioned_edges: u64,
}

/// A matrix held in a format's arrays, ready to multiply on the host.
///
/// ```
/// use ellect::analysis::Analysis;
/// use ellect::format::{Candidate, Layout};
/// use ellect::{Csr, Precision, Workload, device};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = Csr::from_triplets(2, 2, [(0, 0, 1.0), (0, 1, 2.0), (1, 1, 3.0)])?;
/// let cpu = device::find("cpu")?;
/// let target = Workload::default().target(&cpu, Precision::F64);
/// let ell: Candidate = "ell".parse()?;
/// let layout: Box<dyn Layout<f64>> = ell.convert(&csr, &Analysis::of(&csr), &target)?;
/// assert_eq!(layout.to_csr(), csr);
/// # Ok(())
/// # }
/// ```
pub trait Layout<T: Scalar>: Send + Sync {
    /// Computes y = alpha A x + beta y on the host, with rayon's current threads.
    ///
    /// If `beta` is 0, y is written and never read. In a permuted basis, x and y are permuted by
    /// [`Layout::order`].
    ///
    /// # Panics
    /// If `x` does not have `ncols` or `y` not `nrows` elements; [`crate::operator`] checks it
    /// first.
    fn apply(&self, alpha: T, x: &[T], beta: T, y: &mut [T]);

    /// Returns the number of bytes of all arrays that the layout holds, without vectors and scratch
    /// memory.
    fn bytes(&self) -> u64;

    /// Replaces the values; `values` are in the order of the converted CSR matrix.
    ///
    /// # Panics
    /// If `values` does not have `nnz` elements; [`crate::operator`] checks it first.
    fn set_values(&mut self, values: &[T]);

    /// Tells whether [`Layout::check_values`] may refuse new values.
    fn limits_values(&self) -> bool {
        false
    }

    /// Checks that the layout can hold these values, in the order of the converted CSR matrix.
    ///
    /// # Errors
    /// [`Refusal`] if the layout relies on equalities among the converted values that these values
    /// do not have.
    fn check_values(&self, values: &[T]) -> std::result::Result<(), Refusal> {
        let _ = values;
        Ok(())
    }

    /// Returns the CSR matrix that was converted, with the same pattern and values.
    fn to_csr(&self) -> Csr<T>;

    /// Returns the symmetric permutation of a permuted basis, `order[new] = old`; `None` if vectors
    /// are in the original basis.
    fn order(&self) -> Option<&[u32]> {
        None
    }

    /// Returns the arrays that a GPU holds of this layout and the kernels it launches for a
    /// product; `None` if the layout has no GPU kernel.
    fn on_device(&self) -> Option<OnDevice<'_>> {
        None
    }
}

/// A storage format, implemented by a unit struct in the format's module.
///
/// ```
/// use ellect::format::FORMATS;
///
/// // Each format implements `Storage`; the table holds it as a `Format`.
/// assert!(FORMATS.iter().any(|format| format.name() == "csr"));
/// ```
pub trait Storage: Sync {
    /// Name in lists, candidates and records: lower case, the field's standard term.
    const NAME: &'static str;
    /// Full name.
    const TITLE: &'static str;
    /// Publication: authors, title, year, section.
    const SOURCE: &'static str;
    /// Matrices that the format is good for and bad for, in one sentence.
    const SUITS: &'static str;
    /// Parameters of the format.
    const PARAMS: &'static [Param] = &[];
    /// True if the format applies only to matrices with many equal values, so that a layout may
    /// refuse new values.
    const BY_VALUES: bool = false;
    /// Version of the conversion and of the product on a host; records of another version are
    /// stale. Raise it if the arrays change (`tests/layouts.rs` fails until then), or if the
    /// product is rewritten and may take another time.
    const HOST_VERSION: u32 = 1;
    /// Role of the format in a choice.
    const ROLE: Role = Role::Converted;
    /// True if the default variant can be chosen without an analysis of the matrix, because its
    /// conversion takes about as long as one product.
    const IMMEDIATE: bool = false;

    /// The arrays of this format.
    type Layout<T: Scalar>: Layout<T> + 'static;

    /// Computes the work of one product and of the conversion, without converting.
    ///
    /// # Errors
    /// [`Refusal`] if the variant does not apply to the matrix or the target.
    fn work(
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> std::result::Result<Work, Refusal>;

    /// Converts a matrix; `analysis` is the structure of `csr`. Called only if [`Storage::work`]
    /// did not refuse.
    ///
    /// # Errors
    /// [`Refusal`] if only the conversion itself could find out that the variant does not apply.
    fn convert<T: Scalar>(
        csr: CsrRef<'_, T>,
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> std::result::Result<Self::Layout<T>, Refusal>;

    /// Converts a matrix on a GPU, with values of the target's precision.
    ///
    /// # Errors
    /// [`Stop::Refused`] if the variant does not apply to the matrix, [`Stop::Failed`] if the
    /// device fails, [`Stop::OnHost`] if this format or variant is converted on the host.
    fn build(
        converter: &mut dyn GpuConverter,
        params: &Params,
        target: &Target<'_>,
    ) -> std::result::Result<GpuLayout, Stop> {
        let _ = (converter, params, target);
        Err(Stop::OnHost)
    }
}

/// A row of the format table; every [`Storage`] implements it.
///
/// ```
/// use ellect::format::find;
///
/// # fn main() -> ellect::Result<()> {
/// let hll = find("hll")?;
/// println!("{}: {} ({})", hll.title(), hll.suits(), hll.source());
/// assert!(hll.params().iter().any(|param| param.name == "hack"));
/// # Ok(())
/// # }
/// ```
pub trait Format: Sync {
    /// Returns [`Storage::NAME`].
    fn name(&self) -> &'static str;
    /// Returns [`Storage::TITLE`].
    fn title(&self) -> &'static str;
    /// Returns [`Storage::SOURCE`].
    fn source(&self) -> &'static str;
    /// Returns [`Storage::SUITS`].
    fn suits(&self) -> &'static str;
    /// Returns [`Storage::PARAMS`].
    fn params(&self) -> &'static [Param];
    /// Returns [`Storage::BY_VALUES`].
    fn by_values(&self) -> bool;
    /// Returns [`Storage::HOST_VERSION`].
    fn host_version(&self) -> u32;
    /// Returns [`Storage::ROLE`].
    fn role(&self) -> Role;
    /// Returns [`Storage::IMMEDIATE`].
    fn immediate(&self) -> bool;
    /// Calls [`Storage::work`].
    ///
    /// # Errors
    /// As [`Storage::work`].
    fn work(
        &self,
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> std::result::Result<Work, Refusal>;
    /// Calls [`Storage::convert`] with values in f32.
    ///
    /// # Errors
    /// As [`Storage::convert`].
    fn convert_f32(
        &self,
        csr: CsrRef<'_, f32>,
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> std::result::Result<Box<dyn Layout<f32>>, Refusal>;
    /// Calls [`Storage::convert`] with values in f64.
    ///
    /// # Errors
    /// As [`Storage::convert`].
    fn convert_f64(
        &self,
        csr: CsrRef<'_, f64>,
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> std::result::Result<Box<dyn Layout<f64>>, Refusal>;
    /// Calls [`Storage::build`].
    ///
    /// # Errors
    /// As [`Storage::build`].
    fn build(
        &self,
        converter: &mut dyn GpuConverter,
        params: &Params,
        target: &Target<'_>,
    ) -> std::result::Result<GpuLayout, Stop>;
}

impl<S: Storage> Format for S {
    fn name(&self) -> &'static str {
        S::NAME
    }

    fn title(&self) -> &'static str {
        S::TITLE
    }

    fn source(&self) -> &'static str {
        S::SOURCE
    }

    fn suits(&self) -> &'static str {
        S::SUITS
    }

    fn params(&self) -> &'static [Param] {
        S::PARAMS
    }

    fn by_values(&self) -> bool {
        S::BY_VALUES
    }

    fn host_version(&self) -> u32 {
        S::HOST_VERSION
    }

    fn role(&self) -> Role {
        S::ROLE
    }

    fn immediate(&self) -> bool {
        S::IMMEDIATE
    }

    fn work(
        &self,
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> std::result::Result<Work, Refusal> {
        S::work(analysis, params, target)
    }

    fn convert_f32(
        &self,
        csr: CsrRef<'_, f32>,
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> std::result::Result<Box<dyn Layout<f32>>, Refusal> {
        Ok(Box::new(S::convert(csr, analysis, params, target)?))
    }

    fn convert_f64(
        &self,
        csr: CsrRef<'_, f64>,
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> std::result::Result<Box<dyn Layout<f64>>, Refusal> {
        Ok(Box::new(S::convert(csr, analysis, params, target)?))
    }

    fn build(
        &self,
        converter: &mut dyn GpuConverter,
        params: &Params,
        target: &Target<'_>,
    ) -> std::result::Result<GpuLayout, Stop> {
        S::build(converter, params, target)
    }
}

/// Converts a matrix of any value type through the format's row in the table, which has one
/// function for each of the two types.
pub(crate) fn convert_layout<T: Scalar>(
    candidate: &Candidate,
    csr: CsrRef<'_, T>,
    analysis: &Analysis<'_>,
    target: &Target<'_>,
) -> std::result::Result<Box<dyn Layout<T>>, Refusal> {
    let Candidate { format, params } = candidate;
    let layout: Box<dyn Any> = match T::PRECISION {
        Precision::F32 => Box::new(format.convert_f32(csr.cast(), analysis, params, target)?),
        Precision::F64 => Box::new(format.convert_f64(csr.cast(), analysis, params, target)?),
    };
    let layout = layout.downcast::<Box<dyn Layout<T>>>();
    Ok(*layout.expect("the precision of T names its type"))
}

impl Candidate {
    /// Converts a matrix on the host: see [`Storage::convert`].
    ///
    /// # Errors
    /// [`Error::Refused`] if the candidate does not apply to the matrix, or if the layout exceeds
    /// the target's memory limit.
    pub fn convert<'a, T: Scalar>(
        &self,
        csr: impl Into<CsrRef<'a, T>>,
        analysis: &Analysis<'_>,
        target: &Target<'_>,
    ) -> Result<Box<dyn Layout<T>>> {
        let refused = |reason: Refusal| self.refused(&reason);
        let layout = convert_layout(self, csr.into(), analysis, target).map_err(refused)?;
        target.check_bytes(layout.bytes()).map_err(refused)?;
        Ok(layout)
    }

    /// Returns the error for a refusal of this candidate.
    pub fn refused(&self, reason: &Refusal) -> Error {
        Error::Refused { candidate: self.to_string(), reason: reason.to_string() }
    }

    /// Computes the work of this candidate: see [`Storage::work`].
    ///
    /// # Errors
    /// As [`Storage::work`], and if the layout exceeds the target's memory limit.
    pub fn work(
        &self,
        analysis: &Analysis<'_>,
        target: &Target<'_>,
    ) -> std::result::Result<Work, Refusal> {
        let work = self.format.work(analysis, &self.params, target)?;
        target.check_bytes(work.layout_bytes)?;
        Ok(work)
    }
}

/// Returns the format with this name.
///
/// # Errors
/// [`Error::Argument`] with the known names, if no format has this name.
pub fn find(name: &str) -> Result<&'static dyn Format> {
    FORMATS.iter().copied().find(|format| format.name() == name).ok_or_else(|| {
        let known: Vec<_> = FORMATS.iter().map(|format| format.name()).collect();
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
