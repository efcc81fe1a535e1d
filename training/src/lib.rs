//! Trains the models of `ellect` and shows how well they choose.
//!
//! Records of measurements and the matrices they are of make [`Case`]s; a [`Plan`] is chosen by
//! cross-validation over families of matrices, each wholly in or out; [`train()`] fits one regressor
//! a format; [`evaluate()`] replays the choice on predictions made without the matrix's family.
//! Nothing here is needed to predict: a model is plain numbers ([`ellect::model`]).

mod again;
mod by_features;
pub mod card;
pub mod case;
pub mod corpus;
mod dataset;
pub mod evaluate;
pub mod figures;
mod learner;
pub mod plan;
mod plot;
pub mod policy_replay;
pub mod profile;
pub mod replay;
mod sight;
mod survey;
mod totals;
pub mod train;
mod tree;
pub mod tune;

pub use case::Case;
pub use evaluate::{Report, evaluate};
pub use learner::Learner;
pub use plan::Plan;
pub use replay::geometric_mean;
pub use totals::Total;
pub use train::{Settings, Trained, train};
