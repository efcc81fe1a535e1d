//! The state of a device while it measures: what explains that the same code takes another time.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// What a device tells of itself; what it does not tell is absent, also from the record.
///
/// A GPU is asked through NVML, at work; a host through `/sys/devices/system/cpu`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// The GPU's own name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The version of the GPU's driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver_version: Option<String>,
    /// Clock of the multiprocessors, or of the host's first core, in MHz.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_mhz: Option<f64>,
    /// Clock of the GPU's memory, in MHz.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mhz: Option<f64>,
    /// Whether the GPU's memory corrects errors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecc: Option<bool>,
    /// Power that the GPU draws, in W.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_w: Option<f64>,
    /// Power that it may draw, in W.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_limit_w: Option<f64>,
    /// What holds the GPU's clocks down, in NVML's words; empty where nothing does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttle: Option<Vec<String>>,
    /// Temperature of the GPU, in degrees Celsius.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_c: Option<f64>,
    /// What sets the clock of the host's first core: `performance` for instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
}

impl State {
    /// Of this host, now.
    pub fn of_host() -> Self {
        State::under(Path::new("/sys/devices/system/cpu"))
    }

    /// Of a host whose processors this folder describes, as Linux does.
    fn under(cpu: &Path) -> Self {
        let read = |name: &str| {
            let text = fs::read_to_string(cpu.join("cpu0/cpufreq").join(name)).ok()?;
            Some(text.trim().to_string()).filter(|text| !text.is_empty())
        };
        let khz = read("scaling_cur_freq").and_then(|text| text.parse::<u32>().ok());
        State {
            clock_mhz: khz.map(|khz| f64::from(khz) / 1e3),
            governor: read("scaling_governor"),
            ..State::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_tells_its_governor_and_clock_or_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(State::under(folder.path()), State::default());
        let cpufreq = folder.path().join("cpu0/cpufreq");
        fs::create_dir_all(&cpufreq).expect("writable");
        fs::write(cpufreq.join("scaling_governor"), "performance\n").expect("writable");
        fs::write(cpufreq.join("scaling_cur_freq"), "2600123\n").expect("writable");
        let state = State::under(folder.path());
        assert_eq!(state.governor.as_deref(), Some("performance"));
        assert_eq!(state.clock_mhz, Some(2600.123));
        fs::write(cpufreq.join("scaling_cur_freq"), "<unknown>\n").expect("writable");
        assert_eq!(State::under(folder.path()).clock_mhz, None);
    }
}
