//! GPUs that are known by their data sheets alone: choices for them rest on limits that nobody
//! measured here.

use super::gpu::{DriverInfo, profile};
use super::{Device, OTHER_MARGIN};

/// The data sheet of a GPU.
struct Sheet {
    /// Name on the command line.
    name: &'static str,
    /// Full name.
    title: &'static str,
    /// Compute capability.
    capability: &'static str,
    /// Numbers of multiprocessors, and of resident threads on one of them.
    processors: [u32; 2],
    /// Boost clock, in GHz.
    clock_ghz: f64,
    /// Memory bandwidth, in GB/s.
    memory_gbps: f64,
    /// Last-level cache, in MiB.
    cache_mib: u64,
    /// Maximum shared memory of one block, in KiB.
    shared_kib: u64,
    /// Memory, in GiB.
    memory_gib: u64,
    /// Document of the figures.
    document: &'static str,
}

/// All GPUs known by data sheet; limits of threads and shared memory are from the table of compute
/// capabilities in NVIDIA's "CUDA C++ Programming Guide".
const SHEETS: &[Sheet] = &[
    Sheet {
        name: "a100",
        title: "NVIDIA A100 SXM4 80GB",
        capability: "8.0",
        processors: [108, 2048],
        clock_ghz: 1.41,
        memory_gbps: 2039.0,
        cache_mib: 40,
        shared_kib: 163,
        memory_gib: 80,
        document: "NVIDIA A100 Tensor Core GPU Architecture (2020) and data sheet",
    },
    Sheet {
        name: "b200",
        title: "NVIDIA B200",
        capability: "10.0",
        processors: [148, 2048],
        clock_ghz: 1.965,
        memory_gbps: 8000.0,
        cache_mib: 126,
        shared_kib: 227,
        memory_gib: 180,
        document: "NVIDIA Blackwell Architecture Technical Brief (2024) and CUDA's device query",
    },
    Sheet {
        name: "h100",
        title: "NVIDIA H100 SXM5 80GB",
        capability: "9.0",
        processors: [132, 2048],
        clock_ghz: 1.98,
        memory_gbps: 3350.0,
        cache_mib: 50,
        shared_kib: 227,
        memory_gib: 80,
        document: "NVIDIA H100 Tensor Core GPU Architecture (2022) and data sheet",
    },
    Sheet {
        name: "l40s",
        title: "NVIDIA L40S",
        capability: "8.9",
        processors: [142, 1536],
        clock_ghz: 2.52,
        memory_gbps: 864.0,
        cache_mib: 96,
        shared_kib: 99,
        memory_gib: 48,
        document: "NVIDIA L40S data sheet (2023)",
    },
    Sheet {
        name: "rtx4090",
        title: "NVIDIA GeForce RTX 4090",
        capability: "8.9",
        processors: [128, 1536],
        clock_ghz: 2.52,
        memory_gbps: 1008.0,
        cache_mib: 72,
        shared_kib: 99,
        memory_gib: 24,
        document: "NVIDIA Ada GPU Architecture (2022)",
    },
];

/// Returns the names of the GPUs that are known by data sheet.
pub fn names() -> Vec<String> {
    SHEETS.iter().map(|sheet| sheet.name.to_string()).collect()
}

/// Returns the profile of the GPU with this name in upper or lower case, from its data sheet.
pub(super) fn find(name: &str) -> Option<Device> {
    let sheet = SHEETS.iter().find(|sheet| sheet.name.eq_ignore_ascii_case(name))?;
    let info = DriverInfo {
        title: sheet.title.to_string(),
        capability: sheet.capability.to_string(),
        processors: sheet.processors[0],
        threads_per_processor: sheet.processors[1],
        clock_ghz: sheet.clock_ghz,
        sheet_gbps: sheet.memory_gbps,
        cache_bytes: sheet.cache_mib << 20,
        shared_bytes: sheet.shared_kib << 10,
        memory_bytes: sheet.memory_gib << 30,
    };
    let device = profile(&info).ok()?;
    let source = format!(
        "not measured: limits from {}, {}",
        sheet.document,
        device.source.split(", ").last().unwrap_or_default()
    );
    let margin = device.margin.max(OTHER_MARGIN);
    Some(Device { name: sheet.name.to_string(), source, margin, ..device })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sheet_is_a_profile_that_says_it_was_not_measured() {
        for name in names() {
            let device = find(&name.to_uppercase()).expect("listed");
            assert_eq!(device.name, name);
            assert!(device.source.starts_with("not measured"), "{}", device.source);
            assert!(device.source.ends_with("ratios from h200"), "{}", device.source);
            assert!(!device.fitted && device.margin >= OTHER_MARGIN, "{name}");
            let text = serde_json::to_string(&device).expect("plain data");
            assert_eq!(Device::parse(&text).expect("sound"), device);
        }
        let [h100, a100] = ["h100", "a100"].map(|name| find(name).expect("listed"));
        assert!(h100.read_gbps > 1.5 * a100.read_gbps);
        assert_eq!(h100.proxy().map(|proxy| proxy.name), Some("h200".to_string()));
        assert_eq!(a100.proxy(), None);
        assert!(find("nosuch").is_none());
    }
}
