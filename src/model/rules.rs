//! Rules: a small decision tree over features. Some rules name the format that usually wins, for
//! explanations; others decide whether to analyse a matrix.

use std::convert::Infallible;

use serde::{Deserialize, Serialize};

use crate::format::aliases;

/// A tree of comparisons; the first node is its root, every child comes after its parent.
///
/// ```text
/// row_nnz_cv < 0.2 ?          nodes  0 { row_nnz_cv, 0.2, 1, 2 }
///   yes: hll                         1 hll
///   no:  pcsr                        2 pcsr
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rules {
    /// Nodes of the tree.
    pub nodes: Vec<Rule>,
}

/// A node of [`Rules`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rule {
    /// A comparison of one feature with a threshold.
    Split {
        /// Name of the feature.
        feature: String,
        /// Threshold: below it the next node is `low`, otherwise `high`.
        below: f64,
        /// Next node below the threshold, a later one.
        low: u32,
        /// Next node from the threshold on, a later one.
        high: u32,
    },
    /// Answer at the end of a path, for instance the format that usually wins.
    Answer(String),
}

/// Formats a number with at most four decimals.
fn figure(number: f64) -> String {
    let text = format!("{number:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

impl Rules {
    /// Returns the comparisons that these features meet, in words, and the answer at their end;
    /// `None` if there are no rules. Requests only the features on its path.
    pub fn walk(&self, feature: impl Fn(&str) -> Option<f64>) -> Option<(Vec<String>, &str)> {
        let Ok(end) = self.try_walk(|name| Ok::<_, Infallible>(feature(name)));
        end
    }

    /// Like [`Rules::walk`], for features that may not be known yet.
    ///
    /// # Errors
    /// The error of the first feature on the path that returns one.
    pub fn try_walk<E>(
        &self,
        feature: impl Fn(&str) -> Result<Option<f64>, E>,
    ) -> Result<Option<(Vec<String>, &str)>, E> {
        let mut met = Vec::new();
        let mut next = self.nodes.first();
        while let Some(node) = next {
            match node {
                Rule::Answer(answer) => {
                    let said = |(name, sign, below): (&str, &str, f64)| {
                        format!("{name} {sign} {}", figure(below))
                    };
                    return Ok(Some((met.into_iter().map(said).collect(), answer)));
                }
                Rule::Split { feature: name, below, low, high } => {
                    let value = feature(name)?.unwrap_or(0.0);
                    let (place, sign) = if value < *below { (low, "<") } else { (high, ">=") };
                    // A later comparison is tighter than an earlier one with the same sign.
                    met.retain(|&(known, side, _)| (known, side) != (name.as_str(), sign));
                    met.push((name.as_str(), sign, *below));
                    next = self.nodes.get(*place as usize);
                }
            }
        }
        Ok(None)
    }

    /// Checks that every path ends in a known answer and needs only known features.
    ///
    /// # Errors
    /// The number of the first faulty rule.
    pub fn check(
        &self,
        feature: impl Fn(&str) -> bool,
        answer: impl Fn(&str) -> bool,
    ) -> Result<(), String> {
        for (i, rule) in self.nodes.iter().enumerate() {
            let later = |next: u32| next as usize > i && (next as usize) < self.nodes.len();
            let sound = match rule {
                Rule::Answer(word) => answer(word),
                Rule::Split { feature: name, below, low, high } => {
                    feature(name) && below.is_finite() && later(*low) && later(*high)
                }
            };
            if !sound {
                return Err(format!("rule {i} of {}", self.nodes.len()));
            }
        }
        Ok(())
    }

    /// Replaces aliases of formats in answers by current names.
    pub(super) fn rename(&mut self) {
        for node in &mut self.nodes {
            if let Rule::Answer(answer) = node {
                aliases::rename(answer);
            }
        }
    }

    /// Returns the tree in words, one indented line per node.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut todo = vec![(0u32, 0usize, String::new())];
        while let Some((node, depth, stated)) = todo.pop() {
            let indent = "  ".repeat(depth);
            match self.nodes.get(node as usize) {
                Some(Rule::Answer(answer)) => text += &format!("{indent}{stated}{answer}\n"),
                Some(Rule::Split { feature, below, low, high }) => {
                    text += &format!("{indent}{stated}{feature} < {below:.4}?\n");
                    todo.push((*high, depth + 1, "no: ".into()));
                    todo.push((*low, depth + 1, "yes: ".into()));
                }
                None => {}
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Rules {
        let split = |feature: &str, low, high| Rule::Split {
            feature: feature.into(),
            below: 0.5,
            low,
            high,
        };
        let leaf = |format: &str| Rule::Answer(format.into());
        let nodes = vec![split("a", 1, 2), leaf("hll"), split("b", 3, 4), leaf("ell"), leaf("coo")];
        Rules { nodes }
    }

    #[test]
    fn a_walk_tells_what_it_met() {
        let rules = rules();
        let of = |a: f64, b: f64| rules.walk(|name| Some(if name == "a" { a } else { b }));
        assert_eq!(of(0.1, 0.9), Some((vec!["a < 0.5".into()], "hll")));
        let met = vec!["a >= 0.5".to_string(), "b < 0.5".into()];
        assert_eq!(of(0.5, 0.4), Some((met, "ell")));
        assert_eq!(rules.text().lines().nth(1), Some("  yes: hll"));
        assert_eq!(Rules::default().walk(|_| None), None);
    }

    #[test]
    fn the_tighter_of_two_bounds_is_reported() {
        let split = |below, low, high| Rule::Split { feature: "nnz".into(), below, low, high };
        let leaf = |format: &str| Rule::Answer(format.into());
        let rules = Rules {
            nodes: vec![
                split(1002131.0, 1, 2),
                split(0.25, 3, 4),
                leaf("hll"),
                leaf("ell"),
                leaf("coo"),
            ],
        };
        let met = |nnz: f64| rules.walk(|_| Some(nnz)).expect("an answer").0;
        assert_eq!(met(0.1), ["nnz < 0.25"]);
        assert_eq!(met(5.0), ["nnz < 1002131", "nnz >= 0.25"]);
    }

    #[test]
    fn rules_that_do_not_end_are_found() {
        assert_eq!(rules().check(|_| true, |_| true), Ok(()));
        assert!(rules().check(|name| name == "a", |_| true).is_err());
        assert!(rules().check(|_| true, |answer| answer != "coo").is_err());
        let mut looped = rules();
        looped.nodes[2] = Rule::Split { feature: "b".into(), below: 0.0, low: 1, high: 3 };
        assert!(looped.check(|_| true, |_| true).is_err());
    }
}
