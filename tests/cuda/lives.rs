//! Operators on a GPU after preparation: use in other threads, CUDA graphs, updates of values.

use std::sync::Arc;

use ellect::analysis::Analysis;
use ellect::cuda::{DeviceCsr, Gpu, Graph};
use ellect::format::{Candidate, FORMATS};
use ellect::generate::Spec;
use ellect::{Csr, PreparedOperator, Scalar};

use super::{exact_products, gpu, original, wanted};

#[test]
fn operators_go_from_thread_to_thread_and_outlive_their_gpu() {
    if gpu().is_none() {
        return;
    }
    // The second operator needs less shared memory per processor.
    let matrices = ["heat:20000", "heat:9000"].map(|spec| {
        let csr: Csr<f64> = spec.parse::<Spec>().expect("a class and rows").make();
        csr.map_values(|value| (value * 3.0).round() % 8.0)
    });
    let matrices = matrices.each_ref().map(|csr| {
        let twice = csr.map_values(|value| value + value);
        let products = [exact_products(csr), exact_products(&twice)];
        (Analysis::of(csr), products, csr, twice)
    });
    // As many threads as candidates convert at once, on a GPU handle that is dropped before its
    // operators.
    let operators: Vec<_> = std::thread::scope(|scope| {
        let gpu = Arc::new(Gpu::open(0).expect("there is a GPU"));
        let one = |candidate: Candidate| {
            let (gpu, matrices) = (Arc::clone(&gpu), &matrices);
            scope.spawn(move || {
                let target = original::<f64>(gpu.profile());
                let made = |of: usize| {
                    let (analysis, _, csr, _) = &matrices[of];
                    candidate.work(analysis, &target).ok()?;
                    let there = Arc::new(DeviceCsr::upload(&gpu, *csr).expect("memory suffices"));
                    PreparedOperator::on_gpu(&gpu, &there, *csr, analysis, &candidate, &target)
                        .map(|operator| Some((of, operator)))
                        .unwrap_or_else(|error| panic!("{candidate}: {error}"))
                };
                let made: Vec<_> = (0..matrices.len()).filter_map(made).collect();
                made.into_iter()
                    .map(|(of, operator)| (candidate.clone(), of, operator))
                    .collect::<Vec<_>>()
            })
        };
        let threads: Vec<_> = wanted().into_iter().map(one).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("none panics")).collect()
    });
    assert!(!operators.is_empty());
    // Each operator multiplies in a thread other than the one that made it, all at once, and is
    // dropped there.
    std::thread::scope(|scope| {
        for (candidate, of, mut operator) in operators {
            let (_, [of_csr, of_twice], _, twice) = &matrices[of];
            scope.spawn(move || {
                let what = format!("{candidate} of {} rows in another thread", twice.nrows());
                of_csr.iter().for_each(|product| product.check_exact(&what, &operator));
                operator
                    .update_values(twice.values())
                    .unwrap_or_else(|error| panic!("{what}: {error}"));
                of_twice.iter().for_each(|product| product.check_exact(&what, &operator));
            });
        }
    });
}

#[test]
fn captured_products_see_new_values() {
    let Some(gpu) = gpu() else { return };
    let csr: Csr<f64> = "heat:9000".parse::<Spec>().expect("a class and rows").make();
    let csr = csr.map_values(|value| (value * 3.0).round() % 8.0);
    let twice = csr.map_values(|value| value + value);
    let analysis = Analysis::of(&csr);
    let there = Arc::new(DeviceCsr::upload(&gpu, &csr).expect("memory suffices"));
    let [product, ..] = exact_products(&twice);
    let x = gpu.vector(&product.x).expect("memory suffices");
    for candidate in wanted() {
        let target = original::<f64>(gpu.profile());
        if candidate.work(&analysis, &target).is_err() {
            continue;
        }
        let failed = |error: ellect::Error| -> ! { panic!("{candidate}: {error}") };
        let mut operator =
            PreparedOperator::on_gpu(&gpu, &there, &csr, &analysis, &candidate, &target)
                .unwrap_or_else(|error| failed(error));
        let placed = operator.on_device_mut().expect("made on a GPU");
        placed.own_values().unwrap_or_else(|error| failed(error));
        let y = gpu.vector(&vec![f64::NAN; csr.nrows()]).expect("memory suffices");
        let (x_at, y_at) = (x.address(), y.address());
        let graph = Graph::capture(&gpu, |stream| {
            // SAFETY: the vectors have the matrix's lengths and outlive the graph's launch.
            unsafe { placed.operator().apply_raw(product.alpha, x_at, product.beta, y_at, stream) }
        })
        .unwrap_or_else(|error| failed(error));
        operator.update_values(twice.values()).unwrap_or_else(|error| failed(error));
        // SAFETY: operator and vectors still exist.
        unsafe { graph.launch(&gpu) }.unwrap_or_else(|error| failed(error));
        let mut got = vec![0.0; csr.nrows()];
        y.read(&mut got).unwrap_or_else(|error| failed(error));
        for (row, (got, want)) in got.iter().zip(&product.want).enumerate() {
            assert_eq!(*got, want.value, "{candidate}: row {row}, exact");
        }
    }
}

#[test]
fn values_that_a_layout_cannot_hold_are_refused_on_the_gpu() {
    let Some(gpu) = gpu() else { return };
    check_refused_values::<f64>(&gpu);
    check_refused_values::<f32>(&gpu);
}

fn check_refused_values<T: Scalar>(gpu: &Arc<Gpu>) {
    let of = |odd: Option<usize>| {
        let entries = (0..3000usize).flat_map(|i| {
            // Other than the values beside it, and no number of a type with fewer bits.
            let on = if odd == Some(i) { 0.1 } else { 2.0 };
            [(i, i, on)].into_iter().chain((i > 0).then(|| (i, i - 1, -1.0)))
        });
        let csr = Csr::<f64>::from_triplets(3000, 3000, entries).expect("indices are in range");
        csr.cast::<T>()
    };
    let (csr, odd) = (of(None), of(Some(2100)));
    let analysis = Analysis::of(&csr);
    let target = original::<T>(gpu.profile());
    let there = Arc::new(DeviceCsr::upload(gpu, &csr).expect("memory suffices"));
    // Formats for complex matrices are checked on such matrices.
    let here = FORMATS.iter().filter(|format| format.by_values && format.figures_of.is_none());
    let here = here.filter(|format| format.stores.rounds().is_none_or(|of| of == T::PRECISION));
    let by_values: Vec<&str> = here.map(|format| format.name).collect();
    assert!(!by_values.is_empty());
    for name in by_values {
        let candidate: Candidate = name.parse().expect("the format exists");
        let mut operator =
            PreparedOperator::on_gpu(gpu, &there, &csr, &analysis, &candidate, &target)
                .expect("diagonals are constant");
        assert!(operator.on_device().is_some_and(|placed| placed.is_built()));
        let refused = operator.update_values(odd.values()).expect_err("one value differs");
        assert!(refused.to_string().contains("row 2100"), "{name}: {refused}");
        let check = |what: &str, operator: &PreparedOperator<T>| {
            exact_products(&csr).iter().for_each(|product| product.check_exact(what, operator));
        };
        check(&format!("{name} after a refusal"), &operator);
        let odd = gpu.vector(odd.values()).expect("memory suffices");
        let placed = operator.on_device_mut().expect("made on a GPU");
        // SAFETY: the vector holds as many values as the matrix has entries.
        let refused = unsafe { placed.set_device_values(odd.address()) };
        let refused = refused.expect_err("one value differs").to_string();
        assert!(refused.contains("row 2100"), "{name}: {refused}");
        check(&format!("{name} after a refusal on the device"), &operator);
    }
}
