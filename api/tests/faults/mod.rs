//! Functions of the C library that fail while a file turns their fault on.

#[path = "../../../tests/faults/system.rs"]
mod system;

use std::ffi::{CString, OsString, c_char, c_int, c_long, c_void};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

use system::{
    ENOSPC, SYS_FTRUNCATE, SYS_PWRITE, SYS_RENAME, SYS_WRITE, failed, syscall, with_path,
};

/// Variable of the environment that names the folder of the files that turn faults on. A process that
/// has it is a service.
pub const FAULTS: &str = "ELLECT_TEST_SERVICE_FAULTS";

/// A fault of the machine.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// The disk is full: no file grows or is made.
    Full,
    /// No file can be opened for writing, written or renamed.
    ReadOnly,
    /// The clock is a year ahead.
    Ahead,
    /// The clock is a year behind.
    Behind,
}

impl Fault {
    /// Returns the name of the file that turns it on.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Full => "full",
            Fault::ReadOnly => "read-only",
            Fault::Ahead => "ahead",
            Fault::Behind => "behind",
        }
    }
}

const SYS_OPEN: c_long = 2;
const SYS_ACCESS: c_long = 21;
const SYS_CLOCK_GETTIME: c_long = 228;
const EROFS: c_int = 30;
const REALTIME: c_int = 0;
const YEAR_S: i64 = 365 * 86_400;
/// Flags of `open` that write: write-only, read-write, create and truncate.
const WRITES: c_int = 0o1 | 0o2 | 0o100 | 0o1000;

/// The folder, and the file of each fault.
struct Files {
    folder: OsString,
    full: CString,
    read_only: CString,
    ahead: CString,
    behind: CString,
}

static FILES: OnceLock<Option<Files>> = OnceLock::new();

/// Tells whether this process is a service whose faults files turn on.
pub fn is_service() -> bool {
    let files = FILES.get_or_init(|| {
        let folder = std::env::var_os(FAULTS)?;
        let file = |fault: Fault| {
            let path = std::path::Path::new(&folder).join(fault.name());
            CString::new(path.into_os_string().into_encoded_bytes()).ok()
        };
        Some(Files {
            full: file(Fault::Full)?,
            read_only: file(Fault::ReadOnly)?,
            ahead: file(Fault::Ahead)?,
            behind: file(Fault::Behind)?,
            folder,
        })
    });
    files.is_some()
}

fn files() -> Option<&'static Files> {
    FILES.get()?.as_ref()
}

fn is_on(file: &CString) -> bool {
    // SAFETY: the string ends with a zero byte.
    unsafe { syscall(SYS_ACCESS, file.as_ptr(), 0) == 0 }
}

/// Tells whether a path is in the folder.
fn is_in(files: &Files, path: &[u8]) -> bool {
    path.starts_with(files.folder.as_bytes())
}

/// Returns the error of a change of the file with this path, if there is one.
fn fault_of(path: &[u8]) -> Option<c_int> {
    let files = files().filter(|files| is_in(files, path))?;
    if is_on(&files.full) {
        return Some(ENOSPC);
    }
    is_on(&files.read_only).then_some(EROFS)
}

/// Returns the error of a change of this open file, if there is one.
fn fault_of_open(file: c_int) -> Option<c_int> {
    files()?;
    with_path(file, fault_of)?
}

/// Replaces the C library's function.
///
/// # Safety
/// As the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(file: c_int, from: *const c_void, length: usize) -> isize {
    let done = match fault_of_open(file) {
        Some(error) => failed(error),
        // SAFETY: the caller's arguments are passed on.
        None => unsafe { syscall(SYS_WRITE, c_long::from(file), from, length) },
    };
    done as isize
}

/// Replaces the C library's function.
///
/// # Safety
/// As the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite64(
    file: c_int,
    from: *const c_void,
    length: usize,
    at: i64,
) -> isize {
    let done = match fault_of_open(file) {
        Some(error) => failed(error),
        // SAFETY: the caller's arguments are passed on.
        None => unsafe { syscall(SYS_PWRITE, c_long::from(file), from, length, at) },
    };
    done as isize
}

/// Replaces the C library's function.
///
/// # Safety
/// As the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftruncate64(file: c_int, length: i64) -> c_int {
    let done = match fault_of_open(file) {
        Some(error) => failed(error),
        // SAFETY: the caller's arguments are passed on.
        None => unsafe { syscall(SYS_FTRUNCATE, c_long::from(file), length) },
    };
    done as c_int
}

/// Replaces the C library's function.
///
/// # Safety
/// As the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the caller passes a string that ends with a zero byte.
    let path = unsafe { std::ffi::CStr::from_ptr(from) }.to_bytes();
    let done = match fault_of(path) {
        Some(error) => failed(error),
        // SAFETY: the caller's arguments are passed on.
        None => unsafe { syscall(SYS_RENAME, from, to) },
    };
    done as c_int
}

/// Replaces the C library's function; the mode is an argument only if the file may be created.
///
/// # Safety
/// As the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: c_int) -> c_int {
    // SAFETY: the caller passes a string that ends with a zero byte.
    let name = unsafe { std::ffi::CStr::from_ptr(path) }.to_bytes();
    let changes = flags & WRITES != 0;
    let done = match fault_of(name).filter(|_| changes) {
        Some(error) => failed(error),
        // SAFETY: the caller's arguments are passed on.
        None => unsafe { syscall(SYS_OPEN, path, c_long::from(flags), c_long::from(mode)) },
    };
    done as c_int
}

/// Replaces the C library's function.
///
/// # Safety
/// As the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: c_int, time: *mut [i64; 2]) -> c_int {
    // SAFETY: the caller's arguments are passed on.
    let done = unsafe { syscall(SYS_CLOCK_GETTIME, c_long::from(clock), time) } as c_int;
    if let Some(files) = files().filter(|_| clock == REALTIME && done == 0) {
        let step = match (is_on(&files.ahead), is_on(&files.behind)) {
            (true, _) => YEAR_S,
            (_, true) => -YEAR_S,
            _ => 0,
        };
        // SAFETY: the caller's pointer is valid, since the call succeeded.
        unsafe { (*time)[0] += step };
    }
    done
}
