//! Formats: the traits that a format implements, and its row in a table of formats.

use std::any::Any;
use std::convert::Infallible;

use super::{
    GpuConverter, GpuLayout, Launch, OnDevice, Param, Params, Refusal, Role, Several, Stop,
    StoredValues, Target, Work,
};
use crate::analysis::Analysis;
use crate::csr::{Csr, CsrRef};
use crate::dense::{DenseMut, DenseRef, by_columns};
use crate::scalar::{Precision, Scalar};

/// A matrix held in a format's arrays, ready to multiply on the host.
///
/// ```
/// use ellect::analysis::Analysis;
/// use ellect::format::{Candidate, Layout};
/// use ellect::{Csr, Precision, Workload, device};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = Csr::from_triplets(2, 2, [(0, 0, 1.0), (0, 1, 2.0), (1, 1, 3.0)])?;
/// let cpu = device::find("cpu")?;
/// let target = Workload::default().target(&cpu, Precision::F64);
/// let ell: Candidate = "ell".parse()?;
/// let layout: Box<dyn Layout<f64>> = ell.convert(&csr, &Analysis::of(&csr), &target)?;
/// assert_eq!(layout.to_csr(), csr);
/// # Ok(())
/// # }
/// ```
pub trait Layout<T: Scalar>: Send + Sync {
    /// Computes y = alpha A x + beta y on the host, with rayon's current threads.
    ///
    /// If `beta` is 0, y is written and never read. In a permuted basis, x and y are permuted by
    /// [`Layout::order`].
    ///
    /// # Panics
    /// If `x` does not have `ncols` or `y` not `nrows` elements; [`crate::operator`] checks it
    /// first.
    fn apply(&self, alpha: T, x: &[T], beta: T, y: &mut [T]);

    /// Computes Y = alpha A X + beta Y like [`Layout::apply`], for one vector in each column of X
    /// and Y, in any order and with any leading dimensions.
    ///
    /// By default each column is one product, and row-major columns are copied in blocks. Formats
    /// whose [`Storage::VECTORS_AT_ONCE`] is 8 read the matrix once for a block of 8, 4, 2 or 1
    /// columns; they sum each column in the order in which entries are stored, so that its result
    /// does not depend on the number of columns.
    ///
    /// # Panics
    /// If `x` does not have `ncols` or `y` not `nrows` rows, or `x` fewer columns than `y`;
    /// [`crate::operator`] checks it first.
    fn apply_many(&self, alpha: T, x: DenseRef<'_, T>, beta: T, y: DenseMut<'_, T>) {
        let Ok(()) = by_columns(x, y, beta != T::ZERO, &mut |x, y| {
            self.apply(alpha, x, beta, y);
            Ok::<(), Infallible>(())
        });
    }

    /// Returns the number of bytes of all arrays that the layout holds, without vectors and scratch
    /// memory.
    fn bytes(&self) -> u64;

    /// Replaces the values; `values` are in the order of the converted CSR matrix.
    ///
    /// # Panics
    /// If `values` does not have `nnz` elements; [`crate::operator`] checks it first.
    fn set_values(&mut self, values: &[T]);

    /// Tells whether [`Layout::check_values`] may refuse new values.
    fn limits_values(&self) -> bool {
        false
    }

    /// Checks that the layout can hold these values, in the order of the converted CSR matrix.
    ///
    /// # Errors
    /// [`Refusal`] if the layout relies on a property of the converted values that these values do
    /// not have.
    fn check_values(&self, values: &[T]) -> Result<(), Refusal> {
        let _ = values;
        Ok(())
    }

    /// Returns the CSR matrix that was converted, with the same pattern and values.
    fn to_csr(&self) -> Csr<T>;

    /// Returns the symmetric permutation of a permuted basis, `order[new] = old`; `None` if vectors
    /// are in the original basis.
    fn order(&self) -> Option<&[u32]> {
        None
    }

    /// Returns the arrays that a GPU holds of this layout and the kernels it launches for a
    /// product; `None` if the layout has no GPU kernel.
    fn on_device(&self) -> Option<OnDevice<'_>> {
        None
    }
}

/// Numbers of rows and entries of a matrix, and the number of entries of its longest row.
///
/// ```
/// use ellect::Precision;
/// use ellect::format::{Candidate, Extent};
///
/// # fn main() -> ellect::Result<()> {
/// let Candidate { format, params } = "csr".parse()?;
/// let image = |longest| {
///     let extent = Extent { nrows: 10_000, nnz: 50_000, longest };
///     format.image(&params, extent, Precision::F64)
/// };
/// assert_eq!([7, 7_000].map(image), [Some("csr"), Some("csr_long")]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Rows.
    pub nrows: usize,
    /// Stored entries.
    pub nnz: usize,
    /// Entries of the longest row.
    pub longest: usize,
}

/// A storage format, implemented by a unit struct in the format's module.
///
/// ```
/// use ellect::format::FORMATS;
///
/// // Each format implements `Storage`; the table holds it as a `Format`.
/// assert!(FORMATS.iter().any(|format| format.name == "csr"));
/// ```
pub trait Storage {
    /// Name in lists, candidates and records: lower case, the field's standard term.
    const NAME: &'static str;
    /// Earlier names, oldest first: records, models and users may still contain them. They are read
    /// as [`Storage::NAME`] and never written.
    const ALIASES: &'static [&'static str] = &[];
    /// Full name.
    const TITLE: &'static str;
    /// Publication: authors, title, year, section.
    const SOURCE: &'static str;
    /// Matrices that the format is good for and bad for, in one sentence.
    const SUITS: &'static str;
    /// Parameters of the format.
    const PARAMS: &'static [Param] = &[];
    /// True if the format applies only to matrices with certain values, few distinct ones for
    /// instance, so that a layout may refuse new values.
    const BY_VALUES: bool = false;
    /// The format that this one is with values in fewer bits ([`Storage::STORES`]), if it is such a format.
    /// Parameters have the names of that format's. Estimates use that format's kernel figures, and
    /// predictions of a model that does not know this format use that format's ratio of prediction
    /// to estimate.
    const NARROWS: Option<&'static str> = None;
    /// Type in which the format stores values of a wider type; [`StoredValues::Exact`] if it stores them
    /// as they are.
    const STORES: StoredValues = StoredValues::Exact;
    /// The part of what its bytes let expect that a product saves over the format that stands in for it
    /// ([`Storage::NARROWS`], [`Storage::FIGURES_OF`]). By default that of real patterns with a column
    /// for each entry, whose loads of x bound them, too: their median time is 0.88 of that in f64, and
    /// their bytes 0.7 (tests/results/narrow.md).
    const SAVES: f64 = 0.4;
    /// The candidate of another format, up to the parameters that both formats have, whose kernel
    /// figures estimates of this format use: `bhll:b=2` for instance. Predictions of a model that does
    /// not know this format use that candidate's, as for [`Storage::NARROWS`].
    const FIGURES_OF: Option<&'static str> = None;
    /// Version of the conversion and of the product on a host; records of another version are
    /// stale. Raise it if the arrays change (`tests/layouts.rs` fails until then), or if the
    /// product is rewritten and may take another time.
    const HOST_VERSION: u32 = 1;
    /// Role of the format in a choice.
    const ROLE: Role = Role::Converted;
    /// True if the default variant can be chosen without an analysis of the matrix, because its
    /// conversion takes about as long as one product.
    const IMMEDIATE: bool = false;
    /// Number of vectors for which a product with several vectors reads the matrix once.
    const VECTORS_AT_ONCE: usize = 1;
    /// As [`Storage::VECTORS_AT_ONCE`], on a GPU, unless [`Storage::vectors_at_once_on_gpu`] tells
    /// variants apart.
    const VECTORS_AT_ONCE_ON_GPU: usize = 1;
    /// Other formats whose kernels this one also launches on a GPU.
    const KERNELS_OF: &'static [&'static str] = &[];

    /// The arrays of this format.
    type Layout<T: Scalar>: Layout<T> + 'static;

    /// Computes the work of one product and of the conversion, without converting.
    ///
    /// # Errors
    /// [`Refusal`] if the variant does not apply to the matrix or the target.
    fn work(analysis: &Analysis<'_>, params: &Params, target: &Target<'_>)
    -> Result<Work, Refusal>;

    /// Converts a matrix; `analysis` is that of `csr`. Called only if [`Storage::work`] did not
    /// refuse.
    ///
    /// # Errors
    /// [`Refusal`] if only the conversion itself could find out that the variant does not apply.
    fn convert<T: Scalar>(
        csr: CsrRef<'_, T>,
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<Self::Layout<T>, Refusal>;

    /// Returns the number of vectors whose product with a variant is estimated as one pass over the
    /// matrix on a GPU.
    fn vectors_at_once_on_gpu(params: &Params) -> usize {
        let _ = params;
        Self::VECTORS_AT_ONCE_ON_GPU
    }

    /// Returns the image whose kernel multiplies a matrix of this extent on a GPU. `None` if the
    /// variant's image does not depend on the matrix. A measurement by another image is stale.
    fn image(params: &Params, extent: Extent, precision: Precision) -> Option<&'static str> {
        let _ = (params, extent, precision);
        None
    }

    /// Returns the launch that multiplies several vectors in place of `one`, a launch of the product
    /// with one vector. `None` if the format or this variant has no such kernel.
    fn several(one: &Launch, several: Several) -> Option<Launch> {
        let _ = (one, several);
        None
    }

    /// Returns the launch that multiplies as `one` does and also computes dot products of y and
    /// w = w + gamma y, whose arguments end with z, what is wanted, partial sums, w and gamma. `None` if
    /// the format or this variant has no such kernel.
    fn with_dots(one: &Launch) -> Option<Launch> {
        let _ = one;
        None
    }

    /// Converts a matrix on a GPU, with values of the target's precision.
    ///
    /// # Errors
    /// [`Stop::Refused`] if the variant does not apply to the matrix, [`Stop::Failed`] if the
    /// device fails, [`Stop::OnHost`] if this format or variant is converted on the host.
    fn build(
        converter: &mut dyn GpuConverter,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<GpuLayout, Stop> {
        let _ = (converter, params, target);
        Err(Stop::OnHost)
    }
}

/// A storage format as plain data and functions: one row of a table of formats.
///
/// [`Format::of`] fills a row from the format's [`Storage`]. The rows that ship are in
/// [`FORMATS`](super::FORMATS).
///
/// ```
/// use ellect::format::{Candidate, Format, hll::HllFormat};
///
/// # fn main() -> ellect::Result<()> {
/// static TABLE: &[Format] = &[Format::of::<HllFormat>()];
/// let candidate = Candidate::parse("hll:hack=64", TABLE)?;
/// assert_eq!(candidate.to_string(), "hll:hack=64,sort=none,tpr=1,col=32");
/// assert_eq!(candidate.format.title, TABLE[0].title);
/// # Ok(())
/// # }
/// ```
///
/// ```
/// use ellect::format::find;
///
/// # fn main() -> ellect::Result<()> {
/// let hll = find("hll")?;
/// println!("{}: {} ({})", hll.title, hll.suits, hll.source);
/// assert!(hll.params.iter().any(|param| param.name == "hack"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Format {
    /// Name in lists, candidates and records: [`Storage::NAME`].
    pub name: &'static str,
    /// Earlier names, oldest first: [`Storage::ALIASES`].
    pub aliases: &'static [&'static str],
    /// Full name: [`Storage::TITLE`].
    pub title: &'static str,
    /// Publication with its year: [`Storage::SOURCE`].
    pub source: &'static str,
    /// Matrices that the format is good for and bad for: [`Storage::SUITS`].
    pub suits: &'static str,
    /// Parameters of the format: [`Storage::PARAMS`].
    pub params: &'static [Param],
    /// True if the format applies only to matrices with certain values: [`Storage::BY_VALUES`].
    pub by_values: bool,
    /// The format that this one is with values in fewer bits: [`Storage::NARROWS`].
    pub narrows: Option<&'static str>,
    /// Type in which values of a wider type are stored: [`Storage::STORES`].
    pub stores: StoredValues,
    /// The part of the saved bytes that a product saves of its time: [`Storage::SAVES`].
    pub saves: f64,
    /// The candidate whose kernel figures estimates use: [`Storage::FIGURES_OF`].
    pub figures_of: Option<&'static str>,
    /// Version of the conversion and of the product on a host: [`Storage::HOST_VERSION`].
    pub host_version: u32,
    /// Role of the format in a choice: [`Storage::ROLE`].
    pub role: Role,
    /// True if the default variant can be chosen without an analysis: [`Storage::IMMEDIATE`].
    pub immediate: bool,
    /// Number of vectors for which the matrix is read once: [`Storage::VECTORS_AT_ONCE`].
    pub vectors_at_once: usize,
    /// Other formats whose kernels this one also launches: [`Storage::KERNELS_OF`].
    pub kernels_of: &'static [&'static str],
    image: fn(&Params, Extent, Precision) -> Option<&'static str>,
    vectors_at_once_on_gpu: fn(&Params) -> usize,
    work: fn(&Analysis<'_>, &Params, &Target<'_>) -> Result<Work, Refusal>,
    convert_f32: Convert<f32>,
    convert_f64: Convert<f64>,
    build: fn(&mut dyn GpuConverter, &Params, &Target<'_>) -> Result<GpuLayout, Stop>,
    several: fn(&Launch, Several) -> Option<Launch>,
    with_dots: fn(&Launch) -> Option<Launch>,
}

/// A function that converts matrices with values of one type.
type Convert<T> =
    fn(CsrRef<'_, T>, &Analysis<'_>, &Params, &Target<'_>) -> Result<Box<dyn Layout<T>>, Refusal>;

impl Format {
    /// Returns the row of a format.
    pub const fn of<S: Storage>() -> Format {
        Format {
            name: S::NAME,
            aliases: S::ALIASES,
            title: S::TITLE,
            source: S::SOURCE,
            suits: S::SUITS,
            params: S::PARAMS,
            by_values: S::BY_VALUES,
            narrows: S::NARROWS,
            stores: S::STORES,
            saves: S::SAVES,
            figures_of: S::FIGURES_OF,
            host_version: S::HOST_VERSION,
            role: S::ROLE,
            immediate: S::IMMEDIATE,
            vectors_at_once: S::VECTORS_AT_ONCE,
            vectors_at_once_on_gpu: S::vectors_at_once_on_gpu,
            kernels_of: S::KERNELS_OF,
            image: S::image,
            work: S::work,
            convert_f32: convert_boxed::<S, f32>,
            convert_f64: convert_boxed::<S, f64>,
            build: S::build,
            several: S::several,
            with_dots: S::with_dots,
        }
    }

    /// Tells whether this is the format's name or one of its aliases.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }

    /// Computes the work of one product and of the conversion: [`Storage::work`].
    ///
    /// # Errors
    /// As [`Storage::work`].
    pub fn work(
        &self,
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<Work, Refusal> {
        (self.work)(analysis, params, target)
    }

    /// Returns the number of vectors whose product with a variant is estimated as one pass over the
    /// matrix on a GPU: [`Storage::vectors_at_once_on_gpu`].
    pub fn vectors_at_once_on_gpu(&self, params: &Params) -> usize {
        (self.vectors_at_once_on_gpu)(params)
    }

    /// Returns the image that multiplies such a matrix on a GPU: [`Storage::image`].
    pub fn image(
        &self,
        params: &Params,
        extent: Extent,
        precision: Precision,
    ) -> Option<&'static str> {
        (self.image)(params, extent, precision)
    }

    /// Returns the launch for several vectors in place of one for one vector:
    /// [`Storage::several`].
    pub fn several(&self, one: &Launch, several: Several) -> Option<Launch> {
        (self.several)(one, several)
    }

    /// Returns the launch that also computes dot products of y and w = w + gamma y:
    /// [`Storage::with_dots`].
    pub fn with_dots(&self, one: &Launch) -> Option<Launch> {
        (self.with_dots)(one)
    }

    /// Converts a matrix on the host: [`Storage::convert`].
    ///
    /// # Errors
    /// As [`Storage::convert`].
    pub fn convert<T: Scalar>(
        &self,
        csr: CsrRef<'_, T>,
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<Box<dyn Layout<T>>, Refusal> {
        let layout: Box<dyn Any> = match T::PRECISION {
            Precision::F32 => Box::new((self.convert_f32)(csr.cast(), analysis, params, target)?),
            Precision::F64 => Box::new((self.convert_f64)(csr.cast(), analysis, params, target)?),
        };
        let layout = layout.downcast::<Box<dyn Layout<T>>>();
        Ok(*layout.expect("the precision of T names its type"))
    }

    /// Converts a matrix on a GPU: [`Storage::build`].
    ///
    /// # Errors
    /// As [`Storage::build`].
    pub fn build(
        &self,
        converter: &mut dyn GpuConverter,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<GpuLayout, Stop> {
        (self.build)(converter, params, target)
    }
}

/// Converts a matrix to the layout of `S`, behind a pointer that does not name `S`.
fn convert_boxed<S: Storage, T: Scalar>(
    csr: CsrRef<'_, T>,
    analysis: &Analysis<'_>,
    params: &Params,
    target: &Target<'_>,
) -> Result<Box<dyn Layout<T>>, Refusal> {
    Ok(Box::new(S::convert(csr, analysis, params, target)?))
}
