//! Log that cannot be written: uvmd continues, counts the dropped lines, and reports them.

use std::{
    fs::{self, File},
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::support::{Daemon, Node, UVMD, eventually, privileged, run};

/// Address for a log in a file: on standard error the log contains the port, with a file it has to
/// be chosen. Unique to this process, so that no other test uses it.
fn free_address() -> String {
    let [_, second, third, fourth] = (std::process::id() & 0x00ff_ffff).to_be_bytes();
    let own = Ipv4Addr::new(127, second, third, fourth);
    TcpListener::bind((own, 0)).unwrap().local_addr().unwrap().to_string()
}

fn logging_to(node: &Node, file: &Path, address: &str) -> Command {
    let mut command = node.listening_on(address);
    command.args(["--log", "trace", "--set", &format!("log.file={}", file.display())]);
    command.stderr(Stdio::piped());
    command
}

/// Causes log lines by requests that are not HTTP.
fn cause_lines(daemon: &Daemon) {
    for _ in 0..10 {
        let mut stream = TcpStream::connect(&daemon.address).unwrap();
        stream.write_all(b"nonsense\r\n\r\n").unwrap();
        // Until it closes the connection.
        let _ = stream.read_to_end(&mut Vec::new());
    }
}

fn dropped(daemon: &Daemon) -> u64 {
    daemon.json("/api/v1/status")["log_lines_dropped"].as_u64().unwrap()
}

#[test]
fn the_log_goes_to_the_file_and_follows_its_name() {
    if !privileged() {
        return;
    }
    let node = Node::new();
    let path = node.path("uvmd.log");
    let address = free_address();
    let daemon = Daemon::spawn_silent(logging_to(&node, &path, &address), &address);
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    eventually("the log has its beginning", || read(&path).contains("serves on http://"));

    let old = node.path("uvmd.log.1");
    fs::rename(&path, &old).unwrap();
    daemon.signal("TERM");
    let (status, stderr) = daemon.wait();
    assert_eq!((status.code(), stderr.as_str()), (Some(0), ""));
    // The last line is there too, and not in the renamed file.
    assert!(read(&path).trim_end().ends_with("stopped"), "{}", read(&path));
    assert!(!read(&old).contains("stopped"));
}

#[test]
fn full_disk_costs_only_log_lines() {
    if !privileged() {
        return;
    }
    // A private mount of a disk of four pages, of which one is free.
    let node = Node::new();
    let disk = node.path("disk");
    fs::create_dir(&disk).unwrap();
    let disk = disk.display();
    let address = free_address();
    let log = node.path("disk/uvmd.log");
    let mut command = Command::new("unshare");
    let script = format!(
        "mount -t tmpfs -o size=16k tmpfs {disk} && head -c 12288 /dev/zero >{disk}/ballast && exec \"$0\" \"$@\""
    );
    command.args(["--mount", "sh", "-c", &script]).arg(UVMD).args(logging_to(&node, &log, &address).get_args());
    command.stderr(Stdio::piped());
    let daemon = Daemon::spawn_silent(command, &address);
    let seen = |name: &str| PathBuf::from(format!("/proc/{}/root{disk}/{name}", daemon.pid()));

    eventually("the disk fills up", || {
        cause_lines(&daemon);
        dropped(&daemon) > 5
    });
    let lost = dropped(&daemon);
    assert!(daemon.metrics().contains("\nuvmd_log_lines_dropped_total "));
    assert_eq!(daemon.get("/livez").0, 200);
    assert_eq!(fs::metadata(seen("uvmd.log")).unwrap().len(), 4096);

    fs::remove_file(seen("ballast")).unwrap();
    let text = || fs::read_to_string(seen("uvmd.log")).unwrap();
    eventually("the log goes on when there is room", || {
        cause_lines(&daemon);
        text().contains("lines were dropped from")
    });
    // The cut line has its end: every line begins with a time.
    let text = text();
    assert!(text.lines().all(|line| line.starts_with("20")), "{text}");
    assert!(dropped(&daemon) >= lost);
    daemon.signal("TERM");
    let (status, stderr) = daemon.wait();
    assert_eq!(status.code(), Some(0));
    let message = format!("uvmd: cannot write to {}: no space left on device;", log.display());
    assert_eq!((stderr.lines().count(), stderr.starts_with(&message)), (1, true), "{stderr}");
}

#[test]
fn full_standard_error_does_not_end_uvmd() {
    if !privileged() {
        return;
    }
    let address = free_address();
    let node = Node::new();
    let mut command = node.listening_on(&address);
    command.stderr(File::options().write(true).open("/dev/full").unwrap());
    let daemon = Daemon::spawn_silent(command, &address);
    eventually("what could not be written is counted", || dropped(&daemon) > 0);
    daemon.signal("TERM");
    assert_eq!(daemon.wait().0.code(), Some(0));
}

#[test]
fn unread_standard_error_does_not_block() {
    if !privileged() {
        return;
    }
    let address = free_address();
    let node = Node::new();
    let mut command = node.listening_on(&address);
    command.args(["--log", "trace"]).stderr(Stdio::piped());
    let daemon = Daemon::spawn_silent(command, &address);
    // More than a pipe and its queue hold.
    eventually("lines are left out", || {
        cause_lines(&daemon);
        dropped(&daemon) > 0
    });
    assert_eq!(daemon.get("/livez").0, 200);
    daemon.signal("TERM");
    // It waits for the exit before it reads anything.
    assert_eq!(daemon.wait().0.code(), Some(0));
}

#[test]
fn log_file_has_the_reason_of_the_exit() {
    if !privileged() {
        return;
    }
    let node = Node::new();
    let path = node.path("uvmd.log");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let output = run(logging_to(&node, &path, &taken.local_addr().unwrap().to_string()));
    assert_eq!(output.status.code(), Some(1));
    assert!(fs::read_to_string(&path).unwrap().contains("address already in use"));
    assert_eq!(String::from_utf8(output.stderr).unwrap().lines().count(), 1);
}

#[test]
fn impossible_log_file_is_a_clear_message() {
    let node = Node::new();
    let fifo = node.path("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let link = node.path("link");
    symlink("/dev/null", &link).unwrap();
    for (path, reason) in [
        (node.path("."), "is a directory"),
        (link, "it is a symbolic link; name the file itself"),
        (fifo, "it is not a regular file"),
        (node.path("none/uvmd.log"), "no such file or directory"),
    ] {
        let mut command = logging_to(&node, &path, "127.0.0.1:0");
        command.stdin(Stdio::null());
        let output = run(command);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(
            String::from_utf8(output.stderr).unwrap(),
            format!("uvmd: cannot write to {}: {reason}\n", path.display())
        );
    }
}
