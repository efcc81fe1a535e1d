//! Connections: accepted up to a number in all and from each address, and closed if they are idle.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_io_timeout::TimeoutStream;
use tower::ServiceExt;

use super::failure::{CONNECTIONS, Failure, RETRY_AFTER_S};

/// Time without progress after which a client that does not read its answer is cut off.
const WRITING: Duration = Duration::from_secs(30);

/// Pause after the system could not give a connection, because no descriptor is left for instance.
const PAUSE: Duration = Duration::from_millis(200);

/// Time limit for telling a client that there are too many connections.
const REFUSING: Duration = Duration::from_secs(2);

/// Number of clients that are told so at once; others are cut off.
const MOST_REFUSING: usize = 64;

/// Limits on connections.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of connections.
    pub all: usize,
    /// Maximum number of connections from one address.
    pub by_address: usize,
    /// Time limit for the head of a request, and for a connection without a request.
    pub idle: Duration,
}

/// Counts the open connections.
#[derive(Debug)]
pub struct Open {
    limits: Limits,
    all: AtomicUsize,
    by_address: Mutex<HashMap<IpAddr, usize>>,
}

/// A place that a connection holds until it is dropped.
struct Place {
    open: Arc<Open>,
    address: IpAddr,
}

impl Open {
    /// Counts from none, with these limits.
    pub fn new(limits: Limits) -> Self {
        Open { limits, all: AtomicUsize::new(0), by_address: Mutex::default() }
    }

    /// Returns the number of open connections.
    pub fn count(&self) -> usize {
        self.all.load(Ordering::Relaxed)
    }

    fn place(self: &Arc<Self>, address: IpAddr) -> Result<Place, Failure> {
        let Limits { all, by_address, .. } = self.limits;
        let mut counts = self.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        let own = counts.get(&address).copied().unwrap_or(0);
        let over = match (self.count() >= all, own >= by_address) {
            (true, _) => Some(("connections", all)),
            (_, true) => Some(("connections from one address", by_address)),
            _ => None,
        };
        if let Some((what, limit)) = over {
            let stated = format!(
                "this service already has {limit} {what}, its limit; close idle ones, or try again later"
            );
            return Err(Failure::new(&CONNECTIONS, stated));
        }
        *counts.entry(address).or_default() += 1;
        self.all.fetch_add(1, Ordering::Relaxed);
        Ok(Place { open: Arc::clone(self), address })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.open.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = counts.get_mut(&self.address) {
            *own -= 1;
            if *own == 0 {
                counts.remove(&self.address);
            }
        }
        self.open.all.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves connections until `stop` completes, then answers the requests at hand.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    open: Arc<Open>,
    stop: impl Future<Output = ()>,
) {
    let graceful = GracefulShutdown::new();
    let refusing = Arc::new(AtomicUsize::new(0));
    tokio::pin!(stop);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => break,
        };
        let (stream, client) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if is_of_client(&error) => continue,
            Err(error) => {
                tracing::error!("accepting a connection: {error}");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        match open.place(client.ip()) {
            Ok(place) => {
                let (router, idle) = (router.clone(), open.limits.idle);
                let answer = answer(stream, client, router, idle, graceful.watcher());
                tokio::spawn(async move {
                    let _place = place;
                    answer.await;
                });
            }
            Err(failure) => {
                let refusing = Arc::clone(&refusing);
                if refusing.fetch_add(1, Ordering::Relaxed) < MOST_REFUSING {
                    tokio::spawn(async move {
                        let _ = tokio::time::timeout(REFUSING, refuse(stream, failure)).await;
                        refusing.fetch_sub(1, Ordering::Relaxed);
                    });
                } else {
                    refusing.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
    }
    drop(listener);
    graceful.shutdown().await;
}

/// Answers the requests of one connection until it ends or `stop` says so.
async fn answer(
    stream: TcpStream,
    client: SocketAddr,
    router: Router,
    idle: Duration,
    watcher: Watcher,
) {
    // Answers are written in one piece, so waiting for more to send would only delay them.
    let _ = stream.set_nodelay(true);
    let mut stream = Box::pin(TimeoutStream::new(stream));
    stream.as_mut().set_write_timeout_pinned(Some(WRITING));
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(client));
        router.clone().oneshot(request.map(Body::new))
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(idle)
        .serve_connection(TokioIo::new(stream), service);
    // An error means that the client closed the connection or broke HTTP: it has its answer.
    let _ = watcher.watch(connection).await;
}

/// Tells a client that there are too many connections.
async fn refuse(mut stream: TcpStream, failure: Failure) -> io::Result<()> {
    let body = failure.body().to_string();
    let head = format!(
        "HTTP/1.1 {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         retry-after: {RETRY_AFTER_S}\r\nconnection: close\r\n\r\n",
        failure.code.status,
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).await?;
    stream.shutdown().await?;
    // Closing with unread bytes would discard the answer on its way.
    tokio::io::copy(&mut stream, &mut tokio::io::sink()).await.map(|_| ())
}

/// Tells whether the client ended the connection before it was accepted.
fn is_of_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
