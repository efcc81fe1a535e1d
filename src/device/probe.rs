//! Measuring this host: the figures of a [`Device`] in a few seconds.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Instant;

use rayon::prelude::*;

use super::{Device, Kind, PerPrecision, Reach, SCHEMA};
use crate::check;
use crate::csr::Csr;
use crate::format::{Basis, Candidate, Target, candidates};
use crate::par;
use crate::scalar::Scalar;
use crate::structure::Structure;

/// Measures this host over rayon's current threads: bandwidths, gathers, a parallel region, and
/// what the product and the conversion of every host candidate cost when all data is near.
///
/// Takes a few seconds and at most 1 GiB of memory, or an eighth of the host's. Other work on the
/// host makes the figures worse: the best of several passes is taken.
pub fn probe() -> Device {
    let threads = rayon::current_num_threads();
    let memory_bytes = memory();
    let (near_bytes, cache_bytes) = caches();
    let most = (memory_bytes / 8).min(1 << 30);
    let stream_bytes = (4 * cache_bytes).clamp(64 << 20, most.max(1 << 20));
    let near_all = near_bytes * threads as u64;
    let cached_bytes = (cache_bytes / 2).min(8 * near_all).clamp(1 << 16, most.max(1 << 16));
    let stream = numbers(stream_bytes);
    let read_gbps = read_gbps(&stream);
    let cached = &stream[..(cached_bytes / 8) as usize];
    let mut device = Device {
        schema: SCHEMA,
        name: "cpu".to_string(),
        kind: Kind::Host,
        title: format!("{}, {threads} threads", processor()),
        source: format!(
            "measured on this host by `ellect devices --probe`: {threads} threads, best of several \
             passes, streams of {} MiB from memory and {} MiB from cache",
            stream_bytes >> 20,
            cached_bytes >> 20
        ),
        read_gbps,
        gather_gbps: gather_gbps(cached),
        cache_bytes,
        cache_gbps: self::read_gbps(cached).max(read_gbps),
        near_bytes,
        lookup_gps: gather_gbps(&stream[..(near_bytes / 16) as usize]) / 32.0,
        processors: threads as u32,
        threads_per_processor: 1,
        step_ns: 0.0,
        shared_bytes: 0,
        launch_s: launch_s(threads),
        link_gbps: 0.0,
        memory_bytes,
        convert_gbps: read_gbps / 2.0,
        convert_s: 0.0,
        sort_ns: sort_ns(),
        partition_ns: PARTITION_NS,
        fitted: false,
        kernels: BTreeMap::new(),
    };
    drop(stream);
    device.kernels = kernels(&device);
    device
}

/// METIS k-way partitioning of grid graphs on one core of an Intel Xeon, in nanoseconds an edge:
/// not probed, since it would take longer than all the rest.
const PARTITION_NS: f64 = 200.0;

/// The shortest of `passes` times of `f`, in seconds.
fn best_s<R>(passes: usize, mut f: impl FnMut() -> R) -> f64 {
    (0..passes).fold(f64::INFINITY, |best, _| {
        let start = Instant::now();
        black_box(f());
        best.min(start.elapsed().as_secs_f64())
    })
}

/// Passes that take about a tenth of a second where one takes `once_s`.
fn passes(once_s: f64) -> usize {
    ((0.1 / once_s.max(1e-7)) as usize).clamp(3, 2000)
}

fn numbers(bytes: u64) -> Vec<u64> {
    let mut numbers = vec![0; (bytes / 8) as usize];
    numbers.par_chunks_mut(1 << 16).enumerate().for_each(|(chunk, numbers)| {
        for (i, number) in numbers.iter_mut().enumerate() {
            *number = (chunk << 16 | i) as u64;
        }
    });
    numbers
}

fn sum(numbers: &[u64]) -> u64 {
    let share = numbers.len().div_ceil(rayon::current_num_threads()).max(1);
    let sums = numbers.par_chunks(share).map(|part| {
        let mut lanes = [0u64; 16];
        let chunks = part.chunks_exact(16);
        let rest = chunks.remainder().iter().fold(0u64, |a, &b| a.wrapping_add(b));
        for chunk in chunks {
            for (lane, &number) in lanes.iter_mut().zip(chunk) {
                *lane = lane.wrapping_add(number);
            }
        }
        lanes.into_iter().fold(rest, u64::wrapping_add)
    });
    sums.reduce(|| 0, u64::wrapping_add)
}

fn read_gbps(numbers: &[u64]) -> f64 {
    let once_s = best_s(2, || sum(numbers));
    size_of_val(numbers) as f64 / best_s(passes(once_s), || sum(numbers)) / 1e9
}

/// Random reads by all threads, each counted as a 32-byte sector.
fn gather_gbps(numbers: &[u64]) -> f64 {
    const READS: usize = 1 << 18;
    let threads = rayon::current_num_threads();
    let len = numbers.len() as u64;
    let indices: Vec<u32> = (0..READS as u64).map(|i| (check::mix(i) % len) as u32).collect();
    let gather = || {
        (0..threads)
            .into_par_iter()
            .map(|thread| {
                // Each thread starts elsewhere, so that threads do not follow one another.
                let start = thread * READS / threads;
                let reads = indices[start..].iter().chain(&indices[..start]);
                reads.fold(0u64, |sum, &i| sum.wrapping_add(numbers[i as usize]))
            })
            .reduce(|| 0, u64::wrapping_add)
    };
    let once_s = best_s(2, gather);
    (READS * threads * 32) as f64 / best_s(passes(once_s), gather) / 1e9
}

/// A parallel region with as many parts as products are split into.
fn launch_s(threads: usize) -> f64 {
    let parts = 4 * threads;
    let bounds: Vec<usize> = (0..=parts).collect();
    let mut y = vec![0u64; parts];
    best_s(500, || par::over_parts(&bounds, &mut y, &|_, y| y[0] += 1))
}

fn sort_ns() -> f64 {
    const KEYS: usize = 1 << 18;
    let keys: Vec<u32> = (0..KEYS as u64).map(|i| (check::mix(i) % 1000) as u32).collect();
    let mut order: Vec<u32> = Vec::new();
    let best_s = best_s(3, || {
        order = (0..KEYS as u32).collect();
        order.sort_by_key(|&i| keys[i as usize]);
    });
    best_s * 1e9 / KEYS as f64
}

/// Rows of 24 entries in dense blocks of 12 rows: what most formats take.
fn long_rows() -> Csr<f64> {
    matrix(8192, |row| row / 12 * 12..row / 12 * 12 + 24)
}

/// Rows of 3 entries: what the cost of a row shows in.
fn short_rows() -> Csr<f64> {
    matrix(32_768, |row| row..row + 3)
}

/// Rows of 1 to 5 entries in no order: what the cost of a row's end shows in.
fn uneven_rows() -> Csr<f64> {
    matrix(32_768, |row| row..row + 1 + (check::mix(row as u64) % 5) as usize)
}

fn matrix(n: usize, columns: impl Fn(usize) -> std::ops::Range<usize>) -> Csr<f64> {
    let entries = (0..n).flat_map(|row| {
        columns(row).filter(|&column| column < n).map(move |column| (row, column, 1.0))
    });
    Csr::from_triplets(n, n, entries).expect("indices are in range")
}

fn kernels(device: &Device) -> BTreeMap<String, Reach> {
    let in_f64 = [long_rows(), short_rows(), uneven_rows()];
    let in_f32 = in_f64.each_ref().map(Csr::cast::<f32>);
    let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().ok();
    candidates(Kind::Host)
        .into_iter()
        .filter_map(|candidate| {
            let f64 = figures(&candidate, device, &in_f64, one.as_ref())?;
            let f32 = figures(&candidate, device, &in_f32, one.as_ref())?;
            let pair = |i: usize| PerPrecision { f32: f32[i], f64: f64[i] };
            let reach = Reach {
                entry_ns: pair(0),
                row_ns: pair(1),
                change_ns: pair(2),
                convert_ns: pair(3),
                update_ns: pair(4),
                ..Reach::default()
            };
            Some((candidate.to_string(), reach))
        })
        .collect()
}

/// Nanoseconds of an entry, of a row and of a row of another length on one thread, and of
/// converting and of updating an entry on all.
fn figures<T: Scalar>(
    candidate: &Candidate,
    device: &Device,
    [long, short, uneven]: &[Csr<T>; 3],
    one: Option<&rayon::ThreadPool>,
) -> Option<[f64; 5]> {
    let long_rows = product(candidate, device, long, one)?;
    let (entry_ns, row_ns) = match product(candidate, device, short, one) {
        Some(short_rows) => solve(&long_rows, &short_rows),
        None => (long_rows.product_ns / long_rows.entries, 0.0),
    };
    let change_ns = product(candidate, device, uneven, one).map_or(0.0, |uneven_rows| {
        let Product { entries, rows, product_ns, .. } = uneven_rows;
        // Four of five rows differ in length from the row before.
        ((product_ns - entries * entry_ns - rows * row_ns) / (0.8 * rows)).max(0.0)
    });
    let Product { entries, convert_ns, update_ns, .. } = long_rows;
    Some([entry_ns, row_ns, change_ns, convert_ns / entries, update_ns / entries].map(rounded))
}

/// A profile is read by people: three digits are all that a measurement is worth.
fn rounded(ns: f64) -> f64 {
    (ns * 1000.0).round() / 1000.0
}

struct Product {
    entries: f64,
    rows: f64,
    product_ns: f64,
    convert_ns: f64,
    update_ns: f64,
}

/// Solves `entries * entry_ns + rows * row_ns = product_ns` for both, with neither below 0.
fn solve(long: &Product, short: &Product) -> (f64, f64) {
    let determinant = long.entries * short.rows - short.entries * long.rows;
    let entry_ns = (long.product_ns * short.rows - short.product_ns * long.rows) / determinant;
    let row_ns = (short.product_ns - short.entries * entry_ns) / short.rows;
    if entry_ns.is_finite() && entry_ns >= 0.0 && row_ns >= 0.0 {
        (entry_ns, row_ns)
    } else if row_ns.is_finite() && row_ns < 0.0 {
        (long.product_ns / long.entries, 0.0)
    } else {
        (0.0, short.product_ns / short.rows)
    }
}

fn product<T: Scalar>(
    candidate: &Candidate,
    device: &Device,
    csr: &Csr<T>,
    one: Option<&rayon::ThreadPool>,
) -> Option<Product> {
    let target = Target {
        device,
        precision: T::PRECISION,
        basis: Basis::Original,
        memory_limit: device.memory_bytes,
    };
    let structure = Structure::new(csr.pattern());
    let work = candidate.work(&structure, &target).ok()?;
    let convert_s = best_s(2, || {
        let structure = Structure::new(csr.pattern());
        T::convert(candidate, csr, &structure, &target).is_ok()
    });
    let mut layout = T::convert(candidate, csr, &structure, &target).ok()?;
    let update_s = best_s(3, || layout.set_values(csr.values()));
    let time = || {
        let layout = T::convert(candidate, csr, &structure, &target).ok()?;
        let x: Vec<T> = check::vector(csr.ncols(), 1);
        let mut y = vec![T::ZERO; csr.nrows()];
        let mut once = || layout.apply(T::ONE, &x, T::ZERO, &mut y);
        let once_s = best_s(1, &mut once);
        Some(best_s(passes(once_s).min(20), once))
    };
    let product_s = match one {
        Some(pool) => pool.install(time)?,
        None => time()?,
    };
    Some(Product {
        entries: work.entries as f64,
        rows: csr.nrows() as f64,
        product_ns: product_s * 1e9,
        convert_ns: convert_s * 1e9,
        update_ns: update_s * 1e9,
    })
}

/// Bytes of the private cache of a core, and of the last-level cache; guesses where the system
/// does not say.
fn caches() -> (u64, u64) {
    let folder = std::path::Path::new("/sys/devices/system/cpu/cpu0/cache");
    let read = |index: usize, file: &str| {
        std::fs::read_to_string(folder.join(format!("index{index}")).join(file)).ok()
    };
    let mut data: Vec<(u32, u64)> = (0..8)
        .filter(|&index| {
            read(index, "type").is_some_and(|kind| matches!(kind.trim(), "Data" | "Unified"))
        })
        .filter_map(|index| {
            let level = read(index, "level")?.trim().parse().ok()?;
            Some((level, kibibytes(&read(index, "size")?)?))
        })
        .collect();
    data.sort_unstable();
    let last = data.last().map_or(8 << 20, |&(_, bytes)| bytes);
    let near = data.iter().rev().find(|&&(level, _)| level <= 2);
    (near.map_or(256 << 10, |&(_, bytes)| bytes), last)
}

/// `"2048K"` or `"4M"` as bytes.
fn kibibytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let (digits, unit) = match text.strip_suffix('M') {
        Some(digits) => (digits, 1 << 20),
        None => (text.strip_suffix('K')?, 1 << 10),
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// Bytes of memory: the system's figure, or the control group's where that is less.
fn memory() -> u64 {
    let total = field("/proc/meminfo", "MemTotal")
        .and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok())
        .map_or(4 << 30, |kib| kib << 10);
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    group.and_then(|text| text.trim().parse().ok()).map_or(total, |limit: u64| limit.min(total))
}

fn processor() -> String {
    field("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.to_string())
}

/// The text after `name:` in a file of the system.
fn field(file: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_string())
}
