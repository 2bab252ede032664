//! The command line of this build understands the daemon of this build.

use std::{
    path::PathBuf,
    process::{Command, Output},
};

use serde_json::Value;

use crate::support::{Daemon, privileged};

/// Builds uvmctl as it is now: cargo builds no other package's programs for a test.
fn build() -> PathBuf {
    let mut command = Command::new(env!("CARGO"));
    command.args(["build", "--quiet", "--package", "uvmctl", "--message-format", "json"]);
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    let output = command.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let messages = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>();
    let executables = messages.filter_map(|message| Some(message.unwrap()["executable"].as_str()?.into()));
    executables.last().unwrap()
}

fn text(output: &Output) -> &str {
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    std::str::from_utf8(&output.stdout).unwrap()
}

#[test]
fn it_shows_what_the_daemon_says() {
    if !privileged() {
        return;
    }
    let uvmctl = build();
    let daemon = Daemon::start();
    let run = |arguments: &[&str]| {
        let url = format!("http://{}", daemon.address);
        Command::new(&uvmctl).args(arguments).args(["--url", &url]).env("NO_COLOR", "1").output().unwrap()
    };
    let status = daemon.json("/api/v1/status");
    let shown = run(&["status"]);
    assert!(text(&shown).contains(&format!("State    {}", status["state"].as_str().unwrap())), "{shown:?}");
    assert!(text(&shown).contains(&format!(" on {}\n", status["hostname"].as_str().unwrap())), "{shown:?}");
    for reason in status["reasons"].as_array().unwrap() {
        assert!(text(&shown).contains(&format!("- {}\n", reason.as_str().unwrap())), "{shown:?}");
    }
    let list: Value = serde_json::from_str(text(&run(&["ps", "--all", "--json"]))).unwrap();
    assert!(list["processes"].is_array(), "{list}");
}
