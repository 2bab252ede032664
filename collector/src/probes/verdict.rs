//! Plausibility of the probes' events for this driver.

use abi::{DropReason, Probe, SelfTest};
use sys::families::Family;

use crate::{figures::Figures, refusal::Refusal};

/// Number of events up to which one contradiction suffices: a wrong layout shows at once.
const STRICT_EVENTS: u64 = 100_000;
/// Later, one in this many: a single odd event after weeks does not justify the loss of all other
/// figures. It counts as dropped.
const CONTRADICTIONS_ONE_IN: u64 = 1000;
/// Maximum of unreadable events: one in this many, and always this few.
const UNREADABLE_ONE_IN: u64 = 10;
const UNREADABLE_MIN: u64 = 100;

/// Reason to stop counting, if any.
///
/// Events of unknown VA spaces prove nothing: they may belong to processes that were missed.
pub(super) fn verdict(family: &Family, figures: &Figures) -> Option<Refusal> {
    let events = at(&figures.hits, Probe::Notify as usize);
    let contradictions: u64 = figures.self_tests.iter().sum();
    let unreadable = at(&figures.dropped, DropReason::Unreadable as usize);

    let contradicts =
        if events <= STRICT_EVENTS { contradictions > 0 } else { contradictions > events / CONTRADICTIONS_ONE_IN };
    if contradicts {
        let failures: Vec<_> = SelfTest::ALL
            .iter()
            .zip(&figures.self_tests)
            .filter(|(_, events)| **events > 0)
            .map(|(test, events)| format!("{} ({})", test.name(), times(*events)))
            .collect();
        return Some(Refusal::SelfTest { family: family.to_string(), failures: failures.join(", ") });
    }
    if unreadable > UNREADABLE_MIN && unreadable > events / UNREADABLE_ONE_IN {
        let failures = format!("their memory cannot be read ({})", times(unreadable));
        return Some(Refusal::SelfTest { family: family.to_string(), failures });
    }
    None
}

fn at(figures: &[u64], index: usize) -> u64 {
    figures.get(index).copied().unwrap_or_default()
}

fn times(number: u64) -> String {
    if number == 1 { "once".to_owned() } else { format!("{number} times") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sys::families::Families;

    fn figures(events: u64, lost: &[(DropReason, u64)], self_tests: &[u64]) -> Figures {
        let mut figures = Figures { self_tests: self_tests.to_vec(), ..Figures::default() };
        figures.hits = vec![events];
        figures.dropped = vec![0; DropReason::COUNT as usize];
        for (reason, events) in lost {
            figures.dropped[*reason as usize] = *events;
        }
        figures
    }

    fn judged(figures: &Figures) -> Option<String> {
        let families = Families::known().unwrap();
        verdict(families.of("550.163.01").unwrap(), figures).map(|refusal| refusal.to_string())
    }

    #[test]
    fn failed_self_test_reports_its_family_and_checks() {
        assert_eq!(judged(&figures(5, &[], &[0; 9])), None);
        assert_eq!(
            judged(&figures(5, &[], &[2, 0, 1])).unwrap(),
            "the driver's events do not look as those of 550-555 should: a fault's VA space is not that of its event (2 times), \
             a fault address is not page aligned (once); counting has stopped, as the figures would be wrong"
        );
    }

    #[test]
    fn few_failures_among_many_events_are_only_dropped() {
        assert!(judged(&figures(100_000, &[], &[1])).is_some());
        assert_eq!(judged(&figures(1_000_000_000, &[], &[1])), None);
        assert_eq!(judged(&figures(1_000_000, &[], &[1000])), None);
        assert!(judged(&figures(1_000_000, &[], &[1001])).is_some());
    }

    #[test]
    fn layout_with_many_unreadable_events_is_wrong() {
        let unreadable = |events| [(DropReason::Unreadable, events)];
        assert_eq!(judged(&figures(100, &unreadable(100), &[])), None);
        assert_eq!(judged(&figures(100_000, &unreadable(10_000), &[])), None);
        let reason = judged(&figures(100_000, &unreadable(10_001), &[])).unwrap();
        assert!(reason.contains("their memory cannot be read (10001 times)"), "{reason}");
    }

    #[test]
    fn events_of_unknown_va_spaces_are_no_evidence_of_a_wrong_layout() {
        assert_eq!(judged(&figures(5000, &[(DropReason::UnknownVaSpace, 5000)], &[])), None);
    }
}
