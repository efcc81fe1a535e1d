//! Cases as rows of inputs and targets, one table a format, and splits of cases by family.

use std::collections::BTreeMap;

use ellect::features::FEATURES;
use ellect::format::{Value, find};
use ellect::model::{Base, Nearness, coordinate, input};

use crate::case::Case;

/// Rows and targets of one format.
#[derive(Debug, Default)]
pub struct Table {
    /// Inputs as a model is given them: features, terms, parameters.
    pub rows: Vec<Vec<f64>>,
    /// Logarithm of the measured time over the base.
    pub targets: Vec<f64>,
}

/// Features that every case has, in the order of the library's table.
pub fn features(cases: &[&Case]) -> Vec<String> {
    let everywhere = |name: &&str| cases.iter().all(|case| case.features.contains_key(*name));
    FEATURES.iter().map(|f| f.name).filter(everywhere).map(String::from).collect()
}

/// The values of these features of a case.
pub fn values(case: &Case, features: &[String]) -> Vec<f64> {
    features.iter().map(|name| case.features.get(name).copied().unwrap_or(0.0)).collect()
}

/// The inputs that a format's parameters make: numbers by name, words by `name=word`.
pub fn parameters(format: &str) -> Vec<String> {
    let Ok(format) = find(format) else { return Vec::new() };
    let inputs = |param: &ellect::format::Param| -> Vec<String> {
        let input = |value: &Value| match value {
            Value::Int(_) => param.name.to_string(),
            Value::Word(word) => format!("{}={word}", param.name),
        };
        param.values.iter().map(input).collect()
    };
    let mut all: Vec<String> = format.params().iter().flat_map(inputs).collect();
    all.dedup();
    all
}

/// One table a format.
pub fn tables(cases: &[&Case], features: &[String], base: Base) -> BTreeMap<String, Table> {
    let mut tables: BTreeMap<String, Table> = BTreeMap::new();
    for case in cases {
        let values = values(case, features);
        for trial in &case.trials {
            let base_s = base.of(trial.floor_s(), trial.estimate.spmv_s);
            let target = (trial.spmv_s / base_s).ln();
            let own = parameters(trial.format());
            let own = own.iter().map(|name| f64::from(input(&trial.candidate, name)));
            let row = values.iter().chain(&trial.terms).map(|&value| f64::from(value as f32));
            let row: Vec<f64> = row.chain(own).collect();
            if target.is_finite() && row.iter().all(|value| value.is_finite()) {
                let table = tables.entry(trial.format().to_string()).or_default();
                table.rows.push(row);
                table.targets.push(target);
            }
        }
    }
    tables
}

/// Groups of cases that are the same by `key`, in the order of their keys.
pub fn groups<'a>(cases: &'a [Case], key: impl Fn(&'a Case) -> &'a str) -> Vec<Vec<usize>> {
    let mut groups: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (i, case) in cases.iter().enumerate() {
        groups.entry(key(case)).or_default().push(i);
    }
    groups.into_values().collect()
}

/// Folds of cases: every family wholly in one, each family with the fewest cases so far.
pub fn folds(cases: &[Case], most: usize) -> Vec<Vec<usize>> {
    let mut groups = groups(cases, |case| &case.family);
    groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
    let mut folds = vec![Vec::new(); most.min(groups.len())];
    for group in groups {
        if let Some(fold) = folds.iter_mut().min_by_key(|fold| fold.len()) {
            fold.extend(group);
        }
    }
    folds
}

/// The points of the training set, standardised; the radius is what nine tenths of the cases are
/// within of another family.
pub fn nearness(cases: &[&Case], features: &[String]) -> Nearness {
    let points: Vec<Vec<f32>> = cases
        .iter()
        .map(|case| values(case, features).into_iter().map(coordinate).collect())
        .collect();
    let count = points.len().max(1) as f32;
    let mean: Vec<f32> =
        (0..features.len()).map(|i| points.iter().map(|p| p[i]).sum::<f32>() / count).collect();
    let scale = (0..features.len()).map(|i| {
        let square = |p: &Vec<f32>| (p[i] - mean[i]) * (p[i] - mean[i]);
        let sigma = (points.iter().map(square).sum::<f32>() / count).sqrt();
        if sigma > 1e-6 { 1.0 / sigma } else { 0.0 }
    });
    let scale: Vec<f32> = scale.collect();
    let standard =
        |p: &Vec<f32>| -> Vec<f32> { (0..p.len()).map(|i| (p[i] - mean[i]) * scale[i]).collect() };
    let standard: Vec<Vec<f32>> = points.iter().map(standard).collect();
    let mut away: Vec<f32> = cases
        .iter()
        .map(|case| {
            let others = (0..cases.len()).filter(|&j| cases[j].family != case.family);
            let points = others.flat_map(|j| standard[j].clone()).collect();
            let others = Nearness { mean: mean.clone(), scale: scale.clone(), points, radius: 1.0 };
            others.distance(&values(case, features))
        })
        .filter(|distance| distance.is_finite())
        .collect();
    away.sort_by(f32::total_cmp);
    let radius = away.get(away.len() * 9 / 10).copied().unwrap_or(1.0).max(1e-3);
    Nearness { mean, scale, points: standard.concat(), radius }
}
