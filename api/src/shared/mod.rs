//! Wisdom that several hosts share: the option that names its database, and the client of it.
//!
//! The client is built with the feature `postgres`; without it, naming a database is an error that
//! says so.

mod address;
#[cfg_attr(not(feature = "postgres"), path = "postgres_none.rs")]
mod postgres;

use std::fmt::{self, Display};
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use ellect::Wisdom;
use serde::Serialize;
use utoipa::ToSchema;

pub use address::Address;
pub use postgres::{Client, Queue};

/// Sentence about the shared database, for the user or the log.
#[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "only a client tells"))]
#[derive(Clone, Copy, Debug)]
pub enum Told<'a> {
    /// It works, or works again.
    Good(&'a str),
    /// It does not.
    Bad(&'a str),
}

/// Receives such sentences.
pub type Tell = fn(Told<'_>);

/// State of the connection to the shared database.
#[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "only a client connects"))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = SharedState)]
pub enum State {
    /// The first connection is being made.
    #[default]
    Connecting,
    /// It answers.
    Connected,
    /// It cannot be reached, or answers too slowly.
    Away,
    /// It cannot be used: its schema is newer, or the role may not read.
    Refused,
}

impl Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Connecting => "connecting",
            State::Connected => "connected",
            State::Away => "away",
            State::Refused => "refused",
        })
    }
}

/// The shared database as this process knows it.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
#[schema(as = Shared)]
pub struct Status {
    /// Address without password.
    pub server: String,
    /// State of the connection.
    pub state: State,
    /// Reason of a state other than connected, or for not sending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Version of the tables, once there was a connection.
    #[schema(required)]
    pub schema: Option<i32>,
    /// True if the role may not write, so that nothing is sent.
    pub reads_only: bool,
    /// Number of records there, if it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub records: Option<i64>,
    /// Number of data folders that contributed, if it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contributors: Option<i64>,
    /// Number of own records that wait to be sent.
    pub outbox: u64,
}

impl Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shared: {}, {}", self.server, self.state)?;
        if let Some(schema) = self.schema {
            write!(f, ", schema {schema}")?;
        }
        if let (Some(records), Some(contributors)) = (self.records, self.contributors) {
            write!(f, ", {records} records of {contributors} contributors")?;
        }
        if self.reads_only {
            f.write_str(", read only")?;
        }
        write!(f, ", {} in the outbox", self.outbox)?;
        match &self.reason {
            Some(reason) => write!(f, " ({reason})"),
            None => Ok(()),
        }
    }
}

/// Puts the shared database at `address` behind the wisdom of the data folder `data`.
///
/// Nothing waits for the connection.
///
/// # Errors
/// If the address is wrong, or this program was built without a client.
pub fn attached(
    wisdom: Wisdom,
    address: &Address,
    data: &Path,
    tell: Tell,
) -> Result<(Arc<Wisdom>, Arc<Client>)> {
    let client = Client::start(address, data, tell)?;
    let wisdom = wisdom.with_shared(Arc::<Client>::clone(&client), data)?;
    let wisdom = Arc::new(wisdom);
    client.attach(&wisdom);
    Ok((wisdom, client))
}
