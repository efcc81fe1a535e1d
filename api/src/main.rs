//! The one binary of the project.
fn main() {}
