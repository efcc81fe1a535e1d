//! Answers that the command line and the service share.

use ellect::choose::{Choice, TransposedChoice};
use ellect::cost::Source;
use ellect::format::{FORMATS, Role, Value};
use ellect::units::{bytes, time};
use serde::Serialize;
use utoipa::ToSchema;

use crate::output::{table, wrap};

/// Number of candidates shown by default.
const SHOWN: usize = 10;

/// A storage format.
#[derive(Serialize, ToSchema)]
pub struct Format {
    /// Name, as candidates write it.
    name: &'static str,
    /// Full name.
    title: &'static str,
    /// Matrices that it suits.
    suits: &'static str,
    /// Publication or library that it comes from.
    source: &'static str,
    parameters: Vec<Parameter>,
}

/// A parameter of a storage format. Its values are whole numbers and words.
#[derive(Serialize, ToSchema)]
#[schema(as = FormatParameter)]
pub struct Parameter {
    /// Name, as candidates write it.
    name: &'static str,
    /// Effect, in one sentence.
    doc: &'static str,
    /// Every legal value.
    #[schema(value_type = Vec<serde_json::Value>)]
    values: &'static [Value],
    #[schema(value_type = serde_json::Value)]
    default: Value,
    /// Values tried on a GPU.
    #[schema(value_type = Vec<serde_json::Value>)]
    gpu: &'static [Value],
    /// Values tried on a host.
    #[schema(value_type = Vec<serde_json::Value>)]
    host: &'static [Value],
}

/// Returns every format with its parameters, for JSON.
pub fn formats() -> Vec<Format> {
    let formats = FORMATS.iter().map(|format| {
        let parameters = format.params.iter().map(|param| Parameter {
            name: param.name,
            doc: param.doc,
            values: param.values,
            default: param.values[0],
            gpu: param.gpu,
            host: param.host,
        });
        Format {
            name: format.name,
            title: format.title,
            suits: format.suits,
            source: format.source,
            parameters: parameters.collect(),
        }
    });
    formats.collect()
}

/// Returns the decision in three lines: the candidate, the totals, and the source of the times.
fn decision(choice: &Choice) -> [String; 3] {
    let Choice { candidate, baseline, speedup, .. } = choice;
    let Some(chosen) = choice.ranked(candidate) else { return Default::default() };
    let products = choice.products();
    let of_one = time(chosen.spmv_s);
    let stays = *candidate == baseline.candidate;
    let first = match stays {
        true => format!("Keep CSR ({candidate}): {of_one} a product."),
        false => format!(
            "Use {candidate}: {of_one} a product, {:.2} times as fast as {} ({:.2} to {:.2}).",
            speedup.value, baseline.candidate, speedup.low, speedup.high
        ),
    };
    let total = format!("{products} take {} in total", time(chosen.total_s));
    let setup = match baseline.setup_s {
        setup_s if setup_s > 0.0 => format!(", whose own set-up takes {}", time(setup_s)),
        _ => String::new(),
    };
    let pays = match chosen.break_even_spmvs {
        Some(0) => "pays from the first product".to_string(),
        Some(from) => format!("pays from product {from}"),
        None => "never pays".to_string(),
    };
    let second = match stays {
        true => format!("{total}; no conversion."),
        false => format!(
            "Conversion takes {} and {pays}, compared with {}{setup}; {total}.",
            time(chosen.convert_s),
            baseline.candidate
        ),
    };
    let by = choice.model.as_ref().map_or(String::new(), |model| format!(" by {model}"));
    let sure = choice.confidence.map_or(String::new(), |c| format!(", confidence {c:.2} of 1"));
    let source = match chosen.source {
        Source::Measured => "Times are measured".to_string(),
        Source::Predicted => format!("Times are predicted{by}{sure}"),
        Source::Estimated => "Times are estimated from closed formulas".to_string(),
    };
    [first, second, format!("{source}, for products back to back: a launch is not counted.")]
}

/// Returns the choice as text, with at most `top` candidates, 0 for a few; with the reasons if `why`.
pub fn choice(choice: &Choice, top: usize, why: bool) -> String {
    let mut text = of_one(choice, top, why);
    match &choice.transposed {
        None => {}
        Some(TransposedChoice::Shared) => {
            text += &wrap("The matrix is symmetric: this layout serves its transpose too.");
        }
        Some(TransposedChoice::Own(own)) => {
            text += "\nProducts with the transpose:\n";
            text += &of_one(own, top, why);
        }
    }
    if !why {
        text += "--why says more\n";
    }
    text
}

/// Returns the choice for one direction as text.
fn of_one(choice: &Choice, top: usize, why: bool) -> String {
    let mut text = String::new();
    for sentence in &decision(choice) {
        text += &wrap(sentence);
    }
    if why {
        text += "\n";
        for sentence in &choice.explanation {
            text += &wrap(sentence);
        }
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
    text += &format!(
        "\n{more}{} refused; matrix {matrix}, {} in {} on {}\n",
        choice.refused.len(),
        choice.products(),
        choice.precision,
        choice.device
    );
    text
}
