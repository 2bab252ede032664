//! Command line on a machine without a lab: commands that need no lab work, and the others report
//! in one line which device is missing.
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
fn without_a_lab_runs_fail_with_one_line_about_the_missing_device() {
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
            b"{\"Assign\":{\"scenario\":\"name = 's'\\n[[process]]\\nname = 'p'\",\"variation\":{\"seed\":0,\"access_rate_factor\":1.0},\"process\":0,\"counters\":false}}\n",
        )
        .unwrap();
    let output = worker.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).starts_with("{\"Failed\":{\"reason\":\"cannot open /dev/swgpu"), "{output:?}");
}

#[test]
fn a_console_with_a_complaint_fails_and_names_it_and_a_soak_may_lose_a_gpu_for_each_process_it_killed() {
    let folder = std::env::temp_dir().join(format!("lab-runner-console-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = |name: &str, text: &str| {
        std::fs::write(folder.join(name), text).unwrap();
        folder.join(name).to_str().unwrap().to_owned()
    };
    let console = file(
        "console",
        "[    1.0] nvidia-uvm: Loaded the UVM driver, major device number 240.\r\n\
        [    9.0] nvidia-uvm: Memory leak of 73224 bytes detected.\r\n\
        [    9.1] nvidia-uvm:     Leaked 73224 bytes from uvm_gpu.c:1001:alloc_parent_gpu (0xff)\r\n",
    );
    let none_killed = file("none", "{\"killed_at_any_time\": 0}");
    for arguments in [vec!["complaints", &console], vec!["complaints", &console, "--soak", &none_killed]] {
        let output = runner(&arguments);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(text(&output.stderr).lines().next(), Some("nvidia-uvm: Memory leak of 73224 bytes detected."));
    }
    let one_killed = file("one", "{\"killed_at_any_time\": 1}");
    let output = runner(&["complaints", &console, "--soak", &one_killed]);
    assert!(output.status.success());
    assert!(text(&output.stderr).starts_with("the driver lost 73,224 bytes to processes killed"), "{output:?}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_wrong_option_is_a_usage_error() {
    assert_eq!(runner(&["run", "--nonsense"]).status.code(), Some(2));
    assert_eq!(runner(&["run", "x.toml", "--uvmd", "http://localhost", "--no-uvmd"]).status.code(), Some(2));
}

#[test]
fn variants_are_listed_with_their_guest_and_each_is_a_scenario_that_can_be_checked() {
    let listed = runner(&["variants", "--seed", "5"]);
    let lines: Vec<&str> = text(&listed.stdout).lines().collect();
    assert!(
        lines.len() >= 40 && lines.contains(&"32 no cyclic_32m_150") && lines.iter().any(|line| line.contains(" yes "))
    );
    let printed = runner(&["variants", "--seed", "5", "--print", "cyclic_32m_150"]);
    let file = std::env::temp_dir().join(format!("lab-runner-variant-{}.toml", std::process::id()));
    std::fs::write(&file, &printed.stdout).unwrap();
    let checked = runner(&["check", file.to_str().unwrap(), "--print", "gpu-mem-mib"]);
    assert_eq!(text(&checked.stdout), "32\n");
    std::fs::remove_file(file).unwrap();
}

#[test]
fn a_report_of_verdicts_without_one_fails() {
    let file = std::env::temp_dir().join(format!("lab-runner-verdicts-{}.json", std::process::id()));
    std::fs::write(&file, r#"{ "outcomes": [], "failures": ["cyclic: uvmd was gone"] }"#).unwrap();
    let output = runner(&["confusion", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let table = text(&output.stdout);
    assert!(
        table.contains("FAILED: cyclic: uvmd was gone")
            && table.contains("0 right, 0 near a limit, 0 wrong, 1 not judged")
    );
    std::fs::write(&file, "").unwrap();
    assert!(text(&runner(&["confusion", file.to_str().unwrap()]).stderr).contains("is no report"));
    std::fs::remove_file(file).unwrap();
}
