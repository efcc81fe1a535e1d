//! The routes of the service: one table for the router, the list of `GET /`, and the OpenAPI document.

use std::sync::Arc;

use axum::Router;
use axum::routing::{MethodRouter, delete, get, post, put};
use utoipa::openapi::Ref;

use super::jobs::Listing;
use super::openapi::{Schemas, of};
use super::records::{Adding, Exporting};
use super::{
    Service, info, jobs, models, openapi, page, recommend, records, schemas, structures, tune,
};
use crate::options::Query;
use crate::query::{Parameter, parameters};
use crate::views;

/// A route.
pub struct Route {
    /// Method of HTTP, in capitals.
    pub method: &'static str,
    /// Path, with parameters in braces.
    pub path: &'static str,
    /// Meaning.
    pub help: &'static str,
    /// Parameters of the query.
    pub query: fn() -> Vec<Parameter>,
    /// Contents of the body.
    pub body: Body,
    /// Answers without an error, by status and contents.
    pub answers: &'static [(u16, Contents)],
    /// Role that a token needs.
    pub role: Needed,
    handler: fn() -> MethodRouter<Arc<Service>>,
}

/// The role that a request needs where the service has tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needed {
    /// None: everybody may ask.
    Nothing,
    /// Any token.
    Read,
    /// A token with the role write.
    Write,
}

/// The contents of a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// Nothing.
    Nothing,
    /// A matrix, or the JSON of its features.
    Matrix,
    /// Records, one in JSON on each line.
    Records,
}

/// The contents of an answer.
#[derive(Clone, Copy, Debug)]
pub enum Contents {
    /// A recommendation as JSON, text or page.
    Recommendation,
    /// JSON of the type whose schema this adds.
    Json(fn(&mut Schemas) -> Ref),
    /// A list of JSON of such a type.
    List(fn(&mut Schemas) -> Ref),
    /// Text of this media type.
    Text(&'static str),
    /// Text of one of these media types.
    OneOf(&'static [&'static str]),
}

use Contents::{Json, List, OneOf, Recommendation, Text};

fn none() -> Vec<Parameter> {
    Vec::new()
}

/// A route that reads, without a body.
const READING: Route = Route {
    method: "GET",
    path: "/",
    help: "",
    query: none,
    body: Body::Nothing,
    answers: &[],
    role: Needed::Read,
    handler: || get(page::start),
};

/// All routes.
pub static ROUTES: &[Route] = &[
    Route {
        help: "this text; for browsers, the page",
        answers: &[(200, OneOf(&["text/plain", "text/html"]))],
        role: Needed::Nothing,
        handler: || get(page::start),
        ..READING
    },
    Route {
        path: "/page/{version}/{file}",
        help: "a file of the page",
        answers: &[(200, OneOf(&["text/css", "text/javascript", "image/svg+xml"]))],
        role: Needed::Nothing,
        handler: || get(page::file),
        ..READING
    },
    Route {
        path: "/samples",
        help: "the matrices that ship as samples",
        answers: &[(200, List(of::<page::Sample>))],
        handler: || get(page::samples),
        ..READING
    },
    Route {
        path: "/samples/{name}",
        help: "a sample, in Matrix Market form",
        answers: &[(200, Text("text/plain; charset=utf-8"))],
        handler: || get(page::sample),
        ..READING
    },
    Route {
        method: "POST",
        path: "/recommend",
        help: "choose a format for the matrix in the body",
        query: parameters::<Query>,
        body: Body::Matrix,
        answers: &[(200, Recommendation), (202, Json(of::<jobs::Shown>))],
        handler: || post(recommend::posted),
        ..READING
    },
    Route {
        method: "PUT",
        path: "/recommend",
        help: "the same, for clients that upload files",
        query: parameters::<Query>,
        body: Body::Matrix,
        answers: &[(200, Recommendation), (202, Json(of::<jobs::Shown>))],
        handler: || put(recommend::posted),
        ..READING
    },
    Route {
        path: "/recommend/{fingerprint}",
        help: "choose for a matrix that was posted before",
        query: parameters::<Query>,
        answers: &[(200, Recommendation)],
        handler: || get(recommend::known),
        ..READING
    },
    Route {
        method: "POST",
        path: "/tune",
        help: "train models from the stored measurements, as a job",
        query: parameters::<tune::Parameters>,
        answers: &[(200, Json(of::<jobs::Shown>)), (202, Json(of::<jobs::Shown>))],
        role: Needed::Write,
        handler: || post(tune::posted),
        ..READING
    },
    Route {
        path: "/jobs",
        help: "the jobs, the latest first",
        query: parameters::<Listing>,
        answers: &[(200, Json(of::<jobs::Listed>))],
        handler: || get(jobs::listed),
        ..READING
    },
    Route {
        path: "/jobs/{id}",
        help: "a job with its result",
        answers: &[(200, Json(of::<jobs::Shown>))],
        handler: || get(jobs::shown),
        ..READING
    },
    Route {
        method: "DELETE",
        path: "/jobs/{id}",
        help: "cancel a job; status 202 if its end takes some seconds",
        answers: &[(200, Json(of::<jobs::Shown>)), (202, Json(of::<jobs::Shown>))],
        role: Needed::Write,
        handler: || delete(jobs::canceled),
        ..READING
    },
    Route {
        path: "/jobs/{id}/events",
        help: "server-sent events of a job until it ends",
        answers: &[(200, Text("text/event-stream"))],
        handler: || get(jobs::events),
        ..READING
    },
    Route {
        method: "POST",
        path: "/measurements",
        help: "add records, as `ellect wisdom import`",
        query: parameters::<Adding>,
        body: Body::Records,
        answers: &[(200, Json(of::<records::Added>))],
        role: Needed::Write,
        handler: || post(records::added),
    },
    Route {
        path: "/measurements",
        help: "all records, as `ellect wisdom export`",
        query: parameters::<Exporting>,
        answers: &[(200, Text("application/x-ndjson"))],
        handler: || get(records::exported),
        ..READING
    },
    Route {
        path: "/structures",
        help: "the measured matrices, and which format was fastest on how many",
        query: parameters::<structures::Listing>,
        answers: &[(200, Json(of::<structures::Structures>))],
        handler: || get(structures::listed),
        ..READING
    },
    Route {
        path: "/structures/{fingerprint}",
        help: "features and measurements of a matrix, and where its entries are",
        answers: &[(200, Json(of::<schemas::Structure>))],
        handler: || get(structures::structure),
        ..READING
    },
    Route {
        path: "/classes",
        help: "the classes of generated matrices",
        answers: &[(200, List(of::<info::Class>))],
        handler: || get(info::classes),
        ..READING
    },
    Route {
        path: "/formats",
        help: "the storage formats and their parameters",
        answers: &[(200, List(of::<views::Format>))],
        handler: || get(info::formats),
        ..READING
    },
    Route {
        path: "/devices",
        help: "the profiles of devices",
        answers: &[(200, List(of::<schemas::Device>))],
        handler: || get(info::all_devices),
        ..READING
    },
    Route {
        path: "/models",
        help: "the trained models by device and precision, with their scores",
        answers: &[(200, List(of::<models::Shown>))],
        handler: || get(models::listed),
        ..READING
    },
    Route {
        path: "/models/{device}/{precision}/card",
        help: "the card of the model in use",
        answers: &[(200, Text("text/markdown; charset=utf-8"))],
        handler: || get(models::card),
        ..READING
    },
    Route {
        method: "POST",
        path: "/models/reload",
        help: "read the models again",
        answers: &[(200, List(of::<models::Shown>))],
        role: Needed::Write,
        handler: || post(models::reloaded),
        ..READING
    },
    Route {
        path: "/metrics",
        help: "figures for Prometheus",
        answers: &[(200, Text(info::METRICS))],
        handler: || get(info::figures),
        ..READING
    },
    Route {
        path: "/healthz",
        help: "200 while the service is alive",
        answers: &[(200, Json(of::<info::Health>))],
        role: Needed::Nothing,
        handler: || get(info::healthz),
        ..READING
    },
    Route {
        path: "/readyz",
        help: "200 if requests can be answered, else 503 with the reason",
        answers: &[(200, Json(of::<info::Ready>))],
        role: Needed::Nothing,
        handler: || get(info::readyz),
        ..READING
    },
    Route {
        path: "/version",
        help: "the version of the service",
        answers: &[(200, Json(of::<info::Version>))],
        handler: || get(info::version),
        ..READING
    },
    Route {
        path: "/openapi.json",
        help: "this interface as an OpenAPI 3.1 document",
        answers: &[(200, Json(of::<schemas::Document>))],
        handler: || get(openapi::document),
        ..READING
    },
    Route {
        path: "/docs",
        help: "the same as a page",
        answers: &[(200, Text("text/html; charset=utf-8"))],
        handler: || get(openapi::page),
        ..READING
    },
];

/// Tells whether the route with this path needs no token.
pub fn is_open(path: &str) -> bool {
    ROUTES.iter().any(|route| route.path == path && route.role == Needed::Nothing)
}

/// Returns a router with all routes.
pub fn router() -> Router<Arc<Service>> {
    ROUTES.iter().fold(Router::new(), |router, route| router.route(route.path, (route.handler)()))
}
