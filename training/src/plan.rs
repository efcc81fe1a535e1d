//! Plans: the learner of a model, and the quantity that its predictions multiply.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use ellect::model::Model;
use ellect::unstable::model::Forest;
use rayon::prelude::*;

use crate::case::Case;
use crate::dataset::{self, Table};
use crate::learner::Learner;

/// A learner, and the quantity that its trees multiply.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Name in models and reports.
    pub name: &'static str,
    /// Learner that grows the trees.
    pub learner: Learner,
    /// Power of the byte floor in the quantity that the trees multiply; the rest is the power of
    /// the estimate: see [`Model::floor_share`].
    pub floor_share: f64,
}

/// Every plan that cross-validation chooses from: each learner over the estimate, and one learner
/// over other quantities.
pub static PLANS: [Plan; 5] = [
    Plan {
        name: "random forest over the estimate",
        learner: Learner::RandomForest,
        floor_share: 0.0,
    },
    Plan { name: "extra trees over the estimate", learner: Learner::ExtraTrees, floor_share: 0.0 },
    Plan { name: "boosting over the estimate", learner: Learner::Boosting, floor_share: 0.0 },
    Plan { name: "extra trees over the floor", learner: Learner::ExtraTrees, floor_share: 1.0 },
    Plan {
        name: "extra trees over the mean of floor and estimate",
        learner: Learner::ExtraTrees,
        floor_share: 0.5,
    },
];

impl Plan {
    /// Returns the plan of a model that was trained before.
    ///
    /// # Errors
    /// Fails where this program does not know the plan.
    pub fn of(model: &Model) -> Result<Plan> {
        model.plan.parse()
    }

    /// Fits the trees of each format.
    ///
    /// # Errors
    /// Fails where the learner fails.
    pub fn fit(
        &self,
        cases: &[&Case],
        features: &[String],
        seed: u64,
    ) -> Result<BTreeMap<String, Forest>> {
        let fit = |(format, table): (String, Table)| {
            let forest = self.learner.fit(&table.rows, &table.targets, seed);
            let forest = forest.with_context(|| format!("{} of {format}", self.learner.name()))?;
            Ok((format, forest))
        };
        let tables = dataset::tables(cases, features, self.floor_share).into_iter();
        tables.collect::<Vec<_>>().into_par_iter().map(fit).collect()
    }
}

impl std::str::FromStr for Plan {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Plan> {
        let known = || PLANS.map(|plan| plan.name).join("', '");
        let plan = PLANS.into_iter().find(|plan| plan.name == text);
        plan.with_context(|| format!("unknown plan '{text}'; there are '{}'", known()))
    }
}

impl std::fmt::Display for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}
