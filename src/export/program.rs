//! Layouts as CUDA programs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};

use ellect_kernels::source::{ProductSource, RESIDENT, product};

use super::Export;
use crate::error::{Error, Result};
use crate::format::{Arg, Launch};
use crate::scalar::{Precision, Scalar};

/// The program, in which words between `@` stand for what depends on the layout.
const TEMPLATE: &str = include_str!("program.cu");

/// The first bytes of the file of data; those of the template.
const MAGIC: &[u8; 8] = b"ELLECTL1";

/// Dynamic shared memory per block that a kernel may use without asking for it.
const PLAIN_SHARED_BYTES: u32 = 48 * 1024;

impl<T: Scalar> Export<'_, T> {
    /// Writes the data of a program: the arrays of the layout, and the matrix in CSR for its check.
    /// Returns the hash by which the program knows its data.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn program_data(&self, sink: impl Write + Seek) -> Result<u64> {
        let failed = |source| Error::Io { what: "writing the data of the program".into(), source };
        self.write_data(BufWriter::new(sink)).map_err(failed)
    }

    fn write_data(&self, mut sink: impl Write + Seek) -> io::Result<u64> {
        sink.write_all(MAGIC)?;
        sink.write_all(&[0; 8])?;
        let mut sections = Sections { sink: &mut sink, hash: 0xcbf2_9ce4_8422_2325 };
        for array in self.stored() {
            sections.add(array)?;
        }
        let row_ptr: Vec<u64> = self.csr.row_ptr().iter().map(|&entry| entry as u64).collect();
        sections.add(bytemuck::cast_slice(&row_ptr))?;
        sections.add(bytemuck::cast_slice(self.csr.col_idx()))?;
        sections.add(bytemuck::cast_slice(self.csr.values()))?;
        sections.add(bytemuck::cast_slice(self.order))?;
        let hash = sections.hash;
        sink.seek(SeekFrom::Start(MAGIC.len() as u64))?;
        sink.write_all(&hash.to_le_bytes())?;
        sink.flush()?;
        Ok(hash)
    }

    /// The bytes of the arrays that kernels read.
    fn stored(&self) -> impl Iterator<Item = &[u8]> {
        let count = self.arrays().len() - usize::from(!self.order.is_empty());
        self.arrays()[..count].iter().map(|array| array.bytes)
    }

    /// Returns a CUDA program, for a file called `file`, that reads its data, with this hash, from
    /// the file `data`.
    ///
    /// # Errors
    /// [`Error::Argument`] if a launch of the product has more blocks than CUDA allows.
    pub fn program(&self, file: &str, data: &str, hash: u64) -> Result<String> {
        let sources = self.sources();
        let kernels = sources.values().flat_map(|source| &source.kernels);
        let kernels = kernels.map(String::as_str).collect();
        let (csr, described) = (self.csr, &self.described);
        let list = |sizes: &mut dyn Iterator<Item = u64>| {
            sizes.map(|bytes| format!("{bytes}ull")).collect::<Vec<_>>().join(", ")
        };
        let offsets = 8 * (csr.nrows() as u64 + 1);
        let (nnz, order) = (csr.nnz() as u64, 4 * self.order.len() as u64);
        let matrix = [offsets, 4 * nnz, size_of::<T>() as u64 * nnz, order];
        let sizes = self.stored().map(|array| array.len() as u64);
        let fields = [
            ("HEADING", self.heading(file, data)),
            ("INCLUDES", includes(&sources)),
            ("KERNELS", sources.iter().map(namespace).collect()),
            ("VALUE", value_type(T::PRECISION).into()),
            ("MEMBERS", self.members()),
            ("LAUNCHES", self.launches(&kernels)?),
            ("NROWS", csr.nrows().to_string()),
            ("NCOLS", csr.ncols().to_string()),
            ("NNZ", csr.nnz().to_string()),
            ("DIGEST", format!("{hash:#018x}ull")),
            ("DATA", literal(data)),
            ("SECTIONS", list(&mut sizes.chain(matrix))),
            ("STORED", self.stored().count().to_string()),
            // The last number keeps the list from being empty.
            ("SCRATCH", list(&mut described.scratch.iter().copied().chain([0]))),
            ("COUNTERS", described.counters.to_string()),
            ("FILL", self.fill()),
        ];
        let fields: BTreeMap<&str, String> = fields.into();
        let words = TEMPLATE.split('@');
        let filled = words.map(|word| fields.get(word).map_or(word, String::as_str));
        Ok(filled.collect())
    }

    fn heading(&self, file: &str, data: &str) -> String {
        let Export { candidate, csr, target, .. } = self;
        let (nrows, ncols, nnz) = (csr.nrows(), csr.ncols(), csr.nnz());
        let version = env!("CARGO_PKG_VERSION");
        let [file, data] = [file, data].map(literal);
        format!(
            "// {candidate} of a matrix with {nrows} rows, {ncols} columns and {nnz} entries, in {}, \
             laid out\n// for {} in the {} basis. Written by ellect {version}.\n//\n//     nvcc -O3 \
             -std=c++17 -arch=native {file} -o product\n//     ./product {data}\n//\n// The program \
             reads the arrays of the layout, compares its products with CSR on the host (exit\n// code \
             1 if one is wrong), and times them. Other programs can take the kernels and the function\
             \n// product.",
            T::PRECISION,
            target.device.name,
            target.basis
        )
    }

    /// The sources of the kernels that the product launches, by image.
    ///
    /// # Panics
    /// If a layout describes a kernel that its source does not define, which tests rule out.
    fn sources(&self) -> BTreeMap<&'static str, ProductSource> {
        let mut launched: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for launch in self.described.launches.iter().filter(|launch| launch.grid > 0) {
            launched.entry(launch.image).or_default().insert(&launch.kernel);
        }
        let source = |(image, kernels): (&'static str, BTreeSet<&str>)| {
            let source = product(image, &kernels);
            (image, source.unwrap_or_else(|| panic!("{image} does not define all of {kernels:?}")))
        };
        launched.into_iter().map(source).collect()
    }

    /// The names of arrays, scratch buffers and counters, as members of a structure.
    fn members(&self) -> String {
        let count = self.stored().count();
        let members = self.arrays()[..count].iter().map(|array| {
            let shape = array.shape().iter().map(usize::to_string).collect::<Vec<_>>().join(" x ");
            format!("Address {};  // {} ({shape})\n    ", array.name, array.meaning)
        });
        let scratch =
            (0..self.described.scratch.len()).map(|i| format!("Address scratch{i};\n    "));
        members.chain(scratch).chain(["Address counters;".to_string()]).collect()
    }

    /// The code that lists the members that are allocated.
    fn fill(&self) -> String {
        let count = self.stored().count();
        let arrays = self.arrays()[..count].iter().map(|array| format!("&layout.{}", array.name));
        let scratch = (0..self.described.scratch.len()).map(|i| format!("&layout.scratch{i}"));
        format!(
            "Address* const arrays[] = {{{}}};\n    Address* const scratch[] = {{{}}};",
            arrays.collect::<Vec<_>>().join(", "),
            scratch.chain(["nullptr".to_string()]).collect::<Vec<_>>().join(", ")
        )
    }

    /// The code that queues the launches of a product.
    fn launches(&self, kernels: &BTreeSet<&str>) -> Result<String> {
        let mut code = String::new();
        for (k, launch) in self.described.launches.iter().enumerate() {
            let Launch { image, kernel, grid, block, shared_bytes, args } = launch;
            let grid = u32::try_from(*grid).ok().filter(|&grid| i32::try_from(grid).is_ok());
            let grid = grid.ok_or_else(|| {
                let blocks = launch.grid;
                Error::argument(format!(
                    "a launch of {} has {blocks} blocks; CUDA allows at most {}",
                    self.candidate,
                    i32::MAX
                ))
            })?;
            if grid == 0 {
                continue;
            }
            let args = args.iter().map(|arg| self.argument(*arg)).collect::<Vec<_>>().join(", ");
            let call = |kernel: &str| {
                format!(
                    "image_{image}::{kernel}<<<{grid}u, {block}u, {shared_bytes}u, stream>>>(\n        {args});\n"
                )
            };
            if *shared_bytes > PLAIN_SHARED_BYTES {
                writeln!(
                    code,
                    "    static const bool allowed{k} = allow_shared(image_{image}::{kernel}, \
                     {shared_bytes});\n    (void)allowed{k};"
                )
                .expect("writing to a string");
            }
            let resident = format!("{kernel}{RESIDENT}");
            code += &match kernels.contains(resident.as_str()) {
                false => format!("    {}", call(kernel)),
                true => format!(
                    "    static const bool resident{k} =\n        all_resident(image_{image}::{resident}, \
                     {block}, {shared_bytes}, {grid}u);\n    if (resident{k})\n        {}    else\n        {}",
                    call(&resident),
                    call(kernel)
                ),
            };
        }
        Ok(code)
    }

    /// An argument of a kernel as C++ code.
    fn argument(&self, arg: Arg) -> String {
        match arg {
            Arg::Array(i) => format!("at.{}", self.arrays()[i].name),
            Arg::Scratch(i) => format!("at.scratch{i}"),
            Arg::Counters => "at.counters".into(),
            Arg::X => "x".into(),
            Arg::Y => "y".into(),
            Arg::Alpha => "alpha".into(),
            Arg::Beta => "beta".into(),
            Arg::XRow | Arg::XVector | Arg::YRow | Arg::YVector => {
                unreachable!("a program multiplies one vector")
            }
            Arg::Z | Arg::Wanted | Arg::Parts | Arg::W | Arg::Gamma => {
                unreachable!("a program only multiplies")
            }
            Arg::One => "Value(1)".into(),
            Arg::U32(number) => format!("{number}u"),
            // Also the null address.
            Arg::U64(0) => "0".into(),
            Arg::U64(number) => format!("{number}ull"),
            Arg::Temporary(_) | Arg::RowPtr | Arg::ColIdx | Arg::Values => {
                unreachable!("{arg:?} is an argument of conversions")
            }
        }
    }
}

/// Writes arrays one after the other, each filled up to a multiple of 8 bytes, and hashes them.
struct Sections<W> {
    sink: W,
    hash: u64,
}

impl<W: Write> Sections<W> {
    fn add(&mut self, array: &[u8]) -> io::Result<()> {
        let whole = array.len() / 8 * 8;
        let (words, rest) = array.split_at(whole);
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        let last = if rest.is_empty() { &[] } else { &last[..] };
        for word in words.chunks_exact(8).chain(last.chunks_exact(8)) {
            let word = u64::from_le_bytes(word.try_into().unwrap_or_default());
            // FNV-1a, by words.
            self.hash = (self.hash ^ word).wrapping_mul(0x0100_0000_01b3);
        }
        self.sink.write_all(words)?;
        self.sink.write_all(last)
    }
}

/// The C++ type of values.
fn value_type(precision: Precision) -> &'static str {
    match precision {
        Precision::F32 => "float",
        Precision::F64 => "double",
    }
}

/// The includes of the program and of its kernels.
fn includes(sources: &BTreeMap<&'static str, ProductSource>) -> String {
    let own = ["algorithm", "cmath", "cstdint", "cstdio", "cstdlib", "cstring", "limits", "vector"];
    let own = own.into_iter().chain(["utility"]).map(|header| format!("<{header}>"));
    let kernels = sources.values().flat_map(|source| &source.includes).map(ToString::to_string);
    let all: BTreeSet<String> = own.chain(kernels).collect();
    let lines = all.iter().map(|header| format!("#include {header}\n"));
    // Headers of kernels define names that not every kernel uses.
    lines.chain(["\n#pragma nv_diag_suppress 177".to_string()]).collect()
}

/// The kernels of an image in a namespace of their own, because images define names alike.
fn namespace((image, source): (&&'static str, &ProductSource)) -> String {
    format!("namespace image_{image} {{\n{}\n}}\n\n", source.code.trim())
}

/// A text as a C++ literal.
fn literal(text: &str) -> String {
    let mut literal = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => {
                literal.push('\\');
                literal.push(char::from(byte));
            }
            b' '..=b'~' => literal.push(char::from(byte)),
            other => write!(literal, "\\{other:03o}").expect("writing to a string"),
        }
    }
    literal + "\""
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Analysis;
    use crate::csr::{ComplexCsr, Csr};
    use crate::device::{self, Kind};
    use crate::format::{Candidate, candidates};
    use crate::generate;
    use crate::target::{Basis, Target};

    #[test]
    fn every_candidate_of_a_gpu_becomes_a_program_with_its_kernels() {
        let mut left = candidates(Kind::Gpu);
        let total = left.len();
        let of_class = |class| generate::by_name(class, 3000, 1).expect("a class");
        let mut matrices = ["elasticity", "rmat", "constant5", "circuit"].map(of_class).to_vec();
        matrices.push(ComplexCsr::try_from(&of_class("p2")).expect("small").to_real());
        // Values that f32 holds, and that 16 bits hold.
        let whole = of_class("elasticity").map_values(|value: f64| value.round() % 64.0);
        write_programs(&whole.cast::<f32>(), &mut left);
        write_programs(&of_class("constant5").cast::<f32>(), &mut left);
        matrices.push(whole);
        matrices.iter().for_each(|csr| write_programs(csr, &mut left));
        let left: Vec<String> = left.iter().map(ToString::to_string).collect();
        // Reorderings and parts suit other matrices only.
        assert!(8 * left.len() < total, "{} of {total} suit no matrix: {left:?}", left.len());
    }

    #[test]
    fn a_text_becomes_a_literal() {
        assert_eq!(literal("a \"b\"\\\n\u{e9}"), r#""a \"b\"\\\012\303\251""#);
    }

    /// Makes the program of each candidate that is left and suits the matrix, and removes it.
    fn write_programs<T: Scalar>(csr: &Csr<T>, left: &mut Vec<Candidate>) {
        let (device, analysis) = (device::find("h200").expect("shipped"), Analysis::of(csr));
        for basis in [Basis::Original, Basis::Permuted] {
            let target = Target {
                device: &device,
                precision: T::PRECISION,
                basis,
                memory_limit: u64::MAX,
                stored: Default::default(),
            };
            left.retain(|candidate| {
                let suits = candidate.work(&analysis, &target).is_ok();
                let layout = suits.then(|| candidate.convert(csr, &analysis, &target).ok());
                let Some(layout) = layout.flatten() else { return true };
                let Ok(export) = Export::new(candidate, layout.as_ref(), csr, &target) else {
                    return false;
                };
                let program = export.program("a.cu", "a.bin", 7).expect("few blocks");
                assert!(!program.contains('@'), "{candidate}: every word is replaced");
                let described = export.described.launches.iter();
                let launched = described.filter(|launch| launch.grid > 0).count();
                let launches = program.matches("<<<").count();
                assert!(launches >= launched && launched > 0, "{candidate}");
                false
            });
        }
    }
}
