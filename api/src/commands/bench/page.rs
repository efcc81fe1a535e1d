//! The page of results that `ellect bench` prints, in Markdown.

use std::collections::{BTreeMap, BTreeSet};

use ellect::Precision;
use ellect::device::Device;
use ellect::format::Basis;
use ellect::measure::Outcome;
use ellect_training::geometric_mean;

use super::{Record, baseline_record};

/// Returns the head of the page in Markdown; empty if nothing was timed.
///
/// It has the title, the result, and the devices, revision, kernels and protocol of the records.
pub fn head(records: &[Record], commit: &str) -> String {
    let timed = records.iter().map(|record| &record.measurement);
    let timed = timed.filter(|m| matches!(m.outcome, Outcome::Timed(_)));
    let (mut names, mut drivers, mut kernels) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut protocol = None;
    for m in timed {
        let from = &m.provenance;
        let state = from.state.as_deref();
        let name = state.and_then(|state| state.name.clone());
        let version = state.and_then(|state| state.driver_version.as_ref());
        let parts =
            [Some(m.device.clone()), name, version.map(|version| format!("driver {version}"))];
        let parts = parts.into_iter().flatten().chain([from.driver.clone()]);
        drivers.insert(parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", "));
        kernels.extend(from.kernels.split(',').filter(|kernel| !kernel.is_empty()));
        names.insert(m.device.as_str());
        protocol.get_or_insert(m.protocol);
    }
    let Some(protocol) = protocol else { return String::new() };
    let names = Vec::from_iter(names).join(", ");
    let mut text = format!("# Times of every storage format on {names}\n\n{ASKED}");
    text += &format!("{}\n", result(records));
    text += &format!("- Device: {}\n", Vec::from_iter(drivers).join("; "));
    if !commit.is_empty() {
        text += &format!("- Revision: {commit}\n");
    }
    text += &format!("- Kernels: {}\n", Vec::from_iter(kernels).join(", "));
    if protocol.vectors > 1 {
        text += &format!("- Each product has {} vectors.\n", protocol.vectors);
    }
    text += &format!("- Protocol {}: {TERMS}", protocol.version);
    text
}

/// The question that a page of results answers, and the page's layout.
const ASKED: &str = "\
Which storage format multiplies each matrix fastest? `ellect bench` checks the product y = A x of
every candidate (a format with its parameters) against the reference, then times it. The first table
sums up all matrices. The tables after it show, for each matrix and precision, the baseline and the
fastest candidate of each format, fastest first.
";

/// The definitions for the tables; the protocol number precedes this text.
const TERMS: &str = "\
each time is the median of several samples. Copies of the matrix, x and y take turns to
  keep the caches cold.
- Baseline: `cusparse:alg=csr_alg1` (cuSPARSE's CSR product with preprocessing), or `csr` where
  cuSPARSE was not timed. Speed-up: time of the baseline in the same run / time of the candidate.
- Byte floor: time to read CSR with 4-byte indices, x and y once at the device's read bandwidth. A
  ratio floor / time above 1 is out of reach for a kernel that reads the CSR arrays.
- Conversion: time to convert CSR to the format, in products of the same candidate.
- Original basis: x and y keep the order of the matrix's columns and rows. Permuted basis: x and y
  may be stored in the order that the format prefers.
";

/// Returns a Markdown table for each matrix and precision: the baseline and the fastest candidate
/// of each format.
pub fn table(records: &[Record]) -> String {
    let mut text = String::new();
    let mut groups: BTreeMap<(usize, Precision), Vec<&Record>> = BTreeMap::new();
    let mut order: Vec<String> = Vec::new();
    for record in records {
        let key = format!("{} ({} basis)", record.matrix, record.measurement.basis);
        let at = order.iter().position(|known| *known == key).unwrap_or_else(|| {
            order.push(key);
            order.len() - 1
        });
        groups.entry((at, record.measurement.precision)).or_default().push(record);
    }
    for ((at, precision), mut group) in groups {
        group.retain(|r| r.spmv_s().is_some());
        group.sort_by(|a, b| {
            a.spmv_s().partial_cmp(&b.spmv_s()).unwrap_or(std::cmp::Ordering::Equal)
        });
        let Some(first) = group.first() else { continue };
        let Some((base, base_s)) = baseline_record(&group, None) else { continue };
        text += &format!(
            "\n## {}, {precision}\n{} rows, {} nonzeros\n\n",
            order[at], first.nrows, first.nnz
        );
        text += "| candidate | time (us) | speed-up over baseline | byte floor / time | conversion \
                 (products) |\n|---|---|---|---|---|\n";
        let mut seen = Vec::new();
        for r in &group {
            let format = r.measurement.candidate.split(':').next().unwrap_or_default().to_string();
            let is_base = std::ptr::eq(*r, base);
            let again = r.measurement.candidate == base.measurement.candidate;
            if !is_base && (again || seen.contains(&format)) {
                continue;
            }
            seen.push(format);
            let Some(s) = r.spmv_s() else { continue };
            let csr_s = baseline_record(&group, Some(r.run)).map_or(base_s, |(_, own_s)| own_s);
            let convert_s = r.measurement.cost().map_or(0.0, |cost| cost.convert_s);
            text += &format!(
                "| {} | {:.1} | {:.2} | {} | {:.0} |\n",
                r.measurement.candidate,
                s * 1e6,
                csr_s / s,
                floor(r, s),
                convert_s / s
            );
        }
    }
    text
}

/// Speed-ups of the fastest candidates over the baseline, in one precision.
struct SpeedUps {
    precision: Precision,
    matrices: usize,
    /// Geometric mean in the original basis.
    original: f64,
    /// Geometric mean in the better of the two bases.
    any: f64,
    /// Minimum in the original basis.
    least: f64,
}

/// Returns the speed-ups in each precision that was timed.
fn speed_ups(records: &[Record]) -> Vec<SpeedUps> {
    let mut matrices: BTreeMap<(Precision, &str), Vec<&Record>> = BTreeMap::new();
    for record in records.iter().filter(|record| record.spmv_s().is_some()) {
        matrices.entry((record.measurement.precision, &record.matrix)).or_default().push(record);
    }
    // Speed-ups of the fastest candidate on one matrix: [in the original basis, in either basis].
    let fastest = |group: &Vec<&Record>| {
        let is_original = |record: &&Record| record.measurement.basis == Basis::Original;
        let original: Vec<&Record> = group.iter().copied().filter(is_original).collect();
        let (_, first_s) = baseline_record(&original, None)?;
        let mut best = [0.0_f64; 2];
        for record in group {
            let csr_s =
                baseline_record(&original, Some(record.run)).map_or(first_s, |(_, own_s)| own_s);
            let speed_up = csr_s / record.spmv_s()?;
            best[1] = best[1].max(speed_up);
            if is_original(record) {
                best[0] = best[0].max(speed_up);
            }
        }
        Some(best)
    };
    let in_precision = |precision: Precision| {
        let of = matrices.iter().filter(|((of, _), _)| *of == precision);
        let all: Vec<[f64; 2]> = of.filter_map(|(_, group)| fastest(group)).collect();
        let [original, any] = [0, 1].map(|i| geometric_mean(all.iter().map(|s| s[i])));
        let least = all.iter().map(|s| s[0]).fold(f64::INFINITY, f64::min);
        SpeedUps { precision, matrices: all.len(), original, any, least }
    };
    let all = Precision::ALL.into_iter().map(in_precision);
    all.filter(|speed_ups| speed_ups.matrices > 0).collect()
}

/// Returns the result over all matrices in Markdown, one sentence per precision.
fn result(records: &[Record]) -> String {
    let sentence = |of: &SpeedUps| {
        let SpeedUps { precision, matrices, original, any, least } = of;
        let matrices = match matrices {
            1 => "1 matrix".to_string(),
            count => format!("geometric mean over {count} matrices, worst {least:.2}"),
        };
        let permuted = match any > original {
            true => format!("; {any:.3} times if x and y may stay in a permuted basis"),
            false => String::new(),
        };
        format!(
            "In {precision} the fastest candidate is {original:.3} times as fast as the baseline \
             ({matrices}){permuted}.\n"
        )
    };
    speed_ups(records).iter().map(sentence).collect()
}

/// Returns the table of speed-ups over all matrices in Markdown.
pub fn summary(records: &[Record]) -> String {
    let mut text = String::from(
        "\n## All matrices\n\nSpeed-up of the fastest candidate over the baseline in the original \
         basis:\n\n| precision | matrices | original basis, geometric mean | original or permuted \
         basis, geometric mean | original basis, worst matrix |\n|---|---|---|---|---|\n",
    );
    for SpeedUps { precision, matrices, original, any, least } in speed_ups(records) {
        text += &format!("| {precision} | {matrices} | {original:.3} | {any:.3} | {least:.2} |\n");
    }
    text
}

/// Returns the ratio of the CSR byte floor to a time of `s` seconds, as text.
///
/// Empty if no profile of the record's device ships.
fn floor(record: &Record, s: f64) -> String {
    let devices = Device::shipped();
    let Some(device) = devices.iter().find(|d| d.name == record.measurement.device) else {
        return String::new();
    };
    let w = record.measurement.precision.bytes();
    let bytes = record.nnz * (4 + w) + record.nrows * (4 + w) + record.ncols * w;
    format!("{:.2}", bytes as f64 / device.read_gbps / 1e9 / s)
}
