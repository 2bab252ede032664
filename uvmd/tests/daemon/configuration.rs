//! Configuration file of the daemon.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;
use tempfile::NamedTempFile;

use crate::support::{Daemon, Node, PublicCopy, UVMD, privileged, run};

fn file(text: &str) -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    fs::write(&file, text).unwrap();
    file
}

fn configured(file: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(UVMD);
    command.arg("--config").arg(file).args(arguments).env("NO_COLOR", "1");
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn assert_refused(output: &Output, message: &str) {
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(text(&output.stderr), message);
    assert_eq!(text(&output.stdout), "");
}

#[test]
fn mistake_is_one_line_in_a_check_and_a_start() {
    let file = file("[collector]\ninterval = \"0s\"\n");
    let message = format!(
        "uvmd: {}:2: collector.interval: invalid value: string \"0s\", expected a time from 100ms to 1h, such as \"1s\"\n",
        file.path().display()
    );
    assert_refused(&run(configured(file.path(), &[])), &message);
    assert_refused(&run(configured(file.path(), &["--check-config"])), &message);
}

#[test]
fn missing_file_is_reported_by_name() {
    let message = "uvmd: cannot read the configuration /nowhere/uvmd.toml: no such file or directory\n";
    assert_refused(&run(configured(Path::new("/nowhere/uvmd.toml"), &["--check-config"])), message);
}

#[test]
fn check_prints_an_equivalent_file() {
    let first = file("[log]\nformat = \"json\"\n");
    let shown =
        run(configured(first.path(), &["--check-config", "--interval", "2s", "--set", "metrics.per_process=true"]));
    assert_eq!(shown.status.code(), Some(0));
    let shown = text(&shown.stdout);
    assert!(shown.starts_with(&format!("# ok: {}", first.path().display())), "{shown}");
    for line in ["format = \"json\"", "interval = \"2s\"", "per_process = true", "listen = \"127.0.0.1:9477\""] {
        assert!(shown.lines().any(|each| each == line), "{line} is not in {shown}");
    }
    let again = text(&run(configured(file(&shown).path(), &["--check-config"])).stdout);
    let values = |text: &str| text.split_once('\n').unwrap().1.to_owned();
    assert_eq!(values(&again), values(&shown));
}

#[test]
fn check_warns_of_remote_access() {
    let file = file("listen = \"192.0.2.1:1\"\n[auth]\ntoken_file = \"/etc/uvmd/token\"\n");
    let checked = |arguments: &[&str]| {
        let output = run(configured(file.path(), &[&["--check-config"], arguments].concat()));
        assert_eq!(output.status.code(), Some(0));
        assert!(text(&output.stdout).starts_with("# ok: "));
        text(&output.stderr)
    };
    let said = checked(&[]);
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines.len(), 2, "{said}");
    assert!(lines[0].starts_with("uvmd: warning: 192.0.2.1:1 is not loopback: "), "{said}");
    assert!(lines[1].contains("auth.token_file is sent in the clear"), "{said}");
    // With clients of this machine only, there is no warning.
    assert_eq!(checked(&["--listen", "127.0.0.1:1"]), "");
}

#[test]
fn the_check_needs_no_privileges() {
    if !privileged() {
        return;
    }
    let copy = PublicCopy::new();
    let mut command = copy.as_nobody("-all");
    command.arg("--check-config");
    assert_eq!(run(command).status.code(), Some(0));
}

#[test]
fn the_shipped_file_starts_a_daemon() {
    if !privileged() {
        return;
    }
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/uvmd.toml");
    let node = Node::new();
    let mut command = node.configured(&shipped);
    command.args(["--listen", "127.0.0.1:0", "--set", "socket.enabled=true"]);
    let daemon = Daemon::spawn(command);
    assert_eq!(daemon.get("/livez").0, 200);
    daemon.signal("TERM");
    let (status, log) = daemon.wait();
    assert_eq!(status.code(), Some(0), "{log}");
}

#[test]
fn command_line_overrides_the_file() {
    if !privileged() {
        return;
    }
    let node = Node::new();
    let file = file("listen = \"192.0.2.1:1\"\nhostname = \"gpu-17\"\n[log]\nformat = \"json\"\n");
    let mut command = node.configured(file.path());
    command.args(["--listen", "127.0.0.1:0"]);
    let daemon = Daemon::spawn(command);
    assert_eq!(daemon.json("/api/v1/status")["hostname"], "gpu-17");
    daemon.signal("TERM");
    let (_, log) = daemon.wait();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().any(|line| line["message"] == "stopped" && line["level"] == "INFO"), "{log}");
}
