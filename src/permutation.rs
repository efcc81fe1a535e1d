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

/// Permutes a vector into the permuted basis: `result[new] = vector[order[new]]`.
///
/// # Panics
/// If the lengths differ.
pub fn permute<T: Copy>(vector: &[T], order: &[u32]) -> Vec<T> {
    assert_eq!(vector.len(), order.len(), "vector and order differ in length");
    order.iter().map(|&old| vector[old as usize]).collect()
}

/// Permutes a vector back to the original basis: `result[order[new]] = vector[new]`.
///
/// # Panics
/// If the lengths differ.
pub fn permute_back<T: Copy + Default>(vector: &[T], order: &[u32]) -> Vec<T> {
    assert_eq!(vector.len(), order.len(), "vector and order differ in length");
    let mut result = vec![T::default(); vector.len()];
    for (&value, &old) in vector.iter().zip(order) {
        result[old as usize] = value;
    }
    result
}
