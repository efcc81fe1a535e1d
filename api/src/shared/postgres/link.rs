//! One connection to the shared database.

use std::error::Error as _;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::poll_fn;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;
use tokio_postgres::{AsyncMessage, Client, Error};

use super::schema::{self, Found};
use super::settings::{CONNECT, Settings};

/// Time limit of any statement, on both sides.
pub const ANSWER: Duration = Duration::from_secs(20);

/// Statements at the start of a connection: limits that hold where the client is gone, and a search
/// path in which nobody else's functions are.
const LIMITS: &str = "SET statement_timeout = '20s'; SET lock_timeout = '10s';
    SET idle_in_transaction_session_timeout = '60s'; SET search_path = pg_catalog";

/// Reason for not using the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It cannot be reached now.
    Away(String),
    /// It can be reached and not be used.
    Refused(String),
}

impl Fault {
    /// Returns the reason as text.
    pub fn text(&self) -> &str {
        match self {
            Fault::Away(text) | Fault::Refused(text) => text,
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        // Classes of errors that no later attempt mends by itself: a wrong password or role, a
        // database that does not exist, a missing privilege.
        let refused = ["28", "3D", "42"];
        let code = error.code().map(|code| code.code().get(..2).unwrap_or_default().to_string());
        match code {
            Some(class) if refused.contains(&class.as_str()) => Fault::Refused(stated(&error)),
            _ => Fault::Away(stated(&error)),
        }
    }
}

/// Returns the message of an error with its causes; it contains no password.
pub fn stated(error: &Error) -> String {
    if let Some(error) = error.as_db_error() {
        return error.message().to_string();
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        if !text.contains(&error.to_string()) {
            text += &format!(": {error}");
        }
        cause = error.source();
    }
    text
}

/// An open connection.
pub struct Link {
    pub client: Client,
    pub found: Found,
    /// Payloads of notifications; it ends with the connection.
    pub notes: UnboundedReceiver<String>,
}

impl Link {
    /// Connects and looks at the tables.
    ///
    /// # Errors
    /// If the server does not answer in time or the database cannot be used.
    pub async fn open(settings: &Settings) -> Result<Self, Fault> {
        let late =
            |what: &str, limit: Duration| Fault::Away(format!("{what} in {} s", limit.as_secs()));
        let connecting = settings.config.connect(settings.tls.clone());
        let connected = timeout(CONNECT, connecting).await;
        let (client, mut connection) =
            connected.map_err(|_| late("it did not let this program connect", CONNECT))??;
        let (sender, notes) = unbounded_channel();
        tokio::spawn(async move {
            let mut messages = poll_fn(move |context| connection.poll_message(context));
            while let Some(Ok(message)) = messages.next().await {
                if let AsyncMessage::Notification(note) = message {
                    // A reader that has gone needs no notes.
                    let _ = sender.send(note.payload().to_string());
                }
            }
        });
        let looking = async {
            client.batch_execute(LIMITS).await?;
            schema::found(&client).await
        };
        let found = timeout(ANSWER, looking).await;
        let found = found.map_err(|_| late("it did not answer", ANSWER))??;
        Ok(Link { client, found, notes })
    }
}

/// Waits for a statement for at most [`ANSWER`].
///
/// # Errors
/// If it fails or takes longer.
pub async fn answered<T>(statement: impl Future<Output = Result<T, Error>>) -> Result<T, Fault> {
    match timeout(ANSWER, statement).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(Fault::Away(format!("it did not answer in {} s", ANSWER.as_secs()))),
    }
}

/// Times between attempts: twice as long each time, up to a minute.
pub struct Pause(Duration);

impl Pause {
    pub fn new() -> Self {
        Pause(Duration::from_millis(500))
    }

    /// Returns the time until the next attempt.
    pub fn next(&mut self) -> Duration {
        self.0 = (2 * self.0).min(Duration::from_secs(60));
        self.0
    }
}
