//! What ptxas says of the kernels that products run.
#![cfg(feature = "cuda")]

use ellect_kernels::IMAGES;

/// Kernels of conversions: they run once, and a few bytes on their stack cost nothing that shows.
const CONVERSIONS: &str = "convert";

#[test]
fn no_product_spills_registers() {
    let mut kernels = 0;
    for image in IMAGES.iter().filter(|image| !image.name.starts_with(CONVERSIONS)) {
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

/// Forms for few threads are known with their long ones; every kernel of hll has one.
#[test]
fn short_forms_are_found_by_their_long_ones() {
    let with_few = IMAGES.iter().filter(|image| !image.few.is_empty()).map(|image| image.name);
    assert_eq!(with_few.collect::<Vec<_>>(), ["cdia", "diagonals", "hll"]);
    for image in IMAGES {
        let compiled = |name: &str| image.resources.contains(&format!("'{name}'"));
        for name in image.few {
            assert!(compiled(name) && compiled(&format!("{name}_few")), "{name}");
        }
    }
}

/// Kernels of products are launched while what is ahead of them in the stream is still at work.
#[test]
fn every_product_waits_for_what_is_ahead() {
    const CALL: &str = "await_previous();";
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |name: &str| {
        let path = folder.join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let others = |name: &str| name.starts_with(CONVERSIONS) || name == "features";
    let products: Vec<&str> =
        IMAGES.iter().map(|image| image.name).filter(|name| !others(name)).collect();
    for name in &products {
        let source = read(&format!("{name}.cu"));
        let included =
            source.lines().filter_map(|line| line.strip_prefix("#include \"")?.split('"').next());
        let mut own = included.filter(|header| *header != "common.cuh");
        assert!(source.contains(CALL) || own.any(|header| read(header).contains(CALL)), "{name}");
    }
    assert!(products.len() > 10, "{products:?}");
}
