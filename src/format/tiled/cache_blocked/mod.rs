//! Cache blocking: slabs, ranges of columns whose part of x fits the last-level cache, are
//! multiplied one after the other.
//!
//! ```text
//!     | 4 . 1 . |      slab 0   slab 1        y  = A0 x0
//!     | . 5 . . |      4 .      1 .           y += A1 x1
//!     | . . . . |      . 5      . .
//!     | 2 . . 6 |      . .      . .
//!                      2 .      . 6
//! ```
//!
//! Columns are cut into equal ranges: the fewest slabs whose x takes at most the given percentage
//! of the cache. On a host each slab is a CSR matrix over all rows, on a GPU it is stored as sorted
//! tiles ([`super::st_csr`]). Empty slabs are omitted.
//!
//! Good for: columns anywhere in an x larger than the cache, which other formats fetch from memory
//! entry by entry. Bad for: neighbouring columns, and few entries per row: y is read and written
//! again for each slab.

mod gpu;
mod size;

use self::size::CacheBlockedSize;
use super::csr::{CsrFormat, CsrLayout};
use super::gpu::launch::{Arg, OnDevice};
use super::narrow::AsGiven;
use super::st_csr::{StCsrFormat, StCsrLayout};
use super::{
    Candidate, GpuConverter, GpuLayout, Layout, Matrix, Param, Params, Refusal, Stop, Storage,
    Target, Value, Work,
};
use crate::analysis::Analysis;
use crate::csr::{Csr, CsrRef, Pattern, offsets};
use crate::device::Kind;
use crate::par::{self, partition_point, slices_mut};
use crate::scalar::Scalar;

/// See the module.
#[derive(Debug)]
pub struct CacheBlockedFormat;

/// Slots of a sorted tile of a slab.
const TILE: usize = 4096;

impl Storage for CacheBlockedFormat {
    const NAME: &'static str = "cache_blocked";
    const ALIASES: &'static [&'static str] = &["slabs"];
    const TITLE: &'static str = "column slabs, cache blocking";
    const SOURCE: &'static str = "R. Nishtala, R. Vuduc, J. Demmel, K. Yelick, When Cache Blocking \
        of Sparse Matrix Vector Multiply Works and Why (2007), section 2";
    const SUITS: &'static str = "columns anywhere in an x larger than the last-level cache; bad for \
        neighbouring columns and few entries per row";
    const PARAMS: &'static [Param] = &[Param {
        name: "cache",
        doc: "maximum share of the last-level cache for the x of one slab, in percent",
        values: &[Value::Int(50), Value::Int(40)],
        gpu: &[Value::Int(50)],
        host: &[Value::Int(40)],
    }];
    const KERNELS_OF: &'static [&'static str] = &["st_csr"];

    type Layout<T: Scalar> = CacheBlockedLayout<T>;

    fn work(
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<Work, Refusal> {
        let pattern = analysis.pattern();
        let (nrows, nnz) = (pattern.nrows() as u64, pattern.nnz() as u64);
        let w = target.precision.bytes() as u64;
        let cuts = cuts(shape(pattern), params, target)?;
        let whole = match target.device.kind {
            Kind::Host => CsrFormat::work(analysis, &Params::defaults(CsrFormat::PARAMS), target)?,
            Kind::Gpu => StCsrFormat::work(analysis, &tiles().params, target)?,
        };
        let size = match analysis.is_whole() {
            true => CacheBlockedSize::of(pattern, &cuts, target)?,
            false => CacheBlockedSize::guess(pattern, &cuts, target, &whole),
        };
        let slab = cuts.windows(2).map(|cut| u64::from(cut[1] - cut[0])).max().unwrap_or(0);
        Ok(Work {
            layout_bytes: size.bytes,
            stream_bytes: size.bytes,
            entries: size.entries,
            x_window_bytes: Some(slab * w),
            extra_bytes: 2 * w * nrows * (size.slabs - 1),
            waits: 0,
            lanes: 0,
            launches: size.slabs as u32,
            convert_bytes: 2 * nnz * (4 + w)
                + 8 * nrows * size.slabs
                + whole.convert_bytes
                + size.bytes,
            ..whole
        })
    }

    fn convert<T: Scalar>(
        csr: CsrRef<'_, T>,
        _analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<CacheBlockedLayout<T>, Refusal> {
        let pattern = csr.pattern();
        let slabs = Slabs::new(pattern, cuts(shape(pattern), params, target)?);
        let slabs = slabs.map(|slab| {
            let mut values = vec![T::ZERO; slab.row_ptr[pattern.nrows()]];
            slab.gather(csr.values(), &mut values);
            let columns = slab.columns(pattern);
            let slab = Csr::new(pattern.nrows(), pattern.ncols(), slab.row_ptr, columns, values)
                .expect("a piece of each row of a valid matrix");
            match target.device.kind {
                Kind::Host => Slab::Rows(CsrLayout::of(slab)),
                Kind::Gpu => {
                    let own = (StCsrFormat::NAME, AsGiven);
                    Slab::Tiles(StCsrLayout::new(slab.as_ref(), TILE, own))
                }
            }
        });
        Ok(CacheBlockedLayout {
            nrows: pattern.nrows(),
            ncols: pattern.ncols(),
            slabs: slabs.collect(),
        })
    }

    fn build(
        converter: &mut dyn GpuConverter,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<GpuLayout, Stop> {
        let Matrix { nrows, ncols, nnz, .. } = converter.matrix();
        gpu::build(converter, &cuts([nrows, ncols, nnz], params, target)?, target)
    }
}

/// Numbers of rows, columns and entries.
fn shape(pattern: Pattern<'_>) -> [usize; 3] {
    [pattern.nrows(), pattern.ncols(), pattern.nnz()]
}

/// The candidate in which a GPU stores a slab.
fn tiles() -> Candidate {
    format!("{}:tile={TILE}", StCsrFormat::NAME).parse().expect("a value that tiles have")
}

/// Bounds of the slabs: the fewest slabs such that the x of each fits its share of the cache.
fn cuts(
    [nrows, ncols, nnz]: [usize; 3],
    params: &Params,
    target: &Target<'_>,
) -> Result<Vec<u32>, Refusal> {
    let (w, percent) = (target.precision.bytes(), params.int("cache"));
    let x_bytes = ncols * w;
    let room = (target.device.cache_bytes.saturating_mul(percent as u64) / 100) as usize;
    let slabs = x_bytes.div_ceil(room.max(w));
    if slabs < 2 {
        return Err(Refusal::new(format!(
            "x takes {x_bytes} bytes and fits {percent} % of the cache, {room} bytes: one slab suffices"
        )));
    }
    if slabs.saturating_mul(nrows.max(1)) > nnz {
        return Err(Refusal::new(format!(
            "{slabs} slabs of {nrows} rows have more rows in total than the matrix has entries ({nnz})"
        )));
    }
    Ok((0..=slabs).map(|k| (ncols * k / slabs) as u32).collect())
}

/// Iterates over the slabs of a pattern that have entries.
struct Slabs<'a> {
    pattern: Pattern<'a>,
    cuts: Vec<u32>,
    /// The next slab; `from` holds the first entry of each row that is in no earlier slab.
    next: usize,
    from: Vec<usize>,
}

/// One slab of a pattern.
struct SlabPattern {
    /// The first entry of each row, as a position in the CSR arrays of the whole matrix.
    from: Vec<usize>,
    row_ptr: Vec<usize>,
}

impl<'a> Slabs<'a> {
    fn new(pattern: Pattern<'a>, cuts: Vec<u32>) -> Self {
        let from = pattern.row_ptr()[..pattern.nrows()].to_vec();
        Slabs { pattern, cuts, next: 1, from }
    }
}

impl Iterator for Slabs<'_> {
    type Item = SlabPattern;

    fn next(&mut self) -> Option<SlabPattern> {
        let (pattern, columns) = (self.pattern, self.pattern.col_idx());
        while let Some(&cut) = self.cuts.get(self.next) {
            self.next += 1;
            let end_of = |row: usize| {
                let from = self.from[row];
                let rest = &columns[from..pattern.row_ptr()[row + 1]];
                from + partition_point(rest.len(), |i| rest[i] < cut)
            };
            let to = par::map(self.from.len(), 1, end_of);
            let row_ptr = offsets(self.from.iter().zip(&to).map(|(from, to)| to - from));
            let from = std::mem::replace(&mut self.from, to);
            if row_ptr[pattern.nrows()] > 0 {
                return Some(SlabPattern { from, row_ptr });
            }
        }
        None
    }
}

impl SlabPattern {
    fn columns(&self, pattern: Pattern<'_>) -> Vec<u32> {
        let mut columns = vec![0; self.row_ptr[pattern.nrows()]];
        self.gather(pattern.col_idx(), &mut columns);
        columns
    }

    /// Copies the elements of `all` that belong to the entries of this slab to `own`.
    fn gather<V: Copy + Send + Sync>(&self, all: &[V], own: &mut [V]) {
        gather(&self.row_ptr, |row| self.from[row], all, own);
    }
}

/// Number of rows that a thread gathers at a time.
const ROWS: usize = 1 << 12;

/// Copies to each row of `row_ptr` the consecutive elements that start at `from`, row by row.
fn gather<V: Copy + Send + Sync>(
    row_ptr: &[usize],
    from: impl Fn(usize) -> usize + Sync,
    all: &[V],
    own: &mut [V],
) {
    let nrows = row_ptr.len() - 1;
    let rows = |i: usize| (i * ROWS).min(nrows);
    let cuts: Vec<usize> = (0..=nrows.div_ceil(ROWS)).map(|i| row_ptr[rows(i)]).collect();
    par::for_each(&mut slices_mut(own, &cuts), 1, |i, own| {
        let mut own = &mut **own;
        for row in rows(i)..rows(i + 1) {
            let len = row_ptr[row + 1] - row_ptr[row];
            let (slots, rest) = std::mem::take(&mut own).split_at_mut(len);
            slots.copy_from_slice(&all[from(row)..from(row) + len]);
            own = rest;
        }
    });
}

/// A slab as it is stored: in CSR on a host, in sorted tiles for a GPU.
#[derive(Debug)]
enum Slab<T: Scalar> {
    Rows(CsrLayout<T>),
    Tiles(StCsrLayout<T>),
}

impl<T: Scalar> Slab<T> {
    fn layout(&self) -> &dyn Layout<T> {
        match self {
            Slab::Rows(layout) => layout,
            Slab::Tiles(layout) => layout,
        }
    }

    fn layout_mut(&mut self) -> &mut dyn Layout<T> {
        match self {
            Slab::Rows(layout) => layout,
            Slab::Tiles(layout) => layout,
        }
    }

    fn row_ptr(&self) -> Vec<usize> {
        match self {
            Slab::Rows(layout) => layout.row_ptr(),
            Slab::Tiles(layout) => layout.row_ptr(),
        }
    }
}

/// The slabs of a matrix.
#[derive(Debug)]
pub struct CacheBlockedLayout<T: Scalar> {
    nrows: usize,
    ncols: usize,
    slabs: Vec<Slab<T>>,
}

impl<T: Scalar> CacheBlockedLayout<T> {
    /// For each slab, its row pointers and the position of its first entry of each row in the CSR
    /// matrix.
    fn places(&self) -> Vec<(Vec<usize>, Vec<usize>)> {
        let ptrs: Vec<_> = self.slabs.iter().map(Slab::row_ptr).collect();
        let mut next: Vec<usize> =
            (0..self.nrows).map(|row| ptrs.iter().map(|ptr| ptr[row]).sum()).collect();
        let place = |ptr: Vec<usize>| {
            let from = next.clone();
            for (next, row) in next.iter_mut().zip(ptr.windows(2)) {
                *next += row[1] - row[0];
            }
            (ptr, from)
        };
        ptrs.into_iter().map(place).collect()
    }
}

impl<T: Scalar> Layout<T> for CacheBlockedLayout<T> {
    fn apply(&self, alpha: T, x: &[T], beta: T, y: &mut [T]) {
        let mut beta = beta;
        for slab in &self.slabs {
            slab.layout().apply(alpha, x, beta, y);
            beta = T::ONE;
        }
    }

    fn bytes(&self) -> u64 {
        self.slabs.iter().map(|slab| slab.layout().bytes()).sum()
    }

    fn set_values(&mut self, values: &[T]) {
        let places = self.places();
        for (slab, (row_ptr, from)) in self.slabs.iter_mut().zip(places) {
            let mut own = vec![T::ZERO; row_ptr[self.nrows]];
            gather(&row_ptr, |row| from[row], values, &mut own);
            slab.layout_mut().set_values(&own);
        }
    }

    fn to_csr(&self) -> Csr<T> {
        let slabs: Vec<Csr<T>> = self.slabs.iter().map(|slab| slab.layout().to_csr()).collect();
        let mut row_ptr = vec![0];
        let (mut columns, mut values) = (Vec::new(), Vec::new());
        for row in 0..self.nrows {
            for slab in &slabs {
                columns.extend_from_slice(slab.row(row).0);
                values.extend_from_slice(slab.row(row).1);
            }
            row_ptr.push(columns.len());
        }
        Csr::new(self.nrows, self.ncols, row_ptr, columns, values)
            .expect("the slabs of a valid matrix")
    }

    fn on_device(&self) -> Option<OnDevice<'_>> {
        let (first, others) = self.slabs.split_first()?;
        let mut all = first.layout().on_device()?.named("slab0_");
        for (slab, k) in others.iter().zip(1..) {
            let mut next = slab.layout().on_device()?.named(&format!("slab{k}_"));
            let args = next.launches.iter_mut().flat_map(|launch| &mut launch.args);
            for beta in args.filter(|arg| **arg == Arg::Beta) {
                *beta = Arg::One;
            }
            all = all.then(next);
        }
        Some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{self, Device};
    use crate::format::Basis;
    use crate::scalar::Precision;

    fn example() -> Csr<f64> {
        Csr::new(4, 4, vec![0, 2, 3, 3, 5], vec![0, 2, 1, 0, 3], vec![4.0, 1.0, 5.0, 2.0, 6.0])
            .expect("valid")
    }

    /// A device with room for two f64 elements of x in 40 % of its cache.
    fn device(name: &str) -> Device {
        Device { cache_bytes: 40, ..device::find(name).expect("shipped") }
    }

    fn work(csr: &Csr<f64>, device: &Device, cache: &str) -> Result<Work, Refusal> {
        let candidate: Candidate =
            format!("cache_blocked:cache={cache}").parse().expect("a candidate");
        let (precision, basis) = (Precision::F64, Basis::Original);
        let target =
            Target { device, precision, basis, memory_limit: u64::MAX, stored: Default::default() };
        candidate.work(&Analysis::of(csr), &target)
    }

    #[test]
    fn slabs_divide_entries_by_column_and_keep_all_rows() {
        let csr = example();
        let slabs: Vec<_> = Slabs::new(csr.pattern(), vec![0, 2, 4]).collect();
        let [first, second] = &slabs[..] else { panic!("{} slabs", slabs.len()) };
        assert_eq!(
            (&first.row_ptr[..], &first.from[..]),
            (&[0, 1, 2, 2, 3][..], &[0, 2, 3, 3][..])
        );
        assert_eq!(first.columns(csr.pattern()), [0, 1, 0]);
        assert_eq!(second.row_ptr, [0, 1, 1, 1, 2]);
        assert_eq!(second.columns(csr.pattern()), [2, 3]);
        // A slab without entries is omitted.
        assert_eq!(Slabs::new(csr.pattern(), vec![0, 0, 4]).count(), 1);
    }

    #[test]
    fn later_slabs_are_added_to_what_earlier_ones_wrote() {
        let entries = (0..16).map(|k| (k / 4, k % 4, k as f64));
        let csr = Csr::from_triplets(4, 4, entries).expect("valid");
        for (name, kernel) in [("cpu", "csr"), ("h200", "st_csr")] {
            let device = device(name);
            let (precision, basis) = (Precision::F64, Basis::Original);
            let target = Target {
                device: &device,
                precision,
                basis,
                memory_limit: u64::MAX,
                stored: Default::default(),
            };
            let params = Params::defaults(CacheBlockedFormat::PARAMS);
            let analysis = Analysis::of(&csr);
            let layout = CacheBlockedFormat::convert(csr.as_ref(), &analysis, &params, &target)
                .expect("applies");
            let described = layout.on_device().expect("kernels");
            let betas = described.launches.iter().map(|launch| {
                assert_eq!(launch.image, kernel);
                launch.args.last().copied()
            });
            assert_eq!(betas.collect::<Vec<_>>(), [Some(Arg::Beta), Some(Arg::One)]);
            assert_eq!(described.values.len(), 2);
        }
    }

    #[test]
    fn one_slab_or_more_rows_than_entries_are_refused() {
        let csr = example();
        let refusal = |cache_bytes: u64, cache: &str| {
            let device = Device { cache_bytes, ..device("cpu") };
            work(&csr, &device, cache).expect_err("refused").to_string()
        };
        let one = "x takes 32 bytes and fits 40 % of the cache, 40 bytes: one slab suffices";
        assert_eq!(refusal(100, "40"), one);
        let many = "2 slabs of 4 rows have more rows in total than the matrix has entries (5)";
        assert_eq!(refusal(40, "50"), many);
        let csr = Csr::new(0, 4, vec![0], vec![], vec![]).expect("valid");
        assert!(work(&csr, &device("cpu"), "50").is_err());
    }

    #[test]
    fn a_guess_is_near_what_a_count_finds() {
        // 12 entries per row at random columns, and enough rows for an estimate to sample them.
        let n = 40_000;
        let csr: Csr<f64> = crate::generate::by_name("uniform", n, 1).expect("a class");
        let pattern = csr.pattern();
        assert!(pattern.nnz() > crate::analysis::WHOLE);
        for name in ["cpu", "h200"] {
            let device = Device { cache_bytes: 8 * n as u64, ..device(name) };
            let (precision, basis) = (Precision::F64, Basis::Original);
            let target = Target {
                device: &device,
                precision,
                basis,
                memory_limit: u64::MAX,
                stored: Default::default(),
            };
            let candidate: Candidate = "cache_blocked:cache=40".parse().expect("a candidate");
            let [exact, guess] = [Analysis::of(&csr), Analysis::sampled(&csr)]
                .map(|analysis| candidate.work(&analysis, &target).expect("applies"));
            assert_eq!((exact.launches, guess.launches), (3, 3), "{name}");
            let ratio = guess.layout_bytes as f64 / exact.layout_bytes as f64;
            assert!((ratio - 1.0).abs() < 0.1, "{name}: {ratio}");
        }
    }
}
