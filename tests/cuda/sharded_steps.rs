//! Steps of solvers on vectors divided among GPUs: dot products over all parts are exact and equal on all
//! GPUs, and conjugate gradients of such steps find a known solution.

use ellect::dots::DotWith;
use ellect::generate::Spec;
use ellect::sharded::{GpuFactor, GpuNumber, GpuShards, Mode, OnGpus, Split, Tuners};
use ellect::{Csr, Error, Scalar, Workload, check};

use super::sharded::{exact, matrix, tuners};

/// Returns the exact dot product of whole numbers.
fn dot<T: Scalar>(x: &[T], y: &[T]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x.to_f64() * y.to_f64()).sum()
}

/// Compares 40 products with dot products in a row, so that GPUs run ahead of each other.
fn dots<T: Scalar>(tuners: &Tuners, csr: &Csr<T>, split: Split<'_>) {
    let workload = Workload { spmvs: 1_000_000, ..Workload::default() };
    let a = tuners.prepare_sharded(csr, &workload, split).expect("it applies");
    let gpus = a.on_gpus().expect("GPUs reach each other");
    let n = csr.nrows();
    let [x, z, before] = [3, 4, 5].map(|seed| check::whole_numbers::<T>(n, seed));
    let there = |host: &[T]| gpus.scatter_x(host).expect("memory suffices");
    let (x_there, z_there) = (there(&x), there(&z));
    let number = || gpus.number().expect("memory suffices");
    let (mut first, mut second) = (number(), number());
    for round in 0..40 {
        let alpha = T::from_f64(f64::from(round % 3 - 1));
        let wanted = exact(csr, alpha, &x, T::ONE, &before);
        let mut y = there(&before);
        let with = match round % 2 {
            0 => [DotWith::X, DotWith::Y],
            _ => [DotWith::Y, DotWith::Z(&z_there)],
        };
        let mut results = [&mut first, &mut second];
        gpus.apply_dot(alpha, &x_there, T::ONE, &mut y, &with, &mut results).expect("it fits");
        let of_y = dot(&wanted, &wanted);
        let right = match round % 2 {
            0 => [dot(&wanted, &x), of_y],
            _ => [of_y, dot(&wanted, &z)],
        };
        let context = format!("{split:?}, round {round}");
        for (number, right) in [&first, &second].into_iter().zip(right) {
            assert_eq!(gpus.read(number).expect("it ran"), T::from_f64(right), "{context}");
        }
        let mut got = vec![T::ZERO; n];
        gpus.gather_y(&y, &mut got).expect("it fits");
        assert!(got == wanted, "{context}");
    }
}

#[test]
fn dot_products_with_divided_products_are_exact() {
    let Some((tuners, _turn)) = tuners() else { return };
    for spec in ["stencil7:50000", "elasticity:30000", "circuit:20000", "heat:3"] {
        for mode in [Mode::Vector, Mode::Overlap, Mode::Naive, Mode::Task, Mode::PcsrI] {
            let split = mode.split().unwrap_or(Split::EqualNonzeros);
            dots::<f64>(&tuners.clone().with_mode(mode), &matrix(spec), split);
        }
        dots::<f64>(&tuners, &matrix(spec), Split::FewCuts);
    }
    dots::<f32>(&tuners, &matrix("stencil7:500"), Split::EqualRows);
}

/// The vectors and numbers of conjugate gradients.
struct State<T: Scalar> {
    x: GpuShards<T>,
    r: GpuShards<T>,
    p: GpuShards<T>,
    q: GpuShards<T>,
    rr: GpuNumber<T>,
    next: GpuNumber<T>,
    pq: GpuNumber<T>,
}

/// An iteration whose dot products and updates are each a step of its own.
fn apart(gpus: &OnGpus<'_, f64>, s: &mut State<f64>) -> Result<(), Error> {
    gpus.apply(1.0, &s.p, 0.0, &mut s.q)?;
    gpus.dot_into(&s.p, &s.q, &mut s.pq)?;
    gpus.axpby(GpuFactor::quotient(1.0, &s.rr, &s.pq), &s.p, 1.0, &mut s.x)?;
    gpus.axpby(GpuFactor::quotient(-1.0, &s.rr, &s.pq), &s.q, 1.0, &mut s.r)?;
    gpus.dot_into(&s.r, &s.r, &mut s.next)?;
    gpus.axpby(1.0, &s.r, GpuFactor::quotient(1.0, &s.next, &s.rr), &mut s.p)
}

/// An iteration whose steps read each vector once.
fn fused(gpus: &OnGpus<'_, f64>, s: &mut State<f64>) -> Result<(), Error> {
    gpus.apply_dot(1.0, &s.p, 0.0, &mut s.q, &[DotWith::X], &mut [&mut s.pq])?;
    let along = |sign| GpuFactor::quotient(sign, &s.rr, &s.pq);
    gpus.axpby_dot(along(-1.0), &s.q, 1.0, &mut s.r, &mut s.next)?;
    let beta = GpuFactor::quotient(1.0, &s.next, &s.rr);
    gpus.advance(along(1.0), &mut s.p, &mut s.x, beta, &s.r)
}

/// The host reads one number at the end.
#[test]
fn a_solver_on_several_gpus_waits_for_nothing() {
    let Some((tuners, _turn)) = tuners() else { return };
    let csr: Csr<f64> = "stencil7:30000".parse::<Spec>().expect("a class and rows").make();
    let workload = Workload { spmvs: 1_000, ..Workload::default() };
    let a = tuners.prepare_sharded(&csr, &workload, Split::EqualNonzeros).expect("it applies");
    let gpus = a.on_gpus().expect("GPUs reach each other");
    let solution: Vec<f64> = (0..csr.nrows()).map(|i| 1.0 + (i % 5) as f64).collect();
    let zeros = vec![0.0; csr.nrows()];
    let b: Vec<f64> =
        check::reference(&csr, 1.0, &solution, 0.0, &zeros).iter().map(|row| row.value).collect();
    let scatter = |host: &[f64]| gpus.scatter_x(host).expect("memory suffices");
    let number = || gpus.number().expect("memory suffices");
    for iteration in [apart, fused] {
        let (x, r, p, q) = (scatter(&zeros), scatter(&b), scatter(&b), scatter(&zeros));
        let mut state = State { x, r, p, q, rr: number(), next: number(), pq: number() };
        gpus.dot_into(&state.r, &state.r, &mut state.rr).expect("they fit");
        for _ in 0..300 {
            iteration(&gpus, &mut state).expect("they fit");
            std::mem::swap(&mut state.rr, &mut state.next);
        }
        assert!(gpus.read(&state.rr).expect("it ran") < 1e-18, "the residual is small");
        let mut got = zeros.clone();
        gpus.gather_x(&state.x, &mut got).expect("it fits");
        let errors = got.iter().zip(&solution).map(|(a, b)| (a - b).abs());
        let error = errors.fold(0.0, f64::max);
        assert!(error < 1e-7, "{error}");
    }
}

/// As many iterations find the solution, queued one by one or recorded two at a time.
#[test]
fn conjugate_gradients_with_one_sum_find_the_solution() {
    let Some((tuners, _turn)) = tuners() else { return };
    let csr: Csr<f64> = "stencil7:30000".parse::<Spec>().expect("a class and rows").make();
    let workload = Workload { spmvs: 1_000, ..Workload::default() };
    let solution: Vec<f64> = (0..csr.nrows()).map(|i| 1.0 + (i % 5) as f64).collect();
    let zeros = vec![0.0; csr.nrows()];
    let b = exact(&csr, 1.0, &solution, 0.0, &zeros);
    for mode in [Mode::Vector, Mode::Overlap, Mode::Naive, Mode::Task, Mode::PcsrII] {
        let split = mode.split().unwrap_or(Split::EqualNonzeros);
        let tuners = tuners.clone().with_mode(mode);
        let a = tuners.prepare_sharded(&csr, &workload, split).expect("it applies");
        let gpus = a.on_gpus().expect("GPUs reach each other");
        let scatter = |host: &[f64]| gpus.scatter_x(host).expect("memory suffices");
        for recorded in [false, true] {
            let (mut x, mut r) = (scatter(&zeros), scatter(&b));
            let mut cg = gpus.one_sum_cg(&r).expect("it fits");
            let mut two = |gpus: &OnGpus<'_, f64>| {
                (0..2).try_for_each(|_| gpus.iterate(&mut cg, &mut x, &mut r))
            };
            match recorded {
                true => {
                    let graphs = gpus.record(two).expect("it is recorded");
                    (0..150).try_for_each(|_| graphs.launch()).expect("it was recorded");
                }
                false => (0..150).try_for_each(|_| two(&gpus)).expect("it fits"),
            }
            assert!(gpus.read(cg.residual()).expect("it ran") < 1e-16, "{mode}: {recorded}");
            let mut got = zeros.clone();
            gpus.gather_x(&x, &mut got).expect("it fits");
            let errors = got.iter().zip(&solution).map(|(a, b)| (a - b).abs());
            let error = errors.fold(0.0, f64::max);
            assert!(error < 1e-7, "{mode}, recorded {recorded}: {error}");
        }
    }
}

/// Two iterations at a time are one graph for each GPU; the vectors that they use may be dropped.
#[test]
fn recorded_iterations_are_those_that_are_queued() {
    let Some((tuners, _turn)) = tuners() else { return };
    let csr: Csr<f64> = "stencil7:30000".parse::<Spec>().expect("a class and rows").make();
    let workload = Workload { spmvs: 1_000, ..Workload::default() };
    for mode in [Mode::Vector, Mode::Overlap, Mode::Naive, Mode::Task, Mode::PcsrII] {
        let split = mode.split().unwrap_or(Split::EqualNonzeros);
        let tuners = tuners.clone().with_mode(mode);
        let a = tuners.prepare_sharded(&csr, &workload, split).expect("it applies");
        let gpus = a.on_gpus().expect("GPUs reach each other");
        let zeros = vec![0.0; csr.nrows()];
        let scatter = |host: &[f64]| gpus.scatter_x(host).expect("memory suffices");
        let number = || gpus.number().expect("memory suffices");
        let b = vec![1.0; csr.nrows()];
        let start = || {
            let (x, r, p, q) = (scatter(&zeros), scatter(&b), scatter(&b), scatter(&zeros));
            let mut state = State { x, r, p, q, rr: number(), next: number(), pq: number() };
            gpus.dot_into(&state.r, &state.r, &mut state.rr).expect("they fit");
            state
        };
        let two = |gpus: &OnGpus<'_, f64>, state: &mut State<f64>| {
            (0..2).try_for_each(|_| {
                fused(gpus, state)?;
                std::mem::swap(&mut state.rr, &mut state.next);
                Ok(())
            })
        };
        let (mut queued, mut recorded) = (start(), start());
        (0..100).try_for_each(|_| two(&gpus, &mut queued)).expect("they fit");
        let graphs = gpus.record(|gpus| two(gpus, &mut recorded)).expect("it is recorded");
        let State { x, p, .. } = recorded;
        drop(p);
        (0..100).try_for_each(|_| graphs.launch()).expect("it was recorded");
        let [mut wanted, mut got] = [zeros.clone(), zeros.clone()];
        gpus.gather_x(&queued.x, &mut wanted).expect("it fits");
        gpus.gather_x(&x, &mut got).expect("it fits");
        assert!(got == wanted && got[0] > 0.0, "{mode}");

        let waits = gpus.record(|gpus| gpus.synchronize());
        assert!(matches!(waits, Err(Error::Device { .. })), "{mode}: {waits:?}");
        let nested = gpus.record(|gpus| gpus.record(|_| Ok(())).map(|_| ()));
        assert!(matches!(nested, Err(Error::Argument(_))), "{mode}: {nested:?}");
        graphs.launch().expect("faults of other records do not matter");
        two(&gpus, &mut queued).expect("they fit");
        gpus.gather_x(&queued.x, &mut wanted).expect("it fits");
        gpus.gather_x(&x, &mut got).expect("it fits");
        assert!(got == wanted, "{mode} after faults");
    }
}

#[test]
fn vectors_that_are_divided_in_another_way_are_refused() {
    let Some((tuners, _turn)) = tuners() else { return };
    let csr = matrix::<f64>("stencil7:1000");
    let prepare = |split: Split<'_>| {
        tuners.prepare_sharded(&csr, &Workload::default(), split).expect("it applies")
    };
    let (a, other) = (prepare(Split::EqualNonzeros), prepare(Split::Owners(&vec![0; csr.nrows()])));
    let gpus = a.on_gpus().expect("GPUs reach each other");
    let elsewhere = other.on_gpus().expect("one part has all").zeros_x().expect("memory suffices");
    let (x, mut y) = (gpus.zeros_x().expect("memory"), gpus.zeros_y().expect("memory"));
    let (mut one, mut two) = (gpus.number().expect("memory"), gpus.number().expect("memory"));
    let z = DotWith::Z(&elsewhere);
    let mut apply = |with: &[DotWith<&GpuShards<f64>>], one: &mut GpuNumber<f64>| {
        gpus.apply_dot(1.0, &x, 0.0, &mut y, with, &mut [one]).expect_err("it does not fit")
    };
    for error in [
        gpus.dot_into(&elsewhere, &x, &mut one).expect_err("divided in another way"),
        apply(&[z], &mut one),
        apply(&[DotWith::X, DotWith::Y], &mut two),
    ] {
        assert!(matches!(error, Error::Argument(_)), "{error}");
    }
}
