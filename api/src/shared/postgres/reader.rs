//! Asks the shared database for records, and hears which matrices have new ones.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use ellect::Fingerprint;
use ellect::unstable::wisdom::{Layer, Record};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{sleep, sleep_until, timeout};
use tokio_postgres::{Client, Row};

use super::link::{Fault, Link, Pause, answered};
use super::{Inner, LIMIT, MOST_MATRICES};

/// A question for the records of a matrix.
pub struct Ask {
    pub fingerprint: Fingerprint,
    /// Dropped without an answer if there is none.
    pub reply: SyncSender<Arc<Layer>>,
}

/// Channel on which a writer tells of the matrices that have new records.
pub const CHANNEL: &str = "ellect";

/// Statement for the records of a matrix that other data folders contributed.
const LOOK: &str = "SELECT body::text, extract(epoch FROM taken)::bigint FROM ellect.record
    WHERE fingerprint = $1 AND contributor <> $2 ORDER BY key, contributor";

/// Connects for ever.
pub async fn run(inner: Arc<Inner>, mut asked: UnboundedReceiver<Ask>) {
    let mut pause = Pause::new();
    loop {
        match Link::open(&inner.settings).await {
            Ok(link) => {
                let start = Instant::now();
                let fault = serve(&inner, link, &mut asked).await;
                inner.fail(fault);
                if start.elapsed() > Duration::from_secs(60) {
                    pause = Pause::new();
                }
            }
            Err(fault) => inner.fail(fault),
        }
        // Nobody waits for a server that is away: those who asked are told at once.
        let rested = sleep(pause.next());
        tokio::pin!(rested);
        loop {
            tokio::select! {
                () = &mut rested => break,
                ask = asked.recv() => match ask {
                    Some(ask) => drop(ask),
                    None => return,
                },
            }
        }
    }
}

/// Answers questions until the connection ends; returns the reason.
async fn serve(inner: &Arc<Inner>, link: Link, asked: &mut UnboundedReceiver<Ask>) -> Fault {
    let Link { client, found, mut notes } = link;
    {
        let mut seen = inner.seen();
        (seen.schema, seen.reads_only) = (Some(found.schema), found.reads_only);
    }
    // From here on, no news are missed; those before are by the memory that is cleared.
    if let Err(fault) = answered(client.batch_execute(&format!("LISTEN {CHANNEL}"))).await {
        return fault;
    }
    if !inner.is_open.load(Ordering::Acquire) {
        inner.mend();
    }
    // A call from before this connection would only put off the first look at it.
    let _ = timeout(Duration::ZERO, inner.tripped.notified()).await;
    let (client, broken) = (Arc::new(client), Arc::new(Notify::new()));
    let mut pause = Pause::new();
    let mut probe_at = tokio::time::Instant::now();
    loop {
        let is_open = inner.is_open.load(Ordering::Acquire);
        tokio::select! {
            note = notes.recv() => match note {
                Some(fingerprint) => hear(inner, &fingerprint),
                None => return Fault::Away("the connection broke".into()),
            },
            () = broken.notified() => return Fault::Away("it stopped answering".into()),
            () = inner.tripped.notified() => {
                probe_at = tokio::time::Instant::now() + pause.next();
            }
            () = sleep_until(probe_at), if is_open => {
                let start = Instant::now();
                // No matrix has this fingerprint, but its index is looked up.
                let none = answered(client.query(LOOK, &[&"", &""])).await;
                match none {
                    Err(fault) => return fault,
                    Ok(_) if start.elapsed() <= LIMIT => {
                        pause = Pause::new();
                        inner.mend();
                    }
                    Ok(_) => probe_at = tokio::time::Instant::now() + pause.next(),
                }
            }
            ask = asked.recv() => {
                let Some(ask) = ask else { return Fault::Away("the program ends".into()) };
                let (inner, client) = (Arc::clone(inner), Arc::clone(&client));
                let broken = Arc::clone(&broken);
                tokio::spawn(async move {
                    if look(&inner, &client, ask).await.is_err() {
                        broken.notify_one();
                    }
                });
            }
        }
    }
}

/// Forgets the records of a matrix that has new ones.
fn hear(inner: &Inner, fingerprint: &str) {
    let Ok(fingerprint) = fingerprint.parse::<Fingerprint>() else { return };
    inner.heard.fetch_add(1, Ordering::AcqRel);
    if inner.memory().remove(&fingerprint).is_some() {
        inner.revision.fetch_add(1, Ordering::Relaxed);
    }
}

/// Answers one question.
async fn look(inner: &Arc<Inner>, client: &Client, ask: Ask) -> Result<(), Fault> {
    let start = Instant::now();
    let Ask { fingerprint, reply } = ask;
    let heard = inner.heard.load(Ordering::Acquire);
    let name = fingerprint.to_string();
    let rows = answered(client.query(LOOK, &[&name, &inner.contributor])).await?;
    let layer = Arc::new(Layer::of_hosts(rows.iter().filter_map(record).collect()));
    // News that came meanwhile may be about this matrix.
    if inner.heard.load(Ordering::Acquire) == heard {
        let mut memory = inner.memory();
        if memory.len() >= MOST_MATRICES {
            memory.clear();
            inner.revision.fetch_add(1, Ordering::Relaxed);
        }
        memory.insert(fingerprint, Arc::clone(&layer));
    }
    // The caller may have gone on without the answer.
    let _ = reply.send(Arc::clone(&layer));
    if start.elapsed() > LIMIT {
        inner.trip("its answers take too long");
    }
    if let Some(wisdom) = inner.wisdom() {
        let kept = tokio::task::spawn_blocking(move || wisdom.keep_fetched(fingerprint, &layer));
        // A copy that is not kept is fetched again.
        let _ = kept.await;
    }
    Ok(())
}

/// Returns the record in a row of its text and the time at which it was taken by the server's clock;
/// `None` if this program does not understand it.
pub fn record(row: &Row) -> Option<Record> {
    let (text, taken): (String, Option<i64>) = (row.try_get(0).ok()?, row.try_get(1).ok()?);
    let mut record = Record::parse(text.as_bytes()).ok()?;
    if let (Record::Measurement(m), Some(taken)) = (&mut record, taken) {
        m.provenance.taken_at = u64::try_from(taken).unwrap_or(0);
    }
    Some(record)
}
