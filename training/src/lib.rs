//! Trains the models of `ellect` and shows how well they choose.
//!
//! Records of measurements and the matrices they are of make [`Case`]s; a [`Learner`] is chosen by
//! cross-validation over families of matrices, each wholly in or out; [`train()`] fits one regressor
//! a format; [`evaluate()`] replays the choice on predictions made without the matrix's family.
//! Nothing here is needed to predict: a model is plain numbers ([`ellect::model`]).

pub mod case;
mod dataset;
pub mod evaluate;
mod learner;
pub mod train;

pub use case::Case;
pub use evaluate::{Report, evaluate};
pub use learner::Learner;
pub use train::{Settings, train};
