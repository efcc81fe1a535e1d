//! Tables of files: each with its matrix or the exact message.

use ellect::read::Options;

/// The matrix of most files of the tables.
pub const PLAIN: &str = "3x3 1,1=4 1,3=1 2,2=5 3,1=2 3,3=6";

/// Returns the size and all entries, counted from 1, then the notes; or the message.
pub fn outcome(options: &Options, content: &[u8]) -> String {
    let streamed = options.stream::<f64>(content);
    let read = options.bytes::<f64>(content);
    let text = |read: ellect::Result<ellect::read::Found<f64>>| match read {
        Ok(found) => {
            let csr = &found.csr;
            let mut text = format!("{}x{}", csr.nrows(), csr.ncols());
            for (i, j, value) in csr.iter() {
                text += &format!(" {},{}={value}", i + 1, j + 1);
            }
            found.notes.iter().for_each(|note| text += &format!("; {note}"));
            text
        }
        Err(error) => error.to_string(),
    };
    let text_of_bytes = text(read);
    assert_eq!(text_of_bytes, text(streamed), "a stream is read as bytes are");
    text_of_bytes
}

/// Checks each row of a table: a name, the content of the file, and its outcome.
#[track_caller]
pub fn table(options: &Options, cases: &[(&str, Vec<u8>, &str)]) {
    for (name, content, expected) in cases {
        assert_eq!(outcome(options, content), *expected, "{name}");
    }
}
