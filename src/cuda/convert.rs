//! Runs the steps of a conversion on a GPU; formats describe the steps.

use std::ffi::{c_int, c_void};
use std::hint::spin_loop;
use std::ptr::null_mut;
use std::sync::{Arc, PoisonError};

use cust::sys as cuda;
use ellect_kernels::primitives;

use super::launch::{ArgWord, PreparedLaunch, plain};
use super::memory::{ALIGNMENT, Memory};
use super::operator::CudaOperator;
use super::scratch::ScratchMemory;
use super::workspace::{CLEARED, COUNTER_BYTES, COUNTERS, WORKSPACE, Workspace, ZEROS};
use super::{DeviceCsr, Gpu, check, cusparse, failed};
use crate::error::{DeviceFault, Error, Result};
use crate::format::narrow::gpu::holds;
use crate::format::value_dictionary::{MAX_DISTINCT, find};
use crate::format::{
    Arg, Candidate, GpuConverter, Launch, Matrix, Offsets, SliceOffsets, Stop, TOLD, Target,
};
use crate::scalar::Scalar;

/// A null pointer as an argument.
const NULL: Arg = Arg::U64(0);

/// A conversion in progress.
pub(super) struct GpuConversion<'a, T> {
    gpu: &'a Gpu,
    csr: &'a DeviceCsr<T>,
    arrays: Vec<Memory>,
    temporaries: Vec<Memory>,
    /// The memory that products share, if it is allocated already.
    shared: Option<ScratchMemory>,
    /// Memory for small temporaries, if any were needed yet.
    workspace: Option<Workspace>,
    /// Offset of the next free byte among the zeros of this conversion.
    zeros_used: u64,
    /// Offset of the next free byte in the rest of the workspace.
    workspace_used: u64,
    /// Number of counters in use.
    counters_used: usize,
    /// Values of the counters when they were last read.
    counters: [u32; COUNTERS],
    /// For each counter, whether a kernel that may write it was queued since the last read.
    pending: [bool; COUNTERS],
    /// True if all queued work has ended.
    ended: bool,
}

impl Gpu {
    /// Converts a matrix on the GPU that holds it; `None` if the format converts on the host.
    ///
    /// # Errors
    /// [`Error::Refused`] if the candidate does not apply to the matrix; [`Error::Argument`] if
    /// another GPU holds it; [`Error::Device`] from the driver.
    pub fn convert<T: Scalar>(
        &self,
        csr: &Arc<DeviceCsr<T>>,
        candidate: &Candidate,
        target: &Target<'_>,
    ) -> Result<Option<CudaOperator<T>>> {
        csr.check(self)?;
        self.make_current()?;
        let target = Target { precision: T::PRECISION, ..*target };
        let mut work = GpuConversion::new(self, csr);
        match candidate.format.build(&mut work, &candidate.params, &target) {
            Ok(built) => {
                cusparse::check_vendor(candidate, built.vendor.as_ref().map(|(vendor, _)| vendor))?;
                let bytes = work.arrays.iter().map(Memory::bytes).sum();
                target.check_bytes(bytes).map_err(|reason| candidate.refused(&reason))?;
                let (arrays, ended) = (std::mem::take(&mut work.arrays), work.ended);
                let shared = work.shared.take();
                // If a wait is to come, the conversion's temporary memory is freed before it.
                let _kept = ended.then_some(work);
                CudaOperator::built(self, csr, (arrays, shared), &built, ended).map(Some)
            }
            Err(Stop::OnHost) => Ok(None),
            Err(Stop::Failed(error)) => Err(error),
            Err(Stop::Refused(reason)) => Err(candidate.refused(&reason)),
        }
    }

    /// Tells whether a matrix on this GPU has few distinct values (at most 256);
    /// stops early if it has more. Waits for the GPU.
    ///
    /// # Errors
    /// [`Error::Device`] from the driver.
    pub fn has_few_values<T: Scalar>(&self, csr: &DeviceCsr<T>) -> Result<bool> {
        csr.check(self)?;
        self.make_current()?;
        let (_, count) = find(&mut GpuConversion::new(self, csr), T::PRECISION)?;
        Ok(count <= MAX_DISTINCT)
    }
}

impl Gpu {
    /// Tells whether formats that store values in fewer bits can hold those of a matrix on this GPU, as
    /// the target allows; waits for the GPU.
    ///
    /// # Errors
    /// [`Error::Device`] from the driver.
    pub(crate) fn holds_narrowed<T: Scalar>(
        &self,
        csr: &DeviceCsr<T>,
        target: &Target<'_>,
    ) -> Result<bool> {
        csr.check(self)?;
        self.make_current()?;
        holds(&mut GpuConversion::new(self, csr), target)
    }
}

impl<'a, T: Scalar> GpuConversion<'a, T> {
    fn new(gpu: &'a Gpu, csr: &'a DeviceCsr<T>) -> Self {
        GpuConversion {
            gpu,
            csr,
            arrays: Vec::new(),
            temporaries: Vec::new(),
            shared: None,
            workspace: None,
            zeros_used: COUNTER_BYTES,
            workspace_used: CLEARED,
            counters_used: 2,
            counters: [0; COUNTERS],
            pending: [false; COUNTERS],
            ended: false,
        }
    }

    fn word(&self, arg: Arg) -> ArgWord {
        match arg {
            Arg::Array(i) => ArgWord::Fixed(self.arrays[i].address()),
            Arg::Temporary(i) => ArgWord::Fixed(self.temporaries[i].address()),
            other => word(self.csr, other),
        }
    }

    fn address(&self, arg: Arg) -> u64 {
        match self.word(arg) {
            ArgWord::Fixed(address) => address,
            ArgWord::X
            | ArgWord::Y
            | ArgWord::Alpha
            | ArgWord::Beta
            | ArgWord::One
            | ArgWord::Stride(_)
            | ArgWord::Dots(_)
            | ArgWord::Values => 0,
        }
    }

    fn workspace(&mut self) -> Result<&mut Workspace> {
        let workspace = match self.workspace.take() {
            Some(workspace) => workspace,
            None => {
                let spare =
                    self.gpu.workspace.lock().unwrap_or_else(PoisonError::into_inner).take();
                spare.map_or_else(|| Workspace::new(&self.gpu.queue), Ok)?
            }
        };
        Ok(self.workspace.insert(workspace))
    }

    /// Notes which counters a kernel with these arguments may write.
    fn note_pending(&mut self, args: &[Arg]) {
        let Some(counters) = self.workspace.as_ref().map(Workspace::counters) else { return };
        for &arg in args {
            let at = self.address(arg).wrapping_sub(counters) / 4;
            match at as usize {
                0 => self.pending[..2].fill(true),
                at if at < COUNTERS => self.pending[at] = true,
                _ => {}
            }
        }
    }

    /// Reads all counters; waits for the GPU.
    fn read_counters(&mut self) -> Result<()> {
        let workspace = self.workspace()?;
        // A kernel writes them to host memory, because a copy would wait some microseconds for a
        // copy engine.
        let (from, to) = (workspace.counters(), workspace.host.as_mut_ptr());
        self.launch(&copy_counters(from, to as u64))?;
        self.gpu.queue.synchronize().map_err(failed("a kernel"))?;
        // SAFETY: the kernel that writes them has ended.
        unsafe { to.copy_to_nonoverlapping(self.counters.as_mut_ptr(), COUNTERS) };
        (self.pending, self.ended) = ([false; COUNTERS], true);
        Ok(())
    }

    /// Calls an algorithm of CUB twice: for the size of its temporary memory, and to run it.
    fn primitive(
        &mut self,
        what: &str,
        call: impl Fn(*mut c_void, *mut usize, *mut c_void) -> c_int,
    ) -> Result<()> {
        let stream = self.gpu.queue.as_inner().cast();
        let mut bytes = 0;
        check_cub(call(null_mut(), &mut bytes, stream), what)?;
        let temporary = self.temporary(bytes as u64)?;
        self.ended = false;
        check_cub(call(self.address(temporary) as *mut c_void, &mut bytes, stream), what)
    }

    /// Computes the offsets that [`GpuConverter::starts`] describes.
    ///
    /// Returns the offsets and a function that describes them, given their argument.
    fn offsets(
        &mut self,
        counts: Arg,
        each: usize,
        n: usize,
    ) -> Result<(Memory, impl Fn(Arg) -> SliceOffsets + use<T>)> {
        let sums = Memory::new(8 * n as u64, &self.gpu.queue)?;
        let (from, to) = (self.address(counts) as *const u32, sums.address() as *mut u64);
        self.primitive("summing", |temporary, bytes, stream| {
            // SAFETY: both arrays hold `n` numbers.
            unsafe {
                let (each, n) = (each as u64, n as u64);
                primitives::ellect_exclusive_sum(temporary, bytes, from, each, to, n, stream)
            }
        })?;
        let narrow = Memory::new(4 * n as u64, &self.gpu.queue)?;
        // Narrows the offsets before their total is known to fit in 32 bits; one wait then serves
        // both.
        let total = self.workspace()?.counters();
        self.launch(&narrow_offsets(n as u64, [sums.address(), narrow.address(), total]))?;
        self.read_counters()?;
        let [low, high, ..] = self.counters;
        let total = u64::from(high) << 32 | u64::from(low);
        let is_narrow = Offsets::width(total as usize) == 4;
        let (kept, other) = if is_narrow { (narrow, sums) } else { (sums, narrow) };
        self.temporaries.push(other);
        let starts = move |kept| SliceOffsets {
            args: if is_narrow { [kept, NULL] } else { [NULL, kept] },
            total,
        };
        Ok((kept, starts))
    }
}

impl<T> Drop for GpuConversion<'_, T> {
    fn drop(&mut self) {
        if let Some(workspace) = self.workspace.take().and_then(|workspace| workspace.next().ok()) {
            *self.gpu.workspace.lock().unwrap_or_else(PoisonError::into_inner) = Some(workspace);
        }
    }
}

/// Checks the code that an algorithm of CUB returned.
///
/// # Errors
/// [`Error::Device`] unless it is 0.
pub(super) fn check_cub(code: c_int, what: &str) -> Result<()> {
    let failed = || format!("{what} on the device: CUDA error {code}");
    (code == 0).then_some(()).ok_or_else(|| Error::device(DeviceFault::Failed, failed()))
}

/// Describes a launch that copies all counters of a conversion from one address to another.
pub(super) fn copy_counters(from: u64, to: u64) -> Launch {
    let args = [from, to].map(Arg::U64).to_vec();
    Launch::over("convert", "tell_numbers", COUNTERS as u64, 256, args)
}

/// Describes a launch that narrows `n` offsets from 64 to 32 bits and writes the last one to a
/// counter; the addresses are those of the wide offsets, the narrow offsets and the counter.
pub(super) fn narrow_offsets(n: u64, addresses: [u64; 3]) -> Launch {
    let args = [n].into_iter().chain(addresses).map(Arg::U64).collect();
    Launch::over("convert", "narrow_offsets", n, 256, args)
}

/// Resolves an argument that does not depend on the conversion.
pub(super) fn word<T: Scalar>(csr: &DeviceCsr<T>, arg: Arg) -> ArgWord {
    let [row_ptr, col_idx, values] = csr.addresses();
    match arg {
        Arg::RowPtr => ArgWord::Fixed(row_ptr),
        Arg::ColIdx => ArgWord::Fixed(col_idx),
        Arg::Values => ArgWord::Fixed(values),
        other => plain(other),
    }
}

impl<T: Scalar> GpuConverter for GpuConversion<'_, T> {
    fn matrix(&self) -> Matrix {
        self.csr.matrix()
    }

    fn longest_row(&self) -> Option<usize> {
        self.csr.longest_row()
    }

    fn array(&mut self, bytes: u64) -> Result<Arg> {
        self.arrays.push(Memory::new(bytes, &self.gpu.queue)?);
        Ok(Arg::Array(self.arrays.len() - 1))
    }

    fn arrays(&mut self, bytes: &[u64]) -> Result<Vec<Arg>> {
        let first = self.arrays.len();
        self.arrays.extend(Memory::parts(bytes, &self.gpu.queue)?);
        Ok((first..self.arrays.len()).map(Arg::Array).collect())
    }

    fn array_and_shared(&mut self, bytes: u64, scratch: &[u64], counters: u64) -> Result<[Arg; 2]> {
        let shared = ScratchMemory::parts(scratch, counters);
        let sizes: Vec<_> = [bytes].into_iter().chain(shared).collect();
        let mut parts = Memory::parts(&sizes, &self.gpu.queue)?;
        let shared = ScratchMemory::of(parts.split_off(1), counters);
        let counters = Arg::U64(shared.counters());
        self.arrays.extend(parts);
        self.shared = Some(shared);
        Ok([Arg::Array(self.arrays.len() - 1), counters])
    }

    fn trim(&mut self, array: Arg, bytes: u64) {
        if let Arg::Array(i) = array {
            self.arrays[i].trim(bytes);
        }
    }

    fn zeros(&mut self, bytes: u64) -> Result<Arg> {
        self.ended = false;
        self.arrays.push(Memory::zeros(bytes, &self.gpu.queue)?);
        Ok(Arg::Array(self.arrays.len() - 1))
    }

    fn temporary(&mut self, bytes: u64) -> Result<Arg> {
        let end = self.workspace_used.saturating_add(bytes.max(1));
        if end <= WORKSPACE {
            let at = self.workspace()?.memory.address() + self.workspace_used;
            self.workspace_used = end.next_multiple_of(ALIGNMENT);
            return Ok(Arg::U64(at));
        }
        self.temporaries.push(Memory::new(bytes, &self.gpu.queue)?);
        Ok(Arg::Temporary(self.temporaries.len() - 1))
    }

    fn temporary_zeros(&mut self, bytes: u64) -> Result<Arg> {
        let end = self.zeros_used.saturating_add(bytes.max(1));
        if end <= ZEROS {
            let at = self.workspace()?.counters() + self.zeros_used;
            self.zeros_used = end.next_multiple_of(ALIGNMENT);
            return Ok(Arg::U64(at));
        }
        self.ended = false;
        self.temporaries.push(Memory::zeros(bytes, &self.gpu.queue)?);
        Ok(Arg::Temporary(self.temporaries.len() - 1))
    }

    fn number(&mut self) -> Result<Arg> {
        assert!(self.counters_used < COUNTERS, "a conversion uses more than {COUNTERS} counters");
        self.counters_used += 1;
        Ok(Arg::U64(self.workspace()?.counters() + 4 * (self.counters_used as u64 - 1)))
    }

    fn launch(&mut self, launch: &Launch) -> Result<()> {
        let Some(step) = PreparedLaunch::new(self.gpu, launch, |arg| self.word(arg))? else {
            return Ok(());
        };
        self.note_pending(&launch.args);
        self.ended = false;
        // SAFETY: the arguments are those that the format described for this kernel; their arrays
        // live until the conversion has ended.
        unsafe { step.launch::<T>([0; 3], T::ZERO, T::ZERO, self.gpu.queue.as_inner()) }
    }

    fn starts(&mut self, counts: Arg, each: usize, n: usize) -> Result<SliceOffsets> {
        let (offsets, starts) = self.offsets(counts, each, n)?;
        self.arrays.push(offsets);
        Ok(starts(Arg::Array(self.arrays.len() - 1)))
    }

    fn temporary_starts(&mut self, counts: Arg, each: usize, n: usize) -> Result<SliceOffsets> {
        let (offsets, starts) = self.offsets(counts, each, n)?;
        self.temporaries.push(offsets);
        Ok(starts(Arg::Temporary(self.temporaries.len() - 1)))
    }

    fn sort_down(&mut self, keys: Arg, rows: Arg, sorted: Arg, n: usize, bits: u32) -> Result<()> {
        let sorted_keys = Memory::new(8 * n as u64, &self.gpu.queue)?;
        let (keys, to_keys) = (self.address(keys) as *const u64, sorted_keys.address() as *mut u64);
        let (rows, to_rows) = (self.address(rows) as *const u32, self.address(sorted) as *mut u32);
        let bits = bits.clamp(1, 64) as c_int;
        self.primitive("sorting", |temporary, bytes, stream| {
            // SAFETY: all arrays hold `n` numbers and do not overlap.
            unsafe {
                primitives::ellect_sort_down(
                    temporary, bytes, keys, to_keys, rows, to_rows, n as u64, bits, stream,
                )
            }
        })?;
        self.temporaries.push(sorted_keys);
        Ok(())
    }

    fn read(&mut self, number: Arg) -> Result<u32> {
        let at = (self.address(number) - self.workspace()?.counters()) as usize / 4;
        if self.pending[at] {
            self.read_counters()?;
        }
        Ok(self.counters[at])
    }

    fn host(&mut self) -> Result<[Arg; 2]> {
        let workspace = self.workspace()?;
        // 0 is no mark: it is in the memory from the start.
        workspace.mark = workspace.mark.wrapping_add(1).max(1);
        let address = (&raw const workspace.host[COUNTERS]) as u64;
        Ok([Arg::U64(address), Arg::U32(workspace.mark)])
    }

    fn told(&mut self) -> Result<[u32; TOLD]> {
        let stream = self.gpu.queue.as_inner();
        let workspace = self.workspace()?;
        loop {
            // Reading this memory takes a fraction of the time of waiting for the stream.
            for _ in 0..POLLS {
                if let Some(numbers) = workspace.told() {
                    return Ok(numbers);
                }
                spin_loop();
            }
            // SAFETY: the stream exists; the call only asks for its state.
            match unsafe { cuda::cuStreamQuery(stream) } {
                cuda::CUresult::CUDA_ERROR_NOT_READY => {}
                code => {
                    check(code, "a kernel")?;
                    let unwritten = || Error::device(DeviceFault::Failed, "a kernel told nothing");
                    return workspace.told().ok_or_else(unwritten);
                }
            }
        }
    }

    fn note_written(&mut self) {
        self.ended = true;
    }
}

/// Times that the host looks for a mark before it checks that the stream still works.
const POLLS: usize = 1000;
