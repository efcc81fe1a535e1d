//! Values in f32 with vectors in f64: formats that store them exactly where f32 holds them, and rounded
//! where the caller allows it.

use ellect::analysis::Analysis;
use ellect::choose::{Choice, Effort, ValuesUse};
use ellect::cost::Source;
use ellect::device::{self, Device, Kind};
use ellect::format::{Candidate, StoredValues, Target, candidates};
use ellect::{Csr, Precision, PreparedOperator, Tuner, Workload, check, generate};

/// Largest error of a rounded value, as a share of it.
const ROUNDING: f64 = 1.0 / (1 << 24) as f64;

fn h200() -> Device {
    device::find("h200").expect("shipped")
}

fn target(device: &Device, stored: StoredValues) -> Target<'_> {
    Workload { stored, ..Workload::default() }.target(device, Precision::F64)
}

/// Returns the candidates that apply to the pattern of [`matrices`] of 600 rows, in the original basis.
fn unordered() -> Vec<Candidate> {
    let (device, [whole, _]) = (h200(), matrices(600));
    let (target, analysis) = (target(&device, StoredValues::Exact), Analysis::of(&whole));
    let mut all = narrow();
    all.retain(|candidate| !candidate.to_string().contains("rcm"));
    all.retain(|candidate| wide(candidate).work(&analysis, &target).is_ok());
    for format in ["csr_f32", "hll_f32", "bhll_f32", "hdia_f32", "st_csr_f32"] {
        assert!(all.iter().any(|candidate| candidate.format.name == format), "{format}");
    }
    all
}

/// Returns the candidate that stores the values of this one in f64.
fn wide(narrow: &Candidate) -> Candidate {
    let name = narrow.format.narrows.expect("narrow");
    narrow.to_string().replacen(narrow.format.name, name, 1).parse().expect("it exists")
}

/// Returns the candidates that store values in f32 and vectors in f64.
fn narrow() -> Vec<Candidate> {
    let mut all = candidates(Kind::Gpu);
    all.retain(|candidate| candidate.format.narrows.is_some());
    assert!(all.len() > 1);
    all
}

/// A matrix with values that f32 holds, and the same matrix with values that it does not.
fn matrices(nrows: usize) -> [Csr<f64>; 2] {
    let csr: Csr<f64> = generate::by_name("elasticity", nrows, 1).expect("a class");
    let whole = csr.map_values(|value| (value * 100_000.0).round() / 64.0);
    let others = csr.map_values(|value| value * 1.1 + 0.1);
    [whole, others]
}

fn product(operator: &PreparedOperator<f64>, csr: &Csr<f64>) -> Vec<f64> {
    let x: Vec<f64> = check::vector(csr.ncols(), 3);
    let mut y = vec![0.0; csr.nrows()];
    operator.apply(1.0, &x, 0.0, &mut y).expect("lengths fit");
    y
}

fn reference(csr: &Csr<f64>) -> Vec<check::RowReference> {
    check::reference(csr, 1.0, &check::vector(csr.ncols(), 3), 0.0, &vec![0.0; csr.nrows()])
}

#[test]
fn values_that_f32_holds_are_stored_exactly_and_others_refused() {
    let (device, [whole, others]) = (h200(), matrices(600));
    let target = target(&device, StoredValues::Exact);
    for candidate in unordered() {
        let operator = PreparedOperator::new(&whole, &candidate, &target).expect("held");
        assert_eq!(operator.rounding(), 0.0);
        assert_eq!(operator.to_csr().expect("on the host"), whole, "{candidate}");
        check::compare("exact", &reference(&whole), &product(&operator, &whole)).expect("right");
        let refused = PreparedOperator::new(&others, &candidate, &target).expect_err("not held");
        let stated = refused.to_string();
        let remedy = "row 0 has a value that f32 does not hold exactly; values=f32 allows";
        assert!(stated.contains(remedy), "{stated}");
        let single = PreparedOperator::new(
            &whole.cast::<f32>(),
            &candidate,
            &Target { precision: Precision::F32, ..target },
        );
        let stated = single.expect_err("32 bits already").to_string();
        assert!(stated.contains("values have 32 bits already"), "{stated}");
    }
}

#[test]
fn by_consent_values_are_rounded_and_rows_err_within_the_bound() {
    let (device, [_, others]) = (h200(), matrices(600));
    let target = target(&device, StoredValues::F32);
    let rounded = others.map_values(|value| f64::from(value as f32));
    for candidate in unordered() {
        let operator = PreparedOperator::new(&others, &candidate, &target).expect("allowed");
        assert_eq!(operator.rounding(), ROUNDING);
        operator.verify(&others, 7).expect("within the bound of rounded values");
        let (name, y) = (candidate.to_string(), product(&operator, &others));
        check::compare(&name, &reference(&rounded), &y).expect("that of the rounded matrix");
        check::compare_rounded(&name, &reference(&others), &y, ROUNDING).expect("within");
        check::compare(&name, &reference(&others), &y).expect_err("more than rounding of f64");
        let wrong: Vec<f64> = y.iter().map(|y| y * 1.00001).collect();
        check::compare_rounded(&name, &reference(&others), &wrong, ROUNDING).expect_err("too far");
        // Other formats store every value exactly.
        let wide: Candidate = "hll".parse().expect("a candidate");
        let wide = PreparedOperator::new(&others, &wide, &target).expect("applies");
        assert_eq!(wide.rounding(), 0.0);
        check::compare("hll", &reference(&others), &product(&wide, &others)).expect("exact");
    }
    let far = others.map_values(|value| if value > 0.5 { 1.0e39 } else { value });
    for candidate in unordered() {
        let stated = PreparedOperator::new(&far, &candidate, &target).expect_err("too large");
        assert!(stated.to_string().contains("beyond the range of f32"), "{stated}");
    }
}

#[test]
fn new_values_that_f32_does_not_hold_are_refused_and_the_old_ones_stay() {
    let (device, [whole, others]) = (h200(), matrices(600));
    for candidate in unordered() {
        let exact = target(&device, StoredValues::Exact);
        let mut operator = PreparedOperator::new(&whole, &candidate, &exact).expect("held");
        let mut values = whole.values().to_vec();
        *values.last_mut().expect("entries") = 0.1;
        let stated = operator.update_values(&values).expect_err("0.1 is not held").to_string();
        let last = format!("row {} has a value", whole.nrows() - 1);
        assert!(stated.contains(&last) && stated.contains("values=f32"), "{stated}");
        assert_eq!(operator.to_csr().expect("on the host"), whole, "{candidate}");
        let doubled = whole.map_values(|value| 2.0 * value);
        operator.update_values(doubled.values()).expect("held");
        assert_eq!(operator.to_csr().expect("on the host"), doubled, "{candidate}");

        let allowed = target(&device, StoredValues::F32);
        let mut operator = PreparedOperator::new(&whole, &candidate, &allowed).expect("held");
        operator.update_values(others.values()).expect("may be rounded");
        operator.verify(&others, 5).expect("within the bound of rounded values");
        values[0] = f64::MAX;
        let stated = operator.update_values(&values).expect_err("beyond f32").to_string();
        assert!(stated.contains("row 0 has a value beyond the range of f32"), "{stated}");
        operator.verify(&others, 5).expect("the old values");
    }
}

/// Returns the answer of the models that ship for an H200.
fn recommend(csr: &Csr<f64>, workload: Workload) -> ellect::choose::Choice {
    let data = tempfile::tempdir().expect("a folder");
    let tuner = Tuner::open_in("h200", data.path()).expect("shipped");
    tuner.recommend(csr, &Workload { spmvs: 1_000_000, ..workload }).expect("an answer")
}

#[test]
fn a_choice_stores_f32_where_it_is_exact_or_allowed_and_says_so() {
    let [whole, others] = matrices(60_000);
    let choice = recommend(&whole, Workload::default());
    assert!(choice.candidate.format.narrows.is_some(), "{}", choice.candidate);
    assert!(
        choice.explanation.iter().any(|text| text.contains("holds them exactly")),
        "{choice:?}"
    );

    let exact = recommend(&others, Workload::default());
    assert!(exact.ranking.iter().all(|ranked| ranked.candidate.format.narrows.is_none()));
    let refused = exact.refused.iter().filter(|one| one.candidate.format.narrows.is_some());
    assert_eq!(refused.count(), narrow().len());

    let allowed = Workload { stored: StoredValues::F32, ..Workload::default() };
    let rounded = recommend(&others, allowed);
    assert!(rounded.candidate.format.narrows.is_some(), "{}", rounded.candidate);
    let bound = "at most 2^-24 * sum_j |a_ij| |x_j|";
    assert!(rounded.explanation.iter().any(|text| text.contains(bound)), "{rounded:?}");
    // Predictions of other formats do not depend on these.
    for ranked in &exact.ranking {
        let other = rounded.ranked(&ranked.candidate).expect("it applies");
        assert_eq!((other.spmv_s, other.convert_s), (ranked.spmv_s, ranked.convert_s));
    }

    // Values that are to change may be rounded, or be refused.
    let values = ValuesUse::Change(10);
    let changing = recommend(&whole, Workload { values, ..Workload::default() });
    assert!(changing.ranking.iter().all(|ranked| ranked.candidate.format.narrows.is_none()));
    let changing = recommend(&whole, Workload { values, ..allowed });
    assert!(changing.ranking.iter().any(|ranked| ranked.candidate.format.narrows.is_some()));
}

#[test]
fn a_model_that_does_not_know_the_format_expects_a_part_of_what_its_estimate_saves() {
    let [whole, _] = matrices(60_000);
    let predicted = recommend(&whole, Workload::default());
    let estimated = recommend(&whole, Workload { effort: Effort::Estimate, ..Workload::default() });
    let mut saving = 0;
    for candidate in narrow() {
        let wide = wide(&candidate);
        let share = |choice: &Choice| {
            let [narrow, wide] = [&candidate, &wide].map(|candidate| choice.ranked(candidate));
            Some(narrow?.spmv_s / wide?.spmv_s)
        };
        let known = predicted.ranked(&candidate).is_some_and(|of| of.source == Source::Predicted);
        let (Some(expected), Some(hoped)) = (share(&predicted), share(&estimated)) else {
            continue;
        };
        if !known {
            continue;
        }
        assert!(hoped.min(1.0) <= expected && expected <= 1.0, "{candidate}: {expected}, {hoped}");
        saving += usize::from(hoped < expected && expected < 1.0);
    }
    assert!(saving > 0);
}

#[test]
fn quick_choices_store_f32_where_it_is_exact_or_allowed() {
    let [whole, others] = matrices(60_000);
    let tuner = Tuner::open("h200").expect("shipped");
    let decide = |csr: &Csr<f64>, stored| {
        let workload = Workload { spmvs: 3000, stored, ..Workload::default() };
        tuner.decide(csr, &workload).expect("an answer")
    };
    for (csr, stored, narrow) in [
        (&whole, StoredValues::Exact, true),
        (&others, StoredValues::Exact, false),
        (&others, StoredValues::F32, true),
    ] {
        let choice = decide(csr, stored);
        assert_eq!(choice.fingerprint, None, "no analysis");
        assert_eq!(choice.candidate.format.narrows.is_some(), narrow, "{choice:?}");
        let said = choice
            .explanation
            .iter()
            .any(|text| text.contains("in f32") || text.contains("to f32"));
        assert_eq!(said, narrow, "{:?}", choice.explanation);
    }
}

#[test]
fn patterns_without_values_are_refused() {
    let csr: Csr<f64> = generate::by_name("heat", 500, 1).expect("a class");
    let (device, analysis) = (h200(), Analysis::new(csr.pattern()));
    let target = target(&device, StoredValues::Exact);
    for candidate in narrow() {
        let reason = candidate.work(&analysis, &target).expect_err("values are unknown");
        assert!(reason.to_string().contains("values are unknown"), "{reason}");
    }
}
