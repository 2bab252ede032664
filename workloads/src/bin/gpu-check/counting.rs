//! Counts of each phase, compared with predictions by the driver's rules and with each other.

use std::{
    process::Command,
    thread,
    time::{Duration, SystemTime},
};

use serde::Serialize;
use sys::uvm::counters::Counted;
use workloads::{
    report::{Header, PhaseReport},
    residency::Prediction,
};

use crate::{
    daemon::{Daemon, Discovery},
    deadline::Deadline,
    remote::RemoteProcess,
    source::Source,
    stepped,
};

/// Interval of readings: the driver completes repeated faults within it.
const READING_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum of readings until the figures are stable.
const READINGS_MAX: u32 = 20;

/// Counts by uvmd with one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct SourceCounts {
    pub(crate) source: Source,
    #[serde(flatten)]
    pub(crate) counted: Counted,
}

/// Counts of one phase, by each source.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PhaseCounts {
    pub(crate) phase: String,
    pub(crate) elapsed_ms: f64,
    /// Prediction; none where the GPU accesses host memory in ways that the prediction does not
    /// model.
    pub(crate) predicted: Option<Prediction>,
    /// The driver's own counters.
    pub(crate) tools: Option<Counted>,
    /// Counts of uvmd, in the order of the sources.
    pub(crate) uvmd: Vec<SourceCounts>,
    /// Disagreements between the counts; empty on success.
    pub(crate) differences: Vec<String>,
}

/// Counts of one workload.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct WorkloadCounts {
    pub(crate) workload: String,
    pub(crate) bytes: u64,
    pub(crate) iterations: u32,
    pub(crate) phases: Vec<PhaseCounts>,
    /// Discoveries of its process by the tools.
    pub(crate) discoveries: Vec<Discovery>,
    /// Reason why the workload did not complete, for example wrong data.
    pub(crate) failure: Option<String>,
}

impl WorkloadCounts {
    pub(crate) fn has_passed(&self) -> bool {
        self.failure.is_none() && self.phases.iter().all(|phase| phase.differences.is_empty())
    }
}

/// Disagreements between a prediction and the counts.
pub(crate) fn differences(predicted: Option<Prediction>, tools: Option<Counted>, uvmd: &[SourceCounts]) -> Vec<String> {
    let mut differences = Vec::new();
    let of_uvmd = uvmd.iter().map(|counts| (counts.source.name(), counts.counted));
    for (source, counted) in tools.map(|tools| ("the driver's counters", tools)).into_iter().chain(of_uvmd.clone()) {
        let Some(predicted) = predicted else { continue };
        let bytes = [
            ("host to GPU", predicted.bytes_htod, counted.bytes_htod),
            ("GPU to host", predicted.bytes_dtoh, counted.bytes_dtoh),
        ];
        for (direction, expected, actual) in bytes {
            if expected != actual {
                differences.push(format!("{direction}: predicted {expected} bytes, {source}: {actual}"));
            }
        }
        match (predicted.gpu_faults, counted.fault_entries) {
            (true, 0) => differences.push(format!("GPU faults: predicted some, {source}: none")),
            (false, 1..) => {
                differences.push(format!("GPU faults: predicted none, {source}: {}", counted.fault_entries));
            }
            _ => {}
        }
    }
    // Without the driver's own counters, the sources of uvmd are compared with its first one.
    let mut all = tools.map(|tools| ("the driver's counters", tools)).into_iter().chain(of_uvmd);
    let Some((reference, expected)) = all.next() else { return differences };
    for (source, counted) in all {
        let counts = [
            ("GPU faults", expected.fault_entries, counted.fault_entries),
            ("CPU faults", expected.cpu_faults, counted.cpu_faults),
            ("bytes host to GPU", expected.bytes_htod, counted.bytes_htod),
            ("bytes GPU to host", expected.bytes_dtoh, counted.bytes_dtoh),
        ];
        for (figure, expected, counted) in counts {
            if expected != counted {
                differences.push(format!("{figure}: {reference} {expected}, {source} {counted}"));
            }
        }
    }
    differences
}

/// Runs a workload, and takes the figures of all sides around each phase. `counts` are those of the
/// workload, without any yet.
pub(crate) fn count(
    command: &mut Command,
    daemons: &[Daemon],
    with_tools: bool,
    deadline: Deadline,
    mut counts: WorkloadCounts,
) -> WorkloadCounts {
    let mut observer = Observer {
        daemons,
        with_tools,
        deadline,
        predictable: true,
        pid: 0,
        tools: None,
        before: Figures::default(),
        counts: &mut counts,
    };
    let result = stepped::run(command, deadline, &mut observer);
    counts.failure = result.err().map(|error| format!("{error:#}"));
    counts
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Figures {
    tools: Option<Counted>,
    uvmd: Vec<SourceCounts>,
}

impl Figures {
    /// Differences from earlier figures of the same sides.
    fn since(&self, earlier: &Self) -> Self {
        let since = |(now, before): (&SourceCounts, &SourceCounts)| SourceCounts {
            counted: now.counted.since(before.counted),
            ..*now
        };
        Self {
            tools: self.tools.zip(earlier.tools).map(|(now, before)| now.since(before)),
            uvmd: self.uvmd.iter().zip(&earlier.uvmd).map(since).collect(),
        }
    }
}

struct Observer<'a> {
    daemons: &'a [Daemon],
    with_tools: bool,
    deadline: Deadline,
    predictable: bool,
    pid: u32,
    tools: Option<RemoteProcess>,
    before: Figures,
    counts: &'a mut WorkloadCounts,
}

impl Observer<'_> {
    fn figures(&self) -> anyhow::Result<Figures> {
        let counts = |daemon: &Daemon| Ok(SourceCounts { source: daemon.source(), counted: daemon.counted(self.pid)? });
        let uvmd = self.daemons.iter().map(counts).collect::<anyhow::Result<_>>()?;
        Ok(Figures { tools: self.tools.as_ref().and_then(RemoteProcess::counted), uvmd })
    }

    /// Figures, once they no longer change.
    fn stable_figures(&self) -> anyhow::Result<Figures> {
        stable(|| self.figures())
    }
}

/// Reads figures until two readings are equal, or several times.
pub(crate) fn stable<T: PartialEq>(mut read: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let mut last = read()?;
    for _ in 0..READINGS_MAX {
        thread::sleep(READING_INTERVAL);
        let now = read()?;
        if now == last {
            break;
        }
        last = now;
    }
    Ok(last)
}

/// Whether [`Prediction`]s hold. They do not if the GPU uses the CPU's page tables, or the CPU
/// accesses GPU memory.
pub(crate) fn is_predictable(header: &Header) -> bool {
    ["pageable_memory_access_uses_host_page_tables", "direct_managed_mem_access_from_host"]
        .iter()
        .all(|attribute| header.gpu.attributes.get(*attribute).is_none_or(|value| *value == 0))
}

impl stepped::Observer for Observer<'_> {
    fn begun(&mut self, header: &Header) -> anyhow::Result<()> {
        let allocated = SystemTime::now();
        self.pid = header.pid;
        self.predictable = is_predictable(header);
        for daemon in self.daemons {
            self.counts.discoveries.extend(daemon.discover(header.pid, allocated, self.deadline)?);
        }
        self.tools = self.with_tools.then(|| RemoteProcess::attach(header.pid)).transpose()?;
        Ok(())
    }

    fn ready(&mut self, _phase: &str) -> anyhow::Result<()> {
        self.before = self.stable_figures()?;
        Ok(())
    }

    fn done(&mut self, report: &PhaseReport) -> anyhow::Result<()> {
        let Figures { tools, uvmd } = self.stable_figures()?.since(&self.before);
        let predicted = self.predictable.then_some(report.predicted);
        self.counts.phases.push(PhaseCounts {
            phase: report.phase.clone(),
            elapsed_ms: report.elapsed_ms,
            predicted,
            tools,
            differences: differences(predicted, tools, &uvmd),
            uvmd,
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, MIB};

    const COPIED: Prediction = Prediction { bytes_htod: MIB, bytes_dtoh: 0, gpu_faults: true };
    const COUNTED: Counted = Counted { fault_entries: 9, cpu_faults: 0, bytes_htod: MIB, bytes_dtoh: 0 };

    fn by_probes(counted: Counted) -> SourceCounts {
        SourceCounts { source: Source::Probes, counted }
    }

    fn by_tools(counted: Counted) -> SourceCounts {
        SourceCounts { source: Source::ToolsMoves, counted }
    }

    #[test]
    fn nothing_differs_where_all_agree() {
        let uvmd = [by_probes(COUNTED), by_tools(COUNTED)];
        assert_eq!(differences(Some(COPIED), Some(COUNTED), &uvmd), Vec::<String>::new());
        assert_eq!(differences(Some(COPIED), None, &[]), Vec::<String>::new());
        assert_eq!(differences(None, Some(COUNTED), &uvmd), Vec::<String>::new());
    }

    #[test]
    fn each_side_is_compared_with_the_prediction() {
        let incomplete = Counted { bytes_htod: MIB - 65536, ..COUNTED };
        let result = differences(Some(COPIED), Some(COUNTED), &[by_probes(incomplete)]);
        assert_eq!(result.len(), 2, "{result:?}");
        assert!(result[0].contains("uvmd's probes: 983040"), "{result:?}");
        let idle = Prediction::default();
        let result = differences(Some(idle), Some(COUNTED), &[]);
        assert!(result.iter().any(|line| line.starts_with("GPU faults: predicted none")), "{result:?}");
        let result = differences(Some(COPIED), Some(Counted { fault_entries: 0, ..COUNTED }), &[]);
        assert_eq!(result, ["GPU faults: predicted some, the driver's counters: none"]);
    }

    #[test]
    fn the_sides_are_compared_with_each_other_also_without_a_prediction() {
        let other = Counted { cpu_faults: 3, ..COUNTED };
        let uvmd = [by_probes(COUNTED), by_tools(other)];
        let expected = ["CPU faults: the driver's counters 0, uvmd's tools, level moves 3"];
        assert_eq!(differences(None, Some(COUNTED), &uvmd), expected);
        let expected = ["CPU faults: uvmd's probes 0, uvmd's tools, level moves 3"];
        assert_eq!(differences(None, None, &uvmd), expected);
    }

    #[test]
    fn without_any_side_the_phases_are_still_reported() {
        let deadline = Deadline::after(Duration::from_secs(30));
        let none = WorkloadCounts { workload: "w".to_owned(), ..WorkloadCounts::default() };
        let counts = count(&mut testing::workload("exit 0"), &[], false, deadline, none);
        assert!(counts.has_passed(), "{counts:?}");
        let names: Vec<&str> = counts.phases.iter().map(|phase| phase.phase.as_str()).collect();
        assert_eq!(names, ["cpu-write", "gpu-read"]);
        let is_alone =
            |phase: &PhaseCounts| phase.predicted.is_some() && phase.tools.is_none() && phase.uvmd.is_empty();
        assert!(counts.phases.iter().all(is_alone));
    }

    #[test]
    fn a_gpu_that_shares_the_cpus_page_tables_is_not_predicted() {
        let mut header = testing::header();
        assert!(is_predictable(&header));
        header.gpu.attributes.insert("pageable_memory_access_uses_host_page_tables".to_owned(), 1);
        assert!(!is_predictable(&header));
    }
}
