//! Rows: medians and spreads of runs that only differ in their seed.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    check::Check,
    measured::{Bytes, Measured, Record, Tenant},
    model::Model,
    policy::{self, DRIVER},
};
use crate::scenario::target::Figure;

/// Summary of a figure over several seeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Summary {
    pub(super) median: f64,
    /// Difference between the maximum and the minimum.
    pub(super) spread: f64,
}

/// Figures of a scenario under a policy at a rate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) scenario: String,
    pub(super) policy: String,
    pub(super) rate: f64,
    pub(super) seeds: Vec<u64>,
    pub(super) tenants: Vec<Section>,
    pub(super) total: Section,
    pub(super) replays: Summary,
    pub(super) kernels: Summary,
    /// Modelled time.
    pub(super) modelled_seconds: Summary,
    pub(super) verified: bool,
    /// Problems of all runs.
    pub(super) problems: Vec<String>,
    /// Number of decisions in all runs, by policy and stage.
    pub(super) decisions: BTreeMap<String, usize>,
    /// Checks of the targets; empty for the driver.
    pub(super) checks: Vec<Check>,
}

/// Figures of one process, or of all.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Section {
    pub(super) name: String,
    pub(super) fault_entries: Summary,
    /// Bytes copied and accessed remotely.
    pub(super) link_bytes_htod: Summary,
    pub(super) link_bytes_dtoh: Summary,
    pub(super) link_bytes: Summary,
    pub(super) evicted_bytes: Summary,
    /// Whether `evicted_bytes` is an upper bound.
    pub(super) evicted_at_most: bool,
    pub(super) lost_to_others_bytes: Summary,
}

impl Summary {
    /// Summary of values; 0 without values.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (Some(least), Some(most)) = (values.first(), values.last()) else { return Self::default() };
        let at = |index: usize| values.get(index).copied().unwrap_or_default();
        let half = values.len() / 2;
        let median = if values.len().is_multiple_of(2) { f64::midpoint(at(half - 1), at(half)) } else { at(half) };
        Self { median, spread: most - least }
    }

    fn of_counts<'a, T: 'a>(of: &[&'a T], figure: impl Fn(&T) -> u64) -> Self {
        Self::of(of.iter().map(|each| figure(each) as f64))
    }
}

impl Section {
    fn new(name: &str, tenants: &[&Tenant], factor: f64) -> Self {
        let summary = |figure: &dyn Fn(&Tenant) -> u64| Summary::of_counts(tenants, figure);
        Self {
            name: name.to_owned(),
            fault_entries: summary(&|tenant| tenant.fault_entries),
            link_bytes_htod: summary(&|tenant| tenant.link_bytes(factor).0),
            link_bytes_dtoh: summary(&|tenant| tenant.link_bytes(factor).1),
            link_bytes: summary(&|tenant| both(tenant.link_bytes(factor))),
            evicted_bytes: summary(&|tenant| tenant.evicted.bytes),
            evicted_at_most: tenants.iter().any(|tenant| tenant.evicted.at_most),
            lost_to_others_bytes: summary(&|tenant| tenant.lost_to_others_bytes),
        }
    }

    /// Figures of all processes together.
    fn total(runs: &[&Measured], factor: f64) -> Self {
        let summary = |figure: &dyn Fn(&Measured) -> u64| Summary::of_counts(runs, figure);
        let sum = |run: &Measured, figure: fn(&Tenant) -> u64| run.tenants.iter().map(figure).sum::<u64>();
        let Bytes { at_most, .. } = runs.first().map(|run| run.evicted).unwrap_or_default();
        Self {
            name: "all".to_owned(),
            fault_entries: summary(&|run| sum(run, |tenant| tenant.fault_entries)),
            link_bytes_htod: summary(&|run| run.link_bytes(factor).0),
            link_bytes_dtoh: summary(&|run| run.link_bytes(factor).1),
            link_bytes: summary(&|run| both(run.link_bytes(factor))),
            evicted_bytes: summary(&|run| run.evicted.bytes),
            evicted_at_most: at_most,
            lost_to_others_bytes: summary(&|run| sum(run, |tenant| tenant.lost_to_others_bytes)),
        }
    }
}

const fn both(link: (u64, u64)) -> u64 {
    link.0 + link.1
}

impl Row {
    /// Row of records of the same scenario and policy, whose rates are multiplied to become `rate`.
    fn new(records: &[&Record], rate: f64, model: &Model) -> Option<Self> {
        let first = records.first()?;
        let factor = rate / first.rate;
        let runs: Vec<&Measured> = records.iter().filter_map(|record| record.measured.as_ref()).collect();
        let names = runs.first().map(|run| run.tenants.iter().map(|tenant| tenant.name.as_str()).collect::<Vec<_>>());
        let tenant = |name: &str| {
            let tenants: Vec<&Tenant> =
                runs.iter().filter_map(|run| run.tenants.iter().find(|tenant| tenant.name == name)).collect();
            Section::new(name, &tenants, factor)
        };
        let problem = |record: &Record| {
            let seed = record.seed;
            record.problems.iter().map(move |problem| format!("seed {seed}: {problem}")).collect::<Vec<_>>()
        };
        let mut decisions = BTreeMap::new();
        for decision in records.iter().flat_map(|record| &record.decisions) {
            *decisions.entry(format!("{} {}", decision.policy, decision.stage)).or_default() += 1;
        }
        Some(Self {
            scenario: first.scenario.clone(),
            policy: first.policy.clone(),
            rate,
            seeds: records.iter().map(|record| record.seed).collect(),
            tenants: names.unwrap_or_default().into_iter().map(tenant).collect(),
            total: Section::total(&runs, factor),
            replays: Summary::of_counts(&runs, |run| run.replays),
            kernels: Summary::of_counts(&runs, |run| run.kernels),
            modelled_seconds: Summary::of(runs.iter().map(|run| model.seconds(run, factor))),
            verified: runs.len() == records.len() && runs.iter().all(|run| run.verified),
            problems: records.iter().flat_map(|record| problem(record)).collect(),
            decisions,
            checks: Vec::new(),
        })
    }

    /// A figure of a process, or of all; `None` for an unknown process.
    pub(super) fn figure(&self, figure: Figure, process: Option<&str>) -> Option<Summary> {
        let part = match process {
            None => &self.total,
            Some(name) => self.tenants.iter().find(|tenant| tenant.name == name)?,
        };
        Some(match figure {
            Figure::FaultEntries => part.fault_entries,
            Figure::Replays => self.replays,
            Figure::LinkBytes => part.link_bytes,
        })
    }
}

/// Rows for each scenario, policy and rate, in the order of the records. The driver has a row for
/// each rate of a policy.
pub(super) fn rows(records: &[Record], model: &Model) -> Vec<Row> {
    let mut keys: Vec<(&str, &str, f64)> = Vec::new();
    for record in records {
        let key = (record.scenario.as_str(), record.policy.as_str(), record.rate);
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let mut rows = Vec::new();
    for &(scenario, policy, rate) in &keys {
        let group: Vec<&Record> = records
            .iter()
            .filter(|record| {
                (record.scenario.as_str(), record.policy.as_str(), record.rate) == (scenario, policy, rate)
            })
            .collect();
        let mut rates = vec![rate];
        if policy == DRIVER {
            let others = keys.iter().filter(|key| key.0 == scenario && policy::acts(key.1)).map(|key| key.2);
            rates.extend(others);
            rates.sort_by(f64::total_cmp);
            rates.dedup();
        }
        rows.extend(rates.into_iter().filter_map(|rate| Row::new(&group, rate, model)));
    }
    rows
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::compare) fn record(policy: &str, seed: u64, rate: f64, copied: u64, remote: u64) -> Record {
        let tenant = Tenant {
            name: "p".to_owned(),
            fault_entries: copied / 10,
            copied_htod_bytes: copied,
            remote_htod_bytes: remote,
            ..Tenant::default()
        };
        let measured = Measured { tenants: vec![tenant], replays: copied / 100, verified: true, ..Measured::default() };
        Record {
            scenario: "s".to_owned(),
            policy: policy.to_owned(),
            seed,
            rate,
            machine: None,
            seconds: 1.0,
            measured: Some(measured),
            decisions: Vec::new(),
            problems: Vec::new(),
        }
    }

    #[test]
    fn a_spread_is_the_maximum_minus_the_minimum() {
        assert_eq!(Summary::of([5.0, 1.0, 3.0]), Summary { median: 3.0, spread: 4.0 });
        assert_eq!(Summary::of([1.0, 2.0]), Summary { median: 1.5, spread: 1.0 });
        assert_eq!(Summary::of([]), Summary::default());
    }

    #[test]
    fn the_driver_has_a_row_for_each_rate_of_the_policies() {
        let records = [
            record("driver", 1, 1.0, 1000, 100),
            record("driver", 2, 1.0, 3000, 100),
            record("cycle", 1, 0.1, 500, 1),
            record("cycle", 1, 10.0, 500, 1),
        ];
        let rows = rows(&records, &Model::new().unwrap());
        let rates =
            |policy: &str| rows.iter().filter(|row| row.policy == policy).map(|row| row.rate).collect::<Vec<_>>();
        assert_eq!((rates("driver"), rates("cycle")), (vec![0.1, 1.0, 10.0], vec![0.1, 10.0]));
        let link = |at: usize| rows[at].total.link_bytes;
        assert_eq!(link(0), Summary { median: 2010.0, spread: 2000.0 });
        assert_eq!(link(2), Summary { median: 3000.0, spread: 2000.0 });
        assert_eq!(rows[0].seeds, [1, 2]);
    }

    #[test]
    fn a_run_that_failed_is_a_row_that_is_not_verified() {
        let failed = Record { measured: None, problems: vec!["hangs".to_owned()], ..record("cycle", 2, 1.0, 0, 0) };
        let rows = rows(&[record("cycle", 1, 1.0, 10, 0), failed], &Model::new().unwrap());
        assert!(!rows[0].verified);
        assert_eq!(rows[0].problems, ["seed 2: hangs"]);
    }
}
