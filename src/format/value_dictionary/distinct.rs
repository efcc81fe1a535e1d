//! The distinct values of a matrix, where 8-bit numbers can index them.

use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;

use crate::analysis::{Analysis, Detail, probes, spread};
use crate::scalar::ValuesOf;

/// The maximum number of distinct values: those that an 8-bit number can index.
pub const MAX_DISTINCT: usize = 256;

/// Entries that a thread examines in one step.
const CHUNK: usize = 1 << 14;

/// Sample of an estimate: `[places, entries in a row at each place]`.
const SAMPLED: [usize; 2] = [256, 256];

/// The distinct values of a matrix, at most [`MAX_DISTINCT`]. Values are compared by their bits, so
/// 0.0 and -0.0 are two values. The NaN whose bits are all ones is never among them: it marks empty
/// places in the hash table of a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValueDictionary {
    /// Bits of the values, in ascending order.
    pub bits: Vec<u64>,
    /// Position in the CSR arrays of one entry with each value.
    pub entries: Vec<usize>,
}

impl ValueDictionary {
    /// Collects the values of `nnz` entries; `None` where there are more than [`MAX_DISTINCT`].
    pub(super) fn of(values: ValuesOf<'_>, nnz: usize) -> Option<Self> {
        let chunks = (0..nnz.div_ceil(CHUNK)).into_par_iter();
        chunks
            .try_fold(ValueDictionary::default, |few, chunk| {
                few.with(values, chunk * CHUNK..nnz.min((chunk + 1) * CHUNK))
            })
            .try_reduce(ValueDictionary::default, |few, other| {
                other.entries.into_iter().try_fold(few, |few, k| few.with(values, k..k + 1))
            })
    }

    /// Number of distinct values in an evenly spread sample of `nnz` entries; `None` as in
    /// [`ValueDictionary::of`].
    pub(super) fn count_sampled(values: ValuesOf<'_>, nnz: usize) -> Option<usize> {
        let [places, each] = SAMPLED;
        let found = (0..places).try_fold(ValueDictionary::default(), |few, place| {
            let first = spread(place, places, nnz);
            few.with(values, first..nnz.min(first + each))
        })?;
        Some(found.bits.len())
    }

    /// Adds the values of `entries`; `None` as in [`ValueDictionary::of`].
    fn with(mut self, values: ValuesOf<'_>, entries: Range<usize>) -> Option<Self> {
        let mut last = None;
        for k in entries {
            let bits = values.bits(k);
            if last == Some(bits) {
                continue;
            }
            last = Some(bits);
            if let Err(place) = self.bits.binary_search(&bits) {
                if self.bits.len() == MAX_DISTINCT || bits == values.ones() {
                    return None;
                }
                self.bits.insert(place, bits);
                self.entries.insert(place, k);
            }
        }
        Some(self)
    }

    /// The number of the value with these bits; 0 where there is none.
    pub fn number(&self, bits: u64) -> u8 {
        self.bits.binary_search(&bits).unwrap_or(0) as u8
    }
}

probes! {
    /// The distinct values, if at most [`MAX_DISTINCT`].
    DistinctValues() -> Option<Arc<ValueDictionary>>;
    /// The number of distinct values, if at most [`MAX_DISTINCT`].
    ValueCount() -> Option<usize>;
}

impl Analysis<'_> {
    /// The distinct values; `None` where there are more than 256, or the values are
    /// unknown. One pass over the values; it stops early where the limit is exceeded.
    pub fn few_values(&self) -> Option<Arc<ValueDictionary>> {
        let values = self.values()?;
        let find = || ValueDictionary::of(values, self.pattern().nnz()).map(Arc::new);
        self.memo().get(DistinctValues(), find)
    }

    /// The number of distinct values, `None` as in [`Analysis::few_values`]. For a large matrix
    /// whose analysis serves estimates, the number is that of a sample of the entries.
    pub fn value_count(&self) -> Option<usize> {
        let values = self.values()?;
        self.memo().get(ValueCount(), || match self.detail() {
            Detail::Whole => self.few_values().map(|few| few.bits.len()),
            Detail::Sampled => ValueDictionary::count_sampled(values, self.pattern().nnz()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scalar::Scalar;

    #[test]
    fn values_are_distinguished_by_their_bits() {
        let values: Vec<f32> = (0..100_000).map(|k| [2.0, -0.0, 0.0, f32::NAN][k % 4]).collect();
        let few = ValueDictionary::of(f32::values_of(&values), values.len()).expect("four");
        let bits: Vec<u64> = [0.0, 2.0, f32::NAN, -0.0].map(|v: f32| v.bits()).to_vec();
        assert_eq!(few.bits, bits, "by their bits");
        assert!(few.entries.iter().zip(&few.bits).all(|(&k, &bits)| values[k].bits() == bits));
        assert_eq!(few.number(f32::NAN.bits()), 2);
        assert_eq!(ValueDictionary::count_sampled(f32::values_of(&values), values.len()), Some(4));
        assert_eq!(ValueDictionary::of(f32::values_of(&[]), 0), Some(ValueDictionary::default()));
    }

    #[test]
    fn more_values_than_the_limit_are_too_many() {
        let some = |n: usize| -> Vec<f64> { (0..200_000).map(|k| (k * 7 % n) as f64).collect() };
        let of = |values: &[f64]| ValueDictionary::of(f64::values_of(values), values.len());
        assert_eq!(of(&some(MAX_DISTINCT)).map(|few| few.bits.len()), Some(MAX_DISTINCT));
        assert_eq!(of(&some(MAX_DISTINCT + 1)), None);
        let many = some(MAX_DISTINCT + 1);
        assert_eq!(ValueDictionary::count_sampled(f64::values_of(&many), many.len()), None);
        assert_eq!(of(&[1.0, f64::from_bits(u64::MAX)]), None, "it marks empty places");
    }
}
