//! Figures of the simulator and of the driver, and their permitted deviation.

use anyhow::ensure;
use serde::{Deserialize, Serialize};
use sim::pages::Counts;

/// A figure of simulator and driver, by its name in reports.
struct Figure {
    name: &'static str,
    of: fn(&Counts) -> u64,
    /// Maximum deviation of the simulator, as a share of the driver's figure; `None` for a figure
    /// that only explains others.
    limit: Option<f64>,
}

const FAULTS: Option<f64> = Some(0.05);
const LINK: Option<f64> = Some(0.02);
const FIGURES: [Figure; 10] = [
    Figure { name: "fault_entries", of: |counts| counts.fault_entries, limit: FAULTS },
    Figure { name: "fault_instances", of: |counts| counts.fault_instances, limit: FAULTS },
    Figure { name: "cpu_faults", of: |counts| counts.cpu_faults, limit: FAULTS },
    Figure { name: "bytes_htod", of: |counts| counts.bytes_htod, limit: LINK },
    Figure { name: "bytes_dtoh", of: |counts| counts.bytes_dtoh, limit: LINK },
    Figure { name: "evicted_bytes", of: |counts| counts.evicted_bytes, limit: LINK },
    Figure { name: "thrashing_pages", of: |counts| counts.thrashing_pages, limit: FAULTS },
    Figure { name: "throttles", of: |counts| counts.throttles, limit: FAULTS },
    Figure { name: "remote_bytes", of: |counts| counts.remote_bytes, limit: LINK },
    // The driver also issues a replay if it polls and finds no fault, which depends on the guest's
    // scheduler.
    Figure { name: "replays", of: |counts| counts.replays, limit: None },
];

/// Compared part of a run's report.
#[derive(Debug, Deserialize)]
pub(super) struct Report {
    scenario: String,
    gpu_mem_mib: u64,
    verdict: String,
    total: Total,
    /// The second run, without the driver's counters.
    without_counters: Option<Rerun>,
}

#[derive(Debug, Deserialize)]
struct Rerun {
    total: Total,
}

#[derive(Debug, Deserialize)]
struct Total {
    /// Figures by name; null for a figure that is not known in this run.
    truth: serde_json::Map<String, serde_json::Value>,
}

/// Figures of the driver in all runs of a scenario.
#[derive(Debug, Default)]
pub(super) struct Lab<'a> {
    pub(super) gpu_mem_mib: Option<u64>,
    runs: Vec<&'a Total>,
}

/// Comparison of a scenario.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Compared {
    pub(super) scenario: String,
    pub(super) gpu_mem_mib: u64,
    pub(super) figures: Vec<Row>,
}

/// Comparison of a figure of a scenario.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) figure: &'static str,
    /// Known values of the driver's runs, in ascending order.
    pub(super) lab: Vec<u64>,
    pub(super) simulated: u64,
    /// Deviation of the simulator from the driver's median, as a share of the median.
    pub(super) error: Option<f64>,
    pub(super) limit: Option<f64>,
    pub(super) holds: bool,
}

impl<'a> Lab<'a> {
    pub(super) fn of(reports: &'a [Report]) -> anyhow::Result<Self> {
        let gpu_mem_mib = reports.first().map(|report| report.gpu_mem_mib);
        let mut runs = Vec::new();
        for Report { scenario, gpu_mem_mib: of, verdict, total, without_counters } in reports {
            ensure!(verdict == "pass", "the run of {scenario} did not pass, so it cannot be compared");
            ensure!(Some(*of) == gpu_mem_mib, "runs of {scenario} are on cards with {gpu_mem_mib:?} and {of} MiB");
            runs.push(total);
            runs.extend(without_counters.as_ref().map(|rerun| &rerun.total));
        }
        Ok(Self { gpu_mem_mib, runs })
    }

    /// Whether there is no run to compare with.
    fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Exact values of a figure in all runs, in ascending order; bounds are omitted.
    fn values(&self, figure: &str) -> Vec<u64> {
        let exact = |total: &&&Total| !total.has_reason("bounds", figure);
        let value = |total: &Total| total.truth.get(figure).and_then(serde_json::Value::as_u64);
        let mut values: Vec<u64> = self.runs.iter().filter(exact).filter_map(|total| value(total)).collect();
        values.sort_unstable();
        values
    }

    /// Whether every run reports a reason why the figure is not known.
    fn is_waived(&self, figure: &str) -> bool {
        self.runs.iter().all(|total| total.has_reason("not_known", figure))
    }
}

impl Total {
    fn has_reason(&self, section: &str, figure: &str) -> bool {
        self.truth.get(section).is_some_and(|figures| figures.get(figure).is_some())
    }
}

impl Compared {
    pub(super) fn new(scenario: &str, gpu_mem_mib: u64, lab: &Lab<'_>, counts: &Counts) -> Self {
        let figures = FIGURES.iter().map(|figure| Row::new(figure, lab, counts)).collect();
        Self { scenario: scenario.to_owned(), gpu_mem_mib, figures }
    }

    pub(super) fn holds(&self) -> bool {
        self.figures.iter().all(|row| row.holds)
    }
}

impl Row {
    fn new(figure: &Figure, runs: &Lab<'_>, counts: &Counts) -> Self {
        let &Figure { name, of, limit } = figure;
        let (lab, simulated) = (runs.values(name), of(counts));
        // A median of 0 counts as 1, so that the deviation of any other value is large.
        let error = median(&lab).map(|lab| (simulated as f64 - lab) / lab.max(1.0));
        // A figure that no run reports was renamed, or is no longer counted, so it does not hold.
        let holds = match (error, limit) {
            (_, None) => true,
            (Some(error), Some(limit)) => error.abs() <= limit,
            (None, Some(_)) => runs.is_empty() || runs.is_waived(name),
        };
        Self { figure: name, lab, simulated, error, limit, holds }
    }
}

/// Median of sorted values.
fn median(values: &[u64]) -> Option<f64> {
    let (low, high) = (values.get(values.len().saturating_sub(1) / 2)?, values.get(values.len() / 2)?);
    Some(u64::midpoint(*low, *high) as f64)
}
