//! Values held by their number among few distinct ones.

use super::launch::NULL;
use super::{Arg, Builder, Launch, Refusal, Stop, Target};
use crate::scalar::Scalar;
use crate::structure::{FEW, FewValues, Structure};

/// Why the values of a matrix are not held so.
pub(super) fn not_few() -> Refusal {
    Refusal::new(format!(
        "more than {FEW} distinct values, the most that 8 bits tell apart, or values are unknown"
    ))
}

/// How many distinct values a matrix has.
///
/// # Errors
/// [`Refusal`] where they are not few.
pub(super) fn count(structure: &Structure<'_>) -> Result<u64, Refusal> {
    structure.value_count().map(|count| count as u64).ok_or_else(not_few)
}

/// Why new values are refused that differ where the values before were alike.
fn not_alike(row: u64) -> Refusal {
    Refusal::new(format!(
        "the new values differ where the values before were one: row {row} has another than an entry \
         of the same value before; prepare a new operator for them"
    ))
}

/// The distinct values, and the number of that of each place; no numbers where there is but one.
#[derive(Debug)]
pub(super) struct Numbered<T> {
    pub values: Vec<T>,
    pub numbers: Vec<u8>,
}

impl<T: Scalar> Numbered<T> {
    /// Of `few` distinct ones among `all`; `numbers` makes the list of numbers from that of the value
    /// of each entry.
    pub fn new(
        few: &FewValues,
        all: &[T],
        numbers: impl FnOnce(&(dyn Fn(usize) -> u8 + Sync)) -> Vec<u8>,
    ) -> Self {
        let values: Vec<T> = few.entries.iter().map(|&k| all[k]).collect();
        let numbers = match values.len() {
            0 | 1 => Vec::new(),
            _ => numbers(&|k| few.number(all[k].bits())),
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

    /// Bytes of both arrays.
    pub fn bytes(&self) -> u64 {
        super::bytes_of(&self.values) + super::bytes_of(&self.numbers)
    }

    /// The distinct ones among new `values` of all entries, in the order of the CSR matrix; `places`
    /// calls with place, row and entry of each.
    ///
    /// # Errors
    /// [`Refusal`] with the first row where two differ that were one.
    pub fn take(
        &self,
        values: &[T],
        places: impl FnOnce(&mut dyn FnMut(usize, usize)),
        row_of: impl FnOnce(usize) -> usize,
    ) -> Result<Vec<T>, Refusal> {
        let mut taken: Vec<Option<T>> = vec![None; self.values.len()];
        let mut first = usize::MAX;
        places(&mut |at, k| {
            let known = *taken[self.number(at)].get_or_insert(values[k]);
            if known.bits() != values[k].bits() {
                first = first.min(k);
            }
        });
        if first != usize::MAX {
            return Err(not_alike(row_of(first) as u64));
        }
        Ok(taken.into_iter().map(|value| value.unwrap_or(T::ZERO)).collect())
    }
}

/// Places that a GPU looks for distinct values in: `PLACES` of the kernels.
const PLACES: u64 = 1024;

/// The distinct values that a GPU has found.
pub(super) struct OnGpu {
    pub count: u32,
    /// The values, an array of the layout.
    pub values: Arg,
    /// An entry of each.
    pub entries: Arg,
    /// The number of that of each entry, in the order of the CSR matrix; null where there is but one.
    pub numbers: Arg,
}

impl OnGpu {
    /// Finds them.
    pub fn new(builder: &mut dyn Builder, target: &Target<'_>) -> Result<Self, Stop> {
        let (nnz, precision) = (builder.matrix().nnz as u64, target.precision);
        let w = precision.bytes() as u64;
        // All ones mark what is empty.
        let places = builder.temporary(PLACES * w)?;
        let place_entries = builder.temporary(8 * PLACES)?;
        builder.launch(&launch("clear_places".into(), PLACES * w / 4, vec![places]))?;
        let found = builder.number()?;
        let args = vec![Arg::U64(nnz), Arg::Values, places, place_entries, found];
        let threads = nnz.div_ceil(A_THREAD).clamp(1, MOST_THREADS);
        builder.launch(&launch(format!("find_values_{precision}"), threads, args))?;
        let (values, entries) = (builder.array(FEW as u64 * w)?, builder.array(8 * FEW as u64)?);
        let order = Launch::over(
            IMAGE,
            format!("order_values_{precision}"),
            PLACES,
            PLACES as u32,
            vec![places, place_entries, values, entries],
        );
        builder.launch(&order)?;
        let count = builder.read(found)?;
        if count as usize > FEW {
            return Err(not_few().into());
        }
        builder.trim(values, u64::from(count) * w);
        builder.trim(entries, 8 * u64::from(count));
        let numbers = if count > 1 { builder.temporary(nnz)? } else { NULL };
        if count > 1 {
            let args = vec![Arg::U64(nnz), Arg::U32(count), Arg::Values, values, numbers];
            builder.launch(&launch(format!("number_values_{precision}"), threads, args))?;
        }
        Ok(OnGpu { count, values, entries, numbers })
    }

    /// What takes over new values.
    pub fn update(&self, target: &Target<'_>) -> Launch {
        let args = vec![Arg::U32(self.count), self.entries, Arg::Values, self.values];
        launch(format!("take_values_{}", target.precision), u64::from(self.count), args)
    }

    /// Why the values of a row are refused.
    pub fn reason(row: u32) -> Refusal {
        not_alike(u64::from(row))
    }
}

/// The image of the kernels.
const IMAGE: &str = "convert_few";

/// Entries that a thread looks at, at least, and the most threads.
const A_THREAD: u64 = 16;
const MOST_THREADS: u64 = 1 << 18;

fn launch(kernel: String, threads: u64, args: Vec<Arg>) -> Launch {
    Launch::over(IMAGE, kernel, threads, 256, args)
}
