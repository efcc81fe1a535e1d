//! The solvers of `examples/solvers`, on a host.
#![allow(clippy::print_stdout, reason = "the example prints what it finds")]

#[path = "../examples/solvers/methods/mod.rs"]
mod solvers;

use solvers::{MOST_ERROR, SOLVED, run};

#[test]
fn solvers_find_known_solutions_on_a_host() {
    for (method, rows) in SOLVED {
        let found = run(method, "cpu", rows).expect("the solver runs");
        println!("{method}: {} iterations, {}", found.iterations, found.formats.join(", "));
        assert!(found.error <= MOST_ERROR, "{method}: error {:.1e}", found.error);
        assert!(found.iterations > 20, "{method}: {} iterations", found.iterations);
        assert!(found.formats.iter().all(|format| format.ends_with("in two passes")));
    }
}

#[test]
fn other_methods_are_refused() {
    let error = run("jacobi", "cpu", 100).err().expect("there is none").to_string();
    assert!(error.contains("'jacobi'") && error.contains("bicgstab, chebyshev or pdhg"), "{error}");
}
