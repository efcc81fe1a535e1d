//! State of a GPU as NVML reports it. NVML is opened at run time; without it, nothing is reported.

use std::ffi::OsStr;

use cust::device::DeviceAttribute;
use nvml_wrapper::Nvml;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};

use crate::device::State;

/// An open NVML and the GPU's PCI bus address, because CUDA may number GPUs in another order.
pub(super) struct Monitor {
    nvml: Nvml,
    bus_id: String,
    /// The part of the state that never changes.
    fixed: State,
}

impl Monitor {
    /// Opens NVML for this GPU; `None` if the library is missing or does not know the GPU.
    pub fn open(device: cust::device::Device) -> Option<Self> {
        let nvml = Nvml::builder().lib_path(OsStr::new("libnvidia-ml.so.1")).init().ok()?;
        let attribute = |which| device.get_attribute(which).ok();
        let bus_id = format!(
            "{:08x}:{:02x}:{:02x}.0",
            attribute(DeviceAttribute::PciDomainId)?,
            attribute(DeviceAttribute::PciBusId)?,
            attribute(DeviceAttribute::PciDeviceId)?
        );
        let device = nvml.device_by_pci_bus_id(bus_id.as_str()).ok()?;
        let fixed = State {
            name: device.name().ok(),
            driver_version: nvml.sys_driver_version().ok(),
            ecc: device.is_ecc_enabled().ok().map(|mode| mode.currently_enabled),
            ..State::default()
        };
        Some(Monitor { nvml, bus_id, fixed })
    }

    /// Reads the current state of the GPU.
    pub fn state(&self) -> State {
        let Ok(device) = self.nvml.device_by_pci_bus_id(self.bus_id.as_str()) else {
            return self.fixed.clone();
        };
        let watts = |milliwatts: u32| f64::from(milliwatts) / 1e3;
        let names = |reasons: ThrottleReasons| {
            let names = reasons.iter_names().map(|(name, _)| name.to_lowercase());
            names.collect::<Vec<_>>()
        };
        State {
            clock_mhz: device.clock_info(Clock::SM).ok().map(f64::from),
            memory_mhz: device.clock_info(Clock::Memory).ok().map(f64::from),
            power_w: device.power_usage().ok().map(watts),
            power_limit_w: device.enforced_power_limit().ok().map(watts),
            throttle: device.current_throttle_reasons().ok().map(names),
            temperature_c: device.temperature(TemperatureSensor::Gpu).ok().map(f64::from),
            ..self.fixed.clone()
        }
    }
}
