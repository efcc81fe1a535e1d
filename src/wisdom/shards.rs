//! Shipped wisdom: 64 shards, each with the records of the matrices whose fingerprints begin with
//! the same six bits.
//!
//! A shard is the file `models/wisdom/XX.jsonl.zst`, where XX is those six bits, `00` to `3f`. A
//! new measuring run rewrites only the shards of its matrices, and a query reads only one shard.
//! `zstd -dc` prints the lines of a shard. Its bytes, with numbers in little-endian order:
//!
//! ```text
//!  0       4  184d2a50 (hexadecimal): a zstd frame that decoders skip
//!  4       4  n, bytes of the index
//!  8       n  index: fingerprints of the shard's records, 16 bytes each, ascending
//!  8 + n      one zstd frame: JSON lines, structures before measurements, each kind sorted as text
//! ```
//!
//! The index shows without decompression that no record of a matrix ships.
//!
//! One more file of the same layout, `later.jsonl.zst`, may hold a few records of any matrices that
//! replace or complete those of the shards, so that they do not rewrite all shards. The next
//! [`merge`] moves them there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use rayon::prelude::*;

use super::record::{self, Record};
use crate::compress;
use crate::error::{Error, Result};
use crate::fingerprint::Fingerprint;

/// Shards that ship with this program, sorted by name: file names and contents.
pub(super) static SHIPPED: Shards = Shards(include!(concat!(env!("OUT_DIR"), "/wisdom.rs")));

/// File name ending of a shard.
const ENDING: &str = ".jsonl.zst";

/// Name of the file with records that are newer than the shards.
const LATER: &str = "later.jsonl.zst";

/// zstd compression level; high, because shards are written once and read often.
const LEVEL: i32 = 19;

/// First bytes of a zstd frame that decoders skip.
const SKIPPED: [u8; 4] = 0x184d_2a50_u32.to_le_bytes();

/// Size of a fingerprint in the index, in bytes.
const PRINT_BYTES: usize = 16;

/// Names of shards and their contents, sorted by name.
#[derive(Clone, Copy)]
pub(super) struct Shards(pub &'static [(&'static str, &'static [u8])]);

impl std::fmt::Debug for Shards {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} shards", self.0.len())
    }
}

impl Shards {
    /// Returns the index and the compressed frame of the file with this name.
    fn file(self, name: &str) -> Option<(&'static [[u8; PRINT_BYTES]], &'static [u8])> {
        let at = self.0.binary_search_by_key(&name, |(name, _)| name).ok()?;
        split(self.0[at].1)
    }

    /// Returns the compressed frames with this matrix's records, later ones last.
    fn frames_of(self, fingerprint: Fingerprint) -> impl Iterator<Item = &'static [u8]> {
        let holds = move |index: &[[u8; PRINT_BYTES]]| {
            let key = |print: &[u8; PRINT_BYTES]| u128::from_le_bytes(*print);
            index.binary_search_by_key(&fingerprint.bits(), key).is_ok()
        };
        let files = [self.file(&name_of(fingerprint)), self.file(LATER)].into_iter().flatten();
        files.filter_map(move |(index, frame)| holds(index).then_some(frame))
    }

    /// Tells whether records of this matrix ship, without decompressing anything.
    pub fn hold(self, fingerprint: Fingerprint) -> bool {
        self.frames_of(fingerprint).next().is_some()
    }

    /// Returns the records of this matrix; decompresses its shard.
    pub fn records_of(self, fingerprint: Fingerprint) -> Vec<Record> {
        let mut all = Contents::default();
        // Most lines are about other matrices and are not parsed.
        let name = fingerprint.to_string();
        let finder = memchr::memmem::Finder::new(&name);
        for frame in self.frames_of(fingerprint) {
            let lines = compress::decode(frame).unwrap_or_default();
            let named = lines.split(|&byte| byte == b'\n');
            let named = named.filter(|line| finder.find(line).is_some());
            let records = named.filter_map(|line| Record::parse(line).ok());
            records.filter(|record| record.fingerprint() == fingerprint).for_each(|record| {
                all.add(record);
            });
        }
        all.0.into_values().map(|(record, _)| record).collect()
    }

    /// Calls `each` with every record, shard by shard. Unreadable lines are skipped; a test checks
    /// that there are none.
    pub fn each(self, mut each: impl FnMut(Record)) {
        let later: Vec<Record> = self.file(LATER).into_iter().flat_map(records).collect();
        let replaced: BTreeSet<String> = later.iter().map(identity).collect();
        let shards = self.0.iter().filter(|(name, _)| *name != LATER);
        let shards: Vec<_> = shards.filter_map(|(_, shard)| split(shard)).collect();
        // As many shards as there are threads are in memory at once.
        for some in shards.chunks(rayon::current_num_threads().max(1)) {
            let read: Vec<Vec<Record>> = some.par_iter().map(|shard| records(*shard)).collect();
            let kept = read.into_iter().flatten();
            kept.filter(|record| !replaced.contains(&identity(record))).for_each(&mut each);
        }
        later.into_iter().for_each(each);
    }
}

/// Returns the records of a frame.
fn records((_, frame): (&[[u8; PRINT_BYTES]], &[u8])) -> Vec<Record> {
    let lines = compress::decode(frame).unwrap_or_default();
    lines.split(|&byte| byte == b'\n').filter_map(|line| Record::parse(line).ok()).collect()
}

/// Returns the file name of the shard that holds a fingerprint.
fn name_of(fingerprint: Fingerprint) -> String {
    format!("{:02x}{ENDING}", fingerprint.bits() >> 122)
}

/// Splits a shard into its index and its compressed frame; `None` if it is not a shard.
fn split(shard: &[u8]) -> Option<(&[[u8; PRINT_BYTES]], &[u8])> {
    let (bytes, rest) = shard.strip_prefix(&SKIPPED)?.split_first_chunk::<4>()?;
    let (index, frame) = rest.split_at_checked(u32::from_le_bytes(*bytes) as usize)?;
    let (index, []) = index.as_chunks::<PRINT_BYTES>() else { return None };
    Some((index, frame))
}

/// Result of [`merge`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    /// Number of records that were new, or newer than those in the folder.
    pub taken: u64,
    /// Names of the shards that were written.
    pub written: Vec<String>,
}

/// Adds records, and those of the file with later records, to the shards in `folder`; writes only the
/// shards that change.
///
/// A measurement replaces an earlier one of the same matrix, device, precision, basis and
/// candidate, even if their driver or kernels differ. A structure fills its empty fields from the
/// existing one. The same set of records always gives the same bytes.
///
/// # Errors
/// [`Error::Io`], and [`Error::Input`] if a shard in the folder is damaged.
pub fn merge(folder: &Path, records: impl IntoIterator<Item = Record>) -> Result<Merged> {
    let later = folder.join(LATER);
    let earlier = Contents::read(&later)?.0.into_values().map(|(record, _)| record);
    let mut merged = Merged::default();
    for (name, records) in by_shard(earlier.chain(records)) {
        merged.put(folder, name, records)?;
    }
    match fs::remove_file(&later) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::Io { what: later.display().to_string(), source })
        }
        _ => Ok(merged),
    }
}

/// Like [`merge`], but leaves the shards as they are: the records that are new, or newer than those
/// of the shards, go to the file with later records.
///
/// # Errors
/// As [`merge`].
pub fn merge_later(folder: &Path, records: impl IntoIterator<Item = Record>) -> Result<Merged> {
    let mut newer = Vec::new();
    for (name, records) in by_shard(records) {
        let shard = Contents::read(&folder.join(name))?;
        newer.extend(records.into_iter().filter(|record| shard.misses(record)));
    }
    let mut merged = Merged::default();
    merged.put(folder, LATER.to_string(), newer)?;
    Ok(merged)
}

/// Groups records by the names of their shards.
fn by_shard(records: impl IntoIterator<Item = Record>) -> BTreeMap<String, Vec<Record>> {
    let mut of_shard: BTreeMap<String, Vec<Record>> = BTreeMap::new();
    for record in records {
        of_shard.entry(name_of(record.fingerprint())).or_default().push(record);
    }
    of_shard
}

impl Merged {
    /// Adds records to the file with this name, and notes whether it changed.
    fn put(&mut self, folder: &Path, name: String, records: Vec<Record>) -> Result<()> {
        let path = folder.join(&name);
        let mut file = Contents::read(&path)?;
        let taken = records.into_iter().map(|record| u64::from(file.add(record))).sum::<u64>();
        if taken > 0 {
            file.write(&path)?;
            self.taken += taken;
            self.written.push(name);
        }
        Ok(())
    }
}

/// Contents of a shard in memory: each record with its line, by [`identity`].
#[derive(Default)]
struct Contents(BTreeMap<String, (Record, Vec<u8>)>);

impl Contents {
    /// Reads a shard; the contents are empty if there is no file.
    fn read(path: &Path) -> Result<Self> {
        let io = |source| Error::Io { what: path.display().to_string(), source };
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(error) => return Err(io(error)),
        };
        let damaged = |why: &str| Error::input(format!("shard {}: {why}", path.display()));
        let (_, frame) = split(&bytes).ok_or_else(|| damaged("no index of fingerprints found"))?;
        let lines = compress::decode(frame).map_err(io)?;
        let mut contents = Contents::default();
        for line in lines.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            let record = Record::parse(line).map_err(|why| damaged(&why))?;
            contents.0.insert(identity(&record), (record, line.to_vec()));
        }
        Ok(contents)
    }

    /// Tells whether a record is new, or newer than the one here.
    fn misses(&self, record: &Record) -> bool {
        match (self.0.get(&identity(record)), record) {
            (Some((Record::Measurement(there), _)), Record::Measurement(new)) => {
                new.provenance.taken_at > there.provenance.taken_at
            }
            (Some((Record::Structure(there), _)), Record::Structure(new)) => {
                new.clone().with(there) != *there
            }
            _ => true,
        }
    }

    /// Adds a record; returns whether the contents changed.
    fn add(&mut self, record: Record) -> bool {
        if !self.misses(&record) {
            return false;
        }
        let key = identity(&record);
        let record = match (self.0.get(&key), record) {
            (Some((Record::Structure(there), _)), Record::Structure(new)) => {
                Record::Structure(new.with(there))
            }
            (_, record) => record,
        };
        let line = record.line();
        self.0.insert(key, (record, line));
        true
    }

    /// Encodes the contents as the bytes of a shard's file.
    fn bytes(&self) -> std::io::Result<Vec<u8>> {
        let prints: BTreeSet<u128> =
            self.0.values().map(|(record, _)| record.fingerprint().bits()).collect();
        let mut lines: Vec<(bool, &[u8])> = self
            .0
            .values()
            .map(|(record, line)| (matches!(record, Record::Measurement(_)), line.as_slice()))
            .collect();
        lines.sort_unstable();
        let text: Vec<u8> =
            lines.into_iter().flat_map(|(_, line)| [line, b"\n"].concat()).collect();
        let index: Vec<u8> = prints.into_iter().flat_map(u128::to_le_bytes).collect();
        let length = (index.len() as u32).to_le_bytes();
        Ok([&SKIPPED[..], &length, &index, &compress::encode(&text, LEVEL)?].concat())
    }

    /// Writes the file through a temporary one, so that a crash leaves no half-written shard.
    fn write(&self, path: &Path) -> Result<()> {
        let io = |source| Error::Io { what: path.display().to_string(), source };
        let part = path.with_extension("part");
        fs::write(&part, self.bytes().map_err(io)?).map_err(io)?;
        fs::rename(&part, path).map_err(io)
    }
}

/// Identifies the subject of a record; a shard holds one record for each subject.
fn identity(record: &Record) -> String {
    match record {
        Record::Structure(structure) => structure.fingerprint.to_string(),
        Record::Measurement(m) => record::subject_of(m),
    }
}

#[cfg(all(test, feature = "zstd"))]
pub(super) mod tests {
    use super::*;

    /// Builds shards from these lines.
    pub fn shipping(lines: &[String]) -> Shards {
        let folder = tempfile::tempdir().expect("a folder");
        let records = lines.iter().map(|line| Record::parse(line.as_bytes()).expect("a record"));
        let mut shards: Vec<(&'static str, &'static [u8])> = Vec::new();
        for name in merge(folder.path(), records).expect("written").written {
            let bytes = fs::read(folder.path().join(&name)).expect("a shard");
            shards.push((name.leak(), bytes.leak()));
        }
        Shards(shards.leak())
    }

    fn structure(fingerprint: u128, source: &str) -> Record {
        let line = format!(
            r#"{{"kind":"structure","fingerprint":"{fingerprint:032x}","source":"{source}","family":"",
            "nrows":3,"ncols":3,"nnz":4,"features":{{"nnz":4}}}}"#
        );
        Record::parse(line.as_bytes()).expect("a record")
    }

    /// Reads all shards in a folder: names and contents.
    fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
        let file = |entry: std::io::Result<fs::DirEntry>| {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            (name, fs::read(&path).expect("readable"))
        };
        fs::read_dir(folder).expect("a folder").map(file).collect()
    }

    #[test]
    fn only_shards_that_gain_records_are_written_and_order_does_not_matter() {
        let (first, second) = (tempfile::tempdir().expect("a"), tempfile::tempdir().expect("b"));
        let [low, high, next] = [1, u128::MAX, 2].map(|print| structure(print, "a"));
        let all = [low.clone(), high.clone(), next.clone()];
        let merged = merge(first.path(), all).expect("written");
        assert_eq!((merged.taken, merged.written.len()), (3, 2));
        for record in [next, high, low.clone()] {
            merge(second.path(), [record]).expect("written");
        }
        let before = files(first.path());
        assert_eq!(before.keys().collect::<Vec<_>>(), ["00.jsonl.zst", "3f.jsonl.zst"]);
        assert_eq!(before, files(second.path()));
        assert_eq!(merge(first.path(), [low]).expect("read"), Merged::default());
        let merged = merge(first.path(), [structure(1, "b")]).expect("written");
        assert_eq!((merged.taken, merged.written), (1, vec!["00.jsonl.zst".to_string()]));
        let after = files(first.path());
        assert_eq!(after["3f.jsonl.zst"], before["3f.jsonl.zst"]);
        assert_ne!(after["00.jsonl.zst"], before["00.jsonl.zst"]);
        fs::write(first.path().join("00.jsonl.zst"), b"no shard").expect("writable");
        let error = merge(first.path(), [structure(1, "c")]).expect_err("it is damaged");
        assert!(error.to_string().contains("00.jsonl.zst"), "{error}");
    }

    #[test]
    fn later_records_replace_those_of_shards_until_they_are_merged() {
        let folder = tempfile::tempdir().expect("a folder");
        let shipped = |folder: &Path| {
            let all = files(folder).into_iter();
            let all = all.map(|(name, bytes)| -> (&'static str, &'static [u8]) {
                (name.leak(), bytes.leak())
            });
            Shards(Vec::from_iter(all).leak())
        };
        let sources = |shards: Shards| {
            let mut all = Vec::new();
            shards.each(|record| match record {
                Record::Structure(one) => all.push((one.fingerprint.bits(), one.source)),
                Record::Measurement(_) => {}
            });
            all.sort_unstable();
            all
        };
        let of = |pairs: &[(u128, &str)]| Vec::from_iter(pairs.iter().map(|p| (p.0, p.1.into())));
        merge(folder.path(), [structure(1, "a"), structure(2, "a")]).expect("written");
        let before = files(folder.path());
        let newer = || [structure(1, "a"), structure(2, "b"), structure(u128::MAX, "b")];
        let later = merge_later(folder.path(), newer()).expect("written");
        assert_eq!((later.taken, later.written), (2, vec![LATER.to_string()]));
        assert_eq!(merge_later(folder.path(), newer()).expect("read"), Merged::default());
        let after = files(folder.path());
        assert!(before.iter().all(|(name, bytes)| after[name] == *bytes), "shards stay");
        let shards = shipped(folder.path());
        let all = [(1, "a"), (2, "b"), (u128::MAX, "b")];
        assert_eq!(sources(shards), of(&all));
        for (print, source) in all {
            let print = structure(print, "").fingerprint();
            assert!(shards.hold(print));
            let found = shards.records_of(print);
            let [Record::Structure(one)] = &found[..] else { panic!("{found:?}") };
            assert_eq!(one.source, source);
        }
        assert!(!shards.hold(structure(3, "").fingerprint()));
        let merged = merge(folder.path(), []).expect("written");
        assert_eq!((merged.taken, merged.written.len()), (2, 2));
        assert!(!folder.path().join(LATER).exists());
        assert_eq!(sources(shipped(folder.path())), of(&all));
    }

    #[test]
    fn all_that_ships_is_valid_sorted_and_in_its_shard() {
        let mut records = 0;
        for (name, shard) in SHIPPED.0 {
            let (index, frame) = split(shard).expect("a shard");
            let text = compress::decode(frame).expect("compressed with zstd");
            let mut prints = BTreeSet::new();
            let mut before = (false, [].as_slice());
            for line in text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
                let record = Record::parse(line).expect("a valid record");
                let own = name_of(record.fingerprint());
                assert!(*name == LATER || own == *name, "{own} {name}");
                let after = (matches!(record, Record::Measurement(_)), line);
                assert!(before < after, "{name} is sorted");
                before = after;
                prints.insert(record.fingerprint().bits());
                records += 1;
            }
            let index: Vec<u128> = index.iter().map(|print| u128::from_le_bytes(*print)).collect();
            assert_eq!(index, Vec::from_iter(prints), "{name}");
        }
        assert_eq!(SHIPPED.0.is_empty(), cfg!(not(feature = "shipped")));
        assert_eq!(records == 0, SHIPPED.0.is_empty());
    }
}
