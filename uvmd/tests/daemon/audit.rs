//! Audit log of changes and denied requests.

use std::{
    fs,
    process::{self, Command},
};

use serde_json::{Value, json};

use crate::support::{Daemon, Node, http, privileged};

const TOKEN: &str = "0123456789abcdef";
const BODY: &str = r#"{"match":{"uid":64001},"mode":"shadow","policy":"cycle"}"#;

/// Node that accepts changes over TCP with the token.
fn command(node: &Node) -> Command {
    let token = node.write_token("token", TOKEN);
    let mut command = node.with_socket("127.0.0.1:0");
    command.args(["--set", &format!("auth.write_token_file={}", token.display())]);
    command
}

/// Lines of the audit log of this type, without their times.
fn lines(node: &Node, kind: &str) -> Vec<Value> {
    let text = fs::read_to_string(node.path("state/audit.jsonl")).unwrap();
    let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    lines.retain(|line| line["type"] == kind);
    for line in &mut lines {
        assert!(line.as_object_mut().unwrap().remove("time").is_some());
    }
    lines
}

#[test]
fn change_is_audited_before_its_response_even_without_acting_and_after_a_kill() {
    if !privileged() {
        return;
    }
    let node = Node::new();
    let daemon = Daemon::spawn(command(&node));
    assert_eq!(node.ask("PUT", "/api/v1/overrides/mine", BODY).0, 201);
    let put = lines(&node, "override_put").remove(0);
    let requester = json!({ "uid": 0, "pid": process::id(), "credential": "socket", "grant": "write" });
    assert_eq!((&put["id"], &put["requester"], &put["etag_before"]), (&json!("mine"), &requester, &Value::Null));
    assert_eq!(node.ask("GET", "/api/v1/overrides/mine", "").0, 200);

    let stream = daemon.connect();
    let from = stream.local_addr().unwrap();
    let header = format!("Authorization: Bearer {TOKEN}\r\n");
    assert_eq!(http(stream, "DELETE", "/api/v1/overrides/mine", &header, "").status, 204);
    let delete = lines(&node, "override_delete").remove(0);
    assert_eq!(delete["requester"], json!({ "address": from.to_string(), "credential": "write_token" }));
    assert_eq!((&delete["etag_before"], &delete["etag_after"]), (&put["etag_after"], &Value::Null));

    assert_eq!(node.ask("POST", "/api/v1/policy/off", "").0, 200);
    // Switching off does not wait for the disk: its line is on the disk with that of the next
    // change that waits.
    assert_eq!(node.ask("POST", "/api/v1/policy/on", "").0, 200);
    assert_eq!(lines(&node, "policy_off").len(), 1);
    daemon.signal("KILL");
    daemon.wait();
    assert_eq!(
        lines(&node, "policy_on")[0],
        json!({ "type": "policy_on", "result": "accepted", "requester": requester })
    );
}

#[test]
fn repeated_denials_are_audited_a_few_times_and_then_summarized() {
    if !privileged() {
        return;
    }
    let node = Node::new();
    let daemon = Daemon::spawn(command(&node));
    for _ in 0..20 {
        let header = "Authorization: Bearer fedcba9876543210\r\n";
        assert_eq!(http(daemon.connect(), "GET", "/api/v1/status?x=1", header, "").status, 401);
    }
    daemon.signal("TERM");
    let (status, log) = daemon.wait();
    assert!(status.success(), "{log}");
    let refused = lines(&node, "request_denied");
    assert_eq!(refused.len(), 5, "{refused:?}");
    let [first, ..] = refused.as_slice() else { panic!("{refused:?}") };
    assert_eq!(
        (&first["method"], &first["path"], &first["status"]),
        (&json!("GET"), &json!("/api/v1/status"), &json!(401))
    );
    assert_eq!(first["requester"]["credential"], "wrong_token");
    assert!(first["requester"]["address"].as_str().unwrap().starts_with("127.0.0.1:"), "{first}");
    let rest = lines(&node, "requests_denied");
    assert_eq!(
        (rest.len(), &rest[0]["suppressed"], &rest[0]["peers"], &rest[0]["suppressed_of_others"]),
        (1, &json!(15), &json!([{ "address": "127.0.0.1", "suppressed": 15 }]), &json!(0))
    );
    let text = fs::read_to_string(node.path("state/audit.jsonl")).unwrap();
    assert!(!text.contains("fedcba") && !text.contains(TOKEN), "{text}");
}

#[test]
fn unwritable_audit_log_permits_only_changes_that_reduce_acting() {
    if !privileged() {
        return;
    }
    let node = Node::new();
    let daemon = Daemon::spawn(command(&node));
    assert_eq!(node.ask("PUT", "/api/v1/overrides/mine", BODY).0, 201);
    fs::remove_file(node.path("state/audit.jsonl")).unwrap();
    fs::create_dir(node.path("state/audit.jsonl")).unwrap();
    assert_eq!(node.ask("PUT", "/api/v1/overrides/other", BODY).0, 507);
    assert_eq!(node.ask("POST", "/api/v1/policy/off", "").0, 200);
    assert_eq!(node.ask("POST", "/api/v1/policy/on", "").0, 507);
    assert_eq!(node.ask("DELETE", "/api/v1/overrides/mine", "").0, 204);
    let status = daemon.json("/api/v1/status");
    assert_eq!(status["warnings"][0]["name"], "audit_unavailable");
    assert!(status["audit_lines_dropped"].as_u64().unwrap() >= 2, "{status}");
    assert!(!daemon.metrics().contains("\nuvmd_audit_lines_dropped_total 0\n"));
    fs::remove_dir(node.path("state/audit.jsonl")).unwrap();
    assert_eq!(node.ask("PUT", "/api/v1/overrides/other", BODY).0, 201);
    assert_eq!(daemon.json("/api/v1/status")["warnings"], json!([]));
}

#[test]
fn reload_is_audited_with_the_changed_options() {
    if !privileged() {
        return;
    }
    let node = Node::new();
    let file = node.path("uvmd.toml");
    fs::write(&file, "").unwrap();
    let mut command = node.configured(&file);
    command.args(["--listen", "127.0.0.1:0"]);
    let mut daemon = Daemon::spawn(command);
    fs::write(&file, "hostname = \"other\"\nlog.filter = \"debug\"\n").unwrap();
    daemon.signal("HUP");
    daemon.read_until("reloaded ");
    let line = lines(&node, "configuration_reload").remove(0);
    assert_eq!((&line["result"], &line["changed"]), (&json!("accepted"), &json!(["log.filter"])));
    assert_eq!((&line["restart_required"], &line["file"]), (&json!(["hostname"]), &json!(file.display().to_string())));
    assert_ne!(line["etag_before"], line["etag_after"]);
    fs::write(&file, "nonsense").unwrap();
    daemon.signal("HUP");
    daemon.read_until("not reloaded");
    daemon.signal("TERM");
    daemon.wait();
    let line = lines(&node, "configuration_reload").remove(1);
    assert_eq!((&line["result"], &line["etag_before"]), (&json!("failed"), &line["etag_after"]));
}
