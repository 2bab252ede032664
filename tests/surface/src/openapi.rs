//! An OpenAPI document as text: each operation with its parameters and responses, each schema with its fields and types.

use std::fmt::Write;

use serde_json::Value;

/// The surface of an OpenAPI document, one line for each parameter, response and field.
#[must_use]
pub fn openapi(document: &Value) -> String {
    let mut text = String::new();
    for (path, item) in entries(&document["paths"]) {
        for (method, operation) in entries(item) {
            add_operation(&mut text, &format!("{} {path}", method.to_uppercase()), operation);
        }
    }
    for (name, schema) in entries(document.pointer("/components/schemas").unwrap_or(&Value::Null)) {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name}{}", values(schema));
        add_fields(&mut text, schema, "  ");
    }
    text
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn add_operation(text: &mut String, name: &str, operation: &Value) {
    let _ = writeln!(text, "{name}");
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let (place, name) = (string(&parameter["in"]), string(&parameter["name"]));
        let required = if parameter["required"] == true { " required" } else { "" };
        let _ = writeln!(text, "  {place} {name}: {}{required}", kind(&parameter["schema"]));
    }
    for (media, content) in entries(operation.pointer("/requestBody/content").unwrap_or(&Value::Null)) {
        let _ = writeln!(text, "  body {media}: {}", kind(&content["schema"]));
    }
    for (status, response) in entries(&operation["responses"]) {
        let contents =
            entries(&response["content"]).map(|(media, each)| format!(" {media}: {}", kind(&each["schema"])));
        let _ = writeln!(text, "  {status}{}", contents.collect::<String>());
    }
}

/// The fields of a schema, and those of schemas within it.
fn add_fields(text: &mut String, schema: &Value, indent: &str) {
    for (name, field) in entries(&schema["properties"]) {
        let _ = writeln!(text, "{indent}{name}: {}", kind(field));
        add_fields(text, field, &format!("{indent}  "));
        add_fields(text, &field["items"], &format!("{indent}  "));
    }
    for part in ["allOf", "oneOf", "anyOf"] {
        for each in schema[part].as_array().into_iter().flatten() {
            let name = string(&each["$ref"]).rsplit('/').next().unwrap_or_default().to_owned();
            if !name.is_empty() {
                let _ = writeln!(text, "{indent}{part} {name}");
            } else if each["type"] != "null" {
                let _ = writeln!(text, "{indent}{part}{}", values(each));
                add_fields(text, each, &format!("{indent}  "));
            }
        }
    }
}

/// The type of a schema in a word: `integer`, `Process`, `[Verdict]`, `string|null`.
fn kind(schema: &Value) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        return reference.rsplit('/').next().unwrap_or_default().to_owned();
    }
    if let Some(either) = schema["oneOf"].as_array().or(schema["anyOf"].as_array()) {
        return either.iter().map(kind).collect::<Vec<_>>().join("|");
    }
    if schema.get("const").is_some() {
        return schema["const"].to_string();
    }
    let name = match &schema["type"] {
        Value::Array(types) => types.iter().map(string).collect::<Vec<_>>().join("|"),
        other => string(other).to_owned(),
    };
    let name = match (schema["items"].is_object(), schema["additionalProperties"].is_object()) {
        (true, _) => name.replace("array", &format!("[{}]", kind(&schema["items"]))),
        (_, true) => name.replace("object", &format!("{{{}}}", kind(&schema["additionalProperties"]))),
        _ => name,
    };
    format!("{}{}", if name.is_empty() { "any" } else { &name }, values(schema))
}

/// The values of an enumeration.
fn values(schema: &Value) -> String {
    let list = schema["enum"].as_array().into_iter().flatten().map(|value| string(value).to_owned());
    let list: Vec<_> = list.collect();
    if list.is_empty() { String::new() } else { format!(" of {}", list.join("|")) }
}

fn string(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
