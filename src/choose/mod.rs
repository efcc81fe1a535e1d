//! The choice: every candidate ranked by what it costs the caller, and why.

mod by_features;
mod explain;
mod stay;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use rayon::prelude::*;
use serde::{Serialize, Serializer};

use crate::cost::{Cost, Estimator, Source, Times};
use crate::device::{Device, Kind};
use crate::features::Features;
use crate::fingerprint::Fingerprint;
use crate::format::{Basis, Candidate, Params, Refusal, Target, Value, Work, candidates};
use crate::scalar::Precision;
use crate::structure::{Structure, probes};
pub use crate::workload::{Effort, ValuesUse, Verify, Workload};
pub use by_features::{by_features, counted_s, looks_closer, most_trusted};
pub use stay::{PCSR, SAMPLE_S, Stays, read_s, stay, stay_s};

/// One candidate's place in a [`Choice`]: times in seconds, which JSON gives in microseconds.
///
/// ```
/// use ellect::choose::Workload;
/// use ellect::{Tuner, device, generate};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = generate::by_name("heat", 500, 1)?;
/// let choice = Tuner::new(device::find("cpu")?).recommend(&csr, &Workload::default())?;
/// let csr = choice.ranked(&"csr".parse()?).expect("CSR is always ranked");
/// assert_eq!((csr.convert_s, csr.break_even_spmvs), (0.0, Some(0)));
/// assert_eq!(csr.total_s, 1000.0 * csr.spmv_s);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ranked {
    /// The candidate.
    pub candidate: Candidate,
    /// The name of its format.
    pub format: &'static str,
    /// Its parameters.
    pub parameters: Params,
    /// Time of one product, in seconds; `spmv_us` in JSON, in microseconds.
    #[serde(rename = "spmv_us", serialize_with = "in_us")]
    pub spmv_s: f64,
    /// Time of the conversion, in seconds; `convert_us` in JSON, in microseconds.
    #[serde(rename = "convert_us", serialize_with = "in_us")]
    pub convert_s: f64,
    /// Conversion, updates of values and all products together, in seconds; `total_us` in JSON, in
    /// microseconds.
    #[serde(rename = "total_us", serialize_with = "in_us")]
    pub total_s: f64,
    /// Bytes of the layout.
    pub bytes: u64,
    /// Where the times come from.
    pub source: Source,
    /// Products from which on it is cheaper than staying in CSR: 0 where it always is or costs the
    /// same (CSR itself), none where it never is.
    pub break_even_spmvs: Option<u64>,
}

/// Seconds, written in microseconds.
fn in_us<S: Serializer>(seconds: &f64, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_f64(seconds * 1e6)
}

/// A candidate that does not suit, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Refused {
    /// The candidate.
    pub candidate: Candidate,
    /// Needed and allowed figures.
    pub reason: Refusal,
}

/// A ranking of all candidates with the one to take; serializes to the answer of
/// `recommend --json`.
///
/// ```
/// use ellect::choose::Workload;
/// use ellect::{Tuner, device, generate};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = generate::by_name("elasticity", 2000, 1)?;
/// let choice = Tuner::new(device::find("h200")?).recommend(&csr, &Workload::default())?;
///
/// let best = &choice.ranking[0];
/// assert_eq!(best.candidate, choice.candidate);
/// assert!(best.convert_s + 1000.0 * best.spmv_s <= choice.ranking[1].total_s * 1.02);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Choice {
    /// The candidate to take: the first of the ranking. `choice` in JSON.
    #[serde(rename = "choice")]
    pub candidate: Candidate,
    /// Every candidate that suits: the one to take, then the others by their total time.
    pub ranking: Vec<Ranked>,
    /// Every candidate that does not.
    pub refused: Vec<Refused>,
    /// Features of the matrix, by name.
    pub features: Features,
    /// Name of the device.
    pub device: String,
    /// Precision of the values.
    pub precision: Precision,
    /// Products that the choice was made for.
    pub spmvs: u64,
    /// Fingerprint of the pattern; none where the matrix was not looked at ([`stay()`]).
    pub fingerprint: Option<Fingerprint>,
    /// The reasons, in sentences.
    pub explanation: Vec<String>,
}

impl Choice {
    /// The place of a candidate in the ranking.
    pub fn ranked(&self, candidate: &Candidate) -> Option<&Ranked> {
        self.ranking.iter().find(|ranked| ranked.candidate == *candidate)
    }
}

/// What is known of a candidate better than by estimate: its cost, or that it must not be taken.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// The candidate.
    pub candidate: Candidate,
    /// Its cost; or why it is out, a wrong product for instance.
    pub cost: std::result::Result<Cost, Refusal>,
}

/// Totals that differ by at most this share are settled by conversion and memory.
pub const NEAR_TIE: f64 = 0.02;

/// A difference of so many seconds a product is none.
const NOTHING_S: f64 = 1e-9;

/// A candidate with all that is known of it.
struct Entry {
    candidate: Candidate,
    cost: Cost,
    estimate: Option<Estimate>,
}

/// What an estimate found of a candidate; none where only measuring could tell that it suits.
struct Estimate {
    work: Work,
    times: Times,
}

/// Ranks every candidate for a device of `device`'s kind; what is `known` replaces the estimates.
///
/// The one to take has the least total (conversion, updates of values, and all products) under the
/// memory limit; among totals within [`NEAR_TIE`] of it, the cheapest conversion, then the smallest
/// layout. What was not timed must beat CSR by [`Device::margin`]. Where CSR was measured, it is one
/// of the measured candidates, and the estimates of the others are scaled by how far the estimate of
/// CSR was off.
///
/// Where values are to change, formats that suit by values are refused: they may refuse new ones.
///
/// CSR is never refused: it is what the caller already has. What was measured is not refused where an
/// estimate alone may not find out whether it suits ([`Refusal::is_untried`]).
///
/// Pure: the same arguments give the same answer, with no clock, disk or GPU.
pub fn choose(
    structure: &Structure<'_>,
    device: &Device,
    workload: &Workload,
    known: &[Known],
) -> Choice {
    let target = target(device, workload);
    let (mut entries, refused) = enter(structure, &target, workload, known);
    entries.sort_by(|a, b| a.cost.total_s(workload).total_cmp(&b.cost.total_s(workload)));
    let taken = take(&entries, device, workload);
    let winner = entries.remove(taken);
    entries.insert(0, winner);
    let csr = incumbent(&entries).expect("CSR always suits");
    let ranking = entries.iter().map(|entry| ranked(entry, &csr.cost, workload)).collect();
    let explanation = explain::explain(&explain::Case {
        structure,
        target: &target,
        workload,
        entries: &entries,
        csr,
        refused: &refused,
    });
    Choice {
        candidate: entries[0].candidate.clone(),
        ranking,
        refused,
        features: Features::of(structure),
        device: device.name.clone(),
        precision: workload.precision,
        spmvs: workload.spmvs,
        fingerprint: Some(structure.fingerprint()),
        explanation,
    }
}

/// What candidates are made for under this workload.
pub fn target<'a>(device: &'a Device, workload: &Workload) -> Target<'a> {
    Target {
        device,
        precision: workload.precision,
        basis: workload.basis,
        memory_limit: workload.memory_limit.unwrap_or(device.memory_bytes),
    }
}

/// The target of one candidate: CSR is there already, whatever the limit for another layout.
pub fn target_of<'a>(candidate: &Candidate, target: &Target<'a>) -> Target<'a> {
    match is_csr(candidate) {
        true => Target { memory_limit: u64::MAX, ..*target },
        false => *target,
    }
}

/// The work of every candidate for the target's device, or why it does not suit, in their order:
/// those that look at the matrix in different ways side by side over rayon's threads; kept by the
/// structure.
pub fn works(structure: &Structure<'_>, target: &Target<'_>) -> Works {
    let Target { device, precision, basis, memory_limit } = *target;
    let aim = (device.clone(), precision, basis, memory_limit, structure.may_partition());
    let kept = structure.memo().get(AllWorks(), Arc::default);
    let lock = || kept.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, works)) = lock().iter().find(|(known, _)| *known == aim) {
        return works.clone();
    }
    let find = || {
        let all = candidates(target.device.kind);
        let mut groups: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for (i, candidate) in all.iter().enumerate() {
            groups.entry((candidate.format.name(), look_of(candidate))).or_default().push(i);
        }
        let work = |i: usize| {
            let candidate = &all[i];
            (i, (candidate.clone(), candidate.work(structure, &target_of(candidate, target))))
        };
        let groups: Vec<Vec<usize>> = groups.into_values().collect();
        let groups = groups.into_par_iter().with_max_len(1);
        let mut works: Vec<_> = groups.flat_map_iter(|group| group.into_iter().map(work)).collect();
        works.sort_by_key(|(i, _)| *i);
        works.into_iter().map(|(_, work)| work).collect()
    };
    let works: Works = find();
    lock().push((aim, works.clone()));
    works
}

/// Every candidate with its work, or why it does not apply.
pub type Works = Arc<[(Candidate, std::result::Result<Work, Refusal>)]>;

/// What works were found for: device, precision, basis, memory limit, and whether METIS may run.
type Aim = (Device, Precision, Basis, u64, bool);

probes! {
    /// The works of all candidates for each aim so far.
    AllWorks() -> Arc<Mutex<Vec<(Aim, Works)>>>;
}

/// The parameters of a candidate that tell how the matrix is looked at for it: what one candidate of
/// a format finds out the others with the same ones know.
fn look_of(candidate: &Candidate) -> Vec<(&'static str, Value)> {
    let of = |names: &[&str]| -> Vec<_> {
        candidate.params.iter().filter(|(name, _)| names.contains(name)).collect()
    };
    // Blocks are found once for all orders of rows.
    let blocks = of(&["b"]);
    if blocks.is_empty() { of(&["sort", "tpr", "tile"]) } else { blocks }
}

/// Whether this candidate multiplies the CSR arrays as they are: what the caller has already.
pub fn is_csr(candidate: &Candidate) -> bool {
    is_baseline(&candidate.to_string())
}

/// Whether this is the name of a candidate that others are compared with, one of [`INCUMBENTS`].
pub fn is_baseline(candidate: &str) -> bool {
    INCUMBENTS.contains(&candidate)
}

/// The baseline, which others are compared with: of [`INCUMBENTS`], in their order, the first that
/// `find` finds.
pub fn baseline<T>(find: impl FnMut(&'static str) -> Option<T>) -> Option<T> {
    INCUMBENTS.into_iter().find_map(find)
}

/// Candidates that [`Effort::Measure`] times besides those of CSR: by prediction, and by estimate.
pub const FEW: [usize; 2] = [3, 1];

/// The share of its time that a candidate counts as slower for each one of its format that is timed
/// too: predictions tell variants apart better than formats, so another format may surprise more.
const SAME_FORMAT: f64 = 0.06;

/// The seconds that a candidate is thought to take: as it is predicted, and by the estimate alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thought {
    /// By the model, or what is best known.
    pub predicted_s: f64,
    /// By the closed formulas.
    pub estimated_s: f64,
}

/// What is timed of candidates: all that multiply the CSR arrays, so many that are best by prediction,
/// then so many that are best by estimate, as where one of these errs the other seldom does; of
/// several formats where they are about as good. [`Effort::Measure`] takes [`FEW`].
pub fn best_few<'a>(
    candidates: impl Iterator<Item = (&'a Candidate, Thought)>,
    [predicted, estimated]: [usize; 2],
) -> Vec<&'a Candidate> {
    let (csr, mut others): (Vec<_>, Vec<_>) =
        candidates.partition(|(candidate, _)| is_csr(candidate));
    let mut few: Vec<&Candidate> = csr.into_iter().map(|(candidate, _)| candidate).collect();
    for turn in 0..(predicted + estimated).min(others.len()) {
        let counted = |&(candidate, thought): &(&Candidate, Thought)| {
            let format = candidate.format.name();
            let same = few.iter().filter(|other| other.format.name() == format).count();
            let seconds = if turn < predicted { thought.predicted_s } else { thought.estimated_s };
            seconds * (1.0 + SAME_FORMAT * same as f64)
        };
        let times: Vec<f64> = others.iter().map(counted).collect();
        let best = (0..others.len()).min_by(|&a, &b| times[a].total_cmp(&times[b]));
        few.extend(best.map(|best| others.remove(best).0));
    }
    few
}

/// What a program has without a choice, the first that there is: everything is compared with it.
pub const INCUMBENTS: [&str; 2] = ["cusparse:alg=csr_alg1", CSR];

/// The kernels of this program that multiply the CSR arrays as they are.
pub const CSR: &str = "csr";

/// Those of [`INCUMBENTS`] that are candidates of this kind of device, in their order.
pub(crate) fn incumbents(kind: Kind) -> impl Iterator<Item = Candidate> {
    let all = candidates(kind);
    let named = move |name| all.iter().find(|known| known.to_string() == name).cloned();
    INCUMBENTS.into_iter().filter_map(named)
}

/// The entry that everything is compared with.
fn incumbent(entries: &[Entry]) -> Option<&Entry> {
    baseline(|name| entries.iter().find(|entry| entry.candidate.to_string() == name))
}

/// Every candidate that suits, and every one that does not.
fn enter(
    structure: &Structure<'_>,
    target: &Target<'_>,
    workload: &Workload,
    known: &[Known],
) -> (Vec<Entry>, Vec<Refused>) {
    let estimator = Estimator::new(structure, target);
    let mut entries = Vec::new();
    let mut refused = Vec::new();
    let changes = workload.values.updates() > 0;
    for (candidate, work) in works(structure, target).iter().cloned() {
        if changes && candidate.format.by_values() {
            let reason = Refusal::new(
                "values are to change, and it holds only values that are the same where these are; \
                 name it, or say that they stay, if the new ones will be",
            );
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
            // Of those that multiply the CSR arrays only this program's own is always there.
            (Ok(_), Some(Err(reason))) if candidate.to_string() != CSR => {
                refused.push(Refused { candidate, reason: reason.clone() });
            }
            (Ok(_), Some(Ok(cost))) if !is_csr(&candidate) && cost.bytes > target.memory_limit => {
                let checked = target.check_bytes(cost.bytes);
                refused.extend(checked.err().map(|reason| Refused { candidate, reason }));
            }
            (Ok(work), known) => {
                let times = estimator.times(&candidate, &work);
                let estimate = || estimator.cost(&candidate, &work);
                let known = known.and_then(|k| k.as_ref().ok()).copied();
                let mut cost = known.unwrap_or_else(estimate);
                if work.convert_bytes == 0 {
                    // A measured operator copied the arrays; the caller has them already.
                    cost.convert_s = 0.0;
                }
                entries.push(Entry { candidate, cost, estimate: Some(Estimate { work, times }) });
            }
        }
    }
    scale_to_measured(&mut entries);
    (entries, refused)
}

/// Scales estimates by how far that of CSR was off, where CSR was measured.
fn scale_to_measured(entries: &mut [Entry]) {
    let measured = |csr: &&Entry| csr.cost.source == Source::Measured;
    let csr = incumbent(entries).filter(measured);
    let Some((csr, estimate)) = csr.and_then(|csr| Some((csr, csr.estimate.as_ref()?))) else {
        return;
    };
    let factor = csr.cost.spmv_s / estimate.times.total_s();
    for entry in entries.iter_mut().filter(|entry| entry.cost.source == Source::Estimated) {
        entry.cost.spmv_s *= factor;
    }
}

/// The entry to take, of entries sorted by their total.
fn take(entries: &[Entry], device: &Device, workload: &Workload) -> usize {
    let csr = incumbent(entries);
    let may_win = |entry: &Entry| csr.is_none_or(|csr| trusted(entry, csr, device, workload));
    let able: Vec<usize> = (0..entries.len()).filter(|&i| may_win(&entries[i])).collect();
    let of = |&i: &usize| (&entries[i].candidate, &entries[i].cost);
    able.get(settle(&able, of, workload)).copied().unwrap_or(0)
}

/// Whether an entry may be taken instead of `csr`: it was timed, or it multiplies the CSR arrays too,
/// or nothing was timed and it takes so much less that the device's margin for error is left.
fn trusted(entry: &Entry, csr: &Entry, device: &Device, workload: &Workload) -> bool {
    let total_s = |entry: &Entry| entry.cost.total_s(workload);
    match (entry.cost.source, csr.cost.source) {
        (Source::Measured, _) => true,
        (_, Source::Measured) => false,
        _ => is_csr(&entry.candidate) || total_s(entry) * (1.0 + device.margin) <= total_s(csr),
    }
}

/// The one to take of candidates sorted by their total: among totals within [`NEAR_TIE`] of the
/// first, the cheapest conversion, then the smallest layout.
pub fn settle<'a, T>(
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
            let csr_first = is_csr(b).cmp(&is_csr(a));
            conversion.then(csr_first).then(a_cost.bytes.cmp(&b_cost.bytes))
        })
        .unwrap_or(0)
}

fn ranked(entry: &Entry, csr: &Cost, workload: &Workload) -> Ranked {
    let Entry { candidate, cost, .. } = entry;
    Ranked {
        candidate: candidate.clone(),
        format: candidate.format.name(),
        parameters: candidate.params.clone(),
        spmv_s: cost.spmv_s,
        convert_s: cost.convert_s,
        total_s: cost.total_s(workload),
        bytes: cost.bytes,
        source: cost.source,
        break_even_spmvs: cost.break_even(csr, workload),
    }
}
