//! Ranks: each thread multiplies its part, and messages between them are all that they share.

use std::sync::Arc;
use std::time::Duration;

use ellect::choose::{Trials, ValuesUse};
use ellect::sharded::{
    Exchange, ExchangeError, Incoming, Mode, Outgoing, Rank, RankOperator, Split, Threads, Tuners,
};
use ellect::{Csr, Error, Result, Tuner, Workload, check, device};

use super::{matrices, matrix};

/// Formats are chosen by formulas, so that they are those of the same part elsewhere.
pub fn tuner() -> Arc<Tuner> {
    Arc::new(Tuner::without_models(device::find("cpu").expect("a host")))
}

pub fn workload() -> Workload {
    Workload {
        spmvs: 10_000,
        trials: Trials::Never,
        values: ValuesUse::Change(2),
        ..Workload::default()
    }
}

/// Runs `work` on as many threads as there are exchanges, and returns what each gives, in order.
pub fn on_ranks<R: Send>(
    exchanges: Vec<impl Exchange + 'static>,
    work: impl Fn(Rank) -> R + Sync,
) -> Vec<R> {
    let size = exchanges.len();
    std::thread::scope(|scope| {
        let threads = exchanges.into_iter().enumerate().map(|(rank, exchange)| {
            let rank = Rank::of(rank, size, exchange).expect("it is below the number of ranks");
            let work = &work;
            scope.spawn(move || work(rank))
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().expect("no rank panics")).collect()
    })
}

/// Returns the elements of a vector at these places.
pub fn at(vector: &[f64], places: impl Iterator<Item = usize>) -> Vec<f64> {
    places.map(|place| vector[place]).collect()
}

/// Multiplies on ranks that have the whole matrix, and returns the whole y.
fn product_on_ranks(
    csr: &Csr<f64>,
    size: usize,
    mode: Mode,
    split: Split<'_>,
    x: &[f64],
) -> Vec<f64> {
    let (tuner, square) = (tuner(), csr.nrows() == csr.ncols());
    let parts = on_ranks(Threads::all(size), |rank| -> Result<(Vec<usize>, Vec<f64>)> {
        let a = rank.clone().with_mode(mode).prepare_whole(&tuner, csr, &workload(), split)?;
        // Equal ranges of columns of a rectangular matrix.
        let first = csr.ncols() * rank.rank() / size;
        let own = match square {
            true => at(x, a.rows()),
            false => at(x, first..first + a.own_columns()),
        };
        let mut y = vec![f64::NAN; a.part().rows()];
        a.apply(2.0, &own, 0.0, &mut y)?;
        a.apply(1.0, &own, -3.0, &mut y)?;
        Ok((a.rows().collect(), y))
    });
    let mut all = vec![f64::NAN; csr.nrows()];
    for part in parts {
        let (rows, y) = part.expect("the matrix suits");
        rows.into_iter().zip(y).for_each(|(row, value)| all[row] = value);
    }
    all
}

/// Compares products on ranks with those of parts of one process, bit for bit.
fn check_whole(csr: &Csr<f64>, size: usize) {
    // No sum of these values is exact.
    let csr = csr.map_values(|value: f64| value / 7.0);
    let x: Vec<f64> = (0..csr.ncols()).map(|i| ((i * 37 % 101) as f64 - 50.0) / 9.0).collect();
    let owners: Vec<u32> = (0..csr.nrows()).map(|row| (row * 5 % size) as u32).collect();
    let mut splits = vec![Split::EqualRows, Split::EqualNonzeros, Split::Owners(&owners)];
    if cfg!(feature = "metis") && csr.nrows() == csr.ncols() {
        splits.push(Split::FewCuts);
    }
    let tuners = Tuners::of(vec![tuner(); size]).expect("a host").with_mode(Mode::Vector);
    for split in splits {
        let a = tuners.prepare_sharded(&csr, &workload(), split).expect("it applies");
        let mut wanted = vec![0.0; csr.nrows()];
        a.apply(2.0, &x, 0.0, &mut wanted).expect("it fits");
        a.apply(1.0, &x, -3.0, &mut wanted).expect("it fits");
        let got = product_on_ranks(&csr, size, Mode::Vector, split, &x);
        assert_eq!(got, wanted, "{split:?} on {size} ranks");
        let apart = product_on_ranks(&csr, size, Mode::Overlap, split, &x);
        let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-12 * b.abs().max(100.0);
        assert!(apart.iter().zip(&wanted).all(near), "{split:?} on {size} ranks, overlapped");
    }
}

#[test]
fn ranks_give_the_bits_of_parts_of_one_process() {
    for csr in matrices::<f64>() {
        for size in [1, 2, 3, 7] {
            check_whole(&csr, size);
        }
    }
}

#[test]
fn there_may_be_more_ranks_than_rows() {
    check_whole(&matrix("stencil7:300"), 64);
    check_whole(
        &Csr::from_triplets(40, 40, (0..40).map(|i| (i, 39 - i, 2.0))).expect("in range"),
        64,
    );
}

/// Returns rows of a matrix, with all columns.
fn rows_of(csr: &Csr<f64>, rows: std::ops::Range<usize>) -> Csr<f64> {
    let first = rows.start;
    let entries = rows.clone().flat_map(|row| {
        let (columns, values) = csr.row(row);
        columns.iter().zip(values).map(move |(&j, &value)| (row - first, j as usize, value))
    });
    Csr::from_triplets(rows.len(), csr.ncols(), entries.collect::<Vec<_>>()).expect("in range")
}

/// Multiplies on ranks that have only own rows and columns, with these bounds.
fn check_rows(csr: &Csr<f64>, rows: &[usize], columns: Option<&[usize]>) {
    let (tuner, size) = (tuner(), rows.len() - 1);
    let x = check::whole_numbers::<f64>(csr.ncols(), 3);
    let reference = check::reference(csr, 1.0, &x, 0.0, &vec![0.0; csr.nrows()]);
    let wanted: Vec<f64> = reference.iter().map(|row| row.value).collect();
    for mode in [Mode::Vector, Mode::Overlap] {
        on_ranks(Threads::all(size), |rank| {
            let bounds = |bounds: &[usize]| bounds[rank.rank()]..bounds[rank.rank() + 1];
            let own = rows_of(csr, bounds(rows));
            let stated = columns.map(|columns| bounds(columns).len());
            let a = rank.clone().with_mode(mode).prepare_rows(&tuner, &own, stated, &workload());
            let a = a.expect("the rows fit");
            assert_eq!((a.nrows(), a.ncols()), (csr.nrows(), csr.ncols()));
            assert!(a.rows().eq(bounds(rows)));
            let mut own_x = a.zeros_x();
            own_x.own_mut().copy_from_slice(&x[bounds(columns.unwrap_or(rows))]);
            let mut y = vec![f64::NAN; a.part().rows()];
            for _ in 0..3 {
                a.apply_with_halo(1.0, &mut own_x, 0.0, &mut y).expect("it fits");
                assert_eq!(y, wanted[bounds(rows)], "{rows:?} {columns:?} {mode:?}");
            }
        });
    }
}

#[test]
fn ranks_may_have_only_their_own_rows() {
    for csr in matrices::<f64>() {
        let (nrows, ncols) = (csr.nrows(), csr.ncols());
        let windows = |n: usize, parts: usize| -> Vec<usize> {
            (0..=parts).map(|part| n * part / parts).collect()
        };
        for size in [1, 2, 3, 7, 64] {
            if nrows == ncols {
                check_rows(&csr, &windows(nrows, size), None);
            }
            check_rows(&csr, &windows(nrows, size), Some(&windows(ncols, size)));
        }
        // Ranks with nothing at the start, in the middle and at the end.
        let uneven = |n: usize| vec![0, 0, n / 5, n / 5, n, n];
        check_rows(&csr, &uneven(nrows), Some(&[0, ncols, ncols, ncols, ncols, ncols]));
        check_rows(&csr, &[0, nrows, nrows, nrows, nrows, nrows], Some(&uneven(ncols)));
    }
}

#[test]
fn each_rank_sends_each_element_once_to_those_that_need_it() {
    // Strips of 5 lines of 20 points: each needs a line from each neighbour.
    let csr = matrix::<f64>("stencil5:400");
    let tuner = tuner();
    let sent = on_ranks(Threads::all(4), |rank| {
        let rank = rank.with_mode(Mode::Overlap);
        let a =
            rank.prepare_whole(&tuner, &csr, &workload(), Split::EqualRows).expect("it applies");
        let groups: Vec<usize> = a.part().operators().map(|(rows, _)| rows.len()).collect();
        (a.sent(), a.part().halo(), groups)
    });
    assert_eq!(sent[0], (vec![(1, 20)], 20, vec![80, 20]));
    assert_eq!(sent[1], (vec![(0, 20), (2, 20)], 40, vec![20, 60, 20]));
    assert_eq!(sent[3], (vec![(2, 20)], 20, vec![20, 80]));
}

#[test]
fn sums_have_equal_bits_on_all_ranks_and_are_those_of_one_process() {
    let csr = matrix::<f64>("stencil5:400");
    let x: Vec<f64> = (0..400).map(|i| 1.0 / (i as f64 + 3.0)).collect();
    for size in [1, 2, 3, 7, 64] {
        let tuners = Tuners::of(vec![tuner(); size]).expect("a host");
        let whole =
            tuners.prepare_sharded(&csr, &workload(), Split::EqualRows).expect("it applies");
        let divided = whole.scatter_x(&x).expect("it fits");
        let wanted = divided.dot(&divided).expect("alike");
        let bounds = |rank: usize| 400 * rank / size..400 * (rank + 1) / size;
        let dots = on_ranks(Threads::all(size), |rank| {
            let own = &x[bounds(rank.rank())];
            let mut sums = [rank.rank() as f32, 1.0];
            rank.sum(&mut sums).expect("the exchange works");
            (rank.dot(own, own).expect("alike").to_bits(), sums)
        });
        let sums = [(size * (size - 1) / 2) as f32, size as f32];
        assert!(dots.iter().all(|dot| *dot == (wanted.to_bits(), sums)), "{size} ranks: {dots:?}");
    }
}

#[test]
fn values_are_replaced_on_all_ranks_or_the_failure_is_told_to_all() {
    let csr = matrix::<f64>("stencil7:300");
    let doubled = csr.map_values(|value| 2.0 * value);
    let other = Csr::from_triplets(300, 300, [(0, 0, 1.0)]).expect("in range");
    let (tuner, x) = (tuner(), check::whole_numbers::<f64>(csr.ncols(), 3));
    let own_of = |a: &RankOperator<f64>| at(&x, a.rows());
    on_ranks(Threads::all(3), |rank| {
        let prepared = rank.prepare_whole(&tuner, &csr, &workload(), Split::EqualNonzeros);
        let mut a = prepared.expect("it applies");
        let (mut before, mut after) = (vec![0.0; a.part().rows()], vec![0.0; a.part().rows()]);
        a.apply(2.0, &own_of(&a), 0.0, &mut before).expect("it fits");
        a.update(&doubled).expect("the pattern stays");
        a.apply(1.0, &own_of(&a), 0.0, &mut after).expect("it fits");
        assert_eq!(after, before);
        let given = if rank.rank() == 1 { &other } else { &doubled };
        let error = a.update(given).expect_err("one rank has another pattern");
        match rank.rank() {
            1 => assert!(matches!(error, Error::PatternChanged { .. }), "{error}"),
            _ => assert!(error.to_string().contains("rank 1 could not do its part"), "{error}"),
        }
        a.apply(1.0, &own_of(&a), 0.0, &mut after).expect("it fits");
        assert_eq!(after, before, "the old values are still there");
    });
}

#[test]
fn ranks_that_disagree_find_the_same_fault() {
    let csr = matrix::<f64>("stencil5:400");
    let tuner = tuner();
    let prepared = |work: &(dyn Fn(&Rank) -> Result<RankOperator<f64>> + Sync)| -> String {
        let faults = on_ranks(Threads::all(3), |rank| {
            work(&rank).map(|_| ()).expect_err("ranks disagree").to_string()
        });
        assert!(faults.iter().all(|fault| *fault == faults[0]), "{faults:?}");
        faults[0].clone()
    };
    let lost = prepared(&|rank| {
        let own = rows_of(&csr, [0..100, 100..200, 200..399][rank.rank()].clone());
        rank.prepare_rows(&tuner, &own, None, &workload())
    });
    assert!(lost.contains("399 rows in all (100 + 100 + 199), but 400 columns"), "{lost}");
    let narrow = prepared(&|rank| {
        let own = Csr::from_triplets(2, 6 + rank.rank() / 2, [(0, 0, 1.0)])?;
        rank.prepare_rows(&tuner, &own, None, &workload())
    });
    assert!(narrow.contains("number of columns is 6 on rank 0 and 7 on rank 2"), "{narrow}");
    let splits = prepared(&|rank| {
        let split = if rank.rank() == 2 { Split::EqualNonzeros } else { Split::EqualRows };
        rank.prepare_whole(&tuner, &matrix("power_law:300"), &workload(), split)
    });
    assert!(splits.contains("the same matrix and the same split"), "{splits}");
    let forms = prepared(&|rank| match rank.rank() {
        0 => rank.prepare_rows(&tuner, &csr, None, &workload()),
        _ => rank.prepare_whole(&tuner, &csr, &workload(), Split::EqualRows),
    });
    assert!(forms.contains("call prepare_whole on all ranks"), "{forms}");
    let stated = prepared(&|rank| {
        let own = rows_of(&csr, 0..10);
        rank.prepare_rows(&tuner, &own, Some(usize::MAX - rank.rank()), &workload())
    });
    assert!(stated.contains("columns in all ("), "{stated}");
}

#[test]
fn a_rank_that_fails_alone_is_named_to_the_others() {
    let csr = matrix::<f64>("stencil5:400");
    let tuner = tuner();
    on_ranks(Threads::all(3), |rank| {
        let own = [0u32; 1];
        let split = if rank.rank() == 1 { Split::Owners(&own) } else { Split::EqualRows };
        let fault = rank.prepare_whole(&tuner, &csr, &workload(), split).expect_err("owners lack");
        match rank.rank() {
            1 => assert!(matches!(fault, Error::Shape { .. }), "{fault}"),
            _ => assert!(fault.to_string().contains("rank 1 could not do its part"), "{fault}"),
        }
        // All are still in step.
        let a = rank.prepare_whole(&tuner, &csr, &workload(), Split::EqualRows);
        let a = a.expect("it applies");
        let own = vec![1.0; a.own_columns() - usize::from(rank.rank() == 2)];
        let mut y = vec![0.0; a.part().rows()];
        let done = a.apply(1.0, &own, 0.0, &mut y);
        match rank.rank() {
            0 => done.expect("it needs no element of rank 2"),
            1 => {
                let fault = done.expect_err("rank 2 has too few elements").to_string();
                assert!(fault.contains("rank 2 could not do its part"), "{fault}");
            }
            _ => assert!(matches!(done, Err(Error::Shape { what: "x", .. }))),
        }
        a.apply(1.0, &vec![1.0; a.own_columns()], 0.0, &mut y).expect("all fit");
        let error = rank.dot(&[1.0; 2], &vec![1.0; 2 - rank.rank() % 2]).expect_err("rank 1 fails");
        assert!(
            error.to_string().contains(["rank 1 could not", "y has length 1"][rank.rank() % 2])
        );
        assert!(rank.dot(&[1.0], &[1.0]).is_ok_and(|sum| sum == 3.0));
    });
}

#[test]
fn a_rank_that_gives_up_keeps_no_other_waiting() {
    let csr = matrix::<f64>("stencil5:400");
    let tuner = tuner();
    on_ranks(Threads::all(3), |rank| {
        let gives_up = rank.rank() == 1;
        let named = |done: Result<()>| {
            let error = done.expect_err("rank 1 gives up").to_string();
            assert!(error.contains("rank 1 could not do its part"), "{error}");
        };
        let prepared = || rank.prepare_whole(&tuner, &csr, &workload(), Split::EqualRows);
        match gives_up {
            true => rank.give_up(),
            false => named(prepared().map(|_| ())),
        }
        let mut a = prepared().expect("it applies");
        let (x, mut y) = (vec![1.0; a.own_columns()], vec![0.0; a.part().rows()]);
        match gives_up {
            true => a.give_up(),
            false => named(a.apply(1.0, &x, 0.0, &mut y)),
        }
        match gives_up {
            true => rank.give_up(),
            false => named(a.update(&csr)),
        }
        a.apply(1.0, &x, 0.0, &mut y).expect("all take part");
    });
}

/// An exchange that does something else in its call number `at`, on one rank.
struct Faulty {
    inner: Threads,
    /// Number of calls until then.
    left: usize,
    fault: Fault,
    last: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    /// The call fails.
    Fail,
    /// A byte of a message changes.
    Change,
    /// No message is written.
    Drop,
    /// A message is the one of the call before.
    Repeat,
    /// The exchange does its work without calling `meanwhile`; no fault.
    Quiet,
}

impl Exchange for Faulty {
    fn exchange(
        &mut self,
        send: &[Outgoing<'_>],
        receive: &mut [Incoming<'_>],
        meanwhile: &mut dyn FnMut(),
    ) -> std::result::Result<(), ExchangeError> {
        let now = self.left == 0 && !receive.is_empty();
        self.left = if now { usize::MAX } else { self.left.saturating_sub(1) };
        match self.fault {
            Fault::Fail if now => return Err("the cable is cut".into()),
            Fault::Quiet => return self.inner.exchange(send, receive, &mut || {}),
            _ => self.inner.exchange(send, receive, meanwhile)?,
        }
        if let (true, Some(message)) = (now, receive.last_mut()) {
            let len = message.bytes.len();
            match self.fault {
                Fault::Change => message.bytes[len - 1] ^= 1,
                Fault::Drop => message.bytes.fill(0),
                Fault::Repeat => (0..len).for_each(|i| {
                    message.bytes[i] = self.last.get(i).copied().unwrap_or_default();
                }),
                Fault::Fail | Fault::Quiet => {}
            }
        }
        if let Some(message) = receive.last() {
            self.last = message.bytes.to_vec();
        }
        Ok(())
    }
}

/// Sets a matrix up and multiplies on three ranks, the last of which has a fault in this call.
fn with_fault(fault: Fault, call: usize) -> Vec<Result<Vec<f64>>> {
    let csr = matrix::<f64>("stencil5:400");
    let tuner = tuner();
    let exchanges = Threads::all(3).into_iter().enumerate().map(|(rank, inner)| {
        let left = if rank == 2 { call } else { usize::MAX };
        // Messages of a call that failed never come; all others do.
        let patience = if matches!(fault, Fault::Fail) { 1 } else { 60 };
        let inner = inner.with_patience(Duration::from_secs(patience));
        Faulty { inner, left, fault, last: Vec::new() }
    });
    on_ranks(exchanges.collect(), |rank| {
        let rank = rank.with_mode(Mode::Overlap);
        let own = rows_of(&csr, [0..120, 120..250, 250..400][rank.rank()].clone());
        let a = rank.prepare_rows(&tuner, &own, None, &workload())?;
        let ones = vec![1.0; own.nrows()];
        let mut y = vec![0.0; own.nrows()];
        a.apply(1.0, &ones, 0.0, &mut y)?;
        rank.dot(&y, &y)?;
        Ok(y)
    })
}

#[test]
fn exchanges_that_fail_or_lie_are_found_at_every_call() {
    let calls = (0..).take_while(|&call| {
        let all = with_fault(Fault::Fail, call);
        let Err(fault) = &all[2] else {
            return false;
        };
        assert!(fault.to_string().starts_with("rank 2: the exchange failed: the cable is cut"));
        true
    });
    let calls = calls.count();
    // Facts, counts, requests, success, product, dot product; sums take two exchanges.
    assert_eq!(calls, 2 + 2 + 1 + 2 + 1 + 2);
    for fault in [Fault::Change, Fault::Drop, Fault::Repeat] {
        for call in 0..calls {
            let all = with_fault(fault, call);
            let error = all[2].as_ref().expect_err("a message is wrong").to_string();
            assert!(error.starts_with("rank 2: "), "{fault:?} in call {call}: {error}");
        }
    }
}

#[test]
fn an_exchange_need_not_overlap() {
    let overlapped = with_fault(Fault::Change, usize::MAX);
    let quiet = with_fault(Fault::Quiet, 0);
    for (overlapped, quiet) in overlapped.into_iter().zip(quiet) {
        assert_eq!(overlapped.expect("no fault"), quiet.expect("no fault"));
    }
}

#[test]
fn wrong_ranks_and_vectors_say_what_to_do() {
    let exchange = Threads::all(1).remove(0);
    let error = Rank::of(3, 3, exchange).expect_err("ranks are counted from 0").to_string();
    assert!(error.starts_with("this is rank 3 of 3 ranks"), "{error}");
    let rank = Rank::of(0, 1, Threads::all(1).remove(0)).expect("one rank");
    let one = |n: usize| {
        let csr = Csr::from_triplets(n, n, [(0, 0, 1.0)]).expect("in range");
        rank.prepare_rows(&tuner(), &csr, None, &workload()).expect("it fits")
    };
    let (a, b) = (one(3), one(4));
    let error = a.apply_with_halo(1.0, &mut b.zeros_x(), 0.0, &mut [0.0; 3]).expect_err("of b");
    assert!(error.to_string().contains("make it by this one's zeros_x"), "{error}");
    let error = a.apply(1.0, &[0.0; 3], 0.0, &mut [0.0; 4]).expect_err("four elements");
    assert!(matches!(error, Error::Shape { what: "y", got: 4, needed: 3 }), "{error}");
}
