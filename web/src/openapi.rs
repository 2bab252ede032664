//! `/openapi.json`: the API in OpenAPI 3.1, generated from the handlers and their types.

mod problems;

use axum::{
    Json, Router,
    http::header,
    response::{IntoResponse, Redirect},
    routing::get,
};
use serde_json::{Map, Value, json};
use utoipa::{
    ToSchema,
    openapi::{
        OpenApi, RefOr, Schema, Tag,
        path::Operation,
        security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
        tag::TagBuilder,
    },
};

use crate::{
    problem,
    query::{NoParameters, Parameters},
};

/// Name of the security scheme for tokens.
const TOKEN: &str = "token";

/// Tags: name, paths and description. An operation has the first tag that matches.
const TAGS: [(&str, &[&str], &str); 10] = [
    ("processes", &["/api/v1/processes"], "Counts, memory, history and verdicts of processes"),
    ("owners", &["/api/v1/owners"], "Sums by pod, job, container and unit"),
    ("gpus", &["/api/v1/gpus"], "GPUs, their memory and history"),
    ("verdicts", &["/api/v1/verdicts"], "Verdicts of all processes, with their evidence"),
    ("evictions", &["/api/v1/evictions"], "Evictors and victims"),
    ("overrides", &["/api/v1/overrides"], "Policies of selected processes, set by operators"),
    ("policy", &["/api/v1/policy"], "The switch of all acting"),
    ("decisions", &["/api/v1/decisions"], "Decisions of the policies, and their effects"),
    ("events", &["/api/v1/events"], "Stream of events"),
    ("service", &["/"], "Status, health and metrics of uvmd, and its problem types"),
];

/// Examples by operation, as JSON: request body and response.
const EXAMPLES: &str = include_str!("openapi/examples.json");

/// Schemas of requests, whose fields may be omitted.
const IN_REQUESTS: [&str; 3] = ["Override", "Selector", "Budget"];

/// Routes with their document at `/openapi.json`.
pub(crate) fn documented<S: Clone + Send + Sync + 'static>(routes: Router<S>, mut document: OpenApi) -> Router<S> {
    let components = document.components.get_or_insert_default();
    let token = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(
        "A token of uvmd's configuration: one for read permission, and one for read and write permission. On the Unix socket, root, uvmd's own user and the \
         members of a group need no token.",
    ));
    components.add_security_scheme(TOKEN, SecurityScheme::Http(token.build()));
    components.schemas.insert(problem::Body::name().into_owned(), <problem::Body as utoipa::PartialSchema>::schema());
    components
        .schemas
        .insert(problem::FieldError::name().into_owned(), <problem::FieldError as utoipa::PartialSchema>::schema());
    let in_responses = components.schemas.iter_mut().filter(|(name, _)| !IN_REQUESTS.contains(&name.as_str()));
    in_responses.for_each(|(_, schema)| require_all_fields(schema));
    document.tags = Some(TAGS.iter().map(|(name, _, description)| tag(name, description)).collect());
    let examples: Map<String, Value> = serde_json::from_str(EXAMPLES).unwrap_or_default();
    for (path, item) in &mut document.paths.paths {
        let operations =
            [("GET", &mut item.get), ("POST", &mut item.post), ("PUT", &mut item.put), ("DELETE", &mut item.delete)];
        for (method, operation) in operations {
            let Some(operation) = operation else { continue };
            let tag = TAGS.iter().find(|(_, prefixes, _)| prefixes.iter().any(|prefix| path.starts_with(prefix)));
            operation.tags = tag.map(|(name, ..)| vec![(*name).to_owned()]);
            problems::describe(path, method != "GET", operation);
            add_example(operation, examples.get(&format!("{method} {path}")));
        }
    }
    // Serialization fails for keys that are not text alone, and there are none.
    let mut document = serde_json::to_value(&document).unwrap_or_default();
    correct_unsigned_formats(&mut document);
    let text = document.to_string();
    let handler =
        async move |_: Parameters<NoParameters>| ([(header::CONTENT_TYPE, "application/json")], text).into_response();
    let index = index(&document);
    let index = async move |_: Parameters<NoParameters>| Json(index);
    let to_document = async |_: Parameters<NoParameters>| Redirect::permanent("/openapi.json");
    routes.route("/openapi.json", get(handler)).route("/openapi", get(to_document)).route("/api/v1", get(index))
}

/// Paths of the API that GET takes, with their summaries.
fn index(document: &Value) -> Value {
    let paths = document.get("paths").and_then(Value::as_object).into_iter().flatten();
    let entry = |(path, item): (&String, &Value)| {
        Some((path.clone(), item.get("get")?.get("summary").cloned().unwrap_or_default()))
    };
    let paths: Map<String, Value> = paths.filter(|(path, _)| path.starts_with("/api/")).filter_map(entry).collect();
    json!({ "openapi": "/openapi.json", "paths": paths })
}

/// Marks all fields of a schema as required. A response has every field, null if unknown; parsers
/// accept the absence of those that earlier versions did not send.
fn require_all_fields(schema: &mut RefOr<Schema>) {
    match schema {
        RefOr::T(Schema::Object(object)) => object.required = object.properties.keys().cloned().collect(),
        RefOr::T(Schema::AllOf(parts)) => parts.items.iter_mut().for_each(require_all_fields),
        RefOr::T(Schema::OneOf(choices)) => choices.items.iter_mut().for_each(require_all_fields),
        RefOr::Ref(_) | RefOr::T(_) => {}
    }
}

/// Corrects the format of unsigned integers. The generator declares them as signed ones of the same
/// size, so that the upper half of values would be invalid.
fn correct_unsigned_formats(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let is_unsigned = fields.get("minimum").and_then(Value::as_u64).is_some();
            if is_unsigned && fields.get("format").is_some_and(|format| format == "int32") {
                fields.insert("format".to_owned(), "uint32".into());
                fields.entry("maximum").or_insert(u32::MAX.into());
            } else if is_unsigned && fields.get("format").is_some_and(|format| format == "int64") {
                fields.insert("format".to_owned(), "uint64".into());
            }
            fields.values_mut().for_each(correct_unsigned_formats);
        }
        Value::Array(values) => values.iter_mut().for_each(correct_unsigned_formats),
        _ => {}
    }
}

fn tag(name: &str, description: &str) -> Tag {
    TagBuilder::new().name(name).description(Some(description)).build()
}

/// Adds examples of an operation's request body and of its successful response.
fn add_example(operation: &mut Operation, example: Option<&Value>) {
    let part = |name| example.and_then(|example| example.get(name)).cloned();
    if let Some(body) = &mut operation.request_body {
        body.content.values_mut().for_each(|content| content.example = part("request"));
    }
    for (status, response) in &mut operation.responses.responses {
        if let (true, RefOr::T(response)) = (status.starts_with('2'), response) {
            response.content.values_mut().for_each(|content| content.example = part("response"));
        }
    }
}
