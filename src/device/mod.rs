//! Devices: where products run, and the hardware limits from which costs are computed.
//!
//! A profile is JSON: it ships in `models/devices/`, or [`probe`](crate::measure::probe()) measured
//! it on this host and [`Device::save`] wrote it. The name `cpu` stands for this host: its own
//! profile if one was saved, otherwise the generic one that ships.

pub(crate) mod gpu;
mod sheets;
mod state;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{DeviceFault, Error, Result};
use crate::scalar::Precision;
pub use sheets::names as sheet_names;
pub use state::State;

/// Kind of a device; it decides which candidates apply.
///
/// ```
/// use ellect::device::{self, Kind};
///
/// # fn main() -> ellect::Result<()> {
/// assert_eq!(device::find("h200")?.kind, Kind::Gpu);
/// assert_eq!(device::find("cpu")?.kind, Kind::Host);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A CUDA GPU.
    Gpu,
    /// The processor that this program runs on.
    Host,
}

/// Version of the profiles that this program reads and writes.
pub const SCHEMA: u32 = 1;

/// Measured limits of one device; `source` says where the figures come from.
///
/// ```
/// use ellect::device;
///
/// # fn main() -> ellect::Result<()> {
/// let h200 = device::find("h200")?;
/// assert!(h200.read_gbps > 3000.0 && h200.cache_bytes > 1 << 20);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Version of the profile, [`SCHEMA`].
    pub schema: u32,
    /// Name on the command line and in records, for instance `h200`.
    pub name: String,
    /// GPU or host.
    pub kind: Kind,
    /// Full name, for display.
    pub title: String,
    /// Origin of the figures.
    pub source: String,
    /// Bandwidth of reading a stream from memory, in GB/s (1e9 bytes a second).
    pub read_gbps: f64,
    /// Bandwidth of scattered 32-byte sectors from the last-level cache, in GB/s.
    pub gather_gbps: f64,
    /// Bandwidth of scattered 32-byte sectors from memory, in GB/s; 0 if it equals that of a
    /// stream.
    #[serde(default)]
    pub far_gbps: f64,
    /// Size of the last-level cache, in bytes.
    pub cache_bytes: u64,
    /// Bandwidth of a stream served from the last-level cache, in GB/s.
    pub cache_gbps: f64,
    /// Size of the cache next to one processor, in bytes: L1 of a multiprocessor, L2 of a core.
    pub near_bytes: u64,
    /// Rate at which all processors together look up sectors of x in their nearest caches, in
    /// 1e9/s.
    pub lookup_gps: f64,
    /// Compute capability of a GPU, `major.minor`; GPUs with the same one run the same kernels on
    /// processors of the same architecture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capability: Option<String>,
    /// Highest clock of a GPU's processors, in GHz; 0 if unknown.
    #[serde(default)]
    pub clock_ghz: f64,
    /// Number of streaming multiprocessors, or of threads used on a host.
    pub processors: u32,
    /// Maximum number of resident threads on one processor.
    pub threads_per_processor: u32,
    /// Time between two consecutive entries of a row in one thread, in nanoseconds (0 on a host).
    pub step_ns: f64,
    /// Maximum shared memory of one block, in bytes (0 on a host).
    pub shared_bytes: u64,
    /// Time of one kernel launch, or of one parallel region on a host, in seconds.
    pub launch_s: f64,
    /// Bandwidth of the link to the host, in GB/s (0 on a host).
    pub link_gbps: f64,
    /// Memory of the device, in bytes.
    pub memory_bytes: u64,
    /// Rate at which a conversion reads and writes bytes, in GB/s.
    pub convert_gbps: f64,
    /// Fixed time of a conversion, in seconds.
    pub convert_s: f64,
    /// Time of sorting one key in a conversion, in nanoseconds.
    pub sort_ns: f64,
    /// Time of partitioning one edge of a graph on the host, in nanoseconds.
    pub partition_ns: f64,
    /// Tells whether `kernels` was fitted to measured products; errors on the fitting set
    /// understate errors on unseen matrices.
    #[serde(default)]
    pub fitted: bool,
    /// Minimum predicted speed-up that an untimed candidate needs over the baseline, as a share
    /// (0.1 is 10 %); covers the errors of estimates and predictions for this device.
    #[serde(default)]
    pub margin: f64,
    /// Kernel figures by candidate or by format; see [`Device::figures_of`].
    pub kernels: BTreeMap<String, KernelFigures>,
}

/// A pair of figures, one for each precision.
///
/// ```
/// use ellect::Precision;
/// use ellect::device::PerPrecision;
///
/// assert_eq!(PerPrecision::both(0.9).of(Precision::F32), 0.9);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PerPrecision {
    /// Figure in f32.
    pub f32: f64,
    /// Figure in f64.
    pub f64: f64,
}

impl PerPrecision {
    /// Uses one figure for both precisions.
    pub const fn both(figure: f64) -> Self {
        PerPrecision { f32: figure, f64: figure }
    }

    /// Returns the figure of one precision.
    pub const fn of(self, precision: Precision) -> f64 {
        match precision {
            Precision::F32 => self.f32,
            Precision::F64 => self.f64,
        }
    }
}

/// Fitted figures of a format's kernels on a device.
///
/// ```
/// use ellect::device;
///
/// # fn main() -> ellect::Result<()> {
/// let h200 = device::find("h200")?;
/// let reach = h200.figures_of(["csr", "csr"]);
/// assert!(reach.bandwidth.f64 > 0.0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KernelFigures {
    /// Share of the memory bandwidth that streams of the layout reach.
    pub bandwidth: PerPrecision,
    /// Time of loading sectors of x into the nearest caches, relative to the time at `gather_gbps`.
    pub gather: PerPrecision,
    /// Time of looking up sectors of x in the nearest caches, relative to the time at `lookup_gps`.
    pub lookup: PerPrecision,
    /// Time of one multiply-add on one processor when all data is in its cache, in nanoseconds.
    pub entry_ns: PerPrecision,
    /// Additional time of one row on one processor, in nanoseconds.
    pub row_ns: PerPrecision,
    /// Additional time of a row on one processor if its length differs from the previous row's, in
    /// nanoseconds.
    pub change_ns: PerPrecision,
    /// Time that one processor loses each time a warp waits for loaded entries, in nanoseconds.
    pub wait_ns: PerPrecision,
    /// Time of one step along the longest row, if few threads process it, or along the slowest
    /// tile, in nanoseconds; 0 stands for the device's `step_ns`.
    pub step_ns: PerPrecision,
    /// Fixed time of a product, in microseconds.
    pub fixed_us: PerPrecision,
    /// Time of converting one entry, with all processors at work, in nanoseconds; if 0, the time
    /// follows from the bytes that the conversion moves.
    pub convert_ns: PerPrecision,
    /// Fixed time of a conversion, in microseconds; 0 stands for the device's `convert_s`.
    pub convert_us: PerPrecision,
    /// Time of replacing one value, with all processors at work, in nanoseconds; if 0, the time
    /// follows from the bytes alone.
    pub update_ns: PerPrecision,
}

impl Default for KernelFigures {
    /// Full bandwidth and no additional times.
    fn default() -> Self {
        KernelFigures {
            bandwidth: PerPrecision::both(1.0),
            gather: PerPrecision::both(1.0),
            lookup: PerPrecision::both(1.0),
            entry_ns: PerPrecision::both(0.0),
            row_ns: PerPrecision::both(0.0),
            change_ns: PerPrecision::both(0.0),
            wait_ns: PerPrecision::both(0.0),
            step_ns: PerPrecision::both(0.0),
            fixed_us: PerPrecision::both(0.0),
            convert_ns: PerPrecision::both(0.0),
            convert_us: PerPrecision::both(0.0),
            update_ns: PerPrecision::both(0.0),
        }
    }
}

/// Margin of a GPU of another compute capability than the shipped ones, and of any GPU that is known
/// by its data sheet alone; equals the margin of hosts that were not probed.
const OTHER_MARGIN: f64 = 0.3;

/// Key in [`Device::kernels`] of the figures for formats without an entry of their own.
const OTHERS: &str = "others";

impl Device {
    /// Returns the device profiles that ship with the program.
    ///
    /// # Panics
    /// Never: a test parses all of them.
    pub fn shipped() -> Vec<Device> {
        [
            include_str!("../../models/devices/h200.json"),
            include_str!("../../models/devices/cpu.json"),
        ]
        .into_iter()
        .map(|text| Device::parse(text).expect("shipped device profiles are valid"))
        .collect()
    }

    /// Returns the kernel figures under the first of `keys` that the profile has, otherwise those
    /// for all other formats.
    pub fn figures_of<Key: AsRef<str>>(
        &self,
        keys: impl IntoIterator<Item = Key>,
    ) -> KernelFigures {
        let mut keys = keys.into_iter();
        let own = keys.find_map(|key| self.kernels.get(key.as_ref()));
        own.or_else(|| self.kernels.get(OTHERS)).copied().unwrap_or_default()
    }

    /// Returns the proxy of this device: a shipped GPU with the same compute capability, whose
    /// models predict this device's products if it has none of its own.
    pub fn proxy(&self) -> Option<Device> {
        of_capability(self.capability.as_ref()?).filter(|proxy| proxy.name != self.name)
    }

    /// Parses a profile and validates every figure.
    ///
    /// # Errors
    /// [`Error::Device`] with the reason.
    pub fn parse(text: &str) -> Result<Device> {
        let wrong =
            |what: String| Error::device(DeviceFault::Profile, format!("device profile: {what}"));
        let device: Device = serde_json::from_str(text).map_err(|e| wrong(e.to_string()))?;
        if device.schema != SCHEMA {
            return Err(wrong(format!("schema is {}, this program reads {SCHEMA}", device.schema)));
        }
        let positive = [
            ("read_gbps", device.read_gbps),
            ("gather_gbps", device.gather_gbps),
            ("cache_gbps", device.cache_gbps),
            ("lookup_gps", device.lookup_gps),
            ("convert_gbps", device.convert_gbps),
            ("processors", f64::from(device.processors)),
            ("threads_per_processor", f64::from(device.threads_per_processor)),
            ("memory_bytes", device.memory_bytes as f64),
        ];
        let not_negative = [
            ("far_gbps", device.far_gbps),
            ("clock_ghz", device.clock_ghz),
            ("margin", device.margin),
            ("launch_s", device.launch_s),
            ("link_gbps", device.link_gbps),
            ("step_ns", device.step_ns),
            ("convert_s", device.convert_s),
            ("sort_ns", device.sort_ns),
            ("partition_ns", device.partition_ns),
        ];
        let reaches = device.kernels.iter().flat_map(|(kernel, figures)| {
            [
                figures.bandwidth,
                figures.gather,
                figures.lookup,
                figures.entry_ns,
                figures.row_ns,
                figures.change_ns,
                figures.wait_ns,
                figures.step_ns,
                figures.fixed_us,
                figures.convert_ns,
                figures.convert_us,
                figures.update_ns,
            ]
            .into_iter()
            .flat_map(|pair| [pair.f32, pair.f64])
            .map(move |figure| (kernel.as_str(), figure))
        });
        let bad = positive
            .into_iter()
            .find(|&(_, figure)| !(figure.is_finite() && figure > 0.0))
            .or_else(|| {
                let mut rest = not_negative.into_iter().chain(reaches);
                rest.find(|&(_, figure)| !(figure.is_finite() && figure >= 0.0))
            });
        match bad {
            Some((name, figure)) => Err(wrong(format!("{name} is {figure}"))),
            None => Ok(device),
        }
    }

    /// Writes the profile under `data`, where [`find`] looks for it; returns the path of the file.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be written.
    pub fn save(&self, data: &Path) -> Result<PathBuf> {
        let path = file(data, &self.name);
        let io = |source| Error::Io { what: path.display().to_string(), source };
        let text = serde_json::to_string_pretty(self).expect("a profile is plain data");
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(io)?;
        }
        // Writes to a temporary file and renames it, so that no reader sees half a profile.
        let part = path.with_extension("json.part");
        std::fs::write(&part, text + "\n").map_err(io)?;
        std::fs::rename(&part, &path).map_err(io)?;
        Ok(path)
    }
}

/// Returns the shipped GPU with this compute capability.
fn of_capability(capability: &str) -> Option<Device> {
    let mut shipped = Device::shipped().into_iter();
    shipped.find(|device| device.capability.as_deref() == Some(capability))
}

/// Returns the folder of the user's data: `$ELLECT_DATA`, or `ellect` in the XDG data home.
pub fn data_dir() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("ELLECT_DATA")
        .or_else(|| set("XDG_DATA_HOME").map(|home| home.join("ellect")))
        .or_else(|| set("HOME").map(|home| home.join(".local/share/ellect")))
        .unwrap_or_else(|| PathBuf::from("ellect-data"))
}

/// Builds the error for an unknown device name, with the known names and a remedy, which may be
/// empty.
pub(crate) fn unknown(name: &str, known: Vec<String>, remedy: impl Into<String>) -> Error {
    Error::UnknownDevice { name: name.to_string(), known, remedy: remedy.into() }
}

/// Returns the names of the device profiles that ship.
pub fn shipped_names() -> Vec<String> {
    Device::shipped().into_iter().map(|device| device.name).collect()
}

/// Finds a device by name: a profile saved in [`data_dir`], otherwise a shipped one.
///
/// # Errors
/// As [`find_in`].
pub fn find(name: &str) -> Result<Device> {
    find_in(name, &data_dir())
}

/// Finds a device by name, in upper or lower case: a profile saved under `data`, otherwise a shipped
/// one, otherwise the data sheet of a GPU ([`sheet_names`]).
///
/// # Errors
/// [`Error::UnknownDevice`] with the known names; [`Error::Io`] if a saved profile cannot be read,
/// is not valid, or describes another device.
pub fn find_in(name: &str, data: &Path) -> Result<Device> {
    let is_it = |device: &Device| device.name.eq_ignore_ascii_case(name);
    let shipped = || Device::shipped().into_iter().find(is_it);
    let found = match saved(name, data)? {
        None => saved(&name.to_ascii_lowercase(), data)?,
        found => found,
    };
    let found = found.or_else(shipped).or_else(|| sheets::find(name));
    found.ok_or_else(|| unknown(name, [shipped_names(), sheet_names()].concat(), ""))
}

/// Reads the profile with this name saved under `data`; `None` if there is none or `name` is not a
/// plain file name.
///
/// # Errors
/// [`Error::Io`] if the profile cannot be read, is not valid, or describes another device.
pub(crate) fn saved(name: &str, data: &Path) -> Result<Option<Device>> {
    if !is_file_name(name) {
        return Ok(None);
    }
    let path = file(data, name);
    let wrong = |what: &Error| {
        let source = std::io::Error::new(ErrorKind::InvalidData, what.to_string());
        Error::Io { what: path.display().to_string(), source }
    };
    match std::fs::read_to_string(&path) {
        Ok(text) => match Device::parse(&text).map_err(|error| wrong(&error))? {
            device if device.name == name => Ok(Some(device)),
            other => {
                let what = format!("the profile is of {}", other.name);
                Err(wrong(&Error::device(DeviceFault::Profile, what)))
            }
        },
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Io { what: path.display().to_string(), source }),
    }
}

/// Lists all devices: the shipped ones, each with its profile saved under `data` if there is one,
/// then the other saved ones.
///
/// # Errors
/// As [`find_in`], and [`Error::Io`] if the folder of profiles cannot be listed.
pub fn all_in(data: &Path) -> Result<Vec<Device>> {
    let mut names: Vec<String> = Device::shipped().into_iter().map(|device| device.name).collect();
    let folder = data.join("devices");
    let io = |source| Error::Io { what: folder.display().to_string(), source };
    let mut saved = match std::fs::read_dir(&folder) {
        Ok(entries) => entries
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<std::io::Result<Vec<_>>>()
            .map_err(io)?,
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        Err(source) => return Err(io(source)),
    };
    saved.sort_unstable();
    let others = saved.iter().filter_map(|file| file.strip_suffix(".json"));
    // Skips copies and editors' backup files.
    let others = others.filter(|name| is_file_name(name));
    let others: Vec<String> =
        others.filter(|name| names.iter().all(|known| known != name)).map(String::from).collect();
    names.extend(others);
    names.iter().map(|name| find_in(name, data)).collect()
}

/// Tells whether a device name can serve as the name of a file.
fn is_file_name(name: &str) -> bool {
    const LONGEST: usize = 200;
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    name.len() <= LONGEST && !name.starts_with('.') && name.chars().all(plain)
}

fn file(data: &Path, name: &str) -> PathBuf {
    data.join("devices").join(format!("{name}.json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_of_other_devices_are_saved_beside_those_that_ship() {
        let data = tempfile::tempdir().expect("a folder");
        let h200 = find_in("h200", data.path()).expect("ships");
        let own = Device { name: "h100-80gb-hbm3".into(), read_gbps: 3000.0, ..h200.clone() };
        assert!(find_in(&own.name, data.path()).is_err());
        let path = own.save(data.path()).expect("writable");
        assert_eq!(find_in(&own.name, data.path()).expect("saved"), own);
        assert_eq!(own.proxy().map(|proxy| proxy.name), Some("h200".to_string()));
        let all = all_in(data.path()).expect("sound");
        let names: Vec<_> = all.iter().map(|device| device.name.as_str()).collect();
        assert_eq!(names, ["h200", "cpu", "h100-80gb-hbm3"]);

        // A profile of another device is an error, and files outside the folder are not read.
        std::fs::copy(&path, file(data.path(), "h200")).expect("writable");
        let error = find_in("h200", data.path()).expect_err("of another").to_string();
        assert!(error.contains("the profile is of h100-80gb-hbm3"), "{error}");
        let error = find_in("../devices/h100-80gb-hbm3", data.path()).expect_err("a path");
        assert!(error.to_string().contains("no device is named"), "{error}");
    }
}
