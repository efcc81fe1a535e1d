//! Tuners: devices with their models and measurements, recommendations.
#![allow(unsafe_code, reason = "callers pass addresses")]

use std::ffi::{CString, c_char};
use std::sync::Arc;

use ellect::choose::{Effort, Trials, ValuesUse, Verify};
use ellect::csr::CsrRef;
use ellect::format::{Basis, StoredValues};
use ellect::{Error, Precision, Tuner, Wisdom, Workload};
use serde::Serialize;

use crate::csr::is_second;
use crate::input::{Descriptor, count, descriptor, give, object, path, place, text};
use crate::matrix::EllectMatrix;
use crate::status::{Failure, Outcome, Status, boundary, dispose};

/// Use trained models and stored measurements; time nothing. The default.
pub const ELLECT_PREDICT: i32 = 0;
/// Use closed formulas only.
pub const ELLECT_ESTIMATE: i32 = 1;
/// Time CSR and the best candidates on the device.
pub const ELLECT_MEASURE: i32 = 2;
/// Time every candidate that applies.
pub const ELLECT_EXHAUSTIVE: i32 = 3;

/// x and y are in the order of the matrix.
pub const ELLECT_ORIGINAL: i32 = 0;
/// A format may permute rows and columns alike; `ellect_permutation` returns the order.
pub const ELLECT_PERMUTED: i32 = 1;

/// Folders of a tuner: set `struct_size` to `sizeof(ellect_tuner_options)`, all other fields that you
/// do not need to 0. Texts are read during the call only.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EllectTunerOptions {
    /// `sizeof(ellect_tuner_options)`.
    pub struct_size: usize,
    /// Folder with `models` and `wisdom` inside. NULL is `$ELLECT_DATA`, otherwise `ellect` in the
    /// user's XDG data folder.
    pub data_folder: *const c_char,
    /// Folder whose folder `models` holds the models to use instead of those in `data_folder`; NULL
    /// for none.
    pub model_folder: *const c_char,
    /// Folder whose folder `wisdom` holds the database of measurements to use instead of that in
    /// `data_folder`, created if missing; NULL for none.
    pub wisdom_folder: *const c_char,
}

// SAFETY: `repr(C)`, begins with its size; raw pointers are valid for all bytes.
unsafe impl Descriptor for EllectTunerOptions {
    const NAME: &'static str = "ellect_tuner_options";
}

/// The intended use of a matrix: set `struct_size` to `sizeof(ellect_workload)`, all other fields that
/// you do not need to 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EllectWorkload {
    /// `sizeof(ellect_workload)`.
    pub struct_size: usize,
    /// Expected number of products with this pattern; 0 is 1,000.
    pub spmvs: i64,
    /// Number of times that the values are replaced.
    pub updates: i64,
    /// Maximum size of the layout in bytes; 0 for the device's memory.
    pub memory_limit: i64,
    /// Maximum time of measuring in seconds; 0 for no limit.
    pub budget_s: f64,
    /// `ELLECT_PREDICT`, `ELLECT_ESTIMATE`, `ELLECT_MEASURE` or `ELLECT_EXHAUSTIVE`.
    pub effort: i32,
    /// `ELLECT_ORIGINAL` or `ELLECT_PERMUTED`.
    pub basis: i32,
    /// 1 compares one product of the prepared operator with CSR; 0 does not.
    pub verify: i32,
    /// 1 times no candidate that `effort` does not ask for; 0 lets `ELLECT_PREDICT` on a host time the
    /// most promising ones, for at most 2 % of the time of all products.
    pub no_trials: i32,
    /// Number of vectors of each product (`ellect_apply_many`); 0 is 1.
    pub vectors: i64,
    /// Expected number of products with the transpose (`ellect_apply_transposed`); 0 for none.
    pub transposed: i64,
}

// SAFETY: `repr(C)`, begins with its size; numbers are valid for all bytes.
unsafe impl Descriptor for EllectWorkload {
    const NAME: &'static str = "ellect_workload";
    const SMALLEST: usize = 56;
}

impl EllectWorkload {
    fn read(&self) -> Outcome<Workload> {
        let spmvs = match count(self.spmvs, "spmvs")? as u64 {
            0 => Workload::default().spmvs,
            spmvs => spmvs,
        };
        let values = match count(self.updates, "updates")? as u64 {
            0 => ValuesUse::Fixed,
            updates => ValuesUse::Change(updates),
        };
        let effort = match self.effort {
            ELLECT_PREDICT => Effort::Predict,
            ELLECT_ESTIMATE => Effort::Estimate,
            ELLECT_MEASURE => Effort::Measure,
            ELLECT_EXHAUSTIVE => Effort::Exhaustive,
            other => {
                return Err(Failure::argument(format!(
                    "effort is {other}; it must be ELLECT_PREDICT (0) to ELLECT_EXHAUSTIVE (3)"
                )));
            }
        };
        let bases = [(ELLECT_ORIGINAL, "ELLECT_ORIGINAL"), (ELLECT_PERMUTED, "ELLECT_PERMUTED")];
        let permuted = is_second("basis", self.basis, bases)?;
        let verify = is_second("verify", self.verify, [(0, "no"), (1, "yes")])?;
        if !(self.budget_s >= 0.0 && self.budget_s.is_finite()) {
            return Err(Failure::argument(format!(
                "budget_s is {}; it must be a time in seconds, or 0 for no limit",
                self.budget_s
            )));
        }
        let memory_limit = count(self.memory_limit, "memory_limit")? as u64;
        let no_trials = is_second("no_trials", self.no_trials, [(0, "no"), (1, "yes")])?;
        let workload = Workload {
            spmvs,
            transposed: count(self.transposed, "transposed")? as u64,
            vectors: count(self.vectors, "vectors")?.max(1),
            basis: if permuted { Basis::Permuted } else { Basis::Original },
            values,
            effort,
            memory_limit: (memory_limit > 0).then_some(memory_limit),
            verify: if verify { Verify::OnPrepare } else { Verify::No },
            trials: if no_trials { Trials::Never } else { Trials::WhenTheyPay },
            budget_s: (self.budget_s > 0.0).then_some(self.budget_s),
            stored: StoredValues::Exact,
        };
        workload.check(Precision::F64)?;
        Ok(workload)
    }
}

/// Reads a workload; NULL is the default one.
///
/// # Safety
/// As [`descriptor`].
pub unsafe fn workload(at: *const EllectWorkload) -> Outcome<Workload> {
    if at.is_null() {
        return Ok(Workload::default());
    }
    // SAFETY: by this function's own contract.
    unsafe { descriptor(at) }?.read()
}

/// Writes an answer as JSON.
pub fn json(answer: &impl Serialize) -> Outcome<String> {
    let failed = |error| Error::input(format!("cannot write an answer as JSON: {error}")).into();
    serde_json::to_string(answer).map_err(failed)
}

/// A tuner of one device, made by `ellect_tuner_open`.
///
/// Thread safety: any number of threads may use one tuner at a time; none while it is destroyed.
pub struct EllectTuner(pub Tuner);

/// # Safety
/// As `ellect_tuner_open`.
unsafe fn open(device: *const c_char, options: *const EllectTunerOptions) -> Outcome<EllectTuner> {
    let none = std::ptr::null();
    let mut folders = EllectTunerOptions {
        struct_size: size_of::<EllectTunerOptions>(),
        data_folder: none,
        model_folder: none,
        wisdom_folder: none,
    };
    // SAFETY: by this function's own contract.
    let (device, data, models, wisdom) = unsafe {
        if !options.is_null() {
            folders = descriptor(options)?;
        }
        (
            text(device, "device")?,
            path(folders.data_folder, "data_folder")?,
            path(folders.model_folder, "model_folder")?,
            path(folders.wisdom_folder, "wisdom_folder")?,
        )
    };
    let data = data.unwrap_or_else(ellect::device::data_dir);
    let mut tuner = Tuner::open_in(device, &data)?;
    if let Some(models) = models {
        tuner = tuner.with_models(&models)?;
    }
    if let Some(wisdom) = wisdom {
        tuner = tuner.with_wisdom(Arc::new(Wisdom::open(&wisdom)?));
    }
    Ok(EllectTuner(tuner))
}

/// Opens the device of this name: `"cpu"`, `"cuda:0"` for the first GPU of this machine, or a profile
/// such as `"h200"`, for which matrices can only be judged. `options` may be NULL.
///
/// On success, `*tuner` belongs to the caller, who frees it with `ellect_tuner_destroy`; else it is
/// NULL. Thread safety: any thread. On a GPU, its primary context becomes current on this thread.
///
/// Fails with `ELLECT_NULL_POINTER`, `ELLECT_INVALID_ARGUMENT`, `ELLECT_UNKNOWN_DEVICE`,
/// `ELLECT_DEVICE_UNAVAILABLE`, `ELLECT_DEVICE_FAILED`, `ELLECT_WISDOM`, `ELLECT_IO`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ellect_tuner_open(
    device: *const c_char,
    options: *const EllectTunerOptions,
    tuner: *mut *mut EllectTuner,
) -> Status {
    boundary(|| {
        // SAFETY: the caller passes addresses of these types.
        unsafe {
            let to = place(tuner, "tuner")?;
            *to = Box::into_raw(Box::new(open(device, options)?));
        }
        Ok(())
    })
}

/// Returns a JSON array of sentences about models and databases that could not be used.
///
/// On success, `*json` belongs to the caller, who frees it with `ellect_string_destroy`; else it is
/// NULL. Thread safety: any thread.
///
/// Fails with `ELLECT_NULL_POINTER`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ellect_tuner_warnings_json(
    tuner: *const EllectTuner,
    json: *mut *mut c_char,
) -> Status {
    boundary(|| {
        // SAFETY: the caller passes a tuner and the address of a pointer.
        let (to, tuner) = unsafe { (place(json, "json")?, object(tuner, "tuner")?) };
        give(self::json(&tuner.0.warnings())?, to)
    })
}

/// Returns the ranking of all storage formats for a matrix as JSON: `choice`, `ranking`, `refused`,
/// `features`, `explanation` and more, as `POST /recommend` of the service answers. Converts nothing.
/// `workload` may be NULL; if its `transposed` is over 0, the key `transposed` holds the answer for the
/// transpose, or null where the matrix is symmetric. A matrix on a GPU is copied to the host for this.
///
/// On success, `*json` belongs to the caller, who frees it with `ellect_string_destroy`; else it is
/// NULL. Thread safety: any thread; the call may take seconds for a large matrix.
///
/// Fails with `ELLECT_NULL_POINTER`, `ELLECT_INVALID_ARGUMENT`, `ELLECT_INVALID_MATRIX` if borrowed
/// arrays have changed, `ELLECT_ABSENT_DEVICE` if the effort is to time candidates elsewhere, and
/// failures of the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ellect_recommend_json(
    tuner: *const EllectTuner,
    matrix: *const EllectMatrix,
    workload: *const EllectWorkload,
    json: *mut *mut c_char,
) -> Status {
    boundary(|| {
        // SAFETY: the caller passes handles and addresses of these types.
        let (to, tuner, matrix, workload) = unsafe {
            (
                place(json, "json")?,
                &object(tuner, "tuner")?.0,
                object(matrix, "matrix")?,
                self::workload(workload)?,
            )
        };
        let answer = match matrix.precision() {
            Precision::F32 => matrix
                .with(tuner, |csr: CsrRef<'_, f32>| self::json(&tuner.recommend(csr, &workload)?)),
            Precision::F64 => matrix
                .with(tuner, |csr: CsrRef<'_, f64>| self::json(&tuner.recommend(csr, &workload)?)),
        };
        give(answer?, to)
    })
}

/// Frees a tuner; NULL is ignored. Operators that it prepared stay valid. Thread safety: no other
/// thread uses the tuner.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ellect_tuner_destroy(tuner: *mut EllectTuner) {
    if !tuner.is_null() {
        // SAFETY: the caller passes a live tuner, which `Box` made, and never uses it again.
        dispose(|| drop(unsafe { Box::from_raw(tuner) }));
    }
}

/// Frees a text that a function of this library handed over; NULL is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ellect_string_destroy(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: the caller passes a text that `CString` made, and never uses it again.
        dispose(|| drop(unsafe { CString::from_raw(text) }));
    }
}
