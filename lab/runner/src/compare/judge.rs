//! Checks of a policy's targets against the medians of the driver alone.

use serde::Serialize;

use super::{
    check::Check,
    measured::Record,
    policy::{self, DRIVER, HARMFUL},
    rows::{Row, Summary},
};
use crate::scenario::{Target, target::Limit};

impl Check {
    fn of(target: &Target, row: &Row, driver: &Row) -> Option<Self> {
        let figure = |row: &Row| row.figure(target.figure, target.process.as_deref());
        let (value, Summary { median, spread }) = (figure(row)?.median, figure(driver)?);
        let (least, most) = match target.limit {
            Limit::AtMost(share) => (0.0, median * share),
            Limit::Within(share) => {
                let off = (median * share).max(spread);
                (median - off, median + off)
            }
        };
        Some(Self::new(target.to_string(), value, median, least, most))
    }
}

/// Minimum number of seeds that make the spread of the driver's runs known.
const MIN_SPREAD_SEEDS: usize = 3;
/// Minimum spread with fewer seeds, as a share of the median: a fault batch more or less is a
/// matter of timing.
const MIN_SPREAD: f64 = 0.1;

/// Check every row of a policy. `targets` returns the targets of a scenario by its name.
pub(super) fn judge<'a>(rows: &mut [Row], targets: impl Fn(&str) -> &'a [Target]) {
    let drivers: Vec<Row> = rows.iter().filter(|row| row.policy == DRIVER).cloned().collect();
    for row in rows.iter_mut().filter(|row| policy::acts(&row.policy)) {
        let Some(driver) =
            drivers.iter().find(|driver| driver.scenario == row.scenario && driver.rate.total_cmp(&row.rate).is_eq())
        else {
            row.problems.push("there is no run of the driver alone to compare with".to_owned());
            continue;
        };
        row.checks = targets(&row.scenario).iter().filter_map(|target| Check::of(target, row, driver)).collect();
        let Summary { median, spread } = driver.modelled_seconds;
        let is_known = driver.seeds.len() >= MIN_SPREAD_SEEDS;
        let spread = if is_known { spread } else { spread.max(median * MIN_SPREAD) };
        let time = Check::new("modelled time".to_owned(), row.modelled_seconds.median, median, 0.0, median + spread);
        row.checks.push(time);
    }
}

impl Row {
    /// Whether the row is valid and reaches its targets.
    pub(super) fn holds(&self) -> bool {
        self.is_valid() && self.checks.iter().all(|check| check.holds)
    }

    /// Whether the runs of the row are verified and without problems.
    pub(super) fn is_valid(&self) -> bool {
        self.verified && self.problems.is_empty()
    }
}

/// Result of a control policy, which is known to harm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Control {
    pub(super) policy: String,
    pub(super) holds: bool,
    #[serde(rename = "why")]
    pub(super) reason: String,
}

/// Results of the control policies that ran.
pub(super) fn controls(rows: &[Row], records: &[Record]) -> Vec<Control> {
    let of = |policy: &'static str| rows.iter().filter(move |row| row.policy == policy);
    let must_miss = policy::control_policies().filter(|policy| of(policy).next().is_some()).map(|policy| {
        let missed: Vec<&str> = of(policy)
            .filter(|row| row.checks.iter().any(|check| !check.holds))
            .map(|row| row.scenario.as_str())
            .collect();
        let reason = if missed.is_empty() {
            "reaches every target".to_owned()
        } else {
            format!("misses on {}", missed.join(", "))
        };
        Control { policy: policy.to_owned(), holds: !missed.is_empty(), reason }
    });
    let harmful = of(HARMFUL).next().map(|_| harmful(rows, records));
    must_miss.chain(harmful).collect()
}

/// Result of `harmful`: uvmd must have executed at least one of its decisions, and rolled back each
/// in time. Only runs with more link bytes than under the driver alone count: if a program loses
/// all memory before reuse anyway, no eviction does harm.
fn harmful(rows: &[Row], records: &[Record]) -> Control {
    let link_bytes = |policy: &str, record: &Record| {
        let matches = |row: &&Row| {
            row.policy == policy && row.scenario == record.scenario && row.rate.total_cmp(&record.rate).is_eq()
        };
        rows.iter().find(matches).map(|row| row.total.link_bytes.median)
    };
    let did_harm = |record: &&Record| link_bytes(HARMFUL, record) > link_bytes(DRIVER, record);
    let decisions =
        records.iter().filter(|record| record.policy == HARMFUL).filter(did_harm).flat_map(|record| &record.decisions);
    let executed: Vec<_> = decisions.filter(|decision| decision.policy == HARMFUL && decision.done.calls > 0).collect();
    let late = executed.iter().filter(|decision| !decision.was_rolled_back_in_time().unwrap_or(false)).count();
    let reason = match (executed.len(), late) {
        (0, _) => "did no harm".to_owned(),
        (count, 0) => format!("rolled back within two windows, {count} times of {count}"),
        (count, late) => format!("not rolled back within two windows, {late} times of {count}"),
    };
    Control { policy: HARMFUL.to_owned(), holds: !executed.is_empty() && late == 0, reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        compare::{
            decided::tests::decision,
            model::Model,
            rows::{rows, tests::record},
        },
        scenario::target::Figure,
    };

    fn target(figure: Figure, limit: Limit) -> Target {
        Target { figure, process: None, limit }
    }

    fn judged(records: &[Record], targets: &[Target]) -> Vec<Row> {
        let mut rows = rows(records, &Model::new().unwrap());
        judge(&mut rows, |_| targets);
        rows
    }

    #[test]
    fn a_target_is_a_share_of_the_drivers_median() {
        let records = [record("driver", 1, 1.0, 1000, 0), record("cycle", 1, 1.0, 500, 0)];
        let held = |share| {
            let rows = judged(&records, &[target(Figure::LinkBytes, Limit::AtMost(share))]);
            rows[1].checks.iter().map(|check| check.holds).collect::<Vec<_>>()
        };
        assert_eq!(held(0.5), [true, true]);
        assert_eq!(held(0.49), [false, true]);
    }

    #[test]
    fn a_figure_may_deviate_by_a_share_or_by_the_drivers_spread() {
        let near = [target(Figure::LinkBytes, Limit::Within(0.01))];
        let held = |records: &[Record]| judged(records, &near).last().unwrap().checks[0].holds;
        assert!(held(&[record("driver", 1, 1.0, 1000, 0), record("cycle", 1, 1.0, 1010, 0)]));
        assert!(!held(&[record("driver", 1, 1.0, 1000, 0), record("cycle", 1, 1.0, 980, 0)]));
        let spread = [record("driver", 1, 1.0, 990, 0), record("driver", 2, 1.0, 1010, 0)];
        assert!(held(&[spread[0].clone(), spread[1].clone(), record("cycle", 1, 1.0, 980, 0)]));
    }

    #[test]
    fn modelled_time_may_exceed_the_drivers_by_its_spread_in_every_row() {
        let driver = |seed, copied| record("driver", seed, 1.0, copied, 0);
        let holds = |drivers: &[Record], copied| {
            let policy = [record("cycle", 1, 1.0, copied, 0)];
            judged(&[drivers, &policy].concat(), &[]).last().unwrap().holds()
        };
        let three = [driver(1, 1000), driver(2, 1100), driver(3, 1200)];
        assert!(holds(&three, 1290) && !holds(&three, 1400));
        assert!(holds(&[driver(1, 10_000)], 10_900) && !holds(&[driver(1, 10_000)], 11_200), "a tenth, with one seed");
    }

    #[test]
    fn a_control_holds_if_it_misses_somewhere() {
        let targets = [target(Figure::LinkBytes, Limit::AtMost(1.0))];
        let with = |copied| {
            let records = [record("driver", 1, 1.0, 1000, 0), record("pin-host", 1, 1.0, copied, 0)];
            controls(&judged(&records, &targets), &records)
        };
        assert!(with(2000)[0].holds);
        assert_eq!(with(900)[0].reason, "reaches every target");
    }

    /// Result of a run under `harmful` with `copied` bytes, where the driver alone copies 1000, and
    /// with a decision rolled back after `seconds`.
    fn harm(copied: u64, seconds: u64) -> Control {
        let updated_at = format!("2026-01-01T00:00:{}Z", 10 + seconds);
        let decisions = vec![decision("rolled_back", &updated_at)];
        let records = [record("driver", 1, 1.0, 1000, 0), Record { decisions, ..record("harmful", 1, 1.0, copied, 0) }];
        controls(&judged(&records, &[]), &records).remove(0)
    }

    #[test]
    fn harm_must_be_rolled_back_within_two_windows() {
        assert!(harm(1200, 4).holds);
        assert!(!harm(1200, 9).holds);
    }

    #[test]
    fn a_harmful_policy_that_did_no_harm_proves_nothing() {
        let found = harm(1000, 4);
        assert_eq!((found.holds, found.reason.as_str()), (false, "did no harm"));
    }

    #[test]
    fn a_check_is_shown_in_percent_of_the_drivers() {
        let check = Check::new("replays".to_owned(), 83.0, 1000.0, 0.0, 100.0);
        assert_eq!(check.to_string(), "ok   replays: 8.3 % of the driver's, at most 10.0 %");
        let check = Check::new("link_bytes".to_owned(), 900.0, 1000.0, 990.0, 1010.0);
        assert_eq!(check.to_string(), "MISS link_bytes: 90.0 % of the driver's, from 99.0 % to 101.0 %");
    }
}
