//! Kernels with their arguments, ready to launch.

use std::ffi::c_void;
use std::sync::Arc;

use cust::sys as cuda;

use super::memory::Queue;
use super::overlap::ProgrammaticLaunch;
use super::{Gpu, Kernels, check, failed, signatures};
use crate::error::{DeviceFault, Error, Result};
use crate::format::{Arg, Format, Launch, Several};
use crate::scalar::Scalar;

/// Maximum number of arguments of a kernel.
const MAX_ARGS: usize = 28;

/// One argument of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ArgWord {
    Fixed(u64),
    X,
    Y,
    /// The new values during an update of values.
    Values,
    Alpha,
    Beta,
    One,
    /// Number `i` of [`Vectors::strides`].
    Stride(usize),
    /// Number `i` of [`Vectors::dots`].
    Dots(usize),
}

/// Resolves an argument that is not an array of the operator or the matrix.
///
/// # Panics
/// If `arg` is such an array; callers resolve those first.
pub(super) fn plain(arg: Arg) -> ArgWord {
    match arg {
        Arg::U32(n) => ArgWord::Fixed(u64::from(n)),
        Arg::U64(n) => ArgWord::Fixed(n),
        Arg::X => ArgWord::X,
        Arg::Y => ArgWord::Y,
        Arg::Alpha => ArgWord::Alpha,
        Arg::Beta => ArgWord::Beta,
        Arg::One => ArgWord::One,
        Arg::XRow => ArgWord::Stride(0),
        Arg::XVector => ArgWord::Stride(1),
        Arg::YRow => ArgWord::Stride(2),
        Arg::YVector => ArgWord::Stride(3),
        Arg::Z => ArgWord::Dots(0),
        Arg::Wanted => ArgWord::Dots(1),
        Arg::Parts => ArgWord::Dots(2),
        Arg::W => ArgWord::Dots(3),
        Arg::Gamma => ArgWord::Dots(4),
        Arg::Array(_)
        | Arg::Temporary(_)
        | Arg::Scratch(_)
        | Arg::Counters
        | Arg::RowPtr
        | Arg::ColIdx
        | Arg::Values => unreachable!("{arg:?} has an address of its own"),
    }
}

/// The vectors of a launch.
#[derive(Clone, Copy, Default)]
pub(super) struct Vectors {
    /// Addresses of x, y and new values.
    pub addresses: [cuda::CUdeviceptr; 3],
    /// With several vectors, the distances in elements between rows of X, vectors of X, rows of Y and
    /// vectors of Y.
    pub strides: [u64; 4],
    /// With dot products of y, the address of z, what is wanted, the addresses of the partial sums and
    /// of w, and the bits of gamma.
    pub dots: [u64; 5],
}

impl From<[cuda::CUdeviceptr; 3]> for Vectors {
    fn from(addresses: [cuda::CUdeviceptr; 3]) -> Self {
        Vectors { addresses, ..Vectors::default() }
    }
}

/// A kernel with its arguments, ready to launch.
pub(super) struct PreparedLaunch {
    function: cuda::CUfunction,
    kernel: String,
    grid: u32,
    block: u32,
    shared_bytes: u32,
    args: Vec<ArgWord>,
    image: &'static str,
    /// Set if the kernel's start overlaps with the end of previous work in the stream.
    programmatic: Option<ProgrammaticLaunch>,
    _kernels: Arc<Kernels>,
    /// Keeps the module's context alive.
    _queue: Arc<Queue>,
}

// SAFETY: a kernel belongs to its module, and any thread may launch it.
unsafe impl Send for PreparedLaunch {}
// SAFETY: as above; nothing in it changes.
unsafe impl Sync for PreparedLaunch {}

impl PreparedLaunch {
    /// Prepares a launch; `None` if it has no blocks.
    ///
    /// # Errors
    /// [`Error::Device`] if there is no such kernel, or it needs more than the device has.
    pub fn new(gpu: &Gpu, launch: &Launch, word: impl Fn(Arg) -> ArgWord) -> Result<Option<Self>> {
        debug_assert_eq!(
            gpu.module(launch.image).map(|k| signatures::check_launch(k.image, launch, None)).ok(),
            Some(Ok(()))
        );
        PreparedLaunch::loaded(gpu, launch, word)
    }

    /// Prepares the launch for several vectors in place of this one; `None` if the format has no such
    /// kernel. It is launched by [`PreparedLaunch::launch_after`].
    ///
    /// # Errors
    /// As [`PreparedLaunch::new`].
    pub fn several(
        &self,
        gpu: &Gpu,
        format: &Format,
        several: Several,
    ) -> Result<Option<PreparedLaunch>> {
        Self::in_place(gpu, format.several(&self.described(), several))
    }

    /// Prepares the launch that also computes dot products of y and w = w + gamma y in place of this one;
    /// `None` if the format has no such kernel. It is launched by [`PreparedLaunch::launch_after`].
    ///
    /// # Errors
    /// As [`PreparedLaunch::new`].
    pub fn with_dots(&self, gpu: &Gpu, format: &Format) -> Result<Option<PreparedLaunch>> {
        Self::in_place(gpu, format.with_dots(&self.described()))
    }

    /// Describes this launch without its arguments, which may change later: a launch in its place holds
    /// only those that follow.
    pub fn described(&self) -> Launch {
        Launch {
            image: self.image,
            kernel: self.kernel.clone(),
            grid: u64::from(self.grid),
            block: self.block,
            shared_bytes: self.shared_bytes,
            args: Vec::new(),
        }
    }

    fn in_place(gpu: &Gpu, launch: Option<Launch>) -> Result<Option<PreparedLaunch>> {
        let Some(launch) = launch else { return Ok(None) };
        let step = PreparedLaunch::loaded(gpu, &launch, plain)?;
        Ok(step.map(|step| step.overlapping(gpu)))
    }

    /// Finds the kernel of a launch.
    fn loaded(gpu: &Gpu, launch: &Launch, word: impl Fn(Arg) -> ArgWord) -> Result<Option<Self>> {
        if launch.grid == 0 {
            return Ok(None);
        }
        let grid = u32::try_from(launch.grid).map_err(|_| {
            let what = format!("a grid cannot have {} blocks", launch.grid);
            Error::device(DeviceFault::Unsupported, what)
        })?;
        let kernels = gpu.module(launch.image)?;
        let find = |kernel: &str| {
            let function = kernels.module.get_function(kernel);
            let function = function.map_err(failed(&format!("finding kernel {kernel}")))?;
            Ok(function.to_raw())
        };
        let mut function = find(&launch.kernel)?;
        if kernels.image.resident.contains(&launch.kernel.as_str()) {
            let resident = find(&format!("{}_resident", launch.kernel))?;
            function = if gpu.holds(resident, launch) { resident } else { function };
        }
        if launch.shared_bytes > 0 {
            gpu.allow_shared(function, launch.shared_bytes)?;
        }
        let given = launch.args.len();
        assert!(given <= MAX_ARGS, "{} has {given} arguments, over {MAX_ARGS}", launch.kernel);
        let args = launch.args.iter().map(|&arg| word(arg)).collect();
        let Launch { block, shared_bytes, .. } = *launch;
        Ok(Some(PreparedLaunch {
            function,
            kernel: launch.kernel.clone(),
            grid,
            block,
            shared_bytes,
            args,
            image: launch.image,
            programmatic: None,
            _kernels: kernels,
            _queue: Arc::clone(&gpu.queue),
        }))
    }

    /// Lets the kernel's start overlap with previous work; the kernel must wait for that before it
    /// accesses vectors, values or scratch memory.
    pub fn overlapping(self, gpu: &Gpu) -> Self {
        PreparedLaunch { programmatic: gpu.programmatic, ..self }
    }

    /// Returns the number of blocks.
    pub fn grid(&self) -> u32 {
        self.grid
    }

    /// Returns the name of the kernel's image.
    pub fn image(&self) -> &'static str {
        self.image
    }

    /// Tells whether this address is an argument.
    pub fn takes(&self, address: cuda::CUdeviceptr) -> bool {
        self.args.contains(&ArgWord::Fixed(address))
    }

    /// Replaces the address `old` in the arguments by `new`.
    pub fn replace_address(&mut self, old: cuda::CUdeviceptr, new: cuda::CUdeviceptr) {
        for word in self.args.iter_mut().filter(|word| **word == ArgWord::Fixed(old)) {
            *word = ArgWord::Fixed(new);
        }
    }

    /// Queues the kernel.
    ///
    /// # Errors
    /// [`Error::Device`] if the launch fails.
    ///
    /// # Safety
    /// The addresses hold the data that the kernel reads and writes until the stream has finished
    /// it; the GPU's context is current.
    pub unsafe fn launch<T: Scalar>(
        &self,
        vectors: impl Into<Vectors>,
        alpha: T,
        beta: T,
        stream: cuda::CUstream,
    ) -> Result<()> {
        // SAFETY: by this function's own contract.
        unsafe { self.launch_with(&self.args, &[], vectors.into(), alpha, beta, stream) }
    }

    /// Queues this kernel with the arguments of `one` before its own.
    ///
    /// # Errors
    /// As [`PreparedLaunch::launch`].
    ///
    /// # Safety
    /// As [`PreparedLaunch::launch`]; [`PreparedLaunch::several`] or [`PreparedLaunch::with_dots`] of
    /// `one` made this launch.
    pub unsafe fn launch_after<T: Scalar>(
        &self,
        one: &PreparedLaunch,
        vectors: Vectors,
        alpha: T,
        beta: T,
        stream: cuda::CUstream,
    ) -> Result<()> {
        // SAFETY: by this function's own contract.
        unsafe { self.launch_with(&one.args, &self.args, vectors, alpha, beta, stream) }
    }

    /// Queues the kernel with these arguments.
    ///
    /// # Safety
    /// As [`PreparedLaunch::launch`]; these are the arguments that the kernel takes.
    unsafe fn launch_with<T: Scalar>(
        &self,
        first: &[ArgWord],
        then: &[ArgWord],
        vectors: Vectors,
        alpha: T,
        beta: T,
        stream: cuda::CUstream,
    ) -> Result<()> {
        let Vectors { addresses: [x, y, values], strides, dots } = vectors;
        let mut words = [0u64; MAX_ARGS];
        let mut addresses = [std::ptr::null_mut::<c_void>(); MAX_ARGS];
        let args = first.iter().chain(then);
        for ((word, address), arg) in words.iter_mut().zip(&mut addresses).zip(args) {
            *word = match *arg {
                ArgWord::Fixed(value) => value,
                ArgWord::X => x,
                ArgWord::Y => y,
                ArgWord::Values => values,
                ArgWord::Alpha => bits(alpha),
                ArgWord::Beta => bits(beta),
                ArgWord::One => bits(T::ONE),
                ArgWord::Stride(i) => strides[i],
                ArgWord::Dots(i) => dots[i],
            };
            *address = std::ptr::from_mut(word).cast();
        }
        let parameters = addresses.as_mut_ptr();
        let (function, grid, block) = (self.function, self.grid, self.block);
        // SAFETY: each address points at a word that outlives the call; the words are those that a
        // layout described for this kernel, and valid by this function's own contract.
        let code = unsafe {
            match self.programmatic {
                Some(programmatic) => programmatic.launch(
                    function,
                    [grid, block, self.shared_bytes],
                    stream,
                    parameters,
                ),
                None => cuda::cuLaunchKernel(
                    function,
                    grid,
                    1,
                    1,
                    block,
                    1,
                    1,
                    self.shared_bytes,
                    stream,
                    parameters,
                    std::ptr::null_mut(),
                ),
            }
        };
        check(code, "launching a kernel")
    }
}

/// Returns the bits of a number, the rest of the word being 0.
pub(super) fn bits<T: Scalar>(value: T) -> u64 {
    let mut word = [0u8; 8];
    let bytes = bytemuck::bytes_of(&value);
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}
