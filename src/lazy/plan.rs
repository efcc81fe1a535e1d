//! The break-even: when a conversion is worth its time although the number of products is unknown.
//!
//! As many products as there were are assumed to come (the ski rental problem): a conversion that
//! they would repay has then cost at most about what the products before it have.

use crate::choose::{Choice, NEAR_TIE, Ranked};
use crate::error::{Error, Result};
use crate::format::Candidate;
use crate::model::Stage;

/// Candidates, best first, and the number of products from which their conversion would have paid.
pub(super) struct ConversionPlan {
    pub candidates: Vec<Candidate>,
    pub from: u64,
}

impl ConversionPlan {
    /// Plans the conversion, or returns `None` if no candidate is faster than the current one.
    ///
    /// The plan starts at the number of products from which the first conversion pays. Its
    /// candidates are the faster ones, ordered by their total time for twice that number.
    pub fn of(choice: &Choice, held: &Candidate) -> Option<Self> {
        let held = choice.ranked(held)?;
        let much_s = (1.0 - NEAR_TIE) * held.spmv_s;
        let faster =
            || choice.ranking.iter().filter(|r| r.spmv_s < much_s && !r.candidate.is_baseline());
        let fixed_s = |ranked: &Ranked| ranked.total_s - choice.spmvs as f64 * ranked.spmv_s;
        let pays_from = |ranked: &Ranked| {
            // The current candidate is converted already.
            let more_s = fixed_s(ranked) - (fixed_s(held) - held.convert_s);
            (more_s / (held.spmv_s - ranked.spmv_s)).ceil().max(0.0) as u64
        };
        let from = faster().map(pays_from).min()?;
        let by_then = 2.0 * from.max(1) as f64;
        let by_then_s = |ranked: &Ranked| ranked.convert_s + by_then * ranked.spmv_s;
        let mut best: Vec<&Ranked> = faster().collect();
        best.sort_by(|a, b| by_then_s(a).total_cmp(&by_then_s(b)));
        let from = best.first().map_or(from, |best| pays_from(best).max(from));
        let candidates = best.into_iter().map(|r| r.candidate.clone()).collect();
        Some(ConversionPlan { candidates, from })
    }

    /// Returns the result of `make` for the first candidate that it does not refuse; `None` if it
    /// refuses all.
    pub fn first<O>(&self, make: impl Fn(&Candidate) -> Result<O>) -> Result<Option<O>> {
        let mut made = self.candidates.iter().map(make);
        made.find(|made| !matches!(made, Err(Error::Refused { .. }))).transpose()
    }
}

/// Tells whether the products that the choice was made for would repay a conversion from the
/// current candidate to the chosen one.
pub(super) fn repays(choice: &Choice, held: &Candidate) -> bool {
    // Baselines multiply the same arrays; which of them is the fastest makes little difference.
    let same = choice.candidate == *held || choice.candidate.is_baseline() && held.is_baseline();
    let chosen = choice.ranked(&choice.candidate).filter(|_| !same);
    chosen.is_some_and(|chosen| match choice.ranked(held) {
        Some(held) => chosen.total_s < (1.0 - NEAR_TIE) * (held.total_s - held.convert_s),
        None => true,
    })
}

/// Returns the number of products after which the next decision is due, `products` after the
/// start; `None` if no other candidate would ever be chosen. `held` is the candidate after this
/// decision.
pub(super) fn next_question(choice: &Choice, held: &Candidate, products: u64) -> Option<u64> {
    let twice = products.saturating_mul(2).max(1);
    if choice.fingerprint.is_none() {
        return Some(twice);
    }
    // After an analysis, nothing more can be found out.
    let plan = ConversionPlan::of(choice, held)?;
    Some(if plan.from > products { plan.from } else { twice })
}

/// Returns a noun for the knowledge that the choice was made from.
pub(super) fn knowledge(choice: &Choice) -> &'static str {
    let beyond = |stage: Stage| choice.features.iter().any(|(f, _)| !stage.knows(f.name));
    match choice.fingerprint {
        Some(_) => "an analysis of the matrix",
        None if beyond(Stage::Sampled) => "its counted features",
        None if beyond(Stage::Size) => "its row lengths and a few entries",
        None => "the size of the matrix",
    }
}
