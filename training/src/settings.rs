//! Settings of the training.

use std::sync::Arc;

use crate::plan::Plan;
use crate::profile::Fitted;

/// Settings of the training.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Maximum number of folds of the cross-validation.
    pub folds: usize,
    /// Seed of all learners.
    pub seed: u64,
    /// Revision of this program, which is stored in the model.
    pub commit: String,
    /// Records to which the device's profile was fitted, if it was: cases left out are then seen
    /// with a profile fitted without them.
    pub fitted: Option<Arc<Fitted>>,
    /// Plan of the model; without one, cross-validation chooses among all.
    pub plan: Option<Plan>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { folds: 5, seed: 1, commit: String::new(), fitted: None, plan: None }
    }
}

/// Numbers of products for which the tree learns whether an analysis pays: fewer than
/// [`ALWAYS_ANALYZE`](ellect::unstable::model::ALWAYS_ANALYZE), from which on the tree is not consulted.
pub const ANALYSIS_SPMVS: [u64; 7] = [10, 100, 316, 1000, 3162, 10_000, 31_623];
