//! Refusals: answers of candidates that do not apply to a matrix.

use serde::Serialize;

/// The reason why a candidate does not apply to a matrix, with the needed and the allowed figure. A
/// refusal is an answer, not an error.
///
/// ```
/// use ellect::format::Refusal;
///
/// let refusal = Refusal::new("the layout takes 2000 bytes; 1000 are allowed");
/// assert!(refusal.to_string().contains("1000") && !refusal.is_untried());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Refusal {
    reason: String,
    #[serde(skip)]
    grounds: Grounds,
}

/// The basis of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grounds {
    /// The matrix and the limits: a conversion would be refused, too.
    Facts,
    /// The cost of the analysis, which an estimate does not pay: a conversion may be accepted.
    Patience,
}

impl Refusal {
    /// Creates a refusal; `reason` states the needed and the allowed figure.
    pub fn new(reason: impl Into<String>) -> Self {
        Refusal { reason: reason.into(), grounds: Grounds::Facts }
    }

    /// Creates a refusal of a candidate that was not analysed because that would take longer than
    /// an estimate may.
    pub fn untried(reason: impl Into<String>) -> Self {
        Refusal { reason: reason.into(), grounds: Grounds::Patience }
    }

    /// Returns true if trying the candidate may show that it applies.
    pub fn is_untried(&self) -> bool {
        self.grounds == Grounds::Patience
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.reason)
    }
}
