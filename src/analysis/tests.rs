use super::*;
use crate::choose::Workload;
use crate::cost::works;
use crate::csr::Csr;
use crate::device;
use crate::features::Features;
use crate::format::{Basis, Candidate, Target, candidates};
use crate::generate;
use crate::model::gate::sectors;
use crate::scalar::Precision;

fn matrix(class: &str, rows: usize) -> Csr<f64> {
    let csr = generate::by_name(class, rows, 1).expect("a class");
    assert!(csr.nnz() > WHOLE, "{class} has {} entries", csr.nnz());
    csr
}

#[test]
fn a_small_matrix_is_analysed_as_a_whole() {
    let csr = generate::by_name("heat", 5000, 1).expect("a class");
    assert!(Analysis::sampled(&csr).is_whole());
    assert_eq!(Features::of(&Analysis::sampled(&csr)), Features::of(&Analysis::of(&csr)));
}

#[test]
fn a_sample_is_the_same_whenever_it_is_taken() {
    let csr = matrix("rmat", 30_000);
    assert_eq!(Features::of(&Analysis::sampled(&csr)), Features::of(&Analysis::sampled(&csr)));
}

#[test]
fn what_lengths_tell_is_exact_in_a_sample() {
    let csr = matrix("power_law", 100_000);
    let (some, whole) = (Analysis::sampled(&csr), Analysis::of(&csr));
    let (seen, known) = (Features::of(&some), Features::of(&whole));
    for name in ["row_nnz_max", "row_nnz_gini", "hll_padding_32", "window_padding_512"] {
        assert_eq!(seen.get(name), known.get(name), "{name}");
    }
    let h200 = device::find("h200").expect("shipped");
    let target = Workload::default().target(&h200, Precision::F64);
    for name in ["csr", "jad", "pjds:br=32", "biell", "hyb", "pcsr:kernel=fused,tile=1024"] {
        let candidate: Candidate = name.parse().expect("a candidate");
        let bytes = |analysis| candidate.work(analysis, &target).map(|work| work.layout_bytes);
        assert_eq!(bytes(&some), bytes(&whole), "{name}");
    }
}

#[test]
fn estimates_from_a_sample_are_near() {
    let h200 = device::find("h200").expect("shipped");
    let target = Workload::default().target(&h200, Precision::F64);
    for (class, rows) in [("elasticity", 20_000), ("stencil27", 40_000), ("p2", 40_000)] {
        let csr = matrix(class, rows);
        let (some, whole) = (Analysis::sampled(&csr), Analysis::of(&csr));
        for ((candidate, seen), (_, known)) in
            works(&some, &target).iter().zip(works(&whole, &target).iter())
        {
            let (Ok(seen), Ok(known)) = (seen, known) else { continue };
            let off = |a: f64, b: f64| (a / b - 1.0).abs();
            let bytes = off(seen.stream_bytes as f64, known.stream_bytes as f64);
            let sectors = off(seen.x_sectors, known.x_sectors);
            assert!(bytes < 0.1, "{class}, {candidate}: {bytes} off in bytes");
            assert!(sectors < 0.15, "{class}, {candidate}: {sectors} off in sectors");
        }
    }
}

#[test]
fn sectors_without_an_analysis_equal_the_feature() {
    for class in ["stencil7", "elasticity", "p2", "uniform", "rmat", "circuit"] {
        let csr = generate::by_name(class, 60_000, 1).expect("a class");
        let analysis = Analysis::sampled(&csr);
        let features = Features::of(&analysis);
        for precision in Precision::ALL {
            let seen = analysis.x_sectors_at_sight(precision);
            let known = features.get(sectors(precision)).expect("a feature");
            assert!((seen / known - 1.0).abs() < 0.25, "{class}: {seen}, not {known}");
        }
    }
    let empty = Csr::<f64>::new(3, 3, vec![0; 4], Vec::new(), Vec::new()).expect("valid");
    assert_eq!(Analysis::of(&empty).x_sectors_at_sight(Precision::F64), 0.0);
}

#[test]
fn full_columns_are_found_from_a_sample() {
    let csr = matrix("rmat", 60_000);
    let (some, whole) = (Features::of(&Analysis::sampled(&csr)), Features::of(&Analysis::of(&csr)));
    for name in ["hub_share_14336", "hub_share_1pct", "column_nnz_max"] {
        let [seen, known] = [&some, &whole].map(|f| f.get(name).expect("a feature"));
        assert!((seen / known - 1.0).abs() < 0.2, "{name}: {seen}, not {known}");
    }
    // Columns of a mesh are all alike: none is met more often than by chance.
    let csr = matrix("stencil27", 60_000);
    let share = Features::of(&Analysis::sampled(&csr)).get("hub_share_1pct").expect("a feature");
    assert!((0.008..0.015).contains(&share), "{share}");
}

#[test]
fn layouts_are_made_from_all_entries_whatever_was_estimated() {
    let csr = matrix("elasticity", 10_000);
    let cpu = device::find("cpu").expect("shipped");
    let target = Workload::default().target(&cpu, Precision::F64);
    for candidate in candidates(cpu.kind) {
        let bytes = |analysis: &Analysis<'_>| {
            let layout = candidate.convert(&csr, analysis, &target).map_err(|e| e.to_string());
            layout.map(|layout| layout.bytes())
        };
        assert_eq!(bytes(&Analysis::sampled(&csr)), bytes(&Analysis::of(&csr)), "{candidate}");
    }
}

#[test]
fn what_a_sample_has_missed_is_refused_when_the_layout_is_made() {
    let nrows = 100_000;
    let far = |row: usize| {
        let band = (0..nrows).flat_map(|i| (i..(i + 4).min(nrows)).map(move |j| (i, j, 1.0)));
        Csr::<f64>::from_triplets(nrows, nrows, band.chain([(row, nrows - 1, 1.0)]))
            .expect("indices are in range")
    };
    let cpu = device::find("cpu").expect("shipped");
    let target =
        Target { basis: Basis::Original, ..Workload::default().target(&cpu, Precision::F64) };
    let narrow: Candidate = "hll:col=16".parse().expect("a candidate");
    let missed = (0..32)
        .map(|hack| far(32 * hack))
        .find(|csr| narrow.work(&Analysis::sampled(csr), &target).is_ok());
    let csr = missed.expect("a sample misses most hacks");
    assert!(narrow.work(&Analysis::of(&csr), &target).is_err());
    let made = narrow.convert(&csr, &Analysis::sampled(&csr), &target);
    let error = made.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("a slice spans"), "{error}");
}
