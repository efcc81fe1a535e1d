//! Layouts in files: archives hold every array as it is documented, and multiply.
//!
//! `api/LAYOUTS.md` lists the arrays of every format. After a change, rewrite it:
//!
//! ```text
//! ELLECT_REWRITE_LAYOUTS=1 cargo test -p ellect --test export
//! ```
//!
//! `api/python/tests/test_layouts.py` multiplies by the archives of every format with NumPy.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{Cursor, Read};

use ellect::analysis::Analysis;
use ellect::csr::ComplexCsr;
use ellect::device::{self, Device, Kind};
use ellect::export::Export;
use ellect::format::{Basis, Candidate, FORMATS, Target, candidates};
use ellect::{Csr, Precision, Scalar, check, generate};
use serde_json::Value;
use zip::ZipArchive;

/// If this variable is set, the test rewrites the list of arrays.
const REWRITE: &str = "ELLECT_REWRITE_LAYOUTS";

/// An H200 with so small a cache that formats for larger vectors apply to small matrices.
fn device() -> Device {
    Device { cache_bytes: 4000, ..device::find("h200").expect("shipped") }
}

fn matrices() -> Vec<Csr<f64>> {
    let named = |class| generate::by_name(class, 1200, 1).expect("a class");
    let real: Csr<f64> = named("p2");
    let imaginary = real.map_values(|value| 0.5 - value);
    let complex = ComplexCsr::from_parts(&real, &imaginary).expect("equal sizes");
    let mut all = ["elasticity", "constant5", "rmat", "circuit"].map(named).to_vec();
    all.push(complex.to_real());
    all
}

/// Calls `f` with each candidate and its export, wherever a candidate suits a matrix.
fn over_exports<T: Scalar>(mut f: impl FnMut(&Candidate, &Csr<T>, &Export<'_, T>)) {
    let device = device();
    for csr in matrices() {
        let csr = csr.cast::<T>();
        let analysis = Analysis::of(&csr);
        for basis in [Basis::Original, Basis::Permuted] {
            let memory_limit = u64::MAX;
            let target = Target {
                device: &device,
                precision: T::PRECISION,
                basis,
                memory_limit,
                stored: Default::default(),
            };
            for candidate in candidates(Kind::Gpu) {
                // Values may be rounded to the type in which the format stores them.
                let target = Target { stored: candidate.format.stores, ..target };
                let suits = candidate.work(&analysis, &target).is_ok();
                let layout = suits.then(|| candidate.convert(&csr, &analysis, &target).ok());
                let Some(layout) = layout.flatten() else { continue };
                if let Ok(export) = Export::new(&candidate, layout.as_ref(), &csr, &target) {
                    f(&candidate, &csr, &export);
                }
            }
        }
    }
}

/// Arrays of an archive by name: type and bytes, and its description.
struct Archive {
    arrays: BTreeMap<String, (String, Vec<u8>)>,
    about: Value,
}

impl Archive {
    fn of<T: Scalar>(export: &Export<'_, T>) -> Archive {
        let mut file = Cursor::new(Vec::new());
        export.npz(&mut file).expect("memory");
        let mut zip = ZipArchive::new(file).expect("an archive");
        let (mut arrays, mut about) = (BTreeMap::new(), Value::Null);
        for k in 0..zip.len() {
            let mut member = zip.by_index(k).expect("a member");
            let mut bytes = Vec::new();
            member.read_to_end(&mut bytes).expect("memory");
            let name = member.name().expect("a name").to_string();
            let Some(name) = name.strip_suffix(".npy") else {
                assert_eq!(name, "layout.json");
                about = serde_json::from_slice(&bytes).expect("JSON");
                continue;
            };
            let length = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
            let header = String::from_utf8(bytes[10..10 + length].to_vec()).expect("text");
            let descr = header.split('\'').nth(3).expect("a type").to_string();
            assert_eq!((10 + length) % 64, 0, "{name} begins at a multiple of 64 bytes");
            arrays.insert(name.to_string(), (descr, bytes.split_off(10 + length)));
        }
        Archive { arrays, about }
    }

    /// The whole numbers of an array; `None` if the archive lacks it.
    fn numbers(&self, name: &str) -> Option<Vec<usize>> {
        let (descr, bytes) = self.arrays.get(name)?;
        let size: usize = descr[2..].parse().expect("a size");
        let number = |bytes: &[u8]| {
            bytes.iter().rev().fold(0, |number, &byte| number << 8 | usize::from(byte))
        };
        Some(bytes.chunks_exact(size).map(number).collect())
    }

    fn values(&self) -> Vec<f64> {
        let (descr, bytes) = &self.arrays["values"];
        assert_eq!(descr, "<f8");
        bytes.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().expect("8 bytes"))).collect()
    }

    fn number(&self, name: &str) -> usize {
        self.about[name].as_u64().expect("a number") as usize
    }

    /// Row, column and value of each entry, for formats of rows, coordinates and slices.
    fn entries(&self) -> Option<Vec<(usize, usize, f64)>> {
        let (values, nrows) = (self.values(), self.number("nrows"));
        let columns = self.numbers("col_idx")?;
        let rows: Vec<usize> = if let Some(ptr) = self.numbers("row_ptr") {
            (0..nrows).flat_map(|row| std::iter::repeat_n(row, ptr[row + 1] - ptr[row])).collect()
        } else if let Some(rows) = self.numbers("row_idx") {
            rows
        } else {
            let (ptr, order) = (self.numbers("slice_ptr")?, self.numbers("row_order"));
            let slice = self.about["numbers"]["slice_rows"].as_u64()? as usize;
            let stored = ptr.windows(2).enumerate().flat_map(|(s, ends)| {
                (0..ends[1] - ends[0]).map(move |slot| s * slice + slot % slice)
            });
            stored.map(|i| order.as_ref().map_or(i, |order| *order.get(i).unwrap_or(&i))).collect()
        };
        let entries = rows.into_iter().zip(columns).zip(values);
        let entries = entries.map(|((row, column), value)| (row, column, value));
        Some(entries.filter(|&(_, column, _)| column < self.number("ncols")).collect())
    }
}

#[test]
fn an_archive_holds_every_array_and_describes_it() {
    let mut seen = BTreeSet::new();
    over_exports::<f32>(|candidate, csr, export| {
        let archive = Archive::of(export);
        let about = &archive.about;
        assert_eq!(about["schema"], "ellect-layout-1");
        assert_eq!(about["candidate"], candidate.to_string());
        assert_eq!(about["precision"], "f32");
        let sizes = ["nrows", "ncols", "nnz"].map(|name| archive.number(name));
        assert_eq!(sizes, [csr.nrows(), csr.ncols(), csr.nnz()]);
        let described = about["arrays"].as_array().expect("a list");
        assert_eq!(described.len(), export.arrays().len());
        assert_eq!(archive.arrays.len(), described.len(), "{candidate}: names are distinct");
        for (array, described) in export.arrays().iter().zip(described) {
            let (descr, bytes) = &archive.arrays[array.name.as_ref()];
            assert_eq!(&described["name"], array.name.as_ref());
            assert_eq!(&described["dtype"], descr.as_str());
            let shape = described["shape"].as_array().expect("a list").iter();
            let length: u64 = shape.map(|n| n.as_u64().expect("a length")).product();
            assert_eq!(length as usize * array.element.bytes(), bytes.len(), "{candidate}");
            assert_eq!(bytes, array.bytes, "{candidate}: {}", array.name);
            let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(array.name.starts_with(|c: char| c.is_ascii_lowercase()), "{}", array.name);
            assert!(array.name.chars().all(is_plain), "{}", array.name);
        }
        seen.insert(candidate.format.name);
    });
    // Formats that store f64 in f32 take no matrix of f32.
    let wide = FORMATS.iter().filter(|format| format.narrows.is_none());
    let vendor = wide.filter(|format| !seen.contains(format.name));
    assert!(vendor.clone().all(|format| format.role == ellect::format::Role::Vendor));
    assert_eq!(vendor.count(), 1);
}

#[test]
fn archives_multiply_as_csr_does() {
    let mut checked = BTreeSet::new();
    over_exports::<f64>(|candidate, csr, export| {
        if export.arrays().iter().any(|array| array.name == "basis_order") {
            return;
        }
        let archive = Archive::of(export);
        let plain = ["csr", "pcsr", "coo", "hll"].contains(&candidate.format.name);
        let Some(entries) = plain.then(|| archive.entries()).flatten() else { return };
        let x = check::vector::<f64>(csr.ncols(), 1);
        let mut y = vec![0.0; csr.nrows()];
        for (row, column, value) in entries {
            y[row] += value * x[column];
        }
        let reference = check::reference(csr, 1.0, &x, 0.0, &y);
        check::compare(&candidate.to_string(), &reference, &y).expect("right");
        checked.insert(candidate.to_string());
    });
    assert!(checked.len() > 15, "{checked:?}");
}

#[test]
fn a_library_of_the_vendor_has_no_arrays_to_write() {
    let (device, csr) = (device(), &matrices()[0]);
    let target = Target {
        device: &device,
        precision: Precision::F64,
        basis: Basis::Original,
        memory_limit: u64::MAX,
        stored: Default::default(),
    };
    let candidate: Candidate = "cusparse:alg=sell".parse().expect("a candidate");
    let layout = candidate.convert(csr, &Analysis::of(csr), &target).expect("applies");
    let refused = Export::new(&candidate, layout.as_ref(), csr, &target).err().expect("refused");
    let refused = refused.to_string();
    assert!(refused.starts_with("cusparse:alg=sell multiplies by a library"), "{refused}");
    assert!(refused.contains("name another candidate, csr"), "{refused}");
}

/// Common to the layouts of a format: of each array its type, its second
/// dimension, its meaning, and the number of layouts that have it.
#[derive(Default)]
struct Arrays {
    layouts: usize,
    arrays: Vec<(String, String, &'static str, usize)>,
    numbers: Vec<(String, &'static str)>,
}

/// The name of an array or a number, with K for the number of one of many slabs.
fn general(name: &str) -> String {
    match name.split_once('_') {
        Some((slab, rest)) if slab.starts_with("slab") => format!("slabK_{rest}"),
        _ => name.to_string(),
    }
}

impl Arrays {
    fn add<T: Scalar>(&mut self, export: &Export<'_, T>) {
        self.layouts += 1;
        let mut names = BTreeSet::new();
        for array in export.arrays() {
            let name = general(&array.name);
            let of_values = format!("<f{}", T::PRECISION.bytes());
            let mut form = match array.element.numpy() {
                dtype if dtype == of_values => "precision".to_string(),
                other => other.to_string(),
            };
            if array.width > 1 {
                write!(form, ", n x {}", array.width).expect("memory");
            }
            let known = self.arrays.iter_mut().find(|known| known.0 == name);
            match known {
                Some(known) => {
                    assert_eq!((known.1.as_str(), known.2), (form.as_str(), array.meaning));
                    known.3 += usize::from(names.insert(name));
                }
                None => {
                    names.insert(name.clone());
                    self.arrays.push((name, form, array.meaning, 1));
                }
            }
        }
        for number in export.numbers() {
            let number = (general(&number.name), number.meaning);
            if !self.numbers.contains(&number) {
                self.numbers.push(number);
            }
        }
    }

    fn text(&self) -> String {
        let mut text = String::from("| array | dtype | each element |\n|---|---|---|\n");
        for (name, form, meaning, layouts) in &self.arrays {
            let some = if *layouts < self.layouts { "; in some layouts" } else { "" };
            writeln!(text, "| `{name}` | `{form}` | {meaning}{some} |").expect("memory");
        }
        for (name, meaning) in &self.numbers {
            writeln!(text, "| number `{name}` | | {meaning} |").expect("memory");
        }
        text
    }
}

const HEAD: &str = "\
# Arrays of layouts

`ellect convert FILE --to CANDIDATE --device NAME -o layout.npz` writes these arrays, and describes
those of the matrix in the member `layout.json`: `ellect convert --help` has its keys. The module of each
format, `cargo doc --open -p ellect`, explains its layout with a drawing.
`api/python/tests/layouts.py` reads each with NumPy; the documentation of the module `export` has two
short examples.

Types are NumPy's. `precision` is `<f8` or `<f4`. NumPy has no bf16: such values are `<u2`, the upper halves
of `<f4`. Starts (`..._ptr`) are `<u8` instead of `<u4` where the
last one exceeds 2^32 - 4096. `layout.json` has the numbers, of which each row below names the meaning.
`row_order` is there where rows are sorted and y keeps its order; `basis_order` where x and y are in a
permuted basis (`--basis permuted`). `cusparse` has no arrays of its own: the vendor's library multiplies
those of `csr`, or of `hll` in hacks of 32.

A test writes this file: `ELLECT_REWRITE_LAYOUTS=1 cargo test -p ellect --test export`.
";

#[test]
fn the_arrays_of_every_format_are_documented() {
    let mut all: BTreeMap<&str, Arrays> = BTreeMap::new();
    over_exports::<f64>(|candidate, _, export| {
        all.entry(candidate.format.name).or_default().add(export);
    });
    over_exports::<f32>(|candidate, _, export| {
        let format = candidate.format;
        if format.stores.rounds() == Some(Precision::F32) {
            all.entry(format.name).or_default().add(export);
        }
    });
    let mut text = HEAD.to_string();
    for format in FORMATS {
        if let Some(arrays) = all.get(format.name) {
            let (name, title) = (format.name, format.title);
            write!(text, "\n## {name}\n\n{title}\n\n{}", arrays.text()).expect("memory");
        }
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/api/LAYOUTS.md");
    if std::env::var_os(REWRITE).is_some() {
        std::fs::write(path, &text).expect("writable");
    }
    let stored = std::fs::read_to_string(path).unwrap_or_default();
    let command = format!("{REWRITE}=1 cargo test -p ellect --test export");
    assert!(stored == text, "api/LAYOUTS.md lists other arrays: run {command}");
}
