//! Answers that the command line and the service share.

use ellect::choose::Choice;
use ellect::format::{FORMATS, Role};
use ellect::units::{bytes, time};
use serde_json::{Value, json};

use crate::output::{table, wrap};

/// Number of candidates shown by default.
const SHOWN: usize = 10;

/// Returns every format with its parameters, for JSON.
pub fn formats() -> Value {
    let formats = FORMATS.iter().map(|format| {
        let params = format.params.iter().map(|param| {
            json!({
                "name": param.name,
                "doc": param.doc,
                "values": param.values,
                "default": param.values[0],
                "gpu": param.gpu,
                "host": param.host,
            })
        });
        json!({
            "name": format.name,
            "title": format.title,
            "suits": format.suits,
            "source": format.source,
            "parameters": params.collect::<Vec<_>>(),
        })
    });
    formats.collect()
}

/// Returns the choice as text, with at most `top` candidates; 0 for a few.
pub fn choice(choice: &Choice, top: usize) -> String {
    let mut text = String::new();
    for sentence in &choice.explanation {
        text += &wrap(sentence);
    }
    let shown = if top == 0 { SHOWN } else { top };
    let rows = choice.ranking.iter().take(shown).map(|ranked| {
        vec![
            ranked.candidate.to_string(),
            time(ranked.spmv_s),
            time(ranked.convert_s),
            time(ranked.total_s),
            bytes(ranked.bytes),
            match ranked.break_even_spmvs {
                _ if ranked.candidate.is_baseline() => "-".into(),
                Some(0) => "always".into(),
                Some(spmvs) => spmvs.to_string(),
                None => "never".into(),
            },
            ranked.source.to_string(),
        ]
    });
    // The head of the break-even column names the baseline.
    let beats =
        match choice.ranking.iter().any(|ranked| ranked.candidate.format.role == Role::Vendor) {
            true => "beats cuSPARSE from",
            false => "beats CSR from",
        };
    let head = ["candidate", "product", "conversion", "total", "memory", beats, "source"];
    text += "\n";
    text += &table(&head, rows.collect(), &[0]);
    let hidden = choice.ranking.len().saturating_sub(shown);
    let more = if hidden > 0 { format!("{hidden} more candidates and ") } else { String::new() };
    let matrix = choice.fingerprint.map_or("not analysed".into(), |print| print.to_string());
    let products = if choice.spmvs == 1 { "product" } else { "products" };
    text += &format!(
        "\n{more}{} refused; matrix {matrix}, {} {products} in {} on {}\n",
        choice.refused.len(),
        choice.spmvs,
        choice.precision,
        choice.device
    );
    text
}
