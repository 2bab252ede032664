//! `uvmctl run`, and `uvmctl ops` of what it records.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use api::{Op, OpAction, Ops};

use crate::support::{Canned, busy, run, serve_snapshot, stderr, stdout, uvmctl};

/// A recording with one call.
fn recorded() -> Canned {
    let action = OpAction::Malloc { address: "0x10000".to_owned(), bytes: 4096, kind: "managed".to_owned(), device: 0 };
    let op = Op { sequence: 3, time_ns: 5, tid: 182, is_asynchronous: false, is_cut: false, action };
    let ops = Ops { state: "ended".to_owned(), calls: 9, calls_retained: 1, calls_dropped: 8, ..Ops::default() };
    Canned::default().with("/api/v1/processes/182/ops", &Ops { ops: vec![op], ..ops })
}

#[test]
fn calls_are_listed_with_what_is_missing() {
    let output = run(&recorded().serve(), &["ops", "182"]);
    assert_eq!(
        stdout(&output),
        "NUMBER     MS  TID  CALL\n     3  0.000  182  malloc 0x10000 4.0 KiB managed of device 0\n"
    );
    assert_eq!(stderr(&output), "uvmctl: ended: 9 calls, the last 1 retained; 8 dropped\n");
}

#[test]
fn process_without_a_recording_fails_with_the_remedy() {
    let output = run(&serve_snapshot(busy()), &["ops", "41207"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("the helper is not in it, or is off, as under a seccomp filter"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn trace_is_written_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("182.trace");
    let to = path.to_str().unwrap();
    let trace = serde_json::json!({ "blocks": [{ "bytes": 4096 }], "ops": [{ "time_ns": 5, "malloc": 0 }] });
    let daemon = Canned::default().with("/api/v1/processes/182/ops/trace", &trace);
    let output = run(&daemon.serve(), &["ops", "182", "--trace", to]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    trace_sources::import::load(&path).unwrap();
    assert!(stderr(&output).contains("period: none found; sim and plan need --mallocs"), "{}", stderr(&output));
    fs::remove_file(&path).unwrap();
    let broken = Canned::default().with("/api/v1/processes/182/ops/trace", &serde_json::json!({ "ops": 1 }));
    let output = run(&broken.serve(), &["ops", "182", "--trace", to]);
    assert_eq!((output.status.code(), path.exists()), (Some(1), false));
}

#[test]
fn period_of_a_trace_is_that_of_sim_and_plan() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("182.trace");
    // 12 iterations of 60 allocations of different sizes, all freed at the end of each.
    let sizes: Vec<u64> = (0..12 * 60).map(|malloc| 4096 * (1 + malloc % 60)).collect();
    let blocks: Vec<_> = sizes.iter().map(|bytes| serde_json::json!({ "bytes": bytes })).collect();
    let mut ops = Vec::new();
    for iteration in 0..12 {
        let of_iteration = iteration * 60..(iteration + 1) * 60;
        let mut push = |kind: &str, block: usize| ops.push(serde_json::json!({ "time_ns": ops.len(), kind: block }));
        of_iteration.clone().for_each(|block| push("malloc", block));
        of_iteration.for_each(|block| push("free", block));
    }
    let trace = serde_json::json!({ "blocks": blocks, "ops": ops });
    let daemon = Canned::default().with("/api/v1/processes/182/ops/trace", &trace);
    let output = run(&daemon.serve(), &["ops", "182", "--trace", path.to_str().unwrap()]);
    let period = stderr(&output);
    assert!(period.starts_with("uvmctl: period: --mallocs 60 --first-malloc "), "{period}");
    let options: Vec<&str> = period.trim_start_matches("uvmctl: period: ").split([' ', ',']).take(4).collect();
    let plan = |options: &[&str]| {
        let output =
            run("http://192.0.2.1:1", &[&["plan", "pool", "--trace", path.to_str().unwrap()], options].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stdout(&output)
    };
    assert_eq!(plan(&options), plan(&[]));
}

/// Runs a program through `uvmctl run`: exit code and both outputs.
fn run_with(helper: &Path, preload: Option<&str>, program: &[&str]) -> (Option<i32>, String, String) {
    let mut command = uvmctl("http://127.0.0.1:1");
    command.arg("run").arg("--helper").arg(helper).arg("--").args(program).env_remove("LD_PRELOAD");
    let output = preload.into_iter().fold(&mut command, |command, value| command.env("LD_PRELOAD", value)).output();
    let output = output.unwrap();
    (output.status.code(), stdout(&output), stderr(&output))
}

#[test]
fn program_runs_with_the_helper_in_its_environment_and_keeps_its_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let helper = folder.path().canonicalize().unwrap().join("helper.so");
    // The loader says that it is no library, and goes on.
    fs::write(&helper, "").unwrap();
    let (code, text, _) = run_with(&helper, None, &["sh", "-c", "echo $LD_PRELOAD $UVMD_HELPER; exit 7"]);
    assert_eq!((code, text), (Some(7), format!("{} record\n", helper.display())));
    let (_, text, _) = run_with(&helper, Some("/nowhere/other.so"), &["sh", "-c", "echo $LD_PRELOAD"]);
    assert_eq!(text, format!("{}:/nowhere/other.so\n", helper.display()));
}

#[test]
fn program_that_cannot_have_the_helper_is_not_run() {
    let folder = tempfile::tempdir().unwrap();
    let helper = folder.path().join("helper.so");
    let (code, text, reason) = run_with(&helper, None, &["echo"]);
    assert_eq!((code, text.as_str()), (Some(125), ""));
    assert!(reason.contains("no helper"), "{reason}");
    fs::write(&helper, "").unwrap();
    let privileged = folder.path().join("echo");
    fs::copy("/bin/echo", &privileged).unwrap();
    fs::set_permissions(&privileged, fs::Permissions::from_mode(0o4755)).unwrap();
    let (code, text, reason) = run_with(&helper, None, &[privileged.to_str().unwrap()]);
    assert_eq!((code, text.as_str()), (Some(125), ""));
    assert!(reason.contains("gets the privileges of its file"), "{reason}");
    let (code, _, reason) = run_with(&helper, None, &["no-such-program"]);
    assert_eq!(code, Some(127), "{reason}");
}
