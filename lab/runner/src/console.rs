//! `lab-runner complaints`: what a guest's console says until the very last, when nobody in the guest can look any more.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;
use serde_json::Value;

use crate::truth::complaints::{Judge, Judgement};

/// What the guest's first process puts around the driver's own tests: of the time between, the guest's runner has judged, which knows what a
/// test makes the driver say.
const TESTS_BEGIN: &str = "lab: the driver's own tests begin";
const TESTS_END: &str = "lab: the driver's own tests end";

/// A guest's end, seen from outside.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) console: PathBuf,
    /// A soak's report, which says how many processes it may have killed.
    pub(crate) soak: Option<PathBuf>,
}

/// Judge a console.
pub(crate) fn complaints(options: &Options) -> anyhow::Result<Judgement> {
    let console = &options.console;
    let text = fs::read(console).with_context(|| format!("cannot read {}", console.display()))?;
    // A soak that came to no end wrote no report; nothing of it is excused then.
    let killed = options.soak.as_deref().and_then(|report| killed_at_any_time(report).ok()).unwrap_or(0);
    Ok(judge(&String::from_utf8_lossy(&text), killed))
}

fn killed_at_any_time(report: &Path) -> anyhow::Result<u64> {
    let report: Value = serde_json::from_str(&fs::read_to_string(report)?)?;
    report.get("killed_at_any_time").and_then(Value::as_u64).context("the report does not say how many were killed")
}

/// The console has most lines twice: as they come, and all of them once more in the end.
fn judge(console: &str, killed: u64) -> Judgement {
    let (mut judge, mut heard, mut in_tests) = (Judge::default(), HashSet::new(), false);
    for line in console.lines().map(str::trim_end) {
        in_tests = (in_tests || line.contains(TESTS_BEGIN)) && !line.contains(TESTS_END);
        if !in_tests && heard.insert(line) {
            judge.hear(without_time(line));
        }
    }
    judge.end(killed)
}

/// `[    5.414391] nvidia-uvm: ...`, or a line of uvmd's.
fn without_time(line: &str) -> &str {
    line.strip_prefix('[').and_then(|line| line.split_once("] ")).map_or(line, |(_, message)| message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAK: &str = "[   64.420893] nvidia-uvm: Memory leak of 73224 bytes detected.\r\n\
        [   64.421167] nvidia-uvm:     Leaked 73224 bytes from uvm_gpu.c:1001:alloc_parent_gpu (0xffa00000005bd008)\r\n";

    #[test]
    fn a_complaint_is_told_once_and_a_leak_is_not_counted_twice() {
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
    fn what_a_test_of_the_drivers_provokes_is_not_judged_here() {
        let between = "[    1.0] nvidia-uvm: provoked\n";
        let console = format!("[    0.9] {TESTS_BEGIN}\n{between}[    1.1] {TESTS_END}\n[    1.2] nvidia-uvm: after\n");
        assert_eq!(judge(&(console.clone() + &console), 0).complaints, ["nvidia-uvm: after"]);
    }

    #[test]
    fn a_panic_of_uvmd_is_a_complaint() {
        assert_eq!(judge("thread 'main' panicked at src/main.rs:1:1:\n", 0).complaints.len(), 1);
    }
}
