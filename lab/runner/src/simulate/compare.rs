//! What the simulator counted beside what the driver did, and how far apart that may be.

use anyhow::ensure;
use serde::{Deserialize, Serialize};
use sim::pages::Counts;

/// A figure of both sides, by its name in reports.
struct Figure {
    name: &'static str,
    of: fn(&Counts) -> u64,
    /// How far the simulator may be off, of what the driver did; where there is no limit, the figure only says more of the others.
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
    // The driver also issues one where it looks and finds nothing, which is left to the guest's scheduler.
    Figure { name: "replays", of: |counts| counts.replays, limit: None },
];

/// Of a run's report, what is compared.
#[derive(Debug, Deserialize)]
pub(super) struct Report {
    scenario: String,
    gpu_mem_mib: u64,
    verdict: String,
    total: Total,
    /// The same once more.
    without_counters: Option<Again>,
}

#[derive(Debug, Deserialize)]
struct Again {
    total: Total,
}

#[derive(Debug, Deserialize)]
struct Total {
    /// Null for what is not known of a run.
    truth: serde_json::Map<String, serde_json::Value>,
}

/// What the driver did, each time that a scenario ran.
#[derive(Debug, Default)]
pub(super) struct Lab<'a> {
    pub(super) gpu_mem_mib: Option<u64>,
    runs: Vec<&'a Total>,
}

/// One scenario.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Compared {
    pub(super) scenario: String,
    pub(super) gpu_mem_mib: u64,
    pub(super) figures: Vec<Row>,
}

/// One figure of a scenario.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) figure: &'static str,
    /// What the driver did each time that somebody knows of, the least first.
    pub(super) lab: Vec<u64>,
    pub(super) simulated: u64,
    /// How far the simulator is off the driver's median, as a part of that.
    pub(super) error: Option<f64>,
    pub(super) limit: Option<f64>,
    pub(super) holds: bool,
}

impl<'a> Lab<'a> {
    pub(super) fn of(reports: &'a [Report]) -> anyhow::Result<Self> {
        let gpu_mem_mib = reports.first().map(|report| report.gpu_mem_mib);
        let mut runs = Vec::new();
        for Report { scenario, gpu_mem_mib: of, verdict, total, without_counters } in reports {
            ensure!(verdict == "pass", "the run of {scenario} did not pass, so it is no measure");
            ensure!(Some(*of) == gpu_mem_mib, "runs of {scenario} are on cards with {gpu_mem_mib:?} and {of} MiB");
            runs.push(total);
            runs.extend(without_counters.as_ref().map(|again| &again.total));
        }
        Ok(Self { gpu_mem_mib, runs })
    }

    /// Whether there is nothing to compare with.
    fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// What the runs told; a bound is no figure.
    fn values(&self, figure: &str) -> Vec<u64> {
        let exact = |total: &&&Total| !total.says("bounds", figure);
        let value = |total: &Total| total.truth.get(figure).and_then(serde_json::Value::as_u64);
        let mut values: Vec<u64> = self.runs.iter().filter(exact).filter_map(|total| value(total)).collect();
        values.sort_unstable();
        values
    }

    /// Whether every run says why nobody knows that figure of it.
    fn cannot_know(&self, figure: &str) -> bool {
        self.runs.iter().all(|total| total.says("not_known", figure))
    }
}

impl Total {
    fn says(&self, about: &str, figure: &str) -> bool {
        self.truth.get(about).is_some_and(|figures| figures.get(figure).is_some())
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
        // Beside nothing, anything is all wrong.
        let error = median(&lab).map(|lab| (simulated as f64 - lab) / lab.max(1.0));
        // A figure that no run tells was renamed, or is not counted any more: not one that is as it should be.
        let holds = match (error, limit) {
            (_, None) => true,
            (Some(error), Some(limit)) => error.abs() <= limit,
            (None, Some(_)) => runs.is_empty() || runs.cannot_know(name),
        };
        Self { figure: name, lab, simulated, error, limit, holds }
    }
}

/// Of values in order.
fn median(values: &[u64]) -> Option<f64> {
    let (low, high) = (values.get(values.len().saturating_sub(1) / 2)?, values.get(values.len() / 2)?);
    Some(u64::midpoint(*low, *high) as f64)
}
