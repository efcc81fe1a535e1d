//! The columns that a part needs from others, and the part's rows with local columns.
//!
//! Columns are numbered anew in the order of their owners, so each part owns a range of the new
//! numbers. A part's local columns are its own ones and its halo, the others that its rows need, each
//! once, all in rising order of new numbers. So the halo of earlier parts is before the own columns,
//! that of later parts behind them, and diagonals of the matrix stay diagonals.

use std::ops::Range;

use super::mode::Mode;
use crate::csr::{Csr, CsrRef, accumulate};
use crate::error::Result;
use crate::par;
use crate::partition::{Entries, Group, Partition};
use crate::permutation::inverse;
use crate::scalar::Scalar;

/// Owners of the columns.
#[derive(Debug)]
pub(super) struct Columns {
    /// New number of each column; `None` where neighbours belong together and keep their numbers.
    place: Option<Vec<u32>>,
    /// First new number of each part, followed by the number of columns.
    bounds: Vec<usize>,
    /// Set if each part gets all columns, whether its rows need them or not.
    complete: bool,
}

impl Columns {
    pub fn of(partition: &Partition) -> Self {
        Columns {
            place: Some(inverse(&partition.order)),
            bounds: partition.bounds.clone(),
            complete: false,
        }
    }

    /// Gives each part neighbouring columns, with these bounds.
    pub fn of_neighbours(bounds: Vec<usize>) -> Self {
        Columns { place: None, bounds, complete: false }
    }

    /// Gives each part the columns that `mode` gives it: those that its rows need, or all.
    pub fn for_mode(self, mode: Mode) -> Self {
        Columns { complete: mode.has_all_of_x(), ..self }
    }

    /// Returns the new numbers of the columns of a part.
    pub fn own(&self, part: usize) -> Range<usize> {
        self.bounds[part]..self.bounds[part + 1]
    }

    /// Returns the new numbers of a row's columns.
    pub fn numbers<'a, T: Scalar>(
        &'a self,
        csr: CsrRef<'a, T>,
        row: u32,
    ) -> impl Iterator<Item = u32> + 'a {
        let place = self.place.as_deref();
        let columns = csr.row(row as usize).0.iter();
        columns.map(move |&column| place.map_or(column, |place| place[column as usize]))
    }
}

/// The columns that a part needs from others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Halo {
    /// Number of columns that the part owns.
    pub own: usize,
    /// Number of columns of earlier parts, which are before the own ones.
    pub before: usize,
    /// Columns that come from one part each, in the order of the parts.
    pub runs: Vec<Run>,
}

/// The columns of a halo that come from one part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// The part that owns the columns.
    pub owner: usize,
    /// Positions of the columns among the owner's own ones, rising.
    pub columns: Vec<u32>,
}

impl Halo {
    /// Returns the number of columns.
    pub fn len(&self) -> usize {
        self.runs.iter().map(|run| run.columns.len()).sum()
    }

    /// Returns the places of the part's vector.
    pub fn shape(&self) -> Shape {
        Shape { own: self.before..self.before + self.own, len: self.own + self.len() }
    }

    /// Returns each run with the place of its first column in the part's vector.
    pub fn places(&self) -> impl Iterator<Item = (usize, &Run)> {
        let mut next = 0;
        self.runs.iter().map(move |run| {
            // Runs are those of earlier parts, then those of later ones.
            next += if next == self.before { self.own } else { 0 };
            let place = next;
            next += run.columns.len();
            (place, run)
        })
    }
}

/// The places of a vector's part: own elements between the halos of earlier and of later parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Places of the own elements.
    pub own: Range<usize>,
    /// Number of own and of foreign elements.
    pub len: usize,
}

/// Returns the halo of a part, and the matrix of each group of its rows with local columns.
///
/// # Errors
/// Of [`Csr::new`].
pub(super) fn local<T: Scalar>(
    csr: CsrRef<'_, T>,
    rows: &[u32],
    groups: &[Group],
    columns: &Columns,
    part: usize,
) -> Result<(Halo, Vec<Csr<T>>)> {
    let own = columns.own(part);
    let foreign = match columns.complete {
        true => (0..csr.ncols()).filter(|k| !own.contains(k)).map(|k| k as u32).collect(),
        false => needed(csr, rows, groups, columns, &own),
    };
    let before = foreign.partition_point(|&number| (number as usize) < own.start);
    let places = Places { columns, own: own.clone(), before, foreign: &foreign };
    let matrices = groups.iter().map(|group| places.matrix(csr, rows, group));
    let matrices = matrices.collect::<Result<_>>()?;
    let runs = runs(&foreign, &columns.bounds);
    Ok((Halo { own: own.len(), before, runs }, matrices))
}

/// Counts of a part's entries and of its exact halo, whatever the mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    pub nnz: usize,
    /// Entries in rows that need no halo.
    pub inner: usize,
    /// Entries in own columns.
    pub own: usize,
    /// Columns of others that the rows need.
    pub halo: usize,
}

/// Counts a part's entries by their columns.
pub(super) fn counts<T: Scalar>(
    csr: CsrRef<'_, T>,
    rows: &[u32],
    columns: &Columns,
    part: usize,
) -> Counts {
    let own = columns.own(part);
    let of_row = |row: usize| {
        let nnz = csr.pattern().row_nnz(rows[row] as usize);
        let numbers = columns.numbers(csr, rows[row]);
        let in_own = numbers.filter(|&number| own.contains(&(number as usize))).count();
        [nnz, if in_own == nnz { nnz } else { 0 }, in_own]
    };
    let sum = |a: [usize; 3], b: [usize; 3]| [a[0] + b[0], a[1] + b[1], a[2] + b[2]];
    let [nnz, inner, in_own] = par::reduce(rows.len(), ROWS, || [0; 3], of_row, sum);
    let all = Group::all(0..rows.len(), true);
    let halo = needed(csr, rows, &[all], columns, &own).len();
    Counts { nnz, inner, own: in_own, halo }
}

/// Returns the numbers of the columns beside the own ones that the groups need, rising.
fn needed<T: Scalar>(
    csr: CsrRef<'_, T>,
    rows: &[u32],
    groups: &[Group],
    columns: &Columns,
    own: &Range<usize>,
) -> Vec<u32> {
    let mut foreign = Vec::new();
    for group in groups.iter().filter(|group| group.needs_halo) {
        let rows = &rows[group.rows.clone()];
        let found = par::map_ranges(rows.len(), ROWS, |range| {
            let numbers = rows[range].iter().flat_map(|&row| columns.numbers(csr, row));
            let mut found: Vec<u32> =
                numbers.filter(|&number| !own.contains(&(number as usize))).collect();
            found.sort_unstable();
            found.dedup();
            found
        });
        foreign.extend(found.into_iter().flatten());
    }
    foreign.sort_unstable();
    foreign.dedup();
    foreign
}

/// Least number of rows that a thread looks at.
pub(super) const ROWS: usize = 4096;

/// The local columns of a part.
struct Places<'a> {
    columns: &'a Columns,
    /// New numbers of the part's own columns.
    own: Range<usize>,
    /// Number of foreign columns before the own ones.
    before: usize,
    /// New numbers of the others, rising.
    foreign: &'a [u32],
}

impl Places<'_> {
    /// Returns the local column of a new number.
    fn of(&self, number: u32) -> u32 {
        let at = match self.own.contains(&(number as usize)) {
            true => self.before + number as usize - self.own.start,
            false => {
                let k = self.foreign.partition_point(|&other| other < number);
                k + if k < self.before { 0 } else { self.own.len() }
            }
        };
        at as u32
    }

    /// Tells whether a group has the entries of the column with this new number.
    fn has(&self, entries: Entries, number: u32) -> bool {
        let is_own = self.own.contains(&(number as usize));
        match entries {
            Entries::All => true,
            Entries::Own => is_own,
            Entries::Foreign => !is_own,
        }
    }

    /// Returns the matrix of a group of the part's rows.
    fn matrix<T: Scalar>(&self, csr: CsrRef<'_, T>, rows: &[u32], group: &Group) -> Result<Csr<T>> {
        let (rows, entries_of) = (&rows[group.rows.clone()], group.entries);
        let counts = par::map(rows.len(), ROWS, |row| match entries_of {
            Entries::All => csr.pattern().row_nnz(rows[row] as usize),
            _ => {
                let numbers = self.columns.numbers(csr, rows[row]);
                numbers.filter(|&number| self.has(entries_of, number)).count()
            }
        });
        let mut row_ptr = vec![0; rows.len() + 1];
        row_ptr[1..].copy_from_slice(&counts);
        accumulate(&mut row_ptr);
        let nnz = row_ptr[rows.len()];
        let (mut col_idx, mut values) = (vec![0; nnz], vec![T::ZERO; nnz]);
        let bounds = par::split(&row_ptr, 1, par::GRAIN);
        let cuts: Vec<usize> = bounds.iter().map(|&row| row_ptr[row]).collect();
        let pieces = par::slices_mut(&mut col_idx, &cuts).into_iter();
        let mut pieces: Vec<_> = pieces.zip(par::slices_mut(&mut values, &cuts)).collect();
        par::for_each(&mut pieces, 1, |piece, (col_idx, values)| {
            let (mut entries, mut next) = (Vec::new(), 0);
            for &row in &rows[bounds[piece]..bounds[piece + 1]] {
                let numbers = self.columns.numbers(csr, row);
                let found = numbers.zip(csr.row(row as usize).1.iter().copied());
                let found = found.filter(|&(number, _)| self.has(entries_of, number));
                entries.extend(found.map(|(number, value)| (self.of(number), value)));
                entries.sort_unstable_by_key(|&(at, _)| at);
                for (at, value) in entries.drain(..) {
                    (col_idx[next], values[next]) = (at, value);
                    next += 1;
                }
            }
        });
        Csr::new(rows.len(), self.own.len() + self.foreign.len(), row_ptr, col_idx, values)
    }
}

/// Divides rising numbers by owner.
pub(super) fn runs(numbers: &[u32], bounds: &[usize]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut owner = 0;
    for &number in numbers {
        while number as usize >= bounds[owner + 1] {
            owner += 1;
        }
        let column = number - bounds[owner] as u32;
        match runs.last_mut() {
            Some(run) if run.owner == owner => run.columns.push(column),
            _ => runs.push(Run { owner, columns: vec![column] }),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row of points, each with its two neighbours; parts {0, 3}, {1, 4}, {} and {2, 5}.
    #[test]
    fn a_halo_holds_each_foreign_column_once_in_the_order_of_owners() {
        let near = |i: usize| i.saturating_sub(1)..(i + 2).min(6);
        let entries = (0..6).flat_map(|i| near(i).map(move |j| (i, j, (10 * i + j) as f64)));
        let csr = Csr::from_triplets(6, 6, entries).expect("in range");
        let partition = Partition::of_owners(vec![0, 1, 3, 0, 1, 3], 4);
        let columns = Columns::of(&partition);
        let local = |rows: &[u32], part| {
            let all = Group::all(0..rows.len(), true);
            let (halo, mut parts) =
                local(csr.as_ref(), rows, &[all], &columns, part).expect("it is valid");
            (halo, parts.remove(0))
        };

        let (halo, part) = local(&[0, 3], 0);
        // Columns 1 and 4 of part 1, column 2 of part 3.
        let wanted = [Run { owner: 1, columns: vec![0, 1] }, Run { owner: 3, columns: vec![0] }];
        assert_eq!((halo.own, halo.len(), &halo.runs[..]), (2, 3, &wanted[..]));
        assert_eq!((part.nrows(), part.ncols()), (2, 5));
        assert_eq!(part.row(0), (&[0, 2][..], &[0.0, 1.0][..]));
        assert_eq!(part.row(1), (&[1, 3, 4][..], &[33.0, 34.0, 32.0][..]));

        // Part 1 has columns 1 and 4 between those of parts 0 and 3.
        let (halo, part) = local(&[1, 4], 1);
        assert_eq!((halo.own, halo.before), (2, 2));
        let places: Vec<_> = halo.places().map(|(place, run)| (place, run.owner)).collect();
        assert_eq!(places, [(0, 0), (4, 3)]);
        assert_eq!(halo.shape(), Shape { own: 2..4, len: 6 });
        assert_eq!(part.row(0), (&[0, 2, 4][..], &[10.0, 11.0, 12.0][..]));

        let (halo, part) = local(&[], 2);
        assert_eq!((halo, part.nrows(), part.ncols()), (Halo::default(), 0, 0));
    }
}
