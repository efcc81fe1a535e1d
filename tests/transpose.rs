//! Products with a matrix and its transpose: every class of generated matrices, awkward shapes,
//! symmetric matrices, updates of values, and memory limits for both layouts together.

use ellect::choose::{Choice, Effort, TransposedChoice, Trials, ValuesUse, Verify};
use ellect::dense::{DenseMut, DenseRef};
use ellect::device::Device;
use ellect::features::Features;
use ellect::format::Basis;
use ellect::measure::Protocol;
use ellect::operator::{permute, permute_back};
use ellect::unstable::choose::Mode;
use ellect::unstable::wisdom::Record;
use ellect::{
    Csr, Error, Fingerprint, PreparedPair, Scalar, Tuner, Wisdom, Workload, check, device, generate,
};

fn both(spmvs: u64, transposed: u64) -> Workload {
    Workload { spmvs, transposed, ..Workload::default() }
}

fn tuner() -> Tuner {
    Tuner::without_models(device::find("cpu").expect("shipped"))
}

/// Checks one and several vectors in both directions against the reference.
fn check_pair<T: Scalar>(what: &str, csr: &Csr<T>, pair: &PreparedPair<T>) {
    let turned = csr.transpose();
    let (alpha, beta) = (T::from_f64(1.5), T::from_f64(-0.5));
    for (direction, matrix) in [csr, &turned].into_iter().enumerate() {
        let operator = if direction == 0 { pair.forward() } else { pair.transposed() };
        let order = operator.permutation();
        let forth = |v: Vec<T>| order.map_or_else(|| v.clone(), |order| permute(&v, order));
        let back = |v: &[T]| order.map_or_else(|| v.to_vec(), |order| permute_back(v, order));
        let (nrows, ncols) = (matrix.nrows(), matrix.ncols());
        for vectors in [1, 3] {
            let xs: Vec<Vec<T>> = (0..vectors).map(|c| check::vector(ncols, c)).collect();
            let ys: Vec<Vec<T>> = (0..vectors).map(|c| check::vector(nrows, 9 + c)).collect();
            let x: Vec<T> = xs.iter().cloned().flat_map(&forth).collect();
            let mut y: Vec<T> = ys.iter().cloned().flat_map(&forth).collect();
            let k = vectors as usize;
            let made = match (direction, k) {
                (0, 1) => pair.apply(alpha, &x, beta, &mut y),
                (_, 1) => pair.apply_transposed(alpha, &x, beta, &mut y),
                _ => {
                    let x = DenseRef::columns(ncols, k, &x).expect("it fits");
                    let y = DenseMut::columns(nrows, k, &mut y).expect("it fits");
                    match direction {
                        0 => pair.apply_many(alpha, x, beta, y),
                        _ => pair.apply_many_transposed(alpha, x, beta, y),
                    }
                }
            };
            made.unwrap_or_else(|error| panic!("{what}: {error}"));
            for c in 0..k {
                let reference = check::reference(matrix, alpha, &xs[c], beta, &ys[c]);
                let got = back(&y[c * nrows..][..nrows]);
                check::compare(what, &reference, &got)
                    .unwrap_or_else(|error| panic!("{what}, direction {direction}: {error}"));
            }
        }
    }
    pair.verify(csr, 5).unwrap_or_else(|error| panic!("{what}: {error}"));
}

/// Prepares both directions, checks them, and checks them again with other values.
fn check_matrix<T: Scalar>(what: &str, csr: &Csr<T>, workload: &Workload) -> PreparedPair<T> {
    let mut pair =
        tuner().prepare_both(csr, workload).unwrap_or_else(|error| panic!("{what}: {error}"));
    check_pair(what, csr, &pair);
    let other = csr.map_values(|value| T::from_f64(2.0) * value);
    match pair.update(&other) {
        Ok(()) => check_pair(&format!("{what} doubled"), &other, &pair),
        // A format that relies on few values may refuse; then nothing has changed.
        Err(Error::Refused { .. }) => check_pair(what, csr, &pair),
        Err(error) => panic!("{what}: {error}"),
    }
    pair
}

#[test]
fn both_directions_of_every_class_are_those_of_the_reference() {
    for class in generate::CLASSES {
        let csr: Csr<f64> = generate::by_name(class.name, 1500, 1).expect("a class");
        for values in [ValuesUse::Fixed, ValuesUse::Change(1)] {
            let workload = Workload { values, trials: Trials::Never, ..both(100_000, 50_000) };
            let pair = check_matrix(class.name, &csr, &workload);
            assert_eq!(pair.is_shared(), csr.transpose() == csr, "{}", class.name);
            check_matrix(class.name, &csr.cast::<f32>(), &workload);
        }
    }
}

/// Awkward matrices by name.
fn awkward() -> Vec<(&'static str, Csr<f64>)> {
    let of = |nrows, ncols, entries: Vec<(usize, usize, f64)>| {
        Csr::from_triplets(nrows, ncols, entries).expect("in range")
    };
    let value = |k: usize| 1.0 + (k % 17) as f64;
    let banded = |n: usize| (0..n).map(move |k| (k, k, value(k)));
    let mut dense_row: Vec<_> = banded(900).collect();
    dense_row.extend((0..900).filter(|&k| k != 7).map(|k| (7, k, value(k))));
    let dense_column = dense_row.iter().map(|&(row, column, v)| (column, row, v)).collect();
    vec![
        ("no rows", of(0, 3, vec![])),
        ("no columns", of(3, 0, vec![])),
        ("no entries", of(4, 3, vec![])),
        ("one entry", of(3, 5, vec![(2, 4, 3.0)])),
        ("one row", of(1, 700, (0..700).map(|k| (0, k, value(k))).collect())),
        ("one column", of(700, 1, (0..700).map(|k| (k, 0, value(k))).collect())),
        ("wide", of(40, 900, (0..1500).map(|k| (k % 40, k * 31 % 900, value(k))).collect())),
        ("empty rows", of(900, 300, (0..300).map(|k| (3 * k, k, value(k))).collect())),
        ("empty columns", of(300, 900, (0..300).map(|k| (k, 3 * k, value(k))).collect())),
        ("dense row", of(900, 900, dense_row)),
        ("dense column", of(900, 900, dense_column)),
        ("zeros", of(2, 2, vec![(0, 1, 0.0), (1, 0, -0.0), (1, 1, 0.0)])),
    ]
}

#[test]
fn awkward_matrices_multiply_in_both_directions() {
    for (name, csr) in awkward() {
        for effort in [Effort::Estimate, Effort::Predict] {
            let workload = Workload { effort, ..both(1000, 1_000_000) };
            check_matrix(name, &csr, &workload);
            check_matrix(name, &csr.cast::<f32>(), &workload);
        }
    }
}

#[test]
fn a_transposed_operator_is_that_of_the_transpose() {
    let csr: Csr<f64> = generate::by_name("linear_program", 3000, 1).expect("a class");
    let workload = Workload { verify: Verify::OnPrepare, ..Workload::default() };
    let operator = tuner().prepare_transposed(&csr, &workload).expect("an operator");
    assert_eq!((operator.nrows(), operator.ncols()), (csr.ncols(), csr.nrows()));
    operator.verify(&csr.transpose(), 3).expect("right products");
    assert_eq!(operator.to_csr().expect("on a host"), csr.transpose());
}

#[test]
fn vectors_of_the_wrong_length_are_refused_by_direction() {
    let csr: Csr<f64> = Csr::from_triplets(2, 3, [(0, 0, 1.0)]).expect("in range");
    let pair = tuner().prepare_both(&csr, &both(10, 10)).expect("a pair");
    let forward = pair.apply(1.0, &[1.0; 2], 0.0, &mut [0.0; 3]).expect_err("turned");
    assert!(matches!(forward, Error::Shape { what: "x", got: 2, needed: 3 }), "{forward}");
    let back = pair.apply_transposed(1.0, &[1.0; 3], 0.0, &mut [0.0; 2]).expect_err("turned");
    assert!(matches!(back, Error::Shape { what: "x", got: 3, needed: 2 }), "{back}");
}

#[test]
fn one_layout_serves_a_symmetric_matrix_for_all_products() {
    let csr: Csr<f64> = generate::by_name("constant7", 8000, 1).expect("a class");
    assert_eq!(csr.transpose(), csr);
    for basis in [Basis::Original, Basis::Permuted] {
        let workload = Workload { basis, effort: Effort::Estimate, ..both(3000, 2000) };
        let pair = check_matrix("symmetric", &csr, &workload);
        assert!(pair.is_shared());
        assert_eq!(pair.forward().choice().map(|choice| choice.spmvs), Some(5000));
        let choice = tuner().decide(&csr, &workload).expect("a choice");
        assert_eq!(choice.transposed, Some(TransposedChoice::Shared));
        assert_eq!(choice.spmvs, 5000);
        assert_eq!(Some(&choice.candidate), pair.forward().choice().map(|c| &c.candidate));
    }
    // Without updates of values, only the layout remains.
    let pair = tuner().prepare_both(&csr, &both(1000, 1000)).expect("a pair");
    assert_eq!(pair.bytes(), pair.forward().bytes());
}

#[test]
fn a_symmetric_matrix_may_get_values_that_are_not() {
    let csr: Csr<f64> = generate::by_name("constant7", 8000, 1).expect("a class");
    let mut other = csr.clone();
    let first_off_diagonal = 1;
    other.values_mut()[first_off_diagonal] += 0.5;
    assert_ne!(other.transpose(), other);
    for basis in [Basis::Original, Basis::Permuted] {
        for values in [ValuesUse::Fixed, ValuesUse::Change(3)] {
            let workload =
                Workload { basis, values, effort: Effort::Estimate, ..both(100_000, 100_000) };
            let mut pair = tuner().prepare_both(&csr, &workload).expect("a pair");
            let shared = pair.bytes();
            match pair.update(&other) {
                Ok(()) => {
                    assert!(!pair.is_shared() && pair.bytes() > shared);
                    check_pair("no longer symmetric", &other, &pair);
                    let told =
                        pair.transposed().choice().map(|choice| choice.explanation.join(" "));
                    assert!(told.is_some_and(|told| told.contains("are not symmetric")));
                    pair.update(&csr).expect("the first values");
                    check_pair("symmetric again", &csr, &pair);
                }
                Err(error @ Error::Refused { .. }) => {
                    assert!(pair.is_shared(), "{error}");
                    check_pair("unchanged", &csr, &pair);
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[test]
fn updates_that_do_not_fit_change_nothing() {
    let csr: Csr<f64> = generate::by_name("linear_program", 3000, 1).expect("a class");
    let mut pair = tuner().prepare_both(&csr, &both(1000, 1000)).expect("a pair");
    let few = pair.update_values(&csr.values()[1..]).expect_err("one is missing");
    assert!(matches!(few, Error::PatternChanged { .. }), "{few}");
    let other = pair.update(&csr.transpose()).expect_err("another pattern");
    assert!(matches!(other, Error::PatternChanged { .. }), "{other}");
    check_pair("unchanged", &csr, &pair);
    let before = pair.bytes();
    pair.update_values(csr.values()).expect("its own values");
    assert_eq!(pair.bytes(), before + 4 * csr.nnz() as u64, "the order of values is counted");
}

/// Bytes of the first candidates of both directions.
fn taken(choice: &Choice) -> [u64; 2] {
    match &choice.transposed {
        Some(TransposedChoice::Own(of_transpose)) => {
            [choice.ranking[0].bytes, of_transpose.ranking[0].bytes]
        }
        other => panic!("the matrix is not symmetric: {other:?}"),
    }
}

#[test]
fn the_memory_limit_bounds_both_layouts_together() {
    // Rows of very different lengths: padded layouts of one direction take much memory.
    for class in ["linear_program", "least_squares", "rmat"] {
        let csr: Csr<f64> = generate::by_name(class, 4000, 1).expect("a class");
        let least = csr.bytes() + csr.transpose().bytes();
        let unlimited = Workload { effort: Effort::Estimate, ..both(1_000_000, 1_000_000) };
        let free: u64 = taken(&tuner().recommend(&csr, &unlimited).expect("a choice")).iter().sum();
        for limit in [least, least + least / 10, 2 * least, free.max(least), 10 * least] {
            let workload = Workload { memory_limit: Some(limit), ..unlimited };
            let choice = tuner().recommend(&csr, &workload).expect("a choice");
            let sum: u64 = taken(&choice).iter().sum();
            assert!(sum <= limit, "{class}: {sum} bytes of {limit}");
            let pair = tuner().prepare_both(&csr, &workload).expect("a pair");
            assert!(pair.bytes() <= limit, "{class}: {} bytes of {limit}", pair.bytes());
            check_pair(class, &csr, &pair);
        }
        // CSR is exempt from the limit, as for one matrix.
        let workload = Workload { memory_limit: Some(1), ..unlimited };
        let pair = tuner().prepare_both(&csr, &workload).expect("a pair in CSR");
        assert!(pair.forward().candidate().is_csr() && pair.transposed().candidate().is_csr());
    }
}

#[test]
fn a_choice_for_both_tells_each_direction() {
    let csr: Csr<f64> = generate::by_name("linear_program", 3000, 1).expect("a class");
    let (tuner, workload) = (tuner(), both(3000, 40));
    for mode in [Mode::Rank, Mode::Prepare] {
        let of = |csr: &Csr<f64>, workload: &Workload| match mode {
            Mode::Rank => tuner.recommend(csr, workload).expect("a choice"),
            Mode::Prepare => tuner.decide(csr, workload).expect("a choice"),
        };
        let choice = of(&csr, &workload);
        assert_eq!(choice.spmvs, 3000);
        let Some(TransposedChoice::Own(turned)) = &choice.transposed else {
            panic!("not symmetric: {:?}", choice.transposed)
        };
        assert_eq!((turned.spmvs, &turned.transposed), (40, &None));
        assert_eq!(turned.fingerprint, Some(Fingerprint::of(csr.transpose().pattern())));
        let alone = of(&csr.transpose(), &Workload { spmvs: 40, ..Workload::default() });
        assert_eq!((&turned.candidate, &turned.ranking), (&alone.candidate, &alone.ranking));
        let told = choice.explanation.last().expect("a sentence");
        assert!(told.contains(&format!("layout of its own, {}", turned.candidate)), "{told}");
        let json = serde_json::to_value(&choice).expect("plain data");
        assert_eq!(json["transposed"]["spmvs"], 40);
    }
    let one = tuner.recommend(&csr, &Workload::default()).expect("a choice");
    let json = serde_json::to_value(&one).expect("plain data");
    assert_eq!((&one.transposed, json.get("transposed")), (&None, None));
    let written = serde_json::to_string(&Workload::default()).expect("plain data");
    assert!(!written.contains("transposed"), "{written}");
    let features = Features::named([("nrows", 10.0), ("ncols", 10.0), ("nnz", 30.0)]);
    let error = Tuner::without_models(device::find("h200").expect("shipped"))
        .recommend_from(features.expect("known names"), f64::PRECISION, &workload)
        .expect_err("no transpose");
    assert!(error.to_string().contains("those of its transpose"), "{error}");
}

#[test]
fn timings_of_both_directions_are_stored_under_their_own_fingerprints() {
    let data = tempfile::tempdir().expect("a folder");
    let csr: Csr<f64> = generate::by_name("least_squares", 3000, 1).expect("a class");
    let protocol = Protocol { max_samples: 3, max_s: 0.01, max_copies: 2, ..Protocol::default() };
    let wisdom = std::sync::Arc::new(Wisdom::open(data.path()).expect("a new database"));
    let cpu: Device = device::find("cpu").expect("shipped");
    let tuner = Tuner::without_models(cpu)
        .with_protocol(protocol)
        .with_wisdom(wisdom.clone())
        .with_source("observations");
    let workload =
        Workload { effort: Effort::Measure, budget_s: Some(0.2), ..both(100_000, 100_000) };
    let choice = tuner.recommend(&csr, &workload).expect("timings");
    let mut sources = Vec::new();
    let told = wisdom.each(|record| {
        if let Record::Structure(structure) = record {
            sources.push((structure.fingerprint, structure.source.clone()));
        }
        Ok(())
    });
    told.expect("a sound database");
    let source = |csr: &Csr<f64>| {
        let print = Fingerprint::of(csr.pattern());
        sources.iter().find(|(of, _)| *of == print).map(|(_, source)| source.as_str())
    };
    assert_eq!(source(&csr), Some("observations"));
    assert_eq!(source(&csr.transpose()), Some("transpose of observations"));
    // The next operators find the timings by the matrices themselves.
    let predict = Workload { effort: Effort::Predict, ..workload };
    let again = tuner.recommend(&csr, &predict).expect("a choice");
    let measured = |choice: &Choice| {
        let is_measured = |r: &&ellect::choose::Ranked| r.source == ellect::cost::Source::Measured;
        choice.ranking.iter().filter(is_measured).count()
    };
    let Some(TransposedChoice::Own(of_transpose)) = &again.transposed else { panic!("not shared") };
    assert!(measured(&again) >= 1 && measured(of_transpose) >= 1);
    assert_eq!(measured(&again), measured(&choice));
}
