//! Parameters of a format, and candidates (a format with its parameters) with their text form.

use std::fmt;

use serde::{Serialize, Serializer};

use super::{FORMATS, Format, Layout, Refusal, Target, Work};
use crate::analysis::Analysis;
use crate::csr::CsrRef;
use crate::device::Kind;
use crate::error::{Error, Result};
use crate::scalar::Scalar;

/// The value of a parameter.
///
/// ```
/// use ellect::format::{Candidate, Value};
///
/// # fn main() -> ellect::Result<()> {
/// let hll: Candidate = "hll:hack=64".parse()?;
/// assert_eq!(hll.params.get("hack"), Value::Int(64));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// A whole number.
    Int(u32),
    /// One of a fixed set of words.
    Word(&'static str),
}

impl Value {
    /// The format's own choice, by the matrix. It is the default of parameters that have it, and
    /// candidates do not write it.
    pub const AUTO: Value = Value::Word("auto");
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Int(n) => n.fmt(f),
            Value::Word(word) => f.write_str(word),
        }
    }
}

/// One parameter of a format.
///
/// ```
/// use ellect::format::{Value, find};
///
/// # fn main() -> ellect::Result<()> {
/// let hack = find("hll")?.params.iter().find(|param| param.name == "hack");
/// assert!(hack.is_some_and(|hack| hack.values.contains(&Value::Int(32))));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Param {
    /// The name, as written in candidates.
    pub name: &'static str,
    /// The effect of the parameter, in one sentence.
    pub doc: &'static str,
    /// Every legal value; the first is the default.
    pub values: &'static [Value],
    /// Values tried on a GPU.
    pub gpu: &'static [Value],
    /// Values tried on a host.
    pub host: &'static [Value],
}

/// The parameters of a candidate, in the order of [`Format::params`].
///
/// ```
/// use ellect::format::Candidate;
///
/// # fn main() -> ellect::Result<()> {
/// let hll: Candidate = "hll:hack=64".parse()?;
/// assert_eq!(hll.params.int("hack"), 64);
/// assert!(!hll.params.are_defaults(hll.format));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Params(Vec<(&'static str, Value)>);

impl Params {
    /// The default of each of these parameters.
    pub fn defaults(params: &[Param]) -> Self {
        Params(params.iter().map(|p| (p.name, p.values[0])).collect())
    }

    /// Tells whether every parameter of this format has its default value.
    pub fn are_defaults(&self, format: &Format) -> bool {
        let default = |(param, (_, value)): (&Param, &(_, Value))| *value == param.values[0];
        format.params.iter().zip(&self.0).all(default)
    }

    /// Names and values in table order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, Value)> + '_ {
        self.0.iter().copied()
    }

    /// Names and values in table order, without values that are [`Value::AUTO`].
    fn written(&self) -> impl Iterator<Item = (&'static str, Value)> + '_ {
        self.iter().filter(|(_, value)| *value != Value::AUTO)
    }

    /// The value of a parameter.
    ///
    /// # Panics
    /// If the format has no such parameter.
    #[track_caller]
    pub fn get(&self, name: &str) -> Value {
        self.0
            .iter()
            .find_map(|&(known, value)| (known == name).then_some(value))
            .unwrap_or_else(|| panic!("no parameter is named '{name}'"))
    }

    /// The value of a whole-number parameter.
    ///
    /// # Panics
    /// If the format has no such parameter, or its value is a word.
    #[track_caller]
    pub fn int(&self, name: &str) -> usize {
        match self.get(name) {
            Value::Int(n) => n as usize,
            Value::Word(word) => panic!("parameter '{name}' is the word '{word}'"),
        }
    }

    /// True if the value of a parameter is `word`.
    ///
    /// # Panics
    /// If the format has no such parameter.
    #[track_caller]
    pub fn is(&self, name: &str, word: &str) -> bool {
        matches!(self.get(name), Value::Word(value) if value == word)
    }

    /// Every combination of the values tried on a device of this kind, in table order.
    pub fn combinations(format: &Format, kind: Kind) -> Vec<Params> {
        let mut all = vec![Params(Vec::new())];
        for param in format.params {
            let values = match kind {
                Kind::Gpu => param.gpu,
                Kind::Host => param.host,
            };
            all = all
                .iter()
                .flat_map(|params| {
                    values.iter().map(|&value| {
                        let mut more = params.clone();
                        more.0.push((param.name, value));
                        more
                    })
                })
                .collect();
        }
        all
    }
}

impl Serialize for Params {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_map(self.written())
    }
}

/// A format with its parameters: one way to store and multiply a matrix.
///
/// The text form is `format` or `format:name=value,name=value`, with every parameter in table
/// order, except those whose value is [`Value::AUTO`]. Parameters that the text omits get their
/// defaults.
///
/// ```
/// use ellect::format::Candidate;
///
/// # fn main() -> ellect::Result<()> {
/// let csr: Candidate = "csr".parse()?;
/// assert!(csr.is_csr());
/// let hll: Candidate = "hll:hack=64".parse()?;
/// assert!(hll.to_string().starts_with("hll:hack=64,"));
/// assert!("hll:hack=7".parse::<Candidate>().is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Candidate {
    /// The format.
    pub format: &'static Format,
    /// Its parameters.
    pub params: Params,
}

impl Candidate {
    /// Reads a candidate of one of these formats from its text form.
    ///
    /// # Errors
    /// [`Error::Argument`] if no format has this name, or if the format does not have a parameter
    /// of this name or its value.
    pub fn parse(text: &str, formats: &'static [Format]) -> Result<Self> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let format = super::find_in(formats, name)?;
        let mut params = Params::defaults(format.params);
        for setting in rest.split(',').filter(|s| !s.is_empty()) {
            let (key, value) = setting.split_once('=').ok_or_else(|| {
                Error::argument(format!("'{setting}' in '{text}' is not of the form name=value"))
            })?;
            let index = format.params.iter().position(|p| p.name == key).ok_or_else(|| {
                let known: Vec<_> = format.params.iter().map(|p| p.name).collect();
                Error::argument(format!(
                    "format {name} has no parameter '{key}'; it has: {}",
                    if known.is_empty() { "none".to_string() } else { known.join(", ") }
                ))
            })?;
            let legal = format.params[index].values;
            params.0[index].1 =
                *legal.iter().find(|v| v.to_string() == value).ok_or_else(|| {
                    let legal: Vec<_> = legal.iter().map(Value::to_string).collect();
                    Error::argument(format!(
                        "parameter {key} of {name} is '{value}'; it must be one of {}",
                        legal.join(", ")
                    ))
                })?;
        }
        Ok(Candidate { format, params })
    }

    /// Converts a matrix on the host: see [`Storage::convert`](super::Storage::convert).
    ///
    /// # Errors
    /// [`Error::Refused`] if the candidate does not apply to the matrix, or if the layout exceeds
    /// the target's memory limit.
    pub fn convert<'a, T: Scalar>(
        &self,
        csr: impl Into<CsrRef<'a, T>>,
        analysis: &Analysis<'_>,
        target: &Target<'_>,
    ) -> Result<Box<dyn Layout<T>>> {
        let refused = |reason: Refusal| self.refused(&reason);
        let layout = self.format.convert(csr.into(), analysis, &self.params, target);
        let layout = layout.map_err(refused)?;
        target.check_bytes(layout.bytes()).map_err(refused)?;
        Ok(layout)
    }

    /// Returns the error for a refusal of this candidate.
    pub fn refused(&self, reason: &Refusal) -> Error {
        Error::Refused { candidate: self.to_string(), reason: reason.to_string() }
    }

    /// Returns the candidate whose kernel figures and predictions stand in for those of this one, if
    /// its format has another one's: [`Storage::NARROWS`](super::Storage::NARROWS) and
    /// [`Storage::FIGURES_OF`](super::Storage::FIGURES_OF).
    pub(crate) fn stand_in(&self) -> Option<Candidate> {
        let Some(other) = self.format.figures_of else { return self.widened() };
        let params = self.params.iter().map(|(name, value)| format!(",{name}={value}"));
        format!("{other}{}", params.collect::<String>()).parse().ok()
    }

    /// Returns the candidate whose kernels multiply several vectors on a GPU in place of this one's, if
    /// they are those of another one: threads share a row in products with one vector only.
    pub(crate) fn in_several(&self) -> Option<Candidate> {
        let shared = |(name, value): (&str, Value)| name == "tpr" && value != Value::Int(1);
        let at = self.params.iter().position(shared)?;
        let mut other = self.clone();
        other.params.0[at].1 = Value::Int(1);
        (self.format.vectors_at_once_on_gpu(&self.params) > 1).then_some(other)
    }

    /// Tells whether another candidate stands in for this one in estimates.
    pub(crate) fn has_stand_in(&self) -> bool {
        self.format.narrows.is_some() || self.format.figures_of.is_some()
    }

    /// Computes the work of this candidate: see [`Storage::work`](super::Storage::work).
    ///
    /// # Errors
    /// As [`Format::work`], and if the layout exceeds the target's memory limit.
    pub fn work(
        &self,
        analysis: &Analysis<'_>,
        target: &Target<'_>,
    ) -> std::result::Result<Work, Refusal> {
        let work = self.format.work(analysis, &self.params, target)?;
        target.check_bytes(work.layout_bytes)?;
        Ok(work)
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.format.name == other.format.name && self.params == other.params
    }
}

impl Eq for Candidate {}

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.format.name)?;
        for (i, (name, value)) in self.params.written().enumerate() {
            write!(f, "{}{name}={value}", if i == 0 { ':' } else { ',' })?;
        }
        Ok(())
    }
}

impl Serialize for Candidate {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl std::str::FromStr for Candidate {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Candidate::parse(text, FORMATS)
    }
}

/// Every candidate for a device of this kind, in table order.
pub fn candidates(kind: Kind) -> Vec<Candidate> {
    candidates_of(FORMATS, kind)
}

/// Every candidate that a choice for this target ranks: those for its device, except those that store values
/// in a type that the target does not ask for.
pub fn candidates_for(target: &Target<'_>) -> Vec<Candidate> {
    let mut all = candidates(target.device.kind);
    all.retain(|candidate| !candidate.is_needless(target));
    all
}

/// Every candidate of these formats for a device of this kind, in table order.
pub fn candidates_of(formats: &'static [Format], kind: Kind) -> Vec<Candidate> {
    let of = |format| {
        let all = Params::combinations(format, kind).into_iter();
        all.map(move |params| Candidate { format, params })
    };
    formats.iter().flat_map(of).collect()
}
