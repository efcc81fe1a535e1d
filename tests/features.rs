//! Features on matrices whose answers are known.

mod corpus;

use ellect::Csr;
use ellect::features::{COSTLY, FEATURES, Features, n_iter, n_p};
use ellect::structure::{Sort, Structure};

fn of(csr: &Csr<f64>) -> Features {
    Features::of(&Structure::new(csr.pattern()))
}

/// A matrix with rows of these lengths.
fn rows(lengths: &[usize]) -> Csr<f64> {
    let entries = lengths.iter().enumerate().flat_map(|(i, &n)| (0..n).map(move |j| (i, j, 1.0)));
    Csr::from_triplets(lengths.len(), 32, entries).expect("indices are in range")
}

#[track_caller]
fn expect(features: &Features, name: &str, value: f64) {
    let found = features.get(name).unwrap_or_else(|| panic!("no feature is named {name}"));
    assert!((found - value).abs() <= 1e-12 * value.abs(), "{name} is {found}, not {value}");
}

#[test]
fn the_example_of_the_pellr_paper_takes_18_and_14_iterations() {
    // Figure 5: four warps of 8 rows. The two orders that the paper prints differ in one row (a 3
    // that is a 2 after sorting), so each is taken as it is printed.
    let ellr = [2, 3, 3, 4, 4, 4, 2, 4, 2, 3, 2, 3, 2, 3, 2, 2, 2, 2, 7, 3, 3, 3, 3, 3, 4, 3];
    let pellr = [7, 4, 4, 4, 4, 4, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2];
    let csr = rows(&ellr);
    assert_eq!(n_iter(&Structure::new(csr.pattern()), 8, Sort::None), 18);
    let csr = rows(&pellr);
    let structure = Structure::new(csr.pattern());
    assert_eq!(n_iter(&structure, 8, Sort::None), 14);
    // Sorting finds that order from any other.
    let mut mixed = pellr;
    mixed.reverse();
    let csr = rows(&mixed);
    let structure = Structure::new(csr.pattern());
    assert_eq!(n_iter(&structure, 8, Sort::All), 14);
    let operations: u64 = pellr.iter().map(|&n| 2 * n as u64 - 1).sum();
    assert_eq!(n_p(&structure), operations);
}

#[test]
fn row_lengths_are_summed_up() {
    let features = of(&rows(&[0, 1, 1, 2, 6]));
    for (name, value) in [
        ("nrows", 5.0),
        ("ncols", 32.0),
        ("nnz", 10.0),
        ("row_nnz_mean", 2.0),
        ("row_nnz_sigma", (22.0f64 / 5.0).sqrt()),
        ("row_nnz_min", 0.0),
        ("row_nnz_q50", 1.0),
        ("row_nnz_max", 6.0),
        ("row_nnz_range", 6.0),
        ("empty_rows", 1.0),
        // 2 (1*0 + 2*1 + 3*1 + 4*2 + 5*6) / (5 * 10) - 6 / 5
        ("row_nnz_gini", 0.52),
        ("ell_padding", 3.0),
        ("n_iter_ellr", 6.0),
        ("n_p", 16.0),
    ] {
        expect(&features, name, value);
    }
}

#[test]
fn a_tridiagonal_matrix_has_three_diagonals() {
    let n = 256;
    let near = |i: usize| i.saturating_sub(1)..(i + 2).min(n);
    let entries = (0..n).flat_map(|i| near(i).map(move |j| (i, j, 1.0)));
    let csr = Csr::from_triplets(n, n, entries).expect("indices are in range");
    let features = of(&csr);
    for (name, value) in [
        ("n_diagonals", 3.0),
        ("dia_padding", 768.0 / 766.0),
        ("hdia_padding_32", 768.0 / 766.0),
        ("bandwidth", 1.0),
        ("profile", 255.0),
        ("hack_span_max", 34.0),
        ("hack_span_16bit", 1.0),
        ("pattern_symmetry", 1.0),
        ("part_share_4096", 1.0),
        ("hub_share_14336", 1.0),
        ("column_nnz_max", 3.0),
    ] {
        expect(&features, name, value);
    }
}

#[test]
fn dense_blocks_are_full_and_others_are_not() {
    let entries =
        (0..60usize).flat_map(|i| (0..3).map(move |j| (i, (i / 3 * 7 % 20) * 3 + j, 1.0)));
    let csr = Csr::from_triplets(60, 60, entries).expect("indices are in range");
    let features = of(&csr);
    expect(&features, "block_fill_3", 1.0);
    assert!(features.get("block_fill_2").expect("listed") < 0.8);
    let structure = Structure::new(csr.pattern());
    let exact = COSTLY.iter().find(|f| f.name == "block_fill_3_exact").expect("listed");
    assert!((exact.of(&structure) - 1.0).abs() < 1e-12);
}

#[test]
fn hubs_cover_what_they_hold() {
    // Column 0 in every row, and a diagonal: 2 n - 1 entries, n of them in column 0.
    let n = 200;
    let entries = (0..n).flat_map(|i| [(i, 0, 1.0), (i, i, 1.0)]);
    let csr = Csr::from_triplets(n, n, entries).expect("indices are in range");
    let features = of(&csr);
    expect(&features, "hub_share_1pct", 201.0 / 399.0);
    expect(&features, "column_nnz_max", 200.0);
    expect(&features, "pattern_symmetry", 200.0 / 399.0);
}

#[test]
fn every_feature_is_a_finite_number_under_a_name_of_its_own() {
    let mut names: Vec<_> = FEATURES.iter().map(|feature| feature.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), FEATURES.len());
    for (name, csr) in corpus::small() {
        for (feature, value) in of(&csr).iter() {
            assert!(value.is_finite(), "{} of {name} is {value}", feature.name);
        }
    }
}

#[test]
fn features_do_not_depend_on_the_number_of_threads() {
    let (_, csr) = corpus::small().pop().expect("the corpus is not empty");
    let with = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
        pool.install(|| of(&csr))
    };
    assert_eq!(with(1), with(3));
}
