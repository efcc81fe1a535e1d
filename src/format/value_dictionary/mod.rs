//! Value dictionaries: each value is stored as an 8-bit number into a list of distinct values.

mod distinct;

use ellect_kernels::shared;

use super::gpu::convert::Check;
use super::gpu::launch::{Arrays, NULL};
use super::{Arg, GpuConverter, Launch, Refusal, Stop, Target};
use crate::analysis::Analysis;
use crate::error::Error;
use crate::scalar::{Precision, Scalar};
pub use distinct::{MAX_DISTINCT, ValueDictionary};

/// The refusal of a matrix whose values do not fit a dictionary.
pub(super) fn not_few() -> Refusal {
    Refusal::new(format!(
        "there are more than {MAX_DISTINCT} distinct values, the limit of 8-bit numbers, or values are \
         unknown"
    ))
}

/// Number of distinct values of a matrix.
///
/// # Errors
/// [`Refusal`] where it exceeds [`MAX_DISTINCT`], or values are unknown.
pub(super) fn count(analysis: &Analysis<'_>) -> Result<u64, Refusal> {
    analysis.value_count().map(|count| count as u64).ok_or_else(not_few)
}

/// Bytes of the numbers of `slots` slots, where there are `count` distinct values.
pub(super) fn number_bytes(slots: u64, count: u64) -> u64 {
    if count > 1 { slots } else { 0 }
}

/// Suffix of kernel names, which depends on whether there are several distinct values.
pub(super) fn suffix(several: bool) -> &'static str {
    if several { "" } else { "_one" }
}

/// The refusal of new values that differ where the old values were equal.
fn not_alike(row: u64) -> Refusal {
    Refusal::new(format!(
        "the new values differ where the old values were equal: first in row {row}; prepare a new \
         operator for them"
    ))
}

/// The distinct values and the number of each place's value; no numbers where one value is shared
/// by all places.
#[derive(Debug)]
pub(super) struct Numbered<T> {
    pub values: Vec<T>,
    pub numbers: Vec<u8>,
}

impl<T: Scalar> Numbered<T> {
    /// Stores the distinct values `few` of `all`. `numbers` builds the list of numbers from a
    /// function that numbers a value.
    pub fn new(
        few: &ValueDictionary,
        all: &[T],
        numbers: impl FnOnce(&(dyn Fn(T) -> u8 + Sync)) -> Vec<u8>,
    ) -> Self {
        let values: Vec<T> = few.entries.iter().map(|&k| all[k]).collect();
        let numbers = match values.len() {
            0 | 1 => Vec::new(),
            _ => numbers(&|value| few.number(value.bits())),
        };
        Numbered { values, numbers }
    }

    /// The value at a place.
    #[inline(always)]
    pub fn value(&self, at: usize) -> T {
        self.values[self.number(at)]
    }

    /// The number of the value at a place.
    #[inline(always)]
    pub fn number(&self, at: usize) -> usize {
        self.numbers.get(at).map_or(0, |&number| usize::from(number))
    }

    /// Arguments for a GPU: numbers, number of distinct values, and these values.
    pub fn on_device<'a>(&'a self, arrays: &mut Arrays<'a>) -> [Arg; 3] {
        let numbers = Some(self.numbers.as_slice()).filter(|all| !all.is_empty());
        let count = Arg::U32(self.values.len() as u32);
        [
            arrays.add_some("value_idx", "place in values of each slot's value", numbers),
            count,
            arrays.add_values("values", "the distinct values", &self.values),
        ]
    }

    /// Bytes of both arrays.
    pub fn bytes(&self) -> u64 {
        super::bytes_of(&self.values) + super::bytes_of(&self.numbers)
    }

    /// Takes new `values` of all entries, in the order of the CSR matrix; each distinct value is
    /// taken from the first entry that has it. `places` calls its argument with place and entry of
    /// each entry, `row_of` gives the row of an entry.
    ///
    /// # Errors
    /// [`Refusal`] with the first row where two entries that shared a value now differ.
    pub fn take(
        &self,
        values: &[T],
        places: impl Fn(&mut dyn FnMut(usize, usize)),
        row_of: impl FnOnce(usize) -> usize,
    ) -> Result<Vec<T>, Refusal> {
        let mut firsts = vec![usize::MAX; self.values.len()];
        places(&mut |at, k| {
            let first = &mut firsts[self.number(at)];
            *first = k.min(*first);
        });
        let value = |&k: &usize| values.get(k).copied().unwrap_or(T::ZERO);
        let taken: Vec<T> = firsts.iter().map(value).collect();
        let mut other = usize::MAX;
        places(&mut |at, k| {
            if values[k].bits() != taken[self.number(at)].bits() {
                other = k.min(other);
            }
        });
        if other != usize::MAX {
            return Err(not_alike(row_of(other) as u64));
        }
        Ok(taken)
    }
}

/// Places of the hash table in which a GPU collects distinct values.
const PLACES: u64 = shared("FEW_PLACES");

/// Kernels allow as many distinct values as hosts.
const _: () = assert!(MAX_DISTINCT as u64 == shared("FEW_VALUES"));

/// Collects the distinct values of a matrix that a GPU holds in a hash table, and counts them up to
/// [`MAX_DISTINCT`] + 1.
pub(crate) fn find(
    converter: &mut dyn GpuConverter,
    precision: Precision,
) -> Result<(Arg, usize), Error> {
    let (nnz, w) = (converter.matrix().nnz as u64, precision.bytes() as u64);
    let places = converter.temporary(PLACES * w)?;
    converter.launch(&launch("clear_places".into(), PLACES * w / 4, vec![places]))?;
    let count = converter.number()?;
    let args = vec![Arg::U64(nnz), Arg::Values, places, count];
    converter.launch(&launch(format!("find_values_{precision}"), threads(nnz), args))?;
    Ok((places, converter.read(count)? as usize))
}

/// The distinct values that a GPU has found.
pub(super) struct GpuDictionary {
    pub count: u32,
    /// The values, an array of the layout.
    pub values: Arg,
    /// The first entry with each value.
    pub entries: Arg,
    /// The number of each entry's value, in the order of the CSR matrix; null where all are equal.
    pub numbers: Arg,
}

impl GpuDictionary {
    /// Finds the distinct values.
    pub fn new(converter: &mut dyn GpuConverter, target: &Target<'_>) -> Result<Self, Stop> {
        let (nnz, precision) = (converter.matrix().nnz as u64, target.precision);
        let (places, count) = find(converter, precision)?;
        if count > MAX_DISTINCT {
            return Err(not_few().into());
        }
        let (count, some) = (count as u32, count as u64);
        let values = converter.array(some * precision.bytes() as u64)?;
        let entries = converter.array(8 * some)?;
        let args = vec![places, values, entries];
        let kernel = format!("order_values_{precision}");
        converter.launch(&Launch::over(IMAGE, kernel, PLACES, PLACES as u32, args))?;
        let numbers = if count > 1 { converter.temporary(nnz)? } else { NULL };
        if count > 1 {
            let from = [Arg::U64(nnz), Arg::U32(count), Arg::Values, values];
            let args = from.into_iter().chain([entries, numbers]).collect();
            converter.launch(&launch(format!("number_values_{precision}"), threads(nnz), args))?;
        }
        Ok(GpuDictionary { count, values, entries, numbers })
    }

    /// The launch that stores new values.
    pub fn update(&self, target: &Target<'_>) -> Launch {
        let args = vec![Arg::U32(self.count), self.entries, Arg::Values, self.values];
        launch(format!("take_values_{}", target.precision), u64::from(self.count), args)
    }

    /// The check of new values: `launch` writes to `row` the first row whose values differ where
    /// they were equal.
    pub fn check(&self, launch: Launch, row: Arg) -> Check {
        Check { launch, row, reason: |row| not_alike(u64::from(row)) }
    }
}

/// The image of the kernels.
const IMAGE: &str = "convert_few";

/// Threads that examine `nnz` entries: 16 entries each, or more for large `nnz`.
fn threads(nnz: u64) -> u64 {
    nnz.div_ceil(16).clamp(1, 1 << 18)
}

/// A launch of the image `convert_few`.
pub(super) fn launch(kernel: String, threads: u64, args: Vec<Arg>) -> Launch {
    Launch::over(IMAGE, kernel, threads, 256, args)
}
