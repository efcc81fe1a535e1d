//! Layouts in files, for programs that link nothing of this library.
//!
//! [`Export`] names every array of a layout, with type, shape and meaning, as its format's module
//! describes them. It writes
//!
//! - an uncompressed `.npz` archive ([`Export::npz`]) with an array `NAME.npy` for each, and a member
//!   `layout.json` that describes them ([`Export::metadata`]);
//! - a CUDA program ([`Export::program`]) of one file, which nvcc builds alone: the kernels of the
//!   product, their launches for this matrix, a check against CSR on the host, and a timing. It reads
//!   the arrays from a file beside it ([`Export::program_data`]).
//!
//! `api/LAYOUTS.md` lists the arrays of every format. NumPy multiplies by a layout of `csr` so:
//!
//! ```python
//! import json, numpy
//!
//! file = numpy.load("layout.npz")
//! about = json.loads(file["layout.json"])
//! products = file["values"] * x[file["col_idx"]]
//! rows = numpy.repeat(numpy.arange(about["nrows"]), numpy.diff(file["row_ptr"].astype(int)))
//! y = numpy.bincount(rows, products, about["nrows"])
//! ```
//!
//! and by one of `hll` in slices of 32 rows with 32-bit columns:
//!
//! ```python
//! y = numpy.zeros(about["nrows"])
//! ptr = file["slice_ptr"].astype(int)
//! for s in range(len(ptr) - 1):
//!     columns, values = (file[k][ptr[s]:ptr[s + 1]].reshape(-1, 32) for k in ("col_idx", "values"))
//!     real = columns < about["ncols"]
//!     sums = (values * x[numpy.where(real, columns, 0)] * real).sum(axis=0)
//!     rows = numpy.arange(32 * s, min(32 * s + 32, about["nrows"]))
//!     y[file["row_order"][rows] if "row_order" in file else rows] = sums[:len(rows)]
//! ```
//!
//! In a permuted basis, `basis_order[new] = old` holds for rows and columns; x and y of a product are
//! permuted by it.

mod npz;
mod program;

use serde_json::{Value, json};

pub use crate::format::gpu::stored::{Element, ElementType, StoredArray, StoredNumber};

use crate::csr::CsrRef;
use crate::error::{Error, Result};
use crate::format::{CSR, Candidate, Layout, OnDevice, Target};
use crate::scalar::Scalar;

/// Identifies the form of the archive; another number follows a change that readers must know of.
const SCHEMA: &str = "ellect-layout-1";

/// A layout whose arrays are to be written.
///
/// ```
/// use ellect::analysis::Analysis;
/// use ellect::export::Export;
/// use ellect::format::Candidate;
/// use ellect::{Csr, Precision, Workload, device};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = Csr::from_triplets(2, 2, [(0, 0, 1.0), (0, 1, 2.0), (1, 1, 3.0)])?;
/// let h200 = device::find("h200")?;
/// let target = Workload::default().target(&h200, Precision::F64);
/// let coo: Candidate = "coo".parse()?;
/// let layout = coo.convert(&csr, &Analysis::of(&csr), &target)?;
/// let export = Export::new(&coo, layout.as_ref(), &csr, &target)?;
///
/// let names: Vec<_> = export.arrays().iter().map(|array| array.name.as_ref()).collect();
/// assert_eq!(names, ["row_idx", "col_idx", "values"]);
/// let mut file = std::io::Cursor::new(Vec::new());
/// export.npz(&mut file)?;
/// # Ok(())
/// # }
/// ```
pub struct Export<'a, T: Scalar> {
    candidate: &'a Candidate,
    csr: CsrRef<'a, T>,
    target: &'a Target<'a>,
    /// Arrays, numbers and launches; the order of a permuted basis is the last array.
    described: OnDevice<'a>,
    order: &'a [u32],
}

impl<'a, T: Scalar> Export<'a, T> {
    /// Describes the layout of `csr` that the candidate was converted to for this target.
    ///
    /// # Errors
    /// [`Error::Argument`] if a library of the device's vendor multiplies, which has no kernel and no
    /// arrays that this library knows.
    pub fn new(
        candidate: &'a Candidate,
        layout: &'a dyn Layout<T>,
        csr: impl Into<CsrRef<'a, T>>,
        target: &'a Target<'a>,
    ) -> Result<Self> {
        let unknown = || {
            Error::argument(format!(
                "{candidate} multiplies by a library of the device's vendor, so there are no kernel \
                 and no arrays of it to write; name another candidate, {CSR} for the arrays of CSR, or \
                 one that `ellect recommend` ranks next"
            ))
        };
        let mut described = layout.on_device().ok_or_else(unknown)?;
        if described.vendor.is_some() {
            return Err(unknown());
        }
        let order = layout.order().unwrap_or_default();
        if let Some(order) = layout.order() {
            let meaning = "row and column of the matrix that each one of the permuted basis is";
            described.arrays.push(StoredArray::of("basis_order", meaning, order));
        }
        Ok(Export { candidate, csr: csr.into(), target, described, order })
    }

    /// Returns the arrays, in the order in which kernels take them.
    pub fn arrays(&self) -> &[StoredArray<'a>] {
        &self.described.arrays
    }

    /// Returns the numbers without which the arrays cannot be read.
    pub fn numbers(&self) -> &[StoredNumber] {
        &self.described.numbers
    }

    /// Returns the description of the layout: candidate, precision, dimensions, numbers, arrays.
    ///
    /// The keys are `schema`, `candidate`, `format`, `version` (of the format), `parameters`,
    /// `precision`, `basis`, `device`, `nrows`, `ncols`, `nnz`, `numbers` (an object) and `arrays` (a
    /// list of name, dtype, shape and meaning).
    pub fn metadata(&self) -> Value {
        let arrays = self.arrays().iter().map(|array| {
            json!({
                "name": array.name,
                "dtype": array.element.numpy(),
                "shape": array.shape(),
                "meaning": array.meaning,
            })
        });
        let numbers = self.numbers().iter();
        let numbers = numbers.map(|number| (number.name.to_string(), Value::from(number.value)));
        let Export { candidate, csr, target, .. } = self;
        json!({
            "schema": SCHEMA,
            "candidate": candidate,
            "format": candidate.format.name,
            "version": candidate.format.host_version,
            "parameters": candidate.params,
            "precision": T::PRECISION,
            "basis": target.basis.name(),
            "device": target.device.name,
            "nrows": csr.nrows(),
            "ncols": csr.ncols(),
            "nnz": csr.nnz(),
            "numbers": numbers.collect::<serde_json::Map<_, _>>(),
            "arrays": arrays.collect::<Vec<_>>(),
        })
    }
}
