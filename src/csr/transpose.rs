//! The transpose of a pattern, in time linear in its entries and in parallel.

use super::{Csr, CsrRef, Pattern};
use crate::par;
use crate::scalar::Scalar;

/// Maximum number of ranges of columns by which entries are gathered: a thread writes to all of
/// them in turn, and each has a page and two cache lines in use.
const RANGES: usize = 256;

/// The arrays of a transposed pattern, with a value for each entry.
pub(crate) struct Transposed<V> {
    /// Start of each row, and the end.
    pub row_ptr: Vec<usize>,
    /// Columns, rising within each row.
    pub col_idx: Vec<u32>,
    /// Values, in the order of the columns.
    pub values: Vec<V>,
}

/// Transposes a pattern; entry `k` of it takes the value `value(k)` along.
///
/// Entries are first gathered by ranges of columns, in row order, and then sorted by counting within
/// each range, whose counters fit a cache: a radix sort with two digits (D. Knuth, The Art of
/// Computer Programming, volume 3, section 5.2.5). The result does not depend on the number of
/// threads. Takes `8 + size_of::<V>()` bytes for each entry beside the result.
pub(crate) fn transposed<V: Copy + Default + Send + Sync>(
    pattern: Pattern<'_>,
    value: impl Fn(usize) -> V + Sync,
) -> Transposed<V> {
    let (ncols, nnz) = (pattern.ncols(), pattern.nnz());
    let shift = match nnz < par::GRAIN {
        true => usize::BITS - 1,
        false => ncols.div_ceil(RANGES).next_power_of_two().trailing_zeros(),
    };
    let ranges = (ncols.saturating_sub(1) >> shift) + 1;
    let Gathered { keys, values: gathered, starts } = gather(pattern, value, shift, ranges);

    let (mut col_idx, mut values) = (vec![0; nnz], vec![V::default(); nnz]);
    let mut row_ptr = vec![0; ncols + 1];
    let bounds: Vec<usize> =
        (0..=ranges).map(|r| r.saturating_mul(1 << shift).min(ncols)).collect();
    let counters = par::slices_mut(&mut row_ptr[1..], &bounds).into_iter();
    let rows = par::slices_mut(&mut col_idx, &starts).into_iter();
    let mut parts: Vec<_> = counters.zip(rows.zip(par::slices_mut(&mut values, &starts))).collect();
    par::for_each(&mut parts, 1, |range, (counters, (rows, values))| {
        let (own, first) = (starts[range]..starts[range + 1], bounds[range]);
        let (keys, gathered) = (&keys[own.clone()], &gathered[own.clone()]);
        for &key in keys {
            counters[column_of(key) - first] += 1;
        }
        let mut total = 0;
        for counter in counters.iter_mut() {
            total += std::mem::replace(counter, total);
        }
        for (&key, &value) in keys.iter().zip(gathered) {
            let at = &mut counters[column_of(key) - first];
            (rows[*at], values[*at]) = ((key >> 32) as u32, value);
            *at += 1;
        }
        // Each counter has reached the end of its column.
        for counter in counters.iter_mut() {
            *counter += own.start;
        }
    });
    Transposed { row_ptr, col_idx, values }
}

/// Entries by ranges of columns, within a range in row order.
struct Gathered<V> {
    /// Row and column of each entry, the row in the upper half.
    keys: Vec<u64>,
    values: Vec<V>,
    /// Start of each range, and the end.
    starts: Vec<usize>,
}

fn column_of(key: u64) -> usize {
    key as u32 as usize
}

/// Gathers the entries by `ranges` ranges of `2^shift` columns each.
fn gather<V: Copy + Default + Send + Sync>(
    pattern: Pattern<'_>,
    value: impl Fn(usize) -> V + Sync,
    shift: u32,
    ranges: usize,
) -> Gathered<V> {
    let (nnz, col_idx) = (pattern.nnz(), pattern.col_idx());
    let range_of = |column: u32| column as usize >> shift;
    let bounds = par::split(pattern.row_ptr(), 1, par::GRAIN);
    let parts = bounds.len() - 1;
    let counts: Vec<Vec<usize>> = par::map(parts, 1, |part| {
        let mut counts = vec![0; ranges];
        let entries = pattern.row_ptr()[bounds[part]]..pattern.row_ptr()[bounds[part + 1]];
        for &column in &col_idx[entries] {
            counts[range_of(column)] += 1;
        }
        counts
    });
    // Each range consists of the entries of the first part of rows, the second, and so on.
    let cuts = super::offsets(
        (0..ranges).flat_map(|range| counts.iter().map(move |of_part| of_part[range])),
    );
    let (mut keys, mut values) = (vec![0; nnz], vec![V::default(); nnz]);
    let mut writers: Vec<Vec<_>> = (0..parts).map(|_| Vec::with_capacity(ranges)).collect();
    let slices = par::slices_mut(&mut keys, &cuts).into_iter();
    for (at, slice) in slices.zip(par::slices_mut(&mut values, &cuts)).enumerate() {
        writers[at % parts].push(slice);
    }
    par::for_each(&mut writers, 1, |part, slices| {
        let mut filled = vec![0; ranges];
        for row in bounds[part]..bounds[part + 1] {
            for k in pattern.row_range(row) {
                let range = range_of(col_idx[k]);
                let (keys, values) = &mut slices[range];
                let at = filled[range];
                keys[at] = (row as u64) << 32 | u64::from(col_idx[k]);
                values[at] = value(k);
                filled[range] = at + 1;
            }
        }
    });
    let starts = cuts.into_iter().step_by(parts).collect();
    Gathered { keys, values, starts }
}

/// Places of the entries of a matrix in its CSR arrays, in the order of its transpose.
#[derive(Debug)]
pub(crate) enum EntryOrder {
    /// Fewer than 2^32 entries.
    Narrow(Vec<u32>),
    /// Any number of entries.
    Wide(Vec<usize>),
}

impl EntryOrder {
    /// Returns the order for a pattern.
    pub fn of(pattern: Pattern<'_>) -> Self {
        Self::with_transpose(pattern).0
    }

    /// Returns the order, with row pointers and columns of the transposed pattern.
    fn with_transpose(pattern: Pattern<'_>) -> (Self, Vec<usize>, Vec<u32>) {
        match u32::try_from(pattern.nnz()) {
            Ok(_) => {
                let turned = transposed(pattern, |k| k as u32);
                (EntryOrder::Narrow(turned.values), turned.row_ptr, turned.col_idx)
            }
            Err(_) => {
                let turned = transposed(pattern, |k| k);
                (EntryOrder::Wide(turned.values), turned.row_ptr, turned.col_idx)
            }
        }
    }

    /// Returns values of the matrix in the order of its transpose.
    ///
    /// # Panics
    /// If there are fewer values than entries.
    pub fn take<T: Scalar>(&self, values: &[T]) -> Vec<T> {
        match self {
            EntryOrder::Narrow(order) => {
                par::map(order.len(), par::GRAIN, |k| values[order[k] as usize])
            }
            EntryOrder::Wide(order) => par::map(order.len(), par::GRAIN, |k| values[order[k]]),
        }
    }

    /// Returns the size of the order in bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            EntryOrder::Narrow(order) => 4 * order.len() as u64,
            EntryOrder::Wide(order) => 8 * order.len() as u64,
        }
    }
}

impl<T: Scalar> CsrRef<'_, T> {
    /// Returns the transposed matrix, in parallel: each entry is read three times and written twice,
    /// and 8 bytes and a value for each are in use beside the result.
    pub fn transpose(&self) -> Csr<T> {
        let values = self.values();
        let Transposed { row_ptr, col_idx, values } = transposed(self.pattern(), |k| values[k]);
        Csr { nrows: self.ncols(), ncols: self.nrows(), row_ptr, col_idx, values }
    }

    /// Returns the transposed matrix, and where its entries are in this one.
    pub(crate) fn transpose_with_order(&self) -> (Csr<T>, EntryOrder) {
        let (order, row_ptr, col_idx) = EntryOrder::with_transpose(self.pattern());
        let values = order.take(self.values());
        (Csr { nrows: self.ncols(), ncols: self.nrows(), row_ptr, col_idx, values }, order)
    }

    /// Tells whether both matrices have the same entries and no NaN; 0 and -0 are the same value.
    pub(crate) fn equals(&self, other: CsrRef<'_, T>) -> bool {
        self.ncols() == other.ncols()
            && self.row_ptr() == other.row_ptr()
            && equal(self.col_idx(), other.col_idx())
            && equal(self.values(), other.values())
    }
}

/// Compares slices in parallel.
pub(crate) fn equal<V: PartialEq + Sync>(a: &[V], b: &[V]) -> bool {
    let same = |part: std::ops::Range<usize>| a[part.clone()] == b[part];
    a.len() == b.len() && !par::map_ranges(a.len(), 8 * par::GRAIN, same).contains(&false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate;

    /// The transpose by a stable sort of all entries.
    fn by_sorting(csr: &Csr<f64>) -> Csr<f64> {
        let entries = csr.iter().map(|(row, column, value)| (column, row, value));
        Csr::from_triplets(csr.ncols(), csr.nrows(), entries).expect("in range")
    }

    fn shapes() -> Vec<Csr<f64>> {
        let of = |nrows, ncols, entries: Vec<(usize, usize, f64)>| {
            Csr::from_triplets(nrows, ncols, entries).expect("in range")
        };
        let many = 3 * par::GRAIN;
        let mut made = vec![
            of(0, 0, vec![]),
            of(0, 5, vec![]),
            of(5, 0, vec![]),
            of(3, 2, vec![(2, 1, 7.0)]),
            of(1, many, (0..many).map(|k| (0, k, k as f64)).collect()),
            of(many, 1, (0..many).map(|k| (k, 0, k as f64)).collect()),
            of(7, many, (0..many).map(|k| (k % 7, k * k % many, 1.0 + k as f64)).collect()),
            of(many, 300, (0..2 * many).map(|k| (k / 2, (k * 37) % 300, k as f64)).collect()),
        ];
        for class in ["heat", "rmat", "linear_program", "least_squares"] {
            made.push(generate::by_name(class, 9000, 1).expect(class));
        }
        made
    }

    #[test]
    fn transposes_are_those_of_a_sort_for_any_number_of_threads() {
        for threads in [1, 2, 5] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            pool.expect("threads").install(|| {
                for csr in shapes() {
                    let turned = csr.transpose();
                    assert_eq!(turned, by_sorting(&csr), "{} x {}", csr.nrows(), csr.ncols());
                    let (again, order) = csr.as_ref().transpose_with_order();
                    assert_eq!(again, turned);
                    assert_eq!(order.take(csr.values()), turned.values());
                    assert_eq!(turned.transpose(), csr);
                    let valid = Csr::new(
                        turned.nrows(),
                        turned.ncols(),
                        turned.row_ptr().to_vec(),
                        turned.col_idx().to_vec(),
                        turned.values().to_vec(),
                    );
                    assert_eq!(valid.expect("all invariants hold"), turned);
                }
            });
        }
    }

    #[test]
    fn equal_matrices_have_the_same_entries() {
        let csr: Csr<f64> = generate::by_name("heat", 9000, 1).expect("a class");
        let turned = csr.transpose();
        assert!(csr.as_ref().equals(turned.as_ref()), "a symmetric class");
        let mut other = csr.clone();
        if let Some(last) = other.values_mut().last_mut() {
            *last += 1.0;
        }
        assert!(!csr.as_ref().equals(other.as_ref()));
        other.values_mut().fill(f64::NAN);
        assert!(!other.as_ref().equals(other.as_ref()), "NaN");
    }
}
