//! Remedies for streaming: more memory than the GPU has is used once, and little of it is fetched
//! again.

use model::text;

use super::{Case, Remedies, Remedy, leave_at_host};

pub(super) fn remedies(case: &Case<'_>) -> Remedies {
    let effective = [prefetch(case), host_access(case)];
    Remedies { effective: effective.into_iter().flatten().collect(), ineffective: Vec::new() }
}

fn prefetch(case: &Case<'_>) -> Option<Remedy> {
    let involved = case.busiest(&["sequential", "cyclic"])?;
    let action = format!(
        "in the program: prefetch the {} in parts, with cudaMemPrefetchAsync on the next part while a kernel works on this one",
        involved.name()
    );
    let faults = case.rate(case.verdict.inputs.fault_entries, text::count);
    let evidence = format!(
        "its pattern is {}, and each waits for a fault: {faults} GPU faults per second",
        involved.pattern_with_evidence()
    );
    Some(Remedy::new(action, evidence))
}

/// Access from the host, for memory that is used once and does not benefit from GPU memory.
fn host_access(case: &Case<'_>) -> Option<Remedy> {
    let involved = case.involved().next()?;
    let inputs = &case.verdict.inputs;
    let evicted = case.rate(inputs.induced_eviction_bytes, text::bytes);
    let cost = if case.verdict.victims.is_empty() { "" } else { ", memory of other processes included" };
    let evidence = format!(
        "{} of its fetched bytes are refetched, and {evicted}/s are evicted for it{cost}",
        text::percent(involved.range.refetch_ratio)
    );
    let unless = "each byte is used several times while it is resident: those accesses raise no fault";
    Some(Remedy::new(leave_at_host(&format!("the {}", involved.name())), evidence).unless(unless))
}

#[cfg(test)]
mod tests {
    use crate::explain::remedies::testing::{Fixture, GIB, actions, effective};

    fn streaming(pattern: &str) -> Fixture {
        let mut known = Fixture::new("streaming");
        known.involved(0x1000_0000, 200 * GIB, pattern, 0.01);
        let inputs = &mut known.verdict.inputs;
        (inputs.fault_entries, inputs.induced_eviction_bytes) = (5000, 20 * GIB);
        known
    }

    #[test]
    fn a_walk_is_prefetched_or_accessed_at_the_host() {
        let advice = effective(&streaming("sequential"));
        assert!(advice[0].action.contains("prefetch the 200 GiB at 0x10000000 in parts"), "{advice:?}");
        assert!(advice[0].evidence.contains("1.0k GPU faults per second"), "{advice:?}");
        assert!(advice[1].action.contains("at the host"), "{advice:?}");
        assert!(
            advice[1].evidence.contains("1 % of its fetched bytes") && advice[1].evidence.contains("4.0 GiB/s"),
            "{advice:?}"
        );
    }

    #[test]
    fn random_accesses_are_not_prefetched() {
        assert!(!actions(&streaming("random")).concat().contains("prefetch"));
    }

    #[test]
    fn without_ranges_there_is_no_advice() {
        let mut known = streaming("sequential");
        known.verdict.ranges = None;
        assert_eq!(actions(&known), [""; 0]);
    }
}
