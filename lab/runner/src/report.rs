//! Report of a run: the truth, uvmd's figures, and their comparison.

use std::fmt;

use gpu::swgpu::HardwareCounters;
use serde::Serialize;

use crate::{
    access_log,
    both::Second,
    check::Checked,
    digits::digits,
    figures::{Comparison, Figures, Relation, Scope, Truth, compare, compare_sums},
    matrix,
    member::End,
    residency::{self, Residency},
    scenario::size::human,
};

/// JSON report of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) scenario: String,
    pub(crate) arch: String,
    pub(crate) driver: String,
    pub(crate) kernel: String,
    /// Memory of each GPU, in MiB.
    pub(crate) gpu_mem_mib: u64,
    pub(crate) verdict: Verdict,
    /// Pass with the driver's counters attached.
    #[serde(flatten)]
    pub(crate) pass: Pass,
    /// Second pass without the driver's counters, which change the path of the driver a little.
    /// Only its totals can be compared.
    pub(crate) without_counters: Option<Pass>,
}

/// A pass: one run of the scenario.
#[derive(Debug, Serialize)]
pub(crate) struct Pass {
    /// Whether every byte of every process that was not killed was right, at every read and at the
    /// end.
    pub(crate) verified: bool,
    pub(crate) processes: Vec<ProcessReport>,
    pub(crate) gpus: Vec<GpuReport>,
    pub(crate) total: TotalReport,
    /// Comparisons of each figure of each scope.
    pub(crate) comparison: Vec<Comparison>,
    /// Comparisons of resident bytes of each process at each GPU.
    pub(crate) residency: Vec<residency::Compared>,
    /// Comparisons of evictions by victim and evictor.
    pub(crate) evictions: Vec<matrix::Compared>,
    /// Reason why evictions are not compared: their truth is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) evictions_not_known: Option<&'static str>,
    /// Comparisons of a second uvmd, if there is one.
    #[serde(rename = "by_tools", skip_serializing_if = "Option::is_none")]
    pub(crate) second: Option<Second>,
    /// Reason why requested figures of uvmd are absent.
    pub(crate) uvmd_absent: Option<String>,
    /// Summary of the access log, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) access_log: Option<access_log::Summary>,
    /// Whether sums over all processes are not compared, as processes of others were running.
    #[serde(skip)]
    pub(crate) sums_left_out: bool,
    /// Reasons why the pass is invalid; empty if valid.
    pub(crate) problems: Vec<String>,
}

/// Report of a process.
#[derive(Debug, Serialize)]
pub(crate) struct ProcessReport {
    pub(crate) name: String,
    /// Null for a process that was never started.
    pub(crate) pid: Option<u32>,
    pub(crate) end: Option<End>,
    pub(crate) truth: Truth,
    pub(crate) uvmd: Figures,
    pub(crate) verified: bool,
    #[serde(flatten)]
    pub(crate) checked: Checked,
    /// Residency of its memory when the figures were taken; null for a process that had ended.
    pub(crate) residency: Option<Vec<Residency>>,
}

/// Report of a GPU.
#[derive(Debug, Serialize)]
pub(crate) struct GpuReport {
    pub(crate) gpu: usize,
    pub(crate) uuid: String,
    pub(crate) truth: Truth,
    pub(crate) uvmd: Figures,
    pub(crate) hardware: HardwareCounters,
    /// Reused frames, by the software GPU's ledger.
    pub(crate) frames: Vec<FrameReport>,
}

/// Frames of a GPU that another process reused, or the same process for other memory.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct FrameReport {
    /// Name of a process.
    pub(crate) victim: String,
    /// Name of a process, or `driver` for page tables.
    pub(crate) taker: String,
    /// Whether the frames were reused for unmanaged memory.
    pub(crate) unmanaged: bool,
    /// Number of reuses of a frame or a part of one.
    pub(crate) frames: u64,
    /// Bytes of the victim's pages in the frames, copied out before.
    pub(crate) copied_out_bytes: u64,
}

/// Report of the whole machine.
#[derive(Debug, Default, Serialize)]
pub(crate) struct TotalReport {
    pub(crate) truth: Truth,
    pub(crate) uvmd: Figures,
}

/// Verdict of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// Data right, and uvmd exact where required, or not requested.
    Pass,
    /// Data right, but uvmd did not respond.
    NoUvmd,
    /// Data wrong, the run invalid, or uvmd not exact.
    Fail,
}

/// Availability of uvmd's figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Uvmd {
    /// Not requested.
    Unwanted,
    /// No response.
    Absent,
    /// A response.
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

// === impl Pass ===

impl Pass {
    /// Omit sums over all processes from the comparison, as uvmd's sums contain processes of others
    /// that were running.
    pub(crate) const fn leave_out_sums(&mut self) {
        self.sums_left_out = true;
    }

    /// Compare the scopes that have a truth in this pass, and return the verdict.
    pub(crate) fn judge(&mut self, uvmd: Uvmd, with_processes: bool) -> Verdict {
        let processes = self
            .processes
            .iter()
            .filter(|process| with_processes && process.pid.is_some())
            .flat_map(|process| compare(&process.name, Scope::Process, &process.truth, &process.uvmd));
        let pairs: Vec<_> = self.processes.iter().map(|process| (&process.truth, &process.uvmd)).collect();
        let sums = if with_processes { compare_sums(&self.total.truth, &pairs) } else { Vec::new() };
        // The figures of a single GPU equal the total.
        let gpus = self.gpus.iter().filter(|_| self.gpus.len() > 1);
        let gpus = gpus.flat_map(|gpu| compare(&format!("gpu{}", gpu.gpu), Scope::Gpu, &gpu.truth, &gpu.uvmd));
        let total = compare("total", Scope::Total, &self.total.truth, &self.total.uvmd);
        let machine: Vec<_> = if self.sums_left_out { Vec::new() } else { gpus.chain(total).collect() };
        self.comparison = processes.chain(sums).chain(machine).collect();
        match uvmd {
            _ if !self.verified || !self.problems.is_empty() => Verdict::Fail,
            Uvmd::Unwanted => Verdict::Pass,
            Uvmd::Absent => Verdict::NoUvmd,
            Uvmd::Answered if self.holds() => Verdict::Pass,
            Uvmd::Answered => Verdict::Fail,
        }
    }

    fn holds(&self) -> bool {
        self.comparison.iter().all(|compared| compared.holds)
            && self.residency.iter().all(|compared| compared.holds)
            && self.evictions.iter().all(|compared| compared.holds)
            && self.second.iter().all(Second::holds)
    }

    /// Set uvmd's figures to null, and record the reason in the report.
    pub(crate) fn without_uvmd(&mut self, error: &anyhow::Error) -> Uvmd {
        self.uvmd_absent = Some(format!("{error:#}"));
        self.processes.iter_mut().for_each(|process| process.uvmd = Figures::default());
        self.gpus.iter_mut().for_each(|gpu| gpu.uvmd = Figures::default());
        self.total.uvmd = Figures::default();
        Uvmd::Absent
    }
}

/// Table for readers, in 80 columns. Rows without figures, or with 0 on both sides, are omitted.
impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without any figure of uvmd, no figure of uvmd is wrong.
        rows(f, &self.comparison, self.total.uvmd.is_empty())?;
        self.residency.iter().filter(|compared| compared.is_of_interest()).try_for_each(|compared| compared.fmt(f))?;
        self.evictions.iter().try_for_each(|compared| compared.fmt(f))?;
        if let Some(Second { comparison, with_probes }) = &self.second {
            writeln!(f, "{:<14} {:<23} {:>17} {:>17}", "by tools", "", "truth", "uvmd")?;
            rows(f, comparison, false)?;
            writeln!(f, "{:<14} {:<23} {:>17} {:>17}", "both", "", "probes", "tools")?;
            rows(f, with_probes, false)?;
        }
        if let Some(reason) = &self.uvmd_absent {
            writeln!(f, "uvmd: {reason}")?;
        }
        if let Some(summary) = &self.access_log {
            writeln!(f, "{summary}")?;
        }
        for problem in &self.problems {
            writeln!(f, "problem: {problem}")?;
        }
        Ok(())
    }
}

/// Write the lines of comparisons. `is_absent`: none has a figure of uvmd.
fn rows(f: &mut fmt::Formatter<'_>, comparisons: &[Comparison], is_absent: bool) -> fmt::Result {
    let mut last = "";
    for Comparison { scope, field, relation, truth, uvmd, holds } in comparisons {
        let holds = *holds || is_absent;
        let is_zero = truth.unwrap_or(0) == 0 && uvmd.unwrap_or(0) == 0;
        if holds && (is_zero || *relation == Relation::Zero) {
            continue;
        }
        let name = if scope == last { "" } else { scope };
        last = scope;
        let mark = match (holds, relation, uvmd) {
            (true, Relation::Unknown, _) | (true, _, None) => "",
            (true, Relation::AtMost, _) => " ok >=",
            (true, Relation::AtLeast, _) => " ok <=",
            (true, ..) => " ok",
            (false, ..) => " WRONG",
        };
        row(f, name, field, [*truth, *uvmd], mark)?;
    }
    Ok(())
}

/// Write a line of the table: scope, field, truth, uvmd's figure, and a mark of the result.
fn row(f: &mut fmt::Formatter<'_>, scope: &str, field: &str, figures: [Option<u64>; 2], mark: &str) -> fmt::Result {
    let cut = |text: &str, width| text.chars().take(width).collect::<String>();
    let [truth, uvmd] = figures.map(Cell);
    writeln!(f, "{:<14} {:<23} {truth:>17} {uvmd:>17}{mark}", cut(scope, 14), cut(field, 23))
}

const fn mark_of(holds: bool) -> &'static str {
    if holds { " ok" } else { " WRONG" }
}

impl fmt::Display for residency::Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { process, gpu, truth_bytes, uvmd, holds } = self;
        let figures = [Some(*truth_bytes), uvmd.map(|reported| reported.bytes)];
        row(f, process, &format!("resident at gpu{gpu}"), figures, mark_of(*holds))?;
        match uvmd.filter(|reported| !holds || reported.min_bytes != reported.max_bytes) {
            None => Ok(()),
            Some(reported) => row(f, "", "  from, to", [reported.min_bytes, reported.max_bytes].map(Some), ""),
        }
    }
}

impl fmt::Display for matrix::Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { gpu, victim, evictor, cause, truth, uvmd, page_table_bytes, holds } = self;
        let lost = format!("lost to {evictor}");
        row(f, victim, &lost, [truth.bytes, uvmd.bytes].map(Some), mark_of(*holds))?;
        row(f, "", &format!("  {cause}, gpu{gpu}"), [truth.evictions, uvmd.evictions].map(Some), " times")?;
        match page_table_bytes {
            0 => Ok(()),
            bytes => row(f, "", "  and for page tables", [Some(*bytes), None], ""),
        }
    }
}

// === impl Report ===

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scenario, arch, driver, kernel, gpu_mem_mib, verdict, pass, without_counters } = self;
        writeln!(f, "{scenario}: {arch} with {gpu_mem_mib} MiB, driver {driver}, Linux {kernel}")?;
        writeln!(f, "{:<14} {:<23} {:>17} {:>17}", "", "", "truth", "uvmd")?;
        write!(f, "{pass}")?;
        if let Some(pass) = without_counters {
            writeln!(f, "once more without the driver's counters")?;
            write!(f, "{pass}")?;
        }
        let passes = || [pass].into_iter().chain(without_counters);
        let sum = |figure: fn(&Checked) -> u64| -> u64 {
            passes().flat_map(|pass| &pass.processes).map(|process| figure(&process.checked)).sum()
        };
        let (words, bytes) = (sum(|checked| checked.words_read), sum(|checked| checked.verified_bytes));
        writeln!(f, "read back: {} words on the way, {} in the end", digits(words), human(bytes))?;
        match verdict {
            Verdict::Pass if pass.total.uvmd.is_empty() => writeln!(f, "PASS: data verified; uvmd not asked"),
            Verdict::Pass => writeln!(f, "PASS: data verified; uvmd is exact"),
            Verdict::NoUvmd => writeln!(f, "NO UVMD: data verified; uvmd does not answer"),
            Verdict::Fail if passes().all(|pass| pass.verified) => {
                writeln!(f, "FAIL: data verified, but the above is wrong")
            }
            Verdict::Fail => writeln!(f, "FAIL: not every byte is verified"),
        }
    }
}

/// Cell of a table with a figure.
struct Cell(Option<u64>);

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(value) = self;
        f.pad(&value.map_or_else(|| "-".to_owned(), digits))
    }
}

#[cfg(test)]
mod tests;
