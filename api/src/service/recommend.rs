//! `POST /recommend` for the matrix in the body, and `GET /recommend/{fingerprint}` for a matrix
//! that was posted before.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::Extension;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, Request, State};
use axum::http::HeaderValue;
use axum::http::header::{CONTENT_TYPE, HeaderMap, VARY};
use axum::response::{IntoResponse, Response};
use ellect::choose::Choice;
use ellect::device::Kind;
use ellect::features::Features;
use ellect::measure::Backend;
use ellect::read::{Found, Limits, Placed};
use ellect::tuner::Progress;
use ellect::unstable::choose::Mode;
use ellect::unstable::par;
use ellect::{CsrRef, Fingerprint, Precision, Scalar, Tuner};
use xxhash_rust::xxh3::Xxh3;

use super::Service;
use super::accept::Form;
use super::access::Role;
use super::answers::{Answer, Key, Matrix, for_products};
use super::body::{self, BodyBytes, Received};
use super::devices::Measured;
use super::failure::{ARGUMENT, Failure, MATRIX, MEMORY, TIMEOUT};
use super::html;
use super::jobs::{self, Entry};
use super::measured::{self, Asked};
use super::memory::{self, Reserved};
use super::places::Client;
use super::room::{self, Room};
use crate::options::{BodyOptions, Options, is_gpu_here};
use crate::tuner_of::tuner_of;
use crate::views;

/// Time limit of a request after its body has arrived.
const ANSWERING: Duration = Duration::from_secs(600);

/// Time limit of the measurements of one request, whatever budget it asks for.
const MAX_BUDGET: Duration = Duration::from_secs(120);

/// Minimum reservation for a matrix.
const LEAST_BYTES: u64 = 16 << 20;

/// First reservation for a matrix per byte of the body, plain or packed. Few bodies need more;
/// those are read again with a larger one.
const PER_BODY_BYTE: [u64; 2] = [6, 16];

/// Number of entries from which on a matrix's values and pattern are hashed at once.
const AT_ONCE: usize = 1 << 18;

/// Factor from one reservation to the next.
const GROWTH: u64 = 4;

type Pairs = Result<Query<Vec<(String, String)>>, QueryRejection>;

/// Returns the pairs of a query.
fn pairs_of(pairs: Pairs) -> Result<Vec<(String, String)>, Failure> {
    let Query(pairs) = pairs.map_err(|error| Failure::new(&ARGUMENT, error.body_text()))?;
    Ok(pairs)
}

/// Parses the pairs of a query; bounds the time of measurements.
///
/// # Errors
/// 400 if a parameter is unknown or wrong.
pub fn options_of(pairs: &[(String, String)]) -> Result<(Options, BodyOptions), Failure> {
    let (mut options, body) = Options::from_query(pairs)?;
    if options.measures() {
        options.budget = Some(options.budget.unwrap_or(MAX_BUDGET).min(MAX_BUDGET));
    }
    Ok((options, body))
}

/// Opens the device of a request: to measure on it, if it measures or the device is a GPU of this
/// machine, which only the process that measures opens.
async fn opened(
    service: &Service,
    options: &Options,
) -> Result<(Arc<Backend>, Option<Arc<Measured>>), Failure> {
    let device = &options.product.device;
    if options.measures() || is_gpu_here(device) {
        let measured = service.devices.open(device).await?;
        return Ok((Arc::clone(&measured.backend), Some(measured)));
    }
    Ok((service.devices.profile(&options.product)?, None))
}

/// Answers a request with the matrix in its body.
pub async fn posted(
    State(service): State<Arc<Service>>,
    pairs: Pairs,
    Extension(role): Extension<Role>,
    Extension(client): Extension<Client>,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, Failure> {
    let query = pairs_of(pairs)?;
    let (options, reading) = service.queries.parsed(&query)?.as_ref().clone();
    if options.measures() {
        role.check_writes("measuring")?;
    }
    body::check(&headers, service.settings().max_body)?;
    // Opening the device first reports a wrong name before a large body is read.
    let (backend, measured) = opened(&service, &options).await?;
    let queued = measured.filter(|_| options.measures());
    let places = queued.as_ref().map_or(&service.places, |measured| &measured.places);
    // If too many requests already wait, the body is not read; while it arrives it holds no place.
    drop(places.admit()?);
    let received = received(&service, &options, request).await?;
    if let Some(measured) = queued {
        let asked = Asked { query, options, reading, received, measured, client };
        return measured::posted(&service, &headers, asked).await;
    }
    let key = key(&service, Matrix::Body(received.hash), &options, Some(&reading));
    let shown = options.clone();
    let computed = compute(&service, &client, Case::new(options, reading, received, backend));
    let (answer, kept) = service.answers.get_or(&key, computed).await?;
    respond(&service, &headers, &answer, &shown, kept)
}

/// Receives the body of a request.
async fn received(
    service: &Service,
    options: &Options,
    request: Request,
) -> Result<Received, Failure> {
    let _arriving = service.arriving.admit()?;
    let start = Instant::now();
    let (limit, bodies) = (service.settings().max_body, &service.memory.bodies);
    let received = body::receive(request, limit, bodies, service.seed).await?;
    if options.generate.is_some() {
        received.check_empty()?;
    }
    let body_s = start.elapsed().as_secs_f64();
    service.metrics.stage("body", body_s);
    tracing::Span::current().record("bytes", received.bytes).record("body_s", body_s);
    Ok(received)
}

/// Answers a request for a matrix that was posted before.
pub async fn known(
    State(service): State<Arc<Service>>,
    fingerprint: Result<Path<String>, PathRejection>,
    pairs: Pairs,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let query = service.queries.parsed(&pairs_of(pairs)?)?;
    let (options, _) = query.as_ref();
    let Path(fingerprint) =
        fingerprint.map_err(|error| Failure::new(&ARGUMENT, error.body_text()))?;
    let fingerprint: Fingerprint = fingerprint.parse()?;
    if options.measures() || options.generate.is_some() || options.mode != Mode::Rank {
        let stated = "a matrix that is not in the body is only ranked, by predictions and earlier \
                      measurements; POST it for effort=measure and mode=prepare";
        return Err(Failure::new(&ARGUMENT, stated));
    }
    let (backend, _) = opened(&service, options).await?;
    let key = key(&service, Matrix::Pattern(fingerprint), options, None);
    let answer = match service.answers.get(&key) {
        Some(answer) if options.transposed > 0 || answer.choice.spmvs == options.spmvs => answer,
        Some(answer) => {
            let margin = backend.device().margin;
            Answer::of(for_products(&answer.choice, &options.workload(), margin))?
        }
        None => {
            let (service, options) = (Arc::clone(&service), options.clone());
            let job = move || measured_before(&service, fingerprint, &options, backend);
            tokio::task::spawn_blocking(job).await.map_err(Failure::internal)??
        }
    };
    respond(&service, &headers, &answer, options, true)
}

/// Chooses for a matrix of which only the features are known, from the stored measurements.
fn measured_before(
    service: &Service,
    fingerprint: Fingerprint,
    options: &Options,
    backend: Arc<Backend>,
) -> Result<Arc<Answer>, Failure> {
    let wisdom = service.config.wisdom.as_ref();
    let structure = match (wisdom, backend.device().kind) {
        (Some(wisdom), Kind::Gpu) => wisdom.structure(fingerprint)?,
        _ => None,
    };
    let Some(structure) = structure else {
        let stated = format!(
            "no answer for a matrix with the fingerprint {fingerprint} and these parameters is kept; \
             POST the matrix once with the same device, precision, updates, basis and limits"
        );
        return Err(Failure::new(&MATRIX, stated));
    };
    let named = structure.features.iter().map(|(name, value)| (name.as_str(), *value));
    let features = Features::named(named)?;
    let tuner = tuner_of(options, backend, None, |device, purpose| service.model(device, purpose))?;
    let precision = options.product.precision;
    let mut choice = tuner.recommend_from(features, precision, &options.workload())?;
    choice.fingerprint = Some(fingerprint);
    choice.explanation.push(
        "Only the stored features of this matrix are known; POST it to rank every format.".into(),
    );
    Answer::of(choice)
}

/// Returns the key of an answer. For a pattern, the number of products is no part of it, unless a
/// memory limit of two layouts may bind.
fn key(service: &Service, matrix: Matrix, options: &Options, reading: Option<&BodyOptions>) -> Key {
    let mut options = Options { top: 0, fields: Vec::new(), ..options.clone() };
    options.product.device.make_ascii_lowercase();
    if let Matrix::Pattern(_) = matrix {
        options.spmvs *= u64::from(options.transposed > 0);
        options.generate = None;
    }
    // The time that a request waits is no part of its answer.
    let reading = reading.map(|reading| BodyOptions { wait_ms: 0, ..reading.clone() });
    let revision = service.config.wisdom.as_ref().map_or(0, |wisdom| wisdom.revision());
    let reloads = service.reloads.load(Ordering::Relaxed);
    Key { matrix, parameters: format!("{options:?} {reading:?} {revision} {reloads}") }
}

/// Returns the answer in the form that the caller accepts.
///
/// # Errors
/// 500 if the answer cannot be written.
pub fn respond(
    service: &Service,
    headers: &HeaderMap,
    answer: &Answer,
    options: &Options,
    kept: bool,
) -> Result<Response, Failure> {
    service.metrics.recommended(if kept { "kept" } else { "computed" });
    tracing::Span::current().record("choice", tracing::field::display(&answer.choice.candidate));
    let mut response = match Form::accepted(headers) {
        Form::Text => views::choice(&answer.choice, options.top, true).into_response(),
        Form::Html => html::choice(&answer.choice, options.top),
        Form::Json => ([(CONTENT_TYPE, "application/json")], answer.json(options)?).into_response(),
    };
    response.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
    Ok(response)
}

/// A matrix that arrived, and what is asked about it.
pub struct Case {
    /// The parameters.
    pub options: Options,
    reading: BodyOptions,
    received: Received,
    backend: Arc<Backend>,
    /// The job that measures, if it does.
    pub job: Option<Arc<Entry>>,
}

impl Case {
    /// Creates the case of a request that is no job.
    pub fn new(
        options: Options,
        reading: BodyOptions,
        received: Received,
        backend: Arc<Backend>,
    ) -> Self {
        Case { options, reading, received, backend, job: None }
    }

    /// Makes it the case of a job.
    pub fn of_job(self, job: Arc<Entry>) -> Self {
        Case { job: Some(job), ..self }
    }
}

/// Waits for a turn and for memory, and computes the answer.
async fn compute(
    service: &Arc<Service>,
    client: &Client,
    case: Case,
) -> Result<Arc<Answer>, Failure> {
    let place = service.places.admit()?;
    let answering = async {
        let start = Instant::now();
        let turn = service.places.turn(client).await?;
        service.metrics.stage("wait", start.elapsed().as_secs_f64());
        answered(service, &Arc::new(case), Arc::new((place, turn))).await
    };
    match tokio::time::timeout(ANSWERING, answering).await {
        Ok(answer) => answer,
        Err(_) => {
            let stated = format!("no answer within {} s; ask for less effort", ANSWERING.as_secs());
            Err(Failure::new(&TIMEOUT, stated))
        }
    }
}

/// Computes the answer in as much memory as the matrix needs. `held` is dropped when the work is
/// done, even if the caller has disconnected.
///
/// # Errors
/// As reading and choosing; 413 and 429 for lack of memory.
pub async fn answered<Held: Send + Sync + 'static>(
    service: &Arc<Service>,
    case: &Arc<Case>,
    held: Arc<Held>,
) -> Result<Arc<Answer>, Failure> {
    if let Some(features) = case.received.features() {
        // A choice from features takes less time than handing it to another thread.
        return choose_from(service, case, features?);
    }
    let most = service.memory.matrices.bytes();
    let mut bytes = first_reservation(case).min(most);
    loop {
        let reserved = reserved(service, case, bytes).await?;
        memory::check_given(bytes)?;
        let (service, case, held) = (Arc::clone(service), Arc::clone(case), Arc::clone(&held));
        let log = tracing::Span::current();
        let job = tokio::task::spawn_blocking(move || {
            let _held = (held, reserved);
            log.in_scope(|| match case.options.product.precision {
                Precision::F32 => choose::<f32>(&service, &case, bytes),
                Precision::F64 => choose::<f64>(&service, &case, bytes),
            })
        });
        match job.await.map_err(Failure::internal)? {
            Ok(answer) => return Ok(answer),
            Err(Stopped::Failed(failure)) => return Err(failure),
            Err(Stopped::Needs(more)) if bytes < most => {
                bytes = more.max(bytes.saturating_mul(GROWTH).min(most));
            }
            // Asking for more than there is gives the reason.
            Err(Stopped::Needs(more)) => bytes = more.max(most.saturating_add(1)),
        }
    }
}

/// Reserves memory for a matrix; a job waits for it as long as it takes.
async fn reserved(service: &Service, case: &Case, bytes: u64) -> Result<Reserved, Failure> {
    let goes_on = || case.job.as_ref().is_some_and(|job| job.asked() == jobs::Asked::Nothing);
    loop {
        match service.memory.matrices.reserve(bytes).await {
            Err(failure) if failure.code == &MEMORY && goes_on() => {}
            reserved => return reserved,
        }
    }
}

/// Returns the memory that a matrix is first given.
fn first_reservation(case: &Case) -> u64 {
    let Case { options, received, .. } = case;
    let entry_bytes = room::entry_bytes(options);
    let generated = options.generate.map_or(0, |spec| entry_bytes * spec.nnz_estimate() as u64);
    let per_byte = PER_BODY_BYTE[usize::from(received.packed)];
    LEAST_BYTES.max(generated).max(received.bytes.saturating_mul(per_byte))
}

/// Reason why no choice was made.
enum Stopped {
    /// The matrix needs at least this number of bytes of memory, more than was reserved.
    Needs(u64),
    Failed(Failure),
}

impl<E: Into<Failure>> From<E> for Stopped {
    fn from(error: E) -> Self {
        Stopped::Failed(error.into())
    }
}

/// Reads or generates the matrix in this number of bytes of memory.
fn read<'a, T: Scalar>(
    service: &Service,
    case: &Case,
    bytes: &'a mut BodyBytes<'_>,
    memory: u64,
) -> Result<Placed<'a, T>, Stopped> {
    let settings = service.settings();
    let room = Room::of(&case.options, settings.max_nonzeros);
    let within = room.limits(memory, case.received.bytes);
    let generating = Limits { bytes: settings.max_body, ..within };
    let read = match case.options.generated::<T>(&generating, "body") {
        Ok(Some(csr)) => Ok(Found { csr, notes: Vec::new(), is_complex: false }.into()),
        Ok(None) => bytes.matrix(&case.reading.clone().reading(within)),
        Err(error) => Err(error),
    };
    read.map_err(|error| match room.needed(&error, memory) {
        Some(bytes) => Stopped::Needs(bytes),
        None => Stopped::Failed(error.into()),
    })
}

/// Returns the tuner that answers a case.
fn tuner(service: &Service, case: &Case) -> Result<Tuner, Failure> {
    let (backend, wisdom) = (Arc::clone(&case.backend), service.config.wisdom.clone());
    tuner_of(&case.options, backend, wisdom, |device, purpose| service.model(device, purpose))
}

/// Chooses from the features that the body names.
fn choose_from(service: &Service, case: &Case, features: Features) -> Result<Arc<Answer>, Failure> {
    let start = Instant::now();
    let (tuner, options) = (tuner(service, case)?, &case.options);
    let precision = options.product.precision;
    let choice = tuner.recommend_from(features, precision, &options.workload())?;
    service.metrics.stage("choose", start.elapsed().as_secs_f64());
    Answer::of(choice)
}

/// Reads the matrix in this number of bytes of memory, and chooses.
fn choose<T: Scalar>(service: &Service, case: &Case, memory: u64) -> Result<Arc<Answer>, Stopped> {
    let Case { options, received, job, .. } = case;
    let start = Instant::now();
    let tuner = tuner(service, case)?;
    let mut bytes = received.bytes();
    let matrix = read::<T>(service, case, &mut bytes, memory)?;
    let (csr, notes) = (matrix.csr(), matrix.notes());
    let read_s = start.elapsed().as_secs_f64();
    service.metrics.stage("read", read_s);
    tracing::Span::current().record("read_s", read_s);
    // A note of the reader is about the body, not the matrix. A body that was read in place has a
    // hash of its own already, and another one would take longer than reading it.
    let is_hashed = options.mode == Mode::Rank
        && !options.measures()
        && notes.is_empty()
        && !matrix.is_in_place();
    let same =
        is_hashed.then(|| key(service, Matrix::Values(hash_of(csr, service.seed)), options, None));
    if let Some(answer) = same.as_ref().and_then(|same| service.answers.get(same)) {
        keep_by_pattern(service, options, &answer);
        return Ok(answer);
    }
    let features_ns = Arc::new(AtomicU64::new(0));
    let tuner = tuner.timing_features(Arc::clone(&features_ns));
    let tuner = match job {
        Some(job) => tuner.stopping_when(job.stop()),
        None => tuner,
    };
    let mut tell = |progress: Progress<'_>| {
        if let Some(job) = job {
            job.progressed(progress.done, progress.total, &progress.measurement.candidate);
        }
    };
    let mut choice: Choice =
        Options { top: 0, ..options.clone() }.recommend(csr, tuner, &mut tell)?;
    choice.explanation.extend(notes.iter().map(|text| format!("The body: {text}.")));
    let choose_s = start.elapsed().as_secs_f64() - read_s;
    service.metrics.stage("choose", choose_s);
    tracing::Span::current().record("choose_s", choose_s);
    let features_s = features_ns.load(Ordering::Relaxed) as f64 / 1e9;
    service.metrics.stage("features", features_s);
    tracing::Span::current().record("features_s", features_s);
    let print = choice.fingerprint;
    if let Some(print) = print {
        service.pictures.keep(print, csr, &choice.features)?;
        let stays = options.measures() && service.config.wisdom.is_some();
        if let Some(Err(error)) = stays.then(|| service.pictures.store(print)) {
            tracing::warn!("the picture of {print} was not stored: {error:#}");
        }
    }
    let answer = Answer::of(choice)?;
    if let Some(same) = same {
        service.answers.keep(same, Arc::clone(&answer));
    }
    keep_by_pattern(service, options, &answer);
    Ok(answer)
}

/// Keeps the answer for a matrix that is ranked, to be asked for by its fingerprint.
fn keep_by_pattern(service: &Service, options: &Options, answer: &Arc<Answer>) {
    if let Some(print) = answer.choice.fingerprint
        && options.mode == Mode::Rank
        && !options.measures()
    {
        let key = key(service, Matrix::Pattern(print), options, None);
        service.answers.keep(key, Arc::clone(answer));
    }
}

/// Returns a hash of the pattern and the values of a matrix; `seed` is as for bodies.
fn hash_of<T: Scalar>(csr: CsrRef<'_, T>, seed: u64) -> u128 {
    let of_values = || {
        let mut hash = Xxh3::with_seed(seed);
        hash.update(bytemuck::cast_slice(csr.values()));
        hash.digest128()
    };
    let of_pattern = || Fingerprint::of(csr.pattern());
    let (values, pattern) = match csr.nnz() < AT_ONCE {
        true => (of_values(), of_pattern()),
        false => par::join(of_values, of_pattern),
    };
    let mut hash = Xxh3::with_seed(seed);
    hash.update(pattern.to_string().as_bytes());
    hash.update(&values.to_le_bytes());
    hash.digest128()
}
