//! What a GPU holds of a layout and what it launches for one product.
//!
//! A layout only describes this, as plain data; `cuda` uploads and launches. So formats
//! know nothing of CUDA, and the CUDA code knows no format.

use super::super::Offsets;

/// An argument of a kernel, in the order of its signature.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arg {
    /// The address of array `i` of [`OnDevice::arrays`].
    Array(usize),
    /// The address of buffer `i` of [`OnDevice::scratch`].
    Scratch(usize),
    /// The address of array `i` of a conversion that is under way.
    Temporary(usize),
    /// The addresses of the CSR matrix that a GPU converts: row pointers...
    RowPtr,
    /// ...columns...
    ColIdx,
    /// ...and values.
    Values,
    /// The address of x.
    X,
    /// The address of y.
    Y,
    /// The factor of A x, in the layout's precision.
    Alpha,
    /// The factor of y, in the layout's precision.
    Beta,
    /// 1 in the layout's precision: the factor of a y that launches before have begun.
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
    /// Blocks; 0 launches nothing.
    pub grid: u64,
    /// Threads of a block.
    pub block: u32,
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// Its arguments.
    pub args: Vec<Arg>,
}

/// Arrays that a GPU is to hold, as they are collected.
#[derive(Debug, Default)]
pub(in crate::format) struct Arrays<'a>(Vec<&'a [u8]>);

impl<'a> Arrays<'a> {
    /// Adds an array and gives its address.
    pub fn add<T: bytemuck::Pod>(&mut self, array: &'a [T]) -> Arg {
        self.0.push(bytemuck::cast_slice(array));
        Arg::Array(self.0.len() - 1)
    }

    /// Adds an array if there is one; its address, or null.
    pub fn add_some<T: bytemuck::Pod>(&mut self, array: Option<&'a [T]>) -> Arg {
        array.map_or(NULL, |array| self.add(array))
    }

    /// Adds offsets; the addresses of 32-bit and of 64-bit ones, of which one is null.
    pub fn add_offsets(&mut self, offsets: &'a Offsets) -> [Arg; 2] {
        match offsets {
            Offsets::Narrow(offsets) => [self.add(offsets), NULL],
            Offsets::Wide(offsets) => [NULL, self.add(offsets)],
        }
    }

    /// Adds offsets for a kernel that is made for their width.
    pub fn add_either(&mut self, offsets: &'a Offsets) -> Arg {
        match offsets {
            Offsets::Narrow(offsets) => self.add(offsets),
            Offsets::Wide(offsets) => self.add(offsets),
        }
    }

    /// The GPU side of a layout with these arrays; `values` is what [`Arrays::add`] gave for them.
    pub fn on_device(self, values: Arg, launches: Vec<Launch>) -> OnDevice<'a> {
        let Arg::Array(values) = values else { unreachable!("values are an array") };
        OnDevice {
            arrays: self.0,
            values: vec![values],
            scratch: Vec::new(),
            launches,
            vendor: None,
        }
    }
}

/// The address of nothing.
pub(in crate::format) const NULL: Arg = Arg::U64(0);

/// The GPU side of a layout.
#[derive(Clone, Debug)]
pub struct OnDevice<'a> {
    /// Arrays to hold on the device, as bytes.
    pub arrays: Vec<&'a [u8]>,
    /// Which of them hold matrix values.
    pub values: Vec<usize>,
    /// Bytes of the buffers that a product needs besides, and writes before it reads them.
    pub scratch: Vec<u64>,
    /// The launches of one product, in order on one stream.
    pub launches: Vec<Launch>,
    /// cuSPARSE's part in it, of the first three arrays (offsets, columns, values); it comes in
    /// place of launches.
    pub vendor: Option<Vendor>,
}

/// A product by cuSPARSE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vendor {
    /// Which of its algorithms.
    pub algorithm: Algorithm,
    /// Number of rows.
    pub nrows: u64,
    /// Number of columns.
    pub ncols: u64,
    /// Number of entries.
    pub nnz: u64,
    /// Places for entries, those of padding among them.
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
    /// These launches, then those of `next`.
    pub(in crate::format) fn then(mut self, next: OnDevice<'a>) -> Self {
        let (arrays, scratch) = (self.arrays.len(), self.scratch.len());
        self.arrays.extend(next.arrays);
        self.scratch.extend(next.scratch);
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
