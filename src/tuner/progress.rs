//! Progress of the measurements behind a choice.

use crate::measure::Measurement;

/// The event that a candidate was measured, the `done`-th of `total`.
///
/// ```
/// use ellect::choose::{Effort, Workload};
/// use ellect::measure::Protocol;
/// use ellect::{Tuner, device, generate};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = generate::by_name("heat", 500, 1)?;
/// let protocol = Protocol { max_samples: 3, max_s: 0.01, ..Protocol::default() };
/// let tuner = Tuner::without_models(device::find("cpu")?).with_protocol(protocol);
/// let workload = Workload { effort: Effort::Measure, ..Workload::default() };
/// let mut done = 0;
/// tuner.recommend_with(&csr, &workload, &mut |progress| {
///     println!("{} of {}: {}", progress.done, progress.total, progress.measurement.candidate);
///     done = progress.done;
/// })?;
/// assert!(done > 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Number of candidates measured so far, including this one.
    pub done: usize,
    /// Number of candidates to measure.
    pub total: usize,
    /// Result of the measurement.
    pub measurement: &'a Measurement,
}
