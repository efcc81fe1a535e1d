//! The form of an answer that a client accepts.

use axum::http::header::{ACCEPT, HeaderMap};

/// A form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// JSON, for programs.
    Json,
    /// Text, for a terminal.
    Text,
    /// A page, for a browser.
    Html,
}

impl Form {
    /// All forms, the preferred one first.
    const ALL: [Form; 3] = [Form::Json, Form::Text, Form::Html];

    /// Returns the media type.
    pub fn media(self) -> &'static str {
        match self {
            Form::Json => "application/json",
            Form::Text => "text/plain",
            Form::Html => "text/html",
        }
    }

    /// Returns the form with the greatest weight in the header `Accept`, by the most specific range
    /// that names each; JSON if none is named.
    pub fn accepted(headers: &HeaderMap) -> Self {
        let values = headers.get_all(ACCEPT).into_iter().filter_map(|value| value.to_str().ok());
        let ranges: Vec<Range<'_>> =
            values.flat_map(|value| value.split(',')).filter_map(Range::parse).collect();
        let mut best = (Form::Json, 0.0);
        for form in Form::ALL {
            let own = ranges.iter().filter_map(|range| Some((range.names(form)?, range.weight)));
            let weight = own.max_by_key(|(depth, _)| *depth).map_or(0.0, |(_, weight)| weight);
            if weight > best.1 {
                best = (form, weight);
            }
        }
        best.0
    }
}

/// A range of media types with its weight.
struct Range<'a> {
    kind: &'a str,
    subtype: &'a str,
    weight: f64,
}

impl<'a> Range<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let (kind, subtype) = parts.next()?.split_once('/')?;
        let weight = parts.find_map(|part| part.strip_prefix("q="));
        let weight = weight.map_or(Some(1.0), |weight| weight.parse().ok());
        Some(Range { kind, subtype, weight: weight.filter(|w| (0.0..=1.0).contains(w))? })
    }

    /// Returns how exactly the range names a form: 0 for all types, 2 for the form alone; `None` if
    /// it does not.
    fn names(&self, form: Form) -> Option<u8> {
        let (kind, subtype) = form.media().split_once('/')?;
        match (self.kind, self.subtype) {
            ("*", "*") => Some(0),
            (own, "*") if own.eq_ignore_ascii_case(kind) => Some(1),
            (own, sub) => {
                let is_form = own.eq_ignore_ascii_case(kind) && sub.eq_ignore_ascii_case(subtype);
                is_form.then_some(2)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_with_the_greatest_weight_is_taken() {
        for (accept, form) in [
            ("", Form::Json),
            ("*/*", Form::Json),
            ("text/plain", Form::Text),
            ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", Form::Html),
            ("application/json, text/plain, */*", Form::Json),
            ("text/*", Form::Text),
            ("text/*;q=0.5, text/html", Form::Html),
            ("application/json;q=0.2, text/plain; q=0.9", Form::Text),
            ("image/png", Form::Json),
            ("TEXT/HTML", Form::Html),
            ("text/html;q=2, text/plain;q=x, nonsense", Form::Json),
            ("text/html;q=0, */*", Form::Json),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, accept.parse().expect("a header"));
            assert_eq!(Form::accepted(&headers), form, "{accept}");
        }
    }
}
