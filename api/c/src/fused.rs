//! Products with dot products of their result, and with its multiple added to another vector.
#![allow(unsafe_code, reason = "callers pass addresses")]

use std::ffi::c_void;

use ellect::dots::{DotWith, Fused};
use ellect::{PreparedOperator, Scalar};

use crate::input::{Descriptor, count, descriptor, object, overlap, slice, slice_mut};
use crate::operator::{EllectOperator, each};
use crate::status::{Failure, Outcome, Status, boundary};

/// The dot product (y, x), of a square matrix.
pub const ELLECT_DOT_X: i32 = 0;
/// The dot product (y, y).
pub const ELLECT_DOT_Y: i32 = 1;
/// The dot product (y, z).
pub const ELLECT_DOT_Z: i32 = 2;

/// A list of what a product computes of the new y in the same pass: up to 3 dot products, and
/// w = w + gamma y. Set `struct_size` to `sizeof(ellect_fused)`; zeros ask for nothing.
///
/// Vectors and results are of the operator's value type. y, w and the results overlap no other vector.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EllectFused {
    /// `sizeof(ellect_fused)`.
    pub struct_size: usize,
    /// The dot products, `dots` numbers: `ELLECT_DOT_X`, `ELLECT_DOT_Y` or `ELLECT_DOT_Z`, which occurs at
    /// most once. Always in host memory.
    pub with: *const i32,
    /// Number of dot products, up to 3.
    pub dots: i32,
    /// Not 0: the product is with the transpose, as of `ellect_apply_transposed`.
    pub transposed: i32,
    /// The results, `dots` values in the order of `with`.
    pub results: *mut c_void,
    /// The vector z of `ELLECT_DOT_Z`.
    pub z: *const c_void,
    /// Length of z: that of y.
    pub z_len: i64,
    /// Factor of y in w = w + gamma y.
    pub gamma: f64,
    /// The vector w; NULL if none is to change.
    pub w: *mut c_void,
    /// Length of w: that of y.
    pub w_len: i64,
}

// SAFETY: `repr(C)`, begins with its size; numbers and raw pointers are valid for all bytes.
unsafe impl Descriptor for EllectFused {
    const NAME: &'static str = "ellect_fused";
}

impl EllectFused {
    /// Returns the list of dot products, with `z` as the other vector.
    ///
    /// # Safety
    /// `with` is the address of `dots` numbers.
    pub unsafe fn list<V: Copy>(&self, z: V) -> Outcome<Vec<DotWith<V>>> {
        // SAFETY: by this function's own contract.
        let with: &[i32] = unsafe { slice(self.with.cast(), self.dots.into(), "with")? };
        let one = |(i, with): (usize, &i32)| match *with {
            ELLECT_DOT_X => Ok(DotWith::X),
            ELLECT_DOT_Y => Ok(DotWith::Y),
            ELLECT_DOT_Z => Ok(DotWith::Z(z)),
            other => Err(Failure::argument(format!(
                "with[{i}] is {other}; it must be ELLECT_DOT_X (0), ELLECT_DOT_Y (1) or ELLECT_DOT_Z (2)"
            ))),
        };
        with.iter().enumerate().map(one).collect()
    }

    /// Tells whether z is read.
    ///
    /// # Safety
    /// As [`EllectFused::list`].
    pub unsafe fn reads_z(&self) -> Outcome<bool> {
        // SAFETY: by this function's own contract.
        Ok(unsafe { self.list(())? }.contains(&DotWith::Z(())))
    }

    /// Returns names, addresses and lengths of the vectors that are there: x, z if it is read, y, the
    /// results and w.
    ///
    /// # Safety
    /// As [`EllectFused::list`].
    pub unsafe fn vectors(&self, x: (usize, i64), y: (usize, i64)) -> Outcome<Vec<Named>> {
        let mut vectors = vec![("x", x.0, x.1), ("y", y.0, y.1)];
        // SAFETY: by this function's own contract.
        if unsafe { self.reads_z()? } {
            vectors.push(("z", self.z.addr(), self.z_len));
        }
        if self.dots > 0 {
            vectors.push(("results", self.results.addr(), self.dots.into()));
        }
        if !self.w.is_null() {
            vectors.push(("w", self.w.addr(), self.w_len));
        }
        Ok(vectors)
    }
}

/// Name, address and length of a vector.
pub type Named = (&'static str, usize, i64);

/// Checks that vectors that are written overlap no other one; elements have `bytes` bytes.
pub fn check_apart(vectors: &[Named], bytes: usize) -> Outcome<()> {
    for (i, &(one, at, len)) in vectors.iter().enumerate() {
        let len = count(len, format_args!("the length of {one}"))?;
        for &(other, other_at, other_len) in &vectors[..i] {
            let are_read = ["x", "z"].contains(&one) && ["x", "z"].contains(&other);
            let other_len = count(other_len, format_args!("the length of {other}"))?;
            if !are_read && overlap((at, len), (other_at, other_len), bytes) {
                return Err(Failure::argument(format!(
                    "{other} and {one} overlap; pass two vectors that do not"
                )));
            }
        }
    }
    Ok(())
}

/// Multiplies vectors in host memory.
///
/// # Safety
/// As `ellect_apply_fused`.
unsafe fn multiply<T: Scalar>(
    operator: &PreparedOperator<T>,
    (alpha, x, x_len): (f64, *const c_void, i64),
    (beta, y, y_len): (f64, *mut c_void, i64),
    fused: &EllectFused,
) -> Outcome<()> {
    // SAFETY: by this function's own contract; the vectors that are written overlap no other one.
    let (x, y, with, results, w) = unsafe {
        check_apart(&fused.vectors((x.addr(), x_len), (y.addr(), y_len))?, size_of::<T>())?;
        let z = if fused.reads_z()? { slice(fused.z, fused.z_len, "z")? } else { &[] };
        (
            slice(x, x_len, "x")?,
            slice_mut(y, y_len, "y")?,
            fused.list(z)?,
            slice_mut(fused.results, fused.dots.into(), "results")?,
            if fused.w.is_null() { None } else { Some(slice_mut(fused.w, fused.w_len, "w")?) },
        )
    };
    let (alpha, beta, gamma) = (T::from_f64(alpha), T::from_f64(beta), T::from_f64(fused.gamma));
    let add = w.map(|w| (gamma, w));
    let fused = Fused { with: &with, results: Some(results), add };
    Ok(operator.apply_fused(alpha, x, beta, y, fused)?)
}

/// Computes y = alpha A x + beta y for vectors in host memory, as `ellect_apply` does, and of the new y
/// what `fused` asks for: dot products, and w = w + gamma y.
///
/// Products of elements are added in double precision, always in the same order.
///
/// The vectors stay the caller's. Thread safety: on the host, any number of threads at a time.
///
/// Fails as `ellect_apply`, with `ELLECT_INVALID_ARGUMENT` for more than 3 dot products, for one with x
/// where the matrix is not square, and if a transpose is wanted that was not prepared.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ellect_apply_fused(
    op: *const EllectOperator,
    alpha: f64,
    x: *const c_void,
    x_len: i64,
    beta: f64,
    y: *mut c_void,
    y_len: i64,
    fused: *const EllectFused,
) -> Status {
    boundary(|| {
        // SAFETY: the caller passes an operator and the address of a structure.
        let (operator, fused) = unsafe { (object(op, "operator")?, descriptor(fused)?) };
        let prepared = operator.read();
        let _turn = operator.on_gpu.alone(&prepared)?;
        let (x, y) = ((alpha, x, x_len), (beta, y, y_len));
        // SAFETY: the caller passes vectors of the operator's value type and of these lengths.
        each!(&*prepared, operator => unsafe {
            multiply(operator.direction(fused.transposed != 0)?, x, y, &fused)
        })
    })
}

/// Queues y = alpha A x + beta y on a stream, as `ellect_apply_device` does, and of the new y what `fused`
/// asks for: dot products, and w = w + gamma y. The vectors of `fused` and its results are in the memory of
/// the operator's GPU too.
///
/// Some formats have a kernel that computes all in the pass of the product; others need one more
/// pass over the vectors. The first call allocates memory and waits; make one before products are captured
/// in a graph. Streams and threads: as `ellect_apply_device`.
///
/// The vectors stay the caller's, valid until the product has ended.
///
/// Fails as `ellect_apply_fused` and `ellect_apply_device`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ellect_apply_fused_device(
    op: *const EllectOperator,
    alpha: f64,
    x: *const c_void,
    x_len: i64,
    beta: f64,
    y: *mut c_void,
    y_len: i64,
    fused: *const EllectFused,
    stream: *mut c_void,
) -> Status {
    boundary(|| {
        // SAFETY: the caller passes an operator and the address of a structure.
        let (operator, fused) = unsafe { (object(op, "operator")?, descriptor(fused)?) };
        let (x, y) = ((alpha, x, x_len), (beta, y, y_len));
        // SAFETY: the caller passes vectors and a stream of the operator's GPU.
        unsafe { operator.on_gpu.queue_fused(&operator.read(), x, y, &fused, stream) }
    })
}
