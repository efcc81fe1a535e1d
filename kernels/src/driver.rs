//! The CUDA driver's functions, loaded at run time.
//!
//! The driver library exists only on machines with a GPU. To start on any machine, the program does
//! not link it: each function that `cust` calls is a jump through a table, which [`load`] fills
//! from `libcuda.so.1`. Until then, and on machines without a driver, every call returns
//! [`NO_DRIVER`]. `kernels/link` holds an empty archive where the linker searches for the driver
//! library.
#![allow(unsafe_code, reason = "the table holds addresses of the driver's functions")]

use std::sync::OnceLock;

/// Error code that every driver call returns without a driver: `CUDA_ERROR_STUB_LIBRARY`.
pub const NO_DRIVER: i32 = 34;

const NAMES: &[&str] = include!(concat!(env!("OUT_DIR"), "/driver_names.rs"));

/// Addresses of the driver's functions, the targets of the jumps.
static mut TABLE: [extern "C" fn() -> i32; NAMES.len()] = [absent; NAMES.len()];

std::arch::global_asm!(
    include_str!(concat!(env!("OUT_DIR"), "/driver.s")),
    table = sym TABLE,
    options(att_syntax)
);

extern "C" fn absent() -> i32 {
    NO_DRIVER
}

/// Opens the driver library once and fills the table.
///
/// # Errors
/// A sentence with the reason why there is no driver.
pub fn load() -> Result<(), &'static str> {
    static LOADED: OnceLock<Result<(), String>> = OnceLock::new();
    LOADED.get_or_init(open).as_ref().map(|_| ()).map_err(String::as_str)
}

/// The address of a driver function that `cust` does not declare; `None` without a driver, or where
/// the driver is too old to have the function.
pub fn find(name: &str) -> Option<extern "C" fn() -> i32> {
    let library = library().ok()?;
    // SAFETY: the symbol is a function; its caller declares its real signature.
    let symbol = unsafe { library.get::<extern "C" fn() -> i32>(name.as_bytes()) };
    let found = symbol.ok().map(|symbol| *symbol);
    // The address stays in use until the process ends.
    std::mem::forget(library);
    found
}

fn library() -> Result<libloading::Library, String> {
    // SAFETY: the driver library's initialisers are made to run in any process.
    unsafe { libloading::Library::new("libcuda.so.1") }
        .map_err(|error| format!("no CUDA driver on this machine: {error}"))
}

fn open() -> Result<(), String> {
    let library = library()?;
    for (i, name) in NAMES.iter().enumerate() {
        // SAFETY: the symbol is a function; it is only ever called through its jump, by callers
        // that declare its real signature.
        let symbol = unsafe { library.get::<extern "C" fn() -> i32>(name.as_bytes()) };
        if let Ok(symbol) = symbol {
            // SAFETY: only this function writes the table, once, before the first driver call.
            unsafe { TABLE[i] = *symbol };
        }
    }
    // The addresses stay in use until the process ends.
    std::mem::forget(library);
    Ok(())
}
