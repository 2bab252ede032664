//! A run's report: what was true, what uvmd said, and whether that is the same.

use std::fmt;

use serde::Serialize;

use crate::{
    access_log,
    check::Checked,
    digits::digits,
    figures::{Comparison, Figures, Relation, Scope, Truth, compare, compare_sums},
    matrix,
    member::End,
    residency::{self, Residency},
    scenario::size::human,
    sys::swgpu::HardwareCounters,
};

/// The JSON report of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) scenario: String,
    pub(crate) arch: String,
    pub(crate) driver: String,
    pub(crate) kernel: String,
    /// Of each GPU.
    pub(crate) gpu_mem_mib: u64,
    pub(crate) verdict: Verdict,
    /// With the driver's counters attached.
    #[serde(flatten)]
    pub(crate) pass: Pass,
    /// The same scenario once more, without them: they change the driver's path a little, and only totals can be compared.
    pub(crate) without_counters: Option<Pass>,
}

/// A scenario, run once.
#[derive(Debug, Serialize)]
pub(crate) struct Pass {
    /// Every byte of every process that lived to the end was what it must be, at every read and at the end.
    pub(crate) verified: bool,
    pub(crate) processes: Vec<ProcessReport>,
    pub(crate) gpus: Vec<GpuReport>,
    pub(crate) total: TotalReport,
    /// Each figure of each scope, compared.
    pub(crate) comparison: Vec<Comparison>,
    /// What each process had in each GPU's memory, compared.
    pub(crate) residency: Vec<residency::Compared>,
    /// Who lost memory to whom, compared.
    pub(crate) evictions: Vec<matrix::Compared>,
    /// Why that is not compared, where the truth is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) evictions_not_known: Option<&'static str>,
    /// Why there are no figures of uvmd though they were asked for.
    pub(crate) uvmd_absent: Option<String>,
    /// Of the log that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) access_log: Option<access_log::Summary>,
    /// Others were at work: no sums over all are compared.
    #[serde(skip)]
    pub(crate) sums_left_out: bool,
    /// Why the pass does not count, if it does not.
    pub(crate) problems: Vec<String>,
}

/// One process.
#[derive(Debug, Serialize)]
pub(crate) struct ProcessReport {
    pub(crate) name: String,
    /// Null for one that was never started.
    pub(crate) pid: Option<u32>,
    pub(crate) end: Option<End>,
    pub(crate) truth: Truth,
    pub(crate) uvmd: Figures,
    pub(crate) verified: bool,
    #[serde(flatten)]
    pub(crate) checked: Checked,
    /// Where its memory was when the figures were taken; null for a process that had ended by then.
    pub(crate) residency: Option<Vec<Residency>>,
}

/// One GPU.
#[derive(Debug, Serialize)]
pub(crate) struct GpuReport {
    pub(crate) gpu: usize,
    pub(crate) uuid: String,
    pub(crate) truth: Truth,
    pub(crate) uvmd: Figures,
    pub(crate) hardware: HardwareCounters,
    /// Who got whose frame, by the software GPU's ledger.
    pub(crate) frames: Vec<FrameReport>,
}

/// Frames of a GPU that went from one process to another, or to itself for other memory.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct FrameReport {
    /// A process's name.
    pub(crate) victim: String,
    /// A process's name, or `driver`, which puts page tables there.
    pub(crate) taker: String,
    /// For memory that is not managed.
    pub(crate) unmanaged: bool,
    /// Times that a frame, or a part of one, changed hands.
    pub(crate) frames: u64,
    /// The victim's pages in them, copied out before.
    pub(crate) copied_out_bytes: u64,
}

/// The whole machine.
#[derive(Debug, Default, Serialize)]
pub(crate) struct TotalReport {
    pub(crate) truth: Truth,
    pub(crate) uvmd: Figures,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// Data right, and uvmd exact where it must be (or nobody asked for uvmd).
    Pass,
    /// Data right, but uvmd did not answer.
    NoUvmd,
    /// Data wrong, the run invalid, or uvmd not exact.
    Fail,
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

// === impl Pass ===

impl Pass {
    /// Processes of others were at work: what uvmd says of all together is theirs too.
    pub(crate) const fn leave_out_sums(&mut self) {
        self.sums_left_out = true;
    }

    /// Compare the scopes that have a truth in this pass, and judge.
    pub(crate) fn judge(&mut self, uvmd: Uvmd, with_processes: bool) -> Verdict {
        let processes = self
            .processes
            .iter()
            .filter(|process| with_processes && process.pid.is_some())
            .flat_map(|process| compare(&process.name, Scope::Process, &process.truth, &process.uvmd));
        let each: Vec<_> = self.processes.iter().map(|process| (&process.truth, &process.uvmd)).collect();
        let sums = if with_processes { compare_sums(&self.total.truth, &each) } else { Vec::new() };
        // Of one GPU there is no more to say than of all.
        let gpus = self.gpus.iter().filter(|_| self.gpus.len() > 1);
        let gpus = gpus.flat_map(|gpu| compare(&format!("gpu{}", gpu.gpu), Scope::Gpu, &gpu.truth, &gpu.uvmd));
        let total = compare("total", Scope::Total, &self.total.truth, &self.total.uvmd);
        let of_all: Vec<_> = if self.sums_left_out { Vec::new() } else { gpus.chain(total).collect() };
        self.comparison = processes.chain(sums).chain(of_all).collect();
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
    }

    /// A figure that nobody gives stays null, and the report says why.
    pub(crate) fn without_uvmd(&mut self, error: &anyhow::Error) -> Uvmd {
        self.uvmd_absent = Some(format!("{error:#}"));
        self.processes.iter_mut().for_each(|process| process.uvmd = Figures::default());
        self.gpus.iter_mut().for_each(|gpu| gpu.uvmd = Figures::default());
        self.total.uvmd = Figures::default();
        Uvmd::Absent
    }
}

/// For people, in 80 columns. Rows that say nothing, because there is nothing or it is 0 on both sides, are left out.
impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut last = "";
        // Where uvmd said nothing at all, nothing that it said is wrong.
        let is_silent = self.total.uvmd.is_empty();
        for Comparison { scope, field, relation, truth, uvmd, holds } in &self.comparison {
            let holds = *holds || is_silent;
            let nothing = truth.unwrap_or(0) == 0 && uvmd.unwrap_or(0) == 0;
            if holds && (nothing || *relation == Relation::Zero) {
                continue;
            }
            let name = if scope == last { "" } else { scope };
            last = scope;
            let ok = match (holds, relation, uvmd) {
                (true, Relation::Unknown, _) | (true, _, None) => "",
                (true, Relation::AtMost, _) => " ok >=",
                (true, Relation::AtLeast, _) => " ok <=",
                (true, ..) => " ok",
                (false, ..) => " WRONG",
            };
            row(f, name, field, [*truth, *uvmd], ok)?;
        }
        self.residency.iter().filter(|compared| compared.is_of_interest()).try_for_each(|compared| compared.fmt(f))?;
        self.evictions.iter().try_for_each(|compared| compared.fmt(f))?;
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

/// A line of the table: what it is, the truth, uvmd's, and whether that is right.
fn row(f: &mut fmt::Formatter<'_>, scope: &str, field: &str, figures: [Option<u64>; 2], ok: &str) -> fmt::Result {
    let cut = |text: &str, width| text.chars().take(width).collect::<String>();
    let [truth, uvmd] = figures.map(Shown);
    writeln!(f, "{:<14} {:<23} {truth:>17} {uvmd:>17}{ok}", cut(scope, 14), cut(field, 23))
}

const fn verdict_on(holds: bool) -> &'static str {
    if holds { " ok" } else { " WRONG" }
}

impl fmt::Display for residency::Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { process, gpu, truth_bytes, uvmd, holds } = self;
        let figures = [Some(*truth_bytes), uvmd.map(|told| told.bytes)];
        row(f, process, &format!("resident at gpu{gpu}"), figures, verdict_on(*holds))?;
        match uvmd.filter(|told| !holds || told.min_bytes != told.max_bytes) {
            None => Ok(()),
            Some(told) => row(f, "", "  from, to", [told.min_bytes, told.max_bytes].map(Some), ""),
        }
    }
}

impl fmt::Display for matrix::Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { gpu, victim, evictor, cause, truth, uvmd, page_table_bytes, holds } = self;
        let lost = format!("lost to {evictor}");
        row(f, victim, &lost, [truth.bytes, uvmd.bytes].map(Some), verdict_on(*holds))?;
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

/// A figure in a table.
struct Shown(Option<u64>);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(value) = self;
        f.pad(&value.map_or_else(|| "-".to_owned(), digits))
    }
}

#[cfg(test)]
mod tests;
