//! Profiles of GPUs: the one that ships where it is of this GPU, else one made of what the driver
//! tells.

use super::{Device, Kind};
use crate::error::{DeviceFault, Error, Result};

/// What a driver tells of a GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// Its name.
    pub title: String,
    /// Its compute capability, `major.minor`.
    pub capability: String,
    /// Streaming multiprocessors.
    pub processors: u32,
    /// Threads that one of them holds at once.
    pub threads_per_processor: u32,
    /// Their highest clock, in GHz.
    pub clock_ghz: f64,
    /// Bandwidth of the memory by its clock and its bus, in GB/s.
    pub sheet_gbps: f64,
    /// Bytes of the last-level cache.
    pub cache_bytes: u64,
    /// Shared memory that one block may use, in bytes.
    pub shared_bytes: u64,
    /// Memory in bytes.
    pub memory_bytes: u64,
}

/// Part of the bandwidth by clock and bus that streams reach.
const REACHED: f64 = 0.91;

/// The margin of a GPU of the same make as one that ships: the same processors, other memory.
const KIN_MARGIN: f64 = 0.1;

/// That of another, as of hosts that were not probed.
const OTHER_MARGIN: f64 = 0.3;

/// The profile of a GPU. Of one that none ships of, memory is as its driver tells, caches and
/// processors are reckoned from the clock and the number of processors, and ratios are those of the
/// one that ships: of the same compute capability where there is one.
///
/// # Errors
/// [`Error::Device`] where no GPU's profile ships.
pub fn profile(told: &Told) -> Result<Device> {
    let shipped: Vec<Device> =
        Device::shipped().into_iter().filter(|device| device.kind == Kind::Gpu).collect();
    if let Some(known) = shipped.iter().find(|known| told.is(known)) {
        return Ok(known.clone());
    }
    let kin = super::of_capability(&told.capability);
    let base = kin.as_ref().or(shipped.first());
    let base = base.ok_or_else(|| Error::device(DeviceFault::Profile, "no GPU profile ships"))?;
    let read_gbps = REACHED * told.sheet_gbps;
    let of_memory = read_gbps / base.read_gbps;
    // Processors and the last-level cache go by one clock.
    let of_clock = f64::from(told.processors) * told.clock_ghz
        / (f64::from(base.processors) * base.clock_ghz.max(f64::MIN_POSITIVE));
    let name = told.name();
    let taken = shipped.iter().any(|known| known.name == name);
    Ok(Device {
        name: if taken { format!("{name}-{}", told.processors) } else { name },
        title: told.title.clone(),
        source: format!("limits from its driver, ratios from {}", base.name),
        capability: Some(told.capability.clone()),
        clock_ghz: told.clock_ghz,
        read_gbps,
        far_gbps: base.far_gbps * of_memory,
        gather_gbps: base.gather_gbps * of_clock,
        cache_gbps: base.cache_gbps * of_clock,
        lookup_gps: base.lookup_gps * of_clock,
        cache_bytes: told.cache_bytes,
        near_bytes: told.shared_bytes,
        shared_bytes: told.shared_bytes,
        processors: told.processors,
        threads_per_processor: told.threads_per_processor,
        memory_bytes: told.memory_bytes,
        convert_gbps: base.convert_gbps * of_memory,
        fitted: false,
        margin: if kin.is_some() { KIN_MARGIN } else { OTHER_MARGIN },
        ..base.clone()
    })
}

impl Told {
    /// Whether a profile is of this GPU: a slice of one (MIG) and another that has its name in its own
    /// (GH200 of H200) are not.
    fn is(&self, known: &Device) -> bool {
        let title = self.title.to_lowercase();
        let whole = self.memory_bytes as f64 > 0.9 * known.memory_bytes as f64;
        title.split_whitespace().any(|word| word == known.name)
            && self.processors == known.processors
            && whole
    }

    /// The title as a name of files and records: `h100-80gb-hbm3` of `NVIDIA H100 80GB HBM3`.
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

    /// An H200, as its driver tells.
    fn h200() -> Told {
        Told {
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
    fn a_gpu_that_a_profile_ships_of_has_that_one() {
        assert_eq!(profile(&h200()).expect("ships"), find("h200").expect("ships"));
    }

    #[test]
    fn what_the_driver_tells_makes_the_same_of_the_gpu_that_ships() {
        let told = Told { title: "NVIDIA H200X".into(), ..h200() };
        let (made, known) = (profile(&told).expect("made"), find("h200").expect("ships"));
        let near = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 0.01, "{a} {b}");
        near(made.read_gbps, known.read_gbps);
        near(made.gather_gbps, known.gather_gbps);
        near(made.cache_gbps, known.cache_gbps);
        near(made.lookup_gps, known.lookup_gps);
        near(made.far_gbps, known.far_gbps);
        assert_eq!((made.cache_bytes, made.near_bytes), (known.cache_bytes, known.near_bytes));
    }

    #[test]
    fn memory_and_processors_of_kin_scale_apart() {
        let h100 = Told {
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
        assert_eq!((made.margin, made.fitted), (KIN_MARGIN, false));
        assert_eq!(made.kin().expect("the H200").name, "h200");
        assert!(known.kin().is_none());
    }

    #[test]
    fn others_are_none_of_it() {
        let a100 = Told {
            title: "NVIDIA A100-SXM4-80GB".into(),
            capability: "8.0".into(),
            processors: 108,
            shared_bytes: 166_912,
            ..h200()
        };
        let made = profile(&a100).expect("made");
        assert_eq!((made.name.as_str(), made.margin), ("a100-sxm4-80gb", OTHER_MARGIN));
        assert_eq!(made.shared_bytes, 166_912);
        assert!(made.kin().is_none());
        let slice = Told { processors: 16, memory_bytes: 18 << 30, ..h200() };
        assert_eq!(profile(&slice).expect("made").name, "h200-16");
        let grace = Told { title: "NVIDIA GH200 480GB".into(), ..h200() };
        assert_eq!(profile(&grace).expect("made").name, "gh200-480gb");
    }
}
