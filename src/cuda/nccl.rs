//! NCCL, opened at run time: messages and sums between the GPUs of several processes (NVIDIA
//! Collective Communication Library, user guide).

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cust::sys as cuda;

use super::memory::Queue;
use crate::error::{DeviceFault, Error, Result};
use crate::scalar::{Precision, Scalar};

/// Possible names of the library, which the system's search path resolves.
const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

/// Oldest version that is used, as the library writes it: 2.22.0.
const LEAST: u32 = 22_200;

/// Maximum time in which all ranks must have called a function that waits for them.
const PATIENCE: Duration = Duration::from_secs(120);

/// Bytes of the number by which ranks find each other.
pub(crate) const ID: usize = 128;

/// `ncclUniqueId`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Id([u8; ID]);

/// `ncclComm_t`.
type Raw = *mut c_void;

type Transfer =
    unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, Raw, cuda::CUstream) -> c_int;
type AllReduce = unsafe extern "C" fn(
    *const c_void,
    *mut c_void,
    usize,
    c_int,
    c_int,
    Raw,
    cuda::CUstream,
) -> c_int;

/// Functions of the library.
struct Library {
    version: unsafe extern "C" fn(*mut c_int) -> c_int,
    text: unsafe extern "C" fn(c_int) -> *const c_char,
    last: unsafe extern "C" fn(Raw) -> *const c_char,
    unique_id: unsafe extern "C" fn(*mut Id) -> c_int,
    init: unsafe extern "C" fn(*mut Raw, c_int, Id, c_int) -> c_int,
    destroy: unsafe extern "C" fn(Raw) -> c_int,
    abort: unsafe extern "C" fn(Raw) -> c_int,
    state: unsafe extern "C" fn(Raw, *mut c_int) -> c_int,
    start: unsafe extern "C" fn() -> c_int,
    end: unsafe extern "C" fn() -> c_int,
    send: Transfer,
    receive: Transfer,
    all_reduce: AllReduce,
}

/// `ncclSum` and `ncclInProgress`.
const SUM: c_int = 0;
const IN_PROGRESS: c_int = 7;

fn library() -> Result<&'static Library> {
    static LIBRARY: OnceLock<std::result::Result<Library, String>> = OnceLock::new();
    let found = LIBRARY.get_or_init(|| open(&NAMES));
    found.as_ref().map_err(|why| Error::device(DeviceFault::Unavailable, why.clone()))
}

/// Returns the library's version as it writes it, for instance 22803 for 2.28.3.
///
/// # Errors
/// [`Error::Device`] if the library is missing or too old.
pub(crate) fn version() -> Result<u32> {
    version_of(library()?).map_err(|why| Error::device(DeviceFault::Unavailable, why))
}

fn version_of(library: &Library) -> std::result::Result<u32, String> {
    let mut version = 0;
    // SAFETY: the library writes one number.
    let code = unsafe { (library.version)(&mut version) };
    match u32::try_from(version) {
        Ok(version) if code == 0 && version >= LEAST => Ok(version),
        _ => Err(format!(
            "NCCL on this machine has version code {version} (status {code}), but {LEAST} (2.22) or \
             later is needed: install a later libnccl.so.2 (PyPI nvidia-nccl-cu12 or -cu13, Debian \
             libnccl2), and name its folder in LD_LIBRARY_PATH"
        )),
    }
}

/// Opens the first of these libraries that is there.
fn open(names: &[&str]) -> std::result::Result<Library, String> {
    let mut faults = Vec::new();
    let opened = names.iter().find_map(|name| {
        // SAFETY: the library's initialisers may run in any process.
        let opened = unsafe { libloading::Library::new(name) };
        opened.map_err(|error| faults.push(error.to_string())).ok()
    });
    let library = opened.ok_or_else(|| {
        format!(
            "NCCL cannot be opened ({}): install libnccl.so.2 of version 2.22 or later (PyPI \
             nvidia-nccl-cu12 or -cu13, Debian libnccl2), and name its folder in LD_LIBRARY_PATH",
            faults.join("; ")
        )
    })?;
    macro_rules! get {
        ($name:literal) => {
            // SAFETY: the type of the field is the signature in nccl.h.
            *unsafe { library.get(concat!($name, "\0").as_bytes()) }
                .map_err(|error| format!("NCCL lacks {}: {error}", $name))?
        };
    }
    let functions = Library {
        version: get!("ncclGetVersion"),
        text: get!("ncclGetErrorString"),
        last: get!("ncclGetLastError"),
        unique_id: get!("ncclGetUniqueId"),
        init: get!("ncclCommInitRank"),
        destroy: get!("ncclCommDestroy"),
        abort: get!("ncclCommAbort"),
        state: get!("ncclCommGetAsyncError"),
        start: get!("ncclGroupStart"),
        end: get!("ncclGroupEnd"),
        send: get!("ncclSend"),
        receive: get!("ncclRecv"),
        all_reduce: get!("ncclAllReduce"),
    };
    // The functions' addresses must stay valid until the process ends.
    std::mem::forget(library);
    version_of(&functions)?;
    Ok(functions)
}

impl Library {
    fn check(&self, code: c_int, what: &str, comm: Raw) -> Result<()> {
        if code == 0 || code == IN_PROGRESS {
            return Ok(());
        }
        let text = |text: *const c_char| match text.is_null() {
            true => String::new(),
            // SAFETY: the library returns a text that ends in zero and stays.
            false => unsafe { CStr::from_ptr(text) }.to_string_lossy().trim().to_string(),
        };
        // SAFETY: the library takes any code, and a communicator or none.
        let (name, last) = unsafe { (text((self.text)(code)), text((self.last)(comm))) };
        let last = if last.is_empty() { last } else { format!(" ({last})") };
        let what = format!(
            "NCCL: {what}: {name}{last}; NCCL_DEBUG=INFO makes it tell more, and transport peer or \
             host does without it"
        );
        Err(Error::device(DeviceFault::Failed, what))
    }
}

/// Returns a new number by which ranks find each other; one rank makes it for all.
///
/// # Errors
/// [`Error::Device`] if the library is missing or fails.
pub(crate) fn unique_id() -> Result<[u8; ID]> {
    let library = library()?;
    let mut id = Id([0; ID]);
    // SAFETY: the library writes one number.
    library.check(unsafe { (library.unique_id)(&mut id) }, "making an identifier", null_mut())?;
    Ok(id.0)
}

/// Runs `work` in a thread of its own and returns what it gives, unless it takes longer than
/// [`PATIENCE`]; it then goes on until the process ends.
///
/// # Errors
/// [`Error::Device`] with `what` if the time is over.
pub(super) fn patiently<R: Send + 'static>(
    what: &str,
    work: impl FnOnce() -> R + Send + 'static,
) -> Result<R> {
    let (sender, receiver) = channel();
    let run = move || {
        // Nobody listens any more if the time is over.
        let _ = sender.send(work());
    };
    let failed = |why: String| Error::device(DeviceFault::Failed, format!("NCCL: {what}: {why}"));
    let thread = std::thread::Builder::new().name("nccl".into()).spawn(run);
    thread.map_err(|error| failed(format!("no thread can be started: {error}")))?;
    receiver.recv_timeout(PATIENCE).map_err(|error| match error {
        RecvTimeoutError::Timeout => {
            failed(format!("not all ranks have arrived in {} s", PATIENCE.as_secs()))
        }
        RecvTimeoutError::Disconnected => failed("the thread ended early".into()),
    })
}

/// The connection of a rank with all others.
pub(super) struct Comm {
    raw: Raw,
    library: &'static Library,
    queue: Arc<Queue>,
    /// Set after an abort: nothing may use the connection any more.
    ended: AtomicBool,
}

// SAFETY: any thread may use a communicator, one at a time, as `Comm`'s owner ensures.
unsafe impl Send for Comm {}
// SAFETY: as above.
unsafe impl Sync for Comm {}

impl Comm {
    /// Connects this rank; all ranks call this with the same identifier.
    ///
    /// # Errors
    /// [`Error::Device`] if the library fails, or if a rank does not arrive in time.
    pub fn new(queue: &Arc<Queue>, [rank, size]: [usize; 2], id: [u8; ID]) -> Result<Self> {
        let (library, queue) = (library()?, Arc::clone(queue));
        patiently("connecting ranks", move || {
            queue.make_current()?;
            let mut raw = null_mut();
            // SAFETY: the library writes one communicator for the current context.
            let code = unsafe { (library.init)(&mut raw, size as c_int, Id(id), rank as c_int) };
            library.check(code, "connecting ranks", null_mut())?;
            Ok(Comm { raw, library, queue, ended: AtomicBool::new(false) })
        })?
    }

    /// Queues the messages of `work` as one group, so that none waits for another.
    ///
    /// # Errors
    /// Errors of `work`; [`Error::Device`] if the library fails.
    pub fn group(&self, work: impl FnOnce() -> Result<()>) -> Result<()> {
        self.is_open()?;
        // SAFETY: start and end are paired whatever `work` returns.
        let (started, queued, ended) =
            unsafe { ((self.library.start)(), work(), (self.library.end)()) };
        queued?;
        self.check(started, "beginning messages")?;
        self.check(ended, "queueing messages")
    }

    /// Queues a message of `count` numbers at `address` to another rank.
    ///
    /// # Errors
    /// [`Error::Device`] if the library fails.
    ///
    /// # Safety
    /// The numbers stay valid until the stream has finished, and the other rank gets as many.
    pub unsafe fn send<T: Scalar>(
        &self,
        address: cuda::CUdeviceptr,
        [count, to]: [usize; 2],
        stream: cuda::CUstream,
    ) -> Result<()> {
        let (at, kind) = (address as *mut c_void, kind::<T>());
        // SAFETY: by this function's own contract.
        let code = unsafe { (self.library.send)(at, count, kind, to as c_int, self.raw, stream) };
        self.check(code, "sending")
    }

    /// Queues getting a message of `count` numbers of another rank at `address`.
    ///
    /// # Errors
    /// [`Error::Device`] if the library fails.
    ///
    /// # Safety
    /// As for [`Comm::send`].
    pub unsafe fn receive<T: Scalar>(
        &self,
        address: cuda::CUdeviceptr,
        [count, from]: [usize; 2],
        stream: cuda::CUstream,
    ) -> Result<()> {
        let (at, kind) = (address as *mut c_void, kind::<T>());
        // SAFETY: by this function's own contract.
        let code =
            unsafe { (self.library.receive)(at, count, kind, from as c_int, self.raw, stream) };
        self.check(code, "receiving")
    }

    /// Queues the replacement of a number at `address` by its sum over all ranks.
    ///
    /// # Errors
    /// [`Error::Device`] if the library fails.
    ///
    /// # Safety
    /// The number stays valid until the stream has finished, and all ranks queue this.
    pub unsafe fn sum<T: Scalar>(
        &self,
        address: cuda::CUdeviceptr,
        stream: cuda::CUstream,
    ) -> Result<()> {
        self.is_open()?;
        let (at, kind) = (address as *mut c_void, kind::<T>());
        // SAFETY: by this function's own contract.
        let code = unsafe { (self.library.all_reduce)(at, at, 1, kind, SUM, self.raw, stream) };
        self.check(code, "adding over all ranks")
    }

    /// Tells whether the connection can still be used.
    ///
    /// # Errors
    /// [`Error::Device`] after [`Comm::abort`].
    pub fn is_open(&self) -> Result<()> {
        if self.ended.load(Ordering::Acquire) {
            let what = "NCCL: the connection was ended after a fault; prepare the matrix anew";
            return Err(Error::device(DeviceFault::Failed, what));
        }
        Ok(())
    }

    /// Returns a fault that the library has met since.
    ///
    /// # Errors
    /// [`Error::Device`] with that fault, or after [`Comm::abort`].
    pub fn state(&self) -> Result<()> {
        self.is_open()?;
        let mut fault = 0;
        // SAFETY: the library writes one code.
        let code = unsafe { (self.library.state)(self.raw, &mut fault) };
        self.check(code, "asking for faults")?;
        self.check(fault, "an earlier message")
    }

    /// Ends the connection and all kernels that wait for other ranks.
    pub fn abort(&self) {
        if !self.ended.swap(true, Ordering::AcqRel) {
            // SAFETY: nothing uses the communicator after this.
            unsafe { (self.library.abort)(self.raw) };
        }
    }

    fn check(&self, code: c_int, what: &str) -> Result<()> {
        self.library.check(code, what, self.raw)
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        if self.ended.swap(true, Ordering::AcqRel) || self.queue.make_current().is_err() {
            return;
        }
        // Ending may wait for the messages of other ranks, so it has bounded time too.
        let (raw, destroy, queue) = (self.raw as usize, self.library.destroy, self.queue.clone());
        let _ = patiently("ending a connection", move || {
            // SAFETY: the communicator is ended once, and nothing uses it after this.
            queue.make_current().map(|()| unsafe { destroy(raw as Raw) })
        });
    }
}

/// `ncclDataType_t` of a number.
fn kind<T: Scalar>() -> c_int {
    match T::PRECISION {
        Precision::F32 => 7,
        Precision::F64 => 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_named_with_the_remedy() {
        let fault = open(&["libnccl-that-is-not-there.so.2"]).map(|_| ()).expect_err("not there");
        assert!(fault.contains("libnccl-that-is-not-there.so.2: cannot open"), "{fault}");
        assert!(fault.contains("install libnccl.so.2 of version 2.22 or later"), "{fault}");
        assert!(fault.contains("LD_LIBRARY_PATH"), "{fault}");
    }

    #[test]
    fn another_library_is_refused() {
        let fault = open(&["libm.so.6"]).map(|_| ()).expect_err("it is another library");
        assert!(fault.starts_with("NCCL lacks ncclGetVersion"), "{fault}");
    }

    #[test]
    fn old_versions_are_refused() {
        unsafe extern "C" fn old(version: *mut c_int) -> c_int {
            // SAFETY: callers pass the address of a number.
            unsafe { *version = 21_805 };
            0
        }
        // Without NCCL on this machine, there is nothing to check.
        let Ok(mut library) = open(&NAMES) else { return };
        assert!(version_of(&library).expect("it was opened") >= LEAST);
        library.version = old;
        let fault = version_of(&library).expect_err("it is too old");
        assert!(fault.contains("21805") && fault.contains("22200 (2.22) or later"), "{fault}");
    }

    #[test]
    fn work_that_ends_early_is_an_error() {
        assert_eq!(patiently("adding", || 1 + 1).expect("it is quick"), 2);
        let fault = patiently("working", || panic!("on purpose")).map(|_: ()| ());
        let fault = fault.expect_err("it ended").to_string();
        assert!(fault.contains("NCCL: working: the thread ended early"), "{fault}");
    }
}
