//! Running daemon, and its end.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::{net::UnixDatagram, process::ExitStatusExt},
    path::Path,
    process::Command,
};

use serde_json::Value;

use crate::support::{Daemon, Node, PublicCopy, TIMEOUT, UVMD, has_driver, has_kprobes, privileged};

#[test]
fn missing_driver_or_kprobes_are_reported_and_uvmd_serves() {
    if !privileged() {
        return;
    }
    if has_driver() && has_kprobes() {
        println!("skipped: this machine has both");
        return;
    }
    let node = Node::new();
    let mut command = node.listening_on("127.0.0.1:0");
    command.args(["--set", "collector.source=probes"]);
    let daemon = Daemon::spawn(command);
    assert_eq!(daemon.get("/livez"), (200, "ok\n".to_owned()));
    let (status, reasons) = daemon.get("/readyz");
    assert_eq!(status, 503);
    assert_eq!(reasons.contains("nvidia-uvm is not loaded"), !has_driver(), "{reasons}");
    assert_eq!(reasons.contains("kprobes"), !has_kprobes(), "{reasons}");

    let status = daemon.json("/api/v1/status");
    assert_eq!(status["state"], "waiting");
    assert_eq!(status["reasons"].as_array().unwrap().len(), reasons.lines().count());
    assert_eq!(daemon.json("/api/v1/processes")["processes"], serde_json::json!([]));
    let metrics = daemon.metrics();
    assert!(metrics.contains("\nuvmd_state{state=\"waiting\"} 1\n"), "{metrics}");
    assert_eq!(daemon.get("/").0, 200);
}

#[test]
fn status_without_a_driver_equals_the_api_document() {
    if !privileged() {
        return;
    }
    if has_driver() {
        println!("skipped: this machine has a driver");
        return;
    }
    let document = include_str!("../../../docs/api.md");
    let (_, example) = document.split_once("This is what a node without a driver says:\n\n```json\n").unwrap();
    let mut example: Value = serde_json::from_str(example.split("\n```").next().unwrap()).unwrap();
    let mut said = Daemon::start().json("/api/v1/status");
    // This machine may lack more, and has another name and time.
    assert!(said["reasons"].as_array().unwrap().contains(&example["reasons"][0]), "{}", said["reasons"]);
    for status in [&mut example, &mut said] {
        for field in ["version", "hostname", "time", "reasons"] {
            assert!(status.as_object_mut().unwrap().remove(field).is_some(), "{field}");
        }
        // Its paths and its time are those of this run.
        for field in ["etag", "last_reload_success_at"] {
            assert!(status["configuration"].as_object_mut().unwrap().remove(field).is_some(), "{field}");
        }
    }
    assert_eq!(said, example);
}

#[test]
fn two_capabilities_are_enough_to_serve() {
    if !privileged() {
        return;
    }
    let copy = PublicCopy::new();
    let daemon = Daemon::spawn(copy.as_nobody("-all,+bpf,+perfmon"));
    let reasons = daemon.json("/api/v1/status")["reasons"].to_string();
    // It reports that it cannot check whose /proc it has.
    assert!(!reasons.contains("CAP_BPF") && !reasons.contains("CAP_PERFMON"), "{reasons}");
}

/// Whether a process is in the node's cgroup namespace.
fn has_initial_cgroup_namespace(process: &str) -> bool {
    fs::read_link(format!("/proc/{process}/ns/cgroup"))
        .is_ok_and(|namespace| namespace == Path::new("cgroup:[4026531835]"))
}

/// uvmd that one program executes after another.
fn executed_by(node: &Node, programs: &[&str]) -> Daemon {
    let mut command = Command::new(programs[0]);
    command.args(&programs[1..]).arg(UVMD).args(node.listening_on("127.0.0.1:0").get_args()).env("NO_COLOR", "1");
    Daemon::spawn(command)
}

fn reports_a_cgroup_namespace(daemon: &Daemon) -> bool {
    let status = daemon.json("/api/v1/status");
    status["degraded"].as_array().unwrap().iter().any(|each| each["reason"] == "cgroup_namespace")
}

#[test]
fn a_cgroup_namespace_of_its_own_is_left_for_that_of_the_first_process() {
    if !privileged() {
        return;
    }
    if !has_initial_cgroup_namespace("self") {
        println!("skipped: the first process here is in a cgroup namespace of its own");
        return;
    }
    let node = Node::new();
    // A first process that uvmd sees, as it sees the node's with hostPID.
    let with_first = [
        "unshare",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "sh",
        "-c",
        "unshare --cgroup \"$@\"; exit",
        "sh",
    ];
    let daemon = executed_by(&node, &with_first);
    assert!(!reports_a_cgroup_namespace(&daemon));
}

#[test]
fn a_cgroup_namespace_that_uvmd_may_not_leave_is_reported() {
    if !privileged() {
        return;
    }
    let node = Node::new();
    let daemon = executed_by(&node, &["unshare", "--cgroup", "setpriv", "--bounding-set=-sys_admin"]);
    assert!(!has_initial_cgroup_namespace(&daemon.pid().to_string()));
    assert!(reports_a_cgroup_namespace(&daemon));
}

#[test]
fn stop_is_quick_despite_open_connections() {
    if !privileged() {
        return;
    }
    for signal in ["TERM", "INT", "QUIT"] {
        let daemon = Daemon::start();
        let _silent = TcpStream::connect(&daemon.address).unwrap();
        let mut used = TcpStream::connect(&daemon.address).unwrap();
        used.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        assert!(used.read(&mut [0; 1024]).unwrap() > 0);
        let mut unfinished = TcpStream::connect(&daemon.address).unwrap();
        unfinished.write_all(b"GET /livez HTT").unwrap();
        daemon.signal(signal);
        let (status, log) = daemon.wait();
        // A slow stop would be reported as a failure.
        assert_eq!(status.code(), Some(0), "{log}");
        assert!(log.contains(&format!("stopping on SIG{signal}")) && log.contains("stopped"), "{log}");
        assert!(!log.contains("panicked"), "{log}");
    }
}

#[test]
fn second_signal_stops_at_once() {
    if !privileged() {
        return;
    }
    let daemon = Daemon::start();
    let mut unfinished = TcpStream::connect(&daemon.address).unwrap();
    unfinished.write_all(b"GET /livez HTT").unwrap();
    // Accepted after the connection before it, which is therefore being served.
    assert_eq!(daemon.get("/livez").0, 200);
    // Both are pending when it checks, on a machine of any speed.
    for signal in ["STOP", "TERM", "INT", "CONT"] {
        daemon.signal(signal);
    }
    let (status, log) = daemon.wait();
    assert_eq!(status.code(), Some(1), "{log}");
    // Either may come first.
    assert!(log.contains("stopping on SIG") && log.contains(" again: stopped at once"), "{log}");
    assert!(!log.contains("panicked"), "{log}");
}

#[test]
fn address_is_free_after_a_kill() {
    if !privileged() {
        return;
    }
    let daemon = Daemon::start();
    let address = daemon.address.clone();
    daemon.signal("KILL");
    assert_eq!(daemon.wait().0.signal(), Some(9));
    let node = Node::new();
    let next = Daemon::spawn(node.listening_on(&address));
    assert_eq!(next.address, address);
    assert_eq!(next.get("/livez").0, 200);
}

#[test]
fn beyond_loopback_it_warns() {
    if !privileged() {
        return;
    }
    let node = Node::new();
    let daemon = Daemon::spawn(node.listening_on("0.0.0.0:0"));
    daemon.signal("TERM");
    let (_, log) = daemon.wait();
    assert!(log.contains("WARN") && log.contains("is not loopback"), "{log}");
}

#[test]
fn systemd_is_notified_of_start_and_stop() {
    if !privileged() {
        return;
    }
    let node = Node::new();
    let path = node.path("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut command = node.listening_on("127.0.0.1:0");
    command.env("NOTIFY_SOCKET", &path);
    let daemon = Daemon::spawn(command);
    let mut buffer = [0; 1024];
    let mut receive = || {
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    assert_eq!(receive(), "READY=1\n");
    let status = receive();
    assert!(status.starts_with("STATUS=") && status.lines().count() == 1, "{status}");
    daemon.signal("TERM");
    assert_eq!(receive(), "STOPPING=1\n");
    assert_eq!(daemon.wait().0.code(), Some(0));
}

#[test]
fn the_node_is_named_in_status_and_metrics() {
    if !privileged() {
        return;
    }
    let node = Node::new();
    let mut command = node.listening_on("127.0.0.1:0");
    command.args(["--hostname", "gpu-17"]);
    let daemon = Daemon::spawn(command);
    assert_eq!(daemon.json("/api/v1/status")["hostname"], "gpu-17");
    assert!(daemon.metrics().contains(r#"uvm_cpu_faults_total{access="read"} 0"#));
}
