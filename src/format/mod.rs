//! Storage formats: one module each, one line each in the table.
//!
//! A format answers three questions about a matrix: which [`Params`] are worth trying, how much
//! [`Work`] a product is (or a [`Refusal`]), and how to [`convert`](Storage::convert) the CSR
//! matrix to its [`Layout`]. Nothing outside this folder names a format.

mod baseline;
mod candidate;
mod fill_marker;
mod gpu;
mod offsets;
mod row_order;
mod value_dictionary;

// What several formats of a family share; files stand in the folder of the family.
#[path = "sliced/bisection.rs"]
mod bisection;
#[path = "sliced/block_conversion.rs"]
mod block_conversion;
#[path = "ell/column_major.rs"]
mod column_major;
#[path = "csr/csr_tiles.rs"]
mod csr_tiles;
#[path = "dia/diagonals.rs"]
mod diagonals;
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

use crate::csr::{Csr, CsrRef};
use crate::error::{Error, Result};
pub use crate::refusal::Refusal;
use crate::scalar::{Precision, Scalar};
use crate::structure::Structure;
pub use crate::target::{Basis, Target};
pub use baseline::{BASELINES, CSR, PCSR, Role, baseline, baselines, immediate};
pub use candidate::{Candidate, Param, Params, Value, candidates};
pub use gpu::convert::{Builder, Built, Check, Matrix, Starts, Stop};
pub use gpu::launch::{Algorithm, Arg, Launch, OnDevice, Vendor};
pub use offsets::Offsets;
#[cfg(feature = "cuda")]
pub(crate) use value_dictionary::are_few;

/// Declares the module of each format and the table of all of them.
macro_rules! formats {
    ($($path:literal $module:ident :: $storage:ident),* $(,)?) => {
        $(
            #[path = $path]
            pub mod $module;
        )*

        /// Every format, in the order in which ties are settled and lists are printed.
        pub static FORMATS: &[&'static dyn Format] = &[$(&$module::$storage),*];
    };
}

// `cargo fmt` does not look into this macro: `.ci/run` formats the modules by name.
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
    "sliced/bhll.rs" bhll::BhllFormat,
    "dia/hdia.rs" hdia::HdiaFormat,
    "dia/cdia/mod.rs" cdia::CdiaFormat,
    "csr/pcsr.rs" pcsr::PcsrFormat,
    "tiled/stcsr.rs" stcsr::StcsrFormat,
    "tiled/stvi.rs" stvi::StviFormat,
    "tiled/slabs/mod.rs" slabs::SlabsFormat,
    "cached/sweep/mod.rs" sweep::SweepFormat,
    "cached/ehyb.rs" ehyb::EhybFormat,
    "cached/hubs/mod.rs" hubs::HubsFormat,
}

/// What one conversion and one product of a layout have to do; costs are computed from it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Bytes of the layout's arrays: exactly what [`Layout::bytes`] will say.
    pub layout_bytes: u64,
    /// Bytes of those arrays that one product reads.
    pub stream_bytes: u64,
    /// Multiply-adds, those on padding among them.
    pub entries: u64,
    /// 32-byte sectors of x that the warp steps of a product ask for.
    pub x_sectors: f64,
    /// Loads of x by the nearest caches of a GPU, as [`Structure::x_loaded`] reckons them, where it
    /// does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x_loaded: Option<f64>,
    /// Bytes of x that a product asks for at a time, where they are fewer than all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x_window_bytes: Option<u64>,
    /// Further bytes moved through memory: middle arrays, second passes over y, cached slices of x.
    pub extra_bytes: u64,
    /// Rows of y written in another order than they are computed in.
    pub scattered_rows: u64,
    /// Warp iterations (PELLR, equation 1): the sum over warps of their longest lane.
    pub steps: u64,
    /// Times that warps wait for the entries that they loaded, all warps together, where they walk
    /// rows of their own length.
    #[serde(default)]
    pub waits: u64,
    /// Steps or turns that a GPU's block of threads takes one after the other to sum the rows of its
    /// tile, where the format has tiles: the mean over tiles...
    #[serde(default)]
    pub tile_steps: f64,
    /// ...and the most of any tile. Of many tiles some are looked at.
    #[serde(default)]
    pub tile_steps_most: f64,
    /// GPU threads that walk whole rows, together with others or alone: rows times threads a row.
    /// 0 where long rows are split among as many as it takes.
    pub lanes: u64,
    /// Kernels launched (parallel regions on a host).
    pub launches: u32,
    /// Bytes read and written by the conversion.
    pub convert_bytes: u64,
    /// Keys sorted by the conversion.
    pub sorted_keys: u64,
    /// Edges of the graph that the conversion partitions on the host.
    pub partitioned_edges: u64,
}

/// A matrix held in a format's arrays, ready to multiply on the host.
pub trait Layout<T: Scalar>: Send + Sync {
    /// y = alpha A x + beta y, on the host, over rayon's current threads.
    ///
    /// With `beta = 0`, y is written and never read. In a permuted basis x and y are permuted
    /// by [`Layout::order`].
    ///
    /// # Panics
    /// If `x` or `y` has not the length of a row or column; [`crate::operator`] checks it first.
    fn apply(&self, alpha: T, x: &[T], beta: T, y: &mut [T]);

    /// Bytes of all arrays that the layout holds (vectors and scratch not among them).
    fn bytes(&self) -> u64;

    /// Puts in new values, given in the order of the CSR matrix that was converted.
    ///
    /// # Panics
    /// If `values` has not `nnz` elements; [`crate::operator`] checks it first.
    fn set_values(&mut self, values: &[T]);

    /// Whether [`Layout::check_values`] may refuse new values.
    fn limits_values(&self) -> bool {
        false
    }

    /// Checks that the layout can hold these values, given in the order of the CSR matrix.
    ///
    /// # Errors
    /// [`Refusal`] where it was made for values that are alike and these are not.
    fn check_values(&self, values: &[T]) -> std::result::Result<(), Refusal> {
        let _ = values;
        Ok(())
    }

    /// The CSR matrix that was converted: same pattern, same values.
    fn to_csr(&self) -> Csr<T>;

    /// The symmetric permutation of a permuted basis, `order[new] = old`; `None` where vectors are
    /// in the original one.
    fn order(&self) -> Option<&[u32]> {
        None
    }

    /// What a GPU holds of this layout and launches for a product; `None` where no kernel is made
    /// for it.
    fn on_device(&self) -> Option<OnDevice<'_>> {
        None
    }
}

/// What a format's module implements, on a unit struct.
pub trait Storage: Sync {
    /// Its name in lists, candidates and records: lower case, the field's standard term.
    const NAME: &'static str;
    /// Its name in full.
    const TITLE: &'static str;
    /// Where it was published: authors, title, year, section.
    const SOURCE: &'static str;
    /// When it is good and when it is bad, in one sentence.
    const SUITS: &'static str;
    /// Its parameters.
    const PARAMS: &'static [Param] = &[];
    /// Whether it suits only where many entries have the same value, and so may refuse new ones.
    const BY_VALUES: bool = false;
    /// Version of the conversion and of the product on a host; records of another version are stale.
    /// Raise it where the arrays change (`tests/layouts.rs` fails until then) or the product is
    /// written anew and may take another time.
    const HOST_VERSION: u32 = 1;
    /// What it is to a choice.
    const ROLE: Role = Role::Converted;
    /// Whether its default variant can be chosen without an analysis of the matrix: its conversion
    /// takes about as long as one product.
    const IMMEDIATE: bool = false;

    /// The arrays of this format.
    type Layout<T: Scalar>: Layout<T> + 'static;

    /// The work of one product and of the conversion, without converting.
    ///
    /// # Errors
    /// [`Refusal`] where the variant does not suit the matrix or the target.
    fn work(
        structure: &Structure<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> std::result::Result<Work, Refusal>;

    /// Converts; `structure` is that of `csr`. Called only where [`Storage::work`] did not refuse.
    ///
    /// # Errors
    /// [`Refusal`] where only the conversion itself could find out.
    fn convert<T: Scalar>(
        csr: CsrRef<'_, T>,
        structure: &Structure<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> std::result::Result<Self::Layout<T>, Refusal>;

    /// Converts on a GPU, with values of the target's precision.
    ///
    /// # Errors
    /// [`Stop::Refused`] where the variant does not suit the matrix, [`Stop::Failed`] by the
    /// device, [`Stop::OnHost`] where this format or variant is converted on the host.
    fn build(
        builder: &mut dyn Builder,
        params: &Params,
        target: &Target<'_>,
    ) -> std::result::Result<Built, Stop> {
        let _ = (builder, params, target);
        Err(Stop::OnHost)
    }
}

/// A row of the format table; every [`Storage`] is one.
pub trait Format: Sync {
    /// [`Storage::NAME`].
    fn name(&self) -> &'static str;
    /// [`Storage::TITLE`].
    fn title(&self) -> &'static str;
    /// [`Storage::SOURCE`].
    fn source(&self) -> &'static str;
    /// [`Storage::SUITS`].
    fn suits(&self) -> &'static str;
    /// [`Storage::PARAMS`].
    fn params(&self) -> &'static [Param];
    /// [`Storage::BY_VALUES`].
    fn by_values(&self) -> bool;
    /// [`Storage::HOST_VERSION`].
    fn host_version(&self) -> u32;
    /// [`Storage::ROLE`].
    fn role(&self) -> Role;
    /// [`Storage::IMMEDIATE`].
    fn immediate(&self) -> bool;
    /// [`Storage::work`].
    ///
    /// # Errors
    /// As there.
    fn work(
        &self,
        structure: &Structure<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> std::result::Result<Work, Refusal>;
    /// [`Storage::convert`] in f32.
    ///
    /// # Errors
    /// As there.
    fn convert_f32(
        &self,
        csr: CsrRef<'_, f32>,
        structure: &Structure<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> std::result::Result<Box<dyn Layout<f32>>, Refusal>;
    /// [`Storage::convert`] in f64.
    ///
    /// # Errors
    /// As there.
    fn convert_f64(
        &self,
        csr: CsrRef<'_, f64>,
        structure: &Structure<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> std::result::Result<Box<dyn Layout<f64>>, Refusal>;
    /// [`Storage::build`].
    ///
    /// # Errors
    /// As there.
    fn build(
        &self,
        builder: &mut dyn Builder,
        params: &Params,
        target: &Target<'_>,
    ) -> std::result::Result<Built, Stop>;
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
        structure: &Structure<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> std::result::Result<Work, Refusal> {
        S::work(structure, params, target)
    }

    fn convert_f32(
        &self,
        csr: CsrRef<'_, f32>,
        structure: &Structure<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> std::result::Result<Box<dyn Layout<f32>>, Refusal> {
        Ok(Box::new(S::convert(csr, structure, params, target)?))
    }

    fn convert_f64(
        &self,
        csr: CsrRef<'_, f64>,
        structure: &Structure<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> std::result::Result<Box<dyn Layout<f64>>, Refusal> {
        Ok(Box::new(S::convert(csr, structure, params, target)?))
    }

    fn build(
        &self,
        builder: &mut dyn Builder,
        params: &Params,
        target: &Target<'_>,
    ) -> std::result::Result<Built, Stop> {
        S::build(builder, params, target)
    }
}

/// Converts a matrix of any value type through the row of a format, which knows two.
pub(crate) fn convert_layout<T: Scalar>(
    candidate: &Candidate,
    csr: CsrRef<'_, T>,
    structure: &Structure<'_>,
    target: &Target<'_>,
) -> std::result::Result<Box<dyn Layout<T>>, Refusal> {
    let Candidate { format, params } = candidate;
    let layout: Box<dyn Any> = match T::PRECISION {
        Precision::F32 => Box::new(format.convert_f32(csr.cast(), structure, params, target)?),
        Precision::F64 => Box::new(format.convert_f64(csr.cast(), structure, params, target)?),
    };
    let layout = layout.downcast::<Box<dyn Layout<T>>>();
    Ok(*layout.expect("the precision of T names its type"))
}

impl Candidate {
    /// Converts a matrix on the host: see [`Storage::convert`].
    ///
    /// # Errors
    /// [`Error::Refused`] where the candidate does not suit the matrix, or over the target's memory
    /// limit.
    pub fn convert<'a, T: Scalar>(
        &self,
        csr: impl Into<CsrRef<'a, T>>,
        structure: &Structure<'_>,
        target: &Target<'_>,
    ) -> Result<Box<dyn Layout<T>>> {
        let refused = |reason: Refusal| self.refused(&reason);
        let layout = convert_layout(self, csr.into(), structure, target).map_err(refused)?;
        target.check_bytes(layout.bytes()).map_err(refused)?;
        Ok(layout)
    }

    /// The error of a refusal.
    pub fn refused(&self, reason: &Refusal) -> Error {
        Error::Refused { candidate: self.to_string(), reason: reason.to_string() }
    }

    /// The work of this candidate: see [`Storage::work`].
    ///
    /// # Errors
    /// As there, and over the target's memory limit.
    pub fn work(
        &self,
        structure: &Structure<'_>,
        target: &Target<'_>,
    ) -> std::result::Result<Work, Refusal> {
        let work = self.format.work(structure, &self.params, target)?;
        target.check_bytes(work.layout_bytes)?;
        Ok(work)
    }
}

/// The format of this name.
///
/// # Errors
/// [`Error::Argument`] with the known names.
pub fn find(name: &str) -> Result<&'static dyn Format> {
    FORMATS.iter().copied().find(|format| format.name() == name).ok_or_else(|| {
        let known: Vec<_> = FORMATS.iter().map(|format| format.name()).collect();
        Error::argument(format!("no format is named '{name}'; there are: {}", known.join(", ")))
    })
}

/// Bytes of a slice's elements.
pub fn bytes_of<T>(array: &[T]) -> u64 {
    size_of_val(array) as u64
}

/// `y = alpha * sum + beta * y`, reading y only where `beta` is not 0.
#[inline(always)]
pub(crate) fn store<T: Scalar>(y: &mut T, alpha: T, sum: T, beta: T) {
    *y = if beta == T::ZERO { alpha * sum } else { alpha * sum + beta * *y };
}
