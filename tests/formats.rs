//! Generic checks of every format, variant, basis and precision on one corpus, and of a toy format
//! that is added in the same three places as every format.

mod corpus;
mod toy;

use ellect::analysis::Analysis;
use ellect::device::{Device, Kind};
use ellect::format::{Basis, Candidate, FORMATS, Format, Target, candidates_of};
use ellect::operator::{permute, permute_back};
use ellect::{Csr, PreparedOperator, Scalar, check};

#[test]
fn every_candidate_multiplies_right_and_reads_back() {
    check_matrices(corpus::small(), &all_candidates(FORMATS));
}

#[test]
fn every_candidate_multiplies_generated_matrices_right() {
    check_matrices(corpus::generated(), &all_candidates(FORMATS));
}

#[test]
fn candidates_for_complex_matrices_multiply_them_right() {
    let mut all = all_candidates(FORMATS);
    // Other formats are checked on other matrices.
    all.retain(|candidate| candidate.format.figures_of.is_some());
    assert!(!all.is_empty());
    check_matrices(corpus::complex(), &all);
}

#[test]
fn every_candidate_multiplies_real_matrices_right() {
    let all = all_candidates(FORMATS);
    for (name, csr) in corpus::real(60_000) {
        check_matrix(&name, &csr, &all);
    }
}

#[test]
fn every_format_takes_some_matrix() {
    check_taken(FORMATS);
}

#[test]
fn refusals_and_limits_of_memory_are_errors_of_the_candidate() {
    check_refusals(&all_candidates(FORMATS));
}

#[test]
fn candidates_are_read_back_from_their_text() {
    check_texts(FORMATS);
    assert!("nosuch".parse::<Candidate>().is_err());
    assert!("csr:nosuch=1".parse::<Candidate>().is_err());
}

#[test]
fn a_toy_format_passes_every_check() {
    let all = all_candidates(toy::FORMATS);
    assert_eq!(all.len(), 2, "{all:?}");
    check_matrices(corpus::small(), &all);
    check_matrices(corpus::generated(), &all);
    check_taken(toy::FORMATS);
    assert!(check_refusals(&all) > 0);
    check_texts(toy::FORMATS);
    let files = std::fs::read_dir("tests/toy").expect("cargo runs tests in the package's folder");
    let names = files.map(|file| file.expect("the folder is readable").file_name());
    let mut names: Vec<_> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    assert_eq!(names, ["bitmap.cu", "bitmap.rs", "mod.rs"], "kernels, module and table");
    for format in toy::FORMATS {
        let shipped = FORMATS.iter().any(|other| other.name == format.name);
        assert!(!shipped && format.name.parse::<Candidate>().is_err(), "{}", format.name);
    }
}

#[test]
fn spans_in_the_order_of_a_graph_count_its_columns() {
    // Five diagonals, scattered over more columns than 16 bits hold, with too many entries for an
    // estimate to analyse all of them.
    let n = 80_000;
    let place = |i: usize| i * 7919 % n;
    let near = |i: usize| (i.saturating_sub(2)..(i + 3).min(n)).map(move |j| (i, j));
    let entries = (0..n).flat_map(near).map(|(i, j)| (place(i), place(j), 1.0));
    let csr = Csr::<f64>::from_triplets(n, n, entries).expect("indices are in range");
    let analysis = Analysis::sampled(&csr).with_partitioning();
    let device = ellect::device::find("h200").expect("shipped");
    let narrow: Candidate = "hll:hack=32,sort=rcm,tpr=1,col=16".parse().expect("a candidate");
    let target = target::<f64>(&device, Basis::Permuted);
    let work = narrow.work(&analysis, &target).expect("rows next to each other share columns");
    let operator = PreparedOperator::with_analysis(&csr, &analysis, &narrow, &target)
        .expect("the conversion agrees");
    assert_eq!(work.layout_bytes, operator.bytes());
}

/// Returns the candidates of these formats on any device.
fn all_candidates(formats: &'static [Format]) -> Vec<Candidate> {
    let mut all = candidates_of(formats, Kind::Gpu);
    for candidate in candidates_of(formats, Kind::Host) {
        if !all.contains(&candidate) {
            all.push(candidate);
        }
    }
    all
}

/// Checks that each of these formats accepts a matrix of the corpus.
fn check_taken(formats: &'static [Format]) {
    let devices = devices();
    for format in formats {
        let all = all_candidates(std::slice::from_ref(format));
        let taken = corpus::small().iter().chain(&corpus::complex()).any(|(_, csr)| {
            let analysis = Analysis::of(csr);
            let single = csr.cast::<f32>();
            let of_single = Analysis::of(&single);
            devices.iter().any(|device| {
                let wide = target::<f64>(device, Basis::Original);
                let of_f32 = target::<f32>(device, Basis::Original);
                let pairs = [(&analysis, wide), (&of_single, of_f32)];
                pairs.iter().any(|(analysis, target)| {
                    all.iter().any(|candidate| candidate.work(analysis, target).is_ok())
                })
            })
        });
        assert!(taken, "{} refuses the whole corpus", format.name);
    }
}

/// Checks that each candidate is read back from its text.
fn check_texts(formats: &'static [Format]) {
    for candidate in all_candidates(formats) {
        let text = candidate.to_string();
        assert_eq!(Candidate::parse(&text, formats).expect("own text"), candidate);
    }
}

/// Checks that a conversion fails with the reason of a refusal, and with the needed bytes where the
/// layout takes one byte more than the target allows; returns the number of refusals.
fn check_refusals(all: &[Candidate]) -> usize {
    let mut refusals = 0;
    for (name, csr) in corpus::small() {
        let analysis = Analysis::of(&csr);
        for device in &Device::shipped() {
            for candidate in all {
                let target = target::<f64>(device, Basis::Original);
                let error = |target: &Target<'_>| {
                    let made = PreparedOperator::with_analysis(&csr, &analysis, candidate, target);
                    made.expect_err("it is refused").to_string()
                };
                match candidate.work(&analysis, &target) {
                    Err(reason) => {
                        let expected = candidate.refused(&reason).to_string();
                        assert_eq!(error(&target), expected, "{candidate} on {name}");
                        refusals += 1;
                    }
                    Ok(work) if work.layout_bytes > 0 => {
                        let memory_limit = work.layout_bytes - 1;
                        let error = error(&Target { memory_limit, ..target });
                        let needed = format!("{} bytes", work.layout_bytes);
                        assert!(error.contains(&needed), "{candidate} on {name}: {error}");
                    }
                    Ok(_) => {}
                }
            }
        }
    }
    refusals
}

/// Returns the shipped devices, and the same devices with caches too small for any matrix in this
/// test.
fn devices() -> Vec<Device> {
    let tiny = |device: Device| Device { cache_bytes: 256, ..device };
    Device::shipped().into_iter().chain(Device::shipped().into_iter().map(tiny)).collect()
}

fn target<T: Scalar>(device: &Device, basis: Basis) -> Target<'_> {
    Target {
        device,
        precision: T::PRECISION,
        basis,
        memory_limit: u64::MAX,
        stored: Default::default(),
    }
}

/// Checks these candidates on these matrices in both precisions.
fn check_matrices(matrices: Vec<(String, Csr<f64>)>, all: &[Candidate]) {
    for (name, csr) in matrices {
        check_matrix(&name, &csr, all);
        check_matrix(&name, &csr.cast::<f32>(), all);
    }
}

fn check_matrix<T: Scalar>(name: &str, csr: &Csr<T>, all: &[Candidate]) {
    let (analysis, products) = (Analysis::of(csr), Products::of(csr));
    let mut suited: Vec<(Kind, &Candidate)> = Vec::new();
    for device in &devices() {
        // With the smaller caches, test only the candidates that are refused with the larger ones.
        let known: Vec<_> = suited.clone();
        for basis in [Basis::Original, Basis::Permuted] {
            let target = target::<T>(device, basis);
            for candidate in all {
                if known.contains(&(device.kind, candidate)) {
                    continue;
                }
                let Ok(work) = candidate.work(&analysis, &target) else { continue };
                suited.push((device.kind, candidate));
                let what = format!("{candidate} on {name}, {}, {basis:?}", T::PRECISION);
                let operator =
                    match PreparedOperator::with_analysis(csr, &analysis, candidate, &target) {
                        Ok(operator) => operator,
                        Err(error) => panic!("{what}: work agreed, conversion did not: {error}"),
                    };
                assert_eq!(work.layout_bytes, operator.bytes(), "{what}: bytes");
                if basis == Basis::Permuted && operator.permutation().is_none() {
                    // The layout is that of the original basis.
                    continue;
                }
                assert_eq!(&operator.to_csr().expect("on the host"), csr, "{what}: read back");
                products.check(&what, csr, operator);
            }
        }
    }
}

/// A product of a matrix, computed by the reference: alpha, x, beta and y, and the result.
struct Product<T> {
    alpha: T,
    x: Vec<T>,
    beta: T,
    y: Vec<T>,
    wanted: Vec<check::RowReference>,
}

impl<T: Scalar> Product<T> {
    fn of(csr: &Csr<T>, [alpha, beta]: [f64; 2], x: &[T], y: &[T]) -> Self {
        let (alpha, beta) = (T::from_f64(alpha), T::from_f64(beta));
        let wanted = check::reference(csr, alpha, x, beta, y);
        Product { alpha, x: x.to_vec(), beta, y: y.to_vec(), wanted }
    }

    fn by(&self, operator: &PreparedOperator<T>) -> Vec<T> {
        apply(operator, self.alpha, &self.x, self.beta, &self.y)
    }
}

/// The products that every candidate is checked with.
struct Products<T> {
    /// The matrix with whole numbers as values: every order of summation is exact.
    whole: Csr<T>,
    exact: Vec<Product<T>>,
    /// Products of the matrix itself, within the rounding bound.
    rounded: Vec<Product<T>>,
}

impl<T: Scalar> Products<T> {
    fn of(csr: &Csr<T>) -> Self {
        let whole = csr.map_values(|value| T::from_f64((value.to_f64() * 3.0).round() % 8.0));
        let x = check::whole_numbers::<T>(csr.ncols(), 1);
        let y = check::whole_numbers::<T>(csr.nrows(), 2);
        let factors = [[1.0, 0.0], [2.0, -1.0], [-1.0, 1.0], [0.0, 2.0]];
        let exact = factors.map(|factors| Product::of(&whole, factors, &x, &y)).into();

        let x = check::vector::<T>(csr.ncols(), 3);
        let y = check::vector::<T>(csr.nrows(), 4);
        // With beta = 0, y = NaN must not be read.
        let nan = vec![T::from_f64(f64::NAN); csr.nrows()];
        let mut rounded =
            vec![Product::of(csr, [1.0, 0.0], &x, &nan), Product::of(csr, [1.5, -0.5], &x, &y)];
        // Infinities and NaN in x must reach exactly the rows that store an entry in their columns.
        for bad in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
            let mut x = check::vector::<T>(csr.ncols(), 5);
            for column in (0..x.len()).step_by(7) {
                x[column] = T::from_f64(bad);
            }
            rounded.push(Product::of(csr, [1.0, 0.0], &x, &y));
        }
        Products { whole, exact, rounded }
    }

    /// Checks an operator of the matrix `csr`.
    fn check(&self, what: &str, csr: &Csr<T>, mut operator: PreparedOperator<T>) {
        operator.update(&self.whole).expect("same pattern");
        assert_eq!(operator.to_csr().expect("on the host"), self.whole, "{what}: updated values");
        for product in &self.exact {
            for (row, (got, wanted)) in
                product.by(&operator).iter().zip(&product.wanted).enumerate()
            {
                assert_eq!(got.to_f64(), wanted.value, "{what}: row {row}, exact");
            }
        }
        operator.update(csr).expect("same pattern");
        for product in &self.rounded {
            check::compare(what, &product.wanted, &product.by(&operator))
                .unwrap_or_else(|error| panic!("{error}, x begins with {:?}", product.x.first()));
        }
    }
}

fn apply<T: Scalar>(operator: &PreparedOperator<T>, alpha: T, x: &[T], beta: T, y: &[T]) -> Vec<T> {
    let order = operator.permutation();
    let x = order.map_or_else(|| x.to_vec(), |order| permute(x, order));
    let mut y = order.map_or_else(|| y.to_vec(), |order| permute(y, order));
    operator.apply(alpha, &x, beta, &mut y).expect("lengths fit");
    order.map_or_else(|| y.clone(), |order| permute_back(&y, order))
}
