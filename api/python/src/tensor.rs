//! Tensors of other libraries, taken by the DLPack protocol.
#![allow(unsafe_code, reason = "a tensor of another library is a C structure")]

use std::ffi::{CStr, c_int, c_void};
use std::ptr::{NonNull, null_mut};

use ellect::Error;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::errors::exception;

/// Name of a capsule, and the name that it gets once its tensor is taken.
const PLAIN: [&CStr; 2] = [c"dltensor", c"used_dltensor"];

/// The names of a capsule whose tensor has a version.
const VERSIONED: [&CStr; 2] = [c"dltensor_versioned", c"used_dltensor_versioned"];

/// Major version of the structure that this module reads.
const MAJOR: u32 = 1;

/// Flag of a tensor that may not be written.
const READ_ONLY: u64 = 1;

/// Maximum number of dimensions of a buffer.
const MAX_DIMENSIONS: i32 = 64;

/// A tensor as the protocol lays it out in memory.
#[repr(C)]
struct Raw {
    data: *mut c_void,
    device: [i32; 2],
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

/// A tensor with the means to give it back.
#[repr(C)]
struct Managed {
    tensor: Raw,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

/// A managed tensor of version 1 and later.
#[repr(C)]
struct ManagedVersioned {
    version: [u32; 2],
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut ManagedVersioned)>,
    flags: u64,
    tensor: Raw,
}

/// The structure that a capsule held.
enum Owner {
    Plain(NonNull<Managed>),
    Versioned(NonNull<ManagedVersioned>),
}

impl Drop for Owner {
    fn drop(&mut self) {
        // SAFETY: this tensor was taken from its capsule, so that it is given back here only.
        unsafe {
            match self {
                Owner::Plain(managed) => {
                    if let Some(delete) = managed.as_ref().deleter {
                        delete(managed.as_ptr());
                    }
                }
                Owner::Versioned(managed) => {
                    if let Some(delete) = managed.as_ref().deleter {
                        delete(managed.as_ptr());
                    }
                }
            }
        }
    }
}

/// A tensor of another library, held until this object is freed. One in the host's memory is a
/// buffer.
#[pyclass(frozen, module = "ellect._ellect")]
pub struct Tensor {
    /// Kind of the device and its index, as `__dlpack_device__` gives them.
    #[pyo3(get)]
    device: (i32, i32),
    /// Address of the first element.
    #[pyo3(get)]
    address: usize,
    /// Length of each dimension.
    shape: Vec<isize>,
    /// Bytes from one element to the next, in each dimension.
    strides: Vec<isize>,
    itemsize: usize,
    format: &'static CStr,
    /// True if the elements may not be written.
    #[pyo3(get)]
    readonly: bool,
    /// Gives the tensor back when it is dropped.
    _owner: Owner,
}

// SAFETY: the structure is only read, and the protocol lets any thread give it back.
unsafe impl Send for Tensor {}
// SAFETY: as for `Send`; nothing changes once the object exists.
unsafe impl Sync for Tensor {}

fn fault(what: impl Into<String>) -> PyErr {
    exception(Error::argument(what))
}

/// Takes the tensor out of a capsule; the capsule's name then tells that it is taken.
fn taken(capsule: &Bound<'_, PyAny>) -> PyResult<Owner> {
    let raw = capsule.as_ptr();
    for ([name, used], is_plain) in [(PLAIN, true), (VERSIONED, false)] {
        // SAFETY: the pointer is of a live object; the call checks its type and name.
        if unsafe { ffi::PyCapsule_IsValid(raw, name.as_ptr()) } == 0 {
            continue;
        }
        // SAFETY: the capsule is valid under this name.
        let pointer = unsafe { ffi::PyCapsule_GetPointer(raw, name.as_ptr()) };
        let pointer = NonNull::new(pointer).ok_or_else(|| PyErr::fetch(capsule.py()))?;
        // SAFETY: the capsule is valid; the new name lives as long as the program.
        if unsafe { ffi::PyCapsule_SetName(raw, used.as_ptr()) } != 0 {
            return Err(PyErr::fetch(capsule.py()));
        }
        return Ok(match is_plain {
            true => Owner::Plain(pointer.cast()),
            false => Owner::Versioned(pointer.cast()),
        });
    }
    Err(fault(
        "__dlpack__ returned no unused capsule of a tensor; it must return a new one each time",
    ))
}

/// Returns the buffer format of elements of this type, if Python has one.
fn format(code: u8, bits: u8) -> Option<&'static CStr> {
    Some(match (code, bits) {
        (0, 8) => c"b",
        (0, 16) => c"h",
        (0, 32) => c"i",
        (0, 64) => c"q",
        (1, 8) => c"B",
        (1, 16) => c"H",
        (1, 32) => c"I",
        (1, 64) => c"Q",
        (2, 16) => c"e",
        (2, 32) => c"f",
        (2, 64) => c"d",
        (5, 64) => c"Zf",
        (5, 128) => c"Zd",
        (6, 8) => c"?",
        _ => return None,
    })
}

/// Bytes from one element to the next where rows follow each other.
fn plain_strides(shape: &[isize], itemsize: usize) -> Vec<isize> {
    let mut step = itemsize as isize;
    let mut strides = vec![0; shape.len()];
    for (stride, length) in strides.iter_mut().zip(shape).rev() {
        *stride = step;
        step = step.saturating_mul((*length).max(1));
    }
    strides
}

impl Tensor {
    fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    fn bytes(&self) -> isize {
        self.shape.iter().product::<isize>().saturating_mul(self.itemsize as isize)
    }
}

#[pymethods]
impl Tensor {
    /// Takes the tensor of a capsule that `__dlpack__` returned.
    #[new]
    fn new(capsule: &Bound<'_, PyAny>) -> PyResult<Self> {
        let owner = taken(capsule)?;
        // SAFETY: a capsule of this name holds such a structure, which the owner keeps alive. The
        // version and what gives the tensor back have the same place in all versions.
        let (raw, flags) = unsafe {
            match &owner {
                Owner::Plain(managed) => (&managed.as_ref().tensor, 0),
                Owner::Versioned(managed) => {
                    let [major, minor] = managed.as_ref().version;
                    if major != MAJOR {
                        return Err(fault(format!(
                            "the tensor has version {major}.{minor} of DLPack; it must be {MAJOR}.x"
                        )));
                    }
                    (&managed.as_ref().tensor, managed.as_ref().flags)
                }
            }
        };
        let found = format(raw.code, raw.bits).filter(|_| raw.lanes == 1);
        let format = found.ok_or_else(|| {
            fault(format!(
                "the tensor has elements of DLPack type {}, {} bits and {} lanes; convert it to \
                 float32 or float64",
                raw.code, raw.bits, raw.lanes
            ))
        })?;
        if !(0..=MAX_DIMENSIONS).contains(&raw.ndim) {
            return Err(fault(format!(
                "the tensor has {} dimensions; it must have 1 or 2",
                raw.ndim
            )));
        }
        let lengths = |from: *const i64| match raw.ndim {
            0 => &[][..],
            // SAFETY: the producer gives one number for each dimension.
            ndim => unsafe { std::slice::from_raw_parts(from, ndim as usize) },
        };
        let itemsize = usize::from(raw.bits) / 8;
        let shape: Vec<isize> = lengths(raw.shape).iter().map(|&length| length as isize).collect();
        let strides = match raw.strides.is_null() {
            true => plain_strides(&shape, itemsize),
            false => {
                let steps = lengths(raw.strides).iter();
                steps.map(|&step| (step as isize).saturating_mul(itemsize as isize)).collect()
            }
        };
        Ok(Tensor {
            device: raw.device.into(),
            address: raw.data as usize + raw.byte_offset as usize,
            shape,
            strides,
            itemsize,
            format,
            readonly: flags & READ_ONLY != 0,
            _owner: owner,
        })
    }

    /// Length of each dimension.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, pyo3::types::PyTuple>> {
        pyo3::types::PyTuple::new(py, &self.shape)
    }

    /// Type of the elements as a letter of Python's buffers: `f` and `d` are 32 and 64 bits.
    #[getter]
    fn format(&self) -> &'static str {
        self.format.to_str().unwrap_or_default()
    }

    /// True if the elements follow each other, row by row.
    #[getter]
    fn contiguous(&self) -> bool {
        let plain = plain_strides(&self.shape, self.itemsize);
        let mut pairs = self.shape.iter().zip(self.strides.iter().zip(&plain));
        self.is_empty() || pairs.all(|(length, (own, plain))| *length == 1 || own == plain)
    }

    /// Shows the elements as a buffer.
    ///
    /// # Safety
    /// `view` is a buffer structure that the caller owns.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let own = slf.get();
        if view.is_null() {
            return Err(PyBufferError::new_err("there is no buffer to fill"));
        }
        let is_wanted = |flag: c_int| flags & flag == flag;
        if own.readonly && is_wanted(ffi::PyBUF_WRITABLE) {
            return Err(PyBufferError::new_err("the tensor is read-only"));
        }
        if !is_wanted(ffi::PyBUF_STRIDES) && !own.contiguous() {
            return Err(PyBufferError::new_err("the tensor is not contiguous"));
        }
        // An empty buffer may have no address, but its users expect one.
        static NOTHING: u64 = 0;
        let data = match own.address {
            0 => (&raw const NOTHING).cast_mut().cast(),
            address => address as *mut c_void,
        };
        let vector = |numbers: &[isize], flag| match is_wanted(flag) {
            true => numbers.as_ptr().cast_mut(),
            false => null_mut(),
        };
        // SAFETY: the caller gives a buffer structure to fill. Its pointers lead into this object,
        // which the buffer keeps alive and which never changes.
        unsafe {
            (*view).buf = data;
            (*view).len = own.bytes();
            (*view).readonly = own.readonly.into();
            (*view).itemsize = own.itemsize as isize;
            (*view).format = match is_wanted(ffi::PyBUF_FORMAT) {
                true => own.format.as_ptr().cast_mut(),
                false => null_mut(),
            };
            (*view).ndim = own.shape.len() as c_int;
            (*view).shape = vector(&own.shape, ffi::PyBUF_ND);
            (*view).strides = vector(&own.strides, ffi::PyBUF_STRIDES);
            (*view).suboffsets = null_mut();
            (*view).internal = null_mut();
            (*view).obj = slf.into_ptr();
        }
        Ok(())
    }
}
