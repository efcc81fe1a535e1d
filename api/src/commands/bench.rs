//! `ellect bench`: candidates timed over many matrices, and the table of results.

mod features;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use ellect::choose::Workload;
use ellect::format::{BASELINES, Basis, Candidate, candidates};
use ellect::generate::{self, Spec};
use ellect::measure::{Measurement, Meter, Outcome, Protocol};
use ellect::read::{self, Limits};
use ellect::structure::Structure;
use ellect::{Csr, Precision, Scalar, wisdom};
use ellect_training::corpus::stem;
use ellect_training::geometric_mean;
use serde::{Deserialize, Serialize};

use super::Answer;
use super::train::read_lines;
use crate::options::{duration, timing_meter};
use crate::output::{bar, print};

/// What to time.
#[derive(Debug, Args)]
pub struct Bench {
    /// Device of this machine: cpu, or cuda:0 with the feature cuda
    #[arg(long, default_value = "cpu", value_name = "NAME")]
    device: String,
    /// A generated matrix, as `generate` takes it: CLASS:ROWS, CLASS:ROWS:rcm; may be repeated
    #[arg(long, value_name = "CLASS:ROWS")]
    class: Vec<Spec>,
    /// A matrix file; may be repeated
    #[arg(long, value_name = "FILE")]
    file: Vec<PathBuf>,
    /// Repeat files along the diagonal, joined to each other, until they have so many nonzeros
    #[arg(long, default_value_t = 0, value_name = "NNZ")]
    scale: usize,
    /// Precisions to time
    #[arg(long, value_delimiter = ',', default_value = "f64,f32")]
    precision: Vec<Precision>,
    /// Basis of x and y: original or permuted
    #[arg(long, default_value_t = Basis::Original)]
    basis: Basis,
    /// Only candidates whose text begins so; may be repeated
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// The most that one candidate may take, its conversion included [default: 120s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    limit: Option<Duration>,
    /// Print one JSON record a line instead of the table
    #[arg(long, conflicts_with = "records")]
    json: bool,
    /// Time no candidate but CSR: time looking at features, and compare them with the host's
    #[arg(long, conflicts_with_all = ["json", "records", "only"])]
    features: bool,
    /// Time nothing: print the tables of these records, plain or .zst; may be repeated
    #[arg(long, value_name = "FILE.jsonl")]
    records: Vec<PathBuf>,
    /// Of the records only those of matrices whose names hold this text
    #[arg(long, default_value = "", value_name = "TEXT")]
    named: String,
    /// Revision of the program that timed, to note in the table
    #[arg(long, default_value = "", value_name = "TEXT")]
    commit: String,
}

/// One candidate timed on one matrix.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Record {
    matrix: String,
    nrows: usize,
    ncols: usize,
    nnz: usize,
    /// Which of several runs it was timed in: the records of a file are of one.
    #[serde(skip)]
    run: usize,
    #[serde(flatten)]
    measurement: Measurement,
}

impl Record {
    /// Seconds of a product, where it was timed.
    fn spmv_s(&self) -> Option<f64> {
        match &self.measurement.outcome {
            Outcome::Timed(timing) => Some(timing.spmv.median_s),
            _ => None,
        }
    }
}

/// The incumbent among records of one matrix in one precision, and its time: that of this run, or of
/// the first that has one.
fn incumbent<'a>(group: &[&'a Record], run: Option<usize>) -> Option<(&'a Record, f64)> {
    let of_run = |r: &&&Record| run.is_none_or(|run| r.run == run);
    BASELINES.into_iter().find_map(|name| {
        let mut named = group.iter().filter(|r| r.measurement.candidate == name);
        named.find(of_run).and_then(|r| Some((*r, r.spmv_s()?)))
    })
}

/// Times, or reads records, and prints them or the table of them.
pub fn run(bench: &Bench, data: &Path) -> Result<Answer> {
    if bench.features {
        return features::run(bench, data);
    }
    let mut records = match bench.records.as_slice() {
        [] => time(bench, data)?,
        paths => {
            let runs = paths.iter().enumerate().map(|(run, path)| recorded(path, run));
            runs.collect::<Result<Vec<_>>>()?.concat()
        }
    };
    records.retain(|record| record.matrix.contains(&bench.named));
    if !bench.json {
        print(&(origin(&records, &bench.commit) + &table(&records) + &summary(&records)))?;
    }
    Ok(Answer::Yes)
}

/// The records of a file, all of one run: its own, or what `wisdom export` and `tune --export` wrote.
fn recorded(path: &Path, run: usize) -> Result<Vec<Record>> {
    let mut matrices = HashMap::new();
    let mut records = Vec::new();
    for (i, line) in read_lines(path)?.lines().enumerate() {
        let what = || format!("{}: line {}", path.display(), i + 1);
        match serde_json::from_str(line).with_context(what)? {
            Line::Own(record) => records.push(Record { run, ..*record }),
            Line::Wisdom(wisdom::Record::Structure(structure)) => {
                matrices.insert(structure.fingerprint, structure);
            }
            Line::Wisdom(wisdom::Record::Measurement(measurement)) => {
                let matrix = matrices.get(&measurement.fingerprint).with_context(|| {
                    format!(
                        "{}: no line before tells of matrix {}",
                        what(),
                        measurement.fingerprint
                    )
                })?;
                records.push(Record {
                    matrix: matrix.source.clone(),
                    nrows: matrix.nrows as usize,
                    ncols: matrix.ncols as usize,
                    nnz: matrix.nnz as usize,
                    run,
                    measurement: *measurement,
                });
            }
        }
    }
    Ok(records)
}

/// A line of records.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    /// As `wisdom export` writes it.
    Wisdom(wisdom::Record),
    /// As `bench --json` does.
    Own(Box<Record>),
}

fn time(bench: &Bench, data: &Path) -> Result<Vec<Record>> {
    let meter = timing_meter(&bench.device, data)?;
    meter.check()?;
    let chosen: Vec<Candidate> = candidates(meter.device().kind)
        .into_iter()
        .filter(|c| {
            let text = c.to_string();
            bench.only.is_empty()
                || BASELINES.contains(&text.as_str())
                || bench.only.iter().any(|only| text.starts_with(only))
        })
        .collect();
    let mut records = Vec::new();
    let mut time = |name: &str, csr: &Csr<f64>| -> Result<()> {
        for precision in &bench.precision {
            match precision {
                Precision::F32 => {
                    one(name, &csr.cast::<f32>(), bench, &meter, &chosen, &mut records)?;
                }
                Precision::F64 => one(name, csr, bench, &meter, &chosen, &mut records)?,
            }
        }
        Ok(())
    };
    bench.matrices(&mut time)?;
    Ok(records)
}

impl Bench {
    /// Calls `each` with the name of each matrix and the matrix.
    fn matrices(&self, each: &mut dyn FnMut(&str, &Csr<f64>) -> Result<()>) -> Result<()> {
        if self.class.is_empty() && self.file.is_empty() {
            bail!("nothing was timed: name a --class or a --file");
        }
        for spec in &self.class {
            each(&spec.to_string(), &spec.make())?;
        }
        for path in &self.file {
            let context = || path.display().to_string();
            let csr = read::file(path, &Limits::default()).with_context(context)?;
            let csr = generate::scaled(&csr, self.scale, 1).with_context(context)?;
            let name = match self.scale {
                0 => stem(path),
                nnz => format!("{}*{nnz}", stem(path)),
            };
            each(&name, &csr)?;
        }
        Ok(())
    }
}

fn protocol() -> Protocol {
    Protocol { max_s: 0.2, max_samples: 20, ..Protocol::default() }
}

fn one<T: Scalar>(
    name: &str,
    csr: &Csr<T>,
    bench: &Bench,
    meter: &Meter,
    chosen: &[Candidate],
    records: &mut Vec<Record>,
) -> Result<()> {
    let workload = Workload { precision: T::PRECISION, basis: bench.basis, ..Workload::default() };
    let target = workload.target(meter.device());
    let structure = Structure::sampled(csr).with_partitioning();
    let protocol = protocol();
    let _held = meter.hold(csr);
    let bar = bar(chosen.len() as u64, "timing");
    for candidate in chosen {
        bar.set_message(format!("{name} {candidate}"));
        bar.inc(1);
        let target = candidate.target(&target);
        let measurement =
            meter.measure(csr, &structure, candidate, &target, &protocol, bench.limit)?;
        let record = Record {
            matrix: name.to_string(),
            nrows: csr.nrows(),
            ncols: csr.ncols(),
            nnz: csr.nnz(),
            run: 0,
            measurement,
        };
        if bench.json {
            print(&(serde_json::to_string(&record)? + "\n"))?;
        }
        records.push(record);
    }
    bar.finish_and_clear();
    Ok(())
}

/// Markdown: how, on what and by what the records were timed, each driver and kernel once.
fn origin(records: &[Record], commit: &str) -> String {
    let timed = records.iter().map(|record| &record.measurement);
    let timed = timed.filter(|m| matches!(m.outcome, Outcome::Timed(_)));
    let (mut drivers, mut kernels, mut protocol) = (BTreeSet::new(), BTreeSet::new(), None);
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
        protocol.get_or_insert(m.protocol.version);
    }
    let Some(protocol) = protocol else { return String::new() };
    let mut text = format!("Device {}", Vec::from_iter(drivers).join("; "));
    if !commit.is_empty() {
        text += &format!("; revision {commit}");
    }
    text += &format!("; kernels {}.\n", Vec::from_iter(kernels).join(", "));
    text += &format!(
        "Protocol {protocol}: median of samples, copies of the matrix and of x taking turns.\n"
    );
    text += "Over CSR: the time of the incumbent in the same run, over the time measured.\n";
    text += "Floor: the time that the bytes of CSR with 4-byte indices, x and y take at the \
             device's read bandwidth, over the time measured.\n";
    text
}

/// Markdown: for each matrix and precision the incumbent, and the best candidate of each format.
fn table(records: &[Record]) -> String {
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
        let Some((base, base_s)) = incumbent(&group, None) else { continue };
        text += &format!(
            "\n## {}, {precision}\n{} rows, {} nonzeros\n\n",
            order[at], first.nrows, first.nnz
        );
        text += "| candidate | us | over CSR | floor | conversion in products |\n|---|---|---|---|---|\n";
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
            let csr_s = incumbent(&group, Some(r.run)).map_or(base_s, |(_, own_s)| own_s);
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

/// Markdown: how many times as fast as the incumbent the best candidates are, over all matrices,
/// in their own basis and where another order of rows and columns may be had too.
fn summary(records: &[Record]) -> String {
    let mut matrices: BTreeMap<(Precision, &str), Vec<&Record>> = BTreeMap::new();
    for record in records.iter().filter(|record| record.spmv_s().is_some()) {
        matrices.entry((record.measurement.precision, &record.matrix)).or_default().push(record);
    }
    // How many times as fast the best candidates are: in the original basis, and in any.
    let speed_ups = |group: &Vec<&Record>| {
        let is_original = |record: &&Record| record.measurement.basis == Basis::Original;
        let original: Vec<&Record> = group.iter().copied().filter(is_original).collect();
        let (_, first_s) = incumbent(&original, None)?;
        let mut best = [0.0_f64; 2];
        for record in group {
            let csr_s = incumbent(&original, Some(record.run)).map_or(first_s, |(_, own_s)| own_s);
            let speed_up = csr_s / record.spmv_s()?;
            best[1] = best[1].max(speed_up);
            if is_original(record) {
                best[0] = best[0].max(speed_up);
            }
        }
        Some(best)
    };
    let mut text = String::from(
        "\n## All matrices\n\n| precision | matrices | best over CSR, geometric mean | in any basis \
         | least |\n|---|---|---|---|---|\n",
    );
    for precision in Precision::ALL {
        let of = matrices.iter().filter(|((of, _), _)| *of == precision);
        let speed_ups: Vec<[f64; 2]> = of.filter_map(|(_, group)| speed_ups(group)).collect();
        if speed_ups.is_empty() {
            continue;
        }
        let [original, any] = [0, 1].map(|i| geometric_mean(speed_ups.iter().map(|s| s[i])));
        let least = speed_ups.iter().map(|s| s[0]).fold(f64::INFINITY, f64::min);
        let count = speed_ups.len();
        text += &format!("| {precision} | {count} | {original:.3} | {any:.3} | {least:.2} |\n");
    }
    text
}

/// Share of the CSR byte floor that a time reaches; empty for devices without a profile here.
fn floor(record: &Record, s: f64) -> String {
    let devices = ellect::device::Device::shipped();
    let Some(device) = devices.iter().find(|d| d.name == record.measurement.device) else {
        return String::new();
    };
    let w = record.measurement.precision.bytes();
    let bytes = record.nnz * (4 + w) + record.nrows * (4 + w) + record.ncols * w;
    format!("{:.2}", bytes as f64 / device.read_gbps / 1e9 / s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_says_where_its_records_come_from() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/results/h200.jsonl");
        let records = recorded(&path, 0).expect("the records that ship");
        let text = origin(&records, "abc1234");
        let first = text.lines().next().expect("a line");
        assert!(first.starts_with("Device h200, NVIDIA H200, driver "), "{first}");
        assert!(first.contains("; revision abc1234; kernels "), "{first}");
        assert_eq!(first.matches("stcsr=").count(), 1, "{first}");
        assert!(!origin(&records, "").contains("revision"));
        assert_eq!(origin(&[], "abc1234"), "");
    }

    #[test]
    fn records_are_compared_with_csr_of_their_own_run() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/results/h200.jsonl");
        let records = recorded(&path, 0).expect("the records that ship");
        let of = |name: &str| {
            let found = records.iter().find(|record| record.measurement.candidate == name);
            found.expect("timed").clone()
        };
        let (csr, own) = (of(BASELINES[0]), of("coo"));
        assert_eq!((&csr.matrix, csr.measurement.precision), (&own.matrix, Precision::F64));
        // In a slower run another format beats CSR as this one does.
        let slower = |record: &Record, candidate: &str| {
            let mut record = Record { run: 1, ..record.clone() };
            record.measurement.candidate = candidate.to_string();
            if let Outcome::Timed(timing) = &mut record.measurement.outcome {
                timing.spmv.median_s *= 2.0;
            }
            record
        };
        let both = [csr.clone(), own.clone(), slower(&csr, BASELINES[0]), slower(&own, "jad")];
        let table = table(&both);
        let over = |name: &str| {
            let mut rows = table.lines().filter(|row| row.starts_with(&format!("| {name} ")));
            let row = rows.next().unwrap_or_else(|| panic!("{name}: {table}"));
            assert_eq!(rows.next(), None, "{name}: {table}");
            row.split('|').nth(3).expect("a column").trim().to_string()
        };
        assert_eq!(over(BASELINES[0]), "1.00");
        assert_eq!(over("jad"), over("coo"));
        assert_ne!(over("coo"), "1.00");
        assert_eq!(summary(&both), summary(&both[..2]));
    }
}
