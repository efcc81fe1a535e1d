//! Fits the figures of the closed formulas ([`KernelFigures`]: what each kernel reaches on a device) to
//! measured times, candidate by candidate.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use ellect::choose::Workload;
use ellect::cost::CostInputs;
use ellect::device::{Device, KernelFigures, Kind, PerPrecision};
use ellect::format::Candidate;
use ellect::unstable::cost::Estimator;
use ellect::unstable::format::{rename_keys, sort_key};
use ellect::{Fingerprint, Precision};
use rayon::prelude::*;

use crate::case::Case;
use crate::records::Records;

/// One timed product and its weight.
struct Sample<'a> {
    inputs: &'a CostInputs,
    /// Index of its matrix.
    matrix: usize,
    spmv_s: f64,
    /// Time of the matrix's best candidate, in seconds.
    best_s: f64,
    weight: f64,
}

/// Minimum number of timed matrices for which a candidate's figures are fitted; with fewer, its
/// figures remain unchanged.
pub(crate) const LEAST_SAMPLES: usize = 12;

/// Relative distance from the best time of the matrix at which a sample's weight falls to a
/// quarter.
const HALF_AS_GOOD: f64 = 0.15;

/// Logarithmic error beyond which the penalty grows linearly instead of quadratically.
const FAR_OFF: f64 = 0.25;

/// A fitted figure: its accessor, its lower and upper bounds, and the value that it grows from
/// where it is 0.
struct FittedFigure {
    of: fn(&mut KernelFigures) -> &mut PerPrecision,
    least: f64,
    most: f64,
    seed: f64,
}

const FIGURES: [FittedFigure; 9] = [
    FittedFigure { of: |r| &mut r.bandwidth, least: 0.3, most: 1.25, seed: 0.9 },
    FittedFigure { of: |r| &mut r.gather, least: 0.2, most: 2.0, seed: 1.0 },
    FittedFigure { of: |r| &mut r.lookup, least: 0.2, most: 2.5, seed: 1.0 },
    FittedFigure { of: |r| &mut r.entry_ns, least: 0.0, most: 2.0, seed: 0.02 },
    FittedFigure { of: |r| &mut r.row_ns, least: 0.0, most: 20.0, seed: 0.1 },
    FittedFigure { of: |r| &mut r.change_ns, least: 0.0, most: 20.0, seed: 0.1 },
    FittedFigure { of: |r| &mut r.wait_ns, least: 0.0, most: 200.0, seed: 30.0 },
    FittedFigure { of: |r| &mut r.step_ns, least: 4.0, most: 2000.0, seed: 100.0 },
    FittedFigure { of: |r| &mut r.fixed_us, least: 0.0, most: 20.0, seed: 0.2 },
];

/// Returns the profile with the kernels' figures fitted so that estimates match these records best.
///
/// The fit has three stages. First, figures of each format are fitted to the times of all its
/// candidates, weighted toward the best of their matrix. From there, the figures of each candidate
/// are fitted to its times. Then they are refined in rounds over all candidates, which also weigh
/// the choices that follow from the estimates. Candidates with fewer than a dozen timed matrices
/// keep their figures, and so do conversions.
pub fn fit(records: &Records, device: &Device) -> Device {
    let fit = fit_without(records, device, &Precision::ALL, &BTreeSet::new());
    Device { fitted: true, ..fit }
}

/// Fits these precisions as if the matrices left out were neither in these records nor in those of
/// the present profile.
fn fit_without(
    records: &Records,
    device: &Device,
    precisions: &[Precision],
    left_out: &BTreeSet<Fingerprint>,
) -> Device {
    let mut fit = device.clone();
    rename_keys(&mut fit.kernels);
    if !left_out.is_empty() {
        for figures in fit.kernels.values_mut() {
            let mut plain = KernelFigures::default();
            for figure in &FIGURES {
                *(figure.of)(figures) = *(figure.of)(&mut plain);
            }
        }
    }
    let device = fit.clone();
    let all = precisions
        .into_par_iter()
        .map(|&precision| (precision, fit_one(records, &device, precision, left_out)));
    for (precision, reaches) in all.collect::<Vec<_>>() {
        for (candidate, mut figures) in reaches {
            let entry = fit
                .kernels
                .entry(candidate.to_string())
                .or_insert(ellect::unstable::cost::kernel_figures(&device, &candidate));
            for figure in &FIGURES {
                let fitted = *value((figure.of)(&mut figures), precision);
                *value((figure.of)(entry), precision) = rounded(fitted);
            }
        }
    }
    fit
}

/// Records that the profile of their device was fitted to. An evaluation on a matrix that is left
/// out needs a profile fitted without that matrix.
#[derive(Debug)]
pub struct Fitted {
    /// Records that the profile was fitted to.
    pub records: Records,
    /// The fitted profile.
    pub device: Device,
}

impl Fitted {
    /// Returns these cases of one precision, in their order, as seen with a profile fitted without
    /// the cases at the indices `left_out`.
    pub fn without(&self, cases: &[Case], left_out: &[usize]) -> Vec<Case> {
        let Some(first) = cases.first() else { return Vec::new() };
        let prints: BTreeSet<Fingerprint> =
            left_out.iter().map(|&i| cases[i].fingerprint).collect();
        let device = fit_without(&self.records, &self.device, &[first.precision], &prints);
        let key = |case: &Case| (case.source.clone(), case.fingerprint);
        let seen = self.records.cases(&device).into_iter();
        let mut seen: BTreeMap<_, Case> = seen
            .filter(|case| case.precision == first.precision)
            .map(|case| (key(&case), case))
            .collect();
        cases.iter().map(|case| seen.remove(&key(case)).unwrap_or_else(|| case.clone())).collect()
    }
}

/// Fits the figures of one precision.
fn fit_one(
    records: &Records,
    device: &Device,
    precision: Precision,
    left_out: &BTreeSet<Fingerprint>,
) -> Vec<(Candidate, KernelFigures)> {
    let groups = groups(records, device, precision, left_out);
    let matrices = groups.iter().flat_map(|g| &g.samples).map(|s| s.matrix + 1).max().unwrap_or(0);
    let neutral = neutral(device.kind);
    // Figures shared by all candidates of a format are fitted first: the other candidates supply
    // what the few matrices of one candidate do not show.
    let format = |group: &Group<'_>| group.candidate.format.name;
    let names: BTreeSet<&'static str> = groups.iter().map(format).collect();
    let of_format = |&name: &&'static str| {
        let loss = |figures: &KernelFigures| {
            let own = groups.iter().filter(|&group| format(group) == name);
            own.map(|group| group.loss(figures, &neutral, precision, device, &off)).sum()
        };
        (name, descend(neutral, precision, COARSE, &loss).0)
    };
    let formats: BTreeMap<&str, KernelFigures> = names.par_iter().map(of_format).collect();
    let shared = |group: &Group<'_>| formats[format(group)];
    let to_times = |group: &Group<'_>| {
        let start = shared(group);
        let loss = |figures: &KernelFigures| group.loss(figures, &start, precision, device, &off);
        descend(start, precision, FINEST, &loss).0
    };
    let mut reaches: Vec<KernelFigures> = groups.par_iter().map(to_times).collect();
    let mut choices = vec![Choice::default(); matrices];
    for (group, figures) in groups.iter().zip(&reaches) {
        for (sample, spmv_s) in group.with_estimates(figures, precision, device) {
            choices[sample.matrix].add(sample, spmv_s);
        }
    }
    for _ in 0..ROUNDS {
        for (group, figures) in groups.iter().zip(&mut reaches) {
            for (sample, spmv_s) in group.with_estimates(figures, precision, device) {
                choices[sample.matrix].take(sample, spmv_s);
            }
            let regret = |sample: &Sample<'_>, spmv_s: f64| {
                let mut choice = choices[sample.matrix];
                choice.add(sample, spmv_s);
                choice.regret() + TIMES * off(sample, spmv_s)
            };
            let old = shared(group);
            let loss =
                |figures: &KernelFigures| group.loss(figures, &old, precision, device, &regret);
            *figures = descend(*figures, precision, COARSE, &loss).0;
            for (sample, spmv_s) in group.with_estimates(figures, precision, device) {
                choices[sample.matrix].add(sample, spmv_s);
            }
        }
    }
    groups.into_iter().map(|group| group.candidate).zip(reaches).collect()
}

/// Returns the figures that a descent starts from. On a host, entries and rows cost processor time
/// in addition to memory traffic.
fn neutral(kind: Kind) -> KernelFigures {
    let plain = KernelFigures { fixed_us: PerPrecision::both(0.5), ..KernelFigures::default() };
    match kind {
        Kind::Gpu => plain,
        Kind::Host => KernelFigures {
            entry_ns: PerPrecision::both(0.4),
            row_ns: PerPrecision::both(1.5),
            change_ns: PerPrecision::both(2.0),
            ..plain
        },
    }
}

/// Number of refinement rounds over all candidates.
const ROUNDS: usize = 4;

/// Weight of the error of a time relative to the regret of a choice.
const TIMES: f64 = 0.5;

/// Relative step sizes at which a descent ends.
const FINEST: f64 = 0.004;
const COARSE: f64 = 0.02;

/// Returns the weighted penalty of an estimate's error: samples near the best of their matrix count
/// more.
fn off(sample: &Sample<'_>, spmv_s: f64) -> f64 {
    sample.weight * pull(spmv_s / sample.spmv_s)
}

/// Returns the penalty for an estimate that is `ratio` times the measured time: the square of the
/// logarithm, continued linearly beyond `FAR_OFF`.
fn pull(ratio: f64) -> f64 {
    let error = ratio.ln().abs();
    if error < FAR_OFF { error * error } else { FAR_OFF * (2.0 * error - FAR_OFF) }
}

/// Returns the penalty for figures far from the old ones, so that figures which no record
/// determines remain unchanged.
fn away(figures: &KernelFigures, old: &KernelFigures, precision: Precision) -> f64 {
    let (mut figures, mut old) = (*figures, *old);
    let moved = |figure: &FittedFigure| {
        let [now, before] = [&mut figures, &mut old]
            .map(|figures| *value((figure.of)(figures), precision) + 0.2 * figure.seed);
        (now / before).ln().powi(2)
    };
    STAY * FIGURES.iter().map(moved).sum::<f64>()
}

/// Penalty per sample of a figure that is e times its old value.
const STAY: f64 = 2e-4;

/// The candidates of a matrix as a soft choice by estimates: every candidate near the least
/// estimate has a share, larger the nearer it is.
#[derive(Clone, Copy, Debug, Default)]
struct Choice {
    shares: f64,
    lost: f64,
}

impl Choice {
    fn share(sample: &Sample<'_>, spmv_s: f64) -> f64 {
        (spmv_s / sample.best_s).powf(-SHARPNESS)
    }

    fn add(&mut self, sample: &Sample<'_>, spmv_s: f64) {
        let share = Choice::share(sample, spmv_s);
        self.shares += share;
        self.lost += share * (sample.spmv_s / sample.best_s).ln();
    }

    fn take(&mut self, sample: &Sample<'_>, spmv_s: f64) {
        let share = Choice::share(sample, spmv_s);
        self.shares -= share;
        self.lost -= share * (sample.spmv_s / sample.best_s).ln();
    }

    /// Returns the expected logarithm of the chosen time over the best time.
    fn regret(&self) -> f64 {
        self.lost / self.shares.max(f64::MIN_POSITIVE)
    }
}

/// Exponent of the shares: two estimates 3 % apart have shares in the ratio e to 1.
const SHARPNESS: f64 = 33.0;

/// The timed products of one candidate.
struct Group<'a> {
    candidate: Candidate,
    samples: Vec<Sample<'a>>,
}

impl<'a> Group<'a> {
    /// Returns the sum of `count` over the samples, plus the penalty for figures far from `old`.
    fn loss(
        &self,
        figures: &KernelFigures,
        old: &KernelFigures,
        precision: Precision,
        device: &Device,
        count: &dyn Fn(&Sample<'_>, f64) -> f64,
    ) -> f64 {
        let samples = self.with_estimates(figures, precision, device);
        let counted: f64 = samples.map(|(sample, spmv_s)| count(sample, spmv_s)).sum();
        counted + self.samples.len() as f64 * away(figures, old, precision)
    }

    /// Returns each sample with its estimate from these figures, in seconds.
    fn with_estimates(
        &self,
        figures: &KernelFigures,
        precision: Precision,
        device: &Device,
    ) -> impl Iterator<Item = (&Sample<'a>, f64)> {
        let target = Workload::default().target(device, precision);
        self.samples.iter().map(move |sample| {
            let estimator = Estimator::of(sample.inputs.matrix, &target);
            (sample, estimator.times_at(*figures, &sample.inputs.work).total_s())
        })
    }
}

pub(crate) fn value(pair: &mut PerPrecision, precision: Precision) -> &mut f64 {
    match precision {
        Precision::F32 => &mut pair.f32,
        Precision::F64 => &mut pair.f64,
    }
}

/// Rounds to four significant digits.
pub(crate) fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// Groups the timed products of a device by candidate, for candidates that were timed often enough.
fn groups<'a>(
    records: &'a Records,
    device: &Device,
    precision: Precision,
    left_out: &BTreeSet<Fingerprint>,
) -> Vec<Group<'a>> {
    let timed = || {
        let of_precision = records.timed(&device.name).filter(|(m, _)| m.precision == precision);
        of_precision.filter(|(m, _)| !left_out.contains(&m.fingerprint))
    };
    let mut best_s: BTreeMap<Fingerprint, f64> = BTreeMap::new();
    for (m, cost) in timed() {
        let best = best_s.entry(m.fingerprint).or_insert(f64::INFINITY);
        *best = cost.spmv_s.min(*best);
    }
    let places: BTreeMap<Fingerprint, usize> =
        best_s.keys().enumerate().map(|(i, &print)| (print, i)).collect();
    // Fits depend on the order of the candidates.
    let mut groups: BTreeMap<Cow<'_, str>, Vec<Sample<'_>>> = BTreeMap::new();
    for (m, cost) in timed() {
        let Some(inputs) = m.inputs.as_deref() else { continue };
        let (spmv_s, best_s) = (cost.spmv_s, best_s[&m.fingerprint]);
        let weight = (1.0 + (spmv_s / best_s - 1.0) / HALF_AS_GOOD).powi(-2);
        let matrix = places[&m.fingerprint];
        let sample = Sample { inputs, matrix, spmv_s, best_s, weight };
        groups.entry(sort_key(&m.candidate)).or_default().push(sample);
    }
    let group = |(name, mut samples): (Cow<'_, str>, Vec<Sample<'a>>)| {
        let candidate = name.parse().ok()?;
        // The order of summation must not depend on the order of the records.
        samples.sort_by(|a, b| a.matrix.cmp(&b.matrix).then(a.spmv_s.total_cmp(&b.spmv_s)));
        (samples.len() >= LEAST_SAMPLES).then_some(Group { candidate, samples })
    };
    groups.into_iter().filter_map(group).collect()
}

/// Coordinate descent with ever smaller steps over the figures of one precision. Returns the final
/// figures and their loss.
fn descend(
    start: KernelFigures,
    precision: Precision,
    finest: f64,
    loss: &dyn Fn(&KernelFigures) -> f64,
) -> (KernelFigures, f64) {
    let (mut at, mut least) = (start, loss(&start));
    let mut step = 0.6;
    while step > finest {
        let before = least;
        for figure in &FIGURES {
            let now = *value((figure.of)(&mut at), precision);
            let grown = if now > 0.0 { now * (1.0 + step) } else { figure.seed * step };
            for next in [grown, now / (1.0 + step), now - step * figure.seed] {
                let mut moved = at;
                let next = next.clamp(figure.least, figure.most);
                *value((figure.of)(&mut moved), precision) = next;
                let own = loss(&moved);
                if own < least {
                    (at, least) = (moved, own);
                }
            }
        }
        // False as well where the loss is 0 or NaN, so that the descent ends.
        let gained = least < 0.999 * before;
        step *= if gained { 1.0 } else { 0.6 };
    }
    (at, least)
}

/// Returns the text of a profile as it ships: one line for each figure and for each kernel.
///
/// # Errors
/// Fails where serde fails.
pub fn text(device: &Device) -> serde_json::Result<String> {
    let plain = Device { kernels: BTreeMap::new(), ..device.clone() };
    let figures = serde_json::to_string_pretty(&plain)?;
    let kernel = |(name, figures): (&String, &KernelFigures)| -> serde_json::Result<String> {
        Ok(format!("    {}: {}", serde_json::to_string(name)?, serde_json::to_string(figures)?))
    };
    let kernels = device.kernels.iter().map(kernel).collect::<serde_json::Result<Vec<_>>>()?;
    Ok(figures
        .replace("\"kernels\": {}", &format!("\"kernels\": {{\n{}\n  }}", kernels.join(",\n")))
        + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ellect::device;

    #[test]
    fn figures_that_times_were_made_from_are_found_again() {
        let device = device::find("h200").expect("ships");
        let candidate: Candidate = "csr".parse().expect("a format");
        let cases: Vec<_> = ["stencil5", "uniform", "banded"]
            .into_iter()
            .flat_map(|class| [3000, 60_000, 400_000].map(|rows| (class, rows)))
            .collect();
        let precision = Precision::F64;
        let workload = Workload::default();
        let target = workload.target(&device, precision);
        let known: Vec<CostInputs> = cases
            .iter()
            .map(|(class, rows)| {
                let spec: ellect::generate::Spec =
                    format!("{class}:{rows}").parse().expect("a class");
                let csr = spec.make();
                let analysis = ellect::analysis::Analysis::of(&csr);
                CostInputs::of(&analysis, &candidate, &target).expect("csr suits")
            })
            .collect();
        let mut real = ellect::unstable::cost::kernel_figures(&device, &candidate);
        real.bandwidth.f64 = 0.7;
        real.fixed_us.f64 = 1.7;
        let made =
            Device { kernels: BTreeMap::from([("csr".to_string(), real)]), ..device.clone() };
        let target = workload.target(&made, precision);
        let samples: Vec<Sample<'_>> = known
            .iter()
            .enumerate()
            .map(|(matrix, inputs)| {
                let times = Estimator::of(inputs.matrix, &target).times(&candidate, &inputs.work);
                let spmv_s = times.total_s();
                Sample { inputs, matrix, spmv_s, best_s: spmv_s, weight: 1.0 }
            })
            .collect();
        let group = Group { candidate, samples };
        let loss = |figures: &KernelFigures| {
            let samples = group.with_estimates(figures, precision, &device);
            samples.map(|(s, spmv_s)| pull(spmv_s / s.spmv_s)).sum::<f64>()
        };
        let before = loss(&KernelFigures::default());
        let (_, after) = descend(KernelFigures::default(), precision, FINEST, &loss);
        let off = (after / group.samples.len() as f64).sqrt();
        assert!(off < 0.03 && after < before / 20.0, "{before} to {after}: off by {off}");
    }

    #[test]
    fn a_walk_ends_where_nothing_is_to_be_gained() {
        for flat in [0.0, f64::NAN] {
            let (at, _) =
                descend(KernelFigures::default(), Precision::F32, FINEST, &|_: &KernelFigures| {
                    flat
                });
            assert_eq!(at, KernelFigures::default());
        }
    }

    #[test]
    fn a_profile_reads_back() {
        for device in Device::shipped() {
            let text = text(&device).expect("plain data");
            assert_eq!(Device::parse(&text).expect("its own text"), device);
        }
    }
}
