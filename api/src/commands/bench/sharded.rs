//! `ellect bench --devices` compares products of matrices divided among GPUs with those on one GPU.
//!
//! Vectors stay on the GPUs; each product is a CUDA graph of the exchange of halos and the product of
//! the part, once after each other and once at the same time where that is possible. Halos move by stores
//! into the other GPUs' memory (`peer`), and where NCCL is installed, once more by that. Products follow
//! each other as in a solver, and each case is checked.

mod nccl;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, bail};
use ellect::choose::Workload;
use ellect::sharded::{GpuFactor, Mode, Part, ShardedOperator, Split, Tuners};
use ellect::{Csr, Precision, Scalar, Tuner, check};
use serde::Serialize;

use super::{Answer, Bench};
use crate::output::print;

/// Products that the choice expects.
pub const SPMVS: u64 = 1_000_000;

/// Samples of which the median counts.
const SAMPLES: usize = 9;

/// Iterations of a solver in a sample.
const ITERATIONS: u32 = 200;

/// Least time of a sample in seconds.
pub const SAMPLE_S: f64 = 0.02;

/// One matrix on some GPUs.
#[derive(Debug, Serialize)]
struct Row {
    matrix: String,
    nrows: usize,
    nnz: usize,
    precision: Precision,
    gpus: usize,
    split: String,
    /// `vector` or `overlap`.
    mode: String,
    /// `peer` or `nccl`; `none` on one GPU.
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
    /// Time of an iteration of conjugate gradients, with `--solver`, and its efficiency.
    iteration_us: Option<f64>,
    iteration_efficiency: Option<f64>,
    /// Time of dividing, choosing and converting.
    prepare_s: f64,
}

/// Prints a line for each matrix and number of GPUs.
pub fn run(bench: &Bench, data: &Path) -> Result<Answer> {
    let open = |name: &String| Tuner::open_in(name, data).map(Arc::new);
    let tuners: Vec<Arc<Tuner>> = bench.devices.iter().map(open).collect::<Result<_, _>>()?;
    if tuners.len() < 2 {
        bail!("--devices takes two or more GPUs of this machine, for instance cuda:0,cuda:1");
    }
    if !bench.json {
        print(
            "| matrix | rows | nonzeros | precision | GPUs | mode | transport | formats | halo | \
             product (us) | spread | efficiency | iteration (us) | efficiency | preparing (s) |\n\
             |---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
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

/// A product on some GPUs.
struct Product {
    product_us: f64,
    spread: f64,
    prepare_s: f64,
    overlapped: f64,
    halo: usize,
    candidates: Vec<String>,
}

fn workload() -> Workload {
    Workload { spmvs: SPMVS, ..Workload::default() }
}

fn rows<T: Scalar>(bench: &Bench, name: &str, csr: &Csr<T>, tuners: &[Arc<Tuner>]) -> Result<()> {
    let numbers = [1, 2, 4, 8, 16].into_iter().filter(|&gpus| gpus <= tuners.len());
    let cases = numbers.flat_map(|gpus| match gpus {
        1 => vec![(1, Mode::Vector)],
        _ => vec![(gpus, Mode::Vector), (gpus, Mode::Auto)],
    });
    let (mut alone_us, mut alone_iteration_us) = (None, None);
    for (gpus, mode) in cases {
        let start = Instant::now();
        let of_case = Tuners::of(tuners[..gpus].to_vec())?.with_mode(mode);
        let a = of_case.prepare_sharded(csr, &workload(), bench.split.0)?;
        let prepare_s = start.elapsed().as_secs_f64();
        let overlapped = overlapped(a.parts());
        if mode == Mode::Auto && overlapped == 0.0 {
            continue;
        }
        let (product_us, spread) = timed(&a, csr, name)?;
        let alone_us = *alone_us.get_or_insert(product_us);
        let iteration_us = match bench.solver && csr.nrows() == csr.ncols() {
            true => Some(iteration(&a)?),
            false => None,
        };
        let alone_iteration_us =
            iteration_us.map(|us| *alone_iteration_us.get_or_insert(us)).unwrap_or_default();
        let product = Product {
            product_us,
            spread,
            prepare_s,
            overlapped,
            halo: a.parts().iter().map(|part| part.halo()).max().unwrap_or(0),
            candidates: a.parts().iter().map(|part| part.candidate().to_string()).collect(),
        };
        drop(a);
        let print_row = |product: Product, transport, iteration_us: Option<f64>| {
            let efficiency = |alone_us: f64, us: f64| alone_us / (gpus as f64 * us);
            let row = Row {
                matrix: name.into(),
                nrows: csr.nrows(),
                nnz: csr.nnz(),
                precision: T::PRECISION,
                gpus,
                split: bench.split.to_string(),
                mode: if product.overlapped == 0.0 { "vector" } else { "overlap" }.into(),
                transport,
                candidates: product.candidates,
                overlapped: product.overlapped,
                halo: product.halo,
                product_us: product.product_us,
                spread: product.spread,
                efficiency: efficiency(alone_us, product.product_us),
                iteration_us,
                iteration_efficiency: iteration_us.map(|us| efficiency(alone_iteration_us, us)),
                prepare_s: product.prepare_s,
            };
            match bench.json {
                true => print(&(serde_json::to_string(&row)? + "\n")),
                false => print(&line(&row)),
            }
        };
        if gpus == 1 {
            print_row(product, "none", iteration_us)?;
            continue;
        }
        print_row(product, "peer", iteration_us)?;
        match nccl::timed(csr, &tuners[..gpus], (mode, bench.split.0), name) {
            Ok(product) => print_row(product, "nccl", None)?,
            Err(error) if is_missing(&error) => eprintln!("not timed with NCCL: {error}"),
            Err(error) => return Err(error),
        }
    }
    Ok(())
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
    format!(
        "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {:.1} | {:.3} | {:.3} | {} | {} | {:.2} |\n",
        row.matrix,
        row.nrows,
        row.nnz,
        row.precision,
        row.gpus,
        row.mode,
        row.transport,
        formats.join(", "),
        row.halo,
        row.product_us,
        row.spread,
        row.efficiency,
        row.iteration_us.map_or("-".into(), |us| format!("{us:.1}")),
        row.iteration_efficiency.map_or("-".into(), |efficiency| format!("{efficiency:.3}")),
        row.prepare_s
    )
}

/// Checks one product, then times many; returns microseconds and the relative spread.
fn timed<T: Scalar>(a: &ShardedOperator<T>, csr: &Csr<T>, name: &str) -> Result<(f64, f64)> {
    let on_gpus = a.on_gpus()?;
    let x = check::vector::<T>(csr.ncols(), 3);
    let product = on_gpus.capture(T::ONE, on_gpus.scatter_x(&x)?, T::ZERO, on_gpus.zeros_y()?)?;
    let sample = |products: u32| -> Result<f64> {
        let start = Instant::now();
        for _ in 0..products {
            product.launch()?;
        }
        on_gpus.synchronize()?;
        Ok(start.elapsed().as_secs_f64() / f64::from(products))
    };
    sample(20)?;
    let one_s = sample(20)?;
    let products = (SAMPLE_S / one_s).clamp(20.0, 20_000.0) as u32;
    let mut samples = Vec::with_capacity(SAMPLES);
    for _ in 0..SAMPLES {
        samples.push(sample(products)?);
    }
    let (product_us, spread) = median(samples);

    // The last of these products has used the exchange as often as the others.
    let mut got = vec![T::ZERO; csr.nrows()];
    on_gpus.gather_y(&product.into_y()?, &mut got)?;
    let exact = check::reference(csr, T::ONE, &x, T::ZERO, &vec![T::ZERO; csr.nrows()]);
    check::compare(&format!("the divided product of {name}"), &exact, &got)?;
    Ok((product_us, spread))
}

/// Returns the median in microseconds of samples in seconds, and their relative spread without the
/// longest and the shortest.
fn median(mut samples: Vec<f64>) -> (f64, f64) {
    samples.sort_by(f64::total_cmp);
    let median = samples[samples.len() / 2];
    (1e6 * median, (samples[samples.len() - 2] - samples[1]) / median)
}

/// Times iterations of conjugate gradients whose vectors and numbers stay on the GPUs; returns the
/// median in microseconds. Times do not depend on the values, so any square matrix will do.
fn iteration<T: Scalar>(a: &ShardedOperator<T>) -> Result<f64> {
    let gpus = a.on_gpus()?;
    let b = gpus.scatter_x(&check::vector::<T>(a.ncols(), 5))?;
    let (mut x, mut r, mut p, mut q) =
        (gpus.zeros_x()?, gpus.zeros_x()?, gpus.zeros_x()?, gpus.zeros_x()?);
    gpus.axpby(T::ONE, &b, T::ZERO, &mut r)?;
    gpus.axpby(T::ONE, &b, T::ZERO, &mut p)?;
    let (mut rr, mut next, mut pq) = (gpus.number()?, gpus.number()?, gpus.number()?);
    gpus.dot_into(&r, &r, &mut rr)?;
    let (one, minus_one) = (T::ONE, T::from_f64(-1.0));
    let mut sample = || -> Result<f64> {
        gpus.synchronize()?;
        let start = Instant::now();
        for _ in 0..ITERATIONS {
            gpus.apply(one, &p, T::ZERO, &mut q)?;
            gpus.dot_into(&p, &q, &mut pq)?;
            gpus.axpby(GpuFactor::quotient(one, &rr, &pq), &p, one, &mut x)?;
            gpus.axpby(GpuFactor::quotient(minus_one, &rr, &pq), &q, one, &mut r)?;
            gpus.dot_into(&r, &r, &mut next)?;
            gpus.axpby(one, &r, GpuFactor::quotient(one, &next, &rr), &mut p)?;
            std::mem::swap(&mut rr, &mut next);
        }
        gpus.synchronize()?;
        Ok(start.elapsed().as_secs_f64() / f64::from(ITERATIONS))
    };
    sample()?;
    let mut samples = (0..5).map(|_| sample()).collect::<Result<Vec<f64>>>()?;
    samples.sort_by(f64::total_cmp);
    Ok(1e6 * samples[2])
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
