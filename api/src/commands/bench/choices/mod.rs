//! `ellect bench --choices` compares ways to choose a candidate for this host with the best one.
//!
//! All candidates that are not hopeless are timed in turns with `csr`, as a solver calls them: one
//! operator, again and again. The ways are `ellect recommend` with the model and the profile that
//! ship, with a probed profile, with a model of the data folder, and with effort measure; then an
//! operator that is prepared here, whose time of preparing counts.

mod race;
mod ways;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use ellect::analysis::Analysis;
use ellect::choose::Workload;
use ellect::device::Kind;
use ellect::format::{CSR, Candidate};
use ellect::measure::Backend;
use ellect::unstable::choose::Ranking;
use ellect::unstable::cost::works;
use ellect::{Csr, Precision, PreparedOperator, Tuner};
use ellect_training::geometric_mean;

use self::race::{Raced, race};
use self::ways::Way;
use super::{Answer, Bench};
use crate::output::print;

/// A candidate whose estimate is this many times the best one's is not timed.
const HOPELESS: f64 = 3.0;

/// Share by which a time must exceed that of CSR to count as slower.
const SLOWER: f64 = 1.05;

/// Name of the way whose operator is prepared here.
const PREPARED: &str = "operator prepared here, with trials";

/// A way to choose, with its results on all matrices.
struct Column {
    name: String,
    /// Time of the best candidate over that of the choice, for each matrix.
    best_over: Vec<f64>,
    /// Time of CSR over that of the choice.
    over_csr: Vec<f64>,
    /// Number of matrices on which it was slower than CSR, by more than two operators of CSR differ.
    slower: usize,
}

impl Column {
    fn new(name: impl Into<String>) -> Column {
        Column { name: name.into(), best_over: Vec::new(), over_csr: Vec::new(), slower: 0 }
    }

    /// Adds a matrix: the times of a product (or of all), of CSR's, and of the best candidate's, in
    /// seconds. `noise` is the ratio of two times of CSR.
    fn add(&mut self, own_s: f64, csr_s: f64, best_s: f64, noise: f64) {
        self.best_over.push(best_s / own_s);
        self.over_csr.push(csr_s / own_s);
        self.slower += usize::from(own_s > SLOWER * noise * csr_s);
    }

    fn line(&self) -> String {
        format!(
            "| {} | {:.3} | {:.3} | {:.3} | {:.3} | {} |\n",
            self.name,
            geometric_mean(self.best_over.iter().copied()),
            self.best_over.iter().copied().fold(f64::INFINITY, f64::min),
            geometric_mean(self.over_csr.iter().copied()),
            self.over_csr.iter().copied().fold(f64::INFINITY, f64::min),
            self.slower,
        )
    }
}

/// Prints a line for each matrix, and a line for each way.
pub fn run(bench: &Bench, data: &Path) -> Result<Answer> {
    let backend = Arc::new(Backend::open(&bench.device, data)?);
    if backend.device().kind != Kind::Host {
        bail!("trials are for hosts: --choices takes --device cpu");
    }
    let folder = tempfile::tempdir().context("making a folder for the matrices")?;
    let ways = ways::all(folder.path(), data, bench.before.as_deref())?;
    let named = ways.iter().map(Way::name).chain([PREPARED, "the same, with preparing it"]);
    let mut columns: Vec<Column> = named.map(Column::new).collect();
    columns.push(Column::new("best of all"));
    print(&format!(
        "{} products of each matrix in f64. Noise: longer over shorter time of two operators of csr.\n\n\
         | matrix | nonzeros | csr (us) | noise | best | (us) | prepared | (us) | preparing (ms) |\n\
         |---|---|---|---|---|---|---|---|---|\n",
        bench.spmvs
    ))?;
    let mut matrices = 0;
    bench.matrices(&mut |name, csr| {
        matrices += 1;
        let file = folder.path().join("matrix.mtx");
        ellect::write::matrix_market(csr, std::fs::File::create(&file)?)?;
        let chosen = ways.iter().map(|way| way.choose(&file, bench.spmvs));
        let chosen =
            chosen.collect::<Result<Vec<Candidate>>>().with_context(|| name.to_string())?;
        print(&row(&backend, data, (name, csr), bench.spmvs, &chosen, &mut columns)?)
    })?;
    print(&format!(
        "\n| choice by ({matrices} matrices) | best/chosen | worst | over csr | worst | over 5 % slower \
         beyond noise |\n|---|---|---|---|---|---|\n"
    ))?;
    for column in &columns {
        print(&column.line())?;
    }
    Ok(Answer::Yes)
}

/// Times the candidates of a matrix, adds the results to the columns, and returns the line of the
/// matrix. `chosen` are the choices of all ways but the last ones.
fn row(
    backend: &Arc<Backend>,
    data: &Path,
    (name, csr): (&str, &Csr<f64>),
    spmvs: u64,
    chosen: &[Candidate],
    columns: &mut [Column],
) -> Result<String> {
    let (operator, prepared_s) = prepared(backend, data, csr, spmvs)?;
    let taken = operator.candidate().clone();
    drop(operator);
    let mut all = hopeful(backend, csr)?;
    for candidate in chosen.iter().chain([&taken]) {
        if !all.contains(candidate) {
            all.push(candidate.clone());
        }
    }
    let Raced { csr_s, noise, times } = race(backend, csr, &all)?;
    let time = |candidate: &Candidate| {
        let found = times.iter().find(|(one, _)| one == candidate).map(|(_, s)| *s);
        found.with_context(|| format!("{name}: {candidate} was not timed"))
    };
    let (best, best_s) = times.iter().min_by(|a, b| a.1.total_cmp(&b.1)).context("csr is timed")?;
    for (candidate, column) in chosen.iter().chain([&taken]).zip(columns.iter_mut()) {
        column.add(time(candidate)?, csr_s, *best_s, noise);
    }
    if let [.., total, last] = columns {
        let total_s = prepared_s / spmvs as f64 + time(&taken)?;
        total.add(total_s, csr_s, *best_s, noise);
        last.add(*best_s, csr_s, *best_s, noise);
    }
    Ok(format!(
        "| {name} | {} | {:.1} | {noise:.3} | {best} | {:.1} | {taken} | {:.1} | {:.1} |\n",
        csr.nnz(),
        1e6 * csr_s,
        1e6 * best_s,
        1e6 * time(&taken)?,
        1e3 * prepared_s,
    ))
}

/// Prepares an operator as programs do, and returns it with the time that this took, in seconds.
fn prepared(
    backend: &Arc<Backend>,
    data: &Path,
    csr: &Csr<f64>,
    spmvs: u64,
) -> Result<(PreparedOperator<f64>, f64)> {
    let tuner = Tuner::without_models(Arc::clone(backend)).with_models(data)?;
    let workload = Workload { spmvs, ..Workload::default() };
    // The first call loads the model and times the analysis, once in a process.
    tuner.prepare(csr, &workload)?;
    let start = Instant::now();
    let operator = tuner.prepare(csr, &workload)?;
    Ok((operator, start.elapsed().as_secs_f64()))
}

/// Returns the candidates that suit and whose estimates are not hopeless, `csr` among them.
fn hopeful(backend: &Backend, csr: &Csr<f64>) -> Result<Vec<Candidate>> {
    let target = Workload::default().target(backend.device(), Precision::F64);
    let analysis = Analysis::sampled(csr);
    let ranked = Ranking::of(&analysis, &target, &Workload::default(), &[]).ranked();
    let best_s = ranked.iter().map(|one| one.spmv_s).fold(f64::INFINITY, f64::min);
    let base: Candidate = CSR.parse()?;
    let all = works(&analysis, &target);
    let hopeful = all.iter().filter(|(candidate, work)| {
        let estimate = ranked.iter().find(|one| one.candidate == *candidate);
        let near = estimate.is_some_and(|one| one.spmv_s <= HOPELESS * best_s);
        work.is_ok() && (near || *candidate == base)
    });
    Ok(hopeful.map(|(candidate, _)| candidate.clone()).collect())
}
