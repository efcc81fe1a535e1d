//! Cases as rows of inputs and targets, with one table per format, and splits of cases by family.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use ellect::features::FEATURES;
use ellect::format::{Role, Value, find};
use ellect::unstable::model::{Applicability, coordinate, input};
use ndarray::{Array2, Axis};

use crate::case::{Case, best_s};

/// Inputs and targets of one format.
#[derive(Debug, Default)]
pub struct Table {
    /// Inputs in a model's order: features, terms, parameters.
    pub rows: Vec<Vec<f64>>,
    /// Logarithms of the measured time over the quantity that predictions multiply.
    pub targets: Vec<f64>,
}

/// Returns the features that every case has, in the order of the library's table.
pub fn features(cases: &[&Case]) -> Vec<String> {
    let everywhere = |name: &&str| cases.iter().all(|case| case.features.contains_key(*name));
    FEATURES.iter().map(|f| f.name).filter(everywhere).map(String::from).collect()
}

/// Returns the values of these features for a case.
pub fn values(case: &Case, features: &[String]) -> Vec<f64> {
    features.iter().map(|name| case.features.get(name).copied().unwrap_or(0.0)).collect()
}

/// Returns the names of the inputs that a format's parameters yield: the parameter's name for
/// numbers, `name=word` for words. Variants of CSR that no case has timed yield none.
pub fn parameters(format: &str, cases: &[&Case]) -> Vec<String> {
    let Ok(format) = find(format) else { return Vec::new() };
    if format.role == Role::Baseline {
        let mut trials = cases.iter().flat_map(|case| &case.trials);
        if !trials.any(|trial| trial.candidate.is_csr_variant()) {
            return Vec::new();
        }
    }
    let inputs = |param: &ellect::format::Param| -> Vec<String> {
        let input = |value: &Value| match value {
            Value::Int(_) => param.name.to_string(),
            Value::Word(word) => format!("{}={word}", param.name),
        };
        param.values.iter().map(input).collect()
    };
    let mut all: Vec<String> = format.params.iter().flat_map(inputs).collect();
    all.dedup();
    all
}

/// Builds one table per format.
///
/// Predictions multiply `floor^floor_share * estimate^(1 - floor_share)`, where `floor` is the byte
/// floor in seconds.
pub fn tables(cases: &[&Case], features: &[String], floor_share: f64) -> BTreeMap<String, Table> {
    let mut tables: BTreeMap<String, Table> = BTreeMap::new();
    let mut own_inputs: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for case in cases {
        let values = values(case, features);
        let best_s = best_s(case);
        for trial in &case.trials {
            let floors = trial.estimate.spmv_s / trial.floor_s();
            let target = (trial.spmv_s / trial.estimate.spmv_s).ln() + floor_share * floors.ln();
            let own = own_inputs.entry(trial.format());
            let own = own.or_insert_with_key(|format| parameters(format, cases));
            let own = own.iter().map(|name| f64::from(input(&trial.candidate, name)));
            let row = values.iter().chain(&trial.terms).map(|&value| f64::from(value as f32));
            let row: Vec<f64> = row.chain(own).collect();
            if target.is_finite() && row.iter().all(|value| value.is_finite()) {
                let table = tables.entry(trial.format().to_string()).or_default();
                let times = repeats(trial.spmv_s / best_s);
                table.rows.extend(std::iter::repeat_n(row, times));
                table.targets.extend(std::iter::repeat_n(target, times));
            }
        }
    }
    tables
}

/// Returns how often a trial counts that takes `over_best` times the best time of its matrix: from
/// 4 times down to once. The choice falls on candidates near the best, so models should be accurate
/// there.
fn repeats(over_best: f64) -> usize {
    const MOST: f64 = 4.0;
    let near = (1.0 + (over_best - 1.0) / 0.3).powi(-2);
    (MOST * near).ceil().clamp(1.0, MOST) as usize
}

/// Groups the indices of cases with equal keys, in the order of the keys.
pub fn groups<'a>(cases: &'a [Case], key: impl Fn(&'a Case) -> &'a str) -> Vec<Vec<usize>> {
    let mut groups: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (i, case) in cases.iter().enumerate() {
        groups.entry(key(case)).or_default().push(i);
    }
    groups.into_values().collect()
}

/// Splits the cases into at most `most` folds. Every family is wholly in one fold: the one with the
/// fewest cases so far.
pub fn folds(cases: &[Case], most: usize) -> Vec<Vec<usize>> {
    let mut groups = groups(cases, Case::split_group);
    groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
    let mut folds = vec![Vec::new(); most.min(groups.len())];
    for group in groups {
        if let Some(fold) = folds.iter_mut().min_by_key(|fold| fold.len()) {
            fold.extend(group);
        }
    }
    folds
}

/// Computes the standardised points of the training set. The radius is the distance within which
/// nine tenths of the cases have a case of another family.
///
/// # Errors
/// Fails where there are no cases, or where linfa fails.
pub fn applicability(cases: &[&Case], features: &[String]) -> Result<Applicability> {
    let rows: Vec<Vec<f64>> = cases.iter().map(|case| values(case, features)).collect();
    let point = |(i, k): (usize, usize)| coordinate(rows[i][k]) as f32;
    let points = Array2::from_shape_fn((cases.len(), features.len()), point);
    let mean = points.mean_axis(Axis(0)).context("there are no cases")?;
    let scale = points.std_axis(Axis(0), 0.0).mapv(|s| if s > 1e-6 { 1.0 / s } else { 0.0 });
    let points = (&points - &mean) * &scale;
    let mut away = distances(cases, &points);
    away.sort_by(f32::total_cmp);
    let radius = away.get(away.len() * 9 / 10).copied().unwrap_or(1.0).max(1e-3);
    let points = points.into_iter().collect();
    Ok(Applicability { mean: mean.to_vec(), scale: scale.to_vec(), points, radius })
}

/// Returns the distance from each case to the nearest one of another family, defined as in
/// [`Applicability::distance`]: the root mean square over the coordinates.
fn distances(cases: &[&Case], points: &Array2<f32>) -> Vec<f32> {
    let families: BTreeSet<&str> = cases.iter().map(|case| case.split_group()).collect();
    let width = points.ncols().max(1) as f32;
    let mut away = Vec::new();
    for family in families {
        let (own, others): (Vec<usize>, Vec<usize>) =
            (0..cases.len()).partition(|&i| cases[i].split_group() == family);
        if others.is_empty() {
            continue;
        }
        for i in own {
            let square = |&other: &usize| {
                let pairs = points.row(i).into_iter().zip(points.row(other));
                pairs.map(|(a, b)| (a - b) * (a - b)).sum::<f32>()
            };
            let nearest = others.iter().map(square).min_by(f32::total_cmp);
            away.extend(nearest.map(|square| (square / width).sqrt()));
        }
    }
    away
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_cases::case;

    #[test]
    fn nine_tenths_of_the_cases_are_within_the_radius_of_another_family() {
        let cases: Vec<Case> = ["stencil5", "stencil7", "uniform", "banded", "rmat"]
            .iter()
            .flat_map(|class| [300, 500].map(|rows| case(class, rows)))
            .collect();
        let cases: Vec<&Case> = cases.iter().collect();
        let features = features(&cases);
        let applicability = applicability(&cases, &features).expect("cases");
        applicability.check(features.len()).expect("sound");
        let own = |case: &&Case| applicability.confidence(&values(case, &features));
        assert!(cases.iter().all(|case| own(case) > 0.999), "they are points themselves");
        // Without its family, each case is at one of the distances that the radius was computed
        // from.
        let mut away: Vec<f32> = cases
            .iter()
            .map(|case| {
                let others =
                    (0..cases.len()).filter(|&j| cases[j].split_group() != case.split_group());
                let width = features.len();
                let points = others
                    .flat_map(|j| applicability.points[j * width..(j + 1) * width].to_vec())
                    .collect();
                Applicability { points, ..applicability.clone() }.distance(&values(case, &features))
            })
            .collect();
        away.sort_by(f32::total_cmp);
        assert!(
            (away[9] / applicability.radius - 1.0).abs() < 1e-4,
            "{away:?} {}",
            applicability.radius
        );
    }
}
