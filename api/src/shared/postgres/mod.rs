//! The client of a shared database in PostgreSQL.
//!
//! One thread keeps two connections: one asks for records and hears of new ones (`reader`), the
//! other sends the user's own (`writer`). A choice waits for a matrix's records for at most
//! [`LIMIT`]; when that is over, or the connection breaks, nothing is asked until the database has
//! answered in time again, which the thread tries now and then.

mod link;
mod queue;
mod reader;
mod schema;
mod settings;
mod tls;
mod writer;

use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use ellect::unstable::wisdom::{Layer, Record, Shared};
use ellect::{Fingerprint, Wisdom};
use ellect_training::corpus::Entry;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::{Address, State, Status, Tell, Told};
use link::{Fault, Link, answered};
pub use queue::Queue;
use reader::Ask;
use settings::{CONNECT, Settings};

/// Time that a choice waits for the records of a matrix; with what a thread takes to wake up, it is
/// below 50 ms.
pub const LIMIT: Duration = Duration::from_millis(45);

/// Time without progress after which a command leaves the rest of the outbox to the next one.
const STALLED: Duration = Duration::from_secs(1);

/// Maximum number of matrices whose records are held in memory.
const MOST_MATRICES: usize = 4096;

/// A client of a shared database.
#[derive(Debug)]
pub struct Client(Arc<Inner>);

/// State that the client shares with its thread.
struct Inner {
    settings: Settings,
    tell: Tell,
    /// Name of this data folder among those that contribute.
    contributor: String,
    seen: Mutex<Status>,
    /// True if something was told that an end should be told of, too.
    complained: AtomicBool,
    /// True while nothing is asked, because the database did not answer in time.
    is_open: AtomicBool,
    tripped: Notify,
    /// Records of matrices that were asked for.
    memory: Mutex<HashMap<Fingerprint, Arc<Layer>>>,
    revision: AtomicU64,
    /// Number of news that were heard.
    heard: AtomicU64,
    asks: UnboundedSender<Ask>,
    wisdom: OnceLock<Weak<Wisdom>>,
    /// Records may wait to be sent.
    woken: Notify,
    /// True while the connection that sends is there.
    sends: AtomicBool,
    /// Number of acknowledged batches.
    batches: AtomicU64,
    /// Seconds by which the clock of this host is ahead.
    #[cfg(test)]
    skew_s: std::sync::atomic::AtomicI64,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "client of {}", self.settings.server)
    }
}

fn runtime() -> Result<Runtime> {
    Builder::new_current_thread().enable_all().build().context("starting a runtime")
}

impl Client {
    /// Starts to connect, and returns at once.
    ///
    /// # Errors
    /// If the address is wrong.
    pub fn start(address: &Address, data: &Path, tell: Tell) -> Result<Arc<Self>> {
        let settings = Settings::of(address)?;
        let (asks, asked) = unbounded_channel();
        let seen = Status { server: settings.server.clone(), ..Status::default() };
        let inner = Arc::new(Inner {
            settings,
            tell,
            contributor: contributor(data)?,
            seen: Mutex::new(seen),
            complained: AtomicBool::new(false),
            is_open: AtomicBool::new(false),
            tripped: Notify::new(),
            memory: Mutex::default(),
            revision: AtomicU64::new(0),
            heard: AtomicU64::new(0),
            asks,
            wisdom: OnceLock::new(),
            woken: Notify::new(),
            sends: AtomicBool::new(false),
            batches: AtomicU64::new(0),
            #[cfg(test)]
            skew_s: std::sync::atomic::AtomicI64::new(0),
        });
        let runtime = runtime()?;
        let (for_reader, for_writer) = (Arc::clone(&inner), Arc::clone(&inner));
        let work = move || {
            runtime.block_on(async {
                tokio::join!(reader::run(for_reader, asked), writer::run(for_writer))
            })
        };
        let thread = std::thread::Builder::new().name("ellect-shared".into());
        thread.spawn(work).context("starting a thread")?;
        Ok(Arc::new(Client(inner)))
    }

    /// Sends the records of this wisdom from now on.
    pub fn attach(&self, wisdom: &Arc<Wisdom>) {
        // A client serves one wisdom, the first.
        let _ = self.0.wisdom.set(Arc::downgrade(wisdom));
        self.0.woken.notify_one();
    }

    /// Returns the state of the connection, without asking the database.
    pub fn status(&self) -> Status {
        let outbox = self.0.wisdom().map_or(0, |wisdom| wisdom.unsent_count());
        Status { outbox, ..self.0.seen().clone() }
    }

    /// Sends what waits, asks the database for the numbers of its records, and waits for the answer.
    ///
    /// # Errors
    /// If it cannot be reached or used.
    pub fn census(&self) -> Result<Status> {
        let counts = || {
            self.once(async |link: &Link| {
                let counts = "SELECT count(*), count(DISTINCT contributor) FROM ellect.record";
                let row = answered(link.client.query_one(counts, &[])).await?;
                Ok((link.found.clone(), row.get::<_, i64>(0), row.get::<_, i64>(1)))
            })
        };
        // The database answers, so the connection that sends is there soon.
        let (found, ..) = &counts()?;
        let start = Instant::now();
        while !found.reads_only
            && !self.0.sends.load(Ordering::Acquire)
            && self.0.wisdom().is_some_and(|wisdom| wisdom.unsent_count() > 0)
            && start.elapsed() < CONNECT
        {
            std::thread::sleep(Duration::from_millis(2));
        }
        self.finish();
        let (found, records, contributors) = counts()?;
        Ok(Status {
            state: State::Connected,
            schema: Some(found.schema),
            reads_only: found.reads_only,
            records: Some(records),
            contributors: Some(contributors),
            ..self.status()
        })
    }

    /// Returns all records of a device, one for each key.
    ///
    /// # Errors
    /// If the database cannot be reached or used.
    pub fn records_on(&self, device: &str) -> Result<Vec<Record>> {
        let rows = self.once(async |link: &Link| {
            let statement = "SELECT body::text, extract(epoch FROM taken)::bigint
                FROM ellect.record WHERE device = $1 OR (kind = 'structure' AND fingerprint IN
                    (SELECT fingerprint FROM ellect.record WHERE device = $1))
                ORDER BY fingerprint, kind DESC, key, contributor";
            answered(link.client.query(statement, &[&device])).await
        })?;
        let mut of_matrix: HashMap<Fingerprint, Vec<Record>> = HashMap::new();
        for record in rows.iter().filter_map(reader::record) {
            of_matrix.entry(record.fingerprint()).or_default().push(record);
        }
        let layers = of_matrix.into_values().map(Layer::of_hosts);
        Ok(layers.flat_map(|layer| layer.records().collect::<Vec<_>>()).collect())
    }

    /// Opens the queue of a corpus.
    ///
    /// # Errors
    /// As [`Queue::open`].
    pub fn queue(&self, run: &str, entries: Vec<Entry>, part: (usize, usize)) -> Result<Queue> {
        Queue::open(Arc::clone(&self.0), run, entries, part)
    }

    /// Does something on a connection of its own.
    fn once<T>(&self, work: impl AsyncFnOnce(&Link) -> Result<T, Fault>) -> Result<T> {
        let server = &self.0.settings.server;
        let done = runtime()?.block_on(async {
            let link = Link::open(&self.0.settings).await?;
            work(&link).await
        });
        done.map_err(|fault| anyhow!("shared wisdom at {server}: {}", fault.text()))
    }
}

impl Shared for Client {
    fn layer(&self, fingerprint: Fingerprint) -> Option<Arc<Layer>> {
        let inner = &self.0;
        if let Some(layer) = inner.memory().get(&fingerprint) {
            return Some(Arc::clone(layer));
        }
        if inner.is_open.load(Ordering::Acquire) {
            return None;
        }
        let (reply, answer) = sync_channel(1);
        // The thread has ended if sending fails, and then nothing answers.
        inner.asks.send(Ask { fingerprint, reply }).ok()?;
        match answer.recv_timeout(LIMIT) {
            Ok(layer) => Some(layer),
            Err(_) => {
                inner.trip(&format!("no answer in {} ms", LIMIT.as_millis()));
                None
            }
        }
    }

    fn wake(&self) {
        self.0.woken.notify_one();
    }

    fn revision(&self) -> u64 {
        self.0.revision.load(Ordering::Relaxed)
    }

    fn finish(&self) {
        let inner = &self.0;
        let Some(wisdom) = inner.wisdom() else { return };
        if wisdom.unsent_count() == 0 {
            return;
        }
        inner.wait_for_connections();
        let progress = || (wisdom.unsent_count(), inner.batches.load(Ordering::Relaxed));
        let (mut last, mut since) = (progress(), Instant::now());
        // One that did not answer a choice in time has had its time.
        let patience = || if inner.is_open.load(Ordering::Acquire) { LIMIT } else { STALLED };
        while last.0 > 0 && inner.sends.load(Ordering::Acquire) && since.elapsed() < patience() {
            std::thread::sleep(Duration::from_millis(2));
            let now = progress();
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
        if last.0 > 0 && !inner.seen().reads_only {
            (inner.tell)(Told::Bad(&format!(
                "shared wisdom: {} records wait to be sent to {}; the next command or service that \
                 uses it on this data folder sends them",
                last.0, inner.settings.server
            )));
        }
    }
}

impl Inner {
    fn seen(&self) -> MutexGuard<'_, Status> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn memory(&self) -> MutexGuard<'_, HashMap<Fingerprint, Arc<Layer>>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wisdom(&self) -> Option<Arc<Wisdom>> {
        self.wisdom.get()?.upgrade()
    }

    /// Waits, for as long as a choice would, until the first connections are there.
    fn wait_for_connections(&self) {
        let start = Instant::now();
        let waits = || {
            let seen = self.seen();
            let reads_only = seen.reads_only;
            match seen.state {
                State::Connecting => true,
                State::Connected => !reads_only && !self.sends.load(Ordering::Acquire),
                State::Away | State::Refused => false,
            }
        };
        while waits() && start.elapsed() < LIMIT {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Asks nothing more until the database answers in time.
    fn trip(&self, why: &str) {
        self.is_open.store(true, Ordering::Release);
        self.tripped.notify_one();
        self.change(State::Away, Some(why.to_string()));
    }

    /// Asks again; records may have changed meanwhile.
    fn mend(&self) {
        self.memory().clear();
        self.revision.fetch_add(1, Ordering::Relaxed);
        self.is_open.store(false, Ordering::Release);
        self.change(State::Connected, None);
    }

    /// Notes that a connection was not possible.
    fn fail(&self, fault: Fault) {
        self.is_open.store(true, Ordering::Release);
        match fault {
            Fault::Away(why) => self.change(State::Away, Some(why)),
            Fault::Refused(why) => self.change(State::Refused, Some(why)),
        }
    }

    /// Changes the state, and tells of it once.
    fn change(&self, state: State, reason: Option<String>) {
        let server = &self.settings.server;
        let before = {
            let mut seen = self.seen();
            let before = std::mem::replace(&mut seen.state, state);
            seen.reason.clone_from(&reason);
            before
        };
        let why = reason.unwrap_or_default();
        match state {
            State::Connecting => {}
            State::Connected if before == State::Connected => {}
            State::Connected => {
                self.complained.store(false, Ordering::Relaxed);
                (self.tell)(Told::Good(&format!("shared wisdom: connected to {server}")));
            }
            State::Away | State::Refused => {
                if before == state || self.complained.swap(true, Ordering::Relaxed) {
                    return;
                }
                let what = match state {
                    State::Refused => "it is neither read nor written",
                    _ => "choices go on without it, and measurements wait to be sent",
                };
                (self.tell)(Told::Bad(&format!("shared wisdom at {server}: {why}; {what}")));
            }
        }
    }
}

/// Name of the file in the folder of the user's own database that holds its name.
const CONTRIBUTOR: &str = "wisdom/contributor";

/// Returns the name of this data folder among those that contribute: the name of the host and a
/// random number. It is made at the first use.
fn contributor(data: &Path) -> Result<String> {
    let path = data.join(CONTRIBUTOR);
    let read = || fs::read_to_string(&path).map(|name| name.trim().to_string());
    if let Ok(name) = read()
        && !name.is_empty()
    {
        return Ok(name);
    }
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host: String = host.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
    let random = || std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0);
    let name = format!("{}-{:016x}", host.get(..40).unwrap_or(&host), random());
    // A reader has no folder of its own, and writes nothing.
    if !data.join("wisdom").is_dir() {
        return Ok(name);
    }
    let mut part = tempfile::NamedTempFile::new_in(data.join("wisdom"));
    let written = part
        .as_mut()
        .map_err(|error| std::io::Error::from(error.kind()))
        .and_then(|f| std::io::Write::write_all(f, format!("{name}\n").as_bytes()));
    match (written, part) {
        (Ok(()), Ok(part)) => match part.persist_noclobber(&path) {
            Ok(_) => Ok(name),
            // Another process was quicker.
            Err(error) if error.error.kind() == ErrorKind::AlreadyExists => {
                read().with_context(|| path.display().to_string())
            }
            Err(error) => Err(error.error).with_context(|| path.display().to_string()),
        },
        // A folder that cannot be written to is only read.
        _ => Ok(name),
    }
}

#[cfg(test)]
mod tests;
