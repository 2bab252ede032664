//! Statistics of a source.

use std::time::Duration;

use abi::Probe;

/// Statistics of the probes since they were attached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    /// Runs, by [`Probe`].
    pub(crate) hits: Vec<u64>,
    /// The driver's first fatal error, as an `NV_STATUS`.
    pub(crate) fatal_status: Option<u32>,
    /// Dropped events by [`DropReason`].
    pub(crate) dropped: Vec<u64>,
    /// Failed self-tests by [`SelfTest`].
    pub(crate) self_tests: Vec<u64>,
    /// Statistics of the kernel by [`Probe`].
    pub(crate) programs: [ProgramInfo; Probe::COUNT as usize],
    /// Block records by [`RecordFate`](abi::RecordFate).
    pub(crate) records: Vec<u64>,
    /// Destructions of VA spaces whose return must have been missed.
    pub(crate) missed_returns: u64,
}

impl Figures {
    pub(crate) fn program(&self, probe: Probe) -> ProgramInfo {
        self.programs.get(probe as usize).copied().unwrap_or_default()
    }

    /// Runs of probes that the kernel skipped. A lower bound: kernels before 6.7 do not report
    /// skips while another program ran on that CPU, and no kernel reports kprobes that hit within a
    /// kprobe. Missed returns are seen on all of them.
    pub(crate) fn skipped(&self) -> u64 {
        let returns = self.program(Probe::DestroyReturn).skipped;
        let all: u64 = self.programs.iter().map(|program| program.skipped).sum();
        all - returns + returns.max(self.missed_returns)
    }

    /// Destructions of VA spaces that have started and not returned, by the probes.
    pub(crate) fn in_destruction(&self) -> u64 {
        let hits = |probe| self.hits.get(probe as usize).copied().unwrap_or_default();
        hits(Probe::DestroyEntry).saturating_sub(hits(Probe::DestroyReturn))
    }
}

/// Statistics of the kernel about a loaded program, from its descriptor's fdinfo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProgramInfo {
    /// Run time, if the kernel measures it: sysctl `kernel.bpf_stats_enabled`.
    pub(crate) run_time: Option<Duration>,
    /// Runs skipped because another program, or a reader of a map, was active on that CPU.
    pub(crate) skipped: u64,
}

impl ProgramInfo {
    pub(crate) fn parse(fdinfo: &str) -> Self {
        let value = |key: &str| fdinfo.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok());
        Self {
            run_time: value("run_time_ns:").filter(|ns| *ns > 0).map(Duration::from_nanos),
            skipped: value("recursion_misses:").unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_times_require_measurement_by_the_kernel() {
        let fdinfo = "pos:\t0\nprog_type:\t2\nrun_time_ns:\t0\nrun_cnt:\t0\nrecursion_misses:\t3\n";
        assert_eq!(ProgramInfo::parse(fdinfo), ProgramInfo { run_time: None, skipped: 3 });
        let measured = fdinfo.replace("run_time_ns:\t0", "run_time_ns:\t1500");
        assert_eq!(ProgramInfo::parse(&measured).run_time, Some(Duration::from_nanos(1500)));
        assert_eq!(ProgramInfo::parse(""), ProgramInfo::default());
    }

    #[test]
    fn missed_returns_are_skipped_runs_unless_the_kernel_reports_them() {
        let mut figures = Figures { missed_returns: 3, ..Figures::default() };
        figures.programs[Probe::Notify as usize].skipped = 10;
        assert_eq!(figures.skipped(), 13);
        figures.programs[Probe::DestroyReturn as usize].skipped = 4;
        assert_eq!(figures.skipped(), 14);
    }
}
