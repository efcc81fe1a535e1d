//! Devices: what a product may run on, and the limits that costs are computed from.

#[cfg(feature = "cuda")]
pub mod cuda;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// What sort of device; candidates differ between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A CUDA GPU.
    Gpu,
    /// The processor this program runs on.
    Host,
}

/// Limits of one device, as measured; `source` says by whom and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// The name used on the command line and in records, for instance `h200`.
    pub name: String,
    /// GPU or host.
    pub kind: Kind,
    /// The full name, for people.
    pub title: String,
    /// Where the figures come from.
    pub source: String,
    /// Bandwidth of reading a stream from memory, in GB/s (1e9 bytes a second).
    pub read_gbps: f64,
    /// Bandwidth of scattered 32-byte sectors from the last-level cache, in GB/s.
    pub gather_gbps: f64,
    /// Bytes of the last-level cache.
    pub cache_bytes: u64,
    /// Bandwidth of a stream served from the last-level cache, in GB/s.
    pub cache_gbps: f64,
    /// Streaming multiprocessors, or cores used.
    pub processors: u32,
    /// Threads that one processor holds at once.
    pub threads_per_processor: u32,
    /// Shared memory that one block may use, in bytes (0 on a host).
    pub shared_bytes: u64,
    /// Time of one launch (or of one parallel region on a host), in seconds.
    pub launch_s: f64,
    /// Bandwidth of the link to the host, in GB/s (0 on a host).
    pub link_gbps: f64,
    /// Memory of the device in bytes.
    pub memory_bytes: u64,
}

impl Device {
    /// The device profiles that ship with the program.
    ///
    /// # Panics
    /// Never: a test reads them all.
    pub fn shipped() -> Vec<Device> {
        [
            include_str!("../../models/devices/h200.json"),
            include_str!("../../models/devices/cpu.json"),
        ]
        .into_iter()
        .map(|text| serde_json::from_str(text).expect("shipped device profiles are valid"))
        .collect()
    }
}

/// The shipped device of this name.
///
/// # Errors
/// [`Error::Device`] with the known names.
pub fn find(name: &str) -> Result<Device> {
    let devices = Device::shipped();
    let known: Vec<_> = devices.iter().map(|device| device.name.clone()).collect();
    devices.into_iter().find(|device| device.name == name).ok_or_else(|| {
        Error::Device(format!("no device is named '{name}'; there are: {}", known.join(", ")))
    })
}
