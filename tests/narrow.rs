//! Values in f32 with vectors in f64, and in f16 or bf16 with vectors in f32: formats that store them
//! exactly where the type holds them, and rounded where the caller allows it.

use ellect::analysis::Analysis;
use ellect::choose::{Choice, Effort, Ranked, ValuesUse};
use ellect::cost::Source;
use ellect::device::{self, Device, Kind};
use ellect::format::{Candidate, StoredValues, Target, candidates};
use ellect::{Csr, Precision, PreparedOperator, Scalar, Tuner, Workload, check, generate};
use half::{bf16, f16};

fn h200() -> Device {
    device::find("h200").expect("shipped")
}

fn target(device: &Device, stored: StoredValues, precision: Precision) -> Target<'_> {
    Workload { stored, ..Workload::default() }.target(device, precision)
}

/// A type that stores values of matrices of `T`, and what it holds.
struct Case<T> {
    stores: StoredValues,
    /// Largest error of a rounded value, as a share of it.
    rounding: f64,
    /// A matrix whose values the type holds, and the same pattern with values that it does not.
    matrices: [Csr<T>; 2],
    /// A size that cannot be rounded.
    beyond: T,
    /// Rounds to the type.
    round: fn(T) -> T,
}

fn of_f32() -> Case<f64> {
    let round = |value: f64| f64::from(value as f32);
    case(StoredValues::F32, 24, 1.0e39, round)
}

fn of_f16() -> Case<f32> {
    case(StoredValues::F16, 11, 1.0e6, |value| f16::from_f32(value).to_f32())
}

fn of_bf16() -> Case<f32> {
    case(StoredValues::BF16, 8, f32::MAX, |value| bf16::from_f32(value).to_f32())
}

fn case<T: Scalar>(stores: StoredValues, bits: i32, beyond: T, round: fn(T) -> T) -> Case<T> {
    let rounding = f64::from(-bits).exp2();
    Case { stores, rounding, matrices: matrices(600, bits.min(20)), beyond, round }
}

/// A matrix with values of at most this many bits, and the same pattern with values of many bits.
fn matrices<T: Scalar>(nrows: usize, bits: i32) -> [Csr<T>; 2] {
    let csr: Csr<f64> = generate::by_name("elasticity", nrows, 1).expect("a class");
    let most = f64::from(bits - 1).exp2();
    let whole = csr.map_values(|value| (value * 100_000.0).round() % most / 64.0);
    let others = csr.map_values(|value| value.abs() * 1.1 + 0.1);
    [whole, others].map(|csr| csr.cast::<T>())
}

/// Returns the candidate that stores the values of this one as they are.
fn wide(narrow: &Candidate) -> Candidate {
    let name = narrow.format.narrows.expect("narrow");
    narrow.to_string().replacen(narrow.format.name, name, 1).parse().expect("it exists")
}

/// Returns the candidates that store values in this type.
fn narrow(stores: StoredValues) -> Vec<Candidate> {
    let mut all = candidates(Kind::Gpu);
    all.retain(|candidate| candidate.format.narrows.is_some());
    all.retain(|candidate| candidate.format.stores == stores);
    assert!(all.len() > 1);
    all
}

impl<T: Scalar> Case<T> {
    /// Returns the candidates that apply to the pattern of [`matrices`], in the original basis.
    fn unordered(&self) -> Vec<Candidate> {
        let device = h200();
        let target = target(&device, StoredValues::Exact, T::PRECISION);
        let analysis = Analysis::of(&self.matrices[0]);
        let mut all = narrow(self.stores);
        all.retain(|candidate| !candidate.to_string().contains("rcm"));
        all.retain(|candidate| wide(candidate).work(&analysis, &target).is_ok());
        for format in ["csr", "hll", "bhll", "hdia", "st_csr"] {
            let name = format!("{format}_{}", self.stores);
            assert!(all.iter().any(|candidate| candidate.format.name == name), "{name}");
        }
        all
    }

    fn product(operator: &PreparedOperator<T>, csr: &Csr<T>) -> Vec<T> {
        let x: Vec<T> = check::vector(csr.ncols(), 3);
        let mut y = vec![T::ZERO; csr.nrows()];
        operator.apply(T::ONE, &x, T::ZERO, &mut y).expect("lengths fit");
        y
    }

    fn reference(csr: &Csr<T>) -> Vec<check::RowReference> {
        let (x, y) = (check::vector(csr.ncols(), 3), vec![T::ZERO; csr.nrows()]);
        check::reference(csr, T::ONE, &x, T::ZERO, &y)
    }

    fn values_that_are_held_are_stored_exactly_and_others_refused(&self) {
        let (device, [whole, others]) = (h200(), &self.matrices);
        let stores = self.stores;
        let target = target(&device, StoredValues::Exact, T::PRECISION);
        for candidate in self.unordered() {
            let operator = PreparedOperator::new(whole, &candidate, &target).expect("held");
            assert_eq!(operator.rounding(), 0.0);
            assert_eq!(&operator.to_csr().expect("on the host"), whole, "{candidate}");
            let y = Self::product(&operator, whole);
            check::compare("exact", &Self::reference(whole), &y).expect("right");
            let refused = PreparedOperator::new(others, &candidate, &target).expect_err("not held");
            let stated = refused.to_string();
            let remedy = format!(
                "row 0 has a value that {stores} does not hold exactly; values={stores} allows"
            );
            assert!(stated.contains(&remedy), "{stated}");
            let stated = match T::PRECISION {
                Precision::F64 => refused_in::<f32, T>(whole, &candidate, &target),
                Precision::F32 => refused_in::<f64, T>(whole, &candidate, &target),
            };
            let reason = match T::PRECISION {
                Precision::F64 => "values have 32 bits already".to_string(),
                Precision::F32 => format!("the values of a matrix of f32 in {stores}, none of f64"),
            };
            assert!(stated.contains(&reason), "{stated}");
        }
    }

    fn by_consent_values_are_rounded_and_rows_err_within_the_bound(&self) {
        let (device, [_, others]) = (h200(), &self.matrices);
        let target = target(&device, self.stores, T::PRECISION);
        let rounded = others.map_values(self.round);
        for candidate in self.unordered() {
            let operator = PreparedOperator::new(others, &candidate, &target).expect("allowed");
            assert_eq!(operator.rounding(), self.rounding);
            operator.verify(others, 7).expect("within the bound of rounded values");
            let (name, y) = (candidate.to_string(), Self::product(&operator, others));
            let reference = Self::reference(others);
            check::compare(&name, &Self::reference(&rounded), &y).expect("as of rounded values");
            check::compare_rounded(&name, &reference, &y, self.rounding).expect("within");
            check::compare(&name, &reference, &y).expect_err("more than rounding of vectors");
            let wrong = 1.0 + 10.0 * self.rounding + 1.0e-5;
            let wrong: Vec<T> = y.iter().map(|y| T::from_f64(y.to_f64() * wrong)).collect();
            check::compare_rounded(&name, &reference, &wrong, self.rounding).expect_err("too far");
            // Other formats store every value exactly.
            let wide: Candidate = "hll".parse().expect("a candidate");
            let wide = PreparedOperator::new(others, &wide, &target).expect("applies");
            assert_eq!(wide.rounding(), 0.0);
            check::compare("hll", &reference, &Self::product(&wide, others)).expect("exact");
        }
        let far =
            others.map_values(|value| if value > T::from_f64(0.5) { self.beyond } else { value });
        for candidate in self.unordered() {
            let stated = PreparedOperator::new(&far, &candidate, &target).expect_err("too large");
            let reason = format!("beyond the range of {}", self.stores);
            assert!(stated.to_string().contains(&reason), "{stated}");
        }
    }

    fn new_values_that_are_not_held_are_refused_and_the_old_ones_stay(&self) {
        let (device, [whole, others]) = (h200(), &self.matrices);
        let stores = self.stores;
        for candidate in self.unordered() {
            let exact = target(&device, StoredValues::Exact, T::PRECISION);
            let mut operator = PreparedOperator::new(whole, &candidate, &exact).expect("held");
            let mut values = whole.values().to_vec();
            *values.last_mut().expect("entries") = T::from_f64(0.1);
            let stated = operator.update_values(&values).expect_err("0.1 is not held").to_string();
            let last = format!("row {} has a value", whole.nrows() - 1);
            let remedy = format!("values={stores}");
            assert!(stated.contains(&last) && stated.contains(&remedy), "{stated}");
            assert_eq!(&operator.to_csr().expect("on the host"), whole, "{candidate}");
            let doubled = whole.map_values(|value| value + value);
            operator.update_values(doubled.values()).expect("held");
            assert_eq!(operator.to_csr().expect("on the host"), doubled, "{candidate}");

            let allowed = target(&device, stores, T::PRECISION);
            let mut operator = PreparedOperator::new(whole, &candidate, &allowed).expect("held");
            operator.update_values(others.values()).expect("may be rounded");
            operator.verify(others, 5).expect("within the bound of rounded values");
            values[0] = self.beyond;
            let stated = operator.update_values(&values).expect_err("too large").to_string();
            let reason = format!("row 0 has a value beyond the range of {stores}");
            assert!(stated.contains(&reason), "{stated}");
            operator.verify(others, 5).expect("the old values");
        }
    }
}

/// Returns the reason for which a candidate does not apply to the matrix in another precision.
fn refused_in<O: Scalar, T: Scalar>(
    csr: &Csr<T>,
    candidate: &Candidate,
    target: &Target<'_>,
) -> String {
    let target = Target { precision: O::PRECISION, ..*target };
    let refused = PreparedOperator::new(&csr.cast::<O>(), candidate, &target);
    refused.expect_err("another precision").to_string()
}

#[test]
fn values_that_are_held_are_stored_exactly_and_others_refused() {
    of_f32().values_that_are_held_are_stored_exactly_and_others_refused();
    of_f16().values_that_are_held_are_stored_exactly_and_others_refused();
    of_bf16().values_that_are_held_are_stored_exactly_and_others_refused();
}

#[test]
fn by_consent_values_are_rounded_and_rows_err_within_the_bound() {
    of_f32().by_consent_values_are_rounded_and_rows_err_within_the_bound();
    of_f16().by_consent_values_are_rounded_and_rows_err_within_the_bound();
    of_bf16().by_consent_values_are_rounded_and_rows_err_within_the_bound();
}

#[test]
fn new_values_that_are_not_held_are_refused_and_the_old_ones_stay() {
    of_f32().new_values_that_are_not_held_are_refused_and_the_old_ones_stay();
    of_f16().new_values_that_are_not_held_are_refused_and_the_old_ones_stay();
    of_bf16().new_values_that_are_not_held_are_refused_and_the_old_ones_stay();
}

#[test]
fn sixteen_bits_are_chosen_only_by_consent_and_only_for_matrices_of_f32() {
    let [whole, others] = matrices::<f32>(60_000, 8);
    let exact = recommend(&whole, Workload::default());
    assert!(exact.ranking.iter().all(|ranked| ranked.candidate.format.narrows.is_none()));
    assert!(exact.refused.iter().all(|one| one.candidate.format.narrows.is_none()));
    for (stored, bound) in [(StoredValues::F16, "2^-11"), (StoredValues::BF16, "2^-8")] {
        let workload = Workload { stored, ..Workload::default() };
        let choice = recommend(&others, workload);
        assert_eq!(choice.candidate.format.stores, stored, "{}", choice.candidate);
        let bound = format!("at most {bound} * sum_j |a_ij| |x_j|");
        assert!(choice.explanation.iter().any(|text| text.contains(&bound)), "{choice:?}");
        let stores = |ranked: &Ranked| ranked.candidate.format.stores;
        let known = [StoredValues::Exact, stored];
        assert!(choice.ranking.iter().all(|ranked| known.contains(&stores(ranked))));

        let tuner = Tuner::open("h200").expect("shipped");
        let workload = Workload { spmvs: 3000, ..workload };
        let quick = tuner.decide(&others, &workload).expect("an answer");
        assert_eq!(quick.candidate.format.stores, stored, "{}", quick.candidate);
        let stated = tuner.decide(&others.cast::<f64>(), &workload).expect_err("f64").to_string();
        assert!(stated.contains("choose precision f32"), "{stated}");
    }
}

/// Returns the answer of the models that ship for an H200.
fn recommend<T: Scalar>(csr: &Csr<T>, workload: Workload) -> ellect::choose::Choice {
    let data = tempfile::tempdir().expect("a folder");
    let tuner = Tuner::open_in("h200", data.path()).expect("shipped");
    tuner.recommend(csr, &Workload { spmvs: 1_000_000, ..workload }).expect("an answer")
}

#[test]
fn a_choice_stores_f32_where_it_is_exact_or_allowed_and_says_so() {
    let [whole, others] = matrices::<f64>(60_000, 20);
    let choice = recommend(&whole, Workload::default());
    assert!(choice.candidate.format.narrows.is_some(), "{}", choice.candidate);
    assert!(
        choice.explanation.iter().any(|text| text.contains("holds them exactly")),
        "{choice:?}"
    );

    let exact = recommend(&others, Workload::default());
    assert!(exact.ranking.iter().all(|ranked| ranked.candidate.format.narrows.is_none()));
    let refused = exact.refused.iter().filter(|one| one.candidate.format.narrows.is_some());
    assert_eq!(refused.count(), narrow(StoredValues::F32).len());

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
    let [whole, _] = matrices::<f64>(60_000, 20);
    let predicted = recommend(&whole, Workload::default());
    let estimated = recommend(&whole, Workload { effort: Effort::Estimate, ..Workload::default() });
    let mut saving = 0;
    for candidate in narrow(StoredValues::F32) {
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
    let [whole, others] = matrices::<f64>(60_000, 20);
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
    let target = target(&device, StoredValues::Exact, Precision::F64);
    for candidate in narrow(StoredValues::F32) {
        let reason = candidate.work(&analysis, &target).expect_err("values are unknown");
        assert!(reason.to_string().contains("values are unknown"), "{reason}");
    }
}
