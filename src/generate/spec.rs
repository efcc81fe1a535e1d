//! The name of a generated matrix: `CLASS:ROWS`, followed by order and seed unless they are the
//! defaults, for instance `heat:100000:rcm:seed=3`.

use std::fmt;
use std::str::FromStr;

use super::classes::{CLASSES, Class};
use super::random::random_order;
use crate::csr::Csr;
use crate::error::{Error, Result};
use crate::reorder::{permute_symmetric, rcm};
use crate::units::count;

/// The order of rows and columns.
///
/// ```
/// use ellect::generate::{Order, Spec};
///
/// # fn main() -> ellect::Result<()> {
/// let spec = Spec::new("road", 900, Order::Random, 1)?;
/// assert_eq!(spec.order(), Order::Random);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Order {
    /// The numbering of the class itself.
    Natural,
    /// Reverse Cuthill-McKee.
    Rcm,
    /// Randomly shuffled.
    Random,
}

impl Order {
    const ALL: [Order; 3] = [Order::Natural, Order::Rcm, Order::Random];

    fn name(self) -> &'static str {
        match self {
            Order::Natural => "natural",
            Order::Rcm => "rcm",
            Order::Random => "random",
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Maximum number of rows of a generated matrix.
pub const MOST_ROWS: usize = 1 << 30;

/// Default seed.
const SEED: u64 = 1;

/// The spec of a generated matrix: class, number of rows, order and seed. Displays as its name.
///
/// ```
/// use ellect::generate::Spec;
///
/// # fn main() -> ellect::Result<()> {
/// let csr = "elasticity:3000".parse::<Spec>()?.make();
/// assert!((2000..4000).contains(&csr.nrows()));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Spec {
    class: &'static Class,
    rows: usize,
    order: Order,
    seed: u64,
}

impl Spec {
    /// Creates the spec of a matrix of this class with about `rows` rows.
    ///
    /// # Errors
    /// [`Error::Argument`] if the class is unknown (the message lists the known ones), if the
    /// number of rows is 0 or more than [`MOST_ROWS`], or if the class is not available in this
    /// order.
    pub fn new(class: &str, rows: usize, order: Order, seed: u64) -> Result<Self> {
        let known = class_named(class)?;
        if rows == 0 || rows > MOST_ROWS {
            return Err(Error::argument(format!(
                "the number of rows is {rows}; there must be 1 to {MOST_ROWS}"
            )));
        }
        if !known.orders.contains(&order) {
            let orders: Vec<_> = known.orders.iter().map(Order::to_string).collect();
            return Err(Error::argument(format!(
                "{class} is not available in the order {order}; its orders are: {}",
                orders.join(", ")
            )));
        }
        Ok(Spec { class: known, rows, order, seed })
    }

    /// Generates the matrix on rayon's current threads; it is the same on every machine.
    pub fn make(&self) -> Csr<f64> {
        let csr = (self.class.make)(self.rows, self.seed);
        let order = match self.order {
            Order::Natural => return csr,
            Order::Rcm => rcm(csr.pattern()),
            Order::Random => random_order(csr.nrows(), self.seed),
        };
        permute_symmetric(&csr, &order)
    }

    /// Returns the name of the class: matrices of one family resemble each other.
    pub fn family(&self) -> &'static str {
        self.class.name
    }

    /// Returns the order of rows and columns.
    pub fn order(&self) -> Order {
        self.order
    }

    /// Estimates the number of entries without generating the matrix. Small grids have fewer,
    /// because more of their points are at the border.
    pub fn nnz_estimate(&self) -> usize {
        (self.rows as f64 * self.class.per_row) as usize
    }
}

fn class_named(name: &str) -> Result<&'static Class> {
    CLASSES.iter().find(|class| class.name == name).ok_or_else(|| {
        let known: Vec<_> = CLASSES.iter().map(|class| class.name).collect();
        Error::argument(format!("no class is named '{name}'; there are: {}", known.join(", ")))
    })
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.class.name, self.rows)?;
        if self.order != Order::Natural {
            write!(f, ":{}", self.order)?;
        }
        if self.seed != SEED {
            write!(f, ":seed={}", self.seed)?;
        }
        Ok(())
    }
}

impl FromStr for Spec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut words = text.split(':');
        let class = words.next().unwrap_or_default();
        let words: Vec<&str> = words.collect();
        class_named(class)?;
        let wrong = |what: String| {
            Error::argument(format!(
                "{what} in '{text}'; write CLASS:ROWS, CLASS:ROWS:ORDER or \
                 CLASS:ROWS:ORDER:seed=N, for instance {class}:1000"
            ))
        };
        let (rows, rest) = words.split_first().ok_or_else(|| wrong("no number of rows".into()))?;
        let rows = count(rows).ok().and_then(|rows| rows.try_into().ok());
        let rows = rows.ok_or_else(|| wrong(format!("'{}' rows", words[0])))?;
        let order = |word: &str| Order::ALL.into_iter().find(|order| order.name() == word);
        let ordered = rest.split_first().and_then(|(word, rest)| Some((order(word)?, rest)));
        let (order, rest) = ordered.unwrap_or((Order::Natural, rest));
        let seed = |word: &str| word.strip_prefix("seed=")?.parse().ok();
        let seeded = rest.split_first().and_then(|(word, rest)| Some((seed(word)?, rest)));
        let (seed, rest) = seeded.unwrap_or((SEED, rest));
        match rest.first() {
            Some(word) => Err(wrong(format!("'{word}'"))),
            None => Spec::new(class, rows, order, seed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_reads_what_it_writes() {
        for text in [
            "heat:100000",
            "heat:100000:rcm",
            "heat:5:random:seed=3",
            "uniform:7:seed=18446744073709551615",
        ] {
            let spec: Spec = text.parse().expect("a name");
            assert_eq!(spec.to_string(), text);
        }
        let short: Spec = "heat:1e5".parse().expect("a name");
        assert_eq!(short.to_string(), "heat:100000");
        let long: Spec = "heat:10:natural:seed=1".parse().expect("a name");
        assert_eq!(long.to_string(), "heat:10");
        assert_eq!((long.family(), long.nnz_estimate() > 10), ("heat", true));
    }

    #[test]
    fn a_wrong_spec_is_refused_with_the_reason() {
        for (text, reason) in [
            ("nosuch:10", "there are: stencil5"),
            ("heat", "no number of rows in 'heat'; write CLASS:ROWS"),
            ("heat:many", "'many' rows"),
            ("heat:0", "there must be 1 to"),
            ("heat:2000000000", "there must be 1 to"),
            ("heat:10:sorted", "'sorted' in"),
            ("heat:10:seed=x", "'seed=x' in"),
            ("heat:10:seed=3:rcm", "'rcm' in"),
            ("uniform:10:rcm", "its orders are: natural"),
            ("", "there are: stencil5"),
        ] {
            let error = text.parse::<Spec>().expect_err(text).to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn an_order_permutes_the_matrix_and_a_seed_changes_it() {
        let make = |text: &str| text.parse::<Spec>().expect("a name").make();
        let natural = make("heat:300");
        let random = make("heat:300:random");
        assert_ne!(natural, random);
        assert_eq!(natural.nnz(), random.nnz());
        assert_eq!(permute_symmetric(&natural, &random_order(natural.nrows(), 1)), random);
        assert_ne!(natural, make("heat:300:seed=2"));
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().expect("a pool");
        assert_eq!(pool.install(|| make("heat:300:random")), random, "over 3 threads");
    }
}
