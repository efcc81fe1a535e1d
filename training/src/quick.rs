//! The quick model: predicts the cost of the candidates that are best most often in stages, for
//! matrices on a GPU, which finds the features itself.

use anyhow::{Context, Result};
use ellect::cost::{Cost, Source};
use ellect::format::{BASELINES, CSR, Candidate};
use ellect::model::{Model, Predictor};
use ellect::unstable::format::sort_key;
use ellect::unstable::model::{ConversionTime, QuickCandidate, QuickModel, QuickStage, Stage};
use rayon::prelude::*;

use crate::case::{Case, Untimed, baseline_trial, counted_in_totals, named};
use crate::dataset;
use crate::learner::Learner;
use crate::policy_replay::{Quick, StageCosts};
use crate::settings::Settings;
use crate::stages;

/// The candidates of a stage: those that together save most in the totals of some number of
/// products.
struct Selection {
    stage: Stage,
    /// Maximum number of candidates in addition to the baselines.
    most: usize,
    /// Number of products.
    products: f64,
}

/// The stages, in ascending order. The less a stage knows, the fewer candidates it tells apart.
const SELECTIONS: [Selection; 3] = [
    Selection { stage: Stage::Size, most: 4, products: 100.0 },
    Selection { stage: Stage::Sampled, most: 10, products: 100.0 },
    Selection { stage: Stage::Counted, most: 20, products: 1000.0 },
];

/// Minimum that one more candidate must save, as the mean logarithm of the ratio of totals.
const SAVES: f64 = 1e-3;

/// Logarithm of the time ratio to the baseline assumed for a candidate that refuses the matrix: it
/// must not be chosen, and the trees have to learn what leads to a refusal.
const REFUSED: f64 = 0.3;

/// Quantile (2 %) of the conversion times, used as the fixed cost of a conversion.
const LEAST: f64 = 0.02;

/// Quantile (80 %) of the conversion times beyond the fixed cost, used as the proportional cost:
/// time lost is certain, time gained is not.
const USUAL: f64 = 0.8;

/// Costs predicted for one case: for each stage, seconds of a product and of the conversion of each
/// candidate.
pub type QuickPrediction = Vec<StageCosts>;

/// Learns from all cases. Returns `None` where [`shown`] does.
///
/// # Errors
/// Fails where a learner fails.
pub fn learn(cases: &[Case], settings: &Settings) -> Result<Option<(QuickModel, Quick)>> {
    let Some(shown) = shown(cases, settings)? else { return Ok(None) };
    let all: Vec<&Case> = cases.iter().collect();
    let stage = |(shown, of): (&QuickStage, &Selection)| {
        Ok(QuickStage { candidates: candidates(&all, of, settings)?, ..shown.clone() })
    };
    let stages: Result<_> = shown.model.stages.iter().zip(&SELECTIONS).map(stage).collect();
    Ok(Some((QuickModel { stages: stages? }, shown)))
}

/// Predicts each case by candidates learned without its family. The shares and margins of the stages
/// are those that suit these predictions best. Returns `None` where cuSPARSE was timed on no case, as
/// on a host, or where a case has no estimate of the baseline that is made without an analysis.
///
/// # Errors
/// Fails where a learner fails.
pub fn shown(cases: &[Case], settings: &Settings) -> Result<Option<Quick>> {
    let on_gpu = cases.iter().any(|case| named(case, BASELINES[0]).is_some());
    if !on_gpu || cases.iter().any(|case| case.baseline_estimate_s <= 0.0) {
        return Ok(None);
    }
    let costs = predicted_without_families(cases, settings)?;
    Ok(Some(stages::tuned(cases, SELECTIONS.map(|of| of.stage), costs)))
}

/// Predicts the costs of each case by candidates that were learned without its family.
fn predicted_without_families(cases: &[Case], settings: &Settings) -> Result<Vec<QuickPrediction>> {
    let mut predictions = vec![QuickPrediction::new(); cases.len()];
    for fold in dataset::folds(cases, settings.folds) {
        let others: Vec<&Case> =
            (0..cases.len()).filter(|i| !fold.contains(i)).map(|i| &cases[i]).collect();
        let features = dataset::features(&others);
        for of in &SELECTIONS {
            let candidates = candidates(&others, of, settings)?;
            for &i in &fold {
                let values = known_values(&cases[i], &features, of.stage);
                let values: Vec<f32> = values.iter().map(|&value| value as f32).collect();
                let of_csr = candidates.iter().find(|of| of.candidate == CSR);
                let of_csr = of_csr.map_or(0.0, |csr| csr.forest.sum(&values));
                let one = |of: &QuickCandidate| {
                    let csr = if of.over_csr { of_csr } else { 0.0 };
                    let candidate: Candidate = of.candidate.parse().ok()?;
                    let baseline_estimate_s = cases[i].baseline_estimate_s;
                    let convert_s = of.conversion.seconds(baseline_estimate_s);
                    Some((
                        candidate,
                        cost(convert_s, (of.forest.sum(&values) + csr).exp() * baseline_estimate_s),
                    ))
                };
                let all = candidates.iter().filter_map(one);
                let own = all.filter(|(candidate, _)| may_apply(&cases[i], candidate));
                predictions[i].push(own.collect());
            }
        }
    }
    Ok(predictions)
}

/// Returns the values of these features for a case; 0 for those that a stage does not know.
fn known_values(case: &Case, features: &[String], stage: Stage) -> Vec<f64> {
    let values = dataset::values(case, features).into_iter().zip(features);
    values.map(|(value, name)| if stage.knows(name) { value } else { 0.0 }).collect()
}

/// Predicts the costs of each case by an existing model. Returns `None` where the model has no
/// quick model.
pub fn as_is(cases: &[Case], predictor: &Predictor) -> Option<Quick> {
    let model: &Model = predictor.model();
    let quick = model.quick.as_ref()?;
    let predictions = |case: &Case| {
        let of_stage = |stage: &QuickStage| -> StageCosts {
            let values = known_values(case, &model.features, stage.stage);
            let all =
                predictor.quick_costs(stage.stage, &values, case.baseline_estimate_s).into_iter();
            let own = all.filter(|(candidate, _)| may_apply(case, candidate));
            own.map(|(candidate, cost)| (candidate.clone(), cost)).collect()
        };
        quick.stages.iter().map(of_stage).collect()
    };
    let costs = cases.iter().map(predictions).collect();
    Some(Quick { model: stages::without_candidates(quick), costs })
}

/// Returns whether the quick model considers a candidate for a case. Features do not describe
/// values: a GPU examines the values before it uses a format that depends on them.
fn may_apply(case: &Case, candidate: &Candidate) -> bool {
    !candidate.format.by_values || case.has_few_values()
}

fn cost(convert_s: f64, spmv_s: f64) -> Cost {
    Cost { convert_s, update_s: convert_s, spmv_s, bytes: 0, source: Source::Predicted }
}

/// Returns the names of the baselines and of the other candidates that together save most.
fn names(cases: &[&Case], of: &Selection) -> Vec<String> {
    let mut all: Vec<&str> =
        cases.iter().flat_map(|case| case.trials.iter().map(|t| t.name.as_str())).collect();
    all.sort_unstable_by_key(|name| sort_key(name));
    all.dedup();
    let mut taken: Vec<String> =
        BASELINES.iter().filter(|name| all.contains(*name)).map(ToString::to_string).collect();
    all.retain(|name| !BASELINES.contains(name));
    if of.stage < Stage::Counted {
        // These stages do not find out whether a matrix has few distinct values.
        all.retain(|name| name.parse().is_ok_and(|one: Candidate| !one.format.by_values));
    }
    let counted = counted_in_totals(cases);
    let cases: Vec<&Case> =
        cases.iter().zip(counted).filter_map(|(c, counted)| counted.then_some(*c)).collect();
    let column = |name: &&str| -> Vec<f64> {
        let one =
            |case: &&Case| named(case, name).map_or(f64::INFINITY, |t| t.total_s(of.products));
        cases.iter().map(one).collect()
    };
    let columns: Vec<Vec<f64>> = all.par_iter().map(column).collect();
    let stays = |case: &&Case| {
        let csr = case.trials.iter().filter(|trial| trial.candidate.is_baseline());
        csr.map(|trial| trial.total_s(of.products)).fold(f64::INFINITY, f64::min)
    };
    let mut best: Vec<f64> = cases.iter().map(stays).collect();
    let saved = |best: &[f64], column: &[f64]| {
        let both = best.iter().zip(column).filter(|(best, _)| best.is_finite());
        let (sum, count) = both.fold((0.0, 0_u32), |(sum, count), (best, own)| {
            (sum + (best / best.min(*own)).ln(), count + 1)
        });
        sum / f64::from(count.max(1))
    };
    for _ in 0..of.most {
        let savings: Vec<f64> = columns.iter().map(|column| saved(&best, column)).collect();
        let most = (0..all.len()).max_by(|&a, &b| savings[a].total_cmp(&savings[b]));
        let Some(most) = most.filter(|&most| savings[most] > SAVES) else { break };
        taken.push(all[most].to_string());
        best.iter_mut().zip(&columns[most]).for_each(|(best, own)| *best = best.min(*own));
    }
    taken
}

/// Learns to predict the time of each candidate of a stage from the features that it knows.
fn candidates(cases: &[&Case], of: &Selection, settings: &Settings) -> Result<Vec<QuickCandidate>> {
    let features = dataset::features(cases);
    let row = |case: &&Case| -> Vec<f64> {
        let values = known_values(case, &features, of.stage);
        values.into_iter().map(|value| f64::from(value as f32)).collect()
    };
    let rows: Vec<Vec<f64>> = cases.iter().map(row).collect();
    let learned = names(cases, of).into_par_iter().map(|name| {
        let candidate: Candidate = name.parse()?;
        let over_csr = !candidate.is_baseline();
        let target = |case: &&Case| -> Option<f64> {
            if !may_apply(case, &candidate) {
                return None;
            }
            let spmv_s = match (named(case, &name), case.untimed.get(&name)) {
                (Some(trial), _) => trial.spmv_s,
                (None, Some(Untimed::Cut(estimate))) => estimate.spmv_s,
                (None, Some(Untimed::Refused)) => baseline_trial(case)?.spmv_s * REFUSED.exp(),
                // The run had no time for this candidate.
                (None, None) => return None,
            };
            let over_s = match over_csr {
                true => named(case, CSR)?.spmv_s,
                false => case.baseline_estimate_s,
            };
            Some(spmv_s.ln() - over_s.ln())
        };
        let known = cases.iter().zip(&rows).filter_map(|(case, row)| {
            let finite = row.iter().all(|value| value.is_finite());
            Some((row.clone(), target(case).filter(|target| finite && target.is_finite())?))
        });
        let (rows, targets): (Vec<_>, Vec<_>) = known.unzip();
        let forest = Learner::ExtraTrees.fit(&rows, &targets, settings.seed);
        let forest = forest.with_context(|| format!("trees of {name}"))?;
        let conversion = conversion(cases, &name);
        Ok(QuickCandidate { candidate: name, conversion, forest, over_csr })
    });
    learned.collect()
}

/// Fits the time of conversions to a candidate, to those of known code if there are any.
fn conversion(cases: &[&Case], name: &str) -> ConversionTime {
    if BASELINES.contains(&name) {
        return ConversionTime::default();
    }
    let timed = || cases.iter().filter_map(|case| Some((named(case, name)?, case)));
    let any_known = timed().any(|(trial, _)| trial.conversion_is_known);
    let own = timed().filter(|(trial, _)| trial.conversion_is_known || !any_known);
    let all: Vec<(f64, f64)> =
        own.map(|(trial, case)| (trial.convert_s, case.baseline_estimate_s)).collect();
    let quantile = |mut values: Vec<f64>, part: f64| {
        values.sort_by(f64::total_cmp);
        let place = (values.len() as f64 * part) as usize;
        values.get(place).copied().unwrap_or(0.0)
    };
    let least_s = quantile(all.iter().map(|(convert_s, _)| *convert_s).collect(), LEAST);
    let beyond = |(convert_s, baseline_estimate_s): &(f64, f64)| {
        (convert_s - least_s).max(0.0) / baseline_estimate_s
    };
    ConversionTime { least_s, products: quantile(all.iter().map(beyond).collect(), USUAL) }
}

#[cfg(test)]
mod tests {
    use ellect::format::CSR;
    use ellect::unstable::cost::TERMS;

    use super::*;
    use crate::amortized;
    use crate::case::Trial;
    use crate::sample_cases::case;

    const HLL: &str = "hll:hack=32,sort=none,tpr=1,col=32";

    /// Returns matrices of short rows on which HLL takes half of the baseline's time, and of long
    /// rows on which HLL is refused.
    fn cases() -> Vec<Case> {
        let trial = |name: &str, spmv_s: f64, convert_s: f64| Trial {
            candidate: name.parse().expect("a candidate"),
            name: name.to_string(),
            terms: [1.0; TERMS.len()],
            estimate: cost(convert_s, spmv_s),
            convert_s,
            spmv_s,
            conversion_is_known: false,
            runs_s: Vec::new(),
        };
        let of = |i: usize| {
            let class = ["stencil5", "power_law"][i % 2];
            let mut case = case(class, 400 + 2 * i);
            case.family = format!("{class}/{}", i / 2 % 5);
            case.baseline_estimate_s = 1e-4;
            case.trials = vec![trial(BASELINES[0], 1e-4, 0.0), trial(CSR, 2e-4, 1e-3)];
            if class == "stencil5" {
                case.trials.push(trial(HLL, 5e-5, 5e-4));
            }
            case
        };
        (0..160).map(of).collect()
    }

    /// Returns the names of the candidates of a stage.
    fn names_of(stage: &QuickStage) -> Vec<&str> {
        stage.candidates.iter().map(|of| of.candidate.as_str()).collect()
    }

    #[test]
    fn stages_pay_for_families_that_were_left_out() {
        let (cases, settings) = (cases(), Settings::default());
        let (learned, quick) = learn(&cases, &settings).expect("families").expect("cuSPARSE");
        let stages: Vec<Stage> = learned.stages.iter().map(|stage| stage.stage).collect();
        assert_eq!(stages, Stage::ALL);
        for stage in &learned.stages {
            assert_eq!(names_of(stage), [BASELINES[0], CSR, HLL], "{:?}", stage.stage);
            let convert_s: Vec<f64> =
                stage.candidates.iter().map(|of| of.conversion.seconds(1e-4)).collect();
            assert_eq!(convert_s[..2], [0.0, 0.0], "the arrays are there");
            assert!((convert_s[2] - 5e-4).abs() < 1e-12, "{convert_s:?}");
        }
        let features = dataset::features(&cases.iter().collect::<Vec<_>>());
        learned.check(features.len()).expect("sound");

        let totals = amortized::there(&cases, &quick, &[1, 10_000]);
        let [one, many] = &totals.all[..] else { panic!("{totals:?}") };
        assert_eq!((one.by_size, one.losses, one.speedup), (1.0, 0.0, 1.0));
        // Half of the matrices take half of the baseline's time; nothing needs an analysis.
        assert_eq!(many.by_size + many.sampled + many.counted, 1.0, "{many:?}");
        assert!((many.speedup - 2f64.sqrt()).abs() < 0.01 && many.losses == 0.0, "{many:?}");
    }

    #[test]
    fn conversions_of_unknown_code_count_only_where_all_are() {
        let mut cases = cases();
        // One quarter of the matrices: half of those on which HLL was timed.
        for trial in cases.iter_mut().step_by(4).flat_map(|case| &mut case.trials) {
            trial.conversion_is_known = trial.name == HLL;
            trial.convert_s = if trial.name == HLL { 2e-4 } else { trial.convert_s };
        }
        let (learned, quick) =
            learn(&cases, &Settings::default()).expect("families").expect("some");
        for stage in &learned.stages {
            let of = stage.candidates.iter().find(|of| of.candidate == HLL).expect("the best");
            let convert_s = of.conversion.seconds(1e-4);
            assert!((convert_s - 2e-4).abs() < 1e-12, "{convert_s}");
        }
        let totals = amortized::there(&cases, &quick, &[10_000]);
        let speedup = totals.all[0].speedup;
        assert!((speedup - 2.0).abs() < 0.02, "only matrices on which HLL wins: {speedup}");
    }

    #[test]
    fn formats_for_few_distinct_values_are_learned_and_predicted_only_there() {
        const ST_CSR_VI: &str = "st_csr_vi:tile=1024";
        let mut cases = cases();
        let best = |spmv_s: f64| Trial {
            candidate: ST_CSR_VI.parse().expect("a candidate"),
            name: ST_CSR_VI.to_string(),
            terms: [1.0; TERMS.len()],
            estimate: cost(5e-4, spmv_s),
            convert_s: 5e-4,
            spmv_s,
            conversion_is_known: false,
            runs_s: Vec::new(),
        };
        for (i, case) in cases.iter_mut().enumerate() {
            match i % 4 {
                // Features cannot tell every other matrix of a class from the rest.
                0 | 1 => case.trials.push(best(2e-5)),
                _ => drop(case.untimed.insert(ST_CSR_VI.to_string(), Untimed::Refused)),
            }
        }
        let (learned, quick) =
            learn(&cases, &Settings::default()).expect("families").expect("some");
        let [_, sampled, counted] = &learned.stages[..] else { panic!("three stages") };
        assert!(names_of(counted).contains(&ST_CSR_VI));
        assert!(!names_of(sampled).contains(&ST_CSR_VI), "values are not sampled");
        for (i, (case, costs)) in cases.iter().zip(&quick.costs).enumerate() {
            let st_csr_vi =
                costs[2].iter().find(|(candidate, _)| candidate.to_string() == ST_CSR_VI);
            assert_eq!(st_csr_vi.is_some(), i % 4 < 2, "{}", case.source);
            assert!(st_csr_vi.is_none_or(|(_, cost)| (cost.spmv_s / 2e-5 - 1.0).abs() < 1e-6));
        }
    }

    #[test]
    fn hosts_learn_nothing_by_features_alone() {
        let mut cases = cases();
        cases.iter_mut().for_each(|case| drop(case.trials.remove(0)));
        assert!(learn(&cases, &Settings::default()).expect("families").is_none());
    }
}
