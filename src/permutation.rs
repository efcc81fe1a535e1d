//! Permutations of rows and columns, written `order[new] = old`.

/// Returns the inverse of a permutation: `inverse[order[i]] = i`.
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
