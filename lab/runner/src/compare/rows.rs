//! Runs that only differ in their seed, as one row: medians, and how far the seeds are apart.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    check::Check,
    measured::{Bytes, Measured, Record, Tenant},
    model::Model,
    policy::{self, DRIVER},
};
use crate::scenario::target::Figure;

/// A figure over several seeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Over {
    pub(super) median: f64,
    /// From the least to the most.
    pub(super) spread: f64,
}

/// A scenario under a policy at a rate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) scenario: String,
    pub(super) policy: String,
    pub(super) rate: f64,
    pub(super) seeds: Vec<u64>,
    pub(super) tenants: Vec<Part>,
    pub(super) total: Part,
    pub(super) replays: Over,
    pub(super) kernels: Over,
    /// What that would have taken: a model.
    pub(super) modelled_seconds: Over,
    pub(super) verified: bool,
    /// Of any of the runs.
    pub(super) problems: Vec<String>,
    /// Decisions in all runs, by policy and where they came to.
    pub(super) decisions: BTreeMap<String, usize>,
    /// The targets, where it is a policy's row.
    pub(super) checks: Vec<Check>,
}

/// Of one process, or all.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Part {
    pub(super) name: String,
    pub(super) fault_entries: Over,
    /// Copied and accessed remotely.
    pub(super) link_bytes_htod: Over,
    pub(super) link_bytes_dtoh: Over,
    pub(super) link_bytes: Over,
    pub(super) evicted_bytes: Over,
    /// More than that was not evicted; how much of it was, is not known.
    pub(super) evicted_at_most: bool,
    pub(super) lost_to_others_bytes: Over,
}

impl Over {
    /// 0 of nothing.
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

impl Part {
    fn new(name: &str, tenants: &[&Tenant], factor: f64) -> Self {
        let over = |figure: &dyn Fn(&Tenant) -> u64| Over::of_counts(tenants, figure);
        Self {
            name: name.to_owned(),
            fault_entries: over(&|tenant| tenant.fault_entries),
            link_bytes_htod: over(&|tenant| tenant.link_bytes(factor).0),
            link_bytes_dtoh: over(&|tenant| tenant.link_bytes(factor).1),
            link_bytes: over(&|tenant| both(tenant.link_bytes(factor))),
            evicted_bytes: over(&|tenant| tenant.evicted.bytes),
            evicted_at_most: tenants.iter().any(|tenant| tenant.evicted.at_most),
            lost_to_others_bytes: over(&|tenant| tenant.lost_to_others_bytes),
        }
    }

    /// Of all processes together.
    fn total(runs: &[&Measured], factor: f64) -> Self {
        let over = |figure: &dyn Fn(&Measured) -> u64| Over::of_counts(runs, figure);
        let sum = |run: &Measured, figure: fn(&Tenant) -> u64| run.tenants.iter().map(figure).sum::<u64>();
        let Bytes { at_most, .. } = runs.first().map(|run| run.evicted).unwrap_or_default();
        Self {
            name: "all".to_owned(),
            fault_entries: over(&|run| sum(run, |tenant| tenant.fault_entries)),
            link_bytes_htod: over(&|run| run.link_bytes(factor).0),
            link_bytes_dtoh: over(&|run| run.link_bytes(factor).1),
            link_bytes: over(&|run| both(run.link_bytes(factor))),
            evicted_bytes: over(&|run| run.evicted.bytes),
            evicted_at_most: at_most,
            lost_to_others_bytes: over(&|run| sum(run, |tenant| tenant.lost_to_others_bytes)),
        }
    }
}

const fn both(link: (u64, u64)) -> u64 {
    link.0 + link.1
}

impl Row {
    /// From records of the same scenario and policy; all rates are multiplied by what makes them `rate`.
    fn new(records: &[&Record], rate: f64, model: &Model) -> Option<Self> {
        let first = records.first()?;
        let factor = rate / first.rate;
        let runs: Vec<&Measured> = records.iter().filter_map(|record| record.measured.as_ref()).collect();
        let names = runs.first().map(|run| run.tenants.iter().map(|tenant| tenant.name.as_str()).collect::<Vec<_>>());
        let tenant = |name: &str| {
            let its: Vec<&Tenant> =
                runs.iter().filter_map(|run| run.tenants.iter().find(|tenant| tenant.name == name)).collect();
            Part::new(name, &its, factor)
        };
        let problem = |record: &Record| {
            let seed = record.seed;
            record.problems.iter().map(move |problem| format!("seed {seed}: {problem}")).collect::<Vec<_>>()
        };
        let mut decisions = BTreeMap::new();
        for decided in records.iter().flat_map(|record| &record.decisions) {
            *decisions.entry(format!("{} {}", decided.policy, decided.stage)).or_default() += 1;
        }
        Some(Self {
            scenario: first.scenario.clone(),
            policy: first.policy.clone(),
            rate,
            seeds: records.iter().map(|record| record.seed).collect(),
            tenants: names.unwrap_or_default().into_iter().map(tenant).collect(),
            total: Part::total(&runs, factor),
            replays: Over::of_counts(&runs, |run| run.replays),
            kernels: Over::of_counts(&runs, |run| run.kernels),
            modelled_seconds: Over::of(runs.iter().map(|run| model.seconds(run, factor))),
            verified: runs.len() == records.len() && runs.iter().all(|run| run.verified),
            problems: records.iter().flat_map(|record| problem(record)).collect(),
            decisions,
            checks: Vec::new(),
        })
    }

    /// A figure of it, by whose it is; nothing for a process that is not there.
    pub(super) fn figure(&self, figure: Figure, process: Option<&str>) -> Option<Over> {
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

/// One for each scenario, policy and rate, in the order of the records; the driver's for each rate that a policy has.
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
        let its: Vec<&Record> = records
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
        rows.extend(rates.into_iter().filter_map(|rate| Row::new(&its, rate, model)));
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
    fn a_median_is_the_middle_and_a_spread_from_the_least_to_the_most() {
        assert_eq!(Over::of([5.0, 1.0, 3.0]), Over { median: 3.0, spread: 4.0 });
        assert_eq!(Over::of([1.0, 2.0]), Over { median: 1.5, spread: 1.0 });
        assert_eq!(Over::of([]), Over::default());
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
        assert_eq!(link(0), Over { median: 2010.0, spread: 2000.0 });
        assert_eq!(link(2), Over { median: 3000.0, spread: 2000.0 });
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
