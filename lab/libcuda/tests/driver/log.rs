//! The log, held against what a program does.

use std::fs;

use crate::support::{Context, in_process, managed, ok, succeeds};

#[test]
#[ignore = "run by another test in a process of its own"]
fn a_program_with_a_log() {
    let context = Context::new();
    let address = managed(8192);
    ok!(cuMemPrefetchAsync(address, 8192, 0, std::ptr::null_mut()));
    ok!(cuMemsetD32_v2(address, 0, 4));
    ok!(cuMemcpyDtoD_v2(address + 16, address, 16));
    ok!(cuCtxSynchronize());
    ok!(cuMemFree_v2(address));
    drop(context);
}

#[test]
fn the_log_has_every_operation_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    succeeds("log::a_program_with_a_log", &[("CUDA_LAB_LOG", path.to_str().unwrap())]);
    let file = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    let lines: Vec<serde_json::Value> =
        fs::read_to_string(file).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let operations: Vec<&str> = lines.iter().map(|line| line["op"].as_str().unwrap()).collect();
    assert_eq!(operations, ["malloc", "prefetch", "memset", "memcpy", "sync", "free", "context_destroy"]);
    let numbers: Vec<u64> = lines.iter().map(|line| line["seq"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(lines[0]["address"], lines[1]["address"]);
    assert_eq!((&lines[0]["kind"], &lines[3]["bytes"]), (&"managed".into(), &16.into()));
}

#[test]
#[ignore = "run by another test in a process of its own"]
fn a_program_that_is_killed() {
    std::mem::forget(Context::new());
    for _ in 0..10 {
        managed(8192);
    }
    // SAFETY: ends this process, without anything of its own at the end.
    unsafe { libc::raise(libc::SIGKILL) };
}

#[test]
fn no_line_is_lost_when_a_process_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let output = in_process("log::a_program_that_is_killed", &[("CUDA_LAB_LOG", path.to_str().unwrap())]);
    assert!(!output.status.success());
    let file = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    assert_eq!(fs::read_to_string(file).unwrap().lines().count(), 10);
}
