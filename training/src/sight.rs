//! The trees that are asked at sight, learned from cases.

use anyhow::Result;
use ellect::format::{CSR, PCSR};
use ellect::model::{ANALYZE, QuickPick, SPMVS as PRODUCTS, sectors};

use crate::case::Case;
use crate::dataset;
use crate::policy_replay::{AtAGlance, look_over_stay};
use crate::replay::{Trees, named};
use crate::train::{Predicted, Settings};
use crate::tree::{
    self, LARGE, Question, READ, SAMPLE, SHORT, Tried, UNREAD, known, row_statistics,
};

/// The products that the tree learns from which tells whether a look pays: fewer than
/// [`ALWAYS_ANALYZE`](ellect::model::ALWAYS_ANALYZE), from where on nobody asks it.
pub const LOOK_SPMVS: [u64; 7] = [10, 100, 316, 1000, 3162, 10_000, 31_623];

fn with(names: Vec<&'static str>, more: &[&'static str]) -> Vec<&'static str> {
    names.into_iter().chain(more.iter().copied()).collect()
}

/// The trees that are asked where no matrix is looked at, learned from the cases at these places.
///
/// # Errors
/// What linfa says.
pub fn without_look(cases: &[Case], seen: &[usize]) -> Result<Trees> {
    let names = row_statistics();
    let mut staying = Trees { look: tree::stay(), sight: Vec::new() };
    let Some(precision) = seen.first().map(|&i| cases[i].precision) else { return Ok(staying) };
    let [near, products] = [sectors(precision), PRODUCTS];
    // Each has to take less than all that is taken without it. `csr` takes no conversion: what pays
    // does so of any number of products.
    let questions = [
        (CSR, names.clone(), vec![READ, SHORT]),
        (PCSR, with(names, &[near, products]), vec![SAMPLE, READ]),
        (PCSR, with(tree::size(), &[near, products]), vec![SAMPLE, UNREAD, LARGE]),
    ];
    for (bold, names, bounds) in questions {
        let read_s = |case: &Case| tree::asking_s(case, &bounds);
        let tried = |i: usize, spmvs| {
            let (case, glance) = (&cases[i], AtAGlance::of(&staying, &cases[i], spmvs));
            named(case, bold).filter(|_| glance.taken.as_deref() != Some(bold))?;
            let taken = AtAGlance { looks: false, taken: Some(bold.into()), read_s: read_s(case) };
            let over = taken.over_stay(case, spmvs)? / glance.over_stay(case, spmvs)?;
            Some(Tried { case, spmvs, over })
        };
        let spmvs: &[u64] = if bold == CSR { &[u64::MAX] } else { &LOOK_SPMVS };
        let all = seen.iter().flat_map(|&i| spmvs.iter().map(move |&n| (i, n)));
        let tried: Vec<_> = all.filter_map(|(i, n)| tried(i, n)).collect();
        let bounds = bounds.clone();
        let question = Question { bold, names, bounds, caution: MORE_CAUTION, known };
        let rules = tree::agreed(&tried, &question)?;
        // Where it is always the incumbent, nothing is asked.
        if rules != tree::stay() {
            let place = staying.sight.iter().filter(|asked| asked.candidate == bold).count();
            staying.sight.insert(place, QuickPick { candidate: bold.to_string(), rules });
        }
    }
    Ok(staying)
}

/// The trees that are asked at sight, learned from the cases at these places.
///
/// # Errors
/// What linfa says.
pub fn trees(cases: &[Case], predicted: &[Predicted], seen: &[usize]) -> Result<Trees> {
    let staying = without_look(cases, seen)?;
    // A look has to pay beside what is taken without one.
    let looked = |i: usize, spmvs| {
        let (case, glance) = (&cases[i], AtAGlance::of(&staying, &cases[i], spmvs));
        let over = look_over_stay(case, &predicted[i], spmvs)? / glance.over_stay(case, spmvs)?;
        Some(Tried { case, spmvs, over })
    };
    let looked = seen.iter().flat_map(|&i| LOOK_SPMVS.map(|n| looked(i, n)).into_iter().flatten());
    let names = with(row_statistics(), &[PRODUCTS]);
    let question = Question { bold: ANALYZE, names, bounds: vec![READ], caution: CAUTION, known };
    let look = tree::agreed(&looked.collect::<Vec<_>>(), &question)?;
    Ok(Trees { look, ..staying })
}

/// For each case the trees that are learned without its family.
///
/// # Errors
/// What `learn` says, which is given the places of the others.
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

/// What a loss counts beside a gain in the tree that tells whether to look, and in those that tell
/// what to take without.
const CAUTION: f64 = 13.0;
const MORE_CAUTION: f64 = 100.0;
