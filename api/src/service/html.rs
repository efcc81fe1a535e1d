//! Pages without scripts: an answer, and the reference of the interface.

use std::fmt::Write;

use axum::http::HeaderName;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use ellect::choose::{Choice, TransposedChoice};
use ellect::units::{bytes, time};
use serde_json::Value;

/// Style of all pages, for light and dark screens and for phones.
const STYLE: &str = "\
:root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:auto;\
padding:1rem}table{border-collapse:collapse;display:block;overflow-x:auto}th,td{text-align:left;\
padding:.2rem .8rem .2rem 0;vertical-align:top}td.n{text-align:right}code{font-family:ui-monospace,\
monospace}summary{cursor:pointer;padding:.3rem 0}details{border-top:1px solid #8888}";

/// The page may load nothing and run nothing.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

/// Writes a text so that a page shows it as it is.
fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => shown += "&amp;",
            '<' => shown += "&lt;",
            '>' => shown += "&gt;",
            '"' => shown += "&quot;",
            c => shown.push(c),
        }
    }
    shown
}

/// Returns a page with this title and contents.
fn page(title: &str, contents: &str) -> Response {
    let text = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>{}</title><style>{STYLE}</style></head>\
         <body>{contents}</body></html>\n",
        shown(title)
    );
    let options = HeaderName::from_static("x-content-type-options");
    let head = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (options, "nosniff"),
    ];
    (head, text).into_response()
}

/// Returns the page of a choice, with at most `top` candidates, 0 for all.
pub fn choice(choice: &Choice, top: usize) -> Response {
    let mut text = of_one(choice, top);
    if let Some(TransposedChoice::Own(own)) = &choice.transposed {
        text += "<h1>Products with the transpose</h1>";
        text += &of_one(own, top);
    }
    page("ellect", &text)
}

/// Returns the part of a page about the choice for one direction.
fn of_one(choice: &Choice, top: usize) -> String {
    let mut text = format!("<h1>{}</h1>", shown(&choice.candidate.to_string()));
    for sentence in &choice.explanation {
        let _ = write!(text, "<p>{}</p>", shown(sentence));
    }
    text += "<table><tr><th>candidate<th>product<th>conversion<th>total<th>memory<th>source</tr>";
    let all = if top == 0 { usize::MAX } else { top };
    for ranked in choice.ranking.iter().take(all) {
        let _ = write!(
            text,
            "<tr><td><code>{}</code><td class=\"n\">{}<td class=\"n\">{}<td class=\"n\">{}\
             <td class=\"n\">{}<td>{}</tr>",
            shown(&ranked.candidate.to_string()),
            time(ranked.spmv_s),
            time(ranked.convert_s),
            time(ranked.total_s),
            bytes(ranked.bytes),
            ranked.source
        );
    }
    text += "</table>";
    let matrix = choice.fingerprint.map_or("not analysed".into(), |print| print.to_string());
    let _ = write!(
        text,
        "<p>{} candidates refused; matrix {matrix}, {} in {} on {}</p>",
        choice.refused.len(),
        choice.products(),
        choice.precision,
        shown(&choice.device)
    );
    text
}

/// Returns the text at a key of a JSON object; empty if there is none.
fn at<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}

/// Returns the reference of the interface that an OpenAPI document describes.
pub fn reference(document: &Value) -> Response {
    let mut text = format!(
        "<h1>{}</h1><p>{}</p><p><a href=\"/openapi.json\">openapi.json</a></p>",
        shown(at(&document["info"], "title")),
        shown(at(&document["info"], "description"))
    );
    for (path, methods) in document["paths"].as_object().into_iter().flatten() {
        for (method, operation) in methods.as_object().into_iter().flatten() {
            let _ = write!(
                text,
                "<details><summary><code>{} {}</code> {}</summary>",
                method.to_uppercase(),
                shown(path),
                shown(at(operation, "summary"))
            );
            text += &parameters(operation);
            text += &answers(operation);
            text += "</details>";
        }
    }
    let schemas = document["components"]["schemas"].as_object();
    text += "<h2>Schemas</h2>";
    for (name, schema) in schemas.into_iter().flatten() {
        let schema = serde_json::to_string_pretty(schema).unwrap_or_default();
        let (name, schema) = (shown(name), shown(&schema));
        let _ = write!(
            text,
            "<details id=\"{name}\"><summary><code>{name}</code></summary><pre>{schema}</pre></details>"
        );
    }
    page("ellect: interface", &text)
}

fn parameters(operation: &Value) -> String {
    let Some(all) = operation["parameters"].as_array().filter(|all| !all.is_empty()) else {
        return String::new();
    };
    let mut text = "<table><tr><th>parameter<th>in<th>default<th>meaning</tr>".to_string();
    for parameter in all {
        let _ = write!(
            text,
            "<tr><td><code>{}</code><td>{}<td><code>{}</code><td>{}</tr>",
            shown(at(parameter, "name")),
            shown(at(parameter, "in")),
            shown(at(&parameter["schema"], "default")),
            shown(at(parameter, "description"))
        );
    }
    text + "</table>"
}

fn answers(operation: &Value) -> String {
    let mut text = "<table><tr><th>status<th>form<th>meaning</tr>".to_string();
    for (status, answer) in operation["responses"].as_object().into_iter().flatten() {
        let forms = answer["content"].as_object().into_iter().flatten().map(|(form, content)| {
            let schema = at(&content["schema"], "$ref");
            let name = schema.rsplit('/').next().unwrap_or_default();
            let link = format!("<a href=\"#{0}\">{0}</a>", shown(name));
            format!("{} {}", shown(form), if name.is_empty() { String::new() } else { link })
        });
        let forms: Vec<_> = forms.collect();
        let _ = write!(
            text,
            "<tr><td>{}<td>{}<td>{}</tr>",
            shown(status),
            forms.join("<br>"),
            shown(at(answer, "description"))
        );
    }
    text + "</table>"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_becomes_a_tag() {
        assert_eq!(shown("<a href=\"x\">&'"), "&lt;a href=&quot;x&quot;&gt;&amp;'");
    }
}
