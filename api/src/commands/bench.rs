//! `ellect bench` times candidates on many matrices and prints a table of results.

mod choices;
mod features;
mod page;
mod sharded;
#[cfg(feature = "cuda")]
mod solver;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use ellect::analysis::Analysis;
use ellect::choose::Workload;
use ellect::format::{BASELINES, Basis, Candidate, candidates};
use ellect::generate::{self, Spec};
use ellect::measure::{Backend, Measurement, Outcome, Protocol};
use ellect::read;
use ellect::units::count;
use ellect::unstable::session::{Session, SessionEvent, Task, TimeLimits};
use ellect::unstable::wisdom::{self, StructureRecord};
use ellect::{Csr, Precision, Scalar};
use ellect_training::corpus::stem;
use serde::{Deserialize, Serialize};

use super::Answer;
use super::records::read_lines;
use crate::options::{duration, size, timing_backend, vectors};
use crate::output::{bar, print};

/// Arguments of `ellect bench`.
#[derive(Debug, Args)]
pub struct Bench {
    /// Device of this machine: cpu, or cuda:0 with the feature cuda
    #[arg(long, default_value = "cpu", value_name = "NAME")]
    device: String,
    /// A generated matrix, as for `generate`: CLASS:ROWS, CLASS:ROWS:rcm; may be repeated
    #[arg(long, value_name = "CLASS:ROWS")]
    class: Vec<Spec>,
    /// A matrix file; may be repeated
    #[arg(long, value_name = "FILE")]
    file: Vec<PathBuf>,
    /// Repeat files along the diagonal, with the copies coupled, until they have NNZ nonzeros
    #[arg(long, default_value_t = 0, value_name = "NNZ", value_parser = size)]
    scale: usize,
    /// Precisions to time
    #[arg(long, value_delimiter = ',', default_value = "f64,f32")]
    precision: Vec<Precision>,
    /// Basis of x and y: original or permuted
    #[arg(long, default_value_t = Basis::Original)]
    basis: Basis,
    /// Vectors of each product: 1, or more for several right-hand sides at a time
    #[arg(long, default_value_t = 1, value_name = "K", value_parser = vectors,
        conflicts_with_all = ["devices", "features", "choices", "records", "solver"])]
    vectors: usize,
    /// Time products with the transposes of the matrices: candidates store the transpose, and cuSPARSE also
    /// multiplies with the transpose of the matrix that it stores
    #[arg(long, conflicts_with_all = ["devices", "features", "choices", "records", "solver", "vectors"])]
    transposed: bool,
    /// Divide each matrix among these devices instead, and compare products with those of one
    #[arg(long, value_delimiter = ',', value_name = "NAMES",
        conflicts_with_all = ["device", "features", "choices", "records", "only"])]
    devices: Vec<String>,
    /// Division of the rows, with --devices: equal-rows, equal-nonzeros, equal-times or few-cuts
    #[arg(long, default_value = "equal-nonzeros", value_name = "SPLIT", requires = "devices")]
    split: sharded::Division,
    /// Modes of the exchange and the products, with --devices: auto, vector, overlap, naive, task,
    /// pcsr-i, pcsr-ii [default: all; overlap where auto takes it]
    #[arg(long = "mode", value_delimiter = ',', value_name = "MODES", requires = "devices")]
    modes: Vec<ellect::sharded::Mode>,
    /// Time iterations of conjugate gradients: too with --devices, else on one GPU with fused steps and
    /// without, for the candidates that --only names, or the chosen one
    #[arg(long, conflicts_with_all = ["features", "choices", "records"])]
    solver: bool,
    /// Only candidates whose name begins with this text, in addition to the CSR baseline; may be
    /// repeated
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Time limit of one candidate, including its conversion [default: 120s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    limit: Option<Duration>,
    /// Print one JSON record per line instead of the table
    #[arg(long, conflicts_with = "records")]
    json: bool,
    /// Time only CSR and the computation of features, and compare the features with the host's
    #[arg(long, conflicts_with_all = ["json", "records", "only"])]
    features: bool,
    /// Compare ways to choose a candidate for this host with the best one
    #[arg(long, conflicts_with_all = ["json", "records", "only", "features"])]
    choices: bool,
    /// An earlier build of this program, whose choices are compared too, with --choices
    #[arg(long, value_name = "PROGRAM", requires = "choices")]
    before: Option<PathBuf>,
    /// Number of products, with --choices
    #[arg(long, default_value_t = 10_000, value_name = "N", value_parser = count, requires = "choices")]
    spmvs: u64,
    /// Time nothing: print the tables of these records, plain or .zst; may be repeated
    #[arg(long, value_name = "FILE.jsonl")]
    records: Vec<PathBuf>,
    /// Only records of matrices whose names contain this text
    #[arg(long, default_value = "", value_name = "TEXT")]
    named: String,
    /// Revision of the program that made the timings, to note in the table
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
    /// Index of the run that timed the candidate; each file of records is one run.
    #[serde(skip)]
    run: usize,
    #[serde(flatten)]
    measurement: Measurement,
}

impl Record {
    /// Returns the median time of a product in seconds; `None` if the candidate was not timed.
    fn spmv_s(&self) -> Option<f64> {
        match &self.measurement.outcome {
            Outcome::Timed(timing) => Some(timing.spmv.median_s),
            _ => None,
        }
    }
}

/// Returns the baseline among records of one matrix in one precision, and its time in seconds.
///
/// The baseline is that of this run; if `run` is `None`, the first one found.
fn baseline_record<'a>(group: &[&'a Record], run: Option<usize>) -> Option<(&'a Record, f64)> {
    let of_run = |r: &&&Record| run.is_none_or(|run| r.run == run);
    BASELINES.into_iter().find_map(|name| {
        let mut named = group.iter().filter(|r| r.measurement.candidate == name);
        named.find(of_run).and_then(|r| Some((*r, r.spmv_s()?)))
    })
}

/// Times candidates, or reads records, and prints the records or their table.
pub fn run(bench: &Bench, data: &Path) -> Result<Answer> {
    if bench.features {
        return features::run(bench, data);
    }
    if bench.choices {
        return choices::run(bench, data);
    }
    if !bench.devices.is_empty() {
        return sharded::run(bench, data);
    }
    if bench.solver {
        return solver(bench, data);
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
        print(&page::head(&records, &bench.commit))?;
        print(&(bench.made_by() + &page::summary(&records) + &page::table(&records)))?;
    }
    Ok(Answer::Yes)
}

/// Times iterations of conjugate gradients on one GPU.
fn solver(bench: &Bench, data: &Path) -> Result<Answer> {
    #[cfg(feature = "cuda")]
    return solver::run(bench, data);
    #[cfg(not(feature = "cuda"))]
    {
        let _ = (bench, data);
        bail!("--solver times GPUs, and this program has none: build it with the feature cuda");
    }
}

/// Reads a file of records as run number `run`.
///
/// The file is from `bench --json`, `wisdom export` or `tune --export`.
fn recorded(path: &Path, run: usize) -> Result<Vec<Record>> {
    let mut matrices = HashMap::new();
    let mut records = Vec::new();
    for (i, line) in read_lines(path)?.lines().enumerate() {
        let what = || format!("{}: line {}", path.display(), i + 1);
        match serde_json::from_str(line).with_context(what)? {
            Line::Own(record) => records.push(Record { run, ..*record }),
            Line::Wisdom(wisdom::Record::Structure(analysis)) => {
                matrices.insert(analysis.fingerprint, analysis);
            }
            // The tables are about products of one vector.
            Line::Wisdom(wisdom::Record::Measurement(m)) if !m.is_of_one_vector() => {}
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

/// A line of a file of records.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    /// A line that `wisdom export` writes.
    Wisdom(wisdom::Record),
    /// A line that `bench --json` writes.
    Own(Box<Record>),
}

fn time(bench: &Bench, data: &Path) -> Result<Vec<Record>> {
    let backend = match bench.transposed {
        // A process that times candidates for another one does not time this product of cuSPARSE.
        true => Backend::open(&bench.device, data)?,
        false => timing_backend(&bench.device, data)?,
    };
    backend.check()?;
    if bench.transposed {
        backend.gpu().context("--transposed compares with cuSPARSE, which needs a GPU")?;
    }
    let chosen: Vec<Candidate> = candidates(backend.device().kind)
        .into_iter()
        .filter(|c| c.is_among(&bench.only) || BASELINES.contains(&c.to_string().as_str()))
        .collect();
    let mut records = Vec::new();
    let mut time = |name: &str, csr: &Csr<f64>| -> Result<()> {
        let turned;
        let (name, csr) = match bench.transposed {
            true => {
                turned = csr.transpose();
                (&*format!("{name}^T"), &turned)
            }
            false => (name, csr),
        };
        if bench.json {
            // This record lets models learn from the other records without the matrix.
            let matrix = StructureRecord::of(&Analysis::sampled(csr), name, "");
            print(&(serde_json::to_string(&wisdom::Record::Structure(matrix))? + "\n"))?;
        }
        for precision in &bench.precision {
            match precision {
                Precision::F32 => {
                    one(name, &csr.cast::<f32>(), bench, &backend, &chosen, &mut records)?;
                }
                Precision::F64 => one(name, csr, bench, &backend, &chosen, &mut records)?,
            }
        }
        Ok(())
    };
    bench.matrices(&mut time)?;
    Ok(records)
}

impl Bench {
    /// Returns a Markdown item with the command that reprints this page; empty if no records were
    /// read.
    fn made_by(&self) -> String {
        if self.records.is_empty() {
            return String::new();
        }
        let mut command = String::from("ellect bench");
        for path in &self.records {
            command += &format!(" --records {}", path.display());
        }
        for (option, text) in [("named", &self.named), ("commit", &self.commit)] {
            if !text.is_empty() {
                command += &format!(" --{option} '{text}'");
            }
        }
        format!("- Printed by: `{command}`\n")
    }

    /// Calls `each` with the name and the entries of each matrix.
    fn matrices(&self, each: &mut dyn FnMut(&str, &Csr<f64>) -> Result<()>) -> Result<()> {
        if self.class.is_empty() && self.file.is_empty() {
            bail!("nothing was timed: name a --class or a --file");
        }
        for spec in &self.class {
            each(&spec.to_string(), &spec.make())?;
        }
        for path in &self.file {
            let context = || path.display().to_string();
            let csr = read::file(path, &read::Limits::default()).with_context(context)?;
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
    backend: &Backend,
    chosen: &[Candidate],
    records: &mut Vec<Record>,
) -> Result<()> {
    let workload = Workload { basis: bench.basis, ..Workload::default() };
    let target = workload.target(backend.device(), T::PRECISION);
    let analysis = Analysis::sampled(csr);
    let session = Session::new(backend, csr, &analysis, target)
        .with_protocol(Protocol { vectors: bench.vectors, ..protocol() })
        .with_limits(TimeLimits { each: bench.limit, ..TimeLimits::default() });
    let bar = bar(chosen.len() as u64, "timing");
    session.run(chosen.iter().map(Task::from), &mut |step| -> Result<()> {
        let measurement = match step {
            SessionEvent::Timing(candidate) => {
                bar.set_message(format!("{name} {candidate}"));
                return Ok(());
            }
            SessionEvent::Measured { measurement, .. }
            | SessionEvent::Interrupted { measurement, .. } => measurement.clone(),
            SessionEvent::Late(_) => return Ok(()),
        };
        bar.inc(1);
        kept(name, csr, bench, measurement, records)
    })?;
    bar.finish_and_clear();
    if bench.transposed {
        let measurement = backend.vendor_transposed(csr, &analysis, &target, &protocol())?;
        kept(name, csr, bench, measurement, records)?;
    }
    Ok(())
}

/// Keeps the record of a measurement, and prints it if records are wanted.
fn kept<T: Scalar>(
    name: &str,
    csr: &Csr<T>,
    bench: &Bench,
    measurement: Measurement,
    records: &mut Vec<Record>,
) -> Result<()> {
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
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::page::{head, summary, table};
    use super::*;

    #[test]
    fn the_table_says_where_its_records_come_from() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/results/h200.jsonl.zst");
        let records = recorded(&path, 0).expect("the records that ship");
        let text = head(&records, "abc1234");
        let first = text.lines().next().expect("a line");
        assert_eq!(first, "# Times of every storage format on h200");
        assert!(text.contains("\n- Device: h200, NVIDIA H200, driver "), "{text}");
        assert!(text.contains("\n- Revision: abc1234\n- Kernels: "), "{text}");
        assert_eq!(text.matches("st_csr=").count(), 1, "{text}");
        assert!(!head(&records, "").contains("Revision"));
        assert_eq!(head(&[], "abc1234"), "");
    }

    #[test]
    fn records_are_compared_with_csr_of_their_own_run() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/results/h200.jsonl.zst");
        let records = recorded(&path, 0).expect("the records that ship");
        let of = |name: &str| {
            let found = records.iter().find(|record| record.measurement.candidate == name);
            found.expect("timed").clone()
        };
        let (csr, own) = (of(BASELINES[0]), of("coo"));
        assert_eq!((&csr.matrix, csr.measurement.precision), (&own.matrix, Precision::F64));
        // A run half as fast, in which the other format has the same speed-up over CSR.
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
