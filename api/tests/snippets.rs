//! The Rust programs that the page shows; a test of the page compares its text with these files.

#![allow(clippy::print_stdout, reason = "the programs print")]

mod file {
    include!("page/programs/file.rs");

    pub fn run() -> ellect::Result<()> {
        main()
    }
}

mod generated {
    include!("page/programs/generated.rs");

    pub fn run() -> ellect::Result<()> {
        main()
    }
}

#[test]
fn the_programs_of_the_page_run() {
    let samples = format!("{}/../tests/data", env!("CARGO_MANIFEST_DIR"));
    std::env::set_current_dir(samples).expect("it is there");
    file::run().expect("the file is read");
    generated::run().expect("the matrix is generated");
}
