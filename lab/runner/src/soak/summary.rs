//! Summary of a soak.

use std::{fmt, time::Duration};

use serde::Serialize;
use serde_json::Value;

use crate::{digits::digits, scenario::size::human, service::Service};

/// Summary, as in the report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Summary {
    /// Seed of the first scenario; each later one has the next number. `lab-runner generate --seed`
    /// prints them.
    seed: u64,
    pub(super) seconds: u64,
    /// Scenarios that ran to their end with uvmd's figures equal to the truth.
    pub(super) whole: u64,
    /// Scenarios in which uvmd was killed.
    pub(super) uvmd_killed: u64,
    /// Scenarios whose runner was killed.
    pub(super) runner_killed: u64,
    /// Runners that were killed, and their processes: an upper bound of the processes killed during
    /// registration of a GPU.
    pub(super) killed_at_any_time: u64,
    processes: u64,
    processes_killed: u64,
    words_read: u64,
    verified_bytes: u64,
    fault_instances: u64,
    moved_bytes: u64,
    evicted_bytes: u64,
    memory: Vec<MemorySample>,
    pub(crate) failures: Vec<Failure>,
}

/// uvmd's resident memory at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct MemorySample {
    seconds: u64,
    /// Number of uvmd's execution, from 1: uvmd is restarted after a kill.
    life: u64,
    rss_kib: u64,
}

/// Failure that ended the soak.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Failure {
    pub(crate) seed: u64,
    pub(crate) fate: String,
    pub(crate) reason: String,
}

/// Rounds after which uvmd's memory is warm: tables of the processes that it remembers, threads,
/// buffers.
const WARM_ROUNDS: usize = 20;
/// Allowed growth from then on, for the inexactness of allocators.
const SLACK_KIB: u64 = 2048;

impl Summary {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// Adds the report of a completed run.
    pub(super) fn add(&mut self, report: &Value) {
        let number = |value: &Value, pointer: &str| value.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
        for process in report["processes"].as_array().into_iter().flatten() {
            self.processes += 1;
            self.processes_killed += u64::from(process["end"].as_str().is_some_and(|end| end.starts_with("killed")));
            self.words_read += number(process, "/words_read");
            self.verified_bytes += number(process, "/verified_bytes");
        }
        self.fault_instances += number(report, "/total/truth/fault_instances");
        self.moved_bytes += ["htod", "dtoh", "dtod"]
            .map(|way| number(report, &format!("/total/truth/bytes_{way}")))
            .iter()
            .sum::<u64>();
        self.evicted_bytes += number(report, "/total/truth/evicted_bytes");
    }

    pub(super) fn sample(&mut self, since: Duration, service: &Service) -> anyhow::Result<()> {
        let rss_kib = service.rss_kib()?;
        self.memory.push(MemorySample { seconds: since.as_secs(), life: service.life, rss_kib });
        Ok(())
    }

    /// Checks that the memory of an execution does not grow once it is warm.
    pub(super) fn check_memory(&mut self) {
        let lives = self.memory.last().map_or(0, |last| last.life);
        for life in 1..=lives {
            let samples: Vec<u64> =
                self.memory.iter().filter(|sample| sample.life == life).map(|sample| sample.rss_kib).collect();
            let Some((warm, later)) = samples.split_at_checked(WARM_ROUNDS) else { continue };
            let (before, after) = (warm.iter().max().copied().unwrap_or(0), later.iter().max().copied().unwrap_or(0));
            if after > before + before / 10 + SLACK_KIB {
                let reason = format!("uvmd grew from {before} to {after} KiB in its life {life}");
                self.failures.push(Failure { seed: self.seed, fate: "Memory".to_owned(), reason });
            }
        }
    }
}

/// Display in 80 columns.
impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut row = |name: &str, value: String| writeln!(f, "{name:<34} {value:>20}");
        let scenarios = self.whole + self.uvmd_killed + self.runner_killed;
        row("seconds", digits(self.seconds))?;
        row("scenarios", digits(scenarios))?;
        row("  to their end, uvmd exact", digits(self.whole))?;
        row("  uvmd killed", digits(self.uvmd_killed))?;
        row("  the runner killed", digits(self.runner_killed))?;
        row("processes", digits(self.processes))?;
        row("  killed", digits(self.processes_killed))?;
        row("words read and compared", digits(self.words_read))?;
        row("verified in the end", human(self.verified_bytes))?;
        row("GPU faults", digits(self.fault_instances))?;
        row("copied", human(self.moved_bytes))?;
        row("evicted, where that is known", human(self.evicted_bytes))?;
        let rss = || self.memory.iter().map(|sample| sample.rss_kib);
        let (least, most) = (rss().min().unwrap_or(0), rss().max().unwrap_or(0));
        row("uvmd's memory, KiB", format!("{} to {}", digits(least), digits(most)))?;
        let lives = self.memory.last().map_or(0, |last| last.life);
        row("uvmd's lives", digits(lives))?;
        for Failure { seed, fate, reason } in &self.failures {
            writeln!(f, "FAILED: seed {seed}, {fate}: {reason}")?;
        }
        let verdict = if self.failures.is_empty() { "PASS" } else { "FAIL" };
        writeln!(f, "{verdict}: soak from seed {}", self.seed)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn with_memory(samples: impl IntoIterator<Item = (u64, u64)>) -> Summary {
        let sample = |(life, rss_kib)| MemorySample { seconds: 0, life, rss_kib };
        let mut summary = Summary { memory: samples.into_iter().map(sample).collect(), ..Summary::new(1) };
        summary.check_memory();
        summary
    }

    #[test]
    fn memory_that_levels_off_is_flat_and_memory_that_goes_on_growing_is_not() {
        let level = |round: u64| (1, 8000 + 100 * round.min(15));
        assert!(with_memory((0..100).map(level)).failures.is_empty());
        assert!(with_memory((0..10).map(|round| (1, 8000 * round))).failures.is_empty(), "not warm yet");
        let failures = with_memory((0..100).map(|round| (1, 8000 + 100 * round))).failures;
        assert!(failures[0].reason.contains("from 9900 to 17900 KiB in its life 1"), "{failures:?}");
        let second = with_memory((0..30).map(level).chain((0..100).map(|round| (2, 5000 + 100 * round))));
        assert_eq!(second.failures.len(), 1, "each life is looked at by itself");
    }

    #[test]
    fn runs_are_added_up_and_shown() {
        let mut summary = Summary::new(7);
        let report = json!({
            "processes": [
                { "end": "killed_itself", "words_read": 10, "verified_bytes": 0 },
                { "end": "finished", "words_read": 5, "verified_bytes": 4096 },
                { "end": { "exited": { "code": 3 } } },
            ],
            "total": { "truth": { "fault_instances": 1234, "bytes_htod": 1, "bytes_dtoh": 2, "bytes_dtod": 3, "evicted_bytes": null } },
        });
        summary.add(&report);
        summary.add(&report);
        let text = summary.to_string();
        for (name, value) in
            [("processes", "6"), ("  killed", "2"), ("words read", "30"), ("GPU faults", "2,468"), ("copied", "12 B")]
        {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            assert!(line.ends_with(value), "{line}");
        }
        assert!(text.ends_with("PASS: soak from seed 7\n"), "{text}");
    }
}
