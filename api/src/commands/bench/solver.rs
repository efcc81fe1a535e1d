//! `ellect bench --solver` times iterations of conjugate gradients on one GPU, with steps that are fused
//! and one operation after the other.
//!
//! Vectors and numbers stay on the GPU. Each operator is checked before it is timed, and samples of both
//! ways alternate.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use ellect::analysis::Analysis;
use ellect::choose::Workload;
use ellect::cuda::{DeviceCsr, Factor, Gpu, GpuOperator, Vector};
use ellect::device::Kind;
use ellect::dots::DotWith;
use ellect::format::{Candidate, candidates};
use ellect::operator::{permute, permute_back};
use ellect::{Csr, Error, Precision, Scalar, Tuner, check};
use serde::Serialize;

use super::sharded::{SAMPLE_S, SPMVS};
use super::{Answer, Bench};
use crate::output::print;

/// Samples of which the median counts.
const SAMPLES: usize = 7;

/// One candidate on one matrix; times are medians in microseconds.
#[derive(Debug, Serialize)]
struct Row {
    matrix: String,
    nrows: usize,
    nnz: usize,
    precision: Precision,
    device: String,
    candidate: String,
    /// Tells whether dot products are computed in the pass of the product.
    fuses_dots: bool,
    /// Time of a product.
    product_us: f64,
    /// Time of a product with the dot product (y, x): in one operation, and in two.
    product_dot_us: f64,
    product_then_dot_us: f64,
    /// Time of an iteration with fused steps, and with one operation after the other.
    fused_us: f64,
    unfused_us: f64,
    /// The second of these over the first.
    gain: f64,
    /// Largest spread of the samples of an iteration, as a share of their median.
    spread: f64,
}

/// Prints a line for each matrix, precision and candidate.
pub fn run(bench: &Bench, data: &Path) -> Result<Answer> {
    let index = bench.device.strip_prefix("cuda:").and_then(|index| index.parse().ok());
    let Some(index) = index else {
        bail!(
            "--solver got the device {}, and it times one GPU or several: name one with --device cuda:0, or \
             several with --devices",
            bench.device
        );
    };
    let gpu = Arc::new(Gpu::open(index)?);
    if !bench.json {
        print(
            "| matrix | rows | nonzeros | precision | candidate | one pass | product (us) | with dot (us) | \
             then dot (us) | fused iteration (us) | unfused (us) | gain | spread |\n\
             |---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
        )?;
    }
    bench.matrices(&mut |name, csr| {
        if csr.nrows() != csr.ncols() {
            bail!(
                "{name} has {} rows and {} columns; --solver takes square matrices",
                csr.nrows(),
                csr.ncols()
            );
        }
        for &precision in &bench.precision {
            match precision {
                Precision::F64 => rows(bench, data, &gpu, name, csr)?,
                Precision::F32 => rows(bench, data, &gpu, name, &csr.cast::<f32>())?,
            }
        }
        Ok(())
    })?;
    Ok(Answer::Yes)
}

/// Times the candidates that `--only` names, or the one that is chosen.
fn rows<T: Scalar>(
    bench: &Bench,
    data: &Path,
    gpu: &Arc<Gpu>,
    name: &str,
    csr: &Csr<T>,
) -> Result<()> {
    let workload = Workload { basis: bench.basis, spmvs: SPMVS, ..Workload::default() };
    if bench.only.is_empty() {
        let operator = Tuner::open_in(&bench.device, data)?.prepare(csr, &workload)?;
        let a = operator.on_device().context("the operator is not on the GPU")?;
        return row(bench, a, operator.candidate(), name, csr);
    }
    let target = workload.target(gpu.profile(), T::PRECISION);
    let analysis = Analysis::of(csr);
    let there = Arc::new(DeviceCsr::upload(gpu, csr)?);
    let chosen = candidates(Kind::Gpu).into_iter().filter(|one| one.is_among(&bench.only));
    for candidate in chosen {
        if candidate.work(&analysis, &target).is_err() {
            continue;
        }
        match GpuOperator::new(gpu, &there, csr.into(), &analysis, &candidate, &target) {
            Ok(a) => row(bench, &a, &candidate, name, csr)?,
            Err(Error::Refused { .. }) => {}
            Err(error) => return Err(error).context(candidate.to_string()),
        }
    }
    Ok(())
}

fn row<T: Scalar>(
    bench: &Bench,
    a: &GpuOperator<T>,
    candidate: &Candidate,
    name: &str,
    csr: &Csr<T>,
) -> Result<()> {
    check(a, candidate, csr).with_context(|| format!("{candidate} of {name}"))?;
    let mut of = Solver::new(a, &check::vector(csr.nrows(), 5))?;
    let [fused, unfused] = of.times(&[&Solver::fused, &Solver::unfused])?[..] else {
        bail!("two ways have two times");
    };
    let products: [Work<'_, '_, T>; 3] =
        [&Solver::product, &Solver::product_dot, &Solver::product_then_dot];
    let [product, product_dot, product_then_dot] = of.times(&products)?[..] else {
        bail!("three ways have three times");
    };
    let row = Row {
        matrix: name.into(),
        nrows: csr.nrows(),
        nnz: csr.nnz(),
        precision: T::PRECISION,
        device: a.gpu().profile().name.clone(),
        candidate: candidate.to_string(),
        fuses_dots: a.fuses_dots(),
        product_us: product.0,
        product_dot_us: product_dot.0,
        product_then_dot_us: product_then_dot.0,
        fused_us: fused.0,
        unfused_us: unfused.0,
        gain: unfused.0 / fused.0,
        spread: fused.1.max(unfused.1),
    };
    match bench.json {
        true => print(&(serde_json::to_string(&row)? + "\n")),
        false => print(&line(&row)),
    }
}

fn line(row: &Row) -> String {
    format!(
        "| {} | {} | {} | {} | {} | {} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {:.3} | {:.3} |\n",
        row.matrix,
        row.nrows,
        row.nnz,
        row.precision,
        row.candidate,
        if row.fuses_dots { "yes" } else { "no" },
        row.product_us,
        row.product_dot_us,
        row.product_then_dot_us,
        row.fused_us,
        row.unfused_us,
        row.gain,
        row.spread
    )
}

/// Compares a product and its dot products with those of the CSR arrays.
fn check<T: Scalar>(a: &GpuOperator<T>, candidate: &Candidate, csr: &Csr<T>) -> Result<()> {
    let n = csr.nrows();
    let x = check::vector::<T>(n, 3);
    let own = |v: &[T]| a.order().map_or_else(|| v.to_vec(), |order| permute(v, order));
    let on_gpu = a.gpu().vector(&own(&x))?;
    let (mut y, mut dots) = (a.gpu().zeros(n)?, a.gpu().zeros(2)?);
    a.apply_dot(T::ONE, &on_gpu, T::ZERO, &mut y, &[DotWith::X, DotWith::Y], &mut dots)?;
    let (mut got, mut got_dots) = (vec![T::ZERO; n], [T::ZERO; 2]);
    y.read(&mut got)?;
    dots.read(&mut got_dots)?;
    let got = a.order().map_or_else(|| got.clone(), |order| permute_back(&got, order));
    let exact = check::reference(csr, T::ONE, &x, T::ZERO, &vec![T::ZERO; n]);
    check::compare(&candidate.to_string(), &exact, &got)?;
    let of_x = x.iter().zip(&got).map(|(x, y)| x.to_f64() * y.to_f64());
    let of_y = got.iter().map(|y| y.to_f64() * y.to_f64());
    for (got, terms) in got_dots.iter().zip([of_x.collect::<Vec<f64>>(), of_y.collect()]) {
        let wanted: f64 = terms.iter().sum();
        // One rounding to the precision, and sums in f64 in another order.
        let bound =
            T::EPSILON * wanted.abs() + 1e-10 * terms.iter().map(|term| term.abs()).sum::<f64>();
        if (got.to_f64() - wanted).abs() > bound {
            bail!("a dot product is {got}, and the host computes {wanted}");
        }
    }
    Ok(())
}

/// One way to do a step of a solver.
type Work<'w, 'a, T> = &'w dyn Fn(&mut Solver<'a, T>) -> Result<()>;

/// Vectors and numbers of conjugate gradients on a GPU.
struct Solver<'a, T: Scalar> {
    a: &'a GpuOperator<T>,
    x: Vector<T>,
    r: Vector<T>,
    p: Vector<T>,
    q: Vector<T>,
    /// (r, r) before and after an iteration, and (p, A p).
    rr: Vector<T>,
    next: Vector<T>,
    pq: Vector<T>,
}

impl<'a, T: Scalar> Solver<'a, T> {
    fn new(a: &'a GpuOperator<T>, b: &[T]) -> Result<Self> {
        let gpu = a.gpu();
        let zeros = |n: usize| gpu.zeros::<T>(n);
        let [x, q] = [zeros(b.len())?, zeros(b.len())?];
        let [mut rr, next, pq] = [zeros(1)?, zeros(1)?, zeros(1)?];
        let [r, p] = [gpu.vector(b)?, gpu.vector(b)?];
        gpu.dot(&r, &r, &mut rr)?;
        Ok(Solver { a, x, r, p, q, rr, next, pq })
    }

    /// Does an iteration in steps that read each vector once.
    fn fused(&mut self) -> Result<()> {
        let Solver { a, x, r, p, q, rr, next, pq } = self;
        let (gpu, one) = (a.gpu(), T::ONE);
        a.apply_dot(one, &*p, T::ZERO, &mut *q, &[DotWith::X], &mut *pq)?;
        let step = Factor::quotient(T::from_f64(-1.0), &*rr, &*pq)?;
        gpu.axpby_dot(step, &*q, one, &mut *r, &mut *next)?;
        let (step, turn) =
            (Factor::quotient(one, &*rr, &*pq)?, Factor::quotient(one, &*next, &*rr)?);
        gpu.advance(step, &mut *p, &mut *x, turn, &*r)?;
        std::mem::swap(rr, next);
        Ok(())
    }

    /// Does an iteration one operation after the other.
    fn unfused(&mut self) -> Result<()> {
        let Solver { a, x, r, p, q, rr, next, pq } = self;
        let (gpu, one) = (a.gpu(), T::ONE);
        a.apply(one, &*p, T::ZERO, &mut *q)?;
        gpu.dot(&*p, &*q, &mut *pq)?;
        gpu.axpby(Factor::quotient(one, &*rr, &*pq)?, &*p, one, &mut *x)?;
        gpu.axpby(Factor::quotient(T::from_f64(-1.0), &*rr, &*pq)?, &*q, one, &mut *r)?;
        gpu.dot(&*r, &*r, &mut *next)?;
        gpu.axpby(one, &*r, Factor::quotient(one, &*next, &*rr)?, &mut *p)?;
        std::mem::swap(rr, next);
        Ok(())
    }

    fn product(&mut self) -> Result<()> {
        Ok(self.a.apply(T::ONE, &self.p, T::ZERO, &mut self.q)?)
    }

    fn product_dot(&mut self) -> Result<()> {
        let with = [DotWith::X];
        Ok(self.a.apply_dot(T::ONE, &self.p, T::ZERO, &mut self.q, &with, &mut self.pq)?)
    }

    fn product_then_dot(&mut self) -> Result<()> {
        self.product()?;
        Ok(self.a.gpu().dot(&self.p, &self.q, &mut self.pq)?)
    }

    /// Times all ways, a sample of each in turn; returns the median in microseconds and the relative
    /// spread of each. Times do not depend on the values, so any square matrix will do.
    fn times(&mut self, ways: &[Work<'_, 'a, T>]) -> Result<Vec<(f64, f64)>> {
        let mut sample = |way: Work<'_, 'a, T>, count: u32| -> Result<f64> {
            self.a.gpu().synchronize()?;
            let start = Instant::now();
            for _ in 0..count {
                way(self)?;
            }
            self.a.gpu().synchronize()?;
            Ok(start.elapsed().as_secs_f64() / f64::from(count))
        };
        let mut counts = Vec::new();
        for way in ways {
            sample(*way, 5)?;
            counts.push((SAMPLE_S / sample(*way, 10)?).clamp(10.0, 5_000.0) as u32);
        }
        let mut samples = vec![Vec::new(); ways.len()];
        for _ in 0..SAMPLES {
            for ((way, count), samples) in ways.iter().zip(&counts).zip(&mut samples) {
                samples.push(sample(*way, *count)?);
            }
        }
        Ok(samples
            .into_iter()
            .map(|mut own| {
                own.sort_by(f64::total_cmp);
                let median = own[SAMPLES / 2];
                (1e6 * median, (own[SAMPLES - 2] - own[1]) / median)
            })
            .collect())
    }
}
