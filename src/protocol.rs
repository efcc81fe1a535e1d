//! The timing protocol: numbers of copies, products and samples of a measurement.

use serde::{Deserialize, Deserializer, Serialize};

use crate::device::Device;
use crate::error::{Error, Result};

/// Parameters of the timing protocol. Records of different protocols are not comparable.
///
/// ```
/// use ellect::measure::Protocol;
///
/// let short = Protocol { min_samples: 1, max_samples: 3, ..Protocol::default() };
/// assert_eq!(short.version, Protocol::default().version);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Protocol {
    /// Version of the procedure; raised whenever the procedure changes.
    pub version: u32,
    /// Warm-up products of each copy before the first sample.
    pub warmup: u32,
    /// Minimum time of one sample, in seconds; products are repeated until it is reached.
    pub min_sample_s: f64,
    /// Minimum number of samples.
    pub min_samples: u32,
    /// Maximum number of samples.
    pub max_samples: u32,
    /// Relative spread at which sampling stops: `median / min - 1`.
    pub spread: f64,
    /// Time after which sampling stops regardless of the spread, in seconds.
    pub max_s: f64,
    /// Size of all copies, which take turns, as a multiple of the last-level cache.
    pub cold_factor: f64,
    /// Maximum number of copies.
    pub max_copies: u32,
    /// Maximum share of the device's memory that the copies may take.
    pub max_memory_share: f64,
    /// Time after which no further copy is made, in seconds.
    pub max_convert_s: f64,
    /// Seed of x and y.
    pub seed: u64,
    /// Vectors of each product.
    #[serde(
        default = "one",
        skip_serializing_if = "is_one",
        deserialize_with = "deserialize_vectors"
    )]
    pub vectors: usize,
}

/// Number of vectors unless a workload or a record says otherwise.
pub(crate) fn one() -> usize {
    1
}

/// Tells whether a number of vectors is the usual one, which is not written.
pub(crate) fn is_one(vectors: &usize) -> bool {
    *vectors == 1
}

/// Tells whether a number is 0 and need not be written.
pub(crate) fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Checks a number of vectors.
///
/// # Errors
/// [`Error::Argument`] for 0 and above [`MOST_VECTORS`].
pub(crate) fn check_vectors(vectors: usize) -> Result<()> {
    if (1..=MOST_VECTORS).contains(&vectors) {
        return Ok(());
    }
    Err(Error::argument(format!(
        "the number of vectors of a product is {vectors}; it must be from 1 to {MOST_VECTORS}"
    )))
}

/// Maximum number of vectors of one product of a workload; operators themselves have no limit.
pub const MOST_VECTORS: usize = 1024;

/// Reads a number of vectors.
pub(crate) fn deserialize_vectors<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<usize, D::Error> {
    let vectors = usize::deserialize(deserializer)?;
    check_vectors(vectors).map_err(serde::de::Error::custom)?;
    Ok(vectors)
}

impl Default for Protocol {
    fn default() -> Self {
        Protocol {
            version: 2,
            warmup: 1,
            min_sample_s: 2e-3,
            min_samples: 5,
            max_samples: 40,
            spread: 0.02,
            max_s: 0.5,
            cold_factor: 4.0,
            max_copies: 8,
            max_memory_share: 0.25,
            max_convert_s: 0.5,
            seed: 1,
            vectors: 1,
        }
    }
}

impl Protocol {
    /// Returns the number of copies that take turns on this device if one takes `bytes` bytes, so
    /// that all of them exceed its cache by the protocol's factor. On hosts, only the profiles that
    /// ship were measured so: products there are timed with one layout.
    pub fn copies(&self, bytes: u64, device: &Device) -> usize {
        let cold = self.cold_factor * device.cache_bytes as f64;
        let room = self.max_memory_share * device.memory_bytes as f64;
        let bytes = bytes.max(1) as f64;
        let wanted = (cold / bytes).ceil().min(room / bytes).min(f64::from(self.max_copies));
        wanted.max(1.0) as usize
    }
}
