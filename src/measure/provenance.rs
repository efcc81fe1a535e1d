//! Provenance of measurements: where, when and by which code one was taken; decides comparability.
//!
//! `kernels` lists the code that ran as `name=identity` pairs, separated by commas:
//!
//! - `host.csr`: the product of a format on a host; its identity is
//!   [`Storage::HOST_VERSION`](crate::format::Storage::HOST_VERSION).
//! - The name of a kernel image; its identity is a hash of the machine code of all its kernels (see
//!   `ellect_kernels`).
//! - `cusparse`; its identity is the version of the library.
//! - `all`: every image except those of features; used if a candidate failed before it launched
//!   anything.
//!
//! Host records from before formats had versions contain `host` and a hash of source text; they are
//! stale.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::State;
use crate::cuda;
use crate::device::Kind;
use crate::format;

/// Origin of a measurement: device driver, code and time; part of every record.
///
/// ```
/// use ellect::measure::Provenance;
///
/// let taken = Provenance::now("CUDA 13.0".into(), String::new());
/// assert!(taken.taken_at > 0 && taken.state.is_none());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Provenance {
    /// `CUDA 13.0` on a GPU; model of the processor and number of threads on a host; empty if
    /// unknown.
    pub driver: String,
    /// Code that ran, as `name=identity` pairs separated by commas; empty if unknown.
    pub kernels: String,
    /// Seconds since 1970-01-01 in UTC; 0 if unknown.
    pub taken_at: u64,
    /// State of the device during the measurement, as far as it reports one; `None` in older
    /// records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<Box<State>>,
}

impl Provenance {
    /// Builds the provenance of code that runs now.
    pub fn now(driver: String, kernels: String) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let taken_at = since.map_or(0, |since| since.as_secs());
        Provenance { driver, kernels, taken_at, state: None }
    }

    /// Adds the state of the device; an empty state is dropped.
    pub fn with_state(self, state: State) -> Self {
        let state = (state != State::default()).then(|| Box::new(state));
        Provenance { state, ..self }
    }

    /// Builds the provenance of a product on this host over rayon's current threads; `candidate` is
    /// text.
    pub fn host(candidate: &str) -> Self {
        Provenance::now(host_driver(), host_kernels(candidate)).with_state(State::of_host())
    }
}

/// Returns the model of this host's processor and the number of threads in use.
pub fn host_driver() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name"));
    let model =
        model.map_or(std::env::consts::ARCH, |rest| rest.trim_start_matches([' ', '\t', ':']));
    let model: String = model.chars().filter(|c| !c.is_control()).take(200).collect();
    format!("{model}, {} threads", rayon::current_num_threads())
}

/// Returns the code that a host runs for this candidate, given as text.
pub fn host_kernels(candidate: &str) -> String {
    let name = format!("{HOST}.{}", candidate.split(':').next().unwrap_or_default());
    let version = hash(&name).unwrap_or_default();
    format!("{name}={version}")
}

/// Returns all code that a device of this kind may run for this candidate, given as text; used for
/// outcomes decided before anything ran.
pub fn all_kernels(kind: Kind, candidate: &str) -> String {
    match kind {
        Kind::Host => host_kernels(candidate),
        Kind::Gpu => hash(ALL).map_or_else(String::new, |hash| format!("{ALL}={hash}")),
    }
}

/// Name that stands for every image used by candidates.
pub(super) const ALL: &str = "all";

/// Name that, with a dot and a format appended, stands for a product on a host.
const HOST: &str = "host";

/// Identity of code that this program does not contain.
const GONE: &str = "gone";

/// Folders of images that candidates do not use.
const UNUSED: [&str; 2] = ["features", "vectors"];

/// Returns the same names with this program's identities.
///
/// `None` if there is nothing to compare with: a build without kernels, or a machine without the
/// library.
pub fn kernels_now(stored: &str) -> Option<String> {
    let part = |part: &str| {
        let name = part.split('=').next().unwrap_or_default();
        hash(name).map(|hash| format!("{name}={hash}"))
    };
    stored.split(',').map(part).collect::<Option<Vec<_>>>().map(|parts| parts.join(","))
}

/// Returns the identity of the code with this name, as in [`Provenance::kernels`]; `None` if this
/// program or machine has none of that kind.
pub(super) fn hash(name: &str) -> Option<String> {
    if let Some(format) = name.strip_prefix(HOST).and_then(|rest| rest.strip_prefix('.')) {
        let format = format::find(format);
        return Some(format.map_or_else(|_| GONE.into(), |f| f.host_version.to_string()));
    }
    match name {
        "" => Some("unknown".into()),
        HOST => Some(GONE.into()),
        "cusparse" => cuda::cusparse_version(),
        _ if ellect_kernels::IMAGES.is_empty() => None,
        ALL => {
            let mut all = xxhash_rust::xxh3::Xxh3::new();
            let used = |image: &&ellect_kernels::Image| !UNUSED.contains(&image.folder);
            let runs = ellect_kernels::IMAGES.iter().filter(used);
            runs.for_each(|image| all.update(image.hash.as_bytes()));
            Some(format!("{:016x}", all.digest()))
        }
        name => Some(ellect_kernels::find(name).map_or(GONE, |image| image.hash).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_of_this_host_are_those_of_this_program() {
        for format in format::FORMATS {
            let here = host_kernels(&format!("{}:hack=32", format.name));
            assert_eq!(here, format!("host.{}={}", format.name, format.host_version));
            assert_eq!(kernels_now(&here).as_deref(), Some(here.as_str()));
        }
        assert_ne!(kernels_now("host.csr=0"), Some("host.csr=0".into()));
        assert_eq!(kernels_now("host.nosuch=1").as_deref(), Some("host.nosuch=gone"));
        let by_text = "host=fe910c4864d25b3d";
        assert_ne!(kernels_now(by_text).as_deref(), Some(by_text), "hashes of text are stale");
        assert_ne!(kernels_now(""), Some(String::new()), "what is unknown never matches");
    }

    #[test]
    fn a_record_holds_the_reported_state_and_older_records_are_read() {
        let state = State { ecc: Some(true), throttle: Some(vec![]), ..State::default() };
        let bare = Provenance::now("CUDA 13.0".into(), String::new());
        let with = bare.clone().with_state(state);
        let text = serde_json::to_string(&with).expect("plain data");
        assert!(text.contains(r#""state":{"ecc":true,"throttle":[]}"#), "{text}");
        assert_eq!(serde_json::from_str::<Provenance>(&text).expect("own text"), with);
        let older = r#"{"driver":"CUDA 13.0","kernels":"","taken_at":1,"clocks":{"sm_mhz":1980}}"#;
        assert_eq!(serde_json::from_str::<Provenance>(older).expect("older").state, None);
        assert_eq!(bare.clone().with_state(State::default()), bare, "an empty state is dropped");
    }
}
