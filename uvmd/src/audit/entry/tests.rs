//! Lines of the audit log about changes, compared with a golden file.

use std::fmt::Write;

use serde_json::Value;

use super::*;

/// One change of each type, with all of its fields.
fn every_change() -> Vec<Change> {
    let (id, etag) = (String::new, || Some(String::new()));
    let failed = || Outcome::Failed { reason: String::new() };
    let peer = DeniedPeer { uid: Some(0), address: Some(String::new()), suppressed: 0 };
    let every = vec![
        Change::OverridePut {
            id: id(),
            etag_before: etag(),
            etag_after: etag(),
            r#override: Box::default(),
            result: failed(),
        },
        Change::OverrideDelete { id: id(), etag_before: etag(), etag_after: etag(), result: failed() },
        Change::OverrideEnd { id: id(), etag_before: etag(), reason: "" },
        Change::PolicyOff { result: failed() },
        Change::PolicyOn { result: Outcome::Accepted },
        Change::OverridesFileLoad {
            file: id(),
            overrides: 0,
            etag_before: etag(),
            etag_after: etag(),
            result: failed(),
        },
        Change::ConfigurationReload {
            file: Some(id()),
            changed: Vec::new(),
            restart_required: Vec::new(),
            etag_before: id(),
            etag_after: id(),
            result: failed(),
        },
        Change::RequestDenied { method: id(), path: id(), status: 403 },
        Change::RequestsDenied { suppressed: 0, peers: vec![peer], suppressed_of_others: 0 },
    ];
    // Without a wildcard: a new type that is not listed above does not compile.
    for change in &every {
        match change {
            Change::OverridePut { .. }
            | Change::OverrideDelete { .. }
            | Change::OverrideEnd { .. }
            | Change::PolicyOff { .. }
            | Change::PolicyOn { .. }
            | Change::OverridesFileLoad { .. }
            | Change::ConfigurationReload { .. }
            | Change::RequestDenied { .. }
            | Change::RequestsDenied { .. } => {}
        }
    }
    every
}

/// Fields of an object, those of nested objects after a dot. An override is that of the API.
fn fields(prefix: &str, value: &Value, into: &mut Vec<String>) {
    for (name, value) in value.as_object().into_iter().flatten() {
        let name = format!("{prefix}{name}");
        match value {
            Value::Object(_) if name != "override" => fields(&format!("{name}."), value, into),
            Value::Array(values) if values.iter().any(Value::is_object) => {
                fields(&format!("{name}[]."), values.first().unwrap(), into);
            }
            _ => into.push(name),
        }
    }
}

#[test]
fn the_audit_log_is_that_of_the_golden_file() {
    let peer = Peer::Local { uid: 0, pid: Some(1), grant: Some(Grant::Write) };
    let requester = Requester { peer, credential: web::Credential::Socket };
    let mut text = String::new();
    for change in every_change() {
        let line = serde_json::to_value(Entry::new(&change, Some(&requester))).unwrap();
        let mut names = Vec::new();
        fields("", &line, &mut names);
        names.retain(|name| name != "type");
        writeln!(text, "{}: {}", line["type"].as_str().unwrap(), names.join(" ")).unwrap();
    }
    surface::hold("audit.txt", &text);
}
