//! Matrices whose arrays stay in the bytes that hold them.

use super::{Found, Options, zip};
use crate::csr::{Csr, CsrRef, Pattern};
use crate::error::Result;
use crate::scalar::Scalar;

/// A matrix that was read from bytes, and may have its columns and values there.
///
/// [`Options::in_place`] creates it.
///
/// ```
/// use ellect::read::Options;
///
/// # fn main() -> ellect::Result<()> {
/// let mut text = *b"%%MatrixMarket matrix coordinate real general\n3 3 1\n3 1 2.5\n";
/// let placed = Options::default().in_place::<f64>(&mut text)?;
/// assert_eq!(placed.csr().row(2), (&[0][..], &[2.5][..]));
/// assert!(placed.notes().is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Placed<'a, T> {
    arrays: Arrays<'a, T>,
    notes: Vec<String>,
}

#[derive(Debug)]
enum Arrays<'a, T> {
    Copied(Csr<T>),
    InPlace { nrows: usize, ncols: usize, row_ptr: Vec<usize>, columns: &'a [u32], values: &'a [T] },
}

impl<T: Scalar> Placed<'_, T> {
    /// Returns the matrix.
    pub fn csr(&self) -> CsrRef<'_, T> {
        match &self.arrays {
            Arrays::Copied(csr) => csr.as_ref(),
            Arrays::InPlace { nrows, ncols, row_ptr, columns, values } => {
                CsrRef::of(Pattern::of(*nrows, *ncols, row_ptr, columns), values)
            }
        }
    }

    /// Returns the notes of the reader; see [`Found::notes`].
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns true if columns and values were not copied.
    pub fn is_in_place(&self) -> bool {
        matches!(self.arrays, Arrays::InPlace { .. })
    }
}

impl<T: Scalar> From<Found<T>> for Placed<'_, T> {
    fn from(found: Found<T>) -> Self {
        Placed { arrays: Arrays::Copied(found.csr), notes: found.notes }
    }
}

impl Options {
    /// Reads the matrix in `bytes`, which hold the content of a file, without copying its entries
    /// where that is possible: in an archive that SciPy's `save_npz` wrote with `compressed=False`,
    /// of a csr matrix with sorted columns, 32-bit indices and values of type `T`.
    ///
    /// The bytes are changed then: arrays are moved to addresses that fit their types. Otherwise
    /// they stay as they are, and the matrix is read as by [`Options::bytes`].
    ///
    /// ```
    /// use ellect::read::Options;
    ///
    /// # fn main() -> ellect::Result<()> {
    /// let mut text = *b"%%MatrixMarket matrix coordinate real general\n2 2 1\n1 2 5.0\n";
    /// let placed = Options::default().in_place::<f64>(&mut text)?;
    /// assert_eq!((placed.csr().values(), placed.is_in_place()), (&[5.0][..], false));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Options::bytes`].
    pub fn in_place<'a, T: Scalar>(&self, bytes: &'a mut [u8]) -> Result<Placed<'a, T>> {
        let Some(places) = zip::place::<T>(bytes, &self.limits) else {
            return self.bytes(bytes).map(Placed::from);
        };
        let bytes: &'a [u8] = bytes;
        let [columns, values] = [places.columns, places.values].map(|range| &bytes[range]);
        let zip::Places { nrows, ncols, row_ptr, .. } = places;
        let (columns, values) = (bytemuck::cast_slice(columns), bytemuck::cast_slice(values));
        let arrays = Arrays::InPlace { nrows, ncols, row_ptr, columns, values };
        Ok(Placed { arrays, notes: Vec::new() })
    }
}
