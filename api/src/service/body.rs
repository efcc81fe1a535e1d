//! Request bodies: hashed while they arrive, and held in memory or, if that is short, in a temporary
//! file.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Cursor, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::multipart::{Multipart, MultipartError};
use axum::extract::{FromRequest, Request};
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap};
use bytes::Bytes;
use ellect::Scalar;
use ellect::features::Features;
use ellect::read::{Options, Placed};
use futures_util::{Stream, StreamExt};
use tempfile::NamedTempFile;
use tokio::io::AsyncWriteExt;
use xxhash_rust::xxh3::Xxh3;

use super::failure::{ARGUMENT, ENCODING, Failure, INPUT, LIMIT, SLOW_BODY, STORAGE};
use super::memory::{Reserved, Share};
use super::rooms::Room;

/// Number of bytes from which on a body of known length gets one buffer: reading would copy its
/// chunks into one.
const LARGE: u64 = 4 << 20;

/// Time within which [`LEAST_BYTES`] must arrive, or the end of the body.
const WINDOW: Duration = Duration::from_secs(30);

/// Minimum number of bytes in each [`WINDOW`].
const LEAST_BYTES: u64 = 16 << 10;

/// Time within which the whole body must arrive, because it holds a place that others could use.
const ARRIVING: Duration = Duration::from_secs(600);

/// Step in which memory is reserved for a body of unknown length.
const STEP: u64 = 1 << 20;

/// Maximum number of bytes of a body that names features.
const MOST_FEATURES: u64 = 1 << 16;

/// First bytes of compressed data and of archives: gzip, zstd, bzip2, xz and zip.
const PACKED: [&[u8]; 5] = [b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ", b"PK"];

/// Length of the longest of these.
const LONGEST_START: u64 = 5;

/// Rejects a request whose headers already show that it will fail.
///
/// The readers recognise compression by content; of the encodings of HTTP they support gzip and zstd.
pub fn check(headers: &HeaderMap, limit: u64) -> Result<(), Failure> {
    if let Some(encoding) = headers.get(CONTENT_ENCODING) {
        let encoding = encoding.to_str().unwrap_or_default().to_ascii_lowercase();
        if !matches!(encoding.as_str(), "gzip" | "x-gzip" | "zstd" | "identity") {
            return Err(Failure::new(
                &ENCODING,
                format!("content encoding is '{encoding}'; it must be gzip, zstd or identity"),
            ));
        }
    }
    within(length(headers).unwrap_or(0), limit)
}

fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// A body that has arrived.
pub struct Received {
    /// Number of bytes.
    pub bytes: u64,
    /// Hash of all bytes.
    pub hash: u128,
    /// True if the body starts as compressed data and archives do.
    pub packed: bool,
    content: Content,
}

enum Content {
    /// The chunks as they arrived, and the memory reserved for them.
    Memory {
        chunks: Vec<Bytes>,
        _reserved: Option<Reserved>,
    },
    /// The buffer that holds the body in its first bytes, and the memory reserved for it.
    Whole {
        room: Mutex<Room>,
        _reserved: Option<Reserved>,
    },
    File(NamedTempFile),
    /// A file that a job keeps.
    Kept(PathBuf),
}

impl Received {
    /// Returns the bytes of the body, to read the matrix from.
    pub fn bytes(&self) -> BodyBytes<'_> {
        match &self.content {
            Content::Whole { room, .. } => {
                let room = room.lock().unwrap_or_else(PoisonError::into_inner);
                BodyBytes::Whole(room, self.bytes as usize)
            }
            Content::Memory { chunks, .. } => BodyBytes::Chunks(chunks),
            Content::File(file) => BodyBytes::File(file.path()),
            Content::Kept(path) => BodyBytes::File(path),
        }
    }

    /// Moves the body to a file, which is on disk when this returns.
    ///
    /// # Errors
    /// 503 if there is no room for it.
    pub async fn keep(self, path: PathBuf) -> Result<Self, Failure> {
        let moving = tokio::task::spawn_blocking(move || {
            let kept = self.moved(&path);
            if kept.is_err() {
                let _ = std::fs::remove_file(&path);
            }
            kept
        });
        moving.await.map_err(Failure::internal)?.map_err(unstored)
    }

    fn moved(self, path: &Path) -> io::Result<Self> {
        match self.content {
            Content::Whole { room, .. } => {
                let room = room.into_inner().unwrap_or_else(PoisonError::into_inner);
                stored(path, &[&room.as_ref()[..self.bytes as usize]])?;
            }
            Content::Memory { chunks, .. } => stored(path, &chunks)?,
            Content::File(file) => {
                // A temporary folder on another disk is left by a copy.
                if let Err(unmoved) = file.persist(path) {
                    std::fs::copy(unmoved.file.path(), path)?;
                }
                std::fs::File::open(path)?.sync_all()?;
            }
            Content::Kept(other) => drop(std::fs::copy(other, path)?),
        }
        Ok(Received { content: Content::Kept(path.to_path_buf()), ..self })
    }

    /// Returns the body that a job kept in a file; an empty one if there is no file.
    ///
    /// # Errors
    /// 503 if the file cannot be read.
    pub async fn kept(path: PathBuf) -> Result<Self, Failure> {
        let looking = tokio::task::spawn_blocking(move || {
            let mut start = Vec::new();
            let bytes = match std::fs::File::open(&path) {
                Ok(mut file) => {
                    (&mut file).take(LONGEST_START).read_to_end(&mut start)?;
                    file.metadata()?.len()
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
                Err(error) => return Err(error),
            };
            let packed = PACKED.iter().any(|known| start.starts_with(known));
            Ok(Received { bytes, hash: 0, packed, content: Content::Kept(path) })
        });
        looking.await.map_err(Failure::internal)?.map_err(unstored)
    }

    /// Returns the bytes of the body, to be read from the start.
    ///
    /// # Errors
    /// As the system.
    pub fn reader(&self) -> io::Result<Box<dyn BufRead + '_>> {
        Ok(match &self.content {
            Content::Whole { .. } => Box::new(Cursor::new(self.bytes())),
            Content::Memory { chunks, .. } => Box::new(BufReader::new(Chunks::of(chunks))),
            Content::File(file) => Box::new(BufReader::new(file.reopen()?)),
            Content::Kept(path) => Box::new(BufReader::new(std::fs::File::open(path)?)),
        })
    }

    /// Returns the features that a small JSON body names in place of a matrix, if it does.
    pub fn features(&self) -> Option<ellect::Result<Features>> {
        #[derive(serde::Deserialize)]
        struct Named {
            /// A value that is not finite is `null` in JSON.
            features: BTreeMap<String, Option<f64>>,
        }
        let Content::Memory { chunks, .. } = &self.content else { return None };
        if self.bytes > MOST_FEATURES || !chunks.first()?.trim_ascii_start().starts_with(b"{") {
            return None;
        }
        let named: Named = serde_json::from_slice(&chunks.concat()).ok()?;
        let known =
            named.features.iter().filter_map(|(name, value)| Some((name.as_str(), (*value)?)));
        Some(Features::named(known))
    }

    /// Rejects a body that is sent in addition to the name of a generated matrix.
    pub fn check_empty(&self) -> Result<(), Failure> {
        match self.bytes {
            0 => Ok(()),
            bytes => Err(Failure::new(
                &ARGUMENT,
                format!(
                    "the body has {bytes} bytes, and generate names a matrix too; send one of the two"
                ),
            )),
        }
    }
}

/// Writes chunks to a file, which is on disk when this returns.
fn stored(path: &Path, chunks: &[impl AsRef<[u8]>]) -> io::Result<()> {
    let mut file = std::fs::File::create(path)?;
    chunks.iter().try_for_each(|chunk| file.write_all(chunk.as_ref()))?;
    file.sync_all()
}

/// The bytes of a body. While one reader has them, others wait.
pub enum BodyBytes<'a> {
    Whole(MutexGuard<'a, Room>, usize),
    Chunks(&'a [Bytes]),
    File(&'a Path),
}

impl BodyBytes<'_> {
    /// Reads the matrix. It is read once: the bytes may be changed afterwards.
    ///
    /// # Errors
    /// As [`Options::bytes`].
    pub fn matrix<T: Scalar>(&mut self, options: &Options) -> ellect::Result<Placed<'_, T>> {
        match self {
            BodyBytes::Whole(room, bytes) => options.in_place(&mut room.as_mut()[..*bytes]),
            BodyBytes::Chunks([whole]) => options.bytes(whole).map(Placed::from),
            BodyBytes::Chunks(chunks) => options.stream(Chunks::of(chunks)).map(Placed::from),
            BodyBytes::File(path) => options.file(path).map(Placed::from),
        }
    }
}

impl AsRef<[u8]> for BodyBytes<'_> {
    /// Returns the bytes of a body in one buffer, and none of another one.
    fn as_ref(&self) -> &[u8] {
        match self {
            BodyBytes::Whole(room, bytes) => &Room::as_ref(room)[..*bytes],
            _ => &[],
        }
    }
}

/// Reads chunks one after the other.
struct Chunks<'a> {
    rest: std::slice::Iter<'a, Bytes>,
    next: &'a [u8],
}

impl<'a> Chunks<'a> {
    fn of(chunks: &'a [Bytes]) -> Self {
        Chunks { rest: chunks.iter(), next: &[] }
    }
}

impl Read for Chunks<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.next.is_empty() {
            match self.rest.next() {
                Some(chunk) => self.next = chunk,
                None => return Ok(0),
            }
        }
        self.next.read(buffer)
    }
}

/// Receives the body of a request, or the first part of one in `multipart/form-data`.
///
/// `seed` makes the hashes of this process unlike others', so that no one can prepare two bodies
/// with the same hash.
///
/// # Errors
/// 400 if the body breaks off, 408 if it is slow, 413 if it is longer than `limit`.
pub async fn receive(
    request: Request,
    limit: u64,
    memory: &Share,
    seed: u64,
) -> Result<Received, Failure> {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if kind.is_some_and(|kind| kind.starts_with("multipart/form-data")) {
        let broken = |error: MultipartError| Failure::new(&INPUT, error.body_text());
        let mut parts = Multipart::from_request(request, &())
            .await
            .map_err(|error| Failure::new(&INPUT, error.body_text()))?;
        let first = tokio::time::timeout(WINDOW, parts.next_field()).await;
        let Some(part) = first.map_err(|_| slow(0, WINDOW))?.map_err(broken)? else {
            return Err(Failure::new(
                &INPUT,
                "the form has no part; send the matrix as its only part",
            ));
        };
        let received = Receiving::new(None, memory, seed).all(part, limit).await?;
        if let Some(second) = parts.next_field().await.map_err(broken)? {
            let stated = format!(
                "the form has a second part, '{}'; send the matrix as its only part, and options in \
                 the query: /recommend?device=h200",
                second.name().unwrap_or_default()
            );
            return Err(Failure::new(&ARGUMENT, stated));
        }
        return Ok(received);
    }
    let length = length(request.headers());
    let body: Body = request.into_body();
    Receiving::new(length, memory, seed).all(body.into_data_stream(), limit).await
}

/// A body that is arriving.
struct Receiving<'a> {
    memory: &'a Share,
    bytes: u64,
    hash: Xxh3,
    packed: bool,
    /// Room for the whole body if it is large, its length is known and its memory is reserved.
    whole: Option<Room>,
    /// The chunks so far, unless they are in `whole` or in the file.
    chunks: Vec<Bytes>,
    /// Memory for this number of bytes of chunks.
    reserved: Option<Reserved>,
    covered: u64,
    file: Option<(NamedTempFile, tokio::fs::File)>,
}

impl<'a> Receiving<'a> {
    /// Reserves memory for a body of this length, if it is known and the memory is free.
    fn new(length: Option<u64>, memory: &'a Share, seed: u64) -> Self {
        // No body takes more than half of the memory for all.
        let covered = length.filter(|&length| length <= memory.bytes() / 2).unwrap_or(0);
        let reserved = memory.try_reserve(covered);
        Receiving {
            memory,
            bytes: 0,
            hash: Xxh3::with_seed(seed),
            packed: false,
            whole: reserved
                .as_ref()
                .filter(|_| covered >= LARGE)
                .and_then(|_| memory.rooms().take(covered)),
            chunks: Vec::new(),
            covered: if reserved.is_some() { covered } else { 0 },
            reserved,
            file: None,
        }
    }

    /// Receives all chunks.
    async fn all<E: std::fmt::Display>(
        mut self,
        chunks: impl Stream<Item = Result<Bytes, E>>,
        limit: u64,
    ) -> Result<Received, Failure> {
        tokio::pin!(chunks);
        let start = Instant::now();
        let (mut window, mut before) = (start, 0);
        loop {
            let left = WINDOW.saturating_sub(window.elapsed());
            let left = left.min(ARRIVING.saturating_sub(start.elapsed()));
            let chunk = match tokio::time::timeout(left, chunks.next()).await {
                Ok(None) => break,
                Ok(Some(Ok(chunk))) => chunk,
                Ok(Some(Err(error))) => {
                    let stated = format!("the body broke off after {} bytes: {error}", self.bytes);
                    return Err(Failure::new(&INPUT, stated));
                }
                Err(_) => return Err(slow(self.bytes, start.elapsed())),
            };
            within(self.bytes + chunk.len() as u64, limit)?;
            self.add(chunk).await.map_err(unstored)?;
            if self.bytes - before >= LEAST_BYTES {
                (window, before) = (Instant::now(), self.bytes);
            }
        }
        let content = match self.file {
            Some((file, mut sink)) => {
                sink.flush().await.map_err(unstored)?;
                Content::File(file)
            }
            None => match self.whole {
                Some(room) => Content::Whole { room: Mutex::new(room), _reserved: self.reserved },
                None => Content::Memory { chunks: self.chunks, _reserved: self.reserved },
            },
        };
        let Receiving { bytes, hash, packed, .. } = self;
        Ok(Received { bytes, hash: hash.digest128(), packed, content })
    }

    async fn add(&mut self, chunk: Bytes) -> io::Result<()> {
        if self.bytes == 0 {
            self.packed = PACKED.iter().any(|start| chunk.starts_with(start));
        }
        self.hash.update(&chunk);
        let start = self.bytes as usize;
        self.bytes += chunk.len() as u64;
        if let Some(whole) = &mut self.whole {
            let written = whole.write(start, &chunk);
            return written.ok_or_else(|| io::Error::other("it is longer than its header says"));
        }
        if self.file.is_none() && !self.fits() {
            let file = NamedTempFile::new()?;
            let mut sink = tokio::fs::File::create(file.path()).await?;
            for earlier in self.chunks.drain(..) {
                sink.write_all(&earlier).await?;
            }
            self.reserved = None;
            self.file = Some((file, sink));
        }
        match &mut self.file {
            Some((_, sink)) => sink.write_all(&chunk).await?,
            None => self.chunks.push(chunk),
        }
        Ok(())
    }

    /// Reserves memory for the bytes so far; returns false if it is not free.
    fn fits(&mut self) -> bool {
        if self.bytes <= self.covered {
            return true;
        }
        let more = (self.bytes - self.covered).max(STEP);
        let Some(reserved) = self.memory.try_reserve(more) else { return false };
        self.covered += more;
        match &mut self.reserved {
            Some(all) => all.add(reserved),
            none => *none = Some(reserved),
        }
        true
    }
}

pub fn unstored(error: io::Error) -> Failure {
    tracing::error!("storing a body in the temporary folder: {error}");
    Failure::new(&STORAGE, "the service has no room for this body now; try again later")
}

fn slow(bytes: u64, after: Duration) -> Failure {
    Failure::new(
        &SLOW_BODY,
        format!(
            "the body is at {bytes} bytes after {} s; all of it must arrive within {} s, and at least \
             {} KiB in each {} s",
            after.as_secs(),
            ARRIVING.as_secs(),
            LEAST_BYTES >> 10,
            WINDOW.as_secs()
        ),
    )
}

fn within(bytes: u64, limit: u64) -> Result<(), Failure> {
    if bytes <= limit {
        return Ok(());
    }
    let stated = format!(
        "the body has {bytes} bytes or more, over this service's limit of {limit} (max_body); send it \
         compressed, or ask its operator to raise the limit"
    );
    let detail = serde_json::json!({"got": bytes, "limit": limit, "setting": "max_body"});
    Err(Failure::new(&LIMIT, stated).with_detail(detail))
}
