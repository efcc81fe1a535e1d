//! The modes of the papers: products, and the choice of a mode for all parts.

use std::sync::Arc;

use ellect::choose::ValuesUse;
use ellect::sharded::{Mode, Rank, ShardedOperator, Split, Threads, Tuners};
use ellect::{Csr, Scalar, Tuner, Workload, check};

use super::ranks::{at, on_ranks, tuner, workload};
use super::{matrices, matrix, prepared_in};

/// The modes of the papers, each with the divisions that it admits.
fn cases() -> Vec<(Mode, Split<'static>)> {
    let any = [Split::EqualRows, Split::EqualNonzeros];
    let splits = |mode: Mode| mode.split().map_or(any.to_vec(), |own| vec![own]);
    let modes = [Mode::Naive, Mode::Task, Mode::PcsrI, Mode::PcsrII];
    modes.into_iter().flat_map(|mode| splits(mode).into_iter().map(move |s| (mode, s))).collect()
}

/// Multiplies with filled halos too, and twice, so that halos of an earlier product are there.
fn multiplies<T: Scalar>(a: &ShardedOperator<T>, csr: &Csr<T>) {
    super::check(a, csr);
    let x = check::whole_numbers::<T>(csr.ncols(), 5);
    let before = check::whole_numbers::<T>(csr.nrows(), 6);
    let wanted: Vec<T> = check::reference(csr, T::ONE, &x, T::ONE, &before)
        .iter()
        .map(|row| T::from_f64(row.value))
        .collect();
    let other = check::whole_numbers::<T>(csr.ncols(), 7);
    let (mut there, mut y) = (a.scatter_x(&other).expect("it fits"), a.zeros_y());
    a.apply_sharded(T::ONE, &mut there, T::ZERO, &mut y).expect("it fits");
    let mut there = a.scatter_x(&x).expect("it fits");
    a.apply_sharded(T::ONE, &mut there, T::ZERO, &mut y).expect("it fits");
    let mut y = a.scatter_y(&before).expect("it fits");
    a.apply_filled(T::ONE, &there, T::ONE, &mut y).expect("it fits");
    let mut got = vec![T::ZERO; csr.nrows()];
    a.gather_y(&y, &mut got).expect("it fits");
    assert_eq!(got, wanted, "{} parts in the mode {}", a.parts().len(), a.choice().mode);
}

#[test]
fn modes_of_the_papers_give_the_products_of_the_whole_matrix() {
    for csr in matrices::<f64>() {
        for parts in [1, 2, 3, 7] {
            for (mode, split) in cases() {
                multiplies(&prepared_in(&csr, parts, split, mode), &csr);
            }
        }
    }
    let csr = matrix::<f32>("stencil7:500");
    for (mode, split) in cases() {
        multiplies(&prepared_in(&csr, 64, split, mode), &csr);
        let owners: Vec<u32> = (0..csr.nrows()).map(|row| (row * 5 % 3) as u32).collect();
        if mode.split().is_none() {
            multiplies(&prepared_in(&csr, 3, Split::Owners(&owners), mode), &csr);
        }
    }
}

#[test]
fn parts_of_each_mode_have_the_entries_and_elements_that_the_paper_gives_them() {
    // A square grid of 20 x 20 points in strips of 5 lines.
    let csr = matrix::<f64>("stencil5:400");
    let naive = prepared_in(&csr, 4, Split::EqualRows, Mode::Naive);
    let operators: Vec<_> =
        naive.parts()[1].operators().map(|(rows, operator)| (rows, operator.nnz())).collect();
    // Each point of the first and of the last line has one neighbour in another strip.
    assert_eq!(operators, [(0..100, 450), (0..100, 40)]);
    assert_eq!((naive.parts()[1].rows(), naive.parts()[1].halo()), (100, 40));

    let pcsr = prepared_in(&csr, 4, Split::EqualRows, Mode::PcsrI);
    for (number, part) in pcsr.parts().iter().enumerate() {
        assert_eq!((part.operators().len(), part.halo()), (1, 300), "all of x");
        assert!(part.neighbours().eq((0..4).filter(|&other| other != number)));
    }
    let rows = |mode: Mode| {
        let csr = matrix::<f64>("power_law:300");
        let split = mode.split().expect("it divides the rows itself");
        let a = prepared_in(&csr, 3, split, mode);
        a.parts().iter().map(|part| [part.rows(), part.nnz()]).collect::<Vec<_>>()
    };
    assert!(rows(Mode::PcsrI).iter().all(|&[rows, _]| rows == 100));
    let spread = |mode| {
        let nnz = || rows(mode).into_iter().map(|[_, nnz]| nnz);
        nnz().max().unwrap_or(0) - nnz().min().unwrap_or(0)
    };
    assert!(spread(Mode::PcsrII) < spread(Mode::PcsrI), "equal nonzeros");
}

#[test]
fn values_are_replaced_in_each_mode() {
    let csr = matrix::<f64>("stencil7:600");
    let workload = Workload { values: ValuesUse::Change(5), ..Workload::default() };
    for (mode, split) in cases() {
        let tuners = Tuner::open_all(&["cpu"; 3]).expect("a host").with_mode(mode);
        let mut a = tuners.prepare_sharded(&csr, &workload, split).expect("it fits");
        let doubled = csr.map_values(|value| 2.0 * value);
        a.update(&doubled).expect("the pattern stays");
        multiplies(&a, &doubled);
    }
}

#[test]
fn a_mode_that_divides_the_rows_refuses_another_division() {
    let csr = matrix::<f64>("stencil5:400");
    let tuners = Tuner::open_all(&["cpu"; 2]).expect("a host").with_mode(Mode::PcsrII);
    let refused = tuners.prepare_sharded(&csr, &Workload::default(), Split::EqualRows);
    assert_eq!(
        refused.expect_err("equal rows").to_string(),
        "the mode pcsr-ii divides the rows by EqualNonzeros, but the split is Split::EqualRows; pass \
         Split::EqualNonzeros, or choose another mode"
    );
    let tuner = tuner();
    let faults = on_ranks(Threads::all(2), |rank| {
        let rank = rank.with_mode(Mode::PcsrI);
        let whole = rank.prepare_whole(&tuner, &csr, &workload(), Split::EqualNonzeros);
        let rows = Csr::from_triplets(200, 400, [(0, 0, 1.0)]).expect("in range");
        let own = rank.prepare_rows(&tuner, &rows, None, &workload());
        [whole.map(|_| ()), own.map(|_| ())].map(|fault| fault.expect_err("refused").to_string())
    });
    for [whole, own] in faults {
        assert!(whole.starts_with("the mode pcsr-i divides the rows by EqualRows"), "{whole}");
        assert!(own.ends_with("call prepare_whole, or choose another mode"), "{own}");
    }
}

/// Multiplies on ranks in each mode, and compares with exact products.
fn check_ranks(csr: &Csr<f64>, size: usize) {
    let tuner = tuner();
    let x = check::whole_numbers::<f64>(csr.ncols(), 3);
    let zeros = vec![0.0; csr.nrows()];
    let once: Vec<f64> =
        check::reference(csr, 2.0, &x, 0.0, &zeros).iter().map(|row| row.value).collect();
    let twice = check::reference(csr, 1.0, &x, -3.0, &once);
    let wanted: Vec<f64> = twice.iter().map(|row| row.value).collect();
    for (mode, split) in cases() {
        let parts = on_ranks(Threads::all(size), |rank: Rank| -> ellect::Result<_> {
            let rank = rank.with_mode(mode);
            let a = rank.prepare_whole(&tuner, csr, &workload(), split)?;
            let first = csr.ncols() * rank.rank() / size;
            let own = match csr.nrows() == csr.ncols() {
                true => at(&x, a.rows()),
                false => at(&x, first..first + a.own_columns()),
            };
            let mut y = vec![f64::NAN; a.part().rows()];
            a.apply(2.0, &own, 0.0, &mut y)?;
            a.apply(1.0, &own, -3.0, &mut y)?;
            Ok((a.rows().collect::<Vec<_>>(), y))
        });
        let mut got = vec![f64::NAN; csr.nrows()];
        for part in parts {
            let (rows, y) = part.expect("the matrix suits");
            rows.into_iter().zip(y).for_each(|(row, value)| got[row] = value);
        }
        assert_eq!(got, wanted, "{mode} by {split:?} on {size} ranks");
    }
}

#[test]
fn ranks_multiply_in_each_mode() {
    for csr in matrices::<f64>() {
        for size in [1, 3] {
            check_ranks(&csr, size);
        }
    }
    check_ranks(&matrix("stencil7:300"), 64);
}

/// Prepares a matrix for GPUs, in whose place this host multiplies.
fn for_gpus(csr: &Csr<f64>, gpus: usize, mode: Mode, split: Split<'_>) -> ShardedOperator<f64> {
    let tuner = Arc::new(Tuner::open("h200").expect("it ships").host_emulation());
    let tuners = Tuners::of(vec![tuner; gpus]).expect("one or more").with_mode(mode);
    let workload = Workload { spmvs: 1_000_000, ..Workload::default() };
    tuners.prepare_sharded(csr, &workload, split).expect("it fits")
}

#[test]
fn the_choice_of_a_mode_says_why_and_what_is_expected() {
    let csr = matrix::<f64>("stencil7:200000");
    let a = for_gpus(&csr, 2, Mode::Auto, Split::EqualRows);
    let choice = a.choice();
    assert_eq!(choice.mode, Mode::Vector, "{}", choice.why);
    // 200,000 rows are read in a few microseconds, which the exchange doubles.
    assert_eq!(choice.fewer, Some(1), "{}", choice.why);
    assert!(choice.why.contains("; use 1 GPU, where "), "{}", choice.why);
    let modes: Vec<Mode> = choice.expected.iter().map(|expected| expected.mode).collect();
    assert_eq!(modes.len(), 5, "all but pcsr-ii, which divides by equal nonzeros: {modes:?}");
    assert!(choice.expected.is_sorted_by(|a, b| a.product_s <= b.product_s));
    let own = choice.expected().expect("GPUs are predicted");
    assert!(own.product_s > 6.5e-6 && own.efficiency < 0.5, "{own:?}");

    // The exact halo is known where parts get all of x, and where columns are divided.
    let expected = |mode: Mode, of: Mode| {
        let a = for_gpus(&csr, 2, mode, Split::EqualRows);
        let all = a.choice().expected.iter().find(|expected| expected.mode == of);
        assert_eq!(a.choice().mode, mode);
        all.expect("it suits").product_s
    };
    let of_vector = |mode| expected(mode, Mode::Vector);
    let wanted = of_vector(Mode::Vector);
    for mode in [Mode::Overlap, Mode::Naive, Mode::PcsrI] {
        let other = of_vector(mode);
        assert!((other / wanted - 1.0).abs() < 0.25, "{mode}: {other} for {wanted}");
    }
    assert!(expected(Mode::PcsrI, Mode::PcsrI) > wanted, "all of x takes longer than a halo");

    let hosts = prepared_in(&csr, 2, Split::EqualRows, Mode::Task);
    assert_eq!(hosts.choice().why, "task: the caller asked for task");
    assert!(hosts.choice().expected.is_empty() && hosts.choice().fewer.is_none());
}
