//! `ellect serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use super::Answer;
use crate::service::{Config, router};

/// Serves until SIGINT or SIGTERM, then finishes the requests at hand.
pub fn run(listen: SocketAddr, max_body: u64, max_nonzeros: u64, data: PathBuf) -> Result<Answer> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    std::fs::create_dir_all(&data).with_context(|| format!("making {}", data.display()))?;
    let config = Config { data, max_body, max_nonzeros };
    tokio::runtime::Runtime::new().context("starting the runtime")?.block_on(async {
        let listener =
            TcpListener::bind(listen).await.with_context(|| format!("listening on {listen}"))?;
        let address = listener.local_addr().context("asking for the address")?;
        tracing::info!("listening on http://{address}");
        axum::serve(listener, router(config)).with_graceful_shutdown(asked_to_stop()).await?;
        Ok(Answer::Yes)
    })
}

async fn asked_to_stop() {
    let Ok(mut terminate) = signal(SignalKind::terminate()) else { return };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    tracing::info!("stopping");
}
