//! What was counted for each phase, against what the driver's rules say and against each other.

use std::{process::Command, thread, time::Duration};

use serde::Serialize;
use sys::uvm::counters::Counted;
use workloads::{
    report::{Header, PhaseReport, Report},
    residency::Prediction,
};

use crate::{daemon::Daemon, deadline::Deadline, held, outside::Outside};

/// Long enough for the driver to be done with faults that were raised twice.
const QUIET: Duration = Duration::from_millis(100);
/// So often figures may still change after a phase.
const READINGS_MAX: u32 = 20;

/// One phase, as each side saw it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PhaseCounts {
    pub(crate) phase: String,
    pub(crate) elapsed_ms: f64,
    /// Not where the GPU reaches host memory in ways that the prediction does not know.
    pub(crate) predicted: Option<Prediction>,
    /// The driver's own counters.
    pub(crate) tools: Option<Counted>,
    pub(crate) uvmd: Option<Counted>,
    /// What does not agree; empty when all is right.
    pub(crate) differences: Vec<String>,
}

/// One workload.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct WorkloadCounts {
    pub(crate) workload: String,
    pub(crate) bytes: u64,
    pub(crate) iterations: u32,
    pub(crate) phases: Vec<PhaseCounts>,
    /// Why it did not come to its end: wrong data, for one.
    pub(crate) failure: Option<String>,
}

impl WorkloadCounts {
    pub(crate) fn is_right(&self) -> bool {
        self.failure.is_none() && self.phases.iter().all(|phase| phase.differences.is_empty())
    }
}

/// What does not agree.
pub(crate) fn differences(predicted: Option<Prediction>, tools: Option<Counted>, uvmd: Option<Counted>) -> Vec<String> {
    let mut found = Vec::new();
    for (who, counted) in [("the driver's counters", tools), ("uvmd", uvmd)] {
        let (Some(predicted), Some(counted)) = (predicted, counted) else { continue };
        let bytes = [
            ("host to GPU", predicted.bytes_htod, counted.bytes_htod),
            ("GPU to host", predicted.bytes_dtoh, counted.bytes_dtoh),
        ];
        for (direction, want, got) in bytes {
            if want != got {
                found.push(format!("{direction}: predicted {want} bytes, {who}: {got}"));
            }
        }
        match (predicted.gpu_faults, counted.fault_entries) {
            (true, 0) => found.push(format!("GPU faults: predicted some, {who}: none")),
            (false, 1..) => found.push(format!("GPU faults: predicted none, {who}: {}", counted.fault_entries)),
            _ => {}
        }
    }
    if let (Some(tools), Some(uvmd)) = (tools, uvmd) {
        let both = [
            ("GPU faults", tools.fault_entries, uvmd.fault_entries),
            ("CPU faults", tools.cpu_faults, uvmd.cpu_faults),
            ("bytes host to GPU", tools.bytes_htod, uvmd.bytes_htod),
            ("bytes GPU to host", tools.bytes_dtoh, uvmd.bytes_dtoh),
        ];
        for (what, tools, uvmd) in both {
            if tools != uvmd {
                found.push(format!("{what}: the driver's counters {tools}, uvmd {uvmd}"));
            }
        }
    }
    found
}

/// Run a workload, and take both sides' figures around each phase.
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
        seen: Vec::new(),
    };
    let result = held::run(command, deadline, &mut observer);
    (observer.seen, result)
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
    tools: Option<Outside>,
    before: Figures,
    seen: Vec<PhaseCounts>,
}

impl Observer<'_> {
    fn figures(&self) -> anyhow::Result<Figures> {
        let uvmd = self.daemon.map(|daemon| daemon.counted(self.pid)).transpose()?;
        Ok(Figures { tools: self.tools.as_ref().and_then(Outside::counted), uvmd })
    }

    /// Once they no longer change.
    fn settled(&self) -> anyhow::Result<Figures> {
        let mut last = self.figures()?;
        for _ in 0..READINGS_MAX {
            thread::sleep(QUIET);
            let now = self.figures()?;
            if now == last {
                break;
            }
            last = now;
        }
        Ok(last)
    }
}

/// Whether [`Prediction`]s hold: not where the GPU walks the CPU's page tables, or the CPU reaches into the GPU's memory.
pub(crate) fn is_predictable(header: &Header) -> bool {
    ["pageable_memory_access_uses_host_page_tables", "direct_managed_mem_access_from_host"]
        .iter()
        .all(|attribute| header.gpu.attributes.get(*attribute).is_none_or(|value| *value == 0))
}

impl held::Observer for Observer<'_> {
    fn begun(&mut self, header: &Header) -> anyhow::Result<()> {
        self.pid = header.pid;
        self.predictable = is_predictable(header);
        self.tools = self.with_tools.then(|| Outside::attach(header.pid)).transpose()?;
        Ok(())
    }

    fn ready(&mut self, _phase: &str) -> anyhow::Result<()> {
        self.before = self.settled()?;
        Ok(())
    }

    fn done(&mut self, report: &PhaseReport) -> anyhow::Result<()> {
        let (before, after) = (self.before, self.settled()?);
        let since = |after: Option<Counted>, before: Option<Counted>| Some(after?.since(before?));
        let (tools, uvmd) = (since(after.tools, before.tools), since(after.uvmd, before.uvmd));
        let predicted = self.predictable.then_some(report.predicted);
        self.seen.push(PhaseCounts {
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
    fn each_side_is_held_against_the_prediction() {
        let short = Counted { bytes_htod: MIB - 65536, ..COUNTED };
        let found = differences(Some(COPIED), Some(COUNTED), Some(short));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("uvmd: 983040"), "{found:?}");
        let idle = Prediction::default();
        let found = differences(Some(idle), Some(COUNTED), None);
        assert!(found.iter().any(|line| line.starts_with("GPU faults: predicted none")), "{found:?}");
        let found = differences(Some(COPIED), Some(Counted { fault_entries: 0, ..COUNTED }), None);
        assert_eq!(found, ["GPU faults: predicted some, the driver's counters: none"]);
    }

    #[test]
    fn the_sides_are_held_against_each_other_also_where_nothing_is_predicted() {
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
