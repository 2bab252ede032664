//! Counts of each phase, compared with predictions by the driver's rules and with each other.

use std::{process::Command, thread, time::Duration};

use serde::Serialize;
use sys::uvm::counters::Counted;
use workloads::{
    report::{Header, PhaseReport, Report},
    residency::Prediction,
};

use crate::{daemon::Daemon, deadline::Deadline, remote::RemoteProcess, stepped};

/// Interval of readings: the driver completes repeated faults within it.
const READING_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum of readings until the figures are stable.
const READINGS_MAX: u32 = 20;

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
    pub(crate) uvmd: Option<Counted>,
    /// Disagreements between the counts; empty on success.
    pub(crate) differences: Vec<String>,
}

/// Counts of one workload.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct WorkloadCounts {
    pub(crate) workload: String,
    pub(crate) bytes: u64,
    pub(crate) iterations: u32,
    pub(crate) phases: Vec<PhaseCounts>,
    /// Reason why the workload did not complete, for example wrong data.
    pub(crate) failure: Option<String>,
}

impl WorkloadCounts {
    pub(crate) fn has_passed(&self) -> bool {
        self.failure.is_none() && self.phases.iter().all(|phase| phase.differences.is_empty())
    }
}

/// Disagreements between a prediction and the counts.
pub(crate) fn differences(predicted: Option<Prediction>, tools: Option<Counted>, uvmd: Option<Counted>) -> Vec<String> {
    let mut differences = Vec::new();
    for (source, counted) in [("the driver's counters", tools), ("uvmd", uvmd)] {
        let (Some(predicted), Some(counted)) = (predicted, counted) else { continue };
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
    if let (Some(tools), Some(uvmd)) = (tools, uvmd) {
        let counts = [
            ("GPU faults", tools.fault_entries, uvmd.fault_entries),
            ("CPU faults", tools.cpu_faults, uvmd.cpu_faults),
            ("bytes host to GPU", tools.bytes_htod, uvmd.bytes_htod),
            ("bytes GPU to host", tools.bytes_dtoh, uvmd.bytes_dtoh),
        ];
        for (figure, tools, uvmd) in counts {
            if tools != uvmd {
                differences.push(format!("{figure}: the driver's counters {tools}, uvmd {uvmd}"));
            }
        }
    }
    differences
}

/// Runs a workload, and takes the figures of both sides around each phase.
pub(crate) fn count(
    command: &mut Command,
    daemon: Option<&Daemon>,
    with_tools: bool,
    deadline: Deadline,
) -> (Vec<PhaseCounts>, anyhow::Result<Report>) {
    let mut observer = Observer {
        daemon,
        with_tools,
        predictable: true,
        pid: 0,
        tools: None,
        before: Figures::default(),
        phases: Vec::new(),
    };
    let result = stepped::run(command, deadline, &mut observer);
    (observer.phases, result)
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Figures {
    tools: Option<Counted>,
    uvmd: Option<Counted>,
}

struct Observer<'a> {
    daemon: Option<&'a Daemon>,
    with_tools: bool,
    predictable: bool,
    pid: u32,
    tools: Option<RemoteProcess>,
    before: Figures,
    phases: Vec<PhaseCounts>,
}

impl Observer<'_> {
    fn figures(&self) -> anyhow::Result<Figures> {
        let uvmd = self.daemon.map(|daemon| daemon.counted(self.pid)).transpose()?;
        Ok(Figures { tools: self.tools.as_ref().and_then(RemoteProcess::counted), uvmd })
    }

    /// Figures, once they no longer change.
    fn stable_figures(&self) -> anyhow::Result<Figures> {
        let mut last = self.figures()?;
        for _ in 0..READINGS_MAX {
            thread::sleep(READING_INTERVAL);
            let now = self.figures()?;
            if now == last {
                break;
            }
            last = now;
        }
        Ok(last)
    }
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
        self.pid = header.pid;
        self.predictable = is_predictable(header);
        self.tools = self.with_tools.then(|| RemoteProcess::attach(header.pid)).transpose()?;
        Ok(())
    }

    fn ready(&mut self, _phase: &str) -> anyhow::Result<()> {
        self.before = self.stable_figures()?;
        Ok(())
    }

    fn done(&mut self, report: &PhaseReport) -> anyhow::Result<()> {
        let (before, after) = (self.before, self.stable_figures()?);
        let since = |after: Option<Counted>, before: Option<Counted>| Some(after?.since(before?));
        let (tools, uvmd) = (since(after.tools, before.tools), since(after.uvmd, before.uvmd));
        let predicted = self.predictable.then_some(report.predicted);
        self.phases.push(PhaseCounts {
            phase: report.phase.clone(),
            elapsed_ms: report.elapsed_ms,
            predicted,
            tools,
            uvmd,
            differences: differences(predicted, tools, uvmd),
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

    #[test]
    fn nothing_differs_where_all_agree() {
        assert_eq!(differences(Some(COPIED), Some(COUNTED), Some(COUNTED)), Vec::<String>::new());
        assert_eq!(differences(Some(COPIED), None, None), Vec::<String>::new());
        assert_eq!(differences(None, Some(COUNTED), Some(COUNTED)), Vec::<String>::new());
    }

    #[test]
    fn each_side_is_compared_with_the_prediction() {
        let incomplete = Counted { bytes_htod: MIB - 65536, ..COUNTED };
        let result = differences(Some(COPIED), Some(COUNTED), Some(incomplete));
        assert_eq!(result.len(), 2, "{result:?}");
        assert!(result[0].contains("uvmd: 983040"), "{result:?}");
        let idle = Prediction::default();
        let result = differences(Some(idle), Some(COUNTED), None);
        assert!(result.iter().any(|line| line.starts_with("GPU faults: predicted none")), "{result:?}");
        let result = differences(Some(COPIED), Some(Counted { fault_entries: 0, ..COUNTED }), None);
        assert_eq!(result, ["GPU faults: predicted some, the driver's counters: none"]);
    }

    #[test]
    fn the_sides_are_compared_with_each_other_also_without_a_prediction() {
        let other = Counted { cpu_faults: 3, ..COUNTED };
        assert_eq!(differences(None, Some(COUNTED), Some(other)), ["CPU faults: the driver's counters 0, uvmd 3"]);
    }

    #[test]
    fn without_any_side_the_phases_are_still_reported() {
        let deadline = Deadline::after(Duration::from_secs(30));
        let (phases, report) = count(&mut testing::workload("exit 0"), None, false, deadline);
        assert_eq!(report.unwrap(), testing::report());
        let names: Vec<&str> = phases.iter().map(|phase| phase.phase.as_str()).collect();
        assert_eq!(names, ["cpu-write", "gpu-read"]);
        assert!(phases.iter().all(|phase| phase.predicted.is_some() && phase.tools.is_none() && phase.uvmd.is_none()));
    }

    #[test]
    fn a_gpu_that_shares_the_cpus_page_tables_is_not_predicted() {
        let mut header = testing::header();
        assert!(is_predictable(&header));
        header.gpu.attributes.insert("pageable_memory_access_uses_host_page_tables".to_owned(), 1);
        assert!(!is_predictable(&header));
    }
}
