//! Kernels with their arguments, ready to launch.

use std::ffi::c_void;
use std::sync::Arc;

use cust::sys as cuda;

use super::memory::Queue;
use super::overlap::ProgrammaticLaunch;
use super::{Gpu, Kernels, check, failed, signatures};
use crate::error::{DeviceFault, Error, Result};
use crate::format::{Arg, Launch};
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
        Arg::Array(_)
        | Arg::Temporary(_)
        | Arg::Scratch(_)
        | Arg::Counters
        | Arg::RowPtr
        | Arg::ColIdx
        | Arg::Values => unreachable!("{arg:?} has an address of its own"),
    }
}

/// A kernel with its arguments, ready to launch.
pub(super) struct PreparedLaunch {
    function: cuda::CUfunction,
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
        if launch.grid == 0 {
            return Ok(None);
        }
        let grid = u32::try_from(launch.grid).map_err(|_| {
            let what = format!("a grid cannot have {} blocks", launch.grid);
            Error::device(DeviceFault::Unsupported, what)
        })?;
        let kernels = gpu.module(launch.image)?;
        debug_assert_eq!(signatures::check_launch(kernels.image, launch, None), Ok(()));
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

    /// Queues the kernel; `vectors` are the addresses of x, y and new values.
    ///
    /// # Errors
    /// [`Error::Device`] if the launch fails.
    ///
    /// # Safety
    /// The addresses hold the data that the kernel reads and writes until the stream has finished
    /// it; the GPU's context is current.
    pub unsafe fn launch<T: Scalar>(
        &self,
        vectors: [cuda::CUdeviceptr; 3],
        alpha: T,
        beta: T,
        stream: cuda::CUstream,
    ) -> Result<()> {
        let [x, y, values] = vectors;
        let mut words = [0u64; MAX_ARGS];
        let mut addresses = [std::ptr::null_mut::<c_void>(); MAX_ARGS];
        for ((word, address), arg) in words.iter_mut().zip(&mut addresses).zip(&self.args) {
            *word = match *arg {
                ArgWord::Fixed(value) => value,
                ArgWord::X => x,
                ArgWord::Y => y,
                ArgWord::Values => values,
                ArgWord::Alpha => bits(alpha),
                ArgWord::Beta => bits(beta),
                ArgWord::One => bits(T::ONE),
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

fn bits<T: Scalar>(value: T) -> u64 {
    let mut word = [0u8; 8];
    let bytes = bytemuck::bytes_of(&value);
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}
