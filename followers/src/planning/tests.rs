use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

use model::policy::{POLICIES, of_plans};
use plans::refusal::InvalidAnswer;
use sys::fake::until;
use tempfile::TempDir;

use super::*;

/// Planners in processes that run this script.
struct Scripted {
    planners: Planners,
    folder: TempDir,
}

impl Scripted {
    fn new(script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("planner");
        fs::write(
            &path,
            format!("#!/bin/sh\necho $$ >{}/pid.new\nmv {0}/pid.new {0}/pid\n{script}\n", folder.path().display()),
        )
        .unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Self { planners: Planners::in_processes(Program::at(path)), folder }
    }

    /// Planners of a process with this pid.
    fn start(&self, pid: u32, user: u32) -> Box<dyn Outliner> {
        self.planners.start(ProcessId { pid, start_ticks: 1 }, user, "autoswap")
    }

    /// Folder in /proc of the process that began last.
    fn process(&self) -> PathBuf {
        let pid = until("its process", || fs::read_to_string(self.folder.path().join("pid")).ok());
        PathBuf::from("/proc").join(pid.trim())
    }
}

fn workload() -> Workload {
    let text = r#"{"pieces":{"ops":1,"all":[]},"durations_ns":[1],"queue_starts":[null],
        "memory":{"bytes":1,"room_bytes":1,"launch_bytes_max":1}}"#;
    serde_json::from_str(text).unwrap()
}

/// Answer to a question.
fn answer(script: &str) -> Result<(), String> {
    let scripted = Scripted::new(script);
    let mut outliner = scripted.start(1, 1);
    let answer = outliner.start(workload()).unwrap_or_else(|| until("an answer", || outliner.poll()));
    answer.map(drop).map_err(|refusal| refusal.to_string())
}

#[test]
fn failure_of_a_planner_process_is_a_refusal_with_the_reason() {
    let failed = |reason: &str| Err(format!("the planner process failed: {reason}"));
    assert_eq!(answer("exit 7"), failed("it exited with status 7"));
    assert_eq!(answer("kill -SEGV $$"), failed("it was killed by signal 11: "));
    assert_eq!(answer("echo panicked at x.rs; exit 101"), failed("it panicked at x.rs"));
    assert_eq!(answer("yes"), failed("its output has more than 1048576 bytes"));
    let memory = Refusal::PlanningMemory { limit_bytes: 128 << 20 };
    assert_eq!(answer("echo memory allocation of 8 bytes failed; kill -ABRT $$"), Err(memory.to_string()));
    let malformed = Refusal::InvalidAnswer(InvalidAnswer::Malformed).to_string();
    assert_eq!(answer("echo moves"), Err(malformed.clone()));
    // The script does not read the question.
    assert_eq!(answer("exec <&-; echo"), Err(malformed));
    let planners = Planners::in_processes(Program::at("/nonexistent"));
    let mut outliner = planners.start(ProcessId { pid: 1, start_ticks: 1 }, 1, "autoswap");
    let answer = outliner.start(workload()).unwrap_or_else(|| until("an answer", || outliner.poll()));
    assert!(matches!(answer, Err(Refusal::PlannerFailed { reason }) if reason.contains("No such file")));
    // The reason is temporary.
    assert_eq!((outliner.retry_delay(), outliner.is_retry_due()), (Some(Duration::from_secs(10)), false));
}

#[test]
fn planner_process_is_killed_when_its_answer_is_no_longer_needed() {
    for ends in [
        |outliner: Box<dyn Outliner>| drop(outliner),
        |mut outliner: Box<dyn Outliner>| {
            outliner.cancel();
            assert!(outliner.poll().is_none());
        },
    ] {
        let scripted = Scripted::new("exec sleep 600");
        let mut outliner = scripted.start(1, 1);
        assert_eq!(outliner.start(workload()), None);
        let process = scripted.process();
        assert!(process.exists());
        ends(outliner);
        until("its exit", || (!process.exists()).then_some(()));
    }
}

#[test]
fn turn_of_a_planner_process_ends_with_it() {
    let scripted = Scripted::new("exec sleep 600");
    let mut outliners = [(1, 1), (2, 1), (3, 2), (4, 3)].map(|(pid, user)| scripted.start(pid, user));
    for outliner in &mut outliners {
        assert_eq!(outliner.start(workload()), None);
    }
    let statuses = outliners.each_ref().map(|outliner| outliner.status());
    let (computes, of_user, of_node) = (
        "its plan is being computed",
        "its plan waits for a planner of another process of its user",
        "its plan waits for planners of other users",
    );
    assert_eq!(statuses, [computes, of_user, computes, of_node]);
    outliners[0].cancel();
    let fourth = &mut outliners[3];
    until("the next in turn", || {
        assert_eq!(fourth.poll(), None);
        (fourth.status() == computes).then_some(())
    });
}

#[test]
fn every_policy_of_plans_has_its_methods() {
    for policy in POLICIES.iter().filter_map(|policy| of_plans(policy.name)) {
        let names: Vec<&str> = methods_of(policy.name).iter().map(|method| method.name()).collect();
        if policy.name == PLAN_CHOOSER {
            assert_eq!(names, ["foresight", "autoswap", "appobmem", "g10"]);
        } else {
            assert_eq!(names, [policy.name]);
        }
    }
}
