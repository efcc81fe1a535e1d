//! The library call: a matrix and a workload in, a choice or a prepared operator out.

use crate::choose::{self, Choice, Effort, Verify, Workload};
use crate::csr::Csr;
use crate::device::{Device, Kind};
use crate::error::{Error, Result};
use crate::operator::PreparedOperator;
use crate::scalar::Scalar;
use crate::structure::Structure;

/// Chooses and prepares for one device.
#[derive(Clone, Debug)]
pub struct Tuner {
    device: Device,
}

/// The seed of vectors that a prepared operator is verified on.
const VERIFY_SEED: u64 = 1;

impl Tuner {
    /// A tuner for this device: see [`crate::device::find`].
    pub fn new(device: Device) -> Self {
        Tuner { device }
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Ranks every candidate for this matrix.
    ///
    /// # Errors
    /// [`Error::Device`] where the effort asks for measuring on a device that is not here.
    pub fn recommend<T: Scalar>(&self, csr: &Csr<T>, workload: &Workload) -> Result<Choice> {
        let workload = Workload { precision: T::PRECISION, ..*workload };
        if workload.effort >= Effort::Measure && self.device.kind != Kind::Host {
            return Err(Error::Device(format!(
                "{} cannot be measured by this program; choose effort estimate or predict, or \
                 device cpu",
                self.device.name
            )));
        }
        let structure = Structure::new(csr.pattern());
        Ok(choose::choose(&structure, &self.device, &workload, &[]))
    }

    /// Chooses, converts and hands out the operator.
    ///
    /// # Errors
    /// As [`Tuner::recommend`], and [`Error::WrongProduct`] where verifying was asked for and failed.
    pub fn prepare<T: Scalar>(
        &self,
        csr: &Csr<T>,
        workload: &Workload,
    ) -> Result<PreparedOperator<T>> {
        let workload = Workload { precision: T::PRECISION, ..*workload };
        let choice = self.recommend(csr, &workload)?;
        let structure = Structure::new(csr.pattern());
        let target = choose::target(&self.device, &workload);
        let operator = PreparedOperator::with_structure(csr, &structure, &choice.choice, &target)?
            .with_choice(choice);
        if workload.verify == Verify::OnPrepare {
            operator.verify(csr, VERIFY_SEED)?;
        }
        Ok(operator)
    }
}
