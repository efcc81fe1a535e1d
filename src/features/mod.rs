//! What the choice sees of a matrix: one number each, by name.
//!
//! [`FEATURES`] are cheap: together a few passes over the pattern, or less where samples do.
//! [`COSTLY`] ones are computed where somebody asks for them. Both depend on the pattern alone.

mod summary;

use rayon::prelude::*;
use serde::{Serialize, Serializer};

use crate::csr::Pattern;
use crate::error::Error;
use crate::partition;
use crate::refusal::Refusal;
use crate::structure::{Histogram, Structure, probes};
pub(crate) use summary::Summary;
#[cfg(feature = "cuda")]
pub(crate) use summary::{Columns, DIAGONAL_HACKS, HACK, Hacks, SIDES};
use summary::{Rows, over};
pub use summary::{n_iter, n_p};

/// A feature: its name, its unit and what it means.
#[derive(Debug)]
pub struct Feature {
    /// Its name in lists, JSON and models.
    pub name: &'static str,
    /// Its unit; `1` for a ratio.
    pub unit: &'static str,
    /// What it means, in one sentence; and what it costs, where it is not cheap.
    pub doc: &'static str,
    function: Function,
}

/// Computes a feature.
#[derive(Debug)]
enum Function {
    /// From the size of the matrix alone: nothing is read.
    Size(fn(&Rows<'_>) -> f64),
    /// From the lengths of rows alone.
    Rows(fn(&Rows<'_>) -> f64),
    /// From counts that cheap features share.
    Cheap(fn(&Summary) -> f64),
    /// On its own; refused where it means nothing for the matrix.
    Costly(fn(&Structure<'_>) -> Result<f64, Refusal>),
}

const fn of_size(
    name: &'static str,
    unit: &'static str,
    doc: &'static str,
    function: fn(&Rows<'_>) -> f64,
) -> Feature {
    Feature { name, unit, doc, function: Function::Size(function) }
}

const fn of_rows(
    name: &'static str,
    unit: &'static str,
    doc: &'static str,
    function: fn(&Rows<'_>) -> f64,
) -> Feature {
    Feature { name, unit, doc, function: Function::Rows(function) }
}

const fn feature(
    name: &'static str,
    unit: &'static str,
    doc: &'static str,
    function: fn(&Summary) -> f64,
) -> Feature {
    Feature { name, unit, doc, function: Function::Cheap(function) }
}

const fn costly(
    name: &'static str,
    unit: &'static str,
    doc: &'static str,
    function: fn(&Structure<'_>) -> Result<f64, Refusal>,
) -> Feature {
    Feature { name, unit, doc, function: Function::Costly(function) }
}

/// The cheap features.
///
/// A padding is the number of slots for each entry: 1 where nothing is padded. Where a feature is
/// sampled, it says so; the others are exact, but of a large matrix that a
/// [`Structure::sampled`] sees, all that need entries are told from samples.
pub static FEATURES: &[Feature] = &[
    of_size("nrows", "rows", "number of rows", |r| r.nrows),
    of_size("ncols", "columns", "number of columns", |r| r.ncols),
    of_size("nnz", "entries", "number of stored entries", |r| r.nnz),
    of_size("density", "1", "entries over rows times columns", |r| over(r.nnz, r.nrows * r.ncols)),
    of_size("row_nnz_mean", "entries", "mean row length", |r| r.mean()),
    of_rows("row_nnz_sigma", "entries", "standard deviation of row lengths", |r| r.sigma()),
    of_rows("row_nnz_cv", "1", "standard deviation over mean of row lengths", |r| {
        over(r.sigma(), r.mean())
    }),
    of_rows("row_nnz_min", "entries", "shortest row", |r| r.quantile(0.0)),
    of_rows("row_nnz_q25", "entries", "a quarter of the rows are no longer", |r| r.quantile(0.25)),
    of_rows("row_nnz_q50", "entries", "half of the rows are no longer", |r| r.quantile(0.5)),
    of_rows("row_nnz_q75", "entries", "three quarters of the rows are no longer", |r| {
        r.quantile(0.75)
    }),
    of_rows("row_nnz_q90", "entries", "nine tenths of the rows are no longer", |r| r.quantile(0.9)),
    of_rows("row_nnz_q99", "entries", "99 % of the rows are no longer", |r| r.quantile(0.99)),
    of_rows("row_nnz_max", "entries", "longest row", |r| r.quantile(1.0)),
    of_rows("row_nnz_range", "entries", "longest row less the shortest", |r| {
        r.quantile(1.0) - r.quantile(0.0)
    }),
    of_rows("row_nnz_gini", "1", "Gini coefficient of row lengths: 0 where all are equal", |r| {
        r.gini()
    }),
    of_rows("empty_rows", "rows", "rows without entries", |r| r.empty_rows()),
    feature("n_diagonals", "diagonals", "diagonals with at least one entry", |p| {
        p.diagonals as f64
    }),
    feature("dia_padding", "1", "padding of DIA", |p| over(p.diagonals as f64 * p.nrows, p.nnz)),
    feature("hack_diagonals_32", "diagonals", "mean number in hacks of 32 rows", |p| {
        p.hack_diagonals(0)
    }),
    feature("hack_diagonals_256", "diagonals", "mean number in hacks of 256 rows", |p| {
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
    feature("window_padding_512", "1", "padding of hacks of 32 rows sorted within 512", |p| {
        p.window_padding(0)
    }),
    feature("window_padding_4096", "1", "padding of hacks of 32 rows sorted within 4096", |p| {
        p.window_padding(1)
    }),
    feature("pjds_padding", "1", "padding of pJDS: blocks of 32 rows, all rows sorted", |p| {
        p.all_sorted_padding()
    }),
    feature("n_iter_ellr", "steps", "warp iterations of ELLPACK-R (PELLR, equation 1)", |p| {
        p.longest[0] as f64
    }),
    feature("n_iter_pellr", "steps", "warp iterations of PELLR (equation 1)", |p| {
        p.all_sorted_longest() as f64
    }),
    feature("n_p", "operations", "multiplications and additions (PELLR, equation 2)", |p| {
        p.operations() as f64
    }),
    feature("bandwidth", "columns", "farthest entry from the diagonal", |p| {
        p.hacks.bandwidth as f64
    }),
    feature(
        "profile",
        "columns",
        "sum over rows of the way from the first entry to the diagonal",
        |p| p.hacks.profile as f64,
    ),
    feature("hack_span_max", "columns", "most columns that a hack of 32 rows spans", |p| {
        p.hacks.span_max as f64
    }),
    feature(
        "hack_span_mean",
        "columns",
        "mean number of columns that a hack of 32 rows spans",
        |p| p.span_mean(),
    ),
    feature(
        "hack_span_16bit",
        "1",
        "share of hacks of 32 rows whose columns fit in 16 bits",
        |p| p.span_narrow(),
    ),
    feature(
        "x_sectors_f64",
        "sectors",
        "32-byte sectors of x a nonzero, a row a lane (sampled)",
        |p| p.x_sectors(crate::Precision::F64),
    ),
    feature("x_sectors_f32", "sectors", "the same with values of 4 bytes (sampled)", |p| {
        p.x_sectors(crate::Precision::F32)
    }),
    feature(
        "x_alpha_f64",
        "1",
        "loads of x a nonzero by blocks of 256 rows: alpha of the pJDS code balance (sampled)",
        |p| p.alpha(crate::Precision::F64),
    ),
    feature("x_alpha_f32", "1", "the same with values of 4 bytes (sampled)", |p| {
        p.alpha(crate::Precision::F32)
    }),
    feature("hub_share_14336", "1", "share of entries in the 14,336 fullest columns", |p| {
        p.hub_share(14_336)
    }),
    feature("hub_share_28672", "1", "share of entries in the 28,672 fullest columns", |p| {
        p.hub_share(28_672)
    }),
    feature(
        "hub_share_1pct",
        "1",
        "share of entries in the fullest hundredth of the columns",
        |p| p.hub_share((p.ncols / 100.0).ceil() as usize),
    ),
    feature("column_nnz_max", "entries", "fullest column", |p| p.fullest_column()),
    feature("block_fill_2", "1", "entries over slots of dense 2 x 2 blocks (sampled)", |p| {
        p.block_fill[0]
    }),
    feature("block_fill_3", "1", "entries over slots of dense 3 x 3 blocks (sampled)", |p| {
        p.block_fill[1]
    }),
    feature("block_fill_4", "1", "entries over slots of dense 4 x 4 blocks (sampled)", |p| {
        p.block_fill[2]
    }),
    feature("block_fill_5", "1", "entries over slots of dense 5 x 5 blocks (sampled)", |p| {
        p.block_fill[3]
    }),
    feature("block_fill_6", "1", "entries over slots of dense 6 x 6 blocks (sampled)", |p| {
        p.block_fill[4]
    }),
    feature("part_share_4096", "1", "entries within windows of 4,096 rows and columns", |p| {
        p.part_share(0)
    }),
    feature("part_share_16384", "1", "entries within windows of 16,384 rows and columns", |p| {
        p.part_share(1)
    }),
    feature(
        "pattern_symmetry",
        "1",
        "share of entries whose mirror image is stored (sampled)",
        |p| p.symmetry,
    ),
];

/// Features that cost more than the others together.
pub static COSTLY: &[Feature] = &[
    costly("block_fill_2_exact", "1", EXACT_FILL, exact_block_fill::<2>),
    costly("block_fill_3_exact", "1", EXACT_FILL, exact_block_fill::<3>),
    costly("block_fill_4_exact", "1", EXACT_FILL, exact_block_fill::<4>),
    costly("block_fill_5_exact", "1", EXACT_FILL, exact_block_fill::<5>),
    costly("block_fill_6_exact", "1", EXACT_FILL, exact_block_fill::<6>),
    costly(
        "pattern_symmetry_exact",
        "1",
        "share of entries whose mirror image is stored; a search for every entry",
        |structure| Ok(structure.symmetry(usize::MAX)),
    ),
    costly(
        "part_share_metis_4096",
        "1",
        "entries within METIS's parts of at most 4,096 rows; as long as partitioning takes",
        |structure| metis_share(structure.pattern(), 4096),
    ),
];

const EXACT_FILL: &str = "entries over slots of such dense blocks; builds the pattern of blocks";

fn exact_block_fill<const B: usize>(structure: &Structure<'_>) -> Result<f64, Refusal> {
    let slots = (B * B * structure.blocks(B).pattern().nnz()) as f64;
    Ok(if slots > 0.0 { structure.pattern().nnz() as f64 / slots } else { 1.0 })
}

/// Share of the entries within parts of at most `most` rows, as METIS cuts the graph.
fn metis_share(pattern: Pattern<'_>, most: usize) -> Result<f64, Refusal> {
    // METIS keeps to the mean size within 3 %: there is room for that.
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
    /// All cheap features.
    AllFeatures() -> Features;
}

/// The features of one matrix: all cheap ones, and costly ones that were asked for.
#[derive(Clone, Debug)]
pub struct Features(Vec<(&'static Feature, f64)>);

impl Features {
    /// Computes all cheap features: a few passes over the pattern, over rayon's current threads;
    /// kept by the structure.
    pub fn of(structure: &Structure<'_>) -> Self {
        structure.memo().get(AllFeatures(), || Features::from(&Summary::of(structure)))
    }

    /// Computes those of the size alone, which reads nothing of the matrix.
    pub fn of_size(structure: &Structure<'_>) -> Self {
        let pattern = structure.pattern();
        Features::at_size([pattern.nrows(), pattern.ncols(), pattern.nnz()])
    }

    /// The same of a number of rows, columns and nonzeros.
    pub fn at_size(size: [usize; 3]) -> Self {
        let uncounted = Histogram::default();
        let rows = Rows::at_size(size, &uncounted);
        let size = FEATURES.iter().filter_map(|feature| match feature.function {
            Function::Size(function) => Some((feature, function(&rows))),
            Function::Rows(_) | Function::Cheap(_) | Function::Costly(_) => None,
        });
        Features(size.collect())
    }

    /// Adds a feature of the same matrix, one of [`COSTLY`].
    ///
    /// # Errors
    /// [`Refusal`] where it means nothing for this matrix.
    pub fn with(
        mut self,
        feature: &'static Feature,
        structure: &Structure<'_>,
    ) -> Result<Self, Refusal> {
        self.0.push((feature, feature.of(structure)?));
        Ok(self)
    }

    /// The value of the feature of this name.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.iter().find_map(|(feature, value)| (feature.name == name).then_some(value))
    }

    /// Every feature with its value, in the order of the table.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Feature, f64)> + '_ {
        self.0.iter().copied()
    }
}

impl From<&Summary> for Features {
    fn from(summary: &Summary) -> Self {
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
    /// What it needs of a matrix.
    pub fn needs(&self) -> Needs {
        match self.function {
            Function::Size(_) => Needs::Size,
            Function::Rows(_) => Needs::Rows,
            Function::Cheap(_) | Function::Costly(_) => Needs::Entries,
        }
    }

    /// Computes it alone.
    ///
    /// # Errors
    /// [`Refusal`] where it means nothing for this matrix.
    pub fn of(&self, structure: &Structure<'_>) -> Result<f64, Refusal> {
        match self.function {
            Function::Size(function) | Function::Rows(function) => {
                Ok(function(&Rows::of(structure)))
            }
            Function::Cheap(function) => Ok(function(&Summary::of(structure))),
            Function::Costly(function) => function(structure),
        }
    }
}

/// What a feature needs of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Needs {
    /// Its size.
    Size,
    /// The lengths of its rows: one pass over the row pointers.
    Rows,
    /// Its entries.
    Entries,
}

/// The cheap features that need no more than the lengths of rows.
pub fn of_rows_alone() -> impl Iterator<Item = &'static Feature> {
    FEATURES.iter().filter(|feature| feature.needs() <= Needs::Rows)
}

/// The costly feature of this name.
///
/// # Errors
/// [`Error::Argument`] with the names that there are.
pub fn find_costly(name: &str) -> crate::Result<&'static Feature> {
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
        serializer.collect_map(self.iter().map(|(feature, value)| (feature.name, Number(value))))
    }
}

/// Counts are written without a fraction.
struct Number(f64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            v if v.fract() == 0.0 && v.abs() < 9e15 => serializer.serialize_i64(v as i64),
            v => serializer.serialize_f64(v),
        }
    }
}
