//! Trains the models of `ellect` and evaluates how well they choose.
//!
//! Records of measurements and of their matrices are turned into [`Case`]s. Cross-validation over
//! families of matrices, each wholly in or out, chooses a [`Plan`]. [`train()`] fits one regressor
//! per format. [`evaluate()`] replays the choice on predictions made without the matrix's family.
//! Predicting needs nothing from this crate: a model is plain numbers ([`ellect::model`]).

mod amortized;
pub mod card;
pub mod case;
pub mod conversions;
pub mod corpus;
pub mod crossval;
mod dataset;
mod estimates;
pub mod evaluate;
mod gate;
mod goals;
pub mod guard;
mod learner;
pub mod plan;
mod plot;
pub mod policy_replay;
pub mod profile;
mod quick;
pub mod records;
mod regressors;
mod repeatability;
mod replay;
pub mod report;
pub mod rules;
#[cfg(test)]
mod sample_cases;
pub mod settings;
mod stages;
mod stats;
pub mod targets;
pub mod train;
mod tree;
pub mod trees;
pub mod tune;

pub use amortized::Total;
pub use case::Case;
pub use evaluate::evaluate;
pub use learner::Learner;
pub use plan::Plan;
pub use records::Records;
pub use report::Report;
pub use settings::Settings;
pub use stats::geometric_mean;
pub use train::{Trained, train};
