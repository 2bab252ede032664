//! Read permission: peers on the socket that the kernel identifies, and clients with the token.

use std::{
    fs::{self, Permissions},
    io::{Read, Write},
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::Path,
    process::Command,
};

use serde_json::Value;

use crate::support::{Answer, Daemon, Node, eventually, http, privileged, run};

const TOKEN: &str = "0123456789abcdef";
const OTHER_TOKEN: &str = "fedcba9876543210";

fn can_read(stream: impl Read + Write, header: &str) -> Option<bool> {
    let Answer { body, .. } = http(stream, "GET", "/api/v1/status", header, "");
    serde_json::from_str::<Value>(&body).unwrap()["can_read"].as_bool()
}

fn on_socket(node: &Node) -> Option<bool> {
    can_read(UnixStream::connect(node.socket()).unwrap(), "")
}

fn over_tcp(daemon: &Daemon, token: &str) -> Option<bool> {
    can_read(daemon.connect(), &format!("Authorization: Bearer {token}\r\n"))
}

#[test]
fn socket_peer_is_known_and_the_socket_removed_at_exit() {
    if !privileged() {
        return;
    }
    let node = Node::new();
    let daemon = Daemon::spawn(node.with_socket("127.0.0.1:0"));
    assert_eq!(on_socket(&node), Some(true));
    assert_eq!(daemon.json("/api/v1/status")["can_read"], false);
    daemon.signal("TERM");
    let (status, log) = daemon.wait();
    assert!(status.success(), "{log}");
    assert!(!node.socket().exists());
}

#[test]
fn a_socket_has_one_daemon_and_another_after_that_was_killed() {
    if !privileged() {
        return;
    }
    let node = Node::new();
    let daemon = Daemon::spawn(node.with_socket("127.0.0.1:0"));
    // With a separate state folder.
    let mut second = node.with_socket("127.0.0.1:0");
    second.args(["--set", &format!("policy.state_dir={}", node.path("second").display())]);
    let output = run(second);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("another uvmd serves on") && said.contains("socket.enabled=false"), "{said}");
    daemon.signal("KILL");
    daemon.wait();
    assert!(node.socket().exists());
    let _next = Daemon::spawn(node.with_socket("127.0.0.1:0"));
    assert_eq!(on_socket(&node), Some(true));
}

#[test]
fn a_group_that_the_node_does_not_have_is_a_mistake() {
    if !privileged() {
        return;
    }
    let node = Node::new();
    let mut command = node.with_socket("127.0.0.1:0");
    command.args(["--set", "socket.group=no-such-group"]);
    let output = run(command);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("socket.group: this node has no group no-such-group"), "{said}");
}

fn with_token(node: &Node, path: &Path) -> Command {
    let mut command = node.listening_on("127.0.0.1:0");
    command.args(["--set", &format!("auth.token_file={}", path.display())]);
    command
}

#[test]
fn token_is_valid_as_long_as_its_file_has_it() {
    if !privileged() {
        return;
    }
    let node = Node::new();
    let path = node.write_token("token", TOKEN);
    let daemon = Daemon::spawn(with_token(&node, &path));
    let becomes = |token: &str, expected: Option<bool>| {
        eventually(&format!("{token} is {expected:?}"), || over_tcp(&daemon, token) == expected);
    };
    assert_eq!(over_tcp(&daemon, TOKEN), Some(true));
    assert_eq!(over_tcp(&daemon, OTHER_TOKEN), None);
    node.write_token("token", OTHER_TOKEN);
    becomes(OTHER_TOKEN, Some(true));
    assert_eq!(over_tcp(&daemon, TOKEN), None);
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    becomes(OTHER_TOKEN, None);
    daemon.signal("TERM");
    let (_, log) = daemon.wait();
    assert!(log.contains("has changed") && log.contains("has mode 644"), "{log}");
    assert!(!log.contains(TOKEN) && !log.contains(OTHER_TOKEN), "{log}");
}

#[test]
fn a_token_that_others_can_read_is_a_mistake() {
    if !privileged() {
        return;
    }
    let node = Node::new();
    let path = node.write_token("token", TOKEN);
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    let output = run(with_token(&node, &path));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("auth.token_file: ") && said.contains("mode 644") && !said.contains(TOKEN), "{said}");
}
