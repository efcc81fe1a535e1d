//! The CUDA kernels, which `build/main.rs` compiles with the feature `cuda`. Without the feature
//! the table of images is empty and no part of CUDA is needed.
//!
//! - `products/`: kernels of products, one `.cu` file per storage format;
//! - `conversions/`: kernels that convert a CSR matrix to a layout on the GPU;
//! - `features/`: kernels that count features;
//! - `vectors/`: operations on vectors for solvers;
//! - `common/`: headers that several of these folders include;
//! - `primitives/`: sums and sorts, which call CUB.

#[cfg(feature = "cuda")]
pub mod driver;
#[cfg(feature = "cuda")]
pub mod primitives;
pub mod source;

/// The type of a kernel's parameter; an address is a [`Param::U64`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Param {
    /// A 32-bit whole number.
    U32,
    /// A 64-bit whole number or an address.
    U64,
    /// A number of single precision.
    F32,
    /// A number of double precision.
    F64,
    /// A structure of this many bytes.
    Bytes(u32),
}

/// A compiled kernel.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// The symbol.
    pub name: &'static str,
    /// The types of its parameters, in order.
    pub params: &'static [Param],
}

/// The compiled kernels of one `.cu` file.
#[derive(Clone, Copy, Debug)]
pub struct Image {
    /// The file's name without its ending; records of measurements refer to it.
    pub name: &'static str,
    /// The folder of the file: `products`, `conversions`, `features` or `vectors`.
    pub folder: &'static str,
    /// Machine code for every shipped architecture, and PTX for later ones.
    pub fatbin: &'static [u8],
    /// Report of ptxas on registers, shared memory and spills.
    pub resources: &'static str,
    /// Hash of the machine code and of the launch attributes, for every architecture. It ignores
    /// names, comments, line numbers and file names: see `build/cubin.rs`.
    pub hash: &'static str,
    /// The kernels, by name.
    pub kernels: &'static [Kernel],
    /// Kernels with a second form, named `_resident`, for launches whose blocks are all resident on
    /// the GPU at once.
    pub resident: &'static [&'static str],
}

impl Image {
    /// The kernel of this name.
    pub fn kernel(&self, name: &str) -> Option<&'static Kernel> {
        let at = self.kernels.binary_search_by(|kernel| kernel.name.cmp(name)).ok()?;
        self.kernels.get(at)
    }
}

/// Every image, by name; empty without the feature `cuda`.
pub static IMAGES: &[Image] = include!(concat!(env!("OUT_DIR"), "/images.rs"));

/// The image of this name.
pub fn find(name: &str) -> Option<&'static Image> {
    IMAGES.iter().find(|image| image.name == name)
}

/// The text of the header that defines the numbers shared by kernels and Rust code.
const LAYOUT: &[u8] = include_bytes!("../common/layout.cuh");

/// A number that kernels share with Rust code, by its name in `common/layout.cuh`.
///
/// # Panics
/// If the header defines no such number; in a constant this is a compile-time error.
pub const fn shared(name: &str) -> u64 {
    let mut at = 0;
    while at < LAYOUT.len() {
        if LAYOUT[at] == b' ' && starts_with(at + 1, name.as_bytes()) {
            let value = at + 1 + name.len();
            if starts_with(value, b" = ") {
                return number(value + 3);
            }
        }
        at += 1;
    }
    panic!("common/layout.cuh has no number of this name")
}

/// Returns true if the text has `word` at position `at`.
const fn starts_with(at: usize, word: &[u8]) -> bool {
    let mut i = 0;
    while i < word.len() {
        if at + i >= LAYOUT.len() || LAYOUT[at + i] != word[i] {
            return false;
        }
        i += 1;
    }
    true
}

/// The decimal or hexadecimal number at position `at`, which ends before a semicolon.
const fn number(mut at: usize) -> u64 {
    let base = if starts_with(at, b"0x") { 16 } else { 10 };
    if base == 16 {
        at += 2;
    }
    let mut value = 0;
    while LAYOUT[at] != b';' {
        let digit = match LAYOUT[at] {
            digit @ b'0'..=b'9' => digit - b'0',
            digit @ b'a'..=b'f' if base == 16 => digit - b'a' + 10,
            _ => {
                panic!("common/layout.cuh defines a number that is neither decimal nor hexadecimal")
            }
        };
        value = value * base + digit as u64;
        at += 1;
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_numbers_are_read_as_the_compiler_reads_them() {
        assert_eq!(shared("CSR_BATCH"), 6);
        assert_eq!(shared("HUB_ELL_SPLIT"), 1 << 31);
        assert_eq!(shared("longest_at"), 0);
        let text = std::str::from_utf8(LAYOUT).expect("text");
        let names =
            text.lines().filter_map(|line| line.strip_prefix("constexpr ")?.split(' ').nth(1));
        let mut names: Vec<_> = names.collect();
        assert!(names.len() > 30, "{names:?}");
        names.iter().for_each(|name| assert!(shared(name) <= 1 << 31, "{name}"));
        names.sort_unstable();
        assert!(names.is_sorted_by(|a, b| a < b), "a name is given twice: {names:?}");
    }

    #[test]
    #[should_panic(expected = "no number of this name")]
    fn a_name_that_is_not_there_is_an_error() {
        shared("CSR_BATC");
    }
}
