//! Lazy operators with vectors on the GPU: right before, during and after the switch, with values
//! that change meanwhile, and products that never wait.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ellect::choose::Workload;
use ellect::cuda::{DeviceCsr, Gpu, Vector};
use ellect::generate::Spec;
use ellect::lazy::{Conversion, LazyOperator};
use ellect::{Csr, Tuner, check};

use super::{alone, gpu};

/// More products than any switch takes.
const MOST: u64 = 5_000;

/// Products that are queued behind other work: fewer than a stream takes without waiting.
const EACH: usize = 20;

/// A matrix on the GPU, and vectors with the exact products of them.
struct Case {
    tuner: Arc<Tuner>,
    gpu: Arc<Gpu>,
    csr: Csr<f64>,
    there: Arc<DeviceCsr<f64>>,
    xs: Vec<Vector<f64>>,
}

impl Case {
    /// `None` without a GPU.
    fn new() -> Option<Self> {
        gpu()?;
        let tuner = Arc::new(Tuner::open("cuda:0").expect("there is a GPU"));
        let gpu = Arc::clone(tuner.backend().gpu().expect("it was opened"));
        // Whole numbers, too many different ones for formats that are chosen by values. Blocks of
        // 3 x 3 entries make several formats faster than CSR.
        let mut csr: Csr<f64> = "elasticity:60000".parse::<Spec>().expect("a class").make();
        let numbers = (0u32..).map(|k| f64::from(k.wrapping_mul(2_654_435_761) >> 20));
        csr.values_mut().iter_mut().zip(numbers).for_each(|(value, number)| *value = number);
        let there = Arc::new(DeviceCsr::upload(&gpu, &csr).expect("memory suffices"));
        let x = |seed| gpu.vector(&check::whole_numbers::<f64>(csr.ncols(), seed));
        let xs = (0..4).map(|seed| x(seed).expect("memory suffices")).collect();
        Some(Case { tuner, gpu, csr, there, xs })
    }

    fn lazy(&self, conversion: Conversion) -> LazyOperator<f64> {
        let (tuner, there) = (Arc::clone(&self.tuner), Arc::clone(&self.there));
        let lazy = LazyOperator::on_gpu(tuner, there, Workload::default(), conversion);
        let lazy = lazy.expect("CSR applies");
        assert!(lazy.operator().candidate().is_csr() && lazy.choice().is_none());
        lazy
    }

    /// Returns the exact products of `csr` by all vectors.
    fn wanted(&self, csr: &Csr<f64>) -> Vec<Vec<f64>> {
        let zeros = vec![0.0; csr.nrows()];
        let product = |seed| {
            let x = check::whole_numbers::<f64>(csr.ncols(), seed);
            let rows = check::reference(csr, 1.0, &x, 0.0, &zeros);
            rows.iter().map(|row| row.value).collect()
        };
        (0..self.xs.len() as u64).map(product).collect()
    }

    /// Multiplies by the next vector and compares with the exact products of the current values.
    fn check(&self, lazy: &mut LazyOperator<f64>, y: &mut Vector<f64>, wanted: &[Vec<f64>]) {
        let products = lazy.products();
        let at = products as usize % self.xs.len();
        lazy.apply_on_gpu(1.0, &self.xs[at], 0.0, &mut *y).expect("it fits");
        let mut got = vec![f64::NAN; self.csr.nrows()];
        y.read(&mut got).expect("no kernel fails");
        let candidate = lazy.operator().candidate();
        for (row, (got, want)) in got.iter().zip(&wanted[at]).enumerate() {
            assert_eq!(got, want, "{candidate}, product {products}: row {row}, exact");
        }
    }
}

/// Checks that the operator still has products left for a switch.
fn within(lazy: &LazyOperator<f64>) {
    let said = lazy.choice().map(|choice| &choice.explanation);
    assert!(lazy.products() < MOST, "no switch: {said:?}");
}

#[test]
fn lazy_products_on_the_gpu_are_right_before_during_and_after_the_switch() {
    let Some(case) = Case::new() else { return };
    let wanted = case.wanted(&case.csr);
    for conversion in [Conversion::Background, Conversion::Here, Conversion::Background] {
        let mut lazy = case.lazy(conversion);
        let mut y = case.gpu.zeros(case.csr.nrows()).expect("memory suffices");
        while lazy.switched_after().is_none() {
            case.check(&mut lazy, &mut y, &wanted);
            within(&lazy);
        }
        let choice = lazy.choice().expect("a decision was made");
        println!("{conversion:?}: {}", choice.explanation.join(" "));
        assert_eq!(choice.candidate, *lazy.operator().candidate());
        (0..100).for_each(|_| case.check(&mut lazy, &mut y, &wanted));
        assert_eq!(lazy.operator().to_csr().expect("it was copied"), case.csr);
    }
}

#[test]
fn values_that_change_during_a_lazy_conversion_are_never_stale() {
    let Some(case) = Case::new() else { return };
    let all: Vec<_> = [3.0, 5.0, 7.0].map(|n| case.csr.map_values(|v| n - v)).into();
    let wanted: Vec<_> = all.iter().map(|csr| case.wanted(csr)).collect();
    let values = |csr: &Csr<f64>| case.gpu.vector(csr.values()).expect("memory suffices");
    let values: Vec<_> = all.iter().map(values).collect();
    for each in [1, 7] {
        let mut lazy = case.lazy(Conversion::Background);
        let mut y = case.gpu.zeros(case.csr.nrows()).expect("memory suffices");
        let (mut turn, mut after) = (0, 0);
        while after < 50 {
            let now = turn / each % all.len();
            if turn % each == 0 && turn / each % 2 == 0 {
                lazy.update_values_on_gpu(&values[now]).expect("the pattern is the same");
            } else if turn % each == 0 {
                lazy.update_values(all[now].values()).expect("the pattern is the same");
            }
            case.check(&mut lazy, &mut y, &wanted[now]);
            turn += 1;
            after += usize::from(lazy.switched_after().is_some());
            within(&lazy);
        }
        println!("updates every {each} products: {:?}", lazy.choice().map(|c| &c.explanation[0]));
    }
}

#[test]
fn lazy_products_never_wait_for_the_gpu() {
    let Some(case) = Case::new() else { return };
    let _alone = alone();
    let gpu = &case.gpu;
    let long = gpu.zeros::<f64>(1 << 25).expect("memory suffices");
    let mut sum = gpu.zeros::<f64>(1 << 25).expect("memory suffices");
    let mut work = || (0..100).for_each(|_| gpu.axpby(1.0, &long, 1.0, &mut sum).expect("queued"));
    work();
    gpu.synchronize().expect("no kernel fails");
    let start = Instant::now();
    work();
    gpu.synchronize().expect("no kernel fails");
    let work_s = start.elapsed().as_secs_f64();
    // The first run loads the kernels that the others use.
    for run in 0..4 {
        let mut lazy = case.lazy(Conversion::Background);
        let mut y = gpu.zeros(case.csr.nrows()).expect("memory suffices");
        let mut longest_s = 0.0f64;
        let mut after = 0;
        while after < 3 {
            work();
            let start = Instant::now();
            for x in case.xs.iter().cycle().take(EACH) {
                let start = Instant::now();
                lazy.apply_on_gpu(1.0, x, 0.0, &mut y).expect("it fits");
                longest_s = longest_s.max(start.elapsed().as_secs_f64());
            }
            let queued_s = start.elapsed().as_secs_f64();
            let start = Instant::now();
            gpu.synchronize().expect("no kernel fails");
            let left_s = start.elapsed().as_secs_f64();
            // The work before the products had not ended when the last of them was queued.
            let what = format!("queued in {queued_s}, {left_s} left of {work_s} s");
            assert!(run == 0 || left_s > work_s / 4.0, "{what}");
            // The next turn finds a conversion finished that was asked for in this one.
            std::thread::sleep(Duration::from_millis(5));
            after += usize::from(lazy.switched_after().is_some());
            within(&lazy);
        }
        println!(
            "run {run}: longest of {} calls {:.1} us, behind {:.1} ms of work; {}",
            lazy.products(),
            longest_s * 1e6,
            work_s * 1e3,
            lazy.choice().expect("it switched").explanation.join(" ")
        );
    }
}
