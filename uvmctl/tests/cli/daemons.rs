//! Reactions to servers: uvmd, older versions, other programs, and none.

use std::{
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    thread,
};

use crate::support::{Canned, busy, counting, nothing, run, serve_bytes, serve_snapshot, stderr, stdout};

#[test]
fn no_server_is_exit_code_3_and_one_line() {
    let address = nothing();
    for arguments in [&["ps", "--all"][..], &["ps", "-o", "json"], &["status", "-o", "json"]] {
        let output = run(&format!("http://{address}"), arguments);
        assert_eq!((output.status.code(), stdout(&output)), (Some(3), String::new()));
        let message = stderr(&output);
        assert_eq!(message.lines().count(), 1, "{message}");
        for part in ["uvmctl: cannot reach uvmd at", &address.to_string(), "connection refused", "--url"] {
            assert!(message.contains(part), "{message}");
        }
    }
    let no_host = run("http://no-such-host.invalid:9477", &["ps"]);
    assert_eq!(no_host.status.code(), Some(3), "{}", stderr(&no_host));
}

#[test]
fn another_server_is_exit_code_1_and_one_line() {
    let responses: [&[u8]; 7] = [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n<html/>",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n\xff\xfe\x1b[",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\n\x1b[2J",
        b"HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 25\r\n\r\n{\"processes\":\"\\u001b[2J\"}\n",
    ];
    for answer in responses {
        for arguments in [&["ps", "--all"][..], &["status", "-o", "json"]] {
            let output = run(&serve_bytes(answer), arguments);
            let message = stderr(&output);
            assert_eq!((output.status.code(), stdout(&output)), (Some(1), String::new()), "{message}");
            assert_eq!(message.lines().count(), 1, "{message:?}");
            assert!(message.contains("is not uvmd's") && !message.contains('\u{1b}'), "{message:?}");
        }
    }
}

#[test]
fn an_older_daemon_is_reported_instead_of_zeros() {
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 23\r\n\r\n{\"processes\":[{\"a\":1}]}";
    let output = run(&serve_bytes(answer), &["ps"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("older than this uvmctl: restart it"), "{}", stderr(&output));
}

#[test]
fn a_problem_is_reported_in_the_daemons_words() {
    let answer = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 49\r\n\r\n{\"status\":503,\"detail\":\"the collector is \\u001b\"}";
    let output = run(&serve_bytes(answer), &["ps"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains(r"failed: the collector is \u{1b}"), "{}", stderr(&output));
}

#[test]
fn an_object_that_is_not_there_is_no_failure_of_uvmd() {
    let url = serve_snapshot(busy());
    let output = run(&url, &["show", "4"]);
    assert_eq!(output.status.code(), Some(1));
    let message = stderr(&output);
    assert!(message.contains(&format!("(uvmd at {url})")) && !message.contains("failed"), "{message}");
    // An older uvmd has fewer paths.
    let message = stderr(&run(&serve_bytes(OLDER), &["ps"]));
    assert!(message.contains("there is no /api/v1/x here; ") && message.contains("different versions"), "{message}");
    let message = stderr(&run(&serve_bytes(b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnone"), &["ps"]));
    assert!(message.contains("there is no such page (status 404); name the address"), "{message}");
    let message = stderr(&run(&serve_bytes(REJECTED), &["policy", "off"]));
    assert!(message.contains("rejected the request: no"), "{message}");
}

const OLDER: &[u8] = b"HTTP/1.1 404 Not Found\r\nContent-Length: 39\r\n\r\n{\"detail\":\"there is no /api/v1/x here\"}";
const REJECTED: &[u8] = b"HTTP/1.1 422 No\r\nContent-Length: 15\r\n\r\n{\"detail\":\"no\"}";

/// Answers one request of a connection, and closes it at the next one, as a server that closes an
/// idle connection at that moment.
fn serve_once(stream: &TcpStream, daemon: &Canned) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut head = || {
        let (mut first, mut line) = (String::new(), String::new());
        while reader.read_line(&mut line).is_ok_and(|bytes| bytes > 2) {
            if first.is_empty() {
                first.clone_from(&line);
            }
            line.clear();
        }
        first
    };
    let request = head();
    let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
    let body = daemon.body(&path);
    // The client may close the connection at any time.
    let mut writer = stream;
    let _ = write!(writer, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    head();
}

#[test]
fn a_get_is_sent_again_after_the_daemon_closed_the_connection() {
    let (overrides, state) = (api::rule::Overrides::default(), api::rule::PolicyState::default());
    let status = api::Status { time: "2026-11-21T14:00:00.000Z".to_owned(), ..Default::default() };
    let daemon = Canned::default()
        .with("/api/v1/overrides", &overrides)
        .with("/api/v1/policy", &state)
        .with("/api/v1/status", &status);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || listener.incoming().for_each(|stream| serve_once(&stream.unwrap(), &daemon)));
    let output = run(&url, &["policy", "show"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("There are no overrides"), "{}", stdout(&output));
}

#[test]
fn an_error_is_not_repeated_by_its_cause() {
    for arguments in
        [&["--token-file", "/nonexistent/token", "status"][..], &["doctor", "--config", "/nonexistent/file"]]
    {
        let output = run("http://127.0.0.1:1", arguments);
        let text = (stdout(&output) + &stderr(&output)).to_lowercase();
        assert_eq!(text.matches("no such file or directory").count(), 1, "{text}");
    }
}

#[test]
fn bad_usage_is_exit_code_2() {
    for arguments in [&["frobnicate"][..], &[], &["ps", "--frobnicate"], &["--url", "gpu-17:9477", "ps"], &["ps", "1"]]
    {
        let output = run("http://127.0.0.1:1", arguments);
        assert_eq!((output.status.code(), stdout(&output)), (Some(2), String::new()), "{arguments:?}");
        assert!(!stderr(&output).is_empty());
    }
}

#[test]
fn the_option_wins_over_the_environment() {
    let url = serve_snapshot(counting());
    let output = run("http://127.0.0.1:1", &["status", "--url", &url]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}
