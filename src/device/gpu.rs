//! Profiles of GPUs: the shipped profile if there is one of this GPU, otherwise a profile built
//! from the driver's figures.

use super::{Device, Kind, OTHER_MARGIN};
use crate::error::{DeviceFault, Error, Result};

/// Figures of a GPU as reported by its driver.
#[derive(Clone, Debug, PartialEq)]
pub struct DriverInfo {
    /// Name of the GPU.
    pub title: String,
    /// Compute capability, `major.minor`.
    pub capability: String,
    /// Number of streaming multiprocessors.
    pub processors: u32,
    /// Maximum number of resident threads on one multiprocessor.
    pub threads_per_processor: u32,
    /// Highest clock of the multiprocessors, in GHz.
    pub clock_ghz: f64,
    /// Memory bandwidth computed from memory clock and bus width, in GB/s.
    pub sheet_gbps: f64,
    /// Size of the last-level cache, in bytes.
    pub cache_bytes: u64,
    /// Maximum shared memory of one block, in bytes.
    pub shared_bytes: u64,
    /// Memory of the device, in bytes.
    pub memory_bytes: u64,
}

/// Share of the computed memory bandwidth that streams reach.
const REACHED: f64 = 0.91;

/// Margin of a GPU with the same compute capability as a shipped one: same processors, other
/// memory.
const PROXY_MARGIN: f64 = 0.1;

/// Builds the profile of a GPU: the shipped one if it describes this GPU, otherwise an estimate.
///
/// The estimate takes memory figures from the driver and scales the figures of caches and
/// processors by the clock and the number of processors. All ratios are those of a shipped profile,
/// with the same compute capability if there is one.
///
/// # Errors
/// [`Error::Device`] if no GPU profile ships.
pub fn profile(info: &DriverInfo) -> Result<Device> {
    let shipped: Vec<Device> =
        Device::shipped().into_iter().filter(|device| device.kind == Kind::Gpu).collect();
    if let Some(known) = shipped.iter().find(|known| info.matches(known)) {
        return Ok(known.clone());
    }
    let proxy = super::of_capability(&info.capability);
    let base = proxy.as_ref().or(shipped.first());
    let base = base.ok_or_else(|| Error::device(DeviceFault::Profile, "no GPU profile ships"))?;
    let read_gbps = REACHED * info.sheet_gbps;
    let of_memory = read_gbps / base.read_gbps;
    // Processors and the last-level cache scale with the same clock.
    let of_clock = f64::from(info.processors) * info.clock_ghz
        / (f64::from(base.processors) * base.clock_ghz.max(f64::MIN_POSITIVE));
    let name = info.name();
    let taken = shipped.iter().any(|known| known.name == name);
    Ok(Device {
        name: if taken { format!("{name}-{}", info.processors) } else { name },
        title: info.title.clone(),
        source: format!("limits from its driver, ratios from {}", base.name),
        capability: Some(info.capability.clone()),
        clock_ghz: info.clock_ghz,
        read_gbps,
        far_gbps: base.far_gbps * of_memory,
        gather_gbps: base.gather_gbps * of_clock,
        cache_gbps: base.cache_gbps * of_clock,
        lookup_gps: base.lookup_gps * of_clock,
        cache_bytes: info.cache_bytes,
        near_bytes: info.shared_bytes,
        shared_bytes: info.shared_bytes,
        processors: info.processors,
        threads_per_processor: info.threads_per_processor,
        memory_bytes: info.memory_bytes,
        convert_gbps: base.convert_gbps * of_memory,
        fitted: false,
        margin: if proxy.is_some() { PROXY_MARGIN } else { OTHER_MARGIN },
        ..base.clone()
    })
}

impl DriverInfo {
    /// Tells whether a profile describes this GPU.
    ///
    /// A MIG slice does not match the whole GPU, nor does a GPU whose name merely contains the
    /// other's (GH200 and H200).
    fn matches(&self, known: &Device) -> bool {
        let title = self.title.to_lowercase();
        let whole = self.memory_bytes as f64 > 0.9 * known.memory_bytes as f64;
        title.split_whitespace().any(|word| word == known.name)
            && self.processors == known.processors
            && whole
    }

    /// Derives a name for files and records from the title: `h100-80gb-hbm3` from `NVIDIA H100 80GB
    /// HBM3`.
    fn name(&self) -> String {
        let title = self.title.to_lowercase();
        let kept = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { ' ' };
        let plain: String = title.chars().map(kept).collect();
        let words = plain.split_whitespace().filter(|word| *word != "nvidia");
        let name = words.collect::<Vec<_>>().join("-");
        if name.is_empty() { "gpu".to_string() } else { name }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::find;

    /// Figures of an H200 as its driver reports them.
    fn h200() -> DriverInfo {
        DriverInfo {
            title: "NVIDIA H200".into(),
            capability: "9.0".into(),
            processors: 132,
            threads_per_processor: 2048,
            clock_ghz: 1.98,
            sheet_gbps: 4917.0,
            cache_bytes: 62_914_560,
            shared_bytes: 232_448,
            memory_bytes: 150_754_820_096,
        }
    }

    #[test]
    fn a_gpu_with_a_shipped_profile_gets_it() {
        assert_eq!(profile(&h200()).expect("ships"), find("h200").expect("ships"));
    }

    #[test]
    fn figures_of_the_driver_reproduce_the_shipped_profile() {
        let info = DriverInfo { title: "NVIDIA H200X".into(), ..h200() };
        let (made, known) = (profile(&info).expect("made"), find("h200").expect("ships"));
        let near = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 0.01, "{a} {b}");
        near(made.read_gbps, known.read_gbps);
        near(made.gather_gbps, known.gather_gbps);
        near(made.cache_gbps, known.cache_gbps);
        near(made.lookup_gps, known.lookup_gps);
        near(made.far_gbps, known.far_gbps);
        assert_eq!((made.cache_bytes, made.near_bytes), (known.cache_bytes, known.near_bytes));
    }

    #[test]
    fn memory_and_processors_scale_separately_from_the_proxy() {
        let h100 = DriverInfo {
            title: "NVIDIA H100 80GB HBM3".into(),
            sheet_gbps: 3352.0,
            cache_bytes: 52_428_800,
            memory_bytes: 85_000_000_000,
            ..h200()
        };
        let (made, known) = (profile(&h100).expect("made"), find("h200").expect("ships"));
        assert_eq!(made.name, "h100-80gb-hbm3");
        assert!(made.read_gbps < 0.7 * known.read_gbps);
        assert_eq!(made.gather_gbps, known.gather_gbps);
        assert_eq!((made.margin, made.fitted), (PROXY_MARGIN, false));
        assert_eq!(made.proxy().expect("the H200").name, "h200");
        assert!(known.proxy().is_none());
    }

    #[test]
    fn other_architectures_slices_and_similar_names_do_not_match() {
        let a100 = DriverInfo {
            title: "NVIDIA A100-SXM4-80GB".into(),
            capability: "8.0".into(),
            processors: 108,
            shared_bytes: 166_912,
            ..h200()
        };
        let made = profile(&a100).expect("made");
        assert_eq!((made.name.as_str(), made.margin), ("a100-sxm4-80gb", OTHER_MARGIN));
        assert_eq!(made.shared_bytes, 166_912);
        assert!(made.proxy().is_none());
        let slice = DriverInfo { processors: 16, memory_bytes: 18 << 30, ..h200() };
        assert_eq!(profile(&slice).expect("made").name, "h200-16");
        let grace = DriverInfo { title: "NVIDIA GH200 480GB".into(), ..h200() };
        assert_eq!(profile(&grace).expect("made").name, "gh200-480gb");
    }
}
