//! `GET /structures` and `GET /structures/{fingerprint}`: the matrices that were measured, what was
//! fastest on each, and how often each format was.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::{Extension, Json};
use clap::Parser;
use clap::builder::RangedU64ValueParser;
use ellect::format::Candidate;
use ellect::measure::Measurement;
use ellect::unstable::wisdom::{Record, StructureRecord};
use ellect::{Fingerprint, Precision, Wisdom};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::Service;
use super::failure::{ARGUMENT, Failure, MATRIX};
use super::places::Client;
use super::schemas;
use crate::query::parsed;

/// Maximum number of structures in a list.
const MOST_LISTED: u64 = 1000;

/// The parameters of `GET /structures`.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
pub struct Listing {
    /// Measurements to count: own for those of this service, shipped, or all; the first request for
    /// those that ship takes some seconds
    #[arg(long, default_value = "own", value_name = "ORIGIN", value_parser = ["own", "shipped", "all"])]
    origin: String,
    /// Only matrices whose name, family or fingerprint contains this text [default: all]
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
    /// Maximum number of structures to list, at most 1000
    #[arg(long, default_value_t = 50, value_name = "N",
          value_parser = RangedU64ValueParser::<usize>::new().range(1..=MOST_LISTED))]
    limit: usize,
    /// Number of structures to pass over: the value of next in the list before
    #[arg(long, default_value_t = 0, value_name = "N")]
    from: usize,
}

/// The circumstances that timings share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
struct Where {
    /// Name of the device.
    device: String,
    #[schema(value_type = schemas::Precision)]
    precision: Precision,
    /// Number of threads that took part.
    threads: u32,
}

/// The fastest candidate of a matrix under some circumstances.
#[derive(Clone, Debug, PartialEq)]
struct Best {
    candidate: String,
    spmv_us: f64,
    /// Time of a product with the baseline; `None` if it was not timed.
    baseline_us: Option<f64>,
    /// Number of candidates that were timed.
    timed: u64,
}

impl Best {
    /// Takes over another set of timings of the same matrix under the same circumstances.
    fn join(&mut self, other: Best) {
        let least = [self.baseline_us, other.baseline_us].into_iter().flatten();
        self.baseline_us = least.min_by(f64::total_cmp);
        self.timed += other.timed;
        if other.spmv_us < self.spmv_us {
            (self.candidate, self.spmv_us) = (other.candidate, other.spmv_us);
        }
    }

    /// Returns the name of the format.
    fn format(&self) -> &str {
        self.candidate.split(':').next().unwrap_or_default()
    }

    /// Returns the time of the baseline over that of the candidate.
    fn speedup(&self) -> Option<f64> {
        self.baseline_us.filter(|_| self.spmv_us > 0.0).map(|base| base / self.spmv_us)
    }
}

/// Measured matrices, by name.
#[derive(Serialize, ToSchema)]
pub struct Structures {
    structures: Vec<Listed>,
    /// Number of all matrices that were asked for.
    total: usize,
    /// Value of from= that goes on with the list; null at its end.
    #[schema(required)]
    next: Option<usize>,
    /// Numbers of matrices by the fastest format.
    wins: Vec<Wins>,
}

/// A measured matrix with what was fastest on it.
#[derive(Serialize, ToSchema)]
#[schema(as = ListedStructure)]
struct Listed {
    #[schema(value_type = String)]
    fingerprint: Fingerprint,
    /// File or generator; empty if it is unknown.
    source: String,
    /// Name that similar matrices share; empty if it is unknown.
    family: String,
    nrows: u64,
    ncols: u64,
    nnz: u64,
    best: Vec<Fastest>,
}

/// The fastest candidate under some circumstances.
#[derive(Serialize, ToSchema)]
struct Fastest {
    #[serde(flatten)]
    at: Where,
    candidate: String,
    format: String,
    /// Microseconds of a product.
    spmv_us: f64,
    /// Time of the baseline over that of the candidate; null if the baseline was not timed.
    #[schema(required)]
    speedup: Option<f64>,
    /// Number of candidates that were timed.
    timed: u64,
}

/// Numbers of matrices by the fastest format under some circumstances, the largest first.
#[derive(Serialize, ToSchema)]
struct Wins {
    #[serde(flatten)]
    at: Where,
    /// Number of all matrices.
    structures: usize,
    formats: Vec<FormatWins>,
}

/// The number of matrices on which a format was fastest.
#[derive(Serialize, ToSchema)]
struct FormatWins {
    format: String,
    wins: usize,
    /// Geometric mean of the speedups over the baseline; null if it was never timed.
    #[schema(required)]
    speedup: Option<f64>,
}

/// A measured matrix, in short.
#[derive(Clone, Debug)]
struct Measured {
    structure: StructureRecord,
    best: BTreeMap<Where, Best>,
}

/// Measured matrices by fingerprint.
type Measurements = BTreeMap<Fingerprint, Arc<Measured>>;

/// Summaries of the stored measurements, each made when it is first asked for.
#[derive(Default)]
pub struct Summaries {
    shipped: OnceLock<Measurements>,
    /// Summary of the service's own measurements, and the revision that it is of.
    own: Mutex<Option<(u64, Arc<Measurements>)>>,
}

impl Summaries {
    /// Returns the matrices whose measurements ship; the first call reads all of them.
    fn shipped(&self, wisdom: &Wisdom) -> &Measurements {
        self.shipped.get_or_init(|| {
            let mut structures = BTreeMap::new();
            let mut timings = BTreeMap::new();
            wisdom.each_shipped(|record| match record {
                Record::Structure(structure) => {
                    structures.insert(structure.fingerprint, structure);
                }
                Record::Measurement(measured) => add(&mut timings, &measured),
            });
            joined(structures, timings)
        })
    }

    /// Returns the matrices that this service measured.
    fn own(&self, wisdom: &Wisdom) -> ellect::Result<Arc<Measurements>> {
        let mut kept = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        let revision = wisdom.revision();
        if let Some((_, all)) = kept.as_ref().filter(|(of, _)| *of == revision) {
            return Ok(Arc::clone(all));
        }
        let mut structures = BTreeMap::new();
        wisdom.each_structure(|structure| {
            structures.insert(structure.fingerprint, structure);
        })?;
        let mut timings = BTreeMap::new();
        for fingerprint in structures.keys() {
            let all = wisdom.measurements(*fingerprint)?;
            all.iter().for_each(|measured| add(&mut timings, measured));
        }
        let all = Arc::new(joined(structures, timings));
        *kept = Some((revision, Arc::clone(&all)));
        Ok(all)
    }
}

/// The best timings of each matrix, by circumstances.
type Timings = BTreeMap<Fingerprint, BTreeMap<Where, Best>>;

fn add(timings: &mut Timings, measured: &Measurement) {
    let of_one = Some(measured).filter(|measured| measured.is_of_one_vector());
    let Some(cost) = of_one.and_then(Measurement::cost) else { return };
    let own = Where {
        device: measured.device.clone(),
        precision: measured.precision,
        threads: measured.threads,
    };
    let spmv_us = cost.spmv_s * 1e6;
    let is_baseline = measured.candidate.parse().is_ok_and(|one: Candidate| one.is_baseline());
    let one = Best {
        candidate: measured.candidate.clone(),
        spmv_us,
        baseline_us: is_baseline.then_some(spmv_us),
        timed: 1,
    };
    let best = timings.entry(measured.fingerprint).or_default();
    match best.get_mut(&own) {
        Some(best) => best.join(one),
        None => drop(best.insert(own, one)),
    }
}

fn joined(
    structures: BTreeMap<Fingerprint, StructureRecord>,
    mut timings: Timings,
) -> Measurements {
    let of = |(fingerprint, mut structure): (Fingerprint, StructureRecord)| {
        // No list shows them, and they take most of the memory.
        structure.features.clear();
        let best = timings.remove(&fingerprint).unwrap_or_default();
        (fingerprint, Arc::new(Measured { structure, best }))
    };
    structures.into_iter().map(of).collect()
}

/// Returns the matrices of this origin.
fn of_origin(service: &Service, origin: &str) -> Result<Measurements, Failure> {
    let Some(wisdom) = &service.config.wisdom else { return Ok(BTreeMap::new()) };
    let mut all = match origin {
        "own" => BTreeMap::new(),
        _ => service.summaries.shipped(wisdom).clone(),
    };
    if origin == "shipped" {
        return Ok(all);
    }
    for (fingerprint, own) in service.summaries.own(wisdom)?.iter() {
        let mut both = own.as_ref().clone();
        for (at, known) in all.get(fingerprint).iter().flat_map(|known| &known.best) {
            match both.best.get_mut(at) {
                Some(own) => own.join(known.clone()),
                None => drop(both.best.insert(at.clone(), known.clone())),
            }
        }
        all.insert(*fingerprint, Arc::new(both));
    }
    Ok(all)
}

/// Lists the measured matrices with what was fastest on each, by name, and the number of matrices on
/// which each format was.
///
/// # Errors
/// 400 for a wrong parameter, 503 if too many requests wait.
pub async fn listed(
    State(service): State<Arc<Service>>,
    Extension(client): Extension<Client>,
    pairs: Result<Query<Vec<(String, String)>>, QueryRejection>,
) -> Result<Json<Structures>, Failure> {
    let Query(pairs) = pairs.map_err(|error| Failure::new(&ARGUMENT, error.body_text()))?;
    let listing: Listing = parsed(&pairs)?;
    let admitted = service.places.admit()?;
    let turn = service.places.turn(&client).await?;
    let looking = tokio::task::spawn_blocking(move || {
        let _held = (admitted, turn);
        let all = of_origin(&service, &listing.origin)?;
        Ok::<_, Failure>(list(all, &listing))
    });
    looking.await.map_err(Failure::internal)?.map(Json)
}

fn list(all: Measurements, listing: &Listing) -> Structures {
    let text = listing.text.as_ref().map(|text| text.to_lowercase()).unwrap_or_default();
    let is_meant = |one: &Measured| {
        let StructureRecord { source, names, family, fingerprint, .. } = &one.structure;
        let known = [source, family].into_iter().chain(names);
        text.is_empty()
            || known.into_iter().any(|name| name.to_lowercase().contains(&text))
            || fingerprint.to_string().contains(&text)
    };
    let mut found: Vec<Arc<Measured>> = all.into_values().filter(|one| is_meant(one)).collect();
    found.sort_by(|a, b| a.structure.source.cmp(&b.structure.source));
    let end = listing.from.saturating_add(listing.limit);
    let page = found.iter().skip(listing.from).take(listing.limit).map(|one| shown(one));
    Structures {
        structures: page.collect(),
        total: found.len(),
        next: (end < found.len()).then_some(end),
        wins: wins(&found),
    }
}

/// Describes a matrix and its fastest candidates.
fn shown(measured: &Measured) -> Listed {
    let best = measured.best.iter().map(|(at, best)| Fastest {
        at: at.clone(),
        candidate: best.candidate.clone(),
        format: best.format().to_string(),
        spmv_us: best.spmv_us,
        speedup: best.speedup(),
        timed: best.timed,
    });
    let structure = &measured.structure;
    Listed {
        fingerprint: structure.fingerprint,
        source: structure.source.clone(),
        family: structure.family.clone(),
        nrows: structure.nrows,
        ncols: structure.ncols,
        nnz: structure.nnz,
        best: best.collect(),
    }
}

/// Counts the matrices on which each format was fastest, by circumstances.
fn wins(found: &[Arc<Measured>]) -> Vec<Wins> {
    let mut formats: BTreeMap<&Where, BTreeMap<&str, Vec<Option<f64>>>> = BTreeMap::new();
    for (at, best) in found.iter().flat_map(|measured| &measured.best) {
        let of_format = formats.entry(at).or_default().entry(best.format()).or_default();
        of_format.push(best.speedup());
    }
    let of = |(at, formats): (&Where, BTreeMap<&str, Vec<Option<f64>>>)| {
        let structures = formats.values().map(Vec::len).sum::<usize>();
        let mut rows: Vec<(&str, Vec<Option<f64>>)> = formats.into_iter().collect();
        rows.sort_by_key(|(_, speedups)| std::cmp::Reverse(speedups.len()));
        let formats = rows.into_iter().map(|(format, speedups)| FormatWins {
            format: format.to_string(),
            wins: speedups.len(),
            speedup: mean(&speedups),
        });
        Wins { at: at.clone(), structures, formats: formats.collect() }
    };
    formats.into_iter().map(of).collect()
}

/// Returns the geometric mean of the ratios that are known; `None` if none is.
fn mean(ratios: &[Option<f64>]) -> Option<f64> {
    let known: Vec<f64> = ratios.iter().flatten().map(|ratio| ratio.ln()).collect();
    (!known.is_empty()).then(|| (known.iter().sum::<f64>() / known.len() as f64).exp())
}

/// Shows the features and the measurements of a matrix, and where its entries are if this service
/// measured it or it was posted lately.
///
/// # Errors
/// 400 for a wrong fingerprint, 404 if it was neither measured nor posted lately.
pub async fn structure(
    State(service): State<Arc<Service>>,
    fingerprint: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, Failure> {
    let Path(fingerprint) =
        fingerprint.map_err(|error| Failure::new(&ARGUMENT, error.body_text()))?;
    let fingerprint: Fingerprint = fingerprint.parse()?;
    let looking = tokio::task::spawn_blocking(move || found(&service, fingerprint));
    looking.await.map_err(Failure::internal)??.map(Json).ok_or_else(|| {
        let stated = format!(
            "no matrix with the fingerprint {fingerprint} was measured, or posted lately; POST \
             /recommend takes one, and with effort=measure measures it"
        );
        Failure::new(&MATRIX, stated)
    })
}

fn found(service: &Service, fingerprint: Fingerprint) -> Result<Option<Value>, Failure> {
    let wisdom = service.config.wisdom.as_ref();
    let record = wisdom.map(|wisdom| wisdom.structure(fingerprint)).transpose()?.flatten();
    let picture = service.pictures.get(fingerprint);
    if record.is_none() && picture.is_none() {
        return Ok(None);
    }
    let mut measurements = Vec::new();
    if let Some(wisdom) = wisdom.filter(|_| record.is_some()) {
        measurements = wisdom.measurements(fingerprint)?;
        measurements.extend(wisdom.shared_measurements(fingerprint));
        measurements.extend(wisdom.shipped_measurements(fingerprint));
    }
    let mut shown = json!({
        "fingerprint": fingerprint,
        "measurements": measurements,
        "density": null,
        "row_lengths": null,
    });
    for part in [picture, record.map(|record| json!(record))].into_iter().flatten() {
        for (name, value) in part.as_object().into_iter().flatten() {
            shown[name] = value.clone();
        }
    }
    Ok(Some(shown))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best(candidate: &str, spmv_us: f64, baseline_us: Option<f64>) -> Best {
        Best { candidate: candidate.into(), spmv_us, baseline_us, timed: 1 }
    }

    #[test]
    fn the_fastest_candidate_wins_and_is_compared_with_the_baseline() {
        let mut all = best("csr", 4.0, Some(4.0));
        all.join(best("hll:hack=32", 2.0, None));
        all.join(best("ell", 3.0, None));
        assert_eq!(all, Best { timed: 3, ..best("hll:hack=32", 2.0, Some(4.0)) });
        assert_eq!((all.format(), all.speedup()), ("hll", Some(2.0)));
        assert_eq!(best("ell", 3.0, None).speedup(), None);
        assert_eq!(mean(&[Some(2.0), None, Some(8.0)]), Some(4.0));
        assert_eq!(mean(&[None]), None);
    }
}
