//! The tables of the shared database and their versions.

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::link::{Fault, stated};

/// Version of the tables that this program reads and writes.
pub const SCHEMA: i32 = 1;

/// Statements that lead from each version to the next one.
const STEPS: [&str; SCHEMA as usize] = ["
    CREATE SCHEMA IF NOT EXISTS ellect;
    CREATE TABLE ellect.meta (
        one boolean PRIMARY KEY DEFAULT true CHECK (one),
        schema integer NOT NULL,
        id uuid NOT NULL DEFAULT gen_random_uuid(),
        lease_s integer NOT NULL DEFAULT 60 CHECK (lease_s > 0));
    INSERT INTO ellect.meta (schema) VALUES (1);
    CREATE SEQUENCE ellect.batch;
    CREATE TABLE ellect.record (
        fingerprint text NOT NULL,
        key uuid NOT NULL,
        contributor text NOT NULL,
        kind text NOT NULL,
        device text,
        precision text,
        candidate text,
        taken timestamptz,
        stored timestamptz NOT NULL DEFAULT now(),
        batch bigint NOT NULL,
        body jsonb NOT NULL,
        PRIMARY KEY (fingerprint, key, contributor));
    CREATE INDEX record_device ON ellect.record (device);
    CREATE TABLE ellect.item (
        run text NOT NULL,
        source text NOT NULL,
        place integer NOT NULL,
        tries integer NOT NULL DEFAULT 0,
        holder text,
        until timestamptz,
        done timestamptz,
        note text,
        PRIMARY KEY (run, source));
    DO $$ BEGIN
        IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'ellect_read') THEN
            GRANT USAGE ON SCHEMA ellect TO ellect_read;
            GRANT SELECT ON ALL TABLES IN SCHEMA ellect TO ellect_read;
        END IF;
        IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'ellect_write') THEN
            GRANT USAGE ON SCHEMA ellect TO ellect_write;
            GRANT SELECT ON ALL TABLES IN SCHEMA ellect TO ellect_write;
            GRANT INSERT, UPDATE, DELETE ON ellect.record, ellect.item TO ellect_write;
            GRANT USAGE ON SEQUENCE ellect.batch TO ellect_write;
        END IF;
    END $$;
"];

/// Key of the lock that a change of the tables holds: `ellect` in ASCII.
const LOCK: i64 = 0x656c_6c65_6374;

/// The tables as they were found.
#[derive(Clone, Debug)]
pub struct Found {
    pub schema: i32,
    /// Identity of the database.
    pub id: String,
    /// True if this role may not add records.
    pub reads_only: bool,
}

/// Looks at the tables; makes them, or brings them up to date, if they are missing or older.
///
/// # Errors
/// [`Fault::Refused`] if they are newer than this program, or the role may not do that.
pub async fn found(client: &Client) -> Result<Found, Fault> {
    match version(client).await? {
        Some(SCHEMA) => {}
        Some(newer) if newer > SCHEMA => {
            return Err(Fault::Refused(format!(
                "its tables have schema {newer}, and this program knows up to {SCHEMA}: upgrade this \
                 program, or name another database"
            )));
        }
        _ => {
            migrate(client).await.map_err(|error| match error.code() {
                Some(&(SqlState::INSUFFICIENT_PRIVILEGE | SqlState::READ_ONLY_SQL_TRANSACTION)) => {
                    Fault::Refused(format!(
                        "its tables are missing or older, and this role may not make them ({}): run \
                         `ellect wisdom shared` once as the owner of the database",
                        stated(&error)
                    ))
                }
                _ => Fault::from(error),
            })?;
        }
    }
    let row = client
        .query_one(
            "SELECT schema, id::text,
                    NOT has_table_privilege('ellect.record', 'INSERT') OR pg_is_in_recovery()
                    OR current_setting('default_transaction_read_only')::boolean
             FROM ellect.meta",
            &[],
        )
        .await?;
    Ok(Found { schema: row.get(0), id: row.get(1), reads_only: row.get(2) })
}

/// Returns the version of the tables; `None` if there are none.
async fn version(client: &Client) -> Result<Option<i32>, Fault> {
    let denied = |error: tokio_postgres::Error| match error.code() {
        Some(&SqlState::INSUFFICIENT_PRIVILEGE) => Fault::Refused(format!(
            "this role may not read its tables ({}): GRANT ellect_read or ellect_write to it",
            stated(&error)
        )),
        _ => Fault::from(error),
    };
    let there = "SELECT EXISTS (SELECT FROM pg_tables WHERE schemaname = 'ellect'
                                AND tablename = 'meta')";
    if !client.query_one(there, &[]).await?.get::<_, bool>(0) {
        return Ok(None);
    }
    let row = client.query_one("SELECT schema FROM ellect.meta", &[]).await.map_err(denied)?;
    Ok(Some(row.get(0)))
}

/// Brings the tables up to date. Processes that do so at once wait for each other, and all but the
/// first find nothing to do.
async fn migrate(client: &Client) -> Result<(), tokio_postgres::Error> {
    let lock = format!("BEGIN; SELECT pg_advisory_xact_lock({LOCK});");
    let all = async {
        client.batch_execute(&lock).await?;
        let from = match version(client).await {
            Ok(from) => from.unwrap_or(0),
            // The statement has failed the transaction, whose next one says so again.
            Err(_) => 0,
        };
        for (i, step) in STEPS.iter().enumerate().skip(usize::try_from(from).unwrap_or(0)) {
            client.batch_execute(step).await?;
            let version = i32::try_from(i + 1).unwrap_or(SCHEMA);
            client.execute("UPDATE ellect.meta SET schema = $1", &[&version]).await?;
        }
        client.batch_execute("COMMIT").await
    };
    let done = all.await;
    if done.is_err() {
        // The connection is closed after an error anyway.
        let _ = client.batch_execute("ROLLBACK").await;
    }
    done
}
