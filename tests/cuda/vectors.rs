//! Vectors on a GPU: parts of them, operations on them, products with them, and refusals of
//! addresses that are not what they claim to be.

use ellect::choose::Workload;
use ellect::cuda::{DeviceSlice, DeviceSliceMut, Factor, Gpu, GpuOperator, Vector};
use ellect::format::Basis;
use ellect::generate::Spec;
use ellect::operator::{permute, permute_back};
use ellect::{Csr, Error, PreparedOperator, Scalar, Tuner, check};

use super::{exact_products, gpu};

/// Lengths around the sizes of warps, blocks and grids of the kernels.
const LENGTHS: [usize; 12] = [0, 1, 31, 32, 33, 255, 257, 1023, 1025, 4099, 1_048_577, 3_000_001];

pub fn host<T: Scalar>(vector: &Vector<T>) -> Vec<T> {
    let mut host = vec![T::ZERO; vector.len()];
    vector.read(&mut host).expect("it was copied");
    host
}

fn generated(spec: &str) -> Csr<f64> {
    spec.parse::<Spec>().expect("a class and rows").make()
}

/// Prepares a matrix on a GPU that only this operator has opened.
fn prepared(csr: &Csr<f64>, basis: Basis, spmvs: u64) -> PreparedOperator<f64> {
    let data = std::env::temp_dir().join(format!("ellect-vectors-{}", std::process::id()));
    let tuner = Tuner::open_in("cuda:0", &data).expect("there is a GPU");
    let workload = Workload { basis, spmvs, ..Workload::default() };
    tuner.prepare(csr, &workload).expect("something applies")
}

#[test]
fn vectors_are_added_scaled_and_copied_exactly() {
    let Some(gpu) = gpu() else { return };
    for n in LENGTHS {
        check_axpby::<f64>(&gpu, n);
        check_axpby::<f32>(&gpu, n);
    }
}

fn check_axpby<T: Scalar>(gpu: &Gpu, n: usize) {
    let [x, y] = [1, 2].map(|seed| check::whole_numbers::<T>(n, seed));
    let on_gpu = gpu.vector(&x).expect("memory suffices");
    for (alpha, beta) in [(2.0, 1.0), (0.0, 3.0), (1.0, 0.0), (-3.0, -2.0)] {
        let [alpha, beta] = [alpha, beta].map(T::from_f64);
        let mut result = gpu.vector(&y).expect("memory suffices");
        gpu.axpby(alpha, &on_gpu, beta, &mut result).expect("lengths agree");
        let wanted: Vec<T> = x.iter().zip(&y).map(|(&x, &y)| alpha * x + beta * y).collect();
        assert_eq!(host(&result), wanted, "{n} elements, {}", T::PRECISION);
    }
    // With beta = 0, y is not read.
    let mut result = gpu.vector(&vec![T::from_f64(f64::NAN); n]).expect("memory suffices");
    gpu.axpby(T::ONE, &on_gpu, T::ZERO, &mut result).expect("lengths agree");
    assert_eq!(host(&result), x, "{n} elements are copied");
}

#[test]
fn dot_products_are_exact_and_repeat_to_the_last_bit() {
    let Some(gpu) = gpu() else { return };
    for n in LENGTHS {
        let [x, y] = [1, 2].map(|seed| check::whole_numbers::<f64>(n, seed));
        let wanted = x.iter().zip(&y).map(|(x, y)| x * y).sum::<f64>();
        let [on_x, on_y] = [&x, &y].map(|v| gpu.vector(v).expect("memory suffices"));
        let mut result = gpu.vector(&[f64::NAN]).expect("memory suffices");
        gpu.dot(&on_x, &on_y, &mut result).expect("lengths agree");
        assert_eq!(host(&result), [wanted], "{n} whole numbers");

        let [x, y] = [3, 4].map(|seed| check::vector::<f32>(n, seed));
        let exact = x.iter().zip(&y).map(|(x, y)| x.to_f64() * y.to_f64());
        let (wanted, sizes) = exact.fold((0.0, 0.0), |(sum, sizes), v| (sum + v, sizes + v.abs()));
        let [on_x, on_y] = [&x, &y].map(|v| gpu.vector(v).expect("memory suffices"));
        let mut first = None;
        for _ in 0..3 {
            let mut result = gpu.zeros::<f32>(1).expect("memory suffices");
            gpu.dot(&on_x, &on_y, &mut result).expect("lengths agree");
            let [got] = host(&result)[..] else { panic!("one element") };
            // One rounding to f32, and sums in f64 in another order than here.
            let bound = f64::from(f32::EPSILON) * wanted.abs() + 1e-10 * sizes;
            assert!((f64::from(got) - wanted).abs() <= bound, "{n} elements: {got}, {wanted}");
            assert_eq!(*first.get_or_insert(got.to_bits()), got.to_bits(), "{n} elements");
        }
    }
}

#[test]
fn quotients_stay_on_the_gpu_and_a_zero_divisor_is_zero() {
    let Some(gpu) = gpu() else { return };
    let number = |value: f64| gpu.vector(&[value]).expect("memory suffices");
    let (six, three, zero) = (number(6.0), number(3.0), number(0.0));
    let x = gpu.vector(&[1.0, -2.0, 4.0]).expect("memory suffices");
    let result = |alpha: Factor<'_, f64>, beta: Factor<'_, f64>| {
        let mut y = gpu.vector(&[10.0, 10.0, 10.0]).expect("memory suffices");
        gpu.axpby(alpha, &x, beta, &mut y).expect("lengths agree");
        host(&y)
    };
    let quotient = |scale, over, under| Factor::quotient(scale, over, under).expect("one element");
    assert_eq!(result(quotient(-1.0, &six, &three), 1.0.into()), [8.0, 14.0, 2.0]);
    assert_eq!(result(1.0.into(), quotient(0.5, &three, &six)), [3.5, 0.5, 6.5]);
    assert_eq!(result(quotient(1.0, &six, &zero), 1.0.into()), [10.0; 3]);
    assert_eq!(result(1.0.into(), quotient(1.0, &zero, &zero)), [1.0, -2.0, 4.0]);
    assert!(Factor::quotient(1.0, &x, &three).is_err() && Factor::quotient(1.0, &six, &x).is_err());
}

#[test]
fn products_take_vectors_and_parts_of_vectors() {
    let Some(gpu) = gpu() else { return };
    drop(gpu);
    let csr = generated("heat:9000").map_values(|value| (value * 3.0).round() % 8.0);
    for spmvs in [1, 10_000] {
        let operator = prepared(&csr, Basis::Original, spmvs);
        let a = operator.on_device().expect("prepared on a GPU");
        let gpu = a.gpu();
        for product in exact_products(&csr) {
            let wanted: Vec<f64> = product.want.iter().map(|row| row.value).collect();
            let x = gpu.vector(&product.x).expect("memory suffices");
            let mut y = gpu.vector(&product.y).expect("memory suffices");
            a.apply(product.alpha, &x, product.beta, &mut y).expect("lengths agree");
            assert_eq!(host(&y), wanted, "{}", operator.candidate());

            // Inner parts of longer vectors, at addresses that are multiples of 8 alone.
            let around = |part: &[f64]| [&[7.0], part, &[9.0, 11.0]].concat();
            let x = gpu.vector(&around(&product.x)).expect("memory suffices");
            let mut y = gpu.vector(&around(&product.y)).expect("memory suffices");
            let inner = 1..csr.nrows() + 1;
            let part = y.slice_mut(inner.clone()).expect("within");
            let of = x.slice(inner).expect("within");
            a.apply(product.alpha, of, product.beta, part).expect("lengths agree");
            assert_eq!(host(&y), around(&wanted), "{}, parts", operator.candidate());
        }
        let (x, mut y) = (gpu.zeros(csr.ncols()), gpu.zeros(csr.nrows()));
        let (x, y) = (x.expect("memory suffices"), y.as_mut().expect("memory suffices"));
        let short = x.slice(1..).expect("within");
        let error = a.apply(1.0, short, 0.0, &mut *y).expect_err("x is too short");
        assert!(matches!(error, Error::Shape { what: "x", .. }), "{error}");
        let short = y.slice_mut(..5).expect("within");
        let error = a.apply(1.0, &x, 0.0, short).expect_err("y is too short");
        assert!(matches!(error, Error::Shape { what: "y", got: 5, .. }), "{error}");
    }
}

#[test]
fn new_values_are_taken_from_a_vector() {
    let Some(gpu) = gpu() else { return };
    drop(gpu);
    let csr = generated("stencil27:9000").map_values(|value| (value * 3.0).round() % 8.0);
    let twice = csr.map_values(|value| value + value);
    let mut operator = prepared(&csr, Basis::Original, 10_000);
    let a = operator.on_device_mut().expect("prepared on a GPU");
    let values = a.gpu().vector(twice.values()).expect("memory suffices");
    let short = values.slice(1..).expect("within");
    let error = a.update_values(short).expect_err("a value is missing").to_string();
    assert!(error.contains("values"), "{error}");
    a.update_values(&values).expect("as many values as entries");
    exact_products(&twice).iter().for_each(|product| product.check_exact("updated", &operator));
}

#[test]
fn parts_do_not_overlap_and_lie_within_their_vector() {
    let Some(gpu) = gpu() else { return };
    let mut x = gpu.vector(&[1.0, 2.0, 3.0, 4.0]).expect("memory suffices");
    let (mut head, mut tail) = x.slice_mut(..).expect("all").split_at(1).expect("within");
    head.write(&[10.0]).expect("one element");
    gpu.axpby(1.0, head.as_slice(), 0.0, tail.reborrow().slice(2..).expect("within"))
        .expect("lengths agree");
    assert!(tail.write(&[1.0]).is_err() && tail.reborrow().split_at(4).is_err());
    assert_eq!(host(&x), [10.0, 2.0, 3.0, 10.0]);
    assert!(x.slice(2..6).is_err() && x.slice_mut(5..).is_err());
    let mut two = [0.0; 2];
    x.slice(1..=2).expect("within").read(&mut two).expect("two elements");
    assert_eq!(two, [2.0, 3.0]);
    assert!(x.slice(..).expect("all").read(&mut two).is_err());
    let y = gpu.zeros::<f64>(3).expect("memory suffices");
    let error = gpu.axpby(1.0, &y, 1.0, &mut x).expect_err("lengths differ").to_string();
    assert!(error.contains("x has 3 elements, but y has 4"), "{error}");
    let mut result = gpu.zeros::<f64>(2).expect("memory suffices");
    assert!(gpu.dot(&y, &y, &mut result).is_err());
}

#[test]
fn vectors_of_another_gpu_are_refused() {
    let Some(gpu) = gpu() else { return };
    let other = Gpu::open(0).expect("it opens again");
    let foreign = other.vector(&[1.0, 2.0]).expect("memory suffices");
    let mut own = gpu.zeros(2).expect("memory suffices");
    let error = gpu.axpby(1.0, &foreign, 1.0, &mut own).expect_err("another stream").to_string();
    assert!(error.contains("x was created by another `Gpu` of cuda:0"), "{error}");
    let second = Gpu::open(1);
    if let Ok(second) = &second {
        let foreign = second.vector(&[1.0, 2.0]).expect("memory suffices");
        let error = gpu.axpby(1.0, &foreign, 1.0, &mut own).expect_err("another GPU").to_string();
        assert!(error.contains("x is on cuda:1 and cannot be used on cuda:0"), "{error}");
        let at = foreign.address();
        // SAFETY: the slice is refused.
        let error = unsafe { DeviceSlice::<f64>::from_raw(&gpu, at, 2) }.expect_err("another GPU");
        assert!(error.to_string().contains("memory of cuda:1"), "{error}");
    }
    let csr = generated("heat:900");
    let operator = prepared(&csr, Basis::Original, 1);
    let a = operator.on_device().expect("prepared on a GPU");
    let x = gpu.zeros(csr.ncols()).expect("memory suffices");
    let mut y = a.gpu().zeros(csr.nrows()).expect("memory suffices");
    assert!(matches!(a.apply(1.0, &x, 0.0, &mut y), Err(Error::Argument(_))));
}

#[test]
fn foreign_addresses_are_checked() {
    let Some(gpu) = gpu() else { return };
    gpu.make_current().expect("the GPU answers");
    // Memory that does not come from the pool of this program's vectors.
    let foreign = cust::memory::DeviceBuffer::from_slice(&[1.0, 2.0, 3.0]);
    let foreign = foreign.expect("memory suffices");
    let at = foreign.as_device_ptr().as_raw();
    let why = |address: u64, len: usize| {
        // SAFETY: the slice is refused, so nothing is read.
        let refused = unsafe { DeviceSlice::<f64>::from_raw(&gpu, address, len) };
        refused.expect_err("it is not what it claims to be").to_string()
    };
    assert!(why(0, 3).contains("null"), "{}", why(0, 3));
    assert!(why(at + 4, 2).contains("not a multiple of 8"), "{}", why(at + 4, 2));
    assert!(why(at, 1 << 40).contains("of its allocation"), "{}", why(at, 1 << 40));
    assert!(why(at, usize::MAX).contains("cannot have"), "{}", why(at, usize::MAX));
    let on_host = [1.0; 4];
    let host_at = on_host.as_ptr() as u64;
    assert!(why(host_at, 4).contains("not memory of a GPU"), "{}", why(host_at, 4));
    let locked = cust::memory::LockedBuffer::new(&1.0, 4).expect("page-locked memory");
    let locked_at = locked.as_ptr() as u64;
    assert!(why(locked_at, 4).contains("not memory of a GPU"), "{}", why(locked_at, 4));

    // SAFETY: the buffer holds three numbers and outlives the slices; nothing else uses it.
    let x = unsafe { DeviceSlice::<f64>::from_raw(&gpu, at, 3) }.expect("the address is right");
    let mut y = gpu.vector(&[1.0, 1.0, 1.0]).expect("memory suffices");
    gpu.axpby(1.0, x, 1.0, &mut y).expect("lengths agree");
    assert_eq!(host(&y), [2.0, 3.0, 4.0]);
    // SAFETY: as above, after the copy has waited.
    let mut x = unsafe { DeviceSliceMut::<f64>::from_raw(&gpu, at + 8, 2) }.expect("its tail");
    gpu.axpby(1.0, y.slice(1..).expect("within"), 0.0, &mut x).expect("lengths agree");
    let mut tail = [0.0; 2];
    x.as_slice().read(&mut tail).expect("two elements");
    assert_eq!(tail, [3.0, 4.0]);

    // Vectors of this program are from a pool, whose memory belongs to no context.
    let (own, len) = (y.address(), y.len());
    // SAFETY: the vector outlives the slice.
    let own = unsafe { DeviceSlice::<f64>::from_raw(&gpu, own, len) }.expect("its own vector");
    let mut copy = [0.0; 3];
    own.read(&mut copy).expect("three elements");
    assert_eq!(copy, [2.0, 3.0, 4.0]);
    // SAFETY: an empty slice is never read.
    assert!(unsafe { DeviceSlice::<f64>::from_raw(&gpu, 0, 0) }.is_ok());
}

#[test]
fn vectors_and_operators_may_be_dropped_while_kernels_run() {
    let Some(gpu) = gpu() else { return };
    drop(gpu);
    let csr = generated("stencil27:200000").map_values(|value| (value * 3.0).round() % 8.0);
    let [product, ..] = exact_products(&csr);
    let wanted: Vec<f64> = product.want.iter().map(|row| row.value).collect();
    let operator = prepared(&csr, Basis::Original, 1_000);
    let a = operator.on_device().expect("prepared on a GPU");
    let mut y = a.gpu().vector(&product.y).expect("memory suffices");
    {
        let x = a.gpu().vector(&product.x).expect("memory suffices");
        let mut unused = a.gpu().zeros(csr.nrows()).expect("memory suffices");
        for _ in 0..50 {
            a.apply(1.0, &x, 0.0, &mut unused).expect("lengths agree");
        }
        a.apply(product.alpha, &x, product.beta, &mut y).expect("lengths agree");
    }
    drop(operator);
    assert_eq!(host(&y), wanted);
}

#[test]
fn threads_take_turns_with_one_operator() {
    let Some(gpu) = gpu() else { return };
    drop(gpu);
    let csr = generated("rmat:20000").map_values(|value| (value * 3.0).round() % 8.0);
    let operator = prepared(&csr, Basis::Original, 10_000);
    let a = operator.on_device().expect("prepared on a GPU");
    let products = exact_products(&csr);
    std::thread::scope(|scope| {
        for turn in 0..4 {
            let product = &products[turn % 3];
            scope.spawn(move || {
                let wanted: Vec<f64> = product.want.iter().map(|row| row.value).collect();
                let x = a.gpu().vector(&product.x).expect("memory suffices");
                for _ in 0..20 {
                    let mut y = a.gpu().vector(&product.y).expect("memory suffices");
                    a.apply(product.alpha, &x, product.beta, &mut y).expect("lengths agree");
                    assert_eq!(host(&y), wanted);
                }
            });
        }
    });
}

/// Vectors of conjugate gradients, and numbers that stay on the GPU.
pub struct Iterates {
    pub x: Vector<f64>,
    pub r: Vector<f64>,
    pub p: Vector<f64>,
    /// A p.
    pub q: Vector<f64>,
    /// r.r before and after the iteration, and p.q.
    pub rr: Vector<f64>,
    pub next: Vector<f64>,
    pub pq: Vector<f64>,
}

/// An iteration of conjugate gradients.
pub type Iteration = fn(&GpuOperator<f64>, &mut Iterates);

/// Solves with conjugate gradients on the GPU, in the basis of the operator.
fn solve(a: &GpuOperator<f64>, b: &[f64], iterate: Iteration) -> Vec<f64> {
    let (gpu, n) = (a.gpu(), b.len());
    let zeros = |len| gpu.zeros::<f64>(len).expect("memory suffices");
    let [r, p] = [0, 1].map(|_| gpu.vector(b).expect("memory suffices"));
    let (x, q, rr, next, pq) = (zeros(n), zeros(n), zeros(1), zeros(1), zeros(1));
    let mut of = Iterates { x, r, p, q, rr, next, pq };
    gpu.dot(&of.r, &of.r, &mut of.rr).expect("lengths agree");
    let [first] = host(&of.rr)[..] else { panic!("one element") };
    for _ in 0..200 {
        for _ in 0..20 {
            iterate(a, &mut of);
            std::mem::swap(&mut of.rr, &mut of.next);
        }
        if host(&of.rr)[0] <= 1e-22 * first {
            return host(&of.x);
        }
    }
    panic!("no convergence: r.r is {:?} of {first}", host(&of.rr));
}

/// An iteration of one operation after the other.
fn one_by_one(a: &GpuOperator<f64>, of: &mut Iterates) {
    let gpu = a.gpu();
    let quotient = |scale, over, under| Factor::quotient(scale, over, under).expect("one");
    a.apply(1.0, &of.p, 0.0, &mut of.q).expect("lengths agree");
    gpu.dot(&of.p, &of.q, &mut of.pq).expect("lengths agree");
    gpu.axpby(quotient(1.0, &of.rr, &of.pq), &of.p, 1.0, &mut of.x).expect("lengths agree");
    gpu.axpby(quotient(-1.0, &of.rr, &of.pq), &of.q, 1.0, &mut of.r).expect("lengths agree");
    gpu.dot(&of.r, &of.r, &mut of.next).expect("lengths agree");
    gpu.axpby(1.0, &of.r, quotient(1.0, &of.next, &of.rr), &mut of.p).expect("lengths agree");
}

/// Checks solutions of conjugate gradients in both bases.
pub fn check_convergence(iterate: Iteration) {
    for (spec, basis) in [
        ("elasticity:3000", Basis::Original),
        ("elasticity:3000", Basis::Permuted),
        ("stencil5:10000", Basis::Permuted),
    ] {
        let csr = generated(spec);
        let b: Vec<f64> = check::vector(csr.nrows(), 11);
        let operator = prepared(&csr, basis, 100_000);
        let a = operator.on_device().expect("prepared on a GPU");
        let x = match operator.permutation() {
            Some(order) => permute_back(&solve(a, &permute(&b, order), iterate), order),
            None => solve(a, &b, iterate),
        };
        let residual = check::reference(&csr, 1.0, &x, -1.0, &b);
        let largest = residual.iter().fold(0.0, |most: f64, row| most.max(row.value.abs()));
        let of = b.iter().fold(0.0, |most: f64, b| most.max(b.abs()));
        assert!(largest <= 1e-8 * of, "{spec}, {basis}: residual {:.1e}", largest / of);
    }
}

#[test]
fn conjugate_gradients_converge_on_the_gpu() {
    let Some(gpu) = gpu() else { return };
    drop(gpu);
    check_convergence(one_by_one);
    // The exact solution is found at once, and further iterations stay there.
    let identity = Csr::from_triplets(5, 5, (0..5).map(|i| (i, i, 1.0))).expect("in range");
    let operator = prepared(&identity, Basis::Original, 1);
    let b = [1.0, 2.0, 0.0, -4.0, 0.5];
    assert_eq!(solve(operator.on_device().expect("prepared on a GPU"), &b, one_by_one), b);
}
