//! The corpus: matrices to measure, each with a source from which it can be made again and a
//! family.
//!
//! A family is written `class/family`, or `family` alone where it is its own class. Matrices of one
//! family resemble each other and are never on both sides of a split. Tables are made over classes.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
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
/// A file that is there under several names or by a link counts once. In folders, vectors,
/// coordinates and right-hand sides (`NAME_b.mtx` beside `NAME.mtx`, arrays) are passed over; `tell`
/// is called with a sentence for each file that is left out.
///
/// # Errors
/// Fails where a path does not exist or holds no matrix.
pub fn files(
    paths: &[PathBuf],
    scales: &[usize],
    families: &Families,
    ones: Ones,
    tell: &mut dyn FnMut(String),
) -> Result<Vec<Entry>> {
    let mut walk = Walk { found: Vec::new(), met: 0, seen: HashMap::new(), tell };
    for path in paths {
        let before = walk.met;
        let is_new = !walk.was_seen(path);
        walk.path(path, None).with_context(|| path.display().to_string())?;
        if walk.met == before && is_new {
            bail!(
                "{}: there is no matrix file ({} or compressed)",
                path.display(),
                MATRICES.join(", ")
            );
        }
    }
    let found = walk.found;
    let entry = |path: &PathBuf, scale: usize| {
        let name = stem(path);
        let family = families.of(&name);
        let source = if scale == 0 { name } else { format!("{name}*{scale}") };
        Entry { source, family, origin: Origin::File { path: path.clone(), scale, ones } }
    };
    Ok(found.iter().flat_map(|path| scales.iter().map(move |&scale| entry(path, scale))).collect())
}

/// The search for matrix files.
struct Walk<'a> {
    found: Vec<PathBuf>,
    /// Number of matrix files that were met, those met before among them.
    met: usize,
    /// The files and folders that were met, by their real path, with the path that led to each.
    seen: HashMap<PathBuf, PathBuf>,
    tell: &'a mut dyn FnMut(String),
}

impl Walk<'_> {
    fn was_seen(&self, path: &Path) -> bool {
        path.canonicalize().is_ok_and(|real| self.seen.contains_key(&real))
    }

    /// Collects `path` if it is a matrix file, else all matrix files in the folder and below, in
    /// the order of names. `beside` holds the stems of all matrix files of its folder; `None` if the
    /// caller named the file, which is then taken as it is.
    fn path(&mut self, path: &Path, beside: Option<&HashSet<String>>) -> Result<()> {
        let real = path.canonicalize()?;
        if let Some(other) = self.seen.get(&real) {
            if real.is_file() {
                self.met += 1;
                (self.tell)(format!("{} is the file {}", path.display(), other.display()));
            }
            return Ok(());
        }
        if !real.is_dir() {
            if beside.is_none_or(|beside| self.is_wanted(path, beside)) {
                self.met += 1;
                self.seen.insert(real, path.to_path_buf());
                self.found.push(path.to_path_buf());
            }
            return Ok(());
        }
        let mut inside = Vec::new();
        for file in std::fs::read_dir(path)? {
            inside.push(file?.path());
        }
        inside.sort();
        let stems = inside.iter().filter(|path| is_matrix(path)).map(|path| stem(path)).collect();
        self.seen.insert(real, path.to_path_buf());
        for path in inside {
            // A link to nothing is no matrix.
            if path.is_dir() || (is_matrix(&path) && path.is_file()) {
                self.path(&path, Some(&stems))?;
            }
        }
        Ok(())
    }

    /// Returns false for a vector or the like, and names it.
    fn is_wanted(&mut self, path: &Path, beside: &HashSet<String>) -> bool {
        let own = stem(path);
        let what = match companion_of(&own, beside) {
            Some(matrix) => format!("belongs to {matrix}"),
            None if read::shape(path).is_some_and(|shape| shape.is_vector()) => {
                "is a vector or a dense array".into()
            }
            None => return true,
        };
        (self.tell)(format!("passed over {}, which {what}", path.display()));
        false
    }
}

/// Endings of matrix files, in front of those of compression.
const MATRICES: [&str; 12] = [
    ".mtx", ".npz", ".rb", ".rua", ".rsa", ".rza", ".rra", ".pua", ".psa", ".pra", ".mat", ".petsc",
];

/// Endings of archives, which hold a matrix and more.
const ARCHIVES: [&str; 3] = [".tar", ".tgz", ".zip"];

/// Endings of compression.
const COMPRESSION: [&str; 4] = [".gz", ".zst", ".bz2", ".xz"];

/// Returns the name of a file in lower case without endings of compression.
fn plain_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let mut plain = name.as_str();
    while let Some(rest) = COMPRESSION.iter().find_map(|ending| plain.strip_suffix(ending)) {
        plain = rest;
    }
    plain.to_string()
}

/// Returns true for the name of a matrix file, plain or compressed, or of an archive.
fn is_matrix(path: &Path) -> bool {
    let name = plain_name(path);
    MATRICES.iter().chain(&ARCHIVES).any(|ending| name.ends_with(ending))
}

/// Returns the stem of the matrix in the same folder that a file belongs to: `NAME` for `NAME_b`.
fn companion_of<'a>(own: &'a str, beside: &HashSet<String>) -> Option<&'a str> {
    const SUFFIXES: [&str; 7] = ["b", "x", "coord", "c", "lo", "hi", "z0"];
    let (matrix, suffix) = own.rsplit_once('_')?;
    (beside.contains(matrix) && SUFFIXES.contains(&suffix)).then_some(matrix)
}

/// Returns the name of a file without the extensions of matrix files.
pub fn stem(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut stem = name.as_str();
    let endings = || COMPRESSION.iter().chain(&MATRICES).chain(&ARCHIVES).chain(&[".json"]);
    while let Some(rest) = endings().find_map(|ending| stem.strip_suffix(ending)) {
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
        let quiet = &mut |_| ();
        let entries = files(&paths, &[0, 7], &Families::default(), Ones::Values, quiet);
        let entries = entries.expect("one file");
        let sources: Vec<_> = entries.iter().map(|entry| entry.source.as_str()).collect();
        assert_eq!(sources, ["lp_a", "lp_a*7"]);
        let sizes = entries.iter().map(|entry| entry.matrix().expect("readable"));
        let sizes: Vec<_> = sizes.map(|csr| (csr.nrows(), csr.ncols(), csr.nnz())).collect();
        assert_eq!(sizes[0], (2, 3, 2));
        assert_eq!((sizes[1].0, sizes[1].1), (8, 12));
        let values = |ones| {
            let entries = files(&paths, &[0], &Families::default(), ones, &mut |_| ());
            let entries = entries.expect("one file");
            entries[0].matrix().expect("readable").values().to_vec()
        };
        assert_eq!(values(Ones::Values), [1.0, 1.0]);
        let drawn = values(Ones::Unknown);
        assert!(drawn[0] != drawn[1] && drawn == values(Ones::Unknown), "{drawn:?}");
        let none = [folder.path().join("none")];
        assert!(files(&none, &[0], &Families::default(), Ones::Values, &mut |_| ()).is_err());
    }

    #[test]
    fn a_file_counts_once_and_companions_are_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let matrix = "%%MatrixMarket matrix coordinate pattern general\n2 3 2\n1 1\n2 3\n";
        let array = "%%MatrixMarket matrix array real general\n% c\n2 1\n1\n2\n";
        let texts = [
            ("a.mtx", matrix),
            ("a_b.mtx", array),
            ("a_coord.mtx", matrix),
            ("a_2.mtx", matrix),
            ("rhs.mtx", array),
        ];
        texts.iter().for_each(|(name, text)| std::fs::write(at(name), text).expect("written"));
        let mut told = Vec::new();
        let mut names = |paths: &[PathBuf]| {
            told.clear();
            let tell = &mut |text| told.push(text);
            let entries = files(paths, &[0], &Families::default(), Ones::Values, tell);
            let entries = entries.expect("files");
            let names: Vec<_> = entries.into_iter().map(|entry| entry.source).collect();
            (names, told.clone())
        };
        let (found, told) = names(&[folder.path().into(), at("a.mtx"), at("rhs.mtx")]);
        assert_eq!(found, ["a", "a_2", "rhs"], "a file that is named is taken as it is");
        let expected = [
            "a_b.mtx, which belongs to a",
            "a_coord.mtx, which belongs to a",
            "rhs.mtx, which is a vector or a dense array",
            "a.mtx is the file ",
        ];
        assert_eq!(told.len(), expected.len(), "{told:?}");
        assert!(told.iter().zip(expected).all(|(text, part)| text.contains(part)), "{told:?}");
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(folder.path(), at("loop")).expect("linked");
            std::os::unix::fs::symlink(at("a.mtx"), at("z.mtx")).expect("linked");
            std::os::unix::fs::symlink(at("nothing"), at("broken.mtx")).expect("linked");
            let (found, told) = names(&[folder.path().into()]);
            assert_eq!(found, ["a", "a_2"]);
            assert!(told[3].contains("z.mtx is the file"), "{told:?}");
        }
    }
}
