//! `ellect serve` answers requests over HTTP.

use std::io::{self, IsTerminal};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use ellect::Wisdom;
use ellect::units::count;
use sd_notify::NotifyState;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use tower_http::cors::AllowOrigin;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::{Answer, Home};
use crate::options::{duration, size};
use crate::service::access::Tokens;
use crate::service::connections::{self, Limits, Open};
use crate::service::jobs::{self, Bounds, Jobs};
use crate::service::{Config, Service, Settings, memory, router};
use crate::shared::{self, Told};

/// Arguments of `ellect serve`.
#[derive(Clone, Debug, Args)]
pub struct Serve {
    /// Address to listen on, HOST:PORT
    #[arg(long, default_value = "127.0.0.1:7272", value_name = "ADDRESS")]
    listen: String,
    /// File of the tokens that callers send, one a line: `read TOKEN`, or `write TOKEN` to measure and
    /// to train too
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// Listen on an address that other machines reach, without tokens
    #[arg(long)]
    insecure: bool,
    /// Origins of pages in browsers that may ask, https://a.example with commas, or * for all
    /// [default: none]
    #[arg(long, value_name = "ORIGINS", value_parser = origins)]
    cors: Option<String>,
    /// Show browsers no page at the path /, only the text that programs get
    #[arg(long)]
    no_page: bool,
    /// Form of the log: text, or json with an object on each line
    #[arg(long, default_value = "text", value_name = "FORM", value_parser = ["text", "json"])]
    log: String,
    /// File of options in TOML: `memory = "8G"` means `--memory 8G`; options of the command line and
    /// variables of the environment (ELLECT_MEMORY) precede it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print all options as such a file, and end
    #[arg(long)]
    print_config: bool,
    /// Maximum size of a request's body, in bytes
    #[arg(long, default_value_t = 2 << 30, value_name = "BYTES", value_parser = count)]
    max_body: u64,
    /// Maximum number of nonzeros of a matrix [default: as many as fit into the memory]
    #[arg(long, value_name = "N", value_parser = count)]
    max_nonzeros: Option<u64>,
    /// Memory that all requests may take together, 8G for instance [default: half of the machine's
    /// or of the control group's]
    #[arg(long, value_name = "BYTES", value_parser = count)]
    memory: Option<u64>,
    /// Maximum number of open connections
    #[arg(long, default_value_t = 4096, value_name = "N", value_parser = size)]
    max_connections: usize,
    /// Maximum number of open connections from one address
    #[arg(long, default_value_t = 2048, value_name = "N", value_parser = size)]
    max_connections_by_address: usize,
    /// Time limit for the head of a request, and for a connection without a request, 30s for instance
    #[arg(long, default_value = "30s", value_name = "TIME", value_parser = duration)]
    idle: Duration,
    /// Number of requests processed at once [default: the number of cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    workers: Option<u32>,
    /// Number of requests that may wait; any more are answered with 503
    #[arg(long, default_value_t = 32, value_name = "N")]
    queue: u32,
    /// Number of jobs to keep after their end
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = size)]
    jobs: usize,
    /// Maximum number of bytes of the matrices of jobs that have not ended, in the data folder
    #[arg(long, default_value_t = 16_000_000_000, value_name = "BYTES", value_parser = count)]
    job_bytes: u64,
}

/// Time that pending requests have to finish after the service is asked to stop.
const GRACE: Duration = Duration::from_secs(30);

/// Time after which the service looks again for measurements that other processes stored.
const UPKEEP: Duration = Duration::from_secs(10);

/// Serves until SIGINT or SIGTERM, then finishes pending requests.
///
/// It stops without finishing them after [`GRACE`] or at a second signal.
///
/// At SIGHUP, `again` reads the configuration again.
pub fn run(serve: &Serve, home: &Home, again: fn() -> Result<Serve>) -> Result<Answer> {
    log(&serve.log);
    let data = home.data.clone();
    std::fs::create_dir_all(&data).with_context(|| format!("making {}", data.display()))?;
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    let (wisdom, shared) = match (home.no_wisdom, &home.shared) {
        (true, _) => (None, None),
        (false, None) => (Some(Arc::new(Wisdom::open_alone(&data)?)), None),
        (false, Some(address)) => {
            let own = Wisdom::open_alone(&data)?;
            let (wisdom, client) = shared::attached(own, address, &data, tell)?;
            (Some(wisdom), Some(client))
        }
    };
    for sentence in wisdom.iter().flat_map(|wisdom| wisdom.notes()) {
        tracing::warn!("wisdom: {sentence}");
    }
    let jobs = Jobs::open(&data, Bounds { ended: serve.jobs, bytes: serve.job_bytes })?;
    let settings = serve.settings()?;
    let config = Config {
        data,
        wisdom: wisdom.clone(),
        shared,
        shared_address: home.shared.clone(),
        memory: serve.memory.unwrap_or_else(memory::default_bytes),
        workers: serve.workers.unwrap_or(cores),
        queue: serve.queue,
        open: Arc::new(Open::new(serve.limits())),
        origins: serve.cors.as_deref().map(allowed),
        page: !serve.no_page,
    };
    let runtime = tokio::runtime::Runtime::new().context("starting the runtime")?;
    let kept = wisdom.clone();
    runtime.spawn(async move {
        let mut turns = tokio::time::interval(UPKEEP);
        while let Some(wisdom) = kept.clone() {
            turns.tick().await;
            let done = tokio::task::spawn_blocking(move || wisdom.upkeep()).await;
            if let Ok(Err(error)) = done {
                tracing::error!("{error}");
            }
        }
    });
    let served = runtime.block_on(async {
        let open = Arc::clone(&config.open);
        let service = Arc::new(Service::new(config, settings, jobs)?);
        reload_when_asked(serve.clone(), Arc::clone(&service), Arc::clone(&open), again)
            .context("listening for signals")?;
        listen(&serve.listen, service, open).await
    });
    // Shuts down without waiting for requests that were cut off.
    runtime.shutdown_background();
    wisdom.as_deref().map_or(Ok(()), Wisdom::close)?;
    served.map(|()| Answer::Yes)
}

/// Logs a sentence about the shared database.
fn tell(told: Told<'_>) {
    match told {
        Told::Good(sentence) => tracing::info!("{sentence}"),
        Told::Bad(sentence) => tracing::warn!("{sentence}"),
    }
}

/// Allows this process as many open files as the system permits; returns the number of connections
/// that it may then have, if each holds a temporary file too.
fn descriptors() -> usize {
    let files = rlimit::increase_nofile_limit(1 << 16).unwrap_or(1 << 10);
    (files.saturating_sub(64) / 2).try_into().unwrap_or(usize::MAX)
}

/// Reads the tokens; refuses to serve other machines without any, unless that is asked for.
fn tokens(serve: &Serve) -> Result<Tokens> {
    if let Some(file) = &serve.tokens {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        return Tokens::parse(&text).map_err(|stated| anyhow!("{}: {stated}", file.display()));
    }
    let host = serve.listen.rsplit_once(':').map_or(serve.listen.as_str(), |(host, _)| host);
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    let is_here = host == "localhost" || address.is_ok_and(|address| address.is_loopback());
    if !is_here && !serve.insecure {
        bail!(
            "{} can be reached from other machines; name a file of tokens (--tokens), or say --insecure \
             if the network lets only trusted callers through",
            serve.listen
        );
    }
    Ok(Tokens::default())
}

async fn listen(listen: &str, service: Arc<Service>, open: Arc<Open>) -> Result<()> {
    let mut signals = Signals::new().context("listening for signals")?;
    let listener =
        TcpListener::bind(listen).await.with_context(|| format!("listening on {listen}"))?;
    let address = listener.local_addr().context("asking for the address")?;
    tracing::info!("listening on http://{address}");
    tell_supervisor(NotifyState::Ready);
    let stop = Arc::new(Notify::new());
    let stopped = Arc::clone(&stop);
    let jobs = Arc::clone(&service.jobs);
    let left = Arc::clone(&service);
    tokio::spawn(async move { jobs::resume(&left).await });
    let server = connections::serve(listener, router(service), open, async move {
        stopped.notified().await;
    });
    let asked_twice = async {
        signals.next().await;
        tracing::info!("stopping once the requests at hand are answered");
        tell_supervisor(NotifyState::Stopping);
        jobs.stop();
        stop.notify_one();
        tokio::select! {
            () = signals.next() => {}
            () = tokio::time::sleep(GRACE) => {}
        }
    };
    let ended = async {
        server.await;
        jobs.rest().await;
    };
    tokio::select! {
        () = ended => Ok(()),
        () = asked_twice => {
            tracing::warn!("stopped with requests at hand");
            Ok(())
        }
    }
}

/// Tells systemd, if it started this process, how the service is.
fn tell_supervisor(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!("telling systemd: {error}");
    }
}

/// Reads the configuration and the models again at SIGHUP.
fn reload_when_asked(
    mut before: Serve,
    service: Arc<Service>,
    open: Arc<Open>,
    again: fn() -> Result<Serve>,
) -> io::Result<()> {
    let mut asked = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        while asked.recv().await.is_some() {
            service.reload();
            match again().and_then(|serve| Ok((serve.settings()?, serve))) {
                Ok((settings, serve)) => {
                    let kept = serve.fixed().into_iter().zip(before.fixed());
                    for ((name, _), _) in kept.filter(|(new, old)| new.1 != old.1) {
                        tracing::warn!("{name} is another now, which needs a restart");
                    }
                    service.set(settings);
                    open.limit(serve.limits());
                    before = serve;
                    tracing::info!("configuration and models are read again");
                }
                Err(error) => tracing::error!("the configuration stays as it was: {error:#}"),
            }
        }
    });
    Ok(())
}

impl Serve {
    /// Returns the settings that a running service takes over.
    fn settings(&self) -> Result<Settings> {
        let (max_body, max_nonzeros) = (self.max_body, self.max_nonzeros);
        Ok(Settings { max_body, max_nonzeros, tokens: tokens(self)? })
    }

    /// Returns the limits on connections.
    fn limits(&self) -> Limits {
        Limits {
            all: self.max_connections.min(descriptors()),
            by_address: self.max_connections_by_address,
            idle: self.idle,
        }
    }

    /// Returns the options that only a restart changes, with their values.
    fn fixed(&self) -> [(&'static str, String); 9] {
        let Serve { listen, memory, workers, queue, jobs, job_bytes, cors, log, insecure, .. } =
            self;
        [
            ("listen", listen.clone()),
            ("memory", format!("{memory:?}")),
            ("workers", format!("{workers:?}")),
            ("queue", queue.to_string()),
            ("jobs", jobs.to_string()),
            ("job_bytes", job_bytes.to_string()),
            ("cors", format!("{cors:?}")),
            ("log", log.clone()),
            ("insecure", insecure.to_string()),
        ]
    }
}

/// Starts the log on standard error.
fn log(form: &str) {
    let wanted = std::env::var("RUST_LOG").ok().and_then(|levels| levels.parse().ok());
    let levels: Targets = wanted.unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO));
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    let lines = match form {
        "json" => lines.json().flatten_event(true).with_span_list(false).boxed(),
        _ => lines.with_ansi(io::stderr().is_terminal()).boxed(),
    };
    tracing_subscriber::registry().with(lines).with(levels).init();
}

/// Checks origins; returns them as they are.
fn origins(text: &str) -> Result<String, String> {
    for origin in text.split(',').filter(|_| text != "*") {
        let (scheme, host) = origin.split_once("://").unwrap_or_default();
        let is_plain = |c: char| c.is_ascii_graphic() && !"/?#@".contains(c);
        if !["http", "https"].contains(&scheme) || host.is_empty() || !host.chars().all(is_plain) {
            return Err(format!(
                "origin is '{origin}'; it must be * or like https://name.example:8080, without a path"
            ));
        }
    }
    Ok(text.to_string())
}

fn allowed(origins: &str) -> AllowOrigin {
    match origins {
        "*" => AllowOrigin::any(),
        some => AllowOrigin::list(some.split(',').filter_map(|origin| origin.parse().ok())),
    }
}

/// The signals that ask a program to stop.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
