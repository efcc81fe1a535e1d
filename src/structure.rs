//! A pattern together with what is known of it, computed once and shared by all formats.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::csr::Pattern;
use crate::scalar::Precision;

/// How rows are ordered before they are cut into slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sort {
    /// The matrix's own order.
    None,
    /// Longest first within windows of this many rows.
    Window(usize),
    /// Longest first over the whole matrix.
    All,
}

/// Which entries the 32 lanes of a warp read x for in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Walk {
    /// Consecutive entries of the CSR arrays.
    Entries,
    /// One entry of each of `32 / threads` neighbouring rows (in the order of `sort`), `threads`
    /// consecutive entries a row.
    Rows {
        /// Lanes that share a row: 1, 2, 4, ... 32.
        threads: usize,
        /// The order that the rows are taken in.
        sort: Sort,
    },
}

/// A pattern and its lazily computed properties.
///
/// Formats ask it in their `work` and `convert`; what was computed once is kept.
#[derive(Debug)]
pub struct Structure<'a> {
    pattern: Pattern<'a>,
    lengths: Vec<u32>,
    orders: Mutex<HashMap<Sort, Arc<[u32]>>>,
    sectors: Mutex<HashMap<(Walk, Precision), f64>>,
}

impl<'a> Structure<'a> {
    /// One pass over the row pointers.
    pub fn new(pattern: Pattern<'a>) -> Self {
        let lengths = pattern.row_ptr().windows(2).map(|w| (w[1] - w[0]) as u32).collect();
        Structure { pattern, lengths, orders: Mutex::default(), sectors: Mutex::default() }
    }

    /// The pattern.
    pub fn pattern(&self) -> Pattern<'a> {
        self.pattern
    }

    /// Number of entries of each row.
    pub fn lengths(&self) -> &[u32] {
        &self.lengths
    }

    /// Entries of the longest row.
    pub fn max_length(&self) -> usize {
        self.lengths.iter().copied().max().unwrap_or(0) as usize
    }

    /// Row order: `order[new] = old`, stable, longest row first within each window.
    ///
    /// One counting sort; kept for the next caller.
    pub fn order(&self, sort: Sort) -> Arc<[u32]> {
        let mut orders = lock(&self.orders);
        orders.entry(sort).or_insert_with(|| order(&self.lengths, sort).into()).clone()
    }

    /// Entries of each slice of `slice` rows in `sort` order when padded to its longest row,
    /// as a running sum of `ceil(nrows / slice) + 1` offsets. The last slice counts as full.
    pub fn slice_offsets(&self, slice: usize, sort: Sort) -> Vec<u64> {
        let mut offsets = vec![0u64];
        let mut total = 0;
        let mut push = |longest: u32| {
            total += u64::from(longest) * slice as u64;
            offsets.push(total);
        };
        if sort == Sort::None {
            for rows in self.lengths.chunks(slice) {
                push(rows.iter().copied().max().unwrap_or(0));
            }
        } else {
            for rows in self.order(sort).chunks(slice) {
                push(rows.iter().map(|&row| self.lengths[row as usize]).max().unwrap_or(0));
            }
        }
        offsets
    }

    /// 32-byte sectors of x that one product asks for: distinct ones within a warp step, summed
    /// over all steps. Sampled on at most [`SAMPLED_WARPS`] warps spread evenly; kept.
    pub fn x_sectors(&self, walk: Walk, precision: Precision) -> f64 {
        if let Some(&known) = lock(&self.sectors).get(&(walk, precision)) {
            return known;
        }
        let per_sector = (32 / precision.bytes()) as u32;
        let sectors = match walk {
            Walk::Entries => {
                let steps: Vec<&[u32]> = self.pattern.col_idx().chunks(32).collect();
                sampled(steps.len(), |i| distinct(steps[i].iter().map(|c| c / per_sector)))
            }
            Walk::Rows { threads, sort } => {
                let rows = (32 / threads).max(1);
                let order = (sort != Sort::None).then(|| self.order(sort));
                let row = |i: usize| order.as_ref().map_or(i, |order| order[i] as usize);
                let nrows = self.pattern.nrows();
                sampled(nrows.div_ceil(rows), |warp| {
                    let lanes = warp * rows..((warp + 1) * rows).min(nrows);
                    let lanes: Vec<&[u32]> = lanes.map(|i| self.pattern.row(row(i))).collect();
                    let longest = lanes.iter().map(|lane| lane.len()).max().unwrap_or(0);
                    (0..longest)
                        .step_by(threads)
                        .map(|step| {
                            distinct(lanes.iter().flat_map(|lane| {
                                let end = (step + threads).min(lane.len());
                                lane[step.min(end)..end].iter().map(|c| c / per_sector)
                            }))
                        })
                        .sum()
                })
            }
        };
        lock(&self.sectors).insert((walk, precision), sectors);
        sectors
    }
}

/// The most warps that [`Structure::x_sectors`] looks at.
pub const SAMPLED_WARPS: usize = 2048;

fn sampled(warps: usize, count: impl Fn(usize) -> usize) -> f64 {
    let looked_at = warps.min(SAMPLED_WARPS);
    let total: usize = (0..looked_at).map(|i| count(i * warps / looked_at)).sum();
    total as f64 * warps as f64 / looked_at.max(1) as f64
}

fn distinct(sectors: impl Iterator<Item = u32>) -> usize {
    let mut seen = [0; 32];
    let mut len = 0;
    for sector in sectors {
        seen[len] = sector;
        len += 1;
    }
    let seen = &mut seen[..len];
    seen.sort_unstable();
    usize::from(len > 0) + seen.windows(2).filter(|w| w[0] != w[1]).count()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn order(lengths: &[u32], sort: Sort) -> Vec<u32> {
    let mut order: Vec<u32> = (0..lengths.len() as u32).collect();
    let longest_first = |rows: &mut [u32]| {
        rows.sort_by_key(|&row| std::cmp::Reverse(lengths[row as usize]));
    };
    match sort {
        Sort::None => {}
        Sort::Window(rows) => {
            use rayon::prelude::*;
            order.par_chunks_mut(rows.max(1)).for_each(longest_first);
        }
        Sort::All => longest_first(&mut order),
    }
    order
}

/// The inverse of a permutation: `inverse[order[i]] = i`.
///
/// # Panics
/// If `order` holds an index at or past its length.
pub fn inverse(order: &[u32]) -> Vec<u32> {
    let mut inverse = vec![0; order.len()];
    for (new, &old) in order.iter().enumerate() {
        inverse[old as usize] = new as u32;
    }
    inverse
}
