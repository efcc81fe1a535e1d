//! Arguments of C callers: handles, arrays, texts and descriptors.
#![allow(unsafe_code, reason = "callers pass addresses")]

use std::ffi::{CStr, CString, c_char, c_void};
use std::fmt::Display;
use std::mem::MaybeUninit;
use std::path::PathBuf;

use ellect::Precision;

use crate::status::{ELLECT_SHAPE, Failure, Outcome};

/// Values are `float`.
pub const ELLECT_F32: i32 = 1;
/// Values are `double`.
pub const ELLECT_F64: i32 = 2;

/// Reads a value type.
pub fn precision(value_type: i32) -> Outcome<Precision> {
    match value_type {
        ELLECT_F32 => Ok(Precision::F32),
        ELLECT_F64 => Ok(Precision::F64),
        other => Err(Failure::argument(format!(
            "value_type is {other}; it must be ELLECT_F32 (1) or ELLECT_F64 (2)"
        ))),
    }
}

/// Borrows the object of a handle.
///
/// # Safety
/// `handle` is NULL, or a live handle of this type.
pub unsafe fn object<'a, T>(handle: *const T, what: &str) -> Outcome<&'a T> {
    // SAFETY: by this function's own contract.
    unsafe { handle.as_ref() }.ok_or_else(|| Failure::null(what))
}

/// Clears the place of a result, so that callers find NULL in it after a failure.
///
/// # Safety
/// `place` is NULL, or the address of a pointer.
pub unsafe fn place<'a, T>(place: *mut *mut T, what: &str) -> Outcome<&'a mut *mut T> {
    if place.is_null() {
        return Err(Failure::null(what));
    }
    // SAFETY: by this function's own contract; the pointer may be uninitialised.
    unsafe {
        place.write(std::ptr::null_mut());
        Ok(&mut *place)
    }
}

/// Reads a count of a caller.
pub fn count(count: i64, what: impl Display) -> Outcome<usize> {
    usize::try_from(count)
        .map_err(|_| Failure::argument(format!("{what} is {count}; it must be 0 or more")))
}

/// Checks the address and the length of an array of `T`.
fn check<T>(at: *const c_void, len: i64, what: &str) -> Outcome<usize> {
    let len = count(len, format_args!("the length of {what}"))?;
    if len > 0 && at.is_null() {
        return Err(Failure::null(what));
    }
    if len > isize::MAX as usize / size_of::<T>() {
        let message = format!("{what} has length {len}, more than memory holds; correct it");
        return Err(Failure::new(ELLECT_SHAPE, message));
    }
    if !at.addr().is_multiple_of(align_of::<T>()) {
        return Err(Failure::argument(format!(
            "{what} is at {at:p}; its address must be a multiple of {}",
            align_of::<T>()
        )));
    }
    Ok(len)
}

/// An array of a caller, which keeps it valid and unchanged.
pub struct Array<T> {
    at: *const T,
    len: usize,
}

// SAFETY: the array is only read, and its owner promised not to change it.
unsafe impl<T: Sync> Send for Array<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Array<T> {}

impl<T> Array<T> {
    /// Checks the address and the length of an array.
    ///
    /// # Safety
    /// `at` is the address of `len` numbers that stay valid as long as this exists, unless this
    /// function refuses it.
    pub unsafe fn new(at: *const c_void, len: i64, what: &str) -> Outcome<Self> {
        Ok(Array { at: at.cast(), len: check::<T>(at, len, what)? })
    }

    pub fn as_slice(&self) -> &[T] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: by the contract of `new`, which checked address and length.
        unsafe { std::slice::from_raw_parts(self.at, self.len) }
    }
}

/// Borrows an array for reading during a call.
///
/// # Safety
/// As [`Array::new`], for the time of the call.
pub unsafe fn slice<'a, T>(at: *const c_void, len: i64, what: &str) -> Outcome<&'a [T]> {
    match check::<T>(at, len, what)? {
        0 => Ok(&[]),
        // SAFETY: by this function's own contract.
        len => Ok(unsafe { std::slice::from_raw_parts(at.cast(), len) }),
    }
}

/// Borrows an array for writing during a call.
///
/// # Safety
/// As [`Array::new`], for the time of the call, during which nothing else uses the array.
pub unsafe fn slice_mut<'a, T>(at: *mut c_void, len: i64, what: &str) -> Outcome<&'a mut [T]> {
    match check::<T>(at, len, what)? {
        0 => Ok(&mut []),
        // SAFETY: by this function's own contract.
        len => Ok(unsafe { std::slice::from_raw_parts_mut(at.cast(), len) }),
    }
}

/// Tells whether two arrays overlap; x and y are their addresses and lengths, in elements of `bytes` bytes.
pub fn overlap(x: (usize, usize), y: (usize, usize), bytes: usize) -> bool {
    let ends = [x, y].map(|(at, len)| at.saturating_add(len.saturating_mul(bytes)));
    x.0 < ends[1] && y.0 < ends[0] && x.1 > 0 && y.1 > 0
}

/// Checks that x and y do not overlap; see [`overlap`].
pub fn apart(x: (usize, usize), y: (usize, usize), bytes: usize) -> Outcome<()> {
    if overlap(x, y, bytes) {
        return Err(Failure::argument("x and y overlap; pass two vectors that do not"));
    }
    Ok(())
}

/// Reads a text of a caller.
///
/// # Safety
/// `text` is NULL or ends with a zero byte.
pub unsafe fn text<'a>(text: *const c_char, what: &str) -> Outcome<&'a str> {
    if text.is_null() {
        return Err(Failure::null(what));
    }
    // SAFETY: by this function's own contract.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Failure::argument(format!("{what} is not UTF-8; convert it")))
}

/// Reads a path of a caller; `None` for NULL.
///
/// # Safety
/// As [`text`].
pub unsafe fn path(path: *const c_char, what: &str) -> Outcome<Option<PathBuf>> {
    if path.is_null() {
        return Ok(None);
    }
    // SAFETY: by this function's own contract.
    unsafe { text(path, what) }.map(|path| Some(PathBuf::from(path)))
}

/// A plain structure that begins with its own size; all zeros are its defaults.
///
/// # Safety
/// The type is `repr(C)`, begins with a `usize`, and is valid for all bytes.
pub unsafe trait Descriptor: Copy {
    /// Name in C.
    const NAME: &'static str;
    /// Size in the first version, in bytes; later ones append fields.
    const SMALLEST: usize = size_of::<Self>();
}

/// Reads a descriptor of a caller whose header may be older or newer than this library: fields that
/// one side does not know must be zero.
///
/// # Safety
/// `at` is NULL, or the address of a structure of this kind of the size that its first field says.
pub unsafe fn descriptor<T: Descriptor>(at: *const T) -> Outcome<T> {
    let (own, name) = (size_of::<T>(), T::NAME);
    if at.is_null() {
        return Err(Failure::null(name));
    }
    // SAFETY: every descriptor begins with its size.
    let size = unsafe { at.cast::<usize>().read() };
    if size < T::SMALLEST || size > own + 4096 {
        return Err(Failure::argument(format!(
            "struct_size of {name} is {size}; set it to sizeof({name}), {own} in this version"
        )));
    }
    let known = size.min(own);
    // SAFETY: the structure has `size` bytes, by this function's own contract.
    let newer = unsafe { std::slice::from_raw_parts(at.cast::<u8>().add(known), size - known) };
    if newer.iter().any(|&byte| byte != 0) {
        return Err(Failure::argument(format!(
            "{name} sets fields of a newer header than this library, version {}; load a newer library",
            env!("CARGO_PKG_VERSION")
        )));
    }
    let mut read = MaybeUninit::<T>::zeroed();
    // SAFETY: the structure has at least `known` bytes, and `T` is valid for all bytes.
    unsafe {
        read.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(at.cast(), known);
        Ok(read.assume_init())
    }
}

/// Hands a text over to the caller, who frees it with `ellect_string_destroy`.
pub fn give(text: String, to: &mut *mut c_char) -> Outcome<()> {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    *to = text.into_raw();
    Ok(())
}
