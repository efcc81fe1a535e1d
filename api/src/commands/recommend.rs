//! `ellect recommend` chooses a format for a matrix.

use std::sync::Arc;

use anyhow::{Result, bail};
use ellect::choose::Choice;
use ellect::model::Predictor;
use ellect::{Csr, Precision, Scalar, Tuner, Wisdom};
use indicatif::ProgressBar;

use super::{Answer, Home, read_matrix, source};
use crate::arguments::{Form, OptionalInput};
use crate::options::Options;
use crate::output::{bar, print, print_json};
use crate::tuner_of::tuner_of;
use crate::views;

/// Prints the choice for a matrix.
pub fn run(
    input: &OptionalInput,
    options: &Options,
    form: Form,
    why: bool,
    home: &Home,
) -> Result<Answer> {
    let (tuner, wisdom) = tuner(input, options, home)?;
    let choice = match options.product.precision {
        Precision::F32 => choose(&matrix::<f32>(input, options)?, options, tuner)?,
        Precision::F64 => choose(&matrix::<f64>(input, options)?, options, tuner)?,
    };
    wisdom.as_deref().map_or(Ok(()), Wisdom::close)?;
    match form.json {
        true => print_json(&options.answer(&choice)?)?,
        false => print(&views::choice(&choice, options.top, why))?,
    }
    Ok(Answer::Yes)
}

/// Opens the device, with the models and stored measurements that the effort uses.
///
/// Before a large file is read, so that a wrong name is reported first.
pub(super) fn tuner(
    input: &OptionalInput,
    options: &Options,
    home: &Home,
) -> Result<(Tuner, Option<Arc<Wisdom>>)> {
    let backend = options.backend(&home.data)?;
    let wisdom = home.wisdom(options.effort)?;
    let tuner = tuner_of(options, backend, wisdom.clone(), |device, purpose| {
        Predictor::open(&home.data, device, purpose).map(|model| model.map(Arc::new))
    })?;
    Ok((tuner.with_source(name(input, options)), wisdom))
}

/// Returns the name of the matrix, for records.
fn name(input: &OptionalInput, options: &Options) -> String {
    match (&options.generate, &input.file) {
        (Some(spec), _) => spec.to_string(),
        (None, file) => file.as_deref().map(source).unwrap_or_default(),
    }
}

/// Reads or generates the matrix.
pub(super) fn matrix<T: Scalar>(input: &OptionalInput, options: &Options) -> Result<Csr<T>> {
    let reading = input.limits.options();
    match (&input.file, options.generated::<T>(&reading.limits, "bytes")?) {
        (_, Some(csr)) => Ok(csr),
        (Some(file), None) => read_matrix(file, &reading),
        (None, None) => bail!("name a matrix file, or a generated matrix with --generate"),
    }
}

/// Chooses for a matrix, and shows the progress of timings.
pub(super) fn choose<T: Scalar>(csr: &Csr<T>, options: &Options, tuner: Tuner) -> Result<Choice> {
    let mut shown: Option<ProgressBar> = None;
    let choice = options.recommend(csr, tuner, &mut |progress| {
        let bar = shown.get_or_insert_with(|| bar(progress.total as u64, "timing"));
        bar.set_position(progress.done as u64);
        bar.set_message(progress.measurement.candidate.clone());
    })?;
    if let Some(bar) = shown {
        bar.finish_and_clear();
    }
    Ok(choice)
}
