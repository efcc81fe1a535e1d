//! Checks every launch described anywhere, without a GPU: products of layouts converted on the
//! host, conversions run by a [`GpuConverter`] that launches nothing, and the backend's own launches.

use std::collections::BTreeSet;

use ellect_kernels::IMAGES;

use super::*;
use crate::analysis::Analysis;
use crate::csr::{ComplexCsr, Csr};
use crate::device::{Device, Kind};
use crate::error::Result;
use crate::format::{
    Basis, Candidate, Check, Format, GpuConverter, GpuLayout, Matrix, Several, SliceOffsets, Stop,
    TOLD, Target, candidates, value_dictionary,
};
use crate::generate;
use crate::scalar::Scalar;

/// Compares a launch with the signature of its kernel.
fn check(launch: &Launch, precision: Option<Precision>) -> std::result::Result<(), String> {
    let image = ellect_kernels::find(launch.image);
    let image = image.ok_or_else(|| format!("no image is named {}", launch.image))?;
    check_launch(image, launch, precision)
}

/// Launches already compared with signatures: their kernels, and the mismatches.
#[derive(Default)]
struct Compared {
    kernels: BTreeSet<(&'static str, String)>,
    wrong: BTreeSet<String>,
    /// The format that describes the launches.
    format: Option<&'static Format>,
}

/// Images of which the conversions and products below launch only some kernels: other hack sizes,
/// threads a row and slabs need other matrices or candidates.
const PARTLY_REACHED: [&str; 15] = [
    "convert_cache_blocked",
    "convert_half",
    "convert_hdia_f32",
    "convert_half_diagonals",
    "convert_narrow",
    "csr",
    "csr_dot",
    "csr_bf16",
    "csr_f16",
    "csr_f32",
    "csr_long",
    "csr_staged",
    "csr_vector",
    "hll",
    "st_csr_vi",
];

impl Compared {
    fn add(&mut self, launch: &Launch, precision: Precision) {
        if self.format.is_some_and(|format| !format.may_launch(launch.image)) {
            self.wrong.insert(format!(
                "{:?} launches {}",
                self.format.map(|f| f.name),
                launch.image
            ));
        }
        if is_invented(launch) {
            return;
        }
        if let Err(why) = check(launch, Some(precision)) {
            self.wrong.insert(format!("{precision}: {why}"));
        }
        self.kernels.insert((launch.image, launch.kernel.clone()));
        let with_more = [Arg::XRow, Arg::Parts].iter().any(|more| launch.args.contains(more));
        let multiplies = [Arg::X, Arg::Y].iter().any(|one| launch.args.contains(one)) && !with_more;
        if let Some(format) = self.format.filter(|_| multiplies) {
            let several = Several::ALL.into_iter().filter_map(|of| format.several(launch, of));
            several.for_each(|launch| self.add(&launch, precision));
            let with_dots = format.with_dots(launch);
            with_dots.iter().for_each(|launch| self.add(launch, precision));
        }
    }

    fn add_all<'a>(&mut self, launches: impl IntoIterator<Item = &'a Launch>, of: Precision) {
        launches.into_iter().for_each(|launch| self.add(launch, of));
    }

    /// Adds the launches of a converted layout.
    fn add_built(&mut self, built: &GpuLayout, precision: Precision) {
        let launches = built.launches.iter().chain(&built.several);
        self.add_all(launches.chain(&built.update), precision);
        self.add_all(built.check.iter().map(|Check { launch, .. }| launch), precision);
    }

    /// Returns the kernels that no launch named, of all images but [`PARTLY_REACHED`]. Kernels with the
    /// suffix `_resident` replace others with the same parameters, so they count as named.
    fn missing(&self) -> Vec<String> {
        let all =
            IMAGES.iter().flat_map(|image| image.kernels.iter().map(|k| (image.name, k.name)));
        let named = |image, kernel: &str| {
            let kernel = kernel.strip_suffix("_resident").unwrap_or(kernel);
            self.kernels.contains(&(image, kernel.to_string()))
        };
        let all = all.filter(|(image, _)| !PARTLY_REACHED.contains(image));
        let missing = all.filter(|(image, kernel)| !named(*image, kernel));
        missing.map(|(image, kernel)| format!("{image}: {kernel}")).collect()
    }
}

/// True if no kernel has this name, but the image has a kernel of the same name with another number in
/// one place: [`Dry`] invented that number.
fn is_invented(launch: &Launch) -> bool {
    let Some(image) = ellect_kernels::find(launch.image) else { return false };
    let without_number = |name: &str| -> Vec<String> {
        let mut parts: Vec<String> = name.split('_').map(String::from).collect();
        if let Some(number) = parts.iter_mut().rfind(|part| part.parse::<u32>().is_ok()) {
            number.clear();
        }
        parts
    };
    let stem = without_number(&launch.kernel);
    let unknown = image.kernels.iter().all(|kernel| kernel.name != launch.kernel);
    unknown && image.kernels.iter().any(|kernel| without_number(kernel.name) == stem)
}

/// A conversion that launches nothing. It invents the numbers that kernels would have counted, so
/// that conversions take all their branches.
struct Dry<'a> {
    matrix: Matrix,
    precision: Precision,
    arrays: usize,
    temporaries: usize,
    draws: u64,
    compared: &'a mut Compared,
}

impl Dry<'_> {
    /// Returns a pseudo-random number below `n`.
    fn draw(&mut self, n: usize) -> usize {
        self.draws += 1;
        (crate::check::mix(self.draws) % n as u64) as usize
    }

    /// Returns a new array of the layout.
    fn next(&mut self) -> Arg {
        self.arrays += 1;
        Arg::Array(self.arrays - 1)
    }

    /// Returns a new temporary array of the conversion.
    fn next_temporary(&mut self) -> Arg {
        self.temporaries += 1;
        Arg::Temporary(self.temporaries - 1)
    }

    /// Invents offsets of either width with a total near the number of entries, of rows, or a
    /// fraction of these.
    fn total(&mut self, kept: Arg) -> SliceOffsets {
        const NULL: Arg = Arg::U64(0);
        let Matrix { nrows, nnz, .. } = self.matrix;
        let most = [nnz, nrows, nnz + nnz / 8, 1][self.draw(4)];
        let total = (most as u64).div_ceil([1, 2, 9, 32, 1024][self.draw(5)]);
        let args = if self.draw(2) == 0 { [kept, NULL] } else { [NULL, kept] };
        SliceOffsets { args, total }
    }
}

impl GpuConverter for Dry<'_> {
    fn matrix(&self) -> Matrix {
        self.matrix
    }

    fn array(&mut self, _bytes: u64) -> Result<Arg> {
        Ok(self.next())
    }

    fn trim(&mut self, _array: Arg, _bytes: u64) {}

    fn zeros(&mut self, _bytes: u64) -> Result<Arg> {
        Ok(self.next())
    }

    fn temporary(&mut self, _bytes: u64) -> Result<Arg> {
        Ok(self.next_temporary())
    }

    fn temporary_zeros(&mut self, _bytes: u64) -> Result<Arg> {
        Ok(self.next_temporary())
    }

    fn number(&mut self) -> Result<Arg> {
        Ok(self.next_temporary())
    }

    fn launch(&mut self, launch: &Launch) -> Result<()> {
        self.compared.add(launch, self.precision);
        Ok(())
    }

    fn starts(&mut self, _counts: Arg, _each: usize, _n: usize) -> Result<SliceOffsets> {
        let kept = self.next();
        Ok(self.total(kept))
    }

    fn temporary_starts(&mut self, _counts: Arg, _each: usize, _n: usize) -> Result<SliceOffsets> {
        let kept = self.next_temporary();
        Ok(self.total(kept))
    }

    fn sort_down(
        &mut self,
        _keys: Arg,
        _rows: Arg,
        _sorted: Arg,
        _n: usize,
        _bits: u32,
    ) -> Result<()> {
        Ok(())
    }

    fn read(&mut self, _number: Arg) -> Result<u32> {
        Ok([0, 1, 2, 3, 8, 16, 40, 200, 1000, 40_000][self.draw(10)])
    }

    fn host(&mut self) -> Result<[Arg; 2]> {
        Ok([Arg::U64(8), Arg::U32(1)])
    }

    fn told(&mut self) -> Result<[u32; TOLD]> {
        let number = Arg::U32(0);
        Ok([self.read(number)?, self.read(number)?, self.read(number)?])
    }

    fn note_written(&mut self) {}
}

/// Runs a candidate's conversion on matrices of several sizes, with different random numbers each.
fn convert(candidate: &Candidate, target: &Target<'_>, compared: &mut Compared) {
    compared.format = Some(candidate.format);
    let sizes = [
        (4_000, 40_000),
        (3_000, 90_000),
        (2_000, 700_000),
        (200_000, 400_000),
        (70_000, 7_000_000),
        (300_000, 3_000_000),
    ];
    for (round, (nrows, nnz)) in sizes.into_iter().cycle().take(72).enumerate() {
        let matrix = Matrix { nrows, ncols: nrows, nnz, wide: round / sizes.len() % 2 == 1 };
        let mut dry = Dry {
            matrix,
            precision: target.precision,
            arrays: 0,
            temporaries: 0,
            draws: 1000 * round as u64,
            compared,
        };
        match candidate.format.build(&mut dry, &candidate.params, target) {
            Ok(built) => compared.add_built(&built, target.precision),
            Err(Stop::Refused(_) | Stop::OnHost) => {}
            Err(Stop::Failed(error)) => panic!("{candidate}: {error}"),
        }
    }
}

/// Adds the products of layouts that the host converts from sample matrices.
fn multiply<T: Scalar>(device: &Device, basis: Basis, all: &[Candidate], compared: &mut Compared) {
    let classes = ["stencil27", "elasticity", "circuit", "rmat", "links", "holstein_hubbard"];
    let named = |class| generate::by_name(class, 1500, 1).expect("a class");
    let mut matrices: Vec<(&str, Csr<f64>)> =
        classes.into_iter().map(|class| (class, named(class))).collect();
    let complex = ComplexCsr::try_from(&named("p2")).expect("small");
    matrices.push(("complex", complex.to_real()));
    for (class, csr) in matrices {
        let csr = csr.cast::<T>();
        let analysis = Analysis::of(&csr);
        let target = Target {
            device,
            precision: T::PRECISION,
            basis,
            memory_limit: u64::MAX,
            stored: Default::default(),
        };
        for candidate in all {
            // Values may be rounded to the type in which the format stores them.
            let target = Target { stored: candidate.format.stores, ..target };
            if candidate.work(&analysis, &target).is_err() {
                continue;
            }
            let layout = candidate.convert(&csr, &analysis, &target);
            let layout = layout.unwrap_or_else(|why| panic!("{candidate} of {class}: {why}"));
            let described = layout.on_device();
            compared.format = Some(candidate.format);
            compared.add_all(described.iter().flat_map(|d| &d.launches), T::PRECISION);
        }
    }
}

/// Adds the launches that the backend itself describes.
fn own(compared: &mut Compared) {
    compared.format = None;
    for precision in Precision::ALL {
        compared.add(&super::super::placed::take_values(precision, 5, [8, 16, 24]), precision);
        for (nrows, wide) in [(10_000, false), (10_000, true)] {
            let matrix = Matrix { nrows, ncols: nrows, nnz: 90_000, wide };
            let plan = super::super::features::CountPlan::of(matrix).expect("counted on the GPU");
            compared.add(&plan.launch(8, 132), precision);
            let (arrays, temporaries) = (0, 0);
            let mut dry = Dry { matrix, precision, arrays, temporaries, draws: 0, compared };
            value_dictionary::find(&mut dry, precision).expect("nothing is launched");
        }
        let vectors = super::super::vector_ops::launches(precision, 5_000);
        compared.add_all(&vectors, precision);
        compared.add_all(&super::super::several::launches(precision), precision);
        compared.add_all(&super::super::dots::launches(precision), precision);
        compared.add(&super::super::exchange::launch(precision), precision);
        compared.add(&super::super::reduce::launch(precision), precision);
        compared.add(&super::super::rank::pack(precision, 5_000, [8, 16, 24]), precision);
        compared.add(&super::super::convert::copy_counters(8, 16), precision);
        for wide in [false, true] {
            let matrix = Matrix { nrows: 5, ncols: 5, nnz: 9, wide };
            compared.add(&super::super::features::sample::launch(matrix, 8, 16), precision);
            compared.add_all(&super::super::halo::launches(matrix), precision);
        }
        compared.add(&super::super::convert::narrow_offsets(5, [8, 16, 24]), precision);
    }
    compared.add(&super::super::transpose::differ(5, [8, 16, 24]), Precision::F64);
    compared.add(&super::super::faulty(), Precision::F64);
}

#[test]
fn every_launch_passes_what_its_kernel_takes_and_every_kernel_has_a_launch() {
    let mut compared = Compared::default();
    let all = candidates(Kind::Gpu);
    let device = crate::device::find("h200").expect("shipped");
    for basis in [Basis::Original, Basis::Permuted] {
        multiply::<f64>(&device, basis, &all, &mut compared);
        multiply::<f32>(&device, basis, &all, &mut compared);
        for precision in Precision::ALL {
            let target = Target {
                device: &device,
                precision,
                basis,
                memory_limit: u64::MAX,
                stored: Default::default(),
            };
            all.iter().for_each(|candidate| convert(candidate, &target, &mut compared));
        }
    }
    own(&mut compared);
    assert!(compared.wrong.is_empty(), "{:#?}", compared.wrong);
    let missing = compared.missing();
    assert!(missing.is_empty(), "no launch names {missing:#?}");
}

#[test]
fn a_launch_that_does_not_fit_says_where() {
    let args = vec![Arg::U32(256), Arg::Y, Arg::Beta];
    let launch = |kernel: &str, args: &[Arg]| Launch::over("coo", kernel, 256, 256, args.to_vec());
    assert_eq!(check(&launch("coo_scale_f64", &args), Some(Precision::F64)), Ok(()));
    assert_eq!(check(&launch("coo_scale_f64", &args), None), Ok(()));
    let why = |kernel: &str, args: &[Arg], precision| {
        check(&launch(kernel, args), Some(precision)).expect_err("it does not fit")
    };
    assert!(why("coo_scale_f32", &args, Precision::F64).contains("argument 2"));
    assert!(why("coo_scale_f64", &args[..2], Precision::F64).contains("takes 3 arguments"));
    let swapped = [args[1], args[0], args[2]];
    assert!(why("coo_scale_f64", &swapped, Precision::F64).contains("argument 0"));
    assert!(why("coo_scale", &args, Precision::F64).contains("no kernel"));
}
