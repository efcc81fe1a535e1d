//! Rules: a small tree over features that says which format usually wins, to explain, or whether to
//! look closer at a matrix.

use std::convert::Infallible;

use serde::{Deserialize, Serialize};

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
    /// Its nodes.
    pub nodes: Vec<Rule>,
}

/// A node of [`Rules`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rule {
    /// A comparison.
    Split {
        /// The feature.
        feature: String,
        /// Below it, the next node is `low`, else `high`.
        below: f64,
        /// A later node.
        low: u32,
        /// A later node.
        high: u32,
    },
    /// What is said at its end: the format that usually wins.
    Answer(String),
}

/// A number with four decimals at most.
fn figure(number: f64) -> String {
    let text = format!("{number:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

impl Rules {
    /// The comparisons that these features meet, in words, and the answer at their end; none where
    /// there are no rules. Asks for no other features than those on its way.
    pub fn walk(&self, feature: impl Fn(&str) -> Option<f64>) -> Option<(Vec<String>, &str)> {
        let Ok(end) = self.try_walk(|name| Ok::<_, Infallible>(feature(name)));
        end
    }

    /// Like [`Rules::walk`], of features that may not be known yet.
    ///
    /// # Errors
    /// The error of the first feature on the way that has one.
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
                    // What comes later on the way says more than what is ahead of it.
                    met.retain(|&(known, side, _)| (known, side) != (name.as_str(), sign));
                    met.push((name.as_str(), sign, *below));
                    next = self.nodes.get(*place as usize);
                }
            }
        }
        Ok(None)
    }

    /// Whether every walk ends in a known answer, asking for none but known features.
    ///
    /// # Errors
    /// What is wrong.
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

    /// The tree in words, a line a node, indented.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut todo = vec![(0u32, 0usize, String::new())];
        while let Some((node, depth, told)) = todo.pop() {
            let indent = "  ".repeat(depth);
            match self.nodes.get(node as usize) {
                Some(Rule::Answer(answer)) => text += &format!("{indent}{told}{answer}\n"),
                Some(Rule::Split { feature, below, low, high }) => {
                    text += &format!("{indent}{told}{feature} < {below:.4}?\n");
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
    fn of_two_bounds_the_tighter_one_is_told() {
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
