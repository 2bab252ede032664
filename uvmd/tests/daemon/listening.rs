//! Listeners, and unavailable addresses, sockets and folders.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::{TcpListener, TcpStream},
    os::unix::net::UnixDatagram,
    process::{Command, Stdio},
    time::Duration,
};

use crate::support::{Daemon, Node, TIMEOUT, advice_line, eventually, privileged, run};

fn warnings(node: &Node) -> Vec<(String, String)> {
    let status = node.get("/api/v1/status");
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    status["warnings"].as_array().unwrap().iter().map(|each| (text(&each["name"]), text(&each["message"]))).collect()
}

#[test]
fn without_tcp_the_socket_is_served_and_no_port_is_taken() {
    if !privileged() {
        return;
    }
    let node = Node::new();
    let daemon = Daemon::spawn_on_socket(node.with_socket("none"), &node.socket());
    assert_eq!(node.ask("GET", "/livez", "").0, 200);
    assert!(warnings(&node).is_empty());
    let sockets = fs::read_to_string(format!("/proc/{}/net/tcp", daemon.pid())).unwrap();
    let inodes: Vec<&str> = sockets.lines().skip(1).filter_map(|line| line.split_whitespace().nth(9)).collect();
    let own = fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap();
    let own: Vec<String> =
        own.filter_map(|entry| Some(fs::read_link(entry.ok()?.path()).ok()?.to_string_lossy().into_owned())).collect();
    assert!(!inodes.iter().any(|inode| own.contains(&format!("socket:[{inode}]"))), "{own:?}");
    daemon.signal("TERM");
    let (status, log) = daemon.wait();
    assert!(status.success() && !log.contains("http://"), "{log}");
}

#[test]
fn without_tcp_and_socket_it_watches_and_acts_until_it_is_stopped() {
    if !privileged() {
        return;
    }
    let node = Node::new();
    let notify = node.path("notify");
    let notifications = UnixDatagram::bind(&notify).unwrap();
    notifications.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut command = node.with_socket("none");
    command.args(["--set", "socket.enabled=false"]).env("NOTIFY_SOCKET", &notify).stderr(Stdio::piped());
    let mut uvmd = command.spawn().unwrap();
    let mut buffer = [0; 1024];
    let length = notifications.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"READY=1\n");
    // An unexpected stop would be notified within this time.
    notifications.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    while let Ok(length) = notifications.recv(&mut buffer) {
        assert!(buffer[..length].starts_with(b"STATUS="), "it does not stop");
    }
    assert!(uvmd.try_wait().unwrap().is_none(), "it works");
    assert!(Command::new("kill").arg(uvmd.id().to_string()).status().unwrap().success());
    let output = uvmd.wait_with_output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && log.contains("stopped") && !log.contains("ended by itself"), "{log}");
}

#[test]
fn occupied_port_is_served_once_it_is_free_and_the_socket_at_once() {
    if !privileged() {
        return;
    }
    let node = Node::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let mut daemon = Daemon::spawn_on_socket(node.with_socket(&address.to_string()), &node.socket());
    eventually("it is warned of", || !warnings(&node).is_empty());
    let (name, message) = warnings(&node).remove(0);
    assert_eq!(name, "tcp_unavailable");
    assert!(message.contains(&format!("cannot listen on {address}: address already in use")), "{message}");
    daemon.read_until("cannot listen on");
    drop(taken);
    daemon.read_until(&format!("serves on http://{address}"));
    assert!(TcpStream::connect(address).is_ok() && warnings(&node).is_empty());
    daemon.signal("TERM");
    assert!(daemon.wait().0.success());
}

#[test]
fn stop_does_not_wait_for_an_unavailable_address() {
    if !privileged() {
        return;
    }
    let node = Node::new();
    // TEST-NET-1 of RFC 5737 belongs to nobody.
    let daemon = Daemon::spawn_on_socket(node.with_socket("192.0.2.1:9477"), &node.socket());
    daemon.signal("TERM");
    let (status, log) = daemon.wait();
    assert!(status.success() && log.contains("no such address"), "{log}");
}

#[test]
fn second_uvmd_is_rejected_by_the_state_folder() {
    if !privileged() {
        return;
    }
    let node = Node::new();
    let _daemon = Daemon::spawn_on_socket(node.with_socket("none"), &node.socket());
    let mut second = node.with_socket("127.0.0.1:0");
    second.args(["--set", &format!("socket.path={}", node.path("other/uvmd.sock").display())]);
    let output = run(second);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    let expected = format!("uvmd: another uvmd keeps its state in {}", node.path("state").display());
    assert!(said.starts_with(&expected) && said.contains("policy.state_dir"), "{said}");
    assert!(!node.path("other").exists());
}

#[test]
fn unusable_state_folder_is_a_warning_or_an_error_if_acting() {
    if !privileged() {
        return;
    }
    let node = Node::new();
    fs::write(node.path("state"), "no folder").unwrap();
    let _daemon = Daemon::spawn_on_socket(node.with_socket("none"), &node.socket());
    let (name, message) = warnings(&node).remove(0);
    assert_eq!(name, "state_unavailable");
    assert!(message.contains(&node.path("state").display().to_string()), "{message}");
    let mut acting = node.with_socket("none");
    let other = node.path("other.sock");
    acting.args(["--set", "policy.enabled=true", "--set", &format!("socket.path={}", other.display())]);
    let output = run(acting);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("policy.state_dir"), "{said}");
}

#[test]
fn advice_of_a_former_run_is_withdrawn_before_the_listeners_are_bound() {
    if !privileged() {
        return;
    }
    let node = Node::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    // A live process without memory of the driver: there is nothing left to withdraw, which the
    // actuator detects.
    let mut target = Command::new("sleep").arg("600").spawn().unwrap();
    fs::create_dir(node.path("state")).unwrap();
    fs::write(node.path("state/advice.journal"), advice_line(target.id())).unwrap();
    fs::set_permissions(node.path("state"), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();

    let address = taken.local_addr().unwrap().to_string();
    let mut command = node.with_socket(&address);
    command.args(["--set", "policy.enabled=true", "--set", "socket.enabled=false"]).stderr(Stdio::piped());
    let mut daemon = command.spawn().unwrap();
    let lines = BufReader::new(daemon.stderr.take().unwrap()).lines();
    let log: Vec<String> = lines.map(|line| line.unwrap()).collect();
    daemon.wait().unwrap();
    target.kill().unwrap();
    target.wait().unwrap();
    let at = |text: &str| log.iter().position(|line| line.contains(text)).unwrap_or_else(|| panic!("{text}: {log:?}"));
    // Without a socket there is no listener.
    assert!(at("withdrawing it") < at("advice of the former run is withdrawn"), "{log:?}");
    assert!(at("advice of the former run is withdrawn") < at("cannot listen on"), "{log:?}");
}
