//! State of a device during a measurement: clocks, power and temperature, which affect its times.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// State reported by a device; figures that it does not report are `None` and absent from records.
///
/// A GPU reports its state through NVML, under load; a host through `/sys/devices/system/cpu`.
///
/// ```
/// use ellect::device::State;
///
/// let unknown = State::default();
/// assert_eq!(unknown.clock_mhz, None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// Name of the GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Version of the GPU's driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver_version: Option<String>,
    /// Clock of the multiprocessors, or of the host's first core, in MHz.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_mhz: Option<f64>,
    /// Clock of the GPU's memory, in MHz.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mhz: Option<f64>,
    /// Tells whether the GPU's memory has error correction (ECC) enabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecc: Option<bool>,
    /// Power that the GPU draws, in W.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_w: Option<f64>,
    /// Power limit of the GPU, in W.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_limit_w: Option<f64>,
    /// Reasons that currently throttle the GPU's clocks, in NVML's terms; empty if none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttle: Option<Vec<String>>,
    /// Temperature of the GPU, in degrees Celsius.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_c: Option<f64>,
    /// Frequency governor of the host's first core, for instance `performance`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
}

impl State {
    /// Reads the current state of this host.
    pub fn of_host() -> Self {
        State::under(Path::new("/sys/devices/system/cpu"))
    }

    /// Reads the state of a host from a folder laid out like Linux's `/sys/devices/system/cpu`.
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
    fn a_host_reports_its_governor_and_clock_or_nothing() {
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
