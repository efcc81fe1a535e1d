//! Kernels that compute y = alpha A x + beta y, dot products of y, and w = w + gamma y in one pass.

use super::launch::{Arg, Launch};

impl Launch {
    /// Returns the launch that also computes dot products of y and w = w + gamma y, in place of this one: a
    /// kernel of another image with the same grid, which takes z, what is wanted, partial sums, w and gamma
    /// in addition.
    pub(in crate::format) fn with_dots(&self, image: &'static str, kernel: String) -> Launch {
        let more = [Arg::Z, Arg::Wanted, Arg::Parts, Arg::W, Arg::Gamma];
        let args = self.args.iter().copied().chain(more).collect();
        Launch { image, kernel, args, ..self.clone() }
    }
}
