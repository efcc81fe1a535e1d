//! Parts whose products take equal times, as far as the devices' tuners predict them.

use std::sync::Arc;

use super::columns_like;
use super::halo::{self, Columns};
use super::part::of_part;
use super::split::by_shares;
use crate::choose::{Effort, Workload};
use crate::csr::CsrRef;
use crate::error::Result;
use crate::partition::{Group, Partition};
use crate::scalar::Scalar;
use crate::tuner::Tuner;

/// Divisions that are tried at most.
const ROUNDS: usize = 4;

/// Excess of the slowest part over the mean that is not worth another round.
const UNEVEN: f64 = 0.02;

/// Divides the rows into neighbouring ones, so that the predicted times of the parts' products are
/// about equal. The first division is by equal entries, a later one by the speeds that were predicted for
/// the one before; the one whose slowest part is fastest is taken.
///
/// # Errors
/// As [`Tuner::recommend`].
pub(super) fn equal_times<T: Scalar>(
    tuners: &[Arc<Tuner>],
    csr: CsrRef<'_, T>,
    workload: &Workload,
) -> Result<Partition> {
    let workload = Workload { effort: Effort::Predict, ..of_part(workload) };
    let mut speeds = vec![1.0; tuners.len()];
    let mut best: Option<(f64, Partition)> = None;
    for _ in 0..ROUNDS {
        let partition = Partition::of_neighbours(by_shares(csr.pattern(), &speeds));
        let times = times(tuners, csr, &partition, &workload)?;
        let slowest = times.iter().fold(0.0, |most: f64, &time| most.max(time));
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        let weights = partition.bounds.windows(2).map(|ends| {
            let row_ptr = csr.pattern().row_ptr();
            (row_ptr[ends[1]] - row_ptr[ends[0]] + ends[1] - ends[0]) as f64
        });
        for ((speed, weight), time) in speeds.iter_mut().zip(weights).zip(&times) {
            if weight > 0.0 && *time > 0.0 {
                *speed = weight / time;
            }
        }
        let even = slowest <= (1.0 + UNEVEN) * mean;
        if best.as_ref().is_none_or(|(least, _)| slowest < *least) {
            best = Some((slowest, partition));
        }
        if even {
            break;
        }
    }
    let equal = || Partition::of_neighbours(by_shares(csr.pattern(), &speeds));
    Ok(best.map_or_else(equal, |(_, partition)| partition))
}

/// Predicts the time of each part's product, in seconds; 0 for parts without entries.
fn times<T: Scalar>(
    tuners: &[Arc<Tuner>],
    csr: CsrRef<'_, T>,
    rows: &Partition,
    workload: &Workload,
) -> Result<Vec<f64>> {
    let numbers = Columns::of(&columns_like(rows, csr.ncols()));
    let time = |(part, tuner): (usize, &Arc<Tuner>)| {
        let own = rows.of(part);
        let group = Group::all(0..own.len(), true);
        let (_, matrices) = halo::local(csr, own, &[group], &numbers, part)?;
        let Some(local) = matrices.first().filter(|local| local.nnz() > 0) else { return Ok(0.0) };
        let choice = tuner.recommend(local, workload)?;
        Ok(choice.ranking.first().map_or(0.0, |chosen| chosen.spmv_s))
    };
    tuners.iter().enumerate().map(time).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sharded::Split;

    fn tuners(names: &[&str]) -> Vec<Arc<Tuner>> {
        names.iter().map(|name| Arc::new(Tuner::open(name).expect("it ships"))).collect()
    }

    #[test]
    fn the_slowest_part_is_no_slower_than_with_equal_entries() {
        let csr = crate::generate::by_name("power_law", 60_000, 1).expect("a class");
        let (csr, workload) = (csr.as_ref(), Workload::default());
        for names in [["h200", "cpu"], ["cpu", "cpu"], ["h100", "h200"]] {
            let tuners = tuners(&names);
            let slowest = |rows: &Partition| {
                let times = times(&tuners, csr, rows, &workload).expect("predicted");
                times.into_iter().fold(0.0, f64::max)
            };
            let equal = Split::EqualNonzeros.partition(csr.pattern(), 2).expect("it applies");
            let rows = equal_times(&tuners, csr, &workload).expect("predicted");
            assert!(slowest(&rows) <= slowest(&equal), "{names:?}: {:?}", rows.bounds);
            if names == ["h200", "cpu"] {
                assert!(rows.bounds[1] > csr.nrows() / 2, "{:?}", rows.bounds);
            }
        }
    }

    #[test]
    fn matrices_with_nothing_in_them_are_divided() {
        for (nrows, ncols) in [(0, 0), (0, 9), (9, 0), (9, 9)] {
            let csr = crate::Csr::<f64>::from_triplets(nrows, ncols, []).expect("in range");
            let rows = equal_times(&tuners(&["cpu"; 3]), csr.as_ref(), &Workload::default());
            assert_eq!(rows.expect("predicted").bounds.last(), Some(&nrows));
        }
    }
}
