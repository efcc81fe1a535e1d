//! What is known of a matrix at sight, and what trees make of it: whether to look closer, and what to
//! take where a look does not pay.

use serde::{Deserialize, Serialize};

use super::Rules;
use crate::features::{Feature, Needs, of_rows_alone};
use crate::scalar::Precision;
use crate::structure::Structure;

/// An input of [`Model::look`](super::Model::look) and [`Model::sight`](super::Model::sight) that is
/// no feature: the products that are to come.
pub const SPMVS: &str = "spmvs";

/// Another one: the time of reading the lengths of rows over that of all products.
pub const READING: &str = "reading_share";

/// Another one: the time of [`Structure::x_sectors_at_sight`] over that of all products.
pub const SAMPLING: &str = "sampling_share";

/// Another one: entries of the longest row over the microseconds of a product. A kernel that walks a
/// row by few threads takes longer than the whole product where there are many.
pub const LONGEST: &str = "longest_row_a_us";

/// What [`Model::look`](super::Model::look) answers where looking closer at a matrix pays.
pub const LOOK: &str = "look";

/// What it answers where it does not, and [`AtSight`]'s rules where their candidate is not to be
/// taken.
pub const STAY: &str = "stay";

/// The feature of the sectors of x that trees may ask for at sight.
pub const fn sectors(precision: Precision) -> &'static str {
    match precision {
        Precision::F32 => "x_sectors_f32",
        Precision::F64 => "x_sectors_f64",
    }
}

/// A candidate that may be taken without a look at the matrix, and where.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AtSight {
    /// The candidate.
    pub candidate: String,
    /// They answer with the candidate or with [`STAY`].
    pub rules: Rules,
}

/// What is known before a matrix is looked at, besides its size: what trees weigh the rest by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Glance {
    /// Products that are to come.
    pub spmvs: u64,
    /// Seconds of one product with the incumbent ([`stay_s`](crate::choose::stay_s)).
    pub stay_s: f64,
    /// Seconds of reading the lengths of rows ([`read_s`](crate::choose::read_s)); 0 where they are
    /// known.
    pub read_s: f64,
    /// Seconds of sampling the sectors of x ([`SAMPLE_S`](crate::choose::SAMPLE_S)); 0 where they
    /// are known.
    pub sample_s: f64,
}

impl Glance {
    /// The input of this name, by the features of the matrix.
    pub fn input(&self, name: &str, feature: impl Fn(&str) -> Option<f64>) -> Option<f64> {
        let share = |seconds: f64| Some(seconds / (self.spmvs as f64 * self.stay_s));
        match name {
            SPMVS => Some(self.spmvs as f64),
            READING => share(self.read_s),
            SAMPLING => share(self.sample_s),
            LONGEST => Some(feature("row_nnz_max")? / (1e6 * self.stay_s)),
            name => feature(name),
        }
    }

    /// The comparisons by which these rules answer with this word; none where they do not.
    fn walk(
        &self,
        rules: &Rules,
        said: &str,
        feature: impl Fn(&str) -> Option<f64>,
    ) -> Option<Vec<String>> {
        let (met, answer) = rules.walk(|name| self.input(name, &feature))?;
        (answer == said).then_some(met)
    }
}

/// From so many products a matrix is looked at whatever the tree says: of an H200's records, all
/// that a look takes is about a hundredth of so many products, and what it saves a third.
pub const ALWAYS_LOOK: u64 = 100_000;

/// Why looking closer at a matrix with these features does not pay, as a tree such as
/// [`Model::look`](super::Model::look) says; none where it may.
pub fn staying(
    look: &Rules,
    glance: &Glance,
    feature: impl Fn(&str) -> Option<f64>,
) -> Option<Vec<String>> {
    if glance.spmvs >= ALWAYS_LOOK {
        return None;
    }
    glance.walk(look, STAY, feature)
}

/// What a matrix with these features is multiplied by that is not looked at, as trees such as
/// [`Model::sight`](super::Model::sight) say: the first candidate to be taken, and why; none for the
/// incumbent.
pub fn taken(
    sight: &[AtSight],
    glance: &Glance,
    feature: impl Fn(&str) -> Option<f64>,
) -> Option<(String, Vec<String>)> {
    let taken = |AtSight { candidate, rules }: &AtSight| {
        Some((candidate.clone(), glance.walk(rules, candidate, &feature)?))
    };
    sight.iter().find_map(taken)
}

/// Whether trees may ask for this at sight.
pub fn is_known_at_sight(name: &str) -> bool {
    [SPMVS, READING, SAMPLING, LONGEST].contains(&name)
        || of_rows(name).is_some()
        || Precision::ALL.iter().any(|&precision| sectors(precision) == name)
}

/// Whether trees may ask for this where the size is known, and nothing else.
pub(super) fn is_known_by_size(name: &str) -> bool {
    [SPMVS, READING].contains(&name)
        || of_rows(name).is_some_and(|feature| feature.needs() < Needs::Rows)
}

/// A feature as it is found at sight: from the lengths of rows, or from few entries.
pub(super) fn feature_at_sight(structure: &Structure<'_>, name: &str) -> Option<f64> {
    match Precision::ALL.into_iter().find(|&precision| sectors(precision) == name) {
        Some(precision) => Some(structure.x_sectors_at_sight(precision)),
        None => of_rows(name)?.of(structure).ok(),
    }
}

/// The feature of this name, where it needs no more than the lengths of rows.
fn of_rows(name: &str) -> Option<&'static Feature> {
    of_rows_alone().find(|feature| feature.name == name)
}
