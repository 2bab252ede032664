//! The programs without a GPU: on the driver of the lab, with and without a device.
#![cfg(test)]

mod stand_in;

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use workloads::{catalog::WORKLOADS, exit, report::Report};

use self::stand_in::{GPU_CHECK, WORKLOAD, on_stand_in};

fn run(command: &mut Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code().unwrap(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

fn workload(arguments: &[&str], settings: &[(&str, &str)]) -> (i32, String, String) {
    run(on_stand_in(WORKLOAD).args(arguments).envs(settings.iter().copied()))
}

fn code(code: u8) -> i32 {
    code.into()
}

#[test]
fn every_workload_runs_verifies_its_data_and_frees_all_resources() {
    let folder = tempfile::tempdir().unwrap();
    for known in WORKLOADS {
        let log = folder.path().join(known.name);
        let arguments = [known.name, "--mib", "1", "--iterations", "2", "--json"];
        let (status, stdout, stderr) = workload(&arguments, &[("CUDA_LAB_LOG", log.to_str().unwrap())]);
        assert_eq!((status, stderr.as_str()), (0, ""), "{}", known.name);
        let report: Report = serde_json::from_str(&stdout).unwrap();
        assert_eq!(report.done.len(), report.header.phases.len());
        assert_eq!((report.header.bytes, report.header.pages), (1 << 20, 256));
    }
    let logs: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(logs.len(), WORKLOADS.len());
    for log in logs {
        let text = fs::read_to_string(&log).unwrap();
        let end: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert_eq!(end["op"], "context_destroy", "{}", log.display());
        assert_eq!(end["freed"], serde_json::json!([]), "blocks left by {}", log.display());
        assert_eq!(end["modules_left"], 0, "{}", log.display());
    }
}

#[test]
fn a_report_has_the_bytes_written_read_and_predicted_as_copied() {
    let (_, stdout, _) = workload(&["cpu-write-gpu-read", "--mib", "2", "--json"], &[]);
    let report: Report = serde_json::from_str(&stdout).unwrap();
    assert_eq!((report.cpu_written_bytes, report.gpu_read_bytes), (2 << 20, 2 << 20));
    assert_eq!((report.predicted.bytes_htod, report.predicted.bytes_dtoh), (2 << 20, 2 << 20));
    let (_, text, _) = workload(&["cpu-write-gpu-read", "--mib", "2"], &[]);
    assert!(text.contains("written by the CPU: 2097152 bytes; read by the GPU: 2097152 bytes"), "{text}");
}

#[test]
fn a_lost_write_of_the_gpu_is_detected_by_the_next_read() {
    let loses = [("CUDA_LAB_LOSES", "1024")];
    let (status, _, stderr) = workload(&["first-touch", "--mib", "1"], &loses);
    assert_eq!(status, code(exit::FAILED));
    assert!(stderr.starts_with("uvm-workload: gpu-read: the GPU's weighed sum is"), "{stderr}");
    let (status, _, stderr) = workload(&["prefetch-back", "--mib", "1"], &loses);
    assert_eq!(status, code(exit::FAILED));
    assert!(stderr.starts_with("uvm-workload: cpu-read: word 1024 is"), "{stderr}");
}

#[test]
fn a_missing_gpu_is_reported_in_one_line_with_its_own_exit_code() {
    let (status, stdout, stderr) = workload(&["first-touch"], &[("CUDA_LAB_DEVICES", "0")]);
    assert_eq!((status, stdout.as_str()), (code(exit::NO_GPU), ""));
    let message = "uvm-workload: CUDA does not start: CUDA_ERROR_NO_DEVICE (no CUDA-capable device is detected)\n";
    assert_eq!(stderr, message);
    let (status, _, stderr) = workload(&["first-touch", "--gpu", "3"], &[]);
    assert_eq!((status, stderr.as_str()), (code(exit::NO_GPU), "uvm-workload: there is no GPU 3: CUDA sees 1\n"));
}

#[test]
fn the_guard_denies_more_than_an_eighth_of_free_memory_unless_forced() {
    let small = [("CUDA_LAB_MEMORY_MIB", "100")];
    let (status, _, stderr) = workload(&["first-touch", "--mib", "16"], &small);
    assert_eq!(status, code(exit::DENIED));
    assert!(stderr.contains("an eighth of the GPU's free memory"), "{stderr}");
    assert_eq!(workload(&["first-touch", "--mib", "8"], &small).0, 0);
    assert_eq!(workload(&["first-touch", "--mib", "16", "--force"], &small).0, 0);
}

#[test]
fn a_gpu_without_page_faults_is_rejected_with_the_reason() {
    let (status, _, stderr) = workload(&["first-touch"], &[("CUDA_LAB_CONCURRENT", "0")]);
    assert_eq!(status, code(exit::UNSUPPORTED));
    assert!(stderr.contains("CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS is 0"), "{stderr}");
}

#[test]
fn a_wrong_command_line_is_reported_without_a_gpu() {
    for wrong in
        [&["fill-the-card"][..], &[], &["random", "--mib", "3"], &["random", "--mib", "0"], &["--hold", "--json"]]
    {
        assert_eq!(workload(wrong, &[("CUDA_LAB_DEVICES", "0")]).0, code(exit::USAGE), "{wrong:?}");
    }
}

#[test]
fn with_hold_it_waits_before_and_after_every_phase_and_does_not_continue_alone() {
    let lines = "\n".repeat(7);
    let (status, stdout, stderr) = stand_in::with_input(&["cpu-write-gpu-read", "--hold", "--mib", "1"], &lines);
    assert_eq!((status, stderr.as_str()), (0, ""));
    let events: Vec<serde_json::Value> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<&str> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(names, ["begun", "ready", "done", "ready", "done", "ready", "done", "ended"]);
    let (status, stdout, stderr) = stand_in::with_input(&["cpu-write-gpu-read", "--hold", "--mib", "1"], "\n\n");
    assert_eq!((status, stdout.lines().count()), (code(exit::FAILED), 3));
    assert!(stderr.contains("standard input ended"), "{stderr}");
}

#[test]
fn the_check_reports_a_missing_gpu_and_still_the_facts() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let (status, stdout, _) = run(on_stand_in(GPU_CHECK).arg("--out").arg(&out).env("CUDA_LAB_DEVICES", "0"));
    assert_eq!(status, code(exit::NO_GPU), "{stdout}");
    assert!(stdout.contains("| GPU | not checked |") && stdout.contains("CUDA_ERROR_NO_DEVICE"), "{stdout}");
    let report: serde_json::Value = serde_json::from_slice(&fs::read(out.join("report.json")).unwrap()).unwrap();
    assert!(report["gpu"].is_null() && report["facts"].as_array().unwrap().len() > 20);
    assert!(fs::read_to_string(out.join("report.md")).unwrap().contains("No GPU here: nothing was measured."));
}

#[test]
fn a_gpu_that_hangs_does_not_block_the_check() {
    let folder = tempfile::tempdir().unwrap();
    let begun = Instant::now();
    let mut command = on_stand_in(GPU_CHECK);
    let (status, stdout, _) =
        run(command.args(["--deadline", "3", "--out"]).arg(folder.path()).env("CUDA_LAB_HANGS", "1"));
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert_eq!(status, 1, "{stdout}");
    assert!(stdout.contains("there was no time left"), "{stdout}");
}

#[test]
fn an_interrupted_check_stops_its_processes_and_still_reports() {
    let folder = tempfile::tempdir().unwrap();
    let begun = Instant::now();
    let mut command = on_stand_in(GPU_CHECK);
    command.env("CUDA_LAB_HANGS", "1").arg("--out").arg(folder.path()).stdout(Stdio::null()).stderr(Stdio::piped());
    // Marks the processes that inherit the environment.
    let mut check = command.env("STARTED_BY", folder.path()).spawn().unwrap();
    let mut lines = BufReader::new(check.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().starts_with("==> migrating")));
    assert!(Command::new("kill").args(["-TERM", &check.id().to_string()]).status().unwrap().success());
    assert_eq!(check.wait().unwrap().code(), Some(1));
    assert!(begun.elapsed() < Duration::from_mins(1), "{:?}", begun.elapsed());
    assert!(fs::read_to_string(folder.path().join("report.md")).unwrap().contains("ended by a signal"));
    let mark = folder.path().to_str().unwrap();
    let environments =
        fs::read_dir("/proc").unwrap().filter_map(|entry| fs::read(entry.ok()?.path().join("environ")).ok());
    assert_eq!(environments.filter(|text| String::from_utf8_lossy(text).contains(mark)).count(), 0);
}
