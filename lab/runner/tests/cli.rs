//! The command line, on a machine without a lab: what can be done there works, and the rest says in one line what is missing.
#![expect(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

use std::{
    io::Write,
    path::Path,
    process::{Command, Output, Stdio},
};

fn runner(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lab-runner")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn scenario(name: &str) -> String {
    format!("{}/../scenarios/{name}.toml", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn check_describes_a_scenario_and_prints_what_scripts_need() {
    let output = runner(&["check", &scenario("two_tenants")]);
    assert!(output.status.success());
    assert_eq!(text(&output.stdout), "two_tenants: processes: 2, managed: 152.0 MiB, GPU memory: 64 MiB\n");
    let output = runner(&["check", &scenario("two_tenants"), "--print", "gpu-mem-mib"]);
    assert_eq!(text(&output.stdout), "64\n");
}

#[test]
fn a_mistake_in_a_scenario_is_one_line_with_its_place() {
    let file = std::env::temp_dir().join(format!("lab-runner-cli-{}.toml", std::process::id()));
    std::fs::write(&file, "name = \"s\"\n[[process]]\nname = \"p\"\nsteps = [{ verify = \"a\" }]\n").unwrap();
    let path = file.to_str().unwrap();
    for command in ["check", "run", "loop"] {
        let output = runner(&[command, path]);
        assert_eq!(output.status.code(), Some(1), "{command}");
        let expected = format!("lab-runner: {path}:4:10: process \"p\", step 1: no allocation is named \"a\"\n");
        assert_eq!(text(&output.stderr), expected, "{command}");
    }
    std::fs::remove_file(file).unwrap();
}

#[test]
fn without_a_lab_nothing_runs_and_one_line_says_what_is_missing() {
    if Path::new("/dev/swgpu").exists() {
        println!("skipped: this machine has a software GPU");
        return;
    }
    for command in ["run", "loop"] {
        let output = runner(&[command, &scenario("first_touch")]);
        assert_eq!(output.status.code(), Some(1), "{command}");
        let message = text(&output.stderr);
        assert!(message.starts_with("lab-runner: ") && message.lines().count() == 1, "{message}");
        assert!(message.contains("cannot open /dev/swgpu"), "{message}");
    }
}

#[test]
fn a_worker_without_a_lab_reports_its_failure() {
    if Path::new("/dev/swgpu").exists() {
        println!("skipped: this machine has a software GPU");
        return;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab-runner"));
    let mut worker = command.arg("worker").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = worker.stdin.take().unwrap();
    input
        .write_all(
            b"{\"Become\":{\"scenario\":\"name = 's'\\n[[process]]\\nname = 'p'\",\"process\":0,\"counters\":false}}\n",
        )
        .unwrap();
    let output = worker.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).starts_with("{\"Failed\":{\"reason\":\"cannot open /dev/swgpu"), "{output:?}");
}

#[test]
fn a_wrong_option_is_a_usage_error() {
    assert_eq!(runner(&["run", "--nonsense"]).status.code(), Some(2));
    assert_eq!(runner(&["run", "x.toml", "--uvmd", "http://localhost", "--no-uvmd"]).status.code(), Some(2));
}
