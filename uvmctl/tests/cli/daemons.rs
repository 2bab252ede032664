//! Reactions to servers: uvmd, older versions, other programs, and none.

use crate::support::{counting, nothing, run, serve_bytes, serve_snapshot, stderr, stdout};

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
