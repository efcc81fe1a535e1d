//! Conjugate gradients with a prepared operator, in both bases.

use ellect::choose::{Verify, Workload};
use ellect::device::Device;
use ellect::format::Basis;
use ellect::operator::{permute, permute_back};
use ellect::read::{self, Limits};
use ellect::{Csr, Error, Precision, PreparedOperator, Tuner, check};

fn elasticity() -> Csr<f64> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/elasticity.mtx");
    read::file(path, &Limits::default()).expect("the sample reads")
}

fn cpu() -> Device {
    Device::shipped().into_iter().find(|device| device.name == "cpu").expect("shipped")
}

fn workload(basis: Basis) -> Workload {
    Workload { basis, spmvs: 1_000_000, verify: Verify::OnPrepare, ..Workload::default() }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Solves A x = b in the operator's basis; returns the solution and the number of iterations.
fn conjugate_gradients(operator: &PreparedOperator<f64>, b: &[f64]) -> (Vec<f64>, usize) {
    let mut x = vec![0.0; b.len()];
    let (mut r, mut p, mut q) = (b.to_vec(), b.to_vec(), vec![0.0; b.len()]);
    let mut rr = dot(&r, &r);
    let enough = 1e-20 * rr;
    for iteration in 0..10 * b.len() {
        if rr <= enough {
            return (x, iteration);
        }
        operator.apply(1.0, &p, 0.0, &mut q).expect("lengths fit");
        let alpha = rr / dot(&p, &q);
        for i in 0..b.len() {
            x[i] += alpha * p[i];
            r[i] -= alpha * q[i];
        }
        let next = dot(&r, &r);
        for i in 0..b.len() {
            p[i] = r[i] + next / rr * p[i];
        }
        rr = next;
    }
    panic!("no convergence, residual {rr}");
}

/// Returns the largest entry of |A x - b| divided by the largest of |b|.
fn residual(csr: &Csr<f64>, x: &[f64], b: &[f64]) -> f64 {
    let ax = check::reference(csr, 1.0, x, -1.0, b);
    let largest = |all: &mut dyn Iterator<Item = f64>| all.fold(0.0, |m: f64, v| m.max(v.abs()));
    largest(&mut ax.iter().map(|row| row.value)) / largest(&mut b.iter().copied())
}

#[test]
fn conjugate_gradients_solve_in_the_original_and_in_the_permuted_basis() {
    let csr = elasticity();
    let b: Vec<f64> = check::vector(csr.nrows(), 11);
    let tuner = Tuner::without_models(cpu());

    let operator = tuner.prepare(&csr, &workload(Basis::Original)).expect("prepared");
    assert!(operator.permutation().is_none() && operator.choice().is_some());
    let (x, _) = conjugate_gradients(&operator, &b);
    assert!(residual(&csr, &x, &b) < 1e-8);

    // A format that sorts rows, so that the permuted basis differs.
    let workload = workload(Basis::Permuted);
    let device = cpu();
    let target = workload.target(&device, Precision::F64);
    let candidate = "pjds".parse().expect("a candidate");
    let operator = PreparedOperator::new(&csr, &candidate, &target).expect("prepared");
    let order = operator.permutation().expect("the rows are sorted").to_vec();
    let (permuted, _) = conjugate_gradients(&operator, &permute(&b, &order));
    let x = permute_back(&permuted, &order);
    assert!(residual(&csr, &x, &b) < 1e-8);

    // Whatever the tuner chooses, a solver only has to permute in and out.
    let operator = tuner.prepare(&csr, &workload).expect("prepared");
    let x = match operator.permutation() {
        Some(order) => permute_back(&conjugate_gradients(&operator, &permute(&b, order)).0, order),
        None => conjugate_gradients(&operator, &b).0,
    };
    assert!(residual(&csr, &x, &b) < 1e-8);
}

#[test]
fn new_values_of_the_same_pattern_are_stored() {
    let csr = elasticity();
    let mut operator =
        Tuner::without_models(cpu()).prepare(&csr, &workload(Basis::Original)).expect("works");
    let doubled = csr.map_values(|value| 2.0 * value);
    operator.update(&doubled).expect("the pattern is the same");
    operator.verify(&doubled, 3).expect("the new values multiply");

    let shorter: Vec<f64> = doubled.values()[1..].to_vec();
    assert!(matches!(operator.update_values(&shorter), Err(Error::PatternChanged { .. })));
    let transposed: Vec<_> = (0..csr.nrows())
        .flat_map(|i| csr.row(i).0.iter().map(move |&j| (i, (j as usize + 1) % 192, 1.0)))
        .collect();
    let other = Csr::from_triplets(192, 192, transposed).expect("indices are in range");
    assert!(matches!(operator.update(&other), Err(Error::PatternChanged { .. })));
    operator.verify(&doubled, 4).expect("a refused update changes nothing");
}

#[test]
fn vectors_of_another_length_are_refused() {
    let csr = elasticity();
    let operator =
        Tuner::without_models(cpu()).prepare(&csr, &Workload::default()).expect("prepared");
    let (x, mut y) = (vec![1.0; csr.ncols() + 1], vec![0.0; csr.nrows()]);
    assert!(matches!(operator.apply(1.0, &x, 0.0, &mut y), Err(Error::Shape { what: "x", .. })));
    assert!(matches!(
        operator.apply(1.0, &x[1..], 0.0, &mut y[1..]),
        Err(Error::Shape { what: "y", .. })
    ));
}
