//! Ranking: sorts all candidates by total time and chooses one of them.

use super::{Baseline, Choice, Ranked, Refused, Speedup, Workload, explain};
use crate::analysis::Analysis;
use crate::cost::{Cost, Estimator, Known, Source, Times, works};
use crate::device::Kind;
use crate::features::Features;
use crate::format::{Candidate, Refusal, Target, Work, baseline};

/// Near tie, as a share: totals that differ by at most this share are decided by conversion time
/// and memory.
pub const NEAR_TIE: f64 = 0.02;

/// Difference of two products' times that is ignored, in seconds.
const NOTHING_S: f64 = 1e-9;

/// A candidate with its cost and estimate.
pub(super) struct Entry {
    pub candidate: Candidate,
    pub cost: Cost,
    pub estimate: Option<Estimate>,
}

/// Results of an estimate; missing if only measuring could find out that the candidate applies.
pub(super) struct Estimate {
    pub work: Work,
    pub times: Times,
}

/// A ranking of all candidates for one matrix, device and workload.
pub struct Ranking<'a> {
    pub(super) analysis: &'a Analysis<'a>,
    pub(super) target: Target<'a>,
    pub(super) workload: &'a Workload,
    /// The chosen candidate, then the others in ascending order of total time.
    pub(super) entries: Vec<Entry>,
    pub(super) refused: Vec<Refused>,
}

impl<'a> Ranking<'a> {
    /// Ranks every candidate for the target's kind of device; costs in `known` replace the
    /// estimates.
    ///
    /// The choice has the least total time (conversion, updates of values, and all products) under
    /// the memory limit; among totals within [`NEAR_TIE`] of it, the cheapest conversion, then the
    /// smallest layout. A candidate that was not timed must beat CSR by
    /// [`Device::margin`](crate::device::Device::margin). If CSR was measured, the choice is one of
    /// the measured candidates. The estimates of the others are scaled by the error of CSR's
    /// estimate, and the predictions by the errors of the measured candidates' predictions.
    ///
    /// If values are to change, formats that depend on values are refused, because they may refuse
    /// the new ones; those that may round values are not.
    ///
    /// CSR is never refused, because the caller already has it. A measured candidate is not refused
    /// if an estimate alone may not find out whether it applies ([`Refusal::is_untried`]).
    pub fn of(
        analysis: &'a Analysis<'a>,
        target: &Target<'a>,
        workload: &'a Workload,
        known: &[Known],
    ) -> Self {
        let (entries, refused) = enter(analysis, target, workload, known);
        let entries = choice_first(entries, By::Analysis, target.device.margin, workload);
        Ranking { analysis, target: *target, workload, entries, refused }
    }

    /// Returns the entries of all candidates that apply: the choice first, then the others in
    /// ascending order of total time.
    pub fn ranked(&self) -> Vec<Ranked> {
        self.entries.iter().map(|entry| ranked(entry, &self.csr().cost, self.workload)).collect()
    }

    /// Returns the candidates that do not apply, with the reasons.
    pub fn refused(&self) -> &[Refused] {
        &self.refused
    }

    /// Returns the choice with its explanation.
    pub fn explained(self) -> Choice {
        let explanation = explain::explain(&explain::Case {
            analysis: self.analysis,
            target: &self.target,
            workload: self.workload,
            entries: &self.entries,
            csr: self.csr(),
            refused: &self.refused,
        });
        let base = self.csr();
        let choice = Choice {
            candidate: self.entries[0].candidate.clone(),
            baseline: Baseline::of(&base.candidate, &base.cost),
            speedup: Speedup::NONE,
            confidence: None,
            model: None,
            ranking: self.ranked(),
            features: Features::of(self.analysis),
            device: self.target.device.name.clone(),
            precision: self.target.precision,
            spmvs: self.workload.spmvs,
            vectors: self.workload.vectors,
            transposed: None,
            fingerprint: Some(self.analysis.fingerprint()),
            explanation,
            refused: self.refused,
        };
        choice.with_speedup(|_| self.target.device.margin)
    }

    /// Returns the entry of the baseline.
    fn csr(&self) -> &Entry {
        baseline_of(&self.entries).expect("CSR always suits")
    }
}

/// Ranks every candidate for this target and explains the choice: see [`Ranking::of`].
///
/// Pure: equal arguments give equal answers, without clock, disk or GPU.
pub fn choose(
    analysis: &Analysis<'_>,
    target: &Target<'_>,
    workload: &Workload,
    known: &[Known],
) -> Choice {
    Ranking::of(analysis, target, workload, known).explained()
}

/// Returns the entry of the baseline, which all others are compared with.
pub(super) fn baseline_of(entries: &[Entry]) -> Option<&Entry> {
    baseline(entries, |entry| &entry.candidate)
}

/// Returns every candidate that applies with its cost, and every other one with the reason.
fn enter(
    analysis: &Analysis<'_>,
    target: &Target<'_>,
    workload: &Workload,
    known: &[Known],
) -> (Vec<Entry>, Vec<Refused>) {
    let estimator = Estimator::new(analysis, target).with_vectors(workload.vectors);
    let mut entries = Vec::new();
    let mut refused = Vec::new();
    let changes = workload.values.updates() > 0;
    let many = workload.vectors > 1 && target.device.kind == Kind::Gpu;
    for (candidate, work) in works(analysis, target).iter().cloned() {
        let takes_any = candidate.rounding(target) > 0.0;
        if changes && candidate.format.by_values && !takes_any {
            let reason = Refusal::new(
                "values are to change, and it holds only values that are the same where these are; \
                 name it, or say that they stay, if the new ones will be",
            );
            refused.push(Refused { candidate, reason });
            continue;
        }
        let same = candidate.in_several().filter(|_| many);
        if let Some(same) = same {
            let reason = Refusal::new(format!("it multiplies several vectors as {same} does"));
            refused.push(Refused { candidate, reason });
            continue;
        }
        let known = known.iter().find(|known| known.candidate == candidate).map(|k| &k.cost);
        match (work, known) {
            (Err(reason), Some(&Ok(cost)))
                if reason.is_untried() && cost.bytes <= target.memory_limit =>
            {
                entries.push(Entry { candidate, cost, estimate: None });
            }
            (Err(_), Some(Err(reason))) => {
                refused.push(Refused { candidate, reason: reason.clone() });
            }
            (Err(reason), _) => refused.push(Refused { candidate, reason }),
            // Among the baselines, only this program's own is always available.
            (Ok(_), Some(Err(reason))) if !candidate.is_csr() => {
                refused.push(Refused { candidate, reason: reason.clone() });
            }
            (Ok(_), Some(Ok(cost)))
                if !candidate.is_baseline() && cost.bytes > target.memory_limit =>
            {
                let checked = target.check_bytes(cost.bytes);
                refused.extend(checked.err().map(|reason| Refused { candidate, reason }));
            }
            (Ok(work), known) => {
                let (estimated, times) = estimator.cost_and_times(&candidate, &work);
                let known = known.and_then(|k| k.as_ref().ok()).copied();
                let mut cost = known.unwrap_or(estimated);
                if work.convert_bytes == 0 {
                    // A measured operator copied the arrays; the caller has them already.
                    cost.convert_s = 0.0;
                }
                entries.push(Entry { candidate, cost, estimate: Some(Estimate { work, times }) });
            }
        }
    }
    scale_to_measured(&mut entries);
    scale_predictions(&mut entries, known);
    put_csr_first(&mut entries);
    (entries, refused)
}

/// Raises the estimates of CSR's other variants to the time of CSR, which was tuned against them:
/// only a measurement or a prediction may say that one of them is faster.
fn put_csr_first(entries: &mut [Entry]) {
    let csr = entries.iter().find(|entry| entry.candidate.is_csr());
    let Some(least_s) = csr.map(|csr| csr.cost.spmv_s) else { return };
    let estimated = |entry: &&mut Entry| entry.cost.source == Source::Estimated;
    let variants = entries.iter_mut().filter(|entry| entry.candidate.is_csr_variant());
    for entry in variants.filter(estimated) {
        entry.cost.spmv_s = entry.cost.spmv_s.max(least_s);
    }
}

/// Scales estimates by the error of CSR's estimate, if CSR was measured.
fn scale_to_measured(entries: &mut [Entry]) {
    let measured = |csr: &&Entry| csr.cost.source == Source::Measured;
    let csr = baseline_of(entries).filter(measured);
    let Some((csr, estimate)) = csr.and_then(|csr| Some((csr, csr.estimate.as_ref()?))) else {
        return;
    };
    let factor = csr.cost.spmv_s / estimate.times.total_s();
    for entry in entries.iter_mut().filter(|entry| entry.cost.source == Source::Estimated) {
        entry.cost.spmv_s *= factor;
    }
}

/// Scales predictions by the errors of the predictions of measured candidates: by their mean, and by
/// that of the candidate's own format, whose errors resemble each other more.
fn scale_predictions(entries: &mut [Entry], known: &[Known]) {
    let error = |entry: &Entry| {
        let predicted = known.iter().filter(|known| known.candidate == entry.candidate);
        let mut predicted = predicted.filter_map(|known| known.cost.as_ref().ok());
        let predicted = predicted.find(|cost| cost.source == Source::Predicted)?;
        let measured = (entry.cost.source == Source::Measured).then_some(entry.cost.spmv_s)?;
        let error = (measured / predicted.spmv_s).ln();
        error.is_finite().then_some((entry.candidate.format.name, error))
    };
    let errors: Vec<(&str, f64)> = entries.iter().filter_map(error).collect();
    if errors.is_empty() {
        return;
    }
    let mean = errors.iter().map(|(_, error)| error).sum::<f64>() / errors.len() as f64;
    for entry in entries.iter_mut().filter(|entry| entry.cost.source == Source::Predicted) {
        let own = errors.iter().filter(|(format, _)| *format == entry.candidate.format.name);
        let (count, sum) = own.fold((1.0, mean), |(n, sum), (_, error)| (n + 1.0, sum + error));
        entry.cost.spmv_s *= f64::exp(sum / count);
    }
}

/// The basis of predicted costs, which decides whether a baseline's gain must exceed the margin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// An analysis of the matrix, so the work of every candidate is known.
    Analysis,
    /// Features alone.
    Features,
}

/// Tells whether a candidate may be chosen instead of the baseline `base`.
///
/// This holds if the candidate was timed, or if nothing was timed and the baseline takes longer by
/// at least the share `margin`. After an analysis, every baseline may be chosen.
pub fn trusted(
    (candidate, cost): (&Candidate, &Cost),
    (base, base_cost): (&Candidate, &Cost),
    by: By,
    margin: f64,
    workload: &Workload,
) -> bool {
    let needs_no_margin = match by {
        By::Analysis => candidate.is_baseline(),
        By::Features => candidate == base,
    };
    match (cost.source, base_cost.source) {
        (Source::Measured, _) => true,
        (_, Source::Measured) => false,
        _ => {
            let with_margin_s = cost.total_s(workload) * (1.0 + margin);
            needs_no_margin || with_margin_s <= base_cost.total_s(workload)
        }
    }
}

/// Sorts candidates by total time and puts the choice first.
///
/// The choice is the candidate with the least total among those that are [trusted] with this
/// margin; conversion time and memory decide near ties. If a conversion refuses the matrix, the next candidate in this order is tried.
pub fn order<T>(
    mut all: Vec<T>,
    of: impl Fn(&T) -> (&Candidate, &Cost),
    by: By,
    margin: f64,
    workload: &Workload,
) -> Vec<T> {
    let total_s = |item: &T| of(item).1.total_s(workload);
    all.sort_by(|a, b| total_s(a).total_cmp(&total_s(b)));
    let base = baseline(&all, |item| of(item).0).map(&of);
    let may_win = |item: &T| base.is_none_or(|base| trusted(of(item), base, by, margin, workload));
    let able: Vec<usize> = (0..all.len()).filter(|&i| may_win(&all[i])).collect();
    let chosen = able.get(settle(&able, |&i| of(&all[i]), workload)).copied().unwrap_or(0);
    if chosen < all.len() {
        all[..=chosen].rotate_right(1);
    }
    all
}

/// Applies [`order`] to entries.
pub(super) fn choice_first(
    entries: Vec<Entry>,
    by: By,
    margin: f64,
    workload: &Workload,
) -> Vec<Entry> {
    order(entries, |entry| (&entry.candidate, &entry.cost), by, margin, workload)
}

/// Returns the place of the choice among candidates in ascending order of total time: among totals
/// within [`NEAR_TIE`] of the first, the cheapest conversion, then the smallest layout.
fn settle<'a, T>(
    sorted: &'a [T],
    of: impl Fn(&'a T) -> (&'a Candidate, &'a Cost),
    workload: &Workload,
) -> usize {
    let best_s = sorted.first().map_or(0.0, |first| of(first).1.total_s(workload));
    let near_s = best_s * (1.0 + NEAR_TIE) + workload.spmvs as f64 * NOTHING_S;
    (0..sorted.len())
        .take_while(|&i| of(&sorted[i]).1.total_s(workload) <= near_s)
        .min_by(|&a, &b| {
            let ((a, a_cost), (b, b_cost)) = (of(&sorted[a]), of(&sorted[b]));
            let conversion = a_cost.convert_s.total_cmp(&b_cost.convert_s);
            let csr_first = b.is_baseline().cmp(&a.is_baseline());
            conversion.then(csr_first).then(a_cost.bytes.cmp(&b_cost.bytes))
        })
        .unwrap_or(0)
}

pub(super) fn ranked(entry: &Entry, csr: &Cost, workload: &Workload) -> Ranked {
    let Entry { candidate, cost, .. } = entry;
    Ranked {
        candidate: candidate.clone(),
        format: candidate.format.name,
        parameters: candidate.params.clone(),
        spmv_s: cost.spmv_s,
        error: 0.0,
        convert_s: cost.convert_s,
        total_s: cost.total_s(workload),
        bytes: cost.bytes,
        source: cost.source,
        break_even_spmvs: cost.break_even(csr, workload),
    }
}
