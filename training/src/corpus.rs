//! The corpus: matrices to measure, each with a source from which it can be made again and a
//! family.
//!
//! A family is written `class/family`, or `family` alone where it is its own class. Matrices of one
//! family resemble each other and are never on both sides of a split. Tables are made over classes.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use ellect::Csr;
use ellect::generate::{self, Size, Spec};
use ellect::read::{self, Limits};

/// A matrix of the corpus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The source: a file name without its extensions, followed by `*NNZ` where the matrix is
    /// scaled, or the specification given to a generator.
    pub source: String,
    /// The family of the matrix.
    pub family: String,
    origin: Origin,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Origin {
    Generated(Spec),
    File { path: PathBuf, scale: usize, ones: Ones },
}

/// The meaning of a file in which every value is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ones {
    /// The file holds a pattern with unknown values. Values are drawn, so that no measurement
    /// benefits from a format that stores few distinct values compactly.
    Unknown,
    /// The values are 1, as in a graph without weights.
    Values,
}

impl Entry {
    /// Generates or reads the matrix.
    ///
    /// # Errors
    /// Fails where the reader or the generator fails.
    pub fn matrix(&self) -> Result<Csr<f64>> {
        match &self.origin {
            Origin::Generated(spec) => Ok(spec.make()),
            Origin::File { path, scale, ones } => {
                let csr = read::file(path, &Limits::default());
                let mut csr = csr.with_context(|| path.display().to_string())?;
                if *ones == Ones::Unknown && csr.values().iter().all(|&value| value == 1.0) {
                    csr = generate::with_drawn_values(&csr, SEED);
                }
                Ok(generate::scaled(&csr, *scale, SEED)?)
            }
        }
    }
}

/// Seed for the joints between copies of a matrix and for drawn values.
const SEED: u64 = 1;

/// Returns the entries of the matrices that are generated for a corpus.
pub fn specs(size: Size) -> Vec<Entry> {
    generate::corpus(size).into_iter().map(generated).collect()
}

/// Returns the entry of a generated matrix.
pub fn generated(spec: Spec) -> Entry {
    Entry {
        source: spec.to_string(),
        family: spec.family().to_string(),
        origin: Origin::Generated(spec),
    }
}

/// Returns the matrix files under these paths, once for each scale. A scale of 0 keeps the size of
/// the file; any larger scale repeats the matrix along the diagonal to that many nonzeros.
///
/// # Errors
/// Fails where a path does not exist or holds no matrix.
pub fn files(
    paths: &[PathBuf],
    scales: &[usize],
    families: &Families,
    ones: Ones,
) -> Result<Vec<Entry>> {
    let mut found = Vec::new();
    for path in paths {
        let before = found.len();
        walk(path, &mut found).with_context(|| path.display().to_string())?;
        if found.len() == before {
            bail!("{}: there is no matrix file, .mtx or .npz, plain, .gz or .zst", path.display());
        }
    }
    let entry = |path: &PathBuf, scale: usize| {
        let name = stem(path);
        let family = families.of(&name);
        let source = if scale == 0 { name } else { format!("{name}*{scale}") };
        Entry { source, family, origin: Origin::File { path: path.clone(), scale, ones } }
    };
    Ok(found.iter().flat_map(|path| scales.iter().map(move |&scale| entry(path, scale))).collect())
}

/// Collects `path` if it is a matrix file, else all matrix files in the folder and below, in the
/// order of names.
fn walk(path: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    if !path.is_dir() {
        std::fs::metadata(path)?;
        found.push(path.to_path_buf());
        return Ok(());
    }
    let mut inside = Vec::new();
    for file in std::fs::read_dir(path)? {
        inside.push(file?.path());
    }
    inside.sort();
    for path in inside {
        if path.is_dir() || is_matrix(&path) {
            walk(&path, found)?;
        }
    }
    Ok(())
}

const ENDINGS: [&str; 5] = [".gz", ".zst", ".npz", ".mtx", ".json"];

fn is_matrix(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let plain = name.trim_end_matches(".gz").trim_end_matches(".zst");
    plain.ends_with(".mtx") || plain.ends_with(".npz")
}

/// Returns the name of a file without the extensions of matrix files.
pub fn stem(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut stem = name.as_str();
    while let Some(rest) = ENDINGS.iter().find_map(|ending| stem.strip_suffix(ending)) {
        stem = rest;
    }
    stem.to_string()
}

/// Orders the entries so that families take turns: a run that ends early has then seen all kinds.
pub fn in_turns(entries: Vec<Entry>) -> Vec<Entry> {
    let mut families: BTreeMap<String, VecDeque<Entry>> = BTreeMap::new();
    for entry in entries {
        families.entry(entry.family.clone()).or_default().push_back(entry);
    }
    let mut turns = Vec::new();
    while !families.is_empty() {
        turns.extend(families.values_mut().filter_map(VecDeque::pop_front));
        families.retain(|_, entries| !entries.is_empty());
    }
    turns
}

/// Families of matrix files by name.
#[derive(Clone, Debug, Default)]
pub struct Families(HashMap<String, String>);

impl Families {
    /// Reads comma-separated text whose header names the columns `name` and `family`, and
    /// `category` where there is a class. No field before the last of these columns may hold a
    /// comma.
    ///
    /// # Errors
    /// Fails where the header lacks `name` or `family`.
    pub fn parse(text: &str) -> Result<Families> {
        let mut lines = text.lines();
        let head: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
        let column = |name: &str| head.iter().position(|column| *column == name);
        let (Some(name), Some(family)) = (column("name"), column("family")) else {
            bail!("the head of the table of families lacks name or family");
        };
        let category = column("category");
        let one = |line: &str| {
            let fields: Vec<&str> = line.split(',').collect();
            let field = |at: usize| fields.get(at).copied().unwrap_or_default();
            let family = match category.map(field) {
                Some(category) if !category.is_empty() => format!("{category}/{}", field(family)),
                _ => field(family).to_string(),
            };
            (field(name).to_string(), family)
        };
        Ok(Families(lines.map(one).filter(|(_, family)| !family.is_empty()).collect()))
    }

    /// Returns the family of a source, from the table or else from its name.
    pub fn of(&self, source: &str) -> String {
        let name = source.split('*').next().unwrap_or_default();
        self.0.get(name).cloned().unwrap_or_else(|| family_of(source))
    }
}

/// Derives the family from a name: the part before the first colon, or else the letters that the
/// name begins with, so that `lp_maros_r7` and `lp_fit2d` share a family, as do `bodyy4` and
/// `bodyy6`.
pub fn family_of(source: &str) -> String {
    if let Some((class, _)) = source.split_once(':') {
        return class.to_string();
    }
    let letters = source.trim_start_matches(|c: char| !c.is_alphabetic());
    let end = letters.find(|c: char| !c.is_alphabetic()).unwrap_or(letters.len());
    match &letters[..end] {
        "" => source.to_string(),
        letters => letters.to_lowercase(),
    }
}

/// Returns the class of a family.
pub fn class_of(family: &str) -> &str {
    family.split('/').next().unwrap_or_default()
}

/// Returns the group that is never on both sides of a split. This is the family without its class,
/// as one source may give matrices of several classes; for generated matrices, it is the class
/// whose pattern they share.
pub fn split_group_of(family: &str) -> &str {
    let name = family.split_once('/').map_or(family, |(_, name)| name);
    let class = generate::CLASSES.iter().find(|class| class.name == name);
    class.and_then(|class| class.like).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_families() {
        let families = Families::parse("name,nnz,category,family\n3elt,5,fem,elt\n").expect("ok");
        assert_eq!(families.of("3elt*8000000"), "fem/elt");
        assert_eq!(class_of("fem/elt"), "fem");
        assert_eq!((class_of("lp"), families.of("lp_fit2d")), ("lp", "lp".to_string()));
        assert_eq!(families.of("stencil7:1000:rcm"), "stencil7");
        assert_eq!(families.of("bodyy4*100"), families.of("bodyy6"));
        assert_eq!(families.of("12345"), "12345");
        let group = ["acoustics/fem-coil", "electromagnetics/fem-coil", "laplacian", "triangles"];
        assert_eq!(group.map(split_group_of), ["fem-coil", "fem-coil", "triangles", "triangles"]);
        assert!(Families::parse("a,b\n").is_err());
    }

    #[test]
    fn turns_go_through_all_families_first() {
        let sources = ["stencil7:1", "stencil7:2", "stencil7:3", "heat:1", "uniform:1", "heat:2"];
        let entry = |source: &&str| Entry {
            source: source.to_string(),
            family: family_of(source),
            origin: Origin::Generated(source.parse().expect("a spec")),
        };
        let turns = in_turns(sources.iter().map(entry).collect());
        let turns: Vec<_> = turns.iter().map(|entry| entry.source.as_str()).collect();
        let expected = ["heat:1", "stencil7:1", "uniform:1", "heat:2", "stencil7:2", "stencil7:3"];
        assert_eq!(turns, expected);
    }

    #[test]
    fn a_folder_is_walked_and_files_are_scaled() {
        let folder = tempfile::tempdir().expect("a folder");
        let text = "%%MatrixMarket matrix coordinate pattern general\n2 3 2\n1 1\n2 3\n";
        std::fs::create_dir(folder.path().join("below")).expect("made");
        std::fs::write(folder.path().join("below").join("lp_a.mtx"), text).expect("written");
        std::fs::write(folder.path().join("notes.txt"), "no matrix").expect("written");
        let paths = [folder.path().to_path_buf()];
        let entries = files(&paths, &[0, 7], &Families::default(), Ones::Values).expect("one file");
        let sources: Vec<_> = entries.iter().map(|entry| entry.source.as_str()).collect();
        assert_eq!(sources, ["lp_a", "lp_a*7"]);
        let sizes = entries.iter().map(|entry| entry.matrix().expect("readable"));
        let sizes: Vec<_> = sizes.map(|csr| (csr.nrows(), csr.ncols(), csr.nnz())).collect();
        assert_eq!(sizes[0], (2, 3, 2));
        assert_eq!((sizes[1].0, sizes[1].1), (8, 12));
        let values = |ones| {
            let entries = files(&paths, &[0], &Families::default(), ones).expect("one file");
            entries[0].matrix().expect("readable").values().to_vec()
        };
        assert_eq!(values(Ones::Values), [1.0, 1.0]);
        let drawn = values(Ones::Unknown);
        assert!(drawn[0] != drawn[1] && drawn == values(Ones::Unknown), "{drawn:?}");
        let none = [folder.path().join("none")];
        assert!(files(&none, &[0], &Families::default(), Ones::Values).is_err());
    }
}
