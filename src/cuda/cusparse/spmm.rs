//! Products with several vectors by `cusparseSpMM`.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::super::memory::{Memory, Queue};
use super::super::several::{Block, Product};
use super::{CusparseProduct, Handle, INDEX_32I, Library, SpmmFn, check};
use crate::error::Result;
use crate::format::{Algorithm, Vendor};
use crate::scalar::Scalar;

/// `CUSPARSE_SPMM_CSR_ALG1`, `_ALG2` and `_ALG3`.
const ALGORITHMS: [c_int; 3] = [4, 6, 12];

/// Products of each algorithm that are timed, after one that is not.
const TIMED: u32 = 3;

/// The form of the vectors of a product: their number, and for X and Y the leading dimension and
/// whether it is that of rows.
type Form = (i64, [(i64, bool); 2]);

/// A product prepared for one form of vectors, with the fastest of [`ALGORITHMS`].
pub(super) struct Plan {
    library: &'static Library,
    matrix: Handle,
    vectors: [Handle; 2],
    form: Form,
    algorithm: c_int,
    buffer: Option<Memory>,
}

// SAFETY: as for `CusparseProduct`.
unsafe impl Send for Plan {}

impl Drop for Plan {
    fn drop(&mut self) {
        // SAFETY: the library created each object, and each is destroyed once; null objects do not
        // exist. Products that still run use device memory only, which is freed in order.
        unsafe {
            for vectors in self.vectors.into_iter().filter(|v| !v.is_null()) {
                (self.library.destroy_dense)(vectors);
            }
            if !self.matrix.is_null() {
                (self.library.destroy_matrix)(self.matrix);
            }
        }
    }
}

impl CusparseProduct {
    /// Queues the product with `count` vectors; false if the library has none for this format or for
    /// vectors that are not aligned to 16 bytes. The first product with vectors of one form prepares it and waits.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if the library reports an error.
    ///
    /// # Safety
    /// As `CudaOperator::apply_raw`, for all vectors.
    pub(in crate::cuda) unsafe fn apply_many<T: Scalar>(
        &self,
        vendor: &Vendor,
        addresses: [u64; 3],
        count: u64,
        product: Product<T>,
    ) -> Result<bool> {
        let aligned = [product.x, product.y].into_iter().all(is_aligned::<T>);
        if vendor.algorithm == Algorithm::Sell || count < 2 || !aligned {
            return Ok(false);
        }
        let form = (count as i64, [product.x, product.y].map(leading));
        let mut plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        if plan.as_ref().is_none_or(|plan| plan.form != form) {
            *plan = None;
            let mut made = self.described(vendor, addresses, form)?;
            // SAFETY: by this function's own contract.
            unsafe { self.choose(&mut made, product)? };
            *plan = Some(made);
        }
        let Some(plan) = plan.as_ref() else { return Ok(false) };
        // SAFETY: by this function's own contract.
        unsafe { self.queue(plan, product)? };
        Ok(true)
    }

    /// Describes the matrix and the vectors.
    fn described(&self, vendor: &Vendor, addresses: [u64; 3], form: Form) -> Result<Plan> {
        let library = self.library;
        let (matrix, vectors) = (null_mut(), [null_mut(); 2]);
        let mut plan = Plan { library, matrix, vectors, form, algorithm: 0, buffer: None };
        let [rows, cols, nnz] = [vendor.nrows, vendor.ncols, vendor.nnz].map(|n| n as i64);
        let [offsets, columns, values] = addresses.map(|address| address as *mut c_void);
        let (index, value) = (INDEX_32I, self.value_type());
        // SAFETY: the arrays hold what the layout described and outlive this object; vectors get their
        // addresses before use.
        unsafe {
            let code = (library.create_csr)(
                &mut plan.matrix,
                rows,
                cols,
                nnz,
                offsets,
                columns,
                values,
                index,
                index,
                0,
                value,
            );
            check(code, "describing the matrix")?;
            let (count, forms) = form;
            for (i, (n, (leading, by_rows))) in [cols, rows].into_iter().zip(forms).enumerate() {
                // CUSPARSE_ORDER_COL is 1, CUSPARSE_ORDER_ROW 2.
                let order = if by_rows { 2 } else { 1 };
                let made = &mut plan.vectors[i];
                let code = (library.create_dense)(made, n, count, leading, values, value, order);
                check(code, "describing the vectors")?;
            }
        }
        Ok(plan)
    }

    /// Prepares and times each algorithm, and keeps the fastest; waits.
    ///
    /// # Safety
    /// As [`CusparseProduct::apply_many`].
    unsafe fn choose<T: Scalar>(&self, plan: &mut Plan, product: Product<T>) -> Result<()> {
        // Timed products overwrite a result of their own, because y may be read.
        let (count, [_, (leading, by_rows)]) = plan.form;
        let rows = self.rows as i64;
        let elements = leading * if by_rows { rows } else { count };
        let bytes = elements as u64 * size_of::<T>() as u64;
        let result = Memory::new(bytes, &self.queue)?;
        let y = Block { address: result.address(), ..product.y };
        let trial = Product { beta: T::ZERO, y, ..product };
        let mut best: Option<(Duration, c_int, Memory)> = None;
        for algorithm in ALGORITHMS {
            plan.algorithm = algorithm;
            // SAFETY: by this function's own contract.
            let Ok(buffer) = (unsafe { self.prepared(plan, trial) }) else { continue };
            plan.buffer = Some(buffer);
            let queue = |times: u32| -> Result<Duration> {
                let start = Instant::now();
                for _ in 0..times {
                    // SAFETY: by this function's own contract; the result has the form of y.
                    unsafe { self.queue(plan, trial)? };
                }
                synchronize(&self.queue)?;
                Ok(start.elapsed())
            };
            let Ok(taken) = queue(1).and_then(|_| queue(TIMED)) else { continue };
            let Some(buffer) = plan.buffer.take() else { continue };
            if best.as_ref().is_none_or(|(least, ..)| taken < *least) {
                best = Some((taken, algorithm, buffer));
            }
        }
        let Some((_, algorithm, buffer)) = best else {
            // CUSPARSE_STATUS_NOT_SUPPORTED.
            return check(10, "multiplying several vectors");
        };
        plan.algorithm = algorithm;
        plan.buffer = Some(buffer);
        // SAFETY: by this function's own contract.
        plan.buffer = Some(unsafe { self.prepared(plan, trial)? });
        synchronize(&self.queue)
    }

    /// Lets the library preprocess the matrix; returns its buffer.
    ///
    /// # Safety
    /// As [`CusparseProduct::apply_many`].
    unsafe fn prepared<T: Scalar>(&self, plan: &Plan, product: Product<T>) -> Result<Memory> {
        let mut bytes = 0;
        // SAFETY: by this function's own contract; the buffer has the size that the library asked for.
        unsafe {
            let code = self.step(self.library.spmm_buffer_size, plan, &product, &raw mut bytes)?;
            check(code, "asking for its buffer")?;
            let buffer = Memory::zeros(bytes.max(8) as u64, &self.queue)?;
            let at = buffer.address() as *mut c_void;
            let code = self.step(self.library.spmm_preprocess, plan, &product, at)?;
            check(code, "preprocessing")?;
            Ok(buffer)
        }
    }

    /// Queues a prepared product.
    ///
    /// # Safety
    /// As [`CusparseProduct::apply_many`].
    unsafe fn queue<T: Scalar>(&self, plan: &Plan, product: Product<T>) -> Result<()> {
        let buffer = plan.buffer.as_ref().map_or(0, Memory::address) as *mut c_void;
        // SAFETY: by this function's own contract.
        unsafe {
            let code = (self.library.set_stream)(self.handle, product.stream);
            check(code, "setting the stream")?;
            let code = self.step(self.library.spmm, plan, &product, buffer)?;
            check(code, "multiplying several vectors")
        }
    }

    /// Sets the addresses of the vectors and calls a step of a product; returns its status.
    ///
    /// # Safety
    /// As [`CusparseProduct::apply_many`]; `last` is what the step takes.
    unsafe fn step<T: Scalar, Last>(
        &self,
        step: SpmmFn<Last>,
        plan: &Plan,
        product: &Product<T>,
        last: Last,
    ) -> Result<c_int> {
        let [x, y] = plan.vectors;
        let [alpha, beta] =
            [&product.alpha, &product.beta].map(|factor| std::ptr::from_ref(factor).cast());
        let (matrix, value) = (plan.matrix, self.value_type());
        // SAFETY: all handles live as long as the plan, and the factors have the value type.
        unsafe {
            for (vectors, block) in [(x, product.x), (y, product.y)] {
                let code = (plan.library.set_dense)(vectors, block.address as *mut c_void);
                check(code, "setting the vectors")?;
            }
            let algorithm = plan.algorithm;
            Ok(step(self.handle, 0, 0, alpha, matrix, x, beta, y, value, algorithm, last))
        }
    }
}

/// Tells whether all columns or rows of vectors start at multiples of 16 bytes: kernels of the library
/// fault where they do not.
fn is_aligned<T>(block: Block) -> bool {
    let (leading, _) = leading(block);
    [block.address, leading as u64 * size_of::<T>() as u64].iter().all(|at| at.is_multiple_of(16))
}

/// Returns the leading dimension of vectors, and whether it is that of rows.
fn leading(block: Block) -> (i64, bool) {
    match block.row {
        1 => (block.vector as i64, false),
        row => (row as i64, true),
    }
}

fn synchronize(queue: &Queue) -> Result<()> {
    queue.synchronize().map_err(super::super::failed("waiting for cuSPARSE"))
}
