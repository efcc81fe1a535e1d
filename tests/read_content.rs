//! Detection of the content, compression and limits: gzip, zstd, SciPy archives and JSON.

use ellect::read::{self, Limits};
use ellect::{Csr, Error, Result, write};

mod corpus;
mod input;

use input::{GENERAL, Npz, entries, gzip, zstd_of};

fn read(text: &str) -> Result<Csr<f64>> {
    read::bytes(text.as_bytes(), &Limits::default())
}

#[test]
fn claims_over_a_limit_are_refused_by_the_name_of_the_setting() {
    let limits = Limits { rows: 10, columns: 20, nonzeros: 5, bytes: 200, empty_rows: 8 };
    let refused = |text: &[u8]| match read::bytes::<f64>(text, &limits) {
        Err(Error::Limit { got, limit, remedy, .. }) => (remedy, got, limit),
        other => panic!("expected a limit, got {other:?}"),
    };
    let text = |size: &str| format!("{GENERAL}{size}\n");
    assert_eq!(refused(text("11 1 0").as_bytes()), ("rows", 11, 10));
    assert_eq!(refused(text("1 21 0").as_bytes()), ("columns", 21, 20));
    assert_eq!(refused(text("10 10 6").as_bytes()), ("nonzeros", 6, 5));
    assert_eq!(refused(text("10 1 1\n1 1 1").as_bytes()), ("empty_rows", 9, 8));
    let long = text("1 1 0") + &"%\n".repeat(100);
    assert_eq!(refused(long.as_bytes()), ("bytes", long.len() as u64, 200));
    let array = "%%MatrixMarket matrix array real general\n2 3\n";
    assert_eq!(refused(array.as_bytes()), ("nonzeros", 6, 5));
    let mirrored = "%%MatrixMarket matrix coordinate pattern symmetric\n4 4 3\n2 1\n3 1\n4 1\n";
    assert_eq!(refused(mirrored.as_bytes()), ("nonzeros", 6, 5));
    let json = r#"{"nrows":1,"ncols":1,"row_ptr":[0,6],"col_idx":[0,0,0,0,0,0]}"#;
    assert_eq!(refused(json.as_bytes()), ("nonzeros", 6, 5));
    let archive = Npz::csr(&corpus::dense(3, 3, |_, _| Some(1.0))).stored();
    let room = Limits { bytes: 1 << 20, ..limits };
    let error = read::bytes::<f64>(&archive, &room).expect_err("9 entries");
    assert!(matches!(error, Error::Limit { remedy: "nonzeros", got: 9, .. }), "{error}");
    let wide = text("4294967296 1 0");
    let error = read(&wide).expect_err("too many rows for 32-bit indices").to_string();
    assert!(
        error.starts_with("line 2: number of rows is 4294967296; at most 4294967295"),
        "{error}"
    );
}

#[test]
fn decompression_is_stopped_at_the_limit_of_bytes() {
    let zeros = format!("{GENERAL}1 1 0\n{}", " \n".repeat(4 << 20));
    let limits = Limits { bytes: 1 << 20, ..Limits::default() };
    for packed in [gzip(zeros.as_bytes()), zstd_of(zeros.as_bytes())] {
        assert!(packed.len() < 100_000, "it is a bomb");
        assert!(read::bytes::<f64>(&packed, &Limits::default()).is_ok());
        let error = read::bytes::<f64>(&packed, &limits).expect_err("a bomb");
        assert!(matches!(error, Error::Limit { remedy: "bytes", .. }), "{error}");
    }
    let many = corpus::dense(1, 200_000, |_, _| Some(0.0));
    let error = read::bytes::<f64>(&Npz::csr(&many).deflated(), &limits).expect_err("a bomb");
    assert!(matches!(error, Error::Limit { remedy: "bytes", .. }), "{error}");
}

#[test]
fn content_is_recognised_under_any_name_and_wrapping() {
    let csr = corpus::dense(40, 30, |i, j| (i % 7 == j % 5).then_some(i as f64 - 0.5 * j as f64));
    let mut text = Vec::new();
    write::matrix_market(&csr, &mut text).expect("finite");
    let archive = Npz::csr(&csr).deflated();
    let half = text.len() / 2;
    let members = [gzip(&text[..half]), gzip(&text[half..])].concat();
    let frames = [zstd_of(&text[..half]), zstd_of(&text[half..])].concat();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let wrapped = [
        text.clone(),
        gzip(&text),
        zstd_of(&text),
        gzip(&zstd_of(&text)),
        members,
        frames,
        archive.clone(),
        gzip(&archive),
    ];
    for (k, content) in wrapped.into_iter().enumerate() {
        let limits = Limits::default();
        assert_eq!(read::bytes::<f64>(&content, &limits).expect("bytes"), csr, "case {k}");
        assert_eq!(read::stream::<f64>(&content[..], &limits).expect("stream"), csr, "case {k}");
        let path = folder.path().join("matrix.txt");
        std::fs::write(&path, &content).expect("a temporary file");
        assert_eq!(read::file::<f64>(&path, &limits).expect("file"), csr, "case {k}");
    }
}

#[test]
fn a_source_that_delivers_byte_by_byte_is_read() {
    struct Slow<'a>(&'a [u8]);
    impl std::io::Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            self.0.read(&mut buffer[..1])
        }
    }
    let text = format!("{GENERAL}2 2 2\n1 1 1\n2 2 2\n");
    for content in [text.clone().into_bytes(), gzip(text.as_bytes())] {
        let csr = read::stream::<f64>(Slow(&content), &Limits::default()).expect("valid");
        assert_eq!(entries(&csr), [(0, 0, 1.0), (1, 1, 2.0)]);
    }
}

#[test]
fn what_is_not_a_matrix_is_refused_with_a_remedy() {
    let cases: [(&[u8], &str); 9] = [
        (b"", "the input is empty"),
        (b"hello", "byte 0: the input starts with 'hello'; it must be Matrix Market text"),
        (b"\x93NUMPY\x01\x00", "byte 0: the input is a single numpy array; save the matrix with"),
        (b"MATLAB 5.0 MAT-file", "the input is damaged or cut off"),
        (b"BZh91AY", "the input is damaged or cut off"),
        (b"\x1f\x8b\x08", "the input is damaged or cut off"),
        (b"\x28\xb5\x2f\xfd\x04", "the input is damaged or cut off"),
        (b"PK\x03\x04", "the zip archive is damaged"),
        (b"\n  x", r"byte 0: the input starts with '\n  x'"),
    ];
    for (content, expected) in cases {
        let error = read::bytes::<f64>(content, &Limits::default()).expect_err("no matrix");
        assert!(error.to_string().starts_with(expected), "{error}");
    }
    let text = format!("{GENERAL}1 1 1\n1 1 1\n");
    let cut = gzip(text.as_bytes());
    let error = read::bytes::<f64>(&cut[..cut.len() - 6], &Limits::default()).expect_err("cut");
    assert!(error.to_string().starts_with("the input is damaged or cut off"), "{error}");
    let deep = (0..5).fold(text.into_bytes(), |inner, _| gzip(&inner));
    let error = read::bytes::<f64>(&deep, &Limits::default()).expect_err("5 layers");
    assert!(error.to_string().starts_with("the matrix is compressed more than 3 times"), "{error}");
    let error = read::file::<f64>("/nonexistent/matrix", &Limits::default()).expect_err("no file");
    assert!(matches!(error, Error::Io { .. }), "{error}");
    let error = read::file::<f64>("/", &Limits::default()).expect_err("a folder");
    assert!(matches!(error, Error::Io { .. }), "{error}");
}

#[test]
fn json_matrices_are_read() {
    let csr = read(
        r#" { "nrows": 2, "ncols": 3, "row_ptr": [0, 1, 3], "col_idx": [2, 1, 0],
              "values": [1.5, 2, -3e-2] } "#,
    )
    .expect("valid");
    assert_eq!(entries(&csr), [(0, 2, 1.5), (1, 0, -0.03), (1, 1, 2.0)]);
    let ones = read(r#"{"ncols":2,"nrows":1,"col_idx":[1],"row_ptr":[0,1]}"#).expect("valid");
    assert_eq!(entries(&ones), [(0, 1, 1.0)]);
}

#[test]
fn malformed_json_is_named_with_its_place() {
    let cases = [
        ("{\"nrows\":1,\n\"rows\":1}", "line 2: column 7: unknown field `rows`"),
        ("{\"nrows\":1}", "line 1: column 11: missing field `ncols`"),
        ("{\"nrows\":-1}", "line 1: column 12: invalid value: integer `-1`"),
        ("{\"nrows\":1,", "line 1: column 11: EOF"),
        (
            r#"{"nrows":1,"ncols":1,"row_ptr":[0,0],"col_idx":[]} x"#,
            "line 1: column 52: trailing characters",
        ),
        (
            r#"{"nrows":1,"ncols":1,"row_ptr":[0,1],"col_idx":[1]}"#,
            "row 0 stores column 1, but the matrix has 1 columns",
        ),
        (
            r#"{"nrows":2,"ncols":1,"row_ptr":[0,1],"col_idx":[0]}"#,
            "row_ptr has length 2, the matrix needs 3",
        ),
        (
            r#"{"nrows":1,"ncols":1,"row_ptr":[0,1],"col_idx":[0],"values":[]}"#,
            "values has length 0, the matrix needs 1",
        ),
        (
            r#"{"nrows":1,"ncols":1,"row_ptr":[0,1],"col_idx":[0],"values":[1e999]}"#,
            "line 1: column 67: number out of range",
        ),
    ];
    for (text, expected) in cases {
        let error = read(text).expect_err("malformed").to_string();
        assert!(error.starts_with(expected), "{text}: {error}");
    }
    let large = r#"{"nrows":1,"ncols":1,"row_ptr":[0,1],"col_idx":[0],"values":[1e39]}"#;
    let error = read::bytes::<f32>(large.as_bytes(), &Limits::default()).expect_err("overflow");
    assert_eq!(error.to_string(), "values[0] is 1e39; it must be finite in f32");
}

#[test]
fn scipy_archives_are_read() {
    let csr =
        corpus::dense(7, 5, |i, j| ((i + 2 * j) % 3 == 0).then_some(i as f64 - 0.5 * j as f64));
    for archive in [Npz::csr(&csr), Npz::csc(&csr), Npz::coo(&csr)] {
        for content in [archive.stored(), archive.deflated()] {
            assert_eq!(read::bytes::<f64>(&content, &Limits::default()).expect("valid"), csr);
            let narrow = read::bytes::<f32>(&content, &Limits::default()).expect("valid");
            assert_eq!(narrow, csr.cast());
        }
    }
}

#[test]
fn archives_of_every_type_of_number_are_read() {
    let csr = corpus::dense(3, 3, |i, j| (i >= j).then_some(1.0 + (i % 2) as f64));
    let read = |archive: &Npz| read::bytes::<f64>(&archive.stored(), &Limits::default());
    for (descr, size) in [("<i1", 1), ("<u2", 2), ("<i4", 4), ("<i8", 8), ("<u8", 8)] {
        let values: Vec<u8> =
            csr.values().iter().flat_map(|&v| (v as u64).to_le_bytes()[..size].to_vec()).collect();
        let archive = Npz::csr(&csr).with("data", descr, &[csr.nnz()], &values);
        assert_eq!(read(&archive).expect(descr), csr);
    }
    let values: Vec<u8> = csr.values().iter().flat_map(|&v| (v as f32).to_be_bytes()).collect();
    let archive = Npz::csr(&csr).with("data", ">f4", &[csr.nnz()], &values);
    assert_eq!(read(&archive).expect("big endian"), csr);
    let archive = Npz::csr(&csr).with("data", "|b1", &[csr.nnz()], &vec![1; csr.nnz()]);
    assert_eq!(read(&archive).expect("booleans"), csr.map_values(|_| 1.0));
    let wide: Vec<u8> = csr.row_ptr().iter().flat_map(|&p| (p as i64).to_le_bytes()).collect();
    let archive = Npz::csr(&csr).with("indptr", "<i8", &[4], &wide);
    assert_eq!(read(&archive).expect("64-bit pointers"), csr);
    let text: Vec<u8> = "csr".chars().flat_map(|c| (c as u32).to_le_bytes()).collect();
    let archive = Npz::csr(&csr).with("format", "<U3", &[], &text);
    assert_eq!(read(&archive).expect("a text of 4-byte characters"), csr);
}

#[test]
fn malformed_archives_are_named_with_the_array() {
    let csr = corpus::dense(3, 3, |i, j| (i >= j).then_some(1.0));
    let good = Npz::csr(&csr);
    let i4 =
        |numbers: &[i32]| -> Vec<u8> { numbers.iter().flat_map(|n| n.to_le_bytes()).collect() };
    let cases = [
        (
            good.clone().with("format", "|S3", &[], b"bsr"),
            "array 'data': its shape is [6]; it must",
        ),
        (
            good.clone().with("format", "|S3", &[], b"dia"),
            "array 'data': its shape is [6]; it must",
        ),
        (good.clone().without("shape"), "array 'shape': it is missing from the archive"),
        (good.clone().without("indptr"), "array 'indptr': it is missing from the archive"),
        (good.clone().with("shape", "<i4", &[1], &i4(&[3])), "the array has 1 dimensions, not 2"),
        (
            good.clone().with("shape", "<i4", &[3], &i4(&[3, 3, 1])),
            "array 'shape': it has 3 elements; the limit is 2",
        ),
        (
            good.clone().with("indptr", "<i4", &[5], &i4(&[0, 2, 4, 6, 6])),
            "array 'indptr': it has 5 elements; the limit is 4",
        ),
        (
            good.clone().with("shape", "<i4", &[2], &i4(&[3, -3])),
            "array 'shape': element 1: it must",
        ),
        (
            good.clone().with("indices", "<i4", &[6], &i4(&[0, 0, 1, 0, 1, 3])),
            "array 'indices': element 5: index 3 is not below 3",
        ),
        (
            good.clone().with("indices", "<i4", &[6], &i4(&[-1, 0, 1, 0, 1, 2])),
            "array 'indices': element 0: it must be a whole number and not negative",
        ),
        (
            good.clone().with("indices", "<i4", &[5], &i4(&[0, 0, 1, 0, 1])),
            "array 'indices' has 5 elements and array 'data' 6",
        ),
        (
            good.clone().with("indptr", "<i4", &[4], &i4(&[0, 3, 1, 6])),
            "array 'indptr': element 2: it must be a whole number from 3 to 6",
        ),
        (good.clone().with("indptr", "<i4", &[4], &i4(&[0, 1, 3, 7])), "array 'indptr': element 3"),
        (
            good.clone().with("indptr", "<i4", &[3], &i4(&[0, 1, 6])),
            "array 'indptr' has 3 elements",
        ),
        (good.clone().with("indptr", "<i4", &[4], &i4(&[1, 1, 3, 6])), "array 'indptr' has 4 elem"),
        (good.clone().with("data", "<f8", &[6], &[0; 40]), "the input is damaged or cut off"),
        (good.clone().with("data", "<f8", &[6], &[0; 56]), "array 'data': more bytes follow its 6"),
        (good.clone().with("data", "<f8", &[2, 3], &[0; 48]), "array 'data': its shape is [2, 3]"),
        (
            good.clone().with("data", "<c16", &[6], &[0; 96]),
            "array 'data': the values are complex (complex128), which needs an option",
        ),
        (good.clone().with("data", "|O", &[6], &[0; 48]), "the numpy header"),
        (
            good.clone().with("data", "<m8", &[6], &[0; 48]),
            "array 'data': element 0: values of type m8 are not supported",
        ),
        (good.with("data", "<f8", &[6], &[0xff; 48]), "array 'data': element 0: NaN is not finite"),
    ];
    for (archive, expected) in cases {
        let error = read::bytes::<f64>(&archive.stored(), &Limits::default()).expect_err(expected);
        assert!(error.to_string().starts_with(expected), "{error}");
    }
    let mut damaged = Npz::csr(&csr).stored();
    let at = damaged.windows(8).position(|w| w == 1.0_f64.to_le_bytes()).expect("a value");
    damaged[at] ^= 1;
    let error = read::bytes::<f64>(&damaged, &Limits::default()).expect_err("a wrong sum");
    assert!(error.to_string().starts_with("the input is damaged or cut off"), "{error}");
    let room = Npz::csr(&csr).with("indptr", "<i4", &[4], &i4(&[0, 1, 3, 3]));
    let pruned = read::bytes::<f64>(&room.stored(), &Limits::default()).expect("room is allowed");
    assert_eq!(pruned.nnz(), 3);
}
