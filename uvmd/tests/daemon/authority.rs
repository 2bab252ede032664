//! Who may read everything: those on the socket whom the kernel vouches for, and whoever knows the token.

use std::{
    fs::{self, Permissions},
    io::{Read, Write},
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::Path,
    process::Command,
};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Daemon, eventually, privileged, run, uvmd};

const TOKEN: &str = "0123456789abcdef";
const OTHER_TOKEN: &str = "fedcba9876543210";

fn on_socket(path: &Path) -> Command {
    let mut command = uvmd();
    command.args(["--listen", "127.0.0.1:0", "--set", "socket.enabled=true"]);
    command.args(["--set", &format!("socket.path={}", path.display())]);
    command
}

fn read_authority(mut stream: impl Read + Write, header: &str) -> Option<bool> {
    write!(stream, "GET /api/v1/status HTTP/1.0\r\n{header}\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str::<Value>(body).unwrap()["read_authority"].as_bool()
}

fn over_tcp(daemon: &Daemon, token: &str) -> Option<bool> {
    let stream = std::net::TcpStream::connect(&daemon.address).unwrap();
    read_authority(stream, &format!("Authorization: Bearer {token}\r\n"))
}

#[test]
fn who_asks_on_the_socket_is_known_and_the_socket_is_gone_when_uvmd_is() {
    if !privileged() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("run/uvmd.sock");
    let daemon = Daemon::spawn(on_socket(&path));
    assert_eq!(read_authority(UnixStream::connect(&path).unwrap(), ""), Some(true));
    assert_eq!(daemon.json("/api/v1/status")["read_authority"], false);
    daemon.signal("TERM");
    let (status, log) = daemon.wait();
    assert!(status.success(), "{log}");
    assert!(!path.exists());
}

#[test]
fn a_socket_has_one_daemon_and_another_after_that_was_killed() {
    if !privileged() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("uvmd.sock");
    let daemon = Daemon::spawn(on_socket(&path));
    let output = run(on_socket(&path));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("another uvmd serves on") && said.contains("socket.enabled=false"), "{said}");
    daemon.signal("KILL");
    daemon.wait();
    assert!(path.exists());
    let _next = Daemon::spawn(on_socket(&path));
    assert_eq!(read_authority(UnixStream::connect(&path).unwrap(), ""), Some(true));
}

#[test]
fn a_group_that_the_node_does_not_have_is_a_mistake() {
    if !privileged() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let mut command = on_socket(&folder.path().join("uvmd.sock"));
    command.args(["--set", "socket.group=no-such-group"]);
    let output = run(command);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("socket.group: this node has no group no-such-group"), "{said}");
}

fn with_token(path: &Path) -> Command {
    let mut command = uvmd();
    command.args(["--listen", "127.0.0.1:0", "--set", &format!("auth.token_file={}", path.display())]);
    command
}

#[test]
fn a_token_is_in_force_for_as_long_as_its_file_says_it() {
    if !privileged() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("token");
    let write = |token: &str| {
        fs::write(&path, format!("{token}\n")).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    };
    write(TOKEN);
    let daemon = Daemon::spawn(with_token(&path));
    let becomes = |token: &str, expected: Option<bool>| {
        eventually(&format!("{token} is {expected:?}"), || over_tcp(&daemon, token) == expected);
    };
    assert_eq!(over_tcp(&daemon, TOKEN), Some(true));
    assert_eq!(over_tcp(&daemon, OTHER_TOKEN), None);
    write(OTHER_TOKEN);
    becomes(OTHER_TOKEN, Some(true));
    assert_eq!(over_tcp(&daemon, TOKEN), None);
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    becomes(OTHER_TOKEN, None);
    daemon.signal("TERM");
    let (_, log) = daemon.wait();
    assert!(log.contains("is another from now on") && log.contains("has mode 644"), "{log}");
    assert!(!log.contains(TOKEN) && !log.contains(OTHER_TOKEN), "{log}");
}

#[test]
fn a_token_that_others_can_read_is_a_mistake() {
    if !privileged() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("token");
    fs::write(&path, TOKEN).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    let output = run(with_token(&path));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("auth.token_file: ") && said.contains("mode 644") && !said.contains(TOKEN), "{said}");
}
