//! Answers that are kept: by the hash of the body, by that of the matrix, and by its fingerprint.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use ellect::choose::{Choice, Ranked};
use ellect::cost::Cost;
use ellect::units::time;
use ellect::unstable::choose::{By, order};
use ellect::{Fingerprint, Workload};
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::failure::Failure;
use crate::options::Options;

/// Number of answers that the cache is laid out for; its limit is in bytes.
const EXPECTED: usize = 4096;

/// Estimated bytes of an answer in memory per byte of its JSON.
const PER_JSON_BYTE: u64 = 3;

/// The matrix and the parameters that an answer is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The matrix.
    pub matrix: Matrix,
    /// The parameters that the ranking depends on, and the revision of the stored measurements.
    pub parameters: String,
}

/// The matrix of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Matrix {
    /// Hash of a body.
    Body(u128),
    /// Hash of the pattern and the values, which other bodies may hold in other forms.
    Values(u128),
    /// Fingerprint of the matrix that was posted last with this pattern.
    Pattern(Fingerprint),
}

/// An answer with all candidates.
#[derive(Debug)]
pub struct Answer {
    /// The choice.
    pub choice: Choice,
    /// The whole choice in JSON.
    pub json: Bytes,
}

impl Answer {
    /// Creates the answer of this choice.
    ///
    /// # Errors
    /// 500 if the choice cannot be written as JSON.
    pub fn of(choice: Choice) -> Result<Arc<Self>, Failure> {
        let json = serde_json::to_vec(&choice).map_err(Failure::internal)?.into();
        Ok(Arc::new(Answer { choice, json }))
    }

    /// Returns the choice in JSON with the candidates and the keys that the options ask for.
    ///
    /// # Errors
    /// 400 if a key is unknown; 500 if the choice cannot be written as JSON.
    pub fn json(&self, options: &Options) -> Result<Bytes, Failure> {
        if options.top == 0 && options.fields.is_empty() {
            return Ok(self.json.clone());
        }
        let answer = options.answer(&options.cut(self.choice.clone()))?;
        serde_json::to_vec(&answer).map(Bytes::from).map_err(Failure::internal)
    }
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<Key, Arc<Answer>> for ByBytes {
    fn weight(&self, key: &Key, answer: &Arc<Answer>) -> u64 {
        PER_JSON_BYTE * answer.json.len() as u64 + key.parameters.len() as u64
    }
}

/// A bounded cache of answers; those that were not asked for lately are dropped.
pub struct Answers(Cache<Key, Arc<Answer>, ByBytes>);

impl Answers {
    /// Creates a cache that takes at most about this number of bytes.
    pub fn new(bytes: u64) -> Self {
        Answers(Cache::with_weighter(EXPECTED, bytes, ByBytes))
    }

    /// Returns the answer if it is known.
    pub fn get(&self, key: &Key) -> Option<Arc<Answer>> {
        self.0.get(key)
    }

    /// Returns the answer if it is known, otherwise that of `compute`; requests that ask for the
    /// same answer meanwhile wait for it. Tells whether it was known.
    ///
    /// # Errors
    /// As `compute`; a request that waited then computes the answer itself.
    pub async fn get_or(
        &self,
        key: &Key,
        compute: impl Future<Output = Result<Arc<Answer>, Failure>>,
    ) -> Result<(Arc<Answer>, bool), Failure> {
        let computed = OnceLock::new();
        let counted = async {
            let answer = compute.await?;
            let _ = computed.set(());
            Ok::<_, Failure>(answer)
        };
        let answer = self.0.get_or_insert_async(key, counted).await?;
        Ok((answer, computed.get().is_none()))
    }

    /// Keeps an answer.
    pub fn keep(&self, key: Key, answer: Arc<Answer>) {
        self.0.insert(key, answer);
    }

    /// Returns the number of answers.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Forgets all answers.
    pub fn clear(&self) {
        self.0.clear();
    }
}

/// Ranks the candidates of a choice again, for another number of products.
///
/// The costs of the candidates do not depend on that number, so the ranking is the one that the
/// matrix would get. `margin` is the device's. The explanation is shorter, because the reasons of
/// each cost are not kept.
pub fn for_products(choice: &Choice, workload: &Workload, margin: f64) -> Choice {
    let mut choice = choice.clone();
    let earlier = choice.spmvs as f64;
    let updates = workload.values.updates();
    let cost = |ranked: &Ranked| {
        let fixed_s = ranked.total_s - earlier * ranked.spmv_s;
        let update_s = match updates {
            0 => 0.0,
            updates => (fixed_s - ranked.convert_s).max(0.0) / updates as f64,
        };
        let Ranked { convert_s, spmv_s, bytes, source, .. } = *ranked;
        Cost { convert_s, update_s, spmv_s, bytes, source }
    };
    let entries = choice.ranking.drain(..).map(|ranked| (cost(&ranked), ranked)).collect();
    let entries =
        order(entries, |(cost, ranked)| (&ranked.candidate, cost), By::Analysis, margin, workload);
    let again =
        |(cost, ranked): (Cost, Ranked)| Ranked { total_s: cost.total_s(workload), ..ranked };
    choice.ranking = entries.into_iter().map(again).collect();
    choice.spmvs = workload.spmvs;
    if let Some(first) = choice.ranking.first() {
        choice.candidate = first.candidate.clone();
        choice.explanation = vec![explained(first, &choice.products())];
        choice.rate();
    }
    choice
}

fn explained(first: &Ranked, products: &str) -> String {
    let conversion = match (first.convert_s, first.break_even_spmvs) {
        (0.0, _) => "it needs no conversion".to_string(),
        (convert_s, Some(0)) => format!("converting takes {}", time(convert_s)),
        (convert_s, Some(spmvs)) => {
            format!("converting takes {}, which pays off from {spmvs} products on", time(convert_s))
        }
        (convert_s, None) => format!("converting takes {}", time(convert_s)),
    };
    format!(
        "Use {} for {products}: {} a product, {}; {conversion}. Ranked again from an earlier \
         answer for this matrix.",
        first.candidate,
        time(first.spmv_s),
        first.source
    )
}

#[cfg(test)]
mod tests {
    use ellect::{Tuner, device, generate};

    use super::*;

    #[test]
    fn another_number_of_products_ranks_as_the_matrix_itself_would_be() {
        let h200 = device::find("h200").expect("ships");
        let margin = h200.margin;
        let tuner = Tuner::without_models(h200);
        for class in ["elasticity", "heat", "stencil5"] {
            let csr = generate::by_name(class, 3000, 1).expect("a class");
            let of = |spmvs| {
                let workload = Workload { spmvs, ..Workload::default() };
                (tuner.recommend(&csr, &workload).expect("estimates"), workload)
            };
            let (first, _) = of(1000);
            for spmvs in [1, 7, 100, 1_000_000] {
                let (expected, workload) = of(spmvs);
                let again = for_products(&first, &workload, margin);
                let names = |choice: &Choice| {
                    let names = choice.ranking.iter().map(|ranked| ranked.candidate.to_string());
                    names.collect::<Vec<_>>()
                };
                assert_eq!(names(&again), names(&expected), "{class}, {spmvs} products");
                assert_eq!(again.candidate, expected.candidate);
                for (a, b) in again.ranking.iter().zip(&expected.ranking) {
                    assert!((a.total_s / b.total_s - 1.0).abs() < 1e-9, "{a:?} and {b:?}");
                    assert_eq!(a.break_even_spmvs, b.break_even_spmvs);
                }
                assert!(again.explanation[0].contains(&format!("for {}", again.products())));
            }
        }
    }
}
