//! The sampled features: what the row lengths and the columns of a few entries tell, in the time of
//! a few products.

use super::counts::over;
use super::{FEATURES, Features};
use crate::analysis::{Analysis, EachPrecision, Histogram};
use crate::scalar::Precision;

/// Names of the features that [`Features::sampled`] adds to those of the size.
pub(crate) const SAMPLED: [&str; 8] = [
    "row_nnz_sigma",
    "row_nnz_cv",
    "row_nnz_min",
    "row_nnz_max",
    "row_nnz_range",
    "empty_rows",
    "x_sectors_f64",
    "x_sectors_f32",
];

/// The counts that the sampled features are computed from.
#[derive(Clone, Debug)]
pub(crate) struct SampleCounts {
    /// Numbers of rows, columns and nonzeros.
    pub size: [usize; 3],
    /// Statistics of all row lengths.
    pub rows: RowCounts,
    /// Sectors of x per sampled entry: see [`Analysis::x_sectors_at_sight`].
    pub sectors: EachPrecision,
}

/// Statistics of row lengths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RowCounts {
    /// Entries of the shortest row.
    pub shortest: u64,
    /// Entries of the longest row.
    pub longest: u64,
    /// Number of rows without entries.
    pub empty: u64,
    /// Sum of the squares of all row lengths.
    pub squares: f64,
}

impl RowCounts {
    /// Counts over a histogram of row lengths.
    fn of(lengths: &Histogram) -> Self {
        // Sums of whole numbers below 2^53 do not depend on their order.
        let square = |(length, times): (u32, u64)| f64::from(length).powi(2) * times as f64;
        RowCounts {
            shortest: u64::from(lengths.at(0)),
            longest: u64::from(lengths.max()),
            empty: lengths.iter().find(|(length, _)| *length == 0).map_or(0, |(_, times)| times),
            squares: lengths.iter().map(square).sum(),
        }
    }
}

impl SampleCounts {
    fn of(analysis: &Analysis<'_>) -> Self {
        let pattern = analysis.pattern();
        let sectors = [Precision::F32, Precision::F64].map(|p| analysis.x_sectors_at_sight(p));
        SampleCounts {
            size: [pattern.nrows(), pattern.ncols(), pattern.nnz()],
            rows: RowCounts::of(analysis.row_lengths()),
            sectors: EachPrecision::new(sectors),
        }
    }
}

impl Features {
    /// Computes the features that the row lengths and a few entries tell: those of the size, the
    /// shortest and longest row, the spread of row lengths, the number of empty rows, and the
    /// sectors of x per nonzero, estimated from at most 16 warps of rows. Reads the row pointers
    /// once.
    ///
    /// ```
    /// use ellect::Csr;
    /// use ellect::analysis::Analysis;
    /// use ellect::features::Features;
    ///
    /// # fn main() -> ellect::Result<()> {
    /// let csr = Csr::from_triplets(2, 3, [(0, 0, 1.0), (0, 2, 2.0), (1, 1, 3.0)])?;
    /// let features = Features::sampled(&Analysis::of(&csr));
    /// assert_eq!(features.get("row_nnz_max"), Some(2.0));
    /// assert_eq!(features.get("n_diagonals"), None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn sampled(analysis: &Analysis<'_>) -> Self {
        Features::from(&SampleCounts::of(analysis))
    }
}

impl From<&SampleCounts> for Features {
    fn from(counts: &SampleCounts) -> Self {
        let SampleCounts { size, rows, sectors } = counts;
        let [nrows, _, nnz] = size.map(|n| n as f64);
        let mean = over(nnz, nrows);
        let sigma = (over(rows.squares, nrows) - mean * mean).max(0.0).sqrt();
        let shortest = rows.shortest.min(rows.longest) as f64;
        let longest = rows.longest as f64;
        let values = [
            sigma,
            over(sigma, mean),
            shortest,
            longest,
            longest - shortest,
            rows.empty as f64,
            sectors.of(Precision::F64),
            sectors.of(Precision::F32),
        ];
        let found = |name: &str| {
            SAMPLED.iter().zip(values).find_map(|(own, value)| (*own == name).then_some(value))
        };
        let mut features = Features::at_size(*size);
        let more = FEATURES.iter().filter_map(|feature| Some((feature, found(feature.name)?)));
        features.0.extend(more);
        features
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csr::Csr;
    use crate::generate;

    #[test]
    fn sampled_features_are_near_the_counted_ones() {
        for class in ["stencil5", "power_law", "circuit", "uniform"] {
            let csr: Csr<f64> = generate::by_name(class, 3000, 1).expect("a class");
            let analysis = Analysis::of(&csr);
            let (sampled, counted) = (Features::sampled(&analysis), Features::of(&analysis));
            assert!(sampled.iter().count() > Features::of_size(&analysis).iter().count());
            for (feature, value) in sampled.iter() {
                let exact = counted.get(feature.name).expect("a cheap feature");
                // A sample of entries estimates the sectors; the rest is exact.
                let off = if feature.name.starts_with("x_sectors") { 0.5 } else { 1e-9 };
                assert!(
                    (value - exact).abs() <= off * exact.abs() + 1e-9,
                    "{class} {}: {value} {exact}",
                    feature.name
                );
            }
        }
        let none = Features::sampled(&Analysis::of(
            &Csr::<f64>::from_triplets(0, 0, []).expect("no rows"),
        ));
        assert_eq!((none.get("row_nnz_min"), none.get("row_nnz_cv")), (Some(0.0), Some(0.0)));
    }
}
