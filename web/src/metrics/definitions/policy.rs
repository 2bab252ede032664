//! Metrics of policies and their actions.

use model::Stage;

use crate::{
    AdviceJournal,
    metrics::{
        definition::{Definition, Sample, Samples},
        figures::Figures,
        labels::{ACTION, MIGRATION_DIRECTION, POLICY, RESULT, STAGE},
    },
};

pub(super) const DEFINITIONS: &[Definition] = &[
    Definition {
        name: "uvmd_policy_actions_total",
        labels: &[&POLICY, &ACTION, &RESULT],
        help: "Driver calls of policies, by action and result; those denied or cancelled before the call too.",
        samples: Samples::Counter(|figures| {
            let actions = &figures.policy_counts.tally.actions;
            actions.iter().map(|(labels, calls)| Sample::of(labels, *calls)).collect()
        }),
    },
    Definition {
        name: "uvmd_policy_migrated_bytes_total",
        labels: &[&POLICY, &MIGRATION_DIRECTION],
        help: "Bytes migrated for policies; memory that was resident already does not count.",
        samples: Samples::Counter(|figures| {
            let migrated = &figures.policy_counts.tally.migrated_bytes;
            migrated.iter().map(|(labels, bytes)| Sample::of(labels, *bytes)).collect()
        }),
    },
    Definition {
        name: "uvmd_policy_rollbacks_total",
        labels: &[&POLICY],
        help: "Decisions rolled back because they did not help.",
        samples: Samples::Counter(|figures| {
            let rollbacks = &figures.policy_counts.tally.rollbacks;
            rollbacks.iter().map(|(policy, count)| Sample::new([policy], *count as f64)).collect()
        }),
    },
    Definition {
        name: "uvmd_policy_active",
        labels: &[],
        help: "1 while uvmd may act; 0 while the configuration disables acting or a switch is off: see /api/v1/policy.",
        samples: Samples::Gauge(|figures| {
            vec![Sample::new([], f64::from(u8::from(figures.policy_counts.state.active)))]
        }),
    },
    Definition {
        name: "uvmd_policy_persist_pending",
        labels: &[],
        help: "1 while acting is switched off over the API and that state is not on the disk yet: uvmd would act again after a restart.",
        samples: Samples::Gauge(|figures| {
            vec![Sample::new([], f64::from(u8::from(figures.policy_counts.state.persist_pending)))]
        }),
    },
    Definition {
        name: "uvmd_policy_decisions",
        labels: &[&STAGE],
        help: "Decisions in the history, by stage. Those in `shadow`, `trial` and `confirmed` are open.",
        samples: Samples::Gauge(|figures| {
            let count =
                |name: &str| figures.policy_counts.decisions.iter().filter(|each| each.stage.name() == name).count();
            Stage::NAMES.map(|stage| Sample::new([stage], count(stage) as f64)).into()
        }),
    },
    Definition {
        name: "uvmd_overrides_last_reload_successful",
        labels: &[],
        help: "1 if the last reload of the file of overrides succeeded; 0 if it is invalid and an earlier version is in effect: see /api/v1/status.",
        samples: Samples::Gauge(|figures| {
            vec![Sample::new([], f64::from(u8::from(figures.policy_counts.state.file_error.is_none())))]
        }),
    },
    Definition {
        name: "uvmd_advice_journal_writable",
        labels: &[],
        help: "1 while the journal of advice can be written; 0 while the disk is full or stalled, and no advice is given: see /api/v1/status. Absent without a journal.",
        samples: Samples::Gauge(|figures| journal(figures, |journal| f64::from(u8::from(journal.is_writable)))),
    },
    Definition {
        name: "uvmd_advice_journal_unrecognised_bytes",
        labels: &[],
        help: "Bytes of the journal of advice that are damaged, or of a later version of uvmd. Advice in them is not withdrawn.",
        samples: Samples::Gauge(|figures| journal(figures, |journal| journal.unrecognised_bytes as f64)),
    },
    Definition {
        name: "uvmd_advice_journal_dropped_lines_total",
        labels: &[],
        help: "Lines for the journal of advice that were dropped because too many waited for the disk. The journal is rewritten once the disk accepts writes again.",
        samples: Samples::Counter(|figures| journal(figures, |journal| journal.dropped_lines as f64)),
    },
    Definition {
        name: "uvmd_stream_events_dropped_total",
        labels: &[],
        help: "Events dropped because a client of /api/v1/events read too slowly. The stream reports their number, and nothing else is affected.",
        samples: Samples::Counter(|figures| vec![Sample::new([], figures.policy_counts.events_dropped as f64)]),
    },
];

fn journal(figures: &Figures<'_>, value: impl Fn(&AdviceJournal) -> f64) -> Vec<Sample> {
    figures.policy_counts.journal.as_ref().map(|journal| Sample::new([], value(journal))).into_iter().collect()
}
