//! The toy format's kernels: nvcc compiles them as it compiles those that ship, their signatures are
//! compared with the launches, and a GPU runs the checks of every format on them.

#[path = "../../kernels/build/nvcc.rs"]
#[allow(dead_code, reason = "the build script uses the rest")]
mod nvcc;
#[path = "../../kernels/build/ptx.rs"]
mod ptx;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use ellect::analysis::Analysis;
use ellect::cuda::check_launch;
use ellect::device::Kind;
use ellect::format::{Basis, Candidate, Matrix, Target, candidates_of};
use ellect::unstable::format::{Arg, GpuConverter, Launch, SliceOffsets, TOLD};
use ellect::{Precision, Result, Scalar};
use ellect_kernels::{Image, Kernel, Param};

use super::refusals::check_refusals;
use super::{check_matrix, check_wide, corpus, gpu, toy};

/// The folder of the toy format; cargo runs tests in the package's folder.
const FOLDER: &str = "tests/toy";

/// Returns the images of the toy format's folder; `None` without nvcc.
fn images() -> Option<&'static [Image]> {
    static IMAGES: OnceLock<Option<Vec<Image>>> = OnceLock::new();
    let images = IMAGES.get_or_init(|| {
        let found = nvcc::Nvcc::new(Path::new("kernels"));
        let nvcc =
            found.inspect_err(|why| println!("the toy format's kernels are not compiled: {why}"));
        let nvcc = nvcc.ok()?;
        let files = fs::read_dir(FOLDER).expect("a folder of the repository");
        let paths = files.map(|file| file.expect("the folder is readable").path());
        let sources = paths.filter(|path| path.extension().is_some_and(|ending| ending == "cu"));
        Some(sources.map(|source| image(&nvcc, &source)).collect())
    });
    images.as_deref()
}

/// Compiles a `.cu` file; the image lives until the process ends.
fn image(nvcc: &nvcc::Nvcc, source: &Path) -> Image {
    let out = tempfile::tempdir().expect("a folder");
    let compiled = nvcc::compile(nvcc, source, Path::new("kernels/common"), out.path(), out.path());
    let name = source.file_stem().expect("a name").to_string_lossy().into_owned();
    let fatbin = fs::read(out.path().join(format!("{name}.fatbin"))).expect("nvcc wrote it");
    let kernels = ptx::kernels(&compiled.ptx).expect("nvcc writes PTX");
    let kernel = |kernel: ptx::PtxKernel| Kernel {
        name: kernel.name.leak(),
        params: kernel.params.iter().map(|name| param(name)).collect::<Vec<_>>().leak(),
    };
    Image {
        name: name.leak(),
        folder: FOLDER,
        fatbin: fatbin.leak(),
        resources: compiled.log.leak(),
        hash: "",
        kernels: kernels.into_iter().map(kernel).collect::<Vec<_>>().leak(),
        resident: &[],
    }
}

/// Returns the type that the build script calls by this name.
fn param(name: &str) -> Param {
    let of_name = [Param::U32, Param::U64, Param::F32, Param::F64];
    let found = of_name.into_iter().find(|param| format!("{param:?}") == name);
    found.unwrap_or_else(|| panic!("the toy format takes no {name}"))
}

/// A conversion that launches nothing, and in which every number is 0.
struct Recorder {
    matrix: Matrix,
    arrays: usize,
    launches: Vec<Launch>,
}

impl Recorder {
    fn next(&mut self) -> Result<Arg> {
        self.arrays += 1;
        Ok(Arg::Array(self.arrays - 1))
    }
}

impl GpuConverter for Recorder {
    fn matrix(&self) -> Matrix {
        self.matrix
    }

    fn array(&mut self, _bytes: u64) -> Result<Arg> {
        self.next()
    }

    fn trim(&mut self, _array: Arg, _bytes: u64) {}

    fn zeros(&mut self, _bytes: u64) -> Result<Arg> {
        self.next()
    }

    fn temporary(&mut self, _bytes: u64) -> Result<Arg> {
        self.next()
    }

    fn temporary_zeros(&mut self, _bytes: u64) -> Result<Arg> {
        self.next()
    }

    fn number(&mut self) -> Result<Arg> {
        self.next()
    }

    fn launch(&mut self, launch: &Launch) -> Result<()> {
        self.launches.push(launch.clone());
        Ok(())
    }

    fn starts(&mut self, _counts: Arg, _each: usize, _n: usize) -> Result<SliceOffsets> {
        Ok(SliceOffsets { args: [self.next()?, Arg::U64(0)], total: 0 })
    }

    fn temporary_starts(&mut self, counts: Arg, each: usize, n: usize) -> Result<SliceOffsets> {
        self.starts(counts, each, n)
    }

    fn sort_down(&mut self, _: Arg, _: Arg, _: Arg, _n: usize, _bits: u32) -> Result<()> {
        Ok(())
    }

    fn read(&mut self, _number: Arg) -> Result<u32> {
        Ok(0)
    }

    fn host(&mut self) -> Result<[Arg; 2]> {
        Ok([self.next()?, Arg::U32(1)])
    }

    fn told(&mut self) -> Result<[u32; TOLD]> {
        Ok([0; TOLD])
    }

    fn note_written(&mut self) {}
}

/// Returns the launches of the products of host layouts, and of conversions on a GPU and their
/// products.
fn launches<T: Scalar>(candidate: &Candidate) -> Vec<Launch> {
    let device = ellect::device::find("h200").expect("shipped");
    let (basis, memory_limit) = (Basis::Original, u64::MAX);
    let target = Target {
        device: &device,
        precision: T::PRECISION,
        basis,
        memory_limit,
        stored: Default::default(),
    };
    let mut all = Vec::new();
    for (_, csr) in corpus::small() {
        let csr = csr.cast::<T>();
        let analysis = Analysis::of(&csr);
        if candidate.work(&analysis, &target).is_err() {
            continue;
        }
        let layout = candidate.convert(&csr, &analysis, &target).expect("work agreed");
        all.extend(layout.on_device().expect("there are kernels").launches);
        for wide in [false, true] {
            let matrix = Matrix { nrows: csr.nrows(), ncols: csr.ncols(), nnz: csr.nnz(), wide };
            let mut recorder = Recorder { matrix, arrays: 0, launches: Vec::new() };
            let built = candidate.format.build(&mut recorder, &candidate.params, &target);
            all.extend(recorder.launches);
            all.extend(built.expect("work agreed").launches);
        }
    }
    all
}

#[test]
fn launches_of_a_toy_format_pass_what_its_kernels_take() {
    let Some(images) = images() else { return };
    let mut named = BTreeSet::new();
    for candidate in candidates_of(toy::FORMATS, Kind::Gpu) {
        for precision in Precision::ALL {
            let launches = match precision {
                Precision::F32 => launches::<f32>(&candidate),
                Precision::F64 => launches::<f64>(&candidate),
            };
            for launch in launches {
                let image = images.iter().find(|image| image.name == launch.image);
                let image = image.unwrap_or_else(|| panic!("no image {}", launch.image));
                assert_eq!(check_launch(image, &launch, Some(precision)), Ok(()), "{candidate}");
                named.insert(launch.kernel);
            }
        }
    }
    let kernels = images.iter().flat_map(|image| image.kernels.iter().map(|kernel| kernel.name));
    let named = Vec::from_iter(named.iter().map(String::as_str));
    assert_eq!(named, Vec::from_iter(kernels), "each kernel has a launch");
}

#[test]
fn a_toy_format_passes_every_check_on_the_gpu() {
    let Some(gpu) = gpu() else { return };
    let Some(images) = images() else { return };
    images.iter().for_each(|image| gpu.add_image(image));
    let all = candidates_of(toy::FORMATS, Kind::Gpu);
    let (mut run, mut refused) = (BTreeMap::new(), 0);
    for (name, csr) in corpus::small().into_iter().chain(corpus::generated()) {
        check_matrix(&gpu, &name, &csr, &all, &mut run);
        check_matrix(&gpu, &name, &csr.cast::<f32>(), &all, &mut run);
        check_wide(&gpu, &name, &csr, &all);
        check_wide(&gpu, &name, &csr.cast::<f32>(), &all);
        refused += check_refusals(&gpu, &name, &csr, &all);
    }
    assert_eq!(run.len(), all.len(), "{run:?}");
    assert!(run.values().all(|built| *built), "converted on the GPU: {run:?}");
    assert!(refused > 0);
}
