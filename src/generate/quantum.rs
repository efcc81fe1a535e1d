//! Electrons coupled to lattice vibrations.

use super::random::{hash, unit};
use crate::assemble::by_rows;
use crate::csr::Csr;

/// Sites of the ring and number of electrons; half of the electrons have each spin.
const SITES: usize = 6;
/// Vibration modes; the uniform mode of the ring only shifts the energy and is left out.
const MODES: usize = SITES - 1;
/// Ways to place 3 electrons of one spin on 6 sites.
const PLACINGS: usize = 20;

/// Generates the Holstein-Hubbard Hamiltonian of 6 electrons on a ring of 6 sites with about `rows`
/// rows: 400 electron states times the first vibration states, those with the fewest phonons first.
/// Up to 15 phonons in total have 15,504 states: 6,201,600 rows, the size of the matrix HMEp (M.
/// Kreutzer, G. Hager, G. Wellein, H. Fehske, A. Basermann, A. R. Bishop, Sparse matrix-vector
/// multiplication on GPGPU clusters: A new storage format and a scalable implementation, 2012,
/// section 1.3).
///
/// ```text
///     | V T . |     T: an electron moves, the vibrations stay: diagonals far from the main one,
///     | T V T |        as long as there are states of the vibrations
///     | . T V |     V: one phonon more or less
/// ```
///
/// Symmetric. The coupling strength and the repulsion of electrons depend on the seed.
pub fn holstein_hubbard(rows: usize, seed: u64) -> Csr<f64> {
    let electrons = PLACINGS * PLACINGS;
    let vibrations = ((rows + electrons / 2) / electrons).max(1);
    let placings: Vec<u32> =
        (0u32..1 << SITES).filter(|mask| mask.count_ones() as usize == SITES / 2).collect();
    let moves: Vec<Vec<usize>> = placings.iter().map(|&mask| moves(mask, &placings)).collect();
    let coupling = 0.5 + unit(hash(seed, 0, 0));
    let repulsion = 2.0 + 4.0 * unit(hash(seed, 1, 0));
    // Coupling of each electron state to each vibration mode.
    let pulls: Vec<[f64; MODES]> = (0..electrons)
        .map(|e| {
            let (up, down) = (placings[e / PLACINGS], placings[e % PLACINGS]);
            std::array::from_fn(|mode| coupling * pull(mode, up, down))
        })
        .collect();
    by_rows(electrons * vibrations, electrons * vibrations, |i, row| {
        let (e, v) = (i / vibrations, i % vibrations);
        let (up, down) = (e / PLACINGS, e % PLACINGS);
        let mut push = |e: usize, v: usize, value: f64| {
            if value.abs() > 1e-12 {
                row.push(((e * vibrations + v) as u32, value));
            }
        };
        moves[up].iter().for_each(|&up| push(up * PLACINGS + down, v, -1.0));
        moves[down].iter().for_each(|&down| push(up * PLACINGS + down, v, -1.0));
        let phonons = phonons_of(v);
        let both = (placings[up] & placings[down]).count_ones();
        push(e, v, 1.0 + repulsion * f64::from(both) + phonons.iter().sum::<usize>() as f64);
        for mode in 0..MODES {
            let mut other = phonons;
            other[mode] += 1;
            let more = number_of(&other);
            if more < vibrations {
                push(e, more, pulls[e][mode] * (other[mode] as f64).sqrt());
            }
            if phonons[mode] > 0 {
                other[mode] -= 2;
                push(e, number_of(&other), pulls[e][mode] * (phonons[mode] as f64).sqrt());
            }
        }
    })
}

/// Returns the placings that one electron reaches by a step to a free neighbour. Around a ring an
/// electron passes two others, so no step changes the sign.
fn moves(mask: u32, placings: &[u32]) -> Vec<usize> {
    let step = |site: usize| {
        let ends = 1 << site | 1 << ((site + 1) % SITES);
        ((mask & ends).count_ones() == 1).then_some(mask ^ ends)
    };
    (0..SITES).filter_map(step).filter_map(|to| placings.iter().position(|&p| p == to)).collect()
}

/// Returns the coupling of these electrons to a standing wave; the waves are shifted against the
/// sites.
fn pull(mode: usize, up: u32, down: u32) -> f64 {
    let wave = (mode / 2 + 1) as f64;
    let shift = 0.3 + (mode % 2) as f64 * 0.25 * SITES as f64 / wave;
    let at = |site: usize| {
        let electrons = f64::from((up >> site & 1) + (down >> site & 1));
        let angle = std::f64::consts::TAU * wave * (site as f64 + shift) / SITES as f64;
        electrons * angle.cos()
    };
    (0..SITES).map(at).sum::<f64>() * (2.0 / SITES as f64).sqrt()
}

/// Returns the number of ways to distribute up to `most` phonons over `modes` modes.
fn ways(most: usize, modes: usize) -> usize {
    (1..=modes).fold(1, |product, k| product * (most + k) / k)
}

/// Returns the number of a vibration state. States are ordered by their total of phonons, then by
/// the phonons in all modes but the first, and so on.
fn number_of(phonons: &[usize; MODES]) -> usize {
    let mut left: usize = phonons.iter().sum();
    let mut number = 0;
    for (k, count) in phonons.iter().enumerate() {
        if left > 0 {
            number += ways(left - 1, MODES - k);
        }
        left -= count;
    }
    number
}

/// Returns the vibration state with this number.
fn phonons_of(mut number: usize) -> [usize; MODES] {
    // Phonons of each mode and all modes after it; 0 past the last mode.
    let mut left = [0; MODES + 1];
    for (k, left) in left.iter_mut().enumerate().take(MODES) {
        let fits = |&count: &usize| ways(count - 1, MODES - k) <= number;
        if let Some(count) = (1..).take_while(fits).last() {
            *left = count;
            number -= ways(count - 1, MODES - k);
        }
    }
    std::array::from_fn(|k| left[k] - left[k + 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_matrix_has_its_number_of_rows() {
        assert_eq!(ways(15, MODES), 15_504);
        assert_eq!(PLACINGS * PLACINGS * ways(15, MODES), 6_201_600);
        let csr = holstein_hubbard(8400, 1);
        assert_eq!(csr.nrows(), 400 * ways(2, MODES));
    }

    #[test]
    fn states_of_vibrations_are_numbered_without_gaps() {
        let mut before = 0;
        for number in 0..5000 {
            let phonons = phonons_of(number);
            assert_eq!(number_of(&phonons), number, "{phonons:?}");
            let sum = phonons.iter().sum();
            assert!(sum >= before, "{number}");
            before = sum;
        }
    }

    #[test]
    fn electrons_move_along_diagonals_as_long_as_the_vibrations() {
        let csr = holstein_hubbard(400 * 252, 1);
        let far = |i: usize| csr.row(i).0.iter().filter(move |&&j| i.abs_diff(j as usize) >= 252);
        // 3.6 steps of each spin, on average.
        let steps: usize = (0..csr.nrows()).map(|i| far(i).count()).sum();
        assert_eq!(steps * 10, csr.nrows() * 72);
        for i in (0..csr.nrows()).filter(|i| i % 252 != 251) {
            let next: Vec<u32> = far(i).map(|j| j + 1).collect();
            assert!(far(i + 1).eq(&next), "row {i}");
        }
    }
}
