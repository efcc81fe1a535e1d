//! `ellect convert` writes a matrix in the arrays of a format.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use ellect::analysis::Analysis;
use ellect::device::{Device, Kind};
use ellect::export::Export;
use ellect::format::Candidate;
use ellect::units::bytes;
use ellect::{Csr, Precision, Scalar, Wisdom};

use super::recommend::{choose, matrix, tuner};
use super::{Answer, Home};
use crate::arguments::{Form, OptionalInput};
use crate::options::Options;
use crate::output::{note, print, print_json, table, write_file};

/// The format and the files to write.
#[derive(Debug, Args)]
pub struct Files {
    /// Candidate to convert to, hll or hll:hack=64,col=16 for instance (`ellect formats` lists
    /// them), or best for the one that `ellect recommend` chooses
    #[arg(long, value_name = "CANDIDATE", value_parser = Destination::parse)]
    pub to: Destination,
    /// The .npz file to write
    #[arg(long, short, value_name = "FILE")]
    pub output: PathBuf,
    /// Also write a program that multiplies by these arrays
    #[arg(long, value_enum, value_name = "LANGUAGE")]
    pub emit: Option<Language>,
    /// The program to write; its data is written beside it, with the ending .bin [default: the
    /// output, with the ending .cu]
    #[arg(long, value_name = "FILE", requires = "emit")]
    pub program: Option<PathBuf>,
}

/// A language of programs.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Language {
    /// CUDA C++
    Cuda,
}

/// The candidate to convert to.
#[derive(Clone, Debug)]
pub enum Destination {
    /// The candidate that is chosen for the matrix.
    Best,
    /// A candidate that is named.
    Named(Candidate),
}

impl Destination {
    fn parse(text: &str) -> ellect::Result<Self> {
        match text {
            "best" => Ok(Destination::Best),
            text => text.parse().map(Destination::Named),
        }
    }
}

impl Files {
    /// Checks that all are regular files, because their writers go back to earlier places, and that
    /// none is the file of the matrix.
    fn check(&self, matrix: Option<&Path>) -> Result<()> {
        let program = self.program()?;
        let matrix = matrix.and_then(|matrix| fs::canonicalize(matrix).ok());
        for file in std::iter::once(&self.output).chain(program.iter().flatten()) {
            ensure!(
                matrix.is_none() || fs::canonicalize(file).ok() != matrix,
                "{} would be written over the matrix; name another file with --output or --program",
                file.display()
            );
            let other = fs::metadata(file).is_ok_and(|there| !there.is_file());
            ensure!(
                !other && file != Path::new("-"),
                "{} is no regular file, and its content cannot go to a pipe or a device; name a file",
                file.display()
            );
        }
        Ok(())
    }

    /// Returns the program and its data, if they are written.
    fn program(&self) -> Result<Option<[PathBuf; 2]>> {
        if self.emit.is_none() {
            return Ok(None);
        }
        let program = self.program.clone().unwrap_or_else(|| self.output.with_extension("cu"));
        let data = program.with_extension("bin");
        let files = [&self.output, &program, &data];
        let twice = files[0] == files[1] || files[0] == files[2] || files[1] == files[2];
        ensure!(
            !twice,
            "the layout, the program and its data would be one file: {}, {} and {}; name the layout \
             with the ending .npz and the program with .cu",
            files[0].display(),
            files[1].display(),
            files[2].display()
        );
        Ok(Some([program, data]))
    }
}

/// Converts a matrix and writes the files.
pub fn run(
    input: &OptionalInput,
    convert: &Files,
    options: &Options,
    form: Form,
    home: &Home,
) -> Result<Answer> {
    if options.top > 0 || !options.fields.is_empty() {
        bail!("--top and --fields are options of `ellect recommend`; convert has no use for them");
    }
    convert.check(input.file.as_deref())?;
    let backend = options.product.backend(&home.data)?;
    let device = backend.device();
    ensure!(
        convert.emit.is_none() || device.kind == Kind::Gpu,
        "--emit cuda needs a layout for a GPU, and {} is none; name one with --device, h200 for \
         instance (`ellect devices` lists them)",
        device.name
    );
    match options.product.precision {
        Precision::F32 => write::<f32>(input, convert, options, form, home, device),
        Precision::F64 => write::<f64>(input, convert, options, form, home, device),
    }?;
    Ok(Answer::Yes)
}

/// Reads the matrix, and returns it with the candidate to convert to.
fn candidate<T: Scalar>(
    input: &OptionalInput,
    convert: &Files,
    options: &Options,
    home: &Home,
) -> Result<(Csr<T>, Candidate)> {
    if let Destination::Named(candidate) = &convert.to {
        return Ok((matrix(input, options)?, candidate.clone()));
    }
    let (tuner, wisdom) = tuner(input, options, home)?;
    let csr = matrix(input, options)?;
    let candidate = choose(&csr, options, tuner)?.candidate;
    wisdom.as_deref().map_or(Ok(()), Wisdom::close)?;
    Ok((csr, candidate))
}

/// Converts the matrix and writes the files.
fn write<T: Scalar>(
    input: &OptionalInput,
    convert: &Files,
    options: &Options,
    form: Form,
    home: &Home,
    device: &Device,
) -> Result<()> {
    let (csr, candidate) = candidate::<T>(input, convert, options, home)?;
    let csr = &csr;
    let target = candidate.target(&options.product.target(device));
    let analysis = Analysis::of(csr);
    candidate.work(&analysis, &target).map_err(|reason| candidate.refused(&reason))?;
    let layout = candidate.convert(csr, &analysis, &target)?;
    // The program compares its products with the matrix that the layout holds.
    let rounded = (candidate.rounding(&target) > 0.0).then(|| layout.to_csr());
    let csr = rounded.as_ref().unwrap_or(csr);
    let export = Export::new(&candidate, layout.as_ref(), csr, &target)?;
    write_file(&convert.output, |out| Ok(export.npz(out)?))?;
    if let Some([program, data]) = convert.program()? {
        let mut hash = 0;
        write_file(&data, |out| {
            hash = export.program_data(out)?;
            Ok(())
        })?;
        let text = export.program(&name(&program)?, &name(&data)?, hash)?;
        write_file(&program, |out| Ok(out.write_all(text.as_bytes())?))?;
        note(&format!("written: {} and its data {}", program.display(), data.display()));
    }
    match form.json {
        true => print_json(&export.metadata()),
        false => print(&view(&candidate, csr, &export, &convert.output)),
    }
}

/// Returns the name of a file in its folder.
fn name(path: &Path) -> Result<String> {
    let name = path.file_name().with_context(|| format!("{} is no file", path.display()))?;
    Ok(name.to_string_lossy().into_owned())
}

/// Returns what was written, as text.
fn view<T: Scalar>(
    candidate: &Candidate,
    csr: &Csr<T>,
    export: &Export<'_, T>,
    file: &Path,
) -> String {
    let rows = export.arrays().iter().map(|array| {
        let shape = array.shape().iter().map(usize::to_string).collect::<Vec<_>>().join(" x ");
        let size = bytes(array.bytes.len() as u64);
        let meaning = array.meaning.to_string();
        vec![array.name.to_string(), array.element.numpy().into(), shape, size, meaning]
    });
    let head = ["array", "dtype", "shape", "memory", "of each element"];
    let mut text = format!(
        "{}: {candidate} of {} rows, {} columns and {} entries\n\n",
        file.display(),
        csr.nrows(),
        csr.ncols(),
        csr.nnz()
    );
    text += &table(&head, rows.collect(), &[0, 1, 4]);
    for number in export.numbers() {
        text += &format!("{} = {}: {}\n", number.name, number.value, number.meaning);
    }
    text
}
