//! Remedy by uvmd itself, without a change of the program.

use model::VerdictKind;

use super::{Case, Remedy};
use crate::{Owner, Process};

/// Command that sets a policy in mode shadow, which changes nothing; `None` without a suitable
/// policy.
pub(super) fn remedy(case: &Case<'_>) -> Option<Remedy> {
    // Where calls of the driver are not counted, uvmd denies advice and moves.
    case.process.counts.api_calls?;
    let (selector, policy, effect) = match (case.kind, case.verdict.evictor.as_ref()) {
        // The policy applies to the evictor.
        (VerdictKind::CapacityThrash, Some(evictor)) => {
            (format!("--pid {}", evictor.pid), "tenants", "have that process evict its own memory first")
        }
        (VerdictKind::CapacityThrash, None) => {
            let (policy, effect) = match case.involved().next().map(|involved| involved.pattern().to_owned()).as_deref()
            {
                Some("cyclic" | "sequential") => {
                    ("cycle", "keep a part that fits on the GPU, and the rest at the host")
                }
                Some("hot_set") => ("hot-cold", "keep the hot part on the GPU, and the rest at the host"),
                _ => ("auto-live", "choose the policy with the largest expected effect"),
            };
            (selector(case.process), policy, effect)
        }
        // The policy `ping-pong` handles a CPU and one GPU.
        (VerdictKind::PingPong | VerdictKind::DriverThrottling, _) if case.verdict.inputs.is_between_gpus() => {
            return None;
        }
        (VerdictKind::PingPong | VerdictKind::DriverThrottling, _) => {
            (selector(case.process), "ping-pong", "keep the memory at one side, mapped remotely by the other")
        }
        (VerdictKind::Streaming, _) => {
            (selector(case.process), "stream", "prefetch ahead of the walk, and evict what it has passed")
        }
        (VerdictKind::FirstTouchStorm, _) => return None,
    };
    // What acts already would be replaced by an override that does not.
    if case.in_mode_act {
        return None;
    }
    // Decisions of an evictor are not known here.
    let decisions = if case.verdict.evictor.is_none() { &case.process.decisions[..] } else { &[] };
    if decisions.iter().any(|decision| decision.stage != "shadow") {
        return None;
    }
    if let Some(decision) = decisions.first() {
        let action = format!("uvmctl policy set {selector} --policy {} --mode act", decision.policy);
        let evidence = format!("in mode shadow it {} (uvmctl decisions {})", decision.label, decision.id);
        return Some(Remedy::new(action, evidence));
    }
    let action = format!("uvmctl policy set {selector} --policy {policy} --mode shadow");
    let evidence = format!(
        "uvmd could {effect}, without a change of the program; in mode shadow it only reports its decisions, in uvmctl decisions"
    );
    Some(Remedy::new(action, evidence))
}

/// Selector of the process's owner, which outlives the process; else its pid.
fn selector(process: &Process) -> String {
    let Owner { pod_uid, slurm_job, container, .. } = &process.owner;
    match (pod_uid, slurm_job, container) {
        (Some(uid), _, _) => format!("--pod {uid}"),
        (None, Some(job), _) => format!("--job {job}"),
        (None, None, Some(id)) => format!("--container {}", id.get(..12).unwrap_or(id)),
        (None, None, None) => format!("--pid {}", process.pid),
    }
}

#[cfg(test)]
mod tests {
    use crate::{DecisionSummary, Evictor};

    use super::*;
    use crate::explain::remedies::testing::{Fixture, GIB};

    fn action(known: &Fixture) -> Option<String> {
        remedy(&known.case()).map(|advice| advice.action)
    }

    #[test]
    fn a_walk_and_a_hot_part_have_policies_of_their_own() {
        for (pattern, policy) in [("cyclic", "cycle"), ("hot_set", "hot-cold"), ("random", "auto-live")] {
            let mut known = Fixture::new("capacity_thrash");
            known.involved(0x1000_0000, 48 * GIB, pattern, 0.9);
            let expected = format!("uvmctl policy set --pid 41207 --policy {policy} --mode shadow");
            assert_eq!(action(&known), Some(expected), "{pattern}");
        }
    }

    #[test]
    fn the_selector_prefers_the_owner() {
        let mut known = Fixture::new("streaming");
        known.process.owner =
            Owner { slurm_job: Some("7".to_owned()), container: Some("c".to_owned()), ..Owner::default() };
        assert!(action(&known).unwrap().contains("set --job 7 --policy stream"));
        known.process.owner.pod_uid = Some("7c1f".to_owned());
        assert!(action(&known).unwrap().contains("set --pod 7c1f --policy stream"));
    }

    #[test]
    fn the_policy_for_a_victim_applies_to_its_evictor() {
        let mut known = Fixture::new("capacity_thrash");
        known.verdict.evictor = Some(Evictor { pid: 40_981, bytes_per_second: 1 << 30, ..Evictor::default() });
        assert!(action(&known).unwrap().contains("set --pid 40981 --policy tenants"));
    }

    #[test]
    fn a_process_that_uvmd_acts_on_needs_no_override_and_one_in_shadow_is_to_be_acted_on() {
        let mut known = Fixture::new("streaming");
        let decision = DecisionSummary {
            id: 7,
            policy: "stream".to_owned(),
            stage: "shadow".to_owned(),
            label: "would act: stream, link -50 % expected".to_owned(),
            ..DecisionSummary::default()
        };
        known.process.decisions = vec![decision];
        let shown = remedy(&known.case()).unwrap();
        assert_eq!(shown.action, "uvmctl policy set --pid 41207 --policy stream --mode act");
        assert!(
            shown.evidence == "in mode shadow it would act: stream, link -50 % expected (uvmctl decisions 7)",
            "{}",
            shown.evidence
        );
        for stage in ["trial", "confirmed"] {
            known.process.decisions[0].stage = stage.to_owned();
            assert_eq!(action(&known), None);
        }
        known.process.decisions.clear();
        known.in_mode_act = true;
        assert_eq!(action(&known), None, "what it would be replaced by does not act");
    }

    #[test]
    fn no_policy_is_proposed_that_the_source_of_counts_does_not_permit() {
        let mut known = Fixture::new("ping_pong");
        assert!(action(&known).unwrap().contains("--policy ping-pong"));
        known.process.counts.api_calls = None;
        assert_eq!(action(&known), None);
    }

    #[test]
    fn a_first_touch_storm_has_no_policy() {
        assert_eq!(action(&Fixture::new("first_touch_storm")), None);
    }

    #[test]
    fn every_advised_policy_exists() {
        for kind in ["capacity_thrash", "ping_pong", "driver_throttling", "streaming"] {
            let action = action(&Fixture::new(kind)).unwrap();
            let policy = action.split("--policy ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
            assert!(model::policy::named(policy).is_some(), "{action}");
        }
    }
}
