//! The model of one plan: one regressor per format.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use ellect::model::Model;
use ellect::unstable::cost::TERMS;
use ellect::unstable::model::{Regressor, Rules, SCHEMA};
use xxhash_rust::xxh3::xxh3_128;

use crate::case::Case;
use crate::dataset;
use crate::plan::Plan;
use crate::settings::Settings;

/// Fits the model of one plan, without scores.
///
/// # Errors
/// Fails where a learner fails.
pub fn fit(cases: &[&Case], plan: Plan, settings: &Settings) -> Result<Model> {
    let first = cases.first().context("there are no cases to train on")?;
    let features = dataset::features(cases);
    let forests = plan.fit(cases, &features, settings.seed)?.into_iter();
    let regressor = |(format, forest): (String, _)| {
        let parameters = dataset::parameters(&format, cases);
        (format, Regressor { parameters, forest })
    };
    let model = Model {
        schema: SCHEMA,
        device: first.device.clone(),
        precision: first.precision,
        several: first.vectors > 1,
        data: data_of(cases)?,
        seed: settings.seed,
        commit: settings.commit.clone(),
        trained_at: None,
        plan: plan.name.to_string(),
        scores: BTreeMap::new(),
        applicability: dataset::applicability(cases, &features)?,
        features,
        terms: TERMS.map(String::from).to_vec(),
        floor_share: plan.floor_share,
        formats: forests.map(regressor).collect(),
        rules: Rules::default(),
        gate: Rules::default(),
        quick_picks: Vec::new(),
        quick: None,
    };
    model.check()?;
    Ok(model)
}

/// Returns the hash by which a model identifies the cases that it was trained on.
///
/// # Errors
/// Does not fail for valid cases.
pub fn data_of(cases: &[&Case]) -> Result<String> {
    Ok(format!("{:032x}", xxh3_128(&serde_json::to_vec(cases)?)))
}
