//! Products with dot products of their result, and with its multiple added to another vector: every
//! candidate of a host, in both precisions.

mod corpus;

use ellect::analysis::Analysis;
use ellect::device::{Device, Kind};
use ellect::dots::{DotWith, Fused};
use ellect::format::{Basis, Target, candidates};
use ellect::generate::Spec;
use ellect::{Csr, Error, Precision, PreparedOperator, Scalar, check};

fn host() -> Device {
    Device::shipped().into_iter().find(|device| device.kind == Kind::Host).expect("shipped")
}

fn target(device: &Device, precision: Precision, basis: Basis) -> Target<'_> {
    Target { device, precision, basis, memory_limit: u64::MAX, stored: Default::default() }
}

/// Returns the matrix with whole numbers as values.
fn whole<T: Scalar>(csr: &Csr<f64>) -> Csr<T> {
    csr.map_values(|value| (value * 3.0).round() % 8.0).cast()
}

/// Sum of the products of whole numbers: exact.
fn exact<T: Scalar>(x: &[T], y: &[T]) -> T {
    T::from_f64(x.iter().zip(y).map(|(x, y)| x.to_f64() * y.to_f64()).sum())
}

/// Compares all lists of dot products with exact ones, and y with that of a product.
fn check_dots<T: Scalar>(what: &str, operator: &PreparedOperator<T>) {
    let (nrows, ncols) = (operator.nrows(), operator.ncols());
    let x = check::whole_numbers::<T>(ncols, 1);
    let [before, z] = [2, 3].map(|seed| check::whole_numbers::<T>(nrows, seed));
    let nothing = vec![T::from_f64(f64::NAN); nrows];
    let (with_x, with_y, with_z) = (DotWith::X, DotWith::Y, DotWith::Z(&z[..]));
    let lists: [&[DotWith<&[T]>]; 6] = [
        &[],
        &[with_x],
        &[with_y],
        &[with_z, with_y],
        &[with_z, with_x, with_y],
        &[with_y, with_y, with_x],
    ];
    let fits = |list: &&&[DotWith<&[T]>]| nrows == ncols || !list.contains(&with_x);
    for list in lists.iter().filter(fits) {
        for (beta, before) in [(0.0, &nothing), (-1.0, &before)] {
            let [alpha, beta] = [2.0, beta].map(T::from_f64);
            let (mut y, mut wanted) = (before.clone(), before.clone());
            let mut results = vec![T::from_f64(f64::NAN); list.len()];
            let done = operator.apply_dot(alpha, &x, beta, &mut y, list, &mut results);
            done.unwrap_or_else(|error| panic!("{what}: {error}"));
            operator.apply(alpha, &x, beta, &mut wanted).expect("lengths fit");
            assert!(y == wanted, "{what}: y, beta {beta}");
            let dot = |one: &DotWith<&[T]>| match one {
                DotWith::X => exact(&y, &x),
                DotWith::Y => exact(&y, &y),
                DotWith::Z(z) => exact(&y, z),
            };
            let dots: Vec<T> = list.iter().map(dot).collect();
            assert_eq!(results, dots, "{what}: {} dot products, beta {beta}", list.len());

            let (mut y, mut w, gamma) = (before.clone(), z.clone(), T::from_f64(-3.0));
            let sum: Vec<T> = z.iter().zip(&wanted).map(|(&z, &y)| z + gamma * y).collect();
            let fused = Fused::new().dots(list, &mut results[..]).add(gamma, &mut w[..]);
            operator.apply_fused(alpha, &x, beta, &mut y, fused).expect("lengths fit");
            assert!(w == sum, "{what}: w, {} dot products, beta {beta}", list.len());
            assert_eq!((y, results), (wanted, dots), "{what}: with w, beta {beta}");
        }
    }
}

fn check_candidates<T: Scalar>(name: &str, csr: &Csr<f64>, basis: Basis) -> usize {
    let (device, csr) = (host(), whole::<T>(csr));
    let target = target(&device, T::PRECISION, basis);
    let analysis = Analysis::of(&csr);
    let mut checked = 0;
    for candidate in candidates(Kind::Host) {
        let operator = PreparedOperator::with_analysis(&csr, &analysis, &candidate, &target);
        let Ok(operator) = operator else { continue };
        check_dots(&format!("{candidate} on {name}, {}", T::PRECISION), &operator);
        assert!(!operator.fuses_dots());
        checked += 1;
    }
    checked
}

#[test]
fn dot_products_are_those_of_the_result() {
    let mut checked = 0;
    for (name, csr) in corpus::small() {
        checked += check_candidates::<f64>(&name, &csr, Basis::Original);
        checked += check_candidates::<f32>(&name, &csr, Basis::Permuted);
    }
    let csr = "heat:20000".parse::<Spec>().expect("a class and rows").make();
    checked += check_candidates::<f64>("heat", &csr, Basis::Permuted);
    checked += check_candidates::<f32>("heat", &csr, Basis::Original);
    assert!(checked > 100, "{checked}");
}

#[test]
fn dot_products_repeat_to_the_last_bit() {
    let csr: Csr<f64> = "stencil5:90000".parse::<Spec>().expect("a class and rows").make();
    let device = host();
    let target = target(&device, Precision::F64, Basis::Original);
    let candidate = "csr".parse().expect("a candidate");
    let operator = PreparedOperator::new(&csr, &candidate, &target).expect("it applies");
    let [x, z] = [1, 2].map(|seed| check::vector::<f64>(csr.nrows(), seed));
    let with = [DotWith::Y, DotWith::X, DotWith::Z(&z[..])];
    let dots = || {
        let (mut y, mut dots) = (vec![0.0; csr.nrows()], [0.0; 3]);
        operator.apply_dot(1.0, &x, 0.0, &mut y, &with, &mut dots).expect("lengths fit");
        (y, dots)
    };
    let (y, first) = dots();
    let terms = |other: &[f64]| y.iter().zip(other).map(|(y, o)| y * o).collect::<Vec<f64>>();
    for (got, terms) in first.iter().zip([terms(&y), terms(&x), terms(&z)]) {
        let bound = 1e-12 * terms.iter().map(|term| term.abs()).sum::<f64>();
        let wanted = terms.iter().sum::<f64>();
        assert!((got - wanted).abs() <= bound, "{got}, {wanted}");
    }
    for _ in 0..5 {
        assert_eq!(dots().1.map(f64::to_bits), first.map(f64::to_bits));
    }
}

#[test]
fn dot_products_that_there_are_not_are_refused() {
    let csr = Csr::from_triplets(2, 3, [(0, 0, 1.0), (1, 2, 2.0)]).expect("in range");
    let device = host();
    let target = target(&device, Precision::F64, Basis::Original);
    let candidate = "csr".parse().expect("a candidate");
    let operator = PreparedOperator::new(&csr, &candidate, &target).expect("it applies");
    let (x, z, short) = ([1.0; 3], [1.0; 2], [1.0; 1]);
    let refused = |with: &[DotWith<&[f64]>], results: usize| {
        let (mut y, mut dots) = ([7.0; 2], vec![7.0; results]);
        let refused = operator.apply_dot(1.0, &x, 0.0, &mut y, with, &mut dots);
        assert_eq!((y, dots), ([7.0; 2], vec![7.0; results]), "nothing is written");
        refused.expect_err("it is refused")
    };
    let error = refused(&[DotWith::X], 1).to_string();
    assert!(error.contains("2 rows and 3 columns") && error.contains("leave"), "{error}");
    let error = refused(&[DotWith::Z(&z), DotWith::Z(&z)], 2).to_string();
    assert!(error.contains("two dot products with other vectors"), "{error}");
    let error = refused(&[DotWith::Y; 4], 4).to_string();
    assert!(error.contains("4 dot products") && error.contains("at most 3"), "{error}");
    let error = refused(&[DotWith::Z(&short)], 1);
    assert!(matches!(error, Error::Shape { what: "z", got: 1, needed: 2 }), "{error}");
    let error = refused(&[DotWith::Y], 2);
    assert!(matches!(error, Error::Shape { got: 2, needed: 1, .. }), "{error}");

    let (mut y, mut w, mut dots) = ([7.0; 2], [7.0; 3], [7.0; 1]);
    let fused = Fused::new().dots(&[DotWith::Y], &mut dots[..]).add(1.0, &mut w[..]);
    let error = operator.apply_fused(1.0, &x, 0.0, &mut y, fused).expect_err("w is longer");
    assert!(matches!(error, Error::Shape { what: "w", got: 3, needed: 2 }), "{error}");
    assert_eq!((y, w, dots), ([7.0; 2], [7.0; 3], [7.0; 1]), "nothing is written");
}

#[test]
fn sums_of_vectors_reach_every_element() {
    // Several chunks, the last of them not whole.
    let csr: Csr<f64> = "stencil5:40000".parse::<Spec>().expect("a class and rows").make();
    let n = csr.nrows();
    let device = host();
    let target = target(&device, Precision::F64, Basis::Original);
    let candidate = "csr".parse().expect("a candidate");
    let operator = PreparedOperator::new(&csr, &candidate, &target).expect("it applies");
    let [x, before] = [1, 2].map(|seed| check::vector::<f64>(n, seed));
    let (mut y, mut w, mut product) = (vec![0.0; n], before.clone(), vec![0.0; n]);
    let fused = Fused::new().add(0.5, &mut w[..]);
    operator.apply_fused(1.0, &x, 0.0, &mut y, fused).expect("lengths fit");
    operator.apply(1.0, &x, 0.0, &mut product).expect("lengths fit");
    assert_eq!(y, product);
    let sum: Vec<f64> = before.iter().zip(&y).map(|(w, y)| w + 0.5 * y).collect();
    assert_eq!(w, sum);
}
