//! The baseline: the CSR arrays that a program has before any choice, and the kernel that
//! multiplies them.

use std::sync::OnceLock;

use super::{Candidate, candidates};
use crate::device::Kind;
use crate::target::Target;

/// Role of a format in a choice.
///
/// ```
/// use ellect::format::{Role, find};
///
/// # fn main() -> ellect::Result<()> {
/// assert_eq!(find("csr")?.role, Role::Baseline);
/// assert_eq!(find("hll")?.role, Role::Converted);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The device vendor's library multiplies the caller's CSR arrays, where it is installed.
    Vendor,
    /// This program's kernels multiply the caller's CSR arrays, on every device.
    Baseline,
    /// A conversion fills arrays of the format's own.
    Converted,
}

/// Texts of the baselines; choices are compared with the first one that is available.
pub const BASELINES: [&str; 2] = ["cusparse:alg=csr_alg1", CSR];

/// Text of the baseline that exists on every device.
pub const CSR: &str = "csr";

/// Text of the candidate that needs no analysis on a GPU: see [`Storage::IMMEDIATE`].
///
/// [`Storage::IMMEDIATE`]: super::Storage::IMMEDIATE
pub const PCSR: &str = "pcsr:kernel=fused,tile=1024";

impl Candidate {
    /// Tells whether the candidate multiplies the caller's CSR arrays as they are: the default
    /// variant of a format whose [`Role`] is not [`Role::Converted`].
    pub fn is_baseline(&self) -> bool {
        self.format.role != Role::Converted && self.params.are_defaults(self.format)
    }

    /// Tells whether the candidate is [`CSR`], the baseline that exists on every device.
    pub fn is_csr(&self) -> bool {
        self.format.role == Role::Baseline && self.is_baseline()
    }

    /// Tells whether the candidate is another variant of [`CSR`]: a kernel of the literature that
    /// the baseline is compared with.
    pub fn is_csr_variant(&self) -> bool {
        self.format.role == Role::Baseline && !self.is_baseline()
    }

    /// Returns the target of this candidate: a baseline is exempt from the memory limit, because
    /// its arrays already exist.
    pub fn target<'a>(&self, target: &Target<'a>) -> Target<'a> {
        match self.is_baseline() {
            true => Target { memory_limit: u64::MAX, ..*target },
            false => *target,
        }
    }
}

/// Candidates of each kind of device, found at the first request: a choice from features needs them
/// several times, and takes less time than listing all candidates.
type Found = [OnceLock<Vec<Candidate>>; 2];

fn found(all: &'static Found, kind: Kind, find: impl FnOnce() -> Vec<Candidate>) -> Vec<Candidate> {
    let of_kind = match kind {
        Kind::Host => &all[0],
        Kind::Gpu => &all[1],
    };
    of_kind.get_or_init(find).clone()
}

/// Returns the baselines of devices of this kind, in the order of [`BASELINES`].
pub fn baselines(kind: Kind) -> Vec<Candidate> {
    static FOUND: Found = [const { OnceLock::new() }; 2];
    found(&FOUND, kind, || {
        let mut all = candidates(kind);
        all.retain(Candidate::is_baseline);
        all.sort_by_key(|candidate| candidate.format.role);
        all
    })
}

/// Returns the converted candidates of devices of this kind that need no analysis: the default
/// variants of formats with [`Storage::IMMEDIATE`](super::Storage::IMMEDIATE).
pub fn immediate(kind: Kind) -> Vec<Candidate> {
    static FOUND: Found = [const { OnceLock::new() }; 2];
    found(&FOUND, kind, || {
        let mut all = candidates(kind);
        all.retain(|candidate| {
            candidate.format.immediate && candidate.params.are_defaults(candidate.format)
        });
        all
    })
}

/// Returns the item whose candidate choices are compared with: the first of [`BASELINES`] that
/// `items` contain.
pub fn baseline<'a, T>(
    items: impl IntoIterator<Item = &'a T>,
    candidate: impl Fn(&T) -> &Candidate,
) -> Option<&'a T> {
    let baselines = items.into_iter().filter(|item| candidate(item).is_baseline());
    baselines.min_by_key(|item| candidate(item).format.role)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scalar::Precision;

    fn texts(candidates: Vec<Candidate>) -> Vec<String> {
        candidates.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn baselines_are_those_of_the_format_table() {
        assert_eq!(texts(baselines(Kind::Gpu)), BASELINES);
        assert_eq!(texts(baselines(Kind::Host)), [CSR]);
        assert_eq!(texts(immediate(Kind::Gpu)), [PCSR]);
        assert_eq!(texts(immediate(Kind::Host)), [""; 0]);
        for kind in [Kind::Gpu, Kind::Host] {
            for candidate in candidates(kind) {
                let text = candidate.to_string();
                assert_eq!(candidate.is_baseline(), BASELINES.contains(&text.as_str()), "{text}");
                assert_eq!(candidate.is_csr(), text == CSR, "{text}");
                assert_eq!(candidate.is_csr_variant(), text.starts_with("csr:"), "{text}");
            }
        }
    }

    #[test]
    fn the_vendor_library_is_what_choices_are_compared_with_where_it_is_there() {
        let of = |names: &[&str]| -> Option<String> {
            let all: Vec<Candidate> =
                names.iter().map(|name| name.parse().expect("a candidate")).collect();
            baseline(&all, |candidate| candidate).map(ToString::to_string)
        };
        assert_eq!(of(&["ell", CSR, BASELINES[0]]).as_deref(), Some(BASELINES[0]));
        assert_eq!(of(&["cusparse:alg=csr_alg2", CSR]).as_deref(), Some(CSR));
        assert_eq!(of(&["ell"]), None);
    }

    #[test]
    fn a_baseline_is_exempt_from_the_memory_limit() {
        let device = crate::device::find("h200").expect("shipped");
        let target = crate::Workload { memory_limit: Some(1), ..Default::default() }
            .target(&device, Precision::F64);
        let limit = |name: &str| {
            let candidate: Candidate = name.parse().expect("a candidate");
            candidate.target(&target).memory_limit
        };
        assert_eq!([CSR, BASELINES[0]].map(limit), [u64::MAX; 2]);
        assert_eq!(["cusparse:alg=sell", "ell", PCSR].map(limit), [1; 3]);
    }
}
