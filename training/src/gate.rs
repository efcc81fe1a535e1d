//! Learns the trees that decide without an analysis from cases.

use anyhow::Result;
use ellect::format::{CSR, PCSR};
use ellect::unstable::model::{ANALYZE, QuickPick, SPMVS as PRODUCTS, sectors};

use crate::case::{Case, named};
use crate::crossval::Predicted;
use crate::dataset;
use crate::policy_replay::{GateOutcome, analysis_over_keeping};
use crate::settings::{ANALYSIS_SPMVS, Settings};
use crate::tree::{self, LARGE, Question, READ, SAMPLE, SHORT, Tried, UNREAD, row_statistics};
use crate::trees::Trees;

fn with(names: Vec<&'static str>, more: &[&'static str]) -> Vec<&'static str> {
    names.into_iter().chain(more.iter().copied()).collect()
}

/// Learns the trees that choose where no matrix is analysed, from the cases at the indices `seen`.
///
/// # Errors
/// Fails where linfa fails.
pub fn quick_pick_trees(cases: &[Case], seen: &[usize]) -> Result<Trees> {
    let names = row_statistics();
    let mut keeping = Trees { gate_rules: tree::keep(), quick_picks: Vec::new() };
    let Some(precision) = seen.first().map(|&i| cases[i].precision) else { return Ok(keeping) };
    let [near, products] = [sectors(precision), PRODUCTS];
    // Each pick has to be faster than the choice without it. `csr` needs no conversion: where it
    // pays, it pays for any number of products.
    let questions = [
        (CSR, names.clone(), vec![READ, SHORT]),
        (PCSR, with(names, &[near, products]), vec![SAMPLE, READ]),
        (PCSR, with(tree::size(), &[near, products]), vec![SAMPLE, UNREAD, LARGE]),
    ];
    for (bold, names, bounds) in questions {
        let read_s = |case: &Case| tree::asking_s(case, &bounds);
        let tried = |i: usize, spmvs| {
            let (case, outcome) = (&cases[i], GateOutcome::of(&keeping, &cases[i], spmvs));
            named(case, bold).filter(|_| outcome.taken.as_deref() != Some(bold))?;
            let taken =
                GateOutcome { analyses: false, taken: Some(bold.into()), read_s: read_s(case) };
            let over = taken.over_keeping(case, spmvs)? / outcome.over_keeping(case, spmvs)?;
            Some(Tried { case, spmvs, over })
        };
        let spmvs: &[u64] = if bold == CSR { &[u64::MAX] } else { &ANALYSIS_SPMVS };
        let all = seen.iter().flat_map(|&i| spmvs.iter().map(move |&n| (i, n)));
        let tried: Vec<_> = all.filter_map(|(i, n)| tried(i, n)).collect();
        let bounds = bounds.clone();
        let question = Question { bold, names, bounds, caution: MORE_CAUTION };
        let rules = tree::agreed(&tried, &question)?;
        // A tree that always keeps the baseline is left out.
        if rules != tree::keep() {
            let place = keeping.quick_picks.iter().filter(|asked| asked.candidate == bold).count();
            keeping.quick_picks.insert(place, QuickPick { candidate: bold.to_string(), rules });
        }
    }
    Ok(keeping)
}

/// Learns all trees that decide without an analysis, from the cases at the indices `seen`.
///
/// # Errors
/// Fails where linfa fails.
pub fn trees(cases: &[Case], predicted: &[Predicted], seen: &[usize]) -> Result<Trees> {
    let keeping = quick_pick_trees(cases, seen)?;
    // An analysis has to pay in comparison with the choice made without one.
    let analysed = |i: usize, spmvs| {
        let (case, outcome) = (&cases[i], GateOutcome::of(&keeping, &cases[i], spmvs));
        let over = analysis_over_keeping(case, &predicted[i], spmvs)?
            / outcome.over_keeping(case, spmvs)?;
        Some(Tried { case, spmvs, over })
    };
    let analysed =
        seen.iter().flat_map(|&i| ANALYSIS_SPMVS.map(|n| analysed(i, n)).into_iter().flatten());
    let names = with(row_statistics(), &[PRODUCTS]);
    let question = Question { bold: ANALYZE, names, bounds: vec![READ], caution: CAUTION };
    let gate_rules = tree::agreed(&analysed.collect::<Vec<_>>(), &question)?;
    Ok(Trees { gate_rules, ..keeping })
}

/// Returns for each case the trees that are learned without its family. `learn` receives the
/// indices of the cases of other families.
///
/// # Errors
/// Fails where `learn` fails.
pub fn without_families(
    cases: &[Case],
    settings: &Settings,
    learn: impl Fn(&[usize]) -> Result<Trees>,
) -> Result<Vec<Trees>> {
    let mut asked = vec![Trees::default(); cases.len()];
    for fold in dataset::folds(cases, settings.folds) {
        let seen: Vec<usize> = (0..cases.len()).filter(|i| !fold.contains(i)).collect();
        let trees = learn(&seen)?;
        for i in fold {
            asked[i] = trees.clone();
        }
    }
    Ok(asked)
}

/// Weight of a loss relative to a gain in the tree that decides whether to analyse, and in the
/// trees that choose without an analysis.
const CAUTION: f64 = 13.0;
const MORE_CAUTION: f64 = 100.0;

#[cfg(test)]
mod tests {
    use ellect::format::BASELINES;
    use ellect::unstable::model::KEEP;

    use super::*;
    use crate::sample_cases::{case, trial};
    use crate::tree::agreed;
    use crate::tree::tests::says;

    #[test]
    fn trees_find_when_an_analysis_pays_and_read_rows_only_where_they_must() {
        let cases: Vec<Case> =
            (0..200).map(|i| case(["stencil5", "power_law"][i % 2], 200 + 2 * i)).collect();
        // For many products, an analysis pays where rows differ in length.
        let pays = |case: &Case, spmvs| spmvs > 1000 && case.features["row_nnz_cv"] > 0.6;
        let over = |case: &Case, spmvs| if pays(case, spmvs) { 0.3 } else { 3.0 };
        let tried: Vec<_> = cases
            .iter()
            .flat_map(|case| {
                [10, 100, 10_000].map(|spmvs| Tried { case, spmvs, over: over(case, spmvs) })
            })
            .collect();
        let names: Vec<&str> = row_statistics().into_iter().chain([PRODUCTS]).collect();
        let question = Question { bold: ANALYZE, names, bounds: vec![READ], caution: 30.0 };
        let trees = Trees {
            gate_rules: agreed(&tried, &question).expect("examples"),
            quick_picks: Vec::new(),
        };
        for Tried { case, spmvs, .. } in tried {
            let analyses = GateOutcome::of(&trees, case, spmvs).analyses;
            assert_eq!(analyses, pays(case, spmvs), "{} {spmvs}", case.source);
        }
        let stencil = &cases[0];
        assert_eq!(
            says(&trees.gate_rules, stencil, 10),
            (2, KEEP),
            "size and products decide alone"
        );
        assert_eq!(GateOutcome::of(&trees, stencil, 10).read_s, 0.0);
        assert!(GateOutcome::of(&trees, stencil, 10_000).read_s > 0.0);
        // Row lengths are not read if products take almost no time.
        let fast = Case { baseline_estimate_s: 1e-9, ..cases[1].clone() };
        assert_eq!(says(&trees.gate_rules, &fast, 10_000), (1, KEEP));
    }

    #[test]
    fn csr_is_chosen_where_it_is_faster_and_an_analysis_must_pay() {
        let of = |i: usize| {
            let class = ["stencil5", "power_law"][i % 2];
            let csr_us = [2.0, 80.0][i % 2];
            let best_us = [1.9, 1.0][i % 2];
            let mut case = case(class, 400 + 2 * i);
            case.baseline_estimate_s = 4e-6;
            case.analysis_s = 1e-3;
            case.trials = vec![trial(BASELINES[0], 4.0), trial(CSR, csr_us), trial("hll", best_us)];
            case
        };
        let cases: Vec<Case> = (0..200).map(of).collect();
        let taken = |case: &Case| {
            let spmv_s: Vec<f64> = case.trials.iter().map(|trial| trial.spmv_s).collect();
            Predicted { estimate_s: spmv_s.clone(), spmv_s, confidence: 1.0 }
        };
        let predicted: Vec<Predicted> = cases.iter().map(taken).collect();
        let seen: Vec<usize> = (0..cases.len()).collect();
        let gpu = trees(&cases, &predicted, &seen).expect("examples");
        let outcome = |case, spmvs| GateOutcome::of(&gpu, case, spmvs);
        for (case, few, many) in [(&cases[0], true, false), (&cases[1], false, true)] {
            let GateOutcome { analyses, taken, read_s } = outcome(case, 100);
            let csr = taken.as_deref() == Some(CSR);
            assert_eq!((analyses, csr, read_s > 0.0), (false, few, true), "{}", case.source);
            // hll takes half of the baseline's time on both, but hardly less than csr.
            assert_eq!(outcome(case, 10_000).analyses, many, "{}", case.source);
        }
        // For a single product, nothing is read.
        assert_eq!(
            outcome(&cases[0], 1),
            GateOutcome { analyses: false, taken: None, read_s: 0.0 }
        );

        // Nothing is left to decide if csr is the baseline.
        let host = |case: &Case| {
            let trials = case.trials[1..].to_vec();
            Case { trials, ..case.clone() }
        };
        let cases: Vec<Case> = cases.iter().map(host).collect();
        let predicted: Vec<Predicted> = cases.iter().map(taken).collect();
        assert_eq!(trees(&cases, &predicted, &seen).expect("examples").quick_picks, []);
    }
}
