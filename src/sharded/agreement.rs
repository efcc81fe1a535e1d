//! Facts that ranks tell each other before they set up a matrix, and the checks that they fit.

use crate::csr::{MAX_DIMENSION, offsets};
use crate::error::{Error, Result};

/// Facts of one rank about its matrix. Ranks send them as numbers of 8 bytes, in this order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Facts {
    /// Number of ranks.
    pub size: u64,
    /// Bytes of a value.
    pub value_bytes: u64,
    /// 1 if each rank has the whole matrix, 0 if it has its own rows.
    pub whole: u64,
    /// Number of columns of the whole matrix.
    pub ncols: u64,
    /// Hash of the whole matrix's pattern and of its division; 0 for own rows.
    pub digest: u64,
    /// 1 if the rank states the number of its columns, 0 if its columns are like its rows.
    pub stated: u64,
    /// Number of own rows.
    pub rows: u64,
    /// Number of own columns, if it is stated.
    pub columns: u64,
}

impl Facts {
    pub const BYTES: usize = 64;

    pub fn words(&self) -> [u64; 8] {
        [
            self.size,
            self.value_bytes,
            self.whole,
            self.ncols,
            self.digest,
            self.stated,
            self.rows,
            self.columns,
        ]
    }

    /// Reads the facts of all ranks.
    pub fn read(bytes: &[u8]) -> Vec<Self> {
        let facts = bytes.chunks_exact(Facts::BYTES).map(|bytes| {
            let [size, value_bytes, whole, ncols, digest, stated, rows, columns] =
                bytemuck::pod_read_unaligned(bytes);
            Facts { size, value_bytes, whole, ncols, digest, stated, rows, columns }
        });
        facts.collect()
    }
}

/// A fact with its name, and the remedy where ranks disagree.
type Shared = (fn(&Facts) -> u64, &'static str, &'static str);

/// Facts that are the same on all ranks.
const SHARED: [Shared; 6] = [
    (|facts| facts.size, "the number of ranks", "give each rank that of its exchange"),
    (|facts| facts.value_bytes, "the size of a value in bytes", "use f32 or f64 on all ranks"),
    (
        |facts| facts.whole,
        "the form of the matrix (1 whole, 0 own rows)",
        "call prepare_whole on all ranks, or prepare_rows on all",
    ),
    (|facts| facts.ncols, "the number of columns", "columns of own rows are numbered globally"),
    (
        |facts| facts.digest,
        "the hash of pattern and division",
        "give all ranks the same matrix and the same split",
    ),
    (
        |facts| facts.stated,
        "own columns (1 stated, 0 like the rows)",
        "state their number on all ranks or on none",
    ),
];

/// Checks that the facts of all ranks fit each other. All ranks find the same fault.
///
/// # Errors
/// [`Error::Argument`] with the numbers of both ranks.
pub(super) fn check(all: &[Facts]) -> Result<()> {
    for (fact, name, remedy) in SHARED {
        let first = fact(&all[0]);
        if let Some(other) = all.iter().position(|facts| fact(facts) != first) {
            return Err(Error::argument(format!(
                "ranks disagree: {name} is {first} on rank 0 and {} on rank {other}; {remedy}",
                fact(&all[other])
            )));
        }
    }
    Ok(())
}

/// Returns the bounds of the ranks' rows and columns, for ranks that have their own rows.
///
/// # Errors
/// [`Error::Argument`] if the numbers of rows or columns do not add up, with the number of each rank.
pub(super) fn bounds(all: &[Facts]) -> Result<[Vec<usize>; 2]> {
    let ncols = all[0].ncols;
    let total = |count: fn(&Facts) -> u64| all.iter().map(count).fold(0, u64::saturating_add);
    let nrows = total(|facts| facts.rows);
    if nrows > MAX_DIMENSION as u64 {
        return Err(Error::argument(format!(
            "the ranks have {nrows} rows in all; at most {MAX_DIMENSION} fit the 32-bit indices"
        )));
    }
    let counts = |count: fn(&Facts) -> u64| offsets(all.iter().map(|facts| count(facts) as usize));
    let rows = counts(|facts| facts.rows);
    if all[0].stated == 0 {
        if nrows != ncols {
            return Err(Error::argument(format!(
                "the ranks have {nrows} rows in all ({}), but {ncols} columns; correct the rows, or \
                 state the number of own columns of a rectangular matrix",
                listed(all, |facts| facts.rows)
            )));
        }
        return Ok([rows.clone(), rows]);
    }
    let columns = total(|facts| facts.columns);
    if columns != ncols {
        return Err(Error::argument(format!(
            "the ranks own {columns} columns in all ({}), but the matrix has {ncols}; correct the \
             numbers of own columns",
            listed(all, |facts| facts.columns)
        )));
    }
    Ok([rows, counts(|facts| facts.columns)])
}

/// Lists a number of the first ranks.
fn listed(all: &[Facts], number: fn(&Facts) -> u64) -> String {
    let first: Vec<String> = all.iter().take(8).map(|facts| number(facts).to_string()).collect();
    first.join(" + ") + if all.len() > 8 { " + ..." } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(rows: &[u64]) -> Vec<Facts> {
        let one = |&rows: &u64| Facts {
            size: 3,
            value_bytes: 8,
            whole: 0,
            ncols: 10,
            digest: 0,
            stated: 0,
            rows,
            columns: 0,
        };
        rows.iter().map(one).collect()
    }

    fn message(fault: Result<impl std::fmt::Debug>) -> String {
        fault.expect_err("a fault").to_string()
    }

    #[test]
    fn facts_survive_their_way() {
        let all = facts(&[3, 7, 0]);
        let words: Vec<u64> = all.iter().flat_map(Facts::words).collect();
        assert_eq!(Facts::read(bytemuck::cast_slice(&words)), all);
    }

    #[test]
    fn disagreement_names_two_ranks_and_their_numbers() {
        let mut all = facts(&[3, 7, 0]);
        assert!(check(&all).is_ok());
        all[2].ncols = 11;
        let fault = message(check(&all));
        assert!(fault.contains("columns is 10 on rank 0 and 11 on rank 2; "), "{fault}");
        all[1].size = 4;
        assert!(message(check(&all)).contains("ranks is 3 on rank 0 and 4 on rank 1"));
    }

    #[test]
    fn rows_and_columns_add_up() {
        assert_eq!(bounds(&facts(&[3, 7, 0])).expect("10 rows"), [[0, 3, 10, 10]; 2]);
        let fault = message(bounds(&facts(&[3, 6, 0])));
        assert!(fault.contains("9 rows in all (3 + 6 + 0), but 10 columns"), "{fault}");
        let mut all = facts(&[3, 6, 5]);
        all.iter_mut().for_each(|facts| (facts.stated, facts.columns) = (1, 4));
        assert!(message(bounds(&all)).contains("own 12 columns in all (4 + 4 + 4)"));
        all[1].columns = 2;
        assert_eq!(bounds(&all).expect("10 columns"), [[0, 3, 9, 14], [0, 4, 6, 10]]);
        let all = facts(&[u64::from(u32::MAX), 1, 0]);
        assert!(message(bounds(&all)).contains("4294967296 rows in all"));
    }
}
