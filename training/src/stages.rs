//! The shares and margins of the quick model's stages, tuned on predictions of cases whose families
//! the predicting trees never saw.

use ellect::choose::Workload;
use ellect::unstable::choose::{Decision, Place};
use ellect::unstable::model::{QuickModel, QuickStage, Stage};
use rayon::prelude::*;

use crate::amortized::SPMVS;
use crate::case::{Case, baseline_trial, counted_in_totals};
use crate::policy_replay::{Asked, Quick, QuickAsked, StageCosts, Walked, policy, quick_s, walk};
use crate::stats::LOSS;
use crate::trees::Trees;

/// Margins that are tried.
const MARGINS: [f64; 8] = [0.0, 0.03, 0.06, 0.1, 0.15, 0.2, 0.3, 0.4];

/// Shares that are tried: a step to a stage is taken up to this share of all products' time.
const SHARES: [f64; 9] = [0.0, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.08, 0.12];

/// Shares and margins before tuning.
const START: (f64, f64) = (0.02, 0.1);

/// Share of matrices that may lose, for each number of products.
const MAY_LOSE: f64 = 0.005;

/// Weight of each further share of matrices that lose, relative to the mean logarithm of totals.
const CAUTION: f64 = 3.0;

/// Number of times that the stages are tuned after each other, each in all pairs of a share and a margin.
const ROUNDS: usize = 3;

/// Returns a model with the same stages, but without their candidates.
pub fn without_candidates(model: &QuickModel) -> QuickModel {
    let stage = |stage: &QuickStage| QuickStage { candidates: Vec::new(), ..*stage };
    QuickModel { stages: model.stages.iter().map(stage).collect() }
}

/// Returns these predictions with the shares and margins that minimise the mean logarithm of the
/// totals of [`SPMVS`] products, for matrices on the device, and the number of matrices that lose.
/// `costs` holds the predictions of the stages for each case.
pub fn tuned<const N: usize>(
    cases: &[Case],
    stages: [Stage; N],
    costs: Vec<Vec<StageCosts>>,
) -> Quick {
    let (share, margin) = START;
    let stage = |stage| QuickStage { stage, share, margin, candidates: Vec::new() };
    let mut quick = Quick { model: QuickModel { stages: stages.map(stage).into() }, costs };
    let outcomes = Outcomes::of(cases, &quick);
    let mut least = outcomes.penalty(cases, &quick.model);
    for _ in 0..ROUNDS {
        for at in 0..N {
            let pairs =
                SHARES.iter().flat_map(|share| MARGINS.iter().map(move |one| (*share, *one)));
            for (share, margin) in pairs {
                let mut tried = quick.model.clone();
                let own = &mut tried.stages[at];
                (own.share, own.margin) = (share, margin);
                let penalty = outcomes.penalty(cases, &tried);
                if penalty < least {
                    (least, quick.model) = (penalty, tried);
                }
            }
        }
    }
    quick
}

/// The totals of the choices of all stages with all [`MARGINS`], divided by those of the baseline.
struct Outcomes {
    /// For each stage, margin and number of products, one total for each case; `None` where the
    /// baseline was not timed, and for cases that totals do not count.
    over: Vec<Vec<Vec<Vec<Option<f64>>>>>,
}

impl Outcomes {
    fn of(cases: &[Case], quick: &Quick) -> Self {
        let counted = counted_in_totals(cases);
        let over = |stage: Stage, margin: f64, spmvs: u64| {
            let mut model = quick.model.clone();
            model.stages.iter_mut().for_each(|stage| stage.margin = margin);
            let one = |((case, costs), counted): ((&Case, &Vec<StageCosts>), bool)| {
                if !counted {
                    return None;
                }
                let asked = QuickAsked { model: &model, costs };
                let (_, chosen_s) = quick_s(case, asked, stage, spmvs)?;
                Some(chosen_s / (spmvs as f64 * baseline_trial(case)?.spmv_s))
            };
            cases.par_iter().zip(&quick.costs).zip(counted.clone()).map(one).collect()
        };
        let of_margin = |stage, margin| SPMVS.map(|spmvs| over(stage, margin, spmvs)).into();
        let of_stage = |stage| MARGINS.map(|margin| of_margin(stage, margin)).into();
        Outcomes { over: quick.model.stages.iter().map(|stage| of_stage(stage.stage)).collect() }
    }

    /// Returns the mean logarithm of the totals and the weighted share of cases that lose, summed
    /// over [`SPMVS`].
    fn penalty(&self, cases: &[Case], model: &QuickModel) -> f64 {
        let trees = Trees::default();
        let of_products = |(n, &spmvs): (usize, &u64)| {
            let workload = Workload { spmvs, ..Workload::default() };
            let one = |i: usize| {
                let (case, asked) = (&cases[i], QuickAsked { model, costs: &[] });
                let asked = Asked { trees: &trees, quick: Some(asked), predicted: None };
                let Walked { decision, spent_s } =
                    walk(case, &policy(case, Place::Gpu, &workload, &asked))?;
                let Decision::Quick(stage) = decision else { return None };
                let at = model.stages.iter().position(|one| one.stage == stage)?;
                let margin = MARGINS.iter().position(|one| *one == model.stages[at].margin)?;
                let spent = spent_s / (spmvs as f64 * baseline_trial(case)?.spmv_s);
                Some(spent + self.over[at][margin][n][i]?)
            };
            let over: Vec<f64> = (0..cases.len()).into_par_iter().filter_map(one).collect();
            let count = over.len().max(1) as f64;
            let mean = over.iter().map(|over| over.ln()).sum::<f64>() / count;
            let lost = over.iter().filter(|over| **over > 1.0 + LOSS).count() as f64 / count;
            mean + CAUTION * (lost - MAY_LOSE).max(0.0)
        };
        SPMVS.iter().enumerate().map(of_products).sum()
    }
}
