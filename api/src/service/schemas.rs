//! Schemas of answers that the library writes: it knows nothing of OpenAPI. The tests compare them
//! with the answers.

#![expect(dead_code, reason = "nothing but the schemas of these types is used")]

use serde_json::Value;
use utoipa::ToSchema;

use super::pictures::Bin;

/// Precision of values.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum Precision {
    F32,
    F64,
}

/// A document of OpenAPI 3.1.
#[derive(ToSchema)]
pub struct Document {}

/// The profile of a device: these figures and others.
#[derive(ToSchema)]
pub struct Device {
    /// Name, as device= takes it.
    name: String,
    /// `gpu` or `host`.
    kind: String,
    /// Full name.
    title: String,
    /// Bandwidth of reading a stream from memory, in GB/s.
    read_gbps: f64,
}

/// A recommendation. `ellect recommend --help` describes the keys; fields= keeps some of them.
#[derive(ToSchema)]
pub struct Recommendation {
    /// The chosen candidate.
    #[schema(required = false)]
    choice: String,
    /// The candidate that the choice is compared with.
    #[schema(value_type = Object, required = false)]
    baseline: Value,
    /// Time of a product with the baseline over that with the choice.
    #[schema(value_type = Object, required = false)]
    speedup: Value,
    /// Similarity of the matrix to those of the model, from 0 to 1; null if no model predicted.
    confidence: Option<f64>,
    /// The model that predicted; null if none did.
    #[schema(value_type = Option<Object>)]
    model: Value,
    /// Candidates: the choice, then the others in ascending order of total time.
    #[schema(value_type = Vec<Object>, required = false)]
    ranking: Value,
    /// Candidates that do not apply.
    #[schema(value_type = Vec<Object>, required = false)]
    refused: Value,
    /// Features of the matrix, by name.
    #[schema(value_type = Object, required = false)]
    features: Value,
    /// Name of the device.
    #[schema(required = false)]
    device: String,
    #[schema(required = false)]
    precision: Precision,
    /// Number of products that the choice was made for.
    #[schema(required = false)]
    spmvs: u64,
    /// Vectors of a product; not there if it is 1.
    #[schema(minimum = 2, required = false)]
    vectors: usize,
    /// With transposed=: the answer for the transpose; null where one layout serves both.
    #[schema(value_type = Option<Object>)]
    transposed: Value,
    /// Fingerprint of the matrix; null if it was not analysed.
    fingerprint: Option<String>,
    /// Reasons of the choice, one sentence each.
    #[schema(required = false)]
    explanation: Vec<String>,
}

/// A matrix: features, measurements and pictures.
#[derive(ToSchema)]
pub struct Structure {
    fingerprint: String,
    nrows: u64,
    ncols: u64,
    nnz: u64,
    /// Features, by name.
    #[schema(value_type = Object)]
    features: Value,
    /// Records of measurements.
    #[schema(value_type = Vec<Object>)]
    measurements: Value,
    /// Null if this service has not measured the matrix and it was not posted lately.
    #[schema(required)]
    density: Option<Density>,
    /// Numbers of rows by length; null where density is.
    #[schema(required)]
    row_lengths: Option<Vec<Bin>>,
}

/// Numbers of entries in each cell of a grid over a matrix, row by row.
#[derive(ToSchema)]
struct Density {
    /// Number of rows of the grid.
    rows: usize,
    /// Number of columns of the grid.
    columns: usize,
    counts: Vec<u64>,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ellect::analysis::Analysis;
    use ellect::device::{self, Device as Profile};
    use ellect::features::Features;
    use ellect::unstable::wisdom::StructureRecord;
    use ellect::{Tuner, Workload, generate};
    use serde_json::json;

    use super::super::pictures::Picture;
    use super::*;

    /// Returns the properties of a type's schema: all of them, and those that are required.
    fn properties<T: ToSchema>() -> [BTreeSet<String>; 2] {
        let schema = json!(T::schema());
        let all = schema["properties"].as_object().expect("an object");
        let required = schema["required"].as_array().into_iter().flatten();
        let required = required.filter_map(Value::as_str).map(str::to_string);
        [all.keys().cloned().collect(), required.collect()]
    }

    fn keys(value: &Value) -> BTreeSet<String> {
        value.as_object().expect("an object").keys().cloned().collect()
    }

    #[test]
    fn the_answers_have_the_keys_of_their_schemas() {
        let csr = generate::by_name("heat", 500, 1).expect("a class");
        let analysis = Analysis::of(&csr);
        let picture = json!(Picture::of(&csr, &Features::of(&analysis)).expect("a legal grid"));
        let record = json!(StructureRecord::of(&analysis, "", ""));
        let shown = &(&keys(&picture) | &keys(&record)) | &BTreeSet::from(["measurements".into()]);
        let [_, required] = properties::<Structure>();
        assert!(required.is_subset(&shown));
        assert_eq!(properties::<Density>(), [keys(&picture["density"]), keys(&picture["density"])]);

        for profile in Profile::shipped() {
            let [_, required] = properties::<Device>();
            assert!(required.is_subset(&keys(&json!(profile))));
        }

        let tuner = Tuner::without_models(device::find("cpu").expect("ships"));
        let workload = Workload { vectors: 2, transposed: 1, ..Workload::default() };
        let choice = tuner.recommend(&csr, &workload).expect("estimates");
        assert_eq!(properties::<Recommendation>(), [keys(&json!(choice)), BTreeSet::new()]);
    }
}
