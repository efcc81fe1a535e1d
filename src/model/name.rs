//! The name of a model: what an answer says about the model that predicted.

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use super::Model;

/// Identity of a model, which every answer of the model names.
///
/// ```
/// use ellect::model::Model;
/// use ellect::{Precision, device};
///
/// # fn main() -> ellect::Result<()> {
/// if let Some(model) = Model::shipped(&device::find("h200")?, Precision::F64)? {
///     let name = model.name();
///     assert_eq!((name.device.as_str(), name.id.len()), ("h200", 8));
///     assert!(name.matrices.is_some_and(|matrices| matrices > 100));
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelName {
    /// Hash of the records, the seed and the plan that the model was trained with, 8 hexadecimal
    /// digits.
    pub id: String,
    /// Name of the device that the model was trained for, or of its proxy device.
    pub device: String,
    /// Time of the training, in seconds since 1970; `None` if it was not recorded.
    pub trained_at: Option<u64>,
    /// Number of matrices that the model was trained on; `None` if it was not recorded.
    pub matrices: Option<u64>,
}

impl Model {
    /// Returns the name of this model.
    pub fn name(&self) -> ModelName {
        let Model { device, precision, data, seed, commit, plan, .. } = self;
        let mut hash = Xxh3::new();
        for part in [device, &precision.to_string(), data, &seed.to_string(), commit, plan] {
            hash.update(part.as_bytes());
            hash.update(b"\0");
        }
        ModelName {
            id: format!("{:08x}", hash.digest() >> 32),
            device: device.clone(),
            trained_at: self.trained_at,
            matrices: self.scores.get("cases").map(|&cases| cases as u64),
        }
    }
}

impl ModelName {
    /// Returns the day of the training, `2026-11-27` for instance; `None` if it was not recorded.
    pub fn day(&self) -> Option<String> {
        self.trained_at.map(day)
    }
}

impl std::fmt::Display for ModelName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "model {} of {}", self.id, self.device)?;
        match (self.day(), self.matrices) {
            (Some(day), Some(matrices)) => write!(f, " ({day}, {matrices} matrices)"),
            (Some(day), None) => write!(f, " ({day})"),
            (None, Some(matrices)) => write!(f, " ({matrices} matrices)"),
            (None, None) => Ok(()),
        }
    }
}

/// Returns the day of a time in seconds since 1970, in the Gregorian calendar and UTC.
///
/// Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms" (2013): years begin in March, so
/// that the leap day is the last of a year.
fn day(seconds: u64) -> String {
    let days = seconds / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + 400 * era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_days_of_the_calendar() {
        // From `date -u -d @SECONDS +%F`.
        let known = [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_795_824_000, "2026-11-28"),
        ];
        for (seconds, expected) in known {
            assert_eq!(day(seconds), expected, "{seconds}");
        }
    }
}
