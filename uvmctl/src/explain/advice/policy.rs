//! What uvmd itself could do, from outside the program.

use model::api::{Owner, Process};

use super::{Advice, Case};
use crate::text;

/// The command that asks for it, in the mode that changes nothing; `None` where no policy is for it.
pub(crate) fn advice(case: &Case<'_>) -> Option<Advice> {
    let (whom, policy, does) = match (case.verdict.kind.as_str(), case.verdict.evictor.as_ref()) {
        // What others push out is theirs to be stopped.
        ("capacity_thrash", Some(evictor)) => {
            (format!("--pid {}", evictor.pid), "tenants", "have that process evict its own memory first")
        }
        ("capacity_thrash", None) => {
            let (policy, does) = match case.involved().next().map(|involved| involved.pattern().to_owned()).as_deref() {
                Some("cyclic" | "sequential") => {
                    ("cycle", "keep a part that fits on the GPU, and the rest at the host")
                }
                Some("hot_set") => ("hot-cold", "keep the hot part on the GPU, and the rest at the host"),
                _ => ("auto-live", "choose the policy with the largest expected effect"),
            };
            (whom(case.process), policy, does)
        }
        ("ping_pong" | "driver_throttling", _) => {
            (whom(case.process), "ping-pong", "keep the memory at one side, mapped remotely by the other")
        }
        ("streaming", _) => (whom(case.process), "stream", "prefetch ahead of the walk, and evict behind it"),
        _ => return None,
    };
    let action = format!("uvmctl policy set {whom} --policy {policy} --mode shadow");
    let evidence = format!(
        "uvmd could {does}, without a change of the program; in mode shadow it only reports its decisions, in uvmctl decisions"
    );
    Some(Advice::new(action, evidence))
}

/// Whom it works for, as far as that outlives it.
fn whom(process: &Process) -> String {
    let Owner { pod_uid, slurm_job, container, .. } = &process.owner;
    let whom = match (pod_uid, slurm_job, container) {
        (Some(uid), _, _) => format!("--pod {uid}"),
        (None, Some(job), _) => format!("--job {job}"),
        (None, None, Some(id)) => format!("--container {}", id.get(..12).unwrap_or(id)),
        (None, None, None) => format!("--pid {}", process.pid),
    };
    text::printable(&whom).into_owned()
}

#[cfg(test)]
mod tests {
    use model::api::Evictor;

    use super::*;
    use crate::explain::advice::testing::{GIB, Known};

    fn action(known: &Known) -> Option<String> {
        advice(&known.case()).map(|advice| advice.action)
    }

    #[test]
    fn a_walk_and_a_hot_part_have_policies_of_their_own() {
        for (pattern, policy) in [("cyclic", "cycle"), ("hot_set", "hot-cold"), ("random", "auto-live")] {
            let mut known = Known::new("capacity_thrash");
            known.involved(0x1000_0000, 48 * GIB, pattern, 0.9);
            let expected = format!("uvmctl policy set --pid 41207 --policy {policy} --mode shadow");
            assert_eq!(action(&known), Some(expected), "{pattern}");
        }
    }

    #[test]
    fn whom_it_works_for_is_named_where_that_is_known() {
        let mut known = Known::new("streaming");
        known.process.owner =
            Owner { slurm_job: Some("7".to_owned()), container: Some("c".to_owned()), ..Owner::default() };
        assert!(action(&known).unwrap().contains("set --job 7 --policy stream"));
        known.process.owner.pod_uid = Some("7c1f".to_owned());
        assert!(action(&known).unwrap().contains("set --pod 7c1f --policy stream"));
    }

    #[test]
    fn who_suffers_for_another_has_the_other_named() {
        let mut known = Known::new("capacity_thrash");
        known.verdict.evictor = Some(Evictor { pid: 40_981, bytes_per_second: 1 << 30, ..Evictor::default() });
        assert!(action(&known).unwrap().contains("set --pid 40981 --policy tenants"));
    }

    #[test]
    fn what_is_touched_first_needs_no_policy() {
        assert_eq!(action(&Known::new("first_touch_storm")), None);
    }

    #[test]
    fn every_policy_that_is_named_is_one() {
        for kind in ["capacity_thrash", "ping_pong", "driver_throttling", "streaming"] {
            let action = action(&Known::new(kind)).unwrap();
            let policy = action.split("--policy ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
            assert!(model::policy::named(policy).is_some(), "{action}");
        }
    }
}
