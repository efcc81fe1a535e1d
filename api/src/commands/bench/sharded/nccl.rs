//! Products of ranks that are threads, one for each GPU, whose halos NCCL moves.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, anyhow};
use ellect::sharded::{Mode, Rank, Split, Threads, Transport};
use ellect::{Csr, Scalar, Tuner, check};

use super::{Product, SAMPLE_S, SAMPLES, Times, median, overlapped, workload};

/// The part of one rank: its product, the numbers of its rows, and their elements of y.
struct OnRank<T> {
    product: Product,
    entries: [usize; 2],
    rows: Vec<usize>,
    y: Vec<T>,
}

/// Checks and times the product of a matrix that is divided among ranks.
///
/// # Errors
/// Errors of preparation, for instance where NCCL is missing, and of the check.
pub fn timed<T: Scalar>(
    csr: &Csr<T>,
    tuners: &[Arc<Tuner>],
    (mode, split): (Mode, Split<'_>),
    name: &str,
) -> Result<Product> {
    let size = tuners.len();
    let exchanges = Threads::all(size).into_iter().zip(tuners).enumerate();
    let ranks: Vec<Result<OnRank<T>>> = std::thread::scope(|scope| {
        let threads = exchanges.map(|(rank, (exchange, tuner))| {
            scope.spawn(move || {
                let rank = Rank::of(rank, size, exchange)?.with_mode(mode);
                on_rank(csr, &rank, tuner, split)
            })
        });
        let threads: Vec<_> = threads.collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<OnRank<T>>>| {
            thread.join().unwrap_or_else(|_| Err(anyhow!("the thread of a rank failed")))
        };
        threads.into_iter().map(join).collect()
    });
    let ranks = ranks.into_iter().collect::<Result<Vec<_>>>()?;
    let mut got = vec![T::ZERO; csr.nrows()];
    for of_rank in &ranks {
        of_rank.rows.iter().zip(&of_rank.y).for_each(|(&row, &element)| got[row] = element);
    }
    let x = check::vector::<T>(csr.ncols(), 3);
    let exact = check::reference(csr, T::ONE, &x, T::ZERO, &vec![T::ZERO; csr.nrows()]);
    check::compare(&format!("the product of {name} by ranks"), &exact, &got)?;
    let sum = |which: usize| ranks.iter().map(|of_rank| of_rank.entries[which]).sum::<usize>();
    let (inner, nnz) = (sum(0), sum(1));
    let first = &ranks[0].product;
    Ok(Product {
        candidates: ranks.iter().flat_map(|of_rank| of_rank.product.candidates.clone()).collect(),
        halo: ranks.iter().map(|of_rank| of_rank.product.halo).max().unwrap_or(0),
        overlapped: inner as f64 / nnz.max(1) as f64,
        ..*first
    })
}

fn on_rank<T: Scalar>(
    csr: &Csr<T>,
    rank: &Rank,
    tuner: &Tuner,
    split: Split<'_>,
) -> Result<OnRank<T>> {
    let start = Instant::now();
    let a = rank.prepare_whole(tuner, csr, &workload(), split)?;
    let on_gpu = a.on_gpu(Transport::Nccl)?;
    let prepare_s = start.elapsed().as_secs_f64();
    let mut before = vec![0.0; rank.size()];
    before[rank.rank()] = a.own_columns() as f64;
    rank.sum(&mut before)?;
    let first = before[..rank.rank()].iter().sum::<f64>() as usize;
    let rows: Vec<usize> = a.rows().collect();
    let x = check::vector::<T>(csr.ncols(), 3);
    // Columns of a square matrix are divided like its rows, those of another one into ranges.
    let own: Vec<T> = match a.nrows() == a.ncols() {
        true => rows.iter().map(|&row| x[row]).collect(),
        false => x[first..first + a.own_columns()].to_vec(),
    };
    let product = on_gpu.capture(T::ONE, on_gpu.scatter_x(&own)?, T::ZERO, on_gpu.zeros_y()?)?;
    let sample = |products: u32| -> Result<f64> {
        // The ranks begin together.
        rank.sum(&mut [0.0])?;
        let start = Instant::now();
        (0..products).try_for_each(|_| product.launch())?;
        on_gpu.synchronize()?;
        Ok(start.elapsed().as_secs_f64() / f64::from(products))
    };
    sample(20)?;
    let mut one_s = [if rank.rank() == 0 { sample(20)? } else { 0.0 * sample(20)? }];
    rank.sum(&mut one_s)?;
    let products = (SAMPLE_S / one_s[0]).clamp(20.0, 20_000.0) as u32;
    let samples = (0..SAMPLES).map(|_| sample(products)).collect::<Result<Vec<f64>>>()?;
    let (product_us, spread) = median(samples);
    let mut y = vec![T::ZERO; rows.len()];
    on_gpu.gather(&product.into_y()?, &mut y)?;
    let part = std::slice::from_ref(a.part());
    let nnz = a.part().nnz();
    let product = Product {
        times: Times { product_us, spread, filled_us: None },
        prepare_s,
        overlapped: 0.0,
        halo: a.part().halo(),
        candidates: vec![a.part().candidate().to_string()],
    };
    let entries = [(overlapped(part) * nnz as f64).round() as usize, nnz];
    Ok(OnRank { product, entries, rows, y })
}
