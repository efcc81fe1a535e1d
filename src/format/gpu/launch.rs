//! Arrays that a GPU holds for a layout, and the kernels that it launches for one product.
//!
//! A layout describes both as plain data; `cuda` uploads and launches them. So formats know nothing
//! of CUDA, and the CUDA code knows no format.

use std::borrow::Cow;

use super::super::Offsets;
use super::stored::{Element, StoredArray, StoredNumber};
use crate::format::narrow::StoredValue;

/// An argument of a kernel, in the order of its signature.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arg {
    /// The address of array `i` of [`OnDevice::arrays`].
    Array(usize),
    /// The address of buffer `i` of [`OnDevice::scratch`].
    Scratch(usize),
    /// The address of [`OnDevice::counters`].
    Counters,
    /// The address of array `i` that only the running conversion uses.
    Temporary(usize),
    /// The address of the row pointers of the CSR matrix that a GPU converts.
    RowPtr,
    /// The address of the column indices of that CSR matrix.
    ColIdx,
    /// The address of the values of that CSR matrix.
    Values,
    /// The address of x.
    X,
    /// The address of y.
    Y,
    /// With several vectors, the distance in elements between the rows of X.
    XRow,
    /// With several vectors, the distance in elements between the vectors of X.
    XVector,
    /// With several vectors, the distance in elements between the rows of Y.
    YRow,
    /// With several vectors, the distance in elements between the vectors of Y.
    YVector,
    /// The factor of A x, in the layout's precision.
    Alpha,
    /// The factor of y, in the layout's precision.
    Beta,
    /// 1 in the layout's precision: the factor of y where earlier launches have already written to
    /// it.
    One,
    /// The address of z, with dot products of y.
    Z,
    /// A bit for each of (y, x), (y, y), (y, z) and w = w + gamma y, set if it is computed.
    Wanted,
    /// The address of the partial sums of dot products.
    Parts,
    /// The address of w, to which gamma y is added.
    W,
    /// The factor gamma of y, in the layout's precision.
    Gamma,
    /// A 32-bit unsigned number.
    U32(u32),
    /// A 64-bit unsigned number.
    U64(u64),
}

/// One kernel launch of a product.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// The `.cu` file, without its ending.
    pub image: &'static str,
    /// The kernel's symbol. Where the image also has a kernel with this name and the ending
    /// `_resident`, that one runs if all blocks of the launch fit on the GPU at once.
    pub kernel: String,
    /// Number of blocks; 0 launches nothing.
    pub grid: u64,
    /// Threads per block.
    pub block: u32,
    /// Dynamic shared memory per block, in bytes.
    pub shared_bytes: u32,
    /// The arguments, in the order of the kernel's signature.
    pub args: Vec<Arg>,
}

/// Collects the arrays that a GPU holds for a layout, and the numbers that describe them.
#[derive(Debug, Default)]
pub(in crate::format) struct Arrays<'a> {
    arrays: Vec<StoredArray<'a>>,
    numbers: Vec<StoredNumber>,
}

impl<'a> Arrays<'a> {
    /// Adds an array of indices with the meaning of an element; returns its address.
    pub fn add<E: Element>(
        &mut self,
        name: &'static str,
        meaning: &'static str,
        array: &'a [E],
    ) -> Arg {
        self.push(StoredArray::of(name, meaning, array))
    }

    /// Adds an array of values of the matrix; returns its address.
    pub fn add_values<V: StoredValue>(
        &mut self,
        name: &'static str,
        meaning: &'static str,
        array: &'a [V],
    ) -> Arg {
        self.push(StoredArray::of_stored(name, meaning, array))
    }

    fn push(&mut self, array: StoredArray<'a>) -> Arg {
        self.arrays.push(array);
        Arg::Array(self.arrays.len() - 1)
    }

    /// Adds an array if there is one; returns its address, or null.
    pub fn add_some<E: Element>(
        &mut self,
        name: &'static str,
        meaning: &'static str,
        array: Option<&'a [E]>,
    ) -> Arg {
        array.map_or(NULL, |array| self.add(name, meaning, array))
    }

    /// Adds the order of stored rows, if there is one; returns its address, or null.
    pub fn add_row_order(&mut self, order: Option<&'a [u32]>) -> Arg {
        self.add_some("row_order", "row of y of each stored row", order)
    }

    /// Adds offsets; returns the addresses of the 32-bit and the 64-bit ones, of which one is null.
    pub fn add_offsets(
        &mut self,
        name: &'static str,
        meaning: &'static str,
        offsets: &'a Offsets,
    ) -> [Arg; 2] {
        let address = self.add_either(name, meaning, offsets);
        match offsets {
            Offsets::Narrow(_) => [address, NULL],
            Offsets::Wide(_) => [NULL, address],
        }
    }

    /// Adds offsets for a kernel that is compiled for their width.
    pub fn add_either(
        &mut self,
        name: &'static str,
        meaning: &'static str,
        offsets: &'a Offsets,
    ) -> Arg {
        match offsets {
            Offsets::Narrow(offsets) => self.add(name, meaning, offsets),
            Offsets::Wide(offsets) => self.add(name, meaning, offsets),
        }
    }

    /// Adds a number without which the arrays cannot be read.
    pub fn number(&mut self, name: &'static str, meaning: &'static str, value: usize) {
        let (name, value) = (Cow::Borrowed(name), value as u64);
        self.numbers.push(StoredNumber { name, meaning, value });
    }

    /// The GPU side of a layout with these arrays; `values` is the address that
    /// [`Arrays::add_values`] returned for the values.
    pub fn on_device(self, values: Arg, launches: Vec<Launch>) -> OnDevice<'a> {
        let Arg::Array(values) = values else { unreachable!("values are an array") };
        OnDevice {
            arrays: self.arrays,
            numbers: self.numbers,
            values: vec![values],
            scratch: Vec::new(),
            counters: 0,
            launches,
            vendor: None,
        }
    }
}

/// The null address.
pub(in crate::format) const NULL: Arg = Arg::U64(0);

/// The GPU side of a layout.
#[derive(Clone, Debug)]
pub struct OnDevice<'a> {
    /// Arrays to hold on the device.
    pub arrays: Vec<StoredArray<'a>>,
    /// Numbers without which the arrays cannot be read.
    pub numbers: Vec<StoredNumber>,
    /// Indices of the arrays that hold matrix values.
    pub values: Vec<usize>,
    /// Bytes of the scratch buffers that a product needs; it writes them before it reads them.
    pub scratch: Vec<u64>,
    /// Bytes of counters, which are 0 before and after each product.
    pub counters: u64,
    /// The launches of one product, in order on one stream.
    pub launches: Vec<Launch>,
    /// cuSPARSE's part in the product, which reads the first three arrays (offsets, columns,
    /// values); where present, `launches` is empty.
    pub vendor: Option<Vendor>,
}

/// A product by cuSPARSE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vendor {
    /// The algorithm that cuSPARSE runs.
    pub algorithm: Algorithm,
    /// Number of rows.
    pub nrows: u64,
    /// Number of columns.
    pub ncols: u64,
    /// Number of entries.
    pub nnz: u64,
    /// Slots for entries, padding included.
    pub slots: u64,
}

/// An algorithm of `cusparseSpMV`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// `CUSPARSE_SPMV_CSR_ALG1`.
    CsrAlg1,
    /// `CUSPARSE_SPMV_CSR_ALG2`.
    CsrAlg2,
    /// `CUSPARSE_SPMV_SELL_ALG1`, in slices of 32 rows.
    Sell,
    /// `CUSPARSE_SPMV_CSR_ALG1` for the product with the transpose of the stored matrix; only timed.
    CsrTransposed,
}

impl<'a> OnDevice<'a> {
    /// Puts `prefix` before the names of all arrays and numbers: those of one of several parts.
    pub(in crate::format) fn named(mut self, prefix: &str) -> Self {
        let arrays = self.arrays.iter_mut().map(|array| &mut array.name);
        for name in arrays.chain(self.numbers.iter_mut().map(|number| &mut number.name)) {
            *name = Cow::Owned(format!("{prefix}{name}"));
        }
        self
    }

    /// Appends the arrays and launches of `next`.
    pub(in crate::format) fn then(mut self, next: OnDevice<'a>) -> Self {
        let (arrays, scratch) = (self.arrays.len(), self.scratch.len());
        self.arrays.extend(next.arrays);
        self.numbers.extend(next.numbers);
        self.scratch.extend(next.scratch);
        self.counters = self.counters.max(next.counters);
        self.values.extend(next.values.into_iter().map(|i| i + arrays));
        for mut launch in next.launches {
            for arg in &mut launch.args {
                match arg {
                    Arg::Array(i) => *i += arrays,
                    Arg::Scratch(i) => *i += scratch,
                    _ => {}
                }
            }
            self.launches.push(launch);
        }
        self
    }
}

impl Launch {
    /// `threads` threads in blocks of `block`, without shared memory.
    pub fn over(
        image: &'static str,
        kernel: impl Into<String>,
        threads: u64,
        block: u32,
        args: Vec<Arg>,
    ) -> Self {
        let grid = threads.div_ceil(u64::from(block));
        Launch { image, kernel: kernel.into(), grid, block, shared_bytes: 0, args }
    }
}
