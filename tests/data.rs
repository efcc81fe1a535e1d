//! The samples under `tests/data` equal the generators' output to the last digit.

use ellect::read::{self, Limits};
use ellect::{Csr, generate};

#[test]
fn the_samples_are_what_the_generators_make() {
    for (class, rows) in [("elasticity", 190), ("convection_diffusion", 700), ("circuit", 800)] {
        let path = format!("{}/tests/data/{class}.mtx", env!("CARGO_MANIFEST_DIR"));
        let stored: Csr<f32> = read::file(&path, &Limits::default()).expect("a sample reads");
        let made = generate::by_name(class, rows, 1).expect("the class exists").cast::<f32>();
        assert_eq!(
            stored, made,
            "write it again: ellect generate {class}:{rows} --precision f32 -o {path}"
        );
    }
}
