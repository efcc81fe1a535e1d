//! Conversion on a GPU of values that layouts store in fewer bits.

#[cfg(feature = "cuda")]
use half::{bf16, f16};

use super::{Narrow, lost_in, may_round, not_wide};
#[cfg(feature = "cuda")]
use crate::error::Error;
use crate::format::gpu::convert::Check;
use crate::format::gpu::launch::NULL;
use crate::format::{Arg, GpuConverter, Launch, Refusal, Stop, StoredValues, Target};

/// A search for values that the stored type does not hold, which a GPU has begun.
pub(in crate::format) struct Search {
    found: Arg,
    rounded: bool,
    stores: StoredValues,
    /// Bytes of a stored value.
    bytes: u64,
    /// The refusal of a matrix with a value in this row that is not held.
    reason: fn(u32) -> Refusal,
}

impl Search {
    /// Begins to search the values of the matrix.
    ///
    /// # Errors
    /// [`Stop::Refused`] for a matrix of another precision than `N` stores.
    pub fn begin<N: Narrow>(
        converter: &mut dyn GpuConverter,
        target: &Target<'_>,
    ) -> Result<Self, Stop> {
        if target.precision != N::OF {
            return Err(not_wide::<N>().into());
        }
        let (found, rounded) = (converter.number()?, may_round::<N>(target));
        let reason: fn(u32) -> Refusal = match rounded {
            true => |row| lost_in::<N>(row as usize, true),
            false => |row| lost_in::<N>(row as usize, false),
        };
        let bytes = size_of::<N>() as u64;
        let search = Search { found, rounded, stores: N::STORES, bytes, reason };
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
            below => Err((self.reason)(u32::MAX - below).into()),
        }
    }

    /// The check of new values, with an array for the first row whose values are not held.
    pub fn check(&self, converter: &mut dyn GpuConverter) -> Result<Check, Stop> {
        let row = converter.array(4)?;
        Ok(Check { launch: self.launch(converter, [row, NULL]), row, reason: self.reason })
    }

    /// Bytes of a stored value.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// One of two images: that of kernels that store f32, and that of kernels that store 16 bits.
    pub fn image_of(&self, [of_32, of_16]: [&'static str; 2]) -> &'static str {
        if self.stores == StoredValues::F32 { of_32 } else { of_16 }
    }

    /// The image of kernels for values in any layout.
    pub fn image(&self) -> &'static str {
        self.image_of(["convert_narrow", "convert_half"])
    }

    /// The type of values in the names of kernels.
    pub fn type_name(&self) -> &'static str {
        if self.stores == StoredValues::F32 { "narrowed" } else { self.stores.name() }
    }

    /// The launch of a kernel of [`Search::image`] in blocks of 256 threads.
    pub fn step(&self, stem: &str, threads: u64, args: Vec<Arg>) -> Launch {
        let kernel = match self.stores {
            StoredValues::F32 => stem.to_string(),
            stores => format!("{stem}_{stores}"),
        };
        Launch::over(self.image(), kernel, threads, 256, args)
    }

    fn launch(&self, converter: &dyn GpuConverter, out: [Arg; 2]) -> Launch {
        let matrix = converter.matrix();
        let nnz = matrix.nnz as u64;
        let sizes = [matrix.nrows as u32, u32::from(self.rounded)].map(Arg::U32);
        let [nrows, rounded] = sizes;
        let of = [nrows, Arg::U64(nnz), rounded, Arg::RowPtr, Arg::Values];
        let args = of.into_iter().chain(out).collect();
        let stem = format!("check_values_{}", matrix.offset_name());
        self.step(&stem, nnz.div_ceil(8).clamp(1, 1 << 18), args)
    }
}

/// Tells whether the storage in fewer bits that the target may use holds the values of a matrix that a GPU
/// holds; false if it may use none. Waits for the GPU.
///
/// # Errors
/// [`Error::Device`] if the device fails.
#[cfg(feature = "cuda")]
pub(crate) fn holds(converter: &mut dyn GpuConverter, target: &Target<'_>) -> Result<bool, Error> {
    let search = match target.narrower() {
        Some(StoredValues::F32) => Search::begin::<f32>(converter, target),
        Some(StoredValues::F16) => Search::begin::<f16>(converter, target),
        Some(StoredValues::BF16) => Search::begin::<bf16>(converter, target),
        Some(StoredValues::Exact) | None => return Ok(false),
    };
    match search.and_then(|search| search.end(converter)) {
        Ok(()) => Ok(true),
        Err(Stop::Failed(error)) => Err(error),
        Err(Stop::Refused(_) | Stop::OnHost) => Ok(false),
    }
}
