//! Trials before an operator for a host is handed out: see [`choose::trial`](crate::choose::trial).

use std::cell::OnceCell;
use std::sync::OnceLock;
use std::time::Instant;

use super::Tuner;
use super::decide::{Decided, thoughts};
use super::subject::Subject;
use crate::analysis::Analysis;
use crate::analysis::sampling::{QUICK_ENTRIES, WHOLE};
use crate::check;
use crate::choose::policy::Mode;
use crate::choose::trial::{CLEAR, Hopeful, LEAST_TOTAL_S, trial_budget_s, tried};
use crate::choose::{Choice, Effort, Ranked, Ranking, Speedup, Thought, Trials, Workload};
use crate::cost::{Cost, Source};
use crate::device::Kind;
use crate::error::{Error, Result};
use crate::format::{CSR, Candidate, Target};
use crate::generate;
use crate::measure::Samples;
use crate::operator::PreparedOperator;
use crate::scalar::Scalar;
use crate::units::time;

/// Seed of the vectors.
const SEED: u64 = 1;

/// Time of one sample, in seconds, if the budget allows as much.
const SAMPLE_S: f64 = 2e-4;

/// Least and largest number of products of CSR before a trial is planned.
const FIRST: [usize; 2] = [3, 20];

/// Least and largest number of samples of each operator.
const ROUNDS: [usize; 2] = [4, 16];

/// Ratio to the fastest contender's shortest sample from which on a contender has lost.
const DECIDED: f64 = 1.1;

/// An operator in a trial, with the times of its products.
struct Contender<T: Scalar> {
    operator: PreparedOperator<T>,
    convert_s: f64,
    /// Vectors of a product.
    vectors: usize,
    y: Vec<T>,
    raw_s: Vec<f64>,
}

impl<T: Scalar> Contender<T> {
    /// Takes one sample, the mean of `products` products.
    fn sample(&mut self, x: &[T], products: u32) -> Result<()> {
        let start = Instant::now();
        for _ in 0..products {
            self.operator.multiply((T::ONE, T::ZERO), self.vectors, x, &mut self.y)?;
        }
        self.raw_s.push(start.elapsed().as_secs_f64() / f64::from(products));
        Ok(())
    }

    fn samples(&self) -> Samples {
        Samples::new(self.raw_s.clone())
    }
}

impl Tuner {
    /// Times the most promising candidates next to CSR, if the products to come are worth it, and
    /// returns the fastest as an operator; makes its candidate the choice. `None` if the choice
    /// stays as it is and nothing is prepared.
    pub(super) fn try_out<'s, T: Scalar>(
        &self,
        subject: &'s Subject<'_, T>,
        analysis: &OnceCell<Analysis<'s>>,
        decided: &mut Decided,
        workload: &Workload,
    ) -> Result<Option<PreparedOperator<T>>> {
        let device = self.backend.device();
        let all_s = |spmv_s: f64| workload.spmvs as f64 * spmv_s;
        let wanted = workload.trials == Trials::WhenTheyPay && workload.effort == Effort::Predict;
        let expected_s = all_s(decided.choice.baseline.spmv_s);
        if !wanted || device.kind != Kind::Host || expected_s < LEAST_TOTAL_S {
            return Ok(None);
        }
        let csr = subject.csr()?;
        let vectors = workload.vectors;
        let elements = (csr.nrows() as u64 + csr.ncols() as u64) * vectors as u64;
        if csr.nnz() == 0 || elements * size_of::<T>() as u64 > device.memory_bytes / 4 {
            return Ok(None);
        }
        let began = Instant::now();
        let target = workload.target(device, T::PRECISION);
        let x: Vec<T> = check::vector(csr.ncols() * vectors, SEED);
        let unanalysed = Analysis::sampled(csr);
        let baseline: Candidate = CSR.parse()?;
        let mut base = self.contender(subject, &unanalysed, &baseline, &target, vectors)?;
        // The first products load the matrix and wake threads up.
        for _ in 0..FIRST[1] {
            base.sample(&x, 1)?;
            if base.raw_s.len() >= FIRST[0] && base.raw_s.iter().sum::<f64>() > SAMPLE_S {
                break;
            }
        }
        let base_s = base.samples().min_s;
        let budget_s = trial_budget_s(all_s(base_s));
        let left_s = || budget_s - began.elapsed().as_secs_f64();
        let keep = |base: Contender<T>, decided: &Decided| {
            let is_choice = decided.choice.candidate.is_csr();
            Ok(is_choice.then_some(base.operator))
        };
        if !decided.analysed {
            let pays = |entries| self.analysis_s(entries) <= left_s() / 2.0;
            if !pays(csr.nnz().min(WHOLE)) && pays(csr.nnz().min(QUICK_ENTRIES[0])) {
                // One that exists already is used.
                let _ = analysis.set(Analysis::hurried(csr));
            }
            let whole = analysis.get().is_none_or(Analysis::is_whole);
            if all_s(base_s) < LEAST_TOTAL_S || whole && !pays(csr.nnz().min(WHOLE)) {
                return keep(base, decided);
            }
            *decided = self.decide_about(subject, analysis, workload, Mode::Rank, &mut |_| ())?;
        }
        let names = match analysis.get() {
            Some(analysis) if decided.choice.ranking[0].source != Source::Measured => {
                self.hopefuls(analysis, &target, workload, &decided.choice, base_s, left_s())
            }
            _ => Vec::new(),
        };
        let mut contenders = vec![base];
        for candidate in &names {
            if left_s() <= 0.0 {
                break;
            }
            match self.contender(subject, &unanalysed, candidate, &target, vectors) {
                Ok(contender) => contenders.push(contender),
                Err(Error::Refused { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        if contenders.len() == 1 {
            return keep(contenders.remove(0), decided);
        }
        race(&mut contenders, &x, base_s, &left_s)?;
        let took_s = began.elapsed().as_secs_f64();
        let best = fastest(&contenders, &decided.choice, workload);
        record(&mut decided.choice, &contenders, best, workload, took_s / all_s(base_s), took_s);
        Ok(Some(contenders.swap_remove(best).operator))
    }

    /// Converts the matrix to a candidate's layout, timed.
    fn contender<T: Scalar>(
        &self,
        subject: &Subject<'_, T>,
        analysis: &Analysis<'_>,
        candidate: &Candidate,
        target: &Target<'_>,
        vectors: usize,
    ) -> Result<Contender<T>> {
        let csr = subject.csr()?;
        let start = Instant::now();
        let operator = self.backend.prepare(csr, analysis, candidate, &candidate.target(target))?;
        let convert_s = start.elapsed().as_secs_f64();
        let y = vec![T::ZERO; csr.nrows() * vectors];
        Ok(Contender { operator, convert_s, vectors, y, raw_s: Vec::new() })
    }

    /// Returns the candidates to try, most promising first.
    fn hopefuls(
        &self,
        analysis: &Analysis<'_>,
        target: &Target<'_>,
        workload: &Workload,
        choice: &Choice,
        base_s: f64,
        left_s: f64,
    ) -> Vec<Candidate> {
        let estimated = Ranking::of(analysis, target, workload, &[]).ranked();
        // Times are scaled to the product of CSR that was timed here.
        let scale = match choice.ranked(&choice.baseline.candidate) {
            Some(base) if base.spmv_s > 0.0 => base_s / base.spmv_s,
            _ => 1.0,
        };
        let thoughts = thoughts(&choice.ranking, &estimated);
        let hopeful = |(candidate, thought)| {
            let ranked: &Ranked = choice.ranked(candidate)?;
            let spmv_s = scale * ranked.spmv_s;
            let thought = scaled(thought, scale);
            Some(Hopeful { candidate, thought, convert_s: ranked.convert_s, spmv_s })
        };
        let all: Vec<Hopeful<'_>> = thoughts
            .iter()
            .filter_map(|(candidate, thought)| hopeful((candidate, *thought)))
            .collect();
        tried(&all, base_s, left_s, workload).into_iter().cloned().collect()
    }

    /// Returns the expected time of an analysis with all predictions that looks at this number of
    /// entries, from two that were timed on this host; the first call times them, in a few
    /// milliseconds.
    fn analysis_s(&self, entries: usize) -> f64 {
        static TIMED: OnceLock<[f64; 2]> = OnceLock::new();
        let [all_s, entry_s] = *TIMED.get_or_init(|| {
            let timed = |rows: usize| {
                let csr = generate::by_name("stencil5", rows, SEED).ok()?;
                let again = || {
                    let start = Instant::now();
                    let choice = self.recommend(&csr, &Workload::default());
                    choice.ok().map(|_| start.elapsed().as_secs_f64())
                };
                // The first call loads what later ones have ready.
                let seconds = again()?.min(again()?);
                Some([csr.nnz() as f64, seconds])
            };
            match (timed(400), timed(20_000)) {
                (Some([few, few_s]), Some([many, many_s])) => {
                    let entry_s = ((many_s - few_s) / (many - few)).max(0.0);
                    [few_s, entry_s]
                }
                _ => [0.0, 0.0],
            }
        });
        all_s + entry_s * entries as f64
    }
}

/// Times the products of all contenders, which take turns, until the time is over or one of them is
/// clearly the fastest.
fn race<T: Scalar>(
    contenders: &mut [Contender<T>],
    x: &[T],
    base_s: f64,
    left_s: &dyn Fn() -> f64,
) -> Result<()> {
    let samples = (ROUNDS[0] * contenders.len()) as f64;
    let sample_s = SAMPLE_S.min(left_s().max(0.0) / samples);
    let products = (sample_s / base_s).ceil().clamp(1.0, 1e6) as u32;
    for contender in contenders.iter_mut() {
        contender.sample(x, 1)?;
        contender.raw_s.clear();
    }
    for round in 0..ROUNDS[1] {
        if round >= ROUNDS[0] && (left_s() <= 0.0 || is_decided(contenders)) {
            break;
        }
        for contender in contenders.iter_mut() {
            contender.sample(x, products)?;
        }
    }
    Ok(())
}

/// Tells whether all contenders but one are clearly slower than that one.
fn is_decided<T: Scalar>(contenders: &[Contender<T>]) -> bool {
    let shortest = contenders.iter().map(|one| one.samples().min_s);
    let best_s = shortest.clone().fold(f64::INFINITY, f64::min);
    shortest.filter(|&own_s| own_s <= DECIDED * best_s).count() == 1
}

/// Scales expected totals.
fn scaled(thought: Thought, scale: f64) -> Thought {
    Thought { predicted_s: thought.predicted_s * scale, estimated_s: thought.estimated_s * scale }
}

/// Returns the place of the operator to use: the one with the least time for all products and
/// updates, or CSR, the first, if that is not clearly slower.
fn fastest<T: Scalar>(contenders: &[Contender<T>], choice: &Choice, workload: &Workload) -> usize {
    let updates_s = |candidate: &Candidate| {
        let ranked = choice.ranked(candidate);
        ranked.map_or(0.0, |r| r.total_s - r.convert_s - workload.spmvs as f64 * r.spmv_s)
    };
    let total_s = |one: &Contender<T>, spmv_s: f64| {
        updates_s(one.operator.candidate()) + workload.spmvs as f64 * spmv_s
    };
    let shortest = |one: &Contender<T>| total_s(one, one.samples().min_s);
    let median = |one: &Contender<T>| total_s(one, one.samples().median_s);
    let base = &contenders[0];
    let better = |&at: &usize| {
        let one = &contenders[at];
        shortest(one) * CLEAR < shortest(base) && median(one) < median(base)
    };
    let order =
        |&a: &usize, &b: &usize| shortest(&contenders[a]).total_cmp(&shortest(&contenders[b]));
    (1..contenders.len()).filter(better).min_by(order).unwrap_or(0)
}

/// Writes the times of a trial to the choice, and makes the fastest candidate the chosen one.
fn record<T: Scalar>(
    choice: &mut Choice,
    contenders: &[Contender<T>],
    best: usize,
    workload: &Workload,
    share: f64,
    took_s: f64,
) {
    let base_s = contenders[0].samples().min_s;
    let cost = |ranked: &Ranked, spmv_s: f64, convert_s: f64| {
        let updates = workload.values.updates().max(1) as f64;
        let update_s = ranked.total_s - ranked.convert_s - workload.spmvs as f64 * ranked.spmv_s;
        let source = Source::Measured;
        Cost { convert_s, update_s: update_s / updates, spmv_s, bytes: ranked.bytes, source }
    };
    let base_cost = choice
        .ranked(contenders[0].operator.candidate())
        .map(|ranked| cost(ranked, base_s, ranked.convert_s));
    for contender in contenders {
        let candidate = contender.operator.candidate();
        let Some(at) = choice.ranking.iter().position(|r| r.candidate == *candidate) else {
            continue;
        };
        let ranked = &mut choice.ranking[at];
        let convert_s = if candidate.is_baseline() { 0.0 } else { contender.convert_s };
        let cost = cost(ranked, contender.samples().min_s, convert_s);
        ranked.break_even_spmvs = base_cost.and_then(|base| cost.break_even(&base, workload));
        ranked.total_s = cost.total_s(workload);
        (ranked.spmv_s, ranked.convert_s, ranked.source) = (cost.spmv_s, convert_s, cost.source);
    }
    choice.ranking.sort_by(|a, b| a.total_s.total_cmp(&b.total_s));
    let winner = &contenders[best];
    let candidate = winner.operator.candidate().clone();
    choice.choose(&candidate);
    choice.baseline.spmv_s = base_s;
    let (won, base) = (winner.samples(), contenders[0].samples());
    choice.speedup = match best {
        0 => Speedup::NONE,
        _ => Speedup::of([base.min_s, won.min_s], [base.spread, won.spread]),
    };
    let others = contenders.iter().enumerate().filter(|&(at, _)| at != best && at != 0);
    let others = others
        .map(|(_, one)| format!("{} {}", one.operator.candidate(), time(one.samples().min_s)));
    let mut all: Vec<String> = others.collect();
    if best != 0 {
        all.insert(0, format!("{CSR} {}", time(base.min_s)));
    }
    let verdict = format!(
        "Use {candidate}: {} a product, timed here against {}, in {} ({:.1} % of the expected time of \
         all products).",
        time(won.min_s),
        all.join(", "),
        time(took_s),
        100.0 * share,
    );
    match choice.explanation.first_mut() {
        Some(first) => *first = verdict,
        None => choice.explanation.push(verdict),
    }
}
