//! Plans: what is learned how.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use ellect::model::{Forest, Model};
use rayon::prelude::*;

use crate::case::Case;
use crate::dataset::{self, Table};
use crate::learner::{Learner, TREES};

/// Trees of one kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Member {
    /// What grows them.
    pub learner: Learner,
    /// The power of the byte floor in what they multiply; the rest is the estimate's.
    pub floor_share: f64,
}

/// Members that are learned apart; predictions are their geometric mean, as each errs otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// What models and reports call it.
    pub name: &'static str,
    /// At least one.
    pub members: &'static [Member],
}

const fn member(learner: Learner, floor_share: f64) -> Member {
    Member { learner, floor_share }
}

/// Every plan that cross-validation chooses from.
pub static PLANS: [Plan; 6] = [
    Plan {
        name: "random forest over the estimate",
        members: &[member(Learner::RandomForest, 0.0)],
    },
    Plan { name: "extra trees over the estimate", members: &[member(Learner::ExtraTrees, 0.0)] },
    Plan { name: "boosting over the estimate", members: &[member(Learner::Boosting, 0.0)] },
    Plan { name: "extra trees over the floor", members: &[member(Learner::ExtraTrees, 1.0)] },
    Plan {
        name: "extra trees over the mean of floor and estimate",
        members: &[member(Learner::ExtraTrees, 0.5)],
    },
    Plan {
        name: "three kinds of trees over the estimate and its mean with the floor",
        members: &[
            member(Learner::RandomForest, 0.0),
            member(Learner::ExtraTrees, 0.0),
            member(Learner::ExtraTrees, 0.5),
        ],
    },
];

impl Plan {
    /// The plan of a model that was trained before.
    ///
    /// # Errors
    /// One that this program does not know.
    pub fn of(model: &Model) -> Result<Plan> {
        let plan = PLANS.into_iter().find(|plan| plan.name == model.plan);
        plan.with_context(|| format!("unknown plan '{}'", model.plan))
    }

    /// The power of the byte floor in what predictions multiply; see [`Model::floor_share`].
    pub fn floor_share(&self) -> f64 {
        let shares = self.members.iter().map(|member| member.floor_share);
        shares.sum::<f64>() / self.members.len() as f64
    }

    /// The trees of each format.
    ///
    /// # Errors
    /// What learners say.
    pub fn fit(
        &self,
        cases: &[&Case],
        features: &[String],
        seed: u64,
    ) -> Result<BTreeMap<String, Forest>> {
        let trees = TREES.div_ceil(self.members.len());
        let of_member = |member: &Member| -> Result<Vec<(String, Forest)>> {
            let tables = dataset::tables(cases, features, member.floor_share);
            let fit = |(format, table): (String, Table)| {
                let forest = member.learner.fit(trees, &table.rows, &table.targets, seed);
                let forest =
                    forest.with_context(|| format!("{} of {format}", member.learner.name()))?;
                Ok((format, forest))
            };
            tables.into_iter().collect::<Vec<_>>().into_par_iter().map(fit).collect()
        };
        let mut forests: BTreeMap<String, Vec<Forest>> = BTreeMap::new();
        for member in self.members {
            for (format, forest) in of_member(member)? {
                forests.entry(format).or_default().push(forest);
            }
        }
        Ok(forests.into_iter().map(|(format, all)| (format, Forest::mean(&all))).collect())
    }
}

impl std::fmt::Display for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}
