//! Ranks that are processes, each with a GPU: products, sums and captured products in every transport are
//! those of the whole matrix, and a rank that does not arrive is named.
//!
//! The program of the tests starts itself once for each rank ([`one_rank`]). Two processes share the
//! only GPU of a machine with one; then elements move through the host alone. Without NCCL, its tests say
//! so, and fail if `REQUIRE_NCCL=1`. `transports_are_timed` is run by `--include-ignored` and prints
//! lines of JSON.

use std::net::TcpListener;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ellect::cuda::Gpu;
use ellect::measure::Backend;
use ellect::sharded::{Mode, Rank, RankOnGpu, RankOperator, Sockets, Split, Transport};
use ellect::{Csr, Error, Result, Scalar, Tuner, Workload, check};

use super::sharded::{exact, matrix};
use super::{alone, gpu};

/// Variables of a rank's process.
const CASE: &str = "ELLECT_TEST_CASE";
const RANK: &str = "ELLECT_TEST_RANK";
const SIZE: &str = "ELLECT_TEST_SIZE";
const GPUS: &str = "ELLECT_TEST_GPUS";
const MEETING: &str = "ELLECT_TEST_MEETING";

/// Maximum time of a case; ranks that do not end by then are ended.
const LIMIT: Duration = Duration::from_secs(240);

/// Maximum time in which a rank waits for another one's message.
const PATIENCE: Duration = Duration::from_secs(60);

/// Launches of a captured product, each with another x.
const REPLAYS: u32 = 1000;

/// Starts as many processes as there are GPUs, at least 2 and at most 4, and waits for them.
///
/// # Panics
/// If one fails.
fn run(case: &str, least_gpus: usize) {
    if gpu().is_none() {
        return;
    }
    let gpus = (0..4).take_while(|&index| Gpu::open(index).is_ok()).count();
    if gpus < least_gpus {
        println!("not run: {case} needs {least_gpus} GPUs, and there are {gpus}");
        return;
    }
    let _turn = alone();
    let size = gpus.max(2);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let meeting = listener.local_addr().expect("it is bound").to_string();
    drop(listener);
    let start = |rank: usize| {
        let program = std::env::current_exe().expect("this program has a path");
        let mut command = Command::new(program);
        command.args(["--exact", "ranks::one_rank", "--nocapture", "--test-threads=1"]);
        let numbers = [(RANK, rank), (SIZE, size), (GPUS, gpus)];
        command.envs(numbers.map(|(name, number)| (name, number.to_string())));
        command.env(CASE, case).env(MEETING, &meeting);
        command.spawn().expect("this program starts again")
    };
    let mut ranks: Vec<Child> = (0..size).map(start).collect();
    let end = Instant::now() + LIMIT;
    let mut faults = Vec::new();
    for (rank, process) in ranks.iter_mut().enumerate() {
        let status = loop {
            match process.try_wait().expect("it was started") {
                Some(status) => break Some(status),
                None if Instant::now() >= end => break None,
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        match status {
            Some(status) if status.success() => {}
            Some(status) => faults.push(format!("rank {rank}: {status}")),
            None => {
                process.kill().expect("it runs");
                process.wait().expect("it was started");
                faults.push(format!("rank {rank} did not end in {LIMIT:?}"));
            }
        }
    }
    assert!(faults.is_empty(), "{case} on {size} ranks and {gpus} GPUs: {faults:?}");
}

/// The place of a rank: its number and its GPU.
struct Place {
    rank: Rank,
    tuner: Arc<Tuner>,
}

impl Place {
    /// Returns the place of this process; `None` if it is none of a rank.
    fn of_this_process() -> Option<Self> {
        let number = |name| std::env::var(name).ok()?.parse::<usize>().ok();
        let (rank, size, gpus) = (number(RANK)?, number(SIZE)?, number(GPUS)?);
        let meeting = std::env::var(MEETING).expect("it is set with the others");
        let exchange = Sockets::meet(rank, size, &meeting, PATIENCE).expect("all ranks come");
        let rank = Rank::of(rank, size, exchange).expect("it is below the number of ranks");
        let data = std::env::temp_dir().join(format!("ellect-ranks-{}", std::process::id()));
        let gpu = format!("cuda:{}", rank.rank() % gpus);
        let backend = Backend::open(&gpu, &data).expect("there is a GPU");
        let tuner = Tuner::without_models(backend).with_models(&data);
        Some(Place { rank, tuner: Arc::new(tuner.expect("shipped models are sound")) })
    }

    fn prepare<T: Scalar>(&self, csr: &Csr<T>, mode: Mode, split: Split<'_>) -> RankOperator<T> {
        let workload = Workload { spmvs: 1_000_000, ..Workload::default() };
        let rank = self.rank.clone().with_mode(mode);
        rank.prepare_whole(&self.tuner, csr, &workload, split).expect("it applies")
    }

    /// Returns the numbers of own columns of a matrix that is divided like this.
    fn columns<T: Scalar>(&self, a: &RankOperator<T>) -> Vec<usize> {
        if a.nrows() == a.ncols() {
            return a.rows().collect();
        }
        let mut counts = vec![0.0; self.rank.size()];
        counts[self.rank.rank()] = a.own_columns() as f64;
        self.rank.sum(&mut counts).expect("all ranks are there");
        let first: f64 = counts[..self.rank.rank()].iter().sum();
        (first as usize..first as usize + a.own_columns()).collect()
    }

    fn says(&self, text: &str) {
        println!("rank {} of {}: {text}", self.rank.rank(), self.rank.size());
    }
}

fn at<T: Copy>(vector: &[T], places: &[usize]) -> Vec<T> {
    places.iter().map(|&place| vector[place]).collect()
}

/// Connects the GPUs; `None`, which the test says, where NCCL is missing and not required.
fn connected<'a, T: Scalar>(
    place: &Place,
    a: &'a RankOperator<T>,
    transport: Transport,
) -> Option<RankOnGpu<'a, T>> {
    match a.on_gpu(transport) {
        Ok(on_gpu) => Some(on_gpu),
        Err(error)
            if transport == Transport::Nccl && error.to_string().contains("finds no NCCL") =>
        {
            assert!(std::env::var_os("REQUIRE_NCCL").is_none(), "{error}");
            place.says(&format!("not run: {error}"));
            None
        }
        Err(error) => panic!("rank {}: {transport}: {error}", place.rank.rank()),
    }
}

/// Compares products and sums with those of the whole matrix.
fn products<T: Scalar>(
    place: &Place,
    (name, csr): (&str, &Csr<T>),
    (mode, split): (Mode, Split<'_>),
    transport: Transport,
) -> Result<()> {
    let a = place.prepare(csr, mode, split);
    let Some(on_gpu) = connected(place, &a, transport) else { return Ok(()) };
    let (rows, columns) = (a.rows().collect::<Vec<_>>(), place.columns(&a));
    place.says(&format!(
        "{name} {:?} {mode:?}: {} rows, halo {}, {} groups, {} because {}",
        T::PRECISION,
        rows.len(),
        a.part().halo(),
        a.part().operators().len(),
        on_gpu.transport(),
        on_gpu.why()
    ));
    let x = check::whole_numbers::<T>(csr.ncols(), 3);
    let before = check::whole_numbers::<T>(csr.nrows(), 4);
    let (alpha, beta) = (T::from_f64(2.0), T::from_f64(-3.0));
    let wanted = at(&exact(csr, alpha, &x, beta, &before), &rows);
    let there = on_gpu.scatter_x(&at(&x, &columns))?;
    let mut got = vec![T::ZERO; rows.len()];
    for round in 0..20 {
        // Many products in a row, so that GPUs run ahead of each other.
        let mut y = on_gpu.scatter_y(&at(&before, &rows))?;
        (0..3 * round).try_for_each(|_| on_gpu.apply(T::ONE, &there, T::ZERO, &mut y))?;
        on_gpu.gather(&y, &mut got)?;
        drop(y);
        let mut y = on_gpu.scatter_y(&at(&before, &rows))?;
        on_gpu.apply(alpha, &there, beta, &mut y)?;
        on_gpu.gather(&y, &mut got)?;
        let wrong = got.iter().zip(&wanted).position(|(got, wanted)| got != wanted);
        assert_eq!(wrong, None, "{name}, {mode:?}, {split:?}, {transport}, round {round}");
    }
    let mut back = vec![T::ZERO; columns.len()];
    on_gpu.gather(&there, &mut back)?;
    assert_eq!(back, at(&x, &columns), "x is unchanged");

    let squares = x.iter().fold(0.0, |sum, x| sum + x.to_f64() * x.to_f64());
    for _ in 0..20 {
        assert_eq!(on_gpu.dot(&there, &there)?.to_f64(), squares, "{name}, {transport}");
    }
    let (mut number, ranks) = (on_gpu.number()?, place.rank.size() as f64);
    on_gpu.dot_into(&there, &there, &mut number)?;
    on_gpu.sum(&mut number)?;
    assert_eq!(on_gpu.read(&number)?.to_f64(), squares * ranks, "{name}, {transport}");
    Ok(())
}

/// Adds 1 to each element of x before each launch of a captured product.
fn replayed(place: &Place, mode: Mode, transport: Transport) -> Result<()> {
    let csr: Csr<f64> = matrix("stencil7:30000");
    let a = place.prepare(&csr, mode, Split::EqualRows);
    let Some(on_gpu) = connected(place, &a, transport) else { return Ok(()) };
    if on_gpu.transport() == Transport::Host {
        place.says("not run: no graph holds an exchange of the host");
        return Ok(());
    }
    let ones = vec![1.0; csr.ncols()];
    let rows: Vec<usize> = a.rows().collect();
    let step = at(&exact(&csr, 1.0, &ones, 0.0, &vec![0.0; csr.nrows()]), &rows);
    let one = on_gpu.scatter_x(&at(&ones, &rows))?;
    let mut product = on_gpu.capture(1.0, on_gpu.zeros_x()?, 0.0, on_gpu.zeros_y()?)?;
    for replay in 1..=REPLAYS {
        on_gpu.gpu().axpby(1.0, one.own()?, 1.0, product.x_mut()?)?;
        product.launch()?;
        if replay.wrapping_mul(2_654_435_761) % 100 == 0 {
            on_gpu.synchronize()?;
            let mut got = vec![0.0; rows.len()];
            product.y_mut()?.as_slice().read(&mut got)?;
            let right = got.iter().zip(&step).all(|(got, row)| *got == row * f64::from(replay));
            assert!(right, "{mode:?}, {transport}, replay {replay}");
        }
    }
    let y = product.into_y()?;
    let mut got = vec![0.0; rows.len()];
    on_gpu.gather(&y, &mut got)?;
    let right = got.iter().zip(&step).all(|(got, row)| *got == row * f64::from(REPLAYS));
    assert!(right, "{mode:?}, {transport}, after {REPLAYS} replays");
    place.says(&format!("{REPLAYS} launches in {mode:?} by {}", on_gpu.transport()));
    Ok(())
}

fn all_products(place: &Place, transport: Transport) -> Result<()> {
    for spec in ["stencil7:50000", "power_law:20000", "heat:3"] {
        let csr = matrix::<f64>(spec);
        products(place, (spec, &csr), (Mode::Vector, Split::EqualNonzeros), transport)?;
    }
    let csr = matrix::<f64>("stencil7:50000");
    products(place, ("stencil7", &csr), (Mode::Overlap, Split::EqualRows), transport)?;
    let csr = matrix::<f32>("circuit:20000");
    products(place, ("circuit", &csr), (Mode::Overlap, Split::FewCuts), transport)?;
    // One row and one column of each part are dense; and there is no entry at all.
    let dense = (0..400).flat_map(|k| [(k, 0, 1.0), (0, k, 2.0), (k, 399, 3.0), (399, k, 4.0)]);
    let dense = Csr::from_triplets(400, 400, dense)?;
    products(place, ("dense rows", &dense), (Mode::Overlap, Split::EqualRows), transport)?;
    products(place, ("dense rows", &dense), (Mode::Task, Split::EqualRows), transport)?;
    let grid = matrix::<f64>("stencil7:50000");
    products(place, ("stencil7", &grid), (Mode::Naive, Split::FewCuts), transport)?;
    products(place, ("stencil7", &grid), (Mode::PcsrI, Split::EqualRows), transport)?;
    let wide = Csr::from_triplets(30, 900, (0..900).map(|j| (j % 30, j, 1.0)))?;
    products(place, ("wide", &wide), (Mode::Vector, Split::EqualRows), transport)?;
    let none = Csr::<f64>::from_triplets(7, 7, std::iter::empty())?;
    products(place, ("no entry", &none), (Mode::Vector, Split::EqualRows), transport)?;
    replayed(place, Mode::Vector, transport)?;
    replayed(place, Mode::Naive, transport)?;
    replayed(place, Mode::Overlap, transport)
}

/// The last rank makes no product: its neighbour finds out, after a bounded time.
fn one_is_lost(place: &Place, transport: Transport) -> Result<()> {
    let csr: Csr<f64> = matrix("stencil7:30000");
    let a = place.prepare(&csr, Mode::Vector, Split::EqualRows);
    let Some(on_gpu) = connected(place, &a, transport) else { return Ok(()) };
    let (x, mut y) = (on_gpu.zeros_x()?, on_gpu.zeros_y()?);
    let (rank, size) = (place.rank.rank(), place.rank.size());
    if rank + 1 < size {
        let start = Instant::now();
        on_gpu.apply(1.0, &x, 0.0, &mut y)?;
        let error = on_gpu.synchronize().expect_err("the last rank makes no product");
        place.says(&format!("after {:.1} s: {error}", start.elapsed().as_secs_f64()));
        assert!(start.elapsed() < Duration::from_secs(60), "waits are bounded");
        assert!(matches!(error, Error::Exchange { .. }), "{error}");
        assert!(rank + 2 < size || error.to_string().contains(&(size - 1).to_string()), "{error}");
    } else {
        std::thread::sleep(Duration::from_secs(30));
    }
    Ok(())
}

/// Ranks that ask for different transports, or have no GPU, are refused on all ranks alike.
fn refusals(place: &Place) -> Result<()> {
    let csr: Csr<f64> = matrix("stencil7:3000");
    let a = place.prepare(&csr, Mode::Vector, Split::EqualRows);
    let own = [Transport::Host, Transport::Peer][place.rank.rank().min(1)];
    let error = a.on_gpu(own).expect_err("they differ").to_string();
    assert!(error.contains("the transport is host on rank 0 and peer on rank 1"), "{error}");
    let host = Arc::new(Tuner::open("cpu")?);
    let tuner = if place.rank.rank() == 1 { &host } else { &place.tuner };
    let workload = Workload::default();
    let b = place.rank.prepare_whole(tuner, &csr, &workload, Split::EqualRows)?;
    let error = b.on_gpu(Transport::Auto).expect_err("rank 1 has no GPU").to_string();
    assert!(error.contains("the part of rank 1 is on a host"), "{error}");
    // The ranks go on together after that.
    let on_gpu = a.on_gpu(Transport::Host)?;
    let error = on_gpu.capture(1.0, on_gpu.zeros_x()?, 0.0, on_gpu.zeros_y()?);
    let error = error.expect_err("no graph holds an exchange of the host").to_string();
    assert!(error.contains("cannot be captured"), "{error}");
    products(place, ("after refusals", &csr), (Mode::Vector, Split::EqualRows), Transport::Host)
}

/// Times captured products and sums in each transport; prints a line of JSON for each.
fn times(place: &Place) -> Result<()> {
    for spec in ["stencil7:2097152", "stencil7:16777216"] {
        let csr: Csr<f64> = matrix(spec);
        for mode in [Mode::Vector, Mode::Overlap] {
            let a = place.prepare(&csr, mode, Split::EqualRows);
            for transport in [Transport::Peer, Transport::Nccl] {
                let start = Instant::now();
                let Some(on_gpu) = connected(place, &a, transport) else { continue };
                let connect_s = start.elapsed().as_secs_f64();
                let (x, y) = (on_gpu.zeros_x()?, on_gpu.zeros_y()?);
                let product = on_gpu.capture(1.0, x, 0.0, y)?;
                let product_us =
                    median_us(place, 200, || on_gpu.synchronize(), || product.launch())?;
                let (x, mut number) = (on_gpu.zeros_x()?, on_gpu.number()?);
                let wait = || on_gpu.synchronize();
                let dot_us = median_us(place, 200, wait, || on_gpu.dot_into(&x, &x, &mut number))?;
                if place.rank.rank() == 0 {
                    println!(
                        "{{\"matrix\":\"{spec}\",\"ranks\":{},\"mode\":\"{mode:?}\",\
                         \"transport\":\"{transport}\",\"product_us\":{product_us:.2},\
                         \"dot_us\":{dot_us:.2},\"connect_s\":{connect_s:.3}}}",
                        place.rank.size()
                    );
                }
            }
        }
    }
    Ok(())
}

/// Returns the median time of a call in microseconds, of 9 samples that all ranks begin together.
fn median_us(
    place: &Place,
    calls: u32,
    wait: impl Fn() -> Result<()>,
    mut call: impl FnMut() -> Result<()>,
) -> Result<f64> {
    let mut samples = Vec::new();
    for _ in 0..11 {
        wait()?;
        place.rank.sum(&mut [0.0])?;
        let start = Instant::now();
        (0..calls).try_for_each(|_| call())?;
        wait()?;
        samples.push(1e6 * start.elapsed().as_secs_f64() / f64::from(calls));
    }
    let mut samples = samples.split_off(2);
    samples.sort_by(f64::total_cmp);
    Ok(samples[4])
}

/// The work of a rank's process; nothing in a process that is none.
#[test]
fn one_rank() {
    let Some(place) = Place::of_this_process() else { return };
    let case = std::env::var(CASE).expect("it is set with the others");
    let done = match case.split_once(' ') {
        Some(("products", transport)) => {
            all_products(&place, transport.parse().expect("a transport"))
        }
        Some(("lost", transport)) => one_is_lost(&place, transport.parse().expect("a transport")),
        _ if case == "refusals" => refusals(&place),
        _ if case == "times" => times(&place),
        _ => panic!("no case is named {case}"),
    };
    if let Err(error) = done {
        panic!("rank {}, {case}: {error}", place.rank.rank());
    }
}

#[test]
fn ranks_multiply_by_stores_into_each_others_memory() {
    run("products peer", 2);
}

#[test]
fn ranks_multiply_by_nccl() {
    run("products nccl", 2);
}

#[test]
fn ranks_multiply_through_the_host() {
    run("products host", 1);
}

#[test]
fn ranks_choose_a_transport_that_works() {
    run("products auto", 1);
}

#[test]
fn ranks_that_differ_are_refused() {
    run("refusals", 1);
}

#[test]
fn a_rank_that_does_not_arrive_is_named_with_peers() {
    run("lost peer", 2);
}

#[test]
fn a_rank_that_does_not_arrive_is_named_with_nccl() {
    run("lost nccl", 2);
}

#[test]
#[ignore = "times, for figures"]
fn transports_are_timed() {
    run("times", 2);
}
