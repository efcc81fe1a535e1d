//! Choices from features alone, for a matrix that is not at hand.

use super::Tuner;
use crate::choose::{Choice, Effort, Workload, baseline_spmv_s};
use crate::device::Kind;
use crate::error::{Error, Result};
use crate::features::{FEATURES, Features};
use crate::model::Stage;
use crate::scalar::Precision;

impl Tuner {
    /// Chooses for a matrix of which only features are known.
    ///
    /// The choice is that of a matrix in the memory of a GPU: it ranks the candidates that the
    /// quick model knows, and has no fingerprint. The model uses its first stage if features are
    /// missing that the later ones need.
    ///
    /// ```
    /// use ellect::choose::Workload;
    /// use ellect::features::Features;
    /// use ellect::{Precision, Tuner, generate};
    ///
    /// # fn main() -> ellect::Result<()> {
    /// let tuner = Tuner::open("h200")?;
    /// let known = tuner.recommend(&generate::by_name("heat", 5000, 1)?, &Workload::default())?;
    /// let named = known.features.iter().map(|(feature, value)| (feature.name, value));
    /// let features = Features::named(named.filter(|(_, value)| value.is_finite()))?;
    /// let choice = tuner.recommend_from(features, Precision::F64, &Workload::default())?;
    /// assert!(choice.ranking.len() > 1 && choice.fingerprint.is_none());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] if the device has no quick model of this precision, which only GPUs have,
    /// or the effort is not [`Effort::Predict`], or a product has several vectors or multiplies by the
    /// transpose.
    pub fn recommend_from(
        &self,
        features: Features,
        precision: Precision,
        workload: &Workload,
    ) -> Result<Choice> {
        let device = self.device();
        if workload.effort != Effort::Predict {
            let stated = format!(
                "effort is {}; a choice from features alone needs effort predict",
                workload.effort
            );
            return Err(Error::argument(stated));
        }
        workload.check(precision)?;
        if workload.vectors > 1 {
            let stated = format!(
                "features alone choose for products of one vector, not of {}; give the matrix",
                workload.vectors
            );
            return Err(Error::argument(stated));
        }
        if workload.transposed > 0 {
            let stated = "features of a matrix do not tell those of its transpose; give the matrix, \
                          or ask for no products with the transpose";
            return Err(Error::argument(stated));
        }
        let target = workload.target(device, precision);
        let size = features.size();
        let baseline_s = size.and_then(|size| baseline_spmv_s(size, &target));
        let has = |stage: Stage| {
            let mut needed = FEATURES.iter().filter(|feature| stage.knows(feature.name));
            needed.all(|feature| features.has(feature))
        };
        let stage = Stage::ALL.into_iter().rev().find(|&stage| has(stage)).unwrap_or_default();
        let choice = match device.kind {
            Kind::Gpu => {
                self.rank_quick(stage, &features, &target, workload, baseline_s, |_| Ok(false))?
            }
            Kind::Host => None,
        };
        choice.ok_or_else(|| {
            Error::argument(format!(
                "features alone choose nothing on {}: that needs a GPU with a trained model; give                  the matrix",
                device.name
            ))
        })
    }
}
