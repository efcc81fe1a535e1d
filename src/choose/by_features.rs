//! Choosing by features alone, of a matrix that a GPU holds.

use super::stay::entries;
use super::{Choice, Entry, Workload, baseline, incumbent, is_csr, ranked, settle};
use crate::cost::Cost;
use crate::device::Device;
use crate::features::Features;
use crate::format::Candidate;

/// The candidate with the least total by what features alone tell of some, behind it the others;
/// what a conversion refuses is found out when it is tried. None for sizes that an incumbent may
/// refuse.
///
/// No layout was reckoned: all are said to take the bytes of CSR.
pub fn by_features(
    features: Features,
    device: &Device,
    workload: &Workload,
    told: &[(&Candidate, Cost)],
) -> Option<Choice> {
    let [nrows, ncols, nnz] = ["nrows", "ncols", "nnz"].map(|name| features.get(name));
    let size = [nrows? as usize, ncols? as usize, nnz? as usize];
    // What multiplies the CSR arrays can always be had.
    let mut all = entries(size, device, workload)?;
    all.retain(|entry| is_csr(&entry.candidate));
    let bytes = all.first()?.cost.bytes;
    for &(candidate, cost) in told {
        let cost = Cost { bytes, ..cost };
        match all.iter_mut().find(|entry| entry.candidate == *candidate) {
            Some(entry) => entry.cost = Cost { convert_s: 0.0, update_s: 0.0, ..cost },
            None => all.push(Entry { candidate: candidate.clone(), cost, estimate: None }),
        }
    }
    all.sort_by(|a, b| a.cost.total_s(workload).total_cmp(&b.cost.total_s(workload)));
    let costs: Vec<_> = all.iter().map(|entry| (&entry.candidate, &entry.cost)).collect();
    let winner = most_trusted(&costs, device.margin, workload)?.0.clone();
    let taken = all.iter().position(|entry| entry.candidate == winner)?;
    all[..=taken].rotate_right(1);
    let (base, winner) = (incumbent(&all)?, &all[0]);
    let explanation = format!(
        "{} for {} products: by features alone, which {} counts itself, a product is thought to take \
         {:.2} us of {:.2} us in {}, and its conversion {:.0} us. No layout was reckoned, so that \
         bytes are those of CSR; a closer look would take longer than it is thought to save.",
        winner.candidate,
        workload.spmvs,
        device.name,
        winner.cost.spmv_s * 1e6,
        base.cost.spmv_s * 1e6,
        base.candidate,
        winner.cost.convert_s * 1e6,
    );
    Some(Choice {
        candidate: winner.candidate.clone(),
        ranking: all.iter().map(|entry| ranked(entry, &base.cost, workload)).collect(),
        refused: Vec::new(),
        features,
        device: device.name.clone(),
        precision: workload.precision,
        spmvs: workload.spmvs,
        fingerprint: None,
        explanation: vec![explanation],
    })
}

/// What features alone tell is taken for less than CSR where it is by this share at least, or by the
/// device's margin where that is more: of an H200's records in single precision, 0.58 % are slower by
/// over 2 % for 100 products with 0.06 of it, 0.42 % with this.
const ERROR: f64 = 0.1;

/// The one to take of candidates sorted by their total ([`settle`]): the incumbent, or one that is
/// thought to take so much less that there is room for error.
pub fn most_trusted<'a>(
    sorted: &[(&'a Candidate, &'a Cost)],
    margin: f64,
    workload: &Workload,
) -> Option<(&'a Candidate, &'a Cost)> {
    let stay = baseline(|name| sorted.iter().find(|(candidate, _)| candidate.to_string() == name));
    let stay_s = stay.map_or(f64::INFINITY, |(_, cost)| cost.total_s(workload));
    let mut able = sorted.to_vec();
    able.retain(|(candidate, cost)| {
        let stays = stay.is_some_and(|(stay, _)| stay == candidate);
        stays || cost.total_s(workload) * (1.0 + margin.max(ERROR)) <= stay_s
    });
    able.get(settle(&able, |&one| one, workload)).copied()
}

/// Seconds until the features of a matrix are known that a GPU holds, and times told by them: on an
/// H200 (`tests/results/features.md`), where rows differ more than `cv` (standard deviation over
/// mean) 0.5 up to this.
pub fn counted_s(nnz: u64, cv: f64) -> f64 {
    const ALL_S: f64 = 115e-6;
    const ENTRY_S: f64 = 1.5e-12;
    const UNEVEN_S: f64 = 60e-6;
    ALL_S + ENTRY_S * nnz as f64 + if cv > 0.5 { UNEVEN_S } else { 0.0 }
}

/// Whether a closer look may pay on a matrix that a GPU holds, of so many nonzeros and seconds of a
/// product: its pattern is copied to the host, which finds what all layouts would hold. What that
/// took on 16 processors is the median of the matrices that ship; what it saves, the mean.
pub fn looks_closer(nnz: u64, stay_s: f64, spmvs: u64) -> bool {
    const ALL_S: f64 = 4.5e-3;
    const ENTRY_S: f64 = 1e-9;
    const SAVES: f64 = 0.03;
    spmvs as f64 * stay_s * SAVES > ALL_S + ENTRY_S * nnz as f64
}

#[cfg(test)]
mod tests {
    use super::super::{CSR, INCUMBENTS};
    use super::*;
    use crate::cost::Source;

    fn told(spmv_us: f64, convert_us: f64) -> Cost {
        let [spmv_s, convert_s] = [spmv_us, convert_us].map(|us| us * 1e-6);
        Cost { convert_s, update_s: convert_s, spmv_s, bytes: 0, source: Source::Predicted }
    }

    #[test]
    fn the_least_total_is_taken_and_csr_is_always_there() {
        let device = crate::device::find("h200").expect("shipped");
        let hll: Candidate = "hll:hack=32,sort=none,tpr=1,col=32".parse().expect("a candidate");
        let csr: Candidate = CSR.parse().expect("a candidate");
        let costs = [(&hll, told(4.0, 300.0)), (&csr, told(6.0, 500.0))];
        for (spmvs, first) in [(100, CSR), (1000, &hll.to_string())] {
            let workload = Workload { spmvs, ..Workload::default() };
            let features = Features::at_size([30_000, 30_000, 2_000_000]);
            let choice = by_features(features, &device, &workload, &costs).expect("entries");
            assert_eq!(choice.candidate.to_string(), first, "{choice:?}");
            assert_eq!((choice.ranking.len(), choice.fingerprint), (3, None));
            assert_eq!(choice.ranking[0].candidate, choice.candidate);
            assert!(choice.ranking.iter().any(|r| r.candidate.to_string() == INCUMBENTS[0]));
            let csr = choice.ranked(&csr).expect("it is there");
            assert_eq!(csr.convert_s, 0.0, "the arrays are there already");
            assert!(choice.explanation[0].contains("by features alone"), "{choice:?}");
        }
        let huge = Features::at_size([1 << 20, 1 << 20, 1 << 40]);
        assert_eq!(by_features(huge, &device, &Workload::default(), &costs), None);
    }

    #[test]
    fn closer_looks_are_for_many_products() {
        assert!(!looks_closer(2_000_000, 12e-6, 10_000) && looks_closer(2_000_000, 12e-6, 100_000));
        assert!(
            !looks_closer(30_000_000, 100e-6, 1000) && looks_closer(30_000_000, 100e-6, 20_000)
        );
        assert!(counted_s(1000, 2.0) > counted_s(1000, 0.1));
    }
}
