//! Values that layouts store in fewer bits than vectors and sums have: f32 for matrices of f64, f16 and
//! bf16 for matrices of f32.
//!
//! A value is held if it is 0, an infinity or NaN, or a normal number of the stored type. With rounding
//! allowed ([`StoredValues`]), a value is held if its size lies between the smallest and the largest
//! normal number of that type: its error is then at most a share of it that depends on the type.
//!
//! Values are stored in f32 also where nobody asked for it, if f32 holds all of them exactly. Formats of
//! f16 and bf16 are chosen only by consent.

pub(crate) mod gpu;
mod types;

use std::marker::PhantomData;

use half::{bf16, f16};
use rayon::prelude::*;

use super::{Candidate, FORMATS, Refusal, StoredValues, Target, Value, Work};
use crate::analysis::{Analysis, Detail, ValuesOf, probes, spread};
use crate::scalar::{Precision, Scalar};
pub use types::{Narrow, StoredValue};

/// Sample of an estimate: `[places, entries in a row at each place]`.
const SAMPLED: [usize; 2] = [256, 256];

/// Storage of a layout's values.
pub trait Keep: Copy + std::fmt::Debug + Send + Sync + 'static {
    /// The type of a stored value.
    type Of<T: Scalar>: StoredValue;

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

/// Values in the type `N`.
#[derive(Clone, Copy, Debug)]
pub struct In<N> {
    rounded: bool,
    stored: PhantomData<N>,
}

impl<N: Narrow> In<N> {
    /// Values in `N`, rounded where the target allows it.
    pub(super) fn of(target: &Target<'_>) -> Self {
        In { rounded: may_round::<N>(target), stored: PhantomData }
    }
}

impl<N: Narrow> Keep for In<N> {
    type Of<T: Scalar> = N;

    #[inline(always)]
    fn store<T: Scalar>(value: T) -> N {
        N::round(value.to_f64())
    }

    #[inline(always)]
    fn load<T: Scalar>(stored: N) -> T {
        T::from_f64(stored.widen())
    }

    fn limits(&self) -> bool {
        true
    }

    fn check<T: Scalar>(
        &self,
        values: &[T],
        row_of: impl FnOnce(usize) -> usize,
    ) -> Result<(), Refusal> {
        let lost = |value: &T| !held::<N>(value.to_f64(), self.rounded);
        match values.par_iter().position_first(lost) {
            Some(k) => Err(lost_in::<N>(row_of(k), self.rounded)),
            None => Ok(()),
        }
    }
}

/// One of three texts about formats: that for values in f32, in f16 or in bf16.
pub(super) const fn text_for<N: Narrow>([f32, f16, bf16]: [&'static str; 3]) -> &'static str {
    match N::STORES {
        StoredValues::F16 => f16,
        StoredValues::BF16 => bf16,
        StoredValues::Exact | StoredValues::F32 => f32,
    }
}

/// One of three values of [`Storage::SAVES`](super::Storage::SAVES): that for values in f32, in f16 or in
/// bf16, as an H200 had them (tests/results/narrow.md).
pub(super) const fn saves_for<N: Narrow>([f32, f16, bf16]: [f64; 3]) -> f64 {
    match N::STORES {
        StoredValues::F16 => f16,
        StoredValues::BF16 => bf16,
        StoredValues::Exact | StoredValues::F32 => f32,
    }
}

/// Tells whether the target allows values to be rounded to `N`.
fn may_round<N: Narrow>(target: &Target<'_>) -> bool {
    target.stored == N::STORES
}

/// Tells whether `N` holds a value: exactly, or if it may be `rounded`, with the error that
/// [`StoredValues`] states.
fn held<N: Narrow>(value: f64, rounded: bool) -> bool {
    if value == 0.0 || !value.is_finite() {
        return true;
    }
    let near = N::round(value).widen();
    let normal = value.abs() >= N::NORMAL[0] && near.is_finite();
    normal && (rounded || near == value)
}

/// The refusal of a matrix with a value in this row that is not held.
fn lost_in<N: Narrow>(row: usize, rounded: bool) -> Refusal {
    let (name, log2) = (N::STORES, N::STORES.rounding_log2());
    Refusal::new(if rounded {
        let [least, most] = N::NORMAL;
        format!(
            "row {row} has a value beyond the range of {name}: sizes from {least:.7e} to {most:.7e} can \
             be rounded; scale the matrix, or choose a format that stores {}",
            N::OF
        )
    } else {
        format!(
            "row {row} has a value that {name} does not hold exactly; values={name} allows rounded \
             values, with errors of up to 2^{log2} of each value"
        )
    })
}

/// The refusal of a matrix whose values are of another precision than those that `N` stores.
fn not_wide<N: Narrow>() -> Refusal {
    let (name, of) = (N::STORES, N::OF);
    Refusal::new(match of {
        Precision::F64 => {
            "values have 32 bits already; it stores those of a matrix of f64 in 32 bits".to_string()
        }
        Precision::F32 => {
            format!("it stores the values of a matrix of {of} in {name}, none of f64")
        }
    })
}

/// Checks that `N` holds the values of a matrix. For a large matrix whose analysis serves estimates,
/// a sample of the values is checked.
///
/// # Errors
/// [`Refusal`] for a matrix of another precision, for unknown values, and with the first row that has a
/// value that is not held.
pub(super) fn check<N: Narrow>(
    analysis: &Analysis<'_>,
    target: &Target<'_>,
) -> Result<(), Refusal> {
    refuse::<N>(analysis, target, analysis.detail())
}

/// As [`check`], for every value.
///
/// # Errors
/// As [`check`].
pub(super) fn check_all<N: Narrow>(
    analysis: &Analysis<'_>,
    target: &Target<'_>,
) -> Result<(), Refusal> {
    refuse::<N>(analysis, target, Detail::Whole)
}

fn refuse<N: Narrow>(
    analysis: &Analysis<'_>,
    target: &Target<'_>,
    detail: Detail,
) -> Result<(), Refusal> {
    if target.precision != N::OF {
        return Err(not_wide::<N>());
    }
    if analysis.values().is_none() {
        return Err(Refusal::new("values are unknown"));
    }
    let rounded = may_round::<N>(target);
    match analysis.first_lost::<N>(rounded, detail) {
        Some(k) => {
            let row_ptr = analysis.pattern().row_ptr();
            Err(lost_in::<N>(row_of(row_ptr, k), rounded))
        }
        None => Ok(()),
    }
}

/// Adds the search for values that are not held to the work of a conversion.
pub(super) fn checked<N: Narrow>(analysis: &Analysis<'_>, work: Work) -> Work {
    let searched = (analysis.pattern().nnz() * N::OF.bytes()) as u64;
    Work { convert_bytes: work.convert_bytes + searched, ..work }
}

/// The row of entry `k`.
pub(super) fn row_of(row_ptr: &[usize], k: usize) -> usize {
    row_ptr.partition_point(|&start| start <= k) - 1
}

probes! {
    /// The first entry whose value is not held in this storage, by whether it may be rounded.
    FirstLost(StoredValues, bool) -> Option<usize>;
    /// The first one in a sample of the entries.
    FirstLostSampled(StoredValues, bool) -> Option<usize>;
}

impl Analysis<'_> {
    /// Tells whether this storage holds some value only rounded; for a large matrix whose analysis serves
    /// estimates, among a sample of the values.
    pub(crate) fn would_round(&self, stores: StoredValues) -> bool {
        !self.holds(stores, false)
    }

    /// Tells whether the storage in fewer bits that the target may use holds all values, as
    /// [`Analysis::would_round`] looks for them; true if it may use none.
    pub(crate) fn holds_narrowed(&self, target: &Target<'_>) -> bool {
        let stores = target.narrower().unwrap_or_default();
        self.holds(stores, target.stored == stores)
    }

    fn holds(&self, stores: StoredValues, rounded: bool) -> bool {
        let lost = match stores {
            StoredValues::Exact => None,
            StoredValues::F32 => self.first_lost::<f32>(rounded, self.detail()),
            StoredValues::F16 => self.first_lost::<f16>(rounded, self.detail()),
            StoredValues::BF16 => self.first_lost::<bf16>(rounded, self.detail()),
        };
        lost.is_none()
    }

    /// The first entry whose value `N` does not hold, if any; none for a matrix of another precision. One
    /// pass over the values, which stops early where there is one; kept.
    pub(crate) fn first_lost<N: Narrow>(&self, rounded: bool, detail: Detail) -> Option<usize> {
        match (self.values()?, N::OF) {
            (ValuesOf::F32(values), Precision::F32) => {
                self.search::<N, f32>(values, rounded, detail)
            }
            (ValuesOf::F64(values), Precision::F64) => {
                self.search::<N, f64>(values, rounded, detail)
            }
            _ => None,
        }
    }

    fn search<N: Narrow, T: Scalar>(
        &self,
        values: &[T],
        rounded: bool,
        detail: Detail,
    ) -> Option<usize> {
        let nnz = values.len();
        let lost = |value: T| !held::<N>(value.to_f64(), rounded);
        let whole = || values.par_iter().position_first(|&value| lost(value));
        let sampled = || {
            let [places, each] = SAMPLED;
            let entries = |place| {
                let first = spread(place, places, nnz);
                first..nnz.min(first + each)
            };
            (0..places).flat_map(entries).find(|&k| lost(values[k]))
        };
        match detail {
            Detail::Whole => self.memo().get(FirstLost(N::STORES, rounded), whole),
            Detail::Sampled => self.memo().get(FirstLostSampled(N::STORES, rounded), sampled),
        }
    }
}

impl Target<'_> {
    /// The storage in fewer bits that layouts of this target may use, if there is one.
    pub(crate) fn narrower(&self) -> Option<StoredValues> {
        match self.precision {
            Precision::F64 => Some(StoredValues::F32),
            Precision::F32 => {
                Some(self.stored).filter(|stored| stored.rounds() == Some(self.precision))
            }
        }
    }
}

impl Candidate {
    /// Returns the candidate that this one is with values in fewer bits, if it is such a candidate.
    pub(crate) fn widened(&self) -> Option<Candidate> {
        let format = super::find(self.format.narrows?).ok()?;
        Some(Candidate { format, params: self.params.clone() })
    }

    /// Returns the candidate that is this one with values in this storage, if there is such a candidate.
    pub(crate) fn narrowed(&self, stores: StoredValues) -> Option<Candidate> {
        let is_of = |format: &&super::Format| {
            format.narrows == Some(self.format.name) && format.stores == stores
        };
        let format = FORMATS.iter().find(is_of)?;
        let takes = |(name, value): (&str, Value)| {
            let own = format.params.iter().find(|param| param.name == name);
            own.is_some_and(|param| param.values.contains(&value))
        };
        let suits = self.params.iter().all(takes);
        suits.then(|| Candidate { format, params: self.params.clone() })
    }

    /// Tells whether this candidate stores values in a type that the target does not ask for: f32 where
    /// values are in f32 already, f16 or bf16 without consent.
    pub(crate) fn is_needless(&self, target: &Target<'_>) -> bool {
        self.format.narrows.is_some() && target.narrower() != Some(self.format.stores)
    }

    /// Returns the largest error of a stored value as a share of the value: 0, or 2^-24 (f32), 2^-11 (f16)
    /// or 2^-8 (bf16) if the candidate stores values in that type and the target allows it to round them.
    pub fn rounding(&self, target: &Target<'_>) -> f64 {
        let stores = self.format.stores;
        let rounds = target.stored == stores && stores.rounds() == Some(target.precision);
        if rounds { f64::from(stores.rounding_log2()).exp2() } else { 0.0 }
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
        holds::<f32>(&exact, &rounded, &never);
    }

    #[test]
    fn what_16_bits_hold() {
        let exact = [0.0, -0.0, 1.5, -3.0, f64::INFINITY, f64::NAN, 0.5f64.powi(14)];
        let tiny = f64::from(f32::from_bits(1));
        holds::<f16>(
            &[&exact[..], &[65504.0, 2047.0]].concat(),
            &[0.1, 2049.0, 65503.0, -6.2e-5],
            &[65520.0, 1.0e38, 6.0e-5, tiny],
        );
        holds::<bf16>(
            &[&exact[..], &[65280.0, 255.0]].concat(),
            &[0.1, 257.0, 65503.0, -6.2e-5, 1.0e38, 1.0e-37],
            &[f64::from(f32::MAX), 1.0e-39, tiny],
        );
    }

    fn holds<N: Narrow>(exact: &[f64], rounded: &[f64], never: &[f64]) {
        let both = |value: f64| [false, true].map(|rounded| held::<N>(value, rounded));
        exact.iter().for_each(|&value| assert_eq!(both(value), [true, true], "{value:e}"));
        never.iter().for_each(|&value| assert_eq!(both(value), [false, false], "{value:e}"));
        let rounding = f64::from(N::STORES.rounding_log2()).exp2();
        for &value in rounded {
            assert_eq!(both(value), [false, true], "{value:e}");
            let near: f64 = In::<N>::load(In::<N>::store(value));
            assert!((near - value).abs() <= rounding * value.abs(), "{value:e}");
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
            assert!(narrow.format.stores.rounds().is_some(), "{narrow}");
            assert_eq!(wide.to_string().parse::<Candidate>().expect("it exists"), wide);
            assert_eq!(wide.narrowed(narrow.format.stores), Some(narrow));
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
        let lost = analysis.first_lost::<f32>(false, Detail::Whole).expect("0.1 is lost");
        assert_eq!((csr.values()[lost], row_of(csr.row_ptr(), lost)), (0.1, unseen / 3));
        assert_eq!(analysis.first_lost::<f32>(false, Detail::Sampled), None);
        assert_eq!(analysis.first_lost::<f32>(true, Detail::Whole), None);
    }
}
