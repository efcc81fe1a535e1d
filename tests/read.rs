//! Matrix Market files: all kinds, round trips, and faults with their line.

use std::path::PathBuf;

use ellect::read::{self, Limits};
use ellect::{Csr, Error, Result, write};

mod corpus;
mod input;

use input::{GENERAL, entries};

fn read(text: &str) -> Result<Csr<f64>> {
    read::bytes(text.as_bytes(), &Limits::default())
}

#[track_caller]
fn holds(text: &str, nrows: usize, ncols: usize, expected: &[(usize, u32, f64)]) {
    let csr = read(text).expect("a valid file");
    assert_eq!((csr.nrows(), csr.ncols()), (nrows, ncols));
    assert_eq!(entries(&csr), expected);
    let narrow = read::bytes::<f32>(text.as_bytes(), &Limits::default()).expect("a valid file");
    assert_eq!(narrow, csr.cast::<f32>());
}

/// Returns the message of a file that must be refused.
#[track_caller]
fn fault(text: &str) -> String {
    match read(text) {
        Err(error @ (Error::Input { .. } | Error::Limit { .. })) => error.to_string(),
        other => panic!("expected a fault of the input, got {other:?}"),
    }
}

#[test]
fn coordinate_files_hold_each_entry_where_it_says() {
    holds(
        &format!("{GENERAL}3 4 4\n3 1 2.5\n1 4 -1e-3\n1 1 +7\n2 2 .5\n"),
        3,
        4,
        &[(0, 0, 7.0), (0, 3, -1e-3), (1, 1, 0.5), (2, 0, 2.5)],
    );
}

#[test]
fn an_index_is_the_same_number_however_it_is_written() {
    let columns = [1, 9, 10, 99, 100, 4321, 99_999, 123_456, 7_654_321, 12_345_678, 33_000_000];
    for end in ["\n", "\r\n", " \n", "\t\r\n"] {
        for [before, after] in [["", " "], ["0", " "], ["", "  "], [" ", "\t"], ["00000000", " "]] {
            let line =
                |c: &u32| format!("{before}1{after}{before}{c}{after}-0.1234567890123456{end}");
            let lines: String = columns.iter().map(line).collect();
            let text = format!("{GENERAL}1 33000000 {}\n{lines}", columns.len());
            let csr = read(&text).expect("a valid file");
            assert!(csr.col_idx().iter().zip(&columns).all(|(&at, &column)| at + 1 == column));
            assert!(csr.values().iter().all(|&value| value == -0.1234567890123456));
            // The last line may end with the text.
            assert_eq!(read(text.trim_end()).expect("a valid file"), csr);
        }
    }
    let far = fault(&format!("{GENERAL}1 9999999 1\n1 10000000 1.5\n"));
    assert!(far.contains("the column index is 10000000"), "{far}");
    let none = fault(&format!("{GENERAL}1 9999999 1\n0 1 1.5\n"));
    assert!(none.contains("the row index is 0"), "{none}");
}

#[test]
fn integers_and_patterns_are_read() {
    holds(
        "%%MatrixMarket matrix coordinate integer general\n2 2 2\n1 2 -3\n2 1 9007199254740993\n",
        2,
        2,
        &[(0, 1, -3.0), (1, 0, 9007199254740992.0)],
    );
    holds(
        "%%MatrixMarket matrix coordinate pattern general\n2 3 2\n1 3\n2 1\n",
        2,
        3,
        &[(0, 2, 1.0), (1, 0, 1.0)],
    );
}

#[test]
fn symmetric_files_are_mirrored_from_either_triangle() {
    let expected = [(0, 0, 4.0), (0, 1, 1.0), (1, 0, 1.0), (1, 2, 2.0), (2, 1, 2.0)];
    let head = "%%MatrixMarket matrix coordinate real symmetric\n3 3 3\n";
    holds(&format!("{head}1 1 4\n2 1 1\n3 2 2\n"), 3, 3, &expected);
    holds(&format!("{head}1 2 1\n2 3 2\n1 1 4\n"), 3, 3, &expected);
    holds(
        "%%MatrixMarket matrix coordinate pattern symmetric\n2 2 2\n2 1\n2 2\n",
        2,
        2,
        &[(0, 1, 1.0), (1, 0, 1.0), (1, 1, 1.0)],
    );
}

#[test]
fn skew_symmetric_files_change_the_sign_of_mirrored_entries() {
    let head = "%%MatrixMarket matrix coordinate real skew-symmetric\n3 3 2\n";
    holds(
        &format!("{head}2 1 5\n3 2 -1\n"),
        3,
        3,
        &[(0, 1, -5.0), (1, 0, 5.0), (1, 2, 1.0), (2, 1, -1.0)],
    );
    holds(&format!("{head}2 2 0\n3 1 4\n"), 3, 3, &[(0, 2, -4.0), (1, 1, 0.0), (2, 0, 4.0)]);
}

#[test]
fn arrays_are_read_by_columns_and_their_zeros_are_no_entries() {
    holds(
        "%%MatrixMarket matrix array real general\n2 3\n1\n0\n2\n3\n0\n4.5\n",
        2,
        3,
        &[(0, 0, 1.0), (0, 1, 2.0), (1, 1, 3.0), (1, 2, 4.5)],
    );
    holds(
        "%%MatrixMarket matrix array integer symmetric\n2 2\n1\n2\n3\n",
        2,
        2,
        &[(0, 0, 1.0), (0, 1, 2.0), (1, 0, 2.0), (1, 1, 3.0)],
    );
    holds(
        "%%MatrixMarket matrix array real skew-symmetric\n3 3\n1\n2\n3\n",
        3,
        3,
        &[(0, 1, -1.0), (0, 2, -2.0), (1, 0, 1.0), (1, 2, -3.0), (2, 0, 2.0), (2, 1, 3.0)],
    );
    holds("%%MatrixMarket matrix array real skew-symmetric\n1 1\n", 1, 1, &[]);
}

#[test]
fn case_comments_blank_lines_tabs_and_line_ends_do_not_matter() {
    holds(
        "%%matrixMARKET Matrix COORDINATE Real General\r\n%\r\n% 1 2 3\r\n\r\n  2\t2  3 \r\n\
         \r\n 1 \t1  1.5\t\r\n%in between\r\n2 1 2\r\n   \r\n2\t2\t3",
        2,
        2,
        &[(0, 0, 1.5), (1, 0, 2.0), (1, 1, 3.0)],
    );
    holds(&format!("{GENERAL}1 1 1\n1 1 3\n\n\n% the end"), 1, 1, &[(0, 0, 3.0)]);
}

#[test]
fn entries_listed_twice_are_summed() {
    holds(
        &format!("{GENERAL}2 2 5\n1 2 1\n2 1 4\n1 2 0.5\n1 1 8\n1 2 2\n"),
        2,
        2,
        &[(0, 0, 8.0), (0, 1, 3.5), (1, 0, 4.0)],
    );
    holds(
        "%%MatrixMarket matrix coordinate real symmetric\n2 2 2\n2 1 1\n2 1 2\n",
        2,
        2,
        &[(0, 1, 3.0), (1, 0, 3.0)],
    );
    holds(
        "%%MatrixMarket matrix coordinate pattern general\n1 2 3\n1 2\n1 1\n1 2\n",
        1,
        2,
        &[(0, 0, 1.0), (0, 1, 2.0)],
    );
}

#[test]
fn listed_zeros_stay_entries() {
    holds(&format!("{GENERAL}1 2 2\n1 1 0\n1 2 -0.0\n"), 1, 2, &[(0, 0, 0.0), (0, 1, 0.0)]);
}

#[test]
fn matrices_at_the_edges_of_what_is_legal_are_read() {
    holds(&format!("{GENERAL}0 0 0\n"), 0, 0, &[]);
    holds(&format!("{GENERAL}0 7 0"), 0, 7, &[]);
    holds(&format!("{GENERAL}5 0 0\n"), 5, 0, &[]);
    holds(&format!("{GENERAL}4 4 0\n% nothing\n"), 4, 4, &[]);
    holds(&format!("{GENERAL}1 6 2\n1 6 1\n1 1 2\n"), 1, 6, &[(0, 0, 2.0), (0, 5, 1.0)]);
    holds(&format!("{GENERAL}6 1 2\n6 1 1\n1 1 2\n"), 6, 1, &[(0, 0, 2.0), (5, 0, 1.0)]);
    holds("%%MatrixMarket matrix array real general\n0 5\n", 0, 5, &[]);
}

#[test]
fn values_are_rounded_once_to_the_wanted_precision() {
    // Seen from f64 exactly halfway between two f32 values, in truth above.
    let text = format!("{GENERAL}1 1 1\n1 1 1.00000005960464477539062500000001\n");
    let narrow = read::bytes::<f32>(text.as_bytes(), &Limits::default()).expect("valid");
    assert_eq!(narrow.values(), [1.000_000_1_f32]);
    holds(&format!("{GENERAL}1 1 1\n1 1 1e-999\n"), 1, 1, &[(0, 0, 0.0)]);
}

#[test]
fn sums_of_entries_stored_twice_are_finite() {
    let text = format!("{GENERAL}2 2 3\n1 1 1\n2 1 3e38\n2 1 3e38\n");
    assert_eq!(read::bytes::<f64>(text.as_bytes(), &Limits::default()).expect("fits").nnz(), 2);
    let error = read::bytes::<f32>(text.as_bytes(), &Limits::default()).expect_err("6e38");
    assert!(error.to_string().contains("entries of row 2, column 1 sum to inf"), "{error}");
}

#[test]
fn malformed_banners_and_size_lines_are_named_with_their_line() {
    let cases = [
        ("%%MatrixMarket\n1 1 0\n", "line 1: the file starts with '%%MatrixMarket'"),
        ("%MatrixMarket matrix coordinate real\n", "line 1: the file starts with"),
        ("%%MatrixMarket vector coordinate real general\n", "line 1: the object is 'vector'"),
        ("%%MatrixMarket matrix sparse real general\n", "line 1: the layout is 'sparse'"),
        ("%%MatrixMarket matrix coordinate float general\n", "line 1: the kind of values is"),
        ("%%MatrixMarket matrix coordinate real triangular\n", "line 1: the symmetry is"),
        (
            "%%MatrixMarket matrix coordinate real general integer\n",
            "line 1: 'integer' follows the banner",
        ),
        ("%%MatrixMarket matrix coordinate complex general\n", "line 1: complex and hermitian"),
        ("%%MatrixMarket matrix coordinate real Hermitian\n", "line 1: complex and hermitian"),
        ("%%MatrixMarket matrix array pattern general\n", "line 1: a pattern has no values"),
        ("%%MatrixMarket matrix coordinate pattern skew-symmetric\n", "line 1: a pattern has no"),
        (GENERAL, "line 2: the file ends before its size line"),
        (&format!("{GENERAL}%\n\n%\n"), "line 5: the file ends before its size line"),
        (&format!("{GENERAL}%\n3 3\n"), "line 3: the size line is '3 3'; it must hold the"),
        (&format!("{GENERAL}3 3 1 1\n"), "line 2: the size line is '3 3 1 1'"),
        (&format!("{GENERAL}3 -3 1\n"), "line 2: the size line is '3 -3 1'"),
        (&format!("{GENERAL}3 3.0 1\n"), "line 2: the size line is '3 3.0 1'"),
        (&format!("{GENERAL}3 3 99999999999999999999\n"), "line 2: the size line is"),
        ("%%MatrixMarket matrix array real general\n2 2 4\n", "line 2: the size line is '2 2 4'"),
        (
            "%%MatrixMarket matrix coordinate real symmetric\n2 3 1\n1 1 1\n",
            "line 2: a symmetric matrix must be square, this one is 2 x 3",
        ),
    ];
    for (text, expected) in cases {
        let message = fault(text);
        assert!(message.starts_with(expected), "{text:?}: {message}");
    }
}

#[test]
fn malformed_entries_are_named_with_their_line() {
    let cases = [
        ("0 1 1", "the row index is 0; indices count from 1"),
        ("1 0 1", "the column index is 0; indices count from 1"),
        ("4 1 1", "the row index is 4, but the matrix is 3 x 3"),
        ("1 4294967297 1", "the column index is 4294967297, but"),
        ("1 18446744073709551617 1", "the column index is '18446744073709551617'; it must be a"),
        ("1.0 1 1", "the row index is '1.0'; it must be a whole number"),
        ("-1 1 1", "the row index is '-1'; it must be a whole number"),
        ("1 2x 1", "the column index is '2x'"),
        ("1,1,1", "the row index is '1,1,1'"),
        ("1", "the column index is missing"),
        ("1 2", "the value is missing"),
        ("1 2 x", "the value is 'x'; it must be a number"),
        ("1 2 1.5.5", "the value is '1.5.5'; it must be a number"),
        ("1 2 2D0x", "the value is '2D0x'; it must be a number"),
        ("1 2 0x10", "the value is '0x10'; it must be a number"),
        ("1 2 1e", "the value is '1e'; it must be a number"),
        ("1 2 nan", "the value is 'nan'; it must be finite in f64"),
        ("1 2 -Infinity", "the value is '-Infinity'; it must be finite in f64"),
        ("1 2 1e999", "the value is '1e999'; it must be finite in f64"),
        ("1 2 1 1", "'1' follows the entry; a line holds one entry"),
        ("1 2 1 % why", "'%' follows the entry"),
    ];
    for (line, expected) in cases {
        for end in ["\n", "\r\n", ""] {
            let message = fault(&format!("{GENERAL}% c\n3 3 3\n3 3 3\n\n{line}{end}"));
            assert!(message.starts_with(&format!("line 6: {expected}")), "{line:?}: {message}");
        }
    }
    let text = format!("{GENERAL}1 1 1\n1 1 1e39\n");
    let narrow = read::bytes::<f32>(text.as_bytes(), &Limits::default()).expect_err("overflow");
    assert_eq!(narrow.to_string(), "line 3: the value is '1e39'; it must be finite in f32");
}

#[test]
fn faults_of_other_kinds_of_files_are_named_with_their_line() {
    let head = "%%MatrixMarket matrix";
    let cases = [
        ("coordinate integer general\n1 1 1\n1 1 1.0\n", "line 3: the value is '1.0'; the file"),
        ("coordinate integer general\n1 1 1\n1 1 1e0\n", "line 3: the value is '1e0'; the file"),
        ("coordinate pattern general\n1 1 1\n1 1 1\n", "line 3: '1' follows the entry"),
        ("array real general\n2 1\n1\n2 3\n", "line 4: '3' follows the entry"),
        ("array real general\n2 1\n1\n2\n3\n", "line 5: more entries than the 2 of the size line"),
        ("array real general\n2 1\n1\n", "line 3: the file ends after 1 entries of 2"),
        ("array real general\n0 1\n1\n", "line 3: more entries than the 0"),
        ("coordinate real skew-symmetric\n2 2 1\n2 2 3\n", "line 3: the diagonal entry is '3'"),
        (
            "coordinate real symmetric\n3 3 3\n1 1 1\n2 1 1\n1 2 1\n",
            "line 5: the file is symmetric, but lists entries both above and below",
        ),
    ];
    for (rest, expected) in cases {
        let message = fault(&format!("{head} {rest}"));
        assert!(message.starts_with(expected), "{rest:?}: {message}");
    }
}

#[test]
fn counts_must_be_right_and_the_first_fault_is_reported() {
    let message = fault(&format!("{GENERAL}2 2 2\n1 1 1\n% c\n2 2 1\n\n1 2 5\n1 2 x\n"));
    assert_eq!(message, "line 7: more entries than the 2 of the size line");
    let message = fault(&format!("{GENERAL}2 2 3\n1 1 1\n2 2 1\n\n"));
    assert_eq!(message, "line 5: the file ends after 2 entries of 3");
    let message = fault(&format!("{GENERAL}2 2 1\n1 1 1\n\0\0\0"));
    assert!(message.starts_with(r"line 4: the row index is '\x00\x00\x00'"), "{message}");
}

/// Returns the entries of a large file by row, and its text.
fn large(n: usize) -> String {
    use std::fmt::Write;
    let mut text = format!("{GENERAL}{n} {n} {}\n", 3 * n);
    for i in 0..n {
        for j in [i, (i * 7 + 3) % n, (i * 13 + 5) % n] {
            writeln!(text, "{} {} {}", i + 1, j + 1, 0.5 * (i % 1000) as f64).expect("a string");
        }
    }
    text
}

#[test]
fn line_numbers_hold_across_blocks_and_threads() {
    let text = large(200_000);
    assert!(text.len() > 8 << 20, "more than a few blocks");
    let line_no = 450_001;
    let at = text.match_indices('\n').nth(line_no - 2).expect("lines").0 + 1;
    let broken = format!("{}7 x 1\n{}", &text[..at], &text[at..]);
    let later = format!("{broken}also wrong\n");
    for threads in [1, 2, 5] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
        pool.install(|| {
            assert!(fault(&broken).starts_with("line 450001: the column index is 'x'"));
            assert!(fault(&later).starts_with("line 450001: the column index is 'x'"));
            let more = format!("{text}\n5 5 5\n");
            assert!(fault(&more).starts_with("line 600004: more entries"));
            let fewer = text.replacen(" 600000\n", " 600001\n", 1);
            assert!(fault(&fewer).starts_with("line 600002: the file ends after 600000"));
        });
    }
}

#[test]
fn the_result_does_not_depend_on_threads_or_on_the_order_of_lines() {
    let text = large(60_000);
    let mut lines: Vec<&str> = text.lines().collect();
    // A fixed shuffle: 179,999 and 180,000 have no common factor.
    let body: Vec<&str> = lines.drain(2..).collect();
    let shuffled: Vec<&str> = (0..body.len()).map(|k| body[k * 179_999 % body.len()]).collect();
    let shuffled = format!("{}\n{}\n", lines.join("\n"), shuffled.join("\n"));
    let expected = read(&text).expect("valid");
    for threads in [1, 3] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
        assert_eq!(pool.install(|| read(&text)).expect("valid"), expected);
        let got = pool.install(|| read(&shuffled)).expect("valid");
        assert_eq!(got.pattern(), expected.pattern());
        assert_eq!(got.values(), expected.values(), "sums of few small numbers are exact");
    }
}

#[test]
fn lines_longer_than_a_block_are_refused() {
    let long = " ".repeat(1 << 20);
    assert!(fault(&format!("{GENERAL}%{long}\n1 1 0\n")).starts_with("line 2: the line is longer"));
    let message = fault(&format!("{GENERAL}1 1 1\n1 1 1\n%\n{long}\n"));
    assert!(message.starts_with("line 5: the line is longer than"), "{message}");
    let fits = " ".repeat(1 << 18);
    holds(
        &format!("{GENERAL}2 1 2\n1 1 {fits}1\n%{fits}\n{fits}2 1 2\n"),
        2,
        1,
        &[(0, 0, 1.0), (1, 0, 2.0)],
    );
}

#[test]
fn written_files_read_back_as_the_same_matrix() {
    for (name, csr) in corpus::small() {
        let mut text = Vec::new();
        write::matrix_market(&csr, &mut text).expect("finite");
        let back = read::bytes::<f64>(&text, &Limits::default()).expect(&name);
        assert_eq!(back, csr, "{name}");
        let narrow = csr.map_values(|v| v as f32 / 3.0);
        let mut text = Vec::new();
        write::matrix_market(&narrow, &mut text).expect("finite");
        assert_eq!(read::bytes::<f32>(&text, &Limits::default()).expect(&name), narrow, "{name}");
    }
    let extreme =
        [f64::MAX, f64::MIN_POSITIVE, 5e-324, 0.1, -1.0 / 3.0, 1e22, 123456789012345680.0];
    let csr = corpus::dense(1, extreme.len(), |_, j| Some(extreme[j]));
    let mut text = Vec::new();
    write::matrix_market(&csr, &mut text).expect("finite");
    assert_eq!(read::bytes::<f64>(&text, &Limits::default()).expect("valid"), csr);
    let nan = corpus::dense(1, 1, |_, _| Some(f64::NAN));
    assert!(matches!(write::matrix_market(&nan, Vec::new()), Err(Error::Argument(_))));
}

#[test]
fn real_files_agree_with_their_inventory() {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/matrices"));
    let Ok(inventory) = std::fs::read_to_string(folder.join("INVENTORY.csv")) else {
        eprintln!("{} is absent: no real files are read", folder.display());
        return;
    };
    let mut names: Vec<_> = std::fs::read_dir(folder.join("mtx"))
        .expect("the folder of an inventory")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    names.sort();
    assert!(!names.is_empty());
    for path in names {
        let file = path.file_name().expect("a name").to_string_lossy().into_owned();
        let name = file.split(".mtx").next().expect("a stem");
        let csr = read::file::<f64>(&path, &Limits::default()).expect(name);
        let line = inventory
            .lines()
            .find(|line| line.split(',').next() == Some(name))
            .expect("a line of the inventory");
        let expected: Vec<usize> =
            line.split(',').skip(2).take(3).map(|n| n.parse().expect("a number")).collect();
        assert_eq!([csr.nrows(), csr.ncols(), csr.nnz()], expected[..], "{name}");
        let mut text = Vec::new();
        write::matrix_market(&csr, &mut text).expect("finite");
        assert_eq!(read::bytes::<f64>(&text, &Limits::default()).expect(name), csr);
    }
}
