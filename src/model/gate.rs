//! The gate: whether an analysis of the matrix pays, decided from what is known before it, and which
//! candidate to use where it does not.

use serde::{Deserialize, Serialize};

use super::Rules;
use crate::features::{Feature, Needs, of_rows_alone};
use crate::format::Candidate;
use crate::scalar::Precision;
use crate::structure::Structure;

/// An input of gates that is no feature: the number of products to come.
pub const SPMVS: &str = "spmvs";

/// An input of gates: the time of reading the row lengths, or of counting features on a GPU, over that
/// of all products.
pub const READING: &str = "reading_share";

/// An input of gates: the time of [`Structure::x_sectors_at_sight`] over that of all products.
pub const SAMPLING: &str = "sampling_share";

/// An input of gates: entries of the longest row over the microseconds of a product. A kernel that
/// gives a row to few threads takes longer than the whole product where there are many.
pub const LONGEST: &str = "longest_row_a_us";

/// What a gate answers where the analysis pays.
pub const ANALYZE: &str = "look";

/// What a gate answers where the analysis does not pay, and what the rules of a [`QuickPick`] answer
/// where their candidate must not be chosen.
pub const KEEP: &str = "stay";

/// From this number of products on a matrix is analysed whatever the gate says: in the records of an
/// H200, an analysis takes about a hundredth of this many products and saves a third of them.
pub const ALWAYS_ANALYZE: u64 = 100_000;

/// The feature of the sectors of x that gates may use, of a few sampled entries.
pub const fn sectors(precision: Precision) -> &'static str {
    match precision {
        Precision::F32 => "x_sectors_f32",
        Precision::F64 => "x_sectors_f64",
    }
}

/// A candidate that can be chosen without an analysis, and the rules that select it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuickPick {
    /// The candidate, as text.
    pub candidate: String,
    /// They answer with the candidate or with [`KEEP`].
    pub rules: Rules,
}

impl QuickPick {
    /// The candidate; `None` where this program does not know it.
    pub fn candidate(&self) -> Option<Candidate> {
        self.candidate.parse().ok()
    }
}

/// The gates of a model.
#[derive(Clone, Copy, Debug)]
pub struct Gates<'a> {
    /// Whether an analysis by the host pays: [`ANALYZE`] or [`KEEP`].
    pub analysis: &'a Rules,
    /// Candidates for a matrix that is not analysed; the first whose rules select it is chosen, else
    /// the baseline.
    pub picks: &'a [QuickPick],
    /// Whether counting features on a GPU pays; `None` where the model predicts nothing from
    /// features alone.
    pub counting: Option<&'a Rules>,
}

/// Why a matrix is not analysed, in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GateReason {
    /// The comparisons by which the analysis does not pay.
    pub gate: Vec<String>,
    /// The candidate that takes less time than the baseline, and the comparisons that select it;
    /// `None` for the baseline.
    pub pick: Option<(String, Vec<String>)>,
}

/// The inputs of gates that are no features.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GateInputs {
    /// Number of products to come.
    pub spmvs: u64,
    /// Estimated seconds of one product with the baseline, from the size alone.
    pub baseline_spmv_s: f64,
    /// Seconds of reading the row lengths, or of counting features on a GPU; 0 where they are known.
    pub row_scan_s: f64,
    /// Seconds of sampling the sectors of x; 0 where they are known.
    pub sample_s: f64,
}

impl GateInputs {
    /// The input of this name; `feature` gives those that are features of the matrix.
    pub fn input(&self, name: &str, feature: impl Fn(&str) -> Option<f64>) -> Option<f64> {
        let Ok(input) =
            self.try_input(name, |name| Ok::<_, std::convert::Infallible>(feature(name)));
        input
    }

    /// Like [`GateInputs::input`], of features that may not be known yet.
    fn try_input<E>(
        &self,
        name: &str,
        feature: impl Fn(&str) -> Result<Option<f64>, E>,
    ) -> Result<Option<f64>, E> {
        let share = |seconds: f64| Some(seconds / (self.spmvs as f64 * self.baseline_spmv_s));
        Ok(match name {
            SPMVS => Some(self.spmvs as f64),
            READING => share(self.row_scan_s),
            SAMPLING => share(self.sample_s),
            LONGEST => feature("row_nnz_max")?.map(|most| most / (1e6 * self.baseline_spmv_s)),
            name => feature(name)?,
        })
    }

    /// The comparisons by which these rules answer with this word; `None` where they do not.
    fn walk<E>(
        &self,
        rules: &Rules,
        word: &str,
        feature: impl Fn(&str) -> Result<Option<f64>, E>,
    ) -> Result<Option<Vec<String>>, E> {
        let end = rules.try_walk(|name| self.try_input(name, &feature))?;
        Ok(end.and_then(|(met, answer)| (answer == word).then_some(met)))
    }
}

/// Why this gate keeps a matrix from what comes behind it; `None` where it lets it through. Features
/// may not be known yet.
///
/// # Errors
/// The error of the first feature that the gate asks for and that has one.
pub fn keeps<E>(
    gate: &Rules,
    inputs: &GateInputs,
    feature: impl Fn(&str) -> Result<Option<f64>, E>,
) -> Result<Option<Vec<String>>, E> {
    if inputs.spmvs >= ALWAYS_ANALYZE {
        return Ok(None);
    }
    inputs.walk(gate, KEEP, feature)
}

/// The candidate for a matrix that is not analysed, and the comparisons that select it; `None` for the
/// baseline. Features may not be known yet.
///
/// # Errors
/// The error of the first feature that the rules ask for and that has one.
pub fn quick_pick<E>(
    picks: &[QuickPick],
    inputs: &GateInputs,
    feature: impl Fn(&str) -> Result<Option<f64>, E>,
) -> Result<Option<(String, Vec<String>)>, E> {
    for QuickPick { candidate, rules } in picks {
        if let Some(met) = inputs.walk(rules, candidate, &feature)? {
            return Ok(Some((candidate.clone(), met)));
        }
    }
    Ok(None)
}

/// What has to be found out of a matrix for an input of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputNeeds {
    /// Its size.
    Size,
    /// The lengths of its rows.
    RowLengths,
    /// The columns of a few entries.
    Columns,
    /// All features: no gate uses it.
    Analysis,
}

/// What a feature that a gate asks for needs.
pub fn needs(feature: &str) -> InputNeeds {
    if sectors_of(feature).is_some() {
        return InputNeeds::Columns;
    }
    match of_rows(feature).map(Feature::needs) {
        Some(Needs::Size) => InputNeeds::Size,
        Some(Needs::Rows) => InputNeeds::RowLengths,
        Some(Needs::Entries) | None => InputNeeds::Analysis,
    }
}

/// Whether gates may use this input.
pub fn is_gate_input(name: &str) -> bool {
    [SPMVS, READING, SAMPLING, LONGEST].contains(&name) || needs(name) != InputNeeds::Analysis
}

/// Whether gates may use this input where nothing but the size is known.
pub(super) fn is_known_by_size(name: &str) -> bool {
    [SPMVS, READING].contains(&name) || needs(name) == InputNeeds::Size
}

/// A feature as gates use it: from the lengths of rows, or from the columns of a few entries.
pub(crate) fn gate_feature(structure: &Structure<'_>, name: &str) -> Option<f64> {
    match sectors_of(name) {
        Some(precision) => Some(structure.x_sectors_at_sight(precision)),
        None => of_rows(name)?.of(structure).ok(),
    }
}

/// The precision whose [`sectors`] this feature is.
fn sectors_of(name: &str) -> Option<Precision> {
    Precision::ALL.into_iter().find(|&precision| sectors(precision) == name)
}

/// The feature of this name, where it needs no more than the lengths of rows.
fn of_rows(name: &str) -> Option<&'static Feature> {
    of_rows_alone().find(|feature| feature.name == name)
}
