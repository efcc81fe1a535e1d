//! Asking for what a meter would measure now.

use super::Wanted;
use crate::fingerprint::Fingerprint;
use crate::format::Basis;
use crate::measure::Meter;
use crate::scalar::Precision;

impl<'a> Wanted<'a> {
    /// Asks for measurements that this meter would take now, by a protocol of this version.
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
