//! A lazy operator on a GPU starts at once, converts when that pays, and is always right. Without a
//! GPU the test says so, and fails if `REQUIRE_GPU=1`.
#![cfg(feature = "cuda")]
#![allow(clippy::print_stdout, reason = "says what ran where")]

use std::sync::Arc;

use ellect::choose::{Effort, Workload};
use ellect::generate::Spec;
use ellect::lazy::{Conversion, LazyOperator};
use ellect::measure::Backend;
use ellect::{Csr, Tuner, check};

/// More products than any conversion needs to pay for itself.
const MOST: u64 = 20_000;

#[test]
fn a_lazy_operator_on_the_gpu_converts_and_stays_right() {
    let data = std::env::temp_dir().join(format!("ellect-lazy-{}", std::process::id()));
    let backend = match Backend::open("cuda:0", &data) {
        Ok(backend) => backend,
        Err(error) => {
            assert!(std::env::var_os("REQUIRE_GPU").is_none(), "no GPU: {error}");
            println!("not run: {error}");
            return;
        }
    };
    let tuner =
        Tuner::without_models(backend).with_models(&data).expect("shipped models are sound");
    let tuner = Arc::new(tuner);
    // The matrix has few diagonals, so that a format of ours moves fewer bytes than CSR.
    let csr: Csr<f64> = "stencil7:200000".parse::<Spec>().expect("a class and rows").make();
    let csr = Arc::new(csr.map_values(|value| (value * 3.0).round() % 8.0 + 1.0));
    for effort in [Effort::Estimate, Effort::Predict] {
        for conversion in [Conversion::Here, Conversion::Background] {
            let workload = Workload { effort, ..Workload::default() };
            let lazy = LazyOperator::new(tuner.clone(), csr.clone(), workload, conversion);
            let mut lazy = lazy.expect("CSR suits");
            let first = lazy.operator().candidate().to_string();
            assert_eq!(first, "csr", "nothing was looked at");
            right(&mut lazy, &csr);
            let x = check::whole_numbers::<f64>(csr.ncols(), 3);
            let mut y = vec![0.0; csr.nrows()];
            while lazy.operator().candidate().to_string() == first {
                assert!(lazy.products() < MOST, "still {first} after {MOST} products");
                lazy.apply(1.0, &x, 0.0, &mut y).expect("it fits");
            }
            let (now, products) = (lazy.operator().candidate(), lazy.products());
            println!("{effort:?}, {conversion:?}: {now} from product {products} on");
            right(&mut lazy, &csr);
            let other = csr.map_values(|value| 9.0 - value);
            lazy.update_values(other.values()).expect("the pattern is the same");
            right(&mut lazy, &other);
        }
    }
}

/// Returns products of whole numbers, which are exact in every order of summation.
fn right(lazy: &mut LazyOperator<f64>, csr: &Csr<f64>) {
    let x = check::whole_numbers::<f64>(csr.ncols(), 1);
    for (alpha, beta) in [(1.0, 0.0), (2.0, -1.0)] {
        let mut y = check::whole_numbers::<f64>(csr.nrows(), 2);
        let want = check::reference(csr, alpha, &x, beta, &y);
        lazy.apply(alpha, &x, beta, &mut y).expect("it fits");
        for (row, (got, want)) in y.iter().zip(&want).enumerate() {
            assert_eq!(*got, want.value, "{}: row {row}, exact", lazy.operator().candidate());
        }
    }
}
