//! Property tests of the reader: valid files against an independent parser, and arbitrary bytes.

use ellect::read::{self, Limits};
use proptest::prelude::*;

mod corpus;
mod input;

use input::{GENERAL, Npz, entries, gzip, zstd_of};

/// A parser that shares nothing with the one under test: one line at a time, into a dense array.
fn slow_parser(text: &str) -> Vec<Vec<Option<f64>>> {
    let banner = text.lines().next().expect("a banner").to_lowercase();
    let mut lines = text.lines().filter(|line| !line.starts_with('%') && !line.trim().is_empty());
    let size: Vec<usize> = numbers(lines.next().expect("a size line"));
    let mut dense = vec![vec![None; size[1]]; size[0]];
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [i, j]: [usize; 2] = numbers(&words[..2].join(" ")).try_into().expect("two indices");
        let value = words.get(2).map_or(1.0, |word| word.parse::<f64>().expect("a number"));
        *dense[i - 1][j - 1].get_or_insert(0.0) += value;
        if i != j && !banner.contains("general") {
            let mirrored = if banner.contains("skew") { -value } else { value };
            *dense[j - 1][i - 1].get_or_insert(0.0) += mirrored;
        }
    }
    dense
}

fn numbers(text: &str) -> Vec<usize> {
    text.split_whitespace().map(|word| word.parse().expect("a whole number")).collect()
}

prop_compose! {
    /// Generates a valid coordinate file of any kind; values are small multiples of 1/8, so that
    /// sums are exact in any order.
    fn valid_file()(
        kind in 0..8_usize,
        nrows in 1..12_usize,
        ncols in 1..12_usize,
        entries in prop::collection::vec((0..12_usize, 0..12_usize, -99..99_i32, 0..7_usize), 0..40),
    ) -> String {
        use std::fmt::Write;
        let (field, symmetry) = [
            ("real", "general"), ("real", "general"), ("real", "symmetric"),
            ("real", "skew-symmetric"), ("integer", "general"), ("integer", "symmetric"),
            ("pattern", "general"), ("pattern", "symmetric"),
        ][kind];
        let ncols = if symmetry == "general" { ncols } else { nrows };
        let mut text = format!(
            "%%MatrixMarket matrix coordinate {field} {symmetry}\n{nrows} {ncols} {}\n",
            entries.len()
        );
        for (i, j, value, noise) in entries {
            let (mut i, mut j) = (i % nrows + 1, j % ncols + 1);
            if symmetry != "general" && i < j {
                (i, j) = (j, i);
            }
            let value = match field {
                "pattern" => String::new(),
                _ if i == j && symmetry == "skew-symmetric" => "0".into(),
                "integer" => value.to_string(),
                _ => [format!("{}", f64::from(value) / 8.0), format!("{:e}", f64::from(value) / 8.0)]
                    [noise % 2].clone(),
            };
            let (gap, end) = ([" ", "\t", "  "][noise % 3], ["\n", "\r\n", " \n\n", "\n% c\n"][noise % 4]);
            write!(text, "{i}{gap}{j}{gap}{value}{end}").expect("a string");
        }
        text
    }
}

/// Tight limits, which bound the cost of arbitrary bytes.
const TIGHT: Limits =
    Limits { rows: 1000, columns: 1000, nonzeros: 10_000, bytes: 100_000, empty_rows: 1000 };

/// Reads in both precisions, from bytes and as a stream; must neither panic nor disagree.
fn read_anything(content: &[u8]) {
    let wide = read::bytes::<f64>(content, &TIGHT);
    let streamed = read::stream::<f64>(content, &TIGHT);
    assert_eq!(wide.as_ref().ok(), streamed.as_ref().ok());
    if let Ok(narrow) = read::bytes::<f32>(content, &TIGHT) {
        assert_eq!(wide.expect("f64 holds what f32 does").pattern(), narrow.pattern());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn random_valid_files_agree_with_a_slow_parser(text in valid_file()) {
        let csr = read::bytes::<f64>(text.as_bytes(), &Limits::default()).expect("valid");
        let dense = slow_parser(&text);
        prop_assert_eq!((csr.nrows(), csr.ncols()), (dense.len(), dense[0].len()));
        let expected: Vec<_> = dense
            .iter()
            .enumerate()
            .flat_map(|(i, row)| {
                row.iter().enumerate().filter_map(move |(j, v)| Some((i, j as u32, (*v)?)))
            })
            .collect();
        prop_assert_eq!(entries(&csr), expected);
    }

    #[test]
    fn arbitrary_bytes_never_panic(content in prop::collection::vec(any::<u8>(), 0..600)) {
        read_anything(&content);
        read_anything(&gzip(&content));
        read_anything(&[GENERAL.as_bytes(), &content].concat());
        read_anything(&[format!("{GENERAL}9 9 9\n").as_bytes(), &content].concat());
    }

    #[test]
    fn mutated_files_never_panic(
        text in valid_file(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3_u8), 1..6),
    ) {
        let csr = read::bytes::<f64>(text.as_bytes(), &Limits::default()).expect("valid");
        let mut json = serde_json::json!({
            "nrows": csr.nrows(), "ncols": csr.ncols(), "row_ptr": csr.row_ptr(),
            "col_idx": csr.col_idx(), "values": csr.values(),
        }).to_string().into_bytes();
        let archive = Npz::csr(&csr);
        let mut contents = vec![text.clone().into_bytes(), gzip(text.as_bytes()),
            zstd_of(text.as_bytes()), archive.stored(), archive.deflated()];
        contents.push(std::mem::take(&mut json));
        for mut content in contents {
            for (at, byte, how) in &changes {
                let at = at.index(content.len().max(1));
                match how {
                    0 if at < content.len() => content[at] = *byte,
                    1 if at < content.len() => { content.remove(at); }
                    _ => content.insert(at, *byte),
                }
            }
            read_anything(&content);
        }
    }

    #[test]
    fn archives_with_mutated_arrays_never_panic(
        array in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        format in 0..3_usize,
    ) {
        let csr = corpus::dense(5, 4, |i, j| (i != j).then_some(i as f64 + 0.25 * j as f64));
        let mut archive = [Npz::csr(&csr), Npz::csc(&csr), Npz::coo(&csr)]
            [format].clone();
        let array = array.index(archive.arrays.len());
        let bytes = &mut archive.arrays[array].1;
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        read_anything(&archive.stored());
    }
}
