//! The gate decides whether an analysis of the matrix pays, from what is known before the analysis.
//! If it does not pay, quick picks select a candidate.

use serde::{Deserialize, Serialize};

use super::{QuickModel, Rules};
use crate::analysis::Analysis;
use crate::features::{Feature, Needs, of_rows_alone};
use crate::format::Candidate;
use crate::scalar::Precision;

/// Gate input that is not a feature: the number of products to come.
pub const SPMVS: &str = "spmvs";

/// Gate input: the time of reading the row lengths divided by the time of all products.
pub const READING: &str = "reading_share";

/// Gate input: the time of [`Analysis::x_sectors_at_sight`] divided by the time of all products.
pub const SAMPLING: &str = "sampling_share";

/// Gate input: the number of entries of the longest row divided by the microseconds of one product.
/// If it is large, a kernel that assigns few threads to a row takes longer for that row than a
/// whole product should take.
pub const LONGEST: &str = "longest_row_a_us";

/// Answer of a gate if the analysis pays.
pub const ANALYZE: &str = "look";

/// Answer of a gate if the analysis does not pay, and of the rules of a [`QuickPick`] if their
/// candidate must not be chosen.
pub const KEEP: &str = "stay";

/// Number of products from which on a matrix is always analysed, whatever the gate answers. In the
/// records of an H200, an analysis takes about a hundredth of the time of this many products and
/// saves a third of them.
pub const ALWAYS_ANALYZE: u64 = 100_000;

/// Returns the name of the feature of sectors of x that gates may use; it is estimated from a few
/// sampled entries.
pub const fn sectors(precision: Precision) -> &'static str {
    match precision {
        Precision::F32 => "x_sectors_f32",
        Precision::F64 => "x_sectors_f64",
    }
}

/// A candidate that can be chosen without an analysis, with the rules that select it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuickPick {
    /// Candidate, as text.
    pub candidate: String,
    /// Rules that answer with the candidate or with [`KEEP`].
    pub rules: Rules,
}

impl QuickPick {
    /// Parses the candidate; `None` if this program does not know it.
    pub fn candidate(&self) -> Option<Candidate> {
        self.candidate.parse().ok()
    }
}

/// The gates of a model.
#[derive(Clone, Copy, Debug)]
pub struct Gates<'a> {
    /// Rules that decide whether an analysis by the host pays: [`ANALYZE`] or [`KEEP`].
    pub analysis: &'a Rules,
    /// Candidates for a matrix that is not analysed; the first whose rules select it is chosen,
    /// otherwise the baseline.
    pub picks: &'a [QuickPick],
    /// The quick model for a matrix on a GPU; `None` if the model predicts nothing without an
    /// analysis.
    pub quick: Option<&'a QuickModel>,
}

/// Reasons why a matrix is not analysed, in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GateReason {
    /// Comparisons that show that the analysis does not pay.
    pub gate: Vec<String>,
    /// Candidate that is expected to be faster than the baseline, and the comparisons that select
    /// it; `None` for the baseline.
    pub pick: Option<(String, Vec<String>)>,
}

/// Gate inputs that are not features of the matrix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GateInputs {
    /// Number of products to come.
    pub spmvs: u64,
    /// Estimated seconds of one product with the baseline, from the size alone.
    pub baseline_spmv_s: f64,
    /// Seconds of reading the row lengths; 0 if they are known.
    pub row_scan_s: f64,
    /// Seconds of sampling the sectors of x; 0 if they are known.
    pub sample_s: f64,
}

impl GateInputs {
    /// Returns the input of this name; `feature` returns features of the matrix.
    pub fn input(&self, name: &str, feature: impl Fn(&str) -> Option<f64>) -> Option<f64> {
        let Ok(input) =
            self.try_input(name, |name| Ok::<_, std::convert::Infallible>(feature(name)));
        input
    }

    /// Like [`GateInputs::input`], for features that may not be known yet.
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

    /// Returns the comparisons by which these rules answer with `word`; `None` if they answer with
    /// another word.
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

/// Returns the comparisons by which this gate rejects a matrix; `None` if the gate lets it pass.
/// Features may not be known yet.
///
/// # Errors
/// The error of the first feature that the gate needs and that returns one.
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

/// Returns the candidate for a matrix that is not analysed, and the comparisons that select it;
/// `None` for the baseline. Features may not be known yet.
///
/// # Errors
/// The error of the first feature that the rules need and that returns one.
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

/// Part of a matrix that must be read for a gate input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputNeeds {
    /// Only the size of the matrix.
    Size,
    /// The row lengths.
    RowLengths,
    /// The columns of a few entries.
    Columns,
    /// The whole matrix; no gate uses such an input.
    Analysis,
}

/// Returns the part of the matrix that must be read for this feature.
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

/// Tells whether gates may use this input.
pub fn is_gate_input(name: &str) -> bool {
    [SPMVS, READING, SAMPLING, LONGEST].contains(&name) || needs(name) != InputNeeds::Analysis
}

/// Returns a feature as gates use it: from the row lengths, or from the columns of a few entries.
pub(crate) fn gate_feature(analysis: &Analysis<'_>, name: &str) -> Option<f64> {
    match sectors_of(name) {
        Some(precision) => Some(analysis.x_sectors_at_sight(precision)),
        None => of_rows(name)?.of(analysis).ok(),
    }
}

/// Returns the precision whose [`sectors`] feature has this name.
fn sectors_of(name: &str) -> Option<Precision> {
    Precision::ALL.into_iter().find(|&precision| sectors(precision) == name)
}

/// Returns the feature of this name if it needs only the row lengths.
fn of_rows(name: &str) -> Option<&'static Feature> {
    of_rows_alone().find(|feature| feature.name == name)
}
