//! The quick model: predicts the cost of the candidates that are best most often from features
//! alone, for matrices on a GPU, which counts the features itself. The choices that follow are
//! replayed on cases.

use anyhow::{Context, Result};
use ellect::cost::{Cost, Source};
use ellect::format::{BASELINES, Candidate};
use ellect::model::{Model, Predictor};
use ellect::unstable::choose::feature_count_s;
use ellect::unstable::format::sort_key;
use ellect::unstable::model::{
    ANALYZE, ConversionTime, GateInputs, QuickCandidate, QuickModel, READING, Rules, SPMVS,
};
use rayon::prelude::*;

use crate::case::{Case, Untimed, baseline_trial, named};
use crate::dataset;
use crate::learner::Learner;
use crate::policy_replay::{Quick, count_s, quick_s};
use crate::settings::{ANALYSIS_SPMVS, Settings};
use crate::stats::LOSS;
use crate::tree::{self, Question, Tried};

/// Maximum number of candidates in addition to the baselines, and the minimum that one more must
/// save, as the mean logarithm of the ratio of totals.
const MOST: usize = 14;
const SAVES: f64 = 1e-3;

/// Number of products in the totals that candidates are selected by.
const PRODUCTS: f64 = 1000.0;

/// Logarithm of the time ratio to the baseline assumed for a candidate that refuses the matrix: it
/// must not be chosen, and the trees have to learn what leads to a refusal.
const REFUSED: f64 = 0.3;

/// Quantile (2 %) of the conversion times, used as the fixed cost of a conversion.
const LEAST: f64 = 0.02;

/// Quantile (80 %) of the conversion times beyond the fixed cost, used as the proportional cost:
/// time lost is certain, time gained is not.
const USUAL: f64 = 0.8;

/// Predicted costs of each candidate for one case: seconds of a product and of the conversion.
pub type QuickPrediction = Vec<(Candidate, Cost)>;

/// Learns from all cases, and predicts each case by candidates learned without its family. Returns
/// `None` where cuSPARSE was timed on no case, as on a host, or where a case has no estimate of the
/// baseline that is made without an analysis.
///
/// # Errors
/// Fails where a learner fails.
pub fn learn(
    cases: &[Case],
    settings: &Settings,
) -> Result<Option<(QuickModel, Vec<QuickPrediction>)>> {
    let all: Vec<&Case> = cases.iter().collect();
    let on_gpu = cases.iter().any(|case| named(case, BASELINES[0]).is_some());
    if !on_gpu || cases.iter().any(|case| case.baseline_estimate_s <= 0.0) {
        return Ok(None);
    }
    let predictions = predicted_without_families(cases, settings)?;
    let everywhere: Vec<usize> = (0..cases.len()).collect();
    let gate = gate_rules(cases, &predictions, &everywhere)?;
    let candidates = candidates(&all, settings)?;
    Ok(Some((QuickModel { gate, candidates }, predictions)))
}

/// Predicts the costs of each case by candidates that were learned without its family.
fn predicted_without_families(cases: &[Case], settings: &Settings) -> Result<Vec<QuickPrediction>> {
    let mut predictions = vec![QuickPrediction::new(); cases.len()];
    for fold in dataset::folds(cases, settings.folds) {
        let others: Vec<&Case> =
            (0..cases.len()).filter(|i| !fold.contains(i)).map(|i| &cases[i]).collect();
        let features = dataset::features(&others);
        let candidates = candidates(&others, settings)?;
        for i in fold {
            let values = dataset::values(&cases[i], &features);
            let values: Vec<f32> = values.iter().map(|&value| value as f32).collect();
            let one = |of: &QuickCandidate| {
                let candidate: Candidate = of.candidate.parse().ok()?;
                let baseline_estimate_s = cases[i].baseline_estimate_s;
                let convert_s = of.conversion.seconds(baseline_estimate_s);
                Some((
                    candidate,
                    cost(convert_s, of.forest.sum(&values).exp() * baseline_estimate_s),
                ))
            };
            let all = candidates.iter().filter_map(one);
            predictions[i] = all.filter(|(candidate, _)| may_apply(&cases[i], candidate)).collect();
        }
    }
    Ok(predictions)
}

/// Predicts the costs of each case by an existing model. Returns `None` where the model has no
/// quick model.
pub fn predicted_as_is(cases: &[Case], predictor: &Predictor) -> Option<Vec<QuickPrediction>> {
    let model: &Model = predictor.model();
    model.quick.as_ref()?;
    let predictions = |case: &Case| {
        let values = dataset::values(case, &model.features);
        let predictions = predictor.quick_costs(&values, case.baseline_estimate_s);
        let predictions =
            predictions.into_iter().filter(|(candidate, _)| may_apply(case, candidate));
        predictions.map(|(candidate, cost)| (candidate.clone(), cost)).collect()
    };
    Some(cases.iter().map(predictions).collect())
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
fn names(cases: &[&Case]) -> Vec<String> {
    let mut all: Vec<&str> =
        cases.iter().flat_map(|case| case.trials.iter().map(|t| t.name.as_str())).collect();
    all.sort_unstable_by_key(|name| sort_key(name));
    all.dedup();
    let mut taken: Vec<String> =
        BASELINES.iter().filter(|name| all.contains(*name)).map(ToString::to_string).collect();
    all.retain(|name| !BASELINES.contains(name));
    let column = |name: &&str| -> Vec<f64> {
        let one = |case: &&Case| named(case, name).map_or(f64::INFINITY, |t| t.total_s(PRODUCTS));
        cases.iter().map(one).collect()
    };
    let columns: Vec<Vec<f64>> = all.par_iter().map(column).collect();
    let stays = |case: &&Case| {
        let csr = case.trials.iter().filter(|trial| trial.candidate.is_baseline());
        csr.map(|trial| trial.total_s(PRODUCTS)).fold(f64::INFINITY, f64::min)
    };
    let mut best: Vec<f64> = cases.iter().map(stays).collect();
    let saved = |best: &[f64], column: &[f64]| {
        let both = best.iter().zip(column).filter(|(best, _)| best.is_finite());
        let (sum, count) = both.fold((0.0, 0_u32), |(sum, count), (best, own)| {
            (sum + (best / best.min(*own)).ln(), count + 1)
        });
        sum / f64::from(count.max(1))
    };
    for _ in 0..MOST {
        let savings: Vec<f64> = columns.iter().map(|column| saved(&best, column)).collect();
        let most = (0..all.len()).max_by(|&a, &b| savings[a].total_cmp(&savings[b]));
        let Some(most) = most.filter(|&most| savings[most] > SAVES) else { break };
        taken.push(all[most].to_string());
        best.iter_mut().zip(&columns[most]).for_each(|(best, own)| *best = best.min(*own));
    }
    taken
}

/// Learns to predict the time of each candidate from features.
fn candidates(cases: &[&Case], settings: &Settings) -> Result<Vec<QuickCandidate>> {
    let features = dataset::features(cases);
    let row = |case: &&Case| -> Vec<f64> {
        let values = dataset::values(case, &features);
        values.into_iter().map(|value| f64::from(value as f32)).collect()
    };
    let rows: Vec<Vec<f64>> = cases.iter().map(row).collect();
    let learned = names(cases).into_par_iter().map(|name| {
        let candidate: Candidate = name.parse()?;
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
            Some(spmv_s.ln() - case.baseline_estimate_s.ln())
        };
        let known = cases.iter().zip(&rows).filter_map(|(case, row)| {
            let finite = row.iter().all(|value| value.is_finite());
            Some((row.clone(), target(case).filter(|target| finite && target.is_finite())?))
        });
        let (rows, targets): (Vec<_>, Vec<_>) = known.unzip();
        let forest = Learner::ExtraTrees.fit(&rows, &targets, settings.seed);
        let forest = forest.with_context(|| format!("trees of {name}"))?;
        let conversion = conversion(cases, &name);
        Ok(QuickCandidate { candidate: name, conversion, forest })
    });
    learned.collect()
}

/// Fits the time of conversions to a candidate.
fn conversion(cases: &[&Case], name: &str) -> ConversionTime {
    if BASELINES.contains(&name) {
        return ConversionTime::default();
    }
    let one = |case: &&Case| Some((named(case, name)?.convert_s, case.baseline_estimate_s));
    let all: Vec<(f64, f64)> = cases.iter().filter_map(one).collect();
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

/// Returns the seconds of counting features, the conversion and all products, divided by those of
/// all products with the baseline.
fn over_keeping(case: &Case, predictions: &QuickPrediction, spmvs: u64) -> Option<f64> {
    let (_, quick_s) = quick_s(case, predictions, spmvs)?;
    Some((count_s(case) + quick_s) / (spmvs as f64 * baseline_trial(case)?.spmv_s))
}

/// Returns what the gate knows about a case whose matrix is on the device.
fn known(case: &Case, spmvs: u64) -> GateInputs {
    GateInputs { row_scan_s: feature_count_s(case.nnz, f64::MAX), ..tree::known(case, spmvs) }
}

/// Weight of a loss relative to a gain in the tree that decides whether to count features.
const CAUTION: f64 = 100.0;

/// Features are counted, whatever the tree decides, where that takes at most this share of the time
/// of all products: a loss this small does not count.
const CHEAP: f64 = 0.015;

/// Ratio of the time with counting to the time without it, credited to an example for the chance of
/// a gain.
const CHANCE: f64 = 0.94;

/// Learns from the cases at the indices `seen` whether counting features pays.
fn gate_rules(cases: &[Case], predictions: &[QuickPrediction], seen: &[usize]) -> Result<Rules> {
    // A cost that does not count as a loss is worth the chance of a gain.
    let tried = |i: usize, spmvs| {
        let over = over_keeping(&cases[i], &predictions[i], spmvs)?;
        let over = if over <= 1.0 + LOSS { over.min(CHANCE) } else { over };
        Some(Tried { case: &cases[i], spmvs, over })
    };
    let tried =
        seen.iter().flat_map(|&i| ANALYSIS_SPMVS.map(|n| tried(i, n)).into_iter().flatten());
    let mut names = tree::size();
    names.extend([SPMVS, READING]);
    let bounds = vec![tree::COUNTED];
    let question = Question { bold: ANALYZE, names, bounds, caution: CAUTION, known };
    let rules = tree::agreed(&tried.collect::<Vec<_>>(), &question)?;
    Ok(tree::or_below(rules, READING, CHEAP, ANALYZE))
}

/// Returns the inputs of the policy for each case: the costs `told`, and either the given rules or
/// rules learned without the case's family.
///
/// # Errors
/// Fails where linfa fails.
pub fn quick(
    cases: &[Case],
    predictions: Vec<QuickPrediction>,
    rules: Option<&Rules>,
    settings: &Settings,
) -> Result<Quick> {
    if let Some(rules) = rules {
        return Ok(Quick { gates: vec![rules.clone(); cases.len()], costs: predictions });
    }
    let mut gates = vec![Rules::default(); cases.len()];
    for fold in dataset::folds(cases, settings.folds) {
        let seen: Vec<usize> = (0..cases.len()).filter(|i| !fold.contains(i)).collect();
        let rules = gate_rules(cases, &predictions, &seen)?;
        for i in fold {
            gates[i] = rules.clone();
        }
    }
    Ok(Quick { gates, costs: predictions })
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

    #[test]
    fn quick_predictions_pay_for_families_that_were_left_out() {
        let (cases, settings) = (cases(), Settings::default());
        let (learned, predictions) = learn(&cases, &settings).expect("families").expect("cuSPARSE");
        let names: Vec<&str> = learned.candidates.iter().map(|of| of.candidate.as_str()).collect();
        assert_eq!(names, [BASELINES[0], CSR, HLL]);
        let convert_s: Vec<f64> =
            learned.candidates.iter().map(|of| of.conversion.seconds(1e-4)).collect();
        assert_eq!(convert_s[..2], [0.0, 0.0], "the arrays are there");
        assert!((convert_s[2] - 5e-4).abs() < 1e-12, "{convert_s:?}");
        let features = dataset::features(&cases.iter().collect::<Vec<_>>());
        learned.check(features.len()).expect("sound");

        let quick = quick(&cases, predictions.clone(), None, &settings).expect("examples");
        let totals = amortized::there(&cases, &quick, &[1, 10_000]);
        let [one, many] = &totals.all[..] else { panic!("{totals:?}") };
        assert_eq!((one.analysed, one.losses, one.speedup), (0.0, 0.0, 1.0));
        // Half of the matrices take half of the baseline's time.
        assert!((many.speedup - 2f64.sqrt()).abs() < 0.01 && many.losses == 0.0, "{many:?}");
        for (case, predictions) in cases.iter().zip(&predictions) {
            let over = over_keeping(case, predictions, 10_000).expect("a baseline");
            assert_eq!(over < 0.6, case.family.starts_with("stencil5"), "{}", case.source);
        }
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
            runs_s: Vec::new(),
        };
        for (i, case) in cases.iter_mut().enumerate() {
            match i % 4 {
                // Features cannot tell every other matrix of a class from the rest.
                0 | 1 => case.trials.push(best(2e-5)),
                _ => drop(case.untimed.insert(ST_CSR_VI.to_string(), Untimed::Refused)),
            }
        }
        let (learned, predictions) =
            learn(&cases, &Settings::default()).expect("families").expect("some");
        assert!(learned.candidates.iter().any(|of| of.candidate == ST_CSR_VI));
        for (i, (case, predictions)) in cases.iter().zip(&predictions).enumerate() {
            let st_csr_vi =
                predictions.iter().find(|(candidate, _)| candidate.to_string() == ST_CSR_VI);
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
