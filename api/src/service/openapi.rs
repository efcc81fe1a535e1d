//! The OpenAPI document of the service, made from its table of routes, its parameters, its codes and
//! the types of its answers.

use std::sync::{Arc, LazyLock};

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use ellect::model::Purpose;
use serde_json::{Value, json};
use utoipa::openapi::path::{
    HttpMethod, Operation, OperationBuilder, Parameter, ParameterBuilder, ParameterIn,
};
use utoipa::openapi::request_body::{RequestBody, RequestBodyBuilder};
use utoipa::openapi::schema::{Array, ComponentsBuilder, KnownFormat, ObjectBuilder, Type};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    Content, HeaderBuilder, InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder, Paths, Ref,
    RefOr, Required, ResponseBuilder, Responses, Schema, SchemaFormat,
};
use utoipa::{PartialSchema, ToSchema};

use super::Service;
use super::failure;
use super::html;
use super::routes::{Body, Contents, Needed, ROUTES, Route};
use super::schemas::Recommendation;
use crate::query;

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| json!(made()));

/// Schemas with their names.
pub type Schemas = Vec<(String, RefOr<Schema>)>;

/// Media type of most answers.
const JSON: &str = "application/json";

/// Sends the document.
pub async fn document(State(_): State<Arc<Service>>) -> Json<&'static Value> {
    Json(&DOCUMENT)
}

/// Shows the document as a page.
pub async fn page() -> Response {
    html::reference(&DOCUMENT)
}

/// Adds the schema of a type and those of the types in it, and refers to it.
pub fn of<T: ToSchema>(schemas: &mut Schemas) -> Ref {
    schemas.push((T::name().into(), T::schema()));
    T::schemas(schemas);
    Ref::from_schema_name(T::name())
}

fn made() -> OpenApi {
    let mut paths = Paths::new();
    let mut schemas = Vec::new();
    for route in ROUTES {
        paths.add_path_operation(route.path, vec![method(route)], operation(route, &mut schemas));
    }
    let about = "Chooses storage formats for sparse matrix-vector products. A request that fails is \
                 answered with an Error, whose code is a stable word.";
    let license = "MIT OR Apache-2.0";
    let info = InfoBuilder::new()
        .title("ellect")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(about))
        .license(Some(LicenseBuilder::new().name(license).identifier(Some(license)).build()));
    let token = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    let components =
        ComponentsBuilder::new().schemas_from_iter(schemas).security_scheme("token", token);
    OpenApiBuilder::new()
        .info(info.build())
        .paths(paths)
        .components(Some(components.build()))
        .build()
}

fn method(route: &Route) -> HttpMethod {
    match route.method {
        "DELETE" => HttpMethod::Delete,
        "POST" => HttpMethod::Post,
        "PUT" => HttpMethod::Put,
        _ => HttpMethod::Get,
    }
}

fn operation(route: &Route, schemas: &mut Schemas) -> Operation {
    let words = route.path.split(['/', '{', '}', '.']).filter(|word| !word.is_empty());
    let mut name = route.method.to_lowercase();
    words.for_each(|word| name += &format!("_{word}"));
    let in_path = route.path.split('{').skip(1).filter_map(|rest| rest.split_once('}'));
    let in_path = in_path.map(|(name, _)| of_path(name));
    let in_query = (route.query)().into_iter().map(of_query);
    let write = "Where the service has tokens, this needs one with the role write.";
    // A service without tokens lets everybody do everything.
    let token = [SecurityRequirement::new("token", [""; 0]), SecurityRequirement::default()];
    OperationBuilder::new()
        .operation_id(Some(name))
        .summary(Some(route.help))
        .description((route.role == Needed::Write).then_some(write))
        .parameters(Some(in_path.chain(in_query)))
        .request_body(body(route.body))
        .responses(answers(route, schemas))
        .securities(Some(token.into_iter().filter(|_| route.role != Needed::Nothing)))
        .build()
}

fn of_path(name: &str) -> Parameter {
    let schema = match name {
        "id" => u64::schema(),
        "fingerprint" => text().pattern(Some("^[0-9a-f]{32}$")).into(),
        "precision" => text().enum_values(Some(Purpose::ALL.map(|one| one.to_string()))).into(),
        _ => text().into(),
    };
    let parameter = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Path);
    parameter.required(Required::True).schema(Some(schema)).build()
}

fn of_query(parameter: query::Parameter) -> Parameter {
    let query::Parameter { name, help, default } = parameter;
    let schema = text().default((!default.is_empty()).then(|| default.into()));
    let parameter = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Query);
    parameter.description(Some(help)).schema(Some(schema)).build()
}

fn body(body: Body) -> Option<RequestBody> {
    let stated = match body {
        Body::Nothing => return None,
        Body::Matrix => "a matrix in any form that the readers know",
        Body::Records => "records, one in JSON on each line, plain or compressed with zstd",
    };
    let bytes = || text().format(Some(SchemaFormat::KnownFormat(KnownFormat::Binary)));
    let form = ObjectBuilder::new().property("file", bytes());
    let bytes = Content::new(Some(bytes().description(Some(stated))));
    // A generated matrix has no body.
    let request = RequestBodyBuilder::new().required(Some(Required::False));
    let request = request.content("application/octet-stream", bytes);
    let request = match body {
        Body::Matrix => request.content("multipart/form-data", Content::new(Some(form))),
        _ => request,
    };
    Some(request.build())
}

fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

fn answers(route: &Route, schemas: &mut Schemas) -> Responses {
    let mut answers = Responses::new();
    for (status, contents) in route.answers {
        let text = || RefOr::from(text());
        let contents = match contents {
            Contents::Recommendation => vec![
                (JSON, of::<Recommendation>(schemas).into()),
                ("text/plain", text()),
                ("text/html", text()),
            ],
            Contents::Json(schema) => vec![(JSON, schema(schemas).into())],
            Contents::List(schema) => vec![(JSON, Array::new(schema(schemas)).into())],
            Contents::Text(kind) => vec![(kind.split(';').next().unwrap_or_default(), text())],
            Contents::OneOf(kinds) => kinds.iter().map(|kind| (*kind, text())).collect(),
        };
        let mut answer = ResponseBuilder::new().description(route.help);
        for (kind, schema) in contents {
            answer = answer.content(kind, Content::new(Some(schema)));
        }
        if *status == 202 {
            let path = HeaderBuilder::new().schema(Some(text()));
            let path = path.description(Some("path of the job")).build();
            answer = answer.description("the work goes on as a job").header("location", path);
        }
        answers.responses.insert(status.to_string(), answer.into());
    }
    let error = Content::new(Some(of::<failure::Body>(schemas)));
    let error = ResponseBuilder::new().description("the reason").content(JSON, error);
    answers.responses.insert("default".into(), error.into());
    answers
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn no_two_types_share_the_name_of_a_schema() {
        let mut schemas = Vec::new();
        ROUTES.iter().for_each(|route| drop(operation(route, &mut schemas)));
        let by_name: BTreeMap<_, _> = schemas.iter().cloned().collect();
        for (name, schema) in schemas {
            assert!(by_name[&name] == schema, "{name}");
        }
    }

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
