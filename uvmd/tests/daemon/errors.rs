//! Errors at the start: each with one clear message, a failure, and no panic.

use std::{net::TcpListener, process::Output};

use crate::support::{Node, PublicCopy, privileged, run};

/// Only message of the output.
fn message(output: &Output) -> String {
    let stderr = String::from_utf8(output.stderr.clone()).unwrap();
    assert!(output.stdout.is_empty());
    assert!(!stderr.contains("panicked") && !stderr.contains("backtrace"), "{stderr}");
    stderr
}

fn assert_one_line(output: &Output, code: i32, parts: &[&str]) {
    let message = message(output);
    assert_eq!(output.status.code(), Some(code), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
}

#[test]
fn a_port_that_is_taken() {
    if !privileged() {
        return;
    }
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let node = Node::new();
    assert_one_line(
        &run(node.listening_on(&address)),
        1,
        &["uvmd: cannot listen on", &address, "address already in use", "--listen"],
    );
}

#[test]
fn foreign_address() {
    if !privileged() {
        return;
    }
    let node = Node::new();
    // TEST-NET-1 of RFC 5737 belongs to nobody.
    assert_one_line(
        &run(node.listening_on("192.0.2.1:9477")),
        1,
        &["uvmd: cannot listen on 192.0.2.1:9477", "no such address", "--listen"],
    );
}

#[test]
fn no_privileges() {
    if !privileged() {
        return;
    }
    let copy = PublicCopy::new();
    for too_few in ["-all", "-all,+bpf", "-all,+perfmon"] {
        let output = run(copy.as_nobody(too_few));
        assert_one_line(&output, 1, &["uvmd: not allowed to probe the driver", "root", "CAP_BPF and CAP_PERFMON"]);
    }
}

#[test]
fn a_bad_option() {
    let cases: [(&[&str], &str); 6] = [
        (&["--frobnicate"], "--frobnicate"),
        (&["--listen", "nowhere"], "--listen"),
        (&["--interval", "0s"], "from 100ms to 1h"),
        (&["--interval", "soon"], "--interval"),
        (&["--ended-retention", "forever"], "--ended-retention"),
        (&["--log", "uvmd=shouting"], "--log"),
    ];
    for (arguments, part) in cases {
        let node = Node::new();
        let mut command = node.command();
        command.args(arguments);
        let output = run(command);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let message = message(&output);
        assert!(message.starts_with("error: ") && message.contains(part), "{message}");
    }
}
