//! Arrays that a GPU holds for a layout, and the kernels that it launches for one product.
//!
//! A layout describes both as plain data; `cuda` uploads and launches them. So formats know nothing
//! of CUDA, and the CUDA code knows no format.

use super::super::Offsets;

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
    /// The factor of A x, in the layout's precision.
    Alpha,
    /// The factor of y, in the layout's precision.
    Beta,
    /// 1 in the layout's precision: the factor of y where earlier launches have already written to
    /// it.
    One,
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

/// Collects the arrays that a GPU holds for a layout.
#[derive(Debug, Default)]
pub(in crate::format) struct Arrays<'a>(Vec<&'a [u8]>);

impl<'a> Arrays<'a> {
    /// Adds an array and returns its address.
    pub fn add<T: bytemuck::Pod>(&mut self, array: &'a [T]) -> Arg {
        self.0.push(bytemuck::cast_slice(array));
        Arg::Array(self.0.len() - 1)
    }

    /// Adds an array if there is one; returns its address, or null.
    pub fn add_some<T: bytemuck::Pod>(&mut self, array: Option<&'a [T]>) -> Arg {
        array.map_or(NULL, |array| self.add(array))
    }

    /// Adds offsets; returns the addresses of the 32-bit and the 64-bit ones, of which one is null.
    pub fn add_offsets(&mut self, offsets: &'a Offsets) -> [Arg; 2] {
        match offsets {
            Offsets::Narrow(offsets) => [self.add(offsets), NULL],
            Offsets::Wide(offsets) => [NULL, self.add(offsets)],
        }
    }

    /// Adds offsets for a kernel that is compiled for their width.
    pub fn add_either(&mut self, offsets: &'a Offsets) -> Arg {
        match offsets {
            Offsets::Narrow(offsets) => self.add(offsets),
            Offsets::Wide(offsets) => self.add(offsets),
        }
    }

    /// The GPU side of a layout with these arrays; `values` is the address that [`Arrays::add`]
    /// returned for the values.
    pub fn on_device(self, values: Arg, launches: Vec<Launch>) -> OnDevice<'a> {
        let Arg::Array(values) = values else { unreachable!("values are an array") };
        OnDevice {
            arrays: self.0,
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
    /// Arrays to hold on the device, as bytes.
    pub arrays: Vec<&'a [u8]>,
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
}

impl<'a> OnDevice<'a> {
    /// Appends the arrays and launches of `next`.
    pub(in crate::format) fn then(mut self, next: OnDevice<'a>) -> Self {
        let (arrays, scratch) = (self.arrays.len(), self.scratch.len());
        self.arrays.extend(next.arrays);
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
