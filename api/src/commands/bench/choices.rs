//! `ellect bench --choices` compares the choices of operators for this host, with and without
//! trials, with the best candidate.
//!
//! All candidates that are not hopeless are timed, and the choices take the times of their
//! candidates from this table. The last columns are real: the time of preparing an operator, trial
//! included, and its products.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ellect::analysis::Analysis;
use ellect::choose::{Trials, Workload};
use ellect::device::Kind;
use ellect::format::{CSR, Candidate};
use ellect::measure::Backend;
use ellect::unstable::choose::Ranking;
use ellect::unstable::cost::works;
use ellect::unstable::session::{Session, SessionEvent, Task, TimeLimits};
use ellect::{Csr, Precision, PreparedOperator, Scalar, Tuner};
use ellect_training::geometric_mean;

use super::{Answer, Bench, protocol};
use crate::output::print;

/// A candidate whose estimate is this many times the best one's is not timed.
const HOPELESS: f64 = 3.0;

/// Time limit of one candidate.
const LIMIT: Duration = Duration::from_secs(20);

/// Share by which a total must exceed that of CSR to count as slower.
const SLOWER: f64 = 1.05;

/// Results on one matrix.
struct Row {
    /// Best measured time over that of the choice: without trials, and with them.
    best_over: [f64; 2],
    /// Time of CSR over that of the choice.
    over_csr: [f64; 2],
    /// Total of CSR over the total with trials, with everything.
    total_over_csr: f64,
}

/// Prints a line for each matrix, and the means.
pub fn run(bench: &Bench, data: &Path) -> Result<Answer> {
    let backend = Arc::new(Backend::open(&bench.device, data)?);
    if backend.device().kind != Kind::Host {
        bail!("trials are for hosts: --choices takes --device cpu");
    }
    print(&format!(
        "{} products of each matrix.\n\n| matrix | nonzeros | csr (us) | best | (us) | without trials | \
         best/chosen | with trials | best/chosen | preparing (ms) | total, csr / this |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
        bench.spmvs
    ))?;
    let mut rows = Vec::new();
    bench.matrices(&mut |name, csr| {
        let (row, line) = row(&backend, data, name, csr, bench.spmvs)?;
        rows.push(row);
        print(&line)
    })?;
    let mean = |of: &dyn Fn(&Row) -> f64| geometric_mean(rows.iter().map(of));
    let slower = rows.iter().filter(|row| row.total_over_csr < 1.0 / SLOWER).count();
    for (at, words) in [(0, "without trials"), (1, "with trials")] {
        print(&format!(
            "\n{words}: best/chosen {:.3}, {:.3} times as fast as csr",
            mean(&|row| row.best_over[at]),
            mean(&|row| row.over_csr[at]),
        ))?;
    }
    print(&format!(
        "\nwith trials, preparing and all products: {:.3} times as fast as csr; {slower} of {} matrices \
         over 5 % slower\n",
        mean(&|row| row.total_over_csr),
        rows.len()
    ))?;
    Ok(Answer::Yes)
}

fn row(
    backend: &Arc<Backend>,
    data: &Path,
    name: &str,
    csr: &Csr<f64>,
    spmvs: u64,
) -> Result<(Row, String)> {
    let tuner = Tuner::without_models(Arc::clone(backend)).with_models(data)?;
    let workload = |trials| Workload { spmvs, trials, ..Workload::default() };
    // The first call loads the model and times the analysis.
    tuner.prepare(csr, &workload(Trials::WhenTheyPay))?;
    let without = tuner.prepare(csr, &workload(Trials::Never))?.candidate().clone();
    let start = Instant::now();
    let operator = tuner.prepare(csr, &workload(Trials::WhenTheyPay))?;
    let prepared_s = start.elapsed().as_secs_f64();
    let with = operator.candidate().clone();
    let base: Candidate = CSR.parse()?;
    let target = workload(Trials::Never).target(backend.device(), Precision::F64);
    let of_csr = PreparedOperator::new(csr, &base, &target)?;
    let (own_s, csr_s) = alternately(csr, &operator, &of_csr)?;
    let timed = times(backend, csr, &[&without, &with])?;
    let spmv_s = |candidate: &Candidate| {
        let found = timed.iter().find(|(one, _)| one == candidate).map(|(_, s)| *s);
        found.with_context(|| format!("{name}: {candidate} was not timed"))
    };
    let (best, best_s) =
        timed.iter().min_by(|a, b| a.1.total_cmp(&b.1)).context("csr is always timed")?;
    let [without_s, with_s, base_s] = [spmv_s(&without)?, spmv_s(&with)?, spmv_s(&base)?];
    let n = spmvs as f64;
    let row = Row {
        best_over: [best_s / without_s, best_s / with_s],
        over_csr: [base_s / without_s, base_s / with_s],
        total_over_csr: n * csr_s / (prepared_s + n * own_s),
    };
    let line = format!(
        "| {name} | {} | {:.1} | {best} | {:.1} | {without} | {:.3} | {with} | {:.3} | {:.1} | {:.3} |\n",
        csr.nnz(),
        1e6 * base_s,
        1e6 * best_s,
        row.best_over[0],
        row.best_over[1],
        1e3 * prepared_s,
        row.total_over_csr
    );
    Ok((row, line))
}

/// Times two operators alternately; returns the shortest sample of each, per product.
fn alternately<T: Scalar>(
    csr: &Csr<T>,
    one: &PreparedOperator<T>,
    other: &PreparedOperator<T>,
) -> Result<(f64, f64)> {
    const ROUNDS: usize = 30;
    let x = vec![T::ONE; csr.ncols()];
    let mut y = vec![T::ZERO; csr.nrows()];
    let mut sample = |operator: &PreparedOperator<T>, products: u32| -> Result<f64> {
        let start = Instant::now();
        for _ in 0..products {
            operator.apply(T::ONE, &x, T::ZERO, &mut y)?;
        }
        Ok(start.elapsed().as_secs_f64() / f64::from(products))
    };
    sample(other, 1)?;
    let products = (1e-3 / sample(other, 1)?).ceil().clamp(1.0, 1e5) as u32;
    let (mut one_s, mut other_s) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..ROUNDS {
        one_s = one_s.min(sample(one, products)?);
        other_s = other_s.min(sample(other, products)?);
    }
    Ok((one_s, other_s))
}

/// Returns the times of one product with all candidates that are not hopeless, and with `always`.
fn times(
    backend: &Backend,
    csr: &Csr<f64>,
    always: &[&Candidate],
) -> Result<Vec<(Candidate, f64)>> {
    let target = Workload::default().target(backend.device(), Precision::F64);
    let analysis = Analysis::sampled(csr);
    let ranked = Ranking::of(&analysis, &target, &Workload::default(), &[]).ranked();
    let best_s = ranked.iter().map(|one| one.spmv_s).fold(f64::INFINITY, f64::min);
    let hopeful = |candidate: &Candidate| {
        let estimate = ranked.iter().find(|one| one.candidate == *candidate);
        candidate.is_baseline()
            || always.contains(&candidate)
            || estimate.is_some_and(|one| one.spmv_s <= HOPELESS * best_s)
    };
    let all = works(&analysis, &target);
    let chosen: Vec<&Candidate> =
        all.iter().filter(|(c, work)| work.is_ok() && hopeful(c)).map(|(c, _)| c).collect();
    let session = Session::new(backend, csr, &analysis, target)
        .with_protocol(protocol())
        .repeating_noisy()
        .with_limits(TimeLimits { each: Some(LIMIT), ..TimeLimits::default() });
    let mut timed: Vec<(Candidate, f64)> = Vec::new();
    session.run(chosen.into_iter().map(Task::from), &mut |event| -> Result<()> {
        if let SessionEvent::Measured { candidate, measurement } = event
            && let Some(cost) = measurement.cost()
        {
            timed.retain(|(one, _)| one != candidate);
            timed.push((candidate.clone(), cost.spmv_s));
        }
        Ok(())
    })?;
    Ok(timed)
}
