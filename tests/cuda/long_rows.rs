//! CSR on a GPU with rows that are much longer than the others: the kernel that cuts them, and the
//! other variants.

use std::collections::BTreeMap;
use std::sync::Arc;

use ellect::analysis::Analysis;
use ellect::cuda::{CudaOperator, DeviceCsr, Gpu, Graph};
use ellect::format::{CSR, Candidate};
use ellect::{Csr, PreparedOperator, Scalar, check};

use super::{check_matrix, check_wide, exact_products, gpu, original};

/// The images of CSR's kernels: for small or regular matrices, for large ones of short rows, for small
/// matrices with long rows, and for large ones.
const WHOLE: &str = "csr";
const STAGED: &str = "csr_staged";
const CUT: &str = "csr_long";
const TILED: &str = "pcsr";

/// The variant that processes blocks of rows.
const ADAPTIVE: &str = "csr:kernel=adaptive";

/// The other variants of CSR with their images.
const VARIANTS: [(&str, &str); 3] = [
    ("csr:kernel=scalar", "csr_scalar"),
    ("csr:kernel=vector", "csr_vector"),
    (ADAPTIVE, "csr_adaptive"),
];

fn candidate(text: &str) -> Candidate {
    text.parse().expect("a candidate")
}

/// Builds a matrix with rows of these lengths, each spread over all columns.
fn of(ncols: usize, lengths: impl IntoIterator<Item = usize>) -> Csr<f64> {
    let (mut row_ptr, mut columns, mut values) = (vec![0], vec![], vec![]);
    for (row, length) in lengths.into_iter().enumerate() {
        let length = length.min(ncols);
        for k in 0..length {
            let column = k * ncols / length;
            columns.push(column as u32);
            values.push(0.25 * ((row + 3 * column) % 41) as f64 - 4.0);
        }
        row_ptr.push(columns.len());
    }
    Csr::new(row_ptr.len() - 1, ncols, row_ptr, columns, values).expect("a valid matrix")
}

/// Returns matrices with the image of the kernel that multiplies them.
fn matrices() -> Vec<(String, Csr<f64>, &'static str)> {
    let one = |at: usize, long: usize| {
        of(7000, (0..5000).map(move |i| if i == at { long } else { i % 7 }))
    };
    let each = |n: usize, every: usize, long: usize, short: usize| {
        of(30_000, (0..n).map(move |i| if i % every == every - 1 { long } else { short }))
    };
    let falling = |n: usize, most: f64| {
        of(20_000, (0..n).map(move |i| (most / ((i * 7919 % n + 1) as f64).powf(0.8)) as usize))
    };
    let near = [63, 64, 65, 511, 512, 513, 1023, 1024, 1025, 2048, 0];
    let bounds = [4095, 4096, 0, 4097, 1, 8192, 8193, 1, 1023, 1024, 1025, 512, 512, 0, 513, 512];
    let blocks = bounds.into_iter().chain((0..9000).map(|i| i / 3 % 5)).chain(bounds);
    let around = near.into_iter().chain((0..4000).map(|i| i % 3)).chain(near);
    let mut all = vec![
        ("a dense row first", one(0, 7000), CUT),
        ("a dense row last", one(4999, 7000), CUT),
        ("a row of 64 entries", one(77, 64), WHOLE),
        ("a row of 65 entries", one(77, 65), CUT),
        ("rows near every bound", of(4000, around), CUT),
        ("rows near the bounds of blocks", of(20_000, blocks), CUT),
        ("one row in three is long", each(6000, 3, 700, 1), CUT),
        ("4 lanes per row, some long", each(4000, 40, 400, 6), CUT),
        ("4 lanes per row, none too long", each(4000, 20, 128, 8), WHOLE),
        ("8 lanes per row, some long", each(3000, 100, 3000, 40), CUT),
        ("16 lanes per row, some long", each(1000, 100, 20_000, 100), CUT),
        ("32 lanes per row, some long", each(400, 50, 29_999, 600), CUT),
        ("all rows long", each(300, 1, 3000, 0), CUT),
        ("rows of 1,024 entries", each(300, 1, 1024, 0), WHOLE),
        ("one row", of(100_000, [100_000]), CUT),
        ("lengths that fall by a power", falling(20_000, 20_000.0), CUT),
        ("two long rows among empty ones", each(9000, 4500, 1111, 0), CUT),
        ("large pieces", of(300_000, [300_000; 35].into_iter().chain([3; 9000])), CUT),
    ];
    let many = |long: usize, n: usize| {
        of(300_000, [long, 0, long, 5].into_iter().chain((0..n).map(|i| i % 9)).chain([long]))
    };
    all.push(("rows of 100 entries in tiles", many(100, 510_000), TILED));
    all.push(("rows of a tile's entries", many(2048, 510_000), TILED));
    all.push(("rows of a tile's entries and one", many(2049, 510_000), TILED));
    all.push(("rows of many tiles", many(150_000, 400_000), TILED));
    all.push(("the longest rows in tiles", many(1 << 18, 400_000), TILED));
    all.push(("rows too long for tiles", many((1 << 18) + 1, 400_000), CUT));
    all.push(("only rows of many tiles", of(150_000, [150_000; 70]), TILED));
    let uneven = |n: usize, mean: usize| of(50_000, (0..n).map(move |i| mean - 3 + i * 7919 % 7));
    all.push(("many rows of 0 to 6 entries", uneven(340_000, 3), STAGED));
    all.push(("many rows of 8 to 14 entries", uneven(370_000, 11), STAGED));
    all.push(("many rows of 22 to 28 entries", uneven(490_000, 25), STAGED));
    all.push(("no entries", of(9, [0; 300]), WHOLE));
    all.push(("many empty rows", of(9, [0; 9000]), WHOLE));
    all.push(("no rows", of(9, [0; 0]), WHOLE));
    all.into_iter().map(|(name, csr, image)| (name.to_string(), csr, image)).collect()
}

#[test]
fn long_rows_are_multiplied_right_on_the_gpu() {
    let Some(gpu) = gpu() else { return };
    for (name, csr, image) in matrices() {
        for (text, image) in [(CSR, image)].into_iter().chain(VARIANTS) {
            check_variant(&gpu, &name, &csr, (text, image));
            if csr.nnz() < 5_000_000 {
                check_variant(&gpu, &name, &csr.cast::<f32>(), (text, image));
            }
        }
    }
}

/// Checks the products of a variant, given as text and with its image.
fn check_variant<T: Scalar>(gpu: &Arc<Gpu>, name: &str, csr: &Csr<T>, (text, image): (&str, &str)) {
    let (all, mut run) = ([candidate(text)], BTreeMap::new());
    check_matrix(gpu, name, csr, &all, &mut run);
    check_wide(gpu, name, csr, &all);
    check_lists(gpu, &format!("{text} of {name}"), csr, (text, image));
}

/// Returns y = A x by this operator, for x of the GPU.
fn product<T: Scalar>(gpu: &Gpu, operator: &CudaOperator<T>, x: &[T], nrows: usize) -> Vec<T> {
    let x = gpu.vector(x).expect("memory suffices");
    let y = gpu.vector(&vec![T::from_f64(f64::NAN); nrows]).expect("memory suffices");
    let stream = gpu.stream().as_inner();
    // SAFETY: the vectors have the matrix's lengths and live until the copy below has synchronised.
    unsafe { operator.apply_raw(T::ONE, x.address(), T::ZERO, y.address(), stream) }
        .expect("the launch succeeds");
    let mut got = vec![T::ZERO; nrows];
    y.read(&mut got).expect("the kernel succeeds");
    got
}

/// Checks which kernel multiplies, and that the result depends neither on the order in which the
/// GPU lists pieces nor on the number of products before, nor on whether the host lists them. The
/// sums of a block of rows are added up in the order of the list, so the GPU finds the same blocks. A
/// layout that the host made has no tiles.
fn check_lists<T: Scalar>(gpu: &Arc<Gpu>, name: &str, csr: &Csr<T>, (text, image): (&str, &str)) {
    let candidate = candidate(text);
    let target = original::<T>(gpu.profile());
    let there = Arc::new(DeviceCsr::upload(gpu, csr).expect("memory suffices"));
    let x = check::vector::<T>(csr.ncols(), 3);
    let layout = candidate.convert(csr, &Analysis::of(csr), &target).expect("CSR applies");
    let uploaded = gpu.upload(layout.as_ref()).expect("memory suffices");
    let mut first = (image != TILED).then(|| product(gpu, &uploaded, &x, csr.nrows()));
    let times = if std::env::var_os("ELLECT_TEST_ONCE").is_some() { 1 } else { 5 };
    for _ in 0..times {
        let made = gpu.convert(&there, &candidate, &target).expect("CSR applies");
        let operator = made.expect("CSR is prepared on the GPU");
        if csr.nrows() > 0 {
            let images: Vec<_> = operator.images().collect();
            assert_eq!(images[0], image, "{name}");
            assert!(images.len() == 1 || image == TILED, "{name}: {images:?}");
            assert!(image == TILED || operator.bytes() == layout.bytes(), "{name}");
        }
        for _ in 0..times {
            let again = product(gpu, &operator, &x, csr.nrows());
            let first = first.get_or_insert_with(|| again.clone());
            assert!(again == *first, "{name}, {}: results differ", T::PRECISION);
        }
    }
}

#[test]
fn captured_products_with_long_rows_see_new_values() {
    let Some(gpu) = gpu() else { return };
    let each = |text| matrices().into_iter().map(move |matrix| (candidate(text), matrix));
    let all = each(CSR).chain(each(ADAPTIVE));
    for (candidate, (name, csr, _)) in all.filter(|(_, (.., image))| [CUT, TILED].contains(image)) {
        let csr = csr.map_values(|value| (value * 3.0).round() % 8.0);
        let twice = csr.map_values(|value| value + value);
        let analysis = Analysis::of(&csr);
        let target = original::<f64>(gpu.profile());
        let there = Arc::new(DeviceCsr::upload(&gpu, &csr).expect("memory suffices"));
        let mut operator =
            PreparedOperator::on_gpu(&gpu, &there, &csr, &analysis, &candidate, &target)
                .unwrap_or_else(|error| panic!("{name}: {error}"));
        let placed = operator.on_device_mut().expect("made on a GPU");
        placed.own_values().unwrap_or_else(|error| panic!("{name}: {error}"));
        let [wanted, ..] = exact_products(&twice);
        let x = gpu.vector(&wanted.x).expect("memory suffices");
        let y = gpu.vector(&vec![f64::NAN; csr.nrows()]).expect("memory suffices");
        let (x_at, y_at) = (x.address(), y.address());
        // Two products in the graph: the second one starts while the first one ends.
        let graph = Graph::capture(&gpu, |stream| {
            (0..2).try_for_each(|_| {
                // SAFETY: the vectors have the matrix's lengths and outlive the graph's launches.
                unsafe {
                    placed.operator().apply_raw(wanted.alpha, x_at, wanted.beta, y_at, stream)
                }
            })
        })
        .unwrap_or_else(|error| panic!("{name}: {error}"));
        operator.update_values(twice.values()).unwrap_or_else(|error| panic!("{name}: {error}"));
        for _ in 0..3 {
            // SAFETY: operator and vectors still exist.
            unsafe { graph.launch(&gpu) }.unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        let mut got = vec![0.0; csr.nrows()];
        y.read(&mut got).unwrap_or_else(|error| panic!("{name}: {error}"));
        for (row, (got, want)) in got.iter().zip(&wanted.want).enumerate() {
            assert_eq!(*got, want.value, "{name}: row {row}, exact");
        }
    }
}
