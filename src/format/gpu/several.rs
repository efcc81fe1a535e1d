//! Kernels that multiply several vectors at once: they read the matrix once for all of them.

use super::launch::{Arg, Launch};

/// Numbers of vectors for which there are kernels, in descending order. A product with other numbers
/// runs several of them.
pub const WIDTHS: [u32; 4] = [8, 4, 2, 1];

/// The kernel of a product with several vectors.
///
/// ```
/// use ellect::format::{Access, Several, WIDTHS};
///
/// let four = Several { vectors: 4, access: Access::Packed };
/// assert!(Several::ALL.contains(&four) && WIDTHS.contains(&four.vectors));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Several {
    /// Number of vectors: one of [`WIDTHS`].
    pub vectors: u32,
    /// Access to the vectors.
    pub access: Access,
}

/// Access of a kernel to the elements of several vectors that belong to one row.
///
/// ```
/// use ellect::format::{Access, Several};
///
/// // One vector alone has no neighbours to be packed with.
/// let packed = |several: &&Several| several.access == Access::Packed;
/// assert!(Several::ALL.iter().filter(packed).all(|several| several.vectors > 1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// They follow each other, aligned to 16 bytes or to all of their bytes, whichever is less.
    Packed,
    /// They are anywhere, in equal distances.
    Strided,
}

impl Several {
    /// All kernels for several vectors; a format has all of them or none.
    pub const ALL: [Several; 7] = [
        Several { vectors: 1, access: Access::Strided },
        Several { vectors: 2, access: Access::Strided },
        Several { vectors: 4, access: Access::Strided },
        Several { vectors: 8, access: Access::Strided },
        Several { vectors: 2, access: Access::Packed },
        Several { vectors: 4, access: Access::Packed },
        Several { vectors: 8, access: Access::Packed },
    ];

    /// Returns the place of this kernel in [`Several::ALL`]; `None` if there is no such kernel.
    pub fn index(self) -> Option<usize> {
        Several::ALL.iter().position(|&other| other == self)
    }

    /// Returns the launch for several vectors in place of `one`, that for one vector.
    ///
    /// `lanes` lanes share a row in place of `one_lanes`, if each multiplies with all vectors. With 8
    /// packed vectors, `parts` times as many do.
    pub(in crate::format) fn launch(
        self,
        one: &Launch,
        (image, stem, precision): (&'static str, &str, &str),
        [one_lanes, lanes, parts]: [u64; 3],
        more: &[Arg],
    ) -> Launch {
        let Several { vectors, access } = self;
        let (access, parts) = match access {
            Access::Strided => ("strided", 1),
            Access::Packed => ("packed", if vectors == 8 { parts } else { 1 }),
        };
        let threads = (one.grid * u64::from(one.block)).div_ceil(one_lanes) * lanes * parts;
        let strides = [Arg::XRow, Arg::XVector, Arg::YRow, Arg::YVector];
        let args = one.args.iter().chain(more).copied().chain(strides).collect();
        let kernel = format!("{stem}_v{vectors}_{access}_{precision}");
        Launch::over(image, kernel, threads, one.block, args)
    }
}
