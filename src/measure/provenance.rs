//! Provenance of measurements: where, when and by which code one was taken; decides comparability.
//!
//! `kernels` lists the code that ran as `name=identity` pairs, separated by commas:
//!
//! - `host.csr`: the product of a format on a host; its identity is
//!   [`Storage::HOST_VERSION`](crate::format::Storage::HOST_VERSION).
//! - The name of a kernel image; its identity is a hash of the machine code of all its kernels (see
//!   `ellect_kernels`).
//! - `cusparse`; its identity is the version of the library.
//! - `all`: every image that existed while records contained this name (`COVERED`).
//!
//! A record of a candidate that failed or was refused before it launched anything lists every image
//! that its format may launch. Earlier records of this kind contain `all`.
//!
//! Earlier names of formats ([`Storage::ALIASES`](crate::format::Storage::ALIASES)) are replaced by
//! current ones when a record is read; the images of a format are named after it.
//!
//! Host records from before formats had versions contain `host` and a hash of source text; they are
//! stale.

use std::borrow::Cow;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize};

use super::State;
use crate::cuda;
use crate::device::Kind;
use crate::format::aliases::{current, oldest};
use crate::format::images::CONVERSION;
use crate::format::{self, Format, Role};

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
    #[serde(deserialize_with = "deserialize_current")]
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
        Kind::Gpu => {
            let format = format::find(candidate.split(':').next().unwrap_or_default());
            format.map_or_else(|_| String::new(), images_of)
        }
    }
}

/// Returns all code that a GPU may run to convert a matrix to this format; empty without kernels.
pub fn conversion_kernels(format: &Format) -> String {
    let used = ellect_kernels::IMAGES.iter().filter(|image| image.folder == CONVERSIONS);
    identities(used.map(|image| image.name).filter(|name| format.may_launch(name)).collect())
}

/// Returns the images that a GPU may run for a format, and the library if that multiplies.
fn images_of(format: &Format) -> String {
    let used = ellect_kernels::IMAGES.iter().filter(|image| !UNUSED.contains(&image.folder));
    let names = used.map(|image| image.name).filter(|name| format.may_launch(name));
    let library = (format.role == Role::Vendor).then_some(CUSPARSE);
    identities(names.chain(library).collect())
}

/// Returns these names with their identities, sorted.
fn identities(mut names: Vec<&str>) -> String {
    names.sort_unstable();
    let parts = names.iter().filter_map(|name| Some(format!("{name}={}", hash(name)?)));
    parts.collect::<Vec<_>>().join(",")
}

/// Name of the vendor's library.
const CUSPARSE: &str = "cusparse";

/// Name that stands for the images in [`COVERED`].
pub(super) const ALL: &str = "all";

/// The images that existed while new records contained [`ALL`], sorted. Images that were added later
/// are not among them: no candidate of those records could launch one, so a new image leaves the
/// records current.
const COVERED: &str = "bhll bisection cdia column_sweep columns convert convert_blocks \
    convert_cache_blocked convert_cdia convert_column_sweep convert_deltas convert_diagonals \
    convert_few convert_hub_ell convert_tiles coo csr diagonals ehyb hll hll_du hll_vi hub_ell pcsr \
    st_csr st_csr_vi";

/// Name that, with a dot and a format appended, stands for a product on a host.
const HOST: &str = "host";

/// Identity of code that this program does not contain.
const GONE: &str = "gone";

/// Folder of the images that convert.
const CONVERSIONS: &str = "conversions";

/// Folders of images that candidates do not use.
const UNUSED: [&str; 2] = ["features", "vectors"];

/// Tells whether code with these names and identities ran on a host.
pub(crate) fn is_of_host(kernels: &str) -> bool {
    kernels.starts_with(HOST)
}

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
        CUSPARSE => cuda::cusparse_version(),
        _ if ellect_kernels::IMAGES.is_empty() => None,
        ALL => {
            let images = COVERED.split(' ').map(|name| (name, hash_of_image(name)));
            Some(hash_of_all(images.collect()))
        }
        name => Some(hash_of_image(name).into()),
    }
}

/// Returns the identity of the image with this name.
fn hash_of_image(name: &str) -> &'static str {
    let image = ellect_kernels::find(&renamed(name, |format| current(format)));
    image.map_or(GONE, |image| image.hash)
}

/// Returns the identity of these images, given as names and hashes. It is the same if formats get
/// new names, because the images are sorted by the oldest ones.
fn hash_of_all(mut images: Vec<(&str, &str)>) -> String {
    images
        .sort_by_cached_key(|(name, _)| renamed(name, |format| oldest(format).into()).into_owned());
    let mut all = xxhash_rust::xxh3::Xxh3::new();
    images.iter().for_each(|(_, hash)| all.update(hash.as_bytes()));
    format!("{:016x}", all.digest())
}

/// Replaces the format in the name of code by `rename`: in `hll`, `convert_hll` and `host.hll`.
fn renamed<'a>(code: &'a str, rename: impl Fn(&'a str) -> Cow<'a, str>) -> Cow<'a, str> {
    let host = code.strip_prefix(HOST).and_then(|rest| rest.strip_prefix('.'));
    let format = host.or_else(|| code.strip_prefix(CONVERSION)).unwrap_or(code);
    match rename(format) {
        now if now == format => Cow::Borrowed(code),
        now => Cow::Owned(format!("{}{now}", &code[..code.len() - format.len()])),
    }
}

/// Returns these pairs of names and identities with current names in place of aliases, sorted by
/// name; pairs without aliases are returned unchanged.
pub(crate) fn kernels_renamed(stored: &str) -> Cow<'_, str> {
    let name_of = |part: &str| part.find('=').unwrap_or(part.len());
    let is_current = |part: &str| {
        let name = &part[..name_of(part)];
        renamed(name, |format| current(format)) == name
    };
    if stored.split(',').all(is_current) {
        return Cow::Borrowed(stored);
    }
    let part = |part| {
        let (name, identity) = str::split_at(part, name_of(part));
        (renamed(name, |format| current(format)), identity)
    };
    let mut parts: Vec<_> = stored.split(',').map(part).collect();
    parts.sort_unstable();
    let parts: Vec<_> = parts.iter().map(|(name, identity)| format!("{name}{identity}")).collect();
    Cow::Owned(parts.join(","))
}

/// Deserializes [`Provenance::kernels`] with [`kernels_renamed`].
fn deserialize_current<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let stored = String::deserialize(deserializer)?;
    Ok(kernels_renamed(&stored).into_owned())
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
    fn the_identity_of_code_outlives_a_new_name() {
        let earlier = ["host.hubs=1", "host.slabs=1", "host.csr=1"];
        for stored in earlier {
            let now = kernels_now(stored).expect("a host knows its versions");
            assert!(!now.contains(GONE), "{now}");
        }
        let renamed = |stored| kernels_renamed(stored).into_owned();
        assert_eq!(renamed("host.hubs=1"), "host.hub_ell=1");
        assert_eq!(renamed("convert_sweep=a"), "convert_column_sweep=a");
        assert_eq!(renamed("pcsr=a,sweep=b,stvi=c"), "column_sweep=b,pcsr=a,st_csr_vi=c");
        for unchanged in ["", "all=1", "pcsr=b,coo=a", "cusparse=1", "host=1", "st_csr=stcsr"] {
            assert!(matches!(kernels_renamed(unchanged), Cow::Borrowed(_)), "{unchanged}");
        }
        assert!(COVERED.split(' ').is_sorted());
        let all = hash_of_all(vec![("hub_ell", "1"), ("column_sweep", "2"), ("csr", "3")]);
        let as_before = hash_of_all(vec![("csr", "3"), ("hubs", "1"), ("sweep", "2")]);
        assert_eq!(all, as_before, "the oldest names give the order");
    }

    #[test]
    #[cfg(feature = "cuda")]
    fn a_refusal_names_the_images_that_its_format_may_launch() {
        for format in format::FORMATS {
            let here = all_kernels(Kind::Gpu, format.name);
            if format.role != Role::Vendor {
                assert_eq!(kernels_now(&here).as_deref(), Some(here.as_str()));
            }
        }
        let hll = all_kernels(Kind::Gpu, "hll:hack=32");
        let names: Vec<_> = hll.split(',').filter_map(|part| part.split('=').next()).collect();
        assert!(names.is_sorted() && names.contains(&"hll") && names.contains(&"convert"), "{hll}");
        for other in ["hll_vi", "csr", "features", "vectors", "convert_hub_ell", "convert_csr"] {
            assert!(!names.contains(&other), "{hll}");
        }
        // Refusals from before, which cover        // Refusals from before, which cover the images of that time.
        assert!(COVERED.split(' ').all(|name| ellect_kernels::find(name).is_some()));
    }

    /// Shipped records of kernels, as stored: with names from before formats were renamed.
    #[test]
    #[cfg(all(feature = "cuda", feature = "shipped"))]
    fn shipped_records_are_as_current_under_their_earlier_names() {
        let mut seen = std::collections::BTreeMap::new();
        crate::Wisdom::shipped().each_shipped(|record| {
            let crate::wisdom::Record::Measurement(measured) = record else { return };
            let now = measured.provenance.kernels;
            let first = now.split('=').next().unwrap_or_default().to_string();
            *seen.entry((first, now)).or_insert(0) += 1;
        });
        let mut names = std::collections::BTreeSet::new();
        for (name, now) in seen.keys().filter(|(name, _)| oldest(name) != name) {
            let stored: Vec<_> = now
                .split(',')
                .filter_map(|part| part.split_once('='))
                .map(|(name, identity)| format!("{}={identity}", oldest(name)))
                .collect();
            let stored = stored.join(",");
            assert_eq!(kernels_renamed(&stored), *now);
            let [before, after] = [&stored, now].map(|text| kernels_now(text).expect("kernels"));
            assert!(
                !before.contains(GONE) && kernels_renamed(&before) == after,
                "{before} {after}"
            );
            assert_eq!(before == stored, after == *now, "{stored}");
            names.insert(name.as_str());
        }
        assert_eq!(
            Vec::from_iter(names),
            ["column_sweep", "hll_du", "hll_vi", "hub_ell", "st_csr", "st_csr_vi"]
        );
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
