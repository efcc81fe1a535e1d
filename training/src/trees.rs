//! The trees that decide before a matrix is analysed.

use ellect::model::{AtSight, Rules};

use crate::tree;

/// The trees that are asked at sight: [`Model::look`](ellect::model::Model::look) and
/// [`Model::sight`](ellect::model::Model::sight).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trees {
    /// Whether a look pays.
    pub look: Rules,
    /// Where it does not, what is taken.
    pub sight: Vec<AtSight>,
}

impl Trees {
    /// The same where no matrix is looked at.
    pub fn without_look(&self) -> Trees {
        Trees { look: tree::stay(), sight: self.sight.clone() }
    }
}
