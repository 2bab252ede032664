//! `lab-runner complaints`: complaints on a guest's console, up to its last line, which no program
//! in the guest can read.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;
use serde_json::Value;

use crate::truth::complaints::{Judge, Judgement};

/// Marks of the guest's first process around the driver's own tests. The runner in the guest has
/// judged the messages between them, as it knows which ones a test provokes.
const TESTS_BEGIN: &str = "lab: the driver's own tests begin";
const TESTS_END: &str = "lab: the driver's own tests end";

/// Log of a guest that has exited.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) console: PathBuf,
    /// Report of a soak, with the number of processes that it may have killed.
    pub(crate) soak: Option<PathBuf>,
}

/// Judges a console.
pub(crate) fn complaints(options: &Options) -> anyhow::Result<Judgement> {
    let console = &options.console;
    let text = fs::read(console).with_context(|| format!("cannot read {}", console.display()))?;
    // A soak that did not complete wrote no report; none of its leaks is excused.
    let killed = options.soak.as_deref().and_then(|report| killed_at_any_time(report).ok()).unwrap_or(0);
    Ok(judge(&String::from_utf8_lossy(&text), killed))
}

fn killed_at_any_time(report: &Path) -> anyhow::Result<u64> {
    let report: Value = serde_json::from_str(&fs::read_to_string(report)?)?;
    report.get("killed_at_any_time").and_then(Value::as_u64).context("the report does not say how many were killed")
}

/// Judges the lines of a console. Most are in it twice: when they are printed, and in the dump at
/// the end.
fn judge(console: &str, killed: u64) -> Judgement {
    let (mut judge, mut seen, mut in_tests) = (Judge::default(), HashSet::new(), false);
    for line in console.lines().map(str::trim_end) {
        in_tests = (in_tests || line.contains(TESTS_BEGIN)) && !line.contains(TESTS_END);
        if !in_tests && seen.insert(line) {
            judge.read(without_time(line));
        }
    }
    judge.end(killed)
}

/// Message without its time, as in `[    5.414391] nvidia-uvm: ...`; or a line of uvmd.
fn without_time(line: &str) -> &str {
    line.strip_prefix('[').and_then(|line| line.split_once("] ")).map_or(line, |(_, message)| message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAK: &str = "[   64.420893] nvidia-uvm: Memory leak of 73224 bytes detected.\r\n\
        [   64.421167] nvidia-uvm:     Leaked 73224 bytes from uvm_gpu.c:1001:alloc_parent_gpu (0xffa00000005bd008)\r\n";

    #[test]
    fn a_complaint_is_reported_once_and_a_leak_is_not_counted_twice() {
        let console = format!(
            "[    1.0] NVRM: Xid 31\r\n{LEAK}--- uvmd's log\nall is well\n--- the kernel's log\n[    0.5] Booting\r\n\
            [    1.0] NVRM: Xid 31\r\n[    2.0] NVRM: Xid 31\r\n{LEAK}"
        );
        let expected = Judgement {
            complaints: vec!["NVRM: Xid 31".to_owned(), "NVRM: Xid 31".to_owned()],
            excused_leak_bytes: 73_224,
        };
        assert_eq!(judge(&console, 1), expected);
        assert_eq!(judge(&console, 0).complaints.len(), 4);
    }

    #[test]
    fn messages_of_the_drivers_tests_are_not_judged() {
        let between = "[    1.0] nvidia-uvm: provoked\n";
        let console = format!("[    0.9] {TESTS_BEGIN}\n{between}[    1.1] {TESTS_END}\n[    1.2] nvidia-uvm: after\n");
        assert_eq!(judge(&(console.clone() + &console), 0).complaints, ["nvidia-uvm: after"]);
    }

    #[test]
    fn a_panic_of_uvmd_is_a_complaint() {
        assert_eq!(judge("thread 'main' panicked at src/main.rs:1:1:\n", 0).complaints.len(), 1);
    }
}
