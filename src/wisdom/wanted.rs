//! Builds queries for the measurements that a meter would take now.

use super::Wanted;
use crate::fingerprint::Fingerprint;
use crate::format::Basis;
use crate::measure::Meter;
use crate::scalar::Precision;

impl<'a> Wanted<'a> {
    /// Builds a query for the measurements that `meter` would take now.
    ///
    /// `protocol` is the version of the measuring protocol.
    pub fn of(
        meter: &'a Meter,
        fingerprint: Fingerprint,
        precision: Precision,
        basis: Basis,
        protocol: u32,
    ) -> Self {
        let device = &meter.device().name;
        Wanted { fingerprint, device, driver: meter.driver(), precision, basis, protocol }
    }
}
