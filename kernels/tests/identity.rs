//! The hash of an image depends on what a GPU runs, and on nothing else. The tests compile small
//! sources with nvcc, as the build does.
#![cfg(feature = "cuda")]

use std::fs;
use std::path::{Path, PathBuf};

#[path = "../build/cubin.rs"]
mod cubin;
#[path = "../build/nvcc.rs"]
#[allow(dead_code, reason = "the build script uses the rest")]
mod nvcc;

/// A source with a header, a helper in shared memory, a function call (64-bit division) and two
/// kernels.
const HEADER: &str = "#pragma once
#include <cstdint>
template <class T> __device__ __forceinline__ T twice(T v) { return v + v; }
";
const SOURCE: &str = "#include \"helpers.cuh\"
template <class T> __device__ __forceinline__ void scale(uint32_t n, T* y, uint64_t by) {
    __shared__ T part[256];
    part[threadIdx.x] = y[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < n) y[threadIdx.x] = twice(part[255 - threadIdx.x]) * T(n / by);
}
extern \"C\" __global__ void __launch_bounds__(256) scale_f64(uint32_t n, double* y, uint64_t by) {
    scale(n, y, by);
}
extern \"C\" __global__ void __launch_bounds__(256) scale_f32(uint32_t n, float* y, uint64_t by) {
    scale(n, y, by);
}
";

/// A separate folder under the build folder.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("identity").join(name);
    fs::create_dir_all(folder.join("include")).expect("the build folder is writable");
    folder
}

/// The hash of `source` with a header named `header`, compiled in the folder `name`.
fn hash(name: &str, header: &str, [header_text, source]: [&str; 2]) -> String {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = folder(name);
    let include = folder.join("include");
    let path = folder.join("scale.cu");
    fs::write(include.join(header), header_text).expect("the build folder is writable");
    fs::write(&path, source).expect("the build folder is writable");
    let nvcc = nvcc::Nvcc::new(package).expect("there is an nvcc");
    let compiled = nvcc::compile(&nvcc, &path, &include, &folder, &folder.join("kept"));
    cubin::digest(&compiled.cubins).expect("nvcc writes cubins")
}

/// The hash of [`SOURCE`] with the text `from`, which it must contain, replaced by `to`.
fn changed(name: &str, from: &str, to: &str) -> String {
    assert!(SOURCE.contains(from), "{from}");
    hash(name, "helpers.cuh", [HEADER, &SOURCE.replace(from, to)])
}

#[test]
fn names_comments_and_locations_do_not_change_the_hash() {
    let first = hash("first", "helpers.cuh", [HEADER, SOURCE]);
    assert_eq!(hash("elsewhere", "helpers.cuh", [HEADER, SOURCE]), first, "another folder");
    let commented = HEADER.replace("template", "// Doubles it.\n\ntemplate");
    assert_eq!(hash("comment", "helpers.cuh", [&commented, SOURCE]), first, "a comment");
    let renamed = SOURCE.replace("helpers.cuh", "doubles.cuh");
    assert_eq!(hash("header", "doubles.cuh", [HEADER, &renamed]), first, "a header's name");
    assert_eq!(changed("lines", ") {\n    scale", ")\n\n{ scale"), first, "lines");
    assert_eq!(changed("helper", "scale(", "scaled_by("), first, "a function's name");
    assert_eq!(changed("array", "part[", "piece["), first, "an array's name");
    assert_eq!(changed("kernel", "scale_f64", "a_f64_resident"), first, "a kernel's name");
    let (head, kernels) = SOURCE.split_once("extern").expect("there are kernels");
    let (double, float) = kernels.split_once("extern").expect("there are two");
    let turned = format!("{head}extern{float}extern{double}");
    assert_eq!(hash("order", "helpers.cuh", [HEADER, &turned]), first, "the order of kernels");
}

#[test]
fn the_hash_covers_what_a_gpu_runs() {
    let first = hash("before", "helpers.cuh", [HEADER, SOURCE]);
    let three = HEADER.replace("v + v", "v + v + v");
    assert_ne!(hash("header_code", "helpers.cuh", [&three, SOURCE]), first, "code of a header");
    assert_ne!(changed("instruction", "255 - ", "255 ^ "), first, "an instruction");
    assert_ne!(changed("constant", "255 - ", "254 - "), first, "a constant");
    assert_ne!(changed("shared", "part[256]", "part[512]"), first, "shared memory");
    assert_ne!(changed("bounds", "bounds__(256) scale_f32", "bounds__(128) scale_f32"), first);
    let more = "float* y, uint64_t by, int unused";
    assert_ne!(changed("parameter", "float* y, uint64_t by", more), first, "a parameter");
    let one = SOURCE.rsplit_once("extern").map(|(rest, _)| rest).expect("there are kernels");
    assert_ne!(hash("fewer", "helpers.cuh", [HEADER, one]), first, "a kernel less");
    let newer = "\n#if __CUDA_ARCH__ >= 900\n    n++;\n#endif\n    __shared__";
    assert_ne!(changed("newer", "\n    __shared__", newer), first, "code of one architecture");
}

#[test]
fn files_other_than_cubins_are_errors() {
    assert!(cubin::digest(&[b"// PTX".to_vec()]).is_err());
    let cut = b"\x7fELF\x02\x01".iter().copied().chain([0; 60]).collect::<Vec<u8>>();
    assert!(cubin::digest(&[cut[..40].to_vec()]).is_err());
}
