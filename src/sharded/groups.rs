//! The rows of a part in groups: rows that need no halo, and those that do.
//!
//! With [`Mode::Naive`] and [`Mode::Task`], the entries of all rows are divided instead: those in own
//! columns, and those in columns of other parts.
//!
//! Otherwise a part's rows are ordered: first those that need elements of earlier parts, then those that need
//! no halo, then those that need elements of later parts only. Where neighbouring rows form a part,
//! as in a grid cut into slabs, this is the order that they have.

use super::halo::{Columns, ROWS};
use super::mode::{Inner, Mode};
use crate::csr::CsrRef;
use crate::par;
use crate::partition::{Entries, Group, Partition};
use crate::scalar::Scalar;

/// Orders the rows of each part by what they need, where the mode multiplies them apart, and returns
/// the groups of each part. `bandwidths` are those of parts on GPUs, in bytes a second.
pub(super) fn groups<T: Scalar>(
    csr: CsrRef<'_, T>,
    rows: &mut Partition,
    columns: &Columns,
    mode: Mode,
    bandwidths: &[Option<f64>],
) -> Vec<Vec<Group>> {
    let of_part = |part: usize| {
        let order = &mut rows.order[rows.bounds[part]..rows.bounds[part + 1]];
        let of = Of { part, parts: bandwidths.len(), bandwidth: bandwidths[part] };
        match divided(csr, order, columns, mode, &of) {
            Ok(needs) => ordered(order, &needs),
            Err(groups) => groups,
        }
    };
    (0..bandwidths.len()).map(of_part).collect()
}

/// Returns the groups of a part whose rows keep their order: the longest run of rows that need no
/// halo, and the rows before and behind it.
pub(super) fn in_order<T: Scalar>(
    csr: CsrRef<'_, T>,
    rows: &[u32],
    columns: &Columns,
    mode: Mode,
    of: &Of,
) -> Vec<Group> {
    match divided(csr, rows, columns, mode, of) {
        Ok(needs) => around_longest_run(needs.len(), |row| needs[row] != Needs::Nothing),
        Err(groups) => groups,
    }
}

/// A part of a matrix.
pub(super) struct Of {
    /// Number of the part.
    pub part: usize,
    /// Number of parts.
    pub parts: usize,
    /// Bandwidth of the part's GPU, in bytes a second; `None` on a host.
    pub bandwidth: Option<f64>,
}

impl Of {
    /// Tells whether the part multiplies rows that need no halo apart. They have `inner` of its `total`
    /// entries.
    pub fn multiplies_apart<T: Scalar>(&self, mode: Mode, [inner, total]: [usize; 2]) -> bool {
        let bytes = (inner * (size_of::<T>() + size_of::<u32>())) as f64;
        let rows = Inner {
            share: inner as f64 / total as f64,
            read_s: self.bandwidth.map(|bandwidth| bytes / bandwidth),
            parts: self.parts,
        };
        inner > 0 && mode.is_apart(&rows)
    }
}

/// Returns what each row needs, or the groups of all rows if none are multiplied apart.
fn divided<T: Scalar>(
    csr: CsrRef<'_, T>,
    rows: &[u32],
    columns: &Columns,
    mode: Mode,
    of: &Of,
) -> Result<Vec<Needs>, Vec<Group>> {
    let whole = |needs_halo| Err(vec![Group::all(0..rows.len(), needs_halo)]);
    if mode.is_one_step() {
        return whole(true);
    }
    let needs = needs(csr, rows, columns, of.part);
    let nnz = |needed: Option<Needs>| -> usize {
        let rows = rows.iter().zip(&needs);
        let rows = rows.filter(|&(_, &needs)| needed.is_none_or(|needed| needed == needs));
        rows.map(|(&row, _)| csr.pattern().row_nnz(row as usize)).sum()
    };
    let (inner, total) = (nnz(Some(Needs::Nothing)), nnz(None));
    if inner == total {
        return whole(false);
    }
    if mode.divides_columns() {
        let group = |entries, needs_halo| Group { rows: 0..rows.len(), needs_halo, entries };
        return Err(vec![group(Entries::Own, false), group(Entries::Foreign, true)]);
    }
    if !of.multiplies_apart::<T>(mode, [inner, total]) {
        return whole(true);
    }
    Ok(needs)
}

/// Elements that a row needs beside the part's own ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Needs {
    /// Elements of earlier parts, and perhaps of later ones.
    Earlier,
    #[default]
    Nothing,
    /// Elements of later parts only.
    Later,
}

fn needs<T: Scalar>(
    csr: CsrRef<'_, T>,
    rows: &[u32],
    columns: &Columns,
    part: usize,
) -> Vec<Needs> {
    let own = columns.own(part);
    par::map(rows.len(), ROWS, |at| {
        let mut needs = Needs::Nothing;
        for number in columns.numbers(csr, rows[at]) {
            match number as usize {
                number if number < own.start => return Needs::Earlier,
                number if number >= own.end => needs = Needs::Later,
                _ => {}
            }
        }
        needs
    })
}

/// Orders rows by what they need and returns the groups.
fn ordered(order: &mut [u32], needs: &[Needs]) -> Vec<Group> {
    let before = order.to_vec();
    let mut groups = Vec::new();
    let mut next = 0;
    for wanted in [Needs::Earlier, Needs::Nothing, Needs::Later] {
        let first = next;
        for (&row, _) in before.iter().zip(needs).filter(|&(_, &needs)| needs == wanted) {
            order[next] = row;
            next += 1;
        }
        if next > first {
            groups.push(Group::all(first..next, wanted != Needs::Nothing));
        }
    }
    groups
}

/// Returns the groups of rows that keep their order: the longest run of rows that need no halo, and the rows
/// before and behind it.
pub(super) fn around_longest_run(nrows: usize, needs_halo: impl Fn(usize) -> bool) -> Vec<Group> {
    let (mut inner, mut first) = (0..0, 0);
    for row in 0..nrows {
        if needs_halo(row) {
            first = row + 1;
        } else if row + 1 - first > inner.len() {
            inner = first..row + 1;
        }
    }
    let groups = [(0..inner.start, true), (inner.clone(), false), (inner.end..nrows, true)];
    let groups = groups.into_iter().filter(|(rows, _)| !rows.is_empty());
    groups.map(|(rows, needs_halo)| Group::all(rows, needs_halo)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Csr;

    /// A ring of 9 points, each with its two neighbours, and a point without any in parts of 3, 4
    /// and 3.
    fn ring(mode: Mode, bandwidth: Option<f64>) -> (Partition, Vec<Vec<Group>>) {
        let entries =
            (0..9).flat_map(|i| [(i, (i + 1) % 9, 1.0), (i, i, 2.0), (i, (i + 8) % 9, 1.0)]);
        let csr = Csr::from_triplets(10, 10, entries).expect("in range");
        let mut rows = Partition::of_neighbours(vec![0, 3, 7, 10]);
        let columns = Columns::of(&rows);
        let groups = groups(csr.as_ref(), &mut rows, &columns, mode, &[bandwidth; 3]);
        (rows, groups)
    }

    #[test]
    fn rows_that_need_a_halo_are_before_and_behind_the_others() {
        let group = Group::all;
        let (rows, groups) = ring(Mode::Overlap, None);
        // Rows 0 and 2 need elements of later parts; rows 7 and 8 those of earlier ones.
        assert_eq!(rows.order, [1, 0, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(groups[0], [group(0..1, false), group(1..3, true)]);
        assert_eq!(groups[1], [group(0..1, true), group(1..3, false), group(3..4, true)]);
        assert_eq!(groups[2], [group(0..3, true)], "no entry is in a row without a need");
        assert_eq!(
            ring(Mode::Vector, Some(1.0)).1,
            [0..3, 0..4, 0..3].map(|rows| vec![group(rows, true)])
        );
    }

    #[test]
    fn parts_on_hosts_and_parts_that_mostly_need_halos_are_one_group() {
        let one = |(rows, groups): (Partition, Vec<Vec<Group>>)| {
            assert_eq!(rows.order, (0..10).collect::<Vec<u32>>());
            assert!(groups.iter().all(|groups| groups.len() == 1), "{groups:?}");
        };
        one(ring(Mode::Auto, None));
        // Products that take less time than their launches.
        one(ring(Mode::Auto, Some(4e12)));
        assert_eq!(ring(Mode::Auto, Some(1.0)).1[1].len(), 3, "6 of 12 entries need no halo");
        assert_eq!(ring(Mode::Auto, Some(1.0)).1[0].len(), 1, "3 of 9 entries need no halo");
    }

    #[test]
    fn rows_that_keep_their_order_are_grouped_around_the_longest_run_without_a_need() {
        use Needs::{Earlier, Later, Nothing};
        let group = Group::all;
        let around_longest_run =
            |needs: &[Needs]| around_longest_run(needs.len(), |row| needs[row] != Nothing);
        let mixed = [Nothing, Earlier, Nothing, Nothing, Later, Nothing];
        let wanted = [group(0..2, true), group(2..4, false), group(4..6, true)];
        assert_eq!(around_longest_run(&mixed), wanted);
        let last = [Later, Nothing, Nothing];
        assert_eq!(around_longest_run(&last), [group(0..1, true), group(1..3, false)]);
        assert_eq!(around_longest_run(&[Earlier; 2]), [group(0..2, true)]);
        assert_eq!(around_longest_run(&[]), []);
    }
}
