//! Text files as people have them: each with its matrix or the exact message.

mod forms;
mod input;

use ellect::read::{Complex, Options};
use forms::table::{PLAIN, outcome, table};
use forms::*;

fn mm(banner: &str, rest: &str) -> Vec<u8> {
    format!("%%MatrixMarket matrix {banner}\n{rest}").into_bytes()
}

#[test]
fn lines_and_banners_of_matrix_market_as_they_are_written() {
    let text = String::from_utf8(plain()).expect("ASCII");
    table(
        &Options::default(),
        &[
            ("byte order mark", [b"\xef\xbb\xbf", &plain()[..]].concat(), PLAIN),
            ("blanks before the banner", [b"  \t", &plain()[..]].concat(), PLAIN),
            ("blank lines before the banner", [b"\n \r\n\n", &plain()[..]].concat(), PLAIN),
            ("both", [b"\xef\xbb\xbf\n  ", &plain()[..]].concat(), PLAIN),
            ("one percent sign", text.as_bytes()[1..].to_vec(), PLAIN),
            ("CR alone", text.replace('\n', "\r").into_bytes(), PLAIN),
            ("CR alone, with blank lines", text.replace('\n', "\r\r").into_bytes(), PLAIN),
            ("CRLF", text.replace('\n', "\r\n").into_bytes(), PLAIN),
            ("a remark", mm("coordinate real general written by hand", BODY), PLAIN),
            (
                "a remark with words of the banner",
                mm("coordinate real general real 3", BODY),
                PLAIN,
            ),
            ("a blank after the percent signs", text.replacen("%%", "%% ", 1).into_bytes(), PLAIN),
            ("a comment", mm("coordinate real general % symmetric 3", BODY), PLAIN),
        ],
    );
}

#[test]
fn values_of_matrix_market_as_they_are_written() {
    let text = String::from_utf8(plain()).expect("ASCII");
    let real = |values: &str| mm("coordinate real general", values);
    table(
        &Options::default(),
        &[
            (
                "unsigned",
                mm("coordinate unsigned-integer symmetric", "2 2 2\n1 1 1\n2 1 2\n"),
                "2x2 1,1=1 1,2=2 2,1=2",
            ),
            (
                "negative unsigned",
                mm("coordinate unsigned-integer general", "1 1 1\n1 1 -1\n"),
                "line 3: the value is '-1'; the file promises integers that are not negative",
            ),
            (
                "exponents of Fortran",
                real("2 3 5\n1 1 1.0D+03\n1 2 2.5d-1\n1 3 1.0+3\n2 1 -1.-2\n2 2 .5Q0\n"),
                "2x3 1,1=1000 1,2=0.25 1,3=1000 2,1=-0.01 2,2=0.5",
            ),
            ("a sum", real("1 1 1\n1 1 1+3\n"), "line 3: the value is '1+3'; it must be a number"),
            (
                "a decimal comma",
                real("1 1 1\n1 1 1,5\n"),
                "line 3: the value is '1,5'; it must be a number",
            ),
            (
                "an exponent cut off",
                real("1 1 1\n1 1 1D\n"),
                "line 3: the value is '1D'; it must be a number",
            ),
            (
                "an exponent of Fortran that overflows",
                real("1 1 1\n1 1 1D400\n"),
                "line 3: the value is '1D400'; it must be finite in f64",
            ),
            (
                "an integer with an exponent",
                mm("coordinate integer general", "1 1 1\n1 1 1D0\n"),
                "line 3: the value is '1D0'; the file promises integers",
            ),
            (
                "a fault behind blank lines",
                [b"\n\n", &real("1 1 1\n1 1 x\n")[..]].concat(),
                "line 5: the value is 'x'; it must be a number",
            ),
            (
                "a fault behind CR alone",
                text.replace('\n', "\r").replace('6', "x").into_bytes(),
                "line 7: the value is 'x'; it must be a number",
            ),
        ],
    );
}

#[test]
fn banners_that_could_mean_two_things_are_refused() {
    table(
        &Options::default(),
        &[
            (
                "two symmetries",
                mm("coordinate real general symmetric", BODY),
                "line 1: 'symmetric' follows the banner, which is complete after the symmetry; remove it, \
             or put it in its place",
            ),
            (
                "sizes in the banner",
                mm("coordinate real general 3 3 5", "1 1 4\n"),
                "line 1: '3' follows the banner, which is complete after the symmetry; remove it, or put \
             it in its place",
            ),
        ],
    );
}

#[test]
fn arrays_of_matrix_market_as_they_are_written() {
    table(
        &Options::default(),
        &[
            (
                "skew array",
                mm("array real skew-symmetric", "3 3\n1\n2\n3\n"),
                "3x3 1,2=-1 1,3=-2 2,1=1 2,3=-3 3,1=2 3,2=3",
            ),
            (
                "skew array with its diagonal",
                mm("array real skew-symmetric", "3 3\n0\n1\n2\n0\n3\n0\n"),
                "3x3 1,2=-1 1,3=-2 2,1=1 2,3=-3 3,1=2 3,2=3",
            ),
            (
                "skew array with a diagonal",
                mm("array real skew-symmetric", "2 2\n0\n1\n7\n"),
                "line 5: the array lists its diagonal, whose value in column 2 is 7; a skew-symmetric \
             matrix has a zero diagonal",
            ),
            (
                "skew array cut off",
                mm("array real skew-symmetric", "3 3\n0\n1\n2\n0\n"),
                "line 6: the file ends after 4 values; there must be the 3 below the diagonal of a 3 x \
             3 array, or 6 with the diagonal",
            ),
            (
                "skew array in full",
                mm("array real skew-symmetric", "2 2\n0\n1\n-1\n0\n"),
                "line 6: more values than the 1 below the diagonal of a 2 x 2 array, or 3 with the \
             diagonal",
            ),
            (
                "symmetric array in full",
                mm("array real symmetric", "2 2\n0\n1\n1\n0\n"),
                "line 6: more values than the 3 of the lower triangle of a 2 x 2 array",
            ),
            (
                "rounded integers",
                mm(
                    "coordinate integer general",
                    "1 3 3\n1 1 9007199254740992\n1 2 9007199254740993\n1 3 -9007199254740995\n",
                ),
                "1x3 1,1=9007199254740992 1,2=9007199254740992 1,3=-9007199254740996; 2 integers \
             over 2^53 were rounded to the next number of 53 bits",
            ),
            (
                "UTF-16",
                b"\xff\xfe%\0%\0M\0".to_vec(),
                "byte 0: the input is text in UTF-16; save it as UTF-8 or ASCII",
            ),
        ],
    );
}

const COMPLEX: &str = "complex and hermitian matrices need an option; read each number a + bi as the \
                       block [[a, -b], [b, a]] of a real matrix with --complex blocks \
                       (complex=blocks over HTTP), or, if every imaginary part is zero, read the real \
                       parts with --real-part (real_part=true over HTTP)";

#[test]
fn complex_matrices_are_read_by_their_real_parts_on_demand() {
    let complex = mm("coordinate complex general", "1 2 2\n1 1 4 0\n1 2 -1.5 -0.0\n");
    let hermitian = mm("coordinate complex hermitian", "2 2 2\n1 1 4 0\n2 1 2 0.0\n");
    let real = mm("coordinate real hermitian", "2 2 2\n1 1 4\n2 1 2\n");
    let imaginary = mm("coordinate complex general", "1 1 1\n1 1 4 1e-300\n");
    let short = mm("coordinate complex general", "1 1 1\n1 1 4\n");
    let values: Vec<u8> = BY_ROWS.iter().flat_map(|v| [v.to_le_bytes(), [0; 8]].concat()).collect();
    let npz = csr_npz("<c16", &values).stored();
    let imaginary_npz = csr_npz("<c16", &[&values[..72], &1_f64.to_le_bytes()].concat()).stored();
    let m = Matlab { big: false };
    let parts = [m.ints(&ROWS), m.ints(&POINTERS), m.doubles(&BY_COLUMNS), m.doubles(&[0.0; 5])];
    let matlab = m.file(&[m.matrix(5 | 0x800, "A", [3, 3], &parts)]);
    let line = |what: &str| format!("line 1: {what}");
    let named = |what: &str| COMPLEX.replace("complex and hermitian matrices need an option", what);
    table(
        &Options::default(),
        &[
            ("complex", complex.clone(), &line(COMPLEX)),
            ("hermitian", hermitian.clone(), &line(COMPLEX)),
            ("real hermitian", real.clone(), &line(COMPLEX)),
            (
                "complex npz",
                npz.clone(),
                &named("array 'data': the values are complex (complex128), which needs an option"),
            ),
            (
                "complex MATLAB",
                matlab.clone(),
                &format!("{} (in A)", named("the MATLAB matrix is complex, which needs an option")),
            ),
            (
                "complex Boeing",
                boeing("CUA", "(16I2) (16I2) (3E9.2)", ["1\n", "1\n", "1\n"], ""),
                "line 3: the type is CUA, a complex matrix; write the real and the imaginary part as two \
             matrices",
            ),
        ],
    );
    table(
        &Options { complex: Complex::RealPart, ..Options::default() },
        &[
            ("complex", complex, "1x2 1,1=4 1,2=-1.5"),
            ("hermitian", hermitian, "2x2 1,1=4 1,2=2 2,1=2"),
            ("real hermitian", real, "2x2 1,1=4 1,2=2 2,1=2"),
            (
                "imaginary",
                imaginary,
                "line 3: the imaginary part is '1e-300'; only matrices whose imaginary parts are all zero \
             can be read by their real parts",
            ),
            ("a missing part", short, "line 3: the imaginary part is missing"),
            ("complex npz", npz, PLAIN),
            (
                "imaginary npz",
                imaginary_npz,
                "array 'data': element 4: the imaginary part is 1; only matrices whose imaginary parts \
             are all zero can be read by their real parts",
            ),
            ("complex MATLAB", matlab, PLAIN),
        ],
    );
}

#[test]
fn boeing_files() {
    let real = "  4.00E+00  2.00E+00  5.00E+00\n  1.00E+00  6.00E+00\n";
    let pattern = boeing("PUA", "(16I2)          (16I2)", [" 1 3 4 6\n", " 1 3 2 1 3\n", ""], "");
    let with_rhs = boeing(
        "RUA",
        "(16I2)          (16I2)          (5F4.0)",
        [" 1 3 4 6\n", " 1 3 2 1 3\n", "  4.  2.  5.  1.  6.\n"],
        "  1.  2.  3.\n",
    );
    let lists = [" 1 3 4 6\n", " 1 3 2 1 3\n", "  4.  2.  5.  1.  6.\n"];
    let kind = |kind: &str| boeing(kind, "(16I2)          (16I2)          (5F4.0)", lists, "");
    table(
        &Options::default(),
        &[
            ("real", rua("(3E10.2)", real), PLAIN),
            ("real with D", rua("(1P,3D10.2)", &real.replace('E', "D")), PLAIN),
            (
                "real with E left out",
                rua(
                    "(3E10.2)",
                    &real
                        .replace('E', " ")
                        .replace(" +", "+")
                        .replace("  4.00+00  2.00+00  5.00+00", "   4.00+00   2.00+00   5.00+00")
                        .replace("  1.00+00  6.00+00", "   1.00+00   6.00+00"),
                ),
                PLAIN,
            ),
            ("real without points", rua("(5F4.1)", "  40  20  50  10  60\n"), PLAIN),
            (
                "integers",
                boeing(
                    "IUA",
                    "(16I2)          (16I2)          (8I3)",
                    [" 1 3 4 6\n", " 1 3 2 1 3\n", "  4  2  5  1  6\n"],
                    "",
                ),
                PLAIN,
            ),
            (
                "CRLF",
                String::from_utf8(rua("(3E10.2)", real))
                    .expect("ASCII")
                    .replace('\n', "\r\n")
                    .into_bytes(),
                PLAIN,
            ),
            ("lower case", kind("rua"), PLAIN),
            ("pattern", pattern, "3x3 1,1=1 1,3=1 2,2=1 3,1=1 3,3=1"),
            (
                "right-hand sides",
                with_rhs,
                &format!("{PLAIN}; passed over the right-hand sides behind the matrix"),
            ),
        ],
    );
}

#[test]
fn symmetries_and_faults_of_boeing_files() {
    let lower = [" 1 3 4 5\n", " 1 3 2 3\n", "4. 2. 5. 6. "];
    let formats = "(16I2)          (16I2)          (4F3.0)";
    let four = |kind: &str, lists| {
        let text = String::from_utf8(boeing(kind, formats, lists, "")).expect("ASCII");
        text.replacen("             5", "             4", 1).into_bytes()
    };
    let lists = [" 1 3 4 6\n", " 1 3 2 1 3\n", "  4.  2.  5.  1.  6.\n"];
    let kind = |kind: &str| boeing(kind, "(16I2)          (16I2)          (5F4.0)", lists, "");
    let real = "  4.00E+00  2.00E+00  5.00E+00\n  1.00E+00  6.00E+00\n";
    table(
        &Options::default(),
        &[
            ("symmetric", four("RSA", lower), "3x3 1,1=4 1,3=2 2,2=5 3,1=2 3,3=6"),
            (
                "elemental",
                kind("RSE"),
                "line 3: the type is RSE, an elemental matrix; assemble it and write it as RSA",
            ),
            (
                "a full symmetric matrix",
                kind("RSA"),
                "the file is symmetric, but lists entries both above and below the diagonal (entries 4 and \
             2); list one triangle, or declare the file general",
            ),
            (
                "skew-symmetric with a diagonal",
                four("RZA", lower),
                "the diagonal entry of row 1 is not zero; a skew-symmetric matrix has a zero diagonal",
            ),
            (
                "another format",
                rua("(3A8)", real),
                "line 4: the format of the values is '(3A8)'; it must be one such as (16I5) or (3E25.16)",
            ),
            (
                "a value that is none",
                rua("(5F4.0)", "  4.  2.  x.  1.  6.\n"),
                "line 7: the value is '  x.'; it must be a number",
            ),
            (
                "values cut off",
                rua("(5F4.0)", "  4.  2.\n"),
                "line 8: the file ends after 2 values of 5",
            ),
            (
                "a row that is too large",
                boeing("PUA", "(16I2)  (16I2)", [" 1 3 4 6\n", " 1 3 2 1 4\n", ""], ""),
                "line 6: the row index is ' 4'; it must be from 1 to 3",
            ),
            (
                "a pointer that falls",
                boeing("PUA", "(16I2)  (16I2)", [" 1 3 2 6\n", " 1 3 2 1 3\n", ""], ""),
                "line 5: the pointer is ' 2'; it must be from 3 to 6",
            ),
            (
                "pointers that end early",
                boeing("PUA", "(16I2)  (16I2)", [" 1 3 4 5\n", " 1 3 2 1\n", ""], ""),
                "the pointers go from 1 to 5; they must go from 1 to 6",
            ),
        ],
    );
    let named = std::env::temp_dir().join(format!("ellect-{}.rua", std::process::id()));
    std::fs::write(&named, "no\nmatrix\n").expect("written");
    let error = Options::default().file::<f64>(&named).expect_err("no matrix").to_string();
    std::fs::remove_file(&named).expect("removed");
    assert!(
        error.starts_with("line 2: the line is 'matrix'; it must hold the numbers of lines"),
        "{error}"
    );
}

#[test]
fn json_with_the_names_of_scipy() {
    let arrays = r#""indptr":[0,2,3,5],"indices":[0,2,1,0,2],"data":[4,1,5,2,6]"#;
    let json = |head: &str| format!("{{{head}{arrays}}}").into_bytes();
    table(
        &Options::default(),
        &[
            ("shape", json(r#""shape":[3,3],"#), PLAIN),
            ("mixed names", json(r#""nrows":3,"ncols":3,"#), PLAIN),
            (
                "no shape",
                json(""),
                &format!("{PLAIN}; the matrix states no shape: read with 3 rows and 3 columns"),
            ),
            ("byte order mark", [b"\xef\xbb\xbf", &json(r#""shape":[3,3],"#)[..]].concat(), PLAIN),
            (
                "a name twice",
                json(r#""row_ptr":[0],"#),
                "line 1: column 34: duplicate field `indptr`",
            ),
            (
                "an array",
                b"[1, 2]".to_vec(),
                "byte 0: the input is a JSON array; a JSON matrix is an object \
            with nrows, ncols, row_ptr and col_idx",
            ),
        ],
    );
}

#[test]
fn unknown_content_is_named_and_never_shown_as_raw_bytes() {
    const KINDS: &str = "it must be Matrix Market text ('%%MatrixMarket'), a JSON matrix ('{'), a SciPy \
                         .npz, Rutherford-Boeing, PETSc or MATLAB file, plain, compressed or in a tar or \
                         zip archive";
    let contents: [&[u8]; 16] = [
        b"\x89HDF\r\n\x1a\n",
        b"\x93NUMPY\x01\0",
        b"7z\xbc\xaf\x27\x1c\0",
        b"Rar!\x1a\x07",
        b"\x1f\x9d\x90",
        b"\x04\x22\x4d\x18",
        b"LZIP\x01",
        b"\x80\x04\x95",
        b"PAR1\x15",
        b"CDF\x01",
        b"%PDF-1.7",
        b"\x7fELF",
        b"\0\x01\x02\x03",
        b"\xff\xd8\xff\xe0",
        b"<!DOCTYPE html>",
        b"version https://git-lfs.github.com",
    ];
    for content in contents {
        let message = outcome(&Options::default(), content);
        assert!(!message.contains(r"\x"), "{message}");
        assert!(message.starts_with("byte 0: the input is "), "{message}");
    }
    assert_eq!(
        outcome(&Options::default(), b"\0\x01\x02\x03"),
        format!("byte 0: the input is binary data of no known kind; {KINDS}")
    );
    assert_eq!(
        outcome(&Options::default(), "Gr\u{f6}\u{df}e 3".as_bytes()),
        format!("byte 0: the input starts with 'Gr\u{f6}\u{df}e 3'; {KINDS}")
    );
}
