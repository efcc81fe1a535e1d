//! Host products.
fn main() {
    divan::main();
}
