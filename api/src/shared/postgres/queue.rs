//! The queue of a corpus that several hosts tune.
//!
//! An item is a matrix. A host takes one for a while, the lease, and prolongs it as long as it lives;
//! then any other host takes the item. An item is done once its measurements are stored in the shared
//! database.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use ellect_training::corpus::Entry;
use ellect_training::tune;
use tokio::runtime::Runtime;
use tokio_postgres::Client;
use tokio_postgres::types::ToSql;

use super::link::{Fault, Link, Pause, answered};
use super::{Inner, Told, runtime};

/// Number of hosts that may lose an item before it is given up.
const MOST_TRIES: i32 = 5;

/// Time after which a host that found nothing looks again.
const LOOK: Duration = Duration::from_millis(500);

const TAKE: &str = "WITH free AS (
        SELECT run, source FROM ellect.item
        WHERE run = $1 AND done IS NULL AND tries < $2 AND (until IS NULL OR until < now())
        ORDER BY (place - $4) % $5 <> 0, place LIMIT 1 FOR UPDATE SKIP LOCKED)
    UPDATE ellect.item AS i SET holder = $3, tries = i.tries + 1,
        until = now() + make_interval(secs => (SELECT lease_s FROM ellect.meta))
    FROM free WHERE i.run = free.run AND i.source = free.source RETURNING i.source";

const PROLONG: &str = "UPDATE ellect.item
    SET until = now() + make_interval(secs => (SELECT lease_s FROM ellect.meta))
    WHERE run = $1 AND holder = $2 AND done IS NULL";

const RELEASE: &str = "UPDATE ellect.item SET holder = NULL, until = NULL, tries = tries - 1
    WHERE run = $1 AND holder = $2 AND done IS NULL";

const DONE: &str = "UPDATE ellect.item SET done = coalesce(done, now()), until = NULL, holder = $3,
    note = $4 WHERE run = $1 AND source = $2";

/// Counts items that are not done and not given up.
const LEFT: &str = "SELECT count(*) FROM ellect.item
    WHERE run = $1 AND done IS NULL AND (tries < $2 OR until >= now())";

/// A queue.
pub struct Queue {
    shop: Arc<Shop>,
    entries: HashMap<String, Entry>,
    /// First place and distance of the items that are taken first.
    part: (i32, i32),
    prolongs: Option<JoinHandle<()>>,
}

/// State that the queue shares with the thread that prolongs its leases.
struct Shop {
    inner: Arc<Inner>,
    run: String,
    /// Name of this process among those that take items.
    holder: String,
    connection: Mutex<Connection>,
    is_closed: AtomicBool,
    complained: AtomicBool,
}

struct Connection {
    runtime: Runtime,
    link: Option<Link>,
}

impl Queue {
    /// Opens the queue with the name `run`, and adds the entries that it lacks. Items whose places
    /// are the K-th of N are taken first, for the part (K, N).
    ///
    /// # Errors
    /// If the database cannot be reached or used, or the role only reads.
    pub(super) fn open(
        inner: Arc<Inner>,
        run: &str,
        entries: Vec<Entry>,
        (k, n): (usize, usize),
    ) -> Result<Self> {
        // Numbers of processes repeat, above all in containers.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (process, now) = (std::process::id(), since.as_nanos());
        let holder = format!("{}/{process}-{now:x}", inner.contributor);
        let connection = Connection { runtime: runtime()?, link: None };
        let shop = Arc::new(Shop {
            inner,
            run: run.to_string(),
            holder,
            connection: Mutex::new(connection),
            is_closed: AtomicBool::new(false),
            complained: AtomicBool::new(false),
        });
        let server = &shop.inner.settings.server;
        let sources: Vec<&str> = entries.iter().map(|entry| entry.source.as_str()).collect();
        let opened = shop.once(async |client| {
            let add = "INSERT INTO ellect.item (run, source, place)
                SELECT $1, source, min(place) FROM unnest($2::text[]) WITH ORDINALITY
                    AS all_of (source, place) GROUP BY source ON CONFLICT DO NOTHING";
            answered(client.execute(add, &[&shop.run, &sources])).await?;
            let row = answered(client.query_one("SELECT lease_s FROM ellect.meta", &[])).await?;
            Ok(row.get::<_, i32>(0))
        });
        let lease_s = match opened {
            Ok(lease_s) => u64::try_from(lease_s).unwrap_or(60),
            Err(fault) => bail!(
                "shared wisdom at {server}: {}; --share needs a role that may write, as \
                 `GRANT ellect_write TO ...` makes one",
                fault.text()
            ),
        };
        let of = Arc::clone(&shop);
        let prolongs = std::thread::Builder::new().name("ellect-lease".into());
        let prolongs = prolongs.spawn(move || of.prolong(Duration::from_secs(lease_s) / 3))?;
        let entries = entries.into_iter().map(|entry| (entry.source.clone(), entry)).collect();
        let place = |number: usize| i32::try_from(number).unwrap_or(1);
        Ok(Queue { shop, entries, part: (place(k), place(n)), prolongs: Some(prolongs) })
    }

    /// Puts the items that are done into the queue again.
    ///
    /// # Errors
    /// If the database cannot be reached.
    pub fn restart(&self) -> Result<()> {
        let again = "UPDATE ellect.item SET done = NULL, tries = 0, holder = NULL, until = NULL,
            note = NULL WHERE run = $1 AND (until IS NULL OR until < now())";
        let shop = &self.shop;
        let done = shop.once(async |client| answered(client.execute(again, &[&shop.run])).await);
        match done {
            Ok(_) => Ok(()),
            Err(fault) => bail!("shared wisdom: {}", fault.text()),
        }
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "queue {}", self.shop.run)
    }
}

impl tune::Queue for Queue {
    fn next(&self) -> Option<Entry> {
        let shop = &self.shop;
        let (first, every) = self.part;
        while !shop.is_closed.load(Ordering::Acquire) {
            let taken = shop.surely(async |client| {
                let values: [&(dyn ToSql + Sync); 5] =
                    [&shop.run, &MOST_TRIES, &shop.holder, &first, &every];
                let row = answered(client.query_opt(TAKE, &values)).await?;
                Ok(row.map(|row| row.get::<_, String>(0)))
            })?;
            match taken {
                Some(source) => {
                    if let Some(entry) = self.entries.get(&source) {
                        return Some(entry.clone());
                    }
                    // The name of a queue stands for its matrices, so this host has all of them.
                    std::thread::sleep(LOOK);
                }
                None if self.left() == 0 => return None,
                None => std::thread::sleep(LOOK),
            }
        }
        None
    }

    fn done(&self, entry: &Entry, why_not: Option<&str>) {
        let shop = &self.shop;
        shop.wait_until_sent();
        shop.surely(async |client| {
            let values: [&(dyn ToSql + Sync); 4] =
                [&shop.run, &entry.source, &shop.holder, &why_not];
            answered(client.execute(DONE, &values)).await
        });
    }

    fn left(&self) -> usize {
        let shop = &self.shop;
        let left = shop.surely(async |client| {
            let row = answered(client.query_one(LEFT, &[&shop.run, &MOST_TRIES])).await?;
            Ok(row.get::<_, i64>(0))
        });
        left.and_then(|left| left.try_into().ok()).unwrap_or(0)
    }

    fn close(&self) {
        let shop = &self.shop;
        if !shop.is_closed.swap(true, Ordering::AcqRel) {
            // Leases that are not given back run out.
            let _ = shop.once(async |client| {
                answered(client.execute(RELEASE, &[&shop.run, &shop.holder])).await
            });
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        tune::Queue::close(self);
        if let Some(prolongs) = self.prolongs.take() {
            prolongs.thread().unpark();
            // A panic there has been reported.
            let _ = prolongs.join();
        }
    }
}

impl Shop {
    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something once, connecting first if need be.
    fn once<T>(&self, work: impl AsyncFn(&Client) -> Result<T, Fault>) -> Result<T, Fault> {
        let mut connection = self.connection();
        let Connection { runtime, link } = &mut *connection;
        runtime.block_on(async {
            let open = match link.take().filter(|link| !link.client.is_closed()) {
                Some(open) => open,
                None => Link::open(&self.inner.settings).await?,
            };
            let done = work(&open.client).await?;
            *link = Some(open);
            Ok(done)
        })
    }

    /// Does something, however long the database is away; `None` once the queue is closed.
    fn surely<T>(&self, work: impl AsyncFn(&Client) -> Result<T, Fault>) -> Option<T> {
        let mut pause = Pause::new();
        loop {
            match self.once(&work) {
                Ok(done) => {
                    self.complained.store(false, Ordering::Relaxed);
                    return Some(done);
                }
                Err(_) if self.is_closed.load(Ordering::Acquire) => return None,
                Err(fault) => self.complain(fault.text()),
            }
            std::thread::sleep(pause.next().min(Duration::from_secs(10)));
        }
    }

    fn complain(&self, why: &str) {
        if !self.complained.swap(true, Ordering::Relaxed) {
            let server = &self.inner.settings.server;
            (self.inner.tell)(Told::Bad(&format!(
                "the queue at {server} cannot be used: {why}; waiting for it"
            )));
        }
    }

    /// Waits until all own records are in the shared database.
    fn wait_until_sent(&self) {
        let start = Instant::now();
        while let Some(wisdom) = self.inner.wisdom().filter(|wisdom| wisdom.unsent_count() > 0) {
            self.inner.woken.notify_one();
            if start.elapsed() > Duration::from_secs(30) {
                self.complain(&format!("{} records are not sent yet", wisdom.unsent_count()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Prolongs the leases until the queue is closed.
    fn prolong(&self, period: Duration) {
        while !self.is_closed.load(Ordering::Acquire) {
            std::thread::park_timeout(period);
            if !self.is_closed.load(Ordering::Acquire) {
                // A lease that is not prolonged runs out, and the item is measured twice.
                let _ = self.once(async |client| {
                    answered(client.execute(PROLONG, &[&self.run, &self.holder])).await
                });
            }
        }
    }
}
