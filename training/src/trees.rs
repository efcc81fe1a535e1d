//! Trees that decide before a matrix is analysed.

use ellect::unstable::model::{QuickPick, Rules};

/// Trees that decide without an analysis: [`Model::gate`](ellect::model::Model::gate) and
/// [`Model::quick_picks`](ellect::model::Model::quick_picks).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trees {
    /// Rules that decide whether an analysis pays.
    pub gate_rules: Rules,
    /// Rules that choose a candidate where the matrix is not analysed.
    pub quick_picks: Vec<QuickPick>,
}
