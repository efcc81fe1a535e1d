//! Marker of fill for layouts that store places without an entry among the values: dia, hdia, bhll.
//!
//! The value -0.0 marks fill, so that no separate mask is stored. An entry that is -0.0 is stored
//! as 0.0, which compares equal and gives the same products. Fill is never multiplied, so Inf and
//! NaN in x cannot reach a wrong row.

use super::Refusal;
use super::row_order::allowed_slots;
use crate::scalar::Scalar;

/// The value that marks a place without an entry.
pub(super) fn fill<T: Scalar>() -> T {
    T::from_f64(-0.0)
}

/// The stored value of an entry; -0.0 becomes 0.0.
#[inline(always)]
pub(super) fn entry<T: Scalar>(value: T) -> T {
    // -0.0 + 0.0 is 0.0; every other value is unchanged.
    value + T::ZERO
}

/// `value * x`, or 0 for fill.
#[inline(always)]
pub(super) fn product<T: Scalar>(value: T, x: T) -> T {
    if value.is_negative_zero() { T::ZERO } else { value * x }
}

/// Checks that the slots, fill included, do not exceed the limit for `nnz` entries.
///
/// # Errors
/// [`Refusal`] with needed and allowed slots.
pub(super) fn check(what: &str, slots: u128, nnz: usize) -> Result<u64, Refusal> {
    let allowed = allowed_slots(nnz as u64);
    if slots <= u128::from(allowed) {
        return Ok(slots as u64);
    }
    Err(Refusal::new(format!("{what} take {slots} slots for {nnz} entries; {allowed} are allowed")))
}
