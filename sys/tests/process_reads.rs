//! Reads of files of processes that make them hang: real ones, which serve a file system to themselves.
//!
//! Readers hang only on a kernel that takes the lock of an `execve` for `/proc/PID/stat` (6.18 does, 6.12 does
//! not). On other kernels, the same programs are read like any others.
#![cfg(test)]

use std::{
    fs,
    io::{BufRead, BufReader, ErrorKind},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio, id},
    thread,
    time::{Duration, Instant},
};

use sys::{Roots, process_reads, processes};

/// More than may hang at a time.
const PROGRAMS: usize = process_reads::HUNG_PER_USER_MAX + 4;

struct Slow(Child);

impl Drop for Slow {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Programs that hang in their `execve` until the first is dropped; `None` where users may not serve file systems.
fn slow_programs() -> Option<(Slow, Vec<u32>)> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/slow_exec.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("slow_exec");
    let built =
        Command::new("cc").args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).arg(source).status();
    assert!(built.unwrap().success());
    let mut server = Command::new(program).arg(PROGRAMS.to_string()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let slow = Slow(server);
    let mut pids = Vec::new();
    for line in lines.take(PROGRAMS).map(Result::unwrap) {
        let Ok(pid) = line.parse() else {
            println!("not tested: users cannot serve file systems here ({line})");
            return None;
        };
        pids.push(pid);
    }
    assert_eq!(pids.len(), PROGRAMS);
    // Each has written its line and calls execve.
    for pid in &pids {
        // One that hangs counts as well.
        let state = |pid| {
            process_reads::read(&Roots::default(), pid, move || fs::read_to_string(format!("/proc/{pid}/status")))
        };
        wait_until("it hangs in its execve", || state(*pid).map_or(true, |status| status.contains("State:\tD")));
    }
    Some((slow, pids))
}

/// Waits until a condition holds. Fails after a minute, with its name.
fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_mins(1), "not within a minute: {what}");
        thread::yield_now();
    }
}

#[test]
fn programs_that_hang_in_their_execve_hang_no_reader_and_are_alive() {
    let roots = Roots::default();
    let Some((slow, pids)) = slow_programs() else { return };
    let own_uid = processes::user(&roots, id());
    for pid in &pids {
        let error = |error: std::io::Error| {
            assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        };
        // Whether or not the kernel lets these be read, they do not hang.
        let _ = processes::start_ticks(&roots, *pid).map(|ticks| assert!(ticks.is_some())).map_err(error);
        let _ = processes::image(&roots, *pid).map(|image| assert!(image.is_some())).map_err(error);
        let _ = processes::executable(&roots, *pid).map_err(error);
        let _ = processes::live_thread(&roots, *pid).map(|thread| assert_eq!(thread, Some(*pid))).map_err(error);
        assert!(processes::user(&roots, *pid).is_none_or(|uid| Some(uid) == own_uid));
        assert!(processes::ancestors(&roots, *pid).next().is_none_or(|parent| parent == slow.0.id()));
    }
    let hung = process_reads::hung().pids;
    println!("reads of {} of {PROGRAMS} hang", hung.len());
    assert!(hung.iter().all(|pid| pids.contains(pid)) && hung.len() <= process_reads::HUNG_PER_USER_MAX, "{hung:?}");
    // Of the kernels that were tried, this one is known to hang them.
    if fs::read_to_string("/proc/sys/kernel/osrelease").unwrap().starts_with("6.18.") {
        assert!(!hung.is_empty());
    }
    // A process of another user is read meanwhile.
    let mut other = Command::new("sleep");
    if own_uid == Some(0) {
        other.uid(65533);
    }
    let mut other = other.arg("60").spawn().unwrap();
    let other_pid = if own_uid == Some(0) { other.id() } else { 1 };
    assert!(processes::start_ticks(&roots, other_pid).unwrap().is_some());
    other.kill().unwrap();
    other.wait().unwrap();
    // Once their server is dead, so are they.
    drop(slow);
    wait_until("its reads return", || process_reads::hung() == process_reads::Hung::default());
}
