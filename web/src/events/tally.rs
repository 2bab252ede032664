//! Sums of what policies did, for the metrics.

use std::collections::BTreeMap;

use api::decision::{Call, Event, PlanCounters};
use model::policy::{Choice, POLICIES, Policy};

/// Maximum of decisions whose policy is stored, as calls may be reported after their end.
const DECISIONS_MAX: usize = 4096;

/// Results of a call whose counts exist before the first call: an increase from no series to the
/// first value is none for Prometheus.
const RESULTS: [&str; 3] = ["done", "denied", "failed"];

/// Sums since the service started.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    policies: BTreeMap<u64, String>,
    /// Counts of plans, by decision.
    plans: BTreeMap<u64, PlanCounters>,
    /// Calls, by policy, action and result.
    pub(crate) actions: BTreeMap<[String; 3], u64>,
    /// Migrated bytes, by policy and direction.
    pub(crate) migrated_bytes: BTreeMap<[String; 2], u64>,
    /// Decisions that were rolled back, by policy.
    pub(crate) rollbacks: BTreeMap<String, u64>,
}

impl Default for Tally {
    /// Zeros of each policy that acts and that operators name. Those of others begin with their
    /// first decision.
    fn default() -> Self {
        let mut tally = Self {
            policies: BTreeMap::new(),
            plans: BTreeMap::new(),
            actions: BTreeMap::new(),
            migrated_bytes: BTreeMap::new(),
            rollbacks: BTreeMap::new(),
        };
        let is_named = |policy: &&Policy| policy.choice != Choice::Control && !policy.actions.is_empty();
        for policy in POLICIES.iter().filter(is_named) {
            tally.rollbacks.insert(policy.name.to_owned(), 0);
            for action in policy.actions {
                for result in RESULTS {
                    tally.actions.insert([policy.name, action, result].map(str::to_owned), 0);
                }
                if let Some(direction) = direction(action) {
                    tally.migrated_bytes.insert([policy.name, direction].map(str::to_owned), 0);
                }
            }
        }
        tally
    }
}

impl Tally {
    pub(super) fn add(&mut self, event: &Event) {
        if let Some(decision) = &event.decision {
            self.policies.insert(decision.id, decision.policy.clone());
            while self.policies.len() > DECISIONS_MAX {
                self.policies.pop_first();
            }
            if let Some(plan) = &decision.plan {
                self.add_plan(decision.id, &decision.policy, plan.counters);
            }
            let rollbacks = self.rollbacks.entry(decision.policy.clone()).or_default();
            if event.r#type == "decision_updated" && decision.stage == "rolled_back" {
                *rollbacks += 1;
            }
        }
        let policy = event.decision_id.and_then(|id| self.policies.get(&id)).cloned().unwrap_or_default();
        for call in event.outcome.iter().flat_map(|outcome| &outcome.calls) {
            self.add_call(&policy, call);
        }
    }

    /// Adds what a plan has moved since the last event of its decision.
    fn add_plan(&mut self, id: u64, policy: &str, counters: PlanCounters) {
        let moved = counters.since(self.plans.insert(id, counters).unwrap_or_default());
        while self.plans.len() > DECISIONS_MAX {
            self.plans.pop_first();
        }
        for (direction, bytes) in [("htod", moved.to_gpu_bytes), ("dtoh", moved.to_host_bytes)] {
            let migrated = self.migrated_bytes.entry([policy, direction].map(str::to_owned)).or_default();
            *migrated = migrated.saturating_add(bytes);
        }
    }

    fn add_call(&mut self, policy: &str, Call { action, count, bytes, result, .. }: &Call) {
        let key = [policy, action, &result.result].map(str::to_owned);
        let calls = self.actions.entry(key).or_default();
        *calls = calls.saturating_add(*count);
        let Some(direction) = direction(action) else { return };
        if result.result == "done" {
            let migrated = self.migrated_bytes.entry([policy, direction].map(str::to_owned)).or_default();
            *migrated = migrated.saturating_add(*bytes);
        }
    }
}

/// Direction of the bytes of an action.
fn direction(action: &str) -> Option<&'static str> {
    match action {
        "migrate_to_gpu" => Some("htod"),
        "migrate_to_host" => Some("dtoh"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use api::decision::{Decision, PlanEvidence};

    use super::*;

    #[test]
    fn moves_of_a_plan_count_once_however_often_they_are_reported() {
        let event = |to_gpu_bytes| {
            let counters = PlanCounters { to_gpu_bytes, to_host_bytes: 2 * to_gpu_bytes, ..PlanCounters::default() };
            let plan = Some(PlanEvidence { counters, ..PlanEvidence::default() });
            let decision = Some(Decision { id: 3, policy: "auto-plan".to_owned(), plan, ..Decision::default() });
            Event { r#type: "decision_updated".to_owned(), decision, ..Event::default() }
        };
        let mut tally = Tally::default();
        for bytes in [0, 100, 100, 250] {
            tally.add(&event(bytes));
        }
        let migrated = |direction: &str| tally.migrated_bytes[&["auto-plan", direction].map(str::to_owned)];
        assert_eq!((migrated("htod"), migrated("dtoh")), (250, 500));
    }

    #[test]
    fn counts_of_policies_begin_at_0_before_their_first_decision() {
        let tally = Tally::default();
        assert_eq!(tally.rollbacks.get("cycle"), Some(&0));
        assert_eq!(tally.migrated_bytes.get(&["stream", "htod"].map(str::to_owned)), Some(&0));
        assert_eq!(tally.migrated_bytes.get(&["stream", "dtoh"].map(str::to_owned)), None);
        for result in RESULTS {
            assert_eq!(tally.actions.get(&["ping-pong", "prefer_host", result].map(str::to_owned)), Some(&0));
        }
        // It acts by the names of others.
        assert_eq!(tally.rollbacks.get("auto-live"), None);
        // A control is for comparisons.
        assert_eq!(tally.rollbacks.get("harmful"), None);
        assert!(tally.actions.len() < 100, "{}", tally.actions.len());
    }
}
