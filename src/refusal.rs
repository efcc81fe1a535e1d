//! The answer of a format that does not apply to a matrix.

use serde::Serialize;

/// Why a variant does not suit a matrix, with the needed and the allowed figure: an answer, not an
/// error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Refusal {
    reason: String,
    #[serde(skip)]
    grounds: Grounds,
}

/// What a refusal rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grounds {
    /// The matrix and the limits: trying would refuse it too.
    Facts,
    /// What an estimate may take: trying may accept it.
    Patience,
}

impl Refusal {
    /// A refusal; `reason` gives what was needed and what is allowed.
    pub fn new(reason: impl Into<String>) -> Self {
        Refusal { reason: reason.into(), grounds: Grounds::Facts }
    }

    /// A refusal to find out: doing so takes longer than an estimate may.
    pub fn untried(reason: impl Into<String>) -> Self {
        Refusal { reason: reason.into(), grounds: Grounds::Patience }
    }

    /// Whether trying may show that the variant suits.
    pub fn is_untried(&self) -> bool {
        self.grounds == Grounds::Patience
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.reason)
    }
}
