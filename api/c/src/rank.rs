//! Ranks: a matrix that several processes share, whose program moves the bytes between them.
#![allow(unsafe_code, reason = "callers pass addresses")]

use std::cell::Cell;
use std::ffi::{CString, c_char, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ellect::csr::CsrRef;
use ellect::sharded::{Exchange, ExchangeError, Incoming, Mode, Outgoing, Rank, RankOperator};
use ellect::{Precision, Scalar, Workload};

use crate::arrays::{Value, other_type};
use crate::input::{Descriptor, apart, count, descriptor, object, place, slice, slice_mut};
use crate::matrix::EllectMatrix;
use crate::operator::{OfPrecision, each};
use crate::status::{Failure, Outcome, Status, boundary, dispose};
use crate::tuner::{EllectTuner, EllectWorkload, workload};

/// A message to another rank, or room for one from there.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EllectMessage {
    /// The message; written only if it is received.
    pub bytes: *mut c_void,
    /// Its length in bytes, at least 1.
    pub size: i64,
    /// The other rank.
    pub rank: i64,
}

/// Sends `sends` messages and receives `receives` ones, at most one to and one from each other rank, in
/// rising order of ranks. Returns 0, or another number for a failure. All ranks call it in the same
/// order, and each knows the length of the messages that it receives. The messages stay valid until
/// the function returns, or `ellect_finish` if there is one; the two arrays only until it returns.
pub type EllectExchange = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        send: *const EllectMessage,
        sends: i64,
        receive: *const EllectMessage,
        receives: i64,
    ) -> i32,
>;

/// Waits for the messages of the last call of `ellect_exchange`, which then only begins to send and to
/// receive. Returns 0, or another number for a failure.
pub type EllectFinish = Option<unsafe extern "C" fn(context: *mut c_void) -> i32>;

/// This process among those that share a matrix: set `struct_size` to `sizeof(ellect_ranks)`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EllectRanks {
    /// `sizeof(ellect_ranks)`.
    pub struct_size: usize,
    /// Number of this rank, counted from 0.
    pub rank: i64,
    /// Number of ranks.
    pub size: i64,
    /// Moves messages. It runs on the thread that calls the library.
    pub exchange: EllectExchange,
    /// Waits for messages; NULL if `exchange` does. The longest run of rows that need no message is
    /// multiplied between the two calls.
    pub finish: EllectFinish,
    /// The first argument of both functions; the library does not use it.
    pub context: *mut c_void,
}

// SAFETY: `repr(C)`, begins with its size; callers set functions or NULL.
unsafe impl Descriptor for EllectRanks {
    const NAME: &'static str = "ellect_ranks";
}

/// The exchange of a C program.
struct Callbacks {
    exchange: unsafe extern "C" fn(
        *mut c_void,
        *const EllectMessage,
        i64,
        *const EllectMessage,
        i64,
    ) -> i32,
    finish: EllectFinish,
    context: *mut c_void,
}

// SAFETY: the library calls the functions on the threads that call it, one at a time, as its
// documentation says; it does not use the context.
unsafe impl Send for Callbacks {}

fn checked(name: &str, status: i32) -> Result<(), ExchangeError> {
    match status {
        0 => Ok(()),
        status => Err(format!("the callback {name} returned {status}").into()),
    }
}

impl Exchange for Callbacks {
    fn exchange(
        &mut self,
        send: &[Outgoing<'_>],
        receive: &mut [Incoming<'_>],
        meanwhile: &mut dyn FnMut(),
    ) -> Result<(), ExchangeError> {
        let message = |rank: usize, bytes: *const u8, size: usize| EllectMessage {
            bytes: bytes.cast_mut().cast(),
            size: size as i64,
            rank: rank as i64,
        };
        let sent = send.iter().map(|to| message(to.rank, to.bytes.as_ptr(), to.bytes.len()));
        let sent: Vec<_> = sent.collect();
        let received = receive.iter_mut();
        let received =
            received.map(|from| message(from.rank, from.bytes.as_mut_ptr(), from.bytes.len()));
        let received: Vec<_> = received.collect();
        let (sends, receives) = (sent.len() as i64, received.len() as i64);
        // SAFETY: the caller promised a function of this kind; the messages are valid until the end.
        let begun = unsafe {
            (self.exchange)(self.context, sent.as_ptr(), sends, received.as_ptr(), receives)
        };
        checked("exchange", begun)?;
        if let Some(finish) = self.finish {
            meanwhile();
            // SAFETY: as above.
            checked("finish", unsafe { finish(self.context) })?;
        }
        Ok(())
    }
}

/// A rank, made by `ellect_rank_create`.
///
/// Thread safety: one thread at a time calls functions with a rank or with its operators.
pub struct EllectRank(Rank);

/// An operator of either precision.
type Prepared = OfPrecision<RankOperator<f32>, RankOperator<f64>>;

/// The own rows of a matrix that several processes share, made by `ellect_rank_prepare`.
///
/// Thread safety: one thread at a time calls functions with a rank or with its operators.
pub struct EllectRankOperator {
    prepared: Mutex<Prepared>,
    candidate: CString,
}

impl EllectRankOperator {
    fn lock(&self) -> MutexGuard<'_, Prepared> {
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes this process one of several ranks. Sends nothing yet.
///
/// All ranks then make the same calls in the same order: `ellect_rank_prepare`, `ellect_rank_apply`,
/// `ellect_rank_sum`, `ellect_rank_update`. An exchange that waits for a rank that has ended should
/// fail after some time, because nothing else tells the other ranks.
///
/// On success, `*rank` belongs to the caller, who frees it with `ellect_rank_destroy`; else it is NULL.
/// Thread safety: any thread.
///
/// Fails with `ELLECT_NULL_POINTER`, `ELLECT_INVALID_ARGUMENT`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ellect_rank_create(
    ranks: *const EllectRanks,
    rank: *mut *mut EllectRank,
) -> Status {
    boundary(|| {
        // SAFETY: the caller passes addresses of these types.
        let (to, ranks) = unsafe { (place(rank, "rank")?, descriptor(ranks)?) };
        let exchange = ranks.exchange.ok_or_else(|| Failure::null("exchange"))?;
        let (finish, context) = (ranks.finish, ranks.context);
        let (own, size) = (count(ranks.rank, "rank")?, count(ranks.size, "size")?);
        let mode = if finish.is_some() { Mode::Overlap } else { Mode::Auto };
        let rank = Rank::of(own, size, Callbacks { exchange, finish, context })?.with_mode(mode);
        *to = Box::into_raw(Box::new(EllectRank(rank)));
        Ok(())
    })
}

/// Prepares own rows; a rank that fails before the others hear of it tells them.
fn prepare<T: Value>(
    (tuner, rank): (&EllectTuner, &Rank),
    matrix: &EllectMatrix,
    columns: i64,
    workload: Outcome<Workload>,
) -> Outcome<RankOperator<T>> {
    let told = Cell::new(false);
    let prepared = workload.and_then(|workload| {
        let columns = match columns {
            -1 => None,
            columns => Some(count(columns, "columns")?),
        };
        matrix.with(&tuner.0, |csr: CsrRef<'_, T>| {
            told.set(true);
            Ok(rank.prepare_rows(&tuner.0, csr, columns, &workload)?)
        })
    });
    if !told.get() {
        rank.give_up();
    }
    prepared
}

/// Prepares the own rows of a matrix that the ranks share: `matrix` has all columns of the whole matrix,
/// numbered as there; rank 0 has the first rows, rank 1 the next ones and so on. `columns` is the number
/// of own columns, that is of own elements of x, in the order of the ranks too; -1 for a square matrix,
/// whose columns are divided like its rows. `workload` may be NULL; its basis is the original one.
///
/// All ranks call this together; if one of them fails, all do. The operator owns its layout, and the
/// matrix is no longer needed after the call.
///
/// On success, `*op` belongs to the caller, who frees it with `ellect_rank_operator_destroy`; else it
/// is NULL.
///
/// Fails as `ellect_prepare`, with `ELLECT_INVALID_ARGUMENT` if the ranks' numbers of rows or columns do
/// not fit each other, and with `ELLECT_EXCHANGE` if the exchange or another rank failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ellect_rank_prepare(
    tuner: *const EllectTuner,
    rank: *const EllectRank,
    matrix: *const EllectMatrix,
    columns: i64,
    workload: *const EllectWorkload,
    op: *mut *mut EllectRankOperator,
) -> Status {
    boundary(|| {
        // SAFETY: the caller passes handles and addresses of these types.
        let (to, on, matrix, workload) = unsafe {
            (
                place(op, "operator")?,
                (object(tuner, "tuner")?, &object(rank, "rank")?.0),
                object(matrix, "matrix")?,
                self::workload(workload),
            )
        };
        let prepared = match matrix.precision() {
            Precision::F32 => Prepared::F32(prepare(on, matrix, columns, workload)?),
            Precision::F64 => Prepared::F64(prepare(on, matrix, columns, workload)?),
        };
        let candidate = each!(&prepared, operator => operator.part().candidate().to_string());
        *to = Box::into_raw(Box::new(EllectRankOperator {
            prepared: Mutex::new(prepared),
            candidate: CString::new(candidate).unwrap_or_default(),
        }));
        Ok(())
    })
}

/// Multiplies vectors in host memory.
///
/// # Safety
/// As `ellect_rank_apply`.
unsafe fn multiply<T: Scalar>(
    operator: &RankOperator<T>,
    (alpha, x, x_len): (f64, *const c_void, i64),
    (beta, y, y_len): (f64, *mut c_void, i64),
) -> Outcome<()> {
    let lengths = (x_len.max(0) as usize, y_len.max(0) as usize);
    let vectors =
        apart((x.addr(), lengths.0), (y.addr(), lengths.1), size_of::<T>()).and_then(|()| {
            // SAFETY: by this function's own contract; the vectors do not overlap.
            unsafe { Ok((slice(x, x_len, "x")?, slice_mut(y, y_len, "y")?)) }
        });
    match vectors {
        Ok((x, y)) => Ok(operator.apply(T::from_f64(alpha), x, T::from_f64(beta), y)?),
        Err(failure) => {
            operator.give_up();
            Err(failure)
        }
    }
}

/// Computes the own elements of y = alpha A x + beta y from those of x, in host memory and of the
/// operator's value type.
///
/// `x` has `x_len` = number of own columns, `y` has `y_len` = number of own rows; they do not overlap.
/// With `beta` 0, y is written and never read. All ranks call this together. With an operator on a GPU,
/// the call copies x there and y back.
///
/// Fails with `ELLECT_NULL_POINTER`, `ELLECT_INVALID_ARGUMENT`, `ELLECT_SHAPE`, `ELLECT_EXCHANGE` if the
/// exchange failed or a rank whose elements are needed did, and failures of the device; y is then
/// undefined.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ellect_rank_apply(
    op: *const EllectRankOperator,
    alpha: f64,
    x: *const c_void,
    x_len: i64,
    beta: f64,
    y: *mut c_void,
    y_len: i64,
) -> Status {
    boundary(|| {
        // SAFETY: the caller passes an operator.
        let operator = unsafe { object(op, "operator")? };
        let (x, y) = ((alpha, x, x_len), (beta, y, y_len));
        // SAFETY: the caller passes vectors of the operator's value type and of these lengths.
        each!(&*operator.lock(), operator => unsafe { multiply(operator, x, y) })
    })
}

/// Replaces each of `len` numbers by its sum over all ranks, added in their order: all ranks get equal
/// bits. All ranks call this together, with as many numbers.
///
/// Fails with `ELLECT_NULL_POINTER`, `ELLECT_INVALID_ARGUMENT`, `ELLECT_EXCHANGE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ellect_rank_sum(
    rank: *const EllectRank,
    numbers: *mut f64,
    len: i64,
) -> Status {
    boundary(|| {
        // SAFETY: the caller passes a rank and the address of this many numbers.
        let (rank, numbers) =
            unsafe { (object(rank, "rank")?, slice_mut::<f64>(numbers.cast(), len, "numbers")?) };
        Ok(rank.0.sum(numbers)?)
    })
}

fn update<T: Value>(operator: &mut RankOperator<T>, matrix: &EllectMatrix) -> Outcome<()> {
    let rank = operator.rank().clone();
    let told = Cell::new(false);
    let updated = matrix.host_arrays().and_then(|host| {
        host.with(|csr: CsrRef<'_, T>| {
            told.set(true);
            Ok(operator.update(csr)?)
        })
    });
    if !told.get() {
        rank.give_up();
    }
    updated
}

/// Replaces the values by those of a matrix with the same pattern, given as to `ellect_rank_prepare`, in
/// host memory. All ranks call this together; ranks that do not fail then have the new values.
///
/// Fails as `ellect_update_matrix`, and with `ELLECT_EXCHANGE` if the exchange or another rank failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ellect_rank_update(
    op: *mut EllectRankOperator,
    matrix: *const EllectMatrix,
) -> Status {
    boundary(|| {
        // SAFETY: the caller passes handles of these types.
        let (operator, matrix) = unsafe { (object(op, "operator")?, object(matrix, "matrix")?) };
        match (&mut *operator.lock(), matrix.precision()) {
            (Prepared::F32(operator), Precision::F32) => update(operator, matrix),
            (Prepared::F64(operator), Precision::F64) => update(operator, matrix),
            (prepared, _) => {
                each!(prepared, operator => operator.rank().give_up());
                Err(other_type())
            }
        }
    })
}

/// Figures of a rank's operator: set `struct_size` to `sizeof(ellect_rank_info)`; the library writes
/// the other fields.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EllectRankInfo {
    /// `sizeof(ellect_rank_info)`.
    pub struct_size: usize,
    /// Number of rows of the whole matrix.
    pub nrows: i64,
    /// Number of columns of the whole matrix.
    pub ncols: i64,
    /// Number of own rows.
    pub own_rows: i64,
    /// Number of own columns.
    pub own_columns: i64,
    /// Number of entries in own rows.
    pub nnz: i64,
    /// Number of elements of x that come from other ranks before each product.
    pub halo: i64,
    /// Number of ranks that they come from.
    pub neighbours: i64,
    /// The chosen format with its parameters. Belongs to the operator and lives as long as it does.
    pub candidate: *const c_char,
    /// Type of values and vectors: `ELLECT_F32` or `ELLECT_F64`.
    pub value_type: i64,
}

// SAFETY: `repr(C)`, begins with its size; integers and raw pointers are valid for all bytes.
unsafe impl Descriptor for EllectRankInfo {
    const NAME: &'static str = "ellect_rank_info";
}

/// Fills in the figures of a rank's operator. Set `info->struct_size` before, and the other fields to
/// 0. Sends nothing.
///
/// Fails with `ELLECT_NULL_POINTER`, `ELLECT_INVALID_ARGUMENT`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ellect_rank_describe(
    op: *const EllectRankOperator,
    info: *mut EllectRankInfo,
) -> Status {
    boundary(|| {
        // SAFETY: the caller passes an operator and the address of a structure.
        let (operator, given) = unsafe { (object(op, "operator")?, descriptor(info)?) };
        let prepared = operator.lock();
        let value_type = prepared.value_type();
        let described = each!(&*prepared, prepared => EllectRankInfo {
            struct_size: given.struct_size,
            nrows: prepared.nrows() as i64,
            ncols: prepared.ncols() as i64,
            own_rows: prepared.part().rows() as i64,
            own_columns: prepared.own_columns() as i64,
            nnz: prepared.part().nnz() as i64,
            halo: prepared.part().halo() as i64,
            neighbours: prepared.part().neighbours().count() as i64,
            candidate: operator.candidate.as_ptr(),
            value_type: i64::from(value_type),
        });
        // SAFETY: the structure was read above, so it has at least these bytes.
        unsafe { info.write(described) };
        Ok(())
    })
}

/// Frees an operator of a rank; NULL is ignored. Sends nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ellect_rank_operator_destroy(op: *mut EllectRankOperator) {
    if !op.is_null() {
        // SAFETY: the caller passes a live operator, which `Box` made, and never uses it again.
        dispose(|| drop(unsafe { Box::from_raw(op) }));
    }
}

/// Frees a rank; NULL is ignored. Its operators stay valid and use its callbacks. Sends nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ellect_rank_destroy(rank: *mut EllectRank) {
    if !rank.is_null() {
        // SAFETY: the caller passes a live rank, which `Box` made, and never uses it again.
        dispose(|| drop(unsafe { Box::from_raw(rank) }));
    }
}
