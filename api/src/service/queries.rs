//! Parsed queries: callers ask with the same parameters again and again, and parsing them takes longer
//! than finding a kept answer.

use std::sync::Arc;

use quick_cache::sync::Cache;

use super::failure::Failure;
use super::recommend::options_of;
use crate::options::{BodyOptions, Options};

/// Number of queries that are kept.
const KEPT: usize = 512;

/// Maximum number of bytes of a query that is kept.
const MOST_BYTES: usize = 512;

/// The pairs of a query.
pub type Pairs = Vec<(String, String)>;

/// The parameters of a recommendation.
pub type Parsed = (Options, BodyOptions);

/// A bounded cache of the parameters of recommendations by their queries.
pub struct Queries(Cache<Pairs, Arc<Parsed>>);

impl Queries {
    /// Creates an empty cache.
    pub fn new() -> Self {
        Queries(Cache::new(KEPT))
    }

    /// Parses a query, unless it was parsed before.
    ///
    /// # Errors
    /// 400 if a parameter is unknown or wrong.
    pub fn parsed(&self, pairs: &Pairs) -> Result<Arc<Parsed>, Failure> {
        if let Some(parsed) = self.0.get(pairs) {
            return Ok(parsed);
        }
        let parsed = Arc::new(options_of(pairs)?);
        if pairs.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() <= MOST_BYTES {
            self.0.insert(pairs.clone(), Arc::clone(&parsed));
        }
        Ok(parsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_parsed_once_and_a_wrong_one_each_time() {
        let pairs = |name: &str, value: &str| vec![(name.to_string(), value.to_string())];
        let queries = Queries::new();
        let first = queries.parsed(&pairs("spmvs", "77")).expect("a number");
        let again = queries.parsed(&pairs("spmvs", "77")).expect("a number");
        assert!(Arc::ptr_eq(&first, &again) && first.0.spmvs == 77);
        let other = queries.parsed(&pairs("spmvs", "78")).expect("a number");
        assert_eq!(other.0.spmvs, 78);
        for _ in 0..2 {
            assert!(queries.parsed(&pairs("spmvs", "many")).is_err());
        }
        let long = pairs("fields", &format!("choice{}", ",choice".repeat(200)));
        if let Ok(parsed) = queries.parsed(&long) {
            assert!(!Arc::ptr_eq(&parsed, &queries.parsed(&long).expect("as before")));
        }
        assert_eq!(queries.0.len(), 2);
    }
}
