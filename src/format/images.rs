//! Kernel images that a format may launch: known from their names.

use super::{FORMATS, Format};

/// Prefix of the images that convert to a format; the name of the format follows, except in images
/// that several formats share.
pub(crate) const CONVERSION: &str = "convert_";

impl Format {
    /// Tells whether a GPU may run kernels of this image for this format.
    ///
    /// It may if the image is named after the format, after a format in
    /// [`Storage::KERNELS_OF`](super::Storage::KERNELS_OF), or after no format. An image is named
    /// after `csr` if it is called `csr`, `csr_` and a word, or either of these after `convert_`.
    ///
    /// ```
    /// use ellect::format::find;
    ///
    /// # fn main() -> ellect::Result<()> {
    /// let hll = find("hll")?;
    /// assert!(hll.may_launch("hll") && hll.may_launch("convert"));
    /// assert!(!hll.may_launch("hll_vi") && !hll.may_launch("pcsr"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn may_launch(&self, image: &str) -> bool {
        named_after(image).is_none_or(|name| name == self.name || self.kernels_of.contains(&name))
    }
}

/// Returns the format that this image is named after: the one with the longest name, if several
/// names fit.
fn named_after(image: &str) -> Option<&'static str> {
    let own = image.strip_prefix(CONVERSION).unwrap_or(image);
    let fits = |name: &&str| {
        own.strip_prefix(*name).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
    };
    FORMATS.iter().map(|format| format.name).filter(fits).max_by_key(|name| name.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_named_after_at_most_one_format() {
        let owners = ["csr", "csr_long", "convert_csr", "st_csr", "st_csr_vi", "convert_hub_ell"];
        let owners = owners.map(named_after);
        assert_eq!(owners, ["csr", "csr", "csr", "st_csr", "st_csr_vi", "hub_ell"].map(Some));
        for own in ["csr_scalar", "csr_vector", "csr_adaptive", "convert_csr_blocks"] {
            assert_eq!(named_after(own), Some("csr"), "{own}");
        }
        for shared in ["convert", "convert_tiles", "columns", "diagonals", "bisection"] {
            assert_eq!(named_after(shared), None, "{shared}");
        }
    }

    #[test]
    fn only_formats_have_kernels_that_others_launch() {
        for format in FORMATS {
            for name in format.kernels_of {
                assert!(FORMATS.iter().any(|other| other.name == *name), "{}: {name}", format.name);
            }
        }
    }
}
