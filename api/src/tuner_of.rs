//! Construction of the tuner from options, for the command line and the service.

use std::sync::Arc;

use ellect::device::Device;
use ellect::measure::Backend;
use ellect::model::{Predictor, Purpose};
use ellect::{Tuner, Wisdom};

use crate::options::Options;

/// Returns a tuner over `backend` and `wisdom`.
///
/// It has the model that `model` opens if the effort uses models.
///
/// # Errors
/// If `model` fails.
pub fn tuner_of<E>(
    options: &Options,
    backend: impl Into<Arc<Backend>>,
    wisdom: Option<Arc<Wisdom>>,
    model: impl FnOnce(&Device, Purpose) -> Result<Option<Arc<Predictor>>, E>,
) -> Result<Tuner, E> {
    let mut tuner = Tuner::without_models(backend);
    let product = &options.product;
    if options.predicts()
        && let Some(model) = model(tuner.device(), Purpose::of(product.precision, product.vectors))?
    {
        tuner = tuner.with_model(model);
    }
    Ok(match wisdom {
        Some(wisdom) => tuner.with_wisdom(wisdom),
        None => tuner,
    })
}
