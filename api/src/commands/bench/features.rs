//! `ellect bench --features` times the computation of features and compares it with a CSR product.
//!
//! On a GPU, the features are timed from a graph, as products are, and also until the host has
//! them; so are the sampled features, the predictions of each stage of the quick model, and whole
//! preparations of operators.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use ellect::analysis::Analysis;
use ellect::choose::Workload;
use ellect::features::Features;
use ellect::format::{BASELINES, Candidate};
use ellect::measure::{Backend, Outcome, Samples};
use ellect::model::Predictor;
use ellect::unstable::model::Stage;
use ellect::{Csr, Precision, Scalar, Tuner};

use super::{Answer, Bench, protocol};
use crate::output::print;

/// Number of timed feature computations per matrix; the table shows their median.
const TIMES: usize = 20;

/// Numbers of products for which operators are prepared.
const SPMVS: [u64; 3] = [1, 100, 1000];

/// Number of times that the GPU's share of the work is timed.
const GPU_TIMES: usize = 5;

const HEAD: &str = "| matrix | precision | nonzeros | features (us) | known on host (us) | product \
                    (us) | features / product | sampled (us) | chosen from size, sample, counts (us) | \
                    prepared for 1, 100, 1,000 products (us) |\n\
                    |---|---|---|---|---|---|---|---|---|---|\n";

/// Prints the table; answers no if the features differ from the host's.
pub fn run(bench: &Bench, data: &Path) -> Result<Answer> {
    let backend = Arc::new(Backend::open(&bench.device, data)?);
    backend.check()?;
    let mut answer = Answer::Yes;
    print(HEAD)?;
    bench.matrices(&mut |name, csr| {
        let on_host = Features::of(&Analysis::sampled(csr));
        for precision in &bench.precision {
            let (features, row) = match precision {
                Precision::F32 => row(&backend, data, name, &csr.cast::<f32>())?,
                Precision::F64 => row(&backend, data, name, csr)?,
            };
            print(&row)?;
            let values = features.iter().zip(on_host.iter());
            for ((feature, value), (_, on_host)) in values.filter(|((_, a), (_, b))| a != b) {
                print(&format!("{}: {value}, on the host {on_host}\n", feature.name))?;
                answer = Answer::No;
            }
        }
        Ok(())
    })?;
    Ok(answer)
}

/// Returns the features of a matrix and its row of the table.
fn row<T: Scalar>(
    backend: &Arc<Backend>,
    data: &Path,
    name: &str,
    csr: &Csr<T>,
) -> Result<(Features, String)> {
    let (features, known) = backend.features(csr, TIMES)?;
    let sampled = backend.sampled_features(csr, TIMES)?;
    let sampled_us = match &sampled {
        Some((_, took)) => format!("{:.1}", took.median_s * 1e6),
        None => "-".into(),
    };
    let of_sample = sampled.map(|(features, _)| features);
    let size = Features::at_size([csr.nrows(), csr.ncols(), csr.nnz()]);
    let known_features = [Some(size), of_sample, Some(features.clone())];
    let chosen_us = chosen_us(backend, data, T::PRECISION, &known_features)?;
    let prepared_us = prepared_us(backend, data, csr)?;
    let took = backend.features_on_gpu(csr, &protocol(), GPU_TIMES)?;
    let took_s = took.map_or(known.median_s, |took| took.median_s);
    let product_s = product_s(backend, csr)?;
    let row = format!(
        "| {name} | {} | {} | {:.1} | {:.1} | {:.1} | {:.2} | {sampled_us} | {chosen_us} | \
         {prepared_us} |\n",
        T::PRECISION,
        csr.nnz(),
        took_s * 1e6,
        known.median_s * 1e6,
        product_s * 1e6,
        took_s / product_s
    );
    Ok((features, row))
}

/// Returns the microseconds in which the stages of the quick model predict from these features, with
/// `-` for a stage without features or model.
fn chosen_us(
    backend: &Backend,
    data: &Path,
    precision: Precision,
    known: &[Option<Features>; 3],
) -> Result<String> {
    let predictor = Predictor::open(data, backend.device(), precision)?;
    let one = |(stage, features): (Stage, &Option<Features>)| {
        let (Some(predictor), Some(features)) = (&predictor, features) else { return "-".into() };
        let mut raw_s: Vec<f64> = Vec::new();
        for _ in 0..=TIMES {
            let start = Instant::now();
            let values = predictor.model().features_of(features);
            let costs = predictor.quick_costs(stage, &values, 1e-5);
            raw_s.push(start.elapsed().as_secs_f64());
            if costs.is_empty() {
                return "-".into();
            }
        }
        // The first call prepares the trees.
        raw_s.remove(0);
        format!("{:.1}", Samples::new(raw_s).median_s * 1e6)
    };
    Ok(Stage::ALL.into_iter().zip(known).map(one).collect::<Vec<_>>().join(", "))
}

/// Returns the median microseconds of [`Tuner::time_prepare`] for each of [`SPMVS`] products.
fn prepared_us<T: Scalar>(backend: &Arc<Backend>, data: &Path, csr: &Csr<T>) -> Result<String> {
    let tuner = Tuner::without_models(Arc::clone(backend)).with_data(data);
    let one = |spmvs| -> Result<String> {
        let workload = Workload { spmvs, ..Workload::default() };
        let took = tuner.time_prepare(csr, &workload, TIMES)?;
        Ok(format!("{:.1}", took.median_s * 1e6))
    };
    Ok(SPMVS.into_iter().map(one).collect::<Result<Vec<_>>>()?.join(", "))
}

/// Returns the median time in seconds of a product by the first of [`BASELINES`] that can be timed.
fn product_s<T: Scalar>(backend: &Backend, csr: &Csr<T>) -> Result<f64> {
    let target = Workload::default().target(backend.device(), T::PRECISION);
    let analysis = Analysis::sampled(csr);
    for name in BASELINES {
        let candidate: Candidate = name.parse()?;
        let target = candidate.target(&target);
        let measured = backend.measure(csr, &analysis, &candidate, &target, &protocol(), None)?;
        if let Outcome::Timed(timing) = measured.outcome {
            return Ok(timing.spmv.median_s);
        }
    }
    None.context("CSR was not timed")
}
