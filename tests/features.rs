//! Features of matrices with known answers.

mod corpus;

use std::collections::HashMap;

use ellect::Csr;
use ellect::analysis::{Analysis, Sort};
use ellect::features::{self, COSTLY, FEATURES, Features, n_iter, n_p};
use ellect::generate;
use ellect::reorder::permute_symmetric;

fn of(csr: &Csr<f64>) -> Features {
    Features::of(&Analysis::new(csr.pattern()))
}

/// Returns a matrix with these row lengths.
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
    // becomes a 2 after sorting), so each is tested as printed.
    let ellr = [2, 3, 3, 4, 4, 4, 2, 4, 2, 3, 2, 3, 2, 3, 2, 2, 2, 2, 7, 3, 3, 3, 3, 3, 4, 3];
    let pellr = [7, 4, 4, 4, 4, 4, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2];
    let csr = rows(&ellr);
    assert_eq!(n_iter(&Analysis::new(csr.pattern()), 8, Sort::None), 18);
    let csr = rows(&pellr);
    let analysis = Analysis::new(csr.pattern());
    assert_eq!(n_iter(&analysis, 8, Sort::None), 14);
    // Sorting finds that order from any other.
    let mut mixed = pellr;
    mixed.reverse();
    let csr = rows(&mixed);
    let analysis = Analysis::new(csr.pattern());
    assert_eq!(n_iter(&analysis, 8, Sort::All), 14);
    let operations: u64 = pellr.iter().map(|&n| 2 * n as u64 - 1).sum();
    assert_eq!(n_p(&analysis), operations);
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
    assert_eq!(costly("block_fill_3_exact", &csr), Ok(1.0));
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
    names.extend(COSTLY.iter().map(|feature| feature.name));
    let listed = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), listed);
    for (name, csr) in corpus::small().into_iter().chain(corpus::generated()) {
        for (feature, value) in of(&csr).iter() {
            assert!(value.is_finite(), "{} of {name} is {value}", feature.name);
        }
    }
}

#[test]
fn features_of_next_to_nothing_are_known() {
    let none = of(&Csr::from_triplets(0, 0, []).expect("legal"));
    for (feature, value) in none.iter() {
        // Without entries, no span is too wide and no block has an empty slot.
        let full = feature.name == "hack_span_16bit" || feature.name.starts_with("block_fill");
        assert_eq!(value, if full { 1.0 } else { 0.0 }, "{}", feature.name);
    }
    let row = of(&Csr::from_triplets(1, 4, [(0, 1, 1.0), (0, 3, 1.0)]).expect("legal"));
    let column = of(&Csr::from_triplets(4, 1, [(1, 0, 1.0), (3, 0, 1.0)]).expect("legal"));
    for (name, of_row, of_column) in [
        ("row_nnz_max", 2.0, 1.0),
        ("row_nnz_sigma", 0.0, 0.5),
        ("empty_rows", 0.0, 2.0),
        ("n_diagonals", 2.0, 2.0),
        ("dia_padding", 1.0, 4.0),
        ("ell_padding", 1.0, 2.0),
        ("bandwidth", 3.0, 3.0),
        ("profile", 0.0, 4.0),
        ("hack_span_max", 3.0, 1.0),
        ("n_iter_ellr", 2.0, 1.0),
        ("n_p", 3.0, 2.0),
        ("x_alpha_f64", 2.0, 2.0),
        ("x_sectors_f64", 1.0, 0.5),
        ("column_nnz_max", 1.0, 2.0),
    ] {
        expect(&row, name, of_row);
        expect(&column, name, of_column);
    }
}

#[test]
fn next_to_empty_matrices_need_no_list_of_all_columns() {
    let most = u32::MAX as usize;
    let csr = Csr::from_triplets(2, most, [(0, 7, 1.0), (1, most - 1, 1.0)]).expect("legal");
    let features = of(&csr);
    for (name, value) in [
        ("n_diagonals", 2.0),
        ("bandwidth", u32::MAX as f64 - 2.0),
        ("column_nnz_max", 1.0),
        ("hub_share_14336", 1.0),
        ("hack_span_16bit", 0.0),
    ] {
        expect(&features, name, value);
    }
}

#[test]
fn hack_diagonals_are_counted_in_each_hack() {
    // Rows 0 to 31 have the diagonal, rows 32 to 63 also the neighbouring one.
    let below = (32..64usize).map(|i| (i, i - 1, 1.0));
    let csr = Csr::from_triplets(64, 64, (0..64).map(|i| (i, i, 1.0)).chain(below));
    let features = of(&csr.expect("indices are in range"));
    for (name, value) in [
        ("n_diagonals", 2.0),
        ("dia_padding", 128.0 / 96.0),
        ("hack_diagonals_32", 1.5),
        ("hdia_padding_32", 1.0),
        ("hack_diagonals_256", 2.0),
        ("hdia_padding_256", 512.0 / 96.0),
    ] {
        expect(&features, name, value);
    }
}

#[test]
fn windows_hold_what_lies_in_their_rows_and_columns() {
    // Three windows of 4096 rows; each row has one entry in its own window and one in the first.
    let n = 9000;
    let entries = (0..n).flat_map(|i| [(i, 5, 1.0), (i, i / 4096 * 4096 + 100 + i % 500, 1.0)]);
    let features = of(&Csr::from_triplets(n, n, entries).expect("indices are in range"));
    expect(&features, "part_share_4096", (n + 4096) as f64 / (2 * n) as f64);
    expect(&features, "part_share_16384", 1.0);
}

#[test]
fn metis_finds_the_parts_that_windows_miss() {
    let grid = generate::by_name("stencil5", 10_000, 1).expect("the class exists");
    let shuffled = permute_symmetric(&grid, &generate::random_order(grid.nrows(), 2));
    let by_windows = of(&shuffled).get("part_share_4096").expect("listed");
    let by_metis = costly("part_share_metis_4096", &shuffled).expect("it is square");
    assert!(by_windows < 0.6, "{by_windows}");
    assert!(by_metis > 0.95, "{by_metis}");
    let wide = Csr::from_triplets(2, 3, [(0, 0, 1.0)]).expect("legal");
    assert!(costly("part_share_metis_4096", &wide).is_err(), "it is not square");
}

/// Reads the inventory of the real matrices: name, and figures by column.
fn inventory() -> Vec<HashMap<String, String>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/matrices/INVENTORY.csv");
    let Ok(text) = std::fs::read_to_string(path) else { return Vec::new() };
    let mut lines = text.lines().map(|line| line.split(',').map(str::to_string));
    let head: Vec<String> = lines.next().expect("a line of names").collect();
    lines.map(|line| head.iter().cloned().zip(line).collect()).collect()
}

#[test]
fn features_of_real_matrices_are_those_of_their_inventory() {
    let inventory = inventory();
    for (file, csr) in corpus::real(usize::MAX) {
        let name = file.split(".mtx").next().expect("a split has a first part");
        let known = inventory.iter().find(|known| known["name"] == name);
        let known = known.unwrap_or_else(|| panic!("{name} is not in the inventory"));
        let features = of(&csr);
        for (feature, column) in [
            ("nrows", "rows"),
            ("ncols", "cols"),
            ("nnz", "nnz"),
            ("row_nnz_mean", "mean"),
            ("row_nnz_sigma", "sigma"),
            ("row_nnz_min", "min"),
            ("row_nnz_max", "max"),
            ("n_diagonals", "ndiags"),
            ("bandwidth", "bandwidth"),
        ] {
            close(name, column, features.get(feature).expect("listed"), &known[column], 5e-4);
        }
        for b in 2..=4 {
            let column = format!("fill_b{b}");
            let sampled = features.get(&format!("block_fill_{b}")).expect("listed");
            let exact = costly(&format!("block_fill_{b}_exact"), &csr).expect("always");
            close(name, &column, exact, &known[&column], 5e-4);
            close(name, &column, sampled, &known[&column], 0.03);
        }
        let exact = costly("pattern_symmetry_exact", &csr).expect("always");
        let sampled = features.get("pattern_symmetry").expect("listed");
        assert!((exact - sampled).abs() < 0.02, "{name}: {sampled} is sampled of {exact}");
    }
}

/// Checks that `found` equals the rounded figure of the inventory to within `by`.
#[track_caller]
fn close(name: &str, column: &str, found: f64, known: &str, by: f64) {
    let Ok(known) = known.parse::<f64>() else { return };
    assert!((found - known).abs() <= by + 1e-9, "{column} of {name} is {found}, not {known}");
}

fn costly(name: &str, csr: &Csr<f64>) -> Result<f64, ellect::format::Refusal> {
    let feature = features::find_costly(name).expect("listed");
    feature.of(&Analysis::new(csr.pattern()))
}

#[test]
fn costly_features_are_added_where_they_are_asked_for() {
    let csr = rows(&[1, 2, 3]);
    let analysis = Analysis::new(csr.pattern());
    let feature = features::find_costly("block_fill_2_exact").expect("listed");
    let features = Features::of(&analysis);
    assert_eq!(features.get(feature.name), None);
    let features = features.with(feature, &analysis).expect("always");
    expect(&features, feature.name, 6.0 / 12.0);
    let json = serde_json::to_value(&features).expect("a map");
    assert_eq!((&json["block_fill_2_exact"], &json["nnz"]), (&0.5.into(), &6.into()));
    let error = features::find_costly("nnz").expect_err("it is cheap").to_string();
    assert!(error.contains("part_share_metis_4096"), "{error}");
}

#[test]
fn features_do_not_depend_on_the_number_of_threads() {
    for (name, csr) in corpus::small().into_iter().chain(corpus::generated()) {
        let with = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            pool.expect("a pool").install(|| of(&csr))
        };
        assert_eq!(with(1), with(3), "{name}");
    }
}
