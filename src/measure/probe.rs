//! Probes this host: measures the figures of its [`Device`] profile in a few seconds.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rayon::prelude::*;

use crate::analysis::Analysis;
use crate::check;
use crate::cost::{self, Estimator};
use crate::csr::{Csr, CsrRef};
use crate::device::{Device, KernelFigures, Kind, PerPrecision, SCHEMA};
use crate::format::{Basis, CSR, Candidate, Target, candidates};
use crate::generate;
use crate::operator::PreparedOperator;
use crate::par;
use crate::scalar::{Precision, Scalar};

/// Measures this host over rayon's current threads and returns its profile.
///
/// Measured are bandwidths, gathers, the time of a parallel region, and the cost of converting to
/// every host format when all data is in cache. The cost of products comes from the shipped
/// profile, which was fitted to real matrices.
///
/// Takes a few seconds and at most 1 GiB of memory, or an eighth of the host's. Each figure is the
/// best of several passes, but other work on the host still makes it worse.
pub fn probe() -> Device {
    let threads = rayon::current_num_threads();
    let memory_bytes = memory_bytes();
    let (near_bytes, cache_bytes) = caches();
    let most = (memory_bytes / 8).min(1 << 30);
    let stream_bytes = (4 * cache_bytes).clamp(64 << 20, most.max(1 << 20));
    let near_all = near_bytes * threads as u64;
    let cached_bytes = (cache_bytes / 2).min(8 * near_all).clamp(1 << 16, most.max(1 << 16));
    let stream = numbers(stream_bytes);
    let read_gbps = read_gbps(&stream);
    let cache_bytes = reached_cache(&stream, near_all, cache_bytes, read_gbps);
    let cached_bytes = cached_bytes.min((cache_bytes / 2).max(1 << 16));
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
        far_gbps: gather_gbps(&stream),
        cache_bytes,
        cache_gbps: self::read_gbps(cached).max(read_gbps),
        near_bytes,
        lookup_gps: gather_gbps(&stream[..(near_bytes / 16) as usize]) / 32.0,
        capability: None,
        clock_ghz: 0.0,
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
        margin: MARGIN,
        kernels: BTreeMap::new(),
    };
    drop(stream);
    device.kernels = kernels(&device);
    device
}

/// Margin of the shipped profile: what its estimates need on a host other than the one they were
/// fitted on (tests/results/hosts.md).
const MARGIN: f64 = 0.3;

/// Time of METIS k-way partitioning on grid graphs, one core of an Intel Xeon, in ns/edge; not
/// probed because that would take longer than everything else together.
const PARTITION_NS: f64 = 200.0;

/// Returns the shortest of `passes` times of `f`, in seconds.
fn best_s<R>(passes: usize, mut f: impl FnMut() -> R) -> f64 {
    (0..passes).fold(f64::INFINITY, |best, _| {
        let start = Instant::now();
        black_box(f());
        best.min(start.elapsed().as_secs_f64())
    })
}

/// Returns the number of passes that take about 0.1 s if one takes `once_s`.
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

/// Returns how much of the last-level cache this host reaches, up to the size that the system states:
/// the largest working set that is read clearly faster than memory. A virtual machine shares a
/// cache, of which it may reach a tenth.
fn reached_cache(stream: &[u64], near_all: u64, stated: u64, memory_gbps: f64) -> u64 {
    /// Ratio to the bandwidth of memory from which on reads are from the cache.
    const CLEARLY: f64 = 1.3;
    let sizes = std::iter::successors(Some(stated), |bytes| Some(bytes / 2));
    let mut sizes = sizes.take_while(|&bytes| bytes > near_all.max(1 << 16));
    let is_cached = |&bytes: &u64| {
        let set = stream.get(..(bytes / 8) as usize);
        set.is_some_and(|set| read_gbps(set) > CLEARLY * memory_gbps)
    };
    sizes.find(is_cached).unwrap_or(near_all.min(stated))
}

/// Measures random reads by all threads; each read counts as a 32-byte sector.
fn gather_gbps(numbers: &[u64]) -> f64 {
    const READS: usize = 1 << 18;
    let threads = rayon::current_num_threads();
    let len = numbers.len() as u64;
    let indices: Vec<u32> = (0..READS as u64).map(|i| (check::mix(i) % len) as u32).collect();
    let gather = || {
        (0..threads)
            .into_par_iter()
            .map(|thread| {
                // Each thread starts at another index, so that threads do not follow one another.
                let start = thread * READS / threads;
                let reads = indices[start..].iter().chain(&indices[..start]);
                reads.fold(0u64, |sum, &i| sum.wrapping_add(numbers[i as usize]))
            })
            .reduce(|| 0, u64::wrapping_add)
    };
    let once_s = best_s(2, gather);
    (READS * threads * 32) as f64 / best_s(passes(once_s), gather) / 1e9
}

/// Measures a parallel region split into the same number of parts as products are.
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

/// Builds the matrix for conversions: rows of 24 entries in dense blocks of 12 rows, to which most
/// formats apply.
fn blocks() -> Csr<f64> {
    const ROWS: usize = 8192;
    let entries = (0..ROWS).flat_map(|row| {
        let columns = row / 12 * 12..(row / 12 * 12 + 24).min(ROWS);
        columns.map(move |column| (row, column, 1.0))
    });
    Csr::from_triplets(ROWS, ROWS, entries).expect("indices are in range")
}

/// Returns the kernel figures: products from the shipped profile at the pace of this host,
/// conversions as measured here.
///
/// Products are not fitted here: the small matrices that fit in the probe's time predict real
/// products worse than another host's figures on real matrices (tests/results/hosts.md). The pace
/// keeps these figures in proportion to the bandwidths: a host that is half as fast in both has the
/// same fastest formats.
fn kernels(device: &Device) -> BTreeMap<String, KernelFigures> {
    let in_f64 = blocks();
    let in_f32 = in_f64.cast::<f32>();
    let shipped = Device::shipped().into_iter().find(|shipped| shipped.name == device.name);
    let pace = shipped.as_ref().map_or(1.0, |shipped| pace(shipped, device.processors, &in_f64));
    let kernel = |candidate: Candidate| {
        let product = shipped
            .as_ref()
            .map(|shipped| cost::kernel_figures(shipped, &candidate))
            .map(|figures| at_pace(figures, pace))
            .unwrap_or_default();
        let conversion = || {
            let f64 = conversion(&candidate, device, in_f64.as_ref())?;
            let f32 = conversion(&candidate, device, in_f32.as_ref())?;
            Some([0, 1].map(|i| PerPrecision { f32: f32[i], f64: f64[i] }))
        };
        let [convert_ns, update_ns] =
            conversion().unwrap_or([product.convert_ns, product.update_ns]);
        (candidate.to_string(), KernelFigures { convert_ns, update_ns, ..product })
    };
    candidates(Kind::Host).into_iter().map(kernel).collect()
}

/// Returns the time of products with CSR on `processors` threads of this host over their time by the
/// shipped profile: the geometric mean of a matrix with long rows, `long`, and one with short rows,
/// both in the caches.
fn pace(shipped: &Device, processors: u32, long: &Csr<f64>) -> f64 {
    let device = Device { processors, ..shipped.clone() };
    let short = generate::by_name("stencil5", 20_000, 1);
    let ratios = [Some(long), short.as_ref().ok()].map(|csr| over_estimate(csr?, &device));
    let known: Vec<f64> = ratios.into_iter().flatten().collect();
    let logarithms = known.iter().map(|ratio| ratio.ln()).sum::<f64>();
    (logarithms / known.len().max(1) as f64).exp().clamp(0.05, 20.0)
}

/// Measures a product with CSR over its estimate.
fn over_estimate(csr: &Csr<f64>, device: &Device) -> Option<f64> {
    let target = target(device, Precision::F64);
    let candidate: Candidate = CSR.parse().ok()?;
    let analysis = Analysis::new(csr.pattern());
    let work = candidate.work(&analysis, &target).ok()?;
    let estimated_s = Estimator::new(&analysis, &target).cost(&candidate, &work).spmv_s;
    let operator = PreparedOperator::new(csr, &candidate, &target).ok()?;
    let (x, mut y) = (vec![1.0; csr.ncols()], vec![0.0; csr.nrows()]);
    let mut product = || operator.apply(1.0, &x, 0.0, &mut y).is_ok();
    let once_s = best_s(3, &mut product);
    Some(best_s(passes(once_s), product) / estimated_s)
}

/// Scales the times of computing.
fn at_pace(figures: KernelFigures, pace: f64) -> KernelFigures {
    let scaled = |times: PerPrecision| PerPrecision {
        f32: rounded(pace * times.f32),
        f64: rounded(pace * times.f64),
    };
    KernelFigures {
        entry_ns: scaled(figures.entry_ns),
        row_ns: scaled(figures.row_ns),
        change_ns: scaled(figures.change_ns),
        step_ns: scaled(figures.step_ns),
        fixed_us: scaled(figures.fixed_us),
        ..figures
    }
}

/// Measures the time of converting and of updating one entry, in nanoseconds; `None` if the
/// candidate does not apply.
fn conversion<T: Scalar>(
    candidate: &Candidate,
    device: &Device,
    csr: CsrRef<'_, T>,
) -> Option<[f64; 2]> {
    let target = target(device, T::PRECISION);
    let analysis = Analysis::new(csr.pattern());
    let work = candidate.work(&analysis, &target).ok()?;
    let convert_s = best_s(2, || {
        let analysis = Analysis::new(csr.pattern());
        candidate.format.convert(csr, &analysis, &candidate.params, &target).is_ok()
    });
    let mut layout = candidate.format.convert(csr, &analysis, &candidate.params, &target).ok()?;
    let update_s = best_s(3, || layout.set_values(csr.values()));
    Some([convert_s, update_s].map(|s| rounded(s * 1e9 / work.entries as f64)))
}

/// Returns the target of products with one vector in the original basis.
fn target(device: &Device, precision: Precision) -> Target<'_> {
    let (basis, memory_limit) = (Basis::Original, device.memory_bytes);
    Target { device, precision, basis, memory_limit, stored: Default::default() }
}

/// Rounds to 1e-3 ns: profiles are read by people, and the measurement is no more precise.
fn rounded(ns: f64) -> f64 {
    (ns * 1000.0).round() / 1000.0
}

/// Returns the sizes in bytes of a core's private cache and of the last-level cache; guesses them
/// if the system does not say.
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

/// Parses a size such as `"2048K"` or `"4M"` as bytes.
fn kibibytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let (digits, unit) = match text.strip_suffix('M') {
        Some(digits) => (digits, 1 << 20),
        None => (text.strip_suffix('K')?, 1 << 10),
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// Returns the bytes of memory of this machine: the smaller of the system's figure and the control
/// group's limit.
///
/// ```
/// assert!(ellect::measure::memory_bytes() > 1 << 20);
/// ```
pub fn memory_bytes() -> u64 {
    let total = field("/proc/meminfo", "MemTotal")
        .and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok())
        .map_or(4 << 30, |kib| kib << 10);
    let limits = memory_limit_files()
        .into_iter()
        .filter_map(|file| std::fs::read_to_string(file).ok()?.trim().parse::<u64>().ok());
    limits.fold(total, u64::min)
}

/// Returns the files that may hold the limit of this process's control group, or of a group around
/// it: of version 2, then of version 1.
fn memory_limit_files() -> Vec<PathBuf> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let own = Path::new("/sys/fs/cgroup").join(own);
    let within = own.ancestors().take_while(|folder| folder.starts_with("/sys/fs/cgroup"));
    let mut files: Vec<_> = within.map(|folder| folder.join("memory.max")).collect();
    files.push("/sys/fs/cgroup/memory/memory.limit_in_bytes".into());
    files
}

fn processor() -> String {
    field("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.to_string())
}

/// Returns the text after `name:` in a system file.
fn field(file: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_string())
}
