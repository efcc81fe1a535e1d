//! Sets of generated matrices for tests and training.

use std::str::FromStr;

use super::classes::CLASSES;
use super::spec::Spec;
use crate::error::{Error, Result};

/// Size of a corpus.
///
/// ```
/// use ellect::generate::{CLASSES, Size, corpus};
///
/// assert_eq!(corpus(Size::Small).len(), CLASSES.len());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// One matrix per class, with a few thousand to a hundred thousand entries; generated in
    /// seconds.
    Small,
    /// Nine matrices per class, with 20,000 to 30 million entries; two thirds have at least 2
    /// million.
    Full,
    /// One matrix per class, with 60 to 120 million entries.
    Large,
}

impl FromStr for Size {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "small" => Ok(Size::Small),
            "full" => Ok(Size::Full),
            "large" => Ok(Size::Large),
            _ => Err(Error::argument(format!("size is '{text}'; it must be small, full or large"))),
        }
    }
}

/// A range of entry counts, divided into steps of equal ratio.
struct SizeRange {
    first: f64,
    last: f64,
    steps: usize,
}

impl Size {
    /// Returns the size ranges; each class has one matrix in each step of each range.
    fn ranges(self) -> &'static [SizeRange] {
        match self {
            Size::Small => &[SizeRange { first: 4e3, last: 1e5, steps: 1 }],
            Size::Full => &[
                SizeRange { first: 2e4, last: 2e6, steps: 3 },
                // SliceOffsets a little above 2 million, because small grids have fewer entries than
                // estimated.
                SizeRange { first: 2.3e6, last: 3e7, steps: 6 },
            ],
            Size::Large => &[SizeRange { first: 6e7, last: 1.2e8, steps: 1 }],
        }
    }
}

/// Minimum number of rows: a smaller grid is no longer a grid, however long its rows are.
const LEAST_ROWS: usize = 300;

/// Returns the matrices of a corpus, class by class, from small to large.
///
/// Every class has the same number of matrices. Within a step of sizes the classes are spread
/// evenly (by the golden ratio), so that no size is tied to a class. The orders of a class take
/// turns, and so do the first orders of the classes. Every matrix of a class has its own seed.
pub fn corpus(size: Size) -> Vec<Spec> {
    let steps = size.ranges().iter().flat_map(|range| (0..range.steps).map(move |s| (range, s)));
    let steps: Vec<_> = steps.collect();
    let members = CLASSES.iter().enumerate().flat_map(|(c, class)| {
        let within = ((c + 1) as f64 * 0.618_033_988_75).fract();
        steps.iter().enumerate().map(move |(k, (range, step))| {
            let ratio = (range.last / range.first).powf(1.0 / range.steps as f64);
            let nnz = range.first * ratio.powf(*step as f64 + within);
            let rows = two_digits(nnz / class.per_row).max(LEAST_ROWS);
            let order = class.orders[(c + k) % class.orders.len()];
            Spec::new(class.name, rows, order, k as u64 + 1).expect("of the table, within limits")
        })
    });
    members.collect()
}

/// Rounds to two significant digits.
fn two_digits(number: f64) -> usize {
    let unit = 10f64.powf(number.log10().floor() - 1.0).max(1.0);
    ((number / unit).round() * unit) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashSet};

    use super::*;
    use crate::generate::Order;

    #[test]
    fn sizes_have_names() {
        assert_eq!("small".parse::<Size>().expect("a size"), Size::Small);
        assert_eq!("full".parse::<Size>().expect("a size"), Size::Full);
        assert_eq!("large".parse::<Size>().expect("a size"), Size::Large);
        assert!("huge".parse::<Size>().is_err());
    }

    #[test]
    fn names_of_members_are_unique_and_read_back() {
        for size in [Size::Small, Size::Full, Size::Large] {
            let all = corpus(size);
            let names: HashSet<_> = all.iter().map(Spec::to_string).collect();
            assert_eq!(names.len(), all.len());
            assert!(
                all.iter().all(|spec| spec.to_string().parse::<Spec>().expect("valid") == *spec)
            );
        }
    }

    #[test]
    fn the_full_corpus_is_spread_over_families_sizes_and_orders() {
        let all = corpus(Size::Full);
        assert!((360..=400).contains(&all.len()), "{}", all.len());
        let mut families: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for spec in &all {
            families.entry(spec.family()).or_default().push(spec.nnz_estimate());
        }
        assert!(families.len() >= 25);
        assert!(families.values().all(|sizes| sizes.len() == 9));
        let between = |low: f64, high: f64| {
            let sizes = families.values().flatten().map(|&nnz| nnz as f64);
            sizes.filter(|nnz| (low..high).contains(nnz)).count()
        };
        // Rounding the number of rows to two digits may move a size past a bound.
        assert_eq!(between(1.8e4, 3.1e7), all.len());
        assert!(between(2.2e6, 3.1e7) * 3 == all.len() * 2);
        let steps = [2e4, 9.3e4, 4.3e5, 2.2e6, 3.53e6, 5.41e6, 8.3e6, 1.27e7, 1.95e7, 3e7];
        for step in steps.windows(2) {
            let found = between(step[0], step[1]) * 9;
            assert!(found > all.len() * 4 / 5 && found < all.len() * 6 / 5, "{step:?}: {found}");
        }
        for order in [Order::Natural, Order::Rcm, Order::Random] {
            let found = all.iter().filter(|spec| spec.order() == order).count();
            assert!(found * 6 > all.len(), "{found} of order {order}");
        }
    }

    #[test]
    fn matrices_of_the_large_corpus_are_larger_than_all_of_the_full_one() {
        let sizes = |size| corpus(size).into_iter().map(|spec| spec.nnz_estimate());
        assert_eq!(corpus(Size::Large).len(), CLASSES.len());
        assert!(sizes(Size::Large).min() > sizes(Size::Full).max());
        assert!(sizes(Size::Large).max() < Some(130_000_000));
    }

    #[test]
    fn the_small_corpus_is_made_and_sizes_are_about_as_estimated() {
        for spec in corpus(Size::Small) {
            let csr = spec.make();
            let (nnz, estimate) = (csr.nnz(), spec.nnz_estimate());
            assert!((1500..=120_000).contains(&nnz), "{spec}: {nnz}");
            assert!(
                nnz * 3 > estimate && nnz * 10 < estimate * 13,
                "{spec}: {nnz}, not {estimate}"
            );
        }
    }

    #[test]
    fn estimates_hold_where_borders_are_small() {
        for class in CLASSES {
            let rows = two_digits(4e5 / class.per_row);
            let spec = Spec::new(class.name, rows, Order::Natural, 1).expect("of the table");
            let (nnz, estimate) = (spec.make().nnz(), spec.nnz_estimate());
            let ratio = nnz as f64 / estimate as f64;
            let least = if class.per_row > 100.0 { 0.5 } else { 0.75 };
            assert!((least..1.25).contains(&ratio), "{spec}: {nnz}, not {estimate}");
        }
    }
}
