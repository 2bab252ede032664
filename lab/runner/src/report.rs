//! A run's report: what was true, what uvmd said, and whether that is the same.

use std::fmt::{self, Write};

use serde::Serialize;

use crate::{
    check::Checked,
    figures::{Comparison, Figures, Relation, Scope, compare, compare_sums},
    scenario::size::human,
    sys::counters::ProcessCounters,
    sys::swgpu::HardwareCounters,
    truth::{Observed, procfs::GpuStats},
};

const PAGE_BYTES: u64 = 4096;

/// The JSON report of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) scenario: String,
    pub(crate) arch: String,
    pub(crate) driver: String,
    pub(crate) kernel: String,
    pub(crate) gpu_mem_mib: u64,
    pub(crate) verdict: Verdict,
    /// Every byte of every process was what it must be, at every read and at the end.
    pub(crate) verified: bool,
    pub(crate) processes: Vec<ProcessReport>,
    pub(crate) total: TotalReport,
    /// Each figure of each scope, compared.
    pub(crate) comparison: Vec<Comparison>,
    pub(crate) hardware: HardwareCounters,
    /// Why there are no figures of uvmd though they were asked for.
    pub(crate) uvmd_absent: Option<String>,
    /// Why the run does not count, if it does not.
    pub(crate) problems: Vec<String>,
}

/// One process.
#[derive(Debug, Serialize)]
pub(crate) struct ProcessReport {
    pub(crate) name: String,
    pub(crate) pid: u32,
    pub(crate) truth: Figures,
    pub(crate) uvmd: Figures,
    pub(crate) verified: bool,
    #[serde(flatten)]
    pub(crate) checked: Checked,
}

/// The whole machine.
#[derive(Debug, Serialize)]
pub(crate) struct TotalReport {
    pub(crate) truth: Figures,
    pub(crate) uvmd: Figures,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// Data right, and uvmd exact where it must be (or nobody asked for uvmd).
    Pass,
    /// Data wrong, the run invalid, or uvmd not exact.
    Fail,
    /// Data right, but uvmd did not answer.
    NoUvmd,
}

/// What of uvmd there is to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Uvmd {
    /// Nobody asked for it.
    Unwanted,
    /// It did not answer.
    Absent,
    /// It answered.
    Answered,
}

// === impl Verdict ===

impl Verdict {
    pub(crate) const fn exit_code(self) -> u8 {
        match self {
            Self::Pass => 0,
            Self::Fail => 1,
            Self::NoUvmd => 3,
        }
    }
}

// === truth ===

/// A process's truth: the driver's own counters of it.
pub(crate) fn process_truth(counters: Option<ProcessCounters>) -> Figures {
    counters.map_or_else(Figures::default, |counters| Figures {
        fault_entries: Some(counters.fault_entries),
        cpu_faults: Some(counters.cpu_faults),
        bytes_htod: Some(counters.bytes_htod),
        bytes_dtoh: Some(counters.bytes_dtoh),
        ..Figures::default()
    })
}

/// The truth over all processes. `None` for a process whose counters are not known: sums of counters are then not known either.
pub(crate) fn total_truth(driver: &GpuStats, processes: &[Option<ProcessCounters>]) -> Figures {
    let sum = |figure: fn(&ProcessCounters) -> u64| {
        processes.iter().map(|counters| counters.as_ref().map(figure)).sum::<Option<u64>>()
    };
    Figures {
        fault_entries: sum(|counters| counters.fault_entries),
        fault_instances: Some(driver.replayable_faults + driver.non_replayable_faults),
        cpu_faults: sum(|counters| counters.cpu_faults),
        bytes_htod: Some(driver.pages_in * PAGE_BYTES),
        bytes_dtoh: Some(driver.pages_out * PAGE_BYTES),
        // What left the GPU and was not asked for by a fault; nobody calls for migrations here.
        evicted_bytes: driver.pages_out.checked_sub(driver.fault_pages_out).map(|pages| pages * PAGE_BYTES),
        dropped_events: None,
    }
}

/// What is wrong with the truth itself: every figure that has a second source is checked against it.
pub(crate) fn inconsistencies(observed: &Observed, processes: &[Option<ProcessCounters>]) -> Vec<String> {
    let Observed { driver, hardware } = observed;
    let mut found = Vec::new();
    let mut must = |holds: bool, what: String| {
        if !holds {
            found.push(format!("the truth disagrees with itself: {what}"));
        }
    };
    let (htod, dtoh) = (driver.pages_in * PAGE_BYTES, driver.pages_out * PAGE_BYTES);
    let instances = driver.replayable_faults + driver.non_replayable_faults;
    if let Some(counters) = processes.iter().copied().collect::<Option<Vec<ProcessCounters>>>() {
        let sum = |figure: fn(&ProcessCounters) -> u64| counters.iter().map(figure).sum::<u64>();
        let (entries, in_bytes, out_bytes) =
            (sum(|each| each.fault_entries), sum(|each| each.bytes_htod), sum(|each| each.bytes_dtoh));
        must(in_bytes == htod, format!("{htod} bytes to the GPU, but its processes' sum is {in_bytes}"));
        must(out_bytes == dtoh, format!("{dtoh} bytes from the GPU, but its processes' sum is {out_bytes}"));
        let least = instances.saturating_sub(driver.duplicates);
        must(
            (least..=instances).contains(&entries),
            format!("{entries} fault entries, but from {least} to {instances} instances"),
        );
    }
    let copied = hardware.copied_htod_bytes;
    must(copied == htod, format!("{htod} bytes to the GPU, but its copy engine moved {copied}"));
    let copied = hardware.copied_dtoh_bytes;
    must(copied == dtoh, format!("{dtoh} bytes from the GPU, but its copy engine moved {copied}"));
    let packets = hardware.fault_packets;
    must(packets >= instances, format!("{instances} faults, but the GPU raised {packets}"));
    if hardware.unknown_methods > 0 {
        found.push(format!("the software GPU met {} methods it does not know", hardware.unknown_methods));
    }
    if hardware.errors > 0 {
        found.push(format!("the software GPU met {} errors", hardware.errors));
    }
    found
}

// === impl Report ===

impl Report {
    /// Compare all scopes, and judge.
    pub(crate) fn judge(&mut self, uvmd: Uvmd) {
        let processes = self
            .processes
            .iter()
            .flat_map(|process| compare(&process.name, Scope::Process, &process.truth, &process.uvmd));
        let sums: Vec<Figures> = self.processes.iter().map(|process| process.uvmd).collect();
        let sums = compare_sums(&self.total.truth, &sums);
        let total = compare("total", Scope::Total, &self.total.truth, &self.total.uvmd);
        self.comparison = processes.chain(sums).chain(total).collect();
        let valid = self.verified && self.problems.is_empty();
        self.verdict = match uvmd {
            _ if !valid => Verdict::Fail,
            Uvmd::Unwanted => Verdict::Pass,
            Uvmd::Absent => Verdict::NoUvmd,
            Uvmd::Answered if self.comparison.iter().all(|comparison| comparison.holds) => Verdict::Pass,
            Uvmd::Answered => Verdict::Fail,
        };
    }
}

/// For people, in 80 columns.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scenario, arch, driver, kernel, gpu_mem_mib, verdict, .. } = self;
        writeln!(f, "{scenario}: {arch} with {gpu_mem_mib} MiB, driver {driver}, Linux {kernel}")?;
        writeln!(f, "{:<20} {:<16} {:>16} {:>16}", "", "", "truth", "uvmd")?;
        let mut last = "";
        for Comparison { scope, field, relation, truth, uvmd, holds } in &self.comparison {
            let name = if scope == last { "" } else { scope };
            last = scope;
            let ok = match (holds, relation, uvmd) {
                (true, Relation::Unknown, _) | (_, _, None) => "",
                (true, ..) => " ok",
                (false, ..) => " WRONG",
            };
            let name: String = name.chars().take(20).collect();
            writeln!(f, "{name:<20} {:<16} {:>16} {:>16}{ok}", field.name(), Shown(*truth), Shown(*uvmd))?;
        }
        let words: u64 = self.processes.iter().map(|process| process.checked.words_read).sum();
        let bytes: u64 = self.processes.iter().map(|process| process.checked.verified_bytes).sum();
        writeln!(f, "read back: {} words on the way, {} in the end", digits(words), human(bytes))?;
        if let Some(reason) = &self.uvmd_absent {
            writeln!(f, "uvmd: {reason}")?;
        }
        for problem in &self.problems {
            writeln!(f, "problem: {problem}")?;
        }
        match verdict {
            Verdict::Pass if self.total.uvmd == Figures::default() => {
                writeln!(f, "PASS: data verified; uvmd not asked")
            }
            Verdict::Pass => writeln!(f, "PASS: data verified; uvmd is exact"),
            Verdict::NoUvmd => writeln!(f, "NO UVMD: data verified; uvmd does not answer"),
            Verdict::Fail if self.verified => writeln!(f, "FAIL: data verified, but the above is wrong"),
            Verdict::Fail => writeln!(f, "FAIL: not every byte is verified"),
        }
    }
}

/// A figure in a table.
struct Shown(Option<u64>);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(value) = self;
        f.pad(&value.map_or_else(|| "-".to_owned(), digits))
    }
}

/// 1234567 as 1,234,567.
pub(crate) fn digits(number: u64) -> String {
    let plain = number.to_string();
    let mut grouped = String::new();
    for (at, digit) in plain.chars().enumerate() {
        if at > 0 && (plain.len() - at).is_multiple_of(3) {
            let _ = grouped.write_char(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
