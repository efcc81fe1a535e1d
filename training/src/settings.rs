//! How to train.

use std::sync::Arc;

use crate::profile::Fitted;

/// How to train.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The most folds of the cross-validation.
    pub folds: usize,
    /// Seed of all learners.
    pub seed: u64,
    /// The revision of this program, to be noted in the model.
    pub commit: String,
    /// The records, where the device's profile was fitted to them: what is left out is then seen by a
    /// profile fitted without it too.
    pub fitted: Option<Arc<Fitted>>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { folds: 5, seed: 1, commit: String::new(), fitted: None }
    }
}

/// The products that the tree learns from which tells whether a look pays: fewer than
/// [`ALWAYS_ANALYZE`](ellect::model::ALWAYS_ANALYZE), from where on nobody asks it.
pub const LOOK_SPMVS: [u64; 7] = [10, 100, 316, 1000, 3162, 10_000, 31_623];
