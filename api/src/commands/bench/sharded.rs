//! `ellect bench --devices` compares products of matrices divided among GPUs with those on one GPU.
//!
//! Each mode has a line ([`Mode`]). Vectors stay on the GPUs, and products are CUDA graphs. Halos move by
//! stores into the other GPUs' memory (`peer`), and where NCCL is installed, in the modes `vector` and
//! `overlap` once more by that. Products follow each other as in a solver, and each case is checked.
//! Parts may be on hosts, too: their vectors are in the host's memory.

mod nccl;
mod timing;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, bail};
use ellect::choose::Workload;
use ellect::device::Kind;
use ellect::sharded::{Mode, Part, ShardedOperator, Split, Tuners};
use ellect::{Csr, Precision, Scalar, Tuner};
use serde::Serialize;
use timing::{SAMPLES, Times, iteration, median, one_sum_iteration, timed};

pub use timing::SAMPLE_S;

use super::{Answer, Bench};
use crate::output::print;

/// Products that the choice expects.
pub const SPMVS: u64 = 1_000_000;

/// One matrix on some GPUs.
#[derive(Debug, Serialize)]
struct Row {
    matrix: String,
    nrows: usize,
    nnz: usize,
    precision: Precision,
    gpus: usize,
    split: String,
    mode: &'static str,
    /// `peer` or `nccl`; `memory` if a part is on a host, `none` of a single part.
    transport: &'static str,
    /// Candidates of the parts.
    candidates: Vec<String>,
    /// Share of the entries that are multiplied during the exchange.
    overlapped: f64,
    /// Largest number of elements that a part gets from others.
    halo: usize,
    /// Time of a product, with the spread of the samples.
    product_us: f64,
    spread: f64,
    /// Time of a product on one GPU over the number of GPUs times this one.
    efficiency: f64,
    /// Time without the exchange, for halos that are filled.
    filled_us: Option<f64>,
    filled_efficiency: Option<f64>,
    /// Efficiency that the choice of the mode expects; `None` if a part is on a host.
    expected_efficiency: Option<f64>,
    /// Time of an iteration of conjugate gradients, with `--solver`, and its efficiency.
    iteration_us: Option<f64>,
    iteration_efficiency: Option<f64>,
    /// Time of an iteration with one sum over the GPUs, and its efficiency against the usual one.
    one_sum_us: Option<f64>,
    one_sum_efficiency: Option<f64>,
    /// Time of dividing, choosing and converting, for a matrix of the host.
    prepare_s: f64,
    /// As `prepare_s`, for a matrix that the first GPU holds, and for so few products that no host
    /// analyses it.
    prepare_on_gpu_s: Option<f64>,
}

/// Prints a line for each matrix and number of GPUs.
pub fn run(bench: &Bench, data: &Path) -> Result<Answer> {
    let open = |name: &String| Tuner::open_in(name, data).map(Arc::new);
    let tuners: Vec<Arc<Tuner>> = bench.devices.iter().map(open).collect::<Result<_, _>>()?;
    if tuners.len() < 2 {
        bail!("--devices takes two or more devices of this machine, for instance cuda:0,cuda:1");
    }
    if bench.solver && !on_gpus(&tuners) {
        bail!("--solver with --devices times GPUs, but a device is a host; leave one of them out");
    }
    if !bench.json {
        print(
            "| matrix | rows | nonzeros | precision | GPUs | split | mode | transport | formats | halo \
             | product (us) | spread | efficiency | without exchange (us) | efficiency | expected \
             efficiency | iteration (us) | efficiency | with one sum (us) | efficiency | preparing (s) \
             | from a GPU (s) |\n\
             |---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
        )?;
    }
    bench.matrices(&mut |name, csr| {
        for &precision in &bench.precision {
            match precision {
                Precision::F64 => rows(bench, name, csr, &tuners)?,
                Precision::F32 => rows(bench, name, &csr.cast::<f32>(), &tuners)?,
            }
        }
        Ok(())
    })?;
    Ok(Answer::Yes)
}

/// Tells whether all parts are on GPUs.
fn on_gpus(tuners: &[Arc<Tuner>]) -> bool {
    tuners.iter().all(|tuner| tuner.device().kind == Kind::Gpu)
}

/// A product on some GPUs.
struct Product {
    times: Times,
    prepare_s: f64,
    overlapped: f64,
    halo: usize,
    candidates: Vec<String>,
}

impl Product {
    fn of<T: Scalar>(a: &ShardedOperator<T>, times: Times, prepare_s: f64) -> Self {
        Product {
            times,
            prepare_s,
            overlapped: overlapped(a.parts()),
            halo: a.parts().iter().map(|part| part.halo()).max().unwrap_or(0),
            candidates: a.parts().iter().map(|part| part.candidate().to_string()).collect(),
        }
    }
}

/// A division of a matrix among GPUs, and its mode.
#[derive(Clone, Copy)]
struct Case {
    gpus: usize,
    mode: Mode,
    split: Split<'static>,
    expected_efficiency: Option<f64>,
}

fn workload() -> Workload {
    Workload { spmvs: SPMVS, ..Workload::default() }
}

/// Returns the modes to time on each number of GPUs.
fn cases(bench: &Bench, gpus: usize) -> Vec<Case> {
    let numbers = [1, 2, 4, 8, 16].into_iter().filter(|&number| number <= gpus);
    let all: Vec<Mode> = match bench.modes.is_empty() {
        // `auto` stands for `overlap` where that is possible and pays.
        true => Mode::all().filter(|&mode| mode != Mode::Overlap).collect(),
        false => bench.modes.clone(),
    };
    let cases = numbers.flat_map(|gpus| {
        let modes = if gpus == 1 { vec![Mode::Vector] } else { all.clone() };
        modes.into_iter().map(move |mode| {
            let split = mode.split().unwrap_or(bench.split.0);
            Case { gpus, mode, split, expected_efficiency: None }
        })
    });
    cases.collect()
}

fn rows<T: Scalar>(bench: &Bench, name: &str, csr: &Csr<T>, tuners: &[Arc<Tuner>]) -> Result<()> {
    let on_gpus = on_gpus(tuners);
    let mut alone: Option<[f64; 2]> = None;
    for mut case in cases(bench, tuners.len()) {
        let start = Instant::now();
        let of_case = Tuners::of(tuners[..case.gpus].to_vec())?.with_mode(case.mode);
        let a = of_case.prepare_sharded(csr, &workload(), case.split)?;
        let prepare_s = start.elapsed().as_secs_f64();
        // Two lines for one mode would say the same.
        if case.mode == Mode::Auto && a.choice().mode == Mode::Vector && bench.modes.is_empty() {
            continue;
        }
        let asked = std::mem::replace(&mut case.mode, a.choice().mode);
        case.expected_efficiency = a.choice().expected().map(|expected| expected.efficiency);
        let times = timed(&a, csr, name, on_gpus)?;
        let iterations = match bench.solver && csr.nrows() == csr.ncols() {
            true => Some([iteration(&a)?, one_sum_iteration(&a)?]),
            false => None,
        };
        let of_one = *alone.get_or_insert([times.product_us, iterations.unwrap_or_default()[0]]);
        let product = Product::of(&a, times, prepare_s);
        drop(a);
        let prepare_on_gpu_s = match on_gpus && case.gpus > 1 {
            true => from_gpu(csr, &of_case, tuners, case.split)?,
            false => None,
        };
        let of = |product, transport, iterations| {
            let row = row::<T>((name, csr.nrows(), csr.nnz()), &case, product, transport);
            show(bench, &finished(Row { prepare_on_gpu_s, ..row }, of_one, iterations))
        };
        let transport = match (case.gpus, on_gpus) {
            (1, _) => "none",
            (_, true) => "peer",
            (_, false) => "memory",
        };
        of(product, transport, iterations)?;
        if transport != "peer" || !matches!(case.mode, Mode::Vector | Mode::Overlap) {
            continue;
        }
        match nccl::timed(csr, &tuners[..case.gpus], (asked, case.split), name) {
            Ok(product) => of(product, "nccl", None)?,
            Err(error) if is_missing(&error) => eprintln!("not timed with NCCL: {error}"),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns the time of dividing and preparing a matrix that the first GPU holds; `None` if the mode or the
/// division needs it on the host.
#[cfg(feature = "cuda")]
fn from_gpu<T: Scalar>(
    csr: &Csr<T>,
    of_case: &Tuners,
    tuners: &[Arc<Tuner>],
    split: Split<'static>,
) -> Result<Option<f64>> {
    /// Number of products.
    const FEW_SPMVS: u64 = 10_000;
    let gpu = tuners[0].backend().gpu()?;
    let there = ellect::cuda::DeviceCsr::upload(gpu, csr)?;
    let start = Instant::now();
    let workload = Workload { spmvs: FEW_SPMVS, ..workload() };
    match of_case.prepare_sharded_on_gpu(gpu, &there, &workload, split) {
        Ok(_operator) => Ok(Some(start.elapsed().as_secs_f64())),
        Err(ellect::Error::Argument(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Never called: this build opens no GPU.
#[cfg(not(feature = "cuda"))]
fn from_gpu<T: Scalar>(
    _csr: &Csr<T>,
    _of_case: &Tuners,
    _tuners: &[Arc<Tuner>],
    _split: Split<'static>,
) -> Result<Option<f64>> {
    Ok(None)
}

/// Returns the line of a case, without what compares it with one GPU.
fn row<T: Scalar>(
    (name, nrows, nnz): (&str, usize, usize),
    case: &Case,
    product: Product,
    transport: &'static str,
) -> Row {
    Row {
        matrix: name.into(),
        nrows,
        nnz,
        precision: T::PRECISION,
        gpus: case.gpus,
        split: Division(case.split).to_string(),
        mode: case.mode.name(),
        transport,
        candidates: product.candidates,
        overlapped: product.overlapped,
        halo: product.halo,
        product_us: product.times.product_us,
        spread: product.times.spread,
        efficiency: 0.0,
        filled_us: product.times.filled_us,
        filled_efficiency: None,
        expected_efficiency: case.expected_efficiency,
        iteration_us: None,
        iteration_efficiency: None,
        one_sum_us: None,
        one_sum_efficiency: None,
        prepare_s: product.prepare_s,
        prepare_on_gpu_s: None,
    }
}

/// Compares a line with the times of a product and of an iteration on one GPU.
fn finished(
    row: Row,
    [alone_us, iteration_alone_us]: [f64; 2],
    iterations: Option<[f64; 2]>,
) -> Row {
    let [iteration_us, one_sum_us] = [0, 1].map(|k: usize| iterations.map(|both| both[k]));
    let gpus = row.gpus as f64;
    let efficiency = |alone_us: f64, us: f64| alone_us / (gpus * us);
    Row {
        efficiency: efficiency(alone_us, row.product_us),
        filled_efficiency: row.filled_us.map(|us| efficiency(alone_us, us)),
        iteration_us,
        iteration_efficiency: iteration_us.map(|us| efficiency(iteration_alone_us, us)),
        one_sum_us,
        one_sum_efficiency: one_sum_us.map(|us| efficiency(iteration_alone_us, us)),
        ..row
    }
}

fn show(bench: &Bench, row: &Row) -> Result<()> {
    match bench.json {
        true => print(&(serde_json::to_string(row)? + "\n")),
        false => print(&line(row)),
    }
}

/// Tells whether the error is that NCCL cannot work here.
fn is_missing(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(ellect::Error::Argument(_)))
}

/// Returns the share of the entries that are multiplied during the exchange.
fn overlapped<T: Scalar>(parts: &[Part<T>]) -> f64 {
    let apart = parts.iter().filter(|part| part.operators().len() > 1);
    let inner: usize = apart
        .flat_map(|part| part.operators().max_by_key(|(rows, _)| rows.len()))
        .map(|(_, operator)| operator.nnz())
        .sum();
    inner as f64 / parts.iter().map(|part| part.nnz()).sum::<usize>().max(1) as f64
}

fn line(row: &Row) -> String {
    let mut formats = row.candidates.clone();
    formats.dedup();
    let time = |us: Option<f64>| us.map_or("-".into(), |us| format!("{us:.1}"));
    let share = |share: Option<f64>| share.map_or("-".into(), |share| format!("{share:.3}"));
    let cells = [
        row.matrix.clone(),
        row.nrows.to_string(),
        row.nnz.to_string(),
        row.precision.to_string(),
        row.gpus.to_string(),
        row.split.clone(),
        row.mode.into(),
        row.transport.into(),
        formats.join(", "),
        row.halo.to_string(),
        time(Some(row.product_us)),
        share(Some(row.spread)),
        share(Some(row.efficiency)),
        time(row.filled_us),
        share(row.filled_efficiency),
        share(row.expected_efficiency),
        time(row.iteration_us),
        share(row.iteration_efficiency),
        time(row.one_sum_us),
        share(row.one_sum_efficiency),
        format!("{:.3}", row.prepare_s),
        row.prepare_on_gpu_s.map_or("-".into(), |s| format!("{s:.3}")),
    ];
    format!("| {} |\n", cells.join(" | "))
}

/// A way to divide, by its name on the command line.
#[derive(Clone, Copy, Debug)]
pub struct Division(Split<'static>);

/// The names of ways to divide.
const DIVISIONS: [(&str, Split<'static>); 4] = [
    ("equal-rows", Split::EqualRows),
    ("equal-nonzeros", Split::EqualNonzeros),
    ("equal-times", Split::EqualTimes),
    ("few-cuts", Split::FewCuts),
];

impl std::str::FromStr for Division {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = DIVISIONS.iter().find(|(name, _)| *name == text);
        found
            .map(|&(_, split)| Division(split))
            .ok_or_else(|| format!("it must be {}", DIVISIONS.map(|(name, _)| name).join(", ")))
    }
}

impl std::fmt::Display for Division {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let of =
            |split: &Split<'_>| std::mem::discriminant(split) == std::mem::discriminant(&self.0);
        let found = DIVISIONS.iter().find(|(_, split)| of(split));
        f.write_str(found.map_or("", |(name, _)| name))
    }
}
