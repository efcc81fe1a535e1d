//! What a GPU holds of a layout and what it launches for one product.
//!
//! A layout only describes this, as plain data; `device::cuda` uploads and launches. So formats
//! know nothing of CUDA, and the CUDA code knows no format.

/// An argument of a kernel, in the order of its signature.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arg {
    /// The address of array `i` of [`OnDevice::arrays`].
    Array(usize),
    /// The address of buffer `i` of [`OnDevice::scratch`].
    Scratch(usize),
    /// The address of x.
    X,
    /// The address of y.
    Y,
    /// The factor of A x, in the layout's precision.
    Alpha,
    /// The factor of y, in the layout's precision.
    Beta,
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
    /// The kernel's symbol.
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

/// The GPU side of a layout.
#[derive(Clone, Debug)]
pub struct OnDevice<'a> {
    /// Arrays to hold on the device, as bytes.
    pub arrays: Vec<&'a [u8]>,
    /// Which of them holds the matrix values.
    pub values: usize,
    /// Bytes of the buffers that a product needs besides.
    pub scratch: Vec<u64>,
    /// The launches of one product, in order on one stream.
    pub launches: Vec<Launch>,
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
