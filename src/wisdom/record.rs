//! Records of wisdom: structures of matrices, and measurements. Each is one line of JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::lines::MOST_BYTES;
use crate::analysis::Analysis;
use crate::features::Features;
use crate::fingerprint::Fingerprint;
use crate::format::{Basis, Candidate, Work};
use crate::measure::{Measurement, Outcome, Provenance, Samples, TICK_S};
use crate::scalar::Precision;

/// Description of a measured matrix: size, features and origin of its pattern.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StructureRecord {
    /// Fingerprint of the pattern.
    pub fingerprint: Fingerprint,
    /// Origin of the matrix: a file name or the specification of a generator; empty if unknown.
    #[serde(default)]
    pub source: String,
    /// Other origins under which this pattern was seen, for instance the name of the user's file if
    /// the pattern ships under another one; at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Name shared by matrices that resemble each other; empty if unknown.
    #[serde(default)]
    pub family: String,
    /// Number of rows.
    pub nrows: u64,
    /// Number of columns.
    pub ncols: u64,
    /// Number of nonzeros.
    pub nnz: u64,
    /// Features by name.
    pub features: BTreeMap<String, f64>,
    /// Time that features and estimates took, in seconds; `None` if it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub analysis_s: Option<f64>,
}

impl StructureRecord {
    /// Describes a pattern; costs as much as [`Features::of`].
    pub fn of(structure: &Analysis<'_>, source: &str, family: &str) -> Self {
        let pattern = structure.pattern();
        let features = Features::of(structure);
        let finite = features.iter().filter(|(_, value)| value.is_finite());
        StructureRecord {
            fingerprint: structure.fingerprint(),
            source: source.to_string(),
            names: Vec::new(),
            family: family.to_string(),
            nrows: pattern.nrows() as u64,
            ncols: pattern.ncols() as u64,
            nnz: pattern.nnz() as u64,
            features: finite.map(|(feature, value)| (feature.name.to_string(), value)).collect(),
            analysis_s: None,
        }
    }

    /// Fills the empty fields of this record from `other`, a record of the same matrix.
    pub(super) fn with(mut self, other: &Self) -> Self {
        let fill = |own: &mut String, other: &str| {
            if own.is_empty() {
                *own = other.to_string();
            }
        };
        fill(&mut self.source, &other.source);
        fill(&mut self.family, &other.family);
        if self.features.is_empty() {
            self.features.clone_from(&other.features);
        }
        self.analysis_s = self.analysis_s.or(other.analysis_s);
        for name in &other.names {
            self.add_name(name);
        }
        self
    }

    /// Like [`StructureRecord::with`], and keeps the origins of both: a new one becomes the source,
    /// and the earlier one a name.
    pub(super) fn named_also(mut self, other: &Self) -> Self {
        let (source, names) = (std::mem::take(&mut self.source), std::mem::take(&mut self.names));
        let mut both = self.with(other);
        if !source.is_empty() && !other.is_named(&source) {
            let earlier = std::mem::replace(&mut both.source, source);
            both.add_name(&earlier);
        }
        names.iter().for_each(|name| both.add_name(name));
        both
    }

    /// Tells whether the matrix has this origin, among others.
    pub fn is_named(&self, name: &str) -> bool {
        self.source == name || self.names.iter().any(|one| one == name)
    }

    /// Adds an origin, as the source if that is unknown; the earliest ones stay if there are too
    /// many.
    pub(super) fn add_name(&mut self, name: &str) {
        if name.is_empty() || self.is_named(name) {
            return;
        }
        if self.source.is_empty() {
            self.source = name.to_string();
        } else if self.names.len() < MOST_NAMES {
            self.names.push(name.to_string());
        }
    }
}

/// One record, in the form of one line of an export.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Record {
    /// Description of a matrix.
    Structure(StructureRecord),
    /// Measurement of one candidate on one matrix.
    Measurement(Box<Measurement>),
}

/// Maximum number of further names of one pattern.
pub const MOST_NAMES: usize = 20;

/// Maximum length of a name in a record, in bytes.
const MOST_TEXT: usize = 1000;

/// Separates the parts of a key; no name contains it.
pub(super) const SEPARATOR: char = '\u{1f}';

impl Record {
    /// Reads and validates a line of JSON.
    ///
    /// # Errors
    /// Returns the reason as text if the line is not a valid record.
    pub fn parse(line: &[u8]) -> Result<Record, String> {
        let mut record: Record = serde_json::from_slice(line).map_err(|e| e.to_string())?;
        record.validate()?;
        Ok(record)
    }

    /// Writes the record as a line of JSON, without the line break.
    pub fn line(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("records are plain data")
    }

    /// Checks figures and names, and rewrites the candidate in this program's spelling.
    ///
    /// # Errors
    /// Returns the reason as text if a figure or a name is not valid.
    pub fn validate(&mut self) -> Result<(), String> {
        match self {
            Record::Structure(structure) => {
                name("source", &structure.source)?;
                name("family", &structure.family)?;
                structure.names.iter().try_for_each(|one| name("names", one))?;
                structure.names.truncate(MOST_NAMES);
                let limit = u64::from(u32::MAX);
                if structure.nrows > limit || structure.ncols > limit {
                    let (nrows, ncols) = (structure.nrows, structure.ncols);
                    return Err(format!("{nrows} x {ncols} is over the limit of {limit}"));
                }
                if u128::from(structure.nnz)
                    > u128::from(structure.nrows) * u128::from(structure.ncols)
                {
                    let StructureRecord { nrows, ncols, nnz, .. } = structure;
                    return Err(format!("{nnz} nonzeros do not fit {nrows} x {ncols}"));
                }
                if let Some(bad) = structure.analysis_s.filter(|s| !(s.is_finite() && *s >= 0.0)) {
                    return Err(format!("analysis_s is {bad}"));
                }
                match structure.features.iter().find(|(_, value)| !value.is_finite()) {
                    Some((feature, value)) => Err(format!("feature {feature} is {value}")),
                    None => structure.features.keys().try_for_each(|key| name("feature", key)),
                }
            }
            Record::Measurement(measurement) => measurement_is_valid(measurement),
        }
    }

    /// Returns the fingerprint of the matrix that this record describes.
    pub fn fingerprint(&self) -> Fingerprint {
        match self {
            Record::Structure(structure) => structure.fingerprint,
            Record::Measurement(measurement) => measurement.fingerprint,
        }
    }

    /// Returns the key of this record in the database; each key holds one record.
    pub(crate) fn key(&self) -> String {
        match self {
            Record::Structure(structure) => structure.fingerprint.to_string(),
            Record::Measurement(measurement) => key_of(measurement),
        }
    }
}

/// Tells whether a line is a mark between the records of a database's own export, not a record.
pub(super) fn is_mark(line: &[u8]) -> bool {
    let kinds = [&br#"{"kind":"commit","#[..], br#"{"kind":"removed","#];
    kinds.iter().any(|kind| line.starts_with(kind))
}

/// Tells whether the record fits in a line of [`MOST_BYTES`].
pub(super) fn fits_a_line(measurement: &Measurement) -> bool {
    Record::Measurement(Box::new(measurement.clone())).line().len() <= MOST_BYTES
}

/// Returns the key of a measurement.
pub(super) fn key_of(m: &Measurement) -> String {
    let Provenance { driver, kernels, .. } = &m.provenance;
    let version = m.protocol.version.to_string();
    let rest = [driver.as_str(), kernels, &version];
    subject_of(m) + &rest.join(&SEPARATOR.to_string())
}

/// Returns the common prefix of the keys of all measurements of this measurement's candidate.
pub(super) fn subject_of(m: &Measurement) -> String {
    let products = (m.precision, m.basis, m.protocol.vectors);
    prefix(m.fingerprint, &m.device, products, &m.candidate)
}

/// Returns the common prefix of the keys of all measurements of one candidate.
///
/// `products` are the precision, the basis and the number of vectors of a product; one vector is not
/// written.
pub(super) fn prefix(
    fingerprint: Fingerprint,
    device: &str,
    products: (Precision, Basis, usize),
    candidate: &str,
) -> String {
    let (precision, basis, vectors) = products;
    let precision = precision.to_string();
    let basis = match vectors {
        1 => basis.to_string(),
        vectors => format!("{basis} vectors={vectors}"),
    };
    let mut key = fingerprint.to_string();
    key.push(SEPARATOR);
    for part in [device, &precision, &basis, candidate] {
        key += part;
        key.push(SEPARATOR);
    }
    key
}

fn name(what: &str, text: &str) -> Result<(), String> {
    match text {
        text if text.len() > MOST_TEXT => {
            Err(format!("{what} has {} bytes, over the limit of {MOST_TEXT}", text.len()))
        }
        text if text.chars().any(char::is_control) => {
            Err(format!("{what} contains a control character"))
        }
        _ => Ok(()),
    }
}

fn measurement_is_valid(m: &mut Measurement) -> Result<(), String> {
    let candidate: Candidate =
        m.candidate.parse().map_err(|e: crate::error::Error| e.to_string())?;
    m.candidate = candidate.to_string();
    if m.device.is_empty() {
        return Err("device is empty".into());
    }
    name("device", &m.device)?;
    name("driver", &m.provenance.driver)?;
    name("kernels", &m.provenance.kernels)?;
    if let Some(inputs) = &m.inputs {
        let Work { x_sectors, x_loaded, tile_steps, tile_steps_most, .. } = inputs.work;
        let counts = [
            ("new_share", inputs.matrix.new_share),
            ("x_sectors", x_sectors),
            ("x_loaded", x_loaded.unwrap_or(0.0)),
            ("tile_steps", tile_steps),
            ("tile_steps_most", tile_steps_most),
        ];
        let wrong = |(_, count): &(&str, f64)| !(count.is_finite() && *count >= 0.0);
        if let Some((what, count)) = counts.into_iter().find(wrong) {
            return Err(format!("seen: {what} is {count}"));
        }
    }
    let Outcome::Timed(timing) = &m.outcome else { return Ok(()) };
    for run in timing.runs() {
        samples("spmv", run)?;
        if run.min_s <= 0.0 {
            return Err("spmv: min_s is not positive".into());
        }
    }
    samples("convert", &timing.convert)?;
    name("convert_kernels", &timing.convert_kernels)?;
    if !(timing.update_s.is_finite() && timing.update_s >= 0.0) {
        return Err(format!("update_s is {}", timing.update_s));
    }
    match (timing.products_per_sample, timing.copies) {
        (0, _) | (_, 0) => Err("products_per_sample and copies must be at least 1".into()),
        _ => Ok(()),
    }
}

fn samples(what: &str, samples: &Samples) -> Result<(), String> {
    if samples.raw_s.is_empty() {
        return Err(format!("{what} has no samples"));
    }
    if let Some(bad) = samples.raw_s.iter().find(|s| !(s.is_finite() && **s >= 0.0)) {
        return Err(format!("{what}: a sample is {bad}"));
    }
    if let Some(bad) = samples.beside_s.filter(|s| !(s.is_finite() && *s >= 0.0)) {
        return Err(format!("{what}: beside_s is {bad}"));
    }
    let computed = Samples::new(samples.raw_s.clone());
    // Older versions stored samples without rounding.
    let same = |a: f64, b: f64| (a - b).abs() <= TICK_S;
    match same(computed.min_s, samples.min_s) && same(computed.median_s, samples.median_s) {
        true => Ok(()),
        false => Err(format!(
            "{what}: min_s {} and median_s {} do not match the samples, which give {} and {}",
            samples.min_s, samples.median_s, computed.min_s, computed.median_s
        )),
    }
}
