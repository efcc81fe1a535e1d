//! The settings of a connection, from an address in libpq's words.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use percent_encoding::percent_decode_str;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::tls::{self, Checks};
use crate::shared::Address;

/// Time limit of a connection.
pub const CONNECT: Duration = Duration::from_secs(5);

/// Everything that a connection needs.
#[derive(Clone)]
pub struct Settings {
    pub config: Config,
    pub tls: MakeRustlsConnect,
    /// The address without its password.
    pub server: String,
}

/// Parameters of the address about TLS, which this module reads itself.
#[derive(Default)]
struct Encryption {
    mode: Option<String>,
    roots: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

impl Settings {
    /// Reads an address; a password that it lacks comes from `PGPASSWORD`.
    ///
    /// # Errors
    /// If it is wrong, or a file of certificates cannot be read. No message contains a password.
    pub fn of(address: &Address) -> Result<Self> {
        let wrong = |why: &str| {
            anyhow!(
                "the shared wisdom is {address}: {why}; it must be like \
                 postgres://user@host:5432/database?sslmode=verify-full"
            )
        };
        let text = address.secret();
        if !["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme)) {
            return Err(wrong("it does not begin with postgres://"));
        }
        let (place, query) = text.split_once('?').unwrap_or((text, ""));
        let mut encryption = Encryption::default();
        let mut others = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = percent_decode_str(value).decode_utf8_lossy().into_owned();
            match name {
                "sslmode" => encryption.mode = Some(value),
                "sslrootcert" => encryption.roots = Some(value.into()),
                "sslcert" => encryption.certificate = Some(value.into()),
                "sslkey" => encryption.key = Some(value.into()),
                _ => others.push(pair),
            }
        }
        let query =
            if others.is_empty() { String::new() } else { format!("?{}", others.join("&")) };
        let config = format!("{place}{query}").parse::<Config>();
        let mut config = config.map_err(|error| wrong(&super::link::stated(&error)))?;
        if config.get_hosts().is_empty() {
            config.host("localhost");
        }
        if config.get_password().is_none()
            && let Ok(password) = std::env::var("PGPASSWORD")
        {
            config.password(password);
        }
        if config.get_application_name().is_none() {
            config.application_name("ellect");
        }
        config.connect_timeout(CONNECT).keepalives_idle(Duration::from_secs(30));
        let tls = encryption.apply(&mut config)?;
        let socket = config.get_hosts().iter().find_map(|host| match host {
            Host::Unix(path) => Some(format!(" on {}", path.display())),
            Host::Tcp(_) => None,
        });
        let server = format!("{address}{}", socket.unwrap_or_default());
        Ok(Settings { config, tls, server })
    }
}

impl Encryption {
    fn apply(self, config: &mut Config) -> Result<MakeRustlsConnect> {
        let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
        let usual = home.join(".postgresql/root.crt");
        let usual = usual.is_file().then_some(usual);
        let is_socket = |host: &Host| matches!(host, Host::Unix(_));
        let (mode, checks) = match self.mode.as_deref().unwrap_or("prefer") {
            "disable" => (SslMode::Disable, Checks::Nothing),
            "allow" | "prefer" => (SslMode::Prefer, Checks::Nothing),
            // As libpq does: a file of roots that is there is used.
            "require" if self.roots.is_none() && usual.is_none() => {
                (SslMode::Require, Checks::Nothing)
            }
            "require" | "verify-ca" => (SslMode::Require, Checks::Chain),
            "verify-full" => (SslMode::Require, Checks::ChainAndName),
            other => bail!(
                "sslmode is '{other}'; it must be disable, allow, prefer, require, verify-ca or \
                 verify-full"
            ),
        };
        // A socket of this machine is not encrypted, whatever the mode.
        config.ssl_mode(match config.get_hosts().iter().all(is_socket) {
            true => SslMode::Disable,
            false => mode,
        });
        let roots = self.roots.or(usual);
        let own = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => Some((certificate.as_path(), key.as_path())),
            (None, None) => None,
            _ => bail!("sslcert and sslkey name the two files of one certificate: give both"),
        };
        tls::connector(checks, roots.as_deref(), own)
    }
}
