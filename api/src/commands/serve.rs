//! `ellect serve` answers requests over HTTP.

use std::future::IntoFuture;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use ellect::Wisdom;
use ellect::units::count;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::{Answer, Home};
use crate::service::{Config, router};

/// Arguments of `ellect serve`.
#[derive(Debug, Args)]
pub struct Serve {
    /// Address to listen on, HOST:PORT
    #[arg(long, default_value = "127.0.0.1:7272", value_name = "ADDRESS")]
    listen: String,
    /// Maximum size of a request's body, in bytes
    #[arg(long, default_value_t = 2 << 30, value_name = "BYTES", value_parser = count)]
    max_body: u64,
    /// Maximum number of nonzeros of a matrix
    #[arg(long, default_value_t = 1 << 30, value_name = "N", value_parser = count)]
    max_nonzeros: u64,
    /// Number of requests processed at once [default: the number of cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    workers: Option<u32>,
    /// Number of requests that may wait; any more are answered with 503
    #[arg(long, default_value_t = 32, value_name = "N")]
    queue: u32,
}

/// Time that pending requests have to finish after the service is asked to stop.
const GRACE: Duration = Duration::from_secs(30);

/// Time after which the service looks again for measurements that other processes stored.
const UPKEEP: Duration = Duration::from_secs(10);

/// Serves until SIGINT or SIGTERM, then finishes pending requests.
///
/// It stops without finishing them after [`GRACE`] or at a second signal.
pub fn run(serve: &Serve, home: &Home) -> Result<Answer> {
    let wanted = std::env::var("RUST_LOG").ok().and_then(|levels| levels.parse().ok());
    let levels: Targets = wanted.unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO));
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr);
    tracing_subscriber::registry().with(lines).with(levels).init();
    let data = home.data.clone();
    std::fs::create_dir_all(&data).with_context(|| format!("making {}", data.display()))?;
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    let wisdom = match home.no_wisdom {
        true => None,
        false => Some(Arc::new(Wisdom::open_alone(&data)?)),
    };
    for sentence in wisdom.iter().flat_map(|wisdom| wisdom.notes()) {
        tracing::warn!("wisdom: {sentence}");
    }
    let config = Config {
        data,
        wisdom: wisdom.clone(),
        max_body: serve.max_body,
        max_nonzeros: serve.max_nonzeros,
        workers: serve.workers.unwrap_or(cores),
        queue: serve.queue,
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
    let served = runtime.block_on(listen(&serve.listen, config));
    // Shuts down without waiting for requests that were cut off.
    runtime.shutdown_background();
    wisdom.as_deref().map_or(Ok(()), Wisdom::close)?;
    served.map(|()| Answer::Yes)
}

async fn listen(listen: &str, config: Config) -> Result<()> {
    let mut signals = Signals::new().context("listening for signals")?;
    let listener =
        TcpListener::bind(listen).await.with_context(|| format!("listening on {listen}"))?;
    let address = listener.local_addr().context("asking for the address")?;
    tracing::info!("listening on http://{address}");
    let stop = Arc::new(Notify::new());
    let stopped = Arc::clone(&stop);
    let server = axum::serve(listener, router(config))
        .with_graceful_shutdown(async move { stopped.notified().await })
        .into_future();
    let asked_twice = async {
        signals.next().await;
        tracing::info!("stopping once the requests at hand are answered");
        stop.notify_one();
        tokio::select! {
            () = signals.next() => {}
            () = tokio::time::sleep(GRACE) => {}
        }
    };
    tokio::select! {
        ended = server => ended.context("serving"),
        () = asked_twice => {
            tracing::warn!("stopped with requests at hand");
            Ok(())
        }
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
