//! Properties of the compiled kernels, above all the report of ptxas on the kernels of products.
#![cfg(feature = "cuda")]

use ellect_kernels::{IMAGES, Image};

/// The folder of conversions: they run once, so a few bytes of spills have no measurable cost.
const CONVERSIONS: &str = "conversions";

#[test]
fn no_product_spills_registers() {
    let mut kernels = 0;
    for image in IMAGES.iter().filter(|image| image.folder != CONVERSIONS) {
        let mut name = "";
        for line in image.resources.lines() {
            if let Some((_, rest)) = line.split_once("Compiling entry function '") {
                name = rest.split('\'').next().unwrap_or(rest);
                kernels += 1;
            }
            assert!(
                !line.contains("spill stores")
                    || line.contains("0 bytes spill stores, 0 bytes spill loads"),
                "{name} of {} spills: {line}",
                image.name
            );
        }
    }
    assert!(kernels > 100, "ptxas named only {kernels} kernels");
}

/// Forms for resident grids are looked up by the kernels that they replace; every kernel of hll, hll_f32,
/// hll_f16 and hll_bf16 has one.
#[test]
fn resident_forms_are_found_by_their_kernels() {
    let with_forms = IMAGES.iter().filter(|image| !image.resident.is_empty());
    let names = with_forms.map(|image| image.name).collect::<Vec<_>>();
    assert_eq!(
        names,
        [
            "cdia",
            "diagonals",
            "hdia_bf16",
            "hdia_f16",
            "hdia_f32",
            "hll",
            "hll_bf16",
            "hll_f16",
            "hll_f32"
        ]
    );
    for image in IMAGES {
        for name in image.resident {
            let form = image.kernel(&format!("{name}_resident"));
            let (kernel, form) = (image.kernel(name).expect(name), form.expect(name));
            assert_eq!(kernel.params, form.params, "{name} and its form take the same arguments");
        }
    }
}

/// Images and their kernels are looked up by binary search, and every kernel that ptxas compiled is
/// listed.
#[test]
fn images_and_kernels_are_sorted_by_name() {
    assert!(IMAGES.is_sorted_by(|a, b| a.name < b.name));
    for image in IMAGES {
        assert!(image.kernels.is_sorted_by(|a, b| a.name < b.name), "{}", image.name);
        let lines = image.resources.lines();
        let entries = lines
            .filter_map(|line| line.split_once("Compiling entry function '")?.1.split('\'').next());
        let mut compiled: Vec<_> = entries.collect();
        compiled.sort_unstable();
        compiled.dedup();
        assert!(
            compiled.iter().eq(image.kernels.iter().map(|kernel| &kernel.name)),
            "{}",
            image.name
        );
        let hashes = IMAGES.iter().filter(|other| other.hash == image.hash);
        assert_eq!(hashes.count(), 1, "{} has the hash of another image", image.name);
    }
}

/// Kernels of products start while earlier work in the stream may still be running.
#[test]
fn every_product_waits_for_earlier_work() {
    let products: Vec<&Image> = IMAGES.iter().filter(|image| image.folder == "products").collect();
    for image in &products {
        assert!(waits(image.folder, &format!("{}.cu", image.name)), "{}", image.name);
    }
    assert!(products.len() > 10, "{} products", products.len());
}

/// Tells whether a source waits for earlier work, or a header that it includes does.
fn waits(folder: &str, name: &str) -> bool {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join(name);
    let source = std::fs::read_to_string(&path);
    let source = source.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let include =
        |line: &str| Some(line.strip_prefix("#include \"")?.split('"').next()?.to_string());
    // The definition is there.
    let mut included = source.lines().filter_map(include).filter(|header| header != "common.cuh");
    source.contains("await_previous();") || included.any(|header| waits("common", &header))
}
