//! Devices: what a product may run on, and the limits that costs are computed from.
//!
//! A profile is data: JSON that ships in `models/devices/`, or that
//! [`probe`](crate::measure::probe()) measured on this
//! host and [`Device::save`] wrote. The name `cpu` stands for this host: its own profile where one
//! was saved, else the generic one that ships.

#[cfg(any(feature = "cuda", test))]
pub(crate) mod gpu;
mod state;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{DeviceFault, Error, Result};
use crate::scalar::Precision;
pub use state::State;

/// What sort of device; candidates differ between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A CUDA GPU.
    Gpu,
    /// The processor this program runs on.
    Host,
}

/// The version of profiles that this program reads and writes.
pub const SCHEMA: u32 = 1;

/// Limits of one device, as measured; `source` says by whom and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// [`SCHEMA`].
    pub schema: u32,
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
    /// Bandwidth of scattered 32-byte sectors from memory, in GB/s; 0 where it is as that of a
    /// stream.
    #[serde(default)]
    pub far_gbps: f64,
    /// Bytes of the last-level cache.
    pub cache_bytes: u64,
    /// Bandwidth of a stream served from the last-level cache, in GB/s.
    pub cache_gbps: f64,
    /// Bytes of the cache next to one processor: L1 of a multiprocessor, L2 of a core.
    pub near_bytes: u64,
    /// Sectors of x that all processors together look up in their nearest caches, in 1e9 a second.
    pub lookup_gps: f64,
    /// Compute capability of a GPU, `major.minor`: those that have it in common run the same kernels on
    /// processors of one make.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capability: Option<String>,
    /// Highest clock of a GPU's processors, in GHz; 0 where it is unknown.
    #[serde(default)]
    pub clock_ghz: f64,
    /// Streaming multiprocessors, or threads used on a host.
    pub processors: u32,
    /// Threads that one processor holds at once.
    pub threads_per_processor: u32,
    /// Time that one thread takes for one entry of a row after another, in nanoseconds (0 on a
    /// host).
    pub step_ns: f64,
    /// Shared memory that one block may use, in bytes (0 on a host).
    pub shared_bytes: u64,
    /// Time of one launch (or of one parallel region on a host), in seconds.
    pub launch_s: f64,
    /// Bandwidth of the link to the host, in GB/s (0 on a host).
    pub link_gbps: f64,
    /// Memory of the device in bytes.
    pub memory_bytes: u64,
    /// Bytes read and written by a conversion in one second, in GB/s.
    pub convert_gbps: f64,
    /// Time of a conversion besides, in seconds.
    pub convert_s: f64,
    /// Time of sorting one key in a conversion, in nanoseconds.
    pub sort_ns: f64,
    /// Time of partitioning one edge of a graph on the host, in nanoseconds.
    pub partition_ns: f64,
    /// Whether `kernels` was fitted to measured products: those that it was fitted to say more of it
    /// than of matrices that it never saw.
    #[serde(default)]
    pub fitted: bool,
    /// By which share the incumbent must take longer than a candidate that was not timed, for that to
    /// be taken: so far estimates and predictions for this device may mislead.
    #[serde(default)]
    pub margin: f64,
    /// What kernels reach, by candidate or by format; see [`Device::reach_of`].
    pub kernels: BTreeMap<String, Reach>,
}

/// One figure for each precision.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PerPrecision {
    /// In f32.
    pub f32: f64,
    /// In f64.
    pub f64: f64,
}

impl PerPrecision {
    /// The same figure for both.
    pub const fn both(figure: f64) -> Self {
        PerPrecision { f32: figure, f64: figure }
    }

    /// The figure of one precision.
    pub const fn of(self, precision: Precision) -> f64 {
        match precision {
            Precision::F32 => self.f32,
            Precision::F64 => self.f64,
        }
    }
}

/// What the kernels of a format were found to reach on a device.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Reach {
    /// Share of the memory bandwidth that streams of the layout reach.
    pub bandwidth: PerPrecision,
    /// Time of loading sectors of x into the nearest caches, over what it is at `gather_gbps`.
    pub gather: PerPrecision,
    /// Time of looking sectors of x up there, over what it is at `lookup_gps`.
    pub lookup: PerPrecision,
    /// Time of one multiply-add on one processor when all data is near, in nanoseconds.
    pub entry_ns: PerPrecision,
    /// Time of one row on one processor besides, in nanoseconds.
    pub row_ns: PerPrecision,
    /// Time of a row on one processor besides where its length is another than that of the row
    /// before, in nanoseconds.
    pub change_ns: PerPrecision,
    /// Time of one processor for each wait of a warp for entries that it loaded, in nanoseconds.
    pub wait_ns: PerPrecision,
    /// Time of a step of the longest row, where a few threads walk the whole of it, or of the slowest
    /// tile, in nanoseconds; where it is 0 the device's own.
    pub step_ns: PerPrecision,
    /// Time of a product besides, however small the matrix, in microseconds.
    pub fixed_us: PerPrecision,
    /// Time of converting one entry, all processors together, in nanoseconds; where it is 0 the
    /// bytes of the conversion count.
    pub convert_ns: PerPrecision,
    /// Time of a conversion besides, however small the matrix, in microseconds; where it is 0 the
    /// device's `convert_s`.
    pub convert_us: PerPrecision,
    /// Time of replacing one entry's value, all processors together, in nanoseconds; where it is 0
    /// the bytes count alone.
    pub update_ns: PerPrecision,
}

impl Default for Reach {
    /// The full bandwidth and no time besides.
    fn default() -> Self {
        Reach {
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

/// The key of [`Device::kernels`] for formats that have no entry of their own.
const OTHERS: &str = "others";

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
        .map(|text| Device::parse(text).expect("shipped device profiles are valid"))
        .collect()
    }

    /// The kernel figures stored under the first of these keys that the profile has, else those
    /// stored for other formats.
    pub fn reach_of(&self, keys: [&str; 2]) -> Reach {
        let keys = keys.into_iter().chain([OTHERS]);
        keys.filter_map(|key| self.kernels.get(key)).next().copied().unwrap_or_default()
    }

    /// The device that ships whose models predict this one's products too, where it has none of its
    /// own: a GPU of the same compute capability.
    pub fn kin(&self) -> Option<Device> {
        of_capability(self.capability.as_ref()?).filter(|kin| kin.name != self.name)
    }

    /// Reads a profile; all of it or nothing.
    ///
    /// # Errors
    /// [`Error::Device`] with what is wrong.
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
        let reaches = device.kernels.iter().flat_map(|(kernel, reach)| {
            [
                reach.bandwidth,
                reach.gather,
                reach.lookup,
                reach.entry_ns,
                reach.row_ns,
                reach.change_ns,
                reach.wait_ns,
                reach.step_ns,
                reach.fixed_us,
                reach.convert_ns,
                reach.convert_us,
                reach.update_ns,
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

    /// Writes the profile under `data`, where [`find`] looks for it; returns the file.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn save(&self, data: &Path) -> Result<PathBuf> {
        let path = file(data, &self.name);
        let io = |source| Error::Io { what: path.display().to_string(), source };
        let text = serde_json::to_string_pretty(self).expect("a profile is plain data");
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(io)?;
        }
        // Written aside first, so that a reader never meets half a profile.
        let part = path.with_extension("json.part");
        std::fs::write(&part, text + "\n").map_err(io)?;
        std::fs::rename(&part, &path).map_err(io)?;
        Ok(path)
    }
}

/// The GPU of this compute capability that ships.
fn of_capability(capability: &str) -> Option<Device> {
    let mut shipped = Device::shipped().into_iter();
    shipped.find(|device| device.capability.as_deref() == Some(capability))
}

/// The folder of this user's own data: `$ELLECT_DATA`, or `ellect` in the XDG data home.
pub fn data_dir() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("ELLECT_DATA")
        .or_else(|| set("XDG_DATA_HOME").map(|home| home.join("ellect")))
        .or_else(|| set("HOME").map(|home| home.join(".local/share/ellect")))
        .unwrap_or_else(|| PathBuf::from("ellect-data"))
}

/// The error for a device name that is not among `known`, with what would make it known, if anything.
pub(crate) fn unknown(name: &str, known: Vec<String>, remedy: impl Into<String>) -> Error {
    Error::UnknownDevice { name: name.to_string(), known, remedy: remedy.into() }
}

/// The names of the device profiles that ship.
pub fn shipped_names() -> Vec<String> {
    Device::shipped().into_iter().map(|device| device.name).collect()
}

/// The device of this name: a profile saved in [`data_dir`], else a shipped one.
///
/// # Errors
/// As [`find_in`].
pub fn find(name: &str) -> Result<Device> {
    find_in(name, &data_dir())
}

/// The device of this name: a profile saved under `data`, else a shipped one.
///
/// # Errors
/// [`Error::UnknownDevice`] with the known names, [`Error::Io`] where a saved profile cannot be read in
/// whole or is of another device.
pub fn find_in(name: &str, data: &Path) -> Result<Device> {
    let shipped = || Device::shipped().into_iter().find(|device| device.name == name);
    saved(name, data)?.or_else(shipped).ok_or_else(|| unknown(name, shipped_names(), ""))
}

/// The profile of this name that is saved under `data`; none of what cannot be the name of a file there.
///
/// # Errors
/// [`Error::Io`] where it cannot be read in whole or is of another device.
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

/// All devices: those that ship, each by its profile saved under `data` where there is one, and
/// others that one is saved of.
///
/// # Errors
/// As [`find_in`], and [`Error::Io`].
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
    // Copies and what editors leave are no profiles.
    let others = others.filter(|name| is_file_name(name));
    let others: Vec<String> =
        others.filter(|name| names.iter().all(|known| known != name)).map(String::from).collect();
    names.extend(others);
    names.iter().map(|name| find_in(name, data)).collect()
}

/// Whether a device may be called so that has a profile saved.
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
        assert_eq!(own.kin().map(|kin| kin.name), Some("h200".to_string()));
        let all = all_in(data.path()).expect("sound");
        let names: Vec<_> = all.iter().map(|device| device.name.as_str()).collect();
        assert_eq!(names, ["h200", "cpu", "h100-80gb-hbm3"]);

        // One that is of another device is not taken for it; nothing outside the folder is read.
        std::fs::copy(&path, file(data.path(), "h200")).expect("writable");
        let error = find_in("h200", data.path()).expect_err("of another").to_string();
        assert!(error.contains("the profile is of h100-80gb-hbm3"), "{error}");
        let error = find_in("../devices/h100-80gb-hbm3", data.path()).expect_err("a path");
        assert!(error.to_string().contains("no device is named"), "{error}");
    }
}
