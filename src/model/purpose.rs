//! The products that a model predicts.

use std::fmt;
use std::str::FromStr;

use super::Model;
use crate::error::{Error, Result};
use crate::scalar::Precision;

/// Ending of the names of models for several vectors.
const SEVERAL: &str = "-several";

/// The products that a model predicts: their precision, and whether they have several vectors.
///
/// A model of several vectors is for any number of them: it corrects estimates that are made for
/// that number.
///
/// ```
/// use ellect::Precision;
/// use ellect::model::Purpose;
///
/// assert_eq!(Purpose::of(Precision::F64, 1), Purpose::from(Precision::F64));
/// assert_eq!(Purpose::of(Precision::F64, 1).to_string(), "f64");
/// assert_eq!(Purpose::of(Precision::F32, 4).to_string(), "f32-several");
/// assert!(Purpose::ALL.iter().all(|purpose| purpose.to_string().parse().ok() == Some(*purpose)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Purpose {
    /// Precision of the values.
    pub precision: Precision,
    /// True for products with several vectors, false for those with one.
    pub several: bool,
}

impl Purpose {
    /// Every purpose.
    pub const ALL: [Purpose; 2 * Precision::ALL.len()] = {
        let mut all = [Purpose { precision: Precision::ALL[0], several: false }; 4];
        let mut i = 0;
        while i < all.len() {
            all[i] = Purpose { precision: Precision::ALL[i / 2], several: i % 2 == 1 };
            i += 1;
        }
        all
    };

    /// Returns the purpose of a model for products with this number of vectors.
    pub fn of(precision: Precision, vectors: usize) -> Self {
        Purpose { precision, several: vectors > 1 }
    }
}

/// The purpose of a model for products with one vector.
impl From<Precision> for Purpose {
    fn from(precision: Precision) -> Self {
        Purpose { precision, several: false }
    }
}

/// As in names of model files: `f64`, or `f64-several`.
impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let several = if self.several { SEVERAL } else { "" };
        write!(f, "{}{several}", self.precision)
    }
}

/// Reads a purpose as it is written in names of model files.
impl FromStr for Purpose {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let one = text.strip_suffix(SEVERAL);
        Ok(Purpose { precision: one.unwrap_or(text).parse()?, several: one.is_some() })
    }
}

impl Model {
    /// Returns what the model predicts.
    pub fn purpose(&self) -> Purpose {
        Purpose { precision: self.precision, several: self.several }
    }
}
