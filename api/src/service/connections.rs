//! Connections: accepted up to a number in all and from each address, and closed if they are idle.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
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

/// First bytes of HTTP/2 with prior knowledge; no method of HTTP/1 begins with them.
const HTTP2: &[u8] = b"PRI";

/// Pause after fewer bytes than these have come.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Maximum number of requests at once on a connection of HTTP/2.
const STREAMS: u32 = 100;

/// Bytes of a body that may be on their way in one request of HTTP/2; four times as many in all requests
/// of a connection.
const WINDOW: u32 = 1 << 20;

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
    limits: RwLock<Limits>,
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
        let limits = RwLock::new(limits);
        Open { limits, all: AtomicUsize::new(0), by_address: Mutex::default() }
    }

    /// Replaces the limits; open connections stay.
    pub fn limit(&self, limits: Limits) {
        *self.limits.write().unwrap_or_else(PoisonError::into_inner) = limits;
    }

    fn limits(&self) -> Limits {
        *self.limits.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of open connections.
    pub fn count(&self) -> usize {
        self.all.load(Ordering::Relaxed)
    }

    fn place(self: &Arc<Self>, address: IpAddr) -> Result<Place, Failure> {
        let Limits { all, by_address, .. } = self.limits();
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
    // Dropped when the service stops.
    let (runs, goes_on) = watch::channel(());
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
                let (router, idle) = (router.clone(), open.limits().idle);
                let (watcher, mut goes_on) = (graceful.watcher(), goes_on.clone());
                tokio::spawn(async move {
                    let _place = place;
                    let version = tokio::select! {
                        version = version(&stream, idle) => version,
                        _ = goes_on.changed() => None,
                    };
                    if let Some(version) = version {
                        answer(stream, client, router, idle, watcher, version).await;
                    }
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
    drop((listener, runs));
    graceful.shutdown().await;
}

/// A version of HTTP that a client speaks.
enum Version {
    /// HTTP/1.0 or 1.1.
    One,
    /// HTTP/2 with prior knowledge.
    Two,
}

/// Returns the version of HTTP that a connection begins with; `None` if nothing comes in time.
async fn version(stream: &TcpStream, limit: Duration) -> Option<Version> {
    let looking = async {
        let mut start = [0; HTTP2.len()];
        loop {
            let got = stream.peek(&mut start).await.ok().filter(|&got| got > 0)?;
            match start[..got] == HTTP2[..got] {
                false => return Some(Version::One),
                true if got == HTTP2.len() => return Some(Version::Two),
                true => tokio::time::sleep(LOOK_AGAIN).await,
            }
        }
    };
    tokio::time::timeout(limit, looking).await.ok().flatten()
}

/// Answers the requests of one connection until it ends or the service stops.
async fn answer(
    stream: TcpStream,
    client: SocketAddr,
    router: Router,
    idle: Duration,
    watcher: Watcher,
    version: Version,
) {
    // Answers are written in one piece, so waiting for more to send would only delay them.
    let _ = stream.set_nodelay(true);
    let mut stream = Box::pin(TimeoutStream::new(stream));
    stream.as_mut().set_write_timeout_pinned(Some(WRITING));
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(client));
        router.clone().oneshot(request.map(Body::new))
    });
    let stream = TokioIo::new(stream);
    // An error means that the client closed the connection or broke HTTP: it has its answer.
    let _ = match version {
        Version::One => {
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(idle);
            watcher.watch(http.serve_connection(stream, service)).await
        }
        Version::Two => {
            let mut http = http2::Builder::new(TokioExecutor::new());
            http.timer(TokioTimer::new()).max_concurrent_streams(STREAMS);
            http.keep_alive_interval(idle).keep_alive_timeout(idle);
            http.initial_stream_window_size(WINDOW).initial_connection_window_size(4 * WINDOW);
            watcher.watch(http.serve_connection(stream, service)).await
        }
    };
}

/// Tells a client that there are too many connections.
async fn refuse(mut stream: TcpStream, failure: Failure) -> io::Result<()> {
    let body = json!(failure.body()).to_string();
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
