//! Sends the user's own records to the shared database.
//!
//! Every batch has a number that the server gives before the batch is sent. A batch that arrives
//! late, from a connection that was given up, has the lower number and replaces nothing. Times of
//! measurements are stored by the server's clock: a contributor's clock counts only by the time that
//! has passed on it since.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ellect::Wisdom;
use ellect::unstable::wisdom::{Record, Unsent};
use tokio::time::sleep;
use xxhash_rust::xxh3::xxh3_128;

use super::link::{Fault, Link, Pause};
use super::reader::CHANNEL;
use super::{Inner, State, Told};

/// Maximum number of records in a batch.
const MOST: usize = 500;

/// Time after which a role that may only read is looked at again.
const AGAIN: Duration = Duration::from_secs(600);

const SEND: &str = "INSERT INTO ellect.record AS r (fingerprint, key, contributor, kind, device,
        precision, candidate, taken, batch, body)
    SELECT fingerprint, key::uuid, $1, kind, device, precision, candidate,
        CASE WHEN age IS NOT NULL THEN now() - make_interval(secs => age) END, $2, body::jsonb
    FROM unnest($3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
        $9::float8[], $10::text[])
        AS sent (fingerprint, key, kind, device, precision, candidate, age, body)
    ON CONFLICT (fingerprint, key, contributor) DO UPDATE
    SET taken = CASE WHEN r.body = excluded.body THEN r.taken ELSE excluded.taken END,
        stored = CASE WHEN r.body = excluded.body THEN r.stored ELSE now() END,
        batch = excluded.batch, body = excluded.body
    WHERE r.batch < excluded.batch";

/// Records in the columns of [`SEND`].
#[derive(Default)]
struct Columns {
    fingerprint: Vec<String>,
    key: Vec<String>,
    kind: Vec<&'static str>,
    device: Vec<Option<String>>,
    precision: Vec<Option<String>>,
    candidate: Vec<Option<String>>,
    /// Seconds since the measurement, on the clock that dated it.
    age: Vec<Option<f64>>,
    body: Vec<String>,
}

impl Columns {
    /// `now` is the time by the clock of this host, in seconds since 1970.
    fn of(records: &[Unsent], now: f64) -> Self {
        let mut columns = Columns::default();
        for Unsent { key, line, .. } in records {
            // A line that is damaged here would be of no use there.
            let Ok(record) = Record::parse(line) else { continue };
            columns.fingerprint.push(record.fingerprint().to_string());
            columns.key.push(format!("{:032x}", xxh3_128(key)));
            columns.body.push(String::from_utf8_lossy(line).into_owned());
            let (kind, measured) = match &record {
                Record::Structure(_) => ("structure", None),
                Record::Measurement(m) => ("measurement", Some(m)),
            };
            columns.kind.push(kind);
            columns.device.push(measured.map(|m| m.device.clone()));
            columns.precision.push(measured.map(|m| m.precision.to_string()));
            columns.candidate.push(measured.map(|m| m.candidate.clone()));
            let taken_at = measured.map(|m| m.provenance.taken_at).filter(|&at| at > 0);
            columns.age.push(taken_at.map(|at| (now - at as f64).max(0.0)));
        }
        columns
    }
}

#[cfg_attr(not(test), allow(unused_variables))]
fn now_s(inner: &Inner) -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    #[cfg(test)]
    let now = now + inner.skew_s.load(Ordering::Relaxed) as f64;
    now
}

/// Sends for ever.
pub async fn run(inner: Arc<Inner>) {
    let mut pause = Pause::new();
    let mut is_told = false;
    loop {
        while !waits(&inner) {
            inner.woken.notified().await;
        }
        match Link::open(&inner.settings).await {
            Ok(link) if link.found.reads_only => {
                inner.seen().reads_only = true;
                if !std::mem::replace(&mut is_told, true) {
                    (inner.tell)(Told::Bad(&format!(
                        "shared wisdom: this role only reads {}, so nothing is sent there; GRANT \
                         ellect_write lets it",
                        inner.settings.server
                    )));
                }
                sleep(AGAIN).await;
            }
            Ok(link) => {
                inner.sends.store(true, Ordering::Release);
                let fault = send(&inner, link, &mut pause).await;
                inner.sends.store(false, Ordering::Release);
                failed(&inner, &fault);
            }
            Err(fault) => failed(&inner, &fault),
        }
        sleep(pause.next()).await;
    }
}

/// Tells of a fault that the connection for reading does not meet.
fn failed(inner: &Inner, fault: &Fault) {
    if inner.seen().state == State::Connected && !inner.complained.swap(true, Ordering::Relaxed) {
        let server = &inner.settings.server;
        let why = fault.text();
        (inner.tell)(Told::Bad(&format!(
            "shared wisdom at {server}: {why}; measurements wait and are sent later"
        )));
    }
}

/// Tells whether this process has records to send.
fn waits(inner: &Inner) -> bool {
    inner.wisdom().is_some_and(|wisdom| wisdom.keeps())
}

/// Calls the wisdom where that may take its time.
async fn of_wisdom<T: Send + 'static>(
    inner: &Inner,
    work: impl FnOnce(&Wisdom) -> ellect::Result<T> + Send + 'static,
) -> Result<T, Fault> {
    let Some(wisdom) = inner.wisdom() else {
        return Err(Fault::Away("the program ends".into()));
    };
    let done = tokio::task::spawn_blocking(move || work(&wisdom)).await;
    let failed = |why: String| Fault::Away(format!("reading what waits: {why}"));
    done.map_err(|error| failed(error.to_string()))?.map_err(|error| failed(error.to_string()))
}

/// Sends what waits, and waits for more, until the connection ends; returns the reason.
async fn send(inner: &Inner, mut link: Link, pause: &mut Pause) -> Fault {
    loop {
        let id = link.found.id.clone();
        let batch = of_wisdom(inner, move |wisdom| wisdom.unsent(Some(&id), MOST)).await;
        let batch = match batch {
            Ok(batch) => batch,
            Err(fault) => return fault,
        };
        if batch.is_empty() {
            tokio::select! {
                () = inner.woken.notified() => {}
                note = link.notes.recv() => if note.is_none() {
                    return Fault::Away("the connection broke".into());
                },
            }
            continue;
        }
        if let Err(fault) = sent(inner, &mut link, &batch).await {
            return fault;
        }
        *pause = Pause::new();
        match of_wisdom(inner, move |wisdom| wisdom.sent(&batch)).await {
            Ok(()) => inner.batches.fetch_add(1, Ordering::Relaxed),
            Err(fault) => return fault,
        };
    }
}

/// Sends a batch; one that the server does not take is sent record by record, without the bad ones.
async fn sent(inner: &Inner, link: &mut Link, batch: &[Unsent]) -> Result<(), Fault> {
    match send_now(inner, link, batch).await {
        Err(Trouble::Data(_)) if batch.len() > 1 => {}
        done => return bear(inner, done),
    }
    for record in batch.chunks(1) {
        let done = send_now(inner, link, record).await;
        bear(inner, done)?;
    }
    Ok(())
}

/// Reason for which a batch was not stored.
enum Trouble {
    /// One of its records is not one that the server can store.
    Data(String),
    Other(Fault),
}

/// Tells of a record that cannot be stored, which is not sent again.
fn bear(inner: &Inner, done: Result<(), Trouble>) -> Result<(), Fault> {
    match done {
        Ok(()) => Ok(()),
        Err(Trouble::Other(fault)) => Err(fault),
        Err(Trouble::Data(why)) => {
            let server = &inner.settings.server;
            (inner.tell)(Told::Bad(&format!(
                "shared wisdom: {server} does not take one record, which stays here: {why}"
            )));
            Ok(())
        }
    }
}

async fn send_now(inner: &Inner, link: &mut Link, batch: &[Unsent]) -> Result<(), Trouble> {
    let columns = Columns::of(batch, now_s(inner));
    let sending = async {
        let number = link.client.query_one("SELECT nextval('ellect.batch')", &[]).await?;
        let number: i64 = number.get(0);
        let transaction = link.client.transaction().await?;
        let Columns { fingerprint, key, kind, device, precision, candidate, age, body } = &columns;
        let columns: [&(dyn tokio_postgres::types::ToSql + Sync); 10] = [
            &inner.contributor,
            &number,
            fingerprint,
            key,
            kind,
            device,
            precision,
            candidate,
            age,
            body,
        ];
        transaction.execute(SEND, &columns).await?;
        let tell =
            "SELECT pg_notify($1, f) FROM (SELECT DISTINCT unnest($2::text[]) AS f) AS all_f";
        transaction.query(tell, &[&CHANNEL, fingerprint]).await?;
        transaction.commit().await
    };
    // Classes of errors that are about the values of a record.
    let of_data = ["22", "23", "54"];
    let done = tokio::time::timeout(super::link::ANSWER, sending).await;
    match done {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => match error.code() {
            Some(code) if of_data.contains(&code.code().get(..2).unwrap_or_default()) => {
                Err(Trouble::Data(super::link::stated(&error)))
            }
            _ => Err(Trouble::Other(error.into())),
        },
        Err(_) => Err(Trouble::Other(Fault::Away("it did not store a batch in time".into()))),
    }
}
