//! The protocol of timing: how many copies, products and samples a time is made from.

use serde::{Deserialize, Serialize};

use crate::device::Device;

/// How timings are taken. Records of different protocols are not comparable.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Protocol {
    /// Raised whenever the procedure of this module changes.
    pub version: u32,
    /// Products of each copy before the first sample.
    pub warmup: u32,
    /// The least time of one sample, in seconds: products are repeated until it is reached.
    pub min_sample_s: f64,
    /// The least number of samples.
    pub min_samples: u32,
    /// The most samples.
    pub max_samples: u32,
    /// Samples end when `median / min - 1` is at most this.
    pub spread: f64,
    /// Samples end after this time, in seconds, whatever their spread.
    pub max_s: f64,
    /// Copies take turns until all together hold this many times the last-level cache...
    pub cold_factor: f64,
    /// ...but at most so many...
    pub max_copies: u32,
    /// ...of at most this share of the device's memory...
    pub max_memory_share: f64,
    /// ...as long as making them has not taken this time, in seconds.
    pub max_convert_s: f64,
    /// Seed of x and y.
    pub seed: u64,
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
        }
    }
}

impl Protocol {
    /// Copies that take turns on this device where one takes `bytes`.
    pub fn copies(&self, bytes: u64, device: &Device) -> usize {
        let cold = self.cold_factor * device.cache_bytes as f64;
        let room = self.max_memory_share * device.memory_bytes as f64;
        let bytes = bytes.max(1) as f64;
        let wanted = (cold / bytes).ceil().min(room / bytes).min(f64::from(self.max_copies));
        wanted.max(1.0) as usize
    }
}
