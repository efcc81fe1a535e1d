//! Conversion on a GPU of values that layouts store in f32.

use super::{lost_in, not_wide};
#[cfg(feature = "cuda")]
use crate::error::Error;
use crate::format::gpu::convert::Check;
use crate::format::gpu::launch::NULL;
use crate::format::{Arg, GpuConverter, Launch, Refusal, Stop, StoredValues, Target};
use crate::scalar::Precision;

/// The image of the kernels.
pub(in crate::format) const NARROW: &str = "convert_narrow";

/// The type of values in the names of kernels that read f64 and store f32.
pub(in crate::format) const NARROWED: &str = "narrowed";

/// A search for values that f32 does not hold, which a GPU has begun.
pub(in crate::format) struct Search {
    found: Arg,
    allowed: StoredValues,
}

impl Search {
    /// Begins to search the values of the matrix.
    ///
    /// # Errors
    /// [`Stop::Refused`] for a matrix of f32.
    pub fn begin(converter: &mut dyn GpuConverter, target: &Target<'_>) -> Result<Self, Stop> {
        if target.precision == Precision::F32 {
            return Err(not_wide().into());
        }
        let found = converter.number()?;
        let search = Search { found, allowed: target.stored };
        let launch = search.launch(converter, [NULL, found]);
        converter.launch(&launch)?;
        Ok(search)
    }

    /// Waits for the result, unless the converter has waited since.
    ///
    /// # Errors
    /// [`Stop::Refused`] with the first row that has a value that is not held.
    pub fn end(&self, converter: &mut dyn GpuConverter) -> Result<(), Stop> {
        match converter.read(self.found)? {
            0 => Ok(()),
            below => Err(lost_in((u32::MAX - below) as usize, self.allowed).into()),
        }
    }

    /// The check of new values, with an array for the first row whose values are not held.
    pub fn check(&self, converter: &mut dyn GpuConverter) -> Result<Check, Stop> {
        let row = converter.array(4)?;
        let reason: fn(u32) -> Refusal = match self.allowed {
            StoredValues::Exact => |row| lost_in(row as usize, StoredValues::Exact),
            StoredValues::F32 => |row| lost_in(row as usize, StoredValues::F32),
        };
        Ok(Check { launch: self.launch(converter, [row, NULL]), row, reason })
    }

    fn launch(&self, converter: &dyn GpuConverter, out: [Arg; 2]) -> Launch {
        let matrix = converter.matrix();
        let nnz = matrix.nnz as u64;
        let rounded = u32::from(self.allowed == StoredValues::F32);
        let sizes = [Arg::U32(matrix.nrows as u32), Arg::U64(nnz), Arg::U32(rounded)];
        let args = sizes.into_iter().chain([Arg::RowPtr, Arg::Values]).chain(out).collect();
        let kernel = format!("check_values_{}", matrix.offset_name());
        launch(kernel, nnz.div_ceil(8).clamp(1, 1 << 18), args)
    }
}

/// Tells whether f32 holds the values of a matrix that a GPU holds; waits for the GPU.
///
/// # Errors
/// [`Error::Device`] if the device fails.
#[cfg(feature = "cuda")]
pub(crate) fn holds(converter: &mut dyn GpuConverter, target: &Target<'_>) -> Result<bool, Error> {
    let searched = Search::begin(converter, target).and_then(|search| search.end(converter));
    match searched {
        Ok(()) => Ok(true),
        Err(Stop::Failed(error)) => Err(error),
        Err(Stop::Refused(_) | Stop::OnHost) => Ok(false),
    }
}

/// A launch of the image [`NARROW`] in blocks of 256 threads.
pub(in crate::format) fn launch(kernel: String, threads: u64, args: Vec<Arg>) -> Launch {
    Launch::over(NARROW, kernel, threads, 256, args)
}
