//! Values of matrices of f64 that layouts store in f32, while vectors and sums stay in f64.
//!
//! A value is held if it is 0, an infinity or NaN, or a normal number of f32. With rounding allowed
//! ([`StoredValues::F32`]), a value is held if its size lies between the smallest and the largest
//! normal number of f32: its error is then at most [`ROUNDING`] of it.

pub(crate) mod gpu;

use rayon::prelude::*;

use super::{Candidate, FORMATS, Refusal, StoredValues, Target, Value, Work};
use crate::analysis::{Analysis, Detail, ValuesOf, probes, spread};
use crate::scalar::{Precision, Scalar};

/// Largest error of a value that is rounded to f32, as a share of the value.
const ROUNDING: f64 = 1.0 / (1 << f32::MANTISSA_DIGITS) as f64;

/// Sample of an estimate: `[places, entries in a row at each place]`.
const SAMPLED: [usize; 2] = [256, 256];

/// Storage of a layout's values.
pub trait Keep: Copy + std::fmt::Debug + Send + Sync + 'static {
    /// The type of a stored value.
    type Of<T: Scalar>: Scalar;

    /// The stored form of a value.
    fn store<T: Scalar>(value: T) -> Self::Of<T>;

    /// The value that is stored.
    fn load<T: Scalar>(stored: Self::Of<T>) -> T;

    /// Tells whether [`Keep::check`] may refuse values.
    fn limits(&self) -> bool {
        false
    }

    /// Checks that all values can be stored; `row_of` gives the row of an entry.
    ///
    /// # Errors
    /// [`Refusal`] with the first row that has a value that cannot.
    fn check<T: Scalar>(
        &self,
        values: &[T],
        row_of: impl FnOnce(usize) -> usize,
    ) -> Result<(), Refusal> {
        let _ = (values, row_of);
        Ok(())
    }
}

/// Values as they are.
#[derive(Clone, Copy, Debug)]
pub struct AsGiven;

impl Keep for AsGiven {
    type Of<T: Scalar> = T;

    #[inline(always)]
    fn store<T: Scalar>(value: T) -> T {
        value
    }

    #[inline(always)]
    fn load<T: Scalar>(stored: T) -> T {
        stored
    }
}

/// Values in f32.
#[derive(Clone, Copy, Debug)]
pub struct InF32 {
    allowed: StoredValues,
}

impl InF32 {
    /// Values in f32, rounded where the target allows it.
    pub(super) fn of(target: &Target<'_>) -> Self {
        InF32 { allowed: target.stored }
    }
}

impl Keep for InF32 {
    type Of<T: Scalar> = f32;

    #[inline(always)]
    fn store<T: Scalar>(value: T) -> f32 {
        value.to_f64() as f32
    }

    #[inline(always)]
    fn load<T: Scalar>(stored: f32) -> T {
        T::from_f64(f64::from(stored))
    }

    fn limits(&self) -> bool {
        true
    }

    fn check<T: Scalar>(
        &self,
        values: &[T],
        row_of: impl FnOnce(usize) -> usize,
    ) -> Result<(), Refusal> {
        let lost = |value: &T| !held(value.to_f64(), self.allowed);
        match values.par_iter().position_first(lost) {
            Some(k) => Err(lost_in(row_of(k), self.allowed)),
            None => Ok(()),
        }
    }
}

/// Tells whether f32 holds a value, exactly or with an error of at most [`ROUNDING`].
fn held(value: f64, allowed: StoredValues) -> bool {
    let near = value as f32;
    if value == 0.0 || !value.is_finite() {
        return true;
    }
    let normal = value.abs() >= f64::from(f32::MIN_POSITIVE) && near.is_finite();
    normal && (allowed == StoredValues::F32 || f64::from(near) == value)
}

/// The refusal of a matrix with a value in this row that is not held.
fn lost_in(row: usize, allowed: StoredValues) -> Refusal {
    Refusal::new(match allowed {
        StoredValues::Exact => format!(
            "row {row} has a value that f32 does not hold exactly; values=f32 allows rounded \
             values, with errors of up to 2^-24 of each value"
        ),
        StoredValues::F32 => format!(
            "row {row} has a value beyond the range of f32: sizes from {:e} to {:e} can be rounded; \
             scale the matrix, or choose a format that stores f64",
            f32::MIN_POSITIVE,
            f32::MAX
        ),
    })
}

/// The refusal of a matrix whose values are not in f64.
fn not_wide() -> Refusal {
    Refusal::new("values have 32 bits already; it stores those of a matrix of f64 in 32 bits")
}

/// Checks that f32 holds the values of a matrix. For a large matrix whose analysis serves estimates,
/// a sample of the values is checked.
///
/// # Errors
/// [`Refusal`] for a matrix of f32, for unknown values, and with the first row that has a value that
/// is not held.
pub(super) fn check(analysis: &Analysis<'_>, target: &Target<'_>) -> Result<(), Refusal> {
    refuse(analysis, target, analysis.detail())
}

/// As [`check`], for every value.
///
/// # Errors
/// As [`check`].
pub(super) fn check_all(analysis: &Analysis<'_>, target: &Target<'_>) -> Result<(), Refusal> {
    refuse(analysis, target, Detail::Whole)
}

fn refuse(analysis: &Analysis<'_>, target: &Target<'_>, detail: Detail) -> Result<(), Refusal> {
    if target.precision == Precision::F32 {
        return Err(not_wide());
    }
    if analysis.values().is_none() {
        return Err(Refusal::new("values are unknown"));
    }
    match analysis.first_lost(target.stored, detail) {
        Some(k) => {
            let row_ptr = analysis.pattern().row_ptr();
            Err(lost_in(row_of(row_ptr, k), target.stored))
        }
        None => Ok(()),
    }
}

/// Adds the search for values that are not held to the work of a conversion.
pub(super) fn checked(analysis: &Analysis<'_>, work: Work) -> Work {
    let searched = (analysis.pattern().nnz() * Precision::F64.bytes()) as u64;
    Work { convert_bytes: work.convert_bytes + searched, ..work }
}

/// The row of entry `k`.
pub(super) fn row_of(row_ptr: &[usize], k: usize) -> usize {
    row_ptr.partition_point(|&start| start <= k) - 1
}

probes! {
    /// The first entry whose value is not held, by the storage that is allowed.
    FirstLost(StoredValues) -> Option<usize>;
    /// The first one in a sample of the entries.
    FirstLostSampled(StoredValues) -> Option<usize>;
}

impl Analysis<'_> {
    /// Tells whether f32 holds some value only rounded; for a large matrix whose analysis serves
    /// estimates, among a sample of the values.
    pub(crate) fn would_round(&self) -> bool {
        self.first_lost(StoredValues::Exact, self.detail()).is_some()
    }

    /// The first entry whose value f32 does not hold, if any. One pass over the values, which stops
    /// early where there is one; kept.
    pub(crate) fn first_lost(&self, allowed: StoredValues, detail: Detail) -> Option<usize> {
        let ValuesOf::F64(values) = self.values()? else { return None };
        let nnz = values.len();
        let whole = || values.par_iter().position_first(|&value| !held(value, allowed));
        let sampled = || {
            let [places, each] = SAMPLED;
            let entries = |place| {
                let first = spread(place, places, nnz);
                first..nnz.min(first + each)
            };
            (0..places).flat_map(entries).find(|&k| !held(values[k], allowed))
        };
        match detail {
            Detail::Whole => self.memo().get(FirstLost(allowed), whole),
            Detail::Sampled => self.memo().get(FirstLostSampled(allowed), sampled),
        }
    }
}

impl Candidate {
    /// Returns the candidate that this one is with values in f32, if it is such a candidate.
    pub(crate) fn widened(&self) -> Option<Candidate> {
        let format = super::find(self.format.narrows?).ok()?;
        Some(Candidate { format, params: self.params.clone() })
    }

    /// Returns the candidate that is this one with values in f32, if there is such a candidate.
    pub(crate) fn narrowed(&self) -> Option<Candidate> {
        let format = FORMATS.iter().find(|format| format.narrows == Some(self.format.name))?;
        let takes = |(name, value): (&str, Value)| {
            let own = format.params.iter().find(|param| param.name == name);
            own.is_some_and(|param| param.values.contains(&value))
        };
        let suits = self.params.iter().all(takes);
        suits.then(|| Candidate { format, params: self.params.clone() })
    }

    /// Tells whether this candidate stores f32 and the target has values in f32 already.
    pub(crate) fn is_needless(&self, target: &Target<'_>) -> bool {
        self.format.narrows.is_some() && target.precision == Precision::F32
    }

    /// Returns the largest error of a stored value as a share of the value: 0, or 2^-24 if the
    /// candidate stores values in f32 and the target allows it to round them.
    pub fn rounding(&self, target: &Target<'_>) -> f64 {
        let rounds = self.format.narrows.is_some() && target.stored == StoredValues::F32;
        if rounds && target.precision == Precision::F64 { ROUNDING } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_f32_holds() {
        let exact =
            [0.0, -0.0, 1.5, -3.0, f64::from(f32::MAX), f64::INFINITY, f64::NAN, 1.0e-30f32 as f64];
        let rounded = [0.1, 1.0 + f64::EPSILON, 1.0e38, -1.0e-37];
        let never = [1.0e39, f64::MAX, 1.0e-39, f64::from(f32::from_bits(1)), f64::MIN_POSITIVE];
        for value in exact {
            assert!(
                held(value, StoredValues::Exact) && held(value, StoredValues::F32),
                "{value:e}"
            );
        }
        for value in rounded {
            assert!(
                !held(value, StoredValues::Exact) && held(value, StoredValues::F32),
                "{value:e}"
            );
            let near: f64 = InF32::load(InF32::store(value));
            assert!((near - value).abs() <= ROUNDING * value.abs(), "{value:e}");
        }
        for value in never {
            assert!(
                !held(value, StoredValues::Exact) && !held(value, StoredValues::F32),
                "{value:e}"
            );
        }
    }

    #[test]
    fn every_narrow_candidate_is_one_of_the_wide_format() {
        let kinds = [crate::device::Kind::Gpu, crate::device::Kind::Host];
        let all = kinds.into_iter().flat_map(crate::format::candidates);
        let pairs = all.filter_map(|narrow| narrow.widened().map(|wide| (narrow, wide)));
        let mut count = 0;
        for (narrow, wide) in pairs {
            assert!(narrow.format.by_values && wide.format.narrows.is_none(), "{narrow}");
            assert_eq!(wide.to_string().parse::<Candidate>().expect("it exists"), wide);
            assert_eq!(wide.narrowed(), Some(narrow));
            count += 1;
        }
        assert!(count > 0);
    }

    #[test]
    fn a_sample_of_a_large_matrix_may_miss_a_value_that_the_whole_check_finds() {
        let n = 40_000;
        let [places, each] = SAMPLED;
        let is_seen = |k: usize| {
            let mut starts = (0..places).map(|place| spread(place, places, 3 * n));
            starts.any(|first| (first..first + each).contains(&k))
        };
        let unseen = (n..2 * n).find(|&k| !is_seen(k)).expect("about half of the entries");
        let far = |k: usize| if k == unseen { 0.1 } else { 1.0 };
        let entries = (0..n).flat_map(|i| (0..3).map(move |j| (i, (i + j) % n)));
        let entries = entries.enumerate().map(|(k, (i, j))| (i, j, far(k)));
        let csr = crate::Csr::<f64>::from_triplets(n, n, entries).expect("indices are in range");
        let analysis = Analysis::of(&csr);
        let lost = analysis.first_lost(StoredValues::Exact, Detail::Whole).expect("0.1 is lost");
        assert_eq!((csr.values()[lost], row_of(csr.row_ptr(), lost)), (0.1, unseen / 3));
        assert_eq!(analysis.first_lost(StoredValues::Exact, Detail::Sampled), None);
        assert_eq!(analysis.first_lost(StoredValues::F32, Detail::Whole), None);
    }
}
