//! `/openapi.json` is complete and valid, and describes the responses.

use std::collections::BTreeSet;

use axum::{
    body::Body,
    http::{Request, StatusCode},
};
use serde_json::{Map, Value, json};
use web::{Grant, Peer, ProblemKind};

use crate::{
    populated,
    support::{LOOPBACK, counting, get, get_as_reader, router, send},
};

const GPU: &str = "GPU-9a317702-0405-0607-0809-0a0b0c0d0e0f";

async fn document() -> Value {
    let response = get(&router(counting()), "/openapi.json").await;
    assert_eq!((response.status, response.header("content-type")), (StatusCode::OK, "application/json"));
    response.json()
}

/// Resolves a reference within the document.
fn resolve<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(reference) => {
            let target = document.pointer(reference.strip_prefix('#').unwrap());
            target.unwrap_or_else(|| panic!("{reference} is not in the document"))
        }
        None => schema,
    }
}

/// Method, path and definition of each operation.
fn operations(document: &Value) -> Vec<(&str, &str, &Value)> {
    let paths = document["paths"].as_object().unwrap().iter();
    paths
        .flat_map(|(path, item)| {
            item.as_object().unwrap().iter().map(move |(method, each)| (method.as_str(), path.as_str(), each))
        })
        .collect()
}

fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|value| references(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[tokio::test]
async fn the_document_is_found_from_the_paths_around_it() {
    let response = get(&router(counting()), "/openapi").await;
    assert_eq!((response.status.as_u16(), response.header("location")), (308, "/openapi.json"));
    let index = get(&router(counting()), "/api/v1").await.json();
    assert_eq!(index["openapi"], "/openapi.json");
    assert_eq!(index["paths"]["/api/v1/owners"], "List owners");
    assert!(index["paths"].get("/metrics").is_none() && index["paths"].get("/api/v1/policy/off").is_none(), "{index}");
}

#[tokio::test]
async fn every_path_of_the_api_document_is_in_it() {
    let document = document().await;
    assert_eq!(document["openapi"], "3.1.0");
    let text = include_str!("../../../docs/api.md");
    let (_, table) = text.split_once("| --- | --- |\n").unwrap();
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    let written = rows.map(|row| row.split('`').nth(1).unwrap().split_once(' ').unwrap());
    // The document does not describe the page, itself and the index of its paths.
    let described: BTreeSet<(String, String)> = written
        .filter(|(_, path)| !["/", "/openapi.json", "/api/v1"].contains(path))
        .map(|(method, path)| (method.to_lowercase(), path.to_owned()))
        .collect();
    let documented = operations(&document).into_iter().map(|(method, path, _)| (method.to_owned(), path.to_owned()));
    assert_eq!(documented.collect::<BTreeSet<_>>(), described);
}

#[tokio::test]
async fn every_reference_has_a_schema_and_every_schema_a_reference() {
    let document = document().await;
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let defined: BTreeSet<String> = schemas.keys().map(|name| format!("#/components/schemas/{name}")).collect();
    assert_eq!(found, defined);
}

#[tokio::test]
async fn every_operation_has_a_unique_name_and_describes_requests_and_responses() {
    let document = document().await;
    let mut names = BTreeSet::new();
    for (method, path, operation) in operations(&document) {
        assert!(names.insert(operation["operationId"].as_str().unwrap()), "{path}");
        assert!(!operation["summary"].as_str().unwrap().is_empty(), "{path}");
        assert!(operation["responses"]["200"]["content"].is_object() || method == "delete", "{path}");
        for status in ["400", "401", "404", "421", "500", "503"] {
            let problem = &operation["responses"][status]["content"]["application/problem+json"];
            let kind = problem["example"]["type"].as_str().unwrap();
            assert!(ProblemKind::ALL.iter().any(|known| known.uri() == kind), "{path} {status}");
        }
        let tags = operation["tags"].as_array().unwrap();
        let described = document["tags"].as_array().unwrap().iter();
        assert!(tags.len() == 1 && described.clone().any(|tag| tag["name"] == tags[0]), "{path}");
        assert!(!operation["description"].as_str().unwrap_or_default().is_empty(), "{path}");
        let takes_body = method == "put" || (method, path) == ("post", "/api/v1/overrides");
        assert_eq!(operation["requestBody"]["content"]["application/json"].is_object(), takes_body, "{path}");
        let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
        let in_path: Vec<_> = parameters.iter().filter(|parameter| parameter["in"] == "path").collect();
        assert_eq!(in_path.len(), path.matches('{').count(), "{path}");
        for parameter in &parameters {
            let (name, schema) = (&parameter["name"], &parameter["schema"]);
            assert!(parameter["description"].is_string() && schema.is_object(), "{path} {name}");
            assert_eq!(parameter["required"] == true, parameter["in"] == "path", "{path} {name}");
        }
        for required in operation["security"].as_array().into_iter().flatten() {
            for scheme in required.as_object().unwrap().keys() {
                assert_eq!(document["components"]["securitySchemes"][scheme]["scheme"], "bearer", "{path}");
            }
        }
    }
}

#[tokio::test]
async fn operations_that_require_permission_declare_it() {
    let document = document().await;
    for (method, path, operation) in operations(&document) {
        let security = operation["security"].as_array().cloned().unwrap_or_default();
        let needs_token = !security.is_empty() && !security.contains(&Value::Object(Map::new()));
        let is_closed = ["/ranges", "/sites", "/heatmap", "/ops", "/ops/trace"].iter().any(|end| path.ends_with(end));
        let is_closed = is_closed || method != "get";
        assert_eq!(needs_token, is_closed, "{method} {path}");
    }
}

/// Collects the properties of an object, with those of its parts, and the required ones.
fn fields<'a>(document: &'a Value, schema: &'a Value, may: &mut Map<String, Value>, must: &mut BTreeSet<&'a str>) {
    let schema = resolve(document, schema);
    for part in schema["allOf"].as_array().into_iter().flatten() {
        fields(document, part, may, must);
    }
    may.extend(schema["properties"].as_object().cloned().unwrap_or_default());
    must.extend(schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str));
}

/// Fields that parsers accept the absence of are required as well.
#[tokio::test]
async fn every_field_of_a_response_is_required() {
    let document = document().await;
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        // Requests may omit fields.
        if ["Override", "Selector", "Budget"].contains(&name.as_str()) {
            continue;
        }
        let (mut may, mut must) = (Map::new(), BTreeSet::new());
        fields(&document, schema, &mut may, &mut must);
        assert_eq!(may.keys().map(String::as_str).collect::<BTreeSet<_>>(), must, "{name}");
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Whether a value is meant to be this one of several choices: by its type, its fields, and the tag
/// among them.
fn is_meant(document: &Value, choice: &Value, value: &Value) -> bool {
    let choice = resolve(document, choice);
    if choice["type"] == "null" || value.is_null() {
        return choice["type"] == "null" && value.is_null();
    }
    let Value::Object(values) = value else { return true };
    let (mut may, mut must) = (Map::new(), BTreeSet::new());
    fields(document, choice, &mut may, &mut must);
    let has_tag = |(name, schema): (&String, &Value)| {
        schema["enum"].as_array().is_none_or(|tags| values.get(name).is_some_and(|value| tags.contains(value)))
    };
    must.iter().all(|name| values.contains_key(*name)) && may.iter().all(has_tag)
}

/// Panics unless a value matches its schema: its type, its required fields, and no others than
/// defined.
fn assert_valid(document: &Value, schema: &Value, value: &Value, at: &str) {
    let schema = resolve(document, schema);
    if let Some(choices) = schema["oneOf"].as_array() {
        let chosen = choices.iter().find(|choice| is_meant(document, choice, value));
        return assert_valid(document, chosen.unwrap_or_else(|| panic!("{at}: {value}")), value, at);
    }
    let found = type_of(value);
    if schema["allOf"].is_null() {
        let types = schema["type"].as_array().cloned().unwrap_or_else(|| vec![schema["type"].clone()]);
        let is_allowed = types.iter().any(|allowed| allowed == found || (allowed == "number" && found == "integer"));
        assert!(is_allowed, "{at}: {value} is not of {types:?}");
    }
    match value {
        Value::Object(values) if schema["additionalProperties"].is_object() => {
            for (name, value) in values {
                assert_valid(document, &schema["additionalProperties"], value, &format!("{at}/{name}"));
            }
        }
        // Of a format that is described elsewhere.
        Value::Object(_) if schema["properties"].is_null() && schema["allOf"].is_null() => {}
        Value::Object(values) => {
            let (mut may, mut must) = (Map::new(), BTreeSet::new());
            fields(document, schema, &mut may, &mut must);
            for (name, value) in values {
                let schema = may.get(name).unwrap_or_else(|| panic!("{at}/{name} is not in the document"));
                assert_valid(document, schema, value, &format!("{at}/{name}"));
            }
            for name in must {
                assert!(values.contains_key(name), "{at} has no {name}");
            }
        }
        Value::Array(values) => {
            for (index, value) in values.iter().enumerate() {
                assert_valid(document, &schema["items"], value, &format!("{at}/{index}"));
            }
        }
        _ => {}
    }
}

#[tokio::test]
async fn responses_match_their_schemas() {
    let document = document().await;
    let router = populated::router();
    for (method, path, operation) in operations(&document) {
        if method != "get" {
            continue;
        }
        let content = operation["responses"]["200"]["content"].as_object().unwrap();
        let Some(json) = content.get("application/json") else {
            let is_text = |name: &String| name.starts_with("text/");
            assert!(content.keys().all(is_text), "{path}");
            continue;
        };
        let path_of_example = path.replace("{pid}", "20").replace("{uuid}", GPU).replace("{kind}/{id}", "pod/7c1f");
        let path_of_example = path_of_example
            .replace("{slug}", "not-found")
            .replace("overrides/{id}", "overrides/llm")
            .replace("decisions/{id}", "decisions/1");
        let response = get_as_reader(&router, &path_of_example).await;
        assert_eq!(response.status, StatusCode::OK, "{path_of_example}: {}", response.text);
        assert_valid(&document, &json["schema"], &response.json(), path);
    }
    let problem = get(&router, "/nowhere").await.json();
    assert_valid(&document, &document["components"]["schemas"]["Problem"], &problem, "a problem");
}

#[tokio::test]
async fn a_mismatch_with_the_schema_is_found() {
    let document = document().await;
    let schema = &document["components"]["schemas"]["Problem"];
    let valid = serde_json::json!({ "type": "/problems/not-found", "title": "Not found", "status": 404, "detail": "none", "errors": [] });
    assert_valid(&document, schema, &valid, "");
    for (field, value) in [("status", Some(Value::from("404"))), ("detail", None), ("more", Some(Value::Null))] {
        let mut invalid = valid.clone();
        match value {
            Some(value) => drop(invalid.as_object_mut().unwrap().insert(field.to_owned(), value)),
            None => drop(invalid.as_object_mut().unwrap().remove(field)),
        }
        let found = std::panic::catch_unwind(|| assert_valid(&document, schema, &invalid, ""));
        assert!(found.is_err(), "{invalid}");
    }
}

/// Override as a client adds it.
fn new_override(id: &str) -> Value {
    json!({
        "id": id, "match": { "uid": 1000 }, "mode": "shadow", "policy": "cycle",
        "budget": { "bytes_per_second": 4_294_967_296_u64 }, "expires_at": "2027-01-01T00:00:00Z",
    })
}

/// Examples of all operations with JSON, from a service with a value in every field.
async fn examples(document: &Value) -> Map<String, Value> {
    let router = populated::router();
    let mut examples = Map::new();
    for (method, path, operation) in operations(document) {
        let takes_body = operation["requestBody"].is_object();
        let has_json = ["200", "201"]
            .iter()
            .any(|status| operation["responses"][status]["content"]["application/json"].is_object());
        if !has_json {
            continue;
        }
        let path_of_example = path.replace("{pid}", "20").replace("{uuid}", GPU).replace("{kind}/{id}", "pod/7c1f");
        let path_of_example =
            path_of_example.replace("overrides/{id}", "overrides/llm").replace("decisions/{id}", "decisions/1");
        let body = takes_body.then(|| new_override(if method == "put" { "llm" } else { "new" }));
        let request =
            Request::builder().method(method.to_uppercase().as_str()).uri(&path_of_example).header("Host", LOOPBACK);
        let request = request.header("Content-Type", "application/json");
        let request = request.extension(Peer::Local { uid: 7, pid: None, grant: Some(Grant::Write) });
        let text = body.as_ref().map(Value::to_string).unwrap_or_default();
        let response = send(&router, request.body(Body::from(text)).unwrap()).await;
        assert!(response.status.is_success(), "{method} {path_of_example}: {}", response.text);
        let mut example = Map::from_iter([("response".to_owned(), response.json())]);
        example.extend(body.map(|body| ("request".to_owned(), body)));
        examples.insert(format!("{} {path}", method.to_uppercase()), example.into());
    }
    examples
}

/// Examples match the schemas of their operations; `UPDATE_DOCS=1` writes them.
#[tokio::test]
async fn every_body_has_an_example_that_matches_its_schema() {
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let examples = serde_json::to_string(&examples(&document().await).await).unwrap();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/openapi/examples.json");
        std::fs::write(path, format!("{}\n", examples.replace("\"GET /", "\n\"GET /"))).unwrap();
    }
    let document = document().await;
    for (method, path, operation) in operations(&document) {
        let bodies = operation["responses"].as_object().unwrap().values().chain([&operation["requestBody"]]);
        for body in bodies.filter_map(|body| body["content"].as_object()).flat_map(|content| content.iter()) {
            let (kind, content) = body;
            if kind.ends_with("json") {
                assert!(!content["example"].is_null(), "{method} {path}: run UPDATE_DOCS=1 cargo test openapi, twice");
                assert_valid(&document, &content["schema"], &content["example"], &format!("{method} {path}"));
            }
        }
    }
}
