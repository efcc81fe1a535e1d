//! The page of the service and its files, all of them embedded, and the matrices that it offers as
//! samples.
//!
//! The page loads its files from this service alone, under a path that changes with their contents,
//! so that browsers may keep them for ever. All its paths are relative: a proxy may serve it in a
//! folder.

use std::sync::{Arc, LazyLock};

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, REFERRER_POLICY, VARY,
};
use axum::http::{HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;
use xxhash_rust::xxh3::Xxh3;

use super::Service;
use super::accept::Form;
use super::failure::{ARGUMENT, Failure, PATH};
use super::info;

const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The page, with `{version}` in the paths of its files.
const INDEX: &str = include_str!("../../page/index.html");

/// Declares the files of the page: name, media type and contents.
macro_rules! files {
    ($($name:literal $kind:expr;)*) => {
        const FILES: &[(&str, &str, &str)] =
            &[$(($name, $kind, include_str!(concat!("../../page/", $name)))),*];
    };
}

files! {
    "page.css" CSS;
    "views.css" CSS;
    "icon.svg" "image/svg+xml";
    "main.js" SCRIPT;
    "api.js" SCRIPT;
    "bars.js" SCRIPT;
    "choose.js" SCRIPT;
    "decision.js" SCRIPT;
    "details.js" SCRIPT;
    "dom.js" SCRIPT;
    "features.js" SCRIPT;
    "input.js" SCRIPT;
    "jobs.js" SCRIPT;
    "markdown.js" SCRIPT;
    "models.js" SCRIPT;
    "picture.js" SCRIPT;
    "ranking.js" SCRIPT;
    "snippets.js" SCRIPT;
    "tune.js" SCRIPT;
    "units.js" SCRIPT;
    "wisdom.js" SCRIPT;
}

/// The samples: name, title and contents.
const SAMPLES: [(&str, &str, &str); 3] = [
    (
        "circuit.mtx",
        "a circuit: few long rows, the others short",
        include_str!("../../../tests/data/circuit.mtx"),
    ),
    (
        "convection_diffusion.mtx",
        "convection and diffusion on a grid of 9 x 9 x 9 points",
        include_str!("../../../tests/data/convection_diffusion.mtx"),
    ),
    (
        "elasticity.mtx",
        "elasticity: dense blocks of 3 x 3 entries",
        include_str!("../../../tests/data/elasticity.mtx"),
    ),
];

/// The page may load and ask from its own origin alone, and nothing in it is a script but its files.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

/// Hash of all files, the name of their folder.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let mut hash = Xxh3::new();
    FILES.iter().for_each(|(_, _, contents)| hash.update(contents.as_bytes()));
    format!("{:016x}", hash.digest())
});

static PAGE: LazyLock<String> = LazyLock::new(|| INDEX.replace("{version}", &VERSION));

/// Headers that every part of the page has.
fn guarded(response: impl IntoResponse) -> Response {
    let mut response = response.into_response();
    let nosniff = HeaderName::from_static("x-content-type-options");
    response.headers_mut().insert(nosniff, HeaderValue::from_static("nosniff"));
    response.headers_mut().insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

/// Sends the page to a browser, and the description of the service in text to a program.
pub async fn start(State(service): State<Arc<Service>>, headers: HeaderMap) -> Response {
    let mut response = match Form::accepted(&headers) {
        Form::Html if service.config.page => {
            let head = [
                (CONTENT_TYPE, "text/html; charset=utf-8"),
                (CONTENT_SECURITY_POLICY, POLICY),
                (CACHE_CONTROL, "no-cache"),
            ];
            guarded((head, PAGE.as_str()))
        }
        _ => info::usage().await.into_response(),
    };
    response.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
    response
}

/// Sends a file of the page.
///
/// # Errors
/// 404 for another file or version, or if the service has no page.
pub async fn file(
    State(service): State<Arc<Service>>,
    names: Result<Path<(String, String)>, PathRejection>,
) -> Result<Response, Failure> {
    let names = names.map_err(|error| Failure::new(&ARGUMENT, error.body_text()))?;
    let Path((version, name)) = names;
    let found = FILES.iter().find(|(known, ..)| *known == name);
    let found = found.filter(|_| version == *VERSION && service.config.page);
    let stated = "the page has no such file in this version; load / again";
    let (_, kind, contents) = found.ok_or_else(|| Failure::new(&PATH, stated))?;
    let head = [(CONTENT_TYPE, *kind), (CACHE_CONTROL, "public, max-age=31536000, immutable")];
    Ok(guarded((head, *contents)))
}

/// A matrix that ships as a sample.
#[derive(Serialize, ToSchema)]
pub struct Sample {
    /// Name of the file.
    name: &'static str,
    /// Description, in one phrase.
    title: &'static str,
    /// Path of the file in the service.
    path: String,
}

/// Lists the samples.
pub async fn samples() -> Json<Vec<Sample>> {
    let sample = |&(name, title, _)| Sample { name, title, path: format!("/samples/{name}") };
    Json(SAMPLES.iter().map(sample).collect())
}

/// Sends a sample.
///
/// # Errors
/// 404 if there is none with this name.
pub async fn sample(
    name: Result<Path<String>, PathRejection>,
) -> Result<impl IntoResponse, Failure> {
    let Path(name) = name.map_err(|error| Failure::new(&ARGUMENT, error.body_text()))?;
    let found = SAMPLES.iter().find(|(known, ..)| *known == name);
    let stated = "no sample has this name; GET /samples lists them";
    let (.., contents) = found.ok_or_else(|| Failure::new(&PATH, stated))?;
    Ok(([(CONTENT_TYPE, "text/plain; charset=utf-8")], *contents))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Returns the texts between `before` and the next quotation mark.
    fn quoted<'t>(text: &'t str, before: &str) -> Vec<&'t str> {
        text.split(before).skip(1).filter_map(|rest| rest.split('"').next()).collect()
    }

    #[test]
    fn every_file_is_used_and_every_file_that_is_used_is_there() {
        let mut used: BTreeSet<&str> = quoted(INDEX, "=\"page/{version}/").into_iter().collect();
        for (name, kind, contents) in FILES {
            let imported = quoted(contents, "from \"./");
            assert!(imported.is_empty() || *kind == SCRIPT, "{name}");
            used.extend(imported);
        }
        let known: BTreeSet<&str> = FILES.iter().map(|(name, ..)| *name).collect();
        assert_eq!(used, known);
    }

    #[test]
    fn the_page_names_no_other_host_and_sets_no_markup() {
        for (name, _, contents) in FILES.iter().chain([&("index.html", "", INDEX)]) {
            let urls = contents.replace("http://www.w3.org/2000/svg", "");
            assert!(!urls.contains("https://"), "{name} names another host");
            for forbidden in ["innerHTML", "outerHTML", "insertAdjacentHTML", "eval(", "style=\""] {
                assert!(!contents.contains(forbidden), "{name} has {forbidden}");
            }
            assert!(contents.lines().count() <= 500, "{name} has over 500 lines: split it");
            assert!(contents.is_ascii(), "{name} is not ASCII");
        }
    }
}
