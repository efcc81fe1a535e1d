//! Products with dot products of their result, and with its multiple added to another vector, on a GPU;
//! steps of solvers that read vectors once.

use std::sync::Arc;

use ellect::analysis::Analysis;
use ellect::cuda::{DeviceCsr, DeviceSlice, Factor, Gpu, GpuOperator, Graph};
use ellect::dots::{DotWith, Fused};
use ellect::format::Candidate;
use ellect::generate::Spec;
use ellect::{Csr, Scalar, check};

use super::several::{self, once};
use super::solvers::{self, SOLVED};
use super::vectors::{Iterates, check_convergence, host};
use super::{gpu, original, wanted};

/// Stencils with and without one coefficient, blocks, sorted rows, long rows, and more columns than rows.
const MATRICES: [&str; 7] = [
    "stencil7:4096",
    "constant7:4096",
    "elasticity:900",
    "heat:3000",
    "circuit:2500",
    "rmat:1500",
    "linear_program:700",
];

/// Formats with kernels for dot products: all their variants are checked.
const FUSED: [&str; 6] = ["dia", "hdia", "cdia", "hll", "bhll", "csr"];

/// Lengths around the sizes of warps, blocks and grids of the kernels.
const LENGTHS: [usize; 9] = [0, 1, 32, 255, 257, 1025, 4099, 1_048_577, 3_000_001];

fn made(spec: &str) -> Csr<f64> {
    let csr: Csr<f64> = spec.parse::<Spec>().expect("a class and rows").make();
    csr.map_values(|value| (value * 3.0).round() % 8.0)
}

fn exact<T: Scalar>(x: &[T], y: &[T]) -> T {
    T::from_f64(x.iter().zip(y).map(|(x, y)| x.to_f64() * y.to_f64()).sum())
}

/// Compares products of whole numbers, with all lists of dot products, with the exact results.
fn check_dots<T: Scalar>(what: &str, a: &GpuOperator<T>, csr: &Csr<T>) {
    let (nrows, ncols) = (csr.nrows(), csr.ncols());
    let x = check::whole_numbers::<T>(ncols, 1);
    let [before, z] = [2, 3].map(|seed| check::whole_numbers::<T>(nrows, seed));
    let nothing = vec![T::from_f64(f64::NAN); nrows];
    let on_gpu = |v: &[T]| a.gpu().vector(v).expect("memory suffices");
    let [on_x, on_z] = [&x, &z].map(|v| on_gpu(v));
    for (beta, before) in [(0.0, &nothing), (-1.0, &before)] {
        let [two, beta] = [2.0, beta].map(T::from_f64);
        let rows = check::reference(csr, two, &x, beta, before);
        let y: Vec<T> = rows.iter().map(|row| T::from_f64(row.value)).collect();
        let all = [
            (DotWith::X, exact(&y, &x)),
            (DotWith::Y, exact(&y, &y)),
            (DotWith::Z(DeviceSlice::from(&on_z)), exact(&y, &z)),
        ];
        let lists: &[&[usize]] = match once() {
            true => &[&[0], &[2, 0, 1]],
            false => &[&[0], &[1], &[2], &[2, 1], &[2, 0, 1], &[1, 1, 0], &[]],
        };
        for &list in lists {
            if nrows != ncols && list.contains(&0) {
                continue;
            }
            let with: Vec<_> = list.iter().map(|&i| all[i].0).collect();
            let dots: Vec<T> = list.iter().map(|&i| all[i].1).collect();
            let mut on_y = on_gpu(before);
            let nans = vec![T::from_f64(f64::NAN); list.len()];
            let mut results = on_gpu(&nans);
            a.apply_dot(two, &on_x, beta, &mut on_y, &with, &mut results)
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(host(&on_y) == y, "{what}: y, beta {beta}, {list:?}");
            assert_eq!(host(&results), dots, "{what}: beta {beta}, {list:?}");

            let (gamma, mut on_y) = (T::from_f64(-3.0), on_gpu(before));
            let (mut w, mut results) = (on_gpu(&z), on_gpu(&nans));
            let fused = Fused::new().dots(&with, &mut results).add(gamma, &mut w);
            a.apply_fused(two, &on_x, beta, &mut on_y, fused)
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            let sum: Vec<T> = z.iter().zip(&y).map(|(&z, &y)| z + gamma * y).collect();
            assert!(host(&w) == sum, "{what}: w, beta {beta}, {list:?}");
            assert!(host(&on_y) == y, "{what}: y with w, beta {beta}, {list:?}");
            assert_eq!(host(&results), dots, "{what}: with w, beta {beta}, {list:?}");
        }
    }
}

fn check_candidates<T: Scalar>(gpu: &Arc<Gpu>, spec: &str, all: &[Candidate]) -> Vec<&'static str> {
    let csr = made(spec).cast::<T>();
    let doubled = csr.map_values(|value| value + value);
    let analysis = Analysis::of(&csr);
    let there = Arc::new(DeviceCsr::upload(gpu, &csr).expect("memory suffices"));
    let mut fused = Vec::new();
    for candidate in all {
        let what = format!("{candidate} on {spec}, {}", T::PRECISION);
        let made = several::converted(gpu, &there, (&csr, &analysis), candidate, &what);
        let Some(mut a) = made else { continue };
        check_dots(&what, &a, &csr);
        if a.fuses_dots() {
            fused.push(candidate.format.name);
        }
        let values = gpu.vector(doubled.values()).expect("memory suffices");
        a.update_values(&values).unwrap_or_else(|error| panic!("{what}: {error}"));
        check_dots(&format!("{what}, updated"), &a, &doubled);
    }
    fused
}

#[test]
fn dot_products_with_every_format_are_exact() {
    let Some(gpu) = gpu() else { return };
    // All variants of formats with kernels for dot products, and one of each other format.
    let mut all = wanted();
    let mut seen = std::collections::BTreeSet::new();
    all.retain(|candidate| {
        let first = seen.insert(candidate.format.name);
        FUSED.contains(&candidate.format.name) || first
    });
    let mut fused = Vec::new();
    for spec in MATRICES.into_iter().take(if once() { 3 } else { MATRICES.len() }) {
        fused.extend(check_candidates::<f64>(&gpu, spec, &all));
        fused.extend(check_candidates::<f32>(&gpu, spec, &all));
    }
    // ELLECT_TEST_ONLY may leave formats out.
    for name in FUSED.iter().filter(|name| seen.contains(**name)) {
        assert!(fused.contains(name), "{name} has kernels for dot products: {fused:?}");
    }
    let empty = Csr::<f64>::from_triplets(0, 0, []).expect("in range");
    let nothing = Csr::<f64>::from_triplets(70, 70, []).expect("in range");
    for csr in [empty, nothing] {
        let there = Arc::new(DeviceCsr::upload(&gpu, &csr).expect("memory suffices"));
        let (analysis, candidate) = (Analysis::of(&csr), "csr".parse().expect("a candidate"));
        let target = original::<f64>(gpu.profile());
        let made = GpuOperator::new(&gpu, &there, (&csr).into(), &analysis, &candidate, &target);
        check_dots("no entries", &made.expect("it applies"), &csr);
    }
}

/// Prepares one candidate for a matrix.
fn prepared<T: Scalar>(gpu: &Arc<Gpu>, csr: &Csr<T>, candidate: &str) -> GpuOperator<T> {
    let there = Arc::new(DeviceCsr::upload(gpu, csr).expect("memory suffices"));
    let (analysis, candidate) = (Analysis::of(csr), candidate.parse().expect("a candidate"));
    let target = original::<T>(gpu.profile());
    GpuOperator::new(gpu, &there, csr.into(), &analysis, &candidate, &target).expect("it applies")
}

#[test]
fn dot_products_repeat_to_the_last_bit_also_in_graphs() {
    let Some(gpu) = gpu() else { return };
    let csr: Csr<f64> = "stencil7:200000".parse::<Spec>().expect("a class and rows").make();
    let n = csr.nrows();
    let [x, z] = [1, 2].map(|seed| check::vector::<f64>(n, seed));
    let [on_x, on_z] = [&x, &z].map(|v| gpu.vector(v).expect("memory suffices"));
    // In one pass, and in a pass of its own.
    for candidate in ["hdia", "hll", "csr", "pcsr"] {
        let a = prepared(&gpu, &csr, candidate);
        let mut y = gpu.zeros(n).expect("memory suffices");
        let mut dots = gpu.zeros(3).expect("memory suffices");
        let with = [DotWith::X, DotWith::Y, DotWith::Z(DeviceSlice::from(&on_z))];
        let mut first = None;
        for _ in 0..5 {
            a.apply_dot(1.0, &on_x, 0.0, &mut y, &with, &mut dots).expect("lengths fit");
            let got = host(&dots).iter().map(|dot| dot.to_bits()).collect::<Vec<u64>>();
            assert_eq!(*first.get_or_insert_with(|| got.clone()), got, "{candidate}");
        }
        let (got, of_y) = (host(&dots), host(&y));
        for (got, other) in got.iter().zip([&x, &of_y, &z]) {
            let terms = of_y.iter().zip(other).map(|(y, other)| y * other);
            let bound = 1e-12 * terms.clone().map(f64::abs).sum::<f64>();
            let wanted: f64 = terms.sum();
            assert!((got - wanted).abs() <= bound, "{candidate}: {got}, {wanted}");
        }

        let again = gpu.vector(&[f64::NAN; 3]).expect("memory suffices");
        let w = gpu.zeros::<f64>(n).expect("memory suffices");
        let raw = [DotWith::X, DotWith::Y, DotWith::Z(on_z.address())];
        a.ready_dots().expect("memory suffices");
        let graph = Graph::capture(&gpu, |stream| {
            let (x, y) = (on_x.address(), y.address());
            let fused = Fused::new().dots(&raw, again.address()).add(1.0, w.address());
            // SAFETY: the vectors have the matrix's dimensions and outlive the launches of the graph.
            unsafe { a.apply_fused_raw(1.0, x, 0.0, y, fused, stream) }
        });
        let graph = graph.expect("it can be captured");
        for _ in 0..20 {
            // SAFETY: operator and vectors still exist.
            unsafe { graph.launch(&gpu) }.expect("it launches");
        }
        let replayed = host(&again).iter().map(|dot| dot.to_bits()).collect::<Vec<u64>>();
        assert_eq!(Some(replayed), first, "{candidate}, replayed");
        let mut sum = vec![0.0; n];
        (0..20).for_each(|_| sum.iter_mut().zip(&of_y).for_each(|(w, y)| *w += y));
        assert_eq!(host(&w), sum, "{candidate}: w of 20 products");
    }
}

#[test]
fn steps_that_read_vectors_once_are_exact() {
    let Some(gpu) = gpu() else { return };
    for n in LENGTHS {
        check_steps::<f64>(&gpu, n);
        check_steps::<f32>(&gpu, n);
    }
}

fn check_steps<T: Scalar>(gpu: &Gpu, n: usize) {
    let [x, p, r] = [1, 2, 3].map(|seed| check::whole_numbers::<T>(n, seed));
    let on_gpu = |v: &[T]| gpu.vector(v).expect("memory suffices");
    let what = format!("{n} elements, {}", T::PRECISION);
    for (alpha, beta) in [(2.0, 1.0), (-1.0, 0.0), (0.0, 3.0)] {
        let [alpha, beta] = [alpha, beta].map(T::from_f64);
        let before = if beta == T::ZERO { vec![T::from_f64(f64::NAN); n] } else { r.clone() };
        let (mut y, mut dot) = (on_gpu(&before), on_gpu(&[T::from_f64(f64::NAN)]));
        gpu.axpby_dot(alpha, &on_gpu(&p), beta, &mut y, &mut dot).expect("lengths agree");
        let wanted = p.iter().zip(&r).map(|(&p, &r)| alpha * p + beta * r);
        let wanted: Vec<T> = wanted.collect();
        assert_eq!(host(&y), wanted, "{what}");
        assert_eq!(host(&dot), [exact(&wanted, &wanted)], "{what}");

        let (mut on_p, mut on_x) = (on_gpu(&p), on_gpu(&x));
        gpu.advance(alpha, &mut on_p, &mut on_x, beta, &on_gpu(&r)).expect("lengths agree");
        let wanted = |a: &[T], b: &[T], factor: T| -> Vec<T> {
            a.iter().zip(b).map(|(&a, &b)| a + factor * b).collect()
        };
        assert_eq!(host(&on_x), wanted(&x, &p, alpha), "{what}");
        assert_eq!(host(&on_p), wanted(&r, &p, beta), "{what}");
    }
    let [lower, upper] = [-2.0, 1.0].map(T::from_f64);
    let bounded = |v: T| {
        if v < lower {
            lower
        } else if v > upper {
            upper
        } else {
            v
        }
    };
    let mut on_x = on_gpu(&x);
    gpu.clamp(lower, upper, &mut on_x).expect("it is a range");
    assert_eq!(host(&on_x), x.iter().map(|&v| bounded(v)).collect::<Vec<T>>(), "{what}");
    let error = gpu.clamp(upper, lower, &mut on_x).expect_err("it is no range").to_string();
    assert!(error.contains("lower bound is 1"), "{error}");
    let mut two = gpu.zeros::<T>(2).expect("memory suffices");
    let (mut own, other) = (on_gpu(&p), on_gpu(&vec![T::ONE; n + 1]));
    assert!(gpu.axpby_dot(T::ONE, &on_gpu(&p), T::ONE, &mut own, &mut two).is_err(), "two results");
    let mut on_x = on_gpu(&x);
    let error = gpu.advance(T::ONE, &mut own, &mut on_x, T::ONE, &other).expect_err("r is longer");
    assert!(error.to_string().contains("but r has"), "{error}");
}

#[test]
fn dot_products_with_wrong_vectors_are_refused() {
    let Some(gpu) = gpu() else { return };
    let csr = made("linear_program:700");
    let (nrows, ncols) = (csr.nrows(), csr.ncols());
    let a = prepared(&gpu, &csr, "csr");
    let zeros = |n: usize| gpu.zeros::<f64>(n).expect("memory suffices");
    let (x, z, mut y) = (zeros(ncols), zeros(ncols), zeros(nrows));
    let mut refused = |with: &[DotWith<DeviceSlice<'_, f64>>], results: usize| {
        let mut dots = zeros(results);
        a.apply_dot(1.0, &x, 0.0, &mut y, with, &mut dots).expect_err("it is refused").to_string()
    };
    assert!(refused(&[DotWith::X], 1).contains("square"));
    assert!(refused(&[DotWith::Z(DeviceSlice::from(&z))], 1).contains('z'));
    assert!(refused(&[DotWith::Y], 3).contains("list of results"));
    assert!(refused(&[DotWith::Y; 4], 4).contains("at most 3"));
    let other = Gpu::open(0).expect("it opens again");
    let foreign = other.zeros::<f64>(nrows).expect("memory suffices");
    assert!(refused(&[DotWith::Z(DeviceSlice::from(&foreign))], 1).contains("another `Gpu`"));
    let mut foreign = foreign;
    for (w, words) in [(&mut zeros(ncols), "w"), (&mut foreign, "another `Gpu`")] {
        let fused = Fused::new().add(1.0, w);
        let error = a.apply_fused(1.0, &x, 0.0, &mut y, fused).expect_err("it is refused");
        assert!(error.to_string().contains(words), "{error}");
    }
}

/// An iteration of conjugate gradients in fused steps.
fn fused(a: &GpuOperator<f64>, of: &mut Iterates) {
    let gpu = a.gpu();
    let quotient = |scale, over, under| Factor::quotient(scale, over, under).expect("one");
    a.apply_dot(1.0, &of.p, 0.0, &mut of.q, &[DotWith::X], &mut of.pq).expect("lengths agree");
    let step = quotient(-1.0, &of.rr, &of.pq);
    gpu.axpby_dot(step, &of.q, 1.0, &mut of.r, &mut of.next).expect("lengths agree");
    let (step, turn) = (quotient(1.0, &of.rr, &of.pq), quotient(1.0, &of.next, &of.rr));
    gpu.advance(step, &mut of.p, &mut of.x, turn, &of.r).expect("lengths agree");
}

#[test]
fn solvers_of_the_examples_find_known_solutions_on_the_gpu() {
    let Some(gpu) = gpu() else { return };
    drop(gpu);
    for (method, rows) in SOLVED {
        let found = solvers::run(method, "cuda:0", rows).expect("the solver runs");
        println!("{method}: {} iterations, {}", found.iterations, found.formats.join(", "));
        assert!(found.error <= solvers::MOST_ERROR, "{method}: error {:.1e}", found.error);
    }
}

#[test]
fn fused_conjugate_gradients_converge_on_the_gpu() {
    let Some(gpu) = gpu() else { return };
    drop(gpu);
    check_convergence(fused);
}
