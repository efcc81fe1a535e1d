//! Writing matrices to files.

use std::io::{self, BufWriter, Write};

use crate::csr::CsrRef;
use crate::error::{Error, Result};
use crate::scalar::Scalar;

/// Writes `csr` as Matrix Market text: coordinate, real, general, with entries in row order.
///
/// Each value has the fewest digits that read back as the same value of type `T`.
///
/// # Errors
/// [`Error::Argument`] if a value is not finite, because [`crate::read`] would refuse it;
/// [`Error::Io`].
pub fn matrix_market<'a, T: Scalar>(csr: impl Into<CsrRef<'a, T>>, sink: impl Write) -> Result<()> {
    let csr = csr.into();
    if let Some(k) = csr.values().iter().position(|value| !value.to_f64().is_finite()) {
        return Err(Error::argument(format!(
            "values[{k}] is {}; a Matrix Market file holds finite values",
            csr.values()[k]
        )));
    }
    let mut sink = BufWriter::new(sink);
    entries(csr, &mut sink)
        .and_then(|()| sink.flush())
        .map_err(|source| Error::Io { what: "writing the matrix".into(), source })
}

fn entries<T: Scalar>(csr: CsrRef<'_, T>, sink: &mut impl Write) -> io::Result<()> {
    writeln!(sink, "%%MatrixMarket matrix coordinate real general")?;
    writeln!(sink, "{} {} {}", csr.nrows(), csr.ncols(), csr.nnz())?;
    for row in 0..csr.nrows() {
        let (columns, values) = csr.row(row);
        for (column, value) in columns.iter().zip(values) {
            // Debug switches to exponents where Display would write hundreds of digits.
            writeln!(sink, "{} {} {value:?}", row + 1, u64::from(*column) + 1)?;
        }
    }
    Ok(())
}
