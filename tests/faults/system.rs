//! Calls of the system, for test programs that replace functions of the C library.

use std::ffi::{c_int, c_long};

unsafe extern "C" {
    pub fn syscall(number: c_long, ...) -> c_long;
    fn __errno_location() -> *mut c_int;
}

pub const SYS_WRITE: c_long = 1;
pub const SYS_PWRITE: c_long = 18;
pub const SYS_FTRUNCATE: c_long = 77;
pub const SYS_RENAME: c_long = 82;
const SYS_READLINK: c_long = 89;
pub const ENOSPC: c_int = 28;

/// Sets this thread's error number; returns the result of a call that failed.
pub fn failed(error: c_int) -> c_long {
    // SAFETY: the C library returns the address of this thread's error number.
    unsafe { *__errno_location() = error };
    -1
}

/// Calls `with` with the path of an open file; `None` if it has none. Allocates nothing.
pub fn with_path<R>(file: c_int, with: impl FnOnce(&[u8]) -> R) -> Option<R> {
    let mut name = *b"/proc/self/fd/\0\0\0\0\0\0\0\0\0\0\0\0";
    let mut digits = [0_u8; 10];
    let (mut rest, mut n) = (file.max(0), 0);
    while n == 0 || rest > 0 {
        digits[n] = b'0' + (rest % 10) as u8;
        (rest, n) = (rest / 10, n + 1);
    }
    for i in 0..n {
        name[14 + i] = digits[n - 1 - i];
    }
    let mut target = [0_u8; 1024];
    // SAFETY: both pointers are to arrays on this stack, of the given length.
    let length = unsafe { syscall(SYS_READLINK, name.as_ptr(), target.as_mut_ptr(), target.len()) };
    target.get(..usize::try_from(length).ok()?).map(with)
}
