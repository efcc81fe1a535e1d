//! Conversion on a GPU: carries out the steps that a format asks for.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use ellect_kernels::primitives;

use super::memory::Memory;
use super::operator::{CudaOperator, Step, Word, plain};
use super::{DeviceCsr, Gpu};
use crate::error::{Error, Result};
use crate::format::{Arg, Builder, Candidate, Launch, Matrix, Starts, Stop, Target};
use crate::scalar::Scalar;

/// The address of nothing.
const NULL: Arg = Arg::U64(0);

/// A conversion under way.
pub(super) struct Conversion<'a, T> {
    gpu: &'a Gpu,
    csr: &'a DeviceCsr<T>,
    arrays: Vec<Memory>,
    temporaries: Vec<Memory>,
}

impl Gpu {
    /// Converts a matrix that this GPU holds, on the GPU; `None` where the candidate is converted
    /// on the host.
    ///
    /// # Errors
    /// [`Error::Refused`] where the candidate does not suit the matrix, [`Error::Device`] by the
    /// device.
    pub fn convert<T: Scalar>(
        &self,
        csr: &Arc<DeviceCsr<T>>,
        candidate: &Candidate,
        target: &Target<'_>,
    ) -> Result<Option<CudaOperator<T>>> {
        self.make_current()?;
        let target = Target { precision: T::PRECISION, ..*target };
        let mut work = Conversion { gpu: self, csr, arrays: Vec::new(), temporaries: Vec::new() };
        match candidate.format.build(&mut work, &candidate.params, &target) {
            Ok(built) => {
                let arrays = std::mem::take(&mut work.arrays);
                let operator = CudaOperator::built(self, csr, arrays, &built)?;
                self.synchronize()?;
                Ok(Some(operator))
            }
            Err(Stop::OnHost) => Ok(None),
            Err(Stop::Failed(error)) => Err(error),
            Err(Stop::Refused(reason)) => Err(candidate.refused(&reason)),
        }
    }
}

impl<T: Scalar> Conversion<'_, T> {
    fn word(&self, arg: Arg) -> Word {
        match arg {
            Arg::Array(i) => Word::Fixed(self.arrays[i].address()),
            Arg::Temporary(i) => Word::Fixed(self.temporaries[i].address()),
            other => word(self.csr, other),
        }
    }

    fn address(&self, arg: Arg) -> u64 {
        match self.word(arg) {
            Word::Fixed(address) => address,
            Word::X | Word::Y | Word::Alpha | Word::Beta | Word::Values => 0,
        }
    }

    /// Calls one of CUB's algorithms: once for its temporary memory, once to work.
    fn primitive(
        &mut self,
        what: &str,
        call: impl Fn(*mut c_void, *mut usize, *mut c_void) -> c_int,
    ) -> Result<()> {
        let stream = self.gpu.stream.as_inner().cast();
        let mut bytes = 0;
        let check = |code: c_int| match code {
            0 => Ok(()),
            code => Err(Error::Device(format!("{what} on the device: CUDA error {code}"))),
        };
        check(call(null_mut(), &mut bytes, stream))?;
        let temporary = Memory::new(bytes.max(1) as u64, &self.gpu.stream)?;
        check(call(temporary.address() as *mut c_void, &mut bytes, stream))?;
        self.temporaries.push(temporary);
        Ok(())
    }
}

/// What stands for an argument that does not depend on the conversion.
pub(super) fn word<T: Scalar>(csr: &DeviceCsr<T>, arg: Arg) -> Word {
    let [row_ptr, col_idx, values] = csr.addresses();
    match arg {
        Arg::RowPtr => Word::Fixed(row_ptr),
        Arg::ColIdx => Word::Fixed(col_idx),
        Arg::Values => Word::Fixed(values),
        other => plain(other),
    }
}

impl<T: Scalar> Builder for Conversion<'_, T> {
    fn matrix(&self) -> Matrix {
        self.csr.matrix()
    }

    fn array(&mut self, bytes: u64) -> Result<Arg> {
        self.arrays.push(Memory::new(bytes, &self.gpu.stream)?);
        Ok(Arg::Array(self.arrays.len() - 1))
    }

    fn zeros(&mut self, bytes: u64) -> Result<Arg> {
        self.arrays.push(Memory::zeros(bytes, &self.gpu.stream)?);
        Ok(Arg::Array(self.arrays.len() - 1))
    }

    fn temporary(&mut self, bytes: u64) -> Result<Arg> {
        self.temporaries.push(Memory::zeros(bytes, &self.gpu.stream)?);
        Ok(Arg::Temporary(self.temporaries.len() - 1))
    }

    fn launch(&mut self, launch: &Launch) -> Result<()> {
        let Some(step) = Step::new(self.gpu, launch, |arg| self.word(arg))? else { return Ok(()) };
        // SAFETY: the arguments are those that the format described for this kernel, of arrays that
        // live until the conversion has ended.
        unsafe { step.launch::<T>([0; 3], T::ZERO, T::ZERO, self.gpu.stream.as_inner()) }
    }

    fn starts(&mut self, counts: Arg, each: usize, n: usize) -> Result<Starts> {
        let sums = Memory::new(8 * n as u64, &self.gpu.stream)?;
        let (from, to) = (self.address(counts) as *const u32, sums.address() as *mut u64);
        self.primitive("summing", |temporary, bytes, stream| {
            // SAFETY: both arrays hold `n` numbers.
            unsafe {
                let (each, n) = (each as u64, n as u64);
                primitives::ellect_exclusive_sum(temporary, bytes, from, each, to, n, stream)
            }
        })?;
        let mut total = [0u64];
        let last = sums.address() + 8 * (n as u64 - 1);
        super::memory::read(last, bytemuck::cast_slice_mut(&mut total), &self.gpu.stream)?;
        let [total] = total;
        if u32::try_from(total).is_err() {
            self.arrays.push(sums);
            return Ok(Starts { args: [NULL, Arg::Array(self.arrays.len() - 1)], total });
        }
        self.temporaries.push(sums);
        let sums = Arg::Temporary(self.temporaries.len() - 1);
        let narrow = self.array(4 * n as u64)?;
        let args = vec![Arg::U64(n as u64), sums, narrow];
        self.launch(&Launch::over("convert", "narrow_offsets", n as u64, 256, args))?;
        Ok(Starts { args: [narrow, NULL], total })
    }

    fn sort_down(&mut self, keys: Arg, rows: Arg, n: usize, bits: u32) -> Result<Arg> {
        let sorted_keys = Memory::new(8 * n as u64, &self.gpu.stream)?;
        let sorted = self.array(4 * n as u64)?;
        let (keys, to_keys) = (self.address(keys) as *const u64, sorted_keys.address() as *mut u64);
        let (rows, to_rows) = (self.address(rows) as *const u32, self.address(sorted) as *mut u32);
        let bits = bits.clamp(1, 64) as c_int;
        self.primitive("sorting", |temporary, bytes, stream| {
            // SAFETY: all arrays hold `n` numbers and are apart.
            unsafe {
                primitives::ellect_sort_down(
                    temporary, bytes, keys, to_keys, rows, to_rows, n as u64, bits, stream,
                )
            }
        })?;
        self.temporaries.push(sorted_keys);
        Ok(sorted)
    }

    fn read(&mut self, number: Arg) -> Result<u32> {
        let mut found = [0u32];
        let address = self.address(number);
        super::memory::read(address, bytemuck::cast_slice_mut(&mut found), &self.gpu.stream)?;
        Ok(found[0])
    }

    fn max(&mut self, numbers: Arg, n: usize) -> Result<u32> {
        let most = Memory::zeros(4, &self.gpu.stream)?;
        let (from, to) = (self.address(numbers) as *const u32, most.address() as *mut u32);
        self.primitive("finding the largest", |temporary, bytes, stream| {
            // SAFETY: the array holds `n` numbers.
            unsafe { primitives::ellect_max(temporary, bytes, from, to, n as u64, stream) }
        })?;
        let mut found = [0u32];
        most.read(bytemuck::cast_slice_mut(&mut found))?;
        Ok(found[0])
    }
}
