//! Tests of model files.

use super::rules::Rule;
use super::*;
use crate::format::FORMATS;

/// Returns the names of formats and candidates in these rules.
fn answers(rules: &Rules) -> impl Iterator<Item = &str> {
    rules
        .nodes
        .iter()
        .filter_map(|node| match node {
            Rule::Answer(answer) if ![ANALYZE, KEEP].contains(&answer.as_str()) => Some(answer),
            Rule::Answer(_) | Rule::Split { .. } => None,
        })
        .map(String::as_str)
}

/// Returns all names of formats and candidates in a model.
fn ids(model: &Model) -> Vec<&str> {
    let picks = model.quick_picks.iter();
    let picks = picks.flat_map(|pick| answers(&pick.rules).chain([pick.candidate.as_str()]));
    let quick = model.quick.iter();
    let candidates = quick.flat_map(|quick| &quick.stages).flat_map(|stage| &stage.candidates);
    let quick = candidates.map(|of| of.candidate.as_str());
    let formats = model.formats.keys().map(String::as_str);
    let rules = answers(&model.rules).chain(answers(&model.gate));
    formats.chain(rules).chain(picks).chain(quick).collect()
}

#[test]
fn shipped_models_name_formats_by_their_current_names() {
    for device in Device::shipped() {
        for purpose in Purpose::ALL {
            let model = Model::shipped(&device, purpose).expect("it loads");
            let ships = model.is_some() || purpose.several;
            assert_eq!(!ships, SHIPPED.is_empty() && !purpose.several, "{} {purpose}", device.name);
            let Some(model) = model else { continue };
            // Shipped models load without this check.
            model.check().expect("sound");
            let ids = ids(&model);
            assert!(ids.len() > if purpose.several { 7 } else { 20 }, "{ids:?}");
            for id in ids {
                let name = id.split(':').next().unwrap_or_default();
                assert!(FORMATS.iter().any(|format| format.name == name), "{id}");
                assert_eq!(aliases::current(id), id);
            }
        }
    }
}

#[test]
fn earlier_names_in_a_model_are_read_as_the_current_ones() {
    let leaf = r#"{"bias":0,"scale":1,"roots":[],"feature":[],"value":[],"child":[]}"#;
    let answer = |word: &str| format!(r#"[{{"answer":"{word}"}}]"#);
    let (slabs, stvi) = ("slabs:cache=40", "stvi:tile=1024");
    let text = format!(
        r#"{{"schema":{SCHEMA},"device":"h200","precision":"f64","data":"","seed":1,"commit":"",
        "plan":"","scores":{{}},"features":["nnz"],"terms":[],"floor_share":0,
        "formats":{{"hubs":{{"parameters":["kib"],"forest":{leaf}}},
            "sweep":{{"parameters":[],"forest":{leaf}}}}},
        "nearness":{{"mean":[0],"scale":[1],"points":[0],"radius":1}},
        "rules":{},"look":{},
        "sight":[{{"candidate":"{slabs}","rules":{}}}],
        "by_features":{{"look":{},"candidates":[{{"candidate":"{stvi}",
            "conversion":{{"least_s":0,"products":1}},"forest":{leaf}}}]}}}}"#,
        answer("hlldu"),
        answer(ANALYZE),
        answer(slabs),
        answer(KEEP)
    );
    let model = Model::parse(text.as_bytes(), "h200", Precision::F64).expect("a model");
    let all = [
        "column_sweep",
        "hub_ell",
        "hll_du",
        "cache_blocked:cache=40",
        "cache_blocked:cache=40",
        "st_csr_vi:tile=1024",
    ];
    assert_eq!(ids(&model), all);
    let copy = model.bytes().expect("memory");
    assert_eq!(Model::parse(&copy, "h200", Precision::F64).expect("own file"), model);
    let candidate: Candidate = "hub_ell".parse().expect("a format");
    let predictor = Predictor::new(model);
    let terms = [1.0; TERMS.len()];
    assert!(predictor.spmv_s(&mut predictor.inputs(&[0.0]), &candidate, &terms).is_some());
}

#[test]
fn scores_that_were_computed_again_are_those_of_shipped_models() {
    let all: BTreeMap<String, BTreeMap<String, f64>> =
        serde_json::from_str(RESCORED).expect("valid JSON");
    for (name, scores) in all {
        let (device, purpose) = name.split_once('-').expect("device-purpose");
        let device = crate::device::find(device).expect("shipped");
        let purpose: Purpose = purpose.parse().expect("a purpose");
        if let Some(model) = Model::shipped(&device, purpose).expect("it loads") {
            for (figure, score) in scores {
                assert_eq!(model.scores.get(&figure), Some(&score), "{name} {figure}");
            }
        }
    }
}
