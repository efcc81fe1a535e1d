//! Reading a generated Matrix Market file of about 100 MB: this crate, `sprs` and SciPy in one run.
//!
//! Run `cargo bench -p ellect-benches --bench read`; SciPy takes part if `python3`, or the
//! interpreter that the variable `PYTHON` names, can import it. `ELLECT_READ=a.npz:a.mtx.gz` times
//! reading these files instead, of any form.
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use ellect::read::{self, Limits};
use ellect::{Csr, Scalar};
use rayon::ThreadPoolBuilder;

/// Number of columns; each lists 8 entries, column by column as in most published files.
const N: usize = 375_000;

fn path() -> PathBuf {
    std::env::temp_dir().join(format!("ellect-bench-read-{}.mtx", std::process::id()))
}

fn main() {
    if let Some(files) = std::env::var_os("ELLECT_READ") {
        return std::env::split_paths(&files).for_each(|file| time(&file));
    }
    let path = path();
    make(&path).expect("the temporary folder takes 100 MB");
    let megabytes = path.metadata().expect("just written").len() as f64 / 1e6;
    println!("{megabytes:.1} MB of text, {} entries; cached by the system", 8 * N);
    divan::main();
    scipy(&path, megabytes);
    std::fs::remove_file(&path).expect("just read");
}

/// Prints the median time of reading a file, for each number of threads.
fn time(file: &Path) {
    for threads in threads() {
        let pool = ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
        let read = || read::file::<f64>(file, &Limits::default()).expect("a valid file");
        let mut times = [0; 5].map(|_| {
            let start = Instant::now();
            black_box(pool.install(read));
            start.elapsed().as_secs_f64()
        });
        times.sort_by(f64::total_cmp);
        println!("{} with {threads} threads: {:.1} ms", file.display(), times[2] * 1e3);
    }
}

fn make(path: &PathBuf) -> std::io::Result<()> {
    let mut sink = BufWriter::new(File::create(path)?);
    writeln!(sink, "%%MatrixMarket matrix coordinate real general\n{N} {N} {}", 8 * N)?;
    let mut state = 1_u64;
    for col in 0..N {
        let mut rows = [0, 1, 2, 700, 701, 90_000, 200_000, 200_001].map(|step| (col + step) % N);
        rows.sort_unstable();
        for row in rows {
            // Knuth's constants; the upper bits are random enough for digits.
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let value = (state >> 11) as f64 / (1_u64 << 53) as f64 - 0.5;
            writeln!(sink, "{} {} {value:?}", row + 1, col + 1)?;
        }
    }
    sink.flush()
}

fn bytes() -> BytesCount {
    BytesCount::new(path().metadata().expect("made by main").len())
}

/// Thread counts: one, and all cores.
fn threads() -> impl Iterator<Item = usize> {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    [1, all].into_iter().take(if all > 1 { 2 } else { 1 })
}

fn ours<T: Scalar>(bencher: Bencher, threads: usize) {
    let pool = ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
    bencher.counter(bytes()).bench_local(|| -> Csr<T> {
        pool.install(|| read::file(path(), &Limits::default()).expect("a valid file"))
    });
}

#[divan::bench(args = threads(), sample_count = 5, sample_size = 1)]
fn ellect_f64(bencher: Bencher, threads: usize) {
    ours::<f64>(bencher, threads);
}

#[divan::bench(args = threads(), sample_count = 5, sample_size = 1)]
fn ellect_f32(bencher: Bencher, threads: usize) {
    ours::<f32>(bencher, threads);
}

/// Reads to CSR, as the others do: `sprs` reads triplets and converts them.
#[divan::bench(sample_count = 3, sample_size = 1)]
fn sprs_f64(bencher: Bencher) {
    bencher.counter(bytes()).bench_local(|| -> sprs::CsMat<f64> {
        let triplets: sprs::TriMat<f64> =
            sprs::io::read_matrix_market(path()).expect("a valid file");
        triplets.to_csr()
    });
}

/// Measures only reading the bytes.
#[divan::bench(sample_count = 5, sample_size = 1)]
fn bytes_alone(bencher: Bencher) {
    bencher.counter(bytes()).bench_local(|| {
        let mut source =
            BufReader::with_capacity(1 << 19, File::open(path()).expect("made by main"));
        let mut buffer = vec![0; 1 << 19];
        while source.read(&mut buffer).expect("a file") > 0 {
            black_box(&buffer);
        }
    });
}

fn scipy(path: &PathBuf, megabytes: f64) {
    const SCRIPT: &str = "
import sys, time, scipy, scipy.io
for kind, options in [('default threads', {}), ('1 thread', None)]:
    if options is None:
        try:
            from scipy.io import _fast_matrix_market
            _fast_matrix_market.PARALLELISM = 1
        except ImportError:
            continue
    best = 1e9
    for _ in range(3):
        start = time.perf_counter()
        scipy.io.mmread(sys.argv[1]).tocsr()
        best = min(best, time.perf_counter() - start)
    print(f'scipy {scipy.__version__} mmread and tocsr, {kind}: {best:.3f} s, {float(sys.argv[2]) / best:.0f} MB/s')
";
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".into());
    let start = Instant::now();
    let run =
        Command::new(&python).args(["-c", SCRIPT]).arg(path).arg(megabytes.to_string()).output();
    match run {
        Ok(output) if output.status.success() => {
            print!("{}", String::from_utf8_lossy(&output.stdout));
        }
        _ => println!(
            "{python} cannot import scipy (asked for {:.1} s): not compared with it",
            start.elapsed().as_secs_f64()
        ),
    }
}
