//! Who changed what, and who was refused, as the audit log has it.

use std::{
    fs::{self, Permissions},
    io::Write,
    net::{SocketAddr, TcpStream},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{self, Command},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Daemon, ask, privileged, uvmd};

const TOKEN: &str = "0123456789abcdef";
const BODY: &str = r#"{"match":{"uid":64001},"mode":"shadow","policy":"cycle"}"#;

struct Node(TempDir);

impl Node {
    fn new() -> Self {
        let node = Self(TempDir::new().unwrap());
        fs::write(node.path("token"), TOKEN).unwrap();
        fs::set_permissions(node.path("token"), Permissions::from_mode(0o600)).unwrap();
        node
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self) -> Command {
        let mut command = uvmd();
        command.args(["--listen", "127.0.0.1:0", "--set", "socket.enabled=true"]);
        for (option, name) in [
            ("socket.path", "uvmd.sock"),
            ("auth.write_token_file", "token"),
            ("policy.overrides_file", "overrides.toml"),
            ("policy.state_dir", "state"),
        ] {
            command.args(["--set", &format!("{option}={}", self.path(name).display())]);
        }
        command
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> u16 {
        ask(&self.path("uvmd.sock"), method, path, body).0
    }

    /// The lines of this type, without their times.
    fn lines(&self, kind: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.path("state/audit.jsonl")).unwrap();
        let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        lines.retain(|line| line["type"] == kind);
        for line in &mut lines {
            assert!(line.as_object_mut().unwrap().remove("time").is_some());
        }
        lines
    }
}

/// The status of an answer over TCP, and the address that it was asked from.
fn over_tcp(daemon: &Daemon, head: &str, body: &str) -> (u16, SocketAddr) {
    let mut stream = TcpStream::connect(&daemon.address).unwrap();
    write!(stream, "{head}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let own = stream.local_addr().unwrap();
    let answer = std::io::read_to_string(stream).unwrap();
    (answer.split(' ').nth(1).unwrap().parse().unwrap(), own)
}

#[test]
fn a_change_is_there_before_it_is_answered_though_nothing_may_act_and_uvmd_is_killed() {
    if !privileged() {
        return;
    }
    let node = Node::new();
    let daemon = Daemon::spawn(node.command());
    assert_eq!(node.ask("PUT", "/api/v1/overrides/mine", BODY), 201);
    let put = node.lines("override_put").remove(0);
    let requester = json!({ "uid": 0, "pid": process::id(), "credential": "socket", "grant": "write" });
    assert_eq!((&put["id"], &put["requester"], &put["etag_before"]), (&json!("mine"), &requester, &Value::Null));
    let (status, _) = ask(&node.path("uvmd.sock"), "GET", "/api/v1/overrides/mine", "");
    assert_eq!(status, 200);

    let head = format!("DELETE /api/v1/overrides/mine HTTP/1.0\r\nAuthorization: Bearer {TOKEN}\r\n");
    let (status, from) = over_tcp(&daemon, &head, "");
    assert_eq!(status, 204);
    let delete = node.lines("override_delete").remove(0);
    assert_eq!(delete["requester"], json!({ "address": from.to_string(), "credential": "write_token" }));
    assert_eq!((&delete["etag_before"], &delete["etag_after"]), (&put["etag_after"], &Value::Null));

    assert_eq!(node.ask("POST", "/api/v1/policy/off", ""), 200);
    assert_eq!(node.lines("policy_off").len(), 1);
    assert_eq!(node.ask("POST", "/api/v1/policy/on", ""), 200);
    daemon.signal("KILL");
    daemon.wait();
    assert_eq!(
        node.lines("policy_on")[0],
        json!({ "type": "policy_on", "result": "accepted", "requester": requester })
    );
}

#[test]
fn who_is_refused_is_there_a_few_times_and_then_as_a_number() {
    if !privileged() {
        return;
    }
    let node = Node::new();
    let daemon = Daemon::spawn(node.command());
    for _ in 0..20 {
        let head = "GET /api/v1/status?x=1 HTTP/1.0\r\nAuthorization: Bearer fedcba9876543210\r\n";
        assert_eq!(over_tcp(&daemon, head, "").0, 401);
    }
    daemon.signal("TERM");
    let (status, log) = daemon.wait();
    assert!(status.success(), "{log}");
    let refused = node.lines("request_refused");
    assert_eq!(refused.len(), 5, "{refused:?}");
    let [first, ..] = refused.as_slice() else { panic!("{refused:?}") };
    assert_eq!(
        (&first["method"], &first["path"], &first["status"]),
        (&json!("GET"), &json!("/api/v1/status"), &json!(401))
    );
    assert_eq!(first["requester"]["credential"], "wrong_token");
    assert!(first["requester"]["address"].as_str().unwrap().starts_with("127.0.0.1:"), "{first}");
    let rest = node.lines("requests_refused");
    assert_eq!(
        (rest.len(), &rest[0]["suppressed"], &rest[0]["peers"], &rest[0]["suppressed_of_others"]),
        (1, &json!(15), &json!([{ "address": "127.0.0.1", "suppressed": 15 }]), &json!(0))
    );
    let text = fs::read_to_string(node.path("state/audit.jsonl")).unwrap();
    assert!(!text.contains("fedcba") && !text.contains(TOKEN), "{text}");
}

#[test]
fn where_nothing_can_be_written_down_only_what_reduces_what_uvmd_does_is_done() {
    if !privileged() {
        return;
    }
    let node = Node::new();
    let daemon = Daemon::spawn(node.command());
    assert_eq!(node.ask("PUT", "/api/v1/overrides/mine", BODY), 201);
    fs::remove_file(node.path("state/audit.jsonl")).unwrap();
    fs::create_dir(node.path("state/audit.jsonl")).unwrap();
    assert_eq!(node.ask("PUT", "/api/v1/overrides/other", BODY), 507);
    assert_eq!(node.ask("POST", "/api/v1/policy/off", ""), 200);
    assert_eq!(node.ask("POST", "/api/v1/policy/on", ""), 507);
    assert_eq!(node.ask("DELETE", "/api/v1/overrides/mine", ""), 204);
    let status = daemon.json("/api/v1/status");
    assert_eq!(status["warnings"][0]["name"], "audit_unavailable");
    assert!(status["audit_lines_dropped"].as_u64().unwrap() >= 2, "{status}");
    assert!(!daemon.get("/metrics").1.contains("\nuvmd_audit_lines_dropped_total 0\n"));
    fs::remove_dir(node.path("state/audit.jsonl")).unwrap();
    assert_eq!(node.ask("PUT", "/api/v1/overrides/other", BODY), 201);
    assert_eq!(daemon.json("/api/v1/status")["warnings"], json!([]));
}

#[test]
fn a_reload_is_there_with_what_it_changed() {
    if !privileged() {
        return;
    }
    let node = Node::new();
    let file = node.path("uvmd.toml");
    fs::write(&file, "").unwrap();
    let mut command = node.command();
    command.arg("--config").arg(&file);
    let arguments: Vec<_> = command.get_args().skip(2).map(ToOwned::to_owned).collect();
    // Its own file, and not none.
    let mut command = Command::new(command.get_program());
    let mut daemon = Daemon::spawn({
        command.args(arguments).env("NO_COLOR", "1");
        command
    });
    fs::write(&file, "hostname = \"other\"\nlog.filter = \"debug\"\n").unwrap();
    daemon.signal("HUP");
    daemon.read_until("reloaded ");
    let line = node.lines("configuration_reload").remove(0);
    assert_eq!((&line["result"], &line["changed"]), (&json!("accepted"), &json!(["log.filter"])));
    assert_eq!((&line["needs_restart"], &line["file"]), (&json!(["hostname"]), &json!(file.display().to_string())));
    assert_ne!(line["etag_before"], line["etag_after"]);
    fs::write(&file, "nonsense").unwrap();
    daemon.signal("HUP");
    daemon.read_until("not reloaded");
    daemon.signal("TERM");
    daemon.wait();
    let line = node.lines("configuration_reload").remove(1);
    assert_eq!((&line["result"], &line["etag_before"]), (&json!("failed"), &line["etag_after"]));
}
