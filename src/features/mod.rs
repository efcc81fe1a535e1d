//! Features: named numbers that describe a matrix; models choose from them.
//!
//! [`FEATURES`] are cheap: all of them take a few passes over the pattern, or less where samples
//! suffice. [`COSTLY`] features are computed only on request. Both depend on the pattern alone.

mod counts;
mod named;
mod sampled;

use rayon::prelude::*;
use serde::{Serialize, Serializer};

use crate::analysis::{Analysis, Histogram, probes};
use crate::csr::Pattern;
use crate::error::Error;
use crate::partition;
use crate::refusal::Refusal;
use crate::scalar::Precision;
pub(crate) use counts::FeatureCounts;
#[cfg(feature = "cuda")]
pub(crate) use counts::{ColumnFill, DIAGONAL_HACKS, HACK, HackCounts, SIDES};
use counts::{RowFigures, over};
pub use counts::{n_iter, n_p};
pub(crate) use sampled::SAMPLED;
#[cfg(feature = "cuda")]
pub(crate) use sampled::{RowCounts, SampleCounts};

/// A feature: name, unit and meaning.
///
/// ```
/// use ellect::features::FEATURES;
///
/// let longest = FEATURES.iter().find(|feature| feature.name == "row_nnz_max");
/// assert!(longest.is_some_and(|feature| !feature.doc.is_empty()));
/// ```
#[derive(Debug)]
pub struct Feature {
    /// Name in lists, JSON and models.
    pub name: &'static str,
    /// Unit; `1` for a ratio.
    pub unit: &'static str,
    /// Meaning, in one phrase; and the cost, if the feature is not cheap.
    pub doc: &'static str,
    function: Function,
}

/// The function that computes a feature, by what it reads.
#[derive(Debug)]
enum Function {
    /// From the size of the matrix alone: reads no array.
    Size(fn(&RowFigures<'_>) -> f64),
    /// From row lengths alone.
    Rows(fn(&RowFigures<'_>) -> f64),
    /// From counts that the cheap features share.
    Cheap(fn(&FeatureCounts) -> f64),
    /// By itself; refused if it is undefined for the matrix.
    Costly(fn(&Analysis<'_>) -> Result<f64, Refusal>),
}

const fn of_size(
    name: &'static str,
    unit: &'static str,
    doc: &'static str,
    function: fn(&RowFigures<'_>) -> f64,
) -> Feature {
    Feature { name, unit, doc, function: Function::Size(function) }
}

const fn of_rows(
    name: &'static str,
    unit: &'static str,
    doc: &'static str,
    function: fn(&RowFigures<'_>) -> f64,
) -> Feature {
    Feature { name, unit, doc, function: Function::Rows(function) }
}

const fn feature(
    name: &'static str,
    unit: &'static str,
    doc: &'static str,
    function: fn(&FeatureCounts) -> f64,
) -> Feature {
    Feature { name, unit, doc, function: Function::Cheap(function) }
}

const fn costly(
    name: &'static str,
    unit: &'static str,
    doc: &'static str,
    function: fn(&Analysis<'_>) -> Result<f64, Refusal>,
) -> Feature {
    Feature { name, unit, doc, function: Function::Costly(function) }
}

/// The cheap features.
///
/// Padding is the number of slots per entry: 1 if nothing is padded. Features marked as sampled are
/// always estimated from a sample; the others are exact. If [`Analysis::sampled`] samples a large
/// matrix, every feature that needs entries is an estimate.
pub static FEATURES: &[Feature] = &[
    of_size("nrows", "rows", "number of rows", |r| r.nrows),
    of_size("ncols", "columns", "number of columns", |r| r.ncols),
    of_size("nnz", "entries", "number of stored entries", |r| r.nnz),
    of_size("density", "1", "entries / (rows * columns)", |r| over(r.nnz, r.nrows * r.ncols)),
    of_size("row_nnz_mean", "entries", "mean row length", |r| r.mean()),
    of_rows("row_nnz_sigma", "entries", "standard deviation of row lengths", |r| r.sigma()),
    of_rows("row_nnz_cv", "1", "coefficient of variation (sigma / mean) of row lengths", |r| {
        over(r.sigma(), r.mean())
    }),
    of_rows("row_nnz_min", "entries", "length of the shortest row", |r| r.quantile(0.0)),
    of_rows("row_nnz_q25", "entries", "25th percentile of row lengths", |r| r.quantile(0.25)),
    of_rows("row_nnz_q50", "entries", "median of row lengths", |r| r.quantile(0.5)),
    of_rows("row_nnz_q75", "entries", "75th percentile of row lengths", |r| r.quantile(0.75)),
    of_rows("row_nnz_q90", "entries", "90th percentile of row lengths", |r| r.quantile(0.9)),
    of_rows("row_nnz_q99", "entries", "99th percentile of row lengths", |r| r.quantile(0.99)),
    of_rows("row_nnz_max", "entries", "length of the longest row", |r| r.quantile(1.0)),
    of_rows("row_nnz_range", "entries", "length of the longest row minus the shortest", |r| {
        r.quantile(1.0) - r.quantile(0.0)
    }),
    of_rows("row_nnz_gini", "1", "Gini coefficient of row lengths: 0 if all are equal", |r| {
        r.gini()
    }),
    of_rows("empty_rows", "rows", "number of rows without entries", |r| r.empty_rows()),
    feature("n_diagonals", "diagonals", "number of diagonals with at least one entry", |p| {
        p.diagonals as f64
    }),
    feature("dia_padding", "1", "padding of DIA", |p| over(p.diagonals as f64 * p.nrows, p.nnz)),
    feature("hack_diagonals_32", "diagonals", "mean diagonals per hack of 32 rows", |p| {
        p.hack_diagonals(0)
    }),
    feature("hack_diagonals_256", "diagonals", "mean diagonals per hack of 256 rows", |p| {
        p.hack_diagonals(1)
    }),
    feature("hdia_padding_32", "1", "padding of HDIA with hacks of 32 rows", |p| p.hdia_padding(0)),
    feature("hdia_padding_256", "1", "padding of HDIA with hacks of 256 rows", |p| {
        p.hdia_padding(1)
    }),
    feature("ell_padding", "1", "padding of ELLPACK", |p| {
        over(p.of_rows().quantile(1.0) * p.nrows, p.nnz)
    }),
    feature("hll_padding_32", "1", "padding of HLL with hacks of 32 rows", |p| p.sliced_padding(0)),
    feature("hll_padding_64", "1", "padding of HLL with hacks of 64 rows", |p| p.sliced_padding(1)),
    feature("hll_padding_128", "1", "padding of HLL with hacks of 128 rows", |p| {
        p.sliced_padding(2)
    }),
    feature("hll_padding_256", "1", "padding of HLL with hacks of 256 rows", |p| {
        p.sliced_padding(3)
    }),
    feature(
        "window_padding_512",
        "1",
        "padding of hacks of 32 rows, with rows sorted by length within windows of 512",
        |p| p.window_padding(0),
    ),
    feature(
        "window_padding_4096",
        "1",
        "padding of hacks of 32 rows, with rows sorted by length within windows of 4,096",
        |p| p.window_padding(1),
    ),
    feature("pjds_padding", "1", "padding of pJDS: blocks of 32 rows, all rows sorted", |p| {
        p.all_sorted_padding()
    }),
    feature("n_iter_ellr", "steps", "warp iterations of ELLPACK-R (PELLR, equation 1)", |p| {
        p.longest[0] as f64
    }),
    feature("n_iter_pellr", "steps", "warp iterations of PELLR (equation 1)", |p| {
        p.all_sorted_longest() as f64
    }),
    feature(
        "n_p",
        "operations",
        "number of multiplications and additions (PELLR, equation 2)",
        |p| p.operations() as f64,
    ),
    feature("bandwidth", "columns", "largest distance of an entry from the diagonal", |p| {
        p.hacks.bandwidth as f64
    }),
    feature(
        "profile",
        "columns",
        "distance from each row's first entry to the diagonal, summed over rows",
        |p| p.hacks.profile as f64,
    ),
    feature("hack_span_max", "columns", "largest column span of a hack of 32 rows", |p| {
        p.hacks.span_max as f64
    }),
    feature("hack_span_mean", "columns", "mean column span of hacks of 32 rows", |p| p.span_mean()),
    feature(
        "hack_span_16bit",
        "1",
        "share of hacks of 32 rows whose column offsets fit in 16 bits",
        |p| p.span_narrow(),
    ),
    feature(
        "x_sectors_f64",
        "sectors",
        "32-byte sectors of x that warps request per nonzero, one row per lane, in f64 (sampled)",
        |p| p.x_sectors(Precision::F64),
    ),
    feature(
        "x_sectors_f32",
        "sectors",
        "32-byte sectors of x that warps request per nonzero, one row per lane, in f32 (sampled)",
        |p| p.x_sectors(Precision::F32),
    ),
    feature(
        "x_alpha_f64",
        "1",
        "elements of x that blocks of 256 rows load per nonzero, in f64: alpha of the pJDS code \
         balance (sampled)",
        |p| p.alpha(Precision::F64),
    ),
    feature(
        "x_alpha_f32",
        "1",
        "elements of x that blocks of 256 rows load per nonzero, in f32: alpha of the pJDS code \
         balance (sampled)",
        |p| p.alpha(Precision::F32),
    ),
    feature("hub_share_14336", "1", "share of entries in the 14,336 fullest columns", |p| {
        p.hub_share(14_336)
    }),
    feature("hub_share_28672", "1", "share of entries in the 28,672 fullest columns", |p| {
        p.hub_share(28_672)
    }),
    feature("hub_share_1pct", "1", "share of entries in the fullest 1 % of the columns", |p| {
        p.hub_share((p.ncols / 100.0).ceil() as usize)
    }),
    feature("column_nnz_max", "entries", "entries of the fullest column", |p| p.fullest_column()),
    feature("block_fill_2", "1", "entries per slot of nonempty 2 x 2 blocks (sampled)", |p| {
        p.block_fill[0]
    }),
    feature("block_fill_3", "1", "entries per slot of nonempty 3 x 3 blocks (sampled)", |p| {
        p.block_fill[1]
    }),
    feature("block_fill_4", "1", "entries per slot of nonempty 4 x 4 blocks (sampled)", |p| {
        p.block_fill[2]
    }),
    feature("block_fill_5", "1", "entries per slot of nonempty 5 x 5 blocks (sampled)", |p| {
        p.block_fill[3]
    }),
    feature("block_fill_6", "1", "entries per slot of nonempty 6 x 6 blocks (sampled)", |p| {
        p.block_fill[4]
    }),
    feature(
        "part_share_4096",
        "1",
        "share of entries inside the diagonal blocks of 4,096 rows and columns",
        |p| p.part_share(0),
    ),
    feature(
        "part_share_16384",
        "1",
        "share of entries inside the diagonal blocks of 16,384 rows and columns",
        |p| p.part_share(1),
    ),
    feature(
        "pattern_symmetry",
        "1",
        "share of entries whose mirror image is stored, too (sampled)",
        |p| p.symmetry,
    ),
];

/// Features that each cost more than all cheap features together.
pub static COSTLY: &[Feature] = &[
    costly("block_fill_2_exact", "1", EXACT_FILL, exact_block_fill::<2>),
    costly("block_fill_3_exact", "1", EXACT_FILL, exact_block_fill::<3>),
    costly("block_fill_4_exact", "1", EXACT_FILL, exact_block_fill::<4>),
    costly("block_fill_5_exact", "1", EXACT_FILL, exact_block_fill::<5>),
    costly("block_fill_6_exact", "1", EXACT_FILL, exact_block_fill::<6>),
    costly(
        "pattern_symmetry_exact",
        "1",
        "share of entries whose mirror image is stored, too; costs a search per entry",
        |analysis| Ok(analysis.symmetry(usize::MAX)),
    ),
    costly(
        "part_share_metis_4096",
        "1",
        "share of entries inside METIS parts of at most 4,096 rows; costs a partitioning",
        |analysis| metis_share(analysis.pattern(), 4096),
    ),
];

const EXACT_FILL: &str =
    "entries per slot of nonempty blocks of this size; costs building the pattern of blocks";

fn exact_block_fill<const B: usize>(analysis: &Analysis<'_>) -> Result<f64, Refusal> {
    let slots = (B * B * analysis.blocks(B).pattern().nnz()) as f64;
    Ok(if slots > 0.0 { analysis.pattern().nnz() as f64 / slots } else { 1.0 })
}

/// Returns the share of entries inside METIS parts of at most `most` rows.
fn metis_share(pattern: Pattern<'_>, most: usize) -> Result<f64, Refusal> {
    // METIS keeps parts within 3 % of the mean size, so parts of 97 % of `most` rows leave enough
    // room.
    let parts = (pattern.nrows() as f64 / (0.97 * most as f64)).ceil() as usize;
    let partition = partition::metis(pattern, parts, most)?;
    let mut part = vec![0u32; pattern.nrows()];
    for (p, bounds) in partition.bounds.windows(2).enumerate() {
        for &row in &partition.order[bounds[0]..bounds[1]] {
            part[row as usize] = p as u32;
        }
    }
    let inside = |row: usize| {
        let near = |&&column: &&u32| part[column as usize] == part[row];
        pattern.row(row).iter().filter(near).count()
    };
    let inside: usize = (0..pattern.nrows()).into_par_iter().map(inside).sum();
    Ok(over(inside as f64, pattern.nnz() as f64))
}

probes! {
    /// The values of all cheap features.
    AllFeatures() -> Features;
}

/// The features of one matrix: all cheap ones, and the costly ones that were added.
///
/// ```
/// use ellect::analysis::Analysis;
/// use ellect::features::Features;
/// use ellect::Csr;
///
/// # fn main() -> ellect::Result<()> {
/// let csr = Csr::from_triplets(2, 3, [(0, 0, 1.0), (0, 2, 2.0), (1, 1, 3.0)])?;
/// let features = Features::of(&Analysis::of(&csr));
/// assert_eq!(features.get("row_nnz_max"), Some(2.0));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Features(Vec<(&'static Feature, f64)>);

impl Features {
    /// Computes all cheap features. A few passes over the pattern, on rayon's current threads; kept
    /// by the analysis.
    pub fn of(analysis: &Analysis<'_>) -> Self {
        analysis.memo().get(AllFeatures(), || Features::from(&FeatureCounts::of(analysis)))
    }

    /// Computes the features that depend on the size alone; reads no array.
    pub fn of_size(analysis: &Analysis<'_>) -> Self {
        let pattern = analysis.pattern();
        Features::at_size([pattern.nrows(), pattern.ncols(), pattern.nnz()])
    }

    /// Computes the features that depend on the size alone, from `[nrows, ncols, nnz]`.
    pub fn at_size(size: [usize; 3]) -> Self {
        let uncounted = Histogram::default();
        let rows = RowFigures::at_size(size, &uncounted);
        let size = FEATURES.iter().filter_map(|feature| match feature.function {
            Function::Size(function) => Some((feature, function(&rows))),
            Function::Rows(_) | Function::Cheap(_) | Function::Costly(_) => None,
        });
        Features(size.collect())
    }

    /// Adds one of the [`COSTLY`] features of this matrix.
    ///
    /// # Errors
    /// [`Refusal`] if the feature is undefined for this matrix.
    pub fn with(
        mut self,
        feature: &'static Feature,
        analysis: &Analysis<'_>,
    ) -> Result<Self, Refusal> {
        self.0.push((feature, feature.of(analysis)?));
        Ok(self)
    }

    /// Returns the value of the feature with this name.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.iter().find_map(|(feature, value)| (feature.name == name).then_some(value))
    }

    /// Tells whether the value of a feature is known.
    pub(crate) fn has(&self, feature: &Feature) -> bool {
        self.0.iter().any(|(known, _)| std::ptr::eq(*known, feature))
    }

    /// Iterates over the features and their values, in the order of the table.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Feature, f64)> + '_ {
        self.0.iter().copied()
    }
}

impl From<&FeatureCounts> for Features {
    fn from(summary: &FeatureCounts) -> Self {
        let cheap = FEATURES.iter().filter_map(|feature| match feature.function {
            Function::Size(function) | Function::Rows(function) => {
                Some((feature, function(&summary.of_rows())))
            }
            Function::Cheap(function) => Some((feature, function(summary))),
            Function::Costly(_) => None,
        });
        Features(cheap.collect())
    }
}

impl PartialEq for Features {
    fn eq(&self, other: &Self) -> bool {
        let named = |(feature, value): (&Feature, f64)| (feature.name, value);
        self.iter().map(named).eq(other.iter().map(named))
    }
}

impl Feature {
    /// Returns the part of a matrix that the feature is computed from.
    pub fn needs(&self) -> Needs {
        match self.function {
            Function::Size(_) => Needs::Size,
            Function::Rows(_) => Needs::Rows,
            Function::Cheap(_) | Function::Costly(_) => Needs::Entries,
        }
    }

    /// Computes this feature alone.
    ///
    /// # Errors
    /// [`Refusal`] if the feature is undefined for this matrix.
    pub fn of(&self, analysis: &Analysis<'_>) -> Result<f64, Refusal> {
        match self.function {
            Function::Size(function) | Function::Rows(function) => {
                Ok(function(&RowFigures::of(analysis)))
            }
            Function::Cheap(function) => Ok(function(&FeatureCounts::of(analysis))),
            Function::Costly(function) => function(analysis),
        }
    }
}

/// The part of a matrix that a feature is computed from.
///
/// ```
/// use ellect::features::{FEATURES, Needs};
///
/// let by_size = FEATURES.iter().filter(|feature| feature.needs() == Needs::Size);
/// assert!(by_size.into_iter().any(|feature| feature.name == "nnz"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Needs {
    /// The size.
    Size,
    /// The row lengths: one pass over the row pointers.
    Rows,
    /// The entries.
    Entries,
}

/// Iterates over the cheap features that need row lengths or less.
pub fn of_rows_alone() -> impl Iterator<Item = &'static Feature> {
    FEATURES.iter().filter(|feature| feature.needs() <= Needs::Rows)
}

/// Finds a costly feature by name.
///
/// # Errors
/// [`Error::Argument`] with the known names.
pub fn find_costly(name: &str) -> crate::error::Result<&'static Feature> {
    COSTLY.iter().find(|feature| feature.name == name).ok_or_else(|| {
        let known: Vec<_> = COSTLY.iter().map(|feature| feature.name).collect();
        Error::argument(format!(
            "no costly feature is named '{name}'; there are: {}",
            known.join(", ")
        ))
    })
}

impl Serialize for Features {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer
            .collect_map(self.iter().map(|(feature, value)| (feature.name, JsonNumber(value))))
    }
}

/// A number that is written to JSON without a fraction if it is whole.
struct JsonNumber(f64);

impl Serialize for JsonNumber {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            v if v.fract() == 0.0 && v.abs() < 9e15 => serializer.serialize_i64(v as i64),
            v => serializer.serialize_f64(v),
        }
    }
}
