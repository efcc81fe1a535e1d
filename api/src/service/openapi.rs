//! The OpenAPI document of the service, made from its table of routes, its parameters and its codes.

use std::sync::{Arc, LazyLock};

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use serde_json::{Map, Value, json};

use super::Service;
use super::failure::CODES;
use super::html;
use super::jobs::{Status, Task};
use super::routes::{Body, Contents, Needed, ROUTES, Route};
use crate::query::Parameter;

static DOCUMENT: LazyLock<Value> = LazyLock::new(made);

/// Sends the document.
pub async fn document(State(_): State<Arc<Service>>) -> Json<Value> {
    Json(DOCUMENT.clone())
}

/// Shows the document as a page.
pub async fn page() -> Response {
    html::reference(&DOCUMENT)
}

fn made() -> Value {
    let mut paths = Map::new();
    for route in ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.to_lowercase()] = operation(route);
    }
    let about = "Chooses storage formats for sparse matrix-vector products. A request that fails is \
                 answered with an Error, whose code is a stable word.";
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "ellect",
            "version": env!("CARGO_PKG_VERSION"),
            "description": about,
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    })
}

fn operation(route: &Route) -> Value {
    let words = route.path.split(['/', '{', '}', '.']).filter(|word| !word.is_empty());
    let mut name = route.method.to_lowercase();
    words.for_each(|word| name += &format!("_{word}"));
    let in_path = route.path.split('{').skip(1).filter_map(|rest| rest.split_once('}'));
    let in_path = in_path.map(|(name, _)| of_path(name));
    let in_query = (route.query)().into_iter().map(of_query);
    let mut operation = json!({
        "operationId": name,
        "summary": route.help,
        "parameters": in_path.chain(in_query).collect::<Vec<_>>(),
        "responses": answers(route),
        // A service without tokens lets everybody do everything.
        "security": match route.role {
            Needed::Nothing => json!([]),
            Needed::Read | Needed::Write => json!([{"token": []}, {}]),
        },
    });
    if route.role == Needed::Write {
        operation["description"] =
            "Where the service has tokens, this needs one with the role write.".into();
    }
    if let Some(content) = body(route.body) {
        // A generated matrix has no body.
        operation["requestBody"] = json!({"required": false, "content": content});
    }
    operation
}

fn of_path(name: &str) -> Value {
    let schema = match name {
        "id" => json!({"type": "integer", "format": "int64", "minimum": 0}),
        "fingerprint" => json!({"type": "string", "pattern": "^[0-9a-f]{32}$"}),
        "precision" => json!({"type": "string", "enum": ["f32", "f64"]}),
        _ => json!({"type": "string"}),
    };
    json!({"name": name, "in": "path", "required": true, "schema": schema})
}

fn of_query(parameter: Parameter) -> Value {
    let Parameter { name, help, default } = parameter;
    let mut schema = json!({"type": "string"});
    if !default.is_empty() {
        schema["default"] = default.into();
    }
    json!({"name": name, "in": "query", "description": help, "schema": schema})
}

fn body(body: Body) -> Option<Value> {
    let bytes = json!({"schema": {"type": "string", "format": "binary", "description": match body {
        Body::Records => "records, one in JSON on each line, plain or compressed with zstd",
        Body::Matrix | Body::Nothing => "a matrix in any form that the readers know",
    }}});
    match body {
        Body::Nothing => None,
        Body::Matrix => Some(json!({
            "application/octet-stream": bytes,
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "properties": {"file": {"type": "string", "format": "binary"}},
                },
            },
        })),
        Body::Records => Some(json!({"application/octet-stream": bytes})),
    }
}

fn refers(schema: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{schema}")})
}

fn answers(route: &Route) -> Value {
    let mut answers = Map::new();
    for (status, contents) in route.answers {
        let text = json!({"schema": {"type": "string"}});
        let content = match contents {
            Contents::Recommendation => json!({
                "application/json": {"schema": refers("Recommendation")},
                "text/plain": text,
                "text/html": text,
            }),
            Contents::Json(schema) => json!({"application/json": {"schema": refers(schema)}}),
            Contents::List(schema) => {
                let schema = json!({"type": "array", "items": refers(schema)});
                json!({"application/json": {"schema": schema}})
            }
            Contents::Text(kind) => json!({(kind.split(';').next().unwrap_or_default()): text}),
            Contents::OneOf(kinds) => {
                kinds.iter().map(|kind| (kind.to_string(), text.clone())).collect()
            }
        };
        let mut answer = json!({"description": route.help, "content": content});
        if *status == 202 {
            answer["description"] = "the work goes on as a job".into();
            let path = json!({"description": "path of the job", "schema": {"type": "string"}});
            answer["headers"] = json!({"location": path});
        }
        answers.insert(status.to_string(), answer);
    }
    let error = json!({"application/json": {"schema": refers("Error")}});
    answers.insert("default".into(), json!({"description": "the reason", "content": error}));
    Value::Object(answers)
}

/// Returns an object with these properties, all of them always there, and perhaps others.
fn object(properties: Value) -> Value {
    let names = properties.as_object().into_iter().flatten().map(|(name, _)| name.clone());
    json!({"type": "object", "required": names.collect::<Vec<_>>(), "properties": properties})
}

fn or_null(kind: &str) -> Value {
    json!({"type": [kind, "null"]})
}

fn list(items: &Value) -> Value {
    json!({"type": "array", "items": items})
}

fn text() -> Value {
    json!({"type": "string"})
}

fn count() -> Value {
    json!({"type": "integer", "minimum": 0})
}

fn error() -> Value {
    let codes: Vec<_> = CODES.iter().map(|code| code.word).collect();
    let meanings = CODES
        .iter()
        .map(|code| format!("{} ({}): {}", code.word, code.status.as_u16(), code.meaning));
    let meanings = meanings.collect::<Vec<_>>().join("; ");
    let code = json!({"type": "string", "enum": codes, "description": meanings});
    let detail = json!({"description": "figures for programs", "type": ["object", "null"]});
    object(json!({"code": code, "kind": text(), "message": text(), "detail": detail}))
}

fn job() -> Value {
    let status = json!({"type": "string", "enum": Status::ALL.map(Status::name)});
    let progress = object(json!({"done": count(), "total": count(), "step": text()}));
    let mut job = object(json!({
        "id": count(),
        "kind": {"type": "string", "enum": Task::KINDS},
        "status": status,
        "details": {"type": "object"},
        "progress": {"anyOf": [progress, {"type": "null"}]},
        "attempts": count(),
        "again": or_null("string"),
        "error": {"anyOf": [error(), {"type": "null"}]},
        "enqueued_at": {"type": "number", "description": "seconds since 1970"},
        "started_at": or_null("number"),
        "finished_at": or_null("number"),
        "duration_s": or_null("number"),
    }));
    job["properties"]["result"] = json!({
        "description": "of a job that succeeded, where one job is asked for",
        "type": ["object", "null"],
    });
    job
}

fn recommendation() -> Value {
    let any = json!({"type": "object"});
    json!({
        "type": "object",
        "description": "`ellect recommend --help` describes the keys; fields= keeps some of them",
        "properties": {
            "choice": text(),
            "baseline": any,
            "speedup": any,
            "confidence": or_null("number"),
            "model": or_null("object"),
            "ranking": list(&any),
            "refused": list(&any),
            "features": any,
            "device": text(),
            "precision": {"type": "string", "enum": ["f32", "f64"]},
            "spmvs": count(),
            "vectors": {"type": "integer", "minimum": 2, "description": "vectors of a product; not \
                         there if it is 1"},
            "transposed": {"type": ["object", "null"], "description": "with transposed=: the answer \
                           for products with the transpose; null where the matrix is symmetric and \
                           one layout serves both"},
            "fingerprint": or_null("string"),
            "explanation": list(&text()),
        },
    })
}

/// Returns the schema of a matrix: features, measurements and pictures.
fn structure() -> Value {
    let grid = object(json!({"rows": count(), "columns": count(), "counts": list(&count())}));
    let bin = object(json!({"from": count(), "to": count(), "rows": count()}));
    let none = json!({"type": "null"});
    object(json!({
        "fingerprint": text(), "nrows": count(), "ncols": count(), "nnz": count(),
        "features": {"type": "object"},
        "measurements": list(&json!({"type": "object"})),
        "density": {
            "description": "entries in each cell of a grid over the matrix, row by row; null if this \
                            service has not measured it and it was not posted lately",
            "anyOf": [grid, none],
        },
        "row_lengths": {
            "description": "numbers of rows by length; null where density is",
            "anyOf": [list(&bin), none],
        },
    }))
}

/// Returns the schema of a list of matrices with what was fastest on each.
fn structures() -> Value {
    let at = json!({"device": text(), "precision": text(), "threads": count()});
    let with = |more: Value| {
        let mut all = at.clone();
        for (name, schema) in more.as_object().into_iter().flatten() {
            all[name] = schema.clone();
        }
        object(all)
    };
    let best = with(json!({
        "candidate": text(), "format": text(), "spmv_us": {"type": "number"}, "timed": count(),
        "speedup": or_null("number"),
    }));
    let format = object(json!({"format": text(), "wins": count(), "speedup": or_null("number")}));
    let one = object(json!({
        "fingerprint": text(), "source": text(), "family": text(), "nrows": count(),
        "ncols": count(), "nnz": count(), "best": list(&best),
    }));
    let wins = with(json!({"structures": count(), "formats": list(&format)}));
    object(json!({
        "structures": list(&one), "total": count(), "next": or_null("integer"), "wins": list(&wins),
    }))
}

fn schemas() -> Value {
    let (any, number) = (json!({"type": "object"}), json!({"type": "number"}));
    let (text, count) = (text(), count());
    let jobs = json!({"jobs": list(&refers("Job")), "total": count, "next": or_null("integer")});
    let bad = list(&object(json!({"line": count, "why": text})));
    json!({
        "Error": object(json!({"error": error()})),
        "Recommendation": recommendation(),
        "Job": job(),
        "Jobs": object(jobs),
        "Added": object(json!({"taken": count, "known": count, "skipped": count, "bad": bad})),
        "Structure": structure(),
        "Structures": structures(),
        "Class": object(json!({
            "name": text, "doc": text, "entries_per_row": number, "orders": list(&text),
        })),
        "Sample": object(json!({"name": text, "title": text, "path": text})),
        "Format": object(json!({
            "name": text, "title": text, "suits": text, "source": text, "parameters": list(&any),
        })),
        "Device": object(json!({"name": text, "kind": text, "title": text, "read_gbps": number})),
        "Model": object(json!({
            "id": text, "device": text, "precision": text, "trained_at": or_null("integer"),
            "matrices": or_null("integer"), "state": text, "verdict": or_null("object"),
        })),
        "Health": object(json!({"status": text, "version": text, "devices": list(&text)})),
        "Ready": object(json!({"status": text})),
        "Version": object(json!({"version": text})),
        "Document": any,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_that_is_referred_to_is_there() {
        let text = DOCUMENT.to_string();
        let mut referred = 0;
        for rest in text.split("\"$ref\":\"").skip(1) {
            let path = rest.split('"').next().unwrap_or_default();
            let pointer = path.trim_start_matches('#');
            assert!(DOCUMENT.pointer(pointer).is_some(), "{path}");
            referred += 1;
        }
        assert!(referred > 20);
    }

    #[test]
    fn every_operation_has_a_name_of_its_own() {
        let mut names = std::collections::BTreeSet::new();
        for (path, methods) in DOCUMENT["paths"].as_object().expect("an object") {
            for (method, operation) in methods.as_object().expect("an object") {
                let name = operation["operationId"].as_str().expect("text");
                assert!(names.insert(name.to_string()), "{method} {path}");
            }
        }
        assert_eq!(names.len(), ROUTES.len());
    }
}
