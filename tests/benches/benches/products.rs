//! Host products: CSR next to `sprs` and `faer` in the same run, and every other format.
//!
//! Run `cargo bench -p ellect-benches --bench products`. Each matrix is larger than the caches of
//! most desktop processors; x stays unchanged, as in a solver's inner loop.
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

use divan::{Bencher, black_box};
use ellect::dense::{DenseMut, DenseRef, Order};
use ellect::device::{Device, Kind};
use ellect::format::{Basis, Candidate, Target, candidates};
use ellect::{Csr, PreparedOperator, Scalar, check, generate};

fn main() {
    divan::main();
}

/// Class and rows: about ten million entries each.
const MATRICES: [(&str, usize); 4] =
    [("stencil7", 1_500_000), ("elasticity", 230_000), ("circuit", 1_000_000), ("rmat", 1 << 19)];

fn matrix<T: Scalar>((class, rows): (&str, usize)) -> Csr<T> {
    generate::by_name(class, rows, 1).expect("the class exists").cast()
}

fn ours<T: Scalar>(bencher: Bencher<'_, '_>, csr: &Csr<T>, candidate: &Candidate) {
    let devices = Device::shipped();
    let device = devices.iter().find(|device| device.kind == Kind::Host).expect("shipped");
    let (precision, basis) = (T::PRECISION, Basis::Original);
    let target =
        Target { device, precision, basis, memory_limit: u64::MAX, stored: Default::default() };
    let Ok(operator) = PreparedOperator::new(csr, candidate, &target) else {
        println!("{candidate} refuses");
        return;
    };
    let (x, mut y) = (check::vector(csr.ncols(), 1), vec![T::ZERO; csr.nrows()]);
    bencher.bench_local(|| {
        operator.apply(T::ONE, black_box(&x), T::ZERO, &mut y).expect("lengths fit");
    });
}

/// One thread, because `sprs` has no other product.
mod one_thread {
    use super::*;

    #[divan::bench(types = [f32, f64], args = MATRICES, sample_count = 20)]
    fn csr<T: Scalar>(bencher: Bencher<'_, '_>, which: (&str, usize)) {
        let csr = matrix::<T>(which);
        let csr_format = "csr".parse().expect("a format");
        let devices = Device::shipped();
        let device = devices.iter().find(|device| device.kind == Kind::Host).expect("shipped");
        let (precision, basis) = (T::PRECISION, Basis::Original);
        let target =
            Target { device, precision, basis, memory_limit: u64::MAX, stored: Default::default() };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a pool");
        let operator = pool.install(|| PreparedOperator::new(&csr, &csr_format, &target));
        let operator = operator.expect("CSR suits every matrix");
        let (x, mut y) = (check::vector(csr.ncols(), 1), vec![T::ZERO; csr.nrows()]);
        bencher.bench_local(|| {
            let product = || operator.apply(T::ONE, black_box(&x), T::ZERO, &mut y);
            pool.install(product).expect("lengths fit");
        });
    }

    #[divan::bench(args = MATRICES, sample_count = 20)]
    fn sprs_f64(bencher: Bencher<'_, '_>, which: (&str, usize)) {
        let csr = matrix::<f64>(which);
        let columns = csr.col_idx().iter().map(|&column| column as usize).collect();
        let shape = (csr.nrows(), csr.ncols());
        let theirs =
            sprs::CsMat::new(shape, csr.row_ptr().to_vec(), columns, csr.values().to_vec());
        let (x, mut y): (Vec<f64>, _) = (check::vector(csr.ncols(), 1), vec![0.0; csr.nrows()]);
        bencher.bench_local(|| {
            y.fill(0.0);
            sprs::prod::mul_acc_mat_vec_csr(theirs.view(), black_box(&x[..]), &mut y[..]);
        });
    }

    #[divan::bench(args = MATRICES, sample_count = 20)]
    fn sprs_f64_u32(bencher: Bencher<'_, '_>, which: (&str, usize)) {
        let csr = matrix::<f64>(which);
        let offsets = csr.row_ptr().iter().map(|&offset| offset as u32).collect();
        let shape = (csr.nrows(), csr.ncols());
        let theirs: sprs::CsMatI<f64, u32> =
            sprs::CsMatI::new(shape, offsets, csr.col_idx().to_vec(), csr.values().to_vec());
        let (x, mut y): (Vec<f64>, _) = (check::vector(csr.ncols(), 1), vec![0.0; csr.nrows()]);
        bencher.bench_local(|| {
            y.fill(0.0);
            sprs::prod::mul_acc_mat_vec_csr(theirs.view(), black_box(&x[..]), &mut y[..]);
        });
    }

    #[divan::bench(args = MATRICES, sample_count = 20)]
    fn faer_f64(bencher: Bencher<'_, '_>, which: (&str, usize)) {
        faer_product(bencher, which, faer::Par::Seq);
    }
}

/// All threads of the machine.
mod all_threads {
    use super::*;

    #[divan::bench(types = [f32, f64], args = MATRICES, sample_count = 20)]
    fn csr<T: Scalar>(bencher: Bencher<'_, '_>, which: (&str, usize)) {
        ours(bencher, &matrix::<T>(which), &"csr".parse().expect("a format"));
    }

    #[divan::bench(args = MATRICES, sample_count = 20)]
    fn faer_f64(bencher: Bencher<'_, '_>, which: (&str, usize)) {
        faer_product(bencher, which, faer::Par::rayon(0));
    }

    #[divan::bench(args = candidates(Kind::Host), sample_count = 10)]
    fn elasticity_f64(bencher: Bencher<'_, '_>, candidate: &Candidate) {
        ours(bencher, &matrix::<f64>(MATRICES[1]), candidate);
    }
}

/// Several vectors at a time on all threads, in both orders, next to as many single products.
mod several_vectors {
    use super::*;

    /// Class, rows, candidate and number of vectors.
    const CASES: [(&str, usize, &str, usize); 14] = [
        ("stencil7", 1_500_000, "csr", 4),
        ("stencil7", 1_500_000, "csr", 8),
        ("stencil7", 1_500_000, "hll", 8),
        ("stencil7", 1_500_000, "hdia", 4),
        ("stencil7", 1_500_000, "hdia", 8),
        ("elasticity", 230_000, "csr", 4),
        ("elasticity", 230_000, "csr", 8),
        ("elasticity", 230_000, "pcsr", 8),
        ("elasticity", 230_000, "hll", 4),
        ("elasticity", 230_000, "hll", 8),
        ("elasticity", 230_000, "bhll", 4),
        ("elasticity", 230_000, "bhll", 8),
        ("rmat", 1 << 19, "csr", 4),
        ("rmat", 1 << 19, "csr", 8),
    ];

    /// An operator and the elements of its vectors.
    struct Case {
        operator: PreparedOperator<f64>,
        vectors: usize,
        x: Vec<f64>,
        y: Vec<f64>,
    }

    fn case((class, rows, candidate, vectors): (&str, usize, &str, usize)) -> Case {
        let csr = matrix::<f64>((class, rows));
        let devices = Device::shipped();
        let device = devices.iter().find(|device| device.kind == Kind::Host).expect("shipped");
        let (precision, basis) = (f64::PRECISION, Basis::Original);
        let target =
            Target { device, precision, basis, memory_limit: u64::MAX, stored: Default::default() };
        let candidate = candidate.parse().expect("a candidate");
        let operator = PreparedOperator::new(&csr, &candidate, &target).expect("it applies");
        let x = check::vector(csr.ncols() * vectors, 1);
        Case { operator, vectors, x, y: vec![0.0; csr.nrows() * vectors] }
    }

    fn at_once(bencher: Bencher<'_, '_>, which: (&str, usize, &str, usize), order: Order) {
        let Case { operator, vectors, x, mut y } = case(which);
        let shape = |n: usize| match order {
            Order::ColumnMajor => ([n, vectors], n),
            Order::RowMajor => ([n, vectors], vectors),
        };
        let (of_x, of_y) = (shape(operator.ncols()), shape(operator.nrows()));
        bencher.bench_local(|| {
            let x = DenseRef::new(order, of_x.0, of_x.1, black_box(&x)).expect("it fits");
            let y = DenseMut::new(order, of_y.0, of_y.1, &mut y).expect("it fits");
            operator.apply_many(1.0, x, 0.0, y).expect("shapes fit");
        });
    }

    #[divan::bench(args = CASES, sample_count = 20)]
    fn one_by_one(bencher: Bencher<'_, '_>, which: (&str, usize, &str, usize)) {
        let Case { operator, vectors, x, mut y } = case(which);
        let (nrows, ncols) = (operator.nrows(), operator.ncols());
        bencher.bench_local(|| {
            for c in 0..vectors {
                let x = &black_box(&x)[c * ncols..][..ncols];
                operator.apply(1.0, x, 0.0, &mut y[c * nrows..][..nrows]).expect("lengths fit");
            }
        });
    }

    #[divan::bench(args = CASES, sample_count = 20)]
    fn column_major(bencher: Bencher<'_, '_>, which: (&str, usize, &str, usize)) {
        at_once(bencher, which, Order::ColumnMajor);
    }

    #[divan::bench(args = CASES, sample_count = 20)]
    fn row_major(bencher: Bencher<'_, '_>, which: (&str, usize, &str, usize)) {
        at_once(bencher, which, Order::RowMajor);
    }
}

/// Products with the transpose: of its own CSR, and of the matrix's CSR by scattering into a vector
/// for each thread; and making the transpose.
mod transposed {
    use rayon::prelude::*;

    use super::*;

    #[divan::bench(args = MATRICES, sample_count = 20)]
    fn own_csr(bencher: Bencher<'_, '_>, which: (&str, usize)) {
        ours(bencher, &matrix::<f64>(which).transpose(), &"csr".parse().expect("a format"));
    }

    #[divan::bench(args = MATRICES, sample_count = 20)]
    fn scattered(bencher: Bencher<'_, '_>, which: (&str, usize)) {
        let csr = matrix::<f64>(which);
        let threads = rayon::current_num_threads();
        let first = |part: usize| {
            let wanted = csr.nnz() * part / threads;
            csr.row_ptr().partition_point(|&offset| offset < wanted).min(csr.nrows())
        };
        let bounds: Vec<usize> = (0..=threads).map(first).collect();
        let x: Vec<f64> = check::vector(csr.nrows(), 1);
        let mut sums = vec![vec![0.0; csr.ncols()]; threads];
        let mut y = vec![0.0; csr.ncols()];
        bencher.bench_local(|| {
            sums.par_iter_mut().enumerate().for_each(|(part, sums)| {
                sums.fill(0.0);
                for row in bounds[part]..bounds[part + 1] {
                    let (columns, values) = csr.row(row);
                    let x = black_box(&x)[row];
                    for (&column, value) in columns.iter().zip(values) {
                        sums[column as usize] += value * x;
                    }
                }
            });
            y.par_iter_mut().with_min_len(1 << 14).enumerate().for_each(|(column, y)| {
                *y = sums.iter().map(|sums| sums[column]).sum();
            });
        });
    }

    #[divan::bench(args = MATRICES, sample_count = 10)]
    fn making(bencher: Bencher<'_, '_>, which: (&str, usize)) {
        let csr = matrix::<f64>(which);
        bencher.bench_local(|| black_box(&csr).transpose());
    }

    /// Making the transpose on one thread by one pass that scatters, as a program would.
    #[divan::bench(args = MATRICES, sample_count = 10)]
    fn making_by_scattering(bencher: Bencher<'_, '_>, which: (&str, usize)) {
        let csr = matrix::<f64>(which);
        bencher.bench_local(|| {
            let csr = black_box(&csr);
            let mut next = vec![0; csr.ncols() + 1];
            csr.col_idx().iter().for_each(|&column| next[column as usize + 1] += 1);
            for column in 0..csr.ncols() {
                next[column + 1] += next[column];
            }
            let (mut rows, mut values) = (vec![0; csr.nnz()], vec![0.0; csr.nnz()]);
            for (row, column, value) in csr.iter() {
                (rows[next[column]], values[next[column]]) = (row as u32, value);
                next[column] += 1;
            }
            (rows, values)
        });
    }
}

fn faer_product(bencher: Bencher<'_, '_>, which: (&str, usize), par: faer::Par) {
    let csr = matrix::<f64>(which);
    let columns: Vec<usize> = csr.col_idx().iter().map(|&column| column as usize).collect();
    let symbolic = faer::sparse::SymbolicSparseRowMat::new_checked(
        csr.nrows(),
        csr.ncols(),
        csr.row_ptr().to_vec(),
        None,
        columns,
    );
    let theirs = faer::sparse::SparseRowMat::new(symbolic, csr.values().to_vec());
    let x: Vec<f64> = check::vector(csr.ncols(), 1);
    let x = faer::Col::from_fn(csr.ncols(), |i| x[i]);
    let mut y = faer::Col::<f64>::zeros(csr.nrows());
    bencher.bench_local(|| {
        faer::sparse::linalg::matmul::sparse_dense_matmul(
            y.as_mat_mut(),
            faer::Accum::Replace,
            theirs.as_ref(),
            black_box(&x).as_mat(),
            1.0,
            par,
        );
    });
}
