//! Endpoints, tokens and permissions.

use std::{
    env, fs,
    os::unix::{
        fs::{PermissionsExt, chown},
        net::UnixStream,
    },
    path::Path,
    process::{Child, Command},
    thread,
    time::Duration,
};

use api::{Status, Warning};

use crate::support::{Canned, busy, run, serve_bytes, serve_snapshot, stderr, stdout, uvmctl};

fn status() -> Canned {
    Canned::default().with("/api/v1/status", &Status { hostname: "gpu-17".to_owned(), ..Status::default() })
}

#[test]
fn a_socket_serves_like_a_url() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("uvmd.sock");
    let daemon = status();
    daemon.serve_on(&socket);
    // The socket has precedence over the environment's URL.
    let output = run("http://192.0.2.1:1", &["status", "--socket", socket.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("on gpu-17"));
    // A loopback address as host: the daemon rejects other names on the socket.
    assert!(daemon.requests()[0].to_lowercase().contains("host: 127.0.0.1\r\n"), "{:?}", daemon.requests());
}

#[test]
fn a_socket_of_the_environment_gives_way_to_the_command_line() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("uvmd.sock");
    let (by_socket, by_url) = (status(), status());
    by_socket.serve_on(&socket);
    let url = by_url.serve();
    let status = |url: &str, arguments: &[&str]| {
        let output = uvmctl(url).env("UVMD_SOCKET", &socket).arg("status").args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        [by_socket.requests().len(), by_url.requests().len()]
    };
    assert_eq!(status("http://192.0.2.1:1", &[]), [1, 0]);
    assert_eq!(status("http://192.0.2.1:1", &["--url", &url]), [1, 1]);
    assert_eq!(
        status("http://192.0.2.1:1", &["--url", "http://192.0.2.1:1", "--socket", socket.to_str().unwrap()]),
        [2, 1]
    );
}

#[test]
fn warnings_of_uvmd_are_shown_with_its_state() {
    let warning = Warning { name: "tcp_unavailable".to_owned(), message: "the port is taken".to_owned() };
    let status = Status { state: "counting".to_owned(), warnings: vec![warning], ..Status::default() };
    let url = Canned::default().with("/api/v1/status", &status).serve();
    assert!(stdout(&run(&url, &["status"])).contains("- the port is taken"));
    let doctor = stdout(&run(&url, &["doctor"]));
    assert!(doctor.contains("warning  uvmd") && doctor.contains("-> the port is taken"), "{doctor}");
}

#[test]
fn a_socket_without_a_listener_is_exit_code_3_and_named() {
    let output = run("http://192.0.2.1:1", &["status", "--socket", "/nonexistent/uvmd.sock"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("cannot reach uvmd at /nonexistent/uvmd.sock: "), "{}", stderr(&output));
}

#[test]
fn tokens_are_sent_over_tcp_and_over_a_socket() {
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    fs::write(&token, "s3cret\n").unwrap();
    let daemon = status();
    let by_option = uvmctl(&daemon.serve()).args(["status", "--token-file", token.to_str().unwrap()]).output().unwrap();
    let by_environment = uvmctl(&daemon.serve()).arg("status").env("UVMD_TOKEN_FILE", &token).output().unwrap();
    assert_eq!((by_option.status.code(), by_environment.status.code()), (Some(0), Some(0)));
    let requests = daemon.requests();
    assert_eq!(requests.len(), 2);
    for request in requests {
        assert!(request.to_lowercase().contains("authorization: bearer s3cret\r\n"), "{request}");
    }
    let socket = directory.path().join("uvmd.sock");
    let daemon = status();
    daemon.serve_on(&socket);
    let output = uvmctl("http://192.0.2.1:1")
        .args(["status", "--socket", socket.to_str().unwrap()])
        .env("UVMD_TOKEN_FILE", &token)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(
        daemon.requests()[0].to_lowercase().contains("authorization: bearer s3cret\r\n"),
        "{:?}",
        daemon.requests()
    );
}

#[test]
fn a_token_file_without_a_token_is_exit_code_1_and_named() {
    let output = run("http://192.0.2.1:1", &["status", "--token-file", "/nonexistent/token"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("the token file /nonexistent/token"), "{}", stderr(&output));
}

#[test]
fn a_denial_has_the_daemons_detail() {
    for status in ["401 Unauthorized", "403 Forbidden"] {
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Length: 46\r\n\r\n{{\"status\":403,\"detail\":\"needs read authority\"}} "
        );
        let output = run(&serve_bytes(answer.leak().as_bytes()), &["heatmap", "1"]);
        let message = stderr(&output);
        assert_eq!((output.status.code(), message.lines().count()), (Some(1), 1), "{message}");
        assert!(message.contains("denied the request: needs read authority"), "{message}");
    }
}

#[test]
fn without_read_permission_the_rest_is_shown_with_a_remedy() {
    let mut snapshot = busy();
    snapshot.processes[0].blocks.known = 48;
    let url = serve_snapshot(snapshot);
    let run = |command: &str| uvmctl(&url).args([command, "41207"]).env_remove("UVMD_TOKEN_FILE").output().unwrap();
    let shown = run("show");
    assert_eq!(shown.status.code(), Some(0), "{}", stderr(&shown));
    assert!(stdout(&shown).contains("Faults    18.4k on GPUs"));
    assert!(stdout(&shown).contains("48 blocks of 2 MiB are known"), "{}", stdout(&shown));
    assert!(stderr(&shown).contains("--token-file"), "{}", stderr(&shown));
    let explained = run("explain");
    assert_eq!(explained.status.code(), Some(0), "{}", stderr(&explained));
    assert!(stdout(&explained).contains("No verdict on 41207"), "{}", stdout(&explained));
    let refused = run("heatmap");
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        stderr(&refused).contains("denied the request: this needs read permission: send the token"),
        "{}",
        stderr(&refused)
    );
}

#[test]
fn a_wrong_token_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    fs::write(&token, "fedcba9876543210").unwrap();
    let output = uvmctl(&serve_snapshot(busy())).args(["ps"]).env("UVMD_TOKEN_FILE", &token).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let expected = format!("the token that was sent is not uvmd's ({})", token.display());
    assert!(stderr(&output).contains(&expected), "{}", stderr(&output));
}

/// A uid without a user.
const OTHER_UID: u32 = 64_001;
const SOCKET: &str = "UVMCTL_TEST_SOCKET";

/// Server for [`a_socket_of_another_user_is_trusted_only_if_named`], which runs it as another user.
#[test]
#[ignore = "serves until it is killed"]
fn serves_on_a_socket() {
    let Some(socket) = env::var_os(SOCKET) else { return };
    status().serve_on(Path::new(&socket));
    loop {
        thread::sleep(Duration::from_hours(1));
    }
}

struct ServerProcess(Child);

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_socket_of_another_user_is_trusted_only_if_named() {
    let folder = tempfile::tempdir().unwrap();
    if chown(folder.path(), Some(OTHER_UID), None).is_err() {
        assert!(env::var("UVMD_TEST_REQUIRE_ROOT").as_deref() != Ok("1"), "this is not root");
        println!("skipped: needs root");
        return;
    }
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (program, socket) = (folder.path().join("program"), folder.path().join("uvmd.sock"));
    // A copy that every user may execute, wherever the build directory is. A file written by this
    // process would be "busy" while a child of another test inherits its descriptor.
    assert!(Command::new("cp").arg(env::current_exe().unwrap()).arg(&program).status().unwrap().success());
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={OTHER_UID}"), format!("--regid={OTHER_UID}"), "--clear-groups".to_owned()]);
    command.arg(&program).args(["--ignored", "--exact", "authority::serves_on_a_socket"]).env(SOCKET, &socket);
    let mut server = ServerProcess(command.spawn().unwrap());
    while UnixStream::connect(&socket).is_err() {
        assert!(server.0.try_wait().unwrap().is_none(), "it ended before it served");
        thread::sleep(Duration::from_millis(10));
    }
    let ask = |arguments: &[&str]| {
        let mut command = uvmctl("http://192.0.2.1:1");
        command.args(["status", "--socket", socket.to_str().unwrap()]).args(arguments).output().unwrap()
    };
    let output = ask(&[]);
    let message = stderr(&output);
    assert_eq!((output.status.code(), message.lines().count()), (Some(1), 1), "{message}");
    assert!(message.contains("served by uid 64001, neither root nor you"), "{message}");
    let output = ask(&["--socket-owner", "64001"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("on gpu-17"));
}
