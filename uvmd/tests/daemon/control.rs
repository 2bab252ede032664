//! Changes by operators: overrides in the file and over the API, and the kill switch.

use std::{
    fs,
    io::{Read, Write},
    os::unix::{fs::DirBuilderExt, net::UnixStream},
    process::{self, Command},
};

use serde_json::{Value, json};

use crate::support::{Daemon, Node, eventually, privileged, run};

/// Node that may act.
fn command(node: &Node) -> Command {
    let mut command = node.with_socket("127.0.0.1:0");
    command.args(["--set", "policy.enabled=true"]);
    command
}

fn start(node: &Node) -> Daemon {
    Daemon::spawn(command(node))
}

/// Waits until a response fulfils a condition.
fn becomes(node: &Node, path: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let mut answer = node.get(path);
    eventually(path, || {
        answer = node.get(path);
        is_so(&answer)
    });
    answer
}

/// Waits until the audit log has this text.
fn is_audited(node: &Node, text: &str) {
    eventually(text, || fs::read_to_string(node.path("state/audit.jsonl")).unwrap_or_default().contains(text));
}

#[test]
fn overrides_of_the_api_survive_a_restart_even_after_a_kill() {
    if !privileged() {
        return;
    }
    let node = Node::new();
    let daemon = start(&node);
    let body = json!({ "match": { "pid": process::id() }, "mode": "act", "policy": "cycle" }).to_string();
    assert_eq!(node.ask("PUT", "/api/v1/overrides/mine", &body).0, 201);
    let (status, answer) =
        node.ask("PUT", "/api/v1/overrides/nobodys", &body.replace(&process::id().to_string(), "4194305"));
    assert_eq!((status, &answer["detail"]), (422, &json!("match.pid: there is no process 4194305")));
    daemon.signal("KILL");
    daemon.wait();
    let _daemon = start(&node);
    let kept = node.get("/api/v1/overrides/mine");
    assert_eq!((&kept["override"]["policy"], &kept["source"]), (&json!("cycle"), &json!("api")));
    assert_eq!(node.ask("DELETE", "/api/v1/overrides/mine", "").0, 204);
    assert_eq!(node.get("/api/v1/overrides")["overrides"], json!([]));
}

#[test]
fn file_of_overrides_is_followed_and_an_invalid_one_reported() {
    if !privileged() {
        return;
    }
    let node = Node::new();
    let daemon = start(&node);
    fs::write(node.path("overrides.toml"), "[[override]]\nid = \"a\"\nmode = \"shadow\"\n").unwrap();
    let ids = |answer: &Value| answer["overrides"].as_array().unwrap().len();
    assert_eq!(becomes(&node, "/api/v1/overrides", |answer| ids(answer) == 1)["overrides"][0]["source"], "file");
    fs::write(node.path("overrides.toml"), "[[override]]\nid = \"a\"\nmode = \"on\"\n").unwrap();
    let answer = becomes(&node, "/api/v1/overrides", |answer| !answer["file_error"].is_null());
    assert_eq!(ids(&answer), 1);
    let status = node.get("/api/v1/status")["reasons"].to_string();
    assert!(status.contains("overrides.toml:3: override.mode: expected"), "{status}");
    assert!(daemon.metrics().contains("\nuvmd_overrides_last_reload_successful 0\n"));
    let checked = run({
        let mut command = command(&node);
        command.arg("--check-config");
        command
    });
    assert_ne!(checked.status.code(), Some(0));
    assert!(String::from_utf8(checked.stderr).unwrap().contains("override.mode: expected"));
}

#[test]
fn kill_switch_over_the_api_and_by_a_file_survives_restarts() {
    if !privileged() {
        return;
    }
    let node = Node::new();
    let daemon = start(&node);
    assert_eq!(node.get("/api/v1/policy")["active"], true);
    let (status, answer) = node.ask("POST", "/api/v1/policy/off", "");
    assert_eq!((status, &answer["disabled_by"][0]["actor"]), (200, &json!("uid 0 on the socket")));
    daemon.signal("KILL");
    daemon.wait();
    let daemon = start(&node);
    assert_eq!(node.get("/api/v1/policy")["active"], false);
    fs::write(node.path("policy.off"), "").unwrap();
    // The file still stops it.
    assert_eq!(node.ask("POST", "/api/v1/policy/on", "").1["active"], false);
    fs::remove_file(node.path("policy.off")).unwrap();
    assert_eq!(node.get("/api/v1/policy")["active"], true);
    // Clients over TCP may not change it without a token.
    let (_, rest) = daemon.get("/api/v1/policy");
    assert!(rest.contains("\"active\":true"), "{rest}");
    // Every process is in observe mode, and it is audited all the same.
    is_audited(&node, "\"active\":true");
    fs::write(node.path("policy.off"), "").unwrap();
    is_audited(&node, "by the file");
}

#[test]
fn unrecognised_journal_lines_are_reported_and_stay() {
    if !privileged() {
        return;
    }
    let node = Node::new();
    let journal = node.path("state/advice.journal");
    fs::DirBuilder::new().mode(0o700).create(node.path("state")).unwrap();
    fs::write(&journal, "half a line {\n").unwrap();
    let daemon = start(&node);
    let reasons = node.get("/api/v1/status")["reasons"].to_string();
    assert!(reasons.contains("advice.journal: it is damaged in 1 places"), "{reasons}");
    let metrics = daemon.metrics();
    assert!(metrics.contains("\nuvmd_advice_journal_unrecognised_bytes 14\n"));
    assert!(metrics.contains("\nuvmd_advice_journal_writable 1\n"));
    daemon.signal("TERM");
    let (status, log) = daemon.wait();
    assert!(status.success(), "{log}");
    assert!(fs::read_to_string(&journal).unwrap().contains("\nhalf a line {\n"));
}

#[test]
fn a_stop_waits_for_no_reader_of_the_stream() {
    if !privileged() {
        return;
    }
    let node = Node::new();
    let daemon = start(&node);
    let mut stream = UnixStream::connect(node.socket()).unwrap();
    stream.write_all(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut head = [0; 64];
    stream.read_exact(&mut head).unwrap();
    assert!(head.starts_with(b"HTTP/1.1 200 OK"));
    daemon.signal("TERM");
    let (status, log) = daemon.wait();
    assert!(status.success(), "{log}");
    // Ended in the regular way of a chunked body, and not cut off at the time limit.
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert!(rest.ends_with(b"\r\n0\r\n\r\n"), "{}", String::from_utf8_lossy(&rest));
}
