//! Kernels that compute y = alpha A x + beta y and dot products of y in one pass.

use super::launch::{Arg, Launch};

impl Launch {
    /// Returns the launch that also computes dot products of y, in place of this one: a kernel of another
    /// image with the same grid, which takes z, the dot products wanted, and partial sums in addition.
    pub(in crate::format) fn with_dots(&self, image: &'static str, kernel: String) -> Launch {
        let more = [Arg::Z, Arg::Wanted, Arg::Parts];
        let args = self.args.iter().copied().chain(more).collect();
        Launch { image, kernel, args, ..self.clone() }
    }
}
