//! Stateless seeded random numbers: any thread can generate the numbers of any row.

use rayon::prelude::*;

use crate::check::mix;
use crate::csr::Csr;
use crate::par;

/// Returns a random number that depends only on the seed and two keys.
pub(super) fn hash(seed: u64, a: u64, b: u64) -> u64 {
    mix(seed ^ mix(a ^ mix(b)))
}

/// Returns [`hash`] of an unordered pair.
pub(super) fn hash_pair(seed: u64, a: usize, b: usize) -> u64 {
    hash(seed, a.min(b) as u64, a.max(b) as u64)
}

/// Converts random bits to a number in (0, 1).
pub(super) fn unit(bits: u64) -> f64 {
    ((bits >> 12) as f64 + 0.5) / (1u64 << 52) as f64
}

/// Converts random bits to a number in (-1, 1).
pub(super) fn signed(bits: u64) -> f64 {
    2.0 * unit(bits) - 1.0
}

/// Returns the pattern of `csr` with random values from (0.5, 1.5), symmetric if the pattern is:
/// for files that hold only a pattern.
pub fn with_drawn_values(csr: &Csr<f64>, seed: u64) -> Csr<f64> {
    let mut drawn = csr.clone();
    let rows = (0..csr.nrows()).flat_map(|i| csr.row(i).0.iter().map(move |&j| (i, j as usize)));
    for (value, (i, j)) in drawn.values_mut().iter_mut().zip(rows) {
        *value = 0.5 + unit(hash_pair(seed, i, j));
    }
    drawn
}

/// A stream of random numbers; each row of a matrix has its own.
pub(super) struct Stream {
    seed: u64,
    drawn: u64,
}

impl Stream {
    pub(super) fn new(seed: u64, row: usize) -> Self {
        Stream { seed: mix(seed ^ mix(row as u64)), drawn: 0 }
    }

    pub(super) fn bits(&mut self) -> u64 {
        self.drawn += 1;
        mix(self.seed ^ self.drawn)
    }

    pub(super) fn unit(&mut self) -> f64 {
        unit(self.bits())
    }

    pub(super) fn signed(&mut self) -> f64 {
        signed(self.bits())
    }

    /// Returns a random whole number below `n`; `n` must not be 0.
    pub(super) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }

    /// Returns a Poisson-distributed number: by multiplication up to a mean of 30, by the normal
    /// distribution above.
    pub(super) fn poisson(&mut self, mean: f64) -> usize {
        if mean > 30.0 {
            // The sum of twelve uniform numbers has variance 1.
            let normal = (0..12).map(|_| self.unit()).sum::<f64>() - 6.0;
            return (mean + mean.sqrt() * normal).round().max(0.0) as usize;
        }
        let (limit, mut product, mut count) = ((-mean).exp(), self.unit(), 0);
        while product > limit {
            product *= self.unit();
            count += 1;
        }
        count
    }
}

/// Returns a random permutation of `0..n`, computed on rayon's current threads.
pub fn random_order(n: usize, seed: u64) -> Vec<u32> {
    ordered_by(n, |i| hash(seed, i as u64, 0))
}

/// Sorts the numbers `0..n` by key; numbers with equal keys keep their order.
pub(super) fn ordered_by(n: usize, key: impl Fn(usize) -> u64 + Sync) -> Vec<u32> {
    sorted(par::map(n, par::GRAIN, |i| (key(i), i as u32)))
}

/// Returns the numbers in the order of their keys.
fn sorted(mut keyed: Vec<(u64, u32)>) -> Vec<u32> {
    keyed.par_sort_unstable();
    keyed.into_iter().map(|(_, i)| i).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poisson_numbers_have_their_mean() {
        for mean in [0.3, 4.0, 100.0] {
            let mut stream = Stream::new(1, 2);
            let total: usize = (0..4000).map(|_| stream.poisson(mean)).sum();
            let found = total as f64 / 4000.0;
            assert!((found - mean).abs() < 5.0 * (mean / 4000.0).sqrt(), "{found} for {mean}");
        }
    }

    #[test]
    fn random_numbers_below_a_bound_take_every_value() {
        let mut stream = Stream::new(3, 4);
        let mut seen = [false; 7];
        (0..200).for_each(|_| seen[stream.below(7)] = true);
        assert_eq!(seen, [true; 7]);
    }

    #[test]
    fn drawn_values_are_symmetric_and_differ() {
        let triplets = [(0, 1, 1.0), (1, 0, 1.0), (1, 1, 1.0), (2, 0, 1.0)];
        let csr = Csr::from_triplets(3, 3, triplets).expect("indices are in range");
        let drawn = with_drawn_values(&csr, 1);
        assert_eq!(drawn.pattern(), csr.pattern());
        let [a, b, c, d] = *drawn.values() else { panic!("four entries") };
        assert_eq!(a, b);
        assert!(a != c && c != d && a != d);
        assert!(drawn.values().iter().all(|&value| 0.5 < value && value < 1.5));
    }

    #[test]
    fn a_random_order_is_a_permutation_that_leaves_few_numbers_in_place() {
        let order = random_order(5000, 1);
        let in_place = order.iter().enumerate().filter(|(i, old)| *i == **old as usize).count();
        assert!(in_place < 10, "{in_place}");
        assert_ne!(order, random_order(5000, 2));
        let mut sorted = order;
        sorted.sort_unstable();
        assert!(sorted.iter().enumerate().all(|(i, &old)| i == old as usize));
    }
}
