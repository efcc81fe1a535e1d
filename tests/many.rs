//! Products with several vectors: every candidate of a host, every order and leading dimension.

mod corpus;

use ellect::analysis::Analysis;
use ellect::choose::{Choice, Effort};
use ellect::cost::Source;
use ellect::dense::{DenseMut, DenseRef, Order};
use ellect::device::{Device, Kind};
use ellect::format::{Basis, Candidate, Target, candidates};
use ellect::lazy::{Conversion, LazyOperator};
use ellect::measure::Protocol;
use ellect::operator::{permute, permute_back};
use ellect::sharded::Split;
use ellect::{Csr, Error, PreparedOperator, Scalar, Tuner, Workload, check, generate};

/// Numbers of vectors: single blocks, sums of blocks, and several of the largest.
const VECTORS: [usize; 8] = [1, 2, 3, 4, 5, 8, 16, 33];

/// Element in the gaps of y, which no product may change.
const GAP: f64 = 77.0;

fn host() -> Device {
    Device::shipped().into_iter().find(|device| device.kind == Kind::Host).expect("shipped")
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

/// Several vectors as a dense matrix with gaps.
struct Vectors<T> {
    order: Order,
    shape: [usize; 2],
    leading: usize,
    data: Vec<T>,
}

impl<T: Scalar> Vectors<T> {
    /// Stores these vectors of `n` elements with `gap` elements after each column or row.
    fn new(order: Order, gap: usize, n: usize, vectors: &[Vec<T>]) -> Self {
        let k = vectors.len();
        let (lines, leading) = match order {
            Order::ColumnMajor => (k, n + gap),
            Order::RowMajor => (n, k + gap),
        };
        let mut data = vec![T::from_f64(GAP); lines * leading];
        for (c, vector) in vectors.iter().enumerate() {
            for (row, &value) in vector.iter().enumerate() {
                data[Self::place(order, leading, row, c)] = value;
            }
        }
        Vectors { order, shape: [n, k], leading, data }
    }

    fn place(order: Order, leading: usize, row: usize, c: usize) -> usize {
        match order {
            Order::ColumnMajor => c * leading + row,
            Order::RowMajor => row * leading + c,
        }
    }

    fn read(&self) -> DenseRef<'_, T> {
        DenseRef::new(self.order, self.shape, self.leading, &self.data).expect("it fits")
    }

    fn write(&mut self) -> DenseMut<'_, T> {
        DenseMut::new(self.order, self.shape, self.leading, &mut self.data).expect("it fits")
    }

    /// The vectors, after a check that the gaps are as they were.
    fn vectors(&self) -> Vec<Vec<T>> {
        let [n, k] = self.shape;
        let mut inside = vec![false; self.data.len()];
        let mut vectors = vec![Vec::new(); k];
        for (c, vector) in vectors.iter_mut().enumerate() {
            for row in 0..n {
                let place = Self::place(self.order, self.leading, row, c);
                inside[place] = true;
                vector.push(self.data[place]);
            }
        }
        for (value, inside) in self.data.iter().zip(inside) {
            assert!(inside || value.to_f64() == GAP, "a gap of y holds {value}");
        }
        vectors
    }
}

/// Orders of x and y with gaps.
const PLACES: [(Order, Order, usize); 5] = [
    (Order::ColumnMajor, Order::ColumnMajor, 0),
    (Order::RowMajor, Order::RowMajor, 0),
    (Order::ColumnMajor, Order::RowMajor, 3),
    (Order::RowMajor, Order::ColumnMajor, 1),
    (Order::RowMajor, Order::RowMajor, 2),
];

/// Multiplies vectors in the matrix's own basis.
fn apply_many<T: Scalar>(
    operator: &PreparedOperator<T>,
    place: (Order, Order, usize),
    (alpha, beta): (T, T),
    x: &[Vec<T>],
    y: &[Vec<T>],
) -> Vec<Vec<T>> {
    let order = operator.permutation();
    let forth = |vectors: &[Vec<T>]| -> Vec<Vec<T>> {
        let permuted = |v: &Vec<T>| order.map_or_else(|| v.clone(), |order| permute(v, order));
        vectors.iter().map(permuted).collect()
    };
    let (of_x, of_y, gap) = place;
    let x = Vectors::new(of_x, gap, operator.ncols(), &forth(x));
    let mut y = Vectors::new(of_y, gap, operator.nrows(), &forth(y));
    operator.apply_many(alpha, x.read(), beta, y.write()).expect("shapes fit");
    let back = |v: Vec<T>| order.map_or_else(|| v.clone(), |order| permute_back(&v, order));
    y.vectors().into_iter().map(back).collect()
}

/// Checks one operator with every number of vectors, order and gap.
fn check_operator<T: Scalar>(what: &str, csr: &Csr<T>, operator: &PreparedOperator<T>) {
    let most = VECTORS[VECTORS.len() - 1];
    let of = |len, seed: usize| -> Vec<Vec<T>> {
        (0..most).map(|c| check::vector(len, (seed + c) as u64)).collect()
    };
    let (xs, ys) = (of(csr.ncols(), 100), of(csr.nrows(), 200));
    let nan = vec![vec![T::from_f64(f64::NAN); csr.nrows()]; most];
    // With beta = 0, y is not read.
    for (alpha, beta, ys) in [(1.0, 0.0, &nan), (1.5, -0.5, &ys)] {
        let (alpha, beta) = (T::from_f64(alpha), T::from_f64(beta));
        let of_column = |c: usize| check::reference(csr, alpha, &xs[c], beta, &ys[c]);
        let references: Vec<_> = (0..most).map(of_column).collect();
        let mut first: Option<Vec<Vec<T>>> = None;
        for k in VECTORS.into_iter().rev() {
            for place in PLACES {
                let got = apply_many(operator, place, (alpha, beta), &xs[..k], &ys[..k]);
                let what = format!("{what}: {k} vectors, {place:?}");
                for (reference, got) in references.iter().zip(&got) {
                    check::compare(&what, reference, got).unwrap_or_else(|error| panic!("{error}"));
                }
                // A column's result does not depend on the others, except beside a single one.
                let first = first.get_or_insert(got.clone());
                assert!(k == 1 || got[..] == first[..k], "{what}: other results");
            }
        }
    }
    let bad = [f64::INFINITY, f64::NAN];
    let mut xs = xs;
    for (c, x) in xs.iter_mut().enumerate().take(5).skip(1) {
        x.iter_mut().step_by(5 + c).for_each(|x| *x = T::from_f64(bad[c % 2]));
    }
    for place in PLACES {
        let got = apply_many(operator, place, (T::ONE, T::ZERO), &xs[..5], &nan[..5]);
        for (x, got) in xs.iter().zip(&got) {
            let reference = check::reference(csr, T::ONE, x, T::ZERO, &nan[0]);
            check::compare(what, &reference, got)
                .unwrap_or_else(|error| panic!("not finite x, {place:?}: {error}"));
        }
    }
}

fn check_matrix<T: Scalar>(name: &str, csr: &Csr<T>) {
    let (device, analysis) = (host(), Analysis::of(csr));
    for basis in [Basis::Original, Basis::Permuted] {
        let target = target::<T>(&device, basis);
        let mut all = candidates(Kind::Host);
        // A host tries neither; both write rows far from where they are stored.
        all.extend(["hll:sort=all", "hll:hack=256,sort=all,col=16"].map(|c| c.parse().expect(c)));
        for candidate in &all {
            let made = PreparedOperator::with_analysis(csr, &analysis, candidate, &target);
            let Ok(operator) = made else { continue };
            if basis == Basis::Permuted && operator.permutation().is_none() {
                continue;
            }
            let what = format!("{candidate} on {name}, {}, {basis:?}", T::PRECISION);
            check_operator(&what, csr, &operator);
        }
    }
}

#[test]
fn every_candidate_multiplies_several_vectors_right() {
    for (name, csr) in corpus::small() {
        check_matrix(&name, &csr);
        check_matrix(&name, &csr.cast::<f32>());
    }
}

#[test]
fn threads_share_the_rows_of_several_vectors() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(4).build().expect("a pool");
    for (class, rows) in [("heat", 20_000), ("elasticity", 9_000), ("rmat", 1 << 13)] {
        let csr: Csr<f64> = generate::by_name(class, rows, 1).expect("a class");
        let (device, analysis) = (host(), Analysis::of(&csr));
        for text in ["csr", "pcsr", "hll", "hll:sort=512", "hll:sort=all", "biell", "bhll", "hdia"]
        {
            let candidate: Candidate = text.parse().expect(text);
            let target = target::<f64>(&device, Basis::Original);
            let made = pool
                .install(|| PreparedOperator::with_analysis(&csr, &analysis, &candidate, &target));
            let Ok(operator) = made else { continue };
            let of = |len, seed: u64| -> Vec<Vec<f64>> {
                (0..5).map(|c| check::vector(len, seed + c)).collect()
            };
            let (x, y) = (of(csr.ncols(), 1), of(csr.nrows(), 9));
            for place in PLACES {
                let got = pool.install(|| apply_many(&operator, place, (2.0, 0.5), &x, &y));
                for ((x, y), got) in x.iter().zip(&y).zip(&got) {
                    let reference = check::reference(&csr, 2.0, x, 0.5, y);
                    check::compare(text, &reference, got)
                        .unwrap_or_else(|error| panic!("{text} on {class}, {place:?}: {error}"));
                }
            }
        }
    }
}

#[test]
fn shapes_that_do_not_fit_the_matrix_are_refused() {
    let csr: Csr<f64> = Csr::from_triplets(2, 3, [(0, 0, 1.0), (1, 2, 2.0)]).expect("in range");
    let device = host();
    let target = target::<f64>(&device, Basis::Original);
    let csr_format = "csr".parse().expect("a format");
    let operator = PreparedOperator::new(&csr, &csr_format, &target).expect("it applies");
    let x = [1.0; 12];
    let error = |x_shape: [usize; 2], y_shape: [usize; 2]| {
        let mut y = [0.0; 12];
        let x = DenseRef::columns(x_shape[0], x_shape[1], &x).expect("it fits");
        let y = DenseMut::columns(y_shape[0], y_shape[1], &mut y).expect("it fits");
        operator.apply_many(1.0, x, 0.0, y).expect_err("it does not fit the matrix")
    };
    let of_x = error([2, 2], [2, 2]);
    assert!(matches!(of_x, Error::Shape { what: "a column of x", got: 2, needed: 3 }), "{of_x}");
    let of_y = error([3, 2], [3, 2]);
    assert!(matches!(of_y, Error::Shape { what: "a column of y", got: 3, needed: 2 }), "{of_y}");
    let columns = error([3, 4], [2, 2]).to_string();
    assert!(columns.contains("x has 4 columns and y has 2"), "{columns}");
}

#[test]
fn no_vectors_are_no_product() {
    let csr: Csr<f64> = generate::by_name("heat", 500, 1).expect("a class");
    let operator = Tuner::open("cpu")
        .and_then(|tuner| tuner.prepare(&csr, &Workload::default()))
        .expect("it applies");
    for order in Order::ALL {
        let x = DenseRef::new(order, [csr.ncols(), 0], 0, &[]).expect("no elements");
        let y = DenseMut::new(order, [csr.nrows(), 0], 0, &mut []).expect("no elements");
        operator.apply_many(1.0, x, 0.0, y).expect("nothing to do");
    }
}

#[test]
fn divided_and_lazy_operators_multiply_several_vectors() {
    let csr: Csr<f64> = generate::by_name("heat", 2000, 1).expect("a class");
    let workload = Workload::default();
    let tuners = Tuner::open_all(&["cpu"; 2]).expect("a host");
    let sharded = tuners.prepare_sharded(&csr, &workload, Split::EqualRows).expect("hosts");
    let tuner = std::sync::Arc::new(Tuner::open("cpu").expect("a host"));
    let shared = std::sync::Arc::new(csr.clone());
    let lazy = LazyOperator::new(tuner, shared, workload, Conversion::Here);
    let mut lazy = lazy.expect("a host");
    let x: Vec<Vec<f64>> = (0..3).map(|c| check::vector(csr.ncols(), c)).collect();
    let y = vec![vec![1.0; csr.nrows()]; 3];
    let x_all = Vectors::new(Order::RowMajor, 1, csr.ncols(), &x);
    let mut of_parts = Vectors::new(Order::RowMajor, 1, csr.nrows(), &y);
    sharded.apply_many(2.0, x_all.read(), -1.0, of_parts.write()).expect("shapes fit");
    let mut of_lazy = Vectors::new(Order::ColumnMajor, 1, csr.nrows(), &y);
    lazy.apply_many(2.0, x_all.read(), -1.0, of_lazy.write()).expect("shapes fit");
    assert_eq!(lazy.products(), 3);
    for got in [of_parts.vectors(), of_lazy.vectors()] {
        for ((x, y), got) in x.iter().zip(&y).zip(&got) {
            let reference = check::reference(&csr, 2.0, x, -1.0, y);
            check::compare("several vectors", &reference, got).expect("as the reference");
        }
    }
}

fn several(vectors: usize, effort: Effort) -> Workload {
    Workload { vectors, effort, ..Workload::default() }
}

#[test]
fn estimates_read_the_matrix_once_for_a_block_of_vectors() {
    let csr: Csr<f64> = generate::by_name("stencil7", 50_000, 1).expect("a class");
    for device in Device::shipped() {
        let of_gpu = device.kind == Kind::Gpu;
        let tuner = Tuner::without_models(device);
        let choices = [1, 2, 3, 8, 16].map(|vectors| {
            let workload = several(vectors, Effort::Predict);
            let choice = tuner.recommend(&csr, &workload).expect("an estimate");
            (vectors, choice)
        });
        let spmv_s = |choice: &Choice, text: &str| {
            let ranked = choice.ranked(&text.parse().expect("a candidate"));
            ranked.expect("it applies").spmv_s
        };
        let one = &choices[0].1;
        for (vectors, choice) in &choices[1..] {
            let k = *vectors as f64;
            let of_csr = spmv_s(choice, "csr") / spmv_s(one, "csr");
            assert!(of_csr > 1.0 && of_csr < 0.9 * k, "{k} vectors: {of_csr}");
            for ranked in &choice.ranking {
                let single = one.ranked(&ranked.candidate).expect("it applies");
                let times = ranked.spmv_s / single.spmv_s;
                let format = ranked.candidate.format;
                let by_columns = match of_gpu {
                    true => format.vectors_at_once_on_gpu(&ranked.candidate.params) == 1,
                    false => format.vectors_at_once == 1,
                };
                assert!(!by_columns || (times / k - 1.0).abs() < 1e-9, "{k}: {}", ranked.candidate);
            }
            assert_eq!(choice.vectors, *vectors);
            assert!(
                choice.explanation[0].contains(&format!("of {vectors} vectors"))
                    || choice.explanation[0].starts_with("Keep CSR"),
                "{:?}",
                choice.explanation
            );
            let told = choice.explanation.last().expect("sources");
            assert!(told.contains("single vectors do not apply"), "{told}");
            for ranked in &choice.ranking {
                assert_eq!(ranked.source, Source::Estimated);
                let total_s = ranked.convert_s + 1000.0 * ranked.spmv_s;
                assert!((ranked.total_s / total_s - 1.0).abs() < 1e-12);
            }
        }
        // Two blocks of 8 take twice as long as one.
        let [eight, sixteen] = [3, 4].map(|at: usize| spmv_s(&choices[at].1, "csr"));
        assert!((sixteen / eight - 2.0).abs() < 1e-9);
        let text = |choice: &Choice| serde_json::to_value(choice).expect("plain data");
        assert_eq!(text(one).get("vectors"), None, "the answer for one vector is as it was");
        assert_eq!(text(&choices[1].1)["vectors"], 2);
    }
}

#[test]
fn timings_answer_only_for_their_number_of_vectors() {
    let data = tempfile::tempdir().expect("a folder");
    let csr: Csr<f64> = generate::by_name("heat", 3000, 1).expect("a class");
    let protocol = Protocol { max_samples: 3, max_s: 0.01, max_copies: 2, ..Protocol::default() };
    let recommend = |workload: &Workload| {
        let tuner = Tuner::open_in("cpu", data.path()).expect("a host").with_protocol(protocol);
        tuner.recommend(&csr, workload).expect("an answer")
    };
    let timed = |choice: &Choice| {
        choice.ranking.iter().filter(|ranked| ranked.source == Source::Measured).count()
    };
    let measured = recommend(&several(3, Effort::Measure));
    assert!(timed(&measured) >= 2, "{:?}", measured.explanation);
    let again = recommend(&several(3, Effort::Predict));
    assert_eq!(timed(&again), timed(&measured));
    for other in [1, 2, 4] {
        assert_eq!(timed(&recommend(&several(other, Effort::Predict))), 0, "{other} vectors");
    }
    assert!(timed(&recommend(&several(1, Effort::Measure))) >= 2);
    assert_eq!(timed(&recommend(&several(3, Effort::Predict))), timed(&measured));
}

#[test]
fn an_operator_for_several_vectors_is_prepared_and_checked() {
    let csr: Csr<f64> = generate::by_name("elasticity", 6000, 1).expect("a class");
    let tuner = Tuner::open("cpu").expect("a host");
    let workload = Workload { spmvs: 20_000, ..several(5, Effort::Predict) };
    let operator = tuner.prepare(&csr, &workload).expect("an operator");
    operator.verify_many(&csr, 5, 7).expect("right products");
    assert_eq!(operator.choice().map(|choice| choice.vectors), Some(5));
    let none = tuner.prepare(&csr, &several(0, Effort::Predict)).expect_err("no vectors");
    assert!(none.to_string().contains("vectors of a product is 0; it must be from 1"), "{none}");
    let text = r#"{"vectors":0}"#;
    let error = serde_json::from_str::<Workload>(text).expect_err("no vectors");
    assert!(error.to_string().contains("is 0; it must be from 1 to 1024"), "{error}");
    let written = serde_json::to_string(&Workload::default()).expect("plain data");
    assert!(!written.contains("vectors"), "{written}");
    assert_eq!(serde_json::from_str::<Workload>(&written).expect("own text").vectors, 1);
}
