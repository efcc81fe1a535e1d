//! The CUDA kernels, one `.cu` file for each storage format, compiled by `build.rs` with the
//! feature `cuda`. Without it the table of images is empty and nothing of CUDA is needed.

#[cfg(feature = "cuda")]
pub mod driver;
#[cfg(feature = "cuda")]
pub mod primitives;

/// The compiled kernels of one `.cu` file.
#[derive(Clone, Copy, Debug)]
pub struct Image {
    /// The file's name without its ending: the format's name.
    pub name: &'static str,
    /// Machine code for every shipped architecture, and PTX for later ones.
    pub fatbin: &'static [u8],
    /// What ptxas said of registers, shared memory and spills.
    pub resources: &'static str,
    /// Hash of its source, of the headers that it includes and of nvcc's version.
    pub hash: &'static str,
    /// The kernels that have a form for launches whose blocks are all at work at once, named `_few`.
    pub few: &'static [&'static str],
}

/// Every image, by name; empty without the feature `cuda`.
pub static IMAGES: &[Image] = include!(concat!(env!("OUT_DIR"), "/images.rs"));

/// The image of this name.
pub fn find(name: &str) -> Option<&'static Image> {
    IMAGES.iter().find(|image| image.name == name)
}
