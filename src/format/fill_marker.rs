//! Layouts that store places without an entry among the values: dia, hdia and bhll.
//!
//! Fill is marked by its value, -0.0, so that no mask is held beside the values: an entry that is
//! -0.0 is stored as 0.0, which compares equal and multiplies alike. Fill is never multiplied, so
//! Inf and NaN in x cannot reach a wrong row.

use super::Refusal;
use super::row_order::allowed_slots;
use crate::scalar::Scalar;

/// The value of a place without an entry.
pub(super) fn fill<T: Scalar>() -> T {
    T::from_f64(-0.0)
}

/// An entry as it is stored.
#[inline(always)]
pub(super) fn entry<T: Scalar>(value: T) -> T {
    // -0.0 + 0.0 is 0.0; any other value stays what it is.
    value + T::ZERO
}

/// `value * x`, 0 for fill.
#[inline(always)]
pub(super) fn product<T: Scalar>(value: T, x: T) -> T {
    if value.is_negative_zero() { T::ZERO } else { value * x }
}

/// Checks that fill is in proportion.
///
/// # Errors
/// [`Refusal`] with needed and allowed slots.
pub(super) fn check(what: &str, slots: u128, nnz: usize) -> Result<u64, Refusal> {
    let allowed = allowed_slots(nnz as u64);
    if slots <= u128::from(allowed) {
        return Ok(slots as u64);
    }
    Err(Refusal::new(format!("{what} take {slots} slots for {nnz} entries, {allowed} are allowed")))
}
