//! `uvmd --withdraw`, with a former uvmd's journal.

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output},
};

use tempfile::TempDir;

use crate::support::{Daemon, Node, UVMD, advice_line, eventually, privileged, run};

/// Process with advice in a journal, and no GPU.
struct Left {
    node: Node,
    target: Child,
}

impl Left {
    fn new() -> Self {
        let mut command = Command::new("sleep");
        command.arg("600");
        Self::of(command)
    }

    /// Process with a mapping named like the driver's device: withdrawals fail, as it has no VA
    /// space.
    fn mapped() -> Self {
        let mut command = Command::new("unshare");
        let script =
            "mount -t tmpfs none /dev && cp \"$(command -v sleep)\" /dev/nvidia-uvm && exec /dev/nvidia-uvm 600";
        command.args(["--mount", "sh", "-c", script]);
        let left = Self::of(command);
        let maps = format!("/proc/{}/maps", left.target.id());
        eventually("it is mapped", || fs::read_to_string(&maps).unwrap().contains(" /dev/nvidia-uvm\n"));
        left
    }

    fn of(mut command: Command) -> Self {
        let node = Node::new();
        fs::DirBuilder::new().mode(0o700).create(node.path("state")).unwrap();
        let target = command.spawn().unwrap();
        let left = Self { node, target };
        fs::write(left.journal(), advice_line(left.target.id())).unwrap();
        left
    }

    fn journal(&self) -> PathBuf {
        self.node.path("state/advice.journal")
    }

    fn uvmd(&self, listen: &str) -> Command {
        let mut command = self.node.listening_on(listen);
        command.args(["--set", "policy.enabled=true"]);
        command
    }

    /// Message of uvmd if it ends with this advice in force.
    fn still_in_force(&self) -> String {
        let pid = self.target.id();
        format!(
            "advice is still in effect for process {pid} (nvidia-uvm): the next start of uvmd withdraws it, or `uvmd --withdraw`"
        )
    }

    fn withdraw(&self, config: &Path) -> Output {
        let mut command = self.node.configured(config);
        command.arg("--withdraw");
        run(command)
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        let _ = self.target.kill();
        let _ = self.target.wait();
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn advice_is_withdrawn_despite_an_invalid_configuration() {
    if !privileged() {
        return;
    }
    let left = Left::new();
    let config = left.node.path("uvmd.toml");
    fs::write(&config, "no TOML").unwrap();
    let output = left.withdraw(&config);
    let report = text(&output.stdout);
    let withdrawn = format!("process {} (sleep): withdrawn: 1 pieces of advice, 4 KiB together\n", left.target.id());
    assert_eq!(report, format!("{withdrawn}no advice of uvmd is in effect any more\n"));
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    assert!(!fs::read_to_string(left.journal()).unwrap().contains("\"advice\""));
}

#[test]
fn a_process_that_has_ended_needs_nothing() {
    if !privileged() {
        return;
    }
    let mut left = Left::new();
    left.target.kill().unwrap();
    left.target.wait().unwrap();
    let output = left.withdraw("/dev/null".as_ref());
    let report = text(&output.stdout);
    assert!(
        report.starts_with(&format!("process {}: has exited, and its advice with it\n", left.target.id())),
        "{report}"
    );
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn unrecognised_journal_lines_are_reported_as_a_failure() {
    if !privileged() {
        return;
    }
    let left = Left::new();
    fs::write(left.journal(), format!("{}damaged\n", advice_line(left.target.id()))).unwrap();
    let output = left.withdraw("/dev/null".as_ref());
    let report = text(&output.stdout);
    assert!(report.contains("advice.journal: it is damaged in 1 places"), "{report}");
    assert!(report.ends_with("not all is withdrawn: see above\n"), "{report}");
    assert_eq!(output.status.code(), Some(1));
    assert!(fs::read_to_string(left.journal()).unwrap().contains("\ndamaged\n"));
}

#[test]
fn withdrawal_is_rejected_while_uvmd_runs() {
    if !privileged() {
        return;
    }
    let left = Left::new();
    let daemon = Daemon::spawn(left.uvmd("127.0.0.1:0"));
    let output = left.withdraw("/dev/null".as_ref());
    assert!(text(&output.stderr).contains("is in use: another uvmd runs"), "{output:?}");
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), ""));
    drop(daemon);
}

#[test]
fn stop_with_advice_in_force_fails_and_names_the_process() {
    if !privileged() {
        return;
    }
    let left = Left::mapped();
    let daemon = Daemon::spawn(left.uvmd("127.0.0.1:0"));
    daemon.signal("TERM");
    let (status, log) = daemon.wait();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains(&left.still_in_force()), "{log}");
    let report = left.withdraw("/dev/null".as_ref());
    assert!(text(&report.stdout).contains("NOT withdrawn, or not all of it"), "it is left to the next: {report:?}");
}

#[test]
fn a_uvmd_that_never_serves_withdraws_all_the_same() {
    if !privileged() {
        return;
    }
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    let left = Left::mapped();
    let output = run(left.uvmd(&listen));
    let log = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{log}");
    assert!(log.contains(&left.still_in_force()) && log.contains("cannot listen on"), "{log}");
    let left = Left::new();
    assert_eq!(run(left.uvmd(&listen)).status.code(), Some(1));
    let output = left.withdraw("/dev/null".as_ref());
    assert_eq!(text(&output.stdout), "no advice of uvmd is in effect any more\n", "it is withdrawn already");
}

#[test]
fn missing_journal_is_a_success_and_an_unknown_one_an_error() {
    let folder = TempDir::new().unwrap();
    let withdraw = |arguments: &[&str]| {
        let mut command = Command::new(UVMD);
        command.arg("--withdraw").args(arguments);
        run(command)
    };
    let setting = format!("policy.state_dir={}/none", folder.path().display());
    let output = withdraw(&["--config", "/dev/null", "--set", &setting]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).contains("none/advice.journal"), "it says where it looked");
    assert!(!folder.path().join("none").exists());
    let config = folder.path().join("uvmd.toml");
    fs::write(&config, "no TOML").unwrap();
    let output = withdraw(&["--config", config.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--set policy.state_dir="), "{output:?}");
}
