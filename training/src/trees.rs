//! The trees that decide before a matrix is analysed.

use ellect::model::{QuickPick, Rules};

/// The trees that are asked at sight: [`Model::gate`](ellect::model::Model::gate) and
/// [`Model::quick_picks`](ellect::model::Model::quick_picks).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trees {
    /// Whether a look pays.
    pub look: Rules,
    /// Where it does not, what is taken.
    pub sight: Vec<QuickPick>,
}
