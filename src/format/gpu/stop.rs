//! The reason why a conversion on a GPU stopped.

use super::super::Refusal;
use crate::error::Error;

/// The reason why a conversion stopped.
#[derive(Debug)]
pub enum Stop {
    /// The format does not apply to the matrix.
    Refused(Refusal),
    /// The device failed.
    Failed(Error),
    /// This variant is converted on the host.
    OnHost,
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Stop::Refused(refusal)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Failed(error)
    }
}
